//! Are products with quantised matrices the same everywhere, and what a formula in f64 says?

use super::super::product::Product;
use super::super::{BLOCK, Kernels, portable};
use super::rounding::{Rows, activations};
use super::stored::{Element, Stored, all};
use super::{Bytes, EPSILON, GAP, Numbers, assert_near, assert_same, others, without_gaps};

/// A matrix of `n_out` rows, and what is added to its products.
pub(super) struct Matrix<'a> {
    pub(super) stored: &'a Stored,
    pub(super) bytes: &'a Bytes,
    pub(super) n_out: usize,
    pub(super) bias: Option<&'a [f32]>,
}

impl Matrix<'_> {
    /// Products with `rows` rows from `row` on, by the kernel for many or, where `one`, the other.
    pub(super) fn multiply(
        &self,
        kernels: &Kernels,
        x: &Rows,
        [row, rows]: [usize; 2],
        exact: bool,
        one: bool,
    ) -> Vec<f32> {
        let quantised = (self.stored.kernels)(kernels, exact);
        let (n_out, stride) = (self.n_out, self.n_out + 3);
        let mut out = vec![GAP; (rows - 1) * stride + n_out].into_boxed_slice();
        let product = Product {
            weights: self.bytes.as_ptr(),
            row_bytes: x.blocks * BLOCK / self.stored.len * self.stored.bytes,
            n_out,
            blocks: x.blocks,
            x_blocks: x.blocks,
            x: x.from(row),
            rows,
            bias: self.bias.map_or(std::ptr::null(), <[f32]>::as_ptr),
            out: out.as_mut_ptr(),
            stride,
            from: 0,
        };
        let tiles = super::super::product::tiles(n_out);
        let mut packed = vec![0; (quantised.gemm.packed_len)(x.blocks)].into_boxed_slice();
        // SAFETY: all addresses are of arrays as long as the product says, and the machine has the
        // instructions.
        unsafe {
            for tiles in [0..tiles / 2, tiles / 2..tiles] {
                if one {
                    (quantised.gemv)(&product, tiles);
                } else {
                    quantised.gemm.run(&product, tiles, packed.as_mut_ptr());
                }
            }
        }
        without_gaps(&out, n_out, stride)
    }

    /// What the portable code says, one row after the other.
    pub(super) fn oracle(&self, x: &Rows, exact: bool) -> Vec<f32> {
        (0..x.rows).flat_map(|row| self.multiply(&portable::KERNELS, x, [row, 1], exact, true)).collect()
    }

    /// Whether `results` are near what a formula says. Every step of the sum is off by at most half a
    /// unit in the last place of all terms together, and every term by two more.
    fn check(&self, results: &[f32], x: &Rows, elements: &[Element]) {
        let (n_in, values) = (x.blocks * BLOCK, x.values());
        let steps = (4 * x.blocks + 4) as f64;
        for (i, &result) in results.iter().enumerate() {
            let (row, out) = (i / self.n_out, i % self.n_out);
            let bias = self.bias.map_or(0.0, |bias| f64::from(bias[out]));
            let (mut sum, mut all) = (bias, bias.abs());
            let weights = &elements[out * n_in..][..n_in];
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
            let matrix = Matrix { stored: &stored, bytes: &bytes, n_out, bias };
            let x = activations(&mut numbers, 40, blocks * stored.len / BLOCK);
            for exact in [false, true] {
                let x = Rows::new(&portable::KERNELS, &x, 40, exact);
                let oracle = matrix.oracle(&x, exact);
                matrix.check(&oracle, &x, &elements);
                let what = |kernels: &Kernels, rows: usize| {
                    format!("{} {}: {n_out} by {blocks}, {rows} rows", kernels.name, stored.name)
                };
                for kernels in Kernels::all() {
                    for rows in [1, 2, 3, 4, 5, 12, 13, 16, 40] {
                        let results = matrix.multiply(kernels, &x, [0, rows], exact, false);
                        assert_same(&results, &oracle[..rows * n_out], &what(kernels, rows));
                    }
                }
                for kernels in others() {
                    for row in 0..8 {
                        let results = matrix.multiply(kernels, &x, [row, 1], exact, true);
                        assert_same(&results, &oracle[row * n_out..][..n_out], &what(kernels, 1));
                    }
                }
            }
        }
    }
}
