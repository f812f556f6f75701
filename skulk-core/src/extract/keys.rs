//! What are the model's tensors called in a vindex? Hugging Face's names without `model.`.

/// The word of a feed-forward projection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Projection {
    Gate,
    Up,
    Down,
}

/// Names of one family.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keys {
    /// Experts are in `block_sparse_moe`, and their projections are numbered.
    is_mixtral: bool,
}

/// Norms of a layer beside those of heads, in the order in which they are stored.
const NORMS: [&str; 4] = [
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
];

impl Keys {
    pub(super) const EMBEDDINGS: &str = "embed_tokens.weight";
    pub(super) const OUTPUT_NORM: &str = "norm.weight";
    pub(super) const HEAD: &str = "lm_head.weight";

    pub(super) fn new(model_type: &str) -> Self {
        Self { is_mixtral: model_type == "mixtral" }
    }

    /// Query, key, value and output projections.
    pub(super) fn attention(layer: usize) -> [String; 4] {
        ["q", "k", "v", "o"].map(|word| format!("layers.{layer}.self_attn.{word}_proj.weight"))
    }

    /// Norms of queries and keys.
    pub(super) fn head_norms(layer: usize) -> [String; 2] {
        ["q", "k"].map(|word| format!("layers.{layer}.self_attn.{word}_norm.weight"))
    }

    /// Norms before and after attention and the feed-forward block.
    pub(super) fn norms(layer: usize) -> [String; 4] {
        NORMS.map(|word| format!("layers.{layer}.{word}.weight"))
    }

    /// A dense block's matrix.
    pub(super) fn dense(layer: usize, projection: Projection) -> String {
        let word = match projection {
            Projection::Gate => "gate",
            Projection::Up => "up",
            Projection::Down => "down",
        };
        format!("layers.{layer}.mlp.{word}_proj.weight")
    }

    /// An expert's matrix.
    pub(super) fn expert(self, layer: usize, expert: usize, projection: Projection) -> String {
        let word = match (self.is_mixtral, projection) {
            (true, Projection::Gate) => "w1",
            (true, Projection::Up) => "w3",
            (true, Projection::Down) => "w2",
            (false, Projection::Gate) => "gate_proj",
            (false, Projection::Up) => "up_proj",
            (false, Projection::Down) => "down_proj",
        };
        let block = if self.is_mixtral { "block_sparse_moe" } else { "mlp" };
        format!("layers.{layer}.{block}.experts.{expert}.{word}.weight")
    }

    /// What scores experts.
    pub(super) fn router(self, layer: usize) -> String {
        let block = if self.is_mixtral { "block_sparse_moe" } else { "mlp" };
        format!("layers.{layer}.{block}.gate.weight")
    }

    /// The bias of a projection.
    pub(super) fn bias(weight: &str) -> String {
        format!("{}bias", weight.strip_suffix("weight").unwrap_or(weight))
    }
}
