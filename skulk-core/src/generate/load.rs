//! How does a checkpoint become a loaded model? Where its layers go, the engines for them, a shard of each stage.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use super::chat::Origin;
use super::draft::{self, Drafting, Loaded};
use super::fingerprint::Fingerprint;
use super::model::{Inner, Model, StageInfo};
use super::scheduler::{Limits, Scheduler};
use super::services::{self, Services};
use super::stages::Stages;
use crate::arch::{ArchSpec, step_rows};
use crate::bytes::ByteSize;
use crate::cancel::CancelToken;
use crate::engine::{Engine, EngineId, KvTypes, LoadCx, Progress, Shard, ShardSpec};
use crate::engines::by_name;
use crate::error::{Error, ErrorKind, Result};
use crate::generate::LoadOptions;
use crate::grammar::Grammars;
use crate::plan::{ExpertShard, Inventory, NodeId, Part, Placement, Stage};
use crate::tokenizer::Tokenizer;
use crate::weights::{Checkpoint, open_checkpoint};

/// How often waiting for the tokenizer looks at the token.
const PATIENCE: Duration = Duration::from_millis(20);

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
        let placement = match &options.placement {
            None => even(arch.n_layers(), options)?,
            Some(placement) => {
                is_alone(options, false)?;
                placement.clone()
            }
        };
        assemble(started, &*checkpoint, arch, placement, options)
    }

    /// Loads a checkpoint as placed: each stage maps its own tensors and no others. Sessions hold the context that
    /// the placement was [planned](Placement::context_tokens) for, unless [`LoadOptions::context`] asks for less, or
    /// for more within its [limit](Placement::context_limit).
    ///
    /// # Errors
    /// [`ErrorKind::ArchUnsupported`], [`ErrorKind::ConfigInvalid`], [`ErrorKind::TensorMissing`]
    /// and [`ErrorKind::TensorShape`] for what is wrong with the checkpoint;
    /// [`ErrorKind::TokenizerInvalid`]; [`ErrorKind::PlacementInvalid`] when the placement does not
    /// fit the model or names an engine that the options lack; [`ErrorKind::InvalidArgument`] for
    /// impossible options, and for those that say, too, where layers run; [`ErrorKind::Cancelled`].
    pub fn load(checkpoint: &dyn Checkpoint, placement: &Placement, options: &LoadOptions) -> Result<Self> {
        let started = Instant::now();
        is_alone(options, options.placement.is_some())?;
        let arch = Arc::new(ArchSpec::from_checkpoint(checkpoint)?);
        assemble(started, checkpoint, arch, placement.clone(), options)
    }
}

/// Loads what is placed.
fn assemble(
    started: Instant,
    checkpoint: &dyn Checkpoint,
    arch: Arc<ArchSpec>,
    mut placement: Placement,
    options: &LoadOptions,
) -> Result<Model> {
    placement.covers(arch.n_layers())?;
    is_local(&placement, &options.node)?;
    let options = &*within_budget(&placement, options)?;
    let engines = engines(&mut placement, options)?;
    #[cfg(feature = "net")]
    let options = &*super::peers::reach(&mut placement, checkpoint, &arch, options)?;
    if options.ffn_on_cpu {
        services::leave_to_cpu(&mut placement, &arch, options)?;
    }
    is_planned(&placement, checkpoint)?;
    let context = context(&arch, &placement, options)?;
    let kv = kv_types(&placement, options, &engines)?;
    placement.keep(kv);
    let prefill_chunk = options.prefill_chunk.min(context);
    if options.prefill_chunk == 0 {
        let message = "expected at least 1 token, found 0";
        return Err(
            Error::argument("prefill_chunk", message).with_hint("leave the option out for its default")
        );
    }
    let sessions = sessions(&placement, options)?;
    let rows = step_rows(prefill_chunk, sessions);
    // Building the tokenizer takes as long as everything else: let it run beside.
    let tokenizer = Building::start(checkpoint, &options.cancel)?;
    let second = Drafting::find((&arch, checkpoint), (options, &placement), [context, rows, sessions], kv)?;
    let of_second = second.as_ref().map_or(0, Drafting::n_layers);
    let (done, total) = (AtomicUsize::new(0), arch.n_layers() + of_second);
    let on_layer = || {
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(report) = &options.progress {
            // A head that could not be loaded may have counted before.
            report(Progress { done: done.min(total), total });
        }
    };
    let cx = LoadCx::new(&options.cancel, &on_layer);
    let services = Services::load(&placement, checkpoint, &arch, options, &cx)?;
    let mut shards = Vec::new();
    let mut stages = Vec::new();
    for stage in placement.stages() {
        let mut spec = ShardSpec::new(Arc::clone(&arch), stage.layers.clone(), context, rows, kv)?;
        spec.kv_memory = kv_memory(options, stage, arch.n_layers());
        spec.ffn = services.plan.clone();
        let (shard, mut info) =
            load_stage((&engine_of(stage)?, placement.sessions()), &engines, spec, checkpoint, &cx)?;
        services.tell(&mut info);
        shards.push(shard);
        stages.push(info);
    }
    let fingerprint = Fingerprint::of(&arch, checkpoint);
    let speech = Origin::of(checkpoint, options);
    let tokenizer = tokenizer.wait()?;
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
    let second = match (second, shards.last(), stages.last()) {
        (Some(second), Some(last), Some(StageInfo { engine, .. })) => {
            let (engines, tokenizer) = (&*engines, &tokenizer);
            second.load(&Loaded { last: &**last, engine, engines, checkpoint, tokenizer }, &cx)?
        }
        _ => None,
    };
    let shards = Arc::new(Stages::new(shards));
    let recurrent = arch.has_states();
    let when_full = options.when_full;
    let limits = Limits { sessions, rows, chunk: prefill_chunk, when_full, context, recurrent };
    let scheduler = Scheduler::start(Arc::clone(&shards), second.clone(), limits)?;
    Ok(Model {
        inner: Arc::new(Inner {
            fingerprint,
            speech,
            grammars: Grammars::default(),
            quoted: draft::Quoted::default(),
            path: checkpoint.path().to_owned(),
            // Neither who followed loading nor who could stop it is held.
            options: LoadOptions { progress: None, cancel: CancelToken::new(), ..options.clone() },
            arch,
            tokenizer: Arc::new(tokenizer),
            context,
            prefill_chunk,
            load_time: started.elapsed(),
            shards,
            second,
            services: services.all(),
            placement,
            stages,
            scheduler,
        }),
    })
}

