//! What do stored blocks mean? One element after the other, as the formats' definitions have it.
//!
//! Definitions: `dequantize_row_*` of ggml, and LARQL's `q6_k.rs`.

use half::f16;

use super::super::{Kernels, Quantised};
use super::Numbers;
use crate::weights::DType;

/// An element: what its integer and its minimum contribute.
pub(super) type Element = [f64; 2];

/// A storage type.
pub(super) struct Stored {
    pub(super) name: &'static str,
    /// Bytes and elements of a block.
    pub(super) bytes: usize,
    pub(super) len: usize,
    /// Where its half-precision scales lie; a 32-bit one is at 0 where there are none.
    pub(super) halves: &'static [usize],
    /// Exact ones or others, in lines or not.
    pub(super) kernels: fn(&Kernels, bool, bool) -> Quantised,
    element: fn(&[u8], usize) -> Element,
}

macro_rules! stored {
    ($($name:ident: $bytes:literal bytes, $len:literal elements, halves $halves:expr, $element:expr;)*) => {
        [$(Stored {
            name: stringify!($name),
            bytes: $bytes,
            len: $len,
            halves: &$halves,
            kernels: |kernels, exact, lines| (kernels.quantised)(DType::$name, exact, lines).unwrap(),
            element: $element,
        },)*]
    };
}

