//! What do configurations of Granite say? Llama's layers with multipliers, and hybrids of which most layers keep a state.

use serde_json::Value;

use super::llama::LLAMA;
use super::{Family, Mixture, only};
use crate::arch::config::Config;
use crate::arch::names::HF_GRANITE_HYBRID;
use crate::arch::{
    ArchSpec, ExpertsSpec, Interleaved, KeyHeads, Mixer, RecurrentGate, RecurrentRule, RecurrentSpec,
    SharedExpert, StoredDecay,
};
use crate::error::Result;

pub(super) const GRANITE: Family = Family { label: "granite", partial_rotary: None, own: granite, ..LLAMA };

pub(super) const GRANITE_HYBRID: Family = Family {
    label: "granitemoehybrid",
    spelling: &HF_GRANITE_HYBRID,
    // Without experts, the shared block is all there is.
    ffn_width: "shared_intermediate_size",
    windows: |_, n_layers| Ok(vec![None; n_layers]),
    mixture: experts,
    own: hybrid,
    ..GRANITE
};

fn granite(config: &Config<'_>, spec: &mut ArchSpec) -> Result<()> {
    spec.embedding_scale = config.f32_or("embedding_multiplier", 1.0)?;
    spec.residual_scale = config.f32_or("residual_multiplier", 1.0)?;
    spec.logit_scale = config.f32_or("logits_scaling", 1.0)?.recip();
    let scale = config.f32_or("attention_multiplier", 1.0)?;
    spec.attentions().for_each(|attention| attention.scale = scale);
    Ok(())
}

fn experts(config: &Config<'_>, n_layers: usize) -> Result<Option<Mixture>> {
    let n_experts = config.usize_or("num_local_experts", 8)?;
    if n_experts == 0 {
        return Ok(None);
    }
    let spec = ExpertsSpec {
        n_experts,
        n_used: config.usize("num_experts_per_tok")?,
        // A softmax over those that are taken is what they have of one over all, scaled to a sum of 1.
        normalise: true,
        ..ExpertsSpec::PLAIN
    };
    let shared = Some(SharedExpert::new(config.usize("shared_intermediate_size")?));
    let width = config.usize("intermediate_size")?;
    Ok(Some(Mixture { spec, width, shared, sparse: vec![true; n_layers] }))
}

fn hybrid(config: &Config<'_>, spec: &mut ArchSpec) -> Result<()> {
    granite(config, spec)?;
    only(config, "mamba_proj_bias", config.bool_or("mamba_proj_bias", false)?, false)?;
    let rotates = match config.opt_str("position_embedding_type")?.unwrap_or("nope") {
        "nope" => false,
        other => only(config, "position_embedding_type", other, "rope").map(|()| true)?,
    };
    let recurrent = recurrent(config, spec.layers.len())?;
    let state = state(config, spec.hidden_size)?;
    for (layer, recurrent) in spec.layers.iter_mut().zip(recurrent) {
        if recurrent {
            layer.mixer = Mixer::Recurrent(state.clone());
        } else if let Some(attention) = layer.attention_mut() {
            attention.rope = rotates.then_some(0);
        }
    }
    Ok(())
}

/// The states of a model, whose sizes may be left out: above all where no layer has one.
fn state(config: &Config<'_>, hidden_size: usize) -> Result<RecurrentSpec> {
    let n_groups = config.usize_or("mamba_n_groups", 1)?;
    let n_heads = config.usize_or("mamba_n_heads", 128)?;
    let width = "mamba_d_head";
    let value_dim = match config.opt(width).filter(|found| *found != "auto") {
        Some(_) => config.usize(width)?,
        None => hidden_size.saturating_mul(config.usize_or("mamba_expand", 2)?) / n_heads.max(1),
    };
    Ok(RecurrentSpec {
        n_heads,
        n_key_heads: n_groups,
        key_heads: KeyHeads::Consecutive,
        key_dim: config.usize_or("mamba_d_state", 256)?,
        value_dim,
        convolution: config.usize_or("mamba_d_conv", 4)?,
        convolution_bias: config.bool_or("mamba_conv_bias", true)?,
        rule: RecurrentRule::Add { steps: steps(config)? },
        gate: RecurrentGate::Before,
        norm_groups: n_groups,
        rank: None,
        interleaved: Interleaved::No,
        decay: StoredDecay::Logarithm,
    })
}

/// Whether each layer keeps a state.
fn recurrent(config: &Config<'_>, n_layers: usize) -> Result<Vec<bool>> {
    let kinds = config.strs("layer_types")?;
    let kind = |kind: &&str| match *kind {
        "mamba" | "linear_attention" => Ok(true),
        "attention" | "full_attention" => Ok(false),
        other => only(config, "layer_types", other, "mamba or attention").map(|()| false),
    };
    if kinds.len() != n_layers {
        let message = format!("expected {n_layers} values, found {}", kinds.len());
        return Err(config.error("layer_types", message));
    }
    kinds.iter().map(kind).collect()
}

/// The least time step and the largest; transformers writes infinity as an object.
pub(super) fn steps(config: &Config<'_>) -> Result<[f32; 2]> {
    const FIELD: &str = "time_step_limit";
    let Some(limits) = config.opt(FIELD) else { return Ok([0.0, f32::INFINITY]) };
    let number = |limit: &Value| match limit.get("__float__").unwrap_or(limit) {
        Value::String(text) if text == "Infinity" => Some(f32::INFINITY),
        limit => limit.as_f64().map(|limit| limit as f32),
    };
    let numbers = limits.as_array().and_then(|list| list.iter().map(number).collect::<Option<Vec<_>>>());
    numbers
        .and_then(|numbers| numbers.try_into().ok())
        .ok_or_else(|| config.wrong(FIELD, "two numbers", limits))
}
