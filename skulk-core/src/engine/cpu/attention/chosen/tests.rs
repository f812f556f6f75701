//! Do rows see the positions with the largest scores, in the same bits however they are computed?

use super::*;
use crate::arch::{AttentionSpec, IndexSpec, LatentSpec, RopeLayout};
use crate::engine::backend::{PageSpec, Spans};
use crate::engine::conformance::{Numbers, latent_spec, oracle, wide};
use crate::engine::cpu::Buffer;
use crate::engine::cpu::lines::Lines;

const LEN: usize = 620;
const MOST: usize = 300;

/// Of a sequence: what attention takes, and what the indexer does: queries, keys, and what heads count.
struct Case {
    spec: AttentionSpec,
    index: IndexSpec,
    kv: KvType,
    inputs: [Vec<f32>; 6],
}

impl Case {
    fn new(kv: KvType) -> Self {
        let index = IndexSpec {
            n_heads: 5,
            head_dim: 40,
            layout: RopeLayout::Halves,
            most: MOST,
            eps: 1e-6,
            of: None,
        };
        let mut spec = latent_spec(3, 32, 8);
        spec.latent = spec.latent.map(|latent| LatentSpec { index: Some(index), ..latent });
        let mut numbers = Numbers::new(77);
        let inputs = Self::widths(&spec, index).map(|width| numbers.floats(LEN * width));
        Self { spec, index, kv, inputs }
    }

    /// Queries, keys, values; queries, keys and weights of the indexer.
    fn widths(spec: &AttentionSpec, index: IndexSpec) -> [usize; 6] {
        [spec.query_width(), 8, 32, index.n_heads * index.head_dim, index.head_dim, index.n_heads]
    }

    /// What rows give, and the positions of those that do not see all.
    fn run(&self, kernels: &Kernels, threads: usize, chunks: &[usize]) -> (Vec<f32>, Vec<Vec<u32>>) {
        let pool = Pool::new(threads).unwrap();
        let mut stored = Pages::new(&PageSpec::new(&self.spec, self.kv)).unwrap();
        let table: Vec<u32> = (0..LEN.div_ceil(PAGE) as u32).map(|block| block ^ 3).collect();
        table.iter().for_each(|page| stored.add(*page).unwrap());
        let (mut chooser, mut scratch) = (Chooser::default(), Scratch::default());
        let (mut out, mut all, mut at) = (Vec::new(), Vec::new(), 0);
        let widths = Self::widths(&self.spec, self.index);
        for rows in chunks.iter().copied() {
            let rows = rows.min(LEN - at);
            let mut spans = Spans::default();
            spans.push(rows, at, 0, table.iter().copied());
            let buffers: [Buffer; 6] = std::array::from_fn(|i| {
                let mut data = Lines::new(rows * widths[i]).unwrap();
                data.copy_from_slice(&self.inputs[i][at * widths[i]..(at + rows) * widths[i]]);
                Buffer { data, width: widths[i] }
            });
            let [q, k, v, query, key, weights] = &buffers;
            let op = Choose { index: self.index, spans: &spans, kv: [k, v], query, key, weights };
            let mut chosen = Chosen::default();
            let slices = [k, v, query, key, weights].map(|x| &x.data[..]);
            choose((kernels, &pool), &mut chooser, &op, slices, &mut stored, &mut chosen).unwrap();
            let op = Attend { attention: &self.spec, sinks: None, spans: &spans, chosen: Some(&chosen) };
            let mut found = vec![f32::NAN; rows * self.spec.n_heads * 32];
            super::super::attend(kernels, &pool, &mut scratch, &op, (&q.data, None), &mut stored, &mut found)
                .unwrap();
            out.extend(found);
            all.extend((0..chosen.rows.len()).map(|row| chosen.of(row).to_vec()));
            at += rows;
        }
        assert_eq!((at, all.len()), (LEN, LEN - MOST));
        (out, all)
    }
}

fn whole() -> Vec<usize> {
    vec![LEN]
}

