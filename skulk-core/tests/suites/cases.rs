//! How are the cases' inputs and results read? For placements and the functions behind them.

use std::fmt::Debug;

use serde_json::Value;
use skulk::ModelCard;
use skulk::card::{ModelTask, PlacementCardConfig, StorageSize};

/// Says what differs.
pub(crate) fn expect<T: PartialEq + Debug>(what: &str, expected: &T, found: &T) -> Result<(), String> {
    if expected == found { Ok(()) } else { Err(format!("{what}: expected {expected:?}, found {found:?}")) }
}

pub(crate) fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

pub(crate) fn size(value: &Value) -> usize {
    value.as_u64().unwrap_or_else(|| panic!("no size: {value}")) as usize
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

pub(crate) fn strings(list: &Value) -> Vec<String> {
    list.as_array().unwrap_or_else(|| panic!("no list: {list}")).iter().map(|v| text(v).to_owned()).collect()
}

/// A card with these facts and no others.
pub(crate) fn card(bytes: u64, n_layers: usize, kv_heads: Option<usize>, gguf: bool) -> ModelCard {
    ModelCard {
        model_id: "test/model".to_owned(),
        storage_size: StorageSize { in_bytes: bytes },
        n_layers,
        hidden_size: 1024,
        supports_tensor: true,
        num_key_value_heads: kv_heads,
        tasks: vec![ModelTask::TextGeneration],
        components: None,
        family: String::new(),
        quantization: String::new(),
        base_model: String::new(),
        gguf_file: gguf.then(|| "model.gguf".to_owned()),
        capabilities: Vec::new(),
        context_length: 0,
        uses_cfg: false,
        trust_remote_code: true,
        is_custom: false,
        vision: None,
        reasoning: None,
        modalities: None,
        tooling: None,
        runtime: None,
        placement: PlacementCardConfig::default(),
    }
}
