//! Which facts of a card does a config.json hold? Read as the reference reads it: under several names, and with
//! numbers that may be written as strings.

use serde_json::Value;

use crate::card::VisionCardConfig;
use crate::error::{Error, ErrorKind, Result};

/// Names that configurations have for the number of layers, by precedence.
const LAYERS: [&str; 6] =
    ["num_hidden_layers", "num_layers", "n_layer", "n_layers", "num_decoder_layers", "decoder_layers"];

/// What each layer is: where the number is left out, as many as are listed.
const LISTED: &str = "layers_block_type";

/// Architectures whose tensors the reference can split over nodes. A configuration must name one of them, and
/// nothing beside it.
const TENSOR_PARALLEL: &[&str] = &[
    "Glm4MoeLiteForCausalLM",
    "GlmMoeDsaForCausalLM",
    "DeepseekV32ForCausalLM",
    "DeepseekV3ForCausalLM",
    "Qwen3NextForCausalLM",
    "Qwen3MoeForCausalLM",
    "Qwen3_5MoeForConditionalGeneration",
    "Qwen3_5ForConditionalGeneration",
    "MiniMaxM2ForCausalLM",
    "LlamaForCausalLM",
    "GptOssForCausalLM",
    "Step3p5ForCausalLM",
    "NemotronHForCausalLM",
];

/// What a Hugging Face configuration says that a card needs. What its `text_config` says goes before what it says
/// itself.
///
/// As `ConfigData` of Skulk 1.3, which asks for a number of layers also where `layers_block_type` lists them.
///
/// ```
/// use skulk::card::ConfigFacts;
/// let config = serde_json::json!({ "n_layer": "12", "hidden_size": 768.0 });
/// let facts = ConfigFacts::from_config(&config, "openai-community/gpt2")?;
/// assert_eq!((facts.n_layers, facts.hidden_size), (12, Some(768)));
/// # Ok::<(), skulk::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ConfigFacts {
    /// Decoder layers, as the configuration says; a card needs at least 1.
    pub n_layers: i64,
    /// Width of the residual stream.
    pub hidden_size: Option<u64>,
    /// Key/value heads; at least 1.
    pub num_key_value_heads: Option<u64>,
    /// Positions it was trained for, in tokens.
    pub max_position_embeddings: Option<i64>,
    /// Classes that implement the model.
    pub architectures: Vec<String>,
    /// What it is called: `model_type`.
    pub model_type: String,
    /// How it sees, where the configuration has both a vision tower and an image token.
    pub vision: Option<VisionCardConfig>,
}

impl ConfigFacts {
    /// Reads a parsed `config.json` of the model `model_id`, whose own repository holds its vision weights.
    ///
    /// # Errors
    /// [`ErrorKind::ConfigInvalid`] with the field: no number of layers, or a value of another type or range.
    pub fn from_config(config: &Value, model_id: &str) -> Result<Self> {
        if !config.is_object() {
            return Err(invalid("", "a JSON object", config));
        }
        let text = present(config, "text_config").unwrap_or(&Value::Null);
        if !text.is_object() && !text.is_null() {
            return Err(invalid("text_config", "an object", text));
        }
        let field = |key: &str| present(text, key).or_else(|| config.get(key));
        let set = |key: &str| field(key).filter(|value| !value.is_null());
        let n_layers = match LAYERS.iter().find_map(|&name| Some((name, field(name)?))) {
            Some((name, layers)) => whole(layers).ok_or_else(|| invalid(name, "a whole number", layers))?,
            None => field(LISTED)
                .and_then(Value::as_array)
                .and_then(|blocks| i64::try_from(blocks.len()).ok())
                .ok_or_else(|| invalid("num_hidden_layers", "the number of layers", &Value::Null))?,
        };
        let kv_heads = optional(set("num_key_value_heads"), "num_key_value_heads", "a number of at least 1")?;
        Ok(Self {
            n_layers,
            hidden_size: optional(set("hidden_size"), "hidden_size", "a number of at least 0")?,
            num_key_value_heads: match kv_heads {
                Some(0) => {
                    return Err(invalid("num_key_value_heads", "a number of at least 1", &Value::from(0)));
                }
                heads => heads,
            },
            max_position_embeddings: set("max_position_embeddings")
                .map(|v| whole(v).ok_or_else(|| invalid("max_position_embeddings", "a whole number", v)))
                .transpose()?,
            architectures: set("architectures").map(strings).transpose()?.unwrap_or_default(),
            model_type: [config, text]
                .iter()
                .find_map(|at| at.get("model_type")?.as_str())
                .unwrap_or_default()
                .to_owned(),
            vision: vision(config, model_id)?,
        })
    }

    /// Whether the reference can split the model's tensors over nodes.
    pub fn supports_tensor(&self) -> bool {
        matches!(self.architectures.as_slice(), [one] if TENSOR_PARALLEL.contains(&one.as_str()))
    }
}

