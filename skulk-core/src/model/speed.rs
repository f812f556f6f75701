//! How fast does a device compute what models take of it? Measured with the decoder's own operations.

use std::thread::{Builder, ScopedJoinHandle};
use std::time::{Duration, Instant};

use crate::arch::{Activation, AttentionSpec, CHUNK, PAGE, RopeLayout};
use crate::cancel::CancelToken;
use crate::engine::backend::{Attend, Backend, NormRope, PageSpec, Spans, Turn};
use crate::engine::{DeviceSpeed, StepCx};
use crate::error::{Error, ErrorKind, Result};
use crate::weights::{DType, Region};

/// What is timed at once takes so long at least: less says little where work is handed over.
const LONG: Duration = Duration::from_millis(2);
/// How often it is timed. The shortest counts: other work on the machine can only make it longer.
const ROUNDS: usize = 4;
/// On slow devices fewer, which are not begun after so long.
const PATIENCE: Duration = Duration::from_millis(150);
/// How often at most something is done for it, however short it seems to take.
const MOST: usize = 1 << 20;
/// Blocks of 4 bits, as most models have them.
const DTYPE: DType = DType::Q4_K;
/// Elements of a row of weights.
const WIDTH: usize = 2048;
/// Rows of a matrix, and matrices that are read in turn: 132 MB, more than most caches hold, in such pieces as models have.
const TALL: usize = 14_336;
const MATRICES: usize = 8;
/// Elements of a layer's rows that a prompt passes through, at first and at most: as many as give a device enough to do.
const WIDTHS: [usize; 2] = [512, 4096];
const ENOUGH: Duration = Duration::from_millis(12);
/// How many times as wide a layer's feed-forward block is.
const INNER: usize = 2;
/// Matrices of a layer, of `width` times `width` weights each: of queries, keys, values, what was attended to, and the
/// feed-forward block's three.
const PRODUCTS: usize = 4 + 3 * INNER;
/// What a layer's rows are where nothing but its operations takes time.
const SMALL: usize = 256;
/// Elements of a head.
const HEAD: usize = 128;

