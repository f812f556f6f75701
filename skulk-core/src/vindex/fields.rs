//! Which field of an `index.json` is not what it should be? For messages, in JSON's words.

use serde_json::Value;

use self::Kind::{Any, Flag, List, Map, Number, Object, OneOf, Pair, Text, Whole};

/// What a value should be.
enum Kind {
    Any,
    Flag,
    Text,
    OneOf(&'static [&'static str]),
    Whole,
    Number,
    /// Two whole numbers.
    Pair,
    List(&'static Kind),
    /// An object with values of one kind.
    Map(&'static Kind),
    Object(&'static [Field]),
}

/// A field: its name, what it holds, and whether it may be absent, or null.
struct Field(&'static str, Kind, Absent);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Absent {
    /// Never.
    Never,
    /// It may be absent, but not null.
    Left,
    /// It may be absent or null.
    Null,
}
use Absent::{Left, Never, Null};

const LAYER: Kind = Object(&[
    Field("layer", Whole, Never),
    Field("num_features", Whole, Never),
    Field("offset", Whole, Never),
    Field("length", Whole, Never),
    Field("num_experts", Whole, Null),
    Field("num_features_per_expert", Whole, Null),
]);

const SOURCE: Kind = Object(&[
    Field("huggingface_repo", Text, Null),
    Field("huggingface_revision", Text, Null),
    Field("safetensors_sha256", Text, Null),
    Field("extracted_at", Text, Never),
    Field("larql_version", Text, Never),
]);

const BANDS: Kind =
    Object(&[Field("syntax", Pair, Never), Field("knowledge", Pair, Never), Field("output", Pair, Never)]);

const MODEL: Kind = Object(&[
    Field("model_type", Text, Never),
    Field("head_dim", Whole, Never),
    Field("num_q_heads", Whole, Never),
    Field("num_kv_heads", Whole, Never),
    Field("rope_base", Number, Never),
    Field("sliding_window", Whole, Null),
    Field("moe", MOE, Null),
    Field("global_head_dim", Whole, Null),
    Field("num_global_kv_heads", Whole, Null),
    Field("partial_rotary_factor", Number, Null),
    Field("sliding_window_pattern", Whole, Null),
    Field("layer_types", List(&Text), Null),
    Field("attention_k_eq_v", Flag, Left),
    Field("num_kv_shared_layers", Whole, Null),
    Field("per_layer_embed_dim", Whole, Null),
    Field("rope_local_base", Number, Null),
    Field("query_pre_attn_scalar", Number, Null),
    Field("final_logit_softcapping", Number, Null),
]);

const MOE: Kind = Object(&[
    Field("num_experts", Whole, Never),
    Field("top_k", Whole, Never),
    Field("shared_expert", Flag, Left),
    Field("router_type", Text, Left),
    Field("moe_intermediate_size", Whole, Null),
    Field("hybrid", Flag, Left),
]);

const SLICE: Kind = Object(&[
    Field("preset", Text, Never),
    Field("layers", List(&Pair), Null),
    Field("experts", List(&Pair), Null),
    Field("lacks", List(&Text), Never),
]);

const INDEX: Kind = Object(&[
    Field("version", Whole, Never),
    Field("model", Text, Never),
    Field("family", Text, Never),
    Field("source", SOURCE, Null),
    Field("checksums", Map(&Text), Null),
    Field("num_layers", Whole, Never),
    Field("hidden_size", Whole, Never),
    Field("intermediate_size", Whole, Never),
    Field("vocab_size", Whole, Never),
    Field("embed_scale", Number, Never),
    Field("extract_level", OneOf(&["browse", "attention", "inference", "all"]), Left),
    Field("dtype", Text, Left),
    Field("quant", Text, Left),
    Field("layer_bands", BANDS, Null),
    Field("layers", List(&LAYER), Never),
    Field("down_top_k", Whole, Never),
    Field("has_model_weights", Flag, Left),
    Field("model_config", MODEL, Null),
    Field("fp4", Any, Null),
    Field("ffn_layout", Text, Null),
    Field("skulk", Object(&[Field("config", Any, Null), Field("slice", SLICE, Null)]), Null),
]);

/// The first field that is not what it should be, by its path, with what is wrong; of the whole text an empty path.
pub(super) fn wrong_field(index: &Value) -> Option<(String, String)> {
    check(index, &INDEX, "")
}

fn check(value: &Value, kind: &Kind, at: &str) -> Option<(String, String)> {
    let is_right = match (kind, value) {
        (Any, _) | (Flag, Value::Bool(_)) | (Text, Value::String(_)) | (Number, Value::Number(_)) => true,
        (OneOf(words), Value::String(found)) => words.contains(&found.as_str()),
        (Whole, found) => found.is_u64(),
        (Pair, Value::Array(pair)) => pair.len() == 2 && pair.iter().all(Value::is_u64),
        (List(each), Value::Array(list)) => {
            return list.iter().enumerate().find_map(|(i, value)| check(value, each, &format!("{at}[{i}]")));
        }
        (Map(each), Value::Object(map)) => {
            return map.iter().find_map(|(key, value)| check(value, each, &inside(at, key)));
        }
        (Object(fields), Value::Object(map)) => {
            return fields.iter().find_map(|Field(name, kind, absent)| match map.get(*name) {
                None if *absent != Never => None,
                None => Some((inside(at, name), format!("expected {}, found no such field", words(kind)))),
                Some(Value::Null) if *absent == Null => None,
                Some(value) => check(value, kind, &inside(at, name)),
            });
        }
        _ => false,
    };
    let wrong = || format!("expected {}, found {}", words(kind), shown(value));
    (!is_right).then(|| (at.to_owned(), wrong()))
}

fn inside(at: &str, key: &str) -> String {
    if at.is_empty() { key.to_owned() } else { format!("{at}.{key}") }
}

fn words(kind: &Kind) -> String {
    let words = match kind {
        Any => "a value",
        Flag => "true or false",
        Text => "a string",
        OneOf(words) => return words.join(", ").replace(", all", " or all"),
        Whole => "a whole number",
        Number => "a number",
        Pair => "a list of two whole numbers",
        List(_) => "a list",
        Map(_) | Object(_) => "an object",
    };
    words.to_owned()
}

/// A value as it stands there, long ones by their kind.
fn shown(value: &Value) -> String {
    const MOST: usize = 40;
    match value {
        Value::Array(_) if value.to_string().len() > MOST => "another list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::String(text) if text.len() > MOST => "a long string".to_owned(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn index() -> Value {
        json!({
            "version": 2, "model": "m", "family": "llama", "source": null, "checksums": {"norms.bin": "00"},
            "num_layers": 1, "hidden_size": 2, "intermediate_size": 4, "vocab_size": 8, "embed_scale": 1.5,
            "layer_bands": {"syntax": [0, 0], "knowledge": [0, 0], "output": [0, 0]},
            "layers": [{"layer": 0, "num_features": 4, "offset": 0, "length": 32}], "down_top_k": 10,
            "model_config": {"model_type": "llama", "head_dim": 2, "num_q_heads": 1, "num_kv_heads": 1,
                "rope_base": 10000, "moe": {"num_experts": 2, "top_k": 1}},
            "skulk": {"slice": {"preset": "client", "layers": [[0, 1]], "lacks": ["ffn"]}}, "else": 5,
        })
    }

    #[test]
    fn the_first_wrong_field_is_named() {
        assert_eq!(wrong_field(&index()), None);
        for (pointer, value, at, message) in [
            (
                "/extract_level",
                Value::Null,
                "extract_level",
                "expected browse, attention, inference or all, found null",
            ),
            ("/layer_bands", json!(true), "layer_bands", "expected an object, found true"),
            (
                "/layer_bands/output",
                json!([0]),
                "layer_bands.output",
                "expected a list of two whole numbers, found [0]",
            ),
            ("/layers/0/offset", json!(-1), "layers[0].offset", "expected a whole number, found -1"),
            ("/layers", json!({}), "layers", "expected a list, found an object"),
            ("/checksums/norms.bin", json!(1), "checksums.norms.bin", "expected a string, found 1"),
            (
                "/model_config/moe/hybrid",
                json!("x"),
                "model_config.moe.hybrid",
                "expected true or false, found \"x\"",
            ),
            ("/skulk/slice/lacks", json!([1]), "skulk.slice.lacks[0]", "expected a string, found 1"),
            ("", json!([]), "", "expected an object, found []"),
        ] {
            let mut index = index();
            match pointer.rsplit_once('/') {
                None => index = value,
                Some((parent, key)) => match index.pointer_mut(parent) {
                    Some(Value::Array(list)) => list[key.parse::<usize>().unwrap()] = value,
                    Some(parent) => parent[key] = value,
                    None => unreachable!("{pointer}"),
                },
            }
            assert_eq!(wrong_field(&index), Some((at.to_owned(), message.to_owned())));
            let parsed =
                crate::vindex::VindexIndex::parse(index.to_string().as_bytes(), "index.json".as_ref());
            let error = parsed.unwrap_err().to_string();
            assert!(error.contains(message) && error.contains(at), "{error}");
        }
    }

    /// What the table says may be absent or null may be for the reader too, and the other way round.
    #[test]
    fn the_table_is_what_is_read() {
        let parse = |index: &Value| {
            crate::vindex::VindexIndex::parse(index.to_string().as_bytes(), "index.json".as_ref())
        };
        parse(&index()).unwrap();
        let Object(fields) = INDEX else { return };
        for Field(name, _, absent) in fields.iter().filter(|field| field.0 != "version") {
            let (mut without, mut null) = (index(), index());
            without.as_object_mut().unwrap().remove(*name);
            null[*name] = Value::Null;
            assert_eq!(parse(&without).is_ok(), *absent != Never, "{name}");
            assert_eq!(parse(&null).is_ok(), *absent == Null, "{name}");
            assert_eq!(wrong_field(&without).is_none(), *absent != Never, "{name}");
            assert_eq!(wrong_field(&null).is_none(), *absent == Null, "{name}");
        }
    }
}
