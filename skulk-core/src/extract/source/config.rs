//! What does the model's config.json say? Its own, or one in Hugging Face's spelling made of what a GGUF file says.

use serde_json::{Map, Value, json};

use super::rope;
use crate::arch::{
    Activation, ArchSpec, LayerSpec, LayerTensor, QkNorm, RopeScaling, RopeSpec, Scoring, Window,
};
use crate::error::{Error, ErrorKind, Result};
use crate::weights::gguf::{GgufMetadata, GgufValue};
use crate::weights::{Checkpoint, Metadata};

/// What a configuration says of how weights are stored, which is different in a vindex.
const QUANTISATION: [&str; 2] = ["quantization", "quantization_config"];
/// What a wrapper with other modalities says of its text part without repeating it there.
const SHARED: [&str; 6] =
    ["bos_token_id", "eos_token_id", "pad_token_id", "dtype", "torch_dtype", "transformers_version"];

/// The configuration of a checkpoint that is described by `arch`.
pub(super) fn of_checkpoint(checkpoint: &dyn Checkpoint, arch: &ArchSpec) -> Result<Value> {
    match checkpoint.metadata() {
        Metadata::Gguf(metadata) => of_gguf(metadata, arch),
        Metadata::HuggingFace(metadata) => Ok(text_part(&metadata.config)),
        Metadata::Vindex(metadata) => Ok(text_part(&metadata.configuration().config)),
    }
}

/// The part of a configuration that concerns text.
fn text_part(config: &Value) -> Value {
    // What the text part of wrappers is called where it stands alone; of some it says so itself.
    let name = match config.get("model_type").and_then(Value::as_str) {
        Some("gemma3") => Some("gemma3_text"),
        Some("qwen3_vl") => Some("qwen3_vl_text"),
        Some("mistral3") => None,
        _ => return without_quantisation(config.clone()),
    };
    let Some(wrapped) = config.get("text_config") else { return without_quantisation(config.clone()) };
    let mut text = wrapped.clone();
    if let Some(fields) = text.as_object_mut() {
        if let Some(name) = name {
            fields.insert("model_type".to_owned(), json!(name));
        }
        for key in SHARED {
            if let (Some(value), None) = (config.get(key), fields.get(key)) {
                fields.insert(key.to_owned(), value.clone());
            }
        }
    }
    without_quantisation(text)
}

fn without_quantisation(mut config: Value) -> Value {
    if let Some(fields) = config.as_object_mut() {
        fields.retain(|key, _| !QUANTISATION.contains(&key.as_str()));
    }
    config
}

/// The shortest decimals that are this number again.
fn shortest(value: f32) -> Value {
    value.to_string().parse().map_or(Value::Null, |value: f64| json!(value))
}

