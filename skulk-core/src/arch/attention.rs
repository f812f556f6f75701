//! What does a layer's attention compute?

use super::{MAX_SIZE, RopeLayout, RopeSpec, Window, invalid, positive, size};
use crate::error::Result;
use crate::math;

/// What the first element of keys that choose positions is a multiple of: elements that share a scale.
const INDEX_AT: usize = 32;

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
    /// Which positions before it a query sees; `None`: all.
    pub window: Option<Window>,
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
    /// Keys and values of all heads are projections of one vector for each position, which is kept in their place.
    pub latent: Option<LatentSpec>,
    /// An earlier layer whose keys and values this one uses: it has none of its own. A shard needs both layers. In an
    /// [assistant](super::AheadSpec::Assistant) it is a layer of the model.
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
    /// Queries, keys and values are projections of the token's normed embedding and the layer's input, normed, in twice the width
    /// (EAGLE-3). The layer is the only one.
    pub beside_embedding: bool,
    /// Index into [`ArchSpec::ropes`]; `None`: positions are not rotated in.
    pub rope: Option<usize>,
}

/// Attention to latent vectors (DeepSeek-V2's multi-head latent attention), in the form in which it is computed: there is
/// one head of keys, each being a position's latent vector, which is also the value, and behind it what all heads' keys
/// have in common. So [`AttentionSpec::n_kv_heads`] is 1 and [`AttentionSpec::head_dim`] the sum of both.
///
/// Of each head, what projects the latent vector to keys is multiplied with its queries instead, and what projects it to
/// values with what attention gives.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct LatentSpec {
    /// Elements of a latent vector.
    pub rank: usize,
    /// Elements of a head's query and key that positions are not rotated in, whose keys are projections of the latent vector.
    pub plain: usize,
    /// Those behind, that positions are rotated in, whose keys heads have in common.
    pub rotated: usize,
    /// Elements of a head's value.
    pub value: usize,
    /// Queries are projections of such a vector as well, of so many elements; `None`: of the layer's input.
    pub query_rank: Option<usize>,
    /// Latent vectors are normed with this epsilon, and with weights.
    pub eps: f32,
    /// A row sees some positions only, which are chosen by a small attention beside.
    pub index: Option<IndexSpec>,
}

/// What chooses the positions that a row sees (DeepSeek-V3.2's lightning indexer). Where there are more than it may see, each
/// has a score: of every head the product of query and key where it is above 0, times a number that is projected from the
/// layer's input for each head, added up. Those of the largest scores are seen, of equal ones on
/// engines `cpu` and `wgpu` the first.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct IndexSpec {
    /// Heads, which share one key of each position.
    pub n_heads: usize,
    /// Elements of a head. Positions are rotated in at its beginning, by the attention's angles.
    pub head_dim: usize,
    /// How they are.
    pub layout: RopeLayout,
    /// Positions that a row sees at most.
    pub most: usize,
    /// Keys are normed with this epsilon, around their mean, with weights and biases.
    pub eps: f32,
    /// An earlier layer whose choice this one takes: it has none of its own. A shard needs both layers.
    pub of: Option<usize>,
}

/// What of queries, and of keys, is normed together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum QkNorm {
    /// Each head; one weight for each of its elements.
    Heads,
    /// Each head, without weights.
    Plain,
    /// All heads of a row; one weight for each element of each.
    All,
}

/// A query at position `p` is multiplied by `1 + rate · ln(1 + floor((p + ahead) / every))`, so that attention stays as
/// sharp among many positions as among few.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct QueryGrowth {
    /// How fast.
    pub rate: f64,
    /// Positions over which a query stays as it is.
    pub every: f64,
    /// Positions by which the first query is ahead.
    pub ahead: usize,
}

impl QueryGrowth {
    /// What a query at this position is multiplied by.
    pub fn at(&self, position: usize) -> f32 {
        (1.0 + self.rate * math::ln(1.0 + ((position + self.ahead) as f64 / self.every).floor())) as f32
    }
}

impl AttentionSpec {
    /// Attention to all positions before, with nothing that only some families have.
    pub(crate) fn plain([n_heads, n_kv_heads]: [usize; 2], head_dim: usize) -> Self {
        Self {
            n_heads,
            n_kv_heads,
            head_dim,
            window: None,
            scale: (head_dim as f32).sqrt().recip(),
            softcap: None,
            qk_norm: None,
            value_norm: false,
            keys_as_values: false,
            latent: None,
            kv_of: None,
            query_growth: None,
            qkv_bias: false,
            output_bias: false,
            sinks: false,
            head_gate: false,
            output_gate: false,
            beside_embedding: false,
            rope: None,
        }
    }

    /// Whether it has keys and values of its own.
    pub(crate) fn has_kv(&self) -> bool {
        self.kv_of.is_none()
    }

