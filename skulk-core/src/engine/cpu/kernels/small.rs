//! How are small floats and other numbers of a table read? As the table's integers, with scales before or beside them.
//!
//! Twice a 4-bit float is a small integer.
#![allow(unsafe_op_in_unsafe_fn, reason = "functions and traits state their contracts")]

use super::affine::half;
use super::format::{
    Format, InHalves, Raw, Scales, Signed, Stored, Unsigned, format, half_pairs, halves, last_two, line,
    nibbles, one_byte, raw, word,
};
use super::scaled::numbers;
use super::simd::{LANES, Rows, Simd, each_column};
use crate::weights::quant::{IQ4, TWICE_FP4};

/// Twice the largest 4-bit float, which makes unsigned integers of all.
const MOST: i8 = 12;

/// What four bits mean, shifted by [`MOST`].
static SHIFTED: [i8; 16] = {
    let mut shifted = TWICE_FP4;
    let mut i = 0;
    while i < shifted.len() {
        shifted[i] += MOST;
        i += 1;
    }
    shifted
};

/// From where on scales wait that were read together.
const WAITING: usize = 12;

/// Four neighbouring bytes of each row, from one that is a multiple of four; behind a row's last there are zeros.
#[inline(always)]
unsafe fn four_bytes<S: Simd>(rows: &Rows, row_bytes: usize, at: usize) -> S::I {
    if at + 4 <= row_bytes {
        return word::<S>(rows, at);
    }
    // Woven rows are even.
    if at + 2 == row_bytes {
        return last_two::<S>(rows, at);
    }
    // Nothing is read behind the last row.
    if row_bytes >= 4 {
        return S::ishr(S::gather(rows, row_bytes - 4), 8 * (at + 4 - row_bytes) as u32);
    }
    let mut lanes = [0i32; LANES];
    let mut row = 0;
    while row < LANES {
        let mut byte = 0;
        while byte < row_bytes {
            lanes[row] |= i32::from(rows.row(row).add(byte).read()) << (8 * byte);
            byte += 1;
        }
        row += 1;
    }
    S::iload(lanes.as_ptr())
}

/// `2^(x - 128)` of bytes, which is half of what they are as scales; 255 is no number.
#[inline(always)]
unsafe fn halved_powers<S: Simd>(x: S::I) -> S::F {
    // All ones for 0 and 255, whose next byte is below 2: 2^-127 has no exponent but this bit, and what is no number has it.
    let next = S::iand(S::iadd(x, S::isplat(1)), S::isplat(0xfe));
    let either = S::isar(S::iadd(next, S::isplat(-1)), 31);
    let bits = S::ior(S::ishl(x, 23), S::iand(either, S::isplat(1 << 22)));
    S::mul(S::as_f32(bits), S::splat(0.5))
}

/// Scales of `N` blocks of 32, which are read four at a time.
#[inline(always)]
unsafe fn powers<S: Simd, const N: usize>(stored: &Stored, first: usize, out: &mut Scales<S>) {
    // Those of a line's blocks need not wait.
    let to = if N == 4 { 0 } else { WAITING };
    let mut j = 0;
    while j < N {
        let (block, part) = (first + j, (first + j) % 4);
        if part == 0 {
            let four = four_bytes::<S>(&stored.scales, stored.beside.own_bytes, block);
            let mut i = 0;
            while i < 4 {
                let one = S::iand(S::ishr(four, 8 * i as u32), S::isplat(0xff));
                out.scale[to + i] = halved_powers::<S>(one);
                i += 1;
            }
        }
        if N < 4 {
            out.scale[j] = out.scale[WAITING + part];
        }
        j += 1;
    }
}

/// Scales of the halves of `N` blocks of 32, 8-bit floats, which are read four at a time, for integers that are twice what
/// they mean.
#[inline(always)]
unsafe fn small_scales<S: Simd, const N: usize>(stored: &Stored, first: usize, out: &mut Scales<S>) {
    let to = if N == 4 { 0 } else { WAITING };
    let mut j = 0;
    while j < N {
        let (block, part) = (first + j, 2 * ((first + j) % 2));
        if part == 0 {
            let four = four_bytes::<S>(&stored.scales, stored.beside.own_bytes, 2 * block);
            let to = if N == 4 { 2 * j } else { to };
            let mut i = 0;
            while i < 4 {
                let one = S::isar(S::ishl(four, 24 - 8 * i as u32), 24);
                out.scale[to + i] = numbers::<S>(one, 128.0);
                i += 1;
            }
        }
        if N < 4 {
            out.scale[2 * j] = out.scale[to + part];
            out.scale[2 * j + 1] = out.scale[to + part + 1];
        }
        j += 1;
    }
}

/// Integers of the nibbles of 16 bytes, in pairs of columns.
#[inline(always)]
unsafe fn pairs<S: Simd>(nibbles: &[S::I; 4]) -> [S::I; 8] {
    each_column!(|k| S::looked_up(&SHIFTED, half::<S>(nibbles[k / 2], k % 2)))
}

