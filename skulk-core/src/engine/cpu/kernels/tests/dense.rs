//! Are products with matrices of floats the same everywhere, and what a formula in f64 says?

use half::bf16;

use super::super::dense::Dense;
use super::super::scaled::Scales;
use super::super::{BLOCK, Kernels, LANES, portable};
use super::{Bytes, EPSILON, GAP, Numbers, assert_near, assert_same, without_gaps};
use crate::engine::conformance::stored_floats;
use crate::weights::DType;

/// Rounded to bfloat16, and zero where that is no normal number.
fn rounded(x: f32) -> f32 {
    if x.is_subnormal() { 0f32.copysign(x) } else { bf16::from_f32(x).to_f32() }
}

/// Rows of activations as a kernel takes them: in f32, or in bfloat16.
fn activations(kernels: &Kernels, x: &[f32], n_in: usize, bf16: bool) -> Box<[u32]> {
    if !bf16 {
        return x.iter().map(|x| x.to_bits()).collect();
    }
    let words = (kernels.bf16_words)(n_in);
    let mut rounded = vec![u32::MAX; x.len() / n_in * words].into_boxed_slice();
    for (x, to) in x.chunks_exact(n_in).zip(rounded.chunks_exact_mut(words)) {
        // SAFETY: the machine has the instructions.
        unsafe { (kernels.round_bf16)(x, to) };
    }
    rounded
}

/// Whether a kernel takes numbers below the smallest normal one for zeros.
fn flushes(kernels: &Kernels) -> bool {
    kernels.name == portable::KERNELS.name || !widens(kernels)
}

/// Whether activations in bfloat16 are widened to f32.
fn widens(kernels: &Kernels) -> bool {
    (kernels.bf16_words)(BLOCK) == BLOCK
}

struct Matrix<'a> {
    dtype: DType,
    bytes: &'a Bytes,
    shape: [usize; 2],
    bias: Option<&'a [f32]>,
}

impl Matrix<'_> {
    fn multiply(&self, kernels: &Kernels, x: &[f32], bf16: bool) -> Vec<f32> {
        let [n_out, n_in] = self.shape;
        let (rows, stride) = (x.len() / n_in, n_out + 2);
        let mut out = vec![GAP; (rows - 1) * stride + n_out].into_boxed_slice();
        let kernel = kernels.floats(self.dtype, bf16).unwrap();
        assert_eq!(kernel.bf16, self.dtype == DType::BF16 && bf16);
        let x = activations(kernels, x, n_in, kernel.bf16);
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
            scales: Scales::NOTHING,
        };
        let tiles = n_out.div_ceil(LANES);
        // SAFETY: all addresses are of arrays as long as the product says, and the machine has the
        // instructions.
        unsafe {
            (kernel.multiply)(&product, 0..tiles / 2);
            (kernel.multiply)(&product, tiles / 2..tiles);
        }
        without_gaps(&out, n_out, stride)
    }
}

/// Every type, with activations in f32 and, where there are such products, in bfloat16.
const KINDS: [(DType, bool); 4] =
    [(DType::F32, false), (DType::F16, false), (DType::BF16, false), (DType::BF16, true)];

