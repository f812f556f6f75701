"""What do the cases of placements.json ask, and what do they say of a placement?"""

from __future__ import annotations

import json
from typing import Any

import skulk
from skulk import planning
from suites import Case, card_of

LATE = "ValueError"
"""What the reference raises after its rules left something."""

ARRANGING = {"layers", "hosts"}
"""Rules that are applied then."""


def download(entries: list[dict[str, Any]], model: str) -> float | None:
    """The share of this model on a node's disk: the first entry that is about it decides."""
    for entry in entries:
        if entry.get("modelId", model) != model:
            continue
        if entry["state"] in ("completed", "failed"):
            return float(entry["state"] == "completed")
        assert entry["state"] in ("ongoing", "pending"), entry
        return float(entry["downloaded"]) / entry["total"] if entry["total"] > 0 else 0.0
    return None


def node(name: str, given: dict[str, Any], model: str) -> skulk.Node:
    def of(section: str) -> Any:
        return given.get(section, {}).get(name)

    node = skulk.Node(name)
    if (memory := of("memory")) is not None:
        # Less than nothing is nothing here.
        node.memory = skulk.NodeMemory(max(memory["ramTotal"], 0), max(memory["ramAvailable"], 0))
    if (resources := of("resources")) is not None:
        # What is left out has the defaults of the reference.
        node.backends = set(resources.get("backends", ["mlx"]))
        node.role = resources.get("participation", "full")
    if (facts := of("accelerators")) is not None:
        node.accelerators = [
            skulk.Accelerator(
                vendor=facts["vendor"],
                vram_total_bytes=facts.get("vramTotalBytes"),
                vram_used_bytes=facts.get("vramUsedBytes"),
                gtt_total_bytes=facts.get("gttTotalBytes"),
            )
        ]
    for interface in of("network") or []:
        fields = (interface["name"], interface["ipAddress"], interface["interfaceType"])
        node.interfaces.append(skulk.NetworkInterface(*fields))
    share = download(of("downloads") or [], model)
    if share is not None:
        node.downloads[model] = share
    return node


def link(connection: dict[str, Any]) -> skulk.Link:
    kind: skulk.Socket | skulk.Rdma
    if connection["type"] == "socket":
        # As in `/ip4/10.0.0.1/tcp/1234`.
        kind = skulk.Socket(connection["multiaddr"].split("/")[2])
    else:
        assert connection["type"] == "rdma", connection
        kind = skulk.Rdma(connection["sourceIface"], connection["sinkIface"])
    return skulk.Link(connection["source"], connection["sink"], kind)


def problem(case: Case) -> tuple[skulk.ModelCard, skulk.Cluster, dict[str, Any]]:
    """Card, cluster and request of a case."""
    given = case["input"]
    card = card_of(given["card"])
    # The reference takes no notice of a connection that it has already, and knows the nodes of all.
    links = list({json.dumps(connection): link(connection) for connection in given["connections"]}.values())
    names = given["nodes"] + [name for link in links for name in (link.source, link.sink)]
    nodes = [node(name, given, card.model_id) for name in dict.fromkeys(names)]
    request = {
        "sharding": given["sharding"].lower(),
        "transport": {"MlxRing": "mlx_ring", "MlxJaccl": "mlx_jaccl"}[given["instanceMeta"]],
        # Less than one node is no node here.
        "min_nodes": max(0, given["minNodes"]),
        "required_nodes": given["requiredNodes"],
        "excluded_nodes": given["excludedNodes"],
    }
    return card, skulk.Cluster(nodes, links), request


def planned(
    card: skulk.ModelCard, cluster: skulk.Cluster, request: dict[str, Any]
) -> skulk.Placement | skulk.PlanNoFitError | skulk.PlanPendingError:
    try:
        return skulk.plan(card, cluster, **request)
    except (skulk.PlanNoFitError, skulk.PlanPendingError) as error:
        return error


def rule(error: skulk.PlanNoFitError | skulk.PlanPendingError) -> str:
    """The rule that left nothing."""
    assert error.report is not None and error.detail == {"report": error.report}
    refused: dict[str, str] = error.report.to_dict()["refused"]
    return refused["rule"]


