//! How does a model call the host's functions? By name, in rounds, until it calls none any more.

use std::task::{Context, Poll, ready};

use serde_json::Value;

use super::event::{ChatCall, ChatEvent, ChatFinish};
use super::options::ChatOptions;
use super::rounds::{ToolEvent, ToolResult, ToolRounds};
use crate::chat::{Message, Tool};
use crate::error::{Error, ErrorKind, Result};
use crate::generate::Model;
use crate::macros::{closed_set, opaque, setters};

/// Why a function failed.
type Failure = Box<dyn std::error::Error + Send + Sync>;
/// A function of the host's: it gets the arguments, an object, and gives what the model is told.
type Function = Box<dyn FnMut(&Value) -> Result<String, Failure> + Send>;

closed_set! {
    /// What happens where a function fails that a model called.
    #[derive(Default)]
    pub enum OnToolFailure {
        /// The model is told: the result is `error: ` and what the error displays.
        #[default]
        Tell = "tell",
        /// The conversation ends with `tool.failed`.
        End = "end",
    }
}

/// Functions that a model may call.
///
/// ```
/// use skulk::Toolbox;
/// use skulk::chat::Tool;
/// let schema = serde_json::json!({"type": "object", "properties": {"city": {"type": "string"}}});
/// let weather = Tool::new("weather", "Weather of a place.", schema.into())?;
/// let tools = Toolbox::default().tool(weather, |arguments| {
///     let city = arguments["city"].as_str().ok_or("expected a city")?;
///     Ok(format!("It rains in {city}."))
/// });
/// # let _ = tools;
/// # Ok::<(), skulk::Error>(())
/// ```
#[non_exhaustive]
pub struct Toolbox {
    functions: Vec<(Tool, Function)>,
    /// Answers at most; calls of the last one get no results.
    pub max_rounds: usize,
    /// What happens where a function fails. Calls of functions that there are not are always told to the model.
    pub on_failure: OnToolFailure,
}

opaque!(Toolbox);

impl Default for Toolbox {
    /// No functions, 8 rounds.
    fn default() -> Self {
        Self { functions: Vec::new(), max_rounds: 8, on_failure: OnToolFailure::default() }
    }
}

setters!(Toolbox {
    /// Lets the model answer so many times at most.
    max_rounds: usize;
    /// Does this where a function fails.
    on_failure: OnToolFailure;
});

impl Toolbox {
    /// Adds a function; one of the same name is replaced.
    #[must_use]
    pub fn tool(
        mut self,
        tool: Tool,
        function: impl FnMut(&Value) -> Result<String, Failure> + Send + 'static,
    ) -> Self {
        self.functions.retain(|(other, _)| other.name() != tool.name());
        self.functions.push((tool, Box::new(function)));
        self
    }

    fn call(&mut self, call: &ChatCall) -> Result<ToolResult> {
        let Some((_, function)) = self.functions.iter_mut().find(|(tool, _)| tool.name() == call.name) else {
            return Ok(ToolResult::unknown(call, self.functions.iter().map(|(tool, _)| tool.name())));
        };
        match function(&call.arguments) {
            Ok(content) => Ok(ToolResult::new(call, content)),
            Err(error) if self.on_failure == OnToolFailure::Tell => Ok(ToolResult::failed(call, &error)),
            Err(error) => Err(Error::new(ErrorKind::ToolFailed, "a function failed that the model called")
                .with("function", &call.name)
                .with_source(error)
                .with_hint("mend the function, or let the model be told of its failures")),
        }
    }
}

impl Model {
    /// Answers a conversation, and calls these functions, until the model calls none any more, at most as many times as
    /// [`Toolbox::max_rounds`] says. The tools of `options` are those of the toolbox.
    ///
    /// # Errors
    /// As [`chat`](Self::chat), and [`ErrorKind::InvalidArgument`] when `options` have tools, too.
    pub fn chat_with_tools(
        &self,
        messages: Vec<Message>,
        options: ChatOptions,
        toolbox: Toolbox,
    ) -> Result<ToolChat> {
        if !options.render.tools.is_empty() {
            let message = "expected tools in the toolbox alone, found some among the options";
            return Err(Error::argument("tools", message).with_hint("leave the option out"));
        }
        let options = options.tools(toolbox.functions.iter().map(|(tool, _)| tool.clone()));
        let rounds = self.tool_rounds(messages, options, toolbox.max_rounds)?;
        Ok(ToolChat { rounds, toolbox, failed: false })
    }
}

/// A conversation that calls the host's functions: an iterator over the events of all rounds. Functions run on the
/// thread that reads. Dropping it cancels.
pub struct ToolChat {
    rounds: ToolRounds,
    toolbox: Toolbox,
    /// It ended with an error.
    failed: bool,
}

opaque!(ToolChat);

impl ToolChat {
    /// All of the conversation: the messages that it began with, answers that have ended, and results.
    pub fn messages(&self) -> &[Message] {
        self.rounds.messages()
    }

    /// How the last answer that was read ended: with `tool_calls` where there were too many rounds.
    pub fn finish(&self) -> Option<&ChatFinish> {
        self.rounds.finish()
    }

    /// Asks the answer to end that is being written; no function is called any more, and no round follows.
    pub fn cancel(&self) {
        self.rounds.cancel();
    }

    /// Runs to the end and returns the whole conversation.
    ///
    /// # Errors
    /// What made an answer fail, or a function where that ends it.
    pub fn run(&mut self) -> Result<&[Message]> {
        for event in self.by_ref() {
            event?;
        }
        Ok(self.messages())
    }

    /// The next event without waiting for the model; functions run within this call. Wakes as
    /// [`ChatStream::poll_event`](super::ChatStream::poll_event) does.
    pub fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<ToolEvent>>> {
        if self.failed {
            return Poll::Ready(None);
        }
        let event = ready!(self.rounds.poll_event(cx));
        Poll::Ready(self.seen(event))
    }

    /// An answer's event, or what comes behind the answer.
    fn seen(&mut self, event: Option<Result<ChatEvent>>) -> Option<Result<ToolEvent>> {
        let round = self.rounds.round();
        let event = match event {
            Some(event) => event.map(|event| ToolEvent::Answer { round, event }),
            None => {
                let call = self.rounds.wanted().first()?.clone();
                let result = match self.rounds.is_cancelled() {
                    true => Ok(ToolResult::cancelled(&call)),
                    false => self.toolbox.call(&call),
                };
                let result = result.and_then(|result| {
                    self.rounds.give(&result.id, result.content.as_str())?;
                    Ok(result)
                });
                result.map(|result| ToolEvent::Result { round, result })
            }
        };
        self.failed = event.is_err();
        Some(event)
    }
}

impl Iterator for ToolChat {
    type Item = Result<ToolEvent>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let event = self.rounds.next();
        self.seen(event)
    }
}
