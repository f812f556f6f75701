//! How are a step's products computed? Tiles of all matrices behind each other, shared out to threads.

use std::ops::Range;

use super::dense::Dense;
use super::format::Beside;
use super::matrix::{Kernel, Matrix, Source};
use super::product::Product;
use super::rounding::Activations;
use super::scaled;
use super::scratch::{Form, Part, ProductScratch};
use super::simd::{BLOCK, LANES};
use super::{Floats, Kernels, Quantised};
use crate::engine::Precision;
use crate::engine::cpu::lines::Lines;
use crate::engine::cpu::pool::Pool;
use crate::engine::cpu::trace;

/// Weight bytes below which another thread costs more than it saves.
const LEAST_BYTES: usize = 32 << 10;

/// One product of a call, and how many tiles come before it.
pub(super) struct Item {
    first: usize,
    work: Work,
}

/// A product and the kernel that computes it.
#[derive(Clone, Copy)]
pub(super) enum Work {
    Quantised(Product, Quantised),
    Dense(Dense, Floats),
}

impl Work {
    /// The same with sixteen other rows of the matrix, which are not woven; behind them are their scales and minima, of a type
    /// that has them beside.
    pub(super) fn gathered(self, weights: *const u8) -> Self {
        match self {
            Work::Dense(product, kernel) => {
                let scales = product.scales.gathered(weights.wrapping_add(LANES * product.n_in));
                Work::Dense(Dense { weights, n_out: LANES, scales, ..product }, kernel)
            }
            Work::Quantised(product, kernel) => {
                let scales = weights.wrapping_add(LANES * product.row_bytes);
                let mins = scales.wrapping_add(LANES * product.beside.row_bytes);
                let beside = Beside { scales, mins, woven: false, ..product.beside };
                Work::Quantised(Product { weights, woven: false, beside, n_out: LANES, ..product }, kernel)
            }
        }
    }

    /// The same with one of its rows.
    ///
    /// # Safety
    /// There is such a row, as two digits where it is of integers, and not in bfloat16.
    pub(super) unsafe fn of_row(self, row: usize) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Work::Dense(product, kernel) => {
                    Work::Dense(Dense { x: product.x.add(row * product.n_in), rows: 1, ..product }, kernel)
                }
                Work::Quantised(product, kernel) => {
                    let x = product.x.skip(row * product.x_blocks, true);
                    Work::Quantised(Product { x, rows: 1, ..product }, kernel)
                }
            }
        }
    }

    /// The same with no rows of the matrix behind so many: none of them is asked for ahead of its use.
    pub(super) fn up_to(self, n_out: usize) -> Self {
        match self {
            Work::Dense(product, kernel) => Work::Dense(Dense { n_out, ..product }, kernel),
            Work::Quantised(product, kernel) => Work::Quantised(Product { n_out, ..product }, kernel),
        }
    }

    /// The same with its output at `out`, from column `from` on.
    pub(super) fn writing_to(self, out: *mut f32, from: usize) -> Self {
        match self {
            Work::Dense(product, kernel) => Work::Dense(Dense { out, from, ..product }, kernel),
            Work::Quantised(product, kernel) => Work::Quantised(Product { out, from, ..product }, kernel),
        }
    }

    /// Works on some tiles; `packed` has room for a packed tile, unless there are few rows.
    ///
    /// # Safety
    /// Addresses are valid; nobody else writes the tiles' columns or `packed`.
    pub(super) unsafe fn tiles(&self, tiles: Range<usize>, packed: *mut i32) {
        // SAFETY: the caller's promise; a table of kernels exists only on machines that have its
        // instructions.
        unsafe {
            match self {
                Work::Dense(product, kernel) => match kernel.many.filter(|_| product.rows >= scaled::MANY) {
                    Some(many) => scaled::unpacked(product, tiles, packed.cast(), many),
                    None => (kernel.multiply)(product, tiles),
                },
                Work::Quantised(product, kernel) => match product.rows {
                    1 => (kernel.one)(product, tiles),
                    rows if rows < kernel.many => kernel.few(rows)(product, tiles),
                    _ => kernel.gemm.run(product, tiles, packed),
                },
            }
        }
    }
}

/// A product that threads take copies of, each for tiles of its own.
pub(super) struct SharedWork(Work);
// SAFETY: it is only read.
unsafe impl Sync for SharedWork {}

impl SharedWork {
    /// # Safety
    /// The product's addresses stay valid as long as this exists.
    pub(super) unsafe fn new(work: Work) -> Self {
        Self(work)
    }

    pub(super) fn get(&self) -> Work {
        self.0
    }
}

/// A packed tile for each thread.
pub(super) struct Packed {
    start: *mut i32,
    len: usize,
}
// SAFETY: threads use their own parts.
unsafe impl Sync for Packed {}

