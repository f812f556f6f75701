//! What are the vector operations in NEON? Four registers each.
#![allow(unsafe_op_in_unsafe_fn, reason = "simd.rs states the contract of all these functions")]

use std::arch::aarch64::*;
use std::arch::asm;

use super::simd::{LANES, Rows, Simd};

/// NEON. `DOT`: with the products of the `dotprod` extension.
#[derive(Clone, Copy)]
pub(super) struct Neon<const DOT: bool>;

type F = [float32x4_t; 4];
type I = [int32x4_t; 4];
type B = [[uint8x16_t; 2]; 2];

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
}

/// One operation for both registers of both rows.
macro_rules! bytes {
    ($f:path, $a:expr, $b:expr) => {{
        let ([[a, b], [c, d]], [[e, f], [g, h]]) = ($a, $b);
        [[$f(a, e), $f(b, f)], [$f(c, g), $f(d, h)]]
    }};
}

/// Operations of the trait that are one instruction for each register.
macro_rules! pairs {
    ($($name:ident: $t:ty = $each:ident, $f:path;)*) => {$(
        #[inline(always)]
        unsafe fn $name(a: $t, b: $t) -> $t {
            $each!($f, a, b)
        }
    )*};
}

/// Half-precision numbers widened.
#[inline(always)]
unsafe fn widen(x: uint16x4_t) -> float32x4_t {
    let wide: float32x4_t;
    asm!(
        "fcvtl {wide:v}.4s, {x:v}.4h",
        wide = lateout(vreg) wide,
        x = in(vreg) x,
        options(pure, nomem, nostack),
    );
    wide
}

/// Numbers narrowed to half precision, to nearest even.
#[inline(always)]
unsafe fn narrow(x: float32x4_t) -> uint16x4_t {
    let half: uint16x4_t;
    asm!(
        "fcvtn {half:v}.4h, {x:v}.4s",
        half = lateout(vreg) half,
        x = in(vreg) x,
        options(pure, nomem, nostack),
    );
    half
}

#[inline(always)]
unsafe fn bf16(x: uint16x4_t) -> float32x4_t {
    vreinterpretq_f32_u32(vshll_n_u16::<16>(x))
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

/// As [`dot`], without its instruction. Products of bytes other than -128 by -128 fit 16 bits.
#[inline(always)]
unsafe fn multiplied(sum: int32x4_t, weights: int8x16_t, x: int8x16_t) -> int32x4_t {
    let lower = vpaddlq_s16(vmull_s8(vget_low_s8(weights), vget_low_s8(x)));
    let upper = vpaddlq_s16(vmull_high_s8(weights, x));
    vaddq_s32(sum, vpaddq_s32(lower, upper))
}

/// Columns of four rows' 16 bytes: row r in lane r.
#[inline(always)]
unsafe fn four_columns([a, b, c, d]: [uint8x16_t; 4]) -> I {
    let (a, b) = (vreinterpretq_s32_u8(a), vreinterpretq_s32_u8(b));
    let (c, d) = (vreinterpretq_s32_u8(c), vreinterpretq_s32_u8(d));
    let (ab, cd) = (vreinterpretq_s64_s32(vtrn1q_s32(a, b)), vreinterpretq_s64_s32(vtrn1q_s32(c, d)));
    let (ef, gh) = (vreinterpretq_s64_s32(vtrn2q_s32(a, b)), vreinterpretq_s64_s32(vtrn2q_s32(c, d)));
    [
        vreinterpretq_s32_s64(vtrn1q_s64(ab, cd)),
        vreinterpretq_s32_s64(vtrn1q_s64(ef, gh)),
        vreinterpretq_s32_s64(vtrn2q_s64(ab, cd)),
        vreinterpretq_s32_s64(vtrn2q_s64(ef, gh)),
    ]
}

/// Lanes i and i + 8, then i + 4.
#[inline(always)]
unsafe fn quarter(x: F) -> float32x4_t {
    vaddq_f32(vaddq_f32(x[0], x[2]), vaddq_f32(x[1], x[3]))
}

/// Lanes i and i + 2 of two vectors.
#[inline(always)]
unsafe fn halves(a: float32x4_t, b: float32x4_t) -> float32x4_t {
    let (a, b) = (vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b));
    vaddq_f32(vreinterpretq_f32_f64(vtrn1q_f64(a, b)), vreinterpretq_f32_f64(vtrn2q_f64(a, b)))
}

