//! What does the `tokenizer.ggml` section of a GGUF file state?

use std::borrow::Cow;
use std::collections::HashMap;

use tokenizers::AddedToken;
use tokenizers::models::bpe::Vocab;

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
}

/// An error about one field of the section; whoever knows the file adds it.
pub(super) fn invalid(field: &'static str, message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::TokenizerInvalid, message).with("field", field)
}
