//! How does a decoder run on a backend? Written once, for every family and device.

mod attention;
mod balance;
mod budget;
mod chain;
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
mod split;
mod streams;
#[cfg(test)]
mod tests;
mod workspace;

pub use cpu_ffn::CpuFfn;
pub(crate) use engine::DecoderEngine;
pub use options::EngineOptions;
