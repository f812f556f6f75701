//! What do configurations of Llama 4's text half say? Most layers attend within chunks, some to all positions, unrotated.

use super::llama::LLAMA;
use super::{Family, Mixture, only};
use crate::arch::config::Config;
use crate::arch::names::HF_LLAMA4;
use crate::arch::{ArchSpec, ExpertsSpec, QkNorm, QueryGrowth, RopeLayout, Scoring, SharedExpert, Window};
use crate::error::Result;

pub(super) const LLAMA4: Family = Family {
    label: "llama4",
    spelling: &HF_LLAMA4,
    mlp_bias: false,
    partial_rotary: None,
    context: 131_072,
    eps: 1e-5,
    ffn_width: "intermediate_size_mlp",
    theta: 500_000.0,
    mixture: experts,
    own,
    ..LLAMA
};

fn experts(config: &Config<'_>, n_layers: usize) -> Result<Option<Mixture>> {
    let sparse = match config.opt("moe_layers") {
        Some(_) => {
            let listed = config.usizes("moe_layers")?;
            (0..n_layers).map(|layer| listed.contains(&layer)).collect()
        }
        None => {
            let step = config.usize_or("interleave_moe_layer_step", 1)?.max(1);
            (1..=n_layers).map(|layer| layer.is_multiple_of(step)).collect()
        }
    };
    let spec = ExpertsSpec {
        n_experts: config.usize("num_local_experts")?,
        n_used: config.usize_or("num_experts_per_tok", 1)?,
        scoring: Scoring::Sigmoid,
        on_input: true,
        ..ExpertsSpec::PLAIN
    };
    let width = config.usize("intermediate_size")?;
    Ok(Some(Mixture { spec, width, shared: Some(SharedExpert::new(width)), sparse }))
}

fn own(config: &Config<'_>, spec: &mut ArchSpec) -> Result<()> {
    let n_layers = spec.layers.len();
    let rotates = rotates(config, n_layers)?;
    let chunked = chunked(config, &rotates)?;
    let chunk = config.usize_unless_null("attention_chunk_size", 8192)?.map(Window::Chunk);
    let growth = if tunes(config)? {
        let (rate, every) = (config.opt_f64("attn_scale")?, config.opt_f64("floor_scale")?);
        Some(QueryGrowth { rate: rate.unwrap_or(0.1), every: every.unwrap_or(8192.0), ahead: 1 })
    } else {
        None
    };
    let normed = config.bool_or("use_qk_norm", true)?;
    for rope in &mut spec.ropes {
        rope.layout = RopeLayout::Pairs;
        // Heads are normed behind it; that it comes before makes no difference where lengths stay as they are.
        only(config, "rope_scaling", rope.amplitude, 1.0)?;
    }
    for ((attention, rotates), chunked) in spec.attentions().zip(rotates).zip(chunked) {
        attention.rope = rotates.then_some(0);
        attention.qk_norm = (rotates && normed).then_some(QkNorm::Plain);
        attention.query_growth = growth.filter(|_| !rotates);
        attention.window = chunk.filter(|_| chunked);
    }
    Ok(())
}

/// Which layers rotate positions in: those listed, or all but each `no_rope_layer_interval`-th.
fn rotates(config: &Config<'_>, n_layers: usize) -> Result<Vec<bool>> {
    let field = "no_rope_layers";
    // Published configurations have an empty list.
    if config.opt(field).and_then(|list| list.as_array()).is_some_and(|list| !list.is_empty())
        && let Some(listed) = config.flags(field, n_layers)?
    {
        return Ok(listed);
    }
    let interval = config.usize_or("no_rope_layer_interval", 4)?.max(1);
    Ok((1..=n_layers).map(|layer| !layer.is_multiple_of(interval)).collect())
}

/// Which layers attend within chunks: those that `layer_types` names, or all that rotate.
fn chunked(config: &Config<'_>, rotates: &[bool]) -> Result<Vec<bool>> {
    let field = "layer_types";
    let Some(found) = config.opt(field) else { return Ok(rotates.to_vec()) };
    let wrong = || config.wrong(field, "one of chunked_attention, full_attention per layer", found);
    let kinds = config.strs(field)?;
    if kinds.len() != rotates.len() {
        return Err(wrong());
    }
    let chunked = |kind: &&str| match *kind {
        "chunked_attention" => Ok(true),
        "full_attention" => Ok(false),
        _ => Err(wrong()),
    };
    kinds.iter().map(chunked).collect()
}

/// Whether queries of layers that do not rotate grow with their position; published configurations have a number.
fn tunes(config: &Config<'_>) -> Result<bool> {
    let field = "attn_temperature_tuning";
    match config.opt(field).map(|found| (found, found.as_u64())) {
        Some((_, Some(number))) => Ok(number != 0),
        Some((found, None)) => found.as_bool().ok_or_else(|| config.wrong(field, "true or false", found)),
        None => Ok(true),
    }
}
