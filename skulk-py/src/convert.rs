//! How do arguments and tokens cross? Numbers and names into the library's types, events into dataclasses.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use skulk::{ChatEvent, Divergence, Error, ErrorKind, Event, TokenId, TokenLogprob};

use crate::error::raise;
use crate::json::CONTRACT;

/// An argument that the library takes as an unsigned number; Python's may be negative or huge.
pub(crate) fn unsigned<T: TryFrom<i128>>(field: &'static str, value: i128) -> PyResult<T> {
    T::try_from(value).map_err(|_| {
        let bits = 8 * size_of::<T>();
        let message = format!("expected an unsigned {bits}-bit number, found {value}");
        raise(Error::new(ErrorKind::InvalidArgument, message).with("field", field))
    })
}

/// The same of an argument that may be left out.
pub(crate) fn optional<T: TryFrom<i128>>(field: &'static str, value: Option<i128>) -> PyResult<Option<T>> {
    value.map(|value| unsigned(field, value)).transpose()
}

/// Token ids of an argument.
pub(crate) fn token_ids(field: &'static str, ids: Vec<i128>) -> PyResult<Vec<TokenId>> {
    ids.into_iter().map(|id| unsigned(field, id).map(TokenId)).collect()
}

/// Token ids as Python's numbers.
pub(crate) fn numbers(ids: &[TokenId]) -> Vec<u32> {
    ids.iter().map(|id| id.0).collect()
}

/// An event of a running generation: the one thing that is made for each token.
pub(crate) fn event<'py>(py: Python<'py>, event: &Event) -> PyResult<Bound<'py, PyAny>> {
    let token = event.token.as_ref().map(|token| {
        let of = |t: &TokenLogprob| CONTRACT.of(py, "TokenLogprob", (t.id.0, t.logprob));
        let top = token.top_logprobs.iter().map(of).collect::<PyResult<Vec<_>>>()?;
        CONTRACT.of(py, "Token", (token.id.0, token.logprob, top))
    });
    let finish = event.finish.as_ref().map(|finish| CONTRACT.one(py, "Finish", finish)).transpose()?;
    CONTRACT.of(py, "Event", (token.transpose()?, &event.text, finish))
}

/// An event of an answer.
pub(crate) fn chat_event<'py>(py: Python<'py>, event: &ChatEvent) -> PyResult<Bound<'py, PyAny>> {
    let class = match event {
        // What is made for each token.
        ChatEvent::Reasoning { text } => return CONTRACT.of(py, "ReasoningEvent", (text,)),
        ChatEvent::Text { text } => return CONTRACT.of(py, "TextEvent", (text,)),
        ChatEvent::CallArguments { index, text } => {
            return CONTRACT.of(py, "CallArgumentsEvent", (*index, text));
        }
        ChatEvent::CallStarted { .. } => "CallStartedEvent",
        ChatEvent::CallFinished { .. } => "CallFinishedEvent",
        ChatEvent::CallMalformed { .. } => "CallMalformedEvent",
        ChatEvent::Finish { .. } => "FinishEvent",
        _ => return Err(raise(Error::new(ErrorKind::Internal, "expected an event that Python has"))),
    };
    CONTRACT.one(py, class, event)
}

/// Divergences may be infinite, which JSON cannot say.
pub(crate) fn divergence<'py>(py: Python<'py>, found: &Divergence) -> PyResult<Bound<'py, PyAny>> {
    CONTRACT.of(py, "Divergence", (found.tokens, found.mean_kl, found.max_kl, found.top1_agreement))
}

/// Little-endian f32.
pub(crate) fn floats<'py>(py: Python<'py>, values: &[f32]) -> Bound<'py, PyBytes> {
    let mut bytes = vec![0; size_of_val(values)];
    for (bytes, value) in bytes.chunks_exact_mut(size_of::<f32>()).zip(values) {
        bytes.copy_from_slice(&value.to_le_bytes());
    }
    PyBytes::new(py, &bytes)
}