fn of_gguf(metadata: &GgufMetadata, arch: &ArchSpec) -> Result<Value> {
    let in_file = |e: Error| e.with("file", metadata.file().display());
    let family = metadata.str("general.architecture")?;
    let internal = || Error::new(ErrorKind::Internal, "a description without layers or rotary embeddings");
    let layer = arch.layers.first().ok_or_else(internal)?;
    let global = arch.ropes.first().ok_or_else(internal)?;
    let (attention, experts) = (layer.attention().ok_or_else(internal)?, layer.ffn.experts);
    let (model_type, class) = match (family, experts) {
        ("gemma2", _) => ("gemma2", "Gemma2ForCausalLM"),
        ("gemma3", _) => ("gemma3_text", "Gemma3ForCausalLM"),
        ("qwen2", _) => ("qwen2", "Qwen2ForCausalLM"),
        ("qwen3moe", _) => ("qwen3_moe", "Qwen3MoeForCausalLM"),
        ("qwen3", _) => ("qwen3", "Qwen3ForCausalLM"),
        (_, Some(_)) => ("mixtral", "MixtralForCausalLM"),
        (_, None) => ("llama", "LlamaForCausalLM"),
    };
    let mut config = Map::new();
    let mut put = |key: &str, value: Value| {
        if !value.is_null() {
            config.insert(key.to_owned(), value);
        }
    };
    put("architectures", json!([class]));
    put("model_type", json!(model_type));
    put("hidden_size", json!(arch.hidden_size));
    put(
        "intermediate_size",
        dense_width(metadata, family).filter(|_| model_type == "qwen3_moe").unwrap_or(json!(layer.ffn.width)),
    );
    put("num_hidden_layers", json!(arch.layers.len()));
    put("num_attention_heads", json!(attention.n_heads));
    put("num_key_value_heads", json!(attention.n_kv_heads));
    put("head_dim", json!(attention.head_dim));
    put("vocab_size", json!(arch.vocab_size));
    put("max_position_embeddings", json!(arch.context_length));
    put("rms_norm_eps", shortest(arch.norm.eps));
    put("tie_word_embeddings", json!(arch.tied_embeddings));
    put("attention_bias", json!(attention.qkv_bias));
    put("mlp_bias", json!(layer.ffn.bias));
    put("rope_theta", json!(global.theta));
    put("rope_scaling", scaling(global).map_err(in_file)?);
    if global.dim != attention.head_dim {
        put("partial_rotary_factor", json!(global.dim as f64 / attention.head_dim as f64));
    }
    let activation = json!(match layer.ffn.activation {
        // Bounds are fields of their own, in families that are refused.
        Activation::Silu | Activation::ClampedSilu(_) | Activation::ClampedGlu { .. } => "silu",
        Activation::GeluTanh => "gelu_pytorch_tanh",
        Activation::Gelu => "gelu",
        Activation::SquaredRelu => "relu2",
    });
    if family.starts_with("gemma") {
        let sliding = arch.layers.iter().find_map(|layer| layer.attention()?.window);
        let kind = |window: Option<Window>| window.map_or("full_attention", |_| "sliding_attention");
        put("hidden_activation", activation);
        put("query_pre_attn_scalar", json!(f64::from(attention.scale).powi(-2).round() as u64));
        put("attn_logit_softcapping", attention.softcap.map_or(Value::Null, shortest));
        put("final_logit_softcapping", arch.final_softcap.map_or(Value::Null, shortest));
        put("sliding_window", json!(sliding.map(Window::size)));
        let kinds = arch.layers.iter().map(|layer| kind(layer.attention().and_then(|own| own.window)));
        put("layer_types", json!(kinds.collect::<Vec<_>>()));
        put("rope_local_base_freq", json!(arch.ropes.get(1).map(|rope| rope.theta)));
    } else {
        put("hidden_act", activation);
    }
    if let Some(experts) = experts {
        put("num_experts_per_tok", json!(experts.n_used));
        if model_type == "qwen3_moe" {
            put("num_experts", json!(experts.n_experts));
            put("moe_intermediate_size", json!(layer.ffn.width));
            put("norm_topk_prob", json!(experts.normalise));
            put("decoder_sparse_step", json!(1));
            put("mlp_only_layers", json!([]));
        } else {
            put("num_local_experts", json!(experts.n_experts));
        }
    }
    for (key, field) in [("bos_token_id", "bos"), ("eos_token_id", "eos"), ("pad_token_id", "padding")] {
        put(key, json!(metadata.opt_u64(&format!("tokenizer.ggml.{field}_token_id"))?));
    }
    Ok(Value::Object(config))
}

/// The width of blocks that are no experts, where it is the same in all layers.
fn dense_width(metadata: &GgufMetadata, family: &str) -> Option<Value> {
    match metadata.get(&format!("{family}.feed_forward_length"))? {
        GgufValue::U64(width) => Some(json!(width)),
        GgufValue::I64(width) => Some(json!(width)),
        _ => None,
    }
}

