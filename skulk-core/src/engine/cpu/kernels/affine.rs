//! How are MLX's integers read? From one matrix, with scales and minima from two others.
//!
//! A stored block is 32 integers, whatever a group's length, or where rows allow it a line of the cache: of rows that are a
//! large power of two apart, as without scales between them they are, few lines stay in a cache until they are read again.
//! Woven rows have no such distance, and are read block by block.
#![allow(unsafe_op_in_unsafe_fn, reason = "functions and traits state their contracts")]

use super::format::{
    Beside, Float, Format, Raw, Scales, Stored, WideWithMin, WithMin, half_pairs, last_two, line, raw, word,
};
use super::simd::{Rows, Simd, each_column};

/// Elements that a row has a multiple of where its lines are read whole.
pub(super) const LINE: usize = 128;

/// Where the second of two numbers waits that were read together.
const WAITING: usize = 15;

/// Two neighbouring numbers of 16 bits of each row, from the `group`th on; of a row's last one, if that is it, only the
/// first counts.
#[inline(always)]
unsafe fn two_numbers<S: Simd>(rows: &Rows, beside: &Beside, group: usize) -> [S::F; 2] {
    let both = if 2 * group + 4 <= beside.own_bytes {
        word::<S>(rows, 2 * group)
    } else {
        last_two::<S>(rows, 2 * group)
    };
    if beside.float == Float::BF16 {
        [S::as_f32(S::ishl(both, 16)), S::as_f32(S::iand(both, S::isplat(0xffff_0000_u32 as i32)))]
    } else {
        let (first, second) = half_pairs::<S>(both);
        [first, second]
    }
}

/// Scales and minima of `N` blocks of 32. Where a group goes on they are what they were; those of two groups are read at a
/// time.
#[inline(always)]
unsafe fn of_groups<S: Simd, const N: usize>(stored: &Stored, first: usize, out: &mut Scales<S>) {
    let beside = &stored.beside;
    let mut j = 0;
    while j < N {
        let (block, before) = (first + j, if j > 0 { j - 1 } else { N - 1 });
        let group = block >> beside.shift;
        if block & ((1 << beside.shift) - 1) != 0 {
            (out.scale[j], out.min[j]) = (out.scale[before], out.min[before]);
        } else if beside.float == Float::F32 {
            out.scale[j] = S::as_f32(word::<S>(&stored.scales, 4 * group));
            out.min[j] = S::as_f32(word::<S>(&stored.mins, 4 * group));
        } else if group.is_multiple_of(2) {
            [out.scale[j], out.scale[WAITING]] = two_numbers::<S>(&stored.scales, beside, group);
            [out.min[j], out.min[WAITING]] = two_numbers::<S>(&stored.mins, beside, group);
        } else {
            (out.scale[j], out.min[j]) = (out.scale[WAITING], out.min[WAITING]);
        }
        j += 1;
    }
}

/// Four integers of `BITS` bits each, the `k`th four of those that follow each other in `raw` without gaps, each in a
/// byte of its own.
#[inline(always)]
unsafe fn four<S: Simd, const BITS: u32>(raw: &Raw<S>, k: u32) -> S::I {
    let (word, shift) = ((4 * BITS * k / 32) as usize, 4 * BITS * k % 32);
    let mut x = if shift == 0 { raw[word] } else { S::ishr(raw[word], shift) };
    if shift + 4 * BITS > 32 {
        x = S::ior(x, S::ishl(raw[word + 1], 32 - shift));
    }
    let (one, two) = ((1 << BITS) - 1, (1 << (2 * BITS)) - 1);
    let upper = S::iand(S::ishl(x, 16 - 2 * BITS), S::isplat(two << 16));
    let pairs = S::ior(S::iand(x, S::isplat(two)), upper);
    let upper = S::iand(S::ishl(pairs, 8 - BITS), S::isplat(one << 8 | one << 24));
    S::ior(S::iand(pairs, S::isplat(one | one << 16)), upper)
}

/// The lower or the upper halves of bytes.
#[inline(always)]
pub(super) unsafe fn half<S: Simd>(x: S::I, upper: usize) -> S::I {
    S::iand(S::ishr(x, 4 * upper as u32), S::isplat(0x0f0f_0f0f))
}

