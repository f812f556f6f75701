//! Are answers taken apart as the reference does it? Cases as data, those of `SKULK_EXTRA_SUITES` too.
//!
//! Where the reference depends on how the answer is cut into pieces, or loses text, what is expected comes from
//! [`oracle`]; `docs/guide/chat-output.md` lists these differences.

mod oracle;
mod templates;

use std::path::PathBuf;

use serde_json::Value;
use skulk::card::ProfileHints;
use skulk::chat::parse::harmony_answer;
use skulk::chat::{Delta, OutputSyntax, ParseOptions, ReasoningSyntax, StreamParser, ToolSyntax};
use skulk::{Profile, Result};

use crate::fixtures::root;
use oracle::{Item, reference};

/// Each with its name in the file.
type Check = fn(&Value);

const GROUPS: [(&str, Check); 9] = [
    ("parse_thinking_models", thinking),
    ("parse_gemma4_thinking_channels", gemma4_channels),
    ("parse_tool_calls", tool_calls),
    ("parse_deepseek_v32", deepseek_v32),
    ("parse_gpt_oss", gpt_oss),
    ("HarmonyTextParser", harmony_text),
    ("ThinkTextParser", think_text),
    ("llamaCppHarmonyHistory", harmony_history),
    ("apply_all_parsers", all_parsers),
];

#[test]
fn every_case_is_the_references() {
    let own = Some(root().join("tests/fixtures/parsers"));
    let extra = std::env::var_os("SKULK_EXTRA_SUITES").map(PathBuf::from);
    for folder in [own, extra].into_iter().flatten() {
        let file = folder.join("parsers.json");
        if !file.exists() {
            continue;
        }
        let suite: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let groups = suite["parsers"].as_object().unwrap();
        for (name, group) in groups {
            let (_, check) = GROUPS.iter().find(|(known, _)| known == name).expect("nothing runs this group");
            let cases = group.get("cases").unwrap_or(group).as_array().unwrap();
            assert!(!cases.is_empty());
            for case in cases {
                println!("{name}: {}", case.get("name").unwrap_or(case));
                check(case);
            }
            println!("{name}: {} cases", cases.len());
        }
        templates_with_tools(&groups["parse_tool_calls"]["infer"]);
        dsml(&groups["parse_deepseek_v32"]["parseDsmlOutput"]);
    }
}

fn chunks(case: &Value) -> Vec<&str> {
    let chunks = case["chunks"].as_array().unwrap();
    chunks.iter().filter_map(Value::as_str).collect()
}

/// What is read from these pieces, and how much text is told with each.
fn read(
    syntax: &OutputSyntax,
    options: &ParseOptions,
    pieces: &[(&str, bool)],
) -> Result<(Vec<Item>, Vec<usize>)> {
    let specials: Vec<String> =
        pieces.iter().filter(|piece| piece.1).map(|piece| piece.0.to_owned()).collect();
    let mut parser = match specials.is_empty() {
        true => StreamParser::new(syntax, options)?,
        false => {
            StreamParser::seeing_special_tokens(syntax, options, |text| specials.iter().any(|s| s == text))?
        }
    };
    let (mut items, mut told) = (Vec::new(), Vec::new());
    let mut total = 0;
    for (text, special) in pieces {
        for delta in parser.push(text, *special) {
            if let Delta::Text { text } | Delta::Reasoning { text } = &delta {
                total += text.chars().count();
            }
            oracle::add(&mut items, delta);
        }
        told.push(total);
    }
    parser.finish().for_each(|delta| oracle::add(&mut items, delta));
    Ok((items, told))
}

/// The same from these chunks and from single characters.
fn items(syntax: &OutputSyntax, options: &ParseOptions, chunks: &[&str]) -> (Vec<Item>, Vec<usize>) {
    let pieces: Vec<_> = chunks.iter().map(|chunk| (*chunk, false)).collect();
    let found = read(syntax, options, &pieces).unwrap();
    let text = chunks.concat();
    let characters: Vec<_> =
        text.char_indices().map(|(at, c)| (&text[at..at + c.len_utf8()], false)).collect();
    assert_eq!(read(syntax, options, &characters).unwrap().0, found.0, "by characters");
    found
}

/// After each chunk, at least as much is told as by the reference.
fn no_later(case: &Value, told: &[usize]) {
    let (mut at, mut total) = (0, 0);
    let visible: Vec<usize> = case["chunks"]
        .as_array()
        .unwrap()
        .iter()
        .enumerate()
        .filter(|c| c.1.is_string())
        .map(|c| c.0)
        .collect();
    for event in case["events"].as_array().unwrap() {
        let (Some(token), Some(text)) = (event["token"].as_u64(), event["text"].as_str()) else { continue };
        total += text.chars().count();
        while visible.get(at).is_some_and(|chunk| (*chunk as u64) < token) {
            at += 1;
        }
        // What is told at the end is told by `finish` here.
        if at + 1 < told.len() {
            assert!(told[at] >= total, "chunk {at}: the reference has told {total}, we {}", told[at]);
        }
    }
}

