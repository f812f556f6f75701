//! Do rows attend as the formula says, in the same bits however they are computed?

use super::*;
use crate::arch::Window;
use crate::engine::backend::{PageSpec, Spans};
use crate::engine::conformance::{
    Numbers, attention_spec, both_kept, latent_spec, off_by_weights, oracle, queries, wide, widths,
};
use crate::engine::{KvType, KvTypes};

fn spec(n_heads: usize, n_kv_heads: usize, head_dim: usize, window: Option<usize>) -> AttentionSpec {
    attention_spec([n_heads, n_kv_heads], head_dim, window, None)
}

/// A sequence, and how it is attended to.
struct Case {
    spec: AttentionSpec,
    kv: KvTypes,
    sinks: Option<Vec<f32>>,
    len: usize,
    /// The longest chunk.
    most: usize,
    qkv: [Vec<f32>; 3],
}

impl Case {
    fn new(spec: AttentionSpec, kv: impl Into<KvTypes>, len: usize, most: usize) -> Self {
        let kv = kv.into();
        let mut numbers = Numbers::new(spec.head_dim as u64 * 31 + spec.n_heads as u64);
        let qkv = widths(&spec).map(|width| numbers.floats(len * width));
        Self { spec, kv, sinks: None, len, most, qkv }
    }

    /// Pages for the whole sequence; a block's is some way from its neighbours'.
    fn pages(&self) -> Pages {
        let mut pages = Pages::new(&PageSpec::new(&self.spec, self.kv)).unwrap();
        self.table().for_each(|page| pages.add(page).unwrap());
        pages
    }

    fn table(&self) -> impl Iterator<Item = u32> {
        (0..self.len.div_ceil(PAGE) as u32).map(|block| block ^ 5)
    }

    /// Attends to the sequence from `start` on in chunks.
    fn run_from(
        &self,
        (kernels, pool): (&Kernels, &Pool),
        pages: &mut Pages,
        start: usize,
        chunks: impl IntoIterator<Item = usize>,
    ) -> Vec<f32> {
        let mut scratch = Scratch::default();
        let out_width = self.out_width();
        let mut out = vec![f32::NAN; self.len * out_width];
        let mut at = start;
        for rows in chunks {
            let rows = rows.min(self.len - at);
            assert!(rows <= self.most);
            let mut spans = Spans::default();
            spans.push(rows, at, 0, self.table());
            let op =
                Attend { attention: &self.spec, sinks: self.sinks.as_ref(), spans: &spans, chosen: None };
            let of = |i: usize| &self.qkv[i][at * widths(&self.spec)[i]..];
            let out = &mut out[at * out_width..];
            super::attend(kernels, pool, &mut scratch, &op, (of(0), Some([of(1), of(2)])), pages, out)
                .unwrap();
            at += rows;
        }
        out
    }

    /// Elements of a row of results.
    fn out_width(&self) -> usize {
        self.spec.n_heads * self.spec.value_dim()
    }

    fn run(&self, kernels: &Kernels, pool: &Pool, chunk: usize) -> Vec<f32> {
        self.run_from((kernels, pool), &mut self.pages(), 0, vec![chunk; self.len.div_ceil(chunk)])
    }

    /// How far results may be off. Scores of up to 10 in f32 are off by some 1e-6, and so are weights, relatively; values are
    /// at most 1.
    fn off(&self) -> f64 {
        1e-5 + off_by_weights(&self.spec, self.kv)
    }

    /// Compares with the formula.
    fn check(&self, found: &[f32], tolerance: f64) {
        let [q, k, v] = &self.qkv;
        let q = wide(&queries(PageSpec::new(&self.spec, self.kv).kv.keys, q.clone()));
        let sinks = self.sinks.as_deref().map(wide);
        let [k, v] = both_kept(&self.spec, self.kv, [k, v]);
        let expected = oracle::attention(&self.spec, sinks.as_deref(), [&q, &k, &v]);
        assert_eq!(found.len(), expected.len());
        for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
            let off = (f64::from(*found) - expected).abs();
            let row = at / self.spec.value_dim();
            assert!(off <= tolerance, "{found} for {expected} at {row} of {:?} in {}", self.spec, self.kv);
        }
    }
}

fn same(a: &[f32], b: &[f32], what: &str) {
    let differ = a.iter().zip(b).position(|(a, b)| a.to_bits() != b.to_bits());
    assert_eq!((a.len(), None), (b.len(), differ), "{what}");
}

fn best() -> &'static Kernels {
    Kernels::detect()
}

