//! Does each segment of a step get what it asked for, wherever it begins and whatever else is in the step?

use skulk::engine::{Logits, PAGE_TOKENS, Reply, Segment, StepCx};
use skulk::{Batch, CancelToken, ErrorKind, KvType, KvTypes, SeqId, TokenId};

use super::splits::{few, runnable, same};
use super::stages::{Setup, Stages, keeps};
use crate::fixtures::chosen;

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// All rows' logits of tokens in a sequence of their own.
fn alone(stages: &Stages, seq: u64, tokens: &[TokenId]) -> Vec<Vec<u32>> {
    stages.feed(stages.open(seq), 0, tokens).iter().map(|row| bits(row)).collect()
}

/// Checkpoints with their longest prompts, each with another way of keeping keys and values.
fn models() -> Vec<(std::path::PathBuf, Vec<TokenId>, KvTypes)> {
    let apart = KvTypes { keys: KvType::Q8_0, values: KvType::Q4_0 };
    let types: [KvTypes; 5] =
        [KvType::BF16.into(), KvType::F16.into(), KvType::Q8_0.into(), apart, KvType::F32.into()];
    let types: Vec<_> = types.into_iter().filter(|kv| keeps(super::ENGINE, *kv)).collect();
    let all = runnable().into_iter().zip(types.into_iter().cycle());
    chosen(few(2), all.map(|((path, tokens), kv)| (path, tokens, kv)))
}

#[test]
fn segments_get_what_they_want_in_one_step() {
    for (path, tokens, kv) in models() {
        let stages = Stages::load(&path, &Setup { cuts: vec![2], kv, ..Setup::default() }).unwrap();
        let parts = [&tokens[..7], &tokens[1..6], &tokens[2..11], &tokens[..3], &tokens[4..5]];
        let expected: Vec<_> = parts.iter().zip(0..).map(|(part, seq)| alone(&stages, seq, part)).collect();
        let segment = |i: usize| Segment::new(stages.open(20 + i as u64), 0, parts[i].len());
        let segments = [
            segment(0).want_every(Logits::All),
            segment(1),
            segment(2).want(3..8, Logits::Top(4)),
            segment(3).want(0..2, Logits::All),
            segment(4).want_last(Logits::Top(300)),
        ];
        let reply = stages.batch(&segments, &parts.concat()).pop().unwrap();
        assert!(reply.logits(1).data.is_empty() && reply.logits(99).data.is_empty());
        for (i, segment) in segments.iter().enumerate() {
            let found = reply.logits(i);
            for (at, row) in segment.wanted.clone().enumerate() {
                let expected = &expected[i][row];
                let what = format!("{} segment {i} row {row}", path.display());
                match segment.logits {
                    Logits::All => assert!(same(&stages, kv, &bits(found.row(at).unwrap()), expected), "{what}"),
                    _ => {
                        let (logits, ids) = (found.row(at).unwrap(), found.row_ids(at).unwrap());
                        assert!(logits.is_sorted_by(|a, b| a >= b), "{what}");
                        let listed: Vec<_> = ids.iter().map(|id| expected[id.0 as usize]).collect();
                        assert!(same(&stages, kv, &bits(logits), &listed), "{what}");
                        let most = expected.iter().map(|x| f32::from_bits(*x)).fold(f32::MIN, f32::max);
                        assert!((logits[0] - most).abs() <= 1e-3 * most.abs(), "{what}: {} of {most}", logits[0]);
                    }
                }
            }
        }
    }
}

