//! Which rows of a table may have a large product with a query? Integers tell, within proven bounds.
//!
//! A row e is copied as `ê = s·i`, with integers i from -127 to 127 and one scale s, and so is a query q.
//! With `δe = e - ê` and `δq = q - q̂`, and by Cauchy and Schwarz,
//!
//! `|e·q - ê·q̂| = |δe·q + ê·δq| ≤ ‖δe‖·‖q‖ + ‖ê‖·‖δq‖`
//!
//! What is compared is the product as [`dot`] computes it, in f32, which is off by at most
//! `γ·‖e‖·‖q‖` with γ of about `n·2^-24` for n elements (Higham, Accuracy and Stability of Numerical
//! Algorithms, 3.1). A copy's bound has `(n + 64)·2^-23·(‖ê‖ + ‖δe‖)·‖q‖` for that and for the
//! few roundings of the bound itself.
//!
//! Columns of a table differ in size, and few large ones cost all others digits. Each is multiplied by a weight
//! before it is rounded, and that of queries by its reciprocal, which leaves products as they are: the
//! bounds are of the weighted rows, whose elements have the same products but for three roundings.
//!
//! Sixteen rows make a tile: their integers, packed as [`Simd::dot_packed`] wants them, then 16 scales,
//! 16 bounds for each unit of a query's length, and 16 lengths. Twelve queries make a group, which
//! is whole passes of any instruction set: 32 bytes of each lie side by side, so that all addresses are
//! fixed distances from one.
#![allow(unsafe_op_in_unsafe_fn, reason = "functions and traits state their contracts")]

use std::ops::Range;

use memmap2::MmapMut;

use super::Kernels;
use super::dense::{BF16, F16, F32, Float};
use super::simd::{BLOCK, LANES, Rows, Simd};
use crate::weights::{DType, quant};

/// Queries of a group.
pub(crate) const GROUP: usize = 12;

/// The widest rows: sums of as many products of integers fit into 32 bits.
pub(crate) const WIDEST: usize = 1 << 17;

/// Below this a row's integers are all zeros: the reciprocal of its scale would overflow.
const SMALL: f32 = 1e-30;

/// More than what products lose where they are too small for a float.
const UNDERFLOW: f64 = 1e-37;

/// What is added to unsigned weights.
const SHIFT: u8 = 128;

/// One instruction set's functions.
pub(super) struct Functions {
    pub(super) round: unsafe fn(&[f32], &mut [i8]) -> Rounded,
    pub(super) pack: unsafe fn(*const i8, usize, *mut i32),
    pub(super) pass: unsafe fn(&Pass, Range<usize>, &mut Vec<Hit>),
    /// Of rows in f32, f16 and bfloat16.
    pub(super) dot: [unsafe fn(*const u8, &[f32]) -> f32; 3],
}

/// What is known of a row's copy.
#[derive(Clone, Copy)]
pub(crate) struct Rounded {
    /// The row's largest absolute value; infinite, or not a number, where one of its numbers is.
    largest: f32,
    scale: f32,
    /// Squared lengths of the integers, and of what they leave out, in units of the scale.
    own: f32,
    off: f32,
    sum: i32,
}

impl Rounded {
    /// Lengths of the copy and of what it leaves out, in units of the scale (of 1 where that is 0), or a little more.
    /// They are infinite where the row has such numbers.
    fn lengths(&self, n: usize) -> [f64; 2] {
        // What sums of n squares in 16 lanes lose, and more than conversions do.
        let more = 1.0 + (n / LANES + 32) as f64 / f64::from(1 << 23);
        if self.scale == 0.0 {
            // Weights may have made zeros of what was below the smallest normal number.
            let most = f64::from(self.largest) + f64::from(f32::MIN_POSITIVE);
            return [0.0, (n as f64).sqrt() * most * more];
        }
        [self.own, self.off].map(|square| f64::from(square).sqrt() * more)
    }

    fn unit(&self) -> f64 {
        if self.scale == 0.0 { 1.0 } else { f64::from(self.scale) }
    }
}

