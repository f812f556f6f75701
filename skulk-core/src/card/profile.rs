//! What can a model do, and how is it spoken to? What its card says, else its family, else nothing special.

use serde::Serialize;

use super::families;
use super::schema::{
    BuiltinTool, ModelCard, OutputParser, PromptRenderer, ReasoningEffort, ReasoningFormat, ToolCallFormat,
};
use crate::macros::setters;

/// The family of a model that has none.
const GENERIC: &str = "generic";

/// What a card resolves to: the facts that running a model is decided by. `Default` is a model of which
/// nothing is known.
///
/// Three sources, the first that says anything wins: the card's sections, the rule of its family, the
/// generic profile. Serialises to the camelCase JSON of Skulk 1.3.
///
/// ```
/// use skulk::card::{OutputParser, Profile, ProfileHints};
/// let profile = Profile::resolve("openai/gpt-oss-20b", None, &ProfileHints::default());
/// assert_eq!(profile.output_parser, OutputParser::GptOss);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Profile {
    /// The card's family, else the id's first word.
    pub family: String,
    /// It reasons before it answers.
    pub supports_thinking: bool,
    /// Requests can turn that on and off.
    pub supports_thinking_toggle: bool,
    /// Requests can bound it.
    pub supports_thinking_budget: bool,
    /// How much it reasons where a request turns reasoning on without saying.
    pub default_reasoning_effort: ReasoningEffort,
    /// What turning it off means.
    pub disabled_reasoning_effort: ReasoningEffort,
    /// How reasoning is marked.
    pub thinking_format: ReasoningFormat,
    /// It sees.
    pub supports_image_input: bool,
    /// It hears.
    pub supports_audio_input: bool,
    /// It calls tools.
    pub supports_tool_calling: bool,
    /// Tools that it was trained with.
    pub builtin_tools: Vec<BuiltinTool>,
    /// How it writes calls.
    pub tool_call_format: ToolCallFormat,
    /// What turns messages into a prompt.
    pub prompt_renderer: PromptRenderer,
    /// What takes an answer apart.
    pub output_parser: OutputParser,
    /// Its other inputs are part of the model itself.
    pub supports_native_multimodal: bool,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            family: GENERIC.to_owned(),
            supports_thinking: false,
            supports_thinking_toggle: false,
            supports_thinking_budget: false,
            default_reasoning_effort: ReasoningEffort::Medium,
            disabled_reasoning_effort: ReasoningEffort::None,
            thinking_format: ReasoningFormat::None,
            supports_image_input: false,
            supports_audio_input: false,
            supports_tool_calling: false,
            builtin_tools: Vec::new(),
            tool_call_format: ToolCallFormat::Generic,
            prompt_renderer: PromptRenderer::Tokenizer,
            output_parser: OutputParser::Generic,
            supports_native_multimodal: false,
        }
    }
}

/// What is known beside id and card when a profile is resolved. `Default`: nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ProfileHints {
    /// The tokenizer's chat template knows tools.
    pub tokenizer_tools: bool,
    /// The tokenizer has markers for reasoning.
    pub tokenizer_thinking: bool,
    /// What is to be answered; `None`: not known yet.
    pub request: Option<RequestHints>,
}

setters!(ProfileHints {
    /// Says whether the tokenizer's chat template knows tools.
    tokenizer_tools: bool;
    /// Says whether the tokenizer has markers for reasoning.
    tokenizer_thinking: bool;
    /// Says what is to be answered.
    request: RequestHints => Some(request);
});

/// What of a request decides how its prompt is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RequestHints {
    /// It consists of chat messages rather than of a finished prompt.
    pub has_messages: bool,
    /// It offers tools.
    pub has_tools: bool,
}

setters!(RequestHints {
    /// Says whether the request consists of chat messages.
    has_messages: bool;
    /// Says whether it offers tools.
    has_tools: bool;
});

impl ModelCard {
    /// The profile of this card, before any tokenizer or request is known.
    pub fn profile(&self) -> Profile {
        Profile::resolve(&self.model_id, Some(self), &ProfileHints::default())
    }
}

impl Profile {
    /// What a model can do, from its id and its card, where there is one. Rules of families read the id, too, so
    /// that a model without a card is still spoken to as its family wants it.
    pub fn resolve(model_id: &str, card: Option<&ModelCard>, hints: &ProfileHints) -> Self {
        let mut profile = Self::stated(model_id, card, hints);
        profile.apply_family(&model_id.to_lowercase(), hints.request);
        if let Some(card) = card {
            profile.apply_card(card);
        }
        let has_tools = hints.request.is_some_and(|request| request.has_tools);
        if has_tools && profile.prompt_renderer == PromptRenderer::Gemma4 {
            profile.prompt_renderer = PromptRenderer::Tokenizer;
        }
        profile
    }

