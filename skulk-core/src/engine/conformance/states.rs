//! Do rows change and read states as the formulas say, however they are cut into steps, and beside whomever?

use super::{check, check_same, filled, material::Numbers, values};
use crate::arch::{Interleaved, KeyHeads, RecurrentGate, RecurrentRule, RecurrentSpec, StoredDecay};
use crate::engine::backend::{Backend, Recur, Run, StatePart, StateParts, StateVectors};
use crate::engine::cpu::Cpu;

pub(in crate::engine) fn states<B: Backend>(b: &B) {
    for case in state_cases() {
        let expected = [0, 5].map(|start| case.expected(start));
        let check = |found: &[Vec<f32>], how: &str| {
            for (found, expected) in found.iter().zip(&expected) {
                let largest = expected.iter().fold(0.0f64, |a, x| a.max(x.abs()));
                // Sums of a hundred products, 41 rows one after another: some 1e-6, and ten times that.
                check(found, expected, |_| 2e-5 * largest, &format!("{:?} {how}", case.spec));
            }
        };
        let whole = case.side_by_side(b, &[0, 5], &[41], false);
        check(&whole, "in one step");
        for (steps, from_marks) in [(&[1][..], false), (&[3, 1, 16], false), (&[7, 2], true)] {
            let found = case.side_by_side(b, &[0, 5], steps, from_marks);
            check(&found, &format!("in steps of {steps:?} rows"));
            for (found, whole) in found.iter().zip(&whole) {
                check_same::<B>(found, whole, "states");
            }
        }
        check_same::<B>(&case.run(b, &[41], false), &whole[0], "states");
    }
    nobody_elses(b);
    heads_in_halves(b);
}

/// Sequences that would write what others read are refused, not computed.
fn nobody_elses<B: Backend>(b: &B) {
    let case = Case::new(delta(Interleaved::No, [1, 1], 8, 16), 2);
    let mut states = b.states(&case.spec).unwrap();
    (0..3).for_each(|number| b.add_state(&mut states, number).unwrap());
    let s = &mut b.stream(2, case.widths[0]).unwrap();
    let products = [0, 1].map(|i| filled(b, s, case.widths[i], &case.products[i]));
    let run = |rows: std::ops::Range<usize>, from, to| Run { rows, from, to, mark: None };
    let marked = |from, to, mark| Run { rows: 0..2, from, to, mark: Some((1, mark)) };
    let mut out = b.buffer(2, case.spec.value_width()).unwrap();
    for (runs, refused) in [
        (vec![run(0..1, None, 0), run(1..2, None, 1)], false),
        (vec![run(0..1, Some(0), 2), run(1..2, Some(0), 1)], false),
        (vec![marked(Some(0), 1, 2)], false),
        (vec![marked(Some(0), 1, 1)], true),
        (vec![marked(Some(0), 1, 0)], true),
        (vec![run(0..1, None, 1), run(1..2, None, 1)], true),
        (vec![run(0..1, Some(1), 1)], true),
        (vec![run(0..1, Some(2), 1), run(1..2, Some(1), 0)], true),
        (vec![run(0..1, None, 0), run(0..2, None, 1)], true),
        (vec![run(0..2, None, 7)], true),
        (vec![run(0..2, Some(7), 0)], true),
    ] {
        let (parts, vectors) = (&parts(&case.spec), &case.vectors_on(b));
        let op = Recur { spec: &case.spec, eps: 1e-6, products: &products, parts, vectors, runs: &runs };
        assert_eq!(b.recur(s, &op, &mut states, &mut out).is_err(), refused, "{runs:?}");
    }
    let short = vec![0; case.spec.state_bytes() as usize - 4];
    assert!(b.write_state(s, &mut states, 0, &short).is_err());
    assert!(b.write_state(s, &mut states, 7, &[short, vec![0; 4]].concat()).is_err());
    assert!(b.read_state(s, &states, 7, &mut Vec::new()).is_err());
}

fn heads_in_halves<B: Backend>(b: &B) {
    for (heads, head_dim, rows) in [(1, 1, 1), (3, 20, 5), (2, 64, 33), (5, 7, 2)] {
        let s = &mut b.stream(rows, 2 * heads * head_dim).unwrap();
        let x = Numbers::new(7).floats(rows * 2 * heads * head_dim);
        let both = filled(b, s, 2 * heads * head_dim, &x);
        let [mut first, mut second] = [0, 0].map(|_| b.buffer(rows, heads * head_dim + 5).unwrap());
        b.split_heads(s, &both, head_dim, rows, [&mut first, &mut second]).unwrap();
        for (half, out) in [first, second].iter().enumerate() {
            let expected: Vec<f32> = x.chunks(head_dim).skip(half).step_by(2).flatten().copied().collect();
            assert_eq!(values(b, s, out, expected.len()), expected, "{heads} heads of {head_dim}");
        }
    }
}

