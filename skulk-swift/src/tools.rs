//! How does a Swift task step through a conversation whose functions it runs? What is behind `ToolChat`.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use skulk_contract::chat::{ToolStep, ToolSteps};
use skulk_contract::functions::write;

use crate::chat::conversation;
use crate::error::Answer;
use crate::running::{Running, child};
use crate::work::RawCancel;

/// What is behind a `ToolChat`.
#[derive(uniffi::Object)]
pub struct RawToolSteps(Running<ToolSteps>);

impl RawToolSteps {
    /// Begins the first round.
    pub(crate) fn start(
        model: &skulk::Model,
        given: &str,
        cancel: Option<Arc<RawCancel>>,
    ) -> Answer<Arc<Self>> {
        let cancel = child(cancel);
        let steps = conversation(given)?.tools(model, cancel.clone())?;
        Ok(Arc::new(Self(Running::new(steps, cancel))))
    }
}

#[uniffi::export]
impl RawToolSteps {
    /// The next step as JSON; none behind the last.
    pub async fn next(&self) -> Answer<Option<String>> {
        let step = self.0.wait(ToolSteps::poll).await.transpose()?;
        Ok(step.map(|step| write(&step)).transpose()?)
    }

    /// What became of a call: what its function gave, or the text of its error. What the model is told comes back as
    /// JSON.
    pub fn give(&self, id: String, text: String, failed: bool) -> Answer<String> {
        let outcome = if failed { Err(text) } else { Ok(text) };
        Ok(write(&self.0.get().give(&id, outcome)?)?)
    }

    /// Which round it is, from 0.
    pub fn round(&self) -> i64 {
        i64::try_from(self.0.get().round()).unwrap_or(i64::MAX)
    }

    /// All of the conversation, as JSON.
    pub fn messages(&self) -> Answer<String> {
        Ok(write(&self.0.get().messages())?)
    }

    /// How the last answer that was read ended, as JSON.
    pub fn finish(&self) -> Answer<Option<String>> {
        Ok(self.0.get().finish().map(write).transpose()?)
    }

    /// Asks the answer to end that is being written.
    pub fn cancel(&self) {
        self.0.cancel();
    }

    /// Cancels, and waits until the answer has ended. A call that waits gets no result.
    pub async fn close(&self) {
        self.0.cancel();
        let skip = |steps: &mut ToolSteps, cx: &mut Context<'_>| {
            while let Some(step) = ready!(steps.poll(cx)) {
                if matches!(step, Ok(ToolStep::Call { .. })) {
                    break;
                }
            }
            Poll::Ready(())
        };
        self.0.wait(skip).await;
    }
}
