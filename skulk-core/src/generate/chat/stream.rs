//! How does a caller follow an answer? An iterator of its events, or a poll with a waker.

use std::collections::VecDeque;
use std::task::{Context, Poll, ready};

use super::answer::{ChatAnswer, Gathered};
use super::event::{ChatCall, ChatEvent, ChatFinish, ChatFinishReason, ChatUsage};
use super::reader::Reader;
use super::speech::Asked;
use crate::chat::{ChatPrompt, Delta, Message};
use crate::error::{Error, ErrorKind, Result};
use crate::generate::writing::Counted;
use crate::generate::{Event, FinishReason, Generation, Timings, Usage};
use crate::macros::opaque;

/// Why an answer ended, and what it came to.
type Ended = (ChatFinishReason, Usage, Timings, Vec<String>);

/// An answer that is being written: an iterator over its events, or a stream of them by
/// [`poll_event`](Self::poll_event). Dropping it cancels.
///
/// The last event is [`ChatEvent::Finish`], also where it was cancelled: what was written until then is told before. After
/// an error the iterator ends; [`message`](Self::message) has what there was.
pub struct ChatStream {
    generation: Generation,
    reader: Reader,
    prompt: ChatPrompt,
    /// Calls of the conversation so far.
    calls_before: usize,
    /// The ids of this answer's calls, by index.
    ids: Vec<Option<String>>,
    pending: VecDeque<Result<ChatEvent>>,
    gathered: Gathered,
    continues: bool,
    finish: Option<ChatFinish>,
    /// Used again for every token.
    deltas: Vec<Delta>,
}

opaque!(ChatStream);

impl ChatStream {
    pub(super) fn new(generation: Generation, reader: Reader, asked: Asked) -> Self {
        let Asked { prompt, said, thought, calls, .. } = asked;
        Self {
            generation,
            reader,
            prompt,
            calls_before: calls,
            ids: Vec::new(),
            pending: VecDeque::new(),
            continues: said.is_some(),
            gathered: Gathered::continuing(said.unwrap_or_default(), thought),
            finish: None,
            deltas: Vec::new(),
        }
    }

    /// The prompt that the messages became.
    pub fn prompt(&self) -> &ChatPrompt {
        &self.prompt
    }

    /// Asks the answer to end; what there is of it still comes, and an end that says so.
    pub fn cancel(&self) {
        self.generation.cancel();
    }

    /// Cancels what is still running and waits until it has ended, as [`Generation::close`] does. Events that were not
    /// read are lost.
    pub fn close(&mut self) {
        self.generation.close();
        self.pending.clear();
    }

    /// The next event if there is one, without waiting; `Ready(None)` after the last. Wakes as
    /// [`Generation::poll_event`] does.
    pub fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<ChatEvent>>> {
        while self.pending.is_empty() {
            match ready!(self.generation.poll_event(cx)) {
                Some(event) => self.take(event),
                None => return Poll::Ready(None),
            }
        }
        Poll::Ready(self.read())
    }

    /// Runs to the end and returns the whole answer, with what was read before.
    ///
    /// # Errors
    /// What made the generation fail; [`ErrorKind::InvalidArgument`] when it has failed before or was closed.
    pub fn answer(&mut self) -> Result<ChatAnswer> {
        for event in self.by_ref() {
            event?;
        }
        self.whole()
    }

    /// [`answer`](Self::answer) without waiting: wakes as [`poll_event`](Self::poll_event) does.
    ///
    /// # Errors
    /// As [`answer`](Self::answer).
    pub fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<ChatAnswer>> {
        while let Some(event) = ready!(self.poll_event(cx)) {
            event?;
        }
        Poll::Ready(self.whole())
    }

    /// The answer as far as it was read, as a message.
    ///
    /// # Errors
    /// None that can be helped.
    pub fn message(&self) -> Result<Message> {
        self.gathered.message()
    }

    /// Whether the answer goes on from the last message.
    pub(super) fn continues(&self) -> bool {
        self.continues
    }

    fn whole(&self) -> Result<ChatAnswer> {
        let finish = self.finish.clone().ok_or_else(|| {
            Error::new(ErrorKind::InvalidArgument, "expected an answer with an end, found one that failed")
                .with_hint("take what there is of it by `message`")
        })?;
        self.gathered.answer(finish)
    }

