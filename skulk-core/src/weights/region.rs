//! What is one tensor's memory? Its type, shape and bytes, wherever they lie.

use std::sync::Arc;

use super::mmap::{MappedFile, Mapping};
use super::resident::Piece;
use super::{DType, Memory, TensorInfo};
use crate::cancel::CancelToken;
use crate::error::{Detail, Error, ErrorKind, Result};

/// One tensor, mapped or [resident](Self::resident). Cloning shares its memory, which is given back
/// with the last clone.
#[derive(Debug, Clone)]
pub struct Region {
    name: Arc<str>,
    dtype: DType,
    shape: Arc<[usize]>,
    file: MappedFile,
    offset: u64,
    bytes: Bytes,
}

#[derive(Debug, Clone)]
enum Bytes {
    Mapped(Arc<Mapping>),
    Resident(Arc<Piece>),
}

impl Region {
    pub(crate) fn map(file: &MappedFile, info: &TensorInfo) -> Result<Self> {
        let region = Self {
            name: info.name.as_str().into(),
            dtype: info.dtype,
            shape: info.shape.as_slice().into(),
            file: file.clone(),
            offset: info.offset,
            bytes: Bytes::Mapped(file.share(info.offset, info.len)?),
        };
        let expected = region.rows().checked_mul(region.row_bytes()?);
        if expected != Some(region.bytes().len()) {
            return Err(Error::new(
                ErrorKind::CheckpointInvalid,
                "the tensor's size does not follow from its shape and type",
            )
            .with("file", file.path().display())
            .with("tensor", &info.name));
        }
        Ok(region)
    }

    /// The tensor's name in its checkpoint.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How elements are stored.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Row-major shape, outermost dimension first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The stored bytes, where they lie.
    pub fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(mapping) => mapping,
            Bytes::Resident(piece) => piece,
        }
    }

    /// Where the bytes lie: [`Memory::Mapped`] or [`Memory::Resident`].
    pub fn memory(&self) -> Memory {
        match &self.bytes {
            Bytes::Mapped(_) => Memory::Mapped,
            Bytes::Resident(_) => Memory::Resident,
        }
    }

    /// The same tensor read into memory, as [`Memory::Resident`] says; looks at `cancel` every few
    /// megabytes. While anybody holds it, the same opened file gives the same memory again. A tensor
    /// without bytes, and one that overlaps another that is held, stays mapped.
    ///
    /// # Errors
    /// [`ErrorKind::CheckpointTruncated`] when the file shrank since opening, [`ErrorKind::FileIo`]
    /// when it cannot be read, [`ErrorKind::OutOfMemory`], [`ErrorKind::Cancelled`].
    pub fn resident(mut self, cancel: &CancelToken) -> Result<Self> {
        if let Bytes::Mapped(mapping) = &self.bytes
            && !mapping.is_empty()
        {
            let read = self.file.read(self.offset, mapping.len() as u64, cancel);
            if let Some(piece) = read.map_err(|e| e.with("tensor", &self.name))? {
                self.bytes = Bytes::Resident(piece);
            }
        }
        Ok(self)
    }

    /// Elements in a row: the innermost dimension; 1 for a scalar.
    pub fn row_len(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// Number of rows: all but the innermost dimension.
    pub fn rows(&self) -> usize {
        self.shape.split_last().map_or(1, |(_, outer)| outer.iter().product())
    }

    /// Bytes of one row.
    ///
    /// # Errors
    /// [`ErrorKind::TensorShape`] when the row is no whole number of blocks.
    pub fn row_bytes(&self) -> Result<usize> {
        self.dtype.row_bytes(self.row_len()).ok_or_else(|| {
            Error::new(
                ErrorKind::TensorShape,
                format!("rows of {} elements are no whole number of {} blocks", self.row_len(), self.dtype),
            )
            .with("tensor", &self.name)
        })
    }

    /// `Ok` when the shape is `expected`.
    ///
    /// # Errors
    /// [`ErrorKind::TensorShape`] naming both shapes.
    pub fn expect_shape(&self, expected: &[usize]) -> Result<()> {
        if *self.shape == *expected {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::TensorShape,
            format!("expected shape {expected:?}, found {:?}", self.shape),
        )
        .with("tensor", &self.name)
        .with_detail(Detail::Shape { expected: expected.to_vec(), found: self.shape.to_vec() })
        .with_hint("the weights do not belong to this configuration"))
    }

    /// Tells the system that the tensor will be used soon.
    pub fn will_need(&self) {
        if let Bytes::Mapped(mapping) = &self.bytes {
            mapping.will_need();
        }
    }
}
