//! Which tiles do a block of rows and a partition of the cache take? Only those that somebody sees.
//!
//! Tiles run through pairs of a row and a head, row by row, whose queries share the keys and values.
//! Where there are many pairs, a panel of the cache is converted for all of them, otherwise each
//! tile converts what it reads.

use std::ops::Range;

use super::Kernels;
use super::attention::{
    self, DEPTH, MOST, PAGES, PAIRS, PANEL, PARTITION, Pack, Softmax, Tile, VECTORS, WIDTH,
};
use super::simd::{BLOCK, LANES};
use super::stored::{F32, Matrix, Stored, Values};
use crate::arch::Window;
use crate::engine::KvType;
use crate::engine::cpu::lines::{LINE, Lines, clear};

/// Pairs that are worth conversions of their own.
const PACKED: usize = 3 * MOST;

/// What a block of consecutive rows and a partition of the cache have to do with each other.
#[derive(Clone, Copy)]
pub(crate) struct Partition<'a> {
    /// From the first row's query of the first head on; in pairs where keys are.
    pub(crate) q: &'a [f32],
    /// Places from row to row, and those of a query.
    pub(crate) q_stride: usize,
    pub(crate) q_len: usize,
    pub(crate) rows: usize,
    /// Query heads, which lie side by side.
    pub(crate) heads: usize,
    pub(crate) head_dim: usize,
    /// Elements of values; of latent vectors fewer than queries and keys have.
    pub(crate) value_dim: usize,
    /// Values are the first elements of keys.
    pub(crate) latent: bool,
    /// Of each page, `[head dim][position]`, or as `attention/pages.rs` has it.
    pub(crate) keys: [Stored<'a>; PAGES],
    /// Of each page, `[head dim / WIDTH][position][WIDTH]`, the last group narrower where need be, or likewise; of latent vectors
    /// the keys.
    pub(crate) values: [Stored<'a>; PAGES],
    /// Position of the first row.
    pub(crate) start: usize,
    /// Position of the partition's first key.
    pub(crate) first: usize,
    pub(crate) window: Option<Window>,
    pub(crate) scale: f32,
    pub(crate) softcap: Option<f32>,
}

impl Partition<'_> {
    /// Positions that a row sees, counted from the partition's first.
    pub(super) fn seen(&self, row: usize) -> Range<usize> {
        let end = self.start + row + 1;
        let from = self.window.map_or(0, |window| window.first(end - 1));
        // A window may also begin behind the partition.
        let from = from.saturating_sub(self.first).min(PARTITION);
        from..end.saturating_sub(self.first).clamp(from, PARTITION)
    }

    /// Positions that any of the pairs sees.
    pub(super) fn seen_by(&self, pairs: Range<usize>) -> Range<usize> {
        self.seen(pairs.start / self.heads).start..self.seen((pairs.end - 1) / self.heads).end
    }

    /// The pairs of each row among some.
    fn by_row(&self, pairs: Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
        let heads = self.heads;
        let rows = pairs.start / heads..pairs.end.div_ceil(heads);
        rows.map(move |row| pairs.start.max(row * heads)..pairs.end.min((row + 1) * heads))
    }

    /// Whether there are enough pairs for conversions of their own.
    fn packed(&self) -> bool {
        self.rows * self.heads >= PACKED
    }

    /// Where a pair's query begins.
    pub(super) fn query(&self, pair: usize) -> usize {
        pair / self.heads * self.q_stride + pair % self.heads * self.q_len
    }

    /// Keys of a page, which many pairs ask for.
    fn keys_ahead(&self, page: usize) -> Ahead<'_> {
        [if self.packed() { self.keys[page].all_keys(self.head_dim) } else { &[] }, &[], &[], &[]]
    }

    /// Likewise values of pages, of the group from element `column` on.
    fn values_ahead(&self, pages: Range<usize>, column: usize) -> Ahead<'_> {
        let there = self.packed() && column < self.value_dim && !self.latent;
        std::array::from_fn(|page| match &self.values[page] {
            values if there && pages.contains(&page) => values.values_of(0..WIDTH, column, self.head_dim),
            _ => &[],
        })
    }
}

