//! What else can a server be asked? How it is, embeddings of tokens, and what its model expects behind a row.

use std::time::Duration;

use hyper::Method;
use hyper::body::Bytes;
use serde::{Deserialize, Serialize};

use super::connection::{Answer, Ask};
use super::known::{failed, told};
use super::waiting::{Runtime, Until, after};
use super::{RemoteFfn, WORDS, expect_http};
use crate::cancel::CancelToken;
use crate::error::{Error, Result};
use crate::ids::TokenId;
use crate::remote::wire::{EmbedReply, EmbedRequest, content};

/// How a server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// Since when it runs.
    pub uptime: Duration,
    /// Requests that it has answered.
    pub requests: u64,
}

/// A token that a server's model expects.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Likely {
    /// The token.
    pub token: TokenId,
    /// Its text, as the server has it.
    pub text: String,
    /// How likely it is, 0 to 1.
    pub probability: f32,
}

#[derive(Deserialize)]
struct HealthAnswer {
    status: String,
    #[serde(default)]
    uptime_seconds: u64,
    #[serde(default)]
    requests_served: u64,
}

#[derive(Serialize)]
struct LogitsQuestion<'a> {
    residual: &'a [f32],
    top_k: usize,
    temperature: f32,
}

#[derive(Deserialize)]
struct LogitsAnswer {
    top_k: Vec<LikelyAnswer>,
}

#[derive(Deserialize)]
struct LikelyAnswer {
    token_id: u32,
    #[serde(default)]
    token: String,
    prob: f32,
}

const JSON: &str = "application/json";

impl RemoteFfn {
    /// Asks the server how it is.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn health(&self, cancel: &CancelToken) -> Result<Health> {
        let ask = Ask { method: Method::GET, ..question("/v1/health", None, Vec::new(), 0) };
        let found: HealthAnswer = self.json(&self.question(ask, cancel)?)?;
        if found.status != "ok" {
            let message =
                format!("expected a server that is ok, found one that is `{}`", told(&found.status));
            return Err(failed(self.address(), message));
        }
        Ok(Health { uptime: Duration::from_secs(found.uptime_seconds), requests: found.requests_served })
    }

    /// Embeds tokens as the model does, scaled as it scales them: `[tokens, hidden]`.
    ///
    /// # Errors
    /// [`ErrorKind::PeerFailed`](crate::ErrorKind::PeerFailed) for tokens that the model does not have, and where the
    /// server's checkpoint has no embeddings; as [`connect`](Self::connect).
    pub fn embed(&self, tokens: &[TokenId], cancel: &CancelToken) -> Result<Vec<f32>> {
        let hidden = self.peer.arch.hidden_size;
        let tokens: Vec<u32> = tokens.iter().map(|token| token.0).collect();
        let mut body = Vec::new();
        EmbedRequest::encode(&mut body, &tokens)?;
        let ask = question("/v1/embed", Some(content::FFN), body, tokens.len() * hidden * 4);
        let answer = self.question(ask, cancel)?;
        let named = |error: Error| error.with("peer", self.address());
        let rows = EmbedReply::decode(&answer.body, hidden).map_err(named)?.rows;
        if rows.rows() != tokens.len() {
            let message = format!("expected {} rows, found {}", tokens.len(), rows.rows());
            return Err(failed(self.address(), message));
        }
        let mut out = Vec::new();
        rows.append_to(&mut out).map_err(named)?;
        Ok(out)
    }

    /// The `top_k` tokens that the model expects behind a row of its last layer, `[hidden]`, in front of the last norm; the
    /// likeliest first. The temperature divides logits.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for a row of another width;
    /// [`ErrorKind::PeerFailed`](crate::ErrorKind::PeerFailed) for numbers that the server refuses, and where its
    /// checkpoint has no head; as [`connect`](Self::connect).
    pub fn likely(
        &self,
        residual: &[f32],
        top_k: usize,
        temperature: f32,
        cancel: &CancelToken,
    ) -> Result<Vec<Likely>> {
        let hidden = self.peer.arch.hidden_size;
        if residual.len() != hidden || residual.iter().any(|value| !value.is_finite()) {
            let message = format!("expected {hidden} finite numbers, found {} numbers", residual.len());
            return Err(Error::argument("residual", message).with_hint("give one row of the model's width"));
        }
        let body = serde_json::to_vec(&LogitsQuestion { residual, top_k, temperature });
        let body =
            body.map_err(|e| Error::argument("residual", "expected numbers, found others").with_source(e))?;
        let ask = question("/v1/logits", Some(JSON), body, self.peer.arch.vocab_size.saturating_mul(1024));
        let found: LogitsAnswer = self.json(&self.question(ask, cancel)?)?;
        let known = |likely: &LikelyAnswer| (likely.token_id as usize) < self.peer.arch.vocab_size;
        if found.top_k.len() != top_k.min(self.peer.arch.vocab_size) || !found.top_k.iter().all(known) {
            return Err(failed(
                self.address(),
                format!("expected {top_k} of the model's tokens, found others"),
            ));
        }
        let likely =
            |it: LikelyAnswer| Likely { token: TokenId(it.token_id), text: it.token, probability: it.prob };
        Ok(found.top_k.into_iter().map(likely).collect())
    }

    /// Asks over a connection of its own.
    fn question(&self, ask: Ask, cancel: &CancelToken) -> Result<Answer> {
        let peer = &self.peer;
        let address = self.address();
        expect_http(address)?;
        let until = Until { cancel, deadline: None, patience: after(peer.options.timeout) };
        let asked = Runtime::new()?.wait(until.wait(async {
            let sent = peer.send(None, &ask).await?;
            peer.answer(&ask, sent).await.map(|(_, answer)| answer)
        }))?;
        let answer = asked.unwrap_or_else(|ended| Err(ended.into_error(address, "to answer")))?;
        answer.expect_ok(address)?;
        Ok(answer)
    }

    fn json<'a, T: Deserialize<'a>>(&self, answer: &'a Answer) -> Result<T> {
        serde_json::from_slice(&answer.body).map_err(|e| {
            failed(self.address(), "expected an answer of JSON, found another".into()).with_source(e)
        })
    }
}

/// A question whose answer has up to so many bytes beside words.
fn question(path: &'static str, content: Option<&'static str>, body: Vec<u8>, most: usize) -> Ask {
    let (method, body, accept) = (Method::POST, Bytes::from(body), None);
    Ask { method, path, content, accept, body, most: most.saturating_add(WORDS) }
}
