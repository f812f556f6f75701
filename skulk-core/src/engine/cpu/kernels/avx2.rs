//! What are the vector operations in AVX2? Two registers each.
#![allow(unsafe_op_in_unsafe_fn, reason = "`Simd` states the contract of all these functions")]

use std::arch::x86_64::*;

use super::simd::{
    BASE, BLOCK, LANES, Rows, Simd, Weights, dot_block, dot_digits, dot_packed_digits, each_column,
    operations, store_digits,
};

/// AVX2, FMA and F16C. `VNNI`: AVX-VNNI too.
#[derive(Clone, Copy)]
pub(super) struct Avx2<const VNNI: bool>;

type F = [__m256; 2];
type I = [__m256i; 2];

/// From element `16 - n` on: a mask of the first `n` lanes.
static MASKS: [i32; 32] = {
    let mut masks = [0; 32];
    let mut i = 0;
    while i < 16 {
        masks[i] = -1;
        i += 1;
    }
    masks
};

/// One operation for both registers.
macro_rules! both {
    ($f:expr, $a:expr) => {{
        let [a, b] = $a;
        [$f(a), $f(b)]
    }};
    ($f:expr, $a:expr, $b:expr) => {{
        let ([a, b], [c, d]) = ($a, $b);
        [$f(a, c), $f(b, d)]
    }};
}

// Functions here are inlined by order and closures are not used: what is called out of line lacks the
// caller's instructions.

/// Which of 16 lanes are among the first `n`.
#[inline(always)]
unsafe fn first(n: usize) -> I {
    let from = MASKS.as_ptr().add(LANES - n.min(LANES));
    [_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(8).cast())]
}

/// Stores a block's integers; the sums of its halves.
#[inline(always)]
pub(super) unsafe fn store_bytes(p: *mut i8, block: __m256i) -> [i32; 2] {
    _mm256_storeu_si256(p.cast(), block);
    // Sums of eight bytes each, which are unsigned ones there.
    let shifted = _mm256_xor_si256(block, _mm256_set1_epi8(i8::MIN));
    let eights = _mm256_sad_epu8(shifted, _mm256_setzero_si256());
    let halves = _mm256_add_epi32(eights, _mm256_unpackhi_epi64(eights, eights));
    let (first, second) = (_mm256_castsi256_si128(halves), _mm256_extracti128_si256::<1>(halves));
    [_mm_cvtsi128_si32(first) - 128 * LANES as i32, _mm_cvtsi128_si32(second) - 128 * LANES as i32]
}

/// Sums of eight vectors.
#[inline(always)]
unsafe fn eight_sums(x: &[F]) -> __m256 {
    // 16 lanes of two vectors to four of each: lanes i and i + 8, then i + 4.
    #[inline(always)]
    unsafe fn quarters(a: F, b: F) -> __m256 {
        let (a, b) = (_mm256_add_ps(a[0], a[1]), _mm256_add_ps(b[0], b[1]));
        _mm256_add_ps(_mm256_permute2f128_ps::<0x20>(a, b), _mm256_permute2f128_ps::<0x31>(a, b))
    }
    #[inline(always)]
    unsafe fn halves(a: __m256, b: __m256) -> __m256 {
        _mm256_add_ps(_mm256_shuffle_ps::<0b01_00_01_00>(a, b), _mm256_shuffle_ps::<0b11_10_11_10>(a, b))
    }
    #[inline(always)]
    unsafe fn ones(a: __m256, b: __m256) -> __m256 {
        _mm256_add_ps(_mm256_shuffle_ps::<0b10_00_10_00>(a, b), _mm256_shuffle_ps::<0b11_01_11_01>(a, b))
    }
    // Vectors i and i + 4 share a register, one in each half.
    ones(
        halves(quarters(x[0], x[4]), quarters(x[1], x[5])),
        halves(quarters(x[2], x[6]), quarters(x[3], x[7])),
    )
}

