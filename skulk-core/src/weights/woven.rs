//! How do products like weights to lie in memory? Woven: of each stored block of sixteen rows, what kernels read together is
//! side by side.
//!
//! A tile is sixteen rows. Its bytes are where they were, and as many: stored block at byte `o` of each row is from `16 · o` of
//! the tile on. Within, the two bytes of a half-precision scale at byte `h` of a block are those of all rows from `16 · h` on;
//! all others go by words of four bytes.

use super::dtype::DType;

/// Rows of a tile.
pub(crate) const TILE: usize = 16;
/// Bytes of the largest stored block that is woven.
pub(super) const LARGEST: usize = 210;
pub(super) const WORD: usize = 4;
const HALF: usize = 2;

/// How the blocks of a type are woven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Weave {
    block: usize,
    /// Where a half-precision scale stands, if it is not a word together with another.
    half: Option<usize>,
    row_bytes: usize,
}

impl Weave {
    /// That of a type, in rows of so many bytes; `None`: it has none.
    pub(crate) fn of(dtype: DType, row_bytes: usize) -> Option<Self> {
        use DType as D;
        let block = dtype.block_bytes();
        let half = match dtype {
            D::Q4_0 | D::Q5_0 | D::Q8_0 | D::IQ4_NL => Some(0),
            D::Q6_K | D::Q6_K_Linear | D::TQ2_0 => Some(block - HALF),
            D::Q4_1 | D::Q5_1 | D::Q2_K | D::Q4_K | D::Q5_K | D::IQ4_XS | D::FP4 | D::NVFP4 => None,
            dtype if dtype.is_affine() => None,
            _ => return None,
        };
        (row_bytes > 0 && row_bytes.is_multiple_of(block)).then_some(Self { block, half, row_bytes })
    }

    /// That of scales or biases beside such elements, in rows of so many bytes; `None` where these are no whole words.
    pub(crate) fn beside(row_bytes: usize) -> Option<Self> {
        let whole = row_bytes > 0 && row_bytes.is_multiple_of(WORD);
        whole.then_some(Self { block: WORD, half: None, row_bytes })
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

    /// One stored block of a tile's row: that at byte `at` of each row.
    pub(super) fn copy_block(&self, tile: &[u8], row: usize, at: usize, to: &mut [u8]) {
        let woven = tile.get(TILE * at..).unwrap_or_default();
        let scale = if self.half == Some(0) { HALF } else { 0 };
        let (Some((of_scale, woven)), Some((to_scale, to))) =
            (woven.split_at_checked(TILE * scale), to.split_at_mut_checked(scale))
        else {
            return;
        };
        one_row::<HALF>(of_scale, row, to_scale);
        let words = to.len() / WORD * WORD;
        let (to, last) = to.split_at_mut(words);
        one_row::<WORD>(woven, row, to);
        one_row::<HALF>(woven.get(TILE * words..).unwrap_or_default(), row, last);
    }

    /// Bytes of the blocks that are woven.
    pub(super) fn block(&self) -> usize {
        self.block
    }

    fn weave_tile(&self, from: &[u8], to: &mut [u8]) {
        let block = self.block;
        for (at, to) in to.chunks_exact_mut(TILE * block).enumerate() {
            let rows: [&[u8]; TILE] =
                std::array::from_fn(|row| &from[row * self.row_bytes + at * block..][..block]);
            let mut at = 0;
            while at < block {
                if self.half == Some(at) {
                    side_by_side::<HALF>(&rows, at, &mut to[TILE * at..]);
                    at += HALF;
                } else {
                    side_by_side::<WORD>(&rows, at, &mut to[TILE * at..]);
                    at += WORD;
                }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte is where the module says: numbers of all rows side by side.
    #[test]
    fn numbers_of_all_rows_lie_side_by_side() {
        for (dtype, block, half) in [
            (DType::Q4_0, 18, Some(0)),
            (DType::Q5_0, 22, Some(0)),
            (DType::Q8_0, 34, Some(0)),
            (DType::IQ4_NL, 18, Some(0)),
            (DType::Q4_1, 20, None),
            (DType::Q4_K, 144, None),
            (DType::IQ4_XS, 136, None),
            (DType::Q6_K, 210, Some(208)),
            (DType::TQ2_0, 66, Some(64)),
            (DType::Affine3, 12, None),
            (DType::FP4, 16, None),
        ] {
            let row_bytes = 3 * block;
            let weave = Weave::of(dtype, row_bytes).unwrap();
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
                        assert_eq!(own[..block], *plain, "{dtype} {row} {at}");
                    }
                }
            }
            for (at, byte) in plain.iter().enumerate() {
                let (row, of_row) = (at / row_bytes, at % row_bytes);
                let (first, of_block) = (of_row / block * block, of_row % block);
                let (len, start) = match half {
                    Some(half) if (half..half + 2).contains(&of_block) => (2, half),
                    Some(0) => (4, 2 + (of_block - 2) / 4 * 4),
                    _ => (4, of_block / 4 * 4),
                };
                let tile = row / TILE * weave.tile_bytes();
                let place = TILE * (first + start) + len * (row % TILE) + of_block - start;
                assert_eq!(woven[tile + place], *byte, "{dtype} {at}");
            }
        }
        assert_eq!(Weave::of(DType::Q4_0, 17), None);
        for dtype in [DType::F16, DType::FP8, DType::Q3_K, DType::MXFP4, DType::IQ2_XXS] {
            assert_eq!(Weave::of(dtype, 32 * dtype.block_bytes()), None);
        }
    }
}
