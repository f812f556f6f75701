//! Which options did Python give? Keyword arguments, as the library reads them.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyMapping, PyString};
use serde_json::{Map, Number, Value};
use skulk::{Error, ErrorKind};
use skulk_contract::options::Spelling;

use crate::error::raise;

/// Reads options that were given by name.
pub(crate) fn options<T>(
    given: Option<&Bound<'_, PyDict>>,
    read: impl FnOnce(Map<String, Value>, Spelling) -> skulk::Result<T>,
) -> PyResult<T> {
    let fields = given.map(fields).transpose()?.unwrap_or_default();
    read(fields, Spelling::Snake).map_err(raise)
}

/// What was given by name.
pub(crate) fn fields(given: &Bound<'_, PyDict>) -> PyResult<Map<String, Value>> {
    given.iter().map(|(name, given)| Ok((name.extract()?, value(&given)?))).collect()
}

/// How deep lists and dictionaries may lie in each other, as in JSON that the library reads.
const DEPTH: usize = 128;

/// What the library reads a value from: JSON, in which numbers that JSON does not have are texts.
pub(crate) fn value(given: &Bound<'_, PyAny>) -> PyResult<Value> {
    within(given, DEPTH)
}

fn within(given: &Bound<'_, PyAny>, depth: usize) -> PyResult<Value> {
    let Some(depth) = depth.checked_sub(1) else {
        let message = format!("expected lists and dictionaries at most {DEPTH} deep in each other");
        return Err(raise(Error::new(ErrorKind::InvalidArgument, message)));
    };
    if given.is_none() {
        Ok(Value::Null)
    } else if let Ok(bool) = given.cast::<PyBool>() {
        Ok(bool.is_true().into())
    } else if given.is_instance_of::<PyInt>() {
        whole(given)
    } else if given.is_instance_of::<PyFloat>() {
        Ok(float(given.extract()?))
    } else if let Ok(text) = given.cast::<PyString>() {
        Ok(text.to_str()?.into())
    } else if given.hasattr("__fspath__")? {
        within(&given.call_method0("__fspath__")?, depth)
    } else if given.hasattr("to_dict")? {
        within(&given.call_method0("to_dict")?, depth)
    } else if let Ok(mapping) = given.cast::<PyMapping>() {
        let mut fields = Map::new();
        for pair in mapping.items()? {
            let (key, item): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair.extract()?;
            fields.insert(key.str()?.to_str()?.to_owned(), within(&item, depth)?);
        }
        Ok(fields.into())
    } else if let Ok(items) = given.try_iter() {
        // Some never end: Ctrl-C does.
        let read = |item: PyResult<Bound<'_, PyAny>>| given.py().check_signals().and(within(&item?, depth));
        items.map(read).collect::<PyResult<Vec<_>>>().map(Value::from)
    } else if given.hasattr("__index__")? {
        whole(&given.call_method0("__index__")?)
    } else if given.hasattr("__float__")? {
        Ok(float(given.extract()?))
    } else {
        let kind = given.get_type().name()?;
        Err(PyTypeError::new_err(format!("expected plain data, found an instance of {kind}")))
    }
}

/// Numbers that are too large for any option become floats, which are refused by name.
fn whole(given: &Bound<'_, PyAny>) -> PyResult<Value> {
    match (given.extract::<u64>(), given.extract::<i64>()) {
        (Ok(number), _) => Ok(number.into()),
        (_, Ok(number)) => Ok(number.into()),
        _ => Ok(float(given.extract().unwrap_or(f64::INFINITY))),
    }
}

fn float(number: f64) -> Value {
    Number::from_f64(number).map_or_else(|| word(number).into(), Value::Number)
}

/// What JSON cannot say.
fn word(number: f64) -> &'static str {
    if number.is_nan() {
        "NaN"
    } else if number > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    }
}
