//! How does a row attend to its sequence's pages? Flash-style, without a score matrix.
//!
//! Positions are worked through in partitions of [`PARTITION`], whose borders are absolute
//! positions. Each partition yields a maximum, a sum and a weighted value; these are merged in
//! order (Dao et al. 2022, Milakov & Gimelshein 2018). The arithmetic of a row therefore does not
//! depend on the chunk it came in, on threads, or on what other sequences are in its step. Many rows are cut into
//! blocks that go through their partitions one after another; where there are too few of them to keep all threads
//! busy, a few rows' partitions are computed side by side. All sequences' tasks are handed out together.

mod chosen;
mod pages;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(super) use chosen::{Chooser, choose};
pub(crate) use pages::Pages;

use super::Cpu;
use super::kernels::{Cell, Cells, Kernels, PAGES, PARTITION, Partition, PartitionScratch, Softmax};
use super::lines::clear;
use super::pool::Pool;
use crate::arch::AttentionSpec;
use crate::engine::backend::{Attend, PAGE, PageSpec, Span};
use crate::error::Result;

/// Pairs of a row and a head that a block has at most, unless one row has more.
const MOST_PAIRS: usize = 96;
/// Fewer pairs than this make poor use of what is converted for them.
const FEWEST_PAIRS: usize = 24;
/// Up to this many pairs, partitions are computed side by side.
const FEW_PAIRS: usize = 8;
/// Key/value heads of sequences for each thread from which on a few rows' partitions are not computed side by side.
const ALONE: usize = 4;
/// Partitions that there is room for from the beginning.
const MANY_PARTITIONS: usize = 64;
/// Heads of a task where all attend to the same latent vectors, if possible: at most, and as few as make up for converting
/// these once more.
const LATENT_HEADS: [usize; 2] = [32, 4];
/// Elements of keys and values that are worth a task of their own.
const TASK: usize = 1 << 15;

/// Working memory, which grows with its first uses.
#[derive(Default)]
pub(super) struct Scratch {
    /// Each thread's, locked once for several tasks.
    workers: Vec<Mutex<Worker>>,
    partials: Vec<f32>,
    taken: [Vec<AtomicBool>; 2],
    /// Spans without the rows that see chosen positions.
    whole: Vec<Span>,
    /// Each thread's for rows that see chosen positions.
    gathered: Vec<Mutex<chosen::Gathered>>,
    /// What each span has to be done for it, in the order of the spans.
    shares: Vec<Share>,
}

/// A span's tasks.
#[derive(Clone, Copy)]
struct Share {
    /// Tasks of the spans before.
    first: usize,
    /// Rows of a block; none where the span's partitions are computed side by side.
    block: Option<usize>,
    /// Partitions of the spans before that are computed side by side.
    partials: usize,
    /// Results to be put together of the spans before, where its partitions are computed side by side.
    results: usize,
}

#[derive(Default)]
struct Worker {
    partition: PartitionScratch,
    running: Vec<Softmax>,
    /// Rotated ones where keys are, or pairs.
    queries: Vec<f32>,
}