/// Rounds a row of whole blocks.
///
/// # Safety
/// The machine has `S`'s instructions, and both slices have the same length.
#[inline(always)]
pub(super) unsafe fn round<S: Simd>(x: &[f32], to: &mut [i8]) -> Rounded {
    let (x, n) = (x.as_ptr(), to.len());
    let mut largest = 0.0f32;
    for at in (0..n).step_by(BLOCK) {
        let of_block = S::largest(S::load(x.add(at)), S::load(x.add(at + LANES)));
        // Keeps what is not a number.
        largest = if of_block > largest || of_block.is_nan() { of_block } else { largest };
    }
    if !(SMALL..f32::INFINITY).contains(&largest) {
        to.fill(0);
        return Rounded { largest, scale: 0.0, own: 0.0, off: 0.0, sum: 0 };
    }
    let (scale, inverse) = (largest / 127.0, 127.0 / largest);
    let (mut own, mut off, mut sum) = (S::zero(), S::zero(), S::isplat(0));
    for at in (0..n).step_by(LANES) {
        let value = S::load(x.add(at));
        let integer = S::round(S::mul(value, S::splat(inverse)));
        let float = S::to_f32(integer);
        let rest = S::mul(S::fma(S::splat(-scale), float, value), S::splat(inverse));
        (own, off) = (S::fma(float, float, own), S::fma(rest, rest, off));
        sum = S::iadd(sum, integer);
        S::store_i8(to.as_mut_ptr().add(at), integer);
    }
    let mut sums = [0i32; LANES];
    S::istore(sums.as_mut_ptr(), sum);
    Rounded { largest, scale, own: S::sum(own), off: S::sum(off), sum: sums.iter().sum() }
}

/// Puts sixteen rows of integers, which lie behind each other, into the order of a tile.
///
/// # Safety
/// Rows have `blocks` blocks, there is room for as many integers, and the machine has `S`'s instructions.
#[inline(always)]
pub(super) unsafe fn pack<S: Simd>(rows: *const i8, blocks: usize, mut to: *mut i32) {
    let rows = Rows::new(rows.cast(), blocks * BLOCK);
    for block in 0..blocks {
        let [a, b, c, d] = S::columns(&rows, block * BLOCK);
        let [e, f, g, h] = S::columns(&rows, block * BLOCK + BLOCK / 2);
        for column in S::ordered([a, b, c, d, e, f, g, h]) {
            let flip = if S::SIGNED_WIDE { 0 } else { i32::from_le_bytes([SHIFT; 4]) };
            S::istore(to, S::ixor(column, S::isplat(flip)));
            to = to.add(LANES);
        }
    }
}

/// Tiles by a group of queries.
pub(super) struct Pass {
    tiles: *const i32,
    blocks: usize,
    queries: usize,
    /// `[blocks, GROUP, 32]`.
    digits: *const i8,
    /// Of each query: the sum of its integers, its length and that of what they leave out, and the
    /// least product that matters, all in units of its scale.
    sums: *const i32,
    lengths: *const f32,
    off: *const f32,
    least: *const f32,
}

/// Rows of a tile whose products with a query may matter.
#[derive(Clone, Copy)]
pub(crate) struct Hit {
    tile: u32,
    query: u32,
    lanes: u32,
    /// What products are at most, in units of the query's scale.
    upper: [f32; LANES],
}

impl Hit {
    /// The number of the query in its group.
    pub(crate) fn query(&self) -> usize {
        self.query as usize
    }

    /// The rows, and what their products are at most, in units of the query's scale.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (usize, f32)> {
        let set = move |lane: &usize| self.lanes >> lane & 1 == 1;
        (0..LANES).filter(set).map(|lane| (self.tile as usize * LANES + lane, self.upper[lane]))
    }
}

/// Words of a tile.
const fn tile_words(blocks: usize) -> usize {
    (8 * blocks + 3) * LANES
}

/// Lists rows of `tiles` whose products may reach what is least.
///
/// # Safety
/// The addresses are valid and the machine has `S`'s instructions.
#[inline(always)]
pub(super) unsafe fn pass<S: Simd, const N: usize, const TAIL: usize>(
    work: &Pass,
    tiles: Range<usize>,
    found: &mut Vec<Hit>,
) {
    let mut query = 0;
    while query + N <= work.queries {
        multiply::<S, N>(work, tiles.clone(), query, found);
        query += N;
    }
    while query + TAIL <= work.queries {
        multiply::<S, TAIL>(work, tiles.clone(), query, found);
        query += TAIL;
    }
    while query < work.queries {
        multiply::<S, 1>(work, tiles.clone(), query, found);
        query += 1;
    }
}

