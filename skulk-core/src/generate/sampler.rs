//! Which token comes next? Penalties, temperature, truncation and the draw.

mod narrowed;
#[cfg(test)]
mod tests;

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::engine::top::Top;
use crate::error::{Error, ErrorKind, Result, Retry};
use crate::generate::TokenLogprob;
use crate::generate::options::expect_known;
use crate::ids::TokenId;
use crate::macros::setters;
use crate::math;

pub(super) use self::narrowed::Narrow;

/// How tokens are chosen. Steps run in this order: logit bias, repetition, presence and frequency
/// penalties, temperature, min-p, top-k, top-p, draw; each truncation sees what the one before kept.
///
/// The draw takes one 64-bit number per token from ChaCha12 seeded with [`seed`](Self::seed): the
/// same logits, options and seed give the same tokens on every platform and in every version.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Sampling {
    /// Divides logits; 0 takes the likeliest token (greedy).
    pub temperature: f32,
    /// Keeps this many likeliest tokens; `None`: all.
    pub top_k: Option<usize>,
    /// Keeps the smallest set of likeliest tokens whose probability reaches this (0 to 1).
    pub top_p: f32,
    /// Keeps tokens at least this fraction as likely as the likeliest (0 to 1).
    pub min_p: f32,
    /// Divides positive logits of tokens seen in the last [`penalty_window`](Self::penalty_window)
    /// tokens, multiplies negative ones (Keskar et al. 2019); 1 is none.
    pub repetition_penalty: f32,
    /// Subtracted once from logits of tokens seen in the window.
    pub presence_penalty: f32,
    /// Subtracted from logits for each time a token was seen in the window.
    pub frequency_penalty: f32,
    /// How many of the last tokens, prompt included, the penalties look at.
    pub penalty_window: usize,
    /// Added to logits of single tokens; negative infinity forbids one.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// Seed of the draw; `None`: 0. Host applications that want variety give their own.
    pub seed: Option<u64>,
}

impl Default for Sampling {
    /// Greedy, without penalties.
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: None,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            penalty_window: 64,
            logit_bias: Vec::new(),
            seed: None,
        }
    }
}

impl Sampling {
    /// Whether tokens are as likely as the model has them, or the likely ones likelier still.
    pub(super) fn is_models_own(&self) -> bool {
        let penalties = [self.repetition_penalty - 1.0, self.presence_penalty, self.frequency_penalty];
        self.temperature <= 1.0 && penalties == [0.0; 3] && self.logit_bias.is_empty()
    }
}

setters!(Sampling {
    /// Divides logits by this; 0 is greedy.
    temperature: f32;
    /// Keeps this many likeliest tokens.
    top_k: usize => Some(top_k);
    /// Keeps the smallest likeliest set that reaches this probability.
    top_p: f32;
    /// Keeps tokens at least this fraction as likely as the likeliest.
    min_p: f32;
    /// Weakens tokens seen before.
    repetition_penalty: f32;
    /// Subtracts from tokens seen before, once.
    presence_penalty: f32;
    /// Subtracts from tokens seen before, each time.
    frequency_penalty: f32;
    /// Looks at this many of the last tokens for penalties.
    penalty_window: usize;
    /// Adds to the logits of single tokens.
    logit_bias: Vec<(TokenId, f32)>;
    /// Seeds the draw.
    seed: u64 => Some(seed);
});

impl Sampling {
    pub(super) fn validate(&self, vocab_size: usize) -> Result<()> {
        let check = |field: &'static str, value: f32, ok: bool, expected: &str| {
            if ok && !value.is_nan() {
                return Ok(());
            }
            Err(Error::argument(field, format!("expected {expected}, found {value}"))
                .with_hint("correct the option, or leave it out for its default"))
        };
        let t = self.temperature;
        check("temperature", t, t.is_finite() && t >= 0.0, "a finite number of at least 0")?;
        check("top_p", self.top_p, self.top_p > 0.0 && self.top_p <= 1.0, "more than 0 and at most 1")?;
        check("min_p", self.min_p, (0.0..=1.0).contains(&self.min_p), "0 to 1")?;
        let r = self.repetition_penalty;
        check("repetition_penalty", r, r.is_finite() && r > 0.0, "a finite number above 0")?;
        let p = self.presence_penalty;
        check("presence_penalty", p, p.is_finite(), "a finite number")?;
        let f = self.frequency_penalty;
        check("frequency_penalty", f, f.is_finite(), "a finite number")?;
        if self.top_k == Some(0) {
            return Err(Error::argument("top_k", "expected at least 1, found 0")
                .with_hint("leave top_k out to keep all tokens"));
        }
        for (token, bias) in &self.logit_bias {
            check("logit_bias", *bias, *bias < f32::INFINITY, "a number or negative infinity")?;
            expect_known("logit_bias", std::iter::once(token), vocab_size)?;
        }
        Ok(())
    }

    /// Tokens with smaller logits have no share: of the likeliest one's they are less than `min_p`, or than f32 could
    /// represent.
    fn floor(&self, max: f32) -> f32 {
        max + self.temperature * math::ln(f64::from(self.min_p.max(1e-12))) as f32
    }

    fn penalises(&self) -> bool {
        self.repetition_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
    }
}

