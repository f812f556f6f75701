//! Which rows of the head can be among the largest? A compact copy tells, within proven bounds.
//!
//! The head is most of what a decoded token reads, and sampling needs only the largest logits. The
//! screen is a 5-bit copy of the head. Its products `c` differ from the head's `l` by at most
//!
//! `|l - c| ≤ ρ·‖x̂‖ + ν·‖x̂ - x̃‖ + γ·(ρ + 2ν)·‖x‖`
//!
//! for a row w with copy ŵ, ρ = ‖w - ŵ‖, ν = ‖ŵ‖ (Cauchy and Schwarz), activations rounded to x̂ for
//! the head and to x̃ for the copy, and γ for the roundings of both sums (Higham, Accuracy and
//! Stability of Numerical Algorithms, 3.1). The k-th largest of `c - bound` cannot be above the k-th
//! largest logit: rows whose `c + bound` is below it are not among the k largest. The others' logits are
//! computed from the head itself, by the kernel that would have computed them all, to the same bits.

use std::sync::{Mutex, PoisonError};

use half::f16;
use memmap2::MmapMut;

use super::linear::{Addresses, Products, Seen, grow};
use super::simd::{BLOCK, LANES};
use super::{Kernels, Matrix, Quantised};
use crate::engine::backend::TopLogits;
use crate::engine::cpu::pool::Pool;
use crate::error::{Error, ErrorKind, Result};
use crate::weights::{DType, Region, quant};

/// Rows worth a screen: smaller heads are in the cache or cost little anyway.
const LEAST_ROWS: usize = 4096;
/// One candidate of so many rows is too many: computing them all is quicker.
const FEW: usize = 8;
/// Activations that [`rounding`](super::rounding) takes for zero.
const TINY: f64 = 1e-30;

/// A compact copy of a head.
pub(crate) struct Screen {
    /// [`DType::Q5_0`] blocks.
    copy: MmapMut,
    row_bytes: usize,
    kernel: Quantised,
    /// ρ and ν of every row, rounded up.
    distance: Vec<f32>,
    length: Vec<f32>,
}

/// Rounded up.
fn above(x: f64) -> f32 {
    (x * (1.0 + 1e-6)) as f32
}

/// Stores 32 elements as a Q5_0 block, whose values replace them.
fn five_bits(x: &mut [f32], block: &mut [u8]) {
    let most = x.iter().fold(0.0f32, |most, &x| if x.abs() > most.abs() { x } else { most });
    let d = f16::from_f32(most / -16.0);
    let (scale, mut high) = (d.to_f32(), 0u32);
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    let (header, low) = block.split_at_mut(6);
    low.fill(0);
    for (i, x) in x.iter_mut().enumerate() {
        let integer = (*x * inverse + 16.0).round().clamp(0.0, 31.0);
        *x = scale * (integer - 16.0);
        low[i % 16] |= (integer as u8 & 15) << (i / 16 * 4);
        high |= u32::from(integer as u8 >> 4) << i;
    }
    header[..2].copy_from_slice(&d.to_le_bytes());
    header[2..].copy_from_slice(&high.to_le_bytes());
}

struct Row {
    values: Vec<f32>,
    copied: Vec<f32>,
}

impl Screen {
    /// Whether the head takes at least 1.4 times what its screen would.
    pub(crate) fn pays(head: &Region) -> bool {
        let screen = DType::Q5_0.row_bytes(head.row_len());
        let row = head.row_bytes().ok();
        screen.zip(row).is_some_and(|(screen, row)| row >= screen * 7 / 5) && head.rows() >= LEAST_ROWS
    }

    /// Copies the head; `None` when it holds numbers that the copy cannot come near.
    pub(crate) fn new(kernels: &Kernels, pool: &Pool, head: &Matrix) -> Result<Option<Self>> {
        let weight = head.weight();
        let exhausted = || {
            Error::new(ErrorKind::OutOfMemory, "cannot reserve memory for a compact copy of the head")
                .with("tensor", weight.name())
                .with_hint("load without head screening")
        };
        let kernel = (kernels.quantised)(DType::Q5_0, false);
        let (row_bytes, kernel) =
            DType::Q5_0.row_bytes(weight.row_len()).zip(kernel).ok_or_else(exhausted)?;
        let (rows, n_in) = (weight.rows(), weight.row_len());
        let len = rows.checked_mul(row_bytes).ok_or_else(exhausted)?;
        let mut copy = MmapMut::map_anon(len).map_err(|e| exhausted().with_source(e))?;
        #[cfg(target_os = "linux")]
        // Where the system has no huge pages, ordinary ones serve.
        let _ = copy.advise(memmap2::Advice::HugePage);
        let rooms: Vec<_> = (0..pool.threads())
            .map(|_| Mutex::new(Row { values: vec![0.0; n_in], copied: vec![0.0; n_in] }))
            .collect();
        let of_row = |row: usize, blocks: &mut [u8], thread: usize| {
            let mut room = rooms[thread].lock().unwrap_or_else(PoisonError::into_inner);
            let Row { values, copied } = &mut *room;
            quant::dequantise(weight.dtype(), head.row(row), values);
            copied.copy_from_slice(values);
            let block_bytes = DType::Q5_0.block_bytes();
            for (x, block) in copied.chunks_exact_mut(BLOCK).zip(blocks.chunks_exact_mut(block_bytes)) {
                five_bits(x, block);
            }
            let squares = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
            let pairs = values.iter().zip(&*copied);
            let distance = squares(&mut pairs.map(|(a, b)| f64::from(*a) - f64::from(*b)));
            [above(distance), above(squares(&mut copied.iter().map(|x| f64::from(*x))))]
        };
        let bounds: Vec<_> = (0..rows).map(|_| Mutex::new([0.0; 2])).collect();
        pool.rows(&mut copy, row_bytes, 64, |row, blocks, thread| {
            *bounds[row].lock().unwrap_or_else(PoisonError::into_inner) = of_row(row, blocks, thread);
        });
        let bounds = bounds.into_iter().map(|b| b.into_inner().unwrap_or_else(PoisonError::into_inner));
        let (distance, length) = bounds.map(|[distance, length]| (distance, length)).unzip();
        let screen = Self { copy, row_bytes, kernel, distance, length };
        // Of weights that five bits and a half-precision scale cannot hold, nothing is proven.
        let sound = screen.distance.iter().chain(&screen.length).all(|bound| bound.is_finite());
        Ok(sound.then_some(screen))
    }

