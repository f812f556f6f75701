//! What would this tokenizer's files in a Hugging Face folder say?

use serde_json::{Map, Value, json};

use super::Tokenizer;
use crate::error::{Error, ErrorKind, Result};

impl Tokenizer {
    /// `tokenizer.json`. Ids whose text an earlier id has are not in it: they decode to nothing afterwards.
    ///
    /// # Errors
    /// [`ErrorKind::TokenizerInvalid`] when the tokenizer's rules cannot be written.
    pub(crate) fn to_json(&self) -> Result<String> {
        self.inner.to_string(false).map_err(|e| {
            Error::new(
                ErrorKind::TokenizerInvalid,
                "the tokenizer's rules cannot be written as tokenizer.json",
            )
            .with_source(e)
            .with_hint("use a checkpoint that has a tokenizer.json")
        })
    }

    /// `tokenizer_config.json`: tokens that begin and end a text, and the chat template.
    pub(crate) fn configuration(&self, chat_template: Option<&str>) -> Value {
        let special = &self.special;
        let mut config = Map::new();
        config.insert("tokenizer_class".to_owned(), json!("PreTrainedTokenizerFast"));
        for (key, id) in [("bos_token", special.bos), ("eos_token", special.eos)] {
            if let Some(text) = id.and_then(|id| self.token_text(id)) {
                config.insert(key.to_owned(), json!(text));
            }
        }
        config.insert("add_bos_token".to_owned(), json!(special.add_bos));
        config.insert("add_eos_token".to_owned(), json!(special.add_eos));
        config.insert("clean_up_tokenization_spaces".to_owned(), json!(false));
        if let Some(template) = chat_template {
            config.insert("chat_template".to_owned(), json!(template));
        }
        Value::Object(config)
    }

    /// `generation_config.json`: ids of the tokens that begin a text and end a generation.
    pub(crate) fn generation_configuration(&self) -> Value {
        let mut config = Map::new();
        if let Some(bos) = self.special.bos {
            config.insert("bos_token_id".to_owned(), json!(bos.0));
        }
        let ends: Vec<u32> = self.special.ends.iter().map(|id| id.0).collect();
        config.insert("eos_token_id".to_owned(), json!(ends));
        Value::Object(config)
    }
}
