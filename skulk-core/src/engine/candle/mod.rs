//! Which operations do candle's tensors offer on a device? CUDA, Metal, and the CPU as the oracle of the others.
//!
//! Operations are queued on the device and produce new tensors; a [`Buffer`] is the slot that holds
//! the latest one. Only [`read`](Backend::read) waits for the device.
//!
//! A row's value never depends on other rows, but its last bits may: the device's libraries choose
//! their summation order by the number of rows, hence [`Backend::EXACT_ROWS`] is false.

mod attention;
mod buffer;
mod chosen;
mod device;
mod elements;
mod experts;
mod matrix;
mod recurrence;
mod states;
mod triangles;

use candle_core::{D, Device, Error as CandleError, Result as CandleResult, Tensor};
use candle_nn::ops;

use self::attention::Pages;
use self::buffer::Buffer;
use self::chosen::Chosen;
use self::device::failed;
use self::elements::{gated, softcap};
use self::matrix::Matrix;
use self::states::States;
use self::triangles::TrianglesOf;
use crate::arch::{Activation, RecurrentSpec};
use crate::engine::backend::{
    Attend, Backend, Blend, Choose, Experts, NormRope, PageSpec, Recur, Routes, Routing, with_rows,
};
use crate::engine::turns::Turns;
use crate::engine::{KvType, StepCx};
use crate::error::Result;
use crate::ids::TokenId;
use crate::weights::Region;

/// A device that candle has kernels for.
pub(crate) struct Tensors {
    device: Device,
    /// Products with quantised weights do not round activations.
    precise: bool,
    /// On the CPU: the threads it computes with, in place of the process's.
    threads: Option<rayon::ThreadPool>,
    /// On the CPU: whose step has the threads. Who waits for them in their own queue could not be woken.
    turns: Turns,
    /// Constants of rows that change states.
    triangles: TrianglesOf,
}

impl Tensors {
    /// Values of the host on the device.
    fn upload<S: Into<candle_core::Shape>>(&self, values: Vec<f32>, shape: S) -> CandleResult<Tensor> {
        Tensor::from_vec(values, shape, &self.device)
    }
}

impl Backend for Tensors {
    type Buffer = Buffer;
    type Matrix = Matrix;
    type Vector = Tensor;
    type Pages = Pages;
    type Stack = Vec<Matrix>;
    type Routes = Routes;
    type States = States;
    type Chosen = Chosen;
    type Stream = ();

    const EXACT_ROWS: bool = false;
    const KV_TYPES: &'static [KvType] = &[KvType::F16, KvType::BF16, KvType::F32];
    const RELEASES_PAGES: bool = true;

    fn run<R: Send>(&self, cx: &StepCx<'_>, work: impl FnOnce() -> Result<R> + Send) -> Result<R> {
        match &self.threads {
            Some(threads) => {
                let _turn = self.turns.take(cx)?;
                threads.install(work)
            }
            None => work(),
        }
    }

    fn buffer(&self, rows: usize, width: usize) -> Result<Buffer> {
        Ok(Buffer::new(rows, width))
    }

    fn stream(&self, _rows: usize, _width: usize) -> Result<()> {
        Ok(())
    }

    fn pages(&self, spec: &PageSpec) -> Result<Pages> {
        if [spec.kv.keys, spec.kv.values].contains(&KvType::BF16) {
            attention::check_bfloat16(&self.device)?;
        }
        Pages::new(spec)
    }

    fn add_page(&self, pages: &mut Pages, page: u32) -> Result<()> {
        pages.add(&self.device, page)
    }

    fn release_page(&self, pages: &mut Pages, page: u32) {
        pages.release(page);
    }

    fn page_layout(&self) -> String {
        "candle 1".to_owned()
    }

    fn read_pages(
        &self,
        _: &mut (),
        pages: &Pages,
        numbers: &[u32],
        rows: usize,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        with_rows(numbers, rows).try_for_each(|(page, rows)| pages.read(page, rows, out)).map_err(failed)
    }

    fn write_page(&self, _: &mut (), pages: &mut Pages, page: u32, from: &[u8]) -> Result<()> {
        pages.write(&self.device, page, from).map_err(failed)
    }

    fn copy_page(&self, _: &mut (), pages: &mut Pages, from: u32, to: u32) -> Result<()> {
        pages.copy(from, to).map_err(failed)
    }

    fn states(&self, spec: &RecurrentSpec) -> Result<States> {
        States::new(&self.device, spec)
    }

    fn add_state(&self, states: &mut States, number: u32) -> Result<()> {
        states.add(&self.device, number)
    }

    fn release_state(&self, states: &mut States, number: u32) {
        states.release(number);
    }

    fn read_state(&self, _: &mut (), states: &States, number: u32, out: &mut Vec<u8>) -> Result<()> {
        states.read(number, out)
    }

    fn write_state(&self, _: &mut (), states: &mut States, number: u32, from: &[u8]) -> Result<()> {
        states.write(&self.device, number, from)
    }

