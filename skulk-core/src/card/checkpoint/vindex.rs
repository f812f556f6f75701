//! What card describes this vindex folder? From its index.json; a vindex is a model's weights as LARQL reorganises
//! them.

use std::path::Path;

use serde_json::Value;

use super::config::whole;
use super::{backends, folder, name, sections};
use crate::card::ModelCard;
use crate::error::{Error, ErrorKind, Result};
use crate::weights::safetensors::read_object;
use crate::weights::{io_error, open_checkpoint};

pub(super) use crate::vindex::INDEX;

pub(super) fn card(path: &Path) -> Result<ModelCard> {
    let file = path.join(INDEX);
    let index = read_object(&file)?.unwrap_or(Value::Null);
    let invalid = |field: &'static str, expected: &str| {
        Error::new(ErrorKind::ConfigInvalid, format!("expected {expected}, found none"))
            .with("file", file.display())
            .with("field", field)
            .with_hint("this is no vindex, or a damaged one: extract it again")
    };
    let number = |at: &Value, key: &str| at.get(key).and_then(whole);
    let text = |at: &Value, key: &str| at.get(key).and_then(Value::as_str).map(str::to_owned);
    let nothing = Value::Null;
    let section = |key: &str| index.get(key).unwrap_or(&nothing);
    let (source, model) = (section("source"), section("model_config"));
    let config = section("skulk").get("config").unwrap_or(&nothing);
    let family = text(&index, "family").ok_or_else(|| invalid("family", "the model's family"))?;
    let repository = text(source, "huggingface_repo").filter(|id| name::in_repository(id).is_some());
    let base_model = repository.as_deref().and_then(name::in_repository).unwrap_or_default().to_owned();
    let bytes = weights(path, 1)?;
    let size = |at: &Value, key: &str| number(at, key).and_then(|n| u64::try_from(n).ok());
    let n_layers = number(&index, "num_layers").ok_or_else(|| invalid("num_layers", "a whole number"))?;
    let hidden_size = size(&index, "hidden_size").ok_or_else(|| invalid("hidden_size", "a whole number"))?;
    let template = folder::template(path)?;
    let model_id = repository.unwrap_or_else(|| name::model_id(path));
    let sized = super::sized(model_id, bytes, n_layers, hidden_size, size(model, "num_kv_heads"))
        .map_err(|e| e.with("file", file.display()))?;
    let checkpoint = open_checkpoint(path).ok();
    let mut card = ModelCard {
        // LARQL does not keep it.
        context_length: number(config, "max_position_embeddings")
            .or_else(|| checkpoint.as_deref().map(super::trained))
            .unwrap_or(0),
        quantization: quantization(&index).to_owned(),
        base_model,
        trust_remote_code: false,
        // The software that cards are shared with runs none. A damaged one has a card, but runs nowhere.
        placement: backends::placement(checkpoint.as_deref(), &[]),
        ..sized
    };
    sections::fill(&mut card, &text(model, "model_type").unwrap_or(family), template);
    Ok(card)
}

/// How the weights are stored: quantised, or the plain type.
fn quantization(index: &Value) -> &'static str {
    let word = |key: &str| index.get(key).and_then(Value::as_str);
    match (word("quant"), word("dtype")) {
        (Some("q4k"), _) => "Q4_K",
        (None | Some("none"), Some("f16")) => "fp16",
        (None | Some("none"), None | Some("f32")) => "fp32",
        _ => "",
    }
}

/// Bytes of all weight files, those of single layers in their own folder included.
fn weights(folder: &Path, depth: usize) -> Result<u64> {
    let mut sum = 0u64;
    for entry in std::fs::read_dir(folder).map_err(|e| io_error(e, folder, "list"))? {
        let path = entry.map_err(|e| io_error(e, folder, "list"))?.path();
        let holds_weights = path.extension().is_some_and(|ending| ending == "bin" || ending == "weights");
        if path.is_dir() && depth > 0 {
            sum = sum.saturating_add(weights(&path, depth - 1)?);
        } else if holds_weights && let Ok(meta) = std::fs::metadata(&path) {
            sum = sum.saturating_add(meta.len());
        }
    }
    Ok(sum)
}
