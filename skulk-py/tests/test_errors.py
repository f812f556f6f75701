"""Is every failure a typed exception that says what to do?"""

from __future__ import annotations

import builtins
import errno
import json
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import skulk
from conftest import FIXTURES, PROMPT


def test_every_kind_is_a_class_of_its_own() -> None:
    kinds = skulk.error_kinds()
    assert len(kinds) == len({code for _, code in kinds}) >= 19
    for name, code in kinds:
        kind = getattr(skulk, f"{name}Error")
        assert kind.__name__ in skulk.__all__
        assert issubclass(kind, skulk.Error)
        assert kind.code == code and code in kind.__doc__
    classes = {value for value in vars(skulk).values() if isinstance(value, type) and issubclass(value, skulk.Error)}
    assert len(classes) == len(kinds) + 1


def test_pythons_own_classes_catch_them_too() -> None:
    assert issubclass(skulk.FileNotFoundError, builtins.FileNotFoundError)
    assert issubclass(skulk.FileIoError, OSError)
    assert issubclass(skulk.InvalidArgumentError, ValueError)
    assert issubclass(skulk.OutOfMemoryError, MemoryError)
    assert issubclass(skulk.DeadlineExceededError, TimeoutError)


def test_errors_that_others_raise_have_all_that_there_is() -> None:
    for name, code in skulk.error_kinds():
        error, other = (getattr(skulk, f"{name}Error")(text) for text in ("broken", "other"))
        assert (error.code, error.message, str(error)) == (code, "broken", "broken")
        assert (error.hint, error.retry, error.detail, error.context) == (None, "never", None, {})
        error.context["field"] = "stop"
        assert other.context == {}
        assert pickle.loads(pickle.dumps(error)).context == error.context
    assert skulk.CardInvalidError("broken").faults == []
    assert skulk.PlanNoFitError().report is None and skulk.PlanPendingError().message == ""


def test_a_missing_file_is_named() -> None:
    with pytest.raises(FileNotFoundError) as caught:
        skulk.Model.load("no/such/model.gguf")
    error = caught.value
    assert isinstance(error, skulk.Error)
    assert error.code == "file.not_found" and error.retry == "never" and error.detail is None
    assert error.context["file"] == "no/such/model.gguf"
    assert error.message and error.hint
    for part in (error.code, error.message, error.hint, "model.gguf"):
        assert part in str(error)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error) and (copy.hint, copy.context) == (error.hint, error.context)
    for each in (error, copy):
        assert (each.errno, each.filename) == (errno.ENOENT, "no/such/model.gguf")
        assert each.strerror == error.message and str(each) == str(error)


def test_the_systems_number_of_a_failure_is_kept(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(OSError) as caught:
        next(iter(skulk.CardLibrary().values())).save(tmp_path / "a" / "card.toml")
    assert isinstance(caught.value, skulk.FileIoError)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOTDIR, str(tmp_path / "a" / "card.toml"))
    with pytest.raises(FileNotFoundError) as missing:
        skulk.Model.load(tmp_path)
    assert (missing.value.errno, missing.value.filename) == (errno.ENOENT, str(tmp_path))


def test_an_overflow_carries_its_numbers(stories: skulk.Model) -> None:
    with pytest.raises(skulk.ContextOverflowError) as caught:
        stories.generate([1] * 600)
    assert caught.value.detail == {"needed": 601, "available": 512}
    assert caught.value.hint and "shorten" in caught.value.hint
    with pytest.raises(skulk.ContextOverflowError) as caught:
        stories.generate([1, 2], max_tokens=511)
    assert caught.value.detail == {"needed": 513, "available": 512}


