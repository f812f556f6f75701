//! Which kind of checkpoint lies at this path? Decided by what files hold, not what they are called.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Checkpoint;
use super::gguf::{self, GgufCheckpoint, ShardName};
use super::mmap::{io_error, open_regular};
use super::safetensors::{self, HfCheckpoint};
use crate::error::{Error, ErrorKind, Result};
use crate::vindex::{self, VindexReader};

/// What can be opened, for hints.
const ACCEPTED: &str = "give a GGUF file, a safetensors file, or a folder with model.safetensors, model.safetensors.index.json, a vindex's index.json or one GGUF model";
/// File names that a message lists at most.
const LISTED: usize = 8;

/// Opens the checkpoint at `path`: a GGUF file or any shard of a split set, a safetensors file, or
/// a folder with safetensors, a vindex or exactly one GGUF model. Reads headers only; weights are
/// mapped when asked for.
///
/// # Errors
/// [`ErrorKind::FileNotFound`] when there is nothing at the path, or no model in the folder;
/// [`ErrorKind::InvalidArgument`] when the folder holds several GGUF models;
/// [`ErrorKind::CheckpointInvalid`] when the file is no checkpoint, or a damaged one;
/// [`ErrorKind::CheckpointTruncated`] when it is empty or cut off; [`ErrorKind::ConfigInvalid`],
/// [`ErrorKind::DTypeUnsupported`] and [`ErrorKind::FileIo`] as [`GgufCheckpoint::open`],
/// [`HfCheckpoint::open`] and [`VindexReader::open`] say.
pub fn open_checkpoint(path: impl AsRef<Path>) -> Result<Arc<dyn Checkpoint>> {
    let path = path.as_ref();
    let meta = std::fs::metadata(path).map_err(|e| io_error(e, path, "find"))?;
    if meta.is_dir() {
        return open_folder(path);
    }
    let start = read_start(path)?;
    if start.starts_with(gguf::MAGIC) {
        return Ok(Arc::new(GgufCheckpoint::open(path)?));
    }
    if is_safetensors(&start, path) {
        return Ok(Arc::new(HfCheckpoint::open(path)?));
    }
    if start.is_empty() {
        return Err(Error::new(ErrorKind::CheckpointTruncated, "expected a checkpoint, found an empty file")
            .with("file", path.display())
            .with_hint("the file is incomplete: fetch it again"));
    }
    let (found, hint) = describe(&start);
    Err(Error::new(
        ErrorKind::CheckpointInvalid,
        format!("expected a GGUF or safetensors file, found {found}"),
    )
    .with("file", path.display())
    .with_hint(hint))
}

/// The file of a head for tokens ahead in a folder of its own.
const SIDECAR: &str = "mtp.safetensors";

/// Opens what drafts for a model, which may be a file of a head without a description, or its folder.
pub(crate) fn open_drafts(path: &Path) -> Result<Arc<dyn Checkpoint>> {
    let lacks = match open_checkpoint(path) {
        Err(error) if error.kind() == ErrorKind::FileNotFound => error,
        found => return found,
    };
    let file = if path.is_dir() { path.join(SIDECAR) } else { path.to_owned() };
    match file.is_file() {
        true => Ok(Arc::new(HfCheckpoint::open_part(file)?)),
        false => Err(lacks),
    }
}

