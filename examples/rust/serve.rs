//! Serves a model's feed-forward blocks and experts to other processes and machines, until its standard input ends.
//!
//! Without arguments it serves the embedded default model to this machine:
//! `cargo run --release --features net --example serve`. With the address that it prints,
//! `cargo run --release --features net --example generate -- --ffn-at ADDRESS` generates.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use skulk::remote::{Address, Identity, Roots};
use skulk::{ByteSize, EngineOptions, Error, ErrorKind, ServeOptions, open_checkpoint};

/// Serves feed-forward blocks and experts.
#[derive(Parser)]
struct Args {
    /// A GGUF file, a folder with safetensors, or a vindex.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/stories260K"), hide_default_value = true)]
    model: PathBuf,
    /// Where to listen: http://host:port, https://host:port or unix:///path.
    #[arg(long, default_value = "http://127.0.0.1:0")]
    listen: Address,
    /// Layers whose blocks are served, as in 0..12; all unless given.
    #[arg(long, value_parser = range)]
    layers: Option<Range<usize>>,
    /// Experts that are served of each layer that has some, as in 0..64; all unless given.
    #[arg(long, value_parser = range)]
    experts: Option<Range<usize>>,
    /// A file with the key that clients must know.
    #[arg(long)]
    key_file: Option<PathBuf>,
    /// A file with the certificate that is shown to clients of https, and its private key, in PEM.
    #[arg(long)]
    identity: Option<PathBuf>,
    /// A file with certificates that clients' must lead to, in PEM.
    #[arg(long)]
    clients: Option<PathBuf>,
    /// Bytes of weights that may be in memory at a time; all, unless given.
    #[arg(long)]
    ffn_budget: Option<u64>,
    /// Threads to compute with; all cores unless given.
    #[arg(long)]
    threads: Option<usize>,
    /// Seconds that running requests get when it is to end.
    #[arg(long, default_value_t = 10)]
    grace: u64,
}

fn range(text: &str) -> Result<Range<usize>, String> {
    let ends = text.split_once("..").and_then(|(start, end)| Some((start.parse().ok()?, end.parse().ok()?)));
    ends.map(|(start, end)| start..end).ok_or_else(|| "expected a range, as in 0..12".to_owned())
}

fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:?}");
            ExitCode::FAILURE
        }
    }
}

fn read(path: &Path) -> skulk::Result<String> {
    std::fs::read_to_string(path).map_err(|e| {
        Error::new(ErrorKind::FileIo, "cannot read the file").with("file", path.display()).with_source(e)
    })
}

fn run(args: Args) -> skulk::Result<()> {
    let mut engine = EngineOptions::default();
    engine.threads = args.threads.unwrap_or(engine.threads);
    engine.ffn_budget = args.ffn_budget.map(ByteSize);
    let mut options = ServeOptions::default().listen(args.listen).engine_options(engine);
    (options.layers, options.experts) = (args.layers, args.experts);
    if let Some(file) = &args.key_file {
        options = options.key(read(file)?.trim());
    }
    if let Some(file) = &args.identity {
        let pem = read(file)?;
        options = options.identity(Identity::from_pem(&pem, &pem)?);
    }
    if let Some(file) = &args.clients {
        options = options.clients(Roots::from_pem(read(file)?)?);
    }
    let server = skulk::serve(&*open_checkpoint(&args.model)?, &options)?;
    println!("{}", server.address());
    // Whoever began it closes its input to end it; Ctrl-C ends it at once.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    server.stop(Duration::from_secs(args.grace));
    Ok(())
}
