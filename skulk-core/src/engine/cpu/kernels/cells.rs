//! How do tasks write into one matrix at the same time? Each takes its own cell, which exists once.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// A matrix cut into columns of cells of equal width, those at the right narrower where need be.
pub(crate) struct Cells<'a> {
    data: *mut f32,
    /// Rows and columns.
    size: [usize; 2],
    /// Columns of a cell.
    columns: usize,
    taken: &'a [AtomicBool],
    owner: PhantomData<&'a mut [f32]>,
}

// SAFETY: threads get at the matrix only through cells, of which no two have an element in common.
unsafe impl Sync for Cells<'_> {}

impl<'a> Cells<'a> {
    /// Cuts a matrix of `width` columns into cells of `columns`; `taken` remembers what is out.
    pub(crate) fn new(
        data: &'a mut [f32],
        width: usize,
        columns: usize,
        taken: &'a mut Vec<AtomicBool>,
    ) -> Self {
        let (size, columns) = ([data.len().checked_div(width).unwrap_or(0), width], columns.max(1));
        taken.clear();
        taken.resize_with(size[0] * width.div_ceil(columns), AtomicBool::default);
        Self { data: data.as_mut_ptr(), size, columns, taken, owner: PhantomData }
    }

    /// The cell of these rows in this column of cells, unless some of it has been taken before.
    pub(crate) fn take(&self, rows: Range<usize>, column: usize) -> Option<Cell<'a>> {
        let across = self.size[1].div_ceil(self.columns);
        if rows.is_empty() || rows.end > self.size[0] || column >= across {
            return None;
        }
        let mut free = true;
        for row in rows.clone() {
            free &= !self.taken.get(row * across + column)?.swap(true, Ordering::Relaxed);
        }
        let at = column * self.columns;
        free.then(|| Cell {
            // SAFETY: there are such rows and columns, so it begins within the matrix.
            data: unsafe { self.data.add(rows.start * self.size[1] + at) },
            rows: rows.len(),
            columns: self.columns.min(self.size[1] - at),
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
