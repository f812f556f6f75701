//! What memory do products work in? One sequence's, which grows to what its steps need and is used again.

use std::ops::Range;
use std::sync::Mutex;

use super::linear::{Item, Products};
use super::rounding::{Activations, group};
use super::simd::BLOCK;
use super::top::Largest;
use super::{Kernels, Pair, Round};
use crate::engine::Precision;
use crate::engine::cpu::lines::Lines;
use crate::engine::cpu::pool::Pool;

/// Activations below which another thread costs more than it saves.
const LEAST_ELEMENTS: usize = 16 << 10;

/// Rounded activations, packed tiles and what threads find; one per sequence.
pub(crate) struct ProductScratch {
    integers: Integers,
    /// The same grouped, where that is asked for, and those in pairs.
    grouped: [Integers; 2],
    bf16: Lines<u32>,
    pub(super) packed: Lines<i32>,
    pub(super) list: Vec<Item>,
    /// Each thread's.
    pub(super) largest: Vec<Mutex<Largest>>,
    /// Tiles that are looked at together.
    pub(super) strips: Vec<Range<usize>>,
    /// What [`Screen`](super::Screen) keeps between its passes.
    pub(super) norms: Vec<f32>,
    pub(super) apart: Vec<f32>,
    pub(super) least: Vec<f32>,
    pub(super) ends: Vec<usize>,
    pub(super) upper: Vec<f32>,
    pub(super) first: Vec<u32>,
}

// SAFETY: addresses in `list` are used only by the `Products` that put them there.
unsafe impl Send for ProductScratch {}

/// Rows as integers; see [`Activations`].
#[derive(Default)]
struct Integers {
    digits: Lines<i8>,
    /// The same in pairs, where they are asked for.
    paired: Lines<i8>,
    scale: Lines<f32>,
    sum: Lines<i32>,
    scaled_sum: Lines<f32>,
    half_sum: Lines<i32>,
    scaled_half_sum: Lines<f32>,
}

impl Integers {
    /// Makes room for so many blocks.
    fn reserve(&mut self, blocks: usize, exact: bool) {
        self.digits.grow(blocks * BLOCK * if exact { 2 } else { 1 });
        self.scale.grow(blocks);
        self.sum.grow(blocks);
        self.scaled_sum.grow(blocks);
        self.half_sum.grow(2 * blocks);
        self.scaled_half_sum.grow(2 * blocks);
    }

    fn start(&mut self) -> Activations {
        Activations {
            digits: self.digits.as_mut_ptr(),
            scale: self.scale.as_mut_ptr(),
            sum: self.sum.as_mut_ptr(),
            scaled_sum: self.scaled_sum.as_mut_ptr(),
            half_sum: self.half_sum.as_mut_ptr(),
            scaled_half_sum: self.scaled_half_sum.as_mut_ptr(),
        }
    }
}

/// In which form products take rounded rows. Rows of a form can be made of those of the next one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Form {
    /// In their [groups](super::rounding::group), of so many rows.
    Grouped(usize),
    /// One after the other.
    Ordered,
    /// The same, and in pairs too.
    Paired,
}

/// Consecutive rows that products take by themselves, and in which form.
#[derive(Clone)]
pub(crate) struct Part {
    pub(crate) rows: Range<usize>,
    pub(crate) form: Form,
}

impl Part {
    /// The one with a row, of parts that lie behind each other.
    fn of(parts: &[Part], row: usize) -> &Part {
        &parts[parts.partition_point(|part| part.rows.end <= row)]
    }
}

impl Form {
    /// What both can be made of.
    pub(crate) fn both(self, other: Self) -> Self {
        if self == other { self } else { self.max(other).max(Form::Ordered) }
    }
}

/// Rows of one length on their way to integers.
struct Rounding {
    ordered: Activations,
    grouped: Activations,
    n_in: usize,
    exact: bool,
    kernel: Round,
    /// Where they are put in pairs, too, while they are at hand.
    paired: Option<(*mut i8, Pair)>,
}

