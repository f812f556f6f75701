//! Do rows attend as the oracle does, however the sequence was cut?

use super::material::{
    Numbers, attention_spec, both_kept, latent_spec, off_by_weights, queries, wide, widths,
};
use super::{Rounds, check, check_same, filled, oracle, values};
use crate::arch::{AttentionSpec, RopeLayout, Window};
use crate::engine::backend::{
    Attend, Backend, NormRope, PAGE, PageSpec, Spans, Turn, first_block, turn as turn_all,
};
use crate::engine::{KvType, KvTypes};

/// Positions of every sequence.
const LEN: usize = 600;
/// The longest chunk.
const MOST: usize = 150;

pub(in crate::engine) fn attention<B: Rounds>(b: &B) {
    let cases = [
        attention_spec([1, 1], 8, None, None),
        attention_spec([4, 2], 64, None, None),
        attention_spec([6, 1], 16, Some(100), Some(1.5)),
        attention_spec([3, 3], 20, Some(5), None),
        attention_spec([4, 2], 32, Some(1), None),
        attention_spec([2, 1], 256, Some(97), None),
        attention_spec([8, 2], 24, None, Some(3.0)),
        attention_spec([3, 1], 512, None, None),
        AttentionSpec { window: Some(Window::Chunk(96)), ..attention_spec([4, 2], 32, None, None) },
    ];
    for (seed, spec) in cases.iter().enumerate() {
        for (at, kv) in B::KV_TYPES.iter().enumerate() {
            // Emulated, all of it takes minutes: each attention meets two types, and is cut in several ways with one.
            let cuts = match (at + B::KV_TYPES.len() - seed % B::KV_TYPES.len()) % B::KV_TYPES.len() {
                _ if !b.is_emulated() => Cuts::All,
                0 => Cuts::Two,
                1 => Cuts::Ragged,
                _ => continue,
            };
            case(b, spec, (*kv).into(), cuts, false, 100 + seed as u64);
        }
    }
    // How models with latent vectors are cut is shown with them.
    let latent = if b.is_emulated() { Cuts::Ragged } else { Cuts::All };
    for kv in B::KV_TYPES {
        case(b, &latent_spec(4, 64, 16), (*kv).into(), latent, false, 400);
    }
    // More heads than are computed together.
    let n_heads = if b.is_emulated() { 9 } else { 33 };
    case(b, &latent_spec(n_heads, 32, 8), KvType::F32.into(), latent, false, 401);
    let apart = B::KV_TYPES.windows(2).map(|pair| KvTypes { keys: pair[0], values: pair[1] });
    let all = if b.is_emulated() { Cuts::Two } else { Cuts::All };
    for (kv, spec) in apart.zip(&cases[1..]) {
        case(b, spec, kv, all, false, 300);
    }
    for spec in [&cases[1], &cases[2]] {
        case(b, spec, KvType::F32.into(), all, true, 200);
    }
}

/// How far attention may be off that of keys and values in f32, relative to the largest value: half a step of rounding, and
/// as much of the scores.
fn off(kv: KvTypes) -> f64 {
    let of = |kv: KvType| match kv {
        KvType::F32 => 0.0,
        KvType::F16 => 2e-3,
        KvType::BF16 => 1.6e-2,
        KvType::Q8_0 => 2e-2,
        KvType::Q4_0 => 3e-1,
    };
    2e-5 + of(kv.keys) + of(kv.values)
}

/// Two sequences' queries, keys and values, each `[position, heads · head dim]`.
struct Sequence {
    qkv: [Vec<f32>; 3],
}

/// Into which chunks a sequence is cut.
#[derive(Clone, Copy)]
enum Cuts {
    /// Long and then single rows; ragged ones; single rows.
    All,
    /// All but single rows from the first on.
    Two,
    Ragged,
}

