//! How does Python follow an answer? `skulk.ChatStream`.

use std::task::{Context, Poll, ready};

use pyo3::exceptions::PyStopAsyncIteration;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use skulk::CancelToken;
use skulk::chat::ChatPrompt;
use skulk_contract::chat::Conversation;
use skulk_contract::options::Spelling;

use crate::convert::chat_event;
use crate::error::raise;
use crate::given;
use crate::here::Here;
use crate::json::{CONTRACT, plain, write};
use crate::running::{Running, ended, entered, follow};
use crate::waking::calling;

/// An answer that is being written: iterate it with `for` or `async for`, or collect it with `answer()` or `await`.
/// Leaving its `with` block, or dropping it, cancels what is still running.
#[pyclass(frozen, module = "skulk")]
pub(crate) struct ChatStream {
    running: Here<Running<skulk::ChatStream>>,
    prompt: ChatPrompt,
}

/// A conversation as Python gave it.
pub(crate) fn conversation(
    messages: &Bound<'_, PyAny>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Conversation> {
    let chat = messages.py().import("skulk._chat")?;
    let (messages, options): (String, Bound<'_, PyDict>) =
        chat.call_method1("given", (messages, options))?.extract()?;
    Conversation::new(&messages, given::fields(&options)?, Spelling::Snake).map_err(raise)
}

impl ChatStream {
    /// Answers in a session.
    pub(crate) fn begin(
        py: Python<'_>,
        session: &skulk::Session,
        conversation: Conversation,
        cancel: CancelToken,
    ) -> PyResult<Self> {
        let (messages, mut options) = conversation.chat().map_err(raise)?;
        options.generate.cancel = cancel.clone();
        let running = py.detach(|| session.chat(&messages, &options)).map_err(raise)?;
        let prompt = running.prompt().clone();
        Ok(Self { running: Here::new(Running::new(running, cancel)), prompt })
    }

    fn wait<T: Send>(
        &self,
        py: Python<'_>,
        poll: impl Fn(&mut skulk::ChatStream, &mut Context<'_>) -> Poll<T> + Sync,
    ) -> PyResult<T> {
        self.running.get()?.wait(py, poll).inspect_err(|_| self.close(py))
    }
}

#[pymethods]
impl ChatStream {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let event = self.wait(py, skulk::ChatStream::poll_event)?;
        event.map(|event| chat_event(py, &event.map_err(raise)?)).transpose()
    }

    fn __aiter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __anext__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        follow(slf.as_any(), "_poll")
    }

    /// Runs to the end beside the event loop: the whole answer.
    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        follow(slf.as_any(), "_poll_answer")?.call_method0("__await__")
    }

    /// The next event for an event loop; when there is none yet, `None`, and `wake` is called later on another thread.
    fn _poll<'py>(&self, py: Python<'py>, wake: Py<PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let reader = calling(wake)?;
        let running = self.running.get()?;
        match py.detach(|| running.poll(&reader, skulk::ChatStream::poll_event)) {
            Poll::Pending => Ok(None),
            Poll::Ready(None) => Err(PyStopAsyncIteration::new_err(())),
            Poll::Ready(Some(event)) => chat_event(py, &event.map_err(raise)?).map(Some),
        }
    }

    /// The same of the whole answer.
    fn _poll_answer<'py>(&self, py: Python<'py>, wake: Py<PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let reader = calling(wake)?;
        let running = self.running.get()?;
        match py.detach(|| running.poll(&reader, skulk::ChatStream::poll_answer)) {
            Poll::Pending => Ok(None),
            Poll::Ready(answer) => CONTRACT.one(py, "ChatAnswer", &answer.map_err(raise)?).map(Some),
        }
    }

    /// Drops what is left to read. Whether that was all; when not, `wake` is called later on another thread.
    fn _ended(&self, py: Python<'_>, wake: Py<PyAny>) -> PyResult<bool> {
        let reader = calling(wake)?;
        let skip = |running: &mut skulk::ChatStream, cx: &mut Context<'_>| {
            while ready!(running.poll_event(cx)).is_some() {}
            Poll::Ready(())
        };
        let running = self.running.get()?;
        Ok(py.detach(|| running.poll(&reader, skip)).is_ready())
    }

    /// Runs to the end and returns the whole answer, with what was read before.
    fn answer<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let answer = self.wait(py, skulk::ChatStream::poll_answer)?;
        CONTRACT.one(py, "ChatAnswer", &answer.map_err(raise)?)
    }

    /// Runs to the end and returns the whole answer's text.
    fn text(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.wait(py, skulk::ChatStream::poll_answer)?.map_err(raise)?.text)
    }

    /// The answer as far as it was read, as a message of OpenAI's shape.
    #[getter]
    fn message<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let running = self.running.get()?;
        let message = py.detach(|| running.get().message()).map_err(raise)?;
        plain(py, &write(&message)?)
    }

    /// The prompt that the messages became.
    #[getter]
    fn prompt<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        CONTRACT.one(py, "ChatPrompt", &self.prompt)
    }

    /// Asks the answer to end; what there is of it still comes, and an end that says so. Any thread may cancel.
    fn cancel(&self) {
        if let Some(running) = self.running.here() {
            running.cancel.cancel();
        }
    }

    /// Cancels what is still running and waits until it has ended; the session is free then. Events that were not read
    /// are lost.
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

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        format!("<skulk.ChatStream: {} prompt tokens>", self.prompt.tokens.len())
    }
}

impl Drop for ChatStream {
    fn drop(&mut self) {
        // Other threads may run while this one waits; without an interpreter there are none.
        Python::try_attach(|py| self.close(py));
    }
}
