//! Who is told how far work is? What Python gave as `progress`.

use pyo3::prelude::*;
use pyo3::types::PyBool;

/// The callback: what was given, or, for `True`, a bar that says `what` is going on, in `unit`s.
pub(crate) fn callback<'py>(
    given: Option<Bound<'py, PyAny>>,
    what: &str,
    unit: &str,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(given) = given else { return Ok(None) };
    match given.cast::<PyBool>() {
        Ok(shown) if shown.is_true() => {
            given.py().import("skulk._progress")?.getattr("bar")?.call1((what, unit)).map(Some)
        }
        Ok(_) => Ok(None),
        Err(_) => Ok(Some(given)),
    }
}
