//! Which rows of a large table have the largest inner products with each of many queries? Exactly.
//!
//! The table is copied once, as integers: a byte for each element. Products of integers tell which rows
//! may be among the largest, see [`kernels`](super::kernels); only theirs are computed from the table itself, in
//! f32, and ranked. The result is that of computing them all: of equal products the lower row comes first.
//!
//! Threads share out strips of the table. All that find something look at, and raise, one threshold for
//! each query.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::kernels::{GROUP, Group, Hit, Tiles, WIDEST};
use super::{Cpu, LEAST_ELEMENTS};
use crate::cancel::CancelToken;
use crate::engine::top::Top;
use crate::error::{Error, ErrorKind, Result};
use crate::weights::{Region, quant};

/// Bytes of a strip of the table, which stays in a core's cache while it meets all queries of a batch.
const STRIP: usize = 160 << 10;
/// Tiles of a strip, at most.
const TILES: usize = 16;
/// Bytes of a batch of queries, which stay in the cache likewise.
const BATCH: usize = 512 << 10;
/// Rows of a tile.
const ROWS: usize = 16;

/// Rows from which the columns' weights are taken.
const SAMPLE: usize = 4096;
/// Weights are from the reciprocal of this to this.
const WEIGHT: f32 = 16.0;
/// Rows that are asked for ahead, at most.
const AHEAD: usize = 64;

/// A table of rows that many queries are compared with.
pub(crate) struct Nearest<'a> {
    cpu: &'a Cpu,
    table: Region,
    copy: Tiles,
    /// Reciprocals of the columns' weights.
    weights: Vec<f32>,
}

/// What a thread needs.
struct Worker {
    hits: Vec<Hit>,
    found: Vec<Found>,
    /// What was found before, and is on its way from memory.
    waiting: Vec<Found>,
    row: Vec<f32>,
}

/// A product that may be among the largest.
#[derive(Clone, Copy)]
struct Found {
    /// What it is at most, in units of the query's scale.
    upper: f32,
    row: usize,
    query: usize,
}

/// Queries under way.
struct Batch<'a> {
    queries: &'a [f32],
    groups: Vec<Group>,
    /// Of each query.
    tops: Vec<Mutex<Top>>,
    /// The smallest product that is listed, as bits; and in units of the query's scale.
    last: Vec<AtomicU32>,
    least: Vec<AtomicU32>,
    k: usize,
    cancel: &'a CancelToken,
    /// Products computed.
    computed: AtomicU64,
    /// The first row with a product that is no finite number.
    failed: AtomicUsize,
}

