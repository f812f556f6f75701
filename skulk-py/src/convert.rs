//! How do values cross? Numbers into the library's types, results into the dataclasses of
//! `skulk._data`.

use std::fmt::Display;
use std::ops::Range;

use pyo3::call::PyCallArgs;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyRange, PyString};
use skulk::arch::ArchSpec;
use skulk::card::GgufFacts;
use skulk::plan::memory::Usable;
use skulk::plan::{Budget, ExpertShard, Part};
use skulk::{
    DeviceInfo, Divergence, EngineId, Error, ErrorKind, Event, Fault, FfnMemory, Finish, Output, StageInfo,
    TokenId,
};

use crate::error::raise;

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

/// Ranges of an argument, each as its first number and the one behind its last.
pub(crate) fn ranges(field: &'static str, pairs: Vec<(i128, i128)>) -> PyResult<Vec<Range<usize>>> {
    pairs.into_iter().map(|(start, end)| Ok(unsigned(field, start)?..unsigned(field, end)?)).collect()
}

/// Token ids of an argument.
pub(crate) fn token_ids(field: &'static str, ids: Vec<i128>) -> PyResult<Vec<TokenId>> {
    ids.into_iter().map(|id| unsigned(field, id).map(TokenId)).collect()
}

/// Names of an argument: any iterable of texts, but not one text.
pub(crate) struct Names<C = Vec<String>>(pub(crate) C);

impl<'py, C: FromIterator<String>> FromPyObject<'_, 'py> for Names<C> {
    type Error = PyErr;

    fn extract(names: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if names.is_instance_of::<PyString>() {
            return Err(PyTypeError::new_err("expected several names, found one text"));
        }
        names.try_iter()?.map(|name| name?.extract()).collect::<PyResult<_>>().map(Self)
    }
}

/// The member of a closed set that has this name.
pub(crate) fn choice<T: Copy + Display>(field: &'static str, name: &str, all: &[T]) -> PyResult<T> {
    if let Some(value) = all.iter().find(|value| value.to_string() == name) {
        return Ok(*value);
    }
    let mut names: Vec<_> = all.iter().map(|value| format!("`{value}`")).collect();
    let last = names.pop().unwrap_or_default();
    let message = format!("expected {} or {last}, found `{name}`", names.join(", "));
    Err(raise(Error::new(ErrorKind::InvalidArgument, message).with("field", field)))
}

/// Token ids as Python's numbers.
pub(crate) fn numbers(ids: &[TokenId]) -> Vec<u32> {
    ids.iter().map(|id| id.0).collect()
}

/// A list of what each item becomes.
pub(crate) fn list<'py, T>(
    items: impl IntoIterator<Item = T>,
    convert: impl FnMut(T) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    items.into_iter().map(convert).collect()
}

/// An instance of a dataclass, its fields in order.
fn data<'py>(py: Python<'py>, class: &str, fields: impl PyCallArgs<'py>) -> PyResult<Bound<'py, PyAny>> {
    py.import("skulk._data")?.getattr(class)?.call1(fields)
}

pub(crate) fn arch<'py>(py: Python<'py>, arch: &ArchSpec) -> PyResult<Bound<'py, PyAny>> {
    let fields = (&arch.family, arch.n_layers(), arch.hidden_size, arch.vocab_size, arch.context_length);
    data(py, "Arch", fields)
}

pub(crate) fn stage<'py>(py: Python<'py>, stage: &StageInfo) -> PyResult<Bound<'py, PyAny>> {
    let layers = range(py, &stage.layers)?;
    let (weights, kv_cache) = (stage.weights.bytes(), stage.kv_cache.bytes());
    let memory = stage.memory.as_str();
    data(py, "Stage", (stage.engine.as_str(), &stage.device, layers, weights, kv_cache, memory))
}

pub(crate) fn device<'py>(py: Python<'py>, device: &DeviceInfo) -> PyResult<Bound<'py, PyAny>> {
    let DeviceInfo { engine, name, driver, software, shares_memory, .. } = device;
    let memory = device.memory.map(|memory| memory.bytes());
    let used = device.memory_used.map(|memory| memory.bytes());
    let (engine, vendor) = (engine.as_str(), device.vendor.as_str());
    data(py, "Device", (engine, name, vendor, driver, *software, memory, used, *shares_memory))
}

