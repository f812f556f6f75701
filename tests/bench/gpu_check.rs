//! Does the device compute the right thing? Its logits and its text against engine `cpu`.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use skulk::arch::ArchSpec;
use skulk::engine::{LoadCx, Logits, Reply, Segment, ShardSpec, StepCx};
use skulk::{
    Batch, CancelToken, Engine, EngineOptions, GenerateOptions, KvType, LoadOptions, Model, Precision, SeqId,
    Shard, TokenId,
};

use crate::AnyError;

/// How far logits may be off, relative to the largest: the CPU keeps 15 bits of activations, which is some
/// 1e-4.
pub(crate) const BOUND: f32 = 1e-3;
/// Rows of the prompt's steps: products of many rows, with and without a rest, and of few.
const STEPS: [usize; 3] = [64, 31, 5];
/// Tokens of the prompt, and generated ones, each of which is a step.
pub(crate) const PROMPT: usize = 100;
const TEXT: usize = 8;

/// Where a text leaves the one that the CPU's logits ask for.
pub(crate) struct Parting {
    /// Which token is another one.
    pub(crate) at: usize,
    /// By how much the CPU prefers its own, relative to the largest logit.
    pub(crate) by: f32,
}

/// The largest difference of a logit, relative to the row's largest.
pub(crate) struct Compared {
    pub(crate) off: f32,
    /// Where the text parts, if it does; `None` where no text was generated.
    pub(crate) text: Option<Option<Parting>>,
}

impl Compared {
    /// Tokens that differ are right where both are about as likely.
    pub(crate) fn passed(&self) -> bool {
        let near = |parting: &Option<Parting>| parting.as_ref().is_none_or(|p| p.by <= 2.0 * BOUND);
        self.off <= BOUND && self.text.as_ref().is_none_or(near)
    }

    pub(crate) fn in_words(&self) -> String {
        let text = match &self.text {
            None => String::new(),
            Some(None) => "; greedy text equal".to_owned(),
            Some(Some(parting)) => {
                format!("; greedy text parts at token {}, where the margin is {:.1e}", parting.at, parting.by)
            }
        };
        format!("logits off by {:.1e} of the largest{text}", self.off)
    }
}

/// A model on an engine, to be compared with the CPU.
pub(crate) struct Subject<'a> {
    pub(crate) path: &'a Path,
    pub(crate) engine: &'a Arc<dyn Engine>,
    pub(crate) cancel: &'a CancelToken,
}

impl Subject<'_> {
    /// Compares all logits of a prompt and a generated text.
    pub(crate) fn whole(&self, prompt: &[TokenId]) -> Result<Compared, AnyError> {
        let Self { path, engine, cancel } = *self;
        let options = LoadOptions::default().engine(Arc::clone(engine)).kv(KvType::F32);
        let options = options.prefill_chunk(STEPS[0]).context(PROMPT + TEXT).cancel(cancel.clone());
        let model = Model::open(path, &options)?;
        let greedy = GenerateOptions::default().max_tokens(TEXT).ignore_eos(true).cancel(cancel.clone());
        let text = model.generate(prompt.to_vec(), greedy)?.output()?.ids;
        let layers = 0..model.arch().n_layers();
        drop(model);
        let tokens: Vec<TokenId> = prompt.iter().chain(&text).copied().collect();
        let [found, expected] = self.both(std::slice::from_ref(&layers), &tokens)?;
        let preferred = |(i, token): (usize, &TokenId)| {
            let row = &expected[prompt.len() - 1 + i];
            let likeliest = row.iter().fold(f32::NEG_INFINITY, |a, &x| a.max(x));
            let by = (likeliest - row[token.0 as usize]) / largest(row);
            (by > 0.0).then_some(Parting { at: i + 1, by })
        };
        // Beyond it, texts may be as different as they like: only the first is looked at.
        let parting = text.iter().enumerate().find_map(preferred);
        Ok(Compared { off: off(&found, &expected), text: Some(parting) })
    }

    /// Compares logits of the first layer and the last, as if there were no others.
    pub(crate) fn ends(&self, n_layers: usize, prompt: &[TokenId]) -> Result<Compared, AnyError> {
        let ends = [0, n_layers - 1].into_iter().take(n_layers);
        let [found, expected] = self.both(&ends.map(|layer| layer..layer + 1).collect::<Vec<_>>(), prompt)?;
        Ok(Compared { off: off(&found, &expected), text: None })
    }

    /// Logits of the engine, and of the CPU at its most precise.
    fn both(&self, layers: &[Range<usize>], tokens: &[TokenId]) -> Result<[Vec<Vec<f32>>; 2], AnyError> {
        let cpu = skulk::engines::cpu(&EngineOptions::default().precision(Precision::Exact))?;
        let on_cpu = Subject { engine: &cpu, ..*self };
        Ok([self.logits(layers, tokens)?, on_cpu.logits(layers, tokens)?])
    }

    fn logits(&self, layers: &[Range<usize>], tokens: &[TokenId]) -> Result<Vec<Vec<f32>>, AnyError> {
        let Self { path, engine, cancel } = *self;
        let checkpoint = skulk::open_checkpoint(path)?;
        let arch = Arc::new(ArchSpec::from_checkpoint(&*checkpoint)?);
        let load = |range: &Range<usize>| {
            let spec = ShardSpec::new(Arc::clone(&arch), range.clone(), tokens.len(), STEPS[0], KvType::F32)?;
            let shard = engine.load(&spec, &*checkpoint, &LoadCx::new(cancel, &|| ()))?;
            shard.open(SeqId(0), &[]).map(|_| shard)
        };
        let shards: Vec<Box<dyn Shard>> = layers.iter().map(load).collect::<skulk::Result<_>>()?;
        let mut rows = Vec::new();
        let mut start = 0;
        for step in STEPS.into_iter().chain(std::iter::repeat(1)) {
            let step = step.min(tokens.len() - start);
            if step == 0 {
                break;
            }
            let segments = [Segment::new(SeqId(0), start, step).want_every(Logits::All)];
            let mut last: Option<Reply> = None;
            for shard in &shards {
                let batch = Batch::new(&segments, &tokens[start..start + step]);
                let batch = last.as_ref().map_or(batch, |before| batch.hidden(before.hidden().data()));
                let mut reply = Reply::new();
                shard.forward(&batch, &mut reply, &StepCx::new(cancel))?;
                last = Some(reply);
            }
            let last = last.ok_or("there are no layers")?;
            // A stage in the middle gives hidden states, the last one logits.
            let (hidden, logits) = (last.hidden(), last.logits(0));
            let (data, width) = if logits.data.is_empty() {
                (hidden.data(), hidden.width())
            } else {
                (logits.data, logits.width)
            };
            rows.extend(data.chunks_exact(width).map(<[f32]>::to_vec));
            start += step;
        }
        Ok(rows)
    }
}

fn largest(row: &[f32]) -> f32 {
    row.iter().fold(0.0, |a, x| a.max(x.abs()))
}

fn off(found: &[Vec<f32>], expected: &[Vec<f32>]) -> f32 {
    let of_row = |(found, expected): (&Vec<f32>, &Vec<f32>)| {
        let worst = found.iter().zip(expected).map(|(x, y)| (x - y).abs());
        // What is no number is not near one.
        worst.map(|d| if d.is_finite() { d } else { f32::INFINITY }).fold(0.0, f32::max) / largest(expected)
    };
    let same_rows = found.len() == expected.len();
    found.iter().zip(expected).map(of_row).fold(if same_rows { 0.0 } else { f32::INFINITY }, f32::max)
}
