//! How fast is a GPU, and how much of that does skulk use? Checked first, then timed; a table at the end.
//!
//! `tests/bench/gpu` builds and runs it; docs/performance.md says what the figures mean.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

mod gpu_check;
mod gpu_limits;
mod gpu_model;
mod gpu_plan;
mod gpu_report;
mod gpu_times;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use clap::Parser;
use clap::builder::RangedU64ValueParser;
use serde_json::Value;
use skulk::{CancelToken, Engine, EngineOptions, ErrorKind};

use gpu_check::{Compared, PROMPT, Subject};
use gpu_model::{Shape, TINY};
use gpu_report::{Report, giga};
use gpu_times::{Arm, Workload};

type AnyError = Box<dyn std::error::Error>;

/// Checks and measures a GPU. Exits with 1 when a check fails or the engine does not work.
#[derive(Parser)]
#[command(name = "tests/bench/gpu")]
struct Args {
    /// The engine: wgpu, or a device's, as wgpu-vulkan:0; `software` is the first that computes on the CPU.
    #[arg(long, default_value = "wgpu")]
    engine: String,
    /// Another engine to take turns with, if it works.
    #[arg(long, default_value = "candle-cuda")]
    against: Vec<String>,
    /// A model and sizes that take seconds on the slowest device.
    #[arg(long)]
    tiny: bool,
    /// Keep the models here, and use those that are there; otherwise they are removed at the end.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Be done after so many seconds, with fewer rounds if need be.
    #[arg(long, default_value_t = 480)]
    seconds: u64,
    /// Rounds to measure at most; 5 unless given, of the tiny model 2.
    #[arg(long)]
    rounds: Option<usize>,
    #[command(flatten)]
    workload: Workload,
    #[command(flatten)]
    shape: Shape,
    /// Also write everything to this file.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Reads a number that is no smaller.
fn at_least(least: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(least..)
}

/// When everything has to be done.
pub(crate) struct Deadline {
    at: Instant,
    /// Cancelled then.
    pub(crate) cancel: CancelToken,
}

impl Deadline {
    /// Cancels in time to print the table; ends the process if the device does not stop for that.
    fn after(seconds: u64) -> Self {
        let end = Instant::now() + Duration::from_secs(seconds);
        let at = end - Duration::from_secs(seconds.min(100) / 10);
        let cancel = CancelToken::new();
        let late = cancel.clone();
        std::thread::spawn(move || {
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            late.cancel();
            std::thread::sleep(end.saturating_duration_since(Instant::now()));
            eprintln!("error: the device did not stop in time; what was measured is above");
            std::process::exit(1);
        });
        Self { at, cancel }
    }

    /// Seconds until then.
    pub(crate) fn left(&self) -> f64 {
        self.at.saturating_duration_since(Instant::now()).as_secs_f64()
    }
}

fn is_cancelled(error: &AnyError) -> bool {
    error.downcast_ref::<skulk::Error>().is_some_and(|error| error.kind() == ErrorKind::Cancelled)
}

/// Tells how far it is.
fn note(what: &str) {
    static STARTED: OnceLock<Instant> = OnceLock::new();
    eprintln!("[{:6.1} s] {what}", STARTED.get_or_init(Instant::now).elapsed().as_secs_f64());
}

fn main() -> ExitCode {
    let args = Args::parse();
    note("starting");
    let deadline = Deadline::after(args.seconds);
    match Bench::new(&args) {
        Ok(mut bench) => {
            if let Err(error) = bench.run(&args, &deadline) {
                bench.fail("measuring", &error);
            }
            let report = &bench.report;
            println!("{}", report.markdown());
            let written = args.json.as_ref().map_or(Ok(()), |path| write_json(path, &report.json()));
            written.unwrap_or_else(|error| bench.fail("writing JSON", &error));
            bench.report.problems.iter().for_each(|problem| eprintln!("error: {problem}"));
            if bench.report.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("error: {}", told(&error));
            ExitCode::FAILURE
        }
    }
}

fn write_json(path: &Path, report: &Value) -> Result<(), AnyError> {
    Ok(std::fs::write(path, format!("{report:#}\n"))?)
}

/// An error with the reasons below it.
fn told(error: &AnyError) -> String {
    if is_cancelled(error) {
        return "the time was over".to_owned();
    }
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    text
}

/// An engine, and what was found out about it so far.
struct Bench {
    engine: Arc<dyn Engine>,
    report: Report,
}

impl Bench {
    fn new(args: &Args) -> Result<Self, AnyError> {
        let devices = skulk::engines::devices();
        let software = || devices.iter().find(|device| device.software);
        let name = match args.engine.as_str() {
            "software" => software().ok_or("there is no device that is software")?.engine.as_str(),
            name => name,
        };
        let engine = skulk::engines::by_name(name, &EngineOptions::default())?;
        let device = devices.iter().find(|device| device.engine == *engine.id());
        let device = device.ok_or_else(|| format!("expected an engine on wgpu, found `{name}`"))?.clone();
        note(&format!("{}: {}, {}", device.engine, device.name, device.driver));
        args.shape.check()?;
        Ok(Self { engine, report: Report::new(device, args.shape, args.workload) })
    }

