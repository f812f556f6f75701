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
mod pages;
mod params;
mod stream;
mod vram;

use std::sync::Arc;

pub(crate) use adapters::Adapter;
pub(crate) use device::Limits;

use self::device::{Block, Device};
use self::experts::{DeviceRoutes, Stack};
use self::kernels::{Elementwise, Kernels, Op, SLICE};
use self::matrix::Matrix;
use self::pages::Pages;
use self::stream::{Scratch, Stream, storage};
use crate::arch::{Activation, RopeLayout};
use crate::engine::KvType;
use crate::engine::backend::{
    Attend, Backend, Experts, Head, NormRope, PageSpec, Routes, Routing, TopLogits,
};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::TokenId;
use crate::math;
use crate::weights::Region;

/// The largest list of logits that the device makes; longer ones are made on the host.
const MAX_TOP: usize = 64;

/// A GPU.
pub(crate) struct Gpu {
    device: Arc<Device>,
    kernels: Arc<Kernels>,
    /// Bound in place of operands that an operation neither reads nor writes.
    unread: Block,
    unwritten: Block,
}

impl Gpu {
    /// Opens an adapter.
    pub(crate) fn open(adapter: &Adapter, limits: Limits) -> Result<Self> {
        let device = Arc::new(Device::open(adapter, limits)?);
        let kernels = Arc::new(Kernels::new(&device));
        let unused = || device.block("unused operands", 16, storage());
        Ok(Self { unread: unused()?, unwritten: unused()?, device, kernels })
    }

    /// The software adapter, which every machine can have: on Debian mesa-vulkan-drivers and libvulkan1.
    #[cfg(test)]
    pub(crate) fn software(limits: Limits) -> Self {
        let adapter = Adapter::all().into_iter().find(Adapter::is_software);
        Self::open(&adapter.expect("no software adapter: install Mesa's Vulkan drivers"), limits).unwrap()
    }

    /// Loses the device, as a driver's fault does.
    #[cfg(test)]
    pub(crate) fn destroy(&self) {
        self.device.device.destroy();
    }

    /// Bytes that buffers take on the device, as its backend counts them.
    #[cfg(test)]
    pub(crate) fn allocated(&self) -> u64 {
        self.device.device.poll(wgpu::PollType::Poll).unwrap();
        self.device.device.generate_allocator_report().unwrap().total_allocated_bytes
    }

    /// Bytes that are reserved on the device.
    #[cfg(test)]
    pub(crate) fn reserved(&self) -> u64 {
        self.device.reserved()
    }

    /// Dispatches recorded so far.
    #[cfg(test)]
    pub(crate) fn dispatches(&self) -> u64 {
        self.device.dispatches()
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
}

/// `x = what(x, y)`, element by element, with numbers that some take; `x` and `y` come with their strides.
fn elementwise(
    stream: &mut Stream,
    what: Elementwise,
    (y, y_stride): (&Block, u32),
    (x, x_stride): (&Block, u32),
    [rows, width]: [usize; 2],
    [number, alpha]: [f32; 2],
) -> Result<()> {
    let params = params::Elementwise { width: width as u32, y_stride, x_stride, number, alpha };
    stream.dispatch(Op::elementwise(what), &[y, x], params, [width.div_ceil(64), rows, 1])
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

    fn strided(&self) -> (&Block, u32) {
        (&self.block, self.stride())
    }

    /// The RMS norm of the first rows, written to `out` or added to it.
    fn norm(
        &self,
        stream: &mut Stream,
        (weight, eps): (&Block, f32),
        rows: usize,
        out: &Buffer,
        add: bool,
    ) -> Result<()> {
        let (width, x_stride, out_stride) = (self.width as u32, self.stride(), out.stride());
        let params = params::Norm { width, x_stride, out_stride, eps };
        stream.dispatch(Op::norm(add), &[&self.block, weight, &out.block], params, [rows, 1, 1])
    }
}

impl Backend for Gpu {
    type Buffer = Buffer;
    type Matrix = Matrix;
    type Vector = Block;
    type Pages = Pages;
    type Stack = Stack;
    type Routes = DeviceRoutes;
    type States = ();
    type Chosen = ();
    type Stream = Stream;

