// What crosses between JavaScript and the library? Plain data.
//
// Written by `cargo run -p skulk-contract-generate` from the library's own declarations.

/** Whole numbers from `start` to `end`, which is not among them. */
export interface Range {
  start: number;
  end: number;
}

/** A number of bytes, as cards write it. */
export interface StorageSize {
  /** Bytes. */
  inBytes?: number;
}

/** A part of a model that is made of several, as of an image generator. */
export interface ComponentInfo {
  /** Its name. */
  componentName: string;
  /** Its folder in the model's. */
  componentPath: string;
  /** Bytes of its weights. */
  storageSize: StorageSize;
  /** Its layers, where it has any; at least 1. */
  nLayers?: number | null;
  /** It can be split over nodes. */
  canShard: boolean;
  /** The name of its index of weight files. */
  safetensorsIndexFilename?: string | null;
}

/** How a model sees. */
export interface VisionCardConfig {
  /** The token that stands for an image. */
  imageTokenId?: number | null;
  /** The vision tower's kind. */
  modelType?: string;
  /** Where its weights are; the card's own `model_id` unless it says otherwise. */
  weightsRepo?: string;
  /** The text of the image token. */
  imageToken?: string | null;
  /** Where its image processor is. */
  processorRepo?: string | null;
  /** The token that begins an image. */
  boiTokenId?: number | null;
  /** The token that ends an image. */
  eoiTokenId?: number | null;
}

/** How a model reasons. */
export interface ReasoningCardConfig {
  /** Requests can turn it on and off. */
  supportsToggle?: boolean | null;
  /** Requests can bound it. */
  supportsBudget?: boolean | null;
  /**
   * How it is marked. `none`: Not at all; `token_delimited`: Between two markers, as `<think>` and `</think>`;
   * `channel_delimited`: On a channel of its own.
   */
  format?: "none" | "token_delimited" | "channel_delimited" | null;
  /**
   * How much, unless a request says. `none`: Not at all; `minimal`: Hardly; `low`: Little; `medium`: Some; `high`:
   * Much; `xhigh`: As much as it can.
   */
  defaultEffort?: "none" | "minimal" | "low" | "medium" | "high" | "xhigh" | null;
  /**
   * What turning it off means. `none`: Not at all; `minimal`: Hardly; `low`: Little; `medium`: Some; `high`: Much;
   * `xhigh`: As much as it can.
   */
  disabledEffort?: "none" | "minimal" | "low" | "medium" | "high" | "xhigh" | null;
}

/** What else than text a model takes. */
export interface ModalitiesCardConfig {
  /** It hears. */
  supportsAudioInput?: boolean | null;
  /** Its other inputs are part of the model itself. */
  supportsNativeMultimodal?: boolean | null;
}

/** How a model calls tools. */
export interface ToolingCardConfig {
  /** It does. */
  supportsToolCalling?: boolean | null;
  /**
   * How it writes calls. `generic`: As its tokenizer's chat template says; `gemma4`: Gemma 4's; `gpt_oss`: Harmony, of
   * gpt-oss; `dsml`: DeepSeek V3.2's markup.
   */
  toolCallFormat?: "generic" | "gemma4" | "gpt_oss" | "dsml" | null;
  /** Tools that it was trained with. */
  builtinTools?: ("web_search" | "open_url" | "extract_page")[] | null;
}

/** How a model is run. */
export interface RuntimeCardConfig {
  /**
   * What turns messages into a prompt. `tokenizer`: The chat template of the tokenizer; `gemma4`: Gemma 4's; `dsml`:
   * DeepSeek V3.2's.
   */
  promptRenderer?: "tokenizer" | "gemma4" | "dsml" | null;
  /**
   * What takes an answer apart. `generic`: By the thinking format and the tool-call format; `gemma4`: Gemma 4's;
   * `gpt_oss`: Harmony, of gpt-oss; `deepseek_v32`: DeepSeek V3.2's.
   */
  outputParser?: "generic" | "gemma4" | "gpt_oss" | "deepseek_v32" | null;
  /** Whether MLX waits for the GPU by polling. */
  metalFastSynch?: boolean | null;
  /** It has multi-token-prediction heads, in a sidecar. */
  mtpHeads?: boolean | null;
  /** Tokens that these heads, or the assistant, draft at most. */
  mtpMaxDepth?: number | null;
  /** Where the sidecar is. */
  mtpSidecarRepo?: string | null;
  /**
   * What the sidecar's norm weights are relative to. `zero_centered`: 1 is to be added; `actual_scale`: They are the
   * factors themselves.
   */
  mtpNormConvention?: "zero_centered" | "actual_scale" | null;
  /**
   * How the heads join their inputs. `embed_first`: The token's embedding, then the hidden state; `hidden_first`: The
   * hidden state, then the token's embedding.
   */
  mtpConcatOrder?: "embed_first" | "hidden_first" | null;
  /** Speculation pays over several nodes, too. */
  speculativeMultiNode?: boolean | null;
  /** Where a model that drafts for this one is. */
  assistantModelRepo?: string | null;
  /**
   * How it speculates where a server runs it. `none`: Not at all; `draft_mtp`: With its own multi-token-prediction
   * heads; `draft_eagle3`: With an EAGLE-3 draft; `draft_simple`: With a smaller model; `ngram`: With n-grams of the
   * text so far.
   */
  servedSpecType?: "none" | "draft_mtp" | "draft_eagle3" | "draft_simple" | "ngram" | null;
  /** Tokens that the server drafts at most; at least 1. */
  servedSpecNMax?: number | null;
  /** Where the server's draft is. */
  servedSpecDraftRepo?: string | null;
  /** The file of that draft; must be given with the repository. */
  servedSpecDraftFile?: string | null;
}

/** Where a model can run. */
export interface PlacementCardConfig {
  /** Tags of backends that can run it: `<engine>-<compute>`, as in `mlx-metal`, or an engine alone. */
  compatibleBackends?: string[];
  /** Accelerator memory that a node must have, in GiB. */
  minVramGib?: number | null;
  /** Tokens that its context is limited to, whatever it was trained for. */
  maxContextTokens?: number | null;
  /** The backends by preference, best first. */
  backendPreference?: string[];
}

/** Keys and values that are kept as one vector a token. */
export interface LatentFacts {
  /** Elements of the vector; at least 1. */
  rank: number;
  /** Elements of the vector that queries are made of, where they are made of one; at least 1. */
  queryRank?: number | null;
  /** Elements of a head that are rotated, kept beside the vector. */
  ropeSize: number;
  /** Elements of a head's values; at least 1. */
  valueSize: number;
}

/** An index that chooses the positions that are attended to. */
export interface IndexFacts {
  /** Heads of its queries; at least 1. */
  heads: number;
  /** Elements of a head, and of what is kept of a token; at least 1. */
  headSize: number;
}

/** The heads of attention. */
export interface AttentionFacts {
  /** Heads of queries; at least 1. */
  heads: number;
  /** Heads of keys and values; at least 1. The card's `num_key_value_heads` unless it is given. */
  kvHeads?: number | null;
  /** Elements of a head; with latent vectors, those that are not rotated. At least 1. */
  headSize: number;
  /** Queries come with a gate of their size. */
  outputGate?: boolean;
  /** Layers that attend to all positions have no projection of values: they make them of keys. */
  valuesFromKeys?: boolean;
  /** The last so many layers use keys and values of earlier ones. */
  sharingLayers?: number;
  /** Width of the dense feed-forward blocks of these layers, where it differs; at least 1. */
  sharingFeedForwardSize?: number | null;
  /** Keys and values are kept as latent vectors. */
  latent?: LatentFacts | null;
  /** Positions are chosen by an index. */
  index?: IndexFacts | null;
}

/** Layers that attend to a window: heads are those of `attention` unless they are given. */
export interface WindowFacts {
  /** Positions; at least 1. */
  size: number;
  /** Heads of queries; at least 1. */
  heads?: number | null;
  /** Heads of keys and values; at least 1. */
  kvHeads?: number | null;
  /** Elements of a head; at least 1. */
  headSize?: number | null;
}

/** Layers with states: a matrix for each head of values. */
export interface RecurrentFacts {
  /** Heads of values, each with a state; at least 1. */
  heads: number;
  /** Elements of a head of values; at least 1. */
  headSize: number;
  /** Heads, or groups, of keys and queries; at least 1. */
  keyHeads: number;
  /** Elements of a head of keys; at least 1. */
  keySize: number;
  /** Positions that channels are convolved over; at least 1. */
  convolution: number;
}

/** The experts of a mixture. */
export interface ExpertFacts {
  /** Routed experts of a layer; at least 1. */
  count: number;
  /** Routed experts that a token takes; at least 1. */
  perToken: number;
  /** Width of a routed expert; at least 1. */
  size: number;
  /** Width of all that every token takes beside routed experts, together. */
  sharedSize?: number;
  /** The first so many layers are dense. */
  denseLayers?: number;
  /** Bits of a routed expert's weight with its scales. Where unknown, as many as other weights have. */
  bits?: number | null;
}

/** What a model is made of: all that plans need to know of it before its checkpoint is there. */
export interface ModelFacts {
  /** The version of this section: 1. Of later versions only `version` and `source` are read. */
  version?: number;
  /** Where the facts are from, as the address of a configuration. */
  source?: string;
  /** Rows of the embedding table, and of the head; at least 1. */
  vocabSize?: number | null;
  /** The head is the embedding table. */
  tiedEmbeddings?: boolean;
  /** What the layers are, in their order; repeated for as many layers as there are. */
  layers?: ("full" | "window" | "recurrent" | "feed_forward")[];
  /** Width of dense feed-forward blocks, in elements; at least 1. */
  feedForwardSize?: number | null;
  /** Matrices of a feed-forward block or expert: 3 with a gate, 2 without. */
  feedForwardMatrices?: number;
  /** Elements of what each layer gets of each token beside the residual stream; at least 1. */
  layerInputSize?: number | null;
  /** Bits of a weight with its scales, of all but routed experts. Where unknown, all weights count alike. */
  bits?: number | null;
  /** The same of dense feed-forward blocks and shared experts, where it differs. */
  feedForwardBits?: number | null;
  /** Parameters of parts beside the decoder, which see and hear; of 16 bits each. */
  otherParameters?: number;
  /** Attention. */
  attention?: AttentionFacts | null;
  /** What is otherwise in layers that attend to a window. */
  window?: WindowFacts | null;
  /** Layers with states. */
  recurrent?: RecurrentFacts | null;
  /** Experts, in mixtures. */
  experts?: ExpertFacts | null;
}

