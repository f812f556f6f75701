//! Which products of a row are the largest? Strips of them are looked at while they are in the cache; the others
//! are written nowhere.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use super::first_digit::{self, Noted};
use super::linear::{Packed, Products, SharedWork, Work};
use super::matrix::Matrix;
use super::scratch::{ProductScratch, grow};
use super::simd::LANES;
use crate::engine::Precision;
use crate::engine::backend::TopLogits;
use crate::engine::cpu::pool::Pool;
use crate::engine::cpu::trace;
use crate::engine::top::Top;

/// Tiles whose logits are looked at before the next are computed: they stay in the cache.
pub(super) const STRIP: usize = 32;

/// A thread's part in finding the largest logits.
#[derive(Default)]
pub(super) struct Largest {
    pub(super) logits: Vec<f32>,
    /// Of each row.
    pub(super) rows: Vec<Top>,
    /// Rows of a matrix to be put together, and where.
    pub(super) candidates: Vec<u32>,
    pub(super) gathered: Vec<u8>,
    /// Of each row, what [`first_digit`] keeps between its passes.
    pub(super) noted: Vec<Noted>,
}

impl ProductScratch {
    /// Empties the threads' lists of the `k` largest, one for each row.
    pub(super) fn prepare(&mut self, pool: &Pool, rows: usize, logits: usize, k: usize) {
        self.largest.resize_with(pool.threads(), Mutex::default);
        for own in &mut self.largest {
            let own = own.get_mut().unwrap_or_else(PoisonError::into_inner);
            grow(&mut own.logits, logits);
            own.rows.resize_with(rows.max(own.rows.len()), Top::default);
            own.rows.iter_mut().for_each(|top| top.reset(k));
        }
    }

    /// Lists the tiles of a matrix that have some of its outputs, or all, in strips.
    fn list_strips(&mut self, matrix: &Matrix, shortlist: &[Range<u32>]) {
        self.strips.clear();
        let all = shortlist.is_empty().then_some(0..matrix.tiles());
        let mut end = 0;
        for tiles in all.into_iter().chain(shortlist.iter().map(|columns| matrix.tiles_of(columns))) {
            // Ranges may share a tile.
            let start = tiles.start.max(end);
            end = tiles.end.max(end);
            self.strips.extend((start..end).step_by(STRIP).map(|from| from..(from + STRIP).min(end)));
        }
    }

    /// What the threads' lists hold together, for each of the first rows.
    fn write_largest(&mut self, rows: usize, out: TopLogits<'_>) {
        let TopLogits { k, ids, logits } = out;
        for (row, (ids, logits)) in
            ids.chunks_exact_mut(k).zip(logits.chunks_exact_mut(k)).enumerate().take(rows)
        {
            self.merged(row).write(ids, logits);
        }
    }

    /// What the threads' lists hold together for a row.
    pub(super) fn merged(&mut self, row: usize) -> &Top {
        let (first, others) = self.largest.split_at_mut(1);
        let merged = &mut first[0].get_mut().unwrap_or_else(PoisonError::into_inner).rows[row];
        for other in others {
            merged.merge(&other.get_mut().unwrap_or_else(PoisonError::into_inner).rows[row]);
        }
        merged
    }
}

impl Products<'_> {
    /// Finds the largest of each row's products with one matrix, soft-capped, and of a shortlist, if there is one; see
    /// [`Backend::top`](crate::engine::backend::Backend::top).
    pub(crate) fn top(
        mut self,
        matrix: &Matrix,
        softcap: Option<f32>,
        shortlist: &[Range<u32>],
        out: TopLogits<'_>,
    ) {
        let rows = self.n_rows;
        let found = match (&matrix.screen, softcap) {
            _ if !shortlist.is_empty() => None,
            (_, Some(_)) => None,
            (Some(screen), None) => screen.top(&mut self, matrix, out.k),
            (None, None) => first_digit::top(&mut self, matrix, out.k),
        };
        if found.is_some() {
            self.scratch.write_largest(rows, out);
            return;
        }
        let work = self.exactly(matrix);
        let Self { scratch, kernels, pool, packed_len, .. } = self;
        let packed = Packed::new(&mut scratch.packed, packed_len, pool);
        scratch.prepare(pool, rows, rows * STRIP * LANES, out.k);
        scratch.list_strips(matrix, shortlist);
        // SAFETY: the rows, as they are or rounded, and the matrix stay where they are until this returns.
        let work = unsafe { SharedWork::new(work) };
        let (all, strips) = (&scratch.largest, &scratch.strips);
        trace::next(|| {
            let outputs: usize = strips.iter().map(|tiles| matrix.columns(tiles).len()).sum();
            [outputs * matrix.source.row_bytes, 2 * outputs * matrix.n_in() * rows].map(|n| n as u64)
        });
        pool.run(strips.len(), 1, &|range, thread| {
            let mut own = all[thread].lock().unwrap_or_else(PoisonError::into_inner);
            let Largest { logits, rows: tops, .. } = &mut *own;
            for tiles in &strips[range] {
                let columns = matrix.columns(tiles);
                // SAFETY: there is room for a strip of each row; threads have their own numbers, and so
                // their own lists and packed tiles.
                unsafe {
                    let work = work.get().writing_to(logits.as_mut_ptr(), columns.start);
                    work.tiles(tiles.clone(), packed.of(thread));
                }
                for (top, logits) in tops.iter_mut().zip(logits.chunks_exact_mut(STRIP * LANES)).take(rows) {
                    let logits = &mut logits[..columns.len()];
                    if let Some(cap) = softcap {
                        kernels.softcap(logits, cap);
                    }
                    top.see(columns.start, logits);
                }
            }
        });
        scratch.write_largest(rows, out);
    }

    /// The exact product of all rows with a matrix, with room for a strip in each row of the output. Rows can be taken
    /// [one by one](Work::of_row), too.
    pub(super) fn exactly(&mut self, matrix: &Matrix) -> Work {
        self.set_precision(Precision::Exact, false);
        if let Some(form) = matrix.form(Precision::Exact, 1) {
            self.scratch.round(self.kernels, self.pool, (self.x, self.n_in), true, form);
            self.has(form);
        }
        self.work(matrix, 0..self.n_rows, STRIP * LANES)
    }
}
