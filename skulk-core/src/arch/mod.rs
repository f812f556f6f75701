//! What does this decoder compute? One description, filled from a config.json or GGUF metadata.
//!
//! [`ArchSpec`] holds facts (sizes, windows, norms, names), never code. The decoder reads facts
//! alone, so a new family is a new way to fill them in.

mod config;
mod gguf;
mod huggingface;
mod names;
mod rope;

pub(crate) use names::TensorRole;
pub use names::{LayerTensor, TensorNames};
pub use rope::{RopeLayout, RopeScaling, RopeSpec};

use std::fmt::Display;

use crate::error::{Error, ErrorKind, Result};
use crate::weights::{Checkpoint, Metadata};

/// Upper bound for every count and size in a configuration; real models stay far below it.
const MAX_SIZE: usize = 1 << 28;
/// Upper bound for the number of layers.
pub(crate) const MAX_LAYERS: usize = 1 << 12;
/// Upper bound for the number of experts of a layer.
const MAX_EXPERTS: usize = 1 << 14;

/// A decoder-only transformer, described.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ArchSpec {
    /// Family label as the checkpoint spells it, e.g. `llama`; for people, never branched on.
    pub family: String,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Rows of the embedding table.
    pub vocab_size: usize,
    /// Positions the model was trained for, in tokens.
    pub context_length: usize,
    /// Multiplies token embeddings (Gemma: the square root of the hidden size).
    pub embedding_scale: f32,
    /// RMS norms: epsilon, and what is added to stored norm weights.
    pub norm: NormSpec,
    /// The output head is the embedding table.
    pub tied_embeddings: bool,
    /// Squashes logits to ±cap with `cap · tanh(x / cap)`.
    pub final_softcap: Option<f32>,
    /// Rotary embeddings that layers refer to by index.
    pub ropes: Vec<RopeSpec>,
    /// One description per layer.
    pub layers: Vec<LayerSpec>,
    /// How the checkpoint spells tensor names.
    pub names: TensorNames,
}

/// Root-mean-square normalisation (Zhang & Sennrich 2019).
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct NormSpec {
    /// Added to the mean square.
    pub eps: f32,
    /// Added to the stored weights: 1 for Gemma's safetensors, else 0.
    pub weight_offset: f32,
}

/// One decoder layer.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LayerSpec {
    /// Attention.
    pub attention: AttentionSpec,
    /// Feed-forward block.
    pub ffn: FfnSpec,
    /// Attention output is normed before it joins the residual stream.
    pub post_attention_norm: bool,
    /// Feed-forward output is normed before it joins the residual stream.
    pub post_ffn_norm: bool,
}

/// Causal grouped-query attention of one layer.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct AttentionSpec {
    /// Query heads.
    pub n_heads: usize,
    /// Key/value heads; divides `n_heads`.
    pub n_kv_heads: usize,
    /// Elements in a head.
    pub head_dim: usize,
    /// A query sees itself and the `window - 1` positions before it; `None`: all before it.
    pub window: Option<usize>,
    /// Multiplies query·key products.
    pub scale: f32,
    /// Squashes attention scores to ±cap.
    pub softcap: Option<f32>,
    /// Queries and keys are RMS-normed per head.
    pub qk_norm: bool,
    /// Query, key and value projections have a bias.
    pub qkv_bias: bool,
    /// The output projection has a bias.
    pub output_bias: bool,
    /// Index into [`ArchSpec::ropes`].
    pub rope: usize,
}

/// Gated feed-forward block: `down(act(gate(x)) · up(x))`, dense or a mixture of experts.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct FfnSpec {
    /// Inner width; of a mixture, each expert's.
    pub width: usize,
    /// Applied to the gate.
    pub activation: Activation,
    /// All three projections have a bias.
    pub bias: bool,
    /// The block is a mixture of experts, each such a block; `None`: dense.
    pub experts: Option<ExpertsSpec>,
}

/// A sparse mixture of experts (Shazeer et al. 2017): a router gives each row probabilities over
/// the experts, the most probable ones compute it, and their results are added, weighted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExpertsSpec {
    /// Experts in the layer.
    pub n_experts: usize,
    /// Experts that a row takes.
    pub n_used: usize,
    /// The weights of the experts taken are scaled to a sum of 1.
    pub normalise: bool,
}

/// The gate's non-linearity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activation {
    /// `x · sigmoid(x)`.
    Silu,
    /// GELU, tanh approximation.
    GeluTanh,
    /// GELU with the error function.
    Gelu,
}

impl ArchSpec {
    /// Reads the description out of a checkpoint's metadata.
    ///
    /// # Errors
    /// [`ErrorKind::ArchUnsupported`] for a family or variant this version cannot run,
    /// [`ErrorKind::ConfigInvalid`] for absent fields and impossible values.
    pub fn from_checkpoint(checkpoint: &dyn Checkpoint) -> Result<Self> {
        let spec = match checkpoint.metadata() {
            Metadata::Gguf(metadata) => gguf::spec(metadata, checkpoint)?,
            Metadata::HuggingFace(metadata) => {
                let file = metadata.folder.join("config.json");
                let mut spec = huggingface::spec(&metadata.config, &file, huggingface::prefix(checkpoint))?;
                huggingface::stack(&mut spec, checkpoint);
                spec
            }
            Metadata::Vindex(metadata) => {
                let configuration = metadata.configuration();
                let file = configuration.folder.join("index.json");
                let prefix = huggingface::prefix(checkpoint);
                let mut spec = huggingface::spec(&configuration.config, &file, prefix)?;
                spec.embedding_scale = metadata.index().embed_scale;
                spec
            }
        };
        spec.check().map_err(|e| e.with("file", checkpoint.path().display()))?;
        Ok(spec)
    }

