// How is a conversation held? `Session`, and the model's `Tokenizer`.

import Foundation
internal import SkulkBindings

/// One conversation with a model: prompts that begin like the tokens it holds are computed only from where they differ.
///
/// Sessions are independent; one session runs one generation at a time.
public final class Session: Sendable {
    private let raw: RawSession

    init(_ raw: RawSession) { self.raw = raw }

    /// Starts generating: from here on the session is busy. With the option `append` the text follows what the session
    /// holds; without, the prompt is everything so far. What is wrong with it is thrown where events are read.
    public func generate(
        _ prompt: some PromptConvertible, options: GenerateOptions = .init(), cancel: CancelToken? = nil
    ) -> Generation {
        Generation {
            try self.raw.generate(prompt: prompt.prompt.raw, given: optionsJSON(options), cancel: cancel?.raw)
        }
    }

    /// Answers a conversation, of which `messages` are all. What the session holds of it is not computed again. What is
    /// wrong with it is thrown where events are read.
    public func chat(
        _ messages: [ChatMessage], options: ChatOptions = .init(), cancel: CancelToken? = nil
    ) -> ChatStream {
        ChatStream { try self.raw.chat(given: conversation(messages, options), cancel: cancel?.raw) }
    }

    /// Answers what the user says, as a conversation that begins with it.
    public func chat(_ text: String, options: ChatOptions = .init(), cancel: CancelToken? = nil) -> ChatStream {
        chat([.user(text)], options: options, cancel: cancel)
    }

    /// All tokens of the conversation: prompts and what was generated. An error while a generation runs.
    public var tokens: [Int] {
        get throws { try native { try raw.tokens().ids } }
    }

    /// Forgets all tokens but the first `count`. Later prompts reuse what remains.
    public func truncate(to count: Int) throws { try native { try raw.truncate(count: Int64(count)) } }

    /// Another session that begins as this one is: its tokens, and what the model holds of them. From then on they are
    /// independent; what they share is stored once. An error while a generation runs.
    public func fork() throws -> Session { Session(try native { try raw.fork() }) }

    /// Writes the conversation to a file: its tokens, and the keys and values that the model holds of them, so that
    /// ``Model/restore(from:)`` need not compute them again. A file that is there is replaced when all is written. A
    /// cancelled task does not begin it; once it has begun, nothing ends it.
    public func save(to path: some PathConvertible) async throws {
        let path = try path.filePath
        try refuseWhenCancelled()
        try await native { try await self.raw.save(path: path) }
    }

    /// This conversation with its model placed otherwise, see ``Model/replan(_:cancel:)``: all its tokens, and the generation that an
    /// error cut off, which ``resume(cancel:)`` goes on with. Keys and values are computed again when it does. `cancel` and
    /// the task's cancellation end loading within one layer.
    public func recover(_ placement: Placement, cancel: CancelToken? = nil) async throws -> Session {
        Session(try await working(cancel) { try await self.raw.recover(placement: placement.raw, cancel: $0) })
    }

    /// The same in a model that is loaded already, which several conversations may share.
    public func recoverIn(_ model: Model) async throws -> Session {
        Session(try await unstoppable { try await self.raw.recoverIn(model: model.raw) })
    }

    /// Goes on with the generation that a lost machine or another error cut off, whose `retry` is `afterReplan`: with the same
    /// options, so that both texts together are the one that it would have generated. Its events follow those that were given
    /// before. What is wrong with it is thrown where events are read.
    public func resume(cancel: CancelToken? = nil) -> Generation {
        Generation { try self.raw.resume(cancel: cancel?.raw) }
    }

    /// Frees its keys and values, once a generation that still runs has ended. Using it afterwards is an error.
    public func close() { raw.close() }
}

/// A model's vocabulary and the rules that cut text into it.
public struct Tokenizer: Sendable {
    private let raw: any RawTokenizer
    /// The beginning-of-sequence token, if the model has one.
    public let bos: Int?
    /// The tokens that end a generation.
    public let eosIds: [Int]
    /// One past the highest token id.
    public let vocabSize: Int

    struct Facts: Decodable {
        let bos: Int?
        let eosIds: [Int]
        let vocabSize: Int
    }

    init(_ raw: any RawTokenizer, _ facts: Facts) {
        (self.raw, bos, eosIds, vocabSize) = (raw, facts.bos, facts.eosIds, facts.vocabSize)
    }

    /// The tokens of `text`. Control tokens spelt out in it become those tokens; with `addSpecial`, the model's rules
    /// add a beginning-of-sequence token where it belongs.
    public func encode(_ text: String, addSpecial: Bool = true) throws -> [Int] {
        try native { try raw.encode(text: text, addSpecial: addSpecial).ids }
    }

    /// The tokens of `text` alone, in which texts of control tokens stay text.
    public func encodeText(_ text: String) throws -> [Int] { try native { try raw.encodeText(text: text).ids } }

    /// The text of `ids`. Control tokens are left out with `skipSpecial`, spelt out without.
    public func decode(_ ids: [Int], skipSpecial: Bool = true) throws -> String {
        try native { try raw.decode(ids: Data(ids: ids), skipSpecial: skipSpecial) }
    }
}

/// Who has a tokenizer.
protocol RawTokenizer: Sendable {
    func encode(text: String, addSpecial: Bool) throws -> Data
    func encodeText(text: String) throws -> Data
    func decode(ids: Data, skipSpecial: Bool) throws -> String
}

extension RawModel: RawTokenizer {}
extension RawVindex: RawTokenizer {}
extension RawEmbeddingModel: RawTokenizer {}
