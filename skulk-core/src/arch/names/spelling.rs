//! What does a format call tensors?

use super::LayerTensor::{self, ExpertDown, ExpertGate, ExpertUp};
use crate::weights::DType;

/// Stands for an expert's index in the roles of formats that do not stack experts, and for a residual stream's.
pub(super) const EXPERT: &str = "{}";
/// Ends a role's pattern behind which there is no `.weight`, and `_bias` where others have `.bias`.
pub(super) const END: char = '$';

/// What stands behind such a pattern for the bias.
pub(super) const BIAS: &str = "_bias";

/// How experts lie that are stacked in one tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stacks {
    /// Each is `[in, out]` rather than `[out, in]`.
    pub(crate) transposed: bool,
    /// Of those fused, outputs take turns: the first has the even ones. Else all of the first come before those of the
    /// second.
    pub(crate) alternating: bool,
}

impl Stacks {
    /// As products take them.
    pub(super) const PLAIN: Self = Self { transposed: false, alternating: false };

    /// The same of a type: blocks lie along inputs, whatever floats do.
    pub(crate) fn of_type(self, dtype: DType) -> Self {
        Self { transposed: self.transposed && !dtype.is_quantised(), ..self }
    }

    /// Whether they have to be copied to be multiplied with: products with blocks can pass over rows.
    pub(crate) fn are_copied(self, dtype: DType) -> bool {
        self.of_type(dtype) != Self::PLAIN && !dtype.is_quantised()
    }
}

/// A format's words.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::arch) struct Spelling {
    pub(super) embedding: &'static str,
    pub(super) output_norm: &'static str,
    pub(super) head: &'static str,
    pub(super) layers: &'static str,
    /// The table of tokens' inputs to layers, what projects embeddings to such, and its norm.
    pub(super) inputs: [&'static str; 3],
    /// What makes further residual streams, and what takes them back: tensors of their own, or stacks.
    pub(super) streams: [&'static str; 2],
    pub(super) stacks: Stacks,
    /// What conversions call the same, where that is more than MLX's words for stacked experts.
    pub(super) others: &'static [Words],
    pub(super) roles: Roles,
}

/// Other words for some of a spelling's roles, of which a checkpoint uses all or none. Experts that are called so lie as
/// products take them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Words {
    /// The first tells which a checkpoint uses.
    pub(super) roles: &'static [(LayerTensor, &'static str)],
    /// Norms have in them what is added to the family's others.
    pub(super) whole_norms: bool,
}

/// Experts in stacks, gates before ups: as transformers 5 has them in memory, and as hubs hold those of Qwen 3.5.
pub(super) const STACKED: Words = Words {
    roles: &[
        (ExpertGate, "mlp.experts.gate_up_proj$"),
        (ExpertUp, "mlp.experts.gate_up_proj$"),
        (ExpertDown, "mlp.experts.down_proj$"),
    ],
    whole_norms: false,
};

/// Each role's pattern, in groups that spellings share.
pub(super) type Roles = &'static [&'static [(LayerTensor, &'static str)]];

impl Spelling {
    pub(super) fn roles(&self) -> impl Iterator<Item = (LayerTensor, &'static str)> {
        self.roles.iter().copied().flatten().copied()
    }
}

/// What Hugging Face's families have in common.
pub(super) const fn hugging_face(roles: Roles) -> Spelling {
    Spelling {
        embedding: "embed_tokens",
        output_norm: "norm",
        head: "lm_head",
        layers: "layers",
        inputs: ["embed_tokens_per_layer", "per_layer_model_projection", "per_layer_projection_norm"],
        streams: ["altup_projections.{}", "altup_unembed_projections.{}"],
        stacks: Stacks::PLAIN,
        others: &[],
        roles,
    }
}

/// The same of those that conversions call otherwise.
pub(super) const fn hugging_face_or(others: &'static [Words], roles: Roles) -> Spelling {
    Spelling { others, ..hugging_face(roles) }
}
