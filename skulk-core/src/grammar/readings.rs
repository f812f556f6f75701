//! What of a schema would `llguidance` read otherwise than JSON Schema means it?

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// `Ok` unless a pattern has a set of characters that means something else in JSON Schema's expressions, which are
/// JavaScript's: those of the crate `regex` know sets within sets, and what two of them have in common.
pub(super) fn pattern(pattern: &str, field: &'static str) -> Result<()> {
    let bytes = pattern.as_bytes();
    let (mut at, mut in_set) = (0, false);
    while let Some(&byte) = bytes.get(at) {
        let next = bytes.get(at + 1);
        let differs = match byte {
            b'[' if in_set => true,
            // Empty in JavaScript, and a bracket's beginning here.
            b'[' => next == Some(&b']') || bytes[at + 1..].starts_with(b"^]"),
            b'&' | b'-' | b'~' => in_set && next == Some(&byte),
            _ => false,
        };
        if differs {
            let message = format!(
                "expected a pattern whose sets have `[`, `]`, `&&`, `--` and `~~` escaped, found {pattern}"
            );
            return Err(Error::argument(field, message).with_hint("write a backslash in front of them"));
        }
        match byte {
            b'\\' => at += 1,
            b'[' => in_set = true,
            b']' => in_set = false,
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

/// `Ok` unless more properties are asked for than differ for certain: `llguidance` counts one as often as it is written.
/// Those that are required differ, and one more does from them.
pub(super) fn properties(keywords: &Map<String, Value>, field: &'static str) -> Result<()> {
    let least = keywords.get("minProperties").and_then(Value::as_u64).unwrap_or(0);
    let required = keywords.get("required").and_then(Value::as_array);
    let required: HashSet<&str> = required.into_iter().flatten().filter_map(Value::as_str).collect();
    let may_be_object = match keywords.get("type") {
        None => true,
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
        Some(kind) => kind == "object",
    };
    if !may_be_object || least <= required.len() as u64 + 1 {
        return Ok(());
    }
    let message = format!("expected minProperties of at most one more than required names, found {least}");
    Err(Error::argument(field, message).with_hint("name the properties in `required`"))
}