def test_a_wrong_shape_carries_both(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "stories260K", tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"intermediate_size": 160}))
    with pytest.raises(skulk.TensorShapeError) as caught:
        skulk.Model.load(tmp_path)
    assert caught.value.detail == {"expected": [160, 64], "found": [172, 64]}
    assert "mlp" in caught.value.context["tensor"]


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": -1.0}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"min_p": 2.0}, "min_p"),
        ({"top_k": 0}, "top_k"),
        ({"top_k": -1}, "top_k"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -5}, "max_tokens"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
        ({"presence_penalty": float("inf")}, "presence_penalty"),
        ({"frequency_penalty": float("nan")}, "frequency_penalty"),
        ({"penalty_window": -1}, "penalty_window"),
        ({"seed": 2**64}, "seed"),
        ({"seed": -1}, "seed"),
        ({"speculate": "always"}, "speculate"),
        ({"draft_tokens": 0}, "draft_tokens"),
        ({"draft_tokens": 16}, "draft_tokens"),
        ({"draft_tokens": 2, "speculate": "off"}, "draft_tokens"),
        ({"draft_tree": True, "speculate": "off"}, "draft_tree"),
        ({"draft_texts": "a"}, "draft_texts"),
        ({"logprobs": 65}, "logprobs"),
        ({"logit_bias": {10**6: 1.0}}, "logit_bias"),
        ({"logit_bias": {-1: 1.0}}, "logit_bias"),
        ({"logit_bias": {1: float("nan")}}, "logit_bias"),
        ({"stop": [""]}, "stop"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [1, -1]}, "prompt"),
        ({"prompt": [10**6]}, "prompt"),
    ],
)
def test_impossible_options_name_their_field(stories: skulk.Model, options: dict[str, Any], field: str) -> None:
    prompt = options.pop("prompt", PROMPT)
    with pytest.raises(skulk.InvalidArgumentError) as caught:
        stories.generate(prompt, **options)
    assert caught.value.context["field"] == field
    assert "found" in caught.value.message


class Broken:
    def __iter__(self) -> Iterator[str]:
        raise LookupError("broken")


class BrokenNumber:
    def __index__(self) -> int:
        raise LookupError("broken")


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda model: model.generate(PROMPT, max_tokens=object()), "max_tokens"),
        (lambda model: model.generate(PROMPT, max_tokens=[[object()]]), "max_tokens"),
        (lambda model: model.generate(PROMPT, stop=["\ud800"]), "stop"),
        (lambda model: model.generate(PROMPT, stop=b"ab"), "stop"),
        (lambda model: model.generate("\ud800"), "prompt"),
        (lambda model: model.generate([PROMPT, "\ud800"]), "prompt"),
        (lambda model: model.generate(b"Once"), "prompt"),
        (lambda model: model.generate(bytearray(b"Once")), "prompt"),
        (lambda model: model.generate(memoryview(b"Once")), "prompt"),
        (lambda model: model.generate([b"Once"]), "prompt"),
        (lambda model: model.generate([True]), "prompt"),
        (lambda model: model.generate([1.0]), "prompt"),
        (lambda model: model.generate([2**200]), "prompt"),
        (lambda model: model.generate({1, 2}), "prompt"),
        (lambda model: model.generate(3), "prompt"),
        (lambda model: model.logits(b"Once"), "prompt"),
        (lambda model: model.tokenizer.decode(b"ab"), "ids"),
        (lambda model: model.tokenizer.decode([True]), "ids"),
        (lambda model: model.tokenizer.decode("ab"), "ids"),
        (lambda model: model.tokenizer.encode("\ud800"), "text"),
        (lambda model: model.session().truncate(2**200), "len"),
        (lambda model: model.session().truncate(-(2**200)), "len"),
        (lambda model: model.session().truncate("1"), "len"),
        (lambda model: skulk.serve(FIXTURES / "llama", layers=range(0, 2**70)), "layers"),
        (lambda model: skulk.Model.load(FIXTURES / "llama", placement=[("cpu", 2**200)]), "placement"),
        (lambda model: skulk.Model.load(FIXTURES / "llama", placement="cpu=5"), "placement"),  # type: ignore[arg-type]
        (lambda model: skulk.Model.load(FIXTURES / "llama", chat_template="\ud800"), "chat_template"),
        (lambda model: model.generate(PROMPT, logit_bias={True: 1.0}), "logit_bias"),
        (lambda model: model.generate(PROMPT, logit_bias={1: 1.0, "1": 2.0}), "logit_bias"),
        (lambda model: model.generate(PROMPT, logit_bias={(1,): 1.0}), "logit_bias"),
        (lambda model: model.generate(PROMPT, logit_bias={"01": 1.0}), "logit_bias"),
        (lambda model: model.generate(PROMPT, logit_bias={"+1": 1.0}), "logit_bias"),
        (lambda model: model.tune_speculation([PROMPT], draft_tokens=2), "draft_tokens"),
    ],
)
def test_what_no_argument_can_be_names_its_field(
    stories: skulk.Model, call: Callable[[skulk.Model], object], field: str
) -> None:
    with pytest.raises(skulk.InvalidArgumentError) as caught:
        call(stories)
    assert caught.value.context["field"] == field
    assert "found" in caught.value.message


