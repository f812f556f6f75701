//! How do weights become rows that are stored in columns? A copy, made while loading.

use std::sync::Arc;

use super::memory::available_memory;
use super::{DType, Region};
use crate::bytes::ByteSize;
use crate::cancel::CancelToken;
use crate::error::{Error, ErrorKind, Result};

/// Outputs for which a row of the file is gone through at a time.
const TOGETHER: usize = 32;

/// Which outputs are taken of stacked matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outputs {
    /// The first, and from each to the next.
    pub(crate) first: usize,
    pub(crate) step: usize,
    /// How many.
    pub(crate) n: usize,
    /// Matrices are `[in, out]` rather than `[out, in]`.
    pub(crate) transposed: bool,
}

impl Region {
    /// Some outputs of stacked matrices, as a stack `[matrices, outputs, inputs]` in memory of its own; looks at `cancel`
    /// after each matrix. The tensor's own pages are let go.
    ///
    /// # Errors
    /// [`ErrorKind::DTypeUnsupported`] for blocks that are stored across outputs, [`ErrorKind::TensorShape`] for outputs
    /// that there are not, [`ErrorKind::OutOfMemory`], [`ErrorKind::Cancelled`].
    pub(crate) fn rearranged(&self, outputs: Outputs, cancel: &CancelToken) -> Result<Region> {
        let Outputs { first, step, n, transposed } = outputs;
        let in_tensor = |e: Error| e.with("tensor", self.name());
        let wrong = || {
            let message = format!(
                "expected stacked matrices with {n} outputs from {first} on, found {:?}",
                self.shape()
            );
            in_tensor(Error::new(ErrorKind::TensorShape, message))
                .with_hint("the weights do not belong to this configuration")
        };
        let &[count, rows, columns] = self.shape() else { return Err(wrong()) };
        let (all, n_in) = if transposed { (columns, rows) } else { (rows, columns) };
        let last = n.checked_sub(1).and_then(|n| n.checked_mul(step)?.checked_add(first));
        if last.is_none_or(|last| last >= all) || n_in == 0 || count == 0 {
            return Err(wrong());
        }
        if transposed && self.dtype().is_quantised() || self.dtype().has_scales_beside() {
            let message = format!(
                "expected plain numbers where matrices are stored in another order, found {}",
                self.dtype()
            );
            return Err(in_tensor(Error::new(ErrorKind::DTypeUnsupported, message))
                .with("dtype", self.dtype())
                .with_hint("use a checkpoint in BF16, F16 or F32, or one of another format"));
        }
        self.expect_plain()?;
        let stored = self.bytes();
        // Of one matrix in the file, and of one here: no more than the file has.
        let (from, to) = (stored.len() / count, stored.len() / count / all * n);
        let out_of_memory = |what| {
            in_tensor(Error::new(ErrorKind::OutOfMemory, format!("{what} for a copy of experts in rows")))
                .with_hint("place fewer layers on this machine")
        };
        // Systems promise more than they have, and end who uses it.
        let needed = ByteSize((to * count) as u64);
        if let Some((available, _)) = available_memory().filter(|(available, _)| *available < needed) {
            return Err(out_of_memory(format!("expected {needed} of memory, found {available},")));
        }
        let unreserved = || out_of_memory("cannot reserve memory".to_owned());
        Vec::<u8>::new().try_reserve_exact(to * count).map_err(|e| unreserved().with_source(e))?;
        let mut bytes = vec![0; to * count];
        for (from, to) in stored.chunks_exact(from).zip(bytes.chunks_exact_mut(to)) {
            cancel.check()?;
            if transposed {
                turn(from, to, outputs, [n_in, all]);
            } else {
                let row = to.len() / n;
                let rows = from.chunks_exact(row).skip(first).step_by(step);
                to.chunks_exact_mut(row).zip(rows).for_each(|(to, from)| to.copy_from_slice(from));
            }
        }
        self.let_go(false);
        Ok(self.with_bytes(&[count, n, n_in], Arc::new(bytes)))
    }
}

impl Region {
    /// A matrix whose columns are this one's rows, in memory of its own. What is stored in blocks becomes numbers in f32.
    ///
    /// # Errors
    /// [`ErrorKind::DTypeUnsupported`] for rows that are padded, [`ErrorKind::TensorShape`] for what is no matrix,
    /// [`ErrorKind::OutOfMemory`].
    pub(crate) fn turned(&self) -> Result<Region> {
        let &[rows, columns] = self.shape() else {
            let message = format!("expected a matrix, found {:?}", self.shape());
            return Err(Error::new(ErrorKind::TensorShape, message)
                .with("tensor", self.name())
                .with_hint("the weights do not belong to this configuration"));
        };
        self.expect_plain()?;
        let out_of_memory = |e| {
            Error::new(ErrorKind::OutOfMemory, "cannot reserve memory for a copy of columns as rows")
                .with("tensor", self.name())
                .with_hint("place fewer layers on this machine")
                .with_source(e)
        };
        let mut numbers: Vec<u8> = Vec::new();
        let plain = !self.dtype().is_quantised();
        if !plain {
            let mut row = Vec::new();
            row.try_reserve_exact(columns).map_err(out_of_memory)?;
            row.resize(columns, 0.0);
            numbers
                .try_reserve_exact(rows.saturating_mul(columns).saturating_mul(4))
                .map_err(out_of_memory)?;
            for at in 0..rows {
                self.decode(at, &mut row);
                numbers.extend(row.iter().flat_map(|x| x.to_le_bytes()));
            }
        }
        let from = if plain { self.bytes() } else { &numbers };
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(from.len()).map_err(out_of_memory)?;
        bytes.resize(from.len(), 0);
        if !from.is_empty() {
            turn(
                from,
                &mut bytes,
                Outputs { first: 0, step: 1, n: columns, transposed: true },
                [rows, columns],
            );
        }
        self.let_go(false);
        let dtype = if plain { self.dtype() } else { DType::F32 };
        Ok(self.with_bytes(&[columns, rows], Arc::new(bytes)).of_type(dtype))
    }
}

