//! Which cards does the library ship? Their files, made from facts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use skulk::ModelCard;

use crate::facts;

/// This library's engines, the faster first where a node has several. `wgpu` is any GPU with a driver.
const OWN_BACKENDS: [&str; 5] =
    ["skulk-candle-cuda", "skulk-candle-metal", "skulk-wgpu", "skulk-cpu", "skulk-candle-cpu"];

/// Those of the shipped models whose checkpoints this library loads: llama in bf16 and f16. All others are
/// quantised by MLX or of families that it lacks.
const LOADED: [&str; 4] = [
    "mlx-community/Llama-3.1-Nemotron-70B-Instruct-HF-bf16",
    "mlx-community/Llama-3.1-Nemotron-Nano-4B-v1.1-bf16",
    "mlx-community/Meta-Llama-3.1-8B-Instruct-bf16",
    "mlx-community/llama-3.3-70b-instruct-fp16",
];

/// Every file that is made, with its text, below the repository's root.
pub(crate) fn files(root: &Path) -> BTreeMap<PathBuf, String> {
    let cards = cards(root);
    let mut files: BTreeMap<PathBuf, String> = cards
        .iter()
        .map(|card| {
            let text = format!("#:schema ./card.schema.json\n\n{}", card.to_toml().unwrap());
            (Path::new("cards").join(card.file_name().unwrap()), text)
        })
        .collect();
    assert_eq!(files.len(), cards.len(), "two cards of one file name");
    let schema = schema();
    files.insert("cards/card.schema.json".into(), format!("{schema:#}\n"));
    // What a package of the library holds of them, as it has no files from elsewhere.
    files.insert("skulk-core/src/card/schema.json".into(), format!("{schema}\n"));
    files.insert("skulk-core/src/card/builtin.jsonl".into(), builtin(cards));
    files
}

/// What of it differs from the files that are there, and cards that are there and should not be.
pub(crate) fn differing(root: &Path, files: &BTreeMap<PathBuf, String>) -> Vec<PathBuf> {
    let on_disk = std::fs::read_dir(root.join("cards")).unwrap().map(|entry| entry.unwrap().file_name());
    let cards = on_disk.map(|name| Path::new("cards").join(name));
    let extra =
        cards.filter(|path| path.extension().is_some_and(|e| e == "toml") && !files.contains_key(path));
    let differs =
        |path: &&PathBuf| std::fs::read_to_string(root.join(path)).ok().as_ref() != files.get(*path);
    extra.chain(files.keys().filter(differs).cloned()).collect()
}

fn cards(root: &Path) -> Vec<ModelCard> {
    let suite = std::fs::read_to_string(root.join("tests/suites/cards.json")).unwrap();
    let suite: Value = serde_json::from_str(&suite).unwrap();
    let shipped = suite["cases"].as_array().unwrap();
    let mut cards: Vec<ModelCard> =
        shipped.iter().map(|case| ModelCard::from_value(&case["card"]).unwrap()).collect();
    for id in LOADED {
        let card = cards.iter_mut().find(|card| card.model_id == id).unwrap();
        let known: Vec<String> = card.placement.compatible_backends.iter().cloned().collect();
        prefer(card, known.into_iter().chain(OWN_BACKENDS.map(str::to_owned)));
    }
    cards.extend([gemma_3_270m(), stories_260k()]);
    facts::fill(&mut cards);
    cards
}

/// Lists these backends, best first.
fn prefer(card: &mut ModelCard, backends: impl Iterator<Item = String>) {
    card.placement.backend_preference = backends.collect();
    card.placement.compatible_backends = card.placement.backend_preference.iter().cloned().collect();
}

/// The Q4_K_M file that `docs/guide/models.md` tells how to get; facts from its header.
fn gemma_3_270m() -> ModelCard {
    let mut card = ModelCard::from_value(&json!({
        "model_id": "google/gemma-3-270m",
        "storage_size": {"in_bytes": 253_113_024},
        "n_layers": 18,
        "hidden_size": 640,
        "num_key_value_heads": 1,
        "supports_tensor": false,
        "tasks": ["TextGeneration"],
        "family": "gemma",
        "quantization": "Q4_K_M",
        "base_model": "Gemma 3 270M",
        "gguf_file": "gemma-3-270m-q4_k_m.gguf",
        "capabilities": ["text"],
        "context_length": 32_768,
        "trust_remote_code": false,
    }))
    .unwrap();
    let others = ["llama_cpp-vulkan", "llama_cpp-rocm", "llama_cpp-cuda", "llama_cpp-cpu"];
    prefer(&mut card, OWN_BACKENDS.into_iter().chain(others).map(str::to_owned));
    card
}

/// The model in `examples/models/stories260K`; facts from its config.json and its tensors.
fn stories_260k() -> ModelCard {
    let mut card = ModelCard::from_value(&json!({
        "model_id": "karpathy/stories260K",
        "storage_size": {"in_bytes": 1_040_128},
        "n_layers": 5,
        "hidden_size": 64,
        "num_key_value_heads": 4,
        "supports_tensor": true,
        "tasks": ["TextGeneration"],
        "family": "llama",
        "quantization": "f32",
        "base_model": "stories260K",
        "capabilities": ["text"],
        "context_length": 512,
        "trust_remote_code": false,
    }))
    .unwrap();
    prefer(&mut card, OWN_BACKENDS.into_iter().map(str::to_owned));
    card
}

/// A card a line, without what is not known.
fn builtin(mut cards: Vec<ModelCard>) -> String {
    cards.sort_unstable_by(|a, b| a.model_id.cmp(&b.model_id));
    let known = |card: &ModelCard| {
        let mut card = card.to_value();
        drop_nulls(&mut card);
        format!("{card}\n")
    };
    cards.iter().map(known).collect()
}

fn drop_nulls(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.retain(|_, value| !value.is_null());
        fields.values_mut().for_each(drop_nulls);
    }
}

/// The JSON Schema (draft 2020-12) of cards in TOML.
fn schema() -> Value {
    let mut schema = schemars::schema_for!(ModelCard).to_value();
    for_toml(&mut schema);
    if let Some((draft, fields)) = schema.as_object_mut().and_then(|s| Some((s.shift_remove("$schema")?, s)))
    {
        fields.shift_insert(0, "$schema".to_owned(), draft);
    }
    schema
}

/// TOML has no `null`, and lists may name a backend twice. Formats are Rust's; descriptions are broken at its width.
fn for_toml(schema: &mut Value) {
    let Value::Object(fields) = schema else {
        return schema.as_array_mut().into_iter().flatten().for_each(for_toml);
    };
    if let Some(Value::Array(types)) = fields.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [kind] = &types[..] {
            let kind = kind.clone();
            fields.insert("type".to_owned(), kind);
        }
    }
    if let Some(Value::Array(choices)) = fields.get_mut("anyOf") {
        choices.retain(|choice| *choice != json!({"type": "null"}));
        if let [Value::Object(only)] = &choices[..] {
            let only: Map<String, Value> = only.clone();
            fields.shift_remove("anyOf");
            fields.extend(only);
        }
    }
    if let Some(Value::String(text)) = fields.get_mut("description") {
        *text = text.replace('\n', " ");
    }
    // A field may be called `format`, too: that is a schema, not a word.
    fields.retain(|key, value| {
        !(value.is_null() || key == "format" && value.is_string() || key == "uniqueItems")
    });
    fields.values_mut().for_each(for_toml);
}
