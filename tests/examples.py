"""Do the Rust examples, built by `tests/run`, print what the README says?"""

import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILT = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/examples"
GENERATE = [str(BUILT / "generate")]


def output(*arguments: str) -> list[str]:
    command = [*GENERATE, *arguments]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()


def generate_prints_plan_text_and_speed() -> None:
    lines = output()
    print("\n".join(lines))
    assert lines[0].startswith("stories260K: llama, 5 layers"), lines[0]
    for i, stage in enumerate(lines[1:3]):
        assert re.match(rf"  stage {i}: layers .* on cpu", stage), stage
    assert any(line.startswith("Once upon a time, there was a little girl") for line in lines), lines
    assert re.match(r"loaded in .* tok/s, decode .* tok/s", lines[-1]), lines[-1]


def generate_json_prints_an_event_a_line() -> None:
    *events, last = map(json.loads, output("--json", "--max-tokens=12", "--stages=3", "--threads=1"))
    assert len(events) == 12 and last["finish_reason"] == "length", last
    assert last["ids"] == [event["id"] for event in events], last
    assert last["text"] == "".join(event["text"] for event in events), last
    assert last["prompt_ids"] and last["peak_rss_bytes"] != 0, last
    for part in ("load", "time_to_first_token", "prefill", "decode"):
        assert last["timings"][f"{part}_seconds"] >= 0, last
    for part in ("prefill", "decode"):
        assert last["timings"][f"{part}_tokens_per_second"] > 0, last


