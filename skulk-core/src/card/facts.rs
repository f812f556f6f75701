//! What is a model made of? Optional facts of cards: blocks, heads, experts, and what is kept of each token.
//!
//! They are in a section with a version. Names are those of published configurations where these agree, in the card's
//! own words where they do not.

use std::borrow::Cow;

use serde::Serialize;

use super::schema::{names, section};
use crate::macros::closed_set;
use crate::strict::{Bounds, Leaf, Reader, Tree, read_fields};

/// The version of the section that is read here.
pub(super) const VERSION: u64 = 1;
/// The section's name.
const SECTION: &str = "facts";
/// What is read of a section of a later version.
const OF_ANY_VERSION: [&str; 2] = ["version", "source"];

names! {
    /// What a layer is.
    LayerKind {
        /// Attention to all positions, and a feed-forward block.
        Full = "full",
        /// Attention to the positions of a window, and a feed-forward block.
        Window = "window",
        /// A state instead of keys and values, and a feed-forward block.
        Recurrent = "recurrent",
        /// A feed-forward block alone. Where there are such layers, the others have no feed-forward blocks.
        FeedForward = "feed_forward",
    }
}

section! {
    /// What a model is made of: all that plans need to know of it before its checkpoint is there.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    pub struct ModelFacts {
        /// The version of this section: 1. Of later versions only `version` and `source` are read.
        #[min(1)]
        pub version: u64 = VERSION,
        /// Where the facts are from, as the address of a configuration.
        pub source: String = String::new(),
        /// Rows of the embedding table, and of the head; at least 1.
        #[min(1)]
        pub vocab_size: Option<usize>,
        /// The head is the embedding table.
        pub tied_embeddings: bool = false,
        /// What the layers are, in their order; repeated for as many layers as there are.
        pub layers: Vec<LayerKind> = vec![LayerKind::Full],
        /// Width of dense feed-forward blocks, in elements; at least 1.
        #[min(1)]
        pub feed_forward_size: Option<usize>,
        /// Matrices of a feed-forward block or expert: 3 with a gate, 2 without.
        #[min(1)]
        pub feed_forward_matrices: usize = 3,
        /// Elements of what each layer gets of each token beside the residual stream; at least 1.
        #[min(1)]
        pub layer_input_size: Option<usize>,
        /// Bits of a weight with its scales, of all but routed experts. Where unknown, all weights count alike.
        #[min(1)]
        pub bits: Option<f64>,
        /// The same of dense feed-forward blocks and shared experts, where it differs.
        #[min(1)]
        pub feed_forward_bits: Option<f64>,
        /// Parameters of parts beside the decoder, which see and hear; of 16 bits each.
        pub other_parameters: u64 = 0,
        /// Attention.
        pub attention: Option<AttentionFacts>,
        /// What is otherwise in layers that attend to a window.
        pub window: Option<WindowFacts>,
        /// Layers with states.
        pub recurrent: Option<RecurrentFacts>,
        /// Experts, in mixtures.
        pub experts: Option<ExpertFacts>,
    }
}

section! {
    /// The heads of attention.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
    pub struct AttentionFacts {
        /// Heads of queries; at least 1.
        #[min(1)]
        pub heads: usize,
        /// Heads of keys and values; at least 1. The card's `num_key_value_heads` unless it is given.
        #[min(1)]
        pub kv_heads: Option<usize>,
        /// Elements of a head; with latent vectors, those that are not rotated. At least 1.
        #[min(1)]
        pub head_size: usize,
        /// Queries come with a gate of their size.
        pub output_gate: bool = false,
        /// Layers that attend to all positions have no projection of values: they make them of keys.
        pub values_from_keys: bool = false,
        /// The last so many layers use keys and values of earlier ones.
        pub sharing_layers: usize = 0,
        /// Width of the dense feed-forward blocks of these layers, where it differs; at least 1.
        #[min(1)]
        pub sharing_feed_forward_size: Option<usize>,
        /// Keys and values are kept as latent vectors.
        pub latent: Option<LatentFacts>,
        /// Positions are chosen by an index.
        pub index: Option<IndexFacts>,
    }
}

