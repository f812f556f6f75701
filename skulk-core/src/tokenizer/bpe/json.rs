//! Which model does a `tokenizer.json` state?
//!
//! The crate reads a section of any kind into a tree of values first. Of byte pair encoding, tokens and merges are read as
//! they come.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use tokenizers::ModelWrapper;
use tokenizers::models::bpe::{BPE, Error as Broken, Vocab};

use super::super::texts::Texts;
use super::super::vocabulary::Vocabulary;
use super::pairs::Pairs;
use super::{Bpe, LONGEST, Merges, Options};

impl<'de> Deserialize<'de> for Vocabulary {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Section)
    }
}

struct Section;

impl<'de> Visitor<'de> for Section {
    type Value = Vocabulary;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a tokenizer's model")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vocabulary, A::Error> {
        let is_bpe = |fields: &Map<String, Value>| fields.get("type").is_some_and(|kind| kind == "BPE");
        let (mut tokens, mut merges, mut fields) = (None, None, Map::new());
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "vocab" if is_bpe(&fields) => tokens = Some(map.next_value::<Tokens>()?),
                "merges" if is_bpe(&fields) => merges = Some(map.next_value::<Written>()?),
                _ => drop(fields.insert(key, map.next_value()?)),
            }
        }
        let made = || -> tokenizers::Result<Vocabulary> {
            if !is_bpe(&fields) {
                return Ok(Vocabulary::Crate(serde_json::from_value(Value::Object(fields))?));
            }
            // What came before the type is among the others.
            let mut other = |key| fields.remove(key).ok_or("Missing vocab/merges");
            let tokens = match tokens {
                Some(tokens) => tokens,
                None => serde_json::from_value(other("vocab")?)?,
            };
            let merges = match merges {
                Some(merges) => merges,
                None => serde_json::from_value(other("merges")?)?,
            };
            let fields: Fields = serde_json::from_value(Value::Object(fields))?;
            match fields.bpe(&tokens, &merges) {
                Some(bpe) => Ok(Vocabulary::Bpe(bpe)),
                None => Ok(Vocabulary::Crate(ModelWrapper::BPE(fields.whole(tokens, &merges)?))),
            }
        };
        made().map_err(A::Error::custom)
    }
}

/// What there is beside tokens and merges.
#[derive(Deserialize)]
struct Fields {
    dropout: Option<f32>,
    unk_token: Option<String>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    fuse_unk: Option<bool>,
    byte_fallback: Option<bool>,
    ignore_merges: Option<bool>,
}

impl Fields {
    /// `None`: this is left to the crate, which may refuse it.
    fn bpe(&self, Tokens(tokens): &Tokens, merges: &Written) -> Option<Bpe> {
        let given = |affix: &Option<String>| affix.as_ref().is_some_and(|affix| !affix.is_empty());
        if self.dropout.is_some() || given(&self.continuing_subword_prefix) || given(&self.end_of_word_suffix)
        {
            return None;
        }
        let mut tokens: Vec<(&str, u32)> = tokens.iter().map(|(text, id)| (text.as_str(), *id)).collect();
        tokens.sort_unstable_by_key(|(_, id)| *id);
        // Of the ids at least half are there.
        if tokens.last().is_some_and(|(_, last)| *last as usize / 2 > tokens.len()) {
            return None;
        }
        let mut texts = Texts::of(&[]);
        for (text, id) in &tokens {
            // None is there twice.
            let holes = (*id as usize).checked_sub(texts.count())?;
            (0..holes).for_each(|_| texts.skip());
            texts.push(text);
        }
        if !texts.duplicates.is_empty() {
            return None;
        }
        let mut pairs = Pairs::of(&texts);
        for (left, right) in merges.iter() {
            let is_new = pairs.push(&texts, left, right)?;
            if !is_new || left.len() + right.len() > LONGEST {
                return None;
            }
        }
        let options = Options {
            unk_token: self.unk_token.clone(),
            byte_fallback: self.byte_fallback.unwrap_or_default(),
            fuse_unk: self.fuse_unk.unwrap_or_default(),
            whole_words: self.ignore_merges.unwrap_or_default(),
        };
        Some(Bpe::new(texts, Merges::Ranked(pairs), options))
    }

    /// The crate's model.
    fn whole(self, Tokens(tokens): Tokens, merges: &Written) -> tokenizers::Result<BPE> {
        let mut vocab = Vocab::with_capacity(tokens.len());
        vocab.extend(tokens);
        let merges = merges.iter().map(|(left, right)| (left.to_owned(), right.to_owned()));
        let mut model = BPE::builder()
            .vocab_and_merges(vocab, merges.collect())
            .fuse_unk(self.fuse_unk.unwrap_or_default())
            .byte_fallback(self.byte_fallback.unwrap_or_default())
            .ignore_merges(self.ignore_merges.unwrap_or_default());
        if let Some(dropout) = self.dropout {
            model = model.dropout(dropout);
        }
        if let Some(text) = self.unk_token {
            model = model.unk_token(text);
        }
        if let Some(prefix) = self.continuing_subword_prefix {
            model = model.continuing_subword_prefix(prefix);
        }
        if let Some(suffix) = self.end_of_word_suffix {
            model = model.end_of_word_suffix(suffix);
        }
        model.build()
    }
}

