//! Which engines are there? Backends, each joined with the decoder into a public engine.

use std::sync::Arc;

use super::cpu_experts::CpuExperts;
use super::decoder::Decoder;
use super::experts::{ExpertProvider, FfnWork, ResidentExperts};
use super::options::{EngineOptions, Ffn};
use super::shard::DecoderShard;
use crate::bytes::ByteSize;
use crate::engine::backend::{Backend, CacheSpec};
use crate::engine::candle::{self, Tensors};
use crate::engine::cpu::Cpu;
#[cfg(feature = "wgpu")]
use crate::engine::wgpu::{Adapter, Gpu, Limits};
use crate::engine::{Capabilities, DeviceInfo, Engine, EngineId, LoadCx, Shard, ShardEstimate, ShardSpec};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::Vendor;
use crate::weights::{Checkpoint, Memory, total_memory};

/// An engine on one backend.
struct DecoderEngine<B: Backend> {
    id: EngineId,
    capabilities: Capabilities,
    backend: Arc<B>,
    /// Computes feed-forward blocks, where the backend shall not.
    cpu: Option<Arc<Cpu>>,
    /// Where weights lie that are used in place; those that are copied are mapped for it.
    memory: Memory,
    /// How feed-forward blocks are computed that are used in place.
    work: FfnWork,
}

