//! How does Python follow a running generation? `skulk.Generation`.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use skulk::CancelToken;

use crate::convert::{self, numbers};
use crate::error::raise;
use crate::json::CONTRACT;
use crate::wait::{receive, wait};

/// A running generation: iterate it with `for` or `async for`, or collect it with `text()` or
/// `output()`. Leaving its `with` block, or dropping it, cancels what is still running.
#[pyclass(frozen, module = "skulk")]
pub(crate) struct Generation {
    running: Arc<Mutex<skulk::Generation>>,
    cancel: CancelToken,
    /// The prompt's tokens, special ones included.
    #[pyo3(get)]
    prompt_ids: Vec<u32>,
    /// Who waits for events on behalf of an event loop.
    waiting: PyOnceLock<Py<PyAny>>,
}

/// Locks only without the GIL: whoever holds the lock may be waiting for an event.
fn lock(running: &Mutex<skulk::Generation>) -> MutexGuard<'_, skulk::Generation> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Generation {
    /// `cancel` must stop `running`.
    pub(crate) fn new(running: skulk::Generation, cancel: CancelToken) -> Self {
        let prompt_ids = numbers(running.prompt_ids());
        Self { running: Arc::new(Mutex::new(running)), cancel, prompt_ids, waiting: PyOnceLock::new() }
    }

    fn collect(&self, py: Python<'_>) -> PyResult<skulk::Output> {
        let (sender, mut result) = channel();
        let running = Arc::clone(&self.running);
        std::thread::Builder::new().spawn(move || {
            // Nobody listens any more once the wait has ended with an exception.
            let _ = sender.send(lock(&running).output());
        })?;
        let output = wait(py, &self.cancel, |timeout| receive(&mut result, timeout))
            .inspect_err(|_| self.close(py))?;
        let lost = || Err(skulk::Error::new(skulk::ErrorKind::Internal, "collecting the output panicked"));
        output.unwrap_or_else(lost).map_err(raise)
    }
}

#[pymethods]
impl Generation {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let event = wait(py, &self.cancel, |timeout| lock(&self.running).poll(timeout))
            .inspect_err(|_| self.close(py))?;
        event.map(|event| convert::event(py, &event.map_err(raise)?)).transpose()
    }

    fn __aiter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __anext__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let aio = slf.py().import("skulk._aio")?;
        let start = || aio.call_method0("waiting_thread").map(Bound::unbind);
        let waiting = slf.get().waiting.get_or_try_init(slf.py(), start)?;
        aio.call_method1("next_event", (slf, waiting))
    }

    /// Runs to the end and returns the text that was not read yet.
    fn text(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.collect(py)?.text)
    }

    /// Runs to the end and returns text, tokens and finish of what was not read yet.
    fn output<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        CONTRACT.one(py, "Output", &self.collect(py)?)
    }

    /// Asks the generation to end: iterating raises `skulk.CancelledError` within one layer's work,
    /// after the events that are already there. Any thread may cancel.
    fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Cancels what is still running and waits until it has ended; the session is free then.
    fn close(&self, py: Python<'_>) {
        self.cancel.cancel();
        py.detach(|| lock(&self.running).by_ref().for_each(drop));
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: Bound<'_, PyAny>,
        _value: Bound<'_, PyAny>,
        _traceback: Bound<'_, PyAny>,
    ) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        format!("<skulk.Generation: {} prompt tokens>", self.prompt_ids.len())
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        // Other threads may run while this one waits; without an interpreter there are none.
        Python::try_attach(|py| self.close(py));
    }
}
