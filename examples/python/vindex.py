"""Writes a model as a vindex folder, cuts a slice of it, looks into both, and generates from the folder.

Run it from anywhere: python examples/python/vindex.py [MODEL [FOLDER]]
"""

import sys
import tempfile
from pathlib import Path

import skulk

MODEL = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "models" / "stories260K"


def extract(target: Path) -> None:
    report = skulk.extract(MODEL, target, storage="f16")
    for file in report.files:
        print(f"{file.bytes:>10,}  {file.part:<10} {file.name}")
    for warning in report.warnings:
        print(f"note: {warning}")
    print(skulk.verify_vindex(target))


def look_into(folder: Path, target: Path) -> None:
    print(skulk.VindexReader(folder).slice(target, preset="browse"))
    browse = skulk.VindexReader(target)

    # What is asked of the features is the embedding of the prompt's last token.
    for hit in browse.walk("Once upon a time", top=2):
        print(f"layer {hit.layer}, feature {hit.feature:>4}: {hit.gate_score:+.2f} {hit.target!r}")

    # Weights are arrays over the file itself.
    gates = browse.gates(0)
    print(f"{gates.shape[0]} gate rows of {gates.shape[1]} numbers in {gates.dtype}")
    try:
        browse.array("layers.0.self_attn.q_proj.weight")
    except skulk.TensorMissingError as error:
        print(f"of a browse slice: {error.message}; {error.hint}")


def generate(folder: Path) -> None:
    model = skulk.Model.load(folder)
    for event in model.generate("Once upon a time", max_tokens=40):
        print(event, end="", flush=True)
    print()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(temporary)
        whole = folder / f"{MODEL.stem}.vindex"
        extract(whole)
        look_into(whole, folder / f"{MODEL.stem}.browse")
        generate(whole)