    /// The event that is read next.
    fn read(&mut self) -> Option<Result<ChatEvent>> {
        let event = self.pending.pop_front()?;
        if let Ok(event) = &event {
            self.gathered.note(event);
            if let ChatEvent::Finish { finish } = event {
                self.finish = Some(finish.clone());
            }
        }
        Some(event)
    }

    /// Takes the generation's next event apart.
    fn take(&mut self, event: Result<Event>) {
        let mut deltas = std::mem::take(&mut self.deltas);
        let end = match event {
            Ok(event) => {
                let finish = event.finish;
                let is_end = finish.as_ref().is_some_and(|f| f.reason == FinishReason::EndOfSequence);
                if let Some(token) = event.token.filter(|token| !(is_end && self.reader.is_end(token.id))) {
                    self.reader.push(token.id, &mut deltas);
                }
                finish.map(|finish| {
                    let reason = match finish.reason {
                        FinishReason::Length => ChatFinishReason::Length,
                        FinishReason::EndOfSequence | FinishReason::StopString => ChatFinishReason::Stop,
                    };
                    Ok((reason, finish.usage, finish.timings, finish.warnings))
                })
            }
            Err(error) => {
                let reason = match error.kind() {
                    ErrorKind::Cancelled => Some(ChatFinishReason::Cancelled),
                    ErrorKind::DeadlineExceeded => Some(ChatFinishReason::Deadline),
                    _ => None,
                };
                let counted = error.detail::<Counted>().copied();
                Some(match (reason, counted) {
                    (Some(reason), Some(Counted { usage, timings })) => {
                        Ok((reason, usage, timings, Vec::new()))
                    }
                    _ => Err(error),
                })
            }
        };
        if end.is_some() {
            self.reader.finish(&mut deltas);
        }
        for delta in deltas.drain(..) {
            let event = self.event(delta);
            self.pending.push_back(Ok(event));
        }
        self.deltas = deltas;
        if let Some(end) = end {
            let finish = end.map(|end| ChatEvent::Finish { finish: self.finished(end) });
            self.pending.push_back(finish);
        }
    }

    fn finished(&self, (reason, usage, timings, warnings): Ended) -> ChatFinish {
        let pending = self.pending.iter().any(|event| matches!(event, Ok(ChatEvent::CallFinished { .. })));
        let calls = pending || self.gathered.has_calls();
        let reason = match reason {
            ChatFinishReason::Stop if calls => ChatFinishReason::ToolCalls,
            other => other,
        };
        let Usage { prompt_tokens, cached_tokens, completion_tokens } = usage;
        let reasoning_tokens = self.reader.reasoning_tokens();
        let usage = ChatUsage { prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens };
        ChatFinish { reason, usage, timings, warnings }
    }

    /// A delta, with the call's id.
    fn event(&mut self, delta: Delta) -> ChatEvent {
        match delta {
            Delta::Reasoning { text } => ChatEvent::Reasoning { text },
            Delta::Text { text } => ChatEvent::Text { text },
            Delta::CallStarted { index, id, name } => {
                let id = self.id(index, id);
                ChatEvent::CallStarted { index, id, name }
            }
            Delta::CallArguments { index, text } => ChatEvent::CallArguments { index, text },
            Delta::CallFinished { index, call } => {
                let id = self.id(index, call.id);
                let call = ChatCall { id, name: call.name, arguments: call.arguments };
                ChatEvent::CallFinished { index, call }
            }
            Delta::CallMalformed { index, call } => ChatEvent::CallMalformed { index, call },
        }
    }

    /// The id of a call: the first that was told of it, else the model's, else a new one.
    fn id(&mut self, index: usize, own: Option<String>) -> String {
        if self.ids.len() <= index {
            self.ids.resize(index + 1, None);
        }
        // Some templates want nine letters and digits.
        let new = || format!("call{:05}", self.calls_before + index);
        self.ids[index].get_or_insert_with(|| own.filter(|id| !id.is_empty()).unwrap_or_else(new)).clone()
    }
}

impl Iterator for ChatStream {
    type Item = Result<ChatEvent>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.pending.is_empty() {
            let event = self.generation.next()?;
            self.take(event);
        }
        self.read()
    }
}
