//! What is one tensor's memory? Its type, shape and bytes, borrowed from the map.

use std::ops::Range;
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
    mapping: Arc<Mapping>,
    /// The region's bytes within the mapping.
    range: Range<usize>,
    /// Pages are read when they are used; nobody is told beforehand.
    on_demand: bool,
}

impl Region {
    pub(crate) fn map(file: &MappedFile, info: &TensorInfo) -> Result<Self> {
        let mapping = file.share(info.offset, info.len)?;
        let region = Self {
            name: info.name.as_str().into(),
            dtype: info.dtype,
            shape: info.shape.as_slice().into(),
            range: 0..mapping.len(),
            mapping,
            on_demand: false,
        };
        let expected = region.rows().checked_mul(region.row_bytes()?);
        if expected != Some(region.range.len()) {
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
        &self.mapping[self.range.clone()]
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

    /// The tensors that are stacked in this one, in order: views of the same mapping, one for each
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

    /// Tells the system that the tensor will be read soon, unless it is read
    /// [on demand](Self::on_demand).
    pub fn will_need(&self) {
        if !self.on_demand {
            self.mapping.will_need();
        }
    }
}
