//! Which engines are there? Backends, each joined with the decoder into a public engine.

use std::sync::Arc;

use super::decoder::Decoder;
use super::shard::DecoderShard;
use crate::bytes::ByteSize;
use crate::engine::backend::{Backend, CacheSpec};
use crate::engine::candle::{self, Tensors};
use crate::engine::cpu::Cpu;
#[cfg(feature = "wgpu")]
use crate::engine::wgpu::{Adapter, Gpu, Limits};
use crate::engine::{
    Capabilities, DeviceInfo, Engine, EngineId, LoadCx, Precision, Shard, ShardEstimate, ShardSpec,
};
use crate::error::{Error, ErrorKind, Result};
use crate::weights::{Checkpoint, Memory, total_memory};

/// An engine on one backend.
struct DecoderEngine<B: Backend> {
    id: EngineId,
    capabilities: Capabilities,
    backend: Arc<B>,
    memory: Memory,
}

/// Options of an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineOptions {
    /// Threads the engine computes with.
    pub threads: usize,
    /// How precisely activations enter products.
    pub precision: Precision,
    /// Where weights lie; engines that copy them to a device only map them.
    pub memory: Memory,
    /// Engine [`cpu`] only: keeps a 4-bit copy of a large head, little more than half of an 8-bit one.
    /// When only the largest logits are asked for, as greedy decoding and top-k sampling do, it rules out
    /// all rows of the head but a few, within proven bounds: results are the same, in every bit, and
    /// most of the head is not read.
    pub screen_head: bool,
    /// Engine [`wgpu`] only: memory that may be reserved on the device; `None`: what its driver gives.
    pub device_memory: Option<ByteSize>,
}

impl Default for EngineOptions {
    /// All the hardware's threads, as far as the system tells.
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        Self {
            threads,
            precision: Precision::default(),
            memory: Memory::default(),
            screen_head: false,
            device_memory: None,
        }
    }
}

impl EngineOptions {
    /// Computes with `threads` threads.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Rounds activations like this.
    #[must_use]
    pub fn precision(mut self, precision: Precision) -> Self {
        self.precision = precision;
        self
    }

    /// Puts weights there.
    #[must_use]
    pub fn memory(mut self, memory: Memory) -> Self {
        self.memory = memory;
        self
    }

    /// Keeps a compact copy of the head, or not.
    #[must_use]
    pub fn screen_head(mut self, screen: bool) -> Self {
        self.screen_head = screen;
        self
    }

    /// Reserves no more than this on the device.
    #[must_use]
    pub fn device_memory(mut self, most: ByteSize) -> Self {
        self.device_memory = Some(most);
        self
    }
}

/// The engine of this name: `cpu`, `candle-cpu`, `candle-cuda`, `candle-metal`, `wgpu`, `wgpu-vulkan`,
/// `wgpu-metal`, `wgpu-dx12` or `wgpu-gl`. Those of GPUs but `wgpu` take a device's ordinal, as in
/// `candle-cuda:1`; see also [`devices`].
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] for an unknown name; otherwise as the engine's own function.
pub fn engine(name: &str, options: &EngineOptions) -> Result<Arc<dyn Engine>> {
    let (kind, ordinal) = match name.split_once(':') {
        Some((kind, ordinal)) => (kind, ordinal.parse().ok()),
        None => (name, Some(0)),
    };
    match (kind, ordinal) {
        ("cpu", _) if kind == name => cpu(options),
        ("candle-cpu", _) if kind == name => candle_cpu(options),
        ("candle-cuda", Some(ordinal)) => candle_cuda(ordinal),
        ("candle-metal", Some(ordinal)) => candle_metal(ordinal),
        ("wgpu", _) if kind == name => wgpu(name, options),
        ("wgpu-vulkan" | "wgpu-metal" | "wgpu-dx12" | "wgpu-gl", Some(_)) => wgpu(name, options),
        _ => Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("expected the name of an engine, found `{name}`"),
        )
        .with("field", "engine")
        .with_hint("engines: cpu, candle-cpu, candle-cuda, candle-metal, wgpu, wgpu-vulkan, wgpu-metal, wgpu-dx12, wgpu-gl; of several devices: candle-cuda:1")),
    }
}

