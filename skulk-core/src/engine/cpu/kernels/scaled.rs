//! What is a product with a matrix of 8-bit floats? That of the numbers they are, in the order of [`dense`](super::dense).
//!
//! Activations are in f32. An element becomes a number when it is read: a half, 256 times that, and that times the scale of
//! its block, rounded once. So products have the bits that those with the same numbers stored in f32 have.
#![allow(unsafe_op_in_unsafe_fn, reason = "functions and traits state their contracts")]

use std::ops::Range;

use half::{bf16, f16};

use super::dense::Dense;
use super::format::Float;
use super::simd::{LANES, Simd};
use crate::weights::ScaleRows;

/// Writes a tile.
pub(super) type Unpack = unsafe fn(&Dense, usize, *mut f32);

/// The scales of a matrix' blocks.
#[derive(Clone, Copy)]
pub(super) struct Scales {
    pub(super) from: *const u8,
    /// From a row of them to the next.
    pub(super) row_bytes: usize,
    pub(super) float: Float,
    /// Elements of a row that share one: a multiple of [`LANES`], or all.
    pub(super) wide: usize,
    pub(super) rows: ScaleRows,
}

impl Scales {
    /// Of floats that have none.
    pub(super) const NOTHING: Self =
        Self { from: std::ptr::null(), row_bytes: 0, float: Float::F32, wide: 0, rows: ScaleRows::OWN };

    /// Where those of a row begin.
    fn of_row(&self, row: usize) -> *const u8 {
        self.from.wrapping_add(self.rows.of(row) * self.row_bytes)
    }

    /// Those of sixteen rows, which lie behind each other.
    pub(super) fn gathered(self, from: *const u8) -> Self {
        Self { from, rows: ScaleRows::OWN, ..self }
    }

    /// The scale of a row's block.
    ///
    /// # Safety
    /// The row has one there.
    #[inline(always)]
    unsafe fn of_block(&self, row: *const u8, block: usize) -> f32 {
        match self.float {
            Float::F32 => f32::from_le_bytes(row.add(4 * block).cast::<[u8; 4]>().read()),
            Float::F16 => f16::from_le_bytes(row.add(2 * block).cast::<[u8; 2]>().read()).to_f32(),
            Float::BF16 => bf16::from_le_bytes(row.add(2 * block).cast::<[u8; 2]>().read()).to_f32(),
            Float::E8M0 => match row.add(block).read() {
                0 => f32::MIN_POSITIVE / 2.0,
                255 => f32::NAN,
                exponent => f32::from_bits(u32::from(exponent) << 23),
            },
        }
    }
}

/// 8-bit floats in the lower eight bits of each lane, which are signed integers, as 1/256 of what they are; `factor` times
/// that.
#[inline(always)]
pub(super) unsafe fn numbers<S: Simd>(bytes: S::I, factor: f32) -> S::F {
    let small = S::half(S::iand(S::ishl(bytes, 7), S::isplat(0xbf80)));
    // 1.875 is what no number is there, and the next smaller one 1.75: only the first overflows, and is then no number.
    let large = S::mul(small, S::splat(1.1 * 2f32.powi(127)));
    S::fma(small, S::splat(factor), S::sub(large, large))
}

/// Sixteen elements as numbers, but for their scale.
#[inline(always)]
unsafe fn sixteen<S: Simd>(p: *const u8) -> S::F {
    numbers::<S>(S::load_i8(p.cast()), 256.0)
}

/// Some rows of weights.
struct Rows<const A: usize> {
    elements: [*const u8; A],
    scales: [*const u8; A],
}

/// `A` weight rows by `B` activation rows: their running sums.
#[inline(always)]
unsafe fn running<S: Simd, const A: usize, const B: usize>(
    product: &Dense,
    weights: &Rows<A>,
    x: [*const f32; B],
) -> [[S::F; A]; B] {
    let (n, scales) = (product.n_in, &product.scales);
    let mut sums = [[S::zero(); A]; B];
    for (block, from) in (0..n).step_by(scales.wide).enumerate() {
        let mut scale = [S::zero(); A];
        let mut a = 0;
        while a < A {
            scale[a] = S::splat(scales.of_block(weights.scales[a], block));
            a += 1;
        }
        let end = n.min(from + scales.wide);
        let mut at = from;
        while at + LANES <= end {
            let mut a = 0;
            while a < A {
                let w = S::mul(sixteen::<S>(weights.elements[a].add(at)), scale[a]);
                let mut b = 0;
                while b < B {
                    sums[b][a] = S::fma(w, S::load(x[b].add(at)), sums[b][a]);
                    b += 1;
                }
                a += 1;
            }
            at += LANES;
        }
        if at < end {
            let left = end - at;
            for a in 0..A {
                let mut filled = [0u8; LANES];
                std::ptr::copy_nonoverlapping(weights.elements[a].add(at), filled.as_mut_ptr(), left);
                let w = S::mul(sixteen::<S>(filled.as_ptr()), scale[a]);
                for b in 0..B {
                    sums[b][a] = S::fma(w, S::load_part(x[b].add(at), left), sums[b][a]);
                }
            }
        }
    }
    sums
}

