//! Loads a model in stages, shows the plan, streams text, and ends with the speed.
//!
//! Without arguments it runs the embedded default model: `cargo run --release --example generate`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use serde_json::json;
use skulk::{
    ByteSize, EngineOptions, Error, Event, Finish, GenerateOptions, Generation, LoadOptions, Memory, Model,
    Placement, Precision, Prompt, Sampling, Speculate, TokenId,
};

/// Generates text with a model split into stages in this process.
#[derive(Parser)]
struct Args {
    /// A GGUF file, or a folder with safetensors.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/stories260K"), hide_default_value = true)]
    model: PathBuf,
    /// Stages the layers are split into.
    #[arg(long, default_value_t = 2)]
    stages: usize,
    /// Text to continue.
    #[arg(long, default_value = "Once upon a time, there was a")]
    prompt: String,
    /// Tokens to continue, instead of text: comma-separated ids.
    #[arg(long, value_delimiter = ',', conflicts_with = "prompt")]
    prompt_ids: Vec<u32>,
    /// Tokens to generate at most.
    #[arg(long, default_value_t = 128)]
    max_tokens: usize,
    /// 0 takes the likeliest token.
    #[arg(long, default_value_t = 0.0)]
    temperature: f32,
    /// Seed of the random draw.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Tokens ahead: where they pay (auto), of texts (ngram) or of a head alone (draft_model), or none (off).
    #[arg(long, default_value_t)]
    speculate: Speculate,
    /// Threads to compute with; all cores unless given.
    #[arg(long)]
    threads: Option<usize>,
    /// How activations are rounded: to 8 bits (fast), to 15 (exact), or, for BF16 weights, to BF16 (bf16).
    #[arg(long, default_value_t)]
    precision: Precision,
    /// Keep a compact copy of the head and read only those of its rows that can matter: same results
    #[arg(long)]
    screen_head: bool,
    /// Where weights lie: mapped, resident, or whichever the free memory suggests (auto).
    #[arg(long, default_value_t)]
    memory: Memory,
    /// Engine to run on.
    #[arg(long, default_value = "cpu")]
    engine: String,
    /// Engines with their numbers of layers, in order, as in candle-cuda=20,cpu=12.
    #[arg(long, conflicts_with_all = ["engine", "stages"])]
    placement: Option<Placement>,
    /// Leave feed-forward blocks and experts to the CPU where the engine would copy them to its device.
    #[arg(long)]
    ffn_on_cpu: bool,
    /// A server of feed-forward blocks and experts, as http://host:port: computes those that it has. May be given again.
    #[cfg(feature = "net")]
    #[arg(long)]
    ffn_at: Vec<skulk::remote::Address>,
    /// A file with the key that these servers ask for.
    #[cfg(feature = "net")]
    #[arg(long, requires = "ffn_at")]
    key_file: Option<PathBuf>,
    /// Bytes of feed-forward weights that may be in memory at a time; all, unless given.
    #[arg(long)]
    ffn_budget: Option<u64>,
    /// Tokens the session can hold; the model's own limit, at most 4096, unless given.
    #[arg(long)]
    context: Option<usize>,
    /// Go on past the model's end-of-sequence tokens.
    #[arg(long)]
    ignore_eos: bool,
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:?}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Error> {
    let model = load(args)?;
    if !args.json {
        print_plan(args, &model);
    }
    let prompt = match args.prompt_ids.as_slice() {
        [] => Prompt::Text(args.prompt.clone()),
        ids => Prompt::Tokens(ids.iter().copied().map(TokenId).collect()),
    };
    let options = GenerateOptions::default()
        .max_tokens(args.max_tokens)
        .sampling(Sampling::default().temperature(args.temperature).seed(args.seed))
        .ignore_eos(args.ignore_eos)
        .speculate(args.speculate);
    let generation = model.generate(prompt, options)?;
    if args.json { stream_json(generation) } else { stream_text(args, generation) }
}

