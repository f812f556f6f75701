"""How does an event loop follow a generation or an answer? It is woken for each event; nobody waits meanwhile."""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, TypeVar

from ._errors import CancelledError
from ._skulk import stop_waking

T = TypeVar("T")

_exiting = False


class Running(Protocol):
    """What an event loop follows."""

    def cancel(self) -> None: ...
    def _ended(self, wake: Callable[[], object]) -> bool: ...


def _exit() -> None:
    global _exiting
    _exiting = True
    stop_waking()


atexit.register(_exit)


async def _wait(woken: asyncio.Event) -> None:
    """Until it is time to poll again."""
    if _exiting:
        # Nobody is woken any more: loops of daemon threads, and those that exit handlers run, look again and again.
        await asyncio.sleep(0.01)
    else:
        await woken.wait()
        woken.clear()


def _waker(woken: asyncio.Event) -> Callable[[], object]:
    """What sets the event, from any thread."""
    return partial(asyncio.get_running_loop().call_soon_threadsafe, woken.set)


async def follow(running: Running, poll: Callable[[Callable[[], object]], T | None]) -> T:
    """What ``poll`` gives of what runs, once it is there. A task that is cancelled meanwhile ends it."""
    woken = asyncio.Event()
    wake = _waker(woken)
    try:
        while (found := poll(wake)) is None:
            await _wait(woken)
        return found
    except asyncio.CancelledError:
        running.cancel()
        # The session must be free by the time the caller goes on.
        while not running._ended(wake):
            await _wait(woken)
        raise


async def ended(running: Running) -> None:
    """Cancels what runs, and waits until it has ended."""
    running.cancel()
    woken = asyncio.Event()
    wake = _waker(woken)
    while not running._ended(wake):
        await _wait(woken)


async def entered(running: T) -> T:
    """What ``async with`` gives."""
    return running


async def unless_cancelled(found: Awaitable[T], on_cancel: Callable[[Callable[[], object]], object]) -> T:
    """What ``found`` gives; this package's ``CancelledError`` once it is cancelled by what ``on_cancel`` hears of."""
    task = asyncio.ensure_future(found)
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = task.cancel()

    heard = on_cancel(partial(asyncio.get_running_loop().call_soon_threadsafe, stop))
    try:
        return await task
    except asyncio.CancelledError:
        # A task that is cancelled itself says so since Python 3.11.
        current = asyncio.current_task()
        if not stopped or getattr(current, "cancelling", int)():
            raise
        raise CancelledError("the work was cancelled") from None
    finally:
        del heard
