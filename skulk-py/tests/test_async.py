"""Do generations work in an event loop, without blocking it?"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from pathlib import Path

import pytest

import skulk
from conftest import PROMPT


async def text(generation: skulk.Generation) -> str:
    return "".join([event.text async for event in generation])


def test_many_run_at_once(stories: skulk.Model) -> None:
    async def main() -> list[str]:
        return await asyncio.gather(*(text(stories.generate(PROMPT, max_tokens=40)) for _ in range(40)))

    assert set(asyncio.run(main())) == {stories.generate(PROMPT, max_tokens=40).text()}


def test_the_loop_runs_meanwhile(slow_checkpoint: Path) -> None:
    model = skulk.Model.load(slow_checkpoint, threads=2, context=8192, prefill_chunk=64)

    async def main() -> int:
        generation = asyncio.create_task(text(model.generate([5] * 32, max_tokens=1)))
        ticks = 0
        while not generation.done():
            await asyncio.sleep(0.005)
            ticks += 1
        return ticks

    assert asyncio.run(main()) > 5


def test_cancelling_the_task_ends_the_generation(slow_checkpoint: Path) -> None:
    session = skulk.Model.load(slow_checkpoint, threads=2, context=8192, prefill_chunk=64).session()

    async def main() -> float:
        task = asyncio.create_task(text(session.generate([5] * 6000, max_tokens=1)))
        await asyncio.sleep(0.3)
        started = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        elapsed = time.monotonic() - started
        session.truncate(0)
        return elapsed

    assert asyncio.run(main()) < 5


def test_leaving_early_ends_the_generation(stories: skulk.Model) -> None:
    session = stories.session()

    async def read_slowly() -> None:
        async for _event in session.generate(PROMPT, ignore_eos=True):
            await asyncio.sleep(60)

    async def main() -> None:
        async for _event in session.generate(PROMPT, ignore_eos=True):
            break
        session.truncate(1)
        with session.generate(PROMPT, ignore_eos=True) as generation:
            await anext(generation)
        session.truncate(1)
        task = asyncio.create_task(read_slowly())
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        session.truncate(1)

    asyncio.run(main())


def test_waiting_threads_end_with_their_generations(stories: skulk.Model) -> None:
    assert asyncio.run(text(stories.generate(PROMPT, max_tokens=2)))
    gc.collect()
    for thread in threading.enumerate():
        if thread.name.startswith("skulk-events"):
            thread.join(5)
            assert not thread.is_alive()


def test_errors_arrive(stories: skulk.Model) -> None:
    token = skulk.CancelToken()
    token.cancel()
    with pytest.raises(skulk.CancelledError):
        asyncio.run(text(stories.generate(PROMPT, cancel=token)))


def test_a_read_generation_is_empty(stories: skulk.Model) -> None:
    generation = stories.generate(PROMPT, max_tokens=2)
    list(generation)
    assert asyncio.run(text(generation)) == ""
