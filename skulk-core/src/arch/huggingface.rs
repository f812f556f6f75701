//! What does this config.json describe? Hugging Face configurations, in both generations' spelling.
//!
//! transformers 5 writes `rope_parameters`; hubs mostly hold `rope_theta` and `rope_scaling`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::Value;

use super::config::Config;
use super::names::{HF_GEMMA3, HF_LLAMA, HF_MIXTRAL, LayerTensor, Spelling, TensorNames};
use super::{
    Activation, ArchSpec, AttentionSpec, ExpertsSpec, FfnSpec, LayerSpec, MAX_LAYERS, NormSpec, RopeLayout,
    RopeScaling, RopeSpec, SUPPORTED, unsupported,
};
use crate::error::Result;
use crate::weights::{Checkpoint, Metadata};

/// The description in a `config`, which the `file` holds, of tensors whose names begin with `prefix`.
pub(super) fn spec(config: &Value, file: &PathBuf, prefix: String) -> Result<ArchSpec> {
    let root = Config { file, at: "", value: config };
    let model_type = root.str("model_type")?;
    match model_type {
        "llama" => describe(&root, prefix, &LLAMA),
        "mistral" => describe(&root, prefix, &MISTRAL),
        "qwen2" => describe(&root, prefix, &QWEN2),
        "qwen3" | "qwen3_vl_text" => describe(&root, prefix, &QWEN3),
        // The multi-modal wrapper; texts alone turn as with one position each.
        "qwen3_vl" => describe(&root.section("text_config")?, prefix, &QWEN3),
        "qwen3_moe" => describe(&root, prefix, &QWEN3_MOE),
        "mixtral" => describe(&root, prefix, &MIXTRAL),
        "gemma2" => describe(&root, prefix, &GEMMA2),
        "gemma3_text" => describe(&root, prefix, &GEMMA3),
        // The multi-modal wrapper: its text half is a gemma3_text of its own.
        "gemma3" => describe(&root.section("text_config")?, prefix, &GEMMA3),
        other => Err(unsupported("the architecture", other, SUPPORTED)
            .with("file", file.display())
            .with("field", "model_type")),
    }
}

