//! How does Swift hold a conversation? What is behind `Session`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use skulk::{Error, ErrorKind, Prompt};

use crate::chat::RawChatStream;
use crate::convert::{RawPrompt, id_bytes, unsigned};
use crate::error::{Answer, RawError};
use crate::generation::RawGeneration;
use crate::handle::Handle;
use crate::model::RawModel;
use crate::plan::RawPlacement;
use crate::work::{RawCancel, run};

/// What is behind a `Session`.
#[derive(uniffi::Object)]
pub struct RawSession(Handle<Arc<Own>>);

/// A session, and whether a thread begins one of its generations: it is busy from the call on.
struct Own {
    session: skulk::Session,
    begins: AtomicBool,
}

/// The right to begin one.
struct Turn(Arc<Own>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.begins.store(false, Ordering::Release);
    }
}

fn busy() -> RawError {
    Error::new(ErrorKind::SessionBusy, "the session is already generating")
        .with_hint("finish or drop the running generation first, or open another session")
        .into()
}

impl RawSession {
    pub(crate) fn new(session: skulk::Session) -> Arc<Self> {
        Arc::new(Self(Handle::new("session", Arc::new(Own { session, begins: AtomicBool::new(false) }))))
    }

    fn turn(&self) -> Answer<Turn> {
        let own = self.0.get()?;
        if own.begins.swap(true, Ordering::AcqRel) { Err(busy()) } else { Ok(Turn(own)) }
    }

    /// What it holds, while none is begun.
    fn free(&self) -> Answer<Arc<Own>> {
        let own = self.0.get()?;
        if own.begins.load(Ordering::Acquire) { Err(busy()) } else { Ok(own) }
    }
}

#[uniffi::export]
impl RawSession {
    /// Starts generating, on another thread.
    pub fn generate(
        &self,
        prompt: RawPrompt,
        given: String,
        cancel: Option<Arc<RawCancel>>,
    ) -> Answer<Arc<RawGeneration>> {
        let turn = self.turn()?;
        let begin = move |prompt: Prompt, options| turn.0.session.generate(prompt, options);
        Ok(RawGeneration::start(prompt, given, cancel, begin))
    }

    /// Answers a conversation.
    pub fn chat(&self, given: String, cancel: Option<Arc<RawCancel>>) -> Answer<Arc<RawChatStream>> {
        let turn = self.turn()?;
        Ok(RawChatStream::start(given, cancel, move |messages, options| {
            turn.0.session.chat(messages, options)
        }))
    }

    /// All tokens of the conversation.
    pub fn tokens(&self) -> Answer<Vec<u8>> {
        Ok(id_bytes(&self.free()?.session.tokens()?))
    }

    /// Forgets all tokens but the first `count`.
    pub fn truncate(&self, count: i64) -> Answer<()> {
        let count = unsigned("count", count)?;
        Ok(self.free()?.session.truncate(count)?)
    }

    /// Another session that begins as this one is.
    pub fn fork(&self) -> Answer<Arc<Self>> {
        Ok(Self::new(self.free()?.session.fork()?))
    }

    /// Writes the conversation to a file.
    pub async fn save(&self, path: String) -> Answer<()> {
        let own = self.free()?;
        run(move || own.session.save(path)).await
    }

    /// The same conversation, with its model placed otherwise.
    pub async fn recover(&self, placement: Arc<RawPlacement>, cancel: Arc<RawCancel>) -> Answer<Arc<Self>> {
        let (own, placement, cancel) = (self.free()?, placement.0.clone(), cancel.0.clone());
        Ok(Self::new(run(move || own.session.recover_with(placement, cancel)).await?))
    }

    /// The same, in a model that is loaded already.
    pub async fn recover_in(&self, model: Arc<RawModel>) -> Answer<Arc<Self>> {
        let (own, model) = (self.free()?, model.0.get()?);
        Ok(Self::new(run(move || own.session.recover_in(&model)).await?))
    }

    /// Goes on with the generation that an error cut off.
    pub fn resume(&self, cancel: Option<Arc<RawCancel>>) -> Answer<Arc<RawGeneration>> {
        let turn = self.turn()?;
        Ok(RawGeneration::resume(cancel, move |cancel| turn.0.session.resume_with(cancel)))
    }

    /// Lets go of it: its running generation goes on.
    pub fn close(&self) {
        self.0.close();
    }
}
