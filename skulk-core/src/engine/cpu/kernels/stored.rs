//! Where do products read keys and values? In strips of pages, whose elements, or pairs of them, have bytes, or halves of bytes,
//! of their own.

use std::ops::Range;

use half::f16;

use super::attention::{PAGES, PAIRS, WIDTH};
use super::simd::{BLOCK, LANES};
use crate::engine::KvType;

/// Which functions are for single elements in f32.
pub(super) const F32: usize = 1;

/// Columns behind keys or values that may be read, though not used.
const BEHIND: usize = LANES;
/// Bytes that they have at most.
pub(crate) const BYTES_BEHIND: usize = BEHIND * size_of::<f32>();

/// A key/value head's keys or values in a page, and [`BYTES_BEHIND`]; empty for a page that no row sees.
#[derive(Clone, Copy)]
pub(crate) struct Stored<'a> {
    pub(crate) bytes: &'a [u8],
    /// In half precision, `[block of elements][position]`, where elements are quantised.
    pub(crate) scales: &'a [u8],
    pub(crate) kind: KvType,
}

impl Stored<'_> {
    /// `Ok` for what a page has of a head of so many elements.
    pub(super) fn has(&self, head_dim: usize) -> bool {
        let elements = self.rows(head_dim) * self.strip() * self.size();
        let scales = self.kind.scales(head_dim) * WIDTH * size_of::<u16>();
        self.bytes.len() >= elements + BEHIND * self.size() && self.scales.len() >= scales
    }

    /// Bytes of a column: of an element or a pair, or of two elements that share one.
    fn size(&self) -> usize {
        self.kind.side_by_side() * self.kind.bits().div_ceil(8)
    }

    /// Neighbouring elements of keys, and values of neighbouring positions, are columns together.
    pub(super) fn pairs(&self) -> bool {
        self.kind.side_by_side() > 1
    }

    /// Rows of `n` elements of keys, or of the values of as many positions.
    pub(crate) fn rows(&self, n: usize) -> usize {
        n.div_ceil(self.kind.side_by_side())
    }

    /// Positions whose elements lie in bytes, or halves of bytes, of their own.
    pub(super) fn strip(&self) -> usize {
        if self.kind == KvType::Q4_0 { WIDTH / 2 } else { WIDTH }
    }

    /// Where strips of the page begin.
    pub(super) fn strips(&self) -> impl Iterator<Item = usize> + use<> {
        (0..WIDTH).step_by(self.strip())
    }

    /// Which functions are for a strip.
    fn kind(&self, strip: usize) -> usize {
        match self.kind {
            KvType::F16 => 0,
            KvType::F32 => F32,
            KvType::Q8_0 => 2,
            KvType::Q4_0 => 3 + usize::from(strip > 0),
            KvType::BF16 => PAIRS,
        }
    }

    /// Scales of a block's positions from `strip` on.
    fn scales(&self, block: usize, strip: usize) -> *const u16 {
        let scales = self.scales.as_ptr().cast::<u16>();
        if self.kind.is_quantised() { scales.wrapping_add(block * WIDTH + strip) } else { std::ptr::null() }
    }

    /// The scales of an element of a strip's keys, by position, where elements are quantised.
    pub(super) fn scales_of(
        &self,
        element: usize,
        strip: usize,
    ) -> Option<impl Iterator<Item = f32> + use<'_>> {
        let first = element / BLOCK * WIDTH + strip;
        let scales = self.scales.as_chunks().0.iter().skip(first).take(self.strip());
        self.kind.is_quantised().then(|| scales.map(|bytes| f16::from_le_bytes(*bytes).to_f32()))
    }

    /// A strip of keys: a row for each element, or pair of them.
    pub(super) fn keys(&self, strip: usize) -> Matrix {
        let (from, stride) = (self.bytes.as_ptr(), self.strip() * self.size());
        let (vectors, kind) = (self.strip() / LANES, self.kind(strip));
        Matrix { from, stride, vectors, kind, scales: self.scales(0, strip), apart: false }
    }

    /// The bytes of all keys.
    pub(super) fn all_keys(&self, head_dim: usize) -> &[u8] {
        self.bytes.get(..self.rows(head_dim) * self.strip() * self.size()).unwrap_or_default()
    }

    /// Gives the bytes of some positions' keys, in the order in which they are read.
    pub(super) fn keys_of(&self, slots: Range<usize>, head_dim: usize, mut ask: impl FnMut(&[u8])) {
        let (stride, rows) = (self.strip() * self.size(), self.all_keys(head_dim));
        let slots = self.of_strip(slots);
        if slots.len() > self.strip() / 2 {
            return ask(rows);
        }
        rows.chunks_exact(stride)
            .for_each(|row| ask(&row[slots.start * self.size()..slots.end * self.size()]));
    }

    /// The bytes of some positions' values of the group from element `column` on.
    pub(super) fn values_of(&self, slots: Range<usize>, column: usize, head_dim: usize) -> &[u8] {
        let (size, slots) = (self.size(), self.of_strip(slots));
        let (at, stride) = (column * self.rows(self.strip()) * size, WIDTH.min(head_dim - column) * size);
        let rows = slots.start / self.kind.side_by_side()..self.rows(slots.end);
        self.bytes.get(at + rows.start * stride..at + rows.end * stride).unwrap_or_default()
    }

    /// Where positions of a page lie in its strips.
    fn of_strip(&self, slots: Range<usize>) -> Range<usize> {
        let strip = self.strip();
        if slots.start / strip == slots.end.saturating_sub(1) / strip {
            return slots.start % strip..slots.start % strip + slots.len();
        }
        0..strip
    }

    /// Columns of a strip of values that share scales, from one of them on: a row for each position, or pair of them.
    pub(super) fn values(&self, strip: usize, columns: Range<usize>, head_dim: usize) -> Matrix {
        let (size, group) = (self.size(), columns.start / WIDTH * WIDTH);
        let at = group * self.rows(self.strip()) + columns.start - group;
        let (from, stride) = (self.bytes[at * size..].as_ptr(), WIDTH.min(head_dim - group) * size);
        let (vectors, kind) = (columns.len().div_ceil(LANES), self.kind(strip));
        Matrix {
            from,
            stride,
            vectors,
            kind,
            scales: self.scales(columns.start / BLOCK, strip),
            apart: false,
        }
    }
}

