//! How does plain data cross? As JSON, between the library's types and the dataclasses of `skulk._contract` and
//! `skulk.vindex`.

use pyo3::call::PyCallArgs;
use pyo3::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use skulk::{Error, ErrorKind, ModelCard};
use skulk_contract::functions::sound;
use skulk_contract::options::Spelling;

use crate::convert::kind;
use crate::error::{argument, raise};
use crate::given;

fn fields<'py>(field: &str, value: &Bound<'py, PyAny>, class: &str) -> PyResult<Bound<'py, PyAny>> {
    if !value.is_instance(&value.py().import("skulk")?.getattr(class)?)? {
        let message = format!("expected a skulk.{class}, found {}", kind(value)?);
        return Err(argument(field, message, None));
    }
    value.call_method0("to_dict")
}

/// The value that an argument stands for, which must be an instance of `skulk.<class>`.
pub(crate) fn read<T: DeserializeOwned>(
    field: &'static str,
    argument: &Bound<'_, PyAny>,
    class: &str,
) -> PyResult<T> {
    sound(field, given::value(field, &fields(field, argument, class)?)?, Spelling::Snake).map_err(raise)
}

/// A `skulk.ModelCard`, checked as if it came from a file.
pub(crate) fn card(value: &Bound<'_, PyAny>) -> PyResult<ModelCard> {
    let fields = fields("card", value, "ModelCard")?;
    let fields = value.py().import("skulk._methods")?.call_method1("snake", (fields,))?;
    ModelCard::from_json(&given::value("card", &fields)?.to_string()).map_err(raise)
}

/// A module of dataclasses.
#[derive(Clone, Copy)]
pub(crate) struct Data(&'static str);

/// What `skulk` and `skulk.planning` have.
pub(crate) const CONTRACT: Data = Data("skulk._contract");
/// What `skulk.vindex` has.
pub(crate) const VINDEX: Data = Data("skulk.vindex");

impl Data {
    fn class<'py>(self, py: Python<'py>, class: &str) -> PyResult<Bound<'py, PyAny>> {
        py.import(self.0)?.getattr(class)
    }

    /// An instance from its JSON.
    pub(crate) fn read<'py>(self, py: Python<'py>, class: &str, json: &str) -> PyResult<Bound<'py, PyAny>> {
        self.class(py, class)?.call_method1("_of", (plain(py, json)?,))
    }

    /// An instance from what it is in the library.
    pub(crate) fn one<'py>(
        self,
        py: Python<'py>,
        class: &str,
        value: &impl Serialize,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.read(py, class, &write(value)?)
    }

    /// The same of many.
    pub(crate) fn many<'py, T: Serialize>(
        self,
        py: Python<'py>,
        class: &str,
        values: impl IntoIterator<Item = T>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let of = self.class(py, class)?.getattr("_of")?;
        let values: Vec<T> = values.into_iter().collect();
        plain(py, &write(&values)?)?.try_iter()?.map(|value| of.call1((value?,))).collect()
    }

    /// An instance of these fields, for what is made often.
    pub(crate) fn of<'py>(
        self,
        py: Python<'py>,
        class: &str,
        fields: impl PyCallArgs<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.class(py, class)?.call1(fields)
    }
}

/// A card as `skulk.ModelCard`.
pub(crate) fn card_data<'py>(py: Python<'py>, card: &ModelCard) -> PyResult<Bound<'py, PyAny>> {
    CONTRACT.read(py, "ModelCard", &card.to_json())
}

/// JSON as Python's own dictionaries, lists and numbers.
pub(crate) fn plain<'py>(py: Python<'py>, json: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (json,))
}

/// What a value is in JSON.
pub(crate) fn write(value: &impl Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|e| {
        raise(Error::new(ErrorKind::Internal, "expected a value that JSON can hold").with_source(e))
    })
}