/// Measures a backend. Takes 132 MB of main memory, up to 240 MB for fast devices, and as much of the device's where
/// weights are copied.
pub(super) fn measure<B: Backend>(backend: &B) -> Result<DeviceSpeed> {
    // Most of the time goes into having the system find pages.
    let matrices = std::thread::scope(|scope| {
        let make = || weights([TALL, WIDTH]);
        let made: Vec<_> = (0..MATRICES).map(|_| Builder::new().spawn_scoped(scope, make)).collect();
        let matrices = made.into_iter().map(|made| match made.map(ScopedJoinHandle::join) {
            Ok(Ok(matrix)) => matrix,
            _ => make(),
        });
        matrices.collect::<Result<Vec<_>>>()
    })?;
    // As steps are run: on the device's threads, and in turns with others.
    let never = CancelToken::new();
    let found = backend.run(&StepCx::new(&never), || {
        let mut reading = Reading::new(backend, &matrices)?;
        let (width, mut prompt) = prompt(backend)?;
        let [mut small, mut alone] = [Layer::new(backend, SMALL, 1)?, Layer::new(backend, SMALL, 1)?];
        let [read, computed, layer, trip] = shortest([
            &mut |times| reading.pass(times),
            &mut |times| prompt.pass(times),
            &mut |times| small.pass(times),
            &mut |times| (0..times).try_for_each(|_| alone.pass(1)),
        ])?;
        let bytes: usize = matrices.iter().map(|matrix| matrix.bytes().len()).sum();
        Ok([bytes as f64 / read, (2 * CHUNK * PRODUCTS * width * width) as f64 / computed, layer, trip])
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
fn weights(shape: [usize; 2]) -> Result<Region> {
    Region::filled(DTYPE, &shape, 1)
}

/// What is timed: it queues its work so many times, and waits for it.
type Work<'w> = &'w mut dyn FnMut(usize) -> Result<()>;

/// Seconds of one of each, at the shortest. The last one is an answer, which the others wait for once.
fn shortest<const N: usize>(mut works: [Work<'_>; N]) -> Result<[f64; N]> {
    let timed = |work: &mut Work<'_>, times: usize| {
        let start = Instant::now();
        work(times)?;
        Ok::<_, Error>(start.elapsed())
    };
    let (mut times, mut taken) = ([1; N], [Duration::MAX; N]);
    for ((work, times), taken) in works.iter_mut().zip(&mut times).zip(&mut taken) {
        *taken = timed(work, *times)?;
        while *taken < LONG && *times < MOST {
            let wanted = LONG.as_nanos() / taken.as_nanos().max(1);
            *times = times.saturating_mul(wanted as usize + 1).min(MOST);
            *taken = timed(work, *times)?;
        }
    }
    // In turns: what else the machine does for a while makes all of them longer, but not always.
    let start = Instant::now();
    for _ in 1..ROUNDS {
        if start.elapsed() > PATIENCE {
            break;
        }
        for ((work, times), taken) in works.iter_mut().zip(times).zip(&mut taken) {
            *taken = timed(work, times)?.min(*taken);
        }
    }
    let answer = taken[N - 1].as_secs_f64() / times[N - 1] as f64;
    Ok(std::array::from_fn(|at| {
        let all = taken[at].as_secs_f64();
        let waited = if at == N - 1 { 0.0 } else { answer.min(all / 2.0) };
        (all - waited) / times[at] as f64
    }))
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
fn prompt<B: Backend>(backend: &B) -> Result<(usize, Layer<'_, B>)> {
    let [mut width, most] = WIDTHS;
    loop {
        let mut layer = Layer::new(backend, width, CHUNK)?;
        let start = Instant::now();
        layer.pass(1)?;
        if start.elapsed() >= ENOUGH || width >= most {
            return Ok((width, layer));
        }
        width *= 2;
    }
}

/// A layer, and rows that pass through it.
struct Layer<'b, B: Backend> {
    backend: &'b B,
    spec: AttentionSpec,
    rows: usize,
    matrix: B::Matrix,
    gate: B::Matrix,
    down: B::Matrix,
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

impl<'b, B: Backend> Layer<'b, B> {
    fn new(backend: &'b B, width: usize, rows: usize) -> Result<Self> {
        let spec = AttentionSpec::plain([width / HEAD; 2], HEAD);
        let buffer = || backend.buffer(rows, width);
        let inner = || backend.buffer(rows, INNER * width);
        let matrix = |shape: [usize; 2]| backend.matrix(weights(shape)?, None);
        let mut pages = backend.pages(&PageSpec::new(&spec, B::KV_TYPES[0]))?;
        let numbers = 0..rows.div_ceil(PAGE) as u32;
        numbers.clone().try_for_each(|page| backend.add_page(&mut pages, page))?;
        let mut spans = Spans::default();
        spans.push(rows, 0, 0, numbers);
        let mut layer = Self {
            backend,
            rows,
            matrix: matrix([width, width])?,
            gate: matrix([INNER * width, width])?,
            down: matrix([width, INNER * width])?,
            norm: backend.vector(vec![1.0; width])?,
            stream: backend.stream(rows, INNER * width)?,
            pages,
            spans,
            angles: buffer()?,
            x: buffer()?,
            y: buffer()?,
            normed: buffer()?,
            heads: [buffer()?, buffer()?, buffer()?],
            inner: [inner()?, inner()?],
            host: vec![0.0; width],
            spec,
        };
        backend.write(&mut layer.stream, &vec![1.0; rows * width], &mut layer.x)?;
        let positions: Vec<usize> = (0..rows).collect();
        let turns = vec![1.0; HEAD / 2];
        backend.angles(&mut layer.stream, &turns, &positions, &vec![1.0; rows], &mut layer.angles)?;
        layer.pass(1)?;
        Ok(layer)
    }

    /// Through so many such layers, one after the other.
    fn pass(&mut self, layers: usize) -> Result<()> {
        let Self { backend, rows, matrix, gate, down, norm, stream, x, y, normed, .. } = self;
        let (rows, matrix, gate, norm) = (*rows, &*matrix, &*gate, (&*norm, 1e-5));
        for _ in 0..layers {
            let [query, keys, values] = &mut self.heads;
            let mut products = [(matrix, &mut *query), (matrix, &mut *keys), (matrix, &mut *values)];
            backend.norm_linear(stream, x, norm, normed, rows, &mut products)?;
            let op = || NormRope { head_dim: HEAD, plain: 0, norm: None, layout: RopeLayout::Halves };
            let turn = || Some(Turn { op: op(), angles: Some(&self.angles) });
            let attended = Attend { attention: &self.spec, sinks: None, spans: &self.spans, chosen: None };
            let (turns, heads) = ([turn(), turn(), None], (query, Some([keys, values])));
            backend.attend_turned(stream, &attended, (&turns, rows), heads, &mut self.pages, normed)?;
            backend.linear(stream, normed, rows, &mut [(matrix, y)])?;
            backend.add(stream, x, y, 1.0, rows)?;
            backend.rms_norm(stream, x, norm.0, norm.1, rows, normed)?;
            let (input, down) = ((&*normed, rows), &mut [(&*down, &mut *y)]);
            backend.gated_block(stream, Activation::Silu, input, [gate; 2], &mut self.inner, down)?;
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

    fn has_a_speed<B: Backend>(backend: &B) {
        let speed = measure(backend).unwrap();
        assert!((1e6..1e14).contains(&speed.bytes_per_second), "{speed:?}");
        assert!((1e7..1e16).contains(&speed.operations_per_second), "{speed:?}");
        assert!((1e-7..10.0).contains(&speed.layer_seconds), "{speed:?}");
        assert!((1e-7..10.0).contains(&speed.round_trip_seconds), "{speed:?}");
    }

    #[test]
    fn a_processor_has_a_speed() {
        has_a_speed(&Cpu::new(1, Precision::Fast).unwrap());
    }

    #[cfg(feature = "wgpu")]
    #[test]
    fn a_gpu_has_a_speed() {
        use crate::engine::wgpu::{Gpu, Limits};
        has_a_speed(&Gpu::tested(Limits::default()));
    }

    #[cfg(feature = "candle")]
    #[test]
    fn candle_has_a_speed() {
        has_a_speed(&crate::engine::candle::Tensors::cpu(1).unwrap());
    }
}
