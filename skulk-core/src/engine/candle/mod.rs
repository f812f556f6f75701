//! Which operations do candle's tensors offer on a device? CUDA, Metal, and the CPU as the oracle of the others.
//!
//! Operations are queued on the device and produce new tensors; a [`Buffer`] is the slot that holds
//! the latest one. Only [`read`](Backend::read) waits for the device.
//!
//! A row's value never depends on other rows, but its last bits may: the device's libraries choose
//! their summation order by the number of rows, hence [`Backend::EXACT_ROWS`] is false.

mod attention;
mod experts;
mod matrix;

use std::panic::catch_unwind;

use candle_core::{D, Device, Error as CandleError, Result as CandleResult, Tensor};
use candle_nn::{ops, rotary_emb};

use self::attention::Pages;
use self::matrix::Matrix;
use crate::arch::{Activation, RopeLayout};
use crate::engine::backend::{
    Attend, Backend, Blend, Experts, NormRope, PageSpec, Routes, Routing, with_rows,
};
use crate::engine::turns::Turns;
use crate::engine::{KvType, Precision, StepCx, check_threads};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::TokenId;
use crate::math;
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
}

impl Tensors {
    /// The NVIDIA GPU of this ordinal.
    pub(crate) fn cuda(ordinal: usize, precision: Precision) -> Result<Self> {
        // One stream for all host threads: candle's default is a stream per thread, on which a
        // step could start before another thread's upload of its weights has ended.
        Self::open("CUDA", "cuda", ordinal, precision, Device::new_cuda_with_stream)
    }

    /// The Apple GPU of this ordinal.
    pub(crate) fn metal(ordinal: usize, precision: Precision) -> Result<Self> {
        Self::open("Metal", "metal", ordinal, precision, Device::new_metal)
    }

    /// The CPU, in f32 throughout, with as many threads, which end when it is dropped.
    pub(crate) fn cpu(threads: usize) -> Result<Self> {
        check_threads(threads)?;
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().map_err(|e| {
            Error::new(ErrorKind::EngineFailed, "cannot start the engine's threads").with_source(e)
        })?;
        Ok(Self { device: Device::Cpu, precise: true, threads: Some(pool), turns: Turns::default() })
    }

    fn open(
        label: &'static str,
        feature: &'static str,
        ordinal: usize,
        precision: Precision,
        make: fn(usize) -> CandleResult<Device>,
    ) -> Result<Self> {
        let precise = precision == Precision::Exact;
        let unavailable = |message: String| Error::new(ErrorKind::EngineUnavailable, message);
        // candle takes a Metal device out of a list without looking at the list's length.
        match catch_unwind(|| make(ordinal)) {
            Ok(Ok(device)) => Ok(Self { device, precise, threads: None, turns: Turns::default() }),
            Ok(Err(CandleError::NotCompiledWithCudaSupport | CandleError::NotCompiledWithMetalSupport)) => {
                Err(unavailable(format!("this build has no {label} support"))
                    .with_hint(format!("compile with the cargo feature `{feature}`")))
            }
            Ok(Err(e)) => Err(unavailable(format!("cannot use {label} device {ordinal}")).with_source(e)),
            Err(_) => Err(unavailable(format!("there is no {label} device {ordinal}"))),
        }
        .map_err(|e| e.with("device", ordinal))
    }

    /// Values of the host on the device.
    fn upload<S: Into<candle_core::Shape>>(&self, values: Vec<f32>, shape: S) -> CandleResult<Tensor> {
        Tensor::from_vec(values, shape, &self.device)
    }
}

/// A failure of candle or the device, as the library's own.
fn failed(error: CandleError) -> Error {
    const EXHAUSTED: [&str; 4] = ["out of memory", "out_of_memory", "alloc_failed", "failed to allocate"];
    let text = error.to_string().to_lowercase();
    if EXHAUSTED.iter().any(|marker| text.contains(marker)) {
        return Error::new(ErrorKind::OutOfMemory, "the device's memory is exhausted")
            .with_hint("place fewer layers on this device, or use a smaller context or prefill chunk")
            .with_source(error);
    }
    Error::new(ErrorKind::EngineFailed, "the device failed to compute").with_source(error)
}

/// A slot for rows on the device.
pub(crate) struct Buffer {
    rows: usize,
    width: usize,
    /// `[rows, width]`, each at most the slot's.
    value: Option<Tensor>,
}

impl Buffer {
    /// Rows from `start` on; contiguous.
    fn rows(&self, start: usize, rows: usize) -> CandleResult<Tensor> {
        match &self.value {
            Some(value) => value.narrow(0, start, rows),
            None => candle_core::bail!("expected activations, found an empty buffer"),
        }
    }

    /// Lets the result of a computation, if it succeeded, take the slot.
    fn put(&mut self, value: CandleResult<Tensor>) -> Result<()> {
        self.value = Some(value.map_err(failed)?);
        Ok(())
    }

