//! What is the tokenizer of a Hugging Face folder?
//!
//! `tokenizer.json` holds the rules; which tokens begin and end a text is spread over
//! `tokenizer_config.json`, `generation_config.json` and `config.json`.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::path::Path;
use std::sync::OnceLock;

use serde_json::Value;
use tokenizers::{AddedToken, ModelWrapper, NormalizerWrapper};

use super::declared::Declared;
use super::vocabulary::{Inner, Vocabulary};
use super::{Pieces, Route, Special, Tokenizer, caught, failed, growth};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::TokenId;
use crate::weights::mmap::{io_error, open_regular};
use crate::weights::safetensors::HfMetadata;

/// Far above any published tokenizer.json, of which the largest have some 60 MB.
const MAX_BYTES: u64 = 256 << 20;
/// Characters of a word that WordPiece looks for pieces of: far above BERT's.
const MAX_WORD: usize = 1000;

/// `config`: the file that holds what is called `config.json` here.
pub(super) fn load(metadata: &HfMetadata, config: &'static str) -> Result<Tokenizer> {
    let file = metadata.folder.join("tokenizer.json");
    let mut inner = read(&file)?;
    let in_file = |e: Error| e.with("file", file.display());
    let decoder = serde_json::to_value(inner.get_decoder()).unwrap_or_default();
    let pieces = Pieces::from_decoder(&decoder).map_err(in_file)?;
    growth::check(&inner).map_err(in_file)?;
    // Both would silently change what the model is given.
    inner.with_padding(None);
    inner.with_truncation(None).map_err(|e| broken(&file).with_source(e))?;
    expect_short_words(&inner).map_err(in_file)?;
    let declared = Declared(metadata);
    declare(declared, &mut inner)?;
    normalize_as_told(metadata, &mut inner).map_err(|e| failed(e, &file))?;
    let added = inner.get_added_vocabulary().get_vocab().values().max();
    let vocab_size = inner.get_model().size().max(added.map_or(0, |&id| id as usize + 1));
    check_added(&inner, vocab_size).map_err(in_file)?;
    Ok(Tokenizer {
        special: special(declared, config, &inner)?,
        vocab_size,
        rules: Route::Crate,
        inner,
        pieces,
        duplicates: HashMap::new(),
        names: OnceLock::new(),
        file,
    })
}

fn read(file: &Path) -> Result<Inner> {
    let bytes = read_bytes(file)?;
    caught(|| Inner::from_bytes(&bytes)).map_err(|e| broken(file).with_source(e))
}

fn read_bytes(file: &Path) -> Result<Vec<u8>> {
    let opened = open_regular(file).map_err(|e| {
        let hint = match e.kind() {
            ErrorKind::FileNotFound => {
                "fetch tokenizer.json together with the weights; a folder with only tokenizer.model has to be converted first"
            }
            _ => "check the path and the file's permissions: it has to be a regular file",
        };
        Error::new(ErrorKind::TokenizerInvalid, "expected a readable tokenizer.json")
            .with("file", file.display())
            .with_source(e)
            .with_hint(hint)
    })?;
    let mut bytes = Vec::new();
    opened.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|e| io_error(e, file, "read"))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Error::new(
            ErrorKind::TokenizerInvalid,
            format!("expected a tokenizer.json of at most {MAX_BYTES} bytes, found a larger one"),
        )
        .with("file", file.display())
        .with_hint("this is no tokenizer: fetch the file again"));
    }
    Ok(bytes)
}

fn broken(file: &Path) -> Error {
    Error::new(
        ErrorKind::TokenizerInvalid,
        "expected a tokenizer.json that the tokenizers crate 0.23 can read",
    )
    .with("file", file.display())
    .with_hint("fetch the file again, or save the tokenizer with a current version of transformers")
}

/// Refuses words whose pieces could be looked for without end: that takes as many steps as the cube of their length.
fn expect_short_words(inner: &Inner) -> Result<()> {
    let Vocabulary::Crate(ModelWrapper::WordPiece(model)) = inner.get_model() else { return Ok(()) };
    let found = model.max_input_chars_per_word;
    if found <= MAX_WORD {
        return Ok(());
    }
    let message = format!("expected words of up to {MAX_WORD} characters, found {found}");
    Err(Error::new(ErrorKind::TokenizerInvalid, message)
        .with("field", "model.max_input_chars_per_word")
        .with_hint("BERT's is 100: fetch the file again"))
}

