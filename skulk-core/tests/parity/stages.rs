//! A model as bare stages, so that tests see every stage's output.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use serde_json::Value;
use skulk::arch::ArchSpec;
use skulk::engine::{Capabilities, FfnPlan, LoadCx, Logits, Reply, Segment, ShardSpec, StepCx};
use skulk::{
    Batch, CancelToken, Checkpoint, Engine, EngineOptions, KvTypes, Memory, Precision, Result,
    SeqId, Shard, TokenId,
};

/// How a model is cut up and run.
#[derive(Clone)]
pub(crate) struct Setup {
    /// Layers at which a new stage begins.
    pub(crate) cuts: Vec<usize>,
    pub(crate) threads: usize,
    pub(crate) chunk: usize,
    pub(crate) context: usize,
    pub(crate) kv: KvTypes,
    pub(crate) precision: Precision,
    pub(crate) memory: Memory,
    pub(crate) screen_head: bool,
    /// Who computes feed-forward blocks beside the engines.
    pub(crate) ffn: FfnPlan,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            cuts: vec![],
            threads: 2,
            chunk: 512,
            context: 1024,
            kv: KvTypes::default(),
            precision: Precision::Fast,
            memory: Memory::Mapped,
            screen_head: false,
            ffn: FfnPlan::new(),
        }
    }
}

pub(crate) struct Stages {
    pub(crate) arch: Arc<ArchSpec>,
    pub(crate) shards: Vec<Box<dyn Shard>>,
    pub(crate) capabilities: Capabilities,
    chunk: usize,
}

impl Stages {
    pub(crate) fn load(path: &Path, setup: &Setup) -> Result<Self> {
        let options = EngineOptions::default().threads(setup.threads).precision(setup.precision);
        let options = options.memory(setup.memory).screen_head(setup.screen_head);
        let engine = engine(super::ENGINE, &options)?;
        Self::load_on(path, setup, &vec![engine; setup.cuts.len() + 1])
    }

    /// Each stage on an engine of its own.
    pub(crate) fn load_on(path: &Path, setup: &Setup, engines: &[Arc<dyn Engine>]) -> Result<Self> {
        Self::load_from(&*skulk::open_checkpoint(path)?, setup, engines)
    }

    pub(crate) fn load_from(
        checkpoint: &dyn Checkpoint,
        setup: &Setup,
        engines: &[Arc<dyn Engine>],
    ) -> Result<Self> {
        let arch = Arc::new(ArchSpec::from_checkpoint(checkpoint)?);
        let mut borders = vec![0];
        // Of cuts, small models leave out those behind their last layer, and others those that they cannot have.
        borders.extend(setup.cuts.iter().filter(|cut| **cut < arch.n_layers() && arch.can_cut(**cut)));
        borders.push(arch.n_layers());
        let context = setup.context.min(arch.context_length);
        let shards = borders
            .windows(2)
            .zip(engines)
            .map(|(pair, engine)| {
                let layers = pair[0]..pair[1];
                let spec = ShardSpec::new(Arc::clone(&arch), layers, context, setup.chunk, setup.kv)?;
                let spec = spec.ffn(setup.ffn.clone());
                load_shard(&**engine, &spec, checkpoint)
            })
            .collect::<Result<_>>()?;
        let capabilities = engines[0].capabilities().clone();
        Ok(Self { arch, shards, capabilities, chunk: setup.chunk })
    }

    pub(crate) fn keeps_states(&self) -> bool {
        self.arch.layers.iter().any(|layer| layer.recurrent().is_some())
    }

    /// Shortens a sequence to this length, or as all stages can, and computes what is missing.
    pub(crate) fn go_back(&self, seq: SeqId, tokens: &[TokenId]) {
        let mut kept = tokens.len();
        for _ in 0..2 {
            kept = self.shards.iter().map(|shard| shard.truncate(seq, kept).unwrap()).min().unwrap();
        }
        if kept < tokens.len() {
            self.feed(seq, kept, &tokens[kept..]);
        }
    }

    pub(crate) fn open(&self, seq: u64) -> SeqId {
        self.shards.iter().for_each(|shard| assert_eq!(shard.open(SeqId(seq), &[]).unwrap(), 0));
        SeqId(seq)
    }

