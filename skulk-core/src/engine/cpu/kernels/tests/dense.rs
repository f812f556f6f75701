//! Are products with matrices of floats the same everywhere, and what a formula in f64 says?

use half::{bf16, f16};

use super::super::dense::Dense;
use super::super::{Kernels, LANES, portable};
use super::{Bytes, EPSILON, Numbers, assert_near, assert_same};
use crate::weights::DType;

/// Numbers as a type stores them, and what it stores.
fn stored(dtype: DType, values: &[f32]) -> (Vec<u8>, Vec<f64>) {
    let one = |&x: &f32| -> (Vec<u8>, f64) {
        match dtype {
            DType::F32 => (x.to_le_bytes().to_vec(), x.into()),
            DType::F16 => (f16::from_f32(x).to_le_bytes().to_vec(), f16::from_f32(x).into()),
            _ => (bf16::from_f32(x).to_le_bytes().to_vec(), bf16::from_f32(x).into()),
        }
    };
    let (bytes, values): (Vec<_>, Vec<_>) = values.iter().map(one).unzip();
    (bytes.concat(), values)
}

struct Matrix<'a> {
    dtype: DType,
    bytes: &'a Bytes,
    shape: [usize; 2],
    bias: Option<&'a [f32]>,
}

impl Matrix<'_> {
    fn multiply(&self, kernels: &Kernels, x: &[f32]) -> Vec<f32> {
        let [n_out, n_in] = self.shape;
        let (rows, stride) = (x.len() / n_in, n_out + 2);
        let mut out = vec![7.0; (rows - 1) * stride + n_out].into_boxed_slice();
        let product = Dense {
            weights: self.bytes.as_ptr(),
            n_in,
            n_out,
            x: x.as_ptr(),
            rows,
            bias: self.bias.map_or(std::ptr::null(), <[f32]>::as_ptr),
            out: out.as_mut_ptr(),
            stride,
            from: 0,
        };
        let multiply = (kernels.dense)(self.dtype).unwrap();
        let tiles = n_out.div_ceil(LANES);
        // SAFETY: all addresses are of arrays as long as the product says, and the machine has the
        // instructions.
        unsafe {
            multiply(&product, 0..tiles / 2);
            multiply(&product, tiles / 2..tiles);
        }
        let (results, gaps): (Vec<_>, Vec<_>) =
            out.into_iter().enumerate().partition(|(i, _)| i % stride < n_out);
        assert!(gaps.into_iter().all(|(_, gap)| gap == 7.0), "written between rows");
        results.into_iter().map(|(_, result)| result).collect()
    }
}

#[test]
fn products_are_the_same_everywhere_and_near_the_formula() {
    const ROWS: usize = 13;
    let mut numbers = Numbers(7);
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for n_in in [1, 2, 7, 15, 16, 17, 31, 33, 64, 100] {
            for (case, n_out) in [1, 3, 4, 5, 16, 17, 35].into_iter().enumerate() {
                let (bytes, values) = stored(dtype, &numbers.floats(n_out * n_in));
                let bytes = Bytes::new(&bytes, case % 4);
                let bias = numbers.floats(n_out);
                let bias = (case % 2 == 1).then_some(&*bias);
                let matrix = Matrix { dtype, bytes: &bytes, shape: [n_out, n_in], bias };
                let x = numbers.floats(ROWS * n_in);
                let row = |row: usize| &x[row * n_in..][..n_in];
                let oracle: Vec<f32> =
                    (0..ROWS).flat_map(|i| matrix.multiply(&portable::KERNELS, row(i))).collect();
                for kernels in Kernels::all() {
                    for rows in [1, 2, 3, 4, 5, 8, ROWS] {
                        // Its own array, to end where the rows do.
                        let x: Box<[f32]> = x[..rows * n_in].into();
                        let what = format!("{} {dtype:?}: {n_out} by {n_in}, {rows} rows", kernels.name);
                        assert_same(&matrix.multiply(kernels, &x), &oracle[..rows * n_out], &what);
                    }
                }
                for (i, &result) in oracle.iter().enumerate() {
                    let (x, weights) = (row(i / n_out), &values[i % n_out * n_in..][..n_in]);
                    let bias = bias.map_or(0.0, |bias| f64::from(bias[i % n_out]));
                    let terms = || weights.iter().zip(x).map(|(w, &x)| w * f64::from(x));
                    let all: f64 = bias.abs() + terms().map(f64::abs).sum::<f64>();
                    // Steps of one lane's sum, of the sum of the lanes, and the bias.
                    let steps = (n_in.div_ceil(LANES) + 4 + 1) as f64;
                    let expected = bias + terms().sum::<f64>();
                    assert_near(result, expected, 1.01 * steps * EPSILON * all, "a product");
                }
            }
        }
    }
}

#[test]
fn numbers_of_every_kind() {
    // Denormals of all types, the largest, infinities and what is no number.
    let values = [0.0, -0.0, 1e-45, -1e-40, 6e-8, -6.1e-5, 65504.0, 1e30, f32::MAX, f32::MIN_POSITIVE];
    let odd = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for n_in in [1, 16, 19] {
            for (i, &value) in values.iter().chain(&odd).enumerate() {
                let mut weights = Numbers(8).floats(5 * n_in);
                weights[2 * n_in + i % n_in] = value;
                let (bytes, stored) = stored(dtype, &weights);
                let bytes = Bytes::new(&bytes, 1);
                let matrix = Matrix { dtype, bytes: &bytes, shape: [5, n_in], bias: None };
                let x = Numbers(9).floats(6 * n_in);
                let oracle = matrix.multiply(&portable::KERNELS, &x);
                for kernels in Kernels::all() {
                    assert_same(&matrix.multiply(kernels, &x), &oracle, kernels.name);
                }
                let finite = stored.iter().all(|x| x.is_finite());
                assert_eq!(oracle.iter().all(|x| x.is_finite()), finite, "{dtype:?} {value}");
            }
        }
    }
}