/// Of a shortlist the largest logits are among those of all, with their tokens; what is none is refused.
#[test]
fn the_largest_of_a_shortlist_are_found() {
    for (path, tokens, kv) in models() {
        let stages = Stages::load(&path, &Setup { kv, ..Setup::default() }).unwrap();
        let expected = alone(&stages, 0, &tokens[..5]);
        let vocab = expected[4].len() as u32;
        let segments = [Segment::new(stages.open(1), 0, 5).want_last(Logits::Top(3))];
        let mut reply = Reply::new();
        let mut step = |shortlist: &[std::ops::Range<u32>]| {
            let batch = Batch::new(&segments, &tokens[..5]).shortlist(shortlist);
            stages.shards[0].forward(&batch, &mut reply, &StepCx::new(&CancelToken::new()))?;
            let found = reply.logits(0);
            Ok::<_, skulk::Error>((bits(found.row(0).unwrap()), found.row_ids(0).unwrap().to_vec()))
        };
        let only = |range: std::ops::Range<u32>| vec![range];
        for shortlist in [vec![], only(0..vocab), vec![3..20, 40..41, vocab - 9..vocab]] {
            let (logits, ids) = step(&shortlist).unwrap();
            let own: Vec<_> = ids.iter().map(|id| expected[4][id.0 as usize]).collect();
            assert!(same(&stages, kv, &logits, &own), "{}", path.display());
            // None on the list is larger than those found.
            let least = f32::from_bits(logits[2]);
            let larger = |id: &u32| f32::from_bits(expected[4][*id as usize]) > least + 1e-3 * least.abs();
            let all = if shortlist.is_empty() { only(0..vocab) } else { shortlist };
            let missed = all.into_iter().flatten().filter(larger).find(|id| !ids.contains(&TokenId(*id)));
            assert_eq!(missed, None, "{}", path.display());
        }
        for wrong in [only(5..5), vec![7..9, 8..10], only(0..vocab + 1), vec![20..30, 3..4]] {
            assert_eq!(step(&wrong).unwrap_err().kind(), ErrorKind::InvalidArgument, "{wrong:?}");
        }
    }
}

#[test]
fn taps_are_what_stages_hand_over() {
    for (path, tokens, kv) in models() {
        let n = tokens.len().min(20);
        let setup = Setup { cuts: vec![1, 2], kv, ..Setup::default() };
        let stages = Stages::load(&path, &setup).unwrap();
        let segments = [
            Segment::new(stages.open(0), 0, n).want(3..n, Logits::Top(1)).tap(3..n),
            Segment::new(stages.open(1), 0, 4).want_every(Logits::All),
            Segment::new(stages.open(2), 0, 5).tap(4..5),
        ];
        let all = [&tokens[..n], &tokens[..4], &tokens[..5]].concat();
        let mut before: Option<Reply> = None;
        for (at, shard) in stages.shards.iter().enumerate() {
            let mut reply = Reply::new();
            let batch = Batch::new(&segments, &all).taps(&[1, 0]);
            let batch = before.as_ref().map_or(batch, |reply| batch.hidden(reply.hidden().data()));
            shard.forward(&batch, &mut reply, &StepCx::new(&CancelToken::new())).unwrap();
            let own: Vec<_> = [0, 1].into_iter().filter(|layer| shard.spec().layers.contains(layer)).collect();
            for layer in [0, 1] {
                assert_eq!(reply.tap(0, layer).is_some(), own.contains(&layer), "{}", path.display());
                assert!(reply.tap(1, layer).is_none());
            }
            // Behind its last layer a stage hands over its rows.
            if at + 1 < stages.shards.len() {
                let (last, hidden) = (*own.last().unwrap(), reply.hidden());
                assert_eq!(hidden.width(), stages.arch.row_width());
                // Of several residual streams the first is tapped.
                let rows = |rows: std::ops::Range<usize>| -> Vec<f32> {
                    rows.flat_map(|row| &hidden.row(row).unwrap()[..stages.arch.hidden_size]).copied().collect()
                };
                assert_eq!(reply.tap(0, last).unwrap(), rows(3..n));
                assert_eq!(reply.tap(2, last).unwrap(), rows(n + 8..n + 9));
            }
            before = Some(reply);
        }
        // Where nobody asks, there is none.
        let untapped = [Segment::new(SeqId(0), n, 1)];
        let batch = Batch::new(&untapped, &tokens[..1]).taps(&[0]);
        let mut reply = Reply::new();
        stages.shards[0].forward(&batch, &mut reply, &StepCx::new(&CancelToken::new())).unwrap();
        assert!(reply.tap(0, 0).is_none());
    }
}