@pytest.mark.parametrize(
    "call",
    [
        lambda model: model.generate(PROMPT, stop=Broken()),
        lambda model: model.generate(PROMPT, max_tokens=BrokenNumber()),
        lambda model: model.generate([BrokenNumber()]),
        lambda model: model.session().truncate(BrokenNumber()),
        lambda model: skulk.Placement.by_counts(Broken()),  # type: ignore[arg-type]
    ],
)
def test_exceptions_of_arguments_are_let_through(
    stories: skulk.Model, call: Callable[[skulk.Model], object]
) -> None:
    with pytest.raises(LookupError, match="broken"):
        call(stories)


def test_options_of_loading_have_their_own_names() -> None:
    def failing(**options: Any) -> skulk.Error:
        with pytest.raises(skulk.Error) as caught:
            skulk.Model.load(FIXTURES / "stories260K", threads=1, **options)
        return caught.value

    assert failing(engine="").context["field"] == "engine"
    assert failing(placement=[("", 5)]).context["field"] == "placement"
    assert "fewer than 2^64 seconds" in failing(peer_timeout=float("inf")).message
    both = failing(engine="cpu", placement=[("cpu", 5)])
    assert both.context["field"] == "engine" and "the option engine beside" in both.message
    assert "engine_name" not in str(both)
    grpc = failing(ffn_at=["grpc://127.0.0.1:1"])
    assert grpc.context == {"field": "ffn_at"} and "(field: ffn_at)" in str(grpc)
    with skulk.serve(FIXTURES / "stories260K", threads=1, key="secret") as server:
        rows = failing(ffn_at=[server.address], peer_key="secret", peer_rows_q8k=True)
        assert rows.context["field"] == "peer_rows_q8k"
        refused = failing(ffn_at=[server.address])
        assert isinstance(refused, skulk.PeerFailedError) and refused.retry == "after_replan"
        assert refused.hint == "give the server's key with the option peer_key" and refused.hint in str(refused)
        # A link's own option is called so.
        with pytest.raises(skulk.PeerFailedError) as caught:
            skulk.Node.measure_link(server.address)
        assert caught.value.hint == "give the server's key with the option key"
    placement = skulk.Placement.build(FIXTURES / "stories260K", engine="cpu", experts=["1..2=cpu@shed"])
    elsewhere = failing(placement=placement, addresses={"shed": "nowhere"})
    assert elsewhere.context == {"field": "addresses", "node": "shed"}


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"threads": 0}, skulk.InvalidArgumentError),
        ({"threads": -2}, skulk.InvalidArgumentError),
        ({"context": 0}, skulk.InvalidArgumentError),
        ({"context": 10**9}, skulk.InvalidArgumentError),
        ({"prefill_chunk": 0}, skulk.InvalidArgumentError),
        ({"stages": 0}, skulk.PlacementInvalidError),
        ({"stages": 99}, skulk.PlacementInvalidError),
        ({"stages": -1}, skulk.InvalidArgumentError),
        ({"engine": "abacus"}, skulk.PlacementInvalidError),
        ({"placement": [("cpu", 4), ("abacus", 1)]}, skulk.PlacementInvalidError),
        ({"placement": [("cpu", -1)]}, skulk.InvalidArgumentError),
        ({"placement": [("cpu", 5)], "stages": 2}, skulk.InvalidArgumentError),
        ({"placement": [("cpu", 5)], "engine": "cpu"}, skulk.InvalidArgumentError),
    ],
)
def test_impossible_loads_are_refused(options: dict[str, Any], kind: type[skulk.Error]) -> None:
    with pytest.raises(kind) as caught:
        skulk.Model.load(FIXTURES / "stories260K", **options)
    assert "field" in caught.value.context


