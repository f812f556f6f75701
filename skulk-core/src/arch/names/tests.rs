//! Are names understood as they are written?

use super::LayerTensor::{ExpertDown, ExpertGate, ExpertUp, LatentKeys, LatentValues};
use super::*;

#[test]
fn names_are_understood_as_they_are_written() {
    let all = [
        &GGUF,
        &GGUF_DEEPSEEK,
        &GGUF_DEEPSEEK_PLAIN,
        &GGUF_DEEPSEEK_SPARSE,
        &GGUF_FUSED,
        &GGUF_GEMMA3N,
        &GGUF_GEMMA4,
        &GGUF_GRANITE_HYBRID,
        &GGUF_KIMI_LINEAR,
        &GGUF_NEMOTRON_H,
        &GGUF_PHI3,
        &GGUF_QWEN3_5,
        &GGUF_QWEN3_NEXT,
        &GGUF_STEP35,
        &GGUF_TWO_NORMS,
        &HF_LLAMA,
        &HF_MIXTRAL,
        &HF_GEMMA3,
        &HF_GEMMA3N,
        &HF_GEMMA4,
        &HF_GLM4_MOE,
        &HF_MINIMAX,
        &HF_STEP3P5,
        &HF_DEEPSEEK_SPARSE,
        &HF_NEMOTRON_H,
    ];
    for spelling in all {
        for prefix in ["", "model.", "language_model.model."] {
            let names = TensorNames::new(prefix.to_owned(), spelling);
            are_understood(&names);
            variants(&names).iter().for_each(are_understood);
        }
    }
    let gpt_oss = TensorNames::new(String::new(), &HF_GPT_OSS);
    variants(&gpt_oss).iter().for_each(are_understood);
    let names = TensorNames::new(String::new(), &HF_MIXTRAL);
    for other in [
        "",
        "norm",
        "model.norm.weight",
        "layers.03.input_layernorm.weight",
        "layers.3.input_layernorm.scale",
        "layers.3.block_sparse_moe.experts.+1.w1.weight",
        "layers.3.block_sparse_moe.experts.{}.w1.weight",
        "layers.99999999999999999999.input_layernorm.weight",
    ] {
        assert_eq!(names.role(other), None, "{other}");
    }
    let (_, stacked) = names.variant(0).unwrap();
    let up = "layers.3.block_sparse_moe.switch_mlp.up_proj.weight";
    assert_eq!(stacked.weight(3, ExpertUp), up);
    assert!(stacked.stacks_experts() && stacked.variant(0).is_none());
}

/// Ways of calling tensors otherwise do not exclude each other.
#[test]
fn words_go_together() {
    let names = TensorNames::new("model.".to_owned(), &HF_DEEPSEEK);
    let (sign, by_head) = names.variant(0).unwrap();
    assert_eq!((sign, by_head.stacks_experts()), (LatentKeys, false));
    assert_eq!(by_head.weight(1, LatentKeys), "model.layers.1.self_attn.embed_q.weight");
    assert_eq!(by_head.weight(1, LatentValues), "model.layers.1.self_attn.unembed_out.weight");
    let (sign, stacked) = by_head.variant(1).unwrap();
    assert_eq!((sign, stacked.stacks_experts()), (ExpertGate, true));
    assert_eq!(stacked.weight(1, LatentKeys), by_head.weight(1, LatentKeys));
    assert_eq!(stacked.weight(1, ExpertUp), "model.layers.1.mlp.experts.gate_up_proj");
    assert!(stacked.variant(2).is_none());
    let (sign, both) = by_head.variant(2).unwrap();
    assert_eq!((sign, both.stacks_experts()), (ExpertUp, true));
    assert_eq!(both.weight(1, LatentKeys), by_head.weight(1, LatentKeys));
    assert_eq!(both.weight(1, ExpertDown), "model.layers.1.mlp.switch_mlp.down_proj.weight");
    assert!(both.variant(2).is_none() && both.variant(3).is_none());

    let names = TensorNames::new("backbone.".to_owned(), &HF_NEMOTRON_H);
    let (_, stacked) = names.variant(0).unwrap();
    assert_eq!(stacked.weight(2, ExpertUp), "backbone.layers.2.mixer.switch_mlp.fc1.weight");
    assert_eq!(stacked.weight(2, ExpertDown), "backbone.layers.2.mixer.switch_mlp.fc2.weight");
}

/// Every way in which conversions call tensors otherwise, alone.
fn variants(names: &TensorNames) -> Vec<TensorNames> {
    (0..).map_while(|at| names.variant(at)).map(|(_, names)| names).collect()
}

#[test]
fn heads_are_beside_text_models() {
    for (prefix, expected) in [
        ("", "lm_head.weight"),
        ("model.", "lm_head.weight"),
        ("model.language_model.", "lm_head.weight"),
        ("language_model.model.", "language_model.lm_head.weight"),
    ] {
        assert_eq!(TensorNames::new(prefix.to_owned(), &HF_LLAMA).head(), expected, "{prefix}");
    }
}

fn are_understood(names: &TensorNames) {
    let mut roles = vec![TensorRole::Embedding, TensorRole::OutputNorm, TensorRole::Head];
    for (tensor, pattern) in names.roles() {
        let expert = pattern.contains(EXPERT).then_some(ExpertIdx(12));
        let biases: &[bool] = if pattern.ends_with(END) { &[false] } else { &[false, true] };
        roles.extend(biases.iter().map(|&is_bias| TensorRole::Layer { layer: 3, tensor, expert, is_bias }));
    }
    for role in roles {
        // Roles may share a tensor, as keys and values of latent attention do.
        let name = names.name(role);
        let found = names.role(&name).map(|role| names.name(role));
        assert_eq!(found.as_ref(), Some(&name), "{role:?}");
    }
}
