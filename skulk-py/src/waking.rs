//! How is a reader of a generation woken? A thread by unparking it, an event loop by a callback.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use skulk::CancelToken;

use crate::wait::wait;

/// All who wait for one generation's next event: each is woken, one gets it, the others wait again.
#[derive(Default)]
pub(crate) struct Readers(Mutex<Vec<Waker>>);

impl Readers {
    /// Polls for `reader`, whom the generation wakes through this.
    pub(crate) fn poll<T>(
        self: &Arc<Self>,
        reader: &Waker,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.change(|waiting| waiting.push(reader.clone()));
        let result = poll(&mut Context::from_waker(&Waker::from(Arc::clone(self))));
        if result.is_ready() {
            self.change(|waiting| waiting.retain(|other| !other.will_wake(reader)));
        }
        result
    }

    fn change<T>(&self, change: impl FnOnce(&mut Vec<Waker>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Wake for Readers {
    fn wake(self: Arc<Self>) {
        self.change(std::mem::take).into_iter().for_each(Waker::wake);
    }
}

struct Parked(Thread);

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits on this thread until the poll is ready. A signal handler that raises, as Ctrl-C's does, cancels.
pub(crate) fn park<T: Send>(
    py: Python<'_>,
    cancel: &CancelToken,
    mut poll: impl FnMut(&Waker) -> Poll<T> + Send,
) -> PyResult<T> {
    let waker = Waker::from(Arc::new(Parked(thread::current())));
    wait(py, cancel, |timeout| {
        let result = poll(&waker);
        if result.is_pending() {
            thread::park_timeout(timeout);
        }
        result
    })
}

/// Whether other threads may call Python: not any more once it exits, which would end them at a bad moment.
static OPEN: RwLock<bool> = RwLock::new(true);

struct Callback(Py<PyAny>);

impl Wake for Callback {
    fn wake(self: Arc<Self>) {
        // Held until the call has returned. Where it waits to be written, Python exits.
        if let Ok(open) = OPEN.try_read()
            && *open
        {
            // It fails when the loop is closed: nobody waits.
            Python::try_attach(|py| self.0.call0(py).map(drop));
        }
    }
}

/// A waker that calls `callback`, from another thread.
pub(crate) fn calling(callback: Py<PyAny>) -> PyResult<Waker> {
    let open = OPEN.try_read().is_ok_and(|open| *open);
    let closed = || PyRuntimeError::new_err("Python exits: read generations with `for` now");
    if open { Ok(Waker::from(Arc::new(Callback(callback)))) } else { Err(closed()) }
}

/// Called when Python exits: no waker calls it from then on, and none is still at it.
#[pyfunction]
pub(crate) fn stop_waking(py: Python<'_>) {
    py.detach(|| *OPEN.write().unwrap_or_else(PoisonError::into_inner) = false);
}
