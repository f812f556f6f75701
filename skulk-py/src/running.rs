//! How do threads and event loops wait for what runs?

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use pyo3::prelude::*;
use skulk::CancelToken;

use crate::waking::{Readers, block, park};

/// What runs, who waits for it, and what ends it.
pub(crate) struct Running<T> {
    inner: Mutex<T>,
    readers: Arc<Readers>,
    pub(crate) cancel: CancelToken,
}

impl<T: Send> Running<T> {
    /// `cancel` must stop `inner`.
    pub(crate) fn new(inner: T, cancel: CancelToken) -> Self {
        Self { inner: Mutex::new(inner), readers: Arc::default(), cancel }
    }

    /// What runs, which nobody else polls meanwhile.
    pub(crate) fn get(&self) -> MutexGuard<'_, T> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Not with the GIL: at its end this waits for the step under way.
    pub(crate) fn poll<R>(
        &self,
        reader: &Waker,
        poll: impl FnOnce(&mut T, &mut Context<'_>) -> Poll<R>,
    ) -> Poll<R> {
        self.readers.poll(reader, |cx| poll(&mut self.get(), cx))
    }

    /// Waits on this thread for what `poll` is for. A signal handler that raises cancels.
    pub(crate) fn wait<R: Send>(
        &self,
        py: Python<'_>,
        poll: impl Fn(&mut T, &mut Context<'_>) -> Poll<R> + Sync,
    ) -> PyResult<R> {
        park(py, &self.cancel, |reader| self.poll(reader, &poll))
    }

    /// The same whatever signals come, for what ends soon.
    pub(crate) fn end<R: Send>(
        &self,
        py: Python<'_>,
        poll: impl Fn(&mut T, &mut Context<'_>) -> Poll<R> + Sync,
    ) -> R {
        py.detach(|| block(|reader| self.poll(reader, &poll)))
    }

    /// Has all who wait look again.
    pub(crate) fn wake(&self) {
        Arc::clone(&self.readers).wake();
    }
}

/// What awaits the end of what runs, which it cancels.
pub(crate) fn ended<'py>(running: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    running.py().import("skulk._aio")?.call_method1("ended", (running,))
}

/// What awaits what runs itself.
pub(crate) fn entered<'py>(running: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    running.py().import("skulk._aio")?.call_method1("entered", (running,))
}

/// Waits in an event loop for what the method `poll` of what runs gives.
pub(crate) fn follow<'py>(running: &Bound<'py, PyAny>, poll: &str) -> PyResult<Bound<'py, PyAny>> {
    let aio = running.py().import("skulk._aio")?;
    aio.call_method1("follow", (running, running.getattr(poll)?))
}
