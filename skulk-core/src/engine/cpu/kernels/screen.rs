//! Which rows of the head can be among the largest? A compact copy tells, within proven bounds.
//!
//! The head is most of what a decoded token reads, and sampling needs only the largest logits. The
//! screen is a [`compact`] copy of the head. Its products `c` differ from the head's `l` by at most
//!
//! `|l - c| ≤ Σ ρ·‖x̂‖ + ν·‖x̂ - x̃‖ + 2γν·‖x‖`
//!
//! for a row with distances ρ, of each block, and length ν; activations x, rounded to x̂ for the head and
//! to x̃ for the copy (Cauchy and Schwarz, block by block); and γ for the roundings of both sums (Higham,
//! Accuracy and Stability of Numerical Algorithms, 3.1). No logit is above its `c + bound`.
//!
//! The logits of the rows with the largest `c` are computed first: the k-th largest of them is not
//! above the k-th largest of all, so that rows whose `c + bound` is below it are not among the k
//! largest. The others' logits are computed too, from the head itself, by the kernel that would have
//! computed them all, to the same bits.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use memmap2::MmapMut;

use super::compact::{Coarse, tile_bytes};
use super::linear::{Products, SharedWork, Work};
use super::rounding::Activations;
use super::scratch::{Form, grow};
use super::simd::{BLOCK, LANES};
use super::top::{Largest, STRIP};
use super::{Kernels, Matrix};
use crate::cancel::CancelToken;
use crate::engine::cpu::pool::Pool;
use crate::engine::cpu::trace;
use crate::engine::top::Top;
use crate::error::{Error, ErrorKind, Result};
use crate::weights::Region;

/// Rows worth a screen: smaller heads are in the cache or cost little anyway.
pub(super) const LEAST_ROWS: usize = 4096;
/// Candidates of a tile with which the whole tile is computed where it is.
const MANY: usize = LANES / 2;
/// Activations that [`rounding`](super::rounding) takes for zero.
const TINY: f64 = 1e-30;

/// The norm of a row, and of what rounding to two digits takes from it at most, and to one did.
struct Moved {
    norm: f64,
    fine: f64,
    coarse: f64,
}

impl Moved {
    /// How far a product may be off for each unit of the copy's length.
    fn apart(&self, n_in: usize) -> f32 {
        let Self { norm, fine, coarse } = *self;
        let gamma = (8 * (n_in / BLOCK) + 64) as f64 / f64::from(1 << 24);
        let (fine, all) = (fine + TINY * n_in as f64, norm + coarse + fine);
        above(coarse + fine + 2.0 * gamma * all)
    }
}

/// How far rounding moves a row, whose blocks come next. Notes the norms of what it can become.
fn moved<'a>(
    x: &[f32],
    rounded: &mut impl Iterator<Item = (&'a [i8; BLOCK], &'a f32)>,
    norms: &mut Vec<f32>,
) -> Moved {
    let (mut norm, mut fine, mut coarse) = (0.0, 0.0, 0.0);
    for (x, (digits, scale)) in x.chunks_exact(BLOCK).zip(rounded) {
        let scale = f64::from(*scale);
        let (mut square, mut off) = (0.0, 0.0);
        for (x, digit) in x.iter().zip(digits) {
            square += f64::from(*x).powi(2);
            off += (f64::from(*x) - scale * f64::from(*digit)).powi(2);
        }
        // Two digits have a scale 256 times as fine; an element is off by half of it.
        let least = BLOCK as f64 * (scale / 255.0).powi(2);
        norms.push(above(square.sqrt() + least.sqrt()));
        (norm, fine, coarse) = (norm + square, fine + least, coarse + off);
    }
    Moved { norm: norm.sqrt(), fine: fine.sqrt(), coarse: coarse.sqrt() }
}

/// Rounded up, by more than sums of some thousand numbers lose to rounding.
fn above(x: f64) -> f32 {
    (x * (1.0 + 1e-3)) as f32
}

impl Products<'_> {
    /// Rounds the rows to one digit, whatever the precision. Notes the norms of what rounding to two digits can make
    /// of their blocks, and how far products with a copy may be off for each unit of its length; `None` where that is
    /// no number.
    pub(super) fn coarse(&mut self) -> Option<Activations> {
        let scratch = &mut *self.scratch;
        scratch.round(self.kernels, self.pool, (self.x, self.n_in), false, Form::Ordered);
        let (mut norms, mut apart) = (std::mem::take(&mut scratch.norms), std::mem::take(&mut scratch.apart));
        norms.clear();
        apart.clear();
        let mut rounded = scratch.coarse_blocks();
        for x in self.x.chunks_exact(self.n_in) {
            let moved = moved(x, &mut rounded, &mut norms);
            apart.push(moved.apart(self.n_in));
        }
        let finite = apart.iter().all(|apart| apart.is_finite());
        drop(rounded);
        (scratch.norms, scratch.apart) = (norms, apart);
        finite.then(|| scratch.activations(0, self.n_in, false))
    }
}

