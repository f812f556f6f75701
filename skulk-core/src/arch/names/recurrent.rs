//! What are tensors of families with states called?

use super::LayerTensor::{
    self, AttentionNorm, AttentionOutput, DecayRate, ExpertDown, ExpertGate, ExpertUp, FfnDown, FfnGate,
    FfnNorm, FfnUp, Key, KeyConvolution, Query, QueryConvolution, Router, RouterCorrection, SharedDown,
    SharedGate, SharedScore, SharedUp, StateGate, StateGateLatent, StateKey, StateNorm, StateOutput,
    StateQuery, StateShare, StateSkip, StateStep, StateStepLatent, StateValue, StepBias, Value,
    ValueConvolution,
};
use super::latent::HF_LATENT;
use super::llama::{HF_ATTENTION, HF_DENSE};
use super::mlx;
use super::spelling::{STACKED, Spelling, hugging_face, hugging_face_or};

/// What layers of Qwen's with a state have in common.
const HF_DELTA: &[(LayerTensor, &str)] = &[
    (StateOutput, "linear_attn.out_proj"),
    (QueryConvolution, "linear_attn.conv1d"),
    (KeyConvolution, "linear_attn.conv1d"),
    (ValueConvolution, "linear_attn.conv1d"),
    (StepBias, "linear_attn.dt_bias$"),
    (DecayRate, "linear_attn.A_log$"),
    (StateNorm, "linear_attn.norm"),
    (FfnNorm, "post_attention_layernorm"),
];

/// What Qwen's layers with a shared expert have beside the routed ones.
const HF_QWEN_SHARED: &[(LayerTensor, &str)] = &[
    (Router, "mlp.gate"),
    (SharedGate, "mlp.shared_expert.gate_proj"),
    (SharedUp, "mlp.shared_expert.up_proj"),
    (SharedDown, "mlp.shared_expert.down_proj"),
    (SharedScore, "mlp.shared_expert_gate"),
];

const HF_QWEN_EXPERTS: &[(LayerTensor, &str)] = &[
    (ExpertGate, "mlp.experts.{}.gate_proj"),
    (ExpertUp, "mlp.experts.{}.up_proj"),
    (ExpertDown, "mlp.experts.{}.down_proj"),
];

/// Hugging Face qwen3_next.
pub(in crate::arch) static HF_QWEN3_NEXT: Spelling = hugging_face_or(
    &[STACKED],
    &[
        HF_ATTENTION,
        HF_DENSE,
        &[
            (StateQuery, "linear_attn.in_proj_qkvz"),
            (StateKey, "linear_attn.in_proj_qkvz"),
            (StateValue, "linear_attn.in_proj_qkvz"),
            (StateGate, "linear_attn.in_proj_qkvz"),
            (StateShare, "linear_attn.in_proj_ba"),
            (StateStep, "linear_attn.in_proj_ba"),
        ],
        HF_DELTA,
        HF_QWEN_SHARED,
        HF_QWEN_EXPERTS,
    ],
);

const HF_QWEN3_5_DELTA: &[(LayerTensor, &str)] = &[
    (StateQuery, "linear_attn.in_proj_qkv"),
    (StateKey, "linear_attn.in_proj_qkv"),
    (StateValue, "linear_attn.in_proj_qkv"),
    (StateGate, "linear_attn.in_proj_z"),
    (StateShare, "linear_attn.in_proj_b"),
    (StateStep, "linear_attn.in_proj_a"),
];

/// Hugging Face qwen3_5, and qwen3_5_moe whose experts have tensors of their own, or are in stacks, as hubs hold them.
pub(in crate::arch) static HF_QWEN3_5: Spelling = hugging_face_or(
    &[STACKED],
    &[HF_ATTENTION, HF_DENSE, HF_QWEN3_5_DELTA, HF_DELTA, HF_QWEN_SHARED, HF_QWEN_EXPERTS],
);

