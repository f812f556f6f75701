//! What do configurations of GLM 4, 4.5 and 4.7 say?

use super::llama::LLAMA;
use super::{Family, Mixture, only};
use crate::arch::config::Config;
use crate::arch::names::{HF_GLM4, HF_GLM4_MOE};
use crate::arch::{ExpertGroups, ExpertsSpec, QkNorm, RopeLayout, Scoring, SharedExpert};
use crate::error::Result;

pub(super) const GLM4: Family = Family {
    label: "glm4",
    spelling: &HF_GLM4,
    post_norms: true,
    output_bias: false,
    mlp_bias: false,
    context: 131_072,
    eps: 1.5625e-7,
    head_dim: |_, _| 128,
    attention_bias: true,
    partial_rotary: Some(0.5),
    own: |_, spec| {
        spec.ropes.iter_mut().for_each(|rope| rope.layout = RopeLayout::Pairs);
        Ok(())
    },
    ..LLAMA
};

pub(super) const GLM4_MOE: Family = Family {
    label: "glm4_moe",
    spelling: &HF_GLM4_MOE,
    output_bias: false,
    mlp_bias: false,
    context: 131_072,
    eps: 1e-5,
    partial_rotary: Some(0.5),
    mixture: |config, n_layers| {
        deepseek_experts(config, n_layers, &Usual { groups: [1, 1], scale: 1.0, dense: 1 })
    },
    own: |config, spec| {
        let norms = config.bool_or("use_qk_norm", false)?;
        spec.attentions().for_each(|attention| attention.qk_norm = norms.then_some(QkNorm::Heads));
        Ok(())
    },
    ..LLAMA
};

/// What experts of a family are like unless its configuration says so, beside one that is shared.
pub(super) struct Usual {
    /// How many groups there are, and how many of them a token takes.
    pub(super) groups: [usize; 2],
    pub(super) scale: f32,
    /// Layers before those with experts.
    pub(super) dense: usize,
}

/// Experts as DeepSeek-V3 has them, whose words others took over.
pub(super) fn deepseek_experts(
    config: &Config<'_>,
    n_layers: usize,
    usual: &Usual,
) -> Result<Option<Mixture>> {
    if let Some(scoring) = config.opt_str("scoring_func")? {
        only(config, "scoring_func", scoring, "sigmoid")?;
    }
    let [n_groups, n_used] = usual.groups;
    let groups = ExpertGroups {
        n_groups: config.usize_or("n_group", n_groups)?,
        n_used: config.usize_or("topk_group", n_used)?,
    };
    let spec = ExpertsSpec {
        n_experts: config.usize("n_routed_experts")?,
        n_used: config.usize("num_experts_per_tok")?,
        scoring: Scoring::Sigmoid,
        correction: true,
        groups: (groups.n_used != groups.n_groups).then_some(groups),
        normalise: config.bool_or("norm_topk_prob", true)?,
        scale: config.f32_or("routed_scaling_factor", usual.scale)?,
        ..ExpertsSpec::PLAIN
    };
    let width = config.usize("moe_intermediate_size")?;
    let shared = config.usize_or("n_shared_experts", 1)?;
    let dense = config.usize_or("first_k_dense_replace", usual.dense)?;
    Ok(Some(Mixture {
        spec,
        width,
        shared: (shared > 0).then(|| SharedExpert::new(width.saturating_mul(shared))),
        sparse: (0..n_layers).map(|layer| layer >= dense).collect(),
    }))
}
