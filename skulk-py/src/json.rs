//! How do cards, clusters and other trees of values cross? As JSON, between the library's types and
//! dataclasses.

use std::str::FromStr;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use serde::de::DeserializeOwned;
use skulk::{Error, ErrorKind, ModelCard};

use crate::error::raise;

/// What an argument, which must be an instance of `skulk.<class>`, says of itself.
pub(crate) fn text(value: &Bound<'_, PyAny>, class: &str) -> PyResult<String> {
    if !value.is_instance(&value.py().import("skulk")?.getattr(class)?)? {
        let found = value.get_type().name()?;
        return Err(PyTypeError::new_err(format!("expected a skulk.{class}, found {found}")));
    }
    value.call_method0("_wire")?.extract()
}

/// The value that an argument's JSON stands for.
pub(crate) fn read<T: DeserializeOwned>(field: &'static str, json: &str) -> PyResult<T> {
    serde_json::from_str(json).map_err(|e| raise(invalid(field, &e)))
}

/// The member of a closed set that has this name.
pub(crate) fn named<T: FromStr<Err = Error>>(field: &'static str, name: &str) -> PyResult<T> {
    name.parse().map_err(|e: Error| raise(e.with("field", field)))
}

fn invalid(field: &'static str, cause: &serde_json::Error) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("expected a sound {field}, found: {cause}"))
        .with("field", field)
}

/// A `skulk.ModelCard`, checked as if it came from a file.
pub(crate) fn card(value: &Bound<'_, PyAny>) -> PyResult<ModelCard> {
    ModelCard::from_json(&text(value, "ModelCard")?).map_err(raise)
}

/// An instance of a dataclass of `skulk` from its JSON.
pub(crate) fn data<'py>(py: Python<'py>, class: &str, json: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("skulk")?.getattr(class)?.call_method1("_of", (json,))
}

/// JSON as Python's own dictionaries, lists and numbers.
pub(crate) fn plain<'py>(py: Python<'py>, json: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (json,))
}

/// What a value is in JSON.
pub(crate) fn write(value: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|e| {
        let error = Error::new(ErrorKind::Internal, "expected a value that JSON can hold").with_source(e);
        raise(error.with_hint("please report this"))
    })
}
