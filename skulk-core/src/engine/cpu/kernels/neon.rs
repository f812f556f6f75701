//! What are the vector operations in NEON? Four registers each.
#![allow(unsafe_op_in_unsafe_fn, reason = "`Simd` states the contract of all these functions")]

use std::arch::aarch64::*;
use std::arch::asm;

use super::direct;
use super::simd::{LANES, Rows, Simd, Weights, dot_block, dot_columns, operations};

/// NEON. `DOT`: with the products of the `dotprod` extension; `MATRIX`: and those of `i8mm`.
#[derive(Clone, Copy)]
pub(super) struct Neon<const DOT: bool, const MATRIX: bool>;

type F = [float32x4_t; 4];
type I = [int32x4_t; 4];

// Functions here are inlined by order and closures are not used: what is called out of line lacks the
// caller's instructions.

/// One operation for all four registers.
macro_rules! four {
    ($f:path, $a:expr) => {{
        let [a, b, c, d] = $a;
        [$f(a), $f(b), $f(c), $f(d)]
    }};
    ($f:path, $a:expr, $b:expr) => {{
        let ([a, b, c, d], [e, f, g, h]) = ($a, $b);
        [$f(a, e), $f(b, f), $f(c, g), $f(d, h)]
    }};
    ($f:path, $a:expr, $b:expr, $c:expr) => {{
        let ([a, b, c, d], [e, f, g, h], [i, j, k, l]) = ($a, $b, $c);
        [$f(a, e, i), $f(b, f, j), $f(c, g, k), $f(d, h, l)]
    }};
}

/// The lower half of half-precision numbers widened, and the upper half.
#[inline(always)]
unsafe fn widen(x: uint16x8_t) -> [float32x4_t; 2] {
    let (lower, upper): (float32x4_t, float32x4_t);
    asm!(
        "fcvtl {wide:v}.4s, {x:v}.4h",
        wide = lateout(vreg) lower,
        x = in(vreg) x,
        options(pure, nomem, nostack, preserves_flags),
    );
    asm!(
        "fcvtl2 {wide:v}.4s, {x:v}.8h",
        wide = lateout(vreg) upper,
        x = in(vreg) x,
        options(pure, nomem, nostack, preserves_flags),
    );
    [lower, upper]
}

/// Numbers narrowed to half precision, to nearest even.
#[inline(always)]
unsafe fn narrow(x: float32x4_t) -> uint16x4_t {
    let half: uint16x4_t;
    asm!(
        "fcvtn {half:v}.4h, {x:v}.4s",
        half = lateout(vreg) half,
        x = in(vreg) x,
        options(pure, nomem, nostack, preserves_flags),
    );
    half
}

/// Adds the products of four bytes each.
#[inline(always)]
unsafe fn dot(sum: int32x4_t, weights: int8x16_t, x: int8x16_t) -> int32x4_t {
    let mut sum = sum;
    asm!(
        "sdot {sum:v}.4s, {weights:v}.16b, {x:v}.16b",
        sum = inlateout(vreg) sum,
        weights = in(vreg) weights,
        x = in(vreg) x,
        options(pure, nomem, nostack, preserves_flags),
    );
    sum
}

/// The same with one of four groups of four bytes in all lanes.
#[inline(always)]
unsafe fn dot_one<const GROUP: usize>(sum: int32x4_t, weights: int8x16_t, x: int8x16_t) -> int32x4_t {
    let mut sum = sum;
    asm!(
        "sdot {sum:v}.4s, {weights:v}.16b, {x:v}.4b[{group}]",
        sum = inlateout(vreg) sum,
        weights = in(vreg) weights,
        x = in(vreg) x,
        group = const GROUP,
        options(pure, nomem, nostack, preserves_flags),
    );
    sum
}

