//! What is a vocabulary of byte pair encoding with merges, as GPT-2 introduced it?

use hashbrown::HashSet;
use tokenizers::models::bpe::{BPE, Merges, Vocab};
use tokenizers::normalizers::Replace;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{PreTokenizerWrapper, SplitDelimiterBehavior, Tokenizer};

use super::cut::Cut;
use super::gguf::Built;
use super::parts::{Parts, invalid};
use super::pieces::Pieces;
use super::pre::{self, Spelling};
use super::rules::Words;
use super::texts::Texts;
use crate::error::Result;

const FIELD: &str = "tokenizer.ggml.merges";

/// Merges that a thread looks at at a time.
const SHARE: usize = if cfg!(test) { 3 } else { 4096 };

type Pair<T> = (T, T);

/// `name`: how words are cut.
pub(super) fn build(parts: &Parts, name: &str) -> Result<Built> {
    let rules = pre::rules(name).ok_or_else(|| {
        invalid("tokenizer.ggml.pre", "the way this tokenizer splits words is not known")
            .with("found", name)
            .with("expected", pre::names().join(", "))
            .with_hint("convert the model with one of the known names if it splits alike")
    })?;
    let texts = Texts::of(&parts.tokens);
    let (vocab, merges) = vocab_and_merges(parts, &texts)?;
    let broken = |e| invalid("tokenizer.ggml.merges", "the vocabulary is inconsistent").with_source(e);
    let bpe = BPE::builder()
        .vocab_and_merges(vocab, merges)
        .ignore_merges(rules.whole_words)
        .byte_fallback(rules.spelling != Spelling::Bytes)
        .build()
        .map_err(broken)?;
    let mut inner = Tokenizer::new(bpe);
    // For other programs that read the tokenizer.
    let mut splits: Vec<PreTokenizerWrapper> = Vec::new();
    for split in rules.splits {
        let pattern = SplitPattern::Regex(split.pattern().to_owned());
        let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false);
        splits.push(split.map_err(broken)?.into());
    }
    let cuts = rules.splits.iter().map(|split| Cut::new(*split));
    let cuts = cuts.collect::<std::result::Result<_, _>>().map_err(|e| broken(e.into()))?;
    let (words, pieces) = match rules.spelling {
        Spelling::Bytes => {
            splits.push(ByteLevel::new(false, false, false).into());
            (Words::Bytes(cuts), Pieces::byte_level())
        }
        Spelling::Text { escaped, whole_lines } => {
            if escaped {
                let spaces = Replace::new(" ", "▁").map_err(broken)?;
                inner.with_normalizer(Some(spaces)).map_err(broken)?;
            }
            let pieces = if escaped { Pieces::sentencepiece(false) } else { Pieces::text() };
            (Words::Text { cuts, escaped, whole_lines }, pieces)
        }
    };
    inner.with_pre_tokenizer(Some(Sequence::new(splits)));
    inner.add_tokens(parts.added()).map_err(broken)?;
    Ok(Built { inner, words, pieces, duplicates: texts.duplicates, add_bos: rules.add_bos })
}

/// The crate's map of the vocabulary, and the merges in order of rank.
fn vocab_and_merges(parts: &Parts, texts: &Texts) -> Result<(Vocab, Merges)> {
    let Some(lines) = &parts.merges else {
        return Err(invalid(FIELD, "expected the merges of a byte-level vocabulary, found none")
            .with_hint("the file carries half a tokenizer: convert the model again"));
    };
    let shares: Vec<(usize, &[&str])> = (0..).step_by(SHARE).zip(lines.chunks(SHARE)).collect();
    let (vocab, merges) = texts.vocab_beside(&shares, |joined, (first, lines)| {
        let merges = (*first..).zip(*lines).map(|(rank, line)| merge(rank, line, texts, joined));
        merges.filter_map(Result::transpose).collect::<Result<Vec<_>>>()
    })?;
    // As in llama.cpp, the first of equal pairs counts.
    let mut seen = HashSet::with_capacity(lines.len());
    let firsts = merges.into_iter().flatten().filter(|(ids, _)| seen.insert(*ids));
    Ok((vocab, firsts.map(|(_, texts)| texts).collect()))
}

