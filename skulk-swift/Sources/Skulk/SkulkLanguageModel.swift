// How do apps reach a model through Apple's FoundationModels? `SkulkLanguageModel`, on systems of version 27.

// The framework's version is 1 in SDKs of version 26, which lack what is used here, and 2 in those of version 27.
#if canImport(FoundationModels, _version: 2)
import Foundation
import FoundationModels

/// A model for a `LanguageModelSession` of Apple's FoundationModels.
///
/// ```swift
/// let teller = SkulkLanguageModel(model) { transcript in try prompt(of: transcript) }
/// let session = LanguageModelSession(model: teller, instructions: "Answer in one sentence.")
/// print(try await session.respond(to: "Who was Lily?").content)
/// ```
///
/// Text streams as it is generated, with the numbers of tokens, and cancelling the task ends the generation. Each
/// session of the framework holds one ``Session``: what a prompt shares with the one before is not computed again. Why
/// an answer ended, a ``FinishReason``, is in its metadata as `finishReason`.
///
/// There are no tools, no guided generation, no reasoning and no images: requests for them get the framework's
/// `LanguageModelError.unsupportedCapability`. A context that is too short is its `contextSizeExceeded`, a generation
/// that was cancelled a `CancellationError`; other errors are ``SkulkError``s. Prewarming does nothing, since the model
/// is loaded.
///
/// It is compiled where the SDK is of version 27. No test runs it, since none has such a system.
@available(iOS 27, macOS 27, visionOS 27, *)
public struct SkulkLanguageModel: LanguageModel {
    let model: Skulk.Model
    let options: GenerateOptions
    let prompt: @Sendable (Transcript) throws -> String

    /// Wraps a loaded model.
    ///
    /// `prompt` writes a transcript as the model was trained to read it, up to where its answer begins; a wrong one makes
    /// a model answer worse without any error. ``Model/renderChat(_:options:)`` writes messages so. An entry that it
    /// cannot write it refuses, with `LanguageModelError.unsupportedTranscriptContent`.
    ///
    /// `options` hold for what a request leaves open, as stop texts; `append` and `logprobs` are refused. Where tokens
    /// are drawn and neither these nor the request have a seed, each answer draws with another.
    public init(
        _ model: Skulk.Model, options: GenerateOptions = .init(),
        prompt: @escaping @Sendable (Transcript) throws -> String
    ) {
        (self.model, self.options, self.prompt) = (model, options, prompt)
    }

    /// None: it answers with text, to text.
    public var capabilities: LanguageModelCapabilities { LanguageModelCapabilities([]) }

    /// The model, by which the framework finds the executor.
    public var executorConfiguration: Executor.Configuration { Executor.Configuration(model: model) }

    /// Answers the requests of one conversation.
    public struct Executor: LanguageModelExecutor {
        /// Which loaded model an executor is for.
        public struct Configuration: Hashable, Sendable {
            let model: Skulk.Model

            /// Whether both are the same loaded model.
            public static func == (one: Self, other: Self) -> Bool { one.model === other.model }

            /// Hashes which model it is.
            public func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(model)) }
        }

        private let session: Skulk.Session

        /// An executor with an empty session.
        public init(configuration: Configuration) throws { session = try configuration.model.session() }

        /// Generates the transcript's next entry.
        public func respond(
            to request: LanguageModelExecutorGenerationRequest, model: SkulkLanguageModel,
            streamingInto channel: LanguageModelExecutorGenerationChannel
        ) async throws {
            if let (capability, reason) = request.unsupported {
                throw LanguageModelError.unsupportedCapability(
                    .init(capability: capability, debugDescription: "SkulkLanguageModel \(reason)"))
            }
            let options = try model.options.asked(by: request.generationOptions)
            let generation = session.generate(try model.prompt(request.transcript), options: options)
            do {
                try await stream(generation, into: channel)
            } catch let error as SkulkError {
                throw error.counterpart
            }
        }

        private func stream(
            _ generation: Generation, into channel: LanguageModelExecutorGenerationChannel
        ) async throws {
            let entry = UUID().uuidString
            // Tokens whose text is not sent: a letter may take several.
            var tokens = 0
            for try await event in generation {
                tokens += event.token == nil ? 0 : 1
                if !event.text.isEmpty {
                    await channel.send(.response(entryID: entry, action: .appendText(event.text, tokenCount: tokens)))
                    tokens = 0
                }
                guard let finish = event.finish else { continue }
                let reason = finish.reason.rawValue
                await channel.send(.response(entryID: entry, action: .updateMetadata(["finishReason": reason])))
                // These replace the numbers sent with the text.
                let usage = finish.usage
                await channel.send(
                    .response(
                        entryID: entry,
                        action: .updateUsage(
                            input: .init(totalTokenCount: usage.promptTokens, cachedTokenCount: usage.cachedTokens),
                            output: .init(totalTokenCount: usage.completionTokens, reasoningTokenCount: 0))))
            }
        }
    }
}

