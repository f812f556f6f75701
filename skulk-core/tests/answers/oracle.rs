//! What is right where the reference is not? Worked out from the whole text, by plain searching.

use serde_json::{Value, json};
use skulk::chat::Delta;

/// A part of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Item {
    Reasoning(String),
    Text(String),
    Call(String, Value),
    /// What is no call, as it was written.
    Broken(String),
    /// A call of the reference whose arguments are no object.
    NoObject(String),
}

/// Whether both are the same, where calls without an object of arguments are malformed.
pub(crate) fn same(found: &[Item], expected: &[Item]) -> bool {
    found.len() == expected.len()
        && found.iter().zip(expected).all(|pair| match pair {
            (Item::Broken(raw), Item::NoObject(name)) => raw.contains(name),
            (found, expected) => found == expected,
        })
}

/// Adds to the last item what belongs to it.
pub(crate) fn add(items: &mut Vec<Item>, delta: Delta) {
    match delta {
        Delta::Text { text } => add_text(items, &text, false),
        Delta::Reasoning { text } => add_text(items, &text, true),
        Delta::CallFinished { call, .. } => items.push(Item::Call(call.name, call.arguments)),
        Delta::CallMalformed { call, .. } => items.push(Item::Broken(call.raw)),
        _ => {}
    }
}

pub(crate) fn add_text(items: &mut Vec<Item>, new: &str, reasoning: bool) {
    match (items.last_mut(), reasoning) {
        (Some(Item::Text(text)), false) | (Some(Item::Reasoning(text)), true) => text.push_str(new),
        _ if new.is_empty() => {}
        (_, true) => items.push(Item::Reasoning(new.to_owned())),
        (_, false) => items.push(Item::Text(new.to_owned())),
    }
}

/// The reference's events.
pub(crate) fn reference(events: &Value) -> Vec<Item> {
    let mut items = Vec::new();
    for event in events.as_array().unwrap().iter().filter(|event| !event.is_null()) {
        if event["type"] == "toolCalls" {
            for call in event["toolCalls"].as_array().unwrap() {
                let name = call["name"].as_str().unwrap().to_owned();
                let arguments = serde_json::from_str(call["arguments"].as_str().unwrap()).ok();
                items.push(match arguments.filter(Value::is_object) {
                    Some(arguments) => Item::Call(name, arguments),
                    None => Item::NoObject(name),
                });
            }
        } else if event["finishReason"] == "error" {
            items.push(Item::Broken(event["text"].as_str().unwrap().to_owned()));
        } else {
            add_text(&mut items, event["text"].as_str().unwrap(), event["isThinking"].as_bool().unwrap());
        }
    }
    items
}

/// All text and reasoning.
pub(crate) fn told(items: &[Item]) -> String {
    let text = |item: &Item| match item {
        Item::Reasoning(text) | Item::Text(text) => text.clone(),
        Item::Call(..) | Item::Broken(_) | Item::NoObject(_) => String::new(),
    };
    items.iter().map(text).collect()
}

/// The same with the calls that the reference passes through as text, because a marker was cut or did not begin a
/// chunk, and with the text behind a broken call, where it stops.
pub(crate) fn repaired(items: Vec<Item>, start: &str, end: &str, all: &str) -> Vec<Item> {
    let mut repaired = Vec::new();
    for item in items {
        match item {
            Item::Text(text) => blocks(&mut repaired, &text, start, end),
            Item::Broken(raw) => {
                let behind = all.find(&raw).map_or("", |at| &all[at + raw.len()..]).to_owned();
                blocks(&mut repaired, &raw, start, end);
                blocks(&mut repaired, &behind, start, end);
            }
            Item::Call(name, arguments) if arguments == json!({}) && start == "<|tool_call>" => {
                // It reads nothing of arguments that are nested, have spaces or braces in strings.
                let at = all.find(&format!("call:{name}{{")).unwrap();
                let to = all[at..].find(end).unwrap();
                repaired.extend(calls(&all[at..at + to]).unwrap());
            }
            item => repaired.push(item),
        }
    }
    repaired
}

