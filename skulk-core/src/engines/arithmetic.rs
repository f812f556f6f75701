//! How fast does this machine compute prompts? Measured once for the process, in some hundredths of a second.

use std::sync::OnceLock;

/// Products and sums a second of all cores together, as prompts take them: a chunk of rows by weights in blocks of 4 bits.
/// `None`: it cannot be measured, as on other systems than Linux, or this is a build without optimisation.
pub(super) fn operations_per_second() -> Option<f64> {
    static MEASURED: OnceLock<Option<f64>> = OnceLock::new();
    if cfg!(debug_assertions) {
        return None;
    }
    *MEASURED.get_or_init(compute)
}

#[cfg(target_os = "linux")]
fn compute() -> Option<f64> {
    measured::compute().ok()
}

/// Weights lie in files, and only there is one in memory.
#[cfg(not(target_os = "linux"))]
fn compute() -> Option<f64> {
    None
}

#[cfg(target_os = "linux")]
mod measured {
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::thread::available_parallelism;
    use std::time::{Duration, Instant};

    use crate::arch::CHUNK;
    use crate::cancel::CancelToken;
    use crate::engine::Precision;
    use crate::engine::backend::Backend;
    use crate::engine::cpu::Cpu;
    use crate::error::{Error, ErrorKind, Result};
    use crate::weights::{DType, MappedFile, Region, TensorInfo};

    /// A matrix `[out, in]`, whose products with a chunk of rows take some thousandths of a second.
    const MATRIX: [usize; 2] = [512, 2048];
    /// How long products are computed.
    const TIME: Duration = Duration::from_millis(30);

    pub(super) fn compute() -> Result<f64> {
        let cpu = Cpu::new(available_parallelism().map_or(1, usize::from), Precision::Fast)?;
        let [n_out, n_in] = MATRIX;
        let matrix = cpu.matrix(blocks()?, None)?;
        let (x, mut out) = (cpu.buffer(CHUNK, n_in)?, cpu.buffer(CHUNK, n_out)?);
        let mut stream = cpu.stream(CHUNK, n_in)?;
        // Threads and memory are there from the first one on.
        cpu.linear(&mut stream, &x, CHUNK, &mut [(&matrix, &mut out)])?;
        let (start, mut products) = (Instant::now(), 0u32);
        while products == 0 || start.elapsed() < TIME {
            cpu.linear(&mut stream, &x, CHUNK, &mut [(&matrix, &mut out)])?;
            products += 1;
        }
        Ok(f64::from(products) * (2 * CHUNK * n_out * n_in) as f64 / start.elapsed().as_secs_f64())
    }

    /// Weights in blocks of 4 bits, whatever their values, in a file that is memory.
    fn blocks() -> Result<Region> {
        let dtype = DType::Q4_K;
        let len = (dtype.row_bytes(MATRIX[1]).unwrap_or(0) * MATRIX[0]) as u64;
        let failed = |e| Error::new(ErrorKind::FileIo, "cannot make a file in memory").with_source(e);
        let file = rustix::fs::memfd_create("skulk", rustix::fs::MemfdFlags::CLOEXEC);
        let file = File::from(file.map_err(|e| failed(e.into()))?);
        file.set_len(len).map_err(failed)?;
        let (name, shape) = ("blocks".to_owned(), MATRIX.to_vec());
        let info = TensorInfo { name, dtype, shape, file: 0, offset: 0, len };
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        Region::map(&MappedFile::open(path)?, &info)?.resident(&CancelToken::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_is_measured_once() {
        let first = operations_per_second();
        if cfg!(debug_assertions) {
            assert_eq!(first, None);
            return;
        }
        assert!(first.is_some_and(|rate| rate > 1e8 && rate < 1e16), "{first:?}");
        assert_eq!(operations_per_second(), first);
    }
}
