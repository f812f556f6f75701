//! Does a file have what its key-values do not describe? It would give other results without it.

use crate::arch::{ArchSpec, LayerTensor, TensorRole};
use crate::error::{Error, ErrorKind, Result};
use crate::weights::gguf::GgufMetadata;
use crate::weights::{Checkpoint, TensorInfo};

/// `Ok` where each tensor that layers of the family may have is one of a layer that has it.
pub(in crate::arch) fn expect_used(
    spec: &ArchSpec,
    metadata: &GgufMetadata,
    checkpoint: &dyn Checkpoint,
) -> Result<()> {
    let count = format!("{}.block_count", metadata.str("general.architecture")?);
    // Layers that predict tokens ahead are counted, too.
    let stated = metadata.opt_u64(&count)?.unwrap_or_default();
    let broken = |tensor: &TensorInfo, message: String| {
        Error::new(ErrorKind::CheckpointInvalid, message)
            .with("file", metadata.file().display())
            .with("tensor", &tensor.name)
    };
    for tensor in checkpoint.tensors() {
        let Some(TensorRole::Layer { layer, tensor: role, is_bias, .. }) = spec.names.role(&tensor.name)
        else {
            continue;
        };
        if layer as u64 >= stated {
            let message = format!("expected tensors of {stated} layers, found one of layer {layer}");
            return Err(broken(tensor, message)
                .with("field", &count)
                .with_hint("the key-values are of another model: fetch or convert the file again"));
        }
        if !is_used(spec, layer, role, is_bias) {
            let message = format!("expected a layer {layer} without it by the file's key-values and tensors");
            return Err(broken(tensor, message).with_hint(
                "key-values or tensors that belong to it are missing: fetch or convert the file again",
            ));
        }
    }
    Ok(())
}

fn is_used(spec: &ArchSpec, at: usize, role: LayerTensor, is_bias: bool) -> bool {
    // Of layers that predict tokens ahead the family knows what there is.
    let Some(layer) = spec.layers.get(at) else { return true };
    // Layers that use another's keys and values, or what it chose, may have their own projections all the same.
    use LayerTensor::{IndexKey, IndexKeyNorm, IndexQuery, IndexWeights, Key, KeyNorm, Value};
    let borrows = match role {
        Key | Value | KeyNorm => layer.attention().is_some_and(|attention| !attention.has_kv()),
        IndexQuery | IndexKey | IndexKeyNorm | IndexWeights => layer
            .attention()
            .and_then(|attention| attention.latent?.index)
            .is_some_and(|index| index.of.is_some()),
        _ => false,
    };
    if borrows {
        return true;
    }
    spec.names.fused(layer, role).any(|tensor| !is_bias || tensor.has_bias(layer))
}
