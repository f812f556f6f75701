// Does everything stop when it is told to, and stay usable?

import Foundation
import Skulk
import Testing

@Suite struct CancelTests {
    @Test func cancelEndsDecoding() async throws {
        let session = try await stories().session()
        let generation = session.generate(prompt, options: .init(maxTokens: 450))
        var events = generation.makeAsyncIterator()
        _ = try await events.next()
        generation.cancel()
        generation.cancel()
        let error = try await failure(.cancelled) { while try await events.next() != nil {} }
        #expect(error.code == "cancelled" && error.retry == .now)
        #expect(try await events.next() == nil)
        _ = try await session.generate(prompt, options: .init(maxTokens: 4)).output()
    }

    @Test func cancellingATaskEndsPrefill() async throws {
        let session = try await slow().session()
        let task = Task {
            for try await event in session.generate(longPrompt, options: .init(maxTokens: 1)) {
                Issue.record("\(event)")
            }
        }
        try await Task.sleep(for: .milliseconds(300))
        task.cancel()
        _ = try await failure(.cancelled) { try await task.value }
        let output = try await session.generate([5, 5, 5, 5], options: .init(maxTokens: 2, ignoreEos: true)).output()
        #expect(output.ids.count == 2)
    }

    @Test func cancellingATaskEndsWhatCollects() async throws {
        let model = try await slow()
        let works: [@Sendable () async throws -> Void] = [
            { _ = try await model.generate(longPrompt, options: .init(maxTokens: 1)).text() },
            { _ = try await model.logits(longPrompt) },
            { _ = try await model.divergence(from: model, on: longPrompt) },
        ]
        for work in works {
            let task = Task { try await work() }
            try await Task.sleep(for: .milliseconds(100))
            task.cancel()
            _ = try await failure(.cancelled) { try await task.value }
        }
    }

    @Test func aCancelledTaskStartsNothing() async throws {
        let model = try await stories()
        let task = Task {
            withUnsafeCurrentTask { $0?.cancel() }
            _ = try await failure(.cancelled) { _ = try await Model.load(storiesPath) }
            _ = try await failure(.cancelled) { _ = try await model.generate(prompt).text() }
            _ = try await failure(.cancelled) { for try await _ in model.generate(prompt) {} }
        }
        try await task.value
    }

    @Test func aTokenEndsPrefillAndIsLeftAlone() async throws {
        let session = try await slow().session()
        let token = CancelToken()
        let generation = session.generate(longPrompt, options: .init(maxTokens: 1), cancel: token)
        #expect(!token.isCancelled)
        Task {
            try await Task.sleep(for: .milliseconds(200))
            token.cancel()
        }
        _ = try await failure(.cancelled) { _ = try await generation.text() }
        #expect(token.isCancelled)
        // Ending one generation does not cancel what else a token is for.
        let other = CancelToken()
        let closed = session.generate(longPrompt, cancel: other)
        try await closed.close()
        try await closed.close()
        #expect(!other.isCancelled)
        _ = try await session.generate([5, 5], options: .init(maxTokens: 1), cancel: other).text()
    }

    @Test func leavingTheLoopFreesTheSession() async throws {
        let session = try await stories().session()
        for _ in 0..<3 {
            for try await _ in session.generate(prompt, options: .init(maxTokens: 400)) { break }
            try session.truncate(to: 1)
            #expect(try session.tokens.count == 1)
        }
        // Nor does one that nobody reads keep it.
        _ = session.generate(prompt, options: .init(maxTokens: 400))
        try session.truncate(to: 1)
    }

    @Test func whatHasANameGoesOnBehindALoop() async throws {
        let session = try await stories().session()
        let generation = session.generate(prompt, options: .init(maxTokens: 400))
        for try await _ in generation { break }
        _ = try await failure(.sessionBusy) { _ = try session.tokens }
        for try await event in generation {
            #expect(event.token != nil)
            break
        }
        try await generation.close()
        #expect(try !session.tokens.isEmpty)
    }

