"""What does the library report? Plain data, made by the native module, field by field in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


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


@dataclass(frozen=True, slots=True)
class Device:
    """A device that engines run on."""

    engine: str
    """The engine that runs on it: what `Model.load` takes, e.g. ``wgpu-vulkan:0``."""
    name: str
    """The device's name."""
    vendor: Literal["apple", "amd", "nvidia", "intel", "cpu", "unknown"]
    """Who made it; ``cpu`` for the CPU itself."""
    driver: str
    """Its driver and the driver's version; empty for the CPU."""
    software: bool
    """It is a GPU in name only, and computes on the CPU: no engine chooses it by itself."""
    memory_bytes: int | None
    """Its memory in bytes, where the system tells."""
    memory_used_bytes: int | None
    """How much of a GPU's own memory is in use, where the system tells."""
    shares_memory: bool
    """Its memory is the CPU's."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What one stage of a loaded model holds."""

    engine: str
    """The engine that runs it, e.g. ``cpu``."""
    device: str
    """The engine's device in words."""
    layers: range
    """Its layers, by index within the model."""
    weight_bytes: int
    """Weight bytes it has mapped, read or copied. Stages that share a tied embedding table both count it,
    though its pages exist once."""
    kv_cache_bytes: int
    """Keys and values of one full-length session, in bytes."""
    memory: Literal["mapped", "resident"]
    """Where its weights lie: in the file's map, or read into memory of their own."""


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


@dataclass(frozen=True, slots=True)
class Divergence:
    """How far a model's predictions are from an exact one's, over a text."""

    tokens: int
    """Tokens of the text. Behind each of them the next one is predicted."""
    mean_kl: float
    """Mean of the Kullback-Leibler divergences of the model's probabilities from the exact ones, in nats."""
    max_kl: float
    """The largest of them."""
    top1_agreement: float
    """Part of the predictions in which both find the same token most probable, 0 to 1."""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token with its log-probability."""

    id: int
    """Its id."""
    logprob: float
    """Natural logarithm of its probability under the model's raw logits."""


@dataclass(frozen=True, slots=True)
class Token:
    """A sampled token."""

    id: int
    """Its id."""
    logprob: float | None
    """Natural logarithm of its probability under the model's raw logits, when asked for."""
    top_logprobs: list[TokenLogprob]
    """The likeliest tokens at this position, most likely first, as many as asked for."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of a generation."""

    prompt_tokens: int
    """Tokens of the prompt."""
    cached_tokens: int
    """How many of them were still in the session's cache."""
    completion_tokens: int
    """Tokens sampled, an end-of-sequence token included."""


@dataclass(frozen=True, slots=True)
class Timings:
    """Durations of a generation, in seconds."""

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


@dataclass(frozen=True, slots=True)
class Finish:
    """How a generation ended."""

    reason: Literal["eos", "stop", "length"]
    """An end-of-sequence token, a stop text, or ``max_tokens`` or a full context."""
    usage: Usage
    """Token counts."""
    timings: Timings
    """Durations."""


@dataclass(frozen=True, slots=True)
class Event:
    """One step of a generation. The text of all events, joined, is the generated text."""

    token: Token | None
    """The token sampled in this step; none in a last event that only ends the stream."""
    text: str
    """Text that became certain with this step; may be empty."""
    finish: Finish | None
    """Why and how the generation ended; only the last event has it."""

    def __str__(self) -> str:
        """The text, so that ``print(event, end="")`` prints the stream."""
        return self.text


@dataclass(frozen=True, slots=True)
class Output:
    """A whole generation, collected."""

    text: str
    """The generated text."""
    ids: list[int]
    """The sampled tokens, an end-of-sequence token included."""
    finish: Finish
    """Why and how it ended."""

    def __str__(self) -> str:
        """The text."""
        return self.text


@dataclass(frozen=True, slots=True)
class CardFault:
    """Something wrong with a card."""

    field: str
    """The field with its sections, as in ``runtime.mtp_heads``, in the card's own spelling."""
    kind: Literal["unknown", "missing", "type", "range", "value", "conflict"]
    """What is wrong."""
    found: str
    """What was found; empty for a missing field."""
    allowed: str
    """What is allowed."""


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
    """What of these layers: all, of each tensor a share, or all for one half of guidance."""
    cfg: CfgPart | None
    """Which part of guidance, where it is one."""


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


@dataclass(frozen=True, slots=True)
class Bytes:
    """Where the bytes of a device go."""

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
    """Bytes that it may hold."""


@dataclass(frozen=True, slots=True, repr=False)
class Picture:
    """A picture that notebooks show."""

    svg: str
    """The picture as a whole SVG file."""

    def __str__(self) -> str:
        """The SVG file."""
        return self.svg

    def __repr__(self) -> str:
        return "<skulk.Picture>"

    def _repr_svg_(self) -> str:
        return self.svg


@dataclass(frozen=True, slots=True)
class Usable:
    """Memory of a node that a model may use."""

    bytes: int
    """So many bytes."""
    vram: bool
    """Of a graphics card; else of main memory."""


@dataclass(frozen=True, slots=True)
class GgufFacts:
    """What the first key-values of a GGUF file say that a card needs."""

    architecture: str
    """The family as the file spells it."""
    n_layers: int
    """Decoder layers."""
    hidden_size: int
    """Width of the residual stream."""
    num_key_value_heads: int | None
    """Key/value heads; ``None`` where the file gives none, or one for each layer."""
    context_length: int
    """Positions it was trained for, in tokens; 0: unknown."""
