//! What becomes of a generation's logits, step by step? A token, its text, and an event.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::channel::Sender;
use super::draft::{Drafter, Proposal, Quoted, Second};
use super::event::{Event, Finish, FinishReason, Timings, Token, Usage};
use super::sampler::{self, Narrow, Sampler};
use super::scheduler::{Ask, Drafted, Rows, Taken};
use super::session::{State, Turn, common};
use crate::cancel::CancelToken;
use crate::engine::{Logits, Reply};
use crate::error::{Error, ErrorKind, Result, Retry};
use crate::generate::GenerateOptions;
use crate::grammar::Grammar;
use crate::ids::TokenId;
use crate::tokenizer::{Detokenizer, StopMatcher, Tokenizer};

/// What has a say in which tokens come, and knows when they are enough. It is asked before each.
pub(super) trait Steering: Send {
    /// The token that must come next, whatever the model expects.
    fn forced(&mut self) -> Result<Option<TokenId>>;
    /// Whether it keeps some tokens from coming.
    fn narrows(&self) -> bool {
        false
    }
    /// Which tokens may come next; `None` where all may.
    fn narrow(&mut self) -> Option<&mut dyn Narrow> {
        None
    }
    /// Notes the next token, chosen or forced, which ends nothing by itself; how the text goes on behind it.
    fn note(&mut self, token: TokenId) -> Result<Course>;
}

/// How a text goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Course {
    GoesOn,
    /// What was to end it has come.
    Stops,
    /// It is whole.
    Ends,
}

/// Steers by a constraint alone.
pub(super) struct Constrained(pub(super) Grammar);

impl Steering for Constrained {
    fn forced(&mut self) -> Result<Option<TokenId>> {
        self.0.forced()
    }

    fn narrows(&self) -> bool {
        true
    }

    fn narrow(&mut self) -> Option<&mut dyn Narrow> {
        Some(&mut self.0)
    }

    fn note(&mut self, token: TokenId) -> Result<Course> {
        self.0.take(token)?;
        Ok(if self.0.is_over() { Course::Ends } else { Course::GoesOn })
    }
}

impl Narrow for Grammar {
    fn allows(&mut self, token: TokenId) -> Result<bool> {
        Grammar::allows(self, token)
    }

    fn narrow(&mut self, logits: &mut [f32]) -> Result<()> {
        Grammar::narrow(self, logits)
    }
}

/// Steps for which all logits are asked for where the largest were not enough: the next ones may be as surprising.
const AGAIN: usize = 8;

/// A running generation's own part: what it chooses tokens by, and whom it tells.
pub(super) struct Writing {
    tokenizer: Arc<Tokenizer>,
    options: GenerateOptions,
    /// What a step that ends in a token asks for; where not all tokens may come; and for how many steps all logits are
    /// asked for, as the largest were not enough there.
    logits: Logits,
    narrowed: Logits,
    all: usize,
    /// Rows of a step, at most.
    chunk: usize,
    sampler: Sampler,
    stops: StopMatcher,
    steering: Option<Box<dyn Steering>>,
    /// What proposes tokens, and what came of it.
    drafter: Option<Drafter>,
    ahead: Ahead,
    warnings: Vec<String>,
    text: Detokenizer,
    events: Sender,
    /// The model's own logits, kept only for log-probabilities.
    raw: Vec<f32>,
    prompt_tokens: usize,
    cached_tokens: usize,
    completion_tokens: usize,
    max_tokens: usize,
    load_time: Duration,
    /// When it was asked for, and when it was its turn.
    started: Instant,
    begun: Instant,
    prefill: Option<Duration>,
    first_token: Option<Instant>,
}

/// What computing tokens ahead came to.
#[derive(Debug, Clone, Copy, Default)]
struct Ahead {
    drafted: usize,
    accepted: usize,
    steps: usize,
    /// Tokens of the last step.
    given: usize,
    /// Seconds of its steps after the first token, and what they would have taken without.
    taken: f64,
    without: f64,
}

/// Tokens and durations of a generation; the detail of the error of one that was stopped.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counted {
    pub(super) usage: Usage,
    pub(super) timings: Timings,
}

