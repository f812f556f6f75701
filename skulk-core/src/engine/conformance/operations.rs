//! Do the operations on rows give what the oracle gives?

use super::material::{Numbers, Weights, wide};
use super::{Rounds, check, check_same, filled, oracle, values};
use crate::arch::{Activation, RopeLayout};
use crate::engine::backend::{Backend, NormRope};
use crate::error::ErrorKind;
use crate::ids::TokenId;
use crate::weights::DType;

/// Row counts: one, a few, enough for several threads, enough for tiles of rows.
const ROWS: [usize; 4] = [1, 2, 33, 150];

/// No step here is larger.
const MOST_ROWS: usize = 200;
const MOST_WIDTH: usize = 1280;

pub(in crate::engine) fn moves_rows<B: Backend>(b: &B) {
    let s = &mut b.stream(MOST_ROWS, MOST_WIDTH).unwrap();
    let (rows, width) = (7, 12);
    let host = Numbers::new(1).floats(rows * width);
    let x = filled(b, s, width, &host);
    assert_eq!(values(b, s, &x, host.len()), host);
    assert_eq!(values(b, s, &x, 3 * width), host[..3 * width], "fewer rows");

    let from = [6, 0, 3, 3];
    let mut out = b.buffer(rows, width).unwrap();
    b.gather(s, &x, &from, &mut out).unwrap();
    let expected: Vec<f32> = from.iter().flat_map(|&row| host[row * width..][..width].to_vec()).collect();
    assert_eq!(values(b, s, &out, expected.len()), expected);

    let wide = Numbers::new(9).floats(rows * (width + 7));
    let mut second = b.buffer(rows, width + 7).unwrap();
    b.write(s, &wide, &mut second).unwrap();
    let mut both = b.buffer(rows, 2 * width + 9).unwrap();
    b.concat(s, [&x, &second], 5, &mut both).unwrap();
    let side = |row: usize| [&host[row * width..][..width], &wide[row * (width + 7)..][..width + 7]].concat();
    let expected: Vec<f32> = (0..5).flat_map(side).collect();
    assert_eq!(values(b, s, &both, expected.len()), expected, "side by side");

    let other = Numbers::new(2).floats(2 * width);
    b.write(s, &other, &mut out).unwrap();
    assert_eq!(values(b, s, &out, other.len()), other, "written over");
    assert_eq!(values(b, s, &x, host.len()), host, "the source stays");
}

pub(in crate::engine) fn embed<B: Rounds>(b: &B) {
    let s = &mut b.stream(MOST_ROWS, MOST_WIDTH).unwrap();
    let mut numbers = Numbers::new(3);
    for dtype in b.types() {
        for shift in [0, 3] {
            let (vocab, width) = (19, 2 * dtype.block_len().max(20));
            let weights = Weights::new(&mut numbers, dtype, [vocab, width], shift);
            let table = b.matrix(weights.region, None).unwrap();
            for (n, scale) in [(1, 1.0), (5, 25.3), (200, 25.3)] {
                let tokens: Vec<TokenId> = (0..n).map(|_| TokenId(numbers.below(vocab) as u32)).collect();
                let mut out = b.buffer(n, width).unwrap();
                b.embed(s, &table, &tokens, scale, &mut out).unwrap();
                let expected: Vec<f64> = tokens
                    .iter()
                    .flat_map(|token| &weights.values[token.0 as usize * width..][..width])
                    .map(|x| x * f64::from(scale))
                    .collect();
                // Scales and minima of a block, and this scale: a few roundings of numbers up to 1.
                let tolerance = |_| 5e-7 * f64::from(scale);
                check(&values(b, s, &out, n * width), &expected, tolerance, &format!("{dtype} rows"));
            }
        }
    }
}

