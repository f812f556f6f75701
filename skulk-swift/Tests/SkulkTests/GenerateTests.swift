// Do models load, and do generations say what they should?

import Foundation
import Skulk
import Testing

@Suite struct GenerateTests {
    @Test(arguments: checkpoints) func aModelSaysWhatItIs(path: String) async throws {
        let seen = Seen()
        let options = LoadOptions(stages: 2, threads: 1, context: 128)
        let model = try await Model.load(path, options: options) { seen.add([$0.done, $0.total]) }
        let layers = model.arch.nLayers
        #expect(seen.all == (1...layers).map { [$0, layers] })
        #expect(model.context == 128 && model.loadSeconds > 0)
        #expect(model.arch.hiddenSize > 0 && model.arch.contextLength >= 128)
        #expect(model.stages.flatMap { Array($0.layers) } == Array(0..<layers))
        for stage in model.stages {
            #expect(stage.engine == "cpu" && stage.weightBytes > 0 && stage.kvCacheBytes > 0)
            #expect([.mapped, .resident].contains(stage.memory))
            #expect(model.placement.contains(stage.engine))
        }
        #expect("\(model)".contains("\(layers) layers"))
    }

    @Test func tokensAheadAreThoseOneByOne() async throws {
        let model = try await stories()
        let plain = GenerateOptions(maxTokens: 60, speculate: .off, ignoreEos: true)
        let alone = try await model.generate(prompt, options: plain).output()
        let quoting = GenerateOptions(
            maxTokens: 60, draftTokens: 3, draftTexts: [prompt + alone.text], ignoreEos: true)
        let quoted = try await model.generate(prompt, options: quoting).output()
        #expect(quoted.ids == alone.ids && alone.finish.timings.draftedTokens == 0)
        let timings = quoted.finish.timings
        #expect(20 < timings.acceptedTokens && timings.acceptedTokens <= timings.draftedTokens)
        #expect(timings.draftedTokens <= 3 * timings.draftSteps && timings.draftGain > 0)
    }

    @Test func aDraftModelChangesNoText() async throws {
        let path = checkpoints[1]
        let model = try await Model.load(path, options: .init(threads: 1, draftModel: path))
        #expect(try model.memory.draftModel?.layers == model.stages[0].layers)
        let plain = GenerateOptions(maxTokens: 40, speculate: .off, ignoreEos: true)
        let alone = try await model.generate(prompt, options: plain).output()
        let drafting = GenerateOptions(maxTokens: 40, speculate: .draftModel, draftTokens: 3, ignoreEos: true)
        let ahead = try await model.generate(prompt, options: drafting).output()
        #expect(ahead.ids == alone.ids && ahead.finish.warnings.isEmpty)
        #expect(ahead.finish.timings.acceptedTokens == ahead.finish.timings.draftedTokens)
        let report = try await model.tuneSpeculation([prompt], options: .init(maxTokens: 12, ignoreEos: true))
        #expect(report.ways.count == 12 && "\(report)".contains("draft_model, 8 a step"))
        #expect(try #require(report.best).gain == report.ways.map(\.gain).max())
        await #expect(throws: SkulkError.self) { try await model.tuneSpeculation([String]()) }
    }

    @Test(arguments: [("gemma4", "gemma4_assistant"), ("llama", "llama_eagle3")])
    func assistantsAndEagleHeadsChangeNoText(name: String, beside: String) async throws {
        let drafts = fixtures.deletingLastPathComponent().appending(path: "ahead/\(beside)").path
        let path = fixtures.appending(path: name).path
        let model = try await Model.load(path, options: .init(threads: 1, draftModel: drafts))
        let plain = GenerateOptions(maxTokens: 60, speculate: .off, ignoreEos: true)
        let drafting = GenerateOptions(maxTokens: 60, speculate: .draftModel, draftTokens: 2, ignoreEos: true)
        let alone = try await model.generate(prompt, options: plain).output()
        let ahead = try await model.generate(prompt, options: drafting).output()
        #expect(ahead.ids == alone.ids && ahead.finish.warnings.isEmpty)
        #expect(ahead.finish.timings.acceptedTokens > 0)
        let trees = GenerateOptions(
            maxTokens: 60, speculate: .draftModel, draftTokens: 2, draftTree: true, ignoreEos: true)
        let tree = try await model.generate(prompt, options: trees).output()
        #expect(tree.ids == alone.ids && tree.finish.warnings.isEmpty)
        #expect(tree.finish.timings.draftedTokens > ahead.finish.timings.draftedTokens)
        #expect(tree.finish.timings.draftSteps <= ahead.finish.timings.draftSteps)
    }

