//! What do files of gpt-oss say?

use super::super::names::{GGUF_TWO_NORMS, TensorNames};
use super::super::{Activation, ArchSpec, ExpertsSpec, RopeLayout, RopeSpec, Window};
use super::keys::Keys;
use super::{Sizes, plain};
use crate::error::Result;
use crate::weights::Checkpoint;

pub(super) fn gpt_oss(keys: &Keys<'_>, checkpoint: &dyn Checkpoint) -> Result<ArchSpec> {
    let sizes = Sizes::read(keys)?;
    let theta = keys.opt_f64("rope.freq_base")?.unwrap_or(150_000.0);
    // The published models do not round, which files do not say.
    let (scaling, amplitude) = keys.rope_scaling(false)?;
    let rope = RopeSpec { theta, dim: sizes.head_dim, layout: RopeLayout::Halves, scaling, amplitude };
    let experts = ExpertsSpec {
        n_experts: keys.usize("expert_count")?,
        n_used: keys.usize("expert_used_count")?,
        router_bias: true,
        // A softmax over those that are taken.
        normalise: true,
        ..ExpertsSpec::PLAIN
    };
    let width = keys.usize("expert_feed_forward_length")?;
    let window = keys.usize("attention.sliding_window")?;
    let spec = plain(keys, checkpoint, &sizes, vec![rope], |at, layer| {
        if let Some(attention) = layer.attention_mut() {
            // Every other layer, the first among them.
            attention.window = at.is_multiple_of(2).then_some(Window::Sliding(window));
            attention.sinks = true;
            (attention.qkv_bias, attention.output_bias) = (true, true);
        }
        (layer.ffn.width, layer.ffn.experts, layer.ffn.bias) = (width, Some(experts), true);
        layer.ffn.activation = Activation::ClampedGlu { alpha: 1.702, limit: 7.0 };
    })?;
    Ok(ArchSpec { names: TensorNames::new(String::new(), &GGUF_TWO_NORMS), ..spec })
}