/// A compact copy of a head.
pub(crate) struct Screen {
    copy: MmapMut,
}

/// Blocks of a row.
fn blocks(head: &Region) -> usize {
    head.row_len() / BLOCK
}

impl Screen {
    /// Whether the head takes at least 1.4 times what its screen would. Of an affine type, parts of a weight may be larger
    /// than the weight, and nothing is proven; small floats are small anyway.
    pub(crate) fn pays(head: &Region) -> bool {
        if head.dtype().has_scales_beside() {
            return false;
        }
        let tile = tile_bytes(blocks(head));
        let of_head = head.row_bytes().saturating_mul(LANES);
        head.row_len().is_multiple_of(BLOCK) && of_head >= tile * 7 / 5 && head.rows() >= LEAST_ROWS
    }

    /// Copies the head; `None` when it holds numbers that the copy cannot come near.
    pub(crate) fn new(
        kernels: &Kernels,
        pool: &Pool,
        head: &Matrix,
        cancel: &CancelToken,
    ) -> Result<Option<Self>> {
        let weight = head.weight();
        let exhausted = || {
            Error::new(ErrorKind::OutOfMemory, "cannot reserve memory for a compact copy of the head")
                .with("tensor", weight.name())
                .with_hint("load without head screening")
        };
        let (tile_bytes, n_in) = (tile_bytes(blocks(weight)), weight.row_len());
        let len = weight.rows().div_ceil(LANES).checked_mul(tile_bytes).ok_or_else(exhausted)?;
        let mut copy = MmapMut::map_anon(len).map_err(|e| exhausted().with_source(e))?;
        #[cfg(target_os = "linux")]
        // Where the system has no huge pages, ordinary ones serve.
        let _ = copy.advise(memmap2::Advice::HugePage);
        let scratch: Vec<_> =
            (0..pool.threads()).map(|_| Mutex::new((vec![0.0; n_in], vec![0.0; n_in / BLOCK]))).collect();
        // Of weights that the copy's scales cannot hold, nothing is proven.
        let sound = AtomicBool::new(true);
        pool.rows(&mut copy, tile_bytes, 4, |tile, bytes, thread| {
            if cancel.is_cancelled() {
                return;
            }
            let mut own = scratch[thread].lock().unwrap_or_else(PoisonError::into_inner);
            let (values, distances) = &mut *own;
            for lane in 0..LANES.min(weight.rows() - tile * LANES) {
                weight.decode(tile * LANES + lane, values);
                // SAFETY: there is room for a distance of each block, and the bytes are a tile's.
                let holds = unsafe { (kernels.compress)(values, lane, distances, bytes.as_mut_ptr()) };
                if !holds {
                    sound.store(false, Ordering::Relaxed);
                }
            }
        });
        cancel.check()?;
        Ok(sound.into_inner().then_some(Self { copy }))
    }

    /// Bytes it takes.
    pub(crate) fn bytes(&self) -> u64 {
        self.copy.len() as u64
    }

    /// Finds the largest logits of each row, into the threads' lists; `None` when a bound is no number.
    pub(super) fn top(&self, products: &mut Products<'_>, head: &Matrix, k: usize) -> Option<()> {
        self.bounds(products, head, listed(head, k))?;
        let exact = settle(products, head, products.kernels, k)?;
        exact.all_above(products);
        Some(())
    }

