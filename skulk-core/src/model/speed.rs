//! How fast does a device compute what models take of it? Measured with the decoder's own operations.

use std::thread::{Builder, ScopedJoinHandle};
use std::time::{Duration, Instant};

use crate::arch::{Activation, AttentionSpec, CHUNK, PAGE, RopeLayout};
use crate::cancel::CancelToken;
use crate::engine::backend::{Attend, Backend, NormRope, PageSpec, Spans, Turn};
use crate::engine::{DeviceSpeed, StepCx};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::BETWEEN;
use crate::weights::{DType, Region};

/// What is timed at once takes so long at least: less says little where work is handed over.
const LONG: Duration = Duration::from_millis(2);
/// How often it is timed. What is in the middle counts: models meet the same other work on the machine.
const ROUNDS: usize = 5;
/// On slow devices fewer, which are not begun after so long.
const PATIENCE: Duration = Duration::from_millis(100);
/// How often at most something is done for it, however short it seems to take.
const MOST: usize = 1 << 20;
/// Blocks of 4 and of 6 bits, as most models have them.
const DTYPES: [DType; 2] = [DType::Q4_K, DType::Q6_K];
/// Elements of the rows of weights that are read: 122 MB in all, more than most caches hold.
const WIDTH: usize = 1024;
/// Rows of a matrix, and matrices of each type that are read in turn, in such pieces as large models have.
const TALL: usize = 21 * 1024;
const MATRICES: usize = 4;
/// Elements of a layer's rows that a prompt passes through, at first and at most: as many as give a device enough to do.
const WIDTHS: [usize; 2] = [512, 4096];
const ENOUGH: Duration = Duration::from_millis(4);
/// Matrices of a layer, each of `width` times `width` weights: of queries, keys, values, what was attended to, and the
/// feed-forward block's three.
const PRODUCTS: usize = 7;
/// What a layer's rows are where nothing but its operations takes time.
const SMALL: usize = 256;
/// Elements of a head.
const HEAD: usize = 128;
/// Sequences that a prompt's rows are of: so short that attention, which plans count apart, takes next to nothing.
const SEQUENCES: usize = 16;

/// Measures a backend, which may be a processor's. Takes 122 MB of main memory, up to 190 MB for fast devices, for rows up to
/// 40 MB, and where weights are copied up to 310 MB more, of the device's memory.
pub(super) fn measure<B: Backend>(backend: &B, is_processor: bool) -> Result<DeviceSpeed> {
    // Most of the time goes into having the system find pages.
    let matrices = std::thread::scope(|scope| {
        let make = |dtype| move || weights(dtype, [TALL, WIDTH]);
        let dtypes = DTYPES.into_iter().cycle().take(MATRICES * DTYPES.len());
        let made: Vec<_> =
            dtypes.map(|dtype| (dtype, Builder::new().spawn_scoped(scope, make(dtype)))).collect();
        let matrices = made.into_iter().map(|(dtype, made)| match made.map(ScopedJoinHandle::join) {
            Ok(Ok(matrix)) => matrix,
            _ => make(dtype)(),
        });
        matrices.collect::<Result<Vec<_>>>()
    })?;
    let squares: Vec<_> = matrices.iter().flat_map(cut).collect();
    // As steps are run: on the device's threads, and in turns with others.
    let never = CancelToken::new();
    let found = backend.run(&StepCx::new(&never), || {
        let mut reading = Reading::new(backend, &matrices)?;
        let mut layers = Layers::new(backend, 1, &squares)?;
        let (width, mut prompt) = prompt(backend)?;
        let small = weights(DTYPES[0], [PRODUCTS * SMALL, SMALL])?;
        let mut alone = Layers::new(backend, 1, &cut(&small))?;
        let [read, passed, computed, trip] = timed([
            &mut |times| reading.pass(times),
            &mut |times| layers.pass(times),
            &mut |times| prompt.pass(times),
            &mut |times| (0..times).try_for_each(|_| alone.pass(1)),
        ])?;
        let bytes: usize = matrices.iter().map(|matrix| matrix.bytes().len()).sum();
        let between = if is_processor { BETWEEN } else { 0.0 };
        let operations = CHUNK as f64 * width as f64 * ((2 * PRODUCTS * width) as f64 + between);
        // What layers take beyond reading their weights: operations begin with memory that nobody asked for yet.
        let beyond = passed.iter().zip(&read).map(|(all, read)| (all - read).max(0.01 * all)).collect();
        let layer = middle(beyond) / layers.n() as f64;
        Ok([bytes as f64 / middle(read), operations / middle(computed), layer, middle(trip)])
    })?;
    let [bytes_per_second, operations_per_second, layer_seconds, round_trip_seconds] = found;
    match found.iter().all(|it| it.is_finite() && *it > 0.0) {
        true => {
            Ok(DeviceSpeed { bytes_per_second, operations_per_second, layer_seconds, round_trip_seconds })
        }
        false => Err(Error::new(ErrorKind::EngineFailed, "the device's clock does not go on")),
    }
}

