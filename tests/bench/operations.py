"""What do the operations of a token and of a prompt take? For `compare --operations`."""

import json
import statistics
from pathlib import Path
from typing import NamedTuple

from arms import built
from measuring import count, disturbance, measure, table

MEMORY = ["mapped", "resident"]
PARTS = {"decode": "a token", "prefill": "a prompt"}
# What takes less than this share of a part is told together.
LEAST = 0.005
# Sizes of which each has a line of its own.
MANY = 24
SUMS = ["times", "seconds", "before", "waiting", "bytes", "operations"]


class Run(NamedTuple):
    """One process: tokens behind others, and a prompt."""

    model: Path
    threads: int
    memory: str
    depth: int
    prompt: int


class Skulk:
    """The program that notes each operation."""

    def __init__(self):
        self.binary = built("skulk-bench", "--bin=operations")

    def command(self, run):
        options = [f"--model={run.model}", f"--threads={run.threads}", f"--memory={run.memory}"]
        return [self.binary, *options, f"--depth={max(run.depth, 1)}", f"--prompt={run.prompt}"]

    def result(self, output, run):
        return json.loads(output)


class Bench:
    """Weights that are mapped, and resident ones."""

    def __init__(self, args):
        self.model, self.threads = args.model, args.threads[0]
        self.arm = Skulk()
        depth, prompt = args.depths[0], args.prefill[0]
        self.runs = {memory: Run(self.model, self.threads, memory, depth, prompt) for memory in MEMORY}

    def round(self, number):
        order = MEMORY if number % 2 == 0 else MEMORY[::-1]
        runs = {memory: measure(self.arm, self.runs[memory]) for memory in order}
        return disturbance(runs.values()) | {"runs": runs}

    def report(self, rounds):
        """What --json gets beside the rounds: what of the limit all operations of a token, and of a prompt, reach."""
        found = {}
        for memory in MEMORY:
            end = "" if memory == "mapped" else "_resident"
            for part, counted in {"decode": "bytes", "prefill": "operations"}.items():
                limit = {"decode": "read", "prefill": "int8"}[part]
                found[f"operations_share_{part}{end}"] = median_of(share(r["runs"][memory], part, counted, limit) for r in rounds)
        return {"figures": found}

    def show(self, rounds):
        for memory in MEMORY:
            runs = [r["runs"][memory] for r in rounds]
            limits = [median_of(run["limits"][name] for run in runs) for name in ("read", "int8")]
            units = ("GB/s", "billion int8 operations a second")
            of = [f"{limit / 1e9:.1f} {unit}" for limit, unit in zip(limits, units) if limit]
            print(f"Weights {memory}, {count(self.threads)}; the machine's limits: {', '.join(of)}\n")
            for part, what in PARTS.items():
                rows, total = lines([run[part] for run in runs])
                heading = [f"operation of {what}", "times", "µs", "of it waiting", "before, µs", "MB", "of the memory's speed"]
                table([*heading, "of the int8 peak"], [line(row, total, limits) for row in rows])


def median_of(values):
    """Without what is not known."""
    known = [value for value in values if value]
    return statistics.median(known) if known else None


def share(run, part, counted, limit):
    """What the operations of a part read, or compute, in the time of all, to the limit."""
    seconds = sum(one["seconds"] + one["before"] for one in run[part])
    limit = run["limits"][limit]
    return sum(one[counted] for one in run[part]) / seconds / limit if limit and seconds else None


def lines(parts):
    """Rows of a table from the same part of several rounds: medians of those that are alike."""
    most = max(len({size(one) for one in part}) for part in parts)
    grouped = [group(part, size if most <= MANY else name) for part in parts]
    merged = []
    for which in dict.fromkeys(which for own in grouped for which in own):
        ones = [own[which] for own in grouped if which in own]
        merged.append({"name": ones[0]["name"]} | {key: statistics.median(one[key] for one in ones) for key in SUMS})
    total = sum(one["seconds"] + one["before"] for one in merged)
    long = [one for one in merged if one["seconds"] + one["before"] >= LEAST * total]
    short = [one for one in merged if one not in long]
    add = lambda name, ones: {"name": name} | {key: sum(one[key] for one in ones) for key in SUMS}
    return [*long, add(f"{len(short)} others", short), add("**all**", merged)], total


def size(one):
    """Those of one function with as many bytes and as much arithmetic."""
    return one["name"], round(one["bytes"] / one["times"]), round(one["operations"] / one["times"])


def name(one):
    """Those of one function: where sizes are many, as experts make them."""
    return one["name"]


def group(part, of):
    """Sums of those that are alike."""
    found = {}
    for one in part:
        into = found.setdefault(of(one), {"name": one["name"]} | dict.fromkeys(SUMS, 0))
        for key in SUMS:
            into[key] += one[key]
    return found


def line(one, total, limits):
    """A row of a table."""
    percent = lambda a, b: f"{a / b:.0%}" if a and b else ""
    took = f"{one['seconds'] * 1e6:.1f} ({percent(one['seconds'], total)})"
    seconds = one["seconds"] + (one["before"] if one["name"] == "**all**" else 0)
    mega = f"{one['bytes'] / 1e6:.2f}" if one["bytes"] else ""
    shares = [percent(one[counted], seconds * (limit or 0)) for counted, limit in zip(("bytes", "operations"), limits)]
    return [one["name"], f"{one['times']:.0f}", took, percent(one["waiting"], one["seconds"]), f"{one['before'] * 1e6:.1f}", mega, *shares]
