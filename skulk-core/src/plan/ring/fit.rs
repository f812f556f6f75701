//! Does a ring have the memory for a model? Each node by itself, not all together: Skulk 1.3's rule.

use super::facts::Facts;
use crate::card::ModelCard;
use crate::plan::memory::{
    GIB, OVERHEAD_FLOOR, RAM_SHARE, RAM_SHARE_RELAXED, divide, kv_bytes, overhead, scale,
};
use crate::plan::request::{Request, Sharding};
use crate::plan::strictness::Strictness;

/// What the rule asks of each node: its share of the weights · overhead + keys and values in proportion +
/// [`OVERHEAD_FLOOR`]. Of a pipeline, nodes share by what they may use; of tensors, evenly.
#[derive(Clone, Copy)]
pub(super) struct Fit {
    weights: u64,
    overhead: f64,
    kv_ratio: f64,
    tokens: u64,
    sharding: Sharding,
    strictness: Strictness,
}

/// What a node is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Need {
    pub(super) weights: u64,
    pub(super) kv: u64,
    pub(super) total: u64,
}

impl Fit {
    pub(super) fn new(card: &ModelCard, request: &Request) -> Self {
        let weights = card.storage_size.in_bytes;
        let kv = kv_bytes(card, request.context_tokens);
        Self {
            weights,
            overhead: overhead(card, request.strictness),
            kv_ratio: if weights == 0 { 0.0 } else { kv as f64 / weights as f64 },
            tokens: request.context_tokens,
            sharding: request.sharding,
            strictness: request.strictness,
        }
    }

    fn share(&self, usable: u64, all: u64, n: usize) -> u64 {
        match self.sharding {
            Sharding::Tensor => divide(self.weights, n as f64),
            // Nobody may use anything: the whole model is too much for each.
            Sharding::Pipeline if all == 0 => self.weights,
            Sharding::Pipeline => scale(self.weights, usable as f64 / all as f64),
        }
    }

    /// What each of a ring's nodes is asked for, by what they may use.
    pub(super) fn needs<'a>(&'a self, usable: &'a [u64]) -> impl Iterator<Item = Need> + use<'a> {
        let all = usable.iter().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
        usable.iter().map(move |&bytes| {
            let weights = self.share(bytes, all, usable.len());
            let kv = scale(weights, self.kv_ratio);
            let total = scale(weights, self.overhead).saturating_add(kv).saturating_add(OVERHEAD_FLOOR);
            Need { weights, kv, total }
        })
    }

    /// Whether each may use what it is asked for.
    pub(super) fn fits(&self, usable: &[u64]) -> bool {
        self.strictness == Strictness::Force
            || self.needs(usable).zip(usable).all(|(need, &usable)| need.total <= usable)
    }

    /// Why a ring does not fit, in words and numbers.
    pub(super) fn reason(&self, names: &[&str], facts: &[&Facts]) -> String {
        let usable: Vec<u64> = facts.iter().map(|facts| facts.bytes()).collect();
        let gib = |bytes: u64| format!("{:.1}GiB", bytes as f64 / GIB);
        let over = self
            .needs(&usable)
            .zip(names.iter().zip(facts))
            .filter(|(need, (_, facts))| need.total > facts.bytes());
        let each = over.map(|(need, (name, facts))| {
            let pool = match facts.usable {
                Some(usable) if usable.vram => "usable GPU VRAM".to_owned(),
                _ if self.strictness == Strictness::Relaxed => {
                    format!("{:.0}% of RAM", RAM_SHARE_RELAXED * 100.0)
                }
                _ => format!("min of available and {:.0}% of RAM", RAM_SHARE * 100.0),
            };
            format!(
                "node {name} needs ~{} ({} weights + {} KV@{}tok + runtime headroom) but can use {} ({pool})",
                gib(need.total),
                gib(need.weights),
                gib(need.kv),
                self.tokens,
                gib(facts.bytes()),
            )
        });
        let each: Vec<String> = each.collect();
        format!("cycle [{}] ({} sharding): {}", names.join(", "), self.sharding, each.join("; "))
    }

    /// Bytes that are missing, over all nodes.
    pub(super) fn missing(&self, usable: &[u64]) -> u64 {
        let missing = self.needs(usable).zip(usable).map(|(need, &usable)| need.total.saturating_sub(usable));
        missing.fold(0, u64::saturating_add)
    }

    /// The fewest bytes that, added to what one node may use, make the ring fit. `None`: no number does.
    pub(super) fn more_on(&self, usable: &[u64], node: usize) -> Option<u64> {
        let fits = |more: u64| {
            let mut usable = usable.to_vec();
            usable[node] = usable[node].saturating_add(more);
            self.fits(&usable)
        };
        // More than any model has, and far from where numbers end.
        let (mut low, mut high) = (0, 1u64 << 50);
        if !fits(high) {
            return None;
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if fits(middle) { high = middle } else { low = middle + 1 }
        }
        Some(low)
    }
}