/// Writes columns of a matrix `[n_in, all]` as rows.
fn turn(from: &[u8], to: &mut [u8], outputs: Outputs, [n_in, all]: [usize; 2]) {
    let element = from.len() / n_in / all;
    let row = n_in * element;
    for (block, to) in to.chunks_mut(TOGETHER * row).enumerate() {
        for (i, from) in from.chunks_exact(all * element).enumerate() {
            let column = outputs.first + block * TOGETHER * outputs.step;
            let columns = from.chunks_exact(element).skip(column).step_by(outputs.step);
            for (to, from) in to.chunks_exact_mut(row).zip(columns) {
                to[i * element..][..element].copy_from_slice(from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::{MappedFile, Memory, TensorInfo};

    fn region(dtype: DType, shape: &[usize], bytes: &[u8]) -> Region {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let info = TensorInfo::new("stack", dtype, shape, 0, 0, bytes.len() as u64);
        Region::map(&MappedFile::open(file.path()).unwrap(), &info).unwrap()
    }

    /// Every element lies where its matrix, output and input say, of both ways of storing them.
    #[test]
    fn outputs_become_rows() {
        let [count, all, n_in] = [3, 2 * 37, 5];
        let value = |m: usize, o: usize, i: usize| ((m * all + o) * n_in + i) as f32;
        for transposed in [false, true] {
            let [rows, columns] = if transposed { [n_in, all] } else { [all, n_in] };
            let each = |at: usize| {
                let (m, rest) = (at / (rows * columns), at % (rows * columns));
                let (row, column) = (rest / columns, rest % columns);
                if transposed { value(m, column, row) } else { value(m, row, column) }
            };
            let stored: Vec<u8> = (0..count * rows * columns).flat_map(|at| each(at).to_le_bytes()).collect();
            let region = region(DType::F32, &[count, rows, columns], &stored);
            for (first, step, n) in [(0, 1, all), (0, 2, 37), (1, 2, 37), (37, 1, 37), (73, 1, 1)] {
                let outputs = Outputs { first, step, n, transposed };
                let found = region.rearranged(outputs, &CancelToken::new()).unwrap();
                assert_eq!((found.shape(), found.memory()), (&[count, n, n_in][..], Memory::Resident));
                let mut values = vec![0.0; n_in];
                for (m, part) in found.parts().enumerate() {
                    for o in 0..n {
                        part.read_rows(o..o + 1, &mut values).unwrap();
                        let expected: Vec<_> = (0..n_in).map(|i| value(m, first + o * step, i)).collect();
                        assert_eq!(values, expected, "{outputs:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn columns_become_rows() {
        let plain: Vec<u8> = (0..6u8).flat_map(|x| f32::from(x).to_le_bytes()).collect();
        let mut blocks = Vec::new();
        for row in 0..2u8 {
            blocks.extend(half::f16::from_f32(0.5).to_le_bytes());
            blocks.extend((0..32).map(|at| row * 32 + at));
        }
        for (region, scale) in
            [(region(DType::F32, &[2, 3], &plain), 1.0), (region(DType::Q8_0, &[2, 32], &blocks), 0.5)]
        {
            let turned = region.turned().unwrap();
            let columns = region.row_len();
            assert_eq!((turned.shape(), turned.dtype()), (&[columns, 2][..], DType::F32));
            let mut values = vec![0.0; 2 * columns];
            turned.read_rows(0..columns, &mut values).unwrap();
            for (at, value) in values.into_iter().enumerate() {
                assert_eq!(value, scale * (at % 2 * columns + at / 2) as f32);
            }
        }
        assert_eq!(
            region(DType::F32, &[1, 2, 3], &plain).turned().unwrap_err().kind(),
            ErrorKind::TensorShape
        );
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let refused = |region: &Region, first, step, n, transposed| {
            let outputs = Outputs { first, step, n, transposed };
            region.rearranged(outputs, &CancelToken::new()).unwrap_err().kind()
        };
        let plain = region(DType::F32, &[2, 3, 4], &[0; 96]);
        for (first, step, n) in [(0, 1, 4), (3, 1, 1), (0, 2, 3), (0, usize::MAX, 3), (0, 1, 0)] {
            assert_eq!(refused(&plain, first, step, n, false), ErrorKind::TensorShape);
        }
        assert_eq!(refused(&region(DType::F32, &[6, 4], &[0; 96]), 0, 1, 1, true), ErrorKind::TensorShape);
        let blocks = region(DType::Q8_0, &[1, 2, 32], &[0; 68]);
        assert_eq!(refused(&blocks, 0, 1, 2, true), ErrorKind::DTypeUnsupported);
        let cancelled = CancelToken::new();
        cancelled.cancel();
        let outputs = Outputs { first: 0, step: 1, n: 4, transposed: true };
        assert_eq!(plain.rearranged(outputs, &cancelled).unwrap_err().kind(), ErrorKind::Cancelled);
    }
}
