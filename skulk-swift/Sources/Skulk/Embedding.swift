// How are vectors made of texts? `EmbeddingModel`.

import Foundation
internal import SkulkBindings

/// A model that makes vectors of texts, which are near each other where texts mean the same.
///
/// ```swift
/// let model = try await EmbeddingModel.load("all-MiniLM-L6-v2")
/// let vectors = try await model.embed(["A cat sat on the mat.", "A kitten sat down on a rug."])
/// ```
public final class EmbeddingModel: Sendable {
    private let raw: RawEmbeddingModel
    /// Elements of a vector.
    public let dimensions: Int
    /// Tokens of a text that count, those that the tokenizer adds among them.
    public let maxTokens: Int
    /// How tokens' vectors become a text's: `cls`, `max`, `mean`, `mean_sqrt_len_tokens`, `weightedmean` or `lasttoken`.
    /// Several give one behind the other.
    public let poolings: [String]
    /// Whether vectors have length 1, so that their dot product is their cosine.
    public let isNormalized: Bool
    /// The model's tokenizer.
    public let tokenizer: Tokenizer

    private struct Facts: Decodable {
        let dimensions: Int
        let maxTokens: Int
        let poolings: [String]
        let isNormalized: Bool
        let vocabulary: Tokenizer.Facts
    }

    private init(_ raw: RawEmbeddingModel) throws {
        let facts = try readJSON(try native { try raw.facts() }, as: Facts.self)
        (self.raw, dimensions, maxTokens) = (raw, facts.dimensions, facts.maxTokens)
        (poolings, isNormalized) = (facts.poolings, facts.isNormalized)
        tokenizer = Tokenizer(raw, facts.vocabulary)
    }

    /// Loads the folder at `path`, as Hugging Face and sentence-transformers write it: a BERT with its tokenizer. Nothing
    /// ends it but that a cancelled task gets an error.
    public static func load(
        _ path: some PathConvertible, options: EmbeddingOptions = .init()
    ) async throws -> EmbeddingModel {
        let (path, given) = (try path.filePath, try writeJSON(options, as: "options"))
        return try EmbeddingModel(try await unstoppable { try await RawEmbeddingModel.load(path: path, given: given) })
    }

    /// The vector of a text, of ``dimensions`` numbers. `cancel` and the task's cancellation end it.
    public func embed(
        _ text: String, options: EmbedOptions = .init(), cancel: CancelToken? = nil
    ) async throws -> [Float] {
        try await numbers([text], options, cancel)
    }

    /// A vector of each text, in their order. A text's vector does not depend on the others. `cancel` and the task's
    /// cancellation end it after the texts that are being computed.
    public func embed(
        _ texts: [String], options: EmbedOptions = .init(), cancel: CancelToken? = nil
    ) async throws -> [[Float]] {
        let all = try await numbers(texts, options, cancel)
        return texts.indices.map { Array(all[$0 * dimensions..<($0 + 1) * dimensions]) }
    }

    private func numbers(_ texts: [String], _ options: EmbedOptions, _ cancel: CancelToken?) async throws -> [Float] {
        let given = try writeJSON(options, as: "options")
        return try await working(cancel) { try await self.raw.embed(texts: texts, given: given, cancel: $0) }.numbers()
    }

    /// Lets go of the model, once what is being embedded is done. Using it afterwards is an error.
    public func close() { raw.close() }
}

extension EmbeddingModel: CustomStringConvertible {
    /// What it is, in words.
    public var description: String { "\(dimensions) dimensions, \(maxTokens) tokens" }
}
