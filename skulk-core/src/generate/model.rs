//! What is a loaded model? Its shards in order, its tokenizer, and how sequences pass through.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::chat::Origin;
use super::fingerprint::Fingerprint;
use super::scheduler::Scheduler;
use super::stages::Stages;
use crate::arch::ArchSpec;
use crate::bytes::ByteSize;
use crate::engine::{EngineId, FfnMemory, FfnService, KvMemory};
use crate::error::Result;
use crate::generate::draft::{Quoted, Second};
use crate::generate::{GenerateOptions, Generation, LoadOptions, Output, Prompt, Session};
use crate::grammar::Grammars;
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
    pub(super) path: PathBuf,
    pub(super) options: LoadOptions,
    pub(super) arch: Arc<ArchSpec>,
    pub(super) tokenizer: Arc<Tokenizer>,
    pub(super) context: usize,
    pub(super) prefill_chunk: usize,
    pub(super) load_time: Duration,
    /// How it is spoken to.
    pub(super) speech: Origin,
    pub(super) grammars: Grammars,
    /// Texts that generations may quote.
    pub(super) quoted: Quoted,
    pub(super) fingerprint: Fingerprint,
    pub(super) placement: Placement,
    pub(super) stages: Vec<StageInfo>,
    pub(super) shards: Arc<Stages>,
    /// What drafts for it.
    pub(super) second: Option<Arc<Second>>,
    /// What computes feed-forward blocks beside their engines.
    pub(super) services: Vec<Arc<dyn FfnService>>,
    pub(super) scheduler: Scheduler,
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

    /// The same to be kept, as by a [`Detokenizer`](crate::Detokenizer).
    pub fn shared_tokenizer(&self) -> Arc<Tokenizer> {
        Arc::clone(&self.inner.tokenizer)
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
        let engines = shards.shards.iter().enumerate().filter(|(at, _)| first(*at));
        let engines = engines.filter_map(|(_, shard)| shard.ffn_memory());
        let services = self.inner.services.iter().filter_map(|service| service.memory());
        engines.chain(services).reduce(|a, b| FfnMemory {
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

    /// What keys and values of all sessions take, and what is kept for those to come; of all stages together.
    pub fn kv_memory(&self) -> KvMemory {
        self.inner.shards.kv_memory()
    }

    /// An empty session, which takes no memory for keys and values yet. Any number may exist and generate at the same
    /// time: so many of them as [`LoadOptions::sessions`](crate::LoadOptions::sessions) says share each step, the others
    /// wait for their turn.
    ///
    /// # Errors
    /// None today.
    pub fn session(&self) -> Result<Session> {
        Ok(Session::open(Arc::clone(&self.inner)))
    }

    /// Generates from a prompt in a session of its own.
    ///
    /// # Errors
    /// As [`Session::generate`]; [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for [`Prompt::Append`].
    pub fn generate(&self, prompt: impl Into<Prompt>, options: GenerateOptions) -> Result<Generation> {
        self.session()?.generate(prompt.into().whole()?, options)
    }

    /// Generates from many prompts, each in a session of its own, and waits for all of them: several at a time share
    /// each step, as [`LoadOptions::sessions`](crate::LoadOptions::sessions) allows. Outputs come in the order of the
    /// prompts; one that fails does not end the others.
    ///
    /// ```
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/models/stories260K");
    /// # use skulk::{GenerateOptions, LoadOptions, Model};
    /// # let model = Model::open(path, &LoadOptions::default())?;
    /// let outputs = model.generate_batch(["Once upon", "A dog"], &GenerateOptions::default().max_tokens(8));
    /// for output in outputs {
    ///     assert_eq!(output?.ids.len(), 8);
    /// }
    /// # Ok::<(), skulk::Error>(())
    /// ```
    pub fn generate_batch(
        &self,
        prompts: impl IntoIterator<Item = impl Into<Prompt>>,
        options: &GenerateOptions,
    ) -> Vec<Result<Output>> {
        let start =
            |prompt: Prompt| self.session()?.start(prompt.whole()?, options.clone(), usize::MAX, None);
        let started: Vec<_> = prompts.into_iter().map(|prompt| start(prompt.into())).collect();
        started.into_iter().map(|generation| generation?.output()).collect()
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
