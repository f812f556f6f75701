//! What is the prompt of a conversation, for a given model?

use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;

use super::guard::Guard;
use super::json::Json;
use super::message::{Content, Message, Tool};
use super::parse::OutputSyntax;
use super::template::{ChatTemplate, Conversation, TemplateOptions};
use super::{dsml, gemma4};
use crate::card::{Profile, PromptRenderer, ReasoningRequest};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::TokenId;
use crate::macros::setters;
use crate::tokenizer::Tokenizer;

/// What turns conversations into prompts for one model: its profile says how. Immutable and `Send + Sync`.
///
/// Texts of special tokens in what messages, tools and documents say stay text, so that nobody can forge a turn; the
/// model's own markup becomes tokens. A conversation without such texts has the tokens that transformers gives it.
///
/// ```no_run
/// use std::sync::Arc;
/// use skulk::chat::{RenderOptions, ChatRenderer, ChatTemplate, Message};
/// use skulk::{Profile, Tokenizer};
///
/// let checkpoint = skulk::open_checkpoint("model.gguf")?;
/// let tokenizer = Arc::new(Tokenizer::from_checkpoint(&*checkpoint)?);
/// let template = ChatTemplate::from_checkpoint(&*checkpoint)?;
/// let renderer = ChatRenderer::new(Profile::default(), template, tokenizer)?;
/// let prompt = renderer.render(&[Message::user("Hello")], &RenderOptions::default())?;
/// println!("{}: {} tokens", prompt.text, prompt.tokens.len());
/// # Ok::<(), skulk::Error>(())
/// ```
#[derive(Debug)]
pub struct ChatRenderer {
    profile: Profile,
    template: Option<ChatTemplate>,
    tokenizer: Arc<Tokenizer>,
    guard: Guard,
}

/// A prompt as the model gets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ChatPrompt {
    /// Its text. Of special tokens in it, it does not say which are tokens.
    pub text: String,
    /// Its tokens.
    pub tokens: Vec<TokenId>,
}

/// What belongs to a conversation beside its messages. `Default`: nothing.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct RenderOptions {
    /// What the model may call.
    pub tools: Vec<Tool>,
    /// How much the model is to reason, as far as its profile lets it.
    pub reasoning: ReasoningRequest,
    /// Documents to answer from, for templates that know them.
    pub documents: Vec<Json>,
    /// Further variables of the template.
    pub variables: Vec<(String, Json)>,
    /// Which of the model's templates; `None`: the one for tools where tools are given, else the usual one.
    pub template: Option<String>,
    /// The time, for templates that tell it; `None`: the system's clock, in UTC.
    pub now: Option<SystemTime>,
    /// Texts of special tokens in messages, tools and documents become these tokens. Only for messages that are
    /// trusted: whoever writes them can write turns.
    pub trust_messages: bool,
}

setters!(RenderOptions {
    /// Sets what the model may call.
    tools: impl IntoIterator<Item = Tool> => tools.into_iter().collect();
    /// Says how much the model is to reason.
    reasoning: ReasoningRequest;
    /// Sets documents to answer from.
    documents: impl IntoIterator<Item = Json> => documents.into_iter().collect();
    /// Chooses one of the model's templates.
    template: impl Into<String> => Some(template.into());
    /// Sets the clock.
    now: SystemTime => Some(now);
    /// Lets texts of special tokens in messages become these tokens.
    trust_messages: bool;
});

impl RenderOptions {
    /// Sets a variable of the template's.
    #[must_use]
    pub fn variable(mut self, name: &str, value: impl Into<Json>) -> Self {
        self.variables.retain(|(other, _)| other != name);
        self.variables.push((name.to_owned(), value.into()));
        self
    }
}

impl ChatRenderer {
    /// For a model with this profile, its templates and its tokenizer.
    ///
    /// # Errors
    /// [`ErrorKind::TemplateInvalid`] when the profile asks for a template and there is none.
    pub fn new(profile: Profile, template: Option<ChatTemplate>, tokenizer: Arc<Tokenizer>) -> Result<Self> {
        if template.is_none() && profile.prompt_renderer == PromptRenderer::Tokenizer {
            return Err(no_template());
        }
        let guard = Guard::new(&tokenizer);
        Ok(Self { profile, template, tokenizer, guard })
    }

    /// The profile that it goes by.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The markup of an answer to such a prompt.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] when there is no template of the asked name.
    pub fn syntax(&self, options: &RenderOptions) -> Result<OutputSyntax> {
        Ok(OutputSyntax::of(&self.profile, self.source(options)?))
    }

    /// The source of the template for such a prompt, where the model has one.
    pub(crate) fn source(&self, options: &RenderOptions) -> Result<Option<&str>> {
        let options = options.for_template(ReasoningRequest::default());
        self.template.as_ref().map(|template| template.source(&options)).transpose()
    }

