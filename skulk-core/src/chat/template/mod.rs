//! What prompt does a model's own Jinja template make of messages?
//!
//! Templates are compiled once, by minijinja, and rendered as transformers renders them with Jinja 2: its functions and
//! filters, Python's methods, and Python's way of printing values. Work, recursion and output of a rendering are
//! bounded.

mod clock;
mod cost;
mod environment;
mod generator;
mod held;
mod methods;
mod prepare;
mod python;
mod source;
mod texts;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::SystemTime;

pub(crate) use source::TemplateSources;

use minijinja::value::Value;
use minijinja::{Environment, ErrorKind as Failure};

use super::json::Json;
use super::message::{Message, Tool};
use crate::error::{Error, ErrorKind, Result};
use crate::macros::setters;
use crate::weights::Checkpoint;

/// The template for conversations without a name.
const DEFAULT: &str = "default";
/// Templates of one model: more than any has.
const TEMPLATES_MAX: usize = 64;
/// The template for conversations with tools, where there is one.
const TOOL_USE: &str = "tool_use";

/// A model's chat templates, compiled. Immutable and `Send + Sync`.
///
/// ```
/// use skulk::chat::{ChatTemplate, Message, TemplateOptions};
/// let source = "{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}\n{% endfor %}";
/// let template = ChatTemplate::new(source)?;
/// let text = template.render(&[Message::user(" Hello ")], &TemplateOptions::default())?;
/// assert_eq!(text, "<|user|>Hello\n");
/// # Ok::<(), skulk::Error>(())
/// ```
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    /// Names and sources.
    sources: Vec<(String, String)>,
    /// Variables for special tokens' texts: `bos_token` and the like.
    special_tokens: Vec<(String, String)>,
}

/// What a template is rendered with beside messages.
///
/// `Default`: the prompt for an answer, without tools, at the time of the call.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TemplateOptions {
    /// What the model may call.
    pub tools: Vec<Tool>,
    /// Documents to answer from, for templates that know them.
    pub documents: Vec<Json>,
    /// Ends with what begins the assistant's turn.
    pub add_generation_prompt: bool,
    /// Further variables, such as `enable_thinking`.
    pub variables: Vec<(String, Json)>,
    /// Which of several templates; `None`: `tool_use` where tools are given and there is one, else `default`.
    pub template: Option<String>,
    /// What `strftime_now` tells, in UTC; `None`: the system's clock.
    pub now: Option<SystemTime>,
}

impl Default for TemplateOptions {
    fn default() -> Self {
        Self {
            tools: Vec::new(),
            documents: Vec::new(),
            add_generation_prompt: true,
            variables: Vec::new(),
            template: None,
            now: None,
        }
    }
}

setters!(TemplateOptions {
    /// Sets what the model may call.
    tools: impl IntoIterator<Item = Tool> => tools.into_iter().collect();
    /// Sets documents to answer from.
    documents: impl IntoIterator<Item = Json> => documents.into_iter().collect();
    /// Says whether the prompt ends with what begins the assistant's turn.
    add_generation_prompt: bool;
    /// Chooses one of several templates.
    template: impl Into<String> => Some(template.into());
    /// Sets the clock.
    now: SystemTime => Some(now);
});

impl TemplateOptions {
    /// Sets a variable of the template's.
    #[must_use]
    pub fn variable(mut self, name: &str, value: impl Into<Json>) -> Self {
        self.variables.retain(|(other, _)| other != name);
        self.variables.push((name.to_owned(), value.into()));
        self
    }
}

impl ChatTemplate {
    /// Compiles a template.
    ///
    /// # Errors
    /// [`ErrorKind::TemplateInvalid`] with the line that is not Jinja.
    pub fn new(source: impl Into<String>) -> Result<Self> {
        Self::named([(DEFAULT.to_owned(), source.into())])
    }

