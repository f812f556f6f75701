//! What numbers do stored blocks hold? Layouts are ggml's (`ggml-common.h`, `dequantize_row_*`).

use half::f16;
use half::slice::HalfFloatSliceExt;

use super::codebook::{Iq1M, Iq1S, Iq2S, Iq2Xs, Iq2Xxs, Iq3S, Iq3Xxs, Tq10, numbers};
use super::{DType, linear};

/// Turns one stored row, or several that lie behind each other, into numbers.
///
/// `out` takes as many values as `bytes` hold; a shorter one is filled, as from a row that is padded. Of affine types
/// the numbers are the integers: [`Region::decode`](crate::weights::Region) knows their scales.
pub(crate) fn dequantise(dtype: DType, bytes: &[u8], out: &mut [f32]) {
    let whole = out.len() / dtype.block_len();
    let (out, rest) = out.split_at_mut(whole * dtype.block_len());
    whole_blocks(dtype, bytes, out);
    if !rest.is_empty()
        && let Some(bytes) = bytes.get(whole * dtype.block_bytes()..)
    {
        let mut last = [0.0; LARGEST_BLOCK];
        whole_blocks(dtype, bytes, &mut last[..dtype.block_len()]);
        rest.copy_from_slice(&last[..rest.len()]);
    }
}

/// Elements of the largest block.
const LARGEST_BLOCK: usize = 256;

/// Likewise, as far as whole blocks go.
fn whole_blocks(dtype: DType, bytes: &[u8], out: &mut [f32]) {
    match dtype {
        DType::F32 => each(bytes, out, |x, [out]| *out = f32::from_le_bytes(*x)),
        DType::F16 => {
            // Many at once: there are instructions for that.
            const PIECE: usize = 64;
            let mut halves = [f16::ZERO; PIECE];
            for (bytes, out) in bytes.chunks(2 * PIECE).zip(out.chunks_mut(PIECE)) {
                for (half, bytes) in halves.iter_mut().zip(bytes.as_chunks().0) {
                    *half = f16::from_le_bytes(*bytes);
                }
                let n = out.len().min(bytes.len() / 2);
                halves[..n].convert_to_f32_slice(&mut out[..n]);
            }
        }
        DType::BF16 => each(bytes, out, |x, [out]| {
            *out = f32::from_bits(u32::from(u16::from_le_bytes(*x)) << 16);
        }),
        DType::Q4_0 => each(bytes, out, q4_0),
        DType::Q4_1 => each(bytes, out, q4_1),
        DType::Q5_0 => each(bytes, out, q5_0),
        DType::Q5_1 => each(bytes, out, q5_1),
        DType::Q8_0 => each(bytes, out, q8_0),
        DType::Q2_K => each(bytes, out, q2_k),
        DType::Q3_K => each(bytes, out, q3_k),
        DType::Q4_K => each(bytes, out, q4_k),
        DType::Q5_K => each(bytes, out, q5_k),
        DType::Q6_K => each(bytes, out, q6_k),
        DType::Q6_K_Linear => linear::dequantise(bytes, out),
        DType::Q8_K => each(bytes, out, q8_k),
        DType::Affine2 => each(bytes, out, integers::<2, 8>),
        DType::Affine3 => each(bytes, out, integers::<3, 12>),
        DType::Affine4 => each(bytes, out, integers::<4, 16>),
        DType::Affine5 => each(bytes, out, integers::<5, 20>),
        DType::Affine6 => each(bytes, out, integers::<6, 24>),
        DType::Affine8 => each(bytes, out, integers::<8, 32>),
        DType::MXFP4 => each(bytes, out, mxfp4),
        DType::IQ4_NL => each(bytes, out, iq4_nl),
        DType::IQ4_XS => each(bytes, out, iq4_xs),
        DType::TQ2_0 => each(bytes, out, tq2_0),
        DType::TQ1_0 => each(bytes, out, numbers::<Tq10>),
        DType::IQ1_S => each(bytes, out, numbers::<Iq1S>),
        DType::IQ1_M => each(bytes, out, numbers::<Iq1M>),
        DType::IQ2_XXS => each(bytes, out, numbers::<Iq2Xxs>),
        DType::IQ2_XS => each(bytes, out, numbers::<Iq2Xs>),
        DType::IQ2_S => each(bytes, out, numbers::<Iq2S>),
        DType::IQ3_XXS => each(bytes, out, numbers::<Iq3Xxs>),
        DType::IQ3_S => each(bytes, out, numbers::<Iq3S>),
        DType::FP4 | DType::NVFP4 => each(bytes, out, fp4),
        DType::FP8 | DType::E4M3 => out.iter_mut().zip(bytes).for_each(|(out, &x)| *out = fp8(x)),
        DType::E8M0 => out.iter_mut().zip(bytes).for_each(|(out, &x)| *out = e8m0(x)),
    }
}

