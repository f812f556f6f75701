// A conversation with a model on the command line: chat [MODEL] [--max-tokens N]
//
// Every line is a message, Ctrl-C ends an answer, and the end of the input the conversation.

import Foundation
import Skulk

@main
struct Chat {
    static func main() async {
        do {
            try await talk()
        } catch {
            FileHandle.standardError.write(Data("error: \(error)\n".utf8))
            exit(1)
        }
    }

    static func talk() async throws {
        var arguments = Array(CommandLine.arguments.dropFirst())
        var maxTokens = 40
        if let at = arguments.firstIndex(of: "--max-tokens"), at + 1 < arguments.count {
            maxTokens = Int(arguments[at + 1]) ?? maxTokens
            arguments.removeSubrange(at...(at + 1))
        }
        let model = try await Model.load(arguments.first ?? "examples/models/stories260K")
        print("\(model)\n\(model.placement)")
        let session = try model.session()
        while let message = readLine() {
            let answer = Task { [maxTokens] in
                var reason: FinishReason?
                let options = GenerateOptions(maxTokens: maxTokens, append: true)
                for try await event in session.generate(message, options: options) {
                    print(event, terminator: "")
                    fflush(nil)
                    reason = event.finish?.reason
                }
                return reason
            }
            let interrupted = onInterrupt { answer.cancel() }
            defer { interrupted.cancel() }
            do {
                print("\n(\(try await answer.value?.rawValue ?? "nothing"), \(try session.tokens.count) tokens)")
            } catch let error as SkulkError where error.kind == .cancelled {
                print("\n(stopped)")
            }
        }
    }

    /// Calls this for Ctrl-C, until what it returns is cancelled.
    static func onInterrupt(_ call: @escaping @Sendable () -> Void) -> any DispatchSourceSignal {
        signal(SIGINT, SIG_IGN)
        let source = DispatchSource.makeSignalSource(signal: SIGINT)
        source.setEventHandler(handler: call)
        source.resume()
        return source
    }
}
