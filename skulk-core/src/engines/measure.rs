//! How fast does this machine read its memory? Measured once for the process, in about a tenth of a second.

use std::hint::black_box;
use std::sync::OnceLock;
use std::thread::{Builder, available_parallelism, scope};
use std::time::{Duration, Instant};

/// Bytes that all threads together read at least, more than most caches hold, and each of them.
const BYTES: usize = 128 << 20;
const BYTES_EACH: usize = 16 << 20;
/// The share of free memory that measuring may take.
const SHARE: u64 = 8;
/// How long each thread reads.
const TIME: Duration = Duration::from_millis(40);
/// Numbers that are read between two looks at the clock.
const RUN: usize = 1 << 17;

/// Bytes a second that all cores together read from main memory, of which so much is free. `None`: there is too little
/// to tell, or this is a build without optimisation, which reads slower than memory allows.
pub(super) fn bytes_per_second(free: u64) -> Option<f64> {
    static MEASURED: OnceLock<Option<f64>> = OnceLock::new();
    if cfg!(debug_assertions) {
        return None;
    }
    *MEASURED.get_or_init(|| measure(free))
}

fn measure(free: u64) -> Option<f64> {
    let threads = available_parallelism().map_or(1, usize::from);
    let each = (BYTES / threads).max(BYTES_EACH);
    if (each as u64).saturating_mul(threads as u64) > free / SHARE {
        return None;
    }
    scope(|scope| {
        let mut running = Vec::with_capacity(threads);
        for _ in 0..threads {
            running.push(Builder::new().spawn_scoped(scope, move || read(each)).ok()?);
        }
        running.into_iter().map(|thread| thread.join().ok()).sum::<Option<f64>>()
    })
}

/// Bytes a second that one thread reads while the others do. They begin at nearly the same time: waiting for each other
/// would be for ever where one could not be started.
fn read(bytes: usize) -> f64 {
    let numbers = vec![1u64; bytes / size_of::<u64>()];
    let start = Instant::now();
    let mut read = 0usize;
    for run in numbers.chunks(RUN).cycle() {
        black_box(run.iter().fold(0u64, |sum, number| sum.wrapping_add(*number)));
        read += size_of_val(run);
        if start.elapsed() >= TIME {
            break;
        }
    }
    read as f64 / start.elapsed().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_measured_once_and_soon() {
        let start = Instant::now();
        let first = bytes_per_second(u64::MAX);
        if cfg!(debug_assertions) {
            assert_eq!(first, None);
            return;
        }
        assert!(first.is_some_and(|rate| rate > 1e8 && rate < 1e14), "{first:?}");
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        assert_eq!(bytes_per_second(u64::MAX), first);
    }

    #[test]
    fn little_memory_is_left_alone() {
        assert_eq!(measure(1 << 20), None);
    }
}