fn case<B: Rounds>(b: &B, spec: &AttentionSpec, kv: KvTypes, cuts: Cuts, with_sinks: bool, seed: u64) {
    let mut numbers = Numbers::new(seed);
    let widths = widths(spec);
    let pair = [0, 1].map(|_| {
        let [q, k, v] = widths.map(|width| numbers.floats(LEN * width));
        Sequence { qkv: [queries(kv.keys, q), k, v] }
    });
    let sinks = with_sinks.then(|| numbers.floats(spec.n_heads).iter().map(|x| 6.0 * x).collect::<Vec<_>>());
    let what = format!("{spec:?} in {kv}, sinks {sinks:?}");

    let expected = pair.each_ref().map(|sequence| {
        let [q, k, v] = &sequence.qkv;
        let sinks = sinks.as_deref().map(wide);
        let (q, [k, v]) = (wide(q), both_kept(spec, kv, [k, v]));
        let kept = oracle::attention(spec, sinks.as_deref(), [&q, &k, &v]);
        if kv != KvType::F32.into() {
            let [_, k, v] = sequence.qkv.each_ref().map(|x| wide(x));
            let exact = oracle::attention(spec, sinks.as_deref(), [&q, &k, &v]);
            let worst = kept.iter().zip(exact).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(worst <= off(kv), "{what}: {worst} off what f32 gives");
        }
        kept
    });
    // Prefill in long, ragged and short chunks, then decode row by row.
    let long = [vec![MOST; 3], vec![1; 150]].concat();
    let ragged = [vec![1, 70, 33, 2, MOST, 64, 31], vec![7; 35], vec![1; 4]].concat();
    let single = vec![1; LEN];
    let mut before: Option<[Vec<f32>; 2]> = None;
    let cuts = match cuts {
        Cuts::All => vec![long, ragged, single],
        Cuts::Two => vec![long, ragged],
        Cuts::Ragged => vec![ragged],
    };
    for chunks in cuts {
        assert_eq!(chunks.iter().sum::<usize>(), LEN);
        let found = run(b, (spec, sinks.as_ref()), kv, &pair, widths, &chunks);
        for (found, expected) in found.iter().zip(&expected) {
            // Scores up to 10 in f32 are off by some 1e-6, and so are the weights, relatively;
            // values are at most 1. Ten times that.
            let rounded = spec.latent.is_none() || b.rounds_latent_weights();
            let off = if rounded { off_by_weights(spec, kv) } else { 0.0 };
            check(found, expected, |_| 2e-5 + off, &what);
        }
        if let Some(before) = &before {
            for (found, before) in found.iter().zip(before) {
                check_same::<B>(found, before, &what);
            }
        }
        before = Some(found);
    }
}

/// Heads that are normed and rotated on the way are what they are when that is done first.
pub(in crate::engine) fn turned<B: Rounds>(b: &B) {
    let mut numbers = Numbers::new(31);
    // Normed queries and keys, normed values, rotated ones, and by how many elements.
    let ways = [
        (false, false, RopeLayout::Halves, Some(1.0)),
        (true, false, RopeLayout::Halves, Some(1.0)),
        (true, true, RopeLayout::Pairs, Some(0.5)),
        (true, true, RopeLayout::Halves, None),
        (false, false, RopeLayout::Halves, None),
    ];
    let specs = [attention_spec([4, 2], 64, None, None), attention_spec([3, 1], 20, Some(5), None)];
    for kv in B::KV_TYPES {
        for (spec, (norms, value_norm, layout, share)) in
            specs.iter().flat_map(|spec| ways.map(|way| (spec, way)))
        {
            let (head_dim, widths) = (spec.head_dim, widths(spec));
            let weights = [(); 3].map(|()| b.vector(numbers.floats(head_dim)).unwrap());
            let rows = 70;
            let qkv = widths.map(|width| numbers.floats(rows * width));
            let s = &mut b.stream(rows, widths[0]).unwrap();
            let mut angles = b.buffer(rows, head_dim).unwrap();
            let mut results = [(); 2].map(|()| (b.pages(&PageSpec::new(spec, *kv)).unwrap(), Vec::new()));
            for (apart, (pages, found)) in results.iter_mut().enumerate() {
                (0..2).for_each(|page| b.add_page(pages, page).unwrap());
                let mut start = 0;
                for chunk in [66, 1, 3] {
                    let mut spans = Spans::default();
                    spans.push(chunk, start, 0, [1, 0].into_iter());
                    if let Some(share) = share {
                        let n = (share * head_dim as f64) as usize / 2;
                        let frequencies: Vec<f32> = (0..n).map(|i| 1.0 / (i + 1) as f32).collect();
                        let positions: Vec<usize> = (start..start + chunk).collect();
                        b.angles(s, &frequencies, &positions, &vec![1.0; chunk], &mut angles).unwrap();
                    }
                    let turn = |at: usize, norm: bool, rotated: bool| {
                        let norm = norm.then_some((&weights[at], 1e-6));
                        let op = NormRope { head_dim, plain: 0, norm, layout };
                        let angles = share.filter(|_| rotated).map(|_| &angles);
                        (norm.is_some() || angles.is_some()).then_some(Turn { op, angles })
                    };
                    let turns = [turn(0, norms, true), turn(1, norms, true), turn(2, value_norm, false)];
                    let op = Attend { attention: spec, sinks: None, spans: &spans, chosen: None };
                    let part = |i: usize| &qkv[i][start * widths[i]..][..chunk * widths[i]];
                    let [mut q, mut k, mut v] = [0, 1, 2].map(|i| filled(b, s, widths[i], part(i)));
                    let mut out = b.buffer(chunk, widths[0]).unwrap();
                    let (turns, heads) = ((&turns, chunk), (&mut q, Some([&mut k, &mut v])));
                    if apart == 0 {
                        b.attend_turned(s, &op, turns, heads, pages, &mut out).unwrap();
                    } else {
                        let (q, kv) = turn_all(b, s, turns, heads).unwrap();
                        b.attend(s, &op, q, kv, pages, &mut out).unwrap();
                    }
                    found.extend(values(b, s, &out, chunk * widths[0]));
                    start += chunk;
                }
            }
            let [(_, found), (_, expected)] = &results;
            let what = format!("{kv}, norms {norms} {value_norm}, {layout:?} of {share:?}, {spec:?}");
            check_same::<B>(found, expected, &what);
            // Scores of normed heads are up to some 20. Rounding may fall out otherwise where a number lies between two.
            check(found, &wide(expected), |_| 1e-4 + 0.1 * off((*kv).into()), &what);
            assert!(found.iter().any(|x| x.abs() > 0.1), "{what}");
        }
    }
}

