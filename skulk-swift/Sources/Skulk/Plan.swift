// Where does a model run, why, and what does that cost? `plan`, `price`, `Placement` and `PlanReport`.

import Foundation
internal import SkulkBindings

/// Plans where the model of a card runs: the fastest placement on a cluster that satisfies what is asked for, the same
/// for the same arguments. Nothing is loaded. The cluster is this machine unless given. Nothing ends it but that a cancelled
/// task gets an error.
public func plan(
    _ card: ModelCard, on cluster: Cluster? = nil, options: PlanOptions = .init()
) async throws -> Placement {
    try await plan(card: try writeJSON(card, as: "card"), path: nil, cluster, options)
}

/// Plans where the model of a checkpoint runs, whose own tensors are counted.
public func plan(
    checkpoint path: some PathConvertible, on cluster: Cluster? = nil, options: PlanOptions = .init()
) async throws -> Placement {
    try await plan(card: nil, path: try path.filePath, cluster, options)
}

private func plan(
    card: String?, path: String?, _ cluster: Cluster?, _ options: PlanOptions
) async throws -> Placement {
    let cluster = try cluster.map { try writeJSON($0, as: "cluster") }
    let given = try writeJSON(options, as: "options")
    return try Placement(
        try await unstoppable { try await rawPlan(by: card, path: path, cluster: cluster, given: given) })
}

/// What a placement of a card's model costs on a cluster, whether or not it fits there: a token of each session, and a
/// prompt. Nothing is loaded. The cluster is this machine unless given. A placement with a device that is not in the
/// cluster, or not reached from its coordinator, is an error.
public func price(
    _ card: ModelCard, _ placement: Placement, on cluster: Cluster? = nil, options: PriceOptions = .init()
) async throws -> Price {
    try await price(card: try writeJSON(card, as: "card"), path: nil, placement, cluster, options)
}

/// The same of the model of a checkpoint, whose own tensors are counted.
public func price(
    checkpoint path: some PathConvertible, _ placement: Placement, on cluster: Cluster? = nil,
    options: PriceOptions = .init()
) async throws -> Price {
    try await price(card: nil, path: try path.filePath, placement, cluster, options)
}

private func price(
    card: String?, path: String?, _ placement: Placement, _ cluster: Cluster?, _ options: PriceOptions
) async throws -> Price {
    let cluster = try cluster.map { try writeJSON($0, as: "cluster") }
    let given = try writeJSON(options, as: "options")
    return try readJSON(
        try await unstoppable {
            try await rawPrice(by: card, path: path, placement: placement.raw, cluster: cluster, given: given)
        })
}

/// Which node runs which layers and experts. Made by `plan`, read by `fromJson`.
public final class Placement: Sendable {
    let raw: RawPlacement
    private let facts: Facts
    /// The model's card; placements made by hand have none.
    public let card: ModelCard?

    private struct Facts: Decodable {
        let nLayers: Int
        let stages: [PlacedStage]
        let experts: [ExpertShard]
        let addresses: [String: String]
        let budgets: [Budget]
        let ffnBudget: Int?
        let contextTokens: Int?
        let sessions: Int?
        let drafter: Drafter?
        let contextLimit: Int?
        let kv: KvType
        let kvValues: KvType
        let instanceId: String
    }

    init(_ raw: RawPlacement) throws {
        self.raw = raw
        facts = try readJSON(try native { try raw.facts() })
        card = try raw.card().map { try readJSON($0) }
    }

    /// Reads what `toJson` writes, and Skulk 1.3's instances.
    public static func fromJson(_ text: String) throws -> Placement {
        try Placement(try native { try RawPlacement.fromJson(text: text) })
    }

    /// Stages of so many layers each, one behind the other, on engines by name, as in `[("wgpu", 20), ("cpu", 12)]`.
    public static func byCounts(_ counts: [(String, Int)]) throws -> Placement {
        let (engines, layers) = (counts.map(\.0), counts.map { Int64($0.1) })
        return try Placement(try native { try RawPlacement.byCounts(engines: engines, layers: layers) })
    }

    /// A placement by hand, of the model of a checkpoint, whose headers are read before this returns.
    public static func build(checkpoint: some PathConvertible, options: PlacementOptions) throws -> Placement {
        try fromJson(call("placementBuild", ["path": try checkpoint.filePath, "options": options]))
    }

