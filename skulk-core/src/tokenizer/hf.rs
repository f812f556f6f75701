//! What is the tokenizer of a Hugging Face folder?
//!
//! `tokenizer.json` holds the rules; which tokens begin and end a text is spread over
//! `tokenizer_config.json`, `generation_config.json` and `config.json`.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::OnceLock;

use serde_json::Value;
use tokenizers::AddedToken;

use super::{Pieces, Route, Special, Tokenizer, caught, failed};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::TokenId;
use crate::weights::safetensors::HfMetadata;

/// `config`: the file that holds what is called `config.json` here.
pub(super) fn load(metadata: &HfMetadata, config: &'static str) -> Result<Tokenizer> {
    let file = metadata.folder.join("tokenizer.json");
    let mut inner = read(&file)?;
    let decoder = serde_json::to_value(inner.get_decoder()).unwrap_or_default();
    let pieces = Pieces::from_decoder(&decoder).map_err(|e| e.with("file", file.display()))?;
    // Both would silently change what the model is given.
    inner.with_padding(None);
    inner.with_truncation(None).map_err(|e| broken(&file).with_source(e))?;
    declared(metadata, &mut inner)?;
    let special = special(metadata, config, &inner)?;
    // Ids may have holes.
    let vocab = inner.get_vocab(true);
    Ok(Tokenizer {
        vocab_size: vocab.values().max().map_or(0, |&id| id as usize + 1),
        rules: Route::Crate,
        inner,
        pieces,
        special,
        duplicates: HashMap::new(),
        names: OnceLock::new(),
    })
}

fn read(file: &Path) -> Result<tokenizers::Tokenizer> {
    let bytes = std::fs::read(file).map_err(|e| {
        Error::new(ErrorKind::TokenizerInvalid, "expected a readable tokenizer.json")
            .with("file", file.display())
            .with_source(e)
            .with_hint("fetch tokenizer.json together with the weights; a folder with only tokenizer.model has to be converted first")
    })?;
    caught(|| tokenizers::Tokenizer::from_bytes(&bytes)).map_err(|e| broken(file).with_source(e))
}

fn broken(file: &Path) -> Error {
    Error::new(
        ErrorKind::TokenizerInvalid,
        "expected a tokenizer.json that the tokenizers crate 0.23 can read",
    )
    .with("file", file.display())
    .with_hint("fetch the file again, or save the tokenizer with a current version of transformers")
}

/// Makes every token special that `tokenizer_config.json` declares, as transformers does, if the vocabulary has it.
/// transformers would add what is missing, with ids that the model was not trained with.
fn declared(metadata: &HfMetadata, inner: &mut tokenizers::Tokenizer) -> Result<()> {
    const ONE: [&str; 7] =
        ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];
    const MANY: [&str; 2] = ["additional_special_tokens", "extra_special_tokens"];
    let Some(config) = &metadata.tokenizer_config else { return Ok(()) };
    let one = ONE.iter().filter_map(|key| Some((*key, config.get(key)?)));
    let many = MANY.iter().filter_map(|key| Some((*key, config.get(key)?)));
    let many = many.flat_map(|(key, tokens)| match tokens {
        Value::Array(tokens) => tokens.iter().map(|token| (key, token)).collect(),
        Value::Object(named) => named.values().map(|token| (key, token)).collect(),
        _ => Vec::new(),
    });
    let known = inner.get_added_vocabulary().get_added_tokens_decoder();
    let known: HashSet<String> = known.values().map(|token| token.content.clone()).collect();
    let mut ordinary = Vec::new();
    for (key, token) in one.chain(many) {
        let Some(text) = text_of(token) else { continue };
        if inner.token_to_id(text).is_none() {
            return Err(Error::new(
                ErrorKind::TokenizerInvalid,
                "a special token is declared that the vocabulary lacks",
            )
            .with("file", metadata.folder.join("tokenizer_config.json").display())
            .with("field", key)
            .with("found", text)
            .with("expected", "a token of tokenizer.json")
            .with_hint("the tokenizer files do not belong together: fetch the checkpoint again"));
        }
        if !text.is_empty() && !known.contains(text) {
            ordinary.push(AddedToken::from(text, true));
        }
    }
    caught(|| inner.add_special_tokens(ordinary)).map_err(failed)?;
    Ok(())
}

/// The text of a token in `tokenizer_config.json`, which stands there as it is or with its properties.
fn text_of(token: &Value) -> Option<&str> {
    token.as_str().or_else(|| token.get("content")?.as_str())
}

fn special(metadata: &HfMetadata, config: &'static str, inner: &tokenizers::Tokenizer) -> Result<Special> {
    let named = |key: &str| {
        let text = text_of(metadata.tokenizer_config.as_ref()?.get(key)?)?;
        inner.token_to_id(text).map(TokenId)
    };
    let flag = |key: &str| {
        let config = metadata.tokenizer_config.as_ref();
        config.and_then(|c| c.get(key)?.as_bool()).unwrap_or(false)
    };
    let mut begins: Vec<_> = named("bos_token").into_iter().collect();
    begins.extend(configured(metadata, config, "bos_token_id")?);
    let mut ends = configured(metadata, config, "eos_token_id")?;
    ends.extend(named("eos_token"));
    let mut seen = HashSet::new();
    ends.retain(|&id| seen.insert(id));
    let special = Special {
        bos: begins.first().copied(),
        eos: named("eos_token").or(ends.first().copied()),
        ends,
        add_bos: flag("add_bos_token"),
        add_eos: flag("add_eos_token"),
    };
    for (add, id, key) in
        [(special.add_bos, special.bos, "bos_token"), (special.add_eos, special.eos, "eos_token")]
    {
        let known = id.and_then(|id| inner.id_to_token(id.0));
        if add && known.is_none() {
            return Err(Error::new(
                ErrorKind::TokenizerInvalid,
                "the tokenizer is to add a token that it does not have",
            )
            .with("file", metadata.folder.join("tokenizer_config.json").display())
            .with("field", key)
            .with_hint("the tokenizer files do not belong together: fetch the checkpoint again"));
        }
    }
    Ok(special)
}

/// The ids under `key`, a number or a list, in the generation and model configurations.
fn configured(metadata: &HfMetadata, file: &'static str, key: &'static str) -> Result<Vec<TokenId>> {
    let config = &metadata.config;
    let sections = [
        ("generation_config.json", metadata.generation_config.as_ref()),
        (file, Some(config)),
        (file, config.get("text_config")),
    ];
    let mut ids = Vec::new();
    for (name, section) in sections {
        let Some(value) = section.and_then(|s| s.get(key)) else {
            continue;
        };
        let values = match value {
            Value::Null => continue,
            Value::Array(values) => values.as_slice(),
            single => std::slice::from_ref(single),
        };
        for value in values {
            let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
            ids.push(TokenId(id.ok_or_else(|| {
                Error::new(ErrorKind::TokenizerInvalid, "expected a token id or a list of them")
                    .with("file", metadata.folder.join(name).display())
                    .with("field", key)
                    .with("found", value)
                    .with_hint("correct the file or fetch it again")
            })?));
        }
    }
    Ok(ids)
}
