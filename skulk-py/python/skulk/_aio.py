"""How does an event loop follow a generation? It is woken for each event; nobody waits meanwhile."""

from __future__ import annotations

import asyncio
import atexit
from functools import partial

from ._contract import Event
from ._skulk import Generation, stop_waking

atexit.register(stop_waking)


async def next_event(generation: Generation) -> Event:
    """The generation's next event. A task that is cancelled meanwhile ends the generation."""
    woken = asyncio.Event()
    wake = partial(asyncio.get_running_loop().call_soon_threadsafe, woken.set)
    try:
        while (event := generation._poll(wake)) is None:
            await woken.wait()
            woken.clear()
        return event
    except asyncio.CancelledError:
        generation.cancel()
        # The session must be free by the time the caller goes on.
        while not generation._ended(wake):
            await woken.wait()
            woken.clear()
        raise
