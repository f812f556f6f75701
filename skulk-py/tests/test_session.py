"""What does a conversation remember?"""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

import skulk
from conftest import FIXTURES, PROMPT


def test_a_longer_prompt_computes_only_what_is_new(stories: skulk.Model) -> None:
    session = stories.session()
    first = session.generate(PROMPT, max_tokens=8).output()
    assert session.tokens[-8:] == first.ids
    assert f"{len(session.tokens)} tokens" in repr(session)
    longer = PROMPT + first.text + " Then"
    second = session.generate(longer, max_tokens=8).output()
    assert second.finish.usage.cached_tokens >= first.finish.usage.prompt_tokens
    assert second.text == stories.generate(longer, max_tokens=8).text()


def test_append_follows_what_is_there(stories: skulk.Model) -> None:
    session = stories.session()
    first = session.generate(PROMPT, append=True, max_tokens=8).output()
    held = session.tokens
    generation = session.generate(" Then", append=True, max_tokens=4)
    assert generation.prompt_ids[: len(held)] == held
    second = generation.output()
    assert second.finish.usage.cached_tokens > first.finish.usage.prompt_tokens
    with pytest.raises(TypeError, match="text"):
        session.generate([1, 2], append=True)
    # What has a session of its own follows nothing.
    for prompt in (PROMPT, [PROMPT, PROMPT]):
        with pytest.raises(skulk.InvalidArgumentError) as refused:
            stories.generate(prompt, append=True, max_tokens=2)
        assert refused.value.context["field"] == "append"
    with pytest.raises(skulk.InvalidArgumentError, match="follows"):
        stories.tune_speculation([PROMPT], append=True)


def test_truncate_forgets(stories: skulk.Model) -> None:
    session = stories.session()
    before = session.generate(PROMPT, max_tokens=8).output()
    session.truncate(5)
    assert session.tokens == stories.tokenizer.encode(PROMPT)[:5]
    again = session.generate(PROMPT, max_tokens=8).output()
    assert again.ids == before.ids
    with pytest.raises(skulk.InvalidArgumentError, match="at most"):
        session.truncate(10_000)


def test_a_fork_goes_on_by_itself(stories: skulk.Model) -> None:
    session = stories.session()
    session.generate(PROMPT, max_tokens=8).text()
    held, other = session.tokens, session.fork()
    output = other.generate(" Then", append=True, max_tokens=8).output()
    assert output.finish.usage.cached_tokens >= len(held) - 1
    assert session.tokens == held == other.tokens[: len(held)]
    assert session.generate(" Then", append=True, max_tokens=8).output().ids == output.ids
    assert stories.session().fork().tokens == []
    other.close()
    with pytest.raises(skulk.InvalidArgumentError, match="closed"):
        other.fork()


def test_a_saved_session_goes_on(stories: skulk.Model, tmp_path: Path) -> None:
    session = stories.session()
    session.generate(PROMPT * 20, max_tokens=8).text()
    file, tokens = tmp_path / "conversation.skulk", session.tokens
    session.save(file)
    expected = session.generate(" Then", append=True, max_tokens=8).output()
    restored = stories.restore(str(file))
    assert restored.tokens == tokens
    output = restored.generate(" Then", append=True, max_tokens=8).output()
    assert output.ids == expected.ids
    assert output.finish.usage.cached_tokens >= len(tokens) - 1
    with pytest.raises(skulk.FileNotFoundError, match="none"):
        stories.restore(tmp_path / "none")
    with pytest.raises(skulk.FileNotFoundError):
        session.save(tmp_path / "no" / "folder")
    other = skulk.Model.load(FIXTURES / "stories260K", kv="f32")
    with pytest.raises(skulk.SessionMismatchError, match="f32"):
        other.restore(file)
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(skulk.SessionInvalidError, match=r"conversation\.skulk"):
        stories.restore(file)
    restored.close()
    with pytest.raises(skulk.InvalidArgumentError, match="closed"):
        restored.save(file)


def test_sessions_are_independent(stories: skulk.Model) -> None:
    alone = stories.generate(PROMPT, max_tokens=60).text()
    running = [stories.session().generate(PROMPT, max_tokens=60) for _ in range(4)]
    texts = [""] * len(running)
    while any(running_now := [next(generation, None) for generation in running]):
        for i, event in enumerate(running_now):
            texts[i] += str(event or "")
    assert texts == [alone] * 4


def test_one_session_runs_one_generation(stories: skulk.Model) -> None:
    session = stories.session()
    with session.generate(PROMPT, max_tokens=400) as running:
        next(running)
        assert repr(session) == "<skulk.Session: generating>"
        for use in (lambda: session.generate("x"), lambda: session.tokens, lambda: session.truncate(0), session.fork):
            with pytest.raises(skulk.SessionBusyError) as caught:
                use()
            assert caught.value.retry == "now"
    assert session.generate("x", max_tokens=2).text() is not None


def test_dropping_a_generation_frees_the_session(stories: skulk.Model) -> None:
    session = stories.session()
    for _ in range(3):
        for _event in session.generate(PROMPT, max_tokens=400):
            break
        gc.collect()
        session.truncate(1)
        assert len(session.tokens) == 1


def test_models_outlive_their_names() -> None:
    generation = skulk.Model.load(FIXTURES / "stories260K", threads=1).session().generate(PROMPT, max_tokens=9)
    gc.collect()
    assert len(generation.output().ids) == 9
