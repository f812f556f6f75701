//! Which engines are there? A constructor for each, by function or by name, and the devices they run on.

mod disk;
mod local;
mod speed;

use std::sync::Arc;

#[cfg(feature = "wgpu")]
use crate::engine::wgpu::{Adapter, Gpu, Limits};
use crate::engine::{DeviceInfo, Engine, EngineId};
use crate::error::{Error, ErrorKind, Result};
use crate::model::DecoderEngine;
pub use crate::model::{CpuFfn, EngineOptions};
use crate::plan::Vendor;
use crate::plan::backend::ENGINES;
use crate::weights::total_memory;

/// The engine of this name: `cpu`, `candle-cpu`, `candle-cuda`, `candle-metal`, `wgpu`, `wgpu-vulkan`,
/// `wgpu-metal`, `wgpu-dx12` or `wgpu-gl`. Those of GPUs but `wgpu` take a device's ordinal, as in
/// `candle-cuda:1`; see also [`devices`].
///
/// # Errors
/// [`ErrorKind::PlacementInvalid`] for an unknown name; otherwise as the engine's own function.
pub fn by_name(name: &str, options: &EngineOptions) -> Result<Arc<dyn Engine>> {
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
        .with_hint(ENGINES)),
    }
}

/// The CPU through this library's own kernels, for the best instruction set that the machine has.
/// Weights stay in their map or in memory of their own, as [`EngineOptions::memory`] says.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] for zero or absurdly many threads, for zero features and for
/// [`EngineOptions::device_memory`].
pub fn cpu(options: &EngineOptions) -> Result<Arc<dyn Engine>> {
    refuse_device_memory(options)?;
    DecoderEngine::cpu(options)
}

fn refuse_device_memory(options: &EngineOptions) -> Result<()> {
    match options.device_memory {
        None => Ok(()),
        Some(_) => Err(Error::new(ErrorKind::InvalidArgument, "expected engine wgpu, found another one")
            .with("field", "device_memory")
            .with_hint("leave the option out: this engine cannot limit what it reserves")),
    }
}

/// The CPU through candle's tensors: plain, slow, all in f32, and the oracle of the other engines. Weights are
/// copied; of quantised ones f32 numbers are made anew for each product.
///
/// # Errors
/// [`ErrorKind::EngineUnavailable`] unless compiled with the cargo feature `candle`;
/// [`ErrorKind::InvalidArgument`] for zero or absurdly many threads, and for options that it does not have.
#[cfg_attr(docsrs, doc(cfg(feature = "candle")))]
pub fn candle_cpu(options: &EngineOptions) -> Result<Arc<dyn Engine>> {
    candle(Candle::Cpu, options)
}

/// An NVIDIA GPU through candle's tensors: weights are copied to it. Its id is `candle-cuda`, for
/// devices other than the first followed by the ordinal, as in `candle-cuda:1`.
///
/// # Errors
/// [`ErrorKind::EngineUnavailable`] unless compiled with the cargo feature `cuda`, and when there is
/// no such device; [`ErrorKind::InvalidArgument`] for options that it does not have.
#[cfg_attr(docsrs, doc(cfg(feature = "cuda")))]
pub fn candle_cuda(ordinal: usize, options: &EngineOptions) -> Result<Arc<dyn Engine>> {
    candle(Candle::Cuda(ordinal), options)
}

/// An Apple GPU through candle's tensors: weights are copied to it. Its id is `candle-metal`, for
/// devices other than the first followed by the ordinal, as in `candle-metal:1`.
///
/// # Errors
/// [`ErrorKind::EngineUnavailable`] unless compiled with the cargo feature `metal`, and when there
/// is no such device; [`ErrorKind::InvalidArgument`] for options that it does not have.
#[cfg_attr(docsrs, doc(cfg(feature = "metal")))]
pub fn candle_metal(ordinal: usize, options: &EngineOptions) -> Result<Arc<dyn Engine>> {
    candle(Candle::Metal(ordinal), options)
}

/// A device of candle's, with its ordinal.
#[derive(Clone, Copy)]
enum Candle {
    Cpu,
    Cuda(usize),
    Metal(usize),
}

#[cfg(feature = "candle")]
fn candle(device: Candle, options: &EngineOptions) -> Result<Arc<dyn Engine>> {
    use crate::engine::candle::Tensors;
    refuse_device_memory(options)?;
    let id_of =
        |kind: &str, ordinal| if ordinal == 0 { kind.to_owned() } else { format!("{kind}:{ordinal}") };
    let (id, name, tensors) = match device {
        Candle::Cpu => ("candle-cpu".to_owned(), "CPU".to_owned(), Tensors::cpu(options.threads)?),
        Candle::Cuda(ordinal) => (
            id_of("candle-cuda", ordinal),
            format!("CUDA device {ordinal}"),
            Tensors::cuda(ordinal, options.precision)?,
        ),
        Candle::Metal(ordinal) => (
            id_of("candle-metal", ordinal),
            format!("Metal device {ordinal}"),
            Tensors::metal(ordinal, options.precision)?,
        ),
    };
    DecoderEngine::copying(&id, name, options, tensors)
}

#[cfg(not(feature = "candle"))]
fn candle(device: Candle, _options: &EngineOptions) -> Result<Arc<dyn Engine>> {
    let (feature, ordinal) = match device {
        Candle::Cpu => ("candle", 0),
        Candle::Cuda(ordinal) => ("cuda", ordinal),
        Candle::Metal(ordinal) => ("metal", ordinal),
    };
    Err(not_compiled(feature).with("device", ordinal))
}

