"""Does the Python package agree with the software whose cards and profiles it speaks? Cases as data."""

from __future__ import annotations

import re
from typing import Any

import pytest

import skulk
from skulk import planning
from suites import SECTIONS, Case, card_of, each, parametrise, same, suites, unit

LATER = "served_spec_"
"""Fields of ``runtime`` that came after the reference."""

NOT_SPOKEN = {"memoryDisplay"}
"""Sections that this library does not speak: it has its own way to write sizes."""


def snake(path: str) -> str:
    """The fields of a path as TOML spells them."""
    return re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", path)


def camel_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {re.sub("_([a-z0-9]?)", lambda m: m[1].upper(), key): camel_keys(v) for key, v in value.items()}
    return [camel_keys(item) for item in value] if isinstance(value, list) else value


def without_later(card: dict[str, Any]) -> dict[str, Any]:
    """Without the fields that the reference lacks, which must be empty."""
    runtime = card["runtime"]
    if runtime is not None:
        card["runtime"] = {k: v for k, v in runtime.items() if not (k.startswith("servedSpec") and v is None)}
    return card


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
    if case.get("toml") is not None and case["viaToml"] is not None:
        judge(case["viaToml"], case["input"], lambda: skulk.ModelCard.from_toml(case["toml"]))
    if case["viaCamelJson"] is not None:
        judge(case["viaCamelJson"], case["input"], lambda: card_of(camel_keys(case["input"])))


def judge(expected: dict[str, Any], given: dict[str, Any], read: Any) -> None:
    """Compares one reading of a case with the reference's."""
    accepted = expected["accepted"]
    errors = {(field(error), class_of(error)) for error in expected.get("errors") or []}
    later = {(path, kind) for path, kind in errors if kind == "unknown" and path.startswith(f"runtime.{LATER}")}
    errors -= later
    try:
        card = read()
    except skulk.CardInvalidError as error:
        faults = error.faults
    else:
        assert accepted or (later and not errors), f"accepted; the reference has {expected}"
        assert not accepted or same(without_later(card.to_dict()), expected["card"])
        return
    assert faults
    # The reference may fail without saying where.
    if not accepted and not errors and not later:
        return
    own = [fault for fault in faults if is_deliberate(fault, given)]
    assert own or not accepted, f"refused for {faults}; the reference accepts it"
    found = {(snake(fault.field), class_(fault.kind)) for fault in faults if fault not in own}
    assert found == errors


def class_(kind: str) -> str:
    """The reference tells wrong values and values of a wrong type apart only in part."""
    return "value" if kind == "type" else kind


def field(error: dict[str, Any]) -> str:
    return snake(".".join(map(str, error["field"])))


def class_of(error: dict[str, Any]) -> str:
    kind: str = error["type"]
    known = {"extra_forbidden": "unknown", "missing": "missing", "value_error": "value", "literal_error": "value"}
    if kind in known:
        return known[kind]
    if kind.startswith("greater_than"):
        return "range"
    assert kind.endswith("_type"), kind
    return "value"


def lookup(table: Any, name: str) -> Any:
    """A field in either spelling."""
    if not isinstance(table, dict):
        return None
    return next((value for key, value in table.items() if snake(key) == name), None)


def at(given: Any, path: str) -> Any:
    for step in path.split("."):
        if isinstance(given, list):
            given = given[int(step)] if step.isdigit() and int(step) < len(given) else None
        else:
            given = lookup(given, step)
    return given


def is_deliberate(fault: skulk.CardFault, given: dict[str, Any]) -> bool:
    """Whether this library refuses here what the reference accepts, for a documented reason that holds of the
    input's own values."""
    path = snake(fault.field)
    value = at(given, path)
    runtime = lookup(given, "runtime")

    def named(name: str) -> bool:
        text = lookup(runtime, name)
        return isinstance(text, str) and text != ""

    def below(least: float) -> bool:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and value < least

    heads = lookup(runtime, "mtp_heads") is True
    drafts = ("mtp_sidecar_repo", "mtp_norm_convention", "mtp_concat_order")
    reasons = {
        ("model_id", "value"): value == "",
        ("placement.min_vram_gib", "range"): below(0),
        ("placement.max_context_tokens", "range"): below(1),
        ("runtime.mtp_heads", "conflict"): heads and not named("mtp_sidecar_repo"),
        ("runtime.assistant_model_repo", "conflict"): named("assistant_model_repo")
        and (heads or any(map(named, drafts))),
        ("runtime.served_spec_n_max", "range"): below(1),
        ("runtime.served_spec_draft_repo", "conflict"): value is not None and not named("served_spec_draft_file"),
        ("runtime.served_spec_draft_file", "conflict"): value is not None and not named("served_spec_draft_repo"),
    }
    if (path, fault.kind) in reasons:
        return reasons[path, fault.kind]
    if fault.kind == "range":
        return path.endswith("storage_size.in_bytes") and below(0)
    # Values of fields that the reference does not know at all.
    return fault.kind in ("type", "value") and path.startswith(f"runtime.{LATER}") and value is not None


CARDS = {case["file"]: case["card"] for _, suite in suites("cards") for case in suite["cases"]}


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
    card = None if case["card"] is None else card_of(case["card"])
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
    result = profile.reasoning(case["reasoningEffort"], case["enableThinking"])
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
    card = small_card(facts["storageBytes"], facts["nLayers"], facts["kvHeads"], facts["gguf"])
    tokens = case["contextBudget"] or 0
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


@unit("admitMaxTokens")
def test_requests_are_admitted(case: Case) -> None:
    prompt, requested, limit = case["promptTokens"], case["requested"], case["limit"]
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
    media = [(start, end) for start, end in case["mediaRegions"] or []]
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
    rings = planning.rings(small_card(1 << 30, 8, None, False), cluster, transport="Direct")
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


def test_every_section_has_a_test() -> None:
    for _, suite in suites("planner_units"):
        for section, vectors in suite["units"].items():
            if section in SECTIONS | NOT_SPOKEN | {"memoryConstants"}:
                continue
            assert isinstance(vectors, dict), f"nothing runs {section}"
            for part in vectors:
                assert f"{section}.{part}" in SECTIONS, f"nothing runs {section}.{part}"
