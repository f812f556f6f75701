"""What crosses between Python and the library? Plain data.

Written by ``cargo run -p skulk-contract-generate`` from the library's own declarations.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from . import _methods

__all__ = [
    "Accelerator",
    "Arch",
    "AttentionFacts",
    "Budget",
    "Bytes",
    "CallArgumentsEvent",
    "CallFinishedEvent",
    "CallMalformedEvent",
    "CallStartedEvent",
    "CardFault",
    "CfgPart",
    "ChatAnswer",
    "ChatCall",
    "ChatEvent",
    "ChatFinish",
    "ChatPrompt",
    "ChatUsage",
    "Cluster",
    "ComponentInfo",
    "ConfigFacts",
    "Device",
    "Divergence",
    "Drafter",
    "Estimate",
    "Event",
    "ExpertFacts",
    "ExpertShard",
    "FfnMemory",
    "Finish",
    "FinishEvent",
    "GgufFacts",
    "IndexFacts",
    "Inventory",
    "KvMemory",
    "LatentFacts",
    "LayerBytes",
    "Link",
    "LinkSpeed",
    "MalformedCall",
    "ModalitiesCardConfig",
    "ModelCard",
    "ModelFacts",
    "ModelMemory",
    "NetworkInterface",
    "Node",
    "NodeMemory",
    "Output",
    "PlacedStage",
    "PlacementCardConfig",
    "Price",
    "Profile",
    "PromptEstimate",
    "Rdma",
    "Reasoning",
    "ReasoningCardConfig",
    "ReasoningEvent",
    "RecurrentFacts",
    "RuntimeCardConfig",
    "Socket",
    "SpeculationReport",
    "SpeculationWay",
    "Stage",
    "StorageSize",
    "TextEvent",
    "Timings",
    "Token",
    "TokenLogprob",
    "ToolResult",
    "ToolingCardConfig",
    "Usable",
    "Usage",
    "VisionCardConfig",
    "WindowFacts",
]


def _number(value: Any) -> float:
    # JSON has no infinities and no NaN.
    return float("nan") if value is None else value


@dataclass(frozen=True, slots=True)
class StorageSize:
    """A number of bytes, as cards write it."""

    in_bytes: int = 0
    """Bytes."""

    @staticmethod
    def _of(data: dict[str, Any]) -> StorageSize:
        return StorageSize(
            in_bytes=data["inBytes"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "inBytes": self.in_bytes,
        }


@dataclass(frozen=True, slots=True)
class ComponentInfo:
    """A part of a model that is made of several, as of an image generator."""

    component_name: str
    """Its name."""
    component_path: str
    """Its folder in the model's."""
    storage_size: StorageSize
    """Bytes of its weights."""
    can_shard: bool
    """It can be split over nodes."""
    n_layers: int | None = None
    """Its layers, where it has any; at least 1."""
    safetensors_index_filename: str | None = None
    """The name of its index of weight files."""

    @staticmethod
    def _of(data: dict[str, Any]) -> ComponentInfo:
        return ComponentInfo(
            component_name=data["componentName"],
            component_path=data["componentPath"],
            storage_size=StorageSize._of(data["storageSize"]),
            n_layers=data["nLayers"],
            can_shard=data["canShard"],
            safetensors_index_filename=data["safetensorsIndexFilename"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "componentName": self.component_name,
            "componentPath": self.component_path,
            "storageSize": _methods.plain(self.storage_size),
            "nLayers": self.n_layers,
            "canShard": self.can_shard,
            "safetensorsIndexFilename": self.safetensors_index_filename,
        }


@dataclass(frozen=True, slots=True)
class VisionCardConfig:
    """How a model sees."""

    image_token_id: int | None = None
    """The token that stands for an image."""
    model_type: str = ""
    """The vision tower's kind."""
    weights_repo: str = ""
    """Where its weights are; the card's own ``model_id`` unless it says otherwise."""
    image_token: str | None = None
    """The text of the image token."""
    processor_repo: str | None = None
    """Where its image processor is."""
    boi_token_id: int | None = None
    """The token that begins an image."""
    eoi_token_id: int | None = None
    """The token that ends an image."""

    @staticmethod
    def _of(data: dict[str, Any]) -> VisionCardConfig:
        return VisionCardConfig(
            image_token_id=data["imageTokenId"],
            model_type=data["modelType"],
            weights_repo=data["weightsRepo"],
            image_token=data["imageToken"],
            processor_repo=data["processorRepo"],
            boi_token_id=data["boiTokenId"],
            eoi_token_id=data["eoiTokenId"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "imageTokenId": self.image_token_id,
            "modelType": self.model_type,
            "weightsRepo": self.weights_repo,
            "imageToken": self.image_token,
            "processorRepo": self.processor_repo,
            "boiTokenId": self.boi_token_id,
            "eoiTokenId": self.eoi_token_id,
        }


@dataclass(frozen=True, slots=True)
class ReasoningCardConfig:
    """How a model reasons."""

    supports_toggle: bool | None = None
    """Requests can turn it on and off."""
    supports_budget: bool | None = None
    """Requests can bound it."""
    format: Literal["none", "token_delimited", "channel_delimited"] | None = None
    """How it is marked. ``none``: Not at all; ``token_delimited``: Between two markers, as ``<think>`` and
    ``</think>``; ``channel_delimited``: On a channel of its own."""
    default_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    """How much, unless a request says. ``none``: Not at all; ``minimal``: Hardly; ``low``: Little; ``medium``: Some;
    ``high``: Much; ``xhigh``: As much as it can."""
    disabled_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    """What turning it off means. ``none``: Not at all; ``minimal``: Hardly; ``low``: Little; ``medium``: Some;
    ``high``: Much; ``xhigh``: As much as it can."""

    @staticmethod
    def _of(data: dict[str, Any]) -> ReasoningCardConfig:
        return ReasoningCardConfig(
            supports_toggle=data["supportsToggle"],
            supports_budget=data["supportsBudget"],
            format=data["format"],
            default_effort=data["defaultEffort"],
            disabled_effort=data["disabledEffort"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "supportsToggle": self.supports_toggle,
            "supportsBudget": self.supports_budget,
            "format": self.format,
            "defaultEffort": self.default_effort,
            "disabledEffort": self.disabled_effort,
        }


@dataclass(frozen=True, slots=True)
class ModalitiesCardConfig:
    """What else than text a model takes."""

    supports_audio_input: bool | None = None
    """It hears."""
    supports_native_multimodal: bool | None = None
    """Its other inputs are part of the model itself."""

    @staticmethod
    def _of(data: dict[str, Any]) -> ModalitiesCardConfig:
        return ModalitiesCardConfig(
            supports_audio_input=data["supportsAudioInput"],
            supports_native_multimodal=data["supportsNativeMultimodal"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "supportsAudioInput": self.supports_audio_input,
            "supportsNativeMultimodal": self.supports_native_multimodal,
        }


@dataclass(frozen=True, slots=True)
class ToolingCardConfig:
    """How a model calls tools."""

    supports_tool_calling: bool | None = None
    """It does."""
    tool_call_format: Literal["generic", "gemma4", "gpt_oss", "dsml"] | None = None
    """How it writes calls. ``generic``: As its tokenizer's chat template says; ``gemma4``: Gemma 4's; ``gpt_oss``:
    Harmony, of gpt-oss; ``dsml``: DeepSeek V3.2's markup."""
    builtin_tools: tuple[Literal["web_search", "open_url", "extract_page"], ...] | None = None
    """Tools that it was trained with."""

    @staticmethod
    def _of(data: dict[str, Any]) -> ToolingCardConfig:
        return ToolingCardConfig(
            supports_tool_calling=data["supportsToolCalling"],
            tool_call_format=data["toolCallFormat"],
            builtin_tools=None if data["builtinTools"] is None else tuple(data["builtinTools"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "supportsToolCalling": self.supports_tool_calling,
            "toolCallFormat": self.tool_call_format,
            "builtinTools": _methods.plain(self.builtin_tools),
        }


@dataclass(frozen=True, slots=True)
class RuntimeCardConfig:
    """How a model is run."""

    prompt_renderer: Literal["tokenizer", "gemma4", "dsml"] | None = None
    """What turns messages into a prompt. ``tokenizer``: The chat template of the tokenizer; ``gemma4``: Gemma 4's;
    ``dsml``: DeepSeek V3.2's."""
    output_parser: Literal["generic", "gemma4", "gpt_oss", "deepseek_v32"] | None = None
    """What takes an answer apart. ``generic``: By the thinking format and the tool-call format; ``gemma4``: Gemma
    4's; ``gpt_oss``: Harmony, of gpt-oss; ``deepseek_v32``: DeepSeek V3.2's."""
    metal_fast_synch: bool | None = None
    """Whether MLX waits for the GPU by polling."""
    mtp_heads: bool | None = None
    """It has multi-token-prediction heads, in a sidecar."""
    mtp_max_depth: int | None = None
    """Tokens that these heads, or the assistant, draft at most."""
    mtp_sidecar_repo: str | None = None
    """Where the sidecar is."""
    mtp_norm_convention: Literal["zero_centered", "actual_scale"] | None = None
    """What the sidecar's norm weights are relative to. ``zero_centered``: 1 is to be added; ``actual_scale``: They
    are the factors themselves."""
    mtp_concat_order: Literal["embed_first", "hidden_first"] | None = None
    """How the heads join their inputs. ``embed_first``: The token's embedding, then the hidden state;
    ``hidden_first``: The hidden state, then the token's embedding."""
    speculative_multi_node: bool | None = None
    """Speculation pays over several nodes, too."""
    assistant_model_repo: str | None = None
    """Where a model that drafts for this one is."""
    served_spec_type: Literal["none", "draft_mtp", "draft_eagle3", "draft_simple", "ngram"] | None = None
    """How it speculates where a server runs it. ``none``: Not at all; ``draft_mtp``: With its own
    multi-token-prediction heads; ``draft_eagle3``: With an EAGLE-3 draft; ``draft_simple``: With a smaller model;
    ``ngram``: With n-grams of the text so far."""
    served_spec_n_max: int | None = None
    """Tokens that the server drafts at most; at least 1."""
    served_spec_draft_repo: str | None = None
    """Where the server's draft is."""
    served_spec_draft_file: str | None = None
    """The file of that draft; must be given with the repository."""

    @staticmethod
    def _of(data: dict[str, Any]) -> RuntimeCardConfig:
        return RuntimeCardConfig(
            prompt_renderer=data["promptRenderer"],
            output_parser=data["outputParser"],
            metal_fast_synch=data["metalFastSynch"],
            mtp_heads=data["mtpHeads"],
            mtp_max_depth=data["mtpMaxDepth"],
            mtp_sidecar_repo=data["mtpSidecarRepo"],
            mtp_norm_convention=data["mtpNormConvention"],
            mtp_concat_order=data["mtpConcatOrder"],
            speculative_multi_node=data["speculativeMultiNode"],
            assistant_model_repo=data["assistantModelRepo"],
            served_spec_type=data["servedSpecType"],
            served_spec_n_max=data["servedSpecNMax"],
            served_spec_draft_repo=data["servedSpecDraftRepo"],
            served_spec_draft_file=data["servedSpecDraftFile"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "promptRenderer": self.prompt_renderer,
            "outputParser": self.output_parser,
            "metalFastSynch": self.metal_fast_synch,
            "mtpHeads": self.mtp_heads,
            "mtpMaxDepth": self.mtp_max_depth,
            "mtpSidecarRepo": self.mtp_sidecar_repo,
            "mtpNormConvention": self.mtp_norm_convention,
            "mtpConcatOrder": self.mtp_concat_order,
            "speculativeMultiNode": self.speculative_multi_node,
            "assistantModelRepo": self.assistant_model_repo,
            "servedSpecType": self.served_spec_type,
            "servedSpecNMax": self.served_spec_n_max,
            "servedSpecDraftRepo": self.served_spec_draft_repo,
            "servedSpecDraftFile": self.served_spec_draft_file,
        }


@dataclass(frozen=True, slots=True)
class PlacementCardConfig:
    """Where a model can run."""

    compatible_backends: tuple[str, ...] = ("mlx",)
    """Tags of backends that can run it: ``<engine>-<compute>``, as in ``mlx-metal``, or an engine alone."""
    min_vram_gib: float | None = None
    """Accelerator memory that a node must have, in GiB."""
    max_context_tokens: int | None = None
    """Tokens that its context is limited to, whatever it was trained for."""
    backend_preference: tuple[str, ...] = ()
    """The backends by preference, best first."""

    @staticmethod
    def _of(data: dict[str, Any]) -> PlacementCardConfig:
        return PlacementCardConfig(
            compatible_backends=tuple(data["compatibleBackends"]),
            min_vram_gib=data["minVramGib"],
            max_context_tokens=data["maxContextTokens"],
            backend_preference=tuple(data["backendPreference"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "compatibleBackends": _methods.plain(self.compatible_backends),
            "minVramGib": self.min_vram_gib,
            "maxContextTokens": self.max_context_tokens,
            "backendPreference": _methods.plain(self.backend_preference),
        }


@dataclass(frozen=True, slots=True)
class LatentFacts:
    """Keys and values that are kept as one vector a token."""

    rank: int
    """Elements of the vector; at least 1."""
    rope_size: int
    """Elements of a head that are rotated, kept beside the vector."""
    value_size: int
    """Elements of a head's values; at least 1."""
    query_rank: int | None = None
    """Elements of the vector that queries are made of, where they are made of one; at least 1."""

    @staticmethod
    def _of(data: dict[str, Any]) -> LatentFacts:
        return LatentFacts(
            rank=data["rank"],
            query_rank=data["queryRank"],
            rope_size=data["ropeSize"],
            value_size=data["valueSize"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "rank": self.rank,
            "queryRank": self.query_rank,
            "ropeSize": self.rope_size,
            "valueSize": self.value_size,
        }


@dataclass(frozen=True, slots=True)
class IndexFacts:
    """An index that chooses the positions that are attended to."""

    heads: int
    """Heads of its queries; at least 1."""
    head_size: int
    """Elements of a head, and of what is kept of a token; at least 1."""

    @staticmethod
    def _of(data: dict[str, Any]) -> IndexFacts:
        return IndexFacts(
            heads=data["heads"],
            head_size=data["headSize"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "heads": self.heads,
            "headSize": self.head_size,
        }


@dataclass(frozen=True, slots=True)
class AttentionFacts:
    """The heads of attention."""

    heads: int
    """Heads of queries; at least 1."""
    head_size: int
    """Elements of a head; with latent vectors, those that are not rotated. At least 1."""
    kv_heads: int | None = None
    """Heads of keys and values; at least 1. The card's ``num_key_value_heads`` unless it is given."""
    output_gate: bool = False
    """Queries come with a gate of their size."""
    values_from_keys: bool = False
    """Layers that attend to all positions have no projection of values: they make them of keys."""
    sharing_layers: int = 0
    """The last so many layers use keys and values of earlier ones."""
    sharing_feed_forward_size: int | None = None
    """Width of the dense feed-forward blocks of these layers, where it differs; at least 1."""
    latent: LatentFacts | None = None
    """Keys and values are kept as latent vectors."""
    index: IndexFacts | None = None
    """Positions are chosen by an index."""

    @staticmethod
    def _of(data: dict[str, Any]) -> AttentionFacts:
        return AttentionFacts(
            heads=data["heads"],
            kv_heads=data["kvHeads"],
            head_size=data["headSize"],
            output_gate=data["outputGate"],
            values_from_keys=data["valuesFromKeys"],
            sharing_layers=data["sharingLayers"],
            sharing_feed_forward_size=data["sharingFeedForwardSize"],
            latent=None if data["latent"] is None else LatentFacts._of(data["latent"]),
            index=None if data["index"] is None else IndexFacts._of(data["index"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "heads": self.heads,
            "kvHeads": self.kv_heads,
            "headSize": self.head_size,
            "outputGate": self.output_gate,
            "valuesFromKeys": self.values_from_keys,
            "sharingLayers": self.sharing_layers,
            "sharingFeedForwardSize": self.sharing_feed_forward_size,
            "latent": _methods.plain(self.latent),
            "index": _methods.plain(self.index),
        }


@dataclass(frozen=True, slots=True)
class WindowFacts:
    """Layers that attend to a window: heads are those of ``attention`` unless they are given."""

    size: int
    """Positions; at least 1."""
    heads: int | None = None
    """Heads of queries; at least 1."""
    kv_heads: int | None = None
    """Heads of keys and values; at least 1."""
    head_size: int | None = None
    """Elements of a head; at least 1."""

    @staticmethod
    def _of(data: dict[str, Any]) -> WindowFacts:
        return WindowFacts(
            size=data["size"],
            heads=data["heads"],
            kv_heads=data["kvHeads"],
            head_size=data["headSize"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "size": self.size,
            "heads": self.heads,
            "kvHeads": self.kv_heads,
            "headSize": self.head_size,
        }


@dataclass(frozen=True, slots=True)
class RecurrentFacts:
    """Layers with states: a matrix for each head of values."""

    heads: int
    """Heads of values, each with a state; at least 1."""
    head_size: int
    """Elements of a head of values; at least 1."""
    key_heads: int
    """Heads, or groups, of keys and queries; at least 1."""
    key_size: int
    """Elements of a head of keys; at least 1."""
    convolution: int
    """Positions that channels are convolved over; at least 1."""

    @staticmethod
    def _of(data: dict[str, Any]) -> RecurrentFacts:
        return RecurrentFacts(
            heads=data["heads"],
            head_size=data["headSize"],
            key_heads=data["keyHeads"],
            key_size=data["keySize"],
            convolution=data["convolution"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "heads": self.heads,
            "headSize": self.head_size,
            "keyHeads": self.key_heads,
            "keySize": self.key_size,
            "convolution": self.convolution,
        }


@dataclass(frozen=True, slots=True)
class ExpertFacts:
    """The experts of a mixture."""

    count: int
    """Routed experts of a layer; at least 1."""
    per_token: int
    """Routed experts that a token takes; at least 1."""
    size: int
    """Width of a routed expert; at least 1."""
    shared_size: int = 0
    """Width of all that every token takes beside routed experts, together."""
    dense_layers: int = 0
    """The first so many layers are dense."""
    bits: float | None = None
    """Bits of a routed expert's weight with its scales. Where unknown, as many as other weights have."""

    @staticmethod
    def _of(data: dict[str, Any]) -> ExpertFacts:
        return ExpertFacts(
            count=data["count"],
            per_token=data["perToken"],
            size=data["size"],
            shared_size=data["sharedSize"],
            dense_layers=data["denseLayers"],
            bits=data["bits"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "count": self.count,
            "perToken": self.per_token,
            "size": self.size,
            "sharedSize": self.shared_size,
            "denseLayers": self.dense_layers,
            "bits": self.bits,
        }


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What a model is made of: all that plans need to know of it before its checkpoint is there."""

    version: int = 1
    """The version of this section: 1. Of later versions only ``version`` and ``source`` are read."""
    source: str = ""
    """Where the facts are from, as the address of a configuration."""
    vocab_size: int | None = None
    """Rows of the embedding table, and of the head; at least 1."""
    tied_embeddings: bool = False
    """The head is the embedding table."""
    layers: tuple[Literal["full", "window", "recurrent", "feed_forward"], ...] = ("full",)
    """What the layers are, in their order; repeated for as many layers as there are."""
    feed_forward_size: int | None = None
    """Width of dense feed-forward blocks, in elements; at least 1."""
    feed_forward_matrices: int = 3
    """Matrices of a feed-forward block or expert: 3 with a gate, 2 without."""
    layer_input_size: int | None = None
    """Elements of what each layer gets of each token beside the residual stream; at least 1."""
    bits: float | None = None
    """Bits of a weight with its scales, of all but routed experts. Where unknown, all weights count alike."""
    feed_forward_bits: float | None = None
    """The same of dense feed-forward blocks and shared experts, where it differs."""
    other_parameters: int = 0
    """Parameters of parts beside the decoder, which see and hear; of 16 bits each."""
    attention: AttentionFacts | None = None
    """Attention."""
    window: WindowFacts | None = None
    """What is otherwise in layers that attend to a window."""
    recurrent: RecurrentFacts | None = None
    """Layers with states."""
    experts: ExpertFacts | None = None
    """Experts, in mixtures."""

    @staticmethod
    def _of(data: dict[str, Any]) -> ModelFacts:
        return ModelFacts(
            version=data["version"],
            source=data["source"],
            vocab_size=data["vocabSize"],
            tied_embeddings=data["tiedEmbeddings"],
            layers=tuple(data["layers"]),
            feed_forward_size=data["feedForwardSize"],
            feed_forward_matrices=data["feedForwardMatrices"],
            layer_input_size=data["layerInputSize"],
            bits=data["bits"],
            feed_forward_bits=data["feedForwardBits"],
            other_parameters=data["otherParameters"],
            attention=None if data["attention"] is None else AttentionFacts._of(data["attention"]),
            window=None if data["window"] is None else WindowFacts._of(data["window"]),
            recurrent=None if data["recurrent"] is None else RecurrentFacts._of(data["recurrent"]),
            experts=None if data["experts"] is None else ExpertFacts._of(data["experts"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "version": self.version,
            "source": self.source,
            "vocabSize": self.vocab_size,
            "tiedEmbeddings": self.tied_embeddings,
            "layers": _methods.plain(self.layers),
            "feedForwardSize": self.feed_forward_size,
            "feedForwardMatrices": self.feed_forward_matrices,
            "layerInputSize": self.layer_input_size,
            "bits": self.bits,
            "feedForwardBits": self.feed_forward_bits,
            "otherParameters": self.other_parameters,
            "attention": _methods.plain(self.attention),
            "window": _methods.plain(self.window),
            "recurrent": _methods.plain(self.recurrent),
            "experts": _methods.plain(self.experts),
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ModelCard(_methods.ModelCard):
    """Facts about one model, declared rather than measured. The only required ones are its identity, size, layers,
    width, tasks, and whether its tensors can be split."""

    model_id: str
    """The model's name, as in ``org/name``."""
    storage_size: StorageSize
    """Bytes of all weights."""
    n_layers: int
    """Decoder layers; at least 1."""
    hidden_size: int
    """Width of the residual stream; at least 1."""
    supports_tensor: bool
    """Its tensors can be split over nodes."""
    num_key_value_heads: int | None = None
    """Key/value heads. Where they are unknown, keys and values count for nothing in plans."""
    tasks: tuple[Literal["TextGeneration", "TextEmbedding", "TextToImage", "ImageToImage"], ...]
    """What it does."""
    components: tuple[ComponentInfo, ...] | None = None
    """Parts of a model that is made of several."""
    family: str = ""
    """Its family, as in ``qwen``."""
    quantization: str = ""
    """How its weights are stored, as in ``4bit`` or ``Q4_K_M``; for people."""
    base_model: str = ""
    """What it was made from; for people."""
    gguf_file: str | None = None
    """The GGUF file that holds it. Any name but an empty one makes it a GGUF model."""
    capabilities: tuple[str, ...] = ()
    """Free words; ``vision``, ``thinking`` and ``thinking_toggle`` mean something to profiles."""
    context_length: int = 0
    """Positions it was trained for, in tokens; 0 or less: unknown."""
    uses_cfg: bool = False
    """It runs twice for each step, for classifier-free guidance."""
    trust_remote_code: bool = True
    """Code that comes with the checkpoint may run, in software that runs such code."""
    is_custom: bool = False
    """The card is the user's. Never written to files."""
    vision: VisionCardConfig | None = None
    """How it sees."""
    reasoning: ReasoningCardConfig | None = None
    """How it reasons."""
    modalities: ModalitiesCardConfig | None = None
    """What else than text it takes."""
    tooling: ToolingCardConfig | None = None
    """How it calls tools."""
    runtime: RuntimeCardConfig | None = None
    """How it is run."""
    placement: PlacementCardConfig = PlacementCardConfig()
    """Where it can run."""
    facts: ModelFacts | None = None
    """What it is made of. Nothing of it is needed; plans are better with it."""

    @staticmethod
    def _of(data: dict[str, Any]) -> ModelCard:
        return ModelCard(
            model_id=data["modelId"],
            storage_size=StorageSize._of(data["storageSize"]),
            n_layers=data["nLayers"],
            hidden_size=data["hiddenSize"],
            supports_tensor=data["supportsTensor"],
            num_key_value_heads=data["numKeyValueHeads"],
            tasks=tuple(data["tasks"]),
            components=None if data["components"] is None else tuple(ComponentInfo._of(item) for item in data["components"]),
            family=data["family"],
            quantization=data["quantization"],
            base_model=data["baseModel"],
            gguf_file=data["ggufFile"],
            capabilities=tuple(data["capabilities"]),
            context_length=data["contextLength"],
            uses_cfg=data["usesCfg"],
            trust_remote_code=data["trustRemoteCode"],
            is_custom=data["isCustom"],
            vision=None if data["vision"] is None else VisionCardConfig._of(data["vision"]),
            reasoning=None if data["reasoning"] is None else ReasoningCardConfig._of(data["reasoning"]),
            modalities=None if data["modalities"] is None else ModalitiesCardConfig._of(data["modalities"]),
            tooling=None if data["tooling"] is None else ToolingCardConfig._of(data["tooling"]),
            runtime=None if data["runtime"] is None else RuntimeCardConfig._of(data["runtime"]),
            placement=PlacementCardConfig._of(data["placement"]),
            facts=None if data["facts"] is None else ModelFacts._of(data["facts"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "modelId": self.model_id,
            "storageSize": _methods.plain(self.storage_size),
            "nLayers": self.n_layers,
            "hiddenSize": self.hidden_size,
            "supportsTensor": self.supports_tensor,
            "numKeyValueHeads": self.num_key_value_heads,
            "tasks": _methods.plain(self.tasks),
            "components": _methods.plain(self.components),
            "family": self.family,
            "quantization": self.quantization,
            "baseModel": self.base_model,
            "ggufFile": self.gguf_file,
            "capabilities": _methods.plain(self.capabilities),
            "contextLength": self.context_length,
            "usesCfg": self.uses_cfg,
            "trustRemoteCode": self.trust_remote_code,
            "isCustom": self.is_custom,
            "vision": _methods.plain(self.vision),
            "reasoning": _methods.plain(self.reasoning),
            "modalities": _methods.plain(self.modalities),
            "tooling": _methods.plain(self.tooling),
            "runtime": _methods.plain(self.runtime),
            "placement": _methods.plain(self.placement),
            "facts": _methods.plain(self.facts),
        }


@dataclass(frozen=True, slots=True)
class Reasoning:
    """What a request says about reasoning; also what is left of it for a given model."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None
    """How much. ``none``: Not at all; ``minimal``: Hardly; ``low``: Little; ``medium``: Some; ``high``: Much;
    ``xhigh``: As much as it can."""
    enable_thinking: bool | None
    """Whether at all."""

    @staticmethod
    def _of(data: dict[str, Any]) -> Reasoning:
        return Reasoning(
            effort=data["effort"],
            enable_thinking=data["enableThinking"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "effort": self.effort,
            "enableThinking": self.enable_thinking,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile(_methods.Profile):
    """What a card resolves to: the facts that running a model is decided by. ``Default`` is a model of which nothing
    is known."""

    family: str
    """The card's family, else the id's first word."""
    supports_thinking: bool
    """It reasons before it answers."""
    supports_thinking_toggle: bool
    """Requests can turn that on and off."""
    supports_thinking_budget: bool
    """Requests can bound it."""
    default_reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"]
    """How much it reasons where a request turns reasoning on without saying. ``none``: Not at all; ``minimal``:
    Hardly; ``low``: Little; ``medium``: Some; ``high``: Much; ``xhigh``: As much as it can."""
    disabled_reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"]
    """What turning it off means. ``none``: Not at all; ``minimal``: Hardly; ``low``: Little; ``medium``: Some;
    ``high``: Much; ``xhigh``: As much as it can."""
    thinking_format: Literal["none", "token_delimited", "channel_delimited"]
    """How reasoning is marked. ``none``: Not at all; ``token_delimited``: Between two markers, as ``<think>`` and
    ``</think>``; ``channel_delimited``: On a channel of its own."""
    supports_image_input: bool
    """It sees."""
    supports_audio_input: bool
    """It hears."""
    supports_tool_calling: bool
    """It calls tools."""
    builtin_tools: tuple[Literal["web_search", "open_url", "extract_page"], ...]
    """Tools that it was trained with."""
    tool_call_format: Literal["generic", "gemma4", "gpt_oss", "dsml"]
    """How it writes calls. ``generic``: As its tokenizer's chat template says; ``gemma4``: Gemma 4's; ``gpt_oss``:
    Harmony, of gpt-oss; ``dsml``: DeepSeek V3.2's markup."""
    prompt_renderer: Literal["tokenizer", "gemma4", "dsml"]
    """What turns messages into a prompt. ``tokenizer``: The chat template of the tokenizer; ``gemma4``: Gemma 4's;
    ``dsml``: DeepSeek V3.2's."""
    output_parser: Literal["generic", "gemma4", "gpt_oss", "deepseek_v32"]
    """What takes an answer apart. ``generic``: By the thinking format and the tool-call format; ``gemma4``: Gemma
    4's; ``gpt_oss``: Harmony, of gpt-oss; ``deepseek_v32``: DeepSeek V3.2's."""
    supports_native_multimodal: bool
    """Its other inputs are part of the model itself."""

    @staticmethod
    def _of(data: dict[str, Any]) -> Profile:
        return Profile(
            family=data["family"],
            supports_thinking=data["supportsThinking"],
            supports_thinking_toggle=data["supportsThinkingToggle"],
            supports_thinking_budget=data["supportsThinkingBudget"],
            default_reasoning_effort=data["defaultReasoningEffort"],
            disabled_reasoning_effort=data["disabledReasoningEffort"],
            thinking_format=data["thinkingFormat"],
            supports_image_input=data["supportsImageInput"],
            supports_audio_input=data["supportsAudioInput"],
            supports_tool_calling=data["supportsToolCalling"],
            builtin_tools=tuple(data["builtinTools"]),
            tool_call_format=data["toolCallFormat"],
            prompt_renderer=data["promptRenderer"],
            output_parser=data["outputParser"],
            supports_native_multimodal=data["supportsNativeMultimodal"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "family": self.family,
            "supportsThinking": self.supports_thinking,
            "supportsThinkingToggle": self.supports_thinking_toggle,
            "supportsThinkingBudget": self.supports_thinking_budget,
            "defaultReasoningEffort": self.default_reasoning_effort,
            "disabledReasoningEffort": self.disabled_reasoning_effort,
            "thinkingFormat": self.thinking_format,
            "supportsImageInput": self.supports_image_input,
            "supportsAudioInput": self.supports_audio_input,
            "supportsToolCalling": self.supports_tool_calling,
            "builtinTools": _methods.plain(self.builtin_tools),
            "toolCallFormat": self.tool_call_format,
            "promptRenderer": self.prompt_renderer,
            "outputParser": self.output_parser,
            "supportsNativeMultimodal": self.supports_native_multimodal,
        }


@dataclass(slots=True)
class NodeMemory:
    """A node's main memory, in bytes."""

    ram_total: int
    """All there is."""
    ram_available: int
    """What programs can still get."""

    @staticmethod
    def _of(data: dict[str, Any]) -> NodeMemory:
        return NodeMemory(
            ram_total=data["ramTotal"],
            ram_available=data["ramAvailable"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "ramTotal": self.ram_total,
            "ramAvailable": self.ram_available,
        }


@dataclass(slots=True, kw_only=True)
class Accelerator:
    """A device of a node that computes. What is not known is ``None``, which is not 0."""

    vendor: Literal["apple", "amd", "nvidia", "intel", "cpu", "unknown"] = "unknown"
    """Who made it. ``cpu``: The CPU itself; ``unknown``: Somebody else."""
    name: str = ""
    """Its name."""
    vram_total_bytes: int | None = None
    """Its own memory, in bytes."""
    vram_used_bytes: int | None = None
    """How much of that is in use."""
    gtt_total_bytes: int | None = None
    """Main memory that it can reach, in bytes."""
    shares_memory: bool = False
    """Its memory is main memory. Plans then leave work to the processor, which reads as fast, unless Apple made it
    or ``bytes_per_second`` says otherwise."""
    backend: str | None = None
    """The backend of this library that drives it, as in ``skulk-wgpu-vulkan``."""
    bytes_per_second: float | None = None
    """Bytes a second that it reads from its memory. ``None``: what the table of devices has under its name."""
    operations_per_second: float | None = None
    """Operations a second of a prompt's products, a product and a sum being two; what else layers do takes its part
    of the second. ``None``: as above."""
    layer_seconds: float | None = None
    """Seconds that it takes for a layer whatever its size. ``None``: as above."""
    round_trip_seconds: float | None = None
    """Seconds until it has answered another device of its node. ``None``: 100 µs are assumed."""

    @staticmethod
    def _of(data: dict[str, Any]) -> Accelerator:
        return Accelerator(
            vendor=data["vendor"],
            name=data["name"],
            vram_total_bytes=data["vramTotalBytes"],
            vram_used_bytes=data["vramUsedBytes"],
            gtt_total_bytes=data["gttTotalBytes"],
            shares_memory=data["sharesMemory"],
            backend=data["backend"],
            bytes_per_second=data["bytesPerSecond"],
            operations_per_second=data["operationsPerSecond"],
            layer_seconds=data["layerSeconds"],
            round_trip_seconds=data["roundTripSeconds"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "vendor": self.vendor,
            "name": self.name,
            "vramTotalBytes": self.vram_total_bytes,
            "vramUsedBytes": self.vram_used_bytes,
            "gttTotalBytes": self.gtt_total_bytes,
            "sharesMemory": self.shares_memory,
            "backend": self.backend,
            "bytesPerSecond": self.bytes_per_second,
            "operationsPerSecond": self.operations_per_second,
            "layerSeconds": self.layer_seconds,
            "roundTripSeconds": self.round_trip_seconds,
        }


@dataclass(slots=True)
class NetworkInterface:
    """A network interface of a node."""

    name: str
    """Its name, as in ``en0``."""
    ip_address: str
    """Its address."""
    interface_type: Literal["wifi", "ethernet", "maybe_ethernet", "thunderbolt", "unknown"] = "unknown"
    """What it is. ``wifi``: Wireless; ``maybe_ethernet``: Probably Ethernet; ``unknown``: Nobody knows."""

    @staticmethod
    def _of(data: dict[str, Any]) -> NetworkInterface:
        return NetworkInterface(
            name=data["name"],
            ip_address=data["ipAddress"],
            interface_type=data["interfaceType"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "name": self.name,
            "ipAddress": self.ip_address,
            "interfaceType": self.interface_type,
        }


@dataclass(slots=True)
class Node(_methods.Node):
    """A machine. What it has not reported yet is ``None``."""

    id: str
    """Its name."""
    role: Literal["full", "management", "ffn_only"] = "full"
    """What it does. ``full``: Any part of a model; ``management``: None: it only coordinates; ``ffn_only``:
    Feed-forward blocks and experts, never attention."""
    backends: set[str] | None = None
    """Tags of the backends it has, as in ``mlx`` or ``skulk-cpu``."""
    memory: NodeMemory | None = None
    """Its main memory."""
    bytes_per_second: float | None = None
    """Bytes a second that it reads from main memory. ``None``: what the table of devices has for an accelerator by
    the maker ``cpu``, as ``EPYC 9654`` or ``DDR5-5600, 2 channels``, or for one that shares main memory."""
    operations_per_second: float | None = None
    """Operations a second of a prompt's products alone, a product and a sum being two. ``None``: as above."""
    layer_seconds: float | None = None
    """Seconds that its processor takes for a layer whatever its size. ``None``: as above."""
    disk_bytes_per_second: float | None = None
    """Bytes a second that it reads from the disk that has the model. ``None``: 3 GB/s are assumed."""
    cores: int | None = None
    """Its processor cores."""
    accelerators: list[Accelerator] = field(default_factory=list)
    """Its accelerators."""
    address: str | None = None
    """Where it serves feed-forward blocks and experts, as in ``http://192.168.7.4:8080``."""
    interfaces: list[NetworkInterface] = field(default_factory=list)
    """Its network interfaces."""
    downloads: dict[str, float] = field(default_factory=dict)
    """Which share of a model's bytes lies on its disk, by model: 0 to 1."""

    @staticmethod
    def _of(data: dict[str, Any]) -> Node:
        return Node(
            id=data["id"],
            role=data["role"],
            backends=None if data["backends"] is None else set(data["backends"]),
            memory=None if data["memory"] is None else NodeMemory._of(data["memory"]),
            bytes_per_second=data["bytesPerSecond"],
            operations_per_second=data["operationsPerSecond"],
            layer_seconds=data["layerSeconds"],
            disk_bytes_per_second=data["diskBytesPerSecond"],
            cores=data["cores"],
            accelerators=[Accelerator._of(item) for item in data["accelerators"]],
            address=data["address"],
            interfaces=[NetworkInterface._of(item) for item in data["interfaces"]],
            downloads=data["downloads"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "id": self.id,
            "role": self.role,
            "backends": _methods.plain(self.backends),
            "memory": _methods.plain(self.memory),
            "bytesPerSecond": self.bytes_per_second,
            "operationsPerSecond": self.operations_per_second,
            "layerSeconds": self.layer_seconds,
            "diskBytesPerSecond": self.disk_bytes_per_second,
            "cores": self.cores,
            "accelerators": _methods.plain(self.accelerators),
            "address": self.address,
            "interfaces": _methods.plain(self.interfaces),
            "downloads": _methods.plain(self.downloads),
        }


@dataclass(slots=True)
class LinkSpeed:
    """How fast a link is."""

    round_trip_seconds: float = 0.0005
    """Seconds for a message there and an answer back."""
    bytes_per_second: float = 117000000.0
    """Bytes a second."""

    @staticmethod
    def _of(data: dict[str, Any]) -> LinkSpeed:
        return LinkSpeed(
            round_trip_seconds=data["roundTripSeconds"],
            bytes_per_second=data["bytesPerSecond"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "roundTripSeconds": self.round_trip_seconds,
            "bytesPerSecond": self.bytes_per_second,
        }


@dataclass(slots=True)
class Socket:
    """Sockets: the address at which the sink was reached."""

    address: str
    """A host name or address, without port."""

    @staticmethod
    def _of(data: dict[str, Any]) -> Socket:
        return Socket(
            address=data["address"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "type": "socket",
            "address": self.address,
        }


@dataclass(slots=True)
class Rdma:
    """Remote direct memory access."""

    source_iface: str
    """The source's interface."""
    sink_iface: str
    """The sink's interface."""

    @staticmethod
    def _of(data: dict[str, Any]) -> Rdma:
        return Rdma(
            source_iface=data["sourceIface"],
            sink_iface=data["sinkIface"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "type": "rdma",
            "sourceIface": self.source_iface,
            "sinkIface": self.sink_iface,
        }


@dataclass(slots=True)
class Link:
    """A connection that a node has to another, in one direction."""

    source: str
    """Who connects."""
    sink: str
    """To whom."""
    kind: Socket | Rdma
    """Over what: one of these, whose fields stand among these with its ``type``."""
    speed: LinkSpeed | None = None
    """How fast, where that was measured."""

    @staticmethod
    def _of(data: dict[str, Any]) -> Link:
        return Link(
            source=data["source"],
            sink=data["sink"],
            kind=Socket._of(data) if data["type"] == "socket" else Rdma._of(data),
            speed=None if data["speed"] is None else LinkSpeed._of(data["speed"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "source": self.source,
            "sink": self.sink,
            **_methods.tagged(self.kind),
            "speed": _methods.plain(self.speed),
        }


@dataclass(slots=True)
class Cluster(_methods.Cluster):
    """The nodes of a host and how they are connected. The order of nodes never changes what is planned, but for the
    names in it."""

    nodes: list[Node]
    """The machines."""
    links: list[Link] = field(default_factory=list)
    """Connections, in one direction each."""
    mesh_speed: LinkSpeed | None = None
    """Every two nodes are connected in both directions, like this where no link says otherwise."""

    @staticmethod
    def _of(data: dict[str, Any]) -> Cluster:
        return Cluster(
            nodes=[Node._of(item) for item in data["nodes"]],
            links=[Link._of(item) for item in data["links"]],
            mesh_speed=None if data["mesh"] is None else LinkSpeed._of(data["mesh"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "nodes": _methods.plain(self.nodes),
            "links": _methods.plain(self.links),
            "mesh": _methods.plain(self.mesh_speed),
        }


@dataclass(slots=True, kw_only=True)
class LayerBytes:
    """The bytes of one layer."""

    attention: int = 0
    """Attention, norms and router: what stays with the layer's keys and values."""
    router: int = 0
    """The router's part of these."""
    ffn: int = 0
    """What every token reads of the feed-forward block: all of a dense one, a mixture's shared experts."""
    n_experts: int = 0
    """Routed experts; 0: a dense block."""
    n_used: int = 0
    """Experts that a token takes."""
    expert: int = 0
    """Bytes of one routed expert."""
    copied: bool = False
    """Loading copies the experts, which are stored in another order than they are used in: they cannot stay on disk."""
    kv_per_token: int = 0
    """Keys and values of one token, in half precision."""
    attended: int = 0
    """Elements of a row's queries, all heads', and of what they make of values: numbers that are multiplied at each
    position that the row sees. 0: it attends to none, or it is not known and taken for twice the hidden size."""
    kv_head_dim: int = 0
    """Elements of a head of keys, and of values; 0: not known, and taken for a multiple of 32."""
    latent: bool = False
    """Values are the first part of keys and kept once, as latent vectors are: in the more precise of the types of
    both."""
    window: int | None = None
    """Tokens that the cache holds at most, where attention looks through a window."""
    joined: bool = False
    """It is in one stage with the layer before: it, or a later one, uses keys and values of an earlier one."""
    state: int = 0
    """What it keeps of a sequence of whatever length: states, where it has such instead of keys and values."""

    @staticmethod
    def _of(data: dict[str, Any]) -> LayerBytes:
        return LayerBytes(
            attention=data["attention"],
            router=data["router"],
            ffn=data["ffn"],
            n_experts=data["nExperts"],
            n_used=data["nUsed"],
            expert=data["expert"],
            copied=data["copied"],
            kv_per_token=data["kvPerToken"],
            attended=data["attended"],
            kv_head_dim=data["kvHeadDim"],
            latent=data["latent"],
            window=data["window"],
            joined=data["joined"],
            state=data["state"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "attention": self.attention,
            "router": self.router,
            "ffn": self.ffn,
            "nExperts": self.n_experts,
            "nUsed": self.n_used,
            "expert": self.expert,
            "copied": self.copied,
            "kvPerToken": self.kv_per_token,
            "attended": self.attended,
            "kvHeadDim": self.kv_head_dim,
            "latent": self.latent,
            "window": self.window,
            "joined": self.joined,
            "state": self.state,
        }


@dataclass(slots=True)
class Inventory(_methods.Inventory):
    """The weight bytes of a model's parts, and what a token costs each layer's cache."""

    layers: list[LayerBytes] = field(repr=False)
    """One entry a layer."""
    embedding: int = 0
    """The embedding table, with the norm of what layers get of tokens: in the first stage, and in the last one too
    where it is the head as well."""
    embedding_everywhere: bool = False
    """All stages hold the embedding table: their layers have inputs from tokens' embeddings."""
    tied_embeddings: bool = False
    """The head is the embedding table."""
    head: int = 0
    """The last stage's: final norm, what makes one residual stream of several, and head unless that is the embedding
    table."""
    row: int = 0
    """Bytes of a row of hidden states, as stages hand it on: of all residual streams, where there are several. 0: of
    the card's hidden size."""
    step_row: int = 0
    """Bytes of a row in all buffers that a step's rows pass through, of this library's engines. 0: not known, and
    taken for sixteen rows of hidden states."""
    vocabulary: int = 0
    """Tokens of the vocabulary, of which a step computes logits and a tokenizer holds spellings; 0: not known."""
    context: int = 0
    """Tokens of context that the model was trained for; 0: not known."""
    elements: int = 0
    """Elements of the layers' weights; 0: not known, and taken from the bits of a weight that the card names."""
    exact: bool = False
    """They were counted in a checkpoint; else estimated from a card."""
    input_table: int = 0
    """The table of what layers get of tokens, of which each takes a row: it stays in the file."""
    vision: int = 0
    """What sees and hears, beside the decoder; not loaded."""
    mtp: int = 0
    """Layers that predict further tokens, behind the last one; loaded where an option asks for that."""
    mtp_layer: LayerBytes | None = None
    """The head for tokens ahead (MTP) that loading makes of these: its layer, with its norms, and what joins
    embeddings and hidden states. ``None``: there is none that this library knows."""
    shares_embedding: bool = False
    """It drafts for another model, whose embedding table it uses."""
    shares_head: bool = False
    """It drafts for another model, whose output head it uses."""
    guessed: list[str] = field(default_factory=list)
    """What was guessed, in words."""

    @staticmethod
    def _of(data: dict[str, Any]) -> Inventory:
        return Inventory(
            layers=[LayerBytes._of(item) for item in data["layers"]],
            embedding=data["embedding"],
            embedding_everywhere=data["embeddingEverywhere"],
            tied_embeddings=data["tiedEmbeddings"],
            head=data["head"],
            row=data["row"],
            step_row=data["stepRow"],
            vocabulary=data["vocabulary"],
            context=data["context"],
            elements=data["elements"],
            exact=data["exact"],
            input_table=data["inputTable"],
            vision=data["vision"],
            mtp=data["mtp"],
            mtp_layer=None if data["mtpLayer"] is None else LayerBytes._of(data["mtpLayer"]),
            shares_embedding=data["sharesEmbedding"],
            shares_head=data["sharesHead"],
            guessed=data["guessed"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "layers": _methods.plain(self.layers),
            "embedding": self.embedding,
            "embeddingEverywhere": self.embedding_everywhere,
            "tiedEmbeddings": self.tied_embeddings,
            "head": self.head,
            "row": self.row,
            "stepRow": self.step_row,
            "vocabulary": self.vocabulary,
            "context": self.context,
            "elements": self.elements,
            "exact": self.exact,
            "inputTable": self.input_table,
            "vision": self.vision,
            "mtp": self.mtp,
            "mtpLayer": _methods.plain(self.mtp_layer),
            "sharesEmbedding": self.shares_embedding,
            "sharesHead": self.shares_head,
            "guessed": _methods.plain(self.guessed),
        }


@dataclass(frozen=True, slots=True)
class Arch:
    """Facts about a model's architecture."""

    family: str
    """Family label as the checkpoint spells it, e.g. ``llama``."""
    n_layers: int
    """Number of decoder layers."""
    hidden_size: int
    """Width of the residual stream."""
    vocab_size: int
    """Rows of the embedding table."""
    context_length: int
    """Positions the model was trained for, in tokens."""

    @staticmethod
    def _of(data: dict[str, Any]) -> Arch:
        return Arch(
            family=data["family"],
            n_layers=data["nLayers"],
            hidden_size=data["hiddenSize"],
            vocab_size=data["vocabSize"],
            context_length=data["contextLength"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "family": self.family,
            "nLayers": self.n_layers,
            "hiddenSize": self.hidden_size,
            "vocabSize": self.vocab_size,
            "contextLength": self.context_length,
        }


@dataclass(frozen=True, slots=True)
class Device:
    """A device that engines run on."""

    engine: str
    """The engine that runs on it, by the name that loading takes, e.g. ``wgpu-vulkan:0``."""
    name: str
    """The device's name."""
    vendor: Literal["apple", "amd", "nvidia", "intel", "cpu", "unknown"]
    """Who made it. ``cpu``: The CPU itself; ``unknown``: Somebody else."""
    driver: str
    """Its driver and the driver's version; empty for the CPU."""
    software: bool
    """It is a GPU in name only, and computes on the CPU: no engine chooses it by itself."""
    memory_bytes: int | None
    """Its memory, where the system tells."""
    memory_used_bytes: int | None
    """How much of a GPU's own memory is in use, where the system tells."""
    shares_memory: bool
    """Its memory is the CPU's."""

    @staticmethod
    def _of(data: dict[str, Any]) -> Device:
        return Device(
            engine=data["engine"],
            name=data["name"],
            vendor=data["vendor"],
            driver=data["driver"],
            software=data["software"],
            memory_bytes=data["memoryBytes"],
            memory_used_bytes=data["memoryUsedBytes"],
            shares_memory=data["sharesMemory"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "engine": self.engine,
            "name": self.name,
            "vendor": self.vendor,
            "driver": self.driver,
            "software": self.software,
            "memoryBytes": self.memory_bytes,
            "memoryUsedBytes": self.memory_used_bytes,
            "sharesMemory": self.shares_memory,
        }


@dataclass(frozen=True, slots=True)
class Stage:
    """What one stage of a loaded model holds."""

    engine: str
    """The engine that runs it."""
    device: str
    """The engine's device in words."""
    layers: range
    """Its layers."""
    weight_bytes: int
    """Weight bytes it has mapped, read or copied. Stages that share a tied embedding table both count it, though it
    exists once."""
    kv_cache_bytes: int
    """Keys and values of one full-length session."""
    memory: Literal["auto", "mapped", "resident"]
    """Where its weights lie: in the file's map, or read into memory of their own; with a budget, those that it is
    not for."""

    @staticmethod
    def _of(data: dict[str, Any]) -> Stage:
        return Stage(
            engine=data["engine"],
            device=data["device"],
            layers=range(data["layers"]["start"], data["layers"]["end"]),
            weight_bytes=data["weightBytes"],
            kv_cache_bytes=data["kvCacheBytes"],
            memory=data["memory"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "engine": self.engine,
            "device": self.device,
            "layers": _methods.plain(self.layers),
            "weightBytes": self.weight_bytes,
            "kvCacheBytes": self.kv_cache_bytes,
            "memory": self.memory,
        }


@dataclass(frozen=True, slots=True)
class FfnMemory:
    """What is in memory of feed-forward weights that a budget bounds."""

    budget_bytes: int
    """What may be in memory."""
    in_memory_bytes: int
    """What is."""
    peak_bytes: int
    """The most that ever was."""
    let_go_bytes: int
    """What was let go, all in all."""

    @staticmethod
    def _of(data: dict[str, Any]) -> FfnMemory:
        return FfnMemory(
            budget_bytes=data["budgetBytes"],
            in_memory_bytes=data["inMemoryBytes"],
            peak_bytes=data["peakBytes"],
            let_go_bytes=data["letGoBytes"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "budgetBytes": self.budget_bytes,
            "inMemoryBytes": self.in_memory_bytes,
            "peakBytes": self.peak_bytes,
            "letGoBytes": self.let_go_bytes,
        }


@dataclass(frozen=True, slots=True)
class KvMemory:
    """What keys and values take."""

    budget_bytes: int | None
    """What they may take; ``None``: no limit was given."""
    in_use_bytes: int
    """Pages that sequences have, those that several share once."""
    kept_bytes: int
    """Pages that nobody has and that are kept for sequences that begin with the same tokens. They go first."""
    reserved_bytes: int
    """All that is reserved: these, and pages that are free to be taken."""

    @staticmethod
    def _of(data: dict[str, Any]) -> KvMemory:
        return KvMemory(
            budget_bytes=data["budgetBytes"],
            in_use_bytes=data["inUseBytes"],
            kept_bytes=data["keptBytes"],
            reserved_bytes=data["reservedBytes"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "budgetBytes": self.budget_bytes,
            "inUseBytes": self.in_use_bytes,
            "keptBytes": self.kept_bytes,
            "reservedBytes": self.reserved_bytes,
        }


@dataclass(frozen=True, slots=True)
class Divergence:
    """How far a model's predictions are from an exact one's, over a text."""

    tokens: int
    """Tokens of the text. Behind each of them the next one is predicted."""
    mean_kl: float
    """Mean of the Kullback-Leibler divergences ``Σ p ln(p / q)`` of the model's probabilities q from the exact ones
    p, in nats."""
    max_kl: float
    """The largest of them."""
    top1_agreement: float
    """Part of the predictions in which both find the same token most probable, 0 to 1; of equally probable ones the
    lower id counts."""

    @staticmethod
    def _of(data: dict[str, Any]) -> Divergence:
        return Divergence(
            tokens=data["tokens"],
            mean_kl=_number(data["meanKl"]),
            max_kl=_number(data["maxKl"]),
            top1_agreement=_number(data["top1Agreement"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "tokens": self.tokens,
            "meanKl": self.mean_kl,
            "maxKl": self.max_kl,
            "top1Agreement": self.top1_agreement,
        }


@dataclass(frozen=True, slots=True)
class SpeculationWay:
    """One way to compute tokens ahead, and its speed."""

    speculate: Literal["auto", "ngram", "draft_model", "off"]
    """What proposes tokens."""
    draft_tokens: int | None
    """How many in every step; ``None``: as many as pay."""
    tokens_per_second: float
    """Tokens a second behind the first one, over all texts; the median of three rounds."""
    gain: float
    """The same as a multiple of what ``off`` makes."""
    acceptance: float
    """Part of the proposed tokens that were right, 0 to 1; 0 where none were proposed."""
    tokens_per_step: float
    """Tokens that a step gave, on average."""

    @staticmethod
    def _of(data: dict[str, Any]) -> SpeculationWay:
        return SpeculationWay(
            speculate=data["speculate"],
            draft_tokens=data["draftTokens"],
            tokens_per_second=_number(data["tokensPerSecond"]),
            gain=_number(data["gain"]),
            acceptance=_number(data["acceptance"]),
            tokens_per_step=_number(data["tokensPerStep"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "speculate": self.speculate,
            "draftTokens": self.draft_tokens,
            "tokensPerSecond": self.tokens_per_second,
            "gain": self.gain,
            "acceptance": self.acceptance,
            "tokensPerStep": self.tokens_per_step,
        }


@dataclass(frozen=True, slots=True, repr=False)
class SpeculationReport(_methods.SpeculationReport):
    """What computing tokens ahead gains, by what proposes them and how many there are. Its text is a line for each
    way."""

    prompts: int
    """Prompts that were tried."""
    ways: list[SpeculationWay]
    """By way; the first one is ``off``."""
    best: SpeculationWay | None
    """The fastest way."""
    text: str
    """The report as text."""

    @staticmethod
    def _of(data: dict[str, Any]) -> SpeculationReport:
        return SpeculationReport(
            prompts=data["prompts"],
            ways=[SpeculationWay._of(item) for item in data["ways"]],
            best=None if data["best"] is None else SpeculationWay._of(data["best"]),
            text=data["text"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "prompts": self.prompts,
            "ways": _methods.plain(self.ways),
            "best": _methods.plain(self.best),
            "text": self.text,
        }


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token with its log-probability."""

    id: int
    """Its id."""
    logprob: float
    """Natural logarithm of its probability under the model's raw logits."""

    @staticmethod
    def _of(data: dict[str, Any]) -> TokenLogprob:
        return TokenLogprob(
            id=data["id"],
            logprob=_number(data["logprob"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "id": self.id,
            "logprob": self.logprob,
        }


@dataclass(frozen=True, slots=True)
class Token:
    """A token of the text."""

    id: int
    """Its id."""
    logprob: float | None
    """Natural logarithm of its probability under the model's raw logits, when asked for; none where nothing else
    could come."""
    top_logprobs: list[TokenLogprob]
    """The likeliest tokens at this position, most likely first, as many as asked for."""

    @staticmethod
    def _of(data: dict[str, Any]) -> Token:
        return Token(
            id=data["id"],
            logprob=data["logprob"],
            top_logprobs=[TokenLogprob._of(item) for item in data["topLogprobs"]],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "id": self.id,
            "logprob": self.logprob,
            "topLogprobs": _methods.plain(self.top_logprobs),
        }


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of a generation."""

    prompt_tokens: int
    """Tokens of the prompt."""
    cached_tokens: int
    """How many of them were still in the session's cache."""
    completion_tokens: int
    """Tokens sampled, an end-of-sequence token included."""

    @staticmethod
    def _of(data: dict[str, Any]) -> Usage:
        return Usage(
            prompt_tokens=data["promptTokens"],
            cached_tokens=data["cachedTokens"],
            completion_tokens=data["completionTokens"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "promptTokens": self.prompt_tokens,
            "cachedTokens": self.cached_tokens,
            "completionTokens": self.completion_tokens,
        }


@dataclass(frozen=True, slots=True)
class Timings:
    """Durations of a generation."""

    load: float
    """Opening the checkpoint, building the tokenizer and loading all stages."""
    time_to_first_token: float
    """From the start of the generation to its first token."""
    prefill: float
    """Computing the prompt's tokens that were not cached."""
    decode: float
    """From the first token to the last."""
    prefill_tokens_per_second: float
    """Prompt tokens computed per second."""
    decode_tokens_per_second: float
    """Tokens per second after the first; 0 when there was only one."""
    drafted_tokens: int
    """Tokens that were computed ahead."""
    accepted_tokens: int
    """Of these those that became part of the text."""
    draft_steps: int
    """Steps that computed some ahead."""
    draft_gain: float
    """The speed of its steps, as a multiple of the speed without tokens ahead, by how long steps without took
    meanwhile; 1 where that is not known."""

    @staticmethod
    def _of(data: dict[str, Any]) -> Timings:
        return Timings(
            load=_number(data["load"]),
            time_to_first_token=_number(data["timeToFirstToken"]),
            prefill=_number(data["prefill"]),
            decode=_number(data["decode"]),
            prefill_tokens_per_second=_number(data["prefillTokensPerSecond"]),
            decode_tokens_per_second=_number(data["decodeTokensPerSecond"]),
            drafted_tokens=data["draftedTokens"],
            accepted_tokens=data["acceptedTokens"],
            draft_steps=data["draftSteps"],
            draft_gain=_number(data["draftGain"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "load": self.load,
            "timeToFirstToken": self.time_to_first_token,
            "prefill": self.prefill,
            "decode": self.decode,
            "prefillTokensPerSecond": self.prefill_tokens_per_second,
            "decodeTokensPerSecond": self.decode_tokens_per_second,
            "draftedTokens": self.drafted_tokens,
            "acceptedTokens": self.accepted_tokens,
            "draftSteps": self.draft_steps,
            "draftGain": self.draft_gain,
        }


@dataclass(frozen=True, slots=True)
class Finish:
    """How a generation ended."""

    reason: Literal["eos", "stop", "length"]
    """Why it ended. ``eos``: The model produced an end-of-sequence token, or nothing may follow by the constraint;
    ``stop``: A stop string occurred; ``length``: ``max_tokens`` were generated, or the context is full."""
    usage: Usage
    """Token counts."""
    timings: Timings
    """Durations."""
    warnings: list[str]
    """What went wrong on the way that did not end it, in words: a draft model that failed."""

    @staticmethod
    def _of(data: dict[str, Any]) -> Finish:
        return Finish(
            reason=data["reason"],
            usage=Usage._of(data["usage"]),
            timings=Timings._of(data["timings"]),
            warnings=data["warnings"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "reason": self.reason,
            "usage": _methods.plain(self.usage),
            "timings": _methods.plain(self.timings),
            "warnings": _methods.plain(self.warnings),
        }


@dataclass(frozen=True, slots=True)
class Event(_methods.Event):
    """One step of a generation."""

    token: Token | None
    """The token sampled in this step; none in a last event that only ends the stream."""
    text: str
    """Text that became certain with this step; may be empty."""
    finish: Finish | None
    """Why and how the generation ended."""

    @staticmethod
    def _of(data: dict[str, Any]) -> Event:
        return Event(
            token=None if data["token"] is None else Token._of(data["token"]),
            text=data["text"],
            finish=None if data["finish"] is None else Finish._of(data["finish"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "token": _methods.plain(self.token),
            "text": self.text,
            "finish": _methods.plain(self.finish),
        }


@dataclass(frozen=True, slots=True)
class Output(_methods.Output):
    """A whole generation, collected."""

    text: str
    """The generated text."""
    ids: list[int]
    """The sampled tokens, an end-of-sequence token included."""
    finish: Finish
    """Why and how it ended."""

    @staticmethod
    def _of(data: dict[str, Any]) -> Output:
        return Output(
            text=data["text"],
            ids=data["ids"],
            finish=Finish._of(data["finish"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "text": self.text,
            "ids": _methods.plain(self.ids),
            "finish": _methods.plain(self.finish),
        }


@dataclass(frozen=True, slots=True)
class ChatUsage:
    """Token counts of an answer."""

    prompt_tokens: int
    """Tokens of the prompt."""
    cached_tokens: int
    """How many of them did not have to be computed."""
    completion_tokens: int
    """Tokens of the answer, an end-of-sequence token included."""
    reasoning_tokens: int
    """How many of them are reasoning, without the token that ends it."""

    @staticmethod
    def _of(data: dict[str, Any]) -> ChatUsage:
        return ChatUsage(
            prompt_tokens=data["promptTokens"],
            cached_tokens=data["cachedTokens"],
            completion_tokens=data["completionTokens"],
            reasoning_tokens=data["reasoningTokens"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "promptTokens": self.prompt_tokens,
            "cachedTokens": self.cached_tokens,
            "completionTokens": self.completion_tokens,
            "reasoningTokens": self.reasoning_tokens,
        }


@dataclass(frozen=True, slots=True)
class ChatFinish:
    """How an answer ended."""

    reason: Literal["stop", "length", "tool_calls", "cancelled", "deadline"]
    """Why it ended."""
    usage: ChatUsage
    """Token counts."""
    timings: Timings
    """Durations."""
    warnings: list[str]
    """What went wrong on the way that did not end it, in words: a draft model that failed."""

    @staticmethod
    def _of(data: dict[str, Any]) -> ChatFinish:
        return ChatFinish(
            reason=data["reason"],
            usage=ChatUsage._of(data["usage"]),
            timings=Timings._of(data["timings"]),
            warnings=data["warnings"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "reason": self.reason,
            "usage": _methods.plain(self.usage),
            "timings": _methods.plain(self.timings),
            "warnings": _methods.plain(self.warnings),
        }


@dataclass(frozen=True, slots=True)
class ChatCall:
    """A call of a tool that waits for its result."""

    id: str
    """What the tool's message names as ``tool_call_id``."""
    name: str
    """The function."""
    arguments: dict[str, Any]
    """Its arguments, an object. Values of other types than the tool declares are converted where that is possible."""

    @staticmethod
    def _of(data: dict[str, Any]) -> ChatCall:
        return ChatCall(
            id=data["id"],
            name=data["name"],
            arguments=data["arguments"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "id": self.id,
            "name": self.name,
            "arguments": _methods.plain(self.arguments),
        }


@dataclass(frozen=True, slots=True)
class MalformedCall:
    """What began as a tool call and is none."""

    name: str | None
    """The function, where that much is known."""
    raw: str
    """All that the model wrote of it, markup included; where text was told in front of it, from its own marker on."""
    problem: Literal["unfinished", "syntax", "no_name", "no_arguments", "invalid_json", "too_deep"]
    """What is wrong."""
    message: str
    """The same in words: what was expected, what was found."""

    @staticmethod
    def _of(data: dict[str, Any]) -> MalformedCall:
        return MalformedCall(
            name=data["name"],
            raw=data["raw"],
            problem=data["problem"],
            message=data["message"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "name": self.name,
            "raw": self.raw,
            "problem": self.problem,
            "message": self.message,
        }


@dataclass(frozen=True, slots=True)
class ReasoningEvent(_methods.ReasoningEvent):
    """More of the reasoning."""

    type: ClassVar[Literal["reasoning"]] = "reasoning"
    """Which kind it is."""
    text: str
    """What is new."""

    @staticmethod
    def _of(data: dict[str, Any]) -> ReasoningEvent:
        return ReasoningEvent(
            text=data["text"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "type": "reasoning",
            "text": self.text,
        }


@dataclass(frozen=True, slots=True)
class TextEvent(_methods.TextEvent):
    """More of the answer."""

    type: ClassVar[Literal["text"]] = "text"
    """Which kind it is."""
    text: str
    """What is new."""

    @staticmethod
    def _of(data: dict[str, Any]) -> TextEvent:
        return TextEvent(
            text=data["text"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "type": "text",
            "text": self.text,
        }


@dataclass(frozen=True, slots=True)
class CallStartedEvent:
    """A tool call whose function is known."""

    type: ClassVar[Literal["call_started"]] = "call_started"
    """Which kind it is."""
    index: int
    """Which of the answer's calls, from 0."""
    id: str
    """The call's id: what the model wrote as such before the arguments, else one of nine letters and digits that no
    other call of the conversation has."""
    name: str
    """The function."""

    @staticmethod
    def _of(data: dict[str, Any]) -> CallStartedEvent:
        return CallStartedEvent(
            index=data["index"],
            id=data["id"],
            name=data["name"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "type": "call_started",
            "index": self.index,
            "id": self.id,
            "name": self.name,
        }


@dataclass(frozen=True, slots=True)
class CallArgumentsEvent:
    """More of a call's arguments, as JSON. The pieces of a call, joined, are the JSON of an object."""

    type: ClassVar[Literal["call_arguments"]] = "call_arguments"
    """Which kind it is."""
    index: int
    """Which call."""
    text: str
    """What is new."""

    @staticmethod
    def _of(data: dict[str, Any]) -> CallArgumentsEvent:
        return CallArgumentsEvent(
            index=data["index"],
            text=data["text"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "type": "call_arguments",
            "index": self.index,
            "text": self.text,
        }


@dataclass(frozen=True, slots=True)
class CallFinishedEvent:
    """A whole call."""

    type: ClassVar[Literal["call_finished"]] = "call_finished"
    """Which kind it is."""
    index: int
    """Which call."""
    call: ChatCall
    """What is to be called."""

    @staticmethod
    def _of(data: dict[str, Any]) -> CallFinishedEvent:
        return CallFinishedEvent(
            index=data["index"],
            call=ChatCall._of(data["call"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "type": "call_finished",
            "index": self.index,
            "call": _methods.plain(self.call),
        }


@dataclass(frozen=True, slots=True)
class CallMalformedEvent:
    """Something that began as a call and is none."""

    type: ClassVar[Literal["call_malformed"]] = "call_malformed"
    """Which kind it is."""
    index: int
    """Which call. It may have been started."""
    call: MalformedCall
    """What there was instead."""

    @staticmethod
    def _of(data: dict[str, Any]) -> CallMalformedEvent:
        return CallMalformedEvent(
            index=data["index"],
            call=MalformedCall._of(data["call"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "type": "call_malformed",
            "index": self.index,
            "call": _methods.plain(self.call),
        }


@dataclass(frozen=True, slots=True)
class FinishEvent:
    """The end."""

    type: ClassVar[Literal["finish"]] = "finish"
    """Which kind it is."""
    finish: ChatFinish
    """Why and how the answer ended."""

    @staticmethod
    def _of(data: dict[str, Any]) -> FinishEvent:
        return FinishEvent(
            finish=ChatFinish._of(data["finish"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "type": "finish",
            "finish": _methods.plain(self.finish),
        }


ChatEvent = (
    ReasoningEvent
    | TextEvent
    | CallStartedEvent
    | CallArgumentsEvent
    | CallFinishedEvent
    | CallMalformedEvent
    | FinishEvent
)
"""A part of an answer, told as soon as it is certain; the last one is ``Finish``."""


@dataclass(frozen=True, slots=True)
class ChatAnswer(_methods.ChatAnswer):
    """A whole answer."""

    message: dict[str, Any]
    """The answer as a message, to be put behind the others. Where the last of them was an answer that was to be
    continued, it stands for that one, and has both."""
    text: str
    """What the model said. Texts of malformed calls are in the message alone."""
    reasoning: str
    """What it thought."""
    calls: list[ChatCall]
    """What it calls."""
    malformed: list[MalformedCall]
    """What began as a call and is none."""
    finish: ChatFinish
    """Why and how it ended."""

    @staticmethod
    def _of(data: dict[str, Any]) -> ChatAnswer:
        return ChatAnswer(
            message=data["message"],
            text=data["text"],
            reasoning=data["reasoning"],
            calls=[ChatCall._of(item) for item in data["calls"]],
            malformed=[MalformedCall._of(item) for item in data["malformed"]],
            finish=ChatFinish._of(data["finish"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "message": _methods.plain(self.message),
            "text": self.text,
            "reasoning": self.reasoning,
            "calls": _methods.plain(self.calls),
            "malformed": _methods.plain(self.malformed),
            "finish": _methods.plain(self.finish),
        }


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A prompt as the model gets it."""

    text: str
    """Its text. Of special tokens in it, it does not say which are tokens."""
    tokens: list[int]
    """Its tokens."""

    @staticmethod
    def _of(data: dict[str, Any]) -> ChatPrompt:
        return ChatPrompt(
            text=data["text"],
            tokens=data["tokens"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "text": self.text,
            "tokens": _methods.plain(self.tokens),
        }


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What became of a call."""

    id: str
    """The call."""
    name: str
    """The function."""
    content: str
    """What the model is told."""
    failed: bool
    """The function failed, or there is none of that name."""

    @staticmethod
    def _of(data: dict[str, Any]) -> ToolResult:
        return ToolResult(
            id=data["id"],
            name=data["name"],
            content=data["content"],
            failed=data["failed"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "id": self.id,
            "name": self.name,
            "content": self.content,
            "failed": self.failed,
        }


@dataclass(frozen=True, slots=True)
class CardFault:
    """Something wrong with a card or placement."""

    field: str
    """The field, with its sections, as the document spells it: ``runtime.mtp_heads``, ``components.0.canShard``. A
    missing field is spelled as in TOML; long names are cut."""
    kind: Literal["unknown", "missing", "type", "range", "value", "conflict"]
    """What is wrong."""
    found: str
    """What was found; empty for a missing field."""
    allowed: str
    """What is allowed."""

    @staticmethod
    def _of(data: dict[str, Any]) -> CardFault:
        return CardFault(
            field=data["field"],
            kind=data["kind"],
            found=data["found"],
            allowed=data["allowed"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "field": self.field,
            "kind": self.kind,
            "found": self.found,
            "allowed": self.allowed,
        }


@dataclass(frozen=True, slots=True)
class CfgPart:
    """Which part of classifier-free guidance a stage has: the layers of one of its two halves."""

    cfg_rank: int
    """The half."""
    cfg_world_size: int
    """Halves."""
    pipeline_rank: int
    """The stage within the half."""
    pipeline_world_size: int
    """Stages of the half."""

    @staticmethod
    def _of(data: dict[str, Any]) -> CfgPart:
        return CfgPart(
            cfg_rank=data["cfgRank"],
            cfg_world_size=data["cfgWorldSize"],
            pipeline_rank=data["pipelineRank"],
            pipeline_world_size=data["pipelineWorldSize"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "cfgRank": self.cfg_rank,
            "cfgWorldSize": self.cfg_world_size,
            "pipelineRank": self.pipeline_rank,
            "pipelineWorldSize": self.pipeline_world_size,
        }


@dataclass(frozen=True, slots=True)
class PlacedStage:
    """A part of a model on one node: a contiguous range of layers."""

    node: str
    """The node that runs it."""
    backend: str | None
    """The backend that runs it there, as in ``skulk-cpu``; ``None``: the node chooses."""
    engine: str | None
    """This library's engine of that backend, as in ``cpu``; ``None`` for other software's."""
    layers: range
    """Its layers, by index within the model."""
    part: Literal["whole", "tensor", "cfg"]
    """What of these layers: all, of each tensor a share, or all for one half of guidance. ``whole``: All of them;
    ``tensor``: Of each tensor its share; ``cfg``: All of them, for one half of guidance."""
    cfg: CfgPart | None
    """Which part of guidance, where it is one."""

    @staticmethod
    def _of(data: dict[str, Any]) -> PlacedStage:
        return PlacedStage(
            node=data["node"],
            backend=data["backend"],
            engine=data["engine"],
            layers=range(data["layers"]["start"], data["layers"]["end"]),
            part=data["part"],
            cfg=None if data["cfg"] is None else CfgPart._of(data["cfg"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "node": self.node,
            "backend": self.backend,
            "engine": self.engine,
            "layers": _methods.plain(self.layers),
            "part": self.part,
            "cfg": _methods.plain(self.cfg),
        }


@dataclass(frozen=True, slots=True)
class ExpertShard:
    """Experts of a range of layers on one node, away from the layers' attention. A dense block is expert 0."""

    node: str
    """The node that computes them."""
    backend: str | None
    """The backend that computes them there."""
    engine: str | None
    """This library's engine of that backend; ``None`` for other software's."""
    layers: range
    """The layers."""
    experts: range
    """The same experts of each of these layers."""
    n_experts: int
    """Experts that each of these layers has in all."""
    replica: bool
    """Another node owns them; this one helps."""

    @staticmethod
    def _of(data: dict[str, Any]) -> ExpertShard:
        return ExpertShard(
            node=data["node"],
            backend=data["backend"],
            engine=data["engine"],
            layers=range(data["layers"]["start"], data["layers"]["end"]),
            experts=range(data["experts"]["start"], data["experts"]["end"]),
            n_experts=data["nExperts"],
            replica=data["replica"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "node": self.node,
            "backend": self.backend,
            "engine": self.engine,
            "layers": _methods.plain(self.layers),
            "experts": _methods.plain(self.experts),
            "nExperts": self.n_experts,
            "replica": self.replica,
        }


@dataclass(frozen=True, slots=True)
class Bytes:
    """Where the bytes of a node or device go."""

    attention: int
    """Weights of attention, norms, embedding and head."""
    feed_forward: int
    """Weights of feed-forward blocks and experts."""
    kv_cache: int
    """Keys and values."""
    activations: int
    """Rows between layers, and what computing them takes."""
    headroom: int
    """Kept free on top, as the strictness asks."""

    @staticmethod
    def _of(data: dict[str, Any]) -> Bytes:
        return Bytes(
            attention=data["attention"],
            feed_forward=data["feedForward"],
            kv_cache=data["kvCache"],
            activations=data["activations"],
            headroom=data["headroom"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "attention": self.attention,
            "feedForward": self.feed_forward,
            "kvCache": self.kv_cache,
            "activations": self.activations,
            "headroom": self.headroom,
        }


@dataclass(frozen=True, slots=True)
class Drafter:
    """What a plan counts that drafts tokens ahead, on the device of the last stage."""

    mtp: bool
    """It is the head for tokens ahead (MTP) of the model's own checkpoint; else what ``draft_model`` of loading
    names."""
    bytes: Bytes
    """Bytes by kind."""

    @staticmethod
    def _of(data: dict[str, Any]) -> Drafter:
        return Drafter(
            mtp=data["mtp"],
            bytes=Bytes._of(data["bytes"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "mtp": self.mtp,
            "bytes": _methods.plain(self.bytes),
        }


@dataclass(frozen=True, slots=True)
class Budget:
    """What a device of a placement is to hold, and what it may hold."""

    node: str
    """The node."""
    backend: str | None
    """The backend that runs on the device."""
    bytes: Bytes
    """Bytes by kind."""
    usable: int
    """Bytes that it may hold; of plans under ``Strictness::Force`` no fewer than it is to hold."""
    drafter: Drafter | None
    """What drafts there, whose bytes are among these."""

    @staticmethod
    def _of(data: dict[str, Any]) -> Budget:
        return Budget(
            node=data["node"],
            backend=data["backend"],
            bytes=Bytes._of(data["bytes"]),
            usable=data["usable"],
            drafter=None if data["drafter"] is None else Drafter._of(data["drafter"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "node": self.node,
            "backend": self.backend,
            "bytes": _methods.plain(self.bytes),
            "usable": self.usable,
            "drafter": _methods.plain(self.drafter),
        }


@dataclass(frozen=True, slots=True)
class ModelMemory:
    """What a loaded model holds of memory, beside what its plan said."""

    weight_bytes: int
    """Weights that its stages, and what drafts, have mapped, read or copied. Of those that stay on disk, what a
    budget lets be in memory is told apart."""
    kv_cache_bytes: int
    """What is reserved for keys and values, in use or not, those of what drafts among them."""
    device_bytes: dict[str, int]
    """By engine all that is reserved on a device that weights are copied to: weights, keys and values, and buffers."""
    draft_model: Stage | None
    """What drafts, which is part of the above; its keys and values are those of one session."""
    planned: Bytes | None
    """What the plan counted for the devices of this machine; ``None``: the placement was not planned."""
    process_bytes: int | None
    """What the system has in memory for this process, whatever for. Of mapped weights that are pages that were read,
    and are still there. ``None``: the system does not tell."""

    @staticmethod
    def _of(data: dict[str, Any]) -> ModelMemory:
        return ModelMemory(
            weight_bytes=data["weightBytes"],
            kv_cache_bytes=data["kvCacheBytes"],
            device_bytes=data["deviceBytes"],
            draft_model=None if data["draftModel"] is None else Stage._of(data["draftModel"]),
            planned=None if data["planned"] is None else Bytes._of(data["planned"]),
            process_bytes=data["processBytes"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "weightBytes": self.weight_bytes,
            "kvCacheBytes": self.kv_cache_bytes,
            "deviceBytes": _methods.plain(self.device_bytes),
            "draftModel": _methods.plain(self.draft_model),
            "planned": _methods.plain(self.planned),
            "processBytes": self.process_bytes,
        }


@dataclass(frozen=True, slots=True)
class Estimate:
    """How fast a placement should be: a token of each session."""

    tokens_per_second: float
    """Tokens a second, of all sessions together."""
    attention_seconds: float
    """Seconds a token for reading weights, keys and values where attention is."""
    feed_forward_seconds: float
    """Seconds a token for reading feed-forward blocks and experts."""
    hop_seconds: float
    """Seconds a token between stages."""
    fan_out_seconds: float
    """Seconds a token between stages and the owners of their feed-forward blocks and experts."""
    draft_seconds: float
    """Seconds that a draft takes beside that of each session, where something drafts that the request counts; else
    0."""

    @staticmethod
    def _of(data: dict[str, Any]) -> Estimate:
        return Estimate(
            tokens_per_second=_number(data["tokensPerSecond"]),
            attention_seconds=_number(data["attentionSeconds"]),
            feed_forward_seconds=_number(data["feedForwardSeconds"]),
            hop_seconds=_number(data["hopSeconds"]),
            fan_out_seconds=_number(data["fanOutSeconds"]),
            draft_seconds=_number(data["draftSeconds"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "tokensPerSecond": self.tokens_per_second,
            "attentionSeconds": self.attention_seconds,
            "feedForwardSeconds": self.feed_forward_seconds,
            "hopSeconds": self.hop_seconds,
            "fanOutSeconds": self.fan_out_seconds,
            "draftSeconds": self.draft_seconds,
        }


@dataclass(frozen=True, slots=True)
class PromptEstimate:
    """How long a prompt should take."""

    tokens: int
    """Its tokens."""
    seconds: float
    """Seconds until the first token of the answer is known."""
    link_seconds: float
    """Seconds of these between stages, and between them and the owners of their feed-forward blocks and experts."""

    @staticmethod
    def _of(data: dict[str, Any]) -> PromptEstimate:
        return PromptEstimate(
            tokens=data["tokens"],
            seconds=_number(data["seconds"]),
            link_seconds=_number(data["linkSeconds"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "tokens": self.tokens,
            "seconds": self.seconds,
            "linkSeconds": self.link_seconds,
        }


@dataclass(frozen=True, slots=True)
class Price:
    """What a placement costs."""

    estimate: Estimate
    """A token of each session, in the middle of the context."""
    prompt: PromptEstimate
    """The prompt."""

    @staticmethod
    def _of(data: dict[str, Any]) -> Price:
        return Price(
            estimate=Estimate._of(data["estimate"]),
            prompt=PromptEstimate._of(data["prompt"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "estimate": _methods.plain(self.estimate),
            "prompt": _methods.plain(self.prompt),
        }


@dataclass(frozen=True, slots=True)
class Usable:
    """Memory of a node that a model may use."""

    bytes: int
    """So many bytes."""
    vram: bool
    """Of a graphics card; else of main memory."""

    @staticmethod
    def _of(data: dict[str, Any]) -> Usable:
        return Usable(
            bytes=data["bytes"],
            vram=data["vram"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "bytes": self.bytes,
            "vram": self.vram,
        }


@dataclass(frozen=True, slots=True)
class GgufFacts:
    """What the first key-values of a GGUF file say that a card needs."""

    architecture: str
    """The family as the file spells it."""
    n_layers: int
    """Decoder layers; at least 1."""
    hidden_size: int
    """Width of the residual stream; at least 1."""
    num_key_value_heads: int | None
    """Key/value heads; ``None`` where the file gives none, or one for each layer."""
    context_length: int
    """Positions it was trained for, in tokens; 0: unknown."""

    @staticmethod
    def _of(data: dict[str, Any]) -> GgufFacts:
        return GgufFacts(
            architecture=data["architecture"],
            n_layers=data["nLayers"],
            hidden_size=data["hiddenSize"],
            num_key_value_heads=data["numKeyValueHeads"],
            context_length=data["contextLength"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "architecture": self.architecture,
            "nLayers": self.n_layers,
            "hiddenSize": self.hidden_size,
            "numKeyValueHeads": self.num_key_value_heads,
            "contextLength": self.context_length,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFacts:
    """What a Hugging Face configuration says that a card needs."""

    n_layers: int
    """Decoder layers, as the configuration says; a card needs at least 1."""
    hidden_size: int | None
    """Width of the residual stream."""
    num_key_value_heads: int | None
    """Key/value heads; at least 1."""
    max_position_embeddings: int | None
    """Positions it was trained for, in tokens."""
    supports_tensor: bool
    """Skulk 1.3 can split the model's tensors over nodes."""
    architectures: tuple[str, ...]
    """Classes that implement the model."""
    model_type: str
    """What it is called: ``model_type``."""
    vision: VisionCardConfig | None
    """How it sees, where the configuration has both a vision tower and an image token."""

    @staticmethod
    def _of(data: dict[str, Any]) -> ConfigFacts:
        return ConfigFacts(
            n_layers=data["nLayers"],
            hidden_size=data["hiddenSize"],
            num_key_value_heads=data["numKeyValueHeads"],
            max_position_embeddings=data["maxPositionEmbeddings"],
            supports_tensor=data["supportsTensor"],
            architectures=tuple(data["architectures"]),
            model_type=data["modelType"],
            vision=None if data["vision"] is None else VisionCardConfig._of(data["vision"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON has it, in camelCase."""
        return {
            "nLayers": self.n_layers,
            "hiddenSize": self.hidden_size,
            "numKeyValueHeads": self.num_key_value_heads,
            "maxPositionEmbeddings": self.max_position_embeddings,
            "supportsTensor": self.supports_tensor,
            "architectures": _methods.plain(self.architectures),
            "modelType": self.model_type,
            "vision": _methods.plain(self.vision),
        }