impl<'a> Nearest<'a> {
    /// Copies the table, of any type, and looks at `cancel` meanwhile. The copy takes about a byte for each element;
    /// the table stays as it is, and rows of it are read while searching.
    ///
    /// # Errors
    /// [`ErrorKind::TensorShape`] for tables without elements, of more than 2^32 rows or of rows longer than 2^17;
    /// [`ErrorKind::CheckpointInvalid`] for numbers that are not finite; [`ErrorKind::OutOfMemory`],
    /// [`ErrorKind::Cancelled`].
    pub(crate) fn new(cpu: &'a Cpu, table: &Region, cancel: &CancelToken) -> Result<Self> {
        let (rows, width) = (table.rows(), table.row_len());
        if rows == 0 || u32::try_from(rows).is_err() || !(1..=WIDEST).contains(&width) {
            return Err(Error::new(
                ErrorKind::TensorShape,
                format!("expected rows of 1 to {WIDEST} elements, found {:?}", table.shape()),
            )
            .with("tensor", table.name()));
        }
        let exhausted = || {
            Error::new(ErrorKind::OutOfMemory, "cannot reserve memory for a copy of a table")
                .with("tensor", table.name())
                .with_hint("a byte is needed for each of its elements")
        };
        let mut copy =
            Tiles::new(rows, width).ok_or_else(exhausted)?.map_err(|e| exhausted().with_source(e))?;
        let (padded, tile_bytes) = (copy.width(), copy.tile_bytes());
        let weights = weights(table, padded);
        let workers: Vec<_> = (0..cpu.pool.threads())
            .map(|_| Mutex::new((vec![0.0; ROWS * padded], vec![0; ROWS * padded])))
            .collect();
        let bad = AtomicUsize::new(usize::MAX);
        cpu.pool.rows(copy.bytes_mut(), tile_bytes, 4, |tile, bytes, thread| {
            if cancel.is_cancelled() {
                return;
            }
            let mut own = workers[thread].lock().unwrap_or_else(PoisonError::into_inner);
            let (values, digits) = &mut *own;
            for (lane, values) in values.chunks_exact_mut(padded).enumerate() {
                match stored(table, tile * ROWS + lane) {
                    Some(stored) => {
                        quant::dequantise(table.dtype(), stored, &mut values[..width]);
                        values.iter_mut().zip(&weights).for_each(|(value, weight)| *value *= weight);
                    }
                    None => values.fill(0.0),
                }
            }
            // With weights, even finite numbers may become too large, which is no harm.
            if !cpu.kernels.copy(values, padded, digits, bytes) {
                let mut row = vec![0.0; width];
                let is_bad = |at: &usize| {
                    stored(table, *at).is_some_and(|stored| {
                        quant::dequantise(table.dtype(), stored, &mut row);
                        !is_finite(&row)
                    })
                };
                if let Some(row) = (tile * ROWS..(tile + 1) * ROWS).find(is_bad) {
                    bad.fetch_min(row, Ordering::Relaxed);
                }
            }
        });
        cancel.check()?;
        match bad.into_inner() {
            usize::MAX => {
                let weights = weights.iter().map(|weight| 1.0 / weight).collect();
                Ok(Self { cpu, table: table.clone(), copy, weights })
            }
            row => Err(not_finite(table).with("row", row)),
        }
    }

    /// Finds, for each of the `queries` `[n, width]`, the `k` rows with the largest products, largest first, or all
    /// where there are fewer: `out` gets n times as many rows and products. Looks at `cancel` every few
    /// milliseconds.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] when `queries` are no whole rows; [`ErrorKind::CheckpointInvalid`] when one
    /// holds a number that is not finite, by its number, or when a product that may count does not fit f32, by the
    /// table's row; [`ErrorKind::Cancelled`].
    pub(crate) fn top(
        &self,
        queries: &[f32],
        k: usize,
        cancel: &CancelToken,
        out: &mut Vec<(u32, f32)>,
    ) -> Result<()> {
        self.find(queries, k, cancel, out).map(drop)
    }

