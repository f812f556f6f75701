// Do the functions behind cards and plans answer as the software does whose plans the package speaks? Cases as data.

import Foundation
import Skulk
import Testing

/// Sections that a test handles, and one that is not spoken: this library has its own way to write sizes.
private let sections: Set = [
    "allocateLayersProportionally", "engineOf", "resolveNodeBackend", "hasGpuOffloadBackend", "isVpnAddress",
    "estimateShardFootprint", "memoryConstants", "memoryArithmetic", "admitMaxTokens", "footprintExceedsUsable",
    "prefillChunkSizes", "topologyCycles", "configJson", "gguf.rank", "gguf.select", "gguf.headers", "memoryDisplay",
]

@Suite struct SuitePlannerTests {
    @Test func everySectionHasATest() {
        for (_, suite) in suites("planner_units") {
            for (section, vectors) in suite["units"].fields where !sections.contains(section) {
                #expect(!vectors.fields.isEmpty, "nothing runs \(section)")
                for part in vectors.fields.keys { #expect(sections.contains("\(section).\(part)")) }
            }
        }
    }

    @Test(arguments: unit("allocateLayersProportionally")) func layersAreSharedOut(one: Case) async throws {
        let (total, fractions) = (one["totalLayers"].int!, one["fractions"].items.map { $0.double! })
        if one["error"].isNull {
            #expect(try Planning.allocateLayers(total, fractions: fractions) == one["layers"].items.map { $0.int! })
        } else {
            _ = try await failure(fractions.isEmpty ? .invalidArgument : .planNoFit) {
                _ = try Planning.allocateLayers(total, fractions: fractions)
            }
        }
    }

    @Test(arguments: unit("engineOf")) func tagsNameEngines(one: Case) throws {
        let engine = try Planning.engineOf(one["tag"].text!)
        #expect(try engine == one["engine"].text && engine.map(Planning.isMultiNode) == one["multiNode"].bool)
    }

    @Test(arguments: unit("resolveNodeBackend")) func backendsAreResolved(one: Case) throws {
        let backend = try Planning.resolveBackend(
            compatible: one["compatible"].texts, preference: one["preference"].texts, nodeTags: one["node"].texts)
        #expect(try backend == one["backend"].text && backend.flatMap(Planning.engineOf) == one["engine"].text)
    }

    @Test(arguments: unit("hasGpuOffloadBackend")) func someBackendsUseGraphicsMemory(one: Case) throws {
        #expect(try Planning.hasGpuOffload(one["backends"].texts) == one["result"].bool)
    }

    @Test(arguments: unit("isVpnAddress")) func addressesOfPrivateNetworks(one: Case) throws {
        #expect(try Planning.isVpnAddress(one["ip"].text!) == one["vpn"].bool)
    }

    @Test(arguments: unit("estimateShardFootprint")) func footprints(one: Case) throws {
        let facts = one["card"]
        let card = small(
            facts["storageBytes"].int!, facts["nLayers"].int!, facts["kvHeads"].int, gguf: facts["gguf"].bool!)
        let tokens = one["contextBudget"].int ?? 0
        let bytes = try Planning.shardFootprint(card, fraction: one["fraction"].double!, tokens: tokens)
        #expect(bytes == one["footprintBytes"].int)
        #expect(try Planning.kvBytes(card, tokens: tokens) == one["kvBytesFull"].int)
        #expect(try Planning.kvBytesPerToken(card) == one["perTokenKvBytes"].int)
    }

    @Test func constants() throws {
        let ours = try Planning.constants()
        let values: [String: Double] = [
            "MEMORY_OVERHEAD_FACTOR": ours.overhead, "LLAMA_CPP_MEMORY_OVERHEAD_FACTOR": ours.overheadGguf,
            "MEMORY_OVERHEAD_FLOOR": Double(ours.overheadFloor), "GPU_WORKING_SET_FRACTION": ours.ramShare,
            "GPU_VRAM_WORKING_SET_FRACTION": ours.vramShare, "UMA_GPU_OS_HEADROOM": Double(ours.unifiedHeadroom),
            "KV_CONTEXT_BUDGET_TOKENS": Double(ours.contextTokens), "KV_HEAD_DIM_FALLBACK": Double(ours.headDim),
            "KV_DTYPE_BYTES": Double(ours.kvValueBytes),
        ]
        for (_, suite) in suites("planner_units") {
            for (name, value) in suite["units"]["memoryConstants"].fields { #expect(values[name] == value.double) }
        }
    }

    @Test(arguments: unit("memoryArithmetic")) func bytesAreRounded(one: Case) throws {
        // Bytes are never negative here; halves are rounded to even numbers on both sides of 0.
        let (bytes, times) = (one["bytes"].int!, one["times"].double!)
        #expect(try bytes.signum() * Planning.scale(abs(bytes), by: times) == one["product"].int)
        #expect(try bytes.signum() * Planning.divide(abs(bytes), by: times) == one["quotient"].int)
    }

    @Test(arguments: unit("admitMaxTokens")) func requestsAreAdmitted(one: Case) async throws {
        let (prompt, requested, limit) = (one["promptTokens"].int!, one["requested"].int, one["limit"].int)
        func admitted() throws -> Int {
            try Planning.admitMaxTokens(
                prompt: prompt, requested: requested, byDefault: one["default"].int!, limit: limit)
        }
        if one["error"].isNull {
            #expect(try admitted() == one["maxTokens"].int)
            return
        }
        let error = try await failure(.contextOverflow) { _ = try admitted() }
        #expect(error.detail == .context(needed: prompt + (requested ?? 1), available: limit!))
        for number in [prompt, requested, limit].compactMap({ $0 }) { #expect(error.message.contains("\(number)")) }
    }

    @Test(arguments: unit("footprintExceedsUsable")) func footprintsMayExceedALittle(one: Case) throws {
        let exceeds = try Planning.footprintExceeds(
            one["footprint"].int!, usable: one["usable"].int!, tolerance: one["tolerance"].double!)
        #expect(exceeds == one["exceeds"].bool)
    }

    @Test(arguments: unit("prefillChunkSizes")) func promptsAreCutAroundImages(one: Case) throws {
        let chunks = try Planning.prefillChunks(
            tokens: one["totalTokens"].int!, max: one["maxChunk"].int!,
            media: one["mediaRegions"].items.map { $0[0].int!..<$0[1].int! }, offset: one["offset"].int!)
        #expect(chunks == one["chunks"].items.map { $0.int! })
    }

    @Test(arguments: unit("topologyCycles")) func ringsAreAmongTheReferencesCycles(one: Case) throws {
        let links = one["edges"].items.map {
            NodeLink(source: $0[0].text!, sink: $0[1].text!, kind: .socket(Socket(address: "10.0.0.1")))
        }
        let cluster = Cluster(nodes: one["nodes"].texts.map { Node(id: $0) }, links: links)
        #expect(try Planning.leaves(cluster) == one["leaves"].texts)
        let options = RingsOptions(transport: .direct)
        let ours = try Planning.rings(small(1 << 30, 8, nil, gguf: false), on: cluster, options: options)
        let (found, cycles) = (Set(ours.map(turned)), Set(one["cycles"].items.map { turned($0.texts) }))
        #expect(found.isSubset(of: cycles))
        // One ring stands for all cycles of the same nodes.
        #expect(Set(found.map(Set.init)) == Set(cycles.map(Set.init)))
    }

    @Test(arguments: unit("configJson")) func configurationsAreReadAsTheReferenceDoes(one: Case) async throws {
        func facts() throws -> ConfigFacts { try Planning.configFacts(one["config"].json, modelId: "acme/m") }
        if one["error"].isNull {
            let facts = try facts()
            #expect(facts.nLayers == one["layerCount"].int && facts.hiddenSize == one["hiddenSize"].int)
            #expect(facts.numKeyValueHeads == one["kvHeads"].int && facts.maxPositionEmbeddings == one["maxPos"].int)
            #expect(facts.supportsTensor == one["supportsTensor"].bool)
            #expect((facts.vision == nil) == one["vision"].isNull)
            if let vision = facts.vision {
                let found = try JSON(of: vision)
                for (name, value) in one["vision"].fields { #expect(found[name] == value) }
            }
            return
        }
        let error = try await failure(.configInvalid) { _ = try facts() }
        // One error of ours for any of the reference's, at one of the fields that it names, should it name any.
        let places = one["detail"].items.map { fault in
            fault["loc"].items.map { $0.text ?? "\($0.int!)" }.joined(separator: ".")
        }.filter { !$0.isEmpty }
        #expect(places.isEmpty || places.contains(error.context["field"] ?? ""))
    }

    @Test(arguments: unit("gguf.rank")) func quantisationsAreRankedAsTheReferenceDoes(one: Case) throws {
        let file = try GgufFile(one["name"].text!)
        #expect(file.quantRank == one["rank"].int && file.quantLabel == one["label"].text)
        #expect(file.shardBase == one["shardBase"].text && file.downloadPatterns == one["allowPatterns"].texts)
    }

    @Test(arguments: unit("gguf.select")) func filesAreSelectedAsTheReferenceDoes(one: Case) throws {
        let files = try one["files"].items.map { try GgufFile($0["name"].text!, bytes: $0["size"].int!) }
        let choice = try Planning.selectGguf(files)
        #expect(choice?.file.name == one["selected"].text && choice?.bytes == one["groupSize"].int)
    }

    @Test(arguments: unit("gguf.headers")) func headersAreReadAsTheReferenceDoes(one: Case) async throws {
        let hex = Array(one["headerHex"].text!)
        let start = Data(stride(from: 0, to: hex.count, by: 2).map { UInt8(String(hex[$0...($0 + 1)]), radix: 16)! })
        guard let error = one["error"].text else {
            let (facts, expected) = (try Planning.ggufFacts(start), one["fields"])
            #expect(facts.nLayers == expected["nLayers"].int && facts.hiddenSize == expected["hiddenSize"].int)
            #expect(facts.numKeyValueHeads == expected["numKeyValueHeads"].int)
            #expect(facts.contextLength == expected["contextLength"].int)
            return
        }
        let kinds: [(String, ErrorKind)] = [
            ("not a GGUF file", .checkpointInvalid), ("unsupported GGUF version", .checkpointInvalid),
            ("unknown GGUF", .checkpointInvalid), ("truncated", .checkpointTruncated), ("missing", .configInvalid),
        ]
        let kind = try #require(kinds.first { error.contains($0.0) }).1
        _ = try await failure(kind) { _ = try Planning.ggufFacts(start) }
    }
}

/// A card with these facts and no others.
private func small(_ bytes: Int, _ nLayers: Int, _ kvHeads: Int?, gguf: Bool) -> ModelCard {
    ModelCard(
        modelId: "test/model", storageSize: StorageSize(inBytes: bytes), nLayers: nLayers, hiddenSize: 1024,
        supportsTensor: true, numKeyValueHeads: kvHeads, tasks: [.textGeneration],
        ggufFile: gguf ? "model.gguf" : nil)
}

/// The same ring, from the first of its nodes by name.
private func turned(_ ring: [String]) -> [String] {
    let first = ring.firstIndex(of: ring.min()!)!
    return Array(ring[first...] + ring[..<first])
}
