// How do models call Swift's functions? `ToolChat`, a conversation that goes on until none is called any more.

import Foundation
internal import SkulkBindings

/// A function that a model may call.
///
/// ```swift
/// struct Place: Decodable, Sendable { let city: String }
/// let schema: JSONValue = ["type": "object", "properties": ["city": ["type": "string"]]]
/// let weather = ChatTool(name: "weather", description: "Weather of a place.", parameters: schema) { (place: Place) in
///     "It rains in \(place.city)."
/// }
/// ```
public struct ChatTool: Sendable {
    /// What the model is told, as OpenAI's chat API has it.
    public let json: JSONValue
    /// Calls the function that the text of a step wants.
    private let call: @Sendable (String) async throws -> String

    /// A tool of OpenAI's shape and its function. Arguments are decoded for it from what the model wrote, as a
    /// ``JSONValue`` if it takes such. What it gives reaches the model: a text as it is, else as JSON, with members by
    /// name. Dates are texts of ISO 8601 in both.
    public init<Arguments: Decodable, Given: Encodable>(
        _ json: JSONValue, call: @escaping @Sendable (Arguments) async throws -> Given
    ) {
        self.json = json
        self.call = { step in try told(try await call(try arguments(of: step))) }
    }

    /// The same of a function that gives nothing, of which the model is told `null`.
    public init<Arguments: Decodable>(_ json: JSONValue, call: @escaping @Sendable (Arguments) async throws -> Void) {
        self.init(json) { (arguments: Arguments) in
            try await call(arguments)
            return JSONValue.null
        }
    }

    /// The same of a function with a name, what it does, and JSON Schema of its arguments.
    public init<Arguments: Decodable, Given: Encodable>(
        name: String, description: String, parameters: JSONValue,
        call: @escaping @Sendable (Arguments) async throws -> Given
    ) {
        self.init(function(name, description, parameters), call: call)
    }

    /// The same of a function that gives nothing.
    public init<Arguments: Decodable>(
        name: String, description: String, parameters: JSONValue,
        call: @escaping @Sendable (Arguments) async throws -> Void
    ) {
        self.init(function(name, description, parameters), call: call)
    }

    /// The same of a function without arguments.
    public init<Given: Encodable>(
        name: String, description: String, call: @escaping @Sendable () async throws -> Given
    ) {
        self.init(function(name, description, nothing)) { (_: JSONValue) in try await call() }
    }

    /// The same of a function without arguments that gives nothing.
    public init(name: String, description: String, call: @escaping @Sendable () async throws -> Void) {
        self.init(function(name, description, nothing)) { (_: JSONValue) in try await call() }
    }

    fileprivate var name: String? { json["function"]?["name"]?.string }

    /// What becomes of the call that the text of a step wants.
    fileprivate func outcome(of step: String) async -> Outcome {
        do {
            return Outcome(text: try await call(step), failed: false)
        } catch {
            return Outcome(text: (error as? any LocalizedError)?.errorDescription ?? "\(error)", failed: true)
        }
    }

    fileprivate struct Outcome: Sendable {
        let text: String
        let failed: Bool
        /// That of a call for which nobody waits.
        static let cancelled = Outcome(text: "the work was cancelled", failed: true)
    }
}

/// JSON Schema of no arguments.
private let nothing: JSONValue = ["type": "object", "properties": [:]]

private func function(_ name: String, _ description: String, _ parameters: JSONValue) -> JSONValue {
    let function: JSONValue = ["name": .string(name), "description": .string(description), "parameters": parameters]
    return ["type": "function", "function": function]
}

/// The arguments of the call in a step, from its own text.
private func arguments<Arguments: Decodable>(of step: String) throws -> Arguments {
    // Members keep their order.
    if Arguments.self == JSONValue.self, let ordered = try JSONValue(json: step)["call"]?["arguments"] as? Arguments {
        return ordered
    }
    let decoder = JSONDecoder()
    decoder.dateDecodingStrategy = .iso8601
    return try decoder.decode(Called<Arguments>.self, from: Data(step.utf8)).call.arguments
}

private struct Called<Arguments: Decodable>: Decodable {
    let call: Call

    struct Call: Decodable { let arguments: Arguments }
}

/// What the model is told of what a function gave: the same text for the same value.
private func told(_ given: some Encodable) throws -> String {
    if let text = given as? String { return text }
    if let value = given as? JSONValue { return try value.json() }
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    encoder.dateEncodingStrategy = .iso8601
    return String(decoding: try encoder.encode(given), as: UTF8.self)
}

/// What is told of a conversation with tools.
public enum ToolEvent: Sendable, Hashable {
    /// A part of an answer.
    case answer(ChatEvent)
    /// What a function gave.
    case result(ToolResult)
}

/// A conversation that calls functions: the sequence of the events and results of all rounds.
///
/// Functions run one after the other, each in a task of its own, which is cancelled with the conversation; one that does not
/// heed that is not waited for. Cancelling a reading task ends the conversation, as ``cancel()`` and dropping it do. Several
/// tasks may read one; each event goes to one of them.
public final class ToolChat: AsyncSequence, Sendable {
    /// What it is a sequence of.
    public typealias Element = ToolEvent

    private let raw: Result<RawToolSteps, SkulkError>
    private let tools: [ChatTool]
    private let turns = Turns()
    private let stop: RawCancel
    private let closed = CancelToken()

