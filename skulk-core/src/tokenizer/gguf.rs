//! What is the tokenizer of a GGUF file?
//!
//! Keys: the GGUF specification's `tokenizer.ggml` section. Defaults and the recognition of
//! end-of-generation tokens follow llama.cpp (`src/llama-vocab.cpp`).

use std::borrow::Cow;
use std::collections::HashMap;

use tokenizers::AddedToken;
use tokenizers::models::bpe::Vocab;

use super::{Pieces, Special, Tokenizer, byte_level, sentencepiece};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::TokenId;

/// Control tokens that end a generation wherever they are control tokens.
const ENDS: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
];

/// The `tokenizer.ggml` section as the file states it.
#[derive(Debug, Default)]
pub(super) struct Parts<'a> {
    pub(super) model: &'a str,
    pub(super) pre: Option<&'a str>,
    pub(super) tokens: Vec<&'a str>,
    /// One per token, or none at all. Higher merges first.
    pub(super) scores: Vec<f32>,
    /// One per token, or none at all.
    pub(super) kinds: Vec<Kind>,
    pub(super) merges: Option<Vec<&'a str>>,
    pub(super) bos: Option<u64>,
    pub(super) eos: Option<u64>,
    pub(super) eot: Option<u64>,
    pub(super) eom: Option<u64>,
    pub(super) unknown: Option<u64>,
    pub(super) add_bos: Option<bool>,
    pub(super) add_eos: Option<bool>,
    pub(super) add_space_prefix: Option<bool>,
}

/// `tokenizer.ggml.token_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Unknown,
    Control,
    UserDefined,
    /// Normal, unused and byte tokens, and numbers that are not assigned: found by merging.
    Other,
}

impl From<i64> for Kind {
    fn from(number: i64) -> Self {
        match number {
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            _ => Self::Other,
        }
    }
}

