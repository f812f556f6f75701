//! How does a Python thread wait? With the GIL released, and awake often enough for Ctrl-C.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::task::Poll;
use std::time::Duration;

use pyo3::prelude::*;
use skulk::CancelToken;

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
