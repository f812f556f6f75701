//! What do files of Llama's kin say?

use super::super::names::{GGUF_PHI3, TensorNames};
use super::super::{ArchSpec, ExpertsSpec, QkNorm, QueryGrowth, RopeLayout, RopeScaling, RopeSpec, Window};
use super::eagle::EAGLE3;
use super::keys::Keys;
use super::{FFN_BIAS, QKV_BIAS, Sizes, has_any, plain};
use crate::error::Result;
use crate::weights::{Checkpoint, quant};

/// llama (mistral and mixtral included, which converters store as llama), and qwen2 and qwen3, which pair a head's
/// halves; qwen3 norms queries and keys.
pub(super) fn llama(keys: &Keys<'_>, checkpoint: &dyn Checkpoint) -> Result<ArchSpec> {
    let qwen3 = keys.arch.starts_with("qwen3");
    // Converters put the two of a pair beside each other.
    let is_turned = ["llama", "granite", "granitehybrid", "mistral3", "smollm3", EAGLE3].contains(&keys.arch);
    let layout = if is_turned { RopeLayout::Pairs } else { RopeLayout::Halves };
    let sizes = Sizes::read(keys)?;
    let experts = experts(keys)?;
    let expert_width = keys.opt_usize("expert_feed_forward_length")?.filter(|_| experts.is_some());
    let dim = keys.opt_usize("rope.dimension_count")?.unwrap_or(sizes.head_dim);
    // The converter stores Llama 3's scaling as divisors in a tensor, other scalings as key-values.
    let (scaling, amplitude) = match checkpoint.tensor("rope_freqs.weight") {
        Some(_) => (RopeScaling::Factors(quant::to_f32(&checkpoint.region("rope_freqs.weight")?)?), 1.0),
        None => keys.rope_scaling(true)?,
    };
    let theta = keys.opt_f64("rope.freq_base")?.unwrap_or(10_000.0);
    let ropes = vec![RopeSpec { theta, dim, layout, scaling, amplitude }];
    plain(keys, checkpoint, &sizes, ropes, |at, layer| {
        let has = |tensors: &[&str]| has_any(checkpoint, at, tensors);
        if let Some(attention) = layer.attention_mut() {
            attention.qk_norm = qwen3.then_some(QkNorm::Heads);
            attention.qkv_bias = has(&QKV_BIAS);
            attention.output_bias = has(&["attn_output.bias"]);
        }
        layer.ffn.width = expert_width.unwrap_or(layer.ffn.width);
        layer.ffn.bias = experts.is_none() && has(&FFN_BIAS);
        layer.ffn.experts = experts;
    })
}

/// The mixture of experts of every layer. Files do not say that weights are normalised;
/// llama.cpp does so for these families.
fn experts(keys: &Keys<'_>) -> Result<Option<ExpertsSpec>> {
    let n_experts = match keys.arch {
        "qwen3moe" => keys.usize("expert_count")?,
        _ => match keys.opt_usize("expert_count")? {
            None | Some(0) => return Ok(None),
            Some(n) => n,
        },
    };
    Ok(Some(ExpertsSpec {
        n_experts,
        n_used: keys.usize("expert_used_count")?,
        normalise: true,
        ..ExpertsSpec::PLAIN
    }))
}

pub(super) fn granite(keys: &Keys<'_>, checkpoint: &dyn Checkpoint) -> Result<ArchSpec> {
    let mut spec = llama(keys, checkpoint)?;
    spec.embedding_scale = keys.opt_f32("embedding_scale")?.unwrap_or(1.0);
    spec.residual_scale = keys.opt_f32("residual_scale")?.unwrap_or(1.0);
    spec.logit_scale = keys.opt_f32("logit_scale")?.unwrap_or(1.0).recip();
    if let Some(scale) = keys.opt_f32("attention.scale")? {
        spec.attentions().for_each(|attention| attention.scale = scale);
    }
    Ok(spec)
}

