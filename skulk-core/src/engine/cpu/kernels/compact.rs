//! What is a compact copy of a matrix? 4-bit integers, and how far from them the matrix is at most.
//!
//! Sixteen rows make a tile, one in each lane of four bytes. A tile's lanes hold, behind each other,
//!
//! | times | | bits |
//! |---|---|---|
//! | 1 | scale of the row's scales | 32 |
//! | 1 | scale of its distances, and the row's length: bf16, upper and lower half | 16, 16 |
//! | for every two blocks of 32: 1 | scale and distance of the first, then of the second | 8 each |
//! | 4 | the first's integers plus 8: `4k + i` in the lower half of byte i, `16 + 4k + i` in the upper | 4 each |
//! | 4 | the second's | 4 each |
//!
//! 8-bit numbers are floats with four bits of exponent and four of mantissa, the largest being 31/16,
//! and are multiplied by the row's. A block's distance is the norm of what the copy leaves out of it,
//! or more; a row's length is the norm of its copy plus that of what the copy leaves out, or more.
#![allow(unsafe_op_in_unsafe_fn, reason = "functions and traits state their contracts")]

use std::ops::Range;

use super::direct::MOST;
use super::rounding::Activations;
use super::simd::{BLOCK, LANES, Simd, Weights, each_column};

/// Bytes of 16 lanes.
const VECTOR: usize = 4 * LANES;

/// Bytes of a tile of rows of `blocks` blocks.
pub(super) const fn tile_bytes(blocks: usize) -> usize {
    VECTOR * (2 + 9 * blocks.div_ceil(2))
}

/// The largest 8-bit number.
const LARGEST: f32 = 1.9375;
/// The bits of the smallest one, 2^-15, and the place of the others' above it.
const SMALLEST: u32 = (127 - 15) << 23;
const SHIFT: u32 = 19;

/// The 8-bit number for `x`, `roundup` being half its last place or all of it but the smallest part.
fn encode(x: f32, roundup: u32) -> u8 {
    let bits = x.to_bits().saturating_sub(SMALLEST) + roundup;
    (bits >> SHIFT).min(255) as u8
}

fn decode(code: u8) -> f32 {
    f32::from_bits((u32::from(code) << SHIFT) + SMALLEST)
}

/// Rounded up to bf16.
fn bf16_above(x: f32) -> u32 {
    (x.to_bits() + 0xffff) >> 16
}

/// More than what sums of squares lose to rounding, relative to them and below that.
const MORE: f32 = 1.0 + 1e-5;
const TINY: f32 = 1e-18;

/// More than what products lose where they are too small for a float.
const UNDERFLOW: f32 = 1e-37;

/// Weights below this are not copied: reciprocals of their scales would overflow.
const SMALL: f32 = 1e-30;

/// What the largest of a block is divided by to get its scale; the best is kept. Integers go from -8
/// to 7, and larger ones are cut off: that is worth it when few are.
const DIVISORS: [f32; 5] = [7.0, 7.5, 8.0, 8.6, 9.3];