    /// Compiles several templates, of which `default` and `tool_use` are chosen by themselves. Of several of one name
    /// the last counts.
    ///
    /// # Errors
    /// [`ErrorKind::TemplateInvalid`] with the template and the line that is not Jinja.
    pub fn named(sources: impl IntoIterator<Item = (String, String)>) -> Result<Self> {
        let mut found: Vec<(String, String)> = Vec::new();
        for (name, source) in sources {
            let count = found.len();
            match found.iter_mut().find(|(other, _)| *other == name) {
                Some(earlier) => earlier.1 = source,
                None if count == TEMPLATES_MAX => {
                    return Err(limit(&name, "there are more chat templates than any model needs"));
                }
                None => found.push((name, source)),
            }
        }
        let sources = found;
        let environment = environment::with_stack(|| {
            let mut environment = environment::environment()?;
            for (name, source) in &sources {
                if source.len() > environment::SOURCE_MAX {
                    return Err(limit(name, "the chat template is longer than any template needs"));
                }
                let prepared = prepare::prepared(source).ok_or_else(|| {
                    limit(name, "the chat template has longer expressions than any template needs")
                })?;
                environment
                    .add_template_owned(name.clone(), prepared)
                    .map_err(|e| failed(name, "the chat template is not Jinja that can be read", e))?;
            }
            Ok(environment)
        })?;
        Ok(Self { environment, sources, special_tokens: Vec::new() })
    }

    /// The templates of a checkpoint: `chat_template.jinja`, `additional_chat_templates/` or `tokenizer_config.json` in
    /// a Hugging Face folder, `tokenizer.chat_template` in a GGUF file; `None` where there is none.
    ///
    /// # Errors
    /// [`ErrorKind::TemplateInvalid`] when a template cannot be read or compiled.
    pub fn from_checkpoint(checkpoint: &dyn Checkpoint) -> Result<Option<Self>> {
        Self::found(source::of_checkpoint(checkpoint)?)
    }

    /// The templates that a checkpoint was found to have.
    pub(crate) fn found(found: TemplateSources) -> Result<Option<Self>> {
        if found.templates.is_empty() {
            return Ok(None);
        }
        let template = Self::named(found.templates).map_err(|e| match found.file {
            Some(file) => e.with("file", file.display()),
            None => e,
        })?;
        Ok(Some(Self { special_tokens: found.special_tokens, ..template }))
    }

    /// Sets the variable `name`, such as `bos_token`, to a special token's text.
    #[must_use]
    pub fn special_token(mut self, name: &str, text: &str) -> Self {
        self.special_tokens.retain(|(other, _)| other != name);
        self.special_tokens.push((name.to_owned(), text.to_owned()));
        self
    }

