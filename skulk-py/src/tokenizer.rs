//! How does Python turn text into tokens? `skulk.Tokenizer`.

use pyo3::prelude::*;

use crate::convert::{numbers, token_ids};
use crate::error::raise;

/// A model's vocabulary and the rules that cut text into it. See `Model.tokenizer`.
#[pyclass(frozen, module = "skulk")]
pub(crate) struct Tokenizer(pub(crate) skulk::Model);

#[pymethods]
impl Tokenizer {
    /// The tokens of `text`. Control tokens spelt out in it become those tokens; with
    /// `add_special`, the model's rules add a beginning-of-sequence token where it belongs.
    #[pyo3(signature = (text, add_special=true))]
    fn encode(&self, py: Python<'_>, text: &str, add_special: bool) -> PyResult<Vec<u32>> {
        let ids = py.detach(|| self.0.tokenizer().encode(text, add_special)).map_err(raise)?;
        Ok(numbers(&ids))
    }

    /// The text of `ids`. Control tokens are left out with `skip_special`, spelt out without.
    #[pyo3(signature = (ids, skip_special=true))]
    fn decode(&self, py: Python<'_>, ids: Vec<i128>, skip_special: bool) -> PyResult<String> {
        let ids = token_ids("ids", ids)?;
        Ok(py.detach(|| self.0.tokenizer().decode(&ids, skip_special)))
    }

    /// The beginning-of-sequence token, if the model has one.
    #[getter]
    fn bos(&self) -> Option<u32> {
        self.0.tokenizer().bos().map(|id| id.0)
    }

    /// The tokens that end a generation.
    #[getter]
    fn eos_ids(&self) -> Vec<u32> {
        numbers(self.0.tokenizer().eos_ids())
    }

    /// One past the highest token id.
    #[getter]
    fn vocab_size(&self) -> usize {
        self.0.tokenizer().vocab_size()
    }

    fn __repr__(&self) -> String {
        format!("<skulk.Tokenizer: {} tokens>", self.vocab_size())
    }
}
