//! How are the products of a step computed? Activations rounded once, tiles of all matrices shared out.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use super::dense::Dense;
use super::matrix::{Kernel, Matrix};
use super::product::{Activations, Product};
use super::rounding;
use super::simd::{BLOCK, LANES};
use super::{Floats, Kernels, Quantised};
use crate::engine::Precision;
use crate::engine::backend::TopLogits;
use crate::engine::cpu::pool::Pool;
use crate::engine::top::Top;

/// Weight bytes below which another thread costs more than it saves.
const LEAST_BYTES: usize = 32 << 10;
/// Activations below which another thread costs more than it saves.
const LEAST_ELEMENTS: usize = 16 << 10;

/// Room for rounded activations and packed tiles; one per sequence.
pub(crate) struct ProductRoom {
    digits: Vec<i8>,
    scale: Vec<f32>,
    sum: Vec<i32>,
    scaled_sum: Vec<f32>,
    half_sum: Vec<i32>,
    scaled_half_sum: Vec<f32>,
    /// From [`aligned`] on.
    bf16: Vec<u32>,
    packed: Vec<i32>,
    list: Vec<Item>,
    pub(super) seen: Vec<Mutex<Seen>>,
    /// What [`Screen`](super::Screen) keeps between its passes.
    pub(super) norms: Vec<f32>,
    pub(super) upper: Vec<f32>,
    pub(super) first: Vec<u32>,
}

/// One product of a call, and how many tiles come before it.
struct Item {
    first: usize,
    work: Work,
}

#[derive(Clone, Copy)]
pub(super) enum Work {
    Quantised(Product, Quantised),
    Dense(Dense, Floats),
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
            // against the shapes when they were listed; tiles are given out once, and threads have
            // their own numbers.
            unsafe { self.part(&item.work, tiles, thread) };
        }
    }

    /// Works on some tiles of one product.
    ///
    /// # Safety
    /// Addresses are valid; nobody else writes the tiles' columns, or has this thread's number.
    unsafe fn part(&self, work: &Work, tiles: Range<usize>, thread: usize) {
        // SAFETY: the caller's promise; a table of kernels exists only on machines that have its
        // instructions.
        unsafe {
            match work {
                Work::Dense(product, kernel) => (kernel.multiply)(product, tiles),
                Work::Quantised(product, kernel) if product.rows == 1 => (kernel.one)(product, tiles),
                Work::Quantised(product, kernel) => {
                    (kernel.many)(product, tiles, self.packed.add(thread * self.packed_len));
                }
            }
        }
    }
}

impl Work {
    /// The same with sixteen other rows of the matrix.
    pub(super) fn gathered(self, weights: *const u8) -> Self {
        match self {
            Work::Dense(product, kernel) => Work::Dense(Dense { weights, n_out: LANES, ..product }, kernel),
            Work::Quantised(product, kernel) => {
                Work::Quantised(Product { weights, n_out: LANES, ..product }, kernel)
            }
        }
    }

    /// Computes the first sixteen outputs of one row.
    ///
    /// # Safety
    /// Addresses are valid, and the output has room.
    pub(super) unsafe fn one_tile(&self) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Work::Dense(product, kernel) => (kernel.multiply)(product, 0..1),
                Work::Quantised(product, kernel) => (kernel.one)(product, 0..1),
            }
        }
    }

    fn rows(&self) -> usize {
        match self {
            Work::Dense(product, _) => product.rows,
            Work::Quantised(product, _) => product.rows,
        }
    }

    /// The same with its output at `out`, from column `from` on.
    pub(super) fn writing_to(self, out: *mut f32, from: usize) -> Self {
        match self {
            Work::Dense(product, kernel) => Work::Dense(Dense { out, from, ..product }, kernel),
            Work::Quantised(product, kernel) => Work::Quantised(Product { out, from, ..product }, kernel),
        }
    }
}

/// A product that threads take copies of, each for tiles of its own.
pub(super) struct Addresses(pub(super) Work);
// SAFETY: it is only read.
unsafe impl Sync for Addresses {}

