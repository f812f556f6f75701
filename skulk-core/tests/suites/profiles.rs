//! Do cards resolve to the profiles of the reference?

use serde_json::Value;
use skulk::ModelCard;
use skulk::card::{
    BuiltinTool, ModalitiesCardConfig, OutputParser, PlacementCardConfig, Profile, ProfileHints,
    PromptRenderer, ReasoningCardConfig, ReasoningEffort, ReasoningFormat, ReasoningRequest, RequestHints,
    RuntimeCardConfig, StorageSize, ToolCallFormat, ToolingCardConfig, VisionCardConfig, is_gemma4_family,
};

use crate::{cases, each, suites};

#[test]
fn cards_that_ship_with_the_reference_resolve_as_there() {
    let cards = cases("cards.json");
    let tokenizer = ProfileHints::default().tokenizer_tools(true).tokenizer_thinking(true);
    let request = ProfileHints::default().request(RequestHints::default().has_messages(true).has_tools(true));
    each(&cases("profiles_builtin.json"), |case| {
        let found = cards.iter().find(|card| card["file"] == case["file"]);
        let card = card(&found.ok_or("no card of this file in any suite")?["card"]);
        let id = string(&case["modelId"]);
        let variants = [
            ("profile", ProfileHints::default()),
            ("profileTokenizerToolsThinking", tokenizer),
            ("profileWithToolsRequest", request),
        ];
        for (name, hints) in variants {
            same(name, &Profile::resolve(&id, Some(&card), &hints), &case[name])?;
        }
        same("profile", &card.profile(), &case["profile"])?;
        same("isGemma4Family", &is_gemma4_family(&id, Some(&card)), &case["isGemma4Family"])
    });
}

#[test]
fn every_rule_resolves_as_in_the_reference() {
    each(&cases("profiles_synthetic.json"), |case| {
        let card = case["card"].is_object().then(|| card(&case["card"]));
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
        same("profile", &Profile::resolve(&id, card.as_ref(), &hints), &case["profile"])?;
        same("isGemma4Family", &is_gemma4_family(&id, card.as_ref()), &case["isGemma4Family"])
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
            same("outEffort", &result.effort, &case["outEffort"])?;
            same("outEnableThinking", &result.enable_thinking, &case["outEnableThinking"])
        });
    }
}

fn same(what: &str, found: &impl serde::Serialize, expected: &Value) -> Result<(), String> {
    let found = serde_json::to_value(found).unwrap();
    if found == *expected { Ok(()) } else { Err(format!("{what}: expected {expected}, found {found}")) }
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

/// The parts of a card that profiles are resolved from.
fn card(json: &Value) -> ModelCard {
    let section = |key: &str| json.get(key).filter(|value| !value.is_null());
    ModelCard {
        model_id: string(&json["modelId"]),
        storage_size: StorageSize::default(),
        n_layers: 1,
        hidden_size: 1,
        supports_tensor: false,
        num_key_value_heads: None,
        tasks: Vec::new(),
        components: None,
        family: string(&json["family"]),
        quantization: String::new(),
        base_model: String::new(),
        gguf_file: None,
        capabilities: json["capabilities"].as_array().unwrap().iter().map(string).collect(),
        context_length: 0,
        uses_cfg: false,
        trust_remote_code: true,
        is_custom: false,
        vision: section("vision").map(|vision| VisionCardConfig {
            model_type: string(&vision["modelType"]),
            ..VisionCardConfig::default()
        }),
        reasoning: section("reasoning").map(|reasoning| ReasoningCardConfig {
            supports_toggle: reasoning["supportsToggle"].as_bool(),
            supports_budget: reasoning["supportsBudget"].as_bool(),
            format: named(&reasoning["format"], ReasoningFormat::ALL),
            default_effort: named(&reasoning["defaultEffort"], ReasoningEffort::ALL),
            disabled_effort: named(&reasoning["disabledEffort"], ReasoningEffort::ALL),
        }),
        modalities: section("modalities").map(|modalities| ModalitiesCardConfig {
            supports_audio_input: modalities["supportsAudioInput"].as_bool(),
            supports_native_multimodal: modalities["supportsNativeMultimodal"].as_bool(),
        }),
        tooling: section("tooling").map(|tooling| ToolingCardConfig {
            supports_tool_calling: tooling["supportsToolCalling"].as_bool(),
            tool_call_format: named(&tooling["toolCallFormat"], ToolCallFormat::ALL),
            builtin_tools: tooling["builtinTools"]
                .as_array()
                .map(|tools| tools.iter().filter_map(|tool| named(tool, BuiltinTool::ALL)).collect()),
        }),
        runtime: section("runtime").map(|runtime| RuntimeCardConfig {
            prompt_renderer: named(&runtime["promptRenderer"], PromptRenderer::ALL),
            output_parser: named(&runtime["outputParser"], OutputParser::ALL),
            ..RuntimeCardConfig::default()
        }),
        placement: PlacementCardConfig::default(),
    }
}