/// Adds the products of four columns with 16 bytes of each row.
#[inline(always)]
unsafe fn dot_four<const N: usize>(sums: &mut [I; N], columns: [I; 4], x: *const i8, distance: usize) {
    let (mut bytes, mut n) = ([vdupq_n_s8(0); N], 0);
    while n < N {
        bytes[n] = vld1q_s8(x.add(n * distance));
        n += 1;
    }
    macro_rules! column {
        ($group:literal) => {
            let weights = four!(vreinterpretq_s8_s32, columns[$group]);
            let mut n = 0;
            while n < N {
                sums[n] = four!(dot_one::<$group>, sums[n], weights, [bytes[n]; 4]);
                n += 1;
            }
        };
    }
    column!(0);
    column!(1);
    column!(2);
    column!(3);
}

/// As [`dot`], without its instruction. Products of bytes other than -128 by -128 fit 16 bits.
#[inline(always)]
unsafe fn multiplied(sum: int32x4_t, weights: int8x16_t, x: int8x16_t) -> int32x4_t {
    let lower = vpaddlq_s16(vmull_s8(vget_low_s8(weights), vget_low_s8(x)));
    let upper = vpaddlq_s16(vmull_high_s8(weights, x));
    vaddq_s32(sum, vpaddq_s32(lower, upper))
}

/// Adds the products of two rows of eight bytes with two others: of the first of `x` with both of
/// `weights`, then of the second.
#[inline(always)]
unsafe fn matrix(sum: int32x4_t, x: int32x4_t, weights: int32x4_t) -> int32x4_t {
    let mut sum = sum;
    asm!(
        "smmla {sum:v}.4s, {x:v}.16b, {weights:v}.16b",
        sum = inlateout(vreg) sum,
        x = in(vreg) x,
        weights = in(vreg) weights,
        options(pure, nomem, nostack, preserves_flags),
    );
    sum
}

/// The same for eight weight rows and each pair of `N` activation rows, at its first row's number.
#[inline(always)]
unsafe fn by_pairs<const N: usize>(sums: &mut [I; N], x: &[int32x4_t; N], weights: I) {
    for n in (0..N).step_by(2) {
        sums[n] = four!(matrix, sums[n], [x[n]; 4], weights);
    }
}

/// Columns of four rows' 16 bytes: row r in lane r.
#[inline(always)]
unsafe fn four_columns([a, b, c, d]: [uint8x16_t; 4]) -> I {
    let (a, b) = (vreinterpretq_s32_u8(a), vreinterpretq_s32_u8(b));
    let (c, d) = (vreinterpretq_s32_u8(c), vreinterpretq_s32_u8(d));
    let (even_ab, even_cd) = (vtrn1q_s32(a, b), vtrn1q_s32(c, d));
    let (odd_ab, odd_cd) = (vtrn2q_s32(a, b), vtrn2q_s32(c, d));
    [
        lower_halves(even_ab, even_cd),
        lower_halves(odd_ab, odd_cd),
        upper_halves(even_ab, even_cd),
        upper_halves(odd_ab, odd_cd),
    ]
}

/// Lanes i and i + 2 of two vectors.
#[inline(always)]
unsafe fn halves(a: float32x4_t, b: float32x4_t) -> float32x4_t {
    let (a, b) = (vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b));
    vaddq_f32(vreinterpretq_f32_f64(vtrn1q_f64(a, b)), vreinterpretq_f32_f64(vtrn2q_f64(a, b)))
}

/// To the nearest integer; conversion itself would stop at the largest one.
#[inline(always)]
unsafe fn nearest(x: float32x4_t) -> int32x4_t {
    let fits = vcltq_f32(vabsq_f32(x), vdupq_n_f32(2147483648.0));
    vbslq_s32(fits, vcvtnq_s32_f32(x), vdupq_n_s32(i32::MIN))
}

