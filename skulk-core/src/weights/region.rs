//! What is one tensor's memory? Its type, shape and bytes, wherever they lie.

use std::ops::Range;
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
    /// Of the whole tensor in its file.
    offset: u64,
    bytes: Bytes,
    /// The region's bytes within those of the tensor.
    range: Range<usize>,
    /// Pages are read when they are used; nobody is told beforehand.
    on_demand: bool,
}

#[derive(Debug, Clone)]
enum Bytes {
    Mapped(Arc<Mapping>),
    Resident(Arc<Piece>),
}

impl Region {
    pub(crate) fn map(file: &MappedFile, info: &TensorInfo) -> Result<Self> {
        let mapping = file.share(info.offset, info.len)?;
        let region = Self {
            name: info.name.as_str().into(),
            dtype: info.dtype,
            shape: info.shape.as_slice().into(),
            file: file.clone(),
            offset: info.offset,
            range: 0..mapping.len(),
            bytes: Bytes::Mapped(mapping),
            on_demand: false,
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
        let bytes: &[u8] = match &self.bytes {
            Bytes::Mapped(mapping) => mapping,
            Bytes::Resident(piece) => piece,
        };
        &bytes[self.range.clone()]
    }

    /// Where the bytes lie: [`Memory::Mapped`] or [`Memory::Resident`].
    pub fn memory(&self) -> Memory {
        match &self.bytes {
            Bytes::Mapped(_) => Memory::Mapped,
            Bytes::Resident(_) => Memory::Resident,
        }
    }

    /// The same region, its whole tensor read into memory, as [`Memory::Resident`] says; looks at `cancel` every few
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

    /// The tensors that are stacked in this one, in order: views of the same bytes, one for each
    /// index of the outermost dimension. Of a vector or scalar there are none.
    pub fn parts(&self) -> impl ExactSizeIterator<Item = Self> + '_ {
        let (n, shape): (_, Arc<[usize]>) = match self.shape.split_first() {
            Some((&n, inner)) if !inner.is_empty() => (n, inner.into()),
            _ => (0, Arc::default()),
        };
        let len = self.range.len() / n.max(1);
        (0..n).map(move |at| {
            let start = self.range.start + at * len;
            Self { shape: Arc::clone(&shape), range: start..start + len, ..self.clone() }
        })
    }

    /// The same region for weights of which a step reads only a few, as of experts: no
    /// [`will_need`](Self::will_need) of it or its parts makes the system read pages ahead.
    #[must_use]
    pub fn on_demand(self) -> Self {
        Self { on_demand: true, ..self }
    }

    /// Tells the system that a mapped tensor will be read soon, unless it is read
    /// [on demand](Self::on_demand).
    pub fn will_need(&self) {
        if let Bytes::Mapped(mapping) = &self.bytes
            && !self.on_demand
        {
            mapping.will_need();
        }
    }
}
