//! How does a Swift task step through a conversation whose functions it runs? What is behind `ToolChat`.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use skulk_contract::chat::{ToolStep, ToolSteps};
use skulk_contract::functions::write;

use crate::chat::conversation;
use crate::error::Answer;
use crate::running::Running;
use crate::work::RawCancel;

/// What is behind a `ToolChat`.
#[derive(uniffi::Object)]
pub struct RawToolSteps(Running<ToolSteps>);

impl RawToolSteps {
    /// Has another thread begin the first round.
    pub(crate) fn start(model: skulk::Model, given: String, cancel: &RawCancel) -> Arc<Self> {
        let cancel = cancel.0.child();
        let own = cancel.clone();
        let begin = move || Ok(conversation(&given)?.tools(&model, own)?);
        Arc::new(Self(Running::start(cancel, begin)))
    }
}

#[uniffi::export]
impl RawToolSteps {
    /// The next step as JSON; none behind the last.
    pub async fn next(&self) -> Answer<Option<String>> {
        let step = self.0.wait(ToolSteps::poll).await?.transpose()?;
        Ok(step.map(|step| write(&step)).transpose()?)
    }

    /// What became of a call: what its function gave, or the text of its error. What the model is told comes back as
    /// JSON. Another thread begins the round that follows.
    pub async fn give(&self, id: String, text: String, failed: bool) -> Answer<String> {
        let outcome = if failed { Err(text) } else { Ok(text) };
        self.0.change(move |steps| write(&steps.give(&id, outcome)?)).await
    }

    /// Which round it is, from 0.
    pub async fn round(&self) -> Answer<i64> {
        self.0.see(|steps| i64::try_from(steps.round()).unwrap_or(i64::MAX)).await
    }

    /// All of the conversation, as JSON.
    pub async fn messages(&self) -> Answer<String> {
        Ok(self.0.see(|steps| write(&steps.messages())).await??)
    }

    /// How the last answer that was read ended, as JSON.
    pub async fn finish(&self) -> Answer<Option<String>> {
        Ok(self.0.see(|steps| steps.finish().map(write).transpose()).await??)
    }

    /// Cancels, and waits until the answer has ended. A call that waits gets no result.
    pub async fn close(&self) -> Answer<()> {
        self.0.cancel();
        let skip = |steps: &mut ToolSteps, cx: &mut Context<'_>| {
            while let Some(step) = ready!(steps.poll(cx)) {
                if matches!(step, Ok(ToolStep::Call { .. })) {
                    break;
                }
            }
            Poll::Ready(())
        };
        self.0.wait(skip).await
    }
}
