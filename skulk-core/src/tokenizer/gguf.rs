//! What is the tokenizer of a GGUF file?
//!
//! Keys: the GGUF specification's `tokenizer.ggml` section. What text becomes follows llama.cpp
//! (`src/llama-vocab.cpp`), also where that differs from the models' own tokenizers.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::OnceLock;

use tokenizers::processors::template::TemplateProcessing;

use super::added::Added;
use super::parts::{Parts, invalid};
use super::rules::{Rules, Words};
use super::vocabulary::Inner;
use super::{Pieces, Route, Special, Tokenizer, byte_level, control, sentencepiece, unigram, word_piece};
use crate::error::Result;
use crate::ids::TokenId;
use crate::weights::gguf::GgufMetadata;

pub(super) fn load(metadata: &GgufMetadata) -> Result<Tokenizer> {
    let built = Parts::read(metadata).and_then(|parts| build(&parts));
    let built = built.map_err(|e| e.with("file", metadata.file().display()))?;
    Ok(Tokenizer { file: metadata.file().to_owned(), ..built })
}

/// What a kind of vocabulary decides about the tokenizer.
pub(super) struct Built {
    pub(super) inner: Inner,
    pub(super) words: Words,
    pub(super) pieces: Pieces,
    /// Ids whose text an earlier id has.
    pub(super) duplicates: HashMap<u32, u32>,
    /// Whether encoding begins with BOS unless the file says.
    pub(super) add_bos: bool,
}

pub(super) fn build(parts: &Parts) -> Result<Tokenizer> {
    parts.check_lengths()?;
    let mut special = special(parts)?;
    let built = match parts.model {
        "llama" => {
            // SentencePiece's customary ids, which old files leave out.
            let customary = |id: u32| ((id as usize) < parts.tokens.len()).then_some(TokenId(id));
            special.bos = special.bos.or(customary(1));
            special.eos = special.eos.or(customary(2));
            sentencepiece::build(parts)?
        }
        // llama.cpp takes a file that does not say for an old one of its default kind.
        "gpt2" => byte_level::build(parts, parts.pre.unwrap_or("default"))?,
        "gemma4" => byte_level::build(parts, "gemma4")?,
        "bert" => {
            let customary = |id: u64| (id < parts.tokens.len() as u64).then_some(id);
            let begin = parts.bos.or(parts.cls).or_else(|| customary(101));
            special.bos = parts.id("tokenizer.ggml.cls_token_id", begin)?;
            let end = parts.separator.or_else(|| customary(102));
            special.eos = parts.id("tokenizer.ggml.seperator_token_id", end)?;
            word_piece::build(parts)?
        }
        "t5" => {
            let customary = (parts.tokens.len() > 1).then_some(TokenId(1));
            special.eos = special.eos.or(customary);
            unigram::build(parts)?
        }
        other => {
            return Err(invalid("tokenizer.ggml.model", "this kind of tokenizer is not known")
                .with("found", other)
                .with("expected", "llama, gpt2, gemma4, bert, t5")
                .with_hint("use a model with a BPE, SentencePiece, WordPiece or Unigram vocabulary"));
        }
    };
    if let Some(eos) = special.eos
        && !special.ends.contains(&eos)
    {
        special.ends.insert(0, eos);
    }
    special.add_bos = parts.add_bos.unwrap_or(built.add_bos);
    special.add_eos = parts.add_eos.unwrap_or(matches!(parts.model, "bert" | "t5"));
    for (add, id, field) in [
        (special.add_bos, special.bos, "tokenizer.ggml.bos_token_id"),
        (special.add_eos, special.eos, "tokenizer.ggml.eos_token_id"),
    ] {
        if add && id.is_none() {
            return Err(invalid(field, "the tokenizer is to add a token that the file does not name")
                .with_hint("the file's metadata is incomplete: convert the model again"));
        }
    }
    let mut inner = built.inner;
    inner.with_decoder(Some(built.pieces.decoder()?));
    if special.add_bos {
        inner.with_post_processor(special.bos.and_then(|bos| begin(parts, bos)));
    }
    let added = Added::new(parts).map_err(|e| {
        invalid("tokenizer.ggml.tokens", "the vocabulary adds too many tokens")
            .with_source(e)
            .with_hint("the file's metadata is damaged: fetch it again")
    })?;
    Ok(Tokenizer {
        rules: Route::Own(Rules { added, words: built.words }),
        inner,
        pieces: built.pieces,
        special,
        vocab_size: parts.tokens.len(),
        duplicates: built.duplicates,
        names: OnceLock::new(),
        file: PathBuf::new(),
    })
}

