//! What is said in a conversation, by whom, and which tools are there? As OpenAI's chat API writes it.
//!
//! A [`Message`] and a [`Tool`] are JSON objects that were checked: what templates print has its order, and fields that
//! only some templates know reach them.

mod check;

use serde::{Deserialize, Deserializer, Serialize};

use self::check::{list, message as checked_message, parse, tool as checked_tool};
use super::json::Json;
use crate::error::{Error, Result};

/// One message of a conversation. Read from JSON, or made by [`Message::user`] and the like.
///
/// | field | value |
/// |---|---|
/// | `role` | `system`, `developer`, `user`, `assistant`, `tool`, or what the model's template knows beside |
/// | `content` | a string, `null`, or an array of parts with a `type`; those of type `text` have a `text` |
/// | `reasoning_content` | what the assistant thought before it answered |
/// | `tool_calls` | what the assistant called: `id`, `function.name`, `function.arguments` as an object or as its JSON |
/// | `tool_call_id`, `name` | of a `tool`'s message: the call that it answers, and the function |
///
/// Other fields are kept and shown to the template.
///
/// ```
/// use skulk::chat::{Content, Message};
/// let message: Message = serde_json::from_str(r#"{"role": "user", "content": "Hello"}"#).unwrap();
/// assert_eq!(message, Message::user("Hello"));
/// assert!(matches!(message.content(), Content::Text("Hello")));
/// let error = Message::from_json(r#"{"role": "user", "content": 3}"#).unwrap_err();
/// assert_eq!(error.code(), "chat.invalid");
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Message(Json);

/// What a message says.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Content<'a> {
    /// Nothing: there is no content, or it is `null`.
    Empty,
    /// Text.
    Text(&'a str),
    /// Parts, one after the other.
    Parts(&'a [Json]),
}

/// A part of a message's content.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Part<'a> {
    /// Text.
    Text(&'a str),
    /// Anything else, by its `type`.
    Other(&'a str, &'a Json),
}

/// A function that an assistant called, as a message has it.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct ToolCallRef<'a> {
    /// What the tool's message names as `tool_call_id`.
    pub id: Option<&'a str>,
    /// The function.
    pub name: &'a str,
    /// An object, or its JSON as a string; `None`: there are none.
    pub arguments: Option<&'a Json>,
}

/// A function that the model may call: `{"type": "function", "function": {"name", "description", "parameters"}}`.
///
/// ```
/// use skulk::chat::Tool;
/// let schema = serde_json::json!({"type": "object", "properties": {"city": {"type": "string"}}});
/// let tool = Tool::new("weather", "Weather of a place.", schema.into())?;
/// assert_eq!(tool.name(), "weather");
/// # Ok::<(), skulk::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Tool(Json);

impl Message {
    /// Reads one message.
    ///
    /// # Errors
    /// [`ErrorKind::ChatInvalid`](crate::ErrorKind::ChatInvalid) with the `field` that is not as [`Message`] says.
    pub fn from_json(text: &str) -> Result<Self> {
        Self::try_from(parse(text)?)
    }

    /// Reads an array of messages.
    ///
    /// # Errors
    /// [`ErrorKind::ChatInvalid`](crate::ErrorKind::ChatInvalid) with the `field` that is not as [`Message`] says.
    pub fn list_from_json(text: &str) -> Result<Vec<Self>> {
        list(parse(text)?, "messages", checked_message).map(|all| all.into_iter().map(Self).collect())
    }

    /// A message of this role that says `content`.
    pub fn new(role: &str, content: impl Into<String>) -> Self {
        let field = |key: &str, value: String| (key.to_owned(), Json::String(value));
        Self(Json::Object(vec![field("role", role.to_owned()), field("content", content.into())]))
    }

    /// How the assistant is to behave.
    pub fn system(content: impl Into<String>) -> Self {
        Self::new("system", content)
    }

    /// What the user says.
    pub fn user(content: impl Into<String>) -> Self {
        Self::new("user", content)
    }

