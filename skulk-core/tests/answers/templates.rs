//! Is the syntax of a chat template recognised, and is what it writes read back?

use std::collections::BTreeSet;

use serde_json::Value;
use skulk::chat::{OutputSyntax, ParseOptions, ToolSyntax};

use super::items;
use super::oracle::Item;
use crate::fixtures::{root, templates};

/// What each of llama.cpp's templates expects, by hand: its tool calls, and what begins reasoning.
const TEMPLATES: &[(&str, Option<ToolSyntax>, &str)] = &[
    ("Apertus-8B-Instruct", Some(ToolSyntax::Apertus), "<|inner_prefix|>"),
    ("Apriel-1.6-15b-Thinker-fixed", Some(ToolSyntax::ToolCalls), "Here are my reasoning steps:\n"),
    ("Bielik-11B-v3.0-Instruct", Some(ToolSyntax::Hermes), "<think>"),
    ("ByteDance-Seed-OSS", Some(ToolSyntax::Seed), "<seed:think>"),
    ("Cohere2MoE", Some(ToolSyntax::Cohere), "<|START_THINKING|>"),
    ("CohereForAI-c4ai-command-r-plus-tool_use", Some(ToolSyntax::CommandR), ""),
    ("CohereForAI-c4ai-command-r7b-12-2024-tool_use", Some(ToolSyntax::Cohere), "<|START_THINKING|>"),
    ("GLM-4.6", Some(ToolSyntax::Glm), "<think>"),
    ("GLM-4.7-Flash", Some(ToolSyntax::Glm), "<think>"),
    ("GigaChat3-10B-A1.8B", Some(ToolSyntax::GigaChatRole), ""),
    ("GigaChat3.1-10B-A1.8B", Some(ToolSyntax::GigaChat), ""),
    // What there is of SmolLM3's speaks of no tools.
    ("HuggingFaceTB-SmolLM3-3B", None, "<think>"),
    ("Kimi-K2-Instruct", Some(ToolSyntax::Kimi), ""),
    ("Kimi-K2-Thinking", Some(ToolSyntax::Kimi), "<think>"),
    ("Kimi-K3", Some(ToolSyntax::KimiXtml), "<|open|>think<|sep|>"),
    ("LFM2-8B-A1B", Some(ToolSyntax::Pythonic), ""),
    ("LFM2.5-8B-A1B", Some(ToolSyntax::Pythonic), "<think>"),
    ("LFM2.5-Instruct", Some(ToolSyntax::Pythonic), "<think>"),
    ("MiMo-VL", Some(ToolSyntax::Hermes), ""),
    ("MiniMax-M1", Some(ToolSyntax::ToolCalls), ""),
    ("MiniMax-M2", Some(ToolSyntax::Minimax), "<think>"),
    ("MiniMax-M3", Some(ToolSyntax::MinimaxNested), "<mm:think>"),
    ("Mistral-Small-3.2-24B-Instruct-2506", Some(ToolSyntax::Mistral), ""),
    ("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", Some(ToolSyntax::Qwen3Coder), "<think>"),
    ("NVIDIA-Nemotron-Nano-v2", Some(ToolSyntax::Nemotron), "<think>"),
    ("NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", Some(ToolSyntax::Hermes), ""),
    ("NousResearch-Hermes-3-Llama-3.1-8B-tool_use", Some(ToolSyntax::Hermes), ""),
    ("Qwen-QwQ-32B", Some(ToolSyntax::Hermes), "<think>"),
    ("Qwen-Qwen2.5-7B-Instruct", Some(ToolSyntax::Hermes), ""),
    ("Qwen-Qwen3-0.6B", Some(ToolSyntax::Hermes), "<think>"),
    ("Qwen3-Coder", Some(ToolSyntax::Qwen3Coder), ""),
    ("Qwen3.5-4B", Some(ToolSyntax::Qwen3Coder), "<think>"),
    ("Reka-Edge", Some(ToolSyntax::Hermes), "<think>"),
    ("Spark2.5", Some(ToolSyntax::Glm), "<think>"),
    ("StepFun3.5-Flash", Some(ToolSyntax::Qwen3Coder), "<think>"),
    ("deepseek-ai-DeepSeek-R1-Distill-Llama-8B", Some(ToolSyntax::DeepSeek), "<think>"),
    ("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", Some(ToolSyntax::DeepSeek), "<think>"),
    ("deepseek-ai-DeepSeek-V3.1", Some(ToolSyntax::DeepSeek), "<think>"),
    ("deepseek-ai-DeepSeek-V3.2", Some(ToolSyntax::Dsml), "<think>"),
    ("deepseek-ai-DeepSeek-V4", Some(ToolSyntax::DsmlToolCalls), "<think>"),
    ("deepseek-ai-DeepSeek-V4-Flash-0731", Some(ToolSyntax::DsmlToolCalls), "<think>"),
    ("fireworks-ai-llama-3-firefunction-v2", Some(ToolSyntax::Functools), ""),
    ("google-gemma-2-2b-it", None, ""),
    ("google-gemma-4-31B-it", Some(ToolSyntax::Gemma4), "<|channel>thought\n"),
    ("google-gemma-4-31B-it-interleaved", Some(ToolSyntax::Gemma4), "<|channel>thought\n"),
    ("ibm-granite-granite-3.3-2B-Instruct", Some(ToolSyntax::Granite), "<think>"),
    ("ibm-granite-granite-4.0", Some(ToolSyntax::Hermes), ""),
    ("ibm-granite-granite-4.1", Some(ToolSyntax::Hermes), ""),
    ("inclusionai-ling-3.0-flash", Some(ToolSyntax::Glm), "<think>"),
    ("llama-cpp-deepseek-r1", Some(ToolSyntax::DeepSeek), "<think>"),
    ("llama-cpp-rwkv-world", None, "<think>"),
    ("meetkai-functionary-medium-v3.1", Some(ToolSyntax::FunctionaryTags), ""),
    ("meetkai-functionary-medium-v3.2", Some(ToolSyntax::Functionary), ""),
    ("meta-llama-Llama-3.1-8B-Instruct", Some(ToolSyntax::Llama), ""),
    ("meta-llama-Llama-3.2-3B-Instruct", Some(ToolSyntax::Llama), ""),
    ("meta-llama-Llama-3.3-70B-Instruct", Some(ToolSyntax::Llama), ""),
    ("microsoft-Phi-3.5-mini-instruct", None, ""),
    ("mistralai-Ministral-3-14B-Reasoning-2512", Some(ToolSyntax::Mistral), "[THINK]"),
    ("mistralai-Mistral-Nemo-Instruct-2407", Some(ToolSyntax::Mistral), ""),
    ("moonshotai-Kimi-K2", Some(ToolSyntax::Kimi), ""),
    ("muse-glimmer", Some(ToolSyntax::Muse), ""),
    ("openai-gpt-oss-120b", Some(ToolSyntax::Harmony), ""),
    ("openbmb-MiniCPM5-1B", Some(ToolSyntax::MiniCpm), "<think>"),
    ("poolside-Laguna-S-2.1", Some(ToolSyntax::Glm), "<think>"),
    ("poolside-Laguna-XS-2.1", Some(ToolSyntax::Glm), "<think>"),
    ("poolside-Laguna-XS.2", Some(ToolSyntax::Glm), "<think>"),
    ("tencent-Hy3", Some(ToolSyntax::Hunyuan), "<think:opensource>"),
    ("unsloth-Apriel-1.5", Some(ToolSyntax::ToolCalls), "<thinking>"),
    ("unsloth-mistral-Devstral-Small-2507", Some(ToolSyntax::Mistral), ""),
    ("upstage-Solar-Open-100B", Some(ToolSyntax::Solar), "<|think|>"),
];