    /// What capabilities, sections and the tokenizer say by being there.
    fn stated(model_id: &str, card: Option<&ModelCard>, hints: &ProfileHints) -> Self {
        let can = |word: &str| card.is_some_and(|card| card.capabilities.iter().any(|c| c == word));
        let native = card.and_then(|card| card.modalities?.supports_native_multimodal);
        let tooling = card.and_then(|card| card.tooling.as_ref());
        let tools = tooling.is_some_and(|t| {
            t.supports_tool_calling == Some(true)
                || t.tool_call_format.is_some_and(|format| format != ToolCallFormat::Generic)
        });
        Self {
            family: family(model_id, card).to_owned(),
            supports_thinking: can("thinking") || card.is_some_and(|card| card.reasoning.is_some()),
            supports_thinking_toggle: can("thinking_toggle"),
            thinking_format: match hints.tokenizer_thinking {
                true => ReasoningFormat::TokenDelimited,
                false => ReasoningFormat::None,
            },
            supports_image_input: can("vision")
                || card.is_some_and(|card| card.vision.is_some())
                || native == Some(true),
            supports_tool_calling: hints.tokenizer_tools || tools,
            ..Self::default()
        }
    }

    fn apply_family(&mut self, id: &str, request: Option<RequestHints>) {
        let Some(rule) = families::rule(id, &self.family) else {
            return;
        };
        let sets = &rule.sets;
        self.supports_thinking |= sets.thinking;
        self.supports_thinking_toggle |= sets.thinking;
        self.supports_tool_calling |= sets.tools;
        self.supports_native_multimodal = sets.images_are_native && self.supports_image_input;
        set(&mut self.thinking_format, sets.thinking_format);
        set(&mut self.tool_call_format, sets.tool_call_format);
        set(&mut self.output_parser, sets.output_parser);
        let plain = request.is_none_or(|request| request.has_messages && !request.has_tools);
        if plain || !sets.renders_plain_messages_only {
            set(&mut self.prompt_renderer, sets.prompt_renderer);
        }
    }

    fn apply_card(&mut self, card: &ModelCard) {
        if let Some(reasoning) = card.reasoning {
            set(&mut self.supports_thinking_toggle, reasoning.supports_toggle);
            set(&mut self.supports_thinking_budget, reasoning.supports_budget);
            set(&mut self.thinking_format, reasoning.format);
            set(&mut self.default_reasoning_effort, reasoning.default_effort);
            set(&mut self.disabled_reasoning_effort, reasoning.disabled_effort);
        }
        if let Some(modalities) = card.modalities {
            set(&mut self.supports_audio_input, modalities.supports_audio_input);
            set(&mut self.supports_native_multimodal, modalities.supports_native_multimodal);
        }
        if let Some(tooling) = &card.tooling {
            set(&mut self.supports_tool_calling, tooling.supports_tool_calling);
            set(&mut self.builtin_tools, tooling.builtin_tools.clone());
            set(&mut self.tool_call_format, tooling.tool_call_format);
        }
        if let Some(runtime) = &card.runtime {
            set(&mut self.prompt_renderer, runtime.prompt_renderer);
            set(&mut self.output_parser, runtime.output_parser);
        }
    }
}

fn set<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

/// The card's family, else what stands before the first hyphen of the id without its organisation.
fn family<'a>(model_id: &'a str, card: Option<&'a ModelCard>) -> &'a str {
    let stated = card.map(|card| card.family.as_str()).filter(|family| !family.is_empty());
    let short = model_id.rsplit('/').next().unwrap_or_default();
    let word = short.split('-').next().filter(|word| !word.is_empty());
    stated.or(word).unwrap_or(GENERIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_the_profile_of_a_model_of_which_nothing_is_known() {
        let profile = Profile::resolve("", None, &ProfileHints::default());
        assert_eq!(profile, Profile::default());
    }

    #[test]
    fn hints_reach_the_profile() {
        let hints = ProfileHints::default().tokenizer_tools(true).tokenizer_thinking(true);
        let profile = Profile::resolve("acme/m", None, &hints);
        assert!(profile.supports_tool_calling);
        assert_eq!(profile.thinking_format, ReasoningFormat::TokenDelimited);
        assert!(!profile.supports_thinking, "markers alone are no capability");
    }

    #[test]
    fn gemma_4_renders_only_plain_messages_itself() {
        let renderer = |request: Option<RequestHints>| {
            let hints = ProfileHints { request, ..ProfileHints::default() };
            Profile::resolve("google/gemma-4-12B", None, &hints).prompt_renderer
        };
        let request = RequestHints::default().has_messages(true);
        assert_eq!(renderer(None), PromptRenderer::Gemma4);
        assert_eq!(renderer(Some(request)), PromptRenderer::Gemma4);
        assert_eq!(renderer(Some(request.has_tools(true))), PromptRenderer::Tokenizer);
        assert_eq!(renderer(Some(RequestHints::default())), PromptRenderer::Tokenizer);
    }

    #[test]
    fn serialises_in_the_references_spelling() {
        let json = serde_json::to_value(Profile::default()).unwrap();
        assert_eq!(json["defaultReasoningEffort"], "medium");
        assert_eq!(json["supportsNativeMultimodal"], false);
        assert_eq!(json.as_object().unwrap().len(), 15);
    }
}