impl Packed {
    /// Makes room for tiles of `len` elements.
    pub(super) fn new(memory: &mut Lines<i32>, len: usize, pool: &Pool) -> Self {
        memory.grow(len * pool.threads());
        Self { start: memory.as_mut_ptr(), len }
    }

    /// One thread's.
    pub(super) fn of(&self, thread: usize) -> *mut i32 {
        self.start.wrapping_add(thread * self.len)
    }
}

/// A call's products, seen by all threads.
struct Listed<'a> {
    list: &'a [Item],
    packed: Packed,
    total: usize,
}
// SAFETY: the list is only read.
unsafe impl Sync for Listed<'_> {}

impl Listed<'_> {
    /// Works on tiles `range` of all products behind each other.
    ///
    /// # Safety
    /// Addresses are valid; nobody else gets these tiles, or has this thread's number.
    unsafe fn tiles(&self, range: Range<usize>, thread: usize) {
        for (i, item) in self.list.iter().enumerate() {
            let end = self.list.get(i + 1).map_or(self.total, |next| next.first);
            let tiles = range.start.max(item.first)..range.end.min(end);
            if !tiles.is_empty() {
                let tiles = tiles.start - item.first..tiles.end - item.first;
                // SAFETY: the caller's promise.
                unsafe { item.work.tiles(tiles, self.packed.of(thread)) };
            }
        }
    }
}

/// Products of one call, being listed.
pub(crate) struct Products<'a> {
    pub(super) scratch: &'a mut ProductScratch,
    pub(super) kernels: &'a Kernels,
    pub(super) pool: &'a Pool,
    pub(super) x: &'a [f32],
    pub(super) n_in: usize,
    pub(super) precision: Precision,
    /// Of `x`, or where that is empty of the parts.
    pub(super) n_rows: usize,
    /// Rows that the scratch memory has in a form of their own.
    pub(super) parts: &'a [Part],
    /// Whether it has all rows one after the other as integers, and as bfloat16.
    pub(super) rounded: bool,
    pub(super) rounded_bf16: bool,
    /// Whether it has them in pairs.
    pub(super) paired: bool,
    /// Which rows it has grouped last, and which of those in pairs.
    pub(super) grouped: [Range<usize>; 2],
    /// Tiles so far.
    pub(super) total: usize,
    /// Elements of the largest packed tile.
    pub(super) packed_len: usize,
    /// Of the smallest tile.
    pub(super) tile_bytes: usize,
    /// Bytes of weights so far, and multiplications and additions.
    pub(super) counts: [u64; 2],
}

impl<'a> Products<'a> {
    /// Goes on with activations that are rounded otherwise, which the scratch memory has or has not.
    pub(super) fn set_precision(&mut self, precision: Precision, rounded: bool) {
        (self.precision, self.parts) = (precision, &[]);
        (self.rounded, self.paired, self.grouped) = (rounded, false, [0..0, 0..0]);
    }

    /// Notes that the scratch memory has all rows in some form.
    pub(super) fn has(&mut self, form: Form) {
        match form {
            Form::Grouped(_) => self.grouped[0] = 0..self.n_rows,
            Form::Ordered | Form::Paired => (self.rounded, self.paired) = (true, form == Form::Paired),
        }
    }

