//! How are small floats read? As integers from a table, with powers of two that lie beside them.
//!
//! Twice a 4-bit float is a small integer, and so are products with it.
#![allow(unsafe_op_in_unsafe_fn, reason = "functions and traits state their contracts")]

use super::format::{Format, Raw, Scales, Stored, Unsigned, raw};
use super::simd::{LANES, Rows, Simd, each_column};
use crate::weights::quant::TWICE_FP4;

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
        return S::gather(rows, at);
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
    // Of 0 and 255 alike there is no 2 in what follows them.
    let next = S::iand(S::iadd(x, S::isplat(1)), S::isplat(0xfe));
    let either = S::isar(S::iadd(next, S::isplat(-1)), 31);
    let bits = S::ior(S::ishl(x, 23), S::iand(either, S::isplat(1 << 22)));
    S::mul(S::as_f32(bits), S::splat(0.5))
}

/// Scales of `N` blocks of 32, which are read four at a time.
#[inline(always)]
unsafe fn powers<S: Simd, const N: usize>(stored: &Stored, first: usize, out: &mut Scales<S>) {
    let mut j = 0;
    while j < N {
        let (block, part) = (first + j, (first + j) % 4);
        if part == 0 {
            let four = four_bytes::<S>(&stored.scales, stored.beside.own_bytes, block);
            let mut i = 0;
            while i < 4 {
                let one = S::iand(S::ishr(four, 8 * i as u32), S::isplat(0xff));
                out.scale[WAITING + i] = halved_powers::<S>(one);
                i += 1;
            }
        }
        out.scale[j] = out.scale[WAITING + part];
        j += 1;
    }
}

/// Integers of the nibbles of 16 bytes, in pairs of columns.
#[inline(always)]
unsafe fn halves<S: Simd>(nibbles: &[S::I; 4]) -> [S::I; 8] {
    each_column!(|k| {
        let half = S::ishr(nibbles[k / 2], k as u32 % 2 * 4);
        S::looked_up(&SHIFTED, S::iand(half, S::isplat(0x0f0f_0f0f)))
    })
}

macro_rules! small {
    ($(
        $(#[$doc:meta])* $name:ident: $bytes:literal bytes, $blocks:literal blocks;
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
            type Layout = Unsigned;
            const BITS: u32 = 5;
            const BESIDE: bool = true;
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
                powers::<$S, $blocks>(stored, at / $bytes * $blocks, out);
            }
        }
    )*};
}

small! {
    /// 4-bit floats, the lower half of a byte first.
    Fp4: 16 bytes, 1 blocks;
    read<S>(rows, at) raw!(S, rows, at);
    columns(raw, _j) halves::<S>(&[raw[0], raw[1], raw[2], raw[3]]);

    /// The same, a line of the cache at a time: see [`affine`](super::affine).
    Fp4Lines: 64 bytes, 4 blocks;
    read<S>(rows, at) raw!(S, rows, at, at + 16, at + 32, at + 48);
    columns(raw, j) halves::<S>(&[raw[4 * j], raw[4 * j + 1], raw[4 * j + 2], raw[4 * j + 3]]);
}
