//! Are products with small floats the same everywhere, and what a formula in f64 says?

use super::super::BLOCK;
use super::super::format::{Beside, Float};
use super::products::{Matrix, compare};
use super::rounding::activations;
use super::stored::{Element, Stored, float8, fp4};
use super::{Bytes, Numbers};

/// Outputs and blocks of 32 of a row: whole lines, where these are read, none, and scales that are no multiple of four.
const SHAPES: [[usize; 2]; 10] =
    [[1, 4], [3, 8], [15, 4], [16, 12], [17, 4], [35, 8], [2, 1], [16, 5], [21, 7], [18, 2]];

/// What bytes are as scales of blocks or of their halves, and which there are in a test.
struct Kind {
    of_block: usize,
    number: fn(u8) -> f64,
    tame: fn(u8) -> u8,
}

const KINDS: [Kind; 2] = [
    Kind { of_block: 1, number: |x| 2f64.powi(i32::from(x) - 127), tame: |x| 119 + x % 16 },
    Kind { of_block: 2, number: float8, tame: |x| x & 0x80 | (x % 0x7f) },
];

/// A matrix of random floats and scales, multiplied by every kernel, with rows next to each other or with as many others
/// between them.
fn check(numbers: &mut Numbers, stored: &Stored, kind: &Kind, [n_out, blocks]: [usize; 2], step: usize) {
    let (own_bytes, own_row) = (kind.of_block * blocks, blocks * stored.bytes);
    let elements = numbers.bytes((n_out * step) * own_row);
    let scales: Vec<u8> = numbers.bytes(n_out * step * own_bytes).iter().map(|x| (kind.tame)(*x)).collect();
    let rows = |bytes: &[u8], row: usize| -> Vec<u8> {
        bytes.chunks_exact(row).step_by(step).flatten().copied().collect()
    };
    let scale = rows(&scales, own_bytes);
    let element = |(i, [x, _]): (usize, Element)| [x * (kind.number)(scale[i * kind.of_block / BLOCK]), 0.0];
    let values = stored.elements(&rows(&elements, own_row));
    let values: Vec<Element> = values.into_iter().enumerate().map(element).collect();
    // They end where their memory does, the last row with its own elements.
    let without_rest = |bytes: &[u8], row: usize| bytes[..(n_out * step - step + 1) * row].to_vec();
    let [elements, scales] = [without_rest(&elements, own_row), without_rest(&scales, own_bytes)]
        .map(|bytes| Bytes::new(&bytes, n_out % 3));
    let (row_bytes, mins) = (own_bytes * step, std::ptr::null());
    let beside = Beside {
        scales: scales.as_ptr(),
        mins,
        row_bytes,
        own_bytes,
        shift: 0,
        woven: false,
        float: Float::E8M0,
    };
    let bias = numbers.floats(n_out);
    let bias = (n_out % 2 == 1).then_some(&*bias);
    let matrix = Matrix { stored, bytes: &elements, n_out, blocks, step, bias, beside };
    let x = activations(numbers, 40, blocks);
    for exact in [false, true] {
        let (x, oracle) = compare(&matrix, &x, 40, exact);
        matrix.check(&oracle, &x, &values);
    }
}

#[test]
fn four_bits_with_small_scales() {
    let mut numbers = Numbers(34);
    for (stored, kind) in fp4().iter().zip(&KINDS) {
        for shape in SHAPES {
            for step in [1, 2, 3] {
                check(&mut numbers, stored, kind, shape, step);
            }
        }
    }
}

/// Every scale that an 8-bit float can be, one that is no number too.
#[test]
fn every_small_scale() {
    let [_, stored] = fp4();
    // Every scale in a row of its own, of ones in the first and the last place; of the others only halves.
    let mut elements = vec![0u8; 256 * stored.bytes];
    elements.iter_mut().step_by(stored.bytes).for_each(|byte| *byte = 2);
    elements.iter_mut().skip(stored.bytes - 1).step_by(stored.bytes).for_each(|byte| *byte = 0x20);
    let scales: Vec<u8> = (0..=255).flat_map(|x| [x, x ^ 0x80]).collect();
    let [elements, scales] = [elements, scales].map(|bytes| Bytes::new(&bytes, 0));
    let (mins, float) = (std::ptr::null(), Float::F32);
    let beside =
        Beside { scales: scales.as_ptr(), mins, row_bytes: 2, own_bytes: 2, shift: 0, woven: false, float };
    let (n_out, blocks, step) = (256, 1, 1);
    let matrix = Matrix { stored: &stored, bytes: &elements, n_out, blocks, step, bias: None, beside };
    let x = |i: usize| [127.0, 0.0, 64.0][if i == 0 { 0 } else { 1 + i / 31 }];
    let x: Vec<f32> = (0..9 * BLOCK).map(|i| x(i % BLOCK)).collect();
    for exact in [false, true] {
        let (_, oracle) = compare(&matrix, &x, 9, exact);
        for (scale, found) in oracle[..256].iter().enumerate() {
            let expected = 63.0 * float8(scale as u8);
            assert!(found.is_nan() && expected.is_nan() || f64::from(*found) == expected, "{scale} {found}");
        }
    }
}

/// The smallest and the largest powers of two, and what is none.
#[test]
fn every_power_of_two() {
    let [stored, _] = fp4();
    // Every scale in a row of its own, of ones in the first place.
    let mut elements = vec![0u8; 256 * stored.bytes];
    elements.iter_mut().step_by(stored.bytes).for_each(|byte| *byte = 2);
    let scales: Vec<u8> = (0..=255).collect();
    let [elements, scales] = [elements, scales].map(|bytes| Bytes::new(&bytes, 0));
    let (mins, float) = (std::ptr::null(), Float::E8M0);
    let beside =
        Beside { scales: scales.as_ptr(), mins, row_bytes: 1, own_bytes: 1, shift: 0, woven: false, float };
    let (n_out, blocks, step) = (256, 1, 1);
    let matrix = Matrix { stored: &stored, bytes: &elements, n_out, blocks, step, bias: None, beside };
    let x: Vec<f32> = (0..9 * BLOCK).map(|i| if i % BLOCK == 0 { 127.0 } else { 0.0 }).collect();
    for exact in [false, true] {
        let (_, oracle) = compare(&matrix, &x, 9, exact);
        for (exponent, found) in oracle[..256].iter().enumerate() {
            let expected = 127.0 * 2f64.powi(exponent as i32 - 127);
            match exponent {
                255 => assert!(found.is_nan()),
                // Integers of two digits with the smallest scale need more bits than there are.
                0..24 => assert!((f64::from(*found) / expected - 1.0).abs() < 1e-2, "{exponent}"),
                249..255 => assert!(found.is_infinite() || f64::from(*found) == expected, "{exponent}"),
                _ => assert!((f64::from(*found) / expected - 1.0).abs() < 1e-6, "{exponent}: {found}"),
            }
        }
    }
}
