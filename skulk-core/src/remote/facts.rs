//! What does a server hold? What it says of itself, so that a client knows before its first job that the weights are the
//! plan's.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::arch::ArchSpec;
use crate::engine::ffn::experts_of;
use crate::error::Result;
use crate::vindex::hashes::hex;
use crate::weights::Checkpoint;

/// What this library's servers say of themselves, beside what LARQL's do: the member `skulk` of `/v1/stats`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Facts {
    /// How precisely it computes, see [`FfnService::computes`](crate::engine::FfnService::computes).
    pub(super) computes: String,
    pub(super) blocks: Vec<Block>,
}

/// What it holds of one layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Block {
    pub(super) layer: usize,
    /// A dense block is expert 0.
    pub(super) experts: Range<usize>,
    /// [Of the whole layer's block](weights): servers of different experts of one layer say the same. Empty where the
    /// checkpoint has a part of the block alone, as slices of experts.
    pub(super) weights: String,
}

/// Places that are looked at in each tensor, and bytes of each.
const PLACES: u64 = 4;
const BYTES: u64 = 64;

/// A hash of a layer's feed-forward block: of its tensors' types and shapes, and some bytes of each. `None` where
/// the checkpoint lacks some of it, as one of attention alone does.
///
/// # Errors
/// When its files cannot be read.
pub(super) fn weights(checkpoint: &dyn Checkpoint, arch: &ArchSpec, layer: usize) -> Result<Option<String>> {
    let Some(spec) = arch.layers.get(layer).filter(|spec| experts_of(spec) > 0) else { return Ok(None) };
    let mut hasher = Sha256::new();
    for name in arch.names.feed_forward(layer, spec) {
        let Some(tensor) = checkpoint.tensor(&name) else { return Ok(None) };
        hasher.update(format!("{} {:?}\n", tensor.dtype, tensor.shape));
        let Some(file) = checkpoint.files().get(tensor.file) else { return Ok(None) };
        let len = tensor.len.min(BYTES);
        let step = (tensor.len - len) / PLACES;
        for place in 0..PLACES {
            hasher.update(file.read_part(tensor.offset + step * place + step / 2, len)?);
        }
    }
    Ok(Some(hex(hasher)))
}
