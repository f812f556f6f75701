//! What comes next in a conversation whose functions are the host's?

use std::task::{Context, Poll, ready};

use serde::Serialize;
use skulk::chat::Message;
use skulk::{
    ChatCall, ChatEvent, ChatFinish, ChatOptions, Error, ErrorKind, Model, OnToolFailure, ToolResult,
    ToolRounds,
};

use super::options::Rounds;

/// A step of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToolStep {
    /// A part of an answer.
    Event {
        /// The part.
        event: ChatEvent,
    },
    /// A call: the host runs the function, and [gives](ToolSteps::give) what became of it. Until then it comes again.
    Call {
        /// What is to be called.
        call: ChatCall,
    },
    /// The result of a call that was answered here, as there is no such function, or as the conversation was cancelled.
    Result {
        /// What the model is told.
        result: ToolResult,
    },
}

/// A conversation that goes on until the model calls nothing any more.
pub struct ToolSteps {
    rounds: ToolRounds,
    names: Vec<String>,
    on_failure: OnToolFailure,
    /// The host has the call that waits.
    calling: bool,
    ended: bool,
}

impl ToolSteps {
    pub(super) fn new(
        model: &Model,
        messages: Vec<Message>,
        options: ChatOptions,
        own: Rounds,
    ) -> skulk::Result<Self> {
        let names = options.render.tools.iter().map(|tool| tool.name().to_owned()).collect();
        let rounds = model.tool_rounds(messages, options, own.max)?;
        Ok(Self { rounds, names, on_failure: own.on_failure, calling: false, ended: false })
    }

    /// The next step; `Ready(None)` after the last. Wakes as [`ToolRounds::poll_event`] does.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<skulk::Result<ToolStep>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let step = match ready!(self.rounds.poll_event(cx)) {
            Some(event) => event.map(|event| ToolStep::Event { event }),
            None => match self.rounds.wanted().first().cloned() {
                None => return Poll::Ready(None),
                // Nobody calls anything any more; the round that follows ends at once.
                Some(call) if self.rounds.is_cancelled() && !self.calling => {
                    self.answered(ToolResult::cancelled(&call))
                }
                Some(call) if self.names.contains(&call.name) => {
                    self.calling = true;
                    Ok(ToolStep::Call { call })
                }
                Some(call) => {
                    self.answered(ToolResult::unknown(&call, self.names.iter().map(String::as_str)))
                }
            },
        };
        self.ended = step.is_err();
        Poll::Ready(Some(step))
    }

    /// Gives what became of the call with this id: what the function gave, or the text of its error. With the last call
    /// of an answer the next round begins. What the model is told comes back.
    ///
    /// # Errors
    /// [`ErrorKind::ToolFailed`] for an error that ends the conversation; those of [`ToolRounds::give`].
    pub fn give(&mut self, id: &str, outcome: Result<String, String>) -> skulk::Result<ToolResult> {
        let Some(call) = self.rounds.wanted().iter().find(|call| call.id == id).cloned() else {
            let message = format!("expected the id of a call that waits, found `{id}`");
            return Err(Error::new(ErrorKind::InvalidArgument, message).with("field", "id"));
        };
        self.calling = false;
        let result = match outcome {
            Ok(content) => ToolResult::new(&call, content),
            // Once it is cancelled, that is how it ends.
            Err(error) if self.on_failure == OnToolFailure::Tell || self.rounds.is_cancelled() => {
                ToolResult::failed(&call, &error)
            }
            Err(error) => {
                self.ended = true;
                let message = format!("a function failed that the model called: {error}");
                return Err(Error::new(ErrorKind::ToolFailed, message)
                    .with("function", &call.name)
                    .with_hint("mend the function, or let the model be told of its failures"));
            }
        };
        self.tell(result).inspect_err(|_| self.ended = true)
    }

    /// A result that is told here.
    fn answered(&mut self, result: ToolResult) -> skulk::Result<ToolStep> {
        self.tell(result).map(|result| ToolStep::Result { result })
    }

    fn tell(&mut self, result: ToolResult) -> skulk::Result<ToolResult> {
        self.rounds.give(&result.id, result.content.as_str())?;
        Ok(result)
    }

    /// Which round, from 0.
    pub fn round(&self) -> usize {
        self.rounds.round()
    }

    /// All of the conversation: the messages that it began with, answers that have ended, and results.
    pub fn messages(&self) -> &[Message] {
        self.rounds.messages()
    }

    /// How the last answer that was read ended.
    pub fn finish(&self) -> Option<&ChatFinish> {
        self.rounds.finish()
    }

    /// Asks the answer to end that is being written; no round follows.
    pub fn cancel(&self) {
        self.rounds.cancel();
    }
}
