//! Which files of a Hugging Face folder matter? Its JSON files, and the weights that they name.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{Error, ErrorKind, Result};
use crate::weights::mmap::{MappedFile, io_error, open_regular};

/// The weights of a folder with one weight file.
pub(crate) const SINGLE: &str = "model.safetensors";
/// What says which shard holds which tensor.
pub(crate) const INDEX: &str = "model.safetensors.index.json";

/// Far above any published configuration or index.
const JSON_MAX: u64 = 64 << 20;

/// What a Hugging Face folder says about its model.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HfMetadata {
    /// The folder.
    pub folder: PathBuf,
    /// `config.json`: always an object.
    pub config: Value,
    /// `generation_config.json`, where the folder has one.
    pub generation_config: Option<Value>,
    /// `tokenizer_config.json`, where the folder has one.
    pub tokenizer_config: Option<Value>,
}

impl HfMetadata {
    /// None of these files, of which a part of another model has none.
    pub(super) fn none(folder: &Path) -> Self {
        let config = Value::Object(serde_json::Map::new());
        Self { folder: folder.to_owned(), config, generation_config: None, tokenizer_config: None }
    }

    /// Reads the folder's configuration files.
    ///
    /// # Errors
    /// [`ErrorKind::FileNotFound`] without a `config.json`, [`ErrorKind::ConfigInvalid`] when one
    /// of the files is no JSON object, [`ErrorKind::FileIo`] when it cannot be read.
    pub fn read(folder: &Path) -> Result<Self> {
        let config = read_object(&folder.join("config.json"))?.ok_or_else(|| {
            Error::new(ErrorKind::FileNotFound, "expected a config.json beside the weights, found none")
                .with("file", folder.join("config.json").display())
                .with_hint("fetch the model's config.json into the same folder")
        })?;
        Ok(Self {
            folder: folder.to_owned(),
            config,
            generation_config: read_object(&folder.join("generation_config.json"))?,
            tokenizer_config: read_object(&folder.join("tokenizer_config.json"))?,
        })
    }
}

/// `model.safetensors.index.json`: which shard holds which tensor.
#[derive(Debug, Deserialize)]
pub(super) struct ShardIndex {
    pub(super) weight_map: BTreeMap<String, String>,
}

impl ShardIndex {
    /// Reads the folder's index; `None` when it has none.
    pub(super) fn read(folder: &Path) -> Result<Option<Self>> {
        read_json(&folder.join(INDEX), ErrorKind::CheckpointInvalid)
    }
}

/// Opens a shard that the index names. The index is as foreign as the weights: its names must not lead out of the
/// folder. Links are the folder's owner's and are followed, as in the cache of `huggingface_hub`.
pub(super) fn open_shard(folder: &Path, name: &str) -> Result<MappedFile> {
    if leads_out(name) {
        return Err(Error::new(
            ErrorKind::CheckpointInvalid,
            format!("expected shards inside the model's folder, found the path {name:?}"),
        )
        .with("file", folder.join(INDEX).display())
        .with("field", "weight_map")
        .with("shard", name)
        .with_hint("put the shards themselves into the folder, and only use indices you trust"));
    }
    MappedFile::open(folder.join(name)).map_err(|e| match e.kind() {
        ErrorKind::FileNotFound => {
            e.with("shard", name).with_hint("fetch the missing shard into the same folder")
        }
        _ => e,
    })
}

/// Whether a name from a file is anything but a path of names within a folder: empty, absolute, with `.` or `..` at its
/// start or with another system's separators.
pub(crate) fn leads_out(name: &str) -> bool {
    let inside = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    !inside || name.is_empty() || name.contains('\\')
}

/// Reads a JSON file that must hold an object; `None` when it does not exist.
pub(crate) fn read_object(path: &Path) -> Result<Option<Value>> {
    let value: Option<Value> = read_json(path, ErrorKind::ConfigInvalid)?;
    match value {
        Some(value) if !value.is_object() => {
            Err(Error::new(ErrorKind::ConfigInvalid, "expected a JSON object, found another JSON value")
                .with("file", path.display())
                .with_hint("fetch the file again"))
        }
        value => Ok(value),
    }
}

/// Reads a JSON file; `None` when it does not exist.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path, broken: ErrorKind) -> Result<Option<T>> {
    let Some(text) = read_bytes(path, broken)? else { return Ok(None) };
    let read = serde_json::from_slice(&text);
    let read = read.or_else(|e| serde_json::from_slice(&with_infinities(&text)).map_err(|_| e));
    read.map(Some).map_err(|e| {
        Error::new(broken, "expected valid JSON with the file's usual fields")
            .with("file", path.display())
            .with_source(e)
            .with_hint("fetch the file again")
    })
}

/// Python writes infinity as a bare word, which JSON does not have: as the object that transformers writes instead.
fn with_infinities(text: &[u8]) -> Vec<u8> {
    const WORD: &[u8] = b"Infinity";
    let (mut out, mut at, mut quoted) = (Vec::with_capacity(text.len()), 0, false);
    while let Some(&byte) = text.get(at) {
        if !quoted && text[at..].starts_with(WORD) && out.last() != Some(&b'-') {
            out.extend_from_slice(br#"{"__float__":"Infinity"}"#);
            at += WORD.len();
            continue;
        }
        let escaped = quoted && byte == b'\\';
        quoted ^= byte == b'"';
        let n = if escaped { 2 } else { 1 };
        out.extend_from_slice(&text[at..(at + n).min(text.len())]);
        at += n;
    }
    out
}

/// Reads a file that is no larger than a configuration; `None` when it does not exist. One that is larger is `broken`.
pub(crate) fn read_bytes(path: &Path, broken: ErrorKind) -> Result<Option<Vec<u8>>> {
    match open_regular(path) {
        Ok(file) => read_capped(&file, path, broken).map(Some),
        Err(e) if e.kind() == ErrorKind::FileNotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// Reads a file of UTF-8 text that is no larger than a configuration; `None` when it does not exist.
pub(crate) fn read_text(path: &Path) -> Result<Option<String>> {
    let Some(text) = read_bytes(path, ErrorKind::ConfigInvalid)? else { return Ok(None) };
    String::from_utf8(text).map(Some).map_err(|e| {
        Error::new(ErrorKind::ConfigInvalid, "expected text in UTF-8, found other bytes")
            .with("file", path.display())
            .with_source(e)
            .with_hint("fetch the file again")
    })
}

fn read_capped(file: &File, path: &Path, broken: ErrorKind) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    file.take(JSON_MAX + 1).read_to_end(&mut text).map_err(|e| io_error(e, path, "read"))?;
    if text.len() as u64 > JSON_MAX {
        return Err(Error::new(
            broken,
            format!("expected a JSON file of at most {JSON_MAX} bytes, found a larger one"),
        )
        .with("file", path.display())
        .with_hint("this is no model configuration: fetch the file again"));
    }
    Ok(text)
}
