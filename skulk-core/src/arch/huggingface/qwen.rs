//! What do configurations of Qwen's kind say? Qwen 2, 2.5 and 3, dense and with experts.

use super::llama::LLAMA;
use super::{Family, Mixture, sliding_layers};
use crate::arch::config::Config;
use crate::arch::{ExpertsSpec, QkNorm};
use crate::error::Result;

pub(super) const QWEN2: Family = Family {
    label: "qwen2",
    qkv_bias: true,
    output_bias: false,
    mlp_bias: false,
    partial_rotary: None,
    context: 32_768,
    windows: qwen_windows,
    ..LLAMA
};

pub(super) const QWEN3: Family = Family {
    label: "qwen3",
    qk_norm: Some(QkNorm::Heads),
    context: 32_768,
    head_dim: |_, _| 128,
    windows: qwen_windows,
    ..LLAMA
};

pub(super) const QWEN3_MOE: Family = Family {
    label: "qwen3_moe",
    head_dim: LLAMA.head_dim,
    windows: |config, n_layers| Ok(vec![window(config)?; n_layers]),
    mixture: qwen3_moe,
    ..QWEN3
};

/// The window, where it is switched on: published configurations name one and switch it off.
fn window(config: &Config<'_>) -> Result<Option<usize>> {
    let is_on = config.bool_or("use_sliding_window", false)?;
    if is_on { config.usize_unless_null("sliding_window", 4096) } else { Ok(None) }
}

/// Layers from the `max_window_layers`-th on have it, unless `layer_types` says otherwise.
fn qwen_windows(config: &Config<'_>, n_layers: usize) -> Result<Vec<Option<usize>>> {
    let Some(window) = window(config)? else { return Ok(vec![None; n_layers]) };
    let slide = match config.opt("layer_types") {
        Some(_) => sliding_layers(config, n_layers, 1)?,
        None => {
            let first = config.usize_or("max_window_layers", 28)?;
            (0..n_layers).map(|layer| layer >= first).collect()
        }
    };
    Ok(slide.into_iter().map(|slides| slides.then_some(window)).collect())
}

pub(super) fn qwen3_moe(config: &Config<'_>, n_layers: usize) -> Result<Option<Mixture>> {
    let step = config.usize_or("decoder_sparse_step", 1)?;
    if step == 0 {
        return Err(config.error("decoder_sparse_step", "expected at least 1, found 0".into()));
    }
    // Hubs hold `num_experts`; transformers 5 writes the name that other families have.
    let n_experts = match config.opt_usize("num_experts")? {
        Some(n) => n,
        None => config.usize("num_local_experts")?,
    };
    let spec = ExpertsSpec {
        n_experts,
        n_used: config.usize("num_experts_per_tok")?,
        normalise: config.bool_or("norm_topk_prob", false)?,
        ..ExpertsSpec::PLAIN
    };
    let dense = config.usizes("mlp_only_layers")?;
    let sparse =
        (0..n_layers).map(|layer| (layer + 1).is_multiple_of(step) && !dense.contains(&layer)).collect();
    Ok(Some(Mixture { spec, width: config.usize("moe_intermediate_size")?, shared: None, sparse }))
}
