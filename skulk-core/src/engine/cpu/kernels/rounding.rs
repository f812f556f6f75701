//! How are activations rounded? To integers block by block, by the largest of each; or to bfloat16.
//!
//! Fast: one digit from -127 to 127, `scale = largest / 127`; an element is off by at most half a
//! scale, 1/254 of its block's largest. Exact: two digits to the base of 255, from -32512 to 32512,
//! `scale = largest / 32512`; off by at most 1/65,024 of the largest.
//!
//! Fast with weights in bfloat16: the nearest of these numbers, off by at most 1/512 of itself.
#![allow(unsafe_op_in_unsafe_fn, reason = "functions and traits state their contracts")]

use super::simd::{BASE, BLOCK, LANES, Simd, integer_sums};

/// Rows of activations as integers with a scale for each block: where they are written, and where products
/// read them. Shapes are those of rows one after the other; see [`group`] for others.
#[derive(Clone, Copy)]
pub(super) struct Activations {
    /// `[rows, blocks, digits · 32]`: one digit, or what [`Simd::store_exact`] makes of two.
    pub(super) digits: *mut i8,
    /// `[rows, blocks]`.
    pub(super) scale: *mut f32,
    /// Sums of integers and their products with the scale, of each block: `[rows, blocks]`.
    pub(super) sum: *mut i32,
    pub(super) scaled_sum: *mut f32,
    /// The same of each half of a block: `[rows, blocks, 2]`.
    pub(super) half_sum: *mut i32,
    pub(super) scaled_half_sum: *mut f32,
}

impl Activations {
    /// From a later block on.
    ///
    /// # Safety
    /// There are so many blocks before it.
    pub(super) unsafe fn skip(self, blocks: usize, exact: bool) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            Self {
                digits: self.digits.add(blocks * BLOCK * if exact { 2 } else { 1 }),
                scale: self.scale.add(blocks),
                sum: self.sum.add(blocks),
                scaled_sum: self.scaled_sum.add(blocks),
                half_sum: self.half_sum.add(2 * blocks),
                scaled_half_sum: self.scaled_half_sum.add(2 * blocks),
            }
        }
    }
}

/// Below this a block counts as zeros: the reciprocal of its scale would overflow.
const SMALLEST: f32 = 1e-30;

/// Rounds a row of `blocks` blocks, each of which is written `step` blocks behind the one before.
///
/// # Safety
/// `x` and `to` are valid for the row and the machine has `S`'s instructions.
#[inline(always)]
pub(super) unsafe fn round<S: Simd, const EXACT: bool>(
    x: *const f32,
    blocks: usize,
    to: Activations,
    step: usize,
) {
    let most = if EXACT { (127 * BASE + 127) as f32 } else { 127.0 };
    let digits = if EXACT { 2 * BLOCK } else { BLOCK };
    for block in 0..blocks {
        let values = [S::load(x.add(block * BLOCK)), S::load(x.add(block * BLOCK + LANES))];
        let largest = S::largest(values[0], values[1]);
        // What is no number stays none, and what is infinite becomes none, as its integers say nothing.
        let (scale, inverse) = if largest < SMALLEST {
            (0.0, 0.0)
        } else {
            (if largest <= f32::MAX { largest / most } else { f32::NAN }, most / largest)
        };
        let (block, inverse) = (block * step, S::splat(inverse));
        let out = to.digits.add(block * digits);
        let halves = [S::round(S::mul(values[0], inverse)), S::round(S::mul(values[1], inverse))];
        let sums = if EXACT {
            for (half, n) in halves.into_iter().enumerate() {
                let upper = S::round(S::mul(S::to_f32(n), S::splat(1.0 / BASE as f32)));
                S::store_exact(out, half, upper, S::iadd(n, S::imul(upper, S::isplat(-BASE))));
            }
            integer_sums::<S>(halves)
        } else {
            S::store_block(out, halves)
        };
        *to.scale.add(block) = scale;
        // Wraps only where there is something that is no number.
        let sum = i32::wrapping_add(sums[0], sums[1]);
        *to.sum.add(block) = sum;
        *to.scaled_sum.add(block) = sum as f32 * scale;
        *to.half_sum.cast::<[i32; 2]>().add(block) = sums;
        *to.scaled_half_sum.cast::<[f32; 2]>().add(block) = [sums[0] as f32 * scale, sums[1] as f32 * scale];
    }
}

/// Of every eight bytes those of even places first; or of activations of 16 bits, as they are stored, those that meet such
/// bytes.
static PAIRS: [[i8; 16]; 2] = [
    [0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15],
    [0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15],
];

/// Rounded rows as weights meet them that are [paired](super::format::Format::PAIRED).
///
/// # Safety
/// Both are of whole blocks, and the machine has `S`'s instructions.
#[inline(always)]
pub(super) unsafe fn paired<S: Simd, const EXACT: bool>(x: &[i8], to: &mut [i8]) {
    let order = &PAIRS[usize::from(EXACT && S::WORDS)];
    for at in (0..x.len().min(to.len()) / LANES * LANES).step_by(LANES) {
        S::reorder(x.as_ptr().add(at), order, to.as_mut_ptr().add(at));
    }
}

