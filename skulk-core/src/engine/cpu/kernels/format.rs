//! How are stored blocks read? For each type: where its integers, scales and minima lie.
//!
//! A weight is `scale · (integer - ZERO) + min`. Layouts are those of ggml (`ggml-common.h`,
//! `dequantize_row_*`), but for [`Q6Linear`], which is LARQL's, those of MLX ([`affine`](super::affine)), whose scales and
//! minima are matrices of their own, and small floats ([`small`](super::small)), whose scales are one.
#![allow(unsafe_op_in_unsafe_fn, reason = "functions and traits state their contracts")]

use super::simd::{LANES, Rows, Simd, each_column};

/// Scales of a tile's stored blocks: 16 rows by up to eight blocks of 32, or sixteen halves of them.
pub(super) struct Scales<S: Simd> {
    pub(super) scale: [S::F; 16],
    pub(super) min: [S::F; 16],
}

/// Up to 96 bytes of each row of a tile, as columns.
pub(super) type Raw<S> = [<S as Simd>::I; 24];

/// How a storage type's blocks lie in packed tiles: all that products need to know of it there.
pub(super) trait Layout: 'static {
    /// Integers are signed bytes, not unsigned ones below 64.
    const SIGNED: bool = false;
    /// Every 16 elements have scales of their own.
    const HALVES: bool = false;
    /// Weights have a minimum.
    const MIN: bool = false;
    /// Integers are unsigned ones that need all eight bits.
    const WIDE: bool = false;
}

macro_rules! layouts {
    ($($name:ident: $($key:ident)*;)*) => {$(
        pub(super) struct $name;
        impl Layout for $name { $(const $key: bool = true;)* }
    )*};
}
layouts! {
    Unsigned: ;
    Signed: SIGNED;
    WithMin: MIN;
    InHalves: HALVES;
    SignedInHalves: SIGNED HALVES;
    InHalvesWithMin: HALVES MIN;
    WideWithMin: WIDE MIN;
}

/// Where the scales and minima of a matrix' groups are, for types that have them beside the integers.
#[derive(Clone, Copy)]
pub(super) struct Beside {
    pub(super) scales: *const u8,
    pub(super) mins: *const u8,
    /// From a row of either to the next, and of a row.
    pub(super) row_bytes: usize,
    pub(super) own_bytes: usize,
    /// A group has 2 to this power blocks of 32.
    pub(super) shift: u32,
    /// They are tiles of woven rows.
    pub(super) woven: bool,
    pub(super) float: Float,
}

/// What type they are of.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Float {
    F32,
    F16,
    BF16,
    /// Powers of two, of a byte each.
    E8M0,
}

impl Beside {
    /// Of types that have nothing there.
    pub(super) const NOTHING: Self = Self {
        scales: std::ptr::null(),
        mins: std::ptr::null(),
        row_bytes: 0,
        own_bytes: 0,
        shift: 0,
        woven: false,
        float: Float::F32,
    };
}

/// Where a tile's rows are stored.
pub(super) struct Stored {
    pub(super) rows: Rows,
    pub(super) scales: Rows,
    pub(super) mins: Rows,
    pub(super) beside: Beside,
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
    type Layout: Layout;
    /// Of an integer.
    const BITS: u32;

    /// Blocks that share bytes, and are read together.
    const TOGETHER: usize = 1;
    /// Scales and minima are beside the integers.
    const BESIDE: bool = false;
    /// Rows may be woven.
    const WOVEN: bool = true;
    /// Of every eight integers, the first column has those of even places, the next one the others: what a byte's halves
    /// are where they are neighbours. Products take activations that [`paired`](super::rounding::paired) put in order.
    const PAIRED: bool = false;
    /// Woven rows by a single one take no longer than memory does. Then hardware reads further ahead than it can be asked to,
    /// line by line: it is told where pages begin.
    const FORESEEN: bool = false;