/// Hugging Face granitemoehybrid. Without experts, the shared block is the layer's.
pub(in crate::arch) static HF_GRANITE_HYBRID: Spelling = hugging_face_or(
    mlx::GRANITE_HYBRID,
    &[
        HF_ATTENTION,
        &[
            (StateGate, "mamba.in_proj"),
            (StateValue, "mamba.in_proj"),
            (StateKey, "mamba.in_proj"),
            (StateQuery, "mamba.in_proj"),
            (StateStep, "mamba.in_proj"),
            (ValueConvolution, "mamba.conv1d"),
            (KeyConvolution, "mamba.conv1d"),
            (QueryConvolution, "mamba.conv1d"),
            (StepBias, "mamba.dt_bias$"),
            (DecayRate, "mamba.A_log$"),
            (StateSkip, "mamba.D$"),
            (StateNorm, "mamba.norm"),
            (StateOutput, "mamba.out_proj"),
            (FfnNorm, "post_attention_layernorm"),
            (FfnGate, "shared_mlp.input_linear"),
            (FfnUp, "shared_mlp.input_linear"),
            (FfnDown, "shared_mlp.output_linear"),
            (Router, "block_sparse_moe.router.layer"),
            (ExpertGate, "block_sparse_moe.input_linear"),
            (ExpertUp, "block_sparse_moe.input_linear"),
            (ExpertDown, "block_sparse_moe.output_linear"),
            (SharedGate, "shared_mlp.input_linear"),
            (SharedUp, "shared_mlp.input_linear"),
            (SharedDown, "shared_mlp.output_linear"),
        ],
    ],
);

/// Hugging Face nemotron_h, whose layers have one block each, and one norm.
pub(in crate::arch) static HF_NEMOTRON_H: Spelling = Spelling {
    embedding: "embeddings",
    output_norm: "norm_f",
    ..hugging_face(&[&[
        (AttentionNorm, "norm"),
        (Query, "mixer.q_proj"),
        (Key, "mixer.k_proj"),
        (Value, "mixer.v_proj"),
        (AttentionOutput, "mixer.o_proj"),
        (StateGate, "mixer.in_proj"),
        (StateValue, "mixer.in_proj"),
        (StateKey, "mixer.in_proj"),
        (StateQuery, "mixer.in_proj"),
        (StateStep, "mixer.in_proj"),
        (ValueConvolution, "mixer.conv1d"),
        (KeyConvolution, "mixer.conv1d"),
        (QueryConvolution, "mixer.conv1d"),
        (StepBias, "mixer.dt_bias$"),
        (DecayRate, "mixer.A_log$"),
        (StateSkip, "mixer.D$"),
        (StateNorm, "mixer.norm"),
        (StateOutput, "mixer.out_proj"),
        (FfnNorm, "norm"),
        (FfnUp, "mixer.up_proj"),
        (FfnDown, "mixer.down_proj"),
        (Router, "mixer.gate"),
        (RouterCorrection, "mixer.gate.e_score_correction_bias$"),
        (ExpertUp, "mixer.experts.{}.up_proj"),
        (ExpertDown, "mixer.experts.{}.down_proj"),
        (SharedUp, "mixer.shared_experts.up_proj"),
        (SharedDown, "mixer.shared_experts.down_proj"),
    ]])
};

/// Hugging Face kimi_linear. Layers with a state and those with latent vectors call some projections alike.
pub(in crate::arch) static HF_KIMI_LINEAR: Spelling = hugging_face_or(
    mlx::KIMI_LINEAR,
    &[
        HF_LATENT,
        HF_DENSE,
        &[
            (Query, "self_attn.q_proj"),
            (StateQuery, "self_attn.q_proj"),
            (StateKey, "self_attn.k_proj"),
            (StateValue, "self_attn.v_proj"),
            (StateStepLatent, "self_attn.f_a_proj"),
            (StateStep, "self_attn.f_b_proj"),
            (StateGateLatent, "self_attn.g_a_proj"),
            (StateGate, "self_attn.g_b_proj"),
            (StateShare, "self_attn.b_proj"),
            (QueryConvolution, "self_attn.q_conv1d"),
            (KeyConvolution, "self_attn.k_conv1d"),
            (ValueConvolution, "self_attn.v_conv1d"),
            (StepBias, "self_attn.dt_bias$"),
            (DecayRate, "self_attn.A_log$"),
            (StateNorm, "self_attn.o_norm"),
            (StateOutput, "self_attn.o_proj"),
            (FfnNorm, "post_attention_layernorm"),
            (Router, "block_sparse_moe.gate"),
            (RouterCorrection, "block_sparse_moe.gate.e_score_correction_bias$"),
            (ExpertGate, "block_sparse_moe.experts.{}.w1"),
            (ExpertUp, "block_sparse_moe.experts.{}.w3"),
            (ExpertDown, "block_sparse_moe.experts.{}.w2"),
            (SharedGate, "block_sparse_moe.shared_experts.gate_proj"),
            (SharedUp, "block_sparse_moe.shared_experts.up_proj"),
            (SharedDown, "block_sparse_moe.shared_experts.down_proj"),
        ],
    ],
);
