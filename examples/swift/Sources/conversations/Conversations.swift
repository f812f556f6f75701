// 16 conversations with a model at once, with a progress line each: conversations [MODEL]

import Foundation
import Skulk

let opening = """
    Once upon a time, there was a little girl named Lily. She lived in a big house with her mom and her dad. She had many \
    friends, and she loved to play with them in the park.
    """
let friends = ["cat", "dog", "bird", "boy", "fish", "bear", "bug", "duck"]

/// A line for each conversation: drawn again and again on a terminal, else once.
actor Lines {
    let count: Int
    let isLive = isatty(STDOUT_FILENO) == 1

    init(_ count: Int) {
        self.count = count
        if isLive { print(String(repeating: "\n", count: count), terminator: "") }
    }

    func show(_ i: Int, _ text: String, last: Bool = false) {
        if isLive {
            let up = count - i
            print("\u{1b}[\(up)A\r\u{1b}[K\(text.prefix(78))\u{1b}[\(up)B\r", terminator: "")
            fflush(nil)
        } else if last {
            print(text)
        }
    }
}

@main
struct Conversations {
    static func main() async throws {
        let model = try await Model.load(CommandLine.arguments.dropFirst().first ?? "examples/models/stories260K")
        // How all begin is computed once: each conversation is a fork of it.
        let first = try model.session()
        let read = try await first.generate(opening, options: .init(maxTokens: 1)).output()
        try first.truncate(to: read.finish.usage.promptTokens)

        let lines = Lines(16)
        let began = Date()
        let tokens = try await withThrowingTaskGroup(of: Int.self) { group in
            for i in 0..<lines.count {
                let session = try first.fork()
                group.addTask { try await converse(i, session, lines) }
            }
            var tokens = 0
            for try await own in group { tokens += own }
            return tokens
        }
        let speed = Int(Double(tokens) / Date().timeIntervalSince(began))
        print("\(tokens) tokens, \(speed) a second; keys and values \(try model.kvMemory.inUseBytes) bytes")
    }

    static func converse(_ i: Int, _ session: Session, _ lines: Lines) async throws -> Int {
        var (text, tokens, cached) = ("", 0, 0)
        for said in [" One day, Lily met a \(friends[i % friends.count])", " Her mom said,"] {
            text += said
            let options = GenerateOptions(maxTokens: 32, temperature: 0.7, seed: i, append: true)
            for try await event in session.generate(said, options: options) {
                text += event.text
                tokens += event.token == nil ? 0 : 1
                cached += event.finish?.usage.cachedTokens ?? 0
                await lines.show(i, "\(i): \(tokens) tokens ...\(text.suffix(58))")
            }
        }
        await lines.show(i, "\(i): \(tokens) tokens, \(cached) not computed again:\(text)", last: true)
        return tokens
    }
}
