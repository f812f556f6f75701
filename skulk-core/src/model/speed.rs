//! How fast does a device compute what models take of it? Measured with the decoder's own operations.

use std::thread::{Builder, ScopedJoinHandle};
use std::time::{Duration, Instant};

use crate::arch::{Activation, AttentionSpec, CHUNK, RopeLayout};
use crate::cancel::CancelToken;
use crate::engine::backend::{Attend, Backend, NormRope, PageSpec, Spans, Turn};
use crate::engine::{DeviceSpeed, StepCx};
use crate::error::{Error, ErrorKind, Result};
use crate::weights::{DType, Region};

/// What is timed at once takes so long at least: less says little where work is handed over.
const LONG: Duration = Duration::from_millis(5);
/// How often it is timed: what is in the middle counts.
const ROUNDS: usize = 3;
/// How often at most something is done for it, however short it seems to take.
const MOST: usize = 1 << 20;
/// Blocks of 4 bits, as most models have them.
const DTYPE: DType = DType::Q4_K;
/// Elements of a row of weights.
const WIDTH: usize = 2048;
/// Rows of a matrix, and matrices that are read in turn: 132 MB, more than most caches hold, in such pieces as models have.
const TALL: usize = 14_336;
const MATRICES: usize = 8;
/// Rows of a matrix that a prompt's rows are multiplied with: as many as give a device enough to do.
const TALLER: [usize; 3] = [512, 4096, TALL];
const ENOUGH: Duration = Duration::from_millis(1);
/// What a layer's rows and weights are where nothing but its operations takes time.
const SMALL: usize = 256;
const HEADS: usize = 4;

/// Measures a backend. Takes 132 MB of main memory, and of the device's where weights are copied.
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
    let (reading, operations, (layer, trip)) = backend.run(&StepCx::new(&never), || {
        Ok((reading(backend, &matrices)?, computing(backend, &matrices)?, waiting(backend)?))
    })?;
    let speed = DeviceSpeed {
        bytes_per_second: reading,
        operations_per_second: operations,
        layer_seconds: layer,
        round_trip_seconds: trip,
    };
    let found = [speed.bytes_per_second, speed.operations_per_second, layer, trip];
    match found.iter().all(|it| it.is_finite() && *it > 0.0) {
        true => Ok(speed),
        false => Err(Error::new(ErrorKind::EngineFailed, "the device's clock does not go on")),
    }
}

/// A matrix `[out, in]`, whatever its values.
fn weights(shape: [usize; 2]) -> Result<Region> {
    let len = DTYPE.row_bytes(shape[1]).unwrap_or(0) * shape[0];
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).map_err(|e| {
        Error::new(ErrorKind::OutOfMemory, "cannot reserve weights to measure with").with_source(e)
    })?;
    bytes.resize(len, 1);
    Region::of_bytes(DTYPE, &shape, bytes)
}

/// Seconds of one of what `work` queues so many times, which is waited for.
fn timed(mut work: impl FnMut(usize) -> Result<()>) -> Result<f64> {
    let mut time = |times: usize| {
        let start = Instant::now();
        work(times)?;
        Ok(start.elapsed())
    };
    let mut times = 1;
    let mut taken = time(times)?;
    while taken < LONG && times < MOST {
        let wanted = LONG.as_nanos() / taken.as_nanos().max(1);
        times = (times * (wanted as usize + 1)).min(MOST);
        taken = time(times)?;
    }
    let mut all = [taken; ROUNDS];
    for taken in &mut all[1..] {
        *taken = time(times)?;
    }
    all.sort_unstable();
    Ok(all[ROUNDS / 2].as_secs_f64() / times as f64)
}

/// Bytes of weights a second that a row is multiplied with.
fn reading<B: Backend>(backend: &B, weights: &[Region]) -> Result<f64> {
    let matrix = |weights: &Region| backend.matrix(weights.clone(), None);
    let matrices = weights.iter().map(matrix).collect::<Result<Vec<_>>>()?;
    let (mut x, mut out) = (backend.buffer(1, WIDTH)?, backend.buffer(1, TALL)?);
    let mut stream = backend.stream(1, WIDTH)?;
    backend.write(&mut stream, &[1.0; WIDTH], &mut x)?;
    let mut product = |times: usize| {
        for _ in 0..times {
            for matrix in &matrices {
                backend.linear(&mut stream, &x, 1, &mut [(matrix, &mut out)])?;
            }
        }
        backend.read(&mut stream, &out, &mut [0.0; TALL])
    };
    // Threads, kernels and memory are there from the first one on.
    product(1)?;
    let seconds = timed(product)?;
    let bytes: usize = weights.iter().map(|weights| weights.bytes().len()).sum();
    Ok(bytes as f64 / seconds)
}

