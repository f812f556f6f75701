"""Do conversations reach the model, and its answers Python? One token says what a model is to answer."""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import collections.abc
import gc
import inspect
import json
import operator
import shutil
import signal
import threading
import time
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

import skulk
from conftest import FIXTURES

TEMPLATE = (
    "{%- if tools %}<|im_start|>system\n<tools>{{ tools | tojson }}</tools><tool_call> calls them<|im_end|>\n{% endif %}"
    "{%- for m in messages %}<|im_start|>{{ m.role }}\n"
    "{%- if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}"
    "{%- for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|im_end|>\n"
    "{%- endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{%- if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}{{ mood }}"
)
ARGUMENTS = {"days": 2, "city": "Oslo"}
# A token that nothing else has: the model says it where a bias lets nothing else be said, and the stop string ends it.
SAID = f'Hm.</think>I look.<tool_call>{json.dumps({"name": "weather", "arguments": ARGUMENTS})}</tool_call>.END'
TOKEN = 2047
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
SAYS: dict[str, Any] = {"logit_bias": {TOKEN: 1e6}, "stop": ["END"], "max_tokens": 4}


def weather(city: Annotated[str, "The place."], days: int = 1) -> str:
    """Weather of a place."""
    return f"Rain in {city} for {days} days."


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> skulk.Model:
    folder = tmp_path_factory.mktemp("chat") / "qwen2"
    shutil.copytree(FIXTURES / "qwen2", folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    last = tokenizer["added_tokens"][-1]
    assert last["id"] == TOKEN
    last |= {"content": f"<think>{SAID}", "special": False}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config.pop("pad_token", None)
    config.get("added_tokens_decoder", {}).pop(str(TOKEN), None)
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return skulk.Model.load(folder, threads=1, chat_template=TEMPLATE)


def test_an_answer_is_told_in_events(model: skulk.Model) -> None:
    stream = model.chat([{"role": "user", "content": "Rain?"}], tools=[WEATHER], **SAYS)
    events = list(stream)
    assert "".join(event.text for event in events if isinstance(event, skulk.ReasoningEvent)) == "Hm."
    assert "".join(event.text for event in events if event.type == "text") == "I look.."
    started = next(event for event in events if isinstance(event, skulk.CallStartedEvent))
    assert (started.index, started.name, len(started.id)) == (0, "weather", 9)
    pieces = [event.text for event in events if isinstance(event, skulk.CallArgumentsEvent)]
    assert json.loads("".join(pieces)) == ARGUMENTS
    finished = next(event for event in events if isinstance(event, skulk.CallFinishedEvent))
    assert finished.call == skulk.ChatCall(started.id, "weather", ARGUMENTS)
    last = events[-1]
    assert isinstance(last, skulk.FinishEvent) and last.finish.reason == "tool_calls"
    assert last.finish.usage.prompt_tokens == len(stream.prompt.tokens)
    assert last.finish.usage.completion_tokens == 1
    answer = stream.answer()
    assert (answer.finish, answer.calls, answer.malformed) == (last.finish, [finished.call], [])
    assert (answer.text, answer.reasoning) == ("I look..", "Hm.")
    message = answer.message
    assert message == stream.message
    assert (message["role"], message["content"], message["reasoning_content"]) == ("assistant", "I look..", "Hm.")
    assert message["tool_calls"][0]["id"] == started.id
    assert message["tool_calls"][0]["function"]["name"] == "weather"
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == ARGUMENTS
    assert skulk.TextEvent("a").to_dict() == {"type": "text", "text": "a"}


def test_the_conversation_goes_on_with_the_answer(model: skulk.Model) -> None:
    session = model.session()
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Hello"}]
    answer = session.chat(messages, max_tokens=5).answer()
    assert answer.finish.reason in ("stop", "length") and answer.finish.usage.cached_tokens == 0
    again = session.chat([*messages, answer.message, {"role": "user", "content": "Yes"}], max_tokens=5).answer()
    assert again.finish.usage.cached_tokens > 5
    assert model.chat(messages, max_tokens=5).answer().text == answer.text


def test_what_the_prompt_is_made_of(model: skulk.Model) -> None:
    prompt = model.render_chat("Hello")
    assert prompt == model.render_chat([{"role": "user", "content": "Hello"}])
    assert prompt == model.render_chat({"content": "Hello", "role": "user"})
    assert prompt.text == "<|im_start|>userHello<|im_end|><|im_start|>assistant"
    assert model.tokenizer.decode(prompt.tokens, skip_special=False) == prompt.text
    stream = model.chat(iter([{"role": "user", "content": "Hello"}]), max_tokens=1)
    assert stream.prompt == prompt
    assert model.render_chat("Hello", reasoning=False).text.endswith("<think>\n\n</think>\n\n")
    assert model.render_chat("Hello", reasoning="off") == model.render_chat("Hello", reasoning=False)
    assert model.render_chat("Hello", reasoning="on").text == prompt.text
    assert model.render_chat("Hello", variables={"mood": "happy"}).text.endswith("happy")
    # Keys keep their order.
    backwards = {"function": {"parameters": {"z": 1, "a": 2}, "name": "weather"}, "type": "function"}
    assert '"parameters": {"z": 1, "a": 2}, "name"' in model.render_chat("Hello", tools=(backwards,)).text
    # Nobody can forge a turn, unless all is trusted.
    forged = "<|im_end|>"
    ids = model.tokenizer.encode(forged, add_special=False)
    assert len(ids) == 1 and len(model.tokenizer.encode_text(forged)) > 1
    assert model.render_chat(forged).tokens.count(ids[0]) == 1
    assert model.render_chat(forged, trust_messages=True).tokens.count(ids[0]) == 2


def test_what_cannot_be_honoured_is_refused(model: skulk.Model) -> None:
    def refused(call: Callable[[], object]) -> tuple[type[Exception], str | None]:
        with pytest.raises((skulk.Error, TypeError)) as caught:
            call()
        return type(caught.value), getattr(caught.value, "context", {}).get("field")

    argument, chat = skulk.InvalidArgumentError, skulk.ChatInvalidError
    refusals: list[tuple[dict[str, Any], str]] = [
        ({"reasonin": "low"}, "reasonin"),
        ({"reasoning": "much"}, "reasoning"),
        ({"reasoning_budget": -1}, "reasoning_budget"),
        ({"logprobs": 1}, "logprobs"),
        ({"template": "other"}, "template"),
        ({"variables": [1]}, "variables"),
        ({"max_rounds": 2}, "max_rounds"),
    ]
    for wrong, field in refusals:
        assert refused(lambda: model.chat("Hello", **wrong)) == (argument, field), wrong
    assert refused(lambda: model.chat("Hello", tools=[{"type": "function"}]))[0] is chat
    assert refused(lambda: model.chat([{"content": "Hello"}]))[0] is chat
    assert refused(lambda: model.chat(17))[0] is chat  # type: ignore[arg-type]
    assert refused(lambda: model.chat(["Hello"]))[0] is chat  # type: ignore[list-item]
    for odd in (object(), float("nan"), "\ud800", {(1,): 2}):
        assert refused(lambda: model.chat([{"role": "user", "content": odd}])) == (argument, "messages"), odd
        assert refused(lambda: model.chat("Hello", documents=[{"text": odd}])) == (argument, "documents"), odd
    assert refused(lambda: model.chat("\ud800")) == (argument, "messages")
    assert refused(lambda: model.chat("Hello", tools=weather)) == (argument, "tools")  # type: ignore[arg-type]
    broken = skulk.Model.load(FIXTURES / "qwen2", chat_template="{% if %}")
    assert refused(lambda: broken.chat("Hello"))[0] is skulk.TemplateInvalidError
    assert refused(lambda: model.chat("word " * 9999))[0] is skulk.ContextOverflowError
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert refused(lambda: model.chat([{"role": "user", "content": deep}])) == (argument, "messages")
    with pytest.raises(skulk.CardInvalidError):
        skulk.Model.load(FIXTURES / "qwen2", card="{}")  # type: ignore[arg-type]


def test_a_card_says_how_the_model_is_spoken_to(model: skulk.Model) -> None:
    card = skulk.ModelCard.from_checkpoint(FIXTURES / "qwen2")
    with skulk.Model.load(FIXTURES / "qwen2", card=card, chat_template="{{ messages[0].content }}!") as other:
        assert other.render_chat("Hello").text == "Hello!"


def test_cancelling_ends_with_what_there_is(model: skulk.Model) -> None:
    token = skulk.CancelToken()
    stream = model.chat("Hello", ignore_eos=True, cancel=token)
    next(stream)
    token.cancel()
    assert stream.answer().finish.reason == "cancelled"
    session = model.session()
    with session.chat("Hello", ignore_eos=True) as left:
        next(left)
        with pytest.raises(skulk.SessionBusyError):
            session.chat("Hello")
    assert list(left) == [] and session.chat("Hello", max_tokens=1).answer()
    with pytest.raises(skulk.InvalidArgumentError):
        left.answer()
    dropped = session.chat("Hello", ignore_eos=True)
    del dropped
    gc.collect()
    assert session.chat("Hello", max_tokens=1).answer()


def test_functions_are_called_in_rounds(model: skulk.Model) -> None:
    threads = set()

    def called(city: str, days: int) -> dict[str, object]:
        """Weather."""
        threads.add(threading.get_ident())
        return {"city": city, "days": days}

    called.__name__ = "weather"
    chat = model.chat_with_tools("Rain?", tools=[called], max_rounds=3, **SAYS)
    events = list(chat)
    results = [event for event in events if isinstance(event, skulk.ToolResult)]
    assert [(result.content, result.failed) for result in results] == [('{"city": "Oslo", "days": 2}', False)] * 2
    assert sum(isinstance(event, skulk.FinishEvent) for event in events) == 3
    assert threads == {threading.get_ident()}
    assert chat.finish is not None and chat.finish.reason == "tool_calls" and chat.round == 2
    roles = [message["role"] for message in chat.messages]
    assert roles == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert chat.messages[2]["tool_call_id"] == chat.messages[1]["tool_calls"][0]["id"] == results[0].id
    # A pair says otherwise what the function is.
    assert model.chat_with_tools("Rain?", tools=[(WEATHER, called)], max_rounds=1, **SAYS).run()[-1]["role"] == "assistant"


def test_results_are_told_in_their_own_letters(model: skulk.Model) -> None:
    chat, _ = calling(model, lambda: {"wetter": "晴れ"})
    [result, *_] = [event for event in chat if isinstance(event, skulk.ToolResult)]
    assert result.content == '{"wetter": "晴れ"}'


def test_cancelling_ends_functions_that_are_awaited(model: skulk.Model) -> None:
    async def main(end: str) -> None:
        token = skulk.CancelToken()
        ended: list[str] = []

        async def weather(city: str, days: int) -> str:
            if end == "cancel":
                chat.cancel()
            else:
                token.cancel()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                ended.append(city)
                raise
            return "late"

        chat = model.chat_with_tools("Rain?", tools=[weather], cancel=token, **SAYS)
        results = [event async for event in chat if isinstance(event, skulk.ToolResult)]
        assert [(result.content, result.failed) for result in results] == [("error: the work was cancelled", True)]
        assert chat.finish is not None and chat.finish.reason == "cancelled" and ended == ["Oslo"]

    for end in ("cancel", "token"):
        asyncio.run(asyncio.wait_for(main(end), 30))


def test_a_task_that_is_cancelled_ends_its_function(model: skulk.Model) -> None:
    async def main() -> None:
        begun = asyncio.Event()
        ended: list[str] = []

        async def weather(city: str, days: int) -> str:
            begun.set()
            try:
                await asyncio.sleep(60)
            finally:
                ended.append(city)
            return "late"

        chat = model.chat_with_tools("Rain?", tools=[weather], **SAYS)
        task = asyncio.ensure_future(chat._run())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == ["Oslo"]

    asyncio.run(asyncio.wait_for(main(), 30))


def test_what_runs_is_ended_beside_the_loop(model: skulk.Model) -> None:
    async def main() -> None:
        session = model.session()
        async with session.generate("Hello", ignore_eos=True) as generation:
            async for _ in generation:
                break
        async with session.chat("Hello", ignore_eos=True) as stream:
            async for _ in stream:
                break
        async with contextlib.aclosing(session.generate("Hello", ignore_eos=True)) as generation:
            await generation.__anext__()
        chat = model.chat_with_tools("Rain?", tools=[weather], ignore_eos=True)
        async with chat:
            await chat.__anext__()
        assert [event async for event in chat] == []
        # The session is free at once.
        assert (await session.chat("Hello", max_tokens=1)).finish.reason == "length"

    asyncio.run(asyncio.wait_for(main(), 30))


def test_what_is_text_above_all_prints_as_text(model: skulk.Model) -> None:
    stream = model.chat([{"role": "user", "content": "Rain?"}], tools=[WEATHER], **SAYS)
    events = list(stream)
    joined = "".join(str(event) for event in events if isinstance(event, skulk.TextEvent))
    assert joined == "I look.." and str(stream.answer()) == stream.text() == "I look.."
    assert str(next(event for event in events if isinstance(event, skulk.ReasoningEvent))) == "Hm."


def test_a_cancelled_conversation_calls_nothing(model: skulk.Model) -> None:
    token, called = skulk.CancelToken(), []

    def weather(city: str, days: int) -> str:
        called.append(city)
        return "rain"

    chat = model.chat_with_tools("Rain?", tools=[weather], max_rounds=3, cancel=token, **SAYS)
    kinds = []
    for event in chat:
        kinds.append(type(event).__name__)
        if isinstance(event, skulk.ToolResult):
            assert event.failed and event.content == "error: the work was cancelled"
        elif chat.finish is not None:
            token.cancel()
    assert called == [] and "ToolResult" in kinds
    assert chat.finish is not None and chat.finish.reason == "cancelled"


def test_functions_that_fail_are_told_or_end_it(model: skulk.Model) -> None:
    def fails(city: str, days: int) -> str:
        raise ValueError("no weather")

    def wants(country: str) -> str:
        return country

    def other() -> None:
        raise AssertionError

    fails.__name__ = wants.__name__ = "weather"
    told: list[tuple[Callable[..., object], str]] = [
        (fails, "error: no weather"),
        (wants, "error: "),
        (other, "error: there is no function `weather`, but other"),
    ]
    for function, expected in told:
        events = model.chat_with_tools("Rain?", tools=[function], max_rounds=2, **SAYS)
        [result] = [event for event in events if isinstance(event, skulk.ToolResult)]
        assert result.failed and result.content.startswith(expected), result
    chat = model.chat_with_tools("Rain?", tools=[fails], on_tool_failure="end", **SAYS)
    with pytest.raises(skulk.ToolFailedError, match="no weather") as caught:
        chat.run()
    assert isinstance(caught.value.__cause__, ValueError) and caught.value.context["function"] == "weather"
    assert list(chat) == []
    with pytest.raises(TypeError, match="a pair of a tool and its function"):
        model.chat_with_tools("Rain?", tools=[WEATHER])
    with pytest.raises(skulk.InvalidArgumentError, match="at least 1 round"):
        model.chat_with_tools("Rain?", tools=[weather], max_rounds=0)
    with model.chat_with_tools("Rain?", tools=[weather], ignore_eos=True) as left:
        next(left)
    assert list(left) == []


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def calling(model: skulk.Model, outcome: Callable[[], object], **options: Any) -> tuple[skulk.ToolChat, list[int]]:
    """A conversation with a function whose calls are counted, and their number."""
    calls: list[int] = []

    def function(city: str, days: int) -> object:
        calls.append(len(calls))
        return outcome()

    function.__name__ = "weather"
    chat = model.chat_with_tools("Rain?", tools=[function], max_rounds=2, **SAYS, **options)
    return chat, calls


def raises(error: BaseException) -> Callable[[], object]:
    def outcome() -> object:
        raise error

    return outcome


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        (lambda: "\ud800", "error: 'utf-8' codec can't encode character '\\ud800'"),
        (lambda: object(), "error: expected a result that JSON can hold"),
        (lambda: b"rain", "error: expected a result that JSON can hold, found: bytes, which are to be decoded"),
        (lambda: {"page": b"rain"}, "error: expected a result that JSON can hold"),
        (raises(ValueError("\ud800")), "error: \\ud800"),
        (raises(ValueError()), "error: ValueError"),
        (raises(Silent()), "error: Silent"),
        (raises(StopIteration()), "error: StopIteration"),
    ],
)
def test_failures_are_told_once_whatever_they_say(
    model: skulk.Model, outcome: Callable[[], object], told: str
) -> None:
    chat, calls = calling(model, outcome)
    [result] = [event for event in chat if isinstance(event, skulk.ToolResult)]
    assert result.failed and result.content.startswith(told)
    assert calls == [0] and chat.round == 1
    assert chat.messages[2]["content"] == result.content
    chat, calls = calling(model, outcome, on_tool_failure="end")
    with pytest.raises(skulk.ToolFailedError):
        list(chat)
    assert calls == [0] and list(chat) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_an_exception_that_is_no_failure_ends_the_conversation(
    model: skulk.Model, error: type[BaseException]
) -> None:
    chat, calls = calling(model, raises(error()))
    with pytest.raises(error):
        list(chat)
    assert calls == [0] and list(chat) == []
    assert [message["role"] for message in chat.messages] == ["user", "assistant"]

    async def main() -> None:
        chat, calls = calling(model, raises(asyncio.CancelledError()))
        with pytest.raises(asyncio.CancelledError):
            await chat
        assert calls == [0] and [event async for event in chat] == []

    asyncio.run(main())