/// Sessions that take part in steps: as many as the options ask for, or else as were planned.
fn sessions(placement: &Placement, options: &LoadOptions) -> Result<usize> {
    const MOST: usize = 4096;
    let (most, whose) = match placement.sessions() {
        Some(planned) if planned < MOST => (planned, ", which the placement was planned for"),
        _ => (MOST, ""),
    };
    let default = placement.sessions().unwrap_or(LoadOptions::DEFAULT_SESSIONS).min(most);
    let asked = options.sessions.unwrap_or(default);
    if (1..=most).contains(&asked) {
        return Ok(asked);
    }
    let message = format!("expected 1 to {most} sessions at a time{whose}, found {asked}");
    Err(Error::argument("sessions", message)
        .with_hint("give a number in that range, plan for as many, or leave the option out"))
}

/// A stage's part of the memory for keys and values, by its layers.
fn kv_memory(options: &LoadOptions, stage: &Stage, n_layers: usize) -> Option<ByteSize> {
    let share = |most: ByteSize| u128::from(most.bytes()) * stage.layers.len() as u128 / n_layers as u128;
    options.kv_memory.map(|most| ByteSize(u64::try_from(share(most)).unwrap_or(u64::MAX)))
}

/// A stage on its engine. Keys and values of as many sessions as were planned have room, and no more, unless options say
/// what they may take.
pub(super) fn load_stage(
    (id, planned): (&EngineId, Option<usize>),
    engines: &[Arc<dyn Engine>],
    mut spec: ShardSpec,
    checkpoint: &dyn Checkpoint,
    cx: &LoadCx<'_>,
) -> Result<(Box<dyn Shard>, StageInfo)> {
    let engine = engines.iter().find(|engine| engine.id() == id).ok_or_else(|| {
        Error::new(ErrorKind::PlacementInvalid, format!("the placement names engine `{id}`"))
            .with_hint("add that engine to the load options")
    })?;
    let estimate = engine.estimate(&spec, checkpoint)?;
    let all = |n: usize| ByteSize(estimate.kv_cache.bytes().saturating_mul(n as u64));
    spec.kv_memory = spec.kv_memory.or(planned.map(all));
    let shard = engine.load(&spec, checkpoint, cx)?;
    let info = StageInfo {
        engine: engine.id().clone(),
        device: engine.capabilities().device.clone(),
        layers: spec.layers.clone(),
        weights: shard.weight_bytes(),
        memory: shard.memory(),
        kv_cache: estimate.kv_cache,
    };
    Ok((shard, info))
}

/// A tokenizer that is built on a thread of its own.
pub(super) struct Building {
    tokenizer: Receiver<Result<Tokenizer>>,
    cancel: CancelToken,
}

