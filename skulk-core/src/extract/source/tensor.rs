//! What are the rows of this tensor? As numbers, and as stored where that changes no value.

use std::ops::Range;

use crate::error::{Error, ErrorKind, Result};
use crate::weights::{DType, Region};

/// One tensor of a [`Source`](super::Source), mapped as long as it is held.
pub(crate) struct SourceTensor {
    /// Rows and row length.
    pub(super) shape: [usize; 2],
    /// Its one row is the whole tensor.
    pub(super) is_vector: bool,
    pub(super) stored: Region,
    pub(super) rows: Rows,
    /// To every value.
    pub(super) added: f32,
}

/// Which stored row is the row of Hugging Face's tensor.
#[derive(Clone, Copy)]
pub(super) enum Rows {
    Same,
    /// The rotated rows of each head are interleaved: the first of one half, the first of the other, the second of
    /// one half, … (`permute` of llama.cpp's `convert_hf_to_gguf.py`).
    Pairs {
        /// Rows of a head.
        head: usize,
        /// Those of them that are rotated.
        rotary: usize,
    },
}

impl Rows {
    fn stored(self, row: usize) -> usize {
        match self {
            Rows::Pairs { head, rotary } if row % head < rotary => {
                let (at, half) = (row % head, rotary / 2);
                row - at + at % half * 2 + at / half
            }
            _ => row,
        }
    }
}

impl SourceTensor {
    /// Rows and row length; a vector is one row.
    pub(crate) fn shape(&self) -> [usize; 2] {
        self.shape
    }

    /// Whether checkpoints have it as a vector.
    pub(crate) fn is_vector(&self) -> bool {
        self.is_vector
    }

    /// The tensor in the checkpoint, where its rows are those of this one and nothing lies beside them.
    pub(crate) fn region(&self) -> Option<&Region> {
        let is_same = self.added == 0.0 && matches!(self.rows, Rows::Same);
        Some(&self.stored).filter(|region| is_same && !region.dtype().has_scales_beside())
    }

    /// The values of some rows, one row behind the other.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] when there are no such rows or `out` is not as long as they are.
    pub(crate) fn rows(&self, rows: Range<usize>, out: &mut [f32]) -> Result<()> {
        let [n, width] = self.shape;
        if rows.start > rows.end || rows.end > n || rows.len().checked_mul(width) != Some(out.len()) {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("expected rows of {n} by {width} numbers, found {rows:?} for {}", out.len()),
            )
            .with("field", "rows"));
        }
        if let (true, Rows::Pairs { .. }) = (self.is_vector, self.rows) {
            let mut values = vec![0.0; width];
            self.decode(0, &mut values);
            for (at, out) in out.iter_mut().enumerate() {
                *out = values.get(self.rows.stored(at)).copied().unwrap_or_default();
            }
        } else {
            for (row, out) in rows.zip(out.chunks_exact_mut(width)) {
                self.decode(self.stored_index(row), out);
            }
        }
        if self.added != 0.0 {
            out.iter_mut().for_each(|value| *value += self.added);
        }
        Ok(())
    }

    /// One row as it is stored, with its type, if its values are those that [`rows`](Self::rows) gives. Of a vindex,
    /// rows may be padded to whole blocks.
    pub(crate) fn stored_row(&self, row: usize) -> Option<(DType, &[u8])> {
        let region = &self.stored;
        let reordered = self.is_vector && matches!(self.rows, Rows::Pairs { .. });
        if reordered || region.dtype().has_scales_beside() || self.added != 0.0 || row >= self.shape[0] {
            return None;
        }
        Some((region.dtype(), region.row(self.stored_index(row))))
    }

    fn stored_index(&self, row: usize) -> usize {
        if self.is_vector { row } else { self.rows.stored(row) }
    }

    fn decode(&self, row: usize, out: &mut [f32]) {
        self.stored.decode(row, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_become_halves() {
        let order = |rows: Rows, n| (0..n).map(|row| rows.stored(row)).collect::<Vec<_>>();
        assert_eq!(order(Rows::Pairs { head: 6, rotary: 6 }, 12), [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]);
        // What is not rotated stays where it is.
        assert_eq!(order(Rows::Pairs { head: 6, rotary: 4 }, 6), [0, 2, 1, 3, 4, 5]);
        assert_eq!(order(Rows::Same, 3), [0, 1, 2]);
    }
}
