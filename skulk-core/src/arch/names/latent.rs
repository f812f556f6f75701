//! What are tensors of DeepSeek V3 called, and of who took its words over?

use super::LayerTensor::{
    self, AttentionNorm, AttentionOutput, ExpertDown, ExpertGate, ExpertUp, FfnNorm, IndexKey, IndexKeyNorm,
    IndexQuery, IndexWeights, Key, LatentKeys, LatentNorm, LatentValues, Query, QueryLatent, QueryLatentNorm,
    Router, RouterCorrection, SharedDown, SharedGate, SharedUp, Value,
};
use super::llama::{HF_ATTENTION, HF_DENSE};
use super::mlx;
use super::spelling::{STACKED, Spelling, hugging_face_or};

/// What DeepSeek-V3 has behind attention, and who took its words over.
const HF_DEEPSEEK_EXPERTS: &[(LayerTensor, &str)] = &[
    (FfnNorm, "post_attention_layernorm"),
    (Router, "mlp.gate"),
    (RouterCorrection, "mlp.gate.e_score_correction_bias$"),
    (ExpertGate, "mlp.experts.{}.gate_proj"),
    (ExpertUp, "mlp.experts.{}.up_proj"),
    (ExpertDown, "mlp.experts.{}.down_proj"),
    (SharedGate, "mlp.shared_experts.gate_proj"),
    (SharedUp, "mlp.shared_experts.up_proj"),
    (SharedDown, "mlp.shared_experts.down_proj"),
];

/// Hugging Face glm4_moe.
pub(in crate::arch) static HF_GLM4_MOE: Spelling =
    hugging_face_or(&[STACKED], &[HF_ATTENTION, HF_DENSE, HF_DEEPSEEK_EXPERTS]);

/// What attention to latent vectors has but for queries. In one tensor lie projections to latent vectors and to the part of
/// keys beside them; in another those of latent vectors to keys and values, of head after head.
pub(super) const HF_LATENT: &[(LayerTensor, &str)] = &[
    (AttentionNorm, "input_layernorm"),
    (Value, "self_attn.kv_a_proj_with_mqa"),
    (Key, "self_attn.kv_a_proj_with_mqa"),
    (LatentNorm, "self_attn.kv_a_layernorm"),
    (LatentKeys, "self_attn.kv_b_proj"),
    (LatentValues, "self_attn.kv_b_proj"),
    (AttentionOutput, "self_attn.o_proj"),
];

/// Hugging Face deepseek_v3, kimi_k2 and glm4_moe_lite.
pub(in crate::arch) static HF_DEEPSEEK: Spelling = hugging_face_or(
    mlx::HEADS,
    &[
        HF_LATENT,
        &[
            (QueryLatent, "self_attn.q_a_proj"),
            (QueryLatentNorm, "self_attn.q_a_layernorm"),
            (Query, "self_attn.q_b_proj"),
        ],
        HF_DENSE,
        HF_DEEPSEEK_EXPERTS,
    ],
);

/// Hugging Face deepseek_v32 and glm_moe_dsa.
pub(in crate::arch) static HF_DEEPSEEK_SPARSE: Spelling = hugging_face_or(
    mlx::HEADS,
    &[
        HF_LATENT,
        &[
            (QueryLatent, "self_attn.q_a_proj"),
            (QueryLatentNorm, "self_attn.q_a_layernorm"),
            (Query, "self_attn.q_b_proj"),
            (IndexQuery, "self_attn.indexer.wq_b"),
            (IndexKey, "self_attn.indexer.wk"),
            (IndexKeyNorm, "self_attn.indexer.k_norm"),
            (IndexWeights, "self_attn.indexer.weights_proj"),
        ],
        HF_DENSE,
        HF_DEEPSEEK_EXPERTS,
    ],
);

/// The same where queries are projected from the layer's input.
pub(in crate::arch) static HF_DEEPSEEK_PLAIN: Spelling =
    hugging_face_or(mlx::HEADS, &[HF_LATENT, &[(Query, "self_attn.q_proj")], HF_DENSE, HF_DEEPSEEK_EXPERTS]);
