// Are placements those of the software whose plans the package speaks? Cases as data.

import Foundation
import Skulk
import Testing

/// What the reference raises after its rules left something, and the rules that are applied then.
private let late = "ValueError"
private let arranging: Set = ["layers", "hosts"]

@Suite struct SuitePlacementTests {
    @Test(arguments: each("placements")) func placementsAreTheReferences(one: Case) async throws {
        guard let problem = try await Problem(one) else { return }
        let (card, cluster, expected) = (problem.card, problem.cluster, one["expected"])
        for node in cluster.nodes {
            #expect(try Planning.usableVram(node) == expected["usableVram"][node.id].int)
        }
        // The cycles that the reference considered, in its order; where there were too many to record, the one that it
        // took.
        let order = expected["nodeOrder"].isNull ? nil : expected["nodeOrder"].texts
        let rings = expected["cycles"].isNull ? order.map { [$0] } : expected["cycles"].items.map(\.texts)
        var options = problem.options
        options.rings = rings
        let result = try await planned(card, cluster, options)
        // Skulk's documentation promises both, its planner looks at neither; this library's does.
        if let order, try !haveVram(card, cluster, order) {
            switch result {
            case .success(let placement):
                let nodes = placement.stages.map(\.node)
                #expect(try haveVram(card, cluster, nodes) && nodes != order)
            case .failure(let error): #expect(try rule(error) == "min_vram")
            }
            return
        }
        if expected["ok"].bool! {
            var found = try described(result.get())
            let limits = [expected["contextTokenLimit"].int, card.placement.maxContextTokens].compactMap { $0 }
            #expect(found["contextTokenLimit"]?.int == limits.min())
            found["contextTokenLimit"] = expected["contextTokenLimit"]
            let wanted = expected.fields.filter { !["cycles", "usableVram"].contains($0.key) }
            #expect(found == wanted)
            return
        }
        guard case .failure(let error) = result else {
            Issue.record("placed, where the reference has \(expected["errorType"])")
            return
        }
        let (kind, rule, pending) = (expected["errorType"].text!, try rule(error), error.kind == .planPending)
        if rule == "min_vram" {
            #expect(card.placement.minVramGib != nil)
        } else if kind == "PlacementInfoPendingError" {
            #expect(pending && ["connected", "memory"].contains(rule))
        } else {
            #expect([late, "PlacementError"].contains(kind) && !pending)
            #expect(arranging.contains(rule) == (kind == late))
        }
    }

    @Test(arguments: each("placements")) func thePlannersOwnRingsAreAsGood(one: Case) async throws {
        guard let problem = try await Problem(one) else { return }
        let (card, cluster, expected) = (problem.card, problem.cluster, one["expected"])
        let result = try await planned(card, cluster, problem.options)
        let reversed = Cluster(nodes: cluster.nodes.reversed(), links: cluster.links.reversed())
        let turned = try await planned(card, reversed, problem.options)
        // Rings that pass the rule of memory are there for the reference if it placed the model, or failed later.
        let isLate = expected["errorType"].text == late
        let order = expected["nodeOrder"].isNull ? nil : expected["nodeOrder"].texts
        switch (result, turned) {
        case (.success(let placement), .success(let other)):
            #expect(placement == other)
            #expect(expected["ok"].bool! || isLate)
            try isValid(card, cluster, placement)
            if let order, try haveVram(card, cluster, order) { #expect(placement.stages.count == order.count) }
        case (.failure(let error), .failure(let other)):
            #expect(error.description == other.description)
            if isLate {
                #expect(try arranging.contains(rule(error)))
            } else if expected["ok"].bool! {
                if try rule(error) == "layers" {
                    #expect(try isOver(card, cluster, expected))
                } else {
                    #expect(try rule(error) == "min_vram" && !haveVram(card, cluster, order!))
                }
            } else {
                #expect((error.kind == .planPending) == (expected["errorType"].text == "PlacementInfoPendingError"))
            }
        default: Issue.record("it depends on the order of nodes")
        }
    }
}

/// What a case asks; nothing where its card is one that only the reference takes.
private struct Problem {
    let card: ModelCard
    let cluster: Cluster
    let options: PlanOptions

