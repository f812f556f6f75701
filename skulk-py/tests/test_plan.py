"""Does planning work as it does in Rust, and do its results show and run?"""

from __future__ import annotations

import dataclasses
import itertools
import json
import pickle
import signal
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import skulk
from conftest import FIXTURES, PROMPT
from skulk import planning

GIB = 1 << 30
STORIES = FIXTURES / "stories260K"

CARD = skulk.ModelCard(
    model_id="org/<model>",
    storage_size=skulk.StorageSize(40_000_000_000),
    n_layers=48,
    hidden_size=5120,
    num_key_value_heads=8,
    supports_tensor=True,
    tasks=("TextGeneration",),
    placement=skulk.PlacementCardConfig(("skulk-cpu",)),
)


def node(name: str, memory: int, **fields: Any) -> skulk.Node:
    return skulk.Node(name, backends={"skulk-cpu"}, memory=skulk.NodeMemory(2 * memory * GIB, memory * GIB), **fields)


CLUSTER = skulk.Cluster.mesh(
    [node("a", 16), node("b", 16), node("c", 96, role="ffn_only")], skulk.LinkSpeed(2e-4, 1.2e9)
)
EXPERTS = skulk.Inventory.of_experts(
    48, attention=200_000_000, shared=10_000_000, n_experts=16, n_used=2, expert=30_000_000, kv_per_token=4096
)


def test_a_model_is_placed_on_a_cluster() -> None:
    placement = skulk.plan(CARD, CLUSTER)
    assert placement.n_layers == 48 and placement.card == CARD
    assert [layer for stage in placement.stages for layer in stage.layers] == list(range(48))
    stage = placement.stages[0]
    assert (stage.node, stage.backend, stage.engine, stage.part) == ("a", "skulk-cpu", "cpu", "whole")
    assert "c" in {shard.node for shard in placement.experts}
    assert "c" not in {stage.node for stage in placement.stages}
    shard = placement.experts[0]
    assert (shard.experts, shard.n_experts, shard.replica) == (range(1), 1, False)
    for budget in placement.budgets:
        assert 0 < sum(dataclasses.astuple(budget.bytes)) <= budget.usable
    assert sum(b.bytes.attention + b.bytes.feed_forward for b in placement.budgets) == 40_000_000_000
    placement.check(CARD)
    placement.check_on(CARD, CLUSTER)
    assert "a (skulk-cpu)" in str(placement) and str(placement) in repr(placement)
    assert placement.instance_id.startswith("org--<model>@")


def test_the_same_question_has_the_same_answer() -> None:
    first, again = skulk.plan(CARD, CLUSTER), skulk.plan(CARD, CLUSTER)
    assert first == again != skulk.plan(CARD, CLUSTER, context_tokens=16)
    assert first.report == again.report
    turned = dataclasses.replace(CLUSTER, nodes=CLUSTER.nodes[::-1])
    assert skulk.plan(CARD, turned) == first


def test_what_a_placement_costs_is_known() -> None:
    placement = skulk.plan(CARD, CLUSTER)
    assert placement.report is not None
    planned = placement.report.to_dict()
    price = skulk.price(CARD, placement, CLUSTER)
    assert price.to_dict() == {
        "estimate": pytest.approx(planned["estimate"]),
        "prompt": pytest.approx(planned["prompt"]),
    }
    faster = skulk.Cluster.mesh(
        [dataclasses.replace(each, bytes_per_second=1e12, layer_seconds=0.0) for each in CLUSTER.nodes], CLUSTER.mesh_speed
    )
    quick = skulk.price(CARD, placement, faster, prompt_tokens=64)
    assert quick.prompt.tokens == 64 and quick.prompt.seconds < price.prompt.seconds
    assert quick.estimate.tokens_per_second > price.estimate.tokens_per_second
    many = skulk.price(CARD, placement, CLUSTER, sessions=4, context_tokens=64, kv="q8_0", kv_values="q4_0")
    assert many.estimate.tokens_per_second > price.estimate.tokens_per_second
    assert many.estimate.attention_seconds != price.estimate.attention_seconds
    # Each part of the model as the inventory has it.
    told = skulk.Inventory.from_card(CARD)
    told.layers = [dataclasses.replace(layer, ffn=2 * layer.ffn) for layer in told.layers]
    twice = skulk.price(CARD, placement, CLUSTER, inventory=told)
    assert twice.estimate.feed_forward_seconds > 1.9 * price.estimate.feed_forward_seconds