/// 16 bytes from `offset` of eight rows, from row `FIRST` on, as columns.
#[inline(always)]
unsafe fn eight_columns<const FIRST: usize>(rows: &Rows, offset: usize) -> [__m256i; 4] {
    macro_rules! two {
        ($i:literal) => {
            _mm256_set_m128i(
                _mm_loadu_si128(rows.row(FIRST + $i + 4).add(offset).cast()),
                _mm_loadu_si128(rows.row(FIRST + $i).add(offset).cast()),
            )
        };
    }
    let (a, b, c, d) = (two!(0), two!(1), two!(2), two!(3));
    let (ab, cd) = (_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d));
    let (ef, gh) = (_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d));
    [
        _mm256_unpacklo_epi64(ab, cd),
        _mm256_unpackhi_epi64(ab, cd),
        _mm256_unpacklo_epi64(ef, gh),
        _mm256_unpackhi_epi64(ef, gh),
    ]
}

/// A column's even bytes and its odd ones as 16 bits each.
#[inline(always)]
unsafe fn even_and_odd(column: I, signed: bool) -> [I; 2] {
    if signed {
        let even = both!(_mm256_slli_epi16::<8>, column);
        [both!(_mm256_srai_epi16::<8>, even), both!(_mm256_srai_epi16::<8>, column)]
    } else {
        let even = [_mm256_set1_epi16(0xff); 2];
        [both!(_mm256_and_si256, column, even), both!(_mm256_srli_epi16::<8>, column)]
    }
}

/// Adds a column's products with `N` rows' activations of 16 bits, those of the first at `x`.
#[inline(always)]
unsafe fn add_words<const N: usize>(sums: &mut [I; N], [even, odd]: [I; 2], x: *const i8, distance: usize) {
    let mut n = 0;
    while n < N {
        let x = x.add(n * distance).cast::<i32>();
        let (first, second) =
            (_mm256_set1_epi32(x.read_unaligned()), _mm256_set1_epi32(x.add(1).read_unaligned()));
        let first = both!(_mm256_madd_epi16, even, [first; 2]);
        let second = both!(_mm256_madd_epi16, odd, [second; 2]);
        sums[n] = both!(_mm256_add_epi32, sums[n], both!(_mm256_add_epi32, first, second));
        n += 1;
    }
}

operations! {
    inline(always):
    /// Adds to each lane its two numbers of 16 bits.
    add_pairs(sum: I, pairs: I) -> I =
        both!(_mm256_add_epi32, sum, both!(_mm256_madd_epi16, pairs, [_mm256_set1_epi16(1); 2]));
    /// Eight numbers.
    eight_bf16(p: *const u16) -> __m256 =
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast()))));
}

impl<const VNNI: bool> Simd for Avx2<VNNI> {
    type F = F;
    type I = I;

    const SIGNED: bool = false;
    /// As many as leave room for a column among 16 registers, and for partial products where these
    /// need it.
    const ROWS: usize = if VNNI { 6 } else { 4 };
    const SIGNED_WIDE: bool = !VNNI;
    /// Columns do not fit into registers: two rows share loading them.
    const TOGETHER: usize = 2;
    const APART: usize = 1;
    const WORDS: bool = !VNNI;

