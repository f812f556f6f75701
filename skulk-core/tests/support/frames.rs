//! Do frames keep their promises? What fuzzing and the tests both run on bytes from anywhere.

#![allow(unreachable_pub)] // Shared by path, each time as a private module.

use skulk::remote::wire::grpc::{self, BatchReply, BatchRequest, LayerInput, LayerOutput};
use skulk::remote::wire::{
    EmbedReply, EmbedRequest, ExpertReply, ExpertRequest, ExpertRow, LayerReply, LayerRequest, MultiReply,
    MultiRequest, MultiTask, Q8kReply, Q8kRequest, Rows, WalkLayers, WalkReply, WalkRequest, WireType,
};
use skulk::{ErrorKind, Result};

/// The numbers of rows; none where they are not finite.
fn numbers(rows: Rows<'_>) -> Option<Vec<f32>> {
    let mut numbers = vec![7.0];
    match rows.append_to(&mut numbers) {
        Ok(()) => {
            assert_eq!(numbers.len(), rows.len() + 1);
            assert!(numbers.iter().all(|number| number.is_finite()));
            numbers.remove(0);
            Some(numbers)
        }
        Err(error) => {
            refused(&error);
            assert_eq!(numbers, [7.0], "what was there is as it was");
            None
        }
    }
}

/// A refusal says which field of which frame.
pub fn refused(error: &skulk::Error) {
    assert_eq!(error.kind(), ErrorKind::PeerFailed, "{error}");
    for key in ["frame", "field"] {
        assert!(error.context().iter().any(|(found, _)| *found == key), "{error}");
    }
    assert!(error.message().starts_with("expected "), "{error}");
}