/**
 * Facts about one model, declared rather than measured. The only required ones are its identity, size, layers, width,
 * tasks, and whether its tensors can be split.
 */
export interface ModelCard {
  /** The model's name, as in `org/name`. */
  modelId: string;
  /** Bytes of all weights. */
  storageSize: StorageSize;
  /** Decoder layers; at least 1. */
  nLayers: number;
  /** Width of the residual stream; at least 1. */
  hiddenSize: number;
  /** Its tensors can be split over nodes. */
  supportsTensor: boolean;
  /** Key/value heads. Where they are unknown, keys and values count for nothing in plans. */
  numKeyValueHeads?: number | null;
  /** What it does. */
  tasks: ("TextGeneration" | "TextEmbedding" | "TextToImage" | "ImageToImage")[];
  /** Parts of a model that is made of several. */
  components?: ComponentInfo[] | null;
  /** Its family, as in `qwen`. */
  family?: string;
  /** How its weights are stored, as in `4bit` or `Q4_K_M`; for people. */
  quantization?: string;
  /** What it was made from; for people. */
  baseModel?: string;
  /** The GGUF file that holds it. Any name but an empty one makes it a GGUF model. */
  ggufFile?: string | null;
  /** Free words; `vision`, `thinking` and `thinking_toggle` mean something to profiles. */
  capabilities?: string[];
  /** Positions it was trained for, in tokens; 0 or less: unknown. */
  contextLength?: number;
  /** It runs twice for each step, for classifier-free guidance. */
  usesCfg?: boolean;
  /** Code that comes with the checkpoint may run, in software that runs such code. */
  trustRemoteCode?: boolean;
  /** The card is the user's. Never written to files. */
  isCustom?: boolean;
  /** How it sees. */
  vision?: VisionCardConfig | null;
  /** How it reasons. */
  reasoning?: ReasoningCardConfig | null;
  /** What else than text it takes. */
  modalities?: ModalitiesCardConfig | null;
  /** How it calls tools. */
  tooling?: ToolingCardConfig | null;
  /** How it is run. */
  runtime?: RuntimeCardConfig | null;
  /** Where it can run. */
  placement?: PlacementCardConfig;
  /** What it is made of. Nothing of it is needed; plans are better with it. */
  facts?: ModelFacts | null;
}

/** What a request says about reasoning; also what is left of it for a given model. */
export interface Reasoning {
  /**
   * How much. `none`: Not at all; `minimal`: Hardly; `low`: Little; `medium`: Some; `high`: Much; `xhigh`: As much as
   * it can.
   */
  effort: "none" | "minimal" | "low" | "medium" | "high" | "xhigh" | null;
  /** Whether at all. */
  enableThinking: boolean | null;
}

/**
 * What a card resolves to: the facts that running a model is decided by. `Default` is a model of which nothing is
 * known.
 */
export interface Profile {
  /** The card's family, else the id's first word. */
  family: string;
  /** It reasons before it answers. */
  supportsThinking: boolean;
  /** Requests can turn that on and off. */
  supportsThinkingToggle: boolean;
  /** Requests can bound it. */
  supportsThinkingBudget: boolean;
  /**
   * How much it reasons where a request turns reasoning on without saying. `none`: Not at all; `minimal`: Hardly;
   * `low`: Little; `medium`: Some; `high`: Much; `xhigh`: As much as it can.
   */
  defaultReasoningEffort: "none" | "minimal" | "low" | "medium" | "high" | "xhigh";
  /**
   * What turning it off means. `none`: Not at all; `minimal`: Hardly; `low`: Little; `medium`: Some; `high`: Much;
   * `xhigh`: As much as it can.
   */
  disabledReasoningEffort: "none" | "minimal" | "low" | "medium" | "high" | "xhigh";
  /**
   * How reasoning is marked. `none`: Not at all; `token_delimited`: Between two markers, as `<think>` and `</think>`;
   * `channel_delimited`: On a channel of its own.
   */
  thinkingFormat: "none" | "token_delimited" | "channel_delimited";
  /** It sees. */
  supportsImageInput: boolean;
  /** It hears. */
  supportsAudioInput: boolean;
  /** It calls tools. */
  supportsToolCalling: boolean;
  /** Tools that it was trained with. */
  builtinTools: ("web_search" | "open_url" | "extract_page")[];
  /**
   * How it writes calls. `generic`: As its tokenizer's chat template says; `gemma4`: Gemma 4's; `gpt_oss`: Harmony, of
   * gpt-oss; `dsml`: DeepSeek V3.2's markup.
   */
  toolCallFormat: "generic" | "gemma4" | "gpt_oss" | "dsml";
  /**
   * What turns messages into a prompt. `tokenizer`: The chat template of the tokenizer; `gemma4`: Gemma 4's; `dsml`:
   * DeepSeek V3.2's.
   */
  promptRenderer: "tokenizer" | "gemma4" | "dsml";
  /**
   * What takes an answer apart. `generic`: By the thinking format and the tool-call format; `gemma4`: Gemma 4's;
   * `gpt_oss`: Harmony, of gpt-oss; `deepseek_v32`: DeepSeek V3.2's.
   */
  outputParser: "generic" | "gemma4" | "gpt_oss" | "deepseek_v32";
  /** Its other inputs are part of the model itself. */
  supportsNativeMultimodal: boolean;
}

/** A node's main memory, in bytes. */
export interface NodeMemory {
  /** All there is. */
  ramTotal: number;
  /** What programs can still get. */
  ramAvailable: number;
}

/** A device of a node that computes. What is not known is `null`, which is not 0. */
export interface Accelerator {
  /** Who made it. `cpu`: The CPU itself; `unknown`: Somebody else. */
  vendor?: "apple" | "amd" | "nvidia" | "intel" | "cpu" | "unknown";
  /** Its name. */
  name?: string;
  /** Its own memory, in bytes. */
  vramTotalBytes?: number | null;
  /** How much of that is in use. */
  vramUsedBytes?: number | null;
  /** Main memory that it can reach, in bytes. */
  gttTotalBytes?: number | null;
  /**
   * Its memory is main memory. Plans then leave work to the processor, which reads as fast, unless Apple made it or
   * `bytes_per_second` says otherwise.
   */
  sharesMemory?: boolean;
  /** The backend of this library that drives it, as in `skulk-wgpu-vulkan`. */
  backend?: string | null;
  /** Bytes a second that it reads from its memory. `null`: what the table of devices has under its name. */
  bytesPerSecond?: number | null;
  /**
   * Operations a second of a prompt's products, a product and a sum being two; what else layers do takes its part of
   * the second. `null`: as above.
   */
  operationsPerSecond?: number | null;
  /** Seconds that it takes for a layer whatever its size. `null`: as above. */
  layerSeconds?: number | null;
  /** Seconds until it has answered another device of its node. `null`: 100 µs are assumed. */
  roundTripSeconds?: number | null;
}

/** A network interface of a node. */
export interface NetworkInterface {
  /** Its name, as in `en0`. */
  name: string;
  /** Its address. */
  ipAddress: string;
  /** What it is. `wifi`: Wireless; `maybe_ethernet`: Probably Ethernet; `unknown`: Nobody knows. */
  interfaceType?: "wifi" | "ethernet" | "maybe_ethernet" | "thunderbolt" | "unknown";
}

/** A machine. What it has not reported yet is `null`. */
export interface Node {
  /** Its name. */
  id: string;
  /**
   * What it does. `full`: Any part of a model; `management`: None: it only coordinates; `ffn_only`: Feed-forward blocks
   * and experts, never attention.
   */
  role?: "full" | "management" | "ffn_only";
  /** Tags of the backends it has, as in `mlx` or `skulk-cpu`. */
  backends?: string[] | null;
  /** Its main memory. */
  memory?: NodeMemory | null;
  /**
   * Bytes a second that it reads from main memory. `null`: what the table of devices has for an accelerator by the
   * maker `cpu`, as `EPYC 9654` or `DDR5-5600, 2 channels`, or for one that shares main memory.
   */
  bytesPerSecond?: number | null;
  /** Operations a second of a prompt's products alone, a product and a sum being two. `null`: as above. */
  operationsPerSecond?: number | null;
  /** Seconds that its processor takes for a layer whatever its size. `null`: as above. */
  layerSeconds?: number | null;
  /** Bytes a second that it reads from the disk that has the model. `null`: 3 GB/s are assumed. */
  diskBytesPerSecond?: number | null;
  /** Its processor cores. */
  cores?: number | null;
  /** Its accelerators. */
  accelerators?: Accelerator[];
  /** Where it serves feed-forward blocks and experts, as in `http://192.168.7.4:8080`. */
  address?: string | null;
  /** Its network interfaces. */
  interfaces?: NetworkInterface[];
  /** Which share of a model's bytes lies on its disk, by model: 0 to 1. */
  downloads?: Record<string, number>;
}

/** How fast a link is. */
export interface LinkSpeed {
  /** Seconds for a message there and an answer back. */
  roundTripSeconds?: number;
  /** Bytes a second. */
  bytesPerSecond?: number;
}

/** Sockets: the address at which the sink was reached. */
export interface Socket {
  type: "socket";
  /** A host name or address, without port. */
  address: string;
}

/** Remote direct memory access. */
export interface Rdma {
  type: "rdma";
  /** The source's interface. */
  sourceIface: string;
  /** The sink's interface. */
  sinkIface: string;
}

/** A connection that a node has to another, in one direction. */
export type Link = (Socket | Rdma) & {
  /** Who connects. */
  source: string;
  /** To whom. */
  sink: string;
  /** How fast, where that was measured. */
  speed?: LinkSpeed | null;
};

