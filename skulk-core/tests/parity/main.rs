//! Does the decoder compute what other people's software computes, however it is cut up?
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod experts;
#[path = "../support/fixtures.rs"]
mod fixtures;
mod gemma;
mod reference;
mod splits;
mod stages;
#[path = "../support/mod.rs"]
mod support;
