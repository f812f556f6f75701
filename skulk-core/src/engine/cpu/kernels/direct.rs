//! How do a few activation rows multiply a matrix? Each stored block is read and taken apart once, for all of them.
#![allow(unsafe_op_in_unsafe_fn, reason = "functions and traits state their contracts")]

use std::ops::Range;

use super::format::{Format, Layout};
use super::product::{Ahead, Product, columns, no_scales, of_block, shift};
use super::rounding::Activations;
use super::simd::{BLOCK, Simd, Weights};

/// The most rows.
pub(super) const MOST: usize = 16;
/// The most rows that have a kernel of their own.
pub(super) const OWN: usize = 8;

/// The integers of a block and its scales.
struct Block<S: Simd> {
    weights: Weights<S>,
    scale: [S::F; 2],
    min: [S::F; 2],
}

/// Where `N` activation rows have that block.
#[derive(Clone, Copy)]
struct Place<'a> {
    x: &'a Activations,
    /// Index of the first row's block among all, and how far behind it the next row's is.
    at: usize,
    distance: usize,
}

/// `Σ w·x` of columns `FROM..TO` for `N` activation rows, where `sums` are of the same activations.
#[inline(always)]
unsafe fn dot<S: Simd, F: Format, const EXACT: bool, const FROM: usize, const TO: usize, const N: usize>(
    weights: &Weights<S>,
    place: Place<'_>,
    sums: [i32; N],
) -> [S::I; N] {
    let digits = if EXACT { 2 * BLOCK } else { BLOCK };
    let (x, distance) = (place.x.digits.add(place.at * digits), place.distance * digits);
    let mut totals = [S::isplat(0); N];
    for n in 0..N {
        totals[n] = S::isplat(sums[n].wrapping_mul(-shift::<S, F, false>()));
    }
    if EXACT {
        S::dot_exact::<FROM, TO, N>(&mut totals, weights, F::BITS, x, distance);
    } else {
        S::dot_rows::<FROM, TO, N>(&mut totals, weights, F::BITS, x, distance);
    }
    totals
}

/// Adds a block's contribution to 16 outputs of `N` rows.
#[inline(always)]
unsafe fn add_block<S: Simd, F: Format, const EXACT: bool, const N: usize>(
    block: &Block<S>,
    place: Place<'_>,
    sums: &mut [S::F; N],
) {
    let x = place.x;
    let (mut at, mut d) = ([0; N], [S::zero(); N]);
    for n in 0..N {
        at[n] = place.at + n * place.distance;
        d[n] = S::splat(*x.scale.add(at[n]));
    }
    if F::Layout::HALVES {
        let mut half_sums = [[0; N]; 2];
        for n in 0..N {
            half_sums[0][n] = *x.half_sum.add(2 * at[n]);
            half_sums[1][n] = *x.half_sum.add(2 * at[n] + 1);
        }
        let first = dot::<S, F, EXACT, 0, 4, N>(&block.weights, place, half_sums[0]);
        let second = dot::<S, F, EXACT, 4, 8, N>(&block.weights, place, half_sums[1]);
        for n in 0..N {
            sums[n] = S::fma(S::to_f32(first[n]), S::mul(block.scale[0], d[n]), sums[n]);
            sums[n] = S::fma(S::to_f32(second[n]), S::mul(block.scale[1], d[n]), sums[n]);
            if F::Layout::MIN {
                sums[n] = S::fma(block.min[0], S::splat(*x.scaled_half_sum.add(2 * at[n])), sums[n]);
                sums[n] = S::fma(block.min[1], S::splat(*x.scaled_half_sum.add(2 * at[n] + 1)), sums[n]);
            }
        }
    } else {
        let mut block_sums = [0; N];
        for n in 0..N {
            block_sums[n] = *x.sum.add(at[n]);
        }
        let totals = dot::<S, F, EXACT, 0, 8, N>(&block.weights, place, block_sums);
        for n in 0..N {
            sums[n] = S::fma(S::to_f32(totals[n]), S::mul(block.scale[0], d[n]), sums[n]);
            if F::Layout::MIN {
                sums[n] = S::fma(block.min[0], S::splat(*x.scaled_sum.add(at[n])), sums[n]);
            }
        }
    }
}

/// The same of `ROWS` rows, whose sums stay in registers; 0: of `rows`, `N` at a time.
#[inline(always)]
unsafe fn add_rows<S: Simd, F: Format, const EXACT: bool, const N: usize, const ROWS: usize>(
    block: &Block<S>,
    mut place: Place<'_>,
    sums: &mut [S::F; MOST],
    rows: usize,
) {
    if ROWS > 0 {
        return add_block::<S, F, EXACT, ROWS>(block, place, &mut *sums.as_mut_ptr().cast());
    }
    let mut row = 0;
    while N > 1 && row + N <= rows {
        add_block::<S, F, EXACT, N>(block, place, &mut *sums.as_mut_ptr().add(row).cast());
        place.at += N * place.distance;
        row += N;
    }
    while row < rows {
        add_block::<S, F, EXACT, 1>(block, place, &mut *sums.as_mut_ptr().add(row).cast());
        place.at += place.distance;
        row += 1;
    }
}

