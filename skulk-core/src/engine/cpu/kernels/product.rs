//! What is a product with a quantised matrix? Integer sums by block, scaled and added in one order.
//!
//! An output element is, over the blocks of 32 in their order,
//! `sum = fma(Σ w·x as f32, weight scale · activation scale, sum)`, then, for types with a minimum,
//! `sum = fma(min, activation scale · Σ x, sum)`; for types with a scale for every 16 elements, over
//! those. The integer sums are exact, so the result has the same bits however many rows are
//! computed together, in which tiles, and on which instruction set.
//!
//! Sixteen weight rows are worked on together, one in each lane. A few activation rows multiply the
//! bytes as they come out of memory ([`direct`](super::direct)). For more rows a tile is first packed into scratch
//! memory that stays in the cache, and then serves them all ([`packed`](super::packed)).
#![allow(unsafe_op_in_unsafe_fn, reason = "functions and traits state their contracts")]

use std::ops::Range;

use super::format::{Beside, Format, Layout, Raw, Scales, Stored};
use super::rounding::Activations;
use super::simd::{LANES, Rows, Simd};

/// A product under way. Threads may work on different tiles at the same time.
#[derive(Clone, Copy)]
pub(super) struct Product {
    pub(super) weights: *const u8,
    pub(super) row_bytes: usize,
    /// Weights are tiles of woven rows.
    pub(super) woven: bool,
    pub(super) beside: Beside,
    pub(super) n_out: usize,
    /// Blocks of 32 in a row.
    pub(super) blocks: usize,
    /// Blocks in a row of activations. Where weight rows are padded they are fewer: what lies behind is left out.
    pub(super) x_blocks: usize,
    /// For kernels of many rows anything.
    pub(super) x: Activations,
    /// The same [grouped](super::rounding::group) for kernels of many rows; for others anything.
    pub(super) grouped: Activations,
    pub(super) rows: usize,
    pub(super) bias: *const f32,
    /// `[rows, stride]`; the first column is the product's column `from`.
    pub(super) out: *mut f32,
    pub(super) stride: usize,
    pub(super) from: usize,
}

impl Product {
    /// Rows that are worked on for outputs `16 · tile` and so on. The last tile of many begins
    /// earlier, so that it is whole; matrices of fewer rows go row by row, the same one in all lanes.
    #[inline(always)]
    pub(super) fn tile(&self, tile: usize) -> (usize, Stored) {
        let beside = self.beside;
        let (first, apart) =
            if self.n_out < LANES { (tile, 0) } else { ((tile * LANES).min(self.n_out - LANES), 1) };
        let rows = |start: *const u8, bytes: usize, woven: bool| {
            let start = start.wrapping_add(first * bytes);
            if woven { Rows::woven(start) } else { Rows::new(start, apart * bytes) }
        };
        let stored = Stored {
            rows: rows(self.weights, self.row_bytes, self.woven),
            scales: rows(beside.scales, beside.row_bytes, beside.woven),
            mins: rows(beside.mins, beside.row_bytes, beside.woven),
            beside,
        };
        (first, stored)
    }

    /// Stores a tile's outputs, of rows `first` and so on.
    #[inline(always)]
    pub(super) unsafe fn store<S: Simd>(&self, row: usize, tile: usize, first: usize, sum: S::F) {
        // SAFETY: the tile's columns are within a row of the output and the bias.
        unsafe {
            let out = self.out.add(row * self.stride);
            if first == tile * LANES && self.n_out >= LANES {
                let sum = if self.bias.is_null() { sum } else { S::add(sum, S::load(self.bias.add(first))) };
                S::store(out.add(first - self.from), sum);
                return;
            }
            let mut lanes = [0.0; LANES];
            S::store(lanes.as_mut_ptr(), sum);
            self.store_part(out, tile, first, &lanes);
        }
    }

    /// Stores outputs of a tile that is not whole, in a row of outputs. Not inlined: kernels need it once a matrix.
    #[inline(never)]
    unsafe fn store_part(&self, out: *mut f32, tile: usize, first: usize, lanes: &[f32; LANES]) {
        let own = if self.n_out < LANES { first..first + 1 } else { tile * LANES..self.n_out };
        for at in own {
            let bias = if self.bias.is_null() { 0.0 } else { *self.bias.add(at) };
            *out.add(at - self.from) = lanes[at - first] + bias;
        }
    }
}

/// How far behind the tile memory is asked for ahead of its use: enough to hide its latency, and little
/// of a cache.
const AHEAD: usize = 16 << 10;

/// What is asked for of weights that the hardware [foresees](Format::FORESEEN): so much in the beginning, then a line of each
/// page, at whose end it stops.
const BEGINNING: usize = 1 << 10;
const PAGE: usize = 4 << 10;

/// Memory that is asked for while a tile is read. Sixteen rows at once are no pattern that the hardware foresees, but
/// their bytes are: as many as were used are asked for, further on.
pub(super) struct Ahead {
    at: *const u8,
    foreseen: bool,
    /// From a row to the next, where others lie between them: then lines are asked for by the next tile's rows in turns.
    apart: usize,
    turn: usize,
    /// Nothing of what happens to lie behind the matrix is.
    end: *const u8,
    /// The next tile's scales and minima, of types that have them beside: where they begin, how far that is asked for,
    /// and how far it goes.
    beside: [*const u8; 2],
    asked: usize,
    most: usize,
}

