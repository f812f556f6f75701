//! How do tasks write into one matrix at the same time? Each takes its own cell, which exists once.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};

/// A matrix cut into cells of equal size, those at the right and at the bottom smaller where need be.
pub(crate) struct Cells<'a> {
    data: *mut f32,
    /// Rows and columns.
    size: [usize; 2],
    /// Those of a cell.
    cell: [usize; 2],
    taken: &'a [AtomicBool],
    owner: PhantomData<&'a mut [f32]>,
}

// SAFETY: threads get at the matrix only through cells, of which no two have an element in common.
unsafe impl Sync for Cells<'_> {}

impl<'a> Cells<'a> {
    /// Cuts a matrix of `width` columns into cells of `[rows, columns]`; `taken` remembers who is
    /// out.
    pub(crate) fn new(
        data: &'a mut [f32],
        width: usize,
        cell: [usize; 2],
        taken: &'a mut Vec<AtomicBool>,
    ) -> Self {
        let size = [data.len().checked_div(width).unwrap_or(0), width];
        let cell = cell.map(|n| n.max(1));
        taken.clear();
        taken.resize_with(size[0].div_ceil(cell[0]) * size[1].div_ceil(cell[1]), AtomicBool::default);
        Self { data: data.as_mut_ptr(), size, cell, taken, owner: PhantomData }
    }

    /// The cell in this row and column of cells, unless it has been taken before.
    pub(crate) fn take(&self, row: usize, column: usize) -> Option<Cell<'a>> {
        let columns = self.size[1].div_ceil(self.cell[1]);
        let taken = self.taken.get(row.checked_mul(columns)?.checked_add(column)?)?;
        if column >= columns || taken.swap(true, Ordering::Relaxed) {
            return None;
        }
        let at = [row * self.cell[0], column * self.cell[1]];
        Some(Cell {
            // SAFETY: there is such a cell, so it begins within the matrix.
            data: unsafe { self.data.add(at[0] * self.size[1] + at[1]) },
            rows: self.cell[0].min(self.size[0] - at[0]),
            columns: self.cell[1].min(self.size[1] - at[1]),
            stride: self.size[1],
            owner: PhantomData,
        })
    }
}

/// A part of some rows of a matrix.
pub(crate) struct Cell<'a> {
    data: *mut f32,
    rows: usize,
    columns: usize,
    stride: usize,
    owner: PhantomData<&'a mut [f32]>,
}

impl Cell<'_> {
    /// What the cell has of its row.
    pub(crate) fn row(&mut self, row: usize) -> &mut [f32] {
        assert!(row < self.rows, "a row of the cell");
        // SAFETY: the cell has such a row, and is borrowed as long as the row is.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(row * self.stride), self.columns) }
    }
}
