//! What of an interrupted extraction may be used? What was asked for, what it was read from, and what is written.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::index_json::rfc3339;
use super::options::ExtractOptions;
use super::plan::Plan;
use super::source::Source;
use crate::error::{Error, ErrorKind, Result};
use crate::vindex::hashes::{FileHashes, hex};
use crate::weights::safetensors::read_bytes;
use crate::weights::{Checkpoint, io_error};

/// What bytes depend on, each with a name for messages; what says most comes first.
pub(super) type Identity = Vec<(String, String)>;

/// How far an extraction came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) identity: Identity,
    /// Files that are whole, by their path in the folder.
    pub(super) done: BTreeMap<String, FileHashes>,
    /// The one that is being written.
    pub(super) current: Option<Mark>,
}

/// A place in a file up to which it is on the disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    pub(super) file: String,
    pub(super) sections: usize,
    pub(super) bytes: u64,
}

impl State {
    pub(super) fn new(identity: Identity) -> Self {
        Self { identity, done: BTreeMap::new(), current: None }
    }

    /// `None` where nothing, or nothing legible, is left of an interrupted extraction.
    pub(super) fn read(path: &Path) -> Result<Option<Self>> {
        Ok(read_bytes(path, ErrorKind::FileIo)?.and_then(|text| serde_json::from_slice(&text).ok()))
    }

    pub(super) fn to_json(&self) -> Vec<u8> {
        // Maps by strings, strings and numbers always serialise.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// `Ok` when an extraction that is `wanted` continues this one.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] naming what differs.
    pub(super) fn expect(&self, wanted: &Identity, folder: &Path) -> Result<()> {
        let of = |identity: &Identity, name: &str| {
            let found = identity.iter().find(|(other, _)| other == name);
            found.map_or("none".to_owned(), |(_, value)| value.clone())
        };
        let names = wanted.iter().chain(&self.identity).map(|(name, _)| name.as_str());
        let found = names.map(|name| (name, of(&self.identity, name), of(wanted, name)));
        let Some((name, left, wanted)) = found.into_iter().find(|(_, left, wanted)| left != wanted) else {
            return Ok(());
        };
        Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("expected to continue an interrupted extraction with {name} `{left}`, found `{wanted}`"),
        )
        .with("file", folder.display())
        .with_hint("extract with the same options from the same files, or set `restart`, which begins anew"))
    }
}

/// What the bytes of an extraction depend on.
pub(super) fn identity(
    options: &ExtractOptions,
    name: &str,
    source: &Source<'_>,
    plan: &Plan,
    checkpoint: &dyn Checkpoint,
) -> Result<Identity> {
    let mut identity = Identity::new();
    let mut put = |name: &str, value: String| identity.push((name.to_owned(), value));
    put("version", env!("CARGO_PKG_VERSION").to_owned());
    put("level", options.level.as_str().to_owned());
    put("storage", options.storage.to_string());
    put("down_q4k", options.down_q4k.to_string());
    put("feature_major_down", options.feature_major_down.to_string());
    put("gate_vectors", options.gate_vectors.to_string());
    put("feature_tokens", options.feature_tokens.to_string());
    put("name", name.to_owned());
    for file in checkpoint.files() {
        let path = file.path();
        let meta = std::fs::metadata(path).map_err(|e| io_error(e, path, "inspect"))?;
        let changed = meta.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let changed = changed.map_or("an unknown time".to_owned(), |time| {
            format!("{}.{:09}", rfc3339(time.as_secs()), time.subsec_nanos())
        });
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        put(&format!("source {name}"), format!("{} bytes, changed at {changed}", meta.len()));
    }
    put("configuration", hex(Sha256::new_with_prefix(source.config().to_string())));
    put("layout", plan.hash()?);
    Ok(identity)
}
