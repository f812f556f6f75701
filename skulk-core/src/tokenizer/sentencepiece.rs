//! Which merges does a SentencePiece vocabulary with scores stand for?
//!
//! llama.cpp encodes such a vocabulary (`tokenizer.ggml.model = "llama"`) by joining, again and
//! again, the two neighbouring pieces whose concatenation is the token of highest score, the
//! leftmost of equals. The `tokenizers` crate wants a ranked list of merges instead. Any pair of
//! tokens that concatenate to a token is a candidate, but only one pair per token can ever occur:
//! joins inside a stretch of text happen in the same order whatever surrounds it, so a token
//! arises in any text exactly as it does in a text of its own. Encoding each token on its own
//! therefore yields the complete list, with less than half of the candidates.

use std::thread;

use tokenizers::models::bpe::{BPE, Merges, Vocab};
use tokenizers::normalizers::{Prepend, Replace, Sequence};
use tokenizers::{NormalizerWrapper, Tokenizer};

use super::gguf::{Built, Parts, invalid};
use super::pieces::Pieces;
use crate::error::Result;

/// Longer tokens get no merge. Real vocabularies stay far below (Gemma 3: 48 bytes), and encoding
/// a token on its own takes quadratic time.
const LONGEST: usize = 512;

pub(super) fn build(parts: &Parts) -> Result<Built> {
    let (vocab, duplicates) = parts.vocab();
    let merges = merges(parts, &vocab);
    let space_prefix = parts.add_space_prefix.unwrap_or(true);
    let bytes = (0..=u8::MAX).all(|byte| vocab.contains_key(&format!("<0x{byte:02X}>")));
    let unknown = usize::try_from(parts.unknown.unwrap_or(0)).ok();
    let unknown = unknown.and_then(|id| parts.tokens.get(id));
    if unknown.is_none() && !bytes {
        return Err(invalid(
            "tokenizer.ggml.unknown_token_id",
            "expected the 256 byte tokens <0x00> to <0xFF> or an unknown token",
        )
        .with_hint("some text could not be encoded: convert the model again"));
    }
    let mut bpe = BPE::builder()
        .vocab_and_merges(vocab, merges)
        .byte_fallback(true)
        .fuse_unk(true)
        // Texts are not split into words, so they hardly ever repeat.
        .cache_capacity(0);
    if let Some(unknown) = unknown {
        bpe = bpe.unk_token((*unknown).to_owned());
    }
    let broken = |e| invalid("tokenizer.ggml.tokens", "the vocabulary is inconsistent").with_source(e);
    let mut inner = Tokenizer::new(bpe.build().map_err(broken)?);
    let mut normalizers: Vec<NormalizerWrapper> = Vec::new();
    if space_prefix {
        normalizers.push(Prepend::new("▁".to_owned()).into());
    }
    normalizers.push(Replace::new(" ", "▁").map_err(broken)?.into());
    inner.with_normalizer(Some(Sequence::new(normalizers))).map_err(broken)?;
    inner.add_tokens(parts.added()).map_err(broken)?;
    Ok(Built { inner, pieces: Pieces::sentencepiece(space_prefix), duplicates, add_bos: true })
}

/// The last join of each token that joins can produce, in order of score, then id.
fn merges(parts: &Parts, vocab: &Vocab) -> Merges {
    let splits = splits(parts, vocab);
    let score = |id: usize| parts.scores.get(id).copied().unwrap_or(0.0);
    let mut order: Vec<u32> =
        (0_u32..).zip(&splits).filter_map(|(id, &split)| (split > 0).then_some(id)).collect();
    order.sort_by(|&a, &b| score(b as usize).total_cmp(&score(a as usize)));
    order
        .into_iter()
        .map(|id| {
            let (left, right) = parts.tokens[id as usize].split_at(splits[id as usize] as usize);
            (left.to_owned(), right.to_owned())
        })
        .collect()
}

/// For each token, the length of the left side of its last join; 0 when joins do not produce it.
fn splits(parts: &Parts, vocab: &Vocab) -> Vec<u16> {
    let mut splits = vec![0; parts.tokens.len()];
    let threads = thread::available_parallelism().map_or(1, |n| n.get().min(4));
    let chunk = parts.tokens.len().div_ceil(threads).max(1);
    thread::scope(|scope| {
        for (tokens, splits) in parts.tokens.chunks(chunk).zip(splits.chunks_mut(chunk)) {
            scope.spawn(move || {
                let mut joins = Joins::default();
                for (token, split) in tokens.iter().zip(splits) {
                    let last = joins.last_of(token, |text| {
                        let id = *vocab.get(text)?;
                        Some(parts.scores.get(id as usize).copied().unwrap_or(0.0))
                    });
                    // llama.cpp also joins characters that are no tokens themselves. Those reach
                    // the merges as bytes here; no SentencePiece model has such a token.
                    *split = last
                        .filter(|&at| vocab.contains_key(&token[..at]))
                        .filter(|&at| vocab.contains_key(&token[at..]))
                        .and_then(|at| u16::try_from(at).ok())
                        .unwrap_or(0);
                }
            });
        }
    });
    splits
}

/// The pieces of a token while they are joined; kept to reuse its memory.
#[derive(Default)]
struct Joins {
    /// Where pieces begin, and the end.
    borders: Vec<usize>,
    /// The score of joining each piece with the next.
    scores: Vec<Option<f32>>,
}

impl Joins {
    /// The border of the last join when `token`, a token itself, is encoded on its own.
    fn last_of(&mut self, token: &str, score: impl Fn(&str) -> Option<f32>) -> Option<usize> {
        if token.len() > LONGEST {
            return None;
        }
        self.borders.clear();
        self.borders.extend(token.char_indices().map(|(at, _)| at));
        self.borders.push(token.len());
        self.scores.clear();
        if self.borders.len() > 3 {
            let pairs = self.borders.windows(3);
            self.scores.extend(pairs.map(|pair| score(&token[pair[0]..pair[2]])));
        }
        while self.borders.len() > 3 {
            let mut best: Option<(usize, f32)> = None;
            for (at, score) in self.scores.iter().enumerate() {
                if let Some(score) = *score
                    && best.is_none_or(|(_, highest)| score > highest)
                {
                    best = Some((at, score));
                }
            }
            let (at, _) = best?;
            self.borders.remove(at + 1);
            self.scores.remove(at);
            if self.borders.len() > 3 {
                let pairs = self.borders.windows(3).enumerate();
                for (pair, borders) in pairs.skip(at.saturating_sub(1)).take(1 + at.min(1)) {
                    self.scores[pair] = score(&token[borders[0]..borders[2]]);
                }
            }
        }
        (self.borders.len() == 3).then(|| self.borders[1])
    }
}
