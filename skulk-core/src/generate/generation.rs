//! How does a caller follow a running generation? A thread, a bounded channel, an iterator.

use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use serde::Serialize;

use super::run;
use super::session::Turn;
use crate::cancel::CancelToken;
use crate::error::{Error, ErrorKind, Result};
use crate::generate::{Event, Finish, GenerateOptions};
use crate::ids::TokenId;

/// Events that may wait for a slow reader before the generation waits for it.
const BACKLOG: usize = 32;

/// A running generation: an iterator over its events. Dropping it cancels.
///
/// After an error, or after the event with [`Event::finish`], the iterator ends.
pub struct Generation {
    events: Option<Receiver<Result<Event>>>,
    prompt_ids: Vec<TokenId>,
    cancel: CancelToken,
    thread: Option<JoinHandle<()>>,
}

/// A whole generation, collected.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Output {
    /// The generated text.
    pub text: String,
    /// The sampled tokens, an end-of-sequence token included.
    pub ids: Vec<TokenId>,
    /// Why and how it ended.
    pub finish: Finish,
}

impl Generation {
    pub(super) fn start(turn: Turn, prompt: Vec<TokenId>, mut options: GenerateOptions) -> Result<Self> {
        let (sender, events) = sync_channel(BACKLOG);
        // Dropping this handle must not cancel whatever else the caller's token is for.
        let cancel = options.cancel.child();
        options.cancel = cancel.clone();
        let prompt_ids = prompt.clone();
        let thread = std::thread::Builder::new()
            .name("skulk-generate".into())
            .spawn(move || {
                let result = run::run(&turn.shared, prompt, &options, |event| sender.send(Ok(event)).is_ok());
                // The session must be free by the time the reader sees the stream end.
                drop(turn);
                if let Err(error) = result {
                    // Nobody listens any more: nobody needs to know.
                    let _ = sender.send(Err(error));
                }
            })
            .map_err(|e| {
                Error::new(ErrorKind::EngineFailed, "cannot start the generation's thread").with_source(e)
            })?;
        Ok(Self { events: Some(events), prompt_ids, cancel, thread: Some(thread) })
    }

    /// The prompt's tokens, special ones included.
    pub fn prompt_ids(&self) -> &[TokenId] {
        &self.prompt_ids
    }

    /// Asks the generation to end; the iterator yields [`ErrorKind::Cancelled`] within one layer's
    /// work, after the events that are already there.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// The next event if it comes within `timeout`; `Ready(None)` after the last.
    pub fn poll(&mut self, timeout: Duration) -> Poll<Option<Result<Event>>> {
        let Some(events) = &self.events else { return Poll::Ready(None) };
        match events.recv_timeout(timeout) {
            Ok(event) => Poll::Ready(Some(self.seen(event))),
            Err(RecvTimeoutError::Timeout) => Poll::Pending,
            Err(RecvTimeoutError::Disconnected) => Poll::Ready(Some(self.seen(Err(lost())))),
        }
    }

    /// Runs to the end and returns the text that was not read yet.
    ///
    /// # Errors
    /// As [`output`](Self::output).
    pub fn text(&mut self) -> Result<String> {
        Ok(self.output()?.text)
    }

    /// Runs to the end and returns everything that was not read yet.
    ///
    /// # Errors
    /// Whatever ends the generation early; [`ErrorKind::InvalidArgument`] when it was already read
    /// to its end.
    pub fn output(&mut self) -> Result<Output> {
        if self.events.is_none() {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "expected a generation with events left to read, found one at its end",
            )
            .with_hint("keep what was read first, or start another generation"));
        }
        let mut text = String::new();
        let mut ids = Vec::new();
        for event in self {
            let event = event?;
            text.push_str(&event.text);
            ids.extend(event.token.map(|t| t.id));
            if let Some(finish) = event.finish {
                return Ok(Output { text, ids, finish });
            }
        }
        Err(lost())
    }

    /// Notes the stream's end.
    fn seen(&mut self, event: Result<Event>) -> Result<Event> {
        if event.as_ref().map_or(true, |e| e.finish.is_some()) {
            self.stop();
        }
        event
    }

    /// Ends the thread and waits for it: at most one layer's work.
    fn stop(&mut self) {
        // Without a receiver a thread that waits to send goes on, and then finds the token.
        self.events = None;
        if let Some(thread) = self.thread.take() {
            // A panic in it has already been reported as a lost stream.
            let _ = thread.join();
        }
    }
}

impl Iterator for Generation {
    type Item = Result<Event>;

    fn next(&mut self) -> Option<Self::Item> {
        let event = self.events.as_ref()?.recv().unwrap_or_else(|_| Err(lost()));
        Some(self.seen(event))
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.cancel.cancel();
            self.stop();
        }
    }
}

fn lost() -> Error {
    Error::new(ErrorKind::Internal, "the generation ended without saying why").with_hint("please report this")
}
