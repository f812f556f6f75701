//! What do configurations of Step 3.5 say?

use std::collections::BTreeSet;

use super::llama::LLAMA;
use super::{Family, Mixture, only, rope};
use crate::arch::config::Config;
use crate::arch::names::HF_STEP3P5;
use crate::arch::{
    Activation, ArchSpec, ExpertsSpec, QkNorm, RopeLayout, RopeScaling, RopeSpec, Scoring, SharedExpert,
};
use crate::error::Result;

pub(super) const STEP3P5: Family = Family {
    label: "step3p5",
    spelling: &HF_STEP3P5,
    qk_norm: Some(QkNorm::Heads),
    norm_offset: 1.0,
    mlp_bias: false,
    context: 262_144,
    eps: 1e-5,
    kv_heads: "num_attention_groups",
    own_ropes: true,
    windows,
    mixture: experts,
    own,
    ..LLAMA
};

/// What the configuration says of a layer.
struct Lists<'a> {
    config: &'a Config<'a>,
    n_layers: usize,
}

impl Lists<'_> {
    /// Zeros where there is no list.
    fn numbers_or_zeros(&self, key: &'static str) -> Result<Vec<f32>> {
        if self.config.opt(key).is_none() {
            return Ok(vec![0.0; self.n_layers]);
        }
        self.numbers(key)
    }

    /// Numbers of a list that has one for each layer, or more: what is behind belongs to layers that predict tokens ahead.
    fn numbers(&self, key: &'static str) -> Result<Vec<f32>> {
        let list = self.config.f32s_or_nulls(key)?;
        self.whole(key, list.len())?;
        Ok(list)
    }

    fn whole(&self, key: &'static str, found: usize) -> Result<()> {
        if found >= self.n_layers {
            return Ok(());
        }
        Err(self.config.error(key, format!("expected {} values, found {found}", self.n_layers)))
    }
}

/// The attention kind of each layer.
fn kinds<'a>(config: &Config<'a>, n_layers: usize) -> Result<Vec<&'a str>> {
    let list = config.strs("layer_types")?;
    Lists { config, n_layers }.whole("layer_types", list.len())?;
    Ok(list[..n_layers].to_vec())
}

fn windows(config: &Config<'_>, n_layers: usize) -> Result<Vec<Option<usize>>> {
    let window = |kind: &&str| match *kind {
        "full_attention" => Ok(None),
        "sliding_attention" => config.usize("sliding_window").map(Some),
        other => only(config, "layer_types", other, "full_attention or sliding_attention").map(|()| None),
    };
    kinds(config, n_layers)?.iter().map(window).collect()
}

fn experts(config: &Config<'_>, n_layers: usize) -> Result<Option<Mixture>> {
    only(config, "use_moe", config.bool_or("use_moe", true)?, true)?;
    let scoring = config.opt_str("moe_router_activation")?.unwrap_or("softmax");
    let spec = ExpertsSpec {
        n_experts: config.usize("moe_num_experts")?,
        n_used: config.usize("moe_top_k")?,
        scoring: match scoring {
            "sigmoid" => Scoring::Sigmoid,
            other => only(config, "moe_router_activation", other, "softmax").map(|()| Scoring::Softmax)?,
        },
        correction: config.bool_or("use_moe_router_bias", false)?,
        normalise: config.bool_or("norm_expert_weight", true)?,
        scale: config.f32_or("moe_router_scaling_factor", 1.0)?,
        ..ExpertsSpec::PLAIN
    };
    let sparse = config.indices("moe_layers_enum")?;
    // Where nothing is said, the first three are dense.
    let is_sparse = |layer| sparse.as_ref().map_or(layer >= 3, |sparse| sparse.contains(&layer));
    let shared = config.usize_or("share_expert_dim", 0)?;
    Ok(Some(Mixture {
        spec,
        width: config.usize("moe_intermediate_size")?,
        shared: (shared > 0).then(|| SharedExpert::new(shared)),
        sparse: (0..n_layers).map(is_sparse).collect(),
    }))
}

/// Embeddings are made for each layer, as bases and rotated shares are told for each.
fn ropes(config: &Config<'_>, spec: &mut ArchSpec) -> Result<()> {
    let lists = Lists { config, n_layers: spec.layers.len() };
    let base = lists.numbers("rope_theta")?;
    let shares = match config.opt("partial_rotary_factors") {
        Some(_) => lists.numbers("partial_rotary_factors")?,
        None => vec![1.0; lists.n_layers],
    };
    let scaled = config.opt("yarn_only_types").map(|_| config.strs("yarn_only_types")).transpose()?;
    let kinds = kinds(config, lists.n_layers)?;
    spec.ropes.clear();
    for (at, layer) in spec.layers.iter_mut().enumerate() {
        let Some(attention) = layer.attention_mut() else { continue };
        let scales = scaled.as_ref().is_none_or(|scaled| scaled.contains(&kinds[at]));
        let (scaling, amplitude) = match config.opt("rope_scaling") {
            Some(_) if scales => rope::scaling(config, &config.section("rope_scaling")?)?,
            _ => (RopeScaling::None, 1.0),
        };
        let dim = rope::rotary_dim(config, attention.head_dim, shares[at])?;
        let rope = RopeSpec { theta: base[at].into(), dim, layout: RopeLayout::Halves, scaling, amplitude };
        let known = spec.ropes.iter().position(|known| *known == rope);
        attention.rope = Some(known.unwrap_or(spec.ropes.len()));
        if known.is_none() {
            spec.ropes.push(rope);
        }
    }
    Ok(())
}

fn own(config: &Config<'_>, spec: &mut ArchSpec) -> Result<()> {
    only(config, "sink", config.bool_or("sink", false)?, false)?;
    only(config, "use_qk_norm", config.bool_or("use_qk_norm", true)?, true)?;
    only(config, "use_rope_layers", config.usizes("use_rope_layers")?, BTreeSet::new())?;
    if !config.bool_or("zero_centered", true)? {
        spec.norm.weight_offset = 0.0;
    }
    let n_layers = spec.layers.len();
    let kinds = kinds(config, n_layers)?;
    let other = config
        .opt("attention_other_setting")
        .map(|_| config.section("attention_other_setting"))
        .transpose()?;
    let gated = config.bool_or("use_head_wise_attn_gate", false)?;
    for (attention, kind) in spec.attentions().zip(kinds) {
        attention.head_gate = gated;
        let Some(other) = &other else { continue };
        if other.opt_str("attention_type")?.unwrap_or("sliding_attention") == kind {
            attention.n_heads = other.usize("num_attention_heads")?;
            attention.n_kv_heads = other.usize_or("num_attention_groups", attention.n_kv_heads)?;
            attention.head_dim = other.usize_or("head_dim", attention.head_dim)?;
            attention.scale = (attention.head_dim as f32).sqrt().recip();
        }
    }
    ropes(config, spec)?;
    let lists = Lists { config, n_layers };
    let limits = [lists.numbers_or_zeros("swiglu_limits")?, lists.numbers_or_zeros("swiglu_limits_shared")?];
    for (at, layer) in spec.layers.iter_mut().enumerate() {
        let clamped =
            |limits: &[f32]| Some(limits[at]).filter(|limit| *limit > 0.0).map(Activation::ClampedSilu);
        if layer.ffn.experts.is_some() {
            layer.ffn.activation = clamped(&limits[0]).unwrap_or(layer.ffn.activation);
        }
        if let Some(shared) = &mut layer.ffn.shared {
            shared.activation = clamped(&limits[1]).unwrap_or(shared.activation);
        }
    }
    Ok(())
}
