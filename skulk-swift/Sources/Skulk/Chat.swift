// How does a Swift program take part in conversations? Messages, and `ChatStream`, a sequence of an answer's events.

import Foundation
internal import SkulkBindings

/// A message as OpenAI's chat API has it: a `role`, `content`, and what else the model's template knows.
public struct ChatMessage: Codable, Sendable, Hashable {
    /// All of it.
    public var json: JSONValue

    /// The message that an object is.
    public init(_ json: JSONValue) { self.json = json }

    /// A message of this role that says `content`.
    public init(role: String, content: String) { json = ["role": .string(role), "content": .string(content)] }

    /// How the assistant is to behave.
    public static func system(_ content: String) -> ChatMessage { ChatMessage(role: "system", content: content) }

    /// What the user says.
    public static func user(_ content: String) -> ChatMessage { ChatMessage(role: "user", content: content) }

    /// What the assistant answered.
    public static func assistant(_ content: String) -> ChatMessage { ChatMessage(role: "assistant", content: content) }

    /// What a function gave, in answer to the call with this id.
    public static func tool(_ content: String, callId: String) -> ChatMessage {
        ChatMessage(["role": "tool", "content": .string(content), "tool_call_id": .string(callId)])
    }

    /// Who speaks.
    public var role: String { json["role"]?.string ?? "" }

    /// What is said, where it is a text.
    public var content: String? { json["content"]?.string }

    /// Reads the message.
    public init(from decoder: any Decoder) throws { json = try JSONValue(from: decoder) }

    /// Writes the message.
    public func encode(to encoder: any Encoder) throws { try json.encode(to: encoder) }
}

/// Messages and options as the library reads them.
func conversation(_ messages: [ChatMessage], _ options: some Ordered, and rounds: ToolOptions? = nil) throws -> String {
    let messages = try JSONValue.array(messages.map(\.json)).json()
    return "{\"messages\":\(messages),\"options\":\(try optionsJSON(options, and: rounds))}"
}

/// An answer that is being written: the sequence of its events.
///
/// It begins on another thread, where messages become its prompt. The last event is `finish`, also where the answer was
/// cancelled: what was written until then comes before. Cancelling the reading task ends it like that, as ``cancel()``
/// does. Dropping it ends it, too, and so does leaving a loop that alone holds it. One with a name goes on, to be read
/// further. Several tasks may read one; each event goes to one of them.
public final class ChatStream: AsyncSequence, Sendable {
    /// What it is a sequence of.
    public typealias Element = ChatEvent

    private let raw: Result<RawChatStream, SkulkError>

    init(_ start: () throws -> RawChatStream) {
        raw = Result(catching: start).mapError { SkulkError($0) }
    }

    /// Reads its events.
    public struct AsyncIterator: AsyncIteratorProtocol {
        fileprivate let stream: ChatStream

        /// The next event; `nil` behind the last.
        public mutating func next() async throws -> ChatEvent? { try await stream.next() }
    }

    /// Reads its events.
    public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(stream: self) }

    private func next() async throws -> ChatEvent? {
        let raw = try raw.get()
        return try await native {
            try await withTaskCancellationHandler {
                try await raw.next().map { try readJSON($0) }
            } onCancel: {
                raw.cancel()
            }
        }
    }

    /// The prompt that the messages became, once it has begun.
    public var prompt: ChatPrompt {
        get async throws {
            let raw = try raw.get()
            return try readJSON(try await native { try await raw.prompt() })
        }
    }

    /// The answer as far as it was read.
    public var message: ChatMessage {
        get async throws {
            let raw = try raw.get()
            return ChatMessage(try JSONValue(json: try await native { try await raw.message() }))
        }
    }

    /// Runs to the end: the whole answer, with what was read before.
    public func answer() async throws -> ChatAnswer {
        let raw = try raw.get()
        let json = try await native {
            try await withTaskCancellationHandler { try await raw.answer() } onCancel: { raw.cancel() }
        }
        var answer = try readJSON(json, as: ChatAnswer.self)
        // Its members in their order.
        answer.message = try await message
        return answer
    }

    /// Runs to the end: what the model said, with what was read before.
    public func text() async throws -> String { try await answer().text }

    /// Asks it to end: what there is of it still comes, and an end that says so.
    public func cancel() { try? raw.get().cancel() }

    /// Cancels what is still running and waits until it has ended; the session is free then.
    public func close() async throws {
        let raw = try raw.get()
        try await native { try await raw.close() }
    }
}

extension Model {
    /// Answers a conversation in a session of its own: the model's profile says how messages become its prompt and what
    /// its answer consists of. What begins like another conversation is not computed again. What is wrong with it is
    /// thrown where events are read.
    public func chat(
        _ messages: [ChatMessage], options: ChatOptions = .init(), cancel: CancelToken? = nil
    ) -> ChatStream {
        ChatStream { try self.raw.chat(given: conversation(messages, options), cancel: cancel?.raw) }
    }

    /// Answers what the user says.
    public func chat(_ text: String, options: ChatOptions = .init(), cancel: CancelToken? = nil) -> ChatStream {
        chat([.user(text)], options: options, cancel: cancel)
    }

    /// The prompt that messages become, with its tokens. It is made before this returns.
    public func renderChat(_ messages: [ChatMessage], options: RenderOptions = .init()) throws -> ChatPrompt {
        try readJSON(try native { try raw.renderChat(given: conversation(messages, options)) })
    }

    /// The prompt that what the user says becomes.
    public func renderChat(_ text: String, options: RenderOptions = .init()) throws -> ChatPrompt {
        try renderChat([.user(text)], options: options)
    }
}

extension ChatAnswer: CustomStringConvertible {
    /// What the model said.
    public var description: String { text }
}