def have_vram(card: skulk.ModelCard, cluster: skulk.Cluster, names: list[str]) -> bool:
    """Whether nodes have the accelerator memory that the card asks for, which the reference does not look at."""
    needed = (card.placement.min_vram_gib or 0) * 2**30
    known = {node.id: planning.accelerator_memory(node) or 0 for node in cluster.nodes}
    return all(known[name] >= needed for name in names)


def described(placement: skulk.Placement) -> dict[str, Any]:
    """All that the reference says of a placement, in its words."""
    assert placement.card is not None
    stages = placement.stages
    shards = []
    for rank, stage in enumerate(stages):
        ((name, shard),) = placement.shard_metadata(rank).items()
        assert shard.pop("modelCard")["modelId"] == placement.card.model_id
        assert (shard.pop("immediateException"), shard.pop("shouldTimeout")) == (False, None)
        shards.append({"node": stage.node, "type": name} | shard)
    ((instance, data),) = placement.to_dict().items()
    found = {
        "ok": True,
        "modelId": placement.card.model_id,
        "contextTokenLimit": placement.context_limit,
        "effectiveSharding": "Tensor" if any(stage.part == "tensor" for stage in stages) else "Pipeline",
        "nodeOrder": [stage.node for stage in stages],
        "shards": shards,
        "instanceType": instance,
        "effectiveInstanceMeta": instance.removesuffix("Instance"),
    }
    if instance == "MlxRingInstance":
        hosts = data["hostsByNode"].items()
        found["hostsByNode"] = {node: [f"{host['ip']}:{host['port']}" for host in row] for node, row in hosts}
        found["ephemeralPort"] = data["ephemeralPort"]
    else:
        found |= {key: data[key] for key in ("jacclDevices", "jacclCoordinators")}
    return found


def is_refused_here(case: Case) -> bool:
    """Whether a card is one that only the reference takes: no name, or sizes and limits that cannot be."""
    card = case["input"]["card"]
    limits = card["placement"] or {}
    below = [
        (card["storageSize"]["inBytes"], 0),
        (limits.get("minVramGib"), 0),
        (limits.get("maxContextTokens"), 1),
    ]
    return card["modelId"] == "" or any(value is not None and value < least for value, least in below)


def is_over(card: skulk.ModelCard, cluster: skulk.Cluster, expected: dict[str, Any]) -> bool:
    """Whether the reference gives a node more than its own memory rule, which does not know of whole layers, allows."""
    nodes = {node.id: node for node in cluster.nodes}
    for shard in expected["shards"]:
        share = (shard["endLayer"] - shard["startLayer"]) / card.n_layers
        usable = planning.usable_memory(nodes[shard["node"]])
        assert usable is not None
        if planning.shard_footprint(card, share) > usable.bytes:
            return True
    return False


def is_valid(card: skulk.ModelCard, cluster: skulk.Cluster, placement: skulk.Placement) -> None:
    """A ring whose neighbours reach each other, all layers once, and no node over what it may use."""
    stages = placement.stages
    names = [stage.node for stage in stages]
    assert len(set(names)) == len(names)
    linked = {(link.source, link.sink) for link in cluster.links}
    for i, name in enumerate(names if len(names) > 1 else []):
        to = names[(i + 1) % len(names)]
        assert {(name, to), (to, name)} <= linked
    layers = [layer for stage in stages for layer in stage.layers]
    if stages[0].part == "whole":
        assert layers == list(range(card.n_layers))
    if stages[0].part == "tensor":
        assert all(stage.layers == range(card.n_layers) for stage in stages)
    assert placement.report is not None
    for stage, device in zip(stages, placement.report.to_dict()["nodes"]):
        share = 1 / len(stages) if stage.part == "tensor" else len(stage.layers) / card.n_layers
        total = sum(device["bytes"].values())
        assert total == planning.shard_footprint(card, share, 8192)
        assert total <= device["usable"]
