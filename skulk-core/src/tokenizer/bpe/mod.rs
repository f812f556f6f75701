//! How does a word become tokens by merging, without maps of the whole vocabulary?
//!
//! The crate's [`BPE`] wants a map of all tokens, their texts once more, and one of all merges: of 262,144 tokens 75 MiB, which
//! take a third of a second. But a word's tokens are parts of it, and only merges that make such parts have a say. So the
//! crate's model is made for each word, of these alone: the tokens that are somewhere in it, and the merges that make
//! them. Their ranks keep their order, so that the same merges happen as with all of them.

mod json;
pub(super) mod pairs;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use hashbrown::HashSet;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::{Model, Result, Token};

use self::pairs::Pairs;
use super::sentencepiece::{self, Scores};
use super::texts::Texts;

/// Bytes of the longest token that is found in words. Published ones have up to 256, of 128 spaces. How long looking takes
/// grows with it.
pub(super) const LONGEST: usize = 1024;

/// How many words are remembered, and bytes of the longest.
const WORDS: usize = 10_000;
const LONGEST_WORD: usize = 64;

/// A vocabulary of byte pair encoding, by whose ids its texts are numbered. No token that a merge makes is longer than
/// [`LONGEST`].
pub(super) struct Bpe {
    pub(super) texts: Texts,
    merges: Merges,
    pub(super) options: Options,
    reach: Reach,
    beside: Beside,
    words: Words,
}

/// What the crate calls so, but for `whole_words`, which it calls `ignore_merges`.
#[derive(Default)]
pub(super) struct Options {
    pub(super) unk_token: Option<String>,
    pub(super) byte_fallback: bool,
    pub(super) fuse_unk: bool,
    /// Whether a word that is a token is that token, whatever merges make of it.
    pub(super) whole_words: bool,
}

/// Which tokens are made of which two.
pub(super) enum Merges {
    Ranked(Pairs),
    Scored(Scores),
}

impl Merges {
    /// Whether they may make this token.
    fn make(&self, id: u32, text: &str) -> bool {
        match self {
            Self::Ranked(pairs) => pairs.make(id),
            Self::Scored(_) => text.len() <= sentencepiece::LONGEST,
        }
    }

    /// The merges that make any of `tokens`, which are sorted, in order of rank.
    fn making<'a>(&self, texts: &'a Texts, tokens: &[u32]) -> Vec<(&'a str, &'a str)> {
        match self {
            Self::Ranked(pairs) => pairs.making(texts, tokens),
            Self::Scored(scores) => scores.making(texts, tokens),
        }
    }
}

impl Bpe {
    pub(super) fn new(texts: Texts, merges: Merges, options: Options) -> Self {
        Self {
            reach: Reach::of(&texts, &merges),
            beside: Beside::of(&texts),
            words: Words::default(),
            texts,
            merges,
            options,
        }
    }

    /// The tokens of a word, or of a text that is not cut into words.
    pub(super) fn tokenize(&self, text: &str) -> Result<Vec<Token>> {
        if self.options.whole_words
            && let Some(id) = self.texts.get(text).filter(|_| !text.is_empty())
        {
            return Ok(vec![Token::new(id, text.to_owned(), (0, text.len()))]);
        }
        let (mut tokens, mut from) = (Vec::new(), 0);
        for to in self.borders(text) {
            self.append(&text[from..to], &mut tokens)?;
            from = to;
        }
        Ok(tokens)
    }

