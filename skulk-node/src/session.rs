//! How does Node.js hold a conversation? What is behind `Session`.

use std::sync::Arc;

use napi::bindgen_prelude::Function;
use napi_derive::napi;
use skulk_contract::options::{self, GenerateOptions};

use crate::arguments_of;
use crate::chat::{ChatStream, conversation};
use crate::error::{open, raise};
use crate::generation::Generation;
use crate::job::{self, Answer, CancelToken, Tell};
use crate::model::{Given, Model, numbers, prompt};
use crate::placement::Placement;

/// One conversation with a model.
#[napi]
pub struct Session(Option<Arc<skulk::Session>>);

impl Session {
    pub(crate) fn new(session: skulk::Session) -> Self {
        Self(Some(Arc::new(session)))
    }

    fn get(&self) -> napi::Result<&Arc<skulk::Session>> {
        open(&self.0, "session")
    }
}

#[napi]
impl Session {
    /// Starts generating and returns at once. `wake` is called whenever there is more to read than a poll found.
    #[napi(catch_unwind)]
    pub fn generate(
        &self,
        text: Given,
        arguments: String,
        token: &CancelToken,
        wake: Function<'_, (), ()>,
    ) -> napi::Result<Generation> {
        let read = || {
            let (options, spelling) = arguments_of(&arguments)?.options()?;
            GenerateOptions::read(options, spelling)
        };
        let (mut given, append) = read().map_err(raise)?;
        let prompt = options::prompt(prompt(text), append).map_err(raise)?;
        let session = self.get()?;
        Generation::start(&wake, token.child(), |cancel| {
            given.cancel = cancel;
            session.generate(prompt, given)
        })
    }

    /// Answers a conversation, and returns at once. `wake` is called whenever there is more to read than a poll found.
    #[napi(catch_unwind)]
    pub fn chat(
        &self,
        arguments: String,
        token: &CancelToken,
        wake: Function<'_, (), ()>,
    ) -> napi::Result<ChatStream> {
        let (messages, mut options) = conversation(&arguments)?.chat().map_err(raise)?;
        let session = self.get()?;
        ChatStream::start(&wake, token.child(), |cancel| {
            options.generate.cancel = cancel;
            session.chat(&messages, &options)
        })
    }

    /// All tokens of the conversation.
    #[napi(catch_unwind)]
    pub fn tokens(&self) -> napi::Result<Vec<u32>> {
        self.get()?.tokens().map(|tokens| numbers(&tokens)).map_err(raise)
    }

    /// Forgets all tokens but the first `len`.
    #[napi(catch_unwind)]
    pub fn truncate(&self, len: u32) -> napi::Result<()> {
        self.get()?.truncate(len as usize).map_err(raise)
    }

    /// Another session that begins as this one is.
    #[napi(catch_unwind)]
    pub fn fork(&self) -> napi::Result<Self> {
        self.get()?.fork().map(Self::new).map_err(raise)
    }

    /// Writes the conversation to a file.
    #[napi(catch_unwind)]
    pub fn save(&self, path: String, token: &CancelToken, tell: Tell<'_>) -> napi::Result<()> {
        let session = Arc::clone(self.get()?);
        job::start(&tell, token, move |_| session.save(path).map(|()| Answer::Json("null".into())))
    }

    /// The same conversation, with its model placed otherwise.
    #[napi(catch_unwind)]
    pub fn recover(&self, placement: &Placement, token: &CancelToken, tell: Tell<'_>) -> napi::Result<()> {
        let (session, placement) = (Arc::clone(self.get()?), placement.0.clone());
        job::start(&tell, token, move |work| {
            session.recover_with(placement, work.cancel).map(Answer::Session)
        })
    }

    /// The same, in a model that is loaded already.
    #[napi(catch_unwind)]
    pub fn recover_in(&self, model: &Model, token: &CancelToken, tell: Tell<'_>) -> napi::Result<()> {
        let (session, model) = (Arc::clone(self.get()?), model.get()?.clone());
        job::start(&tell, token, move |_| session.recover_in(&model).map(Answer::Session))
    }

    /// Goes on with the generation that an error cut off, as `generate` begins one.
    #[napi(catch_unwind)]
    pub fn resume(&self, token: &CancelToken, wake: Function<'_, (), ()>) -> napi::Result<Generation> {
        let session = self.get()?;
        Generation::start(&wake, token.child(), |cancel| session.resume_with(cancel))
    }

    /// Lets go of its keys and values, which are freed with the last of its generations.
    #[napi(catch_unwind)]
    pub fn close(&mut self) {
        self.0 = None;
    }
}
