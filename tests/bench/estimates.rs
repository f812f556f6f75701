//! Do plans come true on this machine? What the planner expects of a model on it, beside what the model then does.
//!
//! `cargo run --release -p skulk-bench --bin estimates -- --model FILE --prompt 128,512` measures the machine as
//! `Node::local` does, plans, loads the placement, and prints one JSON object for each prompt: tokens a second that are
//! decoded behind it, and seconds until its answer begins, each `estimated`, `measured` and `off`, which is the estimate's
//! distance as a share of what was measured. `--from-disk` lets weights that do not fit stay on disk: run it in a
//! container that has so little memory, after the system's cache was emptied.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use serde_json::{Value, json};
use skulk::{
    Cluster, GenerateOptions, LoadOptions, Model, Node, Planner, Request, Speculate, TokenId, open_checkpoint,
};

type AnyError = Box<dyn std::error::Error>;

/// Measures how near estimates come.
#[derive(Parser)]
struct Args {
    /// A GGUF file.
    #[arg(long)]
    model: PathBuf,
    /// Tokens of prompts.
    #[arg(long, value_delimiter = ',', default_value = "128,512")]
    prompt: Vec<usize>,
    /// Tokens that are decoded behind them.
    #[arg(long, default_value_t = 64)]
    tokens: usize,
    /// Rounds, of which what is in the middle counts. One before them is not counted.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Leave on disk what does not fit.
    #[arg(long)]
    from_disk: bool,
    /// MiB of memory that plans may think there are; without, what there is.
    #[arg(long)]
    memory: Option<u64>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), AnyError> {
    let start = Instant::now();
    let mut node = Node::local();
    eprintln!("the machine was measured in {:.3} s", start.elapsed().as_secs_f64());
    if args.from_disk {
        node = node.disk_bytes_per_second(Node::measure_disk(&args.model)?);
    }
    if let Some(mib) = args.memory {
        node = node.memory(mib << 20, mib << 20);
    }
    let speeds = json!({
        "gigabytes_per_second": node.bytes_per_second.map(|it| it / 1e9),
        "gigaoperations_per_second": node.operations_per_second.map(|it| it / 1e9),
        "layer_microseconds": node.layer_seconds.map(|it| it * 1e6),
        "disk_gigabytes_per_second": node.disk_bytes_per_second.map(|it| it / 1e9),
    });
    eprintln!("{speeds}");
    let cluster = Cluster::new(vec![node], Vec::new());
    args.prompt.iter().try_for_each(|&prompt| {
        println!("{}", of_prompt(args, &cluster, prompt)?);
        Ok(())
    })
}

fn of_prompt(args: &Args, cluster: &Cluster, prompt: usize) -> Result<Value, AnyError> {
    // Tokens are priced in the middle of the context: that of what is decoded is there then.
    let context = (2 * prompt + args.tokens) as u64;
    let request = Request::default().context_tokens(context).prompt_tokens(prompt as u64);
    let placement = Planner::plan_checkpoint(&args.model, cluster, &request.from_disk(args.from_disk))?;
    let report = placement.report().ok_or("the plan has no report")?;
    let (estimate, expected) = (report.estimate.ok_or("no estimate")?, report.prompt.ok_or("no prompt")?);
    let model = Model::load(&*open_checkpoint(&args.model)?, &placement, &LoadOptions::default())?;
    let (mut decoded, mut answered) = (Vec::new(), Vec::new());
    for round in 0..=args.rounds {
        // Another beginning each time: prefixes are kept.
        let most = model.arch().vocab_size.min(30_000);
        let id = |at: usize| if at == 0 { 5 + round } else { (at * 7919 % most) as u32 };
        let ids = (0..prompt).map(id).map(TokenId);
        let options =
            GenerateOptions::default().max_tokens(args.tokens).ignore_eos(true).speculate(Speculate::Off);
        let finish = model.generate(ids.collect::<Vec<_>>(), options)?.output()?.finish;
        if round > 0 {
            decoded.push(finish.timings.decode_tokens_per_second);
            answered.push(finish.timings.time_to_first_token.as_secs_f64());
        }
    }
    let figure = |estimated: f64, mut measured: Vec<f64>| {
        measured.sort_by(f64::total_cmp);
        let measured = measured[measured.len() / 2];
        json!({ "estimated": estimated, "measured": measured, "off": estimated / measured - 1.0 })
    };
    Ok(json!({
        "prompt": prompt,
        "decode": figure(estimate.tokens_per_second, decoded),
        "first_token": figure(expected.seconds, answered),
        "ffn_budget": placement.ffn_budget(),
        "memory": model.memory(),
    }))
}
