//! What can run this checkpoint? Other software by its kind, this library by looking at it.

use crate::arch::ArchSpec;
use crate::card::PlacementCardConfig;
use crate::weights::{Checkpoint, TensorInfo};

/// The tags of this library's engines, by preference: GPUs first, as the reference prefers its own.
const OWN: [&str; 5] =
    ["skulk-candle-cuda", "skulk-candle-metal", "skulk-wgpu", "skulk-cpu", "skulk-candle-cpu"];
/// The reference's tags for GGUF files, by its preference.
pub(super) const LLAMA_CPP: &[&str] =
    &["llama_cpp-vulkan", "llama_cpp-rocm", "llama_cpp-cuda", "llama_cpp-cpu"];

/// Where a card says that a checkpoint runs: on this library's engines where they can, and on `others`.
/// `checkpoint` is `None` where it cannot even be opened here.
pub(super) fn placement(checkpoint: Option<&dyn Checkpoint>, others: &[&str]) -> PlacementCardConfig {
    let own = checkpoint.filter(|checkpoint| runs_here(*checkpoint)).map_or(&[][..], engines);
    let tags: Vec<String> = own.iter().chain(others).map(|tag| (*tag).to_owned()).collect();
    PlacementCardConfig {
        compatible_backends: tags.iter().cloned().collect(),
        // Of a single tag there is nothing to prefer.
        backend_preference: if tags.len() > 1 { tags } else { Vec::new() },
        ..PlacementCardConfig::default()
    }
}

/// The tags of the engines that compute with all types of numbers that this model has, and with rows as it has them.
fn engines(checkpoint: &dyn Checkpoint) -> &'static [&'static str] {
    let tensors = checkpoint.tensors();
    if tensors.iter().any(|tensor| tensor.dtype.is_for_cpus()) {
        return &["skulk-cpu"];
    }
    if tensors.iter().any(is_padded) { &["skulk-wgpu", "skulk-cpu"] } else { &OWN }
}

/// Whether it has longer rows than its elements take, as vindexes have where these are no whole blocks.
fn is_padded(tensor: &TensorInfo) -> bool {
    let Some((row_len, outer)) = tensor.shape.split_last() else { return false };
    let Some(row_bytes) = tensor.dtype.row_bytes(*row_len) else { return true };
    let all = outer.iter().try_fold(row_bytes, |all, n| all.checked_mul(*n));
    all.and_then(|all| u64::try_from(all).ok()) != Some(tensor.len)
}

/// Whether the decoder knows the architecture, and can read every tensor that it needs.
fn runs_here(checkpoint: &dyn Checkpoint) -> bool {
    let Ok(spec) = ArchSpec::from_checkpoint(checkpoint) else { return false };
    let has = |name: String| checkpoint.tensor(&name).is_some();
    let layers = spec.layers.iter().enumerate().flat_map(|(i, layer)| spec.names.weights(i, layer));
    let head = (!spec.tied_embeddings).then(|| spec.names.head());
    let ends = spec.stream_ends().into_iter().flatten();
    layers.chain([spec.names.embedding(), spec.names.output_norm()]).chain(head).chain(ends).all(has)
}
