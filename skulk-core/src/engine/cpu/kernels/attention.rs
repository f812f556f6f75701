//! How does a block of rows attend to a partition of the cache? Two products around a softmax.
//!
//! Both products have one form: numbers of a row times the rows of a matrix that are [`WIDTH`] wide,
//! added up in the columns. For scores the numbers are a query and the matrix' columns are
//! positions, for which keys are stored with positions side by side; for values the numbers are the
//! weights of positions and the columns are elements of the head. So nothing is summed across
//! lanes, and every output is one chain of fused multiply-adds in the order of elements or
//! positions: the same in every tile, whatever else is in it. Positions that a row does not see are
//! not in its chains.
//!
//! Keys and values in bfloat16 lie in pairs, of neighbouring elements or positions, and so do queries and weights, which are
//! rounded to it: a step takes a pair. Where a row sees only one position of a pair, the other one's value and weight are
//! taken for zeros.
//!
//! Quantised keys and values enter as the integers that they are. Scores have a chain for each block of elements, which is
//! then multiplied by the position's scale and added; weights of values are multiplied by the scales of their positions.
#![allow(unsafe_op_in_unsafe_fn, reason = "functions and traits state their contracts")]

use super::kept::{Column, Kept, places, round_pair, store_pairs};
use super::rows::{cap, exp};
use super::simd::{BLOCK, LANES, Rows, Simd};

/// Positions of a partition.
pub(crate) const PARTITION: usize = 256;
/// Positions of a page, and elements of a group of values: columns of the products.
pub(crate) const WIDTH: usize = crate::engine::backend::PAGE;
/// Pages of a partition.
pub(crate) const PAGES: usize = PARTITION / WIDTH;
/// Vectors of a row of the products' matrices.
pub(super) const VECTORS: usize = WIDTH / LANES;
/// Rows of the matrix that are converted together, for all tiles.
pub(super) const DEPTH: usize = 64;
/// Elements of a converted panel.
pub(super) const PANEL: usize = DEPTH * WIDTH;
/// Rows of a tile at most: with four vectors, its sums take 24 of 32 registers.
pub(super) const MOST: usize = 6;

/// Running results of a row: its largest score and its sum of exponentials.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Softmax {
    pub(crate) max: f32,
    pub(crate) sum: f32,
}

impl Softmax {
    /// Of no positions.
    pub(crate) const EMPTY: Softmax = Softmax { max: f32::NEG_INFINITY, sum: 0.0 };
}

/// Some rows' products: row n of `c` += row n of `a` · `b`.
pub(super) struct Tile {
    pub(super) a: [*const f32; MOST],
    /// Where parts of `b` begin that follow on each other, and their rows: of elements, or of pairs.
    pub(super) b: [(*const u8, usize); PAGES],
    /// How many parts there are.
    pub(super) parts: usize,
    /// Bytes from row to row of `b`.
    pub(super) stride: usize,
    pub(super) c: [*mut f32; MOST],
    /// Whatever `c` holds does not count.
    pub(super) fresh: bool,
    /// The first column worked on.
    pub(super) column: usize,
    /// Scales of the columns for each [`BLOCK`] of steps, [`WIDTH`] apart; null where there are none.
    pub(super) scales: *const u16,
}

/// Types of single elements, as products tell them apart: of keys and values, of which 4 bits are two.
pub(super) const KINDS: usize = 5;
/// Behind them, pairs of elements.
pub(super) const PAIRS: usize = KINDS;

/// A matrix of the cache on the way to `f32`.
pub(super) struct Pack {
    pub(super) from: *const u8,
    /// Bytes from row to row.
    pub(super) stride: usize,
    /// Rows of single elements.
    pub(super) rows: usize,
    pub(super) vectors: usize,
    pub(super) to: *mut f32,
}

type Range = std::ops::Range<usize>;
pub(super) type Tiled = unsafe fn(&Tile);
type Quantise = unsafe fn(&[f32; BLOCK], &mut [i8; BLOCK]) -> u16;
type SoftmaxOf = unsafe fn(&mut [f32; PARTITION], Range, f32, Option<f32>) -> Softmax;
type Merge = unsafe fn((&mut Softmax, &mut [f32]), (Softmax, &[f32]));

