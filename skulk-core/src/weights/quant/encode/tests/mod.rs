//! Do rows come back as they went in, as nearly as their type allows?

mod golden;

use half::{bf16, f16};
use proptest::prelude::*;

use super::super::{dequantise, from_interleaved};
use super::{encode_row, encoded_row_bytes};
use crate::weights::DType;

const WRITTEN: [DType; 7] =
    [DType::F32, DType::F16, DType::BF16, DType::Q8_0, DType::Q4_K, DType::Q6_K, DType::Q6_K_Linear];
const BLOCKS: [DType; 4] = [DType::Q8_0, DType::Q4_K, DType::Q6_K, DType::Q6_K_Linear];

fn encoded(dtype: DType, values: &[f32]) -> Vec<u8> {
    // Whatever was there before must not shine through.
    let mut out = vec![0xa5; encoded_row_bytes(dtype, values.len()).unwrap()];
    encode_row(dtype, values, &mut out).unwrap();
    out
}

fn decoded(dtype: DType, bytes: &[u8], len: usize) -> Vec<f32> {
    let mut values = vec![f32::NAN; len];
    dequantise(dtype, bytes, &mut values);
    values
}

/// Encoded and decoded again.
fn stored(dtype: DType, values: &[f32]) -> Vec<f32> {
    decoded(dtype, &encoded(dtype, values), values.len())
}

/// Numbers that look random, from -1 to 1.
fn noise(len: usize) -> Vec<f32> {
    let word = |i: usize| (i as u32 + 1).wrapping_mul(0x9e37_79b9).rotate_left(13).wrapping_mul(0x85eb_ca6b);
    (0..len).map(|i| word(i) as i32 as f32 / i32::MAX as f32).collect()
}

fn assert_same(expected: &[f32], found: &[f32], what: impl std::fmt::Display) {
    assert_eq!(expected.len(), found.len());
    for (i, (a, b)) in expected.iter().zip(found).enumerate() {
        assert_eq!(a.to_bits(), b.to_bits(), "{what}: value {i}: expected {a:e}, found {b:e}");
    }
}

#[test]
fn sizes_are_those_of_whole_blocks() {
    for (dtype, len, bytes) in [
        (DType::F32, 640, 2560),
        (DType::F16, 3, 6),
        (DType::BF16, 0, 0),
        (DType::Q8_0, 33, 68),
        (DType::Q4_K, 0, 0),
        (DType::Q4_K, 1, 144),
        (DType::Q4_K, 640, 432),
        (DType::Q6_K, 257, 420),
        (DType::Q6_K_Linear, 256, 210),
    ] {
        assert_eq!(encoded_row_bytes(dtype, len), Some(bytes), "{dtype} {len}");
    }
    for &dtype in DType::ALL {
        assert_eq!(encoded_row_bytes(dtype, 256).is_some(), WRITTEN.contains(&dtype), "{dtype}");
        assert_eq!(encoded_row_bytes(dtype, usize::MAX), None, "{dtype}");
        if !WRITTEN.contains(&dtype) {
            assert_eq!(encode_row(dtype, &[0.0; 256], &mut [0; 512]), Err(0), "{dtype}");
        }
    }
}

#[test]
fn every_half_float_keeps_its_bits() {
    let every = || (0..=u16::MAX).filter(|bits| bits & 0x7fff < 0x7c00).map(f16::from_bits);
    let values: Vec<f32> = every().map(f16::to_f32).collect();
    assert_same(&values, &stored(DType::F16, &values), "F16");
    assert_same(&values, &stored(DType::F32, &values), "F32");

    let every = (0..=u16::MAX).filter(|bits| bits & 0x7fff < 0x7f80).map(bf16::from_bits);
    let values: Vec<f32> = every.map(bf16::to_f32).collect();
    assert_same(&values, &stored(DType::BF16, &values), "BF16");
}

