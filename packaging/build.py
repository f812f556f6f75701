"""What is shipped? Builds it into dist/, looks into it, and installs it into clean environments.

    python3 packaging/build.py [wheel] [npm] [crate] [swift]

Needs what tests/run needs; takes the virtual environment .venv that tests/run makes, or this interpreter's maturin.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
MODEL = ROOT / "examples" / "models" / "stories260K"
TEXT = "Once upon a time, there was a little girl"
"""What this model writes behind its first four words."""
LARGEST = 15_000_000
"""Bytes that a package may have."""
LICENCES = {
    "0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "ISC",
    "MIT", "MIT-0", "Unicode-3.0", "Unlicense", "Zlib",
}  # fmt: skip
"""What dependencies may be licensed under."""
OWN = ("LICENSE-APACHE", "LICENSE-MIT")
"""What every package has to say about its own licence."""


def run(*command: str | Path, **options: object) -> str:
    shown = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, check=True, **options)
    return shown.stdout


def tool(name: str) -> list[str | Path]:
    own = ROOT / ".venv" / "bin" / "python"
    return [own if own.exists() else sys.executable, "-m", name]


def compile_all() -> None:
    """All native libraries in one go, so that what they share is compiled once."""
    run("cargo", "build", "--release", "-p", "skulk-py", "-p", "skulk-node", cwd=ROOT)


def check(package: Path, names: list[str], expected: list[str]) -> None:
    """Has a package what it should, nothing that it should not, and a size that people download?"""
    size = package.stat().st_size
    print(f"{package.relative_to(ROOT)}: {size:,} bytes, {len(names)} files")
    assert size < LARGEST, f"{package.name} has {size} bytes, more than {LARGEST}"
    for ending in (*expected, *OWN):
        assert any(name.endswith(ending) for name in names), f"{package.name} lacks {ending}: {names}"
    unwanted = [name for name in names if re.search(r"(^|/)(tests?|target|node_modules|\.venv|__pycache__)/", name)]
    assert not unwanted, f"{package.name} has {unwanted}"


def wheel() -> None:
    # What is compiled already stays: a profile or features of its own would compile all again.
    run(*tool("maturin"), "build", "--release", "--strip", "--manifest-path", "skulk-py/Cargo.toml", "--out", DIST, cwd=ROOT)
    [package] = DIST.glob("skulk_py-*.whl")
    with zipfile.ZipFile(package) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith("/METADATA"))).decode()
    check(package, names, ["skulk/__init__.py", "skulk/_skulk.abi3.so", "skulk/_skulk.pyi", "skulk/py.typed"])
    assert "\nName: skulk-py\n" in metadata and "\nRequires-Dist: numpy" in metadata, metadata
    program = f"import skulk\nprint(skulk.Model.load({str(MODEL)!r}).generate('Once upon a time', max_tokens=12).text())"
    with tempfile.TemporaryDirectory() as folder:
        run(sys.executable, "-m", "venv", folder)
        python = Path(folder, "bin", "python")
        run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-index", "--no-deps", package)
        expect(run(python, "-c", program, cwd=folder))


def npm() -> None:
    library = next(TARGET / "release" / f"libskulk_node.{ending}" for ending in ("so", "dylib") if (TARGET / "release" / f"libskulk_node.{ending}").exists())
    shutil.copy(library, ROOT / "skulk-node" / "skulk-node.node")
    packages = [Path(line) for line in run("node", "pack.mjs", DIST, cwd=ROOT / "skulk-node").split("\n") if line]
    for package in packages:
        with tarfile.open(package) as archive:
            names = archive.getnames()
        is_native = any(name.endswith(".node") for name in names)
        check(package, names, [] if is_native else ["lib/index.js", "lib/index.mjs", "lib/index.d.ts", "ai-sdk/index.mjs"])
    program = (
        'import { Model } from "skulk-node";\n'
        f"const model = await Model.load({json.dumps(str(MODEL))});\n"
        'console.log(await model.generate("Once upon a time", { maxTokens: 12 }).text());\n'
    )
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "package.json").write_text('{"private": true}')
        Path(folder, "main.mjs").write_text(program)
        # Those of other platforms are optional, and not there.
        run("npm", "install", "--silent", "--offline", "--ignore-scripts", "--no-audit", *packages, cwd=folder)
        expect(run("node", "main.mjs", cwd=folder))


def crate() -> None:
    run("cargo", "package", "--package=skulk-core", "--no-verify", "--allow-dirty", "--quiet", cwd=ROOT)
    packed = max(TARGET.glob("package/skulk-core-*.crate"), key=lambda path: path.stat().st_mtime)
    package = Path(shutil.copy(packed, DIST))
    with tarfile.open(package) as archive:
        check(package, archive.getnames(), ["Cargo.toml", "src/lib.rs", "README.md"])
    run(sys.executable, ROOT / "tests" / "packed.py", "--generate")


def expect(said: str) -> None:
    assert TEXT.removeprefix("Once upon a time") in said, said


def licences() -> None:
    """Are all crates that are compiled into packages under licences that these may have?"""
    packages = ("skulk-py", "skulk-node")
    tree = run(
        "cargo", "tree", "--edges=normal", "--prefix=none", "--format={p}|{l}", *(f"--package={p}" for p in packages), cwd=ROOT
    )
    for line in sorted(set(tree.splitlines()) - {""}):
        name, licence = line.split("|")
        licence = licence.removesuffix(" (*)")
        # `A/B`, as old manifests have it, is `A OR B`.
        chosen = [word.strip(" ()") for word in re.split(r" OR |/", licence)]
        alone = [word for choice in chosen for word in [choice.split(" AND ")] if set(word) <= LICENCES]
        assert alone, f"{name.split(' (')[0]} is under {licence or 'no licence'}"


BUILDERS = {"wheel": wheel, "npm": npm, "crate": crate}


def main() -> None:
    wanted = sys.argv[1:] or list(BUILDERS)
    unknown = set(wanted) - set(BUILDERS)
    if unknown:
        sys.exit(f"expected {', '.join(BUILDERS)}, found {', '.join(sorted(unknown))}\n{__doc__}")
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    licences()
    compile_all()
    for name in wanted:
        BUILDERS[name]()


main()
