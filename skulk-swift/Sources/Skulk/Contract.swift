// What crosses between Swift and the library? Plain data.
//
// Written by `cargo run -p skulk-contract-generate` from the library's own declarations.

/// A number of bytes, as cards write it.
public struct StorageSize: Codable, Sendable, Hashable {
    /// Bytes.
    public var inBytes: Int

    /// Of its fields.
    public init(inBytes: Int = 0) {
        self.inBytes = inBytes
    }

    /// Reads what JSON has of it.
    public init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: CodingKeys.self)
        inBytes = try values.decodeIfPresent(Int.self, forKey: .inBytes) ?? 0
    }
}

/// A part of a model that is made of several, as of an image generator.
public struct ComponentInfo: Codable, Sendable, Hashable {
    /// Its name.
    public var componentName: String
    /// Its folder in the model's.
    public var componentPath: String
    /// Bytes of its weights.
    public var storageSize: StorageSize
    /// Its layers, where it has any; at least 1.
    public var nLayers: Int?
    /// It can be split over nodes.
    public var canShard: Bool
    /// The name of its index of weight files.
    public var safetensorsIndexFilename: String?

    /// Of its fields.
    public init(
        componentName: String,
        componentPath: String,
        storageSize: StorageSize,
        nLayers: Int? = nil,
        canShard: Bool,
        safetensorsIndexFilename: String? = nil
    ) {
        self.componentName = componentName
        self.componentPath = componentPath
        self.storageSize = storageSize
        self.nLayers = nLayers
        self.canShard = canShard
        self.safetensorsIndexFilename = safetensorsIndexFilename
    }
}

/// How a model sees.
public struct VisionCardConfig: Codable, Sendable, Hashable {
    /// The token that stands for an image.
    public var imageTokenId: Int?
    /// The vision tower's kind.
    public var modelType: String
    /// Where its weights are; the card's own `modelId` unless it says otherwise.
    public var weightsRepo: String
    /// The text of the image token.
    public var imageToken: String?
    /// Where its image processor is.
    public var processorRepo: String?
    /// The token that begins an image.
    public var boiTokenId: Int?
    /// The token that ends an image.
    public var eoiTokenId: Int?

    /// Of its fields.
    public init(
        imageTokenId: Int? = nil,
        modelType: String = "",
        weightsRepo: String = "",
        imageToken: String? = nil,
        processorRepo: String? = nil,
        boiTokenId: Int? = nil,
        eoiTokenId: Int? = nil
    ) {
        self.imageTokenId = imageTokenId
        self.modelType = modelType
        self.weightsRepo = weightsRepo
        self.imageToken = imageToken
        self.processorRepo = processorRepo
        self.boiTokenId = boiTokenId
        self.eoiTokenId = eoiTokenId
    }

    /// Reads what JSON has of it.
    public init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: CodingKeys.self)
        imageTokenId = try values.decodeIfPresent(Int.self, forKey: .imageTokenId)
        modelType = try values.decodeIfPresent(String.self, forKey: .modelType) ?? ""
        weightsRepo = try values.decodeIfPresent(String.self, forKey: .weightsRepo) ?? ""
        imageToken = try values.decodeIfPresent(String.self, forKey: .imageToken)
        processorRepo = try values.decodeIfPresent(String.self, forKey: .processorRepo)
        boiTokenId = try values.decodeIfPresent(Int.self, forKey: .boiTokenId)
        eoiTokenId = try values.decodeIfPresent(Int.self, forKey: .eoiTokenId)
    }
}

/// How a model reasons.
public struct ReasoningCardConfig: Codable, Sendable, Hashable {
    /// Requests can turn it on and off.
    public var supportsToggle: Bool?
    /// Requests can bound it.
    public var supportsBudget: Bool?
    /// How it is marked. `none`: Not at all; `token_delimited`: Between two markers, as `<think>` and `</think>`;
    /// `channel_delimited`: On a channel of its own.
    public var format: ReasoningFormat?
    /// How much, unless a request says. `none`: Not at all; `minimal`: Hardly; `low`: Little; `medium`: Some; `high`:
    /// Much; `xhigh`: As much as it can.
    public var defaultEffort: ReasoningEffort?
    /// What turning it off means. `none`: Not at all; `minimal`: Hardly; `low`: Little; `medium`: Some; `high`: Much;
    /// `xhigh`: As much as it can.
    public var disabledEffort: ReasoningEffort?

    /// Of its fields.
    public init(
        supportsToggle: Bool? = nil,
        supportsBudget: Bool? = nil,
        format: ReasoningFormat? = nil,
        defaultEffort: ReasoningEffort? = nil,
        disabledEffort: ReasoningEffort? = nil
    ) {
        self.supportsToggle = supportsToggle
        self.supportsBudget = supportsBudget
        self.format = format
        self.defaultEffort = defaultEffort
        self.disabledEffort = disabledEffort
    }
}

/// What else than text a model takes.
public struct ModalitiesCardConfig: Codable, Sendable, Hashable {
    /// It hears.
    public var supportsAudioInput: Bool?
    /// Its other inputs are part of the model itself.
    public var supportsNativeMultimodal: Bool?

    /// Of its fields.
    public init(supportsAudioInput: Bool? = nil, supportsNativeMultimodal: Bool? = nil) {
        self.supportsAudioInput = supportsAudioInput
        self.supportsNativeMultimodal = supportsNativeMultimodal
    }
}

/// How a model calls tools.
public struct ToolingCardConfig: Codable, Sendable, Hashable {
    /// It does.
    public var supportsToolCalling: Bool?
    /// How it writes calls. `generic`: As its tokenizer's chat template says; `gemma4`: Gemma 4's; `gpt_oss`: Harmony,
    /// of gpt-oss; `dsml`: DeepSeek V3.2's markup.
    public var toolCallFormat: ToolCallFormat?
    /// Tools that it was trained with.
    public var builtinTools: [BuiltinTool]?

    /// Of its fields.
    public init(
        supportsToolCalling: Bool? = nil,
        toolCallFormat: ToolCallFormat? = nil,
        builtinTools: [BuiltinTool]? = nil
    ) {
        self.supportsToolCalling = supportsToolCalling
        self.toolCallFormat = toolCallFormat
        self.builtinTools = builtinTools
    }
}

/// How a model is run.
public struct RuntimeCardConfig: Codable, Sendable, Hashable {
    /// What turns messages into a prompt. `tokenizer`: The chat template of the tokenizer; `gemma4`: Gemma 4's; `dsml`:
    /// DeepSeek V3.2's.
    public var promptRenderer: PromptRenderer?
    /// What takes an answer apart. `generic`: By the thinking format and the tool-call format; `gemma4`: Gemma 4's;
    /// `gpt_oss`: Harmony, of gpt-oss; `deepseek_v32`: DeepSeek V3.2's.
    public var outputParser: OutputParser?
    /// Whether MLX waits for the GPU by polling.
    public var metalFastSynch: Bool?
    /// It has multi-token-prediction heads, in a sidecar.
    public var mtpHeads: Bool?
    /// Tokens that these heads, or the assistant, draft at most.
    public var mtpMaxDepth: Int?
    /// Where the sidecar is.
    public var mtpSidecarRepo: String?
    /// What the sidecar's norm weights are relative to. `zero_centered`: 1 is to be added; `actual_scale`: They are the
    /// factors themselves.
    public var mtpNormConvention: MtpNormConvention?
    /// How the heads join their inputs. `embed_first`: The token's embedding, then the hidden state; `hidden_first`:
    /// The hidden state, then the token's embedding.
    public var mtpConcatOrder: MtpConcatOrder?
    /// Speculation pays over several nodes, too.
    public var speculativeMultiNode: Bool?
    /// Where a model that drafts for this one is.
    public var assistantModelRepo: String?
    /// How it speculates where a server runs it. `none`: Not at all; `draft_mtp`: With its own multi-token-prediction
    /// heads; `draft_eagle3`: With an EAGLE-3 draft; `draft_simple`: With a smaller model; `ngram`: With n-grams of the
    /// text so far.
    public var servedSpecType: ServedSpecType?
    /// Tokens that the server drafts at most; at least 1.
    public var servedSpecNMax: Int?
    /// Where the server's draft is.
    public var servedSpecDraftRepo: String?
    /// The file of that draft; must be given with the repository.
    public var servedSpecDraftFile: String?

    /// Of its fields.
    public init(
        promptRenderer: PromptRenderer? = nil,
        outputParser: OutputParser? = nil,
        metalFastSynch: Bool? = nil,
        mtpHeads: Bool? = nil,
        mtpMaxDepth: Int? = nil,
        mtpSidecarRepo: String? = nil,
        mtpNormConvention: MtpNormConvention? = nil,
        mtpConcatOrder: MtpConcatOrder? = nil,
        speculativeMultiNode: Bool? = nil,
        assistantModelRepo: String? = nil,
        servedSpecType: ServedSpecType? = nil,
        servedSpecNMax: Int? = nil,
        servedSpecDraftRepo: String? = nil,
        servedSpecDraftFile: String? = nil
    ) {
        self.promptRenderer = promptRenderer
        self.outputParser = outputParser
        self.metalFastSynch = metalFastSynch
        self.mtpHeads = mtpHeads
        self.mtpMaxDepth = mtpMaxDepth
        self.mtpSidecarRepo = mtpSidecarRepo
        self.mtpNormConvention = mtpNormConvention
        self.mtpConcatOrder = mtpConcatOrder
        self.speculativeMultiNode = speculativeMultiNode
        self.assistantModelRepo = assistantModelRepo
        self.servedSpecType = servedSpecType
        self.servedSpecNMax = servedSpecNMax
        self.servedSpecDraftRepo = servedSpecDraftRepo
        self.servedSpecDraftFile = servedSpecDraftFile
    }
}

/// Where a model can run.
public struct PlacementCardConfig: Codable, Sendable, Hashable {
    /// Tags of backends that can run it: `<engine>-<compute>`, as in `mlx-metal`, or an engine alone.
    public var compatibleBackends: Set<String>
    /// Accelerator memory that a node must have, in GiB.
    public var minVramGib: Double?
    /// Tokens that its context is limited to, whatever it was trained for.
    public var maxContextTokens: Int?
    /// The backends by preference, best first.
    public var backendPreference: [String]

    /// Of its fields.
    public init(
        compatibleBackends: Set<String> = ["mlx"],
        minVramGib: Double? = nil,
        maxContextTokens: Int? = nil,
        backendPreference: [String] = []
    ) {
        self.compatibleBackends = compatibleBackends
        self.minVramGib = minVramGib
        self.maxContextTokens = maxContextTokens
        self.backendPreference = backendPreference
    }

    /// Reads what JSON has of it.
    public init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: CodingKeys.self)
        compatibleBackends = try values.decodeIfPresent(Set<String>.self, forKey: .compatibleBackends) ?? ["mlx"]
        minVramGib = try values.decodeIfPresent(Double.self, forKey: .minVramGib)
        maxContextTokens = try values.decodeIfPresent(Int.self, forKey: .maxContextTokens)
        backendPreference = try values.decodeIfPresent([String].self, forKey: .backendPreference) ?? []
    }
}

/// Keys and values that are kept as one vector a token.
public struct LatentFacts: Codable, Sendable, Hashable {
    /// Elements of the vector; at least 1.
    public var rank: Int
    /// Elements of the vector that queries are made of, where they are made of one; at least 1.
    public var queryRank: Int?
    /// Elements of a head that are rotated, kept beside the vector.
    public var ropeSize: Int
    /// Elements of a head's values; at least 1.
    public var valueSize: Int

    /// Of its fields.
    public init(rank: Int, queryRank: Int? = nil, ropeSize: Int, valueSize: Int) {
        self.rank = rank
        self.queryRank = queryRank
        self.ropeSize = ropeSize
        self.valueSize = valueSize
    }
}

/// An index that chooses the positions that are attended to.
public struct IndexFacts: Codable, Sendable, Hashable {
    /// Heads of its queries; at least 1.
    public var heads: Int
    /// Elements of a head, and of what is kept of a token; at least 1.
    public var headSize: Int

    /// Of its fields.
    public init(heads: Int, headSize: Int) {
        self.heads = heads
        self.headSize = headSize
    }
}

/// The heads of attention.
public struct AttentionFacts: Codable, Sendable, Hashable {
    /// Heads of queries; at least 1.
    public var heads: Int
    /// Heads of keys and values; at least 1. The card's `numKeyValueHeads` unless it is given.
    public var kvHeads: Int?
    /// Elements of a head; with latent vectors, those that are not rotated. At least 1.
    public var headSize: Int
    /// Queries come with a gate of their size.
    public var outputGate: Bool
    /// Layers that attend to all positions have no projection of values: they make them of keys.
    public var valuesFromKeys: Bool
    /// The last so many layers use keys and values of earlier ones.
    public var sharingLayers: Int
    /// Width of the dense feed-forward blocks of these layers, where it differs; at least 1.
    public var sharingFeedForwardSize: Int?
    /// Keys and values are kept as latent vectors.
    public var latent: LatentFacts?
    /// Positions are chosen by an index.
    public var index: IndexFacts?

    /// Of its fields.
    public init(
        heads: Int,
        kvHeads: Int? = nil,
        headSize: Int,
        outputGate: Bool = false,
        valuesFromKeys: Bool = false,
        sharingLayers: Int = 0,
        sharingFeedForwardSize: Int? = nil,
        latent: LatentFacts? = nil,
        index: IndexFacts? = nil
    ) {
        self.heads = heads
        self.kvHeads = kvHeads
        self.headSize = headSize
        self.outputGate = outputGate
        self.valuesFromKeys = valuesFromKeys
        self.sharingLayers = sharingLayers
        self.sharingFeedForwardSize = sharingFeedForwardSize
        self.latent = latent
        self.index = index
    }

    /// Reads what JSON has of it.
    public init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: CodingKeys.self)
        heads = try values.decode(Int.self, forKey: .heads)
        kvHeads = try values.decodeIfPresent(Int.self, forKey: .kvHeads)
        headSize = try values.decode(Int.self, forKey: .headSize)
        outputGate = try values.decodeIfPresent(Bool.self, forKey: .outputGate) ?? false
        valuesFromKeys = try values.decodeIfPresent(Bool.self, forKey: .valuesFromKeys) ?? false
        sharingLayers = try values.decodeIfPresent(Int.self, forKey: .sharingLayers) ?? 0
        sharingFeedForwardSize = try values.decodeIfPresent(Int.self, forKey: .sharingFeedForwardSize)
        latent = try values.decodeIfPresent(LatentFacts.self, forKey: .latent)
        index = try values.decodeIfPresent(IndexFacts.self, forKey: .index)
    }
}

/// Layers that attend to a window: heads are those of `attention` unless they are given.
public struct WindowFacts: Codable, Sendable, Hashable {
    /// Positions; at least 1.
    public var size: Int
    /// Heads of queries; at least 1.
    public var heads: Int?
    /// Heads of keys and values; at least 1.
    public var kvHeads: Int?
    /// Elements of a head; at least 1.
    public var headSize: Int?

    /// Of its fields.
    public init(size: Int, heads: Int? = nil, kvHeads: Int? = nil, headSize: Int? = nil) {
        self.size = size
        self.heads = heads
        self.kvHeads = kvHeads
        self.headSize = headSize
    }
}

/// Layers with states: a matrix for each head of values.
public struct RecurrentFacts: Codable, Sendable, Hashable {
    /// Heads of values, each with a state; at least 1.
    public var heads: Int
    /// Elements of a head of values; at least 1.
    public var headSize: Int
    /// Heads, or groups, of keys and queries; at least 1.
    public var keyHeads: Int
    /// Elements of a head of keys; at least 1.
    public var keySize: Int
    /// Positions that channels are convolved over; at least 1.
    public var convolution: Int

    /// Of its fields.
    public init(heads: Int, headSize: Int, keyHeads: Int, keySize: Int, convolution: Int) {
        self.heads = heads
        self.headSize = headSize
        self.keyHeads = keyHeads
        self.keySize = keySize
        self.convolution = convolution
    }
}

/// The experts of a mixture.
public struct ExpertFacts: Codable, Sendable, Hashable {
    /// Routed experts of a layer; at least 1.
    public var count: Int
    /// Routed experts that a token takes; at least 1.
    public var perToken: Int
    /// Width of a routed expert; at least 1.
    public var size: Int
    /// Width of all that every token takes beside routed experts, together.
    public var sharedSize: Int
    /// The first so many layers are dense.
    public var denseLayers: Int
    /// Bits of a routed expert's weight with its scales. Where unknown, as many as other weights have.
    public var bits: Double?

    /// Of its fields.
    public init(count: Int, perToken: Int, size: Int, sharedSize: Int = 0, denseLayers: Int = 0, bits: Double? = nil) {
        self.count = count
        self.perToken = perToken
        self.size = size
        self.sharedSize = sharedSize
        self.denseLayers = denseLayers
        self.bits = bits
    }

    /// Reads what JSON has of it.
    public init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: CodingKeys.self)
        count = try values.decode(Int.self, forKey: .count)
        perToken = try values.decode(Int.self, forKey: .perToken)
        size = try values.decode(Int.self, forKey: .size)
        sharedSize = try values.decodeIfPresent(Int.self, forKey: .sharedSize) ?? 0
        denseLayers = try values.decodeIfPresent(Int.self, forKey: .denseLayers) ?? 0
        bits = try values.decodeIfPresent(Double.self, forKey: .bits)
    }
}

/// What a model is made of: all that plans need to know of it before its checkpoint is there.
public struct ModelFacts: Codable, Sendable, Hashable {
    /// The version of this section: 1. Of later versions only `version` and `source` are read.
    public var version: Int
    /// Where the facts are from, as the address of a configuration.
    public var source: String
    /// Rows of the embedding table, and of the head; at least 1.
    public var vocabSize: Int?
    /// The head is the embedding table.
    public var tiedEmbeddings: Bool
    /// What the layers are, in their order; repeated for as many layers as there are.
    public var layers: [LayerKind]
    /// Width of dense feed-forward blocks, in elements; at least 1.
    public var feedForwardSize: Int?
    /// Matrices of a feed-forward block or expert: 3 with a gate, 2 without.
    public var feedForwardMatrices: Int
    /// Elements of what each layer gets of each token beside the residual stream; at least 1.
    public var layerInputSize: Int?
    /// Bits of a weight with its scales, of all but routed experts. Where unknown, all weights count alike.
    public var bits: Double?
    /// The same of dense feed-forward blocks and shared experts, where it differs.
    public var feedForwardBits: Double?
    /// Parameters of parts beside the decoder, which see and hear; of 16 bits each.
    public var otherParameters: Int
    /// Attention.
    public var attention: AttentionFacts?
    /// What is otherwise in layers that attend to a window.
    public var window: WindowFacts?
    /// Layers with states.
    public var recurrent: RecurrentFacts?
    /// Experts, in mixtures.
    public var experts: ExpertFacts?

    /// Of its fields.
    public init(
        version: Int = 1,
        source: String = "",
        vocabSize: Int? = nil,
        tiedEmbeddings: Bool = false,
        layers: [LayerKind] = [.full],
        feedForwardSize: Int? = nil,
        feedForwardMatrices: Int = 3,
        layerInputSize: Int? = nil,
        bits: Double? = nil,
        feedForwardBits: Double? = nil,
        otherParameters: Int = 0,
        attention: AttentionFacts? = nil,
        window: WindowFacts? = nil,
        recurrent: RecurrentFacts? = nil,
        experts: ExpertFacts? = nil
    ) {
        self.version = version
        self.source = source
        self.vocabSize = vocabSize
        self.tiedEmbeddings = tiedEmbeddings
        self.layers = layers
        self.feedForwardSize = feedForwardSize
        self.feedForwardMatrices = feedForwardMatrices
        self.layerInputSize = layerInputSize
        self.bits = bits
        self.feedForwardBits = feedForwardBits
        self.otherParameters = otherParameters
        self.attention = attention
        self.window = window
        self.recurrent = recurrent
        self.experts = experts
    }

    /// Reads what JSON has of it.
    public init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: CodingKeys.self)
        version = try values.decodeIfPresent(Int.self, forKey: .version) ?? 1
        source = try values.decodeIfPresent(String.self, forKey: .source) ?? ""
        vocabSize = try values.decodeIfPresent(Int.self, forKey: .vocabSize)
        tiedEmbeddings = try values.decodeIfPresent(Bool.self, forKey: .tiedEmbeddings) ?? false
        layers = try values.decodeIfPresent([LayerKind].self, forKey: .layers) ?? [.full]
        feedForwardSize = try values.decodeIfPresent(Int.self, forKey: .feedForwardSize)
        feedForwardMatrices = try values.decodeIfPresent(Int.self, forKey: .feedForwardMatrices) ?? 3
        layerInputSize = try values.decodeIfPresent(Int.self, forKey: .layerInputSize)
        bits = try values.decodeIfPresent(Double.self, forKey: .bits)
        feedForwardBits = try values.decodeIfPresent(Double.self, forKey: .feedForwardBits)
        otherParameters = try values.decodeIfPresent(Int.self, forKey: .otherParameters) ?? 0
        attention = try values.decodeIfPresent(AttentionFacts.self, forKey: .attention)
        window = try values.decodeIfPresent(WindowFacts.self, forKey: .window)
        recurrent = try values.decodeIfPresent(RecurrentFacts.self, forKey: .recurrent)
        experts = try values.decodeIfPresent(ExpertFacts.self, forKey: .experts)
    }
}

