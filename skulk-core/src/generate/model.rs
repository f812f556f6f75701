//! What is a loaded model? Its shards in order, its tokenizer, and how sequences pass through.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::arch::ArchSpec;
use crate::bytes::ByteSize;
use crate::cancel::CancelToken;
use crate::engine::{
    Activations, Batch, Engine, EngineId, FfnMemory, Input, KvType, LoadCx, Precision, Progress, Segment,
    Shard, ShardSpec, StepCx,
};
use crate::error::{Error, ErrorKind, Result};
use crate::generate::{GenerateOptions, Generation, Prompt, Session};
use crate::ids::{SeqId, TokenId};
use crate::engines::{EngineOptions, by_name};
use crate::plan::{NodeId, Part, Placement, Stage};
use crate::tokenizer::Tokenizer;
use crate::weights::{Checkpoint, Memory, open_checkpoint};

/// Called with the progress of loading.
type OnProgress = Arc<dyn Fn(Progress) + Send + Sync>;

/// Options of loading a model.
#[derive(Clone)]
#[non_exhaustive]
pub struct LoadOptions {
    /// Stages that [`Model::open`] splits the layers into, all on one engine.
    pub stages: usize,
    /// That engine's name; `None`: the first of [`engines`](Self::engines), or `cpu`.
    pub engine_name: Option<EngineId>,
    /// Which engine runs which layers, for [`Model::open`], instead of `stages` and `engine_name`.
    pub placement: Option<Placement>,
    /// Engines that may be named. When there are none, those that are named are made, see
    /// [`engines::by_name`](crate::engines::by_name), with [`engine_options`](Self::engine_options).
    pub engines: Vec<Arc<dyn Engine>>,
    /// Options of engines that are made.
    pub engine_options: EngineOptions,
    /// The name that placements have for this process.
    pub node: NodeId,
    /// Positions a session can hold, in tokens; `None`: what the model was trained for, at most
    /// [`DEFAULT_CONTEXT`](Self::DEFAULT_CONTEXT).
    pub context: Option<usize>,
    /// Prompt tokens that pass through the layers together.
    pub prefill_chunk: usize,
    /// How keys and values are kept.
    pub kv: KvType,
    /// Called after each layer that was loaded.
    pub progress: Option<OnProgress>,
    /// Ends loading within one layer.
    pub cancel: CancelToken,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            stages: 1,
            engine_name: None,
            placement: None,
            engines: Vec::new(),
            engine_options: EngineOptions::default(),
            node: NodeId::new(NodeId::LOCAL),
            context: None,
            prefill_chunk: 256,
            kv: KvType::default(),
            progress: None,
            cancel: CancelToken::new(),
        }
    }
}

impl LoadOptions {
    /// The context that long-context models get unless asked for more.
    pub const DEFAULT_CONTEXT: usize = 4096;

    /// Splits the layers into `n` stages.
    #[must_use]
    pub fn stages(mut self, n: usize) -> Self {
        self.stages = n;
        self
    }

    /// Runs all layers on the engine of this name.
    #[must_use]
    pub fn engine_name(mut self, name: &str) -> Self {
        self.engine_name = Some(EngineId::new(name));
        self
    }

    /// Runs layers as placed.
    #[must_use]
    pub fn placement(mut self, placement: Placement) -> Self {
        self.placement = Some(placement);
        self
    }

    /// Computes with `n` threads.
    #[must_use]
    pub fn threads(mut self, n: usize) -> Self {
        self.engine_options.threads = n;
        self
    }

    /// Rounds activations like this.
    #[must_use]
    pub fn precision(mut self, precision: Precision) -> Self {
        self.engine_options.precision = precision;
        self
    }

    /// Puts weights there.
    #[must_use]
    pub fn memory(mut self, memory: Memory) -> Self {
        self.engine_options.memory = memory;
        self
    }

    /// Keeps a compact copy of the head, or not.
    #[must_use]
    pub fn screen_head(mut self, screen: bool) -> Self {
        self.engine_options.screen_head = screen;
        self
    }

    /// Computes feed-forward blocks on the CPU, or not.
    #[must_use]
    pub fn ffn_on_cpu(mut self, on_cpu: bool) -> Self {
        self.engine_options.ffn_on_cpu = on_cpu;
        self
    }

