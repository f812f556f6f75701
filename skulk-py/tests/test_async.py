"""Do generations work in an event loop, without blocking it?"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import skulk
from conftest import FIXTURES, PROMPT


async def text(generation: skulk.Generation) -> str:
    return "".join([event.text async for event in generation])


def test_many_run_at_once(stories: skulk.Model) -> None:
    async def main() -> list[str]:
        return await asyncio.gather(*(text(stories.generate(PROMPT, max_tokens=40)) for _ in range(40)))

    assert set(asyncio.run(main())) == {stories.generate(PROMPT, max_tokens=40).text()}


def test_awaiting_gives_what_is_left(stories: skulk.Model) -> None:
    async def main() -> None:
        outputs = await asyncio.gather(*(stories.generate(PROMPT, max_tokens=40) for _ in range(20)))
        expected = stories.generate(PROMPT, max_tokens=40).output()
        assert all(output.ids == expected.ids and output.text == expected.text for output in outputs)
        generation = stories.generate(PROMPT, max_tokens=40)
        begun = [(await anext(generation)).text for _ in range(3)]
        assert "".join(begun) + (await generation).text == expected.text
        with pytest.raises(skulk.InvalidArgumentError, match="at its end"):
            await generation

    asyncio.run(main())


def test_awaiting_ends_when_it_is_cancelled(slow_checkpoint: Path) -> None:
    session = skulk.Model.load(slow_checkpoint, threads=2, context=8192, prefill_chunk=64).session()

    async def main() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(session.generate([5] * 6000, max_tokens=1), 0.3)
        session.truncate(0)

    asyncio.run(main())


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


def test_no_thread_waits_for_events(slow_checkpoint: Path) -> None:
    model = skulk.Model.load(slow_checkpoint, threads=1, context=8192, prefill_chunk=64)

    async def main() -> None:
        before = threading.active_count()
        tasks = [asyncio.create_task(text(model.generate([5] * 512, max_tokens=1))) for _ in range(8)]
        await asyncio.sleep(0.1)
        assert threading.active_count() == before
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ends)

    asyncio.run(main())


def test_readers_share_the_events(stories: skulk.Model) -> None:
    expected = [event.text for event in stories.generate(PROMPT, max_tokens=100)]

    async def read(generation: skulk.Generation) -> list[str]:
        return [event.text async for event in generation]

    async def main() -> list[str]:
        generation = stories.generate(PROMPT, max_tokens=100)
        blocking = asyncio.to_thread(lambda: [event.text for event in generation])
        texts = await asyncio.gather(read(generation), read(generation), blocking)
        return [text for some in texts for text in some]

    for _ in range(20):
        assert sorted(asyncio.run(main())) == sorted(expected)


def test_a_reader_waits_while_another_collects(stories: skulk.Model) -> None:
    async def main() -> str:
        generation = stories.generate(PROMPT, max_tokens=100)
        waiting = asyncio.create_task(text(generation))
        collected = asyncio.to_thread(generation.text)
        results = await asyncio.gather(waiting, collected, return_exceptions=True)
        assert not isinstance(results[0], BaseException)
        # Whichever of the two reads the last event: for the other there is nothing left.
        assert not isinstance(results[1], BaseException) or isinstance(results[1], skulk.InvalidArgumentError)
        return results[0]

    for _ in range(20):
        asyncio.run(main())


LEAVING = """
import asyncio, sys, threading, skulk
model = skulk.Model.load(sys.argv[1])

async def read():
    while True:
        async for event in model.generate("Once", ignore_eos=True):
            reading.set()

reading = threading.Event()
threading.Thread(target=lambda: asyncio.run(read()), daemon=True).start()
reading.wait()
"""


def test_python_may_exit_while_a_loop_reads() -> None:
    for _ in range(5):
        command = [sys.executable, "-c", LEAVING, str(FIXTURES / "stories260K")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, done.stderr
        assert not done.stderr


AT_EXIT = """
import asyncio, atexit, sys

async def read(model):
    print("".join([event.text async for event in model.generate("Once", max_tokens=20)]))

# Exit handlers run last first: this one after the library's own.
atexit.register(lambda: asyncio.run(read(model)))
import skulk
model = skulk.Model.load(sys.argv[1])
asyncio.run(read(model))
"""


def test_a_loop_reads_while_python_exits() -> None:
    command = [sys.executable, "-c", AT_EXIT, str(FIXTURES / "stories260K")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    before, at_exit = done.stdout.splitlines()
    assert before == at_exit != ""


def test_errors_arrive(stories: skulk.Model) -> None:
    token = skulk.CancelToken()
    token.cancel()
    with pytest.raises(skulk.CancelledError):
        asyncio.run(text(stories.generate(PROMPT, cancel=token)))


def test_a_read_generation_is_empty(stories: skulk.Model) -> None:
    generation = stories.generate(PROMPT, max_tokens=2)
    list(generation)
    assert asyncio.run(text(generation)) == ""
