//! What do configurations of Kimi Linear say? Most layers keep a state whose elements decay apart, the others attend to
//! latent vectors, unrotated.

use std::collections::BTreeSet;

use super::deepseek::{DEEPSEEK_V3, latent, sparse_layers};
use super::qwen_next::recurrent_layers;
use super::{Family, Mixture, only, without};
use crate::arch::config::Config;
use crate::arch::names::HF_KIMI_LINEAR;
use crate::arch::{
    ArchSpec, ExpertGroups, ExpertsSpec, Interleaved, KeyHeads, Mixer, RecurrentGate, RecurrentRule,
    RecurrentSpec, Scoring, SharedExpert, StoredDecay,
};
use crate::error::Result;

pub(super) const KIMI_LINEAR: Family = Family {
    label: "kimi_linear",
    spelling: &HF_KIMI_LINEAR,
    context: 1_048_576,
    context_field: "model_max_length",
    eps: 1e-5,
    mixture: experts,
    own,
    ..DEEPSEEK_V3
};

/// DeepSeek's, by other words.
fn experts(config: &Config<'_>, n_layers: usize) -> Result<Option<Mixture>> {
    if let Some(found) = config.opt_str("moe_router_activation_func")? {
        only(config, "moe_router_activation_func", found, "sigmoid")?;
    }
    let groups = ExpertGroups {
        n_groups: config.usize_or("num_expert_group", 1)?,
        n_used: config.usize_or("topk_group", 1)?,
    };
    let spec = ExpertsSpec {
        n_experts: config.usize("num_experts")?,
        n_used: config.usize("num_experts_per_token")?,
        scoring: Scoring::Sigmoid,
        correction: true,
        groups: (groups.n_used != groups.n_groups).then_some(groups),
        normalise: config.bool_or("moe_renormalize", true)?,
        scale: config.f32_or("routed_scaling_factor", 2.446)?,
        ..ExpertsSpec::PLAIN
    };
    let width = config.usize("moe_intermediate_size")?;
    let shared = config.usize_or("num_shared_experts", 1)?;
    Ok(Some(Mixture {
        spec,
        width,
        shared: (shared > 0).then(|| SharedExpert::new(width.saturating_mul(shared))),
        sparse: sparse_layers(config, n_layers, 1)?,
    }))
}

fn own(config: &Config<'_>, spec: &mut ArchSpec) -> Result<()> {
    only(config, "mla_use_nope", config.bool_or("mla_use_nope", true)?, true)?;
    without(config, "q_lora_rank")?;
    let names = spec.names.clone();
    latent(config, spec)?;
    spec.names = names;
    spec.ropes.clear();
    spec.attentions().for_each(|attention| attention.rope = None);
    // transformers 5 writes the same beside everything else, unless it has read a section.
    let apart = config.opt("linear_attn_config").is_some() || config.opt("linear_num_heads").is_none();
    let section = if apart { config.section("linear_attn_config")? } else { *config };
    let [n_heads, dim, convolution] = match apart {
        true => ["num_heads", "head_dim", "short_conv_kernel_size"],
        false => ["linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim"],
    };
    let (n_heads, dim) = (section.usize(n_heads)?, section.usize(dim)?);
    let state = RecurrentSpec {
        n_heads,
        n_key_heads: n_heads,
        key_heads: KeyHeads::Consecutive,
        key_dim: dim,
        value_dim: dim,
        convolution: section.usize_or(convolution, 4)?,
        convolution_bias: false,
        rule: RecurrentRule::DeltaOfElements,
        gate: RecurrentGate::SigmoidBehind,
        norm_groups: n_heads,
        rank: Some(dim),
        interleaved: Interleaved::No,
        decay: StoredDecay::Logarithm,
    };
    let recurrent = match apart {
        true => listed(&section, spec.layers.len())?,
        // The layers that attend are no rule here.
        false => config.strs("layer_types").and_then(|_| recurrent_layers(config, spec.layers.len()))?,
    };
    for (layer, _) in spec.layers.iter_mut().zip(recurrent).filter(|(_, recurrent)| *recurrent) {
        layer.mixer = Mixer::Recurrent(state.clone());
    }
    Ok(())
}

/// Whether each layer keeps a state. Layers are counted from 1, and each is in one of both lists.
fn listed(section: &Config<'_>, n_layers: usize) -> Result<Vec<bool>> {
    let [keeps, attends] = ["kda_layers", "full_attn_layers"].map(|field| section.usizes(field));
    let (keeps, attends): (BTreeSet<_>, BTreeSet<_>) = (keeps?, attends?);
    let keeps = |at| match (keeps.contains(&at), attends.contains(&at)) {
        (true, false) => Ok(true),
        (false, true) => Ok(false),
        _ => {
            let message = format!("expected layer {at} in this list or in full_attn_layers, and not in both");
            Err(section.error("kda_layers", message))
        }
    };
    (1..=n_layers).map(keeps).collect()
}