pub(in crate::engine) fn rms_norm<B: Backend>(b: &B) {
    let s = &mut b.stream(MOST_ROWS, MOST_WIDTH).unwrap();
    let mut numbers = Numbers::new(4);
    for width in [1, 9, 64, 640] {
        for rows in ROWS {
            let (x, weight) = (numbers.floats(rows * width), numbers.floats(width));
            // Operands live until they are sent.
            let weights = b.vector(weight.clone()).unwrap();
            let mut norm = |x: &[f32], rows: usize| {
                let (x, mut out) = (filled(b, s, width, x), b.buffer(rows, width).unwrap());
                b.rms_norm(s, &x, &weights, 1e-6, rows, &mut out).unwrap();
                values(b, s, &out, rows * width)
            };
            let found = norm(&x, rows);
            let row = |x: &[f32]| oracle::rms_norm(&wide(x), &wide(&weight), f64::from(1e-6f32));
            let expected: Vec<f64> = x.chunks(width).flat_map(row).collect();
            // Sums of up to 640 squares, all positive: their roundings do not cancel.
            check(&found, &expected, |i| 1e-5 * expected[i].abs() + 1e-9, "norm");
            let apart: Vec<f32> = x.chunks(width).flat_map(|x| norm(x, 1)).collect();
            check_same::<B>(&found, &apart, "norm");
        }
    }
}

pub(in crate::engine) fn elementwise<B: Backend>(b: &B) {
    let s = &mut b.stream(MOST_ROWS, MOST_WIDTH).unwrap();
    let mut numbers = Numbers::new(5);
    for (rows, width) in [(1, 1), (3, 40), (70, 300)] {
        let spread = |x: Vec<f32>| x.iter().map(|x| 12.0 * x).collect::<Vec<_>>();
        let (x, y) = (spread(numbers.floats(rows * width)), spread(numbers.floats(rows * width)));
        let other = filled(b, s, width, &y);

        let mut sum = filled(b, s, width, &x);
        b.add(s, &mut sum, &other, 1.0, rows).unwrap();
        let expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x + y).collect();
        assert_eq!(values(b, s, &sum, x.len()), expected, "one addition has one result");
        b.add(s, &mut sum, &other, 0.3, rows).unwrap();
        let expected: Vec<f64> =
            expected.iter().zip(&y).map(|(x, y)| f64::from(*x) + f64::from(0.3f32) * f64::from(*y)).collect();
        // A product and a sum, each rounded once.
        let tolerance = |i: usize| 6e-8 * (0.3 * f64::from(y[i].abs()) + expected[i].abs());
        check(&values(b, s, &sum, x.len()), &expected, tolerance, "a scaled sum");

        let mut scaled = filled(b, s, width, &x);
        b.scale(s, &mut scaled, 0.3, rows).unwrap();
        let expected: Vec<f64> = x.iter().map(|x| f64::from(*x) * f64::from(0.3f32)).collect();
        check(&values(b, s, &scaled, x.len()), &expected, |i| 6e-8 * expected[i].abs(), "a multiple");

        let limit = 1.75;
        let glu = Activation::ClampedGlu { alpha: 1.702, limit };
        let all = [
            Activation::Silu,
            Activation::GeluTanh,
            Activation::Gelu,
            Activation::ClampedSilu(limit),
            glu,
            Activation::SquaredRelu,
        ];
        for activation in all {
            let mut gate = filled(b, s, width, &x);
            b.gated(s, activation, &mut gate, &other, rows).unwrap();
            let expected: Vec<f64> =
                wide(&x).iter().zip(wide(&y)).map(|(&x, y)| oracle::gated(activation, x, y)).collect();
            // A sigmoid or tanh within 1e-6 of the true one, times gate and up.
            let tolerance = |i: usize| 2e-6 * f64::from((x[i] * (y[i].abs() + 1.0)).abs()) + 1e-9;
            check(&values(b, s, &gate, x.len()), &expected, tolerance, &format!("{activation:?}"));
        }
        for cap in [0.5, 30.0] {
            let mut capped = filled(b, s, width, &x);
            b.softcap(s, &mut capped, cap, rows).unwrap();
            let expected: Vec<f64> = wide(&x).iter().map(|&x| oracle::softcap(x, f64::from(cap))).collect();
            let tolerance = |_| 2e-6 * f64::from(cap);
            check(&values(b, s, &capped, x.len()), &expected, tolerance, "soft-cap");
        }
    }
}

