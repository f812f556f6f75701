//! Which operations does a GPU offer through wgpu? Vulkan, Metal, DirectX 12 and OpenGL.
//!
//! Operations are recorded on a [`Stream`] and sent together, a decoded token as one submission. Weights
//! lie on the device as they are stored, and are multiplied there without being expanded. Activations are
//! f32 rows, each beginning at a multiple of four floats.

mod adapters;
mod attention;
mod device;
mod experts;
mod kernels;
mod matrix;
mod stream;
mod vram;

use std::sync::Arc;

pub(crate) use adapters::Adapter;
pub(crate) use device::Limits;

use self::attention::Cache;
use self::device::{Block, Device};
use self::experts::{DeviceRoutes, Stack};
use self::kernels::{Kernels, Op, SLICE};
use self::matrix::Matrix;
use self::stream::{Room, Stream, storage};
use crate::arch::{Activation, ExpertsSpec, RopeLayout};
use crate::engine::backend::{Attend, Backend, CacheSpec, Experts, Head, NormRope, Routes, TopLogits};
use crate::engine::top::Top;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::TokenId;
use crate::math;
use crate::weights::Region;

/// The largest list of logits that the device makes; longer ones are made on the host.
const LONGEST: usize = 64;

/// A GPU.
pub(crate) struct Gpu {
    device: Arc<Device>,
    kernels: Arc<Kernels>,
    /// In place of what an operation does not have to read, and to write.
    nothing: Block,
    spare: Block,
}

impl Gpu {
    /// Opens an adapter.
    pub(crate) fn open(adapter: &Adapter, limits: Limits) -> Result<Self> {
        let device = Arc::new(Device::open(adapter, limits)?);
        let kernels = Arc::new(Kernels::new(&device));
        let nothing = || device.block("nothing", 16, storage());
        Ok(Self { nothing: nothing()?, spare: nothing()?, device, kernels })
    }

    /// Loses the device, as a driver's fault does.
    #[cfg(test)]
    pub(crate) fn destroy(&self) {
        self.device.device.destroy();
    }

    /// How often work was sent to the device so far.
    #[cfg(test)]
    pub(crate) fn submissions(&self) -> u64 {
        self.device.submissions()
    }

    fn floats(&self, what: &str, rows: usize, width: usize) -> Result<Block> {
        let len = rows.checked_mul(stride(width)).and_then(|len| len.checked_mul(4)).ok_or_else(|| {
            Error::new(ErrorKind::OutOfMemory, format!("cannot reserve {rows} rows of {width} activations"))
                .with_hint("use a smaller prefill chunk")
        })?;
        self.device.block(what, len as u64, storage())
    }

    /// An operation that has a thread for each element.
    fn elementwise(
        &self,
        stream: &mut Stream,
        op: Op,
        operands: &[&Block],
        [rows, width]: [usize; 2],
        params: &[u32],
    ) -> Result<()> {
        let mut all = [rows as u32, width as u32, 0, 0, 0];
        all[2..2 + params.len()].copy_from_slice(params);
        stream.dispatch(op, operands, &all, [width.div_ceil(64), rows, 1])
    }
}

/// Floats from one row to the next.
fn stride(width: usize) -> usize {
    width.next_multiple_of(4)
}

/// Rows on the device.
pub(crate) struct Buffer {
    block: Block,
    width: usize,
}

impl Buffer {
    fn stride(&self) -> u32 {
        stride(self.width) as u32
    }
}

impl Backend for Gpu {
    type Buffer = Buffer;
    type Matrix = Matrix;
    type Vector = Block;
    type Cache = Cache;
    type Stack = Stack;
    type Routes = DeviceRoutes;
    type Stream = Stream;

    // Few rows and many are added up in different orders.
    const EXACT_ROWS: bool = false;

