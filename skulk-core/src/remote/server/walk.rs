//! What do dense blocks give for rows? `walk-ffn`, whose rows are behind the block's norm.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use hyper::http::request::Parts;

use super::batch::{Form, Piece};
use super::json;
use super::reply::{Refusal, Reply, of_type};
use super::routes::{Written, accepted, written};
use super::served::Served;
use crate::error::Result;
use crate::remote::wire::{Q8kReply, Q8kRequest, WalkReply, WalkRequest, WireType, content};

/// Milliseconds, as frames have them.
pub(super) fn milliseconds(time: Duration) -> f32 {
    time.as_secs_f32() * 1e3
}

/// A request's rows, and the layers that they go through.
struct Asked {
    layers: Vec<u32>,
    rows: Vec<f32>,
}

/// What the layers give.
struct Given {
    /// `[rows, hidden]` of each.
    layers: Vec<(u32, Vec<f32>)>,
    computing: Duration,
}

pub(super) async fn walk(served: &Served, head: &Parts, body: &[u8]) -> Result<Reply, Refusal> {
    let hidden = served.hidden();
    match written(head, content::FFN)? {
        Written::Json => {
            let (asked, batch) = in_json(body, hidden)?;
            let given = compute(served, asked).await?;
            Ok(reply_json(&given, batch, hidden))
        }
        Written::Binary => {
            let Given { layers, computing } = compute(served, binary(body, hidden)?).await?;
            let latency = milliseconds(computing);
            let asked = accepted(head);
            // What half precision cannot hold goes as it is.
            let wire = if layers.iter().all(|(_, rows)| asked.holds(rows)) { asked } else { WireType::F32 };
            let mut out = Vec::new();
            let entries = layers.iter().map(|(layer, rows)| (*layer, rows.as_slice()));
            WalkReply::encode(&mut out, wire, latency, hidden, entries)?;
            Ok(of_type(wire.content_type(), out))
        }
    }
}

/// The same in JSON, and whether several layers are asked for.
fn in_json(body: &[u8], hidden: usize) -> Result<(Asked, bool), Refusal> {
    let json::WalkRequest { layer, layers, residual, seq_len, full_output } = json::read(body)?;
    if !full_output {
        let message = "this server gives the blocks' full output, not features: set full_output = true";
        return Err(Refusal::bad(message));
    }
    let batch = layers.is_some();
    let layers = match (layer, layers) {
        (_, Some(layers)) if !layers.is_empty() => layers,
        (Some(layer), None) => vec![layer],
        _ => return Err(Refusal::bad("must provide 'layer' or 'layers'")),
    };
    if seq_len == 0 || residual.len() != seq_len.saturating_mul(hidden) {
        return Err(residual_length(residual.len(), seq_len, hidden));
    }
    json::finite(&residual)?;
    Ok((Asked { layers, rows: residual }, batch))
}

fn reply_json(given: &Given, batch: bool, hidden: usize) -> Reply {
    let latency_ms = milliseconds(given.computing);
    let entry = |(layer, rows): &'_ (u32, Vec<f32>)| (*layer, rows.len() / hidden.max(1));
    match given.layers.as_slice() {
        [one] if !batch => {
            let (layer, seq_len) = entry(one);
            json::ok(&json::WalkReply { layer, output: &one.1, seq_len, latency_ms })
        }
        several => {
            let results = several.iter().map(|one| {
                let (layer, seq_len) = entry(one);
                json::WalkEntry { layer, output: &one.1, seq_len }
            });
            let seq_len = several.first().map_or(0, |one| entry(one).1);
            json::ok(&json::WalkBatch { results: results.collect(), seq_len, latency_ms })
        }
    }
}

/// The block gives what no number is.
pub(super) fn not_finite() -> Refusal {
    Refusal::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "the block gives numbers that are not finite for these rows",
    )
}

/// Reads a frame, and says what is wrong with it as LARQL does.
fn binary(body: &[u8], hidden: usize) -> Result<Asked, Refusal> {
    const HEAD: usize = 16;
    if body.len() < HEAD {
        return Err(Refusal::bad(format!("binary: body too short (need ≥ {HEAD} bytes)")));
    }
    let request = WalkRequest::decode(body, hidden).map_err(|error| {
        match error.context().iter().find(|(key, _)| *key == "field").map(|(_, field)| field.as_str()) {
            Some("flags") => Refusal::bad("binary wire format requires full_output = true"),
            Some("residual" | "end") => wrong_length(body, hidden).unwrap_or_else(|| error.into()),
            _ => error.into(),
        }
    })?;
    let mut rows = Vec::new();
    request.rows.append_to(&mut rows)?;
    Ok(Asked { layers: request.layers.iter().collect(), rows })
}

/// A frame of one layer that has more or fewer numbers than its head says.
fn wrong_length(body: &[u8], hidden: usize) -> Option<Refusal> {
    let word = |at: usize| body.get(at * 4..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
    let (layer, rows) = (word(0)?, word(1)?);
    (layer != u32::MAX).then(|| residual_length(body.len().saturating_sub(16) / 4, rows as usize, hidden))
}

/// Rows are not as many numbers as they should be.
pub(super) fn residual_length(found: usize, rows: usize, hidden: usize) -> Refusal {
    Refusal::bad(format!(
        "residual has {found} elements, expected {} (seq_len={rows} * hidden_size={hidden})",
        rows.saturating_mul(hidden)
    ))
}

async fn compute(served: &Served, asked: Asked) -> Result<Given, Refusal> {
    let Asked { layers, rows } = asked;
    let mut seen = BTreeSet::new();
    if let Some(layer) = layers.iter().find(|layer| !seen.insert(**layer)) {
        return Err(Refusal::bad(format!("layer {layer} is asked for twice")));
    }
    let served_layers = layers.iter().map(|layer| served.dense(*layer)).collect::<Result<Vec<_>, _>>()?;
    served.room((rows.len() / served.hidden().max(1)).saturating_mul(layers.len()))?;
    let rows = Arc::new(rows);
    let piece = |layer| Piece { layer, form: Form::Block, rows: Arc::clone(&rows), pairs: Vec::new() };
    let done = served.compute(served_layers.into_iter().map(piece).collect()).await?;
    if done.iter().any(|done| !WireType::F32.holds(&done.rows)) {
        return Err(not_finite());
    }
    let computing = done.iter().map(|done| done.computing).sum();
    let layers = layers.into_iter().zip(done.into_iter().map(|done| done.rows)).collect();
    Ok(Given { layers, computing })
}

/// The same of rows that crossed as integers: a row for each layer.
pub(super) async fn walk_q8k(served: &Served, body: &[u8]) -> Result<Reply, Refusal> {
    let hidden = served.hidden();
    let request = Q8kRequest::decode(body, hidden)?;
    served.room(request.len())?;
    let (mut layers, mut pieces) = (Vec::new(), Vec::new());
    for (layer, blocks) in request.rows() {
        let mut row = vec![0.0; hidden];
        blocks.copy_to(&mut row)?;
        layers.push(layer);
        let layer = served.dense(layer)?;
        pieces.push(Piece { layer, form: Form::Block, rows: Arc::new(row), pairs: Vec::new() });
    }
    let done = served.compute(pieces).await?;
    if done.iter().any(|done| !WireType::F32.holds(&done.rows)) {
        return Err(not_finite());
    }
    let mut out = Vec::new();
    let rows = layers.into_iter().zip(done.iter().map(|done| done.rows.as_slice()));
    Q8kReply::encode(&mut out, hidden, rows)?;
    Ok(of_type(content::FFN_Q8K, out))
}
