// How is a model loaded, and what can be asked of it? `Model`, and what its calls take.

import Foundation
internal import SkulkBindings

/// A model ready to generate: its weights, split into stages.
///
/// ```swift
/// let model = try await Model.load("model.gguf", options: .init(stages: 2))
/// for try await event in model.generate("Once upon a time", options: .init(maxTokens: 40)) {
///     print(event, terminator: "")
/// }
/// ```
public final class Model: Sendable {
    let raw: RawModel
    /// Facts about the architecture.
    public let arch: Arch
    /// What each stage holds, in the order a token passes them.
    public let stages: [Stage]
    /// Which engine runs which layers, in words.
    public let placement: String
    /// Positions a session can hold, in tokens.
    public let context: Int
    /// How long loading took, in seconds.
    public let loadSeconds: Double
    /// The model's tokenizer.
    public let tokenizer: Tokenizer

    private struct Facts: Decodable {
        let arch: Arch
        let stages: [Stage]
        let placement: String
        let context: Int
        let loadSeconds: Double
        let vocabulary: Tokenizer.Facts
    }

    private init(_ raw: RawModel) throws {
        let facts = try readJSON(try native { try raw.facts() }, as: Facts.self)
        (self.raw, arch, stages, placement) = (raw, facts.arch, facts.stages, facts.placement)
        (context, loadSeconds) = (facts.context, facts.loadSeconds)
        tokenizer = Tokenizer(raw, facts.vocabulary)
    }

    /// Loads the checkpoint at `path`: a GGUF file, a Hugging Face folder of safetensors, or a vindex folder.
    ///
    /// A `placement` says which engine runs which layers, instead of the options `engine` and `stages`. `progress` is
    /// called on the loading thread; an error that it throws ends loading, as `cancel` and the task's cancellation do,
    /// within one layer.
    public static func load(
        _ path: some PathConvertible, options: LoadOptions = .init(), placement: Placement? = nil,
        cancel: CancelToken? = nil, progress: (@Sendable (LoadProgress) throws -> Void)? = nil
    ) async throws -> Model {
        let (path, given) = (try path.filePath, try writeJSON(options, as: "options"))
        let raw = try await working(cancel, progress) { cancel, progress in
            try await RawModel.load(
                path: path, given: given, placement: placement?.raw, cancel: cancel, progress: progress)
        }
        return try Model(raw)
    }

    /// What is in memory of feed-forward weights, where the option `ffnBudget` bounds that.
    public var ffnMemory: FfnMemory? {
        get throws { try native { try raw.ffnMemory().map { try readJSON($0) } } }
    }

    /// What keys and values of all sessions take now, and what is kept for those to come.
    public var kvMemory: KvMemory {
        get throws { try readJSON(try native { try raw.kvMemory() }) }
    }

    /// What the model holds of memory at present, and what its plan counted.
    public var memory: ModelMemory {
        get throws { try readJSON(try native { try raw.memory() }) }
    }

    /// An empty session, which takes no memory yet. Any number may exist and generate at the same time.
    public func session() throws -> Session { Session(try native { try raw.session() }) }

    /// A session as ``Session/save(to:)`` wrote it, to be gone on with. It has to be of the same model, loaded with the
    /// same types of keys and values and the same precision on the same kind of engine; it may be cut into other stages.
    /// The file is not needed afterwards. Nothing ends it but that a cancelled task gets an error.
    public func restore(from path: some PathConvertible) async throws -> Session {
        let path = try path.filePath
        return Session(try await unstoppable { try await self.raw.restore(path: path) })
    }

    /// The same checkpoint, loaded with the same options but for the placement: what this model computed on machines that are
    /// lost is elsewhere there. Both exist while both are used. `cancel` and the task's cancellation end it within one layer.
    public func replan(_ placement: Placement, cancel: CancelToken? = nil) async throws -> Model {
        try Model(try await working(cancel) { try await self.raw.replan(placement: placement.raw, cancel: $0) })
    }

    /// Generates from a prompt in a session of its own. What is wrong with it is thrown where events are read.
    public func generate(
        _ prompt: some PromptConvertible, options: GenerateOptions = .init(), cancel: CancelToken? = nil
    ) -> Generation {
        Generation {
            try self.raw.generate(prompt: prompt.prompt.raw, given: optionsJSON(options), cancel: cancel?.raw)
        }
    }

    /// Generates from many prompts, each in a session of its own, in steps together, and waits until all have ended: there
    /// is a result for each prompt, in their order, and one that fails does not end the others. It throws for options
    /// that cannot be; where `cancel` or the task's cancellation ends it, results say so.
    public func generateBatch(
        _ prompts: [some PromptConvertible], options: GenerateOptions = .init(), cancel: CancelToken? = nil
    ) async throws -> [Result<Output, SkulkError>] {
        let (prompts, given) = (prompts.map(\.prompt.raw), try optionsJSON(options))
        let json = try await working(cancel) {
            try await self.raw.generateBatch(prompts: prompts, given: given, cancel: $0)
        }
        return try readJSON(json, as: [Outcome].self).map(\.result)
    }

