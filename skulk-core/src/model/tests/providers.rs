//! Can services take the place of an engine's own blocks, and where does a cancelled step stop?

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::arch::ArchSpec;
use crate::cancel::CancelToken;
use crate::engine::backend::Backend;
use crate::engine::ffn::experts_of;
use crate::engine::{
    Batch, FfnJob, FfnLine, FfnPlan, FfnService, KvType, LoadCx, Logits, Precision, Reply, Segment, Shard,
    ShardSpec, StepCx, cpu,
};
use crate::engines::{CpuFfn, EngineOptions};
use crate::error::{ErrorKind, Result};
use crate::ids::{LayerIdx, SeqId, TokenId};
use crate::model::decoder::Decoder;
use crate::model::experts::FfnWork;
use crate::model::shard::DecoderShard;
use crate::model::split::Split;
use crate::weights::{Checkpoint, Memory, open_checkpoint};

/// Long enough for any machine; only who waits in vain waits for it.
const LOST: Duration = Duration::from_secs(100);

/// A model's description and weights, of which a plan is made.
struct Source {
    checkpoint: Arc<dyn Checkpoint>,
    arch: Arc<ArchSpec>,
}

impl Source {
    fn new(name: &str) -> Self {
        let folder = format!("{}/../tests/fixtures/models/{name}", env!("CARGO_MANIFEST_DIR"));
        let checkpoint = open_checkpoint(folder).unwrap();
        let arch = Arc::new(ArchSpec::from_checkpoint(&*checkpoint).unwrap());
        Self { checkpoint, arch }
    }

    /// These experts of these layers on the CPU.
    fn service(&self, layers: Range<usize>, experts: Range<usize>) -> Arc<CpuFfn> {
        let never = CancelToken::new();
        let options = EngineOptions::default().threads(2).memory(Memory::Mapped);
        let cx = LoadCx::new(&never, &|| ());
        let service = CpuFfn::load(&*self.checkpoint, &self.arch, &[(layers, experts)], &options, &cx);
        Arc::new(service.unwrap())
    }

    /// The experts that each of some layers has.
    fn experts(&self, layer: usize) -> Range<usize> {
        0..experts_of(&self.arch.layers[layer])
    }
}

fn resident(_: &Source) -> FfnPlan {
    FfnPlan::new()
}

/// All blocks on the CPU.
fn on_cpu(source: &Source) -> FfnPlan {
    let layers = 0..source.arch.n_layers();
    layers.fold(FfnPlan::new(), |plan, layer| {
        let (layers, experts) = (layer..layer + 1, source.experts(layer));
        plan.share(layers.clone(), experts.clone(), source.service(layers, experts))
    })
}

fn device() -> cpu::Cpu {
    cpu::Cpu::new(2, Precision::Fast).unwrap()
}

