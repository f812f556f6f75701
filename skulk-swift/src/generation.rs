//! How does a Swift task follow a running generation? What is behind `Generation`.

use std::sync::Arc;
use std::task::{Poll, ready};

use skulk::{Error, ErrorKind};
use skulk_contract::functions::write;

use crate::convert::{RawPrompt, id_bytes};
use crate::error::Answer;
use crate::running::{Running, child};
use crate::work::RawCancel;

/// What is behind a `Generation`.
#[derive(uniffi::Object)]
pub struct RawGeneration(Running<skulk::Generation>);

/// One step: what is made for each token.
#[derive(uniffi::Record)]
pub struct RawEvent {
    /// Text that became certain.
    pub text: String,
    /// The token.
    pub token: Option<RawToken>,
    /// How it ended, as JSON.
    pub finish: Option<String>,
}

/// A sampled token.
#[derive(uniffi::Record)]
pub struct RawToken {
    /// Its id.
    pub id: u32,
    /// Its log-probability.
    pub logprob: Option<f32>,
    /// The likeliest tokens.
    pub top: Vec<RawLogprob>,
}

/// A token with its log-probability.
#[derive(uniffi::Record)]
pub struct RawLogprob {
    /// Its id.
    pub id: u32,
    /// Its log-probability.
    pub logprob: f32,
}

impl RawGeneration {
    /// Starts one, of text that is everything so far or, with `append`, follows it.
    pub(crate) fn start(
        session: &skulk::Session,
        prompt: RawPrompt,
        (mut options, append): (skulk::GenerateOptions, bool),
        cancel: Option<Arc<RawCancel>>,
    ) -> Answer<Arc<Self>> {
        let prompt = skulk_contract::options::prompt(prompt.prompt()?, append)?;
        options.cancel = child(cancel);
        let cancel = options.cancel.clone();
        Ok(Arc::new(Self(Running::new(session.generate(prompt, options)?, cancel))))
    }

    /// Goes on with one.
    pub(crate) fn resume(session: &skulk::Session, cancel: Option<Arc<RawCancel>>) -> Answer<Arc<Self>> {
        let cancel = child(cancel);
        Ok(Arc::new(Self(Running::new(session.resume_with(cancel.clone())?, cancel))))
    }
}

#[uniffi::export]
impl RawGeneration {
    /// The prompt's tokens.
    pub fn prompt_ids(&self) -> Answer<Vec<u8>> {
        Ok(id_bytes(self.0.get().prompt_ids()))
    }

    /// The next event; none behind the last.
    pub async fn next(&self) -> Answer<Option<RawEvent>> {
        self.0.wait(skulk::Generation::poll_event).await.transpose()?.map(|event| raw(&event)).transpose()
    }

    /// Runs to the end, and all that was not read yet as JSON.
    pub async fn output(&self) -> Answer<String> {
        Ok(write(&self.0.wait(skulk::Generation::poll_output).await?)?)
    }

    /// Asks it to end.
    pub fn cancel(&self) {
        self.0.cancel();
    }

    /// Cancels what is still running and waits until it has ended; the session is free then. Whether anything was left
    /// to read.
    pub async fn close(&self) -> Answer<bool> {
        self.0.cancel();
        let mut left = false;
        self.0
            .wait(|running, cx| {
                while ready!(running.poll_event(cx)).is_some() {
                    left = true;
                }
                Poll::Ready(())
            })
            .await;
        Ok(left)
    }

    /// Closes it for a reader whose task was cancelled: an error, where anything was left to read.
    pub async fn abandon(&self) -> Answer<()> {
        let left = self.close().await?;
        if left { Err(Error::new(ErrorKind::Cancelled, "the task was cancelled").into()) } else { Ok(()) }
    }
}

fn raw(event: &skulk::Event) -> Answer<RawEvent> {
    let logprob = |of: &skulk::TokenLogprob| RawLogprob { id: of.id.0, logprob: of.logprob };
    let token = event.token.as_ref().map(|token| RawToken {
        id: token.id.0,
        logprob: token.logprob,
        top: token.top_logprobs.iter().map(logprob).collect(),
    });
    Ok(RawEvent { text: event.text.clone(), token, finish: event.finish.as_ref().map(write).transpose()? })
}
