//! How fast is memory read? Whole blocks with the widest loads, by all threads at once.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

use memmap2::MmapMut;

use crate::AnyError;

/// Memory in which every page exists.
pub(crate) fn memory(bytes: usize, huge: bool) -> Result<MmapMut, AnyError> {
    let mut memory = MmapMut::map_anon(bytes)?;
    #[cfg(target_os = "linux")]
    memory.advise(if huge { memmap2::Advice::HugePage } else { memmap2::Advice::NoHugePage })?;
    #[cfg(not(target_os = "linux"))]
    let _ = huge;
    memory.fill(1);
    Ok(memory)
}

/// Bytes a second, with or without asking for memory ahead, whichever is faster.
pub(crate) fn bandwidth(memory: &[u8], threads: usize, trials: usize) -> f64 {
    let part = memory.len() / threads / BLOCK * BLOCK;
    let reads: [fn(&[u8]) -> u64; 2] = [read::<false>, read::<true>];
    let seconds = reads.map(|read| {
        best_of(trials, threads, |thread| {
            black_box(read(&memory[thread * part..][..part]));
        })
    });
    (part * threads) as f64 / seconds[0].min(seconds[1])
}

/// Seconds from when all threads begin until the last one ends, of the quickest trial.
pub(crate) fn best_of(trials: usize, threads: usize, work: impl Fn(usize) + Sync) -> f64 {
    let barrier = Barrier::new(threads);
    let trial = |thread| {
        barrier.wait();
        let started = Instant::now();
        work(thread);
        let seconds = started.elapsed().as_secs_f64();
        barrier.wait();
        seconds
    };
    let of_thread = |thread| (0..trials).map(|_| trial(thread)).collect::<Vec<_>>();
    let seconds: Vec<Vec<f64>> = std::thread::scope(|scope| {
        let of_thread = &of_thread;
        let running: Vec<_> = (1..threads).map(|thread| scope.spawn(move || of_thread(thread))).collect();
        let own = of_thread(0);
        running.into_iter().filter_map(|thread| thread.join().ok()).chain([own]).collect()
    });
    let slowest = |trial: usize| seconds.iter().map(|of_thread| of_thread[trial]).fold(0.0, f64::max);
    (0..trials).map(slowest).fold(f64::INFINITY, f64::min)
}

/// Bytes that one step of [`read`] takes.
const BLOCK: usize = 512;
/// How far ahead [`read`] asks for memory.
const AHEAD: usize = 4096;

/// Reads whole blocks with the widest loads.
fn read<const PREFETCH: bool>(bytes: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the machine has the instructions.
            return unsafe { x86::read_avx512::<PREFETCH>(bytes) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the machine has the instructions.
            return unsafe { x86::read_avx2::<PREFETCH>(bytes) };
        }
    }
    read_blocks::<PREFETCH>(bytes)
}

/// The loop, for the compiler to vectorise with the instructions of whoever it is part of.
#[inline(always)]
fn read_blocks<const PREFETCH: bool>(bytes: &[u8]) -> u64 {
    const WORDS: usize = BLOCK / 8;
    let mut sums = [0u64; WORDS];
    for block in bytes.as_chunks::<BLOCK>().0 {
        #[cfg(target_arch = "x86_64")]
        if PREFETCH {
            for line in (0..BLOCK).step_by(64) {
                x86::prefetch(block.as_ptr().wrapping_add(AHEAD + line));
            }
        }
        // By numbers: iterators put together are called where no instructions of its own are known.
        let words = block.as_chunks::<8>().0;
        for at in 0..WORDS {
            sums[at] ^= u64::from_ne_bytes(words[at]);
        }
    }
    sums.iter().fold(0, |a, b| a ^ b)
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::read_blocks;

    #[inline(always)]
    pub(super) fn prefetch(p: *const u8) {
        // SAFETY: asking for memory touches none.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn read_avx512<const PREFETCH: bool>(bytes: &[u8]) -> u64 {
        read_blocks::<PREFETCH>(bytes)
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn read_avx2<const PREFETCH: bool>(bytes: &[u8]) -> u64 {
        read_blocks::<PREFETCH>(bytes)
    }
}