@available(iOS 27, macOS 27, visionOS 27, *)
extension LanguageModelExecutorGenerationRequest {
    /// What it asks for that the library does not do. The framework looks for it, too, but not at every image.
    fileprivate var unsupported: (capability: LanguageModelCapabilities.Capability, reason: String)? {
        if !enabledToolDefinitions.isEmpty && generationOptions.toolCallingMode != .disallowed {
            return (.toolCalling, "calls no tools")
        }
        if schema != nil { return (.guidedGeneration, "follows no schema") }
        if contextOptions.reasoningLevel != nil { return (.reasoning, "does not reason apart from its answer") }
        if transcript.contains(where: \.hasImage) { return (.vision, "reads text only") }
        return nil
    }
}

@available(iOS 27, macOS 27, visionOS 27, *)
extension Transcript.Entry {
    fileprivate var hasImage: Bool {
        let segments: [Transcript.Segment] =
            switch self {
            case .instructions(let entry): entry.segments
            case .prompt(let entry): entry.segments
            case .response(let entry): entry.segments
            case .toolOutput(let entry): entry.segments
            default: []
            }
        return segments.contains { segment in
            if case .attachment(let attachment) = segment, case .image = attachment.content { true } else { false }
        }
    }
}

@available(iOS 27, macOS 27, visionOS 27, *)
extension GenerateOptions {
    /// These, with what a request asks for.
    fileprivate func asked(by request: GenerationOptions) throws -> GenerateOptions {
        guard append != true else { throw SkulkError(refusing: "append", "each prompt is the whole conversation") }
        guard logprobs == nil else { throw SkulkError(refusing: "logprobs", "the framework takes text only") }
        var options = self
        options.maxTokens = request.maximumResponseTokens ?? maxTokens
        options.temperature = request.temperature ?? temperature
        if let mode = request.samplingMode { try options.sample(as: mode.kind, at: request.temperature) }
        if let temperature = options.temperature, temperature > 0, options.seed == nil {
            options.seed = .random(in: 0...(.max))
        }
        return options
    }

    private mutating func sample(as kind: GenerationOptions.SamplingMode.Kind, at asked: Double?) throws {
        (topK, topP) = (nil, nil)
        let drawn: UInt64?
        switch kind {
        // Tokens that have a probability of 0 together: the likeliest alone.
        case .greedy, .randomProbabilityThreshold(0, seed: _):
            temperature = 0
            return
        case .randomTopK(let count, let seed): (topK, drawn) = (count, seed)
        case .randomProbabilityThreshold(let threshold, let seed): (topP, drawn) = (threshold, seed)
        @unknown default:
            throw SkulkError(refusing: "samplingMode", "this version does not know the mode \(kind)")
        }
        // Who wants tokens drawn and names no temperature does not want that of greedy decoding.
        if asked == nil, (temperature ?? 0) == 0 { temperature = 1 }
        // Seeds of the library have 63 bits in Swift.
        seed = drawn.map { Int(truncatingIfNeeded: $0) & .max } ?? seed
    }
}

@available(iOS 27, macOS 27, visionOS 27, *)
extension SkulkError {
    /// The framework's error of the same meaning, where it has one.
    fileprivate var counterpart: any Error {
        switch (kind, detail) {
        case (.cancelled, _):
            CancellationError()
        case (.contextOverflow, .context(let needed, let available)?):
            LanguageModelError.contextSizeExceeded(
                .init(contextSize: available, tokenCount: needed, debugDescription: description))
        default:
            self
        }
    }
}
#endif