/// Facts about one model, declared rather than measured. The only required ones are its identity, size, layers, width,
/// tasks, and whether its tensors can be split.
public struct ModelCard: Codable, Sendable, Hashable {
    /// The model's name, as in `org/name`.
    public var modelId: String
    /// Bytes of all weights.
    public var storageSize: StorageSize
    /// Decoder layers; at least 1.
    public var nLayers: Int
    /// Width of the residual stream; at least 1.
    public var hiddenSize: Int
    /// Its tensors can be split over nodes.
    public var supportsTensor: Bool
    /// Key/value heads. Where they are unknown, keys and values count for nothing in plans.
    public var numKeyValueHeads: Int?
    /// What it does.
    public var tasks: [ModelTask]
    /// Parts of a model that is made of several.
    public var components: [ComponentInfo]?
    /// Its family, as in `qwen`.
    public var family: String
    /// How its weights are stored, as in `4bit` or `Q4_K_M`; for people.
    public var quantization: String
    /// What it was made from; for people.
    public var baseModel: String
    /// The GGUF file that holds it. Any name but an empty one makes it a GGUF model.
    public var ggufFile: String?
    /// Free words; `vision`, `thinking` and `thinking_toggle` mean something to profiles.
    public var capabilities: [String]
    /// Positions it was trained for, in tokens; 0 or less: unknown.
    public var contextLength: Int
    /// It runs twice for each step, for classifier-free guidance.
    public var usesCfg: Bool
    /// Code that comes with the checkpoint may run, in software that runs such code.
    public var trustRemoteCode: Bool
    /// The card is the user's. Never written to files.
    public var isCustom: Bool
    /// How it sees.
    public var vision: VisionCardConfig?
    /// How it reasons.
    public var reasoning: ReasoningCardConfig?
    /// What else than text it takes.
    public var modalities: ModalitiesCardConfig?
    /// How it calls tools.
    public var tooling: ToolingCardConfig?
    /// How it is run.
    public var runtime: RuntimeCardConfig?
    /// Where it can run.
    public var placement: PlacementCardConfig
    /// What it is made of. Nothing of it is needed; plans are better with it.
    public var facts: ModelFacts?

    /// Of its fields.
    public init(
        modelId: String,
        storageSize: StorageSize,
        nLayers: Int,
        hiddenSize: Int,
        supportsTensor: Bool,
        numKeyValueHeads: Int? = nil,
        tasks: [ModelTask],
        components: [ComponentInfo]? = nil,
        family: String = "",
        quantization: String = "",
        baseModel: String = "",
        ggufFile: String? = nil,
        capabilities: [String] = [],
        contextLength: Int = 0,
        usesCfg: Bool = false,
        trustRemoteCode: Bool = true,
        isCustom: Bool = false,
        vision: VisionCardConfig? = nil,
        reasoning: ReasoningCardConfig? = nil,
        modalities: ModalitiesCardConfig? = nil,
        tooling: ToolingCardConfig? = nil,
        runtime: RuntimeCardConfig? = nil,
        placement: PlacementCardConfig = PlacementCardConfig(),
        facts: ModelFacts? = nil
    ) {
        self.modelId = modelId
        self.storageSize = storageSize
        self.nLayers = nLayers
        self.hiddenSize = hiddenSize
        self.supportsTensor = supportsTensor
        self.numKeyValueHeads = numKeyValueHeads
        self.tasks = tasks
        self.components = components
        self.family = family
        self.quantization = quantization
        self.baseModel = baseModel
        self.ggufFile = ggufFile
        self.capabilities = capabilities
        self.contextLength = contextLength
        self.usesCfg = usesCfg
        self.trustRemoteCode = trustRemoteCode
        self.isCustom = isCustom
        self.vision = vision
        self.reasoning = reasoning
        self.modalities = modalities
        self.tooling = tooling
        self.runtime = runtime
        self.placement = placement
        self.facts = facts
    }

    /// Reads what JSON has of it.
    public init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: CodingKeys.self)
        modelId = try values.decode(String.self, forKey: .modelId)
        storageSize = try values.decode(StorageSize.self, forKey: .storageSize)
        nLayers = try values.decode(Int.self, forKey: .nLayers)
        hiddenSize = try values.decode(Int.self, forKey: .hiddenSize)
        supportsTensor = try values.decode(Bool.self, forKey: .supportsTensor)
        numKeyValueHeads = try values.decodeIfPresent(Int.self, forKey: .numKeyValueHeads)
        tasks = try values.decode([ModelTask].self, forKey: .tasks)
        components = try values.decodeIfPresent([ComponentInfo].self, forKey: .components)
        family = try values.decodeIfPresent(String.self, forKey: .family) ?? ""
        quantization = try values.decodeIfPresent(String.self, forKey: .quantization) ?? ""
        baseModel = try values.decodeIfPresent(String.self, forKey: .baseModel) ?? ""
        ggufFile = try values.decodeIfPresent(String.self, forKey: .ggufFile)
        capabilities = try values.decodeIfPresent([String].self, forKey: .capabilities) ?? []
        contextLength = try values.decodeIfPresent(Int.self, forKey: .contextLength) ?? 0
        usesCfg = try values.decodeIfPresent(Bool.self, forKey: .usesCfg) ?? false
        trustRemoteCode = try values.decodeIfPresent(Bool.self, forKey: .trustRemoteCode) ?? true
        isCustom = try values.decodeIfPresent(Bool.self, forKey: .isCustom) ?? false
        vision = try values.decodeIfPresent(VisionCardConfig.self, forKey: .vision)
        reasoning = try values.decodeIfPresent(ReasoningCardConfig.self, forKey: .reasoning)
        modalities = try values.decodeIfPresent(ModalitiesCardConfig.self, forKey: .modalities)
        tooling = try values.decodeIfPresent(ToolingCardConfig.self, forKey: .tooling)
        runtime = try values.decodeIfPresent(RuntimeCardConfig.self, forKey: .runtime)
        placement = try values.decodeIfPresent(PlacementCardConfig.self, forKey: .placement) ?? PlacementCardConfig()
        facts = try values.decodeIfPresent(ModelFacts.self, forKey: .facts)
    }
}

/// What a request says about reasoning; also what is left of it for a given model.
public struct Reasoning: Codable, Sendable, Hashable {
    /// How much. `none`: Not at all; `minimal`: Hardly; `low`: Little; `medium`: Some; `high`: Much; `xhigh`: As much
    /// as it can.
    public var effort: ReasoningEffort?
    /// Whether at all.
    public var enableThinking: Bool?

    /// Of its fields.
    public init(effort: ReasoningEffort?, enableThinking: Bool?) {
        self.effort = effort
        self.enableThinking = enableThinking
    }
}

/// What a card resolves to: the facts that running a model is decided by. `Default` is a model of which nothing is
/// known.
public struct Profile: Codable, Sendable, Hashable {
    /// The card's family, else the id's first word.
    public var family: String
    /// It reasons before it answers.
    public var supportsThinking: Bool
    /// Requests can turn that on and off.
    public var supportsThinkingToggle: Bool
    /// Requests can bound it.
    public var supportsThinkingBudget: Bool
    /// How much it reasons where a request turns reasoning on without saying. `none`: Not at all; `minimal`: Hardly;
    /// `low`: Little; `medium`: Some; `high`: Much; `xhigh`: As much as it can.
    public var defaultReasoningEffort: ReasoningEffort
    /// What turning it off means. `none`: Not at all; `minimal`: Hardly; `low`: Little; `medium`: Some; `high`: Much;
    /// `xhigh`: As much as it can.
    public var disabledReasoningEffort: ReasoningEffort
    /// How reasoning is marked. `none`: Not at all; `token_delimited`: Between two markers, as `<think>` and
    /// `</think>`; `channel_delimited`: On a channel of its own.
    public var thinkingFormat: ReasoningFormat
    /// It sees.
    public var supportsImageInput: Bool
    /// It hears.
    public var supportsAudioInput: Bool
    /// It calls tools.
    public var supportsToolCalling: Bool
    /// Tools that it was trained with.
    public var builtinTools: [BuiltinTool]
    /// How it writes calls. `generic`: As its tokenizer's chat template says; `gemma4`: Gemma 4's; `gpt_oss`: Harmony,
    /// of gpt-oss; `dsml`: DeepSeek V3.2's markup.
    public var toolCallFormat: ToolCallFormat
    /// What turns messages into a prompt. `tokenizer`: The chat template of the tokenizer; `gemma4`: Gemma 4's; `dsml`:
    /// DeepSeek V3.2's.
    public var promptRenderer: PromptRenderer
    /// What takes an answer apart. `generic`: By the thinking format and the tool-call format; `gemma4`: Gemma 4's;
    /// `gpt_oss`: Harmony, of gpt-oss; `deepseek_v32`: DeepSeek V3.2's.
    public var outputParser: OutputParser
    /// Its other inputs are part of the model itself.
    public var supportsNativeMultimodal: Bool

    /// Of its fields.
    public init(
        family: String,
        supportsThinking: Bool,
        supportsThinkingToggle: Bool,
        supportsThinkingBudget: Bool,
        defaultReasoningEffort: ReasoningEffort,
        disabledReasoningEffort: ReasoningEffort,
        thinkingFormat: ReasoningFormat,
        supportsImageInput: Bool,
        supportsAudioInput: Bool,
        supportsToolCalling: Bool,
        builtinTools: [BuiltinTool],
        toolCallFormat: ToolCallFormat,
        promptRenderer: PromptRenderer,
        outputParser: OutputParser,
        supportsNativeMultimodal: Bool
    ) {
        self.family = family
        self.supportsThinking = supportsThinking
        self.supportsThinkingToggle = supportsThinkingToggle
        self.supportsThinkingBudget = supportsThinkingBudget
        self.defaultReasoningEffort = defaultReasoningEffort
        self.disabledReasoningEffort = disabledReasoningEffort
        self.thinkingFormat = thinkingFormat
        self.supportsImageInput = supportsImageInput
        self.supportsAudioInput = supportsAudioInput
        self.supportsToolCalling = supportsToolCalling
        self.builtinTools = builtinTools
        self.toolCallFormat = toolCallFormat
        self.promptRenderer = promptRenderer
        self.outputParser = outputParser
        self.supportsNativeMultimodal = supportsNativeMultimodal
    }
}

/// A node's main memory, in bytes.
public struct NodeMemory: Codable, Sendable, Hashable {
    /// All there is.
    public var ramTotal: Int
    /// What programs can still get.
    public var ramAvailable: Int

    /// Of its fields.
    public init(ramTotal: Int, ramAvailable: Int) {
        self.ramTotal = ramTotal
        self.ramAvailable = ramAvailable
    }
}

/// A device of a node that computes. What is not known is `nil`, which is not 0.
public struct Accelerator: Codable, Sendable, Hashable {
    /// Who made it. `cpu`: The CPU itself; `unknown`: Somebody else.
    public var vendor: Vendor
    /// Its name.
    public var name: String
    /// Its own memory, in bytes.
    public var vramTotalBytes: Int?
    /// How much of that is in use.
    public var vramUsedBytes: Int?
    /// Main memory that it can reach, in bytes.
    public var gttTotalBytes: Int?
    /// Its memory is main memory. Plans then leave work to the processor, which reads as fast, unless Apple made it or
    /// `bytesPerSecond` says otherwise.
    public var sharesMemory: Bool
    /// The backend of this library that drives it, as in `skulk-wgpu-vulkan`.
    public var backend: String?
    /// Bytes a second that it reads from its memory. `nil`: what the table of devices has under its name.
    public var bytesPerSecond: Double?
    /// Operations a second of a prompt's products, a product and a sum being two; what else layers do takes its part of
    /// the second. `nil`: as above.
    public var operationsPerSecond: Double?
    /// Seconds that it takes for a layer whatever its size. `nil`: as above.
    public var layerSeconds: Double?
    /// Seconds until it has answered another device of its node. `nil`: 100 µs are assumed.
    public var roundTripSeconds: Double?

    /// Of its fields.
    public init(
        vendor: Vendor = .unknown,
        name: String = "",
        vramTotalBytes: Int? = nil,
        vramUsedBytes: Int? = nil,
        gttTotalBytes: Int? = nil,
        sharesMemory: Bool = false,
        backend: String? = nil,
        bytesPerSecond: Double? = nil,
        operationsPerSecond: Double? = nil,
        layerSeconds: Double? = nil,
        roundTripSeconds: Double? = nil
    ) {
        self.vendor = vendor
        self.name = name
        self.vramTotalBytes = vramTotalBytes
        self.vramUsedBytes = vramUsedBytes
        self.gttTotalBytes = gttTotalBytes
        self.sharesMemory = sharesMemory
        self.backend = backend
        self.bytesPerSecond = bytesPerSecond
        self.operationsPerSecond = operationsPerSecond
        self.layerSeconds = layerSeconds
        self.roundTripSeconds = roundTripSeconds
    }

    /// Reads what JSON has of it.
    public init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: CodingKeys.self)
        vendor = try values.decodeIfPresent(Vendor.self, forKey: .vendor) ?? .unknown
        name = try values.decodeIfPresent(String.self, forKey: .name) ?? ""
        vramTotalBytes = try values.decodeIfPresent(Int.self, forKey: .vramTotalBytes)
        vramUsedBytes = try values.decodeIfPresent(Int.self, forKey: .vramUsedBytes)
        gttTotalBytes = try values.decodeIfPresent(Int.self, forKey: .gttTotalBytes)
        sharesMemory = try values.decodeIfPresent(Bool.self, forKey: .sharesMemory) ?? false
        backend = try values.decodeIfPresent(String.self, forKey: .backend)
        bytesPerSecond = try values.decodeIfPresent(Double.self, forKey: .bytesPerSecond)
        operationsPerSecond = try values.decodeIfPresent(Double.self, forKey: .operationsPerSecond)
        layerSeconds = try values.decodeIfPresent(Double.self, forKey: .layerSeconds)
        roundTripSeconds = try values.decodeIfPresent(Double.self, forKey: .roundTripSeconds)
    }
}

/// A network interface of a node.
public struct NetworkInterface: Codable, Sendable, Hashable {
    /// Its name, as in `en0`.
    public var name: String
    /// Its address.
    public var ipAddress: String
    /// What it is. `wifi`: Wireless; `maybe_ethernet`: Probably Ethernet; `unknown`: Nobody knows.
    public var interfaceType: InterfaceType

    /// Of its fields.
    public init(name: String, ipAddress: String, interfaceType: InterfaceType = .unknown) {
        self.name = name
        self.ipAddress = ipAddress
        self.interfaceType = interfaceType
    }

    /// Reads what JSON has of it.
    public init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: CodingKeys.self)
        name = try values.decode(String.self, forKey: .name)
        ipAddress = try values.decode(String.self, forKey: .ipAddress)
        interfaceType = try values.decodeIfPresent(InterfaceType.self, forKey: .interfaceType) ?? .unknown
    }
}

/// A machine. What it has not reported yet is `nil`.
public struct Node: Codable, Sendable, Hashable {
    /// Its name.
    public var id: String
    /// What it does. `full`: Any part of a model; `management`: None: it only coordinates; `ffn_only`: Feed-forward
    /// blocks and experts, never attention.
    public var role: Role
    /// Tags of the backends it has, as in `mlx` or `skulk-cpu`.
    public var backends: Set<String>?
    /// Its main memory.
    public var memory: NodeMemory?
    /// Bytes a second that it reads from main memory. `nil`: what the table of devices has for an accelerator by the
    /// maker `cpu`, as `EPYC 9654` or `DDR5-5600, 2 channels`, or for one that shares main memory.
    public var bytesPerSecond: Double?
    /// Operations a second of a prompt's products alone, a product and a sum being two. `nil`: as above.
    public var operationsPerSecond: Double?
    /// Seconds that its processor takes for a layer whatever its size. `nil`: as above.
    public var layerSeconds: Double?
    /// Bytes a second that it reads from the disk that has the model. `nil`: 3 GB/s are assumed.
    public var diskBytesPerSecond: Double?
    /// Its processor cores.
    public var cores: Int?
    /// Its accelerators.
    public var accelerators: [Accelerator]
    /// Where it serves feed-forward blocks and experts, as in `http://192.168.7.4:8080`.
    public var address: String?
    /// Its network interfaces.
    public var interfaces: [NetworkInterface]
    /// Which share of a model's bytes lies on its disk, by model: 0 to 1.
    public var downloads: [String: Double]

    /// Of its fields.
    public init(
        id: String,
        role: Role = .full,
        backends: Set<String>? = nil,
        memory: NodeMemory? = nil,
        bytesPerSecond: Double? = nil,
        operationsPerSecond: Double? = nil,
        layerSeconds: Double? = nil,
        diskBytesPerSecond: Double? = nil,
        cores: Int? = nil,
        accelerators: [Accelerator] = [],
        address: String? = nil,
        interfaces: [NetworkInterface] = [],
        downloads: [String: Double] = [:]
    ) {
        self.id = id
        self.role = role
        self.backends = backends
        self.memory = memory
        self.bytesPerSecond = bytesPerSecond
        self.operationsPerSecond = operationsPerSecond
        self.layerSeconds = layerSeconds
        self.diskBytesPerSecond = diskBytesPerSecond
        self.cores = cores
        self.accelerators = accelerators
        self.address = address
        self.interfaces = interfaces
        self.downloads = downloads
    }

    /// Reads what JSON has of it.
    public init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: CodingKeys.self)
        id = try values.decode(String.self, forKey: .id)
        role = try values.decodeIfPresent(Role.self, forKey: .role) ?? .full
        backends = try values.decodeIfPresent(Set<String>.self, forKey: .backends)
        memory = try values.decodeIfPresent(NodeMemory.self, forKey: .memory)
        bytesPerSecond = try values.decodeIfPresent(Double.self, forKey: .bytesPerSecond)
        operationsPerSecond = try values.decodeIfPresent(Double.self, forKey: .operationsPerSecond)
        layerSeconds = try values.decodeIfPresent(Double.self, forKey: .layerSeconds)
        diskBytesPerSecond = try values.decodeIfPresent(Double.self, forKey: .diskBytesPerSecond)
        cores = try values.decodeIfPresent(Int.self, forKey: .cores)
        accelerators = try values.decodeIfPresent([Accelerator].self, forKey: .accelerators) ?? []
        address = try values.decodeIfPresent(String.self, forKey: .address)
        interfaces = try values.decodeIfPresent([NetworkInterface].self, forKey: .interfaces) ?? []
        downloads = try values.decodeIfPresent([String: Double].self, forKey: .downloads) ?? [:]
    }
}

/// How fast a link is.
public struct LinkSpeed: Codable, Sendable, Hashable {
    /// Seconds for a message there and an answer back.
    public var roundTripSeconds: Double
    /// Bytes a second.
    public var bytesPerSecond: Double

    /// Of its fields.
    public init(roundTripSeconds: Double = 0.0005, bytesPerSecond: Double = 117000000.0) {
        self.roundTripSeconds = roundTripSeconds
        self.bytesPerSecond = bytesPerSecond
    }

    /// Reads what JSON has of it.
    public init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: CodingKeys.self)
        roundTripSeconds = try values.decodeIfPresent(Double.self, forKey: .roundTripSeconds) ?? 0.0005
        bytesPerSecond = try values.decodeIfPresent(Double.self, forKey: .bytesPerSecond) ?? 117000000.0
    }
}

/// Sockets: the address at which the sink was reached.
public struct Socket: Codable, Sendable, Hashable {
    /// A host name or address, without port.
    public var address: String

    /// Of its fields.
    public init(address: String) {
        self.address = address
    }
}

/// Remote direct memory access.
public struct Rdma: Codable, Sendable, Hashable {
    /// The source's interface.
    public var sourceIface: String
    /// The sink's interface.
    public var sinkIface: String

    /// Of its fields.
    public init(sourceIface: String, sinkIface: String) {
        self.sourceIface = sourceIface
        self.sinkIface = sinkIface
    }
}

/// A connection that a node has to another, in one direction.
public struct NodeLink: Codable, Sendable, Hashable {
    /// Who connects.
    public var source: String
    /// To whom.
    public var sink: String
    /// Over what: one of these, whose fields stand among these with its `type`.
    public var kind: LinkKind
    /// How fast, where that was measured.
    public var speed: LinkSpeed?

    /// Of its fields.
    public init(source: String, sink: String, kind: LinkKind, speed: LinkSpeed? = nil) {
        self.source = source
        self.sink = sink
        self.kind = kind
        self.speed = speed
    }

    enum CodingKeys: CodingKey {
        case source, sink, speed
    }

