//! What can be asked of an engine? Options, and which engines have them.

use crate::bytes::ByteSize;
use crate::engine::Precision;
use crate::error::{Error, Result};
use crate::macros::setters;
use crate::weights::Memory;

/// Options of an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineOptions {
    /// Threads the engine computes with.
    pub threads: usize,
    /// How precisely activations enter products.
    pub precision: Precision,
    /// Where weights lie that are used in place; those that are copied to a device are only mapped.
    pub memory: Memory,
    /// Engine [`cpu`](crate::engines::cpu) only: keeps a 4-bit copy of a large head, little more than half of an 8-bit one.
    /// When only the largest logits are asked for, as greedy decoding and top-k sampling do, it rules out
    /// all rows of the head but a few, within proven bounds: results are the same, in every bit, and
    /// most of the head is not read.
    pub screen_head: bool,
    /// Engine [`wgpu`](crate::engines::wgpu) only: memory that may be reserved on the device; `None`: what its driver gives.
    pub device_memory: Option<ByteSize>,
    /// Weights of feed-forward blocks and experts that the CPU computes where they are stored: those of
    /// [`cpu`](crate::engines::cpu), and of a [`CpuFfn`](crate::engines::CpuFfn). With a budget they stay in their file's
    /// map, whatever [`memory`](Self::memory) says about the rest, and at most so many bytes of them are in memory at a
    /// time, of all that one engine has loaded; `None`: no such limit. Results do not depend on it. See [`FfnMemory`](crate::engine::FfnMemory) for what
    /// counts.
    pub ffn_budget: Option<ByteSize>,
    /// Engine [`cpu`](crate::engines::cpu), and [`CpuFfn`](crate::engines::CpuFfn): of each dense feed-forward block a row takes only so many features, those with the largest gate scores. The rest counts
    /// as zero: logits are others than the model's, see [`Model::divergence`](crate::Model::divergence). `None`: all of
    /// them.
    pub ffn_top_features: Option<usize>,
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
            ffn_budget: None,
            ffn_top_features: None,
        }
    }
}

setters!(EngineOptions {
    /// Computes with so many threads.
    threads: usize;
    /// Rounds activations like this.
    precision: Precision;
    /// Puts weights there.
    memory: Memory;
    /// Keeps a compact copy of the head, or not.
    screen_head: bool;
    /// Reserves no more than this on the device.
    device_memory: ByteSize => Some(device_memory);
    /// Keeps no more than this of feed-forward weights in memory.
    ffn_budget: ByteSize => Some(ffn_budget);
    /// Computes only so many features of a feed-forward block.
    ffn_top_features: usize => Some(ffn_top_features);
});

impl EngineOptions {
    /// `Ok` for whom the kernels of engine `cpu` compute.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) that names the option.
    pub(super) fn check_in_place(&self) -> Result<()> {
        match self.ffn_top_features {
            Some(0) => Err(Error::argument("ffn_top_features", "expected at least 1 feature, found 0")
                .with_hint("give a positive number, or leave the option out to compute all")),
            _ => Ok(()),
        }
    }

    /// `Ok` when nothing is asked for that only those have.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) that names the option.
    pub(super) fn check_copying(&self) -> Result<()> {
        let invalid = |field, expected| {
            Err(Error::argument(field, format!("expected {expected}, found another engine")).with_hint(
                "use the engine cpu, or leave feed-forward blocks to the CPU with the option ffn_on_cpu of loading",
            ))
        };
        if self.ffn_budget.is_some() {
            return invalid("ffn_budget", "an engine that uses weights where they are stored");
        }
        if self.ffn_top_features.is_some() {
            return invalid("ffn_top_features", "feed-forward blocks that the kernels of engine cpu compute");
        }
        Ok(())
    }
}
