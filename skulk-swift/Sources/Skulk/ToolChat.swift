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
    fileprivate let call: @Sendable (JSONValue) async throws -> String

    /// A tool of OpenAI's shape and its function. Arguments are decoded for it, as a ``JSONValue`` if it takes such. What
    /// it gives reaches the model: a text as it is, else as JSON.
    public init<Arguments: Decodable, Given: Encodable>(
        _ json: JSONValue, call: @escaping @Sendable (Arguments) async throws -> Given
    ) {
        self.json = json
        self.call = { arguments in
            let given = try await call(try arguments.decoded())
            if let text = given as? String { return text }
            if let value = given as? JSONValue { return try value.json() }
            return String(decoding: try JSONEncoder().encode(given), as: UTF8.self)
        }
    }

    /// The same of a function with a name, what it does, and JSON Schema of its arguments.
    public init<Arguments: Decodable, Given: Encodable>(
        name: String, description: String, parameters: JSONValue,
        call: @escaping @Sendable (Arguments) async throws -> Given
    ) {
        let function: JSONValue = [
            "name": .string(name), "description": .string(description), "parameters": parameters,
        ]
        self.init(["type": "function", "function": function], call: call)
    }

    fileprivate var name: String? { json["function"]?["name"]?.string }
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
/// Functions run in the task that reads, one after the other. Cancelling it ends the conversation, as ``cancel()``,
/// leaving the loop and dropping it do. Several tasks may read one; each event goes to one of them.
public final class ToolChat: AsyncSequence, Sendable {
    /// What it is a sequence of.
    public typealias Element = ToolEvent

    private let raw: Result<RawToolSteps, SkulkError>
    private let tools: [ChatTool]
    private let turns = Turns()
    private let closed = CancelToken()

    init(_ tools: [ChatTool], _ options: ChatOptions, _ start: (ChatOptions) throws -> RawToolSteps) {
        var own = [ChatTool]()
        // Of one name the last one counts.
        for tool in tools {
            if let at = own.firstIndex(where: { $0.name == tool.name }) { own[at] = tool } else { own.append(tool) }
        }
        self.tools = own
        raw = Result {
            guard options.tools == nil else {
                throw SkulkError(refusing: "tools", "expected tools with functions alone, found some among the options")
            }
            var options = options
            options.tools = own.map(\.json)
            return try start(options)
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
            try await self.turns.take {
                try await withTaskCancellationHandler { try await self.step(raw) } onCancel: { raw.cancel() }
            }
        }
    }

    /// A step as the library tells it.
    private struct Step: Decodable {
        let event: ChatEvent?
        let result: ToolResult?
        let call: ChatCall?
    }

    private func step(_ raw: RawToolSteps) async throws -> ToolEvent? {
        guard !closed.isCancelled, let json = try await raw.next() else { return nil }
        let step = try readJSON(json, as: Step.self)
        if let event = step.event { return .answer(event) }
        if let result = step.result { return .result(result) }
        guard let call = step.call, let tool = tools.first(where: { $0.name == call.name }) else { return nil }
        let (text, failed) = await outcome(of: call, tool)
        guard !closed.isCancelled else { return nil }
        return .result(try readJSON(try raw.give(id: call.id, text: text, failed: failed)))
    }

    private func outcome(of call: ChatCall, _ tool: ChatTool) async -> (text: String, failed: Bool) {
        do {
            return (try await tool.call(call.arguments), false)
        } catch {
            return ((error as? any LocalizedError)?.errorDescription ?? "\(error)", true)
        }
    }

    /// Runs to the end: the whole conversation.
    public func run() async throws -> [ChatMessage] {
        for try await _ in self {}
        return try messages
    }

    /// All of the conversation: the messages that it began with, answers that have ended, and results.
    public var messages: [ChatMessage] {
        get throws {
            let all = try JSONValue(json: try native { try raw.get().messages() })
            return (all.array ?? []).map(ChatMessage.init)
        }
    }

    /// How the last answer that was read ended: with `toolCalls` where there were too many rounds.
    public var finish: ChatFinish? {
        get throws { try native { try raw.get().finish().map { try readJSON($0) } } }
    }

    /// Which round it is, from 0.
    public var round: Int {
        get throws { Int(try raw.get().round()) }
    }

    /// Asks the answer to end that is being written; no round follows.
    public func cancel() { try? raw.get().cancel() }

    /// Cancels, and waits until the answer has ended, but not for a function.
    public func close() async throws {
        let raw = try raw.get()
        closed.cancel()
        await raw.close()
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
        ToolChat(tools, options) { options in
            try self.raw.chatWithTools(given: conversation(messages, options, and: rounds), cancel: cancel?.raw)
        }
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
