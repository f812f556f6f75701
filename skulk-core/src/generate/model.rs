//! What is a loaded model? Its shards in order, its tokenizer, and how sequences pass through.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;

use crate::arch::ArchSpec;
use crate::bytes::ByteSize;
use crate::engine::{Activations, Batch, EngineId, FfnMemory, Input, Segment, Shard, StepCx};
use crate::error::{Error, ErrorKind, Result};
use crate::generate::{GenerateOptions, Generation, Prompt, Session};
use crate::ids::{SeqId, TokenId};
use crate::plan::Placement;
use crate::tokenizer::Tokenizer;
use crate::weights::Memory;

/// What one stage of a loaded model holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct StageInfo {
    /// The engine that runs it.
    pub engine: EngineId,
    /// The engine's device in words.
    pub device: String,
    /// Its layers.
    pub layers: std::ops::Range<usize>,
    /// Weight bytes it has mapped, read or copied. Stages that share a tied embedding table both
    /// count it, though it exists once.
    #[serde(rename = "weightBytes")]
    pub weights: ByteSize,
    /// Keys and values of one full-length session.
    #[serde(rename = "kvCacheBytes")]
    pub kv_cache: ByteSize,
    /// Where its weights lie: in the file's map, or read into memory of their own; with a
    /// [budget](crate::EngineOptions::ffn_budget), those that it is not for.
    pub memory: Memory,
}

/// A model ready to generate. Cloning is cheap and shares the weights.
///
/// ```
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/models/stories260K");
/// use skulk::{GenerateOptions, LoadOptions, Model};
/// let model = Model::open(path, &LoadOptions::default().stages(2))?;
/// let output = model.generate("Once upon a time", GenerateOptions::default().max_tokens(8))?.output()?;
/// assert_eq!(output.ids.len(), 8);
/// # Ok::<(), skulk::Error>(())
/// ```
#[derive(Clone)]
pub struct Model {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) arch: Arc<ArchSpec>,
    pub(super) tokenizer: Arc<Tokenizer>,
    pub(super) context: usize,
    pub(super) prefill_chunk: usize,
    pub(super) load_time: Duration,
    pub(super) shards: Vec<Box<dyn Shard>>,
    pub(super) placement: Placement,
    pub(super) stages: Vec<StageInfo>,
    pub(super) next_seq: AtomicU64,
}

impl Model {
    /// The model's description.
    pub fn arch(&self) -> &ArchSpec {
        &self.inner.arch
    }

    /// The model's tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.inner.tokenizer
    }

    /// Positions a session can hold, in tokens.
    pub fn context(&self) -> usize {
        self.inner.context
    }

    /// Which engine runs which layers.
    pub fn placement(&self) -> &Placement {
        &self.inner.placement
    }

    /// What each stage holds.
    pub fn stages(&self) -> &[StageInfo] {
        &self.inner.stages
    }

    /// What is in memory of feed-forward weights, when there is a [budget](crate::EngineOptions::ffn_budget) for them; of
    /// several engines together.
    pub fn ffn_memory(&self) -> Option<FfnMemory> {
        let Inner { stages, shards, .. } = &*self.inner;
        // Shards of one engine share its budget.
        let first = |at: usize| stages[..at].iter().all(|stage| stage.engine != stages[at].engine);
        let engines = shards.iter().enumerate().filter(|(at, _)| first(*at));
        engines.filter_map(|(_, shard)| shard.ffn_memory()).reduce(|a, b| FfnMemory {
            budget: a.budget + b.budget,
            in_memory: a.in_memory + b.in_memory,
            peak: a.peak + b.peak,
            let_go: a.let_go + b.let_go,
        })
    }

    /// How long loading took.
    pub fn load_time(&self) -> Duration {
        self.inner.load_time
    }

    /// An empty session. Any number may exist and generate at the same time.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] when its KV cache cannot be reserved.
    pub fn session(&self) -> Result<Session> {
        Session::open(Arc::clone(&self.inner))
    }

    /// Generates from a prompt in a session of its own.
    ///
    /// # Errors
    /// As [`Session::generate`].
    pub fn generate(&self, prompt: impl Into<Prompt>, options: GenerateOptions) -> Result<Generation> {
        self.session()?.generate(prompt, options)
    }
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model")
            .field("family", &self.inner.arch.family)
            .field("stages", &self.inner.stages)
            .finish()
    }
}

impl Inner {
    /// Opens a sequence on every shard.
    pub(super) fn open_sequence(&self) -> Result<SeqId> {
        let seq = SeqId(self.next_seq.fetch_add(1, Ordering::Relaxed));
        for shard in &self.shards {
            if let Err(error) = guarded(|| shard.open(seq)) {
                self.close_sequence(seq);
                return Err(error);
            }
        }
        Ok(seq)
    }

    pub(super) fn close_sequence(&self, seq: SeqId) {
        for shard in &self.shards {
            // One that panics does not keep the others' caches.
            let _ = guarded(|| {
                shard.close(seq);
                Ok(())
            });
        }
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

    /// Runs tokens through all stages; logits end in `buffers[0]`.
    pub(super) fn forward(
        &self,
        segment: Segment,
        tokens: &[TokenId],
        buffers: &mut [Activations; 2],
        cx: &StepCx<'_>,
    ) -> Result<()> {
        let segments = [segment];
        let mut input_is_tokens = true;
        for shard in &self.shards {
            let [out, x] = buffers;
            let input = if input_is_tokens { Input::Tokens(tokens) } else { Input::Hidden(x.data()) };
            guarded(|| shard.forward(&Batch { segments: &segments, input }, out, cx))?;
            input_is_tokens = false;
            buffers.swap(0, 1);
        }
        // The last stage's output was swapped to the back.
        buffers.swap(0, 1);
        Ok(())
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