    /// Replaces the slot's first rows by a function of them.
    fn update(&mut self, rows: usize, of: impl FnOnce(Tensor) -> CandleResult<Tensor>) -> Result<()> {
        let value = self.rows(0, rows).and_then(of);
        self.put(value)
    }

    /// Memory for all rows that parts are written to.
    fn room(&mut self, width: usize, device: &Device) -> CandleResult<&Tensor> {
        let shape = (self.rows, width.min(self.width));
        let kept = self.value.take().filter(|value| value.dims2().is_ok_and(|dims| dims == shape));
        let value = kept.map_or_else(|| Tensor::zeros(shape, candle_core::DType::F32, device), Ok)?;
        Ok(self.value.insert(value))
    }
}

impl Backend for Tensors {
    type Buffer = Buffer;
    type Matrix = Matrix;
    type Vector = Tensor;
    type Pages = Pages;
    type Stack = Vec<Matrix>;
    type Routes = Routes;
    type States = ();
    type Stream = ();

    const EXACT_ROWS: bool = false;
    const KV_TYPES: &'static [KvType] = &[KvType::F16, KvType::F32];
    const RELEASES_PAGES: bool = true;
    const LATENTS: bool = true;
    const STREAMS: bool = true;

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
        Ok(Buffer { rows, width, value: None })
    }

    fn stream(&self, _rows: usize, _width: usize) -> Result<()> {
        Ok(())
    }

    fn pages(&self, spec: &PageSpec) -> Result<Pages> {
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
        let shape = (host.len() / out.width.max(1), out.width);
        out.put(Tensor::from_slice(host, shape, &self.device))
    }

    fn read(&self, _: &mut (), x: &Buffer, out: &mut [f32]) -> Result<()> {
        let values = || {
            let width = x.rows(0, 1)?.dim(1)?;
            let values = x.rows(0, out.len() / width.max(1))?.flatten_all()?.to_vec1::<f32>()?;
            if values.len() != out.len() {
                candle_core::bail!("expected whole rows of {width}, found {} values", out.len());
            }
            Ok(values)
        };
        let values = values().map_err(failed)?;
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
        let shares = || {
            let by = op.by.rows(0, rows)?;
            let (_, n) = by.dims2()?;
            by.matmul(&op.weights.reshape(((), n))?.t()?)? + f64::from(op.plus)
        };
        let shares = shares().map_err(failed)?;
        for (i, out) in out.iter_mut().enumerate() {
            for (j, from) in op.from.iter().enumerate() {
                let share = shares.narrow(1, i * op.from.len() + j, 1);
                out.update(rows, |x| x + from.rows(0, rows)?.broadcast_mul(&share?)?)?;
            }
        }
        Ok(())
    }

    fn match_size(&self, _: &mut (), x: &mut Buffer, like: &Buffer, least: f32, rows: usize) -> Result<()> {
        let mean = |x: &Tensor| x.sqr()?.mean_keepdim(D::Minus1);
        x.update(rows, |x| {
            let factor = mean(&like.rows(0, rows)?)?.div(&mean(&x)?.maximum(least)?)?.sqrt()?;
            x.broadcast_mul(&factor)
        })
    }

    fn scale_elements(&self, _: &mut (), x: &mut Buffer, by: &Tensor, rows: usize) -> Result<()> {
        x.update(rows, |x| x.broadcast_mul(by))
    }

    fn cut_off(&self, _: &mut (), x: &mut Buffer, deviations: f32, rows: usize) -> Result<()> {
        x.update(rows, |x| {
            let above = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
            let deviation = above.sqr()?.mean_keepdim(D::Minus1)?.sqrt()?;
            above.broadcast_sub(&(deviation * f64::from(deviations))?)?.maximum(0f32)
        })
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
        gate.update(rows, |gate| gated(activation, &gate, &up.rows(0, rows)?))
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
        let product = || {
            let x = x.rows(0, rows)?;
            let of_head = x.dim(1)? / weights.len().max(1);
            let mut heads = Vec::new();
            for (head, weight) in weights.iter().enumerate() {
                let (x, n_in) = (x.narrow(1, head * of_head, of_head)?, weight.n_in());
                heads.push(weight.multiply(&x.narrow(1, 0, n_in)?.contiguous()?)?);
                if n_in < of_head {
                    heads.push(x.narrow(1, n_in, of_head - n_in)?);
                }
            }
            Tensor::cat(&heads, 1)
        };
        out.put(product())
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
        let mut values = Vec::with_capacity(2 * frequencies.len() * positions.len());
        for (&position, amplitude) in positions.iter().zip(amplitudes) {
            let angle = |frequency: &f32| position as f32 * frequency;
            values.extend(frequencies.iter().map(|f| amplitude * math::sin_cos(angle(f)).1));
            values.extend(frequencies.iter().map(|f| amplitude * math::sin_cos(angle(f)).0));
        }
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
        let dim = op.head_dim;
        x.update(rows, |x| {
            let (_, width) = x.dims2()?;
            let mut heads = x.reshape(((), dim))?;
            if let Some((weight, eps)) = op.norm {
                heads = ops::rms_norm(&heads, weight, eps)?;
            }
            let Some(angles) = angles else { return heads.reshape((rows, width)) };
            // Every row is a batch entry of one position, with angles of its own.
            let heads = heads.reshape((rows, (), 1, dim))?;
            let angles = angles.rows(0, rows)?;
            let half = angles.dim(1)? / 2;
            let [cos, sin] = [0, half].map(|at| angles.narrow(1, at, half)?.contiguous()?.unsqueeze(1));
            let rotate = match op.layout {
                RopeLayout::Halves => rotary_emb::rope,
                RopeLayout::Pairs => rotary_emb::rope_i,
            };
            let turning = heads.narrow(D::Minus1, op.plain, 2 * half)?.contiguous()?;
            let behind = op.plain + 2 * half;
            let parts = [
                heads.narrow(D::Minus1, 0, op.plain)?,
                rotate(&turning, &cos?, &sin?)?,
                heads.narrow(D::Minus1, behind, dim - behind)?,
            ];
            let parts: Vec<_> = parts.into_iter().filter(|part| part.elem_count() > 0).collect();
            Tensor::cat(&parts, D::Minus1)?.reshape((rows, width))
        })
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
        for span in &op.spans.list {
            let rows = |x: &Buffer| x.rows(span.rows.start, span.rows.len());
            let kv = || kv.map(|[k, v]| Ok::<_, CandleError>([rows(k)?, rows(v)?])).transpose();
            let mut attend =
                || attention::attend(op, span, (rows(q)?, kv()?), pages, out.room(width, &self.device)?);
            attend().map_err(failed)?;
        }
        Ok(())
    }
}