fn thinking(case: &Value) {
    let marker = |key: &str| case[key].as_str().unwrap();
    let syntax = OutputSyntax {
        reasoning: Some(ReasoningSyntax::new(marker("thinkStart"), marker("thinkEnd"))),
        tools: None,
    };
    let starts = case["startsInThinking"].as_bool().unwrap();
    let options = ParseOptions::default().starts_in_reasoning(starts);
    let (found, told) = items(&syntax, &options, &chunks(case));
    same_or_longer(case, &found);
    no_later(case, &told);
}

fn gemma4_channels(case: &Value) {
    let gemma = OutputSyntax::of(&Profile::resolve("x/gemma-4-12b", None, &ProfileHints::default()), None);
    let syntax = OutputSyntax { tools: None, ..gemma };
    let (found, told) = items(&syntax, &ParseOptions::default(), &chunks(case));
    same_or_longer(case, &found);
    no_later(case, &told);
}

/// The reference loses what it holds back where no chunk is the last one.
fn same_or_longer(case: &Value, found: &[Item]) {
    let expected = reference(&case["events"]);
    if !case["finishReason"].is_null() {
        assert_eq!(found, expected);
        return;
    }
    let told = oracle::told(&expected);
    let all = oracle::told(found);
    assert!(all.starts_with(&told), "{all:?} {told:?}");
    assert_eq!(all.len(), chunks(case).concat().len(), "nothing is lost");
}

fn syntax_of(parser: &str) -> ToolSyntax {
    match parser.trim_start_matches("mlx_lm.") {
        "json" | "json_tools" => ToolSyntax::Hermes,
        "gemma4" => ToolSyntax::Gemma4,
        "kimi" | "kimi_k2" => ToolSyntax::Kimi,
        "qwen3_coder" => ToolSyntax::Qwen3Coder,
        "glm47" => ToolSyntax::Glm,
        "minimax_m2" => ToolSyntax::Minimax,
        "mistral" => ToolSyntax::Mistral,
        "longcat" => ToolSyntax::Longcat,
        "pythonic" => ToolSyntax::Pythonic,
        "function_gemma" => ToolSyntax::FunctionGemma,
        _ => panic!("nothing reads {parser}"),
    }
}

fn tool_calls(case: &Value) {
    let tools = case["tools"].as_array().cloned().unwrap_or_default();
    let syntax = OutputSyntax { reasoning: None, tools: Some(syntax_of(case["parser"].as_str().unwrap())) };
    let (found, _) = items(&syntax, &ParseOptions::default().tools(tools), &chunks(case));
    let (start, end) = (case["startMarker"].as_str().unwrap(), case["endMarker"].as_str().unwrap());
    let expected = oracle::repaired(reference(&case["events"]), start, end, &chunks(case).concat());
    assert!(oracle::same(&found, &expected), "{found:?} {expected:?}");
}

fn deepseek_v32(case: &Value) {
    let profile = Profile::resolve("x/DeepSeek-V3.2", None, &ProfileHints::default());
    let (found, _) = items(&OutputSyntax::of(&profile, None), &ParseOptions::default(), &chunks(case));
    let expected = oracle::deepseek(&chunks(case));
    assert_eq!(found, expected);
    let text = chunks(case).concat();
    let open =
        text.matches("<｜DSML｜function_calls>").count() > text.matches("</｜DSML｜function_calls>").count();
    let cut_behind_calls = open && text.contains("</｜DSML｜invoke>");
    if !cut_behind_calls && !oracle::cuts_markers(&chunks(case), &["<think>", "</think>"]) {
        assert_eq!(found, oracle::broken_blocks(reference(&case["events"]), "<｜DSML｜function_calls>"));
    }
}

fn gpt_oss(case: &Value) {
    let profile = Profile::resolve("openai/gpt-oss-20b", None, &ProfileHints::default());
    let syntax = OutputSyntax::of(&profile, None);
    let text = case["text"].as_str().unwrap();
    let (found, _) = items(&syntax, &ParseOptions::default(), &[text]);
    // Tokens that are halves of a character have no text of their own.
    let pieces = chunks(case);
    if pieces.concat() == text {
        let ids = case["tokens"].as_array().unwrap();
        let special = ids.iter().map(|id| id.as_u64().unwrap() >= 199_998);
        let pieces: Vec<_> = pieces.into_iter().zip(special).collect();
        assert_eq!(read(&syntax, &ParseOptions::default(), &pieces).unwrap().0, found, "by tokens");
    }
    oracle::harmony(case, &found);
}

fn harmony_text(case: &Value) {
    let profile = Profile::resolve("openai/gpt-oss-20b", None, &ProfileHints::default());
    fed(case, &OutputSyntax::of(&profile, None), false);
}

fn think_text(case: &Value) {
    let syntax = OutputSyntax { reasoning: Some(ReasoningSyntax::new("<think>", "</think>")), tools: None };
    fed(case, &syntax, case["startsInThinking"].as_bool().unwrap());
}

