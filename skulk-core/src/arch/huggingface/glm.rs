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
    mixture: deepseek_experts,
    own: |config, spec| {
        let norms = config.bool_or("use_qk_norm", false)?;
        spec.attentions().for_each(|attention| attention.qk_norm = norms.then_some(QkNorm::Heads));
        Ok(())
    },
    ..LLAMA
};

/// Experts as DeepSeek-V3 has them, whose words others took over.
pub(super) fn deepseek_experts(config: &Config<'_>, n_layers: usize) -> Result<Option<Mixture>> {
    if let Some(scoring) = config.opt_str("scoring_func")? {
        only(config, "scoring_func", scoring, "sigmoid")?;
    }
    let [n_groups, groups_used] = ["n_group", "topk_group"].map(|key| config.usize_or(key, 1));
    let groups = ExpertGroups { n_groups: n_groups?, n_used: groups_used? };
    let spec = ExpertsSpec {
        n_experts: config.usize("n_routed_experts")?,
        n_used: config.usize("num_experts_per_tok")?,
        scoring: Scoring::Sigmoid,
        correction: true,
        groups: (groups.n_used != groups.n_groups).then_some(groups),
        normalise: config.bool_or("norm_topk_prob", true)?,
        scale: config.f32_or("routed_scaling_factor", 1.0)?,
        ..ExpertsSpec::PLAIN
    };
    let width = config.usize("moe_intermediate_size")?;
    let shared = config.usize_or("n_shared_experts", 0)?;
    let dense = config.usize_or("first_k_dense_replace", 0)?;
    Ok(Some(Mixture {
        spec,
        width,
        shared: (shared > 0).then(|| SharedExpert::new(width.saturating_mul(shared))),
        sparse: (0..n_layers).map(|layer| layer >= dense).collect(),
    }))
}