/// What a generation starts with.
pub(super) struct Start<'a> {
    pub(super) tokenizer: &'a Arc<Tokenizer>,
    pub(super) quoted: &'a Quoted,
    pub(super) second: Option<&'a Arc<Second>>,
    pub(super) prompt: &'a [TokenId],
    pub(super) options: GenerateOptions,
    pub(super) vocab_size: usize,
    pub(super) chunk: usize,
    pub(super) context: usize,
    pub(super) load_time: Duration,
    pub(super) steering: Option<Box<dyn Steering>>,
}

impl Writing {
    pub(super) fn new(start: Start<'_>) -> Result<Self> {
        let Start {
            tokenizer,
            quoted,
            second,
            prompt,
            options,
            vocab_size,
            chunk,
            context,
            load_time,
            steering,
        } = start;
        let sampler = Sampler::new(options.sampling.clone());
        // Log-probabilities are of all logits.
        let of = |enough: Option<usize>| {
            let enough = enough.filter(|&k| k <= vocab_size && options.logprobs.is_none());
            enough.map_or(Logits::All, Logits::Top)
        };
        Ok(Self {
            logits: of(sampler.enough()),
            narrowed: of(sampler.mostly_enough()),
            // What an answer begins with is what models are most often wrong about.
            all: 1,
            chunk,
            sampler,
            stops: StopMatcher::new(options.stop.iter().map(String::as_str))?,
            steering,
            drafter: Drafter::new(&options, (quoted, second), tokenizer)?,
            ahead: Ahead::default(),
            warnings: Vec::new(),
            text: Detokenizer::new(Arc::clone(tokenizer), prompt, true),
            tokenizer: Arc::clone(tokenizer),
            events: Sender::to_nobody(),
            raw: Vec::new(),
            prompt_tokens: prompt.len(),
            cached_tokens: 0,
            completion_tokens: 0,
            max_tokens: options.max_tokens.unwrap_or(context - prompt.len()),
            options,
            load_time,
            started: Instant::now(),
            begun: Instant::now(),
            prefill: None,
            first_token: None,
        })
    }

    /// Samples from the logits of a row of a step and appends the token to the history. `None` where they are too few.
    fn choose(
        &mut self,
        state: &mut State,
        reply: &mut Reply,
        (segment, row): (usize, usize),
    ) -> Result<Option<Token>> {
        let history = &mut state.history;
        let found = reply.logits(segment);
        let Some(data) = found.row(row).filter(|data| !data.is_empty()) else {
            return Err(Error::new(ErrorKind::Internal, "the last stage gave no logits"));
        };
        let narrow = self.steering.as_mut().and_then(|steering| steering.narrow());
        if let Some(ids) = found.row_ids(row) {
            let largest = ids.iter().copied().zip(data.iter().copied());
            let chosen = match narrow {
                None => Some(self.sampler.sample_top(ids, data)?),
                Some(narrow) => self.sampler.sample_among(largest, false, narrow)?,
            };
            history.extend(chosen);
            return Ok(chosen.map(|id| Token { id, logprob: None, top_logprobs: Vec::new() }));
        }
        let within = row * found.width..(row + 1) * found.width;
        let logits = &mut reply.logits_mut(segment)[within];
        let mut top_logprobs = Vec::new();
        // Sampling changes the logits in place; log-probabilities are of the raw ones.
        let normaliser = self.options.logprobs.map(|top| {
            self.raw.clear();
            self.raw.extend_from_slice(logits);
            sampler::top_logprobs(logits, top, &mut top_logprobs)
        });
        let id = match narrow {
            None => self.sampler.sample(logits, history)?,
            Some(narrow) => self.sampler.sample_narrowed(logits, history, narrow)?,
        };
        let logprob = normaliser.map(|normaliser| self.raw[id.0 as usize] - normaliser);
        history.push(id);
        Ok(Some(Token { id, logprob, top_logprobs }))
    }

    /// Tokens that may still come.
    pub(super) fn tokens_left(&self) -> usize {
        self.max_tokens.saturating_sub(self.completion_tokens)
    }

