"""What does a type checker see? Checked by mypy --strict, never run."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from typing_extensions import assert_type

import skulk


def generating(path: pathlib.Path) -> None:
    model = skulk.Model.load(path, stages=2, kv="f32", progress=print, cancel=skulk.CancelToken())
    model = skulk.Model.load(path, placement=[("candle-cuda", 20), ("cpu", 12)], ffn_on_cpu=True)
    model = skulk.Model.load(path, sessions=4, kv_memory=1 << 20, when_full="evict")
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


def many(model: skulk.Model, prompts: list[str], ids: list[list[int]], either: bool) -> None:
    assert_type(model.generate(prompts, max_tokens=3, priority=-1), list[skulk.Output])
    assert_type(model.generate(ids, return_exceptions=False), list[skulk.Output])
    assert_type(model.generate(("text", [1, 2])), list[skulk.Output])
    assert_type(model.generate(prompts, return_exceptions=True), list[skulk.Output | skulk.Error])
    assert_type(model.generate(prompts, return_exceptions=either), list[skulk.Output | skulk.Error])
    assert_type(model.generate(ids[0]), skulk.Generation)
    assert_type(model.session().fork(), skulk.Session)
    assert_type(model.kv_memory.budget_bytes, int | None)
    assert_type(model.memory.device_bytes, dict[str, int])
    assert_type(model.memory.planned, skulk.Bytes | None)


async def streaming(model: skulk.Model) -> str:
    assert_type(await model.generate("text"), skulk.Output)
    generation = model.generate("text")
    assert_type(await anext(generation), skulk.Event)
    return "".join([event.text async for event in generation])


def serving(path: pathlib.Path, model: skulk.Model) -> str:
    with skulk.serve(path, layers=range(3), key="secret", cancel=skulk.CancelToken()) as server:
        remote = skulk.Model.load(path, ffn_at=[server.address], peer_key="secret", peer_wire="f16", addresses={"a": "b"})
        assert_type(server.stop(grace=1), None)
    session = remote.session().recover([("cpu", 5)])
    assert_type(session.recover_in(model.replan(skulk.plan(path).with_address("a", "b"))), skulk.Session)
    assert_type(session.resume(cancel=None), skulk.Generation)
    skulk.serve(path, layers=3)  # type: ignore[arg-type]
    skulk.serve(path, port=3)  # type: ignore[call-arg]
    return server.metrics


def failing(model: skulk.Model) -> None:
    try:
        model.generate("text")
    except skulk.ContextOverflowError as error:
        assert_type(error.code, str)
        assert_type(error.hint, str | None)
        assert_type(error.retry, Literal["never", "now", "after_replan"])


def planning_a_model(path: pathlib.Path, card: skulk.ModelCard) -> skulk.Model:
    assert_type(card.tasks[0], Literal["TextGeneration", "TextEmbedding", "TextToImage", "ImageToImage"])
    assert_type(card.profile(has_tools=True).reasoning("low"), skulk.Reasoning)
    assert_type(skulk.CardLibrary(path).get("org/model"), skulk.ModelCard | None)
    nodes = [skulk.Node("a", role="ffn_only", backends={"skulk-cpu"}, memory=skulk.NodeMemory(2, 1))]
    links = [skulk.Link("a", "b", skulk.Socket("10.0.0.1")), skulk.Link("b", "a", skulk.Rdma("x", "y"))]
    placement = skulk.plan(card, skulk.Cluster(nodes, links), transport="mlx_ring", required_nodes={"a"})
    assert_type(placement.stages[0].layers, range)
    assert_type(placement.report, skulk.PlanReport | None)
    assert_type(placement.budgets[0].bytes, skulk.Bytes)
    assert_type(placement.sessions, int | None)
    assert_type(skulk.price(card, placement, skulk.Cluster(nodes, links), sessions=2), skulk.Price)
    assert_type(skulk.price(path, [("cpu", 5)]).prompt, skulk.PromptEstimate)
    assert_type(skulk.Node.measure_disk(path), float)
    assert_type(card.parameters, int | None)
    assert_type(card.fact_findings, list[skulk.CardFault])
    assert_type(skulk.planning.engine_of("mlx-metal"), str | None)
    assert_type(list(skulk.planning.prefill_chunks(100, 30)), list[int])
    return skulk.Model.load(path, placement=skulk.plan(path), node="local")


def refused(card: skulk.ModelCard) -> None:
    try:
        skulk.plan(card)
    except skulk.CardInvalidError as error:
        assert_type(error.faults, list[skulk.CardFault])
    except (skulk.PlanNoFitError, skulk.PlanPendingError) as error:
        assert_type(error.report, skulk.PlanReport | None)


def embedding(path: pathlib.Path, texts: set[str]) -> None:
    with skulk.EmbeddingModel.load(path, threads=2) as model:
        assert_type(model.embed("text"), NDArray[np.float32])
        assert_type(model.embed(texts, truncate=False, cancel=skulk.CancelToken()), NDArray[np.float32])
        assert_type(model.dimensions + model.max_tokens, int)
        assert_type(model.tokenizer, skulk.Tokenizer)
        model.embed(3)  # type: ignore[arg-type]
        model.embed("text", truncat=True)  # type: ignore[call-arg]
        skulk.EmbeddingModel.load(path, threads="two")  # type: ignore[arg-type]


def mistaken(model: skulk.Model) -> None:
    model.generate(3)  # type: ignore[call-overload]
    model.generate("text", temprature=1.0)  # type: ignore[call-overload]
    model.stages[0].layers = range(3)  # type: ignore[misc]
    model.context = 3  # type: ignore[misc]
    skulk.Model.load("path", kv="f8")  # type: ignore[arg-type]
    skulk.Model.load("path", 2)  # type: ignore[call-arg, arg-type]
    skulk.Model.load("path", placement="cpu=5")  # type: ignore[arg-type]
    skulk.plan("path", strictness="careless")  # type: ignore[arg-type]
    skulk.price("path", "cpu=5")  # type: ignore[arg-type]
    skulk.price("path", [("cpu", 5)], replicas=1)  # type: ignore[call-arg]
    skulk.plan("path", [skulk.Node("a")])  # type: ignore[arg-type]
    skulk.Node("a", role="king")  # type: ignore[arg-type]
    skulk.ModelCard(model_id="org/model")  # type: ignore[call-arg]
    skulk.Profile.permissive().reasoning("enormous")  # type: ignore[arg-type]


def talking(model: skulk.Model, weather: Callable[[str], str]) -> list[dict[str, Any]]:
    messages = [{"role": "user", "content": "Hello"}]
    stream = model.chat(messages, tools=[weather], reasoning="low", reasoning_budget=100, max_tokens=9, seed=3)
    for event in stream:
        if event.type == "finish":
            assert_type(event, skulk.FinishEvent)
            assert_type(event.finish.reason, Literal["stop", "length", "tool_calls", "cancelled", "deadline"])
        elif isinstance(event, skulk.CallFinishedEvent):
            assert_type(event.call.arguments, dict[str, Any])
    assert_type(stream.answer(), skulk.ChatAnswer)
    assert_type(model.render_chat("Hello", reasoning=False).tokens, list[int])
    with model.chat_with_tools(messages, tools=[weather], max_rounds=2, on_tool_failure="end") as chat:
        for step in chat:
            if isinstance(step, skulk.ToolResult):
                assert_type(step.failed, bool)
    return chat.messages


async def talking_in_a_loop(model: skulk.Model, weather: Callable[[str], str]) -> None:
    assert_type(await model.session().chat("Hello"), skulk.ChatAnswer)
    assert_type(await model.chat_with_tools("Hello", tools=[weather]), list[dict[str, Any]])
    assert_type(await anext(model.chat("Hello")), skulk.ChatEvent)
