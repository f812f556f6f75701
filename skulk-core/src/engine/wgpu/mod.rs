//! Which operations does a GPU offer through wgpu? Vulkan, Metal, DirectX 12 and OpenGL.
//!
//! Operations are recorded on a [`Stream`] and sent together, a decoded token as one submission. Weights
//! lie on the device as they are stored, and are multiplied there without being expanded. Activations are
//! f32 rows, each beginning at a multiple of four floats.

mod adapters;
mod attention;
mod choose;
mod device;
mod experts;
mod gpu;
mod heads;
mod kernels;
mod logits;
mod matrix;
mod pages;
mod params;
mod rows;
mod several;
mod states;
mod stream;
mod streams;
mod sums;
mod vram;

pub(crate) use adapters::Adapter;
pub(crate) use device::Limits;
pub(crate) use gpu::Gpu;

use self::attention::Turned;
use self::device::Block;
use self::experts::{DeviceRoutes, Stack};
use self::kernels::Elementwise;
use self::matrix::Matrix;
use self::pages::Pages;
use self::rows::{Buffer, elementwise, stride};
use self::states::States;
use self::stream::Stream;
use crate::arch::{Activation, RecurrentSpec};
use crate::bytes::ByteSize;
use crate::engine::KvType;
use crate::engine::backend::{
    Attend, Backend, Blend, Choose, Chosen, Expected, Experts, Head, NormRope, PageSpec, Recur, Routes,
    Routing, TopLogits, Turn, turn,
};
use crate::error::Result;
use crate::ids::TokenId;
use crate::weights::Region;

impl Backend for Gpu {
    type Buffer = Buffer;
    type Matrix = Matrix;
    type Vector = Block;
    type Pages = Pages;
    type Stack = Stack;
    type Routes = DeviceRoutes;
    type States = States;
    type Chosen = Chosen;
    type Stream = Stream;

    // Few rows and many are added up in different orders.
    const EXACT_ROWS: bool = false;

    const KV_TYPES: &'static [KvType] = KvType::ALL;
    // They lie in a layer's buffers, which grow.
    const RELEASES_PAGES: bool = false;

    /// Metal's objects of a step live until its pool ends.
    #[cfg(target_vendor = "apple")]
    fn run<R: Send>(
        &self,
        _cx: &crate::engine::StepCx<'_>,
        work: impl FnOnce() -> Result<R> + Send,
    ) -> Result<R> {
        objc2::rc::autoreleasepool(|_| work())
    }

