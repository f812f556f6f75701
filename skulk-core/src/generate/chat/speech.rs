//! How is a model spoken to, and what of a request can it honour?

use std::sync::{Arc, OnceLock};

use super::guide::Budget;
use super::options::ChatOptions;
use super::reader::{Lead, Part};
use crate::card::{Profile, PromptRenderer, ReasoningEffort, ReasoningRequest};
use crate::chat::{
    ChatPrompt, ChatRenderer, ChatTemplate, Message, OutputSyntax, RenderOptions, TemplateSources, ToolSyntax,
};
use crate::error::{Error, Result};
use crate::generate::LoadOptions;
use crate::ids::TokenId;
use crate::tokenizer::Tokenizer;
use crate::weights::Checkpoint;

/// Ends the analysis of Harmony, and begins the answer.
pub(super) const HARMONY_END: &str = "<|end|><|start|>assistant<|channel|>final<|message|>";
/// What begins the answer behind it.
const HARMONY_TEXT: &str = "<|start|>assistant<|channel|>final<|message|>";
/// What begins any message behind another one.
const HARMONY_MESSAGE: &str = "<|start|>assistant<|channel|>";
/// What its prompts end with.
const HARMONY_ROLE: &str = "<|start|>assistant";
/// The variables by which templates are told of efforts and budgets.
const EFFORT: &str = "reasoning_effort";
const BUDGET: &str = "thinking_budget";

/// What a loaded model's checkpoint and options tell of conversations. Templates are compiled when they are first needed.
pub(in crate::generate) struct Origin {
    templates: Result<TemplateSources>,
    pub(super) profile: Profile,
    renderer: OnceLock<ChatRenderer>,
}

impl Origin {
    pub(in crate::generate) fn of(checkpoint: &dyn Checkpoint, options: &LoadOptions) -> Self {
        let templates = TemplateSources::of(checkpoint);
        let templates = match &options.chat_template {
            Some(source) => Ok(templates.unwrap_or_default().replaced(source)),
            None => templates,
        };
        let sources = templates.as_ref().ok().and_then(TemplateSources::joined);
        let profile = Profile::of_checkpoint(checkpoint, sources.as_deref(), options.card.as_ref());
        Self { templates, profile, renderer: OnceLock::new() }
    }

    pub(in crate::generate) fn renderer(&self, tokenizer: &Arc<Tokenizer>) -> Result<&ChatRenderer> {
        if let Some(renderer) = self.renderer.get() {
            return Ok(renderer);
        }
        let sources = self.templates.as_ref().map_err(Error::again)?.clone();
        let template = ChatTemplate::found(sources)?;
        let renderer = ChatRenderer::new(self.profile.clone(), template, Arc::clone(tokenizer))?;
        Ok(self.renderer.get_or_init(|| renderer))
    }
}

/// A request that the model can honour.
pub(super) struct Asked {
    pub(super) prompt: ChatPrompt,
    pub(super) syntax: OutputSyntax,
    pub(super) starts_in_reasoning: bool,
    pub(super) budget: Option<Budget>,
    /// What comes before a text that keeps to a constraint, and what is certain of it behind reasoning.
    pub(super) lead: Option<Lead>,
    pub(super) header: Vec<TokenId>,
    /// What the answer begins with in any case.
    pub(super) begins: Option<TokenId>,
    /// The beginning of the answer, where one is to be continued.
    pub(super) said: Option<String>,
    /// What was thought before it.
    pub(super) thought: String,
    /// Calls that the messages have.
    pub(super) calls: usize,
}