/// Sums of four vectors.
#[inline(always)]
unsafe fn four_sums(x: &[F]) -> float32x4_t {
    vpaddq_f32(halves(quarter(x[0]), quarter(x[1])), halves(quarter(x[2]), quarter(x[3])))
}

/// The larger of each pair; `b` where `a` is not a number.
#[inline(always)]
unsafe fn larger(a: float32x4_t, b: float32x4_t) -> float32x4_t {
    vbslq_f32(vcgtq_f32(a, b), a, b)
}

#[inline(always)]
unsafe fn smaller(a: float32x4_t, b: float32x4_t) -> float32x4_t {
    vbslq_f32(vcltq_f32(a, b), a, b)
}

/// To the nearest integer; conversion itself would stop at the largest one.
#[inline(always)]
unsafe fn nearest(x: float32x4_t) -> int32x4_t {
    let fits = vcltq_f32(vabsq_f32(x), vdupq_n_f32(2147483648.0));
    vbslq_s32(fits, vcvtnq_s32_f32(x), vdupq_n_s32(i32::MIN))
}

#[inline(always)]
unsafe fn to_bytes(a: int32x4_t, b: int32x4_t) -> int8x8_t {
    vmovn_s16(vcombine_s16(vmovn_s32(a), vmovn_s32(b)))
}

#[inline(always)]
unsafe fn row_nibbles(p: *const u8) -> [uint8x16_t; 2] {
    let x = vld1q_u8(p);
    [vandq_u8(x, vdupq_n_u8(15)), vshrq_n_u8::<4>(x)]
}

#[inline(always)]
unsafe fn row_nibble_pairs(p: *const u8) -> [uint8x16_t; 2] {
    let [low, high] = row_nibbles(p);
    [vzip1q_u8(low, high), vzip2q_u8(low, high)]
}

#[inline(always)]
unsafe fn row_bits(p: *const u8) -> [uint8x16_t; 2] {
    // Each byte eight times, then one of its bits each.
    const BYTE_OF: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1];
    let x = vreinterpretq_u8_u32(vdupq_n_u32(p.cast::<u32>().read_unaligned()));
    let bit_of = vreinterpretq_u8_u64(vdupq_n_u64(0x8040_2010_0804_0201));
    let byte_of = vld1q_u8(BYTE_OF.as_ptr());
    let first = vtstq_u8(vqtbl1q_u8(x, byte_of), bit_of);
    let second = vtstq_u8(vqtbl1q_u8(x, vaddq_u8(byte_of, vdupq_n_u8(2))), bit_of);
    [vandq_u8(first, vdupq_n_u8(0x10)), vandq_u8(second, vdupq_n_u8(0x10))]
}

#[inline(always)]
unsafe fn row_bit_pairs(p: *const u8) -> [uint8x16_t; 2] {
    // Each byte four times, shifted so that bits 0-1, 2-3, 4-5, 6-7 become bits 4-5.
    const BYTE_OF: [u8; 16] = [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3];
    let x = vcombine_u8(vld1_u8(p), vdup_n_u8(0));
    let shifts = vreinterpretq_s8_s32(vdupq_n_s32(i32::from_le_bytes([4, 2, 0, -2i8 as u8])));
    let byte_of = vld1q_u8(BYTE_OF.as_ptr());
    let first = vshlq_u8(vqtbl1q_u8(x, byte_of), shifts);
    let second = vshlq_u8(vqtbl1q_u8(x, vaddq_u8(byte_of, vdupq_n_u8(4))), shifts);
    [vandq_u8(first, vdupq_n_u8(0x30)), vandq_u8(second, vdupq_n_u8(0x30))]
}

impl<const DOT: bool> Simd for Neon<DOT> {
    type F = F;
    type I = I;
    type B = B;

