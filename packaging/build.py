"""What is shipped? Builds it into dist/, looks into it, and installs it into clean environments.

    python3 packaging/build.py [wheel] [npm] [swift] [crate]
    python3 packaging/build.py licences                         # only those of dependencies

Needs what tests/run needs; takes the virtual environment .venv that tests/run makes, or this interpreter's maturin.
Swift's package is that of Linux; of Apple's platforms skulk-swift/xcframework makes it.
"""

import json
import os
import platform
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
PROFILE = "dist"
MODEL = ROOT / "examples" / "models" / "stories260K"
TEXT = "Once upon a time, there was a little girl"
"""What this model writes behind its first four words."""
LARGEST = 15_000_000
"""Bytes that a package may have."""
LICENCES = {
    "0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0",
    "CDLA-Permissive-2.0", "ISC", "MIT", "MIT-0", "MPL-2.0", "Unicode-3.0", "Unlicense", "Zlib",
}  # fmt: skip
"""What dependencies may be licensed under. MPL-2.0 asks for nothing of those who leave its files as they are;
CDLA-Permissive-2.0 is that of a list of certificates."""
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
    libraries = ("skulk-py", "skulk-node", "skulk-swift")
    run("cargo", "build", "--profile", PROFILE, *(f"--package={name}" for name in libraries), cwd=ROOT)


def library(name: str) -> Path:
    """The native library of a package."""
    return next(path for path in (TARGET / PROFILE / f"lib{name}.{ending}" for ending in ("so", "dylib")) if path.exists())


def check(package: Path, names: list[str], expected: list[str]) -> None:
    """Has a package what it should, nothing that it should not, and a size that people download?"""
    size = package.stat().st_size
    print(f"{package.relative_to(ROOT)}: {size:,} bytes, {len(names)} files")
    assert size < LARGEST, f"{package.name} has {size} bytes, more than {LARGEST}"
    for ending in (*expected, *OWN):
        assert any(name.endswith(ending) for name in names), f"{package.name} lacks {ending}: {names}"
    unwanted = [name for name in names if re.search(r"^([^/]+/)?(tests?|target)/|(^|/)(node_modules|\.venv|__pycache__)/", name)]
    assert not unwanted, f"{package.name} has {unwanted}"


def wheel() -> None:
    options = ["--profile", PROFILE, "--compression-level", "9", "--manifest-path", "skulk-py/Cargo.toml", "--out", DIST]
    run(*tool("maturin"), "build", *options, cwd=ROOT)
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
    shutil.copy(library("skulk_node"), ROOT / "skulk-node" / "skulk-node.node")
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


def swift() -> None:
    package = DIST / "skulk-swift"
    shutil.copytree(ROOT / "skulk-swift" / "Sources", package / "Sources")
    for path in (ROOT / "skulk-swift" / "README.md", *(ROOT / name for name in OWN)):
        shutil.copy(path, package)
    manifest = (ROOT / "skulk-swift" / "Package.swift").read_text().splitlines(keepends=True)
    # Its tests stay behind.
    (package / "Package.swift").write_text("".join(line for line in manifest if ".testTarget(" not in line))
    (package / "lib").mkdir()
    native = Path(shutil.copy(library("skulk_swift"), package / "lib"))
    print(f"{native.relative_to(ROOT)}: {native.stat().st_size:,} bytes")
    packed = DIST / f"skulk-swift-{platform.system().lower()}-{platform.machine()}.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(package, package.name)
    shutil.rmtree(package)
    with tarfile.open(packed) as archive, tempfile.TemporaryDirectory() as folder:
        check(packed, archive.getnames(), ["Package.swift", "Sources/Skulk/Model.swift", native.name])
        archive.extractall(folder)
        made = shutil.copytree(ROOT / "examples" / "swift", Path(folder, "chat"))
        manifest = (made / "Package.swift").read_text().replace("../../skulk-swift", "../skulk-swift")
        (made / "Package.swift").write_text(manifest)
        libraries = Path(folder, "skulk-swift", "lib")
        linked = ("-Xlinker", f"-L{libraries}", "-Xlinker", f"-rpath={libraries}")
        swift = (ROOT / "skulk-swift" / "toolchain", "swift", "run", "--package-path", made, *linked, "chat")
        expect(run(*swift, cwd=ROOT, input="Once upon a time\n", env={**os.environ, "SKULK_SWIFT_FOLDERS": folder}))


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
    packages = ("skulk-py", "skulk-node", "skulk-swift")
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


BUILDERS = {"wheel": wheel, "npm": npm, "swift": swift, "crate": crate}


def main() -> None:
    wanted = sys.argv[1:] or list(BUILDERS)
    if wanted == ["licences"]:
        return licences()
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
