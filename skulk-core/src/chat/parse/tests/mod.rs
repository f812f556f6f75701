//! Tests of output parsers beside the reference's cases in `tests/answers`.

mod broken;
mod chunks;
mod samples;
mod special;

use serde_json::{Value, json};

use super::*;

/// An answer as a whole.
#[derive(Debug, Clone, PartialEq, Default)]
struct Whole {
    text: String,
    reasoning: String,
    calls: Vec<(Option<String>, String, Value)>,
    broken: Vec<(CallProblem, Option<String>, String)>,
    /// Everything in its order, neighbours of one kind joined.
    order: Vec<Delta>,
}

impl Whole {
    fn add(&mut self, delta: Delta) {
        match &delta {
            Delta::Text { text } => self.text.push_str(text),
            Delta::Reasoning { text } => self.reasoning.push_str(text),
            Delta::CallFinished { call, .. } => {
                self.calls.push((call.id.clone(), call.name.clone(), call.arguments.clone()));
            }
            Delta::CallMalformed { call, .. } => {
                self.broken.push((call.problem, call.name.clone(), call.raw.clone()));
            }
            Delta::CallStarted { .. } | Delta::CallArguments { .. } => {}
        }
        match (self.order.last_mut(), &delta) {
            (Some(Delta::Text { text }), Delta::Text { text: new })
            | (Some(Delta::Reasoning { text }), Delta::Reasoning { text: new })
            | (Some(Delta::CallArguments { text, .. }), Delta::CallArguments { text: new, .. }) => {
                text.push_str(new);
            }
            _ => self.order.push(delta),
        }
    }

    /// Calls' names and arguments.
    fn called(&self) -> Vec<(&str, Value)> {
        self.calls.iter().map(|(_, name, arguments)| (name.as_str(), arguments.clone())).collect()
    }
}

fn think(tools: ToolSyntax) -> OutputSyntax {
    OutputSyntax { reasoning: Some(ReasoningSyntax::think()), tools: Some(tools) }
}

fn whole(mut parser: StreamParser, pieces: &[(&str, bool)]) -> Whole {
    let mut whole = Whole::default();
    for (text, special) in pieces {
        parser.push(text, *special).for_each(|delta| whole.add(delta));
    }
    parser.finish().for_each(|delta| whole.add(delta));
    assert_eq!(parser.finish().count(), 0, "nothing is told twice");
    whole
}

fn read(tools: ToolSyntax, text: &str) -> Whole {
    read_for(tools, &[], text)
}

fn read_for(tools: ToolSyntax, offered: &[Value], text: &str) -> Whole {
    let options = ParseOptions::default().tools(offered.to_vec());
    whole(StreamParser::new(&think(tools), &options).unwrap(), &[(text, false)])
}