#[test]
fn templates_are_recognised() {
    let Some(folder) = templates() else { return };
    let files = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
    let files: BTreeSet<_> =
        files.filter(|file| file.extension().is_some_and(|end| end == "jinja")).collect();
    assert_eq!(files.len(), TEMPLATES.len());
    for file in files {
        let name = file.file_stem().unwrap().to_str().unwrap();
        let (_, tools, start) = TEMPLATES.iter().find(|(known, ..)| *known == name).expect(name);
        let syntax = OutputSyntax::of_template(&std::fs::read_to_string(&file).unwrap());
        assert_eq!(syntax.tools, *tools, "{name}");
        assert_eq!(syntax.reasoning.map(|r| r.start).unwrap_or_default(), *start, "{name}");
    }
}

/// What jinja2 renders with these templates, read by the syntax that the table has for them.
#[test]
fn what_templates_write_is_read_back() {
    let file = root().join("tests/fixtures/parsers/rendered.json");
    let suite: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let cases = suite["cases"].as_array().unwrap();
    assert!(cases.len() >= 50);
    let tools = suite["tools"].as_array().unwrap();
    for case in cases {
        let template = case["template"].as_str().unwrap();
        let (_, syntax, start) =
            TEMPLATES.iter().find(|(name, ..)| template.strip_suffix(".jinja") == Some(*name)).unwrap();
        let end = REASONING_ENDS.iter().find(|(known, _)| known == start).map(|(_, end)| *end);
        let reasoning = end.map(|end| skulk::chat::ReasoningSyntax::new(*start, end));
        let syntax = OutputSyntax { reasoning, tools: *syntax };
        let text = case["text"].as_str().unwrap();
        // A template that begins the reasoning in prompts may leave that out of earlier answers.
        let open = end.is_some_and(|end| text.contains(end) && !text.contains(start));
        let starts = syntax.starts_in_reasoning(case["promptEnd"].as_str().unwrap()) || open;
        let options = ParseOptions::default().starts_in_reasoning(starts).tools(tools.clone());
        let (found, _) = items(&syntax, &options, &[text]);
        let expected = case["arguments"].as_array().unwrap().iter();
        let expected: Vec<_> = expected.map(|a| Item::Call("get_weather".to_owned(), a.clone())).collect();
        let calls: Vec<_> =
            found.iter().filter(|item| matches!(item, Item::Call(..) | Item::Broken(_))).cloned().collect();
        assert_eq!(calls, expected, "{template}: {text}");
        let thoughts: String = found
            .iter()
            .filter_map(|item| if let Item::Reasoning(t) = item { Some(t.as_str()) } else { None })
            .collect();
        assert_eq!(
            thoughts.contains("I look it up."),
            text.contains("I look it up."),
            "{template}: {found:?}"
        );
    }
}

const REASONING_ENDS: &[(&str, &str)] = &[
    ("<think>", "</think>"),
    ("<seed:think>", "</seed:think>"),
    ("<mm:think>", "</mm:think>"),
    ("<think:opensource>", "</think:opensource>"),
    ("<thinking>", "</thinking>"),
    ("<|channel>thought\n", "<channel|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<|think|>", "<|end|>"),
    ("[THINK]", "[/THINK]"),
    ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    ("Here are my reasoning steps:\n", "[BEGIN FINAL RESPONSE]"),
];
