//! How does the device route rows, and compute experts? All places of a step at once.
//!
//! A place is one of the experts that a row takes. Few places are products of one row each; many are
//! sorted by expert, and each expert multiplies its own together.

use super::device::{Block, Device};
use super::kernels::{Elementwise, OUTPUTS, Op, TILE};
use super::matrix::{Chunk, expect_readable, grid, rows_in_a_chunk};
use super::stream::{Scratch, Stream, storage};
use super::{Buffer, Gpu, elementwise, params, stride};
use crate::arch::{Activation, Scoring};
use crate::engine::backend::{Experts, Routes, Routing};
use crate::error::{Error, ErrorKind, Result};
use crate::weights::{DType, Region};

/// Experts of a layer that the kernels have workgroup memory for.
const MAX_EXPERTS: usize = 512;

/// Places up to which each is multiplied for itself.
const MATVEC_PLACES: usize = 32;

/// Refuses more experts than that.
fn few_enough(n_experts: usize) -> Result<()> {
    if n_experts <= MAX_EXPERTS {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::EngineUnavailable,
        format!("expected at most {MAX_EXPERTS} experts in a layer, found {n_experts}"),
    )
    .with_hint("use engine `cpu`"))
}

/// One projection of all experts: their matrices behind each other, whole ones in each chunk.
pub(crate) struct Stack {
    pub(super) dtype: DType,
    n_experts: usize,
    pub(super) n_in: usize,
    pub(super) n_out: usize,
    pub(super) chunks: Vec<Chunk>,
    /// Behind each other, too.
    biases: Option<Block>,
}

impl Stack {
    pub(super) fn new(gpu: &Gpu, weights: &[Region], biases: Option<Vec<f32>>) -> Result<Self> {
        use crate::engine::backend::Backend;
        let Some(first) = weights.first() else {
            return Err(Error::new(ErrorKind::Internal, "a layer without experts"));
        };
        few_enough(weights.len()).map_err(|e| e.with("tensor", first.name()))?;
        let (dtype, n_out, row_bytes) = (first.dtype(), first.rows(), first.row_bytes());
        weights.iter().try_for_each(expect_readable).map_err(|e| e.with("tensor", first.name()))?;
        let differs = |weight: &&Region| weight.dtype() != dtype || weight.row_bytes() != row_bytes;
        if let Some(other) = weights.iter().find(differs) {
            return Err(Error::new(
                ErrorKind::DTypeUnsupported,
                format!("expected experts of one type, {dtype}, found {}", other.dtype()),
            )
            .with("tensor", other.name())
            .with_hint("leave feed-forward blocks to the CPU, or use engine `cpu`"));
        }
        gpu.kernels.get(&gpu.device, &Op::experts_matmul(dtype))?;
        let in_a_chunk = rows_in_a_chunk(&gpu.device, row_bytes * n_out)?;
        let chunks = weights
            .chunks(in_a_chunk)
            .enumerate()
            .map(|(i, weights)| {
                let parts: Vec<&[u8]> = weights.iter().map(Region::bytes).collect();
                Chunk::upload(&gpu.device, &weights[0], &parts, i * in_a_chunk * n_out)
                    .map_err(|e| e.with("tensor", weights[0].name()))
            })
            .collect::<Result<_>>()?;
        let biases = biases.map(|biases| gpu.vector(biases)).transpose()?;
        Ok(Self { dtype, n_experts: weights.len(), n_in: first.row_len(), n_out, chunks, biases })
    }

