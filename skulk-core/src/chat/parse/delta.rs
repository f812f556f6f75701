//! What does an answer consist of? What is told of it while it is written.

use serde::Serialize;
use serde_json::Value;

use crate::macros::closed_set;

/// A part of an answer, told as soon as it is certain.
///
/// All texts of one kind, joined, are the same however the answer was cut into pieces. Every call that was started is
/// finished or malformed in the end.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum Delta {
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
        /// The call's id, where the model writes one before the arguments.
        id: Option<String>,
        /// The function.
        name: String,
    },
    /// More of a call's arguments, as JSON. The pieces of a call, joined, are the JSON of an object; where the model
    /// writes JSON, its own text.
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
        call: ToolCall,
    },
    /// Something that began as a call and is none.
    CallMalformed {
        /// Which call. It may have been started.
        index: usize,
        /// What there was instead.
        call: MalformedCall,
    },
}

/// A tool call.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolCall {
    /// The id that the model gave it, if it did.
    pub id: Option<String>,
    /// The function.
    pub name: String,
    /// Its arguments, an object. Values of other types than the tool declares are converted where that is possible.
    pub arguments: Value,
}

/// What began as a tool call and is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct MalformedCall {
    /// The function, where that much is known.
    pub name: Option<String>,
    /// All that the model wrote of it, markup included; where text was told in front of it, from its own marker on.
    pub raw: String,
    /// What is wrong.
    pub problem: CallProblem,
    /// The same in words: what was expected, what was found.
    pub message: String,
}

closed_set! {
    /// What is wrong with a call.
    pub enum CallProblem {
        /// The answer ends within it.
        Unfinished = "unfinished",
        /// It breaks its format's rules.
        Syntax = "syntax",
        /// It names no function.
        NoName = "no_name",
        /// It has no arguments, or they are no object.
        NoArguments = "no_arguments",
        /// Its arguments are no JSON.
        InvalidJson = "invalid_json",
        /// Its values are nested too deeply.
        TooDeep = "too_deep",
    }
}

/// A problem with its words.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    pub(super) problem: CallProblem,
    pub(super) message: String,
}

impl Fault {
    pub(super) fn new(problem: CallProblem, message: impl Into<String>) -> Self {
        Self { problem, message: message.into() }
    }

    pub(super) fn syntax(message: impl Into<String>) -> Self {
        Self::new(CallProblem::Syntax, message)
    }

    pub(super) fn no_name() -> Self {
        Self::new(CallProblem::NoName, "expected the name of a function, found none")
    }

    pub(super) fn unfinished() -> Self {
        Self::new(CallProblem::Unfinished, "expected the rest of the call, found the end of the answer")
    }
}
