// Are vindex folders written, read, browsed and checked?

import Foundation
import Skulk
import Testing

@Suite struct VindexTests {
    @Test func aModelIsExtractedBrowsedAndSliced() async throws {
        try await temporary { folder in
            let target = folder.appending(path: "stories.vindex")
            let seen = Seen()
            let report = try await extract(storiesPath, to: target, options: .init(storage: .f32)) {
                seen.add([$0.bytesDone, $0.bytesTotal])
            }
            #expect(report.bytes > 0 && report.files.map(\.part).contains(.embed) && seen.all.last?.count == 2)
            let reader = try VindexReader(target)
            #expect(reader.numLayers == 5 && reader.dtype == "f32" && reader.lacks == [] && reader.layers == Array(0..<5))
            #expect(reader.bands.output.upperBound == 5 && "\(reader)".contains("5 layers"))
            #expect(try await reader.parts().map(\.part).contains(.gate))

            // The numbers are the checkpoint's.
            let name = "layers.0.mlp.up_proj.weight"
            let info = try #require(reader.tensors.first { $0.name == name })
            let up = try await reader.array(name)
            #expect(try await reader.bytes(name).count == info.length)
            #expect(reader.has(name) && !reader.has("none"))
            #expect(try await reader.tensor(name) == info)
            let index = try reader.index()
            let sorted = try JSONSerialization.data(withJSONObject: object(index), options: [.sortedKeys, .withoutEscapingSlashes])
            #expect(Data(index.utf8) == sorted)
            #expect(up.shape == info.shape && up.values.count == up.shape.reduce(1, *))
            let gates = try await reader.gates(0)
            #expect(gates.shape == [172, 64])

            let tokenizer = try reader.tokenizer
            let girl = try tokenizer.encode("girl", addSpecial: false)
            let rows = try await reader.embed(girl)
            #expect(rows.count == girl.count * reader.hiddenSize)
            let query = Array(rows.prefix(reader.hiddenSize))
            let scores = try await reader.scores(4, query: query)
            let hits = try await reader.nearest(to: query, options: .init(k: 1, layers: [4]))
            let best = try #require(hits.first)
            #expect(abs(Double(scores[best.feature]) - best.score) < 1e-4)
            let largest = try #require(scores.map(abs).max())
            #expect(abs(abs(best.score) - Double(largest)) < 1e-4)
            #expect(try await reader.feature(4, best.feature)?.feature == best.feature)
            #expect(try await reader.features(4).count == 172)
            let walked = try await reader.walk(prompt, options: .init(top: 2, layers: [3, 4]))
            #expect(walked.map(\.layer) == [3, 3, 4, 4])
            let described = try await reader.describe("girl", options: .init(band: .all, minScore: 0.5))
            #expect(described.entity == "girl" && !described.edges.isEmpty)
            #expect(try await reader.select(.init(layer: 4, limit: 3)).features.count == 3)
            #expect(try await reader.relations(.init(limit: 2, minScore: 0)).relations.count <= 2)

            let sliced = try await reader.slice(to: folder.appending(path: "browse"), options: .init(preset: .browse))
            #expect(sliced.lacks.contains(.ffn) && !"\(sliced)".isEmpty)
            let missing = try await failure(.tensorMissing) {
                _ = try await Model.load(folder.appending(path: "browse"))
            }
            #expect(missing.context["part"] != nil)
            _ = try await reader.slice(to: folder.appending(path: "first"), options: .init(preset: .server, layers: [0..<2]))

            let sound = try await reader.verify(options: .init(values: true))
            #expect(sound.isSound, "\(sound)")
            let same = try await Model.load(target, options: .init(threads: 1))
            let expected = try await stories().generate(prompt, options: .init(maxTokens: 12)).text()
            #expect(try await same.generate(prompt, options: .init(maxTokens: 12)).text() == expected)
        }
    }

    @Test func mistakesAreTypedErrors() async throws {
        try await temporary { folder in
            let target = folder.appending(path: "a")
            _ = try await extract(storiesPath, to: target, options: .init(level: .browse))
            let reader = try VindexReader(target)
            _ = try await failure(.invalidArgument) { _ = try await extract(storiesPath, to: target) }
            _ = try await failure(.invalidArgument) { _ = try await reader.nearest(to: [1, 2]) }
            _ = try await failure(.invalidArgument) { _ = try await reader.scores(99, query: []) }
            _ = try await failure(.invalidArgument) { _ = try await reader.gates(-1) }
            _ = try await failure(.invalidArgument) { _ = try await reader.embed([-1]) }
            _ = try await failure(.tensorMissing) { _ = try await reader.array("no.such.weight") }
            _ = try await failure(.tensorMissing) { _ = try await reader.tensor("no.such.weight") }
            let odd = try await failure(.invalidArgument) { _ = try await reader.nearest(to: [1, .nan]) }
            #expect(odd.context == ["field": "query", "at": "[1]"])
            _ = try await failure(.invalidArgument) { _ = try await reader.walk("") }
            let negative = try await failure(.invalidArgument) {
                _ = try await reader.walk("x", options: .init(top: -1))
            }
            #expect(negative.context["field"] == "top")
            _ = try await failure(.fileNotFound) { _ = try VindexReader(folder) }
            _ = try await failure(.fileNotFound) { _ = try await verifyVindex(folder) }
            let token = CancelToken()
            token.cancel()
            let other = folder.appending(path: "b")
            _ = try await failure(.cancelled) { _ = try await extract(storiesPath, to: other, cancel: token) }
            _ = try await failure(.cancelled) { _ = try await reader.verify(cancel: token) }
            struct Broken: Error {}
            await #expect(throws: Broken.self) { try await reader.verify { _ in throw Broken() } }
            let tokenizer = try reader.tokenizer
            reader.close()
            reader.close()
            let closed = try await failure(.invalidArgument) { _ = try await reader.verify() }
            #expect(closed.message == "expected an open vindex folder, found a closed one")
            _ = try await failure(.invalidArgument) { _ = try await reader.parts() }
            _ = try await failure(.invalidArgument) { _ = try tokenizer.encode("x") }
            _ = try await failure(.invalidArgument) { _ = try await reader.describe("x") }
        }
    }
}
