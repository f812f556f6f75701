//! Does a generation do what it says? Through `Model`, `Session` and `Generation`, as callers see them.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, missing_docs)]

mod cancel;
mod common;
mod ending;
mod events;
#[path = "../support/fixtures.rs"]
mod fixtures;
mod load;
mod sampling;
mod sessions;