/// Grows to `len` elements; shorter steps keep the room of longer ones.
pub(super) fn grow<T: Copy + Default>(room: &mut Vec<T>, len: usize) {
    if room.len() < len {
        room.resize(len, T::default());
    }
}

/// Words of a cache line.
const LINE: usize = 16;

/// Where the first cache line begins, below [`LINE`]: vectors that lie across two take twice as long to
/// load.
fn aligned(room: &[u32]) -> usize {
    room.as_ptr().align_offset(4 * LINE).min(LINE)
}

impl ProductRoom {
    /// For up to `rows` rows of up to `width` elements.
    pub(crate) fn new(rows: usize, width: usize, precision: Precision) -> Self {
        let exact = precision == Precision::Exact;
        let blocks = rows * width.div_ceil(BLOCK);
        // Zeroed memory exists only from its first use on: short prompts need little.
        Self {
            digits: vec![0; blocks * BLOCK * if exact { 2 } else { 1 }],
            scale: vec![0.0; blocks],
            sum: vec![0; blocks],
            scaled_sum: vec![0.0; blocks],
            half_sum: vec![0; 2 * blocks],
            scaled_half_sum: vec![0.0; 2 * blocks],
            bf16: vec![0; if precision == Precision::Bf16 { blocks * BLOCK + LINE } else { 0 }],
            packed: Vec::new(),
            list: Vec::new(),
            seen: Vec::new(),
            norms: Vec::new(),
            upper: Vec::new(),
            first: Vec::new(),
        }
    }

