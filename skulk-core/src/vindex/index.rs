//! What does `index.json` say? Sizes, layers, how weights are stored, and what LARQL keeps of the model's
//! configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::ranges::Ranges;
use crate::arch::MAX_LAYERS;
use crate::error::{Error, ErrorKind, Result};
use crate::macros::closed_set;
use crate::weights::DType;

/// Versions that are read.
const VERSIONS: std::ops::RangeInclusive<u32> = 1..=2;
/// Upper bound for sizes, far above real models.
const MAX_SIZE: usize = 1 << 28;

/// `index.json` of a vindex, version 1 or 2. Written, its fields are in LARQL's order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct VindexIndex {
    /// Version of the format.
    pub version: u32,
    /// The model's name, as it was given when extracting.
    pub model: String,
    /// LARQL's name of the family.
    pub family: String,
    /// Where the model came from, and who extracted it.
    pub source: Option<VindexSource>,
    /// SHA-256 of files in hexadecimal digits, by name. Slices that LARQL made keep those of files that they lack.
    pub checksums: Option<BTreeMap<String, String>>,
    /// Decoder layers of the model.
    pub num_layers: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Inner width of dense feed-forward blocks; of Mixtral, of an expert.
    pub intermediate_size: usize,
    /// Rows of the embedding table.
    pub vocab_size: usize,
    /// Multiplies token embeddings.
    pub embed_scale: f32,
    /// How much of the model was extracted.
    #[serde(default)]
    pub extract_level: VindexLevel,
    /// Type of float files: `f32` or `f16`.
    #[serde(default = "f32_label")]
    pub(crate) dtype: String,
    /// `none` or `q4k`.
    #[serde(default = "no_quant")]
    pub(crate) quant: String,
    /// Layers that are thought to hold syntax, knowledge and output, for families where that is known.
    pub layer_bands: Option<VindexBands>,
    /// One entry for each layer that has gate vectors.
    pub layers: Vec<VindexLayer>,
    /// Tokens that `down_meta.bin` keeps for each feature.
    pub down_top_k: usize,
    /// There are weights beside the gate vectors.
    #[serde(default)]
    pub has_model_weights: bool,
    /// What LARQL keeps of the model's configuration.
    pub model_config: Option<VindexModel>,
    /// How feed-forward weights in FP4 or FP8 are stored, where there are such.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fp4: Option<Value>,
    /// `per_layer` where experts are in `layers/`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ffn_layout: Option<String>,
    /// What this library adds, and LARQL ignores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skulk: Option<SkulkExtra>,
    /// What else was there, kept for writing it again.
    #[serde(flatten)]
    pub(crate) other: Map<String, Value>,
}

/// The object `skulk` of `index.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SkulkExtra {
    /// The model's whole `config.json`, in Hugging Face's spelling: norm epsilon, rope scaling, tied embeddings,
    /// biases, stop tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<Value>,
    /// What of the model this folder is, where it is a slice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slice: Option<SliceExtra>,
}

/// `skulk.slice`: what of a whole folder a slice holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SliceExtra {
    /// The preset that it was made with.
    pub preset: String,
    /// Layers whose weights it holds, as ranges `[first, behind]`; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layers: Option<Vec<[usize; 2]>>,
    /// Experts of each layer that it holds, as ranges `[first, behind]`; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experts: Option<Vec<[usize; 2]>>,
    /// Parts of the whole folder that it lacks, by [name](super::VindexPart::as_str).
    pub lacks: Vec<String>,
}

impl SliceExtra {
    pub(super) fn layers(&self) -> Option<Ranges> {
        Ranges::from_pairs(self.layers.as_ref()?)
    }

    pub(super) fn experts(&self) -> Option<Ranges> {
        Ranges::from_pairs(self.experts.as_ref()?)
    }
}

/// `source`: where the model came from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct VindexSource {
    /// A repository, or whatever name the model was given.
    pub huggingface_repo: Option<String>,
    /// Its revision.
    pub huggingface_revision: Option<String>,
    /// SHA-256 of the checkpoint.
    pub safetensors_sha256: Option<String>,
    /// When it was extracted, as in RFC 3339.
    pub extracted_at: String,
    /// Version of the program that extracted it.
    pub larql_version: String,
}

