//! How does a conversation go on behind calls of tools? Round by round: an answer, then the results that it waits for.

use std::fmt::Display;
use std::task::{Context, Poll, ready};

use serde::Serialize;

use super::event::{ChatCall, ChatEvent, ChatFinish, ChatFinishReason};
use super::options::ChatOptions;
use super::stream::ChatStream;
use crate::chat::Message;
use crate::error::{Error, Result};
use crate::generate::{Model, Session};
use crate::macros::opaque;

/// A conversation that goes on until the model calls nothing any more. Whoever drives it runs the functions;
/// [`Model::chat_with_tools`] does so itself.
///
/// It is an iterator over the events of a round's answer. Where that has ended and [`wanted`](Self::wanted) has calls,
/// their results are to be [given](Self::give); with the last of them the next round begins.
///
/// ```
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/models/qwen2");
/// # use skulk::chat::Message;
/// # use skulk::{ChatOptions, GenerateOptions, LoadOptions, Model};
/// # let model = Model::open(path, &LoadOptions::default())?;
/// # let options = ChatOptions::default().generate(GenerateOptions::default().max_tokens(8));
/// let mut rounds = model.tool_rounds(vec![Message::user("Hello")], options, 4)?;
/// loop {
///     for event in &mut rounds {
///         event?;
///     }
///     let Some(call) = rounds.wanted().first().cloned() else { break };
///     rounds.give(&call.id, format!("the result of {}", call.name))?;
/// }
/// assert_eq!(rounds.messages().len(), 2);
/// # Ok::<(), skulk::Error>(())
/// ```
pub struct ToolRounds {
    session: Session,
    options: ChatOptions,
    messages: Vec<Message>,
    stream: Option<ChatStream>,
    /// Calls of the last answer, with their results.
    calls: Vec<(ChatCall, Option<String>)>,
    wanted: Vec<ChatCall>,
    finish: Option<ChatFinish>,
    /// Which round, from 0.
    round: usize,
    max_rounds: usize,
}

opaque!(ToolRounds);

/// An event of a conversation with tools.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum ToolEvent {
    /// A part of an answer.
    Answer {
        /// Which round, from 0.
        round: usize,
        /// The part.
        event: ChatEvent,
    },
    /// What a function gave.
    Result {
        /// Which round, from 0.
        round: usize,
        /// What the model is told.
        result: ToolResult,
    },
}

/// What became of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolResult {
    /// The call.
    pub id: String,
    /// The function.
    pub name: String,
    /// What the model is told.
    pub content: String,
    /// The function failed, or there is none of that name.
    pub failed: bool,
}

impl ToolResult {
    /// What a function gave.
    pub fn new(call: &ChatCall, content: impl Into<String>) -> Self {
        Self { id: call.id.clone(), name: call.name.clone(), content: content.into(), failed: false }
    }

    /// What a model is told of a function that failed.
    pub fn failed(call: &ChatCall, error: &dyn Display) -> Self {
        Self { failed: true, ..Self::new(call, format!("error: {error}")) }
    }

    /// What stands for the result of a call that nobody makes any more.
    pub fn cancelled(call: &ChatCall) -> Self {
        Self::failed(call, &"the work was cancelled")
    }

    /// What a model is told that called none of the functions that there are.
    pub fn unknown<'a>(call: &ChatCall, names: impl IntoIterator<Item = &'a str>) -> Self {
        let names: Vec<_> = names.into_iter().collect();
        Self::failed(call, &format_args!("there is no function `{}`, but {}", call.name, names.join(", ")))
    }
}

