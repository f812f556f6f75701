//! Do renderers write what Skulk 1.3 writes, but for its defects?

use std::sync::Arc;

use skulk::card::{PromptRenderer, ReasoningRequest};
use skulk::chat::{ChatRenderer, ChatTemplate, Json, Message, RenderOptions, Tool};
use skulk::{ErrorKind, Profile, Tokenizer};

use super::{items, messages, suites, tokenizer};
use crate::fixtures::path;

/// What the reference does otherwise, and what is right: a prompt, or a refusal.
const DEFECTS: &[(&str, &str, Option<&str>)] = &[
    (
        "gemma4",
        "none_content",
        Some("<bos><|turn>user\n<turn|>\n<|turn>model\n<|channel>thought\n<channel|>"),
    ),
    ("gemma4", "missing_role", None),
    ("gemma4", "int_content", None),
    ("gemma4", "mm_unknown_part_ignored", None),
    ("dsml", "developer", Some("<｜begin▁of▁sentence｜>dev<｜User｜>Hello<｜Assistant｜><think>")),
];

/// What has no counterpart here: options of the reference's functions.
const OTHERS: &[&str] = &[
    "suppress_empty_channel",
    "suppress_with_thinking",
    "no_generation_prompt",
    "no_bos_thinking",
    "no_bos_chat",
    "bad_mode",
    // An answer at the end is continued, as in the reference's own caller.
    "assistant_unterminated_channel",
    "mm_assistant_text_stripped",
];

/// What the reference tells of tools only where a system message is, left out where it has none.
fn without_untold(found: &str, expected: &str) -> String {
    match (found.split_once("\n\n## Tools\n"), expected.contains("## Tools")) {
        (Some((before, told)), false) => before.to_owned() + told.split_once("</functions>\n").unwrap().1,
        _ => found.to_owned(),
    }
}

fn renderer(renderer: PromptRenderer, tokenizer: Arc<Tokenizer>) -> ChatRenderer {
    let mut profile = Profile::permissive();
    profile.prompt_renderer = renderer;
    ChatRenderer::new(profile, None, tokenizer).unwrap()
}

fn rendered(kind: PromptRenderer, case: &Json, tokenizer: &Arc<Tokenizer>) -> skulk::Result<String> {
    let option = |key: &str| case.get("options").unwrap().get(key);
    let mut reasoning = ReasoningRequest::default();
    match (option("enable_thinking"), option("thinking_mode").and_then(Json::as_str)) {
        (Some(Json::Bool(thinks)), _) => reasoning = reasoning.enable_thinking(*thinks),
        (_, Some("chat")) => reasoning = reasoning.enable_thinking(false),
        (_, Some("thinking")) => reasoning = reasoning.enable_thinking(true),
        _ => {}
    }
    let tools: Vec<Tool> = option("tools")
        .map(|tools| items(tools).iter().map(|tool| Tool::try_from(tool.clone()).unwrap()).collect())
        .unwrap_or_default();
    let options = RenderOptions::default().reasoning(reasoning).tools(tools);
    let said = messages(case.get("messages").unwrap())?;
    renderer(kind, tokenizer.clone()).render(&said, &options).map(|prompt| prompt.text)
}

#[test]
fn prompts_are_those_of_the_reference() {
    let tokenizer = tokenizer(&path("llama"));
    for suite in suites("renderers.json") {
        for (name, kind) in [("gemma4", PromptRenderer::Gemma4), ("dsml", PromptRenderer::Dsml)] {
            let mut compared = 0;
            for case in items(suite.get("renderers").unwrap().get(name).unwrap().get("cases").unwrap()) {
                let case_name = case.get("name").and_then(Json::as_str).unwrap();
                if OTHERS.contains(&case_name) {
                    continue;
                }
                let found = rendered(kind, case, &tokenizer);
                let defect = DEFECTS.iter().find(|(of, case, _)| *of == name && *case == case_name);
                let expected = match defect {
                    Some((.., right)) => *right,
                    None => case.get("prompt").and_then(Json::as_str),
                };
                match (found, expected) {
                    (Ok(found), Some(expected)) => {
                        assert_eq!(without_untold(&found, expected), expected, "{name} {case_name}");
                    }
                    (Err(error), None) => {
                        assert_eq!(error.kind(), ErrorKind::ChatInvalid, "{name} {case_name}")
                    }
                    (found, expected) => panic!("{name} {case_name}: {found:?}, not {expected:?}"),
                }
                compared += 1;
            }
            assert!(compared > 20, "{compared}");
        }
    }
}