/// How the model sees: only where there is a vision tower and a token for images.
fn vision(config: &Value, model_id: &str) -> Result<Option<VisionCardConfig>> {
    let (Some(tower), Some(token)) = (present(config, "vision_config"), present(config, "image_token_id"))
    else {
        return Ok(None);
    };
    if !tower.is_object() {
        return Err(invalid("vision_config", "an object", tower));
    }
    let token_id = |key: &str| {
        let value = present(config, key);
        value.map(|v| whole(v).ok_or_else(|| invalid(key, "a token's id", v))).transpose()
    };
    let model_type = [config, tower].iter().find_map(|at| at.get("model_type")?.as_str());
    Ok(Some(VisionCardConfig {
        image_token_id: Some(whole(token).ok_or_else(|| invalid("image_token_id", "a token's id", token))?),
        model_type: model_type.unwrap_or_default().to_owned(),
        weights_repo: model_id.to_owned(),
        boi_token_id: token_id("boi_token_id")?,
        eoi_token_id: token_id("eoi_token_id")?,
        ..VisionCardConfig::default()
    }))
}

fn present<'a>(at: &'a Value, key: &str) -> Option<&'a Value> {
    at.get(key).filter(|value| !value.is_null())
}

fn optional(value: Option<&Value>, key: &str, expected: &str) -> Result<Option<u64>> {
    let read = |v: &Value| u64::try_from(whole(v)?).ok();
    value.map(|v| read(v).ok_or_else(|| invalid(key, expected, v))).transpose()
}

fn strings(value: &Value) -> Result<Vec<String>> {
    let list = value.as_array().ok_or_else(|| invalid("architectures", "a list of names", value))?;
    let name = |(i, v): (usize, &Value)| {
        v.as_str().map(str::to_owned).ok_or_else(|| invalid(&format!("architectures.{i}"), "a name", v))
    };
    list.iter().enumerate().map(name).collect()
}

/// A whole number in whatever form: `32`, `32.0`, `"32"`, `" +32.0 "`, `"1_000"`; true is 1. These are the
/// conversions of pydantic's lax mode, which the reference reads configurations in.
pub(super) fn whole(value: &Value) -> Option<i64> {
    match value {
        Value::Bool(is) => Some((*is).into()),
        Value::Number(number) => number.as_i64().or_else(|| {
            let float = number.as_f64()?;
            // Within these bounds every float without a fraction is an i64.
            (float.fract() == 0.0 && float.abs() < i64::MAX as f64).then_some(float as i64)
        }),
        Value::String(text) => whole_in(text.trim()),
        _ => None,
    }
}

fn whole_in(text: &str) -> Option<i64> {
    let text = match text.split_once('.') {
        Some((whole, fraction)) if !fraction.is_empty() && fraction.bytes().all(|b| b == b'0') => whole,
        Some(_) => return None,
        None => text,
    };
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let grouped = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !digits.split('_').all(grouped) {
        return None;
    }
    text.replace('_', "").parse().ok()
}

fn invalid(field: &str, expected: &str, found: &Value) -> Error {
    let found = match found {
        Value::Null => "none".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        other => other.to_string().chars().take(80).collect(),
    };
    Error::new(ErrorKind::ConfigInvalid, format!("expected {expected}, found {found}"))
        .with("field", field)
        .with_hint("fetch the model's config.json again")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn whole_numbers_are_read_in_every_form_that_the_reference_takes() {
        let numbers = [
            (json!(true), 1),
            (json!("32"), 32),
            (json!(" +3 "), 3),
            (json!("-3"), -3),
            (json!("1_000.0"), 1000),
            (json!("00012"), 12),
            (json!(32.0), 32),
            (json!(1e3), 1000),
        ];
        for (value, expected) in numbers {
            assert_eq!(whole(&value), Some(expected), "{value}");
        }
        let others = ["1__0", "_1", "32.", "32.5", ".0", "", "0x10", "1e3", "- 3", "--3", "٣", "12abc"];
        for text in others {
            assert_eq!(whole(&json!(text)), None, "{text:?}");
        }
        for value in [json!(32.5), json!(1e300), json!([1]), json!({}), json!(null)] {
            assert_eq!(whole(&value), None, "{value}");
        }
    }

    #[test]
    fn errors_name_the_field_as_the_configuration_spells_it() {
        let field = |config: Value| {
            let error = ConfigFacts::from_config(&config, "m").err().unwrap();
            assert_eq!(error.kind(), ErrorKind::ConfigInvalid);
            error.context().iter().find(|(key, _)| *key == "field").unwrap().1.clone()
        };
        assert_eq!(field(json!({})), "num_hidden_layers");
        assert_eq!(field(json!({ "num_hidden_layers": null, "n_layers": 2 })), "num_hidden_layers");
        assert_eq!(field(json!({ "n_layer": "many" })), "n_layer");
        assert_eq!(field(json!({ "n_layer": 2, "architectures": ["A", 1] })), "architectures.1");
        assert_eq!(field(json!({ "n_layer": 2, "text_config": 1 })), "text_config");
        let vision = json!({ "n_layer": 2, "vision_config": {}, "image_token_id": "x" });
        assert_eq!(field(vision), "image_token_id");
    }
}
