//! What do files of Gemma 3n and 4 say? What tokens give layers, and layers that use others' keys and values.

use super::super::names::{GGUF_GEMMA3N, GGUF_GEMMA4, TensorNames};
use super::super::{
    Activation, ArchSpec, ExpertsSpec, LayerInput, LayerSpec, QkNorm, RopeLayout, RopeScaling, RopeSpec,
    SharedExpert, StreamsSpec, Window,
};
use super::keys::Keys;
use super::{Sizes, plain};
use crate::error::Result;
use crate::weights::{Checkpoint, quant};

/// What divides frequencies of pairs that do not turn, in files.
const STILL: f32 = 1e30;

pub(super) fn gemma4(keys: &Keys<'_>, checkpoint: &dyn Checkpoint) -> Result<ArchSpec> {
    let sizes = Sizes::read(keys)?;
    let local = Local::read(keys, sizes.n_layers)?;
    let mixture = mixture(keys)?;
    let rope =
        |theta, dim, scaling| RopeSpec { theta, dim, layout: RopeLayout::Halves, scaling, amplitude: 1.0 };
    let dim = keys.opt_usize("rope.dimension_count")?.unwrap_or(sizes.head_dim);
    let swa_dim = keys.opt_usize("rope.dimension_count_swa")?.unwrap_or(local.head_dim);
    let ropes = vec![
        rope(keys.f64("rope.freq_base")?, dim, proportional(checkpoint, dim)?),
        rope(local_theta(keys)?, swa_dim, RopeScaling::None),
    ];
    let mut spec = plain(keys, checkpoint, &sizes, ropes, |at, layer| {
        let has = |tensor: &str| checkpoint.tensor(&format!("blk.{at}.{tensor}")).is_some();
        local.attend(at, layer);
        if let Some(attention) = layer.attention_mut().filter(|attention| attention.window.is_none()) {
            attention.keys_as_values = has("attn_k.weight") && !has("attn_v.weight");
        }
        if let Some((experts, width)) = mixture {
            let shared = SharedExpert::new(layer.ffn.width);
            layer.ffn.shared = Some(SharedExpert { activation: layer.ffn.activation, ..shared });
            (layer.ffn.experts, layer.ffn.width) = (Some(experts), width);
        }
        layer.output_scale = has("layer_output_scale.weight");
    })?;
    let shared = keys.opt_usize("attention.shared_kv_layers")?.unwrap_or(0);
    shares(keys, &mut spec, shared)?;
    inputs(keys, &mut spec)?;
    Ok(ArchSpec {
        final_softcap: keys.opt_f32("final_logit_softcapping")?.filter(|cap| *cap != 0.0),
        names: TensorNames::new(String::new(), &GGUF_GEMMA4),
        ..scaled(spec)
    })
}

/// What drafts for these models, with their keys and values, by the names that converters give it.
pub(super) const ASSISTANTS: [&str; 2] = ["gemma4-assistant", "gemma4_assistant"];

/// What does, and how many elements the model's hidden states have. All its layers are counted as such that predict tokens
/// ahead.
pub(super) fn assistant(keys: &Keys<'_>, checkpoint: &dyn Checkpoint) -> Result<(ArchSpec, usize)> {
    let sizes = Sizes::but_for(keys, 0)?.with_values(keys)?;
    let local = Local::read(keys, sizes.n_layers)?;
    let spec = plain(keys, checkpoint, &sizes, Vec::new(), |at, layer| {
        local.attend(at, layer);
        layer.output_scale = checkpoint.tensor(&format!("blk.{at}.layer_output_scale.weight")).is_some();
    })?;
    let hidden_size = keys.usize_of("embedding_length_out", "n_embd_backbone")?;
    let before = ["nextn.", "mtp."].into_iter();
    let names = before.map(|before| TensorNames::new(String::new(), &GGUF_GEMMA4).of_assistant(before));
    let mut known = names.filter(|names| checkpoint.tensor(&names.joint_projection()).is_some());
    let missing = || keys.error("block_count", "expected the projections of an assistant, found none".into());
    let names = known.next().ok_or_else(missing)?;
    Ok((ArchSpec { names, ..spec }, hidden_size))
}

/// What layers with a window have.
struct Local {
    head_dim: usize,
    window: usize,
    /// Of each layer, whether it has one.
    slides: Vec<bool>,
}

impl Local {
    fn read(keys: &Keys<'_>, n_layers: usize) -> Result<Self> {
        let head_dim = keys.usize("attention.key_length_swa")?;
        let value_dim = keys.opt_usize("attention.value_length_swa")?.unwrap_or(head_dim);
        if value_dim != head_dim {
            let message = format!("expected the key length {head_dim}, found {value_dim}");
            return Err(keys.error("attention.value_length_swa", message));
        }
        let (slides, window) = (keys.slides(n_layers, None)?, keys.usize("attention.sliding_window")?);
        Ok(Self { head_dim, window, slides })
    }

    /// A layer's attention, with a window or without.
    fn attend(&self, at: usize, layer: &mut LayerSpec) {
        attend(layer, self.slides.get(at) == Some(&true), self.window);
        if let Some(attention) = layer.attention_mut().filter(|attention| attention.window.is_some()) {
            attention.head_dim = self.head_dim;
        }
    }
}

