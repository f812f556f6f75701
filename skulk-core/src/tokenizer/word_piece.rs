//! What is a WordPiece vocabulary, as BERT has it?
//!
//! llama.cpp's files spell the first piece of a word with U+2581 and the others without `##`. Its rules differ from
//! BERT's own in details, and are followed: of what a character decomposes into only the first part stays, and words of
//! any length are cut.

use std::collections::HashSet;

use regex::Regex;
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::normalizers::BertNormalizer;
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::pre_tokenizers::metaspace::{Metaspace, PrependScheme};
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::{Model, NormalizedString};

use super::gguf::Built;
use super::parts::{Kind, Parts, invalid};
use super::pieces::Pieces;
use super::rules::Words;
use super::texts::Texts;
use super::vocabulary::Inner;
use crate::error::Result;

/// Longer tokens are not found. Real vocabularies stay far below.
const LONGEST: usize = 256;

/// How text becomes words, and words tokens.
#[derive(Debug)]
pub(super) struct Rules {
    lowercase: bool,
    strip_accents: bool,
    /// What is left out of a text.
    dropped: Regex,
    words: Regex,
    unknown: u32,
    /// Bytes of the longest token.
    longest: usize,
    /// Ids of tokens that no text becomes.
    control: HashSet<u32>,
}

pub(super) fn build(parts: &Parts) -> Result<Built> {
    const FIELD: &str = "tokenizer.ggml.tokens";
    let texts = Texts::of(&parts.tokens);
    let unknown = parts.id("tokenizer.ggml.unknown_token_id", parts.unknown.or(Some(100)))?;
    let (unknown, text) =
        unknown.and_then(|id| Some((id.0, *parts.tokens.get(id.0 as usize)?))).ok_or_else(|| {
            invalid("tokenizer.ggml.unknown_token_id", "expected an unknown token")
                .with_hint("some text could not be encoded: convert the model again")
        })?;
    let lowercase = parts.lowercase.unwrap_or(true);
    let strip_accents = parts.strip_accents.unwrap_or(lowercase);
    let broken = |e: tokenizers::Error| invalid(FIELD, "the vocabulary is inconsistent").with_source(e);
    let model = WordPiece::builder()
        .vocab(texts.vocab())
        .unk_token(text.to_owned())
        .continuing_subword_prefix(String::new());
    let mut inner = Inner::new(model.build().map_err(broken)?.into());
    // What other programs read comes close.
    inner
        .with_normalizer(Some(BertNormalizer::new(true, true, Some(strip_accents), lowercase)))
        .map_err(broken)?
        .with_pre_tokenizer(Some(Sequence::new(vec![
            BertPreTokenizer.into(),
            Metaspace::new('▁', PrependScheme::Always, false).into(),
        ])));
    inner.add_tokens(parts.added()).map_err(broken)?;
    let (dropped, words) = expressions(strip_accents).map_err(|e| broken(e.into()))?;
    let kinds = (0_u32..).zip(&parts.kinds);
    let rules = Rules {
        lowercase,
        strip_accents,
        dropped,
        words,
        unknown,
        longest: parts.tokens.iter().map(|token| token.len()).max().unwrap_or(0).min(LONGEST),
        control: kinds.filter(|(_, kind)| **kind == Kind::Control).map(|(id, _)| id).collect(),
    };
    Ok(Built {
        inner,
        words: Words::WordPiece(rules),
        pieces: Pieces::word_piece(),
        duplicates: texts.duplicates,
        add_bos: true,
    })
}

/// What is left out, and what a word is: a punctuation mark or an ideograph, or anything between them and spaces.
fn expressions(strip_accents: bool) -> std::result::Result<(Regex, Regex), regex::Error> {
    const ALONE: &str = r"\p{P}$+<=>^`|~\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}\x{2B740}-\x{2B81F}\x{2B920}-\x{2CEAF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}";
    let accents = if strip_accents { r"\p{M}" } else { "" };
    let dropped = Regex::new(&format!(r"[\x{{FFFD}}{accents}[\p{{C}}--\p{{Cn}}--\s]]+"))?;
    let words = Regex::new(&format!(r"[{ALONE}]|[^\s{ALONE}]+"))?;
    Ok((dropped, words))
}