/**
 * The nodes of a host and how they are connected. The order of nodes never changes what is planned, but for the names
 * in it.
 */
export interface Cluster {
  /** The machines. */
  nodes: Node[];
  /** Connections, in one direction each. */
  links?: Link[];
  /** Every two nodes are connected in both directions, like this where no link says otherwise. */
  mesh?: LinkSpeed | null;
}

/** The bytes of one layer. */
export interface LayerBytes {
  /** Attention, norms and router: what stays with the layer's keys and values. */
  attention?: number;
  /** The router's part of these. */
  router?: number;
  /** What every token reads of the feed-forward block: all of a dense one, a mixture's shared experts. */
  ffn?: number;
  /** Routed experts; 0: a dense block. */
  nExperts?: number;
  /** Experts that a token takes. */
  nUsed?: number;
  /** Bytes of one routed expert. */
  expert?: number;
  /** Loading copies the experts, which are stored in another order than they are used in: they cannot stay on disk. */
  copied?: boolean;
  /** Keys and values of one token, in half precision. */
  kvPerToken?: number;
  /**
   * Elements of a row's queries, all heads', and of what they make of values: numbers that are multiplied at each
   * position that the row sees. 0: it attends to none, or it is not known and taken for twice the hidden size.
   */
  attended?: number;
  /** Elements of a head of keys, and of values; 0: not known, and taken for a multiple of 32. */
  kvHeadDim?: number;
  /**
   * Values are the first part of keys and kept once, as latent vectors are: in the more precise of the types of both.
   */
  latent?: boolean;
  /** Tokens that the cache holds at most, where attention looks through a window. */
  window?: number | null;
  /** It is in one stage with the layer before: it, or a later one, uses keys and values of an earlier one. */
  joined?: boolean;
  /** What it keeps of a sequence of whatever length: states, where it has such instead of keys and values. */
  state?: number;
}

/** The weight bytes of a model's parts, and what a token costs each layer's cache. */
export interface Inventory {
  /** One entry a layer. */
  layers: LayerBytes[];
  /**
   * The embedding table, with the norm of what layers get of tokens: in the first stage, and in the last one too where
   * it is the head as well.
   */
  embedding?: number;
  /** All stages hold the embedding table: their layers have inputs from tokens' embeddings. */
  embeddingEverywhere?: boolean;
  /** The head is the embedding table. */
  tiedEmbeddings?: boolean;
  /**
   * The last stage's: final norm, what makes one residual stream of several, and head unless that is the embedding
   * table.
   */
  head?: number;
  /**
   * Bytes of a row of hidden states, as stages hand it on: of all residual streams, where there are several. 0: of the
   * card's hidden size.
   */
  row?: number;
  /**
   * Bytes of a row in all buffers that a step's rows pass through, of this library's engines. 0: not known, and taken
   * for sixteen rows of hidden states.
   */
  stepRow?: number;
  /** Tokens of the vocabulary, of which a step computes logits and a tokenizer holds spellings; 0: not known. */
  vocabulary?: number;
  /** Tokens of context that the model was trained for; 0: not known. */
  context?: number;
  /** Elements of the layers' weights; 0: not known, and taken from the bits of a weight that the card names. */
  elements?: number;
  /** They were counted in a checkpoint; else estimated from a card. */
  exact?: boolean;
  /** The table of what layers get of tokens, of which each takes a row: it stays in the file. */
  inputTable?: number;
  /** What sees and hears, beside the decoder; not loaded. */
  vision?: number;
  /** Layers that predict further tokens, behind the last one; loaded where an option asks for that. */
  mtp?: number;
  /**
   * The head for tokens ahead (MTP) that loading makes of these: its layer, with its norms, and what joins embeddings
   * and hidden states. `null`: there is none that this library knows.
   */
  mtpLayer?: LayerBytes | null;
  /** It drafts for another model, whose embedding table it uses. */
  sharesEmbedding?: boolean;
  /** It drafts for another model, whose output head it uses. */
  sharesHead?: boolean;
  /** What was guessed, in words. */
  guessed?: string[];
}

/** Facts about a model's architecture. */
export interface Arch {
  /** Family label as the checkpoint spells it, e.g. `llama`. */
  family: string;
  /** Number of decoder layers. */
  nLayers: number;
  /** Width of the residual stream. */
  hiddenSize: number;
  /** Rows of the embedding table. */
  vocabSize: number;
  /** Positions the model was trained for, in tokens. */
  contextLength: number;
}

/** A device that engines run on. */
export interface Device {
  /** The engine that runs on it, by the name that loading takes, e.g. `wgpu-vulkan:0`. */
  engine: string;
  /** The device's name. */
  name: string;
  /** Who made it. `cpu`: The CPU itself; `unknown`: Somebody else. */
  vendor: "apple" | "amd" | "nvidia" | "intel" | "cpu" | "unknown";
  /** Its driver and the driver's version; empty for the CPU. */
  driver: string;
  /** It is a GPU in name only, and computes on the CPU: no engine chooses it by itself. */
  software: boolean;
  /** Its memory, where the system tells. */
  memoryBytes: number | null;
  /** How much of a GPU's own memory is in use, where the system tells. */
  memoryUsedBytes: number | null;
  /** Its memory is the CPU's. */
  sharesMemory: boolean;
}

/** What one stage of a loaded model holds. */
export interface Stage {
  /** The engine that runs it. */
  engine: string;
  /** The engine's device in words. */
  device: string;
  /** Its layers. */
  layers: Range;
  /**
   * Weight bytes it has mapped, read or copied. Stages that share a tied embedding table both count it, though it
   * exists once.
   */
  weightBytes: number;
  /** Keys and values of one full-length session. */
  kvCacheBytes: number;
  /**
   * Where its weights lie: in the file's map, or read into memory of their own; with a budget, those that it is not
   * for.
   */
  memory: "auto" | "mapped" | "resident";
}

/** What is in memory of feed-forward weights that a budget bounds. */
export interface FfnMemory {
  /** What may be in memory. */
  budgetBytes: number;
  /** What is. */
  inMemoryBytes: number;
  /** The most that ever was. */
  peakBytes: number;
  /** What was let go, all in all. */
  letGoBytes: number;
}

/** What keys and values take. */
export interface KvMemory {
  /** What they may take; `null`: no limit was given. */
  budgetBytes: number | null;
  /** Pages that sequences have, those that several share once. */
  inUseBytes: number;
  /** Pages that nobody has and that are kept for sequences that begin with the same tokens. They go first. */
  keptBytes: number;
  /** All that is reserved: these, and pages that are free to be taken. */
  reservedBytes: number;
}

/** How far a model's predictions are from an exact one's, over a text. */
export interface Divergence {
  /** Tokens of the text. Behind each of them the next one is predicted. */
  tokens: number;
  /**
   * Mean of the Kullback-Leibler divergences `Σ p ln(p / q)` of the model's probabilities q from the exact ones p, in
   * nats.
   */
  meanKl: number;
  /** The largest of them. */
  maxKl: number;
  /**
   * Part of the predictions in which both find the same token most probable, 0 to 1; of equally probable ones the lower
   * id counts.
   */
  top1Agreement: number;
}

/** One way to compute tokens ahead, and its speed. */
export interface SpeculationWay {
  /** What proposes tokens. */
  speculate: "auto" | "ngram" | "draft_model" | "off";
  /** How many in every step; `null`: as many as pay. */
  draftTokens: number | null;
  /** Tokens a second behind the first one, over all texts; the median of three rounds. */
  tokensPerSecond: number;
  /** The same as a multiple of what `off` makes. */
  gain: number;
  /** Part of the proposed tokens that were right, 0 to 1; 0 where none were proposed. */
  acceptance: number;
  /** Tokens that a step gave, on average. */
  tokensPerStep: number;
}

/**
 * What computing tokens ahead gains, by what proposes them and how many there are. Its text is a line for each way.
 */
export interface SpeculationReport {
  /** Prompts that were tried. */
  prompts: number;
  /** By way; the first one is `off`. */
  ways: SpeculationWay[];
  /** The fastest way. */
  best: SpeculationWay | null;
  /** The report as text. */
  text: string;
}

/** A token with its log-probability. */
export interface TokenLogprob {
  /** Its id. */
  id: number;
  /** Natural logarithm of its probability under the model's raw logits. */
  logprob: number;
}

/** A token of the text. */
export interface Token {
  /** Its id. */
  id: number;
  /**
   * Natural logarithm of its probability under the model's raw logits, when asked for; none where nothing else could
   * come.
   */
  logprob: number | null;
  /** The likeliest tokens at this position, most likely first, as many as asked for. */
  topLogprobs: TokenLogprob[];
}

/** Token counts of a generation. */
export interface Usage {
  /** Tokens of the prompt. */
  promptTokens: number;
  /** How many of them were still in the session's cache. */
  cachedTokens: number;
  /** Tokens sampled, an end-of-sequence token included. */
  completionTokens: number;
}

/** Durations of a generation. */
export interface Timings {
  /** Opening the checkpoint, building the tokenizer and loading all stages. */
  load: number;
  /** From the start of the generation to its first token. */
  timeToFirstToken: number;
  /** Computing the prompt's tokens that were not cached. */
  prefill: number;
  /** From the first token to the last. */
  decode: number;
  /** Prompt tokens computed per second. */
  prefillTokensPerSecond: number;
  /** Tokens per second after the first; 0 when there was only one. */
  decodeTokensPerSecond: number;
  /** Tokens that were computed ahead. */
  draftedTokens: number;
  /** Of these those that became part of the text. */
  acceptedTokens: number;
  /** Steps that computed some ahead. */
  draftSteps: number;
  /**
   * The speed of its steps, as a multiple of the speed without tokens ahead, by how long steps without took meanwhile;
   * 1 where that is not known.
   */
  draftGain: number;
}

