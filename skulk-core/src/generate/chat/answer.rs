//! What did the model answer, all in all? A message that the conversation goes on from.

use serde::Serialize;

use super::event::{ChatCall, ChatEvent, ChatFinish};
use crate::chat::{Json, MalformedCall, Message};
use crate::error::Result;

/// A whole answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ChatAnswer {
    /// The answer as a message, to be put behind the others. Where the last of them was an answer that was to be
    /// continued, it stands for that one, and has both.
    #[cfg_attr(feature = "schema", schemars(with = "serde_json::Map<String, serde_json::Value>"))]
    pub message: Message,
    /// What the model said. Texts of malformed calls are in the message alone.
    pub text: String,
    /// What it thought.
    pub reasoning: String,
    /// What it calls.
    pub calls: Vec<ChatCall>,
    /// What began as a call and is none.
    pub malformed: Vec<MalformedCall>,
    /// Why and how it ended.
    pub finish: ChatFinish,
}

/// What there is of an answer.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// The text that it goes on from, and then all that was said, with malformed calls.
    content: String,
    text: String,
    /// What was thought before the text that it goes on from.
    thought: String,
    reasoning: String,
    calls: Vec<ChatCall>,
    /// Each call's arguments as the model wrote them.
    arguments: Vec<(usize, String)>,
    written: Vec<String>,
    malformed: Vec<MalformedCall>,
}

impl Gathered {
    pub(super) fn continuing(said: String, thought: String) -> Self {
        Self { content: said, thought, ..Self::default() }
    }

    pub(super) fn note(&mut self, event: &ChatEvent) {
        match event {
            ChatEvent::Reasoning { text } => self.reasoning.push_str(text),
            ChatEvent::Text { text } => {
                self.text.push_str(text);
                self.content.push_str(text);
            }
            ChatEvent::CallArguments { index, text } => match self.arguments.last_mut() {
                Some((last, all)) if last == index => all.push_str(text),
                _ => self.arguments.push((*index, text.clone())),
            },
            ChatEvent::CallFinished { index, call } => {
                let last = self.arguments.last().filter(|(last, _)| last == index);
                self.written.push(last.map(|(_, text)| text.clone()).unwrap_or_default());
                self.calls.push(call.clone());
            }
            ChatEvent::CallMalformed { call, .. } => {
                self.content.push_str(&call.raw);
                self.malformed.push(call.clone());
            }
            ChatEvent::CallStarted { .. } | ChatEvent::Finish { .. } => {}
        }
    }

    pub(super) fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    /// As a message.
    pub(super) fn message(&self) -> Result<Message> {
        let mut message = Message::assistant(self.content.as_str());
        let reasoning = format!("{}{}", self.thought, self.reasoning);
        if !reasoning.is_empty() {
            message = message.with_reasoning(reasoning);
        }
        for (call, written) in self.calls.iter().zip(&self.written) {
            // The order of the model's own keys, unless values were converted.
            let own = serde_json::from_str(written).is_ok_and(|own: serde_json::Value| own == call.arguments);
            let arguments = if own { written.clone() } else { call.arguments.to_string() };
            message = message.with_tool_call(&call.id, &call.name, Json::String(arguments))?;
        }
        Ok(message)
    }

    pub(super) fn answer(&self, finish: ChatFinish) -> Result<ChatAnswer> {
        Ok(ChatAnswer {
            message: self.message()?,
            text: self.text.clone(),
            reasoning: self.reasoning.clone(),
            calls: self.calls.clone(),
            malformed: self.malformed.clone(),
            finish,
        })
    }
}
