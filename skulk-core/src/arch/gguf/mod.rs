//! What do this GGUF file's key-values describe?

mod deepseek;
mod eagle;
mod gemma;
mod gemma4;
mod glm;
mod gpt_oss;
mod keys;
mod kimi_linear;
mod llama;
mod llama4;
mod mamba;
mod qwen_next;
mod step;
mod used;

use self::keys::Keys;
pub(super) use self::used::expect_used;
use super::ahead::Eagle;
use super::names::{GGUF, TensorNames};
use super::{
    Activation, ArchSpec, AttentionSpec, FfnSpec, LayerSpec, MAX_LAYERS, Mixer, NormSpec, RopeSpec,
    SUPPORTED, drafts_only, unsupported,
};
use crate::error::Result;
use crate::weights::Checkpoint;
use crate::weights::gguf::GgufMetadata;

pub(super) fn spec(metadata: &GgufMetadata, checkpoint: &dyn Checkpoint) -> Result<ArchSpec> {
    let arch = metadata.str("general.architecture")?;
    let keys = Keys { metadata, arch };
    match arch {
        "llama" | "qwen2" | "qwen3" | "qwen3moe" => llama::llama(&keys, checkpoint),
        "phi3" => llama::phi3(&keys, checkpoint),
        "granite" => llama::granite(&keys, checkpoint),
        "mistral3" => llama::mistral3(&keys, checkpoint),
        "smollm3" => llama::smollm3(&keys, checkpoint),
        "olmo2" => llama::olmo2(&keys, checkpoint),
        "gemma2" => gemma::gemma2(&keys, checkpoint),
        "gemma3" => gemma::gemma3(&keys, checkpoint),
        "gemma3n" => gemma4::gemma3n(&keys, checkpoint),
        "gemma4" => gemma4::gemma4(&keys, checkpoint),
        "llama4" => llama4::llama4(&keys, checkpoint),
        "deepseek2" => deepseek::deepseek2(&keys, checkpoint),
        "deepseek32" | "glm-dsa" => deepseek::sparse(&keys, checkpoint),
        "kimi-linear" => kimi_linear::kimi_linear(&keys, checkpoint),
        "step35" => step::step35(&keys, checkpoint),
        "granitehybrid" => mamba::granite_hybrid(&keys, checkpoint),
        "nemotron_h" | "nemotron_h_moe" => mamba::nemotron_h(&keys, checkpoint),
        "glm4" => glm::glm4(&keys, checkpoint),
        "glm4moe" => glm::glm4_moe(&keys, checkpoint),
        "minimax-m2" => glm::minimax_m2(&keys, checkpoint),
        "gpt-oss" => gpt_oss::gpt_oss(&keys, checkpoint),
        "qwen3next" | "qwen35" | "qwen35moe" => qwen_next::qwen_next(&keys, checkpoint),
        other => {
            let error = match gemma4::ASSISTANTS.contains(&other) || other == eagle::EAGLE3 {
                true => drafts_only(other),
                false => unsupported("the architecture", other, SUPPORTED),
            };
            Err(error.with("file", metadata.file().display()).with("field", "general.architecture"))
        }
    }
}

/// The assistant that a file holds, but for what it uses of its model, and how many elements the model's hidden states have.
/// `None`: it holds something else.
pub(super) fn assistant(
    metadata: &GgufMetadata,
    checkpoint: &dyn Checkpoint,
) -> Result<Option<(ArchSpec, usize)>> {
    let arch = metadata.str("general.architecture")?;
    let known = gemma4::ASSISTANTS.contains(&arch);
    known.then(|| gemma4::assistant(&Keys { metadata, arch }, checkpoint)).transpose()
}

/// The EAGLE-3 head that a file holds. `None`: it holds something else.
pub(super) fn eagle(metadata: &GgufMetadata, checkpoint: &dyn Checkpoint) -> Result<Option<Eagle>> {
    let arch = metadata.str("general.architecture")?;
    (arch == eagle::EAGLE3).then(|| eagle::eagle(&Keys { metadata, arch }, checkpoint)).transpose()
}

/// Families whose heads are never their embeddings.
const UNTIED: [&str; 5] = ["gpt-oss", "kimi-linear", "minimax-m2", "olmo2", "step35"];

/// Whether a layer has one of these tensors: where it has one of several that belong together, it must have them all.
fn has_any(checkpoint: &dyn Checkpoint, at: usize, tensors: &[&str]) -> bool {
    tensors.iter().any(|tensor| checkpoint.tensor(&format!("blk.{at}.{tensor}")).is_some())
}

