//! How long does a token take, and how long a prompt? Bytes over bandwidth, arithmetic, hops between stages, fan-out
//! to experts.
//!
//! What passes through the layers together reads every weight that it takes once, and multiplies each with every row.
//! An accelerator needs the longer of both, `bytes / rate` and `operations / arithmetic`, and so does a processor for the
//! first row, of keys and values for the first one of each sequence; each further one adds its arithmetic there. Each
//! layer takes some time whatever its size. Devices wait for each other: times add up along the layers. A token of each
//! session knows four terms:
//!
//! - attention: weights of attention, embedding row aside, the head, and keys and values of half the context;
//! - feed-forward: blocks and the experts that are taken. Experts of a layer on several devices are read at the same
//!   time, and the slowest is waited for (`drawn.rs`);
//! - hops: a round trip, and the rows there and back, for each stage that is not on the coordinator; from one
//!   device of a node to another the slower one's round trip;
//! - fan-out: the same for each layer whose feed-forward block is elsewhere, and 30 µs for each further owner that is
//!   asked.
//!
//! Of blocks and experts that stay on disk, a device waits for the share that is not in memory. It takes it over from the
//! system's cache and computes it, half of which goes on meanwhile, or half of the waiting where that is shorter (`disk.rs`).
//!
//! A prompt goes through the layers in chunks of [`CHUNK`] rows, each like a token, with its arithmetic, and with the
//! rows that each owner of experts is sent.

use std::ops::Range;

use super::disk::CACHE;
use super::drafts::Drafts;
use super::drawn::{Drawn, Share, chance_of_none, distinct};
use super::seats::Seat;
use crate::plan::inventory::{Inventory, LayerBytes};
use crate::plan::links::Links;
use crate::plan::report::{Estimate, PromptEstimate};

/// Rows of a prompt that pass through the layers together.
const CHUNK: u64 = crate::arch::CHUNK as u64;
/// Chunks that are looked at one by one; of longer prompts evenly spaced ones stand for all.
const CHUNKS: u64 = 16;
/// How many operations of products a processor does in the time of one of attention in a prompt, which is of 32-bit floats there:
/// a vector holds a quarter of the numbers.
const FLOATS: f64 = 4.0;
/// How many operations of products a processor does in the time that it takes for what lies between products, for an element of a
/// row in a layer: norms, rotation, rounding, activations. As measured on a processor with AVX-512.
pub(crate) const BETWEEN: f64 = 3000.0;
/// How much of the shorter of reading blocks from disk and computing them does not go on while the longer does.
const APART: f64 = 0.5;
/// What an expert takes whatever its size, of what a layer does.
const EXPERT: f64 = 1.0 / 8.0;
/// Seconds that each further owner of a layer's experts takes the sender.
const FURTHER_OWNER: f64 = 3.0e-5;

/// What the times of a placement follow from.
pub(super) struct Costs<'a> {
    pub(super) inventory: &'a Inventory,
    pub(super) links: &'a Links,
    pub(super) drawn: &'a Drawn,
    pub(super) drafts: Option<&'a Drafts>,
    /// Tokens of the context.
    pub(super) context: u64,
    /// Sessions that generate at once.
    pub(super) sessions: f64,
    /// Bytes of one row between layers.
    pub(super) row: f64,
    /// Elements of a row.
    pub(super) width: f64,
    /// Weights in a byte.
    pub(super) weights_per_byte: f64,
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

/// Whether layers have the same owners of the same experts.
fn are_alike(a: &[Owner], b: &[Owner]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.seat == b.seat && a.experts == b.experts)
}

/// Rows that pass through the layers together.
#[derive(Debug, Clone, Copy)]
struct Pass {
    rows: f64,
    /// Sequences that they belong to.
    sequences: f64,
    /// Positions that each looks back at.
    positions: u64,
}