/// What is read next. Of many pairs each tile asks for its share of that.
type Ahead<'a> = [&'a [u8]; PAGES];

/// A tile's sums of weighted values.
struct Sums {
    pairs: Range<usize>,
    /// The first of their columns.
    column: usize,
    /// Where the strip begins whose values are added.
    strip: usize,
    /// There are none yet.
    fresh: bool,
}

/// Working memory of one task, and its result.
#[derive(Default)]
pub(crate) struct PartitionScratch {
    /// Scores, then weights.
    pub(super) scores: Lines<f32>,
    /// Weights of a strip of positions times their scales.
    scaled: Lines<f32>,
    values: Lines<f32>,
    parts: Vec<Softmax>,
    /// Where each pair's query begins.
    queries: Vec<usize>,
    pub(super) panel: Lines<f32>,
    /// A panel of latent vectors, turned round, in f32 or in pairs.
    pub(super) turned: Lines<f32>,
    /// Elements of values.
    dim: usize,
}

impl PartitionScratch {
    /// Makes room for so many pairs.
    pub(crate) fn reserve(&mut self, pairs: usize, dim: usize) {
        self.scores.grow(pairs * PARTITION);
        self.scaled.grow(pairs * WIDTH);
        self.values.grow(pairs * dim.next_multiple_of(LANES));
        self.panel.grow(PANEL);
        self.turned.grow(PANEL);
        if self.parts.len() < pairs {
            self.parts.resize(pairs, Softmax::EMPTY);
        }
        self.queries.reserve(pairs.saturating_sub(self.queries.len()));
    }

    /// For the positions that `part` sees, whose scores and values are whatever was there before. Stores wait for each line that
    /// has left the caches, unless it is asked for before.
    pub(super) fn prepare(
        &mut self,
        kernels: &Kernels,
        part: &Partition<'_>,
        seen: Range<usize>,
        dim: usize,
    ) {
        let pairs = part.rows * part.heads;
        self.reserve(pairs, dim);
        #[cfg(test)]
        self.spoil();
        self.queries.clear();
        self.queries.extend((0..pairs).map(|pair| part.query(pair)));
        self.dim = dim;
        let columns = self.columns();
        let pages = seen.start / WIDTH * WIDTH..seen.end.next_multiple_of(WIDTH);
        if !part.packed() {
            for scores in self.scores.chunks_exact(PARTITION).take(pairs) {
                kernels.prefetch_floats(&scores[pages.clone()]);
            }
            kernels.prefetch_floats(&self.values[..pairs * columns]);
        }
    }

    /// Whatever it holds becomes what is no number.
    #[cfg(test)]
    fn spoil(&mut self) {
        let Self { scores, scaled, values, panel, turned, .. } = self;
        for memory in [scores, scaled, values, panel, turned] {
            memory.fill(f32::NAN);
        }
    }

    /// Elements of a pair's values, filled up to whole vectors.
    fn columns(&self) -> usize {
        self.dim.next_multiple_of(LANES)
    }

    /// Sums of so many vectors begin at zero.
    fn begin(&mut self, sums: &Sums, vectors: usize) {
        let columns = self.columns();
        for pair in sums.pairs.clone() {
            clear(&mut self.values[pair * columns + sums.column..][..vectors * LANES]);
        }
    }

    /// A pair's part and the sum of its weighted values.
    pub(crate) fn result(&self, pair: usize) -> (Softmax, &[f32]) {
        let columns = self.columns();
        (self.parts[pair], &self.values[pair * columns..][..self.dim])
    }
}