/// A whole fixture with sequences 0 and 1 opened.
fn shard<B: Backend>(
    name: &str,
    backend: impl Into<Arc<B>>,
    plan: impl FnOnce(&Source) -> FfnPlan,
) -> DecoderShard<B> {
    let source = Source::new(name);
    let arch = &source.arch;
    let spec = ShardSpec::new(Arc::clone(arch), 0..arch.n_layers(), 128, 64, KvType::F16).unwrap();
    let spec = spec.ffn(plan(&source));
    let never = CancelToken::new();
    let cx = LoadCx::new(&never, &|| ());
    let blocks = Split::new(&spec, FfnWork::whole());
    let decoder =
        Decoder::load(backend.into(), blocks, spec, &*source.checkpoint, Memory::Mapped, (None, &cx))
            .unwrap();
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

/// Cancels while one layer's block is being computed, and counts the blocks.
struct Watched {
    /// The layer, and the token of the step to be disturbed.
    cancel: Arc<(usize, Mutex<CancelToken>)>,
    computed: Arc<AtomicUsize>,
    inner: Arc<CpuFfn>,
}

impl FfnService for Watched {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn computes(&self) -> String {
        self.inner.computes()
    }

    fn serves(&self, layer: LayerIdx) -> Range<usize> {
        self.inner.serves(layer)
    }

    fn line(&self, max_rows: usize) -> Result<Box<dyn FfnLine>> {
        let (cancel, computed) = (Arc::clone(&self.cancel), Arc::clone(&self.computed));
        Ok(Box::new(WatchedLine { cancel, computed, layer: None, inner: self.inner.line(max_rows)? }))
    }
}

struct WatchedLine {
    cancel: Arc<(usize, Mutex<CancelToken>)>,
    computed: Arc<AtomicUsize>,
    layer: Option<usize>,
    inner: Box<dyn FfnLine>,
}

impl FfnLine for WatchedLine {
    fn begin(&mut self, job: &FfnJob<'_>, cx: &StepCx<'_>) -> Result<()> {
        self.layer = Some(job.layer.0);
        self.inner.begin(job, cx)
    }

    fn wait(&mut self, out: &mut [f32], cx: &StepCx<'_>) -> Result<()> {
        self.computed.fetch_add(1, Ordering::Relaxed);
        if self.layer == Some(self.cancel.0) {
            self.cancel.1.lock().unwrap().cancel();
        }
        self.inner.wait(out, cx)
    }
}

/// These layers' blocks on the CPU, watched.
fn watched(
    source: &Source,
    layers: Range<usize>,
    cancel: &Arc<(usize, Mutex<CancelToken>)>,
    computed: &Arc<AtomicUsize>,
) -> FfnPlan {
    let (cancel, computed) = (Arc::clone(cancel), Arc::clone(computed));
    let experts = source.experts(layers.start);
    let inner = source.service(layers.clone(), experts.clone());
    FfnPlan::new().share(layers, experts, Arc::new(Watched { cancel, computed, inner }))
}

/// A layer's experts over services and the engine itself, in any way.
#[test]
fn every_partition_of_experts_gives_the_same_bits() {
    let never = CancelToken::new();
    for name in ["mixtral", "gemma4_moe", "deepseek_v3", "llama4", "gpt_oss", "nemotron_h_moe"] {
        let expected = steps(&shard(name, device(), resident), &never);
        for own in [false, true] {
            for parts in 1..4 {
                let split = shard(name, device(), |source| {
                    let mut plan = FfnPlan::new();
                    for layer in 0..source.arch.n_layers() {
                        let n = source.experts(layer).len();
                        // The first part is the engine's, or of a dense block nobody's but the last one's.
                        let border = |part: usize| n * part / parts;
                        let skipped = usize::from(own && n > 1);
                        for part in (skipped..parts).filter(|part| border(*part) < border(part + 1)) {
                            let (layers, experts) = (layer..layer + 1, border(part)..border(part + 1));
                            plan =
                                plan.share(layers.clone(), experts.clone(), source.service(layers, experts));
                        }
                    }
                    plan
                });
                assert!(steps(&split, &never) == expected, "{name} in {parts}, own: {own}");
            }
        }
    }
}

/// A prompt, single tokens, and a chunk.
fn steps(shard: &dyn Shard, never: &CancelToken) -> Vec<Vec<u32>> {
    [(0, 40), (40, 1), (41, 1), (42, 13)]
        .map(|(start, rows)| forward(shard, start, rows, never).unwrap())
        .into()
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
/// sequence then goes on as if the step had never begun. Whether the engine has the other blocks or a service.
#[test]
fn cancelling_ends_the_step_within_the_layer() {
    let never = CancelToken::new();
    let undisturbed = shard("gemma3", device(), resident);
    let expected: Vec<_> =
        [(0, 40), (40, 1)].map(|(at, n)| forward(&undisturbed, at, n, &never).unwrap()).into();
    for layer in 0..6 {
        for (start, rows) in [(0, 40), (40, 1)] {
            for layers in [0..6, layer..(layer + 2).min(6)] {
                let cancel = Arc::new((layer, Mutex::new(CancelToken::new())));
                let computed = Arc::new(AtomicUsize::new(0));
                let plan = |source: &Source| watched(source, layers.clone(), &cancel, &computed);
                let shard = shard("gemma3", device(), plan);
                if start > 0 {
                    assert!(forward(&shard, 0, start, &never).unwrap() == expected[0]);
                }
                let step = CancelToken::new();
                *cancel.1.lock().unwrap() = step.clone();
                computed.store(0, Ordering::Relaxed);
                assert_eq!(forward(&shard, start, rows, &step).unwrap_err().kind(), ErrorKind::Cancelled);
                assert_eq!(computed.load(Ordering::Relaxed), layer + 1 - layers.start);
                let again = forward(&shard, start, rows, &never).unwrap();
                assert!(again == expected[usize::from(start > 0)], "layer {layer}, from {start}");
            }
        }
    }
}

#[test]
fn a_step_past_its_deadline_computes_no_layer() {
    let never = CancelToken::new();
    let expected = forward(&shard("gemma3", device(), resident), 0, 40, &never).unwrap();
    let computed = Arc::new(AtomicUsize::new(0));
    let cancel = Arc::new((usize::MAX, Mutex::default()));
    let shard = shard("gemma3", device(), |source| watched(source, 0..6, &cancel, &computed));
    let late = StepCx::new(&never).deadline(Instant::now());
    let error = step(SeqId(0), &shard, 0, 40, &late).unwrap_err();
    assert_eq!((error.kind(), computed.load(Ordering::Relaxed)), (ErrorKind::DeadlineExceeded, 0));
    let in_time = StepCx::new(&never).deadline(Instant::now() + LOST);
    assert!(step(SeqId(0), &shard, 0, 40, &in_time).unwrap() == expected);
}

/// Plans that name what a service or a model does not have are refused before anything is loaded.
#[test]
fn plans_name_what_there_is_once() {
    let source = Source::new("mixtral");
    let (n, service) = (source.experts(0).len(), source.service(0..1, 0..2));
    let refused = |plan: FfnPlan| {
        let arch = Arc::clone(&source.arch);
        let spec = ShardSpec::new(arch, 0..1, 128, 64, KvType::F16).unwrap().ffn(plan);
        let error = spec.check().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PlacementInvalid, "{error}");
        assert!(error.message().contains("found") && error.hint().is_some(), "{error}");
    };
    let share =
        |plan: FfnPlan, experts| plan.share(0..1, experts, Arc::clone(&service) as Arc<dyn FfnService>);
    for experts in [0..0, 0..3, 1..n, n..n + 1, 2..3] {
        refused(share(FfnPlan::new(), experts));
    }
    refused(share(share(FfnPlan::new(), 0..2), 1..2));
    // Of other layers a shard's plan may say anything.
    let elsewhere = FfnPlan::new().share(1..2, 0..99, service.clone());
    ShardSpec::new(Arc::clone(&source.arch), 0..1, 128, 64, KvType::F16)
        .unwrap()
        .ffn(elsewhere)
        .check()
        .unwrap();
}

/// A line takes jobs that its service has, and whatever is wrong with one leaves the next as it was.
#[test]
fn lines_refuse_jobs_that_cannot_be() {
    use crate::engine::FfnPair;
    let (never, source) = (CancelToken::new(), Source::new("mixtral"));
    let (cx, hidden) = (StepCx::new(&never), source.arch.hidden_size);
    let service = source.service(1..2, 1..3);
    assert_eq!([0, 1, 2].map(|layer| service.serves(LayerIdx(layer))), [0..0, 1..3, 0..0]);
    let mut line = service.line(2).unwrap();
    let input: Vec<f32> = (0..3 * hidden).map(|i| (i % 89) as f32 / 44.0 - 1.0).collect();
    let pair = |row, expert| FfnPair::new(row, expert, 0.5);
    let good = [pair(0, 2), pair(1, 1), pair(1, 2)];
    let job = FfnJob::new(LayerIdx(1), hidden, &input[..2 * hidden], &good);
    let mut expected = vec![0.0; 3 * hidden];
    line.begin(&job, &cx).unwrap();
    line.wait(&mut expected, &cx).unwrap();
    let refused = |line: &mut dyn FfnLine, job: FfnJob<'_>| {
        let error = line.begin(&job, &cx).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert_eq!(line.wait(&mut [], &cx).unwrap_err().kind(), ErrorKind::InvalidArgument);
    };
    for pairs in [[pair(0, 0)], [pair(0, 3)], [pair(2, 1)], [pair(0, u32::MAX)], [pair(u32::MAX, 1)]] {
        refused(&mut *line, FfnJob { pairs: &pairs, ..job });
    }
    refused(&mut *line, FfnJob { layer: LayerIdx(0), ..job });
    refused(&mut *line, FfnJob { layer: LayerIdx(usize::MAX), ..job });
    refused(&mut *line, FfnJob { hidden: hidden - 1, ..job });
    refused(&mut *line, FfnJob { hidden: 0, ..job });
    refused(&mut *line, FfnJob { input: &input[1..], ..job });
    refused(&mut *line, FfnJob { input: &input, ..job });
    refused(&mut *line, job.sums());
    line.begin(&job, &cx).unwrap();
    assert_eq!(line.wait(&mut [0.0; 7], &cx).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let mut again = vec![0.0; 3 * hidden];
    line.begin(&job, &cx).unwrap();
    line.wait(&mut again, &cx).unwrap();
    assert!(again == expected);
    // Sums go by the pairs' order.
    let pairs = [pair(0, 2), pair(0, 1), pair(1, 1), pair(1, 2)];
    let job = FfnJob { pairs: &pairs, ..job };
    let (mut single, mut sums) = (vec![0.0; 4 * hidden], vec![0.0; 2 * hidden]);
    line.begin(&job, &cx).unwrap();
    line.wait(&mut single, &cx).unwrap();
    line.begin(&job.sums(), &cx).unwrap();
    line.wait(&mut sums, &cx).unwrap();
    for (row, sum) in sums.chunks(hidden).enumerate() {
        for (at, sum) in sum.iter().enumerate() {
            let [first, second] = [0, 1].map(|place| single[(2 * row + place) * hidden + at]);
            assert_eq!(*sum, second.mul_add(0.5, first.mul_add(0.5, 0.0)));
        }
    }
}

/// The step of another has the CPU until they have ended.
#[test]
fn steps_that_wait_for_the_cpu_end_at_once() {
    let (never, parent) = (CancelToken::new(), CancelToken::new());
    let (token, cpu) = (parent.child(), Arc::new(device()));
    let shard = shard::<cpu::Cpu>("gemma3", Arc::clone(&cpu), resident);
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
        let cancel = Arc::new((5, Mutex::new(CancelToken::new())));
        let plan = |source: &Source| watched(source, 5..6, &cancel, &Arc::default());
        let shard = shard("gemma3", Gpu::tested(Limits::default()), plan);
        let [undisturbed, disturbed] = [false, true].map(|disturbed| {
            [0, 1].iter().for_each(|&seq| assert_eq!(shard.truncate(SeqId(seq), 0).unwrap(), 0));
            if disturbed {
                let step = CancelToken::new();
                *cancel.1.lock().unwrap() = step.clone();
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
        let gpu = Arc::new(Gpu::tested(Limits::default()));
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
