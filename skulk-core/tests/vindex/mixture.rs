//! How does a test get mixtures of experts without files from elsewhere? This makes small ones, of numbers that differ.

use serde_json::{Value, json};

pub(crate) const LAYERS: usize = 3;
pub(crate) const EXPERTS: usize = 4;
const HIDDEN: usize = 8;
const INTER: usize = 4;
const VOCAB: usize = 16;
const TOP_K: usize = 2;

/// A Mixtral folder as LARQL lays one out: experts as floats by manifest, or, as this library does where LARQL cannot,
/// in files of their own.
pub(crate) fn mixture(has_layer_files: bool) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path();
    let mut files = std::collections::BTreeMap::<&str, Vec<u8>>::new();
    let mut manifest = Vec::new();
    let mut next = 0f32;
    let mut numbers = |n: usize| -> Vec<u8> {
        (0..n)
            .flat_map(|_| {
                next += 0.5;
                next.to_le_bytes()
            })
            .collect()
    };
    let mut put = |file: &'static str, key: String, shape: &[usize], bytes: Vec<u8>, listed: bool| -> usize {
        let data = files.entry(file).or_default();
        let offset = data.len();
        if listed {
            let kind = if shape.len() == 2 { "tensor" } else { "vector" };
            manifest.push(json!({
                "key": key, "kind": kind, "shape": shape, "offset": offset, "length": bytes.len(), "file": file,
            }));
        }
        data.extend(bytes);
        offset
    };
    let mut entries = Vec::new();
    std::fs::create_dir_all(to.join("layers")).unwrap();
    for layer in 0..LAYERS {
        let name = |rest: &str| format!("layers.{layer}.{rest}");
        for word in ["q", "k", "v", "o"] {
            let key = name(&format!("self_attn.{word}_proj.weight"));
            put("attn_weights.bin", key, &[HIDDEN, HIDDEN], numbers(HIDDEN * HIDDEN), true);
        }
        put("norms.bin", name("input_layernorm.weight"), &[HIDDEN], numbers(HIDDEN), true);
        put("norms.bin", name("post_attention_layernorm.weight"), &[HIDDEN], numbers(HIDDEN), true);
        let rows = EXPERTS * INTER;
        let offset = put("gate_vectors.bin", String::new(), &[], numbers(rows * HIDDEN), false);
        entries.push(json!({
            "layer": layer, "num_features": rows, "offset": offset, "length": rows * HIDDEN * 4,
            "num_experts": EXPERTS, "num_features_per_expert": INTER,
        }));
        // LARQL keeps it twice beside floats.
        let router = numbers(EXPERTS * HIDDEN);
        put("router_weights.bin", String::new(), &[], router.clone(), false);
        if has_layer_files {
            // Rows of down are padded to 256 elements.
            let (gate_up, down) = (2 * INTER * HIDDEN, HIDDEN * 256);
            let mut file = b"LYRW".to_vec();
            for n in [1, 0, EXPERTS, INTER, HIDDEN] {
                file.extend((n as u32).to_le_bytes());
            }
            let start = 24 + 32 * EXPERTS;
            for expert in 0..EXPERTS {
                let at = start + expert * (gate_up + down) * 4;
                for n in [at, gate_up * 4, at + gate_up * 4, down * 4] {
                    file.extend((n as u64).to_le_bytes());
                }
            }
            file.extend(numbers(EXPERTS * (gate_up + down)));
            std::fs::write(to.join(format!("layers/layer_{layer:02}.weights")), file).unwrap();
        } else {
            for expert in 0..EXPERTS {
                let key = |word: &str| name(&format!("block_sparse_moe.experts.{expert}.{word}.weight"));
                put("up_weights.bin", key("w3"), &[INTER, HIDDEN], numbers(INTER * HIDDEN), true);
                put("down_weights.bin", key("w2"), &[HIDDEN, INTER], numbers(INTER * HIDDEN), true);
            }
            let key = name("block_sparse_moe.gate.weight");
            put("up_weights.bin", key, &[EXPERTS, HIDDEN], router, true);
        }
    }
    put("norms.bin", "norm.weight".to_owned(), &[HIDDEN], numbers(HIDDEN), true);
    put("lm_head.bin", "lm_head.weight".to_owned(), &[VOCAB, HIDDEN], numbers(VOCAB * HIDDEN), true);
    put("embeddings.bin", String::new(), &[], numbers(VOCAB * HIDDEN), false);

    let mut meta = b"TEMD".to_vec();
    for n in [1, LAYERS, TOP_K] {
        meta.extend((n as u32).to_le_bytes());
    }
    for layer in 0..LAYERS {
        meta.extend(((EXPERTS * INTER) as u32).to_le_bytes());
        for feature in 0..EXPERTS * INTER {
            for place in 0..=TOP_K {
                meta.extend(((feature % VOCAB) as u32).to_le_bytes());
                meta.extend(((layer * 100 + feature * 10 + place) as f32).to_le_bytes());
            }
        }
    }
    files.insert("down_meta.bin", meta);
    for (name, bytes) in &files {
        std::fs::write(to.join(name), bytes).unwrap();
    }
    let mut index = json!({
        "version": 2, "model": "test", "family": "mixtral", "checksums": {}, "num_layers": LAYERS,
        "hidden_size": HIDDEN, "intermediate_size": INTER, "vocab_size": VOCAB, "embed_scale": 1.0,
        "extract_level": "all", "dtype": "f32", "quant": if has_layer_files { "q4k" } else { "none" },
        "layers": entries, "down_top_k": TOP_K, "has_model_weights": true,
        "model_config": {
            "model_type": "mixtral", "head_dim": 4, "num_q_heads": 2, "num_kv_heads": 2, "rope_base": 10000.0,
            "moe": { "num_experts": EXPERTS, "top_k": 2 },
        },
        "of_a_later_version": [1, 2],
    });
    if has_layer_files {
        index["ffn_layout"] = json!("per_layer");
    } else {
        std::fs::remove_dir(to.join("layers")).unwrap();
    }
    std::fs::write(to.join("index.json"), index.to_string()).unwrap();
    std::fs::write(to.join("weight_manifest.json"), Value::from(manifest).to_string()).unwrap();
    std::fs::write(to.join("tokenizer.json"), "{}").unwrap();
    std::fs::write(to.join("tokenizer_config.json"), "{\"chat_template\":\"{{ messages }}\"}").unwrap();
    std::fs::write(to.join("feature_labels.json"), "{\"0:0\":\"capital\"}").unwrap();
    folder
}
