"""What is known about a model without opening it? Cards, where they lie, and what they resolve to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal

from . import _skulk, _wire


@dataclass(frozen=True, slots=True)
class StorageSize:
    """A number of bytes, as cards write it."""

    in_bytes: int = 0
    """Bytes."""


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
    """Its layers, where it has any."""
    safetensors_index_filename: str | None = None
    """The name of its index of weight files."""


@dataclass(frozen=True, slots=True)
class VisionCardConfig:
    """How a model sees."""

    image_token_id: int | None = None
    """The token that stands for an image."""
    model_type: str = ""
    """The vision tower's kind."""
    weights_repo: str = ""
    """Where its weights are; empty: in the card's own ``model_id``."""
    image_token: str | None = None
    """The text of the image token."""
    processor_repo: str | None = None
    """Where its image processor is."""
    boi_token_id: int | None = None
    """The token that begins an image."""
    eoi_token_id: int | None = None
    """The token that ends an image."""


@dataclass(frozen=True, slots=True)
class ReasoningCardConfig:
    """How a model reasons."""

    supports_toggle: bool | None = None
    """Requests can turn it on and off."""
    supports_budget: bool | None = None
    """Requests can bound it."""
    format: Literal["none", "token_delimited", "channel_delimited"] | None = None
    """How it is marked."""
    default_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    """How much, unless a request says."""
    disabled_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    """What turning it off means."""


@dataclass(frozen=True, slots=True)
class ModalitiesCardConfig:
    """What else than text a model takes."""

    supports_audio_input: bool | None = None
    """It hears."""
    supports_native_multimodal: bool | None = None
    """Its other inputs are part of the model itself."""


@dataclass(frozen=True, slots=True)
class ToolingCardConfig:
    """How a model calls tools."""

    supports_tool_calling: bool | None = None
    """It does."""
    tool_call_format: Literal["generic", "gemma4", "gpt_oss", "dsml"] | None = None
    """How it writes calls."""
    builtin_tools: tuple[Literal["web_search", "open_url", "extract_page"], ...] | None = None
    """Tools that it was trained with."""


@dataclass(frozen=True, slots=True)
class RuntimeCardConfig:
    """How a model is run."""

    prompt_renderer: Literal["tokenizer", "gemma4", "dsml"] | None = None
    """What turns messages into a prompt."""
    output_parser: Literal["generic", "gemma4", "gpt_oss", "deepseek_v32"] | None = None
    """What takes an answer apart."""
    metal_fast_synch: bool | None = None
    """Whether MLX waits for the GPU by polling."""
    mtp_heads: bool | None = None
    """It has multi-token-prediction heads, in a sidecar."""
    mtp_max_depth: int | None = None
    """Tokens that these heads, or the assistant, draft at most."""
    mtp_sidecar_repo: str | None = None
    """Where the sidecar is."""
    mtp_norm_convention: Literal["zero_centered", "actual_scale"] | None = None
    """What the sidecar's norm weights are relative to."""
    mtp_concat_order: Literal["embed_first", "hidden_first"] | None = None
    """How the heads join their inputs."""
    speculative_multi_node: bool | None = None
    """Speculation pays over several nodes, too."""
    assistant_model_repo: str | None = None
    """Where a model that drafts for this one is."""
    served_spec_type: Literal["none", "draft_mtp", "draft_eagle3", "draft_simple", "ngram"] | None = None
    """How it speculates where a server runs it."""
    served_spec_n_max: int | None = None
    """Tokens that the server drafts at most."""
    served_spec_draft_repo: str | None = None
    """Where the server's draft is."""
    served_spec_draft_file: str | None = None
    """The file of that draft; must be given with the repository."""