/// One instruction set's functions.
pub(super) struct Functions {
    /// Tiles of 1 to 6 rows by 1, 2 or 4 vectors: of matrices of each kind.
    pub(super) tiles: [[[Tiled; 3]; MOST]; KINDS],
    pub(super) pairs: Paired,
    /// Vectors that the registers can hold.
    pub(super) registers: usize,
    pub(super) pack: [unsafe fn(&Pack); KINDS],
    pub(super) pack_pairs: unsafe fn(&Pack),
    pub(super) split_pairs: unsafe fn(&Pack),
    pub(super) turn: unsafe fn(&[f32], [usize; 2], &mut [f32]),
    pub(super) softmax: SoftmaxOf,
    pub(super) merge: Merge,
    pub(super) mean: unsafe fn(Softmax, Option<f32>, &mut [f32]),
    pub(super) halve: unsafe fn(&[f32], &mut [u16]),
    pub(super) round_pairs: unsafe fn(&[f32], *mut u16),
    pub(super) rotate: unsafe fn(&mut [f32]),
    /// To 8 and to 4 bits.
    pub(super) quantise: [Quantise; 2],
    pub(super) scale: unsafe fn(*const f32, *const u16, *mut f32, usize),
}

/// One instruction set's functions for elements in pairs.
#[derive(Clone, Copy)]
pub(super) struct Paired {
    pub(super) tiles: [[Tiled; 3]; MOST],
    /// Places that a pair of a query or of weights takes.
    pub(super) places: usize,
    /// Rounds a head of queries.
    pub(super) pair_up: unsafe fn(&[f32], *mut f32),
    /// Weights become pairs.
    pub(super) softmax: SoftmaxOf,
}

/// Compiles the functions for an instruction set.
macro_rules! instantiate {
    ($s:ty, #[$feature:meta]) => {
        #[$feature]
        unsafe fn tile<W: kept::Column, const N: usize, const P: usize>(tile: &attention::Tile) {
            attention::tile::<$s, W, N, P>(tile);
        }
        const fn width(rows: usize, vectors: usize) -> usize {
            attention::width(attention::registers::<$s>(), rows, vectors)
        }
        const fn tiles<W: kept::Column>() -> [[unsafe fn(&attention::Tile); 3]; attention::MOST] {
            [
                [tile::<W, 1, 1>, tile::<W, 1, { width(1, 2) }>, tile::<W, 1, { width(1, 4) }>],
                [tile::<W, 2, 1>, tile::<W, 2, { width(2, 2) }>, tile::<W, 2, { width(2, 4) }>],
                [tile::<W, 3, 1>, tile::<W, 3, { width(3, 2) }>, tile::<W, 3, { width(3, 4) }>],
                [tile::<W, 4, 1>, tile::<W, 4, { width(4, 2) }>, tile::<W, 4, { width(4, 4) }>],
                [tile::<W, 5, 1>, tile::<W, 5, { width(5, 2) }>, tile::<W, 5, { width(5, 4) }>],
                [tile::<W, 6, 1>, tile::<W, 6, { width(6, 2) }>, tile::<W, 6, { width(6, 4) }>],
            ]
        }

        #[$feature]
        unsafe fn softmax<const PAIRS: bool>(
            x: &mut [f32; attention::PARTITION],
            seen: Range<usize>,
            scale: f32,
            cap: Option<f32>,
        ) -> Softmax {
            attention::softmax::<$s, PAIRS>(x, seen, scale, cap)
        }
        #[$feature]
        unsafe fn pair_up(head: &[f32], to: *mut f32) {
            kept::pair_up::<$s>(head, to);
        }

        const PAIRED: attention::Paired = attention::Paired {
            tiles: tiles::<kept::Pairs>(),
            places: kept::places::<$s>(),
            pair_up,
            softmax: softmax::<true>,
        };

        const ATTENTION: attention::Functions = {
            use attention::Pack;

            #[$feature]
            unsafe fn pack<W: kept::Kept>(pack: &Pack) {
                attention::pack::<$s, W>(pack);
            }
            #[$feature]
            unsafe fn quantise<const SMALL: bool>(x: &[f32; simd::BLOCK], to: &mut [i8; simd::BLOCK]) -> u16 {
                kept::quantise::<$s, SMALL>(x, to)
            }
            operations! {
                $feature:
                pack_pairs(pack: &Pack) = attention::pack_pairs::<$s>(pack);
                split_pairs(pack: &Pack) = attention::split_pairs::<$s>(pack);
                turn(panel: &[f32], size: [usize; 2], to: &mut [f32]) = attention::turn::<$s>(panel, size, to);
                merge(row: (&mut Softmax, &mut [f32]), part: (Softmax, &[f32])) = attention::merge::<$s>(row, part);
                mean(row: Softmax, sink: Option<f32>, values: &mut [f32]) = attention::mean::<$s>(row, sink, values);
                halve(x: &[f32], bits: &mut [u16]) = attention::halve::<$s>(x, bits);
                round_pairs(x: &[f32], to: *mut u16) = kept::round_pairs::<$s>(x, to);
                rotate(head: &mut [f32]) = kept::rotate(head);
                scale(weights: *const f32, scales: *const u16, to: *mut f32, vectors: usize) =
                    kept::scale::<$s>(weights, scales, to, vectors);
            }

            attention::Functions {
                tiles: [
                    tiles::<F16>(),
                    tiles::<F32>(),
                    tiles::<kept::Bytes>(),
                    tiles::<kept::Nibbles<false>>(),
                    tiles::<kept::Nibbles<true>>(),
                ],
                pairs: PAIRED,
                registers: attention::registers::<$s>(),
                pack: [
                    pack::<F16>,
                    pack::<F32>,
                    pack::<kept::Bytes>,
                    pack::<kept::Nibbles<false>>,
                    pack::<kept::Nibbles<true>>,
                ],
                pack_pairs,
                split_pairs,
                turn,
                softmax: softmax::<false>,
                merge,
                mean,
                halve,
                round_pairs,
                rotate,
                quantise: [quantise::<false>, quantise::<true>],
                scale,
            }
        };
    };
}
pub(super) use instantiate;

