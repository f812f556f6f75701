//! How does Python follow a running generation? `skulk.Generation`.

use std::task::{Context, Poll, ready};

use pyo3::exceptions::PyStopAsyncIteration;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use skulk::CancelToken;

use crate::convert::{self, numbers};
use crate::error::raise;
use crate::here::Here;
use crate::json::CONTRACT;
use crate::running::{Running, ended, entered, follow};
use crate::waking::calling;

/// A running generation: iterate it with `for` or `async for`, or collect it with `text()`, `output()` or `await`.
/// Leaving its `with` block, or dropping it, cancels what is still running.
#[pyclass(frozen, module = "skulk")]
pub(crate) struct Generation {
    running: Here<Running<skulk::Generation>>,
    /// The prompt's tokens, special ones included.
    #[pyo3(get)]
    prompt_ids: Vec<u32>,
}

impl Generation {
    /// `cancel` must stop `running`.
    pub(crate) fn new(running: skulk::Generation, cancel: CancelToken) -> Self {
        let prompt_ids = numbers(running.prompt_ids());
        Self { running: Here::new(Running::new(running, cancel)), prompt_ids }
    }

    /// Waits for what `poll` is for.
    fn wait<T: Send>(
        &self,
        py: Python<'_>,
        poll: impl Fn(&mut skulk::Generation, &mut Context<'_>) -> Poll<T> + Sync,
    ) -> PyResult<T> {
        self.running.get()?.wait(py, poll).inspect_err(|_| self.close(py))
    }
}

#[pymethods]
impl Generation {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let event = self.wait(py, skulk::Generation::poll_event)?;
        event.map(|event| convert::event(py, &event.map_err(raise)?)).transpose()
    }

    fn __aiter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __anext__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        follow(slf.as_any(), "_poll")
    }

    /// Runs to the end beside the event loop: text, tokens and finish of what was not read yet.
    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        follow(slf.as_any(), "_poll_output")?.call_method0("__await__")
    }

    /// The next event for an event loop; when there is none yet, `None`, and `wake` is called later on another thread.
    fn _poll<'py>(&self, py: Python<'py>, wake: Py<PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let reader = calling(wake)?;
        let running = self.running.get()?;
        match py.detach(|| running.poll(&reader, skulk::Generation::poll_event)) {
            Poll::Pending => Ok(None),
            Poll::Ready(None) => Err(PyStopAsyncIteration::new_err(())),
            Poll::Ready(Some(event)) => convert::event(py, &event.map_err(raise)?).map(Some),
        }
    }

    /// The same of all that was not read yet, once it is there.
    fn _poll_output<'py>(&self, py: Python<'py>, wake: Py<PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let reader = calling(wake)?;
        let running = self.running.get()?;
        match py.detach(|| running.poll(&reader, skulk::Generation::poll_output)) {
            Poll::Pending => Ok(None),
            Poll::Ready(output) => CONTRACT.one(py, "Output", &output.map_err(raise)?).map(Some),
        }
    }

    /// Drops what is left to read. Whether that was all; when not, `wake` is called later on another thread.
    fn _ended(&self, py: Python<'_>, wake: Py<PyAny>) -> PyResult<bool> {
        let reader = calling(wake)?;
        let skip = |running: &mut skulk::Generation, cx: &mut Context<'_>| {
            while ready!(running.poll_event(cx)).is_some() {}
            Poll::Ready(())
        };
        let running = self.running.get()?;
        Ok(py.detach(|| running.poll(&reader, skip)).is_ready())
    }

    /// Runs to the end and returns the text that was not read yet.
    fn text(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.wait(py, skulk::Generation::poll_output)?.map_err(raise)?.text)
    }

    /// Runs to the end and returns text, tokens and finish of what was not read yet.
    fn output<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        CONTRACT.one(py, "Output", &self.wait(py, skulk::Generation::poll_output)?.map_err(raise)?)
    }

    /// Asks the generation to end: iterating raises `skulk.CancelledError` within one layer's work,
    /// after the events that are already there. Any thread may cancel.
    fn cancel(&self) {
        if let Some(running) = self.running.here() {
            running.cancel.cancel();
        }
    }

    /// Cancels what is still running and waits until it has ended; the session is free then.
    fn close(&self, py: Python<'_>) {
        let Some(running) = self.running.here() else { return };
        // First, so that whoever holds the lock soon gives it back.
        running.cancel.cancel();
        py.detach(|| running.get().close());
    }

    /// The same beside the event loop.
    fn aclose<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        ended(slf.as_any())
    }

    fn __aenter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        entered(slf.as_any())
    }

    #[pyo3(signature = (*_raised))]
    fn __aexit__<'py>(slf: &Bound<'py, Self>, _raised: &Bound<'_, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        ended(slf.as_any())
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