fn load(args: &Args) -> Result<Model, Error> {
    let mut engine =
        EngineOptions::default().screen_head(args.screen_head).memory(args.memory).precision(args.precision);
    if let Some(threads) = args.threads {
        engine = engine.threads(threads);
    }
    engine.ffn_budget = args.ffn_budget.map(ByteSize);
    let options = LoadOptions::default().engine_options(engine).ffn_on_cpu(args.ffn_on_cpu);
    let mut options = match &args.placement {
        Some(placement) => options.placement(placement.clone()),
        None => options.stages(args.stages).engine_name(&args.engine),
    };
    if let Some(context) = args.context {
        options = options.context(context);
    }
    #[cfg(feature = "net")]
    {
        options.ffn_at.clone_from(&args.ffn_at);
        if let Some(file) = &args.key_file {
            let key = std::fs::read_to_string(file).map_err(|e| {
                Error::new(skulk::ErrorKind::FileIo, "cannot read the file")
                    .with("file", file.display())
                    .with_source(e)
            })?;
            options.connect.key = Some(key.trim().to_owned());
        }
    }
    if !args.json && std::io::stderr().is_terminal() {
        let bar = indicatif::ProgressBar::new(0).with_message("loading layers");
        bar.set_style(indicatif::ProgressStyle::default_bar());
        options = options.progress(move |progress| {
            bar.set_length(progress.total as u64);
            // Quick loads, the usual case, show no bar.
            if bar.elapsed().as_millis() > 500 {
                bar.set_position(progress.done as u64);
            }
            if progress.done == progress.total {
                bar.finish_and_clear();
            }
        });
    }
    Model::open(&args.model, &options)
}

fn print_plan(args: &Args, model: &Model) {
    let arch = model.arch();
    let name = args.model.file_name().unwrap_or(args.model.as_os_str()).to_string_lossy();
    println!(
        "{name}: {}, {} layers, width {}, vocabulary {}, context {}",
        arch.family,
        arch.n_layers(),
        arch.hidden_size,
        arch.vocab_size,
        model.context()
    );
    for (i, stage) in model.stages().iter().enumerate() {
        println!(
            "  stage {i}: layers {:>2}..{:<2} on {} ({}), weights {} {}, KV cache {}",
            stage.layers.start,
            stage.layers.end,
            stage.engine,
            stage.device,
            stage.weights,
            stage.memory.as_str(),
            stage.kv_cache
        );
    }
    println!();
}

fn stream_text(args: &Args, generation: Generation) -> Result<(), Error> {
    if args.prompt_ids.is_empty() {
        print!("{}", args.prompt);
    }
    let mut finish = None;
    for event in generation {
        let event = event?;
        print!("{}", event.text);
        // A reader that went away is no failure of the generation.
        let _ = std::io::stdout().flush();
        finish = event.finish;
    }
    if let Some(Finish { reason, usage, timings, .. }) = finish {
        println!(
            "\n\nloaded in {:.2} s, first token after {:.3} s; prefill {} tokens at {:.0} tok/s, decode {} tokens at {:.0} tok/s ({reason}){}",
            timings.load.as_secs_f64(),
            timings.time_to_first_token.as_secs_f64(),
            usage.prompt_tokens - usage.cached_tokens,
            timings.prefill_tokens_per_second,
            usage.completion_tokens,
            timings.decode_tokens_per_second,
            peak_rss().map_or(String::new(), |bytes| format!(", peak memory {}", ByteSize(bytes))),
        );
    }
    Ok(())
}

fn stream_json(generation: Generation) -> Result<(), Error> {
    let prompt_ids: Vec<u32> = generation.prompt_ids().iter().map(|t| t.0).collect();
    let (mut text, mut ids) = (String::new(), Vec::new());
    for event in generation {
        let Event { token, text: piece, finish, .. } = event?;
        text.push_str(&piece);
        ids.extend(token.as_ref().map(|t| t.id.0));
        println!("{}", json!({ "id": token.map(|t| t.id.0), "text": piece }));
        if let Some(Finish { reason, usage, timings, .. }) = finish {
            println!(
                "{}",
                json!({
                    "text": text,
                    "ids": ids,
                    "prompt_ids": prompt_ids,
                    "finish_reason": reason.as_str(),
                    "usage": {
                        "prompt_tokens": usage.prompt_tokens,
                        "cached_tokens": usage.cached_tokens,
                        "completion_tokens": usage.completion_tokens,
                    },
                    "timings": {
                        "load_seconds": timings.load.as_secs_f64(),
                        "time_to_first_token_seconds": timings.time_to_first_token.as_secs_f64(),
                        "prefill_seconds": timings.prefill.as_secs_f64(),
                        "decode_seconds": timings.decode.as_secs_f64(),
                        "prefill_tokens_per_second": timings.prefill_tokens_per_second,
                        "decode_tokens_per_second": timings.decode_tokens_per_second,
                    },
                    "peak_rss_bytes": peak_rss(),
                })
            );
            return Ok(());
        }
    }
    Ok(())
}

/// The process' largest resident memory so far in bytes, where the system tells (Linux).
fn peak_rss() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}
