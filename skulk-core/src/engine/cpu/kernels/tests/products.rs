//! Are products with quantised matrices the same everywhere, and what a formula in f64 says?

use super::super::affine::LINE;
use super::super::direct::MOST;
use super::super::format::Beside;
use super::super::product::Product;
use super::super::simd::LANES;
use super::super::{BLOCK, Kernels, Quantised, portable};
use super::rounding::{Rows, activations};
use super::stored::{Element, Stored, all};
use super::{Bytes, EPSILON, GAP, Numbers, assert_near, assert_same, without_gaps};
use crate::weights::{DType, Weave};

/// Types whose resident rows are woven.
const WOVEN: [&str; 23] = [
    "Q4_0",
    "Q4_1",
    "Q5_0",
    "Q5_1",
    "Q8_0",
    "Q2_K",
    "Q3_K",
    "Q4_K",
    "Q5_K",
    "Q6_K",
    "Q6_K_Linear",
    "IQ4_NL",
    "MXFP4",
    "IQ4_XS",
    "TQ2_0",
    "Affine2",
    "Affine3",
    "Affine4",
    "Affine5",
    "Affine6",
    "Affine8",
    "FP4",
    "NVFP4",
];

/// Which kernel.
#[derive(Clone, Copy, Debug)]
pub(super) enum By {
    One,
    Few,
    Many,
}

/// A matrix, and what is added to its products.
pub(super) struct Matrix<'a> {
    pub(super) stored: &'a Stored,
    pub(super) bytes: &'a Bytes,
    pub(super) n_out: usize,
    /// Blocks of 32 in a row, of which activations may have fewer.
    pub(super) blocks: usize,
    /// From a row to the next, in rows.
    pub(super) step: usize,
    pub(super) bias: Option<&'a [f32]>,
    pub(super) beside: Beside,
}

impl Matrix<'_> {
    /// Products with `rows` rows from `row` on.
    pub(super) fn multiply(
        &self,
        kernels: &Kernels,
        x: &Rows,
        [row, rows]: [usize; 2],
        exact: bool,
        by: By,
    ) -> Vec<f32> {
        let quantised = (self.stored.kernels)(kernels, exact, (self.blocks * BLOCK).is_multiple_of(LINE));
        let (n_out, stride) = (self.n_out, self.n_out + 3);
        let mut from = x.from(row);
        let mut pairs = x.paired(kernels, row);
        if quantised.paired {
            from.digits = pairs.as_mut_ptr();
        }
        let grouped = x.grouped(row, (rows, quantised.gemm.grouped), from.digits);
        let mut out = vec![GAP; (rows - 1) * stride + n_out].into_boxed_slice();
        let product = Product {
            woven: false,
            weights: self.bytes.as_ptr(),
            row_bytes: self.step * self.blocks * BLOCK / self.stored.len * self.stored.bytes,
            beside: self.beside,
            n_out,
            blocks: self.blocks,
            x_blocks: x.blocks,
            x: from,
            grouped: grouped.from(0),
            rows,
            bias: self.bias.map_or(std::ptr::null(), <[f32]>::as_ptr),
            out: out.as_mut_ptr(),
            stride,
            from: 0,
        };
        let tiles = super::super::product::tiles(n_out);
        let mut packed = vec![0; (quantised.gemm.packed_len)(self.blocks)].into_boxed_slice();
        // SAFETY: all addresses are of arrays as long as the product says, and the machine has the
        // instructions.
        unsafe {
            for tiles in [0..tiles / 2, tiles / 2..tiles] {
                match by {
                    By::One => (quantised.one)(&product, tiles),
                    By::Few => quantised.few(product.rows)(&product, tiles),
                    By::Many => quantised.gemm.run(&product, tiles, packed.as_mut_ptr()),
                }
            }
        }
        let results = without_gaps(&out, n_out, stride);
        self.check_woven(&product, &results, ((self.stored.kernels)(kernels, exact, false), by));
        results
    }

    /// The same rows, woven, have the same products: those of whole tiles.
    fn check_woven(&self, product: &Product, results: &[f32], (quantised, by): (Quantised, By)) {
        let n_out = self.n_out / LANES * LANES;
        let dtype = DType::ALL.iter().copied().find(|dtype| dtype.to_string() == self.stored.name);
        let weave = dtype.and_then(|dtype| Weave::of(dtype, product.row_bytes));
        assert_eq!(weave.is_some(), WOVEN.contains(&self.stored.name), "{}", self.stored.name);
        let (Some(weave), true) = (weave, self.step == 1 && n_out > 0) else { return };
        let plain = &self.bytes.memory[self.bytes.offset..][..n_out * product.row_bytes];
        let mut woven = vec![0; plain.len()].into_boxed_slice();
        weave.weave(plain, &mut woven);
        // What is beside them is woven, too, where it can be.
        let Beside { scales, mins, row_bytes, .. } = self.beside;
        let weave_beside = |from: *const u8, weave: Weave| {
            // SAFETY: there is a row of each of them for each output.
            let plain = unsafe { std::slice::from_raw_parts(from, n_out * row_bytes) };
            let mut woven = vec![0; plain.len()].into_boxed_slice();
            weave.weave(plain, &mut woven);
            woven
        };
        let both = Weave::beside(row_bytes)
            .map(|weave| [scales, mins].map(|from| (!from.is_null()).then(|| weave_beside(from, weave))));
        let beside = match &both {
            Some([Some(scales), mins]) => {
                let mins = mins.as_ref().map_or(std::ptr::null(), |mins| mins.as_ptr());
                Beside { scales: scales.as_ptr(), mins, woven: true, ..self.beside }
            }
            _ => self.beside,
        };
        let mut out = vec![GAP; product.rows * n_out];
        let product = Product {
            weights: woven.as_ptr(),
            woven: true,
            beside,
            n_out,
            out: out.as_mut_ptr(),
            stride: n_out,
            ..*product
        };
        let mut packed = vec![0; (quantised.gemm.packed_len)(self.blocks)].into_boxed_slice();
        let tiles = 0..n_out / LANES;
        // SAFETY: as above, of fewer rows.
        unsafe {
            match by {
                By::One => (quantised.one)(&product, tiles),
                By::Few => quantised.few(product.rows)(&product, tiles),
                By::Many => quantised.gemm.run(&product, tiles, packed.as_mut_ptr()),
            }
        }
        for (own, other) in out.chunks_exact(n_out).zip(results.chunks_exact(self.n_out)) {
            assert_same(own, &other[..n_out], self.stored.name);
        }
    }

    /// What the portable code says, one row after the other.
    pub(super) fn oracle(&self, x: &Rows, exact: bool) -> Vec<f32> {
        (0..x.rows).flat_map(|row| self.multiply(&portable::KERNELS, x, [row, 1], exact, By::One)).collect()
    }

    /// Whether `results` are near what a formula says. Every step of the sum is off by at most half a
    /// unit in the last place of all terms together, and every term by two more.
    pub(super) fn check(&self, results: &[f32], x: &Rows, elements: &[Element]) {
        let (n_in, values) = (x.blocks * BLOCK, x.values());
        let steps = (4 * x.blocks + 4) as f64;
        for (i, &result) in results.iter().enumerate() {
            let (row, out) = (i / self.n_out, i % self.n_out);
            let bias = self.bias.map_or(0.0, |bias| f64::from(bias[out]));
            let (mut sum, mut all) = (bias, bias.abs());
            let weights = &elements[out * self.blocks * BLOCK..][..n_in];
            for ([a, b], x) in weights.iter().zip(&values[row * n_in..]) {
                sum += (a + b) * x;
                all += (a.abs() + b.abs()) * x.abs();
            }
            let what = format!("{}, row {row}, output {out}", self.stored.name);
            assert_near(result, sum, steps * EPSILON * all + 1e-44, &what);
        }
    }
}

