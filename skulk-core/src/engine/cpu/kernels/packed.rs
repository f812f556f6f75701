//! How do many activation rows multiply a matrix? A tile is packed once, into memory that stays in the cache, and
//! serves them all.
#![allow(unsafe_op_in_unsafe_fn, reason = "functions and traits state their contracts")]

use std::ops::Range;

use super::format::{Format, Layout};
use super::product::{Ahead, Product, columns, no_scales, of_block};
use super::rounding::Activations;
use super::simd::{BLOCK, LANES, Simd};

/// Adds columns `from..to` of a packed block to the sums of `N` rows, whose integers are at `x`.
#[inline(always)]
unsafe fn dot<S: Simd, L: Layout, const EXACT: bool, const N: usize>(
    sums: &mut [S::I; N],
    block: *const i32,
    (from, to): (usize, usize),
    x: *const i8,
    distance: usize,
) {
    let (packed, columns, part) = (block.add(from * LANES), to - from, x.add(4 * from));
    match (EXACT, L::SIGNED || L::WIDE) {
        (false, false) => S::dot_packed::<false, N>(sums, packed, columns, part, distance),
        (false, true) => S::dot_packed::<true, N>(sums, packed, columns, part, distance),
        (true, false) => S::dot_packed_exact::<false, N>(sums, packed, (from, columns), x, distance),
        (true, true) => S::dot_packed_exact::<true, N>(sums, packed, (from, columns), x, distance),
    }
}

/// f32 or i32 vectors that a packed block takes.
pub(super) const fn packed_vectors<L: Layout>() -> usize {
    let scales = if L::HALVES { 2 } else { 1 };
    8 + scales + if L::MIN { scales } else { 0 }
}

/// Elements of scratch memory for a packed tile of rows of `blocks` blocks.
pub(super) const fn packed_len<L: Layout>(blocks: usize) -> usize {
    blocks * packed_vectors::<L>() * LANES
}

/// Puts a tile into the order in which [`multiply`] reads it.
///
/// # Safety
/// As of [`direct`](super::direct::multiply), and there is room for [`packed_len`] elements.
#[inline(always)]
pub(super) unsafe fn pack<S: Simd, F: Format>(product: &Product, tile: usize, mut to: *mut i32) {
    let (_, stored) = product.tile(tile);
    let mut raw = [S::isplat(0); 24];
    let mut scales = no_scales::<S>();
    let (mut ahead, mut block) = (Ahead::of::<F>(product, tile, false), 0);
    while block < product.blocks {
        let at = block / F::BLOCKS * F::BYTES;
        F::scales::<S>(&stored, at, &mut scales);
        for j in 0..F::BLOCKS {
            ahead.block::<S, F>();
            if j % F::TOGETHER == 0 {
                raw = F::read::<S>(&stored.rows, at, j / F::TOGETHER);
            }
            for column in S::ordered(columns::<S, F, true>(&raw, j)) {
                S::istore(to, column);
                to = to.add(LANES);
            }
            let (scale, min) = of_block::<S, F>(&scales, j);
            for i in 0..if F::Layout::HALVES { 2 } else { 1 } {
                S::store(to.cast(), scale[i]);
                to = to.add(LANES);
                if F::Layout::MIN {
                    S::store(to.cast(), min[i]);
                    to = to.add(LANES);
                }
            }
        }
        block += F::BLOCKS;
    }
}

/// A packed block, of which rows are multiplied by a half or all.
struct Block<'a> {
    x: &'a Activations,
    packed: *const i32,
    /// The first row's block among the grouped ones; those of the next rows follow.
    first: usize,
    /// Which columns.
    part: usize,
    parts: usize,
    shift: i32,
}

impl Block<'_> {
    /// Adds to the sums of `N` rows.
    ///
    /// # Safety
    /// As of [`multiply`].
    #[inline(always)]
    unsafe fn add<S: Simd, L: Layout, const EXACT: bool, const N: usize>(&self, sums: &mut [S::F; N]) {
        let &Self { x, packed, first, part, parts, shift } = self;
        let digits = if EXACT { 2 * BLOCK } else { BLOCK };
        let of_row = |n: usize| first + n;
        let n_columns = 8 / parts;
        let mut totals = [S::isplat(0); N];
        // Where there is a minimum, zero is zero, unless all eight bits were taken for signed ones.
        if if L::WIDE { S::SIGNED_WIDE } else { !S::SIGNED && !L::MIN } {
            for (n, total) in totals.iter_mut().enumerate() {
                let at = of_row(n);
                let sum = if L::HALVES { *x.half_sum.add(2 * at + part) } else { *x.sum.add(at) };
                *total = S::isplat(sum.wrapping_mul(-shift));
            }
        }
        let (columns, base) = ((part * n_columns, (part + 1) * n_columns), x.digits.add(of_row(0) * digits));
        dot::<S, L, EXACT, N>(&mut totals, packed, columns, base, digits);
        let scale = S::load(packed.add((8 + part * if L::MIN { 2 } else { 1 }) * LANES).cast());
        for (n, sum) in sums.iter_mut().enumerate() {
            let d = S::splat(*x.scale.add(of_row(n)));
            *sum = S::fma(S::to_f32(totals[n]), S::mul(scale, d), *sum);
        }
    }
}

