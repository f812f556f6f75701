//! How do hosts take part in conversations? Messages as JSON, options by name, and calls of their functions step by step.

mod options;
mod steps;

use serde::Deserialize;
use serde_json::{Map, Value};
use skulk::chat::{ChatPrompt, Json, Message};
use skulk::{Error, ErrorKind, Model};

pub use self::options::{ChatOptions, ReasoningChoice, RenderOptions, ToolOptions};
pub use self::steps::{ToolStep, ToolSteps};
use crate::options::Spelling;

/// A conversation and its options, as a host gave them.
#[derive(Debug, Clone)]
pub struct Conversation {
    messages: Vec<Message>,
    options: Map<String, Value>,
    spelling: Spelling,
}

/// Options that hold JSON, whose keys are to keep their order.
const ORDERED: [&str; 3] = ["tools", "documents", "variables"];

impl Conversation {
    /// From the JSON of messages of OpenAI's shape, or of a text, which is one message of the user's, and options by name.
    ///
    /// # Errors
    /// [`ErrorKind::ChatInvalid`] with the `field` that is malformed.
    pub fn new(messages: &str, options: Map<String, Value>, spelling: Spelling) -> skulk::Result<Self> {
        let messages = match serde_json::from_str(messages) {
            Ok(Json::String(text)) => vec![Message::user(text)],
            _ => Message::list_from_json(messages)?,
        };
        Ok(Self { messages, options, spelling })
    }

    /// From the text of a JSON object, with `messages` and, unless they are left out, `options`. Keys of both keep
    /// their order.
    ///
    /// # Errors
    /// As [`new`](Self::new), and [`ErrorKind::InvalidArgument`] for options that are no object.
    pub fn read(arguments: &str, spelling: Spelling) -> skulk::Result<Self> {
        #[derive(Deserialize)]
        struct Arguments {
            #[serde(default)]
            messages: Json,
            #[serde(default)]
            options: Json,
        }
        let refused = |found: String| {
            Error::new(ErrorKind::InvalidArgument, format!("expected messages and options, found {found}"))
                .with("field", "options")
        };
        let Arguments { messages, options } =
            serde_json::from_str(arguments).map_err(|e| refused(e.to_string()))?;
        let fields = match options {
            Json::Null => Vec::new(),
            Json::Object(fields) => fields,
            _ => return Err(refused("options that are no object".to_owned())),
        };
        let own = |(name, value): (String, Json)| {
            let text = crate::functions::write(&value)?;
            let value = match value {
                Json::Null => Value::Null,
                _ if ORDERED.contains(&name.as_str()) => text.into(),
                _ => serde_json::from_str(&text).map_err(|e| refused(e.to_string()))?,
            };
            Ok((name, value))
        };
        let options = fields.into_iter().map(own).collect::<skulk::Result<_>>()?;
        Self::new(&crate::functions::write(&messages)?, options, spelling)
    }

    /// The messages, and [`ChatOptions`].
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for options that there are not, or of another kind, and
    /// [`ErrorKind::ChatInvalid`] for tools that are malformed.
    pub fn chat(self) -> skulk::Result<(Vec<Message>, skulk::ChatOptions)> {
        Ok((self.messages, ChatOptions::read(self.options, self.spelling)?))
    }

    /// The prompt that the messages become, with [`RenderOptions`].
    ///
    /// # Errors
    /// As [`chat`](Self::chat), and those of [`Model::chat_renderer`] and of rendering.
    pub fn render(self, model: &Model) -> skulk::Result<ChatPrompt> {
        let options = RenderOptions::read(self.options, self.spelling)?;
        model.chat_renderer()?.render(&self.messages, &options)
    }

    /// The conversation step by step, with [`ChatOptions`] and [`ToolOptions`]. `cancel` ends it.
    ///
    /// # Errors
    /// As [`chat`](Self::chat), and those of [`Model::tool_rounds`].
    pub fn tools(mut self, model: &Model, cancel: skulk::CancelToken) -> skulk::Result<ToolSteps> {
        let names: Vec<_> = ToolOptions::names().into_iter().map(|name| self.spelling.of(name)).collect();
        let own = names.into_iter().filter_map(|name| self.options.remove_entry(&name)).collect();
        let own = ToolOptions::read(own, self.spelling)?;
        let (messages, mut options) = self.chat()?;
        options.generate.cancel = cancel;
        ToolSteps::new(model, messages, options, own)
    }
}
