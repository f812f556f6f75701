//! What do requests and replies look like in JSON? As LARQL's.

use hyper::StatusCode;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::reply::{Refusal, Reply, json};

/// Reads a body.
pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|e| Refusal::bad(format!("invalid JSON: {e}")))
}

/// A reply of this value.
pub(super) fn ok(value: &impl Serialize) -> Reply {
    json(StatusCode::OK, value)
}

/// `Ok` for numbers that are finite: one of JSON can be too large for an f32.
pub(super) fn finite(values: &[f32]) -> Result<(), Refusal> {
    match values.iter().position(|value| !value.is_finite()) {
        None => Ok(()),
        Some(at) => Err(Refusal::bad(format!("residual: expected finite numbers, found another at {at}"))),
    }
}

/// `Ok` for one row.
pub(super) fn one_row(values: &[f32], hidden: usize) -> Result<(), Refusal> {
    if values.len() != hidden {
        return Err(Refusal::bad(format!("residual has {} elements, expected {hidden}", values.len())));
    }
    finite(values)
}

fn one() -> usize {
    1
}

/// `walk-ffn`.
#[derive(Deserialize)]
pub(super) struct WalkRequest {
    pub(super) layer: Option<u32>,
    pub(super) layers: Option<Vec<u32>>,
    pub(super) residual: Vec<f32>,
    #[serde(default = "one")]
    pub(super) seq_len: usize,
    #[serde(default)]
    pub(super) full_output: bool,
    /// Rows are in front of the layer's block, whose experts other servers have.
    #[serde(default)]
    pub(super) moe_layer: bool,
}

/// Its reply of one layer.
#[derive(Serialize)]
pub(super) struct WalkReply<'a> {
    pub(super) layer: u32,
    pub(super) output: &'a [f32],
    pub(super) seq_len: usize,
    pub(super) latency_ms: f32,
}

/// A layer among several.
#[derive(Serialize)]
pub(super) struct WalkEntry<'a> {
    pub(super) layer: u32,
    pub(super) output: &'a [f32],
    pub(super) seq_len: usize,
}

/// Its reply of several layers.
#[derive(Serialize)]
pub(super) struct WalkBatch<'a> {
    pub(super) results: Vec<WalkEntry<'a>>,
    pub(super) seq_len: usize,
    pub(super) latency_ms: f32,
}

/// A row for an expert whom the path names.
#[derive(Deserialize)]
pub(super) struct ExpertRequest {
    pub(super) residual: Vec<f32>,
}

/// What it gives.
#[derive(Serialize)]
pub(super) struct ExpertReply<'a> {
    pub(super) output: &'a [f32],
    pub(super) latency_ms: f32,
}

/// `expert/batch`.
#[derive(Deserialize)]
pub(super) struct ExpertsRequest {
    pub(super) requests: Vec<ExpertRow>,
}

/// A row of it.
#[derive(Deserialize)]
pub(super) struct ExpertRow {
    pub(super) layer: u32,
    pub(super) expert_id: u32,
    pub(super) residual: Vec<f32>,
}

/// Its reply.
#[derive(Serialize)]
pub(super) struct ExpertsReply<'a> {
    pub(super) results: Vec<ExpertResult<'a>>,
    pub(super) latency_ms: f32,
}

/// A row of that.
#[derive(Serialize)]
pub(super) struct ExpertResult<'a> {
    pub(super) layer: u32,
    pub(super) expert_id: u32,
    pub(super) output: &'a [f32],
}

/// `embed`.
#[derive(Deserialize)]
pub(super) struct EmbedRequest {
    pub(super) token_ids: Vec<u32>,
}

/// Its reply: a row for each token.
#[derive(Serialize)]
pub(super) struct EmbedReply<'a> {
    pub(super) residual: Vec<&'a [f32]>,
    pub(super) seq_len: usize,
    pub(super) hidden_size: usize,
    pub(super) latency_ms: f32,
}

/// The row of a token whom the path names.
#[derive(Serialize)]
pub(super) struct EmbedOne<'a> {
    pub(super) token_id: u32,
    pub(super) embedding: &'a [f32],
    pub(super) hidden_size: usize,
}

fn five() -> usize {
    5
}

fn plain() -> f32 {
    1.0
}

/// `logits`.
#[derive(Deserialize)]
pub(super) struct LogitsRequest {
    pub(super) residual: Vec<f32>,
    #[serde(default = "five")]
    pub(super) top_k: usize,
    #[serde(default = "plain")]
    pub(super) temperature: f32,
}

impl LogitsRequest {
    /// Of a row alone.
    pub(super) fn new(residual: Vec<f32>) -> Self {
        Self { residual, top_k: five(), temperature: plain() }
    }
}

/// Its reply: the likeliest tokens.
#[derive(Serialize)]
pub(super) struct LogitsReply {
    pub(super) top_k: Vec<Likely>,
    pub(super) latency_ms: f32,
}

/// A token, its text, and how likely it is.
#[derive(Serialize)]
pub(super) struct Likely {
    pub(super) token_id: u32,
    pub(super) token: String,
    pub(super) prob: f32,
}
