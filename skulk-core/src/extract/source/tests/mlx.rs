//! Do packed words hold the numbers that MLX says?

use serde_json::json;

use super::*;
use crate::weights::safetensors::HfCheckpoint;

const FOLDERS: [&str; 3] = ["mlx/tiny-llama320", "mlx/tiny-mixtral", "mlx/tiny-qwen3-moe"];

/// Where MLX stacks them, a row of each expert.
fn golden(name: &str) -> Option<(String, Option<&str>)> {
    let key = name.strip_prefix("model.").unwrap_or(name);
    let Some((block, word)) = key.split_once("switch_mlp.") else { return Some((key.to_owned(), None)) };
    let word = match (block.contains("block_sparse_moe"), word) {
        (true, "gate_proj.weight") => "w1.weight",
        (true, "up_proj.weight") => "w3.weight",
        (true, "down_proj.weight") => "w2.weight",
        (_, word) => word,
    };
    Some((format!("{block}experts."), Some(word)))
}

#[test]
fn rows_are_those_of_mlx() {
    for folder in FOLDERS {
        let checkpoint = open(&fixture(folder));
        let source = Source::open(&*checkpoint).unwrap();
        let rows = HfCheckpoint::open(fixture(folder).join("rows.safetensors")).unwrap();
        assert!(rows.tensors().len() >= 10);
        let mut widths = std::collections::BTreeSet::new();
        for info in rows.tensors() {
            let region = rows.region(&info.name).unwrap();
            let expected = crate::weights::quant::to_f32(&region).unwrap();
            widths.insert(checkpoint.tensor(&info.name).unwrap().dtype.label());
            let (key, word) = golden(&info.name).unwrap();
            let keys: Vec<String> = match word {
                None => vec![key],
                Some(word) => (0..info.shape[0]).map(|expert| format!("{key}{expert}.{word}")).collect(),
            };
            for (key, expected) in keys.iter().zip(expected.chunks_exact(2 * region.row_len())) {
                let [n, width] = source.shape(key).unwrap();
                let tensor = source.tensor(key).unwrap();
                assert!(tensor.stored_row(0).is_none());
                let mut found = vec![0.0; 2 * width];
                tensor.rows(0..1, &mut found[..width]).unwrap();
                tensor.rows(n - 1..n, &mut found[width..]).unwrap();
                // scale · q is exact, and so is rounding the sum once, wherever it is done.
                assert_eq!(found, expected, "{folder} {key}");
            }
        }
        assert!(widths.len() >= 4, "{folder}: {widths:?}");
    }
}

#[test]
fn what_they_compute_is_what_mlx_computes() {
    for folder in FOLDERS {
        let checkpoint = open(&fixture(folder));
        let source = Source::open(&*checkpoint).unwrap();
        let golden = json_of(&fixture(folder).join("logits.json"));
        let tokens: Vec<TokenId> = serde_json::from_value::<Vec<u32>>(golden["tokens"].clone())
            .unwrap()
            .into_iter()
            .map(TokenId)
            .collect();
        let expected: Vec<f32> = serde_json::from_value(golden["logits"].clone()).unwrap();
        let found = logits(&Written::new(&source, false), &tokens);
        let last = &found[found.len() - source.arch().vocab_size..];
        // Both in float32, summed in another order.
        assert!(difference(&expected, last) < 1e-4, "{folder}: {}", difference(&expected, last));
        assert!(source.config().get("quantization").is_none());
        assert!(source.config().get("quantization_config").is_none());
    }
}

/// The tiny llama with its configuration changed; what asking for a tensor says.
fn changed(change: impl Fn(&mut Value), key: &str) -> Error {
    let folder = with_config(FOLDERS[0], change);
    let checkpoint = open(folder.path());
    let source = Source::open(&*checkpoint).unwrap();
    source.tensor(key).err().unwrap()
}

#[test]
fn wrong_quantisations_are_typed_errors() {
    let key = "layers.0.self_attn.q_proj.weight";
    let set = |field: &'static str, value: Value| {
        move |config: &mut Value| {
            config["quantization"]["model.layers.0.self_attn.q_proj"][field] = value.clone();
        }
    };
    for (field, value, kind) in [
        ("bits", json!(7), ErrorKind::ConfigInvalid),
        ("bits", json!(-1), ErrorKind::ConfigInvalid),
        ("bits", json!("4"), ErrorKind::ConfigInvalid),
        ("group_size", json!(0), ErrorKind::ConfigInvalid),
        ("group_size", json!(1u64 << 40), ErrorKind::ConfigInvalid),
        ("bits", json!(8), ErrorKind::TensorShape),
        ("group_size", json!(64), ErrorKind::TensorShape),
        ("group_size", json!(128), ErrorKind::TensorShape),
        // Which have 4 and 8 bits alone.
        ("mode", json!("mxfp4"), ErrorKind::ConfigInvalid),
        ("mode", json!("mxfp8"), ErrorKind::ConfigInvalid),
        ("mode", json!("mxfp2"), ErrorKind::DTypeUnsupported),
        ("mode", json!(4), ErrorKind::DTypeUnsupported),
    ] {
        let error = changed(set(field, value.clone()), key);
        assert_eq!(error.kind(), kind, "{field} {value}: {error}");
        assert!(error.hint().is_some());
    }
    // Words that no quantisation explains stay what they are.
    let error = changed(|config| drop(config.as_object_mut().unwrap().remove("quantization")), key);
    assert_eq!(error.kind(), ErrorKind::DTypeUnsupported);
}
