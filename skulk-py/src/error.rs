//! Which exception does a failure become? One class per `ErrorKind`, under `skulk.Error`.

use std::io;

use pyo3::exceptions::{
    PyException, PyFileNotFoundError, PyMemoryError, PyOSError, PyTypeError, PyValueError,
};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{IntoPyDict, PyDict, PyList, PyTuple, PyType};
use skulk::{ContextDetail, ErrorKind, Fault, ShapeDetail};

use crate::json::CONTRACT;
use crate::plan::PlanReport;

/// The base class and, in the order of [`ErrorKind::ALL`], each kind's.
struct Classes {
    base: Py<PyType>,
    kinds: Vec<(ErrorKind, Py<PyType>)>,
}

static CLASSES: PyOnceLock<Classes> = PyOnceLock::new();

impl Classes {
    fn get(py: Python<'_>) -> PyResult<&Self> {
        CLASSES.get_or_try_init(py, || {
            let doc = "Base class of everything skulk raises on its own account.";
            let bases = PyTuple::new(py, [py.get_type::<PyException>()])?;
            let base = class(py, "Error", doc, &bases, &[])?;
            let kinds = ErrorKind::ALL.iter().map(|&kind| {
                let bases = std::iter::once(base.clone()).chain(builtin(py, kind));
                let bases = PyTuple::new(py, bases.collect::<Vec<_>>())?;
                let doc = format!("Raised for failures with the code `{}`.", kind.code());
                let class = class(py, &class_name(kind), &doc, &bases, &[("code", kind.code())])?;
                if class.is_subclass_of::<PyOSError>()? {
                    // In place of the fields of OSError, which would make the text and are not pickled.
                    for name in ["errno", "strerror", "filename"] {
                        class.setattr(name, py.None())?;
                    }
                }
                Ok((kind, class.unbind()))
            });
            Ok(Self { kinds: kinds.collect::<PyResult<_>>()?, base: base.unbind() })
        })
    }
}

fn class_name(kind: ErrorKind) -> String {
    format!("{}Error", kind.name())
}

/// Python's own classes for the same situation, so that `except FileNotFoundError` works too.
fn builtin(py: Python<'_>, kind: ErrorKind) -> Vec<Bound<'_, PyType>> {
    match kind {
        ErrorKind::InvalidArgument => vec![py.get_type::<PyValueError>(), py.get_type::<PyTypeError>()],
        ErrorKind::FileNotFound => vec![py.get_type::<PyFileNotFoundError>()],
        ErrorKind::FileIo => vec![py.get_type::<PyOSError>()],
        ErrorKind::OutOfMemory => vec![py.get_type::<PyMemoryError>()],
        _ => vec![],
    }
}

fn class<'py>(
    py: Python<'py>,
    name: &str,
    doc: &str,
    bases: &Bound<'py, PyTuple>,
    attributes: &[(&str, &str)],
) -> PyResult<Bound<'py, PyType>> {
    let body = [("__module__", "skulk"), ("__doc__", doc)].iter().chain(attributes).into_py_dict(py)?;
    Ok(py.get_type::<PyType>().call1((name, bases, body))?.cast_into()?)
}

/// Adds every exception class to the module.
pub(crate) fn add_classes(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let classes = Classes::get(module.py())?;
    module.add("Error", &classes.base)?;
    classes.kinds.iter().try_for_each(|(kind, class)| module.add(class_name(*kind), class))
}

/// Every kind of error as `(name, code)`; the class of kind `Name` is `skulk.NameError`.
#[pyfunction]
pub(crate) fn error_kinds() -> Vec<(&'static str, &'static str)> {
    ErrorKind::ALL.iter().map(|kind| (kind.name(), kind.code())).collect()
}

/// The exception for a failure of the library.
pub(crate) fn raise(error: skulk::Error) -> PyErr {
    Python::attach(|py| exception(py, &error).map_or_else(|e| e, PyErr::from_value))
}

pub(crate) fn exception<'py>(py: Python<'py>, error: &skulk::Error) -> PyResult<Bound<'py, PyAny>> {
    let classes = Classes::get(py)?;
    let class = classes.kinds.iter().find(|(kind, _)| *kind == error.kind()).map(|(_, class)| class);
    let value = class.unwrap_or(&classes.base).bind(py).call1((format!("{error:?}"),))?;
    value.setattr("code", error.code())?;
    value.setattr("message", error.message())?;
    value.setattr("hint", error.hint())?;
    value.setattr("retry", error.retry().as_str())?;
    let mut context = Vec::<(&str, String)>::new();
    for (name, text) in error.context() {
        match context.iter_mut().find(|(known, _)| known == name) {
            Some((_, all)) => *all = format!("{all}, {text}"),
            None => context.push((name, text.clone())),
        }
    }
    value.setattr("context", context.into_py_dict(py)?)?;
    let detail = facts(py, error)?;
    let fact = |name: &str| detail.as_ref().and_then(|facts| facts.get_item(name).ok().flatten());
    match error.kind() {
        ErrorKind::CardInvalid => {
            value.setattr("faults", fact("faults").unwrap_or_else(|| PyList::empty(py).into_any()))?;
        }
        ErrorKind::FileNotFound | ErrorKind::FileIo => {
            value.setattr("errno", errno(py, error)?)?;
            value.setattr("strerror", error.message())?;
            let file = error.context().iter().find(|(name, _)| matches!(*name, "file" | "folder"));
            value.setattr("filename", file.map(|(_, path)| path))?;
        }
        ErrorKind::PlanNoFit | ErrorKind::PlanPending => value.setattr("report", fact("report"))?,
        _ => {}
    }
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
        [("report", Bound::new(py, PlanReport(report.clone()))?)].into_py_dict(py)?
    } else if let Some(tokens) = error.detail::<ContextDetail>() {
        [("needed", tokens.needed), ("available", tokens.available)].into_py_dict(py)?
    } else if let Some(shape) = error.detail::<ShapeDetail>() {
        [("expected", &shape.expected), ("found", &shape.found)].into_py_dict(py)?
    } else {
        return Ok(None);
    };
    Ok(Some(facts))
}
