//! Where do products read keys and values? In strips of pages, whose elements have bytes, or halves of bytes, of their own.

use std::ops::Range;

use half::f16;

use super::attention::WIDTH;
use super::simd::{BLOCK, LANES};
use crate::engine::KvType;

/// Elements behind keys or values that may be read, though not used.
pub(crate) const BEHIND: usize = LANES;

/// A key/value head's keys or values in a page, and [`BEHIND`] elements; empty for a page that no row sees.
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
        let elements = head_dim * WIDTH * self.kind.bits() / 8;
        let scales = self.kind.scales(head_dim) * WIDTH * size_of::<u16>();
        self.bytes.len() >= elements + BEHIND * self.size() && self.scales.len() >= scales
    }

    /// Bytes of an element, or of two that share one.
    fn size(&self) -> usize {
        self.kind.bits().div_ceil(8)
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
        self.kind as usize + usize::from(strip > 0)
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

    /// A strip of keys: a row for each element.
    pub(super) fn keys(&self, strip: usize) -> Matrix {
        let (from, stride) = (self.bytes.as_ptr(), self.strip() * self.size());
        let (vectors, kind) = (self.strip() / LANES, self.kind(strip));
        Matrix { from, stride, vectors, kind, scales: self.scales(0, strip) }
    }

    /// Columns of a strip of values that share scales, from one of them on: a row for each position.
    pub(super) fn values(&self, strip: usize, columns: Range<usize>, head_dim: usize) -> Matrix {
        let (size, group) = (self.size(), columns.start / WIDTH * WIDTH);
        let at = group * self.strip() + columns.start - group;
        let (from, stride) = (self.bytes[at * size..].as_ptr(), WIDTH.min(head_dim - group) * size);
        let (vectors, kind) = (columns.len().div_ceil(LANES), self.kind(strip));
        Matrix { from, stride, vectors, kind, scales: self.scales(columns.start / BLOCK, strip) }
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
}

impl Matrix {
    /// From a later row on.
    ///
    /// # Safety
    /// There are so many rows.
    pub(super) unsafe fn skip(self, rows: usize) -> Self {
        // SAFETY: the caller's promise.
        Self { from: unsafe { self.from.add(rows * self.stride) }, ..self }
    }
}