pub(in crate::engine) fn linear<B: Rounds>(b: &B) {
    let s = &mut b.stream(MOST_ROWS, MOST_WIDTH).unwrap();
    let mut numbers = Numbers::new(6);
    for &dtype in DType::ALL.iter().filter(|dtype| dtype.is_weight() && !b.types().contains(dtype)) {
        let error = b.matrix(Weights::new(&mut numbers, dtype, [16, 256], 0).region, None).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::DTypeUnsupported, "{error}");
    }
    for dtype in b.types() {
        let widths: &[usize] = match dtype.block_len() {
            1 => &[1, 7, 40, 640],
            32 => &[32, 96, 640, 1056],
            _ => &[256, 768, 1280],
        };
        for &n_in in widths {
            for (n_out, shift) in [(1, 0), (16, 0), (130, 0), (13, 3)] {
                let weights = Weights::new(&mut numbers, dtype, [n_out, n_in], shift);
                let bias = (n_out % 2 == 0).then(|| numbers.floats(n_out));
                let matrix = b.matrix(weights.region.clone(), bias.clone()).unwrap();
                for rows in ROWS {
                    let x = numbers.floats(rows * n_in);
                    let what = format!("{dtype} [{n_out}, {n_in}] by {rows} rows from byte {shift}");
                    let found = product(b, s, &matrix, &x, [n_in, n_out]);
                    let expected = Product::of(b, &weights, &wide(&x), bias.as_deref());
                    expected.check(&found, &what);
                    if B::EXACT_ROWS {
                        let row = |x: &[f32]| product(b, s, &matrix, x, [n_in, n_out]);
                        let apart: Vec<f32> = x.chunks(n_in).flat_map(row).collect();
                        check_same::<B>(&found, &apart, &what);
                    }
                }
            }
        }
    }
    shared_input(b, s);
}

fn product<B: Backend>(
    b: &B,
    s: &mut B::Stream,
    matrix: &B::Matrix,
    x: &[f32],
    [n_in, n_out]: [usize; 2],
) -> Vec<f32> {
    let rows = x.len() / n_in;
    let (x, mut out) = (filled(b, s, n_in, x), b.buffer(rows, n_out).unwrap());
    b.linear(s, &x, rows, &mut [(matrix, &mut out)]).unwrap();
    values(b, s, &out, rows * n_out)
}

/// A product's true values, and how far off each may be.
pub(super) struct Product {
    pub(super) values: Vec<f64>,
    pub(super) tolerances: Vec<f64>,
}

impl Product {
    pub(super) fn of<B: Rounds>(b: &B, weights: &Weights, x: &[f64], bias: Option<&[f32]>) -> Self {
        let (n_in, dtype) = (weights.region.row_len(), weights.region.dtype());
        let columns: Vec<(&[f64], f64, f64)> = weights
            .values
            .chunks(n_in)
            .enumerate()
            .map(|(i, w)| (w, oracle::dot(w, w).sqrt(), bias.map_or(0.0, |bias| f64::from(bias[i]))))
            .collect();
        let (mut values, mut tolerances) = (Vec::new(), Vec::new());
        for x in x.chunks(n_in) {
            let sizes: Vec<f64> = x.iter().map(|x| x.abs()).collect();
            let largest = sizes.iter().fold(0.0f64, |a, &x| a.max(x));
            for &(w, norm, bias) in &columns {
                values.push(oracle::dot(w, x) + bias);
                // What is summed are the parts of affine weights, none of which is above 2.
                let size = |w: &f64| if dtype.is_affine() { 2.0 } else { w.abs() };
                let sum: f64 = w.iter().zip(&sizes).map(|(w, x)| size(w) * x).sum();
                let summation = (n_in + 1) as f64 * 6e-8 * (sum + bias.abs());
                let rounding = match dtype {
                    DType::BF16 if b.rounds_to_bf16() => {
                        let products: Vec<f64> = w.iter().zip(x).map(|(w, x)| w * x).collect();
                        5.0 * oracle::dot(&products, &products).sqrt() / 512.0
                    }
                    DType::FP8 => 0.0,
                    dtype if dtype.is_quantised() && b.rounds_to_8_bits() => 5.0 * norm * largest / 254.0,
                    _ => 0.0,
                };
                tolerances.push(summation + rounding);
            }
        }
        Self { values, tolerances }
    }