impl Kernels {
    /// Scores, weights and weighted values of the partition, for the pairs `row · heads + head`.
    pub(crate) fn partition(&self, part: &Partition<'_>, scratch: &mut PartitionScratch) {
        let (dim, pairs) = (part.head_dim, part.rows * part.heads);
        let values_dim = part.value_dim.min(dim);
        if pairs == 0 || values_dim == 0 {
            return;
        }
        let seen = part.seen_by(0..pairs);
        for stored in [&part.keys, &part.values]
            .into_iter()
            .flat_map(|pages| &pages[seen.start / WIDTH..seen.end.div_ceil(WIDTH)])
        {
            assert!(stored.has(dim), "a page's keys or values");
        }
        assert!(part.q.len() >= part.query(pairs - 1) + part.q_len, "all queries");
        let pages = seen.start / WIDTH..seen.end.div_ceil(WIDTH);
        self.ask(part, &seen, pages.start, None);
        scratch.prepare(self, part, seen.clone(), values_dim);
        let group =
            |page: usize, column: usize| part.values[page].values(0, column..dim.min(column + WIDTH), dim);
        // Of many rows, pairs that are multiplied as they are: of all pages at once.
        let whole = part.packed() && !part.latent && part.values[0].pairs() && !self.converts(part, PAIRS);
        let first_values = if whole { pages.clone() } else { pages.start..pages.start + 1 };
        for page in pages.clone() {
            self.ask(part, &seen, page + 1, None);
            let mut ahead = if page + 1 < pages.end {
                part.keys_ahead(page + 1)
            } else {
                part.values_ahead(first_values.clone(), 0)
            };
            let keys = &part.keys[page];
            for strip in keys.strips() {
                let ahead = std::mem::take(&mut ahead);
                // SAFETY: lengths have been checked, and there is room for all pairs.
                unsafe { self.score(part, scratch, page * WIDTH + strip, keys.keys(strip), ahead) };
            }
        }
        self.ask(part, &seen, pages.start, Some(0));
        let softmax =
            if part.values[0].pairs() { self.attention.pairs.softmax } else { self.attention.softmax };
        for pair in 0..pairs {
            let seen = part.seen(pair / part.heads);
            scratch.parts[pair] = Softmax::EMPTY;
            if !seen.is_empty() {
                let scores = &mut scratch.scores.as_chunks_mut().0[pair];
                // SAFETY: the machine has the instructions.
                scratch.parts[pair] = unsafe { softmax(scores, seen, part.scale, part.softcap) };
            }
        }
        for column in (0..values_dim).step_by(WIDTH) {
            if whole {
                let values = Values::of_pages(pages.clone(), |page| group(page, column));
                let ahead = part.values_ahead(pages.clone(), column + WIDTH);
                let positions = pages.start * WIDTH..pages.end * WIDTH;
                // SAFETY: as above.
                unsafe { self.weigh(part, scratch, column, positions, values, ahead) };
                continue;
            }
            for page in pages.clone() {
                let next =
                    if page + 1 < pages.end { (page + 1, column) } else { (pages.start, column + WIDTH) };
                self.ask(part, &seen, next.0, Some(next.1));
                let mut ahead = part.values_ahead(next.0..next.0 + 1, next.1);
                let values = &part.values[page];
                if part.latent {
                    let columns = column..values_dim.min(column + WIDTH);
                    let positions = page * WIDTH..(page + 1) * WIDTH;
                    // SAFETY: as above; a page has these elements of each position.
                    unsafe {
                        let values = Values::new(positions.start, self.turn(values, columns, scratch));
                        self.weigh(part, scratch, column, positions, values, ahead);
                    }
                    continue;
                }
                let width = if values.kind.is_quantised() { BLOCK } else { WIDTH };
                for strip in values.strips() {
                    let positions = page * WIDTH + strip..page * WIDTH + strip + values.strip();
                    for column in (column..dim.min(column + WIDTH)).step_by(width) {
                        let group = values.values(strip, column..dim.min(column + width), dim);
                        let values = Values::new(positions.start, group);
                        let ahead = std::mem::take(&mut ahead);
                        // SAFETY: as above.
                        unsafe { self.weigh(part, scratch, column, positions.clone(), values, ahead) };
                    }
                }
            }
        }
    }

