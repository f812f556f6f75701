//! What do dense blocks give for rows? `walk-ffn`, whose rows are behind the block's norm.

use std::collections::BTreeMap;
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
    /// Layers as they were asked for, and where the outputs have theirs.
    named: Vec<(u32, usize)>,
    /// `[rows, hidden]` of each layer.
    outputs: Vec<Vec<f32>>,
    rows: usize,
    computing: Duration,
}

impl Given {
    /// Layers as they were asked for, with what they give.
    fn layers(&self) -> Vec<(u32, &[f32])> {
        let output = |(layer, place): &(u32, usize)| Some((*layer, self.outputs.get(*place)?.as_slice()));
        self.named.iter().filter_map(output).collect()
    }
}

pub(super) async fn walk(served: &Served, head: &Parts, body: &[u8]) -> Result<Reply, Refusal> {
    let hidden = served.hidden();
    match written(head, content::FFN) {
        Written::Json => {
            let given = compute(served, in_json(body, hidden)?).await?;
            Ok(reply_json(&given))
        }
        Written::Binary => {
            let given = compute(served, binary(body, hidden)?).await?;
            let latency = milliseconds(given.computing);
            let asked = accepted(head);
            // What half precision cannot hold goes as it is.
            let wire = if given.outputs.iter().all(|rows| asked.holds(rows)) { asked } else { WireType::F32 };
            let mut out = Vec::new();
            WalkReply::encode(&mut out, wire, latency, hidden, given.layers().into_iter())?;
            Ok(of_type(wire.content_type(), out))
        }
    }
}

/// The same in JSON.
fn in_json(body: &[u8], hidden: usize) -> Result<Asked, Refusal> {
    let json::WalkRequest { layer, layers, residual, seq_len, full_output, moe_layer } = json::read(body)?;
    if moe_layer {
        let message = "moe_layer=true is not served: ask for the layer's experts at /v1/experts/layer-batch";
        return Err(Refusal::bad(message));
    }
    if !full_output {
        let message = "this server gives the blocks' full output, not features: set full_output = true";
        return Err(Refusal::bad(message));
    }
    let layers = match (layer, layers) {
        (_, Some(layers)) if !layers.is_empty() => layers,
        (Some(layer), None) => vec![layer],
        _ => return Err(Refusal::bad("must provide 'layer' or 'layers'")),
    };
    if seq_len == 0 {
        return Err(Refusal::bad("seq_len: expected a row or more, found 0"));
    }
    if residual.len() != seq_len.saturating_mul(hidden) {
        return Err(residual_length(residual.len(), seq_len, hidden));
    }
    json::finite(&residual)?;
    Ok(Asked { layers, rows: residual })
}

fn reply_json(given: &Given) -> Reply {
    let (latency_ms, seq_len) = (milliseconds(given.computing), given.rows);
    match given.layers().as_slice() {
        [(layer, output)] => json::ok(&json::WalkReply { layer: *layer, output, seq_len, latency_ms }),
        several => {
            let entries = several.iter();
            let results = entries.map(|(layer, output)| json::WalkEntry { layer: *layer, output, seq_len });
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
            Some("flags") if head(body).is_some_and(|[_, _, flags]| flags % 2 == 0) => {
                Refusal::bad("binary wire format requires full_output = true")
            }
            Some("residual" | "end") => wrong_length(body, hidden).unwrap_or_else(|| error.into()),
            _ => error.into(),
        }
    })?;
    let mut rows = Vec::new();
    request.rows.append_to(&mut rows)?;
    Ok(Asked { layers: request.layers.iter().collect(), rows })
}

/// Of a frame the bytes up to the residual, `seq_len` and `flags`.
fn head(body: &[u8]) -> Option<[usize; 3]> {
    let words = body.as_chunks().0;
    let word = |at: usize| words.get(at).map(|bytes| u32::from_le_bytes(*bytes) as usize);
    let layers = if word(0)? == u32::MAX as usize { word(1)?.checked_add(2)? } else { 1 };
    let flags = word(layers.checked_add(1)?)?;
    Some([layers.checked_add(3)?.checked_mul(4)?, word(layers)?, flags])
}

/// A frame that has more or fewer numbers than its head says.
fn wrong_length(body: &[u8], hidden: usize) -> Option<Refusal> {
    let [residual, rows, _] = head(body)?;
    let found = body.len().checked_sub(residual)?;
    Some(match found.is_multiple_of(4) {
        true => residual_length(found / 4, rows, hidden),
        false => Refusal::bad("binary: residual byte length is not a multiple of 4"),
    })
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
    // A layer may be named often, in four bytes each time: it is computed once.
    let mut places = BTreeMap::new();
    let (mut once, mut named) = (Vec::new(), Vec::with_capacity(layers.len()));
    for layer in &layers {
        let place = match places.get(layer) {
            Some(place) => *place,
            None => {
                once.push(served.dense(*layer)?);
                places.insert(*layer, once.len() - 1);
                once.len() - 1
            }
        };
        named.push((*layer, place));
    }
    let n_rows = rows.len() / served.hidden().max(1);
    served.room(n_rows.saturating_mul(layers.len()))?;
    let rows = Arc::new(rows);
    let piece = |layer| Piece { layer, form: Form::Block, rows: Arc::clone(&rows), pairs: Vec::new() };
    let done = served.compute(once.into_iter().map(piece).collect()).await?;
    if done.iter().any(|done| !WireType::F32.holds(&done.rows)) {
        return Err(not_finite());
    }
    let computing = done.iter().map(|done| done.computing).sum();
    let outputs = done.into_iter().map(|done| done.rows).collect();
    Ok(Given { named, outputs, rows: n_rows, computing })
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
