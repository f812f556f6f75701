//! How does a row change its sequence's state, and what does it read? Convolution, recurrence, norm.
//!
//! A layer's state of a sequence lies in one piece: the heads' matrices, as kernels take them, then the inputs that later
//! rows are convolved with. Rows are prepared and finished side by side, of a row alone its parts; states go through them tile by
//! tile.

use std::ops::Range;
use std::sync::atomic::AtomicBool;

use super::kernels::{Cells, Place, Recurrence};
use super::lines::Lines;
use super::{Buffer, Cpu, LEAST_ELEMENTS};
use crate::arch::{Activation, MOST_CONVOLVED, RecurrentGate, RecurrentRule, RecurrentSpec, RopeLayout};
use crate::engine::backend::{Recur, Run, StatePart};
use crate::error::{Error, ErrorKind, Result};
use crate::math;

/// States of one layer.
pub(crate) struct States {
    len: usize,
    /// By number; none where one has no memory.
    list: Vec<Option<Lines<f32>>>,
}

/// Working memory, which grows with its first uses.
#[derive(Default)]
pub(super) struct Scratch {
    rows: Vec<f32>,
    read: Vec<f32>,
    left: Vec<f32>,
    places: Vec<Place>,
    taken: Vec<AtomicBool>,
}

fn absent() -> Error {
    Error::new(ErrorKind::Internal, "a state has no memory")
}

impl States {
    pub(super) fn new(spec: &RecurrentSpec) -> Self {
        Self { len: spec.state_len(), list: Vec::new() }
    }

    pub(super) fn add(&mut self, number: u32) -> Result<()> {
        let number = number as usize;
        let missing = (number + 1).saturating_sub(self.list.len());
        let state = self.list.try_reserve(missing).and_then(|()| Lines::new(self.len)).map_err(|e| {
            Error::new(ErrorKind::OutOfMemory, "cannot reserve a layer's state of a sequence")
                .with_hint("close sessions")
                .with_source(e)
        })?;
        self.list.resize_with(self.list.len() + missing, || None);
        self.list[number] = Some(state);
        Ok(())
    }

    pub(super) fn release(&mut self, number: u32) {
        if let Some(state) = self.list.get_mut(number as usize) {
            *state = None;
        }
    }

    fn get(&self, number: u32) -> Result<&[f32]> {
        self.list.get(number as usize).and_then(Option::as_deref).ok_or_else(absent)
    }

    pub(super) fn read(&self, number: u32, out: &mut Vec<u8>) -> Result<()> {
        out.extend(self.get(number)?.iter().flat_map(|x| x.to_le_bytes()));
        Ok(())
    }

    pub(super) fn write(&mut self, number: u32, from: &[u8]) -> Result<()> {
        let state = self.list.get_mut(number as usize).and_then(Option::as_mut);
        let numbers = from.as_chunks().0;
        let state = state.filter(|state| state.len() == numbers.len()).ok_or_else(absent)?;
        state.iter_mut().zip(numbers).for_each(|(to, from)| *to = f32::from_le_bytes(*from));
        Ok(())
    }
}

/// What is convolved of a row: consecutive channels, from a place of a product on.
struct Piece {
    part: StatePart,
    /// Where they are among all channels.
    channel: usize,
    /// Of each key head's part, so many.
    width: usize,
}

/// A step's rows before their states.
struct Rows<'a> {
    op: &'a Recur<'a, Cpu>,
    pieces: [Piece; 3],
    /// Where inputs of earlier rows begin in a state.
    behind: usize,
    states: &'a States,
}

