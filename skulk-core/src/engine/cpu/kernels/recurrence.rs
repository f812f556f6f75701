//! How do states go on? A tile of a head's values at a time, through all rows of a sequence.
//!
//! A head's state lies in tiles of 16 values, each `[key_dim][16]`, so that a tile stays in the nearest cache while rows go
//! through it. Rows are gone through one by one and sums over a key's elements run in an order that nothing else changes:
//! results are the same however rows are cut into steps.
//!
//! # Safety
//! Every generic function here needs `S`'s instructions; addresses come from slices that were checked.
#![allow(unsafe_op_in_unsafe_fn, reason = "functions and traits state their contracts")]

use super::super::lines::Lines;
use super::super::pool::Pool;
use super::Kernels;
use super::rows::exp;
use super::simd::{LANES, Simd};
use crate::arch::KeyHeads;
use crate::engine::backend::Run;
use crate::error::{Error, ErrorKind, Result};

/// Added to the square of a key's length before it is divided by its root.
const UNIT_EPS: f32 = 1e-6;
/// Numbers of a layer's state up to which caches may hold it until the next token. Of larger ones, what a single row leaves
/// need not be there, nor what it replaces.
const LARGE: usize = if cfg!(test) { 0 } else { 1 << 17 };
/// Sums over a key's elements that run side by side.
const SUMS: usize = 4;

/// States of one layer and what rows do to them.
pub(crate) struct Recurrence<'a> {
    pub(crate) n_heads: usize,
    pub(crate) n_key_heads: usize,
    pub(crate) key_heads: KeyHeads,
    pub(crate) key_dim: usize,
    pub(crate) value_dim: usize,
    /// What is known under a key is replaced; else values are added.
    pub(crate) replaces: bool,
    /// Of each row queries, keys and values, then by head what is left of the state, then what share is taken up.
    pub(crate) rows: &'a [f32],
    /// By element of a head's key, `[rows, heads · key_dim]`: what is left of the state, where rows do not have it by head.
    pub(crate) left: Option<&'a [f32]>,
    /// By head: how much of a value what is read has in it.
    pub(crate) skip: Option<&'a [f32]>,
    /// What is read, `[rows, heads · value_dim]`.
    pub(crate) out: &'a mut [f32],
}

impl Recurrence<'_> {
    fn width(&self) -> usize {
        2 * self.n_key_heads * self.key_dim + self.n_heads * (self.value_dim + 2)
    }

    fn tiles(&self) -> usize {
        self.n_heads * self.value_dim.div_ceil(LANES)
    }

    /// Numbers of all heads' states.
    pub(crate) fn state_len(&self) -> usize {
        self.tiles() * self.key_dim * LANES
    }
}

/// Where a sequence's states are, before its rows and behind them, and where they are kept on the way.
pub(crate) struct Place {
    from: Option<*const f32>,
    to: *mut f32,
    mark: Option<(usize, *mut f32)>,
    /// Its first row, and how many.
    first: usize,
    rows: usize,
}
// SAFETY: threads use their own parts of what the addresses lead to.
unsafe impl Sync for Place {}
// SAFETY: as above; between calls nobody uses them.
unsafe impl Send for Place {}

/// The address of results that threads have their own columns of.
struct Out(*mut f32);
// SAFETY: as above.
unsafe impl Sync for Out {}

/// A tile's rows.
pub(super) struct Tile {
    from: Option<*const f32>,
    state: *mut f32,
    mark: Option<(usize, *mut f32)>,
    n_rows: usize,
    key_dim: usize,
    replaces: bool,
    /// Of the first row; the next one's are `width` further on.
    query: *const f32,
    key: *const f32,
    value: *const f32,
    /// What is left, of each element of the key or of all, and what is taken up.
    left: *const f32,
    left_width: usize,
    of_elements: bool,
    share: *const f32,
    /// The state is written past the caches.
    past: bool,
    width: usize,
    skip: Option<f32>,
    lanes: usize,
    out: *mut f32,
    out_width: usize,
}