/// Activation rows from `row` on by a packed tile, from whose integers [`shift`](super::product::shift) is to be
/// subtracted: `N` at a time, as long as there are so many. Returns the first of those that are left. The `N` rows
/// are of one group of [`Simd::GROUP`].
///
/// # Safety
/// As of [`pack`], and the tile has been packed.
#[inline(always)]
pub(super) unsafe fn multiply<S: Simd, L: Layout, const EXACT: bool, const N: usize>(
    product: &Product,
    tile: usize,
    packed: *const i32,
    mut row: usize,
    shift: i32,
) -> usize {
    while row + N <= product.rows {
        multiply_rows::<S, L, EXACT, N>(product, tile, packed, row, shift);
        row += N;
    }
    row
}

/// `N` of them.
#[inline(always)]
unsafe fn multiply_rows<S: Simd, L: Layout, const EXACT: bool, const N: usize>(
    product: &Product,
    tile: usize,
    mut packed: *const i32,
    row: usize,
    shift: i32,
) {
    let (x, blocks) = (&product.grouped, product.x_blocks);
    let group = row / S::GROUP * S::GROUP;
    // Addresses of all rows are an offset from one: there are not as many registers as rows.
    let (at, rows) = (group * blocks + row - group, S::GROUP.min(product.rows - group));
    debug_assert!(row - group + N <= rows, "rows of two groups");
    let parts = if L::HALVES { 2 } else { 1 };
    let mut sums = [S::zero(); N];
    for block in 0..blocks {
        let first = at + block * if N == S::GROUP { N } else { rows };
        for part in 0..parts {
            let block = Block { x, packed, first, part, parts, shift };
            block.add::<S, L, EXACT, N>(&mut sums);
        }
        if L::MIN {
            for part in 0..parts {
                let min = S::load(packed.add((8 + 2 * part + 1) * LANES).cast());
                for (n, sum) in sums.iter_mut().enumerate() {
                    let at = first + n;
                    let of_block =
                        if L::HALVES { *x.scaled_half_sum.add(2 * at + part) } else { *x.scaled_sum.add(at) };
                    *sum = S::fma(min, S::splat(of_block), *sum);
                }
            }
        }
        packed = packed.add(const { packed_vectors::<L>() } * LANES);
    }
    let (first_out, _) = product.tile(tile);
    for (n, sum) in sums.into_iter().enumerate() {
        product.store::<S>(row + n, tile, first_out, sum);
    }
}

/// [`pack`] of a storage type.
pub(super) type Pack = unsafe fn(&Product, usize, *mut i32);
/// [`multiply`] of its layout.
pub(super) type Multiply = unsafe fn(&Product, usize, *const i32, usize, i32) -> usize;

/// The functions of a product of many rows.
#[derive(Clone, Copy)]
pub(super) struct Gemm {
    pub(super) pack: Pack,
    /// Each of rows that those before have left: most at a time first, single ones last.
    pub(super) multiply: &'static [Multiply],
    /// Rows of a [group](super::rounding::group) of activations, as they take them.
    pub(super) grouped: usize,
    pub(super) shift: i32,
    /// Elements of a packed tile of rows of so many blocks.
    pub(super) packed_len: fn(usize) -> usize,
}

impl Gemm {
    /// All activation rows by the weight rows of `tiles`.
    ///
    /// # Safety
    /// As of [`pack`]; `packed` has room for a packed tile.
    pub(super) unsafe fn run(&self, product: &Product, tiles: Range<usize>, packed: *mut i32) {
        for tile in tiles {
            // SAFETY: the caller's promise.
            unsafe { (self.pack)(product, tile, packed) };
            let mut row = 0;
            for multiply in self.multiply {
                // SAFETY: as above.
                row = unsafe { multiply(product, tile, packed, row, self.shift) };
            }
        }
    }
}
