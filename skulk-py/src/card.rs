//! How does Python read and write cards? What is behind `skulk.ModelCard` and
//! `skulk.CardLibrary`, which hold the data.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyString;
use skulk::ModelCard;
use skulk::card;

use crate::convert::text;
use crate::error::{exception, raise};
use crate::json;

/// What a text or file is read as.
fn of<'py>(py: Python<'py>, card: skulk::Result<ModelCard>) -> PyResult<Bound<'py, PyAny>> {
    json::card_data(py, &card.map_err(raise)?)
}

/// The card in a file.
#[pyfunction]
pub(crate) fn card_open(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyAny>> {
    of(py, py.detach(|| ModelCard::open(path)))
}

/// The card of a local checkpoint.
#[pyfunction]
pub(crate) fn card_from_checkpoint(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyAny>> {
    of(py, py.detach(|| ModelCard::from_checkpoint(path)))
}

/// Writes a card to a file.
#[pyfunction]
pub(crate) fn card_save(py: Python<'_>, card: &Bound<'_, PyAny>, path: PathBuf) -> PyResult<()> {
    let card = json::card(card)?;
    py.detach(|| card.save(path)).map_err(raise)
}

/// Whether a model is to be run as Gemma 4, by its id, its family or anything that its card says. Of a card, its own
/// id counts.
#[pyfunction]
#[pyo3(signature = (model_id, card=None))]
pub(crate) fn is_gemma4_family(
    model_id: &Bound<'_, PyString>,
    card: Option<&Bound<'_, PyAny>>,
) -> PyResult<bool> {
    let (model_id, card) = (text("model_id", model_id)?, card.map(json::card).transpose()?);
    Ok(card::is_gemma4_family(&model_id, card.as_ref()))
}

/// What is behind a `skulk.CardLibrary`.
#[pyclass(frozen, module = "skulk")]
pub(crate) struct Library(Mutex<skulk::CardLibrary>);

impl Library {
    /// Only without the GIL for what reads or writes files.
    fn lock(&self) -> MutexGuard<'_, skulk::CardLibrary> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Library {
    #[new]
    fn new(py: Python<'_>, builtin: bool, folders: Vec<PathBuf>) -> Self {
        py.detach(|| {
            let first = if builtin { skulk::CardLibrary::builtin() } else { skulk::CardLibrary::empty() };
            Self(Mutex::new(folders.into_iter().fold(first, skulk::CardLibrary::with_folder)))
        })
    }

    /// The ids of all cards, in order.
    fn ids(&self, py: Python<'_>) -> Vec<String> {
        py.detach(|| self.lock().iter().map(|card| card.model_id.clone()).collect())
    }

    /// The card of a model.
    fn get<'py>(
        &self,
        py: Python<'py>,
        model_id: &Bound<'py, PyString>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let model_id = text("model_id", model_id)?;
        let card = py.detach(|| self.lock().get(&model_id).cloned());
        card.map(|card| json::card_data(py, &card)).transpose()
    }

    /// The file of a model's card.
    fn file(&self, py: Python<'_>, model_id: &Bound<'_, PyString>) -> PyResult<Option<PathBuf>> {
        let model_id = text("model_id", model_id)?;
        Ok(py.detach(|| self.lock().file(&model_id).map(Into::into)))
    }

    /// The user's folders.
    fn folders(&self, py: Python<'_>) -> Vec<PathBuf> {
        py.detach(|| self.lock().folders().map(Into::into).collect())
    }

    /// One exception for each file that is no card.
    fn problems<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        // The lock is never waited for with the GIL: whoever holds it may be reading files.
        py.detach(|| {
            let library = self.lock();
            Python::attach(|py| {
                let all = library.problems().iter().map(|problem| Ok(exception(py, problem)?.unbind()));
                all.collect::<PyResult<Vec<_>>>()
            })
        })
        .map(|all| all.into_iter().map(|one| one.into_bound(py)).collect())
    }

    /// Searches the folders again.
    fn reload(&self, py: Python<'_>) {
        py.detach(|| self.lock().reload());
    }

    /// Searches one more folder.
    fn add_folder(&self, py: Python<'_>, path: PathBuf) {
        py.detach(|| self.lock().add_folder(path));
    }

    /// Writes a card into one of the folders.
    fn save(&self, py: Python<'_>, folder: PathBuf, card: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
        let card = json::card(card)?;
        py.detach(|| self.lock().save(folder, &card)).map_err(raise)
    }

    /// Deletes the file of a user's card.
    fn remove(&self, py: Python<'_>, model_id: &Bound<'_, PyString>) -> PyResult<bool> {
        let model_id = text("model_id", model_id)?;
        py.detach(|| self.lock().remove(&model_id)).map_err(raise)
    }
}
