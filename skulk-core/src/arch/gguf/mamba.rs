//! What do files of hybrids with Mamba 2 say: Granite 4 and Nemotron-H?

use super::super::names::{GGUF_GRANITE_HYBRID, GGUF_NEMOTRON_H, TensorNames};
use super::super::{
    Activation, ArchSpec, ExpertsSpec, Interleaved, KeyHeads, Mixer, RecurrentGate, RecurrentRule,
    RecurrentSpec, SharedExpert, StoredDecay,
};
use super::keys::Keys;
use super::{Sizes, glm, llama, plain};
use crate::error::Result;
use crate::weights::Checkpoint;

/// Layers without heads of keys keep a state.
pub(super) fn granite_hybrid(keys: &Keys<'_>, checkpoint: &dyn Checkpoint) -> Result<ArchSpec> {
    let sizes = Sizes::read(keys)?;
    let state = state(keys, checkpoint)?;
    let rotates = keys.bool_or("rope.scaling.finetuned", true)?;
    let shared = keys.opt_usize("expert_shared_feed_forward_length")?.filter(|width| *width > 0);
    let mut spec = llama::granite(keys, checkpoint)?;
    for (layer, n_kv_heads) in spec.layers.iter_mut().zip(sizes.n_kv_heads) {
        if n_kv_heads == 0 {
            layer.mixer = Mixer::Recurrent(state.clone());
        } else if let Some(attention) = layer.attention_mut() {
            attention.rope = attention.rope.filter(|_| rotates);
        }
        layer.ffn.shared = shared.filter(|_| layer.ffn.experts.is_some()).map(SharedExpert::new);
    }
    Ok(ArchSpec { names: TensorNames::new(String::new(), &GGUF_GRANITE_HYBRID), ..spec })
}

/// Layers have one block each: attention where there are heads of keys, a feed-forward block where that has a width or a
/// router, a state elsewhere.
pub(super) fn nemotron_h(keys: &Keys<'_>, checkpoint: &dyn Checkpoint) -> Result<ArchSpec> {
    let sizes = Sizes::read(keys)?;
    let state = state(keys, checkpoint)?;
    let has = |at: usize, tensor: &str| checkpoint.tensor(&format!("blk.{at}.{tensor}.weight")).is_some();
    let experts: Option<ExpertsSpec> = match keys.opt_usize("expert_count")? {
        Some(n) if n > 0 => {
            let routed = (0..sizes.n_layers).rev().find(|at| has(*at, "ffn_gate_inp")).unwrap_or(0);
            Some(glm::experts(keys, checkpoint, routed + 1)?)
        }
        _ => None,
    };
    let width = keys.opt_usize("expert_feed_forward_length")?.unwrap_or(0);
    let shared = keys.opt_usize("expert_shared_feed_forward_length")?.filter(|width| *width > 0);
    let n_kv_heads = &sizes.n_kv_heads;
    let spec = plain(keys, checkpoint, &sizes, Vec::new(), |at, layer| {
        let routed = experts.filter(|_| has(at, "ffn_gate_inp"));
        let feeds = routed.is_some() || has(at, "ffn_up");
        if n_kv_heads.get(at).is_none_or(|n| *n == 0) {
            layer.mixer = if feeds { Mixer::Nothing } else { Mixer::Recurrent(state.clone()) };
        }
        if let Some(attention) = layer.attention_mut() {
            attention.rope = None;
        }
        (layer.attention_norm, layer.ffn_norm) = (!feeds, feeds);
        layer.ffn.activation = Activation::SquaredRelu;
        if !feeds {
            layer.ffn.width = 0;
        } else if routed.is_some() {
            (layer.ffn.width, layer.ffn.experts) = (width, routed);
            let block =
                |width| SharedExpert { activation: Activation::SquaredRelu, ..SharedExpert::new(width) };
            layer.ffn.shared = shared.map(block);
        }
    })?;
    Ok(ArchSpec { names: TensorNames::new(String::new(), &GGUF_NEMOTRON_H), ..spec })
}

/// Mamba 2.
fn state(keys: &Keys<'_>, checkpoint: &dyn Checkpoint) -> Result<RecurrentSpec> {
    let [n_heads, n_groups] = [keys.usize("ssm.time_step_rank")?, keys.usize("ssm.group_count")?];
    let n_layers = keys.usize("block_count")?;
    let has_bias = |at: usize| checkpoint.tensor(&format!("blk.{at}.ssm_conv1d.bias")).is_some();
    Ok(RecurrentSpec {
        n_heads,
        n_key_heads: n_groups,
        key_heads: KeyHeads::Consecutive,
        key_dim: keys.usize("ssm.state_size")?,
        value_dim: keys.usize("ssm.inner_size")? / n_heads.max(1),
        convolution: keys.usize("ssm.conv_kernel")?,
        convolution_bias: (0..n_layers).any(has_bias),
        rule: RecurrentRule::Add { steps: [0.0, f32::INFINITY] },
        gate: RecurrentGate::Before,
        norm_groups: n_groups,
        rank: None,
        interleaved: Interleaved::No,
        decay: StoredDecay::Negative,
    })
}