/// The rule that puts BOS before a text, for other programs that read the tokenizer when it is
/// [written](Tokenizer::to_json); a second BOS is taken away here. `None` for texts of BOS that such rules cannot hold.
fn begin(parts: &Parts, bos: TokenId) -> Option<TemplateProcessing> {
    let text = *parts.tokens.get(bos.0 as usize)?;
    TemplateProcessing::builder()
        .try_single(vec![text, "$A"])
        .ok()?
        .try_pair(vec![text, "$A:0", text, "$B:1"])
        .ok()?
        .special_tokens(vec![(text.to_owned(), bos.0)])
        .build()
        .ok()
}

fn special(parts: &Parts) -> Result<Special> {
    let mut special = Special {
        bos: parts.id("tokenizer.ggml.bos_token_id", parts.bos)?,
        eos: parts.id("tokenizer.ggml.eos_token_id", parts.eos)?,
        ends: control::ends(parts),
        ..Special::default()
    };
    let eot = parts.id("tokenizer.ggml.eot_token_id", parts.eot)?;
    let eom = parts.id("tokenizer.ggml.eom_token_id", parts.eom)?;
    for id in [eot, eom].into_iter().flatten() {
        if !special.ends.contains(&id) {
            special.ends.push(id);
        }
    }
    Ok(special)
}

#[cfg(test)]
mod tests {
    use super::super::parts::Kind;
    use super::*;
    use crate::error::ErrorKind;

    const CHARS: [&str; 3] = ["a", "b", "▁"];