/// `activation(gate) · up`.
fn gated(activation: Activation, gate: &Tensor, up: &Tensor) -> CandleResult<Tensor> {
    match activation {
        Activation::Silu => gate.silu()? * up,
        Activation::ClampedSilu(limit) => gate.silu()?.minimum(limit)? * up.clamp(-limit, limit)?,
        Activation::ClampedGlu { alpha, limit } => {
            let gate = gate.minimum(limit)?;
            let share = candle_nn::ops::sigmoid(&(&gate * f64::from(alpha))?)?;
            (gate * share)? * (up.clamp(-limit, limit)? + 1.0)?
        }
        Activation::GeluTanh => gate.gelu()? * up,
        Activation::Gelu => gate.gelu_erf()? * up,
        Activation::SquaredRelu => gate.relu()?.sqr(),
    }
}

/// `cap · tanh(x / cap)`.
fn softcap(x: &Tensor, cap: f32) -> CandleResult<Tensor> {
    let cap = f64::from(cap);
    (x / cap)?.tanh()? * cap
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::conformance::{Rounds, conformance};
    use crate::weights::DType;

    impl Rounds for Tensors {
        fn rounds_to_8_bits(&self) -> bool {
            !self.precise
        }

        fn types(&self) -> Vec<DType> {
            DType::ALL
                .iter()
                .copied()
                .filter(|dtype| dtype.is_weight() && (self.precise || !dtype.is_for_cpus()))
                .collect()
        }
    }

    conformance!(Tensors::cpu(2).unwrap());

    /// Products as on GPUs: of blocks, with rounded activations.
    mod rounding {
        use super::*;
        conformance!(Tensors { precise: false, ..Tensors::cpu(1).unwrap() }; linear, padded_rows, products_of_results, experts);
    }

    #[test]
    fn failures_are_typed_and_keep_their_cause() {
        let exhausted = CandleError::Msg("DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")".into());
        assert_eq!(failed(exhausted).kind(), ErrorKind::OutOfMemory);

        let b = Tensors::cpu(1).unwrap();
        let (mut x, empty) = (b.buffer(2, 4).unwrap(), b.buffer(2, 4).unwrap());
        b.write(&mut (), &[1.0; 8], &mut x).unwrap();
        let weight = b.vector(vec![1.0; 3]).unwrap();
        let failures = [
            b.read(&mut (), &empty, &mut [0.0; 4]),
            b.read(&mut (), &x, &mut [0.0; 5]),
            b.write(&mut (), &[1.0; 5], &mut x),
            b.add(&mut (), &mut x, &empty, 1.0, 2),
            b.softcap(&mut (), &mut x, 1.0, 3),
            b.rms_norm(&mut (), &x, &weight, 1e-6, 2, &mut b.buffer(2, 4).unwrap()),
            b.gather(&mut (), &x, &[2], &mut b.buffer(2, 4).unwrap()),
        ];
        for failure in failures {
            let error = failure.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::EngineFailed);
            assert!(std::error::Error::source(&error).is_some(), "{error}");
        }
        // A failed operation leaves its operands as they were.
        let mut kept = [0.0; 8];
        b.read(&mut (), &x, &mut kept).unwrap();
        assert_eq!(kept, [1.0; 8]);
    }
}
