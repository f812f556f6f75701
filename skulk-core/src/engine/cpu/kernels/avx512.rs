//! What are the vector operations in AVX-512 with VNNI? One register each.
#![allow(unsafe_op_in_unsafe_fn, reason = "`Simd` states the contract of all these functions")]

use std::arch::x86_64::*;

use super::avx2::{Avx2, store_bytes};
use super::simd::{LANES, Rows, Simd, operations, two_steps};

/// AVX-512 F, BW, DQ, VL and VNNI. `BF16`: with products of bfloat16 numbers too. `SIGNED`: weights are packed as
/// AMX takes them, and [`dot4`](Simd::dot4) is not for them.
#[derive(Clone, Copy)]
pub(super) struct Avx512<const BF16: bool, const SIGNED: bool = false>;

type F = __m512;
type I = __m512i;

#[inline(always)]
fn mask(n: usize) -> __mmask16 {
    ((1u32 << n) - 1) as __mmask16
}

/// The bits as bfloat16 numbers.
#[inline(always)]
fn pairs(x: I) -> __m512bh {
    // SAFETY: both are 512 bits, any of which are numbers.
    unsafe { std::mem::transmute::<I, __m512bh>(x) }
}

operations! {
    inline(always):
    joined([a, b]: [__m256i; 2]) -> I = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(a), b);
}

impl<const BF16: bool, const SIGNED: bool> Simd for Avx512<BF16, SIGNED> {
    type F = F;
    type I = I;

    const SIGNED: bool = SIGNED;
    const ROWS: usize = 12;
    const GROUP: usize = 8;
    const TOGETHER: usize = 4;
    const FEW: bool = true;
    const APART: usize = 4;
    const FORESEES: bool = true;
    const WIDENED: bool = !BF16;
    const SUMS: usize = 16;

