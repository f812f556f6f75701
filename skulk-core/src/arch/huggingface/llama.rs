//! What do configurations of Llama's kind say? Llama, Mistral, Mixtral, SmolLM 3, Phi 3.

use super::{Family, Mixture, sliding_layers};
use crate::arch::config::Config;
use crate::arch::names::{HF_LLAMA, HF_MIXTRAL, HF_PHI3};
use crate::arch::{Activation, ArchSpec, ExpertsSpec, QueryGrowth};
use crate::error::Result;

pub(super) const LLAMA: Family = Family {
    label: "llama",
    spelling: &HF_LLAMA,
    qk_norm: None,
    pre_norms: true,
    post_norms: false,
    norm_offset: 0.0,
    qkv_bias: false,
    attention_bias: false,
    output_bias: true,
    mlp_bias: true,
    partial_rotary: Some(1.0),
    embedding_scale: |_| 1.0,
    sizes: &[],
    tied_embeddings: false,
    context: 2048,
    context_field: "max_position_embeddings",
    eps: 1e-6,
    ffn_width: "intermediate_size",
    widths_by_layer: false,
    kv_heads: "num_key_value_heads",
    head_dim: |hidden, heads| hidden / heads.max(1),
    activation: ("hidden_act", Activation::Silu),
    theta: 10_000.0,
    local_theta: None,
    own_ropes: false,
    windows: |_, n_layers| Ok(vec![None; n_layers]),
    mixture: |_, _| Ok(None),
    own: |_, _| Ok(()),
};

pub(super) const MISTRAL: Family = Family {
    label: "mistral",
    mlp_bias: false,
    partial_rotary: None,
    context: 131_072,
    windows: |config, n_layers| Ok(vec![config.usize_unless_null("sliding_window", 4096)?; n_layers]),
    ..LLAMA
};

pub(super) const MINISTRAL3: Family = Family {
    label: "ministral3",
    tied_embeddings: true,
    context: 262_144,
    eps: 1e-5,
    theta: 1_000_000.0,
    windows: optional_window,
    own: ministral3,
    ..MISTRAL
};

pub(super) const MIXTRAL: Family = Family {
    label: "mixtral",
    spelling: &HF_MIXTRAL,
    context: 131_072,
    theta: 1_000_000.0,
    eps: 1e-5,
    windows: optional_window,
    mixture: mixtral,
    ..LLAMA
};

pub(super) const SMOLLM3: Family = Family {
    label: "smollm3",
    partial_rotary: None,
    tied_embeddings: true,
    context: 32_768,
    theta: 2_000_000.0,
    windows: smollm3_windows,
    own: smollm3,
    ..LLAMA
};

pub(super) const PHI3: Family = Family {
    label: "phi3",
    spelling: &HF_PHI3,
    mlp_bias: false,
    context: 4096,
    eps: 1e-5,
    windows: optional_window,
    ..LLAMA
};

/// All layers have the window that the configuration names, or none.
fn optional_window(config: &Config<'_>, n_layers: usize) -> Result<Vec<Option<usize>>> {
    Ok(vec![config.opt_usize("sliding_window")?; n_layers])
}

fn ministral3(config: &Config<'_>, spec: &mut ArchSpec) -> Result<()> {
    let parameters = config.section("rope_parameters")?;
    let Some(rate) = parameters.opt_f64("llama_4_scaling_beta")?.filter(|rate| *rate != 0.0) else {
        return Ok(());
    };
    let every = parameters.f64("original_max_position_embeddings")?;
    let growth = QueryGrowth { rate, every, ahead: 0 };
    spec.attentions().for_each(|attention| attention.query_growth = Some(growth));
    Ok(())
}

fn mixtral(config: &Config<'_>, n_layers: usize) -> Result<Option<Mixture>> {
    let spec = ExpertsSpec {
        n_experts: config.usize("num_local_experts")?,
        n_used: config.usize("num_experts_per_tok")?,
        normalise: true,
        ..ExpertsSpec::PLAIN
    };
    let width = config.usize("intermediate_size")?;
    Ok(Some(Mixture { spec, width, shared: None, sparse: vec![true; n_layers] }))
}

/// Published configurations have none; where they are switched on, layers that do not rotate positions in have one, unless
/// `layer_types` says otherwise.
fn smollm3_windows(config: &Config<'_>, n_layers: usize) -> Result<Vec<Option<usize>>> {
    let window =
        if config.bool_or("use_sliding_window", false)? { config.opt_usize("sliding_window")? } else { None };
    let slide = match config.opt("layer_types") {
        Some(_) => sliding_layers(config, n_layers, 1)?,
        None => smollm3_rotates(config, n_layers)?.into_iter().map(|rotates| !rotates).collect(),
    };
    Ok(slide.into_iter().map(|slides| window.filter(|_| slides)).collect())
}

/// Every fourth layer does not rotate positions in, unless the configuration says otherwise.
fn smollm3_rotates(config: &Config<'_>, n_layers: usize) -> Result<Vec<bool>> {
    let interval = config.usize_or("no_rope_layer_interval", 4)?.max(1);
    let default = || (1..=n_layers).map(|layer| !layer.is_multiple_of(interval)).collect();
    Ok(config.flags("no_rope_layers", n_layers)?.unwrap_or_else(default))
}

fn smollm3(config: &Config<'_>, spec: &mut ArchSpec) -> Result<()> {
    let rotates = smollm3_rotates(config, spec.layers.len())?;
    for (attention, rotates) in spec.attentions().zip(rotates) {
        attention.rope = rotates.then_some(0);
    }
    Ok(())
}
