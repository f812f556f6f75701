"""Can handles be closed, asked for logits, and watched while they load?"""

from __future__ import annotations

import gc
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import skulk
from conftest import REPOSITORY

STORIES = REPOSITORY / "examples" / "models" / "stories260K"
FOLDER = REPOSITORY / "tests" / "fixtures" / "vindex" / "made" / "tiny-llama320.q4k.vindex"


def test_closed_handles_refuse_and_what_was_made_of_them_goes_on() -> None:
    model = skulk.Model.load(STORIES)
    session, tokenizer = model.session(), model.tokenizer
    running = session.generate("Once upon a time", max_tokens=8)
    with model as same:
        assert same is model
    model.close()
    for use in (
        lambda: model.context,
        lambda: model.stages,
        lambda: model.generate("Once"),
        lambda: model.session(),
        lambda: model.logits("Once"),
        lambda: model.tokenizer,
    ):
        with pytest.raises(skulk.InvalidArgumentError, match="closed"):
            use()
    assert "closed" in repr(model)
    assert len(running.output().ids) == 8 and tokenizer.encode("Once")
    with session:
        assert len(session.tokens) > 8
    for refused in (lambda: session.tokens, lambda: session.generate("x"), lambda: session.truncate(0)):
        with pytest.raises(skulk.InvalidArgumentError, match="closed"):
            refused()
    assert "closed" in repr(session)


def test_a_generation_outlives_its_closed_session() -> None:
    with skulk.Model.load(STORIES) as model, model.session() as session:
        running = session.generate("Once upon a time", max_tokens=8)
    assert len(running.output().ids) == 8


def test_closed_folders_refuse_and_arrays_stay() -> None:
    with skulk.VindexReader(FOLDER) as reader:
        gates = reader.gates(0)
        before = gates.copy()
    for use in (lambda: reader.parts(), lambda: reader.lacks, lambda: reader.gates(0), lambda: reader.walk("a")):
        with pytest.raises(skulk.InvalidArgumentError, match="closed"):
            use()
    assert (gates == before).all()


def test_logits_are_those_that_greedy_generation_takes() -> None:
    with skulk.Model.load(STORIES) as model:
        text = "Once upon a time"
        logits = model.logits(text)
        assert logits.dtype == np.float32 and logits.shape == (len(model.tokenizer.encode(text)), model.arch.vocab_size)
        assert int(logits[-1].argmax()) == model.generate(text, max_tokens=1).output().ids[0]
        assert (model.logits(model.tokenizer.encode(text)) == logits).all()
        # Nothing is copied, and the array's owner may write to it.
        base: Any = logits
        while isinstance(base, np.ndarray):
            base = base.base
        assert type(base).__name__ == "Floats"
        before = logits.copy()
        del base
        gc.collect()
        assert (logits == before).all()
        logits[0, 0] = 7.0
        assert logits[0, 0] == 7.0
        with pytest.raises(skulk.InvalidArgumentError):
            model.logits([])
        token = skulk.CancelToken()
        token.cancel()
        with pytest.raises(skulk.CancelledError):
            model.logits(text, cancel=token)


def test_numbers_of_other_libraries_are_options() -> None:
    numbers: Any = {"threads": np.int64(1), "context": np.uint16(64)}
    with skulk.Model.load(STORIES, **numbers) as model:
        assert model.context == 64
        options: Any = {
            "max_tokens": np.int32(4),
            "temperature": np.float32(0.5),
            "stop": ("a", "b"),
            "logit_bias": {np.int64(7): -np.inf},
        }
        assert model.generate("Once", **options).output().ids


def test_options_that_cannot_be_are_refused_by_name() -> None:
    wrong: list[Any] = [
        {"max_tokens": "4"},
        {"max_tokens": -1},
        {"max_tokens": 1 << 200},
        {"stop": "a"},
        {"temperature": "NaN" * 30},
        {"temperature": float("nan")},
        {"logit_bias": {"x": 1.0}},
    ]
    with skulk.Model.load(STORIES) as model:
        for options in wrong:
            with pytest.raises(skulk.InvalidArgumentError) as raised:
                model.generate("Once", **options)
            assert raised.value.context["field"] in options
        with pytest.raises(skulk.InvalidArgumentError, match="`max_tokens` is the closest"):
            model.generate("Once", max_token=4)  # type: ignore[call-overload]
        with pytest.raises(skulk.InvalidArgumentError, match="there is no option"):
            model.generate("Once", **{"\ud800": 4})  # type: ignore[call-overload]


BAR = """
import sys, types
import skulk

class tqdm:
    def __init__(self, **options):
        self.n, self.total = 0, None
        print("new", options["desc"], options["unit"])
    def update(self, n):
        self.n += n
    def close(self):
        print("closed", self.n, self.total)

if sys.argv[2] == "installed":
    sys.modules["tqdm"] = types.ModuleType("tqdm")
    sys.modules["tqdm.auto"] = types.ModuleType("tqdm.auto")
    sys.modules["tqdm.auto"].tqdm = tqdm
else:
    sys.modules["tqdm"] = None
try:
    skulk.Model.load(sys.argv[1], progress=True)
except ImportError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("installed", "expected"),
    [("installed", "new loading layer\nclosed 5 5\n"), ("absent", "progress=True needs tqdm")],
)
def test_progress_is_a_bar_where_there_are_any(installed: str, expected: str) -> None:
    command = [sys.executable, "-c", BAR, str(STORIES), installed]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert shown.startswith(expected)
