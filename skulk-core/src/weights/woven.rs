//! How do products like weights to lie in memory? Woven: of each stored block of sixteen rows, what kernels read together is
//! side by side.
//!
//! A tile is sixteen rows. Its bytes are where they were, and as many: stored block at byte `o` of each row is from `16 · o` of
//! the tile on. Within, bytes go by words of four: that at byte `w` of a block lies from `16 · w` on, of all rows side by side.
//! So do one or two bytes before or behind the words, as a half-precision scale is.

use super::dtype::DType;

/// Rows of a tile.
pub(crate) const TILE: usize = 16;
/// Bytes of the largest stored block that is woven.
pub(super) const LARGEST: usize = 210;
pub(super) const WORD: usize = 4;

/// How the blocks of a type are woven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Weave {
    block: usize,
    /// Bytes before and behind a block's words: none, one or two.
    ends: [usize; 2],
    row_bytes: usize,
}

impl Weave {
    /// That of a type, in rows of so many bytes; `None`: it has none.
    pub(crate) fn of(dtype: DType, row_bytes: usize) -> Option<Self> {
        use DType as D;
        let block = dtype.block_bytes();
        let ends = match dtype {
            D::Q4_0 | D::Q5_0 | D::Q8_0 | D::IQ4_NL => [2, 0],
            D::MXFP4 => [1, 0],
            D::Q3_K | D::Q6_K | D::Q6_K_Linear | D::TQ2_0 => [0, 2],
            D::Q4_1 | D::Q5_1 | D::Q2_K | D::Q4_K | D::Q5_K | D::IQ4_XS | D::FP4 | D::NVFP4 => [0, 0],
            dtype if dtype.is_affine() => [0, 0],
            _ => return None,
        };
        (row_bytes > 0 && row_bytes.is_multiple_of(block)).then_some(Self { block, ends, row_bytes })
    }

    /// That of scales or biases beside such elements, in rows of so many bytes, each a block; `None` where they are odd.
    pub(crate) fn beside(row_bytes: usize) -> Option<Self> {
        let even = row_bytes > 0 && row_bytes.is_multiple_of(2);
        even.then_some(Self { block: row_bytes, ends: [0, row_bytes % WORD], row_bytes })
    }

    /// Bytes of a tile.
    pub(super) fn tile_bytes(&self) -> usize {
        TILE * self.row_bytes
    }

    /// Weaves whole tiles.
    pub(crate) fn weave(&self, from: &[u8], to: &mut [u8]) {
        let tiles = from.chunks_exact(self.tile_bytes());
        tiles.zip(to.chunks_exact_mut(self.tile_bytes())).for_each(|(from, to)| self.weave_tile(from, to));
    }

    /// Copies a row's stored block, which begins at byte `at` of each row. Where a block begins with a word, `at` may be that
    /// of any word.
    pub(super) fn copy_block(&self, tile: &[u8], row: usize, at: usize, to: &mut [u8]) {
        let woven = tile.get(TILE * at..).unwrap_or_default();
        let from = |at: usize| woven.get(TILE * at..).unwrap_or_default();
        let first = self.ends[0].min(to.len());
        let (before, to) = to.split_at_mut(first);
        let (words, behind) = to.split_at_mut(to.len() / WORD * WORD);
        end_of_row(from(0), row, before);
        one_row::<WORD>(from(first), row, words);
        end_of_row(from(first + words.len()), row, behind);
    }

    /// Bytes of the blocks that are woven.
    pub(super) fn block(&self) -> usize {
        self.block
    }

    fn weave_tile(&self, from: &[u8], to: &mut [u8]) {
        let Self { block, ends: [before, behind], row_bytes } = *self;
        for (at, to) in to.chunks_exact_mut(TILE * block).enumerate() {
            let rows: [&[u8]; TILE] =
                std::array::from_fn(|row| &from[row * row_bytes + at * block..][..block]);
            for (at, n) in [(0, before), (block - behind, behind)] {
                match n {
                    0 => {}
                    1 => side_by_side::<1>(&rows, at, &mut to[TILE * at..]),
                    _ => side_by_side::<2>(&rows, at, &mut to[TILE * at..]),
                }
            }
            for at in (before..block - behind).step_by(WORD) {
                side_by_side::<WORD>(&rows, at, &mut to[TILE * at..]);
            }
        }
    }
}

