// Do cards, libraries and plans say what they should, and only that?

import Foundation
import Skulk
import Testing

@Suite struct PlanTests {
    @Test func placementsAreMadeByHand() async throws {
        let rules = PlacementOptions(
            engine: "cpu", layers: ["0..3=cpu"], experts: ["0..1=cpu@shed"], overrideTensors: [#"layers\.[34]\.mlp\.=CPU"#])
        let placement = try Placement.build(checkpoint: storiesPath, options: rules)
        #expect(placement.stages.count == 2 && placement.experts.first?.node == "shed")
        let inventory = try Inventory.fromCheckpoint(storiesPath)
        #expect(try Placement.build(inventory, options: PlacementOptions(engine: "cpu")).nLayers == 5)
        _ = try await failure(.placementInvalid) {
            _ = try Placement.build(checkpoint: storiesPath, options: PlacementOptions(layers: ["0..3=cpu"]))
        }
    }

    @Test func whatIsFixedByHandStays() async throws {
        let nodes = ["desk", "shed"].map { id in
            Node(id: id, backends: ["skulk-cpu"], memory: NodeMemory(ramTotal: 16 << 30, ramAvailable: 8 << 30))
        }
        let cluster = Cluster(nodes: nodes, mesh: LinkSpeed())
        let rules = PlacementOptions(layers: ["0..2=cpu@shed"], experts: ["3..5=cpu@desk"])
        let placement = try await plan(
            checkpoint: storiesPath, on: cluster, options: PlanOptions(contextTokens: 128, fixed: rules))
        #expect(placement.stages.first?.node == "shed")
        _ = try await failure(.invalidArgument) {
            let nowhere = PlacementOptions(layers: ["0..2=cpu@nowhere"])
            _ = try await plan(checkpoint: storiesPath, on: cluster, options: PlanOptions(fixed: nowhere))
        }
    }

    @Test func aCheckpointHasACardThatIsSaved() async throws {
        let card = try ModelCard.fromCheckpoint(storiesPath)
        #expect(card.nLayers == 5 && card.storageSize.inBytes > 0)
        #expect(try card.profile().outputParser == .generic)
        try await temporary { folder in
            let file = folder.appending(path: try card.fileName)
            try card.save(to: file)
            #expect(try ModelCard.open(file).toToml() == card.toToml())
            let library = CardLibrary([folder.path], builtin: false)
            #expect(try library.ids == [card.modelId] && library.folders == [folder.path])
            #expect(try library.card(card.modelId)?.isCustom == true && library.card("none/such") == nil)
            #expect(try library.file(card.modelId)?.hasSuffix(".toml") == true)
            try Data("n_layers = 'many'".utf8).write(to: folder.appending(path: "broken.toml"))
            try library.reload()
            #expect(try library.problems.map(\.kind) == [.cardInvalid])
            #expect(try library.problems[0].context["file"]?.contains("broken.toml") == true)
            #expect(try library.remove(card.modelId) && !library.remove(card.modelId))
            #expect(try library.save(card, in: folder).hasSuffix(".toml") && library.ids.count == 1)
            _ = try await failure(.invalidArgument) { _ = try library.save(card, in: "/elsewhere") }
        }
        #expect(try CardLibrary().ids.count > 100)
        #expect(try JSON(ModelCard.schema())["type"].text == "object")
    }

    @Test func allThatIsWrongWithACardIsSaid() async throws {
        let error = try await failure(.cardInvalid) { _ = try ModelCard.fromJson(#"{"nLayers": "x", "sice": 1}"#) }
        guard case .faults(let faults) = error.detail else {
            Issue.record("found \(String(describing: error.detail))")
            return
        }
        #expect(faults.contains { $0.field.contains("sice") && $0.kind == .unknown })
        #expect(faults.contains { $0.kind == .type } && faults.contains { $0.kind == .missing })
        _ = try await failure(.cardInvalid) { _ = try ModelCard.fromToml("[") }
        _ = try await failure(.fileNotFound) { _ = try ModelCard.open("no/such/card.toml") }
    }

    @Test func whatFitsInNoMemoryStaysOnDisk() async throws {
        var card = try ModelCard.fromCheckpoint(storiesPath)
        card.nLayers = 48
        card.storageSize.inBytes = 48_000_000_000
        let model = try Inventory.ofExperts(
            nLayers: 48, attention: 200_000_000, nExperts: 16, nUsed: 2, expert: 50_000_000)
        let memory = NodeMemory(ramTotal: 64 << 30, ramAvailable: 24 << 30)
        let alone = Cluster(
            nodes: [Node(id: "a", backends: ["skulk-cpu"], memory: memory, diskBytesPerSecond: 2e9)])
        _ = try await failure(.planNoFit) {
            _ = try await plan(card, on: alone, options: .init(inventory: model))
        }
        let placement = try await plan(card, on: alone, options: .init(fromDisk: true, inventory: model))
        let budget = try #require(placement.ffnBudget)
        #expect(budget > 0 && budget < 24 << 30)
        #expect(try Placement.fromJson(placement.toJson()).ffnBudget == budget)
    }

    @Test func whatDraftsIsPlannedAndLoaded() async throws {
        let model = fixtures.appending(path: "llama").path
        let drafts = fixtures.deletingLastPathComponent().appending(path: "ahead/llama_eagle3").path
        let counted = try Inventory.fromDraftModel(model: model, drafts)
        #expect(counted.exact && counted.sharesEmbedding && !counted.sharesHead)
        let placement = try await plan(checkpoint: model, options: .init(contextTokens: 128, draftModel: counted))
        let drafter = try #require(placement.drafter)
        #expect(!drafter.mtp && drafter.bytes.kvCache > 0 && placement.budgets.last?.drafter == drafter)
        #expect(try Placement.fromJson(placement.toJson()).drafter == drafter)
        let loaded = try await Model.load(
            model, options: .init(threads: 1, draftModel: drafts), placement: placement)
        #expect(try loaded.memory.draftModel != nil)
        _ = try await failure(.invalidArgument) {
            _ = try await Model.load(model, options: .init(threads: 1), placement: placement)
        }
        let own = fixtures.appending(path: "qwen3_5").path
        let planned = try await plan(checkpoint: own, options: .init(contextTokens: 128, mtp: true))
        #expect(planned.drafter?.mtp == true)
        #expect(try await Model.load(own, options: .init(threads: 1), placement: planned).memory.draftModel != nil)
    }

    @Test func aPlanLoads() async throws {
        let placement = try await plan(
            checkpoint: storiesPath, options: .init(contextTokens: 128, kv: .q80, kvValues: .q40))
        #expect(placement.kv == .q80 && placement.kvValues == .q40)
        #expect(placement.nLayers == 5 && placement.contextTokens == 128 && placement.card?.nLayers == 5)
        #expect(placement.stages.flatMap { Array($0.layers) } == Array(0..<5) && !placement.budgets.isEmpty)
        #expect("\(placement)".contains("layers 0..5"))
        let report = try #require(placement.report)
        #expect(try PlanReport.fromJson(report.toJson()) == report && "\(report)".hasPrefix("Placed"))
        #expect(report.toMarkdown().contains("|") && report.toHtml().contains("<") && report.toSvg().hasPrefix("<svg"))
        let again = try Placement.fromJson(placement.toJson())
        #expect(again == placement && again.stages == placement.stages && again.report == nil)
        #expect(try placement != Placement.byCounts([("cpu", 5)]))
        try placement.check(#require(placement.card))
        let model = try await Model.load(storiesPath, options: .init(threads: 1), placement: placement)
        #expect(model.context == 128)
        #expect(try await model.generate(prompt, options: .init(maxTokens: 4)).output().ids.count == 4)
    }

    private func node(_ id: String, bytesPerSecond: Double? = nil) -> Node {
        let memory = NodeMemory(ramTotal: 64 << 30, ramAvailable: 48 << 30)
        return Node(id: id, backends: ["skulk-cpu"], memory: memory, bytesPerSecond: bytesPerSecond)
    }

    @Test func whatAPlacementCostsIsKnown() async throws {
        var card = try #require(try CardLibrary().card("mlx-community/Llama-3.2-1B-Instruct-4bit"))
        card.placement.compatibleBackends = ["skulk-cpu"]
        let cluster = Cluster.mesh([node("a"), node("b")])
        let placement = try await plan(card, on: cluster, options: .init(minNodes: 2))
        let planned = try JSON(try #require(placement.report).toJson())["estimate"]["tokensPerSecond"].double
        let found = try await price(card, placement, on: cluster)
        #expect(abs(found.estimate.tokensPerSecond / (try #require(planned)) - 1) < 1e-9)
        #expect(found.prompt.tokens == 512 && found.prompt.seconds > 0 && found.estimate.hopSeconds > 0)
        let faster = Cluster.mesh([node("a", bytesPerSecond: 1e12), node("b", bytesPerSecond: 1e12)])
        let quick = try await price(card, placement, on: faster, options: .init(promptTokens: 64, kv: .q80))
        #expect(quick.estimate.tokensPerSecond > found.estimate.tokensPerSecond && quick.prompt.tokens == 64)
        let many = try await price(card, placement, on: cluster, options: .init(contextTokens: 64, sessions: 4))
        #expect(many.estimate.tokensPerSecond > found.estimate.tokensPerSecond)
        let byHand = try Placement.byCounts([("cpu", 5)])
        let alone = Cluster(nodes: [node("local")])
        let counted = try await price(checkpoint: storiesPath, byHand, on: alone)
        let (own, inventory) = (try ModelCard.fromCheckpoint(storiesPath), try Inventory.fromCheckpoint(storiesPath))
        #expect(try await price(own, byHand, on: alone, options: .init(inventory: inventory)) == counted)
        #expect(try await price(own, byHand, on: alone) != counted)
        let here = try await plan(checkpoint: storiesPath)
        #expect(try await price(checkpoint: storiesPath, here).estimate.hopSeconds == 0)
        for elsewhere in [Cluster(nodes: [node("a")]), Cluster(nodes: [node("a"), node("b")])] {
            _ = try await failure(.placementInvalid) { _ = try await price(card, placement, on: elsewhere) }
        }
        _ = try await failure(.placementInvalid) { _ = try await price(card, byHand, on: cluster) }
        _ = try await failure(.invalidArgument) {
            _ = try await price(card, placement, on: cluster, options: .init(sessions: 0))
        }
        _ = try await failure(.fileNotFound) { _ = try await price(checkpoint: "no/such", byHand, on: cluster) }
    }

    @Test func aModelTellsItsMemoryBesideItsPlan() async throws {
        let placement = try await plan(checkpoint: storiesPath, options: .init(contextTokens: 128, sessions: 3))
        #expect(try placement.sessions == 3 && Placement.fromJson(placement.toJson()).sessions == 3)
        #expect(try Placement.byCounts([("cpu", 5)]).sessions == nil)
        _ = try await failure(.invalidArgument) {
            _ = try await Model.load(storiesPath, options: .init(sessions: 4), placement: placement)
        }
        let model = try await Model.load(storiesPath, options: .init(threads: 1), placement: placement)
        _ = try await model.generate(prompt, options: .init(maxTokens: 4)).output()
        let memory = try model.memory
        let planned = try #require(memory.planned)
        #expect(planned == placement.budgets.first?.bytes)
        #expect(memory.weightBytes > 0 && memory.weightBytes <= planned.attention + planned.feedForward)
        #expect(try memory.kvCacheBytes == model.kvMemory.reservedBytes && memory.kvCacheBytes <= planned.kvCache)
        #expect(memory.deviceBytes.isEmpty && (memory.processBytes ?? .max) > 1 << 20)
        let byHand = try await Model.load(storiesPath, placement: Placement.byCounts([("cpu", 5)]))
        #expect(try byHand.memory.planned == nil)
        model.close()
        _ = try await failure(.invalidArgument) { _ = try model.memory }
    }

    @Test func theSpeedOfADriveIsMeasured() async throws {
        try await temporary { folder in
            let file = folder.appending(path: "bytes")
            try Data(count: 1 << 20).write(to: file)
            do {
                #expect(try await Node.measureDisk(file) > 0)
            } catch let error as SkulkError {
                // Not every file system has a drive.
                #expect(error.kind == .fileIo && error.hint != nil)
            }
            _ = try await failure(.fileIo) { _ = try await Node.measureDisk(folder) }
            let missing = folder.appending(path: "missing")
            _ = try await failure(.fileNotFound) { _ = try await Node.measureDisk(missing) }
        }
    }

    @Test func whatFactsAddUpToIsKnown() async throws {
        var card = try #require(try CardLibrary().card("mlx-community/DeepSeek-V3.1-4bit"))
        #expect(try #require(try card.parameters) / 1_000_000_000 == 671)
        let size = Double(try #require(try card.sizeByFacts))
        #expect(abs(size / Double(card.storageSize.inBytes) - 1) < 0.1)
        #expect(try card.factFindings.isEmpty)
        card.storageSize.inBytes *= 10
        let fault = try #require(try card.factFindings.first)
        #expect(fault.field == "facts" && !fault.found.isEmpty && !fault.allowed.isEmpty)
        #expect(try card.parameters == nil && card.sizeByFacts == nil)
        card.facts = nil
        #expect(try card.parameters == nil && card.factFindings.isEmpty)
        card.nLayers = 0
        _ = try await failure(.cardInvalid) { _ = try card.parameters }
    }

    @Test func whatDoesNotFitSaysWhy() async throws {
        let card = try #require(try CardLibrary().card("mlx-community/DeepSeek-V3.1-8bit"))
        let tiny = Node(id: "tiny", backends: ["skulk-cpu"], memory: NodeMemory(ramTotal: 1 << 30, ramAvailable: 1 << 29))
        let error = try await failure(.planNoFit) { _ = try await plan(card, on: Cluster(nodes: [tiny])) }
        guard case .report(let report) = error.detail else {
            Issue.record("found \(String(describing: error.detail))")
            return
        }
        #expect("\(report)".hasPrefix("Refused"))
        _ = try await failure(.invalidArgument) { _ = try await plan(card, options: .init(contextTokens: -1)) }
        _ = try await failure(.fileNotFound) { _ = try await plan(checkpoint: "no/such") }
        _ = try await failure(.placementInvalid) { _ = try Placement.fromJson("{}") }
        _ = try await failure(.invalidArgument) { _ = try PlanReport.fromJson("[]") }
        let rank = try await failure(.invalidArgument) { _ = try Placement.byCounts([("cpu", 1)]).shardMetadata(rank: 1) }
        #expect(rank.context["field"] == "rank")
    }

    @Test func clustersGoThroughJSON() async throws {
        let here = try Cluster.local()
        #expect(here.nodes.map(\.id) == ["local"])
        #expect(try Cluster.fromJson(here.toJson()) == here)
        let mesh = Cluster.mesh([Node(id: "a"), Node(id: "b")], speed: LinkSpeed(bytesPerSecond: 1e9))
        #expect(try Cluster.fromJson(mesh.toJson()) == mesh)
        let linked = Cluster(
            nodes: mesh.nodes,
            links: [NodeLink(source: "a", sink: "b", kind: .rdma(Rdma(sourceIface: "x", sinkIface: "y")))])
        #expect(try Cluster.fromJson(linked.toJson()) == linked)
        let gpu = Accelerator(
            vendor: .amd, name: "x", bytesPerSecond: 5e11, operationsPerSecond: 1e13, layerSeconds: 2e-5,
            roundTripSeconds: 3e-5)
        let told = Cluster(nodes: [Node(id: "a", bytesPerSecond: 1e9, layerSeconds: 1e-5, accelerators: [gpu])])
        let again = try Cluster.fromJson(told.toJson())
        #expect(again == told && again.nodes[0].layerSeconds == 1e-5)
        #expect(again.nodes[0].accelerators[0].roundTripSeconds == 3e-5)
        let card = try ModelCard.fromCheckpoint(storiesPath)
        let wrong = [
            "layerSeconds": Node(id: "a", layerSeconds: -1),
            "roundTripSeconds": Node(id: "a", accelerators: [Accelerator(roundTripSeconds: 1e9)]),
        ]
        for (field, node) in wrong {
            let error = try await failure(.invalidArgument) { _ = try await plan(card, on: Cluster(nodes: [node])) }
            #expect(error.context["field"] == field)
        }
        _ = try await failure(.invalidArgument) { _ = try Cluster.fromJson("{}") }
        // What is left out has its default, whoever reads it.
        let brief = #"{"nodes":[{"id":"a"}]}"#
        #expect(try JSONDecoder().decode(Cluster.self, from: Data(brief.utf8)) == Cluster.fromJson(brief))
        let odd = Cluster(nodes: [Node(id: "a"), Node(id: "b", bytesPerSecond: .nan)])
        let error = try await failure(.invalidArgument) { _ = try await plan(card, on: odd) }
        #expect(error.context["at"] == "nodes[1].bytesPerSecond")
    }

    @Test func enginesByHandAreEnginesThatThereAre() async throws {
        #expect(try Planning.isEngine("candle-cuda:1") && !Planning.isEngine("skulk-cpu"))
        for engine in ["skulk-cpu", "zorp", "@a"] {
            let error = try await failure(.placementInvalid) {
                _ = try Placement.build(checkpoint: storiesPath, options: PlacementOptions(engine: engine))
            }
            #expect(error.context["field"] == "engine")
        }
        _ = try await failure(.placementInvalid) { _ = try Placement.byCounts([("zorp", 5)]) }
        let placement = try await plan(checkpoint: storiesPath, options: .init(contextTokens: 1 << 40))
        #expect(placement.contextTokens == 512)
        try placement.check(ModelCard.fromCheckpoint(storiesPath))
        let error = try await failure(.invalidArgument) {
            _ = try Inventory.ofExperts(nLayers: 2, attention: 10, nExperts: 8, nUsed: 9, expert: 5)
        }
        #expect(error.context["field"] == "nUsed")
    }

    @Test func configurationsAreOneText() async throws {
        for text in [#"{"model_type":"llama"},"extra":1"#, "", #"{"a":1}}"#] {
            let error = try await failure(.invalidArgument) { _ = try Planning.configFacts(text, modelId: "acme/m") }
            #expect(error.context["field"] == "json")
        }
    }

    @Test func partsAreWeighed() async throws {
        let counted = try Inventory.fromCheckpoint(storiesPath)
        #expect(counted.exact && counted.layers.count == 5)
        let card = try ModelCard.fromCheckpoint(storiesPath)
        #expect(try !Inventory.fromCard(card).exact)
        let experts = try Inventory.ofExperts(nLayers: 3, attention: 10, nExperts: 8, nUsed: 2, expert: 5)
        #expect(experts.layers.count == 3 && experts.layers[0].nExperts == 8)
        let error = try await failure(.invalidArgument) {
            _ = try Inventory.ofExperts(nLayers: -1, attention: 10, nExperts: 8, nUsed: 2, expert: 5)
        }
        #expect(error.context["field"] == "nLayers")
        _ = try await plan(card, options: .init(inventory: counted))
    }
}
