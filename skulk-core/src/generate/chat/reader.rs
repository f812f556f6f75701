//! What does the next token add to an answer?

use std::sync::Arc;

use super::options::ChatOptions;
use super::speech::Asked;
use crate::chat::{Delta, ParseOptions, StreamParser};
use crate::error::Result;
use crate::ids::TokenId;
use crate::tokenizer::{Detokenizer, StopMatcher, Tokenizer};

/// Where an answer is whose text keeps to a constraint. From where that begins on, all is text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Its text begins, or reasoning, or calls.
    Beginning,
    /// So many tokens are still to come of what begins reasoning or calls.
    Opening(usize),
    /// What comes before the text: reasoning, or a message's header.
    Before,
    /// What comes instead of a text: calls, and what the model says beside them.
    Calls,
    Text,
}

/// What comes before a text that keeps to a constraint.
#[derive(Debug, Clone)]
pub(super) struct Lead {
    pub(super) part: Part,
    /// What begins reasoning, where that may come; else nothing.
    pub(super) reasoning: Vec<TokenId>,
    /// What begins calls; `None` where none may come. With headers, those say it.
    pub(super) calls: Option<Vec<Vec<TokenId>>>,
    /// What begins the text behind a header; without it, the text follows reasoning.
    pub(super) begins: Option<TokenId>,
}

/// Reads an answer's tokens.
#[derive(Clone)]
pub(super) struct Reader {
    tokenizer: Arc<Tokenizer>,
    text: Detokenizer,
    parser: StreamParser,
    stops: StopMatcher,
    reasoning_tokens: usize,
    /// Only where there is a constraint.
    lead: Option<Lead>,
}

impl Lead {
    /// What the token begins, as a whole.
    fn opening(&self, token: TokenId) -> Option<&[TokenId]> {
        let calls = self.calls.iter().flatten();
        std::iter::once(&self.reasoning)
            .chain(calls)
            .find(|all| all.first() == Some(&token))
            .map(Vec::as_slice)
    }

    /// Which tokens begin reasoning or calls, where they may come.
    fn openings(&self) -> impl Iterator<Item = TokenId> {
        let calls = self.calls.iter().flatten();
        std::iter::once(&self.reasoning).chain(calls).filter_map(|all| all.first().copied())
    }
}

impl Reader {
    pub(super) fn new(tokenizer: &Arc<Tokenizer>, asked: &Asked, options: &ChatOptions) -> Result<Self> {
        let tools = options.render.tools.iter().map(|tool| serde_json::to_value(tool).unwrap_or_default());
        let parse = ParseOptions::default().starts_in_reasoning(asked.starts_in_reasoning).tools(tools);
        let is_special = |text: &str| tokenizer.is_special_text(text);
        Ok(Self {
            text: Detokenizer::new(Arc::clone(tokenizer), &asked.prompt.tokens, false),
            tokenizer: Arc::clone(tokenizer),
            parser: StreamParser::seeing_special_tokens(&asked.syntax, &parse, is_special)?,
            stops: StopMatcher::new(options.generate.stop.iter().map(String::as_str))?,
            reasoning_tokens: 0,
            lead: asked.lead.clone(),
        })
    }

    /// Takes the next token, and gives what is certain with it. Whether the answer goes on: no stop string ended it.
    pub(super) fn push(&mut self, token: TokenId, out: &mut Vec<Delta>) -> bool {
        self.open(token);
        if self.part() == Some(Part::Text) {
            let text = self.text.push(token).to_owned();
            said(&mut self.stops, std::iter::once(Delta::Text { text }), out);
            return self.stops.matched().is_none();
        }
        let reasoned = self.is_reasoning();
        let special = self.tokenizer.is_special(token);
        if special {
            // Half a character before it is none of its text.
            said(&mut self.stops, self.parser.push(self.text.flush(), false), out);
        }
        said(&mut self.stops, self.parser.push(self.text.push(token), special), out);
        self.reasoning_tokens += usize::from(reasoned && self.is_reasoning());
        self.lead_on(token);
        self.stops.matched().is_none()
    }

    /// Where the answer is, if there is a constraint.
    pub(super) fn part(&self) -> Option<Part> {
        self.lead.as_ref().map(|lead| lead.part)
    }

    /// What begins with this token, reasoning or a call: all tokens of it.
    pub(super) fn opening(&self, token: TokenId) -> &[TokenId] {
        self.lead.as_ref().and_then(|lead| lead.opening(token)).unwrap_or_default()
    }

    /// Which tokens begin reasoning or calls, where they may come.
    pub(super) fn openings(&self) -> impl Iterator<Item = TokenId> {
        self.lead.iter().flat_map(Lead::openings)
    }

    /// The first token says what begins.
    fn open(&mut self, token: TokenId) {
        if let Some(lead) = &mut self.lead
            && lead.part == Part::Beginning
        {
            lead.part = lead.opening(token).map_or(Part::Text, |opening| Part::Opening(opening.len()));
        }
    }

    /// Notes a token before the text.
    fn lead_on(&mut self, token: TokenId) {
        let (reasons, calls) = (self.is_reasoning(), self.parser.is_calling());
        let Some(lead) = &mut self.lead else { return };
        lead.part = match lead.part {
            Part::Calls => Part::Calls,
            Part::Opening(left) if left > 1 => Part::Opening(left - 1),
            _ if calls && lead.calls.is_some() => Part::Calls,
            _ if reasons || lead.begins.is_some_and(|begins| begins != token) => Part::Before,
            _ => {
                lead.reasoning.clear();
                if lead.openings().next().is_some() { Part::Beginning } else { Part::Text }
            }
        };
    }

    /// Whether the token ends answers.
    pub(super) fn is_end(&self, token: TokenId) -> bool {
        self.tokenizer.eos_ids().contains(&token)
    }

    /// What the answer's text begins behind.
    pub(super) fn detokenizer(&self) -> &Detokenizer {
        &self.text
    }

    /// The answer is at its end: gives what was held back.
    pub(super) fn finish(&mut self, out: &mut Vec<Delta>) {
        said(&mut self.stops, self.parser.push(self.text.flush(), false), out);
        said(&mut self.stops, self.parser.finish(), out);
        release(&mut self.stops, out);
    }

    /// Whether what comes next is reasoning, as far as is known.
    pub(super) fn is_reasoning(&self) -> bool {
        self.parser.is_reasoning()
    }

    /// Tokens that were reasoning, and after which it went on.
    pub(super) fn reasoning_tokens(&self) -> usize {
        self.reasoning_tokens
    }
}

/// Passes on what comes before a stop string.
fn said(stops: &mut StopMatcher, deltas: impl Iterator<Item = Delta>, out: &mut Vec<Delta>) {
    for delta in deltas {
        if stops.matched().is_some() {
            continue;
        }
        match delta {
            Delta::Text { text } => tell(stops.push(&text), out),
            other => {
                // No stop string reaches across it.
                release(stops, out);
                out.push(other);
            }
        }
    }
}

/// Passes on what might have begun a stop string.
fn release(stops: &mut StopMatcher, out: &mut Vec<Delta>) {
    if stops.matched().is_none() {
        tell(stops.flush(), out);
    }
}

fn tell(new: &str, out: &mut Vec<Delta>) {
    match out.last_mut() {
        _ if new.is_empty() => {}
        Some(Delta::Text { text }) => text.push_str(new),
        _ => out.push(Delta::Text { text: new.to_owned() }),
    }
}
