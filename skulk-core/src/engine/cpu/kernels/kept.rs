//! How do keys and values become bytes, and bytes numbers? Rotated and rounded in blocks, where they are quantised; in pairs,
//! where they are in bfloat16.
//!
//! Products of pairs add up the second one's first, as the instruction for them does. It takes numbers below 2^-126 for zeros,
//! as other instructions do not: there are none. What is smaller than [`LEAST`] is kept as zero, so that all products are
//! multiples of 2^-126, and so are their sums.
//!
//! A Hadamard matrix spreads what is large over all elements, so that few bits suffice for each. It is symmetric and its
//! own inverse: products of rotated queries with rotated keys are those of the queries and keys themselves, and the mean of
//! rotated values is rotated back.
#![allow(unsafe_op_in_unsafe_fn, reason = "functions and traits state their contracts")]

use half::f16;

use super::dense::Float;
use super::rounding::bf16;
use super::simd::{BLOCK, LANES, Simd};

/// The largest matrix that rotates.
const ROTATED: usize = 256;

/// The exponent of the smallest number that is kept in bfloat16, of whose products with its like the last bit is worth 2^-126.
const LEAST: i32 = -56;

/// What a row of a product's matrix consists of: single elements, or pairs of them.
pub(super) trait Column: 'static {
    /// Bytes of a column.
    const BYTES: usize;
    /// Columns may have scales.
    const SCALED: bool;
    /// 16 columns of a row.
    type Row<S: Simd>: Copy;
    /// Places of what a row is multiplied by, for all columns.
    fn places<S: Simd>() -> usize;
    unsafe fn load<S: Simd>(p: *const u8) -> Self::Row<S>;
    unsafe fn add<S: Simd>(sum: S::F, x: *const f32, row: Self::Row<S>) -> S::F;
}

impl<W: Kept> Column for W {
    const BYTES: usize = W::BYTES;
    const SCALED: bool = true;
    type Row<S: Simd> = S::F;
    #[inline(always)]
    fn places<S: Simd>() -> usize {
        1
    }
    #[inline(always)]
    unsafe fn load<S: Simd>(p: *const u8) -> S::F {
        <W as Kept>::load::<S>(p)
    }
    #[inline(always)]
    unsafe fn add<S: Simd>(sum: S::F, x: *const f32, row: S::F) -> S::F {
        S::fma(S::splat(*x), row, sum)
    }
}

/// Two elements in bfloat16, the first one in the lower bits: of a key neighbouring ones, of values those of neighbouring
/// positions. What they are multiplied by are such pairs, too; where the machine has no instruction for them, two numbers in
/// f32, the second one first.
pub(super) struct Pairs;

/// Places that a pair takes.
pub(super) const fn places<S: Simd>() -> usize {
    if S::WIDENED { 2 } else { 1 }
}

impl Column for Pairs {
    const BYTES: usize = 4;
    const SCALED: bool = false;
    type Row<S: Simd> = S::I;
    #[inline(always)]
    fn places<S: Simd>() -> usize {
        places::<S>()
    }
    #[inline(always)]
    unsafe fn load<S: Simd>(p: *const u8) -> S::I {
        S::iload(p.cast())
    }
    #[inline(always)]
    unsafe fn add<S: Simd>(sum: S::F, x: *const f32, row: S::I) -> S::F {
        if !S::WIDENED {
            return S::dot_pairs(sum, row, S::isplat(*x.cast()));
        }
        let second = S::as_f32(S::iand(row, S::isplat(0xffff_0000_u32 as i32)));
        let sum = S::fma(S::splat(*x), second, sum);
        S::fma(S::splat(*x.add(1)), S::as_f32(S::ishl(row, 16)), sum)
    }
}

