//! How does a row attend to its cache? Flash-style over a half-precision ring, without a score matrix.
//!
//! Positions are worked through in partitions of [`CacheSpec::GRANULE`], whose borders are absolute
//! positions. Each partition yields a maximum, a sum and a weighted value; these are merged in
//! order (Dao et al. 2022, Milakov & Gimelshein 2018). The arithmetic of a row therefore does not
//! depend on the chunk it came in, and decoding can compute partitions side by side.

use std::cell::RefCell;
use std::ops::Range;

use candle_core::quantized::GgmlType;
use half::f16;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use rayon::prelude::*;

use super::math::exp;
use crate::arch::AttentionSpec;
use crate::engine::KvType;
use crate::engine::backend::{Attend, CacheSpec};
use crate::error::{Error, ErrorKind, Result};

const PARTITION: usize = CacheSpec::GRANULE;
/// Query rows that share one conversion of keys and values.
const ROW_BLOCK: usize = 32;
/// Positions converted at a time.
const SUB: usize = 64;

/// Keys and values of one layer: `[kv head][slot][head dim]`, slot = position modulo capacity.
pub(crate) struct Cache {
    keys: Store,
    values: Store,
    spec: CacheSpec,
}

/// Zeroed memory that the system backs with pages as they are first written.
enum Store {
    F16(Vec<u16>),
    F32(Vec<f32>),
}

impl Store {
    fn new(spec: &CacheSpec) -> Result<Self> {
        let too_large = || {
            Error::new(
                ErrorKind::OutOfMemory,
                format!("cannot reserve a KV cache of {} positions", spec.positions),
            )
            .with_hint("use a smaller context")
        };
        let n = spec.elements().ok_or_else(too_large)?;
        // Ask first: the zeroing allocation below would end the process instead of failing.
        Vec::<u8>::new()
            .try_reserve_exact(n.checked_mul(spec.kv.bytes()).ok_or_else(too_large)?)
            .map_err(|e| too_large().with_source(e))?;
        Ok(match spec.kv {
            KvType::F16 => Store::F16(vec![0; n]),
            KvType::F32 => Store::F32(vec![0.0; n]),
        })
    }

    fn put(&mut self, at: usize, x: &[f32]) {
        match self {
            Store::F16(bits) => {
                bits[at..at + x.len()].reinterpret_cast_mut::<f16>().convert_from_f32_slice(x);
            }
            Store::F32(values) => values[at..at + x.len()].copy_from_slice(x),
        }
    }

    /// The elements as f32, through `room` where they are stored shorter.
    fn get<'a>(&'a self, range: Range<usize>, room: &'a mut [f32]) -> &'a [f32] {
        match self {
            Store::F16(bits) => {
                let room = &mut room[..range.len()];
                bits[range].reinterpret_cast::<f16>().convert_to_f32_slice(room);
                room
            }
            Store::F32(values) => &values[range],
        }
    }
}

impl Cache {
    pub(super) fn new(spec: &CacheSpec) -> Result<Self> {
        Ok(Self { keys: Store::new(spec)?, values: Store::new(spec)?, spec: *spec })
    }

    /// Stores consecutive rows `[rows, kv heads · head dim]` from position `start` on.
    fn append(&mut self, start: usize, k: &[f32], v: &[f32]) {
        let CacheSpec { n_kv_heads, head_dim, positions, .. } = self.spec;
        let width = n_kv_heads * head_dim;
        for (row, (k, v)) in k.chunks_exact(width).zip(v.chunks_exact(width)).enumerate() {
            let slot = (start + row) % positions;
            for (head, (k, v)) in k.chunks_exact(head_dim).zip(v.chunks_exact(head_dim)).enumerate() {
                let at = (head * positions + slot) * head_dim;
                self.keys.put(at, k);
                self.values.put(at, v);
            }
        }
    }

    /// Where the consecutive positions `range` of a head lie. They must be within one partition.
    fn at(&self, head: usize, range: &Range<usize>) -> Range<usize> {
        let slot = range.start % self.spec.positions;
        let from = (head * self.spec.positions + slot) * self.spec.head_dim;
        from..from + range.len() * self.spec.head_dim
    }
}

/// One task's working memory; each thread keeps its own. Tasks do not nest.
#[derive(Default)]
struct Room {
    converted: Vec<f32>,
    scores: Vec<f32>,
    values: Vec<f32>,
    parts: Vec<Softmax>,
    running: Vec<Softmax>,
}

thread_local! {
    static ROOM: RefCell<Room> = RefCell::default();
}

/// A partition's or a row's running result: largest score, sum of exponentials; the weighted
/// values lie elsewhere.
#[derive(Clone, Copy)]
struct Softmax {
    max: f32,
    sum: f32,
}

impl Softmax {
    const EMPTY: Softmax = Softmax { max: f32::NEG_INFINITY, sum: 0.0 };