/// Shapes with every kind of tile, group of values and remainder, at positions of three partitions.
fn shapes() -> impl Iterator<Item = Case> {
    let shapes = [
        spec(1, 1, 8, None),
        spec(4, 1, 256, None),
        spec(8, 2, 24, None),
        spec(3, 3, 20, Some(5)),
        spec(4, 2, 80, Some(1)),
        spec(7, 1, 64, Some(256)),
        spec(2, 1, 128, Some(100)),
        spec(40, 1, 16, None),
        spec(5, 1, 144, Some(257)),
        latent_spec(4, 64, 16),
        latent_spec(40, 32, 8),
        AttentionSpec { window: Some(Window::Sliding(100)), ..latent_spec(7, 96, 32) },
        AttentionSpec { window: Some(Window::Chunk(3)), ..spec(1, 1, 40, None) },
        AttentionSpec { window: Some(Window::Chunk(100)), ..spec(5, 1, 72, None) },
    ];
    // Of odd heads, the last element is a pair with nothing.
    let odd = [spec(2, 1, 21, Some(70)), spec(6, 2, 77, None)];
    let odd = odd.into_iter().map(|spec| Case::new(spec, KvType::BF16, 530, 150));
    odd.chain(shapes.into_iter().flat_map(|spec| {
        let capped = AttentionSpec { softcap: Some(1.5), ..spec.clone() };
        let apart = |keys, values| KvTypes { keys, values };
        [
            Case::new(spec.clone(), KvType::F16, 530, 150),
            Case::new(spec.clone(), KvType::BF16, 530, 150),
            Case::new(capped.clone(), KvType::F32, 530, 150),
            Case::new(spec.clone(), KvType::Q8_0, 530, 150),
            Case::new(spec.clone(), apart(KvType::Q8_0, KvType::Q4_0), 530, 150),
            Case::new(capped.clone(), apart(KvType::Q4_0, KvType::F16), 530, 150),
            Case::new(spec.clone(), apart(KvType::BF16, KvType::Q4_0), 530, 150),
            Case::new(spec, apart(KvType::Q8_0, KvType::BF16), 530, 150),
            Case::new(capped, apart(KvType::F32, KvType::BF16), 530, 150),
        ]
    }))
}

#[test]
fn rows_attend_as_the_formula_says() {
    for case in shapes() {
        case.check(&case.run(best(), &Pool::new(1).unwrap(), 150), case.off());
    }
}

#[test]
fn bits_do_not_depend_on_chunks_or_threads() {
    for case in shapes() {
        let first = case.run(best(), &Pool::new(1).unwrap(), 150);
        for chunk in [1, 2, 3, 7, 31, 64, 101] {
            same(
                &first,
                &case.run(best(), &Pool::new(1).unwrap(), chunk),
                &format!("{:?} in {}, {chunk} rows", case.spec, case.kv),
            );
        }
        for threads in [2, 3, 5] {
            for chunk in [1, 150] {
                let found = case.run(best(), &Pool::new(threads).unwrap(), chunk);
                same(&first, &found, &format!("{:?} in {}, {chunk} rows by {threads}", case.spec, case.kv));
            }
        }
    }
}

#[test]
fn heads_that_share_latent_vectors_are_shared_out() {
    let of = |n_heads, tasks, threads| group(&latent_spec(n_heads, 64, 16), tasks, threads);
    assert_eq!([of(20, 1, 1), of(20, 1, 2), of(20, 1, 16), of(20, 8, 16)], [20, 10, 4, 10]);
    assert_eq!([of(128, 1, 1), of(128, 1, 16), of(128, 64, 16), of(128, usize::MAX, 16)], [32, 8, 32, 32]);
    // Few divisors.
    assert_eq!([of(7, 1, 4), of(22, 1, 16), of(37, 1, 2), of(3, 1, 4), of(1, 1, 4)], [7, 11, 1, 3, 1]);
    assert_eq!(group(&spec(8, 2, 64, None), 1, 16), 4);
}

#[test]
fn bits_do_not_depend_on_instructions() {
    for case in shapes() {
        let rows = |kernels: &Kernels, chunk: usize| {
            // Portable code is slow: the end of the sequence, where all of a row's cases are.
            let (mut pages, pool) = (case.pages(), Pool::new(1).unwrap());
            let [_, k, v] = widths(&case.spec);
            let past = case.len - 40;
            for at in (0..past).step_by(10) {
                let of = |width: usize| at * width..(at + 10) * width;
                let table: Vec<_> = case.table().skip(at / PAGE).collect();
                let kv = [&case.qkv[1][of(k)], &case.qkv[2][of(v)]];
                pages.append((kernels, &pool), at, &table, kv, None).unwrap();
            }
            let out = case.run_from((kernels, &pool), &mut pages, past, vec![chunk; 40 / chunk]);
            out[past * case.out_width()..].to_vec()
        };
        let expected = rows(best(), 40);
        for kernels in Kernels::all() {
            for chunk in [1, 40] {
                let what = format!("{:?} in {} with {}, {chunk} rows", case.spec, case.kv, kernels.name);
                same(&expected, &rows(kernels, chunk), &what);
            }
        }
    }
}

