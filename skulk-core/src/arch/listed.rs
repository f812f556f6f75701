//! Which tensors has a folder of this configuration that MLX converted? For benchmarks, which write such folders.

use std::path::PathBuf;

use serde_json::Value;

use super::LayerTensor::{
    self, LatentKeys, LatentValues, QueryConvolution, Router, SharedScore, StreamCorrection, StreamPrediction,
};
use super::{ArchSpec, LayerSpec, TensorNames, huggingface};
use crate::error::Result;

/// A tensor, without what is beside it where it is quantised.
#[derive(Debug)]
pub struct StoredTensor {
    /// Its name.
    pub name: String,
    /// Experts or heads before rows, rows before their elements.
    pub shape: Vec<usize>,
    /// Whether it is quantised where its rows are whole groups.
    pub is_quantised: bool,
    /// Whether it has experts' weights.
    pub is_experts: bool,
    /// The part of it that a token reads, as a numerator and a denominator.
    pub read: [usize; 2],
}

const ALL: [usize; 2] = [1, 1];

impl StoredTensor {
    fn vector(name: String, shape: Vec<usize>) -> Self {
        Self { name, shape, is_quantised: false, is_experts: false, read: ALL }
    }

    fn matrix(name: String, shape: Vec<usize>) -> Self {
        Self { is_quantised: true, ..Self::vector(name, shape) }
    }

    /// Of which a token reads one row.
    fn table(name: String, shape: Vec<usize>) -> Self {
        Self { read: [1, shape[0]], ..Self::matrix(name, shape) }
    }
}

/// The tensors of a configuration, with experts in stacks.
///
/// # Errors
/// As [`ArchSpec::from_checkpoint`].
pub fn tensors(config: &Value) -> Result<Vec<StoredTensor>> {
    let spec = spec(config)?;
    let (names, hidden, layers) = (&spec.names, spec.hidden_size, spec.n_layers());
    let embedding = StoredTensor::table(names.embedding(), vec![spec.vocab_size, hidden]);
    let read = if spec.tied_embeddings { ALL } else { embedding.read };
    let mut list =
        vec![StoredTensor { read, ..embedding }, StoredTensor::vector(names.output_norm(), vec![hidden])];
    if !spec.tied_embeddings {
        list.push(StoredTensor::matrix(names.head(), vec![spec.vocab_size, hidden]));
    }
    if let Some(input) = spec.inputs() {
        let width = layers * input.width;
        list.push(StoredTensor::table(names.layer_inputs(), vec![input.rows, width]));
        list.push(StoredTensor::matrix(names.input_projections(), vec![width, hidden]));
        list.push(StoredTensor::vector(names.input_norm(), vec![input.width]));
    }
    let ends = spec.stream_ends().into_iter().flatten();
    list.extend(ends.map(|name| StoredTensor::matrix(name, vec![hidden, hidden])));
    for (at, layer) in spec.layers.iter().enumerate() {
        let first = |tensor: &LayerTensor| names.fused(layer, *tensor).next() == Some(*tensor);
        for tensor in LayerTensor::of(layer).filter(first) {
            list.extend(of_layer(names, (at, layer), hidden, tensor));
        }
    }
    Ok(list)
}

/// Bytes that a token behind so many others reads of what is kept of them: keys and values in 16 bits, and states, which it
/// writes, too.
///
/// # Errors
/// As [`tensors`].
pub fn kept_bytes(config: &Value, positions: usize) -> Result<u64> {
    let of_layer = |layer: &LayerSpec| {
        if let Some(state) = layer.recurrent() {
            return 2 * state.state_bytes();
        }
        let Some(attention) = layer.attention() else { return 0 };
        let seen = attention.window.map_or(positions, |window| positions.min(window.size()));
        let (kinds, index) = match attention.latent {
            None => (2, None),
            Some(latent) => (1, latent.index),
        };
        let chosen = index.map_or(seen, |index| seen.min(index.most));
        let indexed = attention.own_index().map_or(0, |index| seen * index.head_dim);
        2 * (kinds * chosen * attention.n_kv_heads * attention.head_dim + indexed) as u64
    };
    Ok(spec(config)?.layers.iter().map(of_layer).sum())
}

/// A layer's tensor with all that lies in the same one, and its bias.
fn of_layer(
    names: &TensorNames,
    (at, layer): (usize, &LayerSpec),
    hidden: usize,
    tensor: LayerTensor,
) -> impl Iterator<Item = StoredTensor> {
    let rows = names.fused(layer, tensor).map(|part| part.shape(layer, hidden)[0]).sum();
    let [own, n_in] = tensor.shape(layer, hidden);
    let heads = layer.attention().map_or(0, |attention| attention.n_heads);
    let experts = layer.ffn.experts.filter(|_| tensor.is_per_expert());
    let (name, read) = (names.weight(at, tensor), experts.map_or(ALL, |own| [own.n_used, own.n_experts]));
    let stored = match tensor {
        _ if experts.is_some() => {
            let shape = vec![read[1], rows, n_in];
            StoredTensor { is_experts: true, read, ..StoredTensor::matrix(name, shape) }
        }
        // Each head's, turned round.
        LatentKeys => StoredTensor::matrix(name, vec![heads, n_in, own]),
        LatentValues => StoredTensor::matrix(name, vec![heads, own, n_in]),
        _ if convolves(names, layer, tensor) => StoredTensor::vector(name, vec![rows, n_in, 1]),
        Router | StreamPrediction | StreamCorrection => StoredTensor::vector(name, vec![rows, n_in]),
        _ if own == 1 && tensor != SharedScore => StoredTensor::vector(name, vec![n_in]),
        _ => StoredTensor::matrix(name, vec![rows, n_in]),
    };
    let bias = tensor.has_bias(layer).then(|| {
        let n = if own == 1 { n_in } else { rows };
        let shape = if experts.is_some() { vec![read[1], n] } else { vec![n] };
        StoredTensor { read, ..StoredTensor::vector(names.bias(at, tensor), shape) }
    });
    [Some(stored), bias].into_iter().flatten()
}

/// Whether it is a convolution, or lies in one.
fn convolves(names: &TensorNames, layer: &LayerSpec, tensor: LayerTensor) -> bool {
    use LayerTensor::{KeyConvolution, ValueConvolution};
    names
        .fused(layer, tensor)
        .any(|part| matches!(part, QueryConvolution | KeyConvolution | ValueConvolution))
}

/// What a configuration describes, with MLX's words.
fn spec(config: &Value) -> Result<ArchSpec> {
    let file = PathBuf::from("config.json");
    let mut spec = huggingface::spec(config, &file, "model.".to_owned())?;
    if spec.names.embedding() == "model.embeddings.weight" {
        spec = huggingface::spec(config, &file, "backbone.".to_owned())?;
    }
    spec.check()?;
    let mut at = 0;
    while let Some((sign, names)) = spec.names.variant(at) {
        // What gates and what is gated are fused by others.
        if spec.layers.iter().all(|layer| names.fused(layer, sign).count() < 2) {
            spec.names = names;
        }
        at += 1;
    }
    Ok(spec)
}
