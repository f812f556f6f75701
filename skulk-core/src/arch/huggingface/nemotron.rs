//! What do configurations of Nemotron-H say? Layers of one block each: states, attention, a feed-forward block or experts.

use super::glm::{Usual, deepseek_experts};
use super::granite::steps;
use super::llama::LLAMA;
use super::{Family, Mixture, only, without};
use crate::arch::config::Config;
use crate::arch::names::HF_NEMOTRON_H;
use crate::arch::{
    Activation, ArchSpec, Interleaved, KeyHeads, Mixer, RecurrentGate, RecurrentRule, RecurrentSpec,
    SharedExpert, StoredDecay,
};
use crate::error::Result;

pub(super) const NEMOTRON_H: Family = Family {
    label: "nemotron_h",
    spelling: &HF_NEMOTRON_H,
    mlp_bias: false,
    partial_rotary: None,
    activation: ("mlp_hidden_act", Activation::SquaredRelu),
    head_dim: |_, _| 128,
    windows: |_, n_layers| Ok(vec![None; n_layers]),
    mixture: experts,
    own,
    ..LLAMA
};

/// What a layer has.
#[derive(Clone, Copy, PartialEq)]
enum Block {
    States,
    Attention,
    Dense,
    Experts,
}

/// What each layer has, by words or by letters.
fn blocks(config: &Config<'_>, n_layers: usize) -> Result<Vec<Block>> {
    let (field, known) = ("layers_block_type", "mamba, attention, mlp or moe");
    let words = match config.opt(field) {
        Some(_) => config.strs(field)?,
        None => {
            config.str("hybrid_override_pattern")?.split("").filter(|letter| !letter.is_empty()).collect()
        }
    };
    if words.len() != n_layers {
        let message = format!("expected {n_layers} blocks, found {}", words.len());
        return Err(config.error("hybrid_override_pattern", message));
    }
    let block = |word: &&str| match *word {
        "M" | "mamba" | "linear_attention" => Ok(Block::States),
        "*" | "attention" | "full_attention" => Ok(Block::Attention),
        "-" | "mlp" => Ok(Block::Dense),
        "E" | "moe" => Ok(Block::Experts),
        other => only(config, field, other, known).map(|()| Block::Dense),
    };
    words.iter().map(block).collect()
}

fn experts(config: &Config<'_>, n_layers: usize) -> Result<Option<Mixture>> {
    let blocks = blocks(config, n_layers)?;
    if !blocks.contains(&Block::Experts) {
        return Ok(None);
    }
    let width = config.usize("moe_shared_expert_intermediate_size")?;
    let shared = Some(SharedExpert::new(width));
    let sparse = blocks.iter().map(|block| *block == Block::Experts).collect();
    let usual = Usual { groups: [1, 1], scale: 1.0, dense: 0 };
    Ok(deepseek_experts(config, n_layers, &usual)?.map(|mixture| Mixture { shared, sparse, ..mixture }))
}

fn own(config: &Config<'_>, spec: &mut ArchSpec) -> Result<()> {
    let states_act = config.opt_str("mamba_hidden_act")?.unwrap_or("silu");
    only(config, "mamba_hidden_act", states_act, "silu")?;
    for field in ["mamba_proj_bias", "mlp_bias", "use_bias"] {
        only(config, field, config.bool_or(field, false)?, false)?;
    }
    without(config, "moe_latent_size")?;
    spec.norm.eps = config.f32_or("layer_norm_epsilon", 1e-5)?;
    let n_groups = config.usize("n_groups")?;
    let state = RecurrentSpec {
        n_heads: config.usize("mamba_num_heads")?,
        n_key_heads: n_groups,
        key_heads: KeyHeads::Consecutive,
        key_dim: config.usize("ssm_state_size")?,
        value_dim: config.usize("mamba_head_dim")?,
        convolution: config.usize_or("conv_kernel", 4)?,
        convolution_bias: config.bool_or("use_conv_bias", true)?,
        rule: RecurrentRule::Add { steps: steps(config)? },
        gate: RecurrentGate::Before,
        norm_groups: n_groups,
        rank: None,
        interleaved: Interleaved::No,
        decay: StoredDecay::Logarithm,
    };
    let blocks = blocks(config, spec.layers.len())?;
    for (layer, block) in spec.layers.iter_mut().zip(blocks) {
        match block {
            Block::States => layer.mixer = Mixer::Recurrent(state.clone()),
            Block::Attention => {}
            Block::Dense | Block::Experts => layer.mixer = Mixer::Nothing,
        }
        if let Some(attention) = layer.attention_mut() {
            attention.rope = None;
        }
        let feeds = matches!(block, Block::Dense | Block::Experts);
        (layer.attention_norm, layer.ffn_norm) = (!feeds, feeds);
        if !feeds {
            layer.ffn.width = 0;
        }
    }
    spec.ropes.clear();
    Ok(())
}