    /// Reads what JSON has of it.
    public init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: CodingKeys.self)
        source = try values.decode(String.self, forKey: .source)
        sink = try values.decode(String.self, forKey: .sink)
        kind = try LinkKind(from: decoder)
        speed = try values.decodeIfPresent(LinkSpeed.self, forKey: .speed)
    }

    /// Writes it as JSON has it.
    public func encode(to encoder: any Encoder) throws {
        var values = encoder.container(keyedBy: CodingKeys.self)
        try values.encode(source, forKey: .source)
        try values.encode(sink, forKey: .sink)
        try kind.encode(to: encoder)
        try values.encodeIfPresent(speed, forKey: .speed)
    }
}

/// One of several kinds, whose fields stand among its owner's in JSON.
public enum LinkKind: Codable, Sendable, Hashable {
    /// This kind.
    case socket(Socket)
    /// This kind.
    case rdma(Rdma)

    enum CodingKeys: CodingKey {
        case type
    }

    /// Reads what JSON has of it.
    public init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: CodingKeys.self)
        switch try values.decode(String.self, forKey: .type) {
        case "socket": self = .socket(try Socket(from: decoder))
        case "rdma": self = .rdma(try Rdma(from: decoder))
        case let other:
            throw DecodingError.dataCorruptedError(
                forKey: .type, in: values, debugDescription: "there is no kind `\(other)`")
        }
    }

    /// Writes it as JSON has it.
    public func encode(to encoder: any Encoder) throws {
        var values = encoder.container(keyedBy: CodingKeys.self)
        switch self {
        case .socket(let own):
            try values.encode("socket", forKey: .type)
            try own.encode(to: encoder)
        case .rdma(let own):
            try values.encode("rdma", forKey: .type)
            try own.encode(to: encoder)
        }
    }
}

/// The nodes of a host and how they are connected. The order of nodes never changes what is planned, but for the names
/// in it.
public struct Cluster: Codable, Sendable, Hashable {
    /// The machines.
    public var nodes: [Node]
    /// Connections, in one direction each.
    public var links: [NodeLink]
    /// Every two nodes are connected in both directions, like this where no link says otherwise.
    public var mesh: LinkSpeed?

    /// Of its fields.
    public init(nodes: [Node], links: [NodeLink] = [], mesh: LinkSpeed? = nil) {
        self.nodes = nodes
        self.links = links
        self.mesh = mesh
    }

    /// Reads what JSON has of it.
    public init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: CodingKeys.self)
        nodes = try values.decode([Node].self, forKey: .nodes)
        links = try values.decodeIfPresent([NodeLink].self, forKey: .links) ?? []
        mesh = try values.decodeIfPresent(LinkSpeed.self, forKey: .mesh)
    }
}

/// The bytes of one layer.
public struct LayerBytes: Codable, Sendable, Hashable {
    /// Attention, norms and router: what stays with the layer's keys and values.
    public var attention: Int
    /// The router's part of these.
    public var router: Int
    /// What every token reads of the feed-forward block: all of a dense one, a mixture's shared experts.
    public var ffn: Int
    /// Routed experts; 0: a dense block.
    public var nExperts: Int
    /// Experts that a token takes.
    public var nUsed: Int
    /// Bytes of one routed expert.
    public var expert: Int
    /// Loading copies the experts, which are stored in another order than they are used in: they cannot stay on disk.
    public var copied: Bool
    /// Keys and values of one token, in half precision.
    public var kvPerToken: Int
    /// Elements of a row's queries, all heads', and of what they make of values: numbers that are multiplied at each
    /// position that the row sees. 0: it attends to none, or it is not known and taken for twice the hidden size.
    public var attended: Int
    /// Elements of a head of keys, and of values; 0: not known, and taken for a multiple of 32.
    public var kvHeadDim: Int
    /// Values are the first part of keys and kept once, as latent vectors are: in the more precise of the types of
    /// both.
    public var latent: Bool
    /// Tokens that the cache holds at most, where attention looks through a window.
    public var window: Int?
    /// It is in one stage with the layer before: it, or a later one, uses keys and values of an earlier one.
    public var joined: Bool
    /// What it keeps of a sequence of whatever length: states, where it has such instead of keys and values.
    public var state: Int

    /// Of its fields.
    public init(
        attention: Int = 0,
        router: Int = 0,
        ffn: Int = 0,
        nExperts: Int = 0,
        nUsed: Int = 0,
        expert: Int = 0,
        copied: Bool = false,
        kvPerToken: Int = 0,
        attended: Int = 0,
        kvHeadDim: Int = 0,
        latent: Bool = false,
        window: Int? = nil,
        joined: Bool = false,
        state: Int = 0
    ) {
        self.attention = attention
        self.router = router
        self.ffn = ffn
        self.nExperts = nExperts
        self.nUsed = nUsed
        self.expert = expert
        self.copied = copied
        self.kvPerToken = kvPerToken
        self.attended = attended
        self.kvHeadDim = kvHeadDim
        self.latent = latent
        self.window = window
        self.joined = joined
        self.state = state
    }

    /// Reads what JSON has of it.
    public init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: CodingKeys.self)
        attention = try values.decodeIfPresent(Int.self, forKey: .attention) ?? 0
        router = try values.decodeIfPresent(Int.self, forKey: .router) ?? 0
        ffn = try values.decodeIfPresent(Int.self, forKey: .ffn) ?? 0
        nExperts = try values.decodeIfPresent(Int.self, forKey: .nExperts) ?? 0
        nUsed = try values.decodeIfPresent(Int.self, forKey: .nUsed) ?? 0
        expert = try values.decodeIfPresent(Int.self, forKey: .expert) ?? 0
        copied = try values.decodeIfPresent(Bool.self, forKey: .copied) ?? false
        kvPerToken = try values.decodeIfPresent(Int.self, forKey: .kvPerToken) ?? 0
        attended = try values.decodeIfPresent(Int.self, forKey: .attended) ?? 0
        kvHeadDim = try values.decodeIfPresent(Int.self, forKey: .kvHeadDim) ?? 0
        latent = try values.decodeIfPresent(Bool.self, forKey: .latent) ?? false
        window = try values.decodeIfPresent(Int.self, forKey: .window)
        joined = try values.decodeIfPresent(Bool.self, forKey: .joined) ?? false
        state = try values.decodeIfPresent(Int.self, forKey: .state) ?? 0
    }
}

/// The weight bytes of a model's parts, and what a token costs each layer's cache.
public struct Inventory: Codable, Sendable, Hashable {
    /// One entry a layer.
    public var layers: [LayerBytes]
    /// The embedding table, with the norm of what layers get of tokens: in the first stage, and in the last one too
    /// where it is the head as well.
    public var embedding: Int
    /// All stages hold the embedding table: their layers have inputs from tokens' embeddings.
    public var embeddingEverywhere: Bool
    /// The head is the embedding table.
    public var tiedEmbeddings: Bool
    /// The last stage's: final norm, what makes one residual stream of several, and head unless that is the embedding
    /// table.
    public var head: Int
    /// Bytes of a row of hidden states, as stages hand it on: of all residual streams, where there are several. 0: of
    /// the card's hidden size.
    public var row: Int
    /// Bytes of a row in all buffers that a step's rows pass through, of this library's engines. 0: not known, and
    /// taken for sixteen rows of hidden states.
    public var stepRow: Int
    /// Tokens of the vocabulary, of which a step computes logits and a tokenizer holds spellings; 0: not known.
    public var vocabulary: Int
    /// Tokens of context that the model was trained for; 0: not known.
    public var context: Int
    /// Elements of the layers' weights; 0: not known, and taken from the bits of a weight that the card names.
    public var elements: Int
    /// They were counted in a checkpoint; else estimated from a card.
    public var exact: Bool
    /// The table of what layers get of tokens, of which each takes a row: it stays in the file.
    public var inputTable: Int
    /// What sees and hears, beside the decoder; not loaded.
    public var vision: Int
    /// Layers that predict further tokens, behind the last one; loaded where an option asks for that.
    public var mtp: Int
    /// The head for tokens ahead (MTP) that loading makes of these: its layer, with its norms, and what joins
    /// embeddings and hidden states. `nil`: there is none that this library knows.
    public var mtpLayer: LayerBytes?
    /// It drafts for another model, whose embedding table it uses.
    public var sharesEmbedding: Bool
    /// It drafts for another model, whose output head it uses.
    public var sharesHead: Bool
    /// What was guessed, in words.
    public var guessed: [String]

    /// Of its fields.
    public init(
        layers: [LayerBytes],
        embedding: Int = 0,
        embeddingEverywhere: Bool = false,
        tiedEmbeddings: Bool = false,
        head: Int = 0,
        row: Int = 0,
        stepRow: Int = 0,
        vocabulary: Int = 0,
        context: Int = 0,
        elements: Int = 0,
        exact: Bool = false,
        inputTable: Int = 0,
        vision: Int = 0,
        mtp: Int = 0,
        mtpLayer: LayerBytes? = nil,
        sharesEmbedding: Bool = false,
        sharesHead: Bool = false,
        guessed: [String] = []
    ) {
        self.layers = layers
        self.embedding = embedding
        self.embeddingEverywhere = embeddingEverywhere
        self.tiedEmbeddings = tiedEmbeddings
        self.head = head
        self.row = row
        self.stepRow = stepRow
        self.vocabulary = vocabulary
        self.context = context
        self.elements = elements
        self.exact = exact
        self.inputTable = inputTable
        self.vision = vision
        self.mtp = mtp
        self.mtpLayer = mtpLayer
        self.sharesEmbedding = sharesEmbedding
        self.sharesHead = sharesHead
        self.guessed = guessed
    }

    /// Reads what JSON has of it.
    public init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: CodingKeys.self)
        layers = try values.decode([LayerBytes].self, forKey: .layers)
        embedding = try values.decodeIfPresent(Int.self, forKey: .embedding) ?? 0
        embeddingEverywhere = try values.decodeIfPresent(Bool.self, forKey: .embeddingEverywhere) ?? false
        tiedEmbeddings = try values.decodeIfPresent(Bool.self, forKey: .tiedEmbeddings) ?? false
        head = try values.decodeIfPresent(Int.self, forKey: .head) ?? 0
        row = try values.decodeIfPresent(Int.self, forKey: .row) ?? 0
        stepRow = try values.decodeIfPresent(Int.self, forKey: .stepRow) ?? 0
        vocabulary = try values.decodeIfPresent(Int.self, forKey: .vocabulary) ?? 0
        context = try values.decodeIfPresent(Int.self, forKey: .context) ?? 0
        elements = try values.decodeIfPresent(Int.self, forKey: .elements) ?? 0
        exact = try values.decodeIfPresent(Bool.self, forKey: .exact) ?? false
        inputTable = try values.decodeIfPresent(Int.self, forKey: .inputTable) ?? 0
        vision = try values.decodeIfPresent(Int.self, forKey: .vision) ?? 0
        mtp = try values.decodeIfPresent(Int.self, forKey: .mtp) ?? 0
        mtpLayer = try values.decodeIfPresent(LayerBytes.self, forKey: .mtpLayer)
        sharesEmbedding = try values.decodeIfPresent(Bool.self, forKey: .sharesEmbedding) ?? false
        sharesHead = try values.decodeIfPresent(Bool.self, forKey: .sharesHead) ?? false
        guessed = try values.decodeIfPresent([String].self, forKey: .guessed) ?? []
    }
}

/// Facts about a model's architecture.
public struct Arch: Codable, Sendable, Hashable {
    /// Family label as the checkpoint spells it, e.g. `llama`.
    public var family: String
    /// Number of decoder layers.
    public var nLayers: Int
    /// Width of the residual stream.
    public var hiddenSize: Int
    /// Rows of the embedding table.
    public var vocabSize: Int
    /// Positions the model was trained for, in tokens.
    public var contextLength: Int

    /// Of its fields.
    public init(family: String, nLayers: Int, hiddenSize: Int, vocabSize: Int, contextLength: Int) {
        self.family = family
        self.nLayers = nLayers
        self.hiddenSize = hiddenSize
        self.vocabSize = vocabSize
        self.contextLength = contextLength
    }
}

/// A device that engines run on.
public struct Device: Codable, Sendable, Hashable {
    /// The engine that runs on it, by the name that loading takes, e.g. `wgpu-vulkan:0`.
    public var engine: String
    /// The device's name.
    public var name: String
    /// Who made it. `cpu`: The CPU itself; `unknown`: Somebody else.
    public var vendor: Vendor
    /// Its driver and the driver's version; empty for the CPU.
    public var driver: String
    /// It is a GPU in name only, and computes on the CPU: no engine chooses it by itself.
    public var software: Bool
    /// Its memory, where the system tells.
    public var memoryBytes: Int?
    /// How much of a GPU's own memory is in use, where the system tells.
    public var memoryUsedBytes: Int?
    /// Its memory is the CPU's.
    public var sharesMemory: Bool

    /// Of its fields.
    public init(
        engine: String,
        name: String,
        vendor: Vendor,
        driver: String,
        software: Bool,
        memoryBytes: Int?,
        memoryUsedBytes: Int?,
        sharesMemory: Bool
    ) {
        self.engine = engine
        self.name = name
        self.vendor = vendor
        self.driver = driver
        self.software = software
        self.memoryBytes = memoryBytes
        self.memoryUsedBytes = memoryUsedBytes
        self.sharesMemory = sharesMemory
    }
}

/// What one stage of a loaded model holds.
public struct Stage: Codable, Sendable, Hashable {
    /// The engine that runs it.
    public var engine: String
    /// The engine's device in words.
    public var device: String
    /// Its layers.
    public var layers: Range<Int>
    /// Weight bytes it has mapped, read or copied. Stages that share a tied embedding table both count it, though it
    /// exists once.
    public var weightBytes: Int
    /// Keys and values of one full-length session.
    public var kvCacheBytes: Int
    /// Where its weights lie: in the file's map, or read into memory of their own; with a budget, those that it is not
    /// for.
    public var memory: Memory

    /// Of its fields.
    public init(
        engine: String,
        device: String,
        layers: Range<Int>,
        weightBytes: Int,
        kvCacheBytes: Int,
        memory: Memory
    ) {
        self.engine = engine
        self.device = device
        self.layers = layers
        self.weightBytes = weightBytes
        self.kvCacheBytes = kvCacheBytes
        self.memory = memory
    }

    enum CodingKeys: CodingKey {
        case engine, device, layers, weightBytes, kvCacheBytes, memory
    }

    /// Reads what JSON has of it.
    public init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: CodingKeys.self)
        engine = try values.decode(String.self, forKey: .engine)
        device = try values.decode(String.self, forKey: .device)
        layers = try values.decode(Span.self, forKey: .layers).range
        weightBytes = try values.decode(Int.self, forKey: .weightBytes)
        kvCacheBytes = try values.decode(Int.self, forKey: .kvCacheBytes)
        memory = try values.decode(Memory.self, forKey: .memory)
    }

    /// Writes it as JSON has it.
    public func encode(to encoder: any Encoder) throws {
        var values = encoder.container(keyedBy: CodingKeys.self)
        try values.encode(engine, forKey: .engine)
        try values.encode(device, forKey: .device)
        try values.encode(Span(layers), forKey: .layers)
        try values.encode(weightBytes, forKey: .weightBytes)
        try values.encode(kvCacheBytes, forKey: .kvCacheBytes)
        try values.encode(memory, forKey: .memory)
    }
}

/// What is in memory of feed-forward weights that a budget bounds.
public struct FfnMemory: Codable, Sendable, Hashable {
    /// What may be in memory.
    public var budgetBytes: Int
    /// What is.
    public var inMemoryBytes: Int
    /// The most that ever was.
    public var peakBytes: Int
    /// What was let go, all in all.
    public var letGoBytes: Int

    /// Of its fields.
    public init(budgetBytes: Int, inMemoryBytes: Int, peakBytes: Int, letGoBytes: Int) {
        self.budgetBytes = budgetBytes
        self.inMemoryBytes = inMemoryBytes
        self.peakBytes = peakBytes
        self.letGoBytes = letGoBytes
    }
}

/// What keys and values take.
public struct KvMemory: Codable, Sendable, Hashable {
    /// What they may take; `nil`: no limit was given.
    public var budgetBytes: Int?
    /// Pages that sequences have, those that several share once.
    public var inUseBytes: Int
    /// Pages that nobody has and that are kept for sequences that begin with the same tokens. They go first.
    public var keptBytes: Int
    /// All that is reserved: these, and pages that are free to be taken.
    public var reservedBytes: Int

    /// Of its fields.
    public init(budgetBytes: Int?, inUseBytes: Int, keptBytes: Int, reservedBytes: Int) {
        self.budgetBytes = budgetBytes
        self.inUseBytes = inUseBytes
        self.keptBytes = keptBytes
        self.reservedBytes = reservedBytes
    }
}

/// How far a model's predictions are from an exact one's, over a text.
public struct Divergence: Codable, Sendable, Hashable {
    /// Tokens of the text. Behind each of them the next one is predicted.
    public var tokens: Int
    /// Mean of the Kullback-Leibler divergences `Σ p ln(p / q)` of the model's probabilities q from the exact ones p,
    /// in nats.
    public var meanKl: Double
    /// The largest of them.
    public var maxKl: Double
    /// Part of the predictions in which both find the same token most probable, 0 to 1; of equally probable ones the
    /// lower id counts.
    public var top1Agreement: Double

    /// Of its fields.
    public init(tokens: Int, meanKl: Double, maxKl: Double, top1Agreement: Double) {
        self.tokens = tokens
        self.meanKl = meanKl
        self.maxKl = maxKl
        self.top1Agreement = top1Agreement
    }
}

/// One way to compute tokens ahead, and its speed.
public struct SpeculationWay: Codable, Sendable, Hashable {
    /// What proposes tokens.
    public var speculate: Speculate
    /// How many in every step; `nil`: as many as pay.
    public var draftTokens: Int?
    /// Tokens a second behind the first one, over all texts; the median of three rounds.
    public var tokensPerSecond: Double
    /// The same as a multiple of what `off` makes.
    public var gain: Double
    /// Part of the proposed tokens that were right, 0 to 1; 0 where none were proposed.
    public var acceptance: Double
    /// Tokens that a step gave, on average.
    public var tokensPerStep: Double

    /// Of its fields.
    public init(
        speculate: Speculate,
        draftTokens: Int?,
        tokensPerSecond: Double,
        gain: Double,
        acceptance: Double,
        tokensPerStep: Double
    ) {
        self.speculate = speculate
        self.draftTokens = draftTokens
        self.tokensPerSecond = tokensPerSecond
        self.gain = gain
        self.acceptance = acceptance
        self.tokensPerStep = tokensPerStep
    }
}

/// What computing tokens ahead gains, by what proposes them and how many there are. Its text is a line for each way.
public struct SpeculationReport: Codable, Sendable, Hashable {
    /// Prompts that were tried.
    public var prompts: Int
    /// By way; the first one is `off`.
    public var ways: [SpeculationWay]
    /// The fastest way.
    public var best: SpeculationWay?
    /// The report as text.
    public var text: String

    /// Of its fields.
    public init(prompts: Int, ways: [SpeculationWay], best: SpeculationWay?, text: String) {
        self.prompts = prompts
        self.ways = ways
        self.best = best
        self.text = text
    }
}

/// A token with its log-probability.
public struct TokenLogprob: Codable, Sendable, Hashable {
    /// Its id.
    public var id: Int
    /// Natural logarithm of its probability under the model's raw logits.
    public var logprob: Double

    /// Of its fields.
    public init(id: Int, logprob: Double) {
        self.id = id
        self.logprob = logprob
    }
}

/// A token of the text.
public struct Token: Codable, Sendable, Hashable {
    /// Its id.
    public var id: Int
    /// Natural logarithm of its probability under the model's raw logits, when asked for; none where nothing else could
    /// come.
    public var logprob: Double?
    /// The likeliest tokens at this position, most likely first, as many as asked for.
    public var topLogprobs: [TokenLogprob]

    /// Of its fields.
    public init(id: Int, logprob: Double?, topLogprobs: [TokenLogprob]) {
        self.id = id
        self.logprob = logprob
        self.topLogprobs = topLogprobs
    }
}

/// Token counts of a generation.
public struct Usage: Codable, Sendable, Hashable {
    /// Tokens of the prompt.
    public var promptTokens: Int
    /// How many of them were still in the session's cache.
    public var cachedTokens: Int
    /// Tokens sampled, an end-of-sequence token included.
    public var completionTokens: Int

    /// Of its fields.
    public init(promptTokens: Int, cachedTokens: Int, completionTokens: Int) {
        self.promptTokens = promptTokens
        self.cachedTokens = cachedTokens
        self.completionTokens = completionTokens
    }
}

