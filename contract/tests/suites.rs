//! Does Rust give what all languages are to give? The cases of `tests/suites` that they share.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value, json};
use skulk::{CancelToken, Cluster, Model, ModelCard, Node, Prompt, Session, TokenId, VindexReader};
use skulk_contract::options::{GenerateOptions, LoadOptions, PlanOptions, Spelling};
use skulk_contract::{Failure, TensorInfo, VindexBands};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Each case, with what is expected of it, from the project's suite and that of `SKULK_EXTRA_SUITES`.
fn each(name: &str, observe: impl Fn(&Value) -> Value) {
    let own = root().join("tests/suites").join(name);
    let extra = std::env::var_os("SKULK_EXTRA_SUITES").map(|folder| PathBuf::from(folder).join(name));
    for path in [own].into_iter().chain(extra.filter(|path| path.exists())) {
        let suite: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        for case in suite["cases"].as_array().unwrap() {
            assert_eq!(observe(case), case["expected"], "{}: {}", path.display(), case["name"]);
        }
    }
}

fn given(options: &Value) -> Map<String, Value> {
    options.as_object().cloned().unwrap_or_default()
}

fn load(path: &Value, options: &Value) -> skulk::Result<Model> {
    let mut options = given(options);
    options.entry("threads").or_insert(json!(1));
    Model::open(root().join(path.as_str().unwrap()), &LoadOptions::read(options, Spelling::Camel)?)
}

fn generate(session: &Session, case: &Value, cancel: &CancelToken) -> skulk::Result<skulk::Generation> {
    let (options, append) = GenerateOptions::read(given(&case["options"]), Spelling::Camel)?;
    let prompt = match &case["prompt"] {
        Value::String(text) if append => Prompt::Append(text.clone()),
        Value::String(text) => Prompt::Text(text.clone()),
        ids => Prompt::Tokens(
            serde_json::from_value::<Vec<u32>>(ids.clone()).unwrap().into_iter().map(TokenId).collect(),
        ),
    };
    session.generate(prompt, options.cancel(cancel.clone()))
}

fn turn(session: &Session, case: &Value) -> Value {
    let cancel = CancelToken::new();
    let (mut events, mut text) = (vec![], String::new());
    let kept = |events: &[Value]| {
        let n = usize::try_from(case["cancelAfter"].as_u64().unwrap()).unwrap();
        events[..n.min(events.len())].to_vec()
    };
    for event in generate(session, case, &cancel).unwrap() {
        match event {
            Ok(event) => {
                text.push_str(&event.text);
                let mut event = serde_json::to_value(&event).unwrap();
                if let Some(finish) = event["finish"].as_object_mut() {
                    finish.remove("timings");
                }
                events.push(event);
            }
            Err(error) => return json!({"error": error.code(), "events": kept(&events)}),
        }
        if case["cancelAfter"] == json!(events.len()) {
            cancel.cancel();
            cancel.cancel();
        }
    }
    json!({"text": text, "events": events})
}

#[test]
fn models_write_what_they_write_in_every_language() {
    each("generation.json", |case| {
        let session = load(&case["model"], &case["load"]).unwrap().session().unwrap();
        case["turns"].as_array().unwrap().iter().map(|case| turn(&session, case)).collect()
    });
}

/// What greedy texts are compared with is not this library's own.
#[test]
fn greedy_texts_are_those_of_transformers() {
    let read =
        |path: &str| -> Value { serde_json::from_slice(&std::fs::read(root().join(path)).unwrap()).unwrap() };
    let reference = read("tests/fixtures/models/stories260K/reference.json");
    let suite = read("tests/suites/generation.json");
    let named = |case: &&Value| case["name"] == "greedy_as_transformers";
    let case = suite["cases"].as_array().unwrap().iter().find(named).unwrap();
    let expected = &reference["prompts"][0];
    assert_eq!(case["turns"][0]["prompt"], expected["text"]);
    let events = case["expected"][0]["events"].as_array().unwrap();
    let ids: Vec<_> = events.iter().filter_map(|event| event["token"].get("id")).collect();
    assert!(ids.iter().copied().eq(expected["greedy"]["ids"].as_array().unwrap()), "{ids:?}");
}

fn failing(case: &Value) -> skulk::Result<()> {
    let path = || root().join(case["path"].as_str().unwrap());
    let options = &case["options"];
    match case["call"].as_str().unwrap() {
        "load" => load(&case["path"], options).map(drop),
        "generate" => {
            let session = load(&case["path"], &case["load"])?.session()?;
            generate(&session, case, &CancelToken::new())?.output().map(drop)
        }
        "card" => ModelCard::from_toml(case["toml"].as_str().unwrap()).map(drop),
        "vindex" => VindexReader::open(path()).map(drop),
        "plan" => {
            let request = PlanOptions::read(given(options), Spelling::Camel)?;
            request.place_checkpoint(path(), &Cluster::new(vec![Node::new("a")], vec![])).map(drop)
        }
        other => panic!("there is no such call: {other}"),
    }
}

#[test]
fn what_is_refused_is_refused_alike_in_every_language() {
    each("errors.json", |case| {
        let error = failing(case).unwrap_err();
        let failure = Failure::of(&error, Spelling::Camel);
        let places: Vec<_> = failure.context.keys().collect();
        json!({
            "code": failure.code, "kind": failure.kind, "retry": failure.retry,
            "field": failure.context.get("field").map(|name| Spelling::Camel.of(name)), "places": places,
        })
    });
}

#[test]
fn folders_hold_the_same_in_every_language() {
    each("vindex.json", |case| {
        let reader = Arc::new(VindexReader::open(root().join(case["path"].as_str().unwrap())).unwrap());
        let browser = reader.browse(1).unwrap();
        let mut query = vec![0.0; reader.index().hidden_size];
        query[0] = 1.0;
        let mut tensors = serde_json::to_value(TensorInfo::all(&reader)).unwrap();
        for tensor in tensors.as_array_mut().unwrap() {
            let file = Path::new(tensor["file"].as_str().unwrap()).file_name().unwrap().to_owned();
            tensor["file"] = json!(file.to_str());
        }
        json!({
            "index": reader.index(),
            "layers": reader.index().feature_layers(),
            "lacks": reader.lacks(),
            "bands": VindexBands::from(reader.index().bands()),
            "tensors": tensors,
            "parts": reader.parts().unwrap(),
            "feature": browser.feature(0, 0).unwrap(),
            "select": browser.select(&skulk::browse::SelectOptions::default().limit(3)).unwrap(),
            "nearest": browser.nearest_in(browser.layers(), &query, 2, &CancelToken::new()).unwrap(),
        })
    });
}
