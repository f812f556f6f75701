//! What is a vocabulary of byte pair encoding with merges, as GPT-2 introduced it?

use tokenizers::normalizers::Replace;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{PreTokenizerWrapper, SplitDelimiterBehavior};

use super::bpe::pairs::Pairs;
use super::bpe::{Bpe, LONGEST, Merges, Options};
use super::cut::Cut;
use super::gguf::Built;
use super::parts::{Parts, invalid};
use super::pieces::Pieces;
use super::pre::{self, Spelling};
use super::rules::Words;
use super::texts::Texts;
use super::vocabulary::{Inner, Vocabulary};
use crate::error::Result;

const FIELD: &str = "tokenizer.ggml.merges";

/// `name`: how words are cut.
pub(super) fn build(parts: &Parts, name: &str) -> Result<Built> {
    let rules = pre::rules(name).ok_or_else(|| {
        invalid("tokenizer.ggml.pre", "the way this tokenizer splits words is not known")
            .with("found", name)
            .with("expected", pre::names().join(", "))
            .with_hint("convert the model with one of the known names if it splits alike")
    })?;
    let texts = Texts::of(&parts.tokens);
    let Some(lines) = &parts.merges else {
        return Err(invalid(FIELD, "expected the merges of a byte-level vocabulary, found none")
            .with_hint("the file carries half a tokenizer: convert the model again"));
    };
    let merges = Merges::Ranked(pairs(lines, &texts)?);
    let broken = |e| invalid(FIELD, "the vocabulary is inconsistent").with_source(e);
    let options = Options {
        unk_token: None,
        byte_fallback: rules.spelling != Spelling::Bytes,
        fuse_unk: false,
        whole_words: rules.whole_words,
    };
    let duplicates = texts.duplicates.clone();
    let mut inner = Inner::new(Vocabulary::Bpe(Bpe::new(texts, merges, options)));
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
    Ok(Built { inner, words, pieces, duplicates, add_bos: rules.add_bos })
}

/// Merges in order of rank, each two tokens separated by a space. Of equal ones, as in llama.cpp, the first counts.
fn pairs(lines: &[&str], texts: &Texts) -> Result<Pairs> {
    let damaged = |rank: usize, message: &'static str| {
        invalid(FIELD, message)
            .with("index", rank)
            .with_hint("the file's metadata is damaged: fetch it again")
    };
    let mut pairs = Pairs::of(texts);
    for (rank, line) in lines.iter().enumerate() {
        let Some((left, right)) = halves(line) else {
            return Err(damaged(rank, "expected two tokens separated by a space").with("found", line));
        };
        // A merge of or into something that is no token has as in llama.cpp no effect on text that the vocabulary covers.
        let known = pairs.push(texts, left, right).is_some();
        let bytes = left.len() + right.len();
        if known && bytes > LONGEST {
            return Err(damaged(rank, "expected merges that make tokens of at most 1024 bytes")
                .with("found", format!("{bytes} bytes")));
        }
    }
    Ok(pairs)
}

/// What a line joins. A token may begin with a space.
fn halves(line: &str) -> Option<(&str, &str)> {
    let at = line.bytes().skip(1).position(|byte| byte == b' ')?;
    Some((&line[..=at], &line[at + 2..]))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::gguf;
    use super::super::parts::Kind;
    use super::*;
    use crate::ids::TokenId;

    /// Of equal pairs the first counts, and a line that is no pair is named.
    #[test]
    fn merges_are_those_of_known_tokens_in_order() {
        let texts = Texts::of(&["a", "b", "c", "ab", "bc", "abc", "ca"]);
        let mut lines = ["b c", "a b", "c a", "x y", "a b", "ab c", "b c", "a c"];
        let merges = pairs(&lines, &texts).unwrap();
        let all: Vec<u32> = texts.iter().map(|(id, _)| id).collect();
        assert_eq!(merges.making(&texts, &all), [("b", "c"), ("a", "b"), ("c", "a"), ("ab", "c")]);
        assert_eq!(merges.making(&texts, &[3, 5]), [("a", "b"), ("ab", "c")]);
        assert!(merges.making(&texts, &[0, 1, 2]).is_empty());
        for broken in 0..8 {
            lines[broken] = "abc";
            lines[7] = "bc";
            let error = pairs(&lines, &texts).err().unwrap();
            assert!(error.context().contains(&("index", broken.to_string())), "{error}");
            lines[broken] = "a b";
        }
    }

    /// Where tokens have spaces, too, the first one parts a line: what others would make is no merge.
    #[test]
    fn lines_part_at_their_first_space() {
        let texts = Texts::of(&["a", "a b", "b c", "c", "ab c", "a bc"]);
        let merges = pairs(&["a b c"], &texts).unwrap();
        assert_eq!(merges.making(&texts, &[0, 1, 2, 3, 4, 5]), [("a", "b c")]);
    }

    #[test]
    fn merges_of_endless_tokens_are_refused() {
        let (half, long) = ("a".repeat(LONGEST / 2 + 1), "a".repeat(LONGEST + 2));
        let line = format!("{half} {half}");
        assert!(pairs(&[&line], &Texts::of(&[&half])).is_ok());
        let error = pairs(&["a b", &line], &Texts::of(&[&half, &long])).err().unwrap();
        assert!(error.context().contains(&("index", "1".to_owned())), "{error}");
        assert!(error.hint().is_some());
    }

    #[test]
    fn agrees_with_the_tokenizer_json_it_was_made_from() {
        let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/models/llama");
        let text = std::fs::read_to_string(format!("{fixture}/tokenizer.json")).unwrap();
        let json: Value = serde_json::from_str(&text).unwrap();
        let foreign = tokenizers::Tokenizer::from_bytes(&text).unwrap();
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