    /// The templates' names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.sources.iter().map(|(name, _)| name.as_str())
    }

    /// The source of the template that `options` choose.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] when there is none of that name.
    pub fn source(&self, options: &TemplateOptions) -> Result<&str> {
        let has = |wanted: &str| self.sources.iter().find(|(name, _)| name == wanted);
        let found = match &options.template {
            Some(name) => has(name),
            None if options.tools.is_empty() => has(DEFAULT),
            None => has(TOOL_USE).or_else(|| has(DEFAULT)),
        };
        // A single one needs no name.
        let single =
            || self.sources.first().filter(|_| self.sources.len() == 1 && options.template.is_none());
        found.or_else(single).map(|(_, source)| source.as_str()).ok_or_else(|| {
            let names: Vec<_> = self.names().map(|name| format!("`{name}`")).collect();
            let wanted = options.template.as_deref().unwrap_or(DEFAULT);
            Error::argument("template", format!("expected one of {}, found `{wanted}`", names.join(", ")))
                .with_hint("name one of the model's templates")
        })
    }

    /// The prompt as text, as transformers renders it. Texts of special tokens in messages are as they are: for a
    /// model, use [`ChatRenderer`](super::ChatRenderer), which tells them apart.
    ///
    /// # Errors
    /// - [`ErrorKind::ChatInvalid`] when the template refuses the messages.
    /// - [`ErrorKind::TemplateInvalid`] when it fails, or computes, recurses or writes without end.
    /// - [`ErrorKind::InvalidArgument`] when there is no template of the asked name.
    pub fn render(&self, messages: &[Message], options: &TemplateOptions) -> Result<String> {
        let messages = messages.iter().map(|message| message.as_json().clone()).collect();
        self.render_conversation(&Conversation::new(messages, options)?, options)
    }

    pub(super) fn render_conversation(
        &self,
        conversation: &Conversation,
        options: &TemplateOptions,
    ) -> Result<String> {
        let source = self.source(options)?;
        let name = self.sources.iter().find(|(_, other)| std::ptr::eq(other.as_str(), source));
        let name = name.map_or(DEFAULT, |(name, _)| name);
        environment::with_stack(|| {
            let tokens =
                self.special_tokens.iter().map(|(name, token)| (name.clone(), token.as_str().into()));
            let mut context: Vec<(String, Value)> = tokens.collect();
            context.extend(conversation.values(options.add_generation_prompt)?);
            context.push((clock::VARIABLE.to_owned(), clock::seconds(options.now).into()));
            let meter = Arc::new(held::Meter::default());
            context.push((held::METER.to_owned(), Value::from_dyn_object(Arc::clone(&meter))));
            let template =
                self.environment.get_template(name).map_err(|e| failed(name, "no such template", e))?;
            let mut output = environment::Bounded::default();
            // What is left of the rendering goes here, too, where the stack is.
            let rendered = template.render_captured_to(Value::from_pairs(context), &mut output).map(drop);
            match rendered {
                // What is gone through then ends too soon.
                _ if meter.is_spent() => Err(limit(name, "the chat template computes without end")),
                Ok(()) => output.into_string(),
                Err(e) => Err(stopped(name, output.is_full(), e)),
            }
        })
    }
}

/// Why a rendering stopped.
fn stopped(name: &str, full: bool, e: minijinja::Error) -> Error {
    match environment::raised(&e) {
        Some(message) => Error::new(ErrorKind::ChatInvalid, "the chat template refuses the messages")
            .with("template", name)
            .with("says", message)
            .with_hint("send what the model's template allows: roles, their order, tools"),
        None if e.kind() == Failure::OutOfFuel => limit(name, "the chat template computes without end"),
        None if full => limit(name, "the chat template writes without end"),
        None => failed(name, "the chat template fails on the messages", e),
    }
}

/// All that is said, as JSON.
#[derive(Debug, Clone)]
pub(super) struct Conversation {
    pub(super) messages: Vec<Json>,
    pub(super) tools: Vec<Json>,
    documents: Vec<Json>,
    variables: Vec<(String, Json)>,
}

impl Conversation {
    pub(super) fn new(messages: Vec<Json>, options: &TemplateOptions) -> Result<Self> {
        let deep = |field, json: &Json| match json.is_deep() {
            true => Err(Error::new(ErrorKind::ChatInvalid, "expected JSON that does not nest without end")
                .with("field", field)
                .with_hint("send JSON of fewer levels")),
            false => Ok(()),
        };
        messages.iter().try_for_each(|message| deep("messages", message))?;
        options.documents.iter().try_for_each(|document| deep("documents", document))?;
        options.variables.iter().try_for_each(|(_, value)| deep("variables", value))?;
        Ok(Self {
            messages,
            tools: options.tools.iter().map(|tool| tool.as_json().clone()).collect(),
            documents: options.documents.clone(),
            variables: options.variables.clone(),
        })
    }

