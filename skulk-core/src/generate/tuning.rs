//! Which way to compute tokens ahead is the fastest? All of them, on a caller's own prompts, in turns.

use std::fmt;

use serde::Serialize;

use super::{GenerateOptions, Model, Prompt, Speculate};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::TokenId;

/// Tokens in every step that are tried, beside as many as pay.
const DEPTHS: [usize; 4] = [1, 2, 4, 8];
/// How often each way is tried.
const ROUNDS: usize = 3;
/// Tokens of each text, where options do not say how many.
const TOKENS: usize = 128;

/// What computing tokens ahead gains, by what proposes them and how many there are.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SpeculationReport {
    /// Prompts that were tried.
    pub prompts: usize,
    /// By way; the first one is `off`.
    pub ways: Vec<SpeculationWay>,
}

/// One way to compute tokens ahead, and its speed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SpeculationWay {
    /// What proposes tokens.
    pub speculate: Speculate,
    /// How many in every step; `None`: as many as pay.
    pub draft_tokens: Option<usize>,
    /// Tokens a second behind the first one, over all texts; the median of three rounds.
    pub tokens_per_second: f64,
    /// The same as a multiple of what `off` makes.
    pub gain: f64,
    /// Part of the proposed tokens that were right, 0 to 1; 0 where none were proposed.
    pub acceptance: f64,
    /// Tokens that a step gave, on average.
    pub tokens_per_step: f64,
}

impl SpeculationReport {
    /// The fastest way.
    pub fn best(&self) -> Option<&SpeculationWay> {
        // Of equal ones the first, which may be `off`.
        self.ways.iter().reduce(
            |best, way| {
                if way.tokens_per_second > best.tokens_per_second { way } else { best }
            },
        )
    }
}

/// A line for each way.
impl fmt::Display for SpeculationReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.prompts == 1 { "" } else { "s" };
        writeln!(f, "tokens ahead, {} prompt{s}", self.prompts)?;
        let heads = ["tok/s", "gain", "right", "a step"];
        writeln!(f, "{:<20} {:>8} {:>6} {:>6} {:>6}", "", heads[0], heads[1], heads[2], heads[3])?;
        for way in &self.ways {
            let SpeculationWay { tokens_per_second, gain, acceptance, tokens_per_step, .. } = way;
            let name = match (way.speculate, way.draft_tokens) {
                (Speculate::Off, _) => "off".to_owned(),
                (how, Some(tokens)) => format!("{how}, {tokens} a step"),
                (how, None) => format!("{how}, what pays"),
            };
            let right = acceptance * 100.0;
            writeln!(
                f,
                "{name:<20} {tokens_per_second:>8.1} {gain:>6.2} {right:>5.0}% {tokens_per_step:>6.2}"
            )?;
        }
        Ok(())
    }
}

/// What a way came to in a round.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    tokens: usize,
    seconds: f64,
    steps: usize,
    drafted: usize,
    accepted: usize,
}

impl Sums {
    fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.tokens as f64 / self.seconds } else { 0.0 }
    }
}

