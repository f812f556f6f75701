//! How does a config.json spell its rotary embeddings?

use serde_json::Value;

use crate::arch::config::Config;
use crate::arch::{RopeLayout, RopeScaling, RopeSpec, unsupported};
use crate::error::Result;
use crate::math;

/// What a rotary embedding is asked for.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    /// The attention kind whose section counts, where there is one for each.
    pub(super) kind: &'static str,
    /// The field of the hubs' spelling that names its base, and the base where it is left out.
    pub(super) base: (&'static str, f64),
    /// The hubs' `rope_scaling` is about it.
    pub(super) scaled: bool,
    /// Elements of a head, and whether some may be left as they are.
    pub(super) head_dim: usize,
    pub(super) partial: Option<f32>,
}

/// The elements of a head that are rotated.
pub(super) fn rotary_dim(config: &Config<'_>, head_dim: usize, share: f32) -> Result<usize> {
    if !(share > 0.0 && share <= 1.0) {
        return Err(config
            .error("partial_rotary_factor", format!("expected more than 0 and at most 1, found {share}")));
    }
    Ok((head_dim as f32 * share) as usize)
}

/// What DeepSeek multiplies scores by beside, where YaRN stretches frequencies.
pub(super) fn score_scale(config: &Config<'_>) -> Result<f32> {
    let Some(section) = hubs(config)?.or(stated(config, "rope_parameters")?) else { return Ok(1.0) };
    let stretched =
        section.opt_str("rope_type")?.or(section.opt_str("type")?).unwrap_or("default") != "default";
    match section.opt_f64("mscale_all_dim")?.filter(|by| stretched && *by != 0.0) {
        Some(by) => Ok(magnitude(section.f64("factor")?, by).powi(2) as f32),
        None => Ok(1.0),
    }
}

/// A section, where there is one.
fn stated<'a>(config: &Config<'a>, field: &'a str) -> Result<Option<Config<'a>>> {
    config.opt(field).map(|_| config.section(field)).transpose()
}

/// The hubs' section on scalings, where there is one that says something.
fn hubs<'a>(config: &Config<'a>) -> Result<Option<Config<'a>>> {
    let section = stated(config, "rope_scaling")?;
    Ok(section.filter(|section| section.value.as_object().is_some_and(|fields| !fields.is_empty())))
}

/// YaRN's factor for what is rotated by frequencies that are `factor` times lower.
fn magnitude(factor: f64, by: f64) -> f64 {
    if factor > 1.0 { 0.1 * by * math::ln(factor) + 1.0 } else { 1.0 }
}

/// A rotary embedding.
pub(super) fn rope(config: &Config<'_>, asked: Asked) -> Result<RopeSpec> {
    let Asked { kind, base: (field, default), scaled, head_dim, partial } = asked;
    let empty = Config { value: &Value::Null, ..*config };
    let parameters = stated(config, "rope_parameters")?.unwrap_or(empty);
    let parameters = stated(&parameters, kind)?.unwrap_or(parameters);
    // What hubs' readers were told to add goes before what transformers 5 wrote, as there.
    let section = hubs(config)?.filter(|_| scaled).unwrap_or(parameters);
    let theta = match section.opt_f64("rope_theta")?.or(parameters.opt_f64("rope_theta")?) {
        Some(theta) => theta,
        None => config.opt_f64(field)?.unwrap_or(default),
    };
    if section.opt_str("rope_type")? == Some("proportional") {
        // Of all pairs, some turn.
        let rotated =
            rotary_dim(config, head_dim, section.opt_f32("partial_rotary_factor")?.unwrap_or(1.0))? / 2;
        let factor = section.opt_f64("factor")?.unwrap_or(1.0);
        let scaling = RopeScaling::Proportional { rotated, factor };
        return Ok(RopeSpec { theta, dim: head_dim, layout: RopeLayout::Halves, scaling, amplitude: 1.0 });
    }
    let share = match partial {
        Some(usual) => {
            let share = |section: &Config<'_>| section.opt_f32("partial_rotary_factor");
            share(&section)?.or(share(&parameters)?).or(share(config)?).unwrap_or(usual)
        }
        None => 1.0,
    };
    let dim = rotary_dim(config, head_dim, share)?;
    let (scaling, amplitude) = scaling(config, &section)?;
    Ok(RopeSpec { theta, dim, layout: RopeLayout::Halves, scaling, amplitude })
}

const ORIGINAL: &str = "original_max_position_embeddings";

/// How frequencies are scaled, and by what that multiplies rotated elements.
pub(super) fn scaling(config: &Config<'_>, section: &Config<'_>) -> Result<(RopeScaling, f32)> {
    // Trained positions: what the model says itself goes before what the scaling says, as in transformers, and a model that
    // says nothing was trained with all it has.
    let stated = match config.opt_f64(ORIGINAL)? {
        None => section.opt_f64(ORIGINAL)?,
        own => own,
    };
    let original = || stated.map_or_else(|| config.f64("max_position_embeddings"), Ok);
    let stretched = |original: f64| match section.opt_f64("factor")? {
        None if stated.is_some() => config.f64("max_position_embeddings").map(|most| most / original),
        None => section.f64("factor"),
        Some(factor) => Ok(factor),
    };
    let plain = |scaling| Ok((scaling, 1.0));
    match section.opt_str("rope_type")?.or(section.opt_str("type")?).unwrap_or("default") {
        // Beyond the positions of training alone, and no context is longer.
        "default" | "dynamic" => plain(RopeScaling::None),
        "linear" => plain(RopeScaling::Linear(section.f64("factor")?)),
        "llama3" => plain(RopeScaling::Llama3 {
            factor: section.f64("factor")?,
            low_freq_factor: section.f64("low_freq_factor")?,
            high_freq_factor: section.f64("high_freq_factor")?,
            original_context: original()?,
        }),
        "yarn" => {
            let original_context = original()?;
            let factor = stretched(original_context)?;
            let scale = |by: f64| magnitude(factor, by);
            let [all, of_scores] = ["mscale", "mscale_all_dim"].map(|key| section.opt_f64(key));
            let amplitude = match (section.opt_f64("attention_factor")?, all?, of_scores?) {
                (Some(stated), _, _) => stated,
                (None, Some(all), Some(of_scores)) if all != 0.0 && of_scores != 0.0 => {
                    scale(all) / scale(of_scores)
                }
                _ => scale(1.0),
            };
            let turns = |key, default| {
                section.opt_f64(key).map(|turns| turns.filter(|t| *t != 0.0).unwrap_or(default))
            };
            let scaling = RopeScaling::Yarn {
                factor,
                beta_fast: turns("beta_fast", 32.0)?,
                beta_slow: turns("beta_slow", 1.0)?,
                original_context,
                truncate: section.bool_or("truncate", true)?,
            };
            Ok((scaling, amplitude as f32))
        }
        "longrope" | "su" => {
            let original = original()?;
            let factor = stretched(original)?;
            let amplitude = match section.opt_f64("attention_factor")? {
                Some(stated) => stated,
                None if factor > 1.0 => (1.0 + math::ln(factor) / math::ln(original)).sqrt(),
                None => 1.0,
            };
            let scaling = RopeScaling::Long {
                short: section.f32s("short_factor")?,
                long: section.f32s("long_factor")?,
                original_context: original,
            };
            Ok((scaling, amplitude as f32))
        }
        other => {
            Err(unsupported("the rope scaling", other, "default, linear, dynamic, llama3, yarn, longrope")
                .with("file", config.file.display())
                .with("field", "rope_type"))
        }
    }
}
