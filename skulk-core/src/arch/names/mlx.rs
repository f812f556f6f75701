//! What does MLX call tensors otherwise when it converts a checkpoint?
//!
//! mlx-lm stacks experts that have tensors of their own, which is a rule for all families ([`switch`]); what it does
//! beside is a family's. Conversions of different ages differ, so that each group of words is looked for by itself.

use super::LayerTensor::{
    self, ExpertDown, ExpertGate, ExpertUp, FfnDown, FfnGate, FfnUp, KeyConvolution, LatentKeys,
    LatentValues, QueryConvolution, Router, RouterCorrection, SharedDown, SharedGate, SharedUp,
    ValueConvolution,
};
use super::spelling::{STACKED, Spelling, Words};

/// The word for experts' tensors in a stack that stood apart; of experts without gates it is another one.
pub(super) fn switch(tensor: LayerTensor, spelling: &Spelling) -> Option<&'static str> {
    let gated = spelling.roles().any(|(other, _)| other == ExpertGate);
    match (tensor, gated) {
        (ExpertGate, _) => Some("gate_proj"),
        (ExpertUp, true) => Some("up_proj"),
        (ExpertDown, true) => Some("down_proj"),
        (ExpertUp, false) => Some("fc1"),
        (ExpertDown, false) => Some("fc2"),
        _ => None,
    }
}

/// Words that tell nothing of norms.
const fn words(roles: &'static [(LayerTensor, &'static str)]) -> Words {
    Words { roles, whole_norms: false }
}

/// Each head's matrices in stacks of their own: to latent vectors `[heads, rank, plain]`, from them `[heads, value, rank]`.
const OF_HEADS: Words = words(&[(LatentKeys, "self_attn.embed_q"), (LatentValues, "self_attn.unembed_out")]);
pub(super) const HEADS: &[Words] = &[OF_HEADS, STACKED];

/// The same; blocks of experts are called as other families' are, and convolutions otherwise. transformers 5 calls dense
/// blocks as it calls those of experts.
pub(super) const KIMI_LINEAR: &[Words] = &[
    OF_HEADS,
    words(&[
        (FfnGate, "block_sparse_moe.gate_proj"),
        (FfnUp, "block_sparse_moe.up_proj"),
        (FfnDown, "block_sparse_moe.down_proj"),
    ]),
    words(&[
        (ExpertGate, "mlp.switch_mlp.gate_proj"),
        (ExpertUp, "mlp.switch_mlp.up_proj"),
        (ExpertDown, "mlp.switch_mlp.down_proj"),
        (Router, "mlp.gate"),
        (RouterCorrection, "mlp.e_score_correction_bias$"),
        (SharedGate, "mlp.shared_experts.gate_proj"),
        (SharedUp, "mlp.shared_experts.up_proj"),
        (SharedDown, "mlp.shared_experts.down_proj"),
    ]),
    words(&[
        (QueryConvolution, "self_attn.q_conv.conv"),
        (KeyConvolution, "self_attn.k_conv.conv"),
        (ValueConvolution, "self_attn.v_conv.conv"),
    ]),
];

/// What lies in one stack becomes one for each projection.
pub(super) const GPT_OSS: &[Words] = &[words(&[
    (ExpertGate, "mlp.experts.gate_proj"),
    (ExpertUp, "mlp.experts.up_proj"),
    (ExpertDown, "mlp.experts.down_proj"),
])];

/// The same.
pub(super) const LLAMA4: &[Words] = &[words(&[
    (ExpertGate, "feed_forward.experts.gate_proj"),
    (ExpertUp, "feed_forward.experts.up_proj"),
    (ExpertDown, "feed_forward.experts.down_proj"),
])];

/// The same.
const STACKED_GLU: Words = words(&[
    (ExpertGate, "experts.switch_glu.gate_proj"),
    (ExpertUp, "experts.switch_glu.up_proj"),
    (ExpertDown, "experts.switch_glu.down_proj"),
]);

/// The same, and each expert by itself, as vindex folders have them.
pub(super) const GEMMA4_MOE: &[Words] = &[
    STACKED_GLU,
    words(&[
        (ExpertGate, "experts.{}.gate_proj"),
        (ExpertUp, "experts.{}.up_proj"),
        (ExpertDown, "experts.{}.down_proj"),
    ]),
];

/// The same, and blocks of layers without experts.
pub(super) const GRANITE_HYBRID: &[Words] = &[
    words(&[
        (ExpertGate, "block_sparse_moe.switch_mlp.gate_proj"),
        (ExpertUp, "block_sparse_moe.switch_mlp.up_proj"),
        (ExpertDown, "block_sparse_moe.switch_mlp.down_proj"),
    ]),
    words(&[(FfnGate, "mlp.gate_proj"), (FfnUp, "mlp.up_proj"), (FfnDown, "mlp.down_proj")]),
];

/// Blocks of experts are called as other families' are, and 1 is added to norms.
pub(super) const STEP3P5: &[Words] = &[Words {
    roles: &[
        (ExpertGate, "mlp.switch_mlp.gate_proj"),
        (ExpertUp, "mlp.switch_mlp.up_proj"),
        (ExpertDown, "mlp.switch_mlp.down_proj"),
        (Router, "mlp.gate.gate"),
        (RouterCorrection, "mlp.gate.router_bias$"),
        (SharedGate, "mlp.share_expert.gate_proj"),
        (SharedUp, "mlp.share_expert.up_proj"),
        (SharedDown, "mlp.share_expert.down_proj"),
    ],
    whole_norms: true,
}];