#[test]
fn floats_round_to_nearest_ties_to_even() {
    let unit = f32::from(f16::EPSILON);
    let smallest = 2.0_f32.powi(-24);
    for (x, expected) in [
        (1.0 + unit / 2.0, 1.0),
        (1.0 + unit * 1.5, 1.0 + unit * 2.0),
        (1.0 + unit * 0.5001, 1.0 + unit),
        (smallest / 2.0, 0.0),
        (smallest * 0.75, smallest),
        (smallest * 1.5, smallest * 2.0),
        (-smallest * 2.5, -smallest * 2.0),
        (-1e-30, -0.0),
        (65519.99, 65504.0),
    ] {
        assert_same(&[expected], &stored(DType::F16, &[x]), format_args!("F16 of {x:e}"));
    }
    // All exponents and the bits around the border, against the crate that the decoder uses.
    let values: Vec<f32> = (0..0x7f7f_7fff_u32)
        .step_by(0x1_2345)
        .chain((0..=0x1ffff).map(|low| 0x3f80_0000 | low))
        .flat_map(|bits| [f32::from_bits(bits), -f32::from_bits(bits)])
        .collect();
    let expected: Vec<f32> = values.iter().map(|&x| bf16::from_f32(x).to_f32()).collect();
    assert_same(&expected, &stored(DType::BF16, &values), "BF16");
    let small: Vec<f32> = values.into_iter().filter(|x| x.abs() < 65520.0).collect();
    let expected: Vec<f32> = small.iter().map(|&x| f16::from_f32(x).to_f32()).collect();
    assert_same(&expected, &stored(DType::F16, &small), "F16");
}

#[test]
fn the_first_value_that_does_not_fit_is_told() {
    for dtype in WRITTEN {
        for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for at in [0, 5, 255, 256, 299] {
                let mut values = vec![0.25; 300];
                values[at] = bad;
                values[299] = bad;
                let mut out = vec![0; encoded_row_bytes(dtype, 300).unwrap()];
                assert_eq!(encode_row(dtype, &values, &mut out), Err(at), "{dtype} {bad}");
            }
        }
    }
    for (dtype, largest, beyond) in [
        (DType::F32, f32::MAX, f32::INFINITY),
        (DType::F16, 65519.99, 65520.0),
        (DType::BF16, 3.3961e38, 3.3962e38),
        (DType::Q8_0, 65504.0 * 127.0, 65504.0 * 127.01),
        (DType::Q4_K, 65504.0 * 63.0, 65504.0 * 63.01),
        (DType::Q6_K, 65504.0 * 127.0 * 31.0, 65504.0 * 127.0 * 31.01),
        (DType::Q6_K_Linear, 65504.0 * 127.0 * 31.0, 65504.0 * 127.0 * 31.01),
    ] {
        for sign in [1.0, -1.0] {
            let mut out = vec![0; encoded_row_bytes(dtype, 1).unwrap()];
            assert_eq!(encode_row(dtype, &[sign * beyond], &mut out), Err(0), "{dtype}");
            let found = stored(dtype, &[sign * largest])[0];
            let loss = (found / (sign * largest) - 1.0).abs();
            assert!(found.is_finite() && loss < 0.004, "{dtype}: {largest:e} became {found:e}");
        }
        // Both ends of the range in one block.
        let found = stored(dtype, &[largest, -largest, 0.0]);
        assert!(found.iter().all(|x| x.is_finite()), "{dtype}: {found:?}");
    }
}

#[test]
fn zeros_and_what_is_too_small_for_a_scale_become_zeros() {
    for dtype in BLOCKS {
        for x in [0.0, -0.0, 1e-20, -1e-20, 1e-45, -1e-40, f32::MIN_POSITIVE] {
            for len in [1, 31, 256, 300] {
                assert!(stored(dtype, &vec![x; len]).iter().all(|&x| x == 0.0), "{dtype} {x:e}");
            }
        }
        // Beside others too, and a zero stays one.
        let mut values = noise(256);
        values[32..64].fill(1e-40);
        values[64..96].fill(-0.0);
        assert!(stored(dtype, &values)[32..96].iter().all(|x| x.abs() < 0.01), "{dtype}");
    }
}

