// What does the model of a vindex folder know? The searches of `VindexReader`, which answer without running it.

import Foundation

extension VindexReader {
    /// What enters the first layer for each of some tokens: rows of `hiddenSize` numbers, behind each other.
    public func embed(_ tokens: [Int]) async throws -> [Float] { try await numbers("embed", ["tokens": tokens]) }

    /// The products of all gate rows of a layer with `query`, `hiddenSize` numbers.
    public func scores(_ layer: Int, query: [Float]) async throws -> [Float] {
        try await numbers("scores", ["layer": layer, "query": query])
    }

    /// The features of each layer whose gate rows have products of the largest magnitude with `query`, `hiddenSize`
    /// numbers: the largest of the first layer first.
    public func nearest(
        to query: [Float], options: NearestOptions = .init(), cancel: CancelToken? = nil
    ) async throws -> [FeatureHit] {
        try await data("nearest", ["query": query, "options": options], cancel)
    }

    /// The features that a prompt's last token wakes.
    public func walk(
        _ prompt: String, options: WalkOptions = .init(), cancel: CancelToken? = nil
    ) async throws -> [WalkHit] {
        try await data("walk", ["prompt": prompt, "options": options], cancel)
    }

    /// What the model associates with an entity: the tokens that features write whose gate rows answer to it.
    public func describe(
        _ entity: String, options: DescribeOptions = .init(), cancel: CancelToken? = nil
    ) async throws -> Description {
        try await data("describe", ["entity": entity, "options": options], cancel)
    }

    /// A feature and what it writes; `nil` where nothing is written down of it.
    public func feature(_ layer: Int, _ feature: Int) async throws -> Feature? {
        try await data("feature", ["layer": layer, "feature": feature], nil)
    }

    /// The features of a layer of which anything is written down, in order.
    public func features(_ layer: Int, cancel: CancelToken? = nil) async throws -> [Feature] {
        try await data("features", ["layer": layer], cancel)
    }

    /// Features in order: those that fit all that the options say. The largest score, or the last layer, comes first
    /// unless `ascending`.
    public func select(_ options: SelectOptions = .init(), cancel: CancelToken? = nil) async throws -> Selection {
        try await data("select", ["options": options], cancel)
    }

    /// The words that features of the layers of facts write most, and the labels that probes confirmed.
    public func relations(
        _ options: RelationsOptions = .init(), cancel: CancelToken? = nil
    ) async throws -> Relations {
        try await data("relations", ["options": options], cancel)
    }
}