/// The `N` bytes at a place of all rows.
fn side_by_side<const N: usize>(rows: &[&[u8]; TILE], at: usize, to: &mut [u8]) {
    let to = to.as_chunks_mut::<N>().0;
    for row in 0..TILE.min(to.len()) {
        if let Some(bytes) = rows[row].get(at..).and_then(<[u8]>::first_chunk::<N>) {
            to[row] = *bytes;
        }
    }
}

/// A row's numbers of `N` bytes among those of all rows.
fn one_row<const N: usize>(woven: &[u8], row: usize, to: &mut [u8]) {
    for (all, to) in woven.chunks_exact(TILE * N).zip(to.as_chunks_mut::<N>().0) {
        if let Some(bytes) = all.get(N * row..).and_then(<[u8]>::first_chunk::<N>) {
            *to = *bytes;
        }
    }
}

/// The same of the bytes before or behind its words.
fn end_of_row(woven: &[u8], row: usize, to: &mut [u8]) {
    match to.len() {
        0 => {}
        1 => one_row::<1>(woven, row, to),
        _ => one_row::<2>(woven, row, to),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte is where the module says: numbers of all rows side by side.
    #[test]
    fn numbers_of_all_rows_lie_side_by_side() {
        let of = |dtype: DType, block: usize| (Weave::of(dtype, 3 * block), block);
        for ((weave, block), [before, behind]) in [
            (of(DType::Q4_0, 18), [2, 0]),
            (of(DType::Q5_0, 22), [2, 0]),
            (of(DType::Q8_0, 34), [2, 0]),
            (of(DType::IQ4_NL, 18), [2, 0]),
            (of(DType::MXFP4, 17), [1, 0]),
            (of(DType::Q4_1, 20), [0, 0]),
            (of(DType::Q4_K, 144), [0, 0]),
            (of(DType::IQ4_XS, 136), [0, 0]),
            (of(DType::Q3_K, 110), [0, 2]),
            (of(DType::Q6_K, 210), [0, 2]),
            (of(DType::TQ2_0, 66), [0, 2]),
            (of(DType::Affine3, 12), [0, 0]),
            (of(DType::FP4, 16), [0, 0]),
            ((Weave::beside(64), 64), [0, 0]),
            ((Weave::beside(90), 90), [0, 2]),
            ((Weave::beside(2), 2), [0, 2]),
        ] {
            let weave = weave.unwrap();
            let row_bytes = weave.row_bytes;
            let plain: Vec<u8> = (0..2 * weave.tile_bytes()).map(|at| (at * 31 % 251) as u8).collect();
            let mut woven = plain.clone();
            weave.weave(&plain, &mut woven);
            for (tile, plain) in
                woven.chunks_exact(weave.tile_bytes()).zip(plain.chunks_exact(weave.tile_bytes()))
            {
                for (row, plain) in plain.chunks_exact(row_bytes).enumerate() {
                    for (at, plain) in plain.chunks_exact(block).enumerate() {
                        let mut own = [0; LARGEST];
                        weave.copy_block(tile, row, at * block, &mut own[..block]);
                        assert_eq!(own[..block], *plain, "{weave:?} {row} {at}");
                    }
                }
            }
            for (at, byte) in plain.iter().enumerate() {
                let (row, of_row) = (at / row_bytes, at % row_bytes);
                let (first, of_block) = (of_row / block * block, of_row % block);
                let (len, start) = match of_block {
                    at if at < before => (before, 0),
                    at if at >= block - behind => (behind, block - behind),
                    at => (4, before + (at - before) / 4 * 4),
                };
                let tile = row / TILE * weave.tile_bytes();
                let place = TILE * (first + start) + len * (row % TILE) + of_block - start;
                assert_eq!(woven[tile + place], *byte, "{weave:?} {at}");
            }
        }
        assert_eq!(Weave::of(DType::Q4_0, 17), None);
        assert_eq!([0, 1, 33].map(Weave::beside), [None; 3]);
        for dtype in [DType::F16, DType::FP8, DType::Q8_K, DType::TQ1_0, DType::IQ2_XXS] {
            assert_eq!(Weave::of(dtype, 32 * dtype.block_bytes()), None);
        }
    }
}