    /// Goes on in a model for which this one drafts.
    pub(super) fn drafted_by(&mut self, second: Option<&Arc<Second>>) {
        if let Some(drafter) = &mut self.drafter
            && !drafter.turn_to(second)
        {
            self.warnings.push("the model that the generation goes on in has no draft model".to_owned());
        }
    }

    /// Is stopped by this from now on.
    pub(super) fn stop_with(&mut self, cancel: CancelToken) {
        self.options.cancel = cancel;
    }

    /// Tells somebody else from now on, who may cancel it; returns its priority.
    pub(super) fn tell_to(&mut self, events: Sender) -> (CancelToken, i32) {
        self.events = events;
        (self.options.cancel.child(), self.options.priority)
    }

    /// Tokens and durations so far.
    fn counted(&self) -> Counted {
        let prefill = self.prefill.unwrap_or_default();
        let decode = self.first_token.map(|first| first.elapsed()).unwrap_or_default();
        let per_second = |n: usize, seconds: f64| if seconds > 0.0 { n as f64 / seconds } else { 0.0 };
        let Self { prompt_tokens, cached_tokens, completion_tokens, .. } = *self;
        let prefilled = if self.prefill.is_some() { prompt_tokens - cached_tokens } else { 0 };
        Counted {
            usage: Usage { prompt_tokens, cached_tokens, completion_tokens },
            timings: Timings {
                load: self.load_time,
                time_to_first_token: self
                    .first_token
                    .map(|first| first.duration_since(self.started))
                    .unwrap_or_default(),
                prefill,
                decode,
                prefill_tokens_per_second: per_second(prefilled, prefill.as_secs_f64()),
                decode_tokens_per_second: per_second(
                    completion_tokens.saturating_sub(1),
                    decode.as_secs_f64(),
                ),
                drafted_tokens: self.ahead.drafted,
                accepted_tokens: self.ahead.accepted,
                draft_steps: self.ahead.steps,
                draft_gain: if self.ahead.taken > 0.0 { self.ahead.without / self.ahead.taken } else { 1.0 },
            },
        }
    }

    /// Tells of the next token; whether another one follows.
    fn tell(&mut self, token: Token) -> Result<bool> {
        self.first_token.get_or_insert_with(Instant::now);
        self.completion_tokens += 1;
        let ended = !self.options.ignore_eos && self.tokenizer.eos_ids().contains(&token.id);
        let mut course = Ok(Course::GoesOn);
        let mut out = String::new();
        if !ended {
            out.push_str(self.stops.push(self.text.push(token.id)));
            if let Some(steering) = &mut self.steering {
                course = steering.note(token.id);
            }
        }
        let reason = if ended {
            Some(FinishReason::EndOfSequence)
        } else if matches!(course, Ok(Course::Stops)) || self.stops.matched().is_some() {
            Some(FinishReason::StopString)
        } else if matches!(course, Ok(Course::Ends)) {
            Some(FinishReason::EndOfSequence)
        } else if course.is_err() {
            None
        } else if self.completion_tokens >= self.max_tokens {
            Some(FinishReason::Length)
        } else {
            None
        };
        if reason.is_some() && self.stops.matched().is_none() {
            out.push_str(self.stops.push(self.text.flush()));
            out.push_str(self.stops.flush());
        }
        let finish = reason.map(|reason| {
            let Counted { usage, timings } = self.counted();
            // The last characters may complete a stop string.
            let reason = if self.stops.matched().is_some() { FinishReason::StopString } else { reason };
            Finish { reason, usage, timings, warnings: std::mem::take(&mut self.warnings) }
        });
        let last = finish.is_some();
        let heard = self.events.send(Ok(Event { token: Some(token), text: out, finish }));
        course?;
        Ok(heard && !last)
    }

    /// The token that must come next, if one must, as part of the history.
    fn forced(&mut self, state: &mut State) -> Result<Option<Token>> {
        let Some(steering) = &mut self.steering else { return Ok(None) };
        let forced = steering.forced()?;
        state.history.extend(forced);
        Ok(forced.map(|id| Token { id, logprob: None, top_logprobs: Vec::new() }))
    }
}

impl Ask for Writing {
    fn most_rows(&self) -> usize {
        self.chunk
    }

