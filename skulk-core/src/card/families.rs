//! What does a model's family tell that its card leaves open? A table of rules; the first that fits counts.

use super::schema::{ModelCard, OutputParser, PromptRenderer, ReasoningFormat, ToolCallFormat};

/// Every rule, by precedence. A model falls under at most one.
///
/// As `resolve_model_capability_profile` of Skulk 1.3.
pub(super) const RULES: &[Rule] = &[
    GEMMA4,
    Rule {
        any: &[
            When::IdContains("deepseek-v3.2"),
            When::FamilyIs("deepseek-v3.2"),
            When::FamilyIs("deepseek_v32"),
        ],
        unless: &[],
        sets: Sets {
            thinking: true,
            tools: true,
            tool_call_format: Some(ToolCallFormat::Dsml),
            prompt_renderer: Some(PromptRenderer::Dsml),
            output_parser: Some(OutputParser::DeepseekV32),
            ..NOTHING
        },
    },
    Rule {
        any: &[When::FamilyIs("gpt-oss"), When::IdContains("gpt-oss"), When::IdContains("gpt_oss")],
        unless: &[],
        sets: Sets {
            tools: true,
            tool_call_format: Some(ToolCallFormat::GptOss),
            output_parser: Some(OutputParser::GptOss),
            ..NOTHING
        },
    },
    Rule {
        any: &[When::IdContains("qwen3"), When::FamilyStartsWith("qwen3")],
        unless: &[When::IdContains("coder")],
        sets: Sets { thinking: true, thinking_format: Some(ReasoningFormat::TokenDelimited), ..NOTHING },
    },
];

const GEMMA4: Rule = Rule {
    any: &[
        When::IdContains("gemma-4"),
        When::IdContains("gemma_4"),
        When::IdContains("gemma4"),
        When::FamilyIs("gemma4"),
        When::FamilyIs("gemma-4"),
    ],
    unless: &[],
    sets: Sets {
        thinking: true,
        tools: true,
        images_are_native: true,
        thinking_format: Some(ReasoningFormat::ChannelDelimited),
        tool_call_format: Some(ToolCallFormat::Gemma4),
        prompt_renderer: Some(PromptRenderer::Gemma4),
        renders_plain_messages_only: true,
        output_parser: Some(OutputParser::Gemma4),
    },
};

const NOTHING: Sets = Sets {
    thinking: false,
    tools: false,
    images_are_native: false,
    thinking_format: None,
    tool_call_format: None,
    prompt_renderer: None,
    renders_plain_messages_only: false,
    output_parser: None,
};

/// Which models a rule is for, and what it sets.
pub(super) struct Rule {
    /// One of these holds, …
    any: &'static [When],
    /// … and none of these.
    unless: &'static [When],
    pub(super) sets: Sets,
}

/// What is looked at.
enum When {
    /// The model's id, in lower case.
    IdContains(&'static str),
    /// The family, as it is written.
    FamilyIs(&'static str),
    /// The family, in lower case.
    FamilyStartsWith(&'static str),
}

/// What a rule sets; the rest stays as it was.
pub(super) struct Sets {
    /// It reasons, and requests can turn that on and off.
    pub(super) thinking: bool,
    /// It calls tools.
    pub(super) tools: bool,
    /// If it sees, then without a part beside it.
    pub(super) images_are_native: bool,
    pub(super) thinking_format: Option<ReasoningFormat>,
    pub(super) tool_call_format: Option<ToolCallFormat>,
    pub(super) prompt_renderer: Option<PromptRenderer>,
    /// The renderer is for requests of messages without tools; others take the tokenizer's template.
    pub(super) renders_plain_messages_only: bool,
    pub(super) output_parser: Option<OutputParser>,
}

/// The rule for a model: its id in lower case, and its family.
pub(super) fn rule(id: &str, family: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.fits(id, family))
}

impl Rule {
    fn fits(&self, id: &str, family: &str) -> bool {
        let holds = |when: &When| match when {
            When::IdContains(part) => id.contains(part),
            When::FamilyIs(name) => family == *name,
            When::FamilyStartsWith(start) => {
                family.get(..start.len()).is_some_and(|f| f.eq_ignore_ascii_case(start))
            }
        };
        self.any.iter().any(holds) && !self.unless.iter().any(holds)
    }
}

/// Whether a model is to be run as Gemma 4, by its id, its family or anything that its card says. Of a card, its own
/// id counts, not the one given beside it.
///
/// ```
/// use skulk::card::is_gemma4_family;
/// assert!(is_gemma4_family("mlx-community/gemma-4-12B-it-4bit", None));
/// assert!(!is_gemma4_family("google/gemma-3-270m", None));
/// ```
pub fn is_gemma4_family(model_id: &str, card: Option<&ModelCard>) -> bool {
    let declared = card.is_some_and(|card| {
        let runtime = card.runtime.as_ref();
        card.vision.as_ref().is_some_and(|vision| vision.model_type == "gemma4")
            || runtime.is_some_and(|r| r.prompt_renderer == Some(PromptRenderer::Gemma4))
            || runtime.is_some_and(|r| r.output_parser == Some(OutputParser::Gemma4))
            || card.tooling.as_ref().is_some_and(|t| t.tool_call_format == Some(ToolCallFormat::Gemma4))
    });
    let (id, family) = card.map_or((model_id, ""), |card| (&card.model_id, &card.family));
    declared || GEMMA4.fits(&id.to_lowercase(), family)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_card_its_own_id_counts() {
        let is = |id: &str, of: &str| is_gemma4_family(id, Some(&ModelCard::new(of, 1, 1, 1)));
        assert!(!is("x/gemma-4", "other/llama-3"));
        assert!(is("x/llama-3", "other/gemma-4"));
    }
}
