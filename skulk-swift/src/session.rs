//! How does Swift hold a conversation? What is behind `Session`.

use std::sync::Arc;

use skulk_contract::options::GenerateOptions;

use crate::chat::RawChatStream;
use crate::convert::{RawPrompt, id_bytes, unsigned};
use crate::error::{Answer, options};
use crate::generation::RawGeneration;
use crate::handle::Handle;
use crate::model::RawModel;
use crate::plan::RawPlacement;
use crate::work::{RawCancel, run};

/// What is behind a `Session`.
#[derive(uniffi::Object)]
pub struct RawSession(Handle<Arc<skulk::Session>>);

impl RawSession {
    pub(crate) fn new(session: skulk::Session) -> Arc<Self> {
        Arc::new(Self(Handle::new(Arc::new(session))))
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
        RawGeneration::start(&*self.0.get()?, prompt, given, cancel)
    }

    /// Answers a conversation.
    pub fn chat(&self, given: String, cancel: Option<Arc<RawCancel>>) -> Answer<Arc<RawChatStream>> {
        RawChatStream::start(&*self.0.get()?, &given, cancel)
    }

    /// All tokens of the conversation.
    pub fn tokens(&self) -> Answer<Vec<u8>> {
        Ok(id_bytes(&self.0.get()?.tokens()?))
    }

    /// Forgets all tokens but the first `len`.
    pub fn truncate(&self, len: i64) -> Answer<()> {
        let len = unsigned("len", len)?;
        Ok(self.0.get()?.truncate(len)?)
    }

    /// Another session that begins as this one is.
    pub fn fork(&self) -> Answer<Arc<Self>> {
        Ok(Self::new(self.0.get()?.fork()?))
    }

    /// Writes the conversation to a file.
    pub async fn save(&self, path: String) -> Answer<()> {
        let session = self.0.get()?;
        run(move || session.save(path)).await
    }

    /// The same conversation, with its model placed otherwise.
    pub async fn recover(&self, placement: Arc<RawPlacement>) -> Answer<Arc<Self>> {
        let (session, placement) = (self.0.get()?, placement.0.clone());
        Ok(Self::new(run(move || session.recover(placement)).await?))
    }

    /// The same, in a model that is loaded already.
    pub async fn recover_in(&self, model: Arc<RawModel>) -> Answer<Arc<Self>> {
        let (session, model) = (self.0.get()?, model.0.get()?);
        Ok(Self::new(run(move || session.recover_in(&model)).await?))
    }

    /// Goes on with the generation that an error cut off.
    pub fn resume(&self, cancel: Option<Arc<RawCancel>>) -> Answer<Arc<RawGeneration>> {
        RawGeneration::resume(&*self.0.get()?, cancel)
    }

    /// Lets go of it: its running generation goes on.
    pub fn close(&self) {
        self.0.close();
    }
}