def test_a_checkpoint_is_priced_by_its_tensors() -> None:
    cluster = skulk.Cluster([node("local", 16)])
    alone = skulk.price(str(STORIES), [("cpu", 5)], cluster, context_tokens=128)
    placement = skulk.plan(STORIES, cluster, context_tokens=128)
    assert alone == skulk.price(STORIES, placement, cluster, context_tokens=128)
    card, counted = skulk.ModelCard.from_checkpoint(STORIES), skulk.Inventory.from_checkpoint(STORIES)
    assert alone == skulk.price(card, placement, cluster, context_tokens=128, inventory=counted)
    assert alone != skulk.price(card, placement, cluster, context_tokens=128)
    here = skulk.price(STORIES, skulk.plan(STORIES))
    assert here.prompt.tokens == 512 and here.estimate.hop_seconds == here.estimate.fan_out_seconds == 0


def test_what_cannot_be_priced_is_refused() -> None:
    placement = skulk.plan(CARD, CLUSTER)
    for elsewhere in (skulk.Cluster.mesh([node("a", 16)]), skulk.Cluster(CLUSTER.nodes)):
        with pytest.raises(skulk.PlacementInvalidError):
            skulk.price(CARD, placement, elsewhere)
    with pytest.raises(skulk.PlacementInvalidError, match="expected 48 layers, found 5"):
        skulk.price(CARD, [("cpu", 5)], CLUSTER)
    with pytest.raises(skulk.InvalidArgumentError) as caught:
        skulk.price(CARD, placement, CLUSTER, strictness="safe")  # type: ignore[call-arg]
    assert caught.value.context["field"] == "strictness"
    for wrong in ({"sessions": 0}, {"sessions": -1}, {"kv": "f8"}, {"inventory": skulk.Inventory([])}):
        with pytest.raises(skulk.InvalidArgumentError) as caught:
            skulk.price(CARD, placement, CLUSTER, **wrong)
        assert caught.value.context["field"] in wrong
    with pytest.raises(TypeError):
        skulk.price(CARD, 3, CLUSTER)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        skulk.price(3, placement, CLUSTER)  # type: ignore[arg-type]


def test_placements_travel_as_json() -> None:
    placement = skulk.plan(CARD, CLUSTER)
    received = skulk.Placement.from_json(placement.to_json())
    assert received.report is None and received.to_json() == placement.to_json()
    # Why it is as it is does not count.
    assert received == placement == skulk.plan(CARD, CLUSTER) and placement.report is not None
    assert received != skulk.plan(CARD, CLUSTER, context_tokens=4096) and placement != placement.to_json()
    assert (received.stages, received.experts) == (placement.stages, placement.experts)
    assert received.context_tokens == placement.context_tokens == 8192
    assert (placement.kv, placement.kv_values) == ("f16", "f16")
    kept = skulk.plan(CARD, CLUSTER, kv="q8_0", kv_values="q4_0")
    assert (kept.kv, kept.kv_values) == ("q8_0", "q4_0")
    assert received.budgets == placement.budgets and received.card == CARD
    received.check(CARD)
    assert json.loads(placement.to_json()) == placement.to_dict()
    ((kind, shard),) = placement.shard_metadata(0).items()
    assert kind == "PipelineShardMetadata" and shard["modelCard"]["nLayers"] == 48
    for rank in (99, -1, 2**200):
        with pytest.raises(IndexError):
            placement.shard_metadata(rank)
    with pytest.raises(skulk.PlacementInvalidError) as caught:
        received.check(dataclasses.replace(CARD, n_layers=47))
    assert "47 layers, found 48" in caught.value.message
    for text in ("", "{}", "[]", placement.to_json().replace('"endLayer":', '"lastLayer":')):
        with pytest.raises(skulk.PlacementInvalidError):
            skulk.Placement.from_json(text)


def test_placements_without_budgets_are_checked_on_a_cluster() -> None:
    cluster = skulk.Cluster([node("a", 96)])
    card = dataclasses.replace(CARD, placement=skulk.PlacementCardConfig(("mlx",)))
    cluster.nodes[0].backends = {"mlx"}
    placement = skulk.Placement.from_json(skulk.plan(card, cluster, transport="mlx_ring").to_json())
    assert placement.budgets == [] and placement.context_tokens is None
    placement.check_on(card, cluster)
    cluster.nodes[0].memory = skulk.NodeMemory(GIB, GIB)
    with pytest.raises(skulk.PlacementInvalidError, match="at most 768.0 MiB"):
        placement.check_on(card, cluster)
    cluster.nodes[0].memory = None
    with pytest.raises(skulk.PlanPendingError) as caught:
        placement.check_on(card, cluster)
    assert caught.value.report is None