    @Test func whatHasNotBegunEnds() async throws {
        let session = try await stories().session()
        let much = String(repeating: prompt, count: 1000)
        for _ in 0..<10 {
            let cancelled = session.generate(prompt, options: .init(ignoreEos: true))
            cancelled.cancel()
            _ = try await failure(.cancelled) { _ = try await cancelled.text() }
            let closed = session.generate(prompt, options: .init(ignoreEos: true))
            try await closed.close()
            _ = session.generate(much)
            #expect(try session.tokens.count < 100)
        }
    }

    @Test func aCancelledTaskDoesNotBeginWhatNothingEnds() async throws {
        let (model, session) = (try await stories(), try await stories().session())
        let one = try Placement.byCounts([("cpu", 5)])
        let works: [@Sendable () async throws -> Void] = [
            { _ = try await model.replan(one) }, { _ = try await session.recover(one) },
            { _ = try await session.recoverIn(model) }, { try await session.save(to: "/no/such/folder/s") },
            { _ = try await model.restore(from: "no/such") }, { _ = try await EmbeddingModel.load("no/such") },
            { _ = try await plan(checkpoint: storiesPath) }, { _ = try await devices() },
            { _ = try await price(checkpoint: storiesPath, one) }, { _ = try await Node.measureDisk(storiesPath) },
        ]
        for work in works {
            let task = Task {
                withUnsafeCurrentTask { $0?.cancel() }
                try await work()
            }
            _ = try await failure(.cancelled) { try await task.value }
        }
        let token = CancelToken()
        token.cancel()
        _ = try await failure(.cancelled) { _ = try await model.replan(one, cancel: token) }
        _ = try await failure(.cancelled) { _ = try await session.recover(one, cancel: token) }
    }

    @Test func loadingEndsWithItsTaskAndToken() async throws {
        let llama = fixtures.appending(path: "llama")
        let token = CancelToken()
        token.cancel()
        _ = try await failure(.cancelled) { _ = try await Model.load(llama, cancel: token) }
        let task = Task {
            try await Model.load(llama) { _ in withUnsafeCurrentTask { $0?.cancel() } }
        }
        task.cancel()
        _ = try await failure(.cancelled) { _ = try await task.value }
    }

    @Test func anErrorOfProgressEndsLoading() async throws {
        struct Broken: Error, Equatable { let done: Int }
        await #expect(throws: Broken(done: 1)) {
            try await Model.load(fixtures.appending(path: "llama")) { throw Broken(done: $0.done) }
        }
        // Also one of the last step, when all is loaded.
        await #expect(throws: Broken(done: 5)) {
            try await Model.load(storiesPath) { if $0.done == $0.total { throw Broken(done: $0.done) } }
        }
    }

    @Test func tasksShareAGeneration() async throws {
        let model = try await stories()
        let expected = try await model.generate(prompt, options: .init(maxTokens: 60)).output()
        let generation = model.generate(prompt, options: .init(maxTokens: 60))
        let read = try await withThrowingTaskGroup(of: [Int].self) { group in
            for _ in 0..<3 {
                group.addTask {
                    var ids = [Int]()
                    for try await event in generation { ids += event.token.map { [$0.id] } ?? [] }
                    return ids
                }
            }
            return try await group.reduce(into: []) { $0 += $1 }
        }
        #expect(read.sorted() == expected.ids.sorted())
    }

    @Test func aDroppedTaskLeavesNothingRunning() async throws {
        let session = try await slow().session()
        Task { try await session.generate(longPrompt, options: .init(maxTokens: 1)).text() }.cancel()
        Task { for try await _ in session.generate(longPrompt) {} }.cancel()
        while true {
            // Busy for as long as one of them has not noticed.
            do {
                _ = try session.tokens
                break
            } catch let error as SkulkError where error.kind == .sessionBusy {
                try await Task.sleep(for: .milliseconds(5))
            }
        }
    }
}
