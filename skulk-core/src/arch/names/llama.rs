//! What are tensors of Llama's kin called, and of families near to it?

use super::LayerTensor::{
    self, AttentionNorm, AttentionOutput, ExpertDown, ExpertGate, ExpertUp, FfnDown, FfnGate, FfnNorm, FfnUp,
    HeadGate, Key, KeyNorm, PostAttentionNorm, PostFfnNorm, Query, QueryNorm, Router, RouterCorrection,
    SharedDown, SharedGate, SharedUp, Sinks, Value,
};
use super::mlx;
use super::spelling::{STACKED, Spelling, Stacks, hugging_face, hugging_face_or};

pub(super) const HF_ATTENTION: &[(LayerTensor, &str)] = &[
    (AttentionNorm, "input_layernorm"),
    (Query, "self_attn.q_proj"),
    (Key, "self_attn.k_proj"),
    (Value, "self_attn.v_proj"),
    (AttentionOutput, "self_attn.o_proj"),
    (QueryNorm, "self_attn.q_norm"),
    (KeyNorm, "self_attn.k_norm"),
];

pub(super) const HF_DENSE: &[(LayerTensor, &str)] =
    &[(FfnGate, "mlp.gate_proj"), (FfnUp, "mlp.up_proj"), (FfnDown, "mlp.down_proj")];

const HF_FUSED_DENSE: &[(LayerTensor, &str)] =
    &[(FfnGate, "mlp.gate_up_proj"), (FfnUp, "mlp.gate_up_proj"), (FfnDown, "mlp.down_proj")];

/// Hugging Face llama, qwen3 and qwen3_moe.
pub(in crate::arch) static HF_LLAMA: Spelling = hugging_face_or(
    &[STACKED],
    &[
        HF_ATTENTION,
        HF_DENSE,
        &[
            (FfnNorm, "post_attention_layernorm"),
            (Router, "mlp.gate"),
            (ExpertGate, "mlp.experts.{}.gate_proj"),
            (ExpertUp, "mlp.experts.{}.up_proj"),
            (ExpertDown, "mlp.experts.{}.down_proj"),
        ],
    ],
);

/// Hugging Face mixtral.
pub(in crate::arch) static HF_MIXTRAL: Spelling = hugging_face(&[
    HF_ATTENTION,
    &[
        (FfnNorm, "post_attention_layernorm"),
        (Router, "block_sparse_moe.gate"),
        (ExpertGate, "block_sparse_moe.experts.{}.w1"),
        (ExpertUp, "block_sparse_moe.experts.{}.w3"),
        (ExpertDown, "block_sparse_moe.experts.{}.w2"),
    ],
]);

/// Hugging Face phi3: what the same input is multiplied with lies in one tensor.
pub(in crate::arch) static HF_PHI3: Spelling = hugging_face(&[
    &[
        (AttentionNorm, "input_layernorm"),
        (Query, "self_attn.qkv_proj"),
        (Key, "self_attn.qkv_proj"),
        (Value, "self_attn.qkv_proj"),
        (AttentionOutput, "self_attn.o_proj"),
        (FfnNorm, "post_attention_layernorm"),
    ],
    HF_FUSED_DENSE,
]);

/// Hugging Face glm4.
pub(in crate::arch) static HF_GLM4: Spelling = hugging_face(&[
    HF_ATTENTION,
    HF_FUSED_DENSE,
    &[
        (PostAttentionNorm, "post_self_attn_layernorm"),
        (FfnNorm, "post_attention_layernorm"),
        (PostFfnNorm, "post_mlp_layernorm"),
    ],
]);

/// Hugging Face minimax_m2.
pub(in crate::arch) static HF_MINIMAX: Spelling = hugging_face(&[
    HF_ATTENTION,
    &[
        (FfnNorm, "post_attention_layernorm"),
        (Router, "block_sparse_moe.gate"),
        (RouterCorrection, "block_sparse_moe.e_score_correction_bias$"),
        (ExpertGate, "block_sparse_moe.experts.{}.w1"),
        (ExpertUp, "block_sparse_moe.experts.{}.w3"),
        (ExpertDown, "block_sparse_moe.experts.{}.w2"),
    ],
]);

/// Hugging Face step3p5, whose experts are stacked.
pub(in crate::arch) static HF_STEP3P5: Spelling = hugging_face_or(
    mlx::STEP3P5,
    &[
        HF_ATTENTION,
        HF_DENSE,
        &[
            (HeadGate, "self_attn.g_proj"),
            (FfnNorm, "post_attention_layernorm"),
            (Router, "moe.gate"),
            (RouterCorrection, "moe.router_bias$"),
            (ExpertGate, "moe.gate_proj"),
            (ExpertUp, "moe.up_proj"),
            (ExpertDown, "moe.down_proj"),
            (SharedGate, "share_expert.gate_proj"),
            (SharedUp, "share_expert.up_proj"),
            (SharedDown, "share_expert.down_proj"),
        ],
    ],
);

/// Hugging Face gpt_oss, whose experts are stacked in columns, those of gates and ups in turns.
pub(in crate::arch) static HF_GPT_OSS: Spelling = Spelling {
    stacks: Stacks { transposed: true, alternating: true },
    ..hugging_face_or(
        mlx::GPT_OSS,
        &[
            HF_ATTENTION,
            &[
                (Sinks, "self_attn.sinks$"),
                (FfnNorm, "post_attention_layernorm"),
                (Router, "mlp.router"),
                (ExpertGate, "mlp.experts.gate_up_proj$"),
                (ExpertUp, "mlp.experts.gate_up_proj$"),
                (ExpertDown, "mlp.experts.down_proj$"),
            ],
        ],
    )
};

/// Hugging Face llama4_text, whose experts are stacked in columns, gates before ups.
pub(in crate::arch) static HF_LLAMA4: Spelling = Spelling {
    stacks: Stacks { transposed: true, alternating: false },
    ..hugging_face_or(
        mlx::LLAMA4,
        &[
            HF_ATTENTION,
            &[
                (FfnNorm, "post_attention_layernorm"),
                (FfnGate, "feed_forward.gate_proj"),
                (FfnUp, "feed_forward.up_proj"),
                (FfnDown, "feed_forward.down_proj"),
                (Router, "feed_forward.router"),
                (SharedGate, "feed_forward.shared_expert.gate_proj"),
                (SharedUp, "feed_forward.shared_expert.up_proj"),
                (SharedDown, "feed_forward.shared_expert.down_proj"),
                (ExpertGate, "feed_forward.experts.gate_up_proj$"),
                (ExpertUp, "feed_forward.experts.gate_up_proj$"),
                (ExpertDown, "feed_forward.experts.down_proj$"),
            ],
        ],
    )
};