// SAFETY: threads write different rows.
unsafe impl Sync for Rounding {}

impl Rounding {
    /// Rounds one row, as its part wants it. Zeros fill up its last block, as they may only for matrices whose rows are padded.
    ///
    /// # Safety
    /// There is room for row number `i`, which is the part's and nobody else writes or reads now.
    unsafe fn row(&self, i: usize, part: &Part, x: &[f32]) {
        assert_eq!(x.len(), self.n_in);
        let (blocks, (whole, rest)) = (self.n_in.div_ceil(BLOCK), x.as_chunks::<BLOCK>());
        // SAFETY: the caller's promise; a table of kernels exists only on machines that have its
        // instructions.
        unsafe {
            let (to, step) = match part.form {
                Form::Grouped(of) => {
                    let first = i - (i - part.rows.start) % of;
                    (self.grouped.skip(first * blocks + i - first, self.exact), of.min(part.rows.end - first))
                }
                Form::Ordered | Form::Paired => (self.ordered.skip(i * blocks, self.exact), 1),
            };
            (self.kernel)(x.as_ptr(), whole.len(), to, step);
            if !rest.is_empty() {
                let mut last = [0.0; BLOCK];
                last[..rest.len()].copy_from_slice(rest);
                (self.kernel)(last.as_ptr(), 1, to.skip(whole.len() * step, self.exact), step);
            }
            if let (Form::Paired, Some((start, pair))) = (part.form, self.paired) {
                let width = digits(self.n_in, self.exact);
                let rounded = std::slice::from_raw_parts(to.digits.cast_const(), width);
                pair(rounded, std::slice::from_raw_parts_mut(start.add(i * width), width));
            }
        }
    }

    /// Rows that are worth another thread.
    fn least(&self) -> usize {
        LEAST_ELEMENTS.div_ceil(self.n_in.next_multiple_of(BLOCK).max(1))
    }
}

/// Rows on their way into groups.
struct Grouping {
    from: Activations,
    to: Activations,
    rows: usize,
    /// Rows of a group.
    of: usize,
    blocks: usize,
    exact: bool,
}

// SAFETY: threads read and write different rows.
unsafe impl Sync for Grouping {}

impl Grouping {
    /// Copies a group, which may be the last one.
    ///
    /// # Safety
    /// Both have all rows, and nobody else writes the group now.
    unsafe fn group(&self, number: usize) {
        let (first, exact) = (number * self.of, self.exact);
        let rows = self.of.min(self.rows - first);
        let at = first * self.blocks;
        // SAFETY: the caller's promise.
        unsafe { group(self.from.skip(at, exact), self.to.skip(at, exact), rows, self.blocks, exact) };
    }
}

/// Bytes of a rounded row.
const fn digits(n_in: usize, exact: bool) -> usize {
    n_in.div_ceil(BLOCK) * BLOCK * if exact { 2 } else { 1 }
}

/// Grows to `len` elements; shorter steps keep the memory of longer ones.
pub(super) fn grow<T: Copy + Default>(scratch: &mut Vec<T>, len: usize) {
    if scratch.len() < len {
        scratch.resize(len, T::default());
    }
}