/// Rows of one sequence, and how they change its state.
pub(in crate::engine) struct Case {
    pub(in crate::engine) spec: RecurrentSpec,
    rows: usize,
    products: [Vec<f32>; 2],
    widths: [usize; 2],
    vectors: StateVectors<Cpu>,
}

/// Queries, keys, values and gates lie in one product, shares and steps in the other; by key heads or one by one.
fn part(spec: &RecurrentSpec, product: usize, before: usize, own: usize, all: usize) -> StatePart {
    let n = spec.n_key_heads;
    match spec.interleaved == Interleaved::Yes || spec.interleaved == Interleaved::Scalars && product == 1 {
        true => StatePart { product, first: before / n, stride: all / n },
        false => StatePart { product, first: before, stride: own / n },
    }
}

fn parts(spec: &RecurrentSpec) -> StateParts {
    let (keys, values, heads, steps) = (spec.key_width(), spec.value_width(), spec.n_heads, spec.steps());
    let all = 2 * (keys + values);
    StateParts {
        query: part(spec, 0, 0, keys, all),
        key: part(spec, 0, keys, keys, all),
        value: part(spec, 0, 2 * keys, values, all),
        gate: part(spec, 0, 2 * keys + values, values, all),
        share: spec.rule.replaces().then(|| part(spec, 1, 0, heads, heads + steps)),
        step: part(spec, 1, heads, steps, heads + steps),
    }
}

impl Case {
    fn new(spec: RecurrentSpec, rows: usize) -> Self {
        let mut numbers = Numbers::new((spec.n_heads * 64 + spec.value_dim) as u64);
        let widths = [2 * (spec.key_width() + spec.value_width()), spec.n_heads + spec.steps()];
        let products = widths.map(|width| numbers.floats(rows * width));
        let mut vector = |n: usize| numbers.floats(n);
        let vectors = StateVectors {
            convolution: vector(spec.channels() * spec.convolution),
            convolution_bias: spec.convolution_bias.then(|| vector(spec.channels())),
            step_bias: vector(spec.steps()),
            decay: vector(spec.n_heads).iter().map(|x| x.abs()).collect(),
            skip: (!spec.rule.replaces()).then(|| vector(spec.n_heads)),
            norm: vector(spec.norm_width()),
        };
        Self { spec, rows, products, widths, vectors }
    }

    /// Computes in steps of these lengths; the state is read again where a step kept one on its way, if it did.
    pub(in crate::engine) fn run<B: Backend>(&self, b: &B, steps: &[usize], from_marks: bool) -> Vec<f32> {
        self.side_by_side(b, &[0], steps, from_marks).concat()
    }

    /// The same of sequences side by side, which begin at some of the rows.
    fn side_by_side<B: Backend>(
        &self,
        b: &B,
        starts: &[usize],
        steps: &[usize],
        from_marks: bool,
    ) -> Vec<Vec<f32>> {
        let (spec, vectors) = (&self.spec, self.vectors_on(b));
        let most = starts.len() * self.rows;
        let s = &mut b.stream(most, self.widths[0].max(self.widths[1])).unwrap();
        let mut states = b.states(spec).unwrap();
        (0..4 * starts.len() as u32).for_each(|number| b.add_state(&mut states, number).unwrap());
        // Wider than results.
        let mut out = b.buffer(most, spec.value_width() + 3).unwrap();
        let (mut found, mut at) = (vec![Vec::new(); starts.len()], starts.to_vec());
        let (mut from, mut steps) = (vec![None; starts.len()], steps.iter().copied().cycle());
        while at.iter().any(|at| *at < self.rows) {
            let (step, mut runs, mut of) = (steps.next().unwrap(), Vec::new(), Vec::new());
            let mut data = [Vec::new(), Vec::new()];
            for (own, (at, from)) in at.iter().zip(&from).enumerate().filter(|(_, (at, _))| **at < self.rows)
            {
                let (first, n) = (runs.last().map_or(0, |run: &Run| run.rows.end), step.min(self.rows - at));
                for (data, (rows, width)) in data.iter_mut().zip(self.products.iter().zip(self.widths)) {
                    data.extend_from_slice(&rows[at * width..(at + n) * width]);
                }
                let base = 4 * own as u32;
                let to = from.map_or(base, |from| base + (from + 1) % 2);
                let mark = (n > 2).then_some((n - 1, base + 3));
                runs.push(Run { rows: first..first + n, from: *from, to, mark });
                of.push(own);
            }
            let products = [0, 1].map(|i| filled(b, s, self.widths[i], &data[i]));
            let parts = &parts(spec);
            let op = Recur { spec, eps: 1e-6, products: &products, parts, vectors: &vectors, runs: &runs };
            b.recur(s, &op, &mut states, &mut out).unwrap();
            let width = spec.value_width();
            let all = values(b, s, &out, runs.last().map_or(0, |run| run.rows.end) * width);
            for (run, own) in runs.iter().zip(of) {
                let mut kept = run.rows.len();
                if let Some((rows, mark)) = run.mark.filter(|_| from_marks) {
                    let mut bytes = Vec::new();
                    b.read_state(s, &states, mark, &mut bytes).unwrap();
                    assert_eq!(bytes.len() as u64, spec.state_bytes());
                    b.write_state(s, &mut states, run.to, &bytes).unwrap();
                    kept = rows;
                }
                found[own].extend_from_slice(&all[run.rows.start * width..][..kept * width]);
                (at[own], from[own]) = (at[own] + kept, Some(run.to));
            }
        }
        found
    }