    /// The same of a model that an inventory describes. Patterns over tensor names need a checkpoint.
    public static func build(_ inventory: Inventory, options: PlacementOptions) throws -> Placement {
        try fromJson(call("placementBuild", ["inventory": inventory, "options": options]))
    }

    /// The same placement, with the address where `node` serves what this has on it: `http://host:port`, `https://host:port` or
    /// `unix:///path`. None of them is asked before `Model.load`.
    public func withAddress(_ node: String, _ address: String) throws -> Placement {
        try Placement(raw.withAddress(node: node, address: address))
    }

    /// Layers of the model.
    public var nLayers: Int { facts.nLayers }
    /// The stages, by rank: of a pipeline, in the order a token passes them.
    public var stages: [PlacedStage] { facts.stages }
    /// Feed-forward blocks and experts that are elsewhere than their layer's attention.
    public var experts: [ExpertShard] { facts.experts }
    /// Where nodes serve what this has on them, by node.
    public var addresses: [String: String] { facts.addresses }
    /// What each device is to hold, where the placement came with that.
    public var budgets: [Budget] { facts.budgets }
    /// Bytes of feed-forward blocks and experts that the coordinator's processor has in memory at most, where the others
    /// stay on disk; `nil`: all are in memory. `Model.load` keeps it.
    public var ffnBudget: Int? { facts.ffnBudget }
    /// Tokens for which a plan reserves keys and values: the context that `Model.load` gives sessions. `nil`: it was
    /// made by hand, or came as an MLX instance, which does not say.
    public var contextTokens: Int? { facts.contextTokens }
    /// Sessions for each of which a plan reserves keys and values: as many as `Model.load` lets generate at once, unless its
    /// options ask for fewer. `nil`: as of `contextTokens`.
    public var sessions: Int? { facts.sessions }
    /// What a plan counts that drafts, on the last stage's device: `Model.load` loads the checkpoint's head where it is that, and
    /// else asks for a `draftModel` that takes no more. `nil`: nothing, or nobody planned it.
    public var drafter: Drafter? { facts.drafter }
    /// Tokens that the context is limited to; `nil`: nothing is known that limits it.
    public var contextLimit: Int? { facts.contextLimit }
    /// How keys are kept: as a plan was asked for. Where it was not, `f16` stands for two bytes an element, of what engines prefer.
    public var kv: KvType { facts.kv }
    /// How values are kept.
    public var kvValues: KvType { facts.kvValues }
    /// Its name: the one that it came with, or one that follows from what it says.
    public var instanceId: String { facts.instanceId }
    /// Why it is as it is; placements that were not planned here have none.
    public var report: PlanReport? { raw.report().map(PlanReport.init) }

    /// The placement as JSON on one line, in camelCase, as Skulk 1.3 has it for its transports.
    public func toJson() -> String { raw.json() }

    /// The tagged shard of one rank, with the card, as Skulk 1.3 gives it to a runner: as JSON.
    public func shardMetadata(rank: Int) throws -> String {
        try native { try raw.shardMetadata(rank: Int64(rank)) }
    }

    /// Returns when every layer and expert of the card's model has its place exactly once and each device's part fits
    /// there by the placement's own budgets.
    public func check(_ card: ModelCard) throws { try native { try raw.check(by: writeJSON(card, as: "card")) } }

    /// ``check(_:)``, and whether each part fits into what its node has now, with the margins of `safe`: what the budgets say
    /// that a device is to hold, and without budgets what is estimated for a node's share of the card's size with a context
    /// of `contextTokens`. Placements that `plan` made have budgets, which count the context that was planned:
    /// `contextTokens` changes nothing there.
    public func check(_ card: ModelCard, on cluster: Cluster, contextTokens: Int = 8192) throws {
        try native {
            try raw.checkOn(
                by: writeJSON(card, as: "card"), cluster: writeJSON(cluster, as: "cluster"),
                contextTokens: Int64(contextTokens))
        }
    }
}

extension Placement: Equatable, CustomStringConvertible {
    /// Whether both say the same, and not why: their reports do not count.
    public static func == (one: Placement, other: Placement) -> Bool { one.raw.equals(other: other.raw) }

    /// Which engine runs which layers, in words.
    public var description: String { raw.text() }
}

/// Why a plan is as it is, or why there is none: what was considered and turned down, where the bytes go, what limits
/// the context, and how fast it should be. Its description is a table in text.
public final class PlanReport: Sendable {
    private let raw: RawReport

    init(_ raw: RawReport) { self.raw = raw }

