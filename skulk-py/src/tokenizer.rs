//! How does Python turn text into tokens? `skulk.Tokenizer`.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyString;
use skulk::browse::VindexBrowser;
use skulk::embed::EmbeddingModel;

use crate::convert::{self, numbers, token_ids};
use crate::error::raise;

/// A model's vocabulary and the rules that cut text into it. See `Model.tokenizer`,
/// `VindexReader.tokenizer` and `EmbeddingModel.tokenizer`.
#[pyclass(frozen, module = "skulk")]
pub(crate) struct Tokenizer(pub(crate) Owner);

/// Who has a tokenizer.
pub(crate) enum Owner {
    Model(skulk::Model),
    Vindex(Arc<VindexBrowser>),
    Embedding(Arc<EmbeddingModel>),
}

impl Tokenizer {
    fn get(&self) -> PyResult<&skulk::Tokenizer> {
        match &self.0 {
            Owner::Model(model) => Ok(model.tokenizer()),
            Owner::Vindex(browser) => browser.tokenizer().map_err(raise),
            Owner::Embedding(model) => Ok(model.tokenizer()),
        }
    }
}

#[pymethods]
impl Tokenizer {
    /// The tokens of `text`. Control tokens spelt out in it become those tokens; with
    /// `add_special`, the model's rules add a beginning-of-sequence token where it belongs.
    #[pyo3(signature = (text, add_special=true))]
    fn encode(&self, py: Python<'_>, text: &Bound<'_, PyString>, add_special: bool) -> PyResult<Vec<u32>> {
        let (tokenizer, text) = (self.get()?, convert::text("text", text)?);
        let ids = py.detach(|| tokenizer.encode(&text, add_special)).map_err(raise)?;
        Ok(numbers(&ids))
    }

    /// The tokens of `text` alone, in which texts of control tokens stay text.
    fn encode_text(&self, py: Python<'_>, text: &Bound<'_, PyString>) -> PyResult<Vec<u32>> {
        let (tokenizer, text) = (self.get()?, convert::text("text", text)?);
        let ids = py.detach(|| tokenizer.encode_text(&text)).map_err(raise)?;
        Ok(numbers(&ids))
    }

    /// The text of `ids`. Control tokens are left out with `skip_special`, spelt out without.
    #[pyo3(signature = (ids, skip_special=true))]
    fn decode(&self, py: Python<'_>, ids: &Bound<'_, PyAny>, skip_special: bool) -> PyResult<String> {
        let (tokenizer, ids) = (self.get()?, token_ids("ids", "a list of token ids", ids)?);
        Ok(py.detach(|| tokenizer.decode(&ids, skip_special)))
    }

    /// The beginning-of-sequence token, if the model has one.
    #[getter]
    fn bos(&self) -> PyResult<Option<u32>> {
        Ok(self.get()?.bos().map(|id| id.0))
    }

    /// The tokens that end a generation.
    #[getter]
    fn eos_ids(&self) -> PyResult<Vec<u32>> {
        Ok(numbers(self.get()?.eos_ids()))
    }

    /// One past the highest token id.
    #[getter]
    fn vocab_size(&self) -> PyResult<usize> {
        Ok(self.get()?.vocab_size())
    }

    fn __repr__(&self) -> PyResult<String> {
        Ok(format!("<skulk.Tokenizer: {} tokens>", self.vocab_size()?))
    }
}
