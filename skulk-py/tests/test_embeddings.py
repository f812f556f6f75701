"""Are vectors of texts those of other people's software, and is what cannot be refused?"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import skulk
from conftest import FIXTURES, MINILM, REPOSITORY, TINY_BERT

LONG = "the cat sat on the mat, " * 5


@pytest.fixture(scope="module")
def tiny() -> skulk.EmbeddingModel:
    return skulk.EmbeddingModel.load(TINY_BERT, threads=2)


@pytest.fixture(scope="module")
def minilm() -> skulk.EmbeddingModel:
    if not MINILM.is_dir():
        pytest.skip(f"the real embedding model is not at {MINILM}: run tests/run, or set SKULK_MINILM")
    return skulk.EmbeddingModel.load(MINILM)


def gives_what_llama_cpp_gives(model: skulk.EmbeddingModel, suite: Path) -> None:
    cases = json.loads(suite.read_text(encoding="utf-8"))["cases"]
    vectors = model.embed([case["text"] for case in cases])
    assert vectors.dtype == np.float32 and vectors.shape == (len(cases), model.dimensions) and len(cases) == 7
    for case, vector in zip(cases, vectors, strict=True):
        assert model.tokenizer.encode(case["text"]) == case["ids"]
        # llama.cpp looks its GELU up in a table of f16.
        assert np.abs(vector - np.array(case["vector"])).max() < 1e-3, case["text"]


def test_an_untrained_model(tiny: skulk.EmbeddingModel) -> None:
    assert (tiny.dimensions, tiny.max_tokens, tiny.poolings, tiny.is_normalized) == (16, 16, ["mean"], True)
    gives_what_llama_cpp_gives(tiny, TINY_BERT.with_suffix(".json"))
    assert repr(tiny) == "<skulk.EmbeddingModel: 16 dimensions, 16 tokens>"


def test_the_real_model(minilm: skulk.EmbeddingModel) -> None:
    assert (minilm.dimensions, minilm.max_tokens) == (384, 256)
    gives_what_llama_cpp_gives(minilm, REPOSITORY / "tests" / "suites" / "embeddings.json")


def test_one_text_or_several(tiny: skulk.EmbeddingModel) -> None:
    texts = ["a cat", "", "the old dog runs"]
    together = tiny.embed(texts)
    for text, vector in zip(texts, together, strict=True):
        alone = tiny.embed(text)
        assert alone.shape == (16,) and alone.flags.writeable and (alone == vector).all()
    for several in (tuple(texts), iter(texts), np.array(texts), dict.fromkeys(texts)):
        given: Any = several
        assert (tiny.embed(given) == together).all()
    assert tiny.embed([]).shape == (0, 16)
    assert np.allclose(np.linalg.norm(together, axis=1), 1)
    assert (skulk.EmbeddingModel.load(str(TINY_BERT), threads=1).embed(texts) == together).all()


def test_long_texts_are_cut_or_refused(tiny: skulk.EmbeddingModel) -> None:
    ids = tiny.tokenizer.encode(LONG)
    beginning = tiny.tokenizer.decode(ids[: tiny.max_tokens - 1])
    assert len(tiny.tokenizer.encode(beginning)) == tiny.max_tokens < len(ids)
    assert (tiny.embed(LONG) == tiny.embed(beginning)).all()
    with pytest.raises(skulk.InvalidArgumentError, match=f"16 tokens at most, found {len(ids)}") as caught:
        tiny.embed(["a cat", LONG], truncate=False)
    assert caught.value.context["field"] == "texts.1"


def test_what_cannot_be_is_refused(tiny: skulk.EmbeddingModel) -> None:
    wrong: list[Any] = [3, None, b"a cat", [b"a cat"], ["a cat", 3], [["a cat"]]]
    for texts in wrong:
        with pytest.raises(TypeError, match="expected a text or several, found an instance of"):
            tiny.embed(texts)
    options: list[tuple[Any, str]] = [({"truncate": 1}, "truncate"), ({"truncat": True}, "truncat")]
    for given, field in options:
        with pytest.raises(skulk.InvalidArgumentError) as caught:
            tiny.embed("a cat", **given)
        assert caught.value.context["field"] == field
    with pytest.raises(skulk.InvalidArgumentError):
        skulk.EmbeddingModel.load(TINY_BERT, threads=0)
    with pytest.raises(skulk.InvalidArgumentError, match="`threads`|threads"):
        skulk.EmbeddingModel.load(TINY_BERT, thread=1)  # type: ignore[call-arg]
    with pytest.raises(skulk.ArchUnsupportedError, match="model_type"):
        skulk.EmbeddingModel.load(FIXTURES / "llama")
    with pytest.raises(skulk.FileNotFoundError):
        skulk.EmbeddingModel.load(TINY_BERT / "nothing")


def test_it_can_be_cancelled(tiny: skulk.EmbeddingModel) -> None:
    token = skulk.CancelToken()
    tiny.embed("a cat", cancel=token)
    token.cancel()
    with pytest.raises(skulk.CancelledError):
        tiny.embed("a cat", cancel=token)


INTERRUPTED = """
import signal, sys, threading, time
import skulk
signal.signal(signal.SIGINT, signal.default_int_handler)
model = skulk.EmbeddingModel.load(sys.argv[1], threads=1)
texts = ["the cat sat on the mat and the dog lay in the garden"] * 400_000
counted = 0
def count():
    global counted
    while True:
        time.sleep(0.01)
        counted += 1
threading.Thread(target=count, daemon=True).start()
def interrupt():
    time.sleep(0.5)
    signal.raise_signal(signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
began = time.monotonic()
try:
    model.embed(texts)
except KeyboardInterrupt:
    # Other threads went on meanwhile, and it ended soon.
    print(counted > 5, time.monotonic() - began < 5, len(model.embed("a cat")))
"""


def test_ctrl_c_ends_it_and_other_threads_go_on() -> None:
    run = subprocess.run([sys.executable, "-c", INTERRUPTED, str(TINY_BERT)], capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == ("True True 16\n", "")


def test_texts_that_never_end_do_with_an_exception(tiny: skulk.EmbeddingModel) -> None:
    def texts() -> Iterator[str]:
        for n in range(100_000):
            if n == 1000:
                signal.raise_signal(signal.SIGINT)
            yield "a cat"

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            tiny.embed(texts())
    finally:
        signal.signal(signal.SIGINT, before)

    def broken() -> Iterable[str]:
        yield "a cat"
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        tiny.embed(broken())


def test_closed_ones_refuse_and_what_was_made_of_them_goes_on() -> None:
    with skulk.EmbeddingModel.load(TINY_BERT) as model:
        tokenizer, vector = model.tokenizer, model.embed("a cat")
    model.close()
    for use in (lambda: model.embed("a cat"), lambda: model.dimensions, lambda: model.tokenizer):
        with pytest.raises(skulk.InvalidArgumentError, match="closed"):
            use()
    assert "closed" in repr(model) and tokenizer.encode("a cat") and vector.shape == (16,)