    /// Reads the description out of a configuration in Hugging Face's spelling, of tensors whose names have nothing
    /// before them. The `file` only serves messages.
    ///
    /// # Errors
    /// As [`from_checkpoint`](Self::from_checkpoint).
    pub(crate) fn from_config(config: &serde_json::Value, file: &std::path::PathBuf) -> Result<Self> {
        let spec = huggingface::spec(config, file, String::new())?;
        spec.check().map_err(|e| e.with("file", file.display()))?;
        Ok(spec)
    }

    /// Number of decoder layers.
    pub fn n_layers(&self) -> usize {
        self.layers.len()
    }

    /// Checks what the decoder's arithmetic relies on: what was read from a checkpoint, and again what is loaded, as
    /// fields may have been changed since.
    ///
    /// # Errors
    /// [`ErrorKind::ConfigInvalid`] for impossible values.
    pub fn check(&self) -> Result<()> {
        let size = |field: &'static str, value: usize, max: usize| {
            if (1..=max).contains(&value) {
                return Ok(());
            }
            Err(invalid(field, format!("expected 1 to {max}, found {value}")))
        };
        size("hidden size", self.hidden_size, MAX_SIZE)?;
        size("vocabulary size", self.vocab_size, MAX_SIZE)?;
        size("context length", self.context_length, MAX_SIZE)?;
        size("number of layers", self.layers.len(), MAX_LAYERS)?;
        if !(self.norm.eps.is_finite() && self.norm.eps >= 0.0) {
            return Err(invalid(
                "norm epsilon",
                format!("expected a number of at least 0, found {}", self.norm.eps),
            ));
        }
        positive("embedding scale", self.embedding_scale)?;
        self.final_softcap.map_or(Ok(()), |cap| positive("final logit soft-cap", cap))?;
        for rope in &self.ropes {
            rope.check()?;
        }
        for layer in &self.layers {
            let a = &layer.attention;
            size("attention heads", a.n_heads, 1 << 16)?;
            size("key/value heads", a.n_kv_heads, 1 << 16)?;
            size("head dimension", a.head_dim, 1 << 16)?;
            size("feed-forward width", layer.ffn.width, MAX_SIZE)?;
            if let Some(experts) = layer.ffn.experts {
                size("experts", experts.n_experts, MAX_EXPERTS)?;
                size("experts for each row", experts.n_used, experts.n_experts)?;
            }
            if !a.n_heads.is_multiple_of(a.n_kv_heads) {
                return Err(invalid(
                    "key/value heads",
                    format!("expected a divisor of the {} query heads, found {}", a.n_heads, a.n_kv_heads),
                ));
            }
            if let Some(window) = a.window {
                size("sliding window", window, MAX_SIZE)?;
            }
            positive("attention scale", a.scale)?;
            a.softcap.map_or(Ok(()), |cap| positive("attention soft-cap", cap))?;
            let rope = self.ropes.get(a.rope).ok_or_else(|| {
                let message = format!("expected an index below {}, found {}", self.ropes.len(), a.rope);
                invalid("rotary embedding", message)
            })?;
            if rope.dim > a.head_dim {
                return Err(invalid(
                    "rotary dimension",
                    format!("expected at most the head dimension {}, found {}", a.head_dim, rope.dim),
                ));
            }
        }
        Ok(())
    }
}

/// A value of the configuration that cannot be.
fn invalid(field: &'static str, message: String) -> Error {
    Error::new(ErrorKind::ConfigInvalid, message)
        .with("field", field)
        .with_hint("the model's configuration is broken or of a newer kind: fetch it again, or update skulk")
}

/// `Ok` when a number is finite and more than 0.
fn positive(field: &'static str, value: impl Into<f64> + Copy + Display) -> Result<()> {
    let number: f64 = value.into();
    if number.is_finite() && number > 0.0 {
        return Ok(());
    }
    Err(invalid(field, format!("expected a positive number, found {value}")))
}

/// A family or variant this version cannot run.
fn unsupported(what: &str, found: &str, supported: &str) -> Error {
    Error::new(ErrorKind::ArchUnsupported, format!("{what} `{found}` is not supported"))
        .with_hint(format!("supported: {supported}"))
}

/// Families this version can run, for messages.
const SUPPORTED: &str = "llama, mistral, mixtral, qwen2, qwen3, qwen3 with experts, gemma2, gemma3";

/// The name of an activation in configurations.
fn activation(name: &str) -> Result<Activation> {
    match name {
        "silu" | "swish" => Ok(Activation::Silu),
        "gelu_pytorch_tanh" | "gelu_new" => Ok(Activation::GeluTanh),
        "gelu" => Ok(Activation::Gelu),
        other => Err(unsupported("the activation", other, "silu, gelu_pytorch_tanh, gelu")),
    }
}
