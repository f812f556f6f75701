//! How does a row change its sequence's state on the device, and what does it read? All runs of a step at once.
//!
//! A layer's states lie in one buffer, which grows, state behind state: the heads' matrices in tiles of 16 values, see
//! recur.wgsl, then the inputs that later rows are convolved with.

use super::device::{Block, Device};
use super::kernels::Op;
use super::stream::{Scratch, Stream, storage};
use super::{Buffer, Gpu, params, stride};
use crate::arch::{KeyHeads, RecurrentGate, RecurrentRule, RecurrentSpec, STATES_HELD};
use crate::engine::backend::{Recur, Run, StatePart};
use crate::error::{Error, ErrorKind, Result};

/// Values of a tile of a head's state.
const TILE: usize = 16;

/// Words of a run in the table, see runs.wgsl.
const RUN_WORDS: usize = 6;

/// No state there.
const NONE: u32 = u32::MAX;

/// States of one layer.
pub(crate) struct States {
    len: usize,
    /// None before the first state.
    block: Option<Block>,
    /// States that it holds.
    room: usize,
}

fn absent() -> Error {
    Error::new(ErrorKind::Internal, "a state has no memory")
}

impl States {
    pub(super) fn new(spec: &RecurrentSpec) -> Self {
        Self { len: spec.state_len(), block: None, room: 0 }
    }

    fn bytes(&self) -> u64 {
        self.len as u64 * 4
    }

    /// Makes room for a state. Nothing that is recorded and not sent may use the buffer.
    pub(super) fn add(&mut self, device: &Device, number: u32) -> Result<()> {
        let needed = (number as usize).saturating_add(1);
        if needed <= self.room {
            return Ok(());
        }
        let reserve = |n: usize| {
            let bytes = self.bytes().saturating_mul(n as u64);
            device
                .block("the states of a layer", bytes, storage())
                .map_err(|e| e.with_hint("close sessions, or place fewer layers on this device"))
        };
        // What is there is copied each time: a sequence's at once.
        let ample = needed.next_multiple_of(STATES_HELD as usize);
        let (room, block) = match reserve(ample) {
            Ok(block) => (ample, block),
            Err(_) if ample > needed => (needed, reserve(needed)?),
            Err(error) => return Err(error),
        };
        if let Some(old) = &self.block {
            device.copy(&[(old, &block)])?;
        }
        (self.room, self.block) = (room, Some(block));
        Ok(())
    }

    /// Where the states are, if these have memory.
    fn with(&self, numbers: impl IntoIterator<Item = u32>) -> Result<&Block> {
        let has_all = numbers.into_iter().all(|number| (number as usize) < self.room);
        self.block.as_ref().filter(|_| has_all).ok_or_else(absent)
    }

    pub(super) fn read(&self, stream: &mut Stream, number: u32, out: &mut Vec<u8>) -> Result<()> {
        let at = u64::from(number) * self.bytes();
        stream.read_bytes(&[(self.with([number])?, at, self.bytes())], |all| out.extend(all))
    }

    pub(super) fn write(&self, stream: &mut Stream, number: u32, from: &[u8]) -> Result<()> {
        if from.len() as u64 != self.bytes() {
            return Err(absent());
        }
        stream.write_bytes(self.with([number])?, u64::from(number) * self.bytes(), from)
    }
}

/// What kernels look up: the runs, and the run of each row.
fn table(runs: &[Run]) -> Vec<u32> {
    let rows = runs.last().map_or(0, |run| run.rows.end);
    let mut words = Vec::with_capacity(RUN_WORDS * runs.len() + rows);
    for run in runs {
        let (mark_rows, mark) = run.mark.map_or((0, NONE), |(rows, number)| (rows as u32, number));
        let [first, n] = [run.rows.start, run.rows.len()].map(|n| n as u32);
        words.extend([first, n, run.from.unwrap_or(NONE), run.to, mark_rows, mark]);
    }
    for (at, run) in (0..).zip(runs) {
        words.extend(run.rows.clone().map(|_| at));
    }
    words
}

