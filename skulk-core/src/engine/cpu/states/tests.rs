//! Do rows change and read states as the formulas say, in the same bits however they are computed?

use super::super::kernels::Kernels;
use super::*;
use crate::arch::{Interleaved, KeyHeads, StoredDecay};
use crate::engine::Precision;
use crate::engine::backend::{Backend, StateParts, StateVectors};
use crate::engine::conformance::Numbers;

/// Rows of one sequence, and how they change its state.
struct Case {
    spec: RecurrentSpec,
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
    fn run(&self, cpu: &Cpu, steps: &[usize], from_marks: bool) -> Vec<f32> {
        let mut states = States::new(&self.spec);
        (0..4).for_each(|number| states.add(number).unwrap());
        let (mut found, mut at, mut from, mut scratch) = (Vec::new(), 0, None, Scratch::default());
        let mut steps = steps.iter().copied().cycle();
        while at < self.rows {
            let n = steps.next().unwrap().min(self.rows - at);
            let buffer = |which: usize| {
                let width = self.widths[which];
                let data = self.products[which][at * width..(at + n) * width].to_vec();
                Buffer { data, width }
            };
            let products = [buffer(0), buffer(1)];
            let (to, mark) = (from.map_or(0, |from| (from + 1) % 2), (n > 2).then_some((n - 1, 3)));
            let op = Recur {
                spec: &self.spec,
                eps: 1e-6,
                products: &products,
                parts: &parts(&self.spec),
                vectors: &self.vectors,
                runs: &[Run { rows: 0..n, from, to, mark }],
            };
            let mut out = cpu.buffer(n, self.spec.value_width()).unwrap();
            recur(cpu, &mut scratch, &op, &mut states, &mut out).unwrap();
            let kept = match mark {
                Some((rows, _)) if from_marks => {
                    let mut bytes = Vec::new();
                    states.read(3, &mut bytes).unwrap();
                    states.write(to, &bytes).unwrap();
                    rows
                }
                _ => n,
            };
            found.extend_from_slice(out.rows(kept));
            (at, from) = (at + kept, Some(to));
        }
        found
    }

    /// What the formulas say, in double precision.
    fn expected(&self) -> Vec<f64> {
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
            for back in (0..spec.convolution).filter(|back| *back <= row) {
                let tap = spec.convolution - 1 - back;
                let weight = self.vectors.convolution[tap * spec.channels() + channel];
                sum += f64::from(weight) * at(row - back, part, group, i);
            }
            silu(sum)
        };
        let (keys, values) = (spec.key_width(), of_group * spec.value_dim);
        let mut state = vec![0.0; spec.n_heads * spec.key_dim * spec.value_dim];
        let mut out = Vec::new();
        for row in 0..self.rows {
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

fn cases() -> Vec<Case> {
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

#[test]
fn states_are_changed_and_read_as_the_formulas_say() {
    let cpu = Cpu::new(2, Precision::Fast).unwrap();
    for case in cases() {
        let (found, expected) = (case.run(&cpu, &[41], false), case.expected());
        let largest = expected.iter().fold(0.0f64, |a, x| a.max(x.abs()));
        assert_eq!(found.len(), expected.len());
        for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let off = (f64::from(*found) - expected).abs();
            assert!(off <= 2e-5 * largest, "{:?}: {i} is {found}, not {expected}", case.spec);
        }
    }
}

#[test]
fn steps_threads_and_instruction_sets_give_the_same_bits() {
    for case in cases() {
        let expected = case.run(&Cpu::new(1, Precision::Fast).unwrap(), &[41], false);
        for kernels in Kernels::all() {
            let cpu = Cpu::with_kernels(kernels, 3, Precision::Fast).unwrap();
            for (steps, from_marks) in
                [(&[41][..], false), (&[1], false), (&[3, 1, 16], false), (&[7, 2], true)]
            {
                let found = case.run(&cpu, steps, from_marks);
                let same = found.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits());
                assert!(same && found.len() == expected.len(), "{} {:?} {steps:?}", kernels.name, case.spec);
            }
        }
    }
}

/// Sequences that would write what others read are refused, not computed.
#[test]
fn states_are_nobody_elses() {
    let (cpu, case) =
        (Cpu::new(1, Precision::Fast).unwrap(), Case::new(delta(Interleaved::No, [1, 1], 8, 16), 2));
    let (mut states, mut scratch) = (States::new(&case.spec), Scratch::default());
    (0..3).for_each(|number| states.add(number).unwrap());
    let products = [0, 1].map(|i| Buffer { data: case.products[i].clone(), width: case.widths[i] });
    let run = |rows: std::ops::Range<usize>, from, to| Run { rows, from, to, mark: None };
    let mut out = cpu.buffer(2, case.spec.value_width()).unwrap();
    for (runs, refused) in [
        (vec![run(0..1, None, 0), run(1..2, None, 1)], false),
        (vec![run(0..1, Some(0), 2), run(1..2, Some(0), 1)], false),
        (vec![run(0..1, None, 1), run(1..2, None, 1)], true),
        (vec![run(0..1, Some(1), 1)], true),
        (vec![run(0..1, Some(2), 1), run(1..2, Some(1), 0)], true),
        (vec![run(0..2, None, 7)], true),
    ] {
        let (parts, vectors) = (&parts(&case.spec), &case.vectors);
        let op = Recur { spec: &case.spec, eps: 1e-6, products: &products, parts, vectors, runs: &runs };
        assert_eq!(recur(&cpu, &mut scratch, &op, &mut states, &mut out).is_err(), refused, "{runs:?}");
    }
}