    /// Multiplies with the copy: lists rows with the `first` largest products, and notes what each
    /// logit is at most.
    fn bounds(&self, products: &mut Products<'_>, head: &Matrix, first: usize) -> Option<()> {
        let (n_out, blocks, n_rows) = (head.n_out(), blocks(head.weight()), products.n_rows);
        let tiles = n_out.div_ceil(LANES);
        let x = products.coarse()?;
        let Products { scratch, pool, kernels, .. } = products;
        let stride = STRIP * LANES;
        scratch.prepare(pool, n_rows, n_rows * stride, first);
        grow(&mut scratch.upper, n_rows * tiles * LANES);
        let product = Coarse {
            tiles: self.copy.as_ptr(),
            blocks,
            x,
            rows: n_rows,
            norms: scratch.norms.as_ptr(),
            apart: scratch.apart.as_ptr(),
            out: std::ptr::null_mut(),
            stride,
            from: 0,
            upper: scratch.upper.as_mut_ptr(),
            upper_stride: tiles * LANES,
        };
        let (product, all) = (&product, &scratch.largest);
        trace::next(|| [self.copy.len(), 2 * tiles * LANES * blocks * BLOCK * n_rows].map(|n| n as u64));
        pool.run(tiles.div_ceil(STRIP), 1, &|strips, thread| {
            let mut own = all[thread].lock().unwrap_or_else(PoisonError::into_inner);
            let Largest { logits, rows, .. } = &mut *own;
            for strip in strips {
                let tiles = strip * STRIP..((strip + 1) * STRIP).min(tiles);
                let product = Coarse { out: logits.as_mut_ptr(), from: tiles.start, ..*product };
                // SAFETY: the copy and the upper bounds have all tiles, and the output a strip's of each row;
                // strips are given out once. The machine has the instructions.
                unsafe { (kernels.coarse)(&product, tiles.clone()) };
                let columns = tiles.start * LANES..(tiles.end * LANES).min(n_out);
                for (top, logits) in rows.iter_mut().zip(logits.chunks_exact(stride)).take(n_rows) {
                    top.see(columns.start, &logits[..columns.len()]);
                }
            }
        });
        Some(())
    }
}

/// Rows whose logits are computed for a threshold, where `k` are wanted.
pub(super) fn listed(head: &Matrix, k: usize) -> usize {
    (k + LANES / 2).next_multiple_of(LANES).min(head.n_out())
}

/// Computes the logits of the rows that the threads' lists hold, and notes the k-th largest for each activation row; `None`
/// where one is no number. Rows whose logits can be as large are to follow.
pub(super) fn settle<'a>(
    products: &mut Products<'_>,
    head: &'a Matrix,
    kernels: &'a Kernels,
    k: usize,
) -> Option<Exact<'a>> {
    let (rows, scratch) = (products.n_rows, &mut *products.scratch);
    let (mut ids, mut ends) = (std::mem::take(&mut scratch.first), std::mem::take(&mut scratch.ends));
    ids.clear();
    ends.clear();
    for row in 0..rows {
        ids.extend(scratch.merged(row).ids());
        ends.push(ids.len());
    }
    // SAFETY: the rows and the head stay where they are until this returns, and as long as what it returns is used.
    let work = unsafe { SharedWork::new(products.exactly(head)) };
    let exact = Exact { head, kernels, work };
    let found = exact.kth(products, &ids, &ends, k);
    (products.scratch.first, products.scratch.ends) = (ids, ends);
    found?;
    Some(exact)
}

/// Logits of single rows of the head.
pub(super) struct Exact<'a> {
    head: &'a Matrix,
    kernels: &'a Kernels,
    work: SharedWork,
}