/// `rope_scaling`; null where there is none.
fn scaling(rope: &RopeSpec) -> Result<Value> {
    let found;
    let scaling = match &rope.scaling {
        RopeScaling::Factors(factors) => {
            found = rope::llama3(rope, factors)?;
            &found
        }
        told => told,
    };
    Ok(match scaling {
        RopeScaling::Linear(factor) => json!({"rope_type": "linear", "factor": factor}),
        RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => json!({
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": low_freq_factor,
            "high_freq_factor": high_freq_factor,
            "original_max_position_embeddings": original_context,
        }),
        // The others are no GGUF file's.
        RopeScaling::None
        | RopeScaling::Factors(_)
        | RopeScaling::Long { .. }
        | RopeScaling::Proportional { .. }
        | RopeScaling::Yarn { .. } => Value::Null,
    })
}

/// Families of which a vindex can hold all, as configurations name them; variants of them are looked at one by one.
pub(super) const HELD: [&str; 8] =
    ["llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gemma2", "gemma3"];

/// `Ok` for models of which a vindex can hold all: attention with norms before it and positions rotated in, softmax
/// routers, and nothing beside them.
pub(super) fn expect_plain(arch: &ArchSpec) -> Result<()> {
    let is_plain = |layer: &LayerSpec| {
        let ffn = &layer.ffn;
        let Some(attention) = layer.attention() else { return false };
        let router = ffn.experts.is_none_or(|experts| {
            experts.scoring == Scoring::Softmax
                && !experts.router_bias
                && !experts.correction
                && experts.groups.is_none()
                && experts.scale == 1.0
                && !experts.scales
        });
        let plain = attention.qk_norm != Some(QkNorm::All)
            && attention.query_growth.is_none()
            && !attention.sinks
            && !attention.value_norm
            && !attention.keys_as_values
            && attention.latent.is_none()
            && attention.has_kv()
            && !attention.head_gate
            && !attention.output_gate
            && !ffn.is_absent()
            && ffn.activation.is_gated()
            && attention.rope.is_some();
        let plain = plain && layer.input.is_none() && !layer.output_scale && !layer.has_streams();
        plain && router && ffn.shared.is_none() && layer.attention_norm && layer.ffn_norm
    };
    let fused = arch.layers.first().is_some_and(|layer| {
        [LayerTensor::Query, LayerTensor::FfnGate].iter().any(|t| arch.names.fused(layer, *t).count() > 1)
    });
    let scaled = arch.residual_scale != 1.0 || arch.logit_scale != 1.0;
    if arch.layers.iter().all(is_plain) && !fused && !scaled {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::ArchUnsupported,
        format!(
            "expected a family that vindex folders can hold ({}), found {}`{}`",
            HELD.join(", "),
            if HELD.contains(&arch.family.as_str()) { "a variant of " } else { "" },
            arch.family
        ),
    )
    .with("field", "model_type")
    .with_hint("run the model from its own checkpoint"))
}

/// `Ok` when what the configuration tells is what the checkpoint describes, conventions aside.
pub(super) fn expect_same(stored: &ArchSpec, told: &ArchSpec) -> Result<()> {
    let ropes = stored.ropes.len() == told.ropes.len()
        && stored.ropes.iter().zip(&told.ropes).all(|(a, b)| rope::is_same(a, b));
    let same = [
        ("layers", stored.layers == told.layers),
        ("rotary embeddings", ropes),
        ("hidden size", stored.hidden_size == told.hidden_size),
        ("vocabulary size", stored.vocab_size == told.vocab_size),
        ("context length", stored.context_length == told.context_length),
        ("embedding scale", stored.embedding_scale == told.embedding_scale),
        ("norm epsilon", stored.norm.eps == told.norm.eps),
        ("tied embeddings", stored.tied_embeddings == told.tied_embeddings),
        ("final logit soft-cap", stored.final_softcap == told.final_softcap),
    ];
    match same.iter().find(|(_, same)| !same) {
        None => Ok(()),
        Some((field, _)) => Err(Error::new(
            ErrorKind::ArchUnsupported,
            "expected a model that a configuration in Hugging Face's spelling can describe, found one that it cannot",
        )
        .with("field", field)
        .with_hint("use the model's safetensors checkpoint")),
    }
}
