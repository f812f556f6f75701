//! Where do activations stand? In a slot that holds the latest tensor of them.

use candle_core::{Device, Result as CandleResult, Tensor};

use super::failed;
use crate::error::Result;

/// A slot for rows on the device.
pub(crate) struct Buffer {
    rows: usize,
    width: usize,
    /// `[rows, width]`, each at most the slot's.
    value: Option<Tensor>,
}

impl Buffer {
    /// An empty slot for so many rows.
    pub(super) fn new(rows: usize, width: usize) -> Self {
        Self { rows, width, value: None }
    }

    /// Elements of a row that it is made for.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// Rows from `start` on; contiguous.
    pub(super) fn rows(&self, start: usize, rows: usize) -> CandleResult<Tensor> {
        match &self.value {
            Some(value) => value.narrow(0, start, rows),
            None => candle_core::bail!("expected activations, found an empty buffer"),
        }
    }

    /// The first `len` elements, which are whole rows.
    pub(super) fn host(&self, len: usize) -> CandleResult<Vec<f32>> {
        let width = self.rows(0, 1)?.dim(1)?;
        let values = self.rows(0, len / width.max(1))?.flatten_all()?.to_vec1::<f32>()?;
        if values.len() != len {
            candle_core::bail!("expected whole rows of {width}, found {len} values");
        }
        Ok(values)
    }

    /// Lets the result of a computation, if it succeeded, take the slot.
    pub(super) fn put(&mut self, value: CandleResult<Tensor>) -> Result<()> {
        self.value = Some(value.map_err(failed)?);
        Ok(())
    }

    /// Replaces the slot's first rows by a function of them.
    pub(super) fn update(
        &mut self,
        rows: usize,
        of: impl FnOnce(Tensor) -> CandleResult<Tensor>,
    ) -> Result<()> {
        let value = self.rows(0, rows).and_then(of);
        self.put(value)
    }

    /// Memory for all rows that parts are written to.
    pub(super) fn room(&mut self, width: usize, device: &Device) -> CandleResult<&Tensor> {
        let shape = (self.rows, width.min(self.width));
        let kept = self.value.take().filter(|value| value.dims2().is_ok_and(|dims| dims == shape));
        let value = kept.map_or_else(|| Tensor::zeros(shape, candle_core::DType::F32, device), Ok)?;
        Ok(self.value.insert(value))
    }
}