impl ProductScratch {
    /// For up to `rows` rows of up to `width` elements.
    pub(crate) fn new(rows: usize, width: usize, precision: Precision) -> Self {
        let blocks = rows * width.div_ceil(BLOCK);
        // Zeroed memory exists only from its first use on: short prompts need little.
        let mut integers = Integers::default();
        integers.reserve(blocks, precision == Precision::Exact);
        let mut bf16 = Lines::default();
        if precision == Precision::Bf16 {
            bf16.grow(blocks * BLOCK);
        }
        Self {
            integers,
            grouped: Default::default(),
            bf16,
            packed: Lines::default(),
            list: Vec::new(),
            largest: Vec::new(),
            strips: Vec::new(),
            norms: Vec::new(),
            apart: Vec::new(),
            least: Vec::new(),
            ends: Vec::new(),
            upper: Vec::new(),
            first: Vec::new(),
        }
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
            scratch: self,
            kernels,
            pool,
            x,
            n_in,
            precision,
            n_rows: x.len() / n_in.max(1),
            parts: &[],
            rounded: false,
            rounded_bf16: false,
            paired: false,
            grouped: [0..0, 0..0],
            total: 0,
            packed_len: 0,
            tile_bytes: usize::MAX,
            counts: [0; 2],
        }
    }

    /// Products of rows that `make` makes in turn, each of which is rounded while it is at hand. Each product takes a part.
    pub(crate) fn products_of<'a>(
        &'a mut self,
        kernels: &'a Kernels,
        pool: &'a Pool,
        (x, n_in): (&'a mut [f32], usize),
        (precision, parts): (Precision, &'a [Part]),
        make: impl Fn(usize, &mut [f32]) + Sync,
    ) -> Products<'a> {
        let to = self.rounding(kernels, x.len() / n_in.max(1), n_in, precision == Precision::Exact, parts);
        pool.rows(x, n_in, to.least(), |i, row, _| {
            make(i, row);
            // SAFETY: there is room for all rows, and each is given out once.
            unsafe { to.row(i, Part::of(parts, i), row) };
        });
        Products { parts, ..self.products(kernels, pool, x, n_in, precision) }
    }

    /// Products of rows that lie anywhere. Each takes a part, rounded.
    pub(crate) fn products_from<'a>(
        &'a mut self,
        kernels: &'a Kernels,
        pool: &'a Pool,
        (n_rows, n_in): (usize, usize),
        (precision, parts): (Precision, &'a [Part]),
        row: impl Fn(usize) -> &'a [f32] + Sync,
    ) -> Products<'a> {
        let to = self.rounding(kernels, n_rows, n_in, precision == Precision::Exact, parts);
        pool.run(n_rows, to.least(), &|range, _| {
            for i in range {
                // SAFETY: as above.
                unsafe { to.row(i, Part::of(parts, i), row(i)) };
            }
        });
        Products { n_rows, parts, ..self.products(kernels, pool, &[], n_in, precision) }
    }

    /// Rounds rows of `n_in` elements, in some form.
    pub(super) fn round(
        &mut self,
        kernels: &Kernels,
        pool: &Pool,
        (x, n_in): (&[f32], usize),
        exact: bool,
        form: Form,
    ) {
        let part = Part { rows: 0..x.len() / n_in, form };
        let to = self.rounding(kernels, part.rows.end, n_in, exact, std::slice::from_ref(&part));
        pool.run(part.rows.end, to.least(), &|range, _| {
            for i in range {
                // SAFETY: there is room for all rows, and each is given out once.
                unsafe { to.row(i, &part, &x[i * n_in..][..n_in]) };
            }
        });
    }

    /// Makes room for rows, in the forms that are asked for.
    fn rounding(
        &mut self,
        kernels: &Kernels,
        rows: usize,
        n_in: usize,
        exact: bool,
        parts: &[Part],
    ) -> Rounding {
        let (integers, [grouped, _], blocks) = (&mut self.integers, &mut self.grouped, n_in.div_ceil(BLOCK));
        let (mut first, mut last) = (0, Form::Grouped(0));
        for Part { rows: own, form } in parts {
            assert_eq!(own.start, first, "parts lie behind each other");
            first = own.end;
            last = last.max(*form);
            match form {
                Form::Grouped(_) => grouped.reserve(rows * blocks, exact),
                Form::Ordered | Form::Paired => integers.reserve(rows * blocks, exact),
            }
        }
        // Rows without elements are none.
        assert!(first == rows || n_in == 0, "parts have all rows");
        let paired = (last == Form::Paired).then(|| {
            integers.paired.grow(rows * digits(n_in, exact));
            (integers.paired.as_mut_ptr(), kernels.pair[usize::from(exact)])
        });
        let kernel = kernels.round[usize::from(exact)];
        Rounding { ordered: integers.start(), grouped: grouped.start(), n_in, exact, kernel, paired }
    }

    /// The rounded rows of `n_in` elements from `row` on.
    pub(super) fn activations(&mut self, row: usize, n_in: usize, exact: bool) -> Activations {
        let at = row * n_in.div_ceil(BLOCK);
        assert!(at <= self.integers.scale.len());
        // SAFETY: there are so many blocks, and rows as exact as these.
        unsafe { self.integers.start().skip(at, exact) }
    }

    /// Puts rows in pairs that were rounded without.
    pub(super) fn pair(&mut self, kernels: &Kernels, pool: &Pool, rows: usize, n_in: usize, exact: bool) {
        let width = digits(n_in, exact);
        let Integers { digits, paired, .. } = &mut self.integers;
        paired.grow(rows * width);
        pool.rows(&mut paired[..rows * width], width, LEAST_ELEMENTS.div_ceil(width), |row, to, _| {
            // SAFETY: rows are whole blocks; a table of kernels exists only on machines that have its instructions.
            unsafe { (kernels.pair[usize::from(exact)])(&digits[row * width..][..width], to) };
        });
    }

    /// Rounded rows in pairs, from `row` on.
    pub(super) fn paired(&mut self, row: usize, n_in: usize, exact: bool) -> *mut i8 {
        self.integers.paired[row * digits(n_in, exact)..].as_mut_ptr()
    }

    /// Groups some of `len / n_in` rows by so many: `x`, whose integers are in pairs or not.
    pub(super) fn group(
        &mut self,
        pool: &Pool,
        x: Activations,
        (rows, of): (&Range<usize>, usize),
        (len, n_in): (usize, usize),
        (exact, paired): (bool, bool),
    ) {
        let blocks = n_in.div_ceil(BLOCK);
        self.grouped[usize::from(paired)].reserve(len / n_in * blocks, exact);
        let to = self.grouped(rows.start, n_in, (exact, paired));
        let grouping = Grouping { from: x, to, rows: rows.len(), of, blocks, exact };
        let least = LEAST_ELEMENTS.div_ceil(of * n_in);
        pool.run(rows.len().div_ceil(of), least, &|range, _| {
            for number in range {
                // SAFETY: there is room for all rows, and each group is given out once.
                unsafe { grouping.group(number) };
            }
        });
    }

    /// Grouped rows, from `row` on.
    pub(super) fn grouped(&mut self, row: usize, n_in: usize, (exact, paired): (bool, bool)) -> Activations {
        let (at, grouped) = (row * n_in.div_ceil(BLOCK), &mut self.grouped[usize::from(paired)]);
        assert!(at <= grouped.scale.len());
        // SAFETY: there are so many blocks, and rows as exact as these.
        unsafe { grouped.start().skip(at, exact) }
    }

    /// What one row was rounded to with one digit: blocks' digits and scales.
    pub(super) fn coarse_blocks(&self) -> impl Iterator<Item = (&[i8; BLOCK], &f32)> {
        self.integers.digits.as_chunks().0.iter().zip(&*self.integers.scale)
    }

    /// Rounds rows of `n_in` elements to bfloat16.
    pub(super) fn round_bf16(&mut self, kernels: &Kernels, pool: &Pool, x: &[f32], n_in: usize) {
        let words = (kernels.bf16_words)(n_in);
        let len = x.len() / n_in * words;
        self.bf16.grow(len);
        pool.rows(&mut self.bf16[..len], words, LEAST_ELEMENTS.div_ceil(n_in), |row, to, _| {
            // SAFETY: a table of kernels exists only on machines that have its instructions.
            unsafe { (kernels.round_bf16)(&x[row * n_in..][..n_in], to) };
        });
    }

    /// Rows in bfloat16, from some word on.
    pub(super) fn bf16(&self, word: usize) -> *const u32 {
        self.bf16[word..].as_ptr()
    }
}
