// Are vectors of texts those of other people's software, and is what cannot be refused?

import Foundation
import Skulk
import Testing

private let tinyPath = root.appending(path: "tests/fixtures/embeddings/tiny-bert")
private let long = String(repeating: "the cat sat on the mat, ", count: 5)

/// all-MiniLM-L6-v2, which tests/run fetches.
private let miniLMPath: String? = {
    let cached = root.appending(path: ".cache/all-MiniLM-L6-v2").path
    let path = ProcessInfo.processInfo.environment["SKULK_MINILM"] ?? cached
    return FileManager.default.fileExists(atPath: path) ? path : nil
}()

private func tiny() async throws -> EmbeddingModel {
    try await EmbeddingModel.load(tinyPath, options: .init(threads: 2))
}

private struct Suite: Decodable {
    let cases: [Case]

    struct Case: Decodable {
        let text: String
        let ids: [Int]
        let vector: [Float]
    }
}

/// llama.cpp looks its GELU up in a table of f16.
private func givesWhatLlamaCppGives(_ model: EmbeddingModel, _ suite: URL) async throws {
    let cases = try JSONDecoder().decode(Suite.self, from: Data(contentsOf: suite)).cases
    let vectors = try await model.embed(cases.map(\.text))
    #expect(vectors.count == 7 && vectors.allSatisfy { $0.count == model.dimensions })
    for (vector, one) in zip(vectors, cases) {
        #expect(try model.tokenizer.encode(one.text) == one.ids)
        #expect(zip(vector, one.vector).allSatisfy { abs($0 - $1) < 1e-3 }, "\(one.text)")
    }
}

@Suite struct EmbeddingTests {
    @Test func anUntrainedModel() async throws {
        let model = try await tiny()
        #expect(model.dimensions == 16 && model.maxTokens == 16)
        #expect(model.poolings == ["mean"] && model.isNormalized)
        #expect("\(model)" == "16 dimensions, 16 tokens")
        try await givesWhatLlamaCppGives(model, root.appending(path: "tests/fixtures/embeddings/tiny-bert.json"))
    }

    @Test(.enabled(if: miniLMPath != nil)) func theRealModel() async throws {
        let model = try await EmbeddingModel.load(#require(miniLMPath))
        #expect(model.dimensions == 384 && model.maxTokens == 256)
        try await givesWhatLlamaCppGives(model, root.appending(path: "tests/suites/embeddings.json"))
    }

    @Test func oneTextOrSeveral() async throws {
        let (model, texts) = (try await tiny(), ["a cat", "", "the old dog runs"])
        let together = try await model.embed(texts)
        for (text, vector) in zip(texts, together) { #expect(try await model.embed(text) == vector) }
        #expect(try await model.embed([]) == [])
        let other = try await EmbeddingModel.load(tinyPath.path, options: .init(threads: 1))
        #expect(try await other.embed(texts) == together)
    }

    @Test func longTextsAreCutOrRefused() async throws {
        let model = try await tiny()
        let ids = try model.tokenizer.encode(long)
        let beginning = try model.tokenizer.decode(Array(ids.prefix(model.maxTokens - 1)))
        #expect(try model.tokenizer.encode(beginning).count == model.maxTokens)
        #expect(try await model.embed(long) == model.embed(beginning))
        let error = try await failure(.invalidArgument) {
            _ = try await model.embed(["a cat", long], options: .init(truncate: false))
        }
        #expect(error.context["field"] == "texts.1" && error.message.contains("found \(ids.count)"))
    }

    @Test func whatCannotBeIsRefused() async throws {
        for threads in [0, -1] {
            _ = try await failure(.invalidArgument) {
                _ = try await EmbeddingModel.load(tinyPath, options: .init(threads: threads))
            }
        }
        _ = try await failure(.archUnsupported) { _ = try await EmbeddingModel.load(fixtures.appending(path: "llama")) }
        _ = try await failure(.fileNotFound) { _ = try await EmbeddingModel.load(tinyPath.appending(path: "nothing")) }
    }

    @Test func tasksAndTokensEndIt() async throws {
        let model = try await tiny()
        let texts = Array(repeating: long, count: 100_000)
        let task = Task { try await model.embed(texts) }
        try await Task.sleep(for: .milliseconds(50))
        task.cancel()
        _ = try await failure(.cancelled) { _ = try await task.value }
        let token = CancelToken()
        #expect(try await model.embed("a cat", cancel: token).count == 16 && !token.isCancelled)
        token.cancel()
        _ = try await failure(.cancelled) { _ = try await model.embed("a cat", cancel: token) }
    }

    @Test func closedModelsRefuse() async throws {
        let model = try await tiny()
        model.close()
        model.close()
        let error = try await failure(.invalidArgument) { _ = try await model.embed("a cat") }
        #expect(error.message.contains("closed"))
        _ = try await failure(.invalidArgument) { _ = try model.tokenizer.encode("a cat") }
    }
}