fn blocks(items: &mut Vec<Item>, text: &str, start: &str, end: &str) {
    let Some((before, rest)) = text.split_once(start) else { return add_text(items, text, false) };
    add_text(items, before, false);
    let (body, behind, closed) = match rest.split_once(end) {
        Some((body, behind)) => (body, behind, true),
        None => (rest, "", false),
    };
    match calls(body).filter(|_| closed) {
        Some(calls) => items.extend(calls),
        None => items.push(Item::Broken(format!("{start}{body}{}", if closed { end } else { "" }))),
    }
    blocks(items, behind, start, end);
}

/// The calls of a block.
fn calls(body: &str) -> Option<Vec<Item>> {
    let json = |call: &Value| {
        let arguments = call.get("arguments").filter(|arguments| arguments.is_object())?;
        Some(Item::Call(call["name"].as_str()?.to_owned(), arguments.clone()))
    };
    let calls: Option<Vec<Item>> = match serde_json::from_str::<Value>(body) {
        Ok(Value::Array(calls)) => calls.iter().map(json).collect(),
        Ok(call) => json(&call).map(|call| vec![call]),
        Err(_) if body.contains("<function=") => {
            elements(body, ["<function=", ">", "<parameter=", ">", "</parameter>"])
        }
        Err(_) if body.contains("<arg_key>") => {
            let body = format!("<call>{body}").replace("</arg_key>\n", "</arg_key>");
            elements(&body, ["<call>", "<arg_key>", "<arg_key>", "</arg_key><arg_value>", "</arg_value>"])
        }
        Err(_) if body.contains("<invoke") => {
            elements(body, ["<invoke name=\"", "\">", "<parameter name=\"", "\">", "</parameter>"])
        }
        Err(_) if body.contains("<|tool_call_begin|>") => {
            let calls = body.split("<|tool_call_begin|>").skip(1).map(|call| {
                let (id, arguments) = call.split_once("<|tool_call_argument_begin|>")?;
                let arguments = arguments.split("<|tool_call_end|>").next()?;
                let name = id.split(':').next()?.trim().trim_start_matches("functions.");
                Some(Item::Call(name.to_owned(), serde_json::from_str(arguments).ok()?))
            });
            calls.collect()
        }
        Err(_) => {
            let calls = body.split("call:").skip(1).map(|call| {
                let (name, arguments) = call.split_once('{')?;
                Some(Item::Call(name.to_owned(), gemma(&format!("{{{arguments}"))?))
            });
            calls.collect()
        }
    };
    calls.filter(|calls| !calls.is_empty())
}

/// Calls as elements, all of whose arguments are texts.
fn elements(body: &str, [call, name_end, key, key_end, value_end]: [&str; 5]) -> Option<Vec<Item>> {
    let calls = body.split(call).skip(1).map(|call| {
        let name = call.split(name_end).next()?.trim();
        let arguments = call.split(key).skip(1).map(|argument| {
            let (key, value) = argument.split_once(key_end)?;
            let value = value.split(value_end).next()?;
            let value = value.strip_prefix('\n').unwrap_or(value);
            Some((key.to_owned(), json!(value.strip_suffix('\n').unwrap_or(value))))
        });
        Some(Item::Call(name.to_owned(), Value::Object(arguments.collect::<Option<_>>()?)))
    });
    calls.collect()
}

/// Gemma's arguments: strings are put aside, then keys and words get quotes.
fn gemma(text: &str) -> Option<Value> {
    let mut json = String::new();
    for (at, part) in text.split("<|\"|>").enumerate() {
        if at % 2 == 1 {
            json.push_str(&Value::from(part).to_string());
            continue;
        }
        let mut word = String::new();
        for c in part.chars().chain(['\0']) {
            if c.is_alphanumeric() || matches!(c, '_' | '-' | '.') {
                word.push(c);
                continue;
            }
            let plain = c != ':' && serde_json::from_str::<Value>(&word).is_ok();
            json.push_str(&if word.is_empty() || plain { word.clone() } else { format!("\"{word}\"") });
            word.clear();
            json.extend(Some(c).filter(|c| *c != '\0'));
        }
    }
    serde_json::from_str(&json).ok()
}

/// Whether a chunk has a marker and something else, or a part of one.
pub(crate) fn cuts_markers(chunks: &[&str], markers: &[&str]) -> bool {
    let whole = |marker: &str| chunks.iter().filter(|chunk| **chunk == marker).count();
    markers.iter().any(|marker| chunks.concat().matches(marker).count() != whole(marker))
}

