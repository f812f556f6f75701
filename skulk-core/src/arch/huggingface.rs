//! What does this config.json describe? Hugging Face configurations, in both generations' spelling.
//!
//! transformers 5 writes `rope_parameters`; hubs mostly hold `rope_theta` and `rope_scaling`.

use std::path::PathBuf;

use serde_json::Value;

use super::names::{HF_GEMMA3, HF_LLAMA, TensorNames};
use super::{
    Activation, ArchSpec, AttentionSpec, FfnSpec, LayerSpec, MAX_LAYERS, NormSpec, RopeLayout, RopeScaling,
    RopeSpec, SUPPORTED, activation, unsupported,
};
use crate::error::{Error, ErrorKind, Result};
use crate::weights::Checkpoint;
use crate::weights::safetensors::HfMetadata;

pub(super) fn spec(metadata: &HfMetadata, checkpoint: &dyn Checkpoint) -> Result<ArchSpec> {
    let file = metadata.folder.join("config.json");
    let root = Config { file: &file, at: "", value: &metadata.config };
    let model_type = root.str("model_type")?;
    match model_type {
        "llama" => llama(&root, checkpoint),
        "gemma3_text" => gemma3(&root, checkpoint),
        // The multi-modal wrapper: its text half is a gemma3_text of its own.
        "gemma3" => gemma3(&root.section("text_config")?, checkpoint),
        other => Err(unsupported("the architecture", other, SUPPORTED)
            .with("file", file.display())
            .with("field", "model_type")),
    }
}

fn llama(config: &Config<'_>, checkpoint: &dyn Checkpoint) -> Result<ArchSpec> {
    let common = Common::read(config, |hidden, heads| hidden / heads.max(1))?;
    let dim = rotary_dim(config, common.head_dim)?;
    let rope = rope_spec(config, "full_attention", 10_000.0, true, dim)?;
    let attention_bias = config.bool_or("attention_bias", false)?;
    let layer = LayerSpec {
        attention: AttentionSpec {
            n_heads: common.n_heads,
            n_kv_heads: common.n_kv_heads,
            head_dim: common.head_dim,
            window: None,
            scale: (common.head_dim as f32).sqrt().recip(),
            softcap: None,
            qk_norm: false,
            qkv_bias: attention_bias,
            output_bias: attention_bias,
            rope: 0,
        },
        ffn: FfnSpec {
            width: common.ffn_width,
            activation: config.activation_or("hidden_act", Activation::Silu)?,
            bias: config.bool_or("mlp_bias", false)?,
        },
        post_attention_norm: false,
        post_ffn_norm: false,
    };
    Ok(ArchSpec {
        family: "llama".into(),
        hidden_size: common.hidden_size,
        vocab_size: common.vocab_size,
        context_length: config.usize_or("max_position_embeddings", 2048)?,
        embedding_scale: 1.0,
        norm: NormSpec { eps: config.f32_or("rms_norm_eps", 1e-6)?, weight_offset: 0.0 },
        tied_embeddings: config.bool_or("tie_word_embeddings", false)?,
        final_softcap: None,
        ropes: vec![rope],
        layers: vec![layer; common.n_layers],
        names: TensorNames { prefix: prefix(checkpoint), spelling: &HF_LLAMA },
    })
}

fn gemma3(config: &Config<'_>, checkpoint: &dyn Checkpoint) -> Result<ArchSpec> {
    let common = Common::read(config, |_, _| 256)?;
    if config.bool_or("use_bidirectional_attention", false)? {
        return Err(unsupported("the variant", "use_bidirectional_attention", "causal attention")
            .with("file", config.file.display()));
    }
    let window = config.usize_or("sliding_window", 4096)?;
    let attention_bias = config.bool_or("attention_bias", false)?;
    let sliding = sliding_layers(config, common.n_layers)?;
    let layer = |sliding: bool| -> Result<LayerSpec> {
        Ok(LayerSpec {
            attention: AttentionSpec {
                n_heads: common.n_heads,
                n_kv_heads: common.n_kv_heads,
                head_dim: common.head_dim,
                window: sliding.then_some(window),
                scale: config.f32_or("query_pre_attn_scalar", 256.0)?.sqrt().recip(),
                softcap: config.opt_f32("attn_logit_softcapping")?,
                qk_norm: true,
                qkv_bias: attention_bias,
                output_bias: attention_bias,
                rope: usize::from(sliding),
            },
            ffn: FfnSpec {
                width: common.ffn_width,
                activation: config.activation_or("hidden_activation", Activation::GeluTanh)?,
                bias: false,
            },
            post_attention_norm: true,
            post_ffn_norm: true,
        })
    };
    Ok(ArchSpec {
        family: "gemma3".into(),
        hidden_size: common.hidden_size,
        vocab_size: common.vocab_size,
        context_length: config.usize_or("max_position_embeddings", 131_072)?,
        embedding_scale: (common.hidden_size as f32).sqrt(),
        norm: NormSpec { eps: config.f32_or("rms_norm_eps", 1e-6)?, weight_offset: 1.0 },
        tied_embeddings: config.bool_or("tie_word_embeddings", true)?,
        final_softcap: config.opt_f32("final_logit_softcapping")?,
        ropes: vec![
            rope_spec(config, "full_attention", 1_000_000.0, true, common.head_dim)?,
            rope_spec(config, "sliding_attention", 10_000.0, false, common.head_dim)?,
        ],
        layers: sliding.into_iter().map(layer).collect::<Result<_>>()?,
        names: TensorNames { prefix: prefix(checkpoint), spelling: &HF_GEMMA3 },
    })
}

