//! What is said where a constraint holds, behind what a script says?

use super::*;
use crate::grammar::Constraint;
use crate::{ChatRequest, Sampling};

fn bound(options: ChatOptions) -> ChatOptions {
    let schema = json!({
        "type": "object",
        "properties": {"rain": {"type": "boolean"}, "note": {"type": "string", "maxLength": 5}},
        "required": ["rain", "note"],
        "additionalProperties": false,
        "x-guidance": {"whitespace_flexible": false},
    });
    options.generate(at_most(80).constraint(Constraint::JsonSchema(schema)))
}

fn is_valid(text: &str) -> bool {
    serde_json::from_str::<serde_json::Value>(text).is_ok_and(|value| {
        value["rain"].is_boolean() && value["note"].as_str().is_some_and(|note| note.chars().count() <= 5)
    })
}

/// The script, which ends nothing.
fn begin(text: &str) {
    let tokens = tokenizer().encode(text, false).unwrap();
    SCRIPTS.with_borrow_mut(|scripts| scripts.push_back(tokens));
}

fn answer(model: &Model, options: &ChatOptions) -> ChatAnswer {
    model.chat(&ask(), options).unwrap().answer().unwrap()
}

#[test]
fn answers_keep_to_them() {
    let off = ChatOptions::default().reasoning(false);
    let answer = answer(model(), &bound(off));
    assert!(is_valid(&answer.text), "{answer:?}");
    assert_eq!((answer.reasoning.as_str(), answer.finish.reason), ("", ChatFinishReason::Stop));
    assert_eq!(answer.message.content(), Content::Text(&answer.text));
}

#[test]
fn they_begin_behind_reasoning() {
    for thought in ["Rain? {\"no\": 1}", ""] {
        begin(&format!("<think>{thought}</think>"));
        let answer = answer(model(), &bound(ChatOptions::default()));
        assert_eq!(answer.reasoning, thought);
        assert!(is_valid(&answer.text), "{answer:?}");
    }
    // What is reasoned is bounded, and ends nothing.
    begin("<think>");
    let options = bound(ChatOptions::default().reasoning_budget(5));
    let reasoned = answer(model(), &options);
    assert!(is_valid(&reasoned.text), "{reasoned:?}");
    assert_eq!(reasoned.finish.usage.reasoning_tokens, 5);
    let end = tokenizer().eos_ids()[0];
    let mut ends = bound(ChatOptions::default());
    ends.generate.sampling = Sampling::default().logit_bias(vec![(end, 100.0)]);
    begin("<think>Hm");
    let reasoned = answer(model(), &ends);
    assert_eq!(reasoned.finish.reason, ChatFinishReason::Length);
    assert!(reasoned.reasoning.len() > 2 && reasoned.text.is_empty(), "{reasoned:?}");
}

#[test]
fn the_first_token_says_whether_reasoning_begins() {
    let mut options = bound(ChatOptions::default());
    let opening = tokenizer().encode("<think>", false).unwrap()[0];
    options.generate.sampling = Sampling::default().logit_bias(vec![(opening, 100.0)]);
    options.reasoning_budget = Some(3);
    let reasoned = answer(model(), &options);
    assert!(reasoned.finish.usage.reasoning_tokens > 0 && is_valid(&reasoned.text), "{reasoned:?}");
    options.generate.sampling = Sampling::default().logit_bias(vec![(opening, -100.0)]);
    let at_once = answer(model(), &options);
    assert!(at_once.reasoning.is_empty() && is_valid(&at_once.text), "{at_once:?}");
}

#[test]
fn an_answer_calls_or_keeps_to_them() {
    for thought in ["", "<think>Rain?</think>"] {
        script(&format!("{thought}{CALL}"));
        let calls = answer(model(), &bound(options()));
        let [call] = &calls.calls[..] else { panic!("{calls:?}") };
        assert_eq!((call.name.as_str(), calls.text.as_str()), ("weather", ""));
        assert_eq!(calls.finish.reason, ChatFinishReason::ToolCalls);
        // Without a word on what comes, the model chooses among tokens that may begin either.
        for (bias, does_call) in [(100.0, true), (-100.0, false)] {
            let mut options = bound(options());
            let opening = tokenizer().encode("<tool_call>", false).unwrap();
            assert_eq!(opening.len(), 1);
            options.generate.sampling = Sampling::default().logit_bias(vec![(opening[0], bias)]);
            if thought.is_empty() {
                options = options.reasoning(false);
            } else {
                begin(thought);
            }
            let chosen = model().chat(&ask(), &options).unwrap();
            let events: Vec<_> = chosen.map(Result::unwrap).collect();
            let text = events.iter().filter_map(|event| match event {
                ChatEvent::Text { text } => Some(text.as_str()),
                _ => None,
            });
            let text: String = text.collect();
            let is_call = |event: &ChatEvent| {
                matches!(event, ChatEvent::CallStarted { .. } | ChatEvent::CallMalformed { .. })
            };
            assert_eq!(events.iter().any(is_call), does_call, "{events:?}");
            assert!(does_call || is_valid(&text), "{events:?}");
        }
    }
}

/// A model whose special tokens are Harmony's.
fn harmony() -> Model {
    let copy = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(folder("qwen2")).unwrap().map(Result::unwrap) {
        let mut bytes = std::fs::read(file.path()).unwrap();
        if file.file_name().to_str().is_some_and(|name| name.starts_with("tokenizer")) {
            let mut text = String::from_utf8(bytes).unwrap();
            for (own, harmonys) in [
                ("<|begin_of_text|>", "<|start|>"),
                ("<|start_header_id|>", "<|channel|>"),
                ("<|end_header_id|>", "<|message|>"),
                ("<|eot_id|>", "<|end|>"),
                ("<|pad|>", "<|call|>"),
            ] {
                text = text.replace(own, harmonys);
            }
            bytes = text.into_bytes();
        }
        std::fs::write(copy.path().join(file.file_name()), bytes).unwrap();
    }
    let template = "{% if false %}<|channel|>commentary<|message|>{% endif %}{% for m in messages %}\
        {{ m.content }}{% endfor %}{{ tools }}<|start|>assistant";
    Model::open(copy.path(), &LoadOptions::default().chat_template(template)).unwrap()
}