    @Test func aHeadForTokensAheadChangesNoText() async throws {
        let path = fixtures.appending(path: "qwen3_5").path
        let model = try await Model.load(path, options: .init(threads: 1))
        #expect(try model.memory.draftModel?.layers == 0..<1)
        let plain = GenerateOptions(maxTokens: 60, speculate: .off, ignoreEos: true)
        let drafting = GenerateOptions(maxTokens: 60, speculate: .draftModel, draftTokens: 2, ignoreEos: true)
        let alone = try await model.generate(prompt, options: plain).output()
        let ahead = try await model.generate(prompt, options: drafting).output()
        #expect(ahead.ids == alone.ids && ahead.finish.timings.acceptedTokens > 20)
        let without = try await Model.load(path, options: .init(threads: 1, mtp: false))
        #expect(try without.memory.draftModel == nil)
        await #expect(throws: SkulkError.self) { try await Model.load(checkpoints[1], options: .init(mtp: true)) }
    }

    @Test(arguments: checkpoints) func greedyTokensAreTheReference(path: String) async throws {
        let text = try String(contentsOfFile: path + "/reference.json", encoding: .utf8)
        let prompts = try #require(try object(text)["prompts"] as? [[String: Any]])
        let ids = try #require(prompts[0]["ids"] as? [Int])
        let expected = try #require((prompts[0]["greedy"] as? [String: Any])?["ids"] as? [Int])
        let model = try await Model.load(path, options: .init(threads: 2, kv: .f32))
        let output = try await model.generate(ids, options: .init(maxTokens: expected.count, ignoreEos: true))
            .output()
        #expect(output.ids == expected)
        for prompt in prompts {
            let special = try #require(prompt["add_special_tokens"] as? Bool)
            let text = try #require(prompt["text"] as? String)
            #expect(try model.tokenizer.encode(text, addSpecial: special) == prompt["ids"] as? [Int])
        }
        #expect(try object(text)["eos_ids"] as? [Int] == model.tokenizer.eosIds)
    }

    @Test(arguments: checkpoints) func eventsJoinToTheText(path: String) async throws {
        let model = try await Model.load(path, options: .init(threads: 1))
        let options = GenerateOptions(maxTokens: 24, ignoreEos: true)
        var events = [Event]()
        for try await event in model.generate(prompt, options: options) { events.append(event) }
        #expect(events.dropLast().allSatisfy { $0.finish == nil })
        let finish = try #require(events.last?.finish)
        #expect(finish.reason == .length && finish.usage.completionTokens == 24)
        #expect(try finish.usage.promptTokens == model.tokenizer.encode(prompt).count)
        #expect(finish.usage.cachedTokens == 0 && finish.timings.decodeTokensPerSecond > 0)
        #expect(0 < finish.timings.prefill && finish.timings.prefill <= finish.timings.timeToFirstToken)
        let output = try await model.generate(prompt, options: options).output()
        #expect(events.map(\.description).joined() == output.text && "\(output)" == output.text)
        #expect(events.compactMap { $0.token?.id } == output.ids)
    }

    @Test func theTokenizerGoesBothWays() async throws {
        let tokenizer = try await stories().tokenizer
        let ids = try tokenizer.encode(prompt, addSpecial: false)
        #expect(try tokenizer.decode(ids) == prompt && !ids.contains(try #require(tokenizer.bos)))
        #expect(ids.allSatisfy { $0 < tokenizer.vocabSize })
        let error = try await failure(.invalidArgument) { _ = try tokenizer.decode([-1]) }
        #expect(error.context == ["field": "ids"] && error.message.contains("-1"))
    }