/// Which layers slide: `layer_types`, or every layer but each `sliding_window_pattern`-th.
fn sliding_layers(config: &Config<'_>, n_layers: usize) -> Result<Vec<bool>> {
    if let Some(types) = config.opt("layer_types") {
        let wrong =
            || config.wrong("layer_types", "one of sliding_attention, full_attention per layer", types);
        let list = types.as_array().filter(|l| l.len() == n_layers).ok_or_else(wrong)?;
        return list
            .iter()
            .map(|kind| match kind.as_str() {
                Some("sliding_attention") => Ok(true),
                Some("full_attention") => Ok(false),
                _ => Err(wrong()),
            })
            .collect();
    }
    let field = if config.opt("sliding_window_pattern").is_some() {
        "sliding_window_pattern"
    } else {
        "_sliding_window_pattern"
    };
    let pattern = config.usize_or(field, 6)?.max(1);
    Ok((0..n_layers).map(|layer| !(layer + 1).is_multiple_of(pattern)).collect())
}

fn rotary_dim(config: &Config<'_>, head_dim: usize) -> Result<usize> {
    let share = config.f32_or("partial_rotary_factor", 1.0)?;
    if !(share > 0.0 && share <= 1.0) {
        return Err(config
            .error("partial_rotary_factor", format!("expected more than 0 and at most 1, found {share}")));
    }
    Ok((head_dim as f32 * share) as usize)
}

/// The rotary embedding of one attention kind. `scaled`: hub spelling's `rope_scaling` applies.
fn rope_spec(
    config: &Config<'_>,
    kind: &'static str,
    theta: f64,
    scaled: bool,
    dim: usize,
) -> Result<RopeSpec> {
    let empty = Value::Null;
    let (theta, section) = if config.opt("rope_parameters").is_some() {
        let parameters = config.section("rope_parameters")?;
        let section = if parameters.opt(kind).is_some() { parameters.section(kind)? } else { parameters };
        (section.opt_f64("rope_theta")?.unwrap_or(theta), section)
    } else {
        let field = if kind == "sliding_attention" { "rope_local_base_freq" } else { "rope_theta" };
        let section = if scaled && config.opt("rope_scaling").is_some() {
            config.section("rope_scaling")?
        } else {
            Config { value: &empty, ..*config }
        };
        (config.opt_f64(field)?.unwrap_or(theta), section)
    };
    let scaling = match section.opt_str("rope_type")?.or(section.opt_str("type")?).unwrap_or("default") {
        "default" => RopeScaling::None,
        "linear" => RopeScaling::Linear(section.f64("factor")?),
        "llama3" => RopeScaling::Llama3 {
            factor: section.f64("factor")?,
            low_freq_factor: section.f64("low_freq_factor")?,
            high_freq_factor: section.f64("high_freq_factor")?,
            original_context: section.f64("original_max_position_embeddings")?,
        },
        other => {
            return Err(unsupported("the rope scaling", other, "default, linear, llama3")
                .with("file", config.file.display())
                .with("field", "rope_type"));
        }
    };
    Ok(RopeSpec { theta, dim, layout: RopeLayout::Halves, scaling })
}

/// Before the text model's tensor names; multi-modal checkpoints nest them deeper.
fn prefix(checkpoint: &dyn Checkpoint) -> String {
    ["model.", "language_model.model.", "model.language_model."]
        .into_iter()
        .find(|prefix| checkpoint.tensor(&format!("{prefix}embed_tokens.weight")).is_some())
        .unwrap_or("model.")
        .to_owned()
}

