//! Do blocks that other machines compute cross as they should?
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod remote;
