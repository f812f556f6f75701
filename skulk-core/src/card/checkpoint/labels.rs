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

/// What llama.cpp numbers as `llama_ftype`; empty: a number that is not in use.
const FILE_TYPES: [&str; 39] = [
    "F32", "F16", "Q4_0", "Q4_1", "", "", "", "Q8_0", "Q5_0", "Q5_1", "Q2_K", "Q3_K_S", "Q3_K_M", "Q3_K_L",
    "Q4_K_S", "Q4_K_M", "Q5_K_S", "Q5_K_M", "Q6_K", "IQ2_XXS", "IQ2_XS", "Q2_K_S", "IQ3_XS", "IQ3_XXS",
    "IQ1_S", "IQ4_NL", "IQ3_S", "IQ3_M", "IQ2_S", "IQ2_M", "IQ4_XS", "IQ1_M", "BF16", "", "", "", "TQ1_0",
    "TQ2_0", "MXFP4",
];

/// What a GGUF file calls its own quantisation: `general.file_type`.
pub(super) fn gguf(metadata: &GgufMetadata) -> String {
    let number = metadata.opt_u64("general.file_type").ok().flatten();
    let label = number.and_then(|number| FILE_TYPES.get(usize::try_from(number).ok()?));
    label.copied().unwrap_or_default().to_owned()
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
