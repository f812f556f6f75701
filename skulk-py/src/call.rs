//! How does Python call the library's functions of plain data? By their names, with arguments as JSON has them.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use skulk::card::GgufFacts;
use skulk_contract::functions::{self, Arguments, Work};
use skulk_contract::options::Spelling;

use crate::error::raise;
use crate::given;
use crate::json::{self, CONTRACT};

/// What a function gives, as dictionaries, lists and numbers.
#[pyfunction]
pub(crate) fn call<'py>(
    py: Python<'py>,
    name: &str,
    arguments: &Bound<'_, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut given = Arguments::of(given::fields(arguments)?, Spelling::Snake);
    let given = py.detach(|| functions::call(name, &mut given, &Work::default()));
    json::plain(py, &given.map_err(raise)?)
}

/// What the start of a GGUF file says that a card needs.
#[pyfunction]
pub(crate) fn gguf_facts<'py>(py: Python<'py>, start: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    CONTRACT.one(py, "GgufFacts", &GgufFacts::read(start).map_err(raise)?)
}