/// `layer_bands`: first and last layer of each band, both inside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct VindexBands {
    /// Layers that deal with syntax.
    pub syntax: [usize; 2],
    /// Layers in which facts are found.
    pub knowledge: [usize; 2],
    /// Layers that form the output.
    pub output: [usize; 2],
}

closed_set! {
    /// How much of a model was extracted, each level being a part of the next.
    #[derive(PartialOrd, Ord, Default, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum VindexLevel {
        /// Gate vectors, embeddings, and what features mean.
        #[default]
        Browse = "browse",
        /// Attention and norms too.
        Attention = "attention",
        /// All that generation takes.
        Inference = "inference",
        /// Everything.
        All = "all",
    }
}

/// How weights beside gate vectors and embeddings are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum VindexQuant {
    /// As floats.
    None,
    /// Q4_K, and some matrices as Q6_K, in LARQL's own order of bits.
    Q4K,
}

/// A layer's gate vectors in `gate_vectors.bin`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct VindexLayer {
    /// The layer.
    pub layer: usize,
    /// Rows: of all experts together, where the layer has any.
    pub num_features: usize,
    /// Byte offset in the file.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// Experts, whose rows lie behind each other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_experts: Option<usize>,
    /// Rows of each expert.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_features_per_expert: Option<usize>,
}

/// `model_config`: what LARQL keeps of a `config.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct VindexModel {
    /// Family in Hugging Face's spelling.
    pub model_type: String,
    /// Elements in a head.
    pub head_dim: usize,
    /// Query heads.
    pub num_q_heads: usize,
    /// Key/value heads.
    pub num_kv_heads: usize,
    /// Base of the rotary embedding.
    pub rope_base: f64,
    /// Positions that sliding layers see.
    pub sliding_window: Option<usize>,
    /// The mixture of experts.
    pub moe: Option<VindexMoe>,
    /// Elements in a head of layers that do not slide, where it is another number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub global_head_dim: Option<usize>,
    /// Key/value heads of layers that do not slide, where it is another number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_global_kv_heads: Option<usize>,
    /// Share of a head that is rotated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partial_rotary_factor: Option<f64>,
    /// Every so many layers, one does not slide.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sliding_window_pattern: Option<usize>,
    /// `sliding_attention` or `full_attention`, by layer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer_types: Option<Vec<String>>,
    /// Values are the keys.
    #[serde(default)]
    pub attention_k_eq_v: bool,
    /// Layers at the end that use the keys and values of earlier ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_kv_shared_layers: Option<usize>,
    /// Width of the embeddings that each layer has of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_layer_embed_dim: Option<usize>,
    /// Base of the rotary embedding in sliding layers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rope_local_base: Option<f64>,
    /// What attention scores are divided by the root of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query_pre_attn_scalar: Option<f64>,
    /// Squashes logits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub final_logit_softcapping: Option<f64>,
}

/// `model_config.moe`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct VindexMoe {
    /// Experts in a layer.
    pub num_experts: usize,
    /// Experts that a row takes.
    pub top_k: usize,
    /// There is an expert that every row takes.
    #[serde(default)]
    pub shared_expert: bool,
    /// How rows are given to experts: `top_k_softmax` or `gemma4_top_k_softmax`.
    #[serde(default = "top_k_softmax")]
    pub router_type: String,
    /// Width of an expert, where it is not the dense one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moe_intermediate_size: Option<usize>,
    /// Layers have a dense block beside the experts.
    #[serde(default)]
    pub hybrid: bool,
}

fn top_k_softmax() -> String {
    "top_k_softmax".to_owned()
}

fn f32_label() -> String {
    "f32".to_owned()
}

fn no_quant() -> String {
    "none".to_owned()
}