impl Kernels {
    /// Lets rows change states and read them. Pages of states are found by the runs' numbers.
    pub(crate) fn recur(
        &self,
        pool: &Pool,
        op: Recurrence<'_>,
        pages: &mut [Option<Lines<f32>>],
        runs: &[Run],
        places: &mut Vec<Place>,
    ) -> Result<()> {
        let absent = || Error::new(ErrorKind::Internal, "a state has no memory");
        let (width, len, out_width) = (op.width(), op.state_len(), op.n_heads * op.value_dim);
        Run::check(runs)?;
        places.clear();
        let rows = runs.last().map_or(0, |run| run.rows.end);
        for run in runs {
            let mut page = |page: u32| {
                let page = pages.get_mut(page as usize).and_then(Option::as_mut).ok_or_else(absent)?;
                page.get_mut(..len).map(<[f32]>::as_mut_ptr).ok_or_else(absent)
            };
            places.push(Place {
                from: run.from.map(&mut page).transpose()?.map(<*mut f32>::cast_const),
                to: page(run.to)?,
                mark: run.mark.map(|(row, at)| Ok::<_, Error>((row, page(at)?))).transpose()?,
                first: run.rows.start,
                rows: run.rows.len(),
            });
        }
        let of_heads = |vector: Option<&[f32]>| vector.is_none_or(|vector| vector.len() >= op.n_heads);
        let left_width = op.n_heads * op.key_dim;
        let of_elements = |left: Option<&[f32]>| left.is_none_or(|left| left.len() >= rows * left_width);
        let fits = of_elements(op.left) && of_heads(op.skip);
        if op.rows.len() < rows * width || op.out.len() < rows * out_width || !fits {
            return Err(Error::new(ErrorKind::Internal, "rows of states have other widths"));
        }
        let (tiles, of_head) = (op.tiles(), op.value_dim.div_ceil(LANES));
        let (keys, values) = (op.n_key_heads * op.key_dim, op.n_heads * op.value_dim);
        let (tile_len, large) = (op.key_dim * LANES, len > LARGE);
        let (places, out) = (&*places, Out(op.out.as_mut_ptr()));
        let (input, skip, left) = (op.rows, op.skip, op.left);
        let longest = places.iter().map(|place| place.rows).max().unwrap_or(1);
        let least = super::super::LEAST_ELEMENTS.div_ceil(longest * tile_len);
        pool.run(places.len() * tiles, least, &|range, _| {
            let out = &out;
            for task in range {
                let (place, tile) = (&places[task / tiles], task % tiles);
                let (head, column) = (tile / of_head, tile % of_head * LANES);
                let key_head = op.key_heads.of(head, op.n_heads, op.n_key_heads);
                let row = &input[place.first * width..];
                // SAFETY: all lies within what was checked above, and no other task has this tile's states and columns.
                unsafe {
                    let at = |base: *mut f32| base.add(tile * tile_len);
                    (self.recur)(&Tile {
                        from: place.from.map(|base| base.add(tile * tile_len)),
                        state: at(place.to),
                        mark: place.mark.map(|(row, base)| (row, at(base))),
                        n_rows: place.rows,
                        key_dim: op.key_dim,
                        replaces: op.replaces,
                        query: row[key_head * op.key_dim..].as_ptr(),
                        key: row[keys + key_head * op.key_dim..].as_ptr(),
                        value: row[2 * keys + head * op.value_dim + column..].as_ptr(),
                        left: match left {
                            Some(left) => left[place.first * left_width + head * op.key_dim..].as_ptr(),
                            None => row[2 * keys + values + head..].as_ptr(),
                        },
                        left_width: if left.is_some() { left_width } else { width },
                        of_elements: left.is_some(),
                        share: row[2 * keys + values + op.n_heads + head..].as_ptr(),
                        width,
                        past: large && place.rows == 1 && place.mark.is_none(),
                        skip: skip.map(|skip| skip[head]),
                        lanes: (op.value_dim - column).min(LANES),
                        out: out.0.add(place.first * out_width + head * op.value_dim + column),
                        out_width,
                    });
                }
            }
            // SAFETY: the machine has the instructions.
            unsafe { (self.streamed)() }
        });
        Ok(())
    }

    /// `out = silu(bias + Σ weight · tap)` by element, over taps in their order; weights of the next tap are `distance`
    /// further on.
    pub(crate) fn convolve(
        &self,
        taps: &[&[f32]],
        weights: &[f32],
        distance: usize,
        bias: Option<&[f32]>,
        out: &mut [f32],
    ) {
        let n = out.len();
        let fits = taps.iter().all(|tap| tap.len() >= n) && bias.is_none_or(|bias| bias.len() >= n);
        assert!(
            fits && !taps.is_empty() && weights.len() >= (taps.len() - 1) * distance + n,
            "lengths of a convolution"
        );
        // SAFETY: the machine has the instructions, and lengths were checked.
        unsafe { (self.convolve)(taps, weights, distance, bias, out) }
    }