def generate_places_layers_on_engines() -> None:
    lines = output("--placement=cpu=3,cpu=2", "--threads=1", "--max-tokens=12")
    for i, stage in enumerate(("0..3  on cpu", "3..5  on cpu")):
        assert lines[1 + i].startswith(f"  stage {i}: layers  {stage} "), lines[1 + i]
    assert any(line.startswith("Once upon a time, there was a little girl") for line in lines), lines
    for arguments, status, message in (
        (["--placement=cpu=3"], 1, "5 layers, found 3"),
        (["--ffn-budget=1000"], 1, "ffn_budget"),
        (["--placement=cpu"], 2, "engine=layers"),
        (["--placement=cpu=5", "--stages=2"], 2, "cannot be used with"),
    ):
        done = subprocess.run([*GENERATE, *arguments], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == status and message in done.stderr, done


def generate_keeps_a_budget() -> None:
    prompt = ("--max-tokens=12", "--threads=1", "--json")
    assert json.loads(output(*prompt, "--ffn-budget=300000")[-1])["text"] == json.loads(output(*prompt)[-1])["text"]


def plan(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(BUILT / "plan"), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def plan_says_where_and_why() -> None:
    here = plan()
    print(here.stdout)
    assert here.returncode == 0 and here.stdout.startswith("Placed: stories260K on 1 of 1 node"), here
    cluster = ["mlx-community/llama-3.3-70b-instruct-fp16", "--cluster=examples/rust/cluster.json"]
    there = plan(*cluster)
    # As the guide shows it.
    guide = (ROOT / "docs/guide/planning.md").read_text()
    shown = re.search(r"```text\n(.*?)```", guide, re.S)
    for line in shown.group(1).splitlines():
        assert line in ("", "…") or line in there.stdout.splitlines(), line
    for form, start in (("json", "{"), ("markdown", "**Placed"), ("html", "<"), ("svg", "<svg"), ("placement", "{")):
        done = plan(*cluster, f"--print={form}")
        assert done.returncode == 0 and done.stdout.lstrip().startswith(start), done
    refused = plan("mlx-community/GLM-5", "--cluster=examples/rust/cluster.json")
    assert refused.returncode == 1 and refused.stdout.startswith("Refused: "), refused
    assert "error: [plan.no_fit]" in refused.stderr, refused


def vindex_extracts_browses_slices_and_generates() -> None:
    command = [str(BUILT / "vindex")]
    for storage in ("f32", "q4k"):
        done = subprocess.run([*command, f"--storage={storage}"], cwd=ROOT, capture_output=True, text=True)
        print(done.stdout)
        assert done.returncode == 0 and not done.stderr, done
        assert ": sound; " in done.stdout and "A client's slice" in done.stdout, done.stdout
        assert re.search(r"layer  4, feature +\d+: [+-]\d", done.stdout), done.stdout
        said = done.stdout.splitlines()[-1]
        if storage == "f32":
            # What `generate` says.
            assert said.startswith("Once upon a time, there was a little girl"), said
        assert said.startswith("Once upon a time, there was a"), said
    with tempfile.TemporaryDirectory() as folder:
        once = [*command, "--extract-only", f"--out={folder}/a.vindex", "--feature-tokens=0"]
        first, again = (subprocess.run(once, cwd=ROOT, capture_output=True, text=True) for _ in range(2))
        assert first.returncode == 0 and "down_meta.bin" not in first.stdout, first
        assert again.returncode == 1 and "[argument.invalid]" in again.stderr, again


def conversations_are_held_at_once() -> None:
    command = [str(BUILT / "conversations"), "--max-tokens=20"]
    for arguments in ([], ["--kv-memory=1000000"], ["--threads=1"]):
        done = subprocess.run([*command, *arguments], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done
        *lines, last = done.stdout.splitlines()
        counts = [re.match(r" *\d+: (\d+) tokens, (\d+) not computed again: One day, Lily met a ", line) for line in lines]
        assert len(counts) == 16 and all(counts), done.stdout
        assert re.match(r"16 conversations: \d+ tokens in .* s, \d+ tok/s; keys and values \d", last), last
        if not arguments:
            told = lines
            print(*told[:2], last, sep="\n")
        # Whatever memory and threads there are.
        assert [line.split(":")[2] for line in lines] == [line.split(":")[2] for line in told], lines
        # The opening twice, of some 70 tokens, and the first turn.
        assert arguments[:1] == ["--kv-memory=1000000"] or all(int(count[2]) > 120 for count in counts), lines
    refused = subprocess.run([*command, "--kv-memory=1000"], cwd=ROOT, capture_output=True, text=True)
    assert refused.returncode == 1 and "[memory.exhausted]" in refused.stderr, refused


def chat_answers_lines() -> None:
    qwen2 = ROOT / "tests/fixtures/models/qwen2"
    for arguments, lines in ((["--threads=1"], "Once upon a time\n"), ([f"--model={qwen2}"], "Hello\n\nAnd now?\n")):
        command = [str(BUILT / "chat"), "--max-tokens=12", *arguments]
        done = subprocess.run(command, cwd=ROOT, input=lines, capture_output=True, text=True)
        print(done.stdout)
        assert done.returncode == 0 and not done.stderr and "\x1b" not in done.stdout, done
        last = done.stdout.splitlines()[-1]
        assert re.match(r"first token after .* answer \d+ tokens, 0 of them reasoning, at \d+ tok/s \(\w+\)", last), last
    assert ", there was a" in subprocess.run(
        [str(BUILT / "chat"), "--max-tokens=12"], cwd=ROOT, input="Once upon a time\n", capture_output=True, text=True
    ).stdout
    refused = subprocess.run(
        [str(BUILT / "chat"), "--reasoning=low"], cwd=ROOT, input="Hello\n", capture_output=True, text=True
    )
    assert refused.returncode == 1 and "[argument.invalid]" in refused.stderr, refused


def blocks_are_served_to_other_processes() -> None:
    prompt = ("--max-tokens=12", "--threads=1", "--json")
    with tempfile.TemporaryDirectory() as folder:
        key = Path(folder, "key")
        key.write_text("a-key\n")
        command = [str(BUILT / "serve"), "--layers=1..4", f"--key-file={key}", "--threads=1"]
        server = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        address = server.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", address), address
        there = output(*prompt, f"--ffn-at={address}", f"--key-file={key}")
        assert json.loads(there[-1])["text"] == json.loads(output(*prompt)[-1])["text"]
        refused = subprocess.run([*GENERATE, f"--ffn-at={address}"], cwd=ROOT, capture_output=True, text=True)
        assert refused.returncode == 1 and "[peer.failed]" in refused.stderr and "401" in refused.stderr, refused
        server.stdin.close()
        assert server.wait(timeout=60) == 0
    refused = subprocess.run([*GENERATE, f"--ffn-at={address}"], cwd=ROOT, capture_output=True, text=True)
    assert refused.returncode == 1 and "[peer.lost]" in refused.stderr, refused


def a_model_is_apart_over_processes() -> None:
    for model in ("examples/models/stories260K", "tests/fixtures/models/mixtral"):
        command = [str(BUILT / "apart"), f"--model={model}", "--max-tokens=24"]
        texts = []
        for arguments in ([], ["--lose-after=9"]):
            done = subprocess.run([*command, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120)
            assert done.returncode == 0 and not done.stderr, done
            lines = done.stdout.splitlines()
            assert all(re.match(r"(layers|experts) \d+\.\.\d+ at http://127\.0\.0\.1:", line) for line in lines[:3]), lines
            assert re.fullmatch(r"24 tokens at \d+ tok/s", lines[-1]), lines
            texts.append("\n".join(lines[3:-1]))
        print(done.stdout)
        # Lost and found again in the middle of the text, which is the same.
        assert " [peer.lost] " in texts[1] and texts[1].replace(" [peer.lost] ", "") == texts[0], texts


def hosts_are_apart_where_there_are_namespaces() -> None:
    probe = """
        command -v tc && ip netns add skulk-probe && ip link add skulk-probe type veth peer name side netns skulk-probe &&
        tc qdisc replace dev skulk-probe root tbf rate 100mbit burst 64kb latency 100ms
        able=$?
        ip link delete skulk-probe; ip netns delete skulk-probe; exit $able
    """
    if subprocess.run(["sh", "-c", probe], capture_output=True).returncode != 0:
        print("no network namespaces here: examples/rust/hosts.sh is not tried")
        return
    done = subprocess.run(["examples/rust/hosts.sh", "--tokens", "12"], cwd=ROOT, capture_output=True, text=True, timeout=240)
    print(done.stdout)
    assert done.returncode == 0 and done.stdout.count(" at http://10.77.") >= 3, done
    assert "Once upon a time, there was a little girl" in done.stdout, done


def a_missing_model_is_an_error_not_a_panic() -> None:
    command = [*GENERATE, "--model", "no/such/model.gguf"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("error: "), done
    assert "no/such/model.gguf" in done.stderr and "panicked" not in done.stderr, done


for example in (
    generate_prints_plan_text_and_speed,
    generate_json_prints_an_event_a_line,
    generate_places_layers_on_engines,
    generate_keeps_a_budget,
    plan_says_where_and_why,
    vindex_extracts_browses_slices_and_generates,
    conversations_are_held_at_once,
    chat_answers_lines,
    blocks_are_served_to_other_processes,
    a_model_is_apart_over_processes,
    hosts_are_apart_where_there_are_namespaces,
    a_missing_model_is_an_error_not_a_panic,
):
    example()
    print(f"ok: {example.__name__}")
