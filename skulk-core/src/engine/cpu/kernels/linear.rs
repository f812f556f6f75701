//! How are stored matrices multiplied? Activations rounded once, tiles of all matrices shared out.

use std::ops::Range;

use super::dense::Dense;
use super::product::{self, Activations, Product};
use super::rounding;
use super::simd::{BLOCK, LANES};
use super::{Kernels, Quantised};
use crate::engine::Precision;
use crate::engine::cpu::pool::Pool;
use crate::error::{Error, ErrorKind, Result};
use crate::weights::Region;

/// Weight bytes below which another thread costs more than it saves.
const LEAST_BYTES: usize = 32 << 10;
/// Activations below which another thread costs more than it saves.
const LEAST_ELEMENTS: usize = 16 << 10;

/// A weight matrix `[out, in]` where it is stored.
pub(crate) struct Matrix {
    weight: Region,
    row_bytes: usize,
    bias: Option<Vec<f32>>,
    kernel: Kernel,
}

#[derive(Clone, Copy)]
enum Kernel {
    Quantised(Quantised),
    Dense(unsafe fn(&Dense, Range<usize>)),
}

impl Matrix {
    /// A matrix whose shape has been checked; a bias has as many elements as the matrix has rows.
    pub(crate) fn new(
        kernels: &Kernels,
        weight: Region,
        bias: Option<Vec<f32>>,
        precision: Precision,
    ) -> Result<Self> {
        let row_bytes = weight.row_bytes()?;
        let dense = (kernels.dense)(weight.dtype()).map(Kernel::Dense);
        let quantised = || (kernels.quantised)(weight.dtype(), precision == Precision::Exact);
        let kernel = dense.or_else(|| quantised().map(Kernel::Quantised)).ok_or_else(|| {
            Error::new(ErrorKind::Internal, "no kernel for a type").with("dtype", weight.dtype())
        })?;
        assert!(bias.as_ref().is_none_or(|bias| bias.len() == weight.rows()));
        assert_eq!(weight.bytes().len(), row_bytes * weight.rows());
        Ok(Self { weight, row_bytes, bias, kernel })
    }

    /// Elements of an output row.
    pub(crate) fn n_out(&self) -> usize {
        self.weight.rows()
    }

    /// Elements of an input row.
    pub(crate) fn n_in(&self) -> usize {
        self.weight.row_len()
    }

    /// The stored matrix.
    pub(crate) fn weight(&self) -> &Region {
        &self.weight
    }

    /// The bytes of one stored row.
    pub(crate) fn row(&self, row: usize) -> &[u8] {
        &self.weight.bytes()[row * self.row_bytes..][..self.row_bytes]
    }

    fn bias(&self) -> *const f32 {
        self.bias.as_ref().map_or(std::ptr::null(), |bias| bias.as_ptr())
    }

    fn tiles(&self) -> usize {
        match self.kernel {
            Kernel::Quantised(_) => product::tiles(self.n_out()),
            Kernel::Dense(_) => self.n_out().div_ceil(LANES),
        }
    }
}

/// ProductRoom for rounded activations and packed tiles; one per sequence.
pub(crate) struct ProductRoom {
    exact: bool,
    digits: Vec<i8>,
    scale: Vec<f32>,
    sum: Vec<i32>,
    scaled_sum: Vec<f32>,
    half_sum: Vec<i32>,
    scaled_half_sum: Vec<f32>,
    packed: Vec<i32>,
    list: Vec<Item>,
}

/// One product of a call, and how many tiles come before it.
struct Item {
    first: usize,
    work: Work,
}

enum Work {
    Quantised(Product, Quantised),
    Dense(Dense, unsafe fn(&Dense, Range<usize>)),
}

// SAFETY: addresses in `list` are used only by the `Products` that put them there.
unsafe impl Send for ProductRoom {}

/// A call's products, seen by all threads.
struct Shared<'a> {
    list: &'a [Item],
    packed: *mut i32,
    packed_len: usize,
    total: usize,
}
// SAFETY: threads write disjoint tiles of the outputs and their own parts of `packed`.
unsafe impl Sync for Shared<'_> {}

