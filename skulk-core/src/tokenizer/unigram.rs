//! What is a Unigram vocabulary, as T5 and XLM-RoBERTa have it?

use tokenizers::NormalizerWrapper;
use tokenizers::models::unigram::Unigram;
use tokenizers::normalizers::replace::ReplacePattern;
use tokenizers::normalizers::{Precompiled, Replace, Sequence};
use tokenizers::pre_tokenizers::metaspace::{Metaspace, PrependScheme};

use super::charsmap::{self, Charsmap};
use super::gguf::Built;
use super::parts::{Kind, Parts, invalid};
use super::pieces::Pieces;
use super::rules::Words;
use super::texts::Texts;
use super::vocabulary::Inner;
use super::{caught, growth};
use crate::error::Result;

/// What happens to text before it is cut.
#[derive(Debug)]
pub(super) struct Normalizer {
    charsmap: Option<Charsmap>,
    /// What the vocabulary adds is left as it is. In alphabetical order.
    added: Vec<String>,
    space_prefix: bool,
    merge_spaces: bool,
    /// Several in a row become one.
    pub(super) unknown: Option<u32>,
}

pub(super) fn build(parts: &Parts) -> Result<Built> {
    const FIELD: &str = "tokenizer.ggml.tokens";
    let broken = |e: tokenizers::Error| invalid(FIELD, "the vocabulary is inconsistent").with_source(e);
    let unknown = parts.id("tokenizer.ggml.unknown_token_id", parts.unknown.or(Some(2)))?;
    let duplicates = Texts::of(&parts.tokens).duplicates;
    if let Some(id) = duplicates.keys().min() {
        return Err(invalid(FIELD, "expected tokens of different texts")
            .with("index", id)
            .with_hint("the file's metadata is damaged: fetch it again"));
    }
    let mut model =
        Unigram::from(vocabulary(parts), unknown.map(|id| id.0 as usize), false).map_err(broken)?;
    model.min_score = least(parts);
    let mut inner = Inner::new(model.into());
    let space_prefix = parts.add_space_prefix.unwrap_or(false);
    let merge_spaces = parts.remove_extra_whitespaces.unwrap_or(false);
    // What other programs read comes close.
    let mut normalizers: Vec<NormalizerWrapper> = Vec::new();
    let charsmap = parts.charsmap.as_deref().map(Charsmap::read).transpose()?;
    let lengthened = charsmap.as_ref().map_or(1.0, Charsmap::growth);
    growth::within("tokenizer.ggml.precompiled_charsmap", lengthened)?;
    if let Some(bytes) = &parts.charsmap {
        let map = caught(|| Ok(Precompiled::from(bytes)?));
        normalizers.push(map.map_err(|e| charsmap::broken().with_source(e))?.into());
    }
    if merge_spaces {
        let runs = Replace::new(ReplacePattern::Regex(" {2,}".to_owned()), " ");
        normalizers.push(runs.map_err(broken)?.into());
    }
    inner.with_normalizer(Some(Sequence::new(normalizers))).map_err(broken)?;
    let scheme = if space_prefix || merge_spaces { PrependScheme::Always } else { PrependScheme::Never };
    inner.with_pre_tokenizer(Some(Metaspace::new('▁', scheme, false)));
    inner.add_tokens(parts.added()).map_err(broken)?;
    let kinds = parts.tokens.iter().zip(&parts.kinds);
    let added = kinds.filter(|(text, kind)| **kind == Kind::UserDefined && !text.is_empty());
    let mut added: Vec<_> = added.map(|(text, _)| (*text).to_owned()).collect();
    added.sort_unstable();
    let normalizer =
        Normalizer { charsmap, added, space_prefix, merge_spaces, unknown: unknown.map(|id| id.0) };
    Ok(Built {
        inner,
        words: Words::Unigram(normalizer),
        pieces: Pieces::sentencepiece(space_prefix || merge_spaces),
        duplicates,
        add_bos: false,
    })
}

/// The tokens with their scores. What no text may become scores less than any way to cut its text.
fn vocabulary(parts: &Parts) -> Vec<(String, f64)> {
    let unknown = (least(parts) - PENALTY).abs() + 1.0;
    let tokens = parts.tokens.iter().enumerate();
    let scored = tokens.map(|(id, &text)| {
        // As llama.cpp names them.
        let text = if text.is_empty() { format!("[EMPTY_{id}]") } else { text.to_owned() };
        let score = match parts.kinds.get(id).unwrap_or(&Kind::Other) {
            Kind::Other | Kind::Unused => parts.scores.get(id).map_or(0.0, |&score| score.into()),
            Kind::UserDefined => 0.0,
            Kind::Unknown | Kind::Control | Kind::Byte => -unknown * (text.chars().count() + 1) as f64,
        };
        (text, score)
    });
    scored.collect()
}

/// How much less than any other token an unknown character scores, as in the `tokenizers` crate.
const PENALTY: f64 = 10.0;

/// The least score of an ordinary token.
fn least(parts: &Parts) -> f64 {
    let scores = parts.scores.iter().enumerate();
    let ordinary = scores.filter(|(id, _)| *parts.kinds.get(*id).unwrap_or(&Kind::Other) == Kind::Other);
    let least = ordinary.map(|(_, &score)| f64::from(score)).fold(f64::INFINITY, f64::min);
    if least.is_finite() { least } else { 0.0 }
}

