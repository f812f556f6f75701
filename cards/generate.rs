//! Writes the cards that the library ships, their JSON Schema and the list of those that are compiled in:
//! `cargo run -p skulk-core --features schema --example cards [-- --check]`. With `--check` nothing is written;
//! what differs is listed, and is a failure.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a tool, run by hand")]

mod files;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let check = match std::env::args().nth(1).as_deref() {
        None => false,
        Some("--check") => true,
        Some(_) => {
            println!("usage: cards [--check]");
            return ExitCode::from(2);
        }
    };
    let differing = files::differing(&root);
    let files = files::files(&root);
    for path in &differing {
        println!("{}", path.display());
        match files.get(path) {
            _ if check => {}
            Some(text) => std::fs::write(root.join(path), text).unwrap(),
            None => std::fs::remove_file(root.join(path)).unwrap(),
        }
    }
    if check && !differing.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