impl Shared<'_> {
    /// Works on tiles `range` of all products behind each other.
    fn work(&self, range: Range<usize>, thread: usize) {
        for (i, item) in self.list.iter().enumerate() {
            let end = self.list.get(i + 1).map_or(self.total, |next| next.first);
            let tiles = range.start.max(item.first)..range.end.min(end);
            if tiles.is_empty() {
                continue;
            }
            let tiles = tiles.start - item.first..tiles.end - item.first;
            // SAFETY: addresses come from slices that `Products` borrows, whose lengths were checked
            // against the shapes when they were listed; tiles are given out once, threads have their own
            // numbers, and a table of kernels exists only on machines that have its instructions.
            unsafe {
                match &item.work {
                    Work::Dense(product, kernel) => kernel(product, tiles),
                    Work::Quantised(product, kernel) if product.rows == 1 => (kernel.one)(product, tiles),
                    Work::Quantised(product, kernel) => {
                        (kernel.many)(product, tiles, self.packed.add(thread * self.packed_len));
                    }
                }
            }
        }
    }
}

/// Grows to `len` elements; shorter steps keep the room of longer ones.
fn grow<T: Copy + Default>(room: &mut Vec<T>, len: usize) {
    if room.len() < len {
        room.resize(len, T::default());
    }
}

impl ProductRoom {
    /// For up to `rows` rows of up to `width` elements.
    pub(crate) fn new(rows: usize, width: usize, precision: Precision) -> Self {
        let exact = precision == Precision::Exact;
        let blocks = rows * width.div_ceil(BLOCK);
        // Zeroed memory exists only from its first use on: short prompts need little.
        Self {
            exact,
            digits: vec![0; blocks * BLOCK * if exact { 2 } else { 1 }],
            scale: vec![0.0; blocks],
            sum: vec![0; blocks],
            scaled_sum: vec![0.0; blocks],
            half_sum: vec![0; 2 * blocks],
            scaled_half_sum: vec![0.0; 2 * blocks],
            packed: Vec::new(),
            list: Vec::new(),
        }
    }

    /// Products of rows of `x`, `[rows, n_in]`, that will run together.
    pub(crate) fn products<'a>(
        &'a mut self,
        kernels: &'a Kernels,
        pool: &'a Pool,
        x: &'a [f32],
        n_in: usize,
    ) -> Products<'a> {
        self.list.clear();
        Products {
            room: self,
            kernels,
            pool,
            x,
            n_in,
            rounded: false,
            total: 0,
            packed_len: 0,
            tile_bytes: usize::MAX,
        }
    }

    /// The rounded rows from `row` on, of `blocks` blocks each.
    fn activations(&self, row: usize, blocks: usize) -> Activations {
        let (digits, at) = (if self.exact { 2 } else { 1 }, row * blocks);
        Activations {
            digits: self.digits[digits * at * BLOCK..].as_ptr(),
            scale: self.scale[at..].as_ptr(),
            sum: self.sum[at..].as_ptr(),
            scaled_sum: self.scaled_sum[at..].as_ptr(),
            half_sum: self.half_sum[2 * at..].as_ptr(),
            scaled_half_sum: self.scaled_half_sum[2 * at..].as_ptr(),
        }
    }

    /// Rounds rows of `blocks` blocks.
    fn round(&mut self, kernels: &Kernels, pool: &Pool, x: &[f32], blocks: usize) {
        let rows = x.len() / (blocks * BLOCK);
        let digits = blocks * BLOCK * if self.exact { 2 } else { 1 };
        grow(&mut self.digits, rows * digits);
        grow(&mut self.scale, rows * blocks);
        grow(&mut self.sum, rows * blocks);
        grow(&mut self.scaled_sum, rows * blocks);
        grow(&mut self.half_sum, 2 * rows * blocks);
        grow(&mut self.scaled_half_sum, 2 * rows * blocks);
        let room = RoundedRoom(rounding::Rounded {
            digits: self.digits.as_mut_ptr(),
            scale: self.scale.as_mut_ptr(),
            sum: self.sum.as_mut_ptr(),
            scaled_sum: self.scaled_sum.as_mut_ptr(),
            half_sum: self.half_sum.as_mut_ptr(),
            scaled_half_sum: self.scaled_half_sum.as_mut_ptr(),
        });
        let kernel = kernels.round[usize::from(self.exact)];
        let least = LEAST_ELEMENTS.div_ceil(blocks * BLOCK);
        pool.run(rows, least, &|range, _| {
            let RoundedRoom(to) = &room;
            for (row, x) in range.clone().zip(x[range.start * blocks * BLOCK..].chunks_exact(blocks * BLOCK))
            {
                // SAFETY: all rows fit, as was seen to above, and each is given out once.
                unsafe {
                    kernel(
                        x.as_ptr(),
                        blocks,
                        rounding::Rounded {
                            digits: to.digits.add(row * digits),
                            scale: to.scale.add(row * blocks),
                            sum: to.sum.add(row * blocks),
                            scaled_sum: to.scaled_sum.add(row * blocks),
                            half_sum: to.half_sum.add(2 * row * blocks),
                            scaled_half_sum: to.scaled_half_sum.add(2 * row * blocks),
                        },
                    );
                }
            }
        });
    }
}