    /// Adds a partition's result to the row's.
    fn merge(&mut self, values: &mut [f32], part: Softmax, part_values: &[f32]) {
        if part.max == f32::NEG_INFINITY {
            return;
        }
        let max = self.max.max(part.max);
        let (keep, add) = (exp(self.max - max), exp(part.max - max));
        for (v, p) in values.iter_mut().zip(part_values) {
            *v = *v * keep + p * add;
        }
        *self = Softmax { max, sum: self.sum * keep + part.sum * add };
    }

    /// Adds a logit without a value.
    fn sink(&mut self, values: &mut [f32], logit: f32) {
        let max = self.max.max(logit);
        let keep = exp(self.max - max);
        values.iter_mut().for_each(|v| *v *= keep);
        *self = Softmax { max, sum: self.sum * keep + exp(logit - max) };
    }

    /// Turns the row's sum of values into their mean.
    fn normalise(self, values: &mut [f32]) {
        for v in values {
            *v /= self.sum;
        }
    }
}

/// Consecutive query rows of one sequence, under way.
struct Job<'a> {
    spec: &'a AttentionSpec,
    sinks: Option<&'a [f32]>,
    cache: &'a Cache,
    /// `[rows, heads · head dim]`.
    q: &'a [f32],
    /// Position of the first row.
    start: usize,
    rows: usize,
}

impl Job<'_> {
    fn group(&self) -> usize {
        self.spec.n_heads / self.spec.n_kv_heads
    }

    /// Positions that a row sees.
    fn visible(&self, row: usize) -> Range<usize> {
        let position = self.start + row;
        let from = self.spec.window.map_or(0, |window| (position + 1).saturating_sub(window));
        from..position + 1
    }

    /// Positions of a partition that a row sees.
    fn seen(&self, row: usize, partition: usize) -> Range<usize> {
        let visible = self.visible(row);
        let (first, end) = (partition * PARTITION, (partition + 1) * PARTITION);
        // Also a window that begins behind the partition must not reach beyond it.
        let from = visible.start.clamp(first, end);
        from..visible.end.clamp(from, end)
    }

    /// Partitions that any row sees something of.
    fn partitions(&self) -> Range<usize> {
        self.visible(0).start / PARTITION..(self.start + self.rows).div_ceil(PARTITION)
    }

    /// The query of a row and head.
    fn query(&self, row: usize, head: usize) -> &[f32] {
        let dim = self.spec.head_dim;
        &self.q[(row * self.spec.n_heads + head) * dim..][..dim]
    }

    /// One key/value head and partition. Results of row and head lie at `row · group + head`; a
    /// row that sees nothing of the partition gets [`Softmax::EMPTY`] and zeros.
    fn partition(
        &self,
        kv_head: usize,
        partition: usize,
        (converted, scores): (&mut Vec<f32>, &mut Vec<f32>),
        parts: &mut [Softmax],
        values: &mut [f32],
    ) {
        let (dim, group) = (self.spec.head_dim, self.group());
        let first = partition * PARTITION;
        grow(converted, SUB * dim);
        grow(scores, self.rows * group * PARTITION);
        let all = self.seen(0, partition).start..self.seen(self.rows - 1, partition).end;
        let subs = || all.clone().step_by(SUB).map(|from| from..(from + SUB).min(all.end));

        for sub in subs() {
            let keys = self.cache.keys.get(self.cache.at(kv_head, &sub), converted);
            for row in 0..self.rows {
                let seen = self.seen(row, partition);
                for position in sub.start.max(seen.start)..sub.end.min(seen.end) {
                    let key = &keys[(position - sub.start) * dim..][..dim];
                    for head in 0..group {
                        let query = self.query(row, kv_head * group + head);
                        let mut score = f32::vec_dot(dim, key, query) * self.spec.scale;
                        if let Some(cap) = self.spec.softcap {
                            score = cap * (score / cap).tanh();
                        }
                        scores[(row * group + head) * PARTITION + position - first] = score;
                    }
                }
            }
        }
        for (at, part) in parts.iter_mut().enumerate() {
            let seen = self.seen(at / group, partition);
            *part = Softmax::EMPTY;
            if seen.is_empty() {
                continue;
            }
            let scores = &mut scores[at * PARTITION + seen.start - first..][..seen.len()];
            let max = scores.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b));
            for score in scores.iter_mut() {
                *score = exp(*score - max);
            }
            *part = Softmax { max, sum: scores.iter().sum() };
        }
        values.fill(0.0);
        for sub in subs() {
            let stored = self.cache.values.get(self.cache.at(kv_head, &sub), converted);
            for (at, values) in values.chunks_exact_mut(dim).enumerate() {
                let seen = self.seen(at / group, partition);
                for position in sub.start.max(seen.start)..sub.end.min(seen.end) {
                    let weight = scores[at * PARTITION + position - first];
                    let value = &stored[(position - sub.start) * dim..][..dim];
                    for (sum, v) in values.iter_mut().zip(value) {
                        *sum += weight * v;
                    }
                }
            }
        }
    }

    /// All heads, partition after partition.
    fn run(&self, out: &mut [f32]) {
        let (dim, group) = (self.spec.head_dim, self.group());
        ROOM.with_borrow_mut(|room| {
            let Room { converted, scores, values, parts, running } = room;
            let results = self.rows * group;
            grow(values, results * dim);
            parts.resize(results.max(parts.len()), Softmax::EMPTY);
            running.resize(results.max(running.len()), Softmax::EMPTY);
            let (values, parts, running) =
                (&mut values[..results * dim], &mut parts[..results], &mut running[..results]);
            out.fill(0.0);
            for kv_head in 0..self.spec.n_kv_heads {
                let place = |at: usize| (at / group * self.spec.n_heads + kv_head * group + at % group) * dim;
                running.fill(Softmax::EMPTY);
                for partition in self.partitions() {
                    self.partition(kv_head, partition, (converted, scores), parts, values);
                    for (at, ((row, part), values)) in
                        running.iter_mut().zip(&*parts).zip(values.chunks_exact(dim)).enumerate()
                    {
                        row.merge(&mut out[place(at)..][..dim], *part, values);
                    }
                }
                for (at, row) in running.iter_mut().enumerate() {
                    let values = &mut out[place(at)..][..dim];
                    if let Some(sinks) = self.sinks {
                        row.sink(values, sinks[kv_head * group + at % group]);
                    }
                    row.normalise(values);
                }
            }
        });
    }

    /// One row, its partitions side by side.
    fn run_row(&self, partials: &mut Partials, out: &mut [f32]) {
        let (dim, group) = (self.spec.head_dim, self.group());
        let partitions = self.partitions();
        let tasks = self.spec.n_kv_heads * partitions.len();
        grow(&mut partials.values, tasks * group * dim);
        partials.parts.resize(partials.parts.len().max(tasks * group), Softmax::EMPTY);
        let values = &mut partials.values[..tasks * group * dim];
        let parts = &mut partials.parts[..tasks * group];
        values.par_chunks_exact_mut(group * dim).zip(parts.par_chunks_exact_mut(group)).enumerate().for_each(
            |(task, (values, parts))| {
                let (kv_head, partition) =
                    (task / partitions.len(), partitions.start + task % partitions.len());
                ROOM.with_borrow_mut(|room| {
                    self.partition(
                        kv_head,
                        partition,
                        (&mut room.converted, &mut room.scores),
                        parts,
                        values,
                    );
                });
            },
        );
        out.fill(0.0);
        for (head, out) in out.chunks_exact_mut(dim).enumerate() {
            let mut row = Softmax::EMPTY;
            for partition in 0..partitions.len() {
                let at = (head / group * partitions.len() + partition) * group + head % group;
                row.merge(out, parts[at], &values[at * dim..][..dim]);
            }
            if let Some(sinks) = self.sinks {
                row.sink(out, sinks[head]);
            }
            row.normalise(out);
        }
    }
}