    fn vectors_on<B: Backend>(&self, b: &B) -> StateVectors<B> {
        let (own, vector) = (&self.vectors, |values: &Vec<f32>| b.vector(values.clone()).unwrap());
        StateVectors {
            convolution: vector(&own.convolution),
            convolution_bias: own.convolution_bias.as_ref().map(vector),
            step_bias: vector(&own.step_bias),
            decay: vector(&own.decay),
            skip: own.skip.as_ref().map(vector),
            norm: vector(&own.norm),
        }
    }

    /// What the formulas say of the rows from `start` on.
    fn expected(&self, start: usize) -> Vec<f64> {
        let (spec, parts) = (&self.spec, parts(&self.spec));
        let of_group = spec.n_heads / spec.n_key_heads;
        let at = |row: usize, part: StatePart, group: usize, i: usize| {
            f64::from(
                self.products[part.product]
                    [row * self.widths[part.product] + part.first + group * part.stride + i],
            )
        };
        let silu = |x: f64| x / (1.0 + (-x).exp());
        let convolved = |row: usize, part: StatePart, first: usize, width: usize, group: usize, i: usize| {
            let channel = first + group * width + i;
            let mut sum = self.vectors.convolution_bias.as_ref().map_or(0.0, |bias| f64::from(bias[channel]));
            for back in (0..spec.convolution).filter(|back| start + *back <= row) {
                let tap = spec.convolution - 1 - back;
                let weight = self.vectors.convolution[tap * spec.channels() + channel];
                sum += f64::from(weight) * at(row - back, part, group, i);
            }
            silu(sum)
        };
        let (keys, values) = (spec.key_width(), of_group * spec.value_dim);
        let mut state = vec![0.0; spec.n_heads * spec.key_dim * spec.value_dim];
        let mut out = Vec::new();
        for row in start..self.rows {
            let mut read = vec![0.0; spec.value_width()];
            for head in 0..spec.n_heads {
                let (group, own) = (head / of_group, head % of_group);
                let keys_of =
                    if spec.key_heads == KeyHeads::InTurn { head % spec.n_key_heads } else { group };
                let key_of = |part: StatePart, first: usize| -> Vec<f64> {
                    (0..spec.key_dim).map(|i| convolved(row, part, first, spec.key_dim, keys_of, i)).collect()
                };
                let [mut query, mut key] = [key_of(parts.query, 0), key_of(parts.key, keys)];
                let of_head = spec.steps() / spec.n_heads;
                let step = |i: usize| {
                    let bias = f64::from(self.vectors.step_bias[head * of_head + i]);
                    (at(row, parts.step, group, own * of_head + i) + bias).exp().ln_1p()
                };
                let mut share = step(0);
                if let Some(part) = parts.share {
                    share = 1.0 / (1.0 + (-at(row, part, group, own)).exp());
                    for (x, length) in [(&mut query, 1.0 / (spec.key_dim as f64).sqrt()), (&mut key, 1.0)] {
                        let scale = length / (x.iter().map(|x| x * x).sum::<f64>() + 1e-6).sqrt();
                        x.iter_mut().for_each(|x| *x *= scale);
                    }
                }
                let left = |i: usize| (-f64::from(self.vectors.decay[head]) * step(i % of_head)).exp();
                let state =
                    &mut state[head * spec.key_dim * spec.value_dim..][..spec.key_dim * spec.value_dim];
                for j in 0..spec.value_dim {
                    let value =
                        convolved(row, parts.value, 2 * keys, values, group, own * spec.value_dim + j);
                    let column = |i: usize| i * spec.value_dim + j;
                    (0..spec.key_dim).for_each(|i| state[column(i)] *= left(i));
                    let known: f64 = (0..spec.key_dim).map(|i| state[column(i)] * key[i]).sum();
                    let news = if parts.share.is_some() { value - known } else { value } * share;
                    (0..spec.key_dim).for_each(|i| state[column(i)] += key[i] * news);
                    let skip = self.vectors.skip.as_ref().map_or(0.0, |skip| f64::from(skip[head]));
                    read[head * spec.value_dim + j] =
                        (0..spec.key_dim).map(|i| state[column(i)] * query[i]).sum::<f64>() + skip * value;
                }
            }
            let gate = |i: usize| {
                let x = at(row, parts.gate, i / values, i % values);
                if spec.gate == RecurrentGate::SigmoidBehind { 1.0 / (1.0 + (-x).exp()) } else { silu(x) }
            };
            if spec.gate == RecurrentGate::Before {
                (0..read.len()).for_each(|i| read[i] *= gate(i));
            }
            let width = read.len() / spec.norm_groups;
            for group in read.chunks_exact_mut(width) {
                let scale = 1.0 / (group.iter().map(|x| x * x).sum::<f64>() / width as f64 + 1e-6).sqrt();
                group.iter_mut().for_each(|x| *x *= scale);
            }
            for (i, x) in read.iter().enumerate() {
                let weight = self.vectors.norm[i % self.vectors.norm.len()];
                let gate = if spec.gate == RecurrentGate::Before { 1.0 } else { gate(i) };
                out.push(x * f64::from(weight) * gate);
            }
        }
        out
    }
}