/// What a family is known to have, and what its configurations may leave out.
struct Family {
    label: &'static str,
    spelling: &'static Spelling,
    qk_norm: bool,
    /// Outputs of attention and feed-forward block are normed, too.
    post_norms: bool,
    /// Added to stored norm weights.
    norm_offset: f32,
    /// Queries, keys and values have biases, whatever the configuration says.
    qkv_bias: bool,
    /// Scores and logits are capped where the configuration says, or like this where it says nothing.
    softcaps: Option<[Option<f32>; 2]>,
    embedding_scale: fn(usize) -> f32,
    tied_embeddings: bool,
    /// Feed-forward blocks may have biases (`mlp_bias`), and heads parts that are not rotated
    /// (`partial_rotary_factor`). Elsewhere these fields count for nothing.
    has_variants: bool,
    context: usize,
    eps: f32,
    head_dim: fn(usize, usize) -> usize,
    /// What query·key products are divided by the root of: `query_pre_attn_scalar`, or this; `None`: the head dimension.
    query_scalar: Option<f32>,
    /// The field that names the activation, and the activation.
    activation: (&'static str, Activation),
    theta: f64,
    /// The rope base of layers with a window, where it is another one.
    local_theta: Option<f64>,
    /// Each layer's window.
    windows: fn(&Config<'_>, usize) -> Result<Vec<Option<usize>>>,
    mixture: fn(&Config<'_>) -> Result<Option<Mixture>>,
}

/// Experts, and the layers that have them.
struct Mixture {
    spec: ExpertsSpec,
    width: usize,
    /// Every `step`-th layer has experts, the others are dense.
    step: usize,
    /// Layers that are dense nevertheless.
    dense: BTreeSet<usize>,
}

const LLAMA: Family = Family {
    label: "llama",
    spelling: &HF_LLAMA,
    qk_norm: false,
    post_norms: false,
    norm_offset: 0.0,
    qkv_bias: false,
    softcaps: None,
    embedding_scale: |_| 1.0,
    tied_embeddings: false,
    has_variants: true,
    context: 2048,
    eps: 1e-6,
    head_dim: |hidden, heads| hidden / heads.max(1),
    query_scalar: None,
    activation: ("hidden_act", Activation::Silu),
    theta: 10_000.0,
    local_theta: None,
    windows: |_, n_layers| Ok(vec![None; n_layers]),
    mixture: |_| Ok(None),
};
const MISTRAL: Family = Family {
    label: "mistral",
    has_variants: false,
    context: 131_072,
    windows: |config, n_layers| Ok(vec![config.usize_unless_null("sliding_window", 4096)?; n_layers]),
    ..LLAMA
};
const QWEN2: Family = Family {
    label: "qwen2",
    qkv_bias: true,
    has_variants: false,
    context: 32_768,
    windows: qwen_windows,
    ..LLAMA
};
const QWEN3: Family = Family {
    label: "qwen3",
    qk_norm: true,
    context: 32_768,
    head_dim: |_, _| 128,
    windows: qwen_windows,
    ..LLAMA
};
const QWEN3_MOE: Family =
    Family { label: "qwen3_moe", head_dim: LLAMA.head_dim, mixture: qwen3_moe, ..QWEN3 };
const MIXTRAL: Family = Family {
    label: "mixtral",
    spelling: &HF_MIXTRAL,
    context: 131_072,
    theta: 1_000_000.0,
    eps: 1e-5,
    windows: |config, n_layers| Ok(vec![config.opt_usize("sliding_window")?; n_layers]),
    mixture: mixtral,
    ..LLAMA
};
const GEMMA3: Family = Family {
    label: "gemma3",
    spelling: &HF_GEMMA3,
    qk_norm: true,
    post_norms: true,
    norm_offset: 1.0,
    softcaps: Some([None; 2]),
    embedding_scale: |hidden| (hidden as f32).sqrt(),
    tied_embeddings: true,
    has_variants: false,
    context: 131_072,
    head_dim: |_, _| 256,
    query_scalar: Some(256.0),
    activation: ("hidden_activation", Activation::GeluTanh),
    theta: 1_000_000.0,
    local_theta: Some(10_000.0),
    windows: |config, n_layers| gemma_windows(config, n_layers, 6),
    ..LLAMA
};
const GEMMA2: Family = Family {
    label: "gemma2",
    qk_norm: false,
    softcaps: Some([Some(50.0), Some(30.0)]),
    context: 8192,
    theta: 10_000.0,
    local_theta: None,
    windows: |config, n_layers| gemma_windows(config, n_layers, 2),
    ..GEMMA3
};

fn describe(config: &Config<'_>, prefix: String, family: &Family) -> Result<ArchSpec> {
    let common = Common::read(config, family.head_dim)?;
    let dim = if family.has_variants { rotary_dim(config, common.head_dim)? } else { common.head_dim };
    let mut ropes = vec![rope_spec(config, "full_attention", family.theta, true, dim)?];
    if let Some(theta) = family.local_theta {
        ropes.push(rope_spec(config, "sliding_attention", theta, false, dim)?);
    }
    let softcap = |key, at: usize| match family.softcaps {
        Some(caps) if config.is_absent(key) => Ok(caps[at]),
        Some(_) => config.opt_f32(key),
        None => Ok(None),
    };
    let attention_bias = config.bool_or("attention_bias", false)?;
    let attention = AttentionSpec {
        n_heads: common.n_heads,
        n_kv_heads: common.n_kv_heads,
        head_dim: common.head_dim,
        window: None,
        scale: match family.query_scalar {
            Some(scalar) => config.f32_or("query_pre_attn_scalar", scalar)?,
            None => common.head_dim as f32,
        }
        .sqrt()
        .recip(),
        softcap: softcap("attn_logit_softcapping", 0)?,
        qk_norm: family.qk_norm,
        qkv_bias: attention_bias || family.qkv_bias,
        output_bias: attention_bias,
        rope: 0,
    };
    let (field, activation) = family.activation;
    let dense = FfnSpec {
        width: common.ffn_width,
        activation: config.activation_or(field, activation)?,
        bias: family.has_variants && config.bool_or("mlp_bias", false)?,
        experts: None,
    };
    let mixture = (family.mixture)(config)?;
    let layer = |(layer, window): (usize, Option<usize>)| {
        let mixture =
            mixture.as_ref().filter(|m| (layer + 1).is_multiple_of(m.step) && !m.dense.contains(&layer));
        let ffn = match mixture {
            Some(m) => FfnSpec { width: m.width, bias: false, experts: Some(m.spec), ..dense.clone() },
            None => dense.clone(),
        };
        let rope = usize::from(window.is_some() && family.local_theta.is_some());
        LayerSpec {
            attention: AttentionSpec { window, rope, ..attention.clone() },
            ffn,
            post_attention_norm: family.post_norms,
            post_ffn_norm: family.post_norms,
        }
    };
    let windows = (family.windows)(config, common.n_layers)?;
    Ok(ArchSpec {
        family: family.label.into(),
        hidden_size: common.hidden_size,
        vocab_size: common.vocab_size,
        context_length: config.usize_or("max_position_embeddings", family.context)?,
        embedding_scale: (family.embedding_scale)(common.hidden_size),
        norm: NormSpec { eps: config.f32_or("rms_norm_eps", family.eps)?, weight_offset: family.norm_offset },
        tied_embeddings: config.bool_or("tie_word_embeddings", family.tied_embeddings)?,
        final_softcap: softcap("final_logit_softcapping", 1)?,
        ropes,
        layers: windows.into_iter().enumerate().map(layer).collect(),
        names: TensorNames { prefix, spelling: family.spelling },
    })
}

/// Published configurations name a window and switch it off.
fn qwen_windows(config: &Config<'_>, n_layers: usize) -> Result<Vec<Option<usize>>> {
    if config.bool_or("use_sliding_window", false)? {
        return Err(unsupported("the variant", "use_sliding_window", "attention to all positions")
            .with("file", config.file.display()));
    }
    Ok(vec![None; n_layers])
}

fn qwen3_moe(config: &Config<'_>) -> Result<Option<Mixture>> {
    let step = config.usize_or("decoder_sparse_step", 1)?;
    if step == 0 {
        return Err(config.error("decoder_sparse_step", "expected at least 1, found 0".into()));
    }
    // Hubs hold `num_experts`; transformers 5 writes the name that other families have.
    let n_experts = match config.opt_usize("num_experts")? {
        Some(n) => n,
        None => config.usize("num_local_experts")?,
    };
    let spec = ExpertsSpec {
        n_experts,
        n_used: config.usize("num_experts_per_tok")?,
        normalise: config.bool_or("norm_topk_prob", false)?,
    };
    let dense = config.usizes("mlp_only_layers")?;
    Ok(Some(Mixture { spec, width: config.usize("moe_intermediate_size")?, step, dense }))
}

fn mixtral(config: &Config<'_>) -> Result<Option<Mixture>> {
    let spec = ExpertsSpec {
        n_experts: config.usize("num_local_experts")?,
        n_used: config.usize("num_experts_per_tok")?,
        normalise: true,
    };
    let width = config.usize("intermediate_size")?;
    Ok(Some(Mixture { spec, width, step: 1, dense: BTreeSet::new() }))
}

/// Every layer but each `pattern`-th has a window, unless the configuration says otherwise.
fn gemma_windows(config: &Config<'_>, n_layers: usize, pattern: usize) -> Result<Vec<Option<usize>>> {
    if config.bool_or("use_bidirectional_attention", false)? {
        return Err(unsupported("the variant", "use_bidirectional_attention", "causal attention")
            .with("file", config.file.display()));
    }
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

/// Before the text model's tensor names; multi-modal checkpoints nest them deeper, a vindex not at all.
pub(super) fn prefix(checkpoint: &dyn Checkpoint) -> String {
    if matches!(checkpoint.metadata(), Metadata::Vindex(_)) {
        return String::new();
    }
    ["model.", "language_model.model.", "model.language_model."]
        .into_iter()
        .find(|prefix| {
            // Scales are floats, whatever is wrong with a quantised table.
            ["weight", "scales"]
                .iter()
                .any(|kind| checkpoint.tensor(&format!("{prefix}embed_tokens.{kind}")).is_some())
        })
        .unwrap_or("model.")
        .to_owned()
}

/// Lets experts be called as they are stacked, where they are.
pub(super) fn stack(spec: &mut ArchSpec, checkpoint: &dyn Checkpoint) {
    let sparse = spec.layers.iter().position(|layer| layer.ffn.experts.is_some());
    let (Some(layer), Some(names)) = (sparse, spec.names.stacked()) else { return };
    let weight = names.weight(layer, LayerTensor::ExpertGate);
    // Scales are floats, whatever is wrong with the words.
    let scales = weight.strip_suffix("weight").map(|module| format!("{module}scales"));
    if [Some(weight.clone()), scales].into_iter().flatten().any(|name| checkpoint.tensor(&name).is_some()) {
        spec.names = names;
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// As in transformers, whose Gemma 3 has neither biases in feed-forward blocks nor heads that are rotated in part.
    #[test]
    fn gemma_3_has_no_variants() {
        let described = |model: &str, field: &str, value: Value| {
            let file = format!("{}/../tests/fixtures/models/{model}/config.json", env!("CARGO_MANIFEST_DIR"));
            let mut config: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
            config[field] = value;
            spec(&config, &file.into(), String::new()).unwrap()
        };
        for (field, value) in [("mlp_bias", true.into()), ("partial_rotary_factor", 0.5.into())] {
            for (model, counts) in [("gemma3", false), ("llama", true)] {
                let plain = described(model, field, Value::Null);
                assert_eq!(described(model, field, Value::clone(&value)) != plain, counts, "{model} {field}");
            }
        }
    }
}
