//! Which device do tensors live on? One that candle opens, or the CPU with threads of its own.

use std::panic::catch_unwind;

use candle_core::{Device, Error as CandleError, Result as CandleResult};

use super::Tensors;
use super::triangles::TrianglesOf;
use crate::engine::turns::Turns;
use crate::engine::{Precision, check_threads};
use crate::error::{Error, ErrorKind, Result};

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
        Ok(Self { threads: Some(pool), ..Self::on(Device::Cpu, true) })
    }

    fn on(device: Device, precise: bool) -> Self {
        Self { device, precise, threads: None, turns: Turns::default(), triangles: TrianglesOf::default() }
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
            Ok(Ok(device)) => Ok(Self::on(device, precise)),
            Ok(Err(CandleError::NotCompiledWithCudaSupport | CandleError::NotCompiledWithMetalSupport)) => {
                Err(unavailable(format!("this build has no {label} support"))
                    .with_hint(format!("compile with the cargo feature `{feature}`")))
            }
            Ok(Err(e)) => Err(unavailable(format!("cannot use {label} device {ordinal}")).with_source(e)),
            Err(_) => Err(unavailable(format!("there is no {label} device {ordinal}"))),
        }
        .map_err(|e| e.with("device", ordinal))
    }
}

/// A failure of candle or the device, as the library's own.
pub(super) fn failed(error: CandleError) -> Error {
    const EXHAUSTED: [&str; 4] = ["out of memory", "out_of_memory", "alloc_failed", "failed to allocate"];
    let text = error.to_string().to_lowercase();
    if EXHAUSTED.iter().any(|marker| text.contains(marker)) {
        return Error::new(ErrorKind::OutOfMemory, "the device's memory is exhausted")
            .with_hint("place fewer layers on this device, or use a smaller context or prefill chunk")
            .with_source(error);
    }
    Error::new(ErrorKind::EngineFailed, "the device failed to compute").with_source(error)
}