/// A step's states in one layer.
struct Job<'a> {
    gpu: &'a Gpu,
    op: &'a Recur<'a, Gpu>,
    table: Vec<u32>,
    rows: usize,
    states: &'a Block,
    state_len: usize,
    /// Of each row what is convolved, then what is left by time step, then shares by head.
    prepared: &'a Block,
    /// What is read of states.
    read: &'a Block,
}

/// See [`Backend::recur`](crate::engine::backend::Backend::recur).
pub(super) fn recur(
    gpu: &Gpu,
    stream: &mut Stream,
    op: &Recur<'_, Gpu>,
    states: &States,
    out: &mut Buffer,
) -> Result<()> {
    let spec = op.spec;
    Run::check(op.runs)?;
    let numbers = op.runs.iter().flat_map(|run| run.from.into_iter().chain(run.written()));
    let block = states.with(numbers)?;
    let rows = op.runs.last().map_or(0, |run| run.rows.end);
    out.width = spec.value_width();
    let width = stride(prepared_width(spec));
    let prepared = stream.scratch(Scratch::StateRows, rows * width)?;
    let read = stream.scratch(Scratch::StateRead, rows * stride(out.width))?;
    let (table, state_len) = (table(op.runs), states.len);
    let job = Job { gpu, op, table, rows, states: block, state_len, prepared: &prepared, read: &read };
    job.inputs(stream)?;
    job.steps(stream)?;
    job.recur(stream)?;
    job.outputs(stream, out)?;
    stream.weigh(4 * rows * spec.n_heads * spec.key_dim * spec.value_dim)
}

fn prepared_width(spec: &RecurrentSpec) -> usize {
    spec.channels() + spec.steps() + spec.n_heads
}

/// Threads for so many elements that are added up.
fn threads(n: usize) -> u32 {
    (n / 2).next_power_of_two().clamp(32, 256) as u32
}

