//! What do sessions gain by sharing steps? Tokens a second of all together, and the time of steps of several rows.
//!
//! `cargo run --release -p skulk-bench --bin sessions -- --model FILE` prints one JSON object: by number of sessions the
//! tokens that all decode a second (`decode`), by rows the seconds of a step (`step`), each with what it is for one, and by
//! tokens of a prompt how long it takes to restore them as a share of computing them (`restore`). Runs
//! of different numbers take turns, and medians of their ratios within a round count, as the machine's speed drifts.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use clap::Parser;
use serde_json::{Map, Value, json};
use skulk::arch::ArchSpec;
use skulk::engine::{LoadCx, Logits, Reply, Segment, ShardSpec, StepCx};
use skulk::{
    Batch, CancelToken, EngineOptions, GenerateOptions, KvType, LoadOptions, Memory, Model, SeqId, Shard,
    Speculate, TokenId,
};

type AnyError = Box<dyn std::error::Error>;

/// Measures sessions that decode together, and steps of several rows.
#[derive(Parser)]
struct Args {
    /// A checkpoint.
    #[arg(long)]
    model: PathBuf,
    /// Threads that compute.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Numbers of sessions.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16")]
    sessions: Vec<usize>,
    /// Numbers of rows, each of another sequence.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8")]
    rows: Vec<usize>,
    /// Tokens that each session decodes.
    #[arg(long, default_value_t = 64)]
    tokens: usize,
    /// Tokens of the prompt that is computed, saved and restored; 0 for none.
    #[arg(long, default_value_t = 3000)]
    restore: usize,
    /// Rounds.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Where weights lie.
    #[arg(long, default_value = "mapped")]
    memory: Memory,
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
    let most = args.sessions.iter().copied().max().unwrap_or(1);
    let engine = EngineOptions::default().threads(args.threads).memory(args.memory);
    let options = LoadOptions::default().engine_options(engine.clone()).context(1024).sessions(most);
    let model = Model::open(&args.model, &options)?;
    let decode = rounds(args.rounds, &args.sessions, |n| together(&model, n, args.tokens))?;
    drop(model);
    let lengths: Vec<_> = Some(args.restore).filter(|n| *n > 0).into_iter().collect();
    let restored = rounds(args.rounds, &lengths, |n| restore(args, &engine, n))?;
    let mut steps = Steps::new(args, &engine)?;
    let step = rounds(args.rounds, &args.rows, |n| steps.time(n))?;
    Ok(json!({ "decode": decode, "step": step, "restore": restored }))
}