    /// Where words end: between characters that are tokens, and that no token has beside each other.
    fn borders<'a>(&'a self, text: &'a str) -> impl Iterator<Item = usize> {
        let is_token = |char: char| self.texts.contains(char.encode_utf8(&mut [0; 4]));
        // A word that is a token as a whole is one only where it stands alone.
        let cut = if self.options.whole_words { "" } else { text };
        let pairs = cut.char_indices().zip(cut.char_indices().skip(1));
        let borders = pairs.filter_map(move |((_, left), (at, right))| {
            (!self.beside.may_be(left, right) && is_token(left) && is_token(right)).then_some(at)
        });
        borders.chain((!text.is_empty()).then_some(text.len()))
    }

    /// Appends the tokens of a word. Where characters became nothing, those behind them begin sooner, as the crate has it.
    fn append(&self, word: &str, tokens: &mut Vec<Token>) -> Result<()> {
        let start = tokens.last().map_or(0, |token| token.offsets.1);
        if let Some(known) = self.words.get(word) {
            let mut from = 0;
            tokens.extend(known.iter().map(|&(id, to)| {
                let (text, to) = (self.texts.text(id).unwrap_or_default(), to as usize);
                Token::new(id, text.to_owned(), (start + std::mem::replace(&mut from, to), start + to))
            }));
            return Ok(());
        }
        let found = self.model_of(word)?.tokenize(word)?;
        self.words.put(word, &found);
        tokens.extend(found.into_iter().map(|Token { id, value, offsets: (from, to) }| {
            Token::new(id, value, (start + from, start + to))
        }));
        Ok(())
    }

    /// The crate's model with the whole vocabulary.
    pub(super) fn whole(&self) -> Result<BPE> {
        let tokens: Vec<u32> = self.texts.iter().map(|(id, _)| id).collect();
        self.model(self.texts.vocab(), self.merges.making(&self.texts, &tokens))
    }

    /// The crate's model with what it needs for one word.
    fn model_of(&self, word: &str) -> Result<BPE> {
        let mut vocab = Vocab::new();
        let missing = self.put_characters(word, &mut vocab);
        let (spelt, borders) = if missing {
            // Bytes or unknown tokens stand for some characters: the crate knows which, and merges go on from there.
            let symbols = self.model(vocab.clone(), Vec::new())?.tokenize(word)?;
            let (mut spelt, mut borders) = (String::new(), vec![0]);
            for symbol in symbols {
                spelt.push_str(&symbol.value);
                borders.push(spelt.len());
            }
            (Cow::Owned(spelt), borders)
        } else {
            (Cow::Borrowed(word), word.char_indices().map(|(at, _)| at).chain([word.len()]).collect())
        };
        let tokens = self.parts(&spelt, &borders, missing);
        let merges = self.merges.making(&self.texts, &tokens);
        let parts = tokens.iter().filter_map(|&id| self.texts.text(id));
        // Where symbols have several characters, a token's halves may begin within one.
        let halves = merges.iter().flat_map(|&(left, right)| [left, right]);
        for text in parts.chain(halves) {
            self.put(text, &mut vocab);
        }
        self.model(vocab, merges)
    }

    fn model(&self, vocab: Vocab, merges: Vec<(&str, &str)>) -> Result<BPE> {
        let merges = merges.into_iter().map(|(left, right)| (left.to_owned(), right.to_owned()));
        let Options { unk_token, byte_fallback, fuse_unk, whole_words } = &self.options;
        let mut model = BPE::builder()
            .vocab_and_merges(vocab, merges.collect())
            .byte_fallback(*byte_fallback)
            .fuse_unk(*fuse_unk)
            .ignore_merges(*whole_words)
            // Words are remembered here.
            .cache_capacity(0);
        if let Some(text) = unk_token {
            model = model.unk_token(text.clone());
        }
        model.build()
    }

    /// Puts a word's characters into a vocabulary, and what may stand for those that are no tokens; whether there are such.
    fn put_characters(&self, word: &str, vocab: &mut Vocab) -> bool {
        let mut missing = false;
        for char in word.chars() {
            let mut bytes = [0; 4];
            let char = char.encode_utf8(&mut bytes);
            if !self.put(char, vocab) {
                missing = true;
                for byte in char.bytes() {
                    self.put(&format!("<0x{byte:02X}>"), vocab);
                }
            }
        }
        if let Some(text) = self.options.unk_token.as_ref().filter(|_| missing) {
            self.put(text, vocab);
        }
        missing
    }

    /// Puts a text into a vocabulary, if it is a token.
    fn put(&self, text: &str, vocab: &mut Vocab) -> bool {
        if vocab.contains_key(text) {
            return true;
        }
        let id = self.texts.get(text);
        id.is_some_and(|id| {
            vocab.insert(text.to_owned(), id);
            true
        })
    }

    /// The tokens that merges may make and that stand somewhere in `spelt`, from one of its borders to another, in order.
    /// Symbols of which some have `several` characters may spell alike and end elsewhere.
    fn parts(&self, spelt: &str, borders: &[usize], several: bool) -> Vec<u32> {
        let (mut found, mut before) = (HashSet::new(), "");
        for (at, &from) in borders.iter().enumerate() {
            let rest = &spelt[from..];
            let most = self.reach.from(rest);
            let ends = borders[at + 1..].iter().map(|to| to - from).take_while(|&end| end <= most);
            let seen = &rest[..ends.clone().last().unwrap_or(0)];
            // As in the midst of many spaces.
            if several || !before.starts_with(seen) {
                found.extend(self.texts.beginnings(rest, ends));
            }
            before = seen;
        }
        let mut found: Vec<u32> = found.into_iter().collect();
        found.sort_unstable();
        found
    }
}

/// How long a token can be that begins like a text. Tokens of fewer than [`Reach::BYTES`] bytes are not in it.
struct Reach {
    /// By a hash of the first bytes.
    bytes: Vec<u16>,
}

