//! What do types of keys and values cost? Perplexity of a text, bytes of a token, and decoding behind a long prompt.
//!
//! `cargo run --release -p skulk-bench --bin kv -- --model FILE --text FILE` prints one JSON object, by type: `perplexity`
//! over windows of `--window` tokens, of which every one but a window's first counts; `bytes` of a session of full length;
//! `decode`, tokens a second behind `--window` tokens. Each stands with its ratio to the first type's (`to_first`); of
//! decoding, types take turns, and medians of ratios within a round count, as the machine's speed drifts.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]
#![allow(clippy::disallowed_methods, reason = "measurements need not be the same everywhere")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use serde_json::{Map, Value, json};
use skulk::{
    CancelToken, EngineOptions, GenerateOptions, KvType, KvTypes, LoadOptions, Memory, Model, Speculate,
    TokenId,
};

type AnyError = Box<dyn std::error::Error>;

/// Measures types of keys and values.
#[derive(Parser)]
struct Args {
    /// A checkpoint.
    #[arg(long)]
    model: PathBuf,
    /// A text.
    #[arg(long)]
    text: PathBuf,
    /// Types; of keys and values apart as in `q8_0/q4_0`.
    #[arg(long, value_delimiter = ',', default_value = "f16,bf16,f32,q8_0,q4_0", value_parser = types)]
    kv: Vec<KvTypes>,
    /// Tokens of the text.
    #[arg(long, default_value_t = 20_480)]
    tokens: usize,
    /// Tokens that see each other.
    #[arg(long, default_value_t = 2048)]
    window: usize,
    /// Tokens that are decoded at a time; 0: none.
    #[arg(long, default_value_t = 48)]
    decoded: usize,
    /// Rounds of decoding.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Threads that compute.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// The engine.
    #[arg(long, default_value = "cpu")]
    engine: String,
}

fn types(text: &str) -> skulk::Result<KvTypes> {
    let (keys, values) = text.split_once('/').unwrap_or((text, text));
    Ok(KvTypes { keys: keys.parse::<KvType>()?, values: values.parse::<KvType>()? })
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
    let engine = EngineOptions::default().threads(args.threads).memory(Memory::Mapped);
    let load = |kv: &KvTypes| {
        let options = LoadOptions::default().engine_options(engine.clone()).engine_name(&args.engine);
        Model::open(&args.model, &options.context(args.window + args.decoded).kv(*kv))
    };
    let models = args.kv.iter().map(load).collect::<skulk::Result<Vec<_>>>()?;
    let Some(first) = models.first() else { return Err("there are no types".into()) };
    let text = std::fs::read_to_string(&args.text)?;
    let mut tokens = first.tokenizer().encode(&text, false)?;
    if tokens.len() < args.tokens {
        return Err(format!("expected a text of {} tokens, found {}", args.tokens, tokens.len()).into());
    }
    tokens.truncate(args.tokens);
    let windows: Vec<_> = tokens.chunks(args.window - 1).map(|window| with_bos(first, window)).collect();

    let mut found = Vec::new();
    for (kv, model) in args.kv.iter().zip(&models) {
        let mut sum = 0.0;
        for window in &windows {
            sum += surprise(model, window, args.threads)?;
        }
        let perplexity = (sum / tokens.len() as f64).exp();
        eprintln!("{kv}: {perplexity}");
        let bytes: u64 = model.stages().iter().map(|stage| stage.kv_cache.bytes()).sum();
        found.push((perplexity, bytes as f64));
    }
    let mut rates = vec![Vec::new(); models.len()];
    for _ in 0..if args.decoded == 0 { 0 } else { args.rounds } {
        for (rates, model) in rates.iter_mut().zip(&models) {
            rates.push(decode(model, &windows[0], args.decoded)?);
        }
    }
    let figure = |own: f64, first: f64| json!({ "value": own, "to_first": own / first });
    let of = |(at, kv): (usize, &KvTypes)| {
        let ratios = rates[at].iter().zip(&rates[0]).map(|(a, b)| a / b).collect();
        let figures = json!({
            "perplexity": figure(found[at].0, found[0].0),
            "bytes": figure(found[at].1, found[0].1),
            "decode": { "value": median(rates[at].clone()), "to_first": median(ratios) },
        });
        (kv.to_string(), figures)
    };
    Ok(args.kv.iter().enumerate().map(of).collect::<Map<_, _>>().into())
}

/// A window of the text, behind what texts begin with.
fn with_bos(model: &Model, window: &[TokenId]) -> Vec<TokenId> {
    model.tokenizer().bos().into_iter().chain(window.iter().copied()).collect()
}

/// The negative logarithms of the probabilities of a window's tokens behind the first, added up.
fn surprise(model: &Model, window: &[TokenId], threads: usize) -> Result<f64, AnyError> {
    let logits = model.logits(window.to_vec(), &CancelToken::new())?;
    let rows: Vec<_> = logits.chunks_exact(model.arch().vocab_size).zip(&window[1..]).collect();
    let of = |(row, token): &(&[f32], &TokenId)| {
        let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = row.iter().map(|x| f64::from((x - largest).exp())).sum();
        sum.ln() - f64::from(row[token.0 as usize] - largest)
    };
    Ok(std::thread::scope(|scope| {
        let parts = rows.chunks(rows.len().div_ceil(threads));
        let parts: Vec<_> = parts.map(|rows| scope.spawn(move || rows.iter().map(of).sum::<f64>())).collect();
        parts.into_iter().map(|part| part.join().unwrap_or(f64::NAN)).sum()
    }))
}

/// Tokens a second behind a prompt, from the second one on.
fn decode(model: &Model, prompt: &[TokenId], tokens: usize) -> Result<f64, AnyError> {
    let options = GenerateOptions::default().max_tokens(tokens).ignore_eos(true).speculate(Speculate::Off);
    let mut generation = model.generate(prompt.to_vec(), options)?;
    generation.next().transpose()?;
    let began = Instant::now();
    let mut counted = 0;
    for event in generation {
        event?;
        counted += 1;
    }
    Ok(counted as f64 / began.elapsed().as_secs_f64())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
