"""How does an event loop follow a generation? It is woken for each event; nobody waits meanwhile."""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from ._skulk import Generation, stop_waking

T = TypeVar("T")

atexit.register(stop_waking)


async def follow(generation: Generation, poll: Callable[[Callable[[], object]], T | None]) -> T:
    """What ``poll`` gives of the generation, once it is there. A task that is cancelled meanwhile ends the generation."""
    woken = asyncio.Event()
    wake = partial(asyncio.get_running_loop().call_soon_threadsafe, woken.set)
    try:
        while (found := poll(wake)) is None:
            await woken.wait()
            woken.clear()
        return found
    except asyncio.CancelledError:
        generation.cancel()
        # The session must be free by the time the caller goes on.
        while not generation._ended(wake):
            await woken.wait()
            woken.clear()
        raise