    /// The same; returns how many products were computed from the table itself.
    pub(crate) fn find(
        &self,
        queries: &[f32],
        k: usize,
        cancel: &CancelToken,
        out: &mut Vec<(u32, f32)>,
    ) -> Result<u64> {
        let width = self.table.row_len();
        if !queries.len().is_multiple_of(width) {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("expected queries of {width} elements, found {} in all", queries.len()),
            )
            .with("tensor", self.table.name()));
        }
        let k = k.min(self.table.rows());
        out.clear();
        if k == 0 {
            return Ok(0);
        }
        let mut computed = 0;
        let groups = (BATCH / (GROUP * self.copy.width())).max(1);
        for (i, batch) in queries.chunks(groups * GROUP * width).enumerate() {
            let first = i * groups * GROUP;
            let batch = self.batch(batch, first, k, cancel)?;
            for (query, top) in batch.queries.chunks_exact(width).zip(batch.tops) {
                if is_zero(query) {
                    out.extend((0..k as u32).map(|row| (row, 0.0)));
                } else {
                    out.extend(top.into_inner().unwrap_or_else(PoisonError::into_inner).listed());
                }
            }
            computed += batch.computed.into_inner();
        }
        Ok(computed)
    }

    fn batch<'b>(
        &self,
        queries: &'b [f32],
        first: usize,
        k: usize,
        cancel: &'b CancelToken,
    ) -> Result<Batch<'b>> {
        let (width, kernels) = (self.table.row_len(), self.cpu.kernels);
        if let Some(bad) = queries.chunks_exact(width).position(|query| !is_finite(query)) {
            return Err(not_finite(&self.table).with("query", first + bad));
        }
        let groups =
            queries.chunks(GROUP * width).map(|some| kernels.group(some, width, &self.weights)).collect();
        let n = queries.len() / width;
        let mut batch = Batch {
            queries,
            groups,
            tops: Vec::with_capacity(n),
            last: (0..n).map(|_| AtomicU32::new(f32::NEG_INFINITY.to_bits())).collect(),
            least: Vec::with_capacity(n),
            k,
            cancel,
            computed: AtomicU64::new(0),
            failed: AtomicUsize::new(usize::MAX),
        };
        for query in queries.chunks_exact(width) {
            let mut top = Top::default();
            top.reset(k);
            batch.tops.push(Mutex::new(top));
            let least = if is_zero(query) { f32::INFINITY } else { f32::NEG_INFINITY };
            batch.least.push(AtomicU32::new(least.to_bits()));
        }
        self.search(&batch);
        cancel.check()?;
        match batch.failed.load(Ordering::Relaxed) {
            usize::MAX => Ok(batch),
            row => Err(Error::new(
                ErrorKind::CheckpointInvalid,
                "expected products that fit f32, found larger ones",
            )
            .with("tensor", self.table.name())
            .with("row", row)
            .with_hint("the checkpoint's numbers are too large to be weights")),
        }
    }

    fn search(&self, batch: &Batch<'_>) {
        let pool = &self.cpu.pool;
        let strip = (STRIP / self.copy.tile_bytes()).clamp(1, TILES);
        let strips = self.copy.len().div_ceil(strip);
        let workers: Vec<_> = (0..pool.threads())
            .map(|_| {
                let hits = Vec::with_capacity(strip * GROUP);
                let row = vec![0.0; self.table.row_len()];
                Mutex::new(Worker { hits, found: Vec::new(), waiting: Vec::new(), row })
            })
            .collect();
        let tiles = |at: usize| at * strip..((at + 1) * strip).min(self.copy.len());
        // The first strips tell what is large, before threads go separate ways.
        let begin = (2 * batch.k).div_ceil(strip * ROWS).min(strips);
        pool.run(batch.groups.len(), 1, &|groups, thread| {
            let mut own = workers[thread].lock().unwrap_or_else(PoisonError::into_inner);
            for at in groups {
                (0..begin).for_each(|strip| self.compare(batch, tiles(strip), at, &mut own));
            }
            self.compute(batch, &mut own);
        });
        let least = LEAST_ELEMENTS.div_ceil(strip * self.copy.tile_bytes());
        pool.run(strips - begin, least, &|strips, thread| {
            let mut own = workers[thread].lock().unwrap_or_else(PoisonError::into_inner);
            for at in strips {
                for group in 0..batch.groups.len() {
                    self.compare(batch, tiles(begin + at), group, &mut own);
                }
            }
            self.compute(batch, &mut own);
        });
    }

    /// Compares a group with some tiles, and computes what was found the last time.
    fn compare(&self, batch: &Batch<'_>, tiles: Range<usize>, group: usize, own: &mut Worker) {
        if batch.cancel.is_cancelled() {
            return;
        }
        let (first, group, width) = (group * GROUP, &batch.groups[group], self.table.row_len());
        let mut least = [f32::INFINITY; GROUP];
        for (least, shared) in least.iter_mut().zip(&batch.least[first..first + group.queries()]) {
            *least = f32::from_bits(shared.load(Ordering::Relaxed));
        }
        own.hits.clear();
        self.cpu.kernels.near(&self.copy, tiles, group, &least, &mut own.hits);
        for hit in &own.hits {
            let query = first + hit.query();
            own.found.extend(hit.rows().map(|(row, upper)| Found { upper, row, query }));
        }
        // Where there are many, the first ones make the others too small.
        own.found.sort_unstable_by(|a, b| b.upper.total_cmp(&a.upper));
        for found in own.found.iter().take(AHEAD) {
            stored(&self.table, found.row).into_iter().for_each(|row| self.cpu.kernels.prefetch(row));
            let query = &batch.queries[found.query * width..][..width];
            self.cpu.kernels.prefetch_floats(query);
        }
        self.compute(batch, own);
        std::mem::swap(&mut own.found, &mut own.waiting);
    }

    /// Computes what waits to be.
    fn compute(&self, batch: &Batch<'_>, own: &mut Worker) {
        let Worker { waiting, row, .. } = own;
        for found in waiting.drain(..) {
            let shared = &batch.least[found.query];
            let Some(stored) = stored(&self.table, found.row) else { continue };
            if found.upper < f32::from_bits(shared.load(Ordering::Relaxed)) {
                continue;
            }
            let query = &batch.queries[found.query * row.len()..][..row.len()];
            let product = self.cpu.kernels.product(self.table.dtype(), stored, row, query);
            batch.computed.fetch_add(1, Ordering::Relaxed);
            if !product.is_finite() {
                batch.failed.fetch_min(found.row, Ordering::Relaxed);
                continue;
            }
            // Nearly all are too small after all.
            let last = &batch.last[found.query];
            if product < f32::from_bits(last.load(Ordering::Relaxed)) {
                continue;
            }
            let mut top = batch.tops[found.query].lock().unwrap_or_else(PoisonError::into_inner);
            top.see(found.row, &[product]);
            let least = batch.groups[found.query / GROUP].scaled(found.query % GROUP, top.least());
            // While nobody else may raise them.
            last.store(top.least().to_bits(), Ordering::Relaxed);
            shared.store(least.to_bits(), Ordering::Relaxed);
        }
    }
}

