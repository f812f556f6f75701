//! Writes the cards that the library ships, their JSON Schema and what is compiled in of both, and says
//! which of them changed: `cargo run -p skulk-cards`. Tests fail while something would.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a tool, run by hand")]

mod facts;
mod files;

use std::path::Path;

fn main() {
    let root = root();
    let files = files::files(root);
    for path in files::differing(root, &files) {
        println!("{}", path.display());
        match files.get(&path) {
            Some(text) => std::fs::write(root.join(path), text).unwrap(),
            None => std::fs::remove_file(root.join(path)).unwrap(),
        }
    }
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

#[test]
fn nothing_drifted() {
    let differing = files::differing(root(), &files::files(root()));
    assert!(differing.is_empty(), "write them again (cargo run -p skulk-cards): {differing:?}");
}