def test_what_is_asked_for_is_done() -> None:
    def nodes(**request: Any) -> set[str]:
        placement = skulk.plan(CARD, CLUSTER, **request)
        return {stage.node for stage in placement.stages} | {shard.node for shard in placement.experts}

    assert nodes(coordinator="b") >= {"b"}
    assert nodes(required_nodes={"a", "b"}, min_nodes=3) == {"a", "b", "c"}
    assert "a" not in nodes(excluded_nodes=["a"])
    assert skulk.plan(CARD, CLUSTER, inventory=EXPERTS).experts[0].n_experts == 16
    replicas = skulk.plan(CARD, CLUSTER, inventory=EXPERTS, replicas=1).experts
    assert any(shard.replica for shard in replicas)
    relaxed = skulk.plan(CARD, CLUSTER, strictness="relaxed").report
    assert relaxed is not None and relaxed.to_dict()["strictness"] == "relaxed"


def test_rings_are_those_of_the_reference() -> None:
    links = [skulk.Link(a, b, skulk.Socket(f"10.0.0.{b}")) for a in "123" for b in "123" if a != b]
    nodes = [node(name, 64) for name in "123"]
    for each in nodes:
        each.backends = {"mlx-metal"}
    cluster = skulk.Cluster(nodes, links)
    card = dataclasses.replace(CARD, placement=skulk.PlacementCardConfig(("mlx-metal",)))
    for ring in (["1", "2", "3"], ["3", "2", "1"]):
        placement = skulk.plan(card, cluster, transport="mlx_ring", rings=[ring], port=50_123)
        assert [stage.node for stage in placement.stages] == ring
        data = placement.to_dict()["MlxRingInstance"]
        assert data["ephemeralPort"] == 50_123 and set(data["hostsByNode"]) == set("123")
    tensor = skulk.plan(card, cluster, transport="mlx_ring", sharding="tensor", min_nodes=2)
    assert {stage.part for stage in tensor.stages} == {"tensor"} and len(tensor.stages) == 2
    cfg = skulk.plan(dataclasses.replace(card, uses_cfg=True), cluster, transport="mlx_ring", min_nodes=2)
    assert [stage.cfg for stage in cfg.stages] == [skulk.CfgPart(0, 2, 0, 1), skulk.CfgPart(1, 2, 0, 1)]
    assert planning.rings(card, cluster)[0] == ["1"] and planning.leaves(cluster) == []


def test_refusals_carry_their_report() -> None:
    with pytest.raises(skulk.PlanNoFitError) as caught:
        skulk.plan(CARD, CLUSTER, excluded_nodes=["c"])
    error = caught.value
    assert error.report is not None and error.detail == {"report": error.report} and error.hint
    facts = error.report.to_dict()
    assert facts["refused"]["rule"] == "memory" and facts["wouldFit"]
    assert str(error.report).startswith("Refused: ") and "refused" in repr(error.report)
    copy = pickle.loads(pickle.dumps(error))
    assert copy.report == error.report and str(copy) == str(error)

    waiting = skulk.Cluster([skulk.Node("a", backends={"skulk-cpu"})])
    with pytest.raises(skulk.PlanPendingError) as pending:
        skulk.plan(CARD, waiting)
    assert pending.value.retry == "now"
    assert pending.value.report is not None and pending.value.report.to_dict()["refused"]["pending"]