/// What `tokenizer_config.json` says of BERT's texts counts, as in transformers, whatever `tokenizer.json` says.
fn normalize_as_told(metadata: &HfMetadata, inner: &mut Inner) -> tokenizers::Result<()> {
    let Some(NormalizerWrapper::BertNormalizer(rules)) = inner.get_normalizer() else { return Ok(()) };
    let Some(config) = &metadata.tokenizer_config else { return Ok(()) };
    if config.get("tokenizer_class").is_some_and(|class| class == "PreTrainedTokenizerFast") {
        return Ok(());
    }
    let mut rules = *rules;
    let told = |key| config.get(key).and_then(Value::as_bool);
    rules.lowercase = told("do_lower_case").unwrap_or(rules.lowercase);
    rules.handle_chinese_chars = told("tokenize_chinese_chars").unwrap_or(rules.handle_chinese_chars);
    if config.get("strip_accents").is_some() {
        rules.strip_accents = told("strip_accents");
    }
    inner.with_normalizer(Some(rules))?;
    Ok(())
}

/// Refuses a post-processor that adds tokens which the vocabulary lacks.
fn check_added(inner: &Inner, vocab_size: usize) -> Result<()> {
    let mut ids = Vec::new();
    put_ids(&serde_json::to_value(inner.get_post_processor()).unwrap_or_default(), &mut ids);
    match ids.into_iter().find(|&id| id >= vocab_size as u64) {
        None => Ok(()),
        Some(id) => Err(Error::new(
            ErrorKind::TokenizerInvalid,
            format!("expected a token id below {vocab_size}, found {id}"),
        )
        .with("field", "post_processor")
        .with_hint("the tokenizer files do not belong together: fetch the checkpoint again")),
    }
}

/// Appends the ids that a post-processor puts around texts.
fn put_ids(rule: &Value, ids: &mut Vec<u64>) {
    for rule in rule["processors"].as_array().into_iter().flatten() {
        put_ids(rule, ids);
    }
    let tokens = rule["special_tokens"].as_object().into_iter().flat_map(|tokens| tokens.values());
    let template = tokens.filter_map(|token| token["ids"].as_array()).flatten();
    // As BERT's and RoBERTa's have them.
    let sides = ["cls", "sep"].map(|side| &rule[side][1]);
    ids.extend(template.chain(sides).filter_map(Value::as_u64));
}

/// Makes every token special that `tokenizer_config.json` declares, as transformers does, if the vocabulary has it.
/// transformers would add what is missing, with ids that the model was not trained with.
fn declare(declared: Declared<'_>, inner: &mut Inner) -> Result<()> {
    let known = inner.get_added_vocabulary().get_added_tokens_decoder();
    let known: HashSet<String> = known.values().map(|token| token.content.clone()).collect();
    let mut ordinary = Vec::new();
    for (key, text) in declared.tokens()? {
        if inner.token_to_id(text).is_none() {
            return Err(declared
                .invalid(key, "a special token is declared that the vocabulary lacks")
                .with("found", text)
                .with("expected", "a token of tokenizer.json")
                .with_hint("the tokenizer files do not belong together: fetch the checkpoint again"));
        }
        if !text.is_empty() && !known.contains(text) {
            ordinary.push(AddedToken::from(text, true));
        }
    }
    let file = declared.0.folder.join("tokenizer.json");
    caught(|| inner.add_special_tokens(ordinary)).map_err(|e| failed(e, &file))?;
    Ok(())
}

fn special(declared: Declared<'_>, config: &'static str, inner: &Inner) -> Result<Special> {
    let metadata = declared.0;
    let named = |key| Ok(declared.token(key)?.and_then(|text| inner.token_to_id(text)).map(TokenId));
    let mut begins: Vec<_> = named("bos_token")?.into_iter().collect();
    begins.extend(configured(metadata, config, "bos_token_id")?);
    let mut ends = configured(metadata, config, "eos_token_id")?;
    let eos = named("eos_token")?;
    ends.extend(eos);
    let mut seen = HashSet::new();
    ends.retain(|&id| seen.insert(id));
    let special = Special {
        bos: begins.first().copied(),
        eos: eos.or(ends.first().copied()),
        ends,
        add_bos: declared.flag("add_bos_token")?,
        add_eos: declared.flag("add_eos_token")?,
    };
    for (add, id, key) in
        [(special.add_bos, special.bos, "bos_token"), (special.add_eos, special.eos, "eos_token")]
    {
        let known = id.and_then(|id| inner.id_to_token(id.0));
        if add && known.is_none() {
            return Err(declared
                .invalid(key, "the tokenizer is to add a token that it does not have")
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
            // One beyond the vocabulary never comes: configurations keep defaults of other models.
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
