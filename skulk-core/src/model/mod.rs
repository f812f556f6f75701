//! How does a decoder run on a backend? Written once, for every family and device.

mod budget;
mod cpu_experts;
mod decoder;
mod engine;
mod experts;
mod load;
mod options;
mod shard;
#[cfg(test)]
mod tests;

pub(crate) use engine::DecoderEngine;
pub use options::EngineOptions;