macro_rules! affine {
    ($(
        $name:ident: $bytes:literal bytes, $blocks:literal blocks, $bits:literal bits, $layout:ty;
        $(paired = $paired:expr;)?
        read<$S:ident>($rows:ident, $at:ident) $read:block
        columns($raw:ident, $j:ident) $columns:expr;
    )*) => {$(
        /// Integers of so many bits, without gaps.
        pub(super) struct $name;

        impl Format for $name {
            const BYTES: usize = $bytes;
            const BLOCKS: usize = $blocks;
            const TOGETHER: usize = $blocks;
            type Layout = $layout;
            const BITS: u32 = $bits;
            const BESIDE: bool = true;
            // Lines are of rows that are not.
            const WOVEN: bool = $blocks == 1;
            $(const PAIRED: bool = $paired;)?
            const FORESEEN: bool = matches!($bits, 4 | 8);

            #[inline(always)]
            unsafe fn read<$S: Simd>($rows: &Rows, $at: usize, _group: usize) -> Raw<$S> $read
            #[inline(always)]
            unsafe fn columns<$S: Simd>($raw: &Raw<$S>, $j: usize) -> [$S::I; 8] {
                $columns
            }
            #[inline(always)]
            unsafe fn scales<$S: Simd>(stored: &Stored, at: usize, out: &mut Scales<$S>) {
                of_groups::<$S, $blocks>(stored, at / $bytes * $blocks, out);
            }
        }
    )*};
}

/// Words of each row from an offset on, one after the other.
macro_rules! words {
    ($S:ty, $rows:expr, $raw:expr, $($to:literal: $offset:expr),*) => {
        $($raw[$to] = word::<$S>($rows, $offset);)*
    };
}

affine! {
    Affine2: 8 bytes, 1 blocks, 2 bits, WithMin;
    read<S>(rows, at) {
        let mut raw = [S::isplat(0); 24];
        words!(S, rows, raw, 0: at, 1: at + 4);
        raw
    }
    columns(raw, _j) each_column!(|k| four::<S, 2>(raw, k));

    Affine3: 12 bytes, 1 blocks, 3 bits, WithMin;
    read<S>(rows, at) {
        let mut raw = [S::isplat(0); 24];
        words!(S, rows, raw, 0: at, 1: at + 4, 2: at + 8);
        raw
    }
    columns(raw, _j) each_column!(|k| four::<S, 3>(raw, k));

    Affine4: 16 bytes, 1 blocks, 4 bits, WithMin;
    paired = true;
    read<S>(rows, at) { raw!(S, rows, at) }
    columns(raw, _j) each_column!(|k| half::<S>(raw[k / 2], k % 2));

    Affine4Lines: 64 bytes, 4 blocks, 4 bits, WithMin;
    paired = true;
    read<S>(rows, at) { line::<S>(rows, at) }
    columns(raw, j) each_column!(|k| half::<S>(raw[4 * j + k / 2], k % 2));

    Affine5: 20 bytes, 1 blocks, 5 bits, WithMin;
    read<S>(rows, at) {
        let mut raw = raw!(S, rows, at);
        words!(S, rows, raw, 4: at + 16);
        raw
    }
    columns(raw, _j) each_column!(|k| four::<S, 5>(raw, k));

    Affine6: 24 bytes, 1 blocks, 6 bits, WithMin;
    read<S>(rows, at) {
        let mut raw = raw!(S, rows, at);
        words!(S, rows, raw, 4: at + 16, 5: at + 20);
        raw
    }
    columns(raw, _j) each_column!(|k| four::<S, 6>(raw, k));

    Affine8: 32 bytes, 1 blocks, 8 bits, WideWithMin;
    read<S>(rows, at) { raw!(S, rows, at, at + 16) }
    columns(raw, _j) each_column!(|k| raw[k]);

    Affine8Lines: 64 bytes, 2 blocks, 8 bits, WideWithMin;
    read<S>(rows, at) { line::<S>(rows, at) }
    columns(raw, j) each_column!(|k| raw[8 * j + k]);
}