/// Durations of a generation.
public struct Timings: Codable, Sendable, Hashable {
    /// Opening the checkpoint, building the tokenizer and loading all stages.
    public var load: Double
    /// From the start of the generation to its first token.
    public var timeToFirstToken: Double
    /// Computing the prompt's tokens that were not cached.
    public var prefill: Double
    /// From the first token to the last.
    public var decode: Double
    /// Prompt tokens computed per second.
    public var prefillTokensPerSecond: Double
    /// Tokens per second after the first; 0 when there was only one.
    public var decodeTokensPerSecond: Double
    /// Tokens that were computed ahead.
    public var draftedTokens: Int
    /// Of these those that became part of the text.
    public var acceptedTokens: Int
    /// Steps that computed some ahead.
    public var draftSteps: Int
    /// The speed of its steps, as a multiple of the speed without tokens ahead, by how long steps without took
    /// meanwhile; 1 where that is not known.
    public var draftGain: Double

    /// Of its fields.
    public init(
        load: Double,
        timeToFirstToken: Double,
        prefill: Double,
        decode: Double,
        prefillTokensPerSecond: Double,
        decodeTokensPerSecond: Double,
        draftedTokens: Int,
        acceptedTokens: Int,
        draftSteps: Int,
        draftGain: Double
    ) {
        self.load = load
        self.timeToFirstToken = timeToFirstToken
        self.prefill = prefill
        self.decode = decode
        self.prefillTokensPerSecond = prefillTokensPerSecond
        self.decodeTokensPerSecond = decodeTokensPerSecond
        self.draftedTokens = draftedTokens
        self.acceptedTokens = acceptedTokens
        self.draftSteps = draftSteps
        self.draftGain = draftGain
    }
}

/// How a generation ended.
public struct Finish: Codable, Sendable, Hashable {
    /// Why it ended. `eos`: The model produced an end-of-sequence token, or nothing may follow by the constraint;
    /// `stop`: A stop string occurred; `length`: `maxTokens` were generated, or the context is full.
    public var reason: FinishReason
    /// Token counts.
    public var usage: Usage
    /// Durations.
    public var timings: Timings
    /// What went wrong on the way that did not end it, in words: a draft model that failed.
    public var warnings: [String]

    /// Of its fields.
    public init(reason: FinishReason, usage: Usage, timings: Timings, warnings: [String]) {
        self.reason = reason
        self.usage = usage
        self.timings = timings
        self.warnings = warnings
    }
}

/// One step of a generation.
public struct Event: Codable, Sendable, Hashable {
    /// The token sampled in this step; none in a last event that only ends the stream.
    public var token: Token?
    /// Text that became certain with this step; may be empty.
    public var text: String
    /// Why and how the generation ended.
    public var finish: Finish?

    /// Of its fields.
    public init(token: Token?, text: String, finish: Finish?) {
        self.token = token
        self.text = text
        self.finish = finish
    }
}

/// A whole generation, collected.
public struct Output: Codable, Sendable, Hashable {
    /// The generated text.
    public var text: String
    /// The sampled tokens, an end-of-sequence token included.
    public var ids: [Int]
    /// Why and how it ended.
    public var finish: Finish

    /// Of its fields.
    public init(text: String, ids: [Int], finish: Finish) {
        self.text = text
        self.ids = ids
        self.finish = finish
    }
}

/// Token counts of an answer.
public struct ChatUsage: Codable, Sendable, Hashable {
    /// Tokens of the prompt.
    public var promptTokens: Int
    /// How many of them did not have to be computed.
    public var cachedTokens: Int
    /// Tokens of the answer, an end-of-sequence token included.
    public var completionTokens: Int
    /// How many of them are reasoning, without the token that ends it.
    public var reasoningTokens: Int

    /// Of its fields.
    public init(promptTokens: Int, cachedTokens: Int, completionTokens: Int, reasoningTokens: Int) {
        self.promptTokens = promptTokens
        self.cachedTokens = cachedTokens
        self.completionTokens = completionTokens
        self.reasoningTokens = reasoningTokens
    }
}

/// How an answer ended.
public struct ChatFinish: Codable, Sendable, Hashable {
    /// Why it ended.
    public var reason: ChatFinishReason
    /// Token counts.
    public var usage: ChatUsage
    /// Durations.
    public var timings: Timings
    /// What went wrong on the way that did not end it, in words: a draft model that failed.
    public var warnings: [String]

    /// Of its fields.
    public init(reason: ChatFinishReason, usage: ChatUsage, timings: Timings, warnings: [String]) {
        self.reason = reason
        self.usage = usage
        self.timings = timings
        self.warnings = warnings
    }
}

/// A call of a tool that waits for its result.
public struct ChatCall: Codable, Sendable, Hashable {
    /// What the tool's message names as `tool_call_id`.
    public var id: String
    /// The function.
    public var name: String
    /// Its arguments, an object. Values of other types than the tool declares are converted where that is possible.
    public var arguments: JSONValue

    /// Of its fields.
    public init(id: String, name: String, arguments: JSONValue) {
        self.id = id
        self.name = name
        self.arguments = arguments
    }
}

/// What began as a tool call and is none.
public struct MalformedCall: Codable, Sendable, Hashable {
    /// The function, where that much is known.
    public var name: String?
    /// All that the model wrote of it, markup included; where text was told in front of it, from its own marker on.
    public var raw: String
    /// What is wrong.
    public var problem: CallProblem
    /// The same in words: what was expected, what was found.
    public var message: String

    /// Of its fields.
    public init(name: String?, raw: String, problem: CallProblem, message: String) {
        self.name = name
        self.raw = raw
        self.problem = problem
        self.message = message
    }
}

/// More of the reasoning.
public struct ReasoningEvent: Codable, Sendable, Hashable {
    /// What is new.
    public var text: String

    /// Of its fields.
    public init(text: String) {
        self.text = text
    }
}

/// More of the answer.
public struct TextEvent: Codable, Sendable, Hashable {
    /// What is new.
    public var text: String

    /// Of its fields.
    public init(text: String) {
        self.text = text
    }
}

/// A tool call whose function is known.
public struct CallStartedEvent: Codable, Sendable, Hashable {
    /// Which of the answer's calls, from 0.
    public var index: Int
    /// The call's id: what the model wrote as such before the arguments, else one of nine letters and digits that no
    /// other call of the conversation has.
    public var id: String
    /// The function.
    public var name: String

    /// Of its fields.
    public init(index: Int, id: String, name: String) {
        self.index = index
        self.id = id
        self.name = name
    }
}

/// More of a call's arguments, as JSON. The pieces of a call, joined, are the JSON of an object.
public struct CallArgumentsEvent: Codable, Sendable, Hashable {
    /// Which call.
    public var index: Int
    /// What is new.
    public var text: String

    /// Of its fields.
    public init(index: Int, text: String) {
        self.index = index
        self.text = text
    }
}

/// A whole call.
public struct CallFinishedEvent: Codable, Sendable, Hashable {
    /// Which call.
    public var index: Int
    /// What is to be called.
    public var call: ChatCall

    /// Of its fields.
    public init(index: Int, call: ChatCall) {
        self.index = index
        self.call = call
    }
}

/// Something that began as a call and is none.
public struct CallMalformedEvent: Codable, Sendable, Hashable {
    /// Which call. It may have been started.
    public var index: Int
    /// What there was instead.
    public var call: MalformedCall

    /// Of its fields.
    public init(index: Int, call: MalformedCall) {
        self.index = index
        self.call = call
    }
}

/// The end.
public struct FinishEvent: Codable, Sendable, Hashable {
    /// Why and how the answer ended.
    public var finish: ChatFinish

    /// Of its fields.
    public init(finish: ChatFinish) {
        self.finish = finish
    }
}

/// A part of an answer, told as soon as it is certain; the last one is `Finish`.
public enum ChatEvent: Codable, Sendable, Hashable {
    /// This kind.
    case reasoning(ReasoningEvent)
    /// This kind.
    case text(TextEvent)
    /// This kind.
    case callStarted(CallStartedEvent)
    /// This kind.
    case callArguments(CallArgumentsEvent)
    /// This kind.
    case callFinished(CallFinishedEvent)
    /// This kind.
    case callMalformed(CallMalformedEvent)
    /// This kind.
    case finish(FinishEvent)

    enum CodingKeys: CodingKey {
        case type
    }

    /// Reads what JSON has of it.
    public init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: CodingKeys.self)
        switch try values.decode(String.self, forKey: .type) {
        case "reasoning": self = .reasoning(try ReasoningEvent(from: decoder))
        case "text": self = .text(try TextEvent(from: decoder))
        case "call_started": self = .callStarted(try CallStartedEvent(from: decoder))
        case "call_arguments": self = .callArguments(try CallArgumentsEvent(from: decoder))
        case "call_finished": self = .callFinished(try CallFinishedEvent(from: decoder))
        case "call_malformed": self = .callMalformed(try CallMalformedEvent(from: decoder))
        case "finish": self = .finish(try FinishEvent(from: decoder))
        case let other:
            throw DecodingError.dataCorruptedError(
                forKey: .type, in: values, debugDescription: "there is no kind `\(other)`")
        }
    }

    /// Writes it as JSON has it.
    public func encode(to encoder: any Encoder) throws {
        var values = encoder.container(keyedBy: CodingKeys.self)
        switch self {
        case .reasoning(let own):
            try values.encode("reasoning", forKey: .type)
            try own.encode(to: encoder)
        case .text(let own):
            try values.encode("text", forKey: .type)
            try own.encode(to: encoder)
        case .callStarted(let own):
            try values.encode("call_started", forKey: .type)
            try own.encode(to: encoder)
        case .callArguments(let own):
            try values.encode("call_arguments", forKey: .type)
            try own.encode(to: encoder)
        case .callFinished(let own):
            try values.encode("call_finished", forKey: .type)
            try own.encode(to: encoder)
        case .callMalformed(let own):
            try values.encode("call_malformed", forKey: .type)
            try own.encode(to: encoder)
        case .finish(let own):
            try values.encode("finish", forKey: .type)
            try own.encode(to: encoder)
        }
    }
}

/// A whole answer.
public struct ChatAnswer: Codable, Sendable, Hashable {
    /// The answer as a message, to be put behind the others. Where the last of them was an answer that was to be
    /// continued, it stands for that one, and has both.
    public var message: ChatMessage
    /// What the model said. Texts of malformed calls are in the message alone.
    public var text: String
    /// What it thought.
    public var reasoning: String
    /// What it calls.
    public var calls: [ChatCall]
    /// What began as a call and is none.
    public var malformed: [MalformedCall]
    /// Why and how it ended.
    public var finish: ChatFinish

    /// Of its fields.
    public init(
        message: ChatMessage,
        text: String,
        reasoning: String,
        calls: [ChatCall],
        malformed: [MalformedCall],
        finish: ChatFinish
    ) {
        self.message = message
        self.text = text
        self.reasoning = reasoning
        self.calls = calls
        self.malformed = malformed
        self.finish = finish
    }
}

/// A prompt as the model gets it.
public struct ChatPrompt: Codable, Sendable, Hashable {
    /// Its text. Of special tokens in it, it does not say which are tokens.
    public var text: String
    /// Its tokens.
    public var tokens: [Int]

    /// Of its fields.
    public init(text: String, tokens: [Int]) {
        self.text = text
        self.tokens = tokens
    }
}

/// What became of a call.
public struct ToolResult: Codable, Sendable, Hashable {
    /// The call.
    public var id: String
    /// The function.
    public var name: String
    /// What the model is told.
    public var content: String
    /// The function failed, or there is none of that name.
    public var failed: Bool

    /// Of its fields.
    public init(id: String, name: String, content: String, failed: Bool) {
        self.id = id
        self.name = name
        self.content = content
        self.failed = failed
    }
}

/// Something wrong with a card or placement.
public struct CardFault: Codable, Sendable, Hashable {
    /// The field, with its sections, as the document spells it: `runtime.mtp_heads`, `components.0.canShard`. A missing
    /// field is spelled as in TOML; long names are cut.
    public var field: String
    /// What is wrong.
    public var kind: FaultKind
    /// What was found; empty for a missing field.
    public var found: String
    /// What is allowed.
    public var allowed: String

    /// Of its fields.
    public init(field: String, kind: FaultKind, found: String, allowed: String) {
        self.field = field
        self.kind = kind
        self.found = found
        self.allowed = allowed
    }
}

/// Which part of classifier-free guidance a stage has: the layers of one of its two halves.
public struct CfgPart: Codable, Sendable, Hashable {
    /// The half.
    public var cfgRank: Int
    /// Halves.
    public var cfgWorldSize: Int
    /// The stage within the half.
    public var pipelineRank: Int
    /// Stages of the half.
    public var pipelineWorldSize: Int

    /// Of its fields.
    public init(cfgRank: Int, cfgWorldSize: Int, pipelineRank: Int, pipelineWorldSize: Int) {
        self.cfgRank = cfgRank
        self.cfgWorldSize = cfgWorldSize
        self.pipelineRank = pipelineRank
        self.pipelineWorldSize = pipelineWorldSize
    }
}

/// A part of a model on one node: a contiguous range of layers.
public struct PlacedStage: Codable, Sendable, Hashable {
    /// The node that runs it.
    public var node: String
    /// The backend that runs it there, as in `skulk-cpu`; `nil`: the node chooses.
    public var backend: String?
    /// This library's engine of that backend, as in `cpu`; `nil` for other software's.
    public var engine: String?
    /// Its layers, by index within the model.
    public var layers: Range<Int>
    /// What of these layers: all, of each tensor a share, or all for one half of guidance. `whole`: All of them;
    /// `tensor`: Of each tensor its share; `cfg`: All of them, for one half of guidance.
    public var part: PartKind
    /// Which part of guidance, where it is one.
    public var cfg: CfgPart?

    /// Of its fields.
    public init(node: String, backend: String?, engine: String?, layers: Range<Int>, part: PartKind, cfg: CfgPart?) {
        self.node = node
        self.backend = backend
        self.engine = engine
        self.layers = layers
        self.part = part
        self.cfg = cfg
    }

    enum CodingKeys: CodingKey {
        case node, backend, engine, layers, part, cfg
    }

    /// Reads what JSON has of it.
    public init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: CodingKeys.self)
        node = try values.decode(String.self, forKey: .node)
        backend = try values.decodeIfPresent(String.self, forKey: .backend)
        engine = try values.decodeIfPresent(String.self, forKey: .engine)
        layers = try values.decode(Span.self, forKey: .layers).range
        part = try values.decode(PartKind.self, forKey: .part)
        cfg = try values.decodeIfPresent(CfgPart.self, forKey: .cfg)
    }

    /// Writes it as JSON has it.
    public func encode(to encoder: any Encoder) throws {
        var values = encoder.container(keyedBy: CodingKeys.self)
        try values.encode(node, forKey: .node)
        try values.encodeIfPresent(backend, forKey: .backend)
        try values.encodeIfPresent(engine, forKey: .engine)
        try values.encode(Span(layers), forKey: .layers)
        try values.encode(part, forKey: .part)
        try values.encodeIfPresent(cfg, forKey: .cfg)
    }
}

/// Experts of a range of layers on one node, away from the layers' attention. A dense block is expert 0.
public struct ExpertShard: Codable, Sendable, Hashable {
    /// The node that computes them.
    public var node: String
    /// The backend that computes them there.
    public var backend: String?
    /// This library's engine of that backend; `nil` for other software's.
    public var engine: String?
    /// The layers.
    public var layers: Range<Int>
    /// The same experts of each of these layers.
    public var experts: Range<Int>
    /// Experts that each of these layers has in all.
    public var nExperts: Int
    /// Another node owns them; this one helps.
    public var replica: Bool

    /// Of its fields.
    public init(
        node: String,
        backend: String?,
        engine: String?,
        layers: Range<Int>,
        experts: Range<Int>,
        nExperts: Int,
        replica: Bool
    ) {
        self.node = node
        self.backend = backend
        self.engine = engine
        self.layers = layers
        self.experts = experts
        self.nExperts = nExperts
        self.replica = replica
    }

    enum CodingKeys: CodingKey {
        case node, backend, engine, layers, experts, nExperts, replica
    }

    /// Reads what JSON has of it.
    public init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: CodingKeys.self)
        node = try values.decode(String.self, forKey: .node)
        backend = try values.decodeIfPresent(String.self, forKey: .backend)
        engine = try values.decodeIfPresent(String.self, forKey: .engine)
        layers = try values.decode(Span.self, forKey: .layers).range
        experts = try values.decode(Span.self, forKey: .experts).range
        nExperts = try values.decode(Int.self, forKey: .nExperts)
        replica = try values.decode(Bool.self, forKey: .replica)
    }

    /// Writes it as JSON has it.
    public func encode(to encoder: any Encoder) throws {
        var values = encoder.container(keyedBy: CodingKeys.self)
        try values.encode(node, forKey: .node)
        try values.encodeIfPresent(backend, forKey: .backend)
        try values.encodeIfPresent(engine, forKey: .engine)
        try values.encode(Span(layers), forKey: .layers)
        try values.encode(Span(experts), forKey: .experts)
        try values.encode(nExperts, forKey: .nExperts)
        try values.encode(replica, forKey: .replica)
    }
}

/// Where the bytes of a node or device go.
public struct Bytes: Codable, Sendable, Hashable {
    /// Weights of attention, norms, embedding and head.
    public var attention: Int
    /// Weights of feed-forward blocks and experts.
    public var feedForward: Int
    /// Keys and values.
    public var kvCache: Int
    /// Rows between layers, and what computing them takes.
    public var activations: Int
    /// Kept free on top, as the strictness asks.
    public var headroom: Int

    /// Of its fields.
    public init(attention: Int, feedForward: Int, kvCache: Int, activations: Int, headroom: Int) {
        self.attention = attention
        self.feedForward = feedForward
        self.kvCache = kvCache
        self.activations = activations
        self.headroom = headroom
    }
}

/// What a plan counts that drafts tokens ahead, on the device of the last stage.
public struct Drafter: Codable, Sendable, Hashable {
    /// It is the head for tokens ahead (MTP) of the model's own checkpoint; else what `draftModel` of loading names.
    public var mtp: Bool
    /// Bytes by kind.
    public var bytes: Bytes

    /// Of its fields.
    public init(mtp: Bool, bytes: Bytes) {
        self.mtp = mtp
        self.bytes = bytes
    }
}

/// What a device of a placement is to hold, and what it may hold.
public struct Budget: Codable, Sendable, Hashable {
    /// The node.
    public var node: String
    /// The backend that runs on the device.
    public var backend: String?
    /// Bytes by kind.
    public var bytes: Bytes
    /// Bytes that it may hold; of plans under `Strictness::Force` no fewer than it is to hold.
    public var usable: Int
    /// What drafts there, whose bytes are among these.
    public var drafter: Drafter?

    /// Of its fields.
    public init(node: String, backend: String?, bytes: Bytes, usable: Int, drafter: Drafter?) {
        self.node = node
        self.backend = backend
        self.bytes = bytes
        self.usable = usable
        self.drafter = drafter
    }
}

/// What a loaded model holds of memory, beside what its plan said.
public struct ModelMemory: Codable, Sendable, Hashable {
    /// Weights that its stages, and what drafts, have mapped, read or copied. Of those that stay on disk, what a budget
    /// lets be in memory is told apart.
    public var weightBytes: Int
    /// What is reserved for keys and values, in use or not, those of what drafts among them.
    public var kvCacheBytes: Int
    /// By engine all that is reserved on a device that weights are copied to: weights, keys and values, and buffers.
    public var deviceBytes: [String: Int]
    /// What drafts, which is part of the above; its keys and values are those of one session.
    public var draftModel: Stage?
    /// What the plan counted for the devices of this machine; `nil`: the placement was not planned.
    public var planned: Bytes?
    /// What the system has in memory for this process, whatever for. Of mapped weights that are pages that were read,
    /// and are still there. `nil`: the system does not tell.
    public var processBytes: Int?

    /// Of its fields.
    public init(
        weightBytes: Int,
        kvCacheBytes: Int,
        deviceBytes: [String: Int],
        draftModel: Stage?,
        planned: Bytes?,
        processBytes: Int?
    ) {
        self.weightBytes = weightBytes
        self.kvCacheBytes = kvCacheBytes
        self.deviceBytes = deviceBytes
        self.draftModel = draftModel
        self.planned = planned
        self.processBytes = processBytes
    }
}

/// How fast a placement should be: a token of each session.
public struct Estimate: Codable, Sendable, Hashable {
    /// Tokens a second, of all sessions together.
    public var tokensPerSecond: Double
    /// Seconds a token for reading weights, keys and values where attention is.
    public var attentionSeconds: Double
    /// Seconds a token for reading feed-forward blocks and experts.
    public var feedForwardSeconds: Double
    /// Seconds a token between stages.
    public var hopSeconds: Double
    /// Seconds a token between stages and the owners of their feed-forward blocks and experts.
    public var fanOutSeconds: Double
    /// Seconds that a draft takes beside that of each session, where something drafts that the request counts; else 0.
    public var draftSeconds: Double

    /// Of its fields.
    public init(
        tokensPerSecond: Double,
        attentionSeconds: Double,
        feedForwardSeconds: Double,
        hopSeconds: Double,
        fanOutSeconds: Double,
        draftSeconds: Double
    ) {
        self.tokensPerSecond = tokensPerSecond
        self.attentionSeconds = attentionSeconds
        self.feedForwardSeconds = feedForwardSeconds
        self.hopSeconds = hopSeconds
        self.fanOutSeconds = fanOutSeconds
        self.draftSeconds = draftSeconds
    }
}

