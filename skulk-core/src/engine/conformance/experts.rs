//! Does each row get the weighted sum of the experts that its routes name?

use super::material::{Numbers, Weights, wide};
use super::operations::Product;
use super::{Rounds, check, check_same, filled, oracle, values};
use crate::arch::Activation;
use crate::engine::backend::{Backend, Expert, Experts, Routes};
use crate::weights::DType;

/// How many experts there are, and how many a row takes: all of them, most, few.
const COUNTS: [[usize; 2]; 4] = [[1, 1], [3, 3], [6, 4], [12, 2]];

pub(in crate::engine) fn experts<B: Rounds>(b: &B) {
    let mut numbers = Numbers::new(10);
    for dtype in [DType::F32, DType::BF16, DType::Q8_0, DType::Q5_0, DType::Q4_K, DType::Q6_K] {
        let (hidden, width) = (2 * dtype.block_len().max(20), dtype.block_len().max(24));
        for (case, count) in COUNTS.into_iter().enumerate() {
            let activation = [Activation::Silu, Activation::GeluTanh][case % 2];
            let layer = Layer::new(&mut numbers, dtype, [count[0], hidden, width], activation);
            let loaded = layer.load(b);
            for rows in [1, 3, 40] {
                let x = numbers.floats(rows * hidden);
                let routes = random_routes(&mut numbers, rows, count);
                let found = run(b, &layer, &loaded, &routes, &x);
                let what = format!("{rows} rows to {count:?} experts of {dtype}");
                let (expected, tolerances) = layer.expected(b, &routes, &wide(&x));
                check(&found, &expected, |i| tolerances[i], &what);
                if B::EXACT_ROWS {
                    let apart = (0..rows).flat_map(|row| {
                        let x = &x[row * hidden..][..hidden];
                        run(b, &layer, &loaded, &only(&routes, row), x)
                    });
                    check_same::<B>(&found, &apart.collect::<Vec<_>>(), &what);
                }
            }
        }
    }
}

/// A layer's experts as they are stored: gate, up, down.
struct Layer {
    activation: Activation,
    hidden: usize,
    width: usize,
    weights: Vec<[Weights; 3]>,
}

impl Layer {
    fn new(
        numbers: &mut Numbers,
        dtype: DType,
        [n, hidden, width]: [usize; 3],
        activation: Activation,
    ) -> Self {
        let shapes = [[width, hidden], [width, hidden], [hidden, width]];
        let expert = |_| shapes.map(|shape| Weights::new(numbers, dtype, shape, 0));
        Self { activation, hidden, width, weights: (0..n).map(expert).collect() }
    }

    fn load<B: Backend>(&self, b: &B) -> Vec<Expert<B>> {
        let matrix = |w: &Weights| b.matrix(w.region.clone(), None).unwrap();
        let expert = |[gate, up, down]: &[Weights; 3]| Expert {
            gate: matrix(gate),
            up: matrix(up),
            down: matrix(down),
        };
        self.weights.iter().map(expert).collect()
    }

    /// True results, and how far off each may be.
    fn expected<B: Rounds>(&self, b: &B, routes: &Routes, x: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let (mut values, mut tolerances) = (Vec::new(), Vec::new());
        for (row, x) in x.chunks(self.hidden).enumerate() {
            let mut sum = vec![0.0; self.hidden];
            let mut tolerance = vec![0.0; self.hidden];
            for place in row * routes.n_used..(row + 1) * routes.n_used {
                let weight = f64::from(routes.weights[place]);
                let [y, off] = self.expert(b, routes.ids[place] as usize, x);
                for i in 0..self.hidden {
                    sum[i] += weight * y[i];
                    // Each product and sum rounds once.
                    tolerance[i] += weight * (off[i] + 6e-8 * (1.0 + routes.n_used as f64) * y[i].abs());
                }
            }
            values.extend(sum);
            tolerances.extend(tolerance);
        }
        (values, tolerances)
    }

    /// One expert's result for one row, and how far off each value may be.
    fn expert<B: Rounds>(&self, b: &B, expert: usize, x: &[f64]) -> [Vec<f64>; 2] {
        let [gate, up, down] = &self.weights[expert];
        let (gate, up) = (Product::of(b, gate, x, None), Product::of(b, up, x, None));
        let (mut inner, mut off) = (Vec::new(), Vec::new());
        for i in 0..self.width {
            let (g, u) = (gate.values[i], up.values[i]);
            let activated = oracle::activation(self.activation, g);
            inner.push(activated * u);
            // These non-linearities are nowhere steeper than 1.13.
            let steep = 1.13 * gate.tolerances[i];
            off.push(
                steep * u.abs() + (activated.abs() + steep) * up.tolerances[i] + 2e-6 * (g * u).abs() + 1e-9,
            );
        }
        let product = Product::of(b, down, &inner, None);
        let tolerances = down.values.chunks(self.width).zip(&product.tolerances).map(|(w, own)| {
            let passed_on = w.iter().zip(&off).map(|(w, off)| w.abs() * off);
            // Roundings of activations are independent, and eight deviations of each are so of their
            // sum; the bound for f32 is a strict one.
            let passed_on = match down.region.dtype() {
                DType::BF16 if !b.rounds_to_bf16() => passed_on.sum(),
                DType::F32 => passed_on.sum(),
                _ => passed_on.map(|off| off * off).sum::<f64>().sqrt(),
            };
            passed_on + 1.5 * own
        });
        [product.values.clone(), tolerances.collect()]
    }
}

/// For each row different experts in any order, with weights up to 1.
fn random_routes(numbers: &mut Numbers, rows: usize, [n, n_used]: [usize; 2]) -> Routes {
    let mut routes = Routes { n_used, ..Routes::default() };
    for _ in 0..rows {
        let mut all: Vec<u32> = (0..n as u32).collect();
        for i in 0..n_used {
            let chosen = i + numbers.below(n - i);
            all.swap(i, chosen);
        }
        routes.ids.extend(&all[..n_used]);
    }
    routes.weights = numbers.floats(rows * n_used).iter().map(|x| x.abs()).collect();
    routes
}

/// The routes of one row.
fn only(routes: &Routes, row: usize) -> Routes {
    let places = row * routes.n_used..(row + 1) * routes.n_used;
    Routes {
        n_used: routes.n_used,
        ids: routes.ids[places.clone()].to_vec(),
        weights: routes.weights[places].to_vec(),
    }
}

/// In buffers that are made for more rows and wider layers.
fn run<B: Backend>(b: &B, layer: &Layer, experts: &[Expert<B>], routes: &Routes, x: &[f32]) -> Vec<f32> {
    let rows = x.len() / layer.hidden;
    let room = layer.hidden.max(layer.width) + 8;
    let mut scratch = b.scratch(rows + 2, room).unwrap();
    let mut inner = [0, 1].map(|_| b.buffer(rows + 2, room).unwrap());
    let mut out = b.buffer(rows + 2, room).unwrap();
    let op = Experts { activation: layer.activation, routes, experts };
    b.experts(&mut scratch, &op, &filled(b, layer.hidden, x), rows, &mut inner, &mut out).unwrap();
    values(b, &out, rows * layer.hidden)
}