    fn check(&self, found: &[f32], what: &str) {
        check(found, &self.values, |i| self.tolerances[i], what);
    }
}

/// Rows that are padded to whole blocks, or to 256 elements, with numbers that must not count. A backend may refuse
/// them.
pub(in crate::engine) fn padded_rows<B: Rounds>(b: &B) {
    let s = &mut b.stream(MOST_ROWS, MOST_WIDTH).unwrap();
    let mut numbers = Numbers::new(12);
    for dtype in [DType::Q4_K, DType::Q6_K_Linear, DType::Q4_0] {
        for (n_in, stored_in) in [(320, 512), (640, 768), (32, 256), (1000, 1024)] {
            if dtype.block_len() < 256 && n_in % dtype.block_len() != 0 {
                continue;
            }
            let n_out = 21;
            let weights = Weights::padded(&mut numbers, dtype, [n_out, n_in, stored_in], 0);
            assert!(weights.region.is_padded());
            let matrix = match b.matrix(weights.region.clone(), None) {
                Ok(matrix) => matrix,
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::DTypeUnsupported, "{e}");
                    continue;
                }
            };
            for rows in ROWS {
                let x = numbers.floats(rows * n_in);
                let found = product(b, s, &matrix, &x, [n_in, n_out]);
                let what = format!("{dtype} rows of {n_in} in {stored_in} by {rows}");
                Product::of(b, &weights, &wide(&x), None).check(&found, &what);
            }
            let tokens = [TokenId(20), TokenId(0)];
            let mut out = b.buffer(2, n_in).unwrap();
            b.embed(s, &matrix, &tokens, 1.0, &mut out).unwrap();
            let expected = [&weights.values[20 * n_in..], &weights.values[..n_in]].concat();
            check(&values(b, s, &out, 2 * n_in), &expected, |_| 5e-7, "padded table");
        }
    }
}

/// Several products of one input, of different types and widths.
fn shared_input<B: Rounds>(b: &B, s: &mut B::Stream) {
    let mut numbers = Numbers::new(7);
    let (rows, n_in) = (5, 256);
    let kinds = [(DType::Q4_K, 48), (DType::F16, 3), (DType::BF16, 17), (DType::Q8_0, 20)];
    let weights = kinds.map(|(dtype, n_out)| Weights::new(&mut numbers, dtype, [n_out, n_in], 0));
    let matrices = weights.each_ref().map(|w| b.matrix(w.region.clone(), None).unwrap());
    let x = numbers.floats(rows * n_in);
    let input = filled(b, s, n_in, &x);
    let mut outputs = kinds.map(|(_, n_out)| b.buffer(rows, n_out).unwrap());
    let mut products: Vec<_> = matrices.iter().zip(&mut outputs).collect();
    b.linear(s, &input, rows, &mut products).unwrap();
    for ((weights, output), (_, n_out)) in weights.iter().zip(&outputs).zip(kinds) {
        Product::of(b, weights, &wide(&x), None).check(&values(b, s, output, rows * n_out), "shared input");
    }
}