section! {
    /// Keys and values that are kept as one vector a token.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
    pub struct LatentFacts {
        /// Elements of the vector; at least 1.
        #[min(1)]
        pub rank: usize,
        /// Elements of the vector that queries are made of, where they are made of one; at least 1.
        #[min(1)]
        pub query_rank: Option<usize>,
        /// Elements of a head that are rotated, kept beside the vector.
        pub rope_size: usize,
        /// Elements of a head's values; at least 1.
        #[min(1)]
        pub value_size: usize,
    }
}

section! {
    /// An index that chooses the positions that are attended to.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
    pub struct IndexFacts {
        /// Heads of its queries; at least 1.
        #[min(1)]
        pub heads: usize,
        /// Elements of a head, and of what is kept of a token; at least 1.
        #[min(1)]
        pub head_size: usize,
    }
}

section! {
    /// Layers that attend to a window: heads are those of `attention` unless they are given.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
    pub struct WindowFacts {
        /// Positions; at least 1.
        #[min(1)]
        pub size: u64,
        /// Heads of queries; at least 1.
        #[min(1)]
        pub heads: Option<usize>,
        /// Heads of keys and values; at least 1.
        #[min(1)]
        pub kv_heads: Option<usize>,
        /// Elements of a head; at least 1.
        #[min(1)]
        pub head_size: Option<usize>,
    }
}

section! {
    /// Layers with states: a matrix for each head of values.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
    pub struct RecurrentFacts {
        /// Heads of values, each with a state; at least 1.
        #[min(1)]
        pub heads: usize,
        /// Elements of a head of values; at least 1.
        #[min(1)]
        pub head_size: usize,
        /// Heads, or groups, of keys and queries; at least 1.
        #[min(1)]
        pub key_heads: usize,
        /// Elements of a head of keys; at least 1.
        #[min(1)]
        pub key_size: usize,
        /// Positions that channels are convolved over; at least 1.
        #[min(1)]
        pub convolution: usize,
    }
}

section! {
    /// The experts of a mixture.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    pub struct ExpertFacts {
        /// Routed experts of a layer; at least 1.
        #[min(1)]
        pub count: usize,
        /// Routed experts that a token takes; at least 1.
        #[min(1)]
        pub per_token: usize,
        /// Width of a routed expert; at least 1.
        #[min(1)]
        pub size: usize,
        /// Width of all that every token takes beside routed experts, together.
        pub shared_size: usize = 0,
        /// The first so many layers are dense.
        pub dense_layers: usize = 0,
        /// Bits of a routed expert's weight with its scales. Where unknown, as many as other weights have.
        #[min(1)]
        pub bits: Option<f64>,
    }
}

impl Default for ModelFacts {
    fn default() -> Self {
        Self {
            version: VERSION,
            source: String::new(),
            vocab_size: None,
            tied_embeddings: false,
            layers: vec![LayerKind::Full],
            feed_forward_size: None,
            feed_forward_matrices: 3,
            layer_input_size: None,
            bits: None,
            feed_forward_bits: None,
            other_parameters: 0,
            attention: None,
            window: None,
            recurrent: None,
            experts: None,
        }
    }
}

impl ExpertFacts {
    /// So many experts of this width, of which a token takes so many; nothing beside them.
    pub const fn new(count: usize, per_token: usize, size: usize) -> Self {
        Self { count, per_token, size, shared_size: 0, dense_layers: 0, bits: None }
    }
}

/// The card's values without those facts of a later version, which may mean something else than they do here.
pub(super) fn as_known(tree: &Tree) -> Cow<'_, Tree> {
    let is_later = |(name, value): &(String, Tree)| {
        name == "version" && matches!(value, Tree::Int(version) if *version > VERSION as i64)
    };
    let later = |(name, section): &(String, Tree)| match section {
        Tree::Table(facts) => name == SECTION && facts.iter().any(is_later),
        _ => false,
    };
    match tree {
        Tree::Table(fields) if fields.iter().any(later) => {
            let known = fields.iter().map(|field| match field {
                (name, Tree::Table(facts)) if later(field) => {
                    let kept = facts.iter().filter(|(name, _)| OF_ANY_VERSION.contains(&name.as_str()));
                    (name.clone(), Tree::Table(kept.cloned().collect()))
                }
                field => field.clone(),
            });
            Cow::Owned(Tree::Table(known.collect()))
        }
        _ => Cow::Borrowed(tree),
    }
}
