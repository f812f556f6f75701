//! What is told of an answer while it is written, and how does it end?

use serde::Serialize;
use serde_json::Value;

use crate::chat::MalformedCall;
use crate::generate::Timings;
use crate::macros::closed_set;

/// A part of an answer, told as soon as it is certain; the last one is [`Finish`](Self::Finish).
///
/// All texts of one kind, joined, are what the model wrote of that kind. Every call that was started is finished or
/// malformed in the end, also where the answer ends early.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum ChatEvent {
    /// More of the reasoning.
    Reasoning {
        /// What is new.
        text: String,
    },
    /// More of the answer.
    Text {
        /// What is new.
        text: String,
    },
    /// A tool call whose function is known.
    CallStarted {
        /// Which of the answer's calls, from 0.
        index: usize,
        /// The call's id: what the model wrote as such before the arguments, else one of nine letters and digits that no
        /// other call of the conversation has.
        id: String,
        /// The function.
        name: String,
    },
    /// More of a call's arguments, as JSON. The pieces of a call, joined, are the JSON of an object.
    CallArguments {
        /// Which call.
        index: usize,
        /// What is new.
        text: String,
    },
    /// A whole call.
    CallFinished {
        /// Which call.
        index: usize,
        /// What is to be called.
        call: ChatCall,
    },
    /// Something that began as a call and is none.
    CallMalformed {
        /// Which call. It may have been started.
        index: usize,
        /// What there was instead.
        call: MalformedCall,
    },
    /// The end.
    Finish {
        /// Why and how the answer ended.
        finish: ChatFinish,
    },
}

/// A call of a tool that waits for its result.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ChatCall {
    /// What the tool's message names as `tool_call_id`.
    pub id: String,
    /// The function.
    pub name: String,
    /// Its arguments, an object. Values of other types than the tool declares are converted where that is possible.
    #[cfg_attr(feature = "schema", schemars(with = "serde_json::Map<String, Value>"))]
    pub arguments: Value,
}

/// How an answer ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ChatFinish {
    /// Why it ended.
    pub reason: ChatFinishReason,
    /// Token counts.
    pub usage: ChatUsage,
    /// Durations.
    pub timings: Timings,
    /// What went wrong on the way that did not end it, in words: a draft model that failed.
    pub warnings: Vec<String>,
}

closed_set! {
    /// Why an answer ended.
    pub enum ChatFinishReason {
        /// The model ended its turn, or a stop string occurred.
        Stop = "stop",
        /// `max_tokens` were generated, or the context is full.
        Length = "length",
        /// The model ended its turn with calls that wait for their results.
        ToolCalls = "tool_calls",
        /// It was cancelled.
        Cancelled = "cancelled",
        /// Its deadline passed.
        Deadline = "deadline",
    }
}

/// Token counts of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ChatUsage {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// How many of them did not have to be computed.
    pub cached_tokens: usize,
    /// Tokens of the answer, an end-of-sequence token included.
    pub completion_tokens: usize,
    /// How many of them are reasoning, without the token that ends it.
    pub reasoning_tokens: usize,
}
