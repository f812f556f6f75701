//! One result, bit for bit, however the model is cut up, fed and threaded.

use std::path::Path;

use skulk::engine::{Logits, Segment};
use skulk::{KvType, KvTypes, Precision, Memory, TokenId};

use crate::fixtures::{checkpoints, chosen, gemma, ids, json, sample};
use super::stages::{Setup, Stages, keeps, takes_options};

fn bits(rows: &[Vec<f32>]) -> Vec<u32> {
    rows.iter().flatten().map(|x| x.to_bits()).collect()
}

/// Sums in another order are 1e-6 of the largest logit apart.
const SUMS: f32 = 1e-5;
/// Where fewer bits are kept, numbers at the border of two become the other one, which is 2⁻¹¹ of them away in f16, a
/// 255th or a 16th of their block's range in Q8_0 and Q4_0. Where rounding matters little to a model, 8e-4 was found.
const BORDERS: f32 = 3e-3;

/// What was computed in other steps: the same bits, where the engine promises that, elsewhere nearly the same.
pub(super) fn same(stages: &Stages, kv: impl Into<KvTypes>, found: &[u32], expected: &[u32]) -> bool {
    same_within(stages, if kv.into() == KvType::F32.into() { SUMS } else { BORDERS }, found, expected)
}

fn same_within(stages: &Stages, relative: f32, found: &[u32], expected: &[u32]) -> bool {
    if stages.capabilities.exact_rows {
        return found == expected;
    }
    found.len() == expected.len() && apart(found, expected) <= relative
}

/// How far apart logits are, as a part of the largest.
fn apart(found: &[u32], expected: &[u32]) -> f32 {
    let most = expected.iter().fold(0.0f32, |a, &x| a.max(f32::from_bits(x).abs()));
    let distance = |(&a, &b): (&u32, &u32)| (f32::from_bits(a) - f32::from_bits(b)).abs();
    let worst = found.iter().zip(expected).map(distance).fold(0.0, |a, b| if b > a || b.is_nan() { b } else { a });
    worst / most
}

/// How many of many like cases the quick suite runs. Other engines are far slower than the library's own.
pub(super) fn few(others: usize) -> usize {
    if super::ENGINE == "cpu" { usize::MAX } else { others }
}

/// How many checkpoints the quick suite tries out.
fn some() -> usize {
    if super::is_emulated() { 6 } else { usize::MAX }
}

/// Checkpoints that this version runs, with their longest prompt.
pub(crate) fn runnable() -> Vec<(std::path::PathBuf, Vec<TokenId>)> {
    let all = checkpoints().into_iter().filter(|path| Stages::load(path, &Setup::default()).is_ok());
    all.map(|path| {
        let reference = json(&path.join("reference.json"));
        let prompts = reference["prompts"].as_array().unwrap().iter().map(|p| ids(&p["ids"]));
        let longest = prompts.max_by_key(Vec::len).unwrap();
        (path, longest)
    })
    .collect()
}

/// Prefill of all but the last three tokens, then those one at a time.
fn logits(path: &Path, tokens: &[TokenId], setup: &Setup) -> Vec<u32> {
    logits_of(&Stages::load(path, setup).unwrap(), tokens)
}

fn logits_of(stages: &Stages, tokens: &[TokenId]) -> Vec<u32> {
    let seq = stages.open(0);
    let (prompt, rest) = tokens.split_at(tokens.len() - 3);
    let mut rows = stages.feed(seq, 0, prompt);
    for (i, &token) in rest.iter().enumerate() {
        rows.extend(stages.feed(seq, prompt.len() + i, &[token]));
    }
    bits(&rows)
}

#[test]
fn every_cut_gives_the_same_bits() {
    for (path, tokens) in sample(some(), runnable()) {
        let arch = Stages::load(&path, &Setup::default()).unwrap().arch;
        let n = arch.n_layers();
        let whole = logits(&path, &tokens, &Setup::default());
        let two = (1..n).map(|cut| vec![cut]);
        let three = (2..n).map(|cut| vec![cut / 2, cut]);
        let possible = two.chain(three).filter(|cuts| cuts.iter().all(|cut| arch.can_cut(*cut)));
        for cuts in chosen(few(2), possible).into_iter().chain([(1..n).collect()]) {
            let cut = logits(&path, &tokens, &Setup { cuts: cuts.clone(), ..Setup::default() });
            assert!(cut == whole, "{} cut at {cuts:?}", path.display());
        }
    }
}