impl Parts<'_> {
    fn check_lengths(&self) -> Result<()> {
        let tokens = self.tokens.len();
        if tokens == 0 || u32::try_from(tokens).is_err() {
            return Err(invalid(
                "tokenizer.ggml.tokens",
                format!("expected 1 to 2^32 - 1 tokens, found {tokens}"),
            )
            .with_hint("the file carries no usable vocabulary: convert the model again with one"));
        }
        for (field, len) in
            [("tokenizer.ggml.scores", self.scores.len()), ("tokenizer.ggml.token_type", self.kinds.len())]
        {
            if len != 0 && len != tokens {
                return Err(invalid(
                    field,
                    format!("expected one entry for each of {tokens} tokens, found {len}"),
                )
                .with_hint("the file's metadata is damaged: fetch it again"));
            }
        }
        Ok(())
    }

    /// A token id of the file, checked against the vocabulary.
    fn id(&self, field: &'static str, id: Option<u64>) -> Result<Option<TokenId>> {
        let tokens = self.tokens.len();
        let Some(id) = id else { return Ok(None) };
        match u32::try_from(id) {
            Ok(small) if (small as usize) < tokens => Ok(Some(TokenId(small))),
            // llama.cpp ignores such an id; the model would then never stop, or start wrongly.
            _ => Err(invalid(field, format!("expected a token id below {tokens}, found {id}"))
                .with_hint("the file's metadata is damaged: fetch it again")),
        }
    }

    fn special(&self) -> Result<Special> {
        let mut special = Special {
            bos: self.id("tokenizer.ggml.bos_token_id", self.bos)?,
            eos: self.id("tokenizer.ggml.eos_token_id", self.eos)?,
            ends: self.ends(),
            ..Special::default()
        };
        let eot = self.id("tokenizer.ggml.eot_token_id", self.eot)?;
        let eom = self.id("tokenizer.ggml.eom_token_id", self.eom)?;
        for id in [eot, eom].into_iter().flatten() {
            if !special.ends.contains(&id) {
                special.ends.push(id);
            }
        }
        Ok(special)
    }

    /// The vocabulary by text. llama.cpp refuses tokens of equal text; files have them, so here
    /// text becomes the first of them and each of them becomes text.
    pub(super) fn vocab(&self) -> (Vocab, HashMap<u32, u32>) {
        let mut vocab = Vocab::with_capacity(self.tokens.len());
        let mut duplicates = HashMap::new();
        for (id, &token) in (0_u32..).zip(&self.tokens) {
            let first = *vocab.entry(token.to_owned()).or_insert(id);
            if first != id {
                duplicates.insert(id, first);
            }
        }
        (vocab, duplicates)
    }

    /// The tokens that are matched in raw text before anything else.
    pub(super) fn added(&self) -> impl Iterator<Item = AddedToken> {
        let tokens = self.tokens.iter().zip(&self.kinds);
        tokens.filter_map(|(&token, kind)| match kind {
            Kind::Control | Kind::Unknown => Some(AddedToken::from(token, true)),
            Kind::UserDefined => Some(AddedToken::from(token, false).normalized(false)),
            Kind::Other => None,
        })
    }

    fn ends(&self) -> Vec<TokenId> {
        let control = (0_u32..).zip(self.tokens.iter().zip(&self.kinds));
        let found: Vec<(u32, &str)> = control
            .filter(|(_, (token, kind))| **kind == Kind::Control && ENDS.contains(token))
            .map(|(id, (token, _))| (id, *token))
            .collect();
        let has = |text: &str| found.iter().any(|(_, token)| *token == text);
        // In the harmony format `<|end|>` only ends a message, and Gemma 4's vocabulary has an
        // ordinary `</s>`: llama.cpp tells both by the tokens beside them.
        let calls = has("<|call|>") || has("<|calls|>");
        let harmony = calls && (has("<|return|>") || has("<|flush|>"));
        let gemma4 = has("<|tool_response>");
        let kept = found.iter().filter(|(_, token)| match *token {
            "<|end|>" => !harmony,
            "</s>" => !gemma4,
            _ => true,
        });
        kept.map(|(id, _)| TokenId(*id)).collect()
    }
}

/// What a kind of vocabulary decides about the tokenizer.
pub(super) struct Built {
    pub(super) inner: tokenizers::Tokenizer,
    pub(super) pieces: Pieces,
    /// Ids whose text an earlier id has.
    pub(super) duplicates: HashMap<u32, u32>,
    /// Whether encoding begins with BOS unless the file says.
    pub(super) add_bos: bool,
}

pub(super) fn build(parts: &Parts) -> Result<Tokenizer> {
    parts.check_lengths()?;
    let mut special = parts.special()?;
    let built = match parts.model {
        "llama" => {
            // SentencePiece's customary ids, which old files leave out.
            let customary = |id: u32| ((id as usize) < parts.tokens.len()).then_some(TokenId(id));
            special.bos = special.bos.or(customary(1));
            special.eos = special.eos.or(customary(2));
            sentencepiece::build(parts)?
        }
        "gpt2" => byte_level::build(parts)?,
        other => {
            return Err(invalid("tokenizer.ggml.model", "expected the tokenizer `llama` or `gpt2`")
                .with("found", other)
                .with_hint("use a model with a SentencePiece or byte-level BPE vocabulary"));
        }
    };
    if let Some(eos) = special.eos
        && !special.ends.contains(&eos)
    {
        special.ends.insert(0, eos);
    }
    special.add_bos = parts.add_bos.unwrap_or(built.add_bos);
    special.add_eos = parts.add_eos.unwrap_or(false);
    for (add, id, field) in [
        (special.add_bos, special.bos, "tokenizer.ggml.bos_token_id"),
        (special.add_eos, special.eos, "tokenizer.ggml.eos_token_id"),
    ] {
        if add && id.is_none() {
            return Err(invalid(field, "the tokenizer is to add a token that the file does not name")
                .with_hint("the file's metadata is incomplete: convert the model again"));
        }
    }
    Ok(Tokenizer {
        inner: built.inner,
        pieces: built.pieces,
        special,
        vocab_size: parts.tokens.len(),
        duplicates: built.duplicates,
    })
}