@dataclass(frozen=True, slots=True)
class PlacementCardConfig:
    """Where a model can run."""

    compatible_backends: tuple[str, ...] = ("mlx",)
    """Tags of backends that can run it, by name: ``<engine>-<compute>``, or an engine alone."""
    min_vram_gib: float | None = None
    """Accelerator memory that a node must have, in GiB."""
    max_context_tokens: int | None = None
    """Tokens that its context is limited to, whatever it was trained for."""
    backend_preference: tuple[str, ...] = ()
    """The backends by preference, best first."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ModelCard:
    """Facts about one model, declared rather than measured.

    Read one with `open`, `from_toml` or `from_json`, let `from_checkpoint` write one, or make one of its
    fields; `dataclasses.replace` changes some. A card that is made is checked when it is used.
    """

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

    @staticmethod
    def open(path: str | PathLike[str]) -> ModelCard:
        """Reads the card in a ``.toml`` or ``.json`` file.

        Raises `CardInvalidError`, with all that is wrong as ``faults``.
        """
        return ModelCard._of(_skulk.card_open(path))

    @staticmethod
    def from_toml(text: str) -> ModelCard:
        """Reads a card in TOML. Raises `CardInvalidError`, with all that is wrong as ``faults``."""
        return ModelCard._of(_skulk.card_read(text, True))

    @staticmethod
    def from_json(text: str) -> ModelCard:
        """Reads a card in JSON. Raises `CardInvalidError`, with all that is wrong as ``faults``."""
        return ModelCard._of(_skulk.card_read(text, False))

    @staticmethod
    def from_checkpoint(path: str | PathLike[str]) -> ModelCard:
        """The card of a local checkpoint, of which only headers and configurations are read.

        Raises a subclass of `Error` for whatever is wrong with the path or the checkpoint.
        """
        return ModelCard._of(_skulk.card_from_checkpoint(path))

    @staticmethod
    def schema() -> dict[str, Any]:
        """The JSON Schema (draft 2020-12) of cards in TOML, for editors."""
        schema: dict[str, Any] = json.loads(_skulk.card_schema())
        return schema

    def to_dict(self) -> dict[str, Any]:
        """The card in camelCase, with every field, as Skulk 1.3 has it in JSON."""
        data: dict[str, Any] = json.loads(self.to_json())
        return data

    def to_json(self) -> str:
        """The card as indented JSON, in camelCase, with every field."""
        return _skulk.card_text(self, False)

    def to_toml(self) -> str:
        """The card as TOML: without what is not known, and without ``is_custom``."""
        return _skulk.card_text(self, True)

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the card to a ``.toml`` or ``.json`` file, as a whole or not at all.

        Raises `CardInvalidError` and `FileIoError`.
        """
        _skulk.card_save(self, path)

    @property
    def file_name(self) -> str:
        """The name of the card's file: the id with ``/`` as ``--``, and ``.toml``.

        Raises `InvalidArgumentError` when that is no file name on every system.
        """
        return _skulk.card_file_name(self)

    def profile(
        self,
        *,
        tokenizer_tools: bool = False,
        tokenizer_thinking: bool = False,
        has_messages: bool | None = None,
        has_tools: bool | None = None,
    ) -> Profile:
        """What the model can do, and how it is spoken to. Hints as in `Profile.resolve`."""
        return Profile.resolve(
            self.model_id,
            self,
            tokenizer_tools=tokenizer_tools,
            tokenizer_thinking=tokenizer_thinking,
            has_messages=has_messages,
            has_tools=has_tools,
        )

    @staticmethod
    def _of(text: str) -> ModelCard:
        return _wire.loads(ModelCard, text, str)

    def _wire(self) -> str:
        return _wire.dumps(self, str)

    def __repr__(self) -> str:
        return f"<skulk.ModelCard {self.model_id}: {self.n_layers} layers, {self.storage_size.in_bytes} bytes>"

    def _repr_html_(self) -> str:
        from ._notebook import card

        return card(self)


