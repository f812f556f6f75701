"""What does a type checker see? Checked by mypy --strict, never run."""

from __future__ import annotations

import pathlib
from typing import Literal

from typing_extensions import assert_type

import skulk


def generating(path: pathlib.Path) -> None:
    model = skulk.Model.load(path, stages=2, kv="f32", progress=print, cancel=skulk.CancelToken())
    model = skulk.Model.load(path, placement=[("candle-cuda", 20), ("cpu", 12)], ffn_on_cpu=True)
    assert_type(model.stages[0].layers, range)
    assert_type(model.tokenizer.encode("text"), list[int])
    for event in model.generate("text", temperature=1, logit_bias={3: -1.5}, stop=["."], logprobs=2):
        assert_type(event, skulk.Event)
        if event.token is not None:
            assert_type(event.token.top_logprobs, list[skulk.TokenLogprob])
        if event.finish is not None:
            assert_type(event.finish.reason, Literal["eos", "stop", "length"])
    with model.session().generate([1, 2, 3], append=False) as generation:
        assert_type(generation.output(), skulk.Output)
        assert_type(generation.text(), str)


async def streaming(model: skulk.Model) -> str:
    generation = model.generate("text")
    assert_type(await anext(generation), skulk.Event)
    return "".join([event.text async for event in generation])


def failing(model: skulk.Model) -> None:
    try:
        model.generate("text")
    except skulk.ContextOverflowError as error:
        assert_type(error.code, str)
        assert_type(error.hint, str | None)
        assert_type(error.retry, Literal["never", "now", "after_replan"])


def mistaken(model: skulk.Model) -> None:
    model.generate(3)  # type: ignore[arg-type]
    model.generate("text", temprature=1.0)  # type: ignore[call-arg]
    model.stages[0].layers = range(3)  # type: ignore[misc]
    skulk.Model.load("path", kv="f8")  # type: ignore[arg-type]
    skulk.Model.load("path", 2)  # type: ignore[call-arg]
