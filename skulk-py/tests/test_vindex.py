"""Are vindex folders written, read, sliced, checked and browsed as in Rust, and are their weights arrays?"""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import numpy as np
import pytest
from numpy.typing import NDArray

import skulk
from conftest import EXAMPLES, FIXTURES, PROMPT, REPOSITORY
from skulk import vindex

VINDEXES = REPOSITORY / "tests" / "fixtures" / "vindex"
QUANTISED = VINDEXES / "made" / "tiny-llama320.q4k.vindex"
BROWSED = VINDEXES / "served" / "tiny-llama.browse.vindex"
ANSWERS = VINDEXES / "http" / "llama-f16"
"""What LARQL's server answered of a folder that shares its files with the one above."""
STORIES = EXAMPLES.parent / "models" / "stories260K"

EXTRA = os.environ.get("SKULK_EXTRA_SUITES")
MADE = [QUANTISED, BROWSED, *(sorted(Path(EXTRA, "vindex", "made").iterdir()) if EXTRA else [])]


@pytest.fixture(params=MADE, ids=lambda path: path.name)
def made(request: pytest.FixtureRequest) -> skulk.VindexReader:
    """Each folder that LARQL made."""
    return skulk.VindexReader(request.param, threads=2)


@pytest.fixture(scope="module")
def browsed() -> skulk.VindexReader:
    return skulk.VindexReader(BROWSED, threads=2)


@pytest.fixture(scope="module")
def extracted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model as f32."""
    path = tmp_path_factory.mktemp("vindex") / "stories.vindex"
    skulk.extract(STORIES, path, storage="f32", name="stories")
    return path


@pytest.fixture
def folder(extracted: Path, tmp_path: Path) -> Path:
    """The same, to be damaged."""
    return Path(shutil.copytree(extracted, tmp_path / "damaged"))


# Reading


def test_a_folder_says_what_it_is(made: skulk.VindexReader) -> None:
    index = json.loads((made.path / "index.json").read_text())
    for key, value in index.items():
        # Numbers with a fraction are float32 to the library.
        assert made.index[key] == (pytest.approx(value) if isinstance(value, float) else value), key
    assert (made.model, made.family) == (index["model"], index["family"])
    assert (made.num_layers, made.hidden_size) == (index["num_layers"], index["hidden_size"])
    assert (made.vocab_size, made.level) == (index["vocab_size"], index["extract_level"])
    assert (made.dtype, made.quant) == (index["dtype"], index["quant"])
    assert made.layers == [layer["layer"] for layer in index["layers"] if layer["num_features"]]
    assert all(band.stop <= made.num_layers for band in (made.bands.syntax, made.bands.knowledge, made.bands.output))
    assert made.model in repr(made) and made.level in repr(made)
    made.index["model"] = "other"
    assert made.model == made.index["model"] == index["model"]


@pytest.mark.skipif(sys.platform != "linux", reason="paths of other systems are text")
def test_paths_may_be_no_text(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/of \xff"))
    shutil.copytree(BROWSED, folder)
    reader = skulk.VindexReader(folder)
    assert reader.path == folder and len(reader) > 0
    assert not skulk.verify_vindex(folder).problems
    assert reader.slice(Path(os.fsdecode(os.fsencode(folder) + b"2")), preset="browse").path.name == "of \ufffd2"


def test_tensors_are_listed_by_name(made: skulk.VindexReader) -> None:
    names = [tensor.name for tensor in made.tensors]
    assert names == sorted(names) == list(made) and len(names) == len(made) > 0
    assert "embed_tokens.weight" in made and "embed_tokens" not in made and 3 not in made
    embeddings = made.tensor("embed_tokens.weight")
    assert embeddings.shape == (made.vocab_size, made.hidden_size)
    assert embeddings.file == made.path / "embeddings.bin"
    assert (embeddings.offset, embeddings.length) == (0, embeddings.file.stat().st_size)


def test_parts_are_the_folder(made: skulk.VindexReader) -> None:
    files = {file.name: file for part in made.parts() for file in part.files}
    for name, file in files.items():
        assert file.bytes == (made.path / name).stat().st_size
    assert sum(file.tensors for file in files.values()) == len(made)
    assert {"index.json", "embeddings.bin"} <= files.keys()
    there = {path.relative_to(made.path).as_posix() for path in made.path.rglob("*") if path.is_file()}
    assert files.keys() <= there
    assert not {part.part for part in made.parts()} & set(made.lacks)


def stored(tensor: vindex.TensorInfo) -> bytes:
    with tensor.file.open("rb") as file:
        file.seek(tensor.offset)
        return file.read(tensor.length)


def test_plain_arrays_are_the_file_itself(made: skulk.VindexReader) -> None:
    plain = [tensor for tensor in made.tensors if tensor.dtype in ("F32", "F16")]
    assert plain
    for tensor in plain:
        array = made.array(tensor.name)
        assert type(array) is np.ndarray and array.shape == tensor.shape
        assert array.dtype == np.dtype(tensor.dtype.replace("F", "float"))
        assert type(array.base).__name__ == "Region" and not array.flags.owndata, "copied"
        assert not array.flags.writeable
        with pytest.raises(ValueError):
            array[...] = 0
        rows = np.frombuffer(stored(tensor), array.dtype).reshape(array.size // tensor.shape[-1], -1)
        assert array.reshape(-1, tensor.shape[-1]).tobytes() == rows[:, : tensor.shape[-1]].tobytes()


def q4_k(blocks: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Blocks of 144 bytes, as docs/formats/vindex.md has them."""
    d, m = (blocks[:, at : at + 2].copy().view("<f2").astype(float) for at in (0, 2))
    b = blocks[:, 4:16].astype(int)
    scales = np.hstack([b[:, :4] & 63, b[:, 8:] & 15 | (b[:, :4] >> 6) << 4])
    minima = np.hstack([b[:, 4:8] & 63, b[:, 8:] >> 4 | (b[:, 4:8] >> 6) << 4])
    groups = blocks[:, 16:].reshape(-1, 4, 32)
    q = np.stack([groups & 15, groups >> 4], axis=2).reshape(-1, 8, 32)
    values: NDArray[np.float64] = (d * scales)[:, :, None] * q - (m * minima)[:, :, None]
    return values.reshape(-1, 256)


