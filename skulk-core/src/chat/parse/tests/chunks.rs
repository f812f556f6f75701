//! Does it matter how an answer is cut into pieces, or where it ends? Is anything lost? Whatever it is.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::samples::{SAMPLES, offered};
use super::*;

/// A letter that no marker has, so that it can be counted.
const LETTERS: &str = "ΑΒΓΔ";

/// Parts of answers in a syntax: its markers, beginnings of them, and what may lie between.
fn parts(syntax: ToolSyntax) -> Vec<String> {
    let (_, sample) = SAMPLES.iter().find(|(known, _)| *known == syntax).unwrap();
    let mut parts: Vec<String> = [
        "Α",
        "ΒΓ",
        " ",
        "\n",
        "<",
        "{",
        "}",
        "\"",
        "[",
        ",",
        "Δ: ",
        "Γ(",
        ")",
        "call:",
        "{\"name\": \"Γ\", \"arguments\": {",
        "\"Δ\": \"Α\"",
        "}}",
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
    ]
    .map(str::to_owned)
    .to_vec();
    for marker in formats::format(syntax).markers() {
        parts.push(marker.to_owned());
        let half = (0..=marker.len() / 2).rev().find(|at| marker.is_char_boundary(*at)).unwrap();
        parts.push(marker[..half].to_owned());
    }
    parts.push((*sample).to_owned());
    parts
}

fn answers() -> impl Strategy<Value = (ToolSyntax, String)> {
    select(ToolSyntax::ALL).prop_flat_map(|syntax| {
        let mixed = vec(select(parts(syntax)), 0..14).prop_map(|parts| parts.concat());
        (Just(syntax), mixed)
    })
}

/// Cuts a text behind each of these numbers of characters.
fn cut<'a>(text: &'a str, lengths: &[usize]) -> Vec<(&'a str, bool)> {
    let mut pieces = Vec::new();
    let mut rest = text;
    for len in lengths.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let at = rest.char_indices().nth(*len).map_or(rest.len(), |(at, _)| at);
        pieces.push((&rest[..at], false));
        rest = &rest[at..];
    }
    pieces
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn cuts_change_nothing(
        (syntax, text) in answers(),
        lengths in vec(0usize..9, 1..8).prop_filter("some", |lengths| lengths.iter().any(|len| *len > 0)),
        (starts, offers) in (any::<bool>(), any::<bool>()),
    ) {
        let tools = if offers { offered() } else { Vec::new() };
        let options = ParseOptions::default().starts_in_reasoning(starts).tools(tools);
        let parser = StreamParser::new(&think(syntax), &options).unwrap();
        let at_once = whole(parser.clone(), &[(&text, false)]);
        prop_assert_eq!(&whole(parser, &cut(&text, &lengths)), &at_once);
        // Arguments that were told, joined, are those of the call.
        let mut json = String::new();
        for delta in &at_once.order {
            match delta {
                Delta::CallStarted { .. } => json.clear(),
                Delta::CallArguments { text, .. } => json.push_str(text),
                Delta::CallFinished { .. } => prop_assert!(serde_json::from_str::<Value>(&json).unwrap().is_object()),
                _ => {}
            }
        }
    }

    /// Of formats whose markup has no room for text that is neither name nor value.
    #[test]
    fn nothing_is_lost(
        (syntax, text) in answers().prop_filter("headers name roles", |(syntax, _)| {
            !matches!(syntax, ToolSyntax::Harmony | ToolSyntax::Muse | ToolSyntax::DeepSeek | ToolSyntax::Functionary)
        }),
    ) {
        let found = read(syntax, &text);
        let count = |text: &str| text.chars().filter(|c| LETTERS.contains(*c)).count();
        let told: usize = found.order.iter().map(|delta| match delta {
            Delta::Text { text } | Delta::Reasoning { text } => count(text),
            Delta::CallMalformed { call, .. } => count(&call.raw),
            Delta::CallFinished { call, .. } => {
                let arguments = call.arguments.to_string();
                let id = call.id.clone().unwrap_or_default();
                let name = if id.contains(&call.name) { "" } else { &call.name };
                count(&arguments) + count(&id) + count(name)
            }
            _ => 0,
        }).sum();
        prop_assert!(told >= count(&text), "{} {:?}", text, found);
    }

    /// What has no markup is all text.
    #[test]
    fn text_stays_as_it_is(text in "[a-z <>|/{}\\[\\]\"=:\n]{0,80}", lengths in vec(1usize..6, 1..5)) {
        let parser = StreamParser::new(&think(ToolSyntax::Kimi), &ParseOptions::default()).unwrap();
        prop_assume!(!text.contains("<think>"));
        prop_assert_eq!(whole(parser, &cut(&text, &lengths)).text, text);
    }
}
