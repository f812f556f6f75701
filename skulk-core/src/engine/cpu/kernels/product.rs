//! What is a product with a quantised matrix? Integer sums by block, scaled and added in one order.
//!
//! An output element is, over the blocks of 32 in their order,
//! `sum = fma(Σ w·x as f32, weight scale · activation scale, sum)`, then, for types with a minimum,
//! `sum = fma(min, activation scale · Σ x, sum)`; for types with a scale for every 16 elements, over
//! those. The integer sums are exact, so the result has the same bits however many rows are
//! computed together, in which tiles, and on which instruction set.
//!
//! Sixteen weight rows are worked on together, one in each lane. One activation row multiplies the
//! bytes as they come out of memory. For more rows a tile is first packed into scratch memory that
//! stays in the cache, and then serves them all.
#![allow(unsafe_op_in_unsafe_fn, reason = "functions and traits state their contracts")]

use std::ops::Range;

use super::format::{Format, Layout, Raw, Scales};
use super::rounding::Activations;
use super::simd::{BLOCK, LANES, Rows, Simd};

/// A product under way. Threads may work on different tiles at the same time.
#[derive(Clone, Copy)]
pub(super) struct Product {
    pub(super) weights: *const u8,
    pub(super) row_bytes: usize,
    pub(super) n_out: usize,
    /// Blocks of 32 in a row.
    pub(super) blocks: usize,
    /// Blocks in a row of activations. Where weight rows are padded they are fewer: what lies behind is left out.
    pub(super) x_blocks: usize,
    pub(super) x: Activations,
    pub(super) rows: usize,
    pub(super) bias: *const f32,
    /// `[rows, stride]`; the first column is the product's column `from`.
    pub(super) out: *mut f32,
    pub(super) stride: usize,
    pub(super) from: usize,
}

/// How far behind the tile memory is asked for ahead of its use: enough to hide its latency, and little
/// of a cache.
const AHEAD: usize = 16 << 10;

/// What the lower digit's place is worth in the upper one's.
pub(super) const BASE: i32 = 255;

impl Product {
    /// Rows that are worked on for outputs `16 · tile` and so on. The last tile of many begins
    /// earlier, so that it is whole; matrices of fewer rows go row by row, the same one in all lanes.
    #[inline(always)]
    fn tile(&self, tile: usize) -> (usize, Rows) {
        if self.n_out < LANES {
            return (tile, Rows::new(self.weights.wrapping_add(tile * self.row_bytes), 0));
        }
        let first = (tile * LANES).min(self.n_out - LANES);
        (first, Rows::new(self.weights.wrapping_add(first * self.row_bytes), self.row_bytes))
    }

    /// Stores a tile's outputs, of rows `first` and so on.
    #[inline(always)]
    unsafe fn store<S: Simd>(&self, row: usize, tile: usize, first: usize, sum: S::F) {
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
            let own = if self.n_out < LANES { first..first + 1 } else { tile * LANES..self.n_out };
            for at in own {
                let bias = if self.bias.is_null() { 0.0 } else { *self.bias.add(at) };
                *out.add(at - self.from) = lanes[at - first] + bias;
            }
        }
    }
}

/// Tiles of a matrix with `n_out` rows.
pub(super) const fn tiles(n_out: usize) -> usize {
    if n_out < LANES { n_out } else { n_out.div_ceil(LANES) }
}

/// What to subtract for each unit of activation, as weights went in shifted.
pub(super) const fn shift<S: Simd, F: Format>() -> i32 {
    if S::SIGNED {
        0
    } else if F::Layout::SIGNED {
        128
    } else {
        F::ZERO
    }
}

/// The integers of block `j` as columns of what [`Simd::dot4`] takes.
#[inline(always)]
unsafe fn columns<S: Simd, F: Format>(raw: &Raw<S>, j: usize) -> [S::I; 8] {
    let mut columns = F::columns::<S>(raw, j);
    for column in &mut columns {
        if S::SIGNED && !F::Layout::SIGNED && F::ZERO != 0 {
            *column = S::bytes_sub(*column, F::ZERO as u8);
        } else if !S::SIGNED && F::Layout::SIGNED {
            *column = S::ixor(*column, S::isplat(i32::from_le_bytes([128; 4])));
        }
    }
    columns
}