/// A text, where it is in the file if nothing in it is escaped.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// Tokens and their ids; of equal tokens the last counts.
struct Tokens(Vec<(String, u32)>);

impl<'de> Deserialize<'de> for Tokens {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Tokens;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("tokens and their ids")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tokens, A::Error> {
                let mut tokens = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    tokens.push(entry);
                }
                Ok(Tokens(tokens))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// Merges, one behind the other.
#[derive(Default)]
struct Written {
    all: String,
    /// Where the left one of each ends, and the right one.
    ends: Vec<(usize, usize)>,
}

impl Written {
    fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut from = 0;
        self.ends.iter().map(move |&(middle, end)| {
            let start = std::mem::replace(&mut from, end);
            (&self.all[start..middle], &self.all[middle..end])
        })
    }

    fn push(&mut self, left: &str, right: &str) {
        self.all.push_str(left);
        let middle = self.all.len();
        self.all.push_str(right);
        self.ends.push((middle, self.all.len()));
    }
}

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Elements;
        impl<'de> Visitor<'de> for Elements {
            type Value = Written;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("merges, all pairs of tokens or all lines of two")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut merges: A) -> Result<Written, A::Error> {
                let (mut written, mut lines) = (Written::default(), None);
                while let Some(merge) = merges.next_element::<Merge<'de>>()? {
                    if *lines.get_or_insert(merge.is_line()) != merge.is_line() {
                        return Err(A::Error::custom(
                            "merges are pairs of tokens, or lines of two, not both",
                        ));
                    }
                    match merge {
                        Merge::Pair(Text(left), Text(right)) => written.push(&left, &right),
                        // As files of merges begin.
                        Merge::Line(Text(line)) if line.starts_with("#version") => {}
                        Merge::Line(Text(line)) => {
                            let halves = line.split_once(' ').filter(|(_, right)| !right.contains(' '));
                            let broken = || A::Error::custom(Broken::BadMerges(written.ends.len() + 1));
                            let (left, right) = halves.ok_or_else(broken)?;
                            written.push(left, right);
                        }
                    }
                }
                Ok(written)
            }
        }
        deserializer.deserialize_seq(Elements)
    }
}

/// A merge, in one of two ways.
enum Merge<'a> {
    Pair(Text<'a>, Text<'a>),
    Line(Text<'a>),
}

impl Merge<'_> {
    fn is_line(&self) -> bool {
        matches!(self, Self::Line(_))
    }
}