    init?(_ one: Case) async throws {
        let given = one["input"]
        let limits = given["card"]["placement"]
        func below(_ value: JSON, _ least: Double) -> Bool { value.double.map { $0 < least } ?? false }
        if given["card"]["modelId"].text == "" || below(given["card"]["storageSize"]["inBytes"], 0)
            || below(limits["minVramGib"], 0) || below(limits["maxContextTokens"], 1)
        {
            _ = try await failure(.cardInvalid) { _ = try Skulk.ModelCard.fromJson(given["card"].json) }
            return nil
        }
        let model = try ModelCard.fromJson(given["card"].json)
        card = model
        // The reference takes no notice of a connection that it has already, and knows the nodes of all.
        var links = [NodeLink]()
        for connection in given["connections"].items.map(link) where !links.contains(connection) {
            links.append(connection)
        }
        var names = [String]()
        for name in given["nodes"].texts + links.flatMap({ [$0.source, $0.sink] }) where !names.contains(name) {
            names.append(name)
        }
        cluster = Cluster(nodes: names.map { node($0, given, model.modelId) }, links: links)
        let transports: [String: Transport] = ["MlxRing": .mlxRing, "MlxJaccl": .mlxJaccl]
        options = PlanOptions(
            sharding: Sharding(rawValue: given["sharding"].text!.lowercased())!,
            transport: transports[given["instanceMeta"].text!]!,
            // Less than one node is no node here.
            minNodes: max(0, given["minNodes"].int!), requiredNodes: Set(given["requiredNodes"].texts),
            excludedNodes: Set(given["excludedNodes"].texts))
    }
}

private func link(_ connection: JSON) -> NodeLink {
    let kind: LinkKind
    if connection["type"].text == "socket" {
        // As in `/ip4/10.0.0.1/tcp/1234`.
        kind = .socket(Socket(address: connection["multiaddr"].text!.components(separatedBy: "/")[2]))
    } else {
        kind = .rdma(
            Rdma(sourceIface: connection["sourceIface"].text!, sinkIface: connection["sinkIface"].text!))
    }
    return NodeLink(source: connection["source"].text!, sink: connection["sink"].text!, kind: kind)
}

private func node(_ name: String, _ given: JSON, _ model: String) -> Node {
    var node = Node(id: name)
    let memory = given["memory"][name]
    if !memory.isNull {
        // Less than nothing is nothing here.
        node.memory = NodeMemory(
            ramTotal: max(memory["ramTotal"].int!, 0), ramAvailable: max(memory["ramAvailable"].int!, 0))
    }
    let resources = given["resources"][name]
    if !resources.isNull {
        // What is left out has the defaults of the reference.
        node.backends = resources["backends"].isNull ? ["mlx"] : Set(resources["backends"].texts)
        node.role = resources["participation"].text.flatMap(Role.init) ?? .full
    }
    let facts = given["accelerators"][name]
    if !facts.isNull {
        node.accelerators = [
            Accelerator(
                vendor: Vendor(rawValue: facts["vendor"].text!)!, vramTotalBytes: facts["vramTotalBytes"].int,
                vramUsedBytes: facts["vramUsedBytes"].int, gttTotalBytes: facts["gttTotalBytes"].int)
        ]
    }
    node.interfaces = given["network"][name].items.map {
        NetworkInterface(
            name: $0["name"].text!, ipAddress: $0["ipAddress"].text!,
            interfaceType: InterfaceType(rawValue: $0["interfaceType"].text!)!)
    }
    // The first entry that is about this model decides.
    let entries = given["downloads"][name].items
    if let entry = entries.first(where: { ($0["modelId"].text ?? model) == model }) {
        switch entry["state"].text! {
        case "completed": node.downloads[model] = 1
        case "failed": node.downloads[model] = 0
        default:
            let total = entry["total"].double!
            node.downloads[model] = total > 0 ? entry["downloaded"].double! / total : 0
        }
    }
    return node
}

private func planned(
    _ card: ModelCard, _ cluster: Cluster, _ options: PlanOptions
) async throws -> Result<Placement, SkulkError> {
    do {
        return .success(try await plan(card, on: cluster, options: options))
    } catch let error as SkulkError where [.planNoFit, .planPending].contains(error.kind) {
        return .failure(error)
    }
}

/// The rule that left nothing.
private func rule(_ error: SkulkError) throws -> String {
    guard case .report(let report) = error.detail else { return "no report" }
    return try #require(try JSON(report.toJson())["refused"]["rule"].text)
}

/// Whether nodes have the accelerator memory that the card asks for, which the reference does not look at.
private func haveVram(_ card: ModelCard, _ cluster: Cluster, _ names: [String]) throws -> Bool {
    let needed = Double(card.placement.minVramGib ?? 0) * 1_073_741_824
    return try cluster.nodes.filter { names.contains($0.id) }
        .allSatisfy { Double(try Planning.acceleratorMemory($0) ?? 0) >= needed }
}

/// All that the reference says of a placement, in its words.
private func described(_ placement: Placement) throws -> [String: JSON] {
    let stages = placement.stages
    let shards = try stages.enumerated().map { rank, stage in
        let (name, shard) = try #require(JSON(placement.shardMetadata(rank: rank)).fields.first)
        var fields = shard.fields
        #expect(fields.removeValue(forKey: "modelCard")?["modelId"].text == placement.card?.modelId)
        #expect(fields.removeValue(forKey: "immediateException") == .bool(false))
        #expect(fields.removeValue(forKey: "shouldTimeout") == .null)
        return JSON.object(fields.merging(["node": .text(stage.node), "type": .text(name)]) { own, _ in own })
    }
    let (instance, data) = try #require(JSON(placement.toJson()).fields.first)
    var found: [String: JSON] = [
        "ok": .bool(true), "modelId": .text(try #require(placement.card?.modelId)),
        "contextTokenLimit": placement.contextLimit.map(JSON.int) ?? .null,
        "effectiveSharding": .text(stages.contains { $0.part == .tensor } ? "Tensor" : "Pipeline"),
        "nodeOrder": .list(stages.map { .text($0.node) }), "shards": .list(shards), "instanceType": .text(instance),
        "effectiveInstanceMeta": .text(instance.replacing("Instance", with: "")),
    ]
    if instance == "MlxRingInstance" {
        found["hostsByNode"] = .object(
            data["hostsByNode"].fields.mapValues { row in
                .list(row.items.map { .text("\($0["ip"].text!):\($0["port"].int!)") })
            })
        found["ephemeralPort"] = data["ephemeralPort"]
    } else {
        for key in ["jacclDevices", "jacclCoordinators"] { found[key] = data[key] }
    }
    return found
}

/// Whether the reference gives a node more than its own memory rule, which does not know of whole layers, allows.
private func isOver(_ card: ModelCard, _ cluster: Cluster, _ expected: JSON) throws -> Bool {
    try expected["shards"].items.contains { shard in
        let share = Double(shard["endLayer"].int! - shard["startLayer"].int!) / Double(card.nLayers)
        let node = try #require(cluster.nodes.first { $0.id == shard["node"].text })
        let usable = try #require(try Planning.usableMemory(node))
        return try Planning.shardFootprint(card, fraction: share) > usable.bytes
    }
}

/// A ring whose neighbours reach each other, all layers once, and no node over what it may use.
private func isValid(_ card: ModelCard, _ cluster: Cluster, _ placement: Placement) throws {
    let stages = placement.stages
    let names = stages.map(\.node)
    #expect(Set(names).count == names.count)
    let linked = Set(cluster.links.map { [$0.source, $0.sink] })
    if names.count > 1 {
        for (name, to) in zip(names, names[1...] + names[...0]) {
            #expect(linked.contains([name, to]) && linked.contains([to, name]))
        }
    }
    if stages[0].part == .whole { #expect(stages.flatMap { Array($0.layers) } == Array(0..<card.nLayers)) }
    if stages[0].part == .tensor { #expect(stages.allSatisfy { $0.layers == 0..<card.nLayers }) }
    let devices = try JSON(#require(placement.report).toJson())["nodes"].items
    for (stage, device) in zip(stages, devices) {
        let share =
            stage.part == .tensor ? 1 / Double(stages.count) : Double(stage.layers.count) / Double(card.nLayers)
        let total = device["bytes"].fields.values.compactMap(\.int).reduce(0, +)
        #expect(try total == Planning.shardFootprint(card, fraction: share, tokens: 8192))
        #expect(total <= device["usable"].int!)
    }
}
