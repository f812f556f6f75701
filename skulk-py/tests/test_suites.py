"""Does the Python package agree with the software whose cards and plans it speaks? Cases as data."""

from __future__ import annotations

import observed
import pytest

import skulk
from skulk import planning
from suites import SECTIONS, Case, card_of, each, parametrise, same, suites, unit
from suites_cards import camel_keys, judge, snake, without_later
from suites_placements import (
    ARRANGING,
    LATE,
    described,
    is_refused_here,
    have_vram,
    is_over,
    is_valid,
    planned,
    problem,
    rule,
)

NOT_SPOKEN = {"memoryDisplay"}
"""Sections that this library does not speak: it has its own way to write sizes."""


@each("cards")
def test_shipped_cards_are_written_as_the_reference_writes_them(case: Case) -> None:
    card = card_of(case["card"])
    assert same(without_later(card.to_dict()), case["card"])
    text = card.to_toml()
    for again in (skulk.ModelCard.from_toml(text), skulk.ModelCard.from_json(card.to_json())):
        assert again == card and again.to_toml() == text and again.to_json() == card.to_json()


@each("cards_invalid")
def test_cards_are_accepted_and_refused_as_by_the_reference(case: Case) -> None:
    # Some cases cannot be written as TOML, and the reference was not run on some.
    if case.get("toml") is not None and case.get("viaToml") is not None:
        judge(case["viaToml"], case["input"], lambda: skulk.ModelCard.from_toml(case["toml"]))
    if case.get("viaCamelJson") is not None:
        judge(case["viaCamelJson"], case["input"], lambda: card_of(camel_keys(case["input"])))


CARDS: dict[str, Case] = {}
"""Cards by file, the first of each."""
for _, suite in suites("cards"):
    for case in suite["cases"]:
        CARDS.setdefault(case["file"], case["card"])


@each("profiles_builtin")
def test_cards_that_ship_with_the_reference_resolve_as_there(case: Case) -> None:
    card, model_id = card_of(CARDS[case["file"]]), case["modelId"]
    resolve = skulk.Profile.resolve
    assert same(card.profile().to_dict(), case["profile"])
    assert same(resolve(model_id, card).to_dict(), case["profile"])
    known = resolve(model_id, card, tokenizer_tools=True, tokenizer_thinking=True)
    assert same(known.to_dict(), case["profileTokenizerToolsThinking"])
    asked = resolve(model_id, card, has_messages=True, has_tools=True)
    assert same(asked.to_dict(), case["profileWithToolsRequest"])
    assert skulk.is_gemma4_family(model_id, card) is case["isGemma4Family"]


@each("profiles_synthetic")
def test_every_rule_resolves_as_in_the_reference(case: Case) -> None:
    card = None if case.get("card") is None else card_of(case["card"])
    tokenizer, request = case.get("tokenizer") or {}, case.get("taskParams")
    profile = skulk.Profile.resolve(
        case["modelId"],
        card,
        tokenizer_tools=tokenizer.get("hasToolCalling") or False,
        tokenizer_thinking=tokenizer.get("hasThinking") or False,
        has_messages=None if request is None else request.get("chatTemplateMessagesPresent") or False,
        has_tools=None if request is None else request.get("toolsPresent") or False,
    )
    assert same(profile.to_dict(), case["profile"])
    assert skulk.is_gemma4_family(case["modelId"], card) is case["isGemma4Family"]


@parametrise(
    [
        (label, case | {"facts": suite["profiles"][case["profile"]]})
        for label, suite in suites("reasoning_params")
        for case in suite["cases"]
    ],
    "reasoning_params",
)
def test_requests_are_normalised_as_in_the_reference(case: Case) -> None:
    facts = case["facts"]
    profile = skulk.Profile.permissive()
    if facts is not None:
        # The part of a profile that requests are read by.
        profile = skulk.Profile(
            family="generic",
            supports_thinking=facts["supportsThinking"],
            supports_thinking_toggle=facts["supportsThinkingToggle"],
            supports_thinking_budget=False,
            default_reasoning_effort=facts["defaultReasoningEffort"],
            disabled_reasoning_effort=facts["disabledReasoningEffort"],
            thinking_format="none",
            supports_image_input=False,
            supports_audio_input=False,
            supports_tool_calling=False,
            builtin_tools=(),
            tool_call_format="generic",
            prompt_renderer="tokenizer",
            output_parser="generic",
            supports_native_multimodal=False,
        )
    result = profile.reasoning(case.get("reasoningEffort"), case.get("enableThinking"))
    assert result == skulk.Reasoning(case["outEffort"], case["outEnableThinking"])