/// How long a prompt should take.
public struct PromptEstimate: Codable, Sendable, Hashable {
    /// Its tokens.
    public var tokens: Int
    /// Seconds until the first token of the answer is known.
    public var seconds: Double
    /// Seconds of these between stages, and between them and the owners of their feed-forward blocks and experts.
    public var linkSeconds: Double

    /// Of its fields.
    public init(tokens: Int, seconds: Double, linkSeconds: Double) {
        self.tokens = tokens
        self.seconds = seconds
        self.linkSeconds = linkSeconds
    }
}

/// What a placement costs.
public struct Price: Codable, Sendable, Hashable {
    /// A token of each session, in the middle of the context.
    public var estimate: Estimate
    /// The prompt.
    public var prompt: PromptEstimate

    /// Of its fields.
    public init(estimate: Estimate, prompt: PromptEstimate) {
        self.estimate = estimate
        self.prompt = prompt
    }
}

/// Memory of a node that a model may use.
public struct Usable: Codable, Sendable, Hashable {
    /// So many bytes.
    public var bytes: Int
    /// Of a graphics card; else of main memory.
    public var vram: Bool

    /// Of its fields.
    public init(bytes: Int, vram: Bool) {
        self.bytes = bytes
        self.vram = vram
    }
}

/// What the first key-values of a GGUF file say that a card needs.
public struct GgufFacts: Codable, Sendable, Hashable {
    /// The family as the file spells it.
    public var architecture: String
    /// Decoder layers; at least 1.
    public var nLayers: Int
    /// Width of the residual stream; at least 1.
    public var hiddenSize: Int
    /// Key/value heads; `nil` where the file gives none, or one for each layer.
    public var numKeyValueHeads: Int?
    /// Positions it was trained for, in tokens; 0: unknown.
    public var contextLength: Int

    /// Of its fields.
    public init(architecture: String, nLayers: Int, hiddenSize: Int, numKeyValueHeads: Int?, contextLength: Int) {
        self.architecture = architecture
        self.nLayers = nLayers
        self.hiddenSize = hiddenSize
        self.numKeyValueHeads = numKeyValueHeads
        self.contextLength = contextLength
    }
}

/// What a Hugging Face configuration says that a card needs.
public struct ConfigFacts: Codable, Sendable, Hashable {
    /// Decoder layers, as the configuration says; a card needs at least 1.
    public var nLayers: Int
    /// Width of the residual stream.
    public var hiddenSize: Int?
    /// Key/value heads; at least 1.
    public var numKeyValueHeads: Int?
    /// Positions it was trained for, in tokens.
    public var maxPositionEmbeddings: Int?
    /// Skulk 1.3 can split the model's tensors over nodes.
    public var supportsTensor: Bool
    /// Classes that implement the model.
    public var architectures: [String]
    /// What it is called: `model_type`.
    public var modelType: String
    /// How it sees, where the configuration has both a vision tower and an image token.
    public var vision: VisionCardConfig?

    /// Of its fields.
    public init(
        nLayers: Int,
        hiddenSize: Int?,
        numKeyValueHeads: Int?,
        maxPositionEmbeddings: Int?,
        supportsTensor: Bool,
        architectures: [String],
        modelType: String,
        vision: VisionCardConfig?
    ) {
        self.nLayers = nLayers
        self.hiddenSize = hiddenSize
        self.numKeyValueHeads = numKeyValueHeads
        self.maxPositionEmbeddings = maxPositionEmbeddings
        self.supportsTensor = supportsTensor
        self.architectures = architectures
        self.modelType = modelType
        self.vision = vision
    }
}

/// A tensor as the folder describes it.
public struct TensorInfo: Codable, Sendable, Hashable {
    /// Its name, as in Hugging Face checkpoints without `model.` before it.
    public var name: String
    /// How its elements are stored, e.g. `F16` or `Q4_K`; `Q6_K_Linear` is what LARQL calls Q6_K.
    public var dtype: String
    /// Its dimensions, outermost first: a matrix is rows and row length.
    public var shape: [Int]
    /// The file that holds it.
    public var file: String
    /// Where it begins in that file, in bytes.
    public var offset: Int
    /// Its length in bytes, with what rows are padded with.
    public var length: Int

    /// Of its fields.
    public init(name: String, dtype: String, shape: [Int], file: String, offset: Int, length: Int) {
        self.name = name
        self.dtype = dtype
        self.shape = shape
        self.file = file
        self.offset = offset
        self.length = length
    }
}

/// A file of a vindex.
public struct PartFile: Codable, Sendable, Hashable {
    /// Its path in the folder.
    public var name: String
    /// Its size.
    public var bytes: Int
    /// Tensors in it.
    public var tensors: Int

    /// Of its fields.
    public init(name: String, bytes: Int, tensors: Int) {
        self.name = name
        self.bytes = bytes
        self.tensors = tensors
    }
}

/// A part of a vindex that its folder holds.
public struct PartInfo: Codable, Sendable, Hashable {
    /// The part.
    public var part: VindexPart
    /// Its files, by name.
    public var files: [PartFile]
    /// What they take together.
    public var bytes: Int
    /// Tensors in them.
    public var tensors: Int

    /// Of its fields.
    public init(part: VindexPart, files: [PartFile], bytes: Int, tensors: Int) {
        self.part = part
        self.files = files
        self.bytes = bytes
        self.tensors = tensors
    }
}

/// Layers that are thought to do one thing.
public struct VindexBands: Codable, Sendable, Hashable {
    /// Layers that deal with syntax.
    public var syntax: Range<Int>
    /// Layers in which facts are found.
    public var knowledge: Range<Int>
    /// Layers that form the output.
    public var output: Range<Int>

    /// Of its fields.
    public init(syntax: Range<Int>, knowledge: Range<Int>, output: Range<Int>) {
        self.syntax = syntax
        self.knowledge = knowledge
        self.output = output
    }

    enum CodingKeys: CodingKey {
        case syntax, knowledge, output
    }

    /// Reads what JSON has of it.
    public init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: CodingKeys.self)
        syntax = try values.decode(Span.self, forKey: .syntax).range
        knowledge = try values.decode(Span.self, forKey: .knowledge).range
        output = try values.decode(Span.self, forKey: .output).range
    }

    /// Writes it as JSON has it.
    public func encode(to encoder: any Encoder) throws {
        var values = encoder.container(keyedBy: CodingKeys.self)
        try values.encode(Span(syntax), forKey: .syntax)
        try values.encode(Span(knowledge), forKey: .knowledge)
        try values.encode(Span(output), forKey: .output)
    }
}

/// How far an extraction, a slice or a verification is.
public struct VindexProgress: Codable, Sendable, Hashable {
    /// The file that is worked on, by its path in the folder.
    public var file: String
    /// The part that it belongs to.
    public var part: VindexPart?
    /// The layer that is written, where an extraction writes one.
    public var layer: Int?
    /// Bytes that are done, of all files together.
    public var bytesDone: Int
    /// Bytes that will be.
    public var bytesTotal: Int

    /// Of its fields.
    public init(file: String, part: VindexPart?, layer: Int?, bytesDone: Int, bytesTotal: Int) {
        self.file = file
        self.part = part
        self.layer = layer
        self.bytesDone = bytesDone
        self.bytesTotal = bytesTotal
    }
}

/// A file of a vindex.
public struct ExtractFile: Codable, Sendable, Hashable {
    /// Its path in the folder.
    public var name: String
    /// The part of the model that it belongs to.
    public var part: VindexPart
    /// Its length.
    public var bytes: Int

    /// Of its fields.
    public init(name: String, part: VindexPart, bytes: Int) {
        self.name = name
        self.part = part
        self.bytes = bytes
    }
}

/// What was extracted.
public struct ExtractReport: Codable, Sendable, Hashable {
    /// The folder.
    public var path: String
    /// Its files.
    public var files: [ExtractFile]
    /// Bytes of all files.
    public var bytes: Int
    /// Bytes that an interrupted run had written, and this one took over.
    public var resumedBytes: Int
    /// What this run took.
    public var seconds: Double
    /// What somebody who uses the folder should know: what is left out, and what LARQL does not see of it.
    public var warnings: [String]

    /// Of its fields.
    public init(
        path: String,
        files: [ExtractFile],
        bytes: Int,
        resumedBytes: Int,
        seconds: Double,
        warnings: [String]
    ) {
        self.path = path
        self.files = files
        self.bytes = bytes
        self.resumedBytes = resumedBytes
        self.seconds = seconds
        self.warnings = warnings
    }
}

/// A file of a slice.
public struct SlicedFile: Codable, Sendable, Hashable {
    /// Its path in the folder, with `/` between its parts.
    public var name: String
    /// Its length.
    public var bytes: Int
    /// How it came there. `linked`: It is the same file; `cloned`: It has the same blocks until one of both is written
    /// to; `copied`: Its bytes were copied; `rewritten`: It was written anew, with what the slice takes of it.
    public var method: SliceMethod

    /// Of its fields.
    public init(name: String, bytes: Int, method: SliceMethod) {
        self.name = name
        self.bytes = bytes
        self.method = method
    }
}

/// What a slice is made of. Its text is a line for each file.
public struct SliceReport: Codable, Sendable, Hashable {
    /// The slice's folder.
    public var path: String
    /// Its files, by name.
    public var files: [SlicedFile]
    /// Files of the source that it does not have.
    public var leftOut: [String]
    /// Parts that the whole vindex has and the slice lacks.
    public var lacks: [VindexPart]
    /// Bytes of all its files.
    public var bytes: Int
    /// Bytes of files that are neither linked nor cloned.
    public var writtenBytes: Int
    /// The report as text.
    public var text: String

    /// Of its fields.
    public init(
        path: String,
        files: [SlicedFile],
        leftOut: [String],
        lacks: [VindexPart],
        bytes: Int,
        writtenBytes: Int,
        text: String
    ) {
        self.path = path
        self.files = files
        self.leftOut = leftOut
        self.lacks = lacks
        self.bytes = bytes
        self.writtenBytes = writtenBytes
        self.text = text
    }
}

/// A file of a folder that was verified.
public struct VerifiedFile: Codable, Sendable, Hashable {
    /// Its path in the folder, with `/` between its parts.
    public var name: String
    /// The part that it belongs to; `nil` for files that are not a vindex's, which are not looked at.
    public var part: VindexPart?
    /// Its length; 0 for one that is missing.
    public var bytes: Int
    /// How it was found.
    public var status: VerifyStatus

    /// Of its fields.
    public init(name: String, part: VindexPart?, bytes: Int, status: VerifyStatus) {
        self.name = name
        self.part = part
        self.bytes = bytes
        self.status = status
    }
}

/// Something that is wrong with a folder.
public struct VerifyProblem: Codable, Sendable, Hashable {
    /// The file, by its path in the folder.
    public var file: String
    /// The bytes that it concerns; `nil`: no certain ones.
    public var bytes: Range<Int>?
    /// What kind of damage it is.
    public var kind: VerifyKind
    /// The tensor that it concerns.
    public var tensor: String?
    /// What was expected, and what found.
    public var message: String
    /// The problem as text.
    public var text: String

    /// Of its fields.
    public init(file: String, bytes: Range<Int>?, kind: VerifyKind, tensor: String?, message: String, text: String) {
        self.file = file
        self.bytes = bytes
        self.kind = kind
        self.tensor = tensor
        self.message = message
        self.text = text
    }

    enum CodingKeys: CodingKey {
        case file, bytes, kind, tensor, message, text
    }

    /// Reads what JSON has of it.
    public init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: CodingKeys.self)
        file = try values.decode(String.self, forKey: .file)
        bytes = try values.decodeIfPresent(Span.self, forKey: .bytes)?.range
        kind = try values.decode(VerifyKind.self, forKey: .kind)
        tensor = try values.decodeIfPresent(String.self, forKey: .tensor)
        message = try values.decode(String.self, forKey: .message)
        text = try values.decode(String.self, forKey: .text)
    }

    /// Writes it as JSON has it.
    public func encode(to encoder: any Encoder) throws {
        var values = encoder.container(keyedBy: CodingKeys.self)
        try values.encode(file, forKey: .file)
        try values.encodeIfPresent(bytes.map(Span.init), forKey: .bytes)
        try values.encode(kind, forKey: .kind)
        try values.encodeIfPresent(tensor, forKey: .tensor)
        try values.encode(message, forKey: .message)
        try values.encode(text, forKey: .text)
    }
}

/// What a verification found. Its text is a summary and a line for each problem.
public struct VerifyReport: Codable, Sendable, Hashable {
    /// The folder.
    public var path: String
    /// Its files, those included that are missing.
    public var files: [VerifiedFile]
    /// What is wrong, by file and place.
    public var problems: [VerifyProblem]
    /// Bytes that were read for hashes and numbers.
    public var bytesRead: Int
    /// The report as text.
    public var text: String

    /// Of its fields.
    public init(path: String, files: [VerifiedFile], problems: [VerifyProblem], bytesRead: Int, text: String) {
        self.path = path
        self.files = files
        self.problems = problems
        self.bytesRead = bytesRead
        self.text = text
    }
}

/// A feature, and the product of its gate row with a query.
public struct FeatureHit: Codable, Sendable, Hashable {
    /// The layer.
    public var layer: Int
    /// The feature's number in its layer; those of a mixture are numbered over all experts in their order.
    public var feature: Int
    /// The product, before any activation.
    public var score: Double

    /// Of its fields.
    public init(layer: Int, feature: Int, score: Double) {
        self.layer = layer
        self.feature = feature
        self.score = score
    }
}

/// A feature that a prompt wakes.
public struct WalkHit: Codable, Sendable, Hashable {
    /// The layer.
    public var layer: Int
    /// The feature in its layer.
    public var feature: Int
    /// The product of its gate row with the query.
    public var gateScore: Double
    /// The token that it writes most, without spaces around it; empty where nothing else is left of it.
    public var target: String
    /// Its label, where probes have confirmed one.
    public var relation: String?

    /// Of its fields.
    public init(layer: Int, feature: Int, gateScore: Double, target: String, relation: String?) {
        self.layer = layer
        self.feature = feature
        self.gateScore = gateScore
        self.target = target
        self.relation = relation
    }
}

/// A token that features write which answer to an entity.
public struct FeatureEdge: Codable, Sendable, Hashable {
    /// The token, without spaces around it, as the first of the features spells it.
    public var target: String
    /// The largest gate score among these features; 0 where all are below.
    public var gateScore: Double
    /// The layer of that feature.
    public var layer: Int
    /// That feature.
    public var feature: Int
    /// Its label, where probes have confirmed one.
    public var relation: String?
    /// Where the label comes from. `probe`: A probe of the model confirmed it: `feature_labels.json`; `cluster`: It is
    /// the name of the feature's cluster: `relation_clusters.json` and `feature_clusters.jsonl`.
    public var source: LabelSource?
    /// The first layer with such a feature.
    public var layerMin: Int
    /// The last.
    public var layerMax: Int
    /// Such features.
    public var count: Int
    /// Up to three other tokens that the first of the features writes.
    public var also: [String]

    /// Of its fields.
    public init(
        target: String,
        gateScore: Double,
        layer: Int,
        feature: Int,
        relation: String?,
        source: LabelSource?,
        layerMin: Int,
        layerMax: Int,
        count: Int,
        also: [String]
    ) {
        self.target = target
        self.gateScore = gateScore
        self.layer = layer
        self.feature = feature
        self.relation = relation
        self.source = source
        self.layerMin = layerMin
        self.layerMax = layerMax
        self.count = count
        self.also = also
    }
}

/// What a model associates with an entity.
public struct Description: Codable, Sendable, Hashable {
    /// The entity, as it was asked for.
    public var entity: String
    /// The model's name in the index.
    public var model: String
    /// The largest gate scores first; of equal ones the one that was found in an earlier layer.
    public var edges: [FeatureEdge]

    /// Of its fields.
    public init(entity: String, model: String, edges: [FeatureEdge]) {
        self.entity = entity
        self.model = model
        self.edges = edges
    }
}

/// A token that a feature writes.
public struct FeatureToken: Codable, Sendable, Hashable {
    /// The token.
    public var id: Int
    /// Its text, without spaces around it.
    public var text: String
    /// The product of its embedding with the feature's down column.
    public var logit: Double

    /// Of its fields.
    public init(id: Int, text: String, logit: Double) {
        self.id = id
        self.text = text
        self.logit = logit
    }
}

/// What a feature is said to mean.
public struct FeatureLabel: Codable, Sendable, Hashable {
    /// A relation, e.g. `capital`.
    public var name: String
    /// Who says so. `probe`: A probe of the model confirmed it: `feature_labels.json`; `cluster`: It is the name of the
    /// feature's cluster: `relation_clusters.json` and `feature_clusters.jsonl`.
    public var source: LabelSource

    /// Of its fields.
    public init(name: String, source: LabelSource) {
        self.name = name
        self.source = source
    }
}

/// A feature, and what its down column writes.
public struct Feature: Codable, Sendable, Hashable {
    /// The layer.
    public var layer: Int
    /// The feature in its layer.
    public var feature: Int
    /// The token that it writes most, without spaces around it.
    public var topToken: String
    /// That token.
    public var topTokenId: Int
    /// That token's logit.
    public var cScore: Double
    /// The tokens that it writes most, the most first.
    public var tokens: [FeatureToken]
    /// What it is said to mean, where anything is.
    public var label: FeatureLabel?

    /// Of its fields.
    public init(
        layer: Int,
        feature: Int,
        topToken: String,
        topTokenId: Int,
        cScore: Double,
        tokens: [FeatureToken],
        label: FeatureLabel?
    ) {
        self.layer = layer
        self.feature = feature
        self.topToken = topToken
        self.topTokenId = topTokenId
        self.cScore = cScore
        self.tokens = tokens
        self.label = label
    }
}

/// A feature of a list.
public struct Selected: Codable, Sendable, Hashable {
    /// The layer.
    public var layer: Int
    /// The feature in its layer.
    public var feature: Int
    /// The token that it writes most, without spaces around it.
    public var target: String
    /// That token's logit.
    public var cScore: Double
    /// Its label, where a probe confirmed one.
    public var relation: String?

    /// Of its fields.
    public init(layer: Int, feature: Int, target: String, cScore: Double, relation: String?) {
        self.layer = layer
        self.feature = feature
        self.target = target
        self.cScore = cScore
        self.relation = relation
    }
}

/// Features, as `VindexBrowser::select` found them.
public struct Selection: Codable, Sendable, Hashable {
    /// The first of them.
    public var features: [Selected]
    /// How many there are.
    public var total: Int

    /// Of its fields.
    public init(features: [Selected], total: Int) {
        self.features = features
        self.total = total
    }
}

/// A word that features write.
public struct Relation: Codable, Sendable, Hashable {
    /// The word, as the first of the features spells it.
    public var name: String
    /// Features that write it most.
    public var count: Int
    /// The largest of their scores.
    public var maxScore: Double
    /// The first layer with such a feature.
    public var minLayer: Int
    /// The last.
    public var maxLayer: Int
    /// Up to three other words that the first of the features writes.
    public var examples: [String]

    /// Of its fields.
    public init(name: String, count: Int, maxScore: Double, minLayer: Int, maxLayer: Int, examples: [String]) {
        self.name = name
        self.count = count
        self.maxScore = maxScore
        self.minLayer = minLayer
        self.maxLayer = maxLayer
        self.examples = examples
    }
}

/// A label that probes confirmed.
public struct Probe: Codable, Sendable, Hashable {
    /// The label.
    public var name: String
    /// Features that have it.
    public var count: Int

    /// Of its fields.
    public init(name: String, count: Int) {
        self.name = name
        self.count = count
    }
}

/// What a model's layers of facts write about.
public struct Relations: Codable, Sendable, Hashable {
    /// Words that features write most, by how many do; of equal ones the one that was found in an earlier layer first.
    public var relations: [Relation]
    /// How many words there are.
    public var total: Int
    /// Labels that probes confirmed, by how many features have them; of equal ones the one of an earlier layer first.
    public var probes: [Probe]
    /// Features with such labels.
    public var probeCount: Int

    /// Of its fields.
    public init(relations: [Relation], total: Int, probes: [Probe], probeCount: Int) {
        self.relations = relations
        self.total = total
        self.probes = probes
        self.probeCount = probeCount
    }
}

