// What does the model of a vindex folder know? The searches of `VindexReader`, which answer without running it.

import Foundation
internal import SkulkBindings

extension VindexReader {
    /// What enters the first layer for each of some tokens: rows of `hiddenSize` numbers, behind each other.
    public func embed(_ tokens: [Int]) async throws -> [Float] {
        try await working(nil) { _ in try await self.raw.embed(tokens: Data(ids: tokens)) }.numbers()
    }

    /// The products of all gate rows of a layer with `query`, `hiddenSize` numbers.
    public func scores(_ layer: Int, query: [Float]) async throws -> [Float] {
        try await working(nil) { _ in
            try await self.raw.scores(layer: Int64(layer), query: Data(numbers: query))
        }.numbers()
    }

    /// The features of each layer whose gate rows have products of the largest magnitude with `query`, `hiddenSize`
    /// numbers: the largest of the first layer first.
    public func nearest(
        to query: [Float], options: NearestOptions = .init(), cancel: CancelToken? = nil
    ) async throws -> [FeatureHit] {
        let given = try writeJSON(options)
        return try await search(cancel) { raw, cancel in
            try await raw.nearest(query: Data(numbers: query), given: given, cancel: cancel)
        }
    }

    /// The features that a prompt's last token wakes.
    public func walk(
        _ prompt: String, options: WalkOptions = .init(), cancel: CancelToken? = nil
    ) async throws -> [WalkHit] {
        let given = try writeJSON(options)
        return try await search(cancel) { try await $0.walk(prompt: prompt, given: given, cancel: $1) }
    }

    /// What the model associates with an entity: the tokens that features write whose gate rows answer to it.
    public func describe(
        _ entity: String, options: DescribeOptions = .init(), cancel: CancelToken? = nil
    ) async throws -> Description {
        let given = try writeJSON(options)
        return try await search(cancel) { try await $0.describe(entity: entity, given: given, cancel: $1) }
    }

    /// A feature and what it writes; `nil` where nothing is written down of it.
    public func feature(_ layer: Int, _ feature: Int) async throws -> Feature? {
        try await search(nil) { try await $0.feature(layer: Int64(layer), feature: Int64(feature), cancel: $1) }
    }

    /// The features of a layer of which anything is written down, in order.
    public func features(_ layer: Int, cancel: CancelToken? = nil) async throws -> [Feature] {
        try await search(cancel) { try await $0.features(layer: Int64(layer), cancel: $1) }
    }

    /// Features in order: those that fit all that the options say. The largest score, or the last layer, comes first
    /// unless `ascending`.
    public func select(_ options: SelectOptions = .init(), cancel: CancelToken? = nil) async throws -> Selection {
        let given = try writeJSON(options)
        return try await search(cancel) { try await $0.select(given: given, cancel: $1) }
    }

    /// The words that features of the layers of facts write most, and the labels that probes confirmed.
    public func relations(
        _ options: RelationsOptions = .init(), cancel: CancelToken? = nil
    ) async throws -> Relations {
        let given = try writeJSON(options)
        return try await search(cancel) { try await $0.relations(given: given, cancel: $1) }
    }

    private func search<T: Decodable>(
        _ cancel: CancelToken?, _ search: @escaping @Sendable (RawVindex, RawCancel) async throws -> String
    ) async throws -> T {
        try readJSON(try await working(cancel) { try await search(self.raw, $0) })
    }
}
