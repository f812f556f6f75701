"""Plans where models run: the small one on this machine, a large one on a cluster that is only imagined.

Run it from anywhere: python examples/python/plan.py [PICTURE.svg]
"""

import sys
from pathlib import Path

import skulk

MODEL = Path(__file__).parents[1] / "models" / "stories260K"
GIB = 2**30


def on_this_machine() -> None:
    placement = skulk.plan(MODEL, context_tokens=256)
    print(placement.report)
    model = skulk.Model.load(MODEL, placement=placement)
    print(model.generate("Once upon a time", max_tokens=12).text())


def on_a_cluster() -> skulk.Placement:
    card = skulk.CardLibrary()["mlx-community/llama-3.3-70b-instruct-fp16"]
    gpu = skulk.Accelerator(
        vendor="nvidia",
        name="a GPU with 24 GB",
        vram_total_bytes=24 * GIB,
        backend="skulk-wgpu-vulkan:0",
        bytes_per_second=1e12,
    )
    workstation = skulk.Node(
        "workstation",
        backends={"skulk-cpu", "skulk-wgpu-vulkan:0"},
        memory=skulk.NodeMemory(ram_total=64 * GIB, ram_available=48 * GIB),
        accelerators=[gpu],
    )
    # Memory is what it is there for: it never has attention.
    server = skulk.Node(
        "server",
        role="ffn_only",
        backends={"skulk-cpu"},
        memory=skulk.NodeMemory(ram_total=256 * GIB, ram_available=240 * GIB),
        bytes_per_second=2e11,
    )
    cluster = skulk.Cluster.mesh([workstation, server], skulk.LinkSpeed(1e-4, 1.2e9))
    placement = skulk.plan(card, cluster)
    print(placement.report)

    try:
        skulk.plan(card, cluster, excluded_nodes=["server"])
    except skulk.PlanNoFitError as error:
        print(f"without the server: {error.message}")
    return placement


if __name__ == "__main__":
    on_this_machine()
    report = on_a_cluster().report
    if len(sys.argv) > 1 and report is not None:
        Path(sys.argv[1]).write_text(report.to_svg(), encoding="utf-8")