/// The activations of one row and block, as a kernel walks along them.
#[derive(Clone, Copy)]
struct Place {
    digits: *const i8,
    /// Index of the block among all.
    at: usize,
}

/// `Σ w·x` of columns `from..to`, where `sum` is of the same activations.
#[inline(always)]
unsafe fn dot<S: Simd, F: Format, const EXACT: bool, const FROM: usize, const TO: usize>(
    columns: &[S::I; 8],
    digits: *const i8,
    sum: i32,
) -> S::I {
    let correction = S::isplat(sum.wrapping_mul(-shift::<S, F>()));
    let mut total = if EXACT { S::isplat(0) } else { correction };
    let mut k = FROM;
    while k < TO {
        total = dot4::<S, F>(total, columns[k], digits.add(4 * k));
        k += 1;
    }
    if EXACT {
        total = S::iadd(S::imul(total, S::isplat(BASE)), correction);
        let mut k = FROM;
        while k < TO {
            total = dot4::<S, F>(total, columns[k], digits.add(BLOCK + 4 * k));
            k += 1;
        }
    }
    total
}

#[inline(always)]
unsafe fn dot4<S: Simd, F: Format>(sum: S::I, weights: S::I, x: *const i8) -> S::I {
    if F::Layout::SIGNED { S::dot4::<true>(sum, weights, x) } else { S::dot4::<false>(sum, weights, x) }
}

#[inline(always)]
unsafe fn dot_packed<S: Simd, L: Layout, const N: usize>(
    sums: &mut [S::I; N],
    packed: *const i32,
    columns: usize,
    x: *const i8,
    distance: usize,
) {
    if L::SIGNED {
        S::dot_packed::<true, N>(sums, packed, columns, x, distance);
    } else {
        S::dot_packed::<false, N>(sums, packed, columns, x, distance);
    }
}

/// Adds a block's contribution to 16 outputs.
#[inline(always)]
unsafe fn add_block<S: Simd, F: Format, const EXACT: bool>(
    x: &Activations,
    place: Place,
    columns: &[S::I; 8],
    scale: [S::F; 2],
    min: [S::F; 2],
    mut sum: S::F,
) -> S::F {
    let Place { digits, at } = place;
    let d = S::splat(*x.scale.add(at));
    if F::Layout::HALVES {
        let sums = [*x.half_sum.add(2 * at), *x.half_sum.add(2 * at + 1)];
        let first = dot::<S, F, EXACT, 0, 4>(columns, digits, sums[0]);
        sum = S::fma(S::to_f32(first), S::mul(scale[0], d), sum);
        let second = dot::<S, F, EXACT, 4, 8>(columns, digits, sums[1]);
        sum = S::fma(S::to_f32(second), S::mul(scale[1], d), sum);
        if F::Layout::MIN {
            sum = S::fma(min[0], S::splat(*x.scaled_half_sum.add(2 * at)), sum);
            sum = S::fma(min[1], S::splat(*x.scaled_half_sum.add(2 * at + 1)), sum);
        }
    } else {
        let total = dot::<S, F, EXACT, 0, 8>(columns, digits, *x.sum.add(at));
        sum = S::fma(S::to_f32(total), S::mul(scale[0], d), sum);
        if F::Layout::MIN {
            sum = S::fma(min[0], S::splat(*x.scaled_sum.add(at)), sum);
        }
    }
    sum
}

/// Memory for scales. To be made once: not all instruction sets can keep it in registers, and filling it
/// would cost as much as using it.
#[inline(always)]
unsafe fn no_scales<S: Simd>() -> Scales<S> {
    Scales { scale: [S::zero(); 16], min: [S::zero(); 16] }
}

/// Scales and minima of block `j`.
#[inline(always)]
fn of_block<S: Simd, F: Format>(scales: &Scales<S>, j: usize) -> ([S::F; 2], [S::F; 2]) {
    if F::Layout::HALVES {
        ([scales.scale[2 * j], scales.scale[2 * j + 1]], [scales.min[2 * j], scales.min[2 * j + 1]])
    } else {
        ([scales.scale[j]; 2], [scales.min[j]; 2])
    }
}

