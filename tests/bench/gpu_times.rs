//! How fast is a model on an engine? Loading, decoding and prompts, engines taking turns.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use skulk::{Engine, GenerateOptions, LoadOptions, Model};

use crate::gpu_model::Shape;
use crate::gpu_report::digits;
use crate::{AnyError, Deadline, is_cancelled, note};

/// Sizes of what is measured, in tokens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Workload {
    /// A prompt.
    pub(crate) prompt: usize,
    /// A longer one, after which is decoded too.
    pub(crate) depth: usize,
    /// Tokens that are decoded.
    pub(crate) decoded: usize,
    /// Tokens of a prompt that pass through the layers together.
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
}

impl Arm {
    /// Loads the model, and has everything computed once: kernels are built when they are first needed.
    pub(crate) fn load(
        name: &str,
        engine: Arc<dyn Engine>,
        path: &Path,
        workload: &Workload,
        shape: &Shape,
        deadline: &Deadline,
    ) -> Result<Self, AnyError> {
        let options = LoadOptions::default().engine(engine).prefill_chunk(workload.chunk);
        let options = options.context(workload.depth.max(workload.prompt) + workload.decoded + 1);
        let model = Model::open(path, &options.cancel(deadline.cancel.clone()))?;
        let load = model.load_time().as_secs_f64();
        note(&format!("{name}: loaded in {load:.2} s"));
        let arm = Self { name: name.to_owned(), load, speeds: BTreeMap::new(), model };
        let few = Workload { decoded: 1, ..*workload };
        for tokens in [1, few.prompt.min(few.depth)] {
            arm.run(tokens, &few, shape, 0, deadline)?;
        }
        Ok(arm)
    }

    /// Tokens a second of a prompt, and of decoding after it.
    fn run(
        &self,
        tokens: usize,
        workload: &Workload,
        shape: &Shape,
        seed: u64,
        deadline: &Deadline,
    ) -> Result<[f64; 2], AnyError> {
        // The first token belongs to the prompt.
        let options = GenerateOptions::default().max_tokens(workload.decoded + 1).ignore_eos(true);
        let options = options.cancel(deadline.cancel.clone());
        let output = self.model.generate(shape.prompt(tokens, seed), options)?.output()?;
        let timings = output.finish.timings;
        Ok([timings.prefill_tokens_per_second, timings.decode_tokens_per_second])
    }

    /// Measures one thing.
    fn measure(
        &mut self,
        step: Step,
        workload: &Workload,
        shape: &Shape,
        seed: u64,
        deadline: &Deadline,
    ) -> Result<(), AnyError> {
        match step {
            Step::First => {
                let [_, decode] = self.run(1, workload, shape, seed, deadline)?;
                self.add(Metric::Decode(0), decode);
            }
            Step::Prompt => {
                let only = Workload { decoded: 0, ..*workload };
                let [prefill, _] = self.run(workload.prompt, &only, shape, seed, deadline)?;
                self.add(Metric::Prefill(workload.prompt), prefill);
            }
            Step::Depth => {
                let [prefill, decode] = self.run(workload.depth, workload, shape, seed, deadline)?;
                self.add(Metric::Prefill(workload.depth), prefill);
                self.add(Metric::Decode(workload.depth), decode);
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
    shape: &Shape,
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
                match arm.measure(step, workload, shape, (3 * round + i + 1) as u64, deadline) {
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