    /// Each place's product: `out[place] = x[place / x_div] · Wᵀ` with its expert's matrix.
    fn multiply(
        &self,
        gpu: &Gpu,
        stream: &mut Stream,
        x: &Block,
        x_div: usize,
        places: &Places<'_>,
        out: &Block,
    ) -> Result<()> {
        let (has_bias, bias) = (self.biases.is_some().into(), self.biases.as_ref().unwrap_or(&gpu.unread));
        for chunk in &self.chunks {
            let (out_stride, n_out) = (stride(self.n_out) as u32, self.n_out as u32);
            let params = params::Weights { out_stride, n_out, x_div: x_div as u32, has_bias, ..chunk.params };
            match places {
                Places::Few(routes, n) => {
                    let [across, down] = grid(self.n_out.div_ceil(OUTPUTS as usize));
                    let operands = [&chunk.block, x, *routes, bias, out];
                    let groups = [across, down, *n];
                    stream.dispatch(Op::experts_matvec(self.dtype), &operands, params, groups)?;
                }
                Places::Sorted { order, starts, n } => {
                    let tiles = |n: usize| n.div_ceil(TILE as usize);
                    let groups = [tiles(self.n_out), chunk.rows() / self.n_out, tiles(*n)];
                    let operands = [&chunk.block, x, *order, *starts, bias, out];
                    stream.dispatch(Op::experts_matmul(self.dtype), &operands, params, groups)?;
                }
            }
        }
        stream.weigh(places.len() * self.n_out * self.n_in)
    }
}

/// What gates let through of a few places, in one dispatch; `None` where that takes several.
fn few_gated(
    gpu: &Gpu,
    stream: &mut Stream,
    op: &Experts<'_, Gpu>,
    x: &Block,
    places: usize,
    out: &Block,
) -> Result<Option<()>> {
    let Some((gate, up)) = op.up.map(|up| (op.gate, up)) else { return Ok(None) };
    let Some([gates, ups]) = are_gated(gate, up) else { return Ok(None) };
    gpu.device.count_weights(
        (places * gate.n_out) as u64 * u64::from(gates.params.row_bytes + ups.params.row_bytes),
    );
    let (what, [number, alpha]) = Elementwise::activation(op.activation);
    let params = params::ExpertsGated {
        n_in: gates.params.n_in,
        x_stride: gates.params.x_stride,
        out_stride: stride(gate.n_out) as u32,
        n_out: gate.n_out as u32,
        x_div: op.routes.n_used as u32,
        row_bytes_0: gates.params.row_bytes,
        row_bytes_1: ups.params.row_bytes,
        has_bias: gate.biases.is_some().into(),
        number,
        alpha,
    };
    let [gate_bias, up_bias] = [gate, up].map(|stack| stack.biases.as_ref().unwrap_or(&gpu.unread));
    let DeviceRoutes { ids, weights, .. } = op.routes;
    let operands = [x, &gates.block, &ups.block, gate_bias, up_bias, ids, weights, out];
    let [across, down] = grid(gate.n_out.div_ceil(OUTPUTS as usize));
    let kernel = Op::experts_gated(&[gate.dtype, up.dtype], what, op.on_input);
    stream.dispatch(kernel, &operands, params, [across, down, places])?;
    stream.weigh(2 * places * gate.n_out * gate.n_in).map(Some)
}

/// Both projections' only chunks, where a kernel has both.
fn are_gated<'a>(gate: &'a Stack, up: &'a Stack) -> Option<[&'a Chunk; 2]> {
    let ([gates], [ups]) = (&gate.chunks[..], &up.chunks[..]) else { return None };
    (gate.biases.is_some() == up.biases.is_some() && gate.n_out == up.n_out).then_some([gates, ups])
}

/// Builds the kernels of a few places.
pub(super) fn expect(
    gpu: &Gpu,
    (activation, on_input): (Activation, bool),
    gate: &Stack,
    up: Option<&Stack>,
    down: &Stack,
) -> Result<()> {
    match up.filter(|up| are_gated(gate, up).is_some()) {
        Some(up) => {
            let what = Elementwise::activation(activation).0;
            gpu.kernels.get(&gpu.device, &Op::experts_gated(&[gate.dtype, up.dtype], what, on_input))?;
        }
        None => {
            for stack in [Some(gate), up].into_iter().flatten() {
                gpu.kernels.get(&gpu.device, &Op::experts_matvec(stack.dtype))?;
            }
        }
    }
    let op =
        if down.chunks.len() == 1 { Op::experts_down(down.dtype) } else { Op::experts_matvec(down.dtype) };
    gpu.kernels.get(&gpu.device, &op).map(drop)
}

