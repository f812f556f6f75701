//! What is a JSON value whose objects keep their keys in order?
//!
//! Templates print tools and arguments as they come, so the order is part of the prompt. `serde_json` keeps it with a
//! feature only that would change every crate of the program.

use std::collections::HashMap;
use std::fmt;

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A JSON value. Objects keep their keys' order; of a key that is there twice, the first place and the last value.
///
/// ```
/// use skulk::chat::Json;
/// let json: Json = serde_json::from_str(r#"{"b": 1, "a": [true, null]}"#).unwrap();
/// assert_eq!(json.get("b"), Some(&Json::Int(1)));
/// assert_eq!(serde_json::to_string(&json).unwrap(), r#"{"b":1,"a":[true,null]}"#);
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Json {
    /// `null`.
    #[default]
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number without fraction and exponent.
    Int(i128),
    /// Any other number.
    Float(f64),
    /// Text.
    String(String),
    /// Values.
    Array(Vec<Json>),
    /// Keys and their values.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// The value of an object's key.
    pub fn get(&self, key: &str) -> Option<&Json> {
        let Self::Object(fields) = self else { return None };
        fields.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// The text of a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// Sets an object's key, in its place if it is there, else behind the others. Nothing else has keys.
    pub(crate) fn set(&mut self, key: &str, value: Json) {
        let Self::Object(fields) = self else { return };
        match fields.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = value,
            None => fields.push((key.to_owned(), value)),
        }
    }

    /// With every text and key changed, but for names that templates know.
    pub(super) fn mapped(&self, change: &mut dyn FnMut(&str) -> String) -> Json {
        self.mapped_in(Names::Known, change)
    }

    fn mapped_in(&self, names: Names, change: &mut dyn FnMut(&str) -> String) -> Json {
        match self {
            Self::String(text) if names.are_known(text) => self.clone(),
            Self::String(text) => Self::String(change(text)),
            Self::Array(items) => {
                Self::Array(items.iter().map(|item| item.mapped_in(names, change)).collect())
            }
            Self::Object(fields) => Self::Object(
                fields
                    .iter()
                    .map(|(key, value)| {
                        let mapped = if names.has(key) { key.clone() } else { change(key) };
                        (mapped, value.mapped_in(names.below(key), change))
                    })
                    .collect(),
            ),
            other => other.clone(),
        }
    }

    /// Calls `visit` with every text and key, but for names that templates know.
    pub(super) fn visit(&self, visit: &mut dyn FnMut(&str)) {
        self.visit_in(Names::Known, visit);
    }

    fn visit_in(&self, names: Names, visit: &mut dyn FnMut(&str)) {
        match self {
            Self::String(text) if names.are_known(text) => {}
            Self::String(text) => visit(text),
            Self::Array(items) => items.iter().for_each(|item| item.visit_in(names, visit)),
            Self::Object(fields) => fields.iter().for_each(|(key, value)| {
                if !names.has(key) {
                    visit(key);
                }
                value.visit_in(names.below(key), visit);
            }),
            _ => {}
        }
    }

    /// Whether values are within each other more often than JSON is read.
    pub(super) fn is_deep(&self) -> bool {
        fn deeper(json: &Json, levels: usize) -> bool {
            match json {
                _ if levels == 0 => true,
                Json::Array(items) => items.iter().any(|item| deeper(item, levels - 1)),
                Json::Object(fields) => fields.iter().any(|(_, value)| deeper(value, levels - 1)),
                _ => false,
            }
        }
        deeper(self, LEVELS_MAX)
    }

    /// What kind of value this is, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Int(_) | Self::Float(_) => "a number",
            Self::String(_) => "a string",
            Self::Array(_) => "an array",
            Self::Object(_) => "an object",
        }
    }
}

/// As many as `serde_json` reads, and a value in the last.
const LEVELS_MAX: usize = 129;
/// Fields of messages and tools, and JSON Schema's.
const FIELDS: &[&str] = &[
    "additionalProperties",
    "allOf",
    "anyOf",
    "arguments",
    "content",
    "default",
    "description",
    "enum",
    "format",
    "function",
    "id",
    "items",
    "name",
    "nullable",
    "oneOf",
    "parameters",
    "properties",
    "reasoning_content",
    "required",
    "response",
    "return",
    "role",
    "strict",
    "text",
    "thinking",
    "title",
    "tool_call_id",
    "tool_calls",
    "type",
];
/// Types of parts, tools and schemas.
const TYPES: &[&str] = &[
    "array",
    "audio",
    "boolean",
    "function",
    "image",
    "image_url",
    "integer",
    "null",
    "number",
    "object",
    "string",
    "text",
    "video",
];