/// A matrix `[out, in]`, whatever its values.
fn weights(dtype: DType, shape: [usize; 2]) -> Result<Region> {
    Region::filled(dtype, &shape, 1)
}

/// The square matrices of one that is a multiple as tall as it is wide.
fn cut(weights: &Region) -> Vec<Region> {
    let width = weights.row_len();
    (0..weights.rows() / width).map(|at| weights.row_range(at * width..(at + 1) * width)).collect()
}

/// What is timed: it queues its work so many times, and waits for it.
type Work<'w> = &'w mut dyn FnMut(usize) -> Result<()>;

/// Seconds of one of each, round by round. The last one is an answer, which the others wait for once.
fn timed<const N: usize>(mut works: [Work<'_>; N]) -> Result<[Vec<f64>; N]> {
    let time = |work: &mut Work<'_>, times: usize| {
        let start = Instant::now();
        work(times)?;
        Ok::<_, Error>(start.elapsed())
    };
    let (mut times, mut taken) = ([1; N], [const { Vec::new() }; N]);
    for ((work, times), taken) in works.iter_mut().zip(&mut times).zip(&mut taken) {
        let mut all = time(work, *times)?;
        while all < LONG && *times < MOST {
            let wanted = LONG.as_nanos() / all.as_nanos().max(1);
            *times = times.saturating_mul(wanted as usize + 1).min(MOST);
            all = time(work, *times)?;
        }
        taken.push(all.as_secs_f64());
    }
    // In turns: what else the machine does for a while makes all of them longer.
    let start = Instant::now();
    for _ in 1..ROUNDS {
        if start.elapsed() > PATIENCE {
            break;
        }
        for ((work, times), taken) in works.iter_mut().zip(times).zip(&mut taken) {
            taken.push(time(work, times)?.as_secs_f64());
        }
    }
    let answer = middle(taken[N - 1].clone()) / times[N - 1] as f64;
    for (at, (taken, times)) in taken.iter_mut().zip(times).enumerate() {
        for all in taken {
            let waited = if at == N - 1 { 0.0 } else { answer.min(*all / 2.0) };
            *all = (*all - waited) / times as f64;
        }
    }
    Ok(taken)
}

/// The one in the middle; of an even number the shorter one.
fn middle(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds.get(seconds.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}

/// Weights that one row is multiplied with.
struct Reading<'b, B: Backend> {
    backend: &'b B,
    matrices: Vec<B::Matrix>,
    stream: B::Stream,
    x: B::Buffer,
    out: B::Buffer,
    host: Vec<f32>,
}

impl<'b, B: Backend> Reading<'b, B> {
    fn new(backend: &'b B, weights: &[Region]) -> Result<Self> {
        let matrix = |weights: &Region| backend.matrix(weights.clone(), None);
        let mut reading = Self {
            backend,
            matrices: weights.iter().map(matrix).collect::<Result<_>>()?,
            stream: backend.stream(1, WIDTH)?,
            x: backend.buffer(1, WIDTH)?,
            out: backend.buffer(1, TALL)?,
            host: vec![0.0; TALL],
        };
        backend.write(&mut reading.stream, &[1.0; WIDTH], &mut reading.x)?;
        // Threads, kernels and memory are there from the first one on.
        reading.pass(1)?;
        Ok(reading)
    }

    /// Through all weights, so many times.
    fn pass(&mut self, times: usize) -> Result<()> {
        for _ in 0..times {
            for matrix in &self.matrices {
                self.backend.linear(&mut self.stream, &self.x, 1, &mut [(matrix, &mut self.out)])?;
            }
        }
        self.backend.read(&mut self.stream, &self.out, &mut self.host)
    }
}

/// A layer for a prompt's rows that takes the device a while, and its width.
fn prompt<B: Backend>(backend: &B) -> Result<(usize, Layers<'_, B>)> {
    let [mut width, most] = WIDTHS;
    loop {
        let mut layer = Layers::new(backend, CHUNK, &cut(&weights(DTYPES[0], [PRODUCTS * width, width])?))?;
        let start = Instant::now();
        layer.pass(1)?;
        if start.elapsed() >= ENOUGH || width >= most {
            return Ok((width, layer));
        }
        width *= 2;
    }
}

/// Layers, and rows that pass through them.
struct Layers<'b, B: Backend> {
    backend: &'b B,
    spec: AttentionSpec,
    rows: usize,
    weights: Vec<[B::Matrix; PRODUCTS]>,
    norm: B::Vector,
    stream: B::Stream,
    pages: B::Pages,
    spans: Spans,
    angles: B::Buffer,
    x: B::Buffer,
    y: B::Buffer,
    normed: B::Buffer,
    heads: [B::Buffer; 3],
    inner: [B::Buffer; 2],
    /// Of one row: what a device has computed stays there.
    host: Vec<f32>,
}