impl Exact<'_> {
    /// Notes the k-th largest logit of each activation row among some rows', which end there in `ids`; `None` where
    /// one is no number.
    fn kth(&self, products: &mut Products<'_>, ids: &[u32], ends: &[usize], k: usize) -> Option<()> {
        let row_bytes = self.head.weight().own_row_bytes();
        let Products { scratch, pool, .. } = products;
        scratch.prepare(pool, ends.len(), 0, k);
        for own in &mut scratch.largest {
            // For every thread, as any may compute candidates.
            let own = own.get_mut().unwrap_or_else(PoisonError::into_inner);
            grow(&mut own.gathered, LANES * row_bytes);
            own.candidates.clear();
            own.candidates.reserve(4 * LANES);
        }
        let own = scratch.largest.first_mut()?.get_mut().unwrap_or_else(PoisonError::into_inner);
        ids.iter().for_each(|id| self.will_need(*id));
        scratch.least.clear();
        let mut start = 0;
        for (row, (end, top)) in ends.iter().zip(&mut own.rows).enumerate() {
            ids[start..*end].chunks(LANES).for_each(|ids| self.gather(row, ids, &mut own.gathered, top));
            scratch.least.push(top.least());
            top.reset(k);
            start = *end;
        }
        scratch.least.iter().all(|least| least.is_finite()).then_some(())
    }

    /// Lists for each activation row the logits of all rows that may have one of its `least` or more.
    pub(super) fn all_above(&self, products: &Products<'_>) {
        let (n_out, scratch) = (self.head.n_out(), &*products.scratch);
        let (all, least, upper) = (&scratch.largest, &scratch.least, &scratch.upper);
        let stride = n_out.next_multiple_of(LANES);
        // A unit is a strip of tiles.
        products.pool.run(n_out.div_ceil(STRIP * LANES), 4, &|strips, thread| {
            let mut own = all[thread].lock().unwrap_or_else(PoisonError::into_inner);
            let columns = strips.start * STRIP * LANES..(strips.end * STRIP * LANES).min(n_out);
            for (row, (least, upper)) in least.iter().zip(upper.chunks_exact(stride)).enumerate() {
                self.above(row, *least, columns.clone(), upper, &mut own);
            }
        });
    }

    /// The same of the rows that were noted.
    pub(super) fn all_noted(&self, products: &Products<'_>) {
        let Products { scratch, pool, .. } = products;
        let (all, rows) = (&scratch.largest, scratch.least.iter().zip(&scratch.apart));
        // Each thread has those of its own part, which take about as long.
        pool.run(all.len(), 1, &|parts, _| {
            for part in parts {
                let mut own = all[part].lock().unwrap_or_else(PoisonError::into_inner);
                let Largest { gathered, candidates, rows: tops, noted, .. } = &mut *own;
                for (row, (((least, apart), top), noted)) in rows.clone().zip(tops).zip(noted).enumerate() {
                    candidates.clear();
                    candidates.extend(noted.above(least - apart));
                    candidates.iter().take(LANES).for_each(|id| self.will_need(*id));
                    for (at, ids) in candidates.chunks(LANES).enumerate() {
                        let next = candidates.iter().skip((at + 1) * LANES).take(LANES);
                        next.for_each(|id| self.will_need(*id));
                        self.gather(row, ids, gathered, top);
                    }
                }
            }
        });
    }

    /// Lists the logits of an activation row that may be `least` or more, of some columns.
    fn above(&self, row: usize, least: f32, columns: Range<usize>, upper: &[f32], own: &mut Largest) {
        let Largest { gathered, candidates, rows, .. } = own;
        let top = &mut rows[row];
        for from in columns.clone().step_by(LANES) {
            let upper = &upper[from..(from + LANES).min(columns.end)];
            // What is no number tells nothing, so that it counts.
            if upper.iter().fold(true, |all, upper| all & (*upper < least)) {
                continue;
            }
            let above = (from as u32..).zip(upper).filter(|(_, upper)| upper.is_nan() || **upper >= least);
            if above.clone().count() >= MANY {
                self.tile(row, from, top);
                continue;
            }
            for (id, _) in above {
                self.will_need(id);
                candidates.push(id);
            }
            // The last ones are still on their way.
            if candidates.len() >= 2 * LANES {
                self.gather(row, &candidates[..LANES], gathered, top);
                candidates.drain(..LANES);
            }
        }
        candidates.chunks(LANES).for_each(|ids| self.gather(row, ids, gathered, top));
        candidates.clear();
    }
}

impl Exact<'_> {
    fn will_need(&self, id: u32) {
        self.kernels.prefetch(self.head.weight().memory_of(id as usize));
    }

    /// Up to sixteen rows, which are put together first.
    fn gather(&self, row: usize, ids: &[u32], to: &mut [u8], top: &mut Top) {
        let row_bytes = self.head.weight().own_row_bytes();
        // The last row fills the tile up.
        for (lane, to) in to.chunks_exact_mut(row_bytes).enumerate().take(LANES) {
            self.head.weight().copy_row(ids[lane.min(ids.len() - 1)] as usize, to);
        }
        // SAFETY: there is such a row of activations; sixteen whole rows have just been put there.
        let logits = unsafe { self.sixteen(self.work.get().of_row(row).gathered(to.as_ptr()), 0) };
        for (id, logit) in ids.iter().zip(logits) {
            top.see(*id as usize, &[logit]);
        }
    }

    /// A tile's rows where they are, `from` on.
    fn tile(&self, row: usize, from: usize, top: &mut Top) {
        let end = (from + LANES).min(self.head.n_out());
        // SAFETY: there is such a row of activations, and such a tile, as only larger heads are screened.
        let logits = unsafe { self.sixteen(self.work.get().of_row(row).up_to(end), from) };
        top.see(from, &logits[..end - from]);
    }

    /// Products with a tile's rows, `from` on.
    ///
    /// # Safety
    /// The work is of one row of activations, and has the tile.
    unsafe fn sixteen(&self, work: Work, from: usize) -> [f32; LANES] {
        let mut logits = [0.0; LANES];
        let tile = from / LANES;
        // SAFETY: the caller's promise; there is room for a tile's outputs.
        unsafe { work.writing_to(logits.as_mut_ptr(), from).tiles(tile..tile + 1, std::ptr::null_mut()) };
        logits
    }
}
