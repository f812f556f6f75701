//! When must reasoning end, and when the answer? Known where tokens are chosen, before the reader has seen them.

use std::collections::VecDeque;

use super::reader::Reader;
use crate::chat::Delta;
use crate::generate::writing::Steering;
use crate::ids::TokenId;

/// How long a model may reason.
#[derive(Debug, Clone)]
pub(super) struct Budget {
    /// In tokens.
    pub(super) limit: usize,
    /// What ends it.
    pub(super) end: Vec<TokenId>,
}

/// Reads along with the generation.
pub(super) struct Guide {
    reader: Reader,
    budget: Option<Budget>,
    /// What is still to come of the reasoning's end.
    end: VecDeque<TokenId>,
    /// The end was written, and nothing but reasoning has come since.
    ended: bool,
    /// Used again for every token.
    deltas: Vec<Delta>,
}

impl Guide {
    pub(super) fn new(reader: Reader, budget: Option<Budget>) -> Self {
        Self { reader, budget, end: VecDeque::new(), ended: false, deltas: Vec::new() }
    }
}

impl Steering for Guide {
    fn forced(&mut self) -> Option<TokenId> {
        let reasons = self.reader.is_reasoning();
        self.ended &= reasons;
        if let Some(budget) = &self.budget
            && reasons
            && !self.ended
            && self.end.is_empty()
            && self.reader.reasoning_tokens() >= budget.limit
        {
            self.end.extend(&budget.end);
            self.ended = true;
        }
        self.end.pop_front()
    }

    fn note(&mut self, token: TokenId) -> bool {
        self.deltas.clear();
        self.reader.push(token, &mut self.deltas)
    }
}
