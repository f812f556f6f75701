//! Which operations does the CPU offer through candle's kernels?

use rayon::prelude::*;

use super::attention::{self, Cache, Partials};
use super::experts::{self, Selected};
use super::math;
use super::product::{self, Matrix, Rooms};
use crate::arch::{Activation, ExpertsSpec, RopeLayout};
use crate::engine::Precision;
use crate::engine::backend::{Attend, Backend, CacheSpec, Experts, NormRope, Routes};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::TokenId;
use crate::weights::{Region, quant};

/// Below this many elements threads cost more than they save.
const SERIAL: usize = 1 << 14;

/// The CPU: weights where they are mapped, one thread pool of the caller's size.
pub(crate) struct Cpu {
    pool: rayon::ThreadPool,
    threads: usize,
    precision: Precision,
}

impl Cpu {
    /// A pool of `threads` threads, which end when the engine is dropped.
    pub(crate) fn new(threads: usize, precision: Precision) -> Result<Self> {
        const MOST: usize = 1024;
        if !(1..=MOST).contains(&threads) {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("expected 1 to {MOST} threads, found {threads}"),
            )
            .with("field", "threads")
            .with_hint("use the number of cores you want to give to the model"));
        }
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|i| format!("skulk-cpu-{i}"))
            .build()
            .map_err(|e| {
                Error::new(ErrorKind::EngineFailed, "cannot start the engine's threads").with_source(e)
            })?;
        Ok(Self { pool, threads, precision })
    }

    /// Calls `each(row, rows of x)` for the first `rows` rows, over threads when it pays.
    fn rows(&self, x: &mut Buffer, rows: usize, each: impl Fn(usize, &mut [f32]) + Sync + Send) {
        let width = x.width;
        let data = &mut x.data[..rows * width];
        if data.len() < SERIAL || self.threads == 1 {
            data.chunks_exact_mut(width).enumerate().for_each(|(row, x)| each(row, x));
        } else {
            data.par_chunks_exact_mut(width).enumerate().for_each(|(row, x)| each(row, x));
        }
    }
}

/// Rows in ordinary memory, packed at the width of the operation that wrote them.
pub(crate) struct Buffer {
    pub(super) data: Vec<f32>,
    pub(super) width: usize,
}

impl Buffer {
    pub(super) fn row(&self, row: usize) -> &[f32] {
        &self.data[row * self.width..][..self.width]
    }
}

/// See [`Backend::Stream`].
pub(crate) struct Stream {
    pub(super) rooms: Rooms,
    pub(super) selected: Selected,
    partials: Partials,
}

impl Backend for Cpu {
    type Buffer = Buffer;
    type Matrix = Matrix;
    type Vector = Vec<f32>;
    type Cache = Cache;
    type Stack = Vec<Matrix>;
    type Routes = Routes;
    type Stream = Stream;

    const EXACT_ROWS: bool = true;

    fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.pool.install(work)
    }

    fn buffer(&self, rows: usize, width: usize) -> Result<Buffer> {
        let too_large = || {
            Error::new(ErrorKind::OutOfMemory, format!("cannot reserve {rows} rows of {width} activations"))
                .with_hint("use a smaller prefill chunk")
        };
        let len = rows.checked_mul(width).ok_or_else(too_large)?;
        // Ask first: the allocation below would end the process instead of failing. It is made
        // zeroed, as such pages exist only from their first use on: short prompts need few.
        Vec::<f32>::new().try_reserve_exact(len).map_err(|e| too_large().with_source(e))?;
        let data = vec![0.0; len];
        Ok(Buffer { data, width })
    }

    fn stream(&self, rows: usize, width: usize) -> Result<Stream> {
        Ok(Stream {
            rooms: Rooms::new(rows, width, self.threads, self.precision),
            selected: Selected::default(),
            partials: Partials::default(),
        })
    }

    fn cache(&self, spec: &CacheSpec) -> Result<Cache> {
        Cache::new(spec)
    }

    fn matrix(&self, weight: Region, bias: Option<Vec<f32>>) -> Result<Matrix> {
        weight.will_need();
        weight.expect_plain()?;
        let row_bytes = weight.row_bytes();
        Ok(Matrix::new(weight, row_bytes, bias))
    }

    fn stack(&self, weights: Vec<Region>) -> Result<Vec<Matrix>> {
        weights.into_iter().map(|weight| self.matrix(weight, None)).collect()
    }

    fn routes(&self, _rows: usize, _n_used: usize) -> Result<Routes> {
        Ok(Routes::default())
    }

    fn vector(&self, values: Vec<f32>) -> Result<Vec<f32>> {
        Ok(values)
    }

    fn write(&self, _: &mut Stream, host: &[f32], out: &mut Buffer) -> Result<()> {
        out.data[..host.len()].copy_from_slice(host);
        Ok(())
    }

    fn read(&self, _: &mut Stream, x: &Buffer, out: &mut [f32]) -> Result<()> {
        out.copy_from_slice(&x.data[..out.len()]);
        Ok(())
    }

    fn gather(&self, _: &mut Stream, x: &Buffer, from: &[usize], out: &mut Buffer) -> Result<()> {
        out.width = x.width;
        for (to, &from) in out.data.chunks_exact_mut(x.width).zip(from) {
            to.copy_from_slice(x.row(from));
        }
        Ok(())
    }

    fn embed(
        &self,
        _: &mut Stream,
        table: &Matrix,
        tokens: &[TokenId],
        scale: f32,
        out: &mut Buffer,
    ) -> Result<()> {
        out.width = table.n_in();
        let (bytes, dtype) = (table.weight.bytes(), table.weight.dtype());
        self.rows(out, tokens.len(), |row, x| {
            let at = tokens[row].0 as usize * table.row_bytes;
            quant::dequantise(dtype, &bytes[at..at + table.row_bytes], x);
            if scale != 1.0 {
                x.iter_mut().for_each(|v| *v *= scale);
            }
        });
        Ok(())
    }

    fn rms_norm(
        &self,
        _: &mut Stream,
        x: &Buffer,
        weight: &Vec<f32>,
        eps: f32,
        rows: usize,
        out: &mut Buffer,
    ) -> Result<()> {
        out.width = x.width;
        self.rows(out, rows, |row, y| math::rms_norm(x.row(row), weight, eps, y));
        Ok(())
    }

    fn add(&self, _: &mut Stream, x: &mut Buffer, y: &Buffer, rows: usize) -> Result<()> {
        self.rows(x, rows, |row, x| x.iter_mut().zip(y.row(row)).for_each(|(x, y)| *x += y));
        Ok(())
    }

    fn linear(
        &self,
        stream: &mut Stream,
        x: &Buffer,
        rows: usize,
        products: &mut [(&Matrix, &mut Buffer)],
    ) -> Result<()> {
        for (matrix, out) in products {
            out.width = matrix.n_out();
            product::multiply(&mut stream.rooms, matrix, &x.data, rows, &mut out.data);
        }
        Ok(())
    }

    fn gated(
        &self,
        _: &mut Stream,
        activation: Activation,
        gate: &mut Buffer,
        up: &Buffer,
        rows: usize,
    ) -> Result<()> {
        self.rows(gate, rows, |row, gate| math::gated(activation, gate, up.row(row)));
        Ok(())
    }

    fn route(
        &self,
        stream: &mut Stream,
        spec: &ExpertsSpec,
        logits: &Buffer,
        rows: usize,
        out: &mut Routes,
    ) -> Result<()> {
        out.select(spec, rows, |host| self.read(stream, logits, host))
    }

    fn read_routes(&self, _: &mut Stream, routes: &Routes, _rows: usize, out: &mut Routes) -> Result<()> {
        out.copy(routes);
        Ok(())
    }

    fn experts(
        &self,
        stream: &mut Stream,
        op: &Experts<'_, Self>,
        x: &Buffer,
        rows: usize,
        inner: &mut [Buffer; 2],
        out: &mut Buffer,
    ) -> Result<()> {
        experts::experts(stream, op, x, rows, inner, out)
    }

    fn softcap(&self, _: &mut Stream, x: &mut Buffer, cap: f32, rows: usize) -> Result<()> {
        self.rows(x, rows, |_, x| x.iter_mut().for_each(|v| *v = cap * math::tanh(*v / cap)));
        Ok(())
    }

    fn angles(
        &self,
        _: &mut Stream,
        frequencies: &[f32],
        positions: &[usize],
        out: &mut Buffer,
    ) -> Result<()> {
        self.rows(out, positions.len(), |row, x| {
            let (cos, sin) = x.split_at_mut(frequencies.len());
            for ((cos, sin), frequency) in cos.iter_mut().zip(sin).zip(frequencies) {
                (*sin, *cos) = (positions[row] as f32 * frequency).sin_cos();
            }
        });
        Ok(())
    }

    fn norm_rope(
        &self,
        _: &mut Stream,
        op: &NormRope<'_, Self>,
        angles: &Buffer,
        rows: usize,
        x: &mut Buffer,
    ) -> Result<()> {
        let half = angles.width / 2;
        self.rows(x, rows, |row, x| {
            let (cos, sin) = angles.row(row).split_at(half);
            for head in x.chunks_exact_mut(op.head_dim) {
                if let Some((weight, eps)) = op.norm {
                    let scale = math::rms_scale(head, eps);
                    head.iter_mut().zip(weight).for_each(|(x, w)| *x *= scale * w);
                }
                match op.layout {
                    RopeLayout::Halves => {
                        let (first, second) = head[..2 * half].split_at_mut(half);
                        for (((a, b), cos), sin) in first.iter_mut().zip(second).zip(cos).zip(sin) {
                            (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
                        }
                    }
                    RopeLayout::Pairs => {
                        for ((pair, cos), sin) in head[..2 * half].chunks_exact_mut(2).zip(cos).zip(sin) {
                            let (a, b) = (pair[0], pair[1]);
                            pair[0] = a * cos - b * sin;
                            pair[1] = b * cos + a * sin;
                        }
                    }
                }
            }
        });
        Ok(())
    }

    fn attend(
        &self,
        stream: &mut Stream,
        op: &Attend<'_, Self>,
        qkv: [&Buffer; 3],
        cache: &mut Cache,
        out: &mut Buffer,
    ) -> Result<()> {
        out.width = op.attention.n_heads * op.attention.head_dim;
        let qkv = qkv.map(|x| x.data.as_slice());
        attention::attend(&mut stream.partials, self.threads, op, qkv, cache, &mut out.data);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Cpu;
    use crate::engine::Precision;
    use crate::engine::conformance::{Rounds, conformance};

    impl Rounds for Cpu {}

    mod one_thread {
        use super::*;
        conformance!(Cpu::new(1, Precision::Fast).unwrap());
    }

    mod two_threads {
        use super::*;
        conformance!(Cpu::new(2, Precision::Fast).unwrap());
    }

    mod exact {
        use super::*;
        conformance!(Cpu::new(2, Precision::Exact).unwrap());
    }
}
