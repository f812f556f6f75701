//! What does this decoder compute? One description, filled from a config.json or GGUF metadata.
//!
//! [`ArchSpec`] holds facts (sizes, windows, norms, names), never code. The decoder reads facts
//! alone, so a new family is a new way to fill them in.

mod ahead;
mod attention;
mod config;
mod drafts;
mod ffn;
mod gguf;
mod huggingface;
mod kept;
#[cfg(feature = "bench-internals")]
pub(crate) mod listed;
mod mixer;
mod names;
mod recurrent;
mod rope;
mod sharing;
mod step;
mod streams;
mod window;

pub use ahead::{AheadSpec, TakenNorm};
pub use attention::{AttentionSpec, IndexSpec, LatentSpec, QkNorm, QueryGrowth};
pub use ffn::{Activation, ExpertGroups, ExpertsSpec, FfnSpec, Scoring, SharedExpert};
pub(crate) use kept::{CHUNK, PAGE, SHORTLIST, kept_positions, shortlisted, step_rows};
pub use mixer::Mixer;
pub use names::{LayerTensor, TensorNames};
pub(crate) use names::{Stacks, TensorRole};
#[cfg(feature = "generate")]
pub(crate) use recurrent::MOST_CONVOLVED;
pub(crate) use recurrent::STATES_HELD;
pub use recurrent::{Interleaved, KeyHeads, RecurrentGate, RecurrentRule, RecurrentSpec, StoredDecay};
pub use rope::{RopeLayout, RopeScaling, RopeSpec};
pub(crate) use step::RowWidths;
pub use streams::StreamsSpec;
pub use window::Window;

use std::fmt::Display;

use crate::error::{Error, ErrorKind, Result};
use crate::weights::{Checkpoint, Metadata, stored_bytes};

/// Upper bound for every count and size in a configuration; real models stay far below it.
const MAX_SIZE: usize = 1 << 28;
/// Positions that a sequence has at most: beyond, f32 numbers, which angles are computed from, skip some.
pub(crate) const MAX_CONTEXT: usize = 1 << 24;
/// Upper bound for the number of layers.
pub(crate) const MAX_LAYERS: usize = 1 << 12;
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
    /// Multiplies what a block adds to the residual stream (Granite); elsewhere 1.
    pub residual_scale: f32,
    /// Multiplies logits before they are capped (Granite); elsewhere 1.
    pub logit_scale: f32,
    /// RMS norms: epsilon, and what is added to stored norm weights.
    pub norm: NormSpec,
    /// The output head is the embedding table.
    pub tied_embeddings: bool,
    /// Squashes logits to ±cap with `cap · tanh(x / cap)`.
    pub final_softcap: Option<f32>,
    /// Rotary embeddings that layers refer to by index.
    pub ropes: Vec<RopeSpec>,
    /// It drafts for another model, whose embeddings it uses.
    pub ahead: Option<AheadSpec>,
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
    /// How a position learns of those before it.
    pub mixer: Mixer,
    /// Feed-forward block.
    pub ffn: FfnSpec,
    /// Attention's input is normed: in all families but OLMo's.
    pub attention_norm: bool,
    /// The feed-forward block's input is normed, likewise.
    pub ffn_norm: bool,
    /// Attention output is normed before it joins the residual stream.
    pub post_attention_norm: bool,
    /// Feed-forward output is normed before it joins the residual stream.
    pub post_ffn_norm: bool,
    /// Behind the feed-forward block, a row of each token's own for this layer joins the residual stream.
    pub input: Option<LayerInput>,
    /// The residual stream behind the layer is multiplied by a number of the layer's.
    pub output_scale: bool,
    /// There are several residual streams; `None`: one.
    pub streams: Option<StreamsSpec>,
    /// A way around attention (LAuReL, Menghani et al. 2024), through so many elements: attention's input, and what two
    /// matrices make of it, normed, join the residual stream beside attention, and all of it is divided by √2.
    pub bypass: Option<usize>,
}

/// What a layer gets of each token beside the residual stream (Gemma 3n and 4): a row of a table and a projection of the
/// token's embedding, which are added, gated by the residual stream, projected and normed. Of several streams the active one
/// gates, and all but the first take what that gives.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct LayerInput {
    /// Elements of a row.
    pub width: usize,
    /// Rows of the table: tokens beyond take the first one.
    pub rows: usize,
    /// Applied to the gate.
    pub activation: Activation,
}

/// Families of which LARQL's index tells all that it takes to run them.
const TOLD_BY_LARQL: [&str; 11] = [
    "llama",
    "mistral",
    "mixtral",
    "qwen2",
    "qwen3",
    "qwen3_moe",
    "gemma2",
    "gemma3",
    "gemma3_text",
    "gemma4",
    "gemma4_text",
];