/// A sequence's pages, taken one by one as it grows, in no order; those before its window go to whoever grows next.
#[derive(Default)]
struct Table {
    first: usize,
    pages: Vec<u32>,
}

impl Table {
    fn grow(
        &mut self,
        window: Option<Window>,
        step: std::ops::Range<usize>,
        mut page: impl FnMut() -> u32,
    ) -> Vec<u32> {
        let keep = first_block(window, step.start).min(self.first + self.pages.len());
        let gone: Vec<u32> = self.pages.drain(..keep - self.first).collect();
        self.first = keep;
        while self.first + self.pages.len() < step.end.div_ceil(PAGE) {
            self.pages.push(page());
        }
        gone
    }
}

/// A free page, or a new one.
fn take<B: Backend>(b: &B, pages: &mut B::Pages, free: &mut Vec<u32>, most: &mut u32) -> u32 {
    free.pop().unwrap_or_else(|| {
        *most -= 1;
        b.add_page(pages, *most).unwrap();
        *most
    })
}

/// Feeds both sequences chunk by chunk, side by side in one buffer, the second one's rows before the first one's in
/// every other step.
fn run<B: Backend>(
    b: &B,
    (spec, sinks): (&AttentionSpec, Option<&Vec<f32>>),
    kv: KvTypes,
    pair: &[Sequence; 2],
    widths: [usize; 3],
    chunks: &[usize],
) -> [Vec<f32>; 2] {
    let sinks = sinks.map(|sinks| b.vector(sinks.clone()).unwrap());
    let mut pages = b.pages(&PageSpec::new(spec, kv)).unwrap();
    let mut tables: [Table; 2] = Default::default();
    // Number 0 stays free; the highest is added first.
    let (mut free, mut most) = (Vec::new(), 40);
    let s = &mut b.stream(2 * MOST, widths[0]).unwrap();
    let out_width = spec.n_heads * spec.value_dim();
    let mut out = b.buffer(2 * MOST, out_width).unwrap();
    let mut found = [Vec::new(), Vec::new()];
    let mut start = 0;
    for (step, &rows) in chunks.iter().enumerate() {
        let order = if step % 2 == 0 { [0, 1] } else { [1, 0] };
        let qkv = [0, 1, 2].map(|i| {
            let part = |s: &Sequence| s.qkv[i][start * widths[i]..][..rows * widths[i]].to_vec();
            filled(b, s, widths[i], &order.map(|of| part(&pair[of])).concat())
        });
        let mut spans = Spans::default();
        for of in order {
            let gone = tables[of]
                .grow(spec.window, start..start + rows, || take(b, &mut pages, &mut free, &mut most));
            free.extend(gone);
            spans.push(rows, start, tables[of].first, tables[of].pages.iter().copied());
        }
        if step % 7 == 3 {
            // A copy serves as well, wherever it lies.
            let (page, to) = (tables[0].pages.last_mut().unwrap(), take(b, &mut pages, &mut free, &mut most));
            b.copy_page(s, &mut pages, *page, to).unwrap();
            free.push(std::mem::replace(page, to));
            spans = Spans::default();
            for of in order {
                spans.push(rows, start, tables[of].first, tables[of].pages.iter().copied());
            }
        }
        // A step that was cancelled half way and comes again overwrites its own positions.
        for _ in 0..1 + usize::from(step % 5 == 1) {
            let op = Attend { attention: spec, sinks: sinks.as_ref(), spans: &spans, chosen: None };
            let [q, k, v] = &qkv;
            b.attend(s, &op, q, Some([k, v]), &mut pages, &mut out).unwrap();
        }
        if step % 3 == 2 {
            // Who stores nothing attends to what is stored, its own positions included.
            let stored = values(b, s, &out, 2 * rows * out_width);
            let op = Attend { attention: spec, sinks: sinks.as_ref(), spans: &spans, chosen: None };
            b.attend(s, &op, &qkv[0], None, &mut pages, &mut out).unwrap();
            assert_eq!(values(b, s, &out, stored.len()), stored, "without keys and values");
        }
        let both = values(b, s, &out, 2 * rows * out_width);
        for (of, part) in order.into_iter().zip(both.chunks(rows * out_width)) {
            found[of].extend(part);
        }
        start += rows;
    }
    found
}
