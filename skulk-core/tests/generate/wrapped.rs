//! How does a test get into a model's steps? An engine around another one, which calls the test before each step.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use skulk::engine::{Capabilities, KvMemory, LayerPages, LoadCx, Reply, ShardEstimate, ShardSpec, StepCx};
use skulk::{
    Batch, ByteSize, Checkpoint, Engine, EngineId, EngineOptions, Memory, Result, SeqId, Shard, TokenId,
    engines,
};

/// Called with the number of the call, from 1, over all stages.
type Before = dyn Fn(usize) -> Result<()> + Send + Sync;

pub(crate) struct Wrapped {
    inner: Arc<dyn Engine>,
    calls: Arc<Calls>,
}

struct Calls {
    forward: Box<Before>,
    truncate: Box<Before>,
    seen: [AtomicUsize; 2],
}

struct WrappedShard {
    inner: Box<dyn Shard>,
    calls: Arc<Calls>,
}

impl Wrapped {
    /// With something to do before each forward call.
    pub(crate) fn forward(forward: impl Fn(usize) -> Result<()> + Send + Sync + 'static) -> Arc<Self> {
        Self::new(forward, |_| Ok(()))
    }

    /// And before each truncation.
    pub(crate) fn new(
        forward: impl Fn(usize) -> Result<()> + Send + Sync + 'static,
        truncate: impl Fn(usize) -> Result<()> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let calls =
            Calls { forward: Box::new(forward), truncate: Box::new(truncate), seen: Default::default() };
        let inner = engines::cpu(&EngineOptions::default().threads(1)).unwrap();
        Arc::new(Self { inner, calls: Arc::new(calls) })
    }
}

impl Engine for Wrapped {
    fn id(&self) -> &EngineId {
        self.inner.id()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn estimate(&self, spec: &ShardSpec, checkpoint: &dyn Checkpoint) -> Result<ShardEstimate> {
        self.inner.estimate(spec, checkpoint)
    }

    fn load(&self, spec: &ShardSpec, checkpoint: &dyn Checkpoint, cx: &LoadCx<'_>) -> Result<Box<dyn Shard>> {
        let inner = self.inner.load(spec, checkpoint, cx)?;
        Ok(Box::new(WrappedShard { inner, calls: Arc::clone(&self.calls) }))
    }
}

impl Shard for WrappedShard {
    fn spec(&self) -> &ShardSpec {
        self.inner.spec()
    }

    fn weight_bytes(&self) -> ByteSize {
        self.inner.weight_bytes()
    }

    fn memory(&self) -> Memory {
        self.inner.memory()
    }

    fn open(&self, seq: SeqId, tokens: &[TokenId]) -> Result<usize> {
        self.inner.open(seq, tokens)
    }

    fn reserve(&self, seq: SeqId, len: usize) -> Result<()> {
        self.inner.reserve(seq, len)
    }

    fn fork(&self, from: SeqId, at: usize, to: SeqId) -> Result<usize> {
        self.inner.fork(from, at, to)
    }

    fn save(&self, seq: SeqId, each: &mut dyn FnMut(LayerPages<'_>) -> Result<()>) -> Result<()> {
        self.inner.save(seq, each)
    }

    fn restore(&self, seq: SeqId, tokens: &[TokenId], layers: &[LayerPages<'_>]) -> Result<()> {
        self.inner.restore(seq, tokens, layers)
    }

    fn kv_memory(&self) -> KvMemory {
        self.inner.kv_memory()
    }

    fn forward(&self, batch: &Batch<'_>, reply: &mut Reply, cx: &StepCx<'_>) -> Result<()> {
        (self.calls.forward)(self.calls.seen[0].fetch_add(1, Ordering::Relaxed) + 1)?;
        self.inner.forward(batch, reply, cx)
    }

    fn truncate(&self, seq: SeqId, len: usize) -> Result<usize> {
        (self.calls.truncate)(self.calls.seen[1].fetch_add(1, Ordering::Relaxed) + 1)?;
        self.inner.truncate(seq, len)
    }

    fn close(&self, seq: SeqId) {
        self.inner.close(seq);
    }
}