    /// Runs a batch of segments; returns each stage's reply.
    pub(crate) fn batch(&self, segments: &[Segment], tokens: &[TokenId]) -> Vec<Reply> {
        let cancel = CancelToken::new();
        let mut replies: Vec<Reply> = Vec::new();
        for shard in &self.shards {
            let batch = Batch::new(segments, tokens);
            let batch = replies.last().map_or(batch, |before| batch.hidden(before.hidden().data()));
            let mut reply = Reply::new();
            shard.forward(&batch, &mut reply, &StepCx::new(&cancel)).unwrap();
            replies.push(reply);
        }
        replies
    }

    /// Feeds tokens from `start` on in chunks; returns every position's logits.
    pub(crate) fn feed(&self, seq: SeqId, start: usize, tokens: &[TokenId]) -> Vec<Vec<f32>> {
        let mut rows = Vec::new();
        for (i, chunk) in tokens.chunks(self.chunk).enumerate() {
            let start = start + i * self.chunk;
            let segment = Segment::new(seq, start, chunk.len()).want_every(Logits::All);
            let reply = self.batch(&[segment], chunk).pop().unwrap();
            let logits = reply.logits(0);
            rows.extend(logits.data.chunks_exact(logits.width).map(<[f32]>::to_vec));
        }
        rows
    }

    /// Logits at the last `n` positions of a prompt, the others' not being computed.
    pub(crate) fn prompt(&self, seq: SeqId, tokens: &[TokenId], n: usize) -> Vec<Vec<f32>> {
        let (head, tail) = tokens.split_at(tokens.len() - n);
        for (i, chunk) in head.chunks(self.chunk).enumerate() {
            let segment = Segment::new(seq, i * self.chunk, chunk.len());
            self.batch(&[segment], chunk);
        }
        self.feed(seq, head.len(), tail)
    }

    /// Greedy continuation from the logits of the last position.
    pub(crate) fn greedy(
        &self,
        seq: SeqId,
        start: usize,
        mut logits: Vec<f32>,
        n: usize,
    ) -> Vec<(TokenId, Vec<f32>)> {
        let mut steps = Vec::new();
        for at in start..start + n {
            let token = argmax(&logits);
            let next = if at + 1 < start + n { self.feed(seq, at, &[token]).pop().unwrap() } else { vec![] };
            steps.push((token, std::mem::replace(&mut logits, next)));
        }
        steps
    }
}

/// A shard, loaded.
pub(crate) fn load_shard(
    engine: &dyn Engine,
    spec: &ShardSpec,
    checkpoint: &dyn Checkpoint,
) -> Result<Box<dyn Shard>> {
    engine.load(spec, checkpoint, &LoadCx::new(&CancelToken::new(), &|| ()))
}

/// A reference's list of numbers.
pub(crate) fn floats(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect()
}

/// Whether threads, precision, memory and the head's copy make a difference: the other engines would compute the
/// same again.
pub(crate) fn takes_options(name: &str) -> bool {
    name == "cpu"
}

/// Whether the engine can keep keys and values so.
pub(crate) fn keeps(name: &str, kv: KvTypes) -> bool {
    let engine = engine(name, &EngineOptions::default()).unwrap();
    [kv.keys, kv.values].iter().all(|kv| engine.capabilities().kv_types.contains(kv))
}

/// The engine of this name; `wgpu` is opened once, on the software adapter or the GPU that `SKULK_GPU` names.
pub(crate) fn engine(name: &str, options: &EngineOptions) -> Result<Arc<dyn Engine>> {
    static GPU: OnceLock<Arc<dyn Engine>> = OnceLock::new();
    if name != "wgpu" {
        return skulk::engines::by_name(name, options);
    }
    let open = || {
        let software = || {
            let device = skulk::engines::devices().into_iter().find(|device| device.software);
            device.expect("no software adapter: install Mesa's Vulkan drivers").engine.to_string()
        };
        let name = std::env::var("SKULK_GPU").unwrap_or_else(|_| software());
        skulk::engines::by_name(&name, &EngineOptions::default()).unwrap()
    };
    Ok(Arc::clone(GPU.get_or_init(open)))
}

pub(crate) fn argmax(logits: &[f32]) -> TokenId {
    let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]).then(b.cmp(&a)));
    TokenId(best.unwrap() as u32)
}

/// The same numbers, to within so many parts of the largest.
#[track_caller]
pub(crate) fn assert_near(found: &[f32], expected: &[f32], relative: f32, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let most = expected.iter().fold(0.0f32, |a, x| a.max(x.abs()));
    for (found, expected) in found.iter().zip(expected) {
        let near = (found - expected).abs() <= relative * most;
        assert!(near, "{what}: {found} instead of {expected}, where the largest is {most}");
    }
}
