//! What did the model answer? Reasoning, text and tool calls, told apart while it writes.
//!
//! A [`StreamParser`] reads an answer piece by piece by the rules of an [`OutputSyntax`], and tells each part as soon as
//! it is certain what it is. No character is lost and none is told twice, however the answer is cut into pieces. What
//! began as markup and is none is text; what began as a tool call and is none is reported with all that was written of
//! it. Each character is looked at a bounded number of times; what is kept is a call's own text.

mod answer;
mod call;
mod channel;
mod delta;
mod emit;
mod format;
mod formats;
mod marker;
mod recognise;
mod schema;
mod syntax;
#[cfg(test)]
mod tests;

use serde_json::Value;

pub use delta::{CallProblem, Delta, MalformedCall, ToolCall};
pub use syntax::{OutputSyntax, ReasoningSyntax, ToolSyntax};

use self::answer::Answer;
use self::emit::Emitter;
use self::format::Format;
use self::marker::Specials;
use self::schema::Tools;
use crate::error::{Error, Result};
use crate::macros::setters;

/// What is known of a request when its answer is read. `Default`: nothing.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct ParseOptions {
    /// The prompt ends within reasoning, as [`OutputSyntax::starts_in_reasoning`] says.
    pub starts_in_reasoning: bool,
    /// The tools that were offered, in OpenAI's shape. Arguments are converted to the types that they declare.
    pub tools: Vec<Value>,
}

setters!(ParseOptions {
    /// Says whether the prompt ends within reasoning.
    starts_in_reasoning: bool;
    /// Says which tools were offered, in OpenAI's shape, with or without `function` around each.
    tools: impl IntoIterator<Item = Value> => tools.into_iter().collect();
});

/// Tells reasoning, text and tool calls of an answer apart while it is written.
///
/// ```
/// use skulk::chat::{Delta, OutputSyntax, ParseOptions, ReasoningSyntax, StreamParser, ToolSyntax};
/// let syntax = OutputSyntax {
///     reasoning: Some(ReasoningSyntax::new("<think>", "</think>")),
///     tools: Some(ToolSyntax::Hermes),
/// };
/// let mut parser = StreamParser::new(&syntax, &ParseOptions::default())?;
/// let mut deltas = Vec::new();
/// for piece in ["<thi", "nk>Rain?</think>Let me see. <tool", "_call>{\"name\": \"weather\", ",
///     "\"arguments\": {\"city\": \"Oslo\"}}</tool_call>"]
/// {
///     deltas.extend(parser.push(piece, false));
/// }
/// deltas.extend(parser.finish());
/// let Some(Delta::CallFinished { call, .. }) = deltas.last() else { panic!("{deltas:?}") };
/// assert_eq!(call.name, "weather");
/// assert_eq!(call.arguments["city"], "Oslo");
/// # Ok::<(), skulk::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct StreamParser {
    answer: Answer,
    emit: Emitter,
}

impl StreamParser {
    /// A parser for one answer, in which all text may be markup: which tokens wrote it is not known.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for an empty marker, and for a tool without a name.
    pub fn new(syntax: &OutputSyntax, options: &ParseOptions) -> Result<Self> {
        Self::with(syntax, options, |_| Specials::default())
    }

    /// The same where it is known which texts are special tokens of the vocabulary. Of markers that are, or that contain
    /// one, only such tokens are markup; the same text, written by ordinary tokens, is text.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn seeing_special_tokens(
        syntax: &OutputSyntax,
        options: &ParseOptions,
        is_special: impl Fn(&str) -> bool,
    ) -> Result<Self> {
        Self::with(syntax, options, |markers| Specials::of(markers.iter().copied(), is_special))
    }

    fn with(
        syntax: &OutputSyntax,
        options: &ParseOptions,
        specials: impl FnOnce(&[&str]) -> Specials,
    ) -> Result<Self> {
        let format = syntax.tools.map(formats::format);
        if let Some(reasoning) = &syntax.reasoning {
            for (field, marker) in [("reasoning.start", &reasoning.start), ("reasoning.end", &reasoning.end)]
            {
                if marker.is_empty() {
                    let message = "expected a marker of at least one character, found an empty one";
                    return Err(Error::argument(field, message)
                        .with_hint("leave `reasoning` out where a model marks none"));
                }
            }
        }
        let own = syntax.reasoning.iter().flat_map(|r| [r.start.as_str(), r.end.as_str()]);
        let markers: Vec<&str> = format.iter().flat_map(Format::markers).chain(own).collect();
        let specials = specials(&markers);
        let emit = Emitter::new(Tools::new(&options.tools)?);
        let answer = Answer::new(format, syntax.reasoning.as_ref(), specials, options.starts_in_reasoning);
        Ok(Self { answer, emit })
    }

    /// Takes the next piece of the answer, and gives what is certain with it. `special` says that a special token of the
    /// vocabulary wrote it, and counts where those are known.
    pub fn push(&mut self, text: &str, special: bool) -> std::vec::Drain<'_, Delta> {
        self.answer.push(text, special, &mut self.emit);
        self.emit.out.drain(..)
    }

    /// The answer is at its end. Gives what was held back: half a marker is text, half a call is malformed.
    pub fn finish(&mut self) -> std::vec::Drain<'_, Delta> {
        self.answer.end(&mut self.emit);
        self.emit.out.drain(..)
    }

    /// Whether what comes next is reasoning, as far as is known: so that it can be bounded. A call within reasoning is
    /// none.
    pub fn is_reasoning(&self) -> bool {
        self.answer.reasons()
    }

    /// Whether what comes next belongs to a tool call, as far as is known.
    pub fn is_calling(&self) -> bool {
        self.answer.calls()
    }
}

impl ToolSyntax {
    /// The markers that begin calls. `None` where calls may come without one or within reasoning, and where other markup may
    /// come in front of calls and texts.
    pub(crate) fn openings(self) -> Option<&'static [&'static str]> {
        let format = formats::format(self);
        let alone = !format.bare && !format.in_reasoning && format.dropped.is_empty();
        (alone && !format.starts.is_empty()).then_some(format.starts)
    }
}

/// The answer in a text that may be Harmony's, without anything that is markup there: what a later prompt may repeat.
/// A template refuses messages with such tokens.
pub fn harmony_answer(text: &str) -> String {
    let syntax = OutputSyntax { reasoning: None, tools: Some(ToolSyntax::Harmony) };
    let mut answer = String::new();
    // Nothing in these arguments can be wrong.
    if let Ok(mut parser) = StreamParser::new(&syntax, &ParseOptions::default()) {
        let mut keep = |delta| {
            if let Delta::Text { text } = delta {
                answer.push_str(&text);
            }
        };
        parser.push(text, false).for_each(&mut keep);
        parser.finish().for_each(&mut keep);
    }
    for marker in formats::format(ToolSyntax::Harmony).markers() {
        answer = answer.replace(marker, "");
    }
    answer
}