/// Options of loading a model.
public struct LoadOptions: Codable, Sendable, Hashable {
    /// Stages that the layers are split into evenly, on one engine; 1 by default.
    public var stages: Int?
    /// That engine: `cpu` (the default), `wgpu` (the best GPU), one of those that devices name, `candle-cpu`,
    /// `candle-cuda` or `candle-metal`.
    public var engine: String?
    /// The name that a placement has for this machine; `local` by default.
    public var node: String?
    /// Addresses of servers of feed-forward blocks and experts, as `http://192.168.7.4:8080`, `https://…`,
    /// `unix:///path`, or in gRPC `grpc://…` and `grpcs://…`: each is asked what it has, and computes that. Of what
    /// several have, those that are named later help where the first one fails.
    public var ffnAt: [String]?
    /// Addresses of nodes that a placement has experts on, by name, where the placement does not say.
    public var addresses: [String: String]?
    /// The key that other nodes ask for.
    public var peerKey: String?
    /// Certificates that other nodes' must lead to, in PEM; by default those of public authorities.
    public var peerRoots: String?
    /// What proves to other nodes who asks: a certificate and its private key, in PEM.
    public var peerIdentity: String?
    /// How results cross: `f32` (the default) changes nothing, `f16` halves them, `i8` is for dense blocks.
    public var peerWire: WireType?
    /// Sends rows to dense blocks as integers of 8 bits with scales (Q8_K), some 28 % of their bytes, which changes
    /// results. Only where the model's width is a multiple of 256.
    public var peerRowsQ8k: Bool?
    /// Seconds that another node may take for what it is asked; 30 by default.
    public var peerTimeout: Double?
    /// Leaves feed-forward blocks and experts to the CPU where an engine would copy them to its device.
    public var ffnOnCpu: Bool?
    /// Bytes that are kept in memory at a time of feed-forward weights that are used where they are stored, with the
    /// same results; no limit by default.
    public var ffnBudget: Int?
    /// Features that are computed of each dense block, which changes results; by default all.
    public var ffnTopFeatures: Int?
    /// Bytes that `wgpu` may reserve on its device; by default what its driver gives.
    public var deviceMemory: Int?
    /// Threads that compute on the CPU; all of the hardware's by default.
    public var threads: Int?
    /// Tokens that a session can hold: by default what a placement was planned for, else 4096 (of LongRoPE models at
    /// most the original context), and never more than the model has.
    public var context: Int?
    /// Prompt tokens that pass through the layers together; 256 by default.
    public var prefillChunk: Int?
    /// How keys and values are kept, never in more memory than a placement was planned with. By default as the plan was
    /// asked for. Where it was not: in `f16`, but in `bf16` where all stages are on the CPU and `precision` is not
    /// `exact`.
    public var kv: KvType?
    /// How values are kept, where that is otherwise than keys.
    public var kvValues: KvType?
    /// Sessions that generate at the same time, in steps together: by default as many as a placement was planned for,
    /// else 16, and never more than that was planned for. Others wait for their turn; those whose reader does not read
    /// do not count.
    public var sessions: Int?
    /// Bytes that keys and values of all sessions may take; by default what a placement was planned with, else what
    /// sessions need. What is left keeps conversations that rest, and the beginnings of prompts, so that they need not
    /// be computed again.
    public var kvMemory: Int?
    /// What happens to a session when that memory is full: `wait` (the default) gives up what resting sessions hold,
    /// then waits until others have ended; `evict` does not wait but ends with `memory.exhausted`; `fail` does so at
    /// once.
    public var whenFull: WhenFull?
    /// How products are rounded: `fast` (the default) rounds activations to 8 bits where weights are quantised, `exact`
    /// multiplies what that leaves over, too, and `bf16` rounds to BF16 where weights are of that type.
    public var precision: Precision?
    /// Where weights lie: `mapped`, as the file is; `resident`, read once; `auto` (the default), as free memory
    /// suggests.
    public var memory: Memory?
    /// Keeps a compact copy of the head, so that most of it need not be read, with the same results.
    public var screenHead: Bool?
    /// The model's card, which says how it is spoken to in conversations; by default what its checkpoint says.
    public var card: ModelCard?
    /// The chat template, instead of those of the checkpoint.
    public var chatTemplate: String?
    /// The path of what drafts tokens: a smaller model with the same vocabulary, this model's head for tokens ahead
    /// (MTP) in a file of its own, its assistant (Gemma 4), or an EAGLE-3 head of it. It runs whole on the engine of
    /// the last stage, with its options, a budget among them; keys and values of its own, which an assistant has none
    /// of, are for as many sessions, beside `kvMemory`. A plan that counts one needs one here, whose weights, keys and
    /// values take no more memory; what no plan counts comes on top.
    public var draftModel: String?
    /// Whether a head for tokens ahead (MTP) that the checkpoint has drafts. It takes the memory of a layer more, and
    /// of that layer's keys and values for as many sessions: by default it drafts as it was planned, and without a plan
    /// where no `draftModel` does and where it can be loaded, as the model's memory tells. `false` leaves out what a
    /// plan counts, too.
    public var mtp: Bool?

    /// Of its fields.
    public init(
        stages: Int? = nil,
        engine: String? = nil,
        node: String? = nil,
        ffnAt: [String]? = nil,
        addresses: [String: String]? = nil,
        peerKey: String? = nil,
        peerRoots: String? = nil,
        peerIdentity: String? = nil,
        peerWire: WireType? = nil,
        peerRowsQ8k: Bool? = nil,
        peerTimeout: Double? = nil,
        ffnOnCpu: Bool? = nil,
        ffnBudget: Int? = nil,
        ffnTopFeatures: Int? = nil,
        deviceMemory: Int? = nil,
        threads: Int? = nil,
        context: Int? = nil,
        prefillChunk: Int? = nil,
        kv: KvType? = nil,
        kvValues: KvType? = nil,
        sessions: Int? = nil,
        kvMemory: Int? = nil,
        whenFull: WhenFull? = nil,
        precision: Precision? = nil,
        memory: Memory? = nil,
        screenHead: Bool? = nil,
        card: ModelCard? = nil,
        chatTemplate: String? = nil,
        draftModel: String? = nil,
        mtp: Bool? = nil
    ) {
        self.stages = stages
        self.engine = engine
        self.node = node
        self.ffnAt = ffnAt
        self.addresses = addresses
        self.peerKey = peerKey
        self.peerRoots = peerRoots
        self.peerIdentity = peerIdentity
        self.peerWire = peerWire
        self.peerRowsQ8k = peerRowsQ8k
        self.peerTimeout = peerTimeout
        self.ffnOnCpu = ffnOnCpu
        self.ffnBudget = ffnBudget
        self.ffnTopFeatures = ffnTopFeatures
        self.deviceMemory = deviceMemory
        self.threads = threads
        self.context = context
        self.prefillChunk = prefillChunk
        self.kv = kv
        self.kvValues = kvValues
        self.sessions = sessions
        self.kvMemory = kvMemory
        self.whenFull = whenFull
        self.precision = precision
        self.memory = memory
        self.screenHead = screenHead
        self.card = card
        self.chatTemplate = chatTemplate
        self.draftModel = draftModel
        self.mtp = mtp
    }
}

/// Options of serving feed-forward blocks and experts to other machines.
public struct ServeOptions: Codable, Sendable, Hashable {
    /// Where to listen: `http://host:port`, `https://…`, which needs `identity`, or `unix:///path`. By default
    /// `http://127.0.0.1:0`, a free port that only this machine reaches.
    public var listen: String?
    /// The layers whose blocks are served; by default all.
    public var layers: Range<Int>?
    /// The experts that are served of each layer that has some; by default all.
    public var experts: Range<Int>?
    /// The key that clients must know. Where other machines reach the server, it or `clients` must be given.
    public var key: String?
    /// What the server shows to clients of `https`: a certificate and its private key, in PEM.
    public var identity: String?
    /// Certificates that clients' must lead to, in PEM; by default they need none.
    public var clients: String?
    /// Bytes of weights that are kept in memory at a time; no limit by default.
    public var ffnBudget: Int?
    /// Threads that compute; all of the hardware's by default.
    public var threads: Int?
    /// How products are rounded: `fast` (the default), `exact` or `bf16`. Clients get the numbers of a model that is
    /// loaded with the same.
    public var precision: Precision?
    /// Where weights lie: `mapped`, `resident` or `auto` (the default).
    public var memory: Memory?
    /// Rows that are computed together at most, of all clients; 256 by default.
    public var maxRows: Int?
    /// Requests that may wait; who comes then is told to come again. 256 by default.
    public var queue: Int?
    /// Connections at a time; 256 by default.
    public var maxConnections: Int?
    /// Bytes of a request at most; 64 MiB by default.
    public var maxBody: Int?

    /// Of its fields.
    public init(
        listen: String? = nil,
        layers: Range<Int>? = nil,
        experts: Range<Int>? = nil,
        key: String? = nil,
        identity: String? = nil,
        clients: String? = nil,
        ffnBudget: Int? = nil,
        threads: Int? = nil,
        precision: Precision? = nil,
        memory: Memory? = nil,
        maxRows: Int? = nil,
        queue: Int? = nil,
        maxConnections: Int? = nil,
        maxBody: Int? = nil
    ) {
        self.listen = listen
        self.layers = layers
        self.experts = experts
        self.key = key
        self.identity = identity
        self.clients = clients
        self.ffnBudget = ffnBudget
        self.threads = threads
        self.precision = precision
        self.memory = memory
        self.maxRows = maxRows
        self.queue = queue
        self.maxConnections = maxConnections
        self.maxBody = maxBody
    }

    enum CodingKeys: CodingKey {
        case listen, layers, experts, key, identity, clients, ffnBudget, threads, precision, memory, maxRows, queue, maxConnections, maxBody
    }

    /// Reads what JSON has of it.
    public init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: CodingKeys.self)
        listen = try values.decodeIfPresent(String.self, forKey: .listen)
        layers = try values.decodeIfPresent(Span.self, forKey: .layers)?.range
        experts = try values.decodeIfPresent(Span.self, forKey: .experts)?.range
        key = try values.decodeIfPresent(String.self, forKey: .key)
        identity = try values.decodeIfPresent(String.self, forKey: .identity)
        clients = try values.decodeIfPresent(String.self, forKey: .clients)
        ffnBudget = try values.decodeIfPresent(Int.self, forKey: .ffnBudget)
        threads = try values.decodeIfPresent(Int.self, forKey: .threads)
        precision = try values.decodeIfPresent(Precision.self, forKey: .precision)
        memory = try values.decodeIfPresent(Memory.self, forKey: .memory)
        maxRows = try values.decodeIfPresent(Int.self, forKey: .maxRows)
        queue = try values.decodeIfPresent(Int.self, forKey: .queue)
        maxConnections = try values.decodeIfPresent(Int.self, forKey: .maxConnections)
        maxBody = try values.decodeIfPresent(Int.self, forKey: .maxBody)
    }

    /// Writes it as JSON has it.
    public func encode(to encoder: any Encoder) throws {
        var values = encoder.container(keyedBy: CodingKeys.self)
        try values.encodeIfPresent(listen, forKey: .listen)
        try values.encodeIfPresent(layers.map(Span.init), forKey: .layers)
        try values.encodeIfPresent(experts.map(Span.init), forKey: .experts)
        try values.encodeIfPresent(key, forKey: .key)
        try values.encodeIfPresent(identity, forKey: .identity)
        try values.encodeIfPresent(clients, forKey: .clients)
        try values.encodeIfPresent(ffnBudget, forKey: .ffnBudget)
        try values.encodeIfPresent(threads, forKey: .threads)
        try values.encodeIfPresent(precision, forKey: .precision)
        try values.encodeIfPresent(memory, forKey: .memory)
        try values.encodeIfPresent(maxRows, forKey: .maxRows)
        try values.encodeIfPresent(queue, forKey: .queue)
        try values.encodeIfPresent(maxConnections, forKey: .maxConnections)
        try values.encodeIfPresent(maxBody, forKey: .maxBody)
    }
}

/// Options of measuring a link.
public struct LinkOptions: Codable, Sendable, Hashable {
    /// The key that the server asks for.
    public var key: String?
    /// Certificates that the server's must lead to, in PEM; by default those of public authorities.
    public var roots: String?
    /// What proves to the server who asks: a certificate and its private key, in PEM.
    public var identity: String?
    /// Seconds that measuring may take; 30 by default.
    public var timeout: Double?

    /// Of its fields.
    public init(key: String? = nil, roots: String? = nil, identity: String? = nil, timeout: Double? = nil) {
        self.key = key
        self.roots = roots
        self.identity = identity
        self.timeout = timeout
    }
}

/// Options of one generation.
public struct GenerateOptions: Codable, Sendable, Hashable {
    /// Tokens to generate at most; by default until the model ends or the context is full.
    public var maxTokens: Int?
    /// 0, the default, takes the likeliest token; more makes others likelier.
    public var temperature: Double?
    /// Draws from so many likeliest tokens; by default all.
    public var topK: Int?
    /// Draws from the likeliest tokens that have this probability together; 1 by default.
    public var topP: Double?
    /// Leaves out tokens that are less likely than this part of the likeliest; 0 by default.
    public var minP: Double?
    /// Divides logits of tokens that were there already; 1, the default, does not.
    public var repetitionPenalty: Double?
    /// Is taken from logits of tokens that were there already; 0 by default.
    public var presencePenalty: Double?
    /// Is taken from a token's logit for each time it was there; 0 by default.
    public var frequencyPenalty: Double?
    /// Tokens that penalties look back at; 64 by default.
    public var penaltyWindow: Int?
    /// What is added to logits, by token id.
    public var logitBias: [Int: Double]?
    /// The same seed draws the same tokens; 0 by default.
    public var seed: Int?
    /// Whether tokens are computed ahead: `auto` (the default), where that pays, by times and acceptances that are
    /// measured meanwhile; `off`. What followed when the text read the same is proposed (`ngram`: that alone), or what
    /// a draft model says (`draftModel`: that alone), and kept while it is what is chosen: on the CPU the text is the
    /// same in every bit.
    public var speculate: Speculate?
    /// Tokens that are computed ahead in every step, as far as they are proposed and the step has rows for them,
    /// whether or not that pays, 1 to 15; by default as many as pay.
    public var draftTokens: Int?
    /// Whether another guess at the next token is computed beside the first one, in a copy of the sequence that shares
    /// its pages, for two rows of a step, where the step has them: a small tree. By default where that pays, and never
    /// with `draftTokens`. Models with recurrent layers have none.
    public var draftTree: Bool?
    /// Texts that the text may quote, beside its own prompt: what followed there is proposed, too. At most 262,144
    /// tokens and 4 MiB.
    public var draftTexts: [String]?
    /// Texts that end the generation; they are not part of its text.
    public var stop: [String]?
    /// A JSON Schema that the text keeps to. Of this, `regex`, `grammar` and `responseFormat` one may be given.
    public var jsonSchema: JSONValue?
    /// A regular expression that matches the text as a whole.
    public var regex: String?
    /// A grammar in the syntax of Lark, of whose language the text is.
    public var grammar: String?
    /// What the text is, as OpenAI's chat API and the AI SDK say it: `{"type": "json_object"}`, or with `json_schema`.
    public var responseFormat: JSONValue?
    /// Goes on past end-of-sequence tokens.
    public var ignoreEos: Bool?
    /// Sessions of a higher one begin first, and their prompts are computed first; 0 by default.
    public var priority: Int?
    /// The prompt follows what the session holds; by default it is everything so far.
    public var append: Bool?
    /// Reports each token's log-probability, and those of so many likeliest, 0 to 64.
    public var logprobs: Int?

    /// Of its fields.
    public init(
        maxTokens: Int? = nil,
        temperature: Double? = nil,
        topK: Int? = nil,
        topP: Double? = nil,
        minP: Double? = nil,
        repetitionPenalty: Double? = nil,
        presencePenalty: Double? = nil,
        frequencyPenalty: Double? = nil,
        penaltyWindow: Int? = nil,
        logitBias: [Int: Double]? = nil,
        seed: Int? = nil,
        speculate: Speculate? = nil,
        draftTokens: Int? = nil,
        draftTree: Bool? = nil,
        draftTexts: [String]? = nil,
        stop: [String]? = nil,
        jsonSchema: JSONValue? = nil,
        regex: String? = nil,
        grammar: String? = nil,
        responseFormat: JSONValue? = nil,
        ignoreEos: Bool? = nil,
        priority: Int? = nil,
        append: Bool? = nil,
        logprobs: Int? = nil
    ) {
        self.maxTokens = maxTokens
        self.temperature = temperature
        self.topK = topK
        self.topP = topP
        self.minP = minP
        self.repetitionPenalty = repetitionPenalty
        self.presencePenalty = presencePenalty
        self.frequencyPenalty = frequencyPenalty
        self.penaltyWindow = penaltyWindow
        self.logitBias = logitBias
        self.seed = seed
        self.speculate = speculate
        self.draftTokens = draftTokens
        self.draftTree = draftTree
        self.draftTexts = draftTexts
        self.stop = stop
        self.jsonSchema = jsonSchema
        self.regex = regex
        self.grammar = grammar
        self.responseFormat = responseFormat
        self.ignoreEos = ignoreEos
        self.priority = priority
        self.append = append
        self.logprobs = logprobs
    }
}

/// Options of a prompt.
public struct RenderOptions: Codable, Sendable, Hashable {
    /// What the model may call: functions of OpenAI's shape, each with a JSON Schema of its arguments.
    public var tools: [JSONValue]?
    /// How much the model is to reason; by default as much as it likes. What it cannot do is refused. `on`: Reasoning,
    /// as much as the model likes; `off`: No reasoning.
    public var reasoning: ReasoningChoice?
    /// Documents to answer from, for templates that know them.
    public var documents: [JSONValue]?
    /// Further variables of the template, by name.
    public var variables: JSONValue?
    /// Which of the model's templates; by default the one for tools where tools are given, else the usual one.
    public var template: String?
    /// The time, for templates that tell it, in seconds since 1970; by default the system's clock, in UTC.
    public var now: Int?
    /// Texts of special tokens in messages, tools and documents become these tokens: whoever writes them can write
    /// turns.
    public var trustMessages: Bool?

    /// Of its fields.
    public init(
        tools: [JSONValue]? = nil,
        reasoning: ReasoningChoice? = nil,
        documents: [JSONValue]? = nil,
        variables: JSONValue? = nil,
        template: String? = nil,
        now: Int? = nil,
        trustMessages: Bool? = nil
    ) {
        self.tools = tools
        self.reasoning = reasoning
        self.documents = documents
        self.variables = variables
        self.template = template
        self.now = now
        self.trustMessages = trustMessages
    }
}

/// Options of an answer.
public struct ChatOptions: Codable, Sendable, Hashable {
    /// What the model may call: functions of OpenAI's shape, each with a JSON Schema of its arguments.
    public var tools: [JSONValue]?
    /// How much the model is to reason; by default as much as it likes. What it cannot do is refused. `on`: Reasoning,
    /// as much as the model likes; `off`: No reasoning.
    public var reasoning: ReasoningChoice?
    /// Documents to answer from, for templates that know them.
    public var documents: [JSONValue]?
    /// Further variables of the template, by name.
    public var variables: JSONValue?
    /// Which of the model's templates; by default the one for tools where tools are given, else the usual one.
    public var template: String?
    /// The time, for templates that tell it, in seconds since 1970; by default the system's clock, in UTC.
    public var now: Int?
    /// Texts of special tokens in messages, tools and documents become these tokens: whoever writes them can write
    /// turns.
    public var trustMessages: Bool?
    /// Tokens to generate at most; by default until the model ends or the context is full.
    public var maxTokens: Int?
    /// 0, the default, takes the likeliest token; more makes others likelier.
    public var temperature: Double?
    /// Draws from so many likeliest tokens; by default all.
    public var topK: Int?
    /// Draws from the likeliest tokens that have this probability together; 1 by default.
    public var topP: Double?
    /// Leaves out tokens that are less likely than this part of the likeliest; 0 by default.
    public var minP: Double?
    /// Divides logits of tokens that were there already; 1, the default, does not.
    public var repetitionPenalty: Double?
    /// Is taken from logits of tokens that were there already; 0 by default.
    public var presencePenalty: Double?
    /// Is taken from a token's logit for each time it was there; 0 by default.
    public var frequencyPenalty: Double?
    /// Tokens that penalties look back at; 64 by default.
    public var penaltyWindow: Int?
    /// What is added to logits, by token id.
    public var logitBias: [Int: Double]?
    /// The same seed draws the same tokens; 0 by default.
    public var seed: Int?
    /// Whether tokens are computed ahead: `auto` (the default), where that pays, by times and acceptances that are
    /// measured meanwhile; `off`. What followed when the text read the same is proposed (`ngram`: that alone), or what
    /// a draft model says (`draftModel`: that alone), and kept while it is what is chosen: on the CPU the text is the
    /// same in every bit.
    public var speculate: Speculate?
    /// Tokens that are computed ahead in every step, as far as they are proposed and the step has rows for them,
    /// whether or not that pays, 1 to 15; by default as many as pay.
    public var draftTokens: Int?
    /// Whether another guess at the next token is computed beside the first one, in a copy of the sequence that shares
    /// its pages, for two rows of a step, where the step has them: a small tree. By default where that pays, and never
    /// with `draftTokens`. Models with recurrent layers have none.
    public var draftTree: Bool?
    /// Texts that the text may quote, beside its own prompt: what followed there is proposed, too. At most 262,144
    /// tokens and 4 MiB.
    public var draftTexts: [String]?
    /// Texts that end the generation; they are not part of its text.
    public var stop: [String]?
    /// A JSON Schema that the text keeps to. Of this, `regex`, `grammar` and `responseFormat` one may be given.
    public var jsonSchema: JSONValue?
    /// A regular expression that matches the text as a whole.
    public var regex: String?
    /// A grammar in the syntax of Lark, of whose language the text is.
    public var grammar: String?
    /// What the text is, as OpenAI's chat API and the AI SDK say it: `{"type": "json_object"}`, or with `json_schema`.
    public var responseFormat: JSONValue?
    /// Goes on past end-of-sequence tokens.
    public var ignoreEos: Bool?
    /// Sessions of a higher one begin first, and their prompts are computed first; 0 by default.
    public var priority: Int?
    /// Tokens that the model may reason at most; then its reasoning is ended, and it goes on with the answer.
    public var reasoningBudget: Int?