/// Copies a row into a lane of a tile; `distances` has room for one of each block. Returns whether
/// the numbers of the row are such that what is said of its copy holds.
///
/// # Safety
/// The tile has [`tile_bytes`], and the machine has `S`'s instructions.
#[inline(always)]
pub(super) unsafe fn compress<S: Simd>(
    row: &[f32],
    lane: usize,
    distances: &mut [f32],
    tile: *mut u8,
) -> bool {
    let tile = tile.add(4 * lane);
    let mut most = 0.0f32;
    for block in row.chunks_exact(BLOCK) {
        let largest = S::largest(S::load(block.as_ptr()), S::load(block.as_ptr().add(LANES)));
        // Keeps what is not a number.
        most = if largest > most || largest.is_nan() { largest } else { most };
    }
    let scale = if most < SMALL { 0.0 } else { most / (DIVISORS[0] * LARGEST) };
    let (mut square, mut farthest) = (0.0, 0.0f32);
    for (j, (block, distance)) in row.chunks_exact(BLOCK).zip(&mut *distances).enumerate() {
        let values = [S::load(block.as_ptr()), S::load(block.as_ptr().add(LANES))];
        let largest = S::largest(values[0], values[1]);
        let (mut best, mut code) = (f32::INFINITY, 0);
        let (mut integers, mut copied) = ([S::isplat(0); 2], 0.0);
        for divisor in DIVISORS {
            let try_code =
                if scale == 0.0 { 0 } else { encode(largest / (divisor * scale), 1 << (SHIFT - 1)) };
            let d = decode(try_code) * scale;
            let inverse = S::splat(if scale == 0.0 { 0.0 } else { 1.0 / d });
            let mut tried = [S::isplat(0); 2];
            let (mut off, mut own) = (S::zero(), S::zero());
            for (value, integer) in values.iter().zip(&mut tried) {
                let limited = S::min(S::max(S::mul(*value, inverse), S::splat(-8.0)), S::splat(7.0));
                *integer = S::round(limited);
                let q = S::to_f32(*integer);
                let rest = S::fma(S::splat(-d), q, *value);
                off = S::fma(rest, rest, off);
                let copy = S::mul(S::splat(d), q);
                own = S::fma(copy, copy, own);
            }
            let off = S::sum(off);
            if off < best {
                (best, code, integers, copied) = (off, try_code, tried, S::sum(own));
            }
        }
        square += copied;
        *distance = best.sqrt() * MORE + TINY;
        farthest = farthest.max(*distance);
        let at = tile.add(VECTOR * (2 + j / 2 * 9));
        *at.add(j % 2 * 2) = code;
        let low = S::iadd(integers[0], S::isplat(8));
        let high = S::iadd(integers[1], S::isplat(8));
        // Bytes as signed ones.
        let bytes = S::isar(S::ishl(S::ior(low, S::ishl(high, 4)), 24), 24);
        let mut packed = [0i8; LANES];
        S::store_i8(packed.as_mut_ptr(), bytes);
        for (k, four) in packed.chunks_exact(4).enumerate() {
            let to = at.add(VECTOR * (1 + j % 2 * 4 + k));
            std::ptr::copy_nonoverlapping(four.as_ptr().cast(), to, 4);
        }
    }
    let distance_scale = bf16_above(farthest / LARGEST * MORE);
    let scaled = f32::from_bits(distance_scale << 16);
    let mut off = 0.0;
    for (j, distance) in distances.iter().enumerate() {
        *tile.add(VECTOR * (2 + j / 2 * 9) + j % 2 * 2 + 1) = encode(distance / scaled, (1 << SHIFT) - 1);
        off += distance * distance;
    }
    let length = bf16_above((square.sqrt() + off.sqrt()) * MORE + TINY);
    tile.cast::<f32>().write_unaligned(scale);
    tile.add(VECTOR).cast::<u32>().write_unaligned(distance_scale << 16 | length);
    scale.is_finite() && scaled.is_finite() && f32::from_bits(length << 16).is_finite()
}

/// The products of rows, rounded to one digit, with a copy. Threads may work on different tiles at
/// the same time.
#[derive(Clone, Copy)]
pub(super) struct Coarse {
    pub(super) tiles: *const u8,
    /// Blocks of 32 in a row.
    pub(super) blocks: usize,
    pub(super) x: Activations,
    pub(super) rows: usize,
    /// Norms of the rows' blocks, or more: `[rows, blocks]`.
    pub(super) norms: *const f32,
    /// How far a row's product may be off for each unit of the copy's length.
    pub(super) apart: *const f32,
    /// Products, `[rows, stride]`, the first of them being that of tile `from`'s first row.
    pub(super) out: *mut f32,
    pub(super) stride: usize,
    pub(super) from: usize,
    /// What the matrix's own products are at most, of all rows: `[rows, upper_stride]`.
    pub(super) upper: *mut f32,
    pub(super) upper_stride: usize,
}

// SAFETY: threads take copies, each for tiles and outputs of its own.
unsafe impl Sync for Coarse {}

/// The 8-bit numbers in a byte of each lane.
#[inline(always)]
unsafe fn number<S: Simd>(lanes: S::I, byte: usize) -> S::F {
    let at = 8 * byte as u32;
    let bits = if at < SHIFT { S::ishl(lanes, SHIFT - at) } else { S::ishr(lanes, at - SHIFT) };
    S::as_f32(S::iadd(S::iand(bits, S::isplat(0xff << SHIFT)), S::isplat(SMALLEST as i32)))
}

/// Where activation rows have a block that they are multiplied by, as columns, and what comes of it.
struct Block<'a, S: Simd> {
    product: &'a Coarse,
    weights: Weights<S>,
    scale: S::F,
    distance: S::F,
}

