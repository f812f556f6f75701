"""Which rules are behind cards and plans? The functions that decide, one by one, for hosts that ask for themselves.

Bytes and formulas are those of Skulk 1.3; see the guide's page on planning. Arguments that cannot be raise
`InvalidArgumentError`, cards that cannot be `CardInvalidError`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from ._contract import Cluster, ConfigFacts, GgufFacts, ModelCard, Node, Usable
from ._methods import call, maybe
from ._skulk import gguf_facts

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .options import RingsOptions

__all__ = [
    "CONTEXT_TOKENS",
    "DEFAULT_MAX_TOKENS",
    "HEAD_DIM",
    "KV_VALUE_BYTES",
    "OVERHEAD",
    "OVERHEAD_FLOOR",
    "OVERHEAD_GGUF",
    "RAM_SHARE",
    "RAM_SHARE_RELAXED",
    "UNIFIED_HEADROOM",
    "VRAM_SHARE",
    "ConfigFacts",
    "GgufFacts",
    "GgufFile",
    "Usable",
    "accelerator_memory",
    "admit_max_tokens",
    "allocate_layers",
    "config_facts",
    "divide",
    "engine_of",
    "footprint_exceeds",
    "gguf_facts",
    "has_gpu_offload",
    "is_engine",
    "is_multi_node",
    "is_vpn_address",
    "kv_bytes",
    "kv_bytes_per_token",
    "leaves",
    "prefill_chunks",
    "resolve_backend",
    "rings",
    "scale",
    "select_gguf",
    "serves",
    "shard_footprint",
    "usable_memory",
    "usable_vram",
]

_constants: dict[str, Any] = call("constants", dict)

OVERHEAD: Final[float] = _constants["OVERHEAD"]
"""Bytes taken for each byte of weights."""
OVERHEAD_GGUF: Final[float] = _constants["OVERHEAD_GGUF"]
"""The same for GGUF models, whose runtime is leaner."""
OVERHEAD_FLOOR: Final[int] = _constants["OVERHEAD_FLOOR"]
"""Bytes that each part of a model takes whatever its size."""
RAM_SHARE: Final[float] = _constants["RAM_SHARE"]
"""The share of main memory that a model may use."""
RAM_SHARE_RELAXED: Final[float] = _constants["RAM_SHARE_RELAXED"]
"""The share under strictness "relaxed"."""
VRAM_SHARE: Final[float] = _constants["VRAM_SHARE"]
"""The share of a graphics card's memory that a model may use."""
UNIFIED_HEADROOM: Final[int] = _constants["UNIFIED_HEADROOM"]
"""Bytes of main memory that stay with the system where a graphics processor uses main memory, too."""
CONTEXT_TOKENS: Final[int] = _constants["CONTEXT_TOKENS"]
"""Tokens for which keys and values are reserved unless a request says otherwise."""
HEAD_DIM: Final[int] = _constants["HEAD_DIM"]
"""Values of a key or value head; cards do not say."""
KV_VALUE_BYTES: Final[int] = _constants["KV_VALUE_BYTES"]
"""Bytes of each of these values."""
DEFAULT_MAX_TOKENS: Final[int] = _constants["DEFAULT_MAX_TOKENS"]
"""Tokens that an answer may have where a request does not say."""

_CHUNKS = 1024
"""Chunks that are asked for at a time: there may be as many as tokens."""


def engine_of(tag: str) -> str | None:
    """The engine that a backend's tag names; None: one that nobody knows."""
    return call("engineOf", maybe(str), tag=tag)


def is_engine(name: str) -> bool:
    """Whether the library makes an engine of this name, where a build and a machine have what it takes."""
    return call("isEngine", bool, name=name)


def is_multi_node(engine: str) -> bool:
    """Whether an engine can run one model over several nodes."""
    return call("isMultiNode", bool, engine=engine)


