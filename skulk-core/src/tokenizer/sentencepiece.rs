//! Which merges does a SentencePiece vocabulary with scores stand for?
//!
//! llama.cpp encodes such a vocabulary (`tokenizer.ggml.model = "llama"`) by joining, again and
//! again, the two neighbouring pieces whose concatenation is the token of highest score, the
//! leftmost of equals. The `tokenizers` crate wants a ranked list of merges instead. What becomes one
//! token is joined as it would be alone, since nothing crosses its borders before: so the last join
//! of each token alone is its merge, ranked by the token's score.
//!
//! Ranks cannot say "leftmost" of different tokens with equal scores, which vocabularies have for
//! runs of spaces. These get every pair of tokens whose concatenation they are. Among them, the pair
//! with the longer left side comes first: what was joined last then goes on to grow, and since that
//! is the leftmost run, the result is the same.

use std::sync::atomic::AtomicU16;
use std::sync::atomic::Ordering::Relaxed;

use tokenizers::NormalizerWrapper;
use tokenizers::normalizers::{Prepend, Replace, Sequence};

use super::bpe::{Bpe, Merges, Options};
use super::gguf::Built;
use super::parts::{Parts, invalid};
use super::pieces::Pieces;
use super::rules::Words;
use super::texts::Texts;
use super::vocabulary::{Inner, Vocabulary};
use crate::error::Result;

/// Longer tokens get no merge. Real vocabularies stay far below (Llama 2: 48 bytes), and joining a token takes quadratic
/// time.
pub(super) const LONGEST: usize = 256;
/// Ways to make tokens whose score others have, too, each of which may have a say in every text. Vocabularies of 262,144
/// tokens without scores stay below.
const MOST_WAYS: usize = 2 << 20;

pub(super) fn build(parts: &Parts) -> Result<Built> {
    let texts = Texts::of(&parts.tokens);
    let space_prefix = parts.add_space_prefix.unwrap_or(true);
    let bytes = (0..=u8::MAX).all(|byte| texts.contains(&format!("<0x{byte:02X}>")));
    let unknown = usize::try_from(parts.unknown.unwrap_or(0)).ok();
    let unknown = unknown.and_then(|id| parts.tokens.get(id));
    if unknown.is_none() && !bytes {
        return Err(invalid(
            "tokenizer.ggml.unknown_token_id",
            "expected the 256 byte tokens <0x00> to <0xFF> or an unknown token",
        )
        .with_hint("some text could not be encoded: convert the model again"));
    }
    let options = Options {
        unk_token: unknown.map(|text| (*text).to_owned()),
        byte_fallback: true,
        fuse_unk: true,
        whole_words: false,
    };
    let duplicates = texts.duplicates.clone();
    let merges = Merges::Scored(Scores::of(parts.scores.clone(), &texts)?);
    let broken = |e| invalid("tokenizer.ggml.tokens", "the vocabulary is inconsistent").with_source(e);
    let mut inner = Inner::new(Vocabulary::Bpe(Bpe::new(texts, merges, options)));
    let mut normalizers: Vec<NormalizerWrapper> = Vec::new();
    if space_prefix {
        normalizers.push(Prepend::new("▁".to_owned()).into());
    }
    normalizers.push(Replace::new(" ", "▁").map_err(broken)?.into());
    inner.with_normalizer(Some(Sequence::new(normalizers))).map_err(broken)?;
    inner.add_tokens(parts.added()).map_err(broken)?;
    let words = Words::SentencePiece { space_prefix };
    Ok(Built { inner, words, pieces: Pieces::sentencepiece(space_prefix), duplicates, add_bos: true })
}

/// What merges stand for: tokens' scores, one for each or none at all.
pub(super) struct Scores {
    scores: Vec<f32>,
    /// Those that several tokens have which a merge may make, as bits and sorted.
    shared: Vec<u32>,
    /// By token whose score no other has, where its last join is, once that was looked for.
    last: Vec<AtomicU16>,
}

/// No join.
const NONE: u16 = u16::MAX;

impl Scores {
    pub(super) fn of(scores: Vec<f32>, texts: &Texts) -> Result<Self> {
        let last = (0..texts.count()).map(|_| AtomicU16::new(0)).collect();
        let mut found = Self { scores, shared: Vec::new(), last };
        let mergeable = || texts.iter().filter(|(_, text)| text.len() <= LONGEST);
        let mut all: Vec<u32> = mergeable().map(|(id, _)| found.score(id).to_bits()).collect();
        all.sort_unstable();
        let shared = all.chunk_by(|a, b| a == b).filter(|equals| equals.len() > 1);
        found.shared = shared.map(|equals| equals[0]).collect();
        let shared = mergeable().filter(|(id, _)| found.is_shared(found.score(*id)));
        let ways = shared.map(|(_, text)| text.chars().count().saturating_sub(1)).sum::<usize>();
        if ways > MOST_WAYS {
            return Err(invalid("tokenizer.ggml.scores", "too many tokens have the same score as others")
                .with("found", format!("{ways} ways to make such tokens of two parts"))
                .with("expected", format!("at most {MOST_WAYS}"))
                .with_hint("the file's metadata is damaged: fetch it again, or convert the model again"));
        }
        Ok(found)
    }

    fn is_shared(&self, score: f32) -> bool {
        self.shared.binary_search(&score.to_bits()).is_ok()
    }

