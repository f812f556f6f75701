//! What does it cost that other processes compute feed-forward blocks and experts?
//!
//! `cargo run --release -p skulk-bench --features net --bin remote -- --model FILE` prints one JSON object. Servers are
//! processes of this program, on this machine's loopback. Models alone and apart take turns, and medians of ratios within a
//! round count, as the machine's speed drifts:
//!
//! - `decode`: tokens a second alone and apart (`--wire`, `--servers`), and their ratio; of eight sessions against one, apart
//! - `call`: microseconds of jobs of one row, beside what the same job takes here (median and 99th percentile)
//! - `streams`, with `--seconds`: jobs of so many clients at once, how many failed, and the server's memory before and after
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

use std::io::{BufRead, BufReader, Read};
use std::ops::Range;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use serde_json::{Value, json};
use skulk::arch::ArchSpec;
use skulk::engine::{FfnJob, FfnLine, FfnPair, FfnService, LoadCx, StepCx};
use skulk::engines::CpuFfn;
use skulk::remote::wire::WireType;
use skulk::remote::{Address, ConnectOptions, RemoteFfn};
use skulk::{
    ByteSize, CancelToken, EngineOptions, GenerateOptions, LayerIdx, LoadOptions, Model, ServeOptions,
    Speculate, TokenId, open_checkpoint,
};

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// Measures models whose blocks other processes compute.
#[derive(Parser, Clone)]
struct Args {
    /// A checkpoint.
    #[arg(long)]
    model: PathBuf,
    /// Threads of each process.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Servers, with as many experts each, or as many layers.
    #[arg(long, default_value_t = 1)]
    servers: usize,
    /// How numbers cross.
    #[arg(long, default_value = "f32")]
    wire: WireType,
    /// Asks in gRPC, for experts.
    #[arg(long)]
    grpc: bool,
    /// Tokens of each generation.
    #[arg(long, default_value_t = 64)]
    tokens: usize,
    /// Rounds.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Jobs of one row whose time is measured.
    #[arg(long, default_value_t = 2000)]
    calls: usize,
    /// Clients at once, for so many seconds.
    #[arg(long, default_value_t = 64)]
    streams: usize,
    #[arg(long, default_value_t = 0)]
    seconds: u64,
    /// Bytes of weights that servers keep in memory at a time.
    #[arg(long)]
    ffn_budget: Option<u64>,
    /// What a server of this program serves.
    #[arg(long, hide = true)]
    part: Option<String>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = if args.part.is_some() { serve(&args) } else { run(&args) };
    match done {
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

fn engine(args: &Args) -> EngineOptions {
    EngineOptions::default().threads(args.threads)
}

/// What is divided, and into how many.
fn whole(arch: &ArchSpec) -> (&'static str, usize) {
    let experts = arch.layers.iter().find_map(|layer| layer.ffn.experts);
    experts.map_or(("layers", arch.n_layers()), |experts| ("experts", experts.n_experts))
}

fn serve(args: &Args) -> Result<Value, AnyError> {
    let part = args.part.as_deref().unwrap_or_default();
    let bad = || format!("expected a part as in layers=0..4, found {part}");
    let (what, range) = part.split_once('=').ok_or_else(bad)?;
    let (start, end) = range.split_once("..").ok_or_else(bad)?;
    let range: Range<usize> = start.parse()?..end.parse()?;
    let mut engine = engine(args);
    engine.ffn_budget = args.ffn_budget.map(ByteSize);
    let options = ServeOptions::default().engine_options(engine).max_connections(1024).queue(1024);
    let options = if what == "layers" { options.layers(range) } else { options.experts(range) };
    let server = skulk::serve(&*open_checkpoint(&args.model)?, &options)?;
    println!("{}", server.address());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    Ok(json!(null))
}

struct Server {
    process: Child,
    address: Address,
}

impl Server {
    fn start(args: &Args, part: &str) -> Result<Self, AnyError> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--model").arg(&args.model).arg("--part").arg(part);
        command.arg("--threads").arg(args.threads.to_string());
        if let Some(budget) = args.ffn_budget {
            command.arg("--ffn-budget").arg(budget.to_string());
        }
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(process.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        let address = line.trim();
        let address = if args.grpc { address.replacen("http", "grpc", 1) } else { address.to_owned() };
        Ok(Self { process, address: address.parse()? })
    }

    /// Resident bytes, where the system tells (Linux).
    fn memory(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
        line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn run(args: &Args) -> Result<Value, AnyError> {
    let checkpoint = open_checkpoint(&args.model)?;
    let arch = Arc::new(ArchSpec::from_checkpoint(&*checkpoint)?);
    let (what, n) = whole(&arch);
    let mut servers = Vec::new();
    for at in 0..args.servers {
        let part = format!("{what}={}..{}", at * n / args.servers, (at + 1) * n / args.servers);
        servers.push(Server::start(args, &part)?);
    }
    let decode = decode(args, &servers)?;
    let call = call(args, &servers[0])?;
    let streams = if args.seconds > 0 { streams(args, &servers[0])? } else { Value::Null };
    Ok(json!({ "decode": decode, "call": call, "streams": streams }))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn decode(args: &Args, servers: &[Server]) -> Result<Value, AnyError> {
    let options = LoadOptions::default().engine_options(engine(args)).context(1024);
    let alone = Model::open(&args.model, &options)?;
    let connect = ConnectOptions::default().wire(args.wire);
    let at = |options: LoadOptions, server: &Server| options.ffn_at(server.address.clone());
    let apart = Model::open(&args.model, &servers.iter().fold(options, at).connect(connect))?;
    let speed = |model: &Model, sessions: usize| -> Result<f64, AnyError> {
        let prompts = (0..sessions).map(|at| vec![TokenId(5 + at as u32), TokenId(9), TokenId(11)]);
        let options =
            GenerateOptions::default().max_tokens(args.tokens).ignore_eos(true).speculate(Speculate::Off);
        let began = Instant::now();
        for output in model.generate_batch(prompts, &options) {
            output?;
        }
        Ok((sessions * args.tokens) as f64 / began.elapsed().as_secs_f64())
    };
    speed(&alone, 1)?;
    speed(&apart, 1)?;
    let (mut here, mut there, mut ratio, mut eight) = (vec![], vec![], vec![], vec![]);
    for _ in 0..args.rounds {
        let (one, other, several) = (speed(&alone, 1)?, speed(&apart, 1)?, speed(&apart, 8)?);
        here.push(one);
        there.push(other);
        ratio.push(other / one);
        eight.push(several / other);
    }
    Ok(json!({
        "alone": median(here), "apart": median(there), "ratio": median(ratio), "eight_sessions": median(eight),
    }))
}

/// A job of one row, of the first layer of which experts are served.
struct Job {
    layer: usize,
    hidden: usize,
    row: Vec<f32>,
    pairs: Vec<FfnPair>,
    sums: bool,
}

impl Job {
    fn new(arch: &ArchSpec, service: &dyn FfnService) -> Result<Self, AnyError> {
        let layers = 0..arch.n_layers();
        let layer = layers.rev().find(|layer| !service.serves(LayerIdx(*layer)).is_empty());
        let layer = layer.ok_or("nothing is served")?;
        let served = service.serves(LayerIdx(layer));
        let experts = arch.layers[layer].ffn.experts;
        let weight = if experts.is_some() { 0.25 } else { 1.0 };
        let taken = served.clone().take(experts.map_or(1, |experts| experts.n_used));
        let pairs = taken.map(|expert| FfnPair::new(0, expert as u32, weight)).collect();
        let row = (0..arch.hidden_size).map(|at| ((at * 37 % 101) as f32 - 50.0) / 50.0).collect();
        Ok(Self { layer, hidden: arch.hidden_size, row, pairs, sums: experts.is_some() })
    }

    fn time(&self, line: &mut dyn FfnLine, out: &mut [f32]) -> Result<f64, AnyError> {
        let job = FfnJob::new(LayerIdx(self.layer), self.hidden, &self.row, &self.pairs).residual(&self.row);
        let never = CancelToken::new();
        let cx = StepCx::new(&never);
        let began = Instant::now();
        line.begin(&if self.sums { job.sums() } else { job }, &cx)?;
        line.wait(out, &cx)?;
        Ok(began.elapsed().as_secs_f64() * 1e6)
    }
}

fn call(args: &Args, server: &Server) -> Result<Value, AnyError> {
    let checkpoint = open_checkpoint(&args.model)?;
    let arch = Arc::new(ArchSpec::from_checkpoint(&*checkpoint)?);
    let there =
        RemoteFfn::connect(&server.address, &*checkpoint, &ConnectOptions::default().wire(args.wire))?;
    let job = Job::new(&arch, &there)?;
    let never = CancelToken::new();
    let experts = there.serves(LayerIdx(job.layer));
    let shares = [(job.layer..job.layer + 1, experts)];
    let here = CpuFfn::load(&*checkpoint, &arch, &shares, &engine(args), &LoadCx::new(&never, &|| ()))?;
    let (mut here, mut there) = (here.line(1)?, there.line(1)?);
    let mut out = vec![0.0; arch.hidden_size];
    let (mut own, mut other) = (vec![], vec![]);
    for _ in 0..args.calls {
        own.push(job.time(&mut *here, &mut out)?);
        other.push(job.time(&mut *there, &mut out)?);
    }
    let own = median(own);
    other.sort_by(f64::total_cmp);
    let at = |part: f64| other[((other.len() - 1) as f64 * part) as usize] - own;
    Ok(json!({ "here": own, "beside": { "median": at(0.5), "p99": at(0.99) } }))
}

fn streams(args: &Args, server: &Server) -> Result<Value, AnyError> {
    let checkpoint = open_checkpoint(&args.model)?;
    let arch = ArchSpec::from_checkpoint(&*checkpoint)?;
    let service = RemoteFfn::connect(&server.address, &*checkpoint, &ConnectOptions::default())?;
    let job = Job::new(&arch, &service)?;
    let mut expected = vec![0.0; arch.hidden_size];
    job.time(&mut *service.line(1)?, &mut expected)?;
    let until = Instant::now() + Duration::from_secs(args.seconds);
    let stream = || -> Result<(u64, u64), AnyError> {
        let mut line = service.line(1)?;
        let (mut done, mut wrong) = (0, 0);
        let mut out = vec![0.0; arch.hidden_size];
        while Instant::now() < until {
            match job.time(&mut *line, &mut out) {
                Ok(_) if out == expected => done += 1,
                _ => wrong += 1,
            }
        }
        Ok((done, wrong))
    };
    let mut memory = Vec::new();
    let counts = std::thread::scope(|scope| {
        let streams: Vec<_> = (0..args.streams).map(|_| scope.spawn(stream)).collect();
        // After a tenth all are there.
        std::thread::sleep(Duration::from_secs(args.seconds) / 10);
        memory.push(server.memory());
        let counts: Vec<_> = streams.into_iter().map(|stream| stream.join()).collect();
        memory.push(server.memory());
        counts
    });
    let (mut done, mut wrong) = (0, 0);
    for count in counts {
        let count = count.map_err(|_| "a stream panicked")??;
        (done, wrong) = (done + count.0, wrong + count.1);
    }
    Ok(json!({ "jobs": done, "failed": wrong, "server_memory": memory }))
}