/// What experts make of a few places, added up by row, in one dispatch; `None` where that takes several.
fn few_down(
    gpu: &Gpu,
    stream: &mut Stream,
    op: &Experts<'_, Gpu>,
    x: &Block,
    rows: usize,
    out: &mut Buffer,
) -> Result<Option<()>> {
    let stack = op.down;
    let [chunk] = &stack.chunks[..] else { return Ok(None) };
    let places = rows * op.routes.n_used;
    gpu.device.count_weights((places * stack.n_out) as u64 * u64::from(chunk.params.row_bytes));
    out.width = stack.n_out;
    let params = params::Weights {
        out_stride: out.stride(),
        n_out: stack.n_out as u32,
        x_div: op.routes.n_used as u32,
        weighted: (!op.on_input).into(),
        has_bias: stack.biases.is_some().into(),
        ..chunk.params
    };
    let bias = stack.biases.as_ref().unwrap_or(&gpu.unread);
    let operands = [&chunk.block, x, &op.routes.ids, &op.routes.weights, bias, &out.block];
    let [across, down] = grid(stack.n_out.div_ceil(OUTPUTS as usize));
    stream.dispatch(Op::experts_down(stack.dtype), &operands, params, [across, down, rows])?;
    stream.weigh(places * stack.n_out * stack.n_in).map(Some)
}

/// Which expert each place takes.
enum Places<'a> {
    /// By place.
    Few(&'a Block, usize),
    /// Places by expert, and where each expert's begin.
    Sorted { order: &'a Block, starts: &'a Block, n: usize },
}

impl Places<'_> {
    fn len(&self) -> usize {
        match self {
            Places::Few(_, n) | Places::Sorted { n, .. } => *n,
        }
    }
}

/// Which experts each row takes, on the device.
pub(crate) struct DeviceRoutes {
    ids: Block,
    weights: Block,
    n_used: usize,
}

impl DeviceRoutes {
    pub(super) fn new(device: &Device, rows: usize, n_used: usize) -> Result<Self> {
        let bytes = (rows as u64).saturating_mul(n_used as u64).saturating_mul(4);
        let block = || device.block("routes", bytes, storage());
        Ok(Self { ids: block()?, weights: block()?, n_used })
    }

    pub(super) fn route(
        &mut self,
        gpu: &Gpu,
        stream: &mut Stream,
        op: &Routing<'_, Gpu>,
        logits: &Buffer,
        rows: usize,
    ) -> Result<()> {
        let Routing { spec, correction, scales } = *op;
        few_enough(spec.n_experts)?;
        self.n_used = spec.n_used;
        let groups = spec.groups.map_or([1; 2], |groups| [groups.n_groups, groups.n_used]);
        let counts = [spec.n_experts, spec.n_used, groups[0], groups[1]].map(|n| n as u32);
        let sigmoid = spec.scoring == Scoring::Sigmoid;
        let op = Op::route(counts, [sigmoid, correction.is_some(), scales.is_some(), spec.normalise]);
        let params = params::Route { stride: logits.stride(), scale: spec.scale };
        let [correction, scales] = [correction, scales].map(|vector| vector.unwrap_or(&gpu.unread));
        let operands = [&logits.block, correction, scales, &self.ids, &self.weights];
        stream.dispatch(op, &operands, params, [rows, 1, 1])
    }

    pub(super) fn write(&mut self, stream: &mut Stream, from: &Routes) -> Result<()> {
        self.n_used = from.n_used;
        let ids = from.ids.iter().map(|id| f32::from_bits(*id));
        stream.write(&self.ids, ids, from.ids.len())?;
        stream.write(&self.weights, from.weights.iter().copied(), from.weights.len())
    }

