"""How does Python take part in conversations? Messages and tools as JSON, functions that models call."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any

from ._aio import ended, follow, unless_cancelled
from ._contract import ChatCall, ChatEvent, ChatFinish, ToolResult
from ._errors import ToolFailedError
from ._functions import described
from ._skulk import ToolSteps, invalid

Function = Callable[..., object]


def _json(what: str, value: object) -> str:
    """A value as JSON, whose keys keep their order. Raises TypeError for what that cannot hold."""

    def other(item: object) -> object:
        if isinstance(item, Mapping):
            return dict(item)
        if isinstance(item, (bytes, bytearray, memoryview)):
            raise TypeError("bytes, which are to be decoded")
        if isinstance(item, Iterable):
            return list(item)
        raise TypeError(f"an instance of {type(item).__name__}")

    try:
        text = json.dumps(value, default=other, allow_nan=False, ensure_ascii=False)
        text.encode()
        return text
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"expected {what} that JSON can hold, found: {error}") from error


def _argument(field: str, value: object) -> str:
    """An argument as JSON."""
    try:
        return _json(field, value)
    except TypeError as error:
        raise invalid(field, str(error)) from error


def given(messages: object, options: dict[str, Any] | None) -> tuple[str, dict[str, Any]]:
    """Messages as JSON, and options of which those are JSON whose keys keep their order."""
    if isinstance(messages, Mapping):
        messages = [messages]
    options = dict(options or {})
    if options.get("tools") is not None:
        options["tools"] = [_pair(tool)[0] for tool in _tools(options)]
    for name in ("tools", "documents", "variables"):
        if options.get(name) is not None:
            options[name] = _argument(name, options[name])
    return _argument("messages", messages), options


def _tools(options: dict[str, Any]) -> Iterable[Any]:
    tools = options.get("tools")
    if tools is None:
        return ()
    if not isinstance(tools, Iterable):
        raise invalid("tools", f"expected a list of tools, found an instance of {type(tools).__name__}")
    return tools


def _pair(tool: Any) -> tuple[object, Function | None]:
    """What the model is told, and the function, where there is one."""
    if callable(tool):
        return described(tool), tool
    if isinstance(tool, tuple) and len(tool) == 2 and callable(tool[1]):
        return tool[0], tool[1]
    return tool, None


def toolbox(options: dict[str, Any] | None) -> tuple[dict[str, Any], dict[str, Function]]:
    """Options of a conversation whose functions are called, and these by name. Of one name the last one counts."""
    options = dict(options or {})
    told: dict[str, object] = {}
    functions: dict[str, Function] = {}
    for tool in _tools(options):
        schema, function = _pair(tool)
        name = schema.get("function", schema).get("name") if isinstance(schema, Mapping) else None
        if function is None or not isinstance(name, str):
            raise invalid("tools", f"expected a function, or a pair of a tool and its function, found {tool!r}")
        told[name], functions[name] = schema, function
    return options | {"tools": list(told.values())}, functions


class ToolChat:
    """A conversation that calls functions: iterate the events and results of all rounds with `for` or `async for`.

    Functions run where it is read, of each call once; in an event loop those that give something to await are awaited,
    one after the other, and end with the conversation where that is cancelled. While one runs, others who read wait.
    An exception that comes out of it ends it. Leaving its `with` or `async with` block, or dropping it, cancels what is
    still running. Made by `Model.chat_with_tools`.
    """

    __slots__ = ("_functions", "_steps")
    __module__ = "skulk"

    def __init__(self, steps: ToolSteps, functions: dict[str, Function]) -> None:
        self._steps, self._functions = steps, functions

    def __iter__(self) -> ToolChat:
        return self

    def __next__(self) -> ChatEvent | ToolResult:
        try:
            step = next(self._steps)
            return self._called(step) if isinstance(step, ChatCall) else step
        except BaseException:
            self.close()
            raise

    def _called(self, call: ChatCall) -> ToolResult:
        try:
            found = self._functions[call.name](**call.arguments)
            text = None if inspect.isawaitable(found) else _content(found)
        except Exception as error:
            return self._failed(call, error)
        if text is None:
            if inspect.iscoroutine(found):
                found.close()
            message = f"expected functions that give their result, found `{call.name}`, which is async: use `async for`"
            raise invalid("tools", message)
        return self._steps.give(call.id, text, False)

    def __aiter__(self) -> ToolChat:
        return self

    async def __anext__(self) -> ChatEvent | ToolResult:
        try:
            step: ChatEvent | ChatCall | ToolResult = await follow(self._steps, self._steps._poll)
            return await self._awaited(step) if isinstance(step, ChatCall) else step
        except BaseException:
            self.close()
            raise

    async def _awaited(self, call: ChatCall) -> ToolResult:
        try:
            found = self._functions[call.name](**call.arguments)
            if inspect.isawaitable(found):
                found = await unless_cancelled(found, self._steps._on_cancel)
            text = _content(found)
        except Exception as error:
            return self._failed(call, error)
        return self._steps.give(call.id, text, False)

    def _failed(self, call: ChatCall, error: Exception) -> ToolResult:
        try:
            return self._steps.give(call.id, _words(error), True)
        except ToolFailedError as failed:
            raise failed from error

    def run(self) -> list[dict[str, Any]]:
        """Runs to the end and returns the whole conversation."""
        for _ in self:
            pass
        return self.messages

    def __await__(self) -> Generator[Any, None, list[dict[str, Any]]]:
        """Runs to the end beside the event loop: the whole conversation."""
        return self._run().__await__()

    async def _run(self) -> list[dict[str, Any]]:
        async for _ in self:
            pass
        return self.messages

    @property
    def messages(self) -> list[dict[str, Any]]:
        """All of the conversation: the messages that it began with, answers that have ended, and results."""
        return self._steps.messages

    @property
    def finish(self) -> ChatFinish | None:
        """How the last answer that was read ended: with ``tool_calls`` where there were too many rounds."""
        return self._steps.finish

    @property
    def round(self) -> int:
        """Which round it is, from 0."""
        return self._steps.round

    def cancel(self) -> None:
        """Asks the answer to end that is being written; no round follows. Any thread may cancel."""
        self._steps.cancel()

    def close(self) -> None:
        """Cancels what is still running and waits until it has ended. Events that were not read are lost."""
        self._steps.close()

    async def aclose(self) -> None:
        """The same beside the event loop."""
        await ended(self._steps)

    def __enter__(self) -> ToolChat:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    async def __aenter__(self) -> ToolChat:
        return self

    async def __aexit__(self, *_raised: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<skulk.ToolChat: round {self.round}>"


def _content(found: object) -> str:
    """What the model is told of what a function gave: texts as they are, other values as JSON."""
    if not isinstance(found, str):
        return _json("a result", found)
    # What is no Unicode is a failure.
    found.encode()
    return found


def _words(error: Exception) -> str:
    """What the model is told of a failure: its text, or its kind where that is empty or fails itself."""
    try:
        text = str(error)
    except Exception:
        text = ""
    return (text or type(error).__name__).encode(errors="backslashreplace").decode()