    @Test func textIsWhatWasNotReadYet() async throws {
        let model = try await stories()
        let whole = try await model.generate(prompt, options: .init(maxTokens: 12)).text()
        let generation = model.generate(prompt, options: .init(maxTokens: 12))
        #expect(try await generation.promptIds == model.tokenizer.encode(prompt))
        var events = generation.makeAsyncIterator()
        let first = try #require(try await events.next())
        #expect(try await first.text + generation.text() == whole)
        // It is at its end now, for whoever iterates.
        #expect(try await events.next() == nil)
        for try await event in generation { Issue.record("\(event)") }
        let error = try await failure(.invalidArgument) { _ = try await generation.text() }
        #expect(error.message.contains("at its end"))
    }

    @Test func generatingReturnsAtOnceAndTheSessionIsBusy() async throws {
        let session = try await stories().session()
        let (clock, much) = (ContinuousClock(), String(repeating: "Once upon a time there was a dog. ", count: 10_000))
        let start = clock.now
        let generation = session.generate(much)
        let returned = start.duration(to: clock.now)
        _ = try await failure(.sessionBusy) { _ = try session.tokens }
        _ = try await failure(.sessionBusy) { _ = try await session.generate(prompt).text() }
        _ = try await failure(.contextOverflow) { _ = try await generation.text() }
        #expect(returned * 2 < start.duration(to: clock.now))
        // What cannot begin is no longer in the way, and says so again.
        #expect(try session.tokens.isEmpty)
        _ = try await failure(.contextOverflow) { _ = try await generation.promptIds }
        #expect(try await !session.generate(prompt, options: .init(maxTokens: 2)).text().isEmpty)
    }