/// Products and sums in bfloat16 that would come out small enough for instructions to differ about them.
#[test]
fn small_numbers_have_the_same_bits_everywhere() {
    for exponent in [-50, -57, -63, -75, -126, -140] {
        let mut case = Case::new(spec(2, 1, 24, None), KvType::BF16, 40, 40);
        for (i, x) in case.qkv.iter_mut().flatten().enumerate() {
            // Alternating ones cancel.
            let sign = if i % 3 == 0 { -1.0 } else { 1.0 };
            *x = sign * (1.0 + x.abs()) * 2f32.powi(exponent + (i % 7) as i32);
        }
        let expected = case.run(best(), &Pool::new(1).unwrap(), 40);
        for kernels in Kernels::all() {
            for chunk in [1, 40] {
                let found = case.run(kernels, &Pool::new(1).unwrap(), chunk);
                same(&expected, &found, &format!("2^{exponent} with {}, {chunk} rows", kernels.name));
            }
        }
        // What is kept is at least 2^-56, and there is nothing of what is below.
        assert_eq!(expected.iter().all(|x| *x == 0.0), exponent < -60, "2^{exponent}");
    }
}

#[test]
fn windows_end_and_begin_at_borders() {
    for window in [1, 2, 15, 16, 17, 63, 64, 65, 255, 256, 257, 300] {
        for kv in [KvType::F16, KvType::BF16] {
            let case = Case::new(spec(2, 1, 16, Some(window)), kv, 1100, 70);
            let found = case.run(best(), &Pool::new(1).unwrap(), 70);
            case.check(&found, case.off());
            same(&found, &case.run(best(), &Pool::new(1).unwrap(), 1), "row by row");
            same(&found, &case.run(best(), &Pool::new(2).unwrap(), 48), "in chunks of 48");
        }
    }
}

#[test]
fn what_a_row_does_not_see_does_not_enter() {
    // How pairs are taken apart is each instruction set's own way.
    let pairs = Kernels::all().map(|kernels| (kernels, KvType::BF16));
    let others = KvType::ALL.iter().filter(|kv| **kv != KvType::BF16).map(|kv| (best(), *kv));
    for (kernels, kv) in pairs.chain(others) {
        for poison in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for chunk in [1, 5, 64] {
                let mut case = Case::new(spec(4, 2, 40, Some(100)), kv, 700, 64);
                let pool = Pool::new(1).unwrap();
                let clean = case.run(kernels, &pool, chunk);
                // Stale slots.
                let mut pages = case.pages();
                let stale = vec![poison; 2 * 40 * 700];
                let table: Vec<_> = case.table().collect();
                pages.append((kernels, &pool), 0, &table, [&stale, &stale], None).unwrap();
                let chunks = || vec![chunk; case.len.div_ceil(chunk)];
                let found = case.run_from((kernels, &pool), &mut pages, 0, chunks());
                same(&clean, &found, "with stale slots");
                // A position's key and value, which later rows of the same chunk do see.
                let position = 300;
                for x in &mut case.qkv[1..] {
                    x[position * 80..][..80].fill(poison);
                }
                let found = case.run(kernels, &Pool::new(1).unwrap(), chunk);
                let width = 4 * 40;
                same(&clean[..position * width], &found[..position * width], "rows before");
                let behind = (position + 100) * width;
                same(&clean[behind..], &found[behind..], "rows behind the window");
                assert!(found[position * width..behind].iter().all(|x| !x.is_finite()));
            }
        }
    }
}

#[test]
fn sinks_join_the_sum_without_a_value() {
    for (heads, sinks) in [(4, [-3.0, 0.0, 2.5, 40.0]), (4, [1e4, -1e4, f32::NEG_INFINITY, 9.0])] {
        let mut case = Case::new(spec(heads, 2, 32, None), KvType::F16, 300, 128);
        let without = case.run(best(), &Pool::new(1).unwrap(), 128);
        case.sinks = Some(sinks.to_vec());
        let found = case.run(best(), &Pool::new(1).unwrap(), 128);
        case.check(&found, 1e-5);
        same(&found, &case.run(best(), &Pool::new(2).unwrap(), 1), "row by row");
        assert!(without.iter().zip(&found).any(|(a, b)| a != b));
    }
}