    operations! {
        inline(always):
        zero() -> F = [_mm256_setzero_ps(); 2];
        splat(x: f32) -> F = [_mm256_set1_ps(x); 2];
        load(p: *const f32) -> F = [_mm256_loadu_ps(p), _mm256_loadu_ps(p.add(8))];
        load_f16(p: *const u16) -> F =
            [_mm256_cvtph_ps(_mm_loadu_si128(p.cast())), _mm256_cvtph_ps(_mm_loadu_si128(p.add(8).cast()))];
        load_bf16(p: *const u16) -> F = [eight_bf16(p), eight_bf16(p.add(8))];
        add(a: F, b: F) -> F = both!(_mm256_add_ps, a, b);
        sub(a: F, b: F) -> F = both!(_mm256_sub_ps, a, b);
        mul(a: F, b: F) -> F = both!(_mm256_mul_ps, a, b);
        div(a: F, b: F) -> F = both!(_mm256_div_ps, a, b);
        fma(a: F, b: F, c: F) -> F = [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])];
        max(a: F, b: F) -> F = both!(_mm256_max_ps, a, b);
        min(a: F, b: F) -> F = both!(_mm256_min_ps, a, b);
        round(a: F) -> I = both!(_mm256_cvtps_epi32, a);
        exp2i(n: I) -> F = Self::as_f32(Self::ishl(Self::iadd(n, Self::isplat(127)), 23));
        sums(x: &[F; LANES]) -> F = [eight_sums(&x[..8]), eight_sums(&x[8..])];
        prefetch(p: *const u8) = _mm_prefetch::<_MM_HINT_T1>(p.cast());

        isplat(x: i32) -> I = [_mm256_set1_epi32(x); 2];
        iload(p: *const i32) -> I = [_mm256_loadu_si256(p.cast()), _mm256_loadu_si256(p.add(8).cast())];
        load_i8(p: *const i8) -> I =
            [_mm256_cvtepi8_epi32(_mm_loadl_epi64(p.cast())), _mm256_cvtepi8_epi32(_mm_loadl_epi64(p.add(8).cast()))];
        iadd(a: I, b: I) -> I = both!(_mm256_add_epi32, a, b);
        imul(a: I, b: I) -> I = both!(_mm256_mullo_epi32, a, b);
        iand(a: I, b: I) -> I = both!(_mm256_and_si256, a, b);
        ior(a: I, b: I) -> I = both!(_mm256_or_si256, a, b);
        to_f32(a: I) -> F = both!(_mm256_cvtepi32_ps, a);
        as_f32(a: I) -> F = both!(_mm256_castsi256_ps, a);
        bytes_sub(a: I, n: u8) -> I = both!(_mm256_sub_epi8, a, [_mm256_set1_epi8(n as i8); 2]);
        ixor(a: I, b: I) -> I = both!(_mm256_xor_si256, a, b);
    }

    #[inline(always)]
    unsafe fn load_part(p: *const f32, n: usize) -> F {
        let mask = first(n);
        [_mm256_maskload_ps(p, mask[0]), _mm256_maskload_ps(p.wrapping_add(8), mask[1])]
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, x: F) {
        _mm256_storeu_ps(p, x[0]);
        _mm256_storeu_ps(p.add(8), x[1]);
    }
    #[inline(always)]
    unsafe fn stream(p: *mut f32, x: F) {
        _mm256_stream_ps(p, x[0]);
        _mm256_stream_ps(p.add(8), x[1]);
    }
    #[inline(always)]
    unsafe fn streamed() {
        _mm_sfence();
    }
    #[inline(always)]
    unsafe fn store_part(p: *mut f32, n: usize, x: F) {
        let mask = first(n);
        _mm256_maskstore_ps(p, mask[0], x[0]);
        _mm256_maskstore_ps(p.wrapping_add(8), mask[1], x[1]);
    }
    #[inline(always)]
    unsafe fn store_f16(p: *mut u16, x: F) {
        _mm_storeu_si128(p.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x[0]));
        _mm_storeu_si128(p.add(8).cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x[1]));
    }
    #[inline(always)]
    unsafe fn abs(a: F) -> F {
        let sign = _mm256_set1_ps(-0.0);
        [_mm256_andnot_ps(sign, a[0]), _mm256_andnot_ps(sign, a[1])]
    }
    #[inline(always)]
    unsafe fn sum(x: F) -> f32 {
        let x = _mm256_add_ps(x[0], x[1]);
        let x = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
        let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
        _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)))
    }
    #[inline(always)]
    unsafe fn largest(a: F, b: F) -> f32 {
        // As integers, what is not a number is larger than all numbers.
        let a = both!(_mm256_castps_si256, Self::abs(a));
        let b = both!(_mm256_castps_si256, Self::abs(b));
        let [a, b] = both!(_mm256_max_epi32, a, b);
        let x = _mm256_max_epi32(a, b);
        let x = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x));
        let x = _mm_max_epi32(x, _mm_unpackhi_epi64(x, x));
        let x = _mm_max_epi32(x, _mm_shuffle_epi32::<1>(x));
        f32::from_bits(_mm_cvtsi128_si32(x) as u32)
    }
    #[inline(always)]
    unsafe fn not_below(a: F, b: F) -> u32 {
        let [a, b] = both!(_mm256_cmp_ps::<_CMP_NLT_UQ>, a, b);
        (_mm256_movemask_ps(a) | _mm256_movemask_ps(b) << 8) as u32
    }

    #[inline(always)]
    unsafe fn istore(p: *mut i32, x: I) {
        _mm256_storeu_si256(p.cast(), x[0]);
        _mm256_storeu_si256(p.add(8).cast(), x[1]);
    }
    #[inline(always)]
    unsafe fn gather(rows: &Rows, offset: usize) -> I {
        macro_rules! four {
            ($a:literal, $b:literal, $c:literal, $d:literal) => {{
                let x = _mm_loadu_si32(rows.row($a).add(offset));
                let x = _mm_insert_epi32::<1>(x, rows.row($b).add(offset).cast::<i32>().read_unaligned());
                let x = _mm_insert_epi32::<2>(x, rows.row($c).add(offset).cast::<i32>().read_unaligned());
                _mm_insert_epi32::<3>(x, rows.row($d).add(offset).cast::<i32>().read_unaligned())
            }};
        }
        [
            _mm256_set_m128i(four!(4, 5, 6, 7), four!(0, 1, 2, 3)),
            _mm256_set_m128i(four!(12, 13, 14, 15), four!(8, 9, 10, 11)),
        ]
    }
    #[inline(always)]
    unsafe fn ishl(a: I, n: u32) -> I {
        let n = _mm_cvtsi32_si128(n as i32);
        [_mm256_sll_epi32(a[0], n), _mm256_sll_epi32(a[1], n)]
    }
    #[inline(always)]
    unsafe fn ishr(a: I, n: u32) -> I {
        let n = _mm_cvtsi32_si128(n as i32);
        [_mm256_srl_epi32(a[0], n), _mm256_srl_epi32(a[1], n)]
    }
    #[inline(always)]
    unsafe fn isar(a: I, n: u32) -> I {
        let n = _mm_cvtsi32_si128(n as i32);
        [_mm256_sra_epi32(a[0], n), _mm256_sra_epi32(a[1], n)]
    }
    #[inline(always)]
    unsafe fn half(a: I) -> F {
        // Packing takes the halves of both registers in turns.
        let a = Self::iand(a, Self::isplat(0xffff));
        let a = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi32(a[0], a[1]));
        [_mm256_cvtph_ps(_mm256_castsi256_si128(a)), _mm256_cvtph_ps(_mm256_extracti128_si256::<1>(a))]
    }
    #[inline(always)]
    unsafe fn store_i8(p: *mut i8, a: I) {
        let lowest = _mm256_setr_epi8(
            0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, //
            0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
        );
        for (i, a) in a.into_iter().enumerate() {
            let a = _mm256_shuffle_epi8(a, lowest);
            let a = _mm_unpacklo_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256::<1>(a));
            _mm_storel_epi64(p.add(8 * i).cast(), a);
        }
    }
    #[inline(always)]
    unsafe fn store_upper(p: *mut u16, [a, b]: I) {
        let both = _mm256_packus_epi32(_mm256_srli_epi32::<16>(a), _mm256_srli_epi32::<16>(b));
        _mm256_storeu_si256(p.cast(), _mm256_permute4x64_epi64::<0b11_01_10_00>(both));
    }

    #[inline(always)]
    unsafe fn store_block(p: *mut i8, [a, b]: [I; 2]) -> [i32; 2] {
        // Packing takes the halves of both registers in turns.
        let bytes = _mm256_packs_epi16(_mm256_packs_epi32(a[0], a[1]), _mm256_packs_epi32(b[0], b[1]));
        store_bytes(p, _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)))
    }

    #[inline(always)]
    unsafe fn columns(rows: &Rows, offset: usize) -> [I; 4] {
        let low = eight_columns::<0>(rows, offset);
        let high = eight_columns::<8>(rows, offset);
        [[low[0], high[0]], [low[1], high[1]], [low[2], high[2]], [low[3], high[3]]]
    }
    #[inline(always)]
    unsafe fn in_order(nibbles: &[I; 4]) -> [I; 8] {
        // Each byte twice, then a nibble of each.
        let lower = [_mm256_setr_epi32(
            0x0101_0000,
            0x0505_0404,
            0x0909_0808,
            0x0d0d_0c0c, //
            0x0101_0000,
            0x0505_0404,
            0x0909_0808,
            0x0d0d_0c0c,
        ); 2];
        let upper = both!(_mm256_add_epi8, lower, [_mm256_set1_epi8(2); 2]);
        each_column!(|k| {
            let twice = both!(_mm256_shuffle_epi8, nibbles[k / 2], if k % 2 == 0 { lower } else { upper });
            let first = both!(_mm256_and_si256, twice, [_mm256_set1_epi16(0x000f); 2]);
            let second = both!(_mm256_srli_epi16::<4>, twice);
            both!(_mm256_or_si256, first, both!(_mm256_and_si256, second, [_mm256_set1_epi16(0x0f00); 2]))
        })
    }
    #[inline(always)]
    unsafe fn reorder(p: *const i8, order: &[i8; 16], to: *mut i8) {
        let order = _mm_loadu_si128(order.as_ptr().cast());
        _mm_storeu_si128(to.cast(), _mm_shuffle_epi8(_mm_loadu_si128(p.cast()), order));
    }
    #[inline(always)]
    unsafe fn looked_up(table: &[i8; 16], a: I) -> I {
        let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
        both!(_mm256_shuffle_epi8, [table; 2], a)
    }
    #[inline(always)]
    unsafe fn dot4<const WIDE: bool>(sum: I, weights: I, x: *const i8) -> I {
        let x = _mm256_set1_epi32(x.cast::<i32>().read_unaligned());
        if VNNI {
            [_mm256_dpbusd_avx_epi32(sum[0], weights[0], x), _mm256_dpbusd_avx_epi32(sum[1], weights[1], x)]
        } else if WIDE {
            let size = both!(_mm256_abs_epi8, weights);
            add_pairs(sum, both!(_mm256_maddubs_epi16, size, both!(_mm256_sign_epi8, [x; 2], weights)))
        } else {
            add_pairs(sum, both!(_mm256_maddubs_epi16, weights, [x; 2]))
        }
    }
    /// Without VNNI: signed weights' sizes and the weights; for activations of 16 bits, their even bytes and their odd
    /// ones, widened.
    #[inline(always)]
    unsafe fn weights<const EXACT: bool>(columns: [I; 8], bits: u32) -> Weights<Self> {
        if EXACT && !VNNI {
            each_column!(|k| even_and_odd(columns[k], bits == 8))
        } else if bits == 8 && !VNNI {
            each_column!(|k| [both!(_mm256_abs_epi8, columns[k]), columns[k]])
        } else {
            each_column!(|k| [columns[k]; 2])
        }
    }
    #[inline(always)]
    unsafe fn dot_rows<const FROM: usize, const TO: usize, const N: usize>(
        sums: &mut [I; N],
        weights: &Weights<Self>,
        bits: u32,
        x: *const i8,
        distance: usize,
    ) {
        if VNNI {
            return dot_block::<Self, FROM, TO, N>(sums, weights, bits, x, distance);
        }
        // Products of so many columns fit 16 bits together: of pairs of weights with pairs of activations up to 127.
        let together = if bits == 8 { 1 } else { (i16::MAX as usize / (((1 << bits) - 1) * 2 * 127)).min(8) };
        // One loop, which is unrolled: weights stay in registers.
        let (mut k, mut pairs) = (FROM, [Self::isplat(0); N]);
        while k < TO {
            let is_first = (k - FROM).is_multiple_of(together);
            let is_last = (k - FROM) % together == together - 1 || k + 1 == TO;
            let mut n = 0;
            while n < N {
                let x = _mm256_set1_epi32(x.add(n * distance + 4 * k).cast::<i32>().read_unaligned());
                let [weights, signs] = weights[k];
                let x = if bits == 8 { both!(_mm256_sign_epi8, [x; 2], signs) } else { [x; 2] };
                let products = both!(_mm256_maddubs_epi16, weights, x);
                pairs[n] = if is_first { products } else { both!(_mm256_add_epi16, pairs[n], products) };
                if is_last {
                    sums[n] = add_pairs(sums[n], pairs[n]);
                }
                n += 1;
            }
            k += 1;
        }
    }
    /// Without VNNI: numbers of 16 bits, of every four the first and the third before the others.
    #[inline(always)]
    unsafe fn store_exact(p: *mut i8, half: usize, upper: I, lower: I) {
        if VNNI {
            return store_digits::<Self>(p, half, upper, lower);
        }
        // What is no number has larger digits, of which eight bits count, as elsewhere.
        let (upper, lower) = (Self::isar(Self::ishl(upper, 24), 24), Self::isar(Self::ishl(lower, 24), 24));
        let n = Self::iadd(Self::imul(upper, Self::isplat(BASE)), lower);
        let order = _mm256_setr_epi8(
            0, 1, 8, 9, 4, 5, 12, 13, -1, -1, -1, -1, -1, -1, -1, -1, //
            0, 1, 8, 9, 4, 5, 12, 13, -1, -1, -1, -1, -1, -1, -1, -1,
        );
        for (i, n) in n.into_iter().enumerate() {
            let n = _mm256_shuffle_epi8(n, order);
            let n = _mm_unpacklo_epi64(_mm256_castsi256_si128(n), _mm256_extracti128_si256::<1>(n));
            _mm_storeu_si128(p.add(BLOCK * half + LANES * i).cast(), n);
        }
    }
    #[inline(always)]
    unsafe fn dot_exact<const FROM: usize, const TO: usize, const N: usize>(
        sums: &mut [I; N],
        weights: &Weights<Self>,
        bits: u32,
        x: *const i8,
        distance: usize,
    ) {
        if VNNI {
            return dot_digits::<Self, FROM, TO, N>(sums, weights, bits, x, distance);
        }
        let mut k = FROM;
        while k < TO {
            add_words::<N>(sums, weights[k], x.add(8 * k), distance);
            k += 1;
        }
    }
    #[inline(always)]
    unsafe fn dot_packed_exact<const WIDE: bool, const N: usize>(
        sums: &mut [I; N],
        packed: *const i32,
        (first, columns): (usize, usize),
        x: *const i8,
        distance: usize,
    ) {
        if VNNI {
            return dot_packed_digits::<Self, WIDE, N>(sums, packed, (first, columns), x, distance);
        }
        for k in 0..columns {
            let weights = even_and_odd(Self::iload(packed.add(k * LANES)), WIDE);
            add_words::<N>(sums, weights, x.add(8 * (first + k)), distance);
        }
    }
}
