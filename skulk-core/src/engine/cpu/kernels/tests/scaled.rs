//! Have products with 8-bit floats the bits that those with the same numbers in f32 have?

use super::super::dense::Dense;
use super::super::format::Float;
use super::super::scaled::{self, MANY, Scales};
use super::super::{BLOCK, Kernels, LANES, portable};
use super::stored::float8;
use super::{Bytes, GAP, Numbers, assert_same, without_gaps};
use crate::weights::{DType, ScaleRows};

/// Rows, elements of a row, and how many of both share a scale.
const SHAPES: [[usize; 4]; 12] = [
    [1, 1, 1, 1],
    [3, 7, 1, 7],
    [4, 48, 4, 48],
    [5, 100, 2, 32],
    [16, 160, 1, 32],
    [17, 96, 1, 32],
    [18, 200, 128, 128],
    [35, 576, 16, 128],
    [35, 130, 5, 16],
    [64, 128, 64, 128],
    [20, 33, 1, 33],
    [2, 1, 1, 16],
];

/// Bytes of a scale, and what it is.
fn scale(float: Float, numbers: &mut Numbers) -> (Vec<u8>, f32) {
    let x = numbers.float() / 100.0;
    match float {
        Float::F32 => (x.to_le_bytes().to_vec(), x),
        Float::F16 => {
            let x = half::f16::from_f32(x);
            (x.to_le_bytes().to_vec(), x.to_f32())
        }
        Float::BF16 => {
            let x = half::bf16::from_f32(x);
            (x.to_le_bytes().to_vec(), x.to_f32())
        }
        Float::E8M0 => {
            let exponent = 110 + numbers.bytes(1)[0] % 20;
            (vec![exponent], f32::from_bits(u32::from(exponent) << 23))
        }
    }
}

/// Whose products.
struct Matrix<'a> {
    elements: &'a Bytes,
    shape: [usize; 2],
    scales: Scales,
    bias: Option<&'a [f32]>,
}

impl Matrix<'_> {
    fn multiply(&self, kernels: &Kernels, dtype: DType, x: &[f32]) -> Vec<f32> {
        let [n_out, n_in] = self.shape;
        let (rows, stride) = (x.len() / n_in, n_out + 3);
        let mut out = vec![GAP; (rows - 1) * stride + n_out].into_boxed_slice();
        let kernel = kernels.floats(dtype, true).unwrap();
        assert!(!kernel.bf16);
        let product = Dense {
            weights: self.elements.as_ptr(),
            n_in,
            n_out,
            x: x.as_ptr().cast(),
            rows,
            bias: self.bias.map_or(std::ptr::null(), <[f32]>::as_ptr),
            out: out.as_mut_ptr(),
            stride,
            from: 0,
            scales: self.scales,
        };
        let tiles = n_out.div_ceil(LANES);
        let mut packed = vec![GAP; LANES.min(n_out) * n_in].into_boxed_slice();
        for tiles in [0..tiles / 2, tiles / 2..tiles] {
            // SAFETY: all addresses are of arrays as long as the product says, and the machine has the instructions.
            unsafe {
                match kernel.many.filter(|_| rows >= MANY) {
                    Some(many) => scaled::unpacked(&product, tiles, packed.as_mut_ptr(), many),
                    None => (kernel.multiply)(&product, tiles),
                }
            }
        }
        without_gaps(&out, n_out, stride)
    }
}

/// A matrix of these bytes as 8-bit floats, multiplied by every kernel, and its numbers in f32 by the portable one.
fn check(
    numbers: &mut Numbers,
    float: Float,
    [n_out, n_in, tall, wide]: [usize; 4],
    bytes: &[u8],
    rows: ScaleRows,
) {
    let blocks = n_in.div_ceil(wide);
    let n_scales = (rows.of(n_out - 1) + 1) * blocks;
    let (stored, values): (Vec<_>, Vec<_>) = (0..n_scales).map(|_| scale(float, numbers)).unzip();
    let row_bytes = stored[0].len() * blocks;
    let [scales, elements] = [stored.concat(), bytes.to_vec()].map(|bytes| Bytes::new(&bytes, n_out % 3));
    let number =
        |(i, byte): (usize, &u8)| float8(*byte) as f32 * values[rows.of(i / n_in) * blocks + i % n_in / wide];
    let plain: Vec<u8> = bytes.iter().enumerate().map(number).flat_map(f32::to_le_bytes).collect();
    let plain = Bytes::new(&plain, 0);
    let bias = numbers.floats(n_out);
    let bias = (n_out % 2 == 1).then_some(&*bias);
    let scales = Scales { from: scales.as_ptr(), row_bytes, float, wide, rows };
    let shape = [n_out, n_in];
    let matrix = Matrix { elements: &elements, shape, scales, bias };
    let of_f32 = Matrix { elements: &plain, shape, scales: Scales::NOTHING, bias };
    for n in [1, 2, 3, MANY - 1, MANY, MANY + 4] {
        let x = numbers.floats(n * n_in);
        let oracle = of_f32.multiply(&portable::KERNELS, DType::F32, &x);
        for kernels in Kernels::all() {
            let what = format!("{}: {n_out} by {n_in}, blocks of {tall} by {wide}, {n} rows", kernels.name);
            assert_same(&matrix.multiply(kernels, DType::FP8, &x), &oracle, &what);
        }
    }
}

#[test]
fn products_are_those_of_the_same_numbers() {
    let mut numbers = Numbers(41);
    for float in [Float::F32, Float::F16, Float::BF16, Float::E8M0] {
        for shape in SHAPES {
            let [n_out, n_in, tall, _] = shape;
            let bytes = numbers.bytes(n_out * n_in);
            let bytes: Vec<u8> = bytes.iter().map(|x| if x & 0x7f == 0x7f { 0 } else { *x }).collect();
            for (first, step) in [(0, 1), (3, 1), (tall - 1, 2)] {
                check(&mut numbers, float, shape, &bytes, ScaleRows { tall, first, step });
            }
        }
    }
}

/// Every bit pattern, one that is no number too.
#[test]
fn every_byte() {
    let mut numbers = Numbers(42);
    let bytes: Vec<u8> = (0..=255).collect();
    for shape in [[256, 1, 1, 1], [16, 16, 1, 16], [1, 256, 1, BLOCK], [8, 32, 1, 32]] {
        check(&mut numbers, Float::E8M0, shape, &bytes, ScaleRows::OWN);
    }
}

/// The smallest and the largest powers of two, and what is none.
#[test]
fn every_power_of_two() {
    let exponents: Vec<u8> = (0..=255).collect();
    let [elements, scales] = [vec![0x38; 256], exponents].map(|bytes| Bytes::new(&bytes, 0));
    let (row_bytes, float, rows) = (1, Float::E8M0, ScaleRows::OWN);
    let scales = Scales { from: scales.as_ptr(), row_bytes, float, wide: 1, rows };
    let matrix = Matrix { elements: &elements, shape: [256, 1], scales, bias: None };
    for kernels in Kernels::all() {
        for rows in [1, MANY] {
            let found = matrix.multiply(kernels, DType::FP8, &vec![1.0; rows]);
            for (at, found) in found.iter().enumerate() {
                let expected = 2f64.powi((at % 256) as i32 - 127);
                assert!(f64::from(*found) == expected || at % 256 == 255 && found.is_nan(), "{at}: {found}");
            }
        }
    }
}