/// See [`Backend::recur`](crate::engine::backend::Backend::recur).
pub(super) fn recur(
    cpu: &Cpu,
    scratch: &mut Scratch,
    op: &Recur<'_, Cpu>,
    states: &mut States,
    out: &mut Buffer,
) -> Result<()> {
    let (spec, vectors) = (op.spec, op.vectors);
    let n_rows = op.runs.last().map_or(0, |run| run.rows.end);
    let (channels, heads) = (spec.channels(), spec.n_heads);
    let (width, out_width) = (channels + 2 * heads, spec.value_width());
    let of_elements = spec.rule == RecurrentRule::DeltaOfElements;
    let left_width = if of_elements { spec.steps() } else { 0 };
    let Scratch { rows: prepared, read, left, places, taken } = scratch;
    reserve(prepared, n_rows.checked_mul(width))?;
    reserve(read, n_rows.checked_mul(out_width))?;
    reserve(left, n_rows.checked_mul(left_width))?;
    let left = &mut left[..n_rows * left_width];
    let (prepared, read) = (&mut prepared[..n_rows * width], &mut read[..n_rows * out_width]);

    let behind = states.len - channels * (spec.convolution - 1);
    let of_group = heads / spec.n_key_heads;
    let piece = |part, channel, width| Piece { part, channel, width };
    let pieces = [
        piece(op.parts.query, 0, spec.key_dim),
        piece(op.parts.key, spec.key_width(), spec.key_dim),
        piece(op.parts.value, 2 * spec.key_width(), of_group * spec.value_dim),
    ];
    let rows = Rows { op, pieces, behind, states };
    // Whatever is amiss is told before anything is written.
    op.runs.iter().filter_map(|run| run.from).try_for_each(|from| states.get(from).map(drop))?;
    // The last one has what is behind the channels.
    let own = channels / parts(spec, n_rows, cpu.pool.threads());
    let columns = if own < channels { own } else { width };
    let across = width.div_ceil(columns);
    let cells = Cells::new(prepared, width, columns, taken);
    cpu.pool.run(n_rows * across, LEAST_ELEMENTS.div_ceil(4 * columns), &|cells_of, _| {
        for at in cells_of {
            let (row, first) = (at / across, at % across * columns);
            let Some(mut cell) = cells.take(row..row + 1, at % across) else { continue };
            let (convolved, scalars) = cell.row(0).split_at_mut(columns.min(channels - first));
            rows.convolve(cpu, row, first, convolved);
            if spec.rule.replaces() {
                let heads = convolved.chunks_exact_mut(spec.key_dim);
                for (head, channel) in heads.zip((first..2 * spec.key_width()).step_by(spec.key_dim)) {
                    let is_query = channel < spec.key_width();
                    cpu.kernels.unit(head, if is_query { (spec.key_dim as f32).sqrt().recip() } else { 1.0 });
                }
            }
            if !scalars.is_empty() {
                rows.scalars(row, scalars);
            }
        }
    });
    if of_elements {
        let dim = spec.key_dim;
        cpu.pool.rows(left, dim, LEAST_ELEMENTS.div_ceil(4 * dim), |at, left, _| {
            rows.decays(cpu, at / heads, at % heads, left);
        });
    }
    let Rows { pieces, .. } = rows;
    rows_behind(cpu, op, &pieces, [behind, own], (states, &mut *taken))?;

    let recurrence = Recurrence {
        n_heads: heads,
        n_key_heads: spec.n_key_heads,
        key_heads: spec.key_heads,
        key_dim: spec.key_dim,
        value_dim: spec.value_dim,
        replaces: spec.rule.replaces(),
        rows: prepared,
        left: of_elements.then_some(&*left),
        skip: vectors.skip.as_deref(),
        out: read,
    };
    cpu.kernels.recur(&cpu.pool, recurrence, &mut states.list, op.runs, places)?;

    out.width = out_width;
    let norm = out_width / spec.norm_groups;
    let gates = piece(op.parts.gate, 0, of_group * spec.value_dim);
    let out = out.rows_mut(n_rows);
    if spec.gate != RecurrentGate::Before {
        cpu.pool.rows(read, norm, LEAST_ELEMENTS.div_ceil(8 * norm), |_, head, _| {
            cpu.kernels.norm_rope(head, Some((&vectors.norm, op.eps)), RopeLayout::Halves, &[], &[]);
        });
    }
    let read = &*read;
    // What has its gates together, and is normed together behind them.
    let together = if spec.gate == RecurrentGate::Before { norm } else { gates.width };
    let unit = [gates.width.max(together), out_width].into_iter();
    let unit = unit.filter(|unit| unit.is_multiple_of(gates.width) && unit.is_multiple_of(together));
    let unit = unit.min().unwrap_or(out_width);
    let units = out_width / unit;
    cpu.pool.rows(out, unit, LEAST_ELEMENTS.div_ceil(8 * unit), |at, out, _| {
        let (row, first) = (at / units, at % units * unit);
        let product = op.products[gates.part.product].row(row);
        let read = &read[row * out_width + first..][..unit];
        for (group, (out, read)) in
            out.chunks_exact_mut(gates.width).zip(read.chunks_exact(gates.width)).enumerate()
        {
            let group = first / gates.width + group;
            let gate = &product[gates.part.first + group * gates.part.stride..][..gates.width];
            if spec.gate == RecurrentGate::SigmoidBehind {
                out.copy_from_slice(read);
                cpu.kernels.dampen(out, gate);
            } else {
                out.copy_from_slice(gate);
            }
        }
        if spec.gate != RecurrentGate::SigmoidBehind {
            cpu.kernels.gated(Activation::Silu, out, read);
        }
        if spec.gate == RecurrentGate::Before {
            for (group, weight) in out.chunks_exact_mut(norm).zip(vectors.norm[first..].chunks_exact(norm)) {
                cpu.kernels.norm_rope(group, Some((weight, op.eps)), RopeLayout::Halves, &[], &[]);
            }
        }
    });
    Ok(())
}

