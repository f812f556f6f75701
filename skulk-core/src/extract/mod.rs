//! How does a model become a vindex? From any checkpoint that this library reads, file by file, and continued where it
//! was interrupted.

mod encode;
mod feature_tokens;
mod index_json;
mod keys;
mod layout;
mod options;
mod output;
mod plan;
mod run;
mod source;
mod state;
mod target;
mod tokens;

use std::path::Path;

use serde_json::Value;

pub use options::{ExtractFile, ExtractOptions, ExtractReport, VindexStorage};

use self::feature_tokens::empty_tokens;
use self::keys::Keys;
use self::plan::{Plan, PlanFile};
use self::source::Source;
use crate::bytes::ByteSize;
use crate::error::{ErrorKind, Result};
use crate::macros::opaque;
use crate::tokenizer::Tokenizer;
use crate::weights::Checkpoint;

/// Writes a checkpoint's model as a vindex folder, which LARQL reads too.
///
/// Tensors are read, encoded and written one after the other, so that memory does not grow with the model. The folder
/// is made under a hidden name beside its place, and moved there when it is whole. After an error, a cancellation or a
/// kill, another [`write`](Self::write) with the same options continues where the last one ended.
///
/// ```no_run
/// use skulk::extract::{ExtractOptions, VindexStorage, VindexWriter};
/// let checkpoint = skulk::open_checkpoint("models/gemma-3-270m")?;
/// let options = ExtractOptions::default().storage(VindexStorage::Q4K);
/// let writer = VindexWriter::new(&*checkpoint, options)?;
/// println!("{} will be written", writer.bytes());
/// let report = writer.write("gemma-3-270m.vindex")?;
/// println!("{} files in {:?}", report.files.len(), report.elapsed);
/// # Ok::<(), skulk::Error>(())
/// ```
pub struct VindexWriter<'a> {
    checkpoint: &'a dyn Checkpoint,
    source: Source<'a>,
    options: ExtractOptions,
    /// The model's.
    name: String,
    keys: Keys,
    /// Which tokens have no text; `None` where no tokens of features are written.
    empty_tokens: Option<Vec<bool>>,
    plan: Plan,
}

opaque!(VindexWriter<'_>);

impl<'a> VindexWriter<'a> {
    /// Looks at the checkpoint's headers and lays out the folder. Nothing is written yet.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for options outside their values or ruled out
    /// by the model; [`ErrorKind::ArchUnsupported`] for a family that this version
    /// does not know; [`ErrorKind::TensorMissing`],
    /// [`ErrorKind::TensorShape`] and
    /// [`ErrorKind::DTypeUnsupported`] for tensors that the checkpoint lacks, has
    /// otherwise, or stores in a way that is not read;
    /// [`ErrorKind::ConfigInvalid`].
    pub fn new(checkpoint: &'a dyn Checkpoint, options: ExtractOptions) -> Result<Self> {
        options.validate()?;
        let source = Source::open(checkpoint)?;
        let model_type = source.config().get("model_type").and_then(Value::as_str).unwrap_or_default();
        let keys = Keys::new(model_type);
        let (tokenizer, lacking) = match options.feature_tokens {
            0 => (None, None),
            _ => match Tokenizer::from_checkpoint(checkpoint) {
                Ok(tokenizer) => (Some(tokenizer), None),
                Err(e) => (None, Some(e)),
            },
        };
        let empty_tokens = tokenizer.as_ref().map(|known| empty_tokens(known, source.arch().vocab_size));
        let mut plan = layout::plan(&source, keys, &options, tokenizer)?;
        if let Some(e) = lacking {
            plan.warnings.push(format!("no tokens of features, for want of a tokenizer: {e:?}"));
        }
        let name = options.name.clone().unwrap_or_else(|| name_of(checkpoint.path()));
        Ok(Self { checkpoint, source, options, name, keys, empty_tokens, plan })
    }

    /// Files that will be written, with their lengths, but for `index.json` and `skulk_hashes.json`, which are small
    /// and take what the others turn out to be.
    pub fn files(&self) -> Vec<ExtractFile> {
        self.plan.files.iter().map(PlanFile::to_report).collect()
    }

    /// Bytes of these files together: what there must be room for.
    pub fn bytes(&self) -> ByteSize {
        self.plan.files.iter().map(|file| ByteSize(file.len)).sum()
    }

    /// What somebody who uses the folder should know: what is left out, and what LARQL does not see of it.
    pub fn warnings(&self) -> &[String] {
        &self.plan.warnings
    }

    /// Writes the folder at `target`, which must not exist or be empty; folders above it are made. Until it is whole it
    /// is a hidden one beside it, `.NAME.partial`, which an interrupted extraction leaves, and the next one with the
    /// same options and an unchanged source continues.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] when the target is not empty or holds the
    /// source, and when an interrupted extraction had other options or another source, naming what differs;
    /// [`ErrorKind::FileIo`] when files cannot be read or written, as on a full disk, or
    /// another extraction to this target is at work;
    /// [`ErrorKind::DTypeUnsupported`] for numbers that the storage cannot hold,
    /// [`ErrorKind::CheckpointInvalid`] for what is no number, naming tensor, row
    /// and value; [`ErrorKind::Cancelled`].
    pub fn write(&self, target: impl AsRef<Path>) -> Result<ExtractReport> {
        run::write(self, target.as_ref()).map_err(|e| match e.kind() {
            ErrorKind::Cancelled => {
                e.with_hint("extract again with the same options and a fresh token: it continues")
            }
            _ => e,
        })
    }
}

/// What a model is called whose checkpoint lies there.
fn name_of(path: &Path) -> String {
    let name = if path.is_dir() { path.file_name() } else { path.file_stem() };
    // `.` and the like have no name of their own.
    let full = path.canonicalize().unwrap_or_default();
    let name = name.or(full.file_name());
    name.map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned())
}
