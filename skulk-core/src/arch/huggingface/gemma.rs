//! What do configurations of Gemma 2 and 3 say?

use super::llama::LLAMA;
use super::{Family, some_windows};
use crate::arch::config::Config;
use crate::arch::names::HF_GEMMA3;
use crate::arch::{Activation, ArchSpec, QkNorm, unsupported};
use crate::error::Result;

pub(super) const GEMMA3: Family = Family {
    label: "gemma3",
    spelling: &HF_GEMMA3,
    qk_norm: Some(QkNorm::Heads),
    post_norms: true,
    norm_offset: 1.0,
    mlp_bias: false,
    partial_rotary: None,
    embedding_scale: |hidden| (hidden as f32).sqrt(),
    // The published models' texts name no vocabulary, and those of 4B no heads either.
    sizes: &[("vocab_size", 262_208), ("num_attention_heads", 8), ("num_key_value_heads", 4)],
    tied_embeddings: true,
    context: 131_072,
    head_dim: |_, _| 256,
    activation: ("hidden_activation", Activation::GeluTanh),
    theta: 1_000_000.0,
    local_theta: Some(10_000.0),
    windows: |config, n_layers| gemma_windows(config, n_layers, 6),
    own: |config, spec| gemma(config, spec, [None; 2]),
    ..LLAMA
};

pub(super) const GEMMA2: Family = Family {
    label: "gemma2",
    qk_norm: None,
    sizes: &[("vocab_size", 256_000), ("num_attention_heads", 8), ("num_key_value_heads", 4)],
    context: 8192,
    theta: 10_000.0,
    local_theta: None,
    windows: |config, n_layers| gemma_windows(config, n_layers, 2),
    own: |config, spec| gemma(config, spec, [Some(50.0), Some(30.0)]),
    ..GEMMA3
};

/// Scores and logits are capped like this where the configuration says nothing; where it says null, they are not.
fn gemma(config: &Config<'_>, spec: &mut ArchSpec, caps: [Option<f32>; 2]) -> Result<()> {
    let cap = |key, default| if config.is_absent(key) { Ok(default) } else { config.opt_f32(key) };
    spec.final_softcap = cap("final_logit_softcapping", caps[1])?;
    let softcap = cap("attn_logit_softcapping", caps[0])?;
    let scale = config.f32_or("query_pre_attn_scalar", 256.0)?.sqrt().recip();
    for layer in &mut spec.layers {
        let Some(attention) = layer.attention_mut() else { continue };
        (attention.scale, attention.softcap) = (scale, softcap);
    }
    Ok(())
}

/// Every layer but each `pattern`-th has a window, unless the configuration says otherwise.
fn gemma_windows(config: &Config<'_>, n_layers: usize, pattern: usize) -> Result<Vec<Option<usize>>> {
    if config.bool_or("use_bidirectional_attention", false)? {
        return Err(unsupported("the variant", "use_bidirectional_attention", "causal attention")
            .with("file", config.file.display()));
    }
    some_windows(config, n_layers, pattern)
}
