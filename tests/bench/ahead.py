"""What do tokens ahead gain, by class of prompts? For `compare --ahead`."""

import json
import statistics
from pathlib import Path
from typing import NamedTuple

from arms import HERE, built, synthetic
from measuring import count, disturbance, measure, table

PROMPTS = HERE / "prompts.json"
SESSIONS = 4


# How often a trained head's drafts are right.
HEAD_ACCEPTS = 0.75


class Run(NamedTuple):
    """One process: all classes of prompts with and without tokens ahead, one session and some at once; with a head for
    tokens ahead prose alone, and one session."""

    model: Path
    threads: int
    prompts: Path
    head: bool = False


class Skulk:
    """The program that measures both ways in turns."""

    def __init__(self):
        self.binary = built("skulk-bench", "--bin=ahead")

    def command(self, run):
        options = [f"--model={run.model}", f"--threads={run.threads}", f"--prompts={run.prompts}"]
        if run.head:
            return [self.binary, *options, f"--head-accepts={HEAD_ACCEPTS}", "--class=prose", "--sessions=1", "--tokens=48"]
        return [self.binary, *options, f"--sessions={SESSIONS}", "--rounds=3"]

    def result(self, output, run):
        return {"classes": json.loads(output)}


class Bench:
    """All classes, with and without."""

    def __init__(self, args):
        self.model, self.threads = args.model, args.threads[0]
        self.arm = Skulk()
        self.run = Run(self.model, self.threads, (args.prompts or PROMPTS).resolve())
        self.head = Run(synthetic(args, "ahead"), self.threads, PROMPTS.resolve(), head=True)

    def round(self, number):
        run, head = measure(self.arm, self.run), measure(self.arm, self.head)
        found = figures(run["classes"]) | {"ahead_mtp": head["classes"]["prose"]["1"]["gain"]}
        return disturbance([run, head]) | {"figures": found, "run": run}

    def report(self, rounds):
        """What --json gets beside the rounds."""
        names = rounds[0]["figures"]
        return {"figures": {name: statistics.median(r["figures"][name] for r in rounds) for name in names}}

    def show(self, rounds):
        found = self.report(rounds)["figures"]
        rows = []
        for name in rounds[0]["run"]["classes"]:
            alone = [r["run"]["classes"][name]["1"] for r in rounds]
            row = [name, f"{statistics.median(one['plain'] for one in alone):.1f}", f"**{found[f'ahead_{name}']:.2f}**"]
            row += [f"{statistics.median(one['accepted'] for one in alone):.0%}"]
            together = f"ahead_{name}_{SESSIONS}"
            rows.append([*row, f"**{found[together]:.2f}**", f"{found[f'{together}_sooner']:.2f}"])
        rows.append(["prose, synthetic head", "", f"**{found['ahead_mtp']:.2f}**", f"{HEAD_ACCEPTS:.0%} said", "", ""])
        heading = [f"prompts, {count(self.threads)}", "one token at a time, tok/s", "ahead to that"]
        table([*heading, "drafts that were right", f"of {SESSIONS} sessions", "texts sooner there"], rows)


def figures(classes):
    """A round's own ratios."""
    found = {}
    for name, of in classes.items():
        found[f"ahead_{name}"] = of["1"]["gain"]
        found[f"ahead_{name}_{SESSIONS}"] = of[str(SESSIONS)]["gain"]
        found[f"ahead_{name}_{SESSIONS}_sooner"] = of[str(SESSIONS)]["sooner"]
    found["ahead_worst"] = min(of["1"]["gain"] for of in classes.values())
    quoting = [of[str(SESSIONS)]["gain"] for name, of in classes.items() if name in ("edit", "quote")]
    if quoting:
        found[f"ahead_sessions_{SESSIONS}"] = statistics.median(quoting)
    return found
