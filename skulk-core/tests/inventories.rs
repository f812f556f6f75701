//! Are the tensors of families that this library does not know counted as those of families that it does?

use std::path::Path;

use serde_json::Value;
use skulk::plan::{Inventory, LayerBytes};
use skulk::{ErrorKind, open_checkpoint};

use crate::fixtures::{copied, path, root};

/// Models with parts of their own, which names alone do not tell from others.
const SPECIAL: [&str; 2] = ["gemma3n", "gemma4"];
/// Models whose windows are not listed by layer.
const WINDOWS_NOT_LISTED: [&str; 2] = ["llama4", "mistral"];

fn counted(path: &Path) -> Inventory {
    Inventory::from_checkpoint(&*open_checkpoint(path).unwrap()).unwrap()
}

/// The folder of a family that nobody has heard of.
fn renamed(path: &Path) -> tempfile::TempDir {
    let folder = copied(path);
    let config = folder.path().join("config.json");
    let text = std::fs::read_to_string(&config).unwrap().replace("Infinity", "1e9");
    let mut value: Value = serde_json::from_str(&text).unwrap();
    value["model_type"] = "unheard_of".into();
    if let Some(text) = value.get_mut("text_config") {
        text["model_type"] = "unheard_of".into();
    }
    std::fs::write(&config, value.to_string()).unwrap();
    folder
}

/// All but elements of heads, which matter for the cost of prompts and for quantised keys and values only, and what engines copy.
fn bytes(layer: &LayerBytes, window: bool) -> LayerBytes {
    let mut layer = *layer;
    (layer.kv_head_dim, layer.joined, layer.state, layer.copied, layer.attended) = (0, false, 0, false, 0);
    layer.window = layer.window.filter(|_| window);
    layer
}

/// In Hugging Face's spelling and MLX's, plain and quantised: attention, routers, shared and routed experts, keys and
/// values, embedding and head.
#[test]
fn tensors_are_counted_by_name() {
    let models = std::fs::read_dir(root().join("tests/fixtures/models")).unwrap();
    let mut names: Vec<String> =
        models.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names.retain(|name| path(name).join("config.json").exists() && open_checkpoint(path(name)).is_ok());
    assert!(names.len() > 30, "{names:?}");
    let mut attended = 0;
    for name in names {
        let known = counted(&path(&name));
        let by_name = counted(renamed(&path(&name)).path());
        assert!(known.guessed.is_empty() && by_name.exact, "{name}");
        assert!(by_name.guessed[0].contains("unheard_of"), "{:?}", by_name.guessed);
        assert_eq!(known.layers.len(), by_name.layers.len(), "{name}");
        assert_eq!((known.vision, known.mtp), (by_name.vision, by_name.mtp), "{name}");
        // Biases of projections are counted by name alone.
        let elements = by_name.elements as f64 / known.elements as f64;
        assert!((0.99..1.02).contains(&elements), "{name}: {elements}");
        assert_eq!(known.input_table, by_name.input_table, "{name}");
        assert_eq!(known.tied_embeddings, by_name.tied_embeddings, "{name}");
        if SPECIAL.contains(&name.as_str()) {
            let (known, by_name) = (known.weights(), by_name.weights());
            assert!(known.abs_diff(by_name) < known / 1000, "{name}: {known} {by_name}");
            continue;
        }
        assert_eq!((known.embedding, known.head), (by_name.embedding, by_name.head), "{name}");
        let window = !WINDOWS_NOT_LISTED.contains(&name.as_str());
        for (at, (known, by_name)) in known.layers.iter().zip(&by_name.layers).enumerate() {
            assert_eq!(bytes(known, window), bytes(by_name, window), "{name}: layer {at}");
            // Of latent vectors it is not known how much of them are values, nor whether layers with a window have other heads.
            let same = known.kv_head_dim == by_name.kv_head_dim && !known.latent && known.window.is_none();
            assert!(!same || known.attended == by_name.attended, "{name}: layer {at}");
            attended += usize::from(same && known.attended > 0);
        }
        let states = known.layers.iter().any(|layer| layer.state > 0);
        assert_eq!(by_name.guessed.iter().any(|it| it.contains("states")), states, "{:?}", by_name.guessed);
    }
    assert!(attended > 60, "{attended}");
}

