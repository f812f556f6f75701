//! Does a generation do what it says? Through `Model`, `Session` and `Generation`, as callers see them.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, missing_docs)]

mod budget;
mod cancel;
mod common;
mod ending;
mod events;
mod failing;
mod features;
#[path = "../support/fixtures.rs"]
mod fixtures;
mod load;
mod rewritten;
mod sampling;
mod sessions;
mod wrapped;