/// A tool whose arguments have these schemas.
fn tool(name: &str, properties: Value) -> Value {
    json!({"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}})
}

#[test]
fn deltas_come_as_early_as_they_are_certain() {
    let mut parser = StreamParser::new(&think(ToolSyntax::Hermes), &ParseOptions::default()).unwrap();
    let mut push = |text: &str| serde_json::to_value(parser.push(text, false).collect::<Vec<_>>()).unwrap();
    assert_eq!(push("a <b"), json!([{"type": "text", "text": "a <b"}]));
    assert_eq!(push(" <tool"), json!([{"type": "text", "text": " "}]));
    assert_eq!(push("_call>{\"name\": \"f"), json!([]));
    let started = json!({"type": "callStarted", "index": 0, "id": null, "name": "f"});
    assert_eq!(push("\", "), json!([started]));
    let arguments = |text: &str| json!([{"type": "callArguments", "index": 0, "text": text}]);
    assert_eq!(push("\"arguments\": {\"a"), arguments("{\"a"));
    assert_eq!(push("\": \"</tool_call"), arguments("\": \"</tool_call"));
    assert_eq!(push(">\"}"), arguments(">\"}"));
    assert_eq!(push("}</tool_cal"), json!([]));
    let call = json!({"id": null, "name": "f", "arguments": {"a": "</tool_call>"}});
    assert_eq!(
        push("l>x"),
        json!([
            {"type": "callFinished", "index": 0, "call": call},
            {"type": "text", "text": "x"},
        ])
    );
}

#[test]
fn texts_of_arguments_are_told_while_they_grow() {
    let options = ParseOptions::default().tools([tool("write", json!({"text": {"type": "string"}}))]);
    let mut parser = StreamParser::new(&think(ToolSyntax::Qwen3Coder), &options).unwrap();
    let mut push = |text: &str| {
        let told = parser.push(text, false).filter_map(|delta| match delta {
            Delta::CallArguments { text, .. } => Some(text),
            _ => None,
        });
        told.collect::<String>()
    };
    assert_eq!(push("<tool_call>\n<function=write>\n<parameter=text>\n"), "{\"text\": \"");
    assert_eq!(push("one\n"), "one");
    assert_eq!(push("two\n</para"), "\\ntwo");
    assert_eq!(push("meter>\n</function>"), "\"}");
}

#[test]
fn arguments_are_converted_to_declared_types() {
    let properties = json!({
        "n": {"type": "integer"}, "list": {"type": "array", "items": {"type": "integer"}},
        "any": {"anyOf": [{"type": "null"}, {"type": "boolean"}]}, "s": {"type": "string"},
        "deep": {"type": "object", "properties": {"x": {"type": "number"}}},
    });
    let text = r#"<tool_call>{"name": "f", "arguments": {"n": "3", "list": "[\"1\", 2]", "any": "TRUE", "s": "5",
        "deep": "{'x': '2', 'y': None}", "other": "7"}}</tool_call>"#;
    let found = read_for(ToolSyntax::Hermes, &[tool("f", properties)], &text.replace('\n', ""));
    let expected =
        json!({"n": 3, "list": [1, 2], "any": true, "s": "5", "deep": {"x": 2.0, "y": null}, "other": "7"});
    assert_eq!(found.called(), [("f", expected)]);
}

#[test]
fn impossible_options_are_refused() {
    let empty = OutputSyntax { reasoning: Some(ReasoningSyntax::new("<think>", "")), tools: None };
    let error = StreamParser::new(&empty, &ParseOptions::default()).unwrap_err();
    assert_eq!(error.context(), [("field", "reasoning.end".to_owned())]);
    let nameless = ParseOptions::default().tools([json!({"type": "function"})]);
    let error = StreamParser::new(&think(ToolSyntax::Hermes), &nameless).unwrap_err();
    assert_eq!(error.context(), [("field", "tools[0].function.name".to_owned())]);
}

#[test]
fn a_parser_knows_whether_it_reads_reasoning() {
    let options = ParseOptions::default().starts_in_reasoning(true);
    let mut parser = StreamParser::new(&think(ToolSyntax::Hermes), &options).unwrap();
    assert!(parser.is_reasoning());
    parser.push("a</think>b", false);
    assert!(!parser.is_reasoning());
}

#[test]
fn profiles_and_templates_decide_together() {
    use crate::card::{Profile, ProfileHints};
    let profile = |id: &str| Profile::resolve(id, None, &ProfileHints::default());
    let glm = "{%- if tools %}<tool_call>{name}<arg_key>{% endif %}</think>";
    assert_eq!(OutputSyntax::of(&profile("acme/m"), Some(glm)), think(ToolSyntax::Glm));
    assert_eq!(OutputSyntax::of(&profile("acme/m"), None), OutputSyntax::default());
    let qwen = OutputSyntax::of(&profile("x/Qwen3-8B"), None);
    assert_eq!(qwen, OutputSyntax { reasoning: Some(ReasoningSyntax::think()), tools: None });
    assert!(qwen.starts_in_reasoning("<|im_start|>assistant\n<think>\n"));
    assert!(!qwen.starts_in_reasoning("<think>\n\n</think>\n\n"));
    let gpt = OutputSyntax::of(&profile("openai/gpt-oss-20b"), Some(glm));
    assert_eq!(gpt, OutputSyntax { reasoning: None, tools: Some(ToolSyntax::Harmony) });
}
