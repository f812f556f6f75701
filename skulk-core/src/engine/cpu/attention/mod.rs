//! How does a row attend to its cache? Flash-style over a ring, without a score matrix.
//!
//! Positions are worked through in partitions of [`PARTITION`], whose borders are absolute
//! positions. Each partition yields a maximum, a sum and a weighted value; these are merged in
//! order (Dao et al. 2022, Milakov & Gimelshein 2018). The arithmetic of a row therefore does not
//! depend on the chunk it came in or on threads. Many rows are cut into blocks that go through
//! their partitions one after another; a few rows' partitions are computed side by side.

mod cache;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) use cache::Cache;

use super::Cpu;
use super::kernels::{Cell, Cells, Kernels, PARTITION, Partition, PartitionScratch, Softmax};
use super::pool::Pool;
use crate::arch::AttentionSpec;
use crate::engine::backend::Attend;

/// Pairs of a row and a head that a block has at most, unless one row has more.
const MOST_PAIRS: usize = 96;
/// Fewer pairs than this make poor use of what is converted for them.
const FEWEST_PAIRS: usize = 24;
/// Up to this many pairs, partitions are computed side by side.
const FEW_PAIRS: usize = 8;
/// Elements of keys and values that are worth a task of their own.
const TASK: usize = 1 << 15;

/// Working memory, which grows with its first uses.
#[derive(Default)]
pub(super) struct Scratch {
    /// Each thread's, locked once for several tasks.
    workers: Vec<Mutex<Worker>>,
    partials: Vec<f32>,
    taken: [Vec<AtomicBool>; 2],
}

#[derive(Default)]
struct Worker {
    partition: PartitionScratch,
    running: Vec<Softmax>,
}

impl Scratch {
    /// Makes room for tasks of so many pairs on every thread, as any may take the first.
    fn prepare(&mut self, threads: usize, pairs: usize, head_dim: usize) {
        if self.workers.len() < threads {
            self.workers.resize_with(threads, Mutex::default);
        }
        for worker in &mut self.workers {
            let Worker { partition, running } = worker.get_mut().unwrap_or_else(PoisonError::into_inner);
            partition.reserve(pairs, head_dim);
            running.clear();
            running.reserve(pairs);
        }
    }
}

fn lock(workers: &[Mutex<Worker>], worker: usize) -> MutexGuard<'_, Worker> {
    // Whatever a task left behind when it panicked, the next one begins anew.
    workers[worker].lock().unwrap_or_else(PoisonError::into_inner)
}

/// Consecutive query rows of one sequence, under way.
#[derive(Clone, Copy)]
struct Job<'a> {
    kernels: &'a Kernels,
    spec: &'a AttentionSpec,
    sinks: Option<&'a [f32]>,
    cache: &'a Cache,
    /// `[rows, heads · head dim]`.
    q: &'a [f32],
    /// Position of the first row.
    start: usize,
    rows: usize,
}

impl<'a> Job<'a> {
    fn group(&self) -> usize {
        self.spec.n_heads / self.spec.n_kv_heads
    }

    fn width(&self) -> usize {
        self.spec.n_heads * self.spec.head_dim
    }

    /// Some of the rows.
    fn block(&self, rows: Range<usize>) -> Self {
        let q = &self.q[rows.start * self.width()..rows.end * self.width()];
        Self { q, start: self.start + rows.start, rows: rows.len(), ..*self }
    }

    /// Positions that any row sees.
    fn seen(&self) -> Range<usize> {
        let from = self.spec.window.map_or(0, |window| (self.start + 1).saturating_sub(window));
        from..self.start + self.rows
    }

    /// Partitions that any row sees something of.
    fn partitions(&self) -> Range<usize> {
        self.seen().start / PARTITION..self.seen().end.div_ceil(PARTITION)
    }

