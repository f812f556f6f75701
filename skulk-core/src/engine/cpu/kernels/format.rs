//! How are stored blocks read? For each type: where its integers, scales and minima lie.
//!
//! A weight is `scale · (integer - ZERO) + min`. Layouts are those of ggml (`ggml-common.h`,
//! `dequantize_row_*`), but for [`Q6Linear`], which is LARQL's.

use super::simd::{Rows, Simd};

/// Scales of a tile's stored blocks: 16 rows by up to eight blocks of 32, or sixteen halves of them.
pub(super) struct Scales<S: Simd> {
    pub(super) scale: [S::F; 16],
    pub(super) min: [S::F; 16],
}

/// A storage type of blocks.
///
/// # Safety
/// Functions may be called only with addresses of whole stored blocks, on a machine with `S`'s
/// instructions.
pub(super) trait Format: 'static {
    /// Bytes of a stored block.
    const BYTES: usize;
    /// Blocks of 32 elements in a stored block.
    const BLOCKS: usize;
    /// The integer that means zero.
    const ZERO: i32 = 0;
    /// Integers are signed bytes, not unsigned ones below 64.
    const SIGNED: bool = false;
    /// Every 16 elements have scales of their own.
    const HALVES: bool = false;
    /// Weights have a minimum.
    const MIN: bool = false;

    /// The integers of block `j` of two rows' stored blocks.
    unsafe fn integers<S: Simd>(a: *const u8, b: *const u8, j: usize) -> S::B;
    /// Scales and minima of the stored blocks at `at` of each row, by block or half.
    unsafe fn scales<S: Simd>(rows: &Rows, at: usize, out: &mut Scales<S>);
}

/// 16 bits at `offset` as half-precision numbers.
#[inline(always)]
#[allow(unsafe_op_in_unsafe_fn, reason = "the trait states the contract")]
unsafe fn halves<S: Simd>(rows: &Rows, offset: usize) -> S::F {
    S::half(S::gather(rows, offset))
}

/// The two half-precision numbers at `offset`.
#[inline(always)]
#[allow(unsafe_op_in_unsafe_fn, reason = "the trait states the contract")]
unsafe fn half_pairs<S: Simd>(rows: &Rows, offset: usize) -> (S::F, S::F) {
    let both = S::gather(rows, offset);
    (S::half(both), S::half(S::ishr(both, 16)))
}

/// Byte `i` of four, as an unsigned integer.
#[inline(always)]
#[allow(unsafe_op_in_unsafe_fn, reason = "the trait states the contract")]
unsafe fn byte<S: Simd>(x: S::I, i: usize) -> S::I {
    S::iand(S::ishr(x, 8 * i as u32), S::isplat(0xff))
}

