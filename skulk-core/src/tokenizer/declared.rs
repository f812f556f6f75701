//! What does a `tokenizer_config.json` say of special tokens?

use serde_json::Value;

use crate::error::{Error, ErrorKind, Result};
use crate::weights::safetensors::HfMetadata;

/// Hold a token each.
const ONE: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];
/// Hold tokens in a list, or by names.
const MANY: [&str; 2] = ["additional_special_tokens", "extra_special_tokens"];

/// The file of a folder, if it has one.
#[derive(Clone, Copy)]
pub(super) struct Declared<'a>(pub(super) &'a HfMetadata);

impl<'a> Declared<'a> {
    /// The texts of all special tokens, with their fields.
    pub(super) fn tokens(self) -> Result<Vec<(&'static str, &'a str)>> {
        let mut tokens = Vec::new();
        for key in ONE {
            tokens.extend(self.token(key)?.map(|text| (key, text)));
        }
        for key in MANY {
            for token in self.list(key)? {
                tokens.extend(self.text(key, token)?.map(|text| (key, text)));
            }
        }
        Ok(tokens)
    }

    /// The text of the token under `key`.
    pub(super) fn token(self, key: &'static str) -> Result<Option<&'a str>> {
        self.get(key).map_or(Ok(None), |token| self.text(key, token))
    }

    /// Whether `key` is true.
    pub(super) fn flag(self, key: &'static str) -> Result<bool> {
        match self.get(key) {
            None => Ok(false),
            Some(flag) => flag.as_bool().ok_or_else(|| self.wrong(key, flag, "true or false")),
        }
    }

    fn list(self, key: &'static str) -> Result<Vec<&'a Value>> {
        match self.get(key) {
            None => Ok(Vec::new()),
            Some(Value::Array(tokens)) => Ok(tokens.iter().collect()),
            Some(Value::Object(named)) => Ok(named.values().collect()),
            Some(other) => Err(self.wrong(key, other, "a list of tokens, or tokens by names")),
        }
    }

    /// The text of a token, which stands there as it is or with its properties.
    fn text(self, key: &'static str, token: &'a Value) -> Result<Option<&'a str>> {
        if token.is_null() {
            return Ok(None);
        }
        let text = token.as_str().or_else(|| token.get("content")?.as_str());
        text.map(Some).ok_or_else(|| self.wrong(key, token, "a token's text, or an object with its content"))
    }

    /// What is there; null is nothing.
    fn get(self, key: &str) -> Option<&'a Value> {
        self.0.tokenizer_config.as_ref()?.get(key).filter(|value| !value.is_null())
    }

    fn wrong(self, key: &'static str, found: &Value, expected: &'static str) -> Error {
        self.invalid(key, "a field has a value of the wrong type")
            .with("found", found)
            .with("expected", expected)
            .with_hint("correct the file or fetch it again")
    }

    /// An error about one field of the file.
    pub(super) fn invalid(self, key: &'static str, message: &'static str) -> Error {
        Error::new(ErrorKind::TokenizerInvalid, message)
            .with("file", self.0.folder.join("tokenizer_config.json").display())
            .with("field", key)
    }
}
