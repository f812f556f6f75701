//! What would the model's `config.json` say? The one in the index, or what the index tells of it.
//!
//! LARQL keeps no norm epsilon, rope scaling, biases, tied embeddings, context length or stop tokens. Where this
//! library wrote the folder, they are in the index's object `skulk`. Elsewhere: the norm epsilon is 1e-6, with which
//! LARQL computes every family; the head is the embedding table where no manifest or checksum names one; weights of
//! chosen experts are scaled to a sum of 1, as LARQL does; and the rest is what Hugging Face's configuration of the
//! family has where a field is absent.

use serde_json::{Map, Value, json};

use super::VindexIndex;

/// A configuration in Hugging Face's spelling. `is_tied`: the folder knows no head.
pub(super) fn configuration(index: &VindexIndex, is_tied: bool) -> Value {
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
    let model_type = if index.model_type() == "gemma3" { "gemma3_text" } else { index.model_type() };
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
    Value::Object(config)
}