#[test]
fn messages_with_headers_call_or_keep_to_them() {
    let model = harmony();
    // What is certain is not in the script: what begins headers, and the role behind reasoning.
    let said = |text: &str, options: ChatOptions| {
        let tokens = model.inner.tokenizer.encode(text, false).unwrap();
        SCRIPTS.with_borrow_mut(|scripts| scripts.push_back(tokens));
        model.chat(&ask(), &bound(options)).unwrap().answer()
    };
    let analysis = "analysis<|message|>Rain?<|end|>";
    let call = "commentary to=functions.weather<|message|>{\"city\": \"Oslo\"}<|call|><|im_end|>";
    for (before, thought) in [("", ""), (analysis, "Rain?")] {
        let called = said(&format!("{before}{call}"), options()).unwrap();
        let [call] = &called.calls[..] else { panic!("{called:?}") };
        assert_eq!((call.name.as_str(), &call.arguments), ("weather", &json!({"city": "Oslo"})));
        assert_eq!((called.reasoning.as_str(), called.text.as_str()), (thought, ""));
        let kept = said(&format!("{before}final<|message|>"), options()).unwrap();
        assert!(is_valid(&kept.text) && kept.calls.is_empty() && kept.reasoning == thought, "{kept:?}");
    }
    // Without tools, all of the header is certain behind reasoning.
    let kept = said(analysis, ChatOptions::default()).unwrap();
    assert!(is_valid(&kept.text) && kept.reasoning == "Rain?", "{kept:?}");
    // Reasoning that another header ends goes on with that one.
    let other = said("analysis<|message|>Rain?<|start|>final<|message|>", options()).unwrap();
    assert!(is_valid(&other.text) && other.reasoning == "Rain?", "{other:?}");
    // What is no header is text, which would not keep to the constraint.
    let error = said("Hello\n", options()).unwrap_err();
    assert_eq!(error.context(), [("field", "response_format".to_owned())]);
}

#[test]
fn the_answer_behind_calls_keeps_to_them() {
    script(CALL);
    begin("<think></think>");
    let mut options = bound(ChatOptions::default());
    let opening = tokenizer().encode("<tool_call>", false).unwrap()[0];
    options.generate.sampling = Sampling::default().logit_bias(vec![(opening, -100.0)]);
    let tools = Toolbox::default().tool(weather(), |_| Ok("rain".into()));
    let mut chat = model().chat_with_tools(ask(), options, tools).unwrap();
    let [_, call, result, last] = chat.run().unwrap() else { panic!("{:?}", chat.messages()) };
    assert_eq!((call.tool_calls().len(), result.role()), (1, "tool"));
    assert!(matches!(last.content(), Content::Text(text) if is_valid(text)), "{last:?}");
}

#[test]
fn markup_within_them_is_text() {
    let mut options = ChatOptions::default().reasoning(false);
    let said = "<think>no</think> <tool_call>{\"name\": \"weather\", \"arguments\": {}}</tool_call>";
    let expression = said.replace('{', "[{]").replace('}', "[}]");
    options.generate = at_most(200).constraint(Constraint::Regex(expression));
    let answer = answer(model(), &options);
    assert_eq!((answer.text.as_str(), answer.calls.len(), answer.reasoning.as_str()), (said, 0, ""));
}

#[test]
fn what_cannot_be_kept_is_refused() {
    let refused = |messages: &[Message], options: &ChatOptions| {
        let error = model().chat(messages, options).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        error.context()[0].1.clone()
    };
    // Its calls are JSON, which may be the form, too.
    let llama = "{\"name\": function name, \"parameters\": {% for m in messages %}{{ m.content }}{% endfor %}{{ tools }}";
    let error = load(llama).chat(&ask(), &bound(options())).err().unwrap();
    assert_eq!(error.context()[0].1, "tools", "{error}");
    // No token begins these calls, and other markup may come in front of those.
    let action = "Action:\\n```json{% for m in messages %}{{ m.content }}{% endfor %}{{ tools }}";
    let cohere = "<|START_ACTION|>{% for m in messages %}{{ m.content }}{% endfor %}{{ tools }}";
    for template in [action, cohere] {
        let error = load(template).chat(&ask(), &bound(options())).err().unwrap();
        assert_eq!(error.context()[0].1, "tools", "{error}");
    }
    let mut begun = ask();
    begun.push(Message::assistant("{"));
    assert_eq!(refused(&begun, &bound(ChatOptions::default())), "messages");
    let mut bad = ChatOptions::default();
    bad.generate.constraint = Some(Constraint::Regex("(".into()));
    assert_eq!(refused(&ask(), &bad), "regex");
}

#[test]
fn requests_ask_for_them() {
    let json = r#"{"messages": [{"role": "user", "content": "Rain?"}], "max_tokens": 80, "response_format":
        {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": ["yes", "no"]}}}}"#;
    let request = ChatRequest::from_json(json).unwrap();
    let options = request.options.reasoning(false);
    let answer = model().chat(&request.messages, &options).unwrap().answer().unwrap();
    assert!(["\"yes\"", "\"no\""].contains(&answer.text.as_str()), "{answer:?}");
}