/// Activation rows from which on tiles are [unpacked](unpack).
pub(super) const MANY: usize = 5;

/// A few activation rows by the weight rows of `tiles`.
///
/// # Safety
/// The product's addresses are valid and the machine has `S`'s instructions.
#[inline(always)]
pub(super) unsafe fn multiply<S: Simd>(product: &Dense, tiles: Range<usize>) {
    let (n, last) = (product.n_in, product.n_out - 1);
    for tile in tiles {
        let first = tile * LANES;
        let columns = (product.n_out - first).min(LANES);
        for four in (0..columns).step_by(4) {
            let row = |a: usize| (first + four + a).min(last);
            let weights = Rows::<4> {
                elements: std::array::from_fn(|a| product.weights.wrapping_add(row(a) * n)),
                scales: std::array::from_fn(|a| product.scales.of_row(row(a))),
            };
            let own = (columns - four).min(4);
            let mut row = 0;
            while row < product.rows {
                let x = |b: usize| product.x.add((row + b) * n).cast::<f32>();
                let (mut all, mut lanes) = ([S::zero(); LANES], [0.0; LANES]);
                let together = if row + 2 <= product.rows { 2 } else { 1 };
                if together == 2 {
                    let sums = running::<S, 4, 2>(product, &weights, [x(0), x(1)]);
                    all[..8].copy_from_slice(sums.as_flattened());
                } else {
                    let sums = running::<S, 4, 1>(product, &weights, [x(0)]);
                    all[..4].copy_from_slice(sums.as_flattened());
                }
                S::store(lanes.as_mut_ptr(), S::sums(&all));
                for (b, sums) in lanes.as_chunks::<4>().0.iter().enumerate().take(together) {
                    product.store(row + b, first + four, &sums[..own]);
                }
                row += together;
            }
        }
    }
}

/// Writes a tile's rows in f32, one behind the other: the product with those has the same bits.
///
/// # Safety
/// As of [`multiply`], and there is room for sixteen rows.
#[inline(always)]
pub(super) unsafe fn unpack<S: Simd>(product: &Dense, tile: usize, to: *mut f32) {
    let (n, scales, first) = (product.n_in, &product.scales, tile * LANES);
    for row in first..product.n_out.min(first + LANES) {
        let (elements, own) = (product.weights.add(row * n), scales.of_row(row));
        let to = to.add((row - first) * n);
        for (block, from) in (0..n).step_by(scales.wide).enumerate() {
            let (scale, end) = (S::splat(scales.of_block(own, block)), n.min(from + scales.wide));
            let mut at = from;
            while at + LANES <= end {
                S::store(to.add(at), S::mul(sixteen::<S>(elements.add(at)), scale));
                at += LANES;
            }
            if at < end {
                let mut filled = [0u8; LANES];
                std::ptr::copy_nonoverlapping(elements.add(at), filled.as_mut_ptr(), end - at);
                S::store_part(to.add(at), end - at, S::mul(sixteen::<S>(filled.as_ptr()), scale));
            }
        }
    }
}

/// Products of many rows, by the kernel for f32: tiles are unpacked to where `packed` is.
///
/// # Safety
/// As of [`unpack`], whose room is at `packed`; `multiply` is that kernel.
pub(super) unsafe fn unpacked(
    product: &Dense,
    tiles: Range<usize>,
    packed: *mut f32,
    (unpack, multiply): (Unpack, super::Multiply),
) {
    for tile in tiles {
        unpack(product, tile, packed);
        let first = tile * LANES;
        let bias = if product.bias.is_null() { product.bias } else { product.bias.add(first) };
        let tile = Dense {
            weights: packed.cast::<u8>().cast_const(),
            n_out: (product.n_out - first).min(LANES),
            bias,
            out: product.out.add(first - product.from),
            from: 0,
            scales: Scales::NOTHING,
            ..*product
        };
        multiply(&tile, 0..1);
    }
}
