//! Are messages and tools as OpenAI's chat API writes them?

use super::Json;
use crate::error::{Error, ErrorKind, Result};

pub(super) fn parse(text: &str) -> Result<Json> {
    serde_json::from_str(text).map_err(|e| {
        Error::new(ErrorKind::ChatInvalid, "expected JSON")
            .with_source(e)
            .with_hint("write it as OpenAI's chat API does")
    })
}

pub(super) fn list(json: Json, field: &str, checked: fn(&Json, &str) -> Result<()>) -> Result<Vec<Json>> {
    let Json::Array(items) = json else {
        return Err(unexpected(field, "an array", Some(&json)));
    };
    items.iter().enumerate().try_for_each(|(i, item)| checked(item, &format!("{field}[{i}]")))?;
    Ok(items)
}

fn unexpected(field: &str, expected: &str, found: Option<&Json>) -> Error {
    let found = found.map_or("nothing", Json::kind);
    Error::new(ErrorKind::ChatInvalid, format!("expected {expected}, found {found}"))
        .with("field", field)
        .with_hint("write it as OpenAI's chat API does")
}

fn shallow(json: &Json, field: &str) -> Result<()> {
    match json.is_deep() {
        true => Err(unexpected(field, "JSON that does not nest without end", Some(json))),
        false => Ok(()),
    }
}

fn object(json: &Json, field: &str) -> Result<()> {
    match json {
        Json::Object(_) => Ok(()),
        _ => Err(unexpected(field, "an object", Some(json))),
    }
}

/// A key whose value is a string, or where `optional` may be `null` or missing.
fn string(json: &Json, field: &str, key: &str, optional: bool) -> Result<()> {
    match json.get(key) {
        Some(Json::String(_)) => Ok(()),
        None | Some(Json::Null) if optional => Ok(()),
        found => Err(unexpected(&format!("{field}.{key}"), "a string", found)),
    }
}

pub(super) fn message(message: &Json, field: &str) -> Result<()> {
    object(message, field)?;
    shallow(message, field)?;
    string(message, field, "role", false)?;
    for key in ["reasoning_content", "tool_call_id", "name"] {
        string(message, field, key, true)?;
    }
    match message.get("content") {
        None | Some(Json::Null | Json::String(_)) => {}
        Some(Json::Array(parts)) => {
            for (i, part) in parts.iter().enumerate() {
                let field = format!("{field}.content[{i}]");
                object(part, &field)?;
                string(part, &field, "type", false)?;
                let text = part.get("type").and_then(Json::as_str) == Some("text");
                string(part, &field, "text", !text)?;
            }
        }
        found => return Err(unexpected(&format!("{field}.content"), "a string or an array of parts", found)),
    }
    match message.get("tool_calls") {
        None | Some(Json::Null) => Ok(()),
        Some(Json::Array(calls)) => calls
            .iter()
            .enumerate()
            .try_for_each(|(i, call)| checked_call(call, &format!("{field}.tool_calls[{i}]"))),
        found => Err(unexpected(&format!("{field}.tool_calls"), "an array", found)),
    }
}

fn checked_call(call: &Json, field: &str) -> Result<()> {
    object(call, field)?;
    string(call, field, "id", true)?;
    function_type(call, field)?;
    let field = format!("{field}.function");
    let function = call.get("function").unwrap_or(&Json::Null);
    object(function, &field)?;
    string(function, &field, "name", false)?;
    match function.get("arguments") {
        None | Some(Json::Null | Json::Object(_) | Json::String(_)) => Ok(()),
        found => Err(unexpected(&format!("{field}.arguments"), "an object, or its JSON as a string", found)),
    }
}

pub(super) fn tool(tool: &Json, field: &str) -> Result<()> {
    object(tool, field)?;
    shallow(tool, field)?;
    function_type(tool, field)?;
    let field = format!("{field}.function");
    let function = tool.get("function").unwrap_or(&Json::Null);
    object(function, &field)?;
    string(function, &field, "name", false)?;
    string(function, &field, "description", true)?;
    match function.get("parameters") {
        None | Some(Json::Null | Json::Object(_)) => Ok(()),
        found => Err(unexpected(&format!("{field}.parameters"), "an object", found)),
    }
}

fn function_type(json: &Json, field: &str) -> Result<()> {
    match json.get("type") {
        None => Ok(()),
        Some(Json::String(kind)) if kind == "function" => Ok(()),
        found => Err(unexpected(&format!("{field}.type"), "`function`", found)),
    }
}