    /// The bytes from which [`columns`](Self::columns) takes blocks `TOGETHER · group` and so on of
    /// the stored blocks at `at` of each row.
    unsafe fn read<S: Simd>(rows: &Rows, at: usize, group: usize) -> Raw<S>;
    /// The integers of block `j` as columns: lane r of column k has integers `4k..4k + 4` of row r.
    unsafe fn columns<S: Simd>(raw: &Raw<S>, j: usize) -> [S::I; 8];
    /// Scales and minima of the stored blocks at `at` of each row, by block or half. Of types that have them beside,
    /// blocks are asked for in their order, and `out` keeps what is the next one's too.
    unsafe fn scales<S: Simd>(stored: &Stored, at: usize, out: &mut Scales<S>);
}

/// 16 bits at `offset` as half-precision numbers.
#[inline(always)]
pub(super) unsafe fn halves<S: Simd>(rows: &Rows, offset: usize) -> S::F {
    match rows.together(offset) {
        Some(woven) => S::load_f16(woven.cast()),
        None => S::half(S::gather(rows, offset)),
    }
}

/// The same of the last two bytes of a stored block: nothing is read behind them.
#[inline(always)]
unsafe fn last_halves<S: Simd>(rows: &Rows, offset: usize) -> S::F {
    match rows.together(offset) {
        Some(woven) => S::load_f16(woven.cast()),
        None => S::half(S::ishr(S::gather(rows, offset - 2), 16)),
    }
}

/// A byte of each row.
#[inline(always)]
pub(super) unsafe fn one_byte<S: Simd>(rows: &Rows, offset: usize) -> S::I {
    let bytes = match rows.together(offset) {
        Some(woven) => S::load_i8(woven.cast()),
        None => S::gather(rows, offset),
    };
    S::iand(bytes, S::isplat(0xff))
}

/// The last two bytes of each row, which are no word together with others: nothing is read behind them.
#[inline(always)]
pub(super) unsafe fn last_two<S: Simd>(rows: &Rows, offset: usize) -> S::I {
    let together = rows.together(offset);
    if together.is_none() && offset >= 2 {
        return S::ishr(S::gather(rows, offset - 2), 16);
    }
    let mut lanes = [0i32; LANES];
    let mut row = 0;
    while row < LANES {
        let at = match together {
            Some(woven) => woven.wrapping_add(2 * row),
            None => rows.row(row).wrapping_add(offset),
        };
        lanes[row] = i32::from(at.cast::<u16>().read_unaligned().to_le());
        row += 1;
    }
    S::iload(lanes.as_ptr())
}

/// Four bytes of each row.
#[inline(always)]
pub(super) unsafe fn word<S: Simd>(rows: &Rows, offset: usize) -> S::I {
    match rows.together(offset) {
        Some(woven) => S::iload(woven.cast()),
        None => S::gather(rows, offset),
    }
}

/// Sixteen bytes of each row, as four columns.
#[inline(always)]
pub(super) unsafe fn words<S: Simd>(rows: &Rows, offset: usize) -> [S::I; 4] {
    let Some(woven) = rows.together(offset) else { return S::columns(rows, offset) };
    let at = |i: usize| S::iload(woven.add(64 * i).cast());
    [at(0), at(1), at(2), at(3)]
}

/// The two half-precision numbers in each lane.
#[inline(always)]
pub(super) unsafe fn half_pairs<S: Simd>(both: S::I) -> (S::F, S::F) {
    (S::half(both), S::half(S::ishr(both, 16)))
}

/// Byte `i` of four, as an unsigned integer.
#[inline(always)]
unsafe fn byte<S: Simd>(x: S::I, i: usize) -> S::I {
    S::iand(S::ishr(x, 8 * i as u32), S::isplat(0xff))
}

/// Puts the columns of 16 bytes at each offset behind each other.
macro_rules! raw {
    ($S:ty, $rows:expr $(, $offset:expr)*) => {{
        let mut raw = [<$S>::isplat(0); 24];
        let mut at = 0;
        $(
            let four = $crate::engine::cpu::kernels::format::words::<$S>($rows, $offset);
            (raw[at], raw[at + 1], raw[at + 2], raw[at + 3]) = (four[0], four[1], four[2], four[3]);
            at += 4;
        )*
        let _ = at;
        raw
    }};
}
pub(super) use raw;