impl Worker {
    /// Makes room for tasks of so many pairs on every thread, as any may take the first.
    fn prepare(workers: &mut Vec<Mutex<Worker>>, threads: usize, pairs: usize, spec: &PageSpec) {
        if workers.len() < threads {
            workers.resize_with(threads, Mutex::default);
        }
        for worker in workers {
            let Worker { partition, running, queries } =
                worker.get_mut().unwrap_or_else(PoisonError::into_inner);
            partition.reserve(pairs, spec.latent.unwrap_or(spec.head_dim));
            running.clear();
            running.reserve(pairs);
            if pages::are_prepared(spec) {
                queries.clear();
                queries.reserve(pairs * spec.head_dim.next_multiple_of(2));
            }
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
    /// Query heads that a task computes together.
    group: usize,
    sinks: Option<&'a [f32]>,
    stored: &'a Pages,
    /// Pages of the blocks of positions from `first_block` on.
    pages: &'a [u32],
    first_block: usize,
    /// `[rows, heads · head dim]`.
    q: &'a [f32],
    /// The first row's number in the buffers, and its position.
    first_row: usize,
    start: usize,
    rows: usize,
}

/// Query heads that a task computes together: those of a key/value head. Where there is but one for many, some of them: as
/// many as possible while so many `threads` have work, of which each group of heads makes so many `tasks`.
fn group(spec: &AttentionSpec, tasks: usize, threads: usize) -> usize {
    if spec.latent.is_none() {
        return spec.n_heads / spec.n_kv_heads;
    }
    let [most, least] = LATENT_HEADS;
    let divides = |n: &usize| spec.n_heads.is_multiple_of(*n);
    let enough = |n: &usize| (spec.n_heads / n).saturating_mul(tasks) >= threads;
    let found = (least..=most).rev().find(|n| divides(n) && enough(n));
    found.or_else(|| (least..=most).find(divides)).or_else(|| (1..least).rev().find(divides)).unwrap_or(1)
}

impl<'a> Job<'a> {
    /// Groups of heads, each with a key/value head of its own or all with the same one.
    fn groups(&self) -> usize {
        self.spec.n_heads / self.group
    }

    fn width(&self) -> usize {
        self.spec.n_heads * self.spec.head_dim
    }

    /// Some of the rows.
    fn block(&self, rows: Range<usize>) -> Self {
        let q = &self.q[rows.start * self.width()..rows.end * self.width()];
        let (first_row, start) = (self.first_row + rows.start, self.start + rows.start);
        Self { q, first_row, start, rows: rows.len(), ..*self }
    }

    /// Positions that any row sees.
    fn seen(&self) -> Range<usize> {
        let from = self.spec.window.map_or(0, |window| window.first(self.start));
        from..self.start + self.rows
    }

    /// Partitions that any row sees something of.
    fn partitions(&self) -> Range<usize> {
        self.seen().start / PARTITION..self.seen().end.div_ceil(PARTITION)
    }

    /// The queries of a group of heads, as keys are kept, places from row to row and those of a query.
    fn queries<'q>(&'q self, own: usize, prepared: &'q mut Vec<f32>) -> (&'q [f32], [usize; 2]) {
        let width = self.group * self.spec.head_dim;
        let first = own * width;
        if !pages::are_prepared(self.stored.spec()) {
            return (&self.q[first..], [self.width(), self.spec.head_dim]);
        }
        let parts = pages::parts(self.stored.spec());
        prepared.clear();
        for row in self.q.chunks_exact(self.width()) {
            let heads = row[first..first + width].chunks_exact(self.spec.head_dim);
            self.stored.queries(self.kernels, heads, prepared, |head| {
                pages::rotate(self.kernels, head, parts);
            });
        }
        let stride = prepared.len() / self.rows.max(1);
        (prepared, [stride, stride / self.group])
    }

    /// Turns a row's sum of weighted values into their mean, which is rotated back where values are.
    fn mean(&self, running: Softmax, head: usize, values: &mut [f32]) {
        self.kernels.mean(running, self.sink(head), values);
        if self.stored.spec().kv.values.is_quantised() {
            self.kernels.rotate(values);
        }
    }

    /// One partition and group of heads, for all rows.
    fn partition<'p>(
        &'p self,
        (q, [q_stride, q_len]): (&'p [f32], [usize; 2]),
        own: usize,
        partition: usize,
    ) -> Partition<'p> {
        let kv_head = if self.spec.latent.is_some() { 0 } else { own };
        let of = |page: usize| {
            let block = (partition * PAGES + page).checked_sub(self.first_block);
            let page = block.and_then(|block| self.pages.get(block).copied());
            self.stored.of(page.unwrap_or(u32::MAX), kv_head)
        };
        let pages: [_; PAGES] = std::array::from_fn(of);
        Partition {
            q,
            q_stride,
            q_len,
            rows: self.rows,
            heads: self.group,
            head_dim: self.spec.head_dim,
            value_dim: self.spec.value_dim(),
            latent: self.spec.latent.is_some(),
            keys: pages.map(|(keys, _)| keys),
            values: pages.map(|(_, values)| values),
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

    /// One group of heads, partition after partition.
    fn run(&self, own: usize, worker: &mut Worker, out: &mut Cell<'_>) {
        let (dim, group) = (self.spec.value_dim(), self.group);
        let Worker { partition: scratch, running, queries } = worker;
        let queries = self.queries(own, queries);
        running.clear();
        running.resize(self.rows * group, Softmax::EMPTY);
        for row in 0..self.rows {
            clear(out.row(row));
        }
        for partition in self.partitions() {
            self.kernels.partition(&self.partition(queries, own, partition), scratch);
            for (pair, row) in running.iter_mut().enumerate() {
                let values = &mut out.row(pair / group)[pair % group * dim..][..dim];
                self.kernels.merge((row, values), scratch.result(pair));
            }
        }
        for (pair, row) in running.iter().enumerate() {
            let values = &mut out.row(pair / group)[pair % group * dim..][..dim];
            self.mean(*row, own * group + pair % group, values);
        }
    }

    /// Rows of a block that goes through its partitions by itself, where there are `threads` and blocks of so many rows
    /// of all sequences.
    fn rows_of_block(&self, threads: usize, all_rows: usize) -> usize {
        // Several blocks for each thread where they do not get too small for it.
        let share = (all_rows * self.groups()).div_ceil(4 * threads);
        share
            .max(FEWEST_PAIRS.div_ceil(self.group))
            .min((MOST_PAIRS / self.group).max(1))
            .min(self.rows.max(1))
    }

    /// Tasks that go through partitions by themselves, with blocks of so many rows.
    fn blocks(&self, rows: usize) -> usize {
        self.groups() * self.rows.div_ceil(rows)
    }

    /// A task of those that go through partitions by themselves.
    fn run_block(&self, task: usize, rows: usize, worker: &mut Worker, cells: &Cells<'_>) {
        let (groups, blocks) = (self.groups(), self.rows.div_ceil(rows));
        // Later rows see more: alternating, ranges of tasks take about equally long.
        let (group, block) = (task % groups, task / groups);
        let block = if block % 2 == 0 { blocks - 1 - block / 2 } else { block / 2 };
        let own = block * rows..self.rows.min((block + 1) * rows);
        let job = self.block(own);
        if let Some(mut cell) = cells.take(job.first_row..job.first_row + job.rows, group) {
            job.run(group, worker, &mut cell);
        }
    }

    /// A task of those that are computed side by side.
    fn run_partition(&self, task: usize, worker: &mut Worker, to: &mut [f32]) {
        let (partitions, part) = (self.partitions(), 2 + self.spec.value_dim());
        let (own, partition) = (task / partitions.len(), partitions.start + task % partitions.len());
        let Worker { partition: scratch, queries, .. } = worker;
        let queries = self.queries(own, queries);
        self.kernels.partition(&self.partition(queries, own, partition), scratch);
        for (pair, to) in to.chunks_exact_mut(part).take(self.rows * self.group).enumerate() {
            let (softmax, values) = scratch.result(pair);
            (to[0], to[1]) = (softmax.max, softmax.sum);
            to[2..].copy_from_slice(values);
        }
    }

    /// Puts a row's and head's partitions together, each of which has `width` elements.
    fn combine(&self, row: usize, head: usize, partials: &[f32], width: usize, out: &mut [f32]) {
        let (n, group, part) = (self.partitions().len(), self.group, 2 + self.spec.value_dim());
        let pair = row * group + head % group;
        clear(out);
        let mut running = Softmax::EMPTY;
        for partition in 0..n {
            let from = &partials[(head / group * n + partition) * width + pair * part..][..part];
            let softmax = Softmax { max: from[0], sum: from[1] };
            self.kernels.merge((&mut running, out), (softmax, &from[2..]));
        }
        self.mean(running, head, out);
    }
}

/// Stores the spans' keys and values, where some are given, then attends to everything their rows see.
pub(super) fn attend(
    kernels: &Kernels,
    pool: &Pool,
    scratch: &mut Scratch,
    op: &Attend<'_, Cpu>,
    (q, kv): (&[f32], Option<[&[f32]; 2]>),
    stored: &mut Pages,
    out: &mut [f32],
) -> Result<()> {
    let Attend { attention: spec, sinks, spans, .. } = op;
    let (q_width, out_width) = (spec.n_heads * spec.head_dim, spec.n_heads * spec.value_dim());
    let [k_width, v_width] = stored.widths();
    let of = |span: &Span, width: usize| span.rows.start * width..span.rows.end * width;
    for (span, [k, v]) in spans.list.iter().zip(kv.iter().cycle()) {
        let pages = spans.pages_of(span).get(span.start / PAGE - span.first_block..).unwrap_or_default();
        let kv = [&k[of(span, k_width)], &v[of(span, v_width)]];
        stored.append((kernels, pool), span.start, pages, kv, None)?;
    }
    let stored = &*stored;
    if let Some(chosen) = op.chosen {
        chosen::attend((kernels, pool), scratch, op, chosen, q, stored, out);
        chosen::without(&spans.list, chosen, &mut scratch.whole);
    }
    let Scratch { workers, partials, taken: [taken, taken_out], shares, whole, .. } = scratch;
    let list = if op.chosen.is_some() { &whole[..] } else { &spans.list[..] };
    // Of a row alone each partition is a task, of several rows blocks of them are.
    let tasks = |span: &Span| match span.rows.len() {
        1 => {
            span.start / PARTITION + 1 - spec.window.map_or(0, |window| window.first(span.start)) / PARTITION
        }
        rows => rows,
    };
    let group = group(spec, list.iter().map(tasks).sum(), pool.threads());
    let job = |span: &'_ Span| Job {
        kernels,
        spec,
        group,
        sinks: sinks.map(Vec::as_slice),
        stored,
        pages: &spans.pages[span.pages.clone()],
        first_block: span.first_block,
        q: &q[of(span, q_width)],
        first_row: span.rows.start,
        start: span.start,
        rows: span.rows.len(),
    };

    // How each span is cut into tasks.
    let rows = spans.list.last().map_or(0, |span| span.rows.end);
    let groups = spec.n_heads / group;
    // Of groups that become larger as there are more positions.
    let (most_heads, mut most_pairs) = (self::group(spec, usize::MAX, pool.threads()), 0);
    let few = |rows: usize| rows == 1 || rows * group <= FEW_PAIRS;
    // Enough sequences keep all threads busy without their partitions being apart.
    let apart = list.len() * groups < ALONE * pool.threads();
    shares.clear();
    let [mut tasks, mut partials_before, mut results, mut pairs, mut few_pairs, mut partitions, mut work] =
        [0; 7];
    for span in list {
        let job = job(span);
        let mut share = Share { first: tasks, block: None, partials: partials_before, results };
        let few = apart && few(job.rows);
        if few {
            few_pairs = few_pairs.max(job.rows * group);
            most_pairs = most_pairs.max(job.rows * most_heads);
        }
        // One partition alone needs nothing put together.
        if few && job.partitions().len() > 1 {
            let n = groups * job.partitions().len();
            tasks += n;
            partials_before += n;
            results += job.rows * spec.n_heads;
            partitions = partitions.max(job.partitions().len());
        } else {
            let rows = job.rows_of_block(pool.threads(), rows);
            share.block = Some(rows);
            tasks += job.blocks(rows);
            pairs = pairs.max(rows * group);
        }
        work += job.seen().len() * groups;
        shares.push(share);
    }
    if tasks == 0 {
        return Ok(());
    }
    Worker::prepare(workers, pool.threads(), pairs.max(most_pairs), stored.spec());
    // Of each pair its largest score, sum and values.
    let part = few_pairs * (2 + spec.value_dim());
    if partials.len() < partials_before.max(1) * part {
        // At once for many, so that tokens later on allocate nothing.
        let most = partials_before.max(groups * MANY_PARTITIONS).next_power_of_two();
        taken.reserve(most);
        taken_out.reserve(rows * spec.n_heads);
        partials.resize(most * part, 0.0);
    }

    let shares = &*shares;
    // The span of a task, or of a result, by what comes before it.
    let span_of =
        |at: usize, before: fn(&Share) -> usize| shares.partition_point(|share| before(share) <= at) - 1;
    let cells = Cells::new(&mut out[..rows * out_width], out_width, group * spec.value_dim(), taken_out);
    let parts = Cells::new(&mut partials[..partials_before * part], part, part, taken);
    let each = 2 * spec.head_dim * (work / tasks).max(1);
    pool.run(tasks, TASK.div_ceil(each), &|range, worker| {
        let mut worker = lock(workers, worker);
        for task in range {
            let at = span_of(task, |share| share.first);
            let (job, share) = (job(&list[at]), shares[at]);
            let own = task - share.first;
            match share.block {
                Some(rows) => job.run_block(own, rows, &mut worker, &cells),
                None => {
                    let partition = share.partials + own;
                    if let Some(mut to) = parts.take(partition..partition + 1, 0) {
                        job.run_partition(own, &mut worker, to.row(0));
                    }
                }
            }
        }
    });
    if results == 0 {
        return Ok(());
    }
    let partials = &*partials;
    let cells = Cells::new(&mut out[..rows * out_width], out_width, spec.value_dim(), taken_out);
    pool.run(results, TASK.div_ceil(partitions * spec.value_dim()), &|range, _| {
        for result in range {
            let at = span_of(result, |share| share.results);
            let (job, share) = (job(&list[at]), shares[at]);
            let (row, head) =
                ((result - share.results) / spec.n_heads, (result - share.results) % spec.n_heads);
            if let Some(mut cell) = cells.take(job.first_row + row..job.first_row + row + 1, head) {
                job.combine(row, head, &partials[share.partials * part..], part, cell.row(0));
            }
        }
    });
    Ok(())
}