impl Model {
    /// Answers a conversation in rounds, at most `max_rounds`, in a session of its own. Calls of the last round get no
    /// results.
    ///
    /// # Errors
    /// As [`chat`](Self::chat), and [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for no rounds.
    pub fn tool_rounds(
        &self,
        messages: Vec<Message>,
        mut options: ChatOptions,
        max_rounds: usize,
    ) -> Result<ToolRounds> {
        if max_rounds == 0 {
            return Err(Error::argument("max_rounds", "expected at least 1 round, found 0")
                .with_hint("leave it out for its default"));
        }
        // Cancels this conversation alone.
        options.generate.cancel = options.generate.cancel.child();
        let session = self.session()?;
        let stream = Some(session.chat(&messages, &options)?);
        let (calls, wanted) = (Vec::new(), Vec::new());
        Ok(ToolRounds {
            session,
            options,
            messages,
            stream,
            calls,
            wanted,
            finish: None,
            round: 0,
            max_rounds,
        })
    }
}

impl ToolRounds {
    /// The calls that wait for results; none while an answer is written, and behind the last one.
    pub fn wanted(&self) -> &[ChatCall] {
        &self.wanted
    }

    /// Gives the result of the call with this id. With the last one the next round begins.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when no such call waits; those of [`Session::chat`].
    pub fn give(&mut self, id: &str, content: impl Into<String>) -> Result<()> {
        let at = self.wanted.iter().position(|call| call.id == id).ok_or_else(|| {
            Error::argument("id", format!("expected the id of a call that waits, found `{id}`"))
                .with_hint("take ids from `wanted`")
        })?;
        self.wanted.remove(at);
        let waiting = self.calls.iter_mut().find(|(call, result)| call.id == id && result.is_none());
        if let Some((_, result)) = waiting {
            *result = Some(content.into());
        }
        if self.wanted.is_empty() {
            for (call, result) in self.calls.drain(..) {
                let result = result.unwrap_or_default();
                self.messages.push(Message::tool(&call.id, result).with_name(&call.name));
            }
            self.round += 1;
            self.stream = match self.session.chat(&self.messages, &self.options) {
                Ok(stream) => Some(stream),
                // Nobody waits for that answer any more.
                Err(_) if self.is_cancelled() => {
                    self.finish.iter_mut().for_each(|finish| finish.reason = ChatFinishReason::Cancelled);
                    None
                }
                Err(error) => return Err(error),
            };
        }
        Ok(())
    }

    /// Which round, from 0.
    pub fn round(&self) -> usize {
        self.round
    }

    /// All of the conversation: the messages that it began with, answers that have ended, and results.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// How the last answer that was read ended.
    pub fn finish(&self) -> Option<&ChatFinish> {
        self.finish.as_ref()
    }

    /// Asks the answer to end that is being written; no round follows.
    pub fn cancel(&self) {
        self.options.generate.cancel.cancel();
    }

    /// Whether somebody has cancelled it, or the token of its options.
    pub fn is_cancelled(&self) -> bool {
        self.options.generate.cancel.is_cancelled()
    }

    /// The next event of this round's answer, without waiting; `Ready(None)` behind it. Wakes as
    /// [`ChatStream::poll_event`] does.
    pub fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<ChatEvent>>> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(None) };
        let event = ready!(stream.poll_event(cx));
        Poll::Ready(self.seen(event))
    }

    /// Notes the end of an answer.
    fn seen(&mut self, event: Option<Result<ChatEvent>>) -> Option<Result<ChatEvent>> {
        let goes_on =
            event.as_ref().is_some_and(|event| !matches!(event, Err(_) | Ok(ChatEvent::Finish { .. })));
        if !goes_on && let Some(mut stream) = self.stream.take() {
            match stream.answer() {
                Ok(answer) => {
                    if stream.continues() {
                        self.messages.pop();
                    }
                    self.messages.push(answer.message);
                    let calls = answer.finish.reason == ChatFinishReason::ToolCalls;
                    if calls && self.round + 1 < self.max_rounds {
                        self.calls = answer.calls.iter().map(|call| (call.clone(), None)).collect();
                        self.wanted = answer.calls;
                    }
                    self.finish = Some(answer.finish);
                }
                Err(error) => return event.or(Some(Err(error))),
            }
        }
        event
    }
}

impl Iterator for ToolRounds {
    type Item = Result<ChatEvent>;

    fn next(&mut self) -> Option<Self::Item> {
        let event = self.stream.as_mut()?.next();
        self.seen(event)
    }
}