    operations! {
        inline(always):
        zero() -> F = _mm512_setzero_ps();
        splat(x: f32) -> F = _mm512_set1_ps(x);
        load(p: *const f32) -> F = _mm512_loadu_ps(p);
        load_part(p: *const f32, n: usize) -> F = _mm512_maskz_loadu_ps(mask(n), p);
        load_f16(p: *const u16) -> F = _mm512_cvtph_ps(_mm256_loadu_si256(p.cast()));
        load_bf16(p: *const u16) -> F =
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast()))));
        store(p: *mut f32, x: F) = _mm512_storeu_ps(p, x);
        stream(p: *mut f32, x: F) = _mm512_stream_ps(p, x);
        streamed() = _mm_sfence();
        store_part(p: *mut f32, n: usize, x: F) = _mm512_mask_storeu_ps(p, mask(n), x);
        store_f16(p: *mut u16, x: F) =
            _mm256_storeu_si256(p.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x));
        add(a: F, b: F) -> F = _mm512_add_ps(a, b);
        sub(a: F, b: F) -> F = _mm512_sub_ps(a, b);
        mul(a: F, b: F) -> F = _mm512_mul_ps(a, b);
        div(a: F, b: F) -> F = _mm512_div_ps(a, b);
        fma(a: F, b: F, c: F) -> F = _mm512_fmadd_ps(a, b, c);
        max(a: F, b: F) -> F = _mm512_max_ps(a, b);
        min(a: F, b: F) -> F = _mm512_min_ps(a, b);
        abs(a: F) -> F = _mm512_abs_ps(a);
        round(a: F) -> I = _mm512_cvtps_epi32(a);
        exp2i(n: I) -> F =
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(_mm512_add_epi32(n, _mm512_set1_epi32(127))));
        sum(x: F) -> f32 =
            Avx2::<false>::sum([_mm512_castps512_ps256(x), _mm512_extractf32x8_ps::<1>(x)]);
        not_below(a: F, b: F) -> u32 = u32::from(_mm512_cmp_ps_mask::<_CMP_NLT_UQ>(a, b));
        prefetch(p: *const u8) = _mm_prefetch::<_MM_HINT_T1>(p.cast());

        isplat(x: i32) -> I = _mm512_set1_epi32(x);
        iload(p: *const i32) -> I = _mm512_loadu_si512(p.cast());
        istore(p: *mut i32, x: I) = _mm512_storeu_si512(p.cast(), x);
        gather(rows: &Rows, offset: usize) -> I = joined(Avx2::<false>::gather(rows, offset));
        iadd(a: I, b: I) -> I = _mm512_add_epi32(a, b);
        imul(a: I, b: I) -> I = _mm512_mullo_epi32(a, b);
        iand(a: I, b: I) -> I = _mm512_and_si512(a, b);
        ior(a: I, b: I) -> I = _mm512_or_si512(a, b);
        ishl(a: I, n: u32) -> I = _mm512_sll_epi32(a, _mm_cvtsi32_si128(n as i32));
        ishr(a: I, n: u32) -> I = _mm512_srl_epi32(a, _mm_cvtsi32_si128(n as i32));
        isar(a: I, n: u32) -> I = _mm512_sra_epi32(a, _mm_cvtsi32_si128(n as i32));
        to_f32(a: I) -> F = _mm512_cvtepi32_ps(a);
        half(a: I) -> F = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(a));
        as_f32(a: I) -> F = _mm512_castsi512_ps(a);
        load_i8(p: *const i8) -> I = _mm512_cvtepi8_epi32(_mm_loadu_si128(p.cast()));
        store_i8(p: *mut i8, a: I) = _mm_storeu_si128(p.cast(), _mm512_cvtepi32_epi8(a));
        store_upper(p: *mut u16, a: I) =
            _mm256_storeu_si256(p.cast(), _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(a)));
        bytes_sub(a: I, n: u8) -> I = _mm512_sub_epi8(a, _mm512_set1_epi8(n as i8));
        ixor(a: I, b: I) -> I = _mm512_xor_si512(a, b);
        reorder(p: *const i8, order: &[i8; 16], to: *mut i8) = Avx2::<false>::reorder(p, order, to);
        looked_up(table: &[i8; 16], a: I) -> I =
            _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast())), a);
    }

    #[inline(always)]
    unsafe fn store_block(p: *mut i8, [a, b]: [I; 2]) -> [i32; 2] {
        let (a, b) = (_mm512_cvtepi32_epi8(a), _mm512_cvtepi32_epi8(b));
        store_bytes(p, _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(a), b))
    }
    #[inline(always)]
    unsafe fn largest(a: F, b: F) -> f32 {
        // As integers, what is not a number is larger than all numbers.
        let (a, b) = (_mm512_castps_si512(Self::abs(a)), _mm512_castps_si512(Self::abs(b)));
        f32::from_bits(_mm512_reduce_max_epi32(_mm512_max_epi32(a, b)) as u32)
    }
    #[inline(always)]
    unsafe fn sums(x: &[F; LANES]) -> F {
        // 16 lanes of one vector to 8 lanes each of two: v, and v + 8 beside it.
        #[inline(always)]
        unsafe fn eighths(a: F, b: F) -> F {
            _mm512_add_ps(
                _mm512_shuffle_f32x4::<0b01_00_01_00>(a, b),
                _mm512_shuffle_f32x4::<0b11_10_11_10>(a, b),
            )
        }
        // 8 lanes each to 4 lanes each: [a0 a1 b0 b1], [c0 c1 d0 d1] to [a b c d].
        #[inline(always)]
        unsafe fn quarters(a: F, b: F) -> F {
            _mm512_add_ps(
                _mm512_shuffle_f32x4::<0b10_00_10_00>(a, b),
                _mm512_shuffle_f32x4::<0b11_01_11_01>(a, b),
            )
        }
        // Lanes of 128 bits: i and i + 2 of both, then 0 and 1.
        #[inline(always)]
        unsafe fn halves(a: F, b: F) -> F {
            _mm512_add_ps(_mm512_shuffle_ps::<0b01_00_01_00>(a, b), _mm512_shuffle_ps::<0b11_10_11_10>(a, b))
        }
        #[inline(always)]
        unsafe fn ones(a: F, b: F) -> F {
            _mm512_add_ps(_mm512_shuffle_ps::<0b10_00_10_00>(a, b), _mm512_shuffle_ps::<0b11_01_11_01>(a, b))
        }
        // Register j of four takes vectors j, j + 4, j + 8, j + 12 into its four 128-bit lanes.
        let [a, b, c, d] = [
            quarters(eighths(x[0], x[4]), eighths(x[8], x[12])),
            quarters(eighths(x[1], x[5]), eighths(x[9], x[13])),
            quarters(eighths(x[2], x[6]), eighths(x[10], x[14])),
            quarters(eighths(x[3], x[7]), eighths(x[11], x[15])),
        ];
        ones(halves(a, b), halves(c, d))
    }

    #[inline(always)]
    unsafe fn columns(rows: &Rows, offset: usize) -> [I; 4] {
        // Rows i, i + 4, i + 8, i + 12 into the four lanes of 128 bits. Masked loads, unlike
        // insertions, leave the shuffle units to the transposition.
        macro_rules! four {
            ($a:literal, $b:literal, $c:literal, $d:literal) => {{
                let part = |row: usize| _mm_loadu_si128(rows.row(row).add(offset).cast());
                let x = _mm512_castsi128_si512(part($a));
                let x = _mm512_mask_broadcast_i32x4(x, 0x00f0, part($b));
                let x = _mm512_mask_broadcast_i32x4(x, 0x0f00, part($c));
                _mm512_mask_broadcast_i32x4(x, 0xf000, part($d))
            }};
        }
        let [a, b, c, d] = [four!(0, 4, 8, 12), four!(1, 5, 9, 13), four!(2, 6, 10, 14), four!(3, 7, 11, 15)];
        let (ab, cd) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
        let (ef, gh) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
        [
            _mm512_unpacklo_epi64(ab, cd),
            _mm512_unpackhi_epi64(ab, cd),
            _mm512_unpacklo_epi64(ef, gh),
            _mm512_unpackhi_epi64(ef, gh),
        ]
    }
    #[inline(always)]
    unsafe fn line(rows: &Rows, offset: usize) -> [I; LANES] {
        // Of four rows: lane l of 128 bits of vector c has their words 4l + c.
        macro_rules! four {
            ($first:literal) => {{
                let row = |i: usize| _mm512_loadu_si512(rows.row($first + i).add(offset).cast());
                let [a, b, c, d] = [row(0), row(1), row(2), row(3)];
                let (ab, cd) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
                let (ef, gh) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
                [
                    _mm512_unpacklo_epi64(ab, cd),
                    _mm512_unpackhi_epi64(ab, cd),
                    _mm512_unpacklo_epi64(ef, gh),
                    _mm512_unpackhi_epi64(ef, gh),
                ]
            }};
        }
        // Words c, 4 + c, 8 + c and 12 + c of all rows.
        macro_rules! words {
            ($c:literal, $fours:expr) => {{
                let [a, b, c, d] = $fours;
                let ab = _mm512_shuffle_i32x4::<0b01_00_01_00>(a[$c], b[$c]);
                let cd = _mm512_shuffle_i32x4::<0b01_00_01_00>(c[$c], d[$c]);
                let ef = _mm512_shuffle_i32x4::<0b11_10_11_10>(a[$c], b[$c]);
                let gh = _mm512_shuffle_i32x4::<0b11_10_11_10>(c[$c], d[$c]);
                [
                    _mm512_shuffle_i32x4::<0b10_00_10_00>(ab, cd),
                    _mm512_shuffle_i32x4::<0b11_01_11_01>(ab, cd),
                    _mm512_shuffle_i32x4::<0b10_00_10_00>(ef, gh),
                    _mm512_shuffle_i32x4::<0b11_01_11_01>(ef, gh),
                ]
            }};
        }
        let fours = [four!(0), four!(4), four!(8), four!(12)];
        let [w, x, y, z] = [words!(0, fours), words!(1, fours), words!(2, fours), words!(3, fours)];
        [w[0], x[0], y[0], z[0], w[1], x[1], y[1], z[1], w[2], x[2], y[2], z[2], w[3], x[3], y[3], z[3]]
    }
    #[inline(always)]
    unsafe fn in_order(nibbles: &[I; 4]) -> [I; 8] {
        // Each byte twice, then a nibble of each.
        let lower = _mm512_set4_epi32(0x0d0d_0c0c, 0x0909_0808, 0x0505_0404, 0x0101_0000);
        let upper = _mm512_set4_epi32(0x0f0f_0e0e, 0x0b0b_0a0a, 0x0707_0606, 0x0303_0202);
        macro_rules! column {
            ($k:literal, $order:ident) => {{
                let twice = _mm512_shuffle_epi8(nibbles[$k], $order);
                let first = _mm512_and_si512(twice, _mm512_set1_epi16(0x000f));
                let second = _mm512_and_si512(_mm512_srli_epi16::<4>(twice), _mm512_set1_epi16(0x0f00));
                _mm512_or_si512(first, second)
            }};
        }
        [
            column!(0, lower),
            column!(0, upper),
            column!(1, lower),
            column!(1, upper),
            column!(2, lower),
            column!(2, upper),
            column!(3, lower),
            column!(3, upper),
        ]
    }
    #[inline(always)]
    unsafe fn add_fifth_bits(columns: [I; 8], bits: I) -> [I; 8] {
        // The byte with a column's bits in all bytes of the lane, and one of its bits for each.
        macro_rules! two {
            ($byte:literal) => {{
                let spread = _mm512_set1_epi32($byte * 0x0101_0101);
                let spread =
                    _mm512_or_si512(spread, _mm512_set4_epi32(0x0c0c_0c0c, 0x0808_0808, 0x0404_0404, 0));
                let byte = _mm512_shuffle_epi8(bits, spread);
                let (low, high) = (_mm512_set1_epi32(0x0804_0201), _mm512_set1_epi32(0x8040_2010_u32 as i32));
                let (low, high) = (_mm512_test_epi8_mask(byte, low), _mm512_test_epi8_mask(byte, high));
                let (a, b) = (columns[2 * $byte], columns[2 * $byte + 1]);
                let bit = _mm512_set1_epi8(0x10);
                [_mm512_mask_add_epi8(a, low, a, bit), _mm512_mask_add_epi8(b, high, b, bit)]
            }};
        }
        let [a, b, c, d] = [two!(0), two!(1), two!(2), two!(3)];
        [a[0], a[1], b[0], b[1], c[0], c[1], d[0], d[1]]
    }
    #[inline(always)]
    unsafe fn dot4<const WIDE: bool>(sum: I, weights: I, x: *const i8) -> I {
        _mm512_dpbusd_epi32(sum, weights, _mm512_set1_epi32(x.cast::<i32>().read_unaligned()))
    }
    #[inline(always)]
    unsafe fn dot2(sum: F, weights: I, x: *const u32) -> F {
        if BF16 {
            _mm512_dpbf16_ps(sum, pairs(weights), pairs(_mm512_loadu_si512(x.cast())))
        } else {
            two_steps::<Self>(sum, weights, x)
        }
    }
    #[inline(always)]
    unsafe fn dot_pairs(sum: F, a: I, b: I) -> F {
        _mm512_dpbf16_ps(sum, pairs(a), pairs(b))
    }
}
