//! Do cards resolve to the profiles of the reference?

use serde_json::{Value, json};
use skulk::ModelCard;
use skulk::card::{Profile, ProfileHints, ReasoningEffort, ReasoningRequest, RequestHints, is_gemma4_family};

use crate::suites::cases::expect;
use crate::suites::{cases, each, suites};

#[test]
fn cards_that_ship_with_the_reference_resolve_as_there() {
    let cards = cases("cards.json");
    let tokenizer = ProfileHints::default().tokenizer_tools(true).tokenizer_thinking(true);
    let request = ProfileHints::default().request(RequestHints::default().has_messages(true).has_tools(true));
    each(&cases("profiles_builtin.json"), |case| {
        let found = cards.iter().find(|card| card["file"] == case["file"]);
        let card = &found.ok_or("no card of this file in any suite")?["card"];
        let card = ModelCard::from_value(card).map_err(|e| e.to_string())?;
        let id = string(&case["modelId"]);
        let variants = [
            ("profile", ProfileHints::default()),
            ("profileTokenizerToolsThinking", tokenizer),
            ("profileWithToolsRequest", request),
        ];
        for (name, hints) in variants {
            expect(name, &case[name], &json!(Profile::resolve(&id, Some(&card), &hints)))?;
        }
        expect("profile", &case["profile"], &json!(card.profile()))?;
        expect("isGemma4Family", &case["isGemma4Family"], &json!(is_gemma4_family(&id, Some(&card))))
    });
}

#[test]
fn every_rule_resolves_as_in_the_reference() {
    each(&cases("profiles_synthetic.json"), |case| {
        let card = (!case["card"].is_null()).then(|| ModelCard::from_value(&case["card"]));
        let card = card.transpose().map_err(|e| e.to_string())?;
        let id = string(&case["modelId"]);
        let flag = |section: &str, key: &str| case[section][key].as_bool().unwrap_or(false);
        let mut hints = ProfileHints::default()
            .tokenizer_tools(flag("tokenizer", "hasToolCalling"))
            .tokenizer_thinking(flag("tokenizer", "hasThinking"));
        if case["taskParams"].is_object() {
            let request = RequestHints::default()
                .has_messages(flag("taskParams", "chatTemplateMessagesPresent"))
                .has_tools(flag("taskParams", "toolsPresent"));
            hints = hints.request(request);
        }
        expect("profile", &case["profile"], &json!(Profile::resolve(&id, card.as_ref(), &hints)))?;
        expect("isGemma4Family", &case["isGemma4Family"], &json!(is_gemma4_family(&id, card.as_ref())))
    });
}

#[test]
fn requests_are_normalised_as_in_the_reference() {
    for suite in suites("reasoning_params.json") {
        let profiles = suite["profiles"].as_object().unwrap();
        each(suite["cases"].as_array().unwrap(), |case| {
            let profile = &profiles[case["profile"].as_str().ok_or("no profile")?];
            let profile = if profile.is_null() { Profile::permissive() } else { reasoning_of(profile) };
            let mut request = ReasoningRequest::default();
            request.effort = named(&case["reasoningEffort"], ReasoningEffort::ALL);
            request.enable_thinking = case["enableThinking"].as_bool();
            let result = profile.reasoning(request);
            expect("outEffort", &case["outEffort"], &json!(result.effort))?;
            expect("outEnableThinking", &case["outEnableThinking"], &json!(result.enable_thinking))
        });
    }
}

/// The part of a profile that requests are read by.
fn reasoning_of(json: &Value) -> Profile {
    let mut profile = Profile::default();
    profile.supports_thinking = json["supportsThinking"].as_bool().unwrap();
    profile.supports_thinking_toggle = json["supportsThinkingToggle"].as_bool().unwrap();
    profile.default_reasoning_effort = named(&json["defaultReasoningEffort"], ReasoningEffort::ALL).unwrap();
    profile.disabled_reasoning_effort =
        named(&json["disabledReasoningEffort"], ReasoningEffort::ALL).unwrap();
    profile
}

/// The value of a closed set that serialises to this string; `None` for null.
fn named<T: Copy + serde::Serialize>(json: &Value, all: &[T]) -> Option<T> {
    let found = all.iter().find(|value| serde_json::to_value(value).unwrap() == *json);
    assert!(found.is_some() || json.is_null(), "{json} is not in the set");
    found.copied()
}

fn string(json: &Value) -> String {
    json.as_str().unwrap_or_default().to_owned()
}
