"""Do texts keep to schemas, expressions and grammars that Python gives?"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

import skulk
from conftest import FIXTURES

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"z": {"type": "boolean"}, "a": {"type": "array", "items": {"enum": ["x", "y"]}, "maxItems": 2}},
    "required": ["z", "a"],
    "additionalProperties": False,
    "x-guidance": {"whitespace_flexible": False},
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "za", "strict": True, "schema": SCHEMA}}


@pytest.fixture(scope="module")
def model() -> skulk.Model:
    template = "{% for m in messages %}{{ m.content }}\n{% endfor %}"
    return skulk.Model.load(FIXTURES / "llama", threads=1, chat_template=template)


def check(text: str) -> None:
    value = json.loads(text)
    assert list(value) == ["z", "a"]
    assert isinstance(value["z"], bool) and len(value["a"]) <= 2 and set(value["a"]) <= {"x", "y"}


@pytest.mark.parametrize("form", [{"json_schema": SCHEMA}, {"response_format": FORMAT}])
@pytest.mark.parametrize("choice", [{}, {"temperature": 1.0, "seed": 3}, {"temperature": 1.0, "top_k": 4}])
def test_json_keeps_to_its_schema(model: skulk.Model, form: Any, choice: Any) -> None:
    output = model.generate("Once", max_tokens=100, **form, **choice).output()
    check(output.text)
    assert output.finish.reason == "eos"
    for other in model.generate(["Once", "Twice"], max_tokens=100, **form, **choice):
        check(other.text)
    answer = model.chat("Once", max_tokens=100, **form, **choice).answer()
    check(answer.text)
    assert answer.finish.reason == "stop"


def test_expressions_and_grammars(model: skulk.Model) -> None:
    assert re.fullmatch("[ab]{3}c?", model.generate("Once", regex="[ab]{3}c?", max_tokens=20).text())
    grammar = 'start: word (" " word)~2\nword: "yes" | "no"\n'
    words = model.session().generate("Once", grammar=grammar, max_tokens=40).text().split(" ")
    assert len(words) == 3 and set(words) <= {"yes", "no"}


def test_what_ends_early_is_a_beginning(model: skulk.Model) -> None:
    output = model.generate("Once", json_schema=SCHEMA, max_tokens=2).output()
    assert output.finish.reason == "length" and '{"z":'.startswith(output.text[:5])


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"regex": "("}, "regex"),
        ({"grammar": "start: nothing"}, "grammar"),
        ({"json_schema": {"type": "tree"}}, "json_schema"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"regex": "a", "grammar": 'start: "a"'}, "response_format"),
        ({"regex": "a", "ignore_eos": True}, "ignore_eos"),
        ({"json_schema": {"const": float("inf")}}, "json_schema"),
        ({"json_schema": {"enum": [float("nan"), 10**400]}}, "json_schema"),
        ({"json_schema": {"properties": {True: {"const": 1}}}}, "json_schema"),
        ({"json_schema": {"properties": {None: {"const": 1}}}}, "json_schema"),
        ({"response_format": {"type": "json", "schema": {"const": float("-inf")}}}, "response_format"),
    ],
)
def test_what_cannot_be_is_refused(model: skulk.Model, options: Any, field: str) -> None:
    with pytest.raises(skulk.InvalidArgumentError) as caught:
        model.generate("Once", **options)
    assert caught.value.context["field"] == field
