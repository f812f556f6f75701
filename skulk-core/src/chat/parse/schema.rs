//! Which types do tools declare for their arguments, and what does a value become?

use std::collections::BTreeMap;

use serde_json::{Number, Value};

use super::call::python;
use crate::error::{Error, Result};

/// Levels of a value that are converted.
const DEPTH: usize = 32;

/// What tools declare.
#[derive(Debug, Clone, Default)]
pub(super) struct Tools {
    /// The schema of the arguments, by function.
    schemas: BTreeMap<String, Value>,
}

impl Tools {
    /// From descriptions in OpenAI's shape, with or without `function` around them.
    pub(super) fn new(tools: &[Value]) -> Result<Self> {
        let schemas = tools.iter().enumerate().map(|(at, tool)| {
            let function = tool.get("function").unwrap_or(tool);
            let name = function.get("name").and_then(Value::as_str);
            let name = name.ok_or_else(|| {
                Error::argument(
                    format!("tools[{at}].function.name"),
                    "expected the name of a function, found none",
                )
                .with_hint(
                    r#"describe tools as {"type": "function", "function": {"name": …, "parameters": …}}"#,
                )
            })?;
            Ok((name.to_owned(), function.get("parameters").cloned().unwrap_or_default()))
        });
        Ok(Self { schemas: schemas.collect::<Result<_>>()? })
    }

    /// Whether nothing is declared, or this function is.
    pub(super) fn allow(&self, name: &str) -> bool {
        self.schemas.is_empty() || self.schemas.contains_key(name)
    }

    /// All arguments of a call, of which only texts are known: what is declared for each, else JSON where it is that.
    pub(super) fn guess(&self, function: &str, arguments: Value) -> Value {
        guess(arguments, self.schemas.get(function))
    }

    fn property(&self, function: &str, key: &str) -> Option<&Value> {
        self.schemas.get(function)?.get("properties")?.get(key)
    }

    /// Whether an argument is a string and nothing else.
    pub(super) fn is_text(&self, function: &str, key: &str) -> bool {
        self.property(function, key).is_some_and(|schema| schema["type"] == "string")
    }

    /// An argument that was written as text, where its type is declared.
    pub(super) fn parse(&self, function: &str, key: &str, text: &str) -> Option<Value> {
        let schema = self.property(function, key)?;
        (types(schema).next().is_some()).then(|| convert(Value::String(text.to_owned()), schema, DEPTH))
    }

    /// All arguments of a call, with strings converted to the types that are declared. What cannot be stays.
    pub(super) fn convert(&self, function: &str, arguments: Value) -> Value {
        match self.schemas.get(function) {
            Some(schema) => properties(arguments, schema, DEPTH),
            None => arguments,
        }
    }
}

/// The types that a schema names, in their order.
fn types(schema: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let choices = ["anyOf", "oneOf"].into_iter().filter_map(|key| schema.get(key)?.as_array()).flatten();
    [schema].into_iter().chain(choices).flat_map(|schema| {
        let named = match &schema["type"] {
            Value::Array(names) => names.as_slice(),
            name => std::slice::from_ref(name),
        };
        named.iter().filter_map(move |name| Some((name.as_str()?, schema)))
    })
}

fn convert(value: Value, schema: &Value, depth: usize) -> Value {
    let Some(depth) = depth.checked_sub(1) else { return value };
    match &value {
        Value::String(text) => {
            let converted = types(schema).find_map(|(name, schema)| from_text(text, name, schema, depth));
            converted.unwrap_or(value)
        }
        Value::Object(_) => properties(value, schema, depth),
        Value::Array(_) => items(value, schema, depth),
        _ => value,
    }
}

fn from_text(text: &str, name: &str, schema: &Value, depth: usize) -> Option<Value> {
    let trimmed = text.trim();
    match name {
        "string" => Some(Value::String(text.to_owned())),
        "integer" => trimmed.parse::<i64>().ok().map(Value::from),
        "number" => {
            let number = trimmed.parse::<f64>().ok().and_then(Number::from_f64);
            number.map(Value::Number)
        }
        "boolean" => ["false", "true"]
            .iter()
            .position(|word| trimmed.eq_ignore_ascii_case(word))
            .map(|at| Value::Bool(at == 1)),
        "null" => {
            ["null", "none"].iter().any(|word| trimmed.eq_ignore_ascii_case(word)).then_some(Value::Null)
        }
        "object" => {
            let value = parsed(trimmed)?;
            value.is_object().then(|| properties(value, schema, depth))
        }
        "array" => {
            let value = parsed(trimmed)?;
            value.is_array().then(|| items(value, schema, depth))
        }
        _ => None,
    }
}

/// A value in JSON, or in Python's notation, which some templates write.
fn parsed(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok().or_else(|| python(text))
}

/// As deep as the value, whose depth is bounded by who made it.
fn guess(value: Value, schema: Option<&Value>) -> Value {
    match (value, schema.filter(|schema| types(schema).next().is_some())) {
        (text @ Value::String(_), Some(schema)) => convert(text, schema, DEPTH),
        (Value::String(text), None) => serde_json::from_str(text.trim()).unwrap_or(Value::String(text)),
        (Value::Object(fields), schema) => {
            let properties = schema.and_then(|schema| schema.get("properties"));
            let of = |key: &String| properties.and_then(|properties| properties.get(key));
            Value::Object(
                fields.into_iter().map(|(key, value)| (key.clone(), guess(value, of(&key)))).collect(),
            )
        }
        (Value::Array(items), schema) => {
            let schema = schema.and_then(|schema| schema.get("items"));
            items.into_iter().map(|item| guess(item, schema)).collect()
        }
        (value, _) => value,
    }
}

fn properties(value: Value, schema: &Value, depth: usize) -> Value {
    let Value::Object(fields) = value else { return value };
    let declared = schema.get("properties");
    let fields = fields.into_iter().map(|(key, value)| {
        let value = match declared.and_then(|declared| declared.get(&key)) {
            Some(schema) => convert(value, schema, depth),
            None => value,
        };
        (key, value)
    });
    Value::Object(fields.collect())
}

fn items(value: Value, schema: &Value, depth: usize) -> Value {
    match (value, schema.get("items")) {
        (Value::Array(items), Some(schema)) => {
            items.into_iter().map(|item| convert(item, schema, depth)).collect()
        }
        (value, _) => value,
    }
}