    /// Products of rows that `make` makes, one after the other, which rounds each while it is at hand.
    pub(crate) fn products_of<'a>(
        &'a mut self,
        kernels: &'a Kernels,
        pool: &'a Pool,
        x: &'a mut [f32],
        n_in: usize,
        precision: Precision,
        make: impl Fn(usize, &mut [f32]) + Sync,
    ) -> Products<'a> {
        let exact = precision == Precision::Exact;
        let to = Start(x.as_mut_ptr());
        self.round(kernels, pool, x.len() / n_in, n_in, exact, &|row| {
            let Start(to) = &to;
            // SAFETY: rows of `x` are given out once.
            let row_of_x = unsafe { std::slice::from_raw_parts_mut(to.add(row * n_in), n_in) };
            make(row, row_of_x);
            row_of_x.as_ptr()
        });
        Products { rounded: true, ..self.products(kernels, pool, x, n_in, precision) }
    }

    /// Products of rows of `x`, `[rows, n_in]`, that will run together.
    pub(crate) fn products<'a>(
        &'a mut self,
        kernels: &'a Kernels,
        pool: &'a Pool,
        x: &'a [f32],
        n_in: usize,
        precision: Precision,
    ) -> Products<'a> {
        self.list.clear();
        Products {
            room: self,
            kernels,
            pool,
            x,
            n_in,
            precision,
            rounded: false,
            rounded_bf16: false,
            total: 0,
            packed_len: 0,
            tile_bytes: usize::MAX,
        }
    }

    /// Empties the threads' lists of the `k` largest, one for each row.
    pub(super) fn prepare(&mut self, pool: &Pool, rows: usize, logits: usize, k: usize) {
        self.seen.resize_with(pool.threads(), Mutex::default);
        for seen in &mut self.seen {
            let seen = seen.get_mut().unwrap_or_else(PoisonError::into_inner);
            grow(&mut seen.logits, logits);
            seen.rows.resize_with(rows.max(seen.rows.len()), Top::default);
            seen.rows.iter_mut().for_each(|top| top.reset(k));
        }
    }

    /// What the threads' lists hold together, for each of the first rows.
    pub(super) fn largest(&mut self, rows: usize, out: &mut TopLogits<'_>) {
        let TopLogits { k, ids, logits } = out;
        for (row, (ids, logits)) in
            ids.chunks_exact_mut(*k).zip(logits.chunks_exact_mut(*k)).enumerate().take(rows)
        {
            self.merged(row).write(ids, logits);
        }
    }

    /// What the threads' lists hold together for a row.
    pub(super) fn merged(&mut self, row: usize) -> &Top {
        let (first, others) = self.seen.split_at_mut(1);
        let merged = &mut first[0].get_mut().unwrap_or_else(PoisonError::into_inner).rows[row];
        for other in others {
            merged.merge(&other.get_mut().unwrap_or_else(PoisonError::into_inner).rows[row]);
        }
        merged
    }

    /// The rounded rows of `n_in` elements from `row` on.
    fn activations(&self, row: usize, n_in: usize, exact: bool) -> Activations {
        let (digits, at) = (if exact { 2 } else { 1 }, row * n_in.div_ceil(BLOCK));
        Activations {
            digits: self.digits[digits * at * BLOCK..].as_ptr(),
            scale: self.scale[at..].as_ptr(),
            sum: self.sum[at..].as_ptr(),
            scaled_sum: self.scaled_sum[at..].as_ptr(),
            half_sum: self.half_sum[2 * at..].as_ptr(),
            scaled_half_sum: self.scaled_half_sum[2 * at..].as_ptr(),
        }
    }

    /// Rounds rows of `n_in` elements, each where `row` says it is. Zeros fill up the last block, as they may only for
    /// matrices whose rows are padded.
    fn round(
        &mut self,
        kernels: &Kernels,
        pool: &Pool,
        rows: usize,
        n_in: usize,
        exact: bool,
        row: &(dyn Fn(usize) -> *const f32 + Sync),
    ) {
        let (blocks, whole) = (n_in.div_ceil(BLOCK), n_in / BLOCK);
        let digits_of_block = BLOCK * if exact { 2 } else { 1 };
        let digits = blocks * digits_of_block;
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
        let kernel = kernels.round[usize::from(exact)];
        pool.run(rows, LEAST_ELEMENTS.div_ceil(blocks * BLOCK), &|range, _| {
            let RoundedRoom(to) = &room;
            for i in range {
                // SAFETY: all rows fit, as was seen to above, and each is given out once; the caller
                // of this function gives rows of so many elements.
                unsafe {
                    let from = |block: usize| rounding::Rounded {
                        digits: to.digits.add(i * digits + block * digits_of_block),
                        scale: to.scale.add(i * blocks + block),
                        sum: to.sum.add(i * blocks + block),
                        scaled_sum: to.scaled_sum.add(i * blocks + block),
                        half_sum: to.half_sum.add(2 * (i * blocks + block)),
                        scaled_half_sum: to.scaled_half_sum.add(2 * (i * blocks + block)),
                    };
                    let x = row(i);
                    kernel(x, whole, from(0));
                    if whole < blocks {
                        let mut last = [0.0; BLOCK];
                        let left = n_in % BLOCK;
                        last[..left].copy_from_slice(std::slice::from_raw_parts(x.add(n_in - left), left));
                        kernel(last.as_ptr(), 1, from(whole));
                    }
                }
            }
        });
    }

    /// Rounds rows of `n_in` elements to bfloat16.
    fn round_bf16(&mut self, kernels: &Kernels, pool: &Pool, x: &[f32], n_in: usize) {
        let words = (kernels.bf16_words)(n_in);
        let len = x.len() / n_in * words;
        grow(&mut self.bf16, len + LINE);
        let room = aligned(&self.bf16);
        pool.rows(&mut self.bf16[room..][..len], words, LEAST_ELEMENTS.div_ceil(n_in), |row, to, _| {
            // SAFETY: a table of kernels exists only on machines that have its instructions.
            unsafe { (kernels.round_bf16)(&x[row * n_in..][..n_in], to) };
        });
    }
}

/// Where rows begin that threads write.
struct Start(*mut f32);
// SAFETY: threads write different rows.
unsafe impl Sync for Start {}

struct RoundedRoom(rounding::Rounded);
// SAFETY: threads write different rows.
unsafe impl Sync for RoundedRoom {}

/// Tiles whose logits are looked at before the next are computed: they stay in the cache.
pub(super) const STRIP: usize = 32;

/// Looks at columns: their outputs, and the thread's lists of the largest.
pub(super) type See<'a> = &'a (dyn Fn(Range<usize>, &mut [f32], &mut [Top]) + Sync);

/// A thread's part in finding the largest logits.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) logits: Vec<f32>,
    pub(super) rows: Vec<Top>,
    /// Rows of a matrix to be put together, and where.
    pub(super) candidates: Vec<u32>,
    pub(super) gathered: Vec<u8>,
}