def q6_k(blocks: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Blocks of 210 bytes with bits in the order of the elements, likewise."""
    i = np.arange(256)
    low = blocks[:, i // 2] >> (i % 2 * 4) & 15
    high = blocks[:, 128 + i // 4] >> (i % 4 * 2) & 3
    scales = blocks[:, 192:208].copy().view(np.int8).astype(float)[:, i // 16]
    d = blocks[:, 208:].copy().view("<f2").astype(float)
    values: NDArray[np.float64] = d * scales * ((low | high << 4).astype(float) - 32)
    return values


def bf16(blocks: NDArray[np.uint8]) -> NDArray[np.float64]:
    values: NDArray[np.float64] = (blocks.copy().view("<u2").astype("<u4") << 16).view("<f4").astype(float)
    return values


DECODERS = {"Q4_K": (q4_k, 144), "Q6_K_Linear": (q6_k, 210), "BF16": (bf16, 2)}


def test_other_arrays_are_decoded(made: skulk.VindexReader) -> None:
    coded = [tensor for tensor in made.tensors if tensor.dtype in DECODERS]
    assert bool(coded) == (made.quant == "q4k")
    for tensor in coded:
        decode, size = DECODERS[tensor.dtype]
        array = made.array(tensor.name)
        assert array.dtype == np.float32 and array.shape == tensor.shape and array.flags.writeable
        values = decode(np.frombuffer(stored(tensor), np.uint8).reshape(-1, size))
        values = values.reshape(tensor.shape[0], -1)[:, : tensor.shape[-1]]
        # Two products and a difference in float32.
        np.testing.assert_allclose(array, values, rtol=1e-6, atol=1e-7)


def test_decoding_piece_by_piece_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = skulk.VindexReader(QUANTISED)
    name = "layers.0.mlp.down_proj.weight"
    whole = reader.array(name)
    assert whole.shape[1] % 256, "its rows are to be padded"
    for numbers in (1, 7 * whole.shape[1]):
        monkeypatch.setattr("skulk._arrays.DECODED", numbers)
        assert np.array_equal(whole, reader.array(name))


def test_gates_are_the_file_itself(browsed: skulk.VindexReader) -> None:
    every = np.fromfile(BROWSED / "gate_vectors.bin", "<f2").reshape(-1, browsed.hidden_size)
    start = 0
    for layer in browsed.layers:
        gates = browsed.gates(layer)
        assert gates.dtype == np.float16 and not gates.flags.writeable
        assert np.array_equal(gates, every[start : start + len(gates)])
        start += len(gates)
    assert start == len(every)


def test_what_is_missing_is_named(browsed: skulk.VindexReader) -> None:
    for ask in (browsed.array, browsed.tensor):
        with pytest.raises(skulk.TensorMissingError, match="attn_weights") as caught:
            ask("layers.0.self_attn.q_proj.weight")
        assert caught.value.context["part"] == "attn"
        assert caught.value.context["tensor"] == "layers.0.self_attn.q_proj.weight"
    with pytest.raises(skulk.InvalidArgumentError):
        browsed.gates(browsed.num_layers)
    with pytest.raises(skulk.InvalidArgumentError) as invalid:
        browsed.gates(-1)
    assert invalid.value.context == {"field": "layer"}
    with pytest.raises(skulk.FileNotFoundError):
        skulk.VindexReader(VINDEXES)
    with pytest.raises(TypeError):
        browsed.array(3)  # type: ignore[arg-type]


WITHOUT_NUMPY = """
import sys
sys.modules["numpy"] = None
import skulk
reader = skulk.VindexReader(sys.argv[1])
for ask in (lambda: reader.array("embed_tokens.weight"), lambda: reader.gates(0), lambda: reader.embed(3)):
    try:
        ask()
    except ImportError as error:
        assert "pip install numpy" in str(error) and error.name == "numpy", error
    else:
        raise AssertionError
print(len(reader.walk("The model")), len(reader.nearest([0.5] * reader.hidden_size, 2, layers=[0])))
"""


def test_only_arrays_need_numpy(browsed: skulk.VindexReader) -> None:
    command = [sys.executable, "-c", WITHOUT_NUMPY, str(BROWSED)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.stdout == f"{5 * len(browsed.layers)} 2\n", run.stderr


# Browsing


def recorded(name: str) -> tuple[dict[str, str], Any, Any]:
    """What was asked for behind `?`, the request's body, and the reply."""
    exchange = json.loads((ANSWERS / f"{name}.json").read_text())
    asked = dict(parse_qsl(urlsplit(exchange["path"]).query))
    return asked, exchange.get("request_json"), exchange["response_json"]


def near(ours: float, theirs: float, unit: float = 0.1) -> bool:
    """Whether a score is what LARQL rounded to that; sums of some hundred products are off by little."""
    return abs(ours - theirs) <= unit / 2 + 1e-5


def test_walks_are_larqls(browsed: skulk.VindexReader) -> None:
    asked, _, reply = recorded("walk")
    first, last = map(int, asked["layers"].split("-"))
    hits = browsed.walk(asked["prompt"], top=int(asked["top"]), layers=range(first, last + 1))
    assert len(hits) == len(reply["hits"]) > 0
    for hit, theirs in zip(hits, reply["hits"], strict=True):
        assert (hit.layer, hit.feature, hit.target) == (theirs["layer"], theirs["feature"], theirs["target"])
        assert near(hit.gate_score, theirs["gate_score"]) and hit.relation == theirs.get("relation")
    every = browsed.walk(asked["prompt"], top=int(asked["top"]))
    assert [hit.layer for hit in every] == [layer for layer in browsed.layers for _ in range(int(asked["top"]))]
    assert every[: len(hits)] == hits


def test_descriptions_are_larqls(browsed: skulk.VindexReader) -> None:
    asked, _, reply = recorded("describe")
    assert asked["band"] == "all"
    found = browsed.describe(
        asked["entity"], band="all", min_score=float(asked["min_score"]), limit=int(asked["limit"])
    )
    assert found.entity == reply["entity"] and found.model == browsed.model
    assert len(found.edges) == len(reply["edges"]) > 0
    for edge, theirs in zip(found.edges, reply["edges"], strict=True):
        ours = dataclasses.asdict(edge)
        for key in ("target", "layer", "also", "layer_min", "layer_max", "count"):
            assert ours[key] == theirs[key], key
        assert near(edge.gate_score, theirs["gate_score"])
        assert edge.feature < len(browsed.gates(edge.layer))
    assert browsed.describe(asked["entity"]).edges == []


def test_selections_are_larqls(browsed: skulk.VindexReader) -> None:
    _, request, reply = recorded("select")
    found = browsed.select(layer=request["layer"], limit=request["limit"])
    assert found.total == reply["total"]
    ours = [dataclasses.asdict(feature) for feature in found.features]
    assert ours == [edge | {"relation": None} for edge in reply["edges"]]
    lowest = browsed.select(layer=0, ascending=True, limit=1).features[0]
    assert lowest.c_score < found.features[0].c_score
    target = found.features[0].target
    assert all(target in feature.target.lower() for feature in browsed.select(entity=target).features)
    assert browsed.select(relation="capital").total == 0
    assert browsed.select(order="layer", limit=1).features[0].layer == browsed.layers[-1]


def test_relations_are_larqls(browsed: skulk.VindexReader) -> None:
    _, _, reply = recorded("get_relations")
    found = browsed.relations(limit=10**9)
    assert (found.total, found.probe_count) == (reply["total"], reply["probe_count"])
    assert len(found.relations) == found.total and len(browsed.relations(limit=3).relations) == 3
    ours = {relation.name: dataclasses.asdict(relation) for relation in found.relations}
    for theirs in reply["relations"]:
        for key, value in theirs.items():
            assert ours[theirs["name"]][key] == value, key


def test_embeddings_are_larqls(browsed: skulk.VindexReader) -> None:
    _, _, reply = recorded("embed_one_json")
    token = reply["token_id"]
    row = browsed.embed(token)
    assert row.dtype == np.float32 and row.shape == (browsed.hidden_size,)
    assert np.array_equal(row, np.array(reply["embedding"], np.float32))
    for tokens in ([token, 3], np.array([token, 3]), (np.int64(token), np.uint8(3))):
        rows = browsed.embed(tokens)
        assert rows.shape == (2, browsed.hidden_size) and np.array_equal(rows[0], row)
    assert np.array_equal(browsed.embed(np.array(token)), row)
    assert browsed.embed([]).shape == (0, browsed.hidden_size)
    with pytest.raises(TypeError):
        browsed.embed(1.5)  # type: ignore[arg-type]
    for text in ("girl", b"girl", bytearray(b"girl"), memoryview(b"girl")):
        with pytest.raises(skulk.InvalidArgumentError, match="encode texts") as caught:
            browsed.embed(text)  # type: ignore[arg-type]
        assert caught.value.context["field"] == "tokens"
    for token in (browsed.vocab_size, -1, 2**40):
        with pytest.raises(skulk.InvalidArgumentError):
            browsed.embed(token)


def test_nearest_features_have_the_largest_products(browsed: skulk.VindexReader) -> None:
    query = np.random.default_rng(7).standard_normal(browsed.hidden_size).astype(np.float32)
    hits = browsed.nearest(query, 4)
    for layer in browsed.layers:
        products = browsed.gates(layer).astype(np.float64) @ query
        here = [hit for hit in hits if hit.layer == layer]
        assert [hit.feature for hit in here] == list(np.argsort(-abs(products), kind="stable")[:4])
        np.testing.assert_allclose([hit.score for hit in here], products[[hit.feature for hit in here]], rtol=1e-4)
        np.testing.assert_allclose(browsed.scores(layer, query), products, atol=1e-4)
    assert browsed.nearest(query.tolist(), 4) == browsed.nearest(iter(query), 4) == hits
    assert browsed.nearest(query, 4, layers=[1]) == [hit for hit in hits if hit.layer == 1]
    assert browsed.nearest(query, 10**12, layers=[0])[0] == hits[0]
    for wrong in (query[1:], np.full_like(query, np.inf), [1e300] * len(query)):
        with pytest.raises(skulk.InvalidArgumentError):
            browsed.nearest(wrong)
        with pytest.raises(skulk.InvalidArgumentError):
            browsed.scores(0, wrong)
    with pytest.raises(TypeError, match=r"one vector, found an array of shape \(2, "):
        browsed.nearest(np.stack([query, query]))
    with pytest.raises(TypeError, match="one vector"):
        browsed.scores(0, np.float32(1))  # type: ignore[arg-type]
    for layer in (browsed.num_layers, -1, 10**12, 10**30):
        with pytest.raises(skulk.InvalidArgumentError):
            browsed.nearest(query, layers=[layer])


def test_features_say_what_they_write(browsed: skulk.VindexReader) -> None:
    features = browsed.features(1)
    assert [feature.feature for feature in features] == list(range(len(browsed.gates(1))))
    for feature in features[::50]:
        assert browsed.feature(1, feature.feature) == feature
        logits = [token.logit for token in feature.tokens]
        assert logits == sorted(logits, reverse=True) and len(logits) <= browsed.index["down_top_k"]
        assert feature.c_score == logits[0] and feature.top_token_id == feature.tokens[0].id
        assert feature.top_token == browsed.tokenizer.decode([feature.top_token_id]).strip()
    assert browsed.feature(1, 10**9) is None
    with pytest.raises(skulk.InvalidArgumentError):
        browsed.features(browsed.num_layers)


def test_the_folder_has_a_tokenizer(browsed: skulk.VindexReader) -> None:
    asked, _, reply = recorded("token_encode")
    tokenizer = browsed.tokenizer
    assert isinstance(tokenizer, skulk.Tokenizer)
    assert tokenizer.encode(asked["text"], add_special=False) == reply["token_ids"]
    assert tokenizer.vocab_size == browsed.vocab_size


def test_searches_refuse_what_cannot_be(browsed: skulk.VindexReader) -> None:
    for ask in (
        lambda: browsed.walk(""),
        lambda: browsed.walk("The", top=-1),
        lambda: browsed.walk("The", layers=[99]),
        lambda: browsed.describe("The", band="knowing"),  # type: ignore[arg-type]
        lambda: browsed.describe("The", limit=2**80),
        lambda: browsed.describe("The", min_score=float("nan")),
        lambda: browsed.select(order="target"),  # type: ignore[arg-type]
        lambda: skulk.VindexReader(BROWSED, threads=0).walk("The"),
        lambda: skulk.VindexReader(BROWSED, threads=-1),
    ):
        with pytest.raises(skulk.InvalidArgumentError):
            ask()
    width = browsed.hidden_size
    for query in (b"a" * width, bytearray(width), memoryview(bytes(width)), np.zeros((1, width)), 5, [b"a"] * width):
        for find in (lambda query=query: browsed.nearest(query), lambda query=query: browsed.scores(0, query)):
            with pytest.raises(skulk.InvalidArgumentError) as caught:
                find()
            assert caught.value.context["field"] == "query"
    with pytest.raises(skulk.InvalidArgumentError) as caught:
        browsed.walk("\ud800")
    assert caught.value.context["field"] == "prompt"
    token = skulk.CancelToken()
    token.cancel()
    for search in (
        lambda: browsed.walk("The", cancel=token),
        lambda: browsed.describe("The", cancel=token),
        lambda: browsed.nearest([0.0] * browsed.hidden_size, cancel=token),
        lambda: browsed.features(0, cancel=token),
        lambda: browsed.select(cancel=token),
        lambda: browsed.relations(cancel=token),
    ):
        with pytest.raises(skulk.CancelledError):
            search()


def test_threads_may_share_a_reader(browsed: skulk.VindexReader) -> None:
    prompts = ["The model", "A small", "is", "The model"] * 8
    alone = [browsed.walk(prompt) for prompt in prompts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(skulk.VindexReader(BROWSED, threads=2).walk, prompts)) == alone


# Extracting


def sizes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in folder.iterdir()}


