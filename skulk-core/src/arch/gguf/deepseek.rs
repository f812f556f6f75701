//! What do files of DeepSeek V3 say, and of those that took its attention over: Kimi K2 and GLM 4.7 Flash?

use super::super::names::{GGUF_DEEPSEEK, GGUF_DEEPSEEK_PLAIN, TensorNames};
use super::super::{ArchSpec, LatentSpec, RopeLayout, RopeScaling, RopeSpec, SharedExpert, unsupported};
use super::keys::Keys;
use super::{Sizes, glm, plain};
use crate::error::Result;
use crate::math;
use crate::weights::Checkpoint;

pub(super) fn deepseek2(keys: &Keys<'_>, checkpoint: &dyn Checkpoint) -> Result<ArchSpec> {
    if keys.opt_usize("expert_gating_func")? != Some(2) {
        return Err(unsupported("the router", "that of DeepSeek V2", "a sigmoid (expert_gating_func 2)")
            .with("file", keys.metadata.file().display())
            .with("field", "deepseek2.expert_gating_func"));
    }
    let sizes = Sizes::of_any_values(keys)?;
    let rotated = keys.usize("rope.dimension_count")?;
    let rank = keys.usize("attention.kv_lora_rank")?;
    // Older files name a head's own lengths, newer ones those of what is kept beside.
    let head = keys.usize_of("attention.key_length_mla", "attention.key_length")?;
    let latent = LatentSpec {
        rank,
        plain: head.saturating_sub(rotated),
        rotated,
        value: keys.usize_of("attention.value_length_mla", "attention.value_length")?,
        query_rank: keys.opt_usize("attention.q_lora_rank")?.filter(|rank| *rank > 0),
        eps: 1e-6,
        index: None,
    };
    let theta = keys.opt_f64("rope.freq_base")?.unwrap_or(10_000.0);
    let (scaling, _) = keys.rope_scaling(true)?;
    // A tenth of `mscale_all_dim`, by which scores grow instead of what is rotated.
    let grown = match (&scaling, keys.opt_f64("rope.scaling.yarn_log_multiplier")?) {
        (RopeScaling::Yarn { factor, .. }, Some(by)) if *factor > 1.0 => 1.0 + by * math::ln(*factor),
        _ => 1.0,
    };
    let scale = (head as f32).sqrt().recip() * (grown * grown) as f32;
    let rope = RopeSpec { theta, dim: rotated, layout: RopeLayout::Pairs, scaling, amplitude: 1.0 };
    let experts = glm::experts(keys, checkpoint, sizes.n_layers)?;
    let width = keys.usize("expert_feed_forward_length")?;
    let shared = keys.opt_usize("expert_shared_count")?.unwrap_or(0).saturating_mul(width);
    let dense = keys.opt_usize("leading_dense_block_count")?.unwrap_or(0);
    let spec = plain(keys, checkpoint, &sizes, vec![rope], |at, layer| {
        if let Some(attention) = layer.attention_mut() {
            attention.n_kv_heads = 1;
            attention.head_dim = rank.saturating_add(rotated);
            attention.scale = scale;
            attention.latent = Some(latent);
        }
        if at >= dense {
            (layer.ffn.width, layer.ffn.experts) = (width, Some(experts));
            layer.ffn.shared = (shared > 0).then(|| SharedExpert::new(shared));
        }
    })?;
    let spelling = if latent.query_rank.is_some() { &GGUF_DEEPSEEK } else { &GGUF_DEEPSEEK_PLAIN };
    Ok(ArchSpec { names: TensorNames::new(String::new(), spelling), ..spec })
}