impl Building {
    pub(super) fn start(checkpoint: &dyn Checkpoint, cancel: &CancelToken) -> Result<Self> {
        let build = Tokenizer::builder(checkpoint);
        let (sender, tokenizer) = sync_channel(1);
        std::thread::Builder::new()
            .name("skulk-tokenizer".into())
            .spawn(move || {
                // Loading may have been cancelled before.
                let _ = sender.send(build());
            })
            .map_err(|e| {
                Error::new(ErrorKind::EngineFailed, "cannot start the tokenizer's thread").with_source(e)
            })?;
        Ok(Self { tokenizer, cancel: cancel.clone() })
    }

    pub(super) fn wait(&self) -> Result<Tokenizer> {
        loop {
            self.cancel.check()?;
            match self.tokenizer.recv_timeout(PATIENCE) {
                Ok(tokenizer) => return tokenizer,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::new(ErrorKind::Internal, "building the tokenizer panicked"));
                }
            }
        }
    }
}

/// Who is told that loading failed may write the file anew: nobody reads it any more. Where loading is cancelled that
/// takes too long; the thread ends by itself.
impl Drop for Building {
    fn drop(&mut self) {
        let _ = self.wait();
    }
}

/// Even stages on one engine of this process.
fn even(n_layers: usize, options: &LoadOptions) -> Result<Placement> {
    let LoadOptions { stages, engine_name, engines, node, .. } = options;
    let first = || engines.first().map_or_else(|| EngineId::new("cpu"), |first| first.id().clone());
    let even = Placement::even(n_layers, *stages, &engine_name.clone().unwrap_or_else(first))?;
    let here = even.stages().iter().map(|stage| Stage { node: node.clone(), ..stage.clone() });
    Placement::new(here.collect(), n_layers)
}

/// `Ok` when no option says, beside a placement, where layers run. `placement`: there is another one.
fn is_alone(options: &LoadOptions, placement: bool) -> Result<()> {
    let LoadOptions { stages, engine_name, .. } = options;
    let given = [("placement", placement), ("stages", *stages != 1), ("engine_name", engine_name.is_some())];
    match given.into_iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((field, _)) => Err(Error::argument(
            field,
            format!("expected a placement alone, found the option {field} beside it"),
        )
        .with_hint("leave the option out: the placement says which layers run where")),
    }
}

/// Tokens of a session: what the options ask for, or else what the plan reserves memory for.
fn context(arch: &ArchSpec, placement: &Placement, options: &LoadOptions) -> Result<usize> {
    let tokens = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let planned = placement.context_limit().map_or(usize::MAX, tokens);
    let (most, whose) = if arch.context_length <= planned {
        (arch.context_length, "for which the model was trained")
    } else {
        (planned, "which the placement allows")
    };
    match options.context {
        None => {
            let default = LoadOptions::DEFAULT_CONTEXT.min(arch.short_context().unwrap_or(usize::MAX));
            Ok(placement.context_tokens().map_or(default, tokens).min(most))
        }
        Some(asked) if asked <= most => Ok(asked),
        Some(asked) => Err(Error::argument(
            "context",
            format!("expected a context of at most {most} tokens, {whose}, found {asked}"),
        )
        .with_hint("ask for a smaller context, or leave the option out")),
    }
}

/// How keys and values are kept: as the options ask for, or else as was planned, or as the engines prefer.
fn kv_types(placement: &Placement, options: &LoadOptions, engines: &[Arc<dyn Engine>]) -> Result<KvTypes> {
    let planned = placement.kept().unwrap_or_else(|| preferred(placement, engines));
    let asked = match (options.kv, options.kv_values) {
        (None, None) => None,
        (kv, values) => {
            let kv = kv.unwrap_or(planned);
            Some(KvTypes { values: values.unwrap_or(kv.values), ..kv })
        }
    };
    match asked {
        Some(asked)
            if placement.context_tokens().is_some() && asked.block_bytes() > planned.block_bytes() =>
        {
            let message = format!(
                "expected keys and values that take no more than {planned}, which the placement was planned with, found {asked}"
            );
            Err(Error::argument("kv", message).with_hint("plan with the same types, or leave the option out"))
        }
        asked => Ok(asked.unwrap_or(planned)),
    }
}

/// How keys and values are kept where nobody says: as all stages' engines prefer, in no more than two bytes, or else as any
/// engine can.
fn preferred(placement: &Placement, engines: &[Arc<dyn Engine>]) -> KvTypes {
    let stages = placement.stages().iter().filter_map(Stage::engine);
    let engines = stages.filter_map(|id| engines.iter().find(|engine| *engine.id() == id));
    let mut types = engines.map(|engine| engine.capabilities().kv_types.first().copied());
    let first = types.next().flatten().unwrap_or_default();
    let short = first.block_bytes() <= KvTypes::default().keys.block_bytes();
    if short && types.all(|kind| kind == Some(first)) { first.into() } else { KvTypes::default() }
}

