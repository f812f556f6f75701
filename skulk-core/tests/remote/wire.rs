//! Are frames those of LARQL, byte for byte, and are all others refused?

use skulk::remote::wire::{BlocksBuf, Q8kReply, Q8kRequest, WalkLayers, WalkReply, WalkRequest, WireType};
use skulk::{ErrorKind, Result};

use super::frames::{self, Frame, refused};
use super::{recorded, root};

/// Elements of a row of the recorded models.
const HIDDEN: usize = 256;

/// Which frame each recorded body is.
const RECORDED: &[(&str, &str)] = &[
    ("walk-request", "llama512-ffnonly-i8/wf_bin_f32.req.bin"),
    ("walk-request", "llama512-ffnonly-i8/wf_bin_f32_seq2.req.bin"),
    ("walk-request", "llama512-ffnonly-i8/wf_bin_batch.req.bin"),
    ("walk-request", "llama512-ffnonly-i8/wf_bin_batch1.req.bin"),
    ("walk-request", "llama512-ffnonly-i8/wf_bin_x_k8.req.bin"),
    ("walk-reply-f32", "llama512-ffnonly-i8/wf_bin_f32.resp.bin"),
    ("walk-reply-f32", "llama512-ffnonly-i8/wf_bin_f32_seq2.resp.bin"),
    ("walk-reply-f32", "llama512-ffnonly-i8/wf_bin_batch.resp.bin"),
    ("walk-reply-f32", "llama512-ffnonly-i8/wf_bin_batch1.resp.bin"),
    ("walk-reply-f16", "llama512-ffnonly-i8/wf_bin_f16.resp.bin"),
    ("walk-reply-f16", "llama512-ffnonly-i8/wf_bin_batch_f16.resp.bin"),
    ("walk-reply-i8", "llama512-ffnonly-i8/wf_bin_i8.resp.bin"),
    ("q8k-request", "llama512-ffnonly-i8/wf_q8k.req.bin"),
    ("q8k-reply", "llama512-ffnonly-i8/wf_q8k.resp.bin"),
    ("expert-request", "gemma4moe-q4k/expert_batch_bin.req.bin"),
    ("expert-reply", "gemma4moe-q4k/expert_batch_bin.resp.bin"),
    ("layer-request-f32", "gemma4moe-q4k/layer_batch.req.bin"),
    ("layer-reply-f32", "gemma4moe-q4k/layer_batch.resp.bin"),
    ("layer-request-f16", "gemma4moe-q4k/layer_batch_f16.req.bin"),
    ("layer-reply-f16", "gemma4moe-q4k/layer_batch_f16.resp.bin"),
    ("multi-request", "gemma4moe-q4k/multi_layer_batch.req.bin"),
    ("multi-reply", "gemma4moe-q4k/multi_layer_batch.resp.bin"),
    ("multi-request-q8k", "gemma4moe-q4k/multi_layer_batch_q8k.req.bin"),
    ("multi-reply", "gemma4moe-q4k/multi_layer_batch_q8k.resp.bin"),
    ("embed-request", "llama512-ffnonly-i8/embed_bin.req.bin"),
    ("embed-reply", "llama512-ffnonly-i8/embed_bin.resp.bin"),
];

fn frame(name: &str) -> &'static Frame {
    frames::ALL.iter().find(|(found, _)| *found == name).unwrap()
}

fn each(check: impl Fn(&str, fn(&[u8], usize) -> Result<Option<Vec<u8>>>, Vec<u8>)) {
    for (name, path) in RECORDED {
        check(&format!("{name} {path}"), frame(name).1, recorded(path));
    }
}

#[test]
fn recorded_frames_are_read_and_written_again_byte_for_byte() {
    let read: std::collections::BTreeSet<_> = RECORDED.iter().map(|(name, _)| *name).collect();
    assert_eq!(read.len(), frames::ALL.len(), "every frame was recorded");
    each(|name, read, bytes| match read(&bytes, HIDDEN).unwrap() {
        Some(again) => assert_eq!(again, bytes, "{name}"),
        None => assert!(name.starts_with("walk-reply-i8"), "{name}"),
    });
}

