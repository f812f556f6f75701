//! Where do a model's weights lie? Checkpoints, and tensors in their memory map or read from it.
//!
//! A [`Checkpoint`] is opened from its header alone. [`Checkpoint::region`] then maps one tensor's
//! bytes, and [`Region::resident`] reads them into memory; whoever holds the [`Region`] keeps
//! exactly those pages and nothing else.

mod dtype;
mod fp8;
pub mod gguf;
mod memory;
mod mlx;
pub(crate) mod mmap;
mod mxfp4;
mod open;
pub(crate) mod quant;
mod rearranged;
mod region;
mod resident;
pub mod safetensors;
mod unreadable;
mod woven;

use std::path::Path;

pub use dtype::DType;
pub use memory::Memory;
#[cfg(feature = "generate")]
pub(crate) use memory::process_memory;
pub(crate) use memory::{available_memory, total_memory};
pub use mmap::MappedFile;
pub(crate) use mmap::{io_error, may_be_replaced};
pub use open::open_checkpoint;
pub(crate) use open::open_drafts;
pub(crate) use rearranged::Outputs;
pub(crate) use region::PADDED;
pub use region::Region;
pub(crate) use region::ScaleRows;
use unreadable::UnreadableTensor;
#[cfg(test)]
pub(crate) use woven::Weave;

use crate::error::{Error, ErrorKind, Result};
use crate::vindex::VindexMetadata;

/// One tensor as its file's header describes it; nothing is mapped yet.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorInfo {
    /// The tensor's name in the checkpoint's own spelling.
    pub name: String,
    /// How its elements are stored.
    pub dtype: DType,
    /// Row-major shape, outermost dimension first: a matrix is `[rows, row length]`.
    pub shape: Vec<usize>,
    /// Which of [`Checkpoint::files`] holds it.
    pub file: usize,
    /// Byte offset from the start of that file.
    pub offset: u64,
    /// Length in bytes; of types that have scales beside them its elements', as scales and biases are tensors of their own.
    pub len: u64,
}

impl TensorInfo {
    /// A tensor whose `len` bytes lie at `offset` of the checkpoint's file of that number.
    pub fn new(
        name: impl Into<String>,
        dtype: DType,
        shape: impl Into<Vec<usize>>,
        file: usize,
        offset: u64,
        len: u64,
    ) -> Self {
        Self { name: name.into(), dtype, shape: shape.into(), file, offset, len }
    }

    /// How many elements it has.
    pub(crate) fn elements(&self) -> u64 {
        self.shape.iter().fold(1, |n, dim| n.saturating_mul(*dim as u64))
    }
}

/// What the checkpoint says about the model, in its own format.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Metadata<'a> {
    /// The key-value section of a GGUF file.
    Gguf(&'a gguf::GgufMetadata),
    /// A Hugging Face folder.
    HuggingFace(&'a safetensors::HfMetadata),
    /// A vindex folder.
    Vindex(&'a VindexMetadata),
}

/// A place that weights come from, tensor by tensor; never read whole.
pub trait Checkpoint: Send + Sync {
    /// The path it was opened from.
    fn path(&self) -> &Path;

    /// What it says about the model.
    fn metadata(&self) -> Metadata<'_>;

    /// The weight files, in shard order.
    fn files(&self) -> &[MappedFile];

    /// Every tensor, sorted by name.
    fn tensors(&self) -> &[TensorInfo];

    /// One tensor's description, or `None` when the checkpoint lacks it.
    fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        let tensors = self.tensors();
        let at = tensors.binary_search_by(|t| t.name.as_str().cmp(name)).ok()?;
        tensors.get(at)
    }

    /// Maps one tensor.
    ///
    /// # Errors
    /// [`ErrorKind::TensorMissing`] when the checkpoint lacks it, [`ErrorKind::FileIo`] when the
    /// system cannot map it, [`ErrorKind::CheckpointTruncated`] when the file shrank since opening.
    fn region(&self, name: &str) -> Result<Region> {
        map_region(self, name)
    }

    /// The numbers of a tensor of integers of 32 or 64 bits, which is no weight; `None` where there is none.
    ///
    /// # Errors
    /// [`ErrorKind::TensorShape`] where they are not so many in one row; as [`region`](Self::region).
    fn integers(&self, _name: &str, _len: usize) -> Result<Option<Vec<i64>>> {
        Ok(None)
    }
}

/// Bytes that a tensor takes with what lies beside it; `None` when the checkpoint lacks it.
pub(crate) fn stored_bytes(checkpoint: &dyn Checkpoint, name: &str) -> Option<u64> {
    let info = checkpoint.tensor(name)?;
    let beside = beside(info).into_iter().filter_map(|name| checkpoint.tensor(&name));
    Some(beside.fold(info.len, |sum, info| sum.saturating_add(info.len)))
}

/// What may lie beside a tensor, of a type that has scales there: tensors of which a checkpoint has some.
pub(crate) fn beside(info: &TensorInfo) -> Vec<String> {
    let mut names = Vec::new();
    if info.dtype.has_scales_beside() {
        names.extend(mlx::beside(&info.name));
    }
    if info.dtype == DType::FP4 {
        names.push(mxfp4::scales(&info.name));
    }
    if info.dtype == DType::FP8 {
        names.extend(fp8::beside(&info.name));
    }
    names
}

/// What all checkpoints answer from fields of these names: `checkpoint_fields!(Kind)` of those whose metadata are
/// `Metadata::Kind`.
macro_rules! checkpoint_fields {
    ($kind:ident) => {
        fn path(&self) -> &std::path::Path {
            &self.path
        }

        fn metadata(&self) -> $crate::weights::Metadata<'_> {
            $crate::weights::Metadata::$kind(&self.metadata)
        }

        fn files(&self) -> &[$crate::weights::MappedFile] {
            &self.files
        }

        fn tensors(&self) -> &[$crate::weights::TensorInfo] {
            &self.tensors
        }
    };
}
pub(crate) use checkpoint_fields;

/// The first two neighbours of a sorted list that are as they must not be.
pub(crate) fn neighbours<T>(sorted: &[T], is_wrong: impl Fn(&T, &T) -> bool) -> Option<(&T, &T)> {
    let mut pairs = sorted.iter().zip(sorted.iter().skip(1));
    pairs.find(|(a, b)| is_wrong(a, b))
}

/// A checkpoint's file breaks its format.
fn damaged(message: String, path: &Path) -> Error {
    Error::new(ErrorKind::CheckpointInvalid, message)
        .with("file", path.display())
        .with_hint("the file is damaged or hostile: fetch it again from a source you trust")
}

/// A checkpoint's file ends too soon.
fn incomplete(message: String, path: &Path) -> Error {
    Error::new(ErrorKind::CheckpointTruncated, message)
        .with("file", path.display())
        .with_hint("the file is incomplete: fetch it again")
}

/// Maps one of the tensors that a checkpoint lists.
pub(crate) fn map_region<C: Checkpoint + ?Sized>(checkpoint: &C, name: &str) -> Result<Region> {
    let info = checkpoint.tensor(name).ok_or_else(|| {
        Error::new(
            ErrorKind::TensorMissing,
            "the model needs a tensor that the checkpoint lacks",
        )
        .with("file", checkpoint.path().display())
        .with("tensor", name)
        .with_hint("the file is incomplete or of another architecture: fetch it again, or convert it with a current tool")
    })?;
    let file = checkpoint.files().get(info.file).ok_or_else(|| {
        Error::new(ErrorKind::Internal, "a tensor names a file that is not open").with("tensor", name)
    })?;
    Region::map(file, info)
}