fn open_folder(folder: &Path) -> Result<Arc<dyn Checkpoint>> {
    if [safetensors::SINGLE, safetensors::INDEX].iter().any(|name| folder.join(name).exists()) {
        return Ok(Arc::new(HfCheckpoint::open(folder)?));
    }
    if folder.join(vindex::INDEX).exists() {
        return Ok(Arc::new(VindexReader::open(folder)?));
    }
    let mut names = file_names(folder)?;
    names.sort_unstable();
    // A split set counts once, by its first shard.
    let mut models = BTreeMap::new();
    for name in &names {
        if name.extension().is_some_and(|e| e == "gguf") {
            models.entry(model_name(name)).or_insert(name);
        }
    }
    let models: Vec<&PathBuf> = models.into_values().collect();
    match models[..] {
        [one] => Ok(Arc::new(GgufCheckpoint::open(folder.join(one))?)),
        [] => Err(Error::new(
            ErrorKind::FileNotFound,
            format!("expected a model in the folder, found {}", list(&names)),
        )
        .with("file", folder.display())
        .with_hint(ACCEPTED)),
        _ => Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("expected one GGUF model in the folder, found {}: {}", models.len(), list(models)),
        )
        .with("file", folder.display())
        .with_hint("give the path of the GGUF file that you mean")),
    }
}

/// What all shards of a split set share; a single file's own name.
fn model_name(name: &Path) -> (String, u64) {
    match ShardName::parse(name) {
        Some(shard) => (shard.prefix.to_owned(), shard.count),
        None => (name.to_string_lossy().into_owned(), 0),
    }
}

fn file_names(folder: &Path) -> Result<Vec<PathBuf>> {
    std::fs::read_dir(folder)
        .and_then(|entries| entries.map(|e| Ok(e?.file_name().into())).collect())
        .map_err(|e| io_error(e, folder, "list"))
}

fn list<P: AsRef<Path>>(names: impl AsRef<[P]>) -> String {
    let names = names.as_ref();
    if names.is_empty() {
        return "nothing".to_owned();
    }
    let mut listed: Vec<String> =
        names.iter().take(LISTED).map(|name| name.as_ref().display().to_string()).collect();
    if names.len() > LISTED {
        listed.push(format!("and {} more", names.len() - LISTED));
    }
    listed.join(", ")
}

/// The file's first bytes, as many as telling formats apart takes.
fn read_start(path: &Path) -> Result<Vec<u8>> {
    let mut start = Vec::new();
    open_regular(path)?.take(64).read_to_end(&mut start).map_err(|e| io_error(e, path, "read"))?;
    Ok(start)
}

/// Safetensors files have no magic number: a length, then a JSON object. A file that is called one
/// is taken for one too, so that its error says what is broken.
fn is_safetensors(start: &[u8], path: &Path) -> bool {
    let named = path.extension().is_some_and(|e| e == "safetensors");
    start.get(8) == Some(&b'{') && start.get(6..8) == Some(&[0, 0])
        || named && !start.is_empty() && describe(start).0 == UNKNOWN
}

const UNKNOWN: &str = "a file of unknown format";

/// What a file that is no checkpoint looks like, and what to do about it.
fn describe(start: &[u8]) -> (&'static str, &'static str) {
    const CONVERT: &str = "convert the model to safetensors, or fetch a GGUF file of it";
    let looks: &[(&[u8], &str, &str)] = &[
        (b"PK\x03\x04", "a PyTorch checkpoint or another zip file", CONVERT),
        (b"\x80\x02", "a pickle, probably an old PyTorch checkpoint", CONVERT),
        (b"\x80\x04", "a pickle, probably an old PyTorch checkpoint", CONVERT),
        (b"\x89HDF", "an HDF5 file", CONVERT),
        (b"lmgg", "a GGML file from before GGUF", CONVERT),
        (b"fmgg", "a GGML file from before GGUF", CONVERT),
        (b"tjgg", "a GGML file from before GGUF", CONVERT),
        (
            b"version https://git-lfs",
            "a Git LFS pointer instead of the file's contents",
            "run `git lfs pull`, or fetch the file itself",
        ),
        (b"<", "a web page or XML", "the download failed: fetch the file again"),
        (b"{", "JSON", "give the folder that holds the model, not its configuration"),
        (b"\x1f\x8b", "a gzip archive", "unpack the archive first"),
    ];
    looks
        .iter()
        .find(|(magic, ..)| start.starts_with(magic))
        .map_or((UNKNOWN, ACCEPTED), |&(_, found, hint)| (found, hint))
}
