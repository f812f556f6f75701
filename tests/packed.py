"""Can the packed crate be depended on from outside the workspace, with each feature alone?

Packs skulk-core, unpacks it beside a crate that depends on it, checks that with each feature, and runs it: without any, or
with --generate. Then counts what is compiled.
"""

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
HOST = TARGET / "packed"
FEATURES = ("", "schema", "generate", "grammar", "candle", "embeddings", "net", "wgpu")

MANIFEST = """
[package]
name = "host"
edition = "2024"

[features]
candle = ["generate", "skulk-core/candle"]
embeddings = ["candle", "skulk-core/embeddings"]
generate = ["skulk-core/default"]
grammar = ["generate", "skulk-core/grammar"]
net = ["generate", "skulk-core/net"]
schema = ["skulk-core/schema"]
wgpu = ["generate", "skulk-core/wgpu"]

[dependencies]
skulk-core = { path = "skulk-core", default-features = false }

[profile.dev]
opt-level = 1
debug = 0

[workspace]
"""

PROGRAM = """
fn main() -> skulk::Result<()> {
    println!("{} cards", skulk::CardLibrary::builtin().len());
    let path = std::env::args().nth(1).unwrap_or_default();
    println!("{} tensors", skulk::open_checkpoint(&path)?.tensors().len());
    #[cfg(feature = "generate")]
    {
        let model = skulk::Model::open(&path, &skulk::LoadOptions::default())?;
        let options = skulk::GenerateOptions::default().max_tokens(16);
        println!("{}", model.generate("Once upon a time", options)?.output()?.text);
    }
    Ok(())
}
"""


def run(*command: str, **options) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, **options).stdout


def prepare() -> None:
    """Leaves what did not change as it was, so that cargo sees what did."""
    run("cargo", "package", "--package=skulk-core", "--no-verify", "--allow-dirty", "--quiet", cwd=ROOT)
    packed = max(TARGET.glob("package/skulk-core-*.crate"), key=lambda path: path.stat().st_mtime)
    seen = HOST / "unpacked.crate"
    if not seen.exists() or seen.read_bytes() != packed.read_bytes():
        unpack(packed)
        shutil.copy(packed, seen)
    for name, text in {"Cargo.toml": MANIFEST, "src/main.rs": PROGRAM}.items():
        if not (HOST / name).exists() or (HOST / name).read_text() != text:
            (HOST / name).write_text(text)
    shutil.copy(ROOT / "Cargo.lock", HOST / "Cargo.lock")


def unpack(packed: Path) -> None:
    shutil.rmtree(HOST, ignore_errors=True)
    (HOST / "src").mkdir(parents=True)
    with tarfile.open(packed) as archive:
        for member in archive:
            name = Path(*Path(member.name).parts[1:])
            (HOST / "skulk-core" / name).parent.mkdir(parents=True, exist_ok=True)
            (HOST / "skulk-core" / name).write_bytes(archive.extractfile(member).read())


def build(*, generates: bool) -> None:
    environment = os.environ | {"CARGO_TARGET_DIR": str(TARGET / "packed-target"), "RUSTFLAGS": "-Dwarnings"}
    for feature in FEATURES:
        print(f"feature: {feature or 'none'}")
        run("cargo", "check", "--quiet", f"--features={feature}", cwd=HOST, env=environment)
    feature = "generate" if generates else ""
    model = str(ROOT / "examples/models/stories260K")
    said = run("cargo", "run", "--quiet", f"--features={feature}", "--", model, cwd=HOST, env=environment)
    print(said)
    assert "120 cards\n47 tensors" in said and (not generates or ", there was a little girl" in said), said


def crates(*arguments: str) -> set[str]:
    """Names and versions of what is compiled into a package."""
    tree = run("cargo", "tree", "--edges=normal", "--prefix=none", "--locked", *arguments, cwd=ROOT)
    return {" ".join(line.split()[:2]) for line in tree.splitlines()}


def counted() -> None:
    none, default = (crates("--package=skulk-core", *options) for options in (["--no-default-features"], []))
    example = crates("--package=skulk-examples")
    print(f"crates: {len(none)} without features, {len(default)} by default, {len(example)} in the examples")
    assert len(none) <= 60, sorted(none)
    for found, unwanted in (
        (none, {"candle-core", "rayon", "rayon-core", "tokenizers", "wgpu"}),
        (default, {"candle-core", "candle-nn", "llguidance", "wgpu"}),
        (example, {"candle-core", "candle-nn", "criterion", "proptest", "wgpu"}),
    ):
        names = {crate.split()[0] for crate in found}
        assert not names & unwanted, names & unwanted


prepare()
build(generates="--generate" in sys.argv)
counted()
