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

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use memmap2::MmapMut;

use super::compact::{Coarse, tile_bytes};
use super::linear::{Addresses, Moved, Products, STRIP, Seen, above, grow};
use super::simd::{BLOCK, LANES};
use super::{Kernels, Matrix};
use crate::cancel::CancelToken;
use crate::engine::cpu::pool::Pool;
use crate::engine::top::Top;
use crate::error::{Error, ErrorKind, Result};
use crate::weights::{Region, quant};

/// Rows worth a screen: smaller heads are in the cache or cost little anyway.
const LEAST_ROWS: usize = 4096;
/// Candidates of a tile with which the whole tile is computed where it is.
const MANY: usize = LANES / 2;
/// Activations that [`rounding`](super::rounding) takes for zero.
const TINY: f64 = 1e-30;

/// A compact copy of a head.
pub(crate) struct Screen {
    copy: MmapMut,
}

/// Blocks of a row.
fn blocks(head: &Region) -> usize {
    head.row_len() / BLOCK
}

impl Screen {
    /// Whether the head takes at least 1.4 times what its screen would.
    pub(crate) fn pays(head: &Region) -> bool {
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
        let rooms: Vec<_> =
            (0..pool.threads()).map(|_| Mutex::new((vec![0.0; n_in], vec![0.0; n_in / BLOCK]))).collect();
        // Of weights that the copy's scales cannot hold, nothing is proven.
        let sound = AtomicBool::new(true);
        pool.rows(&mut copy, tile_bytes, 4, |tile, bytes, thread| {
            if cancel.is_cancelled() {
                return;
            }
            let mut room = rooms[thread].lock().unwrap_or_else(PoisonError::into_inner);
            let (values, distances) = &mut *room;
            for lane in 0..LANES.min(weight.rows() - tile * LANES) {
                quant::dequantise(weight.dtype(), head.row(tile * LANES + lane), values);
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

    /// Finds the largest logits of one row, into the threads' lists; `None` when the bound is no number.
    pub(super) fn top(&self, products: &mut Products<'_>, head: &Matrix, k: usize) -> Option<()> {
        let first = (k + LANES / 2).next_multiple_of(LANES).min(head.n_out());
        self.bounds(products, head, first)?;
        let room = &mut *products.room;
        let mut ids = std::mem::take(&mut room.first);
        ids.clear();
        ids.extend(room.merged(0).ids());
        let exact = Exact { head, kernels: products.kernels, work: Addresses(products.exactly(head)) };
        let least = exact.kth(products, &ids, k);
        products.room.first = ids;
        let least = least.filter(|least| least.is_finite())?;
        exact.all_above(products, least);
        Some(())
    }

    /// Multiplies with the copy: lists rows with the `first` largest products, and notes what each
    /// logit is at most.
    fn bounds(&self, products: &mut Products<'_>, head: &Matrix, first: usize) -> Option<()> {
        let (n_out, blocks) = (head.n_out(), blocks(head.weight()));
        let tiles = n_out.div_ceil(LANES);
        let x = products.coarse();
        let Moved { norm, fine, coarse } = products.moved();
        let gamma = (8 * blocks + 64) as f64 / f64::from(1 << 24);
        let (fine, all) = (fine + TINY * (blocks * BLOCK) as f64, norm + coarse + fine);
        let apart = above(coarse + fine + 2.0 * gamma * all);
        if !apart.is_finite() {
            return None;
        }
        let Products { room, pool, kernels, .. } = products;
        room.prepare(pool, 1, STRIP * LANES, first);
        grow(&mut room.upper, tiles * LANES);
        let product = Coarse {
            tiles: self.copy.as_ptr(),
            blocks,
            x,
            norms: room.norms.as_ptr(),
            apart,
            out: std::ptr::null_mut(),
            from: 0,
            upper: room.upper.as_mut_ptr(),
        };
        let (product, all) = (&product, &room.seen);
        pool.run(tiles.div_ceil(STRIP), 1, &|strips, thread| {
            let mut seen = all[thread].lock().unwrap_or_else(PoisonError::into_inner);
            let Seen { logits, rows, .. } = &mut *seen;
            for strip in strips {
                let tiles = strip * STRIP..((strip + 1) * STRIP).min(tiles);
                let product = Coarse { out: logits.as_mut_ptr(), from: tiles.start, ..*product };
                // SAFETY: the copy and the upper bounds have all tiles, and the output a strip's;
                // strips are given out once. The machine has the instructions.
                unsafe { (kernels.coarse)(&product, tiles.clone()) };
                let columns = tiles.start * LANES..(tiles.end * LANES).min(n_out);
                rows[0].see(columns.start, &logits[..columns.len()]);
            }
        });
        Some(())
    }
}

/// Logits of single rows of the head.
struct Exact<'a> {
    head: &'a Matrix,
    kernels: &'a Kernels,
    work: Addresses,
}

impl Exact<'_> {
    /// The k-th largest of some rows' logits.
    fn kth(&self, products: &mut Products<'_>, ids: &[u32], k: usize) -> Option<f32> {
        let row_bytes = self.head.row(0).len();
        products.room.prepare(products.pool, 1, STRIP * LANES, k);
        for seen in &mut products.room.seen {
            // For every thread, as any may compute candidates.
            let seen = seen.get_mut().unwrap_or_else(PoisonError::into_inner);
            grow(&mut seen.gathered, LANES * row_bytes);
            seen.candidates.clear();
            seen.candidates.reserve(4 * LANES);
        }
        let seen = products.room.seen.first_mut()?.get_mut().unwrap_or_else(PoisonError::into_inner);
        ids.iter().for_each(|id| self.will_need(*id));
        ids.chunks(LANES).for_each(|ids| self.gather(ids, &mut seen.gathered, &mut seen.rows[0]));
        let least = seen.rows[0].least();
        seen.rows[0].reset(k);
        Some(least)
    }

    /// Lists the logits of all rows that may have one of `least` or more.
    fn all_above(&self, products: &Products<'_>, least: f32) {
        let (n_out, room) = (self.head.n_out(), &*products.room);
        let (upper, all) = (&room.upper[..n_out], &room.seen);
        // A unit is a strip of tiles.
        products.pool.run(n_out.div_ceil(STRIP * LANES), 4, &|strips, thread| {
            let mut seen = all[thread].lock().unwrap_or_else(PoisonError::into_inner);
            let Seen { gathered, candidates, rows, .. } = &mut *seen;
            let columns = strips.start * STRIP * LANES..(strips.end * STRIP * LANES).min(n_out);
            for from in columns.clone().step_by(LANES) {
                let upper = &upper[from..(from + LANES).min(columns.end)];
                // What is no number tells nothing, so that it counts.
                if upper.iter().fold(true, |all, upper| all & (*upper < least)) {
                    continue;
                }
                let above =
                    (from as u32..).zip(upper).filter(|(_, upper)| upper.is_nan() || **upper >= least);
                if above.clone().count() >= MANY {
                    self.tile(from, &mut rows[0]);
                    continue;
                }
                for (id, _) in above {
                    self.will_need(id);
                    candidates.push(id);
                }
                // The last ones are still on their way.
                if candidates.len() >= 2 * LANES {
                    self.gather(&candidates[..LANES], gathered, &mut rows[0]);
                    candidates.drain(..LANES);
                }
            }
            candidates.chunks(LANES).for_each(|ids| self.gather(ids, gathered, &mut rows[0]));
            candidates.clear();
        });
    }
}

impl Exact<'_> {
    fn will_need(&self, id: u32) {
        self.kernels.prefetch(self.head.row(id as usize));
    }

    /// Up to sixteen rows, which are put together first.
    fn gather(&self, ids: &[u32], room: &mut [u8], top: &mut Top) {
        let row_bytes = self.head.row(0).len();
        // The last row fills the tile up.
        for (lane, to) in room.chunks_exact_mut(row_bytes).enumerate().take(LANES) {
            to.copy_from_slice(self.head.row(ids[lane.min(ids.len() - 1)] as usize));
        }
        // SAFETY: sixteen whole rows have just been put there.
        let logits = unsafe { self.sixteen(room.as_ptr()) };
        for (id, logit) in ids.iter().zip(logits) {
            top.see(*id as usize, &[logit]);
        }
    }

    /// Sixteen rows where they are, or as many as there are.
    fn tile(&self, from: usize, top: &mut Top) {
        let first = from.min(self.head.n_out() - LANES);
        // SAFETY: sixteen rows are there, as only larger heads are screened.
        let logits = unsafe { self.sixteen(self.head.row(first).as_ptr()) };
        top.see(from, &logits[from - first..]);
    }

    /// # Safety
    /// Sixteen rows are there.
    unsafe fn sixteen(&self, rows: *const u8) -> [f32; LANES] {
        let Addresses(work) = &self.work;
        let mut logits = [0.0; LANES];
        // SAFETY: the caller's promise; there is room for sixteen outputs.
        unsafe { work.gathered(rows).writing_to(logits.as_mut_ptr(), 0).one_tile() };
        logits
    }
}