    @Test func onlySessionsAppend() async throws {
        let model = try await stories()
        let append = GenerateOptions(maxTokens: 4, append: true)
        let calls: [() async throws -> Void] = [
            { _ = try await model.generate(prompt, options: append).text() },
            { _ = try await model.tuneSpeculation([prompt], options: append) },
            { _ = try await model.generateBatch([prompt], options: append)[0].get() },
        ]
        for call in calls { #expect(try await failure(.invalidArgument, call).context["field"] == "append") }
    }

    @Test(arguments: [LoadOptions(stages: 5, threads: 1), .init(threads: 2), .init(threads: 1, prefillChunk: 3)])
    func howItIsComputedDoesNotChangeTheText(options: LoadOptions) async throws {
        let model = try await Model.load(storiesPath, options: options)
        for sampling in [GenerateOptions(maxTokens: 40), .init(maxTokens: 40, temperature: 1, seed: 3)] {
            let expected = try await stories().generate(prompt, options: sampling).output()
            #expect(try await model.generate(prompt, options: sampling).output().ids == expected.ids)
        }
    }

    @Test func theSeedFixesTheText() async throws {
        func text(_ seed: Int) async throws -> String {
            let options = GenerateOptions(maxTokens: 30, temperature: 1, seed: seed)
            return try await stories().generate(prompt, options: options).text()
        }
        #expect(try await text(7) == text(7))
        #expect(try await text(7) != text(8))
    }

    @Test func logprobsComeOnRequest() async throws {
        for try await event in try await stories().generate(prompt, options: .init(maxTokens: 6, logprobs: 3)) {
            let token = try #require(event.token)
            #expect(token.topLogprobs.count == 3 && token.topLogprobs[0].id == token.id)
            #expect(token.topLogprobs[0].logprob == token.logprob && token.logprob! <= 0)
            #expect(token.topLogprobs.map { exp($0.logprob) }.reduce(0, +) <= 1.0001)
        }
        for try await event in try await stories().generate(prompt, options: .init(maxTokens: 1)) {
            #expect(event.token?.logprob == nil && event.token?.topLogprobs == [])
        }
    }

    @Test func optionsReachTheSampler() async throws {
        let model = try await stories()
        func ids(_ options: GenerateOptions) async throws -> [Int] {
            var options = options
            options.maxTokens = 40
            return try await model.generate(prompt, options: options).output().ids
        }
        let greedy = try await ids(.init())
        #expect(try await ids(.init(logitBias: [greedy[0]: -.infinity]))[0] != greedy[0])
        #expect(try await ids(.init(temperature: 2, topK: 1)) == greedy)
        #expect(try await ids(.init(temperature: 2, topP: 1e-6)) == greedy)
        #expect(try await ids(.init(temperature: 2, minP: 1)) == greedy)
        #expect(try await ids(.init(repetitionPenalty: 5)) != greedy)
        #expect(try await ids(.init(presencePenalty: 50)) != greedy)
        #expect(try await ids(.init(frequencyPenalty: 50)) != greedy)
        #expect(try await ids(.init(repetitionPenalty: 5, penaltyWindow: 0)) == greedy)
    }

    @Test func stopTextsAndTheEndOfSequenceEndIt() async throws {
        let model = try await stories()
        let whole = try await model.generate(prompt, options: .init(maxTokens: 40)).text()
        let stop = String(whole.dropFirst(10).prefix(4))
        let stopped = try await model.generate(prompt, options: .init(maxTokens: 40, stop: ["never in it", stop]))
            .output()
        #expect(stopped.finish.reason == .stop && stopped.text == whole.components(separatedBy: stop)[0])
        let end = model.tokenizer.eosIds[0]
        let ended = try await model.generate(prompt, options: .init(maxTokens: 4, logitBias: [end: 1e9])).output()
        #expect(ended.finish.reason == .eos && ended.ids == [end] && ended.text == "")
    }

    @Test func layersRunWhereTheyArePlaced() async throws {
        let expected = try await stories().generate(prompt, options: .init(maxTokens: 24)).text()
        let placement = try Placement.byCounts([("cpu", 3), ("cpu", 2)])
        let model = try await Model.load(storiesPath, options: .init(threads: 1), placement: placement)
        #expect(model.stages.map { $0.layers.count } == [3, 2])
        #expect(model.placement == "layers 0..3 on cpu → layers 3..5 on cpu")
        #expect(try await model.generate(prompt, options: .init(maxTokens: 24)).text() == expected)
    }

    @Test func thereAreDevices() async throws {
        let devices = try await devices()
        #expect(devices[0].engine == "cpu" && !devices[0].software && devices[0].sharesMemory)
    }

    @Test func logitsAreRowsOfTheVocabulary() async throws {
        let model = try await stories()
        let ids = try model.tokenizer.encode(prompt)
        let logits = try await model.logits(prompt)
        #expect(logits.count == ids.count * model.arch.vocabSize)
        #expect(try await model.logits(ids) == logits)
        let last = logits.suffix(model.arch.vocabSize)
        let best = try #require(last.indices.max { last[$0] < last[$1] }) - last.startIndex
        #expect(try await model.generate(ids, options: .init(maxTokens: 1)).output().ids == [best])
    }

    @Test func modelsAreCompared() async throws {
        let model = try await stories()
        let fewer = try await Model.load(storiesPath, options: .init(ffnTopFeatures: 86, threads: 1))
        let found = try await fewer.divergence(from: model, on: prompt)
        #expect(0 < found.meanKl && found.meanKl <= found.maxKl && (0...1).contains(found.top1Agreement))
        #expect(try await model.divergence(from: model, on: prompt).maxKl == 0)
        #expect(try model.ffnMemory == nil)
    }

    @Test func manyGenerateAtTheSameTime() async throws {
        let model = try await stories()
        let alone = try await model.generate(prompt, options: .init(maxTokens: 60)).text()
        try await withThrowingTaskGroup(of: String.self) { group in
            for _ in 0..<8 {
                group.addTask { try await model.generate(prompt, options: .init(maxTokens: 60)).text() }
            }
            for try await text in group { #expect(text == alone) }
        }
    }

    @Test(.enabled(if: gemmaPath != nil)) func theRealModelSpeaks() async throws {
        let model = try await Model.load(gemmaPath!, options: .init(stages: 3, threads: 2, context: 512))
        #expect(model.arch.family == "gemma3")
        let text = try await model.generate("The capital of France is", options: .init(maxTokens: 8)).text()
        #expect(text.contains("France") || text.contains("Paris"))
    }
}

/// What callbacks saw, in their order.
final class Seen: @unchecked Sendable {
    private let lock = NSLock()
    private var seen = [[Int]]()

    func add(_ one: [Int]) { lock.withLock { seen.append(one) } }

    var all: [[Int]] { lock.withLock { seen } }
}
