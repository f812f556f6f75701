//! What do files of Step 3.5 say?

use super::super::names::{GGUF_STEP35, TensorNames};
use super::super::{
    Activation, ArchSpec, ExpertsSpec, QkNorm, RopeLayout, RopeScaling, RopeSpec, SharedExpert, Window,
};
use super::keys::Keys;
use super::{QK_NORM, Sizes, glm, has_any, plain};
use crate::error::Result;
use crate::weights::{Checkpoint, quant};

pub(super) fn step35(keys: &Keys<'_>, checkpoint: &dyn Checkpoint) -> Result<ArchSpec> {
    let sizes = Sizes::read(keys)?;
    let n_layers = sizes.n_layers;
    let slides = keys.slides(n_layers, None)?;
    let window = keys.usize("attention.sliding_window")?;
    let experts: ExpertsSpec = glm::experts(keys, checkpoint, n_layers)?;
    let width = keys.usize("expert_feed_forward_length")?;
    let shared = keys.opt_usize("expert_shared_feed_forward_length")?.filter(|width| *width > 0);
    let limits = |key| Ok::<_, crate::Error>(keys.numbers(key, n_layers)?.unwrap_or_default());
    let (limits, shared_limits) = (limits("swiglu_clamp_exp")?, limits("swiglu_clamp_shexp")?);
    let clamped = |limits: &[f64], at: usize| match limits.get(at) {
        None | Some(0.0) => Activation::Silu,
        Some(limit) => Activation::ClampedSilu(*limit as f32),
    };
    let spec = plain(keys, checkpoint, &sizes, ropes(keys, checkpoint, &sizes)?, |at, layer| {
        let has = |tensor: &str| checkpoint.tensor(&format!("blk.{at}.{tensor}.weight")).is_some();
        let slides = slides.get(at) == Some(&true);
        if let Some(attention) = layer.attention_mut() {
            attention.window = slides.then_some(Window::Sliding(window));
            attention.rope = Some(usize::from(slides));
            attention.qk_norm = has_any(checkpoint, at, &QK_NORM).then_some(QkNorm::Heads);
            attention.head_gate = has("attn_gate");
        }
        if has("ffn_gate_inp") {
            (layer.ffn.width, layer.ffn.experts) = (width, Some(experts));
            layer.ffn.activation = clamped(&limits, at);
            let activation = clamped(&shared_limits, at);
            layer.ffn.shared = shared.map(|width| SharedExpert { activation, ..SharedExpert::new(width) });
        }
    })?;
    Ok(ArchSpec { names: TensorNames::new(String::new(), &GGUF_STEP35), ..spec })
}

/// That of layers without a window, which rotate the first half of each head, and that of the others.
fn ropes(keys: &Keys<'_>, checkpoint: &dyn Checkpoint, sizes: &Sizes) -> Result<Vec<RopeSpec>> {
    let all = keys.opt_usize("rope.dimension_count")?.unwrap_or(sizes.head_dim);
    let dim = all / 2;
    // Llama 3's scaling, of layers without a window alone. Behind their pairs stand ones.
    let (scaling, amplitude) = match checkpoint.tensor("rope_freqs.weight") {
        Some(_) => {
            let mut factors = quant::to_f32(&checkpoint.region("rope_freqs.weight")?)?;
            factors.truncate(dim / 2);
            (RopeScaling::Factors(factors), 1.0)
        }
        None => keys.rope_scaling(true)?,
    };
    let rope = |theta, dim, scaling, amplitude| RopeSpec {
        theta,
        dim,
        layout: RopeLayout::Halves,
        scaling,
        amplitude,
    };
    Ok(vec![
        rope(keys.f64("rope.freq_base")?, dim, scaling, amplitude),
        rope(
            keys.opt_f64("rope.freq_base_swa")?.unwrap_or(10_000.0),
            keys.opt_usize("rope.dimension_count_swa")?.unwrap_or(all),
            RopeScaling::None,
            1.0,
        ),
    ])
}