    init(
        _ tools: [ChatTool], _ options: ChatOptions, _ cancel: CancelToken?,
        _ start: (ChatOptions, RawCancel) throws -> RawToolSteps
    ) {
        var own = [ChatTool]()
        // Of one name the last one counts.
        for tool in tools {
            if let at = own.firstIndex(where: { $0.name == tool.name }) { own[at] = tool } else { own.append(tool) }
        }
        let stop = cancel?.raw.child() ?? RawCancel()
        (self.tools, self.stop) = (own, stop)
        raw = Result {
            guard options.tools == nil else {
                throw SkulkError(refusing: "tools", "expected tools with functions alone, found some among the options")
            }
            var options = options
            options.tools = own.map(\.json)
            return try start(options, stop)
        }.mapError { SkulkError($0) }
    }

    /// Reads its events and results.
    public struct AsyncIterator: AsyncIteratorProtocol {
        fileprivate let chat: ToolChat

        /// The next event or result; `nil` behind the last.
        public mutating func next() async throws -> ToolEvent? { try await chat.next() }
    }

    /// Reads its events and results.
    public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(chat: self) }

    private func next() async throws -> ToolEvent? {
        let raw = try raw.get()
        return try await native {
            // Who waits for a turn ends it, too.
            try await withTaskCancellationHandler {
                try await self.turns.take { try await self.step(raw) }
            } onCancel: {
                self.cancel()
            }
        }
    }

    /// A step as the library tells it.
    private struct Step: Decodable {
        let event: ChatEvent?
        let result: ToolResult?
        let call: Call?

        struct Call: Decodable {
            let id: String
            let name: String
        }
    }

    private func step(_ raw: RawToolSteps) async throws -> ToolEvent? {
        guard !closed.isCancelled, let json = try await raw.next() else { return nil }
        let step = try readJSON(json, as: Step.self)
        if let event = step.event { return .answer(event) }
        if let result = step.result { return .result(result) }
        guard let call = step.call, let tool = tools.first(where: { $0.name == call.name }) else { return nil }
        let outcome = await outcome(of: json, tool)
        guard !closed.isCancelled else { return nil }
        return .result(try readJSON(try await raw.give(id: call.id, text: outcome.text, failed: outcome.failed)))
    }

    /// What comes first: what became of the call, or the end of the conversation.
    private func outcome(of step: String, _ tool: ChatTool) async -> ChatTool.Outcome {
        let (outcomes, first) = AsyncStream.makeStream(of: ChatTool.Outcome.self, bufferingPolicy: .bufferingOldest(1))
        let work = Task { _ = first.yield(await tool.outcome(of: step)) }
        let call = onCancel(stop) {
            first.yield(.cancelled)
            work.cancel()
        }
        defer { withExtendedLifetime(call) {} }
        return await outcomes.first { _ in true } ?? .cancelled
    }

    /// Runs to the end: the whole conversation.
    public func run() async throws -> [ChatMessage] {
        for try await _ in self {}
        return try await messages
    }

    /// All of the conversation: the messages that it began with, answers that have ended, and results.
    public var messages: [ChatMessage] {
        get async throws {
            let raw = try raw.get()
            let all = try JSONValue(json: try await native { try await raw.messages() })
            return (all.array ?? []).map(ChatMessage.init)
        }
    }

    /// How the last answer that was read ended: with `toolCalls` where there were too many rounds.
    public var finish: ChatFinish? {
        get async throws {
            let raw = try raw.get()
            return try await native { try await raw.finish() }.map { try readJSON($0) }
        }
    }

    /// Which round it is, from 0.
    public var round: Int {
        get async throws {
            let raw = try raw.get()
            return try await native { Int(try await raw.round()) }
        }
    }

    /// Asks the answer to end that is being written, and the function that runs; no round follows.
    public func cancel() { stop.cancel() }

    /// Cancels, and waits until the answer has ended, but not for a function.
    public func close() async throws {
        let raw = try raw.get()
        closed.cancel()
        stop.cancel()
        try await native { try await raw.close() }
    }
}

extension Model {
    /// Answers a conversation, and calls these functions, until the model calls none any more. There are
    /// `rounds.maxRounds` answers at most. A function that throws is told to the model, unless `rounds.onToolFailure`
    /// ends the conversation with an error of kind `toolFailed`.
    public func chatWithTools(
        _ messages: [ChatMessage], tools: [ChatTool], options: ChatOptions = .init(), rounds: ToolOptions = .init(),
        cancel: CancelToken? = nil
    ) -> ToolChat {
        ToolChat(tools, options, cancel) { options, cancel in
            try self.raw.chatWithTools(given: conversation(messages, options, and: rounds), cancel: cancel)
        }
    }

    /// The same with a conversation that begins with what the user says.
    public func chatWithTools(
        _ text: String, tools: [ChatTool], options: ChatOptions = .init(), rounds: ToolOptions = .init(),
        cancel: CancelToken? = nil
    ) -> ToolChat {
        chatWithTools([.user(text)], tools: tools, options: options, rounds: rounds, cancel: cancel)
    }
}

/// Lets work of several tasks happen one after the other.
private actor Turns {
    private var isTaken = false
    private var waiting = [CheckedContinuation<Void, Never>]()

    func take<T: Sendable>(_ work: @Sendable () async throws -> T) async throws -> T {
        if isTaken { await withCheckedContinuation { waiting.append($0) } }
        isTaken = true
        defer {
            if waiting.isEmpty { isTaken = false } else { waiting.removeFirst().resume() }
        }
        return try await work()
    }
}