#[test]
fn rows_see_the_best_positions_alone() {
    let case = Case::new(KvType::F32);
    let (found, chosen) = case.run(Kernels::detect(), 2, &whole());
    let [q, k, v, query, key, weights] = case.inputs.each_ref().map(|x| wide(x));
    let (heads, dim) = (case.index.n_heads, case.index.head_dim);
    for (positions, row) in chosen.iter().zip(MOST..) {
        let score = |position: usize| -> f64 {
            let of_head = |head: usize| {
                let product =
                    oracle::dot(&query[(row * heads + head) * dim..][..dim], &key[position * dim..][..dim]);
                weights[row * heads + head] * product.max(0.0)
            };
            (0..heads).map(of_head).sum()
        };
        let seen = |position: &usize| positions.binary_search(&(*position as u32)).is_ok();
        let (inside, outside): (Vec<_>, Vec<_>) = (0..=row).partition(seen);
        assert_eq!(inside.len(), MOST);
        let least = inside.into_iter().map(score).fold(f64::INFINITY, f64::min);
        let best = outside.into_iter().map(score).fold(f64::NEG_INFINITY, f64::max);
        // Sums of 200 products of numbers of up to 1, in f32.
        assert!(least > best - 1e-4, "row {row}: {least} was taken, {best} was not");
    }
    // Every tenth row against the formula, over its positions alone.
    let plain = AttentionSpec {
        latent: case.spec.latent.map(|latent| LatentSpec { index: None, ..latent }),
        ..case.spec.clone()
    };
    let width = case.spec.n_heads * 32;
    for row in (0..LEN).step_by(10) {
        let all: Vec<u32> = (0..=row as u32).collect();
        let positions = row.checked_sub(MOST).map_or(&all, |at| &chosen[at]);
        let of = |x: &[f64], width: usize| -> Vec<f64> {
            positions.iter().flat_map(|p| x[*p as usize * width..][..width].to_vec()).collect()
        };
        let q_width = case.spec.query_width();
        let mut queries = vec![0.0; (positions.len() - 1) * q_width];
        queries.extend(&q[row * q_width..][..q_width]);
        let expected = oracle::attention(&plain, None, [&queries, &of(&k, 8), &of(&v, 32)]);
        let expected = &expected[(positions.len() - 1) * width..];
        for (found, expected) in found[row * width..][..width].iter().zip(expected) {
            assert!((f64::from(*found) - expected).abs() <= 1e-5, "row {row}: {found} for {expected}");
        }
    }
}

#[test]
fn bits_depend_on_positions_alone() {
    for kv in KvType::ALL.iter().copied() {
        let case = Case::new(kv);
        let (expected, chosen) = case.run(Kernels::detect(), 1, &whole());
        let ragged = [&[1, 64, 230, 4, 2][..], &[7; 20], &[1; 40], &[64; 3]].concat();
        for (threads, chunks) in [(3, whole()), (1, ragged.clone()), (2, vec![20; 31]), (5, ragged)] {
            let found = case.run(Kernels::detect(), threads, &chunks);
            assert!(found == (expected.clone(), chosen.clone()), "{kv}, {threads} threads, {chunks:?}");
        }
    }
    for kv in [KvType::Q8_0, KvType::BF16] {
        let case = Case::new(kv);
        let expected = case.run(Kernels::detect(), 1, &[300, 12, 1, 307]);
        for kernels in Kernels::all() {
            assert!(case.run(kernels, 2, &whole()) == expected, "{kv}, {}", kernels.name);
        }
    }
}

/// Of equal scores the first positions are taken, whatever their zeros' signs.
#[test]
fn equal_scores_take_the_first() {
    let mut case = Case::new(KvType::F16);
    case.inputs[3].fill(0.0);
    let (_, chosen) = case.run(Kernels::detect(), 2, &whole());
    let first: Vec<u32> = (0..MOST as u32).collect();
    assert!(chosen.iter().all(|positions| *positions == first));
}
