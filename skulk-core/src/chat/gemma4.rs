//! What prompt does Gemma 4 expect for messages without tools? Renderer `gemma4`, as Skulk 1.3 writes it.
//!
//! Otherwise than there, `null` is nothing, not the text `None`, and parts that the model does not know are refused, not
//! left out.

use super::json::Json;
use super::message::{Content, Message, Part};
use crate::error::{Error, ErrorKind, Result};

const THOUGHT: (&str, &str) = ("<|channel>", "<channel|>");

/// How a prompt begins and ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    /// The model thinks before it answers.
    pub(super) thinks: bool,
    /// The prompt ends with what begins the model's turn.
    pub(super) answers: bool,
}

/// Messages without the thoughts of earlier answers.
pub(super) fn without_thoughts(messages: &[Message]) -> Vec<Json> {
    let stripped = |message: &Message| {
        let mut json = message.as_json().clone();
        if message.role() == "assistant" {
            match message.content() {
                Content::Text(text) => json.set("content", without_thought(text).into()),
                Content::Parts(parts) => {
                    let parts = parts.iter().map(|part| {
                        let mut part = part.clone();
                        if let Some(text) = part.get("text").and_then(Json::as_str).map(without_thought) {
                            part.set("text", text.into());
                        }
                        part
                    });
                    json.set("content", Json::Array(parts.collect()));
                }
                Content::Empty => {}
            }
        }
        json
    };
    messages.iter().map(stripped).collect()
}

/// Without what stands in thought channels; one that does not end goes to the end.
fn without_thought(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, thought)) = rest.split_once(THOUGHT.0) {
        out.push_str(before);
        rest = thought.split_once(THOUGHT.1).map_or("", |(_, after)| after);
    }
    out.push_str(rest);
    out.trim().to_owned()
}

/// The prompt.
pub(super) fn render(messages: &[Json], turn: Turn) -> Result<String> {
    let mut messages =
        messages.iter().map(|json| Message::try_from(json.clone())).collect::<Result<Vec<_>>>()?;
    let mut out = String::from("<bos>");
    let system = matches!(messages.first().map(Message::role), Some("system" | "developer"));
    if system || turn.thinks {
        out.push_str("<|turn>system\n");
        out.push_str(if turn.thinks { "<|think|>\n" } else { "" });
        if system {
            out.push_str(content(&messages.remove(0))?.trim());
        }
        out.push_str("<turn|>\n");
    }
    for message in &messages {
        let role = if message.role() == "assistant" { "model" } else { message.role() };
        out.push_str(&format!("<|turn>{role}\n{}<turn|>\n", content(message)?));
    }
    if turn.answers {
        out.push_str("<|turn>model\n");
        out.push_str(if turn.thinks { "" } else { "<|channel>thought\n<channel|>" });
    }
    Ok(out)
}

fn content(message: &Message) -> Result<String> {
    let mut out = String::new();
    for part in message.parts() {
        if let Part::Other(_, Json::Object(fields)) = part
            && let Some((field, _)) = fields.iter().find(|(field, _)| field != "type" && field != "label")
        {
            return Err(Error::new(
                ErrorKind::ChatInvalid,
                "expected parts without data, which the prompt has no place for",
            )
            .with("field", format!("content.{field}"))
            .with_hint("send text"));
        }
        match part {
            Part::Text(text) => out.push_str(text.trim()),
            Part::Other("image", json) => {
                if let Some(label) = json.get("label").and_then(Json::as_str) {
                    let apart = out.is_empty() || out.ends_with(char::is_whitespace);
                    out.push_str(if apart { "" } else { "\n" });
                    out.push_str(&format!("{label}:\n"));
                }
                out.push_str("<|image|>");
            }
            Part::Other("audio", _) => out.push_str("<|audio|>"),
            Part::Other("video", _) => out.push_str("\n\n<|video|>\n\n"),
            Part::Other(kind, _) => {
                return Err(Error::new(ErrorKind::ChatInvalid, "expected parts that Gemma 4 knows")
                    .with("field", "content")
                    .with("found", kind)
                    .with_hint("send parts of type text, image, audio or video"));
            }
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thoughts_are_left_out() {
        for (text, expected) in [
            ("a", "a"),
            (" <|channel>x<channel|> b ", "b"),
            ("<|channel>x", ""),
            ("a<channel|>b", "a<channel|>b"),
            ("a<|channel>1<channel|>b<|channel>2<channel|>c", "abc"),
        ] {
            assert_eq!(without_thought(text), expected);
        }
    }
}
