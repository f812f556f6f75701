//! How do a tensor's rows become what is stored? In parallel, and the same for any number of threads.

use std::ops::Range;

use rayon::prelude::*;

use super::plan::Stored;
use super::source::SourceTensor;
use crate::cancel::CancelToken;
use crate::error::{Error, ErrorKind, Result};
use crate::weights::DType;
use crate::weights::quant::{encode_row, from_interleaved};

/// Values that one thread takes at a time.
const TASK: usize = 64 << 10;
/// Values that are encoded before they are written.
const BATCH: usize = 2 << 20;
/// Values of a matrix that is transposed in parts.
const PANEL: usize = 4 << 20;
/// Columns that are transposed together.
const TILE: usize = 16;

impl Stored {
    /// Rows that are encoded at a time.
    pub(super) fn batch(&self) -> usize {
        (BATCH / self.padded().max(1)).max(1)
    }

    /// Columns that are transposed at a time.
    pub(super) fn panel(&self) -> usize {
        (PANEL / self.shape[0].max(1)).max(1)
    }

    /// Encodes some rows into `out`, which is made as long as they are.
    ///
    /// # Errors
    /// [`ErrorKind::DTypeUnsupported`] for a number that the type cannot hold, [`ErrorKind::CheckpointInvalid`] for
    /// one that is none; [`ErrorKind::Cancelled`]; and what reading them finds.
    pub(super) fn encode_rows(
        &self,
        tensor: &SourceTensor,
        rows: Range<usize>,
        cancel: &CancelToken,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let [_, width] = self.shape;
        let row_bytes = self.row_bytes(width)?;
        out.clear();
        out.resize(rows.len().saturating_mul(row_bytes), 0);
        if out.is_empty() {
            return Ok(());
        }
        let at_once = (TASK / width.max(1)).max(1);
        first_error(out.par_chunks_mut(at_once * row_bytes).enumerate().map_init(
            Vec::new,
            |values: &mut Vec<f32>, (task, out)| {
                cancel.check()?;
                let first = rows.start + task * at_once;
                let n = out.len() / row_bytes;
                if self.copy_rows(tensor, first, row_bytes, out) {
                    return Ok(());
                }
                values.resize(n * width, 0.0);
                tensor.rows(first..first + n, values)?;
                for (i, (values, out)) in
                    values.chunks_exact(width).zip(out.chunks_exact_mut(row_bytes)).enumerate()
                {
                    encode_row(self.dtype, values, out)
                        .map_err(|at| self.unfit(first + i, at, values.get(at)))?;
                }
                Ok(())
            },
        ))
    }

    /// Encodes some of the transposed matrix's rows, which are columns here, into `out`. `room` is there to work in.
    ///
    /// # Errors
    /// As [`encode_rows`](Self::encode_rows).
    pub(super) fn encode_columns(
        &self,
        tensor: &SourceTensor,
        columns: Range<usize>,
        cancel: &CancelToken,
        room: &mut [Vec<f32>; 2],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let [rows, width] = self.shape;
        let row_bytes = self.row_bytes(rows)?;
        out.clear();
        out.resize(columns.len().saturating_mul(row_bytes), 0);
        let [panel, turned] = room;
        // Behind the matrix are zeros, which need not be zeros when they are encoded.
        self.turn(tensor, columns.start.min(width)..columns.end.min(width), cancel, panel, turned)?;
        turned.resize(columns.len().saturating_mul(rows), 0.0);
        if out.is_empty() || rows == 0 {
            return Ok(());
        }
        let at_once = (TASK / rows).max(1);
        let tasks = out.par_chunks_mut(at_once * row_bytes).zip(turned.par_chunks(at_once * rows));
        first_error(tasks.enumerate().map(|(task, (out, values))| {
            cancel.check()?;
            for (i, (values, out)) in
                values.chunks_exact(rows).zip(out.chunks_exact_mut(row_bytes)).enumerate()
            {
                let column = columns.start + task * at_once + i;
                encode_row(self.dtype, values, out).map_err(|at| self.unfit(at, column, values.get(at)))?;
            }
            Ok(())
        }))
    }

    /// Some columns of the matrix, one behind the other, into `turned`. `panel` is room to work in.
    ///
    /// # Errors
    /// [`ErrorKind::Cancelled`], and what reading the matrix finds.
    pub(super) fn turn(
        &self,
        tensor: &SourceTensor,
        columns: Range<usize>,
        cancel: &CancelToken,
        panel: &mut Vec<f32>,
        turned: &mut Vec<f32>,
    ) -> Result<()> {
        let [rows, width] = self.shape;
        let n = columns.len();
        for room in [&mut *panel, &mut *turned] {
            room.clear();
            room.resize(rows.saturating_mul(n), 0.0);
        }
        if panel.is_empty() {
            return Ok(());
        }
        let at_once = (TASK / width.max(1)).max(1);
        first_error(panel.par_chunks_mut(at_once * n).enumerate().map_init(
            Vec::new,
            |values: &mut Vec<f32>, (task, panel)| {
                cancel.check()?;
                let first = task * at_once;
                let rows = panel.len() / n;
                values.resize(rows * width, 0.0);
                tensor.rows(first..first + rows, values)?;
                for (values, panel) in values.chunks_exact(width).zip(panel.chunks_exact_mut(n)) {
                    panel.copy_from_slice(values.get(columns.clone()).unwrap_or_default());
                }
                Ok(())
            },
        ))?;
        // A few columns at a time, so that each line of the panel is read once.
        turned.par_chunks_mut(TILE * rows).enumerate().for_each(|(tile, turned)| {
            for (row, panel) in panel.chunks_exact(n).enumerate() {
                let values = panel.get(tile * TILE..).unwrap_or_default();
                for (column, &x) in turned.chunks_exact_mut(rows).zip(values) {
                    column[row] = x;
                }
            }
        });
        Ok(())
    }

    /// Copies rows that are stored in the wanted type already; `false` where they are not.
    fn copy_rows(&self, tensor: &SourceTensor, first: usize, row_bytes: usize, out: &mut [u8]) -> bool {
        self.dtype.is_quantised()
            && out.chunks_exact_mut(row_bytes).enumerate().all(|(i, out)| {
                match tensor.stored_row(first + i) {
                    Some((dtype, bytes)) if dtype == self.dtype && bytes.len() == out.len() => {
                        out.copy_from_slice(bytes);
                        true
                    }
                    Some((DType::Q6_K, bytes))
                        if self.dtype == DType::Q6_K_Linear && bytes.len() == out.len() =>
                    {
                        from_interleaved(bytes, out);
                        true
                    }
                    _ => false,
                }
            })
    }

    /// A number that cannot be stored.
    fn unfit(&self, row: usize, column: usize, value: Option<&f32>) -> Error {
        let value = value.copied().unwrap_or(f32::NAN);
        let error = if value.is_finite() {
            Error::new(
                ErrorKind::DTypeUnsupported,
                format!("expected numbers that fit into {}, found {value}", self.dtype),
            )
            .with_hint("extract with the storage f32")
        } else {
            Error::new(ErrorKind::CheckpointInvalid, format!("expected finite numbers, found {value}"))
                .with_hint("the source is damaged, or its training diverged: fetch it again")
        };
        error.with("tensor", &self.key).with("row", row).with("column", column)
    }
}

/// The error of the first task that has one, whichever ended first.
fn first_error(results: impl IndexedParallelIterator<Item = Result<()>>) -> Result<()> {
    results.find_map_first(Result::err).map_or(Ok(()), Err)
}
