//! How does Python make vectors of texts? `skulk.EmbeddingModel`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use skulk_contract::options::{EmbedOptions, EmbeddingOptions};

use crate::cancel::CancelToken;
use crate::convert::{each, kind, text};
use crate::error::{argument, raise};
use crate::floats::Floats;
use crate::given;
use crate::handle::Handle;
use crate::tokenizer::{Owner, Tokenizer};
use crate::wait::run;

/// A model that makes vectors of texts, which are near each other where texts mean the same. Made by `EmbeddingModel.load`.
#[pyclass(frozen, module = "skulk")]
pub(crate) struct EmbeddingModel(Handle<Arc<skulk::embed::EmbeddingModel>>);

#[pymethods]
impl EmbeddingModel {
    /// Loads the folder at `path`, as Hugging Face and sentence-transformers write it: a BERT with its tokenizer.
    ///
    /// `threads` compute, all of the hardware's by default; vectors do not depend on it.
    #[staticmethod]
    #[pyo3(signature = (path, **options), text_signature = "(path, *, threads=None)")]
    fn load(py: Python<'_>, path: PathBuf, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let options = given::options(options, EmbeddingOptions::read)?;
        let model = py.detach(|| skulk::embed::EmbeddingModel::open(path, &options)).map_err(raise)?;
        Ok(Self(Handle::new(Arc::new(model))))
    }

    /// The vector of a text, an array of float32, `[dimensions]`; or of each of some, `[texts, dimensions]`. A text's vector
    /// does not depend on the others.
    ///
    /// Of texts of more than `max_tokens` tokens only the beginning counts; with `truncate=False` they are an error.
    /// `cancel` and Ctrl-C end it after the texts that are being computed.
    #[pyo3(signature = (texts, *, cancel=None, **options), text_signature = "($self, texts, *, truncate=True, cancel=None)")]
    fn embed<'py>(
        &self,
        py: Python<'py>,
        texts: &Bound<'py, PyAny>,
        cancel: Option<&Bound<'_, CancelToken>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let arrays = py.import("skulk._arrays")?;
        arrays.call_method0("numpy")?;
        let mut options = given::options(options, EmbedOptions::read)?;
        let (model, is_one, texts) = (self.0.get()?, texts.is_instance_of::<PyString>(), texts_of(texts)?);
        let embed = |cancel, _silent: Sender<()>| {
            options.cancel = cancel;
            Ok(model.embed_with(&texts, &options)?.concat())
        };
        let vectors = Floats::from(run(py, cancel, embed, |()| Ok(()))?);
        let array = arrays.call_method1("floats", (vectors,))?;
        if is_one { Ok(array) } else { array.call_method1("reshape", (texts.len(), model.dimensions())) }
    }

    /// Elements of a vector.
    #[getter]
    fn dimensions(&self) -> PyResult<usize> {
        Ok(self.0.get()?.dimensions())
    }

    /// Tokens of a text that count, those that the tokenizer adds among them.
    #[getter]
    fn max_tokens(&self) -> PyResult<usize> {
        Ok(self.0.get()?.max_tokens())
    }

    /// How tokens' vectors become a text's; several give one behind the other.
    #[getter]
    fn poolings(&self) -> PyResult<Vec<&'static str>> {
        Ok(self.0.get()?.poolings().iter().map(|pooling| pooling.as_str()).collect())
    }

    /// Whether vectors have length 1, so that their dot product is their cosine.
    #[getter]
    fn is_normalized(&self) -> PyResult<bool> {
        Ok(self.0.get()?.is_normalized())
    }

    /// The model's tokenizer.
    #[getter]
    fn tokenizer(&self) -> PyResult<Tokenizer> {
        Ok(Tokenizer(Owner::Embedding(self.0.get()?)))
    }

    /// Lets go of the model; used afterwards, it raises `InvalidArgumentError`.
    fn close(&self, py: Python<'_>) {
        self.0.close(py);
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, PyTuple>) {
        self.0.close(py);
    }

    fn __repr__(&self) -> String {
        let Ok(model) = self.0.get() else { return "<skulk.EmbeddingModel: closed>".into() };
        let (dimensions, tokens) = (model.dimensions(), model.max_tokens());
        format!("<skulk.EmbeddingModel: {dimensions} dimensions, {tokens} tokens>")
    }
}

/// A text, or each of some.
fn texts_of(given: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    let one = |one: Bound<'_, PyAny>| match one.cast::<PyString>() {
        Ok(one) => text("texts", one),
        Err(_) => {
            let message = format!("expected a text or several, found {}", kind(&one)?);
            Err(argument("texts", message, None))
        }
    };
    let several = if given.is_instance_of::<PyString>() { None } else { each(given, one)? };
    several.map_or_else(|| Ok(vec![one(given.clone())?]), Ok)
}