/// Vectors of 16 lanes that the registers can hold.
pub(super) const fn registers<S: Simd>() -> usize {
    // 32 registers, or else 16 of a half vector or 32 of a quarter.
    if S::ROWS >= 12 { 32 } else { 8 }
}

/// Vectors of a tile of so many rows: the largest power of two up to `vectors` whose sums are in registers, beside a row of the
/// matrix and a number.
pub(super) const fn width(registers: usize, rows: usize, vectors: usize) -> usize {
    let most = (registers - 1) / (rows + 1);
    1 << if vectors < most { vectors } else { most }.ilog2()
}

/// # Safety
/// The tile's addresses are valid for `N` rows and `P` vectors, and the machine has `S`'s
/// instructions.
#[inline(always)]
pub(super) unsafe fn tile<S: Simd, W: Column, const N: usize, const P: usize>(tile: &Tile) {
    let (a, scaled) = (tile.a, W::SCALED && !tile.scales.is_null());
    let c = |n: usize, p: usize| tile.c[n].wrapping_add(tile.column + p * LANES);
    let (mut fresh, mut scales) = (tile.fresh, tile.scales.wrapping_add(tile.column));
    let mut sums = [[S::zero(); P]; N];
    if !scaled && !fresh {
        for (n, sums) in sums.iter_mut().enumerate() {
            for (p, sum) in sums.iter_mut().enumerate() {
                *sum = S::load(c(n, p));
            }
        }
    }
    let mut place = 0;
    for &(from, steps) in tile.b.iter().take(tile.parts) {
        let (mut b, mut done) = (from.wrapping_add(tile.column * W::BYTES), 0);
        while done < steps {
            let end = if scaled { steps.min(done + BLOCK) } else { steps };
            for _ in done..end {
                let mut row = [W::load::<S>(b); P];
                for (p, x) in row.iter_mut().enumerate().skip(1) {
                    *x = W::load::<S>(b.add(p * LANES * W::BYTES));
                }
                for n in 0..N {
                    let x = a[n].add(place);
                    for p in 0..P {
                        sums[n][p] = W::add::<S>(sums[n][p], x, row[p]);
                    }
                }
                (b, place) = (b.wrapping_add(tile.stride), place + W::places::<S>());
            }
            done = end;
            if scaled {
                for (n, sums) in sums.iter_mut().enumerate() {
                    for (p, sum) in sums.iter_mut().enumerate() {
                        let before = if fresh { S::zero() } else { S::load(c(n, p)) };
                        S::store(c(n, p), S::fma(*sum, S::load_f16(scales.add(p * LANES)), before));
                        *sum = S::zero();
                    }
                }
                (fresh, scales) = (false, scales.wrapping_add(WIDTH));
            }
        }
    }
    if !scaled {
        for (n, sums) in sums.iter().enumerate() {
            for (p, sum) in sums.iter().enumerate() {
                S::store(c(n, p), *sum);
            }
        }
    }
}