def generated(path: Path) -> tuple[list[int], str]:
    model = skulk.Model.load(path, threads=2)
    output = model.generate(PROMPT, max_tokens=48).output()
    return output.ids, output.text


def test_an_extracted_model_is_the_same(extracted: Path, tmp_path: Path) -> None:
    assert generated(extracted) == generated(STORIES)
    reader = skulk.VindexReader(extracted)
    assert (reader.model, reader.level, reader.dtype, reader.quant) == ("stories", "all", "f32", "none")
    assert reader.lacks == []
    again = skulk.extract(extracted, tmp_path / "again", storage="f32", name="stories")
    for file in again.files:
        if file.name not in ("index.json", "skulk_hashes.json"):
            assert (tmp_path / "again" / file.name).read_bytes() == (extracted / file.name).read_bytes(), file


@pytest.mark.parametrize("storage", ["f16", "q4k"])
def test_other_storages_tell_the_same_kind_of_story(storage: Any, extracted: Path, tmp_path: Path) -> None:
    report = skulk.extract(str(STORIES), str(tmp_path / "made"), storage=storage, threads=1)
    assert report.bytes < sum(sizes(extracted).values())
    reader = skulk.VindexReader(report.path)
    assert reader.verify(values=True).is_sound
    exact = skulk.VindexReader(extracted)
    for name in exact:
        if "proj" not in name:
            continue
        ours, theirs = reader.array(name).astype(float), exact.array(name).astype(float)
        # 11 bits of f16; 4 and 6 bits of blocks.
        assert np.abs(ours - theirs).max() <= np.abs(theirs).max() * (2**-11 if storage == "f16" else 0.1)
    ids, text = generated(report.path)
    assert ids[:4] == generated(STORIES)[0][:4], text


