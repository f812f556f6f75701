//! What does a device keep of a sequence instead of keys and values, and how do a step's rows change it?
//!
//! Inputs of all rows are taken out of the step's products at once. Sequences with as many rows go on together, each with its
//! own state; gates and norms are of all rows again. States are replaced when all of that has succeeded, never written to:
//! several numbers may share one.

use candle_core::{DType, Device, Result as CandleResult, Tensor};
use candle_nn::ops;

use super::recurrence::Rows;
use super::{Buffer, Tensors, failed};
use crate::arch::{KeyHeads, RecurrentGate, RecurrentRule, RecurrentSpec};
use crate::engine::backend::{Recur, Run, StatePart};
use crate::error::{Error, ErrorKind, Result};

/// Added to the square of a key's length before it is divided by its root.
const UNIT_EPS: f64 = 1e-6;

/// States of one layer.
pub(crate) struct States {
    spec: RecurrentSpec,
    /// By number; none where one has no memory.
    list: Vec<Option<State>>,
    /// By the delta rule: what norms make queries and keys of their lengths, and ones on the diagonal of a key's square.
    delta: Option<[Tensor; 3]>,
    /// Weights of a norm that has none of its own: what is read is normed in groups, and weighted after.
    ones: Tensor,
}

/// A sequence's state.
#[derive(Clone)]
struct State {
    /// `[key head, head of it, key dim, value dim]`.
    heads: Tensor,
    /// Inputs of earlier rows, `[row, channel]`; none where channels are convolved with no other row.
    before: Option<Tensor>,
}

fn absent() -> Error {
    Error::new(ErrorKind::Internal, "a state has no memory")
}

impl States {
    pub(super) fn new(device: &Device, spec: &RecurrentSpec) -> Result<Self> {
        let filled = |with: f64, n: usize| Tensor::full(with as f32, n, device);
        let delta = || {
            let (n, length) = (spec.key_dim, (spec.key_dim as f64).sqrt().recip());
            let unit = Tensor::eye(n, DType::F32, device)?.unsqueeze(0)?;
            Ok([filled(length * length, n)?, filled(length, n)?, unit])
        };
        let delta = spec.rule.replaces().then(delta).transpose().map_err(failed)?;
        let ones = filled(1.0, spec.value_width() / spec.norm_groups).map_err(failed)?;
        Ok(Self { spec: spec.clone(), list: Vec::new(), delta, ones })
    }

    pub(super) fn add(&mut self, device: &Device, number: u32) -> Result<()> {
        let number = number as usize;
        let heads = Tensor::zeros(of_heads(&self.spec), DType::F32, device).map_err(failed)?;
        let before = self.before().map(|shape| Tensor::zeros(shape, DType::F32, device)).transpose();
        let state = State { heads, before: before.map_err(failed)? };
        self.list.resize_with(self.list.len().max(number + 1), || None);
        self.list[number] = Some(state);
        Ok(())
    }

    pub(super) fn release(&mut self, number: u32) {
        if let Some(state) = self.list.get_mut(number as usize) {
            *state = None;
        }
    }

    fn get(&self, number: u32) -> Result<&State> {
        self.list.get(number as usize).and_then(Option::as_ref).ok_or_else(absent)
    }

    /// The shape of what a state has of earlier rows.
    fn before(&self) -> Option<(usize, usize)> {
        let before = self.spec.convolution - 1;
        (before > 0).then(|| (before, self.spec.channels()))
    }

    /// Adds a state's numbers to `out`: heads, then earlier rows, and zeros where other engines' fill heads up.
    pub(super) fn read(&self, number: u32, out: &mut Vec<u8>) -> Result<()> {
        let (state, end) = (self.get(number)?, out.len() + self.spec.state_len() * size_of::<f32>());
        for part in [Some(&state.heads), state.before.as_ref()].into_iter().flatten() {
            let numbers = part.flatten_all().and_then(|all| all.to_vec1::<f32>()).map_err(failed)?;
            out.extend(numbers.into_iter().flat_map(f32::to_le_bytes));
        }
        out.resize(end, 0);
        Ok(())
    }