impl VindexIndex {
    /// Reads the text of an `index.json`. The `path` only serves messages.
    ///
    /// # Errors
    /// [`ErrorKind::CheckpointInvalid`] for another version of the format, [`ErrorKind::ConfigInvalid`] for what is
    /// no JSON, absent fields, impossible values and layers that occur twice, [`ErrorKind::DTypeUnsupported`] for
    /// unknown types of weights.
    pub fn parse(text: &[u8], path: &Path) -> Result<Self> {
        let in_file = |e: Error| e.with("file", path.display());
        // The version decides what the rest means: it is looked at before anything else.
        let version = read::<Version>(text, path)?.version;
        if !VERSIONS.contains(&version) {
            return Err(in_file(
                Error::new(
                    ErrorKind::CheckpointInvalid,
                    format!("expected a vindex of version 1 or 2, found version {version}"),
                )
                .with("field", "version")
                .with_hint("update skulk, or extract the model again with LARQL 0.1"),
            ));
        }
        let index: Self = read(text, path)?;
        index.check().map_err(in_file)?;
        Ok(index)
    }

    /// How weights are stored beside gate vectors and embeddings.
    pub fn quant(&self) -> VindexQuant {
        if self.quant == "q4k" { VindexQuant::Q4K } else { VindexQuant::None }
    }

    /// The type of gate vectors and float files, by what the index says; sizes of files decide.
    pub fn dtype(&self) -> DType {
        if self.dtype == "f16" { DType::F16 } else { DType::F32 }
    }

    /// Whether experts are in files of their own, `layers/layer_NN.weights`.
    pub fn is_per_layer(&self) -> bool {
        self.ffn_layout.as_deref() == Some("per_layer")
    }

    /// The mixture of experts, where the model has one.
    pub fn moe(&self) -> Option<&VindexMoe> {
        self.model_config.as_ref()?.moe.as_ref()
    }

    /// The layers that have features, in order.
    pub fn feature_layers(&self) -> Vec<usize> {
        let layers = self.layers.iter().filter(|layer| layer.num_features > 0);
        let mut layers: Vec<_> = layers.map(|layer| layer.layer).collect();
        layers.sort_unstable();
        layers
    }

    /// Which layers count as syntax, knowledge and output: as the index says, else as [`VindexBands::of`] does, else
    /// all of them as each.
    pub fn bands(&self) -> VindexBands {
        self.layer_bands
            .or_else(|| VindexBands::of(&self.family, self.num_layers))
            .unwrap_or_else(|| VindexBands::whole(self.num_layers))
    }

    /// Whether a layer's gate vectors only sum up its experts: each has another number of them than it has features.
    pub(super) fn is_summary(&self, layer: &VindexLayer) -> bool {
        let width = self.moe().map(|moe| moe.moe_intermediate_size.unwrap_or(self.intermediate_size));
        layer.num_features_per_expert.is_some_and(|each| width.is_some_and(|width| each != width))
    }

    /// What the model's configuration says of its head: whether that is the embedding table.
    pub(super) fn ties_embeddings(&self) -> Option<bool> {
        self.own_configuration()?.get("tie_word_embeddings")?.as_bool()
    }

    /// What of a whole folder this one is, where it is a slice.
    pub fn slice(&self) -> Option<&SliceExtra> {
        self.skulk.as_ref()?.slice.as_ref()
    }

    /// Whether the folder is to hold weights of the layer: a slice may be of some layers only.
    pub fn has_layer(&self, layer: usize) -> bool {
        let layers = self.slice().and_then(SliceExtra::layers);
        layer < self.num_layers && layers.is_none_or(|layers| layers.contains(layer))
    }

    /// Experts whose rows a layer's gate vectors are, in their order; `None`: all of them.
    pub(super) fn gate_experts(&self, layer: &VindexLayer) -> Option<Ranges> {
        let (n, all) = (layer.num_experts?, self.moe()?.num_experts);
        self.slice().and_then(SliceExtra::experts).filter(|experts| n != all && experts.count() == n)
    }

    /// The model's own configuration, where this library wrote the folder.
    pub(crate) fn own_configuration(&self) -> Option<&Value> {
        self.skulk.as_ref()?.config.as_ref()
    }

    /// The family in Hugging Face's spelling.
    pub fn model_type(&self) -> &str {
        self.model_config.as_ref().map_or(&self.family, |model| &model.model_type)
    }