    /// Asks for what is read soon: a page's keys, or its values from element `column` on. Few pairs wait for memory longer
    /// than they compute, so they ask for it at once.
    fn ask(&self, part: &Partition<'_>, seen: &Range<usize>, page: usize, column: Option<usize>) {
        let within = |position: usize| position.saturating_sub(page * WIDTH).min(WIDTH);
        let slots = within(seen.start)..within(seen.end);
        if part.packed() || slots.is_empty() {
            return;
        }
        match column {
            None => part.keys[page].keys_of(slots, part.head_dim, |bytes| self.prefetch(bytes)),
            Some(column) if column < part.value_dim && !part.latent => {
                self.prefetch(part.values[page].values_of(slots, column, part.head_dim));
            }
            Some(_) => {}
        }
    }

    /// A tile's share of what is read next.
    fn ask_share(&self, ahead: &Ahead<'_>, tile: usize, tiles: usize) {
        for bytes in ahead.iter().filter(|bytes| !bytes.is_empty()) {
            let share = bytes.len().div_ceil(tiles).next_multiple_of(LINE);
            let from = (tile * share).min(bytes.len());
            self.prefetch(&bytes[from..bytes.len().min(from + share)]);
        }
    }

    /// The products of queries with the strip of keys from position `first` on.
    ///
    /// # Safety
    /// The scratch memory is prepared for all pairs, and `keys` is that strip of the partition's.
    pub(super) unsafe fn score(
        &self,
        part: &Partition<'_>,
        scratch: &mut PartitionScratch,
        first: usize,
        keys: Matrix,
        ahead: Ahead<'_>,
    ) {
        let (rows, pairs) = (part.keys[0].rows(part.head_dim), part.rows * part.heads);
        let end = first + keys.vectors * LANES;
        let within =
            |seen: Range<usize>| seen.start.clamp(first, end) - first..seen.end.clamp(first, end) - first;
        if within(part.seen_by(0..pairs)).is_empty() {
            return;
        }
        // Places of a row.
        let places = part.q_len / rows;
        let converts = self.converts(part, keys.kind);
        let depth = match converts {
            true => DEPTH / places,
            // As many as stay in the nearest cache.
            false if part.packed() => 2 * DEPTH,
            false => rows,
        };
        let count = tiles(pairs).count();
        for from in (0..rows).step_by(depth) {
            let rows = depth.min(rows - from);
            let scales = if keys.scales.is_null() {
                keys.scales
            } else {
                keys.scales.wrapping_add(from / BLOCK * WIDTH)
            };
            // SAFETY: keys have these rows, of which there are at most DEPTH where they are converted.
            let keys = unsafe {
                let keys = keys.skip(from);
                if converts { self.converted(keys, rows, &mut scratch.panel) } else { keys }
            };
            let steps = if keys.apart { 2 * rows } else { rows };
            for (at, pairs) in tiles(pairs).enumerate() {
                if from == 0 {
                    self.ask_share(&ahead, at, count);
                }
                let seen = within(part.seen_by(pairs.clone()));
                if seen.is_empty() {
                    continue;
                }
                let scores = scratch.scores.as_mut_ptr();
                let (mut a, mut c) = ([std::ptr::null(); MOST], [std::ptr::null_mut(); MOST]);
                for i in 0..MOST {
                    let pair = (pairs.start + i).min(pairs.end - 1);
                    a[i] = part.q[scratch.queries[pair] + from * places..][..rows * places].as_ptr();
                    c[i] = scores.wrapping_add(pair * PARTITION + first);
                }
                let mut b = [(std::ptr::null(), 0); PAGES];
                b[0] = (keys.from, steps);
                let (stride, fresh) = (keys.stride, from == 0);
                let tile = Tile { a, b, parts: 1, stride, c, fresh, column: 0, scales };
                let vectors = seen.start / LANES..seen.end.div_ceil(LANES);
                // SAFETY: queries have these places, keys have a row for each and columns for the
                // block's positions, and so have the pairs' scores.
                unsafe { self.multiply(keys.kind, tile, pairs.len(), vectors) };
            }
        }
    }