    /// One partition and key/value head, for all rows.
    fn partition(&self, kv_head: usize, partition: usize) -> Partition<'a> {
        let head_dim = self.spec.head_dim;
        let (keys, values) = self.cache.partition(kv_head, partition);
        Partition {
            q: &self.q[kv_head * self.group() * head_dim..],
            q_stride: self.width(),
            rows: self.rows,
            heads: self.group(),
            head_dim,
            keys,
            values,
            start: self.start,
            first: partition * PARTITION,
            window: self.spec.window,
            scale: self.spec.scale,
            softcap: self.spec.softcap,
        }
    }

    fn sink(&self, head: usize) -> Option<f32> {
        self.sinks.and_then(|sinks| sinks.get(head).copied())
    }

    /// One key/value head, partition after partition.
    fn run(&self, kv_head: usize, Worker { partition: scratch, running }: &mut Worker, out: &mut Cell<'_>) {
        let (dim, group) = (self.spec.head_dim, self.group());
        running.clear();
        running.resize(self.rows * group, Softmax::EMPTY);
        for row in 0..self.rows {
            out.row(row).fill(0.0);
        }
        for partition in self.partitions() {
            self.kernels.partition(&self.partition(kv_head, partition), scratch);
            for (pair, row) in running.iter_mut().enumerate() {
                let values = &mut out.row(pair / group)[pair % group * dim..][..dim];
                self.kernels.merge((row, values), scratch.result(pair));
            }
        }
        for (pair, row) in running.iter().enumerate() {
            let values = &mut out.row(pair / group)[pair % group * dim..][..dim];
            self.kernels.mean(*row, self.sink(kv_head * group + pair % group), values);
        }
    }

    /// Many rows, in blocks.
    fn run_blocks(&self, pool: &Pool, scratch: &mut Scratch, out: &mut [f32]) {
        let (kv_heads, group, width) = (self.spec.n_kv_heads, self.group(), self.width());
        // Several blocks for each thread where they do not get too small for it.
        let share = (self.rows * kv_heads).div_ceil(4 * pool.threads());
        let rows = share.max(FEWEST_PAIRS.div_ceil(group)).min((MOST_PAIRS / group).max(1));
        let blocks = self.rows.div_ceil(rows);
        let Scratch { workers, taken: [taken, _], .. } = scratch;
        let cells = Cells::new(out, width, [rows, group * self.spec.head_dim], taken);
        pool.run(kv_heads * blocks, 1, &|tasks, worker| {
            let mut worker = lock(workers, worker);
            for task in tasks {
                // Later rows see more: alternating, ranges of tasks take about equally long.
                let (kv_head, block) = (task % kv_heads, task / kv_heads);
                let block = if block % 2 == 0 { blocks - 1 - block / 2 } else { block / 2 };
                if let Some(mut cell) = cells.take(block, kv_head) {
                    let rows = block * rows..self.rows.min((block + 1) * rows);
                    self.block(rows).run(kv_head, &mut worker, &mut cell);
                }
            }
        });
    }

    /// A few rows, their partitions side by side.
    fn run_partitions(&self, pool: &Pool, scratch: &mut Scratch, out: &mut [f32]) {
        let (dim, group, kv_heads) = (self.spec.head_dim, self.group(), self.spec.n_kv_heads);
        let (partitions, pairs) = (self.partitions(), self.rows * group);
        let n = partitions.len();
        // Largest score, sum, values.
        let part = 2 + dim;
        let Scratch { workers, partials, taken: [taken, taken_out] } = scratch;
        let len = kv_heads * n * pairs * part;
        if partials.len() < len {
            // At once for the longest sequence, so that tokens later on allocate nothing.
            let most = kv_heads * self.cache.partitions();
            taken.reserve(most);
            partials.resize(len.max(most * pairs * part), 0.0);
        }
        let partials = &mut partials[..len];
        let cells = Cells::new(partials, pairs * part, [1, pairs * part], taken);
        let each = 2 * dim * self.seen().len().div_ceil(n);
        pool.run(kv_heads * n, TASK.div_ceil(each), &|tasks, worker| {
            let scratch = &mut lock(workers, worker).partition;
            for task in tasks {
                let Some(mut cell) = cells.take(task, 0) else { continue };
                self.kernels.partition(&self.partition(task / n, partitions.start + task % n), scratch);
                for (pair, to) in cell.row(0).chunks_exact_mut(part).enumerate() {
                    let (softmax, values) = scratch.result(pair);
                    (to[0], to[1]) = (softmax.max, softmax.sum);
                    to[2..].copy_from_slice(values);
                }
            }
        });
        let partials = &*partials;
        let cells = Cells::new(out, self.width(), [1, dim], taken_out);
        let results = self.rows * self.spec.n_heads;
        pool.run(results, TASK.div_ceil(n * dim), &|tasks, _| {
            for task in tasks {
                let (row, head) = (task / self.spec.n_heads, task % self.spec.n_heads);
                let Some(mut cell) = cells.take(row, head) else { continue };
                let out = cell.row(0);
                out.fill(0.0);
                let mut running = Softmax::EMPTY;
                for partition in 0..n {
                    let at = (head / group * n + partition) * pairs + row * group + head % group;
                    let from = &partials[at * part..][..part];
                    let softmax = Softmax { max: from[0], sum: from[1] };
                    self.kernels.merge((&mut running, out), (softmax, &from[2..]));
                }
                self.kernels.mean(running, self.sink(head), out);
            }
        });
    }
}

/// Appends the segment's keys and values, then attends to everything its rows see.
pub(super) fn attend(
    kernels: &Kernels,
    pool: &Pool,
    scratch: &mut Scratch,
    op: &Attend<'_, Cpu>,
    [q, k, v]: [&[f32]; 3],
    cache: &mut Cache,
    out: &mut [f32],
) {
    let Attend { attention: spec, sinks, rows, start } = op;
    let (q_width, kv_width) = (spec.n_heads * spec.head_dim, spec.n_kv_heads * spec.head_dim);
    let of = |width: usize| rows.start * width..rows.end * width;
    cache.append(kernels, *start, &k[of(kv_width)], &v[of(kv_width)]);
    let (q, out) = (&q[of(q_width)], &mut out[of(q_width)]);
    let job =
        Job { kernels, spec, sinks: sinks.map(Vec::as_slice), cache, q, start: *start, rows: rows.len() };
    if rows.is_empty() {
        return;
    }
    let pairs = (rows.len() * job.group()).min(MOST_PAIRS.max(job.group()));
    scratch.prepare(pool.threads(), pairs, spec.head_dim);
    if rows.len() == 1 || rows.len() * job.group() <= FEW_PAIRS {
        job.run_partitions(pool, scratch, out);
    } else {
        job.run_blocks(pool, scratch, out);
    }
}