    fn split_heads(
        &self,
        _: &mut (),
        x: &Buffer,
        head_dim: usize,
        rows: usize,
        out: [&mut Buffer; 2],
    ) -> Result<()> {
        let halves = x.rows(0, rows).and_then(|x| elements::halves(&x, head_dim)).map_err(failed)?;
        out.into_iter().zip(halves).try_for_each(|(out, half)| out.put(Ok(half)))
    }

    fn recur(&self, _: &mut (), op: &Recur<'_, Self>, states: &mut States, out: &mut Buffer) -> Result<()> {
        states::recur(self, op, states, out)
    }

    fn matrix(&self, weight: Region, bias: Option<Vec<f32>>) -> Result<Matrix> {
        Matrix::new(&self.device, &weight, bias, self.precise).map_err(|e| e.with("tensor", weight.name()))
    }

    fn stack(&self, weights: Vec<Region>, biases: Option<Vec<f32>>) -> Result<Vec<Matrix>> {
        let mut biases = biases.as_deref();
        let with_bias = weights.into_iter().map(|weight| {
            let own = biases.as_mut().and_then(|all| all.split_off(..weight.rows()));
            self.matrix(weight, own.map(<[f32]>::to_vec))
        });
        with_bias.collect()
    }

    fn routes(&self, _rows: usize, _n_used: usize) -> Result<Routes> {
        Ok(Routes::default())
    }

    fn vector(&self, values: Vec<f32>) -> Result<Tensor> {
        let len = values.len();
        self.upload(values, len).map_err(failed)
    }

    fn write(&self, _: &mut (), host: &[f32], out: &mut Buffer) -> Result<()> {
        let width = out.width();
        let shape = (host.len() / width.max(1), width);
        out.put(Tensor::from_slice(host, shape, &self.device))
    }

    fn read(&self, _: &mut (), x: &Buffer, out: &mut [f32]) -> Result<()> {
        let values = x.host(out.len()).map_err(failed)?;
        out.copy_from_slice(&values);
        Ok(())
    }

    fn gather(&self, _: &mut (), x: &Buffer, from: &[usize], out: &mut Buffer) -> Result<()> {
        let indices: Vec<u32> = from.iter().map(|&row| row as u32).collect();
        let end = from.iter().max().map_or(0, |&last| last + 1);
        let gathered = x
            .rows(0, end)
            .and_then(|x| x.index_select(&Tensor::from_vec(indices, from.len(), &self.device)?, 0));
        out.put(gathered)
    }

    fn concat(&self, _: &mut (), [a, b]: [&Buffer; 2], rows: usize, out: &mut Buffer) -> Result<()> {
        let both = a.rows(0, rows).and_then(|a| Tensor::cat(&[a, b.rows(0, rows)?], 1));
        out.put(both)
    }

    fn embed(
        &self,
        _: &mut (),
        table: &Matrix,
        tokens: &[TokenId],
        scale: f32,
        out: &mut Buffer,
    ) -> Result<()> {
        let ids = tokens.iter().map(|token| token.0).collect();
        let rows = Tensor::from_vec(ids, tokens.len(), &self.device)
            .and_then(|ids| table.rows(&ids))
            .and_then(|rows| if scale == 1.0 { Ok(rows) } else { rows * f64::from(scale) });
        out.put(rows)
    }

    fn rms_norm(
        &self,
        _: &mut (),
        x: &Buffer,
        weight: &Tensor,
        eps: f32,
        rows: usize,
        out: &mut Buffer,
    ) -> Result<()> {
        out.put(x.rows(0, rows).and_then(|x| ops::rms_norm(&x, weight, eps)))
    }

    fn scale(&self, _: &mut (), x: &mut Buffer, factor: f32, rows: usize) -> Result<()> {
        x.update(rows, |x| x * f64::from(factor))
    }

    fn add(&self, _: &mut (), x: &mut Buffer, y: &Buffer, scale: f32, rows: usize) -> Result<()> {
        x.update(rows, |x| match scale {
            1.0 => x + y.rows(0, rows)?,
            _ => x + (y.rows(0, rows)? * f64::from(scale))?,
        })
    }

    fn blend(&self, _: &mut (), op: &Blend<'_, Self>, rows: usize, out: &mut [Buffer]) -> Result<()> {
        elements::blend(op, rows, out)
    }

    fn match_size(&self, _: &mut (), x: &mut Buffer, like: &Buffer, least: f32, rows: usize) -> Result<()> {
        x.update(rows, |x| elements::match_size(&x, &like.rows(0, rows)?, least))
    }

    fn scale_elements(&self, _: &mut (), x: &mut Buffer, by: &Tensor, rows: usize) -> Result<()> {
        x.update(rows, |x| x.broadcast_mul(by))
    }

    fn cut_off(&self, _: &mut (), x: &mut Buffer, deviations: f32, rows: usize) -> Result<()> {
        x.update(rows, |x| elements::cut_off(&x, deviations))
    }