impl<'b, B: Backend> Layers<'b, B> {
    /// Of square matrices, [`PRODUCTS`] for each layer.
    fn new(backend: &'b B, rows: usize, matrices: &[Region]) -> Result<Self> {
        let width = matrices.first().map_or(0, Region::row_len);
        let spec = AttentionSpec::plain([width / HEAD; 2], HEAD);
        let buffer = || backend.buffer(rows, width);
        let matrix = |weights: &Region| backend.matrix(weights.clone(), None);
        let (layers, _) = matrices.as_chunks::<PRODUCTS>();
        let layer = |[q, k, v, o, gate, up, down]: &[Region; PRODUCTS]| {
            Ok([matrix(q)?, matrix(k)?, matrix(v)?, matrix(o)?, matrix(gate)?, matrix(up)?, matrix(down)?])
        };
        let mut pages = backend.pages(&PageSpec::new(&spec, B::KV_TYPES[0]))?;
        let mut spans = Spans::default();
        let each = rows.div_ceil(SEQUENCES);
        const { assert!(CHUNK.div_ceil(SEQUENCES) <= PAGE, "a page for each sequence") };
        for page in 0..rows.div_ceil(each) as u32 {
            backend.add_page(&mut pages, page)?;
            spans.push(each.min(rows - page as usize * each), 0, 0, page..page + 1);
        }
        let mut layers = Self {
            backend,
            rows,
            weights: layers.iter().map(layer).collect::<Result<_>>()?,
            norm: backend.vector(vec![1.0; width])?,
            stream: backend.stream(rows, width)?,
            pages,
            spans,
            angles: buffer()?,
            x: buffer()?,
            y: buffer()?,
            normed: buffer()?,
            heads: [buffer()?, buffer()?, buffer()?],
            inner: [buffer()?, buffer()?],
            host: vec![0.0; width],
            spec,
        };
        backend.write(&mut layers.stream, &vec![1.0; rows * width], &mut layers.x)?;
        let positions: Vec<usize> = (0..rows).map(|row| row % each).collect();
        let turns = vec![1.0; HEAD / 2];
        backend.angles(&mut layers.stream, &turns, &positions, &vec![1.0; rows], &mut layers.angles)?;
        layers.pass(1)?;
        Ok(layers)
    }

    fn n(&self) -> usize {
        self.weights.len()
    }

    /// Through all of them, so many times.
    fn pass(&mut self, times: usize) -> Result<()> {
        let Self { backend, rows, weights, norm, stream, x, y, normed, .. } = self;
        let (rows, norm) = (*rows, (&*norm, 1e-5));
        for [q, k, v, o, gate, up, down] in (0..times).flat_map(|_| weights.iter()) {
            let [query, keys, values] = &mut self.heads;
            let mut products = [(q, &mut *query), (k, &mut *keys), (v, &mut *values)];
            backend.norm_linear(stream, x, norm, normed, rows, &mut products)?;
            let op = || NormRope { head_dim: HEAD, plain: 0, norm: None, layout: RopeLayout::Halves };
            let turn = || Some(Turn { op: op(), angles: Some(&self.angles) });
            let attended = Attend { attention: &self.spec, sinks: None, spans: &self.spans, chosen: None };
            let (turns, heads) = ([turn(), turn(), None], (query, Some([keys, values])));
            backend.attend_turned(stream, &attended, (&turns, rows), heads, &mut self.pages, normed)?;
            backend.linear(stream, normed, rows, &mut [(o, y)])?;
            backend.add(stream, x, y, 1.0, rows)?;
            backend.rms_norm(stream, x, norm.0, norm.1, rows, normed)?;
            let (input, down) = ((&*normed, rows), &mut [(down, &mut *y)]);
            backend.gated_block(stream, Activation::Silu, input, [gate, up], &mut self.inner, down)?;
            backend.add(stream, x, y, 1.0, rows)?;
        }
        backend.read(stream, x, &mut self.host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Precision;
    use crate::engine::cpu::Cpu;

    fn has_a_speed<B: Backend>(backend: &B, is_processor: bool) {
        let speed = measure(backend, is_processor).unwrap();
        assert!((1e6..1e14).contains(&speed.bytes_per_second), "{speed:?}");
        assert!((1e7..1e16).contains(&speed.operations_per_second), "{speed:?}");
        assert!((1e-7..10.0).contains(&speed.layer_seconds), "{speed:?}");
        assert!((1e-7..10.0).contains(&speed.round_trip_seconds), "{speed:?}");
    }

    #[test]
    fn a_processor_has_a_speed() {
        has_a_speed(&Cpu::new(1, Precision::Fast).unwrap(), true);
    }

    #[cfg(feature = "wgpu")]
    #[test]
    fn a_gpu_has_a_speed() {
        use crate::engine::wgpu::{Gpu, Limits};
        has_a_speed(&Gpu::tested(Limits::default()), false);
    }

    #[cfg(feature = "candle")]
    #[test]
    fn candle_has_a_speed() {
        has_a_speed(&crate::engine::candle::Tensors::cpu(1).unwrap(), true);
    }
}