pub(crate) fn event<'py>(py: Python<'py>, event: &Event) -> PyResult<Bound<'py, PyAny>> {
    let token = event.token.as_ref().map(|token| {
        let top = list(&token.top_logprobs, |t| data(py, "TokenLogprob", (t.id.0, t.logprob)))?;
        data(py, "Token", (token.id.0, token.logprob, top))
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

pub(crate) fn ffn_memory<'py>(py: Python<'py>, memory: &FfnMemory) -> PyResult<Bound<'py, PyAny>> {
    let FfnMemory { budget, in_memory, peak, let_go, .. } = memory;
    data(py, "FfnMemory", (budget.bytes(), in_memory.bytes(), peak.bytes(), let_go.bytes()))
}

pub(crate) fn divergence<'py>(py: Python<'py>, found: &Divergence) -> PyResult<Bound<'py, PyAny>> {
    data(py, "Divergence", (found.tokens, found.mean_kl, found.max_kl, found.top1_agreement))
}

pub(crate) fn placed_stage<'py>(py: Python<'py>, stage: &skulk::Stage) -> PyResult<Bound<'py, PyAny>> {
    let (part, cfg) = match stage.part {
        Part::Whole => ("whole", None),
        Part::Tensor => ("tensor", None),
        Part::Cfg { cfg_rank, cfg_world_size, pipeline_rank, pipeline_world_size } => {
            let ranks = (cfg_rank, cfg_world_size, pipeline_rank, pipeline_world_size);
            ("cfg", Some(data(py, "CfgPart", ranks)?))
        }
        part => {
            let error = Error::new(ErrorKind::Internal, format!("expected a known part, found {part:?}"));
            return Err(raise(error));
        }
    };
    let (node, engine) = (stage.node.as_str(), stage.engine());
    let engine = engine.as_ref().map(EngineId::as_str);
    data(py, "PlacedStage", (node, &stage.backend, engine, range(py, &stage.layers)?, part, cfg))
}

pub(crate) fn expert_shard<'py>(py: Python<'py>, shard: &ExpertShard) -> PyResult<Bound<'py, PyAny>> {
    let (node, engine) = (shard.node.as_str(), shard.engine());
    let engine = engine.as_ref().map(EngineId::as_str);
    let (layers, experts) = (range(py, &shard.layers)?, range(py, &shard.experts)?);
    let fields = (node, &shard.backend, engine, layers, experts, shard.n_experts, shard.replica);
    data(py, "ExpertShard", fields)
}

pub(crate) fn budget<'py>(py: Python<'py>, budget: &Budget) -> PyResult<Bound<'py, PyAny>> {
    let b = budget.bytes;
    let bytes = (b.attention, b.feed_forward, b.kv_cache, b.activations, b.headroom);
    let bytes = data(py, "Bytes", bytes)?;
    data(py, "Budget", (budget.node.as_str(), &budget.backend, bytes, budget.usable))
}

pub(crate) fn picture<'py>(py: Python<'py>, svg: &str) -> PyResult<Bound<'py, PyAny>> {
    data(py, "Picture", (svg,))
}

pub(crate) fn usable<'py>(py: Python<'py>, usable: Usable) -> PyResult<Bound<'py, PyAny>> {
    data(py, "Usable", (usable.bytes, usable.vram))
}

pub(crate) fn gguf_facts<'py>(py: Python<'py>, facts: &GgufFacts) -> PyResult<Bound<'py, PyAny>> {
    let GgufFacts { architecture, n_layers, hidden_size, num_key_value_heads, context_length, .. } = facts;
    let fields = (architecture, *n_layers, *hidden_size, *num_key_value_heads, *context_length);
    data(py, "GgufFacts", fields)
}

pub(crate) fn card_fault<'py>(py: Python<'py>, fault: &Fault) -> PyResult<Bound<'py, PyAny>> {
    data(py, "CardFault", (&fault.field, fault.kind.as_str(), &fault.found, &fault.allowed))
}

pub(crate) fn range<'py>(py: Python<'py>, range: &Range<usize>) -> PyResult<Bound<'py, PyRange>> {
    PyRange::new(py, range.start as isize, range.end as isize)
}