def test_reports_are_shown_in_every_form(tmp_path: Path) -> None:
    placement = skulk.plan(CARD, CLUSTER)
    report = placement.report
    assert report is not None
    facts = report.to_dict()
    assert facts == json.loads(report.to_json()) and facts["modelId"] == CARD.model_id
    assert skulk.PlanReport.from_json(report.to_json()) == report
    assert str(report).startswith("Placed: org/<model>") and "placed" in repr(report)
    assert "| node " in report.to_markdown()
    html = placement._repr_html_()
    assert html == report.to_html() == report._repr_html_()
    page = ElementTree.fromstring(f"<html>{html}</html>")
    assert any("org/<model>" in (text or "") for text in page.itertext())
    (tmp_path / "plan.svg").write_text(report.picture._repr_svg_(), encoding="utf-8")
    assert ElementTree.parse(tmp_path / "plan.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"
    assert report.to_svg() == str(report.picture) == report.picture.svg


def test_a_placement_without_report_shows_its_stages() -> None:
    received = skulk.Placement.from_json(skulk.plan(CARD, CLUSTER).to_json())
    table = ElementTree.fromstring(received._repr_html_())
    assert len(table.findall("tr")) == 1 + len(received.stages)
    assert "<model>" in "".join(table.itertext())
    assert "<table>" in skulk.Placement.by_counts([("cpu", 3)])._repr_html_()


def test_clusters_go_through_json() -> None:
    cluster = skulk.Cluster(
        [
            skulk.Node(
                "a",
                role="management",
                backends={"mlx", "skulk-cpu"},
                memory=skulk.NodeMemory(2, 1),
                bytes_per_second=1e9,
                operations_per_second=1e12,
                layer_seconds=1e-5,
                disk_bytes_per_second=2e9,
                cores=8,
                accelerators=[
                    skulk.Accelerator(
                        vendor="amd",
                        name="x",
                        vram_total_bytes=3,
                        bytes_per_second=5e11,
                        operations_per_second=1e13,
                        layer_seconds=2e-5,
                        round_trip_seconds=3e-5,
                    )
                ],
                interfaces=[skulk.NetworkInterface("en0", "10.0.0.1", "ethernet")],
                downloads={"org/a_model": 0.5},
            ),
            skulk.Node("b"),
        ],
        [
            skulk.Link("a", "b", skulk.Socket("10.0.0.2"), skulk.LinkSpeed(1e-3, 1e9)),
            skulk.Link("b", "a", skulk.Rdma("rdma_en2", "rdma_en3")),
        ],
    )
    assert skulk.Cluster.from_json(cluster.to_json()) == cluster
    data = json.loads(cluster.to_json())
    assert data["links"][1] == {
        "source": "b",
        "sink": "a",
        "type": "rdma",
        "sourceIface": "rdma_en2",
        "sinkIface": "rdma_en3",
        "speed": None,
    }
    assert data["nodes"][0]["downloads"] == {"org/a_model": 0.5}
    assert data["nodes"][0]["layerSeconds"] == 1e-5
    accelerator = data["nodes"][0]["accelerators"][0]
    assert accelerator["vramTotalBytes"] == 3
    assert (accelerator["layerSeconds"], accelerator["roundTripSeconds"]) == (2e-5, 3e-5)
    mesh = skulk.Cluster.mesh([skulk.Node("a")])
    assert mesh.mesh_speed == skulk.LinkSpeed() and skulk.Cluster.from_json(mesh.to_json()) == mesh
    for text in ("", "[]", '{"nodes": [{"id": "a", "colour": "red"}]}'):
        with pytest.raises(skulk.InvalidArgumentError) as caught:
            skulk.Cluster.from_json(text)
        assert caught.value.context["field"] == "cluster"


def test_defaults_are_those_of_rust() -> None:
    # What JSON leaves out gets Rust's defaults, what Python leaves out the dataclasses'.
    text = '{"nodes": [{"id": "a", "accelerators": [{"vendor": "unknown"}]}]}'
    assert skulk.Cluster.from_json(text) == skulk.Cluster([skulk.Node("a", accelerators=[skulk.Accelerator()])])
    assert skulk.plan(CARD, skulk.Cluster.mesh(CLUSTER.nodes)) == skulk.plan(
        CARD, skulk.Cluster(CLUSTER.nodes, mesh_speed=skulk.LinkSpeed(5e-4, 1.17e8))
    )


def test_this_machine_is_a_node() -> None:
    here = skulk.Node.local()
    assert here.id == "local" and here.backends is not None and "skulk-cpu" in here.backends
    assert here.memory is not None and 0 < here.memory.ram_available <= here.memory.ram_total
    assert here.cores and [node.id for node in skulk.Cluster.local().nodes] == ["local"]
    usable = planning.usable_memory(here)
    assert usable is not None and 0 < usable.bytes <= here.memory.ram_total
    cpu = skulk.devices()[0]
    assert (cpu.vendor, cpu.memory_used_bytes) == ("cpu", None)


def test_the_speed_of_a_drive_is_measured(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(bytes(1 << 20))
    (tmp_path / "nothing").touch()
    try:
        speed = skulk.Node.measure_disk(tmp_path / "bytes")
        assert speed > 0 and skulk.Node("a", disk_bytes_per_second=speed).disk_bytes_per_second == speed
    except skulk.FileIoError as error:
        # Not every file system has a drive.
        assert error.hint
    for path in (tmp_path, str(tmp_path / "nothing")):
        with pytest.raises(skulk.FileIoError):
            skulk.Node.measure_disk(path)
    with pytest.raises(skulk.FileNotFoundError):
        skulk.Node.measure_disk(tmp_path / "missing")


def test_what_a_cluster_cannot_say_is_named() -> None:
    memory = skulk.NodeMemory(ram_total=2 * GIB, ram_available=GIB)
    wrong: list[tuple[skulk.Node, str]] = [
        (node("a", 1, bytes_per_second=float("nan")), "bytes_per_second"),
        (node("a", 1, layer_seconds=float("inf")), "layer_seconds"),
        (dataclasses.replace(node("a", 1), memory=dataclasses.replace(memory, ram_total=-1)), "memory.ram_total"),
        (dataclasses.replace(node("a", 1), memory=dataclasses.replace(memory, ram_available=2**64)), "memory.ram_available"),
        (dataclasses.replace(node("a", 1), memory=dataclasses.replace(memory, ram_total=1.5)), "memory.ram_total"),  # type: ignore[arg-type]
        (dataclasses.replace(node("a", 1), role="boss"), "role"),  # type: ignore[arg-type]
    ]
    for one, field in wrong:
        with pytest.raises(skulk.InvalidArgumentError) as found:
            skulk.plan(CARD, skulk.Cluster([one]))
        assert found.value.context["at"] == f"nodes[0].{field}" in str(found.value), found.value
    with pytest.raises(skulk.InvalidArgumentError, match="a to b"):
        speed = skulk.LinkSpeed(round_trip_seconds=-1, bytes_per_second=1e9)
        links = [skulk.Link("a", "b", skulk.Socket("x"), speed=speed)]
        skulk.plan(CARD, skulk.Cluster([node("a", 64), node("b", 64)], links))
    with pytest.raises(skulk.InvalidArgumentError, match="a name for each node"):
        skulk.plan(CARD, skulk.Cluster([node("", 64)]))


def test_engines_by_hand_are_engines_that_there_are() -> None:
    assert planning.is_engine("candle-cuda:1") and not planning.is_engine("skulk-cpu")
    rules: list[Any] = [
        {"engine": "skulk-cpu"},
        {"engine": "zorp"},
        {"layers": ["0..5=gpu"]},
        {"engine": "cpu", "experts": ["0..2=zorp@b"]},
        {"engine": "cpu", "override_tensors": ["mlp=gpu"]},
    ]
    for given in rules:
        with pytest.raises(skulk.PlacementInvalidError, match="expected an engine") as found:
            skulk.Placement.build(STORIES, **given)
        assert found.value.context["field"] == list(given)[-1] and "candle-cuda" in (found.value.hint or "")
        with pytest.raises(skulk.PlacementInvalidError, match="expected an engine"):
            skulk.plan(STORIES, fixed=given)
    for name in ("", "skulk-cpu", "zorp"):
        with pytest.raises(skulk.PlacementInvalidError, match="the name of an engine"):
            skulk.Placement.by_counts([(name, 5)])


def test_contexts_are_those_that_models_have() -> None:
    for asked in (2**40, 256):
        placement = skulk.plan(STORIES, CLUSTER, context_tokens=asked)
        assert placement.context_tokens == min(asked, 512) and (placement.context_limit or 0) <= 512
        placement.check(skulk.ModelCard.from_checkpoint(STORIES))


def test_no_model_has_more_layers_or_takes_more_experts() -> None:
    for layers, used, field in ((5000, 2, "n_layers"), (0, 2, "n_layers"), (2, 9, "n_used")):
        with pytest.raises(skulk.InvalidArgumentError) as found:
            skulk.Inventory.of_experts(layers, attention=1, n_experts=8, n_used=used, expert=1)
        assert found.value.context["field"] == field


def test_what_a_checkpoint_weighs_is_counted() -> None:
    counted = skulk.Inventory.from_checkpoint(STORIES)
    assert counted.exact and len(counted.layers) == 5 and counted.embedding > 0
    assert counted.to_dict()["layers"][0]["kvPerToken"] == counted.layers[0].kv_per_token > 0
    divided = skulk.Inventory.from_card(CARD)
    assert sum(layer.attention + layer.ffn for layer in divided.layers) == CARD.storage_size.in_bytes
    assert EXPERTS.layers[47].n_experts == 16 and not EXPERTS.exact
    card = skulk.ModelCard.from_checkpoint(STORIES)
    assert skulk.plan(STORIES).stages == skulk.plan(card, inventory=counted).stages


@pytest.mark.parametrize("request_", [{}, {"context_tokens": 64, "strictness": "force"}])
def test_a_planned_model_generates_the_same(stories: skulk.Model, request_: dict[str, Any]) -> None:
    expected = stories.generate(PROMPT, max_tokens=24).text()
    placement = skulk.plan(str(STORIES), **request_)
    assert placement.report is not None and placement.report.to_dict()["exact"]
    model = skulk.Model.load(STORIES, placement=placement, threads=1)
    assert [stage.layers for stage in model.stages] == [stage.layers for stage in placement.stages]
    assert model.generate(PROMPT, max_tokens=24).text() == expected


def test_the_context_of_a_plan_is_loaded() -> None:
    placement = skulk.plan(STORIES, context_tokens=64)
    assert placement.context_tokens == skulk.Model.load(STORIES, placement=placement, threads=1).context == 64
    assert skulk.Model.load(STORIES, placement=placement, threads=1, context=32).context == 32
    by_hand = skulk.Placement.by_counts([("cpu", 5)])
    assert by_hand.context_tokens is None
    assert skulk.Model.load(STORIES, placement=by_hand, threads=1).context == 512


def test_the_sessions_of_a_plan_are_known() -> None:
    placement = skulk.plan(STORIES, sessions=3, context_tokens=64)
    assert placement.sessions == skulk.Placement.from_json(placement.to_json()).sessions == 3
    assert skulk.plan(CARD, CLUSTER).sessions == 1
    assert skulk.Placement.by_counts([("cpu", 5)]).sessions is None
    with pytest.raises(skulk.InvalidArgumentError):
        skulk.Model.load(STORIES, placement=placement, sessions=4)


def test_what_drafts_is_planned_and_loaded() -> None:
    path, drafts = FIXTURES / "llama", FIXTURES.parent / "ahead" / "llama_eagle3"
    counted = skulk.Inventory.from_draft_model(path, drafts)
    assert counted.exact and counted.shares_embedding and not counted.shares_head
    placement = skulk.plan(path, context_tokens=128, draft_model=counted)
    drafter = placement.drafter
    assert drafter is not None and not drafter.mtp and drafter.bytes.kv_cache > 0
    weights = sum(layer.attention + layer.ffn for layer in counted.layers) + counted.embedding + counted.head
    assert drafter.bytes.attention + drafter.bytes.feed_forward == weights
    assert placement.budgets[-1].drafter == drafter
    assert skulk.Placement.from_json(placement.to_json()).drafter == drafter
    assert placement.report is not None and "the draft model on" in str(placement.report)
    assert skulk.price(path, placement, context_tokens=128, draft_model=counted).estimate.draft_seconds > 0
    memory = skulk.Model.load(path, placement=placement, draft_model=drafts, threads=1).memory
    assert memory.draft_model is not None and memory.planned is not None
    assert memory.weight_bytes == memory.planned.attention + memory.planned.feed_forward
    with pytest.raises(skulk.InvalidArgumentError, match="draft_model"):
        skulk.Model.load(path, placement=placement, threads=1)
    own = FIXTURES / "qwen3_5"
    placement = skulk.plan(own, context_tokens=128, mtp=True)
    assert placement.drafter is not None and placement.drafter.mtp
    assert skulk.Model.load(own, placement=placement, threads=1).memory.draft_model is not None
    assert skulk.plan(own, context_tokens=128).drafter is None
    with pytest.raises(skulk.InvalidArgumentError, match="mtp"):
        skulk.plan(path, mtp=True)


def test_a_model_tells_its_memory_beside_its_plan(stories: skulk.Model) -> None:
    placement = skulk.plan(STORIES, context_tokens=128)
    model = skulk.Model.load(STORIES, placement=placement, threads=1)
    before = model.memory
    assert model.generate(PROMPT, max_tokens=8).text()
    memory = model.memory
    (planned,) = [budget.bytes for budget in placement.budgets]
    assert memory.planned == planned
    assert 0 < memory.weight_bytes == before.weight_bytes <= planned.attention + planned.feed_forward
    assert before.kv_cache_bytes <= memory.kv_cache_bytes == model.kv_memory.reserved_bytes <= planned.kv_cache
    assert memory.device_bytes == {} and (memory.process_bytes is None or memory.process_bytes > 1 << 20)
    assert stories.memory.planned is None
    model.close()
    with pytest.raises(skulk.InvalidArgumentError):
        _ = model.memory


def test_what_fits_in_no_memory_stays_on_disk() -> None:
    alone = skulk.Cluster([node("a", 32, disk_bytes_per_second=2e9)])
    with pytest.raises(skulk.PlanNoFitError):
        skulk.plan(CARD, alone)
    placement = skulk.plan(CARD, alone, from_disk=True)
    assert placement.ffn_budget is not None and 0 < placement.ffn_budget < 32 * GIB
    assert skulk.Placement.from_json(placement.to_json()).ffn_budget == placement.ffn_budget
    assert placement.report is not None and placement.report.to_dict()["nodes"][0]["onDisk"] > 0
    assert skulk.plan(CARD, CLUSTER, from_disk=True).ffn_budget is None


def test_placements_are_made_by_hand() -> None:
    path = FIXTURES / "mixtral"
    built = skulk.Placement.build(
        path, engine="cpu", experts=["0..1=cpu@shed", "1:2..8=cpu@shed"], override_tensors=[r"layers\.2\.\w+\.experts=CPU"]
    )
    spans = [(it.layers, it.experts) for it in built.experts if it.node == "shed"]
    assert spans == [(range(1), range(8)), (range(1, 2), range(2, 8))]
    by_hand = skulk.Placement.build(path, layers=["0..2=cpu", "2=cpu"], experts=["0..3=cpu"])
    assert [stage.layers for stage in by_hand.stages] == [range(2), range(2, 3)]
    model = skulk.Model.load(path, placement=by_hand, threads=1)
    alone = skulk.Model.load(path, threads=1)
    assert model.generate(PROMPT, max_tokens=8).text() == alone.generate(PROMPT, max_tokens=8).text()
    described = skulk.Placement.build(
        skulk.Inventory.of_experts(4, attention=1, n_experts=8, n_used=2, expert=1), engine="cpu@a", experts=["2=cpu@b"]
    )
    assert (described.n_layers, described.experts[0].node) == (4, "b")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"layers": ["0..2=cpu"]}, "layer"),
        ({"engine": "cpu", "override_tensors": ["attn=CPU"]}, "attn"),
        ({"engine": "cpu", "experts": ["0..9=cpu"]}, "layers"),
    ]
    for options, words in wrong:
        with pytest.raises(skulk.PlacementInvalidError, match=words):
            skulk.Placement.build(path, **options)
    unread: list[dict[str, Any]] = [
        {"layers": ["0..2"]},
        {"experts": ["x=cpu"]},
        {"override_tensors": ["(=CPU"]},
        {"nothing": 1},
    ]
    for given in unread:
        with pytest.raises((skulk.InvalidArgumentError, TypeError)):
            skulk.Placement.build(path, engine="cpu", **given)