    /// Lets a state be what was read of another one.
    pub(super) fn write(&mut self, device: &Device, number: u32, from: &[u8]) -> Result<()> {
        let (shape, before) = (of_heads(&self.spec), self.before());
        let len = self.spec.n_heads * self.spec.key_dim * self.spec.value_dim * size_of::<f32>();
        self.get(number)?;
        if from.len() as u64 != self.spec.state_bytes() {
            return Err(absent());
        }
        let (heads, behind) = from.split_at(len);
        let read = |bytes: &[u8], dims: &[usize]| Tensor::from_raw_buffer(bytes, DType::F32, dims, device);
        let (a, b, c, d) = shape;
        let heads = read(heads, &[a, b, c, d]).map_err(failed)?;
        let of_before = |(rows, channels): (usize, usize)| {
            read(&behind[..rows * channels * size_of::<f32>()], &[rows, channels])
        };
        let before = before.map(of_before).transpose();
        self.list[number as usize] = Some(State { heads, before: before.map_err(failed)? });
        Ok(())
    }
}

fn of_heads(spec: &RecurrentSpec) -> (usize, usize, usize, usize) {
    (spec.n_key_heads, spec.n_heads / spec.n_key_heads, spec.key_dim, spec.value_dim)
}

/// See [`Backend::recur`](crate::engine::backend::Backend::recur).
pub(super) fn recur(
    tensors: &Tensors,
    op: &Recur<'_, Tensors>,
    states: &mut States,
    out: &mut Buffer,
) -> Result<()> {
    Run::check(op.runs)?;
    for run in op.runs {
        run.from.into_iter().chain(run.written()).try_for_each(|number| states.get(number).map(drop))?;
    }
    let rows = op.runs.last().map_or(0, |run| run.rows.end);
    let (read, changed) = go(tensors, op, states, rows).map_err(failed)?;
    out.put(gated(op, states, &read))?;
    for (number, state) in changed {
        states.list[number as usize] = Some(state);
    }
    Ok(())
}

/// What all rows read, `[row, value width]`, and the states behind them.
fn go(
    tensors: &Tensors,
    op: &Recur<'_, Tensors>,
    states: &States,
    rows: usize,
) -> CandleResult<(Tensor, Vec<(u32, State)>)> {
    let inputs = Inputs::of(op, rows)?;
    let (mut read, mut changed) = (vec![None; op.runs.len()], Vec::new());
    for first in 0..op.runs.len() {
        if read[first].is_some() {
            continue;
        }
        let kind = |run: &Run| (run.rows.len(), run.mark.map(|(rows, _)| rows));
        let alike: Vec<usize> =
            (first..op.runs.len()).filter(|at| kind(&op.runs[*at]) == kind(&op.runs[first])).collect();
        let runs: Vec<&Run> = alike.iter().map(|at| &op.runs[*at]).collect();
        let together = Together { tensors, op, states, runs: &runs };
        let own = together.go(&inputs, &mut changed)?;
        for (at, sequence) in alike.into_iter().enumerate() {
            read[sequence] = Some(own.narrow(0, at, 1)?.squeeze(0)?);
        }
    }
    let read: Vec<Tensor> = read.into_iter().flatten().collect();
    Ok((Tensor::cat(&read, 0)?, changed))
}

/// What a step's rows bring.
struct Inputs {
    /// Queries, keys and values, `[row, channel]`.
    channels: Tensor,
    /// The logarithm of what is left of states, `[row, head, 1 or key dim]`.
    left: Tensor,
    /// What share of values is taken up, `[row, head]`.
    share: Tensor,
}

impl Inputs {
    fn of(op: &Recur<'_, Tensors>, rows: usize) -> CandleResult<Self> {
        let Recur { spec, parts, vectors, .. } = op;
        let of_group = spec.n_heads / spec.n_key_heads;
        let of_head = spec.steps() / spec.n_heads;
        let pieces = [
            part(op, parts.query, spec.key_dim, rows)?,
            part(op, parts.key, spec.key_dim, rows)?,
            part(op, parts.value, of_group * spec.value_dim, rows)?,
        ];
        let step = part(op, parts.step, of_group * of_head, rows)?.broadcast_add(&vectors.step_bias)?;
        let mut step = softplus(&step)?.reshape((rows, spec.n_heads, of_head))?;
        if let RecurrentRule::Add { steps: [least, most] } = spec.rule {
            step = step.clamp(least, most)?;
        }
        let decay = vectors.decay.reshape((spec.n_heads, 1))?.neg()?;
        let share = match parts.share {
            Some(share) => ops::sigmoid(&part(op, share, of_group, rows)?)?,
            None => step.reshape((rows, spec.n_heads))?,
        };
        let left = step.broadcast_mul(&decay)?;
        Ok(Self { channels: Tensor::cat(&pieces, 1)?, left, share })
    }
}

