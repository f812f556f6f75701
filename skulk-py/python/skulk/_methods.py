"""What can plain data do? Methods of dataclasses that are declared elsewhere, which have the fields named here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from . import _skulk

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from . import _contract, vindex
    from .options import LinkOptions

T = TypeVar("T")


def plain(value: Any) -> Any:
    """What a field is in JSON. What it cannot be stays as it is: the library says what is wrong."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, range):
        return {"start": value.start, "end": value.stop}
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=str)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def call(name: str, read: Callable[[Any], T], /, **arguments: object) -> T:
    """What the library's function of this name, with arguments as JSON has them, gives."""
    if "card" in arguments:
        card = arguments["card"]
        if not isinstance(card, _contract.ModelCard):
            raise _skulk.invalid("card", f"expected a skulk.ModelCard, found an instance of {type(card).__name__}")
        arguments["card"] = snake(card.to_dict())
    return read(_skulk.call(name, arguments))


def maybe(read: Callable[[Any], T]) -> Callable[[Any], T | None]:
    """Reads what may be missing."""
    return lambda value: None if value is None else read(value)


def tagged(value: Any) -> dict[str, Any]:
    """One of several kinds, whose fields stand among its owner's."""
    fields = plain(value)
    return fields if isinstance(fields, dict) else {"type": fields}


class ModelCard:
    """Facts about one model, declared rather than measured.

    Read one with `open`, `from_toml` or `from_json`, let `from_checkpoint` write one, or make one of its
    fields; `dataclasses.replace` changes some. A card that is made is checked when it is used.
    """

    __slots__ = ()
    model_id: str
    n_layers: int
    storage_size: _contract.StorageSize

    @staticmethod
    def open(path: str | PathLike[str]) -> _contract.ModelCard:
        """Reads the card in a ``.toml`` or ``.json`` file.

        Raises `CardInvalidError`, with all that is wrong as ``faults``.
        """
        return _skulk.card_open(path)

    @staticmethod
    def from_toml(text: str) -> _contract.ModelCard:
        """Reads a card in TOML. Raises `CardInvalidError`, with all that is wrong as ``faults``."""
        return call("cardRead", _contract.ModelCard._of, text=text, toml=True)

    @staticmethod
    def from_json(text: str) -> _contract.ModelCard:
        """Reads a card in JSON. Raises `CardInvalidError`, with all that is wrong as ``faults``."""
        return call("cardRead", _contract.ModelCard._of, text=text, toml=False)

    @staticmethod
    def from_checkpoint(path: str | PathLike[str]) -> _contract.ModelCard:
        """The card of a local checkpoint, of which only headers and configurations are read.

        Raises a subclass of `Error` for whatever is wrong with the path or the checkpoint.
        """
        return _skulk.card_from_checkpoint(path)

    @staticmethod
    def schema() -> dict[str, Any]:
        """The JSON Schema (draft 2020-12) of cards in TOML, for editors."""
        return call("cardSchema", dict)

    def to_json(self) -> str:
        """The card as indented JSON, in camelCase, with every field."""
        return call("cardToJson", str, card=self)

    def to_toml(self) -> str:
        """The card as TOML: without what is not known, and without ``is_custom``."""
        return call("cardToToml", str, card=self)

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
        return call("cardFileName", str, card=self)

    @property
    def parameters(self) -> int | None:
        """Parameters of the model, by its facts: of the decoder with embedding and head, and of the parts beside it. None:
        the card has no facts, or they cannot be right, see `fact_findings`.
        """
        return call("cardParameters", maybe(int), card=self)

    @property
    def size_by_facts(self) -> int | None:
        """Bytes of all weights, by the card's facts and the bits of a weight that they or ``quantization`` say. None: as of
        `parameters`, or nothing says how many bits.
        """
        return call("cardSizeByFacts", maybe(int), card=self)

    @property
    def fact_findings(self) -> list[_contract.CardFault]:
        """What is wrong with the card's facts: those that contradict each other, the card's other fields or its size, and
        those that are missing beside others. Plans then take the card for one without facts.
        """
        return call("cardFactFindings", lambda found: [_contract.CardFault._of(one) for one in found], card=self)

    def profile(
        self,
        *,
        tokenizer_tools: bool = False,
        tokenizer_thinking: bool = False,
        has_messages: bool | None = None,
        has_tools: bool | None = None,
    ) -> _contract.Profile:
        """What the model can do, and how it is spoken to. Hints as in `Profile.resolve`."""
        return Profile.resolve(
            self.model_id,
            cast(_contract.ModelCard, self),
            tokenizer_tools=tokenizer_tools,
            tokenizer_thinking=tokenizer_thinking,
            has_messages=has_messages,
            has_tools=has_tools,
        )

    def __repr__(self) -> str:
        return f"<skulk.ModelCard {self.model_id}: {self.n_layers} layers, {self.storage_size.in_bytes} bytes>"

    def _repr_html_(self) -> str:
        from ._notebook import card

        return card(cast(_contract.ModelCard, self))