    /// Keeps no more than this of feed-forward weights in memory, of what one engine computes on the CPU.
    #[must_use]
    pub fn ffn_budget(mut self, most: ByteSize) -> Self {
        self.engine_options.ffn_budget = Some(most);
        self
    }

    /// Computes only the `k` features of a feed-forward block with the largest gate scores.
    #[must_use]
    pub fn ffn_top_features(mut self, k: usize) -> Self {
        self.engine_options.ffn_top_features = Some(k);
        self
    }

    /// Reserves no more than this on the device.
    #[must_use]
    pub fn device_memory(mut self, most: ByteSize) -> Self {
        self.engine_options.device_memory = Some(most);
        self
    }

    /// Adds an engine.
    #[must_use]
    pub fn engine(mut self, engine: Arc<dyn Engine>) -> Self {
        self.engines.push(engine);
        self
    }

    /// Runs what placements give to the node of this name.
    #[must_use]
    pub fn node(mut self, node: impl Into<NodeId>) -> Self {
        self.node = node.into();
        self
    }

    /// Lets sessions hold `n` tokens.
    #[must_use]
    pub fn context(mut self, n: usize) -> Self {
        self.context = Some(n);
        self
    }

    /// Passes `n` prompt tokens through the layers together.
    #[must_use]
    pub fn prefill_chunk(mut self, n: usize) -> Self {
        self.prefill_chunk = n;
        self
    }

    /// Keeps keys and values like this.
    #[must_use]
    pub fn kv(mut self, kv: KvType) -> Self {
        self.kv = kv;
        self
    }

    /// Calls `report` after each layer.
    #[must_use]
    pub fn progress(mut self, report: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(report));
        self
    }

    /// Ends loading when `token` is cancelled.
    #[must_use]
    pub fn cancel(mut self, token: CancelToken) -> Self {
        self.cancel = token;
        self
    }
}

/// What one stage of a loaded model holds.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    pub weights: ByteSize,
    /// Where they lie, as [`Shard::memory`] says; with a [budget](LoadOptions::ffn_budget), those that it is not for.
    pub memory: Memory,
    /// Keys and values of one full-length session.
    pub kv_cache: ByteSize,
}

/// A model ready to generate. Cloning is cheap and shares the weights.
///
/// ```
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/models/stories260K");
/// use skulk::{GenerateOptions, LoadOptions, Model};
/// let model = Model::open(path, &LoadOptions::default().stages(2).threads(1))?;
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
    shards: Vec<Box<dyn Shard>>,
    placement: Placement,
    stages: Vec<StageInfo>,
    next_seq: AtomicU64,
}

impl Model {
    /// Opens the checkpoint at `path` and loads it in [`LoadOptions::stages`] even stages, or as
    /// [`LoadOptions::placement`] says.
    ///
    /// # Errors
    /// As [`open_checkpoint`] and [`load`](Self::load).
    pub fn open(path: impl AsRef<Path>, options: &LoadOptions) -> Result<Self> {
        let started = Instant::now();
        let checkpoint = open_checkpoint(path)?;
        let arch = Arc::new(ArchSpec::from_checkpoint(&*checkpoint)?);
        let placement = placement(arch.n_layers(), options)?;
        Self::assemble(started, &*checkpoint, arch, &placement, options)
    }

    /// Loads a checkpoint as placed: each stage maps its own tensors and no others.
    ///
    /// # Errors
    /// [`ErrorKind::ArchUnsupported`], [`ErrorKind::ConfigInvalid`], [`ErrorKind::TensorMissing`]
    /// and [`ErrorKind::TensorShape`] for what is wrong with the checkpoint;
    /// [`ErrorKind::TokenizerInvalid`]; [`ErrorKind::PlacementInvalid`] when the placement does not
    /// fit the model or names an engine that the options lack; [`ErrorKind::InvalidArgument`] for
    /// impossible options; [`ErrorKind::Cancelled`].
    pub fn load(checkpoint: &dyn Checkpoint, placement: &Placement, options: &LoadOptions) -> Result<Self> {
        let started = Instant::now();
        let arch = Arc::new(ArchSpec::from_checkpoint(checkpoint)?);
        Self::assemble(started, checkpoint, arch, placement, options)
    }

