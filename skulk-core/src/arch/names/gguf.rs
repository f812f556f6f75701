//! What are tensors called in GGUF files?

use super::LayerTensor::{
    self, AttentionNorm, AttentionOutput, DecayRate, ExpertDown, ExpertGate, ExpertUp, FfnDown, FfnGate,
    FfnNorm, FfnUp, Key, KeyConvolution, KeyNorm, PostAttentionNorm, PostFfnNorm, Query, QueryConvolution,
    QueryNorm, Router, RouterCorrection, SharedDown, SharedGate, SharedScore, SharedUp, Sinks, StateGate,
    StateKey, StateNorm, StateOutput, StateQuery, StateShare, StateStep, StateValue, StepBias, Value,
    ValueConvolution,
};
use super::{Roles, Spelling, Stacks, Words};

const fn gguf(roles: Roles) -> Spelling {
    Spelling {
        embedding: "token_embd",
        output_norm: "output_norm",
        head: "output",
        layers: "blk",
        stacks: Stacks::PLAIN,
        // Converters put gates and up projections into one stack where they are told to.
        others: &[Words {
            roles: &[(ExpertUp, "ffn_gate_up_exps"), (ExpertGate, "ffn_gate_up_exps")],
            whole_norms: false,
        }],
        roles,
    }
}

const COMMON: &[(LayerTensor, &str)] = &[
    (AttentionNorm, "attn_norm"),
    (Query, "attn_q"),
    (Key, "attn_k"),
    (Value, "attn_v"),
    (AttentionOutput, "attn_output"),
    (QueryNorm, "attn_q_norm"),
    (KeyNorm, "attn_k_norm"),
    (Sinks, "attn_sinks"),
    (FfnDown, "ffn_down"),
    (Router, "ffn_gate_inp"),
    (RouterCorrection, "exp_probs_b.bias$"),
    (ExpertGate, "ffn_gate_exps"),
    (ExpertUp, "ffn_up_exps"),
    (ExpertDown, "ffn_down_exps"),
    (SharedGate, "ffn_gate_shexp"),
    (SharedUp, "ffn_up_shexp"),
    (SharedDown, "ffn_down_shexp"),
    (SharedScore, "ffn_gate_inp_shexp"),
    (PostFfnNorm, "post_ffw_norm"),
];

const GATED: &[(LayerTensor, &str)] = &[(FfnGate, "ffn_gate"), (FfnUp, "ffn_up")];

const NORMS: &[(LayerTensor, &str)] = &[(PostAttentionNorm, "post_attention_norm"), (FfnNorm, "ffn_norm")];

/// Of layers with two norms, the second one may be called by what comes before it.
const SECOND: &[(LayerTensor, &str)] = &[(FfnNorm, "post_attention_norm")];

/// Most families.
pub(in crate::arch) static GGUF: Spelling = gguf(&[COMMON, GATED, NORMS]);

/// Those whose gate and up projection lie in one tensor.
pub(in crate::arch) static GGUF_FUSED: Spelling =
    gguf(&[COMMON, &[(FfnGate, "ffn_up"), (FfnUp, "ffn_up")], NORMS]);

/// gpt-oss, and GLM 4.5.
pub(in crate::arch) static GGUF_TWO_NORMS: Spelling = gguf(&[COMMON, GATED, SECOND]);

const DELTA: &[(LayerTensor, &str)] = &[
    (StateQuery, "attn_qkv"),
    (StateKey, "attn_qkv"),
    (StateValue, "attn_qkv"),
    (StateGate, "attn_gate"),
    (StateOutput, "ssm_out"),
    (QueryConvolution, "ssm_conv1d"),
    (KeyConvolution, "ssm_conv1d"),
    (ValueConvolution, "ssm_conv1d"),
    (StepBias, "ssm_dt.bias$"),
    (DecayRate, "ssm_a$"),
    (StateNorm, "ssm_norm"),
];

/// Qwen 3.5 and 3.6.
pub(in crate::arch) static GGUF_QWEN3_5: Spelling =
    gguf(&[COMMON, GATED, SECOND, DELTA, &[(StateShare, "ssm_beta"), (StateStep, "ssm_alpha")]]);

/// Qwen3-Next.
pub(in crate::arch) static GGUF_QWEN3_NEXT: Spelling =
    gguf(&[COMMON, GATED, SECOND, DELTA, &[(StateShare, "ssm_ba"), (StateStep, "ssm_ba")]]);