/// Measures each number in turn; tells medians, and medians of the ratios to the first number's.
fn rounds(
    rounds: usize,
    numbers: &[usize],
    mut measure: impl FnMut(usize) -> Result<f64, AnyError>,
) -> Result<Value, AnyError> {
    let mut found = vec![Vec::new(); numbers.len()];
    for _ in 0..rounds {
        for (found, &n) in found.iter_mut().zip(numbers) {
            found.push(measure(n)?);
        }
    }
    let first = found.first().cloned().unwrap_or_default();
    let of = |(n, found): (&usize, &Vec<f64>)| {
        let ratios = found.iter().zip(&first).map(|(a, b)| a / b).collect();
        (n.to_string(), json!({ "median": median(found.clone()), "to_first": median(ratios) }))
    };
    Ok(numbers.iter().zip(&found).map(of).collect::<Map<_, _>>().into())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Tokens a second of so many sessions together, behind the first token of the last one.
fn together(model: &Model, sessions: usize, tokens: usize) -> Result<f64, AnyError> {
    let options = GenerateOptions::default().max_tokens(tokens).ignore_eos(true).speculate(Speculate::Off);
    // Other tokens in each: they share no pages.
    let start = |session: usize| {
        let first = 1000 + u32::try_from(session * 100).unwrap_or(0);
        let prompt: Vec<_> = (0..10).map(|i| TokenId(first + i)).collect();
        model.generate(prompt, options.clone())
    };
    let mut running = (0..sessions).map(start).collect::<skulk::Result<Vec<_>>>()?;
    for generation in &mut running {
        generation.next().transpose()?;
    }
    let began = Instant::now();
    // Event by event of each, as hosts read them: none waits for its reader.
    let mut counted = 0;
    for _ in 1..tokens {
        for generation in &mut running {
            counted += usize::from(generation.next().transpose()?.is_some());
        }
    }
    Ok(counted as f64 / began.elapsed().as_secs_f64())
}

/// The seconds in which a prompt of so many tokens is restored, as a share of those in which it is computed.
fn restore(args: &Args, engine: &EngineOptions, tokens: usize) -> Result<f64, AnyError> {
    let options = LoadOptions::default().engine_options(engine.clone()).context(tokens + 1);
    let model = Model::open(&args.model, &options)?;
    let prompt: Vec<_> = (0..tokens).map(|i| TokenId(1000 + (i * 37 % 5003) as u32)).collect();
    let session = model.session()?;
    let began = Instant::now();
    session.generate(prompt, GenerateOptions::default().max_tokens(1))?.output()?;
    let computed = began.elapsed();
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("conversation");
    session.save(&file)?;
    // As in another process: nothing of it is in memory but the file's pages.
    drop((session, model));
    let model = Model::open(&args.model, &options)?;
    let began = Instant::now();
    model.restore(&file)?;
    Ok(began.elapsed().as_secs_f64() / computed.as_secs_f64())
}

/// A whole model as one shard, with sequences of some length.
struct Steps {
    shard: Box<dyn Shard>,
    reply: Reply,
    len: usize,
}

impl Steps {
    /// Positions before the steps that are measured.
    const BEFORE: usize = 16;
    /// Steps that are measured together.
    const STEPS: usize = 24;

    fn new(args: &Args, engine: &EngineOptions) -> Result<Self, AnyError> {
        let checkpoint = skulk::open_checkpoint(&args.model)?;
        let arch = Arc::new(ArchSpec::from_checkpoint(&*checkpoint)?);
        let layers = 0..arch.n_layers();
        let rows = args.rows.iter().copied().max().unwrap_or(1).max(Self::BEFORE);
        let spec = ShardSpec::new(arch, layers, 1024, rows, KvType::BF16)?;
        let engine = skulk::engines::cpu(engine)?;
        let shard = engine.load(&spec, &*checkpoint, &LoadCx::new(&CancelToken::new(), &|| ()))?;
        let mut steps = Self { shard, reply: Reply::new(), len: Self::BEFORE };
        for seq in 0..rows {
            let tokens: Vec<_> = (0..Self::BEFORE).map(|i| steps.token(seq, i)).collect();
            steps.shard.open(SeqId(seq as u64), &[])?;
            steps.forward(&[Segment::new(SeqId(seq as u64), 0, tokens.len())], &tokens)?;
        }
        Ok(steps)
    }

    fn token(&self, seq: usize, position: usize) -> TokenId {
        TokenId(u32::try_from(1000 + 100 * seq + position).unwrap_or(0))
    }

    fn forward(&mut self, segments: &[Segment], tokens: &[TokenId]) -> skulk::Result<()> {
        let never = CancelToken::new();
        self.shard.forward(&Batch::new(segments, tokens), &mut self.reply, &StepCx::new(&never))
    }

    /// Seconds of a step of so many sequences' next tokens, all of them greedy: the median.
    fn time(&mut self, rows: usize) -> Result<f64, AnyError> {
        let mut times = Vec::new();
        for at in 0..Self::STEPS {
            let start = self.len + at;
            let next = |seq: usize| Segment::new(SeqId(seq as u64), start, 1).want_last(Logits::Top(1));
            let segments: Vec<_> = (0..rows).map(next).collect();
            let tokens: Vec<_> = (0..rows).map(|seq| self.token(seq, start)).collect();
            let began = Instant::now();
            self.forward(&segments, &tokens)?;
            times.push(began.elapsed().as_secs_f64());
        }
        for seq in 0..rows {
            self.shard.truncate(SeqId(seq as u64), self.len)?;
        }
        Ok(median(times))
    }
}