/// Rounds a head to pairs, as products take them. The last number of an odd head has a zero for the other one.
///
/// # Safety
/// There is room for all pairs' places, and the machine has `S`'s instructions.
#[inline(always)]
pub(super) unsafe fn pair_up<S: Simd>(head: &[f32], to: *mut f32) {
    let (vectors, rest) = head.as_chunks::<LANES>();
    for (at, vector) in vectors.iter().enumerate() {
        let rounded = round_pair::<S>(S::iload(vector.as_ptr().cast()));
        store_pairs::<S>(rounded, to.add(at * LANES / 2 * places::<S>()));
    }
    if !rest.is_empty() {
        let (mut last, mut pairs) = ([0.0f32; LANES], [0.0f32; LANES]);
        last[..rest.len()].copy_from_slice(rest);
        store_pairs::<S>(round_pair::<S>(S::iload(last.as_ptr().cast())), pairs.as_mut_ptr());
        let to = to.add(vectors.len() * LANES / 2 * places::<S>());
        std::ptr::copy_nonoverlapping(pairs.as_ptr(), to, rest.len().div_ceil(2) * places::<S>());
    }
}

/// Stores a vector of rounded numbers as pairs.
///
/// # Safety
/// There is room for their places, and the machine has `S`'s instructions.
#[inline(always)]
pub(super) unsafe fn store_pairs<S: Simd>(rounded: S::I, to: *mut f32) {
    if !S::WIDENED {
        return S::store_upper(to.cast(), rounded);
    }
    let (mut numbers, mut apart) = ([0u32; LANES], [0u32; LANES]);
    S::istore(numbers.as_mut_ptr().cast(), rounded);
    for (i, to) in apart.iter_mut().enumerate() {
        *to = numbers[i ^ 1];
    }
    to.cast::<[u32; LANES]>().write_unaligned(apart);
}

/// The nearest numbers in bfloat16, one behind the other.
///
/// # Safety
/// There is room for all, and the machine has `S`'s instructions.
#[inline(always)]
pub(super) unsafe fn round_pairs<S: Simd>(x: &[f32], to: *mut u16) {
    let (vectors, rest) = x.as_chunks::<LANES>();
    for (at, vector) in vectors.iter().enumerate() {
        S::store_upper(to.add(at * LANES), round_pair::<S>(S::iload(vector.as_ptr().cast())));
    }
    if !rest.is_empty() {
        let (mut last, mut rounded) = ([0.0f32; LANES], [0u16; LANES]);
        last[..rest.len()].copy_from_slice(rest);
        S::store_upper(rounded.as_mut_ptr(), round_pair::<S>(S::iload(last.as_ptr().cast())));
        std::ptr::copy_nonoverlapping(rounded.as_ptr(), to.add(vectors.len() * LANES), rest.len());
    }
}

/// The nearest numbers in bfloat16, in the upper bits.
#[inline(always)]
pub(super) unsafe fn round_pair<S: Simd>(bits: S::I) -> S::I {
    bf16::<S>(bits, LEAST)
}

/// Elements as they are kept, without their scales.
pub(super) trait Kept: 'static {
    const BYTES: usize;
    /// 16 elements.
    unsafe fn load<S: Simd>(p: *const u8) -> S::F;
}

impl<W: Float> Kept for W {
    const BYTES: usize = W::BYTES;
    #[inline(always)]
    unsafe fn load<S: Simd>(p: *const u8) -> S::F {
        <W as Float>::load::<S>(p)
    }
}

/// Bytes from -127 to 127.
pub(super) struct Bytes;

impl Kept for Bytes {
    const BYTES: usize = 1;
    #[inline(always)]
    unsafe fn load<S: Simd>(p: *const u8) -> S::F {
        S::to_f32(S::load_i8(p.cast()))
    }
}

/// The lower or the upper half of each byte, from -8 to 7.
pub(super) struct Nibbles<const UPPER: bool>;

impl<const UPPER: bool> Kept for Nibbles<UPPER> {
    const BYTES: usize = 1;
    #[inline(always)]
    unsafe fn load<S: Simd>(p: *const u8) -> S::F {
        let bytes = S::load_i8(p.cast());
        S::to_f32(if UPPER { S::isar(bytes, 4) } else { S::isar(S::ishl(bytes, 28), 28) })
    }
}

