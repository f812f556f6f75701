//! What does a request of OpenAI's chat API ask for?

use serde::Deserialize;

use super::options::ChatOptions;
use crate::card::ReasoningEffort;
use crate::chat::{Json, Message, Tool};
use crate::error::{Error, ErrorKind, Result};
use crate::grammar::Constraint;

/// A conversation with its options, from the JSON of OpenAI's chat API.
///
/// | field | |
/// |---|---|
/// | `messages`, `tools` | as [`Message`] and [`Tool`] say |
/// | `max_tokens`, `max_completion_tokens`, `stop`, `seed`, `temperature`, `top_p`, `presence_penalty`, `frequency_penalty` | [`ChatOptions::generate`] |
/// | `reasoning_effort` | [`ChatOptions::reasoning`] |
/// | `chat_template_kwargs` | variables of the template; `enable_thinking` turns reasoning on and off |
/// | `tool_choice` | `auto`, or `none`: no tools are offered |
/// | `response_format` | [`Constraint::from_response_format`] |
/// | `n` | 1 |
/// | `model`, `stream`, `stream_options`, `user`, `metadata`, `store` | are about the transport: the host's business, and not looked at |
///
/// Any other field or value is refused.
///
/// ```
/// use skulk::ChatRequest;
/// let request = ChatRequest::from_json(r#"{"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 9}"#)?;
/// assert_eq!(request.options.generate.max_tokens, Some(9));
/// let json = r#"{"messages": [], "response_format": {"type": "xml"}}"#;
/// assert_eq!(ChatRequest::from_json(json).unwrap_err().code(), "argument.invalid");
/// # Ok::<(), skulk::Error>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ChatRequest {
    /// What was said.
    pub messages: Vec<Message>,
    /// How it is to be answered.
    pub options: ChatOptions,
}

/// Fields that say nothing of the answer.
const TRANSPORT: [&str; 6] = ["model", "stream", "stream_options", "user", "metadata", "store"];

impl ChatRequest {
    /// Reads a request.
    ///
    /// # Errors
    /// [`ErrorKind::ChatInvalid`] with the `field` of messages and tools that is malformed;
    /// [`ErrorKind::InvalidArgument`] with any other that is, or that cannot be honoured.
    pub fn from_json(text: &str) -> Result<Self> {
        let Ok(Json::Object(fields)) = serde_json::from_str(text) else {
            return Err(Error::new(ErrorKind::ChatInvalid, "expected a request, a JSON object")
                .with_hint("give the body of a request of OpenAI's chat API"));
        };
        let mut request = Self { messages: Vec::new(), options: ChatOptions::default() };
        let mut no_tools = false;
        for (name, value) in fields {
            if value == Json::Null || TRANSPORT.contains(&name.as_str()) {
                continue;
            }
            let options = &mut request.options;
            let generate = &mut options.generate;
            match name.as_str() {
                "messages" => request.messages = Message::list_from_json(&written(&value))?,
                "tools" => options.render.tools = Tool::list_from_json(&written(&value))?,
                "max_tokens" | "max_completion_tokens" => generate.max_tokens = Some(read(&name, &value)?),
                "stop" => {
                    generate.stop = match value.as_str() {
                        Some(text) => vec![text.to_owned()],
                        None => read(&name, &value)?,
                    }
                }
                "seed" => generate.sampling.seed = Some(read(&name, &value)?),
                "temperature" => generate.sampling.temperature = read(&name, &value)?,
                "top_p" => generate.sampling.top_p = read(&name, &value)?,
                "presence_penalty" => generate.sampling.presence_penalty = read(&name, &value)?,
                "frequency_penalty" => generate.sampling.frequency_penalty = read(&name, &value)?,
                "reasoning_effort" => {
                    let effort: String = read(&name, &value)?;
                    let effort: ReasoningEffort =
                        effort.parse().map_err(|e: Error| e.with("field", &name))?;
                    options.render.reasoning.effort = Some(effort);
                }
                "chat_template_kwargs" => {
                    let Json::Object(variables) = value else { return Err(unlike(&name, "an object")) };
                    for (variable, value) in variables {
                        match (variable.as_str(), value) {
                            ("enable_thinking", Json::Bool(thinks)) => {
                                options.render.reasoning.enable_thinking = Some(thinks);
                            }
                            (_, value) => options.render = options.render.clone().variable(&variable, value),
                        }
                    }
                }
                "tool_choice" => match value.as_str() {
                    Some("auto") => {}
                    Some("none") => no_tools = true,
                    _ => return Err(unlike(&name, "`auto` or `none`")),
                },
                "response_format" => generate.constraint = Constraint::of_response_format(&value)?,
                "n" if value == Json::Int(1) => {}
                "n" => return Err(unlike(&name, "1")),
                _ => {
                    return Err(Error::argument(
                        &name,
                        "expected fields that can be honoured, found another one",
                    )
                    .with_hint("leave it out"));
                }
            }
        }
        if no_tools {
            request.options.render.tools.clear();
        }
        Ok(request)
    }
}

fn written(value: &Json) -> String {
    // What was read can be written.
    serde_json::to_string(value).unwrap_or_default()
}

fn read<T: for<'de> Deserialize<'de>>(name: &str, value: &Json) -> Result<T> {
    serde_json::from_str(&written(value)).map_err(|e| {
        Error::argument(name, format!("expected another value: {e}"))
            .with_hint("correct the field, or leave it out")
    })
}

fn unlike(name: &str, expected: &str) -> Error {
    Error::argument(name, format!("expected {expected}, found something else"))
        .with_hint("correct the field, or leave it out")
}
