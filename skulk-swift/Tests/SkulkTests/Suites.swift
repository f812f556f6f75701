// Which cases are there? Those of tests/suites, and of the folder that SKULK_EXTRA_SUITES names.

import Foundation
import Skulk
import Testing

/// JSON of any kind.
enum JSON: Hashable, Sendable {
    case null, bool(Bool), int(Int), number(Double), text(String), list([JSON]), object([String: JSON])

    /// What `JSONSerialization` made, which tells 1 from 1.0, as `JSONDecoder` does not.
    init(plain value: Any) throws {
        switch value {
        case let own as [String: Any]: self = .object(try own.mapValues(JSON.init(plain:)))
        case let own as [Any]: self = .list(try own.map(JSON.init(plain:)))
        case let own as String: self = .text(own)
        case let own as NSNumber:
            switch String(cString: own.objCType) {
            case "c", "B": self = .bool(own.boolValue)
            case "d", "f": self = .number(own.doubleValue)
            default: self = .int(own.intValue)
            }
        default: self = .null
        }
    }

    init(_ text: String) throws { try self.init(data: Data(text.utf8)) }

    init(data: Data) throws {
        try self.init(plain: JSONSerialization.jsonObject(with: data, options: .fragmentsAllowed))
    }

    /// What a value is in JSON.
    init(of value: some Encodable) throws {
        try self.init(data: JSONEncoder().encode(value))
    }

    /// As text, in which floats stay floats.
    var json: String {
        switch self {
        case .null: "null"
        case .bool(let own): "\(own)"
        case .int(let own): "\(own)"
        case .number(let own): "\(own)"
        case .text(let own): String(decoding: try! JSONEncoder().encode(own), as: UTF8.self)
        case .list(let own): "[\(own.map(\.json).joined(separator: ","))]"
        case .object(let own): "{\(own.map { "\(JSON.text($0.key).json):\($0.value.json)" }.joined(separator: ","))}"
        }
    }

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
        return (label, try! JSON(data: data))
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
