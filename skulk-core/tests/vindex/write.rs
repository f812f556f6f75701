//! How does a test get a folder that LARQL made none of? This writes float ones, and safetensors beside them.

use std::path::Path;

use serde_json::{Value, json};
use skulk::{Checkpoint, open_checkpoint};
use tempfile::TempDir;

use crate::support::safetensors_writer;
use crate::vindex::extract::scratch;
use crate::vindex::{fixtures, origin, values};

/// A tensor: name, shape and numbers.
pub(crate) type Tensor = (String, Vec<usize>, Vec<f32>);

/// A Hugging Face folder of tensors as f32, with this configuration, and the tokenizer of `source`.
pub(crate) fn checkpoint(tensors: &[Tensor], config: &Value, source: &Path) -> TempDir {
    let folder = scratch();
    let bytes = |values: &[f32]| values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let bytes: Vec<_> = tensors.iter().map(|(.., values)| bytes(values)).collect();
    let stored =
        tensors.iter().zip(&bytes).map(|((name, shape, _), bytes)| (&**name, "F32", &**shape, &**bytes));
    let file = safetensors_writer::file(&stored.collect::<Vec<_>>());
    std::fs::write(folder.path().join("model.safetensors"), file).unwrap();
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    for name in ["tokenizer.json", "generation_config.json"] {
        std::fs::copy(source.join(name), folder.path().join(name)).unwrap();
    }
    folder
}

/// All tensors of a checkpoint as f32, each number changed, in a safetensors folder of the source's configuration.
/// `prefix` is put before names of the text model.
pub(crate) fn safetensors(
    checkpoint: &dyn Checkpoint,
    source: &Path,
    prefix: &str,
    change: impl Fn(f32) -> f32,
) -> TempDir {
    let changed = |name: &String| {
        let region = checkpoint.region(name).unwrap();
        let prefix = if name.starts_with("lm_head") { "" } else { prefix };
        let numbers = values(&region).into_iter().map(&change).collect();
        (format!("{prefix}{name}"), region.shape().to_vec(), numbers)
    };
    let tensors: Vec<Tensor> = checkpoint.tensors().iter().map(|tensor| changed(&tensor.name)).collect();
    self::checkpoint(&tensors, &fixtures::json(&source.join("config.json")), source)
}

/// A float vindex of the llama in the repository, laid out as LARQL does at level inference.
pub(crate) fn float_vindex(is_f16: bool, version: u32) -> TempDir {
    let (folder, source) = (tempfile::tempdir().unwrap(), origin());
    let (to, checkpoint) = (folder.path(), open_checkpoint(&source).unwrap());
    let config = fixtures::json(&source.join("config.json"));
    let size = |key: &str| config[key].as_u64().unwrap() as usize;
    let (layers, hidden, inter) = (size("num_hidden_layers"), size("hidden_size"), size("intermediate_size"));
    let encode = |name: &str| -> (Vec<usize>, Vec<u8>) {
        let region = checkpoint.region(name).unwrap();
        let bytes = values(&region).into_iter().flat_map(|x| match is_f16 {
            true => half::f16::from_f32(x).to_le_bytes().to_vec(),
            false => x.to_le_bytes().to_vec(),
        });
        (region.shape().to_vec(), bytes.collect())
    };
    let mut files: std::collections::BTreeMap<&str, Vec<u8>> = std::collections::BTreeMap::new();
    let mut manifest = Vec::new();
    let mut put = |file: &'static str, name: String| {
        let full = if name.starts_with("lm_head") { name.clone() } else { format!("model.{name}") };
        let (shape, bytes) = encode(&full);
        let file = if version == 1 { "model_weights.bin" } else { file };
        let data = files.entry(file).or_default();
        let kind = if shape.len() == 2 { "tensor" } else { "vector" };
        let mut entry =
            json!({ "key": name, "kind": kind, "shape": shape, "offset": data.len(), "length": bytes.len() });
        if version > 1 {
            entry["file"] = json!(file);
        }
        manifest.push(entry);
        data.extend(bytes);
    };
    for layer in 0..layers {
        for word in ["q", "k", "v", "o"] {
            put("attn_weights.bin", format!("layers.{layer}.self_attn.{word}_proj.weight"));
        }
        put("up_weights.bin", format!("layers.{layer}.mlp.up_proj.weight"));
        put("down_weights.bin", format!("layers.{layer}.mlp.down_proj.weight"));
        put("norms.bin", format!("layers.{layer}.input_layernorm.weight"));
        put("norms.bin", format!("layers.{layer}.post_attention_layernorm.weight"));
    }
    put("norms.bin", "norm.weight".to_owned());
    put("lm_head.bin", "lm_head.weight".to_owned());
    let mut gates = Vec::new();
    let mut entries = Vec::new();
    for layer in 0..layers {
        let (_, bytes) = encode(&format!("model.layers.{layer}.mlp.gate_proj.weight"));
        entries.push(
            json!({ "layer": layer, "num_features": inter, "offset": gates.len(), "length": bytes.len() }),
        );
        gates.extend(bytes);
    }
    files.insert("gate_vectors.bin", gates);
    files.insert("embeddings.bin", encode("model.embed_tokens.weight").1);
    for (name, bytes) in &files {
        std::fs::write(to.join(name), bytes).unwrap();
    }
    let index = json!({
        "version": version, "model": "test", "family": "llama", "num_layers": layers, "hidden_size": hidden,
        "intermediate_size": inter, "vocab_size": size("vocab_size"), "embed_scale": 1.0,
        "extract_level": "inference", "dtype": if is_f16 { "f16" } else { "f32" }, "layers": entries,
        "down_top_k": 10, "has_model_weights": true,
        "model_config": {
            "model_type": "llama", "head_dim": size("head_dim"), "num_q_heads": size("num_attention_heads"),
            "num_kv_heads": size("num_key_value_heads"), "rope_base": 10000.0,
        },
    });
    std::fs::write(to.join("index.json"), index.to_string()).unwrap();
    std::fs::write(to.join("weight_manifest.json"), Value::from(manifest).to_string()).unwrap();
    for name in ["tokenizer.json", "generation_config.json"] {
        std::fs::copy(source.join(name), to.join(name)).unwrap();
    }
    folder
}