def serves(node_tag: str, card_tag: str) -> bool:
    """Whether a backend that a node has is one that a card lists."""
    return call("serves", bool, nodeTag=node_tag, cardTag=card_tag)


def resolve_backend(compatible: Iterable[str], preference: Iterable[str], node_tags: Iterable[str]) -> str | None:
    """The backend of a node that runs a model: of those that serve one of the card's `compatible`, the
    first by `preference`; without any preferred, the first by name. None: the node cannot run it.
    """
    return call("resolveBackend", maybe(str), compatible=compatible, preference=preference, nodeTags=node_tags)


def has_gpu_offload(tags: Iterable[str]) -> bool:
    """Whether one of these backends keeps weights in the memory of a graphics card."""
    return call("hasGpuOffload", bool, tags=tags)


def is_vpn_address(address: str) -> bool:
    """Whether an address belongs to Tailscale. What is no address does not."""
    return call("isVpnAddress", bool, address=address)


def scale(bytes: int, factor: float) -> int:
    """`bytes` times `factor`, a half rounded to the even neighbour."""
    return call("scale", int, bytes=bytes, factor=factor)


def divide(bytes: int, divisor: float) -> int:
    """`bytes` by `divisor`, a half rounded to the even neighbour."""
    return call("divide", int, bytes=bytes, divisor=divisor)


def kv_bytes_per_token(card: ModelCard) -> int:
    """Bytes of keys and values of one token, all layers. 0: the card does not say how many heads there are."""
    return call("kvBytesPerToken", int, card=card)


def kv_bytes(card: ModelCard, tokens: int) -> int:
    """Bytes of keys and values of `tokens` tokens, all layers."""
    return call("kvBytes", int, card=card, tokens=tokens)


def shard_footprint(
    card: ModelCard,
    fraction: float = 1.0,
    tokens: int = CONTEXT_TOKENS,
    strictness: Literal["safe", "relaxed", "force"] = "safe",
) -> int:
    """Bytes that a `fraction` of a model takes, with keys and values of `tokens` tokens."""
    return call("shardFootprint", int, card=card, fraction=fraction, tokens=tokens, strictness=strictness)


def footprint_exceeds(footprint: int, usable: int, tolerance: float = 0.1) -> bool:
    """Whether a footprint is larger than what may be used, by more than a `tolerance` relative to that."""
    return call("footprintExceeds", bool, footprint=footprint, usable=usable, tolerance=tolerance)


def usable_memory(node: Node, strictness: Literal["safe", "relaxed", "force"] = "safe") -> Usable | None:
    """The memory of a node that one backend may use. None: the node has not reported its main memory."""
    return call("usableMemory", maybe(Usable._of), node=node, strictness=strictness)


def usable_vram(node: Node) -> int | None:
    """Memory of graphics cards by AMD and NVIDIA that a model may use, of a node with a backend that uses it.
    None: there is none.
    """
    return call("usableVram", maybe(int), node=node)


def accelerator_memory(node: Node) -> int | None:
    """All memory of a node's accelerators, in use or not. None: nothing is known."""
    return call("acceleratorMemory", maybe(int), node=node)


def allocate_layers(total: int, fractions: Sequence[float]) -> list[int]:
    """Shares `total` layers out by `fractions`, which add up to 1.

    Raises `PlanNoFitError` for fewer layers than fractions, `InvalidArgumentError` for fractions that are none.
    """
    return call("allocateLayers", list, total=total, fractions=fractions)


def admit_max_tokens(
    prompt: int, requested: int | None = None, default: int = DEFAULT_MAX_TOKENS, limit: int | None = None
) -> int:
    """Tokens that an answer may have: what was `requested`, which must fit behind the prompt; else `default`, or less
    where the context ends sooner. `limit` is the context's, prompt included; None: there is none.

    Raises `ContextOverflowError` when the prompt leaves no room, or less than was requested.
    """
    return call("admitMaxTokens", int, prompt=prompt, requested=requested, byDefault=default, limit=limit)