impl Normalizer {
    /// `text` with U+2581 for spaces, and one in front where words begin with it.
    pub(super) fn normalize(&self, text: &str) -> tokenizers::Result<String> {
        let mut out = String::with_capacity(text.len() + text.len() / 4 + 3);
        let (mut rest, mut in_word, mut begun) = (text, false, false);
        while let Some(first) = rest.chars().next() {
            let (piece, len) = match self.added_prefix(rest) {
                0 => match self.charsmap.as_ref().map(|map| map.longest(rest)).transpose()?.flatten() {
                    Some(replaced) => replaced,
                    None => (&rest[..first.len_utf8()], first.len_utf8()),
                },
                len => (&rest[..len], len),
            };
            for char in piece.chars() {
                if char != ' ' {
                    if !in_word && (self.merge_spaces || self.space_prefix && !begun) {
                        out.push('▁');
                        begun = true;
                    }
                    in_word = true;
                    out.push(char);
                } else {
                    in_word = false;
                    if !self.merge_spaces {
                        out.push('▁');
                    }
                }
            }
            rest = &rest[len..];
        }
        Ok(out)
    }

    /// How many bytes `text` begins alike with a token that the vocabulary adds. llama.cpp leaves beginnings of such
    /// tokens as they are, too.
    fn added_prefix(&self, text: &str) -> usize {
        let at = self.added.partition_point(|token| token.as_str() < text);
        let neighbours =
            self.added.get(at).into_iter().chain(at.checked_sub(1).and_then(|at| self.added.get(at)));
        let alike = |token: &String| {
            let same = token.chars().zip(text.chars()).take_while(|(a, b)| a == b);
            same.map(|(char, _)| char.len_utf8()).sum()
        };
        neighbours.map(alike).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::gguf;
    use super::*;
    use crate::ids::TokenId;

    fn parts() -> Parts<'static> {
        Parts {
            model: "t5",
            tokens: vec!["<pad>", "</s>", "<unk>", "▁", "a", "b", "▁a", "ab", "<x>", "<y>", "<0x41>", "▁ab"],
            scores: vec![0.0, 0.0, 0.0, -2.0, -3.0, -3.0, -2.5, -4.0, -9.0, 0.0, 0.0, -9.5],
            kinds: [3, 3, 2, 1, 1, 1, 1, 1, 4, 3, 6, 5].map(|kind| Kind::from(i64::from(kind))).to_vec(),
            eos: Some(1),
            unknown: Some(2),
            add_space_prefix: Some(true),
            ..Parts::default()
        }
    }

    #[test]
    fn the_best_way_to_cut_wins() {
        let tokenizer = gguf::build(&parts()).unwrap();
        let texts = |text: &str| {
            let ids = tokenizer.encode(text, false).unwrap();
            ids.iter().map(|&id| tokenizer.token_text(id).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(texts("ab"), ["▁a", "b"]);
        assert_eq!(texts("bab"), ["▁", "b", "ab"]);
        // Unknown characters in a row are one token, byte tokens are never found, added ones before all.
        assert_eq!(texts("aéA<y>b<x> "), ["▁a", "<unk>", "<y>", "▁", "b", "<x>", "▁"]);
        assert_eq!(tokenizer.encode("a", true).unwrap(), [TokenId(6), TokenId(1)]);
        let plain = tokenizer.encode_text("<y>").unwrap();
        assert_eq!(plain.iter().map(|id| id.0).collect::<Vec<_>>(), [3, 2]);
        let ids = tokenizer.encode("ab a", false).unwrap();
        assert_eq!(tokenizer.decode(&ids, true), "ab a");
    }

    #[test]
    fn damaged_vocabularies_are_refused() {
        let refuses = |parts: Parts, field: &str| {
            let error = gguf::build(&parts).err().unwrap();
            assert_eq!(error.context()[0].1, format!("tokenizer.ggml.{field}"), "{error}");
            assert!(error.hint().is_some());
        };
        refuses(Parts { unknown: Some(77), ..parts() }, "unknown_token_id");
        for charsmap in [vec![], vec![1, 0, 0], vec![200, 0, 0, 0, 1], vec![4, 0, 0, 0, 0, 0, 0, 0, b'x']] {
            refuses(Parts { charsmap: Some(charsmap), ..parts() }, "precompiled_charsmap");
        }
        for (text, fits) in [("b".repeat(1024), true), ("b".repeat(1025), false)] {
            let map = charsmap::tests::map('a', &text);
            let parts = || Parts { charsmap: Some(map.clone()), ..parts() };
            match fits {
                true => assert!(gguf::build(&parts()).is_ok()),
                false => refuses(parts(), "precompiled_charsmap"),
            }
        }
        let mut equal = parts();
        equal.tokens[5] = "a";
        refuses(equal, "tokens");
        let nan = Parts { scores: vec![f32::NAN; 12], ..parts() };
        assert!(gguf::build(&nan).unwrap().encode("ab <x>é", true).is_ok());
    }

    /// What is quadratic would not come to an end.
    #[test]
    fn long_runs_take_linear_time() {
        let tokenizer = gguf::build(&parts()).unwrap();
        for text in ["a", " ", "é", "ab", "<"] {
            tokenizer.encode(&text.repeat(300_000 / text.len()), false).unwrap();
        }
    }
}
