//! What do tokens become in front of the layers, and rows behind them? Embeddings and logits, of whole checkpoints.

use std::sync::Arc;
use std::time::Instant;

use hyper::StatusCode;
use hyper::header::{ACCEPT, CACHE_CONTROL, HeaderValue, VARY};
use hyper::http::request::Parts;

use super::json;
use super::reply::{Refusal, Reply, of_type, stopping};
use super::routes::{Written, written};
use super::served::Served;
use super::walk::milliseconds;
use crate::error::Result;
use crate::ids::TokenId;
use crate::model::CpuEnds;
use crate::remote::wire::{EmbedReply, EmbedRequest, content};
use crate::tokenizer::Tokenizer;

/// What embeds tokens and knows their texts.
pub(super) struct Ends {
    pub(super) weights: Arc<CpuEnds>,
    pub(super) tokenizer: Option<Arc<Tokenizer>>,
}

fn ends(served: &Served) -> Result<&Ends, Refusal> {
    served.ends.as_ref().ok_or_else(|| {
        let message = "the served checkpoint lacks embeddings, the last norm or the head";
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, message)
    })
}

/// The rows of these tokens.
fn rows(served: &Served, tokens: &[u32]) -> Result<Vec<f32>, Refusal> {
    let (ends, vocab) = (ends(served)?, served.running.arch.vocab_size);
    if let Some(token) = tokens.iter().find(|token| **token as usize >= vocab) {
        return Err(Refusal::bad(format!("token_id {token} out of range (vocab={vocab})")));
    }
    if tokens.is_empty() {
        return Err(Refusal::bad("token_ids: expected 1 or more, found 0"));
    }
    served.room(tokens.len())?;
    let tokens: Vec<_> = tokens.iter().map(|token| TokenId(*token)).collect();
    Ok(ends.weights.embed(&tokens)?)
}

pub(super) fn embed(served: &Served, head: &Parts, body: &[u8]) -> Result<Reply, Refusal> {
    let (hidden, started) = (served.hidden(), Instant::now());
    match written(head, content::FFN) {
        Written::Binary => {
            let tokens: Vec<_> = EmbedRequest::decode(body)?.tokens.iter().collect();
            let mut out = Vec::new();
            EmbedReply::encode(&mut out, hidden, &rows(served, &tokens)?)?;
            Ok(of_type(content::FFN, out))
        }
        Written::Json => {
            let tokens = json::read::<json::EmbedRequest>(body)?.token_ids;
            let rows = rows(served, &tokens)?;
            Ok(json::ok(&json::EmbedReply {
                residual: rows.chunks(hidden.max(1)).collect(),
                seq_len: tokens.len(),
                hidden_size: hidden,
                latency_ms: milliseconds(started.elapsed()),
            }))
        }
    }
}

/// The row of one token, which caches may keep.
pub(super) fn embed_one(served: &Served, head: &Parts, token: &str) -> Result<Reply, Refusal> {
    let index = token.parse().map_err(|_| Refusal::bad(format!("expected a token's index, found `{token}`")));
    let (token_id, hidden_size) = (index?, served.hidden());
    let row = rows(served, &[token_id])?;
    let accepts_json = |value: &HeaderValue| value.to_str().is_ok_and(|value| value.contains("json"));
    let mut reply = match head.headers.get_all(ACCEPT).iter().any(accepts_json) {
        true => json::ok(&json::EmbedOne { token_id, embedding: &row, hidden_size }),
        false => of_type(content::FFN, row.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>()),
    };
    let headers = reply.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable"));
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    Ok(reply)
}

pub(super) async fn logits(served: &Served, head: &Parts, body: &[u8]) -> Result<Reply, Refusal> {
    let hidden = served.hidden();
    let request = match written(head, content::FFN) {
        Written::Json => json::read(body)?,
        Written::Binary => {
            let (numbers, rest) = body.as_chunks();
            if !rest.is_empty() {
                return Err(Refusal::bad(format!("body has {} bytes, expected {}", body.len(), hidden * 4)));
            }
            json::LogitsRequest::new(numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
        }
    };
    json::one_row(&request.residual, hidden)?;
    let json::LogitsRequest { residual, top_k, temperature } = request;
    if !(temperature.is_finite() && temperature > 0.0) {
        return Err(Refusal::bad(format!("temperature: expected a number above 0, found {temperature}")));
    }
    let vocab = served.running.arch.vocab_size;
    if top_k == 0 {
        return Err(Refusal::bad("top_k: expected 1 or more, found 0"));
    }
    let top_k = top_k.min(vocab);
    let Ends { weights, tokenizer } = ends(served)?;
    // One at a time: who waits is one of the queue's.
    let _turn = served.turn().await?;
    let (weights, cancel, started) = (Arc::clone(weights), served.running.cancel.clone(), Instant::now());
    let likely = tokio::task::spawn_blocking(move || weights.likely(&residual, top_k, temperature, &cancel));
    let likely = likely.await.map_err(|e| match e.is_panic() {
        true => Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "computing ended in a panic"),
        false => stopping(),
    })??;
    let text =
        |id: TokenId| tokenizer.as_ref().map_or_else(String::new, |tokens| tokens.decode(&[id], false));
    let top_k = likely.into_iter().map(|(id, prob)| json::Likely { token_id: id.0, token: text(id), prob });
    let latency_ms = milliseconds(started.elapsed());
    Ok(json::ok(&json::LogitsReply { top_k: top_k.collect(), latency_ms }))
}
