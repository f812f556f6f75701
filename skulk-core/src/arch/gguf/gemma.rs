//! What do files of Gemma's kin say?

use super::super::{Activation, ArchSpec, QkNorm, RopeLayout, RopeScaling, RopeSpec, Window};
use super::keys::Keys;
use super::{Sizes, plain};
use crate::error::Result;
use crate::weights::Checkpoint;

pub(super) fn gemma3(keys: &Keys<'_>, checkpoint: &dyn Checkpoint) -> Result<ArchSpec> {
    let family = Gemma {
        window: keys.opt_usize("attention.sliding_window")?,
        pattern: 6,
        theta: 1_000_000.0,
        local_theta: Some(keys.opt_f64("rope.freq_base_swa")?.unwrap_or(10_000.0)),
        caps: [None; 2],
        largest: 62,
        qk_norm: Some(QkNorm::Heads),
    };
    gemma(keys, checkpoint, &family)
}

pub(super) fn gemma2(keys: &Keys<'_>, checkpoint: &dyn Checkpoint) -> Result<ArchSpec> {
    let family = Gemma {
        window: Some(keys.opt_usize("attention.sliding_window")?.unwrap_or(4096)),
        pattern: 2,
        theta: 10_000.0,
        local_theta: None,
        caps: [Some(50.0), Some(30.0)],
        largest: 46,
        qk_norm: None,
    };
    gemma(keys, checkpoint, &family)
}

/// What Gemma's generations differ in; where files leave something out, the values are llama.cpp's.
struct Gemma {
    /// Of every layer but each `pattern`-th.
    window: Option<usize>,
    pattern: usize,
    theta: f64,
    /// Of layers with a window, where it is another one.
    local_theta: Option<f64>,
    /// What scores and logits are capped to where the file says nothing.
    caps: [Option<f32>; 2],
    /// Layers of the 27B model, which alone scales by hidden size per head rather than by the head dimension: files do
    /// not carry the scalar.
    largest: usize,
    qk_norm: Option<QkNorm>,
}

fn gemma(keys: &Keys<'_>, checkpoint: &dyn Checkpoint, family: &Gemma) -> Result<ArchSpec> {
    let sizes = Sizes::read(keys)?;
    let pattern = keys.opt_usize("attention.sliding_window_pattern")?.unwrap_or(family.pattern).max(1);
    let is_largest = sizes.n_layers == family.largest;
    let n_heads = sizes.n_heads.first().copied().unwrap_or(1).max(1);
    let scalar = if is_largest { sizes.hidden_size / n_heads } else { sizes.head_dim };
    let cap = |key, default: Option<f32>| {
        keys.opt_f64(key).map(|found| found.map_or(default, |cap| Some(cap as f32)))
    };
    let softcap = cap("attn_logit_softcapping", family.caps[0])?;
    let rope = |theta, scaling| {
        let layout = RopeLayout::Halves;
        RopeSpec { theta, dim: sizes.head_dim, layout, scaling, amplitude: 1.0 }
    };
    let theta = keys.opt_f64("rope.freq_base")?.unwrap_or(family.theta);
    let local = family.local_theta.map(|theta| rope(theta, RopeScaling::None));
    let ropes = [rope(theta, keys.rope_scaling(true)?.0)].into_iter().chain(local).collect();
    let spec = plain(keys, checkpoint, &sizes, ropes, |at, layer| {
        let window = family.window.filter(|_| !(at + 1).is_multiple_of(pattern));
        if let Some(attention) = layer.attention_mut() {
            attention.window = window.map(Window::Sliding);
            attention.rope = Some(usize::from(window.is_some() && family.local_theta.is_some()));
            attention.scale = (scalar as f32).sqrt().recip();
            attention.softcap = softcap;
            attention.qk_norm = family.qk_norm;
        }
        layer.ffn.activation = Activation::GeluTanh;
        layer.post_attention_norm = true;
        layer.post_ffn_norm = true;
    })?;
    Ok(ArchSpec {
        embedding_scale: (sizes.hidden_size as f32).sqrt(),
        final_softcap: cap("final_logit_softcapping", family.caps[1])?,
        ..spec
    })
}
