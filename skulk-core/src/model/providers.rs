//! Can another expert provider take the resident one's place, and where does a cancelled step stop?

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::decoder::Decoder;
use super::experts::{ExpertCall, ExpertProvider};
use super::shard::DecoderShard;
use crate::arch::ArchSpec;
use crate::cancel::CancelToken;
use crate::engine::backend::Backend;
use crate::engine::candle::Cpu;
use crate::engine::{
    Activations, Batch, Input, KvType, LoadCx, Logits, Precision, Segment, Shard, ShardSpec, StepCx,
};
use crate::error::{ErrorKind, Result};
use crate::ids::{SeqId, TokenId};
use crate::weights::{Memory, open_checkpoint};

type Provider = Box<dyn ExpertProvider<Cpu>>;

fn shard(wrap: impl FnOnce(Provider) -> Provider) -> DecoderShard<Cpu> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/models/gemma3");
    let checkpoint = open_checkpoint(folder).unwrap();
    let arch = Arc::new(ArchSpec::from_checkpoint(&*checkpoint).unwrap());
    let spec = ShardSpec::new(Arc::clone(&arch), 0..arch.n_layers(), 128, 64, KvType::F16).unwrap();
    let backend = Arc::new(Cpu::new(2, Precision::Fast).unwrap());
    let never = CancelToken::new();
    let cx = LoadCx::new(&never, &|| ());
    let mut decoder = Decoder::load(backend, spec, &*checkpoint, Memory::Mapped, &cx).unwrap();
    decoder.experts = wrap(decoder.experts);
    let shard = DecoderShard::new(decoder);
    shard.open(SeqId(0)).unwrap();
    shard
}

/// Forty tokens as one chunk, or from `start` on.
fn forward(shard: &dyn Shard, start: usize, rows: usize, cancel: &CancelToken) -> Result<Vec<u32>> {
    let tokens: Vec<_> = (start..start + rows).map(|i| TokenId(100 + i as u32)).collect();
    let segments = [Segment { seq: SeqId(0), start, rows, logits: Logits::All }];
    let mut out = Activations::new();
    let batch = Batch { segments: &segments, input: Input::Tokens(&tokens) };
    shard.forward(&batch, &mut out, &StepCx::new(cancel))?;
    Ok(out.data().iter().map(|x| x.to_bits()).collect())
}

/// As a remote provider does: activations go to host memory and come back.
struct OverHost(Provider);

impl ExpertProvider<Cpu> for OverHost {
    fn forward(&self, call: ExpertCall<'_, Cpu>, cx: &StepCx<'_>) -> Result<()> {
        const HIDDEN: usize = 256;
        let mut host = vec![0.0; call.rows * HIDDEN];
        call.backend.read(call.stream, call.input, &mut host)?;
        let mut input = call.backend.buffer(call.rows, HIDDEN)?;
        call.backend.write(call.stream, &host, &mut input)?;
        let mut output = call.backend.buffer(call.rows, HIDDEN)?;
        let ExpertCall { backend, layer, routes, rows, stream, inner, output: into, .. } = call;
        let (input, result) = (&input, &mut output);
        self.0.forward(
            ExpertCall { backend, layer, routes, rows, input, stream: &mut *stream, inner, output: result },
            cx,
        )?;
        backend.read(stream, &output, &mut host)?;
        backend.write(stream, &host, into)
    }
}

/// Cancels while one layer's block is being computed, and counts the blocks.
struct CancelIn {
    layer: usize,
    /// The token of the step to be disturbed.
    cancel: Arc<Mutex<CancelToken>>,
    computed: Arc<AtomicUsize>,
    inner: Provider,
}

impl ExpertProvider<Cpu> for CancelIn {
    fn forward(&self, call: ExpertCall<'_, Cpu>, cx: &StepCx<'_>) -> Result<()> {
        self.computed.fetch_add(1, Ordering::Relaxed);
        if call.layer.0 == self.layer {
            self.cancel.lock().unwrap().cancel();
        }
        self.inner.forward(call, cx)
    }
}

#[test]
fn another_provider_gives_the_same_bits() {
    let never = CancelToken::new();
    let resident = forward(&shard(|p| p), 0, 40, &never).unwrap();
    assert!(forward(&shard(|p| Box::new(OverHost(p))), 0, 40, &never).unwrap() == resident);
}

/// No layer begins after the one in which the token was cancelled, in prefill and in decode; the
/// sequence then goes on as if the step had never begun.
#[test]
fn cancelling_ends_the_step_within_the_layer() {
    let never = CancelToken::new();
    let undisturbed = shard(|p| p);
    let expected: Vec<_> =
        [(0, 40), (40, 1)].map(|(at, n)| forward(&undisturbed, at, n, &never).unwrap()).into();
    for layer in 0..6 {
        for (start, rows) in [(0, 40), (40, 1)] {
            let cancel = Arc::new(Mutex::new(CancelToken::new()));
            let computed = Arc::new(AtomicUsize::new(0));
            let (slot, count) = (Arc::clone(&cancel), Arc::clone(&computed));
            let shard = shard(|inner| Box::new(CancelIn { layer, cancel: slot, computed: count, inner }));
            if start > 0 {
                assert!(forward(&shard, 0, start, &never).unwrap() == expected[0]);
            }
            let step = CancelToken::new();
            *cancel.lock().unwrap() = step.clone();
            computed.store(0, Ordering::Relaxed);
            assert_eq!(forward(&shard, start, rows, &step).unwrap_err().kind(), ErrorKind::Cancelled);
            assert_eq!(computed.load(Ordering::Relaxed), layer + 1);
            let again = forward(&shard, start, rows, &never).unwrap();
            assert!(again == expected[usize::from(start > 0)], "layer {layer}, from {start}");
        }
    }
}