#[test]
fn so_are_those_of_gguf_files() {
    for (name, family, other) in [("gemma2_gguf", "gemma2", "gemmaX"), ("qwen2_gguf", "qwen2", "qwenX")] {
        let file = path(name).join("model.gguf");
        let known = counted(&file);
        let folder = tempfile::tempdir().unwrap();
        let renamed = folder.path().join("model.gguf");
        let mut bytes_of = std::fs::read(&file).unwrap();
        for at in 0..bytes_of.len() - family.len() {
            if bytes_of[at..].starts_with(family.as_bytes()) {
                bytes_of[at..at + family.len()].copy_from_slice(other.as_bytes());
            }
        }
        std::fs::write(&renamed, bytes_of).unwrap();
        let by_name = counted(&renamed);
        assert!(by_name.guessed[0].contains(other), "{:?}", by_name.guessed);
        assert_eq!(known.weights(), by_name.weights(), "{name}");
        for (known, by_name) in known.layers.iter().zip(&by_name.layers) {
            assert_eq!(bytes(known, false), bytes(by_name, false), "{name}");
        }
    }
}

/// What is of no known part is named, and a checkpoint without layers is what it was: not supported.
#[test]
fn tensors_of_no_part_are_named() {
    let write = |names: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let entries: serde_json::Map<String, Value> = names
            .iter()
            .enumerate()
            .map(|(at, name)| {
                let offsets = [at * 8, at * 8 + 8];
                let entry = serde_json::json!({ "dtype": "BF16", "shape": [2, 2], "data_offsets": offsets });
                ((*name).to_owned(), entry)
            })
            .collect();
        let header = Value::Object(entries).to_string();
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.bytes());
        bytes.extend(vec![0; 8 * names.len()]);
        std::fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
        std::fs::write(folder.path().join("config.json"), r#"{"model_type": "unheard_of"}"#).unwrap();
        folder
    };
    let folder = write(&[
        "model.layers.0.attn.k_proj.weight",
        "model.layers.0.mlp.experts.0.up_proj.weight",
        "model.layers.0.mlp.experts.1.up_proj.weight",
        "model.layers.18446744073709551615.mlp.up_proj.weight",
        "oddity.weight",
        "vision_tower.layers.3.mlp.fc1.weight",
        "mtp.layers.0.mlp.up_proj.weight",
        "wte.weight",
    ]);
    let inventory = counted(folder.path());
    assert_eq!(inventory.layers.len(), 1);
    let layer = inventory.layers[0];
    assert_eq!((layer.attention, layer.expert, layer.n_experts, layer.n_used), (8, 8, 2, 2));
    assert_eq!((inventory.embedding, inventory.head, inventory.vision, inventory.mtp), (8, 8, 8, 16));
    let guessed = inventory.guessed.join("\n");
    assert!(guessed.contains("oddity.weight") && guessed.contains("how many experts"), "{guessed}");

    let folder = write(&["oddity.weight"]);
    let error = Inventory::from_checkpoint(&*open_checkpoint(folder.path()).unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ArchUnsupported);
}

#[test]
fn so_are_those_of_vindex_folders() {
    let source = root().join("tests/fixtures/vindex/made/tiny-llama320.q4k.vindex");
    let known = counted(&source);
    let folder = copied(&source);
    let index = folder.path().join("index.json");
    let mut value: Value = serde_json::from_str(&std::fs::read_to_string(&index).unwrap()).unwrap();
    value["family"] = "unheard_of".into();
    value["model_config"]["model_type"] = "unheard_of".into();
    std::fs::write(&index, value.to_string()).unwrap();
    let by_name = counted(folder.path());
    assert!(by_name.guessed[0].contains("unheard_of"), "{:?}", by_name.guessed);
    assert_eq!(known.weights(), by_name.weights());
    for (known, by_name) in known.layers.iter().zip(&by_name.layers) {
        assert_eq!(bytes(known, false), bytes(by_name, false));
    }
}

/// What is computed for a prompt follows from how many weights there are, however they are stored.
#[test]
fn elements_do_not_depend_on_the_format() {
    let elements = |name: &str| counted(&path(name)).elements;
    for (plain, stored) in [
        ("llama", "llama_mlx"),
        ("llama", "llama_mlx_mixed"),
        ("gemma3", "gemma3_mlx"),
        ("gpt_oss", "gpt_oss_mxfp4"),
        ("gpt_oss", "gpt_oss_mlx"),
        ("qwen2", "qwen2_gguf"),
        ("gemma2", "gemma2_gguf"),
    ] {
        assert_eq!(elements(plain), elements(stored), "{plain} and {stored}");
    }
    let stories = counted(&path("stories260K"));
    let bytes: u64 = stories.layers.iter().map(LayerBytes::total).sum();
    assert_eq!(stories.elements * 4, bytes);
}
