//! What does this machine allow? Read bandwidth and arithmetic peaks, and what a token of a model reads.
//!
//! `cargo run --release -p skulk-bench --bin limits -- --model FILE --threads 1,2` prints one JSON object. Each
//! figure is the best of several trials: other work on the machine can only make them worse.
#![allow(unsafe_code, reason = "vector instructions")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

mod peaks;
mod reading;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use peaks::peaks;
use reading::{bandwidth, memory};
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
    for peak in peaks() {
        let best = |&threads: &usize| (threads.to_string(), json!(peak.best(args.trials, threads)));
        report.insert(peak.name.into(), args.threads.iter().map(best).collect::<Map<_, _>>().into());
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