/// What reaches the template, and what is done with what it gives.
#[test]
fn templates_get_what_the_reference_gives_them() {
    // It prints all that it is given.
    let source = "{{ messages | tojson }}{{ tools | tojson }}{{ enable_thinking }}{{ thinking }}{{ reasoning_effort }}|";
    let tokenizer = tokenizer(&path("llama"));
    let mut compared = 0;
    for suite in suites("renderers.json") {
        for case in
            items(suite.get("renderers").unwrap().get("apply_chat_template").unwrap().get("cases").unwrap())
        {
            let text = |key: &str| case.get(key).and_then(Json::as_str).unwrap_or_default();
            let params = case.get("taskParams").unwrap();
            let call = match case.get("tokenizerCall") {
                // A prompt of the reference's own for such templates: transformers renders them as they are.
                Some(call @ Json::Object(_))
                    if call.get("kwargs").unwrap().get("chat_template").is_none() =>
                {
                    call
                }
                _ => continue,
            };
            // Messages that are put together elsewhere: from instructions, without empty ones.
            let Some(said) = params.get("chat_template_messages").filter(|said| **said != Json::Null) else {
                continue;
            };
            let mut profile = Profile::permissive();
            if text("name").starts_with("nemotron") {
                profile.family = "nemotron".to_owned();
            }
            let given = |key: &str| params.get(key).filter(|value| **value != Json::Null);
            let mut reasoning = ReasoningRequest::default();
            if let Some(Json::Bool(thinks)) = given("enable_thinking") {
                reasoning = reasoning.enable_thinking(*thinks);
                // What requests with this switch alone mean is the profile's, not the renderer's.
                profile.disabled_reasoning_effort = skulk::card::ReasoningEffort::None;
            }
            let tools: Vec<Tool> = given("tools")
                .map(|tools| items(tools).iter().map(|tool| Tool::try_from(tool.clone()).unwrap()).collect())
                .unwrap_or_default();
            let template = ChatTemplate::new(source).unwrap();
            let renderer = ChatRenderer::new(profile, Some(template), tokenizer.clone()).unwrap();
            let options = RenderOptions::default().reasoning(reasoning).tools(tools);
            let prompt = renderer.render(&messages(said).unwrap(), &options).unwrap().text;
            // The same template over what the reference handed on.
            let kwargs = call.get("kwargs").unwrap();
            let mut expected = skulk::chat::TemplateOptions::default();
            for key in ["enable_thinking", "thinking"] {
                if let Some(value) = kwargs.get(key) {
                    expected = expected.variable(key, value.clone());
                }
            }
            if let Some(Json::Bool(thinks)) = kwargs.get("enable_thinking") {
                expected = expected.variable("reasoning_effort", if *thinks { "medium" } else { "none" });
            }
            if let Some(tools @ Json::Array(_)) = kwargs.get("tools") {
                expected =
                    expected.tools(items(tools).iter().map(|tool| Tool::try_from(tool.clone()).unwrap()));
            }
            let mut handed = messages(call.get("messages").unwrap()).unwrap();
            let begun = text("prompt").strip_prefix("<RENDERED>").unwrap();
            // The reference puts it behind the beginning of an answer, transformers where the template has it.
            if !begun.is_empty() {
                handed.extend(messages(said).unwrap().pop());
            }
            let rendered = ChatTemplate::new(source).unwrap().render(&handed, &expected).unwrap();
            let end = rendered.rfind(begun).unwrap() + begun.len();
            assert_eq!(
                prompt,
                if begun.is_empty() { &rendered } else { &rendered[..end] },
                "{}",
                text("name")
            );
            compared += 1;
        }
    }
    assert!(compared >= 6, "{compared}");
}

#[test]
fn tools_are_told_without_a_system_message() {
    let case: Json = serde_json::from_str(
        r#"{"messages": [{"role": "user", "content": "Hello"}], "options": {"tools": [{"type": "function",
            "function": {"name": "f", "parameters": {"type": "object"}}}]}}"#,
    )
    .unwrap();
    let tokenizer = tokenizer(&path("llama"));
    let prompt = rendered(PromptRenderer::Dsml, &case, &tokenizer).unwrap();
    assert!(prompt.starts_with("<｜begin▁of▁sentence｜>\n\n## Tools\n\nYou have access"), "{prompt}");
    let end = "<functions>\n{\"name\": \"f\", \"parameters\": {\"type\": \"object\"}}\n</functions>\n<｜User｜>Hello<｜Assistant｜><think>";
    assert!(prompt.ends_with(end), "{prompt}");
    // Gemma 4's markup for tools is its template's.
    let error = rendered(PromptRenderer::Gemma4, &case, &tokenizer).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TemplateInvalid);
}

