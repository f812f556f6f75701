//! How long does a token take? Bytes over bandwidth, hops between stages, fan-out to experts.
//!
//! Decoding one conversation reads every weight that a token takes once, so a device needs
//! `bytes / rate` seconds, and devices wait for each other: times add up along the layers. The model knows
//! four terms:
//!
//! - attention: weights of attention, embedding row aside, the head, and keys and values of half the context;
//! - feed-forward: blocks and the experts that a token takes. Experts of a layer on several devices are read
//!   at the same time: with `k` of `n` taken, a device with `c` of them is expected to read `⌈k·c/n⌉`;
//! - hops: a round trip, and one row there and back, for each stage that is not on the coordinator; from one
//!   device of a node to another 20 µs;
//! - fan-out: the same for each layer whose feed-forward block is elsewhere, the slowest owner counting, and
//!   30 µs for each further owner.
//!
//! It does not know arithmetic, which rarely limits decoding a single conversation, nor prompts.

use std::ops::Range;

use super::seats::Seat;
use crate::plan::inventory::{Inventory, LayerBytes};
use crate::plan::links::Links;
use crate::plan::report::Estimate;

/// Seconds from one device of a node to another and back.
const DEVICE_HOP: f64 = 2.0e-5;
/// Seconds that each further owner of a layer's experts takes the sender.
const FURTHER_OWNER: f64 = 3.0e-5;

/// What the times of a placement follow from.
pub(super) struct Costs<'a> {
    pub(super) inventory: &'a Inventory,
    pub(super) links: &'a Links,
    /// Tokens of the context.
    pub(super) context: u64,
    /// Bytes of one row between layers.
    pub(super) row: f64,
}

/// Experts of one layer on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) seat: usize,
    pub(super) layer: usize,
    /// A dense block is expert 0.
    pub(super) experts: Range<usize>,
}

impl Owner {
    /// Bytes of these experts, or of this dense block.
    pub(super) fn weights(&self, layer: &LayerBytes) -> u64 {
        layer.blocks().1.saturating_mul(self.experts.len() as u64)
    }
}

impl Costs<'_> {
    /// Seconds for a row there and back; `None` when they do not reach each other.
    pub(super) fn trip(&self, from: &Seat, to: &Seat) -> Option<f64> {
        if from == to {
            return Some(0.0);
        }
        if from.node == to.node {
            return Some(DEVICE_HOP);
        }
        let speed = self.links.speed(from.node, to.node)?;
        Some(speed.round_trip_seconds + 2.0 * self.row / speed.bytes_per_second)
    }

    /// Seconds that a device reads a layer's attention.
    pub(super) fn attention(&self, seat: &Seat, layer: &LayerBytes) -> f64 {
        layer.attention.saturating_add(layer.kv(self.context / 2)) as f64 / seat.rate
    }

    /// Seconds that a device reads for a token of so many of a layer's experts, or of its dense block.
    pub(super) fn experts(&self, seat: &Seat, layer: &LayerBytes, experts: usize) -> f64 {
        taken(layer, experts) as f64 / seat.rate
    }

    /// Seconds of what every token reads of a layer's feed-forward block beside routed experts.
    pub(super) fn shared(&self, seat: &Seat, layer: &LayerBytes) -> f64 {
        layer.shared() as f64 / seat.rate
    }

    /// Seconds of the head.
    pub(super) fn head(&self, seat: &Seat) -> f64 {
        let table = if self.inventory.tied_embeddings { self.inventory.embedding } else { 0 };
        self.inventory.head.saturating_add(table) as f64 / seat.rate
    }

    /// What a token takes with stages, in order, and experts' owners sorted by layer; layers without owners
    /// have their blocks where their attention is. `None` when nodes that must talk do not reach each other.
    pub(super) fn estimate(
        &self,
        seats: &[Seat],
        stages: &[(usize, Range<usize>)],
        owners: &[Owner],
    ) -> Option<Estimate> {
        let mut estimate = Estimate::default();
        let first = &seats[stages.first()?.0];
        let mut owners = owners;
        for (seat, layers) in stages {
            let seat = &seats[*seat];
            estimate.hop_seconds += self.trip(first, seat)?;
            for (at, layer) in self.inventory.layers[layers.clone()].iter().enumerate() {
                let at = layers.start + at;
                estimate.attention_seconds += self.attention(seat, layer);
                estimate.feed_forward_seconds += self.shared(seat, layer);
                let (these, rest) = owners.split_at(owners.partition_point(|owner| owner.layer <= at));
                owners = rest;
                if these.is_empty() {
                    estimate.feed_forward_seconds += self.experts(seat, layer, layer.n_experts);
                    continue;
                }
                // The slowest owner counts: its reading, and its trip.
                let (mut slowest, mut reading) = (0.0, 0.0);
                let mut away = 0usize;
                for owner in these {
                    let to = &seats[owner.seat];
                    let (trip, read) = (self.trip(seat, to)?, self.experts(to, layer, owner.experts.len()));
                    away += usize::from(to.node != seat.node);
                    if trip + read >= slowest {
                        (slowest, reading) = (trip + read, read);
                    }
                }
                estimate.feed_forward_seconds += reading;
                estimate.fan_out_seconds += slowest - reading + FURTHER_OWNER * away.saturating_sub(1) as f64;
            }
        }
        estimate.attention_seconds += self.head(&seats[stages.last()?.0]);
        estimate.tokens_per_second = 1.0 / estimate.seconds().max(1e-9);
        Some(estimate)
    }
}

/// Bytes that a token is expected to read of so many of a layer's experts, or of its dense block.
pub(super) fn taken(layer: &LayerBytes, experts: usize) -> u64 {
    match layer.n_experts {
        0 => layer.ffn,
        n => {
            let taken = (layer.n_used as u64).saturating_mul(experts as u64).div_ceil(n as u64);
            taken.min(experts as u64).saturating_mul(layer.expert)
        }
    }
}