/// Which names stand in a value, for templates that look at them.
#[derive(Clone, Copy, PartialEq)]
enum Names {
    /// Fields.
    Known,
    /// Types.
    Type,
    /// What the author of a schema calls its own.
    Own,
    /// What a call calls its own, however deep.
    Free,
}

impl Names {
    fn has(self, key: &str) -> bool {
        matches!(self, Self::Known | Self::Type) && FIELDS.contains(&key)
    }

    fn are_known(self, text: &str) -> bool {
        self == Self::Type && TYPES.contains(&text)
    }

    fn below(self, key: &str) -> Self {
        match (self, key) {
            (Self::Free, _) => Self::Free,
            (Self::Own, _) => Self::Known,
            (_, "type") => Self::Type,
            (_, "properties") => Self::Own,
            (_, "arguments") => Self::Free,
            _ => Self::Known,
        }
    }
}

macro_rules! from {
    ($($type:ty, $value:ident => $json:expr;)*) => {
        $(impl From<$type> for Json {
            fn from($value: $type) -> Self {
                $json
            }
        })*
    };
}

from! {
    bool, value => Self::Bool(value);
    i64, value => Self::Int(value.into());
    f64, value => Self::Float(value);
    &str, value => Self::String(value.to_owned());
    String, value => Self::String(value);
    Vec<Json>, value => Self::Array(value);
    serde_json::Value, value => match value {
        serde_json::Value::Null => Self::Null,
        serde_json::Value::Bool(value) => Self::Bool(value),
        serde_json::Value::Number(number) => match number.as_i128() {
            Some(int) => Self::Int(int),
            None => Self::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        serde_json::Value::String(text) => Self::String(text),
        serde_json::Value::Array(items) => Self::Array(items.into_iter().map(Self::from).collect()),
        serde_json::Value::Object(fields) => {
            Self::Object(fields.into_iter().map(|(key, value)| (key, value.into())).collect())
        }
    };
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Int(value) => match (i64::try_from(*value), u64::try_from(*value)) {
                (Ok(value), _) => serializer.serialize_i64(value),
                (_, Ok(value)) => serializer.serialize_u64(value),
                _ => serializer.serialize_i128(*value),
            },
            Self::Float(value) => serializer.serialize_f64(*value),
            Self::String(text) => serializer.serialize_str(text),
            Self::Array(items) => {
                let mut array = serializer.serialize_seq(Some(items.len()))?;
                items.iter().try_for_each(|item| array.serialize_element(item))?;
                array.end()
            }
            Self::Object(fields) => {
                let mut object = serializer.serialize_map(Some(fields.len()))?;
                fields.iter().try_for_each(|(key, value)| object.serialize_entry(key, value))?;
                object.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Values)
    }
}

struct Values;

macro_rules! visit {
    ($($name:ident, $type:ty, $value:ident => $json:expr;)*) => {
        $(fn $name<E>(self, $value: $type) -> Result<Json, E> {
            Ok($json)
        })*
    };
}

impl<'de> Visitor<'de> for Values {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    visit! {
        visit_bool, bool, value => Json::Bool(value);
        visit_i64, i64, value => Json::Int(value.into());
        visit_u64, u64, value => Json::Int(value.into());
        visit_i128, i128, value => Json::Int(value);
        visit_f64, f64, value => Json::Float(value);
        visit_str, &str, value => Json::String(value.to_owned());
        visit_string, String, value => Json::String(value);
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_none<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
        Json::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Json::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut fields: Vec<(String, Json)> = Vec::new();
        let mut places = HashMap::new();
        while let Some((key, value)) = map.next_entry::<String, Json>()? {
            match places.get(&key) {
                Some(&at) => fields[at] = (key, value),
                None => {
                    places.insert(key.clone(), fields.len());
                    fields.push((key, value));
                }
            }
        }
        Ok(Json::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_numbers_are_kept() {
        let text = r#"{"z":1,"a":{"y":18446744073709551615,"b":-3},"c":[1.0,2.5,null,"x",true]}"#;
        let json: Json = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&json).unwrap(), text);
        let json: Json = serde_json::from_str(r#"{"a":1,"b":2,"a":3}"#).unwrap();
        assert_eq!(serde_json::to_string(&json).unwrap(), r#"{"a":3,"b":2}"#);
        let value: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(Json::from(value.clone())["a"]["y"], Json::Int(u64::MAX.into()));
        assert!(serde_json::from_str::<Json>(&"[".repeat(1000)).is_err());
    }

    impl std::ops::Index<&str> for Json {
        type Output = Json;

        fn index(&self, key: &str) -> &Json {
            self.get(key).unwrap()
        }
    }
}