impl ArchSpec {
    /// Reads the description out of a checkpoint's metadata.
    ///
    /// # Errors
    /// [`ErrorKind::ArchUnsupported`] for a family or variant this version cannot run,
    /// [`ErrorKind::ConfigInvalid`] for absent fields and impossible values.
    pub fn from_checkpoint(checkpoint: &dyn Checkpoint) -> Result<Self> {
        let spec = match checkpoint.metadata() {
            Metadata::Gguf(metadata) => {
                let mut spec = gguf::spec(metadata, checkpoint)?;
                huggingface::reword(&mut spec, checkpoint);
                gguf::expect_used(&spec, metadata, checkpoint)?;
                spec
            }
            Metadata::HuggingFace(metadata) => {
                let file = metadata.folder.join("config.json");
                let mut spec = huggingface::spec(&metadata.config, &file, huggingface::prefix(checkpoint))?;
                huggingface::reword(&mut spec, checkpoint);
                huggingface::converted(&mut spec, checkpoint);
                spec.tied_embeddings &= !huggingface::own_head(&spec, &metadata.config, checkpoint);
                spec
            }
            Metadata::Vindex(metadata) => {
                let configuration = metadata.configuration();
                let file = configuration.folder.join("index.json");
                let index = metadata.index();
                let family = index.model_type();
                if index.own_configuration().is_none() && !TOLD_BY_LARQL.contains(&family) {
                    return Err(unsupported(
                        "what LARQL keeps of the architecture",
                        family,
                        &TOLD_BY_LARQL.join(", "),
                    )
                    .with("file", file.display())
                    .with("field", "family"));
                }
                if index.own_configuration().is_none() && index.model_config.is_none() {
                    return Err(Error::new(
                        ErrorKind::ConfigInvalid,
                        "expected an object that tells heads and rotary embedding, found no such field",
                    )
                    .with("file", file.display())
                    .with("field", "model_config")
                    .with_hint("the index says too little to run the model: extract it again"));
                }
                let prefix = huggingface::prefix(checkpoint);
                let mut spec = huggingface::spec(&configuration.config, &file, prefix)?;
                huggingface::reword(&mut spec, checkpoint);
                spec.embedding_scale = metadata.index().embed_scale;
                spec
            }
        };
        // What does not fit together is named in words: it may stand in several fields.
        let told_by = match checkpoint.metadata() {
            Metadata::Gguf(_) => checkpoint.path().to_owned(),
            Metadata::HuggingFace(metadata) => metadata.folder.join("config.json"),
            Metadata::Vindex(metadata) => metadata.configuration().folder.join("index.json"),
        };
        spec.check().map_err(|e| e.with("file", told_by.display()))?;
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

    /// The longest context in which positions are rotated in as the model was first trained: where LongRoPE has other
    /// factors for longer ones. `None`: positions are rotated alike in all contexts.
    pub fn short_context(&self) -> Option<usize> {
        let original = |rope: &RopeSpec| match rope.scaling {
            RopeScaling::Long { original_context, .. } => Some(original_context as usize),
            _ => None,
        };
        self.ropes.iter().filter_map(original).min()
    }

    /// The width of each token's inputs to layers; `None`: layers have none.
    pub(crate) fn input_width(&self) -> Option<usize> {
        self.inputs().map(|input| input.width)
    }

    /// Each token's inputs to layers, which are alike in all of them.
    pub(crate) fn inputs(&self) -> Option<LayerInput> {
        self.layers.first()?.input
    }

    /// By how much a layer is larger in memory than in its checkpoint: what takes heads' queries to latent vectors is copied
    /// where it lies in columns, as floats where it is stored in blocks.
    pub(crate) fn copied_bytes(&self, layer: usize, checkpoint: &dyn Checkpoint) -> u64 {
        let Some(spec) = self.layers.get(layer) else { return 0 };
        let (keys, mut parts) = (LayerTensor::LatentKeys, self.names.fused(spec, LayerTensor::LatentKeys));
        let Some((attention, latent)) = spec.attention().and_then(|own| Some((own, own.latent?))) else {
            return 0;
        };
        let name = self.names.weight(layer, keys);
        let stored = checkpoint.tensor(&name).filter(|info| info.dtype.is_quantised());
        let (Some(_), true) = (stored, parts.any(|part| part != keys)) else { return 0 };
        let numbers = attention.n_heads.saturating_mul(latent.plain).saturating_mul(latent.rank) as u64;
        let rows = latent.plain.saturating_add(latent.value).max(1) as u64;
        let own = stored_bytes(checkpoint, &name).unwrap_or(0) / rows * latent.plain as u64;
        numbers.saturating_mul(size_of::<f32>() as u64).saturating_sub(own)
    }

    /// Whether loading copies a layer's experts, which are not used where they are stored.
    pub(crate) fn copies_experts(&self, layer: usize, checkpoint: &dyn Checkpoint) -> bool {
        let mut experts =
            [LayerTensor::ExpertGate, LayerTensor::ExpertUp, LayerTensor::ExpertDown].into_iter();
        self.layers.get(layer).is_some_and(|layer| layer.ffn.experts.is_some())
            && experts.any(|tensor| {
                let info = checkpoint.tensor(&self.names.weight(layer, tensor));
                info.is_some_and(|info| self.names.stacks().are_copied(info.dtype))
            })
    }

    /// The residual streams, where there are several.
    pub fn streams(&self) -> Option<StreamsSpec> {
        self.layers.first()?.streams
    }

    /// Elements of a row of hidden states, as stages hand it on: of all residual streams, the first one in front. What drafts
    /// for another model takes the model's, of all layers that it takes some of.
    pub fn row_width(&self) -> usize {
        let n = match self.ahead {
            Some(AheadSpec::Eagle { layers, .. }) => layers.len(),
            _ => self.streams().map_or(1, |streams| streams.n),
        };
        n.saturating_mul(self.model_width())
    }

    /// Names of what makes the residual streams of embeddings, and one of them behind the last layer.
    pub(crate) fn stream_ends(&self) -> [Vec<String>; 2] {
        let names = |of: fn(&TensorNames, usize) -> String| {
            // Where they are stacked, the first name is that of all.
            let n = self.streams().map_or(1, |streams| streams.n);
            let further = 1..if self.names.stacks_streams() { n.min(2) } else { n };
            further.map(|stream| of(&self.names, stream)).collect()
        };
        [names(TensorNames::stream_projection), names(TensorNames::stream_return)]
    }

    /// Whether layers keep states, which do not go back to any position.
    pub fn has_states(&self) -> bool {
        self.layers.iter().any(|layer| layer.recurrent().is_some())
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
        positive("residual multiplier", self.residual_scale)?;
        positive("logit scale", self.logit_scale)?;
        self.final_softcap.map_or(Ok(()), |cap| positive("final logit soft-cap", cap))?;
        for rope in &self.ropes {
            rope.check()?;
        }
        for layer in &self.layers {
            layer.mixer.check(&self.ropes)?;
            // Whoever lacks the block lacks the norms around it.
            if !layer.ffn.is_absent() || layer.ffn_norm || layer.post_ffn_norm {
                layer.ffn.check()?;
            }
            let width = layer.input.map(|input| input.width);
            if width != self.input_width() {
                let message =
                    format!("expected {:?} as in the first layer, found {width:?}", self.input_width());
                return Err(invalid("width of inputs to layers", message));
            }
            let rows = |layer: &LayerSpec| layer.input.map(|input| input.rows);
            if let Some(rows) = rows(layer) {
                size("rows of inputs to layers", rows, MAX_SIZE)?;
            }
            if self.layers.first().and_then(rows) != rows(layer) {
                let message = format!("expected as many as in the first layer, found {:?}", rows(layer));
                return Err(invalid("rows of inputs to layers", message));
            }
            layer.check_streams()?;
            if layer.streams != self.streams() {
                let message =
                    format!("expected {:?} as in the first layer, found {:?}", self.streams(), layer.streams);
                return Err(invalid("residual streams", message));
            }
        }
        if let Some(width) = self.input_width() {
            size("width of inputs to layers", width, MAX_SIZE)?;
            if width % 2 != 0 {
                return Err(invalid(
                    "width of inputs to layers",
                    format!("expected an even number, found {width}"),
                ));
            }
        }
        self.check_ahead()?;
        self.check_shared()
    }
}

/// A value of the configuration that cannot be.
fn invalid(field: &'static str, message: String) -> Error {
    Error::new(ErrorKind::ConfigInvalid, message)
        .with("field", field)
        .with_hint("the model's configuration is broken or of a newer kind: fetch it again, or update skulk")
}

/// `Ok` for a count or size within bounds.
fn size(field: &'static str, value: usize, max: usize) -> Result<()> {
    if (1..=max).contains(&value) {
        return Ok(());
    }
    Err(invalid(field, format!("expected 1 to {max}, found {value}")))
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

/// What drafts for a model, and is none by itself.
fn drafts_only(found: &str) -> Error {
    let message = format!("expected a model, found `{found}`, which drafts for one");
    Error::new(ErrorKind::ArchUnsupported, message)
        .with_hint("load the model that it belongs to, with this as its draft model")
}

/// Families this version can run, for messages.
const SUPPORTED: &str = "llama, llama4, mistral, ministral3, mixtral, smollm3, granite, granitemoehybrid, phi3, qwen2, qwen3, \
    qwen3_moe, qwen3_next, qwen3_5, qwen3_5_moe, the text of qwen3_vl, gemma2, gemma3, gemma3n, gemma4, gemma4_unified, glm4, glm4_moe, \
    glm4_moe_lite, glm_moe_dsa, deepseek_v3, deepseek_v32, kimi_k2, the text of kimi_k25, kimi_linear, olmo3, minimax_m2, step3p5, gpt_oss, \
    nemotron_h";
