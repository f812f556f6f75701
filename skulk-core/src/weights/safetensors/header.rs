//! What does the header of one safetensors file say? Where each tensor lies, and which ones skulk
//! cannot read.

use std::path::Path;

use safetensors::tensor::{Dtype, Metadata};

use crate::error::Result;
use crate::weights::{DType, MappedFile, TensorInfo, UnreadableTensor, damaged, incomplete};

/// Bytes of the length field that every file starts with.
const LENGTH_BYTES: u64 = 8;
/// The format's limit on the header that follows.
const HEADER_MAX: u64 = 100_000_000;

/// The checked header of one safetensors file.
#[derive(Debug)]
pub struct SafetensorsHeader {
    pub(super) tensors: Vec<TensorInfo>,
    pub(super) unreadable: Vec<UnreadableTensor>,
}

impl SafetensorsHeader {
    /// Reads the header of a whole file's `bytes`. The `path` only serves messages.
    ///
    /// # Errors
    /// [`ErrorKind::CheckpointInvalid`] when the header breaks the format,
    /// [`ErrorKind::CheckpointTruncated`] when the bytes end before the header or the data do.
    pub fn parse(bytes: &[u8], path: &Path) -> Result<Self> {
        let file_len = bytes.len() as u64;
        let header_len = header_len(bytes, file_len, path)?;
        let json = usize::try_from(LENGTH_BYTES + header_len)
            .ok()
            .and_then(|end| bytes.get(LENGTH_BYTES as usize..end))
            .unwrap_or_default();
        Self::read(json, file_len, path)
    }

    /// Reads the header of `file`; nothing stays mapped.
    pub(crate) fn map(file: &MappedFile) -> Result<Self> {
        let length = file.map(0, LENGTH_BYTES.min(file.len()))?;
        let header_len = header_len(&length, file.len(), file.path())?;
        let json = file.map(LENGTH_BYTES, header_len)?;
        Self::read(&json, file.len(), file.path())
    }

    /// Every tensor of a readable type, sorted by name. [`TensorInfo::file`] is 0.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// Name and type of every tensor that skulk does not read, sorted by name.
    pub fn unreadable(&self) -> impl Iterator<Item = (&str, &str)> {
        self.unreadable.iter().map(|t| (t.name.as_str(), t.dtype.as_str()))
    }

    fn read(json: &[u8], file_len: u64, path: &Path) -> Result<Self> {
        // Not `SafeTensors::read_metadata`, whose last sum overflows on offsets near 2^64. The
        // metadata itself is checked here: shapes against sizes, no holes, no overlaps.
        let metadata: Metadata = serde_json::from_slice(json).map_err(|e| {
            damaged(
                "expected a header in JSON that lists each tensor's type, shape and place, without gaps or overlaps".into(),
                path,
            )
            .with_source(e)
        })?;

        let data_start = LENGTH_BYTES + json.len() as u64;
        let data_len = metadata.data_len() as u64;
        match data_start.checked_add(data_len) {
            Some(end) if end == file_len => {}
            Some(end) if end < file_len => {
                return Err(damaged(format!("expected a file of {end} bytes, found {file_len}"), path));
            }
            _ => {
                return Err(incomplete(
                    format!(
                        "expected {data_len} bytes of tensors from offset {data_start}, but the file has {file_len} bytes"
                    ),
                    path,
                ));
            }
        }

        let mut header = Self { tensors: Vec::new(), unreadable: Vec::new() };
        for (name, info) in metadata.tensors() {
            let (start, end) = info.data_offsets;
            let (offset, len) = (data_start + start as u64, (end - start) as u64);
            let shape = info.shape.clone();
            match dtype(info.dtype) {
                Some(dtype) => header.tensors.push(TensorInfo { name, dtype, shape, file: 0, offset, len }),
                None => {
                    let dtype = info.dtype.to_string();
                    header.unreadable.push(UnreadableTensor { name, dtype, shape, offset, len });
                }
            }
        }
        header.tensors.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        header.unreadable.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(header)
    }
}

/// The length field, checked against the file.
fn header_len(start: &[u8], file_len: u64, path: &Path) -> Result<u64> {
    let Some((length, _)) = start.split_first_chunk() else {
        return Err(incomplete(
            format!("expected a file of at least {LENGTH_BYTES} bytes, found {file_len}"),
            path,
        ));
    };
    let length = u64::from_le_bytes(*length);
    if length > HEADER_MAX {
        return Err(damaged(
            format!("expected a header of at most {HEADER_MAX} bytes, found {length}"),
            path,
        ));
    }
    if LENGTH_BYTES + length > file_len {
        return Err(incomplete(
            format!("expected a header of {length} bytes, but the file has {file_len} bytes"),
            path,
        ));
    }
    Ok(length)
}

fn dtype(dtype: Dtype) -> Option<DType> {
    match dtype {
        Dtype::F32 => Some(DType::F32),
        Dtype::F16 => Some(DType::F16),
        Dtype::BF16 => Some(DType::BF16),
        _ => None,
    }
}
