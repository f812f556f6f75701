//! Does a row get the block's result from the features with the largest gate scores, and from no others?

use super::material::{Numbers, Weights, wide};
use super::operations::Product;
use super::{Rounds, check, check_same, filled, oracle, values};
use crate::arch::Activation;
use crate::engine::backend::{FeatureDown, Features, TopFeatures};
use crate::weights::DType;

pub(in crate::engine) fn top_features<B: Rounds + Features>(b: &B) {
    let mut numbers = Numbers::new(20);
    for (case, dtype) in
        [DType::F32, DType::BF16, DType::Q8_0, DType::Q4_K, DType::Q6_K].into_iter().enumerate()
    {
        let activation = [Activation::Silu, Activation::GeluTanh, Activation::Gelu][case % 3];
        let hidden = 2 * dtype.block_len().max(20);
        let width =
            [150, 160, 768][usize::from(dtype.is_quantised()) + usize::from(dtype.block_len() == 256)];
        let block = Block::new(&mut numbers, dtype, [hidden, width], activation);
        for rows in [1, 3, 20] {
            let x = numbers.floats(rows * hidden);
            for k in [1, 17, width - 1] {
                for by_feature in [false, true] {
                    let what = format!("{rows} rows, {k} features of {width} of {dtype}, {by_feature}");
                    let (scores, found) = block.run(b, k, by_feature, &x);
                    let (expected, tolerances) = block.expected(b, k, by_feature, &scores, &wide(&x));
                    check(&found, &expected, |i| tolerances[i], &what);
                    if k == 17 || rows == 3 {
                        let apart = x.chunks(hidden).flat_map(|x| block.run(b, k, by_feature, x).1);
                        check_same::<B>(&found, &apart.collect::<Vec<_>>(), &what);
                    }
                }
            }
        }
    }
}

/// A block as it is stored: gate, up, down, and other numbers for what features add.
struct Block {
    activation: Activation,
    hidden: usize,
    width: usize,
    weights: [Weights; 4],
}

impl Block {
    fn new(numbers: &mut Numbers, dtype: DType, [hidden, width]: [usize; 2], activation: Activation) -> Self {
        let shapes = [[width, hidden], [width, hidden], [hidden, width], [width + 3, hidden]];
        let weights = shapes.map(|shape| Weights::new(numbers, dtype, shape, 0));
        Self { activation, hidden, width, weights }
    }

    /// The gate scores, and the result, of rows in buffers that are made for more.
    fn run<B: Features>(&self, b: &B, k: usize, by_feature: bool, x: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let rows = x.len() / self.hidden;
        let room = self.hidden.max(self.width) + 8;
        let s = &mut b.stream(rows + 2, room).unwrap();
        let mut inner = [0, 1].map(|_| b.buffer(rows + 2, room).unwrap());
        let mut out = b.buffer(rows + 2, room).unwrap();
        let [gate, up, down, features] =
            [0, 1, 2, 3].map(|i| b.matrix(self.weights[i].region.clone(), None).unwrap());
        let x = filled(b, s, self.hidden, x);
        b.linear(s, &x, rows, &mut [(&gate, &mut inner[0])]).unwrap();
        let scores = values(b, s, &inner[0], rows * self.width);
        let down = if by_feature { FeatureDown::Rows(&features) } else { FeatureDown::Columns(&down) };
        let op = TopFeatures { activation: self.activation, k, gate: &gate, up: &up, down };
        // Twice, as what is left of one call must not reach the next.
        b.top_features(s, &op, &x, rows, &mut inner, &mut out).unwrap();
        b.top_features(s, &op, &x, rows, &mut inner, &mut out).unwrap();
        (scores, values(b, s, &out, rows * self.hidden))
    }

    /// True results, from the scores as the backend computes them, and how far off each may be.
    fn expected<B: Rounds>(
        &self,
        b: &B,
        k: usize,
        by_feature: bool,
        scores: &[f32],
        x: &[f64],
    ) -> (Vec<f64>, Vec<f64>) {
        let [_, up, down, features] = &self.weights;
        let (mut results, mut tolerances) = (Vec::new(), Vec::new());
        for (x, scores) in x.chunks(self.hidden).zip(scores.chunks(self.width)) {
            let mut order: Vec<usize> = (0..self.width).collect();
            order.sort_by(|&i, &j| scores[j].abs().total_cmp(&scores[i].abs()).then(i.cmp(&j)));
            let up = Product::of(b, up, x, None);
            let (mut inner, mut off) = (vec![0.0; self.width], vec![0.0; self.width]);
            for &i in &order[..k] {
                let score = f64::from(scores[i]);
                let activated = oracle::activation(self.activation, score);
                inner[i] = oracle::gated(self.activation, score, up.values[i]);
                off[i] = activated.abs() * up.tolerances[i] + 2e-6 * (score * up.values[i]).abs() + 1e-9;
            }
            if by_feature {
                let of = |i: usize, j: usize| features.values[i * self.hidden + j];
                for j in 0..self.hidden {
                    results.push((0..self.width).map(|i| inner[i] * of(i, j)).sum::<f64>());
                    // Scales of stored blocks round, and so does each addition.
                    let size: f64 = (0..self.width).map(|i| (inner[i] * of(i, j)).abs()).sum();
                    let passed_on: f64 = (0..self.width).map(|i| off[i] * of(i, j).abs()).sum();
                    let rounded: f64 = inner.iter().map(|x| 5e-7 * x.abs()).sum();
                    tolerances.push(passed_on + rounded + 6e-8 * (k as f64 + 32.0) * size + 1e-9);
                }
                continue;
            }
            let product = Product::of(b, down, &inner, None);
            results.extend(&product.values);
            let passed_on =
                down.values.chunks(self.width).zip(&product.tolerances).map(|(w, own)| {
                    w.iter().zip(&off).map(|(w, off)| w.abs() * off).sum::<f64>() + 1.5 * own
                });
            tolerances.extend(passed_on);
        }
        (results, tolerances)
    }
}