#[test]
fn steps_may_begin_again_anywhere_they_have_been() {
    for (path, tokens, kv) in models() {
        let stages = Stages::load(&path, &Setup { cuts: vec![1], chunk: 40, kv, ..Setup::default() }).unwrap();
        let tokens: Vec<_> = tokens.into_iter().cycle().take(200).collect();
        let expected = stages.feed(stages.open(0), 0, &tokens);
        let seq = stages.open(1);
        stages.feed(seq, 0, &tokens[..190]);
        // Repeated, shortened, and with another end before that.
        for start in [150, 160, 150, 141] {
            let wrong: Vec<_> = tokens[start..start + 3].iter().rev().copied().collect();
            if stages.keeps_states() {
                // A step back is one that was kept, and the step before may always be repeated.
                stages.go_back(seq, &tokens[..start]);
            }
            stages.feed(seq, start, &wrong);
            let found = stages.feed(seq, start, &tokens[start..start + 10]);
            for (found, expected) in found.iter().zip(&expected[start..]) {
                assert!(same(&stages, kv, &bits(found), &bits(expected)), "{} from {start}", path.display());
            }
        }
        let late = [Segment::new(seq, 250, 1)];
        let mut reply = Reply::new();
        let forward = stages.shards[0].forward(&Batch::new(&late, &tokens[..1]), &mut reply, &StepCx::new(&CancelToken::new()));
        assert_eq!(forward.unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
}

#[test]
fn forks_go_on_as_if_alone() {
    for (path, tokens, kv) in models() {
        let stages = Stages::load(&path, &Setup { cuts: vec![2], chunk: 40, kv, ..Setup::default() }).unwrap();
        let text: Vec<_> = tokens.iter().copied().cycle().take(160).collect();
        let other: Vec<_> = text.iter().rev().copied().collect();
        let seq = stages.open(0);
        stages.feed(seq, 0, &text[..150]);
        for (i, at) in [150, 149, PAGE_TOKENS * 2, 140].into_iter().enumerate() {
            let fork = SeqId(100 + i as u64);
            if stages.keeps_states() {
                // A step back is one that was kept.
                stages.go_back(seq, &text[..150]);
            }
            let kept: Vec<_> = stages.shards.iter().map(|shard| shard.fork(seq, at, fork).unwrap()).collect();
            if stages.keeps_states() {
                assert!(kept.iter().all(|len| *len == kept[0] && *len <= at && *len >= 128.min(at)), "{kept:?} of {at}");
                if kept[0] < at {
                    stages.feed(fork, kept[0], &text[kept[0]..at]);
                }
            } else {
                assert_eq!(kept, vec![at; kept.len()], "{}", path.display());
            }
            // Each writes behind what they share, in turns.
            let mut of_fork = stages.feed(fork, at, &other[..3]);
            let mut of_first = stages.feed(seq, 150, &text[150..153]);
            of_fork.extend(stages.feed(fork, at + 3, &other[3..9]));
            of_first.extend(stages.feed(seq, 153, &text[153..159]));
            let changed = [&text[..at], &other[..9]].concat();
            let expected = [stages.feed(stages.open(10 + 2 * i as u64), 0, &changed), stages.feed(stages.open(11 + 2 * i as u64), 0, &text[..159])];
            for (found, expected) in [(of_fork, &expected[0][at..]), (of_first, &expected[1][150..])] {
                for (found, expected) in found.iter().zip(expected) {
                    assert!(same(&stages, kv, &bits(found), &bits(expected)), "{} at {at}", path.display());
                }
            }
        }
        let errors = [(seq, 10_000, SeqId(200)), (SeqId(777), 1, SeqId(200)), (seq, 1, SeqId(100))];
        for (from, at, to) in errors {
            assert_eq!(stages.shards[0].fork(from, at, to).unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
    }
}
