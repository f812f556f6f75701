//! Which options did Python give? Keyword arguments, as the library reads them.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString};
use serde_json::{Map, Number, Value};
use skulk_contract::options::Spelling;

use crate::convert::{each, is_mapping, kind, text};
use crate::error::{argument, raise};

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
    let field = |(name, given): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        // What has no such name is refused by it.
        let name = name.str()?.to_string_lossy().into_owned();
        let value = value(&name, &given)?;
        Ok((name, value))
    };
    given.iter().map(field).collect()
}

/// How deep lists and dictionaries may lie in each other, as in JSON that the library reads.
const DEPTH: usize = 128;

/// Options that are JSON themselves: a text in place of a number that JSON does not have would be another value.
const JSON: [&str; 2] = ["json_schema", "response_format"];

/// What the library reads an argument from: JSON, in which numbers that JSON does not have are texts.
pub(crate) fn value(field: &str, given: &Bound<'_, PyAny>) -> PyResult<Value> {
    within(field, given, DEPTH)
}

fn within(field: &str, given: &Bound<'_, PyAny>, depth: usize) -> PyResult<Value> {
    let Some(depth) = depth.checked_sub(1) else {
        let message =
            format!("expected lists and dictionaries at most {DEPTH} deep in each other, found deeper ones");
        return Err(argument(field, message, None));
    };
    if given.is_none() {
        return Ok(Value::Null);
    } else if let Ok(bool) = given.cast::<PyBool>() {
        return Ok(bool.is_true().into());
    } else if given.is_instance_of::<PyInt>() {
        return whole(field, given);
    } else if given.is_instance_of::<PyFloat>() {
        return float(field, given.extract()?);
    } else if let Ok(given) = given.cast::<PyString>() {
        return text(field, given).map(Value::from);
    } else if given.hasattr("__fspath__")? {
        return within(field, &given.call_method0("__fspath__")?, depth);
    } else if given.hasattr("to_dict")? {
        return within(field, &given.call_method0("to_dict")?, depth);
    } else if is_mapping(given)? {
        return mapping(field, given, depth);
    } else if let Some(items) = each(given, |item| within(field, &item, depth))? {
        return Ok(items.into());
    } else if given.hasattr("__index__")? {
        return whole(field, &given.call_method0("__index__")?);
    } else if given.hasattr("__float__")? {
        return float(field, given.extract()?);
    }
    let message = format!("expected numbers, texts, lists and dictionaries of them, found {}", kind(given)?);
    Err(argument(field, message, None))
}

fn mapping(field: &str, given: &Bound<'_, PyAny>, depth: usize) -> PyResult<Value> {
    let mut fields = Map::new();
    let keys = each(&given.call_method0("keys")?, Ok)?.unwrap_or_default();
    for key in keys {
        let name = name(field, &key)?;
        let value = within(field, &given.get_item(&key)?, depth)?;
        if fields.contains_key(&name) {
            let message = format!("expected each key once, found `{name}` as a number and as a text");
            return Err(argument(field, message, None));
        }
        fields.insert(name, value);
    }
    Ok(fields.into())
}

/// A key as JSON has it, which is a text; numbers of tokens are, too.
fn name(field: &str, key: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(key) = key.cast::<PyString>() {
        return text(field, key);
    }
    if key.hasattr("__index__")? && !key.is_instance_of::<PyBool>() {
        return text(field, &key.call_method0("__index__")?.str()?);
    }
    let message = format!("expected keys that are texts or whole numbers, found {}", kind(key)?);
    Err(argument(field, message, None))
}

/// Numbers that are too large for any option become floats, which are refused by name.
fn whole(field: &str, given: &Bound<'_, PyAny>) -> PyResult<Value> {
    match (given.extract::<u64>(), given.extract::<i64>()) {
        (Ok(number), _) => Ok(number.into()),
        (_, Ok(number)) => Ok(number.into()),
        _ => float(field, given.extract().unwrap_or(f64::INFINITY)),
    }
}

fn float(field: &str, number: f64) -> PyResult<Value> {
    match Number::from_f64(number) {
        Some(number) => Ok(number.into()),
        None if JSON.contains(&field) => {
            let message = format!("expected numbers that JSON has, found {number}");
            Err(argument(field, message, Some("leave out a bound that is none")))
        }
        None => Ok(word(number).into()),
    }
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
