//! What followed the last time a text read as it does now? An index of a session's tokens, by the last few of each place.

use std::collections::HashMap;

use crate::ids::TokenId;

/// Tokens that must be equal before anything is proposed.
const LEAST: usize = 3;
/// Tokens behind which a longer match says no more.
const MOST: usize = 32;
/// Earlier places that are looked at, the latest first.
const PLACES: usize = 16;

/// Behind a text: no token of a vocabulary.
const END: TokenId = TokenId(u32::MAX);

/// No earlier place.
const NONE: u32 = u32::MAX;

/// Tokens, and for each place the one before it where the same few tokens end. Takes some 40 bytes a token.
#[derive(Debug, Default)]
pub(super) struct Ngrams {
    tokens: Vec<TokenId>,
    /// The last place where these tokens end, of those that have a token behind them.
    last: HashMap<[TokenId; LEAST], u32>,
    /// By place the one before it.
    before: Vec<u32>,
}

/// Where a text read as it does at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Match {
    /// Where what followed begins.
    next: usize,
    /// How many tokens are equal, up to [`MOST`].
    pub(super) len: usize,
}

impl Ngrams {
    /// Adds tokens behind those that are there.
    pub(super) fn extend(&mut self, tokens: &[TokenId]) {
        for token in tokens {
            self.index_last();
            self.tokens.push(*token);
        }
    }

    /// Ends a text: nothing is proposed beyond.
    pub(super) fn end_text(&mut self) {
        self.extend(&[END]);
    }

    /// Tokens that are there, ends among them.
    pub(super) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Makes the last place known, behind which a token comes now.
    fn index_last(&mut self) {
        let before = match self.tokens.last_chunk::<LEAST>() {
            None => NONE,
            Some(key) => self.last.insert(*key, (self.tokens.len() - 1) as u32).unwrap_or(NONE),
        };
        if !self.tokens.is_empty() {
            self.before.push(before);
        }
    }

    /// The earlier place that agrees with the end in the most tokens, the latest of equal ones.
    pub(super) fn find(&self) -> Option<Match> {
        self.find_end_of(&self.tokens)
    }

    /// The place that agrees with the end of these tokens in the most, the latest of equal ones.
    fn find_end_of(&self, text: &[TokenId]) -> Option<Match> {
        let mut best: Option<Match> = None;
        for found in self.ends_of(text) {
            if best.is_none_or(|best| found.len > best.len) {
                best = Some(found);
            }
            if found.len == MOST {
                break;
            }
        }
        best
    }

    /// The token that followed at the latest place where another one did than at this one.
    pub(super) fn otherwise(&self, text: &Self, found: Match) -> Option<TokenId> {
        let first = self.tokens.get(found.next)?;
        let mut others = self.ends_of(&text.tokens).filter_map(|other| self.tokens.get(other.next));
        others.find(|other| *other != first && **other != END).copied()
    }

    /// Places that agree with the end of these tokens, the latest first.
    fn ends_of(&self, text: &[TokenId]) -> impl Iterator<Item = Match> {
        let last = text.last_chunk::<LEAST>().and_then(|key| self.last.get(key));
        let before = |place: &u32| self.before.get(*place as usize).copied().filter(|before| *before != NONE);
        std::iter::successors(last.copied(), before).take(PLACES).map(|place| {
            let next = place as usize + 1;
            let pairs = self.tokens[..next].iter().rev().zip(text.iter().rev());
            Match { next, len: pairs.take(MOST).take_while(|(a, b)| a == b).count() }
        })
    }

    /// The same in other tokens: where they read as these do at their end.
    pub(super) fn find_in(&self, others: &Self) -> Option<Match> {
        others.find_end_of(&self.tokens)
    }

    /// Up to `most` tokens that followed there.
    pub(super) fn followed(&self, found: Match, most: usize) -> &[TokenId] {
        let end = found.next.saturating_add(most).min(self.tokens.len());
        let tokens = &self.tokens[found.next.min(end)..end];
        let len = tokens.iter().position(|token| *token == END).unwrap_or(tokens.len());
        &tokens[..len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tokens(numbers: &[u32]) -> Vec<TokenId> {
        numbers.iter().copied().map(TokenId).collect()
    }

    #[test]
    fn what_followed_longer_equals_is_proposed() {
        let mut ngrams = Ngrams::default();
        ngrams.extend(&tokens(&[9, 1, 2, 3, 4, 5, 0, 8, 1, 2, 3, 6, 7, 9, 1, 2]));
        assert_eq!(ngrams.find(), Some(Match { next: 3, len: 3 }));
        ngrams.extend(&tokens(&[3]));
        // `9 1 2 3` came first, `1 2 3` later, too.
        let found = ngrams.find().unwrap();
        assert_eq!(found.len, 4);
        assert_eq!(ngrams.followed(found, 2), tokens(&[4, 5]));
        assert_eq!(ngrams.followed(found, 100), tokens(&[4, 5, 0, 8, 1, 2, 3, 6, 7, 9, 1, 2, 3]));
        assert_eq!(ngrams.otherwise(&ngrams, found), Some(TokenId(6)));
        ngrams.extend(&tokens(&[6]));
        assert_eq!(ngrams.followed(ngrams.find().unwrap(), 1), tokens(&[7]));
    }

    #[test]
    fn a_text_that_repeats_itself_goes_on() {
        let mut ngrams = Ngrams::default();
        ngrams.extend(&tokens(&[7; 40]));
        let found = ngrams.find().unwrap();
        assert_eq!((found.len, ngrams.followed(found, 9).len()), (MOST, 1));
    }

    proptest! {
        /// The longest of the last places that agree, as counting finds it.
        #[test]
        fn matches_are_those_of_counting(numbers in prop::collection::vec(0u32..3, 0..60), cut in 0usize..60) {
            let all = tokens(&numbers);
            let mut ngrams = Ngrams::default();
            let cut = cut.min(all.len());
            ngrams.extend(&all[..cut]);
            ngrams.extend(&all[cut..]);
            prop_assert_eq!(ngrams.len(), all.len());
            let equal = |next: usize| {
                let pairs = all[..next].iter().rev().zip(all.iter().rev());
                pairs.take(MOST).take_while(|(a, b)| a == b).count()
            };
            let places = (1..all.len()).rev().filter(|next| equal(*next) >= LEAST).take(PLACES);
            let best = places.fold(None, |best: Option<Match>, next| {
                let len = equal(next);
                if best.is_none_or(|best| len > best.len) { Some(Match { next, len }) } else { best }
            });
            prop_assert_eq!(ngrams.find().map(|it| it.len), best.map(|it| it.len));
        }
    }
}