    /// A product of consecutive rows of x, whose output is yet to be named.
    pub(super) fn work(&mut self, matrix: &Matrix, rows: Range<usize>, stride: usize) -> Work {
        let (n_in, n_out) = (self.n_in, matrix.n_out());
        assert_eq!(matrix.n_in(), n_in);
        let (bias, out) = (matrix.bias(), std::ptr::null_mut());
        let Source { weights, row_bytes, blocks, woven, beside, .. } = matrix.source;
        match matrix.kernel {
            Kernel::Dense(kernel) => {
                let kernel = kernel[usize::from(self.precision == Precision::Bf16)];
                let x = &self.x[rows.start * n_in..rows.end * n_in];
                let x = if kernel.bf16 {
                    if !self.rounded_bf16 {
                        self.scratch.round_bf16(self.kernels, self.pool, self.x, n_in);
                        self.rounded_bf16 = true;
                    }
                    self.scratch.bf16(rows.start * (self.kernels.bf16_words)(n_in))
                } else {
                    x.as_ptr().cast()
                };
                let (rows, scales) = (rows.len(), matrix.scales());
                if kernel.many.is_some() && rows >= scaled::MANY {
                    self.packed_len = self.packed_len.max(LANES * n_in);
                }
                let from = 0;
                Work::Dense(Dense { weights, n_in, n_out, x, rows, bias, out, stride, from, scales }, kernel)
            }
            Kernel::Quantised(kernel) => {
                let exact = self.precision == Precision::Exact;
                let kernel = kernel[usize::from(exact)];
                let at = self.parts.partition_point(|part| part.rows.end <= rows.start);
                let own = self.parts.get(at).filter(|part| part.rows == rows).map(|part| part.form);
                // Groups of some rows are copied from all, unless they were rounded so.
                let form = match kernel.form(rows.len()) {
                    Form::Grouped(_) if own.is_none() && rows.len() < self.n_rows => Form::Ordered,
                    form => form,
                };
                let there =
                    matches!(form, Form::Grouped(_)) && (own == Some(form) || self.grouped[0] == rows);
                let ordered = self.rounded || matches!(own, Some(Form::Ordered | Form::Paired));
                if !ordered && !there {
                    assert_eq!(self.x.len(), self.n_rows * n_in, "rows of a part");
                    self.scratch.round(self.kernels, self.pool, (self.x, n_in), exact, form);
                    self.has(form);
                }
                let many = rows.len() >= kernel.many;
                if many {
                    self.packed_len = self.packed_len.max((kernel.gemm.packed_len)(blocks));
                }
                // Rows in order for a kernel of few rows, grouped for one of many.
                let [x, grouped] = if matches!(form, Form::Grouped(_)) && !ordered {
                    [self.scratch.grouped(rows.start, n_in, (exact, false)); 2]
                } else {
                    self.in_order(kernel, &rows, exact, own == Some(Form::Paired))
                };
                let product = Product {
                    weights,
                    row_bytes,
                    woven,
                    beside,
                    n_out,
                    blocks,
                    x_blocks: n_in.div_ceil(BLOCK),
                    x,
                    grouped,
                    rows: rows.len(),
                    bias,
                    out,
                    stride,
                    from: 0,
                };
                Work::Quantised(product, kernel)
            }
        }
    }

    /// Rows that are rounded in order, and where there are many the same grouped. `paired`: these are in pairs.
    fn in_order(
        &mut self,
        kernel: Quantised,
        rows: &Range<usize>,
        exact: bool,
        paired: bool,
    ) -> [Activations; 2] {
        let mut x = self.scratch.activations(rows.start, self.n_in, exact);
        if kernel.paired {
            if !self.paired && !paired {
                self.scratch.pair(self.kernels, self.pool, self.n_rows, self.n_in, exact);
                self.paired = true;
            }
            x.digits = self.scratch.paired(rows.start, self.n_in, exact);
        }
        if rows.len() < kernel.many {
            return [x; 2];
        }
        let last = &mut self.grouped[usize::from(kernel.paired)];
        if last != rows {
            *last = rows.clone();
            let (of, how) = ((rows, kernel.gemm.grouped), (exact, kernel.paired));
            self.scratch.group(self.pool, x, of, (self.n_rows * self.n_in, self.n_in), how);
        }
        [x, self.scratch.grouped(rows.start, self.n_in, (exact, kernel.paired))]
    }

    /// Adds `out = x · weightᵀ + bias` for consecutive rows of x, which are those of other products or none of them.
    pub(crate) fn push(&mut self, matrix: &'a Matrix, rows: Range<usize>, out: &'a mut [f32]) {
        let (n_in, n_out) = (self.n_in, matrix.n_out());
        let out = &mut out[..rows.len() * n_out];
        if rows.is_empty() || out.is_empty() || n_in == 0 {
            out.fill(0.0);
            return;
        }
        let n_rows = rows.len();
        let work = self.work(matrix, rows, n_out).writing_to(out.as_mut_ptr(), 0);
        self.scratch.list.push(Item { first: self.total, work });
        self.total += matrix.tiles();
        self.counts[0] += (n_out * matrix.source.row_bytes) as u64;
        self.counts[1] += 2 * (n_in * n_out) as u64 * n_rows as u64;
        self.tile_bytes = self.tile_bytes.min(LANES * matrix.source.row_bytes * n_rows);
    }

    /// Computes them all.
    pub(crate) fn run(self) {
        let Self { scratch, pool, total, packed_len, tile_bytes, counts, .. } = self;
        let packed = Packed::new(&mut scratch.packed, packed_len, pool);
        let listed = Listed { list: &scratch.list, packed, total };
        let least = (LEAST_BYTES / tile_bytes.max(1)).max(1);
        trace::next(|| counts);
        pool.run(total, least, &|range, thread| {
            // SAFETY: addresses come from slices that `self` borrows, whose lengths were checked against
            // the shapes when they were listed; tiles are given out once, and threads have their own
            // numbers.
            unsafe { listed.tiles(range, thread) };
        });
        scratch.list.clear();
    }
}
