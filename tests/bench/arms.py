"""Who is measured? Each arm is a program with options; it runs one workload in a process of its own."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LLAMA_CPP = "llama-cpp-python==0.3.36"
CMAKE_ARGS = "-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF -DMTMD_BUILD=OFF"
GGUF = "gguf==0.19.0"


class Run(NamedTuple):
    """One process: a prompt, then tokens, of which the first belongs to the prompt."""

    model: Path
    prompt: int
    tokens: int
    threads: int
    context: int

    def decoded(self):
        return self.tokens - 1


class Generator:
    """A program that takes the options of `generate --json` and ends with its JSON line."""

    def __init__(self, *options):
        self.options = options

    def result(self, output, run):
        last = json.loads(output.splitlines()[-1])
        timings = last["timings"]
        result = {"load": timings["load_seconds"], "memory": last["peak_rss_bytes"]}
        if run.decoded():
            return result | {"decode": timings["decode_tokens_per_second"]}
        first_token = timings["time_to_first_token_seconds"]
        return result | {"prefill": timings["prefill_tokens_per_second"], "first_token": first_token}


class Skulk(Generator):
    """The Rust example, one stage, built as whoever depends on the library builds it."""

    def prepare(self, args):
        self.binary = built("skulk-examples", "--example=generate")

    def command(self, run):
        fixed = ["--json", "--ignore-eos", "--stages=1", "--speculate=off"]
        return [self.binary, *fixed, *self.options, *common_options(run)]


class LlamaCpp(Generator):
    """llama.cpp through the low-level interface of llama-cpp-python, compiled for this machine."""

    def prepare(self, args):
        self.python = llama_cpp_python(args.venv)

    def command(self, run):
        return [self.python, HERE / "peer_llama_cpp.py", *self.options, *common_options(run)]


class IkLlamaCpp:
    """ik_llama.cpp's own llama-bench, which tells speeds only."""

    def prepare(self, args):
        if not args.ik:
            raise SystemExit("ik_llama.cpp is measured with its llama-bench: build it, and give its path with --ik")
        self.binary = args.ik.resolve()

    def command(self, run):
        # As the others, it decodes after one warm token, and meets a prompt unprepared.
        if run.decoded() == 0:
            test = ["-p", run.prompt, "-n", 0, "-w", 0]
        elif run.prompt == 1:
            test = ["-p", 0, "-n", run.decoded(), "-w", 1]
        else:
            test = ["-p", 0, "-n", 0, "-gp", f"{run.prompt},{run.decoded()}", "-w", 0]
        return [self.binary, "-m", run.model, "-t", run.threads, "-r", 1, "-o", "json", *test]

    def result(self, output, run):
        [test] = json.loads(output)
        return {"decode" if run.decoded() else "prefill": test["avg_ts"]}


YARDSTICK = "llama.cpp"
PURE_MAP = "llama.cpp, pure map"
IK = "ik_llama.cpp"
ARMS = {
    "mapped": Skulk("--memory=mapped"),
    "resident": Skulk("--memory=resident"),
    "mapped, screened": Skulk("--memory=mapped", "--screen-head"),
    "resident, screened": Skulk("--memory=resident", "--screen-head"),
    "mapped, exact": Skulk("--memory=mapped", "--precision=exact"),
    "resident, exact": Skulk("--memory=resident", "--precision=exact"),
    YARDSTICK: LlamaCpp(),
    PURE_MAP: LlamaCpp("--pure-map"),
    IK: IkLlamaCpp(),
}


def prompt_ids(n):
    """BOS, then tokens that every common vocabulary has, in no order a model could guess."""
    ids, state = [2], 12345
    while len(ids) < n:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        ids.append(1000 + (state >> 33) % 30000)
    return ",".join(map(str, ids))


def common_options(run):
    return [
        f"--model={run.model}",
        f"--prompt-ids={prompt_ids(run.prompt)}",
        f"--max-tokens={run.tokens}",
        f"--threads={run.threads}",
        f"--context={run.context}",
    ]


@functools.cache
def built(package, target):
    """The path of a package's program, built: `built("skulk-examples", "--example=generate")`."""
    build = ["cargo", "build", "--release", f"--package={package}", target, "--message-format=json"]
    lines = subprocess.run(build, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    return next(filter(None, (json.loads(line).get("executable") for line in lines)))


@functools.cache
def python_with(module, package, venv, *pip_options, **environment):
    """The interpreter of the benchmark's own virtual environment, with a package in it."""
    python = (venv or ROOT / ".cache/bench-venv").absolute() / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", python.parent.parent], check=True)
    if subprocess.run([python, "-c", f"import {module}"], stderr=subprocess.DEVNULL).returncode != 0:
        print(f"installing {package} for {python}", file=sys.stderr)
        install = [python, "-m", "pip", "install", "-q", *pip_options, package]
        subprocess.run(install, env=os.environ | environment, check=True)
    return python


def llama_cpp_python(venv):
    """The interpreter that has llama-cpp-python, compiled for this machine."""
    return python_with("llama_cpp", LLAMA_CPP, venv, "--no-binary=llama-cpp-python", CMAKE_ARGS=CMAKE_ARGS)


def synthetic(args, kind="mixture"):
    """A made-up model of real widths, made once."""
    model = ROOT / f".cache/synthetic-{kind}.gguf"
    if not model.exists():
        python = python_with("gguf", GGUF, args.venv)
        options = ["--tokenizer", args.model, "--kind", kind]
        subprocess.run([python, HERE / "synthetic.py", model, *options], check=True)
    return model
