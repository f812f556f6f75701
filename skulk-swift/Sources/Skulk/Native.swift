// How do calls reach the library? Plain data as JSON, numbers as bytes, long work with what ends it.

import Foundation
internal import SkulkBindings

/// Makes errors of the library those that Swift programs get.
func native<T>(_ work: () throws -> T) throws -> T {
    do { return try work() } catch { throw SkulkError(error) }
}

/// The same of what takes its time.
func native<T: Sendable>(_ work: @Sendable () async throws -> T) async throws -> T {
    do { return try await work() } catch { throw SkulkError(error) }
}

/// Calls a function of the library.
func call<T: Decodable>(_ name: String, _ given: Arguments = [:]) throws -> T {
    try readJSON(try callText(name, given))
}

/// The same of one whose result is taken as the library writes it, or not at all.
@discardableResult
func callText(_ name: String, _ given: Arguments = [:]) throws -> String {
    try native { try rawCall(name: name, given: given.json()) }
}

/// Calls a function that takes long.
func start<T: Decodable, Step: Decodable>(
    _ name: String, _ given: Arguments, _ cancel: CancelToken?,
    _ progress: (@Sendable (Step) throws -> Void)?
) async throws -> T {
    let given = try given.json()
    return try readJSON(
        try await working(cancel, progress) { cancel, progress in
            try await rawStart(name: name, given: given, cancel: cancel, progress: progress)
        })
}

/// Arguments by name.
struct Arguments: ExpressibleByDictionaryLiteral {
    private let fields: [(String, any Encodable)]

    init(dictionaryLiteral fields: (String, any Encodable)...) { self.fields = fields }

    func json() throws -> String {
        let members = try fields.map { name, value in "\"\(name)\":\(try writeJSON(value, as: name))" }
        return "{\(members.joined(separator: ","))}"
    }
}

/// Long work, which `cancel`, the task's cancellation and an error of `progress` end.
func working<Step: Decodable, T: Sendable>(
    _ cancel: CancelToken?, _ progress: (@Sendable (Step) throws -> Void)?,
    _ work: @Sendable (RawCancel, (any RawProgress)?) async throws -> T
) async throws -> T {
    let own = cancel?.raw.child() ?? RawCancel()
    let watcher = progress.map { Watcher(cancel: own, tell: $0) }
    let result: Result<T, any Error>
    do {
        result = .success(
            try await withTaskCancellationHandler { try await work(own, watcher) } onCancel: { own.cancel() })
    } catch {
        result = .failure(SkulkError(error))
    }
    if let failure = watcher?.failure { throw failure }
    return try result.get()
}

/// The same without progress.
func working<T: Sendable>(
    _ cancel: CancelToken?, _ work: @Sendable (RawCancel) async throws -> T
) async throws -> T {
    try await working(cancel, nil as (@Sendable (Int) throws -> Void)?) { own, _ in try await work(own) }
}

/// Long work that nothing ends: a cancelled task does not begin it, and does not get what came of it.
func unstoppable<T: Sendable>(_ work: @Sendable () async throws -> T) async throws -> T {
    try refuseWhenCancelled()
    let result = try await native(work)
    try refuseWhenCancelled()
    return result
}

/// An error in a cancelled task.
func refuseWhenCancelled() throws {
    if Task.isCancelled { throw SkulkError(.cancelled, "the task was cancelled") }
}

/// Calls `act` when `cancel` is cancelled, or at once where it was, until what comes back is gone.
func onCancel(_ cancel: RawCancel, _ act: @escaping @Sendable () -> Void) -> RawOnCancel {
    final class Call: RawCall {
        let act: @Sendable () -> Void

        init(_ act: @escaping @Sendable () -> Void) { self.act = act }

        func call() { act() }
    }
    return cancel.onCancel(call: Call(act))
}

/// Tells progress until that throws, which ends the work.
private final class Watcher<Step: Decodable>: RawProgress, @unchecked Sendable {
    private let lock = NSLock()
    private var thrown: (any Error)?
    private let cancel: RawCancel
    private let tell: @Sendable (Step) throws -> Void

