//! Extracts a model into a vindex folder, browses it, cuts a slice, and generates from it.
//!
//! Without arguments it takes the embedded default model: `cargo run --release --example vindex`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use skulk::browse::{DescribeOptions, VindexBrowser, WalkOptions};
use skulk::extract::{ExtractOptions, VindexStorage, VindexWriter};
use skulk::vindex::{SliceOptions, SlicePreset, VerifyOptions};
use skulk::{
    EngineOptions, Error, ErrorKind, GenerateOptions, LoadOptions, Model, VindexReader, open_checkpoint,
};

/// Makes a vindex of a model and shows what it is good for.
#[derive(Parser)]
struct Args {
    /// A GGUF file, a folder with safetensors, or a vindex.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/stories260K"), hide_default_value = true)]
    model: PathBuf,
    /// Folder to write; a temporary one unless given.
    #[arg(long)]
    out: Option<PathBuf>,
    /// How weights are stored: f32, f16 or q4k.
    #[arg(long, default_value_t = VindexStorage::Q4K)]
    storage: VindexStorage,
    /// Tokens kept for each feature; 0 for none, which is faster.
    #[arg(long, default_value_t = 10)]
    feature_tokens: usize,
    /// Text to walk along and to continue.
    #[arg(long, default_value = "Once upon a time, there was a")]
    prompt: String,
    /// Word to describe.
    #[arg(long, default_value = "time")]
    entity: String,
    /// Threads to compute with; all cores unless given.
    #[arg(long)]
    threads: Option<usize>,
    /// End after extracting.
    #[arg(long)]
    extract_only: bool,
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

fn run(args: &Args) -> skulk::Result<()> {
    let temporary = tempfile::tempdir().map_err(|e| Error::new(ErrorKind::FileIo, e.to_string()))?;
    let vindex = args.out.clone().unwrap_or_else(|| temporary.path().join("model.vindex"));
    let mut options = ExtractOptions::default().feature_tokens(args.feature_tokens);
    options.storage = args.storage;
    options.threads = args.threads.unwrap_or(options.threads);
    let threads = options.threads;
    extract(&args.model, &vindex, options)?;
    if args.extract_only {
        return Ok(());
    }

    let reader = VindexReader::open(&vindex)?;
    println!("\n{}", reader.verify(&VerifyOptions::default())?);
    if args.feature_tokens > 0 {
        browse(&vindex, threads, args)?;
    }

    let slice = SliceOptions::default().preset(SlicePreset::Client);
    println!("\nA client's slice, {}", reader.slice(temporary.path().join("client"), &slice)?);

    let model = Model::open(
        &vindex,
        &LoadOptions::default().engine_options(EngineOptions::default().threads(threads)),
    )?;
    let output = model.generate(args.prompt.as_str(), GenerateOptions::default().max_tokens(32))?.output()?;
    println!("\n{}{}", args.prompt, output.text);
    Ok(())
}

fn extract(model: &Path, vindex: &Path, options: ExtractOptions) -> skulk::Result<()> {
    let checkpoint = open_checkpoint(model)?;
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("{wide_bar} {bytes}/{total_bytes} {msg}") {
        bar.set_style(style);
    }
    let shown = bar.clone();
    let options = options.progress(move |progress| {
        shown.set_length(progress.bytes_total.bytes());
        shown.set_position(progress.bytes_done.bytes());
        shown.set_message(progress.file.clone());
    });
    let writer = VindexWriter::new(&*checkpoint, options)?;
    let report = writer.write(vindex)?;
    bar.finish_and_clear();
    for file in &report.files {
        println!("{:>12}  {}", file.bytes.to_string(), file.name);
    }
    println!("{:>12}  in {:.1} s", report.bytes.to_string(), report.elapsed.as_secs_f64());
    for warning in &report.warnings {
        println!("note: {warning}");
    }
    Ok(())
}

fn browse(vindex: &Path, threads: usize, args: &Args) -> skulk::Result<()> {
    let browser = VindexBrowser::open(vindex, threads)?;
    println!("\nFeatures that {:?} sets off:", args.prompt);
    for hit in browser.walk(&args.prompt, &WalkOptions::default().top(2))? {
        println!(
            "  layer {:>2}, feature {:>4}: {:+.3}, {:?}",
            hit.layer, hit.feature, hit.gate_score, hit.target
        );
    }
    let options = DescribeOptions::default().min_score(0.0).limit(5);
    println!("\nWhat features that know {:?} write:", args.entity);
    for edge in browser.describe(&args.entity, &options)?.edges {
        println!(
            "  {:?} {:.3}, layers {} to {}",
            edge.target, edge.gate_score, edge.layer_min, edge.layer_max
        );
    }
    Ok(())
}