/// Converts up to [`DEPTH`] rows, [`WIDTH`] apart.
///
/// # Safety
/// The addresses are valid, and the machine has `S`'s instructions.
#[inline(always)]
pub(super) unsafe fn pack<S: Simd, W: Kept>(pack: &Pack) {
    for row in 0..pack.rows {
        let (from, to) = (pack.from.add(row * pack.stride), pack.to.add(row * WIDTH));
        for v in 0..pack.vectors {
            S::store(to.add(v * LANES), W::load::<S>(from.add(v * LANES * W::BYTES)));
        }
    }
}

/// [`pack`] of rows of pairs, each to two: the second ones, then the first ones.
///
/// # Safety
/// The addresses are valid, also for one row more where they are odd, and the machine has `S`'s instructions.
#[inline(always)]
pub(super) unsafe fn pack_pairs<S: Simd>(pack: &Pack) {
    for row in (0..pack.rows).step_by(2) {
        let (from, to) = (pack.from.add(row / 2 * pack.stride), pack.to.add(row * WIDTH));
        for v in 0..pack.vectors {
            let both = S::iload(from.add(v * LANES * size_of::<u32>()).cast());
            S::store(to.add(WIDTH + v * LANES), S::as_f32(S::ishl(both, 16)));
            let upper = S::iand(both, S::isplat(0xffff_0000_u32 as i32));
            S::store(to.add(v * LANES), S::as_f32(upper));
        }
    }
}

/// Rows of pairs of elements become rows of elements, [`WIDTH`] apart, in bfloat16 as they were: each is one of pairs of
/// positions.
///
/// # Safety
/// As for [`pack_pairs`].
#[inline(always)]
pub(super) unsafe fn split_pairs<S: Simd>(pack: &Pack) {
    for row in (0..pack.rows).step_by(2) {
        let (from, to) = (pack.from.add(row / 2 * pack.stride), pack.to.cast::<u16>().add(row * WIDTH));
        for v in 0..pack.vectors {
            let both = S::iload(from.add(v * LANES * size_of::<u32>()).cast());
            S::store_upper(to.add(v * LANES), S::ishl(both, 16));
            S::store_upper(to.add(WIDTH + v * LANES), both);
        }
    }
}

/// Turns a panel round: so many rows of it, so far apart, become columns of `to`, as many rows of it as that has. Columns are
/// written in whole vectors, of which those behind the last row's count for nothing.
///
/// # Safety
/// The machine has `S`'s instructions.
#[inline(always)]
pub(super) unsafe fn turn<S: Simd>(panel: &[f32], [rows, apart]: [usize; 2], to: &mut [f32]) {
    assert!(panel.len() >= PANEL && rows <= DEPTH && apart <= WIDTH && to.len() <= apart * WIDTH, "a panel");
    for first in (0..rows).step_by(LANES) {
        let from = Rows::new(panel.as_ptr().add(first * apart).cast(), 4 * apart);
        for position in (0..to.len() / WIDTH / LANES * LANES).step_by(LANES) {
            let columns = S::line(&from, 4 * position);
            let mut at = 0;
            while at < columns.len() {
                let to = to.as_mut_ptr().add((position + at) * WIDTH + first);
                S::store(to, S::as_f32(columns[at]));
                at += 1;
            }
        }
    }
}

