//! Which token has a text? A table of ids alone, whose texts stay where the file's metadata has them: it is small enough for a
//! cache, where the crate's map, of texts of its own, is not. Finding merges asks millions of times.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::iter;
use std::sync::OnceLock;

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};
use tokenizers::models::bpe::Vocab;

use crate::error::Result;
use crate::workers::share_out;

/// A vocabulary by text.
pub(super) struct Texts<'a> {
    tokens: &'a [&'a str],
    ids: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// Ids whose text an earlier id has. llama.cpp refuses tokens of equal text; files have them, so here text becomes the
    /// first of them and each of them becomes text.
    pub(super) duplicates: HashMap<u32, u32>,
}

impl<'a> Texts<'a> {
    /// Those of the tokens, by their ids.
    pub(super) fn of(tokens: &'a [&'a str]) -> Self {
        let hasher = DefaultHashBuilder::default();
        let mut ids = HashTable::with_capacity(tokens.len());
        let mut duplicates = HashMap::new();
        let hash = |id: &u32| hasher.hash_one(tokens[*id as usize]);
        for (id, token) in (0_u32..).zip(tokens) {
            match ids.entry(hasher.hash_one(token), |other| tokens[*other as usize] == *token, hash) {
                Entry::Vacant(entry) => drop(entry.insert(id)),
                Entry::Occupied(first) => drop(duplicates.insert(id, *first.get())),
            }
        }
        Self { tokens, ids, hasher, duplicates }
    }

    /// The first token of that text.
    pub(super) fn get(&self, text: &str) -> Option<u32> {
        self.ids.find(self.hasher.hash_one(text), |id| self.tokens[*id as usize] == text).copied()
    }

    pub(super) fn contains(&self, text: &str) -> bool {
        self.get(text).is_some()
    }

    /// As the crate takes a vocabulary.
    pub(super) fn vocab(&self) -> Vocab {
        let mut vocab = Vocab::with_capacity(self.tokens.len());
        let firsts = (0_u32..).zip(self.tokens).filter(|(id, _)| !self.duplicates.contains_key(id));
        vocab.extend(firsts.map(|(id, token)| ((*token).to_owned(), id)));
        vocab
    }

    /// The same, beside what threads make of shares of other work.
    pub(super) fn vocab_beside<T: Sync, R: Send, S: Default>(
        &self,
        shares: &[T],
        work: impl Fn(&mut S, &T) -> Result<R> + Sync,
    ) -> Result<(Vocab, Vec<R>)> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let vocab = OnceLock::new();
        let all: Vec<Option<&T>> = iter::once(None).chain(shares.iter().map(Some)).collect();
        let made = share_out(threads, &all, |own, share| match share {
            Some(share) => work(own, share).map(Some),
            None => {
                vocab.get_or_init(|| self.vocab());
                Ok(None)
            }
        })?;
        Ok((vocab.into_inner().unwrap_or_default(), made.into_iter().flatten().collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_equal_texts_the_first_counts() {
        let tokens = ["a", "b", "a", "", "b", "c", ""];
        let texts = Texts::of(&tokens);
        assert_eq!(
            ["a", "b", "", "c", "d"].map(|text| texts.get(text)),
            [Some(0), Some(1), Some(3), Some(5), None]
        );
        assert_eq!(texts.duplicates, HashMap::from([(2, 0), (4, 1), (6, 3)]));
        let vocab: HashMap<String, u32> = texts.vocab().into_iter().collect();
        assert_eq!(vocab, ["a", "b", "", "c"].into_iter().map(str::to_owned).zip([0, 1, 3, 5]).collect());
        assert_eq!(Texts::of(&[]).get(""), None);
    }
}
