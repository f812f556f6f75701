//! Which token has a text, and which text has a token?
//!
//! All texts lie one behind the other, and a table of ids finds them: for 262,144 tokens some 7 MB, where the crate's maps,
//! with each text twice in memory of its own, take ten times as much.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher};
use std::iter;

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};
use tokenizers::models::bpe::Vocab;

/// Texts by number: equal ones have the first one's.
#[derive(Default)]
pub(super) struct Texts {
    all: String,
    /// Where each ends.
    ends: Vec<usize>,
    numbers: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// Numbers without a text.
    holes: HashSet<u32>,
    /// Numbers whose text an earlier one has. llama.cpp refuses tokens of equal text; files have them, so here text becomes
    /// the first of them and each of them becomes text.
    pub(super) duplicates: HashMap<u32, u32>,
}

impl Texts {
    /// These, in order. There are fewer than 2^32.
    pub(super) fn of(texts: &[&str]) -> Self {
        let bytes = texts.iter().map(|text| text.len()).sum();
        let mut found = Self {
            all: String::with_capacity(bytes),
            ends: Vec::with_capacity(texts.len()),
            numbers: HashTable::with_capacity(texts.len()),
            ..Self::default()
        };
        for text in texts {
            found.push(text);
        }
        found
    }

    /// One more.
    pub(super) fn push(&mut self, text: &str) {
        let number = self.ends.len() as u32;
        self.all.push_str(text);
        self.ends.push(self.all.len());
        let Self { all, ends, numbers, hasher, duplicates, .. } = self;
        let at = |number: &u32| slice(all, ends, *number);
        let same = |other: &u32| at(other) == text;
        match numbers.entry(hash(hasher, text), same, |number| hash(hasher, at(number))) {
            Entry::Vacant(entry) => drop(entry.insert(number)),
            Entry::Occupied(first) => drop(duplicates.insert(number, *first.get())),
        }
    }

    /// A number without a text.
    pub(super) fn skip(&mut self) {
        self.holes.insert(self.ends.len() as u32);
        self.ends.push(self.all.len());
    }

    /// The first number of that text.
    pub(super) fn get(&self, text: &str) -> Option<u32> {
        self.beginnings(text, iter::once(text.len())).next()
    }

    /// The first numbers of the texts with which `text` begins, of those that end at `ends`, which rise. How long this takes
    /// grows with the last one, and with how many there are.
    pub(super) fn beginnings(
        &self,
        text: &str,
        ends: impl Iterator<Item = usize>,
    ) -> impl Iterator<Item = u32> {
        let (mut hasher, mut from) = (self.hasher.build_hasher(), 0);
        ends.filter_map(move |end| {
            mix(&mut hasher, &text[from..end]);
            from = end;
            let same = |number: &u32| slice(&self.all, &self.ends, *number) == &text[..end];
            self.numbers.find(hasher.clone().finish(), same).copied()
        })
    }

    pub(super) fn contains(&self, text: &str) -> bool {
        self.get(text).is_some()
    }

    /// The text of that number.
    pub(super) fn text(&self, number: u32) -> Option<&str> {
        let is_there = (number as usize) < self.ends.len() && !self.holes.contains(&number);
        is_there.then(|| slice(&self.all, &self.ends, number))
    }

    /// How many numbers there are, with or without a text.
    pub(super) fn count(&self) -> usize {
        self.ends.len()
    }

    /// How many different ones there are.
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Those that differ, with their first numbers, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &str)> {
        let firsts = (0..self.ends.len() as u32).filter(|number| !self.duplicates.contains_key(number));
        firsts.filter_map(|number| Some((number, self.text(number)?)))
    }

    /// As the crate takes a vocabulary.
    pub(super) fn vocab(&self) -> Vocab {
        let mut vocab = Vocab::with_capacity(self.len());
        vocab.extend(self.iter().map(|(id, text)| (text.to_owned(), id)));
        vocab
    }
}

/// Character by character, so that the hashes of a text's beginnings come one from the other.
fn hash(builder: &DefaultHashBuilder, text: &str) -> u64 {
    let mut hasher = builder.build_hasher();
    mix(&mut hasher, text);
    hasher.finish()
}

fn mix(hasher: &mut impl Hasher, text: &str) {
    text.chars().for_each(|char| hasher.write_u32(char.into()));
}

fn slice<'a>(all: &'a str, ends: &[usize], number: u32) -> &'a str {
    let number = number as usize;
    let start = number.checked_sub(1).map_or(0, |before| ends[before]);
    &all[start..ends[number]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings_are_found_where_they_end() {
        let texts = Texts::of(&["é", "éa", "b", "éab", "éabc"]);
        assert_eq!(texts.beginnings("éabx", [2, 3, 4, 5].into_iter()).collect::<Vec<_>>(), [0, 1, 3]);
        assert_eq!(texts.beginnings("éabx", [3, 5].into_iter()).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn numbers_may_have_no_text() {
        let mut texts = Texts::of(&["a"]);
        texts.skip();
        texts.push("");
        assert_eq!([0, 1, 2, 3].map(|number| texts.text(number)), [Some("a"), None, Some(""), None]);
        assert_eq!((texts.count(), texts.len(), texts.get("")), (3, 2, Some(2)));
        assert_eq!(texts.iter().collect::<Vec<_>>(), [(0, "a"), (2, "")]);
    }

    #[test]
    fn of_equal_texts_the_first_counts() {
        let texts = Texts::of(&["a", "b", "a", "", "b", "c", ""]);
        assert_eq!(
            ["a", "b", "", "c", "d"].map(|text| texts.get(text)),
            [Some(0), Some(1), Some(3), Some(5), None]
        );
        assert_eq!(
            [0, 2, 3, 5, 6, 7].map(|number| texts.text(number)),
            [Some("a"), Some("a"), Some(""), Some("c"), Some(""), None]
        );
        assert_eq!(texts.duplicates, HashMap::from([(2, 0), (4, 1), (6, 3)]));
        assert_eq!(texts.iter().collect::<Vec<_>>(), [(0, "a"), (1, "b"), (3, ""), (5, "c")]);
        let vocab: HashMap<String, u32> = texts.vocab().into_iter().collect();
        assert_eq!(vocab, ["a", "b", "", "c"].into_iter().map(str::to_owned).zip([0, 1, 3, 5]).collect());
        assert_eq!(texts.len(), 4);
        assert_eq!(Texts::of(&[]).get(""), None);
    }
}