/// Turns the products of the positions that a row sees, of which there are some, into weights. `PAIRS`: rounded and in pairs, from
/// the beginning of the partition's memory on; the sum is of what they are rounded to.
///
/// # Safety
/// The machine has `S`'s instructions.
#[inline(always)]
pub(super) unsafe fn softmax<S: Simd, const PAIRS: bool>(
    scores: &mut [f32; PARTITION],
    seen: Range,
    scale: f32,
    softcap: Option<f32>,
) -> Softmax {
    // Whole vectors; what they hold before and behind the positions seen is overwritten.
    let whole = seen.start / LANES * LANES..seen.end.next_multiple_of(LANES).min(PARTITION);
    let (before, behind) = (whole.start..seen.start, seen.end..whole.end);
    let scores_of = &mut scores[whole.clone()];
    for vector in scores_of.chunks_exact_mut(LANES) {
        let mut x = S::mul(S::load(vector.as_ptr()), S::splat(scale));
        if let Some(limit) = softcap {
            x = cap::<S>(x, limit);
        }
        S::store(vector.as_mut_ptr(), x);
    }
    scores[before.clone()].fill(f32::NEG_INFINITY);
    scores[behind.clone()].fill(f32::NEG_INFINITY);
    let mut largest = S::splat(f32::NEG_INFINITY);
    for vector in scores[whole.clone()].chunks_exact(LANES) {
        largest = S::max(S::load(vector.as_ptr()), largest);
    }
    let mut lanes = [0.0; LANES];
    S::store(lanes.as_mut_ptr(), largest);
    // None of them is not a number.
    let max = lanes.into_iter().fold(f32::NEG_INFINITY, |a, b| if a > b { a } else { b });
    for vector in scores[whole.clone()].chunks_exact_mut(LANES) {
        let x = S::sub(S::load(vector.as_ptr()), S::splat(max));
        S::store(vector.as_mut_ptr(), exp::<S>(x));
    }
    // `exp` does not fall to zero.
    scores[before].fill(0.0);
    scores[behind].fill(0.0);
    let (mut sum, scores) = (S::zero(), scores.as_mut_ptr());
    for at in whole.step_by(LANES) {
        let mut x = S::load(scores.add(at));
        if PAIRS {
            let rounded = round_pair::<S>(S::iload(scores.add(at).cast()));
            // Never overwrites what is read later.
            store_pairs::<S>(rounded, scores.add(at / 2 * places::<S>()));
            x = S::as_f32(rounded);
        }
        sum = S::add(sum, x);
    }
    Softmax { max, sum: S::sum(sum) }
}

/// Adds a partition's result to a row's.
///
/// # Safety
/// The machine has `S`'s instructions.
#[inline(always)]
pub(super) unsafe fn merge<S: Simd>(
    (row, values): (&mut Softmax, &mut [f32]),
    (part, part_values): (Softmax, &[f32]),
) {
    let max = row.max.max(part.max);
    let keep = exp::<S>(S::splat(row.max - max));
    let add = exp::<S>(S::splat(part.max - max));
    let mut sum = [0.0; LANES];
    S::store(sum.as_mut_ptr(), S::fma(S::splat(part.sum), add, S::mul(S::splat(row.sum), keep)));
    *row = Softmax { max, sum: sum[0] };
    let n = values.len().min(part_values.len());
    let (values, part_values) = (values.as_mut_ptr(), part_values.as_ptr());
    let mut at = 0;
    while at + LANES <= n {
        let kept = S::mul(S::load(values.add(at)), keep);
        S::store(values.add(at), S::fma(S::load(part_values.add(at)), add, kept));
        at += LANES;
    }
    if at < n {
        let kept = S::mul(S::load_part(values.add(at), n - at), keep);
        let sum = S::fma(S::load_part(part_values.add(at), n - at), add, kept);
        S::store_part(values.add(at), n - at, sum);
    }
}

/// Turns a row's sum of weighted values into their mean. A sink adds its exponential to the weights.
///
/// # Safety
/// The machine has `S`'s instructions.
#[inline(always)]
pub(super) unsafe fn mean<S: Simd>(row: Softmax, sink: Option<f32>, values: &mut [f32]) {
    let mut sum = S::splat(row.sum);
    if let Some(sink) = sink {
        // A sink far above all scores leaves nothing of them: where `exp` ends is enough for that.
        sum = S::add(sum, exp::<S>(S::splat(sink - row.max)));
    }
    let mut vectors = values.chunks_exact_mut(LANES);
    for x in &mut vectors {
        S::store(x.as_mut_ptr(), S::div(S::load(x.as_ptr()), sum));
    }
    let rest = vectors.into_remainder();
    if !rest.is_empty() {
        let x = S::load_part(rest.as_ptr(), rest.len());
        S::store_part(rest.as_mut_ptr(), rest.len(), S::div(x, sum));
    }
}

/// The nearest half-precision numbers.
///
/// # Safety
/// The machine has `S`'s instructions.
#[inline(always)]
pub(super) unsafe fn halve<S: Simd>(x: &[f32], bits: &mut [u16]) {
    let n = x.len().min(bits.len());
    let mut at = 0;
    while at + LANES <= n {
        S::store_f16(bits.as_mut_ptr().add(at), S::load(x.as_ptr().add(at)));
        at += LANES;
    }
    if at < n {
        let mut rest = [0; LANES];
        S::store_f16(rest.as_mut_ptr(), S::load_part(x.as_ptr().add(at), n - at));
        bits[at..n].copy_from_slice(&rest[..n - at]);
    }
}