const SHAPES: [[usize; 2]; 6] = [[1, 1], [3, 2], [15, 1], [16, 3], [17, 1], [35, 2]];

/// Products of every kernel with `rows` rows, compared with what the portable code says of one after the other.
pub(super) fn compare(matrix: &Matrix<'_>, x: &[f32], rows: usize, exact: bool) -> (Rows, Vec<f32>) {
    let of_portable = Rows::new(&portable::KERNELS, x, rows, exact);
    let oracle = matrix.oracle(&of_portable, exact);
    for kernels in Kernels::all() {
        let x = Rows::new(kernels, x, rows, exact);
        let same = |at: usize, n: usize, by: By| {
            let results = matrix.multiply(kernels, &x, [at, n], exact, by);
            let what = format!(
                "{} {}: {} by {}, {n} rows from {at} on by {by:?}",
                kernels.name, matrix.stored.name, matrix.n_out, matrix.blocks
            );
            assert_same(&results, &oracle[at * matrix.n_out..][..n * matrix.n_out], &what);
        };
        for n in [9, 11, 13, 15, 16, 23, 40].into_iter().filter(|n| *n <= rows) {
            same(0, n, By::Many);
        }
        for n in (1..=MOST).filter(|n| *n <= rows) {
            same(n.min(rows - n), n, By::Few);
        }
        for row in 0..8 {
            same(row, 1, By::One);
        }
    }
    (of_portable, oracle)
}

#[test]
fn products_are_the_same_everywhere_and_near_the_formula() {
    let mut numbers = Numbers(4);
    for stored in all() {
        for (case, [n_out, blocks]) in SHAPES.into_iter().enumerate() {
            let bytes = stored.random(&mut numbers, n_out * blocks);
            let elements = stored.elements(&bytes);
            let bytes = Bytes::new(&bytes, case % 4);
            let bias = numbers.floats(n_out);
            let bias = (case % 2 == 1).then_some(&*bias);
            let blocks = blocks * stored.len / BLOCK;
            let (step, beside) = (1, Beside::NOTHING);
            let matrix = Matrix { stored: &stored, bytes: &bytes, n_out, blocks, step, bias, beside };
            let x = activations(&mut numbers, 40, blocks);
            for exact in [false, true] {
                let (x, oracle) = compare(&matrix, &x, 40, exact);
                matrix.check(&oracle, &x, &elements);
            }
        }
    }
}

#[test]
fn what_lies_behind_the_activations_is_left_out() {
    let mut numbers = Numbers(18);
    for stored in all() {
        for (n_out, stored_blocks, missing) in [(3, 2, 1), (19, 1, 5), (32, 2, 3)] {
            let bytes = stored.random(&mut numbers, n_out * stored_blocks);
            let elements = stored.elements(&bytes);
            let bytes = Bytes::new(&bytes, 1);
            let blocks = stored_blocks * stored.len / BLOCK;
            let (step, bias, beside) = (1, None, Beside::NOTHING);
            let matrix = Matrix { stored: &stored, bytes: &bytes, n_out, blocks, step, bias, beside };
            let x_blocks = blocks.saturating_sub(missing).max(1);
            let x = activations(&mut numbers, 9, x_blocks);
            for exact in [false, true] {
                let (x, oracle) = compare(&matrix, &x, 9, exact);
                matrix.check(&oracle, &x, &elements);
            }
        }
    }
}
