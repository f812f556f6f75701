//! What do files of Qwen3-Next and Qwen 3.5 and 3.6 say? Most layers keep a state, each fourth attends.

use super::super::names::{GGUF_QWEN3_5, GGUF_QWEN3_NEXT, TensorNames};
use super::super::{
    ArchSpec, ExpertsSpec, Interleaved, KeyHeads, Mixer, QkNorm, RecurrentGate, RecurrentRule, RecurrentSpec,
    RopeLayout, RopeSpec, SharedExpert, StoredDecay,
};
use super::keys::Keys;
use super::{Sizes, plain};
use crate::error::Result;
use crate::weights::Checkpoint;

pub(super) fn qwen_next(keys: &Keys<'_>, checkpoint: &dyn Checkpoint) -> Result<ArchSpec> {
    let is_next = keys.arch == "qwen3next";
    let sizes = Sizes::read(keys)?;
    let theta = keys.opt_f64("rope.freq_base")?.unwrap_or(10_000_000.0);
    let dim = keys.opt_usize("rope.dimension_count")?.unwrap_or(sizes.head_dim / 4);
    let (scaling, amplitude) = keys.rope_scaling(true)?;
    let rope = RopeSpec { theta, dim, layout: RopeLayout::Halves, scaling, amplitude };
    let n_heads = keys.usize("ssm.time_step_rank")?;
    let state = RecurrentSpec {
        n_heads,
        n_key_heads: keys.usize("ssm.group_count")?,
        // The converter tells heads of values and of queries apart for Qwen 3.5.
        key_heads: if is_next { KeyHeads::Consecutive } else { KeyHeads::InTurn },
        key_dim: keys.usize("ssm.state_size")?,
        value_dim: keys.usize("ssm.inner_size")? / n_heads.max(1),
        convolution: keys.usize("ssm.conv_kernel")?,
        convolution_bias: false,
        rule: RecurrentRule::Delta,
        gate: RecurrentGate::Behind,
        norm_groups: n_heads,
        rank: None,
        // Time steps and shares are in one tensor there.
        interleaved: if is_next { Interleaved::Scalars } else { Interleaved::No },
        decay: StoredDecay::Negative,
    };
    let n_layers = sizes.n_layers;
    let keeps = match keys.flags("attention.recurrent_layers", n_layers)? {
        Some(keeps) => keeps,
        None => {
            let interval = keys.opt_usize("full_attention_interval")?.unwrap_or(4).max(1);
            (1..=n_layers).map(|layer| !layer.is_multiple_of(interval)).collect()
        }
    };
    let mixture = mixture(keys)?;
    let spec = plain(keys, checkpoint, &sizes, vec![rope], |at, layer| {
        if keeps.get(at) == Some(&true) {
            layer.mixer = Mixer::Recurrent(state.clone());
        } else if let Some(attention) = layer.attention_mut() {
            attention.qk_norm = Some(QkNorm::Heads);
            attention.output_gate = true;
        }
        if let Some((experts, width, shared)) = mixture {
            (layer.ffn.experts, layer.ffn.width, layer.ffn.shared) = (Some(experts), width, Some(shared));
        }
    })?;
    let spelling = if is_next { &GGUF_QWEN3_NEXT } else { &GGUF_QWEN3_5 };
    Ok(ArchSpec { names: TensorNames::new(String::new(), spelling), ..spec })
}

/// Experts, their width, and the one that all rows take.
fn mixture(keys: &Keys<'_>) -> Result<Option<(ExpertsSpec, usize, SharedExpert)>> {
    let Some(n_experts) = keys.opt_usize("expert_count")?.filter(|n| *n > 0) else { return Ok(None) };
    let experts = ExpertsSpec {
        n_experts,
        n_used: keys.usize("expert_used_count")?,
        normalise: true,
        ..ExpertsSpec::PLAIN
    };
    let width = keys.usize("expert_shared_feed_forward_length")?;
    let shared = SharedExpert { gated: true, ..SharedExpert::new(width) };
    Ok(Some((experts, keys.usize("expert_feed_forward_length")?, shared)))
}
