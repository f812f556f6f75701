//! How do arguments and tokens cross? Numbers and names into the library's types, events into dataclasses.

use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyDict, PyMemoryView, PyString};
use skulk::{ChatEvent, Divergence, Error, ErrorKind, Event, TokenId, TokenLogprob};

use crate::error::{argument, raise};
use crate::json::CONTRACT;

/// The text of an argument. Python's may have halves of pairs in it that are one letter together.
pub(crate) fn text(field: &str, given: &Bound<'_, PyString>) -> PyResult<String> {
    given.to_str().map(str::to_owned).map_err(|_| {
        let message = "expected a text that is Unicode, found a lone surrogate in it";
        argument(field, message, Some("text.encode(errors='replace').decode() has question marks instead"))
    })
}

/// An argument that the library takes as an unsigned number; Python's may be negative or huge.
pub(crate) fn unsigned<T: TryFrom<i128>>(field: &str, given: &Bound<'_, PyAny>) -> PyResult<T> {
    let number = match given.extract::<i128>() {
        _ if given.is_instance_of::<PyBool>() => Err(kind(given)?),
        Ok(number) => T::try_from(number).map_err(|_| number.to_string()),
        Err(e) if e.is_instance_of::<PyOverflowError>(given.py()) => Err("one of over 127 bits".to_owned()),
        Err(e) if e.is_instance_of::<PyTypeError>(given.py()) => Err(kind(given)?),
        Err(e) => return Err(e),
    };
    number.map_err(|found| {
        let bits = 8 * size_of::<T>();
        argument(field, format!("expected an unsigned {bits}-bit number, found {found}"), None)
    })
}

/// The same of an argument that may be left out.
pub(crate) fn optional<T: TryFrom<i128>>(
    field: &str,
    given: Option<&Bound<'_, PyAny>>,
) -> PyResult<Option<T>> {
    given.map(|given| unsigned(field, given)).transpose()
}

/// Token ids of an argument, which is something else than `expected` if it has none.
pub(crate) fn token_ids(
    field: &str,
    expected: &'static str,
    given: &Bound<'_, PyAny>,
) -> PyResult<Vec<TokenId>> {
    if is_sequence(given)?
        && let Some(ids) = each(given, |id| unsigned(field, &id).map(TokenId))?
    {
        return Ok(ids);
    }
    let message = format!("expected {expected}, found {}", kind(given)?);
    Err(argument(field, message, Some("a tokenizer makes token ids of a text")))
}

/// What something is, in words.
pub(crate) fn kind(given: &Bound<'_, PyAny>) -> PyResult<String> {
    Ok(format!("an instance of {}", given.get_type().name()?))
}

/// Whether its items are bytes, which no argument is a list of.
fn is_bytes(given: &Bound<'_, PyAny>) -> bool {
    given.is_instance_of::<PyBytes>()
        || given.is_instance_of::<PyByteArray>()
        || given.is_instance_of::<PyMemoryView>()
}

/// Whether it has values by keys. Importing fails while Python exits, where `PyMapping` would panic.
pub(crate) fn is_mapping(given: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(given.is_instance_of::<PyDict>()
        || given.is_instance(&given.py().import("collections.abc")?.getattr("Mapping")?)?)
}

/// Whether it has so many items, in an order.
pub(crate) fn is_sequence(given: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(given.hasattr("__len__")? && given.hasattr("__getitem__")? && !is_mapping(given)?)
}

/// What `read` makes of each item; `None` of what has none, and of bytes. Some never end: Ctrl-C does.
pub(crate) fn each<'py, T>(
    given: &Bound<'py, PyAny>,
    mut read: impl FnMut(Bound<'py, PyAny>) -> PyResult<T>,
) -> PyResult<Option<Vec<T>>> {
    let py = given.py();
    if is_bytes(given) {
        return Ok(None);
    }
    let items = match given.try_iter() {
        Err(e) if e.is_instance_of::<PyTypeError>(py) => return Ok(None),
        items => items?,
    };
    items.map(|item| py.check_signals().and(read(item?))).collect::<PyResult<_>>().map(Some)
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