/** How a generation ended. */
export interface Finish {
  /**
   * Why it ended. `eos`: The model produced an end-of-sequence token, or nothing may follow by the constraint; `stop`:
   * A stop string occurred; `length`: `max_tokens` were generated, or the context is full.
   */
  reason: "eos" | "stop" | "length";
  /** Token counts. */
  usage: Usage;
  /** Durations. */
  timings: Timings;
  /** What went wrong on the way that did not end it, in words: a draft model that failed. */
  warnings: string[];
}

/** One step of a generation. */
export interface Event {
  /** The token sampled in this step; none in a last event that only ends the stream. */
  token: Token | null;
  /** Text that became certain with this step; may be empty. */
  text: string;
  /** Why and how the generation ended. */
  finish: Finish | null;
}

/** A whole generation, collected. */
export interface Output {
  /** The generated text. */
  text: string;
  /** The sampled tokens, an end-of-sequence token included. */
  ids: number[];
  /** Why and how it ended. */
  finish: Finish;
}

/** Token counts of an answer. */
export interface ChatUsage {
  /** Tokens of the prompt. */
  promptTokens: number;
  /** How many of them did not have to be computed. */
  cachedTokens: number;
  /** Tokens of the answer, an end-of-sequence token included. */
  completionTokens: number;
  /** How many of them are reasoning, without the token that ends it. */
  reasoningTokens: number;
}

/** How an answer ended. */
export interface ChatFinish {
  /** Why it ended. */
  reason: "stop" | "length" | "tool_calls" | "cancelled" | "deadline";
  /** Token counts. */
  usage: ChatUsage;
  /** Durations. */
  timings: Timings;
  /** What went wrong on the way that did not end it, in words: a draft model that failed. */
  warnings: string[];
}

/** A call of a tool that waits for its result. */
export interface ChatCall {
  /** What the tool's message names as `tool_call_id`. */
  id: string;
  /** The function. */
  name: string;
  /** Its arguments, an object. Values of other types than the tool declares are converted where that is possible. */
  arguments: Record<string, any>;
}

/** What began as a tool call and is none. */
export interface MalformedCall {
  /** The function, where that much is known. */
  name: string | null;
  /** All that the model wrote of it, markup included; where text was told in front of it, from its own marker on. */
  raw: string;
  /** What is wrong. */
  problem: "unfinished" | "syntax" | "no_name" | "no_arguments" | "invalid_json" | "too_deep";
  /** The same in words: what was expected, what was found. */
  message: string;
}

/** More of the reasoning. */
export interface ReasoningEvent {
  type: "reasoning";
  /** What is new. */
  text: string;
}

/** More of the answer. */
export interface TextEvent {
  type: "text";
  /** What is new. */
  text: string;
}

/** A tool call whose function is known. */
export interface CallStartedEvent {
  type: "call_started";
  /** Which of the answer's calls, from 0. */
  index: number;
  /**
   * The call's id: what the model wrote as such before the arguments, else one of nine letters and digits that no other
   * call of the conversation has.
   */
  id: string;
  /** The function. */
  name: string;
}

/** More of a call's arguments, as JSON. The pieces of a call, joined, are the JSON of an object. */
export interface CallArgumentsEvent {
  type: "call_arguments";
  /** Which call. */
  index: number;
  /** What is new. */
  text: string;
}

/** A whole call. */
export interface CallFinishedEvent {
  type: "call_finished";
  /** Which call. */
  index: number;
  /** What is to be called. */
  call: ChatCall;
}

/** Something that began as a call and is none. */
export interface CallMalformedEvent {
  type: "call_malformed";
  /** Which call. It may have been started. */
  index: number;
  /** What there was instead. */
  call: MalformedCall;
}

/** The end. */
export interface FinishEvent {
  type: "finish";
  /** Why and how the answer ended. */
  finish: ChatFinish;
}

/** A part of an answer, told as soon as it is certain; the last one is `Finish`. */
export type ChatEvent =
  | ReasoningEvent
  | TextEvent
  | CallStartedEvent
  | CallArgumentsEvent
  | CallFinishedEvent
  | CallMalformedEvent
  | FinishEvent;

/** A whole answer. */
export interface ChatAnswer {
  /**
   * The answer as a message, to be put behind the others. Where the last of them was an answer that was to be
   * continued, it stands for that one, and has both.
   */
  message: Record<string, any>;
  /** What the model said. Texts of malformed calls are in the message alone. */
  text: string;
  /** What it thought. */
  reasoning: string;
  /** What it calls. */
  calls: ChatCall[];
  /** What began as a call and is none. */
  malformed: MalformedCall[];
  /** Why and how it ended. */
  finish: ChatFinish;
}

/** A prompt as the model gets it. */
export interface ChatPrompt {
  /** Its text. Of special tokens in it, it does not say which are tokens. */
  text: string;
  /** Its tokens. */
  tokens: number[];
}

/** What became of a call. */
export interface ToolResult {
  /** The call. */
  id: string;
  /** The function. */
  name: string;
  /** What the model is told. */
  content: string;
  /** The function failed, or there is none of that name. */
  failed: boolean;
}

/** Something wrong with a card or placement. */
export interface CardFault {
  /**
   * The field, with its sections, as the document spells it: `runtime.mtp_heads`, `components.0.canShard`. A missing
   * field is spelled as in TOML; long names are cut.
   */
  field: string;
  /** What is wrong. */
  kind: "unknown" | "missing" | "type" | "range" | "value" | "conflict";
  /** What was found; empty for a missing field. */
  found: string;
  /** What is allowed. */
  allowed: string;
}

/** Which part of classifier-free guidance a stage has: the layers of one of its two halves. */
export interface CfgPart {
  /** The half. */
  cfgRank: number;
  /** Halves. */
  cfgWorldSize: number;
  /** The stage within the half. */
  pipelineRank: number;
  /** Stages of the half. */
  pipelineWorldSize: number;
}

/** A part of a model on one node: a contiguous range of layers. */
export interface PlacedStage {
  /** The node that runs it. */
  node: string;
  /** The backend that runs it there, as in `skulk-cpu`; `null`: the node chooses. */
  backend: string | null;
  /** This library's engine of that backend, as in `cpu`; `null` for other software's. */
  engine: string | null;
  /** Its layers, by index within the model. */
  layers: Range;
  /**
   * What of these layers: all, of each tensor a share, or all for one half of guidance. `whole`: All of them; `tensor`:
   * Of each tensor its share; `cfg`: All of them, for one half of guidance.
   */
  part: "whole" | "tensor" | "cfg";
  /** Which part of guidance, where it is one. */
  cfg: CfgPart | null;
}

/** Experts of a range of layers on one node, away from the layers' attention. A dense block is expert 0. */
export interface ExpertShard {
  /** The node that computes them. */
  node: string;
  /** The backend that computes them there. */
  backend: string | null;
  /** This library's engine of that backend; `null` for other software's. */
  engine: string | null;
  /** The layers. */
  layers: Range;
  /** The same experts of each of these layers. */
  experts: Range;
  /** Experts that each of these layers has in all. */
  nExperts: number;
  /** Another node owns them; this one helps. */
  replica: boolean;
}

/** Where the bytes of a node or device go. */
export interface Bytes {
  /** Weights of attention, norms, embedding and head. */
  attention: number;
  /** Weights of feed-forward blocks and experts. */
  feedForward: number;
  /** Keys and values. */
  kvCache: number;
  /** Rows between layers, and what computing them takes. */
  activations: number;
  /** Kept free on top, as the strictness asks. */
  headroom: number;
}

/** What a plan counts that drafts tokens ahead, on the device of the last stage. */
export interface Drafter {
  /** It is the head for tokens ahead (MTP) of the model's own checkpoint; else what `draft_model` of loading names. */
  mtp: boolean;
  /** Bytes by kind. */
  bytes: Bytes;
}

/** What a device of a placement is to hold, and what it may hold. */
export interface Budget {
  /** The node. */
  node: string;
  /** The backend that runs on the device. */
  backend: string | null;
  /** Bytes by kind. */
  bytes: Bytes;
  /** Bytes that it may hold; of plans under `Strictness::Force` no fewer than it is to hold. */
  usable: number;
  /** What drafts there, whose bytes are among these. */
  drafter: Drafter | null;
}

/** What a loaded model holds of memory, beside what its plan said. */
export interface ModelMemory {
  /**
   * Weights that its stages, and what drafts, have mapped, read or copied. Of those that stay on disk, what a budget
   * lets be in memory is told apart.
   */
  weightBytes: number;
  /** What is reserved for keys and values, in use or not, those of what drafts among them. */
  kvCacheBytes: number;
  /** By engine all that is reserved on a device that weights are copied to: weights, keys and values, and buffers. */
  deviceBytes: Record<string, number>;
  /** What drafts, which is part of the above; its keys and values are those of one session. */
  draftModel: Stage | null;
  /** What the plan counted for the devices of this machine; `null`: the placement was not planned. */
  planned: Bytes | null;
  /**
   * What the system has in memory for this process, whatever for. Of mapped weights that are pages that were read, and
   * are still there. `null`: the system does not tell.
   */
  processBytes: number | null;
}

/** How fast a placement should be: a token of each session. */
export interface Estimate {
  /** Tokens a second, of all sessions together. */
  tokensPerSecond: number;
  /** Seconds a token for reading weights, keys and values where attention is. */
  attentionSeconds: number;
  /** Seconds a token for reading feed-forward blocks and experts. */
  feedForwardSeconds: number;
  /** Seconds a token between stages. */
  hopSeconds: number;
  /** Seconds a token between stages and the owners of their feed-forward blocks and experts. */
  fanOutSeconds: number;
  /**
   * Seconds that a draft takes beside that of each session, where something drafts that the request counts; else 0.
   */
  draftSeconds: number;
}

/** How long a prompt should take. */
export interface PromptEstimate {
  /** Its tokens. */
  tokens: number;
  /** Seconds until the first token of the answer is known. */
  seconds: number;
  /** Seconds of these between stages, and between them and the owners of their feed-forward blocks and experts. */
  linkSeconds: number;
}

/** What a placement costs. */
export interface Price {
  /** A token of each session, in the middle of the context. */
  estimate: Estimate;
  /** The prompt. */
  prompt: PromptEstimate;
}