/// Products of normed and of gated rows are those of the norm's and the gate's results.
pub(in crate::engine) fn products_of_results<B: Backend>(b: &B) {
    let s = &mut b.stream(MOST_ROWS, MOST_WIDTH).unwrap();
    let mut numbers = Numbers::new(11);
    let (n_in, eps) = (256, 1e-6);
    let types =
        [vec![DType::Q4_K, DType::F16], vec![DType::F32], vec![DType::BF16, DType::Q8_0], vec![DType::BF16]];
    for dtypes in types {
        let n_out = 20;
        let matrices: Vec<_> = dtypes
            .iter()
            .map(|dtype| Weights::new(&mut numbers, *dtype, [n_out, n_in], 0))
            .map(|weights| b.matrix(weights.region, None).unwrap())
            .collect();
        for rows in [1, 3, 100] {
            let [x, up] = [(); 2].map(|()| numbers.floats(rows * n_in));
            let weight = b.vector(numbers.floats(n_in)).unwrap();
            let outputs = || -> Vec<_> { matrices.iter().map(|_| b.buffer(rows, n_out).unwrap()).collect() };
            let all = |s: &mut B::Stream, outputs: &[B::Buffer]| -> Vec<f32> {
                outputs.iter().flat_map(|out| values(b, s, out, rows * n_out)).collect()
            };
            let what = format!("{dtypes:?} by {rows} rows");

            let input = filled(b, s, n_in, &x);
            let [mut normed, mut expected] = [(); 2].map(|()| b.buffer(rows, n_in).unwrap());
            let (mut found, mut apart) = (outputs(), outputs());
            let mut products: Vec<_> = matrices.iter().zip(&mut found).collect();
            b.norm_linear(s, &input, (&weight, eps), &mut normed, rows, &mut products).unwrap();
            b.rms_norm(s, &input, &weight, eps, rows, &mut expected).unwrap();
            let mut products: Vec<_> = matrices.iter().zip(&mut apart).collect();
            b.linear(s, &expected, rows, &mut products).unwrap();
            assert_eq!(
                values(b, s, &normed, rows * n_in),
                values(b, s, &expected, rows * n_in),
                "norm, {what}"
            );
            assert_eq!(all(s, &found), all(s, &apart), "norm, {what}");

            let mut pair = [filled(b, s, n_in, &x), filled(b, s, n_in, &up)];
            let mut other = [filled(b, s, n_in, &x), filled(b, s, n_in, &up)];
            let activation = Activation::Silu;
            let mut products: Vec<_> = matrices.iter().zip(&mut found).collect();
            b.gated_linear(s, activation, &mut pair, rows, &mut products).unwrap();
            let [gate, up] = &mut other;
            b.gated(s, activation, gate, up, rows).unwrap();
            let mut products: Vec<_> = matrices.iter().zip(&mut apart).collect();
            b.linear(s, gate, rows, &mut products).unwrap();
            assert_eq!(all(s, &found), all(s, &apart), "gate, {what}");
        }
    }
}

/// A block's projections, gate and result together are what they are one by one: with types of both projections alike and
/// apart, shapes that end within a group of outputs, and biases.
pub(in crate::engine) fn gated_block<B: Backend>(b: &B) {
    let s = &mut b.stream(MOST_ROWS, MOST_WIDTH).unwrap();
    let mut numbers = Numbers::new(17);
    let (n_in, n_out) = (256, 12);
    let glu = Activation::ClampedGlu { alpha: 1.702, limit: 1.75 };
    let kinds = [
        ([DType::Q4_K, DType::Q4_K], 32, Activation::Silu, false),
        ([DType::Q8_0, DType::F16], 288, Activation::GeluTanh, false),
        ([DType::Q4_K, DType::Q6_K], 64, glu, true),
        ([DType::F32, DType::F32], 45, Activation::Gelu, false),
    ];
    for (dtypes, width, activation, biased) in kinds {
        let mut matrix = |dtype, shape: [usize; 2], biased: bool| {
            let bias = biased.then(|| numbers.floats(shape[0]));
            b.matrix(Weights::new(&mut numbers, dtype, shape, 0).region, bias).unwrap()
        };
        let [gate, up] = dtypes.map(|dtype| matrix(dtype, [width, n_in], biased));
        let down = matrix(DType::F32, [n_out, width], biased);
        for rows in [1, 2, 5, 8, 40] {
            let x = numbers.floats(rows * n_in);
            let input = filled(b, s, n_in, &x);
            let mut inner = [(); 2].map(|()| b.buffer(rows, 300).unwrap());
            let [mut found, mut apart] = [(); 2].map(|()| b.buffer(rows, n_out).unwrap());
            let products = &mut [(&down, &mut found)];
            b.gated_block(s, activation, (&input, rows), [&gate, &up], &mut inner, products).unwrap();
            let [to_gate, to_up] = &mut inner;
            b.linear(s, &input, rows, &mut [(&gate, &mut *to_gate)]).unwrap();
            b.linear(s, &input, rows, &mut [(&up, &mut *to_up)]).unwrap();
            b.gated(s, activation, to_gate, to_up, rows).unwrap();
            b.linear(s, to_gate, rows, &mut [(&down, &mut apart)]).unwrap();
            let [found, apart] = [found, apart].map(|out| values(b, s, &out, rows * n_out));
            let what = format!("{dtypes:?}, {width} wide, by {rows} rows");
            check_same::<B>(&found, &apart, &what);
            // Sums of 256 and of up to 288 products in f32, that of activations and weights up to some 20.
            check(&found, &wide(&apart), |_| 2e-3, &what);
        }
    }
}