/// The CPU through this library's own kernels, for the best instruction set that the machine has.
/// Weights stay in their map or in memory of their own, as [`EngineOptions::memory`] says.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] for zero or absurdly many threads.
pub fn cpu(options: &EngineOptions) -> Result<Arc<dyn Engine>> {
    let backend = Cpu::new(options.threads, options.precision)?.screening(options.screen_head);
    let device = format!("{}, {}", cpu_with(options.threads), backend.instruction_set());
    Ok(DecoderEngine::in_place("cpu", device, options.memory, backend))
}

/// The CPU through candle's kernels: slower than [`cpu`], and its oracle.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] for zero or absurdly many threads.
pub fn candle_cpu(options: &EngineOptions) -> Result<Arc<dyn Engine>> {
    let backend = candle::Cpu::new(options.threads, options.precision)?;
    Ok(DecoderEngine::in_place("candle-cpu", cpu_with(options.threads), options.memory, backend))
}

fn cpu_with(threads: usize) -> String {
    format!("CPU, {threads} thread{}", if threads == 1 { "" } else { "s" })
}

/// An NVIDIA GPU through candle's tensors: weights are copied to it. Its id is `candle-cuda`, for
/// devices other than the first followed by the ordinal, as in `candle-cuda:1`.
///
/// # Errors
/// [`ErrorKind::EngineUnavailable`] unless compiled with the cargo feature `cuda`, and when there is
/// no such device.
pub fn candle_cuda(ordinal: usize) -> Result<Arc<dyn Engine>> {
    let device = format!("CUDA device {ordinal}");
    Ok(DecoderEngine::copying(&id_of("candle-cuda", ordinal), device, Tensors::cuda(ordinal)?))
}

/// An Apple GPU through candle's tensors: weights are copied to it. Its id is `candle-metal`, for
/// devices other than the first followed by the ordinal, as in `candle-metal:1`.
///
/// # Errors
/// [`ErrorKind::EngineUnavailable`] unless compiled with the cargo feature `metal`, and when there
/// is no such device.
pub fn candle_metal(ordinal: usize) -> Result<Arc<dyn Engine>> {
    let device = format!("Metal device {ordinal}");
    Ok(DecoderEngine::copying(&id_of("candle-metal", ordinal), device, Tensors::metal(ordinal)?))
}

/// The operations of [`candle_cuda`] and [`candle_metal`] where there is neither. Only for tests, as
/// it copies weights and computes on candle's process-wide threads.
#[cfg(test)]
pub(super) fn candle_tensors_on_cpu() -> Arc<dyn Engine> {
    DecoderEngine::copying("candle-tensors", "CPU".to_owned(), Tensors::cpu())
}

/// A GPU through wgpu: Vulkan, Metal, DirectX 12 or OpenGL, with no toolkit of a vendor's. Weights are
/// copied to it as they are stored. `name` is an id of [`devices`], as `wgpu-vulkan:1`; or `wgpu-vulkan`,
/// `wgpu-metal`, `wgpu-dx12` or `wgpu-gl` for the best GPU of a backend; or `wgpu` for the best of all.
/// Devices that are software are taken only by their id. A device that was lost, or ran out of memory in
/// the middle of a step, stays unusable: make a new engine, and load the model again.
///
/// # Errors
/// [`ErrorKind::EngineUnavailable`] unless compiled with the cargo feature `wgpu`, and when there is no
/// such device.
#[cfg(feature = "wgpu")]
pub fn wgpu(name: &str, options: &EngineOptions) -> Result<Arc<dyn Engine>> {
    let adapter = Adapter::find(name)?;
    let limits = Limits { memory: options.device_memory, ..Limits::default() };
    let gpu = Gpu::open(&adapter, limits)?;
    Ok(DecoderEngine::copying(&adapter.name(), adapter.info().name, gpu))
}

/// Without the cargo feature `wgpu`: always an error.
///
/// # Errors
/// [`ErrorKind::EngineUnavailable`].
#[cfg(not(feature = "wgpu"))]
pub fn wgpu(_name: &str, _options: &EngineOptions) -> Result<Arc<dyn Engine>> {
    Err(Error::new(ErrorKind::EngineUnavailable, "this build has no wgpu support")
        .with_hint("compile with the cargo feature `wgpu`"))
}

/// The devices of this machine that engines run on: the CPU, and with the cargo feature `wgpu` every GPU
/// by every backend that reaches it. Asking the drivers may take a moment.
pub fn devices() -> Vec<DeviceInfo> {
    let mut devices = vec![DeviceInfo {
        engine: EngineId::new("cpu"),
        name: "CPU".to_owned(),
        driver: String::new(),
        software: false,
        memory: total_memory(),
        shares_memory: true,
    }];
    #[cfg(feature = "wgpu")]
    devices.extend(Adapter::all().iter().map(Adapter::info));
    devices
}

