//! What do configurations of Qwen's kind say? Qwen 2, 2.5 and 3, dense and with experts.

use super::llama::LLAMA;
use super::{Family, Mixture};
use crate::arch::config::Config;
use crate::arch::{ExpertsSpec, QkNorm, unsupported};
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

pub(super) const QWEN3_MOE: Family =
    Family { label: "qwen3_moe", head_dim: LLAMA.head_dim, mixture: qwen3_moe, ..QWEN3 };

/// Published configurations name a window and switch it off.
fn qwen_windows(config: &Config<'_>, n_layers: usize) -> Result<Vec<Option<usize>>> {
    if config.bool_or("use_sliding_window", false)? {
        return Err(unsupported("the variant", "use_sliding_window", "attention to all positions")
            .with("file", config.file.display()));
    }
    Ok(vec![None; n_layers])
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