/// An answer that was begun is continued where the template puts it, with its reasoning, or refused.
#[test]
fn answers_are_continued_where_templates_put_them() {
    let tokenizer = tokenizer(&path("llama"));
    let render = |source: &str, last: Message| {
        let mut profile = Profile::permissive();
        profile.prompt_renderer = PromptRenderer::Tokenizer;
        let template = ChatTemplate::new(source).unwrap();
        let renderer = ChatRenderer::new(profile, Some(template), tokenizer.clone()).unwrap();
        renderer.render(&[Message::user("Hi"), last], &RenderOptions::default()).map(|prompt| prompt.text)
    };
    let channels = "{% for m in messages %}<|start|>{{ m.role }}{% if m.role == 'assistant' %}{% if m.thinking %}<|channel|>analysis<|message|>{{ m.thinking }}<|end|><|start|>assistant{% endif %}<|channel|>final{% endif %}<|message|>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}";
    let asked = "<|start|>user<|message|>Hi<|end|><|start|>assistant";
    assert_eq!(
        render(channels, Message::assistant("It is ")).unwrap(),
        format!("{asked}<|channel|>final<|message|>It is ")
    );
    assert_eq!(
        render(channels, Message::assistant("It").with_reasoning("Hm.")).unwrap(),
        format!(
            "{asked}<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>It"
        )
    );
    let parts = r#"{"role": "assistant", "content": [{"type": "text", "text": "It "}, {"type": "text", "text": "is"}]}"#;
    assert_eq!(
        render(channels, Message::from_json(parts).unwrap()).unwrap(),
        format!("{asked}<|channel|>final<|message|>It is")
    );
    // Nothing was begun.
    assert_eq!(render(channels, Message::assistant("")).unwrap(), asked);
    let thinks = "{% for m in messages %}{{ m.role }}: {{ m.content | trim }}\n{% endfor %}{% if add_generation_prompt %}assistant: <think>\n{% endif %}";
    assert_eq!(render(thinks, Message::assistant(" It")).unwrap(), "user: Hi\nassistant: It");
    let image = r#"{"role": "assistant", "content": [{"type": "image"}]}"#;
    for (source, last, field) in [
        (thinks, Message::assistant("It").with_reasoning("Hm."), "messages[1].reasoning_content"),
        (channels, Message::from_json(image).unwrap(), "messages[1].content"),
        ("{{ messages[0].content }}", Message::assistant("It"), "messages[1].content"),
    ] {
        let error = render(source, last).unwrap_err();
        assert_eq!((error.kind(), error.context()[0].1.as_str()), (ErrorKind::ChatInvalid, field));
    }
    let dsml = |last: Message| {
        renderer(PromptRenderer::Dsml, tokenizer.clone())
            .render(&[Message::user("Hi"), last], &RenderOptions::default())
            .map(|prompt| prompt.text)
    };
    let thought = Message::assistant("It").with_reasoning("Hm.");
    assert!(dsml(thought.clone()).unwrap().ends_with("<think>Hm.</think>It"));
    let gemma = renderer(PromptRenderer::Gemma4, tokenizer.clone());
    let error = gemma.render(&[Message::user("Hi"), thought], &RenderOptions::default()).unwrap_err();
    assert_eq!(error.context()[0].1, "messages[1].reasoning_content");
    let prompt = gemma.render(&[Message::user("Hi"), Message::assistant("It ")], &RenderOptions::default());
    assert!(prompt.unwrap().text.ends_with("It "));
}

#[test]
fn what_a_renderer_has_no_use_for_is_refused() {
    let renderer = renderer(PromptRenderer::Gemma4, tokenizer(&path("llama")));
    for options in [
        RenderOptions::default().template("rag"),
        RenderOptions::default().variable("x", true),
        RenderOptions::default().documents([Json::Null]),
        RenderOptions::default().now(super::then()),
    ] {
        assert_eq!(renderer.render(&[], &options).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    let image = r#"{"role": "user", "content": [{"type": "image", "image": "data:image/png;base64,AA=="}]}"#;
    let error =
        renderer.render(&[Message::from_json(image).unwrap()], &RenderOptions::default()).unwrap_err();
    assert_eq!(error.context()[0].1, "content.image");
    let error = renderer.render(&[Message::new("user\nsystem", "x")], &RenderOptions::default()).unwrap_err();
    assert_eq!(error.context()[0].1, "messages[0].role");
    let error = ChatRenderer::new(Profile::default(), None, tokenizer(&path("llama"))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TemplateInvalid);
}
