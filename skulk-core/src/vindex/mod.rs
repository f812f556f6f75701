//! What is in a vindex folder? Its index, its manifests, and tensors in the files that they describe.
//!
//! A vindex is a model's weights as LARQL reorganises them: gate rows as a nearest-neighbour index,
//! embeddings as look-ups, down projections as edge labels. Format: `docs/formats/vindex.md`.

mod bands;
mod config;
mod contents;
pub(crate) mod down_meta;
pub(crate) mod files;
pub(crate) mod folder;
pub(crate) mod hashes;
mod index;
mod layer_file;
mod manifest;
pub(crate) mod parts;
pub(crate) mod pieces;
mod place;
mod progress;
mod ranges;
mod reader;
mod slice;
mod tensors;
mod verify;

pub use contents::{PartFile, PartInfo};
pub use down_meta::{DownMeta, FeatureTokens};
pub use files::VindexPart;
pub use index::{
    SkulkExtra, SliceExtra, VindexBands, VindexIndex, VindexLayer, VindexLevel, VindexModel, VindexMoe,
    VindexQuant, VindexSource,
};
pub use layer_file::{LayerEntry, LayerHeader};
pub use manifest::{QuantEntry, WeightEntry, WeightKind, read_quant_manifest, read_weight_manifest};
pub use progress::{VindexCallback, VindexProgress};
pub use reader::{VindexMetadata, VindexReader};
pub use slice::{SliceCopy, SliceMethod, SliceOptions, SlicePreset, SliceReport, SlicedFile};
pub use verify::{
    VerifiedFile, VerifyKind, VerifyOptions, VerifyProblem, VerifyReport, VerifyStatus, verify_vindex,
};

pub(crate) use files::INDEX;

use std::path::Path;

use crate::error::{Error, ErrorKind, Result};
pub(crate) use crate::weights::PADDED;
use crate::weights::mmap;

/// `Ok` for a number of threads that can be had.
pub(crate) fn check_threads(threads: usize) -> Result<()> {
    const MOST: usize = 1024;
    if (1..=MOST).contains(&threads) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidArgument, format!("expected 1 to {MOST} threads, found {threads}"))
        .with("field", "threads")
        .with_hint("use the number of cores you want to give to this"))
}

/// The number of 32 bits at an offset; 0 behind the end.
fn number(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b))
}

/// The folder is no vindex.
fn no_index(folder: &Path) -> Error {
    Error::new(ErrorKind::FileNotFound, "expected an index.json in the folder, found none")
        .with("file", folder.join(INDEX).display())
        .with_hint("give the folder that holds the vindex")
}

/// A file breaks the format.
fn invalid(message: impl Into<String>, path: &Path) -> Error {
    Error::new(ErrorKind::CheckpointInvalid, message.into())
        .with("file", path.display())
        .with_hint("the folder is damaged or hostile: extract or fetch it again")
}

/// A file ends before what it is to hold.
fn truncated(offset: u64, len: u64, size: u64, path: &Path) -> Error {
    mmap::truncated(path, offset, len, size).with("offset", offset)
}
