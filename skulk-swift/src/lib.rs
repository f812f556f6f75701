//! How does Swift reach the library? Handles, conversions and errors for the Swift package `Skulk`; everything that
//! decides anything is in `skulk-core`.
//!
//! Names begin with `Raw`: what Swift programs use has these names without it, and is written in `Sources/Skulk`.
#![allow(unsafe_code, unreachable_pub, reason = "what UniFFI's macros export")]

mod call;
mod chat;
mod convert;
mod embed;
mod error;
mod generation;
mod handle;
mod model;
mod plan;
mod running;
mod server;
mod session;
mod tools;
mod vindex;
mod work;

uniffi::setup_scaffolding!();
