//! What do files of Kimi Linear say? Most layers keep a state whose elements decay apart, the others attend to latent
//! vectors, unrotated.

use super::super::names::{GGUF_KIMI_LINEAR, TensorNames};
use super::super::{
    ArchSpec, Interleaved, KeyHeads, Mixer, RecurrentGate, RecurrentRule, RecurrentSpec, StoredDecay,
    unsupported,
};
use super::deepseek::Heads;
use super::glm::Mixture;
use super::keys::Keys;
use super::{Sizes, plain};
use crate::error::Result;
use crate::weights::Checkpoint;

/// Layers without heads of keys keep a state.
pub(super) fn kimi_linear(keys: &Keys<'_>, checkpoint: &dyn Checkpoint) -> Result<ArchSpec> {
    let sizes = Sizes::of_any_values(keys)?;
    let heads = Heads::read(keys)?;
    if let Some(rank) = heads.latent.query_rank {
        return Err(unsupported("the attention.q_lora_rank", &rank.to_string(), "none")
            .with("file", keys.metadata.file().display())
            .with("field", format!("{}.attention.q_lora_rank", keys.arch)));
    }
    let (dim, convolution) = (keys.usize("kda.head_dim")?, keys.usize("ssm.conv_kernel")?);
    let state = |n_heads| RecurrentSpec {
        n_heads,
        n_key_heads: n_heads,
        key_heads: KeyHeads::Consecutive,
        key_dim: dim,
        value_dim: dim,
        convolution,
        convolution_bias: false,
        rule: RecurrentRule::DeltaOfElements,
        gate: RecurrentGate::SigmoidBehind,
        norm_groups: n_heads,
        rank: Some(dim),
        interleaved: Interleaved::No,
        decay: StoredDecay::Negative,
    };
    let mixture = Mixture::read(keys, checkpoint, sizes.n_layers)?;
    let spec = plain(keys, checkpoint, &sizes, Vec::new(), |at, layer| {
        if let Some(attention) = layer.attention_mut() {
            if attention.n_kv_heads == 0 {
                // States have as many heads as attention: files name no other number.
                layer.mixer = Mixer::Recurrent(state(attention.n_heads));
            } else {
                heads.put(attention);
                attention.rope = None;
            }
        }
        mixture.put(at, layer);
    })?;
    Ok(ArchSpec { names: TensorNames::new(String::new(), &GGUF_KIMI_LINEAR), ..spec })
}