#[test]
fn replies_in_f16_and_i8_are_rounded_as_larql_rounds() {
    let decode = |path: &str| {
        let bytes = recorded(path);
        let reply = WalkReply::decode(&bytes, WireType::F32, HIDDEN).unwrap();
        let entries = reply.entries().map(|(layer, rows)| {
            let mut values = Vec::new();
            rows.append_to(&mut values).unwrap();
            (layer, values)
        });
        entries.collect::<Vec<_>>()
    };
    for (exact, rounded, wire) in [
        ("wf_bin_f32", "wf_bin_f16", WireType::F16),
        ("wf_bin_batch", "wf_bin_batch_f16", WireType::F16),
        ("wf_bin_f32", "wf_bin_i8", WireType::I8),
    ] {
        let entries = decode(&format!("llama512-ffnonly-i8/{exact}.resp.bin"));
        let bytes = recorded(&format!("llama512-ffnonly-i8/{rounded}.resp.bin"));
        let latency = WalkReply::decode(&bytes, wire, HIDDEN).unwrap().latency_ms();
        let mut out = Vec::new();
        let entries = entries.iter().map(|(layer, values)| (*layer, values.as_slice()));
        WalkReply::encode(&mut out, wire, latency, HIDDEN, entries).unwrap();
        assert_eq!(out, bytes, "{rounded}");
    }
}

#[test]
fn requests_are_those_of_their_values() {
    // What each of the recorded requests says, not only that it is read and written alike.
    let bytes = recorded("llama512-ffnonly-i8/wf_bin_batch.req.bin");
    let request = WalkRequest::decode(&bytes, HIDDEN).unwrap();
    assert!(request.batch);
    assert_eq!(request.layers.iter().collect::<Vec<_>>(), [0, 1]);
    assert_eq!((request.rows.rows(), request.top_k), (1, 0));
    let bytes = recorded("llama512-ffnonly-i8/wf_bin_f32_seq2.req.bin");
    let request = WalkRequest::decode(&bytes, HIDDEN).unwrap();
    assert_eq!((request.batch, request.rows.rows(), request.layers.len()), (false, 2, 1));
}

