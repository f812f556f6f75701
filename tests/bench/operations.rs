//! What do the operations of a token, and of a prompt, take? Time, bytes, arithmetic, and threads that wait.
//!
//! `cargo run --release -p skulk-bench --bin operations -- --model FILE` prints one JSON object: `decode`, an average token of
//! `--tokens` behind `--depth` others, and `prefill`, a prompt of `--prompt` tokens. Each is a list in the order in which
//! operations come first; those of one function with as many bytes and as much arithmetic are one entry:
//!
//! - `name`: the function of the CPU engine; `times`: how often it comes in a token, or in the prompt;
//! - `seconds` of all these; `before`: seconds between them and what ended before, as one thread prepares operations; `waiting`:
//!   seconds that a thread waits in them on average, for others or as there is too little for all;
//! - `bytes` of weights and `operations`, multiplications and additions; 0 where it has neither.
//!
//! `limits` are what the machine allows a second: `read` bytes from pages of 4 KB or, with `--memory resident`, of 2 MB,
//! and `int8` operations, where it has instructions for them. Noting takes some 0.1 µs an operation.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]
#![allow(unsafe_code, reason = "vector instructions")]

mod noted;
mod peaks;
mod reading;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use noted::Entry;
use peaks::peaks;
use reading::{bandwidth, memory};
use serde_json::{Value, json};
use skulk::internals::{Traced, traced};
use skulk::{
    EngineOptions, GenerateOptions, LoadOptions, Memory, Model, Prompt, Sampling, Speculate, TokenId,
};

type AnyError = Box<dyn std::error::Error>;

/// Measures single operations of a model.
#[derive(Parser)]
struct Args {
    /// A checkpoint.
    #[arg(long)]
    model: PathBuf,
    /// Threads that compute.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Where weights lie.
    #[arg(long, default_value = "mapped")]
    memory: Memory,
    /// Tokens that are decoded.
    #[arg(long, default_value = "64")]
    tokens: NonZeroUsize,
    /// Tokens before them.
    #[arg(long, default_value_t = 1)]
    depth: usize,
    /// Tokens of the prompt.
    #[arg(long, default_value_t = 512)]
    prompt: usize,
    /// Bytes that are read for the limit, far more than the caches hold.
    #[arg(long, default_value_t = 1 << 29)]
    bytes: usize,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<Value, AnyError> {
    let engine = EngineOptions::default().threads(args.threads).memory(args.memory);
    let context = args.prompt.max(args.depth + args.tokens.get()) + 16;
    let model = Model::open(&args.model, &LoadOptions::default().engine_options(engine).context(context))?;
    let pages = memory(args.bytes, args.memory == Memory::Resident)?;
    let read = bandwidth(&pages, args.threads, 8);
    drop(pages);
    let int8 = peaks().iter().find(|peak| peak.name == "int8").map(|peak| peak.best(8, args.threads));

    // Once before, so that everything is in memory.
    generate(&model, 0, args.depth, 4)?;
    let [_, decode] = generate(&model, 1, args.depth, args.tokens.get())?;
    generate(&model, 2, args.prompt, 0)?;
    let [prefill, _] = generate(&model, 3, args.prompt, 0)?;
    Ok(json!({
        "limits": { "read": read, "int8": int8 },
        "decode": listed(Entry::list(&decode, args.tokens.get(), args.threads)),
        "prefill": listed(Entry::list(&prefill, 1, args.threads)),
    }))
}

/// What ran until the first of `n` further tokens was there, and after it.
fn generate(model: &Model, text: u32, prompt: usize, n: usize) -> Result<[Vec<Traced>; 2], AnyError> {
    // Another text each time: what is known of earlier ones is not computed again.
    let vocabulary = model.arch().vocab_size as u32;
    let ids = (0..prompt as u32).map(|i| TokenId((7 + 31 * i + 101 * text) % vocabulary)).collect();
    let options = GenerateOptions::default()
        .max_tokens(n + 1)
        .ignore_eos(true)
        .speculate(Speculate::Off)
        .sampling(Sampling::default().temperature(0.0));
    let session = model.session()?;
    let (generation, first) = traced(|| {
        let mut generation = session.generate(Prompt::Tokens(ids), options)?;
        generation.next().transpose().map(|_| generation)
    });
    let generation = generation?;
    // Steps do not wait for whoever reads: what runs is noted from here on, a token more or less.
    let (rest, behind) =
        traced(|| generation.map(|event| event.map(drop)).collect::<skulk::Result<Vec<()>>>());
    rest?;
    Ok([first, behind])
}

fn listed(entries: Vec<Entry>) -> Value {
    let value = |entry: Entry| {
        json!({
            "name": entry.name, "times": entry.times, "bytes": entry.bytes, "operations": entry.operations,
            "seconds": entry.seconds, "before": entry.before, "waiting": entry.waiting,
        })
    };
    entries.into_iter().map(value).collect()
}
