//! Writes what each language declares of the library's plain data, and says which files changed:
//! `cargo run -p skulk-contract-generate`. Tests fail while something would.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a tool, run by hand")]

mod api;
#[cfg(test)]
mod declared;
mod errors;
mod python;
mod swift;
mod table;
mod types;
mod typescript;

use std::path::Path;

fn main() {
    for (path, text) in differing() {
        println!("{path}");
        let path = root().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Files that are not what they should be, with what they should be.
fn differing() -> Vec<(&'static str, String)> {
    let classes = table::classes();
    let mut files = [
        python::files(&classes),
        errors::files(),
        typescript::files(&classes),
        swift::files(&classes),
        api::files(&classes),
    ]
    .concat();
    files.retain(|(path, text)| std::fs::read_to_string(root().join(path)).ok().as_ref() != Some(text));
    files
}

#[test]
fn nothing_drifted() {
    let differing: Vec<_> = differing().into_iter().map(|(path, _)| path).collect();
    assert!(differing.is_empty(), "write them again (cargo run -p skulk-contract-generate): {differing:?}");
}