    // Few rows and many are added up in different orders.
    const EXACT_ROWS: bool = false;

    const KV_TYPES: &'static [KvType] = KvType::ALL;
    // They lie in a layer's buffers, which grow.
    const RELEASES_PAGES: bool = false;
    const LATENTS: bool = false;

    /// Metal's objects of a step live until its pool ends.
    #[cfg(target_vendor = "apple")]
    fn run<R: Send>(
        &self,
        _cx: &crate::engine::StepCx<'_>,
        work: impl FnOnce() -> Result<R> + Send,
    ) -> Result<R> {
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

    fn discard(&self, stream: &mut Stream) {
        stream.discard();
    }

    fn pages(&self, spec: &PageSpec) -> Result<Pages> {
        Pages::new(spec)
    }

    fn add_page(&self, pages: &mut Pages, page: u32) -> Result<()> {
        pages.add(&self.device, page)
    }

    fn page_layout(&self) -> String {
        "wgpu 1".to_owned()
    }

    fn read_pages(
        &self,
        stream: &mut Stream,
        pages: &Pages,
        numbers: &[u32],
        rows: usize,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        pages.read(stream, numbers, rows, out)
    }

    fn write_page(&self, stream: &mut Stream, pages: &mut Pages, page: u32, from: &[u8]) -> Result<()> {
        pages.write(stream, page, from)
    }

    fn copy_page(&self, stream: &mut Stream, pages: &mut Pages, from: u32, to: u32) -> Result<()> {
        pages.copy(stream, from, to)
    }

    fn matrix(&self, weight: Region, bias: Option<Vec<f32>>) -> Result<Matrix> {
        Matrix::new(self, &weight, bias).map_err(|e| e.with("tensor", weight.name()))
    }

    fn stack(&self, weights: Vec<Region>, biases: Option<Vec<f32>>) -> Result<Stack> {
        Stack::new(self, &weights, biases)
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
        let (x_stride, out_stride) = (x.stride(), out.stride());
        let params = params::Gather { width: x.width as u32, x_stride, out_stride, base };
        let groups = [x.width.div_ceil(64), from.len(), 1];
        stream.dispatch(Op::gather(), &[&x.block, &table, &out.block], params, groups)
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
        x.norm(stream, (weight, eps), rows, out, false)
    }

    fn add_norm(
        &self,
        stream: &mut Stream,
        x: &mut Buffer,
        y: &Buffer,
        norm: (&Block, f32),
        rows: usize,
        _room: &mut Buffer,
    ) -> Result<()> {
        y.norm(stream, norm, rows, x, true)
    }

    fn scale(&self, stream: &mut Stream, x: &mut Buffer, factor: f32, rows: usize) -> Result<()> {
        let y = (&self.unread, 0);
        elementwise(stream, Elementwise::Scale, y, x.strided(), [rows, x.width], [factor, 0.0])
    }

    fn add(&self, stream: &mut Stream, x: &mut Buffer, y: &Buffer, scale: f32, rows: usize) -> Result<()> {
        elementwise(stream, Elementwise::Add, y.strided(), x.strided(), [rows, x.width], [scale, 0.0])
    }

    fn gate_heads(
        &self,
        stream: &mut Stream,
        x: &mut Buffer,
        gate: &Buffer,
        head_dim: usize,
        rows: usize,
    ) -> Result<()> {
        let params = params::GateHeads {
            width: x.width as u32,
            head_dim: head_dim as u32,
            gates_stride: gate.stride(),
            x_stride: x.stride(),
        };
        let groups = [x.width.div_ceil(64), rows, 1];
        stream.dispatch(Op::gate_heads(), &[&gate.block, &x.block], params, groups)
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
            matrix.multiply(self, stream, x, rows, out.strided())
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
        let (n, k, stride) = (op.n_vocab, out.k, stride(op.n_vocab));
        let all = stream.scratch(Scratch::Logits, rows * stride)?;
        op.matrix.multiply(self, stream, x, rows, (&all, stride as u32))?;
        if let Some(cap) = op.softcap {
            let y = (&self.unread, 0);
            elementwise(stream, Elementwise::Softcap, y, (&all, stride as u32), [rows, n], [cap, 0.0])?;
        }
        if k > MAX_TOP {
            let mut host = vec![0.0; rows * stride];
            stream.read(&[(&all, rows * stride)], |_, i, word| host[i] = f32::from_bits(word))?;
            out.list(host.chunks_exact(stride).map(|row| &row[..n]));
            return Ok(());
        }
        let slices = n.div_ceil(SLICE as usize);
        let mut scratch = |which, lists| stream.scratch(which, rows * lists * k);
        let (slice_values, slice_ids) =
            (scratch(Scratch::SliceValues, slices)?, scratch(Scratch::SliceIds, slices)?);
        let (values, found) = (scratch(Scratch::TopValues, 1)?, scratch(Scratch::TopIds, 1)?);
        let params = params::Top { n: n as u32, stride: stride as u32, k: k as u32, n_slices: slices as u32 };
        let operands = [&*all, &self.unread, &slice_values, &slice_ids];
        stream.dispatch(Op::top(0), &operands, params, [slices, rows, 1])?;
        let operands = [&*slice_values, &slice_ids, &values, &found];
        stream.dispatch(Op::top(1), &operands, params, [1, rows, 1])?;
        stream.read(&[(&values, rows * k), (&found, rows * k)], |part, i, word| match part {
            0 => out.logits[i] = f32::from_bits(word),
            _ => out.ids[i] = TokenId(word),
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
        let (what, numbers) = Elementwise::activation(activation);
        elementwise(stream, what, up.strided(), gate.strided(), [rows, gate.width], numbers)
    }

    fn route(
        &self,
        stream: &mut Stream,
        op: &Routing<'_, Self>,
        logits: &Buffer,
        rows: usize,
        out: &mut DeviceRoutes,
    ) -> Result<()> {
        out.route(self, stream, op, logits, rows)
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
        out: &mut Buffer,
    ) -> Result<()> {
        experts::experts(self, stream, op, x, rows, out)
    }

    fn softcap(&self, stream: &mut Stream, x: &mut Buffer, cap: f32, rows: usize) -> Result<()> {
        let y = (&self.unread, 0);
        elementwise(stream, Elementwise::Softcap, y, x.strided(), [rows, x.width], [cap, 0.0])
    }

    fn angles(
        &self,
        stream: &mut Stream,
        frequencies: &[f32],
        positions: &[usize],
        amplitudes: &[f32],
        out: &mut Buffer,
    ) -> Result<()> {
        // Made here: devices know sines of small angles only.
        out.width = 2 * frequencies.len();
        let angles = positions.iter().zip(amplitudes).flat_map(|(&position, &amplitude)| {
            let angle = move |frequency: &f32| position as f32 * frequency;
            let cosines = frequencies.iter().map(move |f| amplitude * math::sin_cos(angle(f)).1);
            cosines.chain(frequencies.iter().map(move |f| amplitude * math::sin_cos(angle(f)).0))
        });
        stream.write(&out.block, angles, out.width)
    }

    fn norm_rope(
        &self,
        stream: &mut Stream,
        op: &NormRope<'_, Self>,
        angles: Option<&Buffer>,
        rows: usize,
        x: &mut Buffer,
    ) -> Result<()> {
        let kind = Op::norm_rope(op.norm.is_some(), op.layout == RopeLayout::Pairs);
        let (weight, eps) = op.norm.unwrap_or((&self.unread, 0.0));
        let params = params::NormRope {
            head_dim: op.head_dim as u32,
            half: angles.map_or(0, |angles| angles.width as u32 / 2),
            angles_stride: angles.map_or(0, Buffer::stride),
            x_stride: x.stride(),
            eps,
        };
        let groups = [x.width / op.head_dim, rows, 1];
        let angles = angles.map_or(&self.unread, |angles| &angles.block);
        stream.dispatch(kind, &[angles, weight, &x.block], params, groups)
    }

    fn attend(
        &self,
        stream: &mut Stream,
        op: &Attend<'_, Self>,
        q: &Buffer,
        kv: Option<[&Buffer; 2]>,
        pages: &mut Pages,
        out: &mut Buffer,
    ) -> Result<()> {
        attention::attend(self, stream, op, (q, kv), pages, out)
    }
}

#[cfg(test)]
mod tests;