/// Seconds that an expert takes whatever its size: a processor begins each with memory that nobody asked for yet.
fn begun(seat: &Seat) -> f64 {
    if seat.reads_ahead { 0.0 } else { EXPERT * seat.layer_seconds }
}

/// Seconds of feed-forward weights that a device reads and computes, with what it waits for those that are missing.
fn with_missing(seat: &Seat, bytes: f64, computing: f64) -> f64 {
    seat.missing.map_or(computing, |missing| {
        let bytes = bytes * missing.share;
        let (working, waiting) = (computing + bytes / CACHE, bytes / missing.rate);
        // Each layer's are known when it begins: what is read first is waited for, what is read last is computed behind it.
        working.max(waiting) + working.min(waiting) * APART
    })
}

impl Costs<'_> {
    /// Bytes of weights that a token reads.
    pub(super) fn read_by_a_token(&self) -> f64 {
        self.inventory.read_by_a_token() as f64
    }

    /// A token of each session, in the middle of its context.
    fn token(&self) -> Pass {
        Pass { rows: self.sessions, sequences: self.sessions, positions: self.context / 2 }
    }

    /// Seconds for rows there and back; `None` when they do not reach each other.
    pub(super) fn trip(&self, from: &Seat, to: &Seat, rows: f64) -> Option<f64> {
        if from == to {
            return Some(0.0);
        }
        if from.node == to.node {
            return Some(from.round_trip.max(to.round_trip));
        }
        self.links.seconds(from.node, to.node, 2.0 * rows * self.row)
    }

    /// Seconds for weights that so many rows take.
    fn product(&self, seat: &Seat, bytes: f64, rows: f64) -> f64 {
        self.products(seat, bytes, bytes * rows)
    }

    /// Seconds for weights that are read once, and taken for each of some rows: in all as if so many bytes of them.
    fn products(&self, seat: &Seat, read: f64, taken: f64) -> f64 {
        let arithmetic = |bytes: f64| 2.0 * bytes * self.weights_per_byte / seat.operations;
        let first = if seat.reads_ahead { taken } else { read.min(taken) };
        (read / seat.rate).max(arithmetic(first)) + arithmetic(taken - first)
    }

    fn layer_attention(&self, seat: &Seat, layer: &LayerBytes, pass: Pass) -> f64 {
        let kept = layer.kv(pass.positions) as f64 * pass.sequences;
        // Scores and values: a product and a sum for each element of a row's queries and results, at each position.
        let seen = layer.window.map_or(pass.positions, |window| window.min(pass.positions));
        let attended = match layer.attended {
            // Layers with states attend to no positions.
            0 if layer.kv_per_token == 0 => 0.0,
            0 => 2.0 * self.width,
            known => known as f64,
        };
        let (floats, between) = if seat.reads_ahead { (1.0, 0.0) } else { (FLOATS, BETWEEN) };
        let scores = |rows: f64| 2.0 * rows * seen as f64 * attended / seat.operations;
        let first = if seat.reads_ahead { pass.rows } else { pass.sequences };
        let attending = (kept / seat.rate).max(scores(first)) + floats * scores(pass.rows - first);
        let weights = self.product(seat, layer.attention as f64, pass.rows);
        let between = (pass.rows - 1.0).max(0.0) * self.width * between / seat.operations;
        weights + attending + between + seat.layer_seconds
    }

    /// Seconds that a device reads a layer's attention for a token.
    pub(super) fn attention(&self, seat: &Seat, layer: &LayerBytes) -> f64 {
        self.layer_attention(seat, layer, self.token())
    }

    /// Seconds of so many of a layer's experts that all rows' choices are spread over, or of its dense block.
    fn block(&self, seat: &Seat, layer: &LayerBytes, experts: usize, rows: f64) -> f64 {
        if layer.n_experts == 0 {
            let bytes = layer.ffn as f64;
            return with_missing(seat, bytes, self.product(seat, bytes, rows));
        }
        let share = experts as f64 / layer.n_experts as f64;
        let taken = distinct(layer.n_experts, layer.n_used, rows) * share;
        let read = taken * layer.expert as f64;
        let used = rows * layer.n_used as f64 * share * layer.expert as f64;
        with_missing(seat, read, self.products(seat, read, used)) + seat.layer_seconds + taken * begun(seat)
    }

    /// Seconds that a device is expected to read for a token of so many of a layer's experts, or of its dense block.
    pub(super) fn experts(&self, seat: &Seat, layer: &LayerBytes, experts: usize) -> f64 {
        self.block(seat, layer, experts, self.sessions)
    }

    /// Seconds of what every token reads of a layer's feed-forward block beside routed experts.
    pub(super) fn shared(&self, seat: &Seat, layer: &LayerBytes) -> f64 {
        self.product(seat, layer.shared() as f64, self.sessions)
    }

    /// Seconds of the head for a token.
    pub(super) fn head(&self, seat: &Seat) -> f64 {
        self.product(seat, self.inventory.output_head() as f64, self.sessions)
    }

    /// Seconds of a draft of each session.
    fn draft(&self, seat: &Seat) -> f64 {
        let Some(drafts) = self.drafts else { return 0.0 };
        let layers = drafts.inventory.layers.iter().map(|layer| {
            let block = self.experts(seat, layer, layer.n_experts);
            self.attention(seat, layer) + self.shared(seat, layer) + block
        });
        layers.sum::<f64>()
            + self.product(seat, drafts.output_head(self.inventory, seat) as f64, self.sessions)
    }

    /// What a token of each session takes with stages, in order, and experts' owners sorted by layer; layers without
    /// owners have their blocks where their attention is. `None` when nodes that must talk do not reach each other.
    pub(super) fn estimate(
        &self,
        seats: &[Seat],
        stages: &[(usize, Range<usize>)],
        owners: &[Owner],
    ) -> Option<Estimate> {
        let mut estimate = self.pass(seats, stages, owners, self.token())?;
        let last = &seats[stages.last()?.0];
        estimate.attention_seconds += self.head(last);
        estimate.draft_seconds = self.draft(last);
        estimate.tokens_per_second = self.sessions / estimate.seconds().max(1e-9);
        Some(estimate)
    }

    /// How long a prompt of so many tokens takes with the same, until its first token is known.
    pub(super) fn prompt(
        &self,
        seats: &[Seat],
        stages: &[(usize, Range<usize>)],
        owners: &[Owner],
        tokens: u64,
    ) -> Option<PromptEstimate> {
        let chunks = tokens.div_ceil(CHUNK);
        let looked_at = chunks.min(CHUNKS);
        let (mut seconds, mut link_seconds) = (0.0, 0.0);
        for at in 0..looked_at {
            // Of each run of chunks the one in its middle; the last chunk may be shorter.
            let position = tokens / looked_at * at + tokens / looked_at / 2;
            let rows = tokens as f64 / chunks as f64;
            let pass = Pass { rows, sequences: 1.0, positions: position };
            let estimate = self.pass(seats, stages, owners, pass)?;
            let times = chunks as f64 / looked_at as f64;
            seconds += estimate.seconds() * times;
            link_seconds += (estimate.hop_seconds + estimate.fan_out_seconds) * times;
        }
        let seconds = seconds + self.head(&seats[stages.last()?.0]);
        Some(PromptEstimate { tokens, seconds, link_seconds })
    }

    /// What rows take that pass through all layers together.
    fn pass(
        &self,
        seats: &[Seat],
        stages: &[(usize, Range<usize>)],
        owners: &[Owner],
        pass: Pass,
    ) -> Option<Estimate> {
        let mut estimate = Estimate::default();
        let first = &seats[stages.first()?.0];
        let mut owners = owners;
        for (seat, layers) in stages {
            let seat = &seats[*seat];
            estimate.hop_seconds += self.trip(first, seat, pass.rows)?;
            // Layers are mostly like the one before, and so are their owners.
            let mut before: Option<(&LayerBytes, &[Owner], f64, [f64; 2])> = None;
            for (at, layer) in self.inventory.layers[layers.clone()].iter().enumerate() {
                let at = layers.start + at;
                let (these, rest) = owners.split_at(owners.partition_point(|owner| owner.layer <= at));
                owners = rest;
                let known = before.filter(|(known, owners, ..)| *known == layer && are_alike(owners, these));
                let (attention, [reading, waiting]) = match known {
                    Some((_, _, attention, block)) => (attention, block),
                    None => {
                        let block = match these {
                            [] => [self.block(seat, layer, layer.n_experts, pass.rows), 0.0],
                            these => self.owners(seats, seat, layer, these, pass.rows)?,
                        };
                        let shared = self.product(seat, layer.shared() as f64, pass.rows);
                        (self.layer_attention(seat, layer, pass), [shared + block[0], block[1]])
                    }
                };
                before = Some((layer, these, attention, [reading, waiting]));
                estimate.attention_seconds += attention;
                estimate.feed_forward_seconds += reading;
                estimate.fan_out_seconds += waiting;
            }
        }
        Some(estimate)
    }

    /// What a token of each session takes for a layer with its attention on a device, and its block there or with owners.
    pub(super) fn layer(&self, seats: &[Seat], home: usize, at: usize, owners: &[Owner]) -> Option<f64> {
        let (seat, layer) = (&seats[home], &self.inventory.layers[at]);
        let block = match owners {
            [] => self.experts(seat, layer, layer.n_experts),
            owners => self.owners(seats, seat, layer, owners, self.sessions)?.iter().sum(),
        };
        Some(self.attention(seat, layer) + self.shared(seat, layer) + block)
    }

    /// Seconds that the slowest owner of a layer is expected to compute, and beyond that seconds until all that are
    /// asked have answered.
    fn owners(
        &self,
        seats: &[Seat],
        seat: &Seat,
        layer: &LayerBytes,
        owners: &[Owner],
        rows: f64,
    ) -> Option<[f64; 2]> {
        let n = layer.n_experts;
        if n == 0 {
            let to = &seats[owners.first()?.seat];
            return Some([self.block(to, layer, 1, rows), self.trip(seat, to, rows)?]);
        }
        let taken = (distinct(n, layer.n_used, rows).round() as usize).max(layer.n_used);
        let rows_each = rows * layer.n_used as f64 / taken.max(1) as f64;
        // Several ranges of a device are one share; in order of the first.
        let own = owners.iter().enumerate().map(|(at, owner)| (owner.seat, at, owner.experts.len()));
        let mut own: Vec<(usize, usize, usize)> = own.collect();
        own.sort_unstable();
        own.dedup_by(|next, first| {
            let same = next.0 == first.0;
            first.2 += if same { next.2 } else { 0 };
            same
        });
        own.sort_unstable_by_key(|&(_, at, _)| at);
        let mut shares = Vec::with_capacity(own.len());
        let mut asked_away = 0.0;
        for &(owner, _, experts) in &own {
            let (to, bytes) = (&seats[owner], layer.expert as f64);
            let each = with_missing(to, bytes, self.product(to, bytes, rows_each)) + begun(to);
            let asked = rows * (1.0 - chance_of_none(n, layer.n_used, experts));
            let trip = self.trip(seat, to, asked.max(1.0))?;
            shares.push(Share { experts, wait: to.layer_seconds + trip, each });
            if to.node != seat.node {
                asked_away += 1.0 - chance_of_none(n, taken, experts);
            }
        }
        let all = self.drawn.slowest(n, taken, &shares);
        for (share, (owner, ..)) in shares.iter_mut().zip(own) {
            share.wait = seats[owner].layer_seconds;
        }
        let reading = self.drawn.slowest(n, taken, &shares);
        Some([reading, all - reading + FURTHER_OWNER * f64::max(asked_away - 1.0, 0.0)])
    }
}