/// A product's matrix, in the cache or converted.
#[derive(Clone, Copy)]
pub(super) struct Matrix {
    pub(super) from: *const u8,
    /// Bytes from row to row.
    pub(super) stride: usize,
    pub(super) vectors: usize,
    /// Which of the functions are for its elements.
    pub(super) kind: usize,
    /// Of the columns of keys, for each block of rows, [`WIDTH`] apart; of the rows of values; null where there are none.
    pub(super) scales: *const u16,
    /// Pairs taken apart, each to two rows, the second one's first.
    pub(super) apart: bool,
}

/// Values of consecutive positions, of one page or of several.
#[derive(Clone, Copy)]
pub(super) struct Values {
    /// Of the first page.
    pub(super) matrix: Matrix,
    /// Where the first row of each page lies.
    pages: [*const u8; PAGES],
    /// Position of the first row.
    first: usize,
}

impl Values {
    /// Of positions of one page.
    pub(super) fn new(first: usize, matrix: Matrix) -> Self {
        let mut pages = [std::ptr::null(); PAGES];
        pages[0] = matrix.from;
        Self { matrix, pages, first }
    }

    /// Of whole pages.
    pub(super) fn of_pages(pages: Range<usize>, of: impl Fn(usize) -> Matrix) -> Self {
        let mut values = Self::new(pages.start * WIDTH, of(pages.start));
        for (at, page) in pages.enumerate() {
            values.pages[at] = of(page).from;
        }
        values
    }

    /// Where the row of a position lies.
    fn at(&self, position: usize) -> *const u8 {
        let (page, slot) = ((position - self.first) / WIDTH, (position - self.first) % WIDTH);
        self.pages[page].wrapping_add(slot / self.matrix.of_row() * self.matrix.stride)
    }

    /// Where the rows of some positions lie: in each page from where on, and how many. And in how many pages.
    pub(super) fn rows(&self, positions: Range<usize>) -> ([(*const u8, usize); PAGES], usize) {
        let (mut rows, mut parts) = ([(std::ptr::null(), 0); PAGES], 0);
        let mut position = positions.start;
        while position < positions.end {
            let page_end = position + WIDTH - (position - self.first) % WIDTH;
            let end = page_end.min(positions.end);
            rows[parts] = (self.at(position), (end - position) / self.matrix.of_row());
            (position, parts) = (end, parts + 1);
        }
        (rows, parts)
    }

    /// The words of a position's row with bits of the mask alone.
    ///
    /// # Safety
    /// There is such a row, and columns are words.
    pub(super) unsafe fn masked(&self, position: usize, mask: u32) -> [u32; WIDTH] {
        let (mut row, from) = ([0; WIDTH], self.at(position).cast::<u32>());
        for (at, word) in row.iter_mut().enumerate().take(self.matrix.vectors * LANES) {
            // SAFETY: the caller's promise.
            *word = mask & unsafe { from.add(at).read_unaligned() };
        }
        row
    }
}

impl Matrix {
    /// Elements of keys, or positions of values, that are a row together.
    pub(super) fn of_row(&self) -> usize {
        if self.kind == PAIRS { 2 } else { 1 }
    }

    /// From a later row on.
    ///
    /// # Safety
    /// There are so many rows.
    pub(super) unsafe fn skip(self, rows: usize) -> Self {
        // SAFETY: the caller's promise.
        Self { from: unsafe { self.from.add(rows * self.stride) }, ..self }
    }
}
