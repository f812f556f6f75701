//! What is one tensor's memory? Its type, shape and bytes, borrowed from the map.

use std::sync::Arc;

use super::mmap::{MappedFile, Mapping};
use super::{DType, TensorInfo};
use crate::error::{Detail, Error, ErrorKind, Result};

/// One tensor, mapped. Cloning shares the mapping; the pages are unmapped with the last clone.
#[derive(Debug, Clone)]
pub struct Region {
    name: Arc<str>,
    dtype: DType,
    shape: Arc<[usize]>,
    bytes: Arc<Mapping>,
}

impl Region {
    pub(crate) fn map(file: &MappedFile, info: &TensorInfo) -> Result<Self> {
        let region = Self {
            name: info.name.as_str().into(),
            dtype: info.dtype,
            shape: info.shape.as_slice().into(),
            bytes: file.share(info.offset, info.len)?,
        };
        let expected = region.rows().checked_mul(region.row_bytes()?);
        if expected != Some(region.bytes.len()) {
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

    /// The stored bytes, straight from the map.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
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

    /// Tells the system that the tensor will be read soon.
    pub fn will_need(&self) {
        self.bytes.will_need();
    }
}