def test_what_is_fixed_by_hand_stays() -> None:
    cluster = skulk.Cluster.mesh([node("desk", 8), node("shed", 8)])
    rules: skulk.options.PlacementOptions = {
        "layers": ["0..1=cpu@shed"],
        "experts": ["1:2..8=cpu@desk"],
        "override_tensors": [r"layers\.2\.\w+\.experts=CPU@shed"],
    }
    placement = skulk.plan(FIXTURES / "mixtral", cluster, fixed=rules)
    assert placement.stages[0].node == "shed"
    where = {(it.node, it.layers.start): it.experts for it in placement.experts}
    assert where.get(("desk", 1), range(2, 8)) == range(2, 8)
    report = placement.report
    assert report is not None and len(report.to_dict()["fixed"]) == 3 and "by hand" in str(report)
    inventory = skulk.Inventory.from_checkpoint(FIXTURES / "mixtral")
    card = skulk.ModelCard.from_checkpoint(FIXTURES / "mixtral")
    described = skulk.plan(card, cluster, inventory=inventory, fixed={"engine": "cpu@shed"})
    assert [stage.node for stage in described.stages] == ["shed"]
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"layers": ["0..1=cpu@nowhere"]}, "cpu@nowhere"),
        ({"layers": ["0..1=wgpu@desk"]}, "wgpu@desk"),
        ({"lairs": []}, "lairs"),
    ]
    for fixed, words in wrong:
        with pytest.raises(skulk.InvalidArgumentError, match=words):
            skulk.plan(FIXTURES / "mixtral", cluster, fixed=fixed)  # type: ignore[arg-type]


