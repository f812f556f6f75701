"""How does an event loop follow a generation? One waiting thread each, so that none starves another."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from ._contract import Event
from ._skulk import Generation


def waiting_thread() -> ThreadPoolExecutor:
    """The thread that waits for one generation's events. It ends when the generation is dropped."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="skulk-events")


def _step(cell: list[Generation]) -> Event | None:
    # The thread's queue still holds its arguments when the loop goes on: not the generation among
    # them, whose drop is what frees the session.
    return next(cell.pop(), None)


def _close(cell: list[Generation]) -> None:
    cell.pop().close()


async def next_event(generation: Generation, waiting: ThreadPoolExecutor) -> Event:
    """The generation's next event. A task that is cancelled meanwhile ends the generation."""
    loop = asyncio.get_running_loop()
    try:
        event = await loop.run_in_executor(waiting, _step, [generation])
    except asyncio.CancelledError:
        generation.cancel()
        # The session must be free by the time the caller goes on.
        await loop.run_in_executor(waiting, _close, [generation])
        raise
    if event is None:
        raise StopAsyncIteration
    return event