#[test]
fn values_of_a_block_are_found_again() {
    // Every part reaches the ends of its codes, one part those of the scales.
    let codes = |i: usize, top: usize| [0, top, i * 7 % (top + 1)][(i % 16).min(2)];
    let q8_0: Vec<f32> = (0..96).map(|i| 0.25 * (codes(i, 254) as f32 - 127.0)).collect();
    assert_same(&q8_0, &stored(DType::Q8_0, &q8_0), "Q8_0");

    let (scales, mins) = ([63, 40, 7, 21, 50, 33, 12, 60], [20, 63, 3, 0, 31, 17, 8, 44]);
    let q4_k: Vec<f32> = (0..512)
        .map(|i| {
            let part = i / 32 % 8;
            0.125 * (scales[part] * codes(i, 15)) as f32 - 0.75 * mins[part] as f32
        })
        .collect();
    assert_same(&q4_k, &stored(DType::Q4_K, &q4_k), "Q4_K");

    let q6_k: Vec<f32> = (0..512)
        .map(|i| {
            let scale = if i / 16 % 16 == 9 { -128 } else { 23 + (i / 16 % 16 * 5) as i32 };
            0.0625 * (scale * (codes(i, 63) as i32 - 32)) as f32
        })
        .collect();
    for dtype in [DType::Q6_K, DType::Q6_K_Linear] {
        assert_same(&q6_k, &stored(dtype, &q6_k), dtype);
    }
}

#[test]
fn both_orders_of_q6_k_hold_the_same() {
    for len in [256, 257, 2048] {
        let values = noise(len);
        let row = encoded(DType::Q6_K, &values);
        let mut linear = vec![0xa5; row.len()];
        from_interleaved(&row, &mut linear);
        assert_eq!(linear, encoded(DType::Q6_K_Linear, &values));
        let (a, b) = (decoded(DType::Q6_K, &row, len), decoded(DType::Q6_K_Linear, &linear, len));
        assert_same(&a, &b, len);
    }
}

#[test]
fn padding_has_no_say() {
    for dtype in BLOCKS {
        for len in [1, 31, 32, 33, 255, 256, 257, 640] {
            // Far from zero, so that a scale that spans zeros too would lose much more.
            let values: Vec<f32> = noise(len).iter().map(|x| -9.0 + 0.5 * x).collect();
            let row = encoded(dtype, &values);
            let found = decoded(dtype, &row, len);
            let error = values.iter().zip(&found).fold(0.0_f32, |e, (a, b)| e.max((a - b).abs()));
            // Half a step: of a sixth of 9.5 where zero is a code, of a fifteenth of 1 and the
            // rounding of a minimum where it is not.
            let bound = match dtype {
                DType::Q4_K => 0.12,
                DType::Q8_0 => 0.05,
                _ => 0.25,
            };
            assert!(error < bound, "{dtype} {len}: {error}");
            // A block does not depend on those after it.
            let whole = len / dtype.block_len();
            let head = encoded(dtype, &values[..whole * dtype.block_len()]);
            assert_eq!(head, row[..whole * dtype.block_bytes()], "{dtype} {len}");
            // What is missing is as near to zero as the last block's codes reach.
            let padded = len.next_multiple_of(dtype.block_len());
            let pad = &decoded(dtype, &row, padded)[len..];
            assert!(pad.iter().all(|x| x.abs() <= 9.5), "{dtype} {len}: {pad:?}");
        }
    }
}

#[test]
fn the_same_values_make_the_same_bytes() {
    let values = noise(1024);
    for dtype in WRITTEN {
        let once = encoded(dtype, &values);
        assert_eq!(once, encoded(dtype, &values), "{dtype}");
        // From another address, into another one, and block by block.
        let mut shifted = vec![0.0; 1025];
        shifted[1..].copy_from_slice(&values);
        let mut out = vec![0; once.len() + 1];
        encode_row(dtype, &shifted[1..], &mut out[1..]).unwrap();
        assert_eq!(once, out[1..], "{dtype}");
        let blocks: Vec<u8> = values.chunks(256).flat_map(|values| encoded(dtype, values)).collect();
        assert_eq!(once, blocks, "{dtype}");
    }
}

