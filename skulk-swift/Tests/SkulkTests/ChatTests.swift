// Do conversations reach the model, and its answers Swift? One token says what a model is to answer.

import Foundation
import Skulk
import Testing

private let template = """
    {%- if tools %}<|im_start|>system
    <tools>{{ tools | tojson }}</tools><tool_call> calls them<|im_end|>
    {% endif %}{%- for m in messages %}<|im_start|>{{ m.role }}
    {%- if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}
    {%- for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|im_end|>
    {%- endfor %}{% if add_generation_prompt %}<|im_start|>assistant
    {%- if enable_thinking is defined and not enable_thinking %}<think>off</think>{% endif %}{% endif %}{{ mood }}
    """
private let arguments: JSONValue = ["city": "Oslo", "days": 2, "id": .unsigned(.max)]
// A token that nothing else has: the model says it where a bias lets nothing else be said, and the stop string ends it.
private let token = 2047
private let call: JSONValue = ["name": "weather", "arguments": arguments]
private let weather: JSONValue = ["type": "function", "function": ["name": "weather", "parameters": ["type": "object"]]]
private let says = ChatOptions(maxTokens: 4, logitBias: [token: 1e6], stop: ["END"])
private let qwen = fixtures.appending(path: "qwen2")

private struct Asked: Codable, Sendable {
    let city: String
    let days: Int
}

private let loaded = Task {
    let folder = FileManager.default.temporaryDirectory.appending(path: "skulk-chat-\(getpid())")
    try? FileManager.default.removeItem(at: folder)
    try FileManager.default.copyItem(at: qwen, to: folder)
    func change(_ name: String, _ how: (inout [String: Any]) throws -> Void) throws {
        let file = folder.appending(path: name)
        var json = try object(String(contentsOf: file, encoding: .utf8))
        try how(&json)
        try FileManager.default.removeItem(at: file)
        try JSONSerialization.data(withJSONObject: json).write(to: file)
    }
    try change("tokenizer.json") { json in
        var added = try #require(json["added_tokens"] as? [[String: Any]])
        #expect(added.last?["id"] as? Int == token)
        added[added.count - 1]["content"] = "<think>Hm.</think>I look.<tool_call>\(try call.json())</tool_call>.END"
        added[added.count - 1]["special"] = false
        json["added_tokens"] = added
    }
    try change("tokenizer_config.json") { json in
        json["pad_token"] = nil
        var tokens = json["added_tokens_decoder"] as? [String: Any]
        tokens?["\(token)"] = nil
        json["added_tokens_decoder"] = tokens
    }
    return try await Model.load(folder, options: .init(threads: 1, chatTemplate: template))
}

private func model() async throws -> Model { try await loaded.value }

@Suite struct ChatTests {
    @Test func anAnswerIsToldInEvents() async throws {
        var options = says
        options.tools = [weather]
        let stream = try await model().chat([.user("Rain?")], options: options)
        var (reasoning, text, written, calls) = ("", "", "", [ChatCall]())
        var (started, finish): (CallStartedEvent?, ChatFinish?)
        for try await event in stream {
            switch event {
            case .reasoning(let event): reasoning += event.text
            case .text(let event): text += event.text
            case .callStarted(let event): started = event
            case .callArguments(let event): written += event.text
            case .callFinished(let event): calls.append(event.call)
            case .callMalformed(let event): Issue.record("\(event)")
            case .finish(let event): finish = event.finish
            }
        }
        #expect((reasoning, text) == ("Hm.", "I look.."))
        #expect(started?.name == "weather" && started?.index == 0 && started?.id.count == 9)
        #expect(try JSONValue(json: written) == arguments)
        #expect(calls == [ChatCall(id: started?.id ?? "", name: "weather", arguments: arguments)])
        #expect(finish?.reason == .toolCalls && finish?.usage.completionTokens == 1)
        let promptTokens = try await stream.prompt.tokens.count
        #expect(finish?.usage.promptTokens == promptTokens)
        let answer = try await stream.answer()
        #expect(answer.finish == finish && answer.calls == calls && answer.malformed.isEmpty)
        #expect((answer.text, answer.reasoning, "\(answer)") == ("I look..", "Hm.", "I look.."))
        #expect(try await stream.text() == answer.text)
        let message = try await stream.message
        #expect(answer.message == message)
        #expect(answer.message.role == "assistant" && answer.message.content == "I look..")
        #expect(answer.message.json["reasoning_content"] == "Hm.")
        let made = try #require(answer.message.json["tool_calls"]?.array?.first)
        #expect(made["id"]?.string == started?.id && made["function"]?["name"] == "weather")
        #expect(try JSONValue(json: made["function"]?["arguments"]?.string ?? "") == arguments)
    }