    /// With every text changed, but for roles, which are looked at before, and names that templates know.
    pub(super) fn mapped(&self, mut change: impl FnMut(&str) -> String) -> Self {
        let mut all = |items: &[Json]| items.iter().map(|item| item.mapped(&mut change)).collect::<Vec<_>>();
        let (mut messages, tools, documents) = (all(&self.messages), all(&self.tools), all(&self.documents));
        for (mapped, message) in messages.iter_mut().zip(&self.messages) {
            message.get("role").into_iter().for_each(|role| mapped.set("role", role.clone()));
        }
        let variables = self.variables.iter().map(|(name, value)| (name.clone(), value.mapped(&mut change)));
        Self { messages, tools, documents, variables: variables.collect() }
    }

    /// Calls `visit` with every text that is changed, and roles.
    pub(super) fn visit(&self, visit: &mut dyn FnMut(&str)) {
        let variables = self.variables.iter().map(|(_, value)| value);
        let all = self.messages.iter().chain(&self.tools).chain(&self.documents).chain(variables);
        all.for_each(|json| json.visit(visit));
    }

    fn values(&self, add_generation_prompt: bool) -> Result<Vec<(String, Value)>> {
        let list = |items: &[Json]| items.iter().map(value).collect::<Vec<_>>();
        let messages: Vec<Value> =
            self.messages.iter().map(|message| with_thinking(value(message))).collect();
        // What there is none of is none, not empty.
        let some = |list: Vec<Value>| if list.is_empty() { Value::from(()) } else { list.into() };
        let mut values = [
            ("messages", messages.into()),
            ("tools", some(list(&self.tools))),
            ("documents", some(list(&self.documents))),
            ("add_generation_prompt", add_generation_prompt.into()),
        ]
        .map(|(name, value): (&str, Value)| (name.to_owned(), value))
        .to_vec();
        let mut names: HashSet<String> = values.iter().map(|(name, _)| name.clone()).collect();
        for (name, json) in &self.variables {
            if !names.insert(name.clone()) {
                return Err(Error::argument(
                    "variables",
                    format!("`{name}` is an option of its own, or set twice"),
                ));
            }
            values.push((name.clone(), value(json)));
        }
        Ok(values)
    }
}

/// A message whose reasoning is there as `thinking`, too, which some templates read; transformers does the same.
fn with_thinking(message: Value) -> Value {
    let get = |key: &str| message.get_attr(key).unwrap_or_default();
    let reasoning = get("reasoning_content");
    if reasoning.is_undefined() || !get("thinking").is_undefined() {
        return message;
    }
    let pairs =
        message.as_object().and_then(|object| object.try_iter_pairs().map(Iterator::collect::<Vec<_>>));
    Value::from_pairs(pairs.unwrap_or_default().into_iter().chain([("thinking".into(), reasoning)]))
}

/// A value of templates.
fn value(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(value) => Value::from(*value),
        Json::Int(value) => i64::try_from(*value).map_or_else(|_| Value::from(*value), Value::from),
        Json::Float(value) => Value::from(*value),
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => Value::from(items.iter().map(value).collect::<Vec<_>>()),
        Json::Object(fields) => {
            Value::from_pairs(fields.iter().map(|(key, item)| (key.as_str(), value(item))))
        }
    }
}

/// A value as `tojson` writes it.
pub(super) fn to_json(json: &Json) -> Result<String> {
    let mut out = String::new();
    python::Dumps::default().write(&value(json), &mut out).map_err(|e| {
        Error::new(ErrorKind::ChatInvalid, "expected JSON that does not nest without end").with_source(e)
    })?;
    Ok(out)
}

fn limit(name: &str, message: &'static str) -> Error {
    Error::new(ErrorKind::TemplateInvalid, message)
        .with("template", name)
        .with_hint("the template is hostile or broken: use another one")
}

fn failed(name: &str, message: &'static str, source: minijinja::Error) -> Error {
    let mut error = Error::new(ErrorKind::TemplateInvalid, message).with("template", name);
    if let Some(line) = source.line() {
        error = error.with("line", line);
    }
    let says = source.detail().map_or_else(|| source.kind().to_string(), str::to_owned);
    error
        .with("says", says)
        .with_hint("the template or what it is given is not as transformers has it")
        .with_source(source)
}
