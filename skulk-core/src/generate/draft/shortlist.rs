//! Which tokens does a model look at that drafts? Those that are used most, and those that texts had lately.
//!
//! An output head of 151,936 tokens is most of what a draft reads. Byte-pair vocabularies number tokens as they were merged,
//! the commonest pairs first: in Qwen's, Llama's and DeepSeek's the first 32,768 are 92 to 95 % of English texts and of code,
//! 60 % of Chinese ones; in Gemma's, whose letters come last, 65 to 70 %. With those that a text had before, they are 96 to 99 %
//! of English texts and of code, and 89 to 99 % of others. What is left out is drafted wrongly, and no text changes by that.

use std::collections::VecDeque;
use std::ops::Range;

use crate::arch::{SHORTLIST, shortlisted};
use crate::ids::TokenId;

/// The first tokens.
const FIRST: u32 = SHORTLIST[0] as u32;
/// Tokens behind them that texts had lately.
const LATELY: usize = SHORTLIST[1];

/// Tokens that are looked at.
pub(super) struct Shortlist {
    /// One behind the other: the first ones, and each of the others.
    ranges: Vec<Range<u32>>,
    /// The others, the one that came first at the front.
    lately: VecDeque<TokenId>,
    /// Tokens from there on are unknown.
    end: u32,
}

impl Shortlist {
    /// Of so many tokens; `None` where it would be no shorter than half of them.
    pub(super) fn new(tokens: usize) -> Option<Self> {
        (shortlisted(tokens) < tokens).then(|| {
            let mut ranges = Vec::with_capacity(1 + LATELY);
            ranges.push(0..FIRST);
            Self { ranges, lately: VecDeque::with_capacity(LATELY), end: tokens as u32 }
        })
    }

    pub(super) fn ranges(&self) -> &[Range<u32>] {
        &self.ranges
    }

    /// Notes tokens of a text.
    pub(super) fn see(&mut self, tokens: &[TokenId]) {
        for token in tokens.iter().filter(|token| (FIRST..self.end).contains(&token.0)) {
            if self.find(*token).is_ok() {
                continue;
            }
            if self.lately.len() == LATELY
                && let Some(Ok(at)) = self.lately.pop_front().map(|first| self.find(first))
            {
                self.ranges.remove(at);
            }
            if let Err(at) = self.find(*token) {
                self.ranges.insert(at, token.0..token.0 + 1);
                self.lately.push_back(*token);
            }
        }
    }

    /// Where a token is, or would be.
    fn find(&self, token: TokenId) -> Result<usize, usize> {
        self.ranges.binary_search_by_key(&token.0, |range| range.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_the_first_tokens_and_the_last_of_the_others() {
        assert!(Shortlist::new(2 * FIRST as usize).is_none() && shortlisted(999) == 999);
        let mut shortlist = Shortlist::new(1 << 17).unwrap();
        assert_eq!(shortlist.ranges(), std::slice::from_ref(&(0..FIRST)));
        let tokens = |ids: Range<u32>| ids.map(TokenId).collect::<Vec<_>>();
        // Each once, in the order of their numbers.
        shortlist.see(&[TokenId(70_000), TokenId(5), TokenId(40_000), TokenId(70_000), TokenId(1 << 17)]);
        assert_eq!(shortlist.ranges(), [0..FIRST, 40_000..40_001, 70_000..70_001]);
        // The one that came first goes first.
        let last = FIRST + 100..FIRST + 100 + LATELY as u32 - 1;
        shortlist.see(&tokens(last.clone()));
        let expected = std::iter::once(0..FIRST).chain(last.map(|token| token..token + 1));
        let found = shortlist.ranges().iter().filter(|range| range.start != 40_000).cloned();
        assert!(found.eq(expected) && shortlist.ranges().len() == 1 + LATELY);
        // Memory is bounded.
        shortlist.see(&tokens(FIRST..1 << 17));
        assert_eq!((shortlist.ranges().len(), shortlist.ranges.capacity()), (1 + LATELY, 1 + LATELY));
        assert!(shortlist.ranges().is_sorted_by(|a, b| a.end <= b.start));
    }
}