    /// Adds the weighted values of a strip of positions, of the columns from `column` on.
    ///
    /// # Safety
    /// The scratch memory is prepared for all pairs, and `values` has these positions and columns of the partition's.
    unsafe fn weigh(
        &self,
        part: &Partition<'_>,
        scratch: &mut PartitionScratch,
        column: usize,
        strip: Range<usize>,
        values: Values,
        ahead: Ahead<'_>,
    ) {
        let pairs = part.rows * part.heads;
        let within = |seen: Range<usize>| {
            seen.start.clamp(strip.start, strip.end)..seen.end.clamp(strip.start, strip.end)
        };
        let sub = within(part.seen_by(0..pairs));
        if sub.is_empty() {
            return;
        }
        let (of_row, matrix) = (values.matrix.of_row(), values.matrix);
        if !matrix.scales.is_null() {
            let vectors = strip.len() / LANES;
            let (weights, scaled) =
                (scratch.scores.chunks_exact(PARTITION), scratch.scaled.chunks_exact_mut(WIDTH));
            for (weights, to) in weights.zip(scaled).take(pairs) {
                // SAFETY: both have the strip's positions, and there is a scale for each of them.
                unsafe {
                    let weights = weights[strip.start..].as_ptr();
                    (self.attention.scale)(weights, matrix.scales, to.as_mut_ptr(), vectors);
                }
            }
        }
        let values = if self.converts(part, matrix.kind) {
            let first = sub.start / of_row * of_row;
            let rows = (sub.end - first).div_ceil(of_row);
            const { assert!(WIDTH <= DEPTH) }
            // SAFETY: a strip's matrix has rows for all of its positions, and what is converted is of one page.
            unsafe {
                let from = matrix.skip((first - strip.start) / of_row);
                Values::new(first, self.converted(from, rows, &mut scratch.panel))
            }
        } else {
            values
        };
        let count = tiles(pairs).count();
        // Nearly always all rows see all of a strip.
        let [oldest, newest] = [0, part.rows - 1].map(|row| within(part.seen(row)));
        let all = newest.start == sub.start && oldest.end == sub.end;
        for (at, pairs) in tiles(pairs).enumerate() {
            self.ask_share(&ahead, at, count);
            // Nobody in a tile sees anything before what its first row sees first or, where that sees nothing, before the
            // partition's first strip. So sums begin in that strip, all of the tile's.
            let fresh = strip.start <= part.seen(pairs.start / part.heads).start;
            let mut to = Sums { pairs: pairs.clone(), column, strip: strip.start, fresh };
            if all {
                // SAFETY: `values` has these rows.
                unsafe { self.add_values(scratch, &mut to, sub.clone(), &values) };
                continue;
            }
            let seen = |pair: usize| within(part.seen(pair / part.heads));
            // What all see they take together; what comes before and behind, each row's heads.
            let common =
                seen(pairs.end - 1).start.next_multiple_of(of_row)..seen(pairs.start).end / of_row * of_row;
            let common = if common.is_empty() { sub.end..sub.end } else { common };
            let before = |row: &Range<usize>| seen(row.start).start..seen(row.start).end.min(common.start);
            if fresh && part.by_row(pairs.clone()).any(|row| !before(&row).is_empty()) {
                scratch.begin(&to, values.matrix.vectors);
                to.fresh = false;
            }
            for row in part.by_row(pairs.clone()) {
                let positions = before(&row);
                // SAFETY: as above.
                unsafe { self.add_values(scratch, &mut Sums { pairs: row, ..to }, positions, &values) };
            }
            // SAFETY: as above.
            unsafe { self.add_values(scratch, &mut to, common.clone(), &values) };
            for row in part.by_row(pairs) {
                let positions = common.end..seen(row.start).end;
                // SAFETY: as above.
                unsafe { self.add_values(scratch, &mut Sums { pairs: row, ..to }, positions, &values) };
            }
        }
    }