/// The same of 64 bytes, a line of the cache, of rows that are not woven.
#[inline(always)]
pub(super) unsafe fn line<S: Simd>(rows: &Rows, offset: usize) -> Raw<S> {
    let (mut raw, line) = ([S::isplat(0); 24], S::line(rows, offset));
    let mut at = 0;
    while at < line.len() {
        raw[at] = line[at];
        at += 1;
    }
    raw
}

/// Shifts every byte right by `n` and keeps the bits of `mask`.
#[inline(always)]
unsafe fn bits<S: Simd>(x: S::I, n: usize, mask: u8) -> S::I {
    S::bits(x, n as u32, mask)
}

/// Integer k + 4 of 16 bytes' nibbles is in the upper half of the bytes of integer k.
#[inline(always)]
pub(super) unsafe fn nibbles<S: Simd>(raw: &Raw<S>) -> [S::I; 8] {
    each_column!(|k| bits::<S>(raw[k % 4], k / 4 * 4, 15))
}

/// Adds the fifth bits, which are in column 4: an integer a bit.
#[inline(always)]
unsafe fn five_bits<S: Simd>(raw: &Raw<S>) -> [S::I; 8] {
    S::add_fifth_bits(nibbles::<S>(raw), raw[4])
}

macro_rules! format {
    (
        $(#[$doc:meta])* $name:ident: $bytes:literal bytes, $blocks:literal blocks, $bits:literal bits, $layout:ty
        $(, $key:ident = $value:expr)*;
        read<$S:ident>($rows:ident, $at:ident, $group:ident) $read:block
        columns($raw:ident, $j:ident) $columns:block
        scales($out:ident) $scales:block
    ) => {
        $(#[$doc])*
        pub(super) struct $name;

        impl Format for $name {
            const BYTES: usize = $bytes;
            const BLOCKS: usize = $blocks;
            type Layout = $layout;
            const BITS: u32 = $bits;
            $(format! { @ $key = $value })*

            #[inline(always)]
            unsafe fn read<$S: Simd>($rows: &Rows, $at: usize, $group: usize) -> Raw<$S> $read
            #[inline(always)]
            unsafe fn columns<$S: Simd>($raw: &Raw<$S>, $j: usize) -> [$S::I; 8] $columns
            #[inline(always)]
            unsafe fn scales<$S: Simd>(stored: &Stored, $at: usize, $out: &mut Scales<$S>) {
                let $rows = &stored.rows;
                $scales
            }
        }
    };
    (@ zero = $value:expr) => { const ZERO: i32 = $value; };
    (@ together = $value:expr) => { const TOGETHER: usize = $value; };
    (@ foreseen = $value:expr) => { const FORESEEN: bool = $value; };
    (@ woven = $value:expr) => { const WOVEN: bool = $value; };
}
pub(super) use format;

format! {
    /// f16 scale; 16 bytes of nibbles, low ones first.
    Q4_0: 18 bytes, 1 blocks, 4 bits, Unsigned, zero = 8, foreseen = true;
    read<S>(rows, at, _group) { raw!(S, rows, at + 2) }
    columns(raw, _j) { nibbles::<S>(raw) }
    scales(out) { out.scale[0] = halves::<S>(rows, at); }
}

format! {
    /// f16 scale and minimum; nibbles as in [`Q4_0`].
    Q4_1: 20 bytes, 1 blocks, 4 bits, WithMin, foreseen = true;
    read<S>(rows, at, _group) { raw!(S, rows, at + 4) }
    columns(raw, _j) { nibbles::<S>(raw) }
    scales(out) { (out.scale[0], out.min[0]) = half_pairs::<S>(word::<S>(rows, at)); }
}

format! {
    /// f16 scale; 32 fifth bits; nibbles as in [`Q4_0`].
    Q5_0: 22 bytes, 1 blocks, 5 bits, Unsigned, zero = 16;
    read<S>(rows, at, _group) {
        let mut raw = raw!(S, rows, at + 6);
        raw[4] = word::<S>(rows, at + 2);
        raw
    }
    columns(raw, _j) { five_bits::<S>(raw) }
    scales(out) { out.scale[0] = halves::<S>(rows, at); }
}

format! {
    /// f16 scale and minimum; 32 fifth bits; nibbles as in [`Q4_0`].
    Q5_1: 24 bytes, 1 blocks, 5 bits, WithMin;
    read<S>(rows, at, _group) {
        let mut raw = raw!(S, rows, at + 8);
        raw[4] = word::<S>(rows, at + 4);
        raw
    }
    columns(raw, _j) { five_bits::<S>(raw) }
    scales(out) { (out.scale[0], out.min[0]) = half_pairs::<S>(word::<S>(rows, at)); }
}

format! {
    /// f16 scale; 32 signed bytes.
    Q8_0: 34 bytes, 1 blocks, 8 bits, Signed, foreseen = true;
    read<S>(rows, at, _group) { raw!(S, rows, at + 2, at + 18) }
    columns(raw, _j) { each_column!(|k| raw[k]) }
    scales(out) { out.scale[0] = halves::<S>(rows, at); }
}

format! {
    /// f32 scale; 256 signed bytes; sums of each 16.
    Q8K: 292 bytes, 8 blocks, 8 bits, Signed, woven = false;
    read<S>(rows, at, group) { raw!(S, rows, at + 4 + 32 * group, at + 20 + 32 * group) }
    columns(raw, _j) { each_column!(|k| raw[k]) }
    scales(out) {
        let d = S::as_f32(S::gather(rows, at));
        out.scale[..8].fill(d);
    }
}

format! {
    /// Sixteen 4-bit scales with 4-bit minima; 2-bit integers; f16 scale of scales and of minima.
    Q2K: 84 bytes, 8 blocks, 2 bits, InHalvesWithMin, together = 4;
    read<S>(rows, at, group) { raw!(S, rows, at + 16 + 32 * group, at + 32 + 32 * group) }
    columns(raw, j) { each_column!(|k| bits::<S>(raw[k], j % 4 * 2, 3)) }
    scales(out) {
        let (d, m) = half_pairs::<S>(word::<S>(rows, at + 80));
        let m = S::mul(S::splat(-1.0), m);
        for (four, packed) in words::<S>(rows, at).into_iter().enumerate() {
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
    Q3K: 110 bytes, 8 blocks, 3 bits, InHalves, zero = 4, together = 4;
    read<S>(rows, at, group) {
        raw!(S, rows, at + 32 + 32 * group, at + 48 + 32 * group, at, at + 16)
    }
    columns(raw, j) {
        each_column!(|k| {
            let high = bits::<S>(raw[8 + k], j, 1);
            S::joined::<2>(bits::<S>(raw[k], j % 4 * 2, 3), high)
        })
    }
    scales(out) {
        let (lanes, d) = if rows.together(at).is_some() {
            let three = [word::<S>(rows, at + 96), word::<S>(rows, at + 100), word::<S>(rows, at + 104)];
            (three, halves::<S>(rows, at + 108))
        } else {
            // The last sixteen bytes: two others, twelve of scales, their scale.
            let last = S::columns(rows, at + 94);
            let joined = |i: usize| S::ior(S::ishr(last[i], 16), S::ishl(last[i + 1], 16));
            ([joined(0), joined(1), joined(2)], S::half(S::ishr(last[3], 16)))
        };
        let high = lanes[2];
        for four in 0..4 {
            let low = lanes[four % 2];
            for i in 0..4 {
                let low = S::iand(S::ishr(low, (8 * i + four / 2 * 4) as u32), S::isplat(15));
                let high = S::iand(S::ishr(high, (8 * i + 2 * four) as u32), S::isplat(3));
                let scale = S::iadd(S::ior(low, S::ishl(high, 4)), S::isplat(-32));
                out.scale[4 * four + i] = S::mul(d, S::to_f32(scale));
            }
        }
    }
}

format! {
    /// 2-bit integers as in [`Q2K`]; f16 scale.
    Tq2: 66 bytes, 8 blocks, 2 bits, Unsigned, zero = 1, together = 4;
    read<S>(rows, at, group) { raw!(S, rows, at + 32 * group, at + 32 * group + 16) }
    columns(raw, j) { each_column!(|k| bits::<S>(raw[k], j % 4 * 2, 3)) }
    scales(out) {
        let d = last_halves::<S>(rows, at + 64);
        out.scale[..8].fill(d);
    }
}

/// The eight 6-bit scales and minima of a Q4_K or Q5_K block, with their f16 scales before them.
#[inline(always)]
unsafe fn six_bits<S: Simd>(rows: &Rows, at: usize, out: &mut Scales<S>) {
    let [both, a, b, c] = words::<S>(rows, at);
    let (d, m) = half_pairs::<S>(both);
    let m = S::mul(S::splat(-1.0), m);
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
    Q4K: 144 bytes, 8 blocks, 4 bits, WithMin, together = 2, foreseen = true;
    read<S>(rows, at, group) { raw!(S, rows, at + 16 + 32 * group, at + 32 + 32 * group) }
    columns(raw, j) { each_column!(|k| bits::<S>(raw[k], j % 2 * 4, 15)) }
    scales(out) { six_bits::<S>(rows, at, out); }
}

format! {
    /// As [`Q4K`], with 32 bytes of fifth bits, one of each for each block.
    Q5K: 176 bytes, 8 blocks, 5 bits, WithMin, together = 2;
    read<S>(rows, at, group) {
        raw!(S, rows, at + 48 + 32 * group, at + 64 + 32 * group, at + 16, at + 32)
    }
    columns(raw, j) {
        each_column!(|k| {
            let high = bits::<S>(raw[8 + k], j, 1);
            S::joined::<4>(bits::<S>(raw[k], j % 2 * 4, 15), high)
        })
    }
    scales(out) { six_bits::<S>(rows, at, out); }
}

/// Sixteen signed 8-bit scales at 192 and their f16 scale at 208.
#[inline(always)]
unsafe fn sixteen_bytes<S: Simd>(rows: &Rows, at: usize, out: &mut Scales<S>) {
    let d = last_halves::<S>(rows, at + 208);
    for (four, packed) in words::<S>(rows, at + 192).into_iter().enumerate() {
        for i in 0..4 {
            let scale = S::isar(S::ishl(packed, 24 - 8 * i as u32), 24);
            out.scale[4 * four + i] = S::mul(d, S::to_f32(scale));
        }
    }
}

format! {
    /// 128 bytes of nibbles, 64 of pairs of upper bits, sixteen scales; interleaved by 128 elements.
    Q6K: 210 bytes, 8 blocks, 6 bits, InHalves, zero = 32, together = 4;
    read<S>(rows, at, group) {
        let (low, high) = (at + 64 * group, at + 128 + 32 * group);
        raw!(S, rows, low, low + 16, low + 32, low + 48, high, high + 16)
    }
    columns(raw, j) {
        let part = j % 4;
        each_column!(|k| {
            let high = bits::<S>(raw[16 + k], 2 * part, 3);
            S::joined::<4>(bits::<S>(raw[part % 2 * 8 + k], part / 2 * 4, 15), high)
        })
    }
    scales(out) { sixteen_bytes::<S>(rows, at, out); }
}

format! {
    /// LARQL's: the same parts as [`Q6K`], but all in the order of the elements.
    Q6Linear: 210 bytes, 8 blocks, 6 bits, InHalves, zero = 32;
    read<S>(rows, at, group) {
        let mut raw = raw!(S, rows, at + 16 * group);
        raw[4] = word::<S>(rows, at + 128 + 8 * group);
        raw[5] = word::<S>(rows, at + 132 + 8 * group);
        raw
    }
    columns(raw, _j) {
        let low = S::in_order(&[raw[0], raw[1], raw[2], raw[3]]);
        each_column!(|k| {
            // A byte of pairs to four.
            let one = byte::<S>(raw[4 + k / 4], k % 4);
            let one = S::iand(S::ior(one, S::ishl(one, 12)), S::isplat(0x000f_000f));
            let high = S::iand(S::ior(one, S::ishl(one, 6)), S::isplat(0x0303_0303));
            S::joined::<4>(low[k], high)
        })
    }
    scales(out) { sixteen_bytes::<S>(rows, at, out); }
}