    /// The prompt for the assistant's next turn. An assistant's message without calls at the end is the beginning of
    /// that turn, which is to be continued.
    ///
    /// Templates get the reasoning that was asked for, as the [profile](Profile::reasoning) makes it possible, as
    /// `enable_thinking`, `thinking` and `reasoning_effort`, and arguments of tool calls as objects. Nemotron is told by
    /// `/think` and `/no_think`.
    ///
    /// # Errors
    /// - [`ErrorKind::ChatInvalid`] when the model's markup has no place for the messages, or its template refuses them.
    /// - [`ErrorKind::TemplateInvalid`] when the template fails, computes without end, or is needed and missing.
    /// - [`ErrorKind::InvalidArgument`] when there is no template of the asked name, or a variable is an option.
    /// - [`ErrorKind::TokenizerInvalid`] when the tokenizer fails on the prompt.
    pub fn render(&self, messages: &[Message], options: &RenderOptions) -> Result<ChatPrompt> {
        if !options.trust_messages {
            messages.iter().enumerate().try_for_each(|(at, message)| self.guard.role(at, message.role()))?;
        }
        let (messages, said) = continued(messages);
        let reasoning = self.profile.reasoning(options.reasoning);
        let renderer = match self.profile.prompt_renderer {
            // Its markup for tools is the template's only.
            PromptRenderer::Gemma4 if !options.tools.is_empty() || has_calls(messages) => {
                PromptRenderer::Tokenizer
            }
            other => other,
        };
        let template_options = options.for_template(reasoning);
        if renderer == PromptRenderer::Tokenizer {
            let template = self.template.as_ref().ok_or_else(no_template)?;
            let mut messages: Vec<Json> = messages.iter().map(Message::with_parsed_arguments).collect();
            if self.profile.family == "nemotron"
                && let Some(thinks) = reasoning.enable_thinking
            {
                tell_nemotron(&mut messages, thinks);
            }
            let conversation = Conversation::new(messages, &template_options);
            return self.finished(&conversation, &said, options, |conversation| {
                template.render_conversation(conversation, &template_options)
            });
        }
        options.refuse_variables(renderer)?;
        if renderer == PromptRenderer::Gemma4 {
            let turn = gemma4::Turn { thinks: reasoning.enable_thinking == Some(true), answers: true };
            let conversation = Conversation::new(gemma4::without_thoughts(messages), &template_options);
            return self.finished(&conversation, &said, options, |conversation| {
                gemma4::render(&conversation.messages, turn)
            });
        }
        let mode = dsml::Mode { thinks: reasoning.enable_thinking != Some(false), answers: true };
        let messages = messages.iter().map(Message::with_parsed_arguments).collect();
        let conversation = Conversation::new(messages, &template_options);
        self.finished(&conversation, &said, options, |conversation| {
            dsml::render(&conversation.messages, &conversation.tools, mode)
        })
    }

    fn finished(
        &self,
        conversation: &Conversation,
        said: &str,
        options: &RenderOptions,
        render: impl Fn(&Conversation) -> Result<String>,
    ) -> Result<ChatPrompt> {
        let (text, tokens) = if options.trust_messages {
            let text = render(conversation)? + said;
            let tokens = self.tokenizer.encode(&text, false)?;
            (text, tokens)
        } else {
            self.guard.prompt(&self.tokenizer, conversation, said, render)?
        };
        Ok(ChatPrompt { text, tokens })
    }
}

impl RenderOptions {
    fn for_template(&self, reasoning: ReasoningRequest) -> TemplateOptions {
        let mut options = TemplateOptions {
            tools: self.tools.clone(),
            documents: self.documents.clone(),
            template: self.template.clone(),
            now: self.now,
            ..TemplateOptions::default()
        };
        if let Some(thinks) = reasoning.enable_thinking {
            options = options.variable("enable_thinking", thinks).variable("thinking", thinks);
        }
        if let Some(effort) = reasoning.effort {
            options = options.variable("reasoning_effort", effort.as_str());
        }
        // What was set by name has the last word.
        self.variables.iter().fold(options, |options, (name, value)| options.variable(name, value.clone()))
    }

    /// Renderers other than templates have no use for what only these know.
    fn refuse_variables(&self, renderer: PromptRenderer) -> Result<()> {
        let given = [
            ("variables", !self.variables.is_empty()),
            ("documents", !self.documents.is_empty()),
            ("template", self.template.is_some()),
        ];
        match given.iter().find(|(_, given)| *given) {
            Some((field, _)) => Err(Error::argument(
                field,
                format!("the model's prompts are made by renderer `{renderer}`, without a template"),
            )
            .with_hint("leave it out, or set `prompt_renderer = \"tokenizer\"` in the model's card")),
            None => Ok(()),
        }
    }
}

fn no_template() -> Error {
    Error::new(ErrorKind::TemplateInvalid, "the model has no chat template").with_hint(
        "use a checkpoint with `tokenizer_config.json`, `chat_template.jinja` or `tokenizer.chat_template`, or give the model a text",
    )
}

fn has_calls(messages: &[Message]) -> bool {
    messages.iter().any(|message| !message.tool_calls().is_empty())
}

/// Messages, and what the assistant's next turn begins with.
fn continued(messages: &[Message]) -> (&[Message], String) {
    match messages.split_last() {
        Some((last, before)) if last.role() == "assistant" && last.tool_calls().is_empty() => {
            match last.content() {
                Content::Text(text) => (before, text.to_owned()),
                _ => (messages, String::new()),
            }
        }
        _ => (messages, String::new()),
    }
}

/// Says in the first system message whether the model is to think, unless a message says so already.
fn tell_nemotron(messages: &mut Vec<Json>, thinks: bool) {
    let role = |message: &Json| message.get("role").and_then(Json::as_str).unwrap_or_default().to_owned();
    let said = messages.iter().any(|message| {
        let content = message.get("content").and_then(Json::as_str).unwrap_or_default();
        let asks = matches!(role(message).as_str(), "system" | "developer" | "user");
        asks && (content.contains("/think") || content.contains("/no_think"))
    });
    if said {
        return;
    }
    let control = if thinks { "/think" } else { "/no_think" };
    match messages.first_mut() {
        Some(first) if role(first) == "system" => {
            let content = first.get("content").and_then(Json::as_str).unwrap_or_default();
            let content = format!("{control}\n{content}");
            first.set("content", content.into());
        }
        _ => messages.insert(0, Message::system(control).as_json().clone()),
    }
}