/// Sizes every family has.
struct Common {
    hidden_size: usize,
    vocab_size: usize,
    n_layers: usize,
    n_heads: usize,
    n_kv_heads: usize,
    head_dim: usize,
    ffn_width: usize,
}

impl Common {
    fn read(config: &Config<'_>, default_head_dim: fn(usize, usize) -> usize) -> Result<Self> {
        let hidden_size = config.usize("hidden_size")?;
        let n_heads = config.usize("num_attention_heads")?;
        let n_layers = config.usize("num_hidden_layers")?;
        if n_layers > MAX_LAYERS {
            return Err(
                config.error("num_hidden_layers", format!("expected at most {MAX_LAYERS}, found {n_layers}"))
            );
        }
        Ok(Self {
            hidden_size,
            vocab_size: config.usize("vocab_size")?,
            n_layers,
            n_heads,
            n_kv_heads: config.usize_or("num_key_value_heads", n_heads)?,
            head_dim: config.usize_or("head_dim", default_head_dim(hidden_size, n_heads))?,
            ffn_width: config.usize("intermediate_size")?,
        })
    }
}

/// A JSON object whose fields are read with their file and name at hand for errors.
#[derive(Clone, Copy)]
struct Config<'a> {
    file: &'a PathBuf,
    at: &'a str,
    value: &'a Value,
}

impl<'a> Config<'a> {
    fn opt(&self, key: &str) -> Option<&'a Value> {
        self.value.get(key).filter(|v| !v.is_null())
    }

    fn section(&self, key: &'a str) -> Result<Self> {
        let value = self.opt(key).ok_or_else(|| self.missing(key))?;
        if !value.is_object() {
            return Err(self.wrong(key, "an object", value));
        }
        Ok(Self { file: self.file, at: key, value })
    }

    fn opt_with<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        self.opt(key).map(|v| read(v).ok_or_else(|| self.wrong(key, expected, v))).transpose()
    }

    fn opt_usize(&self, key: &str) -> Result<Option<usize>> {
        self.opt_with(key, "a whole number", |v| v.as_u64().and_then(|n| n.try_into().ok()))
    }

    fn usize(&self, key: &str) -> Result<usize> {
        self.opt_usize(key)?.ok_or_else(|| self.missing(key))
    }

    fn usize_or(&self, key: &str, default: usize) -> Result<usize> {
        Ok(self.opt_usize(key)?.unwrap_or(default))
    }

    fn opt_f64(&self, key: &str) -> Result<Option<f64>> {
        self.opt_with(key, "a number", Value::as_f64)
    }

    fn f64(&self, key: &str) -> Result<f64> {
        self.opt_f64(key)?.ok_or_else(|| self.missing(key))
    }

    fn opt_f32(&self, key: &str) -> Result<Option<f32>> {
        Ok(self.opt_f64(key)?.map(|v| v as f32))
    }

    fn f32_or(&self, key: &str, default: f32) -> Result<f32> {
        Ok(self.opt_f32(key)?.unwrap_or(default))
    }

    fn opt_str(&self, key: &str) -> Result<Option<&'a str>> {
        self.opt_with(key, "a string", Value::as_str)
    }

    fn str(&self, key: &str) -> Result<&'a str> {
        self.opt_str(key)?.ok_or_else(|| self.missing(key))
    }

    fn bool_or(&self, key: &str, default: bool) -> Result<bool> {
        Ok(self.opt_with(key, "true or false", Value::as_bool)?.unwrap_or(default))
    }

    fn activation_or(&self, key: &'static str, default: Activation) -> Result<Activation> {
        let named = self.opt_str(key)?.map(activation).transpose();
        named
            .map(|a| a.unwrap_or(default))
            .map_err(|e| e.with("file", self.file.display()).with("field", key))
    }

    fn missing(&self, key: &str) -> Error {
        self.error(key, "expected the field, found none".into())
    }

    fn wrong(&self, key: &str, expected: &str, found: &Value) -> Error {
        let mut found = found.to_string();
        if found.len() > 80 {
            let end = (0..=80).rev().find(|&i| found.is_char_boundary(i)).unwrap_or(0);
            found.truncate(end);
            found.push('…');
        }
        self.error(key, format!("expected {expected}, found {found}"))
    }

    fn error(&self, key: &str, message: String) -> Error {
        let field = if self.at.is_empty() { key.to_owned() } else { format!("{}.{key}", self.at) };
        Error::new(ErrorKind::ConfigInvalid, message)
            .with("file", self.file.display())
            .with("field", field)
            .with_hint("fetch the model's config.json again")
    }
}
