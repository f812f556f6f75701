// What does a conversation remember?

import Foundation
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
        let first = try await session.generate(prompt, options: .init(maxTokens: 8, append: true)).output()
        let held = try session.tokens
        let generation = session.generate(" Then", options: .init(maxTokens: 4, append: true))
        #expect(try await generation.promptIds.prefix(held.count) == held[...])
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
        for (count, field) in [(10_000, "len"), (-1, "count")] {
            let error = try await failure(.invalidArgument) { try session.truncate(to: count) }
            #expect(error.context["field"] == field && error.message.contains("\(count)"))
        }
    }

    @Test func aForkGoesOnByItself() async throws {
        let model = try await stories()
        let session = try model.session()
        _ = try await session.generate(prompt, options: .init(maxTokens: 8)).output()
        let (held, fork) = (try session.tokens, try session.fork())
        let next = GenerateOptions(maxTokens: 8, append: true)
        let output = try await fork.generate(" Then", options: next).output()
        #expect(output.finish.usage.cachedTokens >= held.count - 1)
        #expect(try session.tokens == held && fork.tokens.starts(with: held))
        #expect(try await session.generate(" Then", options: next).output().ids == output.ids)
        let running = session.generate(prompt, options: .init(maxTokens: 400))
        var events = running.makeAsyncIterator()
        #expect(try await events.next() != nil)
        _ = try await failure(.sessionBusy) { _ = try session.fork() }
        try await running.close()
        session.close()
        _ = try await failure(.invalidArgument) { _ = try session.fork() }
    }

    @Test func aSavedSessionGoesOn() async throws {
        let model = try await stories()
        let session = try model.session()
        _ = try await session.generate(prompt, options: .init(maxTokens: 80)).output()
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent(UUID().uuidString)
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        let (file, tokens) = (folder.appendingPathComponent("conversation.skulk"), try session.tokens)
        try await session.save(to: file)
        let next = GenerateOptions(maxTokens: 8, append: true)
        let expected = try await session.generate(" Then", options: next).output()
        let restored = try await model.restore(from: file.path)
        #expect(try restored.tokens == tokens)
        let output = try await restored.generate(" Then", options: next).output()
        #expect(output.ids == expected.ids && output.finish.usage.cachedTokens >= tokens.count - 1)
        _ = try await failure(.fileNotFound) { _ = try await model.restore(from: folder.path + "/none") }
        try Data(contentsOf: file).dropLast().write(to: file)
        let error = try await failure(.sessionInvalid) { _ = try await model.restore(from: file) }
        #expect(error.context["file"]?.hasSuffix("conversation.skulk") == true)
        restored.close()
        let closed = try await failure(.invalidArgument) { try await restored.save(to: file) }
        #expect(closed.message == "expected an open session, found a closed one")
    }

    @Test func manyPromptsShareTheSteps() async throws {
        let model = try await stories()
        let prompts = (0..<20).map { "\(prompt), \($0)" }
        let options = GenerateOptions(maxTokens: 8)
        let results = try await model.generateBatch(prompts, options: options)
        #expect(results.count == prompts.count)
        #expect(try await results[7].get().ids == model.generate(prompts[7], options: options).output().ids)
        let mixed: [Prompt] = [.text(prompt), .tokens([1 << 31]), .tokens([1, 403]), .text("")]
        let some = try await model.generateBatch(mixed, options: options)
        let errors = some.map { result in
            if case .failure(let error) = result { error.kind } else { nil as ErrorKind? }
        }
        #expect(errors == [nil, .invalidArgument, nil, .invalidArgument])
        #expect(try await model.generateBatch([String]()).isEmpty)
        _ = try await failure(.invalidArgument) { _ = try await model.generateBatch(prompts, options: .init(maxTokens: -1)) }
    }

    @Test func manyPromptsEndTogether() async throws {
        let model = try await slow()
        let token = CancelToken()
        token.cancel()
        let ended = try await model.generateBatch([prompt, prompt], cancel: token)
        let many = Array(repeating: prompt, count: 20)
        let task = Task { try await model.generateBatch(many, options: .init(maxTokens: 400)) }
        task.cancel()
        for result in try await ended + task.value {
            _ = try await failure(.cancelled) { _ = try result.get() }
        }
    }

    @Test func keysAndValuesHaveABudget() async throws {
        let limited = try await Model.load(storiesPath, options: .init(threads: 1, kvMemory: 400_000, whenFull: .fail))
        #expect(try limited.kvMemory == KvMemory(budgetBytes: 400_000, inUseBytes: 0, keptBytes: 0, reservedBytes: 0))
        let session = try limited.session()
        _ = try await session.generate(prompt, options: .init(maxTokens: 8)).output()
        let memory = try limited.kvMemory
        #expect(memory.inUseBytes > 0 && memory.reservedBytes <= 400_000)
        let error = try await failure(.outOfMemory) {
            for result in try await limited.generateBatch((0..<16).map { "\($0) \(prompt)" }) { _ = try result.get() }
        }
        #expect(error.code == "memory.exhausted" && error.retry == .now && error.context["field"] == "kvMemory")
        limited.close()
        _ = try await failure(.invalidArgument) { _ = try limited.kvMemory }
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