#[test]
fn products_are_the_same_everywhere_and_near_the_formula() {
    const ROWS: usize = 13;
    let mut numbers = Numbers(7);
    for (dtype, bf16) in KINDS {
        for n_in in [1, 2, 7, 15, 16, 17, 31, 32, 33, 63, 64, 100, 1100] {
            for (case, n_out) in [1, 3, 4, 5, 16, 17, 35].into_iter().enumerate() {
                let (bytes, values) = stored_floats(dtype, &numbers.floats(n_out * n_in));
                let bytes = Bytes::new(&bytes, case % 4);
                let bias = numbers.floats(n_out);
                let bias = (case % 2 == 1).then_some(&*bias);
                let matrix = Matrix { dtype, bytes: &bytes, shape: [n_out, n_in], bias };
                let x = numbers.floats(ROWS * n_in);
                let row = |row: usize| &x[row * n_in..][..n_in];
                let oracle: Vec<f32> =
                    (0..ROWS).flat_map(|i| matrix.multiply(&portable::KERNELS, row(i), bf16)).collect();
                for kernels in Kernels::all() {
                    for rows in [1, 2, 3, 4, 5, 8, ROWS] {
                        // Its own array, to end where the rows do.
                        let x: Box<[f32]> = x[..rows * n_in].into();
                        let what = format!(
                            "{} {dtype:?}, bf16 activations {bf16}: {n_out} by {n_in}, {rows} rows",
                            kernels.name
                        );
                        assert_same(&matrix.multiply(kernels, &x, bf16), &oracle[..rows * n_out], &what);
                    }
                }
                for (i, &result) in oracle.iter().enumerate() {
                    let (x, weights) = (row(i / n_out), &values[i % n_out * n_in..][..n_in]);
                    let x = x.iter().map(|&x| if dtype == DType::BF16 && bf16 { rounded(x) } else { x });
                    let bias = bias.map_or(0.0, |bias| f64::from(bias[i % n_out]));
                    let terms = || weights.iter().zip(x.clone()).map(|(w, x)| f64::from(*w) * f64::from(x));
                    let all: f64 = bias.abs() + terms().map(f64::abs).sum::<f64>();
                    // Steps of one lane's sum, of the sum of the lanes, and the bias.
                    let steps = (n_in.div_ceil(BLOCK) * 2 + 4 + 1) as f64;
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
    for (dtype, bf16) in KINDS {
        for n_in in [1, 16, 19, 35] {
            for (i, &value) in values.iter().chain(&odd).enumerate() {
                // Where products are in bfloat16, these are the next test's.
                if dtype == DType::BF16 && bf16 && value != 0.0 && value.abs() <= f32::MIN_POSITIVE {
                    continue;
                }
                let mut weights = Numbers(8).floats(5 * n_in);
                weights[2 * n_in + i % n_in] = value;
                let (bytes, stored) = stored_floats(dtype, &weights);
                let bytes = Bytes::new(&bytes, 1);
                let matrix = Matrix { dtype, bytes: &bytes, shape: [5, n_in], bias: None };
                let x = Numbers(9).floats(6 * n_in);
                let oracle = matrix.multiply(&portable::KERNELS, &x, bf16);
                let mut other = x.clone();
                other[3 * n_in + i % n_in] = value;
                let other_oracle = matrix.multiply(&portable::KERNELS, &other, bf16);
                for kernels in Kernels::all() {
                    assert_same(&matrix.multiply(kernels, &x, bf16), &oracle, kernels.name);
                    assert_same(&matrix.multiply(kernels, &other, bf16), &other_oracle, kernels.name);
                }
                let finite = stored.iter().all(|x| x.is_finite());
                assert_eq!(oracle.iter().all(|x| x.is_finite()), finite, "{dtype:?} {value}");
            }
        }
    }
}

#[test]
fn bfloat16_products_below_the_smallest_normal_number() {
    const N_IN: usize = 70;
    const N_OUT: usize = 20;
    let mut numbers = Numbers(16);
    let mut flushed = 0;
    for scale in [1e-44f32, 1e-40, 1e-38, 3e-38, 1e-37] {
        // Products of about 2^-126, of ordinary weights with small activations and the other way round.
        for small_weights in [false, true] {
            let scaled = |numbers: &mut Numbers, n: usize, scale: f32| -> Box<[f32]> {
                numbers.floats(n).iter().map(|x| x * scale).collect()
            };
            let (of_weights, of_x) = if small_weights { (scale, 1.0) } else { (1e-19, scale * 1e19) };
            let (bytes, values) = stored_floats(DType::BF16, &scaled(&mut numbers, N_OUT * N_IN, of_weights));
            let bytes = Bytes::new(&bytes, 0);
            let matrix = Matrix { dtype: DType::BF16, bytes: &bytes, shape: [N_OUT, N_IN], bias: None };
            let x = scaled(&mut numbers, 9 * N_IN, of_x);
            let oracle = matrix.multiply(&portable::KERNELS, &x, true);
            for kernels in Kernels::all() {
                let results = matrix.multiply(kernels, &x, true);
                if flushes(kernels) {
                    assert_same(&results, &oracle, kernels.name);
                }
                for (i, &result) in results.iter().enumerate() {
                    let (x, weights) = (&x[i / N_OUT * N_IN..], &values[i % N_OUT * N_IN..][..N_IN]);
                    let terms = weights.iter().zip(x).map(|(w, &x)| f64::from(*w) * f64::from(rounded(x)));
                    // A weight and a step of the sum are each off by less than that number, at most.
                    let bound = 2.0 * N_IN as f64 * f64::from(f32::MIN_POSITIVE);
                    assert_near(result, terms.sum(), bound, kernels.name);
                }
                flushed += usize::from(results != oracle);
            }
        }
    }
    // The test sees the difference where there is one.
    assert!(flushed > 0 || Kernels::all().all(flushes));
}

#[test]
fn activations_are_rounded_to_the_nearest_bfloat16() {
    let mut numbers = Numbers(17);
    let special = [0.0, f32::INFINITY, f32::NAN, f32::MAX, f32::MIN_POSITIVE, 1e-45, 1e-40, 1.0];
    // The last denormal, halfway between neighbours, next to that, and what is no number in low bits.
    let bits = [0x007f_ffff, 0x3f80_8000, 0x3f81_8000, 0x3f80_7fff, 0x3f80_8001, 0x7f80_0001, 0x7fff_ffff];
    let special = special.into_iter().chain(bits.map(f32::from_bits)).flat_map(|x| [x, -x]);
    let x: Vec<f32> = special.chain((0..4000).map(|_| f32::from_bits(numbers.next() as u32))).collect();
    for kernels in Kernels::all() {
        for n in [1, 2, 31, 32, 33, 64, x.len()] {
            let words = activations(kernels, &x[..n], n, true);
            let found: Vec<f32> = if widens(kernels) {
                let blocks = words.chunks_exact(BLOCK).map(|block| block.split_at(LANES));
                let pairs = blocks.flat_map(|(upper, lower)| lower.iter().zip(upper));
                pairs.flat_map(|(&a, &b)| [f32::from_bits(a), f32::from_bits(b)]).collect()
            } else {
                words
                    .iter()
                    .flat_map(|x| [f32::from_bits(x << 16), f32::from_bits(x & 0xffff_0000)])
                    .collect()
            };
            assert_eq!(found.len(), n.next_multiple_of(BLOCK));
            let zeros = std::iter::repeat_n(0.0, found.len() - n);
            let expected: Vec<f32> = x[..n].iter().map(|&x| rounded(x)).chain(zeros).collect();
            assert_same(&found, &expected, kernels.name);
        }
    }
}
