// Which models do the tests run on, and how are errors expected? The fixtures, and the real model where it was fetched.

import Foundation
import Skulk
import Testing

let root = URL(filePath: #filePath)
    .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()
let fixtures = root.appending(path: "tests/fixtures/models")
let storiesPath = fixtures.appending(path: "stories260K").path
let checkpoints = ["stories260K", "llama", "gemma3"].map { fixtures.appending(path: $0).path }
let prompt = "Once upon a time"

/// Gemma 3 270M, which tests/run fetches.
let gemmaPath: String? = {
    let cached = root.appending(path: ".cache/gemma-3-270m-q4_k_m.gguf").path
    let path = ProcessInfo.processInfo.environment["SKULK_GEMMA_GGUF"] ?? cached
    return FileManager.default.fileExists(atPath: path) ? path : nil
}()

/// The smallest checkpoint, loaded once.
func stories() async throws -> Model { try await loaded.value }
private let loaded = Task { try await Model.load(storiesPath, options: .init(threads: 1)) }

/// The failure that a call ends with.
func failure(
    _ kind: ErrorKind, at location: SourceLocation = #_sourceLocation, _ call: () async throws -> Void
) async throws -> SkulkError {
    var found: (any Error)?
    do { try await call() } catch { found = error }
    let error = try #require(found as? SkulkError, "found \(String(describing: found))", sourceLocation: location)
    #expect(error.kind == kind, "\(error)", sourceLocation: location)
    return error
}

/// A folder that is there while the test runs.
func temporary<T>(_ use: (URL) async throws -> T) async throws -> T {
    let folder = FileManager.default.temporaryDirectory.appending(path: "skulk-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: folder) }
    return try await use(folder)
}

/// JSON as dictionaries and lists.
func object(_ json: String) throws -> [String: Any] {
    try #require(try JSONSerialization.jsonObject(with: Data(json.utf8)) as? [String: Any])
}

/// A model whose prefill takes seconds: 100 million zeros, with the tokenizer of another.
func slow() async throws -> Model {
    try await Model.load(slowPath.value, options: .init(threads: 2, context: 8192, prefillChunk: 64))
}

/// Tokens that take it many seconds.
let longPrompt = Array(repeating: 5, count: 6000)

let slowPath = Task {
    let folder = FileManager.default.temporaryDirectory.appending(path: "skulk-slow-\(getpid())")
    let source = fixtures.appending(path: "stories260K")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    for name in ["tokenizer.json", "tokenizer_config.json", "generation_config.json"] {
        try FileManager.default.copyItem(at: source.appending(path: name), to: folder.appending(path: name))
    }
    let (hidden, inner, layers, vocab) = (1024, 4096, 6, 512)
    var config = try object(String(contentsOf: source.appending(path: "config.json"), encoding: .utf8))
    config.merge([
        "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers,
        "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": hidden / 8,
        "max_position_embeddings": 8192, "tie_word_embeddings": true,
    ]) { _, new in new }
    try JSONSerialization.data(withJSONObject: config).write(to: folder.appending(path: "config.json"))
    var shapes = ["model.embed_tokens.weight": [vocab, hidden], "model.norm.weight": [hidden]]
    for layer in 0..<layers {
        let prefix = "model.layers.\(layer)."
        for name in ["q", "k", "v", "o"] { shapes["\(prefix)self_attn.\(name)_proj.weight"] = [hidden, hidden] }
        for name in ["gate", "up"] { shapes["\(prefix)mlp.\(name)_proj.weight"] = [inner, hidden] }
        shapes["\(prefix)mlp.down_proj.weight"] = [hidden, inner]
        for name in ["input", "post_attention"] { shapes["\(prefix)\(name)_layernorm.weight"] = [hidden] }
    }
    var (header, end) = ([String: Any](), 0)
    for (name, shape) in shapes {
        let start = end
        end += 2 * shape.reduce(1, *)
        header[name] = ["dtype": "F16", "shape": shape, "data_offsets": [start, end]]
    }
    let text = try JSONSerialization.data(withJSONObject: header)
    let file = folder.appending(path: "model.safetensors")
    try (withUnsafeBytes(of: UInt64(text.count).littleEndian) { Data($0) } + text).write(to: file)
    let handle = try FileHandle(forWritingTo: file)
    try handle.truncate(atOffset: UInt64(8 + text.count + end))
    try handle.close()
    return folder.path
}