/// Queries, keys and values lie in one tensor, and so do gate and up projection.
pub(super) fn phi3(keys: &Keys<'_>, checkpoint: &dyn Checkpoint) -> Result<ArchSpec> {
    let mut spec = llama(keys, checkpoint)?;
    let window = keys.opt_usize("attention.sliding_window")?.filter(|window| *window > 0);
    spec.attentions().for_each(|attention| attention.window = window.map(Window::Sliding));
    let names = ["rope_factors_short.weight", "rope_factors_long.weight"];
    if names.iter().any(|name| checkpoint.tensor(name).is_some()) {
        let [short, long] = names.map(|name| quant::to_f32(&checkpoint.region(name)?));
        let (short, long) = (short?, long?);
        let original_context = keys.usize("rope.scaling.original_context_length")? as f64;
        let amplitude = keys.opt_f32("rope.scaling.attn_factor")?.unwrap_or(1.0);
        for rope in &mut spec.ropes {
            let (short, long) = (short.clone(), long.clone());
            rope.scaling = RopeScaling::Long { short, long, original_context };
            rope.amplitude = amplitude;
        }
    }
    Ok(ArchSpec { names: TensorNames::new(String::new(), &GGUF_PHI3), ..spec })
}

/// Ministral 3.
pub(super) fn mistral3(keys: &Keys<'_>, checkpoint: &dyn Checkpoint) -> Result<ArchSpec> {
    let mut spec = llama(keys, checkpoint)?;
    if let Some(rate) = keys.opt_f64("attention.temperature_scale")?.filter(|rate| *rate != 0.0) {
        let every = keys.usize("rope.scaling.original_context_length")? as f64;
        let growth = QueryGrowth { rate, every, ahead: 0 };
        spec.attentions().for_each(|attention| attention.query_growth = Some(growth));
    }
    Ok(spec)
}

/// Every fourth layer does not rotate positions in, which files do not say.
pub(super) fn smollm3(keys: &Keys<'_>, checkpoint: &dyn Checkpoint) -> Result<ArchSpec> {
    let mut spec = llama(keys, checkpoint)?;
    let fourth = spec.attentions().skip(3).step_by(4);
    fourth.for_each(|attention| attention.rope = None);
    Ok(spec)
}

/// OLMo 2 and 3: norms behind blocks alone, queries and keys normed over all heads.
pub(super) fn olmo2(keys: &Keys<'_>, checkpoint: &dyn Checkpoint) -> Result<ArchSpec> {
    let sizes = Sizes::read(keys)?;
    let theta = keys.opt_f64("rope.freq_base")?.unwrap_or(500_000.0);
    let (scaling, amplitude) = keys.rope_scaling(true)?;
    let rope = RopeSpec { theta, dim: sizes.head_dim, layout: RopeLayout::Halves, scaling, amplitude };
    // Layers with a window are not stretched.
    let local_theta = keys.opt_f64("rope.freq_base_swa")?.unwrap_or(theta);
    let local = RopeSpec { theta: local_theta, scaling: RopeScaling::None, amplitude: 1.0, ..rope.clone() };
    let window = keys.opt_usize("attention.sliding_window")?;
    let n_layers = sizes.n_layers;
    let slides = keys.flags("attention.sliding_window_pattern", n_layers)?;
    let slides = slides.unwrap_or_else(|| (1..=n_layers).map(|layer| !layer.is_multiple_of(4)).collect());
    plain(keys, checkpoint, &sizes, vec![rope, local], |at, layer| {
        let own = window.filter(|_| slides.get(at) == Some(&true));
        if let Some(attention) = layer.attention_mut() {
            attention.qk_norm = Some(QkNorm::All);
            attention.window = own.map(Window::Sliding);
            attention.rope = Some(usize::from(own.is_some()));
        }
        (layer.attention_norm, layer.ffn_norm) = (false, false);
        (layer.post_attention_norm, layer.post_ffn_norm) = (true, true);
    })
}
