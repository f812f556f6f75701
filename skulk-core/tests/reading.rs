//! Are files read as they say, and cards and plans made as elsewhere? What needs no engine.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

#[path = "support/fixtures.rs"]
mod fixtures;
mod support;

mod facts;
mod from_checkpoint;
mod gguf_families;
mod inventories;
mod suites;
mod text_cards;
mod weights;