    /// `x *= sigmoid(gate)`, by element.
    pub(crate) fn dampen(&self, x: &mut [f32], gate: &[f32]) {
        // SAFETY: as above.
        unsafe { (self.dampen)(x, gate) }
    }

    /// `left = e^(-decay · ln(1 + e^(left + bias)))`, by element; not below `e^-87`.
    pub(crate) fn decay(&self, left: &mut [f32], biases: &[f32], decay: f32) {
        // SAFETY: as above.
        unsafe { (self.decay)(left, biases, decay) }
    }

    /// Scales a head to this length.
    pub(crate) fn unit(&self, head: &mut [f32], length: f32) {
        // SAFETY: as above.
        unsafe { (self.unit)(head, length) }
    }
}

/// See [`Kernels::recur`].
#[inline(always)]
pub(super) unsafe fn recur<S: Simd>(tile: &Tile) {
    let past = tile.past && tile.state.addr().is_multiple_of(4 * LANES);
    match (tile.of_elements, past) {
        (false, false) => go::<S, false, false>(tile),
        (false, true) => go::<S, false, true>(tile),
        (true, false) => go::<S, true, false>(tile),
        (true, true) => go::<S, true, true>(tile),
    }
}

/// Works on 0 to `$n`, of which each belongs to a sum. No closure: those that are not inlined lack the instructions.
macro_rules! each {
    ($n:expr, |$i:ident, $sum:ident| $body:block) => {{
        let mut at = 0;
        while at + SUMS <= $n {
            let mut $sum = 0;
            while $sum < SUMS {
                let $i = at + $sum;
                $body
                $sum += 1;
            }
            at += SUMS;
        }
        while at < $n {
            let ($i, $sum) = (at, at % SUMS);
            $body
            at += 1;
        }
    }};
}

/// What is left is by element of the key, or the same of all.
#[inline(always)]
unsafe fn go<S: Simd, const OF_ELEMENTS: bool, const PAST: bool>(tile: &Tile) {
    let (n, state) = (tile.key_dim, tile.state);
    let mut from = match tile.from {
        Some(from) => from,
        None => {
            std::slice::from_raw_parts_mut(state, n * LANES).fill(0.0);
            state.cast_const()
        }
    };
    for row in 0..tile.n_rows {
        let at = row * tile.width;
        let (query, key) = (tile.query.add(at), tile.key.add(at));
        let (first, share) = (tile.left.add(row * tile.left_width), S::splat(*tile.share.add(at)));
        let of_all = S::splat(*first);
        let value = match tile.lanes {
            LANES => S::load(tile.value.add(at)),
            lanes => S::load_part(tile.value.add(at), lanes),
        };
        let mut news = value;
        if tile.replaces {
            let mut known = [S::zero(); SUMS];
            each!(n, |i, sum| {
                let left = if OF_ELEMENTS { S::splat(*first.add(i)) } else { of_all };
                let state = S::mul(S::load(from.add(i * LANES)), left);
                known[sum] = S::fma(state, S::splat(*key.add(i)), known[sum]);
            });
            news = S::sub(news, total::<S>(known));
        }
        let news = S::mul(news, share);
        let mut read = [S::zero(); SUMS];
        each!(n, |i, sum| {
            let left = if OF_ELEMENTS { S::splat(*first.add(i)) } else { of_all };
            let old = S::mul(S::load(from.add(i * LANES)), left);
            let new = S::fma(S::splat(*key.add(i)), news, old);
            if PAST {
                S::stream(state.add(i * LANES), new);
            } else {
                S::store(state.add(i * LANES), new);
            }
            read[sum] = S::fma(new, S::splat(*query.add(i)), read[sum]);
        });
        let mut read = total::<S>(read);
        if let Some(skip) = tile.skip {
            read = S::fma(S::splat(skip), value, read);
        }
        let out = tile.out.add(row * tile.out_width);
        match tile.lanes {
            LANES => S::store(out, read),
            lanes => S::store_part(out, lanes, read),
        }
        from = state.cast_const();
        if let Some((behind, mark)) = tile.mark
            && behind == row + 1
        {
            std::ptr::copy_nonoverlapping(from, mark, n * LANES);
        }
    }
}