    fn score(&self, id: u32) -> f32 {
        self.scores.get(id as usize).copied().unwrap_or(0.0)
    }

    /// The merges that make any of `tokens`, which are sorted, in order of rank.
    pub(super) fn making<'a>(&self, texts: &'a Texts, tokens: &[u32]) -> Vec<(&'a str, &'a str)> {
        let texts_of = tokens.iter().filter_map(|&id| Some((self.score(id), id, texts.text(id)?)));
        let mut ranked: Vec<(f32, u32, &str)> = texts_of.filter(|(.., text)| text.len() <= LONGEST).collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
        let is_token = |text: &str| texts.contains(text);
        let mut joins = Joins::default();
        let mut merges: Vec<(&str, &str)> = Vec::with_capacity(ranked.len());
        for equals in ranked.chunk_by(|a, b| a.0.total_cmp(&b.0).is_eq()) {
            if !self.is_shared(equals[0].0) {
                // It is one.
                merges.extend(
                    equals.iter().filter_map(|&(_, id, token)| self.last(id, token, texts, &mut joins)),
                );
                continue;
            }
            let first = merges.len();
            for (.., token) in equals {
                let splits = token.char_indices().skip(1).map(|(at, _)| token.split_at(at));
                merges.extend(splits.filter(|(left, right)| is_token(left) && is_token(right)));
            }
            let longer = |a: &str, b: &str| b.len().cmp(&a.len());
            merges[first..].sort_by(|a, b| longer(a.0, b.0).then(longer(a.1, b.1)));
        }
        merges
    }

    /// The two tokens of a token's last join.
    fn last<'a>(
        &self,
        id: u32,
        token: &'a str,
        texts: &Texts,
        joins: &mut Joins,
    ) -> Option<(&'a str, &'a str)> {
        let place = &self.last[id as usize];
        let at = match place.load(Relaxed) {
            0 => {
                let last = joins.last_of(token, |text| texts.get(text).map(|id| self.score(id)));
                // llama.cpp also joins characters that are no tokens. Here these are bytes by then.
                let is_known = |piece: &str| piece.chars().nth(1).is_some() || texts.contains(piece);
                let known = last.filter(|(left, right)| is_known(left) && is_known(right));
                // No longer than LONGEST.
                let at = known.map_or(NONE, |(left, _)| left.len() as u16);
                place.store(at, Relaxed);
                at
            }
            at => at,
        };
        (at != NONE).then(|| token.split_at(at.into()))
    }
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
    /// The two pieces that are left of `token` before its last join.
    fn last_of<'a>(
        &mut self,
        token: &'a str,
        score: impl Fn(&str) -> Option<f32>,
    ) -> Option<(&'a str, &'a str)> {
        self.borders.clear();
        self.borders.extend(token.char_indices().map(|(at, _)| at).chain([token.len()]));
        self.scores.clear();
        if self.borders.len() > 3 {
            self.scores.extend(self.borders.windows(3).map(|pair| score(&token[pair[0]..pair[2]])));
        }
        while self.borders.len() > 3 {
            let joins = self.scores.iter().enumerate().filter_map(|(at, score)| Some((at, (*score)?)));
            let (at, _) = joins.reduce(|best, join| if join.1 > best.1 { join } else { best })?;
            self.borders.remove(at + 1);
            self.scores.remove(at);
            if self.borders.len() > 3 {
                for pair in at.saturating_sub(1)..(at + 1).min(self.scores.len()) {
                    self.scores[pair] = score(&token[self.borders[pair]..self.borders[pair + 2]]);
                }
            }
        }
        match self.borders[..] {
            [_, middle, _] => Some(token.split_at(middle)),
            _ => None,
        }
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

    fn agree(tokens: &[&str], scores: &[f32], texts: &[String]) {
        let (tokens, scores) = (tokens.to_vec(), scores.to_vec());
        let parts = Parts { model: "llama", tokens, scores, ..Parts::default() };
        let tokenizer = gguf::build(&parts).unwrap();
        for text in texts {
            let escaped = format!("▁{}", text.replace(' ', "▁"));
            let ids = tokenizer.encode(text, false).unwrap();
            let found: Vec<_> = ids.iter().map(|&id| tokenizer.token_text(id).unwrap()).collect();
            assert_eq!(found, by_definition(&parts.tokens, &parts.scores, &escaped), "{text:?}");
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
            agree(&tokens, &scores, &texts);
        }
    }

    /// In the order in which Llama 2 has them, all with one score.
    #[test]
    fn runs_of_spaces_grow_from_the_left() {
        let runs = [2, 4, 8, 5, 16, 6, 12, 13, 10, 14, 3, 9, 7, 11, 15, 1].map(|n| "▁".repeat(n));
        let mut tokens = vec!["<unk>", "<s>", "</s>", "▁in", "in", "\n", "i", "n"];
        let mut scores: Vec<f32> = (0..tokens.len()).map(|id| -(id as f32)).collect();
        tokens.extend(runs.iter().map(String::as_str));
        scores.resize(tokens.len(), -1e9);
        let runs = (0..70).map(|n| " ".repeat(n));
        let texts: Vec<_> = runs.map(|run| format!("{run}in\n{run}\n{run}n{run}")).collect();
        agree(&tokens, &scores, &texts);
    }
}
