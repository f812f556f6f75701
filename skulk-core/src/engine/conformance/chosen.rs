//! Do rows see the positions with the largest scores, and attend to them alone?

use super::material::{Numbers, both_kept, kept, latent_spec, off_by_weights, queries, wide};
use super::{Rounds, check, filled, oracle, values};
use crate::arch::{AttentionSpec, IndexSpec, LatentSpec, RopeLayout};
use crate::engine::KvType;
use crate::engine::backend::{Attend, Backend, Choose, PAGE, PageSpec, Spans};

const LEN: usize = 430;
const MOST: usize = 150;
/// Elements of latent vectors, and of what is rotated behind them.
const RANK: usize = 32;
const ROTATED: usize = 8;

/// Attention of 6 heads to chosen positions, which begins with those of another sequence.
pub(in crate::engine) fn chosen<B: Rounds>(b: &B) {
    let index =
        IndexSpec { n_heads: 20, head_dim: 40, layout: RopeLayout::Halves, most: MOST, eps: 1e-6, of: None };
    let plain = latent_spec(6, RANK, ROTATED);
    let spec = AttentionSpec {
        latent: plain.latent.map(|latent| LatentSpec { index: Some(index), ..latent }),
        ..plain.clone()
    };
    let mut numbers = Numbers::new(78);
    let widths =
        [spec.query_width(), ROTATED, RANK, index.n_heads * index.head_dim, index.head_dim, index.n_heads];
    let inputs = widths.map(|width| numbers.floats(LEN * width));
    normed_around_the_mean(b);
    let width = spec.n_heads * RANK;
    let cuts = [&[LEN][..], &[1, 64, 100, 4, 2, 130], &[7; 30]];
    // Every way of cutting for numbers as they are; of others the whole, emulated of one of them.
    let others = B::KV_TYPES.iter().filter(|kv| **kv != KvType::F32).map(|kv| (*kv, cuts[0]));
    let others = others.take(if b.is_emulated() { 1 } else { usize::MAX });
    for (kv, chunks) in cuts.map(|chunks| (KvType::F32, chunks)).into_iter().chain(others) {
        let mut inputs = inputs.clone();
        for i in [0, 3] {
            inputs[i] = queries(kv, std::mem::take(&mut inputs[i]));
        }
        let mut numbers = inputs.each_ref().map(|x| wide(x));
        [numbers[1], numbers[2]] = both_kept(&spec, kv.into(), [&inputs[1], &inputs[2]]);
        numbers[4] = kept(kv, index.head_dim, &inputs[4]);
        let (expected, sure) = expected(&plain, index, numbers);
        // Of two rows in three, the last position that is seen and the first that is not are told apart by any sum in f32.
        assert!(sure.iter().filter(|sure| **sure).count() > LEN * 2 / 3);
        let s = &mut b.stream(2 * LEN, spec.query_width().max(widths[3])).unwrap();
        let mut pages = b.pages(&PageSpec::new(&spec, kv)).unwrap();
        let blocks = LEN.div_ceil(PAGE) as u32;
        (0..2 * blocks).for_each(|page| b.add_page(&mut pages, page).unwrap());
        let mut chosen = B::Chosen::default();
        let (mut at, mut steps) = (0, chunks.iter().copied().cycle());
        while at < LEN {
            let n = steps.next().unwrap().min(LEN - at);
            // Two sequences side by side, whose pages lie among each other.
            let mut spans = Spans::default();
            (0..2).for_each(|own| spans.push(n, at, 0, (0..blocks).map(move |block| 2 * block + own)));
            let buffers: [B::Buffer; 6] = std::array::from_fn(|i| {
                let own = &inputs[i][at * widths[i]..(at + n) * widths[i]];
                filled(b, s, widths[i], &[own, own].concat())
            });
            let [q, k, v, query, key, weights] = &buffers;
            let op = Choose { index, spans: &spans, kv: [k, v], query, key, weights };
            b.choose(s, &op, &mut pages, &mut chosen).unwrap();
            let op = Attend { attention: &spec, sinks: None, spans: &spans, chosen: Some(&chosen) };
            let mut out = b.buffer(2 * n, width).unwrap();
            b.attend(s, &op, q, None, &mut pages, &mut out).unwrap();
            let found = values(b, s, &out, 2 * n * width);
            for (own, found) in found.chunks_exact(width).enumerate() {
                let row = at + own % n;
                if sure[row] {
                    // Rows that see all positions attend as those of other layers do.
                    let rounded = row < MOST && b.rounds_latent_weights();
                    let off = if rounded { off_by_weights(&spec, kv.into()) } else { 0.0 };
                    let (expected, what) =
                        (&expected[row * width..][..width], format!("row {row} of {chunks:?} in {kv}"));
                    check(found, expected, |_| 1e-5 + off, &what);
                }
            }
            at += n;
        }
    }
}

/// What rows give, and whether it is beyond doubt which positions they see.
fn expected(plain: &AttentionSpec, index: IndexSpec, inputs: [Vec<f64>; 6]) -> (Vec<f64>, Vec<bool>) {
    let [q, k, v, query, key, weights] = &inputs;
    let (heads, dim, q_width) = (index.n_heads, index.head_dim, plain.query_width());
    let (mut out, mut sure) = (Vec::new(), Vec::new());
    for row in 0..LEN {
        let score = |position: usize| -> f64 {
            let of_head = |head: usize| {
                let own = &query[(row * heads + head) * dim..][..dim];
                weights[row * heads + head] * oracle::dot(own, &key[position * dim..][..dim]).max(0.0)
            };
            (0..heads).map(of_head).sum()
        };
        let mut order: Vec<(f64, usize)> = (0..=row).map(|position| (score(position), position)).collect();
        order.sort_by(|a, b| b.0.total_cmp(&a.0));
        // Sums of 800 products of numbers of up to 1, in f32.
        sure.push(order.len() <= MOST || order[MOST - 1].0 > order[MOST].0 + 1e-4);
        order.truncate(MOST);
        let of = |x: &[f64], width: usize| -> Vec<f64> {
            order.iter().flat_map(|(_, at)| x[at * width..][..width].to_vec()).collect()
        };
        let mut queries = vec![0.0; (order.len() - 1) * q_width];
        queries.extend(&q[row * q_width..][..q_width]);
        let all = oracle::attention(plain, None, [&queries, &of(k, ROTATED), &of(v, RANK)]);
        out.extend(&all[(order.len() - 1) * plain.n_heads * RANK..]);
    }
    (out, sure)
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