/// Texts that begin as a block of calls are broken blocks.
pub(crate) fn broken_blocks(items: Vec<Item>, start: &str) -> Vec<Item> {
    let broken = |item| match item {
        Item::Text(text) if text.starts_with(start) => Item::Broken(text),
        item => item,
    };
    items.into_iter().map(broken).collect()
}

/// DeepSeek V3.2's answers.
pub(crate) fn deepseek(chunks: &[&str]) -> Vec<Item> {
    let mut items = Vec::new();
    let text = chunks.concat();
    let mut rest = text.as_str();
    while let Some((before, behind)) = rest.split_once("<think>") {
        dsml(&mut items, before);
        let (thought, answer) = behind.split_once("</think>").unwrap_or((behind, ""));
        add_text(&mut items, thought, true);
        rest = answer;
    }
    dsml(&mut items, rest);
    items
}

fn dsml(items: &mut Vec<Item>, text: &str) {
    let (start, end) = ("<｜DSML｜function_calls>", "</｜DSML｜function_calls>");
    let Some((before, block)) = text.split_once(start) else { return add_text(items, text, false) };
    add_text(items, before, false);
    let (block, behind, left) = match block.split_once(end) {
        Some((block, behind)) => (block, behind, ""),
        // Whole calls count, what is left is broken.
        None => match block.rfind("</｜DSML｜invoke>").map(|at| at + "</｜DSML｜invoke>".len()) {
            Some(at) => (&block[..at], "", &block[at..]),
            None => return items.push(Item::Broken(format!("{start}{block}"))),
        },
    };
    let calls = block.split("<｜DSML｜invoke name=\"").skip(1).map(|call| {
        let (name, rest) = call.split_once('"').unwrap();
        let arguments = rest.split("<｜DSML｜parameter name=\"").skip(1).map(|argument| {
            let (head, value) = argument.split_once('>').unwrap();
            let value = value.split("</｜DSML｜parameter>").next().unwrap();
            let typed =
                if head.contains("\"true\"") { json!(value) } else { serde_json::from_str(value).unwrap() };
            (head.split('"').next().unwrap().to_owned(), typed)
        });
        Item::Call(name.to_owned(), Value::Object(arguments.collect()))
    });
    let calls: Vec<_> = calls.collect();
    if calls.is_empty() {
        items.push(Item::Broken(format!("{start}{block}{end}")));
    }
    items.extend(calls);
    match left {
        _ if left.contains("<｜DSML｜invoke name=\"") => items.push(Item::Broken(left.to_owned())),
        _ if left.trim().is_empty() => {}
        _ => add_text(items, left, false),
    }
    dsml(items, behind);
}

/// Harmony: the reference tells the last chunk twice, passes half a call on as text, takes text without headers for one,
/// and stops at broken markup.
pub(crate) fn harmony(case: &Value, found: &[Item]) {
    let text = case["text"].as_str().unwrap();
    let mut events = case["events"].as_array().unwrap().clone();
    let chunks = case["chunks"].as_array().unwrap();
    let stopped = events.last().is_none_or(|event| event["finishReason"].is_null());
    let repeats = events.last().map(|event| &event["text"]) == chunks.last();
    if !stopped && repeats {
        events.pop();
    }
    let expected = reference(&Value::Array(events));
    if !text.contains("<|") {
        assert_eq!(found, [Item::Text(text.to_owned())]);
        return;
    }
    if stopped {
        assert!(told(found).starts_with(&told(&expected)));
        return;
    }
    // Half a header is text.
    let found = match found.split_last() {
        Some((Item::Text(last), rest)) if last.starts_with("<|") && text.ends_with(last) => rest,
        _ => found,
    };
    match (found.last(), expected.last()) {
        (Some(Item::Call(_, arguments)), Some(Item::Text(end)))
            if serde_json::from_str::<Value>(end).is_ok_and(|end| end == *arguments) =>
        {
            assert_eq!(found[..found.len() - 1], expected[..expected.len() - 1]);
        }
        (Some(Item::Broken(raw)), Some(Item::Text(end))) => {
            assert!(raw.ends_with(end), "{raw:?} {end:?}");
            assert_eq!(found[..found.len() - 1], expected[..expected.len() - 1]);
        }
        _ => assert!(same(found, &expected), "{found:?} {expected:?}"),
    }
}
