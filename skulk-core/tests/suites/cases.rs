//! How are the cases' inputs and results read? For placements and the functions behind them.

use std::fmt::Debug;

use serde_json::Value;
use skulk::ModelCard;

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
    let mut card = ModelCard::new("test/model", bytes, n_layers, 1024);
    card.supports_tensor = true;
    card.num_key_value_heads = kv_heads;
    card.gguf_file = gguf.then(|| "model.gguf".to_owned());
    card
}
