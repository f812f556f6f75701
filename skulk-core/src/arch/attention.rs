//! What does a layer's attention compute?

use super::{MAX_SIZE, RopeSpec, invalid, positive, size};
use crate::error::Result;
use crate::math;

/// Causal grouped-query attention of one layer.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct AttentionSpec {
    /// Query heads.
    pub n_heads: usize,
    /// Key/value heads; divides `n_heads`.
    pub n_kv_heads: usize,
    /// Elements in a head.
    pub head_dim: usize,
    /// A query sees itself and the `window - 1` positions before it; `None`: all before it.
    pub window: Option<usize>,
    /// Multiplies query·key products.
    pub scale: f32,
    /// Squashes attention scores to ±cap.
    pub softcap: Option<f32>,
    /// Queries and keys are RMS-normed before they are rotated.
    pub qk_norm: Option<QkNorm>,
    /// Values are RMS-normed by heads, without weights.
    pub value_norm: bool,
    /// Values are what keys are before norm and rotation: there is no projection of their own.
    pub keys_as_values: bool,
    /// An earlier layer whose keys and values this one uses: it has none of its own. A shard needs both layers.
    pub kv_of: Option<usize>,
    /// Queries grow with their position.
    pub query_growth: Option<QueryGrowth>,
    /// Query, key and value projections have a bias.
    pub qkv_bias: bool,
    /// The output projection has a bias.
    pub output_bias: bool,
    /// Each query head has a logit of its own that takes part in the softmax without having a value (gpt-oss).
    pub sinks: bool,
    /// Each head's output is multiplied by the sigmoid of a number that is projected from the layer's normed input.
    pub head_gate: bool,
    /// Each head's query projection is followed by as many numbers, by whose sigmoid the head's output is multiplied,
    /// element by element (Qwen3-Next).
    pub output_gate: bool,
    /// Index into [`ArchSpec::ropes`]; `None`: positions are not rotated in.
    pub rope: Option<usize>,
}

/// What of queries, and of keys, is normed together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum QkNorm {
    /// Each head; one weight for each of its elements.
    Heads,
    /// All heads of a row; one weight for each element of each.
    All,
}

/// A query at position `p` is multiplied by `1 + rate · ln(1 + floor(p / every))`, so that attention stays as sharp
/// among many positions as among few.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct QueryGrowth {
    /// How fast.
    pub rate: f64,
    /// Positions over which a query stays as it is.
    pub every: f64,
}

impl QueryGrowth {
    /// What a query at this position is multiplied by.
    pub fn at(&self, position: usize) -> f32 {
        (1.0 + self.rate * math::ln(1.0 + (position as f64 / self.every).floor())) as f32
    }
}

impl AttentionSpec {
    /// Whether it has keys and values of its own.
    pub(crate) fn has_kv(&self) -> bool {
        self.kv_of.is_none()
    }

    /// What rows of queries have, and of what attention gives.
    pub(crate) fn query_width(&self) -> usize {
        self.n_heads.saturating_mul(self.head_dim)
    }

    /// What the query projection gives of a row.
    pub(crate) fn projected_width(&self) -> usize {
        self.query_width().saturating_mul(if self.output_gate { 2 } else { 1 })
    }

    /// What rows of keys have, and of values.
    pub(crate) fn kv_width(&self) -> usize {
        self.n_kv_heads.saturating_mul(self.head_dim)
    }

    pub(super) fn check(&self, ropes: &[RopeSpec]) -> Result<()> {
        let a = self;
        size("attention heads", a.n_heads, 1 << 16)?;
        size("key/value heads", a.n_kv_heads, 1 << 16)?;
        size("head dimension", a.head_dim, 1 << 16)?;
        if !a.n_heads.is_multiple_of(a.n_kv_heads) {
            return Err(invalid(
                "key/value heads",
                format!("expected a divisor of the {} query heads, found {}", a.n_heads, a.n_kv_heads),
            ));
        }
        if let Some(window) = a.window {
            size("sliding window", window, MAX_SIZE)?;
        }
        positive("attention scale", a.scale)?;
        a.softcap.map_or(Ok(()), |cap| positive("attention soft-cap", cap))?;
        if let Some(growth) = a.query_growth {
            positive("growth of queries", growth.rate)?;
            positive("positions of queries' growth", growth.every)?;
            if !a.head_dim.is_multiple_of(2) {
                return Err(invalid(
                    "head dimension",
                    format!("expected an even number, found {}", a.head_dim),
                ));
            }
        }
        if a.head_gate && a.output_gate {
            return Err(invalid("gates of heads", "expected one kind of gates, found two".into()));
        }
        let Some(index) = a.rope else { return Ok(()) };
        let rope = ropes.get(index).ok_or_else(|| {
            let message = format!("expected an index below {}, found {index}", ropes.len());
            invalid("rotary embedding", message)
        })?;
        // Growth is part of the rotation.
        let least = if a.query_growth.is_some() { a.head_dim } else { 2 };
        if !(least..=a.head_dim).contains(&rope.dim) {
            return Err(invalid(
                "rotary dimension",
                format!("expected {least} to the head dimension {}, found {}", a.head_dim, rope.dim),
            ));
        }
        Ok(())
    }
}
