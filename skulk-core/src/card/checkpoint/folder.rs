//! What card describes this Hugging Face folder? From its configurations and the headers of its weights.

use std::path::Path;

use serde_json::Value;

use super::config::{ConfigFacts, whole};
use super::{TemplateFacts, backends, labels, name, sections};
use crate::card::ModelCard;
use crate::error::Result;
use crate::weights::safetensors::{INDEX, read_object, read_text};
use crate::weights::{Checkpoint, Metadata};

/// What other software runs such folders.
const OTHERS: &[&str] = &["mlx"];

/// The card of the opened checkpoint at `path`, a folder or a safetensors file of one.
pub(super) fn card(path: &Path, checkpoint: &dyn Checkpoint) -> Result<ModelCard> {
    let folder = if path.is_dir() { path } else { path.parent().unwrap_or(path) };
    let nothing = Value::Null;
    let config = match checkpoint.metadata() {
        Metadata::HuggingFace(metadata) => &metadata.config,
        Metadata::Gguf(_) | Metadata::Vindex(_) => &nothing,
    };
    let in_config = |e: crate::Error| e.with("file", folder.join("config.json").display());
    let model_id = name::model_id(path);
    let facts = ConfigFacts::from_config(config, &model_id).map_err(in_config)?;
    let source = config.get("_name_or_path").and_then(Value::as_str).unwrap_or_default();
    let (bytes, template) = (storage(folder, path, checkpoint)?, template(folder)?);
    let (hidden_size, heads) = (facts.hidden_size.unwrap_or(0), facts.num_key_value_heads);
    let sized = super::sized(model_id, bytes, facts.n_layers, hidden_size, heads).map_err(in_config)?;
    let mut card = ModelCard {
        context_length: facts.max_position_embeddings.unwrap_or_else(|| super::trained(checkpoint)),
        supports_tensor: facts.supports_tensor(),
        quantization: labels::huggingface(config, checkpoint),
        base_model: name::in_repository(source).unwrap_or_default().to_owned(),
        vision: facts.vision,
        placement: backends::placement(Some(checkpoint), OTHERS),
        ..sized
    };
    sections::fill(&mut card, &facts.model_type, template);
    Ok(card)
}

/// What the folder's index says, as the reference reads it; else the size of the weight files.
fn storage(folder: &Path, path: &Path, checkpoint: &dyn Checkpoint) -> Result<u64> {
    let index = if path.is_dir() { read_object(&folder.join(INDEX))? } else { None };
    let total = index.and_then(|index| whole(index.get("metadata")?.get("total_size")?));
    let files = checkpoint.files().iter().fold(0u64, |sum, file| sum.saturating_add(file.len()));
    Ok(total.and_then(|total| u64::try_from(total).ok()).filter(|&total| total > 0).unwrap_or(files))
}

/// What the folder's chat template tells, wherever it stands; `None` without one.
pub(super) fn template(folder: &Path) -> Result<Option<TemplateFacts>> {
    let mut texts: Vec<String> = read_text(&folder.join("chat_template.jinja"))?.into_iter().collect();
    for file in ["chat_template.json", "tokenizer_config.json"] {
        match read_object(&folder.join(file))?
            .and_then(|mut config| Some(config.get_mut("chat_template")?.take()))
        {
            Some(Value::String(text)) => texts.push(text),
            // Several, by name; each of them may be used.
            Some(Value::Array(named)) => {
                texts.extend(named.iter().filter_map(|one| Some(one.get("template")?.as_str()?.to_owned())))
            }
            _ => {}
        }
    }
    Ok((!texts.is_empty()).then(|| TemplateFacts::read(&texts.join("\n"))))
}
