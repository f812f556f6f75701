//! What do configurations of gpt-oss say?

use super::llama::LLAMA;
use super::{Family, Mixture, some_windows};
use crate::arch::config::Config;
use crate::arch::names::HF_GPT_OSS;
use crate::arch::{Activation, ArchSpec, ExpertsSpec, RopeScaling, Scoring, Window};
use crate::error::Result;
use crate::math;

pub(super) const GPT_OSS: Family = Family {
    label: "gpt_oss",
    spelling: &HF_GPT_OSS,
    mlp_bias: false,
    partial_rotary: None,
    context: 131_072,
    eps: 1e-5,
    head_dim: |_, _| 64,
    theta: 150_000.0,
    windows: |config, n_layers| some_windows(config, n_layers, 2),
    mixture: experts,
    own,
    ..LLAMA
};

fn experts(config: &Config<'_>, n_layers: usize) -> Result<Option<Mixture>> {
    let n_experts = match config.opt_usize("num_local_experts")? {
        Some(n) => n,
        None => config.usize("num_experts")?,
    };
    let spec = ExpertsSpec {
        n_experts,
        n_used: config.usize("num_experts_per_tok")?,
        // A softmax over those that are taken is what they have of one over all, scaled to a sum of 1.
        scoring: Scoring::Softmax,
        router_bias: true,
        normalise: true,
        ..ExpertsSpec::PLAIN
    };
    let width = config.usize("intermediate_size")?;
    Ok(Some(Mixture { spec, width, shared: None, sparse: vec![true; n_layers] }))
}

fn own(config: &Config<'_>, spec: &mut ArchSpec) -> Result<()> {
    let activation = Activation::ClampedGlu {
        alpha: config.f32_or("swiglu_alpha", 1.702)?,
        limit: config.f32_or("swiglu_limit", 7.0)?,
    };
    let biases = config.bool_or("attention_bias", true)?;
    // What transformers has where the configuration says nothing is the published models'.
    let n_kv_heads = config.usize_or("num_key_value_heads", 8)?;
    let window = config.usize_or("sliding_window", 128)?;
    for layer in &mut spec.layers {
        (layer.ffn.activation, layer.ffn.bias) = (activation, true);
        let Some(attention) = layer.attention_mut() else { continue };
        attention.n_kv_heads = n_kv_heads;
        attention.window = attention.window.map(|_| Window::Sliding(window));
        (attention.sinks, attention.qkv_bias, attention.output_bias) = (true, biases, biases);
    }
    if config.opt("rope_parameters").is_none() && config.opt("rope_scaling").is_none() {
        let factor = 32.0;
        for rope in &mut spec.ropes {
            rope.scaling = RopeScaling::Yarn {
                factor,
                beta_fast: 32.0,
                beta_slow: 1.0,
                original_context: 4096.0,
                truncate: false,
            };
            rope.amplitude = (0.1 * math::ln(factor) + 1.0) as f32;
        }
    }
    Ok(())
}
