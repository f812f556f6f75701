//! What does the header of one GGUF file say? Version, metadata, and where each tensor lies.

use std::path::Path;

use super::cursor::Cursor;
use super::metadata::{self, GgufMetadata};
use super::tensors::{self, TensorEntry};
use crate::error::{Error, ErrorKind, Result};
use crate::weights::mmap::Bytes;
use crate::weights::{MappedFile, TensorInfo, UnreadableTensor};

/// The first bytes of every GGUF file.
pub(in crate::weights) const MAGIC: &[u8; 4] = b"GGUF";

const ALIGNMENT_DEFAULT: u64 = 32;

/// The checked header of one GGUF file: its metadata and its table of tensors.
#[derive(Debug)]
pub struct GgufHeader {
    pub(super) metadata: GgufMetadata,
    pub(super) tensors: Vec<TensorInfo>,
    /// Integers, which are no weights.
    pub(super) integers: Vec<UnreadableTensor>,
}

impl GgufHeader {
    /// Reads the header of a whole file's `bytes`. The `path` only serves messages.
    ///
    /// # Errors
    /// [`ErrorKind::CheckpointInvalid`], [`ErrorKind::CheckpointTruncated`],
    /// [`ErrorKind::ConfigInvalid`] for a bad `general.alignment`, and
    /// [`ErrorKind::DTypeUnsupported`] for a tensor stored in a type that skulk does not read.
    pub fn parse(bytes: &[u8], path: &Path) -> Result<Self> {
        Self::read(bytes, path, |len| Ok(Bytes::Owned(bytes.get(..len).unwrap_or_default().to_vec())))
    }

    /// Reads the header of `file` and keeps nothing but the header mapped.
    pub(super) fn map(file: &MappedFile) -> Result<Self> {
        let whole = file.map_all()?;
        Self::read(&whole, file.path(), |len| Ok(Bytes::Mapped(file.map(0, len as u64)?.into())))
    }

    /// Reads the key-values of `file` alone, whatever its tensors are like.
    pub(super) fn map_metadata(file: &MappedFile) -> Result<GgufMetadata> {
        let whole = file.map_all()?;
        let mut cursor = Cursor::new(&whole, file.path());
        check_version(&mut cursor)?;
        cursor.u64("tensor count")?;
        let entries = metadata::read(&mut cursor)?;
        let bytes = Bytes::Mapped(file.map(0, cursor.position() as u64)?.into());
        Ok(GgufMetadata::new(file.path(), bytes, entries))
    }

    /// The key-value section.
    pub fn metadata(&self) -> &GgufMetadata {
        &self.metadata
    }

    /// Every tensor but integers, sorted by name.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    fn read(bytes: &[u8], path: &Path, keep: impl FnOnce(usize) -> Result<Bytes>) -> Result<Self> {
        let mut cursor = Cursor::new(bytes, path);
        check_version(&mut cursor)?;
        let tensor_count = cursor.count(TensorEntry::MIN_SIZE, "tensor count")?;
        let entries = metadata::read(&mut cursor)?;
        let tensors =
            (0..tensor_count).map(|_| TensorEntry::read(&mut cursor)).collect::<Result<Vec<_>>>()?;

        let header_len = cursor.position();
        let metadata = GgufMetadata::new(path, keep(header_len)?, entries);
        let alignment = alignment(&metadata)?;
        let data_start = (header_len as u64).next_multiple_of(alignment);
        let (tensors, integers) = tensors::place(tensors, alignment, data_start, bytes.len() as u64, path)?;
        Ok(Self { metadata, tensors, integers })
    }
}

pub(super) fn check_version(cursor: &mut Cursor<'_>) -> Result<()> {
    let magic = cursor.take(MAGIC.len(), "magic number")?;
    if magic != MAGIC {
        return Err(
            cursor.invalid(format!("expected a file that starts with GGUF, found the bytes {magic:02x?}"))
        );
    }
    let version = cursor.u32("version")?;
    match version {
        2 | 3 => Ok(()),
        1 => Err(cursor
            .invalid("expected GGUF version 2 or 3, found version 1".to_owned())
            .with_hint("convert the model again with a current tool")),
        _ if matches!(version.swap_bytes(), 1..=3) => Err(cursor
            .invalid("expected a little-endian GGUF file, found a big-endian one".to_owned())
            .with_hint("fetch the little-endian file, or convert the model again")),
        _ => Err(cursor.invalid(format!("expected GGUF version 2 or 3, found version {version}"))),
    }
}

fn alignment(metadata: &GgufMetadata) -> Result<u64> {
    const KEY: &str = "general.alignment";
    let alignment = metadata.opt_u64(KEY)?.unwrap_or(ALIGNMENT_DEFAULT);
    if alignment.is_power_of_two() && (8..=u32::MAX.into()).contains(&alignment) {
        return Ok(alignment);
    }
    Err(Error::new(
        ErrorKind::ConfigInvalid,
        format!("expected a power of two from 8 up to 2^31, found {alignment}"),
    )
    .with("file", metadata.file().display())
    .with("field", KEY)
    .with_hint("the file is damaged or hostile: fetch it again from a source you trust"))
}
