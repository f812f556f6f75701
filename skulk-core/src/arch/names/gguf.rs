//! What are tensors called in GGUF files?

use super::LayerTensor::{
    self, AttentionNorm, AttentionOutput, DecayRate, ExpertDown, ExpertGate, ExpertUp, FfnDown, FfnGate,
    FfnNorm, FfnUp, Key, KeyConvolution, KeyNorm, LatentKeys, LatentNorm, LatentValues, PostAttentionNorm,
    PostFfnNorm, Query, QueryConvolution, QueryLatent, QueryLatentNorm, QueryNorm, Router, RouterCorrection,
    SharedDown, SharedGate, SharedScore, SharedUp, Sinks, StateGate, StateKey, StateNorm, StateOutput,
    StateQuery, StateShare, StateSkip, StateStep, StateValue, StepBias, Value, ValueConvolution,
};
use super::spelling::{Roles, Spelling, Stacks, Words};

const fn gguf(roles: Roles) -> Spelling {
    // Converters put gates and up projections into one stack where they are told to.
    gguf_or(
        &[Words {
            roles: &[(ExpertUp, "ffn_gate_up_exps"), (ExpertGate, "ffn_gate_up_exps")],
            whole_norms: false,
        }],
        roles,
    )
}

const fn gguf_or(others: &'static [Words], roles: Roles) -> Spelling {
    Spelling {
        embedding: "token_embd",
        output_norm: "output_norm",
        head: "output",
        layers: "blk",
        stacks: Stacks::PLAIN,
        others,
        roles,
    }
}

const ATTENTION: &[(LayerTensor, &str)] = &[
    (AttentionNorm, "attn_norm"),
    (Query, "attn_q"),
    (Key, "attn_k"),
    (Value, "attn_v"),
    (AttentionOutput, "attn_output"),
    (QueryNorm, "attn_q_norm"),
    (KeyNorm, "attn_k_norm"),
    (Sinks, "attn_sinks"),
];

const BLOCKS: &[(LayerTensor, &str)] = &[
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
pub(in crate::arch) static GGUF: Spelling = gguf(&[ATTENTION, BLOCKS, GATED, NORMS]);

/// Those whose gate and up projection lie in one tensor.
pub(in crate::arch) static GGUF_FUSED: Spelling = gguf(&[ATTENTION, BLOCKS, FUSED, NORMS]);

const FUSED: &[(LayerTensor, &str)] = &[(FfnGate, "ffn_up"), (FfnUp, "ffn_up")];

/// Phi 3: so do queries, keys and values.
pub(in crate::arch) static GGUF_PHI3: Spelling = gguf(&[
    &[
        (AttentionNorm, "attn_norm"),
        (Query, "attn_qkv"),
        (Key, "attn_qkv"),
        (Value, "attn_qkv"),
        (AttentionOutput, "attn_output"),
    ],
    BLOCKS,
    FUSED,
    NORMS,
]);

/// gpt-oss, and GLM 4.5.
pub(in crate::arch) static GGUF_TWO_NORMS: Spelling = gguf(&[ATTENTION, BLOCKS, GATED, SECOND]);

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
    gguf(&[ATTENTION, BLOCKS, GATED, SECOND, DELTA, &[(StateShare, "ssm_beta"), (StateStep, "ssm_alpha")]]);

/// Qwen3-Next.
pub(in crate::arch) static GGUF_QWEN3_NEXT: Spelling =
    gguf(&[ATTENTION, BLOCKS, GATED, SECOND, DELTA, &[(StateShare, "ssm_ba"), (StateStep, "ssm_ba")]]);

/// Of older files, keys and values of heads lie in one tensor, as in Hugging Face's.
const HEADS: &[Words] =
    &[Words { roles: &[(LatentKeys, "attn_k_b"), (LatentValues, "attn_v_b")], whole_norms: false }];

const LATENT: &[(LayerTensor, &str)] = &[
    (AttentionNorm, "attn_norm"),
    (Value, "attn_kv_a_mqa"),
    (Key, "attn_kv_a_mqa"),
    (LatentNorm, "attn_kv_a_norm"),
    (LatentKeys, "attn_kv_b"),
    (LatentValues, "attn_kv_b"),
    (AttentionOutput, "attn_output"),
];

/// DeepSeek V3, and those that took its attention over.
pub(in crate::arch) static GGUF_DEEPSEEK: Spelling = gguf_or(
    HEADS,
    &[
        LATENT,
        &[(QueryLatent, "attn_q_a"), (QueryLatentNorm, "attn_q_a_norm"), (Query, "attn_q_b")],
        BLOCKS,
        GATED,
        NORMS,
    ],
);

/// The same, whose queries are projected at once.
pub(in crate::arch) static GGUF_DEEPSEEK_PLAIN: Spelling =
    gguf_or(HEADS, &[LATENT, &[(Query, "attn_q")], BLOCKS, GATED, NORMS]);

const MAMBA: &[(LayerTensor, &str)] = &[
    (StateGate, "ssm_in"),
    (StateValue, "ssm_in"),
    (StateKey, "ssm_in"),
    (StateQuery, "ssm_in"),
    (StateStep, "ssm_in"),
    (ValueConvolution, "ssm_conv1d"),
    (KeyConvolution, "ssm_conv1d"),
    (QueryConvolution, "ssm_conv1d"),
    (StepBias, "ssm_dt.bias$"),
    (DecayRate, "ssm_a$"),
    (StateSkip, "ssm_d$"),
    (StateNorm, "ssm_norm"),
    (StateOutput, "ssm_out"),
];

/// Granite 4, hybrid.
pub(in crate::arch) static GGUF_GRANITE_HYBRID: Spelling = gguf(&[ATTENTION, BLOCKS, GATED, NORMS, MAMBA]);

/// Nemotron-H, whose layers have one norm, whatever comes behind it.
pub(in crate::arch) static GGUF_NEMOTRON_H: Spelling =
    gguf(&[ATTENTION, BLOCKS, GATED, &[(FfnNorm, "attn_norm")], MAMBA]);