struct RoundedRoom(rounding::Rounded);
// SAFETY: threads write different rows.
unsafe impl Sync for RoundedRoom {}

/// Products of one call, being listed.
pub(crate) struct Products<'a> {
    room: &'a mut ProductRoom,
    kernels: &'a Kernels,
    pool: &'a Pool,
    x: &'a [f32],
    n_in: usize,
    rounded: bool,
    /// Tiles so far.
    total: usize,
    packed_len: usize,
    /// Of the smallest tile.
    tile_bytes: usize,
}

impl<'a> Products<'a> {
    /// Adds `out = x · weightᵀ + bias` for consecutive rows of x.
    pub(crate) fn push(&mut self, matrix: &'a Matrix, rows: Range<usize>, out: &'a mut [f32]) {
        let (n_in, n_out) = (self.n_in, matrix.n_out());
        assert_eq!(matrix.n_in(), n_in);
        let x = &self.x[rows.start * n_in..rows.end * n_in];
        let out = &mut out[..rows.len() * n_out];
        if x.is_empty() || out.is_empty() {
            out.fill(0.0);
            return;
        }
        let work = match matrix.kernel {
            Kernel::Dense(kernel) => {
                let product = Dense {
                    weights: matrix.weight.bytes().as_ptr(),
                    n_in,
                    n_out,
                    x: x.as_ptr(),
                    rows: rows.len(),
                    bias: matrix.bias(),
                    out: out.as_mut_ptr(),
                    stride: n_out,
                };
                Work::Dense(product, kernel)
            }
            Kernel::Quantised(kernel) => {
                let blocks = n_in / BLOCK;
                if !self.rounded {
                    self.room.round(self.kernels, self.pool, self.x, blocks);
                    self.rounded = true;
                }
                self.packed_len = self.packed_len.max((kernel.packed_len)(blocks));
                let product = Product {
                    weights: matrix.weight.bytes().as_ptr(),
                    row_bytes: matrix.row_bytes,
                    n_out,
                    blocks,
                    x: self.room.activations(rows.start, blocks),
                    rows: rows.len(),
                    bias: matrix.bias(),
                    out: out.as_mut_ptr(),
                    stride: n_out,
                };
                Work::Quantised(product, kernel)
            }
        };
        self.room.list.push(Item { first: self.total, work });
        self.total += matrix.tiles();
        self.tile_bytes = self.tile_bytes.min(LANES * matrix.row_bytes * rows.len());
    }

    /// Computes them all.
    pub(crate) fn run(self) {
        let Self { room, pool, total, packed_len, tile_bytes, .. } = self;
        grow(&mut room.packed, packed_len * pool.threads());
        let shared = Shared { list: &room.list, packed: room.packed.as_mut_ptr(), packed_len, total };
        let least = (LEAST_BYTES / tile_bytes.max(1)).max(1);
        pool.run(total, least, &|range, thread| shared.work(range, thread));
        room.list.clear();
    }
}