    /// Of its fields.
    public init(
        tools: [JSONValue]? = nil,
        reasoning: ReasoningChoice? = nil,
        documents: [JSONValue]? = nil,
        variables: JSONValue? = nil,
        template: String? = nil,
        now: Int? = nil,
        trustMessages: Bool? = nil,
        maxTokens: Int? = nil,
        temperature: Double? = nil,
        topK: Int? = nil,
        topP: Double? = nil,
        minP: Double? = nil,
        repetitionPenalty: Double? = nil,
        presencePenalty: Double? = nil,
        frequencyPenalty: Double? = nil,
        penaltyWindow: Int? = nil,
        logitBias: [Int: Double]? = nil,
        seed: Int? = nil,
        speculate: Speculate? = nil,
        draftTokens: Int? = nil,
        draftTree: Bool? = nil,
        draftTexts: [String]? = nil,
        stop: [String]? = nil,
        jsonSchema: JSONValue? = nil,
        regex: String? = nil,
        grammar: String? = nil,
        responseFormat: JSONValue? = nil,
        ignoreEos: Bool? = nil,
        priority: Int? = nil,
        reasoningBudget: Int? = nil
    ) {
        self.tools = tools
        self.reasoning = reasoning
        self.documents = documents
        self.variables = variables
        self.template = template
        self.now = now
        self.trustMessages = trustMessages
        self.maxTokens = maxTokens
        self.temperature = temperature
        self.topK = topK
        self.topP = topP
        self.minP = minP
        self.repetitionPenalty = repetitionPenalty
        self.presencePenalty = presencePenalty
        self.frequencyPenalty = frequencyPenalty
        self.penaltyWindow = penaltyWindow
        self.logitBias = logitBias
        self.seed = seed
        self.speculate = speculate
        self.draftTokens = draftTokens
        self.draftTree = draftTree
        self.draftTexts = draftTexts
        self.stop = stop
        self.jsonSchema = jsonSchema
        self.regex = regex
        self.grammar = grammar
        self.responseFormat = responseFormat
        self.ignoreEos = ignoreEos
        self.priority = priority
        self.reasoningBudget = reasoningBudget
    }
}

/// Options of a conversation in which the model calls functions.
public struct ToolOptions: Codable, Sendable, Hashable {
    /// Answers at most, 8 by default; calls of the last one get no results.
    public var maxRounds: Int?
    /// What happens where a function fails; `tell` by default. `tell`: The model is told: the result is `error: ` and
    /// what the error displays; `end`: The conversation ends with `tool.failed`.
    public var onToolFailure: OnToolFailure?

    /// Of its fields.
    public init(maxRounds: Int? = nil, onToolFailure: OnToolFailure? = nil) {
        self.maxRounds = maxRounds
        self.onToolFailure = onToolFailure
    }
}

/// Options of loading an embedding model.
public struct EmbeddingOptions: Codable, Sendable, Hashable {
    /// Threads that compute; all of the hardware's by default. Vectors do not depend on it.
    public var threads: Int?

    /// Of its fields.
    public init(threads: Int? = nil) {
        self.threads = threads
    }
}

/// Options of making vectors of texts.
public struct EmbedOptions: Codable, Sendable, Hashable {
    /// Of texts that are too long only the beginning counts (the default); without it they are an error.
    public var truncate: Bool?

    /// Of its fields.
    public init(truncate: Bool? = nil) {
        self.truncate = truncate
    }
}

/// Options of a plan.
public struct PlanOptions: Codable, Sendable, Hashable {
    /// How the model is split; `pipeline` by default. `pipeline`: By layers: each node has some; `tensor`: By tensors:
    /// each node has a part of every layer.
    public var sharding: Sharding?
    /// How nodes talk; `direct` by default. `direct`: The coordinator, which has the first stage, talks to each of the
    /// others: this library's own way; `mlx_ring`: In a ring of sockets, as MLX does; `mlx_jaccl`: Each with each by
    /// RDMA, as MLX does.
    public var transport: Transport?
    /// Nodes to use at least; 1 by default.
    public var minNodes: Int?
    /// Nodes that must be used.
    public var requiredNodes: Set<String>?
    /// Nodes that must not.
    public var excludedNodes: Set<String>?
    /// The node that has the conversation and the first stage; by default the planner chooses. Only for `direct`.
    public var coordinator: String?
    /// Tokens for which keys and values are reserved, of each session; 8192 by default. With the transport `direct` no
    /// more than the model was trained for and its card allows.
    public var contextTokens: Int?
    /// Tokens of the prompt whose time is estimated; 512 by default, and no more than the context has.
    public var promptTokens: Int?
    /// Sessions that generate at once, each of which has its keys and values; 1 by default. Only for `direct`.
    public var sessions: Int?
    /// How keys and values are kept, and loading keeps them so; MLX has `f16` alone. By default in two bytes an
    /// element, of which loading chooses the type.
    public var kv: KvType?
    /// How values are kept, where that is otherwise than keys.
    public var kvValues: KvType?
    /// How careful it is with memory: `safe` (the default); `relaxed`, without margins; `force` refuses nothing for its
    /// sake, and says what is over.
    public var strictness: Strictness?
    /// Feed-forward blocks and experts that fit in no memory may stay on the coordinator's disk, and be read when they
    /// are needed. Only for `direct`.
    public var fromDisk: Bool?
    /// Owners that each block and expert on another node than its layer's attention gets beside its first, where there
    /// is room on further nodes; 0 by default. The report warns where some have fewer.
    public var replicas: Int?
    /// What each part of the model weighs; by default a checkpoint's tensors are counted, and a card's size is divided.
    public var inventory: Inventory?
    /// The head for tokens ahead (MTP) that the checkpoint has drafts: memory is planned for it, and the model loads
    /// it. Only for `direct`.
    public var mtp: Bool?
    /// What drafts instead: the inventory of a `draftModel` of loading. Only for `direct`.
    public var draftModel: Inventory?
    /// What is fixed by hand, by rules as those of a placement by hand with places on the cluster's nodes, as
    /// `wgpu@shed`; the rest is planned, blocks of layers that rules name among it. Only for `direct`.
    public var fixed: PlacementOptions?
    /// Rings to consider, and no others, as nodes by rank; not for `direct`.
    public var rings: [[String]]?
    /// The port on which nodes listen; 50000 by default.
    public var port: Int?

    /// Of its fields.
    public init(
        sharding: Sharding? = nil,
        transport: Transport? = nil,
        minNodes: Int? = nil,
        requiredNodes: Set<String>? = nil,
        excludedNodes: Set<String>? = nil,
        coordinator: String? = nil,
        contextTokens: Int? = nil,
        promptTokens: Int? = nil,
        sessions: Int? = nil,
        kv: KvType? = nil,
        kvValues: KvType? = nil,
        strictness: Strictness? = nil,
        fromDisk: Bool? = nil,
        replicas: Int? = nil,
        inventory: Inventory? = nil,
        mtp: Bool? = nil,
        draftModel: Inventory? = nil,
        fixed: PlacementOptions? = nil,
        rings: [[String]]? = nil,
        port: Int? = nil
    ) {
        self.sharding = sharding
        self.transport = transport
        self.minNodes = minNodes
        self.requiredNodes = requiredNodes
        self.excludedNodes = excludedNodes
        self.coordinator = coordinator
        self.contextTokens = contextTokens
        self.promptTokens = promptTokens
        self.sessions = sessions
        self.kv = kv
        self.kvValues = kvValues
        self.strictness = strictness
        self.fromDisk = fromDisk
        self.replicas = replicas
        self.inventory = inventory
        self.mtp = mtp
        self.draftModel = draftModel
        self.fixed = fixed
        self.rings = rings
        self.port = port
    }
}

/// Options of a price.
public struct PriceOptions: Codable, Sendable, Hashable {
    /// Tokens of each session's context, in the middle of which a token is priced; 8192 by default, and no more than
    /// the model was trained for and its card allows.
    public var contextTokens: Int?
    /// Tokens of the prompt that is priced; 512 by default, and no more than the context has.
    public var promptTokens: Int?
    /// Sessions that generate at once; 1 by default.
    public var sessions: Int?
    /// How keys and values are kept; by default in two bytes an element.
    public var kv: KvType?
    /// How values are kept, where that is otherwise than keys.
    public var kvValues: KvType?
    /// What each part of the model weighs; by default a checkpoint's tensors are counted, and a card's size is divided.
    public var inventory: Inventory?
    /// The head for tokens ahead (MTP) that the checkpoint has drafts.
    public var mtp: Bool?
    /// What drafts instead: the inventory of a `draftModel` of loading.
    public var draftModel: Inventory?

    /// Of its fields.
    public init(
        contextTokens: Int? = nil,
        promptTokens: Int? = nil,
        sessions: Int? = nil,
        kv: KvType? = nil,
        kvValues: KvType? = nil,
        inventory: Inventory? = nil,
        mtp: Bool? = nil,
        draftModel: Inventory? = nil
    ) {
        self.contextTokens = contextTokens
        self.promptTokens = promptTokens
        self.sessions = sessions
        self.kv = kv
        self.kvValues = kvValues
        self.inventory = inventory
        self.mtp = mtp
        self.draftModel = draftModel
    }
}

/// A placement by hand. An engine is named as `wgpu`, or with its node as `cpu@shed`. What two options place, they must
/// place alike; feed-forward blocks and experts that none names stay with their layer's attention.
public struct PlacementOptions: Codable, Sendable, Hashable {
    /// The engine of layers that `layers` does not name.
    public var engine: String?
    /// Layers as stages, as in `0..20=wgpu`.
    public var layers: [String]?
    /// Feed-forward blocks of layers with all their experts, as in `4..20=cpu`, or some experts of each, as in
    /// `4..20:0..64=cpu@shed`. A dense block is expert 0.
    public var experts: [String]?
    /// Blocks and experts by regular expressions over the checkpoint's names of tensors, as llama.cpp's option of this
    /// name takes them: `blk\.(1[0-9])\.ffn_.*_exps\.=CPU`. Each must match whole blocks or experts, and nothing of
    /// attention.
    public var overrideTensors: [String]?

    /// Of its fields.
    public init(
        engine: String? = nil,
        layers: [String]? = nil,
        experts: [String]? = nil,
        overrideTensors: [String]? = nil
    ) {
        self.engine = engine
        self.layers = layers
        self.experts = experts
        self.overrideTensors = overrideTensors
    }
}

/// Which rings are asked for.
public struct RingsOptions: Codable, Sendable, Hashable {
    /// How the model is split; `pipeline` by default. `pipeline`: By layers: each node has some; `tensor`: By tensors:
    /// each node has a part of every layer.
    public var sharding: Sharding?
    /// How nodes talk: one of MLX's ways; `mlx_ring` by default. `direct`: The coordinator, which has the first stage,
    /// talks to each of the others: this library's own way; `mlx_ring`: In a ring of sockets, as MLX does; `mlx_jaccl`:
    /// Each with each by RDMA, as MLX does.
    public var transport: Transport?
    /// Nodes to use at least; 1 by default.
    public var minNodes: Int?

    /// Of its fields.
    public init(sharding: Sharding? = nil, transport: Transport? = nil, minNodes: Int? = nil) {
        self.sharding = sharding
        self.transport = transport
        self.minNodes = minNodes
    }
}

/// What else than its card is known of a model.
public struct ProfileOptions: Codable, Sendable, Hashable {
    /// Its tokenizer's chat template knows tools.
    public var tokenizerTools: Bool?
    /// Its tokenizer has markers for reasoning.
    public var tokenizerThinking: Bool?
    /// The request consists of chat messages. Left out, with the next: nothing is known of it yet.
    public var hasMessages: Bool?
    /// The request offers tools.
    public var hasTools: Bool?

    /// Of its fields.
    public init(
        tokenizerTools: Bool? = nil,
        tokenizerThinking: Bool? = nil,
        hasMessages: Bool? = nil,
        hasTools: Bool? = nil
    ) {
        self.tokenizerTools = tokenizerTools
        self.tokenizerThinking = tokenizerThinking
        self.hasMessages = hasMessages
        self.hasTools = hasTools
    }
}

/// Options of an extraction.
public struct ExtractOptions: Codable, Sendable, Hashable {
    /// How much of the model; `all` by default. `browse`: Gate vectors, embeddings, and what features mean;
    /// `attention`: Attention and norms too; `inference`: All that generation takes; `all`: Everything.
    public var level: VindexLevel?
    /// How weights are kept: `f32`, `f16` (the default) or `q4k`, with which all that generation takes is written.
    public var storage: VindexStorage?
    /// Down projections as Q4_K rather than Q6_K. Only with `q4k`.
    public var downQ4k: Bool?
    /// Down projections once more, transposed. Only with `q4k`.
    public var featureMajorDown: Bool?
    /// Gate vectors as floats (the default). With `q4k` quantised gate projections can stand for them.
    public var gateVectors: Bool?
    /// Tokens that are kept for each feature, 10 by default; 0: none.
    public var featureTokens: Int?
    /// The model's name in the index; by default its file's or folder's.
    public var name: String?
    /// Threads that compute; all of the hardware's by default.
    public var threads: Int?
    /// Begins anew where an extraction was interrupted; by default it continues.
    public var restart: Bool?

    /// Of its fields.
    public init(
        level: VindexLevel? = nil,
        storage: VindexStorage? = nil,
        downQ4k: Bool? = nil,
        featureMajorDown: Bool? = nil,
        gateVectors: Bool? = nil,
        featureTokens: Int? = nil,
        name: String? = nil,
        threads: Int? = nil,
        restart: Bool? = nil
    ) {
        self.level = level
        self.storage = storage
        self.downQ4k = downQ4k
        self.featureMajorDown = featureMajorDown
        self.gateVectors = gateVectors
        self.featureTokens = featureTokens
        self.name = name
        self.threads = threads
        self.restart = restart
    }
}

/// Options of a slice.
public struct SliceOptions: Codable, Sendable, Hashable {
    /// The role that it is for; `full` by default.
    public var preset: SlicePreset?
    /// Parts to take instead of those of the preset.
    public var parts: Set<VindexPart>?
    /// Layers whose weights it holds; by default all.
    public var layers: [Range<Int>]?
    /// Experts of each layer whose weights it holds; by default all.
    public var experts: [Range<Int>]?
    /// How files that are taken whole come into it; `auto` by default. `auto`: As links, else copy-on-write, else as
    /// copies. A linked file is the same in both folders, changes included; `copy`: As files of their own,
    /// copy-on-write where the file system can.
    public var copy: SliceCopy?
    /// Files that are worked on at a time; all of the hardware's threads by default.
    public var threads: Int?

    /// Of its fields.
    public init(
        preset: SlicePreset? = nil,
        parts: Set<VindexPart>? = nil,
        layers: [Range<Int>]? = nil,
        experts: [Range<Int>]? = nil,
        copy: SliceCopy? = nil,
        threads: Int? = nil
    ) {
        self.preset = preset
        self.parts = parts
        self.layers = layers
        self.experts = experts
        self.copy = copy
        self.threads = threads
    }

    enum CodingKeys: CodingKey {
        case preset, parts, layers, experts, copy, threads
    }

    /// Reads what JSON has of it.
    public init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: CodingKeys.self)
        preset = try values.decodeIfPresent(SlicePreset.self, forKey: .preset)
        parts = try values.decodeIfPresent(Set<VindexPart>.self, forKey: .parts)
        layers = try values.decodeIfPresent([Span].self, forKey: .layers)?.map { try $0.range }
        experts = try values.decodeIfPresent([Span].self, forKey: .experts)?.map { try $0.range }
        copy = try values.decodeIfPresent(SliceCopy.self, forKey: .copy)
        threads = try values.decodeIfPresent(Int.self, forKey: .threads)
    }

    /// Writes it as JSON has it.
    public func encode(to encoder: any Encoder) throws {
        var values = encoder.container(keyedBy: CodingKeys.self)
        try values.encodeIfPresent(preset, forKey: .preset)
        try values.encodeIfPresent(parts, forKey: .parts)
        try values.encodeIfPresent(layers?.map(Span.init), forKey: .layers)
        try values.encodeIfPresent(experts?.map(Span.init), forKey: .experts)
        try values.encodeIfPresent(copy, forKey: .copy)
        try values.encodeIfPresent(threads, forKey: .threads)
    }
}

/// Options of a verification.
public struct VerifyOptions: Codable, Sendable, Hashable {
    /// Compares hashes (the default), which reads all files that have any.
    public var hashes: Bool?
    /// Looks for numbers that are infinite or none, which reads all weights.
    public var values: Bool?
    /// Pieces of files that are looked at at a time; all of the hardware's threads by default.
    public var threads: Int?

    /// Of its fields.
    public init(hashes: Bool? = nil, values: Bool? = nil, threads: Int? = nil) {
        self.hashes = hashes
        self.values = values
        self.threads = threads
    }
}

/// Options of a search for the features nearest to a query.
public struct NearestOptions: Codable, Sendable, Hashable {
    /// Features of each layer; 10 by default.
    public var k: Int?
    /// The layers; by default all that have features.
    public var layers: [Int]?

    /// Of its fields.
    public init(k: Int? = nil, layers: [Int]? = nil) {
        self.k = k
        self.layers = layers
    }
}

/// Options of a walk through the features that a prompt wakes.
public struct WalkOptions: Codable, Sendable, Hashable {
    /// Features of each layer; 5 by default.
    public var top: Int?
    /// The layers, in the order in which they are walked; by default all that have features.
    public var layers: [Int]?

    /// Of its fields.
    public init(top: Int? = nil, layers: [Int]? = nil) {
        self.top = top
        self.layers = layers
    }
}

/// Options of a description.
public struct DescribeOptions: Codable, Sendable, Hashable {
    /// Layers that are searched; those of facts (`knowledge`) by default. `all`: Every layer; `syntax`: Those of
    /// syntax; `knowledge`: Those of facts; `output`: Those that form the output.
    public var band: Band?
    /// Features that are looked at in each layer, and edges at most; 20 by default.
    public var limit: Int?
    /// Gate scores below this do not count; 5 by default.
    public var minScore: Double?

    /// Of its fields.
    public init(band: Band? = nil, limit: Int? = nil, minScore: Double? = nil) {
        self.band = band
        self.limit = limit
        self.minScore = minScore
    }
}

/// Options of a selection of features.
public struct SelectOptions: Codable, Sendable, Hashable {
    /// Part of the token that a feature writes most, regardless of case.
    public var entity: String?
    /// Part of the label that a probe confirmed, regardless of case.
    public var relation: String?
    /// The layer; by default all.
    public var layer: Int?
    /// Scores below this do not count.
    public var minScore: Double?
    /// What the list is ordered by; `score` by default. `score`: How much a feature writes its token: `cScore`;
    /// `layer`: The layer.
    public var order: SelectOrder?
    /// The smallest first.
    public var ascending: Bool?
    /// Features at most; 20 by default.
    public var limit: Int?

    /// Of its fields.
    public init(
        entity: String? = nil,
        relation: String? = nil,
        layer: Int? = nil,
        minScore: Double? = nil,
        order: SelectOrder? = nil,
        ascending: Bool? = nil,
        limit: Int? = nil
    ) {
        self.entity = entity
        self.relation = relation
        self.layer = layer
        self.minScore = minScore
        self.order = order
        self.ascending = ascending
        self.limit = limit
    }
}

/// Options of a list of relations.
public struct RelationsOptions: Codable, Sendable, Hashable {
    /// Words at most; 50 by default.
    public var limit: Int?
    /// Features that write their token less than this do not count; 0.2 by default.
    public var minScore: Double?

    /// Of its fields.
    public init(limit: Int? = nil, minScore: Double? = nil) {
        self.limit = limit
        self.minScore = minScore
    }
}

/// How a model marks its reasoning.
public enum ReasoningFormat: String, Codable, Sendable, Hashable, CaseIterable {
    /// Not at all.
    case nothing = "none"
    /// Between two markers, as `<think>` and `</think>`.
    case tokenDelimited = "token_delimited"
    /// On a channel of its own.
    case channelDelimited = "channel_delimited"
}

/// How much a model reasons before it answers.
public enum ReasoningEffort: String, Codable, Sendable, Hashable, CaseIterable {
    /// Not at all.
    case nothing = "none"
    /// Hardly.
    case minimal
    /// Little.
    case low
    /// Some.
    case medium
    /// Much.
    case high
    /// As much as it can.
    case xhigh
}

