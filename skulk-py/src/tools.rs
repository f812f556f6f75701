//! How does Python step through a conversation whose functions it runs? What is behind a `skulk.ToolChat`.

use std::task::{Context, Poll, ready};

use pyo3::exceptions::PyStopAsyncIteration;
use pyo3::prelude::*;
use skulk_contract::chat::ToolStep;

use crate::convert::chat_event;
use crate::error::raise;
use crate::json::{CONTRACT, plain, write};
use crate::running::{Running, follow};
use crate::waking::calling;

/// What is behind a `skulk.ToolChat`.
#[pyclass(frozen, module = "skulk")]
pub(crate) struct ToolSteps(pub(crate) Running<skulk_contract::chat::ToolSteps>);

type Steps = skulk_contract::chat::ToolSteps;

/// Drops what is left to read, until a call waits, which nobody answers.
fn skip(steps: &mut Steps, cx: &mut Context<'_>) -> Poll<()> {
    while let Some(step) = ready!(steps.poll(cx)) {
        if matches!(step, Ok(ToolStep::Call { .. })) {
            break;
        }
    }
    Poll::Ready(())
}

/// An event, a call or a result.
fn told<'py>(py: Python<'py>, step: skulk::Result<ToolStep>) -> PyResult<Bound<'py, PyAny>> {
    match step.map_err(raise)? {
        ToolStep::Event { event } => chat_event(py, &event),
        ToolStep::Call { call } => CONTRACT.one(py, "ChatCall", &call),
        ToolStep::Result { result } => CONTRACT.one(py, "ToolResult", &result),
    }
}

#[pymethods]
impl ToolSteps {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let step = self.0.wait(py, Steps::poll)?;
        step.map(|step| told(py, step)).transpose()
    }

    fn __aiter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __anext__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        follow(slf.as_any(), "_poll")
    }

    fn _poll<'py>(&self, py: Python<'py>, wake: Py<PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let reader = calling(wake)?;
        match py.detach(|| self.0.poll(&reader, Steps::poll)) {
            Poll::Pending => Ok(None),
            Poll::Ready(None) => Err(PyStopAsyncIteration::new_err(())),
            Poll::Ready(Some(step)) => told(py, step).map(Some),
        }
    }

    fn _ended(&self, py: Python<'_>, wake: Py<PyAny>) -> PyResult<bool> {
        let reader = calling(wake)?;
        Ok(py.detach(|| self.0.poll(&reader, skip)).is_ready())
    }

    /// What became of a call: what its function gave, or the text of its error.
    fn give<'py>(
        &self,
        py: Python<'py>,
        id: &str,
        text: String,
        failed: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let outcome = if failed { Err(text) } else { Ok(text) };
        let result = py.detach(|| self.0.get().give(id, outcome)).map_err(raise)?;
        CONTRACT.one(py, "ToolResult", &result)
    }

    #[getter]
    fn round(&self, py: Python<'_>) -> usize {
        py.detach(|| self.0.get().round())
    }

    #[getter]
    fn messages<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let messages = py.detach(|| self.0.get().messages().to_vec());
        plain(py, &write(&messages)?)
    }

    #[getter]
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let finish = py.detach(|| self.0.get().finish().cloned());
        finish.map(|finish| CONTRACT.one(py, "ChatFinish", &finish)).transpose()
    }

    fn cancel(&self) {
        self.0.cancel.cancel();
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.0.cancel.cancel();
        self.0.wait(py, skip)
    }
}

impl Drop for ToolSteps {
    fn drop(&mut self) {
        self.0.cancel.cancel();
        // What waits for the step under way must not hold the GIL.
        Python::try_attach(|py| self.0.wait(py, skip));
    }
}
