//! Do rows that may not see all positions see those with the largest scores, and are keys that choose normed?

use super::material::{Numbers, both_kept, kept, latent_spec, wide};
use super::{check, check_same, filled, oracle, values};
use crate::arch::{AttentionSpec, IndexSpec, LatentSpec, RopeLayout};
use crate::engine::KvType;
use crate::engine::backend::{Attend, Backend, Choose, Chosen, PAGE, PageSpec, Spans};

const LEN: usize = 620;
const MOST: usize = 300;
const INDEX: IndexSpec =
    IndexSpec { n_heads: 5, head_dim: 40, layout: RopeLayout::Halves, most: MOST, eps: 1e-6, of: None };

pub(in crate::engine) fn chosen<B: Backend>(b: &B) {
    if !B::CHOOSES {
        return;
    }
    normed_around_the_mean(b);
    for kv in B::KV_TYPES {
        let mut case = Case::new(*kv);
        let ragged = [&[1, 64, 230, 4, 2][..], &[7; 20], &[1; 40], &[64; 3]].concat();
        let whole = case.run(b, &[LEN]);
        case.check(&whole, &format!("in {kv}"));
        let cut = case.run(b, &ragged);
        case.check(&cut, &format!("in {kv}, in steps"));
        check_same::<B>(&whole, &cut, "rows that see chosen positions");
        // Scores of zeros, whatever their signs.
        case.inputs[3].fill(0.0);
        let equal = case.run(b, &[LEN]);
        case.check(&equal, &format!("in {kv}, of equal scores"));
    }
}

/// Of a sequence: what attention takes, and what the indexer does: queries, keys, and what heads count.
struct Case {
    spec: AttentionSpec,
    kv: KvType,
    inputs: [Vec<f32>; 6],
}

impl Case {
    fn new(kv: KvType) -> Self {
        let mut spec = latent_spec(6, 32, 8);
        spec.latent = spec.latent.map(|latent| LatentSpec { index: Some(INDEX), ..latent });
        let mut numbers = Numbers::new(77);
        let inputs = Self::widths(&spec).map(|width| numbers.floats(LEN * width));
        Self { spec, kv, inputs }
    }

    /// Queries, keys, values; queries, keys and weights of the indexer.
    fn widths(spec: &AttentionSpec) -> [usize; 6] {
        [spec.query_width(), 8, 32, INDEX.n_heads * INDEX.head_dim, INDEX.head_dim, INDEX.n_heads]
    }

    /// What rows give in steps of so many, a sequence beside one that sees all there is.
    fn run<B: Backend>(&self, b: &B, chunks: &[usize]) -> Vec<f32> {
        let mut pages = b.pages(&PageSpec::new(&self.spec, self.kv)).unwrap();
        let table: Vec<u32> = (0..LEN.div_ceil(PAGE) as u32).map(|block| block ^ 3).collect();
        let beside = 12;
        (0..=beside).for_each(|page| b.add_page(&mut pages, page).unwrap());
        let widths = Self::widths(&self.spec);
        let s = &mut b.stream(LEN + 1, widths[3]).unwrap();
        let (width, mut found, mut at) = (self.spec.n_heads * 32, Vec::new(), 0);
        let mut out = b.buffer(LEN + 1, width).unwrap();
        let mut chosen = Chosen::default();
        for rows in chunks.iter().copied() {
            let rows = rows.min(LEN - at);
            let mut spans = Spans::default();
            spans.push(1, 0, 0, std::iter::once(beside));
            spans.push(rows, at, 0, table.iter().copied());
            let buffers: [B::Buffer; 6] = std::array::from_fn(|i| {
                let (all, width) = (&self.inputs[i], widths[i]);
                filled(b, s, width, &[&all[..width], &all[at * width..(at + rows) * width]].concat())
            });
            let [q, k, v, query, key, weights] = &buffers;
            let op = Choose { index: INDEX, spans: &spans, kv: [k, v], query, key, weights };
            b.choose(s, &op, &mut pages, &mut chosen).unwrap();
            assert_eq!(chosen.rows.len(), (at + rows).saturating_sub(MOST.max(at)));
            let op = Attend { attention: &self.spec, sinks: None, spans: &spans, chosen: Some(&chosen) };
            // A layer that takes the choice of one before finds it there.
            let [first, second] = [(); 2].map(|()| {
                b.attend(s, &op, q, None, &mut pages, &mut out).unwrap();
                values(b, s, &out, (1 + rows) * width)
            });
            assert_eq!(first, second);
            found.extend_from_slice(&first[width..]);
            at += rows;
        }
        assert_eq!(at, LEN);
        found
    }

