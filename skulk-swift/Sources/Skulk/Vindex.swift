// How are vindex folders written, checked and read? `extract`, `verifyVindex` and `VindexReader`.

import Foundation
internal import SkulkBindings

/// Called with how far an extraction, a slice or a verification is. An error that it throws ends the work.
public typealias OnVindexProgress = @Sendable (VindexProgress) throws -> Void

/// Writes the model of a checkpoint as a vindex folder, which LARQL reads too.
///
/// `source` is whatever `Model.load` takes; `target` must not exist or be empty. After an interruption, calling again
/// with the same options continues where it ended.
public func extract(
    _ source: some PathConvertible, to target: some PathConvertible, options: ExtractOptions = .init(),
    cancel: CancelToken? = nil, progress: OnVindexProgress? = nil
) async throws -> ExtractReport {
    try await start(
        "extract", ["source": try source.filePath, "target": try target.filePath, "options": options], cancel, progress)
}

/// Verifies a vindex folder, which need not be one that opens: what keeps it from that is a problem of the report.
public func verifyVindex(
    _ path: some PathConvertible, options: VerifyOptions = .init(), cancel: CancelToken? = nil,
    progress: OnVindexProgress? = nil
) async throws -> VerifyReport {
    try await start("verifyVindex", ["path": try path.filePath, "options": options], cancel, progress)
}

extension VerifyReport {
    /// Nothing is wrong.
    public var isSound: Bool { problems.isEmpty }
}

/// A tensor's numbers, row by row.
public struct Tensor: Sendable, Hashable {
    /// Its dimensions, outermost first.
    public let shape: [Int]
    /// Its numbers.
    public let values: [Float]
}

/// An opened vindex folder, whole or a slice, of any level. Nothing of its weights is read until it is asked for.
///
/// Asking for what a slice lacks throws an error of kind `tensorMissing`, which names the part.
public final class VindexReader: Sendable {
    let raw: RawVindex
    private let facts: Facts

    /// Every tensor that the folder's files hold, by name.
    public let tensors: [TensorInfo]

    private struct Facts: Decodable {
        let path: String
        let lacks: [VindexPart]
        let layers: [Int]
        let bands: VindexBands
        let tensors: [TensorInfo]
        let index: Index
    }

    private struct Index: Decodable {
        let model: String
        let family: String
        let num_layers: Int
        let hidden_size: Int
        let vocab_size: Int
        let extract_level: String
        let dtype: String
        let quant: String
    }

    /// Opens the folder at `path`, whose index is read before this returns; searches will compute on so many threads, all of
    /// the hardware's by default.
    public init(_ path: some PathConvertible, threads: Int? = nil) throws {
        let path = try path.filePath
        let raw = try native { try RawVindex.open(path: path, threads: threads.map(Int64.init)) }
        let json = try native { try raw.facts() }
        let facts: Facts = try readJSON(json)
        (self.raw, self.facts, tensors) = (raw, facts, facts.tensors)
    }

    func ask(
        _ name: String, _ given: Arguments = [:], _ cancel: CancelToken?, _ progress: OnVindexProgress? = nil
    ) async throws -> RawFound {
        let given = try given.json()
        return try await working(cancel, progress) { cancel, progress in
            try await self.raw.ask(name: name, given: given, cancel: cancel, progress: progress)
        }
    }

    func data<T: Decodable>(
        _ name: String, _ given: Arguments, _ cancel: CancelToken?, _ progress: OnVindexProgress? = nil
    ) async throws -> T {
        guard case .json(let text) = try await ask(name, given, cancel, progress) else { return try readJSON("") }
        return try readJSON(text)
    }

    func numbers<T: BitwiseCopyable>(_ name: String, _ given: Arguments) async throws -> [T] {
        guard case .bytes(let bytes) = try await ask(name, given, nil) else { return [] }
        return bytes.numbers()
    }