    /// What the assistant answered.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self::new("assistant", content)
    }

    /// What a tool gave, in answer to the call with this id.
    pub fn tool(tool_call_id: &str, content: impl Into<String>) -> Self {
        let mut message = Self::new("tool", content);
        message.0.set("tool_call_id", tool_call_id.into());
        message
    }

    /// Adds the speaker's name; of a tool's message, the function.
    #[must_use]
    pub fn with_name(mut self, name: &str) -> Self {
        self.0.set("name", name.into());
        self
    }

    /// Adds what the assistant thought.
    #[must_use]
    pub fn with_reasoning(mut self, reasoning: impl Into<String>) -> Self {
        self.0.set("reasoning_content", Json::String(reasoning.into()));
        self
    }

    /// Adds a call of the assistant's; `arguments` is an object, or its JSON as a string.
    ///
    /// # Errors
    /// [`ErrorKind::ChatInvalid`](crate::ErrorKind::ChatInvalid) when `arguments` is something else.
    pub fn with_tool_call(mut self, id: &str, name: &str, arguments: Json) -> Result<Self> {
        let object = |fields: Vec<(&str, Json)>| {
            Json::Object(fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
        };
        let function = object(vec![("name", name.into()), ("arguments", arguments)]);
        let call = object(vec![("id", id.into()), ("type", "function".into()), ("function", function)]);
        let mut calls = match self.0.get("tool_calls") {
            Some(Json::Array(calls)) => calls.clone(),
            _ => Vec::new(),
        };
        calls.push(call);
        self.0.set("tool_calls", Json::Array(calls));
        Self::try_from(self.0)
    }

    /// Who speaks.
    pub fn role(&self) -> &str {
        self.text("role").unwrap_or_default()
    }

    /// What is said.
    pub fn content(&self) -> Content<'_> {
        match self.0.get("content") {
            Some(Json::String(text)) => Content::Text(text),
            Some(Json::Array(parts)) => Content::Parts(parts),
            _ => Content::Empty,
        }
    }

    /// The content's parts; text is one.
    pub fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        let (text, parts) = match self.content() {
            Content::Empty => (None, &[][..]),
            Content::Text(text) => (Some(Part::Text(text)), &[][..]),
            Content::Parts(parts) => (None, parts),
        };
        text.into_iter().chain(parts.iter().map(|part| {
            let field = |key| part.get(key).and_then(Json::as_str).unwrap_or_default();
            match field("type") {
                "text" => Part::Text(field("text")),
                kind => Part::Other(kind, part),
            }
        }))
    }

    /// What the assistant thought.
    pub fn reasoning_content(&self) -> Option<&str> {
        self.text("reasoning_content")
    }

    /// What the assistant called.
    pub fn tool_calls(&self) -> Vec<ToolCallRef<'_>> {
        let Some(Json::Array(calls)) = self.0.get("tool_calls") else { return Vec::new() };
        let read = |call| {
            let function = Json::get(call, "function")?;
            Some(ToolCallRef {
                id: call.get("id").and_then(Json::as_str),
                name: function.get("name")?.as_str()?,
                arguments: function.get("arguments").filter(|arguments| **arguments != Json::Null),
            })
        };
        calls.iter().filter_map(read).collect()
    }

    /// The call that a tool's message answers.
    pub fn tool_call_id(&self) -> Option<&str> {
        self.text("tool_call_id")
    }

    /// The function that a tool's message is from, or the speaker's name.
    pub fn name(&self) -> Option<&str> {
        self.text("name")
    }

    /// All of it.
    pub fn as_json(&self) -> &Json {
        &self.0
    }

    /// All that is said; `None` where it is not only text.
    pub(crate) fn text_of_parts(&self) -> Option<String> {
        let text = |part| match part {
            Part::Text(text) => Some(text),
            Part::Other(..) => None,
        };
        self.parts().map(text).collect()
    }

    /// With other text.
    pub(super) fn saying(&self, text: String) -> Self {
        self.with_content(Json::String(text))
    }

    /// With other content.
    pub(super) fn with_content(&self, content: Json) -> Self {
        let mut message = self.clone();
        message.0.set("content", content);
        message
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.as_str()
    }

    /// With arguments as objects, which most templates need, where they are an object's JSON.
    pub(super) fn with_parsed_arguments(&self) -> Json {
        let mut message = self.0.clone();
        let Json::Object(fields) = &mut message else { return message };
        let calls = fields.iter_mut().find(|(key, _)| key == "tool_calls");
        if let Some((_, Json::Array(calls))) = calls {
            for call in calls {
                let Json::Object(fields) = call else { continue };
                let function = fields.iter_mut().find(|(key, _)| key == "function");
                if let Some((_, function)) = function
                    && let Some(text) = function.get("arguments").and_then(Json::as_str)
                    && let Ok(object @ Json::Object(_)) = serde_json::from_str(text)
                {
                    function.set("arguments", object);
                }
            }
        }
        message
    }
}

impl Tool {
    /// A function with the JSON Schema of its arguments.
    ///
    /// # Errors
    /// [`ErrorKind::ChatInvalid`](crate::ErrorKind::ChatInvalid) when `parameters` is not an object.
    pub fn new(name: &str, description: &str, parameters: Json) -> Result<Self> {
        let fields = [("name", name.into()), ("description", description.into()), ("parameters", parameters)];
        let function = fields.map(|(key, value)| (key.to_owned(), value)).to_vec();
        let tool = [("type", "function".into()), ("function", Json::Object(function))];
        Self::try_from(Json::Object(tool.map(|(key, value): (&str, Json)| (key.to_owned(), value)).to_vec()))
    }

    /// Reads one tool.
    ///
    /// # Errors
    /// [`ErrorKind::ChatInvalid`](crate::ErrorKind::ChatInvalid) with the `field` that is not as [`Tool`] says.
    pub fn from_json(text: &str) -> Result<Self> {
        Self::try_from(parse(text)?)
    }

    /// Reads an array of tools.
    ///
    /// # Errors
    /// [`ErrorKind::ChatInvalid`](crate::ErrorKind::ChatInvalid) with the `field` that is not as [`Tool`] says.
    pub fn list_from_json(text: &str) -> Result<Vec<Self>> {
        list(parse(text)?, "tools", checked_tool).map(|all| all.into_iter().map(Self).collect())
    }

    /// The function's name.
    pub fn name(&self) -> &str {
        self.function("name").and_then(Json::as_str).unwrap_or_default()
    }

    /// What the function does.
    pub fn description(&self) -> Option<&str> {
        self.function("description")?.as_str()
    }

    /// JSON Schema of its arguments.
    pub fn parameters(&self) -> Option<&Json> {
        self.function("parameters").filter(|parameters| **parameters != Json::Null)
    }

    /// All of it.
    pub fn as_json(&self) -> &Json {
        &self.0
    }

    fn function(&self, key: &str) -> Option<&Json> {
        self.0.get("function")?.get(key)
    }
}

macro_rules! read {
    ($($type:ident, $checked:ident, $field:literal;)*) => {
        $(
            impl TryFrom<Json> for $type {
                type Error = Error;

                fn try_from(json: Json) -> Result<Self> {
                    $checked(&json, $field)?;
                    Ok(Self(json))
                }
            }

            impl<'de> Deserialize<'de> for $type {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
                    Self::try_from(Json::deserialize(deserializer)?).map_err(serde::de::Error::custom)
                }
            }
        )*
    };
}

read! {
    Message, checked_message, "message";
    Tool, checked_tool, "tool";
}
