//! Are products with integers whose scales lie beside them the same everywhere, and what a formula in f64 says?

use half::{bf16, f16};

use super::super::BLOCK;
use super::super::format::{Beside, Float};
use super::products::{Matrix, compare};
use super::rounding::activations;
use super::stored::{Element, Stored, affine};
use super::{Bytes, Numbers};

/// Outputs and blocks of 32 of a row: whole lines, where these are read, and none.
const SHAPES: [[usize; 2]; 6] = [[1, 4], [3, 8], [15, 4], [16, 12], [17, 4], [35, 8]];
const NO_LINES: [[usize; 2]; 3] = [[2, 1], [16, 5], [21, 7]];

/// Numbers of either sign as a type has them: their bytes, and what these are.
fn floats(numbers: &mut Numbers, float: Float, n: usize) -> (Vec<u8>, Vec<f64>) {
    let one = |x: f32| match float {
        Float::F32 => (x.to_le_bytes().to_vec(), f64::from(x)),
        Float::F16 => (f16::from_f32(x).to_le_bytes().to_vec(), f16::from_f32(x).to_f64()),
        Float::BF16 => (bf16::from_f32(x).to_le_bytes().to_vec(), bf16::from_f32(x).to_f64()),
        Float::E8M0 => unreachable!("no scale of either sign"),
    };
    let (bytes, values): (Vec<_>, _) = numbers.floats(n).iter().map(|x| one(*x)).unzip();
    (bytes.concat(), values)
}

/// A matrix of random integers, scales and minima, multiplied by every kernel.
fn check(numbers: &mut Numbers, stored: &Stored, [n_out, blocks]: [usize; 2], shift: u32, float: Float) {
    let integers = numbers.bytes(n_out * blocks * stored.bytes);
    let groups = blocks >> shift;
    let [(scales, scale), (mins, min)] = [(); 2].map(|()| floats(numbers, float, n_out * groups));
    let group = |i: usize| i / (BLOCK << shift);
    let element = |(i, [q, _]): (usize, Element)| [q * scale[group(i)], min[group(i)]];
    let elements: Vec<Element> = stored.elements(&integers).into_iter().enumerate().map(element).collect();
    // They end where their memory does.
    let [integers, scales, mins] = [integers, scales, mins].map(|bytes| Bytes::new(&bytes, n_out % 3));
    let row_bytes = groups * if float == Float::F32 { 4 } else { 2 };
    let [scales, mins] = [scales.as_ptr(), mins.as_ptr()];
    let beside = Beside { scales, mins, row_bytes, own_bytes: row_bytes, shift, woven: false, float };
    let bias = numbers.floats(n_out);
    let bias = (n_out % 2 == 1).then_some(&*bias);
    let matrix = Matrix { stored, bytes: &integers, n_out, blocks, step: 1, bias, beside };
    let x = activations(numbers, 40, blocks);
    for exact in [false, true] {
        let (x, oracle) = compare(&matrix, &x, 40, exact);
        matrix.check(&oracle, &x, &elements);
    }
}

#[test]
fn groups_of_every_length_and_type() {
    let mut numbers = Numbers(31);
    for stored in affine() {
        for (case, shape) in SHAPES.into_iter().enumerate() {
            for (shift, float) in [(0, Float::BF16), (1, Float::F16), (2, Float::F32)] {
                check(&mut numbers, &stored, shape, (shift + case as u32) % 3, float);
            }
        }
    }
}

#[test]
fn rows_that_are_no_whole_lines() {
    let mut numbers = Numbers(33);
    for stored in affine() {
        for (shape, float) in NO_LINES.into_iter().zip([Float::BF16, Float::F16, Float::F32]) {
            check(&mut numbers, &stored, shape, 0, float);
        }
    }
}

/// Rows of one group, and of an odd number of groups: of the last one nothing lies behind it.
#[test]
fn a_rows_last_group() {
    let mut numbers = Numbers(32);
    for stored in affine() {
        for groups in [1, 3] {
            for shift in [0, 1, 2] {
                for float in [Float::F32, Float::F16, Float::BF16] {
                    check(&mut numbers, &stored, [18, groups << shift], shift, float);
                }
            }
        }
    }
}
