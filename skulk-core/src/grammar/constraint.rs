//! What may callers ask of a text's form? Schemas, expressions and grammars, within limits.

use serde_json::{Value, json};

use crate::chat::Json;
use crate::error::{Error, Result};

/// What a generated text must be. Tokens that would lead away from it are never chosen; where only one continuation is
/// left, its tokens are taken without asking the model.
///
/// ```
/// use skulk::{Constraint, GenerateOptions};
/// let schema = serde_json::json!({"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]});
/// let options = GenerateOptions::default().max_tokens(200).constraint(Constraint::JsonSchema(schema));
/// # let _ = options;
/// ```
///
/// A text that ends early, at `max_tokens`, a stop string or when it is cancelled, is the beginning of one that keeps to
/// it. Needs the feature `grammar`; without it, all constraints are refused.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Constraint {
    /// JSON that is valid by a [JSON Schema](https://json-schema.org), whose properties come in the schema's order. What of
    /// schemas cannot be enforced is refused, and so are references that lead out of the schema. Between its parts there may
    /// be one space, or a new line with up to 64 spaces and tabs; `x-guidance` in the schema may say something else:
    /// `{"whitespace_flexible": false}` leaves no white space.
    JsonSchema(Value),
    /// Any JSON object.
    JsonObject,
    /// A text that this regular expression matches as a whole, in the syntax of the crate `regex`, without anchors and
    /// look-around.
    Regex(String),
    /// A text of the language of this grammar, in the syntax of Lark as `llguidance` reads it. It begins at `start`.
    Lark(String),
}

/// Bytes of a grammar's or schema's text.
const MOST_BYTES: usize = 1 << 20;
/// Arrays and objects within each other.
const MOST_DEPTH: usize = 96;

impl Constraint {
    /// What OpenAI's `response_format`, the JSON text of an object, asks for; `None` where any text will do. The AI SDK's
    /// `responseFormat` is taken, too.
    ///
    /// | `type` | |
    /// |---|---|
    /// | `text` | any text |
    /// | `json_object` | [`JsonObject`](Self::JsonObject) |
    /// | `json_schema` | `json_schema.schema`; its `name`, `description` and `strict` are not looked at |
    /// | `json` | the AI SDK's: `schema`, or any object without one; `name` and `description` are not looked at |
    ///
    /// ```
    /// use skulk::Constraint;
    /// let format = r#"{"type": "json_schema", "json_schema": {"name": "yes", "schema": {"type": "boolean"}}}"#;
    /// let schema = serde_json::json!({"type": "boolean"});
    /// assert_eq!(Constraint::from_response_format(format)?, Some(Constraint::JsonSchema(schema)));
    /// # Ok::<(), skulk::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) with the `field` for other formats and further members.
    pub fn from_response_format(json: &str) -> Result<Option<Self>> {
        let format: Json = serde_json::from_str(json)
            .map_err(|e| unlike("response_format", "a response format", &e.to_string()))?;
        Self::of_response_format(&format)
    }

    pub(crate) fn of_response_format(format: &Json) -> Result<Option<Self>> {
        let kind = format.get("type").and_then(Json::as_str);
        let (within, known): (&str, &[&str]) = match kind {
            Some("text" | "json_object") => ("response_format", &["type"]),
            Some("json_schema") => ("response_format", &["type", "json_schema"]),
            Some("json") => ("response_format", &["type", "schema", "name", "description"]),
            _ => {
                let found = kind.map_or("something else".to_owned(), |kind| format!("`{kind}`"));
                let expected = "`text`, `json_object`, `json_schema` or `json`";
                return Err(unlike("response_format.type", expected, &found));
            }
        };
        only(format, within, known)?;
        match kind {
            Some("text") => Ok(None),
            Some("json_schema") => {
                let field = "response_format.json_schema";
                let inner = format.get("json_schema").filter(|inner| matches!(inner, Json::Object(_)));
                let inner = inner.ok_or_else(|| unlike(field, "an object with a `schema`", "none"))?;
                only(inner, field, &["name", "description", "schema", "strict"])?;
                let schema = inner.get("schema").filter(|schema| **schema != Json::Null);
                schema
                    .ok_or_else(|| unlike("response_format.json_schema.schema", "a JSON Schema", "none"))
                    .and_then(|schema| Ok(Some(Self::JsonSchema(value(schema)?))))
            }
            Some("json") if format.get("schema").is_some_and(|schema| *schema != Json::Null) => {
                format.get("schema").map(|schema| Ok(Self::JsonSchema(value(schema)?))).transpose()
            }
            _ => Ok(Some(Self::JsonObject)),
        }
    }

    /// The option that it is, as errors name it.
    pub(crate) fn field(&self) -> &'static str {
        match self {
            Self::JsonSchema(_) => "json_schema",
            Self::JsonObject => "response_format",
            Self::Regex(_) => "regex",
            Self::Lark(_) => "grammar",
        }
    }

    /// `Ok` where it is small enough to be read.
    #[cfg_attr(not(feature = "grammar"), allow(dead_code, reason = "nothing is read without it"))]
    pub(crate) fn check(&self) -> Result<()> {
        if let Self::JsonSchema(schema) = self
            && depth(schema, MOST_DEPTH).is_none()
        {
            let expected = format!("at most {MOST_DEPTH} arrays and objects within each other");
            return Err(unlike("json_schema", &expected, "more"));
        }
        let bytes = self.bytes();
        if bytes > MOST_BYTES {
            let expected = format!("at most {MOST_BYTES} bytes");
            return Err(unlike(self.field(), &expected, &bytes.to_string()));
        }
        Ok(())
    }

    /// Bytes of its text.
    #[cfg_attr(not(feature = "grammar"), allow(dead_code, reason = "nothing is read without it"))]
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::JsonSchema(schema) => schema.to_string().len(),
            Self::JsonObject => 0,
            Self::Regex(text) | Self::Lark(text) => text.len(),
        }
    }

    /// The schema of any object.
    #[cfg_attr(not(feature = "grammar"), allow(dead_code, reason = "nothing is read without it"))]
    pub(crate) fn object() -> Value {
        json!({"type": "object"})
    }
}

/// How deep a value is; `None` beyond `most`.
fn depth(value: &Value, most: usize) -> Option<usize> {
    let below = most.checked_sub(1);
    let deepest = |mut depths: Box<dyn Iterator<Item = Option<usize>> + '_>| {
        depths.try_fold(0, |deepest, depth| Some(deepest.max(depth?))).map(|deepest| deepest + 1)
    };
    match value {
        Value::Array(items) => {
            let below = below?;
            deepest(Box::new(items.iter().map(move |item| depth(item, below))))
        }
        Value::Object(fields) => {
            let below = below?;
            deepest(Box::new(fields.values().map(move |field| depth(field, below))))
        }
        _ => Some(0),
    }
}

/// A schema as other crates take it. Its keys keep their order where `serde_json` does.
fn value(schema: &Json) -> Result<Value> {
    serde_json::to_value(schema).map_err(|e| unlike("json_schema", "a JSON Schema", &e.to_string()))
}

fn only(object: &Json, within: &str, known: &[&str]) -> Result<()> {
    let Json::Object(fields) = object else { return Ok(()) };
    match fields.iter().find(|(name, value)| !known.contains(&name.as_str()) && *value != Json::Null) {
        None => Ok(()),
        Some((name, _)) => Err(unlike(&format!("{within}.{name}"), "no such member", "one")),
    }
}

fn unlike(field: &str, expected: &str, found: &str) -> Error {
    Error::argument(field, format!("expected {expected}, found {found}"))
        .with_hint("correct the option, or leave it out")
}
