//! What does the `tokenizer.ggml` section of a GGUF file state?

use std::borrow::Cow;

use tokenizers::AddedToken;

use super::control;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::TokenId;
use crate::weights::gguf::GgufMetadata;

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
    pub(super) remove_extra_whitespaces: Option<bool>,
    /// Of BERT's tokens that begin and end a text.
    pub(super) cls: Option<u64>,
    pub(super) separator: Option<u64>,
    pub(super) lowercase: Option<bool>,
    pub(super) strip_accents: Option<bool>,
    pub(super) charsmap: Option<Vec<u8>>,
    /// The whole model's.
    pub(super) name: Option<&'a str>,
    pub(super) architecture: Option<&'a str>,
}

/// `tokenizer.ggml.token_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
    /// Normal ones, and numbers that are not assigned: found by merging, as those above.
    Other,
}

impl From<i64> for Kind {
    fn from(number: i64) -> Self {
        match number {
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => Self::Other,
        }
    }
}

impl<'a> Parts<'a> {
    /// The section of one file.
    pub(super) fn read(metadata: &'a GgufMetadata) -> Result<Self> {
        let mut parts = Self {
            model: metadata.opt_str("tokenizer.ggml.model")?.unwrap_or_default(),
            pre: metadata.opt_str("tokenizer.ggml.pre")?,
            bos: metadata.opt_u64("tokenizer.ggml.bos_token_id")?,
            eos: metadata.opt_u64("tokenizer.ggml.eos_token_id")?,
            eot: metadata.opt_u64("tokenizer.ggml.eot_token_id")?,
            eom: metadata.opt_u64("tokenizer.ggml.eom_token_id")?,
            unknown: metadata.opt_u64("tokenizer.ggml.unknown_token_id")?,
            add_bos: metadata.opt_bool("tokenizer.ggml.add_bos_token")?,
            add_eos: metadata.opt_bool("tokenizer.ggml.add_eos_token")?,
            add_space_prefix: metadata.opt_bool("tokenizer.ggml.add_space_prefix")?,
            remove_extra_whitespaces: metadata.opt_bool("tokenizer.ggml.remove_extra_whitespaces")?,
            cls: metadata.opt_u64("tokenizer.ggml.cls_token_id")?,
            separator: metadata.opt_u64("tokenizer.ggml.seperator_token_id")?,
            lowercase: metadata.opt_bool("tokenizer.ggml.normalizer.lowercase")?,
            strip_accents: metadata.opt_bool("tokenizer.ggml.normalizer.strip_accents")?,
            name: metadata.opt_str("general.name")?,
            architecture: metadata.opt_str("general.architecture")?,
            ..Self::default()
        };
        if let Some(tokens) = metadata.opt_array("tokenizer.ggml.tokens")? {
            parts.tokens = tokens.strings()?.collect();
        }
        if let Some(scores) = metadata.opt_array("tokenizer.ggml.scores")? {
            parts.scores = scores.f64s()?.map(|score| score as f32).collect();
        }
        if let Some(kinds) = metadata.opt_array("tokenizer.ggml.token_type")? {
            parts.kinds = kinds.i64s()?.map(Kind::from).collect();
        }
        if let Some(merges) = metadata.opt_array("tokenizer.ggml.merges")? {
            parts.merges = Some(merges.strings()?.collect());
        }
        if let Some(charsmap) = metadata.opt_array("tokenizer.ggml.precompiled_charsmap")? {
            // Some files have signed bytes.
            parts.charsmap = Some(charsmap.i64s()?.map(|byte| byte as u8).collect());
        }
        control::correct(&mut parts);
        Ok(parts)
    }

    /// Whether the arrays belong together.
    pub(super) fn check_lengths(&self) -> Result<()> {
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
    pub(super) fn id(&self, field: &'static str, id: Option<u64>) -> Result<Option<TokenId>> {
        let tokens = self.tokens.len();
        let Some(id) = id else { return Ok(None) };
        match u32::try_from(id) {
            Ok(small) if (small as usize) < tokens => Ok(Some(TokenId(small))),
            // llama.cpp ignores such an id; the model would then never stop, or start wrongly.
            _ => Err(invalid(field, format!("expected a token id below {tokens}, found {id}"))
                .with_hint("the file's metadata is damaged: fetch it again")),
        }
    }

    /// The tokens that are matched in raw text before anything else.
    pub(super) fn added(&self) -> impl Iterator<Item = AddedToken> {
        let tokens = self.tokens.iter().zip(&self.kinds);
        tokens.filter_map(|(&token, kind)| match kind {
            Kind::Control | Kind::Unknown => Some(AddedToken::from(token, true)),
            Kind::UserDefined => Some(AddedToken::from(token, false).normalized(false)),
            Kind::Unused | Kind::Byte | Kind::Other => None,
        })
    }

    /// Whether the added token takes spaces in front of it, and behind it. Files do not say; as llama.cpp does, the
    /// model's name does.
    pub(super) fn takes_spaces(&self, token: &str) -> (bool, bool) {
        let named = |text: Option<&str>, parts: &[&str]| {
            text.is_some_and(|text| parts.iter().any(|part| text.to_lowercase().contains(part)))
        };
        if named(self.pre, &["jina-v2-de", "jina-v2-es", "jina-v2-code"])
            || named(self.architecture, &["nomic-bert-moe", "jina-bert-v3"])
        {
            (token == "<mask>", false)
        } else if named(self.name, &["phi-3", "phi3"]) {
            (false, !["<unk>", "<s>", "<|endoftext|>"].contains(&token))
        } else {
            (token == "[MASK]" && named(self.name, &["modern-bert"]), false)
        }
    }
}

/// An error about one field of the section; whoever knows the file adds it.
pub(super) fn invalid(field: &'static str, message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::TokenizerInvalid, message).with("field", field)
}
