//! Does each family decode at the same share of the memory's speed? Layers of each kind that a family has, as wide as a
//! published model's, with random weights as MLX stores them.
//!
//! `cargo run --release -p skulk-bench --bin families` prints a table. `families.json` has what is published, and what is
//! cut: layers, experts, and here the vocabulary. Llama and the family compute a token in turns, as the machine's speed
//! drifts; a round's time is that of the quickest of some steps, as other work can only make them slower.
#![allow(unsafe_code, reason = "vector instructions")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

#[path = "families_folder.rs"]
mod folder;
mod noted;
mod reading;

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use clap::Parser;
use memmap2::MmapMut;
use noted::Entry;
use serde_json::{Map, Value, json};
use skulk::arch::ArchSpec;
use skulk::engine::{LoadCx, Logits, Reply, Segment, ShardSpec, StepCx};
use skulk::internals::{kept_bytes, traced};
use skulk::{Batch, CancelToken, Engine, EngineOptions, KvType, Memory, SeqId, Shard, TokenId};

type AnyError = Box<dyn std::error::Error>;

/// What others are compared to.
const YARDSTICK: &str = "llama";
/// Rows of the embedding table and of the head: so few that they count for little.
const VOCABULARY: usize = 2048;
/// Tokens of a prompt that are computed at a time.
const CHUNK: usize = 256;

/// Measures what share of the memory's speed families decode at.
#[derive(Parser)]
struct Args {
    /// Families of families.json; all unless given.
    #[arg(long, value_delimiter = ',')]
    family: Vec<String>,
    /// Threads that compute.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Tokens before those that are decoded.
    #[arg(long, default_value_t = 128)]
    depth: usize,
    /// Rounds.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Steps of a round, of which the quickest counts.
    #[arg(long, default_value_t = 8)]
    steps: usize,
    /// Where weights lie.
    #[arg(long, default_value = "mapped")]
    memory: Memory,
    /// Notes what the operations of a token take, too.
    #[arg(long)]
    operations: bool,
    /// Where folders are written, up to 2 GB at a time, and removed again.
    #[arg(long, default_value = ".cache")]
    folder: PathBuf,
    /// Writes all figures to this file.
    #[arg(long)]
    json: Option<PathBuf>,
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
    let known: Map<String, Value> = serde_json::from_str(include_str!("families.json"))?;
    if let Some(unknown) = args.family.iter().find(|name| !known.contains_key(*name)) {
        let names = known.keys().cloned().collect::<Vec<_>>().join(", ");
        return Err(format!("no family {unknown}; there are {names}").into());
    }
    let wanted = |name: &str| args.family.is_empty() || args.family.iter().any(|family| family == name);
    let memory = reading::memory(1 << 29, true)?;
    // One for both: threads of another would fall asleep in between.
    let engine = skulk::engines::cpu(&EngineOptions::default().threads(args.threads).memory(args.memory))?;
    let mut yardstick = Subject::new(args, &*engine, &known[YARDSTICK])?;
    println!(
        "| family | model | MB of weights | MB kept | ms a token | share of the memory's speed | to {YARDSTICK} |"
    );
    println!("|---|---|---|---|---|---|---|");
    let (mut report, mut tables) = (Map::new(), String::new());
    for (name, family) in known.iter().filter(|(name, _)| wanted(name)) {
        let mut subject = Subject::new(args, &*engine, family).map_err(|error| format!("{name}: {error}"))?;
        yardstick.rewind(args.depth)?;
        let rounds = (0..args.rounds).map(|_| Round::new(args, &memory, &mut yardstick, &mut subject));
        let rounds = rounds.collect::<Result<Vec<_>, _>>()?;
        let of = |figure: fn(&Round) -> f64| Spread::new(rounds.iter().map(figure).collect());
        let (seconds, share, ratio) = (of(|r| r.seconds), of(|r| r.share), of(|r| r.share / r.yardstick));
        println!(
            "| {name} | {} | {:.0} | {:.1} | {:.2} | {:.0}% | {:.2} [{:.2}-{:.2}] |",
            family["model"].as_str().unwrap_or_default(),
            subject.weights as f64 / 1e6,
            subject.kept as f64 / 1e6,
            seconds.median * 1e3,
            share.median * 1e2,
            ratio.median,
            ratio.least,
            ratio.most,
        );
        let figures = json!({
            "weights": subject.weights, "kept": subject.kept, "seconds": seconds.median, "share": share.median,
            "ratio": ratio.median, "ratios": rounds.iter().map(|r| r.share / r.yardstick).collect::<Vec<_>>(),
        });
        report.insert(name.clone(), figures);
        if args.operations {
            writeln!(tables, "\n{name}, {}", family["model"].as_str().unwrap_or_default())?;
            operations(args, &mut subject, &mut tables)?;
        }
    }
    print!("{tables}");
    match &args.json {
        Some(path) => Ok(fs::write(path, Value::from(report).to_string())?),
        None => Ok(()),
    }
}