    fn wants(&self) -> (Logits, Rows) {
        let logits = match &self.steering {
            Some(steering) if steering.narrows() && self.all > 0 => Logits::All,
            Some(steering) if steering.narrows() => self.narrowed,
            _ => self.logits,
        };
        (logits, Rows::Last)
    }

    fn has_room(&self) -> bool {
        self.events.has_room()
    }

    fn begin(&mut self, cached: usize) {
        if self.prefill.is_none() {
            // Otherwise it goes on, and its prompt was computed before.
            self.cached_tokens = cached;
        }
        self.begun = Instant::now();
    }

    fn draft(&mut self, history: &[TokenId], most: usize) -> Proposal<'_> {
        // One comes in any case.
        let left = self.tokens_left();
        let most = most.min(left.saturating_sub(1));
        let drafter = self.drafter.as_mut();
        drafter.map_or_else(Proposal::default, |drafter| Proposal { left, ..drafter.draft(history, most) })
    }

    fn has_model(&self) -> Option<bool> {
        self.drafter.as_ref()?.has_model()
    }

    fn turn_to_model(&mut self) {
        if let Some(drafter) = &mut self.drafter {
            drafter.turn_to_model();
        }
    }

    fn warn(&mut self, warning: &str) {
        if self.has_model().is_some() {
            self.warnings.push(warning.to_owned());
        }
    }

    fn note_step(&mut self, taken: f64, without: f64) {
        self.ahead.taken += taken;
        self.ahead.without += without * std::mem::take(&mut self.ahead.given) as f64;
    }

    fn take(
        &mut self,
        state: &mut State,
        reply: &mut Reply,
        segment: usize,
        drafted: Drafted<'_>,
    ) -> Result<Taken> {
        let known = state.history.len();
        self.ahead.given = 0;
        self.ahead.drafted += drafted.len();
        self.ahead.steps += usize::from(drafted.len() > 0);
        let accepted = self.ahead.accepted;
        let mut row = (segment, 0);
        let taken = loop {
            let chosen = match self.forced(state)? {
                Some(token) => Some(token),
                None => self.choose(state, reply, row)?,
            };
            let Some(token) = chosen else {
                self.all = AGAIN;
                break Taken::Again;
            };
            self.all = self.all.saturating_sub(1);
            self.prefill.get_or_insert_with(|| self.begun.elapsed());
            self.ahead.accepted = accepted + drafted.right(&state.history[known..]);
            let mut goes_on = self.tell(token)?;
            // What is certain is computed together with what comes before it.
            while goes_on && let Some(token) = self.forced(state)? {
                self.ahead.accepted = accepted + drafted.right(&state.history[known..]);
                goes_on = self.tell(token)?;
            }
            if !goes_on {
                break Taken::Over;
            }
            // What was drafted is computed already, while it is what was chosen.
            match drafted.row_behind(&state.history[known..], segment) {
                Some(behind) => row = behind,
                None => break Taken::GoesOn,
            }
        };
        let new = &state.history[known..];
        let right = drafted.right(new);
        if let (Some(drafter), Taken::GoesOn | Taken::Over) = (&mut self.drafter, &taken) {
            let first = common(new, drafted.tokens);
            let otherwise = drafted
                .other
                .filter(|_| first == 0 && !drafted.tokens.is_empty())
                .map(|(other, _)| new.first() == Some(&other));
            let own = self.steering.is_none() && self.options.sampling.is_models_own();
            drafter.note(drafted.tokens.len(), first, otherwise, own);
        }
        // What was forced behind these is computed later.
        self.ahead.given = (state.history.len() - known).min(right + 1);
        Ok(taken)
    }

    fn end(self: Box<Self>, result: Result<()>, turn: Turn) {
        let Err(error) = result else { return drop(turn) };
        let stopped = matches!(error.kind(), ErrorKind::Cancelled | ErrorKind::DeadlineExceeded);
        let error = if stopped { error.with_detail(self.counted()) } else { error };
        let events = self.events.again();
        if error.retry() == Retry::AfterReplan {
            turn.shared.state().interrupted = Some(self);
        }
        drop(turn);
        events.fail(error);
    }
}