/// Copies some rows for who works on a block of all of them at once: block `b` of row `n` is number `b · rows + n`.
///
/// # Safety
/// Both have room for whole rows of `blocks` blocks.
pub(super) unsafe fn group(from: Activations, to: Activations, rows: usize, blocks: usize, exact: bool) {
    if exact {
        group_by::<{ 2 * BLOCK }>(from, to, rows, blocks);
    } else {
        group_by::<BLOCK>(from, to, rows, blocks);
    }
}

/// The same of blocks of so many bytes.
unsafe fn group_by<const BYTES: usize>(from: Activations, to: Activations, rows: usize, blocks: usize) {
    /// Number `a` of one array to number `b` of the other.
    unsafe fn copy<T>(from: *mut T, a: usize, to: *mut T, b: usize) {
        std::ptr::copy_nonoverlapping(from.add(a), to.add(b), 1);
    }
    for block in 0..blocks {
        for row in 0..rows {
            let (a, b) = (row * blocks + block, block * rows + row);
            copy::<[i8; BYTES]>(from.digits.cast(), a, to.digits.cast(), b);
            copy(from.scale, a, to.scale, b);
            copy(from.sum, a, to.sum, b);
            copy(from.scaled_sum, a, to.scaled_sum, b);
            copy::<[i32; 2]>(from.half_sum.cast(), a, to.half_sum.cast(), b);
            copy::<[f32; 2]>(from.scaled_half_sum.cast(), a, to.scaled_half_sum.cast(), b);
        }
    }
}

/// Words that `n` activations in bfloat16 take: whole blocks, as numbers of 16 bits or widened.
pub(super) fn bf16_words<S: Simd>(n: usize) -> usize {
    n.div_ceil(BLOCK) * if S::WIDENED { BLOCK } else { BLOCK / 2 }
}

/// Rounds numbers to bfloat16, to nearest even, in their upper bits. What is below 2 to the power `least` becomes a zero of its
/// sign; what is no number stays none.
///
/// # Safety
/// The machine has `S`'s instructions.
#[inline(always)]
pub(super) unsafe fn bf16<S: Simd>(bits: S::I, least: i32) -> S::I {
    let least = (least + 127) << 23;
    let size = S::iand(bits, S::isplat(i32::MAX));
    // All ones where a number is too small, and where there is none, as that size overflows.
    let small = S::isar(S::iadd(size, S::isplat(-least)), 31);
    let none = S::isar(S::iadd(size, S::isplat((1 << 23) - 1)), 31);
    let up = S::iadd(S::iand(S::ishr(bits, 16), S::isplat(1)), S::isplat(0x7fff));
    let nearest = S::iadd(bits, S::iand(up, S::ixor(none, S::isplat(-1))));
    let nearest = S::ior(nearest, S::iand(none, S::isplat(1 << 22)));
    let sign = S::iand(bits, S::isplat(i32::MIN));
    let kept = S::ior(S::iand(nearest, S::ixor(small, S::isplat(-1))), sign);
    S::iand(kept, S::isplat(0xffff_0000_u32 as i32))
}

/// Rounds a row to bfloat16 as [`bf16`] does, numbers that are not normal to zero. The last block is filled up with zeros.
///
/// # Safety
/// The machine has `S`'s instructions.
#[inline(always)]
pub(super) unsafe fn round_bf16<S: Simd>(x: &[f32], to: &mut [u32]) {
    let mut to = to.chunks_exact_mut(bf16_words::<S>(BLOCK));
    let (blocks, rest) = x.as_chunks::<BLOCK>();
    for (x, to) in blocks.iter().zip(&mut to) {
        block_bf16::<S>(x, to);
    }
    if let Some(to) = to.next() {
        let mut last = [0.0; BLOCK];
        last[..rest.len()].copy_from_slice(rest);
        block_bf16::<S>(&last, to);
    }
}

/// Rounds a block, for [`Simd::dot2`].
#[inline(always)]
unsafe fn block_bf16<S: Simd>(x: &[f32; BLOCK], to: &mut [u32]) {
    let mut rounded = [0u32; BLOCK];
    for half in [0, LANES] {
        let bits = bf16::<S>(S::iload(x[half..].as_ptr().cast()), f32::MIN_EXP - 1);
        S::istore(rounded[half..].as_mut_ptr().cast(), bits);
    }
    let (pairs, _) = rounded.as_chunks::<2>();
    if S::WIDENED {
        let (upper, lower) = to.split_at_mut(LANES);
        for ((upper, lower), pair) in upper.iter_mut().zip(lower).zip(pairs) {
            [*lower, *upper] = *pair;
        }
    } else {
        for (to, [lower, upper]) in to.iter_mut().zip(pairs) {
            *to = lower >> 16 | upper;
        }
    }
}
