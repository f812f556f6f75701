//! Which positions does a row see where it may not see all, and how does it attend to them?
//!
//! Scores of positions are computed in partitions, as attention's are, and each row's largest are taken, of equal ones the
//! first. The keys of a row's positions are gathered one behind the other and attended to as those of a shorter sequence: the
//! arithmetic of a row depends on its positions alone.

#[cfg(test)]
mod tests;

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::super::Cpu;
use super::super::kernels::{
    BYTES_BEHIND, Cells, Kernels, PAGES, PARTITION, Partition, PartitionScratch, Softmax, Stored,
};
use super::super::lines::clear;
use super::super::pool::Pool;
use super::{MANY_PARTITIONS, Pages, Scratch, group, pages};
use crate::engine::KvType;
use crate::engine::backend::{Attend, Choose, Chosen, PAGE, Span};
use crate::error::{Error, ErrorKind, Result};

/// Rows whose positions have scores at a time.
const ROWS: usize = 16;
/// Rows of a task.
const ROWS_OF_TASK: usize = 2;

/// Working memory for choosing positions.
#[derive(Default)]
pub(in super::super) struct Chooser {
    workers: Vec<Mutex<Finder>>,
    /// `[row, position]`.
    scores: Vec<f32>,
    taken: Vec<AtomicBool>,
    /// Queries as keys are kept.
    queries: Vec<f32>,
}

#[derive(Default)]
struct Finder {
    partition: PartitionScratch,
    order: Vec<(f32, u32)>,
}

/// Working memory of a row that sees chosen positions.
#[derive(Default)]
pub(super) struct Gathered {
    partition: PartitionScratch,
    running: Vec<Softmax>,
    queries: Vec<f32>,
    /// Keys of a partition in f32, `[page][element][position]`.
    keys: Vec<u8>,
}

fn locked<T>(workers: &[Mutex<T>], worker: usize) -> MutexGuard<'_, T> {
    // Whatever a task left behind when it panicked, the next one begins anew.
    workers[worker].lock().unwrap_or_else(PoisonError::into_inner)
}

impl Chooser {
    /// Room for so many rows by so many partitions of scores.
    fn reserve(&mut self, threads: usize, n_heads: usize, rows: usize, partitions: usize) -> Result<()> {
        // At once for many, so that tokens later on allocate nothing.
        let most = partitions.max(MANY_PARTITIONS).next_power_of_two();
        let Self { workers, scores, taken, .. } = self;
        taken.clear();
        taken.reserve(rows * most);
        let room = rows * most * PARTITION;
        scores.try_reserve(room.saturating_sub(scores.len())).map_err(|e| too_many().with_source(e))?;
        scores.resize(scores.len().max(room), 0.0);
        workers.resize_with(workers.len().max(threads), Mutex::default);
        for worker in workers {
            let Finder { partition, order } = worker.get_mut().unwrap_or_else(PoisonError::into_inner);
            partition.reserve(ROWS_OF_TASK * n_heads, 0);
            order.clear();
            order.try_reserve(most * PARTITION).map_err(|e| too_many().with_source(e))?;
        }
        Ok(())
    }
}

fn too_many() -> Error {
    Error::new(ErrorKind::OutOfMemory, "cannot reserve memory for the scores of positions")
        .with_hint("use a smaller context")
}