    fn assemble(
        started: Instant,
        checkpoint: &dyn Checkpoint,
        arch: Arc<ArchSpec>,
        placement: &Placement,
        options: &LoadOptions,
    ) -> Result<Self> {
        let total = arch.n_layers();
        let mut placement = placement.clone();
        placement.covers(total)?;
        is_local(&placement, &options.node)?;
        let engines = engines(&mut placement, options)?;
        let context = options.context.unwrap_or(arch.context_length.min(LoadOptions::DEFAULT_CONTEXT));
        if context > arch.context_length {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("expected a context of at most {} tokens, for which the model was trained, found {context}", arch.context_length),
            )
            .with("field", "context")
            .with_hint("ask for a smaller context, or leave the option out"));
        }
        // Building the tokenizer takes as long as everything else: let it run beside.
        let (tokenizer, shards) = std::thread::scope(|scope| {
            let tokenizer = scope.spawn(|| Tokenizer::from_checkpoint(checkpoint));
            let done = AtomicUsize::new(0);
            let on_layer = || {
                let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                if let Some(report) = &options.progress {
                    report(Progress { done, total });
                }
            };
            let cx = LoadCx::new(&options.cancel, &on_layer);
            let shards = placement
                .stages()
                .iter()
                .map(|stage| {
                    let id = engine_of(stage)?;
                    let engine = engines.iter().find(|e| *e.id() == id).ok_or_else(|| {
                        Error::new(ErrorKind::PlacementInvalid, format!("the placement names engine `{id}`"))
                            .with_hint("add that engine to the load options")
                    })?;
                    let prefill_chunk = options.prefill_chunk.min(context);
                    let mut spec = ShardSpec::new(
                        Arc::clone(&arch),
                        stage.layers.clone(),
                        context,
                        prefill_chunk,
                        options.kv,
                    )?;
                    if !placement.experts().is_empty() {
                        let apart = placement.experts().iter().filter(|shard| !shard.replica);
                        spec = spec.ffn_on_cpu(apart.flat_map(|shard| shard.layers.clone()).collect());
                    }
                    let estimate = engine.estimate(&spec, checkpoint)?;
                    let shard = engine.load(&spec, checkpoint, &cx)?;
                    let info = StageInfo {
                        engine: engine.id().clone(),
                        device: engine.capabilities().device.clone(),
                        layers: stage.layers.clone(),
                        weights: shard.weight_bytes(),
                        memory: shard.memory(),
                        kv_cache: estimate.kv_cache,
                    };
                    Ok((shard, info))
                })
                .collect::<Result<Vec<_>>>();
            let tokenizer = tokenizer
                .join()
                .unwrap_or_else(|_| Err(Error::new(ErrorKind::Internal, "building the tokenizer panicked")));
            (tokenizer, shards)
        });
        let (shards, stages): (Vec<_>, Vec<_>) = shards?.into_iter().unzip();
        let tokenizer = tokenizer?;
        if tokenizer.vocab_size() > arch.vocab_size {
            return Err(Error::new(
                ErrorKind::TokenizerInvalid,
                format!(
                    "expected a tokenizer of at most {} tokens, the embedding table's rows, found {}",
                    arch.vocab_size,
                    tokenizer.vocab_size()
                ),
            )
            .with("file", checkpoint.path().display())
            .with_hint("the tokenizer belongs to another model"));
        }
        Ok(Self {
            inner: Arc::new(Inner {
                arch,
                tokenizer: Arc::new(tokenizer),
                context,
                prefill_chunk: options.prefill_chunk.min(context),
                load_time: started.elapsed(),
                shards,
                placement,
                stages,
                next_seq: AtomicU64::new(0),
            }),
        })
    }

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

    /// What is in memory of feed-forward weights, when there is a [budget](LoadOptions::ffn_budget) for them; of
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

/// Where the options put a model of so many layers.
fn placement(n_layers: usize, options: &LoadOptions) -> Result<Placement> {
    let LoadOptions { stages, engine_name, engines, .. } = options;
    match &options.placement {
        None => {
            let first = || engines.first().map_or_else(|| EngineId::new("cpu"), |first| first.id().clone());
            Placement::even(n_layers, *stages, &engine_name.clone().unwrap_or_else(first))
        }
        Some(placement) if *stages == 1 && engine_name.is_none() => Ok(placement.clone()),
        Some(_) => Err(Error::new(
            ErrorKind::InvalidArgument,
            "expected either a placement or a number of stages on one engine, found both",
        )
        .with("field", "placement")
        .with_hint("leave out stages and engine: the placement says which layers run where")),
    }
}

