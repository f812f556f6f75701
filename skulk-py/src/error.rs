//! Which exception does a failure become? One of `skulk._errors`, which has a class for each kind.

use std::borrow::Cow;
use std::io;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict, PyList, PyString};
use skulk::{ContextDetail, ErrorKind, Fault, ShapeDetail};
use skulk_contract::options::Spelling;
use skulk_contract::{Failure, keep_names};

use crate::json::CONTRACT;
use crate::plan::report_of;

/// Every kind of error as `(name, code)`; the class of kind `Name` is `skulk.NameError`.
#[pyfunction]
pub(crate) fn error_kinds() -> Vec<(&'static str, &'static str)> {
    skulk_contract::kinds().collect()
}

/// The exception for a failure of the library.
pub(crate) fn raise(error: skulk::Error) -> PyErr {
    Python::attach(|py| exception(py, &error).map_or_else(|e| e, PyErr::from_value))
}

/// An argument is not what it may be.
pub(crate) fn argument(
    field: &str,
    message: impl Into<Cow<'static, str>>,
    hint: Option<&'static str>,
) -> PyErr {
    let error = skulk::Error::new(ErrorKind::InvalidArgument, message).with("field", field);
    raise(keep_names(match hint {
        Some(hint) => error.with_hint(hint),
        None => error,
    }))
}

/// What is to be raised where an argument of the package is not what it may be.
#[pyfunction]
pub(crate) fn invalid<'py>(
    py: Python<'py>,
    field: &str,
    message: &Bound<'py, PyString>,
) -> Bound<'py, PyAny> {
    argument(field, message.to_string_lossy().into_owned(), None).into_value(py).into_bound(py).into_any()
}

pub(crate) fn exception<'py>(py: Python<'py>, error: &skulk::Error) -> PyResult<Bound<'py, PyAny>> {
    let class = format!("{}Error", error.kind().name());
    let failure = Failure::of(error, Spelling::Snake);
    let value = py.import("skulk._errors")?.getattr(class)?.call1((failure.text,))?;
    let detail = facts(py, error)?;
    let fact = |name: &str| detail.as_ref().and_then(|facts| facts.get_item(name).ok().flatten());
    match error.kind() {
        ErrorKind::CardInvalid => {
            value.setattr("faults", fact("faults").unwrap_or_else(|| PyList::empty(py).into_any()))?;
        }
        ErrorKind::FileNotFound | ErrorKind::FileIo => {
            value.setattr("errno", errno(py, error)?)?;
            value.setattr("strerror", &failure.message)?;
            let file = error.context().iter().find(|(name, _)| matches!(*name, "file" | "folder"));
            value.setattr("filename", file.map(|(_, path)| path))?;
        }
        ErrorKind::PlanNoFit | ErrorKind::PlanPending => value.setattr("report", fact("report"))?,
        _ => {}
    }
    value.setattr("code", failure.code)?;
    value.setattr("message", failure.message)?;
    value.setattr("hint", failure.hint)?;
    value.setattr("retry", error.retry().as_str())?;
    value.setattr("context", failure.context.into_py_dict(py)?)?;
    value.setattr("detail", detail)?;
    Ok(value)
}

/// The system's number of a failure, as Python's `errno` has it.
fn errno(py: Python<'_>, error: &skulk::Error) -> PyResult<Option<i32>> {
    let named = |name: &str| py.import("errno")?.getattr(name)?.extract().map(Some);
    if error.kind() == ErrorKind::FileNotFound {
        return named("ENOENT");
    }
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    let causes: Vec<_> = causes.filter_map(|e| e.downcast_ref::<io::Error>()).collect();
    let Some(code) = causes.iter().find_map(|e| e.raw_os_error()) else {
        // Errors that a library added a path to have no number, but a kind.
        return match causes.first().map(|e| e.kind()) {
            Some(io::ErrorKind::NotADirectory) => named("ENOTDIR"),
            Some(io::ErrorKind::PermissionDenied) => named("EACCES"),
            Some(io::ErrorKind::ReadOnlyFilesystem) => named("EROFS"),
            Some(io::ErrorKind::StorageFull) => named("ENOSPC"),
            _ => Ok(None),
        };
    };
    // On Windows the system has numbers of its own, which Python translates.
    if cfg!(windows) {
        let translated = py.get_type::<PyOSError>().call1((0, "", py.None(), code))?;
        return translated.getattr("errno")?.extract();
    }
    Ok(Some(code))
}

fn facts<'py>(py: Python<'py>, error: &skulk::Error) -> PyResult<Option<Bound<'py, PyDict>>> {
    let facts = if let Some(faults) = error.detail::<Vec<Fault>>() {
        let faults = CONTRACT.many(py, "CardFault", faults)?;
        [("faults", faults)].into_py_dict(py)?
    } else if let Some(report) = error.detail::<skulk::PlanReport>() {
        [("report", report_of(py, report)?)].into_py_dict(py)?
    } else if let Some(tokens) = error.detail::<ContextDetail>() {
        [("needed", tokens.needed), ("available", tokens.available)].into_py_dict(py)?
    } else if let Some(shape) = error.detail::<ShapeDetail>() {
        [("expected", &shape.expected), ("found", &shape.found)].into_py_dict(py)?
    } else {
        return Ok(None);
    };
    Ok(Some(facts))
}
