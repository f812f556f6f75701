//! How does Swift hold a conversation? What is behind `Session`.

use std::sync::{Arc, PoisonError, RwLock};

use skulk_contract::options::GenerateOptions;

use crate::convert::{RawPrompt, id_bytes, unsigned};
use crate::error::{Answer, closed, options};
use crate::generation::RawGeneration;
use crate::work::RawCancel;

/// What is behind a `Session`.
#[derive(uniffi::Object)]
pub struct RawSession(RwLock<Option<skulk::Session>>);

impl RawSession {
    pub(crate) fn new(session: skulk::Session) -> Arc<Self> {
        Arc::new(Self(RwLock::new(Some(session))))
    }

    fn with<T>(&self, use_it: impl FnOnce(&skulk::Session) -> Answer<T>) -> Answer<T> {
        let session = self.0.read().unwrap_or_else(PoisonError::into_inner);
        session.as_ref().ok_or_else(|| closed("session")).and_then(use_it)
    }
}

#[uniffi::export]
impl RawSession {
    /// Starts generating.
    pub fn generate(
        &self,
        prompt: RawPrompt,
        given: String,
        cancel: Option<Arc<RawCancel>>,
    ) -> Answer<Arc<RawGeneration>> {
        let given = options(&given, GenerateOptions::read)?;
        self.with(|session| RawGeneration::start(session, prompt, given, cancel))
    }

    /// All tokens of the conversation.
    pub fn tokens(&self) -> Answer<Vec<u8>> {
        self.with(|session| Ok(id_bytes(&session.tokens()?)))
    }

    /// Forgets all tokens but the first `len`.
    pub fn truncate(&self, len: i64) -> Answer<()> {
        let len = unsigned("len", len)?;
        self.with(|session| Ok(session.truncate(len)?))
    }

    /// Lets go of it: its running generation goes on.
    pub fn close(&self) {
        let session = self.0.write().unwrap_or_else(PoisonError::into_inner).take();
        drop(session);
    }
}
