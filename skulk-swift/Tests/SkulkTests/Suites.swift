// Which cases are there? Those of tests/suites, and of the folder that SKULK_EXTRA_SUITES names.

import Foundation
import Skulk
import Testing

/// JSON of any kind.
enum JSON: Codable, Hashable, Sendable {
    case null, bool(Bool), int(Int), number(Double), text(String), list([JSON]), object([String: JSON])

    init(from decoder: any Decoder) throws {
        let value = try decoder.singleValueContainer()
        if value.decodeNil() {
            self = .null
        } else if let bool = try? value.decode(Bool.self) {
            self = .bool(bool)
        } else if let int = try? value.decode(Int.self) {
            self = .int(int)
        } else if let number = try? value.decode(Double.self) {
            self = .number(number)
        } else if let text = try? value.decode(String.self) {
            self = .text(text)
        } else if let list = try? value.decode([JSON].self) {
            self = .list(list)
        } else {
            self = .object(try value.decode([String: JSON].self))
        }
    }

    func encode(to encoder: any Encoder) throws {
        var value = encoder.singleValueContainer()
        switch self {
        case .null: try value.encodeNil()
        case .bool(let own): try value.encode(own)
        case .int(let own): try value.encode(own)
        case .number(let own): try value.encode(own)
        case .text(let own): try value.encode(own)
        case .list(let own): try value.encode(own)
        case .object(let own): try value.encode(own)
        }
    }

    init(_ text: String) throws { self = try JSONDecoder().decode(JSON.self, from: Data(text.utf8)) }

    /// What a value is in JSON.
    init(of value: some Encodable) throws {
        self = try JSONDecoder().decode(JSON.self, from: JSONEncoder().encode(value))
    }

    /// As text.
    var json: String { String(decoding: try! JSONEncoder().encode(self), as: UTF8.self) }

    subscript(key: String) -> JSON { fields[key] ?? .null }
    subscript(at: Int) -> JSON { items[at] }

    var fields: [String: JSON] { if case .object(let own) = self { own } else { [:] } }
    var items: [JSON] { if case .list(let own) = self { own } else { [] } }
    var text: String? { if case .text(let own) = self { own } else { nil } }
    var texts: [String] { items.compactMap(\.text) }
    var bool: Bool? { if case .bool(let own) = self { own } else { nil } }
    var int: Int? { if case .int(let own) = self { own } else { nil } }
    var isNull: Bool { self == .null }

    var double: Double? {
        switch self {
        case .int(let own): Double(own)
        case .number(let own): own
        default: nil
        }
    }

    /// Without fields that are null, which Swift leaves out.
    var known: JSON {
        switch self {
        case .object(let own): .object(own.filter { !$0.value.isNull }.mapValues(\.known))
        case .list(let own): .list(own.map(\.known))
        default: self
        }
    }
}

/// One case, which reports show by its name.
struct Case: Sendable, CustomTestStringConvertible {
    let label: String
    let data: JSON

    var testDescription: String { label }

    subscript(key: String) -> JSON { data[key] }
}

/// The suites of this name: ours, and the extra ones.
func suites(_ name: String) -> [(String, JSON)] {
    let extra = ProcessInfo.processInfo.environment["SKULK_EXTRA_SUITES"].map { URL(filePath: $0) }
    let folders = [("own", root.appending(path: "tests/suites"))] + (extra.map { [("extra", $0)] } ?? [])
    return folders.compactMap { label, folder in
        guard let data = try? Data(contentsOf: folder.appending(path: "\(name).json")) else { return nil }
        return (label, try! JSONDecoder().decode(JSON.self, from: data))
    }
}

private func cases(_ found: [(String, JSON)], _ what: String) -> [Case] {
    precondition(!found.isEmpty, "\(what) has no cases")
    return found.enumerated().map { i, one in
        let (label, data) = one
        let name = ["name", "file", "modelId", "tag"].compactMap { data[$0].text }.first ?? what
        return Case(label: "\(label)-\(i)-\(name)", data: data)
    }
}

/// The cases of the suites of this name.
func each(_ name: String) -> [Case] {
    cases(suites(name).flatMap { label, suite in suite["cases"].items.map { (label, $0) } }, name)
}

/// The vectors of a section of planner_units.json; of a part of it as in `gguf.rank`.
func unit(_ section: String) -> [Case] {
    let vectors = suites("planner_units").flatMap { label, suite in
        section.split(separator: ".").reduce(suite["units"]) { $0[String($1)] }.items.map { (label, $0) }
    }
    return cases(vectors, section)
}

/// The card that a case gives as data.
func card(_ data: JSON) throws -> ModelCard { try ModelCard.fromJson(data.json) }

/// `camelCase` as snake_case.
func snake(_ name: String) -> String { name.replacing(/[A-Z]/) { "_" + $0.output.lowercased() } }