    /// `<unk> <s> </s>`, the byte tokens, single characters, then `extra` with falling scores.
    fn spm<'a>(bytes: &'a [String], extra: &[(&'a str, Kind)]) -> Parts<'a> {
        let mut parts = Parts {
            model: "llama",
            tokens: vec!["<unk>", "<s>", "</s>"],
            kinds: vec![Kind::Unknown, Kind::Control, Kind::Control],
            ..Parts::default()
        };
        let normal = bytes.iter().map(String::as_str).chain(CHARS);
        parts.tokens.extend(normal);
        parts.tokens.extend(extra.iter().map(|(token, _)| token));
        parts.kinds.resize(parts.tokens.len() - extra.len(), Kind::Other);
        parts.kinds.extend(extra.iter().map(|(_, kind)| kind));
        parts.scores = (0..parts.tokens.len()).map(|id| -(id as f32)).collect();
        parts
    }

    fn bytes() -> Vec<String> {
        (0..=u8::MAX).map(|byte| format!("<0x{byte:02X}>")).collect()
    }

    fn texts(tokenizer: &Tokenizer, text: &str, add_special: bool) -> Vec<String> {
        let ids = tokenizer.encode(text, add_special).unwrap();
        let texts = ids.iter().map(|&id| tokenizer.token_text(id).unwrap());
        texts.collect()
    }

    #[test]
    fn sentencepiece_rules() {
        let bytes = bytes();
        let extra = [
            ("ab", Kind::Other),
            ("▁a", Kind::Other),
            ("aba", Kind::Other),
            ("b b", Kind::UserDefined),
            ("<|eot_id|>", Kind::Control),
            ("<end_of_turn>", Kind::Other),
        ];
        let mut parts = spm(&bytes, &extra);
        let tokenizer = build(&parts).unwrap();
        // A space in front of every stretch of text; the join of highest score first.
        assert_eq!(texts(&tokenizer, "aba", true), ["<s>", "▁", "aba"]);
        assert_eq!(texts(&tokenizer, "a</s>a", false), ["▁a", "</s>", "▁a"]);
        assert_eq!(texts(&tokenizer, "<s>a", true), ["<s>", "▁a"]);
        assert_eq!(texts(&tokenizer, "ab b", false), ["▁a", "b b"]);
        assert_eq!(texts(&tokenizer, "é", false), ["▁", "<0xC3>", "<0xA9>"]);
        let ids = tokenizer.encode("a é ab", true).unwrap();
        assert_eq!(tokenizer.decode(&ids, true), "a é ab");
        assert_eq!(tokenizer.decode(&ids, false), "<s> a é ab");
        // As text nothing is a control token; user-defined ones are what they are.
        let plain = tokenizer.encode_text("</s><|eot_id|>b b").unwrap();
        assert!(!plain.iter().any(|&id| tokenizer.is_special(id)));
        assert_eq!(tokenizer.token_text(plain[plain.len() - 1]).as_deref(), Some("b b"));
        assert_eq!(tokenizer.decode(&plain, true), "</s><|eot_id|>b b");
        // But not the one that ends a text.
        let ends = Parts {
            eos: parts.tokens.iter().position(|text| *text == "b b").map(|id| id as u64),
            ..spm(&bytes, &extra)
        };
        let ends = build(&ends).unwrap();
        let plain = ends.encode_text("b b").unwrap();
        assert!(!plain.iter().any(|id| ends.eos_ids().contains(id)));
        assert_eq!(ends.decode(&plain, true), "b b");
        // `<end_of_turn>` is ordinary text here.
        let eot = tokenizer.encode("<|eot_id|>", false).unwrap();
        assert_eq!(tokenizer.eos_ids(), [TokenId(2), eot[0]]);

        parts.add_space_prefix = Some(false);
        parts.add_bos = Some(false);
        parts.add_eos = Some(true);
        let tokenizer = build(&parts).unwrap();
        assert_eq!(texts(&tokenizer, "aba", true), ["aba", "</s>"]);
        assert!(texts(&tokenizer, "", false).is_empty());
    }

    /// Also behind characters that the vocabulary lacks, which become nothing.
    #[test]
    fn merges_lead_to_no_control_token() {
        let parts = Parts {
            model: "gpt2",
            tokens: vec!["a", "b", "ab"],
            kinds: vec![Kind::Other, Kind::Other, Kind::Control],
            merges: Some(vec!["a b"]),
            ..Parts::default()
        };
        let tokenizer = build(&parts).unwrap();
        for text in ["ab", "xab", "axb", "xxabxab"] {
            assert_eq!(texts(&tokenizer, text, false).concat(), text.replace('x', ""));
            let plain = tokenizer.encode_text(text).unwrap();
            assert!(!plain.iter().any(|&id| tokenizer.is_special(id)), "{text}");
            assert_eq!(tokenizer.decode(&plain, false), text.replace('x', ""));
        }
    }

    #[test]
    fn equal_tokens_are_tolerated() {
        let bytes = bytes();
        let parts = spm(&bytes, &[("ab", Kind::Other), ("ab", Kind::Other)]);
        let tokenizer = build(&parts).unwrap();
        let last = TokenId(tokenizer.vocab_size() as u32 - 1);
        let first = TokenId(last.0 - 1);
        assert_eq!(tokenizer.encode("ab", false).unwrap().last(), Some(&first));
        assert_eq!(tokenizer.decode(&[first, last], true), "abab");
    }

    #[test]
    fn damaged_metadata_is_refused() {
        let bytes = bytes();
        let good = || spm(&bytes, &[]);
        assert!(build(&good()).is_ok());
        let refuses = |parts: Parts, field: &str| {
            let error = build(&parts).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::TokenizerInvalid);
            assert!(error.hint().is_some());
            assert_eq!(error.context()[0].1, format!("tokenizer.ggml.{field}"));
        };
        refuses(Parts::default(), "tokens");
        for model in ["", "whitespace", "hybriddna", "rwkv", "plamo2", "none"] {
            refuses(Parts { model, ..good() }, "model");
        }
        refuses(Parts { scores: vec![0.0; 7], ..good() }, "scores");
        refuses(Parts { kinds: vec![Kind::Other], ..good() }, "token_type");
        for bos in [262, u64::MAX] {
            refuses(Parts { bos: Some(bos), ..good() }, "bos_token_id");
        }
        refuses(Parts { unknown: Some(9999), ..spm(&[], &[]) }, "unknown_token_id");
        let gpt2 = |merges: Option<Vec<&'static str>>| Parts { model: "gpt2", merges, ..good() };
        refuses(gpt2(None), "merges");
        refuses(Parts { pre: Some("new"), ..gpt2(None) }, "pre");
        refuses(gpt2(Some(vec!["a b", "ab"])), "merges");
        refuses(Parts { add_bos: Some(true), ..gpt2(Some(vec!["x y", "a b"])) }, "bos_token_id");
    }

    #[test]
    fn hostile_vocabularies_end_in_reasonable_time() {
        let bytes = bytes();
        let long = "a".repeat(4 << 20);
        let runs: Vec<String> = (2..600).map(|len| "a".repeat(len)).collect();
        let mut parts = spm(&bytes, &[]);
        parts.tokens.push(&long);
        parts.tokens.extend(runs.iter().map(String::as_str));
        parts.kinds.clear();
        for scores in
            [vec![f32::NAN; parts.tokens.len()], (0..parts.tokens.len()).map(|id| id as f32).collect()]
        {
            parts.scores = scores;
            let tokenizer = build(&parts).unwrap();
            assert!(tokenizer.encode(&"a".repeat(2000), true).is_ok());
        }
        parts.scores.fill(f32::INFINITY);
        let tokenizer = build(&parts).unwrap();
        assert!(tokenizer.encode(&"a".repeat(2000), true).is_ok());
    }
}
