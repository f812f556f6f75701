//! When must reasoning end, and when the answer, and what may its text be? Known where tokens are chosen, before the
//! reader has seen them.

use std::collections::VecDeque;

use super::reader::{Part, Reader};
use crate::chat::Delta;
use crate::error::{Error, Result};
use crate::generate::sampler::Narrow;
use crate::generate::writing::{Course, Steering};
use crate::grammar::Grammar;
use crate::ids::TokenId;

/// How long a model may reason.
#[derive(Debug, Clone)]
pub(super) struct Budget {
    /// In tokens.
    pub(super) limit: usize,
    /// What ends it.
    pub(super) end: Vec<TokenId>,
}

/// What the answer's text keeps to.
pub(super) struct Bound {
    pub(super) grammar: Grammar,
    /// Tokens that end answers, which must not come before the text.
    pub(super) ends: Vec<TokenId>,
    /// What stands between reasoning that has ended and the text, as far as it is certain.
    pub(super) header: Vec<TokenId>,
    /// What an answer begins with in any case.
    pub(super) begins: Option<TokenId>,
}

/// Reads along with the generation.
pub(super) struct Guide {
    reader: Reader,
    budget: Option<Budget>,
    bound: Option<Bound>,
    /// What is still to come of the reasoning's end, of its beginning, or of the text's header.
    coming: VecDeque<TokenId>,
    /// The end was written, and nothing but reasoning has come since.
    ended: bool,
    /// Used again for every token.
    deltas: Vec<Delta>,
    /// Logits of tokens that begin reasoning or calls.
    kept: Vec<(usize, f32)>,
}

impl Guide {
    pub(super) fn new(reader: Reader, budget: Option<Budget>, bound: Option<Bound>) -> Self {
        let coming = bound.iter().filter_map(|bound| bound.begins).collect();
        Self { reader, budget, bound, coming, ended: false, deltas: Vec::new(), kept: Vec::new() }
    }

    /// Notes a token where there is a constraint; `before` it, the answer was there.
    fn keep(&mut self, token: TokenId, before: Option<Part>, reasoned: bool) -> Result<Course> {
        let Some(bound) = &mut self.bound else { return Ok(Course::GoesOn) };
        match (before, self.reader.part()) {
            (Some(Part::Beginning), Some(Part::Opening(_) | Part::Before | Part::Calls)) => {
                self.coming.extend(self.reader.opening(token).iter().skip(1));
            }
            (Some(Part::Beginning | Part::Text), Some(Part::Text)) => {
                bound.grammar.take(token)?;
                if bound.grammar.is_over() {
                    return Ok(Course::Ends);
                }
            }
            (_, Some(Part::Calls)) => {}
            _ if self.deltas.iter().any(is_text) => {
                let message = "expected a text to begin behind its own token, found some before it";
                return Err(Error::argument("response_format", message)
                    .with_hint("turn reasoning off, or leave the constraint out"));
            }
            // Reasoning was ended by the model: what is left of its markup is certain.
            (_, Some(Part::Before)) if reasoned && !self.reader.is_reasoning() && self.coming.is_empty() => {
                // What ended it may be some of that.
                let from = bound.header.iter().position(|other| *other == token).map_or(0, |at| at + 1);
                self.coming.extend(&bound.header[from..]);
            }
            _ => {}
        }
        Ok(Course::GoesOn)
    }
}

fn is_text(delta: &Delta) -> bool {
    matches!(delta, Delta::Text { text } if !text.trim().is_empty())
}

impl Steering for Guide {
    fn forced(&mut self) -> Result<Option<TokenId>> {
        let reasons = self.reader.is_reasoning();
        self.ended &= reasons;
        if let Some(budget) = &self.budget
            && reasons
            && !self.ended
            && self.coming.is_empty()
            && self.reader.reasoning_tokens() >= budget.limit
        {
            self.coming.extend(&budget.end);
            self.ended = true;
        }
        match (&mut self.bound, self.reader.part()) {
            (Some(bound), Some(Part::Text)) => bound.grammar.forced(),
            _ => Ok(self.coming.pop_front()),
        }
    }

    fn narrows(&self) -> bool {
        self.bound.is_some()
    }

    fn narrow(&mut self) -> Option<&mut dyn Narrow> {
        if self.bound.is_some() { Some(self) } else { None }
    }

    fn note(&mut self, token: TokenId) -> Result<Course> {
        self.deltas.clear();
        let (before, reasoned) = (self.reader.part(), self.reader.is_reasoning());
        let goes_on = self.reader.push(token, &mut self.deltas);
        let course = self.keep(token, before, reasoned)?;
        Ok(if goes_on { course } else { Course::Stops })
    }
}

impl Narrow for Guide {
    fn allows(&mut self, token: TokenId) -> Result<bool> {
        let Some(bound) = &mut self.bound else { return Ok(true) };
        match self.reader.part() {
            Some(Part::Text) => bound.grammar.allows(token),
            Some(Part::Beginning) => {
                Ok(self.reader.openings().any(|opening| opening == token) || bound.grammar.allows(token)?)
            }
            Some(Part::Calls) => Ok(true),
            _ => Ok(!bound.ends.contains(&token)),
        }
    }

    fn narrow(&mut self, logits: &mut [f32]) -> Result<()> {
        let Some(bound) = &mut self.bound else { return Ok(()) };
        match self.reader.part() {
            Some(Part::Text) => bound.grammar.narrow(logits),
            Some(Part::Beginning) => {
                let openings = self.reader.openings().map(|id| id.0 as usize);
                self.kept.clear();
                self.kept.extend(openings.filter_map(|at| Some((at, *logits.get(at)?))));
                bound.grammar.narrow(logits)?;
                for &(at, logit) in &self.kept {
                    logits[at] = logit;
                }
                Ok(())
            }
            Some(Part::Calls) => Ok(()),
            _ => {
                for end in &bound.ends {
                    if let Some(logit) = logits.get_mut(end.0 as usize) {
                        *logit = f32::NEG_INFINITY;
                    }
                }
                Ok(())
            }
        }
    }
}
