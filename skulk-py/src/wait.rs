//! How does a Python thread wait? With the GIL released, and awake often enough for Ctrl-C.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::task::Poll;
use std::time::Duration;

use pyo3::prelude::*;
use skulk::{CancelToken, Error, ErrorKind};

use crate::cancel;
use crate::error::raise;

/// How long Ctrl-C may go unnoticed.
const INTERVAL: Duration = Duration::from_millis(25);

/// Polls until the result is there. A signal handler that raises, as Ctrl-C's does, cancels.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    cancel: &CancelToken,
    mut poll: impl FnMut(Duration) -> Poll<T> + Send,
) -> PyResult<T> {
    loop {
        py.check_signals().inspect_err(|_| cancel.cancel())?;
        if let Poll::Ready(value) = py.detach(|| poll(INTERVAL)) {
            return Ok(value);
        }
    }
}

/// The next message of another thread; `Ready(None)` when it will send no more.
pub(crate) fn receive<T>(messages: &mut Receiver<T>, timeout: Duration) -> Poll<Option<T>> {
    match messages.recv_timeout(timeout) {
        Ok(message) => Poll::Ready(Some(message)),
        Err(RecvTimeoutError::Timeout) => Poll::Pending,
        Err(RecvTimeoutError::Disconnected) => Poll::Ready(None),
    }
}

/// Does `work` on a thread of its own, which `token` and Ctrl-C cancel. Meanwhile `each` is called with what the
/// thread sends; its exception cancels, too. However this returns, the work has ended.
pub(crate) fn run<T: Send, P: Send>(
    py: Python<'_>,
    token: Option<&Bound<'_, cancel::CancelToken>>,
    work: impl FnOnce(CancelToken, Sender<P>) -> skulk::Result<T> + Send,
    each: impl FnMut(P) -> PyResult<()>,
) -> PyResult<T> {
    attempt(py, token, work, each)?.map_err(raise)
}

/// The same, with the work's own error.
pub(crate) fn attempt<T: Send, P: Send>(
    py: Python<'_>,
    token: Option<&Bound<'_, cancel::CancelToken>>,
    work: impl FnOnce(CancelToken, Sender<P>) -> skulk::Result<T> + Send,
    mut each: impl FnMut(P) -> PyResult<()>,
) -> PyResult<skulk::Result<T>> {
    let cancel = cancel::CancelToken::child(token);
    let (sender, mut messages) = channel();
    std::thread::scope(|scope| {
        let own = cancel.clone();
        let working = std::thread::Builder::new().spawn_scoped(scope, move || work(own, sender))?;
        let mut follow = || {
            while let Some(message) = wait(py, &cancel, |timeout| receive(&mut messages, timeout))? {
                each(message)?;
            }
            Ok(())
        };
        let followed: PyResult<()> = follow().inspect_err(|_| cancel.cancel());
        let done = py.detach(|| working.join());
        followed?;
        let lost = || Err(Error::new(ErrorKind::Internal, "the work panicked"));
        Ok(done.unwrap_or_else(|_| lost()))
    })
}

/// Does `work`, which nothing cancels, on a thread of its own. Ctrl-C ends waiting for it: it goes on, and what it gives is
/// dropped.
pub(crate) fn beside<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> skulk::Result<T> + Send + 'static,
) -> PyResult<T> {
    let (sender, mut results) = channel();
    std::thread::Builder::new().spawn(move || sender.send(work()))?;
    let lost = || Err(Error::new(ErrorKind::Internal, "the work panicked"));
    let done = wait(py, &CancelToken::new(), |timeout| receive(&mut results, timeout))?;
    done.unwrap_or_else(lost).map_err(raise)
}
