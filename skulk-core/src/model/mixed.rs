//! Do stages on different engines make one model? Whole fixtures, against the CPU engine alone.

use std::sync::Arc;

use super::engine::{EngineOptions, candle_cpu, candle_tensors_on_cpu};
use crate::arch::ArchSpec;
use crate::cancel::CancelToken;
use crate::engine::{
    Activations, Batch, Engine, Input, KvType, LoadCx, Logits, Segment, Shard, ShardSpec, StepCx,
};
use crate::ids::{SeqId, TokenId};
use crate::weights::{Checkpoint, open_checkpoint};

const PROMPT: usize = 90;
const CHUNK: usize = 32;

/// Logits of every position of a made-up prompt: chunks first, the last tokens one by one.
fn logits(checkpoint: &dyn Checkpoint, stages: &[&dyn Engine], kv: KvType) -> Vec<f32> {
    let arch = Arc::new(ArchSpec::from_checkpoint(checkpoint).unwrap());
    let cancel = CancelToken::new();
    let cut = |stage: usize| stage * arch.n_layers() / stages.len();
    let shards: Vec<Box<dyn Shard>> = stages
        .iter()
        .enumerate()
        .map(|(i, engine)| {
            let spec = ShardSpec::new(Arc::clone(&arch), cut(i)..cut(i + 1), 128, CHUNK, kv).unwrap();
            let shard = engine.load(&spec, checkpoint, &LoadCx::new(&cancel, &|| ())).unwrap();
            shard.open(SeqId(1)).unwrap();
            shard
        })
        .collect();
    let tokens: Vec<TokenId> = (0..PROMPT).map(|i| TokenId((i * i * 31 % arch.vocab_size) as u32)).collect();
    let mut found = Vec::new();
    let mut start = 0;
    while start < PROMPT {
        let rows = if start < 2 * CHUNK { CHUNK } else { 1 };
        let segments = [Segment { seq: SeqId(1), start, rows, logits: Logits::All }];
        let mut hidden = Activations::new();
        for (i, shard) in shards.iter().enumerate() {
            let before = std::mem::take(&mut hidden);
            let input = match i {
                0 => Input::Tokens(&tokens[start..start + rows]),
                _ => Input::Hidden(before.data()),
            };
            let batch = Batch { segments: &segments, input };
            shard.forward(&batch, &mut hidden, &StepCx::new(&cancel)).unwrap();
        }
        found.extend_from_slice(hidden.data());
        start += rows;
    }
    found
}

#[test]
fn mixed_stages_agree_with_the_cpu_engine() {
    let cpu = candle_cpu(&EngineOptions::default().threads(2)).unwrap();
    let tensors = candle_tensors_on_cpu();
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/models");
    for name in ["llama", "gemma3", "mixtral", "stories260K"] {
        let checkpoint = open_checkpoint(folder.join(name)).unwrap();
        // Parts of the largest logit. With f32 caches only summation orders differ: 1e-6 is found.
        // With f16 ones, a key or value that lies at the border of two halves may round to the
        // other one, 2⁻¹¹ of it away: 6e-4 is found.
        for (kv, tolerance) in [(KvType::F32, 1e-5), (KvType::F16, 3e-3)] {
            let expected = logits(&*checkpoint, &[&*cpu], kv);
            let most = expected.iter().fold(0.0f32, |a, x| a.max(x.abs()));
            for stages in [vec![&*cpu, &*tensors], vec![&*tensors, &*cpu], vec![&*tensors]] {
                let found = logits(&*checkpoint, &stages, kv);
                assert_eq!(found.len(), expected.len());
                let error = found.iter().zip(&expected).fold(0.0f32, |a, (x, y)| a.max((x - y).abs()));
                assert!(error <= tolerance * most, "{name} {kv:?}: logits up to {most} are off by {error}");
            }
        }
    }
}