    /// Metal's objects of a step live until its pool ends.
    #[cfg(target_vendor = "apple")]
    fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        objc2::rc::autoreleasepool(|_| work())
    }

    fn buffer(&self, rows: usize, width: usize) -> Result<Buffer> {
        Ok(Buffer { block: self.floats("activations", rows, width)?, width })
    }

    fn stream(&self, _rows: usize, _width: usize) -> Result<Stream> {
        Stream::new(&self.device, &self.kernels)
    }

    fn submit(&self, stream: &mut Stream) -> Result<()> {
        stream.send()
    }

    fn cache(&self, spec: &CacheSpec) -> Result<Cache> {
        Cache::new(&self.device, spec)
    }

    fn matrix(&self, weight: Region, bias: Option<Vec<f32>>) -> Result<Matrix> {
        Matrix::new(self, &weight, bias).map_err(|e| e.with("tensor", weight.name()))
    }

    fn stack(&self, weights: Vec<Region>) -> Result<Stack> {
        Stack::new(self, &weights)
    }

    fn vector(&self, values: Vec<f32>) -> Result<Block> {
        let block = self.floats("a vector", 1, values.len())?;
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.device.queue.write_buffer(&block.buffer, 0, &bytes);
        self.device.check().map(|()| block)
    }

    fn routes(&self, rows: usize, n_used: usize) -> Result<DeviceRoutes> {
        DeviceRoutes::new(&self.device, rows, n_used)
    }

    fn write(&self, stream: &mut Stream, host: &[f32], out: &mut Buffer) -> Result<()> {
        stream.write(&out.block, host.iter().copied(), out.width)
    }

    fn read(&self, stream: &mut Stream, x: &Buffer, out: &mut [f32]) -> Result<()> {
        let (width, stride) = (x.width, stride(x.width));
        let rows = out.len().checked_div(width).unwrap_or(0);
        stream.read(&[(&x.block, rows * stride)], |_, i, word| {
            if width == stride {
                out[i] = f32::from_bits(word);
            } else if i % stride < width {
                out[i / stride * width + i % stride] = f32::from_bits(word);
            }
        })
    }

    fn gather(&self, stream: &mut Stream, x: &Buffer, from: &[usize], out: &mut Buffer) -> Result<()> {
        out.width = x.width;
        let (table, base) = stream.table(from.iter().map(|&row| row as u32))?;
        let params = [x.stride(), out.stride(), base];
        self.elementwise(stream, Op::Gather, &[&x.block, &table, &out.block], [from.len(), x.width], &params)
    }

    fn embed(
        &self,
        stream: &mut Stream,
        table: &Matrix,
        tokens: &[TokenId],
        scale: f32,
        out: &mut Buffer,
    ) -> Result<()> {
        table.embed(stream, tokens, scale, out)
    }

    fn rms_norm(
        &self,
        stream: &mut Stream,
        x: &Buffer,
        weight: &Block,
        eps: f32,
        rows: usize,
        out: &mut Buffer,
    ) -> Result<()> {
        out.width = x.width;
        let params = [rows as u32, x.width as u32, x.stride(), out.stride(), eps.to_bits()];
        stream.dispatch(Op::RmsNorm, &[&x.block, weight, &out.block], &params, [rows, 1, 1])
    }

    fn add_norm(
        &self,
        stream: &mut Stream,
        x: &mut Buffer,
        y: &Buffer,
        (weight, eps): (&Block, f32),
        rows: usize,
        _room: &mut Buffer,
    ) -> Result<()> {
        let params = [rows as u32, x.width as u32, y.stride(), x.stride(), eps.to_bits()];
        stream.dispatch(Op::AddNorm, &[&y.block, weight, &x.block], &params, [rows, 1, 1])
    }

    fn add(&self, stream: &mut Stream, x: &mut Buffer, y: &Buffer, rows: usize) -> Result<()> {
        let params = [y.stride(), x.stride()];
        self.elementwise(stream, Op::Add, &[&y.block, &x.block], [rows, x.width], &params)
    }

    fn linear(
        &self,
        stream: &mut Stream,
        x: &Buffer,
        rows: usize,
        products: &mut [(&Matrix, &mut Buffer)],
    ) -> Result<()> {
        products.iter_mut().try_for_each(|(matrix, out)| {
            out.width = matrix.n_out();
            matrix.multiply(self, stream, x, rows, (&out.block, out.stride()))
        })
    }

    fn top(
        &self,
        stream: &mut Stream,
        op: &Head<'_, Self>,
        x: &Buffer,
        rows: usize,
        out: TopLogits<'_>,
    ) -> Result<()> {
        let TopLogits { k, ids, logits } = out;
        let (n, stride) = (op.n_vocab, stride(op.n_vocab));
        let all = stream.room(Room::Logits, rows * stride)?;
        op.matrix.multiply(self, stream, x, rows, (&all, stride as u32))?;
        if let Some(cap) = op.softcap {
            let params = [stride as u32, cap.to_bits()];
            self.elementwise(stream, Op::Softcap, &[&all], [rows, n], &params)?;
        }
        if k > LONGEST {
            let mut host = vec![0.0; rows * stride];
            stream.read(&[(&all, rows * stride)], |_, i, word| host[i] = f32::from_bits(word))?;
            let mut top = Top::default();
            let lists = ids.chunks_exact_mut(k).zip(logits.chunks_exact_mut(k));
            for (row, (ids, logits)) in host.chunks_exact(stride).zip(lists) {
                top.reset(k);
                top.see(0, &row[..n]);
                top.write(ids, logits);
            }
            return Ok(());
        }
        let slices = n.div_ceil(SLICE as usize);
        let sliced = [Room::SliceValues, Room::SliceIds].map(|room| stream.room(room, rows * slices * k));
        let largest = [Room::TopValues, Room::TopIds].map(|room| stream.room(room, rows * k));
        let ([slice_values, slice_ids], [values, found]) = (both(sliced)?, both(largest)?);
        let params = [n as u32, stride as u32, k as u32, slices as u32];
        let operands = [&*all, &self.nothing, &slice_values, &slice_ids];
        stream.dispatch(Op::Top { stage: 0 }, &operands, &params, [slices, rows, 1])?;
        let operands = [&*slice_values, &slice_ids, &values, &found];
        stream.dispatch(Op::Top { stage: 1 }, &operands, &params, [1, rows, 1])?;
        stream.read(&[(&values, rows * k), (&found, rows * k)], |part, i, word| match part {
            0 => logits[i] = f32::from_bits(word),
            _ => ids[i] = TokenId(word),
        })
    }

    fn gated(
        &self,
        stream: &mut Stream,
        activation: Activation,
        gate: &mut Buffer,
        up: &Buffer,
        rows: usize,
    ) -> Result<()> {
        let params = [up.stride(), gate.stride()];
        let op = Op::Gated(number_of(activation));
        self.elementwise(stream, op, &[&up.block, &gate.block], [rows, gate.width], &params)
    }

    fn route(
        &self,
        stream: &mut Stream,
        spec: &ExpertsSpec,
        logits: &Buffer,
        rows: usize,
        out: &mut DeviceRoutes,
    ) -> Result<()> {
        out.route(stream, spec, logits, rows)
    }

    fn read_routes(
        &self,
        stream: &mut Stream,
        routes: &DeviceRoutes,
        rows: usize,
        out: &mut Routes,
    ) -> Result<()> {
        routes.read(stream, rows, out)
    }

    fn experts(
        &self,
        stream: &mut Stream,
        op: &Experts<'_, Self>,
        x: &Buffer,
        rows: usize,
        _inner: &mut [Buffer; 2],
        out: &mut Buffer,
    ) -> Result<()> {
        experts::experts(stream, op, x, rows, out)
    }

    fn softcap(&self, stream: &mut Stream, x: &mut Buffer, cap: f32, rows: usize) -> Result<()> {
        let params = [x.stride(), cap.to_bits()];
        self.elementwise(stream, Op::Softcap, &[&x.block], [rows, x.width], &params)
    }

    fn angles(
        &self,
        stream: &mut Stream,
        frequencies: &[f32],
        positions: &[usize],
        out: &mut Buffer,
    ) -> Result<()> {
        // Made here: devices know sines of small angles only.
        out.width = 2 * frequencies.len();
        let angles = positions.iter().flat_map(|&position| {
            let angle = move |frequency: &f32| position as f32 * frequency;
            let cosines = frequencies.iter().map(move |f| math::sin_cos(angle(f)).1);
            cosines.chain(frequencies.iter().map(move |f| math::sin_cos(angle(f)).0))
        });
        stream.write(&out.block, angles, out.width)
    }

    fn norm_rope(
        &self,
        stream: &mut Stream,
        op: &NormRope<'_, Self>,
        angles: &Buffer,
        rows: usize,
        x: &mut Buffer,
    ) -> Result<()> {
        let kind = Op::NormRope { norm: op.norm.is_some(), pairs: matches!(op.layout, RopeLayout::Pairs) };
        let (weight, eps) = op.norm.unwrap_or((&self.nothing, 0.0));
        let heads = x.width / op.head_dim;
        let half = angles.width / 2;
        let params = [
            rows as u32,
            heads as u32,
            op.head_dim as u32,
            half as u32,
            angles.stride(),
            x.stride(),
            eps.to_bits(),
        ];
        stream.dispatch(kind, &[&angles.block, weight, &x.block], &params, [heads, rows, 1])
    }

    fn attend(
        &self,
        stream: &mut Stream,
        op: &Attend<'_, Self>,
        qkv: [&Buffer; 3],
        cache: &mut Cache,
        out: &mut Buffer,
    ) -> Result<()> {
        cache.attend(self, stream, op, qkv, out)
    }
}

/// Its number in the shader.
fn number_of(activation: Activation) -> u32 {
    match activation {
        Activation::Silu => 0,
        Activation::GeluTanh => 1,
        Activation::Gelu => 2,
    }
}

/// Both results, or the first error.
fn both<T>([a, b]: [Result<T>; 2]) -> Result<[T; 2]> {
    Ok([a?, b?])
}

#[cfg(test)]
mod tests;
