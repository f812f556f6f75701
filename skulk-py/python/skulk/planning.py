"""Which rules are behind cards and plans? The functions that decide, one by one, for hosts that ask for themselves.

Bytes and formulas are those of Skulk 1.3; see the guide's page on planning.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import _skulk, _wire
from ._cards import VisionCardConfig
from ._data import GgufFacts, Usable
from ._skulk import (
    CONTEXT_TOKENS,
    DEFAULT_MAX_TOKENS,
    HEAD_DIM,
    KV_VALUE_BYTES,
    OVERHEAD,
    OVERHEAD_FLOOR,
    OVERHEAD_GGUF,
    RAM_SHARE,
    RAM_SHARE_RELAXED,
    UNIFIED_HEADROOM,
    VRAM_SHARE,
    GgufFile,
    accelerator_memory,
    admit_max_tokens,
    allocate_layers,
    divide,
    engine_of,
    footprint_exceeds,
    gguf_facts,
    has_gpu_offload,
    is_multi_node,
    is_vpn_address,
    kv_bytes,
    kv_bytes_per_token,
    leaves,
    prefill_chunks,
    resolve_backend,
    rings,
    scale,
    select_gguf,
    serves,
    shard_footprint,
    usable_memory,
    usable_vram,
)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFacts:
    """What a Hugging Face configuration says that a card needs."""

    n_layers: int
    """Decoder layers, as the configuration says; a card needs at least 1."""
    hidden_size: int | None
    """Width of the residual stream."""
    num_key_value_heads: int | None
    """Key/value heads."""
    max_position_embeddings: int | None
    """Positions it was trained for, in tokens."""
    supports_tensor: bool
    """Skulk 1.3 can split the model's tensors over nodes."""
    architectures: tuple[str, ...]
    """Classes that implement the model."""
    model_type: str
    """What it is called."""
    vision: VisionCardConfig | None
    """How it sees, where the configuration has both a vision tower and an image token."""


def config_facts(config: Mapping[str, Any], model_id: str) -> ConfigFacts:
    """Reads a parsed `config.json` of a model, whose own repository holds its vision weights.

    Raises `ConfigInvalidError` with the field: no number of layers, or a value of another type or range.
    """
    return _wire.loads(ConfigFacts, _skulk.config_facts(json.dumps(config), model_id), str)