/// The state of one generation's choices. Buffers are kept, so that a step allocates nothing.
pub(super) struct Sampler {
    sampling: Sampling,
    rng: ChaCha12Rng,
    /// Candidate tokens by id.
    candidates: Vec<u32>,
    /// Their shares, before they are divided by their sum.
    weights: Vec<f64>,
    /// The last tokens, sorted, for penalties.
    recent: Vec<TokenId>,
    /// The largest logits by id, when only they were asked for.
    top: Vec<(TokenId, f32)>,
    top_logits: Vec<f32>,
    /// The largest of all logits, and those of them that may come.
    largest: Top,
    ids: Vec<TokenId>,
    allowed: Vec<f32>,
}

/// Beyond this, a list of the largest logits saves nothing.
const MOST_TOP: usize = 256;

impl Sampler {
    pub(super) fn new(sampling: Sampling) -> Self {
        let rng = ChaCha12Rng::seed_from_u64(sampling.seed.unwrap_or(0));
        Self {
            sampling,
            rng,
            candidates: Vec::new(),
            weights: Vec::new(),
            recent: Vec::new(),
            top: Vec::new(),
            top_logits: Vec::new(),
            largest: Top::default(),
            ids: Vec::new(),
            allowed: Vec::new(),
        }
    }

    /// How many of the largest logits are enough to choose by; `None`: all are needed.
    pub(super) fn enough(&self) -> Option<usize> {
        let s = &self.sampling;
        if s.penalises() || !s.logit_bias.is_empty() {
            return None;
        }
        self.few()
    }

    /// How many of the largest logits are enough, when they are as options make them.
    fn few(&self) -> Option<usize> {
        let s = &self.sampling;
        if s.temperature == 0.0 {
            return Some(1);
        }
        // One more tells whether top-k drops any, as that decides about the order of candidates.
        s.top_k.filter(|&k| k < MOST_TOP).map(|k| k + 1)
    }

    /// Chooses a token by the [`enough`](Self::enough) largest logits, as it would by all.
    pub(super) fn sample_top(&mut self, ids: &[TokenId], logits: &[f32]) -> Result<TokenId> {
        self.top.clear();
        self.top
            .extend(ids.iter().copied().zip(logits.iter().copied()).filter(|(_, l)| *l > f32::NEG_INFINITY));
        // By id, as they lie among all.
        self.top.sort_unstable_by_key(|(id, _)| *id);
        let mut logits = std::mem::take(&mut self.top_logits);
        logits.clear();
        logits.extend(self.top.iter().map(|(_, logit)| *logit));
        let chosen = self.choose(&logits);
        self.top_logits = logits;
        let at = chosen?.0 as usize;
        self.top.get(at).map(|(id, _)| *id).ok_or_else(no_choice)
    }

    /// Chooses a token. `logits` are overwritten; `history` are all tokens so far.
    pub(super) fn sample(&mut self, logits: &mut [f32], history: &[TokenId]) -> Result<TokenId> {
        self.adjust(logits, history);
        self.choose(logits)
    }

    fn choose(&mut self, logits: &[f32]) -> Result<TokenId> {
        if self.sampling.temperature == 0.0 {
            return argmax(logits).ok_or_else(no_choice);
        }
        self.draw(logits)
    }

