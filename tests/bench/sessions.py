"""What do sessions gain by sharing steps, beside the batches of others? For `compare --sessions`."""

import json
import re
import statistics
from pathlib import Path
from typing import NamedTuple

from arms import HERE, built, llama_cpp_python, synthetic
from measuring import count, disturbance, measure, table

# Each session decodes so many tokens behind a prompt of ten; the first one belongs to the prompt.
PROMPT, TOKENS = 10, 64
SESSIONS = [1, 2, 4, 8, 16]
ROWS = [1, 2, 4, 8]
# Tokens of the prompt that is computed, saved and restored.
RESTORED = 3000


class Run(NamedTuple):
    """One process: numbers of sessions that decode together, of rows of a step, and of tokens that are restored."""

    model: Path
    threads: int
    sessions: list
    rows: list
    restored: int

    def common_options(self):
        sessions = ",".join(map(str, self.sessions))
        return [f"--model={self.model}", f"--threads={self.threads}", f"--sessions={sessions}", f"--tokens={TOKENS}"]


class Skulk:
    """Sessions of one model, and a model as one shard, whose steps are timed."""

    def prepare(self, args):
        self.binary = built("skulk-bench", "--bin=sessions")

    def command(self, run):
        rows = ",".join(map(str, run.rows))
        return [self.binary, *run.common_options(), f"--rows={rows}", f"--restore={run.restored}", "--rounds=1"]

    def result(self, output, run):
        report = json.loads(output)
        return {what: {int(n): of["median"] for n, of in part.items()} for what, part in report.items()}


class LlamaCpp:
    """llama.cpp's batches, through llama-cpp-python."""

    title = "llama.cpp"

    def prepare(self, args):
        self.python = llama_cpp_python(args.venv)

    def command(self, run):
        return [self.python, HERE / "peer_llama_cpp_batch.py", *run.common_options(), f"--prompt={PROMPT}"]

    def result(self, output, run):
        return {"decode": {int(n): speed for n, speed in json.loads(output).items()}}


class IkLlamaCpp:
    """ik_llama.cpp's own llama-batched-bench, beside its llama-bench. It takes no token from the logits."""

    title = "ik_llama.cpp"

    def prepare(self, args):
        self.binary = args.ik.resolve().with_name("llama-batched-bench")
        if not self.binary.is_file():
            raise SystemExit(f"ik_llama.cpp's batches are measured with its llama-batched-bench: build {self.binary}")

    def command(self, run):
        context = max(run.sessions) * (PROMPT + TOKENS)
        sizes = ["-c", context, "-npp", PROMPT, "-ntg", TOKENS - 1, "-npl", ",".join(map(str, run.sessions))]
        return [self.binary, "-m", run.model, "-t", run.threads, *sizes]

    def result(self, output, run):
        # | PP | TG | B | N_KV | T_PP s | S_PP t/s | T_TG s | S_TG t/s | T s | S t/s |
        lines = [re.findall(r"[\d.]+", line) for line in output.splitlines() if re.match(r"\| +\d", line)]
        return {"decode": {int(line[2]): float(line[7]) for line in lines}}


class Bench:
    """Sessions and rows of one model, batches of the others, and two rows of a mixture."""

    def __init__(self, args):
        self.model, self.threads = args.model, args.threads[0]
        self.peers = {"llama": LlamaCpp()} | ({"ik": IkLlamaCpp()} if args.ik else {})
        arms = {"skulk": Skulk()} | self.peers
        for arm in arms.values():
            arm.prepare(args)
        run = Run(self.model, self.threads, SESSIONS, ROWS, RESTORED)
        self.runs = {name: (arm, run) for name, arm in arms.items()}
        self.runs["moe"] = arms["skulk"], Run(synthetic(args), self.threads, [1], [1, 2], 0)

    def round(self, number):
        """Each program once. Who goes first alternates."""
        order = list(self.runs) if number % 2 == 0 else list(reversed(self.runs))
        runs = {name: measure(*self.runs[name]) for name in order}
        return disturbance(runs.values()) | {"figures": figures(runs), "runs": runs}

    def report(self, rounds):
        """What --json gets beside the rounds: medians of the rounds' own ratios."""
        names = rounds[0]["figures"]
        return {"figures": {name: statistics.median(r["figures"][name] for r in rounds) for name in names}}

    def show(self, rounds):
        found = self.report(rounds)["figures"]

        def median(name, what, n):
            return statistics.median(r["runs"][name][what][n] for r in rounds)

        heading = [f"sessions, {count(self.threads)}", "skulk, tok/s", "to one"]
        for peer in self.peers.values():
            heading += [f"{peer.title}, tok/s", "skulk to it"]
        rows = []
        for n in SESSIONS:
            row = [str(n), f"{median('skulk', 'decode', n):.0f}", f"{found.get(f'sessions_{n}', 1):.2f}"]
            for name in self.peers:
                row += [f"{median(name, 'decode', n):.0f}", f"**{found[f'sessions_{n}_{name}']:.2f}**"]
            rows.append(row)
        table(heading, rows)

        rows = [[str(n), f"{median('skulk', 'step', n) * 1e3:.1f}", f"{found.get(f'rows_{n}', 1):.2f}"] for n in ROWS]
        rows.append(["2, mixture", f"{median('moe', 'step', 2) * 1e3:.1f}", f"{found['rows_2_moe']:.2f}"])
        table([f"rows of a step, {count(self.threads)}", "ms", "to one"], rows)
        print(f"A prompt of {RESTORED} tokens is restored from a file in {found['restore']:.1%} of the time it takes to compute.")


def figures(runs):
    """A round's own ratios: of sessions to one and to as many of a peer's, of steps to those of one row."""
    own, steps = runs["skulk"]["decode"], runs["skulk"]["step"]
    found = {f"sessions_{n}": own[n] / own[1] for n in SESSIONS[1:]}
    for peer in ("llama", "ik"):
        if peer in runs:
            found |= {f"sessions_{n}_{peer}": own[n] / runs[peer]["decode"][n] for n in SESSIONS}
    found |= {f"rows_{n}": steps[n] / steps[1] for n in ROWS[1:]}
    mixture = runs["moe"]["step"]
    return found | {"rows_2_moe": mixture[2] / mixture[1], "restore": runs["skulk"]["restore"][RESTORED]}