impl Reach {
    /// So many bytes tell beginnings apart.
    const BYTES: usize = 4;

    /// Of the tokens that merges make.
    fn of(texts: &Texts, merges: &Merges) -> Self {
        let mut reach = Self { bytes: vec![0; texts.len().next_power_of_two().max(2)] };
        for (_, text) in texts.iter().filter(|(id, text)| merges.make(*id, text)) {
            if let Some(slot) = reach.slot(text) {
                reach.bytes[slot] = reach.bytes[slot].max(text.len() as u16);
            }
        }
        reach
    }

    /// Bytes of the longest token that `text` may begin with.
    fn from(&self, text: &str) -> usize {
        self.slot(text).map_or(0, |slot| self.bytes[slot].into()).max(Self::BYTES - 1)
    }

    fn slot(&self, text: &str) -> Option<usize> {
        let first = text.as_bytes().first_chunk::<{ Self::BYTES }>()?;
        let mixed = u32::from_le_bytes(*first).wrapping_mul(0x9E37_79B1);
        Some((mixed >> (u32::BITS - self.bytes.len().trailing_zeros())) as usize)
    }
}

/// Which characters stand beside each other in some token, and by chance some others.
struct Beside {
    /// By a hash of both.
    bits: Vec<u64>,
}

impl Beside {
    fn of(texts: &Texts) -> Self {
        let mut beside = Self { bits: vec![0; (texts.len() / 8).next_power_of_two()] };
        for (_, text) in texts.iter() {
            for (left, right) in text.chars().zip(text.chars().skip(1)) {
                let (word, bit) = beside.place(left, right);
                beside.bits[word] |= bit;
            }
        }
        beside
    }

    fn may_be(&self, left: char, right: char) -> bool {
        let (word, bit) = self.place(left, right);
        self.bits[word] & bit != 0
    }

    fn place(&self, left: char, right: char) -> (usize, u64) {
        let both = u64::from(left) << 32 | u64::from(right);
        let mixed = both.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        ((mixed >> 6) as usize & (self.bits.len() - 1), 1 << (mixed % 64))
    }
}

/// What the last words became.
#[derive(Default)]
struct Words {
    known: RwLock<HashMap<Box<str>, Word>>,
}

/// Tokens, and where each ends.
type Word = Arc<[(u32, u32)]>;

