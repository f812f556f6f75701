//! How is a vindex made of a checkpoint?

#[allow(dead_code, reason = "what writes vindexes is its user")]
mod feature_tokens;

#[allow(unused_imports, reason = "what writes vindexes is their user")]
pub(crate) use feature_tokens::{LayerTokens, empty_tokens};