    /// Reads what `toJson` writes.
    public static func fromJson(_ text: String) throws -> PlanReport {
        PlanReport(try native { try RawReport.fromJson(text: text) })
    }

    /// All of it as JSON, indented, in camelCase.
    public func toJson() -> String { raw.json() }

    /// Tables in Markdown.
    public func toMarkdown() -> String { raw.markdown() }

    /// Tables and bars in HTML, to be put into a page.
    public func toHtml() -> String { raw.html() }

    /// A picture of nodes, shards and links, as a whole SVG file.
    public func toSvg() -> String { raw.svg() }
}

extension PlanReport: Hashable, CustomStringConvertible {
    /// Whether both are the same.
    public static func == (one: PlanReport, other: PlanReport) -> Bool { one.raw.equals(other: other.raw) }

    /// Feeds what it says.
    public func hash(into hasher: inout Hasher) { hasher.combine(toJson()) }

    /// A table in text.
    public var description: String { raw.text() }
}

extension Node {
    /// This machine, named `local`: memory, cores, and GPUs with the backends that reach them. How fast its devices are is
    /// measured before this returns, once for the process.
    public static func local() throws -> Node { try call("nodeLocal") }

    /// Bytes a second at which this machine reads the file at a path from its drive, whatever the system's cache has of it:
    /// what weights that stay in their file cost, see `diskBytesPerSecond`. It takes about 50 ms. On Linux only, and not
    /// where file systems have no drives.
    public static func measureDisk(_ path: some PathConvertible) async throws -> Double {
        let path = try path.filePath
        return try await unstoppable {
            try await start("nodeMeasureDisk", ["path": path], nil, nil as (@Sendable (Int) throws -> Void)?)
        }
    }

    /// How fast the link from this machine to a server of this library is, for a cluster's links: the median of fifteen
    /// round trips, and how fast bytes go there and come back, up to 8 MiB of them.
    public static func measureLink(
        _ address: String, options: LinkOptions = .init(), cancel: CancelToken? = nil
    ) async throws -> LinkSpeed {
        let given: Arguments = ["address": address, "options": options]
        return try await start("nodeMeasureLink", given, cancel, nil as (@Sendable (Int) throws -> Void)?)
    }
}

extension Cluster {
    /// This machine alone: what a `Model` can run by itself. It is measured as by ``Node/local()``.
    public static func local() throws -> Cluster { try call("clusterLocal") }

    /// Nodes that are all connected with each other; unless said otherwise, by gigabit Ethernet.
    public static func mesh(_ nodes: [Node], speed: LinkSpeed = .init()) -> Cluster {
        Cluster(nodes: nodes, mesh: speed)
    }

    /// Reads what `toJson` writes.
    public static func fromJson(_ text: String) throws -> Cluster {
        try call("clusterFromJson", ["text": text])
    }

    /// The cluster as JSON on one line, in camelCase.
    public func toJson() throws -> String { try call("clusterToJson", ["cluster": self]) }
}

extension Inventory {
    /// Counts a checkpoint's tensors; only its headers are read, before this returns.
    public static func fromCheckpoint(_ path: some PathConvertible) throws -> Inventory {
        try call("inventoryFromCheckpoint", ["path": try path.filePath])
    }

    /// Counts the tensors of what drafts for the model of a checkpoint, at a path that `Model.load` takes as its `draftModel`;
    /// only headers are read, before this returns.
    public static func fromDraftModel(model: some PathConvertible, _ path: some PathConvertible) throws -> Inventory {
        try call("inventoryFromDraftModel", ["model": try model.filePath, "path": try path.filePath])
    }

    /// What follows from a card: its size divided by its layers, a third of each for attention.
    public static func fromCard(_ card: ModelCard) throws -> Inventory {
        try call("inventoryFromCard", ["card": card])
    }

    /// A mixture of experts, every layer alike, for models whose checkpoint is not at hand: bytes of one layer's
    /// attention, shared weights and each expert, how many experts it has and how many of them a token takes.
    public static func ofExperts(
        nLayers: Int, attention: Int, shared: Int = 0, nExperts: Int, nUsed: Int, expert: Int, kvPerToken: Int = 0
    ) throws -> Inventory {
        try call(
            "inventoryOfExperts",
            [
                "nLayers": nLayers, "attention": attention, "shared": shared, "nExperts": nExperts,
                "nUsed": nUsed, "expert": expert, "kvPerToken": kvPerToken,
            ])
    }
}
