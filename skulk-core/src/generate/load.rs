//! How does a checkpoint become a loaded model? Where its layers go, the engines for them, a shard of each stage.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use super::model::{Inner, Model, StageInfo};
use crate::arch::ArchSpec;
use crate::engine::{Engine, EngineId, LoadCx, Progress, ShardSpec};
use crate::engines::by_name;
use crate::error::{Error, ErrorKind, Result};
use crate::generate::LoadOptions;
use crate::plan::{NodeId, Part, Placement, Stage};
use crate::tokenizer::Tokenizer;
use crate::weights::{Checkpoint, open_checkpoint};

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
