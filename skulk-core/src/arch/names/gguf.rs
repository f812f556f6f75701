//! What are tensors called in GGUF files?

use super::LayerTensor::{
    self, AttentionNorm, AttentionOutput, BypassDown, BypassNorm, BypassUp, DecayRate, ExpertDown,
    ExpertGate, ExpertUp, ExpertsNorm, FfnDown, FfnGate, FfnNorm, FfnUp, HeadGate, IndexKey, IndexKeyNorm,
    IndexQuery, IndexWeights, InputGate, InputProjection, Key, KeyConvolution, KeyNorm, LatentKeys,
    LatentNorm, LatentValues, OutputScale, PostAttentionNorm, PostExpertsNorm, PostFfnNorm, PostInputNorm,
    PostSharedNorm, Query, QueryConvolution, QueryLatent, QueryLatentNorm, QueryNorm, Router,
    RouterCorrection, RouterNorm, RouterScales, SharedDown, SharedGate, SharedScore, SharedUp, Sinks,
    StateGate, StateGateLatent, StateKey, StateNorm, StateOutput, StateQuery, StateShare, StateSkip,
    StateStep, StateStepLatent, StateValue, StepBias, StreamCorrection, StreamNorm, StreamPrediction,
    StreamRouter, StreamScale, Value, ValueConvolution,
};
use super::spelling::{Roles, Spelling, Stacks, Words};

const fn gguf(roles: Roles) -> Spelling {
    gguf_or(&[GATES_AND_UPS], roles)
}

/// Converters put gates and up projections into one stack where they are told to, and Gemma 4's in any case.
const GATES_AND_UPS: Words =
    Words { roles: &[(ExpertUp, "ffn_gate_up_exps"), (ExpertGate, "ffn_gate_up_exps")], whole_norms: false };

const fn gguf_or(others: &'static [Words], roles: Roles) -> Spelling {
    Spelling {
        embedding: "token_embd",
        output_norm: "output_norm",
        head: "output",
        layers: "blk",
        inputs: ["per_layer_token_embd", "per_layer_model_proj", "per_layer_proj_norm"],
        streams: ["altup_proj", "altup_unembd_proj"],
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
    (PostFfnNorm, "post_ffw_norm"),
];

const SHARED: &[(LayerTensor, &str)] = &[
    (SharedGate, "ffn_gate_shexp"),
    (SharedUp, "ffn_up_shexp"),
    (SharedDown, "ffn_down_shexp"),
    (SharedScore, "ffn_gate_inp_shexp"),
];

const GATED: &[(LayerTensor, &str)] = &[(FfnGate, "ffn_gate"), (FfnUp, "ffn_up")];

const NORMS: &[(LayerTensor, &str)] = &[(PostAttentionNorm, "post_attention_norm"), (FfnNorm, "ffn_norm")];

/// Of layers with two norms, the second one may be called by what comes before it.
const SECOND: &[(LayerTensor, &str)] = &[(FfnNorm, "post_attention_norm")];

/// Most families.
pub(in crate::arch) static GGUF: Spelling = gguf(&[ATTENTION, BLOCKS, SHARED, GATED, NORMS]);

/// Those whose gate and up projection lie in one tensor.
pub(in crate::arch) static GGUF_FUSED: Spelling = gguf(&[ATTENTION, BLOCKS, SHARED, FUSED, NORMS]);

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
    SHARED,
    FUSED,
    NORMS,
]);

/// gpt-oss, and GLM 4.5.
pub(in crate::arch) static GGUF_TWO_NORMS: Spelling = gguf(&[ATTENTION, BLOCKS, SHARED, GATED, SECOND]);

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
pub(in crate::arch) static GGUF_QWEN3_5: Spelling = gguf(&[
    ATTENTION,
    BLOCKS,
    SHARED,
    GATED,
    SECOND,
    DELTA,
    &[(StateShare, "ssm_beta"), (StateStep, "ssm_alpha")],
]);

/// Qwen3-Next.
pub(in crate::arch) static GGUF_QWEN3_NEXT: Spelling = gguf(&[
    ATTENTION,
    BLOCKS,
    SHARED,
    GATED,
    SECOND,
    DELTA,
    &[(StateShare, "ssm_ba"), (StateStep, "ssm_ba")],
]);

/// Of older files, keys and values of heads lie in one tensor, as in Hugging Face's.
const HEADS: &[Words] = &[
    Words { roles: &[(LatentKeys, "attn_k_b"), (LatentValues, "attn_v_b")], whole_norms: false },
    GATES_AND_UPS,
];

const LATENT: &[(LayerTensor, &str)] = &[
    (AttentionNorm, "attn_norm"),
    (Value, "attn_kv_a_mqa"),
    (Key, "attn_kv_a_mqa"),
    (LatentNorm, "attn_kv_a_norm"),
    (LatentKeys, "attn_kv_b"),
    (LatentValues, "attn_kv_b"),
    (AttentionOutput, "attn_output"),
];