#[test]
fn rows_are_rounded_to_blocks_of_integers() {
    let bytes = recorded("llama512-ffnonly-i8/wf_q8k.req.bin");
    let request = Q8kRequest::decode(&bytes, HIDDEN).unwrap();
    let (layer, blocks) = request.rows().next().unwrap();
    let mut row = vec![0.0; HIDDEN];
    blocks.copy_to(&mut row).unwrap();
    // What was rounded rounds to itself, its scale up to the last bit.
    let mut buf = BlocksBuf::new();
    let mut again = vec![0.0; HIDDEN];
    let rounded = buf.round(&row).unwrap();
    rounded.copy_to(&mut again).unwrap();
    for (a, b) in row.iter().zip(&again) {
        assert!((a - b).abs() <= a.abs() * 1e-6, "{a} {b}");
    }
    let mut out = Vec::new();
    Q8kRequest::encode(&mut out, [(layer, rounded)].into_iter()).unwrap();
    assert_eq!(out[..12 + HIDDEN], bytes[..12 + HIDDEN], "the integers");
    assert_eq!(out[16 + HIDDEN..], bytes[16 + HIDDEN..], "the sums");
    for wrong in [&row[1..], &[][..], &[f32::NAN; 256]] {
        assert_eq!(buf.round(wrong).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
}

#[test]
fn every_frame_cut_anywhere_or_with_more_behind_it_is_refused() {
    each(|name, read, bytes| {
        for end in 0..bytes.len() {
            let error = read(&bytes[..end], HIDDEN).expect_err(name);
            refused(&error);
        }
        refused(&read(&[&bytes[..], &[0]].concat(), HIDDEN).expect_err(name));
    });
}

#[test]
fn another_width_is_refused() {
    each(|name, read, bytes| {
        if name.starts_with("embed-request") {
            return;
        }
        for hidden in [0, 1, HIDDEN - 1, HIDDEN + 1, 2 * HIDDEN, usize::MAX / 2, usize::MAX] {
            // Two rows can be one of twice the width where the frame does not say.
            if let Err(error) = read(&bytes, hidden) {
                refused(&error);
            } else {
                panic!("{name} with rows of {hidden}");
            }
        }
    });
}

#[test]
fn any_word_of_a_head_may_say_anything() {
    each(|name, read, bytes| {
        for at in (0..bytes.len().min(28)).step_by(4) {
            for word in [0, 1, 2, 255, 256, 257, 1 << 16, 1 << 24, 1 << 30, 1 << 31, u32::MAX - 1, u32::MAX] {
                let mut changed = bytes.clone();
                changed[at..at + 4].copy_from_slice(&u32::to_le_bytes(word));
                match read(&changed, HIDDEN) {
                    Err(error) => refused(&error),
                    // Layers, experts, times and values are what they are.
                    Ok(Some(again)) => assert_eq!(again, changed, "{name} {at} {word}"),
                    Ok(None) => {}
                }
            }
        }
    });
}

#[test]
fn numbers_that_are_none_are_refused() {
    // The real server's, of a matrix that it multiplied with as if it were another type's.
    let bytes = recorded("llama512-q4k/wf_q8k.resp.bin");
    let reply = Q8kReply::decode(&bytes, HIDDEN).unwrap();
    let (_, row) = reply.rows().next().unwrap();
    let mut out = vec![1.0; 3];
    let error = row.append_to(&mut out).unwrap_err();
    refused(&error);
    assert_eq!(out, [1.0; 3]);
    assert!(error.context().iter().any(|(key, _)| *key == "element"), "{error}");

    let hidden = 4;
    for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut bytes = Vec::new();
        WalkReply::encode(&mut bytes, WireType::F32, 0.0, hidden, [(0, &[1.0; 4][..])].into_iter()).unwrap();
        let last = bytes.len() - 4;
        bytes[last..].copy_from_slice(&wrong.to_le_bytes());
        let reply = WalkReply::decode(&bytes, WireType::F32, hidden).unwrap();
        refused(&reply.entries().next().unwrap().1.copy_to(&mut [0.0; 4]).unwrap_err());
        // Nor are they written.
        let written =
            WalkReply::encode(&mut Vec::new(), WireType::F32, 0.0, 1, [(0, &[wrong][..])].into_iter());
        assert_eq!(written.unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    // What half precision rounds to infinity is finite in the other types.
    let large = [65519.0, -65520.0];
    assert!(WireType::F16.holds(&large[..1]) && !WireType::F16.holds(&large));
    assert!(WireType::I8.holds(&large));
}

#[test]
fn zero_points_are_zero_and_scales_of_zeros_are_one() {
    let mut bytes = Vec::new();
    let entry = [(3, &[0.0, 0.0][..])];
    WalkReply::encode(&mut bytes, WireType::I8, 0.0, 2, entry.into_iter()).unwrap();
    assert_eq!(bytes[12..16], 1f32.to_le_bytes());
    bytes[16..20].copy_from_slice(&0.5f32.to_le_bytes());
    let reply = WalkReply::decode(&bytes, WireType::I8, 2).unwrap();
    refused(&reply.entries().next().unwrap().1.copy_to(&mut [0.0; 2]).unwrap_err());
}

#[test]
fn what_a_frame_cannot_hold_is_not_written() {
    let mut out = Vec::new();
    for (layers, values) in [
        (WalkLayers::One(u32::MAX), &[0.0; 4][..]),
        (WalkLayers::One(0), &[0.0; 3]),
        (WalkLayers::One(0), &[]),
        (WalkLayers::Batch(&[]), &[0.0; 4]),
    ] {
        let error = WalkRequest::encode(&mut out, layers, 1, 4, values).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
}

#[test]
fn hostile_frames_are_refused() {
    let folder = root().join("tests/fuzz/regressions/frames");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // Their names begin with the frame's.
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let (_, read) = frames::ALL.iter().find(|(frame, _)| name.starts_with(&format!("{frame}."))).unwrap();
        refused(&read(&std::fs::read(&path).unwrap(), HIDDEN).expect_err(&name));
        seen += 1;
    }
    assert!(seen >= 12, "{seen}");
}

#[test]
fn changed_frames_keep_their_promises_or_are_refused() {
    // A fixed seed: what fuzzing does, for a while.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for (_, path) in RECORDED {
        let bytes = recorded(path);
        for _ in 0..1000 {
            let mut changed = bytes.clone();
            for _ in 0..=next() % 3 {
                let at = next() as usize % changed.len();
                // Heads more often than values.
                let at = if next() % 2 == 0 { at % 32 } else { at };
                let at = at.min(changed.len() - 1);
                changed[at] ^= 1 << (next() % 8);
            }
            changed.truncate(if next() % 4 == 0 { next() as usize % changed.len() } else { changed.len() });
            frames::exercise("", &changed, HIDDEN);
        }
    }
}
