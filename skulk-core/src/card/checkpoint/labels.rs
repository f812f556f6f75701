//! What do people call this family and this quantisation? In the words of published cards.

use serde_json::Value;

use crate::weights::gguf::GgufMetadata;
use crate::weights::{Checkpoint, DType};

/// Families whose name is not the first word of what configurations call them.
const FAMILIES: &[(&str, &str)] = &[("gpt_oss", "gpt-oss"), ("gpt-oss", "gpt-oss"), ("chatglm", "glm")];

/// The family of a model type: `qwen` of `qwen3_moe`, `gemma` of `gemma3_text`.
pub(super) fn family(model_type: &str) -> String {
    match FAMILIES.iter().find(|(name, _)| *name == model_type) {
        Some((_, family)) => (*family).to_owned(),
        None => model_type.to_lowercase().chars().take_while(char::is_ascii_alphabetic).collect(),
    }
}

/// How a Hugging Face checkpoint is quantised, else the type of most of its bytes; empty where neither is known.
pub(super) fn huggingface(config: &Value, checkpoint: &dyn Checkpoint) -> String {
    let section = ["quantization", "quantization_config"].iter().find_map(|key| config.get(key)?.as_object());
    let Some(section) = section else {
        return most_bytes(checkpoint).to_owned();
    };
    let word = |key: &str| section.get(key).and_then(Value::as_str).unwrap_or_default();
    let set = |key: &str| section.get(key) == Some(&Value::Bool(true));
    // MLX writes its mode, other tools their method; both may keep some layers at 8 bits.
    let rest_at_8 = section.values().any(|layer| layer.get("bits").and_then(Value::as_u64) == Some(8));
    match (word("mode"), word("quant_method")) {
        ("mxfp4", _) | (_, "mxfp4") if rest_at_8 => "MXFP4-Q8".to_owned(),
        ("mxfp4", _) | (_, "mxfp4") => "MXFP4".to_owned(),
        (mode @ ("mxfp8" | "nvfp4"), _) => mode.to_uppercase(),
        (_, "fp8") => "fp8".to_owned(),
        _ => match section.get("bits").and_then(Value::as_u64) {
            Some(bits) => format!("{bits}bit"),
            None if set("load_in_4bit") => "4bit".to_owned(),
            None if set("load_in_8bit") => "8bit".to_owned(),
            None => String::new(),
        },
    }
}

/// The type that takes most bytes of a checkpoint.
fn most_bytes(checkpoint: &dyn Checkpoint) -> &'static str {
    let labels = [(DType::BF16, "bf16"), (DType::F16, "fp16"), (DType::F32, "fp32")];
    let bytes = |dtype: DType| {
        let of_type = checkpoint.tensors().iter().filter(|tensor| tensor.dtype == dtype);
        of_type.fold(0u64, |sum, tensor| sum.saturating_add(tensor.len))
    };
    let most = labels.into_iter().max_by_key(|&(dtype, _)| bytes(dtype));
    most.filter(|&(dtype, _)| bytes(dtype) > 0).map_or("", |(_, label)| label)
}

/// What a GGUF file calls its own quantisation: `general.file_type`, which llama.cpp numbers as `llama_ftype`.
pub(super) fn gguf(metadata: &GgufMetadata) -> String {
    let label = match metadata.opt_u64("general.file_type").ok().flatten() {
        Some(0) => "F32",
        Some(1) => "F16",
        Some(2) => "Q4_0",
        Some(3) => "Q4_1",
        Some(7) => "Q8_0",
        Some(8) => "Q5_0",
        Some(9) => "Q5_1",
        Some(10) => "Q2_K",
        Some(11) => "Q3_K_S",
        Some(12) => "Q3_K_M",
        Some(13) => "Q3_K_L",
        Some(14) => "Q4_K_S",
        Some(15) => "Q4_K_M",
        Some(16) => "Q5_K_S",
        Some(17) => "Q5_K_M",
        Some(18) => "Q6_K",
        Some(19) => "IQ2_XXS",
        Some(20) => "IQ2_XS",
        Some(21) => "Q2_K_S",
        Some(22) => "IQ3_XS",
        Some(23) => "IQ3_XXS",
        Some(24) => "IQ1_S",
        Some(25) => "IQ4_NL",
        Some(26) => "IQ3_S",
        Some(27) => "IQ3_M",
        Some(28) => "IQ2_S",
        Some(29) => "IQ2_M",
        Some(30) => "IQ4_XS",
        Some(31) => "IQ1_M",
        Some(32) => "BF16",
        Some(36) => "TQ1_0",
        Some(37) => "TQ2_0",
        Some(38) => "MXFP4",
        _ => "",
    };
    label.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_called_as_in_published_cards() {
        let families = [
            ("qwen3_5_moe", "qwen"),
            ("qwen3moe", "qwen"),
            ("llama", "llama"),
            ("gemma3n", "gemma"),
            ("glm4_moe_lite", "glm"),
            ("deepseek_v32", "deepseek"),
            ("gpt_oss", "gpt-oss"),
            ("gpt-oss", "gpt-oss"),
            ("kimi_k2", "kimi"),
            ("minimax_m2", "minimax"),
            ("nemotron_h", "nemotron"),
            ("step3p5", "step"),
            ("bert", "bert"),
            ("", ""),
        ];
        for (model_type, expected) in families {
            assert_eq!(family(model_type), expected, "{model_type}");
        }
    }
}
