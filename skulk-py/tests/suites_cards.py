"""Does reading a card end as in the reference? Verdicts on the cases of cards_invalid.json."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import skulk
from suites import same

LATER = "served_spec_"
"""Fields of ``runtime`` that came after the reference."""

def snake(path: str) -> str:
    """The fields of a path as TOML spells them."""
    return re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", path)


def camel_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {re.sub("_([a-z0-9]?)", lambda m: m[1].upper(), key): camel_keys(v) for key, v in value.items()}
    return [camel_keys(item) for item in value] if isinstance(value, list) else value


def without_later(card: dict[str, Any]) -> dict[str, Any]:
    """Without the fields that the reference lacks, which must be empty."""
    if card["facts"] is None:
        del card["facts"]
    runtime = card["runtime"]
    if runtime is not None:
        card["runtime"] = {k: v for k, v in runtime.items() if not (k.startswith("servedSpec") and v is None)}
    return card


def judge(expected: dict[str, Any], given: dict[str, Any], read: Callable[[], skulk.ModelCard]) -> None:
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
    reasons: dict[tuple[str, str], bool] = {
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