/// The engine of this name: `cpu`, `candle-cpu`, `candle-cuda`, `candle-metal`, `wgpu`, `wgpu-vulkan`,
/// `wgpu-metal`, `wgpu-dx12` or `wgpu-gl`. Those of GPUs but `wgpu` take a device's ordinal, as in
/// `candle-cuda:1`; see also [`devices`].
///
/// # Errors
/// [`ErrorKind::PlacementInvalid`] for an unknown name; otherwise as the engine's own function.
pub fn engine(name: &str, options: &EngineOptions) -> Result<Arc<dyn Engine>> {
    let (kind, ordinal) = match name.split_once(':') {
        Some((kind, ordinal)) => (kind, ordinal.parse().ok()),
        None => (name, Some(0)),
    };
    match (kind, ordinal) {
        ("cpu", _) if kind == name => cpu(options),
        ("candle-cpu", _) if kind == name => candle_cpu(options),
        ("candle-cuda", Some(ordinal)) => candle_cuda(ordinal, options),
        ("candle-metal", Some(ordinal)) => candle_metal(ordinal, options),
        ("wgpu", _) if kind == name => wgpu(name, options),
        ("wgpu-vulkan" | "wgpu-metal" | "wgpu-dx12" | "wgpu-gl", Some(_)) => wgpu(name, options),
        _ => Err(Error::new(
            ErrorKind::PlacementInvalid,
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
/// [`ErrorKind::InvalidArgument`] for zero or absurdly many threads, and for zero features.
pub fn cpu(options: &EngineOptions) -> Result<Arc<dyn Engine>> {
    options.check(Ffn::OnCpu)?;
    let backend = Cpu::new(options.threads, options.precision)?.screening(options.screen_head);
    Ok(DecoderEngine::in_place("cpu", in_words(&backend, options), options, backend))
}

/// The CPU through candle's kernels: slower than [`cpu`], and its oracle.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] for zero or absurdly many threads, and for
/// [`EngineOptions::ffn_top_features`], which it does not have.
pub fn candle_cpu(options: &EngineOptions) -> Result<Arc<dyn Engine>> {
    options.check(Ffn::InPlace)?;
    let backend = candle::Cpu::new(options.threads, options.precision)?;
    Ok(DecoderEngine::in_place("candle-cpu", cpu_with(options.threads), options, backend))
}

fn cpu_with(threads: usize) -> String {
    format!("CPU, {threads} thread{}", if threads == 1 { "" } else { "s" })
}

fn in_words(cpu: &Cpu, options: &EngineOptions) -> String {
    format!("{}, {}", cpu_with(options.threads), cpu.instruction_set())
}

/// An NVIDIA GPU through candle's tensors: weights are copied to it. Its id is `candle-cuda`, for
/// devices other than the first followed by the ordinal, as in `candle-cuda:1`.
///
/// # Errors
/// [`ErrorKind::EngineUnavailable`] unless compiled with the cargo feature `cuda`, and when there is
/// no such device; with [`EngineOptions::ffn_on_cpu`] as [`cpu`].
pub fn candle_cuda(ordinal: usize, options: &EngineOptions) -> Result<Arc<dyn Engine>> {
    let device = format!("CUDA device {ordinal}");
    DecoderEngine::copying(&id_of("candle-cuda", ordinal), device, options, Tensors::cuda(ordinal)?)
}

/// An Apple GPU through candle's tensors: weights are copied to it. Its id is `candle-metal`, for
/// devices other than the first followed by the ordinal, as in `candle-metal:1`.
///
/// # Errors
/// [`ErrorKind::EngineUnavailable`] unless compiled with the cargo feature `metal`, and when there
/// is no such device; with [`EngineOptions::ffn_on_cpu`] as [`cpu`].
pub fn candle_metal(ordinal: usize, options: &EngineOptions) -> Result<Arc<dyn Engine>> {
    let device = format!("Metal device {ordinal}");
    DecoderEngine::copying(&id_of("candle-metal", ordinal), device, options, Tensors::metal(ordinal)?)
}

/// The operations of [`candle_cuda`] and [`candle_metal`] where there is neither. Only for tests, as
/// it copies weights and computes on candle's process-wide threads.
#[cfg(test)]
pub(super) fn candle_tensors_on_cpu(options: &EngineOptions) -> Arc<dyn Engine> {
    DecoderEngine::copying("candle-tensors", "CPU".to_owned(), options, Tensors::cpu()).unwrap()
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
    DecoderEngine::copying(&adapter.name(), adapter.info().name, options, gpu)
}

/// An engine on a GPU that the test keeps.
#[cfg(test)]
#[cfg(feature = "wgpu")]
pub(super) fn wgpu_on(gpu: Arc<Gpu>, options: &EngineOptions) -> Arc<dyn Engine> {
    DecoderEngine::<Gpu>::copying("wgpu", "GPU".to_owned(), options, gpu).unwrap()
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
    let cpu = DeviceInfo {
        engine: EngineId::new("cpu"),
        name: "CPU".to_owned(),
        vendor: Vendor::Cpu,
        driver: String::new(),
        software: false,
        memory: total_memory(),
        memory_used: None,
        shares_memory: true,
    };
    #[cfg(feature = "wgpu")]
    let gpus = Adapter::all().iter().map(Adapter::info).collect();
    #[cfg(not(feature = "wgpu"))]
    let gpus = Vec::new();
    [vec![cpu], gpus].concat()
}

fn id_of(kind: &str, ordinal: usize) -> String {
    if ordinal == 0 { kind.to_owned() } else { format!("{kind}:{ordinal}") }
}

impl<B: Backend> DecoderEngine<B> {
    /// On a device that weights are copied to, but for those that the options leave to the CPU.
    fn copying(
        id: &str,
        mut device: String,
        options: &EngineOptions,
        backend: impl Into<Arc<B>>,
    ) -> Result<Arc<dyn Engine>> {
        options.check(if options.ffn_on_cpu { Ffn::OnCpu } else { Ffn::OnDevice })?;
        let mut cpu = None;
        if options.ffn_on_cpu {
            let beside = Cpu::new(options.threads, options.precision)?;
            device = format!("{device}; feed-forward on {}", in_words(&beside, options));
            cpu = Some(Arc::new(beside));
        }
        let memory = if cpu.is_some() { options.memory } else { Memory::Mapped };
        let capabilities = Capabilities { device, in_place_weights: false, exact_rows: B::EXACT_ROWS };
        let (id, backend, work) = (EngineId::new(id), backend.into(), FfnWork::new(options));
        Ok(Arc::new(Self { id, capabilities, backend, cpu, memory, work }))
    }

    /// An engine that uses weights where they lie.
    fn in_place(id: &str, device: String, options: &EngineOptions, backend: B) -> Arc<dyn Engine> {
        let capabilities = Capabilities { device, in_place_weights: true, exact_rows: B::EXACT_ROWS };
        let (id, backend, memory) = (EngineId::new(id), Arc::new(backend), options.memory);
        Arc::new(Self { id, capabilities, backend, cpu: None, memory, work: FfnWork::new(options) })
    }

    /// The layers of a shard whose blocks are computed where their weights are stored.
    fn ffn_in_place<'a>(&'a self, spec: &'a ShardSpec) -> impl Iterator<Item = usize> + 'a {
        spec.layers.clone().filter(|layer| self.cpu.is_none() || spec.is_ffn_on_cpu(*layer))
    }

    /// Where a shard's weights shall lie that are used in place: one answer for all of them, but for those that have
    /// a budget, from the headers alone.
    fn resolve(&self, spec: &ShardSpec, checkpoint: &dyn Checkpoint) -> Result<Memory> {
        let names = &spec.arch.names;
        let blocks =
            self.ffn_in_place(spec).flat_map(|layer| names.feed_forward(layer, &spec.arch.layers[layer]));
        match (self.memory, &self.cpu, &self.work.budget) {
            (_, Some(_), Some(_)) => Ok(Memory::Mapped),
            (Memory::Auto, None, budget) => {
                let ShardEstimate { weights, kv_cache } = self.estimate(spec, checkpoint)?;
                let mut needed = weights + kv_cache;
                if let Some(budget) = budget {
                    let (all, most) = (bytes_of(checkpoint, blocks)?.bytes(), budget.memory().budget.bytes());
                    needed = ByteSize(needed.bytes().saturating_sub(all.saturating_sub(most)));
                }
                Ok(Memory::for_shard(needed))
            }
            (Memory::Auto, Some(_), None) => Ok(Memory::for_shard(bytes_of(checkpoint, blocks)?)),
            (memory, _, _) => Ok(memory),
        }
    }
}

/// Bytes of these tensors, from the checkpoint's headers alone.
fn bytes_of(checkpoint: &dyn Checkpoint, mut names: impl Iterator<Item = String>) -> Result<ByteSize> {
    names.try_fold(ByteSize(0), |sum, name| match checkpoint.tensor(&name) {
        Some(info) => Ok(sum + ByteSize(info.len)),
        // Absent, or of a type that cannot be read: mapping it says which.
        None => checkpoint.region(&name).map(|_| sum),
    })
}

impl<B: Backend> Engine for DecoderEngine<B> {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn estimate(&self, spec: &ShardSpec, checkpoint: &dyn Checkpoint) -> Result<ShardEstimate> {
        spec.check()?;
        let arch = &spec.arch;
        let mut ends = Vec::new();
        if spec.is_first() || spec.is_last() && arch.tied_embeddings {
            ends.push(arch.names.embedding());
        }
        if spec.is_last() {
            ends.push(arch.names.output_norm());
            if !arch.tied_embeddings {
                ends.push(arch.names.head());
            }
        }
        let mut weights = bytes_of(checkpoint, ends.into_iter())?;
        let mut kv_cache = 0usize;
        for layer in spec.layers.clone() {
            let layer_spec = &arch.layers[layer];
            weights = weights + bytes_of(checkpoint, arch.names.weights(layer, layer_spec))?;
            let cache = CacheSpec::new(&layer_spec.attention, spec.context, spec.max_rows, spec.kv);
            kv_cache = kv_cache.saturating_add(cache.bytes().unwrap_or(usize::MAX));
        }
        Ok(ShardEstimate { weights, kv_cache: ByteSize(kv_cache as u64) })
    }

    fn load(&self, spec: &ShardSpec, checkpoint: &dyn Checkpoint, cx: &LoadCx<'_>) -> Result<Box<dyn Shard>> {
        spec.check()?;
        let apart = spec.ffn_on_cpu.as_ref().is_some_and(|layers| !layers.is_empty());
        if apart && self.cpu.is_none() && !self.capabilities.in_place_weights {
            return Err(Error::new(
                ErrorKind::PlacementInvalid,
                format!(
                    "expected engine `{}` to have the CPU beside it for feed-forward blocks, found it alone",
                    self.id
                ),
            )
            .with_hint("make the engine with the option ffn_on_cpu"));
        }
        if let Some(budget) = &self.work.budget {
            budget.check(spec, self.ffn_in_place(spec), checkpoint)?;
        }
        let (memory, work) = (self.resolve(spec, checkpoint)?, self.work.clone());
        let (own, experts): (_, Box<dyn ExpertProvider<B>>) = match &self.cpu {
            Some(cpu) => (Memory::Mapped, Box::new(CpuExperts::new(Arc::clone(cpu), spec, memory, work))),
            None => (memory, Box::new(ResidentExperts::new(&spec.layers, work))),
        };
        let decoder = Decoder::load(Arc::clone(&self.backend), experts, spec.clone(), checkpoint, own, cx)?;
        Ok(Box::new(DecoderShard::new(decoder, memory)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::ArchSpec;
    use crate::cancel::CancelToken;
    use crate::engine::KvType;
    use crate::weights::open_checkpoint;

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
            assert_eq!(error.kind(), ErrorKind::PlacementInvalid, "{name}");
            assert!(error.hint().is_some_and(|h| h.contains("candle-cuda")), "{name}");
        }
        assert_eq!(id_of("candle-cuda", 0), "candle-cuda");
        assert_eq!(id_of("candle-cuda", 2), "candle-cuda:2");
    }

    #[test]
    fn engines_beside_which_the_cpu_computes_say_so() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/models/mixtral");
        let checkpoint = open_checkpoint(folder).unwrap();
        let arch = Arc::new(ArchSpec::from_checkpoint(&*checkpoint).unwrap());
        let layers = 0..arch.n_layers();
        let spec = ShardSpec::new(arch, layers, 64, 8, KvType::F16).unwrap();
        let cancel = CancelToken::new();
        let options = EngineOptions::default().threads(2);
        let copying = candle_tensors_on_cpu(&options);
        assert_eq!(copying.capabilities().device, "CPU");
        for memory in [Memory::Mapped, Memory::Resident, Memory::Auto] {
            let beside = candle_tensors_on_cpu(&options.clone().memory(memory).ffn_on_cpu(true));
            let device = &beside.capabilities().device;
            assert!(device.starts_with("CPU; feed-forward on CPU, 2 threads, "), "{device}");
            assert!(!beside.capabilities().in_place_weights);
            let estimate = beside.estimate(&spec, &*checkpoint).unwrap();
            assert_eq!(estimate, copying.estimate(&spec, &*checkpoint).unwrap());
            let shard = beside.load(&spec, &*checkpoint, &LoadCx::new(&cancel, &|| ())).unwrap();
            assert_eq!(shard.weight_bytes(), estimate.weights);
            assert_eq!(shard.memory() == memory, memory != Memory::Auto);
        }
        let none = options.threads(0).ffn_on_cpu(true);
        let error = DecoderEngine::copying("x", String::new(), &none, Tensors::cpu()).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        // What only weights that are used in place can have, other engines have with the CPU beside them.
        let options = EngineOptions::default().threads(2);
        for (field, options) in [
            ("ffn_budget", options.clone().ffn_budget(ByteSize(1 << 30))),
            ("ffn_top_features", options.clone().ffn_top_features(10)),
        ] {
            let make = |options| DecoderEngine::copying("x", String::new(), &options, Tensors::cpu());
            let error = make(options.clone()).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.context().iter().any(|(key, value)| *key == "field" && value == field));
            assert!(error.hint().is_some_and(|hint| hint.contains("ffn_on_cpu")));
            assert!(make(options.ffn_on_cpu(true)).is_ok());
        }
        for name in ["cpu", "candle-cpu"] {
            let same = |on_cpu| {
                let options = EngineOptions::default().threads(2).ffn_on_cpu(on_cpu);
                engine(name, &options).unwrap().capabilities().clone()
            };
            assert_eq!(same(true), same(false));
        }
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
