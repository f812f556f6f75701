// What went wrong? One error for all that fails.

import Foundation
internal import SkulkBindings

/// A failure of the library: its kind, what was expected and found, what it concerns, and what to do.
public struct SkulkError: Error, Sendable, Hashable {
    /// What class of failure it is.
    public let kind: ErrorKind
    /// The kind's stable, dotted code, as in `context.overflow`: the same in every language.
    public let code: String
    /// What was expected, what was found; without code, context or hint.
    public let message: String
    /// What to do next, where the library knows.
    public let hint: String?
    /// Whether trying again can help.
    public let retry: Retry
    /// What it concerns, by name, as `file` and `field`.
    public let context: [String: String]
    /// Facts that programs may branch on, for the kinds that have any.
    public let detail: Detail?
    /// All of it as text, with the errors behind it.
    public let description: String

    /// Facts of an error.
    public enum Detail: Sendable, Hashable {
        /// All that is wrong with a card or placement.
        case faults([CardFault])
        /// Why there is no plan.
        case report(PlanReport)
        /// Tokens that are needed, and those that a context holds.
        case context(needed: Int, available: Int)
        /// The dimensions that a tensor should have, and those it has.
        case shape(expected: [Int], found: [Int])
    }
}

extension SkulkError: CustomStringConvertible, LocalizedError {
    /// The same as the description.
    public var errorDescription: String? { description }
}

extension SkulkError {
    /// What a call threw.
    init(_ error: any Error) {
        switch error {
        case let error as SkulkError:
            self = error
        case RawError.Failed(let failure, let report):
            do {
                self.init(try JSONDecoder().decode(Failure.self, from: Data(bounded(failure).utf8)), report)
            } catch {
                self.init(unexpected: "\(failure): \(error)")
            }
        default:
            self.init(unexpected: "\(error)")
        }
    }

    init(_ failure: Failure, _ report: RawReport?) {
        kind = ErrorKind(rawValue: failure.kind) ?? .internal
        (code, message, hint, retry) = (failure.code, failure.message, failure.hint, failure.retry)
        (context, description) = (failure.context, failure.text)
        detail = report.map { .report(PlanReport($0)) } ?? failure.detail?.detail
    }

    /// An argument that is not taken.
    init(refusing field: String, _ message: String, hint: String? = "leave it out") {
        self.init(.invalidArgument, message, context: ["field": field], hint: hint)
    }

    /// A failure of the package's own.
    init(
        _ kind: ErrorKind, _ message: String, context: KeyValuePairs<String, String> = [:], hint: String? = nil
    ) {
        (self.kind, code, self.message, self.hint) = (kind, kind.code, message, hint)
        (retry, detail) = (kind == .cancelled ? .now : .never, nil)
        self.context = Dictionary(uniqueKeysWithValues: context.map { ($0, $1) })
        let places = context.map { "\($0): \($1)" }.joined(separator: ", ")
        description = "[\(code)] \(message)\(places.isEmpty ? "" : " (\(places))")\(hint.map { "; \($0)" } ?? "")"
    }

    private init(unexpected text: String) {
        self.init(
            .internal, "the library and its Swift package do not understand each other: \(text)",
            hint: "build both from the same version; if they are, please report this")
    }
}

/// An error as the library writes it.
struct Failure: Decodable {
    let kind: String
    let code: String
    let message: String
    let hint: String?
    let retry: Retry
    let context: [String: String]
    let detail: Facts?
    let text: String

    struct Facts: Decodable {
        let faults: [CardFault]?
        let needed: Int?
        let available: Int?
        let expected: [Int]?
        let found: [Int]?

        var detail: SkulkError.Detail? {
            if let faults { return .faults(faults) }
            if let needed, let available { return .context(needed: needed, available: available) }
            if let expected, let found { return .shape(expected: expected, found: found) }
            return nil
        }
    }

    private enum Field: CodingKey { case kind, code, message, hint, retry, context, detail, text }

    init(from decoder: any Decoder) throws {
        let fields = try decoder.container(keyedBy: Field.self)
        kind = try fields.decode(String.self, forKey: .kind)
        code = try fields.decode(String.self, forKey: .code)
        message = try fields.decode(String.self, forKey: .message)
        hint = try fields.decodeIfPresent(String.self, forKey: .hint)
        retry = try fields.decode(Retry.self, forKey: .retry)
        context = try fields.decode([String: String].self, forKey: .context)
        // Facts that cannot be read are none: what went wrong is still told.
        detail = try? fields.decodeIfPresent(Facts.self, forKey: .detail)
        text = try fields.decode(String.self, forKey: .text)
    }
}
