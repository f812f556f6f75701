//! What does this config.json describe? Hugging Face configurations, in both generations' spelling.
//!
//! transformers 5 writes `rope_parameters`; hubs mostly hold `rope_theta` and `rope_scaling`. What families have in
//! common is read here, what one alone says in the file of its relatives.

mod common;
mod deepseek;
mod eagle;
mod gemma;
mod gemma3n;
mod gemma4;
mod glm;
mod gpt_oss;
mod granite;
mod kimi_linear;
mod llama;
mod llama4;
mod minimax;
mod nemotron;
mod olmo;
mod qwen;
mod qwen_next;
mod rope;
mod step;
mod words;

use std::path::PathBuf;

use serde_json::Value;

use self::common::Common;
pub(super) use self::eagle::eagle;
use self::rope::Asked;
pub(super) use self::words::{converted, own_head, prefix, reword};
use super::config::Config;
use super::names::{Spelling, TensorNames};
use super::{
    Activation, ArchSpec, AttentionSpec, ExpertsSpec, FfnSpec, LayerSpec, Mixer, NormSpec, QkNorm, SUPPORTED,
    SharedExpert, Window, drafts_only, unsupported,
};
use crate::error::{Error, Result};

/// The description in a `config`, which the `file` holds, of tensors whose names begin with `prefix`.
pub(super) fn spec(config: &Value, file: &PathBuf, prefix: String) -> Result<ArchSpec> {
    let root = Config { file, at: "", value: config };
    if eagle::is_eagle(&root)? {
        return Err(drafts_only("eagle3").with("file", file.display()).with("field", "architectures"));
    }
    let model_type = root.str("model_type")?;
    // Wrappers with other modalities: their text part is a configuration of its own. Of Qwen's, texts alone are rotated
    // as with one position each.
    let config = match model_type {
        "gemma3" | "gemma3n" | "gemma4" | "gemma4_unified" | "kimi_k25" | "llama4" | "mistral3"
        | "qwen3_vl" | "qwen3_5" | "qwen3_5_moe" => root.section("text_config")?,
        _ => root,
    };
    let inner = match model_type {
        "mistral3" => config.str("model_type")?,
        "kimi_k25" => config.opt_str("model_type")?.unwrap_or("deepseek_v3"),
        other => other,
    };
    let family = match inner {
        "llama" => &llama::LLAMA,
        "llama4" | "llama4_text" => &llama4::LLAMA4,
        "mistral" => &llama::MISTRAL,
        "ministral3" => &llama::MINISTRAL3,
        "mixtral" => &llama::MIXTRAL,
        "smollm3" => &llama::SMOLLM3,
        "granite" => &granite::GRANITE,
        "granitemoehybrid" => &granite::GRANITE_HYBRID,
        "phi3" => &llama::PHI3,
        "qwen2" => &qwen::QWEN2,
        "qwen3" | "qwen3_vl" | "qwen3_vl_text" => &qwen::QWEN3,
        "qwen3_moe" => &qwen::QWEN3_MOE,
        "qwen3_next" => &qwen_next::QWEN3_NEXT,
        "qwen3_5" | "qwen3_5_text" => &qwen_next::QWEN3_5,
        "qwen3_5_moe" | "qwen3_5_moe_text" => &qwen_next::QWEN3_5_MOE,
        "gemma2" => &gemma::GEMMA2,
        "gemma3" | "gemma3_text" => &gemma::GEMMA3,
        "gemma3n" | "gemma3n_text" => &gemma3n::GEMMA3N,
        "gemma4" | "gemma4_text" => &gemma4::GEMMA4,
        "gemma4_unified" | "gemma4_unified_text" => &gemma4::GEMMA4_UNIFIED,
        "glm4" => &glm::GLM4,
        "glm4_moe" => &glm::GLM4_MOE,
        "glm4_moe_lite" => &deepseek::GLM4_MOE_LITE,
        "deepseek_v3" => &deepseek::DEEPSEEK_V3,
        "kimi_k2" => &deepseek::KIMI_K2,
        "kimi_linear" => &kimi_linear::KIMI_LINEAR,
        "deepseek_v32" => &deepseek::DEEPSEEK_V32,
        "glm_moe_dsa" => &deepseek::GLM_MOE_DSA,
        "gpt_oss" => &gpt_oss::GPT_OSS,
        "nemotron_h" => &nemotron::NEMOTRON_H,
        "olmo3" => &olmo::OLMO3,
        "minimax_m2" => &minimax::MINIMAX_M2,
        "step3p5" => &step::STEP3P5,
        other if gemma4::ASSISTANTS.contains(&other) => {
            return Err(drafts_only(other).with("file", file.display()).with("field", "model_type"));
        }
        other => {
            return Err(unsupported("the architecture", other, SUPPORTED)
                .with("file", file.display())
                .with("field", "model_type"));
        }
    };
    let mut spec = describe(&config, prefix, family)?;
    // Wrappers may say it of their text part, by whose word transformers 5 goes, and older versions by the part's: where
    // one of both ties, there need not be a head.
    let field = "tie_word_embeddings";
    let of_root = root.bool_or(field, spec.tied_embeddings)?;
    spec.tied_embeddings = of_root || config.opt(field).is_some() && spec.tied_embeddings;
    Ok(spec)
}

