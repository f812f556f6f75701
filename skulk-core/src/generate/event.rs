//! What does a running generation report?

use std::time::Duration;

use serde::Serialize;

use crate::ids::TokenId;
use crate::macros::closed_set;

/// One step of a generation.
///
/// `text` of all events, joined, is the generated text. Most events carry one token; text that had
/// to wait (an unfinished character, the beginning of a stop string) comes with a later one. The
/// last event, and only it, has `finish`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Event {
    /// The token sampled in this step; none in a last event that only ends the stream.
    pub token: Option<Token>,
    /// Text that became certain with this step; may be empty.
    pub text: String,
    /// Why and how the generation ended.
    pub finish: Option<Finish>,
}

/// A token of the text.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Token {
    /// Its id.
    pub id: TokenId,
    /// Natural logarithm of its probability under the model's raw logits, when asked for; none where nothing else could
    /// come.
    #[serde(serialize_with = "crate::wire::wide_option")]
    pub logprob: Option<f32>,
    /// The likeliest tokens at this position, most likely first, as many as asked for.
    pub top_logprobs: Vec<TokenLogprob>,
}

/// A token with its log-probability.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct TokenLogprob {
    /// Its id.
    pub id: TokenId,
    /// Natural logarithm of its probability under the model's raw logits.
    #[serde(serialize_with = "crate::wire::wide")]
    pub logprob: f32,
}

/// How a generation ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Finish {
    /// Why it ended.
    pub reason: FinishReason,
    /// Token counts.
    pub usage: Usage,
    /// Durations.
    pub timings: Timings,
    /// What went wrong on the way that did not end it, in words: a draft model that failed.
    pub warnings: Vec<String>,
}

closed_set! {
    /// Why a generation ended.
    pub enum FinishReason {
        /// The model produced an end-of-sequence token, or nothing may follow by the constraint.
        EndOfSequence = "eos",
        /// A stop string occurred.
        StopString = "stop",
        /// `max_tokens` were generated, or the context is full.
        Length = "length",
    }
}

/// Token counts of a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// How many of them were still in the session's cache.
    pub cached_tokens: usize,
    /// Tokens sampled, an end-of-sequence token included.
    pub completion_tokens: usize,
}

/// Durations of a generation.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Timings {
    /// Opening the checkpoint, building the tokenizer and loading all stages.
    #[serde(serialize_with = "crate::wire::seconds")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub load: Duration,
    /// From the start of the generation to its first token.
    #[serde(serialize_with = "crate::wire::seconds")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub time_to_first_token: Duration,
    /// Computing the prompt's tokens that were not cached.
    #[serde(serialize_with = "crate::wire::seconds")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub prefill: Duration,
    /// From the first token to the last.
    #[serde(serialize_with = "crate::wire::seconds")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub decode: Duration,
    /// Prompt tokens computed per second.
    pub prefill_tokens_per_second: f64,
    /// Tokens per second after the first; 0 when there was only one.
    pub decode_tokens_per_second: f64,
    /// Tokens that were computed ahead.
    pub drafted_tokens: usize,
    /// Of these those that became part of the text.
    pub accepted_tokens: usize,
    /// Steps that computed some ahead.
    pub draft_steps: usize,
    /// The speed of its steps, as a multiple of the speed without tokens ahead, by how long steps without took meanwhile; 1
    /// where that is not known.
    pub draft_gain: f64,
}
