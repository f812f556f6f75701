//! Are conversations read as they were given?
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::path::Path;
use std::task::{Context, Poll, Waker};

use serde_json::{Map, Value, json};
use skulk::card::ReasoningEffort;
use skulk::{CancelToken, ChatOptions, Constraint, Error, ErrorKind, Model};
use skulk_contract::chat::{Conversation, ToolStep, ToolSteps};
use skulk_contract::options::Spelling;

fn read(options: &str) -> skulk::Result<ChatOptions> {
    let text = format!(r#"{{"messages": "Hello", "options": {options}}}"#);
    Ok(Conversation::read(&text, Spelling::Camel)?.chat()?.1)
}

fn refused<T>(found: skulk::Result<T>) -> (ErrorKind, Option<String>) {
    let Err(error) = found else { panic!("expected an error") };
    let field =
        |error: &Error| error.context().iter().find(|(key, _)| *key == "field").map(|(_, at)| at.clone());
    (error.kind(), field(&error))
}

#[test]
fn messages_and_tools_keep_the_order_of_their_keys() {
    let text = r#"{"options": {"tools": [{"function": {"parameters": {"z": 1, "a": 2}, "name": "f"}, "type": "function"}],
        "variables": {"b": 1, "a": 2}, "documents": [{"y": 1, "x": 2}], "maxTokens": 7},
        "messages": [{"content": "Hello", "role": "user", "a": {"z": 1, "b": 2}}]}"#;
    let (messages, options) = Conversation::read(text, Spelling::Camel).unwrap().chat().unwrap();
    let own = |value: &skulk::chat::Json| serde_json::to_string(value).unwrap();
    assert_eq!(own(messages[0].as_json()), r#"{"content":"Hello","role":"user","a":{"z":1,"b":2}}"#);
    let render = &options.render;
    assert!(own(render.tools[0].as_json()).contains(r#""parameters":{"z":1,"a":2},"name":"f""#));
    assert_eq!(own(&render.documents[0]), r#"{"y":1,"x":2}"#);
    let names: Vec<_> = render.variables.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!((names, options.generate.max_tokens), (vec!["b", "a"], Some(7)));
}

#[test]
fn forms_of_texts_are_read_in_their_order() {
    let constraint = |options: &str| read(options).unwrap().generate.constraint;
    let schema = r#"{"properties":{"z":{},"a":{}},"type":"object"}"#;
    for options in [
        format!(r#"{{"jsonSchema": {schema}}}"#),
        format!(r#"{{"responseFormat": {{"type": "json", "schema": {schema}}}}}"#),
        format!(r#"{{"responseFormat": {{"type": "json_schema", "json_schema": {{"schema": {schema}}}}}}}"#),
    ] {
        let Some(Constraint::JsonSchema(found)) = constraint(&options) else { panic!("{options}") };
        assert_eq!(found.to_string(), schema);
    }
    assert_eq!(constraint(r#"{"regex": "a+"}"#), Some(Constraint::Regex("a+".into())));
    assert_eq!(constraint(r#"{"grammar": "start: A"}"#), Some(Constraint::Lark("start: A".into())));
    assert_eq!(constraint(r#"{"responseFormat": {"type": "text"}, "regex": null}"#), None);
    let field = |options: &str| refused(read(options)).1.unwrap();
    assert_eq!(field(r#"{"regex": "a", "grammar": "b"}"#), "response_format");
    assert_eq!(field(r#"{"responseFormat": {"type": "xml"}}"#), "response_format.type");
    assert_eq!(field(r#"{"regex": 7}"#), "regex");
}

#[test]
fn a_text_is_a_message_of_the_users() {
    let (messages, _) = Conversation::new("\"Hello\"", Map::new(), Spelling::Snake).unwrap().chat().unwrap();
    assert_eq!(messages, [skulk::chat::Message::user("Hello")]);
}

#[test]
fn reasoning_is_a_switch_or_an_effort() {
    let asked = |reasoning: Value| {
        let options = read(&json!({ "reasoning": reasoning, "reasoningBudget": 3 }).to_string()).unwrap();
        assert_eq!(options.reasoning_budget, Some(3));
        (options.render.reasoning.effort, options.render.reasoning.enable_thinking)
    };
    assert_eq!(asked(json!(true)), (None, Some(true)));
    assert_eq!(asked(json!("off")), (None, Some(false)));
    assert_eq!(asked(json!("low")), (Some(ReasoningEffort::Low), None));
    assert_eq!(asked(Value::Null), (None, None));
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let argument = |field: &str| (ErrorKind::InvalidArgument, Some(field.to_owned()));
    assert_eq!(refused(read(r#"{"reasoning": "much"}"#)), argument("reasoning"));
    assert_eq!(refused(read(r#"{"max_tokens": 7}"#)), argument("max_tokens"));
    assert_eq!(refused(read(r#"{"logprobs": 1}"#)), argument("logprobs"));
    assert_eq!(refused(read(r#"{"variables": [1]}"#)), argument("variables"));
    assert_eq!(refused(read(r#"{"documents": 1}"#)), argument("documents"));
    assert_eq!(refused(read("[]")), argument("options"));
    assert_eq!(refused(read(r#"{"tools": [{}]}"#)).0, ErrorKind::ChatInvalid);
    for messages in ["17", "[17]", "{", "null"] {
        let found = Conversation::new(messages, Map::new(), Spelling::Camel);
        assert_eq!(refused(found).0, ErrorKind::ChatInvalid, "{messages}");
    }
}

fn poll(steps: &mut ToolSteps) -> Option<skulk::Result<ToolStep>> {
    loop {
        match steps.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(step) => return step,
            Poll::Pending => std::thread::yield_now(),
        }
    }
}

#[test]
fn a_conversation_without_calls_is_one_round() {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/models/qwen2"));
    let options = skulk::LoadOptions::default()
        .chat_template("{% if tools %}{{ tools | tojson }}<tool_call>{% endif %}{{ messages[0].content }}");
    let model = Model::open(path, &options).unwrap();
    let text = r#"{"messages": "Hello", "options": {"maxTokens": 4, "maxRounds": 2, "onToolFailure": "end",
        "tools": [{"type": "function", "function": {"name": "f"}}]}}"#;
    let conversation = Conversation::read(text, Spelling::Camel).unwrap();
    let mut steps = conversation.clone().tools(&model, CancelToken::new()).unwrap();
    while let Some(step) = poll(&mut steps) {
        assert!(matches!(step.unwrap(), ToolStep::Event { .. }));
    }
    assert!(steps.finish().is_some() && steps.round() == 0 && steps.messages().len() == 2);
    assert_eq!(
        refused(steps.give("x", Ok(String::new()))),
        (ErrorKind::InvalidArgument, Some("id".to_owned()))
    );
    // What is only for rounds is no option of an answer.
    assert_eq!(refused(conversation.chat()), (ErrorKind::InvalidArgument, Some("maxRounds".to_owned())));
}