/// Operations a second of a prompt's rows.
fn computing<B: Backend>(backend: &B, weights: &[Region]) -> Result<f64> {
    let Some(weights) = weights.first() else { return Ok(0.0) };
    let mut rate = 0.0;
    for tall in TALLER {
        let matrix = backend.matrix(weights.row_range(0..tall), None)?;
        let (mut x, mut out) = (backend.buffer(CHUNK, WIDTH)?, backend.buffer(CHUNK, tall)?);
        let mut stream = backend.stream(CHUNK, WIDTH)?;
        backend.write(&mut stream, &vec![1.0; CHUNK * WIDTH], &mut x)?;
        // Of one row: what a device has computed stays there.
        let mut host = vec![0.0; tall];
        let mut product = |times: usize| {
            for _ in 0..times {
                backend.linear(&mut stream, &x, CHUNK, &mut [(&matrix, &mut out)])?;
            }
            backend.read(&mut stream, &out, &mut host)
        };
        product(1)?;
        let mut shortest = Duration::MAX;
        for _ in 0..2 {
            let start = Instant::now();
            product(1)?;
            shortest = shortest.min(start.elapsed());
        }
        if shortest >= ENOUGH || tall == TALL {
            rate = (2 * CHUNK * tall * WIDTH) as f64 / timed(product)?;
            break;
        }
    }
    Ok(rate)
}

/// Seconds of a layer that has next to nothing to read, and until a device has answered that was asked for one.
fn waiting<B: Backend>(backend: &B) -> Result<(f64, f64)> {
    let spec = AttentionSpec::plain([HEADS, HEADS], SMALL / HEADS);
    let matrix = backend.matrix(weights([SMALL, SMALL])?, None)?;
    let norm = backend.vector(vec![1.0; SMALL])?;
    let norm = (&norm, 1e-5);
    let row = || backend.buffer(1, SMALL);
    let (mut x, mut y, mut normed) = (row()?, row()?, row()?);
    let [mut query, mut keys, mut values] = [row()?, row()?, row()?];
    let mut inner = [row()?, row()?];
    let mut angles = row()?;
    let mut stream = backend.stream(1, SMALL)?;
    backend.write(&mut stream, &[1.0; SMALL], &mut x)?;
    let mut pages = backend.pages(&PageSpec::new(&spec, B::KV_TYPES[0]))?;
    backend.add_page(&mut pages, 0)?;
    let mut spans = Spans::default();
    spans.push(1, 0, 0, std::iter::once(0));
    let layout = RopeLayout::Halves;
    let rotated = || NormRope { head_dim: spec.head_dim, plain: 0, norm: None, layout };
    let attended = Attend { attention: &spec, sinks: None, spans: &spans, chosen: None };
    let turns = vec![1.0; spec.head_dim / 2];
    let mut layers = |n: usize| {
        let stream = &mut stream;
        backend.angles(stream, &turns, &[0], &[1.0], &mut angles)?;
        for _ in 0..n {
            let mut products = [(&matrix, &mut query), (&matrix, &mut keys), (&matrix, &mut values)];
            backend.norm_linear(stream, &x, norm, &mut normed, 1, &mut products)?;
            let turn = || Some(Turn { op: rotated(), angles: Some(&angles) });
            let (turns, heads) = ([turn(), turn(), None], (&mut query, Some([&mut keys, &mut values])));
            backend.attend_turned(stream, &attended, (&turns, 1), heads, &mut pages, &mut normed)?;
            backend.linear(stream, &normed, 1, &mut [(&matrix, &mut y)])?;
            backend.add(stream, &mut x, &y, 1.0, 1)?;
            backend.rms_norm(stream, &x, norm.0, norm.1, 1, &mut normed)?;
            let (input, down) = ((&normed, 1), &mut [(&matrix, &mut y)]);
            backend.gated_block(stream, Activation::Silu, input, [&matrix; 2], &mut inner, down)?;
            backend.add(stream, &mut x, &y, 1.0, 1)?;
        }
        backend.read(stream, &x, &mut [0.0; SMALL])
    };
    layers(1)?;
    let trip = timed(|times| (0..times).try_for_each(|_| layers(1)))?;
    Ok((timed(layers)?, trip))
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