/// The engine of this process that a stage names.
fn engine_of(stage: &Stage) -> Result<EngineId> {
    stage.engine().ok_or_else(|| {
        let backend = stage.backend.as_deref().unwrap_or("none");
        let message = format!("expected a backend of this library for each stage, found {backend}");
        Error::new(ErrorKind::PlacementInvalid, message).with("node", &stage.node)
    })
}

/// Whether this process can run all of a placement.
fn is_local(placement: &Placement, node: &NodeId) -> Result<()> {
    let invalid = |message: String| Error::new(ErrorKind::PlacementInvalid, message);
    let elsewhere = |other: &NodeId| {
        invalid(format!("expected everything on node `{node}`, which is this process, found a part on `{other}`"))
            .with_hint("give this process the name that the placement has for it with the option node, and a placement on it alone")
    };
    for stage in placement.stages() {
        if stage.node != *node {
            return Err(elsewhere(&stage.node));
        }
        if stage.part != Part::Whole {
            return Err(invalid(
                "expected stages of whole layers, found one of tensors or of guidance".to_owned(),
            ));
        }
    }
    for shard in placement.experts().iter().filter(|shard| !shard.replica) {
        if shard.node != *node {
            return Err(elsewhere(&shard.node));
        }
        let whole = shard.experts == (0..shard.n_experts);
        if !whole || shard.engine().is_none_or(|engine| engine.as_str() != "cpu") {
            return Err(invalid(format!(
                "expected feed-forward blocks away from their layer's attention to be whole, and on skulk-cpu, found experts {}..{} of {} on {}",
                shard.experts.start,
                shard.experts.end,
                shard.n_experts,
                shard.backend.as_deref().unwrap_or("no backend")
            )));
        }
    }
    Ok(())
}

/// The caller's engines, or new ones: each that a stage names, once. A stage gets its engine's own id.
fn engines(placement: &mut Placement, options: &LoadOptions) -> Result<Vec<Arc<dyn Engine>>> {
    if !options.engines.is_empty() {
        return Ok(options.engines.clone());
    }
    let mut engine_options = options.engine_options.clone();
    engine_options.ffn_on_cpu |= placement.experts().iter().any(|shard| !shard.replica);
    // A name may mean an engine of a more precise id: `wgpu` the best GPU there is.
    let mut made: Vec<(EngineId, Arc<dyn Engine>)> = Vec::new();
    for stage in placement.stages_mut() {
        let id = engine_of(stage)?;
        let known = made.iter().find(|(name, engine)| *name == id || *engine.id() == id);
        let engine = match known {
            Some((_, engine)) => Arc::clone(engine),
            None => by_name(id.as_str(), &engine_options)?,
        };
        stage.set_engine(engine.id());
        made.push((id, engine));
    }
    Ok(made.into_iter().map(|(_, engine)| engine).collect())
}

impl Inner {
    /// Opens a sequence on every shard.
    pub(super) fn open_sequence(&self) -> Result<SeqId> {
        let seq = SeqId(self.next_seq.fetch_add(1, Ordering::Relaxed));
        for shard in &self.shards {
            if let Err(error) = shard.open(seq) {
                self.close_sequence(seq);
                return Err(error);
            }
        }
        Ok(seq)
    }

    pub(super) fn close_sequence(&self, seq: SeqId) {
        self.shards.iter().for_each(|shard| shard.close(seq));
    }

    /// Shortens the sequence on every shard to the same length: `len`, or less when one has lost
    /// what it would need.
    pub(super) fn truncate(&self, seq: SeqId, len: usize) -> Result<usize> {
        let mut kept = len;
        loop {
            let before = kept;
            for shard in &self.shards {
                kept = kept.min(shard.truncate(seq, kept)?);
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
            shard.forward(&Batch { segments: &segments, input }, out, cx)?;
            input_is_tokens = false;
            buffers.swap(0, 1);
        }
        // The last stage's output was swapped to the back.
        buffers.swap(0, 1);
        Ok(())
    }
}