/// How a model writes tool calls.
public enum ToolCallFormat: String, Codable, Sendable, Hashable, CaseIterable {
    /// As its tokenizer's chat template says.
    case generic
    /// Gemma 4's.
    case gemma4
    /// Harmony, of gpt-oss.
    case gptOss = "gpt_oss"
    /// DeepSeek V3.2's markup.
    case dsml
}

/// A tool that a model was trained to use.
public enum BuiltinTool: String, Codable, Sendable, Hashable, CaseIterable {
    /// Searches the web.
    case webSearch = "web_search"
    /// Opens a page.
    case openUrl = "open_url"
    /// Reads a page's text.
    case extractPage = "extract_page"
}

/// What turns messages into a prompt.
public enum PromptRenderer: String, Codable, Sendable, Hashable, CaseIterable {
    /// The chat template of the tokenizer.
    case tokenizer
    /// Gemma 4's.
    case gemma4
    /// DeepSeek V3.2's.
    case dsml
}

/// What takes an answer apart.
public enum OutputParser: String, Codable, Sendable, Hashable, CaseIterable {
    /// By the thinking format and the tool-call format.
    case generic
    /// Gemma 4's.
    case gemma4
    /// Harmony, of gpt-oss.
    case gptOss = "gpt_oss"
    /// DeepSeek V3.2's.
    case deepseekV32 = "deepseek_v32"
}

/// What the norm weights of a multi-token-prediction sidecar are relative to.
public enum MtpNormConvention: String, Codable, Sendable, Hashable, CaseIterable {
    /// 1 is to be added.
    case zeroCentered = "zero_centered"
    /// They are the factors themselves.
    case actualScale = "actual_scale"
}

/// The order in which a multi-token-prediction head joins its two inputs.
public enum MtpConcatOrder: String, Codable, Sendable, Hashable, CaseIterable {
    /// The token's embedding, then the hidden state.
    case embedFirst = "embed_first"
    /// The hidden state, then the token's embedding.
    case hiddenFirst = "hidden_first"
}

/// How a served model speculates.
public enum ServedSpecType: String, Codable, Sendable, Hashable, CaseIterable {
    /// Not at all.
    case nothing = "none"
    /// With its own multi-token-prediction heads.
    case draftMtp = "draft_mtp"
    /// With an EAGLE-3 draft.
    case draftEagle3 = "draft_eagle3"
    /// With a smaller model.
    case draftSimple = "draft_simple"
    /// With n-grams of the text so far.
    case ngram
}

/// What a layer is.
public enum LayerKind: String, Codable, Sendable, Hashable, CaseIterable {
    /// Attention to all positions, and a feed-forward block.
    case full
    /// Attention to the positions of a window, and a feed-forward block.
    case window
    /// A state instead of keys and values, and a feed-forward block.
    case recurrent
    /// A feed-forward block alone. Where there are such layers, the others have no feed-forward blocks.
    case feedForward = "feed_forward"
}

/// What a model does.
public enum ModelTask: String, Codable, Sendable, Hashable, CaseIterable {
    /// Writes text.
    case textGeneration = "TextGeneration"
    /// Turns text into vectors.
    case textEmbedding = "TextEmbedding"
    /// Draws images from text.
    case textToImage = "TextToImage"
    /// Draws images from images.
    case imageToImage = "ImageToImage"
}

/// Who made an accelerator.
public enum Vendor: String, Codable, Sendable, Hashable, CaseIterable {
    /// Apple.
    case apple
    /// AMD.
    case amd
    /// NVIDIA.
    case nvidia
    /// Intel.
    case intel
    /// The CPU itself.
    case cpu
    /// Somebody else.
    case unknown
}

/// What kind of network an interface belongs to.
public enum InterfaceType: String, Codable, Sendable, Hashable, CaseIterable {
    /// Wireless.
    case wifi
    /// Ethernet.
    case ethernet
    /// Probably Ethernet.
    case maybeEthernet = "maybe_ethernet"
    /// Thunderbolt.
    case thunderbolt
    /// Nobody knows.
    case unknown
}

/// What a node does.
public enum Role: String, Codable, Sendable, Hashable, CaseIterable {
    /// Any part of a model.
    case full
    /// None: it only coordinates.
    case management
    /// Feed-forward blocks and experts, never attention.
    case ffnOnly = "ffn_only"
}

/// Where the weights of engines that use them in place lie. Logits do not depend on it.
public enum Memory: String, Codable, Sendable, Hashable, CaseIterable {
    /// `Resident` for a shard whose weights and keys and values leave a tenth of the machine's memory (of the
    /// container's, where it has a limit) available; otherwise `Mapped`.
    case auto
    /// Pages of the file, which the system may drop and read again, and which all processes share.
    case mapped
    /// Read once into anonymous memory, in huge pages where the system has them, through which weights stream faster.
    /// What was read leaves the page cache, so that it does not exist twice.
    case resident
}

/// Whether tokens are computed ahead.
public enum Speculate: String, Codable, Sendable, Hashable, CaseIterable {
    /// Where it pays, by times and acceptances that are measured meanwhile: what texts repeat is proposed, or what a
    /// draft model says, and kept while it is what the model would have written.
    case auto
    /// The same with what texts repeat alone: the session's own, and others.
    case ngram
    /// The same with a draft model alone, which must be loaded.
    case draftModel = "draft_model"
    /// One token after the other.
    case off
}

/// Why a generation ended.
public enum FinishReason: String, Codable, Sendable, Hashable, CaseIterable {
    /// The model produced an end-of-sequence token, or nothing may follow by the constraint.
    case eos
    /// A stop string occurred.
    case stop
    /// `maxTokens` were generated, or the context is full.
    case length
}

/// Why an answer ended.
public enum ChatFinishReason: String, Codable, Sendable, Hashable, CaseIterable {
    /// The model ended its turn, or a stop string occurred.
    case stop
    /// `maxTokens` were generated, or the context is full.
    case length
    /// The model ended its turn with calls that wait for their results.
    case toolCalls = "tool_calls"
    /// It was cancelled.
    case cancelled
    /// Its deadline passed.
    case deadline
}

/// What is wrong with a call.
public enum CallProblem: String, Codable, Sendable, Hashable, CaseIterable {
    /// The answer ends within it.
    case unfinished
    /// It breaks its format's rules.
    case syntax
    /// It names no function.
    case noName = "no_name"
    /// It has no arguments, or they are no object.
    case noArguments = "no_arguments"
    /// Its arguments are no JSON.
    case invalidJson = "invalid_json"
    /// Its values are nested too deeply.
    case tooDeep = "too_deep"
}

/// What is wrong with a field.
public enum FaultKind: String, Codable, Sendable, Hashable, CaseIterable {
    /// The format has no such field, or it is there twice: in both spellings, or in one.
    case unknown
    /// A required field is not there.
    case missing
    /// A value of another type.
    case type
    /// A number outside its range.
    case range
    /// None of the values that the format allows.
    case value
    /// Fields that exclude each other, or one that needs another.
    case conflict
}

/// What of its layers a stage has.
public enum PartKind: String, Codable, Sendable, Hashable, CaseIterable {
    /// All of them.
    case whole
    /// Of each tensor its share.
    case tensor
    /// All of them, for one half of guidance.
    case cfg
}

/// A part of a vindex: files that slices have or lack together.
public enum VindexPart: String, Codable, Sendable, Hashable, CaseIterable {
    /// `index.json` and hashes: in every folder.
    case index
    /// `embeddings.bin`.
    case embed
    /// `norms.bin`.
    case norms
    /// `attn_weights*`.
    case attn
    /// `gate_vectors*`.
    case gate
    /// `down_meta.bin`, in version 1 `down_meta.jsonl`.
    case downMeta = "down_meta"
    /// Up and down projections, or gate, up and down together.
    case ffn
    /// Down projections by feature: `down_features*`.
    case downFeatures = "down_features"
    /// `layers/layer_NN.weights`.
    case expertLayers = "expert_layers"
    /// `lm_head*`.
    case lmHead = "lm_head"
    /// `router_weights.bin`.
    case router
    /// `ple_weights.bin`: per-layer embeddings.
    case ple
    /// `tokenizer.json`, `tokenizer_config.json`, `generation_config.json`, `chat_template.jinja`.
    case tokenizer
    /// `weight_manifest.json`.
    case manifest
    /// `feature_labels.json`, `feature_clusters.jsonl`, `relation_clusters.json`.
    case labels
    /// `knn_store.bin`: facts that were inserted.
    case knn
    /// `README.md`.
    case readme
}

/// How a file came into a slice.
public enum SliceMethod: String, Codable, Sendable, Hashable, CaseIterable {
    /// It is the same file.
    case linked
    /// It has the same blocks until one of both is written to.
    case cloned
    /// Its bytes were copied.
    case copied
    /// It was written anew, with what the slice takes of it.
    case rewritten
}

/// How a file was found.
public enum VerifyStatus: String, Codable, Sendable, Hashable, CaseIterable {
    /// Its hash is what it was.
    case verified
    /// Nothing is wrong with it, but there is no hash to compare with, or none was compared.
    case checked
    /// It is not there, though it should be.
    case missing
    /// It has a problem.
    case damaged
}

/// What kind of damage a problem is.
public enum VerifyKind: String, Codable, Sendable, Hashable, CaseIterable {
    /// A file is not there.
    case missing
    /// A file is shorter or longer than it was, or than what it is to hold.
    case size
    /// Bytes are others than they were.
    case hash
    /// A tensor lies over another.
    case overlap
    /// Bytes are no tensor's; of a file that no manifest mentions, none are.
    case gap
    /// Numbers are infinite or none.
    case notFinite = "not_finite"
    /// A file of weights that has no hash, in a folder that has hashes.
    case unlisted
    /// A file breaks its format.
    case format
    /// The system cannot read a file.
    case unreadable
}

/// Where a label comes from.
public enum LabelSource: String, Codable, Sendable, Hashable, CaseIterable {
    /// A probe of the model confirmed it: `feature_labels.json`.
    case probe
    /// It is the name of the feature's cluster: `relation_clusters.json` and `feature_clusters.jsonl`.
    case cluster
}

/// Whether trying again can help.
public enum Retry: String, Codable, Sendable, Hashable, CaseIterable {
    /// The same call will fail again.
    case never
    /// The same call may succeed.
    case now
    /// The call may succeed on another placement.
    case afterReplan = "after_replan"
}

/// How values of replies cross.
public enum WireType: String, Codable, Sendable, Hashable, CaseIterable {
    /// As they are: four bytes each.
    case f32
    /// Rounded to half precision, to the nearest and then to the even: two bytes each.
    case f16
    /// Integers from -127 to 127, with a scale for each row: a byte each, and eight for each row.
    case i8
}

/// How keys or values are kept.
public enum KvType: String, Codable, Sendable, Hashable, CaseIterable {
    /// Half precision: 2 bytes an element.
    case f16
    /// bfloat16: 2 bytes an element. The CPU also rounds queries, and the weights of positions, to it, as processors
    /// with instructions for it multiply such pairs in half the time; what is smaller than 2^-56 is zero there.
    case bf16
    /// Single precision: 4 bytes an element.
    case f32
    /// Rotated, 8 bits an element and a scale for 32: 53 % of half precision.
    case q80 = "q8_0"
    /// Rotated, 4 bits an element and a scale for 32: 28 % of half precision.
    case q40 = "q4_0"
}

/// What happens to a session that needs another page of keys and values when all memory for them is in use.
public enum WhenFull: String, Codable, Sendable, Hashable, CaseIterable {
    /// What sessions hold that do nothing is given up, then it waits until others have ended. Where all wait, one of
    /// the lowest priority that came last gives up its pages and is computed again later. Texts do not depend on it.
    case wait
    /// What sessions hold that do nothing is given up; where that is not enough, and no session is being dropped, saved
    /// or restored, it ends with `memory.exhausted`.
    case evict
    /// It ends with `memory.exhausted`; what other sessions hold stays.
    case fail
}

/// How precisely activations enter products with quantised weights, or with weights in BF16. Other products are in f32,
/// and sums are everywhere. Engines `wgpu` and `candle-cpu` compute all in f32, whatever is asked for.
public enum Precision: String, Codable, Sendable, Hashable, CaseIterable {
    /// Rounded to 8 bits, each by at most 1/254 of the largest in its block of 32 or 256, as other software does.
    /// Engine `cpu` keeps as much as `Exact` of what enters the head.
    case fast
    /// What that rounding leaves over is rounded to 8 bits and multiplied too: each is off by at most 1/64,516 of the
    /// largest. Takes about twice the arithmetic. Engines `candle-cuda` and `candle-metal` round nothing: they expand
    /// quantised weights to f32 for each product.
    case exact
    /// Like `Fast`, and where weights are in BF16, engine `cpu` rounds activations to BF16 too, each by at most 1/512
    /// of itself, but for what enters the head. CPUs that multiply BF16 (AVX-512 BF16) need about half the time for the
    /// products of a prompt. Other engines compute as in `Fast`.
    case bf16
}

/// How much a model is to reason: whether at all, or an effort.
public enum ReasoningChoice: String, Codable, Sendable, Hashable, CaseIterable {
    /// Reasoning, as much as the model likes.
    case on
    /// No reasoning.
    case off
    /// `none`.
    case nothing = "none"
    /// `minimal`.
    case minimal
    /// `low`.
    case low
    /// `medium`.
    case medium
    /// `high`.
    case high
    /// `xhigh`.
    case xhigh
}

/// What happens where a function fails that a model called.
public enum OnToolFailure: String, Codable, Sendable, Hashable, CaseIterable {
    /// The model is told: the result is `error: ` and what the error displays.
    case tell
    /// The conversation ends with `tool.failed`.
    case end
}

/// How a model is split.
public enum Sharding: String, Codable, Sendable, Hashable, CaseIterable {
    /// By layers: each node has some.
    case pipeline
    /// By tensors: each node has a part of every layer.
    case tensor
}

/// How the nodes of a placement talk. JSON may have Skulk 1.3's spelling, as in `MlxRing`.
public enum Transport: String, Codable, Sendable, Hashable, CaseIterable {
    /// The coordinator, which has the first stage, talks to each of the others: this library's own way.
    case direct
    /// In a ring of sockets, as MLX does.
    case mlxRing = "mlx_ring"
    /// Each with each by RDMA, as MLX does.
    case mlxJaccl = "mlx_jaccl"
}

/// How careful a plan is with memory.
public enum Strictness: String, Codable, Sendable, Hashable, CaseIterable {
    /// With margins that were enough on every machine seen: weights count 1.3 times (GGUF 1.1 times), and no more than
    /// 75 % of main memory or 90 % of an accelerator's is used.
    case safe
    /// Weights count once, and 90 % of main memory may be used even where other programs hold some.
    case relaxed
    /// Memory is no reason to refuse. The report says what is over its budget, and by how much.
    case force
}

/// How much of a model was extracted, each level being a part of the next.
public enum VindexLevel: String, Codable, Sendable, Hashable, CaseIterable {
    /// Gate vectors, embeddings, and what features mean.
    case browse
    /// Attention and norms too.
    case attention
    /// All that generation takes.
    case inference
    /// Everything.
    case all
}

/// How the weights of a vindex are stored.
public enum VindexStorage: String, Codable, Sendable, Hashable, CaseIterable {
    /// Everything as f32: nothing of the source is lost.
    case f32
    /// Everything as f16, rounded to the nearest.
    case f16
    /// Attention, feed-forward blocks and the head as Q4_K, value and down projections as Q6_K; norms as f32; gate
    /// vectors, embeddings and routers as f16.
    case q4k
}

/// What a slice is for. The guide to the format has a table of the parts that each brings, and why.
public enum SlicePreset: String, Codable, Sendable, Hashable, CaseIterable {
    /// Everything that the folder has.
    case full
    /// Embeddings, attention and the head: all but feed-forward blocks, which a server computes.
    case client
    /// Attention, where tokens are embedded elsewhere too.
    case attn
    /// Embeddings and the head: tokens to states, and states to logits.
    case embed
    /// Feed-forward blocks, experts included.
    case server
    /// What knowledge is looked up in: no weights that only generation takes.
    case browse
    /// Who chooses experts.
    case router
    /// Experts.
    case expertServer = "expert-server"
}

/// How files that a slice takes whole come into it.
public enum SliceCopy: String, Codable, Sendable, Hashable, CaseIterable {
    /// As links, else copy-on-write, else as copies. A linked file is the same in both folders, changes included.
    case auto
    /// As files of their own, copy-on-write where the file system can.
    case copy
}

/// Layers that are thought to do one thing, see `VindexBrowser::bands`.
public enum Band: String, Codable, Sendable, Hashable, CaseIterable {
    /// Every layer.
    case all
    /// Those of syntax.
    case syntax
    /// Those of facts.
    case knowledge
    /// Those that form the output.
    case output
}

/// What a list of features is ordered by; equal ones are in order of layer and feature.
public enum SelectOrder: String, Codable, Sendable, Hashable, CaseIterable {
    /// How much a feature writes its token: `cScore`.
    case score
    /// The layer.
    case layer
}

/// What class of failure an error is: the same kinds and codes in every language.
public enum ErrorKind: String, Codable, Sendable, Hashable, CaseIterable {
    /// `argument.invalid`.
    case invalidArgument = "InvalidArgument"
    /// `file.not_found`.
    case fileNotFound = "FileNotFound"
    /// `file.io`.
    case fileIo = "FileIo"
    /// `checkpoint.invalid`.
    case checkpointInvalid = "CheckpointInvalid"
    /// `checkpoint.truncated`.
    case checkpointTruncated = "CheckpointTruncated"
    /// `config.invalid`.
    case configInvalid = "ConfigInvalid"
    /// `arch.unsupported`.
    case archUnsupported = "ArchUnsupported"
    /// `dtype.unsupported`.
    case dTypeUnsupported = "DTypeUnsupported"
    /// `tensor.missing`.
    case tensorMissing = "TensorMissing"
    /// `tensor.shape`.
    case tensorShape = "TensorShape"
    /// `tokenizer.invalid`.
    case tokenizerInvalid = "TokenizerInvalid"
    /// `template.invalid`.
    case templateInvalid = "TemplateInvalid"
    /// `chat.invalid`.
    case chatInvalid = "ChatInvalid"
    /// `tool.failed`.
    case toolFailed = "ToolFailed"
    /// `card.invalid`.
    case cardInvalid = "CardInvalid"
    /// `plan.no_fit`.
    case planNoFit = "PlanNoFit"
    /// `plan.pending`.
    case planPending = "PlanPending"
    /// `placement.invalid`.
    case placementInvalid = "PlacementInvalid"
    /// `context.overflow`.
    case contextOverflow = "ContextOverflow"
    /// `memory.exhausted`.
    case outOfMemory = "OutOfMemory"
    /// `engine.unavailable`.
    case engineUnavailable = "EngineUnavailable"
    /// `engine.failed`.
    case engineFailed = "EngineFailed"
    /// `session.busy`.
    case sessionBusy = "SessionBusy"
    /// `session.invalid`.
    case sessionInvalid = "SessionInvalid"
    /// `session.mismatch`.
    case sessionMismatch = "SessionMismatch"
    /// `cancelled`.
    case cancelled = "Cancelled"
    /// `deadline.exceeded`.
    case deadlineExceeded = "DeadlineExceeded"
    /// `peer.failed`.
    case peerFailed = "PeerFailed"
    /// `peer.lost`.
    case peerLost = "PeerLost"
    /// `internal`.
    case `internal` = "Internal"

    /// The stable, dotted code of this kind.
    public var code: String {
        switch self {
        case .invalidArgument: "argument.invalid"
        case .fileNotFound: "file.not_found"
        case .fileIo: "file.io"
        case .checkpointInvalid: "checkpoint.invalid"
        case .checkpointTruncated: "checkpoint.truncated"
        case .configInvalid: "config.invalid"
        case .archUnsupported: "arch.unsupported"
        case .dTypeUnsupported: "dtype.unsupported"
        case .tensorMissing: "tensor.missing"
        case .tensorShape: "tensor.shape"
        case .tokenizerInvalid: "tokenizer.invalid"
        case .templateInvalid: "template.invalid"
        case .chatInvalid: "chat.invalid"
        case .toolFailed: "tool.failed"
        case .cardInvalid: "card.invalid"
        case .planNoFit: "plan.no_fit"
        case .planPending: "plan.pending"
        case .placementInvalid: "placement.invalid"
        case .contextOverflow: "context.overflow"
        case .outOfMemory: "memory.exhausted"
        case .engineUnavailable: "engine.unavailable"
        case .engineFailed: "engine.failed"
        case .sessionBusy: "session.busy"
        case .sessionInvalid: "session.invalid"
        case .sessionMismatch: "session.mismatch"
        case .cancelled: "cancelled"
        case .deadlineExceeded: "deadline.exceeded"
        case .peerFailed: "peer.failed"
        case .peerLost: "peer.lost"
        case .internal: "internal"
        }
    }
}