def snake(value: Any) -> Any:
    """A card's JSON with keys in snake_case, as messages about it are to have them."""
    if isinstance(value, dict):
        return {re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", key): snake(item) for key, item in value.items()}
    return [snake(item) for item in value] if isinstance(value, list) else value


class Profile:
    """What a card resolves to. The first that says anything wins: the card's sections, the rule of its family, the
    generic profile."""

    __slots__ = ()

    @staticmethod
    def resolve(
        model_id: str,
        card: _contract.ModelCard | None = None,
        *,
        tokenizer_tools: bool = False,
        tokenizer_thinking: bool = False,
        has_messages: bool | None = None,
        has_tools: bool | None = None,
    ) -> _contract.Profile:
        """What a model can do, from its id, its card, where there is one, and `options.ProfileOptions`."""
        hints = {
            "tokenizer_tools": tokenizer_tools,
            "tokenizer_thinking": tokenizer_thinking,
            "has_messages": has_messages,
            "has_tools": has_tools,
        }
        given: dict[str, object] = {"modelId": model_id, "options": hints}
        return call("profileResolve", _contract.Profile._of, **(given if card is None else given | {"card": card}))

    @staticmethod
    def permissive() -> _contract.Profile:
        """The profile to read requests by while nothing is known of the model: all is kept."""
        return call("profilePermissive", _contract.Profile._of)

    def reasoning(
        self,
        effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None,
        enable_thinking: bool | None = None,
    ) -> _contract.Reasoning:
        """What a request for reasoning means for this model.

        Raises `InvalidArgumentError` for an effort that there is not.
        """
        read = _contract.Reasoning._of
        return call("profileReasoning", read, profile=self, effort=effort, enableThinking=enable_thinking)


class Node:
    """A machine."""

    __slots__ = ()

    @staticmethod
    def local() -> _contract.Node:
        """This machine, named ``local``: memory, cores, and GPUs with the backends that reach them.

        Available memory is what programs can get without swapping. How fast devices are is measured, once for the process.
        """
        return call("nodeLocal", _contract.Node._of)

    @staticmethod
    def measure_disk(path: str | PathLike[str]) -> float:
        """Bytes a second at which this machine reads the file at `path` from its drive, whatever the system's cache has of
        it: what weights that stay in their file cost, see ``disk_bytes_per_second``. It takes about 50 ms.

        Raises `FileNotFoundError` where there is nothing, `FileIoError` for what cannot be read, is no regular file or has
        less than a mebibyte, and where the system has no way past its cache: all but Linux, and file systems without drives.
        """
        return _skulk.measure_disk(path)

    @staticmethod
    def measure_link(
        address: str, *, cancel: _skulk.CancelToken | None = None, **options: Unpack[LinkOptions]
    ) -> _contract.LinkSpeed:
        """How fast the link from this machine to a server of this library at `address` is, for `skulk.Link`: the median of
        fifteen round trips, and how fast bytes go there and come back, up to 8 MiB of them.

        `options` are those of `skulk.options.LinkOptions`. `cancel` and Ctrl-C end it soon.

        Raises `PeerLostError` where the server cannot be reached in time, `PeerFailedError` where it refuses or sends
        nothing back, as LARQL's, `InvalidArgumentError` for what is no address, and for addresses of gRPC.
        """
        return _skulk.measure_link(address, cancel, options)


class Cluster:
    """Machines and what connects them."""

    __slots__ = ()

    @staticmethod
    def local() -> _contract.Cluster:
        """This machine alone: what `Model` can run by itself."""
        return _contract.Cluster([Node.local()])

    @staticmethod
    def mesh(
        nodes: Iterable[_contract.Node], speed: _contract.LinkSpeed | None = None
    ) -> _contract.Cluster:
        """Nodes that are all connected with each other; unless said otherwise, by gigabit Ethernet."""
        return _contract.Cluster(list(nodes), mesh_speed=_contract.LinkSpeed() if speed is None else speed)

    @staticmethod
    def from_json(text: str) -> _contract.Cluster:
        """Reads what `to_json` writes. Raises `InvalidArgumentError` for anything else."""
        return call("clusterFromJson", _contract.Cluster._of, text=text)

    def to_json(self) -> str:
        """The cluster as JSON on one line, in camelCase.

        Raises `InvalidArgumentError` for values of other types; whether they can be is checked in plans.
        """
        return call("clusterToJson", str, cluster=self)


class Inventory:
    """What a model weighs, part by part."""

    __slots__ = ()

    @staticmethod
    def from_checkpoint(path: str | PathLike[str]) -> _contract.Inventory:
        """Counts a checkpoint's tensors; only its headers are read.

        Raises a subclass of `Error` for whatever is wrong with the path or the checkpoint.
        """
        return _skulk.inventory_from_checkpoint(path)

    @staticmethod
    def from_draft_model(model: str | PathLike[str], path: str | PathLike[str]) -> _contract.Inventory:
        """Counts the tensors of what drafts for the model of a checkpoint, at a path that `Model.load` takes as its
        `draft_model`; only headers are read.

        Raises a subclass of `Error` for whatever is wrong with either, and where it drafts for another model.
        """
        return _skulk.inventory_from_draft_model(model, path)

    @staticmethod
    def from_card(card: _contract.ModelCard) -> _contract.Inventory:
        """What follows from a card: its size divided by its layers, a third of each for attention."""
        return call("inventoryFromCard", _contract.Inventory._of, card=card)

    @staticmethod
    def of_experts(
        n_layers: int,
        *,
        attention: int,
        shared: int = 0,
        n_experts: int,
        n_used: int,
        expert: int,
        kv_per_token: int = 0,
    ) -> _contract.Inventory:
        """A mixture of experts, every layer alike: for models whose checkpoint is not at hand.

        `attention`, `shared` and `expert` are bytes of one layer, `n_experts` how many it has and `n_used`
        how many of them a token takes.
        """
        return call(
            "inventoryOfExperts",
            _contract.Inventory._of,
            nLayers=n_layers,
            attention=attention,
            shared=shared,
            nExperts=n_experts,
            nUsed=n_used,
            expert=expert,
            kvPerToken=kv_per_token,
        )


class _Text:
    """What is text above all: ``print(event, end="")`` prints the stream."""

    __slots__ = ()
    text: str

    def __str__(self) -> str:
        """The text."""
        return self.text


class Event(_Text):
    """One step of a generation."""

    __slots__ = ()


class Output(_Text):
    """A whole generation."""

    __slots__ = ()


class TextEvent(_Text):
    """More of an answer."""

    __slots__ = ()


class ReasoningEvent(_Text):
    """More of what the model thinks."""

    __slots__ = ()


class ChatAnswer(_Text):
    """A whole answer."""

    __slots__ = ()


class VerifyProblem(_Text):
    """Something that is wrong with a folder."""

    __slots__ = ()


class SpeculationReport(_Text):
    """What computing tokens ahead gains."""

    __slots__ = ()
    prompts: int
    ways: list[_contract.SpeculationWay]

    def __repr__(self) -> str:
        return f"<skulk.SpeculationReport: {len(self.ways)} ways, {self.prompts} prompts>"

    def _repr_html_(self) -> str:
        from ._notebook import tuned

        return tuned(cast("_contract.SpeculationReport", self))


class ExtractReport:
    """What was extracted."""

    __slots__ = ()
    path: Path
    files: list[vindex.ExtractFile]
    bytes: int

    def __repr__(self) -> str:
        return f"<skulk.vindex.ExtractReport {self.path.name}: {len(self.files)} files, {self.bytes:,} bytes>"

    def _repr_html_(self) -> str:
        from ._notebook import extracted

        return extracted(cast("vindex.ExtractReport", self))


class SliceReport(_Text):
    """What a slice is made of."""

    __slots__ = ()
    path: Path
    files: list[vindex.SlicedFile]
    bytes: int

    def __repr__(self) -> str:
        return f"<skulk.vindex.SliceReport {self.path.name}: {len(self.files)} files, {self.bytes:,} bytes>"

    def _repr_html_(self) -> str:
        from ._notebook import sliced

        return sliced(cast("vindex.SliceReport", self))


class VerifyReport(_Text):
    """What a verification found."""

    __slots__ = ()
    path: Path
    files: list[vindex.VerifiedFile]
    problems: list[vindex.VerifyProblem]

    @property
    def is_sound(self) -> bool:
        """Nothing is wrong."""
        return not self.problems

    def __repr__(self) -> str:
        return f"<skulk.vindex.VerifyReport {self.path.name}: {len(self.files)} files, {len(self.problems)} problems>"

    def _repr_html_(self) -> str:
        from ._notebook import verified

        return verified(cast("vindex.VerifyReport", self))


# Its classes are made of those above.
from . import _contract  # noqa: E402