fn id_of(kind: &str, ordinal: usize) -> String {
    if ordinal == 0 { kind.to_owned() } else { format!("{kind}:{ordinal}") }
}

impl<B: Backend> DecoderEngine<B> {
    /// On a device that weights are copied to.
    fn copying(id: &str, device: String, backend: B) -> Arc<dyn Engine> {
        Arc::new(Self {
            id: EngineId::new(id),
            capabilities: Capabilities { device, in_place_weights: false, exact_rows: B::EXACT_ROWS },
            backend: Arc::new(backend),
            memory: Memory::Mapped,
        })
    }

    /// An engine that uses weights where they lie.
    fn in_place(id: &str, device: String, memory: Memory, backend: B) -> Arc<dyn Engine> {
        Arc::new(Self {
            id: EngineId::new(id),
            capabilities: Capabilities { device, in_place_weights: true, exact_rows: B::EXACT_ROWS },
            backend: Arc::new(backend),
            memory,
        })
    }

    /// Where a shard's weights shall lie: one answer for all of them, from the headers alone.
    fn resolve(&self, spec: &ShardSpec, checkpoint: &dyn Checkpoint) -> Result<Memory> {
        match self.memory {
            Memory::Auto => {
                let ShardEstimate { weights, kv_cache } = self.estimate(spec, checkpoint)?;
                Ok(Memory::for_shard(weights + kv_cache))
            }
            memory => Ok(memory),
        }
    }
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
        let mut weights = ByteSize(0);
        let mut count = |name: String| {
            match checkpoint.tensor(&name) {
                Some(info) => weights = weights + ByteSize(info.len),
                // Absent, or of a type that cannot be read: mapping it says which.
                None => drop(checkpoint.region(&name)?),
            }
            Ok(())
        };
        if spec.is_first() || spec.is_last() && arch.tied_embeddings {
            count(arch.names.embedding())?;
        }
        if spec.is_last() {
            count(arch.names.output_norm())?;
            if !arch.tied_embeddings {
                count(arch.names.head())?;
            }
        }
        let mut kv_cache = 0usize;
        for layer in spec.layers.clone() {
            let layer_spec = &arch.layers[layer];
            arch.names.weights(layer, layer_spec).try_for_each(&mut count)?;
            let cache = CacheSpec::new(&layer_spec.attention, spec.context, spec.max_rows, spec.kv);
            kv_cache = kv_cache.saturating_add(cache.bytes().unwrap_or(usize::MAX));
        }
        Ok(ShardEstimate { weights, kv_cache: ByteSize(kv_cache as u64) })
    }

    fn load(&self, spec: &ShardSpec, checkpoint: &dyn Checkpoint, cx: &LoadCx<'_>) -> Result<Box<dyn Shard>> {
        let memory = self.resolve(spec, checkpoint)?;
        let decoder = Decoder::load(Arc::clone(&self.backend), spec.clone(), checkpoint, memory, cx)?;
        Ok(Box::new(DecoderShard::new(decoder)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_found_by_name() {
        let options = EngineOptions::default().threads(1);
        for name in ["cpu", "candle-cpu"] {
            let engine = engine(name, &options).unwrap();
            assert_eq!(engine.id().as_str(), name);
            assert!(engine.capabilities().exact_rows && engine.capabilities().in_place_weights);
        }
        for name in ["", "gpu", "cpu:0", "candle-cpu:0", "candle-cuda:", "candle-cuda:x", "candle-metal:-1"] {
            let error = engine(name, &options).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{name}");
            assert!(error.hint().is_some_and(|h| h.contains("candle-cuda")), "{name}");
        }
        assert_eq!(id_of("candle-cuda", 0), "candle-cuda");
        assert_eq!(id_of("candle-cuda", 2), "candle-cuda:2");
    }

    #[test]
    fn absent_devices_are_errors_that_say_why() {
        for (feature, compiled) in [("cuda", cfg!(feature = "cuda")), ("metal", cfg!(feature = "metal"))] {
            // No machine has that many.
            let error = engine(&format!("candle-{feature}:4095"), &EngineOptions::default()).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::EngineUnavailable, "{error}");
            let names_feature = error.hint().is_some_and(|h| h.contains(&format!("`{feature}`")));
            assert_eq!(names_feature, !compiled, "{error}");
        }
    }
}
