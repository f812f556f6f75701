//! Do templates say what transformers makes of them?

use sha2::{Digest, Sha256};
use skulk::chat::{ChatRenderer, ChatTemplate, Json, Message, RenderOptions, TemplateOptions, Tool};
use skulk::{ErrorKind, Profile, open_checkpoint};

use super::{fields, items, messages, suites, template, then, tokenizer};
use crate::fixtures::{checkpoints, ids, json, templates};

fn options(conversation: &Json, tools: &[Tool]) -> TemplateOptions {
    let mut options = TemplateOptions::default().now(then());
    for (name, value) in fields(conversation) {
        options = match (name.as_str(), value) {
            ("messages", _) => options,
            ("tools", _) => options.tools(tools.to_vec()),
            ("documents", documents) => options.documents(items(documents).to_vec()),
            ("add_generation_prompt", Json::Bool(prompt)) => options.add_generation_prompt(*prompt),
            (name, value) => options.variable(name, value.clone()),
        };
    }
    options
}

fn digest(text: &str) -> Json {
    let hash: String = Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
    Json::Array(vec![hash[..32].into(), (text.chars().count() as i64).into()])
}

/// 70 templates of models that people use, over 28 conversations.
#[test]
fn templates_of_models_render_as_in_transformers() {
    let Some(folder) = templates() else { return };
    for suite in suites("templates.json") {
        let tools: Vec<Tool> = items(suite.get("tools").unwrap())
            .iter()
            .map(|tool| Tool::try_from(tool.clone()).unwrap())
            .collect();
        let (mut compared, mut wrong) = (0, Vec::new());
        for (name, expected) in fields(suite.get("templates").unwrap()) {
            let source = std::fs::read_to_string(folder.join(name)).unwrap();
            let mut template = ChatTemplate::new(source).unwrap();
            for (name, text) in fields(suite.get("special_tokens").unwrap()) {
                template = template.special_token(name, text.as_str().unwrap());
            }
            for (case, conversation) in fields(suite.get("conversations").unwrap()) {
                let said = messages(conversation.get("messages").unwrap()).unwrap();
                let rendered = template.render(&said, &options(conversation, &tools));
                let expected = expected.get("cases").unwrap().get(case).unwrap();
                let right = match &rendered {
                    Ok(text) => digest(text) == *expected,
                    Err(error) => {
                        let typed =
                            [ErrorKind::ChatInvalid, ErrorKind::TemplateInvalid].contains(&error.kind());
                        typed
                            && error.hint().is_some()
                            && *expected.get("error").unwrap_or(&Json::Null) == true.into()
                    }
                };
                compared += 1;
                if !right {
                    wrong.push(format!("{name} {case}: {:?}", rendered.err()));
                }
            }
        }
        assert!(wrong.is_empty(), "{} of {compared} differ:\n{}", wrong.len(), wrong.join("\n"));
        assert!(compared >= 1960);
    }
}

/// The fixtures' own templates, and tokens.
#[test]
fn chats_of_checkpoints_have_the_tokens_of_transformers() {
    let mut compared = 0;
    for folder in checkpoints() {
        let Some(template) = template(&folder) else { continue };
        let tokenizer = tokenizer(&folder);
        let renderer = ChatRenderer::new(Profile::default(), Some(template), tokenizer).unwrap();
        for prompt in json(&folder.join("reference.json"))["prompts"].as_array().unwrap() {
            let Some(said) = prompt.get("messages").filter(|said| said.is_array()) else { continue };
            let said = messages(&said.clone().into()).unwrap();
            let rendered = renderer.render(&said, &RenderOptions::default().now(then())).unwrap();
            assert_eq!(rendered.text, prompt["text"].as_str().unwrap(), "{folder:?}");
            assert_eq!(rendered.tokens, ids(&prompt["ids"]), "{folder:?}");
            compared += 1;
        }
    }
    println!("{compared} chats compared");
    assert!(compared >= 6, "{compared}");
}