def test_a_report_is_the_folder(tmp_path: Path) -> None:
    steps: list[vindex.VindexProgress] = []
    report = skulk.extract(STORIES, tmp_path / "a" / "made", level="browse", progress=steps.append)
    there = sizes(report.path)
    assert {file.name: file.bytes for file in report.files} == there
    assert report.bytes == sum(there.values()) and report.resumed_bytes == 0 and report.seconds > 0
    assert {file.part for file in report.files} >= {"index", "embed", "gate", "down_meta", "tokenizer"}
    done = [step.bytes_done for step in steps]
    assert done == sorted(done) and steps and {step.bytes_total for step in steps} == {done[-1]}
    assert {step.file for step in steps} <= there.keys()
    assert any(step.part == "gate" for step in steps) and any(step.layer == 4 for step in steps)
    assert pickle.loads(pickle.dumps(report)) == report
    html = report._repr_html_()
    assert "gate_vectors.bin" in html and html.count("<tr>") == len(report.files) + 1


def test_extracting_refuses_what_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for wrong in (
        {"storage": "q8"},
        {"level": "some"},
        {"down_q4k": True},
        {"feature_tokens": -1},
        {"feature_tokens": 10**6},
        {"threads": 0},
        {"target": tmp_path / "full"},
        {"target": tmp_path / "q8", "storage": "q8"},
    ):
        arguments: dict[str, Any] = {"source": STORIES, "target": tmp_path / "made"} | wrong
        with pytest.raises(skulk.InvalidArgumentError):
            skulk.extract(**arguments)
    with pytest.raises(FileNotFoundError):
        skulk.extract(tmp_path / "none", tmp_path / "made")
    assert [path.name for path in tmp_path.iterdir()] == ["full"]