@pytest.mark.parametrize(
    ("placement", "message"),
    [
        ([("cpu", 3)], "5 layers, found 3"),
        ([("cpu", 3), ("cpu", 3)], "5 layers, found 6"),
        ([("cpu", 5), ("cpu", 0)], "found 5..5"),
        ([], "found none"),
    ],
)
def test_placements_of_other_models_say_what_is_wrong(placement: list[tuple[str, int]], message: str) -> None:
    with pytest.raises(skulk.PlacementInvalidError) as caught:
        skulk.Model.load(FIXTURES / "stories260K", placement=placement)
    assert message in caught.value.message and caught.value.hint


def test_an_engine_that_is_not_there_says_why() -> None:
    # Not compiled in, or no machine has that many.
    with pytest.raises(skulk.EngineUnavailableError) as caught:
        skulk.Model.load(FIXTURES / "stories260K", engine="candle-cuda:4095", ffn_on_cpu=True)
    assert "cuda" in caught.value.message.lower()


@pytest.mark.parametrize(
    "call",
    [
        lambda model: model.generate(3),
        lambda model: model.generate(PROMPT, max_tokens="many"),
        lambda model: model.generate(PROMPT, stop="text"),
        lambda model: model.generate(PROMPT, unknown=1),
        lambda model: model.generate(PROMPT, cancel=object()),
        lambda model: skulk.Model.load(3),  # type: ignore[arg-type]
        lambda model: skulk.Model.load("path", placement="cpu=5"),  # type: ignore[arg-type]
        lambda model: skulk.Model.load("path", placement=[("cpu", "5")]),  # type: ignore[list-item]
        lambda model: skulk.Model(),
        lambda model: skulk.Generation(),
    ],
)
def test_wrong_types_are_type_errors(stories: skulk.Model, call: Callable[[skulk.Model], object]) -> None:
    with pytest.raises(TypeError):
        call(stories)


@pytest.mark.parametrize("content", [b"", b"GGUF", b"GGUF\x03\0\0\0" + b"\xff" * 64, b"not a model"])
def test_broken_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises((skulk.CheckpointInvalidError, skulk.CheckpointTruncatedError)) as caught:
        skulk.Model.load(path)
    assert "model.gguf" in caught.value.context["file"]


def test_names_from_a_checkpoint_cannot_inject_html() -> None:
    from skulk._notebook import table

    class Hostile:
        arch = skulk.Arch("<script>", 1, 1, 1, 1)
        stages = [skulk.Stage("<b>", "&", range(1), 0, 0, "mapped")]
        context = 1

    html = table(Hostile())  # type: ignore[arg-type]
    assert "<script>" not in html and "<b>" not in html and "&lt;script&gt;" in html


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "f64"}, "expected `fast`, `exact` or `bf16`, found `f64`"),
        ({"memory": "gpu"}, "expected `auto`, `mapped` or `resident`, found `gpu`"),
        ({"kv": "f8"}, "expected `f16`, `bf16`, `f32`, `q8_0` or `q4_0`, found `f8`"),
    ],
)
def test_closed_sets_are_listed(options: dict[str, Any], message: str) -> None:
    with pytest.raises(skulk.InvalidArgumentError) as caught:
        skulk.Model.load(FIXTURES / "llama", **options)
    assert caught.value.message == message and caught.value.context == {"field": next(iter(options))}
