//! What can run this checkpoint? Other software by its kind, this library by looking at it.

use crate::arch::{ArchSpec, LayerSpec};
use crate::card::PlacementCardConfig;
use crate::weights::Checkpoint;

/// The tags of this library's engines, by preference: GPUs first, as the reference prefers its own.
const OWN: [&str; 5] =
    ["skulk-candle-cuda", "skulk-candle-metal", "skulk-wgpu", "skulk-cpu", "skulk-candle-cpu"];
/// The reference's tags for GGUF files, by its preference.
pub(super) const LLAMA_CPP: &[&str] =
    &["llama_cpp-vulkan", "llama_cpp-rocm", "llama_cpp-cuda", "llama_cpp-cpu"];

/// Where a card says that a checkpoint runs: on this library's engines where they can, and on `others`.
/// `checkpoint` is `None` where it cannot even be opened here.
pub(super) fn placement(checkpoint: Option<&dyn Checkpoint>, others: &[&str]) -> PlacementCardConfig {
    let spec = checkpoint.and_then(|checkpoint| Some((checkpoint, runs_here(checkpoint)?)));
    let own = spec.map_or(Vec::new(), |(checkpoint, spec)| engines(checkpoint, &spec));
    let tags: Vec<String> = own.iter().chain(others).map(|tag| (*tag).to_owned()).collect();
    PlacementCardConfig {
        compatible_backends: tags.iter().cloned().collect(),
        // Of a single tag there is nothing to prefer.
        backend_preference: if tags.len() > 1 { tags } else { Vec::new() },
        ..PlacementCardConfig::default()
    }
}

/// The tags of the engines that compute with all that this model has.
fn engines(checkpoint: &dyn Checkpoint, spec: &ArchSpec) -> Vec<&'static str> {
    let for_cpus = checkpoint.tensors().iter().any(|tensor| tensor.dtype.is_for_cpus());
    let latents = || spec.layers.iter().filter_map(|layer| layer.attention()?.latent);
    let states = spec.layers.iter().any(LayerSpec::needs_states);
    if for_cpus {
        return vec!["skulk-cpu"];
    }
    let streams = spec.layers.iter().any(LayerSpec::needs_streams);
    let not_wgpu = states || streams || latents().next().is_some();
    OWN.into_iter().filter(|tag| !not_wgpu || *tag != "skulk-wgpu").collect()
}

/// What the decoder knows of the architecture, where it does and can read every tensor that it needs.
fn runs_here(checkpoint: &dyn Checkpoint) -> Option<ArchSpec> {
    let spec = ArchSpec::from_checkpoint(checkpoint).ok()?;
    let has = |name: String| checkpoint.tensor(&name).is_some();
    let layers = spec.layers.iter().enumerate().flat_map(|(i, layer)| spec.names.weights(i, layer));
    let head = (!spec.tied_embeddings).then(|| spec.names.head());
    let ends = spec.stream_ends().into_iter().flatten();
    let complete =
        layers.chain([spec.names.embedding(), spec.names.output_norm()]).chain(head).chain(ends).all(has);
    complete.then_some(spec)
}
