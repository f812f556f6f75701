//! How many bytes has each part of a model? From a checkpoint's tensor table, or estimated from a card.

use serde::{Deserialize, Serialize};

/// The weight bytes of a model's parts, and what a token costs each layer's cache.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub struct Inventory {
    /// One entry a layer.
    pub layers: Vec<LayerBytes>,
    /// The embedding table: in the first stage, and in the last one too where it is the head as well.
    pub embedding: u64,
    /// The head is the embedding table.
    pub tied_embeddings: bool,
    /// The last stage's: final norm, and head unless that is the embedding table.
    pub head: u64,
    /// They were counted in a checkpoint; else estimated from a card.
    pub exact: bool,
}

/// The bytes of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[non_exhaustive]
pub struct LayerBytes {
    /// Attention, norms and router: what stays with the layer's keys and values.
    pub attention: u64,
    /// What every token reads of the feed-forward block: all of a dense one, a mixture's shared experts.
    pub ffn: u64,
    /// Routed experts; 0: a dense block.
    pub n_experts: usize,
    /// Experts that a token takes.
    pub n_used: usize,
    /// Bytes of one routed expert.
    pub expert: u64,
    /// Keys and values of one token.
    pub kv_per_token: u64,
    /// Tokens that the cache holds at most, where attention looks through a window.
    pub window: Option<u64>,
}

impl LayerBytes {
    /// All weights of the layer.
    pub fn total(&self) -> u64 {
        self.attention.saturating_add(self.feed_forward())
    }

    /// The weights of its feed-forward block, all experts included.
    pub fn feed_forward(&self) -> u64 {
        self.ffn.saturating_add(self.expert.saturating_mul(self.n_experts as u64))
    }

    /// Keys and values of `tokens` tokens.
    pub fn kv(&self, tokens: u64) -> u64 {
        self.kv_per_token.saturating_mul(self.window.map_or(tokens, |window| window.min(tokens)))
    }
}