    /// Measures on these prompts which way to compute tokens ahead is the fastest: none, what texts repeat, and a draft model
    /// where one is loaded, each with 1, 2, 4 and 8 tokens in every step, and with as many as pay. Ways take turns, three
    /// times, of each text 128 tokens unless options say otherwise; `speculate` tries that way alone. `text` is a table.
    public func tuneSpeculation(
        _ prompts: [some PromptConvertible], options: GenerateOptions = .init(), cancel: CancelToken? = nil
    ) async throws -> SpeculationReport {
        let (prompts, given) = (prompts.map(\.prompt.raw), try optionsJSON(options))
        let json = try await working(cancel) {
            try await self.raw.tuneSpeculation(prompts: prompts, given: given, cancel: $0)
        }
        return try readJSON(json)
    }

    /// Logits of the next token behind every token of a text: rows of `arch.vocabSize` numbers, one row a token,
    /// behind each other.
    public func logits(_ text: some PromptConvertible, cancel: CancelToken? = nil) async throws -> [Float] {
        let text = text.prompt.raw
        return try await working(cancel) { try await self.raw.logits(prompt: text, cancel: $0) }.numbers()
    }

    /// How far this model's predictions are from an `exact` one's, behind every token of a text: what the option
    /// `ffnTopFeatures` or quantised weights cost.
    public func divergence(
        from exact: Model, on text: some PromptConvertible, cancel: CancelToken? = nil
    ) async throws -> Divergence {
        let text = text.prompt.raw
        let found = try await working(cancel) {
            try await self.raw.divergence(exact: exact.raw, prompt: text, cancel: $0)
        }
        return Divergence(
            tokens: Int(found.tokens), meanKl: found.meanKl, maxKl: found.maxKl,
            top1Agreement: found.top1Agreement)
    }

    /// Lets go of the weights, which are freed when its sessions are gone, too. Using it afterwards is an error.
    public func close() { raw.close() }
}

extension SpeculationReport: CustomStringConvertible {
    /// A line for each way.
    public var description: String { text }
}

extension Model: CustomStringConvertible {
    /// What it is, in words.
    public var description: String {
        "\(arch.family): \(arch.nLayers) layers in \(stages.count) stages, context \(context)"
    }
}

/// How far loading is.
public struct LoadProgress: Codable, Sendable, Hashable {
    /// Layers loaded so far, over all stages.
    public let done: Int
    /// Layers of the model, and of its draft model.
    public let total: Int
}

/// A switch that stops the work it was handed to, within one layer: for what no task's cancellation reaches.
///
/// Cancelling is sticky: use a fresh token for new work.
public final class CancelToken: Sendable {
    let raw = RawCancel()

    /// A token that nobody has cancelled yet.
    public init() {}

    /// Asks the work to stop. Returns at once.
    public func cancel() { raw.cancel() }

    /// Whether `cancel` was called.
    public var isCancelled: Bool { raw.isCancelled() }
}

/// What a generation starts from.
public enum Prompt: Sendable, Hashable {
    /// Text. Special tokens are recognised.
    case text(String)
    /// Tokens, used as given.
    case tokens([Int])

    var raw: RawPrompt {
        switch self {
        case .text(let text): .text(text: text)
        case .tokens(let ids): .tokens(ids: Data(ids: ids))
        }
    }
}

/// Texts and tokens, as prompts.
public protocol PromptConvertible: Sendable {
    /// It as a prompt.
    var prompt: Prompt { get }
}

extension Prompt: PromptConvertible {
    /// Itself.
    public var prompt: Prompt { self }
}

extension String: PromptConvertible {
    /// The text.
    public var prompt: Prompt { .text(self) }
}

extension [Int]: PromptConvertible {
    /// The tokens.
    public var prompt: Prompt { .tokens(self) }
}

/// Paths of files and folders, as texts and file URLs.
public protocol PathConvertible: Sendable {
    /// It as the system has it.
    var filePath: String { get throws }
}

extension String: PathConvertible {
    /// Itself.
    public var filePath: String { self }
}

extension URL: PathConvertible {
    /// The path of a file URL of this machine; an error for others.
    public var filePath: String {
        get throws {
            guard isFileURL, ["", "localhost"].contains(host() ?? "") else {
                throw SkulkError(
                    refusing: "path",
                    "expected a path as text or as a file URL of this machine, found \(absoluteString)", hint: nil)
            }
            return path
        }
    }
}

/// The devices of this machine that engines run on: the CPU, and every GPU by every backend that reaches it.
public func devices() async throws -> [Device] {
    try await unstoppable { try await start("devices", [:], nil, nil as (@Sendable (Int) throws -> Void)?) }
}

/// The version of the library.
public let version = rawVersion()