/// Weights of a table's columns, filled up with ones: the fourth root of how their mean square compares with
/// that of all. Taken from some rows only, as any weights will do.
fn weights(table: &Region, padded: usize) -> Vec<f32> {
    let (rows, width) = (table.rows(), table.row_len());
    let mut squares = vec![0.0f64; width];
    let mut values = vec![0.0; width];
    for row in (0..rows).step_by(rows.div_ceil(SAMPLE)) {
        if let Some(stored) = stored(table, row) {
            quant::dequantise(table.dtype(), stored, &mut values);
            squares.iter_mut().zip(&values).for_each(|(sum, x)| *sum += f64::from(*x) * f64::from(*x));
        }
    }
    let mean = squares.iter().sum::<f64>() / width as f64;
    let weight = |square: &f64| {
        let weight = (mean / square).sqrt().sqrt() as f32;
        // Where nothing is known of a column, or of any.
        if weight > 0.0 { weight.clamp(1.0 / WEIGHT, WEIGHT) } else { 1.0 }
    };
    squares.iter().map(weight).chain(std::iter::repeat(1.0)).take(padded).collect()
}

/// The table, or what it is compared with, breaks what is said of weights.
fn not_finite(table: &Region) -> Error {
    Error::new(ErrorKind::CheckpointInvalid, "expected finite numbers, found one that is not finite")
        .with("tensor", table.name())
        .with_hint("the checkpoint is damaged: fetch it again")
}

fn is_finite(x: &[f32]) -> bool {
    x.iter().fold(true, |all, x| all & x.is_finite())
}

/// All products with nothing but zeros are zeros: the table need not be looked at.
fn is_zero(query: &[f32]) -> bool {
    query.iter().all(|x| *x == 0.0)
}

/// A row's bytes, if the table has it.
fn stored(table: &Region, row: usize) -> Option<&[u8]> {
    table.bytes().get(row.checked_mul(table.row_bytes())?..)?.get(..table.row_bytes())
}
