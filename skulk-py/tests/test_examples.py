"""Does everything we show run as shown?"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

import nbformat
import pytest
from nbclient import NotebookClient

import skulk
from conftest import EXAMPLES, MINILM, REPOSITORY, TINY_BERT

STORY = "there was a little girl named Lily"


def run(script: str, *arguments: str) -> str:
    command = [sys.executable, str(EXAMPLES / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_every_example_is_run_here() -> None:
    assert {path.name for path in EXAMPLES.iterdir() if path.suffix} == {
        "generate.py",
        "async_cancel.py",
        "conversations.py",
        "langchain_llm.py",
        "litellm_provider.py",
        "plan.py",
        "planning.ipynb",
        "quickstart.ipynb",
        "serve.py",
        "vindex.ipynb",
        "vindex.py",
    }


def test_generate() -> None:
    output = run("generate.py")
    assert output.startswith(f", {STORY}")
    assert "layers 0..3 on cpu → layers 3..5 on cpu" in output
    assert re.search(r"\[(length|stop|eos)\] \d+ tokens, .* \d+ tok/s\n$", output)


def test_async_cancel() -> None:
    output = run("async_cancel.py")
    assert output.startswith(f"- Once upon a time, {STORY}")
    assert output.count("\n- ") == 2
    assert re.search(r"cancelled after \d+ tokens; the session goes on:\n.*\w", output)


def test_conversations() -> None:
    *lines, last = run("conversations.py").splitlines()
    counts = [re.match(r" *(\d+): +\d+ tokens, (\d+) not computed again: One day, Lily met a ", line) for line in lines]
    assert sorted(int(count[1]) for count in counts if count) == list(range(16))
    # The opening twice, of some 70 tokens, and the first answer.
    assert all(int(count[2]) > 120 for count in counts if count)
    assert re.match(r"\d+ tokens, \d+ a second; keys and values [\d,]+ bytes$", last)


def test_langchain() -> None:
    if find_spec("langchain_core") is None:
        pytest.skip("skulk-py/requirements-examples.txt is not installed")
    assert STORY.split()[-2] in run("langchain_llm.py")


def test_litellm(monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec("litellm") is None:
        pytest.skip("skulk-py/requirements-examples.txt is not installed")
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    whole, streamed = run("litellm_provider.py").splitlines()
    assert whole.endswith(" 24") and streamed.strip()


def test_plan(tmp_path: Path) -> None:
    output = run("plan.py", str(tmp_path / "plan.svg"))
    assert output.startswith("Placed: stories260K on 1 of 1 node")
    assert STORY.split(" named")[0] in output
    assert "on 2 of 2 nodes" in output and "without the server: expected" in output
    assert ElementTree.parse(tmp_path / "plan.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_serve(tmp_path: Path) -> None:
    key, model = tmp_path / "key", EXAMPLES.parent / "models" / "stories260K"
    key.write_text("a-long-key\n")
    command = [sys.executable, str(EXAMPLES / "serve.py"), "--layers", "1:4", "--threads", "1", "--key-file", str(key)]
    # Whoever started the tests may ignore the signal, and so would the program.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    signal.signal(signal.SIGINT, before)
    with process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        with skulk.Model.load(model, ffn_at=[address], peer_key="a-long-key") as remote:
            assert STORY in remote.generate("Once upon a time", max_tokens=20).text()
        process.send_signal(signal.SIGINT)
        metrics, _ = process.communicate(timeout=30)
    assert process.returncode == 0 and "skulk_ffn" in metrics


def test_vindex(tmp_path: Path) -> None:
    output = run("vindex.py", str(EXAMPLES.parent / "models" / "stories260K"), str(tmp_path))
    assert STORY in output
    assert re.search(r"of a browse slice: .* part of ", output)
    assert re.search(r"layer \d+, feature +\d+: ", output)
    assert {path.name for path in tmp_path.iterdir()} == {"stories260K.vindex", "stories260K.browse"}
    assert STORY in run("vindex.py")


NOTEBOOKS = {
    "vindex.ipynb": (STORY, "gate_vectors.bin", "sound", "Region", "tensor.missing", "WalkHit"),
    "quickstart.ipynb": (STORY, "<table>", "cached_tokens=", "cancelled", "needed", "argument.invalid"),
    "planning.ipynb": (STORY.split(" named")[0], "<caption>google/gemma-3-270m", "Placed: ", "<svg", "Refused: "),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("folder", [REPOSITORY, EXAMPLES])
@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_the_notebooks_run_and_store_what_they_print(notebook: str, folder: Path) -> None:
    stored = nbformat.read(EXAMPLES / notebook, as_version=4)  # type: ignore[no-untyped-call]
    fresh = nbformat.from_dict(stored)  # type: ignore[no-untyped-call]
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(fresh, timeout=60, coalesce_streams=True, resources=resources).execute()
    for before, after in zip(stored.cells, fresh.cells, strict=True):
        if before.cell_type != "code":
            continue
        assert before.execution_count == after.execution_count, "run the notebook from top to bottom"
        assert [kind.output_type for kind in before.outputs] == [kind.output_type for kind in after.outputs]
        assert any(printed(output) for output in after.outputs)
    everything = "".join(printed(output) for cell in fresh.cells for output in cell.get("outputs", []))
    for expected in NOTEBOOKS[notebook]:
        assert expected in everything


def printed(output: nbformat.NotebookNode) -> str:
    return str(output.get("text", "")) + "".join(map(str, output.get("data", {}).values()))


def snippets(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8")
    found: list[str] = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert found, f"{page} shows no Python"
    return found


EMBEDDING = MINILM if MINILM.is_dir() else TINY_BERT
PAGES = [page for page in sorted((REPOSITORY / "docs").rglob("*.md")) if "```python" in page.read_text(encoding="utf-8")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_snippet_of_the_guide_runs(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    names: dict[str, object] = {"__name__": page.name}
    for snippet in snippets(page):
        exec(compile(snippet.replace('"all-MiniLM-L6-v2"', repr(str(EMBEDDING))), page.name, "exec"), names)


@pytest.mark.parametrize("readme", sorted(REPOSITORY.glob("README.md")) + [REPOSITORY / "skulk-py/README.md"])
def test_the_lines_of_the_readmes_run(readme: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    for snippet in snippets(readme):
        exec(snippet.replace('"model.gguf"', '"examples/models/stories260K"'), {})