/// Biases of queries, keys and values.
const QKV_BIAS: [&str; 3] = ["attn_q.bias", "attn_k.bias", "attn_v.bias"];
const QK_NORM: [&str; 2] = ["attn_q_norm.weight", "attn_k_norm.weight"];
const FFN_BIAS: [&str; 3] = ["ffn_gate.bias", "ffn_up.bias", "ffn_down.bias"];

/// What families have in common; `own` adds to each layer what its family has beside.
fn plain(
    keys: &Keys<'_>,
    checkpoint: &dyn Checkpoint,
    sizes: &Sizes,
    ropes: Vec<RopeSpec>,
    own: impl Fn(usize, &mut LayerSpec),
) -> Result<ArchSpec> {
    let attention = AttentionSpec { rope: Some(0), ..AttentionSpec::plain([0, 0], sizes.head_dim) };
    let layer = |(at, ((&n_heads, &n_kv_heads), &width))| {
        let mut layer = LayerSpec {
            mixer: Mixer::Attention(AttentionSpec { n_heads, n_kv_heads, ..attention.clone() }),
            ffn: FfnSpec {
                width,
                activation: Activation::Silu,
                bias: false,
                experts: None,
                shared: None,
                cutoff: None,
            },
            attention_norm: true,
            ffn_norm: true,
            post_attention_norm: false,
            post_ffn_norm: false,
            input: None,
            output_scale: false,
            streams: None,
            bypass: None,
        };
        own(at, &mut layer);
        layer
    };
    let heads = sizes.n_heads.iter().zip(&sizes.n_kv_heads);
    Ok(ArchSpec {
        family: keys.arch.into(),
        hidden_size: sizes.hidden_size,
        vocab_size: keys.vocab_size(checkpoint)?,
        context_length: sizes.context_length,
        embedding_scale: 1.0,
        residual_scale: 1.0,
        logit_scale: 1.0,
        norm: NormSpec { eps: keys.eps()?, weight_offset: 0.0 },
        tied_embeddings: checkpoint.tensor("output.weight").is_none() && !UNTIED.contains(&keys.arch),
        final_softcap: None,
        ahead: None,
        ropes,
        layers: heads.zip(&sizes.ffn_width).enumerate().map(layer).collect(),
        names: TensorNames::new(String::new(), &GGUF),
    })
}

/// Sizes every family has; some of them may differ between layers.
struct Sizes {
    hidden_size: usize,
    context_length: usize,
    n_layers: usize,
    n_heads: Vec<usize>,
    head_dim: usize,
    n_kv_heads: Vec<usize>,
    ffn_width: Vec<usize>,
}

impl Sizes {
    fn read(keys: &Keys<'_>) -> Result<Self> {
        Self::of_any_values(keys)?.with_values(keys)
    }

    /// The same sizes, where values are as long as keys.
    fn with_values(self, keys: &Keys<'_>) -> Result<Self> {
        let value_dim = keys.opt_usize("attention.value_length")?.unwrap_or(self.head_dim);
        if value_dim != self.head_dim {
            let message = format!("expected the key length {}, found {value_dim}", self.head_dim);
            return Err(keys.error("attention.value_length", message));
        }
        Ok(self)
    }

    /// The same of heads whose values may be shorter than keys.
    fn of_any_values(keys: &Keys<'_>) -> Result<Self> {
        // Layers that predict tokens ahead are counted, too, and not run.
        Self::but_for(keys, keys.opt_usize("nextn_predict_layers")?.unwrap_or(0))
    }

    /// The same of all layers but so many.
    fn but_for(keys: &Keys<'_>, ahead: usize) -> Result<Self> {
        let hidden_size = keys.usize("embedding_length")?;
        let n_layers = keys.usize("block_count")?.saturating_sub(ahead);
        if n_layers > MAX_LAYERS {
            return Err(keys.error("block_count", format!("expected at most {MAX_LAYERS}, found {n_layers}")));
        }
        let n_heads = match keys.per_layer("attention.head_count", n_layers)? {
            Some(n_heads) => n_heads,
            None => vec![keys.usize("attention.head_count")?; n_layers],
        };
        let of_first = hidden_size / n_heads.first().copied().unwrap_or(1).max(1);
        let head_dim = keys.opt_usize("attention.key_length")?.unwrap_or(of_first);
        Ok(Self {
            hidden_size,
            context_length: keys.usize("context_length")?,
            n_layers,
            head_dim,
            n_kv_heads: keys
                .per_layer("attention.head_count_kv", n_layers)?
                .unwrap_or_else(|| n_heads.clone()),
            n_heads,
            // Where all layers have experts, there may be no other width.
            ffn_width: match keys.per_layer("feed_forward_length", n_layers)? {
                Some(widths) => widths,
                None => vec![keys.usize_of("feed_forward_length", "expert_feed_forward_length")?; n_layers],
            },
        })
    }
}