def prefill_chunks(
    tokens: int, max: int, media: Iterable[range | tuple[int, int]] = (), offset: int = 0
) -> Iterator[int]:
    """The pieces in which a prompt of `tokens` tokens is computed: of `max` each, but never ending inside a medium. The
    last token is left to the step that generates the first new one. `max` of 0: one piece.

    `media` are ranges of positions in the whole conversation, of which `offset` are already computed.
    """
    spans = [{"start": start, "end": end} for start, end in (_span(one) for one in media)]

    def some(done: int) -> list[int]:
        given = {"tokens": tokens - done, "max": max, "media": spans, "offset": offset + done}
        return call("prefillChunks", list, limit=_CHUNKS, **given)

    def rest(chunks: list[int]) -> Iterator[int]:
        done = 0
        while chunks:
            yield from chunks
            done += sum(chunks)
            chunks = some(done) if len(chunks) == _CHUNKS else []

    # What is wrong is told here, not where the first is taken.
    return rest(some(0))


def _span(one: range | tuple[int, int]) -> tuple[int, int]:
    return (one.start, one.stop) if isinstance(one, range) else one


def rings(card: ModelCard, cluster: Cluster, **options: Unpack[RingsOptions]) -> list[list[str]]:
    """The rings that a plan for MLX's transports considers unless it is given some: nodes by rank, narrow ones first.

    `options` are those of `skulk.options.RingsOptions`.
    """
    return call("rings", list, card=card, cluster=cluster, options=options)


def leaves(cluster: Cluster) -> list[str]:
    """Nodes that connect to one other at most."""
    return call("leaves", list, cluster=cluster)


@dataclass(frozen=True)
class GgufFile:
    """One GGUF file of a folder or repository: its name, with folders before it, and its size in bytes."""

    name: str
    """Its path in the repository, with ``/`` between folders."""
    bytes: int = 0
    """Its size in bytes."""
    _facts: dict[str, Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_facts", call("ggufFile", dict, name=self.name, bytes=self.bytes))

    @property
    def holds_a_model(self) -> bool:
        """It is called a GGUF file, and not a multi-modal projector's."""
        return bool(self._facts["holdsAModel"])

    @property
    def holds_a_projector(self) -> bool:
        """It is called the GGUF file of a multi-modal projector."""
        return bool(self._facts["holdsAProjector"])

    @property
    def quant_rank(self) -> int:
        """How much its quantisation is wanted: the lower, the more."""
        return int(self._facts["quantRank"])

    @property
    def quant_label(self) -> str:
        """Its quantisation as people write it, as in ``Q4_K_M``; empty where the name does not tell."""
        return str(self._facts["quantLabel"])

    @property
    def shard_base(self) -> str | None:
        """What all files of its split set share; None for a file of its own."""
        return maybe(str)(self._facts["shardBase"])

    @property
    def download_patterns(self) -> list[str]:
        """What to download for it: the file or its set, and projectors."""
        return list(self._facts["downloadPatterns"])


def select_gguf(files: Sequence[GgufFile]) -> tuple[GgufFile, int] | None:
    """Chooses a file by quantisation, then by name; the file, and the bytes of it or of all files of its set. None when
    there are no files.
    """
    given = [{name: getattr(file, name, None) for name in ("name", "bytes")} for file in files]
    chosen = call("selectGguf", maybe(dict), files=given)
    if chosen is None:
        return None
    return GgufFile(chosen["file"]["name"], chosen["file"]["bytes"]), chosen["bytes"]


def config_facts(config: Mapping[str, Any], model_id: str) -> ConfigFacts:
    """Reads a parsed `config.json` of a model, whose own repository holds its vision weights.

    Raises `ConfigInvalidError` with the field: no number of layers, or a value of another type or range.
    """
    return call("configFacts", ConfigFacts._of, config=config, modelId=model_id)