    /// Bytes it takes.
    pub(crate) fn bytes(&self) -> u64 {
        (self.copy.len() + 8 * self.distance.len()) as u64
    }

    /// Finds the largest logits of one row, into the threads' lists; `None` when that would take too
    /// many candidates.
    pub(super) fn top(
        &self,
        products: &mut Products<'_>,
        head: &Matrix,
        out: &mut TopLogits<'_>,
    ) -> Option<()> {
        let (n_out, k) = (head.n_out(), out.k);
        let coarse = products.coarse(self.row_bytes, n_out, (self.copy.as_ptr(), self.kernel));
        let bound = self.bound(products);
        if !bound.iter().all(|factor| factor.is_finite()) {
            return None;
        }
        grow(&mut products.room.upper, n_out);
        let upper = Upper(products.room.upper.as_mut_ptr());
        products.strips(head, coarse, k, &|columns, logits, tops| {
            let upper = &upper;
            let distances = &self.distance[columns.clone()];
            let lengths = &self.length[columns.clone()];
            // SAFETY: strips are given out once, and there is room for all columns.
            let upper = unsafe { std::slice::from_raw_parts_mut(upper.0.add(columns.start), columns.len()) };
            let logits = &mut logits[..columns.len()];
            for (((logit, upper), distance), length) in
                logits.iter_mut().zip(upper).zip(distances).zip(lengths)
            {
                let most = distance * bound[0] + length * bound[1];
                *upper = *logit + most;
                *logit -= most;
            }
            for top in tops.iter_mut().take(1) {
                top.see(columns.start, logits);
            }
        });
        products.room.largest(1, out);
        let least = out.logits.get(k - 1).copied().filter(|least| least.is_finite())?;
        let room = &mut *products.room;
        room.candidates.clear();
        // Room for as many as there may be, once and for all.
        room.candidates.reserve(n_out / FEW + LANES);
        for (i, strip) in room.upper[..n_out].chunks(64).enumerate() {
            if !strip.iter().fold(false, |any, upper| any | (*upper >= least)) {
                continue;
            }
            let from = i * 64;
            room.candidates
                .extend((from..).zip(strip).filter(|(_, u)| **u >= least).map(|(id, _)| id as u32));
            if room.candidates.len() > n_out / FEW {
                return None;
            }
        }
        self.exact(products, head, k);
        Some(())
    }

    /// Factors of ρ and of ν in the bound.
    fn bound(&self, products: &Products<'_>) -> [f32; 2] {
        let x = products.x;
        let norm = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        // How far activations are moved by rounding: x̃ as it is, x̂ at most.
        let (fine, coarse) = products.moved();
        let fine = fine + TINY * x.len() as f64;
        let apart = coarse + fine;
        let gamma = (8 * (x.len() / BLOCK) + 64) as f64 / f64::from(1 << 24);
        let all = norm + apart;
        [above((norm + fine) + gamma * all), above(apart + 2.0 * gamma * all)]
    }

    /// The candidates' logits, to the bits that computing all would give.
    fn exact(&self, products: &mut Products<'_>, head: &Matrix, k: usize) {
        let work = products.exactly(head);
        let row_bytes = head.row(0).len();
        products.room.prepare(products.pool, 1, 0, k);
        // For every thread, as any may take the first candidates.
        for seen in &mut products.room.seen {
            grow(&mut seen.get_mut().unwrap_or_else(PoisonError::into_inner).gathered, LANES * row_bytes);
        }
        let (pool, room) = (products.pool, &*products.room);
        let (work, candidates, all) = (Addresses(work), &room.candidates, &room.seen);
        pool.run(candidates.len().div_ceil(LANES), 4, &|groups, thread| {
            let Addresses(work) = &work;
            let mut seen = all[thread].lock().unwrap_or_else(PoisonError::into_inner);
            let Seen { gathered, rows: tops, .. } = &mut *seen;
            for ids in groups.filter_map(|group| candidates.chunks(LANES).nth(group)) {
                // The last candidate fills the tile up.
                for (lane, to) in gathered.chunks_exact_mut(row_bytes).enumerate().take(LANES) {
                    to.copy_from_slice(head.row(ids[lane.min(ids.len() - 1)] as usize));
                }
                let mut logits = [0.0; LANES];
                // SAFETY: sixteen whole rows and their outputs; the machine has the instructions.
                unsafe { work.gathered(gathered.as_ptr()).writing_to(logits.as_mut_ptr(), 0).one_tile() };
                for (id, logit) in ids.iter().zip(logits) {
                    tops[0].see(*id as usize, &[logit]);
                }
            }
        });
    }
}

/// Where upper bounds go.
struct Upper(*mut f32);
// SAFETY: threads write different strips.
unsafe impl Sync for Upper {}