/// A vindex of a Gemma 4 with inputs to layers, as floats, whose index has what LARQL keeps.
pub(crate) fn gemma4_vindex(source: &Path) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = open_checkpoint(source).unwrap();
    let config = fixtures::json(&source.join("config.json"));
    let (mut data, mut manifest) = (Vec::<u8>::new(), Vec::new());
    for tensor in checkpoint.tensors() {
        let region = checkpoint.region(&tensor.name).unwrap();
        let bytes: Vec<u8> = values(&region).into_iter().flat_map(f32::to_le_bytes).collect();
        let key = tensor.name.strip_prefix("model.").unwrap();
        if key == "embed_tokens.weight" {
            std::fs::write(folder.path().join("embeddings.bin"), bytes).unwrap();
            continue;
        }
        let kind = if region.shape().len() == 2 { "tensor" } else { "vector" };
        manifest.push(json!({ "key": key, "kind": kind, "shape": region.shape(), "offset": data.len(),
            "length": bytes.len(), "file": "norms.bin" }));
        data.extend(bytes);
    }
    let width = |layer| {
        let gate = format!("model.layers.{layer}.mlp.gate_proj.weight");
        checkpoint.region(&gate).unwrap().shape()[0]
    };
    let n_layers = config["num_hidden_layers"].as_u64().unwrap();
    let layers = (0..n_layers)
        .map(|layer| json!({ "layer": layer, "num_features": width(layer), "offset": 0, "length": 0 }));
    let ropes = &config["rope_parameters"];
    let index = json!({
        "version": 2, "model": "m", "family": "gemma4", "num_layers": n_layers,
        "hidden_size": config["hidden_size"], "intermediate_size": config["intermediate_size"],
        "vocab_size": config["vocab_size"], "embed_scale": config["hidden_size"].as_f64().unwrap().sqrt(),
        "layers": layers.collect::<Vec<_>>(), "down_top_k": 10, "extract_level": "all", "dtype": "f32",
        "model_config": {
            "model_type": "gemma4_text", "head_dim": config["head_dim"],
            "num_q_heads": config["num_attention_heads"], "num_kv_heads": config["num_key_value_heads"],
            "rope_base": ropes["full_attention"]["rope_theta"],
            "rope_local_base": ropes["sliding_attention"]["rope_theta"],
            "partial_rotary_factor": ropes["full_attention"]["partial_rotary_factor"],
            "sliding_window": config["sliding_window"], "moe": null, "layer_types": config["layer_types"],
            "attention_k_eq_v": false, "num_kv_shared_layers": config["num_kv_shared_layers"],
            "per_layer_embed_dim": config["hidden_size_per_layer_input"],
            "final_logit_softcapping": config["final_logit_softcapping"],
        },
    });
    std::fs::write(folder.path().join("norms.bin"), data).unwrap();
    std::fs::write(folder.path().join("weight_manifest.json"), json!(manifest).to_string()).unwrap();
    std::fs::write(folder.path().join("index.json"), index.to_string()).unwrap();
    std::fs::copy(source.join("tokenizer.json"), folder.path().join("tokenizer.json")).unwrap();
    folder
}