#[test]
fn extreme_scores_choose_their_positions() {
    for (scale, softcap) in [(1e4, None), (-1e4, None), (1e4, Some(50.0))] {
        let spec = AttentionSpec { scale, softcap, ..spec(3, 1, 24, None) };
        let mut case = Case::new(spec, KvType::F32, 600, 128);
        // Products that f32 represents exactly, and differences of more than 1 in the scores.
        for x in &mut case.qkv[..2] {
            x.iter_mut().for_each(|x| *x = (*x * 8.0).round() / 8.0);
        }
        let found = case.run(best(), &Pool::new(1).unwrap(), 128);
        case.check(&found, if softcap.is_some() { 1e-4 } else { 1e-5 });
        same(&found, &case.run(best(), &Pool::new(1).unwrap(), 1), "row by row");
    }
}

#[test]
fn sequences_attend_together_as_alone() {
    // Rows of a step, long and short ones mixed, behind so many positions of their own.
    let steps: [&[[usize; 2]]; 4] =
        [&[[1, 0]], &[[1, 300], [1, 0], [1, 64]], &[[40, 260], [1, 500], [3, 61], [90, 0]], &[[1, 10]; 12]];
    for case in shapes() {
        let kernels = best();
        let alone = case.run(kernels, &Pool::new(1).unwrap(), 50);
        for spans_of in steps {
            for threads in [1, 3] {
                let pool = Pool::new(threads).unwrap();
                let mut pages = Pages::new(&PageSpec::new(&case.spec, case.kv)).unwrap();
                let (mut spans, mut number) = (Spans::default(), 0);
                let ([q, k, v], out) = (widths(&case.spec), case.out_width());
                let mut qkv: [Vec<f32>; 3] = Default::default();
                let mut expected = Vec::new();
                for &[rows, start] in spans_of {
                    let table: Vec<u32> = (0..(start + rows).div_ceil(PAGE))
                        .map(|_| {
                            number += 1;
                            pages.add(number).unwrap();
                            number
                        })
                        .collect();
                    let kv = [&case.qkv[1][..start * k], &case.qkv[2][..start * v]];
                    pages.append((kernels, &pool), 0, &table, kv, None).unwrap();
                    let first = crate::engine::backend::first_block(case.spec.window, start);
                    spans.push(rows, start, first, table[first..].iter().copied());
                    for (qkv, (of, width)) in qkv.iter_mut().zip(case.qkv.iter().zip([q, k, v])) {
                        qkv.extend(&of[start * width..(start + rows) * width]);
                    }
                    expected.extend(&alone[start * out..(start + rows) * out]);
                }
                let op = Attend { attention: &case.spec, sinks: None, spans: &spans, chosen: None };
                let mut out = vec![f32::NAN; expected.len()];
                let [q, k, v] = qkv.each_ref().map(Vec::as_slice);
                let qkv = (q, Some([k, v]));
                super::attend(kernels, &pool, &mut Scratch::default(), &op, qkv, &mut pages, &mut out)
                    .unwrap();
                same(&expected, &out, &format!("{:?} in {}, {spans_of:?}", case.spec, case.kv));
            }
        }
    }
}

#[test]
fn pages_too_large_are_errors() {
    let spec = PageSpec {
        n_kv_heads: usize::MAX / 4096,
        head_dim: 128,
        latent: None,
        index: None,
        kv: KvType::F16.into(),
    };
    assert!(Pages::new(&spec).is_err());
    let spec = PageSpec { n_kv_heads: 1 << 30, ..spec };
    assert!(Pages::new(&spec).unwrap().add(0).is_err());
}

#[test]
fn rows_without_pages_are_errors() {
    let case = Case::new(spec(2, 1, 16, None), KvType::F16, 70, 70);
    let (mut pages, pool) = (case.pages(), Pool::new(1).unwrap());
    for (position, table) in [(0, &[4][..]), (64, &[]), (64, &[77])] {
        let rows = &case.qkv[1][..70 * 16];
        assert!(pages.append((best(), &pool), position, table, [rows, rows], None).is_err());
    }
    assert!(pages.copy(4, 4).is_err() && pages.copy(4, 77).is_err());
}

#[test]
fn cells_are_taken_once_and_do_not_overlap() {
    let (mut data, mut taken) = (vec![0.0; 5 * 7], Vec::new());
    let cells = Cells::new(&mut data, 7, 3, &mut taken);
    for rows in [0..2, 2..4, 4..5] {
        for column in 0..3 {
            let mut cell = cells.take(rows.clone(), column).unwrap();
            for i in 0..rows.len() {
                let x = cell.row(i);
                assert_eq!(x.len(), if column == 2 { 1 } else { 3 });
                x.iter_mut().for_each(|x| *x += 1.0);
            }
            assert!(cells.take(rows.clone(), column).is_none());
        }
    }
    assert!(cells.take(0..6, 0).is_none() && cells.take(0..1, 3).is_none());
    assert!(cells.take(usize::MAX - 1..usize::MAX, 1).is_none());
    assert_eq!(data, vec![1.0; 5 * 7]);
}
