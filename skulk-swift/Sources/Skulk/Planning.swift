// Which rules are behind cards and plans? `Planning`, the functions that decide, one by one.

import Foundation
internal import SkulkBindings

/// The functions that decide behind cards and plans, for hosts that ask for themselves. Bytes and formulas are those of
/// Skulk 1.3.
public enum Planning {
    /// The numbers of the memory model.
    public struct Constants: Codable, Sendable, Hashable {
        /// Bytes taken for each byte of weights.
        public let overhead: Double
        /// The same for GGUF models, whose runtime is leaner.
        public let overheadGguf: Double
        /// Bytes that each part of a model takes whatever its size.
        public let overheadFloor: Int
        /// The share of main memory that a model may use.
        public let ramShare: Double
        /// The share under strictness `relaxed`.
        public let ramShareRelaxed: Double
        /// The share of a graphics card's memory that a model may use.
        public let vramShare: Double
        /// Bytes of main memory that stay with the system where a graphics processor uses main memory, too.
        public let unifiedHeadroom: Int
        /// Tokens for which keys and values are reserved unless a request says otherwise.
        public let contextTokens: Int
        /// Values of a key or value head; cards do not say.
        public let headDim: Int
        /// Bytes of each of these values.
        public let kvValueBytes: Int
        /// Tokens that an answer may have where a request does not say.
        public let defaultMaxTokens: Int

        enum CodingKeys: String, CodingKey {
            case overhead = "OVERHEAD", overheadGguf = "OVERHEAD_GGUF", overheadFloor = "OVERHEAD_FLOOR"
            case ramShare = "RAM_SHARE", ramShareRelaxed = "RAM_SHARE_RELAXED", vramShare = "VRAM_SHARE"
            case unifiedHeadroom = "UNIFIED_HEADROOM", contextTokens = "CONTEXT_TOKENS", headDim = "HEAD_DIM"
            case kvValueBytes = "KV_VALUE_BYTES", defaultMaxTokens = "DEFAULT_MAX_TOKENS"
        }
    }

    /// The numbers of the memory model.
    public static func constants() throws -> Constants { try call("constants") }

    /// The engine that a backend's tag names; `nil`: one that nobody knows.
    public static func engineOf(_ tag: String) throws -> String? { try call("engineOf", ["tag": tag]) }

    /// Whether the library makes an engine of this name, where a build and a machine have what it takes.
    public static func isEngine(_ name: String) throws -> Bool { try call("isEngine", ["name": name]) }

    /// Whether an engine can run one model over several nodes.
    public static func isMultiNode(_ engine: String) throws -> Bool { try call("isMultiNode", ["engine": engine]) }

    /// Whether a backend that a node has is one that a card lists.
    public static func serves(nodeTag: String, cardTag: String) throws -> Bool {
        try call("serves", ["nodeTag": nodeTag, "cardTag": cardTag])
    }

    /// The backend of a node that runs a model: of those that serve one of the card's `compatible`, the first by
    /// `preference`; without any preferred, the first by name. `nil`: the node cannot run it.
    public static func resolveBackend(
        compatible: some Sequence<String>, preference: [String], nodeTags: some Sequence<String>
    ) throws -> String? {
        try call(
            "resolveBackend",
            ["compatible": Array(compatible), "preference": preference, "nodeTags": Array(nodeTags)])
    }

    /// Whether one of these backends keeps weights in the memory of a graphics card.
    public static func hasGpuOffload(_ tags: some Sequence<String>) throws -> Bool {
        try call("hasGpuOffload", ["tags": Array(tags)])
    }

    /// Whether an address belongs to Tailscale. What is no address does not.
    public static func isVpnAddress(_ address: String) throws -> Bool {
        try call("isVpnAddress", ["address": address])
    }

    /// `bytes` times `factor`, a half rounded to the even neighbour.
    public static func scale(_ bytes: Int, by factor: Double) throws -> Int {
        try call("scale", ["bytes": bytes, "factor": factor])
    }

    /// `bytes` by `divisor`, a half rounded to the even neighbour.
    public static func divide(_ bytes: Int, by divisor: Double) throws -> Int {
        try call("divide", ["bytes": bytes, "divisor": divisor])
    }

    /// Bytes of keys and values of one token, all layers. 0: the card does not say how many heads there are.
    public static func kvBytesPerToken(_ card: ModelCard) throws -> Int { try call("kvBytesPerToken", ["card": card]) }

    /// Bytes of keys and values of `tokens` tokens, all layers.
    public static func kvBytes(_ card: ModelCard, tokens: Int) throws -> Int {
        try call("kvBytes", ["card": card, "tokens": tokens])
    }

    /// Bytes that a `fraction` of a model takes, with keys and values of `tokens` tokens.
    public static func shardFootprint(
        _ card: ModelCard, fraction: Double = 1, tokens: Int = 8192, strictness: Strictness = .safe
    ) throws -> Int {
        try call(
            "shardFootprint", ["card": card, "fraction": fraction, "tokens": tokens, "strictness": strictness])
    }