/// A GPU through wgpu: Vulkan, Metal, DirectX 12 or OpenGL, with no toolkit of a vendor's. Weights are
/// copied to it as they are stored. `name` is an id of [`devices`], as `wgpu-vulkan:1`; or `wgpu-vulkan`,
/// `wgpu-metal`, `wgpu-dx12` or `wgpu-gl` for the best GPU of a backend; or `wgpu` for the best of all.
/// Devices that are software are taken only by their id. A device that was lost, or ran out of memory in
/// the middle of a step, stays unusable: make a new engine, and load the model again.
///
/// # Errors
/// [`ErrorKind::EngineUnavailable`] unless compiled with the cargo feature `wgpu`, and when there is no
/// such device; [`ErrorKind::InvalidArgument`] for options that it does not have.
#[cfg(feature = "wgpu")]
#[cfg_attr(docsrs, doc(cfg(feature = "wgpu")))]
pub fn wgpu(name: &str, options: &EngineOptions) -> Result<Arc<dyn Engine>> {
    let adapter = Adapter::find(name)?;
    let limits = Limits { memory: options.device_memory, ..Limits::default() };
    let gpu = Gpu::open(&adapter, limits)?;
    DecoderEngine::copying(&adapter.name(), adapter.device_name(), options, gpu)
}

/// Without the cargo feature `wgpu`: always an error.
///
/// # Errors
/// [`ErrorKind::EngineUnavailable`].
#[cfg(not(feature = "wgpu"))]
pub fn wgpu(_name: &str, _options: &EngineOptions) -> Result<Arc<dyn Engine>> {
    Err(not_compiled("wgpu"))
}

#[cfg(not(all(feature = "candle", feature = "wgpu")))]
fn not_compiled(feature: &str) -> Error {
    Error::new(ErrorKind::EngineUnavailable, format!("this build has no {feature} support"))
        .with_hint(format!("compile with the cargo feature `{feature}`"))
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
    let gpus = Adapter::devices();
    #[cfg(not(feature = "wgpu"))]
    let gpus = Vec::new();
    [vec![cpu], gpus].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(feature = "candle")]
    use crate::bytes::ByteSize;
    #[cfg(feature = "candle")]
    use crate::engine::{KvType, KvTypes};

    #[test]
    fn engines_are_found_by_name() {
        let options = EngineOptions::default().threads(1);
        let own = by_name("cpu", &options).unwrap();
        assert_eq!(own.id().as_str(), "cpu");
        assert!(own.capabilities().exact_rows && own.capabilities().in_place_weights);
        #[cfg(feature = "candle")]
        {
            let oracle = by_name("candle-cpu", &options).unwrap();
            assert_eq!(oracle.id().as_str(), "candle-cpu");
            assert!(!oracle.capabilities().exact_rows && !oracle.capabilities().in_place_weights);
            assert!(!oracle.capabilities().kv_types.contains(&KvType::Q8_0));
            let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/models/stories260K");
            let checkpoint = crate::weights::open_checkpoint(model).unwrap();
            let arch = std::sync::Arc::new(crate::arch::ArchSpec::from_checkpoint(&*checkpoint).unwrap());
            let spec = |kv: KvTypes| crate::engine::ShardSpec::new(arch.clone(), 0..1, 64, 16, kv).unwrap();
            for kv in [KvTypes::from(KvType::Q8_0), KvTypes { values: KvType::Q4_0, ..KvTypes::default() }] {
                let refused = oracle.estimate(&spec(kv), &*checkpoint).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
                assert!(refused.context().contains(&("field", "kv".to_owned())), "{refused}");
                assert!(
                    refused.message().contains("f16 or f32")
                        && refused.message().contains(kv.values.as_str())
                );
                own.estimate(&spec(kv), &*checkpoint).unwrap();
            }
            // Plans know it, too.
            for engine in [&own, &oracle] {
                for kv in KvType::ALL {
                    let tag = crate::plan::backend::tag_of(engine.id());
                    let keeps = engine.capabilities().kv_types.contains(kv);
                    assert_eq!(crate::plan::backend::keeps(&tag, (*kv).into()), keeps, "{tag} {kv}");
                }
            }
        }
        for name in ["", "gpu", "cpu:0", "candle-cpu:0", "candle-cuda:", "candle-cuda:x", "candle-metal:-1"] {
            let error = by_name(name, &options).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::PlacementInvalid, "{name}");
            assert!(!crate::plan::backend::is_engine(name), "{name}");
            assert!(error.hint().is_some_and(|h| h.contains("candle-cuda")), "{name}");
        }
    }

    #[test]
    fn absent_devices_are_errors_that_say_why() {
        for (feature, compiled) in [("cuda", cfg!(feature = "cuda")), ("metal", cfg!(feature = "metal"))] {
            // No machine has that many.
            let error = by_name(&format!("candle-{feature}:4095"), &EngineOptions::default()).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::EngineUnavailable, "{error}");
            let names_feature = error.hint().is_some_and(|h| h.contains(&format!("`{feature}`")));
            assert_eq!(names_feature, !compiled, "{error}");
        }
    }

    /// A promise is kept or refused.
    #[cfg(feature = "candle")]
    #[test]
    fn options_that_an_engine_does_not_have_are_refused() {
        let options = EngineOptions::default().threads(2);
        let some = ByteSize(1 << 30);
        for (field, refused, beside) in [
            ("threads", options.clone().threads(0), false),
            ("device_memory", options.clone().device_memory(some), false),
            ("ffn_budget", options.clone().ffn_budget(some), true),
            ("ffn_top_features", options.clone().ffn_top_features(10), true),
        ] {
            let error = candle_cpu(&refused).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.context().iter().any(|(key, value)| *key == "field" && value == field), "{error}");
            // What only weights that are used in place can have, the CPU beside other engines has.
            assert_eq!(error.hint().is_some_and(|hint| hint.contains("ffn_on_cpu")), beside);
        }
    }
}
