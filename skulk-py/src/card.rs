//! How does Python read and write cards, and what do they resolve to? What is behind `skulk.ModelCard`,
//! `skulk.CardLibrary` and `skulk.Profile`, which hold the data.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use skulk::ModelCard;
use skulk::card::{self, Profile, ReasoningRequest};
use skulk_contract::options::ProfileOptions;

use crate::error::{exception, raise};
use crate::given;
use crate::json::{self, CONTRACT};

/// What a text or file is read as.
fn of<'py>(py: Python<'py>, card: skulk::Result<ModelCard>) -> PyResult<Bound<'py, PyAny>> {
    json::card_data(py, &card.map_err(raise)?)
}

/// The card that a text in TOML or JSON is.
#[pyfunction]
pub(crate) fn card_read<'py>(py: Python<'py>, text: &str, toml: bool) -> PyResult<Bound<'py, PyAny>> {
    of(py, if toml { ModelCard::from_toml(text) } else { ModelCard::from_json(text) })
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

/// The canonical text of a card.
#[pyfunction]
pub(crate) fn card_text(card: &Bound<'_, PyAny>, toml: bool) -> PyResult<String> {
    let card = json::card(card)?;
    if toml { card.to_toml().map_err(raise) } else { Ok(card.to_json()) }
}

/// Writes a card to a file.
#[pyfunction]
pub(crate) fn card_save(py: Python<'_>, card: &Bound<'_, PyAny>, path: PathBuf) -> PyResult<()> {
    let card = json::card(card)?;
    py.detach(|| card.save(path)).map_err(raise)
}

/// The name of a card's file.
#[pyfunction]
pub(crate) fn card_file_name(card: &Bound<'_, PyAny>) -> PyResult<String> {
    json::card(card)?.file_name().map_err(raise)
}

/// The JSON Schema of cards.
#[pyfunction]
pub(crate) fn card_schema() -> &'static str {
    ModelCard::schema()
}

/// What a card and an id resolve to.
#[pyfunction]
pub(crate) fn profile_resolve<'py>(
    py: Python<'py>,
    model_id: &str,
    card: Option<&Bound<'_, PyAny>>,
    hints: &Bound<'_, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    let card = card.map(json::card).transpose()?;
    let hints = given::options(Some(hints), ProfileOptions::read)?;
    CONTRACT.one(py, "Profile", &Profile::resolve(model_id, card.as_ref(), &hints))
}

/// The profile to read requests by while nothing is known of the model.
#[pyfunction]
pub(crate) fn profile_permissive(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    CONTRACT.one(py, "Profile", &Profile::permissive())
}

/// What a request for reasoning means: its effort, and whether it is on.
#[pyfunction]
pub(crate) fn profile_reasoning<'py>(
    py: Python<'py>,
    supports_thinking: bool,
    supports_thinking_toggle: bool,
    default_effort: &str,
    disabled_effort: &str,
    effort: Option<&str>,
    enable_thinking: Option<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut profile = Profile::default();
    profile.supports_thinking = supports_thinking;
    profile.supports_thinking_toggle = supports_thinking_toggle;
    profile.default_reasoning_effort = json::named("default_reasoning_effort", default_effort)?;
    profile.disabled_reasoning_effort = json::named("disabled_reasoning_effort", disabled_effort)?;
    let mut request = ReasoningRequest::default();
    request.effort = effort.map(|effort| json::named("effort", effort)).transpose()?;
    request.enable_thinking = enable_thinking;
    CONTRACT.one(py, "Reasoning", &profile.reasoning(request))
}

/// Whether a model is to be run as Gemma 4, by its id, its family or anything that its card says. Of a card, its own
/// id counts.
#[pyfunction]
#[pyo3(signature = (model_id, card=None))]
pub(crate) fn is_gemma4_family(model_id: &str, card: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
    let card = card.map(json::card).transpose()?;
    Ok(card::is_gemma4_family(model_id, card.as_ref()))
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
    fn get<'py>(&self, py: Python<'py>, model_id: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        let card = py.detach(|| self.lock().get(model_id).cloned());
        card.map(|card| json::card_data(py, &card)).transpose()
    }

    /// The file of a model's card.
    fn file(&self, py: Python<'_>, model_id: &str) -> Option<PathBuf> {
        py.detach(|| self.lock().file(model_id).map(Into::into))
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
    fn remove(&self, py: Python<'_>, model_id: &str) -> PyResult<bool> {
        py.detach(|| self.lock().remove(model_id)).map_err(raise)
    }
}
