//! How much arithmetic does a machine do? Loops over independent sums, by all threads at once.

use std::hint::black_box;

use crate::reading::best_of;

/// Rounds of the arithmetic loops, a few hundredths of a second.
const ROUNDS: u64 = 10_000_000;

/// A kind of arithmetic.
pub(crate) struct Peak {
    pub(crate) name: &'static str,
    /// Operations of a round.
    operations: u64,
    /// A loop of so many rounds.
    run: fn(u64),
}

impl Peak {
    /// Operations a second of the quickest trial.
    pub(crate) fn best(&self, trials: usize, threads: usize) -> f64 {
        let seconds = best_of(trials, threads, |_| (self.run)(black_box(ROUNDS)));
        (self.operations * ROUNDS * threads as u64) as f64 / seconds
    }
}

/// Those that the machine has.
pub(crate) fn peaks() -> Vec<Peak> {
    #[cfg(target_arch = "x86_64")]
    return x86::peaks();
    #[cfg(not(target_arch = "x86_64"))]
    Vec::new()
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::asm;
    use std::arch::x86_64::*;
    use std::hint::black_box;

    use super::Peak;

    /// Sums under way at a time: enough to hide an instruction's latency.
    const SUMS: usize = 16;

    /// A loop over independent sums. The empty instruction keeps the compiler from computing it.
    macro_rules! peak {
        ($name:ident, $features:literal, $register:ident, $start:expr, $x:expr, $step:ident) => {
            fn $name(rounds: u64) {
                #[target_feature(enable = $features)]
                fn peak(rounds: u64) {
                    let (mut sums, mut x) = ([$start; SUMS], $x);
                    for _ in 0..rounds {
                        for sum in &mut sums {
                            *sum = $step(*sum, x, x);
                        }
                        // SAFETY: it does nothing.
                        unsafe { asm!("/* {0} */", inout($register) x, options(pure, nomem, nostack)) };
                    }
                    black_box(sums);
                }
                // SAFETY: listed only where the machine has the instructions.
                unsafe { peak(rounds) }
            }
        };
    }

    peak!(
        int8_avx512,
        "avx512f,avx512vnni",
        zmm_reg,
        _mm512_setzero_si512(),
        _mm512_set1_epi8(1),
        _mm512_dpbusd_epi32
    );
    peak!(f32_avx512, "avx512f", zmm_reg, _mm512_setzero_ps(), _mm512_set1_ps(0.5), fma_avx512);
    peak!(bf16_avx512, "avx512f,avx512bf16", zmm_reg, _mm512_setzero_ps(), _mm512_set1_ps(0.5), dot_bf16);
    peak!(f32_avx2, "avx2,fma", ymm_reg, _mm256_setzero_ps(), _mm256_set1_ps(0.5), fma_avx2);

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn fma_avx512(sum: __m512, a: __m512, b: __m512) -> __m512 {
        _mm512_fmadd_ps(a, b, sum)
    }

    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn fma_avx2(sum: __m256, a: __m256, b: __m256) -> __m256 {
        _mm256_fmadd_ps(a, b, sum)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bf16")]
    fn dot_bf16(sum: __m512, a: __m512, b: __m512) -> __m512 {
        // SAFETY: vectors of one size, for all of whose bits there is a number.
        let (a, b) = unsafe {
            (std::mem::transmute::<__m512, __m512bh>(a), std::mem::transmute::<__m512, __m512bh>(b))
        };
        _mm512_dpbf16_ps(sum, a, b)
    }

    pub(super) fn peaks() -> Vec<Peak> {
        let mut peaks = Vec::new();
        let sums = SUMS as u64;
        let mut add = |name, operations, run| peaks.push(Peak { name, operations, run });
        if is_x86_feature_detected!("avx512vnni") {
            add("int8", sums * 64 * 2, int8_avx512);
        }
        if is_x86_feature_detected!("avx512bf16") {
            add("bf16", sums * 32 * 2, bf16_avx512);
        }
        if is_x86_feature_detected!("avx512f") {
            add("f32", sums * 16 * 2, f32_avx512);
        } else if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            add("f32", sums * 8 * 2, f32_avx2);
        }
        peaks
    }
}