/// The assistant in a `config`, but for what it uses of its model, and how many elements the model's hidden states have.
/// `None`: it describes something else.
pub(super) fn assistant(config: &Value, file: &PathBuf, prefix: String) -> Result<Option<(ArchSpec, usize)>> {
    let root = Config { file, at: "", value: config };
    // Files of heads have no configuration.
    if !root.opt_str("model_type")?.is_some_and(|found| gemma4::ASSISTANTS.contains(&found)) {
        return Ok(None);
    }
    let mut spec = describe(&root.section("text_config")?, prefix, &gemma4::ASSISTANT)?;
    only(&root, "tie_word_embeddings", root.bool_or("tie_word_embeddings", true)?, true)?;
    spec.names = spec.names.of_assistant("");
    Ok(Some((spec, root.usize("backbone_hidden_size")?)))
}

/// What a family is known to have, and what its configurations may leave out.
struct Family {
    label: &'static str,
    spelling: &'static Spelling,
    qk_norm: Option<QkNorm>,
    /// Inputs of attention and feed-forward block are normed.
    pre_norms: bool,
    /// Their outputs are normed, too.
    post_norms: bool,
    /// Added to stored norm weights.
    norm_offset: f32,
    /// Queries, keys and values have biases, whatever the configuration says.
    qkv_bias: bool,
    /// They have, and the output projection may have, unless `attention_bias` says so.
    attention_bias: bool,
    /// Where there are biases, the output projection has one, too.
    output_bias: bool,
    /// Feed-forward blocks may have biases (`mlp_bias`). Elsewhere that field counts for nothing.
    mlp_bias: bool,
    /// Heads may have parts that are not rotated: the share that is, unless `partial_rotary_factor` says so. Elsewhere that
    /// field counts for nothing.
    partial_rotary: Option<f32>,
    embedding_scale: fn(usize) -> f32,
    /// Sizes that configurations leave out where they are these.
    sizes: &'static [(&'static str, usize)],
    tied_embeddings: bool,
    context: usize,
    /// The field that says how many positions it was trained for.
    context_field: &'static str,
    eps: f32,
    /// The field that says how wide dense feed-forward blocks are.
    ffn_width: &'static str,
    /// It may be a list of each layer's.
    widths_by_layer: bool,
    /// The field that counts heads of keys and values.
    kv_heads: &'static str,
    head_dim: fn(usize, usize) -> usize,
    /// The field that names the activation, and the activation.
    activation: (&'static str, Activation),
    theta: f64,
    /// The rope base of layers with a window, where it is another one.
    local_theta: Option<f64>,
    /// Rotary embeddings are spelt in a way of its own.
    own_ropes: bool,
    /// Each layer's window.
    windows: fn(&Config<'_>, usize) -> Result<Vec<Option<usize>>>,
    mixture: fn(&Config<'_>, usize) -> Result<Option<Mixture>>,
    /// What only this family's configurations say, put into the description.
    own: fn(&Config<'_>, &mut ArchSpec) -> Result<()>,
}

/// Experts, and the layers that have them.
struct Mixture {
    spec: ExpertsSpec,
    width: usize,
    shared: Option<SharedExpert>,
    /// Of each layer, whether it has experts; the others are dense.
    sparse: Vec<bool>,
}

fn describe(config: &Config<'_>, prefix: String, family: &Family) -> Result<ArchSpec> {
    let common = Common::read(config, family)?;
    let asked = |kind, base, scaled| Asked {
        kind,
        base,
        scaled,
        head_dim: common.head_dim,
        partial: family.partial_rotary,
    };
    let mut ropes = Vec::new();
    if !family.own_ropes {
        ropes.push(rope::rope(config, asked("full_attention", ("rope_theta", family.theta), true))?);
    }
    if let Some(theta) = family.local_theta {
        ropes.push(rope::rope(config, asked("sliding_attention", ("rope_local_base_freq", theta), false))?);
    }
    let attention_bias = config.bool_or("attention_bias", family.attention_bias)? || family.qkv_bias;
    let attention = AttentionSpec {
        n_heads: common.n_heads,
        n_kv_heads: common.n_kv_heads,
        head_dim: common.head_dim,
        window: None,
        scale: (common.head_dim as f32).sqrt().recip(),
        softcap: None,
        qk_norm: family.qk_norm,
        value_norm: false,
        keys_as_values: false,
        latent: None,
        kv_of: None,
        query_growth: None,
        qkv_bias: attention_bias,
        output_bias: attention_bias && family.output_bias,
        sinks: false,
        head_gate: false,
        output_gate: false,
        beside_embedding: false,
        rope: Some(0),
    };
    let (field, activation) = family.activation;
    let dense = FfnSpec {
        width: 0,
        activation: config.activation_or(field, activation)?,
        bias: family.mlp_bias && config.bool_or("mlp_bias", false)?,
        experts: None,
        shared: None,
        cutoff: None,
    };
    let mixture = (family.mixture)(config, common.n_layers)?;
    let layer = |(layer, window): (usize, Option<usize>)| {
        let mixture = mixture.as_ref().filter(|m| m.sparse.get(layer) == Some(&true));
        let ffn = match mixture {
            Some(m) => {
                let shared = m.shared.map(|shared| SharedExpert { activation: dense.activation, ..shared });
                FfnSpec { width: m.width, bias: false, experts: Some(m.spec), shared, ..dense.clone() }
            }
            None => FfnSpec { width: common.ffn_widths.get(layer).copied().unwrap_or(0), ..dense.clone() },
        };
        let rope = Some(usize::from(window.is_some() && family.local_theta.is_some()));
        LayerSpec {
            mixer: Mixer::Attention(AttentionSpec {
                window: window.map(Window::Sliding),
                rope,
                ..attention.clone()
            }),
            ffn,
            attention_norm: family.pre_norms,
            ffn_norm: family.pre_norms,
            post_attention_norm: family.post_norms,
            post_ffn_norm: family.post_norms,
            input: None,
            output_scale: false,
            streams: None,
            bypass: None,
        }
    };
    let windows = (family.windows)(config, common.n_layers)?;
    let mut spec = ArchSpec {
        family: family.label.into(),
        hidden_size: common.hidden_size,
        vocab_size: common.vocab_size,
        context_length: config.usize_or(family.context_field, family.context)?,
        embedding_scale: (family.embedding_scale)(common.hidden_size),
        residual_scale: 1.0,
        logit_scale: 1.0,
        norm: NormSpec { eps: config.f32_or("rms_norm_eps", family.eps)?, weight_offset: family.norm_offset },
        tied_embeddings: config.bool_or("tie_word_embeddings", family.tied_embeddings)?,
        final_softcap: None,
        ahead: None,
        ropes,
        layers: windows.into_iter().enumerate().map(layer).collect(),
        names: TensorNames::new(prefix, family.spelling),
    };
    (family.own)(config, &mut spec)?;
    Ok(spec)
}

/// The window of the layers that slide, and none of the others: those that `layer_types` names, or every layer but each
/// `pattern`-th.
fn some_windows(config: &Config<'_>, n_layers: usize, pattern: usize) -> Result<Vec<Option<usize>>> {
    let window = config.usize_or("sliding_window", 4096)?;
    let sliding = sliding_layers(config, n_layers, pattern)?;
    Ok(sliding.into_iter().map(|sliding| sliding.then_some(window)).collect())
}

/// Which layers slide: `layer_types`, or every layer but each `sliding_window_pattern`-th, or else `pattern`-th.
fn sliding_layers(config: &Config<'_>, n_layers: usize, pattern: usize) -> Result<Vec<bool>> {
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
    let pattern = config.usize_or(field, pattern)?.max(1);
    Ok((0..n_layers).map(|layer| !(layer + 1).is_multiple_of(pattern)).collect())
}

/// What a value must be that this version knows no other of.
fn only<T: PartialEq + std::fmt::Debug>(
    config: &Config<'_>,
    field: &'static str,
    found: T,
    known: T,
) -> Result<()> {
    if found == known { Ok(()) } else { Err(variant(config, field, &found, &format!("{known:?}"))) }
}

/// A size that has to be left out.
fn without(config: &Config<'_>, field: &'static str) -> Result<()> {
    let found = config.opt_usize(field)?;
    found.map_or(Ok(()), |found| Err(variant(config, field, &found, "models that leave it out")))
}

fn variant(config: &Config<'_>, field: &'static str, found: &dyn std::fmt::Debug, known: &str) -> Error {
    unsupported("the variant", &format!("{field}: {found:?}"), known)
        .with("file", config.file.display())
        .with("field", field)
}

#[cfg(test)]
mod tests;