/** Memory of a node that a model may use. */
export interface Usable {
  /** So many bytes. */
  bytes: number;
  /** Of a graphics card; else of main memory. */
  vram: boolean;
}

/** What the first key-values of a GGUF file say that a card needs. */
export interface GgufFacts {
  /** The family as the file spells it. */
  architecture: string;
  /** Decoder layers; at least 1. */
  nLayers: number;
  /** Width of the residual stream; at least 1. */
  hiddenSize: number;
  /** Key/value heads; `null` where the file gives none, or one for each layer. */
  numKeyValueHeads: number | null;
  /** Positions it was trained for, in tokens; 0: unknown. */
  contextLength: number;
}

/** What a Hugging Face configuration says that a card needs. */
export interface ConfigFacts {
  /** Decoder layers, as the configuration says; a card needs at least 1. */
  nLayers: number;
  /** Width of the residual stream. */
  hiddenSize: number | null;
  /** Key/value heads; at least 1. */
  numKeyValueHeads: number | null;
  /** Positions it was trained for, in tokens. */
  maxPositionEmbeddings: number | null;
  /** Skulk 1.3 can split the model's tensors over nodes. */
  supportsTensor: boolean;
  /** Classes that implement the model. */
  architectures: string[];
  /** What it is called: `model_type`. */
  modelType: string;
  /** How it sees, where the configuration has both a vision tower and an image token. */
  vision: VisionCardConfig | null;
}

/** A tensor as the folder describes it. */
export interface TensorInfo {
  /** Its name, as in Hugging Face checkpoints without `model.` before it. */
  name: string;
  /** How its elements are stored, e.g. `F16` or `Q4_K`; `Q6_K_Linear` is what LARQL calls Q6_K. */
  dtype: string;
  /** Its dimensions, outermost first: a matrix is rows and row length. */
  shape: number[];
  /** The file that holds it. */
  file: string;
  /** Where it begins in that file, in bytes. */
  offset: number;
  /** Its length in bytes, with what rows are padded with. */
  length: number;
}

/** A file of a vindex. */
export interface PartFile {
  /** Its path in the folder. */
  name: string;
  /** Its size. */
  bytes: number;
  /** Tensors in it. */
  tensors: number;
}

/** A part of a vindex that its folder holds. */
export interface PartInfo {
  /** The part. */
  part: "index" | "embed" | "norms" | "attn" | "gate" | "down_meta" | "ffn" | "down_features" | "expert_layers" | "lm_head" | "router" | "ple" | "tokenizer" | "manifest" | "labels" | "knn" | "readme";
  /** Its files, by name. */
  files: PartFile[];
  /** What they take together. */
  bytes: number;
  /** Tensors in them. */
  tensors: number;
}

/** Layers that are thought to do one thing. */
export interface VindexBands {
  /** Layers that deal with syntax. */
  syntax: Range;
  /** Layers in which facts are found. */
  knowledge: Range;
  /** Layers that form the output. */
  output: Range;
}

/** How far an extraction, a slice or a verification is. */
export interface VindexProgress {
  /** The file that is worked on, by its path in the folder. */
  file: string;
  /** The part that it belongs to. */
  part: "index" | "embed" | "norms" | "attn" | "gate" | "down_meta" | "ffn" | "down_features" | "expert_layers" | "lm_head" | "router" | "ple" | "tokenizer" | "manifest" | "labels" | "knn" | "readme" | null;
  /** The layer that is written, where an extraction writes one. */
  layer: number | null;
  /** Bytes that are done, of all files together. */
  bytesDone: number;
  /** Bytes that will be. */
  bytesTotal: number;
}

/** A file of a vindex. */
export interface ExtractFile {
  /** Its path in the folder. */
  name: string;
  /** The part of the model that it belongs to. */
  part: "index" | "embed" | "norms" | "attn" | "gate" | "down_meta" | "ffn" | "down_features" | "expert_layers" | "lm_head" | "router" | "ple" | "tokenizer" | "manifest" | "labels" | "knn" | "readme";
  /** Its length. */
  bytes: number;
}

/** What was extracted. */
export interface ExtractReport {
  /** The folder. */
  path: string;
  /** Its files. */
  files: ExtractFile[];
  /** Bytes of all files. */
  bytes: number;
  /** Bytes that an interrupted run had written, and this one took over. */
  resumedBytes: number;
  /** What this run took. */
  seconds: number;
  /** What somebody who uses the folder should know: what is left out, and what LARQL does not see of it. */
  warnings: string[];
}

/** A file of a slice. */
export interface SlicedFile {
  /** Its path in the folder, with `/` between its parts. */
  name: string;
  /** Its length. */
  bytes: number;
  /**
   * How it came there. `linked`: It is the same file; `cloned`: It has the same blocks until one of both is written to;
   * `copied`: Its bytes were copied; `rewritten`: It was written anew, with what the slice takes of it.
   */
  method: "linked" | "cloned" | "copied" | "rewritten";
}

/** What a slice is made of. Its text is a line for each file. */
export interface SliceReport {
  /** The slice's folder. */
  path: string;
  /** Its files, by name. */
  files: SlicedFile[];
  /** Files of the source that it does not have. */
  leftOut: string[];
  /** Parts that the whole vindex has and the slice lacks. */
  lacks: ("index" | "embed" | "norms" | "attn" | "gate" | "down_meta" | "ffn" | "down_features" | "expert_layers" | "lm_head" | "router" | "ple" | "tokenizer" | "manifest" | "labels" | "knn" | "readme")[];
  /** Bytes of all its files. */
  bytes: number;
  /** Bytes of files that are neither linked nor cloned. */
  writtenBytes: number;
  /** The report as text. */
  text: string;
}

/** A file of a folder that was verified. */
export interface VerifiedFile {
  /** Its path in the folder, with `/` between its parts. */
  name: string;
  /** The part that it belongs to; `null` for files that are not a vindex's, which are not looked at. */
  part: "index" | "embed" | "norms" | "attn" | "gate" | "down_meta" | "ffn" | "down_features" | "expert_layers" | "lm_head" | "router" | "ple" | "tokenizer" | "manifest" | "labels" | "knn" | "readme" | null;
  /** Its length; 0 for one that is missing. */
  bytes: number;
  /** How it was found. */
  status: "verified" | "checked" | "missing" | "damaged";
}

/** Something that is wrong with a folder. */
export interface VerifyProblem {
  /** The file, by its path in the folder. */
  file: string;
  /** The bytes that it concerns; `null`: no certain ones. */
  bytes: Range | null;
  /** What kind of damage it is. */
  kind: "missing" | "size" | "hash" | "overlap" | "gap" | "not_finite" | "unlisted" | "format" | "unreadable";
  /** The tensor that it concerns. */
  tensor: string | null;
  /** What was expected, and what found. */
  message: string;
  /** The problem as text. */
  text: string;
}

/** What a verification found. Its text is a summary and a line for each problem. */
export interface VerifyReport {
  /** The folder. */
  path: string;
  /** Its files, those included that are missing. */
  files: VerifiedFile[];
  /** What is wrong, by file and place. */
  problems: VerifyProblem[];
  /** Bytes that were read for hashes and numbers. */
  bytesRead: number;
  /** The report as text. */
  text: string;
}

/** A feature, and the product of its gate row with a query. */
export interface FeatureHit {
  /** The layer. */
  layer: number;
  /** The feature's number in its layer; those of a mixture are numbered over all experts in their order. */
  feature: number;
  /** The product, before any activation. */
  score: number;
}

/** A feature that a prompt wakes. */
export interface WalkHit {
  /** The layer. */
  layer: number;
  /** The feature in its layer. */
  feature: number;
  /** The product of its gate row with the query. */
  gateScore: number;
  /** The token that it writes most, without spaces around it; empty where nothing else is left of it. */
  target: string;
  /** Its label, where probes have confirmed one. */
  relation: string | null;
}

/** A token that features write which answer to an entity. */
export interface Edge {
  /** The token, without spaces around it, as the first of the features spells it. */
  target: string;
  /** The largest gate score among these features; 0 where all are below. */
  gateScore: number;
  /** The layer of that feature. */
  layer: number;
  /** That feature. */
  feature: number;
  /** Its label, where probes have confirmed one. */
  relation: string | null;
  /**
   * Where the label comes from. `probe`: A probe of the model confirmed it: `feature_labels.json`; `cluster`: It is the
   * name of the feature's cluster: `relation_clusters.json` and `feature_clusters.jsonl`.
   */
  source: "probe" | "cluster" | null;
  /** The first layer with such a feature. */
  layerMin: number;
  /** The last. */
  layerMax: number;
  /** Such features. */
  count: number;
  /** Up to three other tokens that the first of the features writes. */
  also: string[];
}

/** What a model associates with an entity. */
export interface Description {
  /** The entity, as it was asked for. */
  entity: string;
  /** The model's name in the index. */
  model: string;
  /** The largest gate scores first; of equal ones the one that was found in an earlier layer. */
  edges: Edge[];
}

/** A token that a feature writes. */
export interface FeatureToken {
  /** The token. */
  id: number;
  /** Its text, without spaces around it. */
  text: string;
  /** The product of its embedding with the feature's down column. */
  logit: number;
}

/** What a feature is said to mean. */
export interface Label {
  /** A relation, e.g. `capital`. */
  name: string;
  /**
   * Who says so. `probe`: A probe of the model confirmed it: `feature_labels.json`; `cluster`: It is the name of the
   * feature's cluster: `relation_clusters.json` and `feature_clusters.jsonl`.
   */
  source: "probe" | "cluster";
}

/** A feature, and what its down column writes. */
export interface Feature {
  /** The layer. */
  layer: number;
  /** The feature in its layer. */
  feature: number;
  /** The token that it writes most, without spaces around it. */
  topToken: string;
  /** That token. */
  topTokenId: number;
  /** That token's logit. */
  cScore: number;
  /** The tokens that it writes most, the most first. */
  tokens: FeatureToken[];
  /** What it is said to mean, where anything is. */
  label: Label | null;
}

