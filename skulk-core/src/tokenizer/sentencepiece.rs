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

use super::gguf::Built;
use super::parts::{Parts, invalid};
use super::pieces::Pieces;
use crate::error::{Error, ErrorKind, Result};

/// Longer tokens get no merge. Real vocabularies stay far below (Gemma 3: 48 bytes), and encoding
/// a token on its own takes quadratic time.
const LONGEST: usize = 512;

pub(super) fn build(parts: &Parts) -> Result<Built> {
    let (vocab, duplicates) = parts.vocab();
    let merges = merges(parts, &vocab)?;
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
fn merges(parts: &Parts, vocab: &Vocab) -> Result<Merges> {
    let splits = splits(parts, vocab)?;
    let score = |id: usize| parts.scores.get(id).copied().unwrap_or(0.0);
    let mut order: Vec<u32> =
        (0_u32..).zip(&splits).filter_map(|(id, &split)| (split > 0).then_some(id)).collect();
    order.sort_by(|&a, &b| score(b as usize).total_cmp(&score(a as usize)));
    let pairs = order.into_iter().map(|id| {
        let (left, right) = parts.tokens[id as usize].split_at(splits[id as usize] as usize);
        (left.to_owned(), right.to_owned())
    });
    Ok(pairs.collect())
}

/// For each token, the length of the left side of its last join; 0 when joins do not produce it.
fn splits(parts: &Parts, vocab: &Vocab) -> Result<Vec<u16>> {
    let mut splits = vec![0; parts.tokens.len()];
    let threads = thread::available_parallelism().map_or(1, |n| n.get().min(4));
    let chunk = parts.tokens.len().div_ceil(threads).max(1);
    let score = |text: &str| {
        let id = *vocab.get(text)?;
        Some(parts.scores.get(id as usize).copied().unwrap_or(0.0))
    };
    thread::scope(|scope| {
        for (tokens, splits) in parts.tokens.chunks(chunk).zip(splits.chunks_mut(chunk)) {
            let work = move || {
                let mut joins = Joins::default();
                for (token, split) in tokens.iter().zip(splits) {
                    // llama.cpp also joins characters that are no tokens themselves. Here they
                    // are bytes by then; no SentencePiece model has such a token.
                    *split = joins
                        .last_of(token, score)
                        .filter(|&at| vocab.contains_key(&token[..at]))
                        .filter(|&at| vocab.contains_key(&token[at..]))
                        .and_then(|at| u16::try_from(at).ok())
                        .unwrap_or(0);
                }
            };
            thread::Builder::new().spawn_scoped(scope, work)?;
        }
        Ok(())
    })
    .map_err(|e: std::io::Error| {
        Error::new(ErrorKind::OutOfMemory, "cannot start a thread to load the tokenizer")
            .with_source(e)
            .with_hint("raise the limit on threads or free memory")
    })?;
    Ok(splits)
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

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::gguf;
    use super::*;

    /// llama.cpp's definition, word for word: join the best pair until there is none.
    fn by_definition(tokens: &[&str], scores: &[f32], text: &str) -> Vec<String> {
        let mut pieces: Vec<String> = text.chars().map(String::from).collect();
        loop {
            let joins = (1..pieces.len()).filter_map(|right| {
                let joined = format!("{}{}", pieces[right - 1], pieces[right]);
                let id = tokens.iter().position(|token| *token == joined)?;
                Some((right, joined, scores[id]))
            });
            let best = joins.reduce(|best, join| if join.2 > best.2 { join } else { best });
            let Some((right, joined, _)) = best else {
                return pieces;
            };
            pieces[right - 1] = joined;
            pieces.remove(right);
        }
    }

    #[test]
    fn merges_reproduce_the_definition() {
        let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/models/stories260K");
        let text = std::fs::read_to_string(format!("{fixture}/tokenizer.json")).unwrap();
        let json: Value = serde_json::from_str(&text).unwrap();
        let vocab = json["model"]["vocab"].as_object().unwrap();
        let mut tokens = vec![""; vocab.len()];
        for (token, id) in vocab {
            tokens[id.as_u64().unwrap() as usize] = token;
        }
        let reference = std::fs::read_to_string(format!("{fixture}/reference.json")).unwrap();
        let reference: Value = serde_json::from_str(&reference).unwrap();
        let mut texts: Vec<String> = reference["prompts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|prompt| prompt["text"].as_str().unwrap().to_owned())
            .collect();
        // Every token and every pair of neighbours, out of context.
        texts.extend(tokens[259..].windows(2).map(|pair| pair.concat()));
        // Scores as trained, and shuffled so that long tokens come before their parts.
        for shuffle in [1, 5, 77, 311] {
            let scores: Vec<f32> = (0..tokens.len()).map(|id| -((id * shuffle % 512) as f32)).collect();
            let tokenizer = gguf::build(&Parts {
                model: "llama",
                tokens: tokens.clone(),
                scores: scores.clone(),
                ..Parts::default()
            });
            let tokenizer = tokenizer.unwrap();
            for text in &texts {
                let escaped = format!("▁{}", text.replace(' ', "▁"));
                let ids = tokenizer.encode(text, false).unwrap();
                let found: Vec<_> = ids.iter().map(|&id| tokenizer.token_text(id).unwrap()).collect();
                assert_eq!(found, by_definition(&tokens, &scores, &escaped), "{text:?}");
            }
        }
    }
}