/// The engine of this process that a stage names.
pub(super) fn engine_of(stage: &Stage) -> Result<EngineId> {
    stage.engine().ok_or_else(|| {
        let backend = stage.backend.as_deref().unwrap_or("none");
        let message = format!("expected a backend of this library for each stage, found {backend}");
        Error::new(ErrorKind::PlacementInvalid, message).with("node", &stage.node)
    })
}

/// Whether this process can run all of a placement's stages.
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
    Ok(())
}

/// Whether a plan is one of a model of this size: weights take no more than it has for weights and keeps free.
fn is_planned(placement: &Placement, checkpoint: &dyn Checkpoint) -> Result<()> {
    let budgets = placement.budgets();
    if budgets.is_empty() || placement.ffn_budget().is_some() {
        return Ok(());
    }
    let for_weights = budgets.iter().flat_map(|budget| {
        let bytes = &budget.bytes;
        [bytes.attention, bytes.feed_forward, bytes.headroom]
    });
    let planned = for_weights.fold(0, u64::saturating_add);
    // What a slice lacks, others serve, or loading misses.
    let found = Inventory::from_checkpoint(checkpoint).map_or(0, |counted| counted.weights());
    if found <= planned {
        return Ok(());
    }
    let (planned, found) = (ByteSize(planned), ByteSize(found));
    let message =
        format!("expected weights within the {planned} that the placement plans for them, found {found}");
    Err(Error::new(ErrorKind::PlacementInvalid, message)
        .with("file", checkpoint.path().display())
        .with_hint("plan for this checkpoint, or load the one that was planned for"))
}

/// The options with the placement's budget for feed-forward weights, unless they ask for a smaller one.
fn within_budget<'a>(placement: &Placement, options: &'a LoadOptions) -> Result<Cow<'a, LoadOptions>> {
    let Some(planned) = placement.ffn_budget().map(ByteSize) else { return Ok(Cow::Borrowed(options)) };
    if !options.engines.is_empty() {
        let message = format!(
            "expected engines that have {planned} of feed-forward weights in memory, found made ones"
        );
        return Err(Error::argument("engines", message).with_hint(
            "leave the option out: the placement leaves weights on disk, and loading makes engines for that",
        ));
    }
    match options.engine_options.ffn_budget {
        Some(asked) if asked > planned => {
            let message =
                format!("expected at most {planned}, as the placement was planned with, found {asked}");
            Err(Error::argument("ffn_budget", message).with_hint("ask for less, or leave the option out"))
        }
        Some(_) => Ok(Cow::Borrowed(options)),
        None => {
            let mut options = options.clone();
            options.engine_options.ffn_budget = Some(planned);
            Ok(Cow::Owned(options))
        }
    }
}

/// The caller's engines, or new ones: each that a stage names, once. A stage gets its engine's own id.
fn engines(placement: &mut Placement, options: &LoadOptions) -> Result<Vec<Arc<dyn Engine>>> {
    if !options.engines.is_empty() {
        return Ok(options.engines.clone());
    }
    let on_cpu = |shard: &ExpertShard| {
        shard.node == options.node && shard.engine().is_some_and(|engine| engine.as_str() == "cpu")
    };
    let beside = options.ffn_on_cpu || placement.experts().iter().any(on_cpu);
    // Beside a device that limits what is reserved there, others do not need to.
    let limits = |engine: &EngineId| engine.as_str().starts_with("wgpu");
    let limited = placement.stages().iter().filter_map(Stage::engine).any(|engine| limits(&engine));
    // A name may mean an engine of a more precise id: `wgpu` the best GPU there is.
    let mut made: Vec<(EngineId, Arc<dyn Engine>)> = Vec::new();
    for stage in placement.stages_mut() {
        let id = engine_of(stage)?;
        let known = made.iter().find(|(name, engine)| *name == id || *engine.id() == id);
        let engine = match known {
            Some((_, engine)) => Arc::clone(engine),
            None => {
                let mut options = options.engine_options.clone();
                if limited && !limits(&id) {
                    options.device_memory = None;
                }
                // These are the CPU's beside it.
                if beside && id.as_str() != "cpu" {
                    (options.ffn_budget, options.ffn_top_features) = (None, None);
                }
                by_name(id.as_str(), &options)?
            }
        };
        stage.set_engine(engine.id());
        made.push((id, engine));
    }
    Ok(made.into_iter().map(|(_, engine)| engine).collect())
}