#[test]
fn a_short_buffer_takes_whole_blocks() {
    let values = noise(512);
    for dtype in BLOCKS {
        let mut out = vec![0; dtype.block_bytes() + 5];
        assert_eq!(encode_row(dtype, &values, &mut out), Ok(()));
        assert_eq!(out[..dtype.block_bytes()], encoded(dtype, &values)[..dtype.block_bytes()], "{dtype}");
    }
}

/// Rows of one magnitude, with outliers, runs of equal values and zeros among them; of all types, up to the largest value that Q4_K
/// takes.
fn rows() -> impl Strategy<Value = Vec<f32>> {
    let value = prop_oneof![
        6 => -1.0_f32..1.0,
        1 => Just(0.0),
        1 => Just(1.0),
        1 => -0.01_f32..0.01,
    ];
    let offset = prop_oneof![3 => Just(0.0_f32), 1 => -1.0_f32..1.0];
    const LARGEST: f32 = 65504.0 * 63.0;
    let magnitude = (-30..22_i32).prop_map(|e| 2.0_f32.powi(e));
    (proptest::collection::vec(value, 1..600), offset, magnitude).prop_map(|(row, offset, magnitude)| {
        row.iter().map(|x| ((x + offset) * magnitude).clamp(-LARGEST, LARGEST)).collect()
    })
}

proptest! {
    // As parts of the largest magnitude of a block: the difference of a value, and the root of the mean
    // of their squares. Bounds are half as much again as the worst of 60,000 rows of six kinds, and lie
    // near the half step: 1 of 254, 1 of 15 or so, 1 of 62. An outlier may be further off where that
    // serves the others. Where half floats end, scales are off by half the smallest of them.
    #[test]
    fn no_value_goes_far(row in rows()) {
        for (dtype, furthest, mean) in [
            (DType::Q8_0, 0.0041, 0.0041),
            (DType::Q4_K, 0.2, 0.055),
            (DType::Q6_K, 0.04, 0.022),
            (DType::Q6_K_Linear, 0.04, 0.022),
        ] {
            let found = stored(dtype, &row);
            for (values, found) in row.chunks(dtype.block_len()).zip(found.chunks(dtype.block_len())) {
                let largest = values.iter().fold(0.0, |a: f64, x| a.max(f64::from(x.abs())));
                let end = 32.0 * 2.0_f64.powi(-25);
                let mut sum = 0.0;
                for (x, y) in values.iter().zip(found) {
                    let difference = (f64::from(*x) - f64::from(*y)).abs();
                    prop_assert!(difference <= largest * furthest + end, "{dtype}: {x}, {y} of {largest}");
                    sum += difference * difference;
                }
                let root = (sum / values.len() as f64).sqrt();
                prop_assert!(root <= largest * mean + end, "{dtype}: {root} of {largest}");
            }
        }
    }

    #[test]
    fn rows_that_fit_are_encoded_and_others_refused(bits in proptest::collection::vec(any::<u32>(), 1..300)) {
        let row: Vec<f32> = bits.iter().map(|&bits| f32::from_bits(bits)).collect();
        for dtype in WRITTEN {
            let mut out = vec![0; encoded_row_bytes(dtype, row.len()).unwrap()];
            let fits = match encode_row(dtype, &row, &mut out) {
                Ok(()) => row.len(),
                Err(i) => i,
            };
            prop_assert!(stored(dtype, &row[..fits]).iter().all(|x| x.is_finite()), "{dtype}");
            if let Some(&beyond) = row.get(fits) {
                prop_assert!(!beyond.is_finite() || beyond.abs() >= 65504.0 * 63.0 || dtype == DType::F16);
            }
        }
    }
}