def test_a_placement_that_arrives_runs_under_this_nodes_name(stories: skulk.Model) -> None:
    here = skulk.Node.local()
    here.id = "desk"
    placement = skulk.Placement.from_json(skulk.plan(STORIES, skulk.Cluster([here])).to_json())
    with pytest.raises(skulk.PlacementInvalidError, match="found a part on `desk`"):
        skulk.Model.load(STORIES, placement=placement)
    model = skulk.Model.load(STORIES, placement=placement, node="desk", threads=1)
    assert model.generate(PROMPT, max_tokens=8).text() == stories.generate(PROMPT, max_tokens=8).text()
    counted = skulk.Placement.by_counts([("cpu", 3), ("cpu", 2)])
    model = skulk.Model.load(STORIES, placement=counted, threads=1)
    assert [stage.engine for stage in model.stages] == ["cpu", "cpu"]


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        ({"sharding": "Diagonal"}, "sharding"),
        ({"transport": "Pigeon"}, "transport"),
        ({"strictness": "careless"}, "strictness"),
        ({"min_nodes": -1}, "min_nodes"),
        ({"context_tokens": 2**64}, "context_tokens"),
        ({"replicas": -1}, "replicas"),
        ({"port": 65_536}, "port"),
        ({"rings": [["a", "a"]], "transport": "mlx_ring"}, "rings"),
        ({"inventory": skulk.Inventory([])}, "inventory"),
        ({"inventory": skulk.Inventory([skulk.LayerBytes(attention=-1)] * 48)}, "inventory"),
        ({"cluster": skulk.Cluster([skulk.Node("a"), skulk.Node("a")])}, "nodes"),
        ({"cluster": skulk.Cluster([skulk.Node("a", cores=-1)])}, "cluster"),
        ({"cluster": skulk.Cluster([skulk.Node("a", layer_seconds=-1.0)])}, "layer_seconds"),
        (
            {"cluster": skulk.Cluster([skulk.Node("a", accelerators=[skulk.Accelerator(round_trip_seconds=1e9)])])},
            "round_trip_seconds",
        ),
        ({"cluster": skulk.Cluster([skulk.Node("a", role="king")])}, "cluster"),  # type: ignore[arg-type]
        ({"cluster": skulk.Cluster.mesh([], skulk.LinkSpeed(float("nan"), 1.0))}, "cluster"),
    ],
)
def test_impossible_requests_name_their_field(request_: dict[str, Any], field: str) -> None:
    with pytest.raises(skulk.InvalidArgumentError) as caught:
        skulk.plan(CARD, **({"cluster": CLUSTER} | request_))
    assert caught.value.context["field"] == field