impl Model {
    /// Measures on these prompts which way to compute tokens ahead is the fastest: none, what texts repeat, and a
    /// [draft model](crate::LoadOptions::draft_model) where one is loaded, each with 1, 2, 4 and 8 tokens in every step, and
    /// with as many as pay. Ways take turns, three times; texts are those of the options, 128 tokens of each unless they say
    /// otherwise, or fewer where the context ends. An option [`speculate`](GenerateOptions::speculate) tries that way alone.
    ///
    /// ```
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/models/stories260K");
    /// # use skulk::{GenerateOptions, LoadOptions, Model};
    /// # let model = Model::open(path, &LoadOptions::default())?;
    /// let report = model.tune_speculation(["Once upon a time"], &GenerateOptions::default().max_tokens(16))?;
    /// println!("{report}");
    /// assert_eq!(report.ways.len(), 6);
    /// # Ok::<(), skulk::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] without prompts, and with options that fix what is to be found; as
    /// [`generate`](Self::generate), and what a generation ends with.
    pub fn tune_speculation(
        &self,
        prompts: impl IntoIterator<Item = impl Into<Prompt>>,
        options: &GenerateOptions,
    ) -> Result<SpeculationReport> {
        let session = self.session()?;
        let prompts = prompts.into_iter().map(|prompt| session.tokens_of(prompt.into().whole()?));
        let prompts: Vec<Vec<TokenId>> = prompts.collect::<Result<_>>()?;
        if prompts.is_empty() {
            return Err(Error::argument("prompts", "expected at least one prompt, found none")
                .with_hint("give some that are like those to come"));
        }
        let fixed = [
            ("draft_tokens", options.draft_tokens.is_some()),
            ("draft_tree", options.draft_tree.is_some()),
            ("speculate", options.speculate == Speculate::Off),
        ];
        if let Some((field, _)) = fixed.into_iter().find(|(_, fixed)| *fixed) {
            let message = format!("expected options that leave open what is to be found, found `{field}`");
            return Err(Error::argument(field, message).with_hint("leave the option out"));
        }
        options.validate(self.arch(), self.inner.second.as_deref())?;
        let ways = self.ways(options.speculate);
        let mut found = vec![Vec::with_capacity(ROUNDS); ways.len()];
        for round in 0..ROUNDS {
            // Each way is the first of a round once, or nearly so.
            for at in (0..ways.len()).map(|at| (at + round * ways.len() / ROUNDS) % ways.len()) {
                found[at].push(self.try_way(&prompts, options, ways[at])?);
            }
        }
        let rates = found.iter().map(|rounds| {
            let mut rates: Vec<f64> = rounds.iter().map(Sums::rate).collect();
            rates.sort_unstable_by(f64::total_cmp);
            rates.get(ROUNDS / 2).copied().unwrap_or_default()
        });
        let rates: Vec<f64> = rates.collect();
        let plain = rates.first().copied().unwrap_or_default();
        let ratio = |a: f64, b: f64| if b > 0.0 { a / b } else { 0.0 };
        let gain = |rate: f64| if plain > 0.0 { rate / plain } else { 1.0 };
        let way = |((&(speculate, draft_tokens), sums), rate): ((&_, &Vec<Sums>), f64)| {
            let all = |count: fn(&Sums) -> usize| sums.iter().map(count).sum::<usize>() as f64;
            SpeculationWay {
                speculate,
                draft_tokens,
                tokens_per_second: rate,
                gain: gain(rate),
                acceptance: ratio(all(|sums| sums.accepted), all(|sums| sums.drafted)),
                tokens_per_step: ratio(all(|sums| sums.tokens), all(|sums| sums.steps)),
            }
        };
        let ways = ways.iter().zip(&found).zip(rates).map(way).collect();
        Ok(SpeculationReport { prompts: prompts.len(), ways })
    }

    /// What is tried: without first, then each that proposes by itself, with fixed numbers and by what pays; then all.
    fn ways(&self, only: Speculate) -> Vec<(Speculate, Option<usize>)> {
        let second = self.inner.second.as_ref().is_some_and(|second| second.check().is_ok());
        let alone: &[Speculate] = match only {
            Speculate::Auto if second => &[Speculate::Ngram, Speculate::DraftModel],
            Speculate::Auto => &[Speculate::Ngram],
            Speculate::Ngram => &[Speculate::Ngram],
            Speculate::DraftModel => &[Speculate::DraftModel],
            Speculate::Off => &[],
        };
        let depths = || DEPTHS.into_iter().map(Some).chain([None]);
        let mut ways = vec![(Speculate::Off, None)];
        ways.extend(alone.iter().flat_map(|how| depths().map(|depth| (*how, depth))));
        if only == Speculate::Auto && second {
            ways.push((Speculate::Auto, None));
        }
        ways
    }

    fn try_way(
        &self,
        prompts: &[Vec<TokenId>],
        options: &GenerateOptions,
        (speculate, draft_tokens): (Speculate, Option<usize>),
    ) -> Result<Sums> {
        let mut options = options.clone();
        (options.speculate, options.draft_tokens) = (speculate, draft_tokens);
        if !matches!(speculate, Speculate::Ngram | Speculate::Auto) {
            // They are for the others.
            options.draft_texts.clear();
        }
        let (mut sums, max_tokens) = (Sums::default(), options.max_tokens);
        for prompt in prompts {
            let most = TOKENS.min(self.context().saturating_sub(prompt.len()));
            options.max_tokens = max_tokens.or(Some(most.max(1)));
            let finish = self.generate(prompt.clone(), options.clone())?.output()?.finish;
            if let [warning, ..] = &finish.warnings[..] {
                return Err(Error::new(ErrorKind::EngineFailed, warning.clone()));
            }
            let timings = finish.timings;
            let tokens = finish.usage.completion_tokens.saturating_sub(1);
            sums.tokens += tokens;
            sums.seconds += timings.decode.as_secs_f64();
            sums.steps += tokens.saturating_sub(timings.accepted_tokens);
            sums.drafted += timings.drafted_tokens;
            sums.accepted += timings.accepted_tokens;
        }
        Ok(sums)
    }
}