impl Asked {
    pub(super) fn of(
        renderer: &ChatRenderer,
        tokenizer: &Tokenizer,
        messages: &[Message],
        options: &ChatOptions,
    ) -> Result<Self> {
        let mut render = options.render.clone();
        let source = renderer.source(&render)?;
        let mut syntax = renderer.syntax(&render)?;
        if options.generate.logprobs.is_some() {
            let message = "expected no log-probabilities, which answers of conversations do not report";
            return Err(
                Error::argument("logprobs", message).with_hint("leave it out, or generate from a prompt")
            );
        }
        can_reason(renderer.profile(), source, render.reasoning)?;
        can_call(&syntax, &render)?;
        let constrained = options.generate.constraint.is_some();
        if constrained {
            can_keep(&mut syntax, &render, messages)?;
        }
        let budget = options.reasoning_budget.map(|limit| budget(limit, &syntax, tokenizer)).transpose()?;
        if let Some(Budget { limit, .. }) = budget
            && source.is_some_and(|source| source.contains(BUDGET))
            && render.variables.iter().all(|(name, _)| name != BUDGET)
        {
            render = render.variable(BUDGET, i64::try_from(limit).unwrap_or(i64::MAX));
        }
        // A JSON that is the whole answer is a call only where there is something to call.
        if render.tools.is_empty() && syntax.tools == Some(ToolSyntax::Llama) {
            syntax.tools = None;
        }
        let prompt = renderer.render(messages, &render)?;
        let said = said(messages);
        let begun = said.as_deref().unwrap_or_default();
        // Some templates trim it.
        let opens = prompt.text.strip_suffix(begun.trim_start()).unwrap_or(&prompt.text);
        let closed = syntax.reasoning.as_ref().is_some_and(|reasoning| begun.contains(&reasoning.end));
        let starts_in_reasoning = syntax.starts_in_reasoning(opens) && !closed;
        let reasons = renderer.profile().supports_thinking && !is_off(render.reasoning);
        let calls = !render.tools.is_empty();
        let lead = || lead(&syntax, tokenizer, opens, starts_in_reasoning, reasons, calls);
        let lead = constrained.then(lead).transpose()?;
        let header = match syntax.tools {
            Some(ToolSyntax::Harmony) if calls => tokenizer.encode(HARMONY_MESSAGE, false)?,
            Some(ToolSyntax::Harmony) => tokenizer.encode(HARMONY_TEXT, false)?,
            _ => Vec::new(),
        };
        // Without a header, a message would be nobody's.
        let begins = match syntax.tools {
            Some(ToolSyntax::Harmony) if constrained && opens.trim_end().ends_with(HARMONY_ROLE) => {
                tokenizer.encode(HARMONY_MESSAGE, false)?.last().copied()
            }
            _ => None,
        };
        Ok(Self {
            starts_in_reasoning,
            lead,
            header,
            begins,
            prompt,
            syntax,
            budget,
            thought: if said.is_some() { thought(messages) } else { String::new() },
            said,
            calls: messages.iter().map(|message| message.tool_calls().len()).sum(),
        })
    }
}

/// What the last message's author thought.
fn thought(messages: &[Message]) -> String {
    messages.last().and_then(Message::reasoning_content).unwrap_or_default().to_owned()
}

/// What the answer begins with.
fn said(messages: &[Message]) -> Option<String> {
    let last = messages.last().filter(|last| last.role() == "assistant" && last.tool_calls().is_empty())?;
    last.text_of_parts()
}

/// `Ok` when what is asked of reasoning is left by [`Profile::reasoning`], and the template hears of it.
fn can_reason(profile: &Profile, source: Option<&str>, asked: ReasoningRequest) -> Result<()> {
    let refuse = |field: &'static str, message: &'static str, hint: &'static str| {
        Err(Error::argument(field, message).with_hint(hint))
    };
    let off = is_off(asked);
    if !profile.supports_thinking {
        return match asked.effort {
            _ if off || asked == ReasoningRequest::default() => Ok(()),
            _ => refuse(
                "reasoning",
                "expected a request that the model can honour, found reasoning of one that has none",
                "leave it out, or load the model with a card that says how it reasons",
            ),
        };
    }
    if profile.supports_thinking_toggle {
        return Ok(());
    }
    if off {
        return refuse(
            "reasoning",
            "expected a request that the model can honour, found no reasoning of one that always reasons",
            "leave it out, or bound it with `reasoning_budget`",
        );
    }
    let is_told = profile.prompt_renderer == PromptRenderer::Tokenizer
        && source.is_some_and(|source| source.contains(EFFORT));
    if asked.effort.is_some() && !is_told {
        return refuse(
            "reasoning",
            "expected a request that the model can honour, found an effort that its template does not tell it",
            "leave it out, or bound reasoning with `reasoning_budget`",
        );
    }
    Ok(())
}

fn is_off(asked: ReasoningRequest) -> bool {
    asked.effort == Some(ReasoningEffort::None) || asked.enable_thinking == Some(false)
}

