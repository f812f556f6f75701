//! How does a step pass through a model's stages? Shard by shard, each sequence at the same length in all of them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::engine::{Batch, KvMemory, LayerPages, Reply, Shard, StepCx};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{SeqId, TokenId};

/// A model's shards, in order.
pub(super) struct Stages {
    pub(super) shards: Vec<Box<dyn Shard>>,
    next: AtomicU64,
    /// Sequences that have begun and not ended.
    open: AtomicUsize,
}

impl Stages {
    pub(super) fn new(shards: Vec<Box<dyn Shard>>) -> Self {
        Self { shards, next: AtomicU64::new(0), open: AtomicUsize::new(0) }
    }

    /// Starts a sequence with what all stages still hold of the beginning of `tokens`; tells how many that are.
    pub(super) fn open(&self, tokens: &[TokenId]) -> Result<(SeqId, usize)> {
        self.start(tokens.len(), |shard, seq| shard.open(seq, tokens))
    }

    /// Starts a sequence as the first `at` positions of another one, or fewer; tells how many.
    pub(super) fn fork(&self, from: SeqId, at: usize) -> Result<(SeqId, usize)> {
        self.start(at, |shard, seq| shard.fork(from, at, seq))
    }

    /// Starts a sequence of these tokens with keys and values that were saved.
    pub(super) fn restore(&self, tokens: &[TokenId], layers: &[LayerPages<'_>]) -> Result<SeqId> {
        let restore = |shard: &dyn Shard, seq| shard.restore(seq, tokens, layers).map(|()| tokens.len());
        self.start(tokens.len(), restore).map(|(seq, _)| seq)
    }

    /// Hands over a sequence's keys and values, layer by layer.
    pub(super) fn save(&self, seq: SeqId, each: &mut dyn FnMut(LayerPages<'_>) -> Result<()>) -> Result<()> {
        self.shards.iter().try_for_each(|shard| guarded(|| shard.save(seq, each)))
    }

    fn start(
        &self,
        most: usize,
        start: impl Fn(&dyn Shard, SeqId) -> Result<usize>,
    ) -> Result<(SeqId, usize)> {
        let seq = SeqId(self.next.fetch_add(1, Ordering::Relaxed));
        self.open.fetch_add(1, Ordering::Relaxed);
        let lengths = self.shards.iter().map(|shard| guarded(|| start(&**shard, seq)));
        let found = lengths.collect::<Result<Vec<_>>>().and_then(|lengths| {
            let least = lengths.iter().fold(most, |least, len| least.min(*len));
            // Most models have one stage.
            if lengths.iter().all(|len| *len == least) { Ok(least) } else { self.truncate(seq, least) }
        });
        match found {
            Ok(len) => Ok((seq, len)),
            Err(error) => {
                self.close(seq);
                Err(error)
            }
        }
    }

    /// How many sequences there are.
    pub(super) fn sequences(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Ends a sequence.
    pub(super) fn close(&self, seq: SeqId) {
        for shard in &self.shards {
            // One that panics does not keep the others' pages.
            let _ = guarded(|| {
                shard.close(seq);
                Ok(())
            });
        }
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Shortens the sequence on every shard to the same length: `len`, or less when one has lost
    /// what it would need.
    pub(super) fn truncate(&self, seq: SeqId, len: usize) -> Result<usize> {
        let mut kept = len;
        loop {
            let before = kept;
            for shard in &self.shards {
                kept = kept.min(guarded(|| shard.truncate(seq, kept))?);
            }
            if kept == before {
                return Ok(kept);
            }
        }
    }

    /// Takes pages for a sequence of up to `len` positions.
    pub(super) fn reserve(&self, seq: SeqId, len: usize) -> Result<()> {
        self.shards.iter().try_for_each(|shard| guarded(|| shard.reserve(seq, len)))
    }

    /// Runs a step. `replies[0]` is the last stage's, with what all of them tapped.
    pub(super) fn forward(&self, batch: &Batch<'_>, replies: &mut [Reply; 2], cx: &StepCx<'_>) -> Result<()> {
        for (stage, shard) in self.shards.iter().enumerate() {
            let [reply, before] = &mut *replies;
            let input = if stage == 0 { *batch } else { batch.hidden(before.hidden().data()) };
            guarded(|| shard.forward(&input, reply, cx))?;
            if stage > 0 {
                reply.add_taps(before);
            }
            replies.swap(0, 1);
        }
        // The last stage's reply was swapped to the back.
        replies.swap(0, 1);
        Ok(())
    }

    /// What all shards' keys and values take.
    pub(super) fn kv_memory(&self) -> KvMemory {
        self.shards.iter().map(|shard| shard.kv_memory()).reduce(|a, b| a + b).unwrap_or_default()
    }
}

/// What a shard does, with its panic as an error: shards may be anybody's.
fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<&str>().copied();
        let said =
            said.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
        Err(Error::new(ErrorKind::Internal, format!("a stage panicked: {said}"))
            .with_hint("please report this to who made the stage's engine"))
    })
}