    const SIGNED: bool = true;
    /// As many as leave room for a column among 32 registers, and for partial products where these
    /// need it.
    const ROWS: usize = if DOT { 6 } else { 4 };

    pairs! {
        add: F = four, vaddq_f32;
        sub: F = four, vsubq_f32;
        mul: F = four, vmulq_f32;
        div: F = four, vdivq_f32;
        max: F = four, larger;
        min: F = four, smaller;
        iadd: I = four, vaddq_s32;
        imul: I = four, vmulq_s32;
        iand: I = four, vandq_s32;
        ior: I = four, vorrq_s32;
        band: Self::B = bytes, vandq_u8;
        bor: Self::B = bytes, vorrq_u8;
        bxor: Self::B = bytes, veorq_u8;
        bsub: Self::B = bytes, vsubq_u8;
    }

    #[inline(always)]
    unsafe fn zero() -> F {
        [vdupq_n_f32(0.0); 4]
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> F {
        [vdupq_n_f32(x); 4]
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> F {
        [vld1q_f32(p), vld1q_f32(p.add(4)), vld1q_f32(p.add(8)), vld1q_f32(p.add(12))]
    }
    #[inline(always)]
    unsafe fn load_part(p: *const f32, n: usize) -> F {
        let mut room = [0.0; LANES];
        std::ptr::copy_nonoverlapping(p, room.as_mut_ptr(), n.min(LANES));
        Self::load(room.as_ptr())
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const u16) -> F {
        let (a, b) = (vld1q_u16(p), vld1q_u16(p.add(8)));
        four!(widen, [vget_low_u16(a), vget_high_u16(a), vget_low_u16(b), vget_high_u16(b)])
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
        let mut room = [0.0; LANES];
        Self::store(room.as_mut_ptr(), x);
        std::ptr::copy_nonoverlapping(room.as_ptr(), p, n.min(LANES));
    }
    #[inline(always)]
    unsafe fn store_f16(p: *mut u16, x: F) {
        for (i, x) in x.into_iter().enumerate() {
            vst1_u16(p.add(4 * i), narrow(x));
        }
    }
    #[inline(always)]
    unsafe fn fma(a: F, b: F, c: F) -> F {
        [
            vfmaq_f32(c[0], a[0], b[0]),
            vfmaq_f32(c[1], a[1], b[1]),
            vfmaq_f32(c[2], a[2], b[2]),
            vfmaq_f32(c[3], a[3], b[3]),
        ]
    }
    #[inline(always)]
    unsafe fn abs(a: F) -> F {
        four!(vabsq_f32, a)
    }
    #[inline(always)]
    unsafe fn round(a: F) -> I {
        four!(nearest, a)
    }
    #[inline(always)]
    unsafe fn exp2i(n: I) -> F {
        Self::as_f32(Self::ishl(Self::iadd(n, Self::isplat(127)), 23))
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
    unsafe fn sums(x: &[F; LANES]) -> F {
        [four_sums(&x[..4]), four_sums(&x[4..8]), four_sums(&x[8..12]), four_sums(&x[12..])]
    }

    #[inline(always)]
    unsafe fn isplat(x: i32) -> I {
        [vdupq_n_s32(x); 4]
    }
    #[inline(always)]
    unsafe fn iload(p: *const i32) -> I {
        [vld1q_s32(p), vld1q_s32(p.add(4)), vld1q_s32(p.add(8)), vld1q_s32(p.add(12))]
    }
    #[inline(always)]
    unsafe fn istore(p: *mut i32, x: I) {
        for (i, x) in x.into_iter().enumerate() {
            vst1q_s32(p.add(4 * i), x);
        }
    }
    #[inline(always)]
    unsafe fn gather(rows: &Rows, offset: usize) -> I {
        let mut room = [0; LANES];
        for (lane, row) in room.iter_mut().zip(rows) {
            *lane = row.add(offset).cast::<i32>().read_unaligned();
        }
        Self::iload(room.as_ptr())
    }
    #[inline(always)]
    unsafe fn ishl(a: I, n: u32) -> I {
        four!(vshlq_s32, a, Self::isplat(n as i32))
    }
    #[inline(always)]
    unsafe fn ishr(a: I, n: u32) -> I {
        let a = four!(vreinterpretq_u32_s32, a);
        four!(vreinterpretq_s32_u32, four!(vshlq_u32, a, Self::isplat(-(n as i32))))
    }
    #[inline(always)]
    unsafe fn isar(a: I, n: u32) -> I {
        four!(vshlq_s32, a, Self::isplat(-(n as i32)))
    }
    #[inline(always)]
    unsafe fn to_f32(a: I) -> F {
        four!(vcvtq_f32_s32, a)
    }
    #[inline(always)]
    unsafe fn half(a: I) -> F {
        four!(widen, four!(vmovn_u32, four!(vreinterpretq_u32_s32, a)))
    }
    #[inline(always)]
    unsafe fn as_f32(a: I) -> F {
        four!(vreinterpretq_f32_s32, a)
    }
    #[inline(always)]
    unsafe fn store_i8(p: *mut i8, a: I) {
        vst1q_s8(p, vcombine_s8(to_bytes(a[0], a[1]), to_bytes(a[2], a[3])));
    }

    #[inline(always)]
    unsafe fn bytes(a: *const u8, b: *const u8) -> B {
        [[vld1q_u8(a), vld1q_u8(a.add(16))], [vld1q_u8(b), vld1q_u8(b.add(16))]]
    }
    #[inline(always)]
    unsafe fn nibbles(a: *const u8, b: *const u8) -> B {
        [row_nibbles(a), row_nibbles(b)]
    }
    #[inline(always)]
    unsafe fn nibble_pairs(a: *const u8, b: *const u8) -> B {
        [row_nibble_pairs(a), row_nibble_pairs(b)]
    }
    #[inline(always)]
    unsafe fn bits(a: *const u8, b: *const u8) -> B {
        [row_bits(a), row_bits(b)]
    }
    #[inline(always)]
    unsafe fn bit_pairs(a: *const u8, b: *const u8) -> B {
        [row_bit_pairs(a), row_bit_pairs(b)]
    }
    #[inline(always)]
    unsafe fn bsplat(x: u8) -> B {
        [[vdupq_n_u8(x); 2]; 2]
    }
    #[inline(always)]
    unsafe fn bshr(a: B, n: u32) -> B {
        bytes!(vshlq_u8, a, [[vdupq_n_s8(-(n as i8)); 2]; 2])
    }
    #[inline(always)]
    unsafe fn bshl(a: B, n: u32) -> B {
        bytes!(vshlq_u8, a, [[vdupq_n_s8(n as i8); 2]; 2])
    }
    #[inline(always)]
    unsafe fn columns(rows: [B; 8]) -> [I; 8] {
        let mut columns = [Self::isplat(0); 8];
        // Of each register of the result, and of each half of the rows' bytes.
        for four in 0..4 {
            for half in 0..2 {
                let (first, row) = (four / 2 * 4, four % 2);
                let four_rows = [
                    rows[first][row][half],
                    rows[first + 1][row][half],
                    rows[first + 2][row][half],
                    rows[first + 3][row][half],
                ];
                for (k, column) in four_columns(four_rows).into_iter().enumerate() {
                    columns[4 * half + k][four] = column;
                }
            }
        }
        columns
    }
    #[inline(always)]
    unsafe fn dot4<const WIDE: bool>(sum: I, weights: I, x: *const i8) -> I {
        let x = vreinterpretq_s8_s32(vdupq_n_s32(x.cast::<i32>().read_unaligned()));
        let [a, b, c, d] = four!(vreinterpretq_s8_s32, weights);
        if DOT {
            [dot(sum[0], a, x), dot(sum[1], b, x), dot(sum[2], c, x), dot(sum[3], d, x)]
        } else {
            [
                multiplied(sum[0], a, x),
                multiplied(sum[1], b, x),
                multiplied(sum[2], c, x),
                multiplied(sum[3], d, x),
            ]
        }
    }
    #[inline(always)]
    unsafe fn prefetch(p: *const u8) {
        asm!("prfm pldl1keep, [{p}]", p = in(reg) p, options(readonly, nostack, preserves_flags));
    }
}