#[test]
fn chunks_threads_and_steps_give_the_same_bits() {
    for (path, tokens) in sample(some(), runnable()) {
        let kinds = [
            (KvType::F16.into(), Precision::Fast),
            (KvType::BF16.into(), Precision::Fast),
            (KvType::F32.into(), Precision::Fast),
            (KvType::F16.into(), Precision::Bf16),
            (KvType::Q8_0.into(), Precision::Fast),
            (KvTypes { keys: KvType::Q4_0, values: KvType::Q8_0 }, Precision::Fast),
        ];
        let kinds = kinds.into_iter().filter(|(kv, _)| keeps(super::ENGINE, *kv));
        let options = takes_options(super::ENGINE);
        let mut unrounded = None;
        for (kv, precision) in kinds.filter(|(_, precision)| options || *precision == Precision::Fast) {
            let setup = Setup { kv, precision, ..Setup::default() };
            let whole = logits(&path, &tokens, &setup);
            // A few numbers that are rounded to their other neighbour move logits less than rounding all of them does: of
            // models that rounding moves far, by a 16th of that in all cases of all fixtures; twice as much may be.
            let relative = if options || kv == KvType::F32.into() {
                SUMS
            } else {
                let plain = || logits(&path, &tokens, &Setup { kv: KvType::F32.into(), ..setup.clone() });
                let rounding = apart(&whole, unrounded.get_or_insert_with(plain));
                SUMS + rounding.min(BORDERS.max(rounding / 8.0))
            };
            let ways = [(1, 512), (3, 512), (2, 1), (2, 7), (1, 33), (4, 64), (2, 130)].into_iter();
            let ways = ways.filter(|(_, chunk)| options || *chunk != setup.chunk);
            for (threads, chunk) in chosen(few(1), ways) {
                let other = Stages::load(&path, &Setup { threads, chunk, ..setup.clone() }).unwrap();
                let found = logits_of(&other, &tokens);
                assert!(same_within(&other, relative, &found, &whole), "{} {kv:?} with {threads} threads, chunk {chunk}", path.display());
            }
        }
    }
}

/// Weights lie as asked for, and the logits do not depend on it.
#[test]
fn mapped_and_resident_weights_give_the_same_bits() {
    for (path, tokens) in chosen(some(), runnable()).into_iter().chain(gemma_prompt()) {
        let [mapped, resident] = [Memory::Mapped, Memory::Resident].map(|memory| {
            let setup = Setup { cuts: vec![2], memory, ..Setup::default() };
            let stages = Stages::load(&path, &setup).unwrap();
            let expected = if stages.capabilities.in_place_weights { memory } else { Memory::Mapped };
            assert!(stages.shards.iter().all(|shard| shard.memory() == expected), "{}", path.display());
            takes_options(super::ENGINE).then(|| logits_of(&stages, &tokens))
        });
        assert!(mapped == resident, "{}", path.display());
    }
}

/// The largest logits, asked for alone, are those of all of them.
#[test]
fn the_largest_logits_are_the_same() {
    // Screening concerns large heads only; the fixtures' are too small.
    let screened = gemma_prompt().filter(|_| takes_options(super::ENGINE)).map(|(path, tokens)| (path, tokens, true));
    let all = sample(some(), runnable()).into_iter().chain(chosen(few(0), gemma_prompt())).map(|(path, tokens)| (path, tokens, false));
    for (path, tokens, screen_head) in all.chain(screened) {
        let stages = Stages::load(&path, &Setup { screen_head, ..Setup::default() }).unwrap();
        let (prompt, vocab) = (&tokens[..tokens.len().min(40)], stages.arch.vocab_size);
        let segment = |seq| Segment::new(stages.open(seq), 0, prompt.len());
        let reply = stages.batch(&[segment(0).want_last(Logits::All)], prompt).pop().unwrap();
        let all = reply.logits(0);
        assert!(all.ids.is_empty() && all.width == vocab);
        let mut order: Vec<u32> = (0..vocab as u32).collect();
        let logit = |id: u32| all.data[id as usize];
        order.sort_by(|&a, &b| logit(b).total_cmp(&logit(a)).then(a.cmp(&b)));
        for (i, k) in [1, 2, 41, 300, vocab].into_iter().enumerate() {
            let segment = segment(1 + i as u64).want_last(Logits::Top(k));
            let reply = stages.batch(&[segment], prompt).pop().unwrap();
            let top = reply.logits(0);
            assert_eq!((top.data.len(), top.width, top.ids.len()), (k, k, k));
            assert!(top.ids.iter().map(|id| id.0).eq(order[..k].iter().copied()), "{} {k}", path.display());
            let same = |(id, l): (&TokenId, &f32)| l.to_bits() == logit(id.0).to_bits();
            assert!(top.ids.iter().zip(top.data).all(same), "{} {k}", path.display());
        }
    }
}