@unit("allocateLayersProportionally")
def test_layers_are_shared_out(case: Case) -> None:
    total, fractions = case["totalLayers"], case["fractions"]
    if "error" not in case:
        assert planning.allocate_layers(total, fractions) == case["layers"]
        return
    with pytest.raises(skulk.PlanNoFitError if fractions else skulk.InvalidArgumentError):
        planning.allocate_layers(total, fractions)


@unit("engineOf")
def test_tags_name_engines(case: Case) -> None:
    engine = planning.engine_of(case["tag"])
    assert engine == case["engine"]
    assert (engine and planning.is_multi_node(engine)) == case["multiNode"]


@unit("resolveNodeBackend")
def test_backends_are_resolved(case: Case) -> None:
    backend = planning.resolve_backend(case["compatible"], case["preference"], case["node"])
    assert backend == case["backend"]
    assert (backend and planning.engine_of(backend)) == case["engine"]


@unit("hasGpuOffloadBackend")
def test_some_backends_use_graphics_memory(case: Case) -> None:
    assert planning.has_gpu_offload(case["backends"]) is case["result"]


@unit("isVpnAddress")
def test_addresses_of_private_networks(case: Case) -> None:
    assert planning.is_vpn_address(case["ip"]) is case["vpn"]


def small_card(size: int, n_layers: int, kv_heads: int | None, gguf: bool) -> skulk.ModelCard:
    """A card with these facts and no others."""
    return skulk.ModelCard(
        model_id="test/model",
        storage_size=skulk.StorageSize(size),
        n_layers=n_layers,
        hidden_size=1024,
        supports_tensor=True,
        num_key_value_heads=kv_heads,
        tasks=("TextGeneration",),
        gguf_file="model.gguf" if gguf else None,
    )


@unit("estimateShardFootprint")
def test_footprints(case: Case) -> None:
    facts = case["card"]
    card = small_card(facts["storageBytes"], facts["nLayers"], facts.get("kvHeads"), facts["gguf"])
    tokens = case.get("contextBudget") or 0
    assert planning.shard_footprint(card, case["fraction"], tokens) == case["footprintBytes"]
    assert planning.kv_bytes(card, tokens) == case["kvBytesFull"]
    assert planning.kv_bytes_per_token(card) == case["perTokenKvBytes"]


OURS = {
    "MEMORY_OVERHEAD_FACTOR": planning.OVERHEAD,
    "LLAMA_CPP_MEMORY_OVERHEAD_FACTOR": planning.OVERHEAD_GGUF,
    "MEMORY_OVERHEAD_FLOOR": planning.OVERHEAD_FLOOR,
    "GPU_WORKING_SET_FRACTION": planning.RAM_SHARE,
    "GPU_VRAM_WORKING_SET_FRACTION": planning.VRAM_SHARE,
    "UMA_GPU_OS_HEADROOM": planning.UNIFIED_HEADROOM,
    "KV_CONTEXT_BUDGET_TOKENS": planning.CONTEXT_TOKENS,
    "KV_HEAD_DIM_FALLBACK": planning.HEAD_DIM,
    "KV_DTYPE_BYTES": planning.KV_VALUE_BYTES,
}


def test_constants() -> None:
    SECTIONS.add("memoryConstants")
    for _, suite in suites("planner_units"):
        for name, value in suite["units"].get("memoryConstants", {}).items():
            assert OURS[name] == value, name


@unit("memoryArithmetic")
def test_bytes_are_rounded(case: Case) -> None:
    # Bytes are never negative here; halves are rounded to even numbers on both sides of 0.
    sign, size = (-1 if case["bytes"] < 0 else 1), abs(case["bytes"])
    assert sign * planning.scale(size, case["times"]) == case["product"]
    assert sign * planning.divide(size, case["times"]) == case["quotient"]
    with pytest.raises(skulk.InvalidArgumentError, match="divisor"):
        planning.divide(size, 0)


@unit("admitMaxTokens")
def test_requests_are_admitted(case: Case) -> None:
    prompt, requested, limit = case["promptTokens"], case.get("requested"), case.get("limit")
    if "error" not in case:
        assert planning.admit_max_tokens(prompt, requested, case["default"], limit) == case["maxTokens"]
        return
    with pytest.raises(skulk.ContextOverflowError) as caught:
        planning.admit_max_tokens(prompt, requested, case["default"], limit)
    needed = prompt + (1 if requested is None else requested)
    assert caught.value.detail == {"needed": needed, "available": limit}
    # The reference names these numbers, too.
    assert all(str(n) in caught.value.message for n in (prompt, requested, limit) if n is not None)


