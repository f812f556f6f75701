//! How does Python stop work? `skulk.CancelToken`.

use pyo3::prelude::*;

/// A switch that stops the work it was handed to: loading, prefill or decoding, within one layer.
///
/// Cancelling is sticky: use a fresh token for new work. Any thread may cancel.
#[pyclass(frozen, module = "skulk")]
#[derive(Default)]
pub(crate) struct CancelToken(pub(crate) skulk::CancelToken);

impl CancelToken {
    /// A token for work that `token`, if there is one, shall stop too.
    pub(crate) fn child(token: Option<&Bound<'_, Self>>) -> skulk::CancelToken {
        token.map_or_else(skulk::CancelToken::new, |token| token.get().0.child())
    }
}

#[pymethods]
impl CancelToken {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Asks the work to stop. Returns at once.
    fn cancel(&self) {
        self.0.cancel();
    }

    /// Whether `cancel` was called.
    #[getter]
    fn cancelled(&self) -> bool {
        self.0.is_cancelled()
    }

    fn __repr__(&self) -> &'static str {
        if self.0.is_cancelled() { "<skulk.CancelToken: cancelled>" } else { "<skulk.CancelToken>" }
    }
}