impl Words {
    fn get(&self, word: &str) -> Option<Word> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(word).cloned()
    }

    fn put(&self, word: &str, tokens: &[Token]) {
        if word.len() <= LONGEST_WORD {
            let tokens = tokens.iter().map(|token| (token.id, token.offsets.1 as u32)).collect();
            let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
            if known.len() == WORDS {
                known.clear();
            }
            known.insert(word.into(), tokens);
        }
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{RngCore, SeedableRng};

    use super::*;

    /// Numbers below a bound, the same each time.
    struct Dice(ChaCha8Rng);

    impl Dice {
        fn below(&mut self, bound: usize) -> usize {
            self.0.next_u32() as usize % bound
        }

        /// A text of up to `most` of these.
        fn text(&mut self, of: &[&str], most: usize) -> String {
            (0..=self.below(most)).map(|_| of[self.below(of.len())]).collect()
        }
    }

    /// A vocabulary of what is drawn, the ranks or scores of its merges, too.
    fn drawn(dice: &mut Dice) -> Bpe {
        let mut tokens: Vec<String> = ["<unk>", "a", "b", "é"].map(str::to_owned).to_vec();
        let bytes = if dice.below(2) == 0 { 0x62..=0xff } else { 0xc0..=0xff };
        tokens.extend(bytes.map(|byte: u8| format!("<0x{byte:02X}>")));
        let symbols = ["a", "b", "é", "a", "b", "▁", "<0xC3>", "<0xA7>", "<unk>", "<"];
        for _ in 0..dice.below(60) {
            let token = dice.text(&symbols, 5);
            tokens.push(token);
        }
        let texts: Vec<&str> = tokens.iter().map(String::as_str).collect();
        let texts = Texts::of(&texts);
        let options = Options {
            unk_token: (dice.below(3) > 0).then(|| "<unk>".to_owned()),
            byte_fallback: dice.below(2) == 0,
            fuse_unk: dice.below(2) == 0,
            whole_words: dice.below(3) == 0,
        };
        let merges = if dice.below(2) == 0 {
            let mut merges = Pairs::of(&texts);
            for _ in 0..400 {
                let token = &tokens[dice.below(tokens.len())];
                let at = dice.below(token.len());
                if let Some((left, right)) = token.split_at_checked(at).filter(|_| at > 0) {
                    merges.push(&texts, left, right);
                }
            }
            Merges::Ranked(merges)
        } else {
            let scores = (0..tokens.len()).map(|_| dice.below(30) as f32).collect();
            Merges::Scored(Scores::of(scores, &texts).unwrap())
        };
        Bpe::new(texts, merges, options)
    }

    /// Words become what the crate makes of them with the whole vocabulary.
    #[test]
    fn what_a_word_needs_is_enough() {
        let mut dice = Dice(ChaCha8Rng::seed_from_u64(7));
        let (mut merged, mut unknown) = (0, 0);
        for _ in 0..300 {
            let bpe = drawn(&mut dice);
            let whole = bpe.whole().unwrap();
            for _ in 0..40 {
                let word = dice.text(&["a", "b", "é", "ab", "▁", "ç", "x", "<0xC3>", "<unk>", "aaaa"], 12);
                let (found, expected) =
                    (bpe.tokenize(&word).unwrap(), Model::tokenize(&whole, &word).unwrap());
                assert_eq!(found, expected, "{word:?}");
                // From memory.
                assert_eq!(bpe.tokenize(&word).unwrap(), expected, "{word:?}");
                merged += usize::from(expected.iter().any(|token| token.value.chars().count() > 1));
                unknown += usize::from(expected.iter().any(|token| token.value.starts_with('<')));
            }
        }
        assert!(merged > 1000 && unknown > 1000, "{merged} {unknown}");
    }

    #[test]
    fn words_end_where_no_token_goes_on() {
        let texts = Texts::of(&["a", "b", "▁", "\n", "ab", "▁a", "b>", "▁▁"]);
        let merges = Merges::Ranked(Pairs::of(&texts));
        let bpe = Bpe::new(texts, merges, Options::default());
        let words = |text: &'static str| {
            let mut from = 0;
            bpe.borders(text).map(|to| &text[std::mem::replace(&mut from, to)..to]).collect::<Vec<_>>()
        };
        // Of `>` no symbol has the text, whatever stands for it.
        assert_eq!(words("ab▁ab\nab>▁▁ab"), ["ab", "▁ab", "\n", "ab>▁▁ab"]);
        assert!(words("").is_empty());
        let whole = Options { whole_words: true, ..Options::default() };
        let bpe = Bpe { options: whole, ..bpe };
        assert_eq!(bpe.borders("ab▁ab").collect::<Vec<_>>(), [7]);
    }

    /// Long tokens are found wherever they begin, and others are not looked for.
    #[test]
    fn reach_is_that_of_tokens_that_begin_alike() {
        let long = "abcd".repeat(200);
        let texts = Texts::of(&["abc", &long, "efgh", "zzzz", "ef", "gh", &long[..400]]);
        let mut pairs = Pairs::of(&texts);
        for (left, right) in [("ef", "gh"), (&long[..400], &long[..400])] {
            assert_eq!(pairs.push(&texts, left, right), Some(true));
        }
        let reach = Reach::of(&texts, &Merges::Ranked(pairs));
        assert!(reach.from(&long) >= 800);
        assert_eq!(reach.from("abc"), 3);
        assert!(reach.from("efghij") >= 4);
        let scores = Merges::Scored(Scores::of(Vec::new(), &texts).unwrap());
        assert!(Reach::of(&texts, &scores).from(&long) < 800);
    }

    /// What looks at each position as far as the longest token would take minutes.
    #[test]
    fn runs_take_linear_time() {
        let mut tokens: Vec<String> = (1..=LONGEST).map(|len| "a".repeat(len)).collect();
        tokens.push("b".to_owned());
        let texts: Vec<&str> = tokens.iter().map(String::as_str).collect();
        let texts = Texts::of(&texts);
        let mut pairs = Pairs::of(&texts);
        for len in 2..=LONGEST {
            pairs.push(&texts, &tokens[len - 2], "a");
        }
        let bpe = Bpe::new(texts, Merges::Ranked(pairs), Options::default());
        let tokens = bpe.tokenize(&"a".repeat(300_000)).unwrap();
        assert_eq!(tokens.iter().map(|token| token.value.len()).sum::<usize>(), 300_000);
    }

    #[test]
    fn more_words_than_are_remembered() {
        let texts = Texts::of(&["a", "b", "ab"]);
        let mut pairs = Pairs::of(&texts);
        pairs.push(&texts, "a", "b");
        let bpe = Bpe::new(texts, Merges::Ranked(pairs), Options::default());
        for number in 0..WORDS + 2 {
            let word: String = (0..14).map(|bit| if number >> bit & 1 == 0 { "ab" } else { "b" }).collect();
            assert_eq!(bpe.tokenize(&word).unwrap().len(), 14);
        }
        assert_eq!(bpe.words.known.read().unwrap().len(), 2);
    }
}