/** A feature of a list. */
export interface Selected {
  /** The layer. */
  layer: number;
  /** The feature in its layer. */
  feature: number;
  /** The token that it writes most, without spaces around it. */
  target: string;
  /** That token's logit. */
  cScore: number;
  /** Its label, where a probe confirmed one. */
  relation: string | null;
}

/** Features, as `VindexBrowser::select` found them. */
export interface Selection {
  /** The first of them. */
  features: Selected[];
  /** How many there are. */
  total: number;
}

/** A word that features write. */
export interface Relation {
  /** The word, as the first of the features spells it. */
  name: string;
  /** Features that write it most. */
  count: number;
  /** The largest of their scores. */
  maxScore: number;
  /** The first layer with such a feature. */
  minLayer: number;
  /** The last. */
  maxLayer: number;
  /** Up to three other words that the first of the features writes. */
  examples: string[];
}

/** A label that probes confirmed. */
export interface Probe {
  /** The label. */
  name: string;
  /** Features that have it. */
  count: number;
}

/** What a model's layers of facts write about. */
export interface Relations {
  /**
   * Words that features write most, by how many do; of equal ones the one that was found in an earlier layer first.
   */
  relations: Relation[];
  /** How many words there are. */
  total: number;
  /** Labels that probes confirmed, by how many features have them; of equal ones the one of an earlier layer first. */
  probes: Probe[];
  /** Features with such labels. */
  probeCount: number;
}

/** Facts of an error; those of other kinds are not there. */
export interface FailureDetail {
  /** All that is wrong with a card, by place in it. */
  faults: CardFault[] | null;
  /** Why there is no plan: the report as JSON. */
  report: string | null;
  /** Tokens that a context needs. */
  needed: number | null;
  /** Tokens that it has. */
  available: number | null;
  /** Dimensions that a tensor should have. */
  expected: number[] | null;
  /** Dimensions that it has. */
  found: number[] | null;
}

/** An error. Its text is all of it. */
export interface Failure {
  /** What kind of error it is, as a name, as in `FileNotFound`. */
  kind: string;
  /** The kind's code, as in `file.not_found`: the same in every language, and it does not change. */
  code: string;
  /** What happened. */
  message: string;
  /** What to do. */
  hint: string | null;
  /**
   * Whether trying again can help. `never`: The same call will fail again; `now`: The same call may succeed;
   * `after_replan`: The call may succeed on another placement.
   */
  retry: "never" | "now" | "after_replan";
  /** What it concerns, by name, as `file` and `field`. Several of one name are one text. */
  context: Record<string, string>;
  /** Facts, for the kinds that have any. */
  detail: FailureDetail | null;
  /** All of it as text, with the errors behind it. */
  text: string;
}

/** Options of loading a model. */
export interface LoadOptions {
  /** Stages that the layers are split into evenly, on one engine; 1 by default. */
  stages?: number | null;
  /**
   * That engine: `cpu` (the default), `wgpu` (the best GPU), one of those that devices name, `candle-cpu`,
   * `candle-cuda` or `candle-metal`.
   */
  engine?: string | null;
  /** The name that a placement has for this machine; `local` by default. */
  node?: string | null;
  /**
   * Addresses of servers of feed-forward blocks and experts, as `http://192.168.7.4:8080`, `https://…`,
   * `unix:///path`, or in gRPC `grpc://…` and `grpcs://…`: each is asked what it has, and computes that. Of what
   * several have, those that are named later help where the first one fails.
   */
  ffnAt?: string[] | null;
  /** Addresses of nodes that a placement has experts on, by name, where the placement does not say. */
  addresses?: Record<string, string> | null;
  /** The key that other nodes ask for. */
  peerKey?: string | null;
  /** Certificates that other nodes' must lead to, in PEM; by default those of public authorities. */
  peerRoots?: string | null;
  /** What proves to other nodes who asks: a certificate and its private key, in PEM. */
  peerIdentity?: string | null;
  /** How results cross: `f32` (the default) changes nothing, `f16` halves them, `i8` is for dense blocks. */
  peerWire?: "f32" | "f16" | "i8" | null;
  /**
   * Sends rows to dense blocks as integers of 8 bits with scales (Q8_K), some 28 % of their bytes, which changes
   * results. Only where the model's width is a multiple of 256.
   */
  peerRowsQ8k?: boolean | null;
  /** Seconds that another node may take for what it is asked; 30 by default. */
  peerTimeout?: number | null;
  /** Leaves feed-forward blocks and experts to the CPU where an engine would copy them to its device. */
  ffnOnCpu?: boolean | null;
  /**
   * Bytes that are kept in memory at a time of feed-forward weights that are used where they are stored, with the same
   * results; no limit by default.
   */
  ffnBudget?: number | null;
  /** Features that are computed of each dense block, which changes results; by default all. */
  ffnTopFeatures?: number | null;
  /** Bytes that `wgpu` may reserve on its device; by default what its driver gives. */
  deviceMemory?: number | null;
  /** Threads that compute on the CPU; all of the hardware's by default. */
  threads?: number | null;
  /**
   * Tokens that a session can hold: by default what a placement was planned for, else 4096 (of LongRoPE models at most
   * the original context), and never more than the model has.
   */
  context?: number | null;
  /** Prompt tokens that pass through the layers together; 256 by default. */
  prefillChunk?: number | null;
  /**
   * How keys and values are kept, never in more memory than a placement was planned with. By default as the plan was
   * asked for. Where it was not: in `f16`, but in `bf16` where all stages are on the CPU and `precision` is not
   * `exact`.
   */
  kv?: "f16" | "bf16" | "f32" | "q8_0" | "q4_0" | null;
  /** How values are kept, where that is otherwise than keys. */
  kvValues?: "f16" | "bf16" | "f32" | "q8_0" | "q4_0" | null;
  /**
   * Sessions that generate at the same time, in steps together: by default as many as a placement was planned for, else
   * 16, and never more than that was planned for. Others wait for their turn; those whose reader does not read do not
   * count.
   */
  sessions?: number | null;
  /**
   * Bytes that keys and values of all sessions may take; by default what a placement was planned with, else what
   * sessions need. What is left keeps conversations that rest, and the beginnings of prompts, so that they need not be
   * computed again.
   */
  kvMemory?: number | null;
  /**
   * What happens to a session when that memory is full: `wait` (the default) gives up what resting sessions hold, then
   * waits until others have ended; `evict` does not wait but ends with `memory.exhausted`; `fail` does so at once.
   */
  whenFull?: "wait" | "evict" | "fail" | null;
  /**
   * How products are rounded: `fast` (the default) rounds activations to 8 bits where weights are quantised, `exact`
   * multiplies what that leaves over, too, and `bf16` rounds to BF16 where weights are of that type.
   */
  precision?: "fast" | "exact" | "bf16" | null;
  /**
   * Where weights lie: `mapped`, as the file is; `resident`, read once; `auto` (the default), as free memory suggests.
   */
  memory?: "auto" | "mapped" | "resident" | null;
  /** Keeps a compact copy of the head, so that most of it need not be read, with the same results. */
  screenHead?: boolean | null;
  /** The model's card, which says how it is spoken to in conversations; by default what its checkpoint says. */
  card?: ModelCard | null;
  /** The chat template, instead of those of the checkpoint. */
  chatTemplate?: string | null;
  /**
   * The path of what drafts tokens: a smaller model with the same vocabulary, this model's head for tokens ahead (MTP)
   * in a file of its own, its assistant (Gemma 4), or an EAGLE-3 head of it. It runs whole on the engine of the last
   * stage, with its options, a budget among them; keys and values of its own, which an assistant has none of, are for
   * as many sessions, beside `kv_memory`. A plan that counts one needs one here, whose weights, keys and values take no
   * more memory; what no plan counts comes on top.
   */
  draftModel?: string | null;
  /**
   * Whether a head for tokens ahead (MTP) that the checkpoint has drafts. It takes the memory of a layer more, and of
   * that layer's keys and values for as many sessions: by default it drafts as it was planned, and without a plan where
   * no `draft_model` does and where it can be loaded, as the model's memory tells. `false` leaves out what a plan
   * counts, too.
   */
  mtp?: boolean | null;
}

/** Options of serving feed-forward blocks and experts to other machines. */
export interface ServeOptions {
  /**
   * Where to listen: `http://host:port`, `https://…`, which needs `identity`, or `unix:///path`. By default
   * `http://127.0.0.1:0`, a free port that only this machine reaches.
   */
  listen?: string | null;
  /** The layers whose blocks are served; by default all. */
  layers?: Range | null;
  /** The experts that are served of each layer that has some; by default all. */
  experts?: Range | null;
  /** The key that clients must know. Where other machines reach the server, it or `clients` must be given. */
  key?: string | null;
  /** What the server shows to clients of `https`: a certificate and its private key, in PEM. */
  identity?: string | null;
  /** Certificates that clients' must lead to, in PEM; by default they need none. */
  clients?: string | null;
  /** Bytes of weights that are kept in memory at a time; no limit by default. */
  ffnBudget?: number | null;
  /** Threads that compute; all of the hardware's by default. */
  threads?: number | null;
  /**
   * How products are rounded: `fast` (the default), `exact` or `bf16`. Clients get the numbers of a model that is
   * loaded with the same.
   */
  precision?: "fast" | "exact" | "bf16" | null;
  /** Where weights lie: `mapped`, `resident` or `auto` (the default). */
  memory?: "auto" | "mapped" | "resident" | null;
  /** Rows that are computed together at most, of all clients; 256 by default. */
  maxRows?: number | null;
  /** Requests that may wait; who comes then is told to come again. 256 by default. */
  queue?: number | null;
  /** Connections at a time; 256 by default. */
  maxConnections?: number | null;
  /** Bytes of a request at most; 64 MiB by default. */
  maxBody?: number | null;
}

/** Options of measuring a link. */
export interface LinkOptions {
  /** The key that the server asks for. */
  key?: string | null;
  /** Certificates that the server's must lead to, in PEM; by default those of public authorities. */
  roots?: string | null;
  /** What proves to the server who asks: a certificate and its private key, in PEM. */
  identity?: string | null;
  /** Seconds that measuring may take; 30 by default. */
  timeout?: number | null;
}

