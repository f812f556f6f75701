//! What does `index.json` say of this model? What LARQL says of it, and in `skulk` what LARQL loses.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};

use super::keys::Keys;
use super::options::ExtractOptions;
use super::plan::Plan;
use super::source::Source;
use crate::arch::LayerSpec;
use crate::error::{Error, ErrorKind, Result};
use crate::vindex::hashes::FileHashes;
use crate::vindex::{
    SkulkExtra, VindexBands, VindexIndex, VindexLevel, VindexModel, VindexMoe, VindexSource,
};

/// The index's text, of files with these hashes.
pub(super) fn index_json(
    source: &Source<'_>,
    options: &ExtractOptions,
    name: &str,
    plan: &Plan,
    hashes: &BTreeMap<String, FileHashes>,
) -> Result<Vec<u8>> {
    let (arch, config) = (source.arch(), source.config());
    let model = model(source)?;
    let family = family(&model.model_type).to_owned();
    let vocab_size = source.shape(Keys::EMBEDDINGS).map_or(arch.vocab_size, |[rows, _]| rows);
    let level = options.written_level();
    let is_quantised = options.storage.is_quantised();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let index = VindexIndex {
        version: 2,
        model: name.to_owned(),
        layer_bands: VindexBands::of(&family, arch.n_layers()),
        family,
        source: Some(VindexSource {
            huggingface_repo: Some(name.to_owned()),
            extracted_at: format!("{}Z", rfc3339(now)),
            larql_version: format!("skulk {}", env!("CARGO_PKG_VERSION")),
            ..VindexSource::default()
        }),
        checksums: Some(hashes.iter().map(|(name, file)| (name.clone(), file.sha256.clone())).collect()),
        num_layers: arch.n_layers(),
        hidden_size: arch.hidden_size,
        intermediate_size: number(config, "intermediate_size").ok_or_else(|| absent("intermediate_size"))?,
        vocab_size,
        embed_scale: arch.embedding_scale,
        extract_level: level,
        dtype: options.storage.floats().label().to_lowercase(),
        quant: if is_quantised { "q4k" } else { "none" }.to_owned(),
        layers: plan.layers.clone(),
        down_top_k: plan.feature_tokens,
        has_model_weights: level >= VindexLevel::Attention,
        model_config: Some(model),
        fp4: None,
        ffn_layout: plan.is_per_layer.then(|| "per_layer".to_owned()),
        skulk: Some(SkulkExtra { config: Some(config.clone()), slice: None }),
        other: Map::new(),
    };
    // Strings, numbers and maps by strings always serialise.
    Ok(serde_json::to_vec_pretty(&index).unwrap_or_default())
}

/// Date and time, as in RFC 3339 but for the zone, so many seconds after 1970 began.
pub(super) fn rfc3339(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Counted from 1 March of the year 0, so that leap days end years; 400 years have 146,097 days.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // From March on, five months always have 153 days.
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = 400 * era + year + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
}

/// LARQL's name of the family.
fn family(model_type: &str) -> &str {
    match model_type {
        _ if model_type.starts_with("gemma3") => "gemma3",
        _ if model_type.starts_with("llama") => "llama",
        other => other,
    }
}

/// `model_config`. What decides what the model computes is the description's; the rest is what the configuration says,
/// as LARQL has it.
fn model(source: &Source<'_>) -> Result<VindexModel> {
    let (arch, config) = (source.arch(), source.config());
    let attention = arch.layers.first().and_then(LayerSpec::attention);
    let attention = attention.ok_or_else(|| absent("num_hidden_layers"))?;
    let rope = arch.ropes.first().ok_or_else(|| absent("rope_theta"))?;
    let model_type = config.get("model_type").and_then(Value::as_str).ok_or_else(|| absent("model_type"))?;
    let mixture = arch.layers.iter().find_map(|layer| Some((layer.ffn.width, layer.ffn.experts?)));
    let float = |key: &str| config.get(key).and_then(Value::as_f64);
    let types = config.get("layer_types").and_then(Value::as_array);
    Ok(VindexModel {
        model_type: model_type.to_owned(),
        head_dim: attention.head_dim,
        num_q_heads: attention.n_heads,
        num_kv_heads: attention.n_kv_heads,
        rope_base: rope.theta,
        sliding_window: number(config, "sliding_window"),
        moe: mixture.map(|(width, experts)| VindexMoe {
            num_experts: experts.n_experts,
            top_k: experts.n_used,
            shared_expert: false,
            router_type: "top_k_softmax".to_owned(),
            // Mixtral's experts have the width of `intermediate_size`.
            moe_intermediate_size: (model_type != "mixtral").then_some(width),
            hybrid: false,
        }),
        partial_rotary_factor: float("partial_rotary_factor"),
        sliding_window_pattern: number(config, "sliding_window_pattern"),
        layer_types: types
            .map(|types| types.iter().filter_map(|kind| Some(kind.as_str()?.to_owned())).collect()),
        // The second rotary embedding is that of sliding layers.
        rope_local_base: arch.ropes.get(1).map(|rope| rope.theta),
        query_pre_attn_scalar: float("query_pre_attn_scalar"),
        final_logit_softcapping: float("final_logit_softcapping"),
        ..VindexModel::default()
    })
}

fn number(config: &Value, key: &str) -> Option<usize> {
    config.get(key)?.as_u64()?.try_into().ok()
}

fn absent(field: &'static str) -> Error {
    Error::new(ErrorKind::ConfigInvalid, "expected the field, found none")
        .with("field", field)
        .with_hint("fetch the model's config.json again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00"),
            (951_782_399, "2000-02-28T23:59:59"),
            (951_782_400, "2000-02-29T00:00:00"),
            (951_868_800, "2000-03-01T00:00:00"),
            (1_078_012_800, "2004-02-29T00:00:00"),
            (1_767_225_599, "2025-12-31T23:59:59"),
            (4_107_542_400, "2100-03-01T00:00:00"),
        ] {
            assert_eq!(rfc3339(seconds), text);
        }
    }
}
