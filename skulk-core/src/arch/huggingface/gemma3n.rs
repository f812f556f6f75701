//! What do configurations of Gemma 3n say? Several residual streams, ways around attention, and gates of which most are cut
//! off.

use super::gemma::GEMMA3;
use super::gemma4::{inputs, shared};
use super::{Family, sliding_layers};
use crate::arch::config::Config;
use crate::arch::names::HF_GEMMA3N;
use crate::arch::{ArchSpec, StreamsSpec};
use crate::error::Result;
use crate::math;

pub(super) const GEMMA3N: Family = Family {
    label: "gemma3n",
    spelling: &HF_GEMMA3N,
    norm_offset: 0.0,
    sizes: &[("vocab_size", 262_400), ("num_attention_heads", 8), ("num_key_value_heads", 2)],
    context: 32_768,
    widths_by_layer: true,
    windows,
    own,
    ..GEMMA3
};

/// Every fifth layer has no window, unless the configuration says otherwise.
fn windows(config: &Config<'_>, n_layers: usize) -> Result<Vec<Option<usize>>> {
    let window = config.usize_or("sliding_window", 512)?;
    let sliding = sliding_layers(config, n_layers, 5)?;
    Ok(sliding.into_iter().map(|sliding| sliding.then_some(window)).collect())
}

fn own(config: &Config<'_>, spec: &mut ArchSpec) -> Result<()> {
    let (cap, clip) = ("final_logit_softcapping", "altup_coef_clip");
    spec.final_softcap = if config.is_absent(cap) { Some(30.0) } else { config.opt_f32(cap)? };
    let streams = StreamsSpec {
        n: config.usize_or("altup_num_inputs", 4)?,
        active: config.usize_or("altup_active_idx", 0)?,
        clip: if config.is_absent(clip) { Some(120.0) } else { config.opt_f32(clip)? },
        scaled: config.bool_or("altup_correct_scale", true)?,
    };
    let rank = config.usize_or("laurel_rank", 64)?;
    let cutoffs = cutoffs(config, spec.layers.len())?;
    for (layer, cutoff) in spec.layers.iter_mut().zip(cutoffs) {
        (layer.streams, layer.bypass, layer.ffn.cutoff) = (Some(streams), Some(rank), cutoff);
        if let Some(attention) = layer.attention_mut() {
            (attention.scale, attention.value_norm) = (1.0, true);
        }
    }
    shared(config, spec, 15)?;
    inputs(config, spec)
}

/// By how many standard deviations gates exceed their mean that are left, if they are spread normally and this share of them
/// goes: the first 10 layers' are cut off, of models with more, unless the configuration says otherwise.
fn cutoffs(config: &Config<'_>, n_layers: usize) -> Result<Vec<Option<f32>>> {
    let field = "activation_sparsity_pattern";
    let shares = match config.opt(field) {
        Some(_) => config.f32s(field)?,
        None => (0..n_layers).map(|at| if n_layers > 10 && at < 10 { 0.95 } else { 0.0 }).collect(),
    };
    if shares.len() != n_layers {
        let message = format!("expected {n_layers} numbers, one for each layer, found {}", shares.len());
        return Err(config.error(field, message));
    }
    let cutoff = |share: f32| match share {
        0.0 => Ok(None),
        share if share > 0.0 && share < 1.0 => Ok(Some(math::normal_quantile(f64::from(share)) as f32)),
        other => Err(config.error(field, format!("expected shares from 0 to less than 1, found {other}"))),
    };
    shares.into_iter().map(cutoff).collect()
}
