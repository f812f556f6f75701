//! How does a Swift task follow a running generation? What is behind `Generation`.

use std::sync::Arc;
use std::task::{Poll, ready};

use skulk::{CancelToken, Error, ErrorKind, GenerateOptions, Prompt};
use skulk_contract::functions::write;
use skulk_contract::options;

use crate::convert::{RawPrompt, id_bytes};
use crate::error::{Answer, options};
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
    /// Has another thread read what Swift gave, and begin one: of text that is everything so far or, with `append`,
    /// follows it.
    pub(crate) fn start(
        prompt: RawPrompt,
        given: String,
        cancel: Option<Arc<RawCancel>>,
        begin: impl FnOnce(Prompt, GenerateOptions) -> skulk::Result<skulk::Generation> + Send + 'static,
    ) -> Arc<Self> {
        let cancel = child(cancel);
        let own = cancel.clone();
        let begin = move || {
            let (mut asked, append) = options(&given, options::GenerateOptions::read)?;
            asked.cancel = own;
            Ok(begin(options::prompt(prompt.prompt()?, append)?, asked)?)
        };
        Arc::new(Self(Running::start(cancel, begin)))
    }

    /// Has another thread go on with one.
    pub(crate) fn resume(
        cancel: Option<Arc<RawCancel>>,
        resume: impl FnOnce(CancelToken) -> skulk::Result<skulk::Generation> + Send + 'static,
    ) -> Arc<Self> {
        let cancel = child(cancel);
        let own = cancel.clone();
        Arc::new(Self(Running::start(cancel, move || Ok(resume(own)?))))
    }
}

#[uniffi::export]
impl RawGeneration {
    /// The prompt's tokens.
    pub async fn prompt_ids(&self) -> Answer<Vec<u8>> {
        self.0.see(|running| id_bytes(running.prompt_ids())).await
    }

    /// The next event; none behind the last.
    pub async fn next(&self) -> Answer<Option<RawEvent>> {
        let event = self.0.wait(skulk::Generation::poll_event).await?.transpose()?;
        event.map(|event| raw(&event)).transpose()
    }

    /// Runs to the end, and all that was not read yet as JSON.
    pub async fn output(&self) -> Answer<String> {
        Ok(write(&self.0.wait(skulk::Generation::poll_output).await??)?)
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
            .await?;
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
