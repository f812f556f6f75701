//! What does the next token add to an answer?

use std::sync::Arc;

use super::options::ChatOptions;
use super::speech::Asked;
use crate::chat::{Delta, ParseOptions, StreamParser};
use crate::error::Result;
use crate::ids::TokenId;
use crate::tokenizer::{Detokenizer, StopMatcher, Tokenizer};

/// Reads an answer's tokens.
#[derive(Clone)]
pub(super) struct Reader {
    tokenizer: Arc<Tokenizer>,
    text: Detokenizer,
    parser: StreamParser,
    stops: StopMatcher,
    reasoning_tokens: usize,
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
        })
    }

    /// Takes the next token, and gives what is certain with it. Whether the answer goes on: no stop string ended it.
    pub(super) fn push(&mut self, token: TokenId, out: &mut Vec<Delta>) -> bool {
        let reasoned = self.is_reasoning();
        let special = self.tokenizer.is_special(token);
        if special {
            // Half a character before it is none of its text.
            said(&mut self.stops, self.parser.push(self.text.flush(), false), out);
        }
        said(&mut self.stops, self.parser.push(self.text.push(token), special), out);
        self.reasoning_tokens += usize::from(reasoned && self.is_reasoning());
        self.stops.matched().is_none()
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