    fn check(&self) -> Result<()> {
        for (field, known, found) in
            [("dtype", &["f32", "f16"], &self.dtype), ("quant", &["none", "q4k"], &self.quant)]
        {
            if !known.contains(&found.as_str()) {
                return Err(Error::new(
                    ErrorKind::DTypeUnsupported,
                    format!("expected {} or {}, found `{found}`", known[0], known[1]),
                )
                .with("field", field)
                .with_hint("extract the model again as f32, f16 or q4k"));
            }
        }
        if let Some(layout) = self.ffn_layout.as_deref().filter(|layout| *layout != "per_layer") {
            return Err(wrong("ffn_layout", format!("expected per_layer, found `{layout}`")));
        }
        let moe = self.moe();
        let sizes = [
            ("num_layers", self.num_layers, MAX_LAYERS),
            ("hidden_size", self.hidden_size, MAX_SIZE),
            ("intermediate_size", self.intermediate_size, MAX_SIZE),
            ("vocab_size", self.vocab_size, MAX_SIZE),
            ("num_experts", moe.map_or(1, |moe| moe.num_experts), MAX_SIZE),
            ("moe_intermediate_size", moe.and_then(|moe| moe.moe_intermediate_size).unwrap_or(1), MAX_SIZE),
        ];
        for (field, value, max) in sizes {
            if !(1..=max).contains(&value) {
                return Err(wrong(field, format!("expected 1 to {max}, found {value}")));
            }
        }
        if !(self.embed_scale > 0.0 && self.embed_scale.is_finite()) {
            return Err(wrong(
                "embed_scale",
                format!("expected a finite number above 0, found {}", self.embed_scale),
            ));
        }
        let mut seen = BTreeSet::new();
        for entry in &self.layers {
            let at = |message: String| wrong("layers", message).with("layer", entry.layer);
            if entry.layer >= self.num_layers || !seen.insert(entry.layer) {
                return Err(at(format!("expected each layer below {} once", self.num_layers)));
            }
            let experts = (entry.num_experts, entry.num_features_per_expert);
            let matches = match experts {
                (None, None) => true,
                (Some(n), Some(each)) => n.checked_mul(each) == Some(entry.num_features) && n > 0 && each > 0,
                _ => false,
            };
            if !matches {
                return Err(at(format!(
                    "expected num_features of all experts together, found {} with {experts:?}",
                    entry.num_features
                )));
            }
        }
        self.check_slice()
    }

    /// Ranges of a slice must be of what the model has, and agree with its gate vectors.
    fn check_slice(&self) -> Result<()> {
        let Some(slice) = self.slice() else { return Ok(()) };
        let experts = self.moe().map_or(0, |moe| moe.num_experts);
        for (field, pairs, max) in [
            ("skulk.slice.layers", &slice.layers, self.num_layers),
            ("skulk.slice.experts", &slice.experts, experts),
        ] {
            let Some(pairs) = pairs else { continue };
            if Ranges::from_pairs(pairs).is_none_or(|ranges| ranges.end() > max) {
                return Err(wrong(field, format!("expected ranges of 0 to {max}, found {pairs:.200?}")));
            }
        }
        let held = slice.experts().map(|ranges| ranges.count());
        for entry in &self.layers {
            if let (Some(n), Some(held)) = (entry.num_experts, held)
                && ![held, experts].contains(&n)
            {
                return Err(wrong("num_experts", format!("expected {held} or {experts}, found {n}"))
                    .with("layer", entry.layer));
            }
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// Reads the text of the file at `path`; errors name the field.
fn read<'a, T: Deserialize<'a>>(text: &'a [u8], path: &Path) -> Result<T> {
    let broken = |cause: serde_json::Error| {
        Error::new(ErrorKind::ConfigInvalid, "expected the index.json of a vindex")
            .with("file", path.display())
            .with_source(cause)
            .with_hint("this is no vindex, or a damaged one: extract it again")
    };
    let mut text = serde_json::Deserializer::from_slice(text);
    let value = serde_path_to_error::deserialize(&mut text).map_err(|e| match e.path().iter().next() {
        Some(_) => {
            let field = e.path().to_string();
            broken(e.into_inner()).with("field", field)
        }
        None => broken(e.into_inner()),
    })?;
    text.end().map_err(broken)?;
    Ok(value)
}

fn wrong(field: &'static str, message: String) -> Error {
    Error::new(ErrorKind::ConfigInvalid, message)
        .with("field", field)
        .with_hint("the index is damaged or hostile: extract the model again")
}
