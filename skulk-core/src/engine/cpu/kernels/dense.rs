//! What is a product with a matrix of floats? Sixteen running sums along the row, added at the end.
//!
//! Lane i of an output's sums takes elements i, i + 16, i + 32, …, each with one fused
//! multiply-add; rows are thought of as filled up with zeros to whole vectors. [`Simd::sums`] then
//! adds the lanes in a fixed order. Sixteen outputs are under way at a time: sixteen weight rows by
//! one activation row, or four by four.

use std::ops::Range;

use super::simd::{LANES, Simd};

/// A storage type of single floats.
pub(super) trait Float: 'static {
    const BYTES: usize;
    /// 16 elements.
    unsafe fn load<S: Simd>(p: *const u8) -> S::F;
}

macro_rules! float {
    ($($name:ident, $bytes:literal, $element:ty, $load:ident;)*) => {$(
        pub(super) struct $name;

        impl Float for $name {
            const BYTES: usize = $bytes;
            #[inline(always)]
            unsafe fn load<S: Simd>(p: *const u8) -> S::F {
                // SAFETY: the caller's promise.
                unsafe { S::$load(p.cast::<$element>()) }
            }
        }
    )*};
}
float! {
    F32, 4, f32, load;
    F16, 2, u16, load_f16;
    BF16, 2, u16, load_bf16;
}

/// A product under way. Threads may work on different tiles of 16 weight rows at the same time.
#[derive(Clone, Copy)]
pub(super) struct Dense {
    pub(super) weights: *const u8,
    pub(super) n_in: usize,
    pub(super) n_out: usize,
    /// `[rows, n_in]`.
    pub(super) x: *const f32,
    pub(super) rows: usize,
    pub(super) bias: *const f32,
    /// `[rows, stride]`; the first column is the product's column `from`.
    pub(super) out: *mut f32,
    pub(super) stride: usize,
    pub(super) from: usize,
}

/// The last `n` elements of a row, filled up with zeros.
#[inline(always)]
#[allow(unsafe_op_in_unsafe_fn, reason = "valid for n elements")]
unsafe fn rest<S: Simd, W: Float>(p: *const u8, n: usize) -> S::F {
    let mut room = [0u8; 4 * LANES];
    std::ptr::copy_nonoverlapping(p, room.as_mut_ptr(), n * W::BYTES);
    W::load::<S>(room.as_ptr())
}

/// `A` weight rows by `B` activation rows, A · B = 16: the product of weight row a and activation
/// row b in lane `b · A + a`.
#[inline(always)]
#[allow(unsafe_op_in_unsafe_fn, reason = "addresses are valid for n elements")]
unsafe fn sixteen<S: Simd, W: Float, const A: usize, const B: usize>(
    weights: [*const u8; A],
    x: [*const f32; B],
    n: usize,
) -> S::F {
    let mut sums = [S::zero(); LANES];
    let whole = n / LANES * LANES;
    let mut at = 0;
    while at < whole {
        let mut values = [S::zero(); B];
        for (value, x) in values.iter_mut().zip(x) {
            *value = S::load(x.add(at));
        }
        for (a, weights) in weights.iter().enumerate() {
            let w = W::load::<S>(weights.add(at * W::BYTES));
            for (b, value) in values.iter().enumerate() {
                sums[b * A + a] = S::fma(w, *value, sums[b * A + a]);
            }
        }
        at += LANES;
    }
    if at < n {
        for (a, weights) in weights.iter().enumerate() {
            let w = rest::<S, W>(weights.add(at * W::BYTES), n - at);
            for (b, x) in x.iter().enumerate() {
                let value = S::load_part(x.add(at), n - at);
                sums[b * A + a] = S::fma(w, value, sums[b * A + a]);
            }
        }
    }
    S::sums(&sums)
}

/// All activation rows by the weight rows of `tiles`.
///
/// # Safety
/// The product's addresses are valid and the machine has `S`'s instructions.
#[inline(always)]
#[allow(unsafe_op_in_unsafe_fn, reason = "stated above")]
pub(super) unsafe fn multiply<S: Simd, W: Float>(product: &Dense, tiles: Range<usize>) {
    let (n, last) = (product.n_in, product.n_out - 1);
    let row_bytes = n * W::BYTES;
    for tile in tiles {
        let first = tile * LANES;
        let columns = (product.n_out - first).min(LANES);
        let weight = |i: usize| product.weights.add((first + i).min(last) * row_bytes);
        let mut row = 0;
        while row + 4 <= product.rows {
            let x: [*const f32; 4] = std::array::from_fn(|b| product.x.add((row + b) * n));
            for four in (0..columns).step_by(4) {
                let weights: [*const u8; 4] = std::array::from_fn(|a| weight(four + a));
                let sums = sixteen::<S, W, 4, 4>(weights, x, n);
                let mut lanes = [0.0; LANES];
                S::store(lanes.as_mut_ptr(), sums);
                for (b, sums) in lanes.chunks_exact(4).enumerate() {
                    for (a, sum) in sums.iter().enumerate().take(columns - four) {
                        let bias =
                            if product.bias.is_null() { 0.0 } else { *product.bias.add(first + four + a) };
                        *product.out.add((row + b) * product.stride + first - product.from + four + a) =
                            sum + bias;
                    }
                }
            }
            row += 4;
        }
        while row < product.rows {
            let weights: [*const u8; LANES] = std::array::from_fn(weight);
            let sums = sixteen::<S, W, 16, 1>(weights, [product.x.add(row * n)], n);
            let mut lanes = [0.0; LANES];
            S::store(lanes.as_mut_ptr(), sums);
            for (a, sum) in lanes.iter().enumerate().take(columns) {
                let bias = if product.bias.is_null() { 0.0 } else { *product.bias.add(first + a) };
                *product.out.add(row * product.stride + first - product.from + a) = sum + bias;
            }
            row += 1;
        }
    }
}