/// A sum and the norm behind it come out as they do one by one, whatever lies between them.
pub(in crate::engine) fn sums_and_norms<B: Backend>(b: &B) {
    let s = &mut b.stream(MOST_ROWS, MOST_WIDTH).unwrap();
    let mut numbers = Numbers::new(18);
    for (rows, width) in [(1, 9), (3, 64), (2, 640), (40, 300), (1, 1200)] {
        let [x, y] = [(); 2].map(|()| numbers.floats(rows * width));
        let [own, before] = [(); 2].map(|()| numbers.floats(width));
        let (weight, before_weight) = (b.vector(own.clone()).unwrap(), b.vector(before.clone()).unwrap());
        let eps = f64::from(1e-6f32);
        let normed = |x: &[f64], weight: &[f32]| -> Vec<f64> {
            x.chunks(width).flat_map(|x| oracle::rms_norm(x, &wide(weight), eps)).collect()
        };
        for (scale, norms_y) in [(1.0, false), (0.25, false), (1.0, true)] {
            let added = if norms_y { normed(&wide(&y), &before) } else { wide(&y) };
            let sum: Vec<f64> = wide(&x).iter().zip(&added).map(|(x, y)| x + f64::from(scale) * y).collect();
            let add = |s: &mut B::Stream, x: &mut B::Buffer, y: &B::Buffer| {
                if norms_y {
                    let mut room = b.buffer(rows, width).unwrap();
                    b.add_norm(s, x, y, (&before_weight, 1e-6), rows, &mut room).unwrap();
                } else {
                    b.add(s, x, y, scale, rows).unwrap();
                }
            };
            let what = format!("{rows} rows of {width}, {scale}, norm {norms_y}");
            // Sums of up to 1200 squares, all positive, and a sum that may be small.
            let tolerance = |_| 2e-5;

            let (mut total, mut other) = (filled(b, s, width, &x), filled(b, s, width, &y));
            let mut out = b.buffer(rows, width).unwrap();
            add(s, &mut total, &other);
            b.rms_norm(s, &total, &weight, 1e-6, rows, &mut out).unwrap();
            check(&values(b, s, &out, x.len()), &normed(&sum, &own), tolerance, &what);
            check(&values(b, s, &total, x.len()), &sum, tolerance, &what);

            // A stage that ends between both has the same bits.
            let together = [&out, &total].map(|of| values(b, s, of, x.len()));
            let mut total = filled(b, s, width, &x);
            add(s, &mut total, &other);
            let mut apart = [values(b, s, &total, x.len()), Vec::new()];
            b.rms_norm(s, &total, &weight, 1e-6, rows, &mut out).unwrap();
            apart[1] = values(b, s, &out, x.len());
            apart.reverse();
            assert_eq!(together, apart, "{what}");

            // The norm takes the place of what was added.
            let mut total = filled(b, s, width, &x);
            add(s, &mut total, &other);
            b.rms_norm(s, &total, &weight, 1e-6, rows, &mut other).unwrap();
            check(&values(b, s, &other, x.len()), &normed(&sum, &own), tolerance, &what);
            check(&values(b, s, &total, x.len()), &sum, tolerance, &what);

            // Of fewer rows, of others, and of none.
            let (mut total, other) = (filled(b, s, width, &x), filled(b, s, width, &y));
            add(s, &mut total, &other);
            b.rms_norm(s, &total, &weight, 1e-6, 1, &mut out).unwrap();
            check(&values(b, s, &out, width), &normed(&sum, &own)[..width], tolerance, &what);
            check(&values(b, s, &total, x.len()), &sum, tolerance, &what);
            add(s, &mut total, &other);
            b.rms_norm(s, &other, &weight, 1e-6, rows, &mut out).unwrap();
            check(&values(b, s, &out, x.len()), &normed(&wide(&y), &own), tolerance, &what);
            let twice: Vec<f64> = sum.iter().zip(&added).map(|(x, y)| x + f64::from(scale) * y).collect();
            check(&values(b, s, &total, x.len()), &twice, tolerance, &what);
            add(s, &mut total, &other);
            add(s, &mut total, &other);
            let more = twice.iter().zip(&added).map(|(x, y)| x + 2.0 * f64::from(scale) * y);
            check(&values(b, s, &total, x.len()), &more.collect::<Vec<_>>(), tolerance, &what);

            // What a step leaves behind is no other step's.
            add(s, &mut total, &other);
            b.discard(s);
            b.rms_norm(s, &other, &weight, 1e-6, rows, &mut out).unwrap();
            check(&values(b, s, &out, x.len()), &normed(&wide(&y), &own), tolerance, &what);
        }
    }
}

