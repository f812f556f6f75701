//! Do models compute and say what they should, on every engine, from every kind of folder?
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

#[path = "support/fixtures.rs"]
mod fixtures;
mod support;

mod answers;
mod bad_input;
mod by_hand;
mod chat;
#[cfg(feature = "embeddings")]
mod embeddings;
mod generate;
mod parity;
mod plan;
mod tokenizer;
mod vindex;
mod vocabularies;
