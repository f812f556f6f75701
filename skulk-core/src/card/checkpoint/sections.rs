//! Which sections does a card of this model need? From its chat template, and for a few families from their name
//! alone.

use super::labels;
use super::template::TemplateFacts;
use crate::card::{
    BuiltinTool, ModalitiesCardConfig, ModelCard, OutputParser, PromptRenderer, ReasoningCardConfig,
    ReasoningEffort, ReasoningFormat, RuntimeCardConfig, ToolCallFormat, ToolingCardConfig,
};

/// Fills family, capabilities and sections. `model_type` is what the checkpoint calls the family; `template` is `None`
/// where it has no chat template.
pub(super) fn fill(card: &mut ModelCard, model_type: &str, template: Option<TemplateFacts>) {
    card.family = labels::family(model_type);
    match model_type {
        "gemma4" | "gemma4_text" => gemma4(card),
        "gpt_oss" | "gpt-oss" => gpt_oss(card),
        "deepseek_v32" | "deepseek32" => deepseek_v32(card),
        _ => from_template(card, template),
    }
    let reasons = card.reasoning.is_some_and(|r| r.format != Some(ReasoningFormat::None));
    let toggles = card.reasoning.is_some_and(|r| r.supports_toggle == Some(true));
    let words = [
        (true, "text"),
        (reasons, "thinking"),
        (reasons && toggles, "thinking_toggle"),
        (card.vision.is_some(), "vision"),
    ];
    card.capabilities = words.iter().filter(|(has, _)| *has).map(|(_, word)| (*word).to_owned()).collect();
}

fn from_template(card: &mut ModelCard, template: Option<TemplateFacts>) {
    let Some(template) = template else {
        return;
    };
    if template.thinking {
        let format = template.delimited.then_some(ReasoningFormat::TokenDelimited);
        card.reasoning = Some(if template.toggle { switched(format) } else { always(format) });
    } else if card.profile().supports_thinking_toggle {
        // The family's rule takes it for a model that reasons; its own template knows better.
        card.reasoning = Some(always(Some(ReasoningFormat::None)));
    }
    if template.tools {
        card.tooling =
            Some(ToolingCardConfig { supports_tool_calling: Some(true), ..ToolingCardConfig::default() });
    }
}

fn gemma4(card: &mut ModelCard) {
    card.reasoning = Some(switched(Some(ReasoningFormat::ChannelDelimited)));
    card.tooling = Some(ToolingCardConfig {
        tool_call_format: Some(ToolCallFormat::Gemma4),
        ..ToolingCardConfig::default()
    });
    card.runtime = Some(runtime(Some(PromptRenderer::Gemma4), OutputParser::Gemma4));
    if card.vision.is_some() {
        card.modalities = Some(ModalitiesCardConfig {
            supports_native_multimodal: Some(true),
            ..ModalitiesCardConfig::default()
        });
    }
}

fn gpt_oss(card: &mut ModelCard) {
    card.reasoning = Some(ReasoningCardConfig { supports_toggle: Some(false), ..switched(None) });
    card.tooling = Some(ToolingCardConfig {
        supports_tool_calling: Some(true),
        tool_call_format: Some(ToolCallFormat::GptOss),
        builtin_tools: Some(BuiltinTool::ALL.to_vec()),
    });
    card.runtime = Some(runtime(None, OutputParser::GptOss));
}

fn deepseek_v32(card: &mut ModelCard) {
    card.reasoning = Some(switched(Some(ReasoningFormat::TokenDelimited)));
    card.tooling = Some(ToolingCardConfig {
        supports_tool_calling: Some(true),
        tool_call_format: Some(ToolCallFormat::Dsml),
        builtin_tools: None,
    });
    card.runtime = Some(runtime(Some(PromptRenderer::Dsml), OutputParser::DeepseekV32));
}

/// Reasoning that requests turn on and off.
fn switched(format: Option<ReasoningFormat>) -> ReasoningCardConfig {
    ReasoningCardConfig {
        supports_toggle: Some(true),
        supports_budget: None,
        format,
        default_effort: Some(ReasoningEffort::Medium),
        disabled_effort: Some(ReasoningEffort::None),
    }
}

/// Reasoning that requests have no say in.
fn always(format: Option<ReasoningFormat>) -> ReasoningCardConfig {
    ReasoningCardConfig { supports_toggle: Some(false), format, ..ReasoningCardConfig::default() }
}

fn runtime(renderer: Option<PromptRenderer>, parser: OutputParser) -> RuntimeCardConfig {
    RuntimeCardConfig {
        prompt_renderer: renderer,
        output_parser: Some(parser),
        ..RuntimeCardConfig::default()
    }
}
