//! Writes the Swift functions that call the library, and the header that declares those for the compiler:
//! `skulk-swift-bindgen LIBRARY FOLDER`, where the library is the built `cdylib` with its symbols.
#![allow(clippy::print_stderr, reason = "a tool, run by hand")]

use std::process::ExitCode;

use uniffi_bindgen::bindings::{SwiftBindingsOptions, generate_swift_bindings};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [library, folder] = arguments.as_slice() else {
        eprintln!("usage: skulk-swift-bindgen LIBRARY FOLDER");
        return ExitCode::from(2);
    };
    let written = generate_swift_bindings(SwiftBindingsOptions {
        generate_swift_sources: true,
        generate_headers: true,
        source: library.into(),
        out_dir: folder.into(),
        config: Some(concat!(env!("CARGO_MANIFEST_DIR"), "/../uniffi.toml").into()),
        ..Default::default()
    });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
