"""Which cases are there? Those of tests/suites, and of the folder that SKULK_EXTRA_SUITES names."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import skulk
from conftest import REPOSITORY

Case = dict[str, Any]

FOLDERS = {"own": REPOSITORY / "tests" / "suites"}
if "SKULK_EXTRA_SUITES" in os.environ:
    FOLDERS["extra"] = Path(os.environ["SKULK_EXTRA_SUITES"])

SECTIONS: set[str] = set()
"""Sections of planner_units.json that a test handles."""


def suites(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The suites of this name, with the name of their folder."""
    for label, folder in FOLDERS.items():
        file = folder / f"{name}.json"
        if label == "own" or file.exists():
            yield label, json.loads(file.read_text(encoding="utf-8"))


def parametrise(found: list[tuple[str, Case]], what: str) -> pytest.MarkDecorator:
    """One test a case, named after it."""
    assert found, f"{what} has no cases"
    names = [
        f"{label}-{i}-{next((case[key] for key in ('name', 'file', 'modelId', 'tag') if key in case), what)}"
        for i, (label, case) in enumerate(found)
    ]
    return pytest.mark.parametrize("case", [case for _, case in found], ids=names)


def each(name: str) -> pytest.MarkDecorator:
    """One test for each case of the suites of this name."""
    return parametrise([(label, case) for label, suite in suites(name) for case in suite["cases"]], name)


def unit(section: str) -> pytest.MarkDecorator:
    """One test for each vector of a section of planner_units.json; of a part of it as in `gguf.rank`."""
    SECTIONS.add(section)
    found = []
    for label, suite in suites("planner_units"):
        vectors: Any = suite["units"]
        for step in section.split("."):
            vectors = vectors.get(step, {})
        found += [(label, vector) for vector in vectors]
    return parametrise(found, section)


def card_of(data: Any) -> skulk.ModelCard:
    """The card that a case gives as data."""
    return skulk.ModelCard.from_json(json.dumps(data))


def same(found: object, expected: object) -> bool:
    """As JSON is the same, where 1 is neither 1.0 nor true."""
    return json.dumps(found, sort_keys=True) == json.dumps(expected, sort_keys=True)