    fn adjust(&mut self, logits: &mut [f32], history: &[TokenId]) {
        let s = &self.sampling;
        for (token, bias) in &s.logit_bias {
            logits[token.0 as usize] += bias;
        }
        if !s.penalises() {
            return;
        }
        self.recent.clear();
        self.recent.extend_from_slice(&history[history.len().saturating_sub(s.penalty_window)..]);
        self.recent.sort_unstable();
        for seen in self.recent.chunk_by(|a, b| a == b) {
            let Some(logit) = logits.get_mut(seen[0].0 as usize) else { continue };
            *logit = if *logit > 0.0 { *logit / s.repetition_penalty } else { *logit * s.repetition_penalty };
            *logit -= s.presence_penalty + s.frequency_penalty * seen.len() as f32;
        }
    }

    fn draw(&mut self, logits: &[f32]) -> Result<TokenId> {
        let s = &self.sampling;
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        if !max.is_finite() {
            return Err(no_choice());
        }
        // Candidates by falling logit, ties by id: a total order, so that the draw is reproducible.
        let order = |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
        let floor = s.floor(max);
        self.candidates.clear();
        self.candidates.extend((0..logits.len() as u32).filter(|&id| logits[id as usize] >= floor));
        if let Some(k) = s.top_k.filter(|&k| k < self.candidates.len()) {
            self.candidates.select_nth_unstable_by(k - 1, order);
            self.candidates.truncate(k);
            self.candidates.sort_unstable_by(order);
        }
        let weight = |id: u32| math::exp(f64::from((logits[id as usize] - max) / s.temperature));
        self.weights.clear();
        self.weights.extend(self.candidates.iter().map(|&id| weight(id)));
        let mut total = self.weights.iter().sum::<f64>();
        if s.top_p < 1.0 {
            // The set is nearly always a tiny part of the vocabulary: sort only as far as needed.
            let mut sorted = 128;
            loop {
                let all = sorted >= self.candidates.len();
                if !all {
                    self.candidates.select_nth_unstable_by(sorted - 1, order);
                }
                let end = sorted.min(self.candidates.len());
                self.candidates[..end].sort_unstable_by(order);
                let mut sum = 0.0;
                self.weights.clear();
                let last = self.candidates[..end].iter().position(|&id| {
                    let weight = weight(id);
                    self.weights.push(weight);
                    sum += weight;
                    sum >= f64::from(s.top_p) * total
                });
                if let Some(last) = last {
                    self.candidates.truncate(last + 1);
                    total = sum;
                }
                if last.is_some() || all {
                    break;
                }
                sorted *= 8;
            }
        }
        // 53 random bits: the numbers in [0, 1) that f64 spaces evenly.
        let mut left = (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64 * total;
        for (&id, weight) in self.candidates.iter().zip(&self.weights) {
            left -= weight;
            if left < 0.0 {
                return Ok(TokenId(id));
            }
        }
        self.candidates.last().map(|&id| TokenId(id)).ok_or_else(no_choice)
    }
}

fn no_choice() -> Error {
    Error::new(ErrorKind::EngineFailed, "no token has a finite logit")
        .with_hint("the weights, the penalties or the logit bias leave nothing to choose from")
        .with_retry(Retry::Never)
}

/// The largest logit's token, the first of equals; `None` when no logit is a number above -∞.
pub(super) fn argmax(logits: &[f32]) -> Option<TokenId> {
    let mut best = None;
    let mut max = f32::NEG_INFINITY;
    for (id, &logit) in logits.iter().enumerate() {
        if logit > max {
            max = logit;
            best = Some(TokenId(id as u32));
        }
    }
    best
}

/// Logarithm of the sum of exponentials of raw logits: a token's logit less this is its natural
/// log-probability. The `top` likeliest tokens go to `out`, most likely first.
pub(super) fn top_logprobs(logits: &[f32], top: usize, out: &mut Vec<TokenLogprob>) -> f32 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&l| math::exp(f64::from(l - max))).sum();
    let normaliser = max + math::ln(sum) as f32;
    out.clear();
    for (id, &logit) in logits.iter().enumerate() {
        let entry = TokenLogprob { id: TokenId(id as u32), logprob: logit - normaliser };
        if top == 0 || out.len() == top && out.last().is_some_and(|last| entry.logprob <= last.logprob) {
            continue;
        }
        let at = out.partition_point(|other| other.logprob >= entry.logprob);
        out.insert(at, entry);
        out.truncate(top);
    }
    normaliser
}
