"""What does the package make of a case that all languages share? The same data, in camelCase, in each of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import skulk

ROOT = Path(__file__).resolve().parents[2]
"""What paths of cases are relative to."""

Case = dict[str, Any]

KINDS = {code: kind for kind, code in skulk.error_kinds()}
"""Kinds of errors by code."""


def snake(options: Case) -> Case:
    """Options as Python spells them."""
    return {re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", key): value for key, value in options.items()}


def load(path: str, options: Case) -> skulk.Model:
    given: Any = {"threads": 1} | snake(options)
    return skulk.Model.load(ROOT / path, **given)


def number(value: Any) -> Any:
    """Numbers that JSON does not have are texts in cases."""
    if isinstance(value, dict):
        return {int(key): number(item) for key, item in value.items()}
    return {"-Infinity": float("-inf"), "NaN": float("nan")}.get(value, value) if isinstance(value, str) else value


def turn(session: skulk.Session, asked: Case) -> Case:
    options = {key: number(value) for key, value in snake(asked["options"]).items()}
    generation = session.generate(asked["prompt"], **options)
    events: list[Case] = []
    try:
        for event in generation:
            events.append(event.to_dict())
            if len(events) == asked.get("cancelAfter"):
                generation.cancel()
                generation.cancel()
    except skulk.Error as error:
        # How many events come before it is a matter of time.
        return {"error": error.code, "events": events[: asked["cancelAfter"]]}
    for step in events:
        if step["finish"] is not None:
            del step["finish"]["timings"]
    return {"text": "".join(step["text"] for step in events), "events": events}


def generation(case: Case) -> list[Case]:
    """What a conversation's turns write, without times."""
    with load(case["model"], case.get("load", {})) as model, model.session() as session:
        return [turn(session, asked) for asked in case["turns"]]


def failing(case: Case) -> None:
    options = {key: number(value) for key, value in case.get("options", {}).items()}
    match case["call"]:
        case "load":
            load(case["path"], options)
        case "generate":
            load(case["path"], case.get("load", {})).generate(case["prompt"], **snake(options)).output()
        case "card":
            skulk.ModelCard.from_toml(case["toml"])
        case "vindex":
            skulk.VindexReader(ROOT / case["path"])
        case "plan":
            skulk.plan(ROOT / case["path"], skulk.Cluster([skulk.Node("a")]), **snake(options))
        case other:
            raise AssertionError(f"there is no such call: {other}")


def error(case: Case) -> Case:
    """How a call is refused. Places are named as Python names them: options in snake_case, paths as they were given."""
    try:
        failing(case)
    except skulk.Error as found:
        field = found.context.get("field")
        return {
            "code": found.code,
            "kind": KINDS[found.code],
            "retry": found.retry,
            "field": None if field is None else camel(field),
            "places": sorted(found.context),
        }
    raise AssertionError(f"{case['name']} was not refused")


def camel(name: str) -> str:
    return re.sub("_([a-z])", lambda found: found[1].upper(), name)


def vindex(case: Case) -> Case:
    """What a folder holds, and what is found in it."""
    with skulk.VindexReader(ROOT / case["path"], threads=1) as reader:
        file: Callable[[Case], Case] = lambda tensor: tensor | {"file": Path(tensor["file"]).name}
        query = [1.0] + [0.0] * (reader.hidden_size - 1)
        return {
            "index": reader.index,
            "layers": reader.layers,
            "lacks": reader.lacks,
            "bands": reader.bands.to_dict(),
            "tensors": [file(tensor.to_dict()) for tensor in reader.tensors],
            "parts": [part.to_dict() for part in reader.parts()],
            "feature": None if (found := reader.feature(0, 0)) is None else found.to_dict(),
            "select": reader.select(limit=3).to_dict(),
            "nearest": [hit.to_dict() for hit in reader.nearest(query, 2)],
        }


SUITES: dict[str, Callable[[Case], Any]] = {"generation": generation, "errors": error, "vindex": vindex}


def main() -> None:
    """Writes what is observed into the suites, as what is expected."""
    for name, observe in SUITES.items():
        path = ROOT / "tests" / "suites" / f"{name}.json"
        suite = json.loads(path.read_text(encoding="utf-8"))
        for case in suite["cases"]:
            case["expected"] = observe(case)
        cases = ",\n".join(json.dumps(case, ensure_ascii=False) for case in suite["cases"])
        about = json.dumps(suite["about"], ensure_ascii=False)
        path.write_text(f'{{"about": {about},\n"cases": [\n{cases}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