    fn gate_heads(
        &self,
        _: &mut (),
        x: &mut Buffer,
        gate: &Buffer,
        head_dim: usize,
        rows: usize,
    ) -> Result<()> {
        x.update(rows, |x| {
            let (_, width) = x.dims2()?;
            let share = candle_nn::ops::sigmoid(&gate.rows(0, rows)?.unsqueeze(D::Minus1)?)?;
            x.reshape((rows, (), head_dim))?.broadcast_mul(&share)?.reshape((rows, width))
        })
    }

    fn linear(
        &self,
        _stream: &mut (),
        x: &Buffer,
        rows: usize,
        products: &mut [(&Matrix, &mut Buffer)],
    ) -> Result<()> {
        let x = x.rows(0, rows).map_err(failed)?;
        products.iter_mut().try_for_each(|(matrix, out)| out.put(matrix.multiply(&x)))
    }

    fn gated(
        &self,
        _: &mut (),
        activation: Activation,
        gate: &mut Buffer,
        up: &Buffer,
        rows: usize,
    ) -> Result<()> {
        gate.update(rows, |gate| match activation.is_gated() {
            true => gated(activation, &gate, &up.rows(0, rows)?),
            // A block of one projection has nothing in the other's buffer.
            false => gated(activation, &gate, &gate),
        })
    }

    fn route(
        &self,
        stream: &mut (),
        op: &Routing<'_, Self>,
        logits: &Buffer,
        rows: usize,
        out: &mut Routes,
    ) -> Result<()> {
        let values = |vector: Option<&Tensor>| -> Result<Vec<f32>> {
            Ok(vector.map(Tensor::to_vec1).transpose().map_err(failed)?.unwrap_or_default())
        };
        let (correction, scales) = (values(op.correction)?, values(op.scales)?);
        out.select(op.spec, [&correction, &scales], rows, |host| self.read(stream, logits, host))
    }

    fn read_routes(&self, _: &mut (), routes: &Routes, _rows: usize, out: &mut Routes) -> Result<()> {
        out.copy(routes);
        Ok(())
    }

    fn write_routes(&self, _: &mut (), from: &Routes, out: &mut Routes) -> Result<()> {
        out.copy(from);
        Ok(())
    }

    fn experts(
        &self,
        _stream: &mut (),
        op: &Experts<'_, Self>,
        x: &Buffer,
        rows: usize,
        out: &mut Buffer,
    ) -> Result<()> {
        out.put(x.rows(0, rows).and_then(|x| experts::experts(&self.device, op, &x)))
    }

    fn linear_heads(
        &self,
        _: &mut (),
        weights: &Vec<Matrix>,
        x: &Buffer,
        rows: usize,
        out: &mut Buffer,
    ) -> Result<()> {
        out.put(x.rows(0, rows).and_then(|x| matrix::by_head(weights, &x)))
    }

    fn softcap(&self, _: &mut (), x: &mut Buffer, cap: f32, rows: usize) -> Result<()> {
        x.update(rows, |x| softcap(&x, cap))
    }

    fn angles(
        &self,
        _: &mut (),
        frequencies: &[f32],
        positions: &[usize],
        amplitudes: &[f32],
        out: &mut Buffer,
    ) -> Result<()> {
        let values = elements::angles(frequencies, positions, amplitudes);
        out.put(self.upload(values, (positions.len(), 2 * frequencies.len())))
    }

    fn norm_rope(
        &self,
        _: &mut (),
        op: &NormRope<'_, Self>,
        angles: Option<&Buffer>,
        rows: usize,
        x: &mut Buffer,
    ) -> Result<()> {
        x.update(rows, |x| elements::norm_rope(op, angles, x))
    }

    fn layer_norm(
        &self,
        _: &mut (),
        ([weight, bias], eps): ([&Tensor; 2], f32),
        rows: usize,
        x: &mut Buffer,
    ) -> Result<()> {
        x.update(rows, |x| ops::layer_norm(&x, weight, bias, eps))
    }

    fn choose(&self, _: &mut (), op: &Choose<'_, Self>, pages: &mut Pages, out: &mut Chosen) -> Result<()> {
        attention::choose(op, pages, out).map_err(failed)
    }

    fn attend(
        &self,
        _stream: &mut (),
        op: &Attend<'_, Self>,
        q: &Buffer,
        kv: Option<[&Buffer; 2]>,
        pages: &mut Pages,
        out: &mut Buffer,
    ) -> Result<()> {
        let width = op.attention.n_heads * op.attention.value_dim();
        for (at, span) in op.spans.list.iter().enumerate() {
            let rows = |x: &Buffer| x.rows(span.rows.start, span.rows.len());
            let kv = || kv.map(|[k, v]| Ok::<_, CandleError>([rows(k)?, rows(v)?])).transpose();
            let mut attend =
                || attention::attend(op, at, (rows(q)?, kv()?), pages, out.room(width, &self.device)?);
            attend().map_err(failed)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