pub(super) fn invalid(field: &'static str, message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::TokenizerInvalid, message).with("field", field)
}

#[cfg(test)]
mod scratch {
    use super::*;
    fn rd<'a>(b: &mut &'a [u8], n: usize) -> &'a [u8] {
        let (x, y) = b.split_at(n);
        *b = y;
        x
    }
    fn u64_(b: &mut &[u8]) -> u64 {
        u64::from_le_bytes(rd(b, 8).try_into().unwrap())
    }
    fn u32_(b: &mut &[u8]) -> u32 {
        u32::from_le_bytes(rd(b, 4).try_into().unwrap())
    }
    fn rss() -> String {
        std::fs::read_to_string("/proc/self/status")
            .unwrap()
            .lines()
            .filter(|l| l.starts_with("VmHWM") || l.starts_with("VmRSS") || l.starts_with("RssAnon"))
            .collect::<Vec<_>>()
            .join(" ")
    }
    #[test]
    fn scratch() {
        let path = "/tmp/gemma-3-270m-q4_k_m.gguf";
        let f = crate::MappedFile::open(path).unwrap();
        let all = f.map(0, 12_000_000).unwrap();
        let mut b: &[u8] = &all[16..];
        let n = u64_(&mut b);
        let mut parts = Parts {
            model: "llama",
            add_bos: Some(true),
            add_space_prefix: Some(false),
            bos: Some(2),
            eos: Some(1),
            unknown: Some(3),
            ..Parts::default()
        };
        for _ in 0..n {
            let l = u64_(&mut b) as usize;
            let k = std::str::from_utf8(rd(&mut b, l)).unwrap();
            let t = u32_(&mut b);
            match t {
                8 => {
                    let l = u64_(&mut b) as usize;
                    rd(&mut b, l);
                }
                9 => {
                    let et = u32_(&mut b);
                    let c = u64_(&mut b);
                    for _ in 0..c {
                        match et {
                            8 => {
                                let l = u64_(&mut b) as usize;
                                let s = std::str::from_utf8(rd(&mut b, l)).unwrap();
                                if k.ends_with("tokens") {
                                    parts.tokens.push(s)
                                }
                            }
                            6 => parts.scores.push(f32::from_le_bytes(rd(&mut b, 4).try_into().unwrap())),
                            5 => parts.kinds.push(Kind::from(i64::from(u32_(&mut b)))),
                            _ => panic!(),
                        }
                    }
                }
                7 => {
                    rd(&mut b, 1);
                }
                4 | 5 | 6 => {
                    rd(&mut b, 4);
                }
                _ => {
                    rd(&mut b, 8);
                }
            }
        }
        eprintln!("before {}", rss());
        let t = std::time::Instant::now();
        let tok = build(&parts).unwrap();
        eprintln!("built {:?} {}", t.elapsed(), rss());
        let golden: serde_json::Value = serde_json::from_str(
            &std::fs::read_to_string("/work/shared/golden/gemma3-270m-llamacpp.json").unwrap(),
        )
        .unwrap();
        for p in golden["prompts"].as_array().unwrap() {
            let ids: Vec<u64> = tok
                .encode(p["prompt"].as_str().unwrap(), true)
                .unwrap()
                .iter()
                .map(|i| u64::from(i.0))
                .collect();
            let want: Vec<u64> =
                p["prompt_ids"].as_array().unwrap().iter().map(|i| i.as_u64().unwrap()).collect();
            assert_eq!(ids, want);
        }
        eprintln!("eos {:?} {}", tok.eos_ids(), rss());
    }
}