#[test]
fn sequences_in_one_batch_do_not_see_each_other() {
    for (path, tokens) in chosen(some(), runnable()) {
        let stages = Stages::load(&path, &Setup { cuts: vec![2], ..Setup::default() }).unwrap();
        let alone: Vec<_> = [5, 9, 1]
            .iter()
            .enumerate()
            .map(|(i, &n)| bits(&stages.feed(stages.open(i as u64), 0, &tokens[i..i + n])))
            .collect();
        let mut segments = Vec::new();
        let mut batch = Vec::new();
        for (i, n) in [5, 9, 1].into_iter().enumerate() {
            segments.push(Segment::new(stages.open(10 + i as u64), 0, n).want_every(Logits::All));
            batch.extend_from_slice(&tokens[i..i + n]);
        }
        segments.swap(0, 2);
        let tokens: Vec<_> = segments
            .iter()
            .flat_map(|s| {
                let i = (s.seq.0 - 10) as usize;
                tokens[i..i + s.rows].to_vec()
            })
            .collect();
        let reply = stages.batch(&segments, &tokens).pop().unwrap();
        for (at, segment) in segments.iter().enumerate() {
            let logits = reply.logits(at);
            let found: Vec<_> = logits.data.chunks_exact(logits.width).map(<[f32]>::to_vec).collect();
            let alone = &alone[(segment.seq.0 - 10) as usize];
            assert!(same(&stages, KvType::F16, &bits(&found), alone), "{} {segment:?}", path.display());
        }
    }
}

/// Truncating to anywhere and feeding again gives the bits of never having gone on.
#[test]
fn truncation_is_exact() {
    for (path, tokens) in sample(some(), runnable()) {
        let setup = Setup { cuts: vec![1], chunk: 16, ..Setup::default() };
        let stages = Stages::load(&path, &setup).unwrap();
        // Long enough for a sliding window to leave several pages behind.
        let tokens: Vec<_> = tokens.iter().copied().cycle().take(400).collect();
        let whole = stages.feed(stages.open(0), 0, &tokens);
        let seq = stages.open(1);
        stages.feed(seq, 0, &tokens);
        let windowed = stages.arch.layers.iter().any(|l| l.attention().and_then(|own| own.window).is_some_and(|w| w.size() < 100));
        for len in chosen(few(2), [399, 390, 256, 255, 100, 17, 1, 0]) {
            let mut kept = len;
            for _ in 0..2 {
                kept = stages.shards.iter().map(|s| s.truncate(seq, kept).unwrap()).min().unwrap();
            }
            stages.shards.iter().for_each(|s| assert_eq!(s.truncate(seq, kept).unwrap(), kept));
            // What a window has left behind is kept for some time only; that it is lost must be reported. States are
            // where they were kept.
            let exact = !windowed && !stages.keeps_states();
            assert!(kept == len || !exact && kept < len, "{}: {len}", path.display());
            // No more than a step before a border of pages is computed again, where the last step was as long.
            assert!(!stages.keeps_states() || len < 390 || kept >= 384, "{}: {kept} of {len}", path.display());
            let again = bits(&stages.feed(seq, kept, &tokens[kept..]));
            assert!(same(&stages, KvType::F16, &again, &bits(&whole[kept..])), "{}: {len}", path.display());
        }
    }
}

/// The real model, where it is, with a prompt.
fn gemma_prompt() -> Option<(std::path::PathBuf, Vec<TokenId>)> {
    let reference = json(&crate::fixtures::root().join("tests/fixtures/gemma3-270m/reference.json"));
    Some((gemma()?, ids(&reference["prompts"][1]["ids"])))
}

#[test]
fn the_real_model_is_the_same_in_stages() {
    let Some((path, tokens)) = gemma_prompt() else { return };
    let whole = logits(&path, &tokens, &Setup::default());
    let cuts = (1..18).map(|cut| vec![cut]).chain([vec![6, 12], (1..18).collect()]);
    for cuts in chosen(few(1), cuts) {
        assert!(
            logits(&path, &tokens, &Setup { cuts: cuts.clone(), ..Setup::default() }) == whole,
            "{cuts:?}"
        );
    }
    for (threads, chunk) in chosen(few(0), [(1, 512), (2, 5)]) {
        let other = Stages::load(&path, &Setup { threads, chunk, ..Setup::default() }).unwrap();
        assert!(same(&other, KvType::F16, &logits_of(&other, &tokens), &whole));
    }
}