def test_a_function_that_is_async_is_begun_once(model: skulk.Model) -> None:
    async def slow() -> str:
        return "Rain."

    chat, calls = calling(model, slow)
    with pytest.raises(skulk.InvalidArgumentError, match="use `async for`"):
        list(chat)
    assert calls == [0] and list(chat) == []


def test_readers_share_a_conversation_whose_functions_run_once(model: skulk.Model) -> None:
    def late() -> str:
        time.sleep(0.2)
        return "Rain."

    chat, calls = calling(model, late)
    events: list[object] = []
    readers = [threading.Thread(target=lambda: events.extend(chat)) for _ in range(3)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(20)
    assert calls == [0]
    assert sum(isinstance(event, skulk.ToolResult) for event in events) == 1
    assert sum(isinstance(event, skulk.FinishEvent) for event in events) == 2

    async def later() -> str:
        await asyncio.sleep(0.1)
        return "Rain."

    async def main() -> None:
        chat, calls = calling(model, later)
        await asyncio.wait_for(asyncio.gather(chat, chat, chat), 20)
        assert calls == [0] and [message["role"] for message in chat.messages][1:3] == ["assistant", "tool"]

    asyncio.run(main())


def test_a_function_cannot_read_its_own_conversation(model: skulk.Model) -> None:
    chat, calls = calling(model, lambda: str(next(chat)))
    [result] = [event for event in chat if isinstance(event, skulk.ToolResult)]
    assert result.failed and "its own conversation" in result.content and calls == [0]


def test_others_may_close_a_conversation_whose_function_runs(model: skulk.Model) -> None:
    chat, calls = calling(model, lambda: chat.close())
    assert [event.content for event in chat if isinstance(event, skulk.ToolResult)] == ["null"]
    assert calls == [0] and list(chat) == []


@pytest.mark.parametrize("begin", [lambda model: model.chat, lambda model: model.chat_with_tools])
def test_dropping_a_conversation_keeps_ctrl_c(model: skulk.Model, begin: Callable[[skulk.Model], Any]) -> None:
    held = [begin(model)("Rain?", tools=[weather], ignore_eos=True)]
    call = operator.methodcaller("__call__")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            # No bytecode, which would raise it, runs between the two.
            list(map(call, (_thread.interrupt_main, held.clear)))
            time.sleep(1)
    finally:
        signal.signal(signal.SIGINT, before)


def test_event_loops_await_answers_and_functions(model: skulk.Model) -> None:
    async def slow(city: str, days: int) -> str:
        """Weather."""
        await asyncio.sleep(0)
        return "Rain."

    slow.__name__ = "weather"

    async def main() -> None:
        answers = await asyncio.gather(*(model.chat("Hello", max_tokens=9) for _ in range(4)))
        assert len({answer.text for answer in answers}) == 1
        events = [event async for event in model.chat("Rain?", tools=[weather], **SAYS)]
        assert isinstance(events[-1], skulk.FinishEvent)
        messages = await model.chat_with_tools("Rain?", tools=[slow], max_rounds=2, **SAYS)
        assert messages[2]["content"] == "Rain."
        session = model.session()
        task = asyncio.ensure_future(_answer(session))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await session.chat("Hello", max_tokens=1)).finish

    async def _answer(session: skulk.Session) -> skulk.ChatAnswer:
        return await session.chat("Hello", ignore_eos=True)

    asyncio.run(main())
    with pytest.raises(TypeError, match="use `async for`"):
        model.chat_with_tools("Rain?", tools=[slow], **SAYS).run()