#[inline(always)]
unsafe fn total<S: Simd>([a, b, c, d]: [S::F; SUMS]) -> S::F {
    S::add(S::add(a, b), S::add(c, d))
}

/// See [`Kernels::convolve`].
#[inline(always)]
pub(super) unsafe fn convolve<S: Simd>(
    taps: &[&[f32]],
    weights: &[f32],
    distance: usize,
    bias: Option<&[f32]>,
    out: &mut [f32],
) {
    let n = out.len();
    for at in (0..n).step_by(LANES) {
        let lanes = (n - at).min(LANES);
        let mut sum = match bias {
            Some(bias) => load::<S>(bias.as_ptr().add(at), lanes),
            None => S::zero(),
        };
        for (tap, x) in taps.iter().enumerate() {
            let weights = load::<S>(weights.as_ptr().add(tap * distance + at), lanes);
            sum = S::fma(load::<S>(x.as_ptr().add(at), lanes), weights, sum);
        }
        let e = exp::<S>(S::sub(S::zero(), sum));
        let silu = S::div(sum, S::add(S::splat(1.0), e));
        store::<S>(out.as_mut_ptr().add(at), lanes, silu);
    }
}

/// A vector, or as many of its lanes.
#[inline(always)]
unsafe fn load<S: Simd>(from: *const f32, lanes: usize) -> S::F {
    if lanes == LANES { S::load(from) } else { S::load_part(from, lanes) }
}

#[inline(always)]
unsafe fn store<S: Simd>(to: *mut f32, lanes: usize, x: S::F) {
    if lanes == LANES { S::store(to, x) } else { S::store_part(to, lanes, x) }
}

/// See [`Kernels::dampen`].
#[inline(always)]
pub(super) unsafe fn dampen<S: Simd>(x: &mut [f32], gate: &[f32]) {
    let n = x.len().min(gate.len());
    for at in (0..n).step_by(LANES) {
        let (to, lanes) = (x.as_mut_ptr().add(at), (n - at).min(LANES));
        let gate = load::<S>(gate.as_ptr().add(at), lanes);
        let share = S::add(S::splat(1.0), exp::<S>(S::sub(S::zero(), gate)));
        store::<S>(to, lanes, S::div(load::<S>(to, lanes), share));
    }
}

/// See [`Kernels::decay`].
#[inline(always)]
pub(super) unsafe fn decay<S: Simd>(left: &mut [f32], biases: &[f32], decay: f32) {
    let n = left.len().min(biases.len());
    for at in (0..n).step_by(LANES) {
        let (to, lanes) = (left.as_mut_ptr().add(at), (n - at).min(LANES));
        let x = S::add(load::<S>(to, lanes), load::<S>(biases.as_ptr().add(at), lanes));
        let step = softplus::<S>(x);
        store::<S>(to, lanes, exp::<S>(S::mul(S::splat(-decay), step)));
    }
}

/// `ln(1 + e^x)`, within some units in the last place: the larger of x and 0, and `ln(1 + y)` of `y = e^-|x|`, which is
/// `2 (s + s^3 / 3 + s^5 / 5 + …)` of `s = y / (2 + y)`, at most a third.
#[inline(always)]
unsafe fn softplus<S: Simd>(x: S::F) -> S::F {
    let y = exp::<S>(S::sub(S::zero(), S::abs(x)));
    let s = S::div(y, S::add(S::splat(2.0), y));
    let square = S::mul(s, s);
    let mut sum = S::splat(1.0 / 15.0);
    let mut odd = 13;
    while odd > 0 {
        sum = S::fma(sum, square, S::splat(1.0 / odd as f32));
        odd -= 2;
    }
    // In this order what is not a number stays so.
    S::fma(S::add(s, s), sum, S::max(S::zero(), x))
}

/// See [`Kernels::unit`].
#[inline(always)]
pub(super) unsafe fn unit<S: Simd>(head: &mut [f32], length: f32) {
    let n = head.len();
    let mut squares = S::zero();
    for at in (0..n).step_by(LANES) {
        let from = head.as_ptr().add(at);
        let x = if n - at < LANES { S::load_part(from, n - at) } else { S::load(from) };
        squares = S::fma(x, x, squares);
    }
    let scale = length * (S::sum(squares) + UNIT_EPS).sqrt().recip();
    head.iter_mut().for_each(|x| *x *= scale);
}
