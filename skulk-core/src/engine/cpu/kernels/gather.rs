//! How are products with a few rows of a matrix computed? Sixteen of its rows are put together at a time, for the
//! kernels that multiply all of it: each product has the bits that it has there.

use std::sync::PoisonError;

use super::Matrix;
use super::linear::{Products, SharedWork};
use super::scratch::grow;
use super::simd::LANES;
use crate::weights::Region;

/// Rows that are put together.
pub(crate) const TILE: usize = LANES;

impl<'a> Products<'a> {
    /// `out[r, i] = x[r] · weight[ids[r, i]]` for each row of x; `ids` and `out` are `[rows, stride]`, the stride whole
    /// tiles. A bias is not added.
    pub(crate) fn rows(mut self, matrix: &'a Matrix, ids: &[u32], stride: usize, out: &mut [f32]) {
        assert!(stride.is_multiple_of(LANES) && out.len() <= ids.len() && matrix.bias().is_null());
        let row_bytes: usize = matrix.weight().arrays().map(Region::row_bytes).sum();
        let beside = matrix.weight().scale_rows();
        self.prepare_gathering(LANES * row_bytes);
        // Kilobytes of weights that are worth a thread.
        let least = (32usize << 10).div_ceil(LANES * row_bytes);
        for (row, (ids, out)) in ids.chunks_exact(stride).zip(out.chunks_exact_mut(stride)).enumerate() {
            // SAFETY: the row and the matrix stay where they are until this returns.
            let work = unsafe { SharedWork::new(self.work(matrix, row..row + 1, LANES)) };
            let (all, kernels) = (&self.scratch.largest, self.kernels);
            self.pool.rows(out, LANES, least, |tile, out, thread| {
                let mut own = all[thread].lock().unwrap_or_else(PoisonError::into_inner);
                let ids = &ids[tile * LANES..][..LANES];
                let mut rest = &mut own.gathered[..];
                for (at, part) in matrix.weight().arrays().enumerate() {
                    let of = |id: u32| if at == 0 { id as usize } else { beside.of(id as usize) };
                    ids.iter().for_each(|id| kernels.prefetch(part.memory_of(of(*id))));
                    let (rows, behind) = rest.split_at_mut(LANES * part.row_bytes());
                    for (to, id) in rows.chunks_exact_mut(part.row_bytes()).zip(ids) {
                        part.copy_row(of(*id), &mut to[..part.own_row_bytes()]);
                    }
                    rest = behind;
                }
                // SAFETY: sixteen whole rows have just been put there, and there is room for their products.
                unsafe {
                    let work = work.get().gathered(own.gathered.as_ptr()).writing_to(out.as_mut_ptr(), 0);
                    work.tiles(0..1, std::ptr::null_mut());
                }
            });
        }
    }

    /// Makes room for each thread to put rows together in.
    fn prepare_gathering(&mut self, bytes: usize) {
        let all = &mut self.scratch.largest;
        all.resize_with(self.pool.threads().max(all.len()), Default::default);
        for own in all {
            grow(&mut own.get_mut().unwrap_or_else(PoisonError::into_inner).gathered, bytes);
        }
    }
}