/// Of content in parts a template gets what it takes: texts become one where it would print the objects or fail.
#[test]
fn parts_are_text_where_templates_take_text() {
    let folder = crate::fixtures::path("llama");
    let printed = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
    let added = "{% for m in messages %}{{ '<' + m.role + '>' + m.content }}{% endfor %}";
    let written = "{% for m in messages %}<{{ m.role }}>{{ m.content | tojson }}{% endfor %}";
    let taken = "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}\
        {% for part in m.content %}{{ part.text if part.type == 'text' else '[' + part.type + ']' }}{% endfor %}\
        {% endif %}{% endfor %}";
    let rendered = |source: &str, content: &str| {
        let template = ChatTemplate::new(source).unwrap();
        let renderer = ChatRenderer::new(Profile::default(), Some(template), tokenizer(&folder)).unwrap();
        let said = Message::from_json(&format!(r#"{{"role": "user", "content": {content}}}"#)).unwrap();
        renderer.render(&[said], &RenderOptions::default()).map(|prompt| prompt.text)
    };
    let texts = r#"[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]"#;
    assert_eq!(rendered(printed, texts).unwrap(), "<user>a\nb");
    assert_eq!(rendered(added, texts).unwrap(), "<user>a\nb");
    assert_eq!(rendered(written, texts).unwrap(), r#"<user>"a\nb""#);
    assert_eq!(rendered(taken, texts).unwrap(), "<user>ab");
    assert_eq!(rendered(printed, "[]").unwrap(), "<user>");
    // What a template has a place for reaches it, but for what no prompt can hold.
    let thought = r#"[{"type": "thinking", "thinking": "x"}, {"type": "image"}]"#;
    assert_eq!(rendered(taken, thought).unwrap(), "<user>[thinking][image]");
    let picture = r#"[{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:"}}]"#;
    for (source, content) in [(taken, picture), (printed, picture), (added, thought)] {
        let error = rendered(source, content).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ChatInvalid);
        let field = error.context().iter().find(|(key, _)| *key == "field").unwrap();
        let at = usize::from(content == picture);
        assert_eq!(field.1, format!("messages[0].content[{at}].type"), "{error}");
    }
}

#[test]
fn templates_are_found_where_transformers_keeps_them() {
    let source = |name: &str| format!("{name}{{{{ bos_token }}}}{{{{ eos_token }}}}");
    let folder = crate::fixtures::copied(&crate::fixtures::path("llama"));
    let file = folder.path().join("tokenizer_config.json");
    let mut config = json(&file);
    config["chat_template"] = serde_json::json!([
        {"name": "default", "template": source("config")}, {"name": "tool_use", "template": source("tools")}]);
    config["eos_token"] = serde_json::json!({"content": "<|eot_id|>"});
    std::fs::write(&file, config.to_string()).unwrap();
    let tool = Tool::new("f", "", Json::Object(Vec::new())).unwrap();
    let render = |options: &TemplateOptions| template(folder.path()).unwrap().render(&[], options);
    let (plain, tools) = (TemplateOptions::default(), TemplateOptions::default().tools([tool]));
    let ends = "<|begin_of_text|><|eot_id|>";
    assert_eq!(render(&plain).unwrap(), format!("config{ends}"));
    assert_eq!(render(&tools).unwrap(), format!("tools{ends}"));
    std::fs::write(folder.path().join("chat_template.jinja"), source("file")).unwrap();
    assert_eq!(render(&plain).unwrap(), format!("file{ends}"));
    assert_eq!(render(&tools).unwrap(), format!("file{ends}"));
    std::fs::create_dir(folder.path().join("additional_chat_templates")).unwrap();
    std::fs::write(folder.path().join("additional_chat_templates/tool_use.jinja"), source("more")).unwrap();
    assert_eq!(render(&tools).unwrap(), format!("more{ends}"));
    let error = render(&plain.template("rag")).unwrap_err();
    assert_eq!((error.kind(), error.context()[0].1.as_str()), (ErrorKind::InvalidArgument, "template"));
    std::fs::write(folder.path().join("chat_template.jinja"), "{% for %}").unwrap();
    let error = ChatTemplate::from_checkpoint(&*open_checkpoint(folder.path()).unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TemplateInvalid);
    assert!(
        error.context().iter().any(|(key, value)| *key == "file" && value.ends_with("chat_template.jinja"))
    );
}