/// One activation row by the weight rows of `tiles`.
///
/// # Safety
/// The product's addresses are valid and the machine has `S`'s instructions.
#[inline(always)]
pub(super) unsafe fn gemv<S: Simd, F: Format, const EXACT: bool>(product: &Product, tiles: Range<usize>) {
    let digits = if EXACT { 2 * BLOCK } else { BLOCK };
    // Sixteen rows at once are no pattern that the hardware foresees, but their bytes are: as many as
    // were used are asked for, further on.
    let (tile_bytes, block_bytes) = (LANES * product.row_bytes, LANES * F::BYTES / F::BLOCKS);
    let lines = const { (LANES * F::BYTES / F::BLOCKS).div_ceil(64) };
    // But nothing of what happens to lie behind the matrix.
    let end = product.weights.wrapping_add(product.n_out * product.row_bytes);
    let mut scales = no_scales::<S>();
    // The first tiles, which nobody has asked for yet.
    let first = product.weights.wrapping_add(tiles.start * tile_bytes);
    for line in 0..(tile_bytes + AHEAD).min(tiles.len() * tile_bytes) / 64 {
        S::prefetch(first.wrapping_add(64 * line));
    }
    for tile in tiles {
        let (first, rows) = product.tile(tile);
        let mut ahead = product.weights.wrapping_add((tile + 1) * tile_bytes + AHEAD);
        let mut sum = S::zero();
        let mut block = 0;
        while block < product.blocks {
            let at = block / F::BLOCKS * F::BYTES;
            F::scales::<S>(&rows, at, &mut scales);
            for group in 0..F::BLOCKS / F::TOGETHER {
                let raw = F::read::<S>(&rows, at, group);
                for j in group * F::TOGETHER..(group + 1) * F::TOGETHER {
                    if block + j >= product.x_blocks {
                        break;
                    }
                    if ahead < end {
                        for line in 0..lines {
                            S::prefetch(ahead.wrapping_add(64 * line));
                        }
                    }
                    ahead = ahead.wrapping_add(block_bytes);
                    let columns = columns::<S, F>(&raw, j);
                    let (scale, min) = of_block::<S, F>(&scales, j);
                    let place = Place { digits: product.x.digits.add((block + j) * digits), at: block + j };
                    sum = add_block::<S, F, EXACT>(&product.x, place, &columns, scale, min, sum);
                }
            }
            block += F::BLOCKS;
        }
        product.store::<S>(0, tile, first, sum);
    }
}

/// f32 or i32 vectors that a packed block takes.
const fn packed_vectors<L: Layout>() -> usize {
    let scales = if L::HALVES { 2 } else { 1 };
    8 + scales + if L::MIN { scales } else { 0 }
}

/// Elements of scratch memory for a packed tile of rows of `blocks` blocks.
pub(super) const fn packed_len<L: Layout>(blocks: usize) -> usize {
    blocks * packed_vectors::<L>() * LANES
}

/// Puts a tile into the order in which [`multiply`] reads it.
///
/// # Safety
/// As [`gemv`], and there is room for [`packed_len`] elements.
#[inline(always)]
pub(super) unsafe fn pack<S: Simd, F: Format>(product: &Product, tile: usize, mut to: *mut i32) {
    let (_, rows) = product.tile(tile);
    let mut raw = [S::isplat(0); 24];
    let mut scales = no_scales::<S>();
    let mut block = 0;
    while block < product.blocks {
        let at = block / F::BLOCKS * F::BYTES;
        F::scales::<S>(&rows, at, &mut scales);
        for j in 0..F::BLOCKS {
            if j % F::TOGETHER == 0 {
                raw = F::read::<S>(&rows, at, j / F::TOGETHER);
            }
            for column in S::ordered(columns::<S, F>(&raw, j)) {
                S::istore(to, column);
                to = to.add(LANES);
            }
            let (scale, min) = of_block::<S, F>(&scales, j);
            for i in 0..if F::Layout::HALVES { 2 } else { 1 } {
                S::store(to.cast(), scale[i]);
                to = to.add(LANES);
                if F::Layout::MIN {
                    S::store(to.cast(), min[i]);
                    to = to.add(LANES);
                }
            }
        }
        block += F::BLOCKS;
    }
}