/// `ROWS` activation rows by the weight rows of `tiles`, with sums in registers; 0: up to [`MOST`], `N` at a time.
///
/// # Safety
/// The product's addresses are valid and the machine has `S`'s instructions.
#[inline(always)]
pub(super) unsafe fn multiply<S: Simd, F: Format, const EXACT: bool, const N: usize, const ROWS: usize>(
    product: &Product,
    tiles: Range<usize>,
) {
    let rows = if ROWS == 0 { MOST } else { ROWS };
    if rows > const { apart::<S, F>() } {
        return multiply_tiles::<S, F, EXACT, N, ROWS, false>(product, tiles);
    }
    if F::WOVEN && product.woven {
        return multiply_tiles::<S, F, EXACT, N, ROWS, true>(&Product { woven: true, ..*product }, tiles);
    }
    multiply_tiles::<S, F, EXACT, N, ROWS, true>(&Product { woven: false, ..*product }, tiles);
}

/// [`Simd::APART`] of a storage type.
const fn apart<S: Simd, F: Format>() -> usize {
    let lines = F::BESIDE && F::TOGETHER > 1;
    if S::APART == MOST {
        MOST
    } else if lines {
        // On x86 they lose by it.
        0
    } else if F::TOGETHER == 1 && S::APART > 1 {
        // More rows gain nothing where no bytes are shared.
        1
    } else {
        S::APART
    }
}

/// [`Format::FORESEEN`] of a storage type. Two digits take twice the time: longer than memory, but for eight bits.
const fn foreseen<S: Simd, F: Format, const EXACT: bool>() -> bool {
    S::FORESEES && F::FORESEEN && (!EXACT || F::BITS == 8)
}

/// `KNOWN`: the compiler knows whether rows are woven; see [`Simd::APART`].
#[inline(always)]
unsafe fn multiply_tiles<
    S: Simd,
    F: Format,
    const EXACT: bool,
    const N: usize,
    const ROWS: usize,
    const KNOWN: bool,
>(
    product: &Product,
    tiles: Range<usize>,
) {
    let rows = if ROWS > 0 { ROWS } else { product.rows.min(MOST) };
    let mut scales = no_scales::<S>();
    let foreseen = KNOWN && ROWS == 1 && const { foreseen::<S, F, EXACT>() } && product.woven;
    Ahead::first::<S, F>(product, &tiles, foreseen);
    for tile in tiles {
        let (first, stored) = product.tile(tile);
        let mut ahead = Ahead::of::<F>(product, tile, foreseen);
        let mut sums = [S::zero(); MOST];
        let mut block = 0;
        while block < product.blocks {
            let at = block / F::BLOCKS * F::BYTES;
            F::scales::<S>(&stored, at, &mut scales);
            for group in 0..F::BLOCKS / F::TOGETHER {
                // Woven rows lie behind each other: with all that is asked for ahead before they are read, nothing comes between
                // reading and multiplying. Sixteen rows in as many places are slower if so much is asked for at once.
                let early = KNOWN && product.woven;
                if early {
                    for _ in 0..F::TOGETHER {
                        ahead.block::<S, F>();
                    }
                }
                let raw = F::read::<S>(&stored.rows, at, group);
                macro_rules! add {
                    ($j:expr) => {{
                        if !early {
                            ahead.block::<S, F>();
                        }
                        let (scale, min) = of_block::<S, F>(&scales, $j);
                        let weights = S::weights::<EXACT>(columns::<S, F, false>(&raw, $j), F::BITS);
                        let own = Block { weights, scale, min };
                        let place = Place { x: &product.x, at: block + $j, distance: product.x_blocks };
                        add_rows::<S, F, EXACT, N, ROWS>(&own, place, &mut sums, rows);
                    }};
                }
                let first = group * F::TOGETHER;
                if KNOWN && block + first + F::TOGETHER <= product.x_blocks {
                    // With numbers that are known for most types' shifts.
                    add!(first);
                    if F::TOGETHER > 1 {
                        add!(first + 1);
                    }
                    if F::TOGETHER > 2 {
                        add!(first + 2);
                        add!(first + 3);
                    }
                    const { assert!(matches!(F::TOGETHER, 1 | 2 | 4)) };
                    continue;
                }
                for j in first..first + F::TOGETHER {
                    if block + j >= product.x_blocks {
                        break;
                    }
                    add!(j);
                }
            }
            block += F::BLOCKS;
        }
        for (row, sum) in sums.iter().enumerate().take(rows) {
            product.store::<S>(row, tile, first, *sum);
        }
    }
}
