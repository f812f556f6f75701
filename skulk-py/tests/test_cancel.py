"""Does everything stop when it is told to, and stay usable?"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import skulk
from conftest import FIXTURES, PROMPT

LONG_PROMPT = [5] * 6000
"""Tokens that take the slow checkpoint many seconds to prefill."""


@pytest.fixture(scope="module")
def slow(slow_checkpoint: Path) -> skulk.Model:
    return skulk.Model.load(slow_checkpoint, threads=2, context=8192, prefill_chunk=64)


def test_cancel_ends_decoding(stories: skulk.Model) -> None:
    session = stories.session()
    generation = session.generate(PROMPT, max_tokens=450)
    next(generation)
    generation.cancel()
    with pytest.raises(skulk.CancelledError) as caught:
        for _event in generation:
            pass
    assert caught.value.code == "cancelled"
    assert session.generate(PROMPT, max_tokens=4).output().ids


def test_a_token_ends_prefill(slow: skulk.Model) -> None:
    session, token = slow.session(), skulk.CancelToken()
    assert not token.cancelled
    generation = session.generate(LONG_PROMPT, max_tokens=1, cancel=token)
    threading.Timer(0.3, token.cancel).start()
    started = time.monotonic()
    with pytest.raises(skulk.CancelledError):
        generation.text()
    assert time.monotonic() - started < 5
    assert token.cancelled and "cancelled" in repr(token)
    assert len(session.generate([5] * 4, max_tokens=2, ignore_eos=True).output().ids) == 2


def test_ending_one_generation_leaves_the_token_alone(stories: skulk.Model) -> None:
    token = skulk.CancelToken()
    with stories.generate(PROMPT, cancel=token) as generation:
        next(generation)
    assert list(generation) == []
    assert not token.cancelled
    assert stories.generate(PROMPT, max_tokens=2, cancel=token).output().ids


def test_loading_can_be_cancelled() -> None:
    token = skulk.CancelToken()
    token.cancel()
    with pytest.raises(skulk.CancelledError):
        skulk.Model.load(FIXTURES / "llama", cancel=token)


def test_an_exception_of_progress_ends_loading() -> None:
    def broken(done: int, total: int) -> None:
        raise LookupError(f"{done}/{total}")

    with pytest.raises(LookupError, match="1/"):
        skulk.Model.load(FIXTURES / "llama", progress=broken)


def test_ctrl_c_ends_loading() -> None:
    def interrupt(_done: int, _total: int) -> None:
        signal.raise_signal(signal.SIGINT)

    # Whoever started the tests may ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            skulk.Model.load(FIXTURES / "llama", progress=interrupt)
    finally:
        signal.signal(signal.SIGINT, before)


INTERRUPTED = """
import signal, sys, skulk
signal.signal(signal.SIGINT, signal.default_int_handler)
model = skulk.Model.load(sys.argv[1], threads=2, context=8192, prefill_chunk=64)
session = model.session()
generation = session.generate([5] * 6000, max_tokens=1)
try:
    print("prefill", flush=True)
    {wait}
except KeyboardInterrupt:
    print("interrupted", flush=True)
    print(len(session.generate([5] * 4, max_tokens=2, ignore_eos=True).output().ids), flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
@pytest.mark.parametrize("wait", ["next(generation)", "generation.text()"])
def test_ctrl_c_during_prefill_returns_at_once(slow_checkpoint: Path, wait: str) -> None:
    script = INTERRUPTED.format(wait=wait)
    command = [sys.executable, "-c", script, str(slow_checkpoint)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "prefill\n"
        time.sleep(0.5)
        sent = time.monotonic()
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline() == "interrupted\n"
        assert time.monotonic() - sent < 5
        assert child.stdout.read() == "2\n"
    assert child.returncode == 0


def test_other_threads_run_meanwhile(slow: skulk.Model) -> None:
    ticks, done = 0, threading.Event()

    def count() -> None:
        nonlocal ticks
        while not done.wait(0.001):
            ticks += 1

    counting = threading.Thread(target=count)
    counting.start()
    started = time.monotonic()
    slow.generate([5] * 32, max_tokens=1).text()
    elapsed = time.monotonic() - started
    done.set()
    counting.join()
    assert ticks > 20 * elapsed


AT_EXIT = """
import sys, skulk

class Last:
    def __del__(self):
        print(self.model.generate("Once upon a time", max_tokens=3).text())
        for options in ({"prompt": [1, 2]}, {"prompt": "Once", "stop": ["a"]}):
            try:
                print(self.model.generate(**options, max_tokens=3).text() != "")
            except ImportError:
                print("nothing is imported any more")

last = Last()
last.model = skulk.Model.load(sys.argv[1])
"""


def test_what_exit_deletes_may_still_generate(stories: skulk.Model) -> None:
    command = [sys.executable, "-c", AT_EXIT, str(FIXTURES / "stories260K")]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    lines = finished.stdout.splitlines()
    assert lines[0] == stories.generate(PROMPT, max_tokens=3).text() and len(lines) == 3, lines
    assert set(lines[1:]) <= {"True", "nothing is imported any more"}
    assert "panicked" not in finished.stderr


def test_the_interpreter_exits_while_a_generation_runs(slow_checkpoint: Path) -> None:
    script = (
        "import sys, skulk\n"
        "model = skulk.Model.load(sys.argv[1], context=8192, prefill_chunk=64)\n"
        "generation = model.generate([5] * 6000)\n"
    )
    finished = subprocess.run([sys.executable, "-c", script, str(slow_checkpoint)], timeout=20, check=False)
    assert finished.returncode == 0