/// `N` queries from `query` on.
#[inline(always)]
unsafe fn multiply<S: Simd, const N: usize>(
    work: &Pass,
    tiles: Range<usize>,
    query: usize,
    found: &mut Vec<Hit>,
) {
    for tile in tiles {
        let mut columns = work.tiles.add(tile * tile_words(work.blocks));
        let mut digits = work.digits.add(query * BLOCK);
        let mut sums = [S::isplat(0); N];
        if !S::SIGNED_WIDE {
            for (n, sum) in sums.iter_mut().enumerate() {
                *sum = S::isplat((*work.sums.add(query + n)).wrapping_mul(-i32::from(SHIFT)));
            }
        }
        for _ in 0..work.blocks {
            S::dot_packed::<true, N>(&mut sums, columns, 8, digits, BLOCK);
            columns = columns.add(8 * LANES);
            digits = digits.add(GROUP * BLOCK);
        }
        let scale = S::load(columns.cast());
        let off = S::load(columns.add(LANES).cast());
        let length = S::load(columns.add(2 * LANES).cast());
        for (n, sum) in sums.into_iter().enumerate() {
            let n = query + n;
            let more = S::mul(length, S::splat(*work.off.add(n)));
            let more = S::fma(off, S::splat(*work.lengths.add(n)), more);
            let upper = S::fma(S::to_f32(sum), scale, more);
            let lanes = S::not_below(upper, S::splat(*work.least.add(n)));
            if lanes != 0 {
                let mut hit = Hit { tile: tile as u32, query: n as u32, lanes, upper: [0.0; LANES] };
                S::store(hit.upper.as_mut_ptr(), upper);
                found.push(hit);
            }
        }
    }
}

/// The product in f32 of a stored row with as many numbers as `b` has: four sums of sixteen lanes, each of every
/// fourth sixteen elements, added in one order on every machine.
///
/// # Safety
/// The row is there, and the machine has `S`'s instructions.
#[inline(always)]
pub(super) unsafe fn dot<S: Simd, E: Float>(a: *const u8, b: &[f32]) -> f32 {
    let (n, b) = (b.len(), b.as_ptr());
    let mut sums = [S::zero(); 4];
    let mut at = 0;
    while at + 4 * LANES <= n {
        for (i, sum) in sums.iter_mut().enumerate() {
            let at = at + i * LANES;
            *sum = S::fma(E::load::<S>(a.add(at * E::BYTES)), S::load(b.add(at)), *sum);
        }
        at += 4 * LANES;
    }
    let [first, second, third, fourth] = sums;
    let mut sum = S::add(S::add(first, second), S::add(third, fourth));
    while at + LANES <= n {
        sum = S::fma(E::load::<S>(a.add(at * E::BYTES)), S::load(b.add(at)), sum);
        at += LANES;
    }
    if at < n {
        let mut last = [0u8; size_of::<f32>() * LANES];
        std::ptr::copy_nonoverlapping(a.add(at * E::BYTES), last.as_mut_ptr(), (n - at) * E::BYTES);
        sum = S::fma(E::load::<S>(last.as_ptr()), S::load_part(b.add(at), n - at), sum);
    }
    S::sum(sum)
}

/// A table's copy.
pub(crate) struct Tiles {
    bytes: MmapMut,
    blocks: usize,
}

impl Tiles {
    /// Room for the copy of a table, if there is; zeros.
    pub(crate) fn new(rows: usize, width: usize) -> Option<std::io::Result<Self>> {
        let blocks = width.div_ceil(BLOCK);
        let len = rows.div_ceil(LANES).checked_mul(tile_words(blocks))?.checked_mul(size_of::<i32>())?;
        Some(MmapMut::map_anon(len).map(|bytes| {
            #[cfg(target_os = "linux")]
            // Where the system has no huge pages, ordinary ones serve.
            let _ = bytes.advise(memmap2::Advice::HugePage);
            Self { bytes, blocks }
        }))
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len() / self.tile_bytes()
    }

    pub(crate) fn tile_bytes(&self) -> usize {
        tile_words(self.blocks) * size_of::<i32>()
    }

    /// All tiles' bytes, for [`Kernels::copy`].
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Elements of a row, filled up with zeros.
    pub(crate) fn width(&self) -> usize {
        self.blocks * BLOCK
    }
}

/// Up to twelve queries' copies.
pub(crate) struct Group {
    queries: usize,
    digits: Vec<i8>,
    sums: [i32; GROUP],
    lengths: [f32; GROUP],
    off: [f32; GROUP],
    units: [f64; GROUP],
}

impl Group {
    /// How many there are.
    pub(crate) fn queries(&self) -> usize {
        self.queries
    }

    /// A product with a query in units of its scale, or a little less.
    pub(crate) fn scaled(&self, query: usize, product: f32) -> f32 {
        (f64::from(product) / self.units[query] - UNDERFLOW) as f32
    }
}

