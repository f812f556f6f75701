//! Are texts of special tokens markup only where such tokens wrote them?

use super::*;

/// Cuts a text at these tokens.
fn pieces<'a>(text: &'a str, tokens: &[&str]) -> Vec<(&'a str, bool)> {
    let mut pieces = Vec::new();
    let (mut rest, mut plain) = (text, 0);
    while plain < rest.len() {
        let token = tokens.iter().find(|token| rest[plain..].starts_with(**token));
        match token {
            Some(token) => {
                pieces.push((&rest[..plain], false));
                pieces.push((&rest[plain..plain + token.len()], true));
                rest = &rest[plain + token.len()..];
                plain = 0;
            }
            None => plain += rest[plain..].chars().next().map_or(1, char::len_utf8),
        }
    }
    pieces.push((rest, false));
    pieces
}

fn parser(syntax: ToolSyntax, tokens: &[&str]) -> StreamParser {
    let options = ParseOptions::default().tools(super::samples::offered());
    StreamParser::seeing_special_tokens(&think(syntax), &options, |text| tokens.contains(&text)).unwrap()
}

/// The markers that are tokens of the models' vocabularies.
const TOKENS: &[(ToolSyntax, &[&str])] = &[
    (ToolSyntax::Hermes, &["<tool_call>", "</tool_call>"]),
    (ToolSyntax::Qwen3Coder, &["<tool_call>", "</tool_call>"]),
    (
        ToolSyntax::Glm,
        &["<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"],
    ),
    (ToolSyntax::Mistral, &["[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"]),
    (
        ToolSyntax::Kimi,
        &[
            "<|tool_calls_section_begin|>",
            "<|tool_calls_section_end|>",
            "<|tool_call_begin|>",
            "<|tool_call_argument_begin|>",
            "<|tool_call_end|>",
        ],
    ),
    (ToolSyntax::Dsml, &["｜DSML｜"]),
    (ToolSyntax::MinimaxNested, &["]<]minimax[>["]),
    (ToolSyntax::Gemma4, &["<|tool_call>", "<tool_call|>", "<|\"|>"]),
    (
        ToolSyntax::Harmony,
        &["<|channel|>", "<|start|>", "<|message|>", "<|end|>", "<|call|>", "<|constrain|>"],
    ),
    (ToolSyntax::Pythonic, &["<|tool_call_start|>", "<|tool_call_end|>"]),
];

#[test]
fn tokens_are_markup() {
    for (syntax, tokens) in TOKENS {
        let (_, text) = super::samples::SAMPLES.iter().find(|(known, _)| known == syntax).unwrap();
        let found = whole(parser(*syntax, tokens), &pieces(text, tokens));
        assert_eq!(found.calls.len(), 2, "{syntax}: {found:?}");
        assert_eq!(found, read_for(*syntax, &super::samples::offered(), text), "{syntax}");
    }
}

#[test]
fn the_same_text_by_ordinary_tokens_is_text() {
    for (syntax, tokens) in TOKENS {
        let (_, text) = super::samples::SAMPLES.iter().find(|(known, _)| known == syntax).unwrap();
        let found = whole(parser(*syntax, tokens), &[(text, false)]);
        assert_eq!(found.text, *text, "{syntax}");
        assert_eq!(found.order.len(), 1, "{syntax}");
    }
}

#[test]
fn a_value_may_contain_the_text_of_the_end() {
    let tokens = ["<tool_call>", "</tool_call>"];
    let text = [
        ("<tool_call>", true),
        ("<function=f><parameter=s>a</tool_call>b</parameter></function>", false),
        ("</tool_call>", true),
    ];
    let found = whole(parser(ToolSyntax::Qwen3Coder, &tokens), &text);
    assert_eq!(found.called(), [("f", json!({"s": "a</tool_call>b"}))]);
    // The token ends the call wherever it is.
    for body in ["{\"name\": \"f\", \"arguments\": {\"s\": \"a", "<function=f><parameter=s>a", "<function=f"]
    {
        let text = [("<tool_call>", true), (body, false), ("</tool_call>", true), ("b", false)];
        let found = whole(parser(ToolSyntax::Hermes, &tokens), &text);
        assert_eq!(found.broken[0].2, format!("<tool_call>{body}</tool_call>"));
        assert_eq!(found.text, "b");
    }
}

#[test]
fn tokens_that_are_no_markup_are_text() {
    let found = whole(parser(ToolSyntax::Hermes, &["<tool_call>"]), &[("a", false), ("<|box|>", true)]);
    assert_eq!(found.text, "a<|box|>");
}
