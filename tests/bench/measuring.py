"""How is a run measured beside others on one machine, and what disturbed it?"""

import os
import resource
import subprocess
import tempfile
import time
from pathlib import Path

# A run counts as disturbed when others got more than this share of the cores' time: other guests of
# the host (stolen time) and other processes here together.
DISTURBED = 0.08


def cpu_seconds():
    """What the cores have spent since boot: on our runs, on all processes, stolen by the host (Linux)."""
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        ticks = [int(n) / os.sysconf("SC_CLK_TCK") for n in Path("/proc/stat").read_text().split()[1:9]]
    except OSError:
        ticks = [0] * 8
    user, nice, system, _, _, irq, softirq, steal = ticks
    return own.ru_utime + own.ru_stime, user + nice + system + irq + softirq, steal


def warm(path):
    """Brings a file into the page cache, from which a run with resident weights has dropped it."""
    with open(path, "rb", buffering=0) as file:
        room = bytearray(4 << 20)
        while file.readinto(room):
            pass


def measure(arm, run):
    """What an arm says of a run of its own process, and what disturbed it."""
    command = list(map(str, arm.command(run)))
    warm(run.model)
    before = cpu_seconds()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:  # some leave logs where they run
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900)
    wall = time.monotonic() - started
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)[:200]} failed:\n{done.stderr[-2000:]}")
    own, busy, stolen = (b - a for a, b in zip(before, cpu_seconds()))
    cores = wall * os.cpu_count()
    noise = {"wall_seconds": wall, "stolen": stolen / cores, "others": max(0, busy - own) / cores}
    return arm.result(done.stdout or done.stderr, run) | noise


def disturbance(runs):
    """How much others took of the cores in the worst of a round's runs, and whether that is too much."""
    lost = max(run["stolen"] + run["others"] for run in runs)
    return {"disturbed": lost > DISTURBED, "lost": lost}


def table(heading, rows):
    """Markdown, in columns."""
    lines = [heading, ["---"] * len(heading), *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(heading))]
    for line in lines:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |")
    print()


def count(threads):
    return f"{threads} thread{'s' * (threads > 1)}"
