//! What would the model's `config.json` say? The one in the index, or what the index tells of it.
//!
//! LARQL keeps no norm epsilon, rope scaling, biases, tied embeddings, context length or stop tokens. Where this
//! library wrote the folder, they are in the index's object `skulk`. Elsewhere: the norm epsilon is 1e-6, with which
//! LARQL computes every family; the head is the embedding table where no manifest or checksum names one; weights of
//! chosen experts are scaled to a sum of 1, as LARQL does; and the rest is what Hugging Face's configuration of the
//! family has where a field is absent.

use serde_json::{Map, Value, json};

use super::index::{VindexIndex, VindexModel};
use crate::weights::TensorInfo;

/// A configuration in Hugging Face's spelling. `is_tied`: the folder knows no head. `tensors` are those that it has.
pub(super) fn configuration(index: &VindexIndex, is_tied: bool, tensors: &[TensorInfo]) -> Value {
    if let Some(config) = index.own_configuration() {
        return config.clone();
    }
    let mut config = Map::new();
    let mut put = |key: &str, value: Value| {
        if !value.is_null() {
            config.insert(key.to_owned(), value);
        }
    };
    // LARQL's name for it is that of the wrapper with a vision tower, whose text half is what it extracts.
    let model_type = match index.model_type() {
        "gemma3" => "gemma3_text",
        "gemma4" => "gemma4_text",
        other => other,
    };
    put("model_type", json!(model_type));
    put("hidden_size", json!(index.hidden_size));
    put("intermediate_size", json!(index.intermediate_size));
    put("num_hidden_layers", json!(index.num_layers));
    put("vocab_size", json!(index.vocab_size));
    put("rms_norm_eps", json!(1e-6));
    put("tie_word_embeddings", json!(is_tied));
    if let Some(model) = &index.model_config {
        put("num_attention_heads", json!(model.num_q_heads));
        put("num_key_value_heads", json!(model.num_kv_heads));
        put("head_dim", json!(model.head_dim));
        put("rope_theta", json!(model.rope_base));
        put("rope_local_base_freq", json!(model.rope_local_base));
        put("partial_rotary_factor", json!(model.partial_rotary_factor));
        put("sliding_window", json!(model.sliding_window));
        put("sliding_window_pattern", json!(model.sliding_window_pattern));
        put("layer_types", json!(model.layer_types));
        put("query_pre_attn_scalar", json!(model.query_pre_attn_scalar));
        put("final_logit_softcapping", json!(model.final_logit_softcapping));
    }
    if let Some(moe) = index.moe() {
        let dense = index.layers.iter().filter(|layer| layer.num_experts.is_none()).map(|layer| layer.layer);
        put("num_local_experts", json!(moe.num_experts));
        put("num_experts_per_tok", json!(moe.top_k));
        put("norm_topk_prob", json!(true));
        put("mlp_only_layers", json!(dense.collect::<Vec<_>>()));
        let per_expert = index.layers.iter().find_map(|layer| layer.num_features_per_expert);
        put("moe_intermediate_size", json!(moe.moe_intermediate_size.or(per_expert)));
    }
    if let ("gemma4_text", Some(model)) = (model_type, &index.model_config) {
        config.append(&mut of_gemma4(index, model, tensors));
    }
    Value::Object(config)
}

/// What configurations of Gemma 4 say otherwise or beside. Heads differ from layer to layer, and by how much the tensors say:
/// LARQL has one field for layers that do not slide, and not always that.
fn of_gemma4(index: &VindexIndex, model: &VindexModel, tensors: &[TensorInfo]) -> Map<String, Value> {
    let shape = |name: &str| {
        let at = tensors.binary_search_by(|info| info.name.as_str().cmp(name)).ok()?;
        tensors[at].shape.first().copied()
    };
    let rows = |layer: usize, word: &str| shape(&format!("layers.{layer}.self_attn.{word}_proj.weight"));
    let kinds = model.layer_types.as_deref().unwrap_or_default();
    let slides = |layer: usize| {
        let pattern = model.sliding_window_pattern.unwrap_or(6).max(1);
        let slides = match kinds.get(layer) {
            Some(kind) => kind == "sliding_attention",
            None => !(layer + 1).is_multiple_of(pattern),
        };
        slides && layer + 1 < index.num_layers
    };
    let stored = |layer: usize| {
        let head_dim = rows(layer, "q")?.checked_div(model.num_q_heads).filter(|dim| *dim > 0)?;
        Some((head_dim, rows(layer, "k").map_or(model.num_kv_heads, |rows| rows / head_dim)))
    };
    // A slice may lack a layer's attention: then it is as in others of its kind.
    let like = |slid: bool| (0..index.num_layers).filter(move |layer| slides(*layer) == slid);
    let told = [
        (
            model.global_head_dim.unwrap_or(model.head_dim),
            model.num_global_kv_heads.unwrap_or(model.num_kv_heads),
        ),
        (model.head_dim, model.num_kv_heads),
    ];
    let usual = [false, true].map(|slid| like(slid).find_map(stored).unwrap_or(told[usize::from(slid)]));
    let mut heads = Map::new();
    for layer in 0..index.num_layers {
        let own = stored(layer).unwrap_or(usual[usize::from(slides(layer))]);
        if own != (model.head_dim, model.num_kv_heads) {
            heads.insert(layer.to_string(), json!({"head_dim": own.0, "num_key_value_heads": own.1}));
        }
    }
    // Values that are the keys may be stored a second time, and more precisely.
    let as_values = model.attention_k_eq_v && !like(false).any(|layer| rows(layer, "v").is_some());
    let shared = model.num_kv_shared_layers.unwrap_or(0);
    let width = |layer: usize| index.layers.iter().find(|entry| entry.layer == layer).map(|e| e.num_features);
    let last = index.num_layers.checked_sub(1).filter(|_| shared > 0).and_then(width);
    let rotated = model.partial_rotary_factor.unwrap_or(0.25);
    let moe = index.moe();
    let own = json!({
        "per_layer_config": heads,
        "attention_k_eq_v": as_values,
        "num_kv_shared_layers": shared,
        "use_double_wide_mlp": last.is_some_and(|width| width == 2 * index.intermediate_size),
        "hidden_size_per_layer_input": model.per_layer_embed_dim.unwrap_or(0),
        "vocab_size_per_layer_input": shape("embed_tokens_per_layer.weight").unwrap_or(index.vocab_size),
        "rope_parameters": {
            "full_attention":
                {"rope_type": "proportional", "rope_theta": model.rope_base, "partial_rotary_factor": rotated},
            "sliding_attention":
                {"rope_type": "default", "rope_theta": model.rope_local_base.unwrap_or(10_000.0)},
        },
        "enable_moe_block": moe.is_some(),
        "num_experts": moe.map(|moe| moe.num_experts),
        "top_k_experts": moe.map(|moe| moe.top_k),
    });
    match own {
        Value::Object(own) => own,
        _ => Map::new(),
    }
}