fn each<const BYTES: usize, const N: usize>(
    bytes: &[u8],
    out: &mut [f32],
    block: impl Fn(&[u8; BYTES], &mut [f32; N]),
) {
    for (bytes, out) in bytes.as_chunks().0.iter().zip(out.as_chunks_mut().0) {
        block(bytes, out);
    }
}

/// The half at this byte.
fn half(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// The low nibbles of 16 bytes are the first elements, the high ones the others; with the fifth bits of all.
fn nibbles(bytes: &[u8], fifth: u32, out: &mut [f32; 32], number: impl Fn(u8) -> f32) {
    let (first, second) = out.split_at_mut(16);
    for (j, ((&byte, first), second)) in bytes.iter().zip(first).zip(second).enumerate() {
        *first = number(byte & 15 | (fifth >> j << 4 & 16) as u8);
        *second = number(byte >> 4 | (fifth >> (j + 12) & 16) as u8);
    }
}

fn bits(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

/// Scale; nibbles.
fn q4_0(block: &[u8; 18], out: &mut [f32; 32]) {
    let d = half(block, 0);
    nibbles(&block[2..], 0, out, |x| (f32::from(x) - 8.0) * d);
}

/// Scale; minimum; nibbles.
fn q4_1(block: &[u8; 20], out: &mut [f32; 32]) {
    let (d, m) = (half(block, 0), half(block, 2));
    nibbles(&block[4..], 0, out, |x| f32::from(x) * d + m);
}

/// Scale; fifth bits; nibbles.
fn q5_0(block: &[u8; 22], out: &mut [f32; 32]) {
    let d = half(block, 0);
    nibbles(&block[6..], bits(block, 2), out, |x| (f32::from(x) - 16.0) * d);
}

/// Scale; minimum; fifth bits; nibbles.
fn q5_1(block: &[u8; 24], out: &mut [f32; 32]) {
    let (d, m) = (half(block, 0), half(block, 2));
    nibbles(&block[8..], bits(block, 4), out, |x| f32::from(x) * d + m);
}

/// Scale; signed bytes.
fn q8_0(block: &[u8; 34], out: &mut [f32; 32]) {
    let d = half(block, 0);
    out.iter_mut().zip(&block[2..]).for_each(|(out, &x)| *out = f32::from(x as i8) * d);
}

/// A scale in f32; signed bytes; their sums, which products use.
fn q8_k(block: &[u8; 292], out: &mut [f32; 256]) {
    let d = f32::from_bits(bits(block, 0));
    out.iter_mut().zip(&block[4..]).for_each(|(out, &x)| *out = d * f32::from(x as i8));
}

/// Scales and minima of 16 elements each, in 4 bits; 2-bit integers, interleaved by 32; scale of the scales and of
/// the minima.
fn q2_k(block: &[u8; 84], out: &mut [f32; 256]) {
    let (d, m) = (half(block, 80), half(block, 82));
    for (i, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let (scale, min) = (d * f32::from(block[i] & 15), m * f32::from(block[i] >> 4));
        let integers = &block[16 + i / 8 * 32 + i % 2 * 16..][..16];
        for (out, x) in out.iter_mut().zip(integers) {
            *out = scale * f32::from(x >> (i % 8 / 2 * 2) & 3) - min;
        }
    }
}

/// Third bits, interleaved by 32; the others as in [`q2_k`]; scales of 16 elements each, in 6 bits; their scale.
fn q3_k(block: &[u8; 110], out: &mut [f32; 256]) {
    let (scales, d) = (&block[96..108], half(block, 108));
    for (i, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let low = scales[i % 8] >> (i / 8 * 4) & 15;
        let high = scales[8 + i % 4] >> (i / 4 * 2) & 3;
        let scale = d * (f32::from(low | high << 4) - 32.0);
        let integers = &block[32 + i / 8 * 32 + i % 2 * 16..][..16];
        for ((out, x), third) in out.iter_mut().zip(integers).zip(&block[i % 2 * 16..][..16]) {
            let integer = x >> (i % 8 / 2 * 2) & 3 | (third >> (i / 2) & 1) << 2;
            *out = scale * (f32::from(integer) - 4.0);
        }
    }
}

/// The scale and the minimum of the `i`-th 32 elements of a `q4_k` or `q5_k` block, which begins with the scale of
/// the scales, that of the minima, and 12 bytes of 6-bit numbers.
fn scale_and_min(block: &[u8], i: usize) -> (f32, f32) {
    let (d, m, packed) = (half(block, 0), half(block, 2), &block[4..16]);
    let (scale, min) = match i {
        0..4 => (packed[i] & 63, packed[i + 4] & 63),
        _ => (packed[i + 4] & 15 | packed[i - 4] >> 6 << 4, packed[i + 4] >> 4 | packed[i] >> 6 << 4),
    };
    (d * f32::from(scale), m * f32::from(min))
}

/// Scales and minima; nibbles, 32 low ones, then the high ones of the same bytes.
fn q4_k(block: &[u8; 144], out: &mut [f32; 256]) {
    for (i, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (scale, min) = scale_and_min(block, i);
        for (out, x) in out.iter_mut().zip(&block[16 + i / 2 * 32..][..32]) {
            *out = scale * f32::from(x >> (i % 2 * 4) & 15) - min;
        }
    }
}

/// As [`q4_k`], with the fifth bits before the nibbles, interleaved by 32.
fn q5_k(block: &[u8; 176], out: &mut [f32; 256]) {
    for (i, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (scale, min) = scale_and_min(block, i);
        for ((out, x), fifth) in out.iter_mut().zip(&block[48 + i / 2 * 32..][..32]).zip(&block[16..48]) {
            *out = scale * f32::from(x >> (i % 2 * 4) & 15 | (fifth >> i & 1) << 4) - min;
        }
    }
}

/// Nibbles, 64 bytes for 128 elements; upper pairs of bits, interleaved by 32; signed scales of 16 elements each;
/// their scale.
fn q6_k(block: &[u8; 210], out: &mut [f32; 256]) {
    let d = half(block, 208);
    for (i, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let (part, scale) = (i % 8 / 2, d * f32::from(block[192 + i] as i8));
        let low = &block[i / 8 * 64 + part % 2 * 32 + i % 2 * 16..][..16];
        let high = &block[128 + i / 8 * 32 + i % 2 * 16..][..16];
        for ((out, low), high) in out.iter_mut().zip(low).zip(high) {
            let integer = low >> (part / 2 * 4) & 15 | (high >> (2 * part) & 3) << 4;
            *out = scale * (f32::from(integer) - 32.0);
        }
    }
}

/// `BITS` bits each, without gaps from the lowest bit of the first byte on.
fn integers<const BITS: usize, const BYTES: usize>(block: &[u8; BYTES], out: &mut [f32; 32]) {
    let (mut held, mut n_held, mut bytes) = (0u32, 0, block.iter());
    for out in out {
        if n_held < BITS {
            held |= u32::from(bytes.next().copied().unwrap_or_default()) << n_held;
            n_held += 8;
        }
        *out = (held & ((1 << BITS) - 1)) as f32;
        (held, n_held) = (held >> BITS, n_held - BITS);
    }
}

/// What four bits are as a float, twice: a sign, two bits of exponent, one of mantissa.
pub(crate) const TWICE_FP4: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// The lower half of a byte first.
fn fp4(block: &[u8; 16], out: &mut [f32; 32]) {
    for (byte, [first, second]) in block.iter().zip(out.as_chunks_mut().0) {
        let number = |half: u8| 0.5 * f32::from(TWICE_FP4[usize::from(half)]);
        (*first, *second) = (number(byte & 15), number(byte >> 4));
    }
}

/// An 8-bit float: sign, four bits of exponent, three of mantissa. All of these bits set are no number.
fn fp8(x: u8) -> f32 {
    // A half has one more bit of exponent, of another bias.
    let number = f16::from_bits(u16::from(x & 0x80) << 8 | u16::from(x & 0x7f) << 7).to_f32() * 256.0;
    if x & 0x7f == 0x7f { f32::NAN } else { number }
}

/// A power of two; nibbles.
fn mxfp4(block: &[u8; 17], out: &mut [f32; 32]) {
    let d = e8m0(block[0]);
    nibbles(&block[1..], 0, out, |x| d * 0.5 * f32::from(TWICE_FP4[usize::from(x)]));
}

/// What four bits are in a table that is finer in its middle.
pub(crate) const IQ4: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Scale; nibbles.
fn iq4_nl(block: &[u8; 18], out: &mut [f32; 32]) {
    let d = half(block, 0);
    nibbles(&block[2..], 0, out, |x| d * f32::from(IQ4[usize::from(x)]));
}

/// Scale of the scales; their upper two bits; their lower four; nibbles of 32 elements each.
fn iq4_xs(block: &[u8; 136], out: &mut [f32; 256]) {
    let (d, high) = (half(block, 0), u16::from_le_bytes([block[2], block[3]]));
    for (i, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let low = block[4 + i / 2] >> (i % 2 * 4) & 15;
        let scale = d * (f32::from(low | ((high >> (2 * i) & 3) << 4) as u8) - 32.0);
        nibbles(&block[8 + 16 * i..][..16], 0, out, |x| scale * f32::from(IQ4[usize::from(x)]));
    }
}

/// 2-bit integers, interleaved by 32; scale.
fn tq2_0(block: &[u8; 66], out: &mut [f32; 256]) {
    let d = half(block, 64);
    for (i, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        for (out, x) in out.iter_mut().zip(&block[i / 4 * 32..][..32]) {
            *out = d * (f32::from(x >> (i % 4 * 2) & 3) - 1.0);
        }
    }
}

/// A power of two; 255 is no number.
fn e8m0(exponent: u8) -> f32 {
    match exponent {
        0 => f32::MIN_POSITIVE / 2.0,
        255 => f32::NAN,
        exponent => f32::from_bits(u32::from(exponent) << 23),
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use candle_core::Device;
    use candle_core::quantized::{GgmlDType, QStorage, QTensor};

    use super::*;

    /// The definition, of every bit pattern.
    #[test]
    fn small_floats_are_what_their_bits_say() {
        for x in 0..=255u8 {
            let (exponent, mantissa) = (i32::from(x >> 3 & 15), f32::from(x & 7) / 8.0);
            let size =
                if exponent == 0 { mantissa / 64.0 } else { (1.0 + mantissa) * 2f32.powi(exponent - 7) };
            let mut found = [0.0];
            dequantise(DType::FP8, &[x], &mut found);
            match x & 0x7f {
                0x7f => assert!(found[0].is_nan()),
                _ => {
                    assert_eq!(found[0].to_bits(), size.copysign(if x > 127 { -1.0 } else { 1.0 }).to_bits())
                }
            }
        }
    }

    #[test]
    fn numbers_are_those_that_candle_reads() {
        let types = [
            (DType::F32, GgmlDType::F32),
            (DType::F16, GgmlDType::F16),
            (DType::BF16, GgmlDType::BF16),
            (DType::Q4_0, GgmlDType::Q4_0),
            (DType::Q4_1, GgmlDType::Q4_1),
            (DType::Q5_0, GgmlDType::Q5_0),
            (DType::Q5_1, GgmlDType::Q5_1),
            (DType::Q8_0, GgmlDType::Q8_0),
            (DType::Q2_K, GgmlDType::Q2K),
            (DType::Q3_K, GgmlDType::Q3K),
            (DType::Q4_K, GgmlDType::Q4K),
            (DType::Q5_K, GgmlDType::Q5K),
            (DType::Q6_K, GgmlDType::Q6K),
            (DType::Q8_K, GgmlDType::Q8K),
        ];
        const ELEMENTS: usize = 64 * 256;
        let mut state = 1u64;
        for (dtype, ggml) in types {
            let mut byte = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 56) as u8
            };
            let bytes: Vec<u8> = (0..dtype.row_bytes(ELEMENTS).unwrap()).map(|_| byte()).collect();
            let storage = QStorage::from_data(Cow::Borrowed(&bytes), &Device::Cpu, ggml).unwrap();
            let tensor = QTensor::new(storage, ELEMENTS).unwrap().dequantize(&Device::Cpu).unwrap();
            let expected = tensor.to_vec1::<f32>().unwrap();
            // From any address, and fewer than there are.
            for (shift, n) in [(0, ELEMENTS), (1, ELEMENTS), (0, ELEMENTS - 40)] {
                let shifted = [vec![0; shift], bytes.clone()].concat();
                let mut found = vec![0.5; n];
                dequantise(dtype, &shifted[shift..], &mut found);
                let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
                assert!(found.iter().zip(&expected).all(same), "{dtype}");
            }
        }
    }
}