    /// Whether its norms of queries and keys have weights.
    pub(crate) fn has_norm_weights(&self) -> bool {
        matches!(self.qk_norm, Some(QkNorm::Heads | QkNorm::All))
    }

    /// What rows of queries have, and of what attention gives.
    pub(crate) fn query_width(&self) -> usize {
        self.n_heads.saturating_mul(self.head_dim)
    }

    /// What rows of keys have, and of values.
    pub(crate) fn kv_width(&self) -> usize {
        self.n_kv_heads.saturating_mul(self.head_dim)
    }

    /// What the query projection gives of a row.
    pub(crate) fn projected_width(&self) -> usize {
        let of_head = self.latent.map_or(self.head_dim, |latent| latent.plain.saturating_add(latent.rotated));
        let gated = if self.output_gate { 2 } else { 1 };
        self.n_heads.saturating_mul(of_head).saturating_mul(gated)
    }

    /// The first of a position's elements that choose positions, behind its key: where a block begins.
    pub(crate) fn index_at(&self) -> usize {
        self.head_dim.next_multiple_of(INDEX_AT)
    }

    /// Elements that are kept of a position and head: of its key, and of the key that chooses positions, where there is one.
    pub(crate) fn kept_dim(&self) -> usize {
        self.own_index().map_or(self.head_dim, |index| self.index_at().saturating_add(index.head_dim))
    }

    /// Elements of a head's values, as attention adds them up.
    pub(crate) fn value_dim(&self) -> usize {
        self.latent.map_or(self.head_dim, |latent| latent.rank)
    }

    /// What rows have that the output projection takes.
    pub(crate) fn output_width(&self) -> usize {
        self.n_heads.saturating_mul(self.latent.map_or(self.head_dim, |latent| latent.value))
    }

    /// What chooses the positions that rows see, where that is an attention of the layer's own.
    pub(crate) fn own_index(&self) -> Option<IndexSpec> {
        self.latent.and_then(|latent| latent.index).filter(|index| index.of.is_none())
    }

    /// An earlier layer that this one needs something of.
    pub(crate) fn source(&self) -> Option<usize> {
        self.kv_of.or(self.latent.and_then(|latent| latent.index).and_then(|index| index.of))
    }

    fn check_latent(&self, latent: LatentSpec) -> Result<()> {
        let a = self;
        if let Some(index) = latent.index {
            size("heads of the indexer", index.n_heads, 1 << 16)?;
            size("elements of the indexer's heads", index.head_dim, 1 << 16)?;
            size("positions that a row sees", index.most, MAX_SIZE)?;
            positive("epsilon of the indexer's norm", index.eps)?;
            let behind = index.head_dim < latent.rotated || latent.query_rank.is_none() || a.window.is_some();
            if behind {
                let message = format!(
                    "expected heads of {} elements or more, latent queries and no window, found {index:?}",
                    latent.rotated
                );
                return Err(invalid("indexer", message));
            }
        }
        size("latent vector", latent.rank, 1 << 16)?;
        size("elements of keys that are not rotated", latent.plain, 1 << 16)?;
        size("elements of keys that are rotated", latent.rotated, 1 << 16)?;
        size("elements of values", latent.value, 1 << 16)?;
        latent.query_rank.map_or(Ok(()), |rank| size("latent vector of queries", rank, 1 << 16))?;
        positive("epsilon of latent vectors' norm", latent.eps)?;
        let chooses = latent.index.is_some();
        let variants = [
            (a.n_kv_heads != 1, "several heads of them"),
            (a.head_dim != latent.rank + latent.rotated, "heads of another size"),
            (a.qk_norm.is_some() || a.value_norm, "norms of heads"),
            (a.keys_as_values, "keys as values"),
            (a.kv_of.is_some(), "those of another layer"),
            (a.query_growth.is_some(), "queries that grow"),
            (a.head_gate || a.output_gate, "gated heads"),
            (chooses && a.sinks, "sinks where positions are chosen"),
            (chooses && a.softcap.is_some(), "bounded scores where positions are chosen"),
        ];
        match variants.into_iter().find(|(found, _)| *found) {
            Some((_, found)) => {
                Err(invalid("latent vector", format!("expected latent vectors alone, found {found} beside")))
            }
            None => Ok(()),
        }
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
            size("sliding window", window.size(), MAX_SIZE)?;
        }
        positive("attention scale", a.scale)?;
        a.softcap.map_or(Ok(()), |cap| positive("attention soft-cap", cap))?;
        a.latent.map_or(Ok(()), |latent| self.check_latent(latent))?;
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
        let most = a.latent.map_or(a.head_dim, |latent| latent.rotated);
        let least = if a.query_growth.is_some() { a.head_dim } else { 2 };
        if !(least..=most).contains(&rope.dim) {
            return Err(invalid(
                "rotary dimension",
                format!("expected {least} to the head dimension {most}, found {}", rope.dim),
            ));
        }
        Ok(())
    }
}