/// Heads are multiplied by the sigmoids of their gates.
pub(in crate::engine) fn gate_heads<B: Backend>(b: &B) {
    let s = &mut b.stream(MOST_ROWS, MOST_WIDTH).unwrap();
    let mut numbers = Numbers::new(14);
    for (head_dim, heads) in [(8, 1), (64, 6), (1, 130), (80, 3)] {
        for rows in [1, 3, 40] {
            let x = numbers.floats(rows * heads * head_dim);
            let gates: Vec<f32> = numbers.floats(rows * heads).iter().map(|x| 20.0 * x).collect();
            let (mut found, gate) = (filled(b, s, heads * head_dim, &x), filled(b, s, heads, &gates));
            b.gate_heads(s, &mut found, &gate, head_dim, rows).unwrap();
            let expected: Vec<f64> = wide(&x)
                .chunks(head_dim)
                .zip(wide(&gates))
                .flat_map(|(head, gate)| head.iter().map(move |x| x * oracle::sigmoid(gate)))
                .collect();
            // A sigmoid within 1e-6 of the true one.
            let tolerance = |i: usize| 2e-6 * f64::from(x[i].abs());
            check(
                &values(b, s, &found, x.len()),
                &expected,
                tolerance,
                &format!("{heads} heads of {head_dim}"),
            );
        }
    }
}