impl Rules {
    /// Appends the tokens of `text`.
    pub(super) fn encode(&self, model: &impl Model, text: &str, ids: &mut Vec<u32>) {
        let text: String =
            if self.strip_accents { text.chars().map(base).collect() } else { text.to_owned() };
        let text = self.dropped.replace_all(&text, "");
        let mut spelt = String::new();
        for word in self.words.find_iter(&text) {
            spelt.clear();
            spelt.push('▁');
            if self.lowercase {
                spelt.extend(word.as_str().chars().filter_map(|char| char.to_lowercase().next()));
            } else {
                spelt.push_str(word.as_str());
            }
            let first = ids.len();
            if !self.pieces(model, &spelt, ids) {
                ids.truncate(first);
                ids.push(self.unknown);
            }
        }
    }

    /// Appends the tokens of a word, each the longest that goes on; whether there were any all through.
    fn pieces(&self, model: &impl Model, word: &str, ids: &mut Vec<u32>) -> bool {
        let mut rest = word;
        while !rest.is_empty() {
            let ends = (1..=rest.len().min(self.longest)).rev().filter(|&end| rest.is_char_boundary(end));
            let mut tokens = ends.filter_map(|end| Some((end, model.token_to_id(&rest[..end])?)));
            let Some((end, id)) = tokens.find(|(_, id)| !self.control.contains(id)) else {
                return false;
            };
            ids.push(id);
            rest = &rest[end..];
        }
        true
    }
}

/// The first part of what a character decomposes into.
fn base(char: char) -> char {
    if char.is_ascii() {
        return char;
    }
    let mut decomposed = NormalizedString::from(char.encode_utf8(&mut [0; 4]) as &str);
    decomposed.nfd();
    decomposed.get().chars().next().unwrap_or(char)
}

#[cfg(test)]
mod tests {
    use super::super::gguf;
    use super::*;
    use crate::ids::TokenId;

    fn parts() -> Parts<'static> {
        Parts {
            model: "bert",
            tokens: vec![
                "[UNK]", "[CLS]", "[SEP]", "▁un", "aff", "able", "▁,", "▁漢", "▁e", "▁[", "▁CLS", "▁]",
            ],
            kinds: [3, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1].map(|kind| Kind::from(i64::from(kind))).to_vec(),
            unknown: Some(0),
            cls: Some(1),
            separator: Some(2),
            ..Parts::default()
        }
    }

    fn numbers(ids: &[TokenId]) -> Vec<u32> {
        ids.iter().map(|id| id.0).collect()
    }

    #[test]
    fn words_become_their_longest_pieces() {
        let tokenizer = gguf::build(&parts()).unwrap();
        let ids = tokenizer.encode("Un\u{200b}affable,漢É  nothing[CLS]", true).unwrap();
        assert_eq!(numbers(&ids), [1, 3, 4, 5, 6, 7, 8, 0, 1, 2]);
        assert_eq!(tokenizer.decode(&ids, true), "unaffable, 漢 e");
        let cased = Parts { lowercase: Some(false), ..parts() };
        let tokenizer = gguf::build(&cased).unwrap();
        assert_eq!(numbers(&tokenizer.encode_text("[CLS] un Un é").unwrap()), [9, 10, 11, 3, 0, 0]);
    }

    #[test]
    fn no_word_is_too_long() {
        let tokenizer = gguf::build(&parts()).unwrap();
        let word = format!("un{}", "able".repeat(50_000));
        assert_eq!(tokenizer.encode(&word, false).unwrap().len(), 50_001);
        assert_eq!(numbers(&tokenizer.encode(&"x".repeat(200_000), false).unwrap()), [0]);
    }

    #[test]
    fn roles_without_tokens_are_refused() {
        for (field, parts) in [
            ("unknown_token_id", Parts { unknown: None, ..parts() }),
            ("cls_token_id", Parts { cls: Some(99), ..parts() }),
            ("seperator_token_id", Parts { separator: Some(99), ..parts() }),
        ] {
            let error = gguf::build(&parts).err().unwrap();
            assert_eq!(error.context()[0].1, format!("tokenizer.ggml.{field}"));
            assert!(error.hint().is_some());
        }
    }
}
