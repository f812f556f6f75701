//! How does Python step through a conversation whose functions it runs? What is behind a `skulk.ToolChat`.

use std::task::{Context, Poll, ready};
use std::thread::{self, ThreadId};

use pyo3::exceptions::PyStopAsyncIteration;
use pyo3::prelude::*;
use skulk::{CancelToken, Error, ErrorKind};
use skulk_contract::chat::ToolStep;

use crate::convert::chat_event;
use crate::error::raise;
use crate::here::Here;
use crate::json::{CONTRACT, plain, write};
use crate::running::{Running, follow};
use crate::waking::calling;

/// What is behind a `skulk.ToolChat`.
#[pyclass(frozen, module = "skulk")]
pub(crate) struct ToolSteps(Here<Running<Calls>>);

/// A conversation that tells each call once.
struct Calls {
    steps: skulk_contract::chat::ToolSteps,
    /// The thread on which a call was read whose result is still to be given.
    calling: Option<ThreadId>,
    ended: bool,
}

impl Calls {
    /// The next step. While a function runs there is none: its result wakes who waits.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<skulk::Result<ToolStep>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if self.calling.is_some() {
            return Poll::Pending;
        }
        let step = ready!(self.steps.poll(cx));
        if matches!(step, Some(Ok(ToolStep::Call { .. }))) {
            self.calling = Some(thread::current().id());
        }
        Poll::Ready(step)
    }

    /// Drops what is left to read, until a call waits, which nobody answers: nothing follows.
    fn skip(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.calling.is_none() && ready!(self.poll(cx)).is_some() {}
        self.ended = true;
        Poll::Ready(())
    }

    /// `Ok` on a thread that may wait for the next step: its own function's result it would wait for without end.
    fn expect_reader(&self) -> skulk::Result<()> {
        if self.ended || self.calling != Some(thread::current().id()) {
            return Ok(());
        }
        let message = "expected a function that returns, found one that reads on in its own conversation";
        Err(Error::new(ErrorKind::InvalidArgument, message).with("field", "tools"))
    }
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
        let running = self.0.get()?;
        py.detach(|| running.get().expect_reader()).map_err(raise)?;
        let step = running.wait(py, Calls::poll)?;
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
        let running = self.0.get()?;
        match py.detach(|| running.poll(&reader, Calls::poll)) {
            Poll::Pending => Ok(None),
            Poll::Ready(None) => Err(PyStopAsyncIteration::new_err(())),
            Poll::Ready(Some(step)) => told(py, step).map(Some),
        }
    }

    fn _ended(&self, py: Python<'_>, wake: Py<PyAny>) -> PyResult<bool> {
        let reader = calling(wake)?;
        let running = self.0.get()?;
        let ended = py.detach(|| running.poll(&reader, Calls::skip)).is_ready();
        running.wake();
        Ok(ended)
    }

    /// Has `wake` called on another thread once the conversation is cancelled, while what comes back is kept.
    fn _on_cancel(&self, wake: Py<PyAny>) -> PyResult<OnCancel> {
        let waker = calling(wake)?;
        let running = self.0.get()?;
        Ok(OnCancel { _heard: running.cancel.on_cancel(move || waker.wake_by_ref()) })
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
        let running = self.0.get()?;
        let give = || {
            let mut calls = running.get();
            calls.calling = None;
            calls.steps.give(id, outcome)
        };
        let result = py.detach(give);
        running.wake();
        CONTRACT.one(py, "ToolResult", &result.map_err(raise)?)
    }

    #[getter]
    fn round(&self, py: Python<'_>) -> PyResult<usize> {
        let running = self.0.get()?;
        Ok(py.detach(|| running.get().steps.round()))
    }

    #[getter]
    fn messages<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let running = self.0.get()?;
        let messages = py.detach(|| running.get().steps.messages().to_vec());
        plain(py, &write(&messages)?)
    }

    #[getter]
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let running = self.0.get()?;
        let finish = py.detach(|| running.get().steps.finish().cloned());
        finish.map(|finish| CONTRACT.one(py, "ChatFinish", &finish)).transpose()
    }

    fn cancel(&self) {
        if let Some(running) = self.0.here() {
            running.cancel.cancel();
        }
    }

    fn close(&self, py: Python<'_>) {
        let Some(running) = self.0.here() else { return };
        running.cancel.cancel();
        running.end(py, Calls::skip);
        running.wake();
    }
}

/// Hears of a conversation's cancellation until it is dropped.
#[pyclass(frozen, module = "skulk")]
struct OnCancel {
    _heard: skulk::OnCancel,
}

impl ToolSteps {
    /// `cancel` must stop `steps`.
    pub(crate) fn new(steps: skulk_contract::chat::ToolSteps, cancel: CancelToken) -> Self {
        Self(Here::new(Running::new(Calls { steps, calling: None, ended: false }, cancel)))
    }
}

impl Drop for ToolSteps {
    fn drop(&mut self) {
        // Other threads may run while this one waits; without an interpreter there are none.
        Python::try_attach(|py| self.close(py));
    }
}
