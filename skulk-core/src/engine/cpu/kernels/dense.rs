//! What is a product with a matrix of floats? Sixteen running sums along the row, added at the end.
//!
//! Lane i of an output's sums takes elements i, i + 16, i + 32, …, each with one fused
//! multiply-add; rows are thought of as filled up with zeros to whole vectors. [`Simd::sums`] then
//! adds the lanes in a fixed order. Sixteen outputs are under way at a time: sixteen weight rows by
//! one activation row, or four by four.
//!
//! Where activations are in bfloat16 as the weights are, lane i takes the pairs of elements 2i and
//! 2i + 1, 2i + 32 and 2i + 33, …, of each the second element first: that is the order of the
//! instruction for it, and such products being exact in f32, any machine can follow it.
#![allow(unsafe_op_in_unsafe_fn, reason = "functions and traits state their contracts")]

use std::ops::Range;

use super::rounding;
use super::scaled::Scales;
use super::simd::{LANES, Simd};

/// A storage type of single floats.
pub(super) trait Float: 'static {
    type Element: Copy;
    const BYTES: usize = size_of::<Self::Element>();
    /// 16 elements.
    unsafe fn load<S: Simd>(p: *const u8) -> S::F;
}

macro_rules! float {
    ($($name:ident, $element:ty, $load:ident;)*) => {$(
        pub(super) struct $name;

        impl Float for $name {
            type Element = $element;
            #[inline(always)]
            unsafe fn load<S: Simd>(p: *const u8) -> S::F {
                // SAFETY: the caller's promise.
                unsafe { S::$load(p.cast::<$element>()) }
            }
        }
    )*};
}
float! {
    F32, f32, load;
    F16, u16, load_f16;
    BF16, u16, load_bf16;
}

/// Types of weights and of activations, which lie in memory as words of 32 bits.
pub(super) trait Factors: 'static {
    type Weight: Copy;
    /// Elements of a row that a step takes.
    const STEP: usize;
    /// A step's weights.
    type Weights<S: Simd>: Copy;
    /// They are taken apart into two vectors of numbers.
    const TWO: bool;
    /// Words of a step's activations.
    fn step_words<S: Simd>() -> usize;
    /// Words of a row of `n` activations.
    fn row_words<S: Simd>(n: usize) -> usize;
    unsafe fn load<S: Simd>(p: *const Self::Weight) -> Self::Weights<S>;
    unsafe fn add<S: Simd>(sum: S::F, weights: Self::Weights<S>, x: *const u32) -> S::F;
    /// The same with the last `n` activations of a row, too few for a step.
    unsafe fn add_part<S: Simd>(sum: S::F, weights: Self::Weights<S>, x: *const u32, n: usize) -> S::F;
}

/// Activations in f32.
impl<W: Float> Factors for W {
    type Weight = W::Element;
    const STEP: usize = LANES;
    type Weights<S: Simd> = S::F;
    const TWO: bool = false;
    fn step_words<S: Simd>() -> usize {
        LANES
    }
    fn row_words<S: Simd>(n: usize) -> usize {
        n
    }
    #[inline(always)]
    unsafe fn load<S: Simd>(p: *const W::Element) -> S::F {
        W::load::<S>(p.cast())
    }
    #[inline(always)]
    unsafe fn add<S: Simd>(sum: S::F, weights: S::F, x: *const u32) -> S::F {
        S::fma(weights, S::load(x.cast()), sum)
    }
    #[inline(always)]
    unsafe fn add_part<S: Simd>(sum: S::F, weights: S::F, x: *const u32, n: usize) -> S::F {
        S::fma(weights, S::load_part(x.cast(), n), sum)
    }
}

/// Weights and activations in bfloat16; rows of activations are filled up with zeros.
pub(super) struct Pairs;

impl Factors for Pairs {
    type Weight = u16;
    const STEP: usize = 2 * LANES;
    type Weights<S: Simd> = S::I;
    const TWO: bool = true;
    fn step_words<S: Simd>() -> usize {
        rounding::bf16_words::<S>(Self::STEP)
    }
    fn row_words<S: Simd>(n: usize) -> usize {
        rounding::bf16_words::<S>(n)
    }
    #[inline(always)]
    unsafe fn load<S: Simd>(p: *const u16) -> S::I {
        S::iload(p.cast())
    }
    #[inline(always)]
    unsafe fn add<S: Simd>(sum: S::F, weights: S::I, x: *const u32) -> S::F {
        S::dot2(sum, weights, x)
    }
    #[inline(always)]
    unsafe fn add_part<S: Simd>(sum: S::F, weights: S::I, x: *const u32, _n: usize) -> S::F {
        S::dot2(sum, weights, x)
    }
}

/// Elements of rows that few sums at a time take, before others take them: so few that they are still in
/// the innermost cache, and so many that sums are in registers most of the time.
const STRETCH: usize = 512;

/// A product under way. Threads may work on different tiles of 16 weight rows at the same time.
#[derive(Clone, Copy)]
pub(super) struct Dense {
    pub(super) weights: *const u8,
    pub(super) n_in: usize,
    pub(super) n_out: usize,
    /// `rows` rows of `n_in` numbers, or as [`round_bf16`](rounding::round_bf16) makes them.
    pub(super) x: *const u32,
    pub(super) rows: usize,
    pub(super) bias: *const f32,
    /// `[rows, stride]`; the first column is the product's column `from`.
    pub(super) out: *mut f32,
    pub(super) stride: usize,
    pub(super) from: usize,
    /// Of [8-bit floats](super::scaled).
    pub(super) scales: Scales,
}