/// Every storage type.
pub(super) fn all() -> Vec<Stored> {
    Vec::from(stored! {
        Q4_0: 18 bytes, 32 elements, halves [0], |b, i| [half(b, 0) * (nibble(b, 2, i) - 8.0), 0.0];
        Q4_1: 20 bytes, 32 elements, halves [0, 2], |b, i| [half(b, 0) * nibble(b, 4, i), half(b, 2)];
        Q5_0: 22 bytes, 32 elements, halves [0],
            |b, i| [half(b, 0) * (nibble(b, 6, i) + 16.0 * bit(b, 2, i) - 16.0), 0.0];
        Q5_1: 24 bytes, 32 elements, halves [0, 2],
            |b, i| [half(b, 0) * (nibble(b, 8, i) + 16.0 * bit(b, 4, i)), half(b, 2)];
        Q8_0: 34 bytes, 32 elements, halves [0], |b, i| [half(b, 0) * f64::from(b[2 + i] as i8), 0.0];
        Q2_K: 84 bytes, 256 elements, halves [80, 82], |b, i| {
            let q = b[16 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
            let scales = b[i / 16];
            [
                half(b, 80) * f64::from(scales & 15) * f64::from(q),
                -half(b, 82) * f64::from(scales >> 4),
            ]
        };
        Q3_K: 110 bytes, 256 elements, halves [108], |b, i| {
            let q = i32::from(b[32 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3);
            let q = if b[i % 32] >> (i / 32) & 1 == 1 { q } else { q - 4 };
            let (s, packed) = (i / 16, &b[96..108]);
            let low = if s < 8 { packed[s] & 15 } else { packed[s - 8] >> 4 };
            let high = packed[8 + s % 4] >> (s / 4 * 2) & 3;
            [half(b, 108) * (f64::from(low | high << 4) - 32.0) * f64::from(q), 0.0]
        };
        Q4_K: 144 bytes, 256 elements, halves [0, 2], |b, i| {
            let q = b[16 + i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
            six_bits(b, i / 32, q)
        };
        Q5_K: 176 bytes, 256 elements, halves [0, 2], |b, i| {
            let q = b[48 + i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
            six_bits(b, i / 32, q | (b[16 + i % 32] >> (i / 32) & 1) << 4)
        };
        Q6_K: 210 bytes, 256 elements, halves [208], |b, i| {
            let (n, part, l) = (i / 128, i % 128 / 32, i % 32);
            let low = b[64 * n + part % 2 * 32 + l] >> (part / 2 * 4) & 15;
            let high = b[128 + 32 * n + l] >> (part * 2) & 3;
            six(b, i, low | high << 4)
        };
        Q6_K_Linear: 210 bytes, 256 elements, halves [208], |b, i| {
            let low = b[i / 2] >> (i % 2 * 4) & 15;
            let high = b[128 + i / 4] >> (i % 4 * 2) & 3;
            six(b, i, low | high << 4)
        };
        Q8_K: 292 bytes, 256 elements, halves [], |b, i| {
            let d = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
            [f64::from(d) * f64::from(b[4 + i] as i8), 0.0]
        };
        MXFP4: 17 bytes, 32 elements, halves [],
            |b, i| [float(nibble(b, 1, i) as u8) * 2f64.powi(i32::from(b[0]) - 127), 0.0];
        IQ4_NL: 18 bytes, 32 elements, halves [0], |b, i| [half(b, 0) * of_table(nibble(b, 2, i)), 0.0];
        IQ4_XS: 136 bytes, 256 elements, halves [0], |b, i| {
            let (block, high) = (i / 32, u16::from_le_bytes([b[2], b[3]]));
            let scale = u16::from(b[4 + block / 2] >> (block % 2 * 4) & 15) | (high >> (2 * block) & 3) << 4;
            [half(b, 0) * (f64::from(scale) - 32.0) * of_table(nibble(b, 8 + 16 * block, i % 32)), 0.0]
        };
        TQ2_0: 66 bytes, 256 elements, halves [64], |b, i| {
            let integer = b[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
            [half(b, 64) * (f64::from(integer) - 1.0), 0.0]
        };
        TQ1_0: 54 bytes, 256 elements, halves [52], |b, i| decoded(DType::TQ1_0, b, i);
        IQ1_S: 50 bytes, 256 elements, halves [0], |b, i| decoded(DType::IQ1_S, b, i);
        IQ1_M: 56 bytes, 256 elements, halves [54], |b, i| decoded(DType::IQ1_M, b, i);
        IQ2_XXS: 66 bytes, 256 elements, halves [0], |b, i| decoded(DType::IQ2_XXS, b, i);
        IQ2_XS: 74 bytes, 256 elements, halves [0], |b, i| decoded(DType::IQ2_XS, b, i);
        IQ2_S: 82 bytes, 256 elements, halves [0], |b, i| decoded(DType::IQ2_S, b, i);
        IQ3_XXS: 98 bytes, 256 elements, halves [0], |b, i| decoded(DType::IQ3_XXS, b, i);
        IQ3_S: 110 bytes, 256 elements, halves [0], |b, i| decoded(DType::IQ3_S, b, i);
    })
}

/// Of a codebook, whose numbers are compared with gguf-py's elsewhere.
fn decoded(dtype: DType, b: &[u8], i: usize) -> Element {
    let mut values = [0.0; 256];
    crate::weights::quant::dequantise(dtype, b, &mut values);
    [f64::from(values[i]), 0.0]
}

/// A number of the table that IQ4 types share.
fn of_table(i: f64) -> f64 {
    [-127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0, 89.0, 113.0]
        [i as usize]
}

/// A 4-bit float.
fn float(bits: u8) -> f64 {
    let (exponent, mantissa) = (i32::from(bits >> 1 & 3), f64::from(bits & 1));
    // Below an exponent of 1 a number has no leading 1.
    let size = if exponent == 0 { mantissa / 2.0 } else { (1.0 + mantissa / 2.0) * 2f64.powi(exponent - 1) };
    if bits & 8 == 0 { size } else { -size }
}

/// MLX's types: integers, whose scales and minima are beside them.
pub(super) fn affine() -> Vec<Stored> {
    Vec::from(stored! {
        Affine2: 8 bytes, 32 elements, halves [], |b, i| [integer(b, 2, i), 0.0];
        Affine3: 12 bytes, 32 elements, halves [], |b, i| [integer(b, 3, i), 0.0];
        Affine4: 16 bytes, 32 elements, halves [], |b, i| [integer(b, 4, i), 0.0];
        Affine5: 20 bytes, 32 elements, halves [], |b, i| [integer(b, 5, i), 0.0];
        Affine6: 24 bytes, 32 elements, halves [], |b, i| [integer(b, 6, i), 0.0];
        Affine8: 32 bytes, 32 elements, halves [], |b, i| [integer(b, 8, i), 0.0];
    })
}

/// 4-bit floats, whose scales are beside them: powers of two, or of halves of a block 8-bit floats.
pub(super) fn fp4() -> [Stored; 2] {
    stored! {
        FP4: 16 bytes, 32 elements, halves [], |b, i| [float(b[i / 2] >> (i % 2 * 4) & 15), 0.0];
        NVFP4: 16 bytes, 32 elements, halves [], |b, i| [float(b[i / 2] >> (i % 2 * 4) & 15), 0.0];
    }
}

/// An 8-bit float.
pub(super) fn float8(bits: u8) -> f64 {
    let (exponent, mantissa) = (i32::from(bits >> 3 & 15), f64::from(bits & 7) / 8.0);
    let size = if exponent == 0 { mantissa / 64.0 } else { (1.0 + mantissa) * 2f64.powi(exponent - 7) };
    match bits {
        0x7f | 0xff => f64::NAN,
        0x80.. => -size,
        _ => size,
    }
}

/// Element `i` of those that have so many bits each.
fn integer(b: &[u8], bits: usize, i: usize) -> f64 {
    (0..bits)
        .map(|bit| f64::from(b[(i * bits + bit) / 8] >> ((i * bits + bit) % 8) & 1) * f64::from(1 << bit))
        .sum()
}

fn half(b: &[u8], at: usize) -> f64 {
    f16::from_le_bytes([b[at], b[at + 1]]).to_f64()
}

/// Element `i` of 32: low halves of 16 bytes, then their high halves.
fn nibble(b: &[u8], at: usize, i: usize) -> f64 {
    f64::from(b[at + i % 16] >> (i / 16 * 4) & 15)
}

fn bit(b: &[u8], at: usize, i: usize) -> f64 {
    f64::from(b[at + i / 8] >> (i % 8) & 1)
}

/// With scale and minimum `j` of Q4_K's and Q5_K's eight.
fn six_bits(b: &[u8], j: usize, q: u8) -> Element {
    let packed = &b[4..16];
    let (scale, min) = if j < 4 {
        (packed[j] & 63, packed[j + 4] & 63)
    } else {
        (packed[j + 4] & 15 | packed[j - 4] >> 6 << 4, packed[j + 4] >> 4 | packed[j] >> 6 << 4)
    };
    [half(b, 0) * f64::from(scale) * f64::from(q), -half(b, 2) * f64::from(min)]
}

/// With the scale of the sixteen of a Q6_K block that is element `i`'s.
fn six(b: &[u8], i: usize, q: u8) -> Element {
    [half(b, 208) * f64::from(b[192 + i / 16] as i8) * (f64::from(q) - 32.0), 0.0]
}

impl Stored {
    /// Blocks of any bytes, with scales from 1/64 to 1 of either sign.
    pub(super) fn random(&self, numbers: &mut Numbers, blocks: usize) -> Vec<u8> {
        let mut bytes = numbers.bytes(blocks * self.bytes);
        for block in bytes.chunks_exact_mut(self.bytes) {
            let scale = |numbers: &mut Numbers| {
                let x = numbers.float();
                x.signum() * (x.abs() * 6.0 - 6.0).exp2()
            };
            for &at in self.halves {
                block[at..at + 2].copy_from_slice(&f16::from_f32(scale(numbers)).to_le_bytes());
            }
            if self.name == "MXFP4" {
                block[0] = 121 + block[0] % 7;
            } else if self.halves.is_empty() {
                block[..4].copy_from_slice(&scale(numbers).to_le_bytes());
            }
        }
        bytes
    }

    /// What blocks mean.
    pub(super) fn elements(&self, bytes: &[u8]) -> Vec<Element> {
        bytes
            .chunks_exact(self.bytes)
            .flat_map(|block| (0..self.len).map(move |i| (self.element)(block, i)))
            .collect()
    }
}

#[test]
fn blocks_mean_what_is_read_in_them() {
    let mut numbers = Numbers(1);
    for stored in all() {
        let dtype = DType::ALL.iter().find(|dtype| dtype.label() == stored.name).unwrap();
        let bytes = stored.random(&mut numbers, 20);
        let mut values = vec![0.0; 20 * stored.len];
        crate::weights::quant::dequantise(*dtype, &bytes, &mut values);
        for (value, [a, b]) in values.into_iter().zip(stored.elements(&bytes)) {
            super::assert_near(value, a + b, 4.0 * super::EPSILON * (a.abs() + b.abs()), stored.name);
        }
    }
}