    fn fail(&mut self, what: &str, error: &AnyError) {
        note(&format!("{what}: {}", told(error)));
        self.report.problems.push(format!("{what}: {}", told(error)));
    }

    fn run(&mut self, args: &Args, deadline: &Deadline) -> Result<(), AnyError> {
        // Dropped at the end, and the models with it.
        let temporary = if args.folder.is_none() { Some(tempfile::tempdir()?) } else { None };
        let folder = match (&args.folder, &temporary) {
            (Some(folder), _) => folder.as_path(),
            (None, Some(temporary)) => temporary.path(),
            (None, None) => return Err("there is no folder".into()),
        };
        let Report { shape, workload, .. } = self.report;
        let tiny = TINY.file(folder)?;
        let engine = Arc::clone(&self.engine);
        let on_engine = |path| Subject { path, engine: &engine, cancel: &deadline.cancel };
        self.checked("tiny model", on_engine(&tiny).whole(&TINY.prompt(PROMPT, 1)));

        let bytes = if args.tiny { 32 << 20 } else { 512 << 20 };
        match gpu_limits::measure(self.report.device.engine.as_str(), bytes) {
            Ok(limits) => {
                note(&format!("copy {} GB/s, f32 {} GFLOP/s", giga(limits.copy), giga(limits.f32)));
                self.report.limits = Some(limits);
            }
            Err(error) => self.fail("the device's limits", &error),
        }

        let path = shape.file(folder)?;
        self.report.bytes_per_token = bytes_per_token(&path)?;
        note(&format!("the model is there: {}", path.display()));
        if shape != TINY {
            let checked = on_engine(&path).ends(shape.layers, &shape.prompt(PROMPT, 1));
            self.checked("first and last layer of the model", checked);
        }

        let load = |name: &str, engine, on_cpu| {
            Arm::load(name, engine, on_cpu, &path, workload, shape, deadline.cancel.clone())
        };
        let own = self.report.device.engine.as_str().to_owned();
        self.report.arms.push(load(&own, Arc::clone(&engine), false)?);
        let expected = gpu_plan::Expected::of(
            (&*engine, &self.report.device),
            (&path, self.report.arms[0].model()),
            &workload.metrics(),
        );
        match expected {
            Ok(expected) => self.report.expected = expected,
            Err(error) => self.fail("what plans expect", &error),
        }
        let split = (format!("{own}, feed-forward on CPU"), own.clone(), true);
        let others = args.against.iter().map(|name| (name.clone(), name.clone(), false));
        for (label, name, on_cpu) in std::iter::once(split).chain(others) {
            let engine = skulk::engines::by_name(&name, &EngineOptions::default());
            match engine.map_err(AnyError::from).and_then(|engine| load(&label, engine, on_cpu)) {
                Ok(arm) => self.report.arms.push(arm),
                Err(error) => self.leave_out(&label, &error),
            }
        }
        let most = args.rounds.unwrap_or(if args.tiny { 2 } else { 5 }).max(1);
        let (rounds, failed) = gpu_times::rounds(&mut self.report.arms, most, &workload, deadline);
        self.report.rounds = rounds;
        for (name, error) in failed {
            match name == own {
                true => self.fail(&name, &error),
                false => self.leave_out(&name, &error),
            }
        }
        if self.report.arms.first().is_none_or(|arm| arm.speeds.is_empty()) && self.report.problems.is_empty()
        {
            return Err("the time was over before anything was measured".into());
        }
        Ok(())
    }

    /// Another engine does not work: no failure of what is measured.
    fn leave_out(&mut self, name: &str, error: &AnyError) {
        note(&format!("without {name}: {}", told(error)));
        self.report.notes.push(format!("Without {name}: {}.", told(error)));
    }

    fn checked(&mut self, what: &'static str, compared: Result<Compared, AnyError>) {
        match compared {
            Ok(compared) => {
                note(&format!("{what}: logits off by {:.1e}", compared.off));
                if !compared.passed() {
                    self.report.problems.push(format!("{what}: {}", compared.in_words()));
                }
                self.report.checks.push((what, compared));
            }
            Err(error) => self.fail(what, &error),
        }
    }
}

/// Tensor bytes that decoding a token reads: all but the embedding table's.
fn bytes_per_token(path: &Path) -> Result<u64, AnyError> {
    let checkpoint = skulk::open_checkpoint(path)?;
    let read = checkpoint.tensors().iter().filter(|tensor| !tensor.name.starts_with("token_embd."));
    Ok(read.map(|tensor| tensor.len).sum())
}
