//! How fast is a model on an engine? Loading, decoding and prompts, engines taking turns.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use skulk::{CancelToken, Engine, GenerateOptions, LoadOptions, Model, Speculate};

use crate::gpu_model::Shape;
use crate::gpu_report::digits;
use crate::{AnyError, Deadline, at_least, is_cancelled, note};

/// Sizes of what is measured.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Workload {
    /// Tokens of the shorter prompt.
    #[arg(long, default_value = "512", default_value_if("tiny", "true", "64"), value_parser = at_least(1))]
    pub(crate) prompt: usize,
    /// Tokens of the longer prompt, after which is decoded too.
    #[arg(long, default_value = "2048", default_value_if("tiny", "true", "160"), value_parser = at_least(1))]
    pub(crate) depth: usize,
    /// Tokens to decode.
    #[arg(long, default_value = "128", default_value_if("tiny", "true", "16"), value_parser = at_least(1))]
    pub(crate) decoded: usize,
    /// Tokens of a prompt that pass through the layers together.
    #[arg(long, default_value_t = LoadOptions::default().prefill_chunk)]
    pub(crate) chunk: usize,
}

/// What a figure is of: a number of tokens before, or of the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Metric {
    Decode(usize),
    Prefill(usize),
}

impl Metric {
    pub(crate) fn name(self) -> String {
        match self {
            Metric::Decode(depth) => format!("decode at {depth}"),
            Metric::Prefill(tokens) => format!("prefill {tokens}"),
        }
    }
}

/// A run of a round: decoding after one token, a prompt, and a longer one with decoding after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    First,
    Prompt,
    Depth,
}

impl Workload {
    fn steps(&self) -> Vec<Step> {
        let mut steps = vec![Step::First, Step::Prompt, Step::Depth];
        steps.retain(|step| *step != Step::Prompt || self.prompt != self.depth);
        steps
    }

    pub(crate) fn metrics(&self) -> Vec<Metric> {
        let mut metrics = vec![
            Metric::Decode(0),
            Metric::Decode(self.depth),
            Metric::Prefill(self.prompt),
            Metric::Prefill(self.depth),
        ];
        metrics.dedup();
        metrics
    }
}

/// An engine with the model on it.
pub(crate) struct Arm {
    pub(crate) name: String,
    pub(crate) load: f64,
    /// Tokens a second, of each round.
    pub(crate) speeds: BTreeMap<Metric, Vec<f64>>,
    model: Model,
    workload: Workload,
    shape: Shape,
    cancel: CancelToken,
}

impl Arm {
    /// Loads the model, and has everything computed once: kernels are built when they are first needed.
    pub(crate) fn load(
        name: &str,
        engine: Arc<dyn Engine>,
        ffn_on_cpu: bool,
        path: &Path,
        workload: Workload,
        shape: Shape,
        cancel: CancelToken,
    ) -> Result<Self, AnyError> {
        let options =
            LoadOptions::default().engine(engine).ffn_on_cpu(ffn_on_cpu).prefill_chunk(workload.chunk);
        let options = options.context(workload.depth.max(workload.prompt) + workload.decoded + 1);
        let model = Model::open(path, &options.cancel(cancel.clone()))?;
        let load = model.load_time().as_secs_f64();
        note(&format!("{name}: loaded in {load:.2} s"));
        let arm =
            Self { name: name.to_owned(), load, speeds: BTreeMap::new(), model, workload, shape, cancel };
        for tokens in [1, workload.prompt.min(workload.depth)] {
            arm.run(tokens, 1, 0)?;
        }
        Ok(arm)
    }

    pub(crate) fn model(&self) -> &Model {
        &self.model
    }

    /// Tokens a second of a prompt, and of decoding after it.
    fn run(&self, tokens: usize, decoded: usize, seed: u64) -> Result<[f64; 2], AnyError> {
        // The first token belongs to the prompt.
        let options = GenerateOptions::default().max_tokens(decoded + 1).ignore_eos(true);
        let options = options.speculate(Speculate::Off).cancel(self.cancel.clone());
        let output = self.model.generate(self.shape.prompt(tokens, seed), options)?.output()?;
        let timings = output.finish.timings;
        Ok([timings.prefill_tokens_per_second, timings.decode_tokens_per_second])
    }

    /// Measures one thing.
    fn measure(&mut self, step: Step, seed: u64) -> Result<(), AnyError> {
        let Workload { prompt, depth, decoded, .. } = self.workload;
        match step {
            Step::First => {
                let [_, decode] = self.run(1, decoded, seed)?;
                self.add(Metric::Decode(0), decode);
            }
            Step::Prompt => {
                let [prefill, _] = self.run(prompt, 0, seed)?;
                self.add(Metric::Prefill(prompt), prefill);
            }
            Step::Depth => {
                let [prefill, decode] = self.run(depth, decoded, seed)?;
                self.add(Metric::Prefill(depth), prefill);
                self.add(Metric::Decode(depth), decode);
            }
        }
        Ok(())
    }

    fn add(&mut self, metric: Metric, speed: f64) {
        note(&format!("{}: {} {} tok/s", self.name, metric.name(), digits(speed)));
        self.speeds.entry(metric).or_default().push(speed);
    }

    pub(crate) fn json(&self) -> Value {
        let speeds = self.speeds.iter().map(|(metric, speeds)| (metric.name(), json!(speeds)));
        json!({
            "load_seconds": self.load,
            "tokens_per_second": speeds.collect::<serde_json::Map<_, _>>(),
        })
    }
}

/// Measures all arms in turns, as many rounds as there is time for; returns how many were whole, and what
/// went wrong with which arm: it is left out then.
pub(crate) fn rounds(
    arms: &mut [Arm],
    most: usize,
    workload: &Workload,
    deadline: &Deadline,
) -> (usize, Vec<(String, AnyError)>) {
    let mut failed: Vec<(String, AnyError)> = Vec::new();
    let mut longest = 0.0f64;
    for round in 0..most {
        let left = deadline.left();
        if left <= 1.1 * longest {
            note("no time for another round");
            return (round, failed);
        }
        for (i, step) in workload.steps().into_iter().enumerate() {
            // Whoever was last begins: devices change their speed with what they did before.
            let mut order: Vec<usize> = (0..arms.len()).collect();
            if (round + i) % 2 == 1 {
                order.reverse();
            }
            for arm in order {
                let arm = &mut arms[arm];
                if failed.iter().any(|(name, _)| *name == arm.name) {
                    continue;
                }
                match arm.measure(step, (3 * round + i + 1) as u64) {
                    Ok(()) => (),
                    Err(error) if is_cancelled(&error) => return (round, failed),
                    Err(error) => failed.push((arm.name.clone(), error)),
                }
            }
        }
        longest = longest.max(left - deadline.left());
    }
    (most, failed)
}