pub(super) fn gemma3n(keys: &Keys<'_>, checkpoint: &dyn Checkpoint) -> Result<ArchSpec> {
    let sizes = Sizes::read(keys)?;
    let slides = keys.slides(sizes.n_layers, Some(5))?;
    let window = keys.usize("attention.sliding_window")?;
    let dim = sizes.head_dim;
    let rope = |theta, scaling| RopeSpec { theta, dim, layout: RopeLayout::Halves, scaling, amplitude: 1.0 };
    let ropes = vec![
        rope(keys.opt_f64("rope.freq_base")?.unwrap_or(1_000_000.0), keys.rope_scaling(true)?.0),
        rope(local_theta(keys)?, RopeScaling::None),
    ];
    // Files do not bound coefficients: where they were trained within bounds, they are.
    let streams = StreamsSpec {
        n: keys.usize("altup.num_inputs")?,
        active: keys.usize("altup.active_idx")?,
        clip: None,
        scaled: true,
    };
    let rank = checkpoint.tensor("blk.0.laurel_l.weight").and_then(|left| left.shape.first().copied());
    let cutoffs = cutoffs(keys, sizes.n_layers)?;
    let mut spec = plain(keys, checkpoint, &sizes, ropes, |at, layer| {
        attend(layer, slides.get(at) == Some(&true), window);
        (layer.streams, layer.bypass) = (Some(streams), Some(rank.unwrap_or(64)));
        layer.ffn.cutoff = cutoffs.get(at).copied().flatten();
    })?;
    let shared = keys.usize("attention.shared_kv_layers")?;
    shares(keys, &mut spec, shared)?;
    inputs(keys, &mut spec)?;
    let cap = keys.opt_f32("final_logit_softcapping")?.unwrap_or(30.0);
    Ok(ArchSpec {
        final_softcap: Some(cap),
        names: TensorNames::new(String::new(), &GGUF_GEMMA3N),
        ..scaled(spec)
    })
}

/// What both have in all layers.
fn attend(layer: &mut LayerSpec, slides: bool, window: usize) {
    if let Some(attention) = layer.attention_mut() {
        attention.window = slides.then_some(Window::Sliding(window));
        attention.rope = Some(usize::from(slides));
        (attention.scale, attention.value_norm) = (1.0, true);
        attention.qk_norm = Some(QkNorm::Heads);
    }
    layer.ffn.activation = Activation::GeluTanh;
    (layer.post_attention_norm, layer.post_ffn_norm) = (true, true);
}

fn local_theta(keys: &Keys<'_>) -> Result<f64> {
    Ok(keys.opt_f64("rope.freq_base_swa")?.unwrap_or(10_000.0))
}

fn scaled(spec: ArchSpec) -> ArchSpec {
    ArchSpec { embedding_scale: (spec.hidden_size as f32).sqrt(), ..spec }
}

/// Of layers without a window the first pairs turn alone: a tensor has 1 for those, and for the others so much that
/// frequencies divided by it are nothing.
fn proportional(checkpoint: &dyn Checkpoint, dim: usize) -> Result<RopeScaling> {
    let factors = quant::to_f32(&checkpoint.region("rope_freqs.weight")?)?;
    let rotated = factors.iter().take_while(|factor| **factor == 1.0).count();
    if factors.len() == dim / 2 && factors[rotated..].iter().all(|factor| *factor >= STILL) {
        return Ok(RopeScaling::Proportional { rotated, factor: 1.0 });
    }
    Ok(RopeScaling::Factors(factors))
}

/// Experts and their width, beside which the dense block is the shared one.
fn mixture(keys: &Keys<'_>) -> Result<Option<(ExpertsSpec, usize)>> {
    let Some(n_experts) = keys.opt_usize("expert_count")?.filter(|n| *n > 0) else { return Ok(None) };
    let experts = ExpertsSpec {
        n_experts,
        n_used: keys.usize("expert_used_count")?,
        normalise: true,
        scales: true,
        apart: true,
        ..ExpertsSpec::PLAIN
    };
    Ok(Some((experts, keys.usize("expert_feed_forward_length")?)))
}

/// The last layers use keys and values of the last one before them that has the same window, or none either.
fn shares(keys: &Keys<'_>, spec: &mut ArchSpec, n: usize) -> Result<()> {
    spec.share_kv(n).map_err(|message| keys.error("attention.shared_kv_layers", message))
}

/// A row of each token's own for each layer.
fn inputs(keys: &Keys<'_>, spec: &mut ArchSpec) -> Result<()> {
    let (width, rows) = (keys.usize("embedding_length_per_layer_input")?, spec.vocab_size);
    for layer in spec.layers.iter_mut().filter(|_| width > 0) {
        layer.input = Some(LayerInput { width, rows, activation: layer.ffn.activation });
    }
    Ok(())
}

/// By how many standard deviations gates exceed their mean that are left; below all numbers where all are.
fn cutoffs(keys: &Keys<'_>, n_layers: usize) -> Result<Vec<Option<f32>>> {
    let key = "activation_sparsity_scale";
    let Some(cutoffs) = keys.numbers(key, n_layers)? else { return Ok(vec![None; n_layers]) };
    let cutoff = |by: f64| match by {
        f64::NEG_INFINITY => Ok(None),
        by if by.is_finite() => Ok(Some(by as f32)),
        other => Err(keys.error(key, format!("expected numbers or -inf, found {other}"))),
    };
    cutoffs.into_iter().map(cutoff).collect()
}
