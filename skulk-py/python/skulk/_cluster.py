"""What is planned, and on what? Nodes and the links between them, and the bytes of a model's parts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Literal

from . import _skulk, _wire
from ._cards import ModelCard


@dataclass(slots=True)
class NodeMemory:
    """A node's main memory, in bytes."""

    ram_total: int
    """All there is."""
    ram_available: int
    """What programs can still get."""


@dataclass(slots=True, kw_only=True)
class Accelerator:
    """A device of a node that computes. What is not known is ``None``, which is not 0."""

    vendor: Literal["apple", "amd", "nvidia", "intel", "cpu", "unknown"] = "unknown"
    """Who made it."""
    name: str = ""
    """Its name."""
    vram_total_bytes: int | None = None
    """Its own memory, in bytes."""
    vram_used_bytes: int | None = None
    """How much of that is in use."""
    gtt_total_bytes: int | None = None
    """Main memory that it can reach, in bytes."""
    shares_memory: bool = False
    """Its memory is main memory."""
    backend: str | None = None
    """The backend of this library that drives it, as in ``skulk-wgpu-vulkan``."""
    bytes_per_second: float | None = None
    """Bytes a second that it reads from its memory."""


@dataclass(slots=True)
class NetworkInterface:
    """A network interface of a node."""

    name: str
    """Its name, as in ``en0``."""
    ip_address: str
    """Its address."""
    interface_type: Literal["wifi", "ethernet", "maybe_ethernet", "thunderbolt", "unknown"] = "unknown"
    """What it is."""


@dataclass(slots=True)
class Node:
    """A machine. What it has not reported yet is ``None``."""

    id: str
    """Its name."""
    role: Literal["full", "management", "ffn_only"] = "full"
    """What it does: anything, coordinating alone, or feed-forward blocks and experts but never attention."""
    backends: set[str] | None = None
    """Tags of the backends it has, as in ``mlx-metal`` or ``skulk-cpu``."""
    memory: NodeMemory | None = None
    """Its main memory."""
    bytes_per_second: float | None = None
    """Bytes a second that it reads from main memory."""
    cores: int | None = None
    """Its processor cores."""
    accelerators: list[Accelerator] = field(default_factory=list)
    """Its accelerators."""
    interfaces: list[NetworkInterface] = field(default_factory=list)
    """Its network interfaces."""
    downloads: dict[str, float] = field(default_factory=dict)
    """Which share of a model's bytes lies on its disk, by model: 0 to 1."""

    @staticmethod
    def local() -> Node:
        """This machine, named ``local``: memory, cores, and GPUs with the backends that reach them.

        Available memory is what programs can get without swapping; how fast memory is, nobody says.
        """
        return _wire.loads(Node, _skulk.node_local())

    def _wire(self) -> str:
        return _wire.dumps(self)


@dataclass(slots=True)
class LinkSpeed:
    """How fast a link is; unless given, as gigabit Ethernet."""

    round_trip_seconds: float = 5e-4
    """Seconds for a message there and an answer back."""
    bytes_per_second: float = 1.17e8
    """Bytes a second."""


@dataclass(slots=True)
class Socket:
    """A link of sockets."""

    address: str
    """The address at which the sink was reached, without port."""


@dataclass(slots=True)
class Rdma:
    """A link of remote direct memory access."""

    source_iface: str
    """The source's interface."""
    sink_iface: str
    """The sink's interface."""


@dataclass(slots=True)
class Link:
    """A connection that a node has to another, in one direction."""

    source: str
    """Who connects."""
    sink: str
    """To whom."""
    kind: Socket | Rdma = field(metadata={"tags": {Socket: "socket", Rdma: "rdma"}})
    """Over what."""
    speed: LinkSpeed | None = None
    """How fast, where that was measured."""


@dataclass(slots=True)
class Cluster:
    """The nodes of a host and how they are connected. Their order never changes what is planned."""

    nodes: list[Node]
    """The machines."""
    links: list[Link] = field(default_factory=list)
    """Connections, in one direction each."""
    mesh_speed: LinkSpeed | None = field(default=None, metadata={"key": "mesh"})
    """Every two nodes are connected in both directions, like this where no link says otherwise."""

    @staticmethod
    def local() -> Cluster:
        """This machine alone: what `Model` can run by itself."""
        return Cluster([Node.local()])

    @staticmethod
    def mesh(nodes: Iterable[Node], speed: LinkSpeed | None = None) -> Cluster:
        """Nodes that are all connected with each other; unless said otherwise, by gigabit Ethernet."""
        return Cluster(list(nodes), mesh_speed=LinkSpeed() if speed is None else speed)

    @staticmethod
    def from_json(text: str) -> Cluster:
        """Reads what `to_json` writes. Raises `InvalidArgumentError` for anything else."""
        return _wire.loads(Cluster, _skulk.cluster_json(text))

    def to_json(self) -> str:
        """The cluster as JSON on one line, in camelCase.

        Raises `InvalidArgumentError` for values that a cluster cannot have.
        """
        return _skulk.cluster_json(self._wire())

    def _wire(self) -> str:
        return _wire.dumps(self)


@dataclass(slots=True, kw_only=True)
class LayerBytes:
    """The bytes of one layer."""

    attention: int = 0
    """Attention, norms and router: what stays with the layer's keys and values."""
    ffn: int = 0
    """What every token reads of the feed-forward block: all of a dense one, a mixture's shared experts."""
    n_experts: int = 0
    """Routed experts; 0: a dense block."""
    n_used: int = 0
    """Experts that a token takes."""
    expert: int = 0
    """Bytes of one routed expert."""
    kv_per_token: int = 0
    """Keys and values of one token."""
    window: int | None = None
    """Tokens that the cache holds at most, where attention looks through a window."""


@dataclass(slots=True)
class Inventory:
    """The weight bytes of a model's parts, and what a token costs each layer's cache."""

    layers: list[LayerBytes] = field(repr=False)
    """One entry a layer."""
    embedding: int = 0
    """The embedding table: in the first stage, and in the last one too where it is the head as well."""
    tied_embeddings: bool = False
    """The head is the embedding table."""
    head: int = 0
    """The last stage's: final norm, and head unless that is the embedding table."""
    exact: bool = False
    """They were counted in a checkpoint; else estimated from a card."""

    @staticmethod
    def from_checkpoint(path: str | PathLike[str]) -> Inventory:
        """Counts a checkpoint's tensors; only its headers are read.

        Raises a subclass of `Error` for whatever is wrong with the path or the checkpoint.
        """
        return _wire.loads(Inventory, _skulk.inventory_from_checkpoint(path))

    @staticmethod
    def from_card(card: ModelCard) -> Inventory:
        """What follows from a card: its size divided by its layers, a third of each for attention."""
        return _wire.loads(Inventory, _skulk.inventory_from_card(card))

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
    ) -> Inventory:
        """A mixture of experts, every layer alike: for models whose checkpoint is not at hand.

        `attention`, `shared` and `expert` are bytes of one layer, `n_experts` how many it has and `n_used`
        how many of them a token takes.
        """
        text = _skulk.inventory_of_experts(
            n_layers, attention, shared, n_experts, n_used, expert, kv_per_token
        )
        return _wire.loads(Inventory, text)

    def to_dict(self) -> dict[str, Any]:
        """The inventory in camelCase."""
        data: dict[str, Any] = json.loads(self._wire())
        return data

    def _wire(self) -> str:
        return _wire.dumps(self)
