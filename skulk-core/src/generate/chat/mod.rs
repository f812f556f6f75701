//! How does a model take part in a conversation? Messages become a prompt, its answer events, calls of tools rounds.

mod answer;
mod event;
mod guide;
mod options;
mod reader;
mod request;
mod rounds;
mod speech;
mod stream;
#[cfg(test)]
mod tests;
mod toolbox;

pub use answer::ChatAnswer;
pub use event::{ChatCall, ChatEvent, ChatFinish, ChatFinishReason, ChatUsage};
pub use options::ChatOptions;
pub use request::ChatRequest;
pub use rounds::{ToolEvent, ToolResult, ToolRounds};
pub(in crate::generate) use speech::Origin;
pub use stream::ChatStream;
pub use toolbox::{OnToolFailure, ToolChat, Toolbox};

use self::guide::{Bound, Guide};
use self::reader::Reader;
use self::speech::Asked;
use super::channel::BACKLOG;
use super::session::Session;
use crate::chat::{ChatRenderer, Message};
use crate::error::Result;
use crate::generate::{Model, Prompt};

impl Model {
    /// Answers a conversation, in a session of its own: the model's profile says how messages become its prompt and what
    /// its answer consists of. What begins like another conversation is not computed again.
    ///
    /// ```
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/models/qwen2");
    /// use skulk::chat::Message;
    /// use skulk::{ChatEvent, ChatOptions, GenerateOptions, LoadOptions, Model};
    /// let model = Model::open(path, &LoadOptions::default())?;
    /// let mut messages = vec![Message::user("Hello")];
    /// let options = ChatOptions::default().generate(GenerateOptions::default().max_tokens(8));
    /// let mut stream = model.chat(&messages, &options)?;
    /// for event in &mut stream {
    ///     if let ChatEvent::Text { text } = event? {
    ///         print!("{text}");
    ///     }
    /// }
    /// messages.push(stream.answer()?.message);
    /// # Ok::<(), skulk::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for options that the model's profile or template cannot
    ///   honour, as [`ChatOptions`] says, and those that [`Session::generate`] refuses.
    /// - [`ChatInvalid`](crate::ErrorKind::ChatInvalid) when the model's markup has no place for the messages.
    /// - [`TemplateInvalid`](crate::ErrorKind::TemplateInvalid) when it has no chat template, or one that fails.
    /// - [`ContextOverflow`](crate::ErrorKind::ContextOverflow) when the conversation does not fit.
    pub fn chat(&self, messages: &[Message], options: &ChatOptions) -> Result<ChatStream> {
        self.session()?.chat(messages, options)
    }

    /// What turns messages into this model's prompts.
    ///
    /// # Errors
    /// [`TemplateInvalid`](crate::ErrorKind::TemplateInvalid) when it has no chat template that it needs, or none that can
    /// be read.
    pub fn chat_renderer(&self) -> Result<&ChatRenderer> {
        self.inner.speech.renderer(&self.inner.tokenizer)
    }
}

impl Session {
    /// Answers a conversation as [`Model::chat`] does. `messages` are all of it; what the session holds of it is not
    /// computed again.
    ///
    /// # Errors
    /// As [`Model::chat`], and [`SessionBusy`](crate::ErrorKind::SessionBusy) while a generation runs.
    pub fn chat(&self, messages: &[Message], options: &ChatOptions) -> Result<ChatStream> {
        let model = &self.shared.model;
        let asked = Asked::of(model.speech.renderer(&model.tokenizer)?, &model.tokenizer, messages, options)?;
        let reader = Reader::new(&model.tokenizer, &asked, options)?;
        let mut generate = options.generate.clone();
        generate.validate(&model.arch, model.second.as_deref())?;
        // The text keeps to it, not what comes before.
        let bound = generate.constraint.take().map(|constraint| {
            let grammar = model.grammars.begin(&constraint, &model.tokenizer, reader.detokenizer())?;
            let ends = model.tokenizer.eos_ids().to_vec();
            Result::Ok(Bound { grammar, ends, header: asked.header.clone(), begins: asked.begins })
        });
        let bound = bound.transpose()?;
        let steers = asked.budget.is_some() || bound.is_some() || !options.generate.stop.is_empty();
        let guide = steers.then(|| Box::new(Guide::new(reader.clone(), asked.budget.clone(), bound)) as _);
        #[cfg(test)]
        let guide = tests::scripted(guide);
        // They are looked for in what the answer says, not in its markup.
        generate.stop.clear();
        let generation = self.start(Prompt::Tokens(asked.prompt.tokens.clone()), generate, BACKLOG, guide)?;
        Ok(ChatStream::new(generation, reader, asked))
    }
}
