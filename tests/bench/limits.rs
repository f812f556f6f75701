//! What does this machine allow? Read bandwidth and arithmetic peaks, and what a token of a model reads.
//!
//! `cargo run --release -p skulk-bench --bin limits -- --model FILE --threads 1,2` prints one JSON object. Each
//! figure is the best of several trials: other work on the machine can only make them worse.
#![allow(unsafe_code, reason = "vector instructions")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

mod reading;

use std::hint::black_box;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use reading::{bandwidth, best_of, memory};
use serde_json::{Map, Value, json};
use skulk::arch::ArchSpec;

type AnyError = Box<dyn std::error::Error>;

/// Measures read bandwidth and arithmetic peaks.
#[derive(Parser)]
struct Args {
    /// A GGUF file: also tells the bytes that decoding a token reads of it.
    #[arg(long)]
    model: Option<PathBuf>,
    /// Numbers of threads to measure with.
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    threads: Vec<usize>,
    /// Bytes to read, far more than the caches hold.
    #[arg(long, default_value_t = 1 << 30)]
    bytes: usize,
    /// Trials of which the best counts.
    #[arg(long, default_value_t = 8)]
    trials: usize,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error:?}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<Value, AnyError> {
    let mut report = Map::new();
    if let Some(model) = &args.model {
        let [bytes, operations] = per_token(model)?;
        report.insert("bytes_per_token".into(), bytes.into());
        report.insert("operations_per_token".into(), operations.into());
    }
    for (name, huge) in [("read_4k_pages", false), ("read_2m_pages", true)] {
        let memory = memory(args.bytes, huge)?;
        let best = |&threads: &usize| (threads.to_string(), json!(bandwidth(&memory, threads, args.trials)));
        report.insert(name.into(), args.threads.iter().map(best).collect::<Map<_, _>>().into());
    }
    for (name, operations, kernel) in peaks() {
        let best = |&threads: &usize| {
            let seconds = best_of(args.trials, threads, |_| kernel(black_box(PEAK_ROUNDS)));
            (threads.to_string(), json!((operations * PEAK_ROUNDS * threads as u64) as f64 / seconds))
        };
        report.insert(name.into(), args.threads.iter().map(best).collect::<Map<_, _>>().into());
    }
    Ok(report.into())
}

/// Tensor bytes that decoding one token reads: all of them, but of experts the ones a token takes,
/// and of an embedding table that is not the head too only one row, which is left out. And the operations that a
/// prompt's token takes in the layers' matrices: a multiplication and an addition for each weight.
fn per_token(path: &PathBuf) -> Result<[u64; 2], AnyError> {
    let checkpoint = skulk::open_checkpoint(path)?;
    let arch = ArchSpec::from_checkpoint(&*checkpoint)?;
    let experts = arch.layers.iter().find_map(|layer| layer.ffn.experts);
    let taken = |tensor: &skulk::TensorInfo, all: u64| match experts {
        Some(experts) if tensor.name.contains("_exps.") => {
            all / experts.n_experts as u64 * experts.n_used as u64
        }
        _ => all,
    };
    let [mut bytes, mut operations] = [0; 2];
    for tensor in checkpoint.tensors() {
        if arch.tied_embeddings || !tensor.name.starts_with("token_embd.") {
            bytes += taken(tensor, tensor.len);
        }
        if tensor.name.starts_with("blk.") && tensor.shape.len() > 1 {
            operations += taken(tensor, 2 * tensor.shape.iter().map(|&n| n as u64).product::<u64>());
        }
    }
    Ok([bytes, operations])
}

/// Rounds of the arithmetic loops, a few hundredths of a second.
const PEAK_ROUNDS: u64 = 10_000_000;

/// A loop of so many rounds.
type Peak = fn(u64);

/// Name, operations a round, and loop for each kind of arithmetic the machine has.
fn peaks() -> Vec<(&'static str, u64, Peak)> {
    #[cfg(target_arch = "x86_64")]
    return x86::peaks();
    #[cfg(not(target_arch = "x86_64"))]
    Vec::new()
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::asm;
    use std::arch::x86_64::*;
    use std::hint::black_box;

    use super::Peak;

    /// Sums under way at a time: enough to hide an instruction's latency.
    const SUMS: usize = 16;

    /// A loop over independent sums. The empty instruction keeps the compiler from computing it.
    macro_rules! peak {
        ($name:ident, $features:literal, $register:ident, $start:expr, $x:expr, $step:ident) => {
            fn $name(rounds: u64) {
                #[target_feature(enable = $features)]
                fn peak(rounds: u64) {
                    let (mut sums, mut x) = ([$start; SUMS], $x);
                    for _ in 0..rounds {
                        for sum in &mut sums {
                            *sum = $step(*sum, x, x);
                        }
                        // SAFETY: it does nothing.
                        unsafe { asm!("/* {0} */", inout($register) x, options(pure, nomem, nostack)) };
                    }
                    black_box(sums);
                }
                // SAFETY: listed only where the machine has the instructions.
                unsafe { peak(rounds) }
            }
        };
    }

    peak!(
        int8_avx512,
        "avx512f,avx512vnni",
        zmm_reg,
        _mm512_setzero_si512(),
        _mm512_set1_epi8(1),
        _mm512_dpbusd_epi32
    );
    peak!(f32_avx512, "avx512f", zmm_reg, _mm512_setzero_ps(), _mm512_set1_ps(0.5), fma_avx512);
    peak!(bf16_avx512, "avx512f,avx512bf16", zmm_reg, _mm512_setzero_ps(), _mm512_set1_ps(0.5), dot_bf16);
    peak!(f32_avx2, "avx2,fma", ymm_reg, _mm256_setzero_ps(), _mm256_set1_ps(0.5), fma_avx2);

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn fma_avx512(sum: __m512, a: __m512, b: __m512) -> __m512 {
        _mm512_fmadd_ps(a, b, sum)
    }

    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn fma_avx2(sum: __m256, a: __m256, b: __m256) -> __m256 {
        _mm256_fmadd_ps(a, b, sum)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bf16")]
    fn dot_bf16(sum: __m512, a: __m512, b: __m512) -> __m512 {
        // SAFETY: vectors of one size, for all of whose bits there is a number.
        let (a, b) = unsafe {
            (std::mem::transmute::<__m512, __m512bh>(a), std::mem::transmute::<__m512, __m512bh>(b))
        };
        _mm512_dpbf16_ps(sum, a, b)
    }

    pub(super) fn peaks() -> Vec<(&'static str, u64, Peak)> {
        let mut peaks: Vec<(&str, u64, Peak)> = Vec::new();
        let sums = SUMS as u64;
        if is_x86_feature_detected!("avx512vnni") {
            peaks.push(("int8", sums * 64 * 2, int8_avx512));
        }
        if is_x86_feature_detected!("avx512bf16") {
            peaks.push(("bf16", sums * 32 * 2, bf16_avx512));
        }
        if is_x86_feature_detected!("avx512f") {
            peaks.push(("f32", sums * 16 * 2, f32_avx512));
        } else if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            peaks.push(("f32", sums * 8 * 2, f32_avx2));
        }
        peaks
    }
}
