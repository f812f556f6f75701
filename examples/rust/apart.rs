//! Attention in this process, feed-forward blocks in three others. Then one of these is lost in the middle of a text, which
//! goes on when its blocks are computed elsewhere.
//!
//! `cargo run --release --features net --example apart`
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

use std::io::{BufRead, BufReader, Read};
use std::ops::Range;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};

use clap::Parser;
use skulk::arch::ArchSpec;
use skulk::{
    EngineOptions, Error, ErrorKind, GenerateOptions, LoadOptions, Model, Retry, ServeOptions,
    open_checkpoint,
};

/// Generates with a model whose feed-forward blocks other processes compute.
#[derive(Parser)]
struct Args {
    /// A GGUF file, a folder with safetensors, or a vindex.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/stories260K"), hide_default_value = true)]
    model: PathBuf,
    /// Text to continue.
    #[arg(long, default_value = "Once upon a time, there was a")]
    prompt: String,
    /// Tokens to generate at most.
    #[arg(long, default_value_t = 48)]
    max_tokens: usize,
    /// Lose one of the other processes after so many tokens; never, unless given.
    #[arg(long)]
    lose_after: Option<usize>,
    /// Serve these layers, or experts, and do nothing else: how this program starts the other processes.
    #[arg(long, hide = true, value_parser = range, conflicts_with = "experts")]
    layers: Option<Range<usize>>,
    #[arg(long, hide = true, value_parser = range)]
    experts: Option<Range<usize>>,
}

fn range(text: &str) -> Result<Range<usize>, String> {
    let ends = text.split_once("..").and_then(|(start, end)| Some((start.parse().ok()?, end.parse().ok()?)));
    ends.map(|(start, end)| start..end).ok_or_else(|| "expected a range, as in 0..12".to_owned())
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match args.layers.is_some() || args.experts.is_some() {
        true => serve(args),
        false => run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:?}");
            ExitCode::FAILURE
        }
    }
}

/// One of the other processes: serves until its input ends, as it does with whoever started it.
fn serve(args: Args) -> skulk::Result<()> {
    let mut options = ServeOptions::default().engine_options(EngineOptions::default().threads(1));
    (options.layers, options.experts) = (args.layers, args.experts);
    let server = skulk::serve(&*open_checkpoint(&args.model)?, &options)?;
    println!("{}", server.address());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    Ok(())
}

/// A process that serves a part of the model.
struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start(args: &Args, what: &str, part: &Range<usize>) -> skulk::Result<Self> {
        let failed = |e: std::io::Error| {
            Error::new(ErrorKind::FileIo, "cannot start another process of this program").with_source(e)
        };
        let mut process = Command::new(std::env::current_exe().map_err(failed)?)
            .arg("--model")
            .arg(&args.model)
            .arg(format!("--{what}={}..{}", part.start, part.end))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let mut address = String::new();
        if let Some(output) = process.stdout.take() {
            BufReader::new(output).read_line(&mut address).map_err(failed)?;
        }
        Ok(Self { process, address: address.trim().to_owned() })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn load(args: &Args, servers: &[Server]) -> skulk::Result<Model> {
    let engine = EngineOptions::default().threads(1);
    let mut options = LoadOptions::default().engine_options(engine);
    for server in servers {
        options = options.ffn_at(server.address.parse()?);
    }
    Model::open(&args.model, &options)
}

fn run(args: &Args) -> skulk::Result<()> {
    let arch = ArchSpec::from_checkpoint(&*open_checkpoint(&args.model)?)?;
    // A third of the experts each, or of the layers where there are none.
    let experts = arch.layers.iter().find_map(|layer| layer.ffn.experts).map(|experts| experts.n_experts);
    let (what, n) = experts.map_or(("layers", arch.n_layers()), |n| ("experts", n));
    let thirds = [0..n / 3, n / 3..2 * n / 3, 2 * n / 3..n];
    let start = |part: &Range<usize>| Server::start(args, what, part);
    let mut servers = thirds.iter().map(start).collect::<skulk::Result<Vec<_>>>()?;
    for (server, part) in servers.iter().zip(&thirds) {
        println!("{what} {}..{} at {}", part.start, part.end, server.address);
    }
    let model = load(args, &servers)?;
    let mut session = model.session()?;
    let options = GenerateOptions::default().max_tokens(args.max_tokens).ignore_eos(true);
    let mut generation = session.generate(args.prompt.as_str(), options)?;
    print!("\n{}", args.prompt);
    let (mut tokens, mut lose_after) = (0, args.lose_after);
    loop {
        match generation.next() {
            Some(Ok(event)) => {
                print!("{}", event.text);
                tokens += usize::from(event.token.is_some());
                if lose_after == Some(tokens) {
                    // What it computed for the tokens that are here already was the last.
                    servers.truncate(2);
                    lose_after = None;
                }
                if let Some(finish) = event.finish {
                    let timings = finish.timings;
                    println!("\n\n{tokens} tokens at {:.0} tok/s", timings.decode_tokens_per_second);
                    return Ok(());
                }
            }
            Some(Err(error)) if error.retry() == Retry::AfterReplan => {
                print!(" [{}] ", error.code());
                // Two servers are left: what they lack is computed here.
                session = session.recover_in(&load(args, &servers)?)?;
                generation = session.resume()?;
            }
            Some(Err(error)) => return Err(error),
            None => return Ok(()),
        }
    }
}
