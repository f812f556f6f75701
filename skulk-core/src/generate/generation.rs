//! How does a caller follow a running generation? A channel, and an iterator or a poll with a waker.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use serde::Serialize;

use super::channel::{Receiver, channel};
use super::scheduler::Job;
use super::session::Turn;
use super::writing::{Start, Steering, Writing};
use crate::cancel::CancelToken;
use crate::error::{Error, ErrorKind, Result};
use crate::generate::{Event, Finish, GenerateOptions};
use crate::ids::TokenId;
use crate::macros::opaque;

/// A running generation: an iterator over its events, or a stream of them by [`poll_event`](Self::poll_event).
/// Dropping it cancels.
///
/// After an error, or after the event with [`Event::finish`], the iterator ends.
pub struct Generation {
    events: Option<Receiver>,
    /// What [`poll_output`](Self::poll_output) has read so far.
    read: (String, Vec<TokenId>),
    prompt_ids: Vec<TokenId>,
    cancel: CancelToken,
}

opaque!(Generation);

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
    pub(super) fn start(
        turn: Turn,
        prompt: Vec<TokenId>,
        options: GenerateOptions,
        backlog: usize,
        steering: Option<Box<dyn Steering>>,
    ) -> Result<Self> {
        let model = Arc::clone(&turn.shared.model);
        let start = Start {
            tokenizer: &model.tokenizer,
            quoted: &model.quoted,
            second: model.second.as_ref(),
            prompt: &prompt,
            options,
            vocab_size: model.arch.vocab_size,
            chunk: model.prefill_chunk,
            context: model.context,
            load_time: model.load_time,
            steering,
        };
        let writing = Box::new(Writing::new(start)?);
        Ok(Self::run(turn, prompt, writing, backlog))
    }

    /// Runs a generation that has come as far as these tokens.
    pub(super) fn run(turn: Turn, tokens: Vec<TokenId>, mut writing: Box<Writing>, backlog: usize) -> Self {
        let model = Arc::clone(&turn.shared.model);
        // What was cut off before cannot go on behind other tokens.
        turn.shared.state().interrupted = None;
        let (sender, events) = channel(backlog, Arc::clone(model.scheduler.signals()));
        // Dropping this handle must not cancel whatever else the caller's token is for.
        let (cancel, priority) = writing.tell_to(sender);
        let prompt_ids = tokens.clone();
        model.scheduler.add(Job { turn, tokens, cancel: cancel.clone(), priority, ask: writing });
        Self { events: Some(events), read: Default::default(), prompt_ids, cancel }
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

    /// Cancels what is still running and waits until it has ended, at most one layer's work. The session is free
    /// then, and the iterator at its end.
    ///
    /// A waker may call this, or drop the generation. Where it does so on the model's own thread, which cannot wait
    /// for itself, the session is free soon after.
    pub fn close(&mut self) {
        self.cancel.cancel();
        self.stop();
    }

    /// The next event if there is one, without waiting; `Ready(None)` after the last. While it is pending, the waker
    /// of the last call is woken once: by the next event, an error, cancellation or the end. It is called on the
    /// model's own thread, on which no session goes on before it returns, or on one that cancels.
    ///
    /// So no thread has to wait for each generation. This makes it a stream for an async runtime:
    ///
    /// ```
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/models/stories260K");
    /// # use skulk::{GenerateOptions, LoadOptions, Model};
    /// # let model = Model::open(path, &LoadOptions::default())?;
    /// let mut generation = model.generate("Once", GenerateOptions::default().max_tokens(8))?;
    /// let tell = async move {
    ///     let mut text = String::new();
    ///     while let Some(event) = std::future::poll_fn(|cx| generation.poll_event(cx)).await {
    ///         text.push_str(&event?.text);
    ///     }
    ///     skulk::Result::Ok(text)
    /// };
    /// # assert!(!pollster::block_on(tell)?.is_empty());
    /// # Ok::<(), skulk::Error>(())
    /// ```
    pub fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Event>>> {
        let Some(events) = &self.events else { return Poll::Ready(None) };
        let event = ready!(events.poll(cx)).unwrap_or_else(|| Err(lost()));
        Poll::Ready(Some(self.seen(event)))
    }

    /// [`output`](Self::output) without waiting: wakes as [`poll_event`](Self::poll_event) does.
    ///
    /// # Errors
    /// As [`output`](Self::output).
    pub fn poll_output(&mut self, cx: &mut Context<'_>) -> Poll<Result<Output>> {
        self.collect(|this| this.poll_event(cx))
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
        match self.collect(|this| Poll::Ready(this.next())) {
            Poll::Ready(output) => output,
            Poll::Pending => Err(lost()),
        }
    }

    /// Reads on until the end, or until there is nothing to read.
    fn collect(
        &mut self,
        mut next: impl FnMut(&mut Self) -> Poll<Option<Result<Event>>>,
    ) -> Poll<Result<Output>> {
        while let Some(event) = ready!(next(self)) {
            let event = event?;
            let (text, ids) = &mut self.read;
            text.push_str(&event.text);
            ids.extend(event.token.map(|t| t.id));
            if let Some(finish) = event.finish {
                let (text, ids) = std::mem::take(&mut self.read);
                return Poll::Ready(Ok(Output { text, ids, finish }));
            }
        }
        Poll::Ready(Err(Error::new(
            ErrorKind::InvalidArgument,
            "expected a generation with events left to read, found one at its end",
        )
        .with_hint("keep what was read first, or start another generation")))
    }

    /// Notes the stream's end.
    fn seen(&mut self, event: Result<Event>) -> Result<Event> {
        if event.as_ref().map_or(true, |e| e.finish.is_some()) {
            self.stop();
        }
        event
    }

    /// Waits until the session is free: at most one layer's work.
    fn stop(&mut self) {
        if let Some(events) = self.events.take() {
            events.wait_for_end();
        }
    }
}

impl Iterator for Generation {
    type Item = Result<Event>;

    fn next(&mut self) -> Option<Self::Item> {
        let event = self.events.as_ref()?.recv().unwrap_or_else(|| Err(lost()));
        Some(self.seen(event))
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        if self.events.is_some() {
            self.close();
        }
    }
}

fn lost() -> Error {
    Error::new(ErrorKind::Internal, "the generation ended without saying why")
}
