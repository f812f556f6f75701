//! What do configurations of Qwen3-Next and Qwen 3.5 and 3.6 say? Most layers keep a state, each fourth attends.

use serde_json::Value;

use super::qwen::{QWEN3, qwen3_moe};
use super::{Family, Mixture};
use crate::arch::config::Config;
use crate::arch::names::{HF_QWEN3_5, HF_QWEN3_NEXT};
use crate::arch::{
    ArchSpec, Interleaved, KeyHeads, Mixer, RecurrentGate, RecurrentRule, RecurrentSpec, SharedExpert,
    StoredDecay,
};
use crate::error::Result;

pub(super) const QWEN3_5: Family = Family {
    label: "qwen3_5",
    spelling: &HF_QWEN3_5,
    norm_offset: 1.0,
    mlp_bias: false,
    partial_rotary: Some(0.25),
    head_dim: |_, _| 256,
    windows: |_, n_layers| Ok(vec![None; n_layers]),
    own: |config, spec| own(config, spec, Interleaved::No),
    ..QWEN3
};

pub(super) const QWEN3_5_MOE: Family = Family {
    label: "qwen3_5_moe",
    // All layers have experts.
    ffn_width: "moe_intermediate_size",
    mixture: |config, n_layers| experts(config, n_layers, true),
    ..QWEN3_5
};

pub(super) const QWEN3_NEXT: Family = Family {
    label: "qwen3_next",
    spelling: &HF_QWEN3_NEXT,
    mixture: |config, n_layers| {
        let normalise = config.bool_or("norm_topk_prob", true)?;
        experts(config, n_layers, normalise)
    },
    own: |config, spec| own(config, spec, Interleaved::Yes),
    ..QWEN3_5
};

fn experts(config: &Config<'_>, n_layers: usize, normalise: bool) -> Result<Option<Mixture>> {
    let width = config.usize("shared_expert_intermediate_size")?;
    let shared = SharedExpert { gated: true, ..SharedExpert::new(width) };
    Ok(qwen3_moe(config, n_layers)?.map(|mut mixture| {
        mixture.spec.normalise = normalise;
        Mixture { shared: Some(shared), ..mixture }
    }))
}

/// Whether each layer keeps a state: `layer_types`, or all but each `full_attention_interval`-th.
pub(super) fn recurrent_layers(config: &Config<'_>, n_layers: usize) -> Result<Vec<bool>> {
    let Some(types) = config.opt("layer_types") else {
        let interval = config.usize_or("full_attention_interval", 4)?.max(1);
        return Ok((1..=n_layers).map(|layer| !layer.is_multiple_of(interval)).collect());
    };
    let kind = |kind: &Value| match kind.as_str() {
        Some("linear_attention") => Some(true),
        Some("full_attention") => Some(false),
        _ => None,
    };
    let list = types.as_array().filter(|list| list.len() == n_layers);
    let kinds = list.and_then(|list| list.iter().map(kind).collect());
    let expected = "one of linear_attention, full_attention per layer";
    kinds.ok_or_else(|| config.wrong("layer_types", expected, types))
}

fn own(config: &Config<'_>, spec: &mut ArchSpec, interleaved: Interleaved) -> Result<()> {
    let n_heads = config.usize("linear_num_value_heads")?;
    let state = RecurrentSpec {
        n_heads,
        n_key_heads: config.usize("linear_num_key_heads")?,
        key_heads: KeyHeads::Consecutive,
        key_dim: config.usize("linear_key_head_dim")?,
        value_dim: config.usize("linear_value_head_dim")?,
        convolution: config.usize_or("linear_conv_kernel_dim", 4)?,
        convolution_bias: false,
        rule: RecurrentRule::Delta,
        gate: RecurrentGate::Behind,
        norm_groups: n_heads,
        rank: None,
        interleaved,
        decay: StoredDecay::Logarithm,
    };
    let recurrent = recurrent_layers(config, spec.layers.len())?;
    for (layer, recurrent) in spec.layers.iter_mut().zip(recurrent) {
        if recurrent {
            layer.mixer = Mixer::Recurrent(state.clone());
        } else if let Some(attention) = layer.attention_mut() {
            attention.output_gate = true;
        }
    }
    Ok(())
}