/// `Ok` when an answer's text can keep to a constraint: then all of it is text, whatever it looks like, unless there are
/// tools and it begins with a call.
fn can_keep(syntax: &mut OutputSyntax, render: &RenderOptions, messages: &[Message]) -> Result<()> {
    let refuse = |field: &'static str, message: &'static str, hint: &'static str| {
        Err(Error::argument(field, message).with_hint(hint))
    };
    if said(messages).is_some() {
        let message = "expected no answer to continue beside a constraint, which it may not have kept to";
        return refuse("messages", message, "let the model answer anew");
    }
    match syntax.tools {
        Some(ToolSyntax::Functionary | ToolSyntax::Muse) => {
            let message = "expected no constraint, as the model addresses its messages in their text";
            refuse("response_format", message, "generate from a prompt")
        }
        Some(ToolSyntax::Harmony) => Ok(()),
        _ if !render.tools.is_empty() => Ok(()),
        _ => {
            syntax.tools = None;
            Ok(())
        }
    }
}

/// What comes before a text that keeps to a constraint.
fn lead(
    syntax: &OutputSyntax,
    tokenizer: &Tokenizer,
    prompt: &str,
    starts_in_reasoning: bool,
    reasons: bool,
    calls: bool,
) -> Result<Lead> {
    if syntax.tools == Some(ToolSyntax::Harmony) {
        let begins = tokenizer.encode(HARMONY_TEXT, false)?.last().copied();
        let calls = calls.then(Vec::new);
        return Ok(Lead { part: Part::Before, reasoning: Vec::new(), calls, begins });
    }
    let mut reasoning = Vec::new();
    if let Some(markers) = &syntax.reasoning {
        let closed = prompt.trim_end().ends_with(markers.end.trim_end());
        if reasons && !starts_in_reasoning && !closed {
            reasoning = opening(tokenizer, &markers.start)?.unwrap_or_default();
        }
    }
    let calls = match syntax.tools {
        Some(tools) if calls => Some(call_openings(tools, &reasoning, tokenizer)?),
        _ => None,
    };
    let part = match &calls {
        _ if starts_in_reasoning => Part::Before,
        None if reasoning.is_empty() => Part::Text,
        _ => Part::Beginning,
    };
    Ok(Lead { part, reasoning, calls, begins: None })
}

/// A marker's tokens, where the first of them says that it is there.
fn opening(tokenizer: &Tokenizer, marker: &str) -> Result<Option<Vec<TokenId>>> {
    let tokens = tokenizer.encode(marker, false)?;
    let tells = tokens.len() == 1 || tokens.first().is_some_and(|first| tokenizer.is_special(*first));
    Ok(tells.then_some(tokens))
}

/// What begins calls, each with a token that nothing else begins with.
fn call_openings(
    tools: ToolSyntax,
    reasoning: &[TokenId],
    tokenizer: &Tokenizer,
) -> Result<Vec<Vec<TokenId>>> {
    let refuse = || {
        let message =
            "expected no tools beside a constraint, as no token of its own begins the model's calls";
        Error::argument("tools", message)
            .with_hint("leave one of the two out, or call first and ask for the form afterwards")
    };
    let mut calls: Vec<Vec<TokenId>> = Vec::new();
    for marker in tools.openings().ok_or_else(refuse)? {
        calls.push(opening(tokenizer, marker)?.ok_or_else(refuse)?);
    }
    let clashes = |at: usize, call: &[TokenId]| {
        let before = calls[..at].iter().filter_map(|call| call.first());
        reasoning.first().into_iter().chain(before).any(|other| call.first() == Some(other))
    };
    if calls.iter().enumerate().any(|(at, call)| clashes(at, call)) {
        return Err(refuse());
    }
    Ok(calls)
}

/// `Ok` when the model's template knows tools, or there are none.
fn can_call(syntax: &OutputSyntax, render: &RenderOptions) -> Result<()> {
    if render.tools.is_empty() || syntax.tools.is_some() {
        return Ok(());
    }
    let message = "expected no tools, as the model's chat template and card name no way to call them";
    Err(Error::argument("tools", message)
        .with_hint("leave them out, or load the model with a template or card for tools"))
}

/// The tokens that end reasoning.
fn budget(limit: usize, syntax: &OutputSyntax, tokenizer: &Tokenizer) -> Result<Budget> {
    let end = match (&syntax.reasoning, syntax.tools) {
        (Some(reasoning), _) => reasoning.end.as_str(),
        (None, Some(ToolSyntax::Harmony)) => HARMONY_END,
        _ => {
            let message = "expected no budget, as the model's chat template and card mark no reasoning";
            return Err(Error::argument("reasoning_budget", message).with_hint("leave it out"));
        }
    };
    let end: Vec<TokenId> = tokenizer.encode(end, false)?;
    Ok(Budget { limit, end })
}