/** Options of one generation. */
export interface GenerateOptions {
  /** Tokens to generate at most; by default until the model ends or the context is full. */
  maxTokens?: number | null;
  /** 0, the default, takes the likeliest token; more makes others likelier. */
  temperature?: number | null;
  /** Draws from so many likeliest tokens; by default all. */
  topK?: number | null;
  /** Draws from the likeliest tokens that have this probability together; 1 by default. */
  topP?: number | null;
  /** Leaves out tokens that are less likely than this part of the likeliest; 0 by default. */
  minP?: number | null;
  /** Divides logits of tokens that were there already; 1, the default, does not. */
  repetitionPenalty?: number | null;
  /** Is taken from logits of tokens that were there already; 0 by default. */
  presencePenalty?: number | null;
  /** Is taken from a token's logit for each time it was there; 0 by default. */
  frequencyPenalty?: number | null;
  /** Tokens that penalties look back at; 64 by default. */
  penaltyWindow?: number | null;
  /** What is added to logits, by token id. */
  logitBias?: Record<number, number> | null;
  /** The same seed draws the same tokens; 0 by default. */
  seed?: number | null;
  /**
   * Whether tokens are computed ahead: `auto` (the default), where that pays, by times and acceptances that are
   * measured meanwhile; `off`. What followed when the text read the same is proposed (`ngram`: that alone), or what a
   * draft model says (`draft_model`: that alone), and kept while it is what is chosen: on the CPU the text is the same
   * in every bit.
   */
  speculate?: "auto" | "ngram" | "draft_model" | "off" | null;
  /**
   * Tokens that are computed ahead in every step, as far as they are proposed and the step has rows for them, whether
   * or not that pays, 1 to 15; by default as many as pay.
   */
  draftTokens?: number | null;
  /**
   * Whether another guess at the next token is computed beside the first one, in a copy of the sequence that shares its
   * pages, for two rows of a step, where the step has them: a small tree. By default where that pays, and never with
   * `draft_tokens`. Models with recurrent layers have none.
   */
  draftTree?: boolean | null;
  /**
   * Texts that the text may quote, beside its own prompt: what followed there is proposed, too. At most 262,144 tokens
   * and 4 MiB.
   */
  draftTexts?: string[] | null;
  /** Texts that end the generation; they are not part of its text. */
  stop?: string[] | null;
  /** A JSON Schema that the text keeps to. Of this, `regex`, `grammar` and `response_format` one may be given. */
  jsonSchema?: Record<string, any> | null;
  /** A regular expression that matches the text as a whole. */
  regex?: string | null;
  /** A grammar in the syntax of Lark, of whose language the text is. */
  grammar?: string | null;
  /**
   * What the text is, as OpenAI's chat API and the AI SDK say it: `{"type": "json_object"}`, or with `json_schema`.
   */
  responseFormat?: Record<string, any> | null;
  /** Goes on past end-of-sequence tokens. */
  ignoreEos?: boolean | null;
  /** Sessions of a higher one begin first, and their prompts are computed first; 0 by default. */
  priority?: number | null;
  /** The prompt follows what the session holds; by default it is everything so far. */
  append?: boolean | null;
  /** Reports each token's log-probability, and those of so many likeliest, 0 to 64. */
  logprobs?: number | null;
}

/** Options of a prompt. */
export interface RenderOptions {
  /** What the model may call: functions of OpenAI's shape, each with a JSON Schema of its arguments. */
  tools?: Record<string, any>[] | null;
  /**
   * How much the model is to reason; by default as much as it likes. What it cannot do is refused. `on`: Reasoning, as
   * much as the model likes; `off`: No reasoning.
   */
  reasoning?: boolean | "on" | "off" | "none" | "minimal" | "low" | "medium" | "high" | "xhigh" | null;
  /** Documents to answer from, for templates that know them. */
  documents?: Record<string, any>[] | null;
  /** Further variables of the template, by name. */
  variables?: Record<string, any> | null;
  /** Which of the model's templates; by default the one for tools where tools are given, else the usual one. */
  template?: string | null;
  /** The time, for templates that tell it, in seconds since 1970; by default the system's clock, in UTC. */
  now?: number | null;
  /**
   * Texts of special tokens in messages, tools and documents become these tokens: whoever writes them can write turns.
   */
  trustMessages?: boolean | null;
}

/** Options of an answer. */
export interface ChatOptions {
  /** What the model may call: functions of OpenAI's shape, each with a JSON Schema of its arguments. */
  tools?: Record<string, any>[] | null;
  /**
   * How much the model is to reason; by default as much as it likes. What it cannot do is refused. `on`: Reasoning, as
   * much as the model likes; `off`: No reasoning.
   */
  reasoning?: boolean | "on" | "off" | "none" | "minimal" | "low" | "medium" | "high" | "xhigh" | null;
  /** Documents to answer from, for templates that know them. */
  documents?: Record<string, any>[] | null;
  /** Further variables of the template, by name. */
  variables?: Record<string, any> | null;
  /** Which of the model's templates; by default the one for tools where tools are given, else the usual one. */
  template?: string | null;
  /** The time, for templates that tell it, in seconds since 1970; by default the system's clock, in UTC. */
  now?: number | null;
  /**
   * Texts of special tokens in messages, tools and documents become these tokens: whoever writes them can write turns.
   */
  trustMessages?: boolean | null;
  /** Tokens to generate at most; by default until the model ends or the context is full. */
  maxTokens?: number | null;
  /** 0, the default, takes the likeliest token; more makes others likelier. */
  temperature?: number | null;
  /** Draws from so many likeliest tokens; by default all. */
  topK?: number | null;
  /** Draws from the likeliest tokens that have this probability together; 1 by default. */
  topP?: number | null;
  /** Leaves out tokens that are less likely than this part of the likeliest; 0 by default. */
  minP?: number | null;
  /** Divides logits of tokens that were there already; 1, the default, does not. */
  repetitionPenalty?: number | null;
  /** Is taken from logits of tokens that were there already; 0 by default. */
  presencePenalty?: number | null;
  /** Is taken from a token's logit for each time it was there; 0 by default. */
  frequencyPenalty?: number | null;
  /** Tokens that penalties look back at; 64 by default. */
  penaltyWindow?: number | null;
  /** What is added to logits, by token id. */
  logitBias?: Record<number, number> | null;
  /** The same seed draws the same tokens; 0 by default. */
  seed?: number | null;
  /**
   * Whether tokens are computed ahead: `auto` (the default), where that pays, by times and acceptances that are
   * measured meanwhile; `off`. What followed when the text read the same is proposed (`ngram`: that alone), or what a
   * draft model says (`draft_model`: that alone), and kept while it is what is chosen: on the CPU the text is the same
   * in every bit.
   */
  speculate?: "auto" | "ngram" | "draft_model" | "off" | null;
  /**
   * Tokens that are computed ahead in every step, as far as they are proposed and the step has rows for them, whether
   * or not that pays, 1 to 15; by default as many as pay.
   */
  draftTokens?: number | null;
  /**
   * Whether another guess at the next token is computed beside the first one, in a copy of the sequence that shares its
   * pages, for two rows of a step, where the step has them: a small tree. By default where that pays, and never with
   * `draft_tokens`. Models with recurrent layers have none.
   */
  draftTree?: boolean | null;
  /**
   * Texts that the text may quote, beside its own prompt: what followed there is proposed, too. At most 262,144 tokens
   * and 4 MiB.
   */
  draftTexts?: string[] | null;
  /** Texts that end the generation; they are not part of its text. */
  stop?: string[] | null;
  /** A JSON Schema that the text keeps to. Of this, `regex`, `grammar` and `response_format` one may be given. */
  jsonSchema?: Record<string, any> | null;
  /** A regular expression that matches the text as a whole. */
  regex?: string | null;
  /** A grammar in the syntax of Lark, of whose language the text is. */
  grammar?: string | null;
  /**
   * What the text is, as OpenAI's chat API and the AI SDK say it: `{"type": "json_object"}`, or with `json_schema`.
   */
  responseFormat?: Record<string, any> | null;
  /** Goes on past end-of-sequence tokens. */
  ignoreEos?: boolean | null;
  /** Sessions of a higher one begin first, and their prompts are computed first; 0 by default. */
  priority?: number | null;
  /** Tokens that the model may reason at most; then its reasoning is ended, and it goes on with the answer. */
  reasoningBudget?: number | null;
}

/** Options of a conversation in which the model calls functions. */
export interface ToolOptions {
  /** Answers at most, 8 by default; calls of the last one get no results. */
  maxRounds?: number | null;
  /**
   * What happens where a function fails; `tell` by default. `tell`: The model is told: the result is `error: ` and what
   * the error displays; `end`: The conversation ends with `tool.failed`.
   */
  onToolFailure?: "tell" | "end" | null;
}

/** Options of loading an embedding model. */
export interface EmbeddingOptions {
  /** Threads that compute; all of the hardware's by default. Vectors do not depend on it. */
  threads?: number | null;
}

/** Options of making vectors of texts. */
export interface EmbedOptions {
  /** Of texts that are too long only the beginning counts (the default); without it they are an error. */
  truncate?: boolean | null;
}