/// `N` activation rows from `row` on by a packed tile, from whose integers [`shift`] is to be subtracted.
///
/// # Safety
/// As [`gemv`], and the tile has been packed.
#[inline(always)]
pub(super) unsafe fn multiply<S: Simd, L: Layout, const EXACT: bool, const N: usize>(
    product: &Product,
    tile: usize,
    mut packed: *const i32,
    row: usize,
    shift: i32,
) {
    let digits = if EXACT { 2 * BLOCK } else { BLOCK };
    let (x, blocks) = (&product.x, product.x_blocks);
    // Where there is a minimum, zero is zero.
    let shifted = !S::SIGNED && !L::MIN;
    let mut sums = [S::zero(); N];
    for block in 0..blocks {
        // Counts in elements from the first of the rows.
        let first = row * blocks + block;
        let of_row = |n: usize| first + n * blocks;
        let parts = if L::HALVES { 2 } else { 1 };
        let scales = packed.add(8 * LANES);
        for part in 0..parts {
            let columns = packed.add(part * 4 * LANES);
            let n_columns = 8 / parts;
            let correction = |n: usize| {
                let sum =
                    if L::HALVES { *x.half_sum.add(2 * of_row(n) + part) } else { *x.sum.add(of_row(n)) };
                sum.wrapping_mul(-shift)
            };
            let mut totals = [S::isplat(0); N];
            if !EXACT && shifted {
                for (n, total) in totals.iter_mut().enumerate() {
                    *total = S::isplat(correction(n));
                }
            }
            let base = x.digits.add(first * digits + part * 16).cast_const();
            dot_packed::<S, L, N>(&mut totals, columns, n_columns, base, blocks * digits);
            if EXACT {
                for (n, total) in totals.iter_mut().enumerate() {
                    *total = S::imul(*total, S::isplat(BASE));
                    if shifted {
                        *total = S::iadd(*total, S::isplat(correction(n)));
                    }
                }
                dot_packed::<S, L, N>(&mut totals, columns, n_columns, base.add(BLOCK), blocks * digits);
            }
            let scale = S::load(scales.add(part * if L::MIN { 2 } else { 1 } * LANES).cast());
            for (n, sum) in sums.iter_mut().enumerate() {
                let d = S::splat(*x.scale.add(of_row(n)));
                *sum = S::fma(S::to_f32(totals[n]), S::mul(scale, d), *sum);
            }
        }
        if L::MIN {
            for part in 0..parts {
                let min = S::load(scales.add((2 * part + 1) * LANES).cast());
                for (n, sum) in sums.iter_mut().enumerate() {
                    let of_block = if L::HALVES {
                        *x.scaled_half_sum.add(2 * of_row(n) + part)
                    } else {
                        *x.scaled_sum.add(of_row(n))
                    };
                    *sum = S::fma(min, S::splat(of_block), *sum);
                }
            }
        }
        packed = packed.add(const { packed_vectors::<L>() } * LANES);
    }
    let (first_out, _) = product.tile(tile);
    for (n, sum) in sums.into_iter().enumerate() {
        product.store::<S>(row + n, tile, first_out, sum);
    }
}

/// [`pack`] of a storage type.
type Pack = unsafe fn(&Product, usize, *mut i32);
/// [`multiply`] of its layout.
type Multiply = unsafe fn(&Product, usize, *const i32, usize, i32);

/// The functions of a product of many rows.
#[derive(Clone, Copy)]
pub(super) struct Gemm {
    pub(super) pack: Pack,
    /// Each for so many rows at a time: most first, single ones last.
    pub(super) multiply: [(usize, Multiply); 3],
    pub(super) shift: i32,
    /// Elements of a packed tile of rows of so many blocks.
    pub(super) packed_len: fn(usize) -> usize,
}

impl Gemm {
    /// All activation rows by the weight rows of `tiles`.
    ///
    /// # Safety
    /// As [`gemv`]; `packed` has room for a packed tile.
    pub(super) unsafe fn run(&self, product: &Product, tiles: Range<usize>, packed: *mut i32) {
        for tile in tiles {
            // SAFETY: the caller's promise.
            unsafe { (self.pack)(product, tile, packed) };
            let mut row = 0;
            for (n, multiply) in self.multiply {
                while row + n <= product.rows {
                    // SAFETY: as above, and there are so many rows.
                    unsafe { multiply(product, tile, packed, row, self.shift) };
                    row += n;
                }
            }
        }
    }
}