/// A part of the rows' products, `[row, key heads · width]`.
fn part(op: &Recur<'_, Tensors>, part: StatePart, width: usize, rows: usize) -> CandleResult<Tensor> {
    let (product, heads) = (op.products[part.product].rows(0, rows)?, op.spec.n_key_heads);
    if part.stride == width {
        return product.narrow(1, part.first, heads * width)?.contiguous();
    }
    let by_head = product.narrow(1, 0, heads * part.stride)?.reshape((rows, heads, part.stride))?;
    by_head.narrow(2, part.first, width)?.reshape((rows, heads * width))
}

/// `ln(1 + e^x)`. The sum's rounding is taken back, as steps may be far below it.
fn softplus(x: &Tensor) -> CandleResult<Tensor> {
    let small = x.abs()?.neg()?.exp()?;
    let sum = (&small + 1.0)?;
    let lost = ((small - (&sum - 1.0)?)? / &sum)?;
    x.relu()? + (sum.log()? + lost)?
}

/// Sequences of a step with as many rows.
struct Together<'a> {
    tensors: &'a Tensors,
    op: &'a Recur<'a, Tensors>,
    states: &'a States,
    runs: &'a [&'a Run],
}

impl Together<'_> {
    /// What their rows read, `[sequence, row, value width]`; the states behind them are added to `changed`.
    fn go(&self, inputs: &Inputs, changed: &mut Vec<(u32, State)>) -> CandleResult<Tensor> {
        let (spec, n, n_runs) = (self.op.spec, self.runs[0].rows.len(), self.runs.len());
        let (key_heads, of_head, key, value) = of_heads(spec);
        let window = self.window(&inputs.channels)?;
        let convolved = self.convolved(&window, n)?;
        let keys_of = |at: usize| {
            let heads = convolved.narrow(2, at * spec.key_width(), spec.key_width())?;
            let heads = heads.reshape((n_runs, n, key_heads, key))?;
            match &self.states.delta {
                Some(lengths) => ops::rms_norm(&heads, &lengths[at], (UNIT_EPS / key as f64) as f32),
                None => Ok(heads),
            }
        };
        let values = convolved.narrow(2, 2 * spec.key_width(), spec.value_width())?.contiguous()?;
        let rows = Rows {
            query: keys_of(0)?,
            key: keys_of(1)?,
            value: self.by_key_head(&values, value)?,
            left: self.by_key_head(&self.pick(&inputs.left)?, spec.steps() / spec.n_heads)?,
            share: self.by_key_head(&self.pick(&inputs.share)?, 1)?.squeeze(4)?,
            unit: self.states.delta.as_ref().map(|[_, _, unit]| unit.clone()),
        };
        let mark = self.runs[0].mark.map(|(rows, _)| rows);
        let (read, marked, last) = rows.recur(&self.tensors.triangles, self.heads()?, mark)?;
        for (at, run) in self.runs.iter().enumerate() {
            let behind = |rows: usize, heads: &Tensor| {
                let own = heads.narrow(0, at, 1)?.squeeze(0)?;
                // A part of all would keep all in memory.
                let heads = if n_runs == 1 { own } else { own.force_contiguous()? };
                let before = self.states.before().map(|(before, _)| {
                    window.narrow(0, at, 1)?.squeeze(0)?.narrow(0, rows, before)?.force_contiguous()
                });
                Ok::<_, candle_core::Error>(State { heads, before: before.transpose()? })
            };
            if let (Some((rows, number)), Some(marked)) = (run.mark, &marked) {
                changed.push((number, behind(rows, marked)?));
            }
            changed.push((run.to, behind(n, &last)?));
        }
        let read = match spec.key_heads {
            KeyHeads::Consecutive => read,
            KeyHeads::InTurn => read.transpose(2, 3)?,
        };
        let mut read = read.reshape((n_runs, n, key_heads * of_head, value))?;
        if let Some(skip) = &self.op.vectors.skip {
            let values = values.reshape(read.shape())?;
            read = (read + values.broadcast_mul(&skip.reshape((spec.n_heads, 1))?)?)?;
        }
        read.reshape((n_runs, n, spec.value_width()))
    }

    /// These sequences' rows of all, `[sequence, row, ..]`.
    fn pick(&self, x: &Tensor) -> CandleResult<Tensor> {
        let n = self.runs[0].rows.len();
        let follow = self.runs.is_sorted_by(|a, b| a.rows.end == b.rows.start);
        let picked = match follow {
            true => x.narrow(0, self.runs[0].rows.start, n * self.runs.len())?,
            false => {
                let own = self.runs.iter().map(|run| x.narrow(0, run.rows.start, n));
                Tensor::cat(&own.collect::<CandleResult<Vec<_>>>()?, 0)?
            }
        };
        let dims = [&[self.runs.len(), n], &x.dims()[1..]].concat();
        picked.reshape(dims)
    }

    /// What there is of each head as `[sequence, row, key head, head of it, own]`.
    fn by_key_head(&self, x: &Tensor, own: usize) -> CandleResult<Tensor> {
        let (key_heads, of_head, ..) = of_heads(self.op.spec);
        let (runs, n) = (x.dim(0)?, x.dim(1)?);
        match self.op.spec.key_heads {
            KeyHeads::Consecutive => x.reshape((runs, n, key_heads, of_head, own)),
            KeyHeads::InTurn => x.reshape((runs, n, of_head, key_heads, own))?.transpose(2, 3),
        }
    }

    /// The states before the rows, `[sequence, key head, head of it, key dim, value dim]`.
    fn heads(&self) -> CandleResult<Tensor> {
        self.earlier(of_heads(self.op.spec).into(), |state| Some(&state.heads))
    }

    /// Inputs of the rows and of those before them, `[sequence, row, channel]`.
    fn window(&self, channels: &Tensor) -> CandleResult<Tensor> {
        let own = self.pick(channels)?;
        match self.states.before() {
            None => Ok(own),
            Some(shape) => {
                let before = self.earlier(shape.into(), |state| state.before.as_ref())?;
                Tensor::cat(&[before, own], 1)
            }
        }
    }

    /// A part of each sequence's state, zeros where it begins.
    fn earlier(
        &self,
        shape: candle_core::Shape,
        of: impl Fn(&State) -> Option<&Tensor>,
    ) -> CandleResult<Tensor> {
        let of_run = |run: &&Run| match run.from.and_then(|from| of(self.states.get(from).ok()?)) {
            Some(part) => part.unsqueeze(0),
            None => Tensor::zeros(&shape, DType::F32, &self.tensors.device)?.unsqueeze(0),
        };
        let parts = self.runs.iter().map(of_run).collect::<CandleResult<Vec<_>>>()?;
        Tensor::cat(&parts, 0)
    }

    /// Queries, keys and values of `n` rows, convolved with those before them.
    fn convolved(&self, window: &Tensor, n: usize) -> CandleResult<Tensor> {
        let (spec, vectors) = (self.op.spec, self.op.vectors);
        let weights = vectors.convolution.reshape((spec.convolution, spec.channels()))?;
        let mut sum = if n == 1 {
            window.broadcast_mul(&weights)?.sum_keepdim(1)?
        } else {
            let tap = |tap: usize| window.narrow(1, tap, n)?.broadcast_mul(&weights.narrow(0, tap, 1)?);
            (1..spec.convolution).try_fold(tap(0)?, |sum, at| sum + tap(at)?)?
        };
        if let Some(bias) = &vectors.convolution_bias {
            sum = sum.broadcast_add(bias)?;
        }
        sum.silu()
    }
}

/// What rows read, gated and normed, `[row, value width]`.
fn gated(op: &Recur<'_, Tensors>, states: &States, read: &Tensor) -> CandleResult<Tensor> {
    let spec = op.spec;
    let (rows, width) = read.dims2()?;
    let gate = part(op, op.parts.gate, spec.n_heads / spec.n_key_heads * spec.value_dim, rows)?;
    let groups = |x: &Tensor| x.reshape((rows, spec.norm_groups, width / spec.norm_groups));
    let normed = |weight: &Tensor| ops::rms_norm(&groups(read)?, weight, op.eps)?.reshape((rows, width));
    match spec.gate {
        RecurrentGate::Behind => normed(&op.vectors.norm)? * gate.silu()?,
        RecurrentGate::SigmoidBehind => normed(&op.vectors.norm)? * ops::sigmoid(&gate)?,
        RecurrentGate::Before => {
            let read = ops::rms_norm(&groups(&(read * gate.silu()?)?)?, &states.ones, op.eps)?;
            read.reshape((rows, width))?.broadcast_mul(&op.vectors.norm)
        }
    }
}