class CardLibrary(Mapping[str, ModelCard]):
    """Cards by their model's id, in order: the built-in ones, and folders of yours over them.

    A file that is no card stops nothing: it is one of the `problems`.
    """

    __slots__ = ("_library",)

    def __init__(self, *folders: str | PathLike[str], builtin: bool = True) -> None:
        """Searches the folders, and those in them; later ones override earlier ones."""
        self._library = _skulk.Library(builtin, [fspath(folder) for folder in folders])

    def __getitem__(self, model_id: str) -> ModelCard:
        """The card of a model. Raises KeyError when there is none."""
        text = self._library.get(model_id) if isinstance(model_id, str) else None
        if text is None:
            raise KeyError(model_id)
        return ModelCard._of(text)

    def __iter__(self) -> Iterator[str]:
        """The ids, in order."""
        return iter(self._library.ids())

    def __len__(self) -> int:
        """Cards in effect."""
        return len(self._library.ids())

    def __repr__(self) -> str:
        return f"<skulk.CardLibrary: {len(self)} cards, {len(self.problems)} problems>"

    @property
    def folders(self) -> list[Path]:
        """Your folders, in their order."""
        return self._library.folders()

    @property
    def problems(self) -> list[_skulk.Error]:
        """Why files are not among the cards. Each names its file."""
        return self._library.problems()

    def file(self, model_id: str) -> Path | None:
        """The file of a model's card; none for those that are built in."""
        return self._library.file(model_id)

    def add_folder(self, folder: str | PathLike[str]) -> None:
        """Searches one more folder, whose cards override all that are there."""
        self._library.add_folder(folder)

    def reload(self) -> None:
        """Searches the folders again. Only files whose time or size changed are read."""
        self._library.reload()

    def save(self, folder: str | PathLike[str], card: ModelCard) -> Path:
        """Writes a card into one of the library's folders, and tells the file.

        Raises `InvalidArgumentError` for another folder, or an id that cannot name a file.
        """
        return self._library.save(folder, card)

    def remove(self, model_id: str) -> bool:
        """Deletes the file of a card of yours; an earlier source's card shows again. False: there is none."""
        return self._library.remove(model_id)


@dataclass(frozen=True, slots=True)
class Reasoning:
    """What is left of a request for reasoning, for a given model."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None
    """How much."""
    enable_thinking: bool | None
    """Whether at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What a card resolves to: the facts that running a model is decided by.

    The first that says anything wins: the card's sections, the rule of its family, the generic profile.
    """

    family: str
    """The card's family, else the id's first word."""
    supports_thinking: bool
    """It reasons before it answers."""
    supports_thinking_toggle: bool
    """Requests can turn that on and off."""
    supports_thinking_budget: bool
    """Requests can bound it."""
    default_reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"]
    """How much it reasons where a request turns reasoning on without saying."""
    disabled_reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"]
    """What turning it off means."""
    thinking_format: Literal["none", "token_delimited", "channel_delimited"]
    """How reasoning is marked."""
    supports_image_input: bool
    """It sees."""
    supports_audio_input: bool
    """It hears."""
    supports_tool_calling: bool
    """It calls tools."""
    builtin_tools: tuple[Literal["web_search", "open_url", "extract_page"], ...]
    """Tools that it was trained with."""
    tool_call_format: Literal["generic", "gemma4", "gpt_oss", "dsml"]
    """How it writes calls."""
    prompt_renderer: Literal["tokenizer", "gemma4", "dsml"]
    """What turns messages into a prompt."""
    output_parser: Literal["generic", "gemma4", "gpt_oss", "deepseek_v32"]
    """What takes an answer apart."""
    supports_native_multimodal: bool
    """Its other inputs are part of the model itself."""

    @staticmethod
    def resolve(
        model_id: str,
        card: ModelCard | None = None,
        *,
        tokenizer_tools: bool = False,
        tokenizer_thinking: bool = False,
        has_messages: bool | None = None,
        has_tools: bool | None = None,
    ) -> Profile:
        """What a model can do, from its id and its card, where there is one.

        Hints: whether the tokenizer's chat template knows tools, whether it has markers for reasoning, and
        of the request whether it consists of chat messages and whether it offers tools; both ``None``: it
        is not known yet.
        """
        text = _skulk.profile_resolve(
            model_id, card, tokenizer_tools, tokenizer_thinking, has_messages, has_tools
        )
        return _wire.loads(Profile, text)

    @staticmethod
    def permissive() -> Profile:
        """The profile to read requests by while nothing is known of the model: all is kept."""
        return _wire.loads(Profile, _skulk.profile_permissive())

    def reasoning(
        self,
        effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None,
        enable_thinking: bool | None = None,
    ) -> Reasoning:
        """What a request for reasoning means for this model.

        Raises `InvalidArgumentError` for an effort that there is not.
        """
        result = _skulk.profile_reasoning(
            self.supports_thinking,
            self.supports_thinking_toggle,
            self.default_reasoning_effort,
            self.disabled_reasoning_effort,
            effort,
            enable_thinking,
        )
        return Reasoning(*result)

    def to_dict(self) -> dict[str, Any]:
        """The profile in camelCase, as Skulk 1.3 has it in JSON."""
        data: dict[str, Any] = json.loads(_wire.dumps(self))
        return data
