//! How does a decoder run on a backend? Written once, for every family and device.

mod budget;
mod cpu_experts;
mod decoder;
mod engine;
mod experts;
#[cfg(test)]
#[cfg(feature = "wgpu")]
mod gpu;
mod load;
mod local;
#[cfg(test)]
mod mixed;
mod options;
#[cfg(test)]
mod providers;
mod shard;

pub use engine::{candle_cpu, candle_cuda, candle_metal, cpu, devices, engine, wgpu};
pub use options::EngineOptions;
