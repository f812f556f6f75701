//! What do latent vectors need beside attention's products? Values made of keys, and scores that choose positions.

use std::ops::Range;

use super::Kernels;
use super::attention::{PAGES, PAIRS, PARTITION, Pack, WIDTH};
use super::partition::{Partition, PartitionScratch};
use super::simd::LANES;
use super::stored::{F32, Matrix, Stored};

impl Kernels {
    /// Some elements of a page's latent vectors, as values lie: in f32, of pairs in pairs.
    ///
    /// # Safety
    /// The page has these elements, of which there are at most [`DEPTH`].
    pub(super) unsafe fn turn(
        &self,
        page: &Stored<'_>,
        elements: Range<usize>,
        scratch: &mut PartitionScratch,
    ) -> Matrix {
        let PartitionScratch { panel, turned, .. } = scratch;
        let n = elements.len();
        // Words from an element's positions to the next one's.
        let apart = page.rows(WIDTH);
        for strip in page.strips() {
            // SAFETY: the caller's promise; the panel has room for so many rows of WIDTH elements, and the machine has the
            // instructions.
            unsafe {
                let Matrix { from, stride, vectors, kind, .. } =
                    page.keys(strip).skip(page.rows(elements.start));
                let pack = if kind == PAIRS { self.attention.split_pairs } else { self.attention.pack[kind] };
                pack(&Pack { from, stride, rows: n, vectors, to: panel.as_mut_ptr() });
            }
            for (at, positions) in panel.chunks_exact_mut(WIDTH).take(n).enumerate() {
                if let Some(scales) = page.scales_of(elements.start + at, strip) {
                    positions.iter_mut().zip(scales).for_each(|(x, scale)| *x *= scale);
                }
            }
            let to = &mut turned[strip * WIDTH..(strip + page.rows(page.strip())) * WIDTH];
            // SAFETY: the machine has the instructions.
            unsafe { (self.attention.turn)(panel, [n, apart], to) };
        }
        Matrix {
            from: turned.as_ptr().cast(),
            stride: 4 * WIDTH,
            vectors: n.div_ceil(LANES),
            kind: if page.pairs() { PAIRS } else { F32 },
            scales: std::ptr::null(),
            apart: false,
        }
    }

    /// For each row and every position of the partition that it sees, the sum over heads of their weights times products of
    /// query and key, where these are above 0; `each` gets a row's.
    pub(crate) fn relevance(
        &self,
        part: &Partition<'_>,
        weights: &[f32],
        scratch: &mut PartitionScratch,
        mut each: impl FnMut(usize, &[f32; PARTITION]),
    ) {
        let (dim, pairs) = (part.head_dim, part.rows * part.heads);
        if pairs == 0 || dim == 0 {
            return;
        }
        let seen = part.seen_by(0..pairs);
        let pages = seen.start / WIDTH..seen.end.div_ceil(WIDTH);
        assert!(part.keys[pages.clone()].iter().all(|keys| keys.has(dim)), "a page's keys");
        assert!(part.q.len() >= part.query(pairs - 1) + part.q_len, "all queries");
        scratch.prepare(self, part, seen, 0);
        for page in pages {
            let keys = &part.keys[page];
            for strip in keys.strips() {
                // SAFETY: lengths have been checked, and there is room for all pairs.
                unsafe { self.score(part, scratch, page * WIDTH + strip, keys.keys(strip), [&[]; PAGES]) };
            }
        }
        for row in 0..part.rows {
            let (seen, mut sums) = (part.seen(row), [0.0; PARTITION]);
            let own = row * part.heads..(row + 1) * part.heads;
            let scores = &scratch.scores.as_chunks::<PARTITION>().0[own.clone()];
            for (scores, weight) in scores.iter().zip(&weights[own]) {
                for (sum, score) in sums[seen.clone()].iter_mut().zip(&scores[seen.clone()]) {
                    *sum += weight * if *score > 0.0 { *score } else { 0.0 };
                }
            }
            each(row, &sums);
        }
    }
}