def test_the_model_is_told_what_a_function_says(model: skulk.Model) -> None:
    def find(
        text: str,
        kinds: list[Literal["a", "b"]],
        *,
        limit: int | None = None,
        ratio: float = 0.5,
        where: dict[str, bool] = {},  # noqa: B006
        anything: Any = None,
    ) -> None:
        """Finds texts.

        All of them.
        """

    def told(function: object) -> dict[str, Any]:
        prompt = model.render_chat("x", tools=[function]).text  # type: ignore[list-item]
        found: dict[str, Any] = json.loads(prompt.split("<tools>")[1].split("</tools>")[0])[0]
        return found

    assert told(find) == {
        "type": "function",
        "function": {
            "name": "find",
            "description": "Finds texts.\n\nAll of them.",
            "parameters": {
                "type": "object",
                "properties": {
                    "text": {"type": "string"},
                    "kinds": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
                    "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
                    "ratio": {"type": "number", "default": 0.5},
                    "where": {"type": "object", "additionalProperties": {"type": "boolean"}, "default": {}},
                    "anything": {"default": None},
                },
                "required": ["text", "kinds"],
            },
        },
    }
    def plain(a: dict, b: list, c: typing.Dict, d: typing.List, e: typing.Mapping, f: typing.Sequence) -> None: ...  # type: ignore[type-arg]  # noqa: UP006
    def maybe(a: typing.Optional[typing.Dict] = None, b: collections.abc.Mapping | None = None) -> None: ...  # type: ignore[type-arg]  # noqa: UP006, UP045

    kinds = [schema["type"] for schema in told(plain)["function"]["parameters"]["properties"].values()]
    assert kinds == ["object", "array", "object", "array", "object", "array"]
    for schema in told(maybe)["function"]["parameters"]["properties"].values():
        assert schema == {"anyOf": [{"type": "object"}, {"type": "null"}], "default": None}
    city = told(weather)["function"]["parameters"]["properties"]["city"]
    assert city == {"type": "string", "description": "The place."}

    def bare(text):  # type: ignore[no-untyped-def]
        return text

    def many(*texts: str) -> None: ...
    def positional(text: str, /) -> None: ...
    def odd(text: bytes) -> None: ...
    def unknown(text: "Nothing") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    for function in (bare, many, positional, odd, unknown, lambda: None, Path):
        with pytest.raises(TypeError, match="expected a") as caught:
            model.render_chat("x", tools=[function])
        name = function.__name__
        assert (f"`{name}`" in str(caught.value)) or "with a name" in str(caught.value)


def test_help_shows_the_options_of_conversations() -> None:
    methods: list[tuple[Callable[..., object], int]] = [
        (skulk.Model.chat, 25),
        (skulk.Session.chat, 25),
        (skulk.Model.chat_with_tools, 27),
        (skulk.Model.render_chat, 9),
    ]
    for method, count in methods:
        parameters = inspect.signature(method).parameters
        assert len(parameters) >= count
        assert all(p.kind is not inspect.Parameter.VAR_KEYWORD for p in parameters.values())