fn grow(room: &mut Vec<f32>, len: usize) {
    if room.len() < len {
        room.resize(len, 0.0);
    }
}

/// Results of one row's partitions, before they are merged.
#[derive(Default)]
pub(super) struct Partials {
    values: Vec<f32>,
    parts: Vec<Softmax>,
}

/// Appends the segment's keys and values, then attends to everything its rows see.
pub(super) fn attend(
    partials: &mut Partials,
    threads: usize,
    op: &Attend<'_, super::Cpu>,
    [q, k, v]: [&[f32]; 3],
    cache: &mut Cache,
    out: &mut [f32],
) {
    let (spec, sinks) = (op.attention, op.sinks.map(Vec::as_slice));
    let (q_width, kv_width) = (spec.n_heads * spec.head_dim, spec.n_kv_heads * spec.head_dim);
    let of = |x: Range<usize>, width: usize| x.start * width..x.end * width;
    cache.append(op.start, &k[of(op.rows.clone(), kv_width)], &v[of(op.rows.clone(), kv_width)]);
    let (q, out) = (&q[of(op.rows.clone(), q_width)], &mut out[of(op.rows.clone(), q_width)]);
    let cache = &*cache;
    if op.rows.len() == 1 {
        let job = Job { spec, sinks, cache, q, start: op.start, rows: 1 };
        if threads > 1 && spec.n_kv_heads * job.partitions().len() > 1 {
            job.run_row(partials, out);
        } else {
            job.run(out);
        }
        return;
    }
    let block = ROW_BLOCK * q_width;
    let each = |i: usize, q: &[f32], out: &mut [f32]| {
        Job { spec, sinks, cache, q, start: op.start + i * ROW_BLOCK, rows: out.len() / q_width }.run(out);
    };
    if threads > 1 {
        q.par_chunks(block)
            .zip(out.par_chunks_mut(block))
            .enumerate()
            .for_each(|(i, (q, out))| each(i, q, out));
    } else {
        q.chunks(block).zip(out.chunks_mut(block)).enumerate().for_each(|(i, (q, out))| each(i, q, out));
    }
}