operations! {
    inline(always):
    bf16(x: uint16x4_t) -> float32x4_t = vreinterpretq_f32_u32(vshll_n_u16::<16>(x));
    lower_halves(a: int32x4_t, b: int32x4_t) -> int32x4_t =
        vreinterpretq_s32_s64(vtrn1q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
    upper_halves(a: int32x4_t, b: int32x4_t) -> int32x4_t =
        vreinterpretq_s32_s64(vtrn2q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
    /// Lanes i and i + 8, then i + 4.
    quarter(x: F) -> float32x4_t = vaddq_f32(vaddq_f32(x[0], x[2]), vaddq_f32(x[1], x[3]));
    /// Sums of four vectors.
    four_sums(x: &[F]) -> float32x4_t =
        vpaddq_f32(halves(quarter(x[0]), quarter(x[1])), halves(quarter(x[2]), quarter(x[3])));
    /// The larger of each pair; `b` where `a` is not a number.
    larger(a: float32x4_t, b: float32x4_t) -> float32x4_t = vbslq_f32(vcgtq_f32(a, b), a, b);
    smaller(a: float32x4_t, b: float32x4_t) -> float32x4_t = vbslq_f32(vcltq_f32(a, b), a, b);
    to_bytes(a: int32x4_t, b: int32x4_t) -> int8x8_t = vmovn_s16(vcombine_s16(vmovn_s32(a), vmovn_s32(b)));
}

impl<const DOT: bool, const MATRIX: bool> Simd for Neon<DOT, MATRIX> {
    type F = F;
    type I = I;

    const SIGNED: bool = true;
    /// As many as leave room for a column among 32 registers, and for what products need besides.
    const ROWS: usize = if DOT && !MATRIX { 6 } else { 4 };
    /// With sixteen bytes of every row, or partial products, more have no room.
    const GROUP: usize = 4;
    const TAIL: usize = 2;
    /// Columns take all registers: so many rows share loading them.
    const TOGETHER: usize = if DOT { 4 } else { 2 };
    const APART: usize = if DOT { direct::MOST } else { 0 };

    operations! {
        inline(always):
        zero() -> F = [vdupq_n_f32(0.0); 4];
        splat(x: f32) -> F = [vdupq_n_f32(x); 4];
        load(p: *const f32) -> F =
            [vld1q_f32(p), vld1q_f32(p.add(4)), vld1q_f32(p.add(8)), vld1q_f32(p.add(12))];
        add(a: F, b: F) -> F = four!(vaddq_f32, a, b);
        sub(a: F, b: F) -> F = four!(vsubq_f32, a, b);
        mul(a: F, b: F) -> F = four!(vmulq_f32, a, b);
        div(a: F, b: F) -> F = four!(vdivq_f32, a, b);
        fma(a: F, b: F, c: F) -> F = four!(vfmaq_f32, c, a, b);
        max(a: F, b: F) -> F = four!(larger, a, b);
        min(a: F, b: F) -> F = four!(smaller, a, b);
        abs(a: F) -> F = four!(vabsq_f32, a);
        round(a: F) -> I = four!(nearest, a);
        exp2i(n: I) -> F = Self::as_f32(Self::ishl(Self::iadd(n, Self::isplat(127)), 23));
        sums(x: &[F; LANES]) -> F =
            [four_sums(&x[..4]), four_sums(&x[4..8]), four_sums(&x[8..12]), four_sums(&x[12..])];
        prefetch(p: *const u8) =
            asm!("prfm pldl2keep, [{p}]", p = in(reg) p, options(readonly, nostack, preserves_flags));

        isplat(x: i32) -> I = [vdupq_n_s32(x); 4];
        iload(p: *const i32) -> I =
            [vld1q_s32(p), vld1q_s32(p.add(4)), vld1q_s32(p.add(8)), vld1q_s32(p.add(12))];
        iadd(a: I, b: I) -> I = four!(vaddq_s32, a, b);
        imul(a: I, b: I) -> I = four!(vmulq_s32, a, b);
        iand(a: I, b: I) -> I = four!(vandq_s32, a, b);
        ior(a: I, b: I) -> I = four!(vorrq_s32, a, b);
        ishl(a: I, n: u32) -> I = four!(vshlq_s32, a, Self::isplat(n as i32));
        isar(a: I, n: u32) -> I = four!(vshlq_s32, a, Self::isplat(-(n as i32)));
        to_f32(a: I) -> F = four!(vcvtq_f32_s32, a);
        as_f32(a: I) -> F = four!(vreinterpretq_f32_s32, a);
        store_i8(p: *mut i8, a: I) = vst1q_s8(p, vcombine_s8(to_bytes(a[0], a[1]), to_bytes(a[2], a[3])));
        ixor(a: I, b: I) -> I = four!(veorq_s32, a, b);
    }

    #[inline(always)]
    unsafe fn load_part(p: *const f32, n: usize) -> F {
        let mut lanes = [0.0; LANES];
        std::ptr::copy_nonoverlapping(p, lanes.as_mut_ptr(), n.min(LANES));
        Self::load(lanes.as_ptr())
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const u16) -> F {
        let ([a, b], [c, d]) = (widen(vld1q_u16(p)), widen(vld1q_u16(p.add(8))));
        [a, b, c, d]
    }
    #[inline(always)]
    unsafe fn half(a: I) -> F {
        let [a, b, c, d] = four!(vreinterpretq_u16_s32, a);
        let ([a, b], [c, d]) = (widen(vuzp1q_u16(a, b)), widen(vuzp1q_u16(c, d)));
        [a, b, c, d]
    }
    #[inline(always)]
    unsafe fn load_i8(p: *const i8) -> I {
        let bytes = vld1q_s8(p);
        let (a, b) = (vmovl_s8(vget_low_s8(bytes)), vmovl_s8(vget_high_s8(bytes)));
        four!(vmovl_s16, [vget_low_s16(a), vget_high_s16(a), vget_low_s16(b), vget_high_s16(b)])
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u16) -> F {
        let (a, b) = (vld1q_u16(p), vld1q_u16(p.add(8)));
        four!(bf16, [vget_low_u16(a), vget_high_u16(a), vget_low_u16(b), vget_high_u16(b)])
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, x: F) {
        for (i, x) in x.into_iter().enumerate() {
            vst1q_f32(p.add(4 * i), x);
        }
    }
    #[inline(always)]
    unsafe fn store_part(p: *mut f32, n: usize, x: F) {
        let mut lanes = [0.0; LANES];
        Self::store(lanes.as_mut_ptr(), x);
        std::ptr::copy_nonoverlapping(lanes.as_ptr(), p, n.min(LANES));
    }
    #[inline(always)]
    unsafe fn store_f16(p: *mut u16, x: F) {
        for (i, x) in x.into_iter().enumerate() {
            vst1_u16(p.add(4 * i), narrow(x));
        }
    }
    #[inline(always)]
    unsafe fn store_upper(p: *mut u16, a: I) {
        for (i, a) in a.into_iter().enumerate() {
            vst1_u16(p.add(4 * i), vshrn_n_u32::<16>(vreinterpretq_u32_s32(a)));
        }
    }
    #[inline(always)]
    unsafe fn sum(x: F) -> f32 {
        let x = quarter(x);
        let x = vadd_f32(vget_low_f32(x), vget_high_f32(x));
        vpadds_f32(x)
    }
    #[inline(always)]
    unsafe fn largest(a: F, b: F) -> f32 {
        // As integers, what is not a number is larger than all numbers.
        let a = four!(vreinterpretq_u32_f32, Self::abs(a));
        let b = four!(vreinterpretq_u32_f32, Self::abs(b));
        let [a, b, c, d] = four!(vmaxq_u32, a, b);
        f32::from_bits(vmaxvq_u32(vmaxq_u32(vmaxq_u32(a, b), vmaxq_u32(c, d))))
    }
    #[inline(always)]
    unsafe fn not_below(a: F, b: F) -> u32 {
        let bits = vld1q_u32([1, 2, 4, 8].as_ptr());
        let mut all = 0;
        for (i, below) in four!(vcltq_f32, a, b).into_iter().enumerate() {
            all |= vaddvq_u32(vbicq_u32(bits, below)) << (4 * i);
        }
        all
    }

    #[inline(always)]
    unsafe fn istore(p: *mut i32, x: I) {
        for (i, x) in x.into_iter().enumerate() {
            vst1q_s32(p.add(4 * i), x);
        }
    }
    #[inline(always)]
    unsafe fn gather(rows: &Rows, offset: usize) -> I {
        let mut lanes = [0; LANES];
        for (i, to) in lanes.iter_mut().enumerate() {
            *to = rows.row(i).add(offset).cast::<i32>().read_unaligned();
        }
        Self::iload(lanes.as_ptr())
    }
    #[inline(always)]
    unsafe fn ishr(a: I, n: u32) -> I {
        let a = four!(vreinterpretq_u32_s32, a);
        four!(vreinterpretq_s32_u32, four!(vshlq_u32, a, Self::isplat(-(n as i32))))
    }

    #[inline(always)]
    unsafe fn bytes_sub(a: I, n: u8) -> I {
        let a = four!(vreinterpretq_s8_s32, a);
        four!(vreinterpretq_s32_s8, four!(vsubq_s8, a, [vdupq_n_s8(n as i8); 4]))
    }
    #[inline(always)]
    unsafe fn columns(rows: &Rows, offset: usize) -> [I; 4] {
        let mut columns = [Self::isplat(0); 4];
        for four in 0..4 {
            let four_rows = [
                vld1q_u8(rows.row(4 * four).add(offset)),
                vld1q_u8(rows.row(4 * four + 1).add(offset)),
                vld1q_u8(rows.row(4 * four + 2).add(offset)),
                vld1q_u8(rows.row(4 * four + 3).add(offset)),
            ];
            for (k, column) in four_columns(four_rows).into_iter().enumerate() {
                columns[k][four] = column;
            }
        }
        columns
    }
    #[inline(always)]
    unsafe fn bits(x: I, n: u32, mask: u8) -> I {
        let mut bits = four!(vreinterpretq_u8_s32, x);
        if n > 0 {
            bits = four!(vshlq_u8, bits, [vdupq_n_s8(-(n as i8)); 4]);
        }
        if mask != 0xff >> n {
            bits = four!(vandq_u8, bits, [vdupq_n_u8(mask); 4]);
        }
        four!(vreinterpretq_s32_u8, bits)
    }
    #[inline(always)]
    unsafe fn joined<const N: u32>(lower: I, upper: I) -> I {
        let (lower, upper) = (four!(vreinterpretq_u8_s32, lower), four!(vreinterpretq_u8_s32, upper));
        four!(
            vreinterpretq_s32_u8,
            match N {
                2 => four!(vsliq_n_u8::<2>, lower, upper),
                4 => four!(vsliq_n_u8::<4>, lower, upper),
                _ => unreachable!(),
            }
        )
    }
    #[inline(always)]
    unsafe fn in_order(nibbles: &[I; 4]) -> [I; 8] {
        let mut columns = [Self::isplat(0); 8];
        for (k, packed) in nibbles.iter().enumerate() {
            for four in 0..4 {
                let packed = vreinterpretq_u8_s32(packed[four]);
                let (low, high) = (vandq_u8(packed, vdupq_n_u8(15)), vshrq_n_u8::<4>(packed));
                // Eight of each of two rows: four for either column.
                let first = vreinterpretq_s32_u8(vzip1q_u8(low, high));
                let second = vreinterpretq_s32_u8(vzip2q_u8(low, high));
                columns[2 * k][four] = vuzp1q_s32(first, second);
                columns[2 * k + 1][four] = vuzp2q_s32(first, second);
            }
        }
        columns
    }
    #[inline(always)]
    unsafe fn reorder(p: *const i8, order: &[i8; 16], to: *mut i8) {
        vst1q_s8(to, vqtbl1q_s8(vld1q_s8(p), vreinterpretq_u8_s8(vld1q_s8(order.as_ptr()))));
    }
    #[inline(always)]
    unsafe fn looked_up(table: &[i8; 16], a: I) -> I {
        let (table, a) = (vld1q_s8(table.as_ptr()), four!(vreinterpretq_u8_s32, a));
        four!(vreinterpretq_s32_s8, four!(vqtbl1q_s8, [table; 4], a))
    }
    #[inline(always)]
    unsafe fn dot4<const WIDE: bool>(sum: I, weights: I, x: *const i8) -> I {
        let x = vreinterpretq_s8_s32(vdupq_n_s32(x.cast::<i32>().read_unaligned()));
        let weights = four!(vreinterpretq_s8_s32, weights);
        if DOT { four!(dot, sum, weights, [x; 4]) } else { four!(multiplied, sum, weights, [x; 4]) }
    }
    #[inline(always)]
    unsafe fn dot_rows<const FROM: usize, const TO: usize, const N: usize>(
        sums: &mut [I; N],
        weights: &Weights<Self>,
        bits: u32,
        x: *const i8,
        distance: usize,
    ) {
        if !DOT {
            return dot_block::<Self, FROM, TO, N>(sums, weights, bits, x, distance);
        }
        // No loop: columns would lie in memory.
        let [a, b, c, d, e, f, g, h] = weights;
        if FROM == 0 {
            dot_four(sums, [a[0], b[0], c[0], d[0]], x, distance);
        }
        if TO == 8 {
            dot_four(sums, [e[0], f[0], g[0], h[0]], x.add(16), distance);
        }
    }
    /// For matrix products, two neighbouring columns become eight bytes of each row: those of rows 0, 1,
    /// 4, 5 and so on where the first was, those of the others where the second was.
    #[inline(always)]
    unsafe fn ordered(columns: [I; 8]) -> [I; 8] {
        let mut columns = columns;
        if MATRIX {
            for k in (0..8).step_by(2) {
                let (a, b) = (columns[k], columns[k + 1]);
                (columns[k], columns[k + 1]) = (four!(vzip1q_s32, a, b), four!(vzip2q_s32, a, b));
            }
        }
        columns
    }
    /// Matrix products are of two activation rows, whose sums share registers meanwhile: a half of each
    /// is one row's. The last of an odd number is paired with itself.
    #[inline(always)]
    unsafe fn dot_packed<const WIDE: bool, const N: usize>(
        sums: &mut [I; N],
        packed: *const i32,
        columns: usize,
        x: *const i8,
        distance: usize,
    ) {
        if !DOT {
            return dot_columns::<Self, WIDE, N>(sums, packed, columns, x, distance);
        }
        if !MATRIX {
            for k in (0..columns).step_by(4) {
                let at = packed.add(k * LANES);
                let columns = [
                    Self::iload(at),
                    Self::iload(at.add(LANES)),
                    Self::iload(at.add(2 * LANES)),
                    Self::iload(at.add(3 * LANES)),
                ];
                dot_four(sums, columns, x.add(4 * k), distance);
            }
            return;
        }
        // As weights are ordered; of each pair at its first row's number.
        let mut shared = [[Self::isplat(0); N]; 2];
        for n in (0..N).step_by(2) {
            let (a, b) = (sums[n], sums[(n + 1).min(N - 1)]);
            (shared[0][n], shared[1][n]) = (four!(lower_halves, a, b), four!(upper_halves, a, b));
        }
        // Sixteen bytes of a row are those of four columns.
        for k in (0..columns).step_by(4) {
            let mut bytes = [[vdupq_n_s32(0); N]; 2];
            for n in (0..N).step_by(2) {
                let a = vreinterpretq_s32_s8(vld1q_s8(x.add(n * distance + 4 * k)));
                let b = vreinterpretq_s32_s8(vld1q_s8(x.add((n + 1).min(N - 1) * distance + 4 * k)));
                (bytes[0][n], bytes[1][n]) = (lower_halves(a, b), upper_halves(a, b));
            }
            let weights = packed.add(k * LANES);
            by_pairs(&mut shared[0], &bytes[0], Self::iload(weights));
            by_pairs(&mut shared[1], &bytes[0], Self::iload(weights.add(LANES)));
            by_pairs(&mut shared[0], &bytes[1], Self::iload(weights.add(2 * LANES)));
            by_pairs(&mut shared[1], &bytes[1], Self::iload(weights.add(3 * LANES)));
        }
        for n in (0..N).step_by(2) {
            let (a, b) = (shared[0][n], shared[1][n]);
            sums[n] = four!(lower_halves, a, b);
            sums[(n + 1).min(N - 1)] = four!(upper_halves, a, b);
        }
    }
}
