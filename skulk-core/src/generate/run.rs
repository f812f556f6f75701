//! What does a generation do, step by step? Reuse, prefill, then sample and decode.

use std::sync::Arc;
use std::time::Instant;

use super::event::{Event, Finish, FinishReason, Timings, Token, Usage};
use super::sampler::{self, Sampler};
use super::session::{Shared, State};
use crate::engine::{Logits, Segment, StepCx};
use crate::error::{Error, ErrorKind, Result};
use crate::generate::GenerateOptions;
use crate::ids::TokenId;
use crate::tokenizer::{Detokenizer, StopMatcher};

/// Generates until something ends it; `send` returns false when nobody listens any more.
pub(super) fn run(
    shared: &Shared,
    prompt: Vec<TokenId>,
    options: &GenerateOptions,
    mut send: impl FnMut(Event) -> bool,
) -> Result<()> {
    let mut state = shared.state();
    let mut stops = StopMatcher::new(options.stop.iter().map(String::as_str))?;
    let mut text = Detokenizer::new(Arc::clone(&shared.model.tokenizer), &prompt, true);
    let mut sampler = Sampler::new(options.sampling.clone());
    let model = &shared.model;
    let prompt_len = prompt.len();
    let max_tokens = options.max_tokens.unwrap_or(model.context - prompt_len);
    let started = Instant::now();

    state.history = prompt;
    // Log-probabilities are of all logits.
    let enough = if options.logprobs.is_some() { None } else { sampler.enough() };
    let logits = enough.filter(|&k| k <= model.arch.vocab_size).map_or(Logits::Last, Logits::Top);
    let cx = StepCx::new(&options.cancel);
    let mut steps = Steps { shared, state: &mut state, cx, logits, raw: Vec::new() };
    let cached_tokens = steps.reuse()?;
    steps.prefill(cached_tokens)?;
    let prefill = started.elapsed();

    let mut first_token = None;
    let mut completion_tokens = 0;
    loop {
        let (token, id) = steps.choose(&mut sampler, options)?;
        let first_token = *first_token.get_or_insert_with(Instant::now);
        completion_tokens += 1;
        let ended = !options.ignore_eos && model.tokenizer.eos_ids().contains(&id);
        let mut out = String::new();
        if !ended {
            out.push_str(stops.push(text.push(id)));
        }
        let reason = if ended {
            Some(FinishReason::EndOfSequence)
        } else if stops.matched().is_some() {
            Some(FinishReason::StopString)
        } else if completion_tokens == max_tokens {
            Some(FinishReason::Length)
        } else {
            None
        };
        let finish = reason.map(|reason| {
            if stops.matched().is_none() {
                out.push_str(stops.push(text.flush()));
                out.push_str(stops.flush());
            }
            let decode = first_token.elapsed();
            let per_second = |n: usize, seconds: f64| if seconds > 0.0 { n as f64 / seconds } else { 0.0 };
            Finish {
                // The last characters may complete a stop string.
                reason: if stops.matched().is_some() { FinishReason::StopString } else { reason },
                usage: Usage { prompt_tokens: prompt_len, cached_tokens, completion_tokens },
                timings: Timings {
                    load: model.load_time,
                    time_to_first_token: first_token.duration_since(started),
                    prefill,
                    decode,
                    prefill_tokens_per_second: per_second(prompt_len - cached_tokens, prefill.as_secs_f64()),
                    decode_tokens_per_second: per_second(completion_tokens - 1, decode.as_secs_f64()),
                },
            }
        });
        let last = finish.is_some();
        if !send(Event { token: Some(token), text: out, finish }) || last {
            return Ok(());
        }
        steps.decode(id)?;
    }
}

/// The session's tokens on their way through the shards.
struct Steps<'a> {
    shared: &'a Shared,
    state: &'a mut State,
    cx: StepCx<'a>,
    /// What a step that ends in a token asks for.
    logits: Logits,
    /// The model's own logits, kept only for log-probabilities.
    raw: Vec<f32>,
}

impl Steps<'_> {
    /// Cuts the caches back to what the prompt shares with them; returns that length. The last
    /// token is always computed, as its logits are needed.
    fn reuse(&mut self) -> Result<usize> {
        let State { history, cached, .. } = &mut *self.state;
        let common = history.iter().zip(&*cached).take_while(|(a, b)| a == b).count();
        let wanted = common.min(history.len() - 1);
        if wanted < cached.len() {
            self.truncate(wanted)?;
        }
        Ok(self.state.cached.len())
    }

    /// Brings the sequence to the same length in all stages, at most `len`. Where one cannot, its stages are at
    /// different lengths: the session is closed.
    fn truncate(&mut self, len: usize) -> Result<()> {
        let Shared { model, seq, .. } = self.shared;
        let kept = model.truncate(*seq, len);
        if kept.is_err() {
            self.state.closed = true;
            model.close_sequence(*seq);
        }
        self.state.cached.truncate(kept?);
        Ok(())
    }

    /// Computes the prompt's tokens from `from` on, in chunks.
    fn prefill(&mut self, mut from: usize) -> Result<()> {
        let total = self.state.history.len();
        while from < total {
            let to = total.min(from + self.shared.model.prefill_chunk);
            self.forward(from..to, if to == total { self.logits } else { Logits::None })?;
            from = to;
        }
        Ok(())
    }

    /// Computes the token that was chosen last.
    fn decode(&mut self, token: TokenId) -> Result<()> {
        debug_assert_eq!(self.state.history.last(), Some(&token));
        let end = self.state.history.len();
        self.forward(end - 1..end, self.logits)
    }

    fn forward(&mut self, range: std::ops::Range<usize>, logits: Logits) -> Result<()> {
        let Shared { model, seq, .. } = self.shared;
        let State { history, cached, buffers, .. } = &mut *self.state;
        let segment = Segment { seq: *seq, start: range.start, rows: range.len(), logits };
        let tokens = &history[range];
        match model.forward(segment, tokens, buffers, &self.cx) {
            Ok(()) => {
                cached.extend_from_slice(tokens);
                Ok(())
            }
            Err(error) => {
                // Some shards may be a step ahead. Whether they come back or not, this is what went wrong.
                let len = cached.len();
                let _ = self.truncate(len);
                Err(error)
            }
        }
    }

    /// Samples from the last step's logits and appends the token to the history.
    fn choose(&mut self, sampler: &mut Sampler, options: &GenerateOptions) -> Result<(Token, TokenId)> {
        let State { history, buffers: [logits, _], .. } = &mut *self.state;
        if logits.data().is_empty() {
            return Err(Error::new(ErrorKind::Internal, "the last stage gave no logits"));
        }
        if !logits.ids().is_empty() {
            let id = sampler.sample_top(logits.ids(), logits.data())?;
            history.push(id);
            return Ok((Token { id, logprob: None, top_logprobs: Vec::new() }, id));
        }
        let logits = logits.data_mut();
        let mut top_logprobs = Vec::new();
        // Sampling changes the logits in place; log-probabilities are of the raw ones.
        let normaliser = options.logprobs.map(|top| {
            self.raw.clear();
            self.raw.extend_from_slice(logits);
            sampler::top_logprobs(logits, top, &mut top_logprobs)
        });
        let id = sampler.sample(logits, history)?;
        let logprob = normaliser.map(|normaliser| self.raw[id.0 as usize] - normaliser);
        history.push(id);
        Ok((Token { id, logprob, top_logprobs }, id))
    }
}
