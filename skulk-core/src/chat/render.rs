//! What is the prompt of a conversation, for a given model?

use std::cell::LazyCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;

use super::guard::Guard;
use super::json::Json;
use super::message::{Content, Message, Part, Tool};
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
    /// that turn, which is to be continued: the prompt ends behind what it says.
    ///
    /// Content in parts reaches templates that take parts. Others get the texts as one, a line each, as llama.cpp and vLLM
    /// give it. Parts with pictures, sound or files are refused.
    ///
    /// Templates get the reasoning that was asked for, as the [profile](Profile::reasoning) makes it possible, as
    /// `enable_thinking`, `thinking` and `reasoning_effort`, and arguments of tool calls as objects. Nemotron is told by
    /// `/think` and `/no_think`.
    ///
    /// # Errors
    /// - [`ErrorKind::ChatInvalid`] when the model's markup has no place for the messages, as for an answer that is to be
    ///   continued or the reasoning of one; when its template refuses them; or when a role is no word.
    /// - [`ErrorKind::TemplateInvalid`] when the template fails, computes without end, or is needed and missing.
    /// - [`ErrorKind::InvalidArgument`] when there is no template of the asked name, or a variable is an option.
    /// - [`ErrorKind::TokenizerInvalid`] when the tokenizer fails on the prompt.
    pub fn render(&self, messages: &[Message], options: &RenderOptions) -> Result<ChatPrompt> {
        if !options.trust_messages {
            messages.iter().enumerate().try_for_each(|(at, message)| self.guard.role(at, message.role()))?;
        }
        let (messages, continues) = continued(messages)?;
        let ended = |text: String, conversation: &Conversation| match continues {
            true => up_to_mark(text, conversation),
            false => Ok(text),
        };
        let reasoning = self.profile.reasoning(options.reasoning);
        let renderer = match self.profile.prompt_renderer {
            // Its markup for tools is the template's only.
            PromptRenderer::Gemma4 if !options.tools.is_empty() || has_calls(&messages) => {
                PromptRenderer::Tokenizer
            }
            other => other,
        };
        let template_options = options.for_template(reasoning).add_generation_prompt(!continues);
        if renderer == PromptRenderer::Tokenizer {
            let template = self.template.as_ref().ok_or_else(no_template)?;
            let messages = in_form(template, messages, &template_options)?;
            let mut messages: Vec<Json> = messages.iter().map(Message::with_parsed_arguments).collect();
            if self.profile.family == "nemotron"
                && let Some(thinks) = reasoning.enable_thinking
            {
                tell_nemotron(&mut messages, thinks);
            }
            let conversation = Conversation::new(messages, &template_options)?;
            return self.finished(&conversation, options, |conversation| {
                ended(template.render_conversation(conversation, &template_options)?, conversation)
            });
        }
        options.refuse_variables(renderer)?;
        if renderer == PromptRenderer::Gemma4 {
            let turn = gemma4::Turn { thinks: reasoning.enable_thinking == Some(true), answers: true };
            // What was said of an answer is behind the turn's beginning, as it is.
            let (before, begun) = messages.split_at(messages.len() - usize::from(continues));
            let mut before = gemma4::without_thoughts(before);
            before.extend(begun.iter().map(|begun| begun.as_json().clone()));
            let conversation = Conversation::new(before, &template_options)?;
            return self.finished(&conversation, options, |conversation| {
                let messages = &conversation.messages;
                let (before, begun) = messages.split_at(messages.len() - usize::from(continues));
                let mut text = gemma4::render(before, turn)?;
                text.extend(begun.iter().filter_map(|begun| begun.get("content")?.as_str()));
                ended(text, conversation)
            });
        }
        let mode = dsml::Mode { thinks: reasoning.enable_thinking != Some(false), answers: !continues };
        let messages = messages.iter().map(Message::with_parsed_arguments).collect();
        let conversation = Conversation::new(messages, &template_options)?;
        self.finished(&conversation, options, |conversation| {
            ended(dsml::render(&conversation.messages, &conversation.tools, mode)?, conversation)
        })
    }

    fn finished(
        &self,
        conversation: &Conversation,
        options: &RenderOptions,
        render: impl Fn(&Conversation) -> Result<String>,
    ) -> Result<ChatPrompt> {
        let (text, tokens) = if options.trust_messages {
            let text = render(conversation)?;
            let tokens = self.tokenizer.encode(&text, false)?;
            (text, tokens)
        } else {
            self.guard.prompt(&self.tokenizer, conversation, render)?
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
        let thinks = reasoning.enable_thinking.map(Json::Bool);
        let effort = reasoning.effort.map(|effort| Json::from(effort.as_str()));
        let told = [("enable_thinking", thinks.clone()), ("thinking", thinks), ("reasoning_effort", effort)];
        let told = told.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        // What was set by name has the last word.
        let mut places = HashMap::new();
        for (name, value) in told.chain(self.variables.iter().cloned()) {
            match places.get(&name) {
                Some(&at) => options.variables[at] = (name, value),
                None => {
                    places.insert(name.clone(), options.variables.len());
                    options.variables.push((name, value));
                }
            }
        }
        options
    }

    /// Renderers other than templates have no use for what only these know.
    fn refuse_variables(&self, renderer: PromptRenderer) -> Result<()> {
        let given = [
            ("variables", !self.variables.is_empty()),
            ("documents", !self.documents.is_empty()),
            ("template", self.template.is_some()),
            ("now", self.now.is_some()),
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

/// What a template is tried with: does it write the text, or the object?
const TRIED: &str = "Hello, who is there?";

/// Whether a template takes content in parts, rather than printing them as the objects that they are.
fn takes_parts(template: &ChatTemplate, options: &TemplateOptions) -> bool {
    let of_text = Message::user(TRIED);
    let part = [("type", "text".into()), ("text", TRIED.into())];
    let part = Json::Object(part.map(|(key, value): (&str, Json)| (key.to_owned(), value)).to_vec());
    let in_parts = of_text.with_content(Json::Array(vec![part]));
    let Ok(in_parts) = template.render(&[in_parts], options) else { return false };
    let Ok(of_text) = template.render(&[of_text], options) else { return in_parts.contains(TRIED) };
    let keys = |text: &str| text.matches("'type'").count() + text.matches("\"type\"").count();
    in_parts.contains(TRIED) && keys(&in_parts) == keys(&of_text)
}

/// Messages in the form that the template takes. Where that is text alone, texts in parts become one, a line each.
fn in_form(
    template: &ChatTemplate,
    messages: Vec<Message>,
    options: &TemplateOptions,
) -> Result<Vec<Message>> {
    let takes_parts = LazyCell::new(|| takes_parts(template, options));
    let in_form = |(at, message): (usize, Message)| {
        if !matches!(message.content(), Content::Parts(_)) {
            return Ok(message);
        }
        let mut texts = Vec::new();
        for (part, found) in message.parts().enumerate() {
            match found {
                Part::Text(text) => texts.push(text),
                Part::Other(kind, json) if is_media(kind, json) || !*takes_parts => {
                    return Err(Error::new(
                        ErrorKind::ChatInvalid,
                        format!(
                            "expected text, found a part of type `{kind}`, which the prompt has no place for"
                        ),
                    )
                    .with("field", format!("messages[{at}].content[{part}].type"))
                    .with_hint("send text"));
                }
                Part::Other(..) => {}
            }
        }
        Ok(if *takes_parts { message } else { message.saying(texts.join("\n")) })
    };
    messages.into_iter().enumerate().map(in_form).collect()
}

/// Whether a part has pictures, sound or a file: a template writes a mark for it at most.
fn is_media(kind: &str, part: &Json) -> bool {
    let Json::Object(fields) = part else { return false };
    let has_data = fields.iter().any(|(field, _)| field != "type" && field != "label");
    has_data && ["image", "audio", "video", "file"].iter().any(|media| kind.contains(media))
}

/// What marks the end of an answer that is to be continued: no character of Unicode's.
const MARK: char = '\u{10ffff}';

/// Messages, of which the last may be an answer that is to be continued, marked at its end. One that says nothing is left
/// out.
fn continued(messages: &[Message]) -> Result<(Vec<Message>, bool)> {
    let mut messages = messages.to_vec();
    let Some((begun, before)) = messages.split_last() else { return Ok((messages, false)) };
    if begun.role() != "assistant" || !begun.tool_calls().is_empty() {
        return Ok((messages, false));
    }
    let refused = |message: &'static str, hint: &'static str| {
        let field = format!("messages[{}].content", before.len());
        Err(Error::new(ErrorKind::ChatInvalid, message).with("field", field).with_hint(hint))
    };
    let Some(said) = begun.text_of_parts() else {
        return refused(
            "expected text in an answer that is to be continued, found parts of other types",
            "leave them out, or put a message behind it",
        );
    };
    if said.is_empty() && begun.reasoning_content().is_none_or(str::is_empty) {
        messages.pop();
        return Ok((messages, false));
    }
    let marked = begun.saying(format!("{said}{MARK}"));
    messages.pop();
    messages.push(marked);
    Ok((messages, true))
}

/// A rendering up to the mark, if all is there that the last of the messages has to say.
fn up_to_mark(text: String, conversation: &Conversation) -> Result<String> {
    let refused = |field: &str, message: &'static str| {
        let at = conversation.messages.len().saturating_sub(1);
        Err(Error::new(ErrorKind::ChatInvalid, message)
            .with("field", format!("messages[{at}].{field}"))
            .with_hint("leave it out, or put a message behind it"))
    };
    let marks: Vec<usize> = text.match_indices(MARK).map(|(at, _)| at).take(2).collect();
    let &[end] = &marks[..] else {
        return refused("content", "the model's template has no place for an answer that is to be continued");
    };
    let reasoning = conversation.messages.last().and_then(|last| last.get("reasoning_content")?.as_str());
    if !text[..end].contains(reasoning.unwrap_or_default().trim()) {
        return refused(
            "reasoning_content",
            "the model's template has no place for reasoning of an answer that is to be continued",
        );
    }
    Ok(text[..end].to_owned())
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