const LATENT_QUERIES: &[(LayerTensor, &str)] =
    &[(QueryLatent, "attn_q_a"), (QueryLatentNorm, "attn_q_a_norm"), (Query, "attn_q_b")];

/// DeepSeek V3, and those that took its attention over.
pub(in crate::arch) static GGUF_DEEPSEEK: Spelling =
    gguf_or(HEADS, &[LATENT, LATENT_QUERIES, BLOCKS, SHARED, GATED, NORMS]);

/// The same, whose queries are projected at once.
pub(in crate::arch) static GGUF_DEEPSEEK_PLAIN: Spelling =
    gguf_or(HEADS, &[LATENT, &[(Query, "attn_q")], BLOCKS, SHARED, GATED, NORMS]);

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
pub(in crate::arch) static GGUF_GRANITE_HYBRID: Spelling =
    gguf(&[ATTENTION, BLOCKS, SHARED, GATED, NORMS, MAMBA]);

/// Nemotron-H, whose layers have one norm, whatever comes behind it.
pub(in crate::arch) static GGUF_NEMOTRON_H: Spelling =
    gguf(&[ATTENTION, BLOCKS, SHARED, GATED, &[(FfnNorm, "attn_norm")], MAMBA]);

/// DeepSeek V3.2 and GLM 5, whose rows see positions that are chosen.
pub(in crate::arch) static GGUF_DEEPSEEK_SPARSE: Spelling = gguf_or(
    HEADS,
    &[
        LATENT,
        LATENT_QUERIES,
        &[
            (IndexQuery, "indexer.attn_q_b"),
            (IndexKey, "indexer.attn_k"),
            (IndexKeyNorm, "indexer.k_norm"),
            (IndexWeights, "indexer.proj"),
        ],
        BLOCKS,
        SHARED,
        GATED,
        NORMS,
    ],
);

/// Kimi Linear. Layers with a state and those with latent vectors call some projections alike.
pub(in crate::arch) static GGUF_KIMI_LINEAR: Spelling = gguf_or(
    HEADS,
    &[
        LATENT,
        &[
            (Query, "attn_q"),
            (StateQuery, "attn_q"),
            (StateKey, "attn_k"),
            (StateValue, "attn_v"),
            (StateStepLatent, "ssm_f_a"),
            (StateStep, "ssm_f_b"),
            (StateGateLatent, "ssm_g_a"),
            (StateGate, "ssm_g_b"),
            (StateShare, "ssm_beta"),
            (QueryConvolution, "ssm_conv1d_q"),
            (KeyConvolution, "ssm_conv1d_k"),
            (ValueConvolution, "ssm_conv1d_v"),
            (StepBias, "ssm_dt.bias$"),
            (DecayRate, "ssm_a$"),
            (StateNorm, "ssm_norm"),
            (StateOutput, "attn_output"),
        ],
        BLOCKS,
        SHARED,
        GATED,
        NORMS,
    ],
);

/// Step 3.5.
pub(in crate::arch) static GGUF_STEP35: Spelling =
    gguf(&[ATTENTION, BLOCKS, SHARED, GATED, NORMS, &[(HeadGate, "attn_gate")]]);

const INPUTS: &[(LayerTensor, &str)] =
    &[(InputGate, "inp_gate"), (InputProjection, "proj"), (PostInputNorm, "post_norm")];

/// Gemma 4. Beside experts the dense block is the shared one.
pub(in crate::arch) static GGUF_GEMMA4: Spelling = gguf(&[
    ATTENTION,
    BLOCKS,
    GATED,
    NORMS,
    INPUTS,
    &[
        (OutputScale, "layer_output_scale"),
        (RouterNorm, "ffn_gate_inp.scale$"),
        (RouterScales, "ffn_down_exps.scale$"),
        (ExpertsNorm, "pre_ffw_norm_2"),
        (PostExpertsNorm, "post_ffw_norm_2"),
        (SharedGate, "ffn_gate"),
        (SharedUp, "ffn_up"),
        (SharedDown, "ffn_down"),
        (PostSharedNorm, "post_ffw_norm_1"),
    ],
]);

/// Gemma 3n.
pub(in crate::arch) static GGUF_GEMMA3N: Spelling = gguf(&[
    ATTENTION,
    BLOCKS,
    GATED,
    NORMS,
    INPUTS,
    &[
        (StreamNorm, "altup_router_norm"),
        (StreamRouter, "altup_router"),
        (StreamPrediction, "altup_predict_coef"),
        (StreamCorrection, "altup_correct_coef"),
        (StreamScale, "altup_correct_scale"),
        (BypassDown, "laurel_l"),
        (BypassUp, "laurel_r"),
        (BypassNorm, "laurel_post_norm"),
    ],
]);