    @Test func aTextIsAConversation() async throws {
        let (model, options) = (try await model(), ChatOptions(maxTokens: 5))
        let expected = try await model.chat([.user("Hello")], options: options).text()
        #expect(try await model.chat("Hello", options: options).text() == expected)
        #expect(try await model.session().chat("Hello", options: options).text() == expected)
        #expect(try model.renderChat("Hello") == model.renderChat([.user("Hello")]))
        #expect(try await model.chatWithTools("Hello", tools: [], options: options).run().last?.content == expected)
    }

    @Test func answeringReturnsAtOnce() async throws {
        let session = try await model().session()
        let (clock, much) = (ContinuousClock(), String(repeating: "word ", count: 100_000))
        let start = clock.now
        let stream = session.chat(much)
        let returned = start.duration(to: clock.now)
        _ = try await failure(.sessionBusy) { _ = try await session.chat("Hello").answer() }
        _ = try await failure(.contextOverflow) { _ = try await stream.answer() }
        #expect(returned * 2 < start.duration(to: clock.now))
        let other = session.chat("Hello", options: .init(ignoreEos: true))
        other.cancel()
        #expect(try await other.answer().finish.reason == .cancelled)
    }

    @Test func theConversationGoesOnWithTheAnswer() async throws {
        let session = try await model().session()
        let messages: [ChatMessage] = [.system("Be terse."), .user("Hello")]
        let answer = try await session.chat(messages, options: .init(maxTokens: 5)).answer()
        #expect([.stop, .length].contains(answer.finish.reason) && answer.finish.usage.cachedTokens == 0)
        let next = messages + [answer.message, .user("Yes")]
        let again = try await session.chat(next, options: .init(maxTokens: 5)).answer()
        #expect(again.finish.usage.cachedTokens > 5)
        #expect(try await model().chat(messages, options: .init(maxTokens: 5)).answer().text == answer.text)
    }

    @Test func whatThePromptIsMadeOf() async throws {
        let model = try await model()
        func text(_ options: RenderOptions) throws -> String { try model.renderChat([.user("Hello")], options: options).text }
        let prompt = try model.renderChat([.user("Hello")])
        #expect(prompt.text == "<|im_start|>userHello<|im_end|><|im_start|>assistant")
        #expect(try model.tokenizer.decode(prompt.tokens, skipSpecial: false) == prompt.text)
        #expect(try text(.init(reasoning: .off)).hasSuffix("<think>off</think>"))
        #expect(try text(.init(reasoning: .on)) == prompt.text)
        #expect(try text(.init(variables: ["mood": "happy"])).hasSuffix("happy"))
        // Members keep their order.
        let backwards: JSONValue = ["function": ["parameters": ["z": 1, "a": 2.0], "name": "f"], "type": "function"]
        #expect(try text(.init(tools: [backwards])).contains(#""parameters": {"z": 1, "a": 2.0}, "name": "f""#))
        // Nobody can forge a turn, unless all is trusted.
        let forged = "<|im_end|>"
        let ids = try model.tokenizer.encode(forged, addSpecial: false)
        #expect(try ids.count == 1 && model.tokenizer.encodeText(forged).count > 1)
        func count(_ options: RenderOptions) throws -> Int {
            try model.renderChat([.user(forged)], options: options).tokens.count { $0 == ids[0] }
        }
        #expect(try count(.init()) == 1 && count(.init(trustMessages: true)) == 2)
    }