    init(cancel: RawCancel, tell: @escaping @Sendable (Step) throws -> Void) {
        (self.cancel, self.tell) = (cancel, tell)
    }

    var failure: (any Error)? { lock.withLock { thrown } }

    func step(step: String) {
        guard failure == nil else { return }
        do {
            try tell(readJSON(step))
        } catch {
            lock.withLock { thrown = error }
            cancel.cancel()
        }
    }
}

/// What JSON says. Names that this version does not know are an error. Where counts are larger than Swift's whole numbers,
/// they are the largest of these.
func readJSON<T: Decodable>(_ json: String, as type: T.Type = T.self) throws -> T {
    let decoder = JSONDecoder()
    do {
        return try decoder.decode(type, from: Data(json.utf8))
    } catch {
        guard let bounded = try? decoder.decode(type, from: Data(bounded(json).utf8)) else { throw SkulkError(error) }
        return bounded
    }
}

/// A text in JSON, in which whole numbers that are larger than Swift's are the largest of these.
func bounded(_ json: String) -> String {
    // Texts are matched to be passed over.
    let parts = /"(?:[^"\\]|\\.)*"|[-+.0-9Ee]+/.matchingSemantics(.unicodeScalar)
    return json.replacing(parts) { part in
        part.output.allSatisfy(\.isWholeNumber) && Int(part.output) == nil ? "\(Int.max)" : part.output
    }
}

/// What an argument is in JSON. Options say which of their numbers may be infinite: what JSON cannot say is a text among
/// them, and else refused.
func writeJSON(_ value: some Encodable, as field: String) throws -> String {
    if let value = value as? JSONValue { return try value.json(as: field) }
    let encoder = JSONEncoder()
    if field == "options" {
        encoder.nonConformingFloatEncodingStrategy = .convertToString(
            positiveInfinity: "Infinity", negativeInfinity: "-Infinity", nan: "NaN")
    }
    do {
        return String(decoding: try encoder.encode(value), as: UTF8.self)
    } catch EncodingError.invalidValue(let found, let context) {
        let at = context.codingPath.reduce("") { at, key in
            key.intValue.map { "\(at)[\($0)]" } ?? (at.isEmpty ? key.stringValue : "\(at).\(key.stringValue)")
        }
        throw SkulkError(
            .invalidArgument, "expected a value that JSON can hold, found \(found)",
            context: at.isEmpty ? ["field": field] : ["field": field, "at": at], hint: "check how it was computed")
    } catch {
        throw SkulkError(error)
    }
}

extension KeyedDecodingContainer {
    /// JSON has no infinities and no NaN: the library writes null.
    func decode(_ type: Double.Type, forKey key: Key) throws -> Double {
        if let value = try decodeIfPresent(type, forKey: key) { return value }
        guard contains(key) else {
            let context = DecodingError.Context(codingPath: codingPath, debugDescription: "it is not there")
            throw DecodingError.keyNotFound(key, context)
        }
        return .nan
    }
}

/// A range as JSON has it.
struct Span: Codable {
    let start: Int
    let end: Int

    init(_ range: Range<Int>) { (start, end) = (range.lowerBound, range.upperBound) }

    var range: Range<Int> {
        get throws {
            guard start <= end else {
                let context = DecodingError.Context(codingPath: [], debugDescription: "it ends before it starts")
                throw DecodingError.dataCorrupted(context)
            }
            return start..<end
        }
    }
}

extension Data {
    /// Numbers as bytes. All of Swift's platforms have the lowest byte first, as the library has.
    init<T: BitwiseCopyable>(numbers: [T]) { self = numbers.withUnsafeBytes { Data($0) } }

    init(ids: [Int]) { self.init(numbers: ids.map(Int64.init)) }

    /// Bytes as numbers.
    func numbers<T: BitwiseCopyable>(of type: T.Type = T.self) -> [T] {
        Array(unsafeUninitializedCapacity: count / MemoryLayout<T>.stride) { buffer, initialized in
            initialized = copyBytes(to: buffer) / MemoryLayout<T>.stride
        }
    }

    var ids: [Int] { numbers(of: Int64.self).map(Int.init) }
}