/// The tokens that a line joins, which are separated by a space, and their ids. `None`: a merge of or into something that is no
/// token, which as in llama.cpp has no effect on text that the vocabulary covers.
fn merge(
    rank: usize,
    line: &str,
    texts: &Texts,
    joined: &mut String,
) -> Result<Option<(Pair<u32>, Pair<String>)>> {
    // A token may begin with a space.
    let space = line.bytes().skip(1).position(|byte| byte == b' ');
    let Some((left, right)) = space.map(|at| (&line[..=at], &line[at + 2..])) else {
        return Err(invalid(FIELD, "expected two tokens separated by a space")
            .with("index", rank)
            .with("found", line)
            .with_hint("the file's metadata is damaged: fetch it again"));
    };
    joined.clear();
    joined.extend([left, right]);
    let known = texts.get(left).zip(texts.get(right)).filter(|_| texts.contains(joined));
    Ok(known.map(|ids| (ids, (left.to_owned(), right.to_owned()))))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::gguf;
    use super::super::parts::Kind;
    use super::*;
    use crate::ids::TokenId;

    /// In whichever thread's share they are: of equal pairs the first counts, and a line that is no pair is named.
    #[test]
    fn merges_are_those_of_all_shares_in_order() {
        let tokens = ["a", "b", "c", "ab", "bc", "abc", "ca"];
        let lines = vec!["b c", "a b", "c a", "x y", "a b", "ab c", "b c", "a c"];
        let mut parts = Parts { tokens: tokens.to_vec(), merges: Some(lines), ..Parts::default() };
        let (vocab, merges) = vocab_and_merges(&parts, &Texts::of(&parts.tokens)).unwrap();
        let pairs = merges.iter().map(|(left, right)| (left.as_str(), right.as_str()));
        assert_eq!(pairs.collect::<Vec<_>>(), [("b", "c"), ("a", "b"), ("c", "a"), ("ab", "c")]);
        assert_eq!(vocab.len(), tokens.len());
        for broken in 0..8 {
            let lines = parts.merges.as_mut().unwrap();
            lines[broken] = "abc";
            lines[7] = "bc";
            let error = vocab_and_merges(&parts, &Texts::of(&parts.tokens)).unwrap_err();
            assert!(error.context().contains(&("index", broken.to_string())), "{error}");
            parts.merges.as_mut().unwrap()[broken] = "a b";
        }
    }

    #[test]
    fn agrees_with_the_tokenizer_json_it_was_made_from() {
        let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/models/llama");
        let text = std::fs::read_to_string(format!("{fixture}/tokenizer.json")).unwrap();
        let json: Value = serde_json::from_str(&text).unwrap();
        let foreign = Tokenizer::from_bytes(&text).unwrap();
        let vocab = json["model"]["vocab"].as_object().unwrap();
        let added = json["added_tokens"].as_array().unwrap();
        let mut parts = Parts {
            model: "gpt2",
            pre: Some("qwen2"),
            add_bos: Some(true),
            bos: foreign.token_to_id("<|begin_of_text|>").map(u64::from),
            tokens: vec![""; vocab.len() + added.len()],
            kinds: vec![Kind::Other; vocab.len() + added.len()],
            ..Parts::default()
        };
        for (token, id) in vocab {
            parts.tokens[id.as_u64().unwrap() as usize] = token;
        }
        for token in added {
            let id = token["id"].as_u64().unwrap() as usize;
            let special = token["special"].as_bool().unwrap();
            parts.tokens[id] = token["content"].as_str().unwrap();
            parts.kinds[id] = if special { Kind::Control } else { Kind::UserDefined };
        }
        let merges = json["model"]["merges"].as_array().unwrap();
        let merges: Vec<String> = merges
            .iter()
            .map(|pair| match pair {
                Value::String(line) => line.clone(),
                pair => format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap()),
            })
            .collect();
        parts.merges = Some(merges.iter().map(String::as_str).collect());

        let tokenizer = gguf::build(&parts).unwrap();
        for text in [
            "",
            "Once upon a time, there was a",
            "I'LL say: 12345 Wörter\n\n  für 日本語 🦊!  ",
            "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><think> </think>",
            "<|begin_of_text|>twice?",
        ] {
            let expected = foreign.encode(text, false).unwrap();
            let expected: Vec<_> = expected.get_ids().iter().copied().map(TokenId).collect();
            assert_eq!(tokenizer.encode(text, false).unwrap(), expected, "{text:?}");
            assert_eq!(tokenizer.decode(&expected, false), text);
            let with_bos = tokenizer.encode(text, true).unwrap();
            assert_eq!(with_bos.iter().filter(|id| Some(**id) == tokenizer.bos()).count(), 1);
        }
    }
}