@unit("footprintExceedsUsable")
def test_footprints_may_exceed_a_little(case: Case) -> None:
    exceeds = planning.footprint_exceeds(case["footprint"], case["usable"], case["tolerance"])
    assert exceeds is case["exceeds"]


@unit("prefillChunkSizes")
def test_prompts_are_cut_around_images(case: Case) -> None:
    media = [(start, end) for start, end in case.get("mediaRegions") or []]
    chunks = planning.prefill_chunks(case["totalTokens"], case["maxChunk"], media, case["offset"])
    assert list(chunks) == case["chunks"]


def turned(ring: list[str]) -> tuple[str, ...]:
    """The same ring, from the first of its nodes by name."""
    first = ring.index(min(ring))
    return (*ring[first:], *ring[:first])


@unit("topologyCycles")
def test_rings_are_among_the_references_cycles(case: Case) -> None:
    links = [skulk.Link(source, sink, skulk.Socket("10.0.0.1")) for source, sink in case["edges"]]
    cluster = skulk.Cluster([skulk.Node(name) for name in case["nodes"]], links)
    assert planning.leaves(cluster) == case["leaves"]
    rings = planning.rings(small_card(1 << 30, 8, None, False), cluster, transport="direct")
    ours, cycles = set(map(turned, rings)), set(map(turned, case["cycles"]))
    assert ours <= cycles
    # One ring stands for all cycles of the same nodes.
    assert set(map(frozenset, ours)) == set(map(frozenset, cycles))


@unit("configJson")
def test_configurations_are_read_as_the_reference_does(case: Case) -> None:
    if "error" not in case:
        facts = planning.config_facts(case["config"], "acme/m")
        vision = case["vision"]
        assert (facts.vision is None) == (vision is None)
        if facts.vision is not None:
            given = {snake(name): value for name, value in vision.items()}
            assert {name: getattr(facts.vision, name) for name in given} == given
        found = (facts.n_layers, facts.hidden_size, facts.num_key_value_heads, facts.max_position_embeddings)
        assert found == tuple(case[key] for key in ("layerCount", "hiddenSize", "kvHeads", "maxPos"))
        assert facts.supports_tensor is case["supportsTensor"]
        return
    with pytest.raises(skulk.ConfigInvalidError) as caught:
        planning.config_facts(case["config"], "acme/m")
    # One error of ours for any of the reference's, at one of the fields that it names, should it name any.
    places = [".".join(map(str, fault["loc"])) for fault in case.get("detail") or [] if isinstance(fault, dict)]
    assert not any(places) or caught.value.context["field"] in places


@unit("gguf.rank")
def test_quantisations_are_ranked_as_the_reference_does(case: Case) -> None:
    file = planning.GgufFile(case["name"])
    found = (file.quant_rank, file.quant_label, file.shard_base, file.download_patterns)
    assert found == tuple(case[key] for key in ("rank", "label", "shardBase", "allowPatterns"))


@unit("gguf.select")
def test_files_are_selected_as_the_reference_does(case: Case) -> None:
    choice = planning.select_gguf([planning.GgufFile(file["name"], file["size"]) for file in case["files"]])
    found = (None, None) if choice is None else (choice[0].name, choice[1])
    assert found == (case["selected"], case["groupSize"])


@unit("gguf.headers")
def test_headers_are_read_as_the_reference_does(case: Case) -> None:
    start = bytes.fromhex(case["headerHex"])
    if "error" in case:
        kinds = {
            "not a GGUF file": skulk.CheckpointInvalidError,
            "unsupported GGUF version": skulk.CheckpointInvalidError,
            "unknown GGUF": skulk.CheckpointInvalidError,
            "truncated": skulk.CheckpointTruncatedError,
            "missing": skulk.ConfigInvalidError,
        }
        with pytest.raises(next(kind for part, kind in kinds.items() if part in case["error"])):
            planning.gguf_facts(start)
        return
    facts = planning.gguf_facts(start)
    found = {
        "nLayers": facts.n_layers,
        "hiddenSize": facts.hidden_size,
        "numKeyValueHeads": facts.num_key_value_heads,
        "contextLength": facts.context_length,
    }
    assert same(found, case["fields"])