/// What a frame is called in tests, and what reads bytes as it and, where they are one of finite numbers, writes them
/// again: `None` where they are not.
pub type Frame = (&'static str, fn(&[u8], usize) -> Result<Option<Vec<u8>>>);

/// Every frame.
pub const ALL: &[Frame] = &[
    ("walk-request", walk_request),
    ("walk-reply-f32", |bytes, hidden| walk_reply(bytes, hidden, WireType::F32)),
    ("walk-reply-f16", |bytes, hidden| walk_reply(bytes, hidden, WireType::F16)),
    ("walk-reply-i8", |bytes, hidden| walk_reply(bytes, hidden, WireType::I8)),
    ("q8k-request", q8k_request),
    ("q8k-reply", q8k_reply),
    ("expert-request", expert_request),
    ("expert-reply", expert_reply),
    ("layer-request-f32", |bytes, hidden| layer_request(bytes, hidden, WireType::F32)),
    ("layer-request-f16", |bytes, hidden| layer_request(bytes, hidden, WireType::F16)),
    ("layer-reply-f32", |bytes, hidden| layer_reply(bytes, hidden, WireType::F32)),
    ("layer-reply-f16", |bytes, hidden| layer_reply(bytes, hidden, WireType::F16)),
    ("multi-request", multi_request),
    ("multi-request-q8k", multi_request_q8k),
    ("multi-reply", multi_reply),
    ("embed-request", embed_request),
    ("embed-reply", embed_reply),
];

/// Reads bytes as each frame whose name begins so. What is one of finite numbers is written again as it was, but for
/// what several bytes say alike.
pub fn exercise(family: &str, bytes: &[u8], hidden: usize) -> usize {
    let mut taken = 0;
    for (name, read) in ALL.iter().filter(|(name, _)| name.starts_with(family)) {
        match read(bytes, hidden) {
            Err(error) => refused(&error),
            Ok(again) => {
                taken += 1;
                if let Some(again) = again {
                    assert_eq!(again, bytes, "{name}");
                }
            }
        }
    }
    taken
}

fn walk_request(bytes: &[u8], hidden: usize) -> Result<Option<Vec<u8>>> {
    let request = WalkRequest::decode(bytes, hidden)?;
    let layers: Vec<u32> = request.layers.iter().collect();
    assert_eq!(layers.len(), request.layers.len());
    let layers = if request.batch { WalkLayers::Batch(&layers) } else { WalkLayers::One(layers[0]) };
    let Some(values) = numbers(request.rows) else { return Ok(None) };
    let mut out = Vec::new();
    WalkRequest::encode(&mut out, layers, request.top_k, hidden, &values).unwrap();
    Ok(Some(out))
}

fn walk_reply(bytes: &[u8], hidden: usize, wire: WireType) -> Result<Option<Vec<u8>>> {
    let reply = WalkReply::decode(bytes, wire, hidden)?;
    let entries: Vec<_> = reply.entries().collect();
    assert_eq!(entries.len(), reply.len());
    let entries: Option<Vec<_>> =
        entries.into_iter().map(|(layer, rows)| Some((layer, numbers(rows)?))).collect();
    let Some(entries) = entries else { return Ok(None) };
    let mut out = Vec::new();
    let entries = entries.iter().map(|(layer, values)| (*layer, values.as_slice()));
    WalkReply::encode(&mut out, wire, reply.latency_ms(), hidden, entries).unwrap();
    // Scales are made anew of what was rounded, and a batch of one is written as one.
    let same = wire != WireType::I8 && (reply.len() != 1 || bytes[..4] != [0xff; 4]);
    Ok(same.then_some(out))
}

fn q8k_request(bytes: &[u8], hidden: usize) -> Result<Option<Vec<u8>>> {
    let request = Q8kRequest::decode(bytes, hidden)?;
    let rows: Vec<_> = request.rows().collect();
    assert_eq!(rows.len(), request.len());
    let mut values = vec![0.0; hidden];
    for (_, blocks) in &rows {
        match blocks.copy_to(&mut values) {
            Ok(()) => assert!(values.iter().all(|value| value.is_finite())),
            Err(error) => refused(&error),
        }
    }
    let mut out = Vec::new();
    Q8kRequest::encode(&mut out, rows.into_iter()).unwrap();
    Ok(Some(out))
}

/// Layers with a row each.
fn layers(rows: Vec<(u32, Rows<'_>)>) -> Option<Vec<(u32, Vec<f32>)>> {
    rows.into_iter().map(|(layer, rows)| Some((layer, numbers(rows)?))).collect()
}

fn q8k_reply(bytes: &[u8], hidden: usize) -> Result<Option<Vec<u8>>> {
    let reply = Q8kReply::decode(bytes, hidden)?;
    let rows: Vec<_> = reply.rows().collect();
    assert_eq!(rows.len(), reply.len());
    let Some(rows) = layers(rows) else { return Ok(None) };
    let mut out = Vec::new();
    Q8kReply::encode(&mut out, hidden, rows.iter().map(|(layer, row)| (*layer, row.as_slice()))).unwrap();
    Ok(Some(out))
}

fn multi_reply(bytes: &[u8], hidden: usize) -> Result<Option<Vec<u8>>> {
    let reply = MultiReply::decode(bytes, hidden)?;
    let rows: Vec<_> = reply.rows().collect();
    assert_eq!(rows.len(), reply.len());
    let Some(rows) = layers(rows) else { return Ok(None) };
    let mut out = Vec::new();
    MultiReply::encode(&mut out, hidden, rows.iter().map(|(layer, row)| (*layer, row.as_slice()))).unwrap();
    Ok(Some(out))
}

/// The same with numbers; none where some are not finite.
fn expert_rows<'a>(rows: impl Iterator<Item = ExpertRow<Rows<'a>>>) -> Option<Vec<ExpertRow<Vec<f32>>>> {
    rows.map(|ExpertRow { layer, expert, values }| {
        Some(ExpertRow { layer, expert, values: numbers(values)? })
    })
    .collect()
}

fn borrowed(row: &ExpertRow<Vec<f32>>) -> ExpertRow<&[f32]> {
    ExpertRow { layer: row.layer, expert: row.expert, values: &row.values }
}

fn expert_request(bytes: &[u8], hidden: usize) -> Result<Option<Vec<u8>>> {
    let request = ExpertRequest::decode(bytes, hidden)?;
    assert_eq!(request.rows().count(), request.len());
    let Some(rows) = expert_rows(request.rows()) else { return Ok(None) };
    let mut out = Vec::new();
    ExpertRequest::encode(&mut out, hidden, rows.iter().map(borrowed)).unwrap();
    Ok(Some(out))
}

fn expert_reply(bytes: &[u8], hidden: usize) -> Result<Option<Vec<u8>>> {
    let reply = ExpertReply::decode(bytes, hidden)?;
    assert_eq!(reply.rows().count(), reply.len());
    let Some(rows) = expert_rows(reply.rows()) else { return Ok(None) };
    let mut out = Vec::new();
    ExpertReply::encode(&mut out, reply.latency_ms(), hidden, rows.iter().map(borrowed)).unwrap();
    Ok(Some(out))
}

fn layer_request(bytes: &[u8], hidden: usize, wire: WireType) -> Result<Option<Vec<u8>>> {
    let request = LayerRequest::decode(bytes, wire, hidden)?;
    let experts: Vec<_> = request.experts().collect();
    assert!(!experts.is_empty());
    let Some(row) = numbers(request.row()) else { return Ok(None) };
    let mut out = Vec::new();
    LayerRequest::encode(&mut out, wire, request.layer(), &row, experts.into_iter()).unwrap();
    Ok(Some(out))
}

fn layer_reply(bytes: &[u8], hidden: usize, wire: WireType) -> Result<Option<Vec<u8>>> {
    let reply = LayerReply::decode(bytes, wire, hidden)?;
    let Some(row) = numbers(reply.row) else { return Ok(None) };
    let mut out = Vec::new();
    LayerReply::encode(&mut out, wire, reply.latency_ms, &row).unwrap();
    Ok(Some(out))
}

fn multi_request(bytes: &[u8], hidden: usize) -> Result<Option<Vec<u8>>> {
    let request = MultiRequest::decode(bytes, hidden)?;
    assert_eq!(request.tasks().count(), request.len());
    let tasks: Option<Vec<_>> = request
        .tasks()
        .map(|task| {
            let experts: Vec<u32> = task.experts.iter().collect();
            Some((task.layer, numbers(task.row)?, experts, numbers(task.weights)?))
        })
        .collect();
    let Some(tasks) = tasks else { return Ok(None) };
    let mut out = Vec::new();
    let tasks = tasks.iter().map(|(layer, row, experts, weights)| MultiTask {
        layer: *layer,
        row: row.as_slice(),
        experts: experts.as_slice(),
        weights: weights.as_slice(),
    });
    MultiRequest::encode(&mut out, tasks).unwrap();
    Ok(Some(out))
}

fn multi_request_q8k(bytes: &[u8], hidden: usize) -> Result<Option<Vec<u8>>> {
    let request = MultiRequest::decode_q8k(bytes, hidden)?;
    let tasks: Option<Vec<_>> = request
        .tasks()
        .map(|task| {
            let experts: Vec<u32> = task.experts.iter().collect();
            Some((task.layer, task.row, experts, numbers(task.weights)?))
        })
        .collect();
    let Some(tasks) = tasks else { return Ok(None) };
    let mut out = Vec::new();
    let tasks = tasks.iter().map(|(layer, row, experts, weights)| MultiTask {
        layer: *layer,
        row: *row,
        experts: experts.as_slice(),
        weights: weights.as_slice(),
    });
    MultiRequest::encode_q8k(&mut out, tasks).unwrap();
    Ok(Some(out))
}

fn embed_request(bytes: &[u8], _: usize) -> Result<Option<Vec<u8>>> {
    let tokens: Vec<u32> = EmbedRequest::decode(bytes)?.tokens.iter().collect();
    let mut out = Vec::new();
    EmbedRequest::encode(&mut out, &tokens).unwrap();
    Ok(Some(out))
}

fn embed_reply(bytes: &[u8], hidden: usize) -> Result<Option<Vec<u8>>> {
    let Some(values) = numbers(EmbedReply::decode(bytes, hidden)?.rows) else { return Ok(None) };
    let mut out = Vec::new();
    EmbedReply::encode(&mut out, hidden, &values).unwrap();
    Ok(Some(out))
}

/// Every message of gRPC. Others than those of this library say some things otherwise, so that what is read is written
/// again and read once more.
pub const MESSAGES: &[Frame] = &[
    ("batch-request", batch_request),
    ("batch-reply", batch_reply),
    ("layer-input", layer_input),
    ("layer-output", layer_output),
];

/// Reads bytes as each message, behind a prefix and without. What is one of finite numbers is written, and the same again.
pub fn exercise_messages(bytes: &[u8], hidden: usize) -> usize {
    let mut taken = 0;
    let mut rest = bytes;
    loop {
        match grpc::split(rest, 1 << 20) {
            Ok(Some((message, behind))) => {
                assert!(message.len() + behind.len() + 5 == rest.len());
                rest = behind;
            }
            Ok(None) => break,
            Err(error) => {
                refused(&error);
                break;
            }
        }
    }
    for (name, read) in MESSAGES {
        match read(bytes, hidden) {
            Err(error) => refused(&error),
            Ok(again) => {
                taken += 1;
                if let Some(again) = again {
                    let once_more = read(&again, hidden).unwrap_or_else(|e| panic!("{name}: {e}"));
                    assert_eq!(once_more.as_ref(), Some(&again), "{name}");
                }
            }
        }
    }
    taken
}

/// What was written behind its prefix.
fn message(framed: &[u8]) -> Vec<u8> {
    let (message, rest) = grpc::split(framed, usize::MAX).unwrap().unwrap();
    assert!(rest.is_empty() && framed.len() == message.len() + 5);
    message.to_vec()
}

fn batch_request(bytes: &[u8], hidden: usize) -> Result<Option<Vec<u8>>> {
    let request = BatchRequest::decode(bytes, hidden)?;
    assert_eq!(request.rows().count(), request.len());
    let Some(rows) = expert_rows(request.rows()) else { return Ok(None) };
    let mut out = Vec::new();
    BatchRequest::encode(&mut out, hidden, rows.iter().map(borrowed)).unwrap();
    Ok(Some(message(&out)))
}

fn batch_reply(bytes: &[u8], hidden: usize) -> Result<Option<Vec<u8>>> {
    let reply = BatchReply::decode(bytes, hidden)?;
    assert_eq!(reply.rows().count(), reply.len());
    let Some(rows) = expert_rows(reply.rows()) else { return Ok(None) };
    let mut out = Vec::new();
    BatchReply::encode(&mut out, reply.latency_ms(), hidden, rows.iter().map(borrowed)).unwrap();
    Ok(Some(message(&out)))
}

fn layer_input(bytes: &[u8], hidden: usize) -> Result<Option<Vec<u8>>> {
    let input = LayerInput::decode(bytes, hidden)?;
    let experts: Vec<_> = input.experts().collect();
    assert_eq!(experts.len(), input.len());
    if let Some(norm) = input.norm() {
        assert!(norm.offset.is_finite() && norm.eps >= 0.0 && norm.weight.len() == hidden);
    }
    let Some(row) = numbers(input.row()) else { return Ok(None) };
    let mut out = Vec::new();
    LayerInput::encode(&mut out, input.layer(), &row, experts.into_iter()).unwrap();
    Ok(Some(message(&out)))
}

fn layer_output(bytes: &[u8], hidden: usize) -> Result<Option<Vec<u8>>> {
    let output = LayerOutput::decode(bytes, hidden)?;
    let Some(row) = numbers(output.row) else { return Ok(None) };
    let mut out = Vec::new();
    LayerOutput::encode(&mut out, output.layer, &row, output.compute_ms).unwrap();
    Ok(Some(message(&out)))
}