    /// The folder.
    public var path: String { facts.path }
    /// The model's name, as it was given when extracting.
    public var model: String { facts.index.model }
    /// LARQL's name of the family.
    public var family: String { facts.index.family }
    /// Decoder layers of the model.
    public var numLayers: Int { facts.index.num_layers }
    /// Width of the residual stream.
    public var hiddenSize: Int { facts.index.hidden_size }
    /// Rows of the embedding table.
    public var vocabSize: Int { facts.index.vocab_size }
    /// How much of the model was extracted: `browse`, `attention`, `inference` or `all`.
    public var level: String { facts.index.extract_level }
    /// The type of gate vectors and float files, by what the index says: `f32` or `f16`.
    public var dtype: String { facts.index.dtype }
    /// How other weights are stored: `none`, as floats, or `q4k`.
    public var quant: String { facts.index.quant }
    /// Parts that the whole vindex has and this folder lacks.
    public var lacks: [VindexPart] { facts.lacks }
    /// The layers of which the index tells features, in order. A slice may lack their gate vectors.
    public var layers: [Int] { facts.layers }
    /// Which layers count as syntax, knowledge and output.
    public var bands: VindexBands { facts.bands }

    /// The folder's tokenizer; an error in a slice without one.
    public var tokenizer: Tokenizer {
        get throws { Tokenizer(raw, try readJSON(native { try raw.tokenizer() })) }
    }

    /// `index.json`, with the defaults of what it leaves out: as JSON, with names in order.
    public func index() throws -> String {
        let facts = Data(try native { try raw.facts() }.utf8)
        let index = (try JSONSerialization.jsonObject(with: facts) as? [String: Any])?["index"]
        let sorted = try JSONSerialization.data(
            withJSONObject: index ?? [:], options: [.sortedKeys, .withoutEscapingSlashes])
        return String(decoding: sorted, as: UTF8.self)
    }

    /// Whether there is a tensor of this name.
    public func has(_ name: String) -> Bool { tensors.contains { $0.name == name } }

    /// What is known of a tensor. An error for one that a slice lacks, or that there is not.
    public func tensor(_ name: String) async throws -> TensorInfo {
        // The library knows why there is none.
        let _: String = try await data("tensor", ["name": name], nil)
        guard let tensor = tensors.first(where: { $0.name == name }) else { return try readJSON("") }
        return tensor
    }

    /// The parts that the folder holds, and the files of each, as they are now.
    public func parts() async throws -> [PartInfo] { try await data("parts", [:], nil) }

    /// A tensor's numbers, of any type, as floats.
    public func array(_ name: String) async throws -> Tensor {
        let values: [Float] = try await numbers("array", ["name": name])
        return Tensor(shape: tensors.first { $0.name == name }?.shape ?? [values.count], values: values)
    }

    /// A tensor's bytes, as they are stored.
    public func bytes(_ name: String) async throws -> Data { Data(try await numbers("bytes", ["name": name]) as [UInt8]) }

    /// A layer's gate vectors, rows of `hiddenSize` numbers, all experts' behind each other.
    public func gates(_ layer: Int) async throws -> Tensor {
        let values: [Float] = try await numbers("gates", ["layer": layer])
        return Tensor(shape: [values.count / max(hiddenSize, 1), hiddenSize], values: values)
    }

    /// Makes a folder at `target` of what a role takes of this one, or of some parts, layers or experts.
    ///
    /// Files that are taken whole are links where the file system can, else copies. An error leaves nothing under that
    /// name.
    public func slice(
        to target: some PathConvertible, options: SliceOptions = .init(), cancel: CancelToken? = nil,
        progress: OnVindexProgress? = nil
    ) async throws -> SliceReport {
        try await data("slice", ["target": try target.filePath, "options": options], cancel, progress)
    }

    /// Verifies the folder as it is now.
    public func verify(
        options: VerifyOptions = .init(), cancel: CancelToken? = nil, progress: OnVindexProgress? = nil
    ) async throws -> VerifyReport {
        try await verifyVindex(try native { try raw.path() }, options: options, cancel: cancel, progress: progress)
    }

    /// Lets go of the folder's files. Using it afterwards is an error.
    public func close() { raw.close() }
}

extension VindexReader: CustomStringConvertible {
    /// What it is, in words.
    public var description: String {
        "\(model): \(numLayers) layers, level \(level), \(quant == "none" ? dtype : quant)"
    }
}

extension SliceReport: CustomStringConvertible {
    /// A line for each file.
    public var description: String { text }
}

extension VerifyReport: CustomStringConvertible {
    /// A summary and a line for each problem.
    public var description: String { text }
}

extension VerifyProblem: CustomStringConvertible {
    /// The problem as text.
    public var description: String { text }
}
