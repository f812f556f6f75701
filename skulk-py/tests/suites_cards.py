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
    runtime = card["runtime"]
    if runtime is not None:
        card["runtime"] = {k: v for k, v in runtime.items() if not (k.startswith("servedSpec") and v is None)}
    return card


def judge(expected: dict[str, Any], read: Callable[[], skulk.ModelCard]) -> None:
    """Compares one reading of a case with the reference's. What this library refuses beyond that, and whether on
    purpose, is judged where it is decided: by the runner in Rust."""
    accepted = expected["accepted"]
    errors = {(field(error), class_of(error)) for error in expected.get("errors") or []}
    later = {(path, kind) for path, kind in errors if kind == "unknown" and path.startswith(f"runtime.{LATER}")}
    errors -= later
    try:
        card = read()
    except skulk.CardInvalidError as error:
        found = {(snake(fault.field), class_(fault.kind)) for fault in error.faults}
        assert found and found >= errors
    else:
        assert accepted or (later and not errors), f"accepted; the reference has {expected}"
        assert not accepted or same(without_later(card.to_dict()), expected["card"])


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
