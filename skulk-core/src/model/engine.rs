//! Which engines are there? Backends, each joined with the decoder into a public engine.

use std::sync::Arc;

use super::decoder::Decoder;
use super::shard::DecoderShard;
use crate::arch::LayerTensor;
use crate::bytes::ByteSize;
use crate::engine::backend::{Backend, CacheSpec};
use crate::engine::candle::Cpu;
use crate::engine::{Capabilities, Engine, EngineId, LoadCx, Shard, ShardEstimate, ShardSpec};
use crate::error::{Error, ErrorKind, Result};
use crate::weights::Checkpoint;

/// An engine on one backend.
struct DecoderEngine<B: Backend> {
    id: EngineId,
    capabilities: Capabilities,
    backend: Arc<B>,
}

/// Options of an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineOptions {
    /// Threads the engine computes with.
    pub threads: usize,
}

impl Default for EngineOptions {
    /// All the hardware's threads, as far as the system tells.
    fn default() -> Self {
        Self { threads: std::thread::available_parallelism().map_or(1, |n| n.get()) }
    }
}

impl EngineOptions {
    /// Computes with `threads` threads.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }
}

/// The engine of this name: `candle-cpu`.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] for an unknown name; otherwise as the engine's own function.
pub fn engine(name: &str, options: &EngineOptions) -> Result<Arc<dyn Engine>> {
    match name {
        "candle-cpu" => candle_cpu(options),
        other => Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("expected the name of an engine, found `{other}`"),
        )
        .with("field", "engine")
        .with_hint("engines: candle-cpu")),
    }
}

/// The CPU through candle's kernels: weights stay where they are mapped.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] for zero or absurdly many threads.
pub fn candle_cpu(options: &EngineOptions) -> Result<Arc<dyn Engine>> {
    Ok(Arc::new(DecoderEngine {
        id: EngineId::new("candle-cpu"),
        capabilities: Capabilities {
            device: format!("CPU, {} thread{}", options.threads, if options.threads == 1 { "" } else { "s" }),
            in_place_weights: true,
        },
        backend: Arc::new(Cpu::new(options.threads)?),
    }))
}

impl<B: Backend> Engine for DecoderEngine<B> {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn estimate(&self, spec: &ShardSpec, checkpoint: &dyn Checkpoint) -> Result<ShardEstimate> {
        let arch = &spec.arch;
        let mut names = Vec::new();
        if spec.is_first() || spec.is_last() && arch.tied_embeddings {
            names.push(arch.names.embedding());
        }
        if spec.is_last() {
            names.push(arch.names.output_norm());
            if !arch.tied_embeddings {
                names.push(arch.names.head());
            }
        }
        let mut kv_cache = 0usize;
        for layer in spec.layers.clone() {
            let layer_spec = &arch.layers[layer];
            names.extend(LayerTensor::of(layer_spec).map(|tensor| arch.names.weight(layer, tensor)));
            let cache = CacheSpec::new(&layer_spec.attention, spec.context, spec.max_rows, spec.kv);
            kv_cache = kv_cache.saturating_add(cache.bytes().unwrap_or(usize::MAX));
        }
        let mut weights = ByteSize(0);
        for name in names {
            let info = checkpoint.tensor(&name).ok_or_else(|| {
                Error::new(ErrorKind::TensorMissing, "the model needs a tensor that the checkpoint lacks")
                    .with("file", checkpoint.path().display())
                    .with("tensor", name)
            })?;
            weights = weights + ByteSize(info.len);
        }
        Ok(ShardEstimate { weights, kv_cache: ByteSize(kv_cache as u64) })
    }

    fn load(&self, spec: &ShardSpec, checkpoint: &dyn Checkpoint, cx: &LoadCx<'_>) -> Result<Box<dyn Shard>> {
        let decoder = Decoder::load(Arc::clone(&self.backend), spec.clone(), checkpoint, cx)?;
        Ok(Box::new(DecoderShard::new(decoder)))
    }
}
