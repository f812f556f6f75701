"""Do many sessions share a model?"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import skulk
from conftest import FIXTURES, PROMPT

STORIES = FIXTURES / "stories260K"


def test_a_list_of_prompts_gives_a_list_of_outputs(stories: skulk.Model) -> None:
    prompts = [f"{PROMPT}, {i}" for i in range(40)]
    outputs = stories.generate(prompts, max_tokens=8)
    assert [output.ids for output in outputs] == [stories.generate(p, max_tokens=8).output().ids for p in prompts]
    ids = [stories.tokenizer.encode(prompt) for prompt in prompts[:3]]
    assert [output.ids for output in stories.generate(ids, max_tokens=8)] == [output.ids for output in outputs[:3]]
    options: skulk.options.GenerateOptions = {"max_tokens": 8, "temperature": 0.5, "seed": 3}
    mixed, texts = stories.generate((prompts[0], ids[1]), **options), stories.generate(prompts[:2], **options)
    assert [output.ids for output in mixed] == [output.ids for output in texts]


def test_one_that_fails_does_not_end_the_others(stories: skulk.Model) -> None:
    prompts = [PROMPT, "", PROMPT * 2000, PROMPT]
    results = stories.generate(prompts, max_tokens=8, return_exceptions=True)
    one, empty, long, other = results
    assert isinstance(one, skulk.Output) and isinstance(other, skulk.Output) and one.ids == other.ids
    assert isinstance(empty, skulk.InvalidArgumentError) and empty.context["field"] == "prompt"
    assert isinstance(long, skulk.ContextOverflowError) and long.detail is not None
    # Without, the first is raised.
    with pytest.raises(skulk.InvalidArgumentError, match="empty"):
        stories.generate(prompts, max_tokens=8)


def test_what_cannot_be_is_refused(stories: skulk.Model) -> None:
    wrong: list[Any] = [[PROMPT, 3], [[1], None], [[1], [-1]], [[1, "x"]]]
    for prompts in wrong:
        with pytest.raises((TypeError, skulk.InvalidArgumentError)):
            stories.generate(prompts, max_tokens=1)
    with pytest.raises(skulk.InvalidArgumentError, match="closest"):
        stories.generate([PROMPT], max_token=1)  # type: ignore[call-overload]
    with pytest.raises(skulk.InvalidArgumentError) as caught:
        stories.generate(PROMPT, return_exceptions=True)  # type: ignore[call-overload]
    assert caught.value.context == {"field": "return_exceptions"}
    # It may be a list of tokens or of prompts: it is no prompt.
    with pytest.raises(skulk.InvalidArgumentError, match="empty"):
        stories.generate([])


@pytest.fixture(scope="module")
def slow(slow_checkpoint: Path) -> skulk.Model:
    return skulk.Model.load(slow_checkpoint, threads=2, context=8192, prefill_chunk=64)


def test_a_token_ends_all(slow: skulk.Model) -> None:
    token = skulk.CancelToken()
    threading.Timer(0.3, token.cancel).start()
    with pytest.raises(skulk.CancelledError):
        slow.generate([[5] * 6000] * 3, max_tokens=1, cancel=token)
    ended = slow.generate([PROMPT] * 20, max_tokens=400, cancel=token, return_exceptions=True)
    assert len(ended) == 20 and all(isinstance(end, skulk.CancelledError) for end in ended)


INTERRUPTED = """
import sys, skulk
model = skulk.Model.load(sys.argv[1], threads=2, context=8192, prefill_chunk=64)
try:
    print("prefill", flush=True)
    model.generate([[5] * 6000] * 8, return_exceptions=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    print(len(model.generate([5] * 4, max_tokens=2, ignore_eos=True).output().ids), flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_ctrl_c_ends_all(slow_checkpoint: Path) -> None:
    command = [sys.executable, "-c", INTERRUPTED, str(slow_checkpoint)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "prefill\n"
        time.sleep(0.5)
        child.send_signal(signal.SIGINT)
        assert child.stdout.read() == "interrupted\n2\n"
    assert child.returncode == 0


def test_beginnings_are_shared_over_sessions() -> None:
    model = skulk.Model.load(STORIES, threads=1)
    beginning = PROMPT + ", there was a little girl named Lily. She had a cat." * 4
    first = model.generate(beginning + " One day", max_tokens=4).output()
    second = model.generate(beginning + " Then", max_tokens=4).output()
    assert first.finish.usage.cached_tokens == 0 and second.finish.usage.cached_tokens >= 64
    expected = skulk.Model.load(STORIES, threads=1).generate(beginning + " Then", max_tokens=4).output()
    assert second.ids == expected.ids


def test_keys_and_values_take_memory_as_sessions_grow() -> None:
    model = skulk.Model.load(STORIES, threads=1)
    sessions = [model.session() for _ in range(1000)]
    assert model.kv_memory.in_use_bytes == 0 and model.kv_memory.budget_bytes is None
    sessions[0].generate(PROMPT, max_tokens=4).text()
    one = model.kv_memory.in_use_bytes
    sessions[0].generate(PROMPT, max_tokens=200, ignore_eos=True).text()
    memory = model.kv_memory
    assert 0 < one < memory.in_use_bytes <= memory.reserved_bytes
    assert memory.in_use_bytes <= sum(stage.kv_cache_bytes for stage in model.stages)


@pytest.mark.parametrize("when_full", ["wait", "evict", "fail"])
def test_a_budget_for_keys_and_values_is_kept(when_full: Any) -> None:
    model = skulk.Model.load(STORIES, threads=1, kv_memory=400_000, when_full=when_full)
    prompts = [f"{i} {PROMPT}" for i in range(16)]
    results = model.generate(prompts, max_tokens=100, ignore_eos=True, return_exceptions=True)
    memory = model.kv_memory
    assert memory.budget_bytes == 400_000 and memory.reserved_bytes <= 400_000
    failed = [result for result in results if isinstance(result, skulk.Error)]
    assert bool(failed) == (when_full != "wait") and len(failed) < len(prompts)
    for error in failed:
        assert (error.code, error.retry, error.context["field"]) == ("memory.exhausted", "now", "kv_memory")
    expected = skulk.Model.load(STORIES, threads=1, sessions=1)
    for prompt, result in zip(prompts, results, strict=True):
        if isinstance(result, skulk.Output):
            assert result.ids == expected.generate(prompt, max_tokens=100, ignore_eos=True).output().ids


def test_options_of_memory_that_cannot_be_are_refused() -> None:
    for options in ({"sessions": 0}, {"sessions": -1}, {"kv_memory": -1}, {"when_full": "drop"}):
        with pytest.raises(skulk.InvalidArgumentError) as caught:
            skulk.Model.load(STORIES, **options)
        assert caught.value.context["field"] in options
    model = skulk.Model.load(STORIES, kv_memory=1000)
    with pytest.raises(skulk.OutOfMemoryError):
        model.generate(PROMPT).text()
    with pytest.raises(skulk.InvalidArgumentError):
        model.generate(PROMPT, priority=1 << 31)


def test_a_slow_reader_holds_up_itself_alone(stories: skulk.Model) -> None:
    unread = [stories.generate(PROMPT, ignore_eos=True, max_tokens=400) for _ in range(40)]
    assert len(stories.generate(PROMPT, max_tokens=60, ignore_eos=True).output().ids) == 60
    ids = [generation.output().ids for generation in unread[::10]]
    assert all(len(one) == 400 and one == ids[0] for one in ids)
