//! How does a decoder run on a backend? Written once, for every family and device.

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
#[cfg(test)]
mod providers;
mod shard;

pub use engine::{EngineOptions, candle_cpu, candle_cuda, candle_metal, cpu, devices, engine, wgpu};
