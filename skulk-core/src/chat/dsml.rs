//! What prompt does DeepSeek V3.2 expect? Renderer `dsml`, its own markup for tools, as Skulk 1.3 and mlx-lm write it.
//!
//! Otherwise than there, tools are told also where no system message is; a developer's message is a system message
//! wherever it stands; and an answer behind the last question may have neither reasoning nor calls.

use super::json::Json;
use super::message::{Message, Part, ToolCallRef};
use super::template::to_json;
use crate::error::{Error, ErrorKind, Result};

const BEGIN: &str = "<｜begin▁of▁sentence｜>";
const END: &str = "<｜end▁of▁sentence｜>";
const USER: &str = "<｜User｜>";
const ASSISTANT: &str = "<｜Assistant｜>";

const TOOLS: &str = r#"

## Tools

You have access to a set of tools you can use to answer the user's question.
You can invoke functions by writing a "<｜DSML｜function_calls>" block like the following as part of your reply to the user:
<｜DSML｜function_calls>
<｜DSML｜invoke name="$FUNCTION_NAME">
<｜DSML｜parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜parameter>
...
</｜DSML｜invoke>
<｜DSML｜invoke name="$FUNCTION_NAME2">
...
</｜DSML｜invoke>
</｜DSML｜function_calls>

String and scalar parameters should be specified as is without any escaping or quotes, while lists and objects should use JSON format. The "string" attribute should be set to "true" for string type parameters and "false" for other types (numbers, booleans, arrays, objects).

If the thinking_mode is enabled, then after function results you should strongly consider outputting a thinking block. Here is an example:

<｜DSML｜function_calls>
...
</｜DSML｜function_calls>

<function_results>
...
</function_results>

<think>...thinking about results</think>

Here are the functions available in JSONSchema format:
<functions>
"#;

/// How a prompt ends, and whether the model thinks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mode {
    pub(super) thinks: bool,
    /// The prompt ends with what begins the model's turn.
    pub(super) answers: bool,
}

/// The prompt.
pub(super) fn render(messages: &[Json], tools: &[Json], mode: Mode) -> Result<String> {
    let messages = messages.iter().map(|json| Message::try_from(json.clone())).collect::<Result<Vec<_>>>()?;
    let last_user = messages.iter().rposition(|message| message.role() == "user");
    let mut out = String::from(BEGIN);
    let mut untold = (!tools.is_empty()).then(|| told(tools));
    if !messages.first().is_some_and(is_system) {
        out.push_str(&untold.take().transpose()?.unwrap_or_default());
    }
    // Where the last message stands that is no tool's, and how much it calls.
    let mut caller = None;
    for (at, message) in messages.iter().enumerate() {
        if message.role() != "tool" {
            caller = Some((at, message.tool_calls().len()));
        }
        let ends = at + 1 == messages.len();
        match message.role() {
            "system" | "developer" => {
                out.push_str(&text(message)?);
                out.push_str(&untold.take().transpose()?.unwrap_or_default());
            }
            "user" => {
                out.push_str(USER);
                out.push_str(&text(message)?);
                if !ends || mode.answers {
                    out.push_str(ASSISTANT);
                    let thinks = mode.thinks && Some(at) == last_user;
                    out.push_str(if thinks { "<think>" } else { "<think>\n</think>" });
                }
            }
            "assistant" => {
                if mode.thinks && last_user.is_none_or(|last| at > last) {
                    out.push_str(message.reasoning_content().unwrap_or_default());
                    out.push_str("</think>");
                }
                out.push_str(&text(message)?);
                calls(&message.tool_calls(), &mut out)?;
                out.push_str(END);
            }
            "tool" => {
                let (order, expected) = order(caller, at)?;
                out.push_str(if order == 1 { "\n\n<function_results>" } else { "" });
                out.push_str(&format!("\n<result>{}</result>", text(message)?));
                if order == expected {
                    out.push_str("\n</function_results>");
                    let thinks = mode.thinks && last_user.is_none_or(|last| at >= last);
                    if !ends || mode.answers {
                        out.push_str(if thinks { "\n\n<think>" } else { "\n\n</think>" });
                    }
                }
            }
            role => {
                return Err(refused(at, "role", "expected system, developer, user, assistant or tool")
                    .with("found", role)
                    .with_hint("DeepSeek V3.2 knows these roles only"));
            }
        }
    }
    Ok(out)
}

fn is_system(message: &Message) -> bool {
    matches!(message.role(), "system" | "developer")
}

/// What the model is told of its tools.
fn told(tools: &[Json]) -> Result<String> {
    let mut out = String::from(TOOLS);
    for tool in tools {
        out.push_str(&to_json(tool.get("function").unwrap_or(tool))?);
        out.push('\n');
    }
    out.push_str("</functions>\n");
    Ok(out)
}

fn calls(calls: &[ToolCallRef<'_>], out: &mut String) -> Result<()> {
    if calls.is_empty() {
        return Ok(());
    }
    out.push_str("\n\n<｜DSML｜function_calls>\n");
    for call in calls {
        out.push_str(&format!("<｜DSML｜invoke name=\"{}\">\n", call.name));
        match call.arguments {
            Some(Json::Object(arguments)) => {
                let parameters = arguments.iter().map(|(name, value)| {
                    let (string, value) = match value {
                        Json::String(text) => (true, text.clone()),
                        other => (false, to_json(other)?),
                    };
                    Ok(format!(
                        "<｜DSML｜parameter name=\"{name}\" string=\"{string}\">{value}</｜DSML｜parameter>"
                    ))
                });
                out.push_str(&parameters.collect::<Result<Vec<_>>>()?.join("\n"));
            }
            Some(_) => {
                return Err(Error::new(
                    ErrorKind::ChatInvalid,
                    "expected the JSON of an object as arguments",
                )
                .with("function", call.name)
                .with_hint("send the arguments of earlier calls as they were parsed"));
            }
            None => {}
        }
        out.push_str("\n</｜DSML｜invoke>\n");
    }
    out.push_str("</｜DSML｜function_calls>");
    Ok(())
}

/// Which result of a turn's calls the message at `at` is, from 1, and how many are expected.
fn order(caller: Option<(usize, usize)>, at: usize) -> Result<(usize, usize)> {
    let found = caller.map(|(caller, calls)| (at - caller, calls));
    found.filter(|(order, expected)| order <= expected).ok_or_else(|| {
        refused(at, "role", "expected a tool's message only behind the calls that it answers")
            .with_hint("send the assistant's message with `tool_calls` before its results")
    })
}

fn text(message: &Message) -> Result<String> {
    let mut out = String::new();
    for part in message.parts() {
        match part {
            Part::Text(text) => out.push_str(text),
            Part::Other(kind, _) => {
                return Err(Error::new(ErrorKind::ChatInvalid, "expected parts of type text")
                    .with("field", "content")
                    .with("found", kind)
                    .with_hint("DeepSeek V3.2 reads text only"));
            }
        }
    }
    Ok(out)
}

fn refused(at: usize, field: &str, message: &'static str) -> Error {
    Error::new(ErrorKind::ChatInvalid, message).with("field", format!("messages[{at}].{field}"))
}