macro_rules! format {
    (
        $(#[$doc:meta])* $name:ident: $bytes:literal bytes, $blocks:literal blocks
        $(, $key:ident = $value:expr)*;
        integers<$S:ident>($a:ident, $b:ident, $j:ident) $integers:block
        scales($rows:ident, $at:ident, $out:ident) $scales:block
    ) => {
        $(#[$doc])*
        pub(super) struct $name;

        #[allow(unsafe_op_in_unsafe_fn, reason = "the trait states the contract")]
        impl Format for $name {
            const BYTES: usize = $bytes;
            const BLOCKS: usize = $blocks;
            $(format! { @ $key = $value })*

            #[inline(always)]
            unsafe fn integers<$S: Simd>($a: *const u8, $b: *const u8, $j: usize) -> $S::B $integers
            #[inline(always)]
            unsafe fn scales<$S: Simd>($rows: &Rows, $at: usize, $out: &mut Scales<$S>) $scales
        }
    };
    (@ zero = $value:expr) => { const ZERO: i32 = $value; };
    (@ signed = $value:expr) => { const SIGNED: bool = $value; };
    (@ halves = $value:expr) => { const HALVES: bool = $value; };
    (@ min = $value:expr) => { const MIN: bool = $value; };
}

format! {
    /// f16 scale; 16 bytes of nibbles, low ones first.
    Q4_0: 18 bytes, 1 blocks, zero = 8;
    integers<S>(a, b, _j) { S::nibbles(a.add(2), b.add(2)) }
    scales(rows, at, out) { out.scale[0] = halves::<S>(rows, at); }
}

format! {
    /// f16 scale and minimum; nibbles as in [`Q4_0`].
    Q4_1: 20 bytes, 1 blocks, min = true;
    integers<S>(a, b, _j) { S::nibbles(a.add(4), b.add(4)) }
    scales(rows, at, out) { (out.scale[0], out.min[0]) = half_pairs::<S>(rows, at); }
}

format! {
    /// f16 scale; 32 fifth bits; nibbles as in [`Q4_0`].
    Q5_0: 22 bytes, 1 blocks, zero = 16;
    integers<S>(a, b, _j) {
        S::bor(S::nibbles(a.add(6), b.add(6)), S::bits(a.add(2), b.add(2)))
    }
    scales(rows, at, out) { out.scale[0] = halves::<S>(rows, at); }
}

format! {
    /// f16 scale and minimum; 32 fifth bits; nibbles as in [`Q4_0`].
    Q5_1: 24 bytes, 1 blocks, min = true;
    integers<S>(a, b, _j) {
        S::bor(S::nibbles(a.add(8), b.add(8)), S::bits(a.add(4), b.add(4)))
    }
    scales(rows, at, out) { (out.scale[0], out.min[0]) = half_pairs::<S>(rows, at); }
}

format! {
    /// f16 scale; 32 signed bytes.
    Q8_0: 34 bytes, 1 blocks, signed = true;
    integers<S>(a, b, _j) { S::bytes(a.add(2), b.add(2)) }
    scales(rows, at, out) { out.scale[0] = halves::<S>(rows, at); }
}

format! {
    /// f32 scale; 256 signed bytes; sums of each 16.
    Q8K: 292 bytes, 8 blocks, signed = true;
    integers<S>(a, b, j) { S::bytes(a.add(4 + 32 * j), b.add(4 + 32 * j)) }
    scales(rows, at, out) {
        let d = S::as_f32(S::gather(rows, at));
        out.scale[..8].fill(d);
    }
}

format! {
    /// Sixteen 4-bit scales with 4-bit minima; 2-bit integers; f16 scale of scales and of minima.
    Q2K: 84 bytes, 8 blocks, halves = true, min = true;
    integers<S>(a, b, j) {
        let at = 16 + j / 4 * 32;
        S::band(S::bshr(S::bytes(a.add(at), b.add(at)), (j % 4 * 2) as u32), S::bsplat(3))
    }
    scales(rows, at, out) {
        let (d, m) = half_pairs::<S>(rows, at + 80);
        let m = S::mul(S::splat(-1.0), m);
        for four in 0..4 {
            let packed = S::gather(rows, at + 4 * four);
            for i in 0..4 {
                let both = byte::<S>(packed, i);
                out.scale[4 * four + i] = S::mul(d, S::to_f32(S::iand(both, S::isplat(15))));
                out.min[4 * four + i] = S::mul(m, S::to_f32(S::ishr(both, 4)));
            }
        }
    }
}

format! {
    /// 32 bytes of third bits; 2-bit integers; sixteen 6-bit scales; f16 scale of scales.
    Q3K: 110 bytes, 8 blocks, zero = 4, halves = true;
    integers<S>(a, b, j) {
        let at = 32 + j / 4 * 32;
        let low = S::band(S::bshr(S::bytes(a.add(at), b.add(at)), (j % 4 * 2) as u32), S::bsplat(3));
        let high = S::band(S::bshr(S::bytes(a, b), j as u32), S::bsplat(1));
        S::bor(low, S::bshl(high, 2))
    }
    scales(rows, at, out) {
        // The last four bytes end behind the block's own; its scale is in their upper half.
        let d = S::half(S::ishr(S::gather(rows, at + 106), 16));
        let high = S::gather(rows, at + 104);
        for four in 0..4 {
            let low = S::gather(rows, at + 96 + four % 2 * 4);
            for i in 0..4 {
                let low = S::iand(S::ishr(low, (8 * i + four / 2 * 4) as u32), S::isplat(15));
                let high = S::iand(S::ishr(high, (8 * i + 2 * four) as u32), S::isplat(3));
                let scale = S::iadd(S::ior(low, S::ishl(high, 4)), S::isplat(-32));
                out.scale[4 * four + i] = S::mul(d, S::to_f32(scale));
            }
        }
    }
}

/// The eight 6-bit scales and minima of a Q4_K or Q5_K block, with their f16 scales before them.
#[inline(always)]
#[allow(unsafe_op_in_unsafe_fn, reason = "the trait states the contract")]
unsafe fn six_bits<S: Simd>(rows: &Rows, at: usize, out: &mut Scales<S>) {
    let (d, m) = half_pairs::<S>(rows, at);
    let m = S::mul(S::splat(-1.0), m);
    let (a, b, c) = (S::gather(rows, at + 4), S::gather(rows, at + 8), S::gather(rows, at + 12));
    for i in 0..4 {
        let part = |x: S::I, n: u32, mask: i32| S::iand(S::ishr(x, 8 * i as u32 + n), S::isplat(mask));
        out.scale[i] = S::mul(d, S::to_f32(part(a, 0, 63)));
        out.min[i] = S::mul(m, S::to_f32(part(b, 0, 63)));
        let scale = S::ior(part(c, 0, 15), S::ishl(part(a, 6, 3), 4));
        let min = S::ior(part(c, 4, 15), S::ishl(part(b, 6, 3), 4));
        out.scale[4 + i] = S::mul(d, S::to_f32(scale));
        out.min[4 + i] = S::mul(m, S::to_f32(min));
    }
}

format! {
    /// f16 scales of scales and minima; eight of each in 6 bits; nibbles, 32 low ones then 32 high ones.
    Q4K: 144 bytes, 8 blocks, min = true;
    integers<S>(a, b, j) {
        let at = 16 + j / 2 * 32;
        S::band(S::bshr(S::bytes(a.add(at), b.add(at)), (j % 2 * 4) as u32), S::bsplat(15))
    }
    scales(rows, at, out) { six_bits::<S>(rows, at, out); }
}

format! {
    /// As [`Q4K`], with 32 bytes of fifth bits, one of each for each block.
    Q5K: 176 bytes, 8 blocks, min = true;
    integers<S>(a, b, j) {
        let at = 48 + j / 2 * 32;
        let low = S::band(S::bshr(S::bytes(a.add(at), b.add(at)), (j % 2 * 4) as u32), S::bsplat(15));
        let high = S::band(S::bshr(S::bytes(a.add(16), b.add(16)), j as u32), S::bsplat(1));
        S::bor(low, S::bshl(high, 4))
    }
    scales(rows, at, out) { six_bits::<S>(rows, at, out); }
}

/// Sixteen signed 8-bit scales at 192 and their f16 scale at 208.
#[inline(always)]
#[allow(unsafe_op_in_unsafe_fn, reason = "the trait states the contract")]
unsafe fn sixteen_bytes<S: Simd>(rows: &Rows, at: usize, out: &mut Scales<S>) {
    let d = S::half(S::ishr(S::gather(rows, at + 206), 16));
    for four in 0..4 {
        let packed = S::gather(rows, at + 192 + 4 * four);
        for i in 0..4 {
            let scale = S::isar(S::ishl(packed, 24 - 8 * i as u32), 24);
            out.scale[4 * four + i] = S::mul(d, S::to_f32(scale));
        }
    }
}

format! {
    /// 128 bytes of nibbles, 64 of pairs of upper bits, sixteen scales; interleaved by 128 elements.
    Q6K: 210 bytes, 8 blocks, zero = 32, halves = true;
    integers<S>(a, b, j) {
        let (half, part) = (j / 4, j % 4);
        let low = 64 * half + part % 2 * 32;
        let low = S::bshr(S::bytes(a.add(low), b.add(low)), (part / 2 * 4) as u32);
        let high = 128 + 32 * half;
        let high = S::bshr(S::bytes(a.add(high), b.add(high)), (part * 2) as u32);
        S::bor(S::band(low, S::bsplat(15)), S::bshl(S::band(high, S::bsplat(3)), 4))
    }
    scales(rows, at, out) { sixteen_bytes::<S>(rows, at, out); }
}

format! {
    /// LARQL's: the same parts as [`Q6K`], but all in the order of the elements.
    Q6Linear: 210 bytes, 8 blocks, zero = 32, halves = true;
    integers<S>(a, b, j) {
        let (low, high) = (16 * j, 128 + 8 * j);
        S::bor(S::nibble_pairs(a.add(low), b.add(low)), S::bit_pairs(a.add(high), b.add(high)))
    }
    scales(rows, at, out) { sixteen_bytes::<S>(rows, at, out); }
}