/// Parts of a row's channels for threads that have no row of their own: whole heads of queries and keys each, and room for what
/// is behind the channels.
fn parts(spec: &RecurrentSpec, n_rows: usize, threads: usize) -> usize {
    if n_rows >= threads {
        return 1;
    }
    let channels = spec.channels();
    let fits = |n: &usize| channels.is_multiple_of(n * spec.key_dim) && 2 * spec.n_heads <= channels / n;
    (2..=2 * threads).rev().find(fits).unwrap_or(1)
}

/// Grows to `len` elements; shorter steps keep the memory of longer ones.
fn reserve(scratch: &mut Vec<f32>, len: Option<usize>) -> Result<()> {
    let more = len.unwrap_or(usize::MAX).saturating_sub(scratch.len());
    scratch.try_reserve_exact(more).map_err(|e| {
        Error::new(ErrorKind::OutOfMemory, "cannot reserve memory for rows before their states")
            .with_hint("use a smaller prefill chunk")
            .with_source(e)
    })?;
    scratch.resize(scratch.len() + more, 0.0);
    Ok(())
}

impl Piece {
    /// Its channels in runs that lie together: where among all channels, where in a product's row, how many.
    fn runs(&self, spec: &RecurrentSpec) -> impl Iterator<Item = (usize, usize, usize)> {
        let Self { part: StatePart { first, stride, .. }, channel, width } = *self;
        let together = stride == width;
        let (n, width) = if together { (1, width * spec.n_key_heads) } else { (spec.n_key_heads, width) };
        (0..n).map(move |group| (channel + group * width, first + group * stride, width))
    }
}

impl Rows<'_> {
    fn run(&self, row: usize) -> Option<&Run> {
        let at = self.op.runs.partition_point(|run| run.rows.end <= row);
        self.op.runs.get(at)
    }

    /// Queries, keys and values of a row, convolved with those before it: channels from `first` on.
    fn convolve(&self, cpu: &Cpu, row: usize, first: usize, out: &mut [f32]) {
        let Some(run) = self.run(row) else { return };
        let (spec, vectors) = (self.op.spec, self.op.vectors);
        let (channels, before) = (spec.channels(), spec.convolution - 1);
        let earlier = run.from.and_then(|from| self.states.get(from).ok()).map(|state| &state[self.behind..]);
        let bias = vectors.convolution_bias.as_deref();
        for piece in &self.pieces {
            let product = &self.op.products[piece.part.product];
            for (channel, at, width) in piece.runs(spec) {
                let Some((channel, at, width)) = within(first..first + out.len(), (channel, at, width))
                else {
                    continue;
                };
                let out = &mut out[channel - first..][..width];
                let mut taps: [&[f32]; MOST_CONVOLVED] = [&[]; MOST_CONVOLVED];
                // Where the sequence begins, there is nothing before.
                let (mut n, mut skipped) = (0, 0);
                for tap in 0..=before {
                    let back = before - tap;
                    let x = match (row - run.rows.start).checked_sub(back) {
                        Some(_) => &product.row(row - back)[at..],
                        None => {
                            let Some(earlier) = earlier else {
                                skipped = tap + 1;
                                continue;
                            };
                            &earlier[(tap + row - run.rows.start) * channels + channel..]
                        }
                    };
                    taps[n] = &x[..width];
                    n += 1;
                }
                let weights = &vectors.convolution[skipped * channels + channel..];
                let bias = bias.map(|bias| &bias[channel..][..width]);
                cpu.kernels.convolve(&taps[..n], weights, channels, bias, out);
            }
        }
    }

    /// What is left of each head's state, then what share of a value is taken up.
    fn scalars(&self, row: usize, out: &mut [f32]) {
        let Recur { spec, parts, vectors, products, .. } = self.op;
        let (left, shares) = out.split_at_mut(spec.n_heads);
        let of_group = spec.n_heads / spec.n_key_heads;
        let of = |part: StatePart, head: usize| {
            products[part.product].row(row)[part.first + head / of_group * part.stride + head % of_group]
        };
        for (head, (left, share)) in left.iter_mut().zip(shares).enumerate() {
            if spec.rule == RecurrentRule::DeltaOfElements {
                *share = parts.share.map_or(0.0, |part| math::sigmoid(of(part, head)));
                continue;
            }
            let step = softplus(of(parts.step, head) + vectors.step_bias[head]);
            let step = match spec.rule {
                RecurrentRule::Delta | RecurrentRule::DeltaOfElements => step,
                RecurrentRule::Add { steps: [least, most] } => step.max(least).min(most),
            };
            *left = math::exp_f32(-vectors.decay[head] * step);
            *share = parts.share.map_or(step, |part| math::sigmoid(of(part, head)));
        }
    }

    /// What is left of a head's state, by element of its key.
    fn decays(&self, cpu: &Cpu, row: usize, head: usize, left: &mut [f32]) {
        let Recur { spec, parts, vectors, products, .. } = self.op;
        let (of_group, n) = (spec.n_heads / spec.n_key_heads, left.len());
        let first = parts.step.first + head / of_group * parts.step.stride + head % of_group * n;
        let steps = &products[parts.step.product].row(row)[first..][..n];
        let biases = &vectors.step_bias[head * n..][..n];
        left.copy_from_slice(steps);
        cpu.kernels.decay(left, biases, vectors.decay[head]);
    }
}