/// Rotates a head: blocks of it, as large as powers of two that divide it are.
#[inline(always)]
pub(super) fn rotate(head: &mut [f32]) {
    if head.is_empty() {
        return;
    }
    let n = (1usize << head.len().trailing_zeros()).min(ROTATED);
    let scale = (n as f32).sqrt().recip();
    for block in head.chunks_exact_mut(n) {
        let (vectors, rest) = block.as_chunks_mut::<LANES>();
        for vector in &mut *vectors {
            within::<1>(vector);
            within::<2>(vector);
            within::<4>(vector);
            within::<8>(vector);
        }
        let mut half = 1;
        while half < vectors.len() {
            for pair in vectors.chunks_exact_mut(2 * half) {
                let (a, b) = pair.split_at_mut(half);
                for i in 0..half {
                    add_and_subtract(&mut a[i], &mut b[i]);
                }
            }
            half *= 2;
        }
        // Of fewer elements than a vector has.
        let mut half = 1;
        while half < rest.len() {
            for pair in rest.chunks_exact_mut(2 * half) {
                let (a, b) = pair.split_at_mut(half);
                add_and_subtract(a, b);
            }
            half *= 2;
        }
        block.iter_mut().for_each(|x| *x *= scale);
    }
}

/// Sums and differences of elements so many apart.
#[inline(always)]
fn within<const HALF: usize>(x: &mut [f32; LANES]) {
    let before = *x;
    for (i, x) in x.iter_mut().enumerate() {
        let other = before[i ^ HALF];
        *x = if i & HALF == 0 { before[i] + other } else { other - before[i] };
    }
}

#[inline(always)]
fn add_and_subtract(a: &mut [f32], b: &mut [f32]) {
    for i in 0..a.len().min(b.len()) {
        (a[i], b[i]) = (a[i] + b[i], a[i] - b[i]);
    }
}

/// A block as integers of 8 bits or, `SMALL`, of 4, and the scale by which they are to be multiplied, in half precision.
///
/// Of 8 bits they are from -127 to 127; of 4 bits what is largest, of either sign, becomes -8, and others -8 to 7. What is no
/// number, or too large, makes the scale so.
///
/// # Safety
/// The machine has `S`'s instructions.
#[inline(always)]
pub(super) unsafe fn quantise<S: Simd, const SMALL: bool>(x: &[f32; BLOCK], to: &mut [i8; BLOCK]) -> u16 {
    let halves = [S::load(x.as_ptr()), S::load(x[LANES..].as_ptr())];
    let largest = S::largest(halves[0], halves[1]);
    let (least, most, scale) = if SMALL {
        let above = x.iter().fold(false, |any, x| any | (*x == largest));
        (-8.0, 7.0, if above { largest / -8.0 } else { largest / 8.0 })
    } else {
        (-127.0, 127.0, largest / 127.0)
    };
    let scale = f16::from_f32(scale);
    let inverse = if scale.to_f32() == 0.0 { 0.0 } else { 1.0 / scale.to_f32() };
    for (half, x) in halves.into_iter().enumerate() {
        let x = S::mul(x, S::splat(inverse));
        let x = S::min(S::max(x, S::splat(least)), S::splat(most));
        S::store_i8(to[half * LANES..].as_mut_ptr(), S::round(x));
    }
    scale.to_bits()
}

/// Weights times scales, so many vectors of them.
///
/// # Safety
/// The addresses are valid, and the machine has `S`'s instructions.
#[inline(always)]
pub(super) unsafe fn scale<S: Simd>(weights: *const f32, scales: *const u16, to: *mut f32, vectors: usize) {
    for at in (0..vectors * LANES).step_by(LANES) {
        S::store(to.add(at), S::mul(S::load(weights.add(at)), S::load_f16(scales.add(at))));
    }
}
