//! What if a stage were on another machine? An engine whose stages behind the first are answered late.

use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use skulk::engine::{Capabilities, KvMemory, LayerPages, LoadCx, Reply, ShardEstimate, ShardSpec, StepCx};
use skulk::{
    Batch, ByteSize, Checkpoint, Engine, EngineId, Error, ErrorKind, Memory, Result, SeqId, Shard, TokenId,
};

/// Another engine behind a link.
pub(crate) struct Far {
    inner: Arc<dyn Engine>,
    /// One way.
    link: Duration,
}

impl Far {
    /// A link that takes so many milliseconds each way.
    pub(crate) fn new(inner: Arc<dyn Engine>, milliseconds: f64) -> Result<Self> {
        let link = Duration::try_from_secs_f64(milliseconds / 1e3)
            .map_err(|e| Error::new(ErrorKind::InvalidArgument, "the link's time").with_source(e))?;
        Ok(Self { inner, link })
    }
}

impl Engine for Far {
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
        let link = if spec.layers.start > 0 { self.link } else { Duration::ZERO };
        Ok(Box::new(FarShard { inner, link }))
    }
}

struct FarShard {
    inner: Box<dyn Shard>,
    link: Duration,
}

impl Shard for FarShard {
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
        sleep(self.link);
        self.inner.forward(batch, reply, cx)?;
        sleep(self.link);
        Ok(())
    }

    fn truncate(&self, seq: SeqId, len: usize) -> Result<usize> {
        self.inner.truncate(seq, len)
    }

    fn close(&self, seq: SeqId) {
        self.inner.close(seq);
    }
}