macro_rules! small {
    ($(
        $(#[$doc:meta])* $name:ident: $bytes:literal bytes, $blocks:literal blocks, $layout:ty, $scales:ident;
        read<$S:ident>($rows:ident, $at:ident) $read:expr;
        columns($raw:ident, $j:ident) $columns:expr;
    )*) => {$(
        $(#[$doc])*
        pub(super) struct $name;

        impl Format for $name {
            const BYTES: usize = $bytes;
            const BLOCKS: usize = $blocks;
            const TOGETHER: usize = $blocks;
            const ZERO: i32 = MOST as i32;
            type Layout = $layout;
            const BITS: u32 = 5;
            const BESIDE: bool = true;
            // Lines are of rows that are not.
            const WOVEN: bool = $blocks == 1;
            const PAIRED: bool = true;

            #[inline(always)]
            unsafe fn read<$S: Simd>($rows: &Rows, $at: usize, _group: usize) -> Raw<$S> {
                $read
            }
            #[inline(always)]
            unsafe fn columns<$S: Simd>($raw: &Raw<$S>, $j: usize) -> [$S::I; 8] {
                $columns
            }
            #[inline(always)]
            unsafe fn scales<$S: Simd>(stored: &Stored, at: usize, out: &mut Scales<$S>) {
                $scales::<$S, $blocks>(stored, at / $bytes * $blocks, out);
            }
        }
    )*};
}

small! {
    /// 4-bit floats, the lower half of a byte first.
    Fp4: 16 bytes, 1 blocks, Unsigned, powers;
    read<S>(rows, at) raw!(S, rows, at);
    columns(raw, _j) pairs::<S>(&[raw[0], raw[1], raw[2], raw[3]]);

    /// The same, a line of the cache at a time: see [`affine`](super::affine).
    Fp4Lines: 64 bytes, 4 blocks, Unsigned, powers;
    read<S>(rows, at) line::<S>(rows, at);
    columns(raw, j) pairs::<S>(&[raw[4 * j], raw[4 * j + 1], raw[4 * j + 2], raw[4 * j + 3]]);

    /// Those of which 16 share a scale.
    Nvfp4: 16 bytes, 1 blocks, InHalves, small_scales;
    read<S>(rows, at) raw!(S, rows, at);
    columns(raw, _j) pairs::<S>(&[raw[0], raw[1], raw[2], raw[3]]);

    /// The same, a line of the cache at a time.
    Nvfp4Lines: 64 bytes, 4 blocks, InHalves, small_scales;
    read<S>(rows, at) line::<S>(rows, at);
    columns(raw, j) pairs::<S>(&[raw[4 * j], raw[4 * j + 1], raw[4 * j + 2], raw[4 * j + 3]]);
}

/// A table's integers for nibbles, 16 low ones before the high ones.
#[inline(always)]
unsafe fn of_table<S: Simd>(raw: &Raw<S>, table: &[i8; 16]) -> [S::I; 8] {
    let columns = nibbles::<S>(raw);
    each_column!(|k| S::looked_up(table, columns[k]))
}

format! {
    /// A power of two; 16 bytes of nibbles, low ones first: 4-bit floats.
    Mxfp4: 17 bytes, 1 blocks, 5 bits, Unsigned, zero = MOST as i32;
    read<S>(rows, at, _group) { raw!(S, rows, at + 1) }
    columns(raw, _j) { of_table::<S>(raw, &SHIFTED) }
    scales(out) { out.scale[0] = halved_powers::<S>(one_byte::<S>(rows, at)); }
}

format! {
    /// f16 scale; nibbles as in [`Mxfp4`].
    Iq4Nl: 18 bytes, 1 blocks, 8 bits, Signed;
    read<S>(rows, at, _group) { raw!(S, rows, at + 2) }
    columns(raw, _j) { of_table::<S>(raw, &IQ4) }
    scales(out) { out.scale[0] = halves::<S>(rows, at); }
}

format! {
    /// f16 scale of scales; the upper two bits of eight scales, the lower four; nibbles of each 32 as in [`Mxfp4`].
    Iq4Xs: 136 bytes, 8 blocks, 8 bits, Signed;
    read<S>(rows, at, group) { raw!(S, rows, at + 8 + 16 * group) }
    columns(raw, _j) { of_table::<S>(raw, &IQ4) }
    scales(out) {
        let (both, low) = (word::<S>(rows, at), word::<S>(rows, at + 4));
        let (d, _) = half_pairs::<S>(both);
        for i in 0..8 {
            let high = S::iand(S::ishr(both, 16 + 2 * i), S::isplat(3));
            let scale = S::ior(S::iand(S::ishr(low, 4 * i), S::isplat(15)), S::ishl(high, 4));
            out.scale[i as usize] = S::mul(d, S::to_f32(S::iadd(scale, S::isplat(-32))));
        }
    }
}