    /// Adds the weighted values of `positions`, which may be none, to sums of a tile.
    ///
    /// # Safety
    /// The matrix has rows for all positions, and the columns of the sums.
    unsafe fn add_values(
        &self,
        scratch: &mut PartitionScratch,
        to: &mut Sums,
        positions: Range<usize>,
        values: &Values,
    ) {
        if positions.is_empty() {
            return;
        }
        if values.matrix.of_row() == 1 && !values.matrix.apart {
            // SAFETY: the caller's promise; so below.
            return unsafe { self.add_rows(scratch, to, positions, values) };
        }
        // Positions whose neighbours are seen, too; before and behind them perhaps one whose neighbour is not.
        let mut at = positions.start;
        while at < positions.end {
            let alone = at % 2 == 1 || at + 1 == positions.end;
            let end = if alone { at + 1 } else { positions.end / 2 * 2 };
            // SAFETY: as above, and what is masked is the row of its pair.
            unsafe {
                match alone {
                    // Its own row of the two.
                    true if values.matrix.apart => {
                        let row = at ^ 1;
                        self.add_rows(scratch, to, row..row + 1, values);
                    }
                    true => {
                        let (pair, mask) = (at / 2 * 2, if at % 2 == 1 { 0xffff_0000 } else { 0x0000_ffff });
                        let row = values.masked(pair, mask);
                        let row = Values::new(pair, Matrix { from: row.as_ptr().cast(), ..values.matrix });
                        self.add_rows(scratch, to, pair..pair + 2, &row);
                    }
                    false => self.add_rows(scratch, to, at..end, values),
                }
            }
            at = end;
        }
    }

    /// The same of whole rows.
    ///
    /// # Safety
    /// As above.
    unsafe fn add_rows(
        &self,
        scratch: &mut PartitionScratch,
        to: &mut Sums,
        positions: Range<usize>,
        values: &Values,
    ) {
        let (columns, sums) = (scratch.columns(), scratch.values.as_mut_ptr());
        let Matrix { stride, vectors, kind, scales, .. } = values.matrix;
        // Places of weights, and rows, are fewer than positions where both are pairs.
        let of_place = if values.matrix.of_row() == 2 { 2 / self.attention.pairs.places } else { 1 };
        let places = positions.start / of_place..positions.end / of_place;
        let (mut a, mut c) = ([std::ptr::null(); MOST], [std::ptr::null_mut(); MOST]);
        for i in 0..MOST {
            let pair = (to.pairs.start + i).min(to.pairs.end - 1);
            let weights = if scales.is_null() {
                &scratch.scores[pair * PARTITION..][..PARTITION][places.clone()]
            } else {
                &scratch.scaled[pair * WIDTH..][..WIDTH][positions.start - to.strip..positions.end - to.strip]
            };
            a[i] = weights.as_ptr();
            c[i] = sums.wrapping_add(pair * columns + to.column);
        }
        let ((b, parts), scales) = (values.rows(positions), std::ptr::null());
        let tile = Tile { a, b, parts, stride, c, fresh: to.fresh, column: 0, scales };
        // SAFETY: pairs have weights for these positions, the matrix rows, and the pairs' sums have room for whole vectors.
        unsafe { self.multiply(kind, tile, to.pairs.len(), 0..vectors) }
        to.fresh = false;
    }

    /// Whether a matrix of this kind is converted before it is multiplied: where there are enough pairs for it, but in f32, and
    /// where the machine multiplies pairs, there is nothing to convert.
    fn converts(&self, part: &Partition<'_>, kind: usize) -> bool {
        let multiplied = kind == F32 || kind == PAIRS && self.attention.pairs.places == 1;
        part.packed() && !multiplied
    }

