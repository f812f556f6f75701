//! Can another expert provider take the resident one's place, and where does a cancelled step stop?

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::arch::ArchSpec;
use crate::cancel::CancelToken;
use crate::engine::backend::Backend;
use crate::engine::{
    Batch, KvType, LoadCx, Logits, Precision, Reply, Segment, Shard, ShardSpec, StepCx, cpu,
};
use crate::error::{ErrorKind, Result};
use crate::ids::{SeqId, TokenId};
use crate::model::cpu_experts::CpuExperts;
use crate::model::decoder::Decoder;
use crate::model::experts::{ExpertCall, ExpertProvider, FfnWork, ResidentExperts};
use crate::model::load::Loader;
use crate::model::shard::DecoderShard;
use crate::weights::{Memory, open_checkpoint};

/// Long enough for any machine; only who waits in vain waits for it.
const LOST: Duration = Duration::from_secs(100);

type Provider<B> = Box<dyn ExpertProvider<B>>;

fn resident<B: Backend>(spec: &ShardSpec) -> Provider<B> {
    Box::new(ResidentExperts::new(&spec.layers, FfnWork::whole()))
}

fn on_cpu<B: Backend>(spec: &ShardSpec) -> Provider<B> {
    let cpu = Arc::new(cpu::Cpu::new(2, Precision::Fast).unwrap());
    Box::new(CpuExperts::new(cpu, spec, Memory::Mapped, FfnWork::whole()))
}

fn device() -> cpu::Cpu {
    cpu::Cpu::new(2, Precision::Fast).unwrap()
}

/// A whole fixture with sequences 0 and 1 opened.
fn shard<B: Backend>(
    name: &str,
    backend: impl Into<Arc<B>>,
    make: impl FnOnce(&ShardSpec) -> Provider<B>,
) -> DecoderShard<B> {
    let folder = format!("{}/../tests/fixtures/models/{name}", env!("CARGO_MANIFEST_DIR"));
    let checkpoint = open_checkpoint(folder).unwrap();
    let arch = Arc::new(ArchSpec::from_checkpoint(&*checkpoint).unwrap());
    let spec = ShardSpec::new(Arc::clone(&arch), 0..arch.n_layers(), 128, 64, KvType::F16).unwrap();
    let never = CancelToken::new();
    let cx = LoadCx::new(&never, &|| ());
    let experts = make(&spec);
    let decoder = Decoder::load(backend.into(), experts, spec, &*checkpoint, Memory::Mapped, &cx).unwrap();
    let shard = DecoderShard::new(decoder, Memory::Mapped, "test".to_owned()).unwrap();
    shard.open(SeqId(0), &[]).unwrap();
    shard.open(SeqId(1), &[]).unwrap();
    shard
}

/// Tokens of sequence 0 as one chunk, from `start` on.
fn forward(shard: &dyn Shard, start: usize, rows: usize, cancel: &CancelToken) -> Result<Vec<u32>> {
    forward_of(SeqId(0), shard, start, rows, cancel)
}

fn forward_of(
    seq: SeqId,
    shard: &dyn Shard,
    start: usize,
    rows: usize,
    cancel: &CancelToken,
) -> Result<Vec<u32>> {
    step(seq, shard, start, rows, &StepCx::new(cancel))
}

fn step(seq: SeqId, shard: &dyn Shard, start: usize, rows: usize, cx: &StepCx<'_>) -> Result<Vec<u32>> {
    let tokens: Vec<_> = (start..start + rows).map(|i| TokenId(100 + i as u32)).collect();
    let segments = [Segment::new(seq, start, rows).want_every(Logits::All)];
    let mut reply = Reply::new();
    shard.forward(&Batch::new(&segments, &tokens), &mut reply, cx)?;
    Ok(reply.logits(0).data.iter().map(|x| x.to_bits()).collect())
}

/// As a remote provider does: activations go to host memory and come back.
struct OverHost<B: Backend>(Provider<B>);

impl<B: Backend> ExpertProvider<B> for OverHost<B> {
    fn load_layer(&mut self, loader: &mut Loader<'_, B>) -> Result<()> {
        self.0.load_layer(loader)
    }

