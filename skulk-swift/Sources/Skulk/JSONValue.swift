// What is any value of JSON in Swift? One whose objects keep their order, which is part of what models are told.

import Foundation
internal import SkulkBindings

/// A value of JSON. Objects keep the order of their members.
///
/// ```swift
/// let schema: JSONValue = ["type": "object", "properties": ["city": ["type": "string"]]]
/// ```
///
/// Foundation's decoders do not tell the order of members: what they decode has them by name. ``init(json:)`` keeps it.
public enum JSONValue: Sendable, Hashable {
    /// `null`.
    case null
    /// `true` or `false`.
    case bool(Bool)
    /// A whole number.
    case int(Int)
    /// A whole number that is larger than `Int.max`. Those that are larger still are `number`.
    case unsigned(UInt64)
    /// Another number.
    case number(Double)
    /// A text.
    case string(String)
    /// Values.
    case array([JSONValue])
    /// Values by name.
    case object([Member])

    /// A value with its name.
    public struct Member: Sendable, Hashable {
        /// The name.
        public var name: String
        /// The value.
        public var value: JSONValue

        /// Of both.
        public init(name: String, value: JSONValue) { (self.name, self.value) = (name, value) }
    }

    /// What a text says in JSON.
    public init(json: String) throws { self.init(try native { try rawJson(text: json) }) }

    private init(_ raw: RawJson) {
        switch raw {
        case .null: self = .null
        case .bool(let value): self = .bool(value)
        case .int(let value): self = .int(Int(value))
        case .unsigned(let value): self = .unsigned(value)
        case .number(let value): self = .number(value)
        case .text(let value): self = .string(value)
        case .list(let values): self = .array(values.map(JSONValue.init))
        case .object(let names, let values):
            self = .object(zip(names, values).map { Member(name: $0, value: JSONValue($1)) })
        }
    }

    /// It as a text, in which members keep their order. Numbers that JSON does not have are an error, and so are more
    /// than 100 values within each other.
    public func json() throws -> String { try json(as: "json") }

    /// The same of an argument.
    func json(as field: String) throws -> String {
        var text = ""
        try write(to: &text, as: field, within: 0)
        return text
    }

    private func write(to text: inout String, as field: String, within depth: Int) throws {
        guard depth <= 100 else {
            throw SkulkError(refusing: field, "expected at most 100 values within each other, found more", hint: nil)
        }
        switch self {
        case .null: text += "null"
        case .bool(let value): text += "\(value)"
        case .int(let value): text += "\(value)"
        case .unsigned(let value): text += "\(value)"
        case .number(let value):
            guard value.isFinite else {
                throw SkulkError(
                    refusing: field, "expected a value that JSON can hold, found \(value)",
                    hint: "check how it was computed")
            }
            text += "\(value)"
        case .string(let value): text += quoted(value)
        case .array(let values):
            text += "["
            for (i, value) in values.enumerated() {
                text += i == 0 ? "" : ","
                try value.write(to: &text, as: field, within: depth + 1)
            }
            text += "]"
        case .object(let members):
            text += "{"
            for (i, member) in members.enumerated() {
                text += (i == 0 ? "" : ",") + quoted(member.name) + ":"
                try member.value.write(to: &text, as: field, within: depth + 1)
            }
            text += "}"
        }
    }

    /// An object's value of this name.
    public subscript(name: String) -> JSONValue? {
        if case .object(let members) = self { members.last { $0.name == name }?.value } else { nil }
    }

    /// The text of a string.
    public var string: String? { if case .string(let text) = self { text } else { nil } }

    /// The values of an array.
    public var array: [JSONValue]? { if case .array(let values) = self { values } else { nil } }

    /// The value that this stands for, as a decoder reads it.
    public func decoded<T: Decodable>(as type: T.Type = T.self) throws -> T {
        try JSONDecoder().decode(type, from: Data(try json().utf8))
    }
}

/// A text as JSON has it.
private func quoted(_ text: String) -> String {
    let isPlain = text.utf8.allSatisfy { $0 >= 0x20 && $0 != UInt8(ascii: "\"") && $0 != UInt8(ascii: "\\") }
    if isPlain { return "\"\(text)\"" }
    var quoted = "\""
    for scalar in text.unicodeScalars {
        switch scalar {
        case "\"", "\\": quoted += "\\\(scalar)"
        case "\u{0}"..<"\u{20}":
            let digits = String(scalar.value, radix: 16)
            quoted += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
        default: quoted.unicodeScalars.append(scalar)
        }
    }
    return quoted + "\""
}

extension JSONValue: Codable {
    /// Reads any value; members by name.
    public init(from decoder: any Decoder) throws {
        let value = try decoder.singleValueContainer()
        if value.decodeNil() {
            self = .null
        } else if let bool = try? value.decode(Bool.self) {
            self = .bool(bool)
        } else if let int = try? value.decode(Int.self) {
            self = .int(int)
        } else if let unsigned = try? value.decode(UInt64.self) {
            self = .unsigned(unsigned)
        } else if let number = try? value.decode(Double.self) {
            self = .number(number)
        } else if let text = try? value.decode(String.self) {
            self = .string(text)
        } else if let values = try? value.decode([JSONValue].self) {
            self = .array(values)
        } else {
            let members = try value.decode([String: JSONValue].self)
            self = .object(members.sorted { $0.key < $1.key }.map { Member(name: $0, value: $1) })
        }
    }

    /// Writes it. Encoders may change the order of members; ``json()`` does not.
    public func encode(to encoder: any Encoder) throws {
        var single = encoder.singleValueContainer()
        switch self {
        case .null: try single.encodeNil()
        case .bool(let value): try single.encode(value)
        case .int(let value): try single.encode(value)
        case .unsigned(let value): try single.encode(value)
        case .number(let value): try single.encode(value)
        case .string(let value): try single.encode(value)
        case .array(let values): try single.encode(values)
        case .object(let members):
            try single.encode(Dictionary(members.map { ($0.name, $0.value) }) { _, last in last })
        }
    }
}

extension JSONValue: ExpressibleByStringLiteral, ExpressibleByIntegerLiteral, ExpressibleByFloatLiteral,
    ExpressibleByBooleanLiteral, ExpressibleByArrayLiteral, ExpressibleByDictionaryLiteral
{
    /// A text.
    public init(stringLiteral value: String) { self = .string(value) }
    /// A whole number.
    public init(integerLiteral value: Int) { self = .int(value) }
    /// Another number.
    public init(floatLiteral value: Double) { self = .number(value) }
    /// `true` or `false`.
    public init(booleanLiteral value: Bool) { self = .bool(value) }
    /// Values.
    public init(arrayLiteral values: JSONValue...) { self = .array(values) }
    /// Values by name, in their order.
    public init(dictionaryLiteral members: (String, JSONValue)...) {
        self = .object(members.map { Member(name: $0, value: $1) })
    }
}
