//! Which rows of the head can be among the largest, of several activation rows? Their products with one digit tell.
//!
//! Products with the head are of activations in two digits. Of one activation row they take the memory's time, of several
//! the arithmetic's, and sampling needs only the largest. Products `c` with activations of one digit take half of it.
//! They differ from the head's `l` by at most `ν·(‖x̂ - x̃‖ + 2γ‖x‖)`, as with a [`screen`](super::screen) that leaves
//! nothing out, where ν is the length of the head's longest row. The logits of the rows with the largest `c` give a
//! threshold, and those of all others that can reach it are computed too, by the kernel that would have computed them
//! all, to the same bits.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};

use super::linear::{Packed, Products, SharedWork};
use super::matrix::Matrix;
use super::screen::{LEAST_ROWS, listed, settle};
use super::simd::LANES;
use super::top::{Largest, STRIP};
use crate::engine::Precision;
use crate::engine::cpu::trace;
use crate::weights::DType;

/// Activation rows from which on arithmetic is what products cost.
const FEWEST: usize = 4;
/// Of more rows that are wanted, too many others can be among them.
const MOST_WANTED: usize = 64;
/// Rows that a thread notes for an activation row; with more to compute nothing would be gained. Most have some hundred, and
/// what they do not use of the memory does not exist.
const NOTED: usize = 1 << 16;

/// Products may be off by less than this for each unit of a row's length, or sums could be too large for a float:
/// activations are at most 2^17 times as large.
const APART: f32 = 1e20;

/// Rows of the head that can be among the largest, and their products with one digit.
#[derive(Default)]
pub(super) struct Noted(Vec<(u32, f32)>);

impl Noted {
    pub(super) fn clear(&mut self) {
        self.0.clear();
        self.0.reserve(NOTED);
    }

    /// Notes rows from `first` on whose products are `least` or more; whether there was room.
    fn see(&mut self, first: usize, products: &[f32], least: f32) -> bool {
        for (from, strip) in (first..).step_by(LANES).zip(products.chunks(LANES)) {
            // Nearly always there is none, which a comparison of vectors tells.
            if !strip.iter().fold(false, |any, product| any | (*product >= least)) {
                continue;
            }
            if self.0.len() + LANES > NOTED {
                self.0.retain(|(_, product)| *product >= least);
                if self.0.len() > NOTED / 8 * 7 {
                    return false;
                }
            }
            let large = (from as u32..).zip(strip).filter(|(_, product)| **product >= least);
            self.0.extend(large.map(|(id, product)| (id, *product)));
        }
        true
    }

    /// Those that are `least` or more.
    pub(super) fn above(&self, least: f32) -> impl Iterator<Item = u32> {
        self.0.iter().filter(move |(_, product)| *product >= least).map(|(id, _)| *id)
    }
}

/// Finds the largest logits of each row, into the threads' lists; `None` where that is not worth it, or a bound is no
/// number.
pub(super) fn top(products: &mut Products<'_>, head: &Matrix, k: usize) -> Option<()> {
    let weight = head.weight();
    // Types without a minimum, whose parts are no larger than the weights they make.
    let of_type =
        matches!(weight.dtype(), DType::Q8_0 | DType::Q6_K) && !weight.is_padded() && !head.has_bias();
    if !of_type || products.n_rows < FEWEST || k > MOST_WANTED || head.n_out() < LEAST_ROWS {
        return None;
    }
    let longest = head.longest(products.pool)?;
    note(products, head, k, longest)?;
    let exact = settle(products, head, products.kernels, k)?;
    exact.all_noted(products);
    Some(())
}

/// Multiplies with one digit: lists the rows with the largest products, and notes those that can be among the largest.
fn note(products: &mut Products<'_>, head: &Matrix, k: usize, longest: f32) -> Option<()> {
    let (n_rows, stride) = (products.n_rows, STRIP * LANES);
    products.coarse()?;
    if products.scratch.apart.iter().any(|apart| *apart >= APART) {
        return None;
    }
    products.set_precision(Precision::Fast, true);
    let work = products.work(head, 0..n_rows, stride);
    let Products { scratch, pool, packed_len, .. } = products;
    let packed = Packed::new(&mut scratch.packed, *packed_len, pool);
    scratch.prepare(pool, n_rows, n_rows * stride, listed(head, k));
    for apart in &mut scratch.apart {
        *apart *= longest;
    }
    for own in &mut scratch.largest {
        let Largest { noted, candidates, .. } = own.get_mut().unwrap_or_else(PoisonError::into_inner);
        candidates.clear();
        candidates.reserve(NOTED);
        noted.resize_with(n_rows.max(noted.len()), Noted::default);
        noted.iter_mut().take(n_rows).for_each(Noted::clear);
    }
    let (all, apart, total) = (&scratch.largest, &scratch.apart, head.tiles());
    let too_many = AtomicBool::new(false);
    // SAFETY: the rounded rows and the head stay where they are until this returns.
    let work = unsafe { SharedWork::new(work) };
    trace::next(|| {
        [head.n_out() * head.source.row_bytes, 2 * head.n_in() * head.n_out() * n_rows].map(|n| n as u64)
    });
    pool.run(total.div_ceil(STRIP), 1, &|strips, thread| {
        let mut own = all[thread].lock().unwrap_or_else(PoisonError::into_inner);
        let Largest { logits, rows, noted, .. } = &mut *own;
        for strip in strips {
            if too_many.load(Ordering::Relaxed) {
                return;
            }
            let tiles = strip * STRIP..((strip + 1) * STRIP).min(total);
            let columns = head.columns(&tiles);
            // SAFETY: there is room for a strip of each row; threads have their own numbers, and so their own lists and
            // packed tiles.
            unsafe {
                work.get().writing_to(logits.as_mut_ptr(), columns.start).tiles(tiles, packed.of(thread))
            };
            let each = rows.iter_mut().zip(noted.iter_mut()).zip(apart).zip(logits.chunks_exact(stride));
            for (((top, noted), apart), logits) in each {
                let logits = &logits[..columns.len()];
                top.see(columns.start, logits);
                // The threshold will not be below the k-th product by more than the distance, nor a logit above its product
                // by more.
                if !noted.see(columns.start, logits, top.number(k) - 2.0 * apart) {
                    too_many.store(true, Ordering::Relaxed);
                }
            }
        }
    });
    (!too_many.into_inner()).then_some(())
}
