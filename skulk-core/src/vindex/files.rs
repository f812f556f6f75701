//! Which files does a vindex have, and which part of a model is in each?

use crate::macros::closed_set;

/// What makes a folder a vindex.
pub(crate) const INDEX: &str = "index.json";
/// Where the tensors of most files lie.
pub(crate) const WEIGHT_MANIFEST: &str = "weight_manifest.json";
/// Token embeddings.
pub(crate) const EMBEDDINGS: &str = "embeddings.bin";
/// The head, as floats and quantised.
pub(crate) const HEADS: [&str; 2] = ["lm_head.bin", "lm_head_q4.bin"];
/// Gate rows.
pub(crate) const GATES: &str = "gate_vectors.bin";
/// Routers of mixtures of experts.
pub(crate) const ROUTERS: &str = "router_weights.bin";
/// Tokens that features write.
pub(crate) const DOWN_META: &str = "down_meta.bin";
/// The same, of version 1.
pub(crate) const DOWN_META_LINES: &str = "down_meta.jsonl";
/// What probes found features to mean.
pub(crate) const LABELS: &str = "feature_labels.json";
/// What clusters of features are called.
pub(crate) const CLUSTERS: &str = "relation_clusters.json";
/// The cluster of each feature.
pub(crate) const FEATURE_CLUSTERS: &str = "feature_clusters.jsonl";
/// SHA-256 of files and their chunks, as this library writes them.
pub(crate) const HASHES: &str = "skulk_hashes.json";

/// Feed-forward matrices of one layer: its experts', or its dense block's.
pub(crate) fn layer_file(layer: usize) -> String {
    format!("layers/layer_{layer:02}.weights")
}

closed_set! {
    /// A part of a vindex: files that slices have or lack together.
    #[derive(PartialOrd, Ord)]
    pub enum VindexPart {
        /// `index.json` and hashes: in every folder.
        Index = "index",
        /// `embeddings.bin`.
        Embeddings = "embed",
        /// `norms.bin`.
        Norms = "norms",
        /// `attn_weights*`.
        Attention = "attn",
        /// `gate_vectors*`.
        Gate = "gate",
        /// `down_meta.bin`, in version 1 `down_meta.jsonl`.
        DownMeta = "down_meta",
        /// Up and down projections, or gate, up and down together.
        Ffn = "ffn",
        /// Down projections by feature: `down_features*`.
        DownFeatures = "down_features",
        /// `layers/layer_NN.weights`.
        ExpertLayers = "expert_layers",
        /// `lm_head*`.
        Head = "lm_head",
        /// `router_weights.bin`.
        Router = "router",
        /// `ple_weights.bin`: per-layer embeddings.
        PerLayerEmbeddings = "ple",
        /// `tokenizer.json`, `tokenizer_config.json`, `generation_config.json`, `chat_template.jinja`.
        Tokenizer = "tokenizer",
        /// `weight_manifest.json`.
        Manifest = "manifest",
        /// `feature_labels.json`, `feature_clusters.jsonl`, `relation_clusters.json`.
        Labels = "labels",
        /// `knn_store.bin`: facts that were inserted.
        Knn = "knn",
        /// `README.md`.
        Readme = "readme",
    }
}

impl VindexPart {
    /// The part that a file belongs to, by its path in the folder; `None` for files that are not a vindex's.
    pub fn of(file: &str) -> Option<Self> {
        let starts = |words: &[&str]| words.iter().any(|word| file.starts_with(word));
        Some(match file {
            INDEX | HASHES => Self::Index,
            EMBEDDINGS => Self::Embeddings,
            "norms.bin" => Self::Norms,
            DOWN_META | DOWN_META_LINES => Self::DownMeta,
            ROUTERS => Self::Router,
            "ple_weights.bin" => Self::PerLayerEmbeddings,
            "tokenizer.json"
            | "tokenizer_config.json"
            | "generation_config.json"
            | "special_tokens_map.json"
            | "chat_template.jinja"
            | "chat_template.json" => Self::Tokenizer,
            WEIGHT_MANIFEST => Self::Manifest,
            LABELS | FEATURE_CLUSTERS | CLUSTERS => Self::Labels,
            "knn_store.bin" => Self::Knn,
            "README.md" => Self::Readme,
            "fp4_compliance.json" => Self::Ffn,
            _ if [".bak", ".tmp", ".orig"].iter().any(|end| file.ends_with(end)) => return None,
            _ if starts(&["attn_weights"]) => Self::Attention,
            _ if starts(&["gate_vectors"]) => Self::Gate,
            _ if starts(&["down_features"]) => Self::DownFeatures,
            "model_weights.bin" => Self::Ffn,
            _ if starts(&["interleaved", "up_weights", "down_weights", "up_features"]) => Self::Ffn,
            _ if starts(&["layers/"]) => Self::ExpertLayers,
            _ if starts(&["lm_head"]) => Self::Head,
            _ => return None,
        })
    }
}