impl Job<'_> {
    fn product(&self, part: StatePart) -> &Buffer {
        &self.op.products[part.product]
    }

    /// Floats of a prepared row.
    fn prepared_stride(&self) -> u32 {
        stride(prepared_width(self.op.spec)) as u32
    }

    fn of_key(&self) -> usize {
        self.op.spec.n_heads / self.op.spec.n_key_heads
    }

    /// Convolves queries, keys and values, and keeps what later rows need of them.
    fn inputs(&self, stream: &mut Stream) -> Result<()> {
        let (spec, vectors, parts) = (self.op.spec, self.op.vectors, self.op.parts);
        let bias = vectors.convolution_bias.as_ref();
        let kind = Op::state_inputs(
            [spec.key_dim, spec.value_dim, spec.n_key_heads, spec.n_heads].map(|n| n as u32),
            bias.is_some(),
            spec.rule.replaces(),
            threads(spec.key_dim.min(spec.value_dim)),
        );
        let [query, key, value] = [parts.query, parts.key, parts.value]
            .map(|part| (self.product(part), part.first as u32, part.stride as u32));
        let (words, runs) = stream.shared_table(&self.table)?;
        let params = params::StateInputs {
            query: query.1,
            query_step: query.2,
            query_stride: query.0.stride(),
            key: key.1,
            key_step: key.2,
            key_stride: key.0.stride(),
            value: value.1,
            value_step: value.2,
            value_stride: value.0.stride(),
            taps: spec.convolution as u32,
            state_len: self.state_len as u32,
            out_stride: self.prepared_stride(),
            runs,
            of_rows: runs + (RUN_WORDS * self.op.runs.len()) as u32,
        };
        let weights = [&vectors.convolution, bias.unwrap_or(&self.gpu.unread)];
        let products = [query, key, value].map(|part| &part.0.block);
        let operands = [&products[..], &weights, &[&*words, self.states, self.prepared]].concat();
        let groups = [2 * spec.n_key_heads + spec.n_heads, self.rows, 1];
        stream.dispatch(kind, &operands, params, groups)
    }

    /// Finds what is left of states, and shares.
    fn steps(&self, stream: &mut Stream) -> Result<()> {
        let (spec, vectors, parts) = (self.op.spec, self.op.vectors, self.op.parts);
        let (step, shares) = (parts.step, parts.share.unwrap_or(parts.step));
        let (from, of_shares) = (self.product(step), self.product(shares));
        let [least, most] = match spec.rule {
            RecurrentRule::Add { steps } => steps,
            RecurrentRule::Delta | RecurrentRule::DeltaOfElements => [0.0, f32::MAX],
        };
        let params = params::StateSteps {
            n_steps: spec.steps() as u32,
            of_head: (spec.steps() / spec.n_heads) as u32,
            of_key: self.of_key() as u32,
            first: spec.channels() as u32,
            out_stride: self.prepared_stride(),
            steps_stride: from.stride(),
            step: step.first as u32,
            step_step: step.stride as u32,
            shares_stride: of_shares.stride(),
            share: shares.first as u32,
            share_step: shares.stride as u32,
            // Devices need not know infinity.
            least,
            most: most.min(f32::MAX),
        };
        let operands = [&from.block, &of_shares.block, &vectors.step_bias, &vectors.decay, self.prepared];
        let groups = [spec.steps().div_ceil(64), self.rows, 1];
        stream.dispatch(Op::state_steps(parts.share.is_some()), &operands, params, groups)
    }

    /// Lets rows change states one by one, and reads what each finds.
    fn recur(&self, stream: &mut Stream) -> Result<()> {
        let (spec, skip) = (self.op.spec, self.op.vectors.skip.as_ref());
        // Sixteen elements of a key for each thread, or more where threads end.
        let parts = spec.key_dim.div_ceil(16).next_power_of_two().min(16) as u32;
        let kind = Op::recur(
            [spec.key_dim, spec.value_dim].map(|n| n as u32),
            parts,
            spec.rule.replaces(),
            spec.rule == RecurrentRule::DeltaOfElements,
            skip.is_some(),
        );
        let (words, runs) = stream.shared_table(&self.table)?;
        let params = params::Recur {
            runs,
            n_heads: spec.n_heads as u32,
            n_key_heads: spec.n_key_heads as u32,
            in_turn: (spec.key_heads == KeyHeads::InTurn).into(),
            state_len: self.state_len as u32,
            row_stride: self.prepared_stride(),
            shares: (spec.channels() + spec.steps()) as u32,
            out_stride: stride(spec.value_width()) as u32,
        };
        let skip = skip.unwrap_or(&self.gpu.unread);
        let operands = [self.prepared, skip, &words, self.states, self.read];
        let groups = [spec.n_heads * spec.value_dim.div_ceil(TILE), self.op.runs.len(), 1];
        stream.dispatch(kind, &operands, params, groups)
    }

    /// Norms and gates what was read.
    fn outputs(&self, stream: &mut Stream, out: &Buffer) -> Result<()> {
        let (spec, part) = (self.op.spec, self.op.parts.gate);
        let (gates, width) = (self.product(part), spec.value_width() / spec.norm_groups);
        let gate = match spec.gate {
            RecurrentGate::Behind => 0,
            RecurrentGate::SigmoidBehind => 1,
            RecurrentGate::Before => 2,
        };
        let params = params::StateOutputs {
            width: width as u32,
            weights: spec.norm_width() as u32,
            of_key: (self.of_key() * spec.value_dim) as u32,
            gate: part.first as u32,
            gate_step: part.stride as u32,
            gates_stride: gates.stride(),
            x_stride: out.stride(),
            out_stride: out.stride(),
            eps: self.op.eps,
        };
        let operands = [self.read, &gates.block, &self.op.vectors.norm, &out.block];
        let groups = [spec.norm_groups, self.rows, 1];
        stream.dispatch(Op::state_outputs(gate, threads(width)), &operands, params, groups)
    }
}

/// See [`Backend::split_heads`](crate::engine::backend::Backend::split_heads).
pub(super) fn split_heads(
    stream: &mut Stream,
    x: &Buffer,
    head_dim: usize,
    rows: usize,
    [first, second]: [&mut Buffer; 2],
) -> Result<()> {
    let width = x.width / 2;
    (first.width, second.width) = (width, width);
    let params = params::SplitHeads {
        width: width as u32,
        head_dim: head_dim as u32,
        x_stride: x.stride(),
        out_stride: first.stride(),
    };
    let operands = [&x.block, &first.block, &second.block];
    stream.dispatch(Op::split_heads(), &operands, params, [width.div_ceil(64), rows, 1])
}
