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

use tokenizers::models::bpe::{BPE, Merges, Vocab};
use tokenizers::normalizers::{Prepend, Replace, Sequence};
use tokenizers::{NormalizerWrapper, Tokenizer};

use super::gguf::Built;
use super::parts::{Parts, invalid};
use super::pieces::Pieces;
use super::rules::Words;
use super::texts::Texts;
use crate::error::Result;

/// Tokens whose merges a thread finds at a time, with those of the last one's score.
const SHARE: usize = if cfg!(test) { 64 } else { 4096 };
/// Longer tokens get no merge. Real vocabularies stay far below (Llama 2: 48 bytes), and joining a token takes quadratic
/// time.
const LONGEST: usize = 256;

pub(super) fn build(parts: &Parts) -> Result<Built> {
    let texts = Texts::of(&parts.tokens);
    let (vocab, merges) = vocab_and_merges(parts, &texts)?;
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
    let words = Words::SentencePiece { space_prefix };
    Ok(Built {
        inner,
        words,
        pieces: Pieces::sentencepiece(space_prefix),
        duplicates: texts.duplicates,
        add_bos: true,
    })
}

/// The crate's map of the vocabulary, and the ways to join two tokens to a third, as ranked merges.
fn vocab_and_merges(parts: &Parts, texts: &Texts) -> Result<(Vocab, Merges)> {
    let score = |id: u32| parts.scores.get(id as usize).copied().unwrap_or(0.0);
    let tokens = (0_u32..).zip(&parts.tokens);
    let mut ranked: Vec<(f32, &str)> = tokens
        .filter(|(id, token)| token.len() <= LONGEST && !texts.duplicates.contains_key(id))
        .map(|(id, &token)| (score(id), token))
        .collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
    let score = |text: &str| texts.get(text).map(score);
    let (mut shares, mut rest) = (Vec::new(), &*ranked);
    while !rest.is_empty() {
        let (share, behind) = rest.split_at(border(rest, SHARE));
        shares.push(share);
        rest = behind;
    }
    let (vocab, merges) = texts.vocab_beside(&shares, |joins, share| Ok(merges_of(share, joins, score)))?;
    Ok((vocab, merges.into_iter().flatten().collect()))
}

/// How many tokens there are up to the first one behind `at` whose score is another than that before it.
fn border(ranked: &[(f32, &str)], at: usize) -> usize {
    let Some((last, _)) = ranked[..at.min(ranked.len())].last() else { return 0 };
    ranked.partition_point(|(score, _)| score.total_cmp(last).is_ge())
}

/// The merges of tokens that are sorted by their scores.
fn merges_of(ranked: &[(f32, &str)], joins: &mut Joins, score: impl Fn(&str) -> Option<f32>) -> Merges {
    let is_token = |text: &str| score(text).is_some();
    let mut merges: Vec<(&str, &str)> = Vec::with_capacity(ranked.len());
    for equals in ranked.chunk_by(|a, b| a.0.total_cmp(&b.0).is_eq()) {
        if let [(_, token)] = equals {
            let last = joins.last_of(token, &score);
            // llama.cpp also joins characters that are no tokens. Here these are bytes by then.
            let is_known = |piece: &str| piece.chars().nth(1).is_some() || is_token(piece);
            merges.extend(last.filter(|(left, right)| is_known(left) && is_known(right)));
            continue;
        }
        let first = merges.len();
        for (_, token) in equals {
            let splits = token.char_indices().skip(1).map(|(at, _)| token.split_at(at));
            merges.extend(splits.filter(|(left, right)| is_token(left) && is_token(right)));
        }
        let longer = |a: &str, b: &str| b.len().cmp(&a.len());
        merges[first..].sort_by(|a, b| longer(a.0, b.0).then(longer(a.1, b.1)));
    }
    merges.into_iter().map(|(left, right)| (left.to_owned(), right.to_owned())).collect()
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
        // So many that the runs begin within a thread's share, and end behind it.
        let letters: Vec<_> = ('А'..='п').map(String::from).collect();
        tokens.extend(letters.iter().map(String::as_str));
        let border = tokens.len()..tokens.len() + runs.len();
        assert!(border.contains(&SHARE));
        let mut scores: Vec<f32> = (0..tokens.len()).map(|id| -(id as f32)).collect();
        tokens.extend(runs.iter().map(String::as_str));
        scores.resize(tokens.len(), -1e9);
        let runs = (0..70).map(|n| " ".repeat(n));
        let texts: Vec<_> = runs.map(|run| format!("{run}in\n{run}\n{run}n{run}")).collect();
        agree(&tokens, &scores, &texts);
    }
}
