// What does a conversation remember?

import Skulk
import Testing

@Suite struct SessionTests {
    @Test func aLongerPromptComputesOnlyWhatIsNew() async throws {
        let model = try await stories()
        let session = try model.session()
        let first = try await session.generate(prompt, options: .init(maxTokens: 8)).output()
        #expect(try session.tokens.suffix(8) == first.ids[...])
        let longer = prompt + first.text + " Then"
        let second = try await session.generate(longer, options: .init(maxTokens: 8)).output()
        #expect(second.finish.usage.cachedTokens >= first.finish.usage.promptTokens)
        #expect(try await second.text == model.generate(longer, options: .init(maxTokens: 8)).text())
    }

    @Test func appendFollowsWhatIsThere() async throws {
        let session = try await stories().session()
        let first = try await session.generate(prompt, options: .init(append: true, maxTokens: 8)).output()
        let held = try session.tokens
        let generation = session.generate(" Then", options: .init(append: true, maxTokens: 4))
        #expect(try generation.promptIds.prefix(held.count) == held[...])
        let second = try await generation.output()
        #expect(second.finish.usage.cachedTokens > first.finish.usage.promptTokens)
        let error = try await failure(.invalidArgument) {
            _ = try await session.generate([1, 2], options: .init(append: true)).text()
        }
        #expect(error.context["field"] == "append")
    }

    @Test func truncateForgets() async throws {
        let model = try await stories()
        let session = try model.session()
        let before = try await session.generate(prompt, options: .init(maxTokens: 8)).output()
        try session.truncate(to: 5)
        #expect(try session.tokens == Array(model.tokenizer.encode(prompt).prefix(5)))
        #expect(try await session.generate(prompt, options: .init(maxTokens: 8)).output().ids == before.ids)
        for count in [10_000, -1] {
            let error = try await failure(.invalidArgument) { try session.truncate(to: count) }
            #expect(error.context["field"] == "len" && error.message.contains("\(count)"))
        }
    }

    @Test func oneSessionRunsOneGeneration() async throws {
        let session = try await stories().session()
        let running = session.generate(prompt, options: .init(maxTokens: 400))
        var events = running.makeAsyncIterator()
        #expect(try await events.next() != nil)
        let uses: [() async throws -> Void] = [
            { _ = try await session.generate("x").text() }, { _ = try session.tokens }, { try session.truncate(to: 0) },
        ]
        for use in uses {
            #expect(try await failure(.sessionBusy, use).retry == .now)
        }
        try await running.close()
        #expect(try await events.next() == nil)
        _ = try await session.generate("x", options: .init(maxTokens: 2)).text()
    }

    @Test func modelsOutliveTheirNames() async throws {
        func start() async throws -> Generation {
            try await Model.load(storiesPath, options: .init(threads: 1)).session()
                .generate(prompt, options: .init(maxTokens: 9))
        }
        #expect(try await start().output().ids.count == 9)
    }

    @Test func usingWhatWasClosedIsAnError() async throws {
        let model = try await Model.load(storiesPath, options: .init(threads: 1))
        let session = try model.session()
        let tokenizer = model.tokenizer
        model.close()
        model.close()
        let uses: [() async throws -> Void] = [
            { _ = try model.session() }, { _ = try await model.generate(prompt).text() },
            { _ = try await model.logits(prompt) }, { _ = try tokenizer.encode(prompt) },
            { _ = try await model.divergence(from: model, on: prompt) }, { _ = try model.ffnMemory },
        ]
        for use in uses {
            let error = try await failure(.invalidArgument, use)
            #expect(error.message.contains("closed") && error.hint != nil)
        }
        // What was made of it goes on.
        #expect(try await session.generate(prompt, options: .init(maxTokens: 4)).output().ids.count == 4)
        session.close()
        session.close()
        _ = try await failure(.invalidArgument) { _ = try session.tokens }
        _ = try await failure(.invalidArgument) { _ = try await session.generate(prompt).text() }
        _ = try await failure(.invalidArgument) { try session.truncate(to: 0) }
    }
}
