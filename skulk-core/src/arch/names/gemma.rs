//! What are tensors of Gemma's kin called?

use super::LayerTensor::{
    self, BypassDown, BypassNorm, BypassUp, ExpertDown, ExpertGate, ExpertUp, ExpertsNorm, FfnNorm,
    InputGate, InputProjection, OutputScale, PostAttentionNorm, PostExpertsNorm, PostFfnNorm, PostInputNorm,
    PostSharedNorm, Router, RouterNorm, RouterScales, SharedDown, SharedGate, SharedUp, StreamCorrection,
    StreamNorm, StreamPrediction, StreamRouter, StreamScale,
};
use super::llama::{HF_ATTENTION, HF_DENSE};
use super::mlx;
use super::spelling::{Spelling, hugging_face, hugging_face_or};

/// Hugging Face gemma3: four norms a layer, so `post_attention_layernorm` means another one.
pub(in crate::arch) static HF_GEMMA3: Spelling = hugging_face(&[
    HF_ATTENTION,
    HF_DENSE,
    &[
        (PostAttentionNorm, "post_attention_layernorm"),
        (FfnNorm, "pre_feedforward_layernorm"),
        (PostFfnNorm, "post_feedforward_layernorm"),
    ],
]);

const HF_GEMMA4_LAYER: &[(LayerTensor, &str)] = &[
    (PostAttentionNorm, "post_attention_layernorm"),
    (FfnNorm, "pre_feedforward_layernorm"),
    (PostFfnNorm, "post_feedforward_layernorm"),
    (InputGate, "per_layer_input_gate"),
    (InputProjection, "per_layer_projection"),
    (PostInputNorm, "post_per_layer_input_norm"),
    (OutputScale, "layer_scalar$"),
];

/// Hugging Face gemma3n.
pub(in crate::arch) static HF_GEMMA3N: Spelling = hugging_face(&[
    HF_ATTENTION,
    HF_DENSE,
    HF_GEMMA4_LAYER,
    &[
        (StreamNorm, "altup.router_norm"),
        (StreamRouter, "altup.modality_router"),
        (StreamPrediction, "altup.prediction_coefs"),
        (StreamCorrection, "altup.correction_coefs"),
        (StreamScale, "altup.correct_output_scale$"),
        (BypassDown, "laurel.linear_left"),
        (BypassUp, "laurel.linear_right"),
        (BypassNorm, "laurel.post_laurel_norm"),
    ],
]);

/// Hugging Face gemma4 without experts.
pub(in crate::arch) static HF_GEMMA4: Spelling = hugging_face(&[HF_ATTENTION, HF_DENSE, HF_GEMMA4_LAYER]);

/// Hugging Face gemma4 with experts, beside which the dense block is the shared one.
pub(in crate::arch) static HF_GEMMA4_MOE: Spelling = hugging_face_or(
    mlx::GEMMA4_MOE,
    &[
        HF_ATTENTION,
        HF_GEMMA4_LAYER,
        &[
            (Router, "router.proj"),
            (RouterNorm, "router.scale$"),
            (RouterScales, "router.per_expert_scale$"),
            (ExpertsNorm, "pre_feedforward_layernorm_2"),
            (ExpertGate, "experts.gate_up_proj$"),
            (ExpertUp, "experts.gate_up_proj$"),
            (ExpertDown, "experts.down_proj$"),
            (PostExpertsNorm, "post_feedforward_layernorm_2"),
            (SharedGate, "mlp.gate_proj"),
            (SharedUp, "mlp.up_proj"),
            (SharedDown, "mlp.down_proj"),
            (PostSharedNorm, "post_feedforward_layernorm_1"),
        ],
    ],
);