@pytest.mark.parametrize(
    "arguments",
    [
        (3,),
        (None,),
        (CARD, 3),
        (CARD, CARD),
        (CARD, CLUSTER, "pipeline"),
        (CARD, skulk.Cluster([skulk.Node(object())])),  # type: ignore[arg-type]
    ],
)
def test_wrong_types_are_type_errors(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        skulk.plan(*arguments)


def test_one_name_is_not_several() -> None:
    with pytest.raises(TypeError, match="expected a list"):
        skulk.plan(CARD, CLUSTER, required_nodes="abc")
    with pytest.raises(TypeError):
        skulk.Model.load(STORIES, placement=3)  # type: ignore[arg-type]


def test_what_lies_too_deep_is_refused() -> None:
    deep: Any = 0
    for _ in range(200_000):
        deep = {"deeper": deep}
    endless: Any = []
    endless.append(endless)
    for wrong in (deep, endless):
        with pytest.raises(skulk.InvalidArgumentError, match="at most 128 deep"):
            planning.config_facts({"num_hidden_layers": wrong}, "acme/m")
        with pytest.raises(skulk.InvalidArgumentError, match="at most 128 deep"):
            skulk.Model.load(STORIES, engine=wrong)


@pytest.mark.skipif(sys.platform == "win32", reason="has no timers of signals")
def test_signals_end_what_is_given_without_end() -> None:
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    try:
        with pytest.raises(KeyboardInterrupt):
            planning.has_gpu_offload(itertools.repeat("skulk-cpu"))
    finally:
        signal.signal(signal.SIGALRM, before)


def test_the_functions_behind_plans_say_what_is_wrong() -> None:
    with pytest.raises(skulk.PlanNoFitError) as caught:
        planning.allocate_layers(1, [0.5, 0.5])
    assert caught.value.report is None
    with pytest.raises(skulk.InvalidArgumentError):
        planning.scale(-1, 2.0)
    with pytest.raises(skulk.InvalidArgumentError):
        planning.GgufFile("m.gguf", -1)
    with pytest.raises(skulk.ConfigInvalidError):
        planning.config_facts({"hidden_size": 3}, "acme/m")
    with pytest.raises(skulk.CheckpointTruncatedError):
        planning.gguf_facts(b"GGUF\x03\0\0\0")
    with pytest.raises(skulk.InvalidArgumentError, match="each with `name`"):
        planning.select_gguf([3])  # type: ignore[list-item]
    chunks = planning.prefill_chunks(2**62, 1)
    assert iter(chunks) is chunks and next(chunks) == 1
    file = planning.GgufFile("a/m-Q4_K_M-00001-of-00002.gguf", 7)
    assert file == planning.GgufFile("a/m-Q4_K_M-00001-of-00002.gguf", 7) != planning.GgufFile("b")
    assert planning.select_gguf([file]) == (file, 7) and planning.select_gguf([]) is None
    assert file.holds_a_model and not file.holds_a_projector and "Q4_K_M" in repr(file)
    assert planning.serves("skulk-wgpu-vulkan:0", "skulk-wgpu")