    fn reserved(&self) -> Option<ByteSize> {
        Some(ByteSize(self.device.reserved()))
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

    fn expect_pages(&self, pages: &mut Pages, most: usize) {
        pages.expected = most;
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

    fn states(&self, spec: &RecurrentSpec) -> Result<States> {
        Ok(States::new(spec))
    }

    fn add_state(&self, states: &mut States, number: u32) -> Result<()> {
        states.add(&self.device, number)
    }

    fn read_state(&self, stream: &mut Stream, states: &States, number: u32, out: &mut Vec<u8>) -> Result<()> {
        states.read(stream, number, out)
    }

    fn write_state(&self, stream: &mut Stream, states: &mut States, number: u32, from: &[u8]) -> Result<()> {
        states.write(stream, number, from)
    }

    fn split_heads(
        &self,
        stream: &mut Stream,
        x: &Buffer,
        head_dim: usize,
        rows: usize,
        out: [&mut Buffer; 2],
    ) -> Result<()> {
        states::split_heads(stream, x, head_dim, rows, out)
    }

    fn recur(
        &self,
        stream: &mut Stream,
        op: &Recur<'_, Self>,
        states: &mut States,
        out: &mut Buffer,
    ) -> Result<()> {
        states::recur(self, stream, op, states, out)
    }

    fn matrix(&self, weight: Region, bias: Option<Vec<f32>>) -> Result<Matrix> {
        Matrix::new(self, &weight, bias).map_err(|e| e.with("tensor", weight.name()))
    }

    fn stack(&self, weights: Vec<Region>, biases: Option<Vec<f32>>) -> Result<Stack> {
        Stack::new(self, &weights, biases)
    }

    fn expect(&self, what: Expected<'_, Self>) -> Result<()> {
        match what {
            Expected::Products(matrices) => matrix::expect_products(self, matrices),
            Expected::GatedBlock(activation, matrices) => matrix::expect_gated(self, activation, matrices),
            Expected::Experts { activation, on_input, gate, up, down } => {
                experts::expect(self, (activation, on_input), gate, up, down)
            }
        }
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
        rows::read(stream, x, out)
    }

    fn gather(&self, stream: &mut Stream, x: &Buffer, from: &[usize], out: &mut Buffer) -> Result<()> {
        rows::gather(stream, x, from, out)
    }

    fn concat(&self, stream: &mut Stream, parts: [&Buffer; 2], rows: usize, out: &mut Buffer) -> Result<()> {
        rows::concat(stream, parts, rows, out)
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
        stream.norm(x.strided(), (weight, eps), [rows, x.width], out.strided())
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
        x.add(stream, (y, 1.0), Some(norm), rows)
    }

    fn scale(&self, stream: &mut Stream, x: &mut Buffer, factor: f32, rows: usize) -> Result<()> {
        let y = (&self.unread, 0);
        elementwise(stream, Elementwise::Scale, y, x.strided(), [rows, x.width], [factor, 0.0])
    }

    fn add(&self, stream: &mut Stream, x: &mut Buffer, y: &Buffer, scale: f32, rows: usize) -> Result<()> {
        x.add(stream, (y, scale), None, rows)
    }

    fn blend(
        &self,
        stream: &mut Stream,
        op: &Blend<'_, Self>,
        rows: usize,
        out: &mut [Buffer],
    ) -> Result<()> {
        streams::blend(self, stream, op, rows, out)
    }

    fn match_size(
        &self,
        stream: &mut Stream,
        x: &mut Buffer,
        like: &Buffer,
        least: f32,
        rows: usize,
    ) -> Result<()> {
        streams::match_size(stream, x, like, least, rows)
    }

    fn scale_elements(&self, stream: &mut Stream, x: &mut Buffer, by: &Block, rows: usize) -> Result<()> {
        streams::scale_elements(stream, x, by, rows)
    }

    fn cut_off(&self, stream: &mut Stream, x: &mut Buffer, deviations: f32, rows: usize) -> Result<()> {
        streams::cut_off(stream, x, deviations, rows)
    }

    fn gate_heads(
        &self,
        stream: &mut Stream,
        x: &mut Buffer,
        gate: &Buffer,
        head_dim: usize,
        rows: usize,
    ) -> Result<()> {
        rows::gate_heads(stream, x, gate, head_dim, rows)
    }

    fn linear(
        &self,
        stream: &mut Stream,
        x: &Buffer,
        rows: usize,
        products: &mut [(&Matrix, &mut Buffer)],
    ) -> Result<()> {
        matrix::multiply_all(self, stream, x, rows, products)
    }

    fn gated_block(
        &self,
        stream: &mut Stream,
        activation: Activation,
        (x, rows): (&Buffer, usize),
        [to_gate, to_up]: [&Matrix; 2],
        [gate, up]: &mut [Buffer; 2],
        products: &mut [(&Matrix, &mut Buffer)],
    ) -> Result<()> {
        let what = Elementwise::activation(activation);
        if matrix::gated(self, stream, what, x, [to_gate, to_up], rows, gate)?.is_none() {
            self.linear(stream, x, rows, &mut [(to_gate, &mut *gate), (to_up, &mut *up)])?;
            self.gated(stream, activation, gate, up, rows)?;
        }
        self.linear(stream, gate, rows, products)
    }

    fn linear_heads(
        &self,
        stream: &mut Stream,
        weights: &Stack,
        x: &Buffer,
        rows: usize,
        out: &mut Buffer,
    ) -> Result<()> {
        weights.multiply_heads(stream, x, rows, out)
    }

    fn top(
        &self,
        stream: &mut Stream,
        op: &Head<'_, Self>,
        x: &Buffer,
        rows: usize,
        out: TopLogits<'_>,
    ) -> Result<()> {
        logits::top(self, stream, op, x, rows, out)
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

    fn write_routes(&self, stream: &mut Stream, from: &Routes, out: &mut DeviceRoutes) -> Result<()> {
        out.write(stream, from)
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
        rows::angles(stream, [frequencies, amplitudes], positions, out)
    }

    fn norm_rope(
        &self,
        stream: &mut Stream,
        op: &NormRope<'_, Self>,
        angles: Option<&Buffer>,
        rows: usize,
        x: &mut Buffer,
    ) -> Result<()> {
        rows::norm_rope(self, stream, op, angles, rows, x)
    }

    fn layer_norm(
        &self,
        stream: &mut Stream,
        norm: ([&Block; 2], f32),
        rows: usize,
        x: &mut Buffer,
    ) -> Result<()> {
        choose::layer_norm(stream, norm, rows, x)
    }

    fn choose(
        &self,
        stream: &mut Stream,
        op: &Choose<'_, Self>,
        pages: &mut Pages,
        out: &mut Chosen,
    ) -> Result<()> {
        choose::choose(stream, op, pages, out)
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
        attention::attend(self, stream, op, (q, kv, None), pages, out)
    }

    fn attend_turned(
        &self,
        stream: &mut Stream,
        op: &Attend<'_, Self>,
        (turns, rows): (&[Option<Turn<'_, Self>>; 3], usize),
        (q, kv): (&mut Buffer, Option<[&mut Buffer; 2]>),
        pages: &mut Pages,
        out: &mut Buffer,
    ) -> Result<()> {
        if let (Some([k, v]), Some(turned)) =
            (&kv, Turned::new(self, op.attention, (turns, rows), &pages.spec))
        {
            let rows = (&*q, Some([&**k, &**v]), Some(turned));
            return attention::attend(self, stream, op, rows, pages, out);
        }
        let (q, kv) = turn(self, stream, (turns, rows), (q, kv))?;
        self.attend(stream, op, q, kv, pages, out)
    }
}

#[cfg(test)]
mod tests;
