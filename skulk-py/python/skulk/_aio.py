"""How does an event loop follow a generation? One waiting thread each, so that none starves another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor

from ._data import Event
from ._skulk import Generation


async def events(generation: Generation) -> AsyncGenerator[Event, None]:
    """Yields the generation's events. Leaving early, also by a cancelled task, ends the generation."""
    loop = asyncio.get_running_loop()
    waiting = ThreadPoolExecutor(max_workers=1, thread_name_prefix="skulk-events")
    try:
        while event := await loop.run_in_executor(waiting, next, generation, None):
            yield event
    finally:
        generation.cancel()
        try:
            # The session must be free by the time the caller goes on.
            await loop.run_in_executor(waiting, generation.close)
        finally:
            waiting.shutdown(wait=False)
