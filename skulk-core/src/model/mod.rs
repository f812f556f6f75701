//! How does a decoder run on a backend? Written once, for every family and device.

mod ahead;
mod assistant;
mod attention;
mod balance;
mod batch;
mod budget;
mod chain;
#[cfg(feature = "net")]
mod cpu_ends;
mod cpu_ffn;
mod decoder;
mod engine;
mod experts;
mod ffn;
mod inputs;
mod kv;
mod latent;
mod layer;
mod load;
mod options;
mod output;
mod pages;
mod recurrent;
mod rotation;
mod shard;
mod speed;
mod split;
mod streams;
#[cfg(test)]
mod tests;
mod workspace;

#[cfg(feature = "net")]
pub(crate) use cpu_ends::CpuEnds;
pub use cpu_ffn::CpuFfn;
pub(crate) use engine::DecoderEngine;
pub use options::EngineOptions;
