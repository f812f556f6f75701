//! What has a checkpoint beside weights? Tensors that nothing is computed with, and their numbers where these are integers.

use std::collections::BTreeMap;

use super::{Checkpoint, DType, TensorInfo};
use crate::error::{Error, ErrorKind, Result};

/// A tensor of a type that skulk does not compute with. Many checkpoints carry one that no model
/// part asks for, so it is an error only when asked for.
#[derive(Debug, Clone)]
pub(crate) struct UnreadableTensor {
    pub(crate) name: String,
    /// The format's label of the type.
    pub(crate) dtype: String,
    pub(crate) shape: Vec<usize>,
    /// Byte offset from the start of the file.
    pub(crate) offset: u64,
    /// Length in bytes.
    pub(crate) len: u64,
}

impl UnreadableTensor {
    /// The same of a type that it turned out to be of, in the file of that number.
    pub(crate) fn of_type(&self, dtype: DType, file: usize) -> TensorInfo {
        TensorInfo::new(&self.name, dtype, &*self.shape, file, self.offset, self.len)
    }
}

/// Such tensors by name, each with the number of its file.
pub(crate) type Unreadable = BTreeMap<String, (usize, UnreadableTensor)>;

/// Those of a file, likewise.
pub(crate) fn by_name(
    tensors: Vec<UnreadableTensor>,
    file: usize,
) -> impl Iterator<Item = (String, (usize, UnreadableTensor))> {
    tensors.into_iter().map(move |t| (t.name.clone(), (file, t)))
}

/// See [`Checkpoint::integers`], of a checkpoint with these tensors beside its weights.
pub(crate) fn integers(
    checkpoint: &impl Checkpoint,
    unreadable: &Unreadable,
    name: &str,
    len: usize,
) -> Result<Option<Vec<i64>>> {
    let wrong = |kind, message: String| {
        let error = Error::new(kind, message).with("file", checkpoint.path().display()).with("tensor", name);
        Err(error.with_hint("the file is broken or another model's: fetch it again"))
    };
    let no_integers = |found: &str| {
        wrong(ErrorKind::DTypeUnsupported, format!("expected integers of type I64 or I32, found {found}"))
    };
    let Some((file, tensor)) = unreadable.get(name) else {
        return checkpoint.tensor(name).map_or(Ok(None), |info| no_integers(info.dtype.label()));
    };
    if tensor.shape != [len] {
        let message = format!("expected {len} integers in a row, found shape {:?}", tensor.shape);
        return wrong(ErrorKind::TensorShape, message);
    }
    let file = checkpoint.files().get(*file).ok_or_else(|| {
        Error::new(ErrorKind::Internal, "a tensor names a file that is not open").with("tensor", name)
    })?;
    let bytes = file.read_part(tensor.offset, tensor.len)?;
    match &*tensor.dtype {
        "I64" => {
            let (numbers, _) = bytes.as_chunks();
            Ok(Some(numbers.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect()))
        }
        "I32" => {
            let (numbers, _) = bytes.as_chunks();
            Ok(Some(numbers.iter().map(|bytes| i32::from_le_bytes(*bytes).into()).collect()))
        }
        found => no_integers(found),
    }
}