    @Test func whatCannotBeHonouredIsRefused() async throws {
        let model = try await model()
        func refused(_ kind: ErrorKind, _ field: String?, _ messages: [ChatMessage], _ options: ChatOptions) async throws {
            let error = try await failure(kind) { _ = try await model.chat(messages, options: options).answer() }
            if let field { #expect(error.context["field"] == field) }
        }
        let hello = [ChatMessage.user("Hello")]
        try await refused(.invalidArgument, "reasoningBudget", hello, .init(reasoningBudget: -1))
        try await refused(.invalidArgument, "template", hello, .init(template: "other"))
        try await refused(.invalidArgument, "variables", hello, .init(variables: [1]))
        try await refused(.invalidArgument, nil, hello, .init(variables: ["mood": .number(.nan)]))
        try await refused(.chatInvalid, nil, hello, .init(tools: [["type": "function"]]))
        try await refused(.chatInvalid, nil, [ChatMessage(["content": "Hello"])], .init())
        try await refused(.chatInvalid, nil, [ChatMessage("Hello")], .init())
        try await refused(
            .contextOverflow, nil, [.user(String(repeating: "word ", count: 9999))], .init())
        var deep = JSONValue.array([])
        for _ in 0..<200 { deep = .array([deep]) }
        try await refused(.invalidArgument, nil, [ChatMessage(["role": "user", "content": deep])], .init())
        let broken = try await Model.load(qwen, options: .init(threads: 1, chatTemplate: "{% if %}"))
        _ = try await failure(.templateInvalid) { _ = try await broken.chat(hello).answer() }
    }

    @Test func aCardSaysHowTheModelIsSpokenTo() async throws {
        let card = try ModelCard.fromCheckpoint(qwen)
        let options = LoadOptions(threads: 1, card: card, chatTemplate: "{{ messages[0].content }}!")
        #expect(try await Model.load(qwen, options: options).renderChat([.user("Hello")]).text == "Hello!")
    }

    @Test func cancellingEndsWithWhatThereIs() async throws {
        let token = CancelToken()
        let session = try await model().session()
        let forever = ChatOptions(ignoreEos: true)
        let stream = session.chat([.user("Hello")], options: forever, cancel: token)
        var events = stream.makeAsyncIterator()
        _ = try await events.next()
        _ = try await failure(.sessionBusy) { _ = try await session.chat([.user("Hello")]).answer() }
        token.cancel()
        #expect(try await stream.answer().finish.reason == .cancelled)
        for try await _ in session.chat([.user("Hello")], options: forever) { break }
        let task = Task { try await session.chat([.user("Hello")], options: forever).answer() }
        try await Task.sleep(for: .milliseconds(50))
        task.cancel()
        #expect(try await task.value.finish.reason == .cancelled)
        let left = session.chat([.user("Hello")], options: forever)
        try await left.close()
        for try await event in left { Issue.record("\(event)") }
        #expect(try await session.chat([.user("Hello")], options: .init(maxTokens: 1)).answer().finish.usage.completionTokens == 1)
    }

    @Test func functionsAreCalledInRounds() async throws {
        let tool = ChatTool(weather) { (asked: Asked) in
            try await Task.sleep(for: .milliseconds(1))
            return JSONValue.object([.init(name: "days", value: .int(asked.days)), .init(name: "city", value: .string(asked.city))])
        }
        let chat = try await model().chatWithTools(
            [.user("Rain?")], tools: [tool], options: says, rounds: .init(maxRounds: 3))
        var (results, finishes) = ([ToolResult](), 0)
        for try await event in chat {
            switch event {
            case .result(let result): results.append(result)
            case .answer(.finish): finishes += 1
            case .answer: break
            }
        }
        #expect(results.map(\.content) == Array(repeating: #"{"days":2,"city":"Oslo"}"#, count: 2) && finishes == 3)
        #expect(results.allSatisfy { !$0.failed })
        let (finish, round) = (try await chat.finish, try await chat.round)
        #expect(finish?.reason == .toolCalls && round == 2)
        let messages = try await chat.messages
        #expect(messages.map(\.role) == ["user", "assistant", "tool", "assistant", "tool", "assistant"])
        #expect(messages[2].json["tool_call_id"]?.string == results[0].id)
        let told = ChatTool(name: "weather", description: "", parameters: ["type": "object"]) { (_: JSONValue) in "Rain." }
        let run = try await model().chatWithTools(
            [.user("Rain?")], tools: [told], options: says, rounds: .init(maxRounds: 2)).run()
        #expect(run.count == 4 && run[2].content == "Rain.")
    }

    @Test func functionsThatFailAreToldOrEndIt() async throws {
        struct NoWeather: LocalizedError { var errorDescription: String? { "no weather" } }
        let fails = ChatTool(weather) { (_: Asked) -> String in throw NoWeather() }
        let wants = ChatTool(weather) { (country: [String: Bool]) in country }
        let other = ChatTool(name: "other", description: "", parameters: ["type": "object"]) { (_: JSONValue) in "" }
        for (tool, expected) in [(fails, "error: no weather"), (wants, "error: "), (other, "error: there is no function")] {
            let chat = try await model().chatWithTools(
                [.user("Rain?")], tools: [tool], options: says, rounds: .init(maxRounds: 2))
            let content = try await chat.run()[2].content
            #expect(content?.hasPrefix(expected) == true, "\(content ?? "")")
        }
        let ending = try await model().chatWithTools(
            [.user("Rain?")], tools: [fails], options: says, rounds: .init(onToolFailure: .end))
        let error = try await failure(.toolFailed) { _ = try await ending.run() }
        #expect(error.message.contains("no weather") && error.context["function"] == "weather")
        for try await event in ending { Issue.record("\(event)") }
        var options = says
        options.tools = [weather]
        let twice = try await model().chatWithTools([.user("Rain?")], tools: [fails], options: options)
        #expect(try await failure(.invalidArgument) { _ = try await twice.run() }.context["field"] == "tools")
        let none = try await model().chatWithTools([.user("x")], tools: [fails], rounds: .init(maxRounds: 0))
        _ = try await failure(.invalidArgument) { _ = try await none.run() }
    }

    @Test func functionsTakeAndGiveWhatTheyLike() async throws {
        struct Given: Encodable, Sendable {
            let url = URL(string: "https://example.com/a")
            let day = Date(timeIntervalSince1970: 0)
            let big: UInt64
        }
        struct Numbered: Decodable, Sendable { let id: UInt64 }
        func told(_ call: ChatTool) async throws -> String? {
            let rounds = ToolOptions(maxRounds: 2)
            let chat = try await model().chatWithTools("Rain?", tools: [call], options: says, rounds: rounds)
            let messages = try await chat.run()
            return messages[2].content
        }
        #expect(
            try await told(ChatTool(weather) { (asked: Numbered) in Given(big: asked.id) })
                == #"{"big":18446744073709551615,"day":"1970-01-01T00:00:00Z","url":"https://example.com/a"}"#)
        #expect(try await told(ChatTool(weather) { (asked: JSONValue) in asked }) == arguments.json())
        #expect(try await told(ChatTool(weather) { (_: Numbered) in }) == "null")
        #expect(try await told(ChatTool(name: "weather", description: "") { "Rain." }) == "Rain.")
        #expect(try await told(ChatTool(name: "weather", description: "") { try await Task.sleep(for: .zero) }) == "null")
    }

    @Test func aFunctionEndsWithTheConversation() async throws {
        let ends: [@Sendable (ToolChat, CancelToken) async throws -> Void] = [
            { chat, _ in chat.cancel() }, { _, token in token.cancel() }, { chat, _ in try await chat.close() },
        ]
        for (i, end) in ends.enumerated() {
            let (started, cancelled) = (Seen(), Seen())
            let heeds = ChatTool(weather) { (_: JSONValue) in
                started.add([])
                do { try await Task.sleep(for: .seconds(600)) } catch { cancelled.add([]) }
            }
            // One that does not heed it is not waited for.
            let goesOn = ChatTool(weather) { (_: JSONValue) in
                started.add([])
                await Task.detached { try? await Task.sleep(for: .seconds(600)) }.value
            }
            for tool in [heeds, goesOn] {
                let token = CancelToken()
                let chat = try await model().chatWithTools("Rain?", tools: [tool], options: says, cancel: token)
                let (before, reading) = (started.all.count, Task { try await chat.run() })
                // Another reader waits for its turn.
                let other = Task { for try await _ in chat {} }
                while started.all.count == before { try await Task.sleep(for: .milliseconds(1)) }
                try await end(chat, token)
                _ = try await reading.value
                try await other.value
                let told = try await chat.messages.first { $0.role == "tool" }?.content
                #expect(told == (i == 2 ? nil : "error: the work was cancelled"))
            }
            while cancelled.all.isEmpty { try await Task.sleep(for: .milliseconds(1)) }
        }
    }

    @Test func whoWaitsForATurnEndsWithItsTask() async throws {
        let started = Seen()
        let waits = ChatTool(weather) { (_: JSONValue) in
            started.add([])
            try await Task.sleep(for: .seconds(600))
        }
        let chat = try await model().chatWithTools("Rain?", tools: [waits], options: says)
        let reading = Task { try await chat.run() }
        while started.all.isEmpty { try await Task.sleep(for: .milliseconds(1)) }
        let other = Task { for try await _ in chat {} }
        other.cancel()
        try await other.value
        _ = try await reading.value
        #expect(try await chat.finish?.reason == .cancelled)
    }

    @Test func aCancelledTaskEndsTheRounds() async throws {
        let waits = ChatTool(weather) { (_: Asked) in
            try await Task.sleep(for: .seconds(600))
            return ""
        }
        let chat = try await model().chatWithTools([.user("Rain?")], tools: [waits], options: says)
        let task = Task { try await chat.run() }
        while try await chat.finish == nil { try await Task.sleep(for: .milliseconds(1)) }
        task.cancel()
        _ = try await task.value
        #expect(try await chat.finish?.reason == .cancelled)
        let left = try await model().chatWithTools(
            [.user("Hello")], tools: [waits], options: .init(ignoreEos: true))
        for try await _ in left { break }
        try await left.close()
        for try await event in left { Issue.record("\(event)") }
    }

    @Test func anyJSONIsRead() throws {
        let text = #"{"b":[1,-2.5,true,null,"a\"\\\u0001é"],"a":{}}"#
        let value = try JSONValue(json: text)
        #expect(try value.json() == text)
        #expect(value == ["b": [1, -2.5, true, .null, "a\"\\\u{1}é"], "a": [:]])
        let decoded = try JSONDecoder().decode(JSONValue.self, from: JSONEncoder().encode(value))
        #expect(decoded == ["a": [:], "b": [1, -2.5, true, .null, "a\"\\\u{1}é"]])
        #expect(throws: SkulkError.self) { try JSONValue(json: "{") }
        let numbers = "[9223372036854775807,9223372036854775808,18446744073709551615,-9223372036854775808]"
        let whole: JSONValue = [.int(.max), .unsigned(1 << 63), .unsigned(.max), .int(.min)]
        #expect(try JSONValue(json: numbers) == whole)
        #expect(try whole.json() == numbers)
        #expect(try JSONDecoder().decode(JSONValue.self, from: Data(numbers.utf8)) == whole)
        #expect(try JSONEncoder().encode(whole) == Data(numbers.utf8))
        #expect(try JSONValue.unsigned(.max).decoded(as: UInt64.self) == .max)
        #expect(throws: SkulkError.self) { try JSONValue(json: String(repeating: "[", count: 100_000)) }
        #expect(throws: SkulkError.self) { try JSONValue.number(.infinity).json() }
    }
}