impl Dense {
    /// Stores outputs of a row, from a column on.
    #[inline(always)]
    pub(super) unsafe fn store(&self, row: usize, column: usize, sums: &[f32]) {
        let out = self.out.add(row * self.stride + column - self.from);
        for (i, sum) in sums.iter().enumerate() {
            let bias = if self.bias.is_null() { 0.0 } else { *self.bias.add(column + i) };
            *out.add(i) = sum + bias;
        }
    }
}

/// The last `n` weights of a row, too few for a step, filled up with zeros.
#[inline(always)]
unsafe fn rest<S: Simd, W: Factors>(p: *const W::Weight, n: usize) -> W::Weights<S> {
    let mut filled = [0u32; LANES];
    std::ptr::copy_nonoverlapping(p.cast::<u8>(), filled.as_mut_ptr().cast(), n * size_of::<W::Weight>());
    W::load::<S>(filled.as_ptr().cast())
}

/// Adds `n` elements of `A` weight rows by `B` activation rows to their running sums.
#[inline(always)]
unsafe fn running<S: Simd, W: Factors, const A: usize, const B: usize>(
    weights: [*const W::Weight; A],
    x: [*const u32; B],
    n: usize,
    sums: [[S::F; A]; B],
) -> [[S::F; A]; B] {
    let mut sums = sums;
    let (steps, words) = (n / W::STEP, W::step_words::<S>());
    let mut step = 0;
    while step < steps {
        let mut a = 0;
        while a < A {
            let w = W::load::<S>(weights[a].add(step * W::STEP));
            let mut b = 0;
            while b < B {
                sums[b][a] = W::add::<S>(sums[b][a], w, x[b].add(step * words));
                b += 1;
            }
            a += 1;
        }
        step += 1;
    }
    let left = n % W::STEP;
    if left > 0 {
        for a in 0..A {
            let w = rest::<S, W>(weights[a].add(steps * W::STEP), left);
            for b in 0..B {
                sums[b][a] = W::add_part::<S>(sums[b][a], w, x[b].add(steps * words), left);
            }
        }
    }
    sums
}

/// `A` weight rows by `B` activation rows, A · B = 16: the product of weight row a and activation
/// row b in lane `b · A + a`. Those of `PA` by `PB` rows are under way at a time.
#[inline(always)]
unsafe fn sixteen<S: Simd, W: Factors, const A: usize, const B: usize, const PA: usize, const PB: usize>(
    weights: [*const W::Weight; A],
    x: [*const u32; B],
    n: usize,
) -> S::F {
    let mut all = [S::zero(); LANES];
    let stretch = if PA * PB == LANES { n.max(1) } else { STRETCH };
    for from in (0..n).step_by(stretch) {
        for b in (0..B).step_by(PB) {
            for a in (0..A).step_by(PA) {
                let (mut own, mut own_x) = ([weights[a]; PA], [x[b]; PB]);
                let mut sums = [[S::zero(); PA]; PB];
                let mut i = 0;
                while i < PA {
                    own[i] = weights[a + i].add(from);
                    i += 1;
                }
                let mut j = 0;
                while j < PB {
                    own_x[j] = x[b + j].add(W::row_words::<S>(from));
                    let mut i = 0;
                    while i < PA {
                        sums[j][i] = all[(b + j) * A + a + i];
                        i += 1;
                    }
                    j += 1;
                }
                let sums = running::<S, W, PA, PB>(own, own_x, stretch.min(n - from), sums);
                let mut j = 0;
                while j < PB {
                    let mut i = 0;
                    while i < PA {
                        all[(b + j) * A + a + i] = sums[j][i];
                        i += 1;
                    }
                    j += 1;
                }
            }
        }
    }
    S::sums(&all)
}

/// All activation rows by the weight rows of `tiles`.
///
/// # Safety
/// The product's addresses are valid and the machine has `S`'s instructions.
#[inline(always)]
pub(super) unsafe fn multiply<S: Simd, W: Factors>(product: &Dense, tiles: Range<usize>) {
    let (n, last) = (product.n_in, product.n_out - 1);
    let row_of_x = |row: usize| product.x.add(row * W::row_words::<S>(n));
    for tile in tiles {
        let first = tile * LANES;
        let columns = (product.n_out - first).min(LANES);
        let weight = |i: usize| product.weights.cast::<W::Weight>().add((first + i).min(last) * n);
        let mut row = 0;
        while row + 4 <= product.rows {
            let x: [_; 4] = std::array::from_fn(|b| row_of_x(row + b));
            for four in (0..columns).step_by(4) {
                let weights: [_; 4] = std::array::from_fn(|a| weight(four + a));
                let sums = if S::SUMS == LANES {
                    sixteen::<S, W, 4, 4, 4, 4>(weights, x, n)
                } else if W::TWO {
                    // Weights that were taken apart serve as many rows as possible.
                    sixteen::<S, W, 4, 4, 1, 4>(weights, x, n)
                } else {
                    sixteen::<S, W, 4, 4, 2, 2>(weights, x, n)
                };
                let mut lanes = [0.0; LANES];
                S::store(lanes.as_mut_ptr(), sums);
                for (b, sums) in lanes.chunks_exact(4).enumerate() {
                    product.store(row + b, first + four, &sums[..(columns - four).min(4)]);
                }
            }
            row += 4;
        }
        while row < product.rows {
            let weights: [_; LANES] = std::array::from_fn(weight);
            let x = [row_of_x(row)];
            let sums = if S::SUMS == LANES {
                sixteen::<S, W, 16, 1, 16, 1>(weights, x, n)
            } else {
                sixteen::<S, W, 16, 1, 4, 1>(weights, x, n)
            };
            let mut lanes = [0.0; LANES];
            S::store(lanes.as_mut_ptr(), sums);
            product.store(row, first, &lanes[..columns]);
            row += 1;
        }
    }
}