    fn forward(&self, call: ExpertCall<'_, B>, cx: &StepCx<'_>) -> Result<()> {
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
struct CancelIn<B: Backend> {
    layer: usize,
    /// The token of the step to be disturbed.
    cancel: Arc<Mutex<CancelToken>>,
    computed: Arc<AtomicUsize>,
    inner: Provider<B>,
}

impl<B: Backend> ExpertProvider<B> for CancelIn<B> {
    fn load_layer(&mut self, loader: &mut Loader<'_, B>) -> Result<()> {
        self.inner.load_layer(loader)
    }

    fn forward(&self, call: ExpertCall<'_, B>, cx: &StepCx<'_>) -> Result<()> {
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
    let expected = forward(&shard("gemma3", device(), resident), 0, 40, &never).unwrap();
    let over_host = shard("gemma3", device(), |spec| Box::new(OverHost(resident(spec))));
    assert!(forward(&over_host, 0, 40, &never).unwrap() == expected);
}

/// The same kernels, on the same rows.
#[test]
fn the_cpu_beside_itself_gives_the_same_bits() {
    let never = CancelToken::new();
    for name in ["llama", "gemma3", "mixtral", "stories260K"] {
        let (alone, beside) = (shard(name, device(), resident), shard(name, device(), on_cpu));
        for (start, rows) in [(0, 40), (40, 1), (41, 1), (42, 13)] {
            let expected = forward(&alone, start, rows, &never).unwrap();
            assert!(forward(&beside, start, rows, &never).unwrap() == expected, "{name}, from {start}");
        }
    }
}

#[test]
fn replays_on_the_cpu_beside_a_device_give_the_same_bits() {
    let never = CancelToken::new();
    for name in ["gemma3", "mixtral"] {
        let shard = shard(name, device(), on_cpu);
        let once = forward(&shard, 0, 40, &never).unwrap();
        let width = once.len() / 40;
        for len in [39, 17, 0] {
            let kept = shard.truncate(SeqId(0), len).unwrap();
            let again = forward(&shard, kept, 40 - kept, &never).unwrap();
            assert!(again == once[kept * width..], "{name}, shortened to {len}");
        }
        let twice = shard.open(SeqId(0), &[]).unwrap_err();
        assert_eq!(twice.kind(), ErrorKind::InvalidArgument);
        shard.close(SeqId(0));
        shard.open(SeqId(0), &[]).unwrap();
        assert!(forward(&shard, 0, 40, &never).unwrap() == once, "{name}, opened again");
    }
}

#[test]
fn sequences_on_the_cpu_beside_a_device_do_not_meet() {
    let never = CancelToken::new();
    let steps = [(0, 40), (40, 1), (41, 1), (42, 20), (62, 1)];
    for name in ["gemma3", "mixtral"] {
        let alone = shard(name, device(), on_cpu);
        let expected = steps.map(|(start, rows)| forward(&alone, start, rows, &never).unwrap());
        let shared = shard(name, device(), on_cpu);
        std::thread::scope(|scope| {
            for seq in [SeqId(0), SeqId(1)] {
                let (shared, expected, never) = (&shared, &expected, &never);
                scope.spawn(move || {
                    for ((start, rows), expected) in steps.into_iter().zip(expected) {
                        let found = forward_of(seq, shared, start, rows, never).unwrap();
                        assert!(found == *expected, "{name}, sequence {seq}, from {start}");
                    }
                });
            }
        });
    }
}

/// No layer begins after the one in which the token was cancelled, in prefill and in decode; the
/// sequence then goes on as if the step had never begun.
#[test]
fn cancelling_ends_the_step_within_the_layer() {
    for provider in [resident, on_cpu] {
        cancelling_ends_the_step(provider);
    }
}

fn cancelling_ends_the_step(provider: fn(&ShardSpec) -> Provider<cpu::Cpu>) {
    let never = CancelToken::new();
    let undisturbed = shard("gemma3", device(), provider);
    let expected: Vec<_> =
        [(0, 40), (40, 1)].map(|(at, n)| forward(&undisturbed, at, n, &never).unwrap()).into();
    for layer in 0..6 {
        for (start, rows) in [(0, 40), (40, 1)] {
            let cancel = Arc::new(Mutex::new(CancelToken::new()));
            let computed = Arc::new(AtomicUsize::new(0));
            let (slot, count) = (Arc::clone(&cancel), Arc::clone(&computed));
            let shard = shard("gemma3", device(), |spec| {
                Box::new(CancelIn { layer, cancel: slot, computed: count, inner: provider(spec) })
            });
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

#[test]
fn a_step_past_its_deadline_computes_no_layer() {
    let never = CancelToken::new();
    let expected = forward(&shard("gemma3", device(), resident), 0, 40, &never).unwrap();
    let computed = Arc::new(AtomicUsize::new(0));
    let (cancel, count) = (Arc::default(), Arc::clone(&computed));
    let shard = shard("gemma3", device(), |spec| {
        Box::new(CancelIn { layer: usize::MAX, cancel, computed: count, inner: resident(spec) })
    });
    let late = StepCx::new(&never).deadline(Instant::now());
    let error = step(SeqId(0), &shard, 0, 40, &late).unwrap_err();
    assert_eq!((error.kind(), computed.load(Ordering::Relaxed)), (ErrorKind::DeadlineExceeded, 0));
    let in_time = StepCx::new(&never).deadline(Instant::now() + LOST);
    assert!(step(SeqId(0), &shard, 0, 40, &in_time).unwrap() == expected);
}

/// The step of another has the CPU until they have ended.
#[test]
fn steps_that_wait_for_the_cpu_end_at_once() {
    let (never, parent) = (CancelToken::new(), CancelToken::new());
    let (token, cpu) = (parent.child(), Arc::new(device()));
    let shard = shard("gemma3", Arc::clone(&cpu), resident::<cpu::Cpu>);
    let soon = Instant::now() + Duration::from_millis(20);
    let (sender, ended) = channel();
    let steps = [(0, StepCx::new(&token)), (1, StepCx::new(&never).deadline(soon))];
    std::thread::scope(|scope| {
        let (shard, parent) = (&shard, &parent);
        let other = move || {
            for (seq, cx) in steps {
                let sender = sender.clone();
                scope.spawn(move || {
                    let kind = step(SeqId(seq), shard, 0, 40, &cx).err().map(|error| error.kind());
                    sender.send((seq, kind)).unwrap();
                });
            }
            assert_eq!(ended.recv_timeout(LOST), Ok((1, Some(ErrorKind::DeadlineExceeded))));
            parent.cancel();
            assert_eq!(ended.recv_timeout(LOST), Ok((0, Some(ErrorKind::Cancelled))));
            Ok(())
        };
        cpu.run(&StepCx::new(&never), other).unwrap();
    });
    let both = [0, 1].map(|seq| forward_of(SeqId(seq), &shard, 0, 40, &never).unwrap());
    assert!(both[0] == both[1]);
}

#[cfg(feature = "wgpu")]
mod on_wgpu {
    use super::*;
    use crate::engine::wgpu::{Gpu, Limits};

    /// Eight tokens of each sequence, as one batch.
    fn batch(shard: &dyn Shard, cancel: &CancelToken) -> Result<()> {
        let segments = [0, 1].map(|seq| Segment::new(SeqId(seq), 0, 8).want_last(Logits::All));
        shard.forward(&Batch::new(&segments, &[TokenId(7); 16]), &mut Reply::new(), &StepCx::new(cancel))
    }

    /// What the device was not sent of a cancelled batch is never computed: it would write to the caches of
    /// both sequences, over what later steps put there.
    #[test]
    fn a_cancelled_batch_writes_nothing_later() {
        let (cancel, computed) = (Arc::new(Mutex::new(CancelToken::new())), Arc::default());
        let slot = Arc::clone(&cancel);
        let shard = shard("gemma3", Gpu::software(Limits::default()), |spec| {
            Box::new(CancelIn { layer: 5, cancel: slot, computed, inner: resident(spec) })
        });
        let [undisturbed, disturbed] = [false, true].map(|disturbed| {
            [0, 1].iter().for_each(|&seq| assert_eq!(shard.truncate(SeqId(seq), 0).unwrap(), 0));
            if disturbed {
                let step = CancelToken::new();
                *cancel.lock().unwrap() = step.clone();
                assert_eq!(batch(&shard, &step).unwrap_err().kind(), ErrorKind::Cancelled);
            }
            let steps = [(1, 0, 12), (0, 0, 12), (1, 12, 1), (0, 12, 1)];
            let never = CancelToken::new();
            steps.map(|(seq, start, rows)| forward_of(SeqId(seq), &shard, start, rows, &never).unwrap())
        });
        assert!(undisturbed == disturbed);
    }

    /// Others that were in a batch with it keep nothing of it.
    #[test]
    fn the_memory_of_a_closed_sequence_is_free() {
        let gpu = Arc::new(Gpu::software(Limits::default()));
        let shard = shard::<Gpu>("gemma3", Arc::clone(&gpu), resident);
        let [first, second] = [(); 2].map(|()| {
            shard.truncate(SeqId(0), 0).unwrap();
            batch(&shard, &CancelToken::new()).unwrap();
            shard.close(SeqId(1));
            let taken = gpu.allocated();
            shard.open(SeqId(1), &[]).unwrap();
            taken
        });
        assert_eq!(first, second);
    }
}