    pub(super) fn read(&self, stream: &mut Stream, rows: usize, out: &mut Routes) -> Result<()> {
        let places = rows * self.n_used;
        out.n_used = self.n_used;
        out.rows.clear();
        out.ids.resize(places, 0);
        out.weights.resize(places, 0.0);
        let Routes { ids, weights, .. } = out;
        stream.read(&[(&self.ids, places), (&self.weights, places)], |part, i, word| match part {
            0 => ids[i] = word,
            _ => weights[i] = f32::from_bits(word),
        })
    }
}

/// See [`Backend::experts`](crate::engine::backend::Backend::experts).
pub(super) fn experts(
    gpu: &Gpu,
    stream: &mut Stream,
    op: &Experts<'_, Gpu>,
    x: &Buffer,
    rows: usize,
    out: &mut Buffer,
) -> Result<()> {
    let (n_used, n_experts) = (op.routes.n_used, op.gate.n_experts);
    let (n, width, n_out) = (rows * n_used, op.gate.n_out, op.down.n_out);
    let few = n <= MATVEC_PLACES;
    let gate = stream.scratch(Scratch::Gate, n * stride(width))?;
    let (order, starts);
    let places = if few {
        Places::Few(&op.routes.ids, n)
    } else {
        (order, starts) =
            (stream.scratch(Scratch::Order, n)?, stream.scratch(Scratch::Starts, n_experts + 1)?);
        let params = params::ExpertsSort { n_places: n as u32, n_experts: n_experts as u32 };
        stream.dispatch(Op::experts_sort(), &[&op.routes.ids, &order, &starts], params, [1, 1, 1])?;
        Places::Sorted { order: &order, starts: &starts, n }
    };
    if !few || few_gated(gpu, stream, op, &x.block, n, &gate)?.is_none() {
        gated(gpu, stream, op, &x.block, &places, &gate)?;
    }
    if few && few_down(gpu, stream, op, &gate, rows, out)?.is_some() {
        return Ok(());
    }
    let down = stream.scratch(Scratch::Down, n * stride(n_out))?;
    op.down.multiply(gpu, stream, &gate, 1, &places, &down)?;
    out.width = n_out;
    let params = params::ExpertsSum {
        n_in: n_out as u32,
        y_stride: stride(n_out) as u32 / 4,
        out_stride: out.stride() / 4,
        n_used: n_used as u32,
        weighted: (!op.on_input).into(),
    };
    let groups = [n_out.div_ceil(256), rows, 1];
    stream.dispatch(Op::experts_sum(), &[&down, &op.routes.weights, &out.block], params, groups)
}

/// What gates let through, operation by operation.
fn gated(
    gpu: &Gpu,
    stream: &mut Stream,
    op: &Experts<'_, Gpu>,
    x: &Block,
    places: &Places<'_>,
    gate: &Block,
) -> Result<()> {
    let (n, n_used, width) = (places.len(), op.routes.n_used, op.gate.n_out);
    let up = op.up.map(|up| Ok((up, stream.scratch(Scratch::Up, n * stride(width))?))).transpose()?;
    op.gate.multiply(gpu, stream, x, n_used, places, gate)?;
    if let Some((to_up, up)) = &up {
        to_up.multiply(gpu, stream, x, n_used, places, up)?;
    }
    let up = up.as_ref().map(|(_, up)| &**up);
    let inner = stride(width) as u32;
    if op.on_input {
        for products in [Some(gate), up].into_iter().flatten() {
            let weights = (&op.routes.weights, 1);
            elementwise(stream, Elementwise::ScaleRows, weights, (products, inner), [n, width], [0.0; 2])?;
        }
    }
    let (what, numbers) = Elementwise::activation(op.activation);
    // What is without a gate has nothing to multiply it with.
    elementwise(stream, what, (up.unwrap_or(&gpu.unread), inner), (gate, inner), [n, width], numbers)
}