pub(in crate::engine) fn norm_rope<B: Backend>(b: &B) {
    let s = &mut b.stream(MOST_ROWS, MOST_WIDTH).unwrap();
    let mut numbers = Numbers::new(8);
    for (head_dim, heads, rotated) in [(8, 1, 8), (8, 5, 4), (64, 3, 64), (80, 2, 40), (256, 4, 256)] {
        let frequencies: Vec<f32> =
            (0..rotated / 2).map(|i| 1e4f32.powf(-2.0 * i as f32 / rotated as f32)).collect();
        for rows in [1, 3, 40] {
            for layout in [RopeLayout::Halves, RopeLayout::Pairs] {
                for (normed, turned) in [(false, true), (true, true), (true, false)] {
                    let x = numbers.floats(rows * heads * head_dim);
                    let positions: Vec<usize> = (0..rows).map(|_| numbers.below(5000)).collect();
                    let weight = normed.then(|| numbers.floats(head_dim));
                    let vector = weight.as_ref().map(|w| b.vector(w.clone()).unwrap());

                    let mut angles = b.buffer(rows, rotated).unwrap();
                    let amplitudes: Vec<f32> =
                        (0..rows).map(|_| 1.0 + numbers.below(8) as f32 / 8.0).collect();
                    b.angles(s, &frequencies, &positions, &amplitudes, &mut angles).unwrap();
                    let mut found = filled(b, s, heads * head_dim, &x);
                    let norm = vector.as_ref().map(|v| (v, 1e-6));
                    b.norm_rope(
                        s,
                        &NormRope { head_dim, plain: 0, norm, layout },
                        turned.then_some(&angles),
                        rows,
                        &mut found,
                    )
                    .unwrap();

                    let mut expected = wide(&x);
                    for (i, head) in expected.chunks_mut(head_dim).enumerate() {
                        if let Some(weight) = &weight {
                            let normed = oracle::rms_norm(head, &wide(weight), f64::from(1e-6f32));
                            head.copy_from_slice(&normed);
                        }
                        if turned {
                            oracle::rotate(head, layout, &frequencies, positions[i / heads]);
                            // Amplitudes are those of what is rotated.
                            let amplitude = f64::from(amplitudes[i / heads]);
                            head[..rotated].iter_mut().for_each(|x| *x *= amplitude);
                        }
                    }
                    // An angle of up to 5000 radians is rounded to f32 once: by 2.5e-4; amplitudes are below 2.
                    let tolerance = |_| 4.0 * (2.5e-4 + 1e-5);
                    let what = format!("{layout:?} of {rotated} in {head_dim}, normed: {normed}");
                    check(&values(b, s, &found, x.len()), &expected, tolerance, &what);
                }
            }
        }
    }
}

/// Buffers are made for the widest layer; a narrower layer's operations keep their own width.
pub(in crate::engine) fn results_narrower_than_buffers<B: Backend>(b: &B) {
    let s = &mut b.stream(MOST_ROWS, MOST_WIDTH).unwrap();
    let mut numbers = Numbers::new(9);
    let (rows, n_in, n_out, room, dim) = (3, 40, 24, 64, 8);
    let weights = Weights::new(&mut numbers, DType::F32, [n_out, n_in], 0);
    let matrix = b.matrix(weights.region.clone(), None).unwrap();
    let x = numbers.floats(rows * n_in);
    let (input, mut wide_buffer) = (filled(b, s, n_in, &x), b.buffer(rows + 2, room).unwrap());
    b.linear(s, &input, rows, &mut [(&matrix, &mut wide_buffer)]).unwrap();

    let frequencies = [1.0, 0.5, 0.25, 0.125];
    let mut angles = b.buffer(rows, dim).unwrap();
    b.angles(s, &frequencies, &[0, 1, 2], &[1.0; 3], &mut angles).unwrap();
    let op = NormRope { head_dim: dim, plain: 0, norm: None, layout: RopeLayout::Halves };
    b.norm_rope(s, &op, Some(&angles), rows, &mut wide_buffer).unwrap();
    let mut normed = b.buffer(rows + 2, room).unwrap();
    let ones = b.vector(vec![1.0; n_out]).unwrap();
    b.rms_norm(s, &wide_buffer, &ones, 0.0, rows, &mut normed).unwrap();
    let mut gathered = b.buffer(rows + 2, room).unwrap();
    b.gather(s, &normed, &[2, 0, 1], &mut gathered).unwrap();

    let row = |position: usize| {
        let x = wide(&x[position * n_in..][..n_in]);
        let mut y: Vec<f64> = weights.values.chunks(n_in).map(|w| oracle::dot(w, &x)).collect();
        for head in y.chunks_mut(dim) {
            oracle::rotate(head, RopeLayout::Halves, &frequencies, position);
        }
        oracle::rms_norm(&y, &[1.0; 24], 0.0)
    };
    let expected: Vec<f64> = [2, 0, 1].into_iter().flat_map(row).collect();
    check(&values(b, s, &gathered, rows * n_out), &expected, |_| 1e-5, "narrow results");
}