/** Options of a plan. */
export interface PlanOptions {
  /**
   * How the model is split; `pipeline` by default. `pipeline`: By layers: each node has some; `tensor`: By tensors:
   * each node has a part of every layer.
   */
  sharding?: "pipeline" | "tensor" | null;
  /**
   * How nodes talk; `direct` by default. `direct`: The coordinator, which has the first stage, talks to each of the
   * others: this library's own way; `mlx_ring`: In a ring of sockets, as MLX does; `mlx_jaccl`: Each with each by RDMA,
   * as MLX does.
   */
  transport?: "direct" | "mlx_ring" | "mlx_jaccl" | null;
  /** Nodes to use at least; 1 by default. */
  minNodes?: number | null;
  /** Nodes that must be used. */
  requiredNodes?: string[] | null;
  /** Nodes that must not. */
  excludedNodes?: string[] | null;
  /** The node that has the conversation and the first stage; by default the planner chooses. Only for `direct`. */
  coordinator?: string | null;
  /**
   * Tokens for which keys and values are reserved, of each session; 8192 by default. With the transport `direct` no
   * more than the model was trained for and its card allows.
   */
  contextTokens?: number | null;
  /** Tokens of the prompt whose time is estimated; 512 by default, and no more than the context has. */
  promptTokens?: number | null;
  /** Sessions that generate at once, each of which has its keys and values; 1 by default. Only for `direct`. */
  sessions?: number | null;
  /**
   * How keys and values are kept, and loading keeps them so; MLX has `f16` alone. By default in two bytes an element,
   * of which loading chooses the type.
   */
  kv?: "f16" | "bf16" | "f32" | "q8_0" | "q4_0" | null;
  /** How values are kept, where that is otherwise than keys. */
  kvValues?: "f16" | "bf16" | "f32" | "q8_0" | "q4_0" | null;
  /**
   * How careful it is with memory: `safe` (the default); `relaxed`, without margins; `force` refuses nothing for its
   * sake, and says what is over.
   */
  strictness?: "safe" | "relaxed" | "force" | null;
  /**
   * Feed-forward blocks and experts that fit in no memory may stay on the coordinator's disk, and be read when they are
   * needed. Only for `direct`.
   */
  fromDisk?: boolean | null;
  /**
   * Owners that each block and expert on another node than its layer's attention gets beside its first, where there is
   * room on further nodes; 0 by default. The report warns where some have fewer.
   */
  replicas?: number | null;
  /**
   * What each part of the model weighs; by default a checkpoint's tensors are counted, and a card's size is divided.
   */
  inventory?: Inventory | null;
  /**
   * The head for tokens ahead (MTP) that the checkpoint has drafts: memory is planned for it, and the model loads it.
   * Only for `direct`.
   */
  mtp?: boolean | null;
  /** What drafts instead: the inventory of a `draft_model` of loading. Only for `direct`. */
  draftModel?: Inventory | null;
  /**
   * What is fixed by hand, by rules as those of a placement by hand with places on the cluster's nodes, as `wgpu@shed`;
   * the rest is planned, blocks of layers that rules name among it. Only for `direct`.
   */
  fixed?: PlacementOptions | null;
  /** Rings to consider, and no others, as nodes by rank; not for `direct`. */
  rings?: string[][] | null;
  /** The port on which nodes listen; 50000 by default. */
  port?: number | null;
}

/** Options of a price. */
export interface PriceOptions {
  /**
   * Tokens of each session's context, in the middle of which a token is priced; 8192 by default, and no more than the
   * model was trained for and its card allows.
   */
  contextTokens?: number | null;
  /** Tokens of the prompt that is priced; 512 by default, and no more than the context has. */
  promptTokens?: number | null;
  /** Sessions that generate at once; 1 by default. */
  sessions?: number | null;
  /** How keys and values are kept; by default in two bytes an element. */
  kv?: "f16" | "bf16" | "f32" | "q8_0" | "q4_0" | null;
  /** How values are kept, where that is otherwise than keys. */
  kvValues?: "f16" | "bf16" | "f32" | "q8_0" | "q4_0" | null;
  /**
   * What each part of the model weighs; by default a checkpoint's tensors are counted, and a card's size is divided.
   */
  inventory?: Inventory | null;
  /** The head for tokens ahead (MTP) that the checkpoint has drafts. */
  mtp?: boolean | null;
  /** What drafts instead: the inventory of a `draft_model` of loading. */
  draftModel?: Inventory | null;
}

/**
 * A placement by hand. An engine is named as `wgpu`, or with its node as `cpu@shed`. What two options place, they must
 * place alike; feed-forward blocks and experts that none names stay with their layer's attention.
 */
export interface PlacementOptions {
  /** The engine of layers that `layers` does not name. */
  engine?: string | null;
  /** Layers as stages, as in `0..20=wgpu`. */
  layers?: string[] | null;
  /**
   * Feed-forward blocks of layers with all their experts, as in `4..20=cpu`, or some experts of each, as in
   * `4..20:0..64=cpu@shed`. A dense block is expert 0.
   */
  experts?: string[] | null;
  /**
   * Blocks and experts by regular expressions over the checkpoint's names of tensors, as llama.cpp's option of this
   * name takes them: `blk\.(1[0-9])\.ffn_.*_exps\.=CPU`. Each must match whole blocks or experts, and nothing of
   * attention.
   */
  overrideTensors?: string[] | null;
}

/** Which rings are asked for. */
export interface RingsOptions {
  /**
   * How the model is split; `pipeline` by default. `pipeline`: By layers: each node has some; `tensor`: By tensors:
   * each node has a part of every layer.
   */
  sharding?: "pipeline" | "tensor" | null;
  /**
   * How nodes talk: one of MLX's ways; `mlx_ring` by default. `direct`: The coordinator, which has the first stage,
   * talks to each of the others: this library's own way; `mlx_ring`: In a ring of sockets, as MLX does; `mlx_jaccl`:
   * Each with each by RDMA, as MLX does.
   */
  transport?: "direct" | "mlx_ring" | "mlx_jaccl" | null;
  /** Nodes to use at least; 1 by default. */
  minNodes?: number | null;
}

/** What else than its card is known of a model. */
export interface ProfileOptions {
  /** Its tokenizer's chat template knows tools. */
  tokenizerTools?: boolean | null;
  /** Its tokenizer has markers for reasoning. */
  tokenizerThinking?: boolean | null;
  /** The request consists of chat messages. Left out, with the next: nothing is known of it yet. */
  hasMessages?: boolean | null;
  /** The request offers tools. */
  hasTools?: boolean | null;
}

/** Options of an extraction. */
export interface ExtractOptions {
  /**
   * How much of the model; `all` by default. `browse`: Gate vectors, embeddings, and what features mean; `attention`:
   * Attention and norms too; `inference`: All that generation takes; `all`: Everything.
   */
  level?: "browse" | "attention" | "inference" | "all" | null;
  /** How weights are kept: `f32`, `f16` (the default) or `q4k`, with which all that generation takes is written. */
  storage?: "f32" | "f16" | "q4k" | null;
  /** Down projections as Q4_K rather than Q6_K. Only with `q4k`. */
  downQ4k?: boolean | null;
  /** Down projections once more, transposed. Only with `q4k`. */
  featureMajorDown?: boolean | null;
  /** Gate vectors as floats (the default). With `q4k` quantised gate projections can stand for them. */
  gateVectors?: boolean | null;
  /** Tokens that are kept for each feature, 10 by default; 0: none. */
  featureTokens?: number | null;
  /** The model's name in the index; by default its file's or folder's. */
  name?: string | null;
  /** Threads that compute; all of the hardware's by default. */
  threads?: number | null;
  /** Begins anew where an extraction was interrupted; by default it continues. */
  restart?: boolean | null;
}

/** Options of a slice. */
export interface SliceOptions {
  /** The role that it is for; `full` by default. */
  preset?: "full" | "client" | "attn" | "embed" | "server" | "browse" | "router" | "expert-server" | null;
  /** Parts to take instead of those of the preset. */
  parts?: ("index" | "embed" | "norms" | "attn" | "gate" | "down_meta" | "ffn" | "down_features" | "expert_layers" | "lm_head" | "router" | "ple" | "tokenizer" | "manifest" | "labels" | "knn" | "readme")[] | null;
  /** Layers whose weights it holds; by default all. */
  layers?: Range[] | null;
  /** Experts of each layer whose weights it holds; by default all. */
  experts?: Range[] | null;
  /**
   * How files that are taken whole come into it; `auto` by default. `auto`: As links, else copy-on-write, else as
   * copies. A linked file is the same in both folders, changes included; `copy`: As files of their own, copy-on-write
   * where the file system can.
   */
  copy?: "auto" | "copy" | null;
  /** Files that are worked on at a time; all of the hardware's threads by default. */
  threads?: number | null;
}

/** Options of a verification. */
export interface VerifyOptions {
  /** Compares hashes (the default), which reads all files that have any. */
  hashes?: boolean | null;
  /** Looks for numbers that are infinite or none, which reads all weights. */
  values?: boolean | null;
  /** Pieces of files that are looked at at a time; all of the hardware's threads by default. */
  threads?: number | null;
}

/** Options of a search for the features nearest to a query. */
export interface NearestOptions {
  /** Features of each layer; 10 by default. */
  k?: number | null;
  /** The layers; by default all that have features. */
  layers?: number[] | null;
}

/** Options of a walk through the features that a prompt wakes. */
export interface WalkOptions {
  /** Features of each layer; 5 by default. */
  top?: number | null;
  /** The layers, in the order in which they are walked; by default all that have features. */
  layers?: number[] | null;
}

/** Options of a description. */
export interface DescribeOptions {
  /**
   * Layers that are searched; those of facts (`knowledge`) by default. `all`: Every layer; `syntax`: Those of syntax;
   * `knowledge`: Those of facts; `output`: Those that form the output.
   */
  band?: "all" | "syntax" | "knowledge" | "output" | null;
  /** Features that are looked at in each layer, and edges at most; 20 by default. */
  limit?: number | null;
  /** Gate scores below this do not count; 5 by default. */
  minScore?: number | null;
}

/** Options of a selection of features. */
export interface SelectOptions {
  /** Part of the token that a feature writes most, regardless of case. */
  entity?: string | null;
  /** Part of the label that a probe confirmed, regardless of case. */
  relation?: string | null;
  /** The layer; by default all. */
  layer?: number | null;
  /** Scores below this do not count. */
  minScore?: number | null;
  /**
   * What the list is ordered by; `score` by default. `score`: How much a feature writes its token: `c_score`; `layer`:
   * The layer.
   */
  order?: "score" | "layer" | null;
  /** The smallest first. */
  ascending?: boolean | null;
  /** Features at most; 20 by default. */
  limit?: number | null;
}

/** Options of a list of relations. */
export interface RelationsOptions {
  /** Words at most; 50 by default. */
  limit?: number | null;
  /** Features that write their token less than this do not count; 0.2 by default. */
  minScore?: number | null;
}