fn delta(
    interleaved: Interleaved,
    [n_heads, n_key_heads]: [usize; 2],
    key_dim: usize,
    value_dim: usize,
) -> RecurrentSpec {
    RecurrentSpec {
        n_heads,
        n_key_heads,
        key_heads: KeyHeads::Consecutive,
        key_dim,
        value_dim,
        convolution: 4,
        convolution_bias: false,
        rule: RecurrentRule::Delta,
        gate: RecurrentGate::Behind,
        norm_groups: n_heads,
        rank: None,
        interleaved,
        decay: StoredDecay::Logarithm,
    }
}

fn of_elements(heads: [usize; 2], key_dim: usize, value_dim: usize) -> RecurrentSpec {
    RecurrentSpec {
        rule: RecurrentRule::DeltaOfElements,
        gate: RecurrentGate::SigmoidBehind,
        ..delta(Interleaved::No, heads, key_dim, value_dim)
    }
}

fn add(heads: [usize; 2], key_dim: usize, value_dim: usize) -> RecurrentSpec {
    RecurrentSpec {
        convolution_bias: true,
        rule: RecurrentRule::Add { steps: [0.0, f32::INFINITY] },
        gate: RecurrentGate::Before,
        norm_groups: heads[1],
        ..delta(Interleaved::No, heads, key_dim, value_dim)
    }
}

pub(in crate::engine) fn state_cases() -> Vec<Case> {
    // Sizes that fill no vector, and one position that nothing is convolved with.
    let alone = RecurrentSpec { convolution: 1, ..delta(Interleaved::No, [2, 1], 8, 32) };
    let in_turn = RecurrentSpec { key_heads: KeyHeads::InTurn, ..delta(Interleaved::No, [6, 2], 16, 20) };
    let specs = [
        in_turn,
        delta(Interleaved::Scalars, [6, 3], 16, 20),
        delta(Interleaved::No, [4, 2], 32, 32),
        delta(Interleaved::Yes, [6, 3], 16, 20),
        delta(Interleaved::No, [1, 1], 7, 5),
        add([4, 2], 32, 16),
        add([3, 1], 9, 24),
        of_elements([4, 4], 16, 16),
        of_elements([4, 2], 9, 21),
        alone,
    ];
    specs.map(|spec| Case::new(spec, 41)).into()
}

/// Of some rows, each with enough for several threads.
pub(in crate::engine) fn large_state_cases() -> [Case; 2] {
    [delta(Interleaved::No, [32, 8], 128, 128), add([32, 8], 128, 128)].map(|spec| Case::new(spec, 5))
}