impl<S: Simd> Block<'_, S> {
    /// Adds the block to `N` rows' sums of products and of what these may be off; `at` is the first row's block
    /// among all.
    #[inline(always)]
    unsafe fn add<const N: usize>(&self, at: usize, sums: &mut [S::F; N], off: &mut [S::F; N]) {
        let Coarse { blocks, x, norms, .. } = self.product;
        let mut totals = [S::isplat(0); N];
        if !S::SIGNED {
            // Integers are stored with 8 added, which signed products leave to us.
            for (n, total) in totals.iter_mut().enumerate() {
                *total = S::isplat((*x.sum.add(at + n * blocks)).wrapping_mul(-8));
            }
        }
        let digits = x.digits.add(at * BLOCK);
        S::dot_rows::<0, 8, N>(&mut totals, &self.weights, 4, digits, blocks * BLOCK);
        for n in 0..N {
            let at = at + n * blocks;
            let scale = S::mul(self.scale, S::splat(*x.scale.add(at)));
            sums[n] = S::fma(S::to_f32(totals[n]), scale, sums[n]);
            off[n] = S::fma(self.distance, S::splat(*norms.add(at)), off[n]);
        }
    }
}

/// Multiplies up to [`MOST`] activation rows from `row` on, `N` at a time, with the rows of a tile.
#[inline(always)]
unsafe fn rows<S: Simd, const N: usize>(product: &Coarse, tile: usize, row: usize, rows: usize) {
    let blocks = product.blocks;
    let first = product.tiles.add(tile * tile_bytes(blocks));
    let row_scale = S::load(first.cast());
    let both = S::iload(first.add(VECTOR).cast());
    let distance_scale = S::as_f32(S::iand(both, S::isplat(0xffff << 16)));
    let length = S::as_f32(S::ishl(both, 16));
    let (mut sums, mut off) = ([S::zero(); MOST], [S::zero(); MOST]);
    for pair in 0..blocks.div_ceil(2) {
        let at = first.add(VECTOR * (2 + 9 * pair));
        let codes = S::iload(at.cast());
        for half in 0..2 {
            let block = 2 * pair + half;
            if block == blocks {
                break;
            }
            let (scale, distance) = (number::<S>(codes, 2 * half), number::<S>(codes, 2 * half + 1));
            let bytes = at.add(VECTOR * (1 + 4 * half));
            let weights = S::weights::<false>(each_column!(|k| column::<S>(bytes, k)), 4);
            let own = Block::<S> { product, weights, scale, distance };
            let mut n = 0;
            while N > 1 && n + N <= rows {
                let (sums, off) = (sums.as_mut_ptr().add(n).cast(), off.as_mut_ptr().add(n).cast());
                own.add::<N>((row + n) * blocks + block, &mut *sums, &mut *off);
                n += N;
            }
            while n < rows {
                let (sums, off) = (sums.as_mut_ptr().add(n).cast(), off.as_mut_ptr().add(n).cast());
                own.add::<1>((row + n) * blocks + block, &mut *sums, &mut *off);
                n += 1;
            }
        }
    }
    for n in 0..rows {
        let (row, sum) = (row + n, S::mul(sums[n], row_scale));
        let most = S::fma(length, S::splat(*product.apart.add(row)), S::splat(UNDERFLOW));
        let most = S::fma(off[n], distance_scale, most);
        S::store(product.out.add(row * product.stride + (tile - product.from) * LANES), sum);
        S::store(product.upper.add(row * product.upper_stride + tile * LANES), S::add(sum, most));
    }
}

/// Integers `4k` and so on of 16 rows, from 8 vectors of lower and upper halves of bytes.
#[inline(always)]
unsafe fn column<S: Simd>(bytes: *const u8, k: usize) -> S::I {
    let bytes = S::iload(bytes.add(VECTOR * (k % 4)).cast());
    let column = S::iand(if k < 4 { bytes } else { S::ishr(bytes, 4) }, S::isplat(0x0f0f_0f0f));
    if S::SIGNED { S::bytes_sub(column, 8) } else { column }
}

/// Multiplies with the rows of `tiles`, `N` activation rows at a time. Tiles' bytes are read one after the other, which
/// hardware foresees: asking for them ahead made it slower.
///
/// # Safety
/// The addresses are valid and the machine has `S`'s instructions.
#[inline(always)]
pub(super) unsafe fn multiply<S: Simd, const N: usize>(product: &Coarse, tiles: Range<usize>) {
    for tile in tiles {
        if product.rows == 1 {
            rows::<S, N>(product, tile, 0, 1);
            continue;
        }
        for row in (0..product.rows).step_by(MOST) {
            rows::<S, N>(product, tile, row, (product.rows - row).min(MOST));
        }
    }
}
