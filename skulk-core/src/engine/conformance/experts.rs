//! Does each row get the weighted sum of the experts that its routes name?

use super::material::{Numbers, Weights, wide};
use super::operations::Product;
use super::{Rounds, check, check_same, filled, oracle, values};
use crate::arch::{Activation, ExpertGroups, ExpertsSpec, Scoring};
use crate::engine::backend::{Backend, Experts, Routes, Routing};
use crate::weights::DType;

/// How many experts there are, and how many a row takes: all of them, most, few.
const COUNTS: [[usize; 2]; 5] = [[1, 1], [3, 3], [6, 4], [12, 2], [5, 2]];

pub(in crate::engine) fn experts<B: Rounds>(b: &B) {
    let mut numbers = Numbers::new(10);
    let some = [
        DType::F32,
        DType::BF16,
        DType::Q8_0,
        DType::Q5_0,
        DType::Q4_K,
        DType::Q6_K,
        DType::Affine4,
        DType::Affine8,
        DType::FP4,
        DType::NVFP4,
        DType::FP8,
        DType::MXFP4,
        DType::IQ4_XS,
        DType::IQ2_XXS,
        DType::IQ2_S,
    ];
    for dtype in some.into_iter().filter(|dtype| b.types().contains(dtype)) {
        let (hidden, width) = (2 * dtype.block_len().max(20), dtype.block_len().max(24));
        for (case, count) in COUNTS.into_iter().enumerate() {
            let activation = [
                Activation::Silu,
                Activation::GeluTanh,
                Activation::ClampedSilu(0.5),
                Activation::ClampedGlu { alpha: 1.702, limit: 1.5 },
                Activation::SquaredRelu,
            ][case];
            let layer = Layer::new(&mut numbers, dtype, [count[0], hidden, width], activation);
            let loaded = layer.load(b);
            for rows in [1, 3, 40] {
                let x = numbers.floats(rows * hidden);
                let logits: Vec<f32> = numbers.floats(rows * count[0]).iter().map(|x| 4.0 * x).collect();
                let spec = ExpertsSpec { normalise: case % 2 == 0, ..softmaxed(count) };
                // Weights of what experts take are there only where these have no biases.
                let on_input = rows != 3 && layer.biases.is_none();
                let spec = ExpertsSpec { on_input, ..spec };
                let what = format!("{rows} rows to {count:?} experts of {dtype}, on input: {on_input}");
                let (routes, found) = run(b, &layer, &loaded, &spec, &logits, &x);
                check_routes(&routes, &spec, [&[], &[]], &logits, &what);
                let (expected, tolerances) = layer.expected(b, &routes, on_input, &wide(&x));
                check(&found, &expected, |i| tolerances[i], &what);
                if B::EXACT_ROWS {
                    let apart = x.chunks(hidden).zip(logits.chunks(count[0]));
                    let apart = apart.flat_map(|(x, logits)| run(b, &layer, &loaded, &spec, logits, x).1);
                    check_same::<B>(&found, &apart.collect::<Vec<_>>(), &what);
                }
            }
        }
    }
}

/// The best of all by a softmax over all.
fn softmaxed([n_experts, n_used]: [usize; 2]) -> ExpertsSpec {
    ExpertsSpec { n_experts, n_used, normalise: true, ..ExpertsSpec::PLAIN }
}