/// See [`Backend::choose`](crate::engine::backend::Backend::choose); buffers as slices.
pub(in super::super) fn choose(
    (kernels, pool): (&Kernels, &Pool),
    chooser: &mut Chooser,
    op: &Choose<'_, Cpu>,
    [k, v, query, key, weights]: [&[f32]; 5],
    stored: &mut Pages,
    out: &mut Chosen,
) -> Result<()> {
    let (index, [k_width, v_width]) = (op.index, stored.widths());
    let of = |span: &Span, width: usize| span.rows.start * width..span.rows.end * width;
    for span in &op.spans.list {
        let numbers = op.spans.pages_of(span).get(span.start / PAGE - span.first_block..).unwrap_or_default();
        let kv = [&k[of(span, k_width)], &v[of(span, v_width)]];
        stored.append((kernels, pool), span.start, numbers, kv, Some(&key[of(span, index.head_dim)]))?;
    }
    let stored = &*stored;
    out.most = index.most;
    out.rows.clear();
    out.positions.clear();
    let q_width = index.n_heads * index.head_dim;
    // Also while rows see all positions: the first that does not comes in the middle of a text.
    let rows = op.spans.list.last().map_or(0, |span| span.rows.end);
    chooser.reserve(pool.threads(), index.n_heads, rows.min(ROWS), 0)?;
    chooser.queries.reserve((rows.min(ROWS) * q_width).saturating_sub(chooser.queries.len()));
    out.rows.reserve(rows);
    out.positions.try_reserve(rows * index.most).map_err(|e| too_many().with_source(e))?;
    for (at, span) in op.spans.list.iter().enumerate() {
        let first = index.most.saturating_sub(span.start).min(span.rows.len());
        for block in (first..span.rows.len()).step_by(ROWS) {
            let n = ROWS.min(span.rows.len() - block);
            let (row, start) = (span.rows.start + block, span.start + block);
            let (partitions, positions) = ((start + n).div_ceil(PARTITION), start + n);
            let width = partitions * PARTITION;
            chooser.reserve(pool.threads(), index.n_heads, n, partitions)?;
            let Chooser { workers, scores, taken, queries } = &mut *chooser;
            let query = query[row * q_width..(row + n) * q_width].chunks_exact(index.head_dim);
            queries.clear();
            stored.queries(kernels, query, queries, |head| kernels.rotate(head));
            let q_stride = queries.len() / n;
            let (queries, numbers) = (&*queries, op.spans.pages_of(span));
            let weights = &weights[row * index.n_heads..(row + n) * index.n_heads];
            let groups = n.div_ceil(ROWS_OF_TASK);
            let cells = Cells::new(&mut scores[..n * width], width, PARTITION, taken);
            pool.run(partitions * groups, 1, &|tasks, worker| {
                let mut finder = locked(workers, worker);
                for task in tasks {
                    let (partition, own) = (task % partitions, task / partitions * ROWS_OF_TASK);
                    let rows = own..n.min(own + ROWS_OF_TASK);
                    let keys = std::array::from_fn(|page| {
                        let block = (partition * PAGES + page).checked_sub(span.first_block);
                        let number = block.and_then(|block| numbers.get(block).copied());
                        stored.index_of(number.unwrap_or(u32::MAX))
                    });
                    let part = Partition {
                        q: &queries[own * q_stride..],
                        q_stride,
                        q_len: q_stride / index.n_heads,
                        rows: rows.len(),
                        heads: index.n_heads,
                        head_dim: index.head_dim,
                        value_dim: 0,
                        latent: false,
                        keys,
                        values: keys,
                        start: start + own,
                        first: partition * PARTITION,
                        window: None,
                        scale: 1.0,
                        softcap: None,
                    };
                    let Some(mut cell) = cells.take(rows, partition) else { continue };
                    kernels.relevance(
                        &part,
                        &weights[own * index.n_heads..],
                        &mut finder.partition,
                        |at, sums| {
                            cell.row(at).copy_from_slice(sums);
                        },
                    );
                }
            });
            let before = out.positions.len();
            out.rows.extend((row..row + n).map(|row| (row, at)));
            out.positions.resize(before + n * index.most, 0);
            let scores = &scores[..n * width];
            pool.rows(&mut out.positions[before..], index.most, 1, |at, to, worker| {
                let order = &mut locked(workers, worker).order;
                order.clear();
                let seen = positions - n + at + 1;
                let own = scores[at * width..].iter().take(seen);
                // Zeros of both signs are equal.
                order.extend(own.enumerate().map(|(position, score)| (score + 0.0, position as u32)));
                let better = |a: &(f32, u32), b: &(f32, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
                order.select_nth_unstable_by(to.len() - 1, better);
                to.iter_mut().zip(&*order).for_each(|(to, (_, position))| *to = *position);
                to.sort_unstable();
            });
        }
    }
    Ok(())
}

/// The spans' rows that see all positions before them.
pub(super) fn without(spans: &[Span], chosen: &Chosen, whole: &mut Vec<Span>) {
    whole.clear();
    whole.extend_from_slice(spans);
    for span in &mut *whole {
        span.rows.end = span.rows.start + chosen.most.saturating_sub(span.start).min(span.rows.len());
    }
    whole.retain(|span| !span.rows.is_empty());
}

/// Attends to the positions that were chosen for rows.
pub(super) fn attend(
    (kernels, pool): (&Kernels, &Pool),
    scratch: &mut Scratch,
    op: &Attend<'_, Cpu>,
    chosen: &Chosen,
    q: &[f32],
    stored: &Pages,
    out: &mut [f32],
) {
    let (spec, n) = (op.attention, chosen.most);
    let (dim, value_dim) = (spec.head_dim, spec.value_dim());
    let (q_width, out_width) = (spec.n_heads * dim, spec.n_heads * value_dim);
    // Rows alone are shared out by their heads, too.
    let (alone, threads) = (chosen.rows.len(), pool.threads());
    let group = if alone < threads { group(spec, alone, threads) } else { spec.n_heads };
    let groups = spec.n_heads / group;
    let Scratch { gathered, taken: [_, taken], .. } = scratch;
    gathered.resize_with(gathered.len().max(pool.threads()), Mutex::default);
    let rows = op.spans.list.last().map_or(0, |span| span.rows.end);
    let cells = Cells::new(&mut out[..rows * out_width], out_width, group * value_dim, taken);
    let page_bytes = dim * PAGE * size_of::<f32>();
    let parts = pages::parts(stored.spec());
    let kept = PAGES * page_bytes + BYTES_BEHIND;
    // On every thread, as any may take the first task; and before there is one, so that no token allocates.
    for worker in &mut *gathered {
        let worker = worker.get_mut().unwrap_or_else(PoisonError::into_inner);
        worker.partition.reserve(spec.n_heads, value_dim);
        worker.running.clear();
        worker.running.reserve(spec.n_heads);
        worker.queries.clear();
        worker.queries.reserve(spec.n_heads * dim);
        worker.keys.resize(kept, 0);
    }
    let gathered = &*gathered;
    pool.run(chosen.rows.len() * groups, 1, &|tasks, worker| {
        let mut worker = locked(gathered, worker);
        let Gathered { partition: scratch, running, queries, keys } = &mut *worker;
        for task in tasks {
            let (at, own) = (task / groups, task % groups);
            let (row, span) = chosen.rows[at];
            let (positions, span) = (chosen.of(at), &op.spans.list[span]);
            let numbers = op.spans.pages_of(span);
            let Some(mut cell) = cells.take(row..row + 1, own) else { continue };
            let out = cell.row(0);
            queries.clear();
            queries.extend_from_slice(&q[row * q_width + own * group * dim..][..group * dim]);
            if stored.spec().kv.keys.is_quantised() {
                queries.chunks_exact_mut(dim).for_each(|head| pages::rotate(kernels, head, parts));
            }
            running.clear();
            running.resize(group, Softmax::EMPTY);
            clear(out);
            for (partition, positions) in positions.chunks(PARTITION).enumerate() {
                for (slot, position) in positions.iter().map(|position| *position as usize).enumerate() {
                    let number =
                        (position / PAGE).checked_sub(span.first_block).and_then(|at| numbers.get(at));
                    let to = slot / PAGE * page_bytes + slot % PAGE * size_of::<f32>();
                    let number = number.copied().unwrap_or(u32::MAX);
                    stored.spread_key(number, position % PAGE, dim, &mut keys[to..], PAGE * size_of::<f32>());
                }
                let keys = std::array::from_fn(|page| {
                    let bytes = &keys[page * page_bytes..][..page_bytes + BYTES_BEHIND];
                    Stored { bytes, scales: &[], kind: KvType::F32 }
                });
                let part = Partition {
                    q: queries,
                    q_stride: group * dim,
                    q_len: dim,
                    rows: 1,
                    heads: group,
                    head_dim: dim,
                    value_dim,
                    latent: true,
                    keys,
                    values: keys,
                    start: n - 1,
                    first: partition * PARTITION,
                    window: None,
                    scale: spec.scale,
                    softcap: spec.softcap,
                };
                kernels.partition(&part, scratch);
                for (head, running) in running.iter_mut().enumerate() {
                    let values = &mut out[head * value_dim..][..value_dim];
                    kernels.merge((running, values), scratch.result(head));
                }
            }
            for (head, running) in running.iter().enumerate() {
                let values = &mut out[head * value_dim..][..value_dim];
                let sink = op.sinks.and_then(|sinks| sinks.get(own * group + head).copied());
                kernels.mean(*running, sink, values);
                if stored.spec().kv.values.is_quantised() {
                    kernels.rotate(values);
                }
            }
        }
    });
}