/// The norm of a row, and of what rounding to two digits takes from it at most, and to one did.
pub(super) struct Moved {
    pub(super) norm: f64,
    pub(super) fine: f64,
    pub(super) coarse: f64,
}

/// Rounded up, by more than sums of some thousand numbers lose to rounding.
pub(super) fn above(x: f64) -> f32 {
    (x * (1.0 + 1e-3)) as f32
}

/// Products of one call, being listed.
pub(crate) struct Products<'a> {
    pub(super) room: &'a mut ProductRoom,
    pub(super) kernels: &'a Kernels,
    pub(super) pool: &'a Pool,
    pub(super) x: &'a [f32],
    n_in: usize,
    precision: Precision,
    rounded: bool,
    rounded_bf16: bool,
    /// Tiles so far.
    total: usize,
    packed_len: usize,
    /// Of the smallest tile.
    tile_bytes: usize,
}

impl<'a> Products<'a> {
    /// A product of consecutive rows of x, whose output is yet to be named.
    pub(super) fn work(&mut self, matrix: &Matrix, rows: Range<usize>, stride: usize) -> Work {
        let (n_in, n_out) = (self.n_in, matrix.n_out());
        assert_eq!(matrix.n_in(), n_in);
        let x = &self.x[rows.start * n_in..rows.end * n_in];
        let (weights, bias, out) = (matrix.weight.bytes().as_ptr(), matrix.bias(), std::ptr::null_mut());
        match matrix.kernel {
            Kernel::Dense(kernel) => {
                let kernel = kernel[usize::from(self.precision == Precision::Bf16)];
                let x = if kernel.bf16 {
                    if !self.rounded_bf16 {
                        self.room.round_bf16(self.kernels, self.pool, self.x, n_in);
                        self.rounded_bf16 = true;
                    }
                    let first = rows.start * (self.kernels.bf16_words)(n_in);
                    self.room.bf16[aligned(&self.room.bf16) + first..].as_ptr()
                } else {
                    x.as_ptr().cast()
                };
                let rows = rows.len();
                Work::Dense(Dense { weights, n_in, n_out, x, rows, bias, out, stride, from: 0 }, kernel)
            }
            Kernel::Quantised(kernel) => {
                let exact = self.precision == Precision::Exact;
                let stored = matrix.weight.dtype().block_len();
                let (blocks, kernel) = (n_in.div_ceil(stored) * (stored / BLOCK), kernel[usize::from(exact)]);
                if !self.rounded {
                    self.round(exact);
                    self.rounded = true;
                }
                self.packed_len = self.packed_len.max((kernel.packed_len)(blocks));
                let product = Product {
                    weights,
                    row_bytes: matrix.row_bytes,
                    n_out,
                    blocks,
                    x_blocks: n_in.div_ceil(BLOCK),
                    x: self.room.activations(rows.start, n_in, exact),
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

    /// Adds `out = x · weightᵀ + bias` for consecutive rows of x.
    pub(crate) fn push(&mut self, matrix: &'a Matrix, rows: Range<usize>, out: &'a mut [f32]) {
        let (n_in, n_out) = (self.n_in, matrix.n_out());
        let out = &mut out[..rows.len() * n_out];
        if rows.is_empty() || out.is_empty() || n_in == 0 {
            out.fill(0.0);
            return;
        }
        let n_rows = rows.len();
        let work = self.work(matrix, rows, n_out).writing_to(out.as_mut_ptr(), 0);
        self.room.list.push(Item { first: self.total, work });
        self.total += matrix.tiles();
        self.tile_bytes = self.tile_bytes.min(LANES * matrix.row_bytes * n_rows);
    }

    /// Finds the largest of each row's products with one matrix, soft-capped; see
    /// [`Backend::top`](crate::engine::backend::Backend::top). None of the others is written anywhere.
    pub(crate) fn top(mut self, matrix: &'a Matrix, softcap: Option<f32>, out: TopLogits<'_>) {
        let rows = self.x.len() / self.n_in.max(1);
        let mut out = out;
        if let (Some(screen), None, 1) = (&matrix.screen, softcap, rows)
            && screen.top(&mut self, matrix, out.k).is_some()
        {
            self.room.largest(1, &mut out);
            return;
        }
        let work = self.exactly(matrix);
        let kernels = self.kernels;
        self.strips(matrix, work, out.k, &|columns, logits, tops| {
            for (top, logits) in tops.iter_mut().zip(logits.chunks_exact_mut(STRIP * LANES)) {
                let logits = &mut logits[..columns.len()];
                if let Some(cap) = softcap {
                    kernels.softcap(logits, cap);
                }
                top.see(columns.start, logits);
            }
        });
        self.room.largest(rows, &mut out);
    }

    /// The product of all rows with a matrix, in strips, as asked for.
    pub(super) fn exactly(&mut self, matrix: &Matrix) -> Work {
        let rows = self.x.len() / self.n_in.max(1);
        (self.precision, self.rounded) = (Precision::Exact, false);
        self.work(matrix, 0..rows, STRIP * LANES)
    }

    /// The one row rounded to one digit, whatever the precision.
    pub(super) fn coarse(&mut self) -> Activations {
        self.round(false);
        self.room.activations(0, self.n_in, false)
    }

    fn round(&mut self, exact: bool) {
        let (x, n_in) = (self.x, self.n_in);
        let row = |row: usize| x[row * n_in..][..n_in].as_ptr();
        self.room.round(self.kernels, self.pool, x.len() / n_in, n_in, exact, &row);
    }

    /// How far rounding moves the one row, after [`coarse`](Self::coarse). Also notes the norms of what
    /// rounding to two digits can make of its blocks.
    pub(super) fn moved(&mut self) -> Moved {
        let room = &mut *self.room;
        let (mut norm, mut fine, mut coarse) = (0.0, 0.0, 0.0);
        room.norms.clear();
        for ((x, digits), scale) in
            self.x.chunks_exact(BLOCK).zip(room.digits.chunks_exact(BLOCK)).zip(&room.scale)
        {
            let scale = f64::from(*scale);
            let (mut square, mut off) = (0.0, 0.0);
            for (x, digit) in x.iter().zip(digits) {
                square += f64::from(*x).powi(2);
                off += (f64::from(*x) - scale * f64::from(*digit)).powi(2);
            }
            // Two digits have a scale 256 times as fine; an element is off by half of it.
            let least = BLOCK as f64 * (scale / 255.0).powi(2);
            room.norms.push(above(square.sqrt() + least.sqrt()));
            (norm, fine, coarse) = (norm + square, fine + least, coarse + off);
        }
        Moved { norm: norm.sqrt(), fine: fine.sqrt(), coarse: coarse.sqrt() }
    }

    /// Computes a product a strip of columns at a time: calls `see` with the columns, their outputs
    /// `[rows, STRIP · 16]` and the thread's lists of the `k` largest, one for each row.
    pub(super) fn strips(&mut self, matrix: &Matrix, work: Work, k: usize, see: See<'_>) {
        let rows = work.rows();
        let Self { room, pool, packed_len, .. } = self;
        grow(&mut room.packed, *packed_len * pool.threads());
        room.prepare(pool, rows, rows * STRIP * LANES, k);
        let (packed, packed_len, total) = (room.packed.as_mut_ptr(), *packed_len, matrix.tiles());
        let shared = Shared { list: &[], packed, packed_len, total };
        let (work, all) = (Addresses(work), &room.seen);
        // A unit is a strip of tiles.
        pool.run(total.div_ceil(STRIP), 1, &|range, thread| {
            let Addresses(work) = &work;
            let mut seen = all[thread].lock().unwrap_or_else(PoisonError::into_inner);
            let Seen { logits, rows: tops, .. } = &mut *seen;
            for strip in range {
                let tiles = strip * STRIP..((strip + 1) * STRIP).min(shared.total);
                let columns = matrix.columns(&tiles);
                // SAFETY: as in `Shared::work`; the output has room for a strip of each row.
                unsafe { shared.part(&work.writing_to(logits.as_mut_ptr(), columns.start), tiles, thread) };
                see(columns, logits, tops);
            }
        });
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
