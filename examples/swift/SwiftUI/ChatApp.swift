// A conversation with a model in a window. Source alone: add it to an app that depends on the package `Skulk`, with a
// model in its bundle. It is not compiled by this repository's tests, which run on Linux.

import Skulk
import SwiftUI

@main
struct ChatApp: App {
    var body: some Scene {
        WindowGroup { ChatView() }
    }
}

/// What the window shows.
@MainActor
final class Conversation: ObservableObject {
    @Published var text = ""
    @Published var progress = 0.0
    @Published var failure: String?
    @Published private(set) var answering: Task<Void, Never>?
    private var session: Session?

    /// Loads the model that is in the app. The view's task ends it.
    func load() async {
        guard let path = Bundle.main.url(forResource: "model", withExtension: "gguf") else {
            failure = "There is no model in the app."
            return
        }
        do {
            let model = try await Model.load(path) { [weak self] step in
                let done = Double(step.done) / Double(step.total)
                Task { @MainActor in self?.progress = done }
            }
            session = try model.session()
        } catch {
            failure = error.localizedDescription
        }
    }

    func send(_ message: String) {
        guard let session, answering == nil else { return }
        text += "\n> \(message)\n"
        answering = Task {
            do {
                for try await event in session.generate(message, options: .init(maxTokens: 400, append: true)) {
                    text += event.text
                }
            } catch let error as SkulkError where error.kind == .cancelled {
                text += " …"
            } catch {
                failure = error.localizedDescription
            }
            answering = nil
        }
    }

    func stop() { answering?.cancel() }
}

struct ChatView: View {
    @StateObject private var conversation = Conversation()
    @State private var message = ""

    var body: some View {
        VStack(alignment: .leading) {
            if conversation.progress < 1 { ProgressView(value: conversation.progress) }
            ScrollView { Text(conversation.text).textSelection(.enabled) }
            if let failure = conversation.failure { Text(failure).foregroundStyle(.red) }
            HStack {
                TextField("Message", text: $message).onSubmit(send)
                if conversation.answering == nil {
                    Button("Send", action: send).disabled(message.isEmpty)
                } else {
                    Button("Stop", action: conversation.stop)
                }
            }
        }
        .padding()
        .task { await conversation.load() }
    }

    private func send() {
        conversation.send(message)
        message = ""
    }
}