    /// Rows give what the formula says of the positions that score best, by keys as they are kept.
    fn check(&self, found: &[f32], what: &str) {
        let [q, _, _, query, _, weights] = self.inputs.each_ref().map(|x| wide(x));
        let [k, v] = both_kept(&self.spec, self.kv.into(), [&self.inputs[1], &self.inputs[2]]);
        let (heads, dim) = (INDEX.n_heads, INDEX.head_dim);
        let key = kept(self.kv, dim, &self.inputs[4]);
        let (width, q_width, mut close) = (self.spec.n_heads * 32, self.spec.query_width(), 0);
        for row in (0..LEN).step_by(5) {
            let score = |position: usize| -> f64 {
                let of_head = |head: usize| {
                    let query = &query[(row * heads + head) * dim..][..dim];
                    let product = oracle::dot(query, &key[position * dim..][..dim]);
                    weights[row * heads + head] * product.max(0.0)
                };
                (0..heads).map(of_head).sum::<f64>() + 0.0
            };
            let mut best: Vec<_> = (0..=row).map(|position| (score(position), position)).collect();
            best.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            if row >= MOST {
                let gap = best[MOST - 1].0 - best[MOST].0;
                // Sums of 200 products of numbers of up to 1, in f32, are off by some 1e-6: which of two is taken that
                // differ by less, nobody can say. Equal ones are another matter.
                if gap > 0.0 && gap < 2e-5 {
                    close += 1;
                    continue;
                }
            }
            let mut positions: Vec<_> = best.iter().take(MOST).map(|(_, position)| *position).collect();
            positions.sort_unstable();
            let mut expected = Vec::new();
            for query in q[row * q_width..][..q_width].chunks(40) {
                let score = |p: &usize| {
                    let product = oracle::dot(&query[..32], &v[p * 32..][..32])
                        + oracle::dot(&query[32..], &k[p * 8..][..8]);
                    product * f64::from(self.spec.scale)
                };
                let scores: Vec<f64> = positions.iter().map(score).collect();
                let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let shares: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
                let total = shares.iter().sum::<f64>();
                expected.extend((0..32).map(|i| {
                    let all = positions.iter().zip(&shares).map(|(p, share)| share * v[p * 32 + i]);
                    all.sum::<f64>() / total
                }));
            }
            check(&found[row * width..][..width], &expected, |_| 2e-5, &format!("row {row} {what}"));
        }
        assert!(close < 10, "{close} of the rows have scores too near each other");
    }
}

fn normed_around_the_mean<B: Backend>(b: &B) {
    let mut numbers = Numbers::new(78);
    for (rows, width) in [(1, 1), (3, 40), (70, 128), (2, 333)] {
        let s = &mut b.stream(rows, width).unwrap();
        let (x, weight, bias) = (numbers.floats(rows * width), numbers.floats(width), numbers.floats(width));
        let [w, c] = [&weight, &bias].map(|values| b.vector(values.clone()).unwrap());
        let mut out = filled(b, s, width, &x);
        b.layer_norm(s, ([&w, &c], 1e-6), rows, &mut out).unwrap();
        let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len() as f64;
        let expected: Vec<f64> = wide(&x)
            .chunks(width)
            .flat_map(|row| {
                let middle = mean(row);
                let variance = mean(&row.iter().map(|x| (x - middle).powi(2)).collect::<Vec<_>>());
                let normed = row.iter().map(move |x| (x - middle) / (variance + 1e-6).sqrt());
                let affine = normed.zip(wide(&weight)).zip(wide(&bias)).map(|((x, w), c)| x * w + c);
                affine.collect::<Vec<_>>()
            })
            .collect();
        check(&values(b, s, &out, x.len()), &expected, |_| 1e-5, &format!("{rows} rows of {width}"));
    }
}