impl Ahead {
    /// Asks for the first of some tiles, which nobody has asked for yet.
    #[inline(always)]
    pub(super) unsafe fn first<S: Simd, F: Format>(product: &Product, tiles: &Range<usize>, foreseen: bool) {
        let tile_bytes = LANES * product.row_bytes;
        let first = product.weights.wrapping_add(tiles.start * tile_bytes);
        let bytes = if foreseen { BEGINNING } else { tile_bytes + AHEAD };
        for line in 0..bytes.min(tiles.len() * tile_bytes) / 64 {
            S::prefetch(first.wrapping_add(64 * line));
        }
        if F::BESIDE {
            let tile_bytes = LANES * product.beside.row_bytes;
            for start in
                [product.beside.scales, product.beside.mins].into_iter().take(1 + usize::from(F::Layout::MIN))
            {
                for line in 0..tile_bytes / 64 {
                    S::prefetch(start.wrapping_add(tiles.start * tile_bytes + 64 * line));
                }
            }
        }
    }

    /// While this tile is read.
    #[inline(always)]
    pub(super) fn of<F: Format>(product: &Product, tile: usize, foreseen: bool) -> Self {
        let apart = if product.woven || product.row_bytes < 2 * (product.blocks / F::BLOCKS * F::BYTES) {
            0
        } else {
            product.row_bytes
        };
        let next = product.weights.wrapping_add((tile + 1) * LANES * product.row_bytes);
        let at = if apart > 0 { next } else { next.wrapping_add(AHEAD) };
        let end = product.weights.wrapping_add(product.n_out * product.row_bytes);
        let bytes = LANES * product.beside.row_bytes;
        let Beside { scales, mins, .. } = product.beside;
        let beside = [scales.wrapping_add((tile + 1) * bytes), mins.wrapping_add((tile + 1) * bytes)];
        let most = (product.n_out * product.beside.row_bytes).saturating_sub((tile + 1) * bytes).min(bytes);
        Self { at, foreseen, apart, turn: 0, end, beside, asked: 0, most }
    }

    /// While a block of its rows is.
    #[inline(always)]
    pub(super) unsafe fn block<S: Simd, F: Format>(&mut self) {
        let bytes = const { LANES * F::BYTES / F::BLOCKS };
        if self.foreseen {
            let page = self.at.wrapping_add(bytes).map_addr(|at| at & !(PAGE - 1));
            if page > self.at && page < self.end {
                S::prefetch(page);
            }
        } else if self.at < self.end {
            for line in 0..bytes.div_ceil(64) {
                let line = if self.apart > 0 {
                    let (row, line) = ((self.turn + line) % LANES, (self.turn + line) / LANES);
                    row * self.apart + 64 * line
                } else {
                    64 * line
                };
                S::prefetch(self.at.wrapping_add(line));
            }
        }
        if self.apart > 0 {
            self.turn += bytes.div_ceil(64);
        } else {
            self.at = self.at.wrapping_add(bytes);
        }
        // Groups of 32 in f32 have the most: a line of all rows for every block.
        if F::BESIDE && self.asked < self.most {
            S::prefetch(self.beside[0].wrapping_add(self.asked));
            if F::Layout::MIN {
                S::prefetch(self.beside[1].wrapping_add(self.asked));
            }
            self.asked += 64;
        }
    }
}

/// Tiles of a matrix with `n_out` rows.
pub(super) const fn tiles(n_out: usize) -> usize {
    if n_out < LANES { n_out } else { n_out.div_ceil(LANES) }
}

/// What to subtract for each unit of activation, as weights went in shifted. `CENTRED`: see [`columns`].
pub(super) const fn shift<S: Simd, F: Format, const CENTRED: bool>() -> i32 {
    if F::Layout::WIDE {
        if S::SIGNED_WIDE { -128 } else { 0 }
    } else if F::Layout::SIGNED {
        if S::SIGNED_WIDE { 0 } else { 128 }
    } else if S::SIGNED && CENTRED {
        0
    } else {
        F::ZERO
    }
}

/// The integers of block `j` as columns of what [`Simd::dot4`] takes. `CENTRED`: where that takes signed ones, what means zero is
/// subtracted, which pays for many activation rows; otherwise products subtract it times the activations' sum.
#[inline(always)]
pub(super) unsafe fn columns<S: Simd, F: Format, const CENTRED: bool>(raw: &Raw<S>, j: usize) -> [S::I; 8] {
    let mut columns = F::columns::<S>(raw, j);
    for column in &mut columns {
        if CENTRED && S::SIGNED && !F::Layout::SIGNED && F::ZERO != 0 {
            *column = S::bytes_sub(*column, F::ZERO as u8);
        } else if !S::SIGNED_WIDE && F::Layout::SIGNED || S::SIGNED_WIDE && F::Layout::WIDE {
            *column = S::ixor(*column, S::isplat(i32::from_le_bytes([128; 4])));
        }
    }
    columns
}

/// Memory for scales. To be made once: not all instruction sets can keep it in registers, and filling it
/// would cost as much as using it.
#[inline(always)]
pub(super) unsafe fn no_scales<S: Simd>() -> Scales<S> {
    Scales { scale: [S::zero(); 16], min: [S::zero(); 16] }
}

/// Scales and minima of block `j`.
#[inline(always)]
pub(super) fn of_block<S: Simd, F: Format>(scales: &Scales<S>, j: usize) -> ([S::F; 2], [S::F; 2]) {
    if F::Layout::HALVES {
        ([scales.scale[2 * j], scales.scale[2 * j + 1]], [scales.min[2 * j], scales.min[2 * j + 1]])
    } else {
        ([scales.scale[j]; 2], [scales.min[j]; 2])
    }
}