/// Each feed tells at least what the reference tells; in the end it is the same.
fn fed(case: &Value, syntax: &OutputSyntax, starts: bool) {
    let options = ParseOptions::default().starts_in_reasoning(starts);
    let (found, told) = items(syntax, &options, &chunks(case));
    let mut all = Vec::new();
    let mut total = 0;
    let feeds = case["feeds"].as_array().unwrap().iter().chain([&case["flush"]]);
    for (at, feed) in feeds.enumerate() {
        for part in feed.as_array().unwrap() {
            let text = part[0].as_str().unwrap();
            total += text.chars().count();
            oracle::add_text(&mut all, text, part[1].as_bool().unwrap());
        }
        assert!(told.get(at).is_none_or(|told| *told >= total), "feed {at}");
    }
    // It takes calls for text.
    if !chunks(case).concat().contains(" to=") {
        assert_eq!(found, all);
    }
}

fn harmony_history(case: &Value) {
    assert_eq!(harmony_answer(case["content"].as_str().unwrap()), case["result"].as_str().unwrap());
}

fn all_parsers(case: &Value) {
    let hints = ProfileHints::default()
        .tokenizer_thinking(case["tokenizerHasThinking"].as_bool().unwrap())
        .tokenizer_tools(case["toolParser"].is_string());
    let profile = Profile::resolve(case["modelId"].as_str().unwrap(), None, &hints);
    let mut syntax = OutputSyntax::of(&profile, None);
    if let (Some(ToolSyntax::Hermes), Some(parser)) = (syntax.tools, case["toolParser"].as_str()) {
        syntax.tools = Some(syntax_of(parser));
    }
    let starts = syntax.starts_in_reasoning(case["prompt"].as_str().unwrap());
    let (found, _) = items(&syntax, &ParseOptions::default().starts_in_reasoning(starts), &chunks(case));
    let (start, end) = match syntax.tools {
        Some(ToolSyntax::Gemma4) => ("<|tool_call>", "<tool_call|>"),
        _ => ("<tool_call>", "</tool_call>"),
    };
    let mut expected = reference(&case["events"]);
    if syntax.tools.is_some() {
        expected = oracle::repaired(expected, start, end, &chunks(case).concat());
    }
    assert_eq!(found, expected);
}

fn templates_with_tools(cases: &Value) {
    for case in cases.as_array().unwrap() {
        let syntax = OutputSyntax::of_template(case["template"].as_str().unwrap());
        assert_eq!(Some(syntax.tools.is_some()), case["detected"].as_bool(), "{case}");
    }
}

fn dsml(cases: &Value) {
    let syntax = OutputSyntax { reasoning: None, tools: Some(ToolSyntax::Dsml) };
    let (start, end) = ("<｜DSML｜function_calls>", "</｜DSML｜function_calls>");
    for case in cases.as_array().unwrap() {
        // The reference gives this function blocks; some cases leave their markers out.
        let text = case["text"].as_str().unwrap();
        let block = if text.contains(start) { text.to_owned() } else { format!("{start}{text}{end}") };
        let (mut found, _) = items(&syntax, &ParseOptions::default(), &[&block]);
        found.retain(|item| matches!(item, Item::Call(..)));
        let mut expected = Vec::new();
        for call in case["result"].as_array().into_iter().flatten() {
            let arguments = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
            expected.push(Item::Call(call["name"].as_str().unwrap().to_owned(), arguments));
        }
        // It loses arguments that say nothing of their type.
        if text.contains("parameter name=")
            && text.split("parameter name=").skip(1).any(|p| !p.contains("string="))
        {
            let names = |items: &[Item]| {
                items
                    .iter()
                    .map(|item| if let Item::Call(name, _) = item { name.clone() } else { String::new() })
                    .collect::<Vec<_>>()
            };
            assert_eq!(names(&found), names(&expected));
            continue;
        }
        assert_eq!(found, expected, "{case}");
    }
}

/// What the model puts between messages is no part of them; behind the last one it is told.
#[test]
fn what_lies_between_messages_is_dropped() {
    let syntax = OutputSyntax { reasoning: None, tools: Some(ToolSyntax::Harmony) };
    for (text, expected) in [
        ("a<|end|>\n<|start|>assistant<|channel|>final<|message|>b", "ab"),
        ("a<|end|>x<|message|>b", "ab"),
        ("a<|end|>b", "ab"),
    ] {
        let mut parser = StreamParser::new(&syntax, &ParseOptions::default()).unwrap();
        let mut found = String::new();
        let pieces: Vec<String> = text.chars().map(String::from).collect();
        let mut deltas: Vec<Delta> =
            pieces.iter().flat_map(|piece| parser.push(piece, false).collect::<Vec<_>>()).collect();
        deltas.extend(parser.finish());
        for delta in deltas {
            let Delta::Text { text } = delta else { panic!("{delta:?}") };
            found += &text;
        }
        assert_eq!(found, expected, "{text}");
    }
}