impl<'de> Deserialize<'de> for Merge<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Merge<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("two tokens, or a line of them")
            }

            fn visit_borrowed_str<E: Error>(self, line: &'de str) -> Result<Merge<'de>, E> {
                Ok(Merge::Line(Text(Cow::Borrowed(line))))
            }

            fn visit_str<E: Error>(self, line: &str) -> Result<Merge<'de>, E> {
                Ok(Merge::Line(Text(Cow::Owned(line.to_owned()))))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut pair: A) -> Result<Merge<'de>, A::Error> {
                let missing = || A::Error::custom("expected two tokens");
                let left = pair.next_element()?.ok_or_else(missing)?;
                let right = pair.next_element()?.ok_or_else(missing)?;
                Ok(Merge::Pair(left, right))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokenizers::Model as _;

    use super::*;

    const TEXTS: [&str; 8] =
        ["Once", "Ġupon", "▁Onceuponatime,therewasalittlegirl", "ab", "aab<unk>", "Ã¶", "ÿ漢字", "▁▁▁▁▁▁▁▁a"];

    fn agrees(text: &str) -> Vocabulary {
        let found: Vocabulary = serde_json::from_str(text).unwrap();
        let expected: ModelWrapper = serde_json::from_str(text).unwrap();
        for word in TEXTS {
            assert_eq!(found.tokenize(word).unwrap(), expected.tokenize(word).unwrap(), "{word}");
        }
        assert_eq!(found.get_vocab(), expected.get_vocab());
        found
    }

    fn fixture(name: &str) -> Value {
        let path = format!("{}/../tests/fixtures/models/{name}/tokenizer.json", env!("CARGO_MANIFEST_DIR"));
        let json: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        json["model"].clone()
    }

    #[test]
    fn agrees_with_the_crate() {
        for name in ["llama", "gemma3", "stories260K"] {
            let mut model = fixture(name);
            let found = agrees(&model.to_string());
            assert!(matches!(found, Vocabulary::Bpe(_)));
            let expected: ModelWrapper = serde_json::from_str(&model.to_string()).unwrap();
            assert_eq!(serde_json::to_value(found).unwrap(), serde_json::to_value(expected).unwrap());
            // As older versions wrote it.
            let lines = model["merges"].as_array().unwrap().iter().map(|pair| match pair {
                Value::Array(pair) => format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap()),
                line => line.as_str().unwrap().to_owned(),
            });
            model["merges"] = lines.collect();
            model["continuing_subword_prefix"] = json!("");
            model["ignore_merges"] = json!(true);
            assert!(matches!(agrees(&model.to_string()), Vocabulary::Bpe(_)));
        }
    }

    fn good() -> Value {
        json!({"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "#version": 3, "": 4},
            "merges": [["a", "b"]], "byte_fallback": null, "further": [1]})
    }

    #[test]
    fn fields_come_in_any_order() {
        let [vocab, merges] = [r#""vocab": {"a": 0, "b": 1, "ab": 2}"#, r#""merges": ["\u0061 b"]"#];
        let kind = r#""type": "BPE""#;
        for text in [
            format!("{{{kind}, {vocab}, {merges}}}"),
            format!("{{{merges}, {kind}, {vocab}}}"),
            format!("{{{vocab}, {kind}, {merges}}}"),
            format!("{{{merges}, {vocab}, {kind}}}"),
        ] {
            assert!(matches!(agrees(&text), Vocabulary::Bpe(_)), "{text}");
        }
        // Without its type the crate tells what it is.
        assert!(matches!(agrees(&format!("{{{vocab}, {merges}}}")), Vocabulary::Crate(_)));
    }

    #[test]
    fn some_are_left_to_the_crate() {
        assert!(matches!(agrees(&good().to_string()), Vocabulary::Bpe(_)));
        let holes = json!({"a": 1, "b": 2, "ab": 4, "c": 7});
        let mut model = good();
        model["vocab"] = holes;
        let found = agrees(&model.to_string());
        assert!(matches!(found, Vocabulary::Bpe(_)));
        assert_eq!((found.size(), found.get_vocab_size()), (8, 4));
        assert_eq!(
            [0, 1, 3, 7].map(|id| found.id_to_token(id)),
            [None, Some("a".into()), None, Some("c".into())]
        );
        for (key, value) in [
            ("dropout", json!(0.0)),
            ("continuing_subword_prefix", json!("##")),
            ("end_of_word_suffix", json!("</w>")),
            ("vocab", json!({"a": 0, "b": 1, "ab": 70})),
            ("vocab", json!({"a": 2, "b": 5, "ab": 8})),
            ("merges", json!([["a", "b"], ["a", "b"]])),
        ] {
            let mut model = good();
            model[key] = value;
            // Merges of tokens with affixes are others.
            if key.contains('_') {
                model["merges"] = json!([]);
            }
            assert!(matches!(agrees(&model.to_string()), Vocabulary::Crate(_)), "{model}");
        }
        let twice = r#"{"type": "BPE", "vocab": {"a": 0, "a": 1, "b": 0}, "merges": []}"#;
        assert!(matches!(agrees(twice), Vocabulary::Crate(_)));
        let half = "a".repeat(LONGEST / 2 + 1);
        let long = json!({"type": "BPE", "vocab": {&half: 0, half.repeat(2): 1}, "merges": [[&half, &half]]});
        assert!(matches!(agrees(&long.to_string()), Vocabulary::Crate(_)));
    }

    #[test]
    fn what_the_crate_refuses_is_refused() {
        for (key, value) in [
            ("type", json!("WordPiece")),
            ("type", json!("Other")),
            ("dropout", json!(1.5)),
            ("vocab", json!({"a": 0, "b": 1, "abc": 2})),
            ("vocab", json!({"a": 0, "b": 1, "ab": -2})),
            ("vocab", json!([["a", 0]])),
            ("vocab", json!(null)),
            ("merges", json!([["a", "b"], "a b"])),
            ("merges", json!([["a", "b", "ab"]])),
            ("merges", json!([["a"]])),
            ("merges", json!(["ab"])),
            ("merges", json!(["a b "])),
            ("merges", json!([7])),
            ("merges", json!(null)),
            ("byte_fallback", json!(1)),
        ] {
            let mut model = good();
            model[key] = value;
            let text = model.to_string();
            assert!(serde_json::from_str::<ModelWrapper>(&text).is_err(), "{text}");
            assert!(serde_json::from_str::<Vocabulary>(&text).is_err(), "{text}");
        }
        for text in
            [r#"{"type": "BPE", "merges": []}"#, r#"{"type": "BPE", "vocab": {}}"#, r#"["BPE"]"#, "{}"]
        {
            assert!(serde_json::from_str::<Vocabulary>(text).is_err(), "{text}");
        }
    }
}
