//! Are facts derived from configurations and GGUF files as the reference does?

use serde_json::{Value, json};
use skulk::card::{ConfigFacts, GgufFacts, GgufFile, select_gguf};
use skulk::{Error, ErrorKind};

use crate::suites::{each, vectors};

/// The model that the reference was told these configurations are of.
const MODEL: &str = "acme/m";

#[test]
fn configurations_are_read_as_the_reference_does() {
    each(&vectors("configJson", ""), |case| {
        let facts = ConfigFacts::from_config(&case["config"], MODEL);
        if case.get("error").is_some() {
            return config_error(facts.err().ok_or("expected an error, found facts")?, &case["detail"]);
        }
        let facts = facts.map_err(|e| e.to_string())?;
        let vision = facts.vision.as_ref().map(|vision| {
            json!({
                "imageTokenId": vision.image_token_id,
                "modelType": vision.model_type,
                "weightsRepo": vision.weights_repo,
                "imageToken": vision.image_token,
                "processorRepo": vision.processor_repo,
                "boiTokenId": vision.boi_token_id,
                "eoiTokenId": vision.eoi_token_id,
            })
        });
        same(case, "layerCount", json!(facts.n_layers))?;
        same(case, "hiddenSize", json!(facts.hidden_size))?;
        same(case, "kvHeads", json!(facts.num_key_value_heads))?;
        same(case, "maxPos", json!(facts.max_position_embeddings))?;
        same(case, "supportsTensor", json!(facts.supports_tensor()))?;
        same(case, "vision", json!(vision))
    });
}

#[test]
fn quantisations_are_ranked_as_the_reference_does() {
    each(&vectors("gguf", "rank"), |case| {
        let file = GgufFile::new(case["name"].as_str().ok_or("no name")?, 0);
        same(case, "rank", json!(file.quant_rank()))?;
        same(case, "label", json!(file.quant_label()))?;
        same(case, "shardBase", json!(file.shard_base()))?;
        same(case, "allowPatterns", json!(file.download_patterns()))
    });
}

#[test]
fn files_are_selected_as_the_reference_does() {
    each(&vectors("gguf", "select"), |case| {
        let file =
            |file: &Value| GgufFile::new(file["name"].as_str().unwrap(), file["size"].as_u64().unwrap());
        let files: Vec<GgufFile> = case["files"].as_array().unwrap().iter().map(file).collect();
        let choice = select_gguf(&files);
        same(case, "selected", json!(choice.map(|choice| &choice.file.name)))?;
        same(case, "groupSize", json!(choice.map(|choice| choice.size.bytes())))
    });
}

#[test]
fn headers_are_read_as_the_reference_does() {
    each(&vectors("gguf", "headers"), |case| {
        let facts = GgufFacts::read(&bytes(&case["headerHex"]));
        if let Some(error) = case.get("error") {
            let found = facts.err().ok_or("expected an error, found facts")?.kind();
            let expected = header_error(error.as_str().unwrap_or_default())?;
            return if found == expected {
                Ok(())
            } else {
                Err(format!("expected {expected}, found {found}"))
            };
        }
        let facts = facts.map_err(|e| e.to_string())?;
        let found = json!({
            "nLayers": facts.n_layers,
            "hiddenSize": facts.hidden_size,
            "numKeyValueHeads": facts.num_key_value_heads,
            "contextLength": facts.context_length,
        });
        same(case, "fields", found)
    });
}

fn same(case: &Value, key: &str, found: Value) -> Result<(), String> {
    match case.get(key) {
        Some(expected) if *expected == found => Ok(()),
        expected => Err(format!("{key}: expected {expected:?}, found {found}")),
    }
}

/// One error of ours for any of the reference's, at one of the fields that it names, should it name any.
fn config_error(found: Error, detail: &Value) -> Result<(), String> {
    if found.kind() != ErrorKind::ConfigInvalid {
        return Err(format!("expected config.invalid, found {found}"));
    }
    let place = |fault: &Value| {
        let part = |part: &Value| part.as_str().map_or_else(|| part.to_string(), str::to_owned);
        fault["loc"].as_array().unwrap().iter().map(part).collect::<Vec<_>>().join(".")
    };
    let places: Vec<String> = detail.as_array().into_iter().flatten().map(place).collect();
    let field = found.context().iter().find(|(key, _)| *key == "field").map(|(_, field)| field.clone());
    if places.iter().all(String::is_empty) || field.as_ref().is_some_and(|field| places.contains(field)) {
        return Ok(());
    }
    Err(format!("expected an error at {places:?}, found {found}"))
}

/// What the reference's errors are here.
fn header_error(text: &str) -> Result<ErrorKind, String> {
    let kinds = [
        ("not a GGUF file", ErrorKind::CheckpointInvalid),
        ("unsupported GGUF version", ErrorKind::CheckpointInvalid),
        ("unknown GGUF", ErrorKind::CheckpointInvalid),
        ("truncated", ErrorKind::CheckpointTruncated),
        ("missing", ErrorKind::ConfigInvalid),
    ];
    let kind = kinds.iter().find(|(part, _)| text.contains(part));
    kind.map(|&(_, kind)| kind).ok_or_else(|| format!("an error of an unknown kind: {text}"))
}

fn bytes(hex: &Value) -> Vec<u8> {
    let digits = hex.as_str().unwrap().as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}