    /// Whether a footprint is larger than what may be used, by more than a `tolerance` relative to that.
    public static func footprintExceeds(_ footprint: Int, usable: Int, tolerance: Double = 0.1) throws -> Bool {
        try call("footprintExceeds", ["footprint": footprint, "usable": usable, "tolerance": tolerance])
    }

    /// The memory of a node that one backend may use. `nil`: the node has not reported its main memory.
    public static func usableMemory(_ node: Node, strictness: Strictness = .safe) throws -> Usable? {
        try call("usableMemory", ["node": node, "strictness": strictness])
    }

    /// Memory of graphics cards by AMD and NVIDIA that a model may use, of a node with a backend that uses it. `nil`:
    /// there is none.
    public static func usableVram(_ node: Node) throws -> Int? { try call("usableVram", ["node": node]) }

    /// All memory of a node's accelerators, in use or not. `nil`: nothing is known.
    public static func acceleratorMemory(_ node: Node) throws -> Int? { try call("acceleratorMemory", ["node": node]) }

    /// Shares `total` layers out by `fractions`, which add up to 1.
    public static func allocateLayers(_ total: Int, fractions: [Double]) throws -> [Int] {
        try call("allocateLayers", ["total": total, "fractions": fractions])
    }

    /// Tokens that an answer may have: what was `requested`, which must fit behind the prompt; else `byDefault`, or
    /// less where the context ends sooner. `limit` is the context's, prompt included; `nil`: there is none.
    public static func admitMaxTokens(
        prompt: Int, requested: Int? = nil, byDefault: Int = 4096, limit: Int? = nil
    ) throws -> Int {
        try call(
            "admitMaxTokens", ["prompt": prompt, "requested": requested, "byDefault": byDefault, "limit": limit])
    }

    /// The pieces in which a prompt of `tokens` tokens is computed: of `max` each, but never ending inside a medium.
    /// The last token is left to the step that generates the first new one. `max` of 0: one piece.
    ///
    /// `media` are ranges of positions in the whole conversation, of which `offset` are already computed. There are
    /// `limit` pieces at most.
    public static func prefillChunks(
        tokens: Int, max: Int, media: [Range<Int>] = [], offset: Int = 0, limit: Int = 1 << 16
    ) throws -> [Int] {
        try call(
            "prefillChunks",
            ["tokens": tokens, "max": max, "media": media.map(Span.init), "offset": offset, "limit": limit])
    }

    /// The rings that a plan for MLX's transports considers unless it is given some: nodes by rank, narrow ones first.
    public static func rings(
        _ card: ModelCard, on cluster: Cluster, options: RingsOptions = .init()
    ) throws -> [[String]] {
        try call("rings", ["card": card, "cluster": cluster, "options": options])
    }

    /// Nodes that connect to one other at most.
    public static func leaves(_ cluster: Cluster) throws -> [String] { try call("leaves", ["cluster": cluster]) }

    /// Chooses a file by quantisation, then by name; the file, and the bytes of it or of all files of its set. `nil`
    /// when there are no files.
    public static func selectGguf(_ files: [GgufFile]) throws -> GgufChoice? { try call("selectGguf", ["files": files]) }

    /// Reads a model's `config.json`, whose own repository holds its vision weights.
    public static func configFacts(_ json: String, modelId: String) throws -> ConfigFacts {
        try call("configFacts", ["config": try JSONValue(json: json), "modelId": modelId])
    }

    /// What the start of a GGUF file says that a card needs.
    public static func ggufFacts(_ start: Data) throws -> GgufFacts {
        try readJSON(try native { try rawGgufFacts(start: start) })
    }
}

/// A file that was chosen, and the bytes of it or of all files of its set.
public struct GgufChoice: Codable, Sendable, Hashable {
    /// The file.
    public let file: GgufFile
    /// The bytes.
    public let bytes: Int
}

/// One GGUF file of a folder or repository: its name, with folders before it, and its size in bytes.
public struct GgufFile: Codable, Sendable, Hashable {
    /// Its path in the repository, with `/` between folders.
    public let name: String
    /// Its size in bytes.
    public let bytes: Int
    /// It is called a GGUF file, and not a multi-modal projector's.
    public let holdsAModel: Bool
    /// It is called the GGUF file of a multi-modal projector.
    public let holdsAProjector: Bool
    /// How much its quantisation is wanted: the lower, the more.
    public let quantRank: Int
    /// Its quantisation as people write it, as in `Q4_K_M`; empty where the name does not tell.
    public let quantLabel: String
    /// What all files of its split set share; `nil` for a file of its own.
    public let shardBase: String?
    /// What to download for it: the file or its set, and projectors.
    public let downloadPatterns: [String]

    /// The file of that name and size.
    public init(_ name: String, bytes: Int = 0) throws { self = try call("ggufFile", ["name": name, "bytes": bytes]) }
}