@each("placements")
def test_placements_are_the_references(case: Case) -> None:
    if is_refused_here(case):
        try:
            problem(case)
        except skulk.CardInvalidError:
            return
        raise AssertionError("a card was taken that cannot be")
    card, cluster, request = problem(case)
    expected = case["expected"]
    vram = {node.id: planning.usable_vram(node) for node in cluster.nodes}
    assert {name: size for name, size in vram.items() if size is not None} == expected["usableVram"]

    # The cycles that the reference considered, in its order; where there were too many to record, the one that it
    # took.
    order = expected.get("nodeOrder")
    rings = expected.get("cycles")
    if rings is None and order is not None:
        rings = [order]
    result = planned(card, cluster, request | {"rings": rings})
    # Skulk's documentation promises both, its planner looks at neither; this library's does.
    if order is not None and not have_vram(card, cluster, order):
        if isinstance(result, skulk.Placement):
            nodes = [stage.node for stage in result.stages]
            assert have_vram(card, cluster, nodes) and nodes != order
        else:
            assert rule(result) == "min_vram"
        return
    if expected["ok"]:
        assert isinstance(result, skulk.Placement), str(result)
        found = described(result)
        limits = [expected["contextTokenLimit"], card.placement.max_context_tokens]
        assert found["contextTokenLimit"] == min((n for n in limits if n is not None), default=None)
        found["contextTokenLimit"] = expected["contextTokenLimit"]
        wanted = {key: value for key, value in expected.items() if key not in ("cycles", "usableVram")}
        assert found == wanted and same(found, wanted)
        return
    assert not isinstance(result, skulk.Placement), str(result)
    kind, found_rule = expected["errorType"], rule(result)
    pending = isinstance(result, skulk.PlanPendingError)
    if found_rule == "min_vram":
        assert card.placement.min_vram_gib is not None
    elif kind == "PlacementInfoPendingError":
        assert pending and found_rule in ("connected", "memory")
    else:
        assert kind in (LATE, "PlacementError") and not pending
        assert (found_rule in ARRANGING) == (kind == LATE)


def test_nodes_that_only_links_name_are_nodes() -> None:
    cases = [case for _, suite in suites("placements") for case in suite["cases"] if case["expected"]["ok"]]
    case = next(case for case in cases if len(case["expected"]["nodeOrder"]) > 1)
    unnamed = case | {"input": case["input"] | {"nodes": []}}
    assert planned(*problem(unnamed)) == planned(*problem(case))


@each("placements")
def test_the_planners_own_rings_are_as_good(case: Case) -> None:
    if is_refused_here(case):
        return
    card, cluster, request = problem(case)
    result = planned(card, cluster, request)
    turned = planned(card, skulk.Cluster(cluster.nodes[::-1], cluster.links[::-1]), request)
    if isinstance(result, skulk.Placement):
        assert result == turned
    else:
        assert str(result) == str(turned)

    expected = case["expected"]
    # Rings that pass the rule of memory are there for the reference if it placed the model, or failed later.
    late = expected.get("errorType") == LATE
    order = expected.get("nodeOrder")
    if isinstance(result, skulk.Placement):
        assert expected["ok"] or late, f"expected {expected['errorType']}, found {result}"
        is_valid(card, cluster, result)
        if order is not None and have_vram(card, cluster, order):
            assert len(result.stages) == len(order)
    elif late:
        assert rule(result) in ARRANGING
    elif expected["ok"]:
        if rule(result) == "layers":
            assert is_over(card, cluster, expected)
        else:
            assert rule(result) == "min_vram" and not have_vram(card, cluster, order), str(result)
    else:
        pending = expected["errorType"] == "PlacementInfoPendingError"
        assert isinstance(result, skulk.PlanPendingError) is pending


def test_every_section_has_a_test() -> None:
    for _, suite in suites("planner_units"):
        for section, vectors in suite["units"].items():
            if section in SECTIONS | NOT_SPOKEN | {"memoryConstants"}:
                continue
            assert isinstance(vectors, dict), f"nothing runs {section}"
            for part in vectors:
                assert f"{section}.{part}" in SECTIONS, f"nothing runs {section}.{part}"


@each("generation")
def test_models_write_what_they_write_in_every_language(case: Case) -> None:
    assert observed.generation(case) == case["expected"]


@each("errors")
def test_what_is_refused_is_refused_alike_in_every_language(case: Case) -> None:
    assert observed.error(case) == case["expected"]


@each("vindex")
def test_folders_hold_the_same_in_every_language(case: Case) -> None:
    assert observed.vindex(case) == case["expected"]