/// Adds a table of what the operations of a token take.
fn operations(args: &Args, subject: &mut Subject, to: &mut String) -> Result<(), AnyError> {
    let (run, noted) = traced(|| (0..args.steps).try_for_each(|_| subject.forward(1)));
    run?;
    writeln!(to, "\n| operation | times | µs | of it waiting, µs | before, µs | MB | GB/s |")?;
    writeln!(to, "|---|---|---|---|---|---|---|")?;
    for entry in Entry::list(&noted, args.steps, args.threads) {
        let Entry { name, times, bytes, seconds, before, waiting, .. } = entry;
        let [micros, waiting, before] = [seconds, waiting, before].map(|seconds| seconds * 1e6);
        let (megabytes, rate) = (bytes / 1e6, bytes / 1e9 / seconds);
        writeln!(
            to,
            "| {name} | {times:.0} | {micros:.1} | {waiting:.1} | {before:.1} | {megabytes:.2} | {rate:.1} |"
        )?;
    }
    Ok(())
}

/// A round's figures.
struct Round {
    seconds: f64,
    /// Of the bytes that could be read in the time.
    share: f64,
    yardstick: f64,
}

impl Round {
    fn new(
        args: &Args,
        memory: &MmapMut,
        yardstick: &mut Subject,
        subject: &mut Subject,
    ) -> Result<Self, AnyError> {
        let readable = reading::bandwidth(memory, args.threads, 3);
        let share = |of: &Subject, seconds: f64| (of.weights + of.kept) as f64 / seconds / readable;
        let (mut own, mut seconds) = (f64::INFINITY, f64::INFINITY);
        // In turns: caches hold a share of a few layers' weights from token to token, of a whole model's none.
        for _ in 0..args.steps {
            own = own.min(yardstick.step()?);
            seconds = seconds.min(subject.step()?);
        }
        Ok(Self { seconds, share: share(subject, seconds), yardstick: share(yardstick, own) })
    }
}

struct Spread {
    median: f64,
    least: f64,
    most: f64,
}

impl Spread {
    fn new(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |at: usize| values.get(at).copied().unwrap_or(f64::NAN);
        Self { median: at(values.len() / 2), least: at(0), most: at(values.len().saturating_sub(1)) }
    }
}

/// A family's layers, between embeddings and head, and one sequence.
struct Subject {
    shard: Box<dyn Shard>,
    reply: Reply,
    len: usize,
    /// Bytes that a token reads of weights, and of what is kept of those before it.
    weights: u64,
    kept: u64,
}

impl Subject {
    fn new(args: &Args, engine: &dyn Engine, family: &Value) -> Result<Self, AnyError> {
        let config = cut(family);
        fs::create_dir_all(&args.folder)?;
        let folder = tempfile::tempdir_in(&args.folder)?;
        let weights = folder::write(folder.path(), &config)?;
        let shard = Self::load(args, engine, folder.path())?;
        let kept = kept_bytes(&config, args.depth)?;
        let mut subject = Self { shard, reply: Reply::new(), len: 0, weights, kept };
        subject.shard.open(SeqId(0), &[])?;
        while subject.len < args.depth {
            subject.forward(CHUNK.min(args.depth - subject.len))?;
        }
        Ok(subject)
    }

    fn load(args: &Args, engine: &dyn Engine, folder: &Path) -> Result<Box<dyn Shard>, AnyError> {
        let checkpoint = skulk::open_checkpoint(folder)?;
        let arch = Arc::new(ArchSpec::from_checkpoint(&*checkpoint)?);
        let layers = 0..arch.n_layers();
        let context = args.depth + (args.rounds + 1) * args.steps;
        let spec = ShardSpec::new(arch, layers, context, CHUNK, KvType::BF16)?;
        Ok(engine.load(&spec, &*checkpoint, &LoadCx::new(&CancelToken::new(), &|| ()))?)
    }

    /// Goes on by so many tokens, other ones each time, and asks for the next.
    fn forward(&mut self, rows: usize) -> skulk::Result<()> {
        let token = |at: usize| TokenId((at * 1031 % VOCABULARY) as u32);
        let tokens: Vec<_> = (self.len..self.len + rows).map(token).collect();
        let segment = Segment::new(SeqId(0), self.len, rows).want_last(Logits::Top(1));
        let never = CancelToken::new();
        self.shard.forward(&Batch::new(&[segment], &tokens), &mut self.reply, &StepCx::new(&never))?;
        self.len += rows;
        Ok(())
    }

    /// Forgets what came behind so many tokens.
    fn rewind(&mut self, len: usize) -> skulk::Result<()> {
        self.len = self.shard.truncate(SeqId(0), len)?;
        Ok(())
    }

    /// Seconds of a token.
    fn step(&mut self) -> skulk::Result<f64> {
        let began = Instant::now();
        self.forward(1)?;
        Ok(began.elapsed().as_secs_f64())
    }
}

/// A family's configuration, cut.
fn cut(family: &Value) -> Value {
    let mut config = Map::new();
    for part in ["config", "cut"] {
        config.extend(family[part].as_object().cloned().into_iter().flatten());
    }
    config.insert("vocab_size".into(), VOCABULARY.into());
    config.insert("vocab_size_per_layer_input".into(), VOCABULARY.into());
    config.insert("max_position_embeddings".into(), (1 << 17).into());
    config.into()
}
