//! How do values cross? Numbers into the library's types, results into the dataclasses of
//! `skulk._data`.

use pyo3::prelude::*;
use pyo3::types::{PyRange, PyTuple};
use skulk::arch::ArchSpec;
use skulk::{DeviceInfo, Error, ErrorKind, Event, Finish, Output, StageInfo, TokenId};

use crate::error::raise;

/// An argument that the library takes as an unsigned number; Python's may be negative or huge.
pub(crate) fn unsigned<T: TryFrom<i128>>(field: &'static str, value: i128) -> PyResult<T> {
    T::try_from(value).map_err(|_| {
        let bits = 8 * size_of::<T>();
        let message = format!("expected an unsigned {bits}-bit number, found {value}");
        raise(Error::new(ErrorKind::InvalidArgument, message).with("field", field))
    })
}

/// Token ids of an argument.
pub(crate) fn token_ids(field: &'static str, ids: Vec<i128>) -> PyResult<Vec<TokenId>> {
    ids.into_iter().map(|id| unsigned(field, id).map(TokenId)).collect()
}

/// Token ids as Python's numbers.
pub(crate) fn numbers(ids: &[TokenId]) -> Vec<u32> {
    ids.iter().map(|id| id.0).collect()
}

/// An instance of a dataclass, its fields in order.
fn data<'py>(
    py: Python<'py>,
    class: &str,
    fields: impl IntoPyObject<'py, Target = PyTuple, Output = Bound<'py, PyTuple>, Error = PyErr>,
) -> PyResult<Bound<'py, PyAny>> {
    py.import("skulk._data")?.getattr(class)?.call1(fields.into_pyobject(py)?)
}

pub(crate) fn arch<'py>(py: Python<'py>, arch: &ArchSpec) -> PyResult<Bound<'py, PyAny>> {
    let fields = (&arch.family, arch.n_layers(), arch.hidden_size, arch.vocab_size, arch.context_length);
    data(py, "Arch", fields)
}

pub(crate) fn stage<'py>(py: Python<'py>, stage: &StageInfo) -> PyResult<Bound<'py, PyAny>> {
    let layers = PyRange::new(py, stage.layers.start as isize, stage.layers.end as isize)?;
    let (weights, kv_cache) = (stage.weights.bytes(), stage.kv_cache.bytes());
    let memory = stage.memory.as_str();
    data(py, "Stage", (stage.engine.as_str(), &stage.device, layers, weights, kv_cache, memory))
}

pub(crate) fn device<'py>(py: Python<'py>, device: &DeviceInfo) -> PyResult<Bound<'py, PyAny>> {
    let memory = device.memory.map(|memory| memory.bytes());
    let DeviceInfo { engine, name, driver, software, shares_memory, .. } = device;
    data(py, "Device", (engine.as_str(), name, driver, *software, memory, *shares_memory))
}

pub(crate) fn event<'py>(py: Python<'py>, event: &Event) -> PyResult<Bound<'py, PyAny>> {
    let token = event.token.as_ref().map(|token| {
        let top = token.top_logprobs.iter().map(|t| data(py, "TokenLogprob", (t.id.0, t.logprob)));
        data(py, "Token", (token.id.0, token.logprob, top.collect::<PyResult<Vec<_>>>()?))
    });
    let finish = event.finish.as_ref().map(|f| finish(py, f)).transpose()?;
    data(py, "Event", (token.transpose()?, &event.text, finish))
}

pub(crate) fn output<'py>(py: Python<'py>, output: &Output) -> PyResult<Bound<'py, PyAny>> {
    data(py, "Output", (&output.text, numbers(&output.ids), finish(py, &output.finish)?))
}

fn finish<'py>(py: Python<'py>, finish: &Finish) -> PyResult<Bound<'py, PyAny>> {
    let (u, t) = (finish.usage, finish.timings);
    let usage = data(py, "Usage", (u.prompt_tokens, u.cached_tokens, u.completion_tokens))?;
    let timings = (
        t.load.as_secs_f64(),
        t.time_to_first_token.as_secs_f64(),
        t.prefill.as_secs_f64(),
        t.decode.as_secs_f64(),
        t.prefill_tokens_per_second,
        t.decode_tokens_per_second,
    );
    data(py, "Finish", (finish.reason.as_str(), usage, data(py, "Timings", timings)?))
}