def test_an_extraction_can_be_ended_and_continued(slow_checkpoint: Path, tmp_path: Path) -> None:
    def extract(**more: Any) -> vindex.ExtractReport:
        return skulk.extract(slow_checkpoint, tmp_path / "made", level="attention", feature_tokens=0, **more)

    token = skulk.CancelToken()
    with pytest.raises(skulk.CancelledError):
        extract(progress=lambda _: token.cancel(), cancel=token)

    def broken(step: vindex.VindexProgress) -> None:
        raise LookupError(step.file)

    with pytest.raises(LookupError, match="bin"):
        extract(progress=broken)
    with pytest.raises(KeyboardInterrupt):
        extract(progress=lambda _: signal.raise_signal(signal.SIGINT))
    assert not (tmp_path / "made").exists()
    report = extract()
    assert report.resumed_bytes > 0 and skulk.verify_vindex(report.path).is_sound


INTERRUPTED = """
import sys, skulk
try:
    skulk.extract(sys.argv[1], sys.argv[2], storage="f32", progress=lambda step: print(step.file, flush=True))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_ctrl_c_ends_an_extraction(slow_checkpoint: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", INTERRUPTED, str(slow_checkpoint), str(tmp_path / "made")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline().strip()
        child.send_signal(signal.SIGINT)
        assert child.stdout.read().endswith("interrupted\n")
    assert child.returncode == 0 and not (tmp_path / "made").exists()


def test_other_threads_run_meanwhile(slow_checkpoint: Path, tmp_path: Path) -> None:
    token, ended = skulk.CancelToken(), threading.Event()

    def work() -> None:
        try:
            skulk.extract(slow_checkpoint, tmp_path / "made", storage="q4k", threads=1, cancel=token)
        except skulk.CancelledError:
            ended.set()

    working = threading.Thread(target=work)
    working.start()
    ticks = 0
    for _ in range(100):
        ticks += working.is_alive()
        threading.Event().wait(0.001)
    token.cancel()
    working.join()
    assert ended.is_set() and ticks == 100


# Slices


def test_a_slice_says_what_it_lacks(extracted: Path, tmp_path: Path) -> None:
    whole = skulk.VindexReader(extracted)
    steps: list[vindex.VindexProgress] = []
    report = whole.slice(tmp_path / "browse", preset="browse", progress=steps.append)
    sliced = skulk.VindexReader(report.path)
    assert report.lacks == sliced.lacks and {"attn", "ffn"} <= set(report.lacks)
    there = sizes(report.path)
    assert {file.name: file.bytes for file in report.files} == there
    assert report.bytes == sum(there.values()) >= report.written_bytes
    assert set(report.left_out) == sizes(extracted).keys() - there.keys()
    assert max(step.bytes_done for step in steps) == steps[0].bytes_total
    assert str(report).startswith(f"{tmp_path / 'browse'}: ") and "gate_vectors.bin" in str(report)
    assert pickle.loads(pickle.dumps(report)) == report
    html = report._repr_html_()
    assert "gate_vectors.bin" in html and f"it lacks {', '.join(report.lacks)}" in html
    with pytest.raises(skulk.TensorMissingError, match="this browse slice lacks that part") as caught:
        skulk.Model.load(report.path)
    with pytest.raises(skulk.TensorMissingError) as caught:
        sliced.array("layers.0.self_attn.q_proj.weight")
    assert caught.value.context["part"] == "attn" and "attn" in (caught.value.hint or "")
    assert sliced.walk(PROMPT) == whole.walk(PROMPT)
    assert sliced.verify().is_sound


def test_layers_are_ranges_or_pairs(extracted: Path, tmp_path: Path) -> None:
    whole = skulk.VindexReader(extracted)
    asked: list[Any] = [range(1, 3), [range(1, 3)], [(1, 2), (2, 3)], ((1, 3),), range(2, 0, -1)]
    for i, layers in enumerate(asked):
        report = whole.slice(tmp_path / str(i), layers=layers, copy="copy", threads=1)
        assert not {"linked"} & {file.method for file in report.files}
        assert skulk.VindexReader(report.path).layers == [1, 2]
        names = set(skulk.VindexReader(report.path))
        assert "layers.1.mlp.up_proj.weight" in names and "layers.0.mlp.up_proj.weight" not in names
    with pytest.raises(skulk.TensorMissingError, match="layer 0"):
        skulk.VindexReader(tmp_path / "0").array("layers.0.mlp.up_proj.weight")
    parts = whole.slice(tmp_path / "parts", parts=["embed", "tokenizer"])
    assert {"embeddings.bin", "tokenizer.json"} <= {file.name for file in parts.files}
    assert "gate" in parts.lacks


def test_slicing_refuses_what_cannot_be(extracted: Path, tmp_path: Path) -> None:
    whole = skulk.VindexReader(extracted)
    wrong: list[dict[str, Any]] = [
        {"preset": "both"},
        {"parts": ["head"]},
        {"layers": range(3, 99)},
        {"layers": [(-1, 2)]},
        {"layers": range(0)},
        {"experts": range(1)},
        {"copy": "move"},
        {"target": extracted},
    ]
    for arguments in wrong:
        with pytest.raises(skulk.InvalidArgumentError) as caught:
            whole.slice(**({"target": tmp_path / "made"} | arguments))
        assert set(arguments) <= {caught.value.context["field"], "target"}
    for mistaken in ((0, 2), [0, 2], 3, "0-2", [(0, 1, 2)]):
        with pytest.raises(TypeError, match="pairs of the first number"):
            whole.slice(tmp_path / "made", layers=mistaken)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected a list"):
        whole.slice(tmp_path / "made", parts="embed")  # type: ignore[arg-type]
    token = skulk.CancelToken()
    token.cancel()
    with pytest.raises(skulk.CancelledError):
        whole.slice(tmp_path / "made", cancel=token)
    assert list(tmp_path.iterdir()) == []


# Verification


def test_what_larql_made_is_sound(made: skulk.VindexReader) -> None:
    steps: list[vindex.VindexProgress] = []
    report = made.verify(values=True, progress=steps.append)
    assert report.is_sound and report.problems == [], str(report)
    assert report.bytes_read == steps[-1].bytes_total > 0
    assert {file.name for file in report.files} >= {"index.json", "embeddings.bin"}
    assert report == skulk.verify_vindex(str(made.path), values=True, threads=1)
    assert "sound" in str(report) and "sound" in report._repr_html_() and "0 problems" in repr(report)


def test_a_flipped_byte_is_found(folder: Path) -> None:
    reader = skulk.VindexReader(folder)
    assert reader.verify().is_sound
    place = reader.tensor("layers.2.mlp.up_proj.weight")
    at = place.offset + place.length // 2
    with place.file.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))
    report = reader.verify()
    assert not report.is_sound
    problem = next(problem for problem in report.problems if problem.kind == "hash")
    assert problem.file == place.file.name and problem.bytes is not None
    assert at in problem.bytes
    assert str(problem) in str(report) and place.file.name in str(problem)
    assert {file.name for file in report.files if file.status == "damaged"} == {place.file.name}
    assert pickle.loads(pickle.dumps(report)) == report
    html = report._repr_html_()
    assert "damaged" in html and "<li>" in html
    assert reader.verify(hashes=False).is_sound


def test_numbers_that_are_none_are_found(folder: Path) -> None:
    place = skulk.VindexReader(folder).tensor("norm.weight")
    with place.file.open("r+b") as file:
        file.seek(place.offset + 8)
        file.write(np.float32(np.nan).tobytes())
    problems = skulk.verify_vindex(folder, hashes=False, values=True).problems
    assert [(problem.kind, problem.tensor) for problem in problems] == [("not_finite", "norm.weight")]
    assert problems[0].bytes is not None and problems[0].bytes[0] == place.offset + 8


def test_a_folder_need_not_open(folder: Path, tmp_path: Path) -> None:
    index = folder / "index.json"
    index.write_text(index.read_text()[:-40])
    with pytest.raises(skulk.ConfigInvalidError):
        skulk.VindexReader(folder)
    report = skulk.verify_vindex(folder)
    assert not report.is_sound and any(problem.file == "index.json" for problem in report.problems)
    with pytest.raises(skulk.FileNotFoundError):
        skulk.verify_vindex(tmp_path)


# As data


def test_a_notebook_shows_parts_and_sizes(made: skulk.VindexReader) -> None:
    html = made._repr_html_()
    for part in made.parts():
        assert f"<td>{part.part}</td>" in html
        for file in part.files:
            assert file.name in html
    assert re.search(r"<caption>.*level .*</caption>", html)


def test_names_from_files_are_escaped(folder: Path) -> None:
    index = json.loads((folder / "index.json").read_text())
    index["model"] = "<script>alert(1)</script>"
    (folder / "index.json").write_text(json.dumps(index))
    (folder / "gate_vectors<b>.bin").write_bytes(b"")
    for html in (skulk.VindexReader(folder)._repr_html_(), skulk.verify_vindex(folder)._repr_html_()):
        assert "<script>" not in html and "<b>" not in html
        assert "&lt;b&gt;" in html


def test_data_are_exported() -> None:
    made = {name for name, kind in vars(vindex).items() if inspect.isclass(kind) and kind.__module__ == vindex.__name__}
    assert made == set(vindex.__all__)
    assert all(dataclasses.is_dataclass(getattr(vindex, name)) for name in vindex.__all__)


def test_answers_can_be_pickled(browsed: skulk.VindexReader) -> None:
    for answer in (browsed.walk("The"), browsed.parts(), browsed.tensors, browsed.bands, browsed.feature(0, 0)):
        assert pickle.loads(pickle.dumps(answer)) == answer


def test_a_reader_is_a_mapping_and_travels(extracted: Path, tmp_path: Path) -> None:
    reader = skulk.VindexReader(extracted)
    name = "layers.0.mlp.up_proj.weight"
    assert np.array_equal(reader[name], reader.array(name))
    with pytest.raises(skulk.TensorMissingError, match="no vindex has"):
        reader["model." + name]
    again = pickle.loads(pickle.dumps(skulk.VindexReader(extracted, threads=1)))
    assert again.path == reader.path and np.array_equal(again[name], reader[name])
    reader.slice(tmp_path / "server", preset="server", layers=range(1, 3))
    server = skulk.VindexReader(tmp_path / "server")
    for text in (repr(server), server._repr_html_()):
        assert "server slice of layers 1..3" in text
    assert "slice" not in repr(reader)


def test_layers_and_bands_need_no_threads(browsed: skulk.VindexReader) -> None:
    # No engine computes on none.
    reader = skulk.VindexReader(BROWSED, threads=0)
    assert (reader.layers, reader.bands) == (browsed.layers, browsed.bands)
    with pytest.raises(skulk.InvalidArgumentError):
        reader.nearest([0.0] * reader.hidden_size)


def replace(folder: Path) -> None:
    for path in folder.glob("*.*"):
        (folder / "new").write_bytes(b"\xff" * path.stat().st_size)
        (folder / "new").replace(path)


@pytest.mark.parametrize("happens", [replace, shutil.rmtree, lambda folder: os.chdir(folder.parent.parent)])
def test_an_open_folder_stays_what_it_was(
    happens: Callable[[Path], object], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    reader = skulk.VindexReader(folder.name)
    names = ["norm.weight", "layers.1.mlp.up_proj.weight"]
    before = {name: np.array(reader[name]) for name in names}
    gates = np.array(reader.gates(2))
    happens(folder)
    assert all(np.array_equal(reader[name], before[name]) for name in names)
    assert np.array_equal(reader.gates(2), gates)