    /// The first rows of a matrix, converted.
    ///
    /// # Safety
    /// The matrix has these rows, of which there are at most [`DEPTH`], of pairs half as many.
    unsafe fn converted(&self, matrix: Matrix, rows: usize, panel: &mut [f32]) -> Matrix {
        let Matrix { from, stride, vectors, kind, scales, .. } = matrix;
        let (to, rows, paired) = (panel.as_mut_ptr(), rows * matrix.of_row(), kind == PAIRS);
        let pack = if paired { self.attention.pack_pairs } else { self.attention.pack[kind] };
        // SAFETY: the panel has room for this many rows of WIDTH elements; the machine has the
        // instructions.
        unsafe { pack(&Pack { from, stride, rows, vectors, to }) };
        let from = to.cast_const().cast();
        Matrix { from, stride: 4 * WIDTH, vectors, kind: F32, scales, apart: paired }
    }

    /// `n` rows of products in the columns of `vectors`.
    ///
    /// # Safety
    /// The tile's addresses are valid for these, its matrix of the kind.
    unsafe fn multiply(&self, kind: usize, mut tile: Tile, n: usize, vectors: Range<usize>) {
        let tiles = if kind == PAIRS { &self.attention.pairs.tiles } else { &self.attention.tiles[kind] };
        let mut at = vectors.start;
        while at < vectors.end {
            let width = attention::width(self.attention.registers, n, (vectors.end - at).min(VECTORS));
            tile.column = at * LANES;
            // SAFETY: the caller's promise; the machine has the instructions.
            unsafe { tiles[n - 1][width.ilog2() as usize](&tile) };
            at += width;
        }
    }

    /// Adds a partition's result to a row's, both largest score and sum, and values.
    pub(crate) fn merge(&self, row: (&mut Softmax, &mut [f32]), part: (Softmax, &[f32])) {
        // Not one position seen; the sum of others is at least 1, or not a number.
        if part.0.sum == 0.0 {
            return;
        }
        // SAFETY: the machine has the instructions, and slices check lengths; so below.
        unsafe { (self.attention.merge)(row, part) }
    }

    /// Turns a row's sum of weighted values into their mean; a sink is a score without a value.
    pub(crate) fn mean(&self, row: Softmax, sink: Option<f32>, values: &mut [f32]) {
        // SAFETY: as above.
        unsafe { (self.attention.mean)(row, sink, values) }
    }

    /// Rotates a head of queries, keys or values, or back.
    pub(crate) fn rotate(&self, head: &mut [f32]) {
        // SAFETY: as above.
        unsafe { (self.attention.rotate)(head) }
    }

    /// A block as integers of 8 bits, or of 4, and their scale.
    pub(crate) fn quantise(&self, kind: KvType, x: &[f32; BLOCK], to: &mut [i8; BLOCK]) -> u16 {
        // SAFETY: as above.
        unsafe { (self.attention.quantise[usize::from(kind == KvType::Q4_0)])(x, to) }
    }

    /// The nearest half-precision numbers.
    pub(crate) fn halve(&self, x: &[f32], bits: &mut [u16]) {
        // SAFETY: as above.
        unsafe { (self.attention.halve)(x, bits) }
    }

    /// The nearest bfloat16 numbers.
    pub(crate) fn round_pairs(&self, x: &[f32], bits: &mut [u16]) {
        let n = x.len().min(bits.len());
        // SAFETY: the machine has the instructions, and there is room for so many.
        unsafe { (self.attention.round_pairs)(&x[..n], bits.as_mut_ptr()) }
    }

    /// Places that a head of queries takes in pairs.
    pub(crate) fn places(&self, head_dim: usize) -> usize {
        head_dim.div_ceil(2) * self.attention.pairs.places
    }

    /// Rounds a head of queries to pairs, as products take them.
    pub(crate) fn pair_up(&self, head: &[f32], to: &mut [f32]) {
        assert!(to.len() >= self.places(head.len()), "room for all pairs");
        // SAFETY: as above, and there is room.
        unsafe { (self.attention.pairs.pair_up)(head, to.as_mut_ptr()) }
    }
}

/// Cuts pairs into tiles, equally large if possible: small ones are slow.
fn tiles(pairs: usize) -> impl Iterator<Item = Range<usize>> {
    let size = pairs.div_ceil(pairs.div_ceil(MOST).max(1)).max(1);
    (0..pairs).step_by(size).map(move |first| first..pairs.min(first + size))
}
