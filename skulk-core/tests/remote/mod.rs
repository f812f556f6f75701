//! Other machines: frames, servers, clients.

use std::path::{Path, PathBuf};

mod client;
mod fault;
#[path = "../support/frames.rs"]
mod frames;
mod grpc;
mod server;
mod slices;
mod wire;

/// What LARQL's server was sent and what it replied.
fn recorded(path: &str) -> Vec<u8> {
    std::fs::read(fixtures().join(path)).unwrap()
}

fn fixtures() -> PathBuf {
    root().join("tests/fixtures/larql-http")
}

/// A small trained model.
fn model_path(name: &str) -> PathBuf {
    root().join("tests/fixtures/models").join(name)
}

/// The repository's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
