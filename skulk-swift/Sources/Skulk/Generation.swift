// How is a running generation followed? `Generation`, a sequence of events.

import Foundation
internal import SkulkBindings

/// A running generation: the sequence of its events.
///
/// It begins on another thread, where its prompt becomes tokens, and runs ahead a little while nobody reads. Cancelling the
/// reading task ends it, as dropping it does: within one layer's work, and the session is free then. So leaving a loop ends
/// one that only the loop holds. One with a name goes on, to be read further; ``cancel()`` and ``close()`` end it. Several
/// tasks may read one; each event goes to one of them.
public final class Generation: AsyncSequence, Sendable {
    /// What it is a sequence of.
    public typealias Element = Event

    private let raw: Result<RawGeneration, SkulkError>

    init(_ start: () throws -> RawGeneration) {
        raw = Result(catching: start).mapError { SkulkError($0) }
    }

    /// Reads its events.
    public struct AsyncIterator: AsyncIteratorProtocol {
        fileprivate let generation: Generation

        /// The next event; `nil` behind the last.
        public mutating func next() async throws -> Event? { try await generation.next() }
    }

    /// Reads its events.
    public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(generation: self) }

    private func next() async throws -> Event? {
        let raw = try raw.get()
        do {
            if Task.isCancelled {
                try await raw.abandon()
                return nil
            }
            return try await withTaskCancellationHandler {
                try await raw.next().map { try Event($0) }
            } onCancel: {
                raw.cancel()
            }
        } catch {
            throw SkulkError(error)
        }
    }

    /// The prompt's tokens, special ones included, once it has begun.
    public var promptIds: [Int] {
        get async throws {
            let raw = try raw.get()
            return try await native { try await raw.promptIds().ids }
        }
    }

    /// Runs to the end: text, tokens and finish of what was not read yet.
    public func output() async throws -> Output {
        let raw = try raw.get()
        let json = try await working(nil) { _ in
            try await withTaskCancellationHandler { try await raw.output() } onCancel: { raw.cancel() }
        }
        return try readJSON(json)
    }

    /// Runs to the end: the text that was not read yet.
    public func text() async throws -> String { try await output().text }

    /// Asks it to end: reading throws an error of kind `cancelled`, after the events that are already there.
    public func cancel() { try? raw.get().cancel() }

    /// Cancels what is still running and waits until it has ended; the session is free then.
    public func close() async throws {
        let raw = try raw.get()
        _ = try await working(nil) { _ in try await raw.close() }
    }
}

extension Event {
    init(_ raw: RawEvent) throws {
        let token = raw.token.map { token in
            let top = token.top.map { TokenLogprob(id: Int($0.id), logprob: Double($0.logprob)) }
            return Token(id: Int(token.id), logprob: token.logprob.map(Double.init), topLogprobs: top)
        }
        self.init(token: token, text: raw.text, finish: try raw.finish.map { try readJSON($0) })
    }
}

/// What became of one prompt of many.
struct Outcome: Decodable {
    let result: Result<Output, SkulkError>

    private enum Field: CodingKey { case output, failure }

    init(from decoder: any Decoder) throws {
        let fields = try decoder.container(keyedBy: Field.self)
        if let output = try fields.decodeIfPresent(Output.self, forKey: .output) {
            result = .success(output)
        } else {
            result = .failure(SkulkError(try fields.decode(Failure.self, forKey: .failure), nil))
        }
    }
}

extension Event: CustomStringConvertible {
    /// The text: `print(event, terminator: "")` prints the stream.
    public var description: String { text }
}

extension Output: CustomStringConvertible {
    /// The text.
    public var description: String { text }
}