impl Kernels {
    /// Copies sixteen rows of `width` elements, padding included, into a tile; `digits` has room for as many
    /// integers. Returns whether all numbers are finite.
    pub(crate) fn copy(&self, rows: &[f32], width: usize, digits: &mut [i8], tile: &mut [u8]) -> bool {
        let blocks = width / BLOCK;
        assert!(width.is_multiple_of(BLOCK) && rows.len() == LANES * width && digits.len() == rows.len());
        assert_eq!(tile.len(), tile_words(blocks) * size_of::<i32>());
        let (_, scales) = tile.split_at_mut(8 * blocks * LANES * size_of::<i32>());
        let mut finite = true;
        let slack = (width + 64) as f64 / f64::from(1 << 23);
        for (lane, (row, digits)) in rows.chunks_exact(width).zip(digits.chunks_exact_mut(width)).enumerate()
        {
            // SAFETY: the machine has the instructions, and both have a row's length.
            let rounded = unsafe { (self.nearest.round)(row, digits) };
            finite &= rounded.largest.is_finite();
            let [length, off] = rounded.lengths(width).map(|length| length * rounded.unit());
            let off = off + slack * (length + off);
            for (i, number) in [rounded.scale, off as f32, length as f32].into_iter().enumerate() {
                let at = (i * LANES + lane) * size_of::<f32>();
                scales[at..at + size_of::<f32>()].copy_from_slice(&number.to_ne_bytes());
            }
        }
        // SAFETY: there are sixteen rows, and the tile has room for them and what follows.
        unsafe { (self.nearest.pack)(digits.as_ptr(), blocks, tile.as_mut_ptr().cast()) };
        finite
    }

    /// Copies up to twelve queries, each multiplied by `weights`, of which there are as many as a row of the table's
    /// copy has elements; queries may be shorter.
    pub(crate) fn group(&self, queries: &[f32], width: usize, weights: &[f32]) -> Group {
        let (n, padded) = (queries.len() / width, weights.len());
        assert!(n <= GROUP && width <= padded && padded.is_multiple_of(BLOCK));
        let mut group = Group {
            queries: n,
            digits: vec![0; GROUP * padded],
            sums: [0; GROUP],
            lengths: [0.0; GROUP],
            off: [0.0; GROUP],
            units: [1.0; GROUP],
        };
        let (mut row, mut digits) = (vec![0.0; padded], vec![0; padded]);
        for (i, query) in queries.chunks_exact(width).enumerate() {
            for ((to, from), weight) in row.iter_mut().zip(query).zip(weights) {
                *to = from * weight;
            }
            // SAFETY: the machine has the instructions, and both have the same length.
            let rounded = unsafe { (self.nearest.round)(&row, &mut digits) };
            let [length, off] = rounded.lengths(padded);
            group.sums[i] = rounded.sum;
            group.lengths[i] = (length + off) as f32;
            group.off[i] = off as f32;
            group.units[i] = rounded.unit();
            for (from, to) in digits.chunks_exact(BLOCK).zip(group.digits.chunks_exact_mut(GROUP * BLOCK)) {
                to[i * BLOCK..(i + 1) * BLOCK].copy_from_slice(from);
            }
        }
        group
    }

    /// Lists rows of some tiles whose products with a query may be no smaller than its `least`, in units of its scale.
    pub(crate) fn near(
        &self,
        table: &Tiles,
        tiles: Range<usize>,
        group: &Group,
        least: &[f32; GROUP],
        found: &mut Vec<Hit>,
    ) {
        assert!(tiles.end <= table.len() && group.digits.len() == GROUP * table.width());
        let pass = Pass {
            tiles: table.bytes.as_ptr().cast(),
            blocks: table.blocks,
            queries: group.queries,
            digits: group.digits.as_ptr(),
            sums: group.sums.as_ptr(),
            lengths: group.lengths.as_ptr(),
            off: group.off.as_ptr(),
            least: least.as_ptr(),
        };
        // SAFETY: the tiles are there, whole, the group has as many blocks and at most twelve queries, and
        // the machine has the instructions.
        unsafe { (self.nearest.pass)(&pass, tiles, found) }
    }

    /// The product of a stored row with a query, in f32 and one order; `scratch` has as many numbers as the query.
    pub(crate) fn product(&self, dtype: DType, stored: &[u8], scratch: &mut [f32], query: &[f32]) -> f32 {
        let (dot, bytes) = match dtype {
            DType::F32 => (self.nearest.dot[0], F32::BYTES),
            DType::F16 => (self.nearest.dot[1], F16::BYTES),
            DType::BF16 => (self.nearest.dot[2], BF16::BYTES),
            _ => {
                quant::dequantise(dtype, stored, scratch);
                return self.dot(scratch, query);
            }
        };
        assert!(stored.len() >= query.len() * bytes);
        // SAFETY: the machine has the instructions, and the row has as many elements.
        unsafe { dot(stored.as_ptr(), query) }
    }

    /// The same of two vectors of one length.
    pub(super) fn dot(&self, a: &[f32], b: &[f32]) -> f32 {
        assert_eq!(a.len(), b.len());
        // SAFETY: the machine has the instructions, and both have the same length.
        unsafe { (self.nearest.dot[0])(a.as_ptr().cast(), b) }
    }
}
