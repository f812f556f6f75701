//! What if a stage were on another machine, or a head were trained? An engine whose stages behind the first are answered
//! late, and whose heads for tokens ahead are right as often as is wanted.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use skulk::engine::{Capabilities, KvMemory, LayerPages, LoadCx, Reply, ShardEstimate, ShardSpec, StepCx};
use skulk::{
    Batch, ByteSize, Checkpoint, Engine, EngineId, Error, ErrorKind, Memory, Result, SeqId, Shard, TokenId,
};

/// Another engine as it might be.
pub(crate) struct Staged {
    inner: Arc<dyn Engine>,
    /// One way.
    link: Duration,
    head: Option<Arc<Told>>,
}

/// What a head shall say: a text's next token, as often as is wanted.
pub(crate) struct Told {
    accepted: f64,
    text: Mutex<Text>,
}

#[derive(Default)]
struct Text {
    tokens: Vec<TokenId>,
    /// How many tokens of it come before what the head has seen.
    before: usize,
    random: u64,
}

impl Told {
    /// Right with this chance.
    pub(crate) fn new(accepted: f64) -> Arc<Self> {
        Arc::new(Self { accepted, text: Mutex::default() })
    }

    /// Says this text from now on.
    pub(crate) fn tell(&self, tokens: Vec<TokenId>) {
        let mut text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        (text.tokens, text.before) = (tokens, 0);
    }

    /// What comes behind tokens that a head computes at `start` of its sequence.
    fn next(&self, start: usize, own: &[TokenId]) -> TokenId {
        // Fewer may be a guess that was wrong.
        const SURE: usize = 8;
        let mut text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        let Text { tokens, before, random } = &mut *text;
        let is_at =
            |before: usize| tokens.get(before + start + 1..).is_some_and(|rest| rest.starts_with(own));
        if own.len() >= SURE && !is_at(*before) {
            *before = (0..tokens.len()).find(|before| is_at(*before)).unwrap_or(0);
        }
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let drawn = (*random >> 11) as f64 / (1u64 << 53) as f64;
        let right = tokens.get(*before + start + own.len() + 1).copied().unwrap_or(TokenId(1));
        if drawn < self.accepted { right } else { TokenId(u32::from(right == TokenId(0))) }
    }
}

impl Staged {
    /// Stages behind a link that takes so many milliseconds each way, and heads that say what they are told.
    pub(crate) fn new(inner: Arc<dyn Engine>, link: f64, head: Option<Arc<Told>>) -> Result<Self> {
        let link = Duration::try_from_secs_f64(link / 1e3)
            .map_err(|e| Error::new(ErrorKind::InvalidArgument, "the link's time").with_source(e))?;
        Ok(Self { inner, link, head })
    }
}

impl Engine for Staged {
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
        Ok(Box::new(StagedShard { inner, link, is_head: false, told: self.head.clone() }))
    }
}

struct StagedShard {
    inner: Box<dyn Shard>,
    link: Duration,
    is_head: bool,
    told: Option<Arc<Told>>,
}

impl Shard for StagedShard {
    fn spec(&self) -> &ShardSpec {
        self.inner.spec()
    }

    fn weight_bytes(&self) -> ByteSize {
        self.inner.weight_bytes()
    }

    fn memory(&self) -> Memory {
        self.inner.memory()
    }

    fn load_ahead(
        &self,
        spec: &ShardSpec,
        head: &dyn Checkpoint,
        model: &dyn Checkpoint,
        cx: &LoadCx<'_>,
    ) -> Result<Box<dyn Shard>> {
        let inner = self.inner.load_ahead(spec, head, model, cx)?;
        Ok(Box::new(Self { inner, link: Duration::ZERO, is_head: true, told: self.told.clone() }))
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
        if let Some(told) = self.told.as_ref().filter(|_| self.is_head) {
            let mut first = 0;
            for (at, segment) in batch.segments.iter().enumerate() {
                let own = &batch.tokens[first..first + segment.rows];
                first += segment.rows;
                if let Some(id) = reply.ids_mut(at).first_mut() {
                    *id = told.next(segment.start, own);
                }
            }
        }
        Ok(())
    }

    fn truncate(&self, seq: SeqId, len: usize) -> Result<usize> {
        self.inner.truncate(seq, len)
    }

    fn close(&self, seq: SeqId) {
        self.inner.close(seq);
    }
}