/// What of a run of channels, and of its place in a product's row, is among some.
fn within(some: Range<usize>, (channel, at, width): (usize, usize, usize)) -> Option<(usize, usize, usize)> {
    let (from, to) = (channel.max(some.start), (channel + width).min(some.end));
    (from < to).then(|| (from, at + from - channel, to - from))
}

/// Keeps the last inputs of each run, and those of its mark, for rows that come later; so many channels at a time.
fn rows_behind(
    cpu: &Cpu,
    op: &Recur<'_, Cpu>,
    pieces: &[Piece; 3],
    [behind, own]: [usize; 2],
    (states, taken): (&mut States, &mut Vec<AtomicBool>),
) -> Result<()> {
    let (spec, before) = (op.spec, op.spec.convolution - 1);
    let channels = spec.channels();
    for run in op.runs {
        let ends = [Some((run.rows.len(), run.to)), run.mark];
        for (rows, number) in ends.into_iter().flatten() {
            // Taken out, as another state is read meanwhile.
            let place = states.list.get_mut(number as usize).ok_or_else(absent)?;
            let mut state = place.take().ok_or_else(absent)?;
            let earlier = run.from.and_then(|from| states.get(from).ok()).map(|state| &state[behind..]);
            let cells = Cells::new(&mut state[behind..], channels, own, taken);
            let keep = |at: usize, first: usize, to: &mut [f32]| match (rows + at).checked_sub(before) {
                Some(row) => {
                    for piece in pieces {
                        let product = op.products[piece.part.product].row(run.rows.start + row);
                        let some = first..first + to.len();
                        for (channel, from, width) in
                            piece.runs(spec).filter_map(|all| within(some.clone(), all))
                        {
                            to[channel - first..][..width].copy_from_slice(&product[from..][..width]);
                        }
                    }
                }
                None => match earlier {
                    Some(earlier) => {
                        let from = (rows + at) * channels + first;
                        to.copy_from_slice(&earlier[from..from + to.len()]);
                    }
                    None => to.fill(0.0),
                },
            };
            let least = LEAST_ELEMENTS.div_ceil(4 * own * before.max(1));
            cpu.pool.run(channels / own, least, &|columns, _| {
                for column in columns {
                    let Some(mut cell) = cells.take(0..before, column) else { continue };
                    (0..before).for_each(|at| keep(at, column * own, cell.row(at)));
                }
            });
            states.list[number as usize] = Some(state);
        }
    }
    Ok(())
}

/// `ln(1 + e^x)`; beyond 20 that is `x`.
fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { math::ln(1.0 + math::exp(f64::from(x))) as f32 }
}

#[cfg(test)]
mod tests;