/// Do rows take the experts that their router's kind says, and as much of each?
pub(in crate::engine) fn routing<B: Rounds>(b: &B) {
    let mut numbers = Numbers::new(13);
    let groups = |n_groups, n_used| Some(ExpertGroups { n_groups, n_used });
    let all = [
        ([8, 2], None),
        ([8, 2], groups(2, 1)),
        ([64, 6], groups(8, 3)),
        ([256, 8], groups(8, 4)),
        ([300, 7], None),
    ];
    for (count, groups) in all {
        for (case, scoring) in [Scoring::Softmax, Scoring::Sigmoid].into_iter().cycle().take(8).enumerate() {
            let (correction, normalise, scale) = (case % 4 > 1, case % 3 > 0, [1.0, 2.5][case / 4]);
            let spec = ExpertsSpec { scoring, groups, correction, normalise, scale, ..softmaxed(count) };
            let added: Vec<f32> = match correction {
                true => numbers.floats(count[0]).iter().map(|x| 0.3 * x).collect(),
                false => Vec::new(),
            };
            for rows in [1, 5, 40] {
                let logits: Vec<f32> = numbers.floats(rows * count[0]).iter().map(|x| 4.0 * x).collect();
                let s = &mut b.stream(rows, count[0]).unwrap();
                let mut routes = b.routes(rows, spec.n_used).unwrap();
                let input = filled(b, s, count[0], &logits);
                let vector = correction.then(|| b.vector(added.clone()).unwrap());
                let multiplied: Vec<f32> = numbers.floats(count[0]).iter().map(|x| 1.5 + x).collect();
                let scales = if case % 5 > 2 { &*multiplied } else { &[] };
                let scaled = (!scales.is_empty()).then(|| b.vector(multiplied.clone()).unwrap());
                let op = Routing { spec: &spec, correction: vector.as_ref(), scales: scaled.as_ref() };
                b.route(s, &op, &input, rows, &mut routes).unwrap();
                let mut found = Routes::default();
                b.read_routes(s, &routes, rows, &mut found).unwrap();
                check_routes(&found, &spec, [&added, scales], &logits, &format!("{rows} rows by {spec:?}"));
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
    /// Of each expert, where there are some.
    biases: Option<Vec<[Vec<f32>; 3]>>,
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
        let weights = (0..n).map(expert).collect();
        // Where up is clamped, biases come with it.
        let biased = matches!(activation, Activation::ClampedGlu { .. });
        let biases = (0..n).map(|_| shapes.map(|[n_out, _]| numbers.floats(n_out))).collect();
        Self { activation, hidden, width, weights, biases: biased.then_some(biases) }
    }

    fn load<B: Backend>(&self, b: &B) -> [B::Stack; 3] {
        [0, 1, 2].map(|i| {
            let biases = self.biases.as_ref().map(|all| all.iter().flat_map(|b| b[i].clone()).collect());
            b.stack(self.weights.iter().map(|w| w[i].region.clone()).collect(), biases).unwrap()
        })
    }

    /// True results, and how far off each may be.
    fn expected<B: Rounds>(&self, b: &B, routes: &Routes, on_input: bool, x: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let (mut values, mut tolerances) = (Vec::new(), Vec::new());
        for (row, x) in x.chunks(self.hidden).enumerate() {
            let mut sum = vec![0.0; self.hidden];
            let mut tolerance = vec![0.0; self.hidden];
            for place in row * routes.n_used..(row + 1) * routes.n_used {
                let weight = f64::from(routes.weights[place]);
                let (before, weight) = if on_input { (weight, 1.0) } else { (1.0, weight) };
                let [y, off] = self.expert(b, routes.ids[place] as usize, before, x);
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

    /// One expert's result for one row times `weight`, and how far off each value may be.
    fn expert<B: Rounds>(&self, b: &B, expert: usize, weight: f64, x: &[f64]) -> [Vec<f64>; 2] {
        let [gate, up, down] = &self.weights[expert];
        let bias = |i: usize| self.biases.as_ref().map(|all| &*all[expert][i]);
        let weighted = |mut product: Product| {
            product.values.iter_mut().chain(&mut product.tolerances).for_each(|x| *x *= weight);
            product
        };
        let gate = weighted(Product::of(b, gate, x, bias(0)));
        let up = weighted(Product::of(b, up, x, bias(1)));
        let (mut inner, mut off) = (Vec::new(), Vec::new());
        for i in 0..self.width {
            let (g, u) = (gate.values[i], up.values[i]);
            let activated = oracle::activation(self.activation, g);
            inner.push(oracle::gated(self.activation, g, u));
            let off_gate = gate.tolerances[i];
            off.push(match self.activation {
                // As steep as `2x`, and one product.
                Activation::SquaredRelu => (2.0 * g.abs() + off_gate) * off_gate + 6e-8 * activated,
                _ => {
                    // These non-linearities are nowhere steeper than 1.13.
                    let steep = 1.13 * off_gate;
                    let u = if self.biases.is_some() { u.abs() + 1.0 } else { u.abs() };
                    steep * u + (activated.abs() + steep) * up.tolerances[i] + 2e-6 * g.abs() * u + 1e-9
                }
            });
        }
        let product = Product::of(b, down, &inner, bias(2));
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

/// The best experts, and their weights within a few roundings.
fn check_routes(
    routes: &Routes,
    spec: &ExpertsSpec,
    [correction, scales]: [&[f32]; 2],
    logits: &[f32],
    what: &str,
) {
    let rows = logits.chunks(spec.n_experts);
    let scaled = |(expert, weight): (u32, f64)| {
        (expert, weight * scales.get(expert as usize).map_or(1.0, |scale| f64::from(*scale)))
    };
    let route = |row: &[f32]| oracle::route(spec, &wide(correction), &wide(row));
    let expected: Vec<_> = rows.flat_map(route).map(scaled).collect();
    let (ids, weights): (Vec<u32>, Vec<f64>) = expected.into_iter().unzip();
    assert_eq!((routes.n_used, &routes.ids), (spec.n_used, &ids), "{what}");
    check(&routes.weights, &weights, |i| 2e-6 * weights[i], what);
}

/// In buffers that are made for more rows and wider layers.
fn run<B: Backend>(
    b: &B,
    layer: &Layer,
    [gate, up, down]: &[B::Stack; 3],
    spec: &ExpertsSpec,
    logits: &[f32],
    x: &[f32],
) -> (Routes, Vec<f32>) {
    let rows = x.len() / layer.hidden;
    let room = layer.hidden.max(layer.width) + 8;
    let s = &mut b.stream(rows + 2, room).unwrap();
    let mut out = b.buffer(rows + 2, room).unwrap();
    let mut routes = b.routes(rows + 2, spec.n_used).unwrap();
    let logits = filled(b, s, spec.n_experts, logits);
    let op = Routing { spec, correction: None, scales: None };
    b.route(s, &op, &logits, rows, &mut routes).unwrap();
    let (activation, on_input) = (layer.activation, spec.on_input);
    let up = activation.is_gated().then_some(up);
    let op = Experts { activation, routes: &routes, gate, up, down, on_input, memory: None };
    let x = filled(b, s, layer.hidden, x);
    b.experts(s, &op, &x, rows, &mut out).unwrap();
    let mut chosen = Routes::default();
    b.read_routes(s, &routes, rows, &mut chosen).unwrap();
    (chosen, values(b, s, &out, rows * layer.hidden))
}
