// Is every failure a typed error that says what to do?

import Foundation
import Skulk
import Testing

@Suite struct ErrorTests {
    @Test func everyKindHasACode() {
        #expect(ErrorKind.allCases.count >= 19)
        #expect(Set(ErrorKind.allCases.map(\.code)).count == ErrorKind.allCases.count)
        #expect(ErrorKind.fileNotFound.code == "file.not_found")
    }

    @Test func theLibraryHasAVersion() { #expect(Skulk.version.contains(/^[0-9]+\.[0-9]+\.[0-9]+/)) }

    @Test func aMissingFileIsNamed() async throws {
        let error = try await failure(.fileNotFound) { _ = try await Model.load("no/such/model.gguf") }
        #expect(error.code == "file.not_found" && error.retry == .never && error.detail == nil)
        #expect(error.context["file"] == "no/such/model.gguf")
        for part in [error.code, error.message, try #require(error.hint), "model.gguf"] {
            #expect("\(error)".contains(part) && error.localizedDescription.contains(part))
        }
    }

    @Test func anOverflowCarriesItsNumbers() async throws {
        let model = try await stories()
        let long = try await failure(.contextOverflow) {
            _ = try await model.generate(Array(repeating: 1, count: 600)).text()
        }
        #expect(long.detail == .context(needed: 601, available: 512) && long.hint?.contains("shorten") == true)
        let much = try await failure(.contextOverflow) {
            _ = try await model.generate([1, 2], options: .init(maxTokens: 511)).text()
        }
        #expect(much.detail == .context(needed: 513, available: 512))
    }

    @Test func numbersThatSwiftDoesNotHaveAreItsLargest() async throws {
        let model = try await stories()
        let much = try await failure(.contextOverflow) {
            _ = try await model.generate([1, 2], options: .init(maxTokens: .max)).text()
        }
        #expect(much.detail == .context(needed: .max, available: 512))
        _ = try await failure(.contextOverflow) {
            _ = try Planning.admitMaxTokens(prompt: .max, requested: .max, limit: 512)
        }
        #expect(try Planning.scale(.max, by: 10) == .max)
        let zero = try await failure(.invalidArgument) { _ = try Planning.divide(5, by: 0) }
        #expect(zero.context == ["field": "divisor"])
        let memory = #"{"nodes":[{"id":"18446744073709551615","memory":{"ramTotal":18446744073709551615,"ramAvailable":1}}]}"#
        let node = try Cluster.fromJson(memory).nodes[0]
        #expect(node.memory?.ramTotal == .max && node.id == "18446744073709551615")
    }

    @Test func numbersThatJSONCannotSayAreRefused() async throws {
        for number in [Double.nan, .infinity] {
            let error = try await failure(.invalidArgument) { _ = try Planning.scale(1, by: number) }
            #expect(error.context == ["field": "factor"] && error.message.contains("\(number)"))
        }
        let error = try await failure(.invalidArgument) { _ = try Planning.allocateLayers(3, fractions: [1, .nan]) }
        #expect(error.context == ["field": "fractions", "at": "[1]"])
        let model = try await stories()
        for options in [GenerateOptions(jsonSchema: .number(.nan)), .init(jsonSchema: .null)] {
            let error = try await failure(.invalidArgument) { _ = try await model.generate(prompt, options: options).text() }
            #expect(error.context["field"] == "jsonSchema")
        }
        let null = try await failure(.invalidArgument) {
            _ = try await model.generate(prompt, options: .init(responseFormat: .null)).text()
        }
        #expect(null.context["field"] == "responseFormat")
    }

    @Test func otherURLsAreNoPaths() async throws {
        for url in ["https://example.com/model.gguf", "file://elsewhere/model.gguf"] {
            let url = try #require(URL(string: url))
            let error = try await failure(.invalidArgument) { _ = try await Model.load(url) }
            #expect(error.context["field"] == "path" && error.message.contains(url.absoluteString))
            _ = try await failure(.invalidArgument) { _ = try ModelCard.open(url) }
        }
        #expect(try URL(filePath: "/a b").filePath == "/a b")
    }

    @Test func aWrongShapeCarriesBoth() async throws {
        try await temporary { folder in
            let copy = folder.appending(path: "model")
            try FileManager.default.copyItem(at: URL(filePath: storiesPath).resolvingSymlinksInPath(), to: copy)
            let file = copy.appending(path: "config.json")
            var config = try object(String(contentsOf: file, encoding: .utf8))
            config["intermediate_size"] = 160
            try JSONSerialization.data(withJSONObject: config).write(to: file)
            let error = try await failure(.tensorShape) { _ = try await Model.load(copy) }
            #expect(error.detail == .shape(expected: [160, 64], found: [172, 64]))
            #expect(error.context["tensor"]?.contains("mlp") == true)
        }
    }

    static let impossible: [(GenerateOptions, String)] = [
        (.init(temperature: .nan), "temperature"), (.init(temperature: -1), "temperature"),
        (.init(topP: 0), "topP"), (.init(minP: 2), "minP"), (.init(topK: 0), "topK"), (.init(topK: -1), "topK"),
        (.init(maxTokens: 0), "maxTokens"), (.init(maxTokens: -5), "maxTokens"),
        (.init(repetitionPenalty: 0), "repetitionPenalty"), (.init(presencePenalty: .infinity), "presencePenalty"),
        (.init(frequencyPenalty: .nan), "frequencyPenalty"), (.init(penaltyWindow: -1), "penaltyWindow"),
        (.init(seed: -1), "seed"), (.init(draftTokens: 16), "draftTokens"), (.init(logprobs: 65), "logprobs"),
        (.init(logitBias: [1_000_000: 1]), "logitBias"), (.init(logitBias: [-1: 1]), "logitBias"),
        (.init(logitBias: [1: .nan]), "logitBias"), (.init(stop: [""]), "stop"),
    ]

    @Test(arguments: impossible)
    func impossibleOptionsNameTheirField(options: GenerateOptions, field: String) async throws {
        let model = try await stories()
        let error = try await failure(.invalidArgument) {
            _ = try await model.generate(prompt, options: options).text()
        }
        #expect(error.context["field"] == field && error.message.contains("found"))
    }

    @Test(arguments: [Prompt.text(""), .tokens([]), .tokens([1, -1]), .tokens([1_000_000]), .tokens([1 << 40])])
    func impossiblePromptsNameTheirField(impossible: Prompt) async throws {
        let model = try await stories()
        let error = try await failure(.invalidArgument) { _ = try await model.generate(impossible).text() }
        #expect(error.context["field"] == "prompt")
        let logits = try await failure(.invalidArgument) { _ = try await model.logits(impossible) }
        #expect(logits.hint != nil || logits.context["field"] == "prompt")
    }

    static let loads: [(LoadOptions, ErrorKind)] = [
        (.init(threads: 0), .invalidArgument), (.init(threads: -2), .invalidArgument),
        (.init(context: 0), .invalidArgument), (.init(context: 1_000_000_000), .invalidArgument),
        (.init(prefillChunk: 0), .invalidArgument), (.init(stages: 0), .placementInvalid),
        (.init(stages: 99), .placementInvalid), (.init(stages: -1), .invalidArgument),
        (.init(engine: "abacus"), .placementInvalid), (.init(ffnBudget: 1000), .invalidArgument),
    ]

    @Test(arguments: loads)
    func impossibleLoadsAreRefused(options: LoadOptions, kind: ErrorKind) async throws {
        let error = try await failure(kind) { _ = try await Model.load(storiesPath, options: options) }
        #expect(error.context["field"] != nil)
    }

    @Test func placementsOfOtherModelsAreRefused() async throws {
        for (counts, message) in [([("cpu", 3)], "5 layers, found 3"), ([("cpu", 3), ("cpu", 3)], "found 6")] {
            let error = try await failure(.placementInvalid) {
                _ = try await Model.load(storiesPath, placement: .byCounts(counts))
            }
            #expect(error.message.contains(message) && error.hint != nil)
        }
        _ = try await failure(.invalidArgument) { _ = try Placement.byCounts([("cpu", -1)]) }
        _ = try await failure(.placementInvalid) { _ = try Placement.byCounts([]) }
        let both = try await failure(.invalidArgument) {
            _ = try await Model.load(storiesPath, options: .init(stages: 2), placement: .byCounts([("cpu", 5)]))
        }
        #expect(both.context["field"] != nil)
    }

    @Test func brokenFilesAreRefused() async throws {
        try await temporary { folder in
            let path = folder.appending(path: "model.gguf")
            for content in ["", "GGUF", "not a model"] {
                try Data(content.utf8).write(to: path)
                do {
                    _ = try await Model.load(path)
                    Issue.record("loaded \(content)")
                } catch let error as SkulkError {
                    #expect([.checkpointInvalid, .checkpointTruncated].contains(error.kind))
                    #expect(error.context["file"]?.contains("model.gguf") == true)
                }
            }
        }
    }

    @Test func namesThatThisVersionDoesNotKnowAreErrors() async throws {
        let json = #"{"inBytes": 1}"#
        #expect(try JSONDecoder().decode(StorageSize.self, from: Data(json.utf8)).inBytes == 1)
        #expect(throws: DecodingError.self) {
            try JSONDecoder().decode(FinishReason.self, from: Data(#""later""#.utf8))
        }
        let backwards = #"{"syntax":{"start":2,"end":1},"knowledge":{"start":0,"end":1},"output":{"start":0,"end":1}}"#
        #expect(throws: DecodingError.self) {
            try JSONDecoder().decode(VindexBands.self, from: Data(backwards.utf8))
        }
    }
}
