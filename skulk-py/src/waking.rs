//! How is a reader of a generation woken? A thread by unparking it, an event loop by a callback.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

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

/// Waits on this thread until the poll is ready, whatever signals come: whoever runs next hears of them. Not with the GIL.
pub(crate) fn block<T>(mut poll: impl FnMut(&Waker) -> Poll<T>) -> T {
    let waker = Waker::from(Arc::new(Parked(thread::current())));
    loop {
        if let Poll::Ready(value) = poll(&waker) {
            return value;
        }
        thread::park();
    }
}

/// Whether other threads may call Python: not any more once it exits, which would end them at a bad moment.
static OPEN: RwLock<bool> = RwLock::new(true);

/// What is called to wake an event loop.
type Callback = Arc<Py<PyAny>>;

/// The thread that calls callbacks, and the process that it is in: others that this one forks have it no more.
static CALLER: Mutex<Option<(u32, Sender<Callback>)>> = Mutex::new(None);

/// Hands its callback to the caller. A model's thread wakes readers of all its sessions: it must not wait for the GIL.
struct Call {
    callback: Callback,
    caller: Sender<Callback>,
}

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        // It fails when Python has exited: nobody waits.
        let _ = self.caller.send(Arc::clone(&self.callback));
    }
}

/// The caller's thread, which is started when it is first needed.
fn caller() -> PyResult<Sender<Callback>> {
    let mut caller = CALLER.lock().unwrap_or_else(PoisonError::into_inner);
    let here = std::process::id();
    if let Some((process, calls)) = &*caller
        && *process == here
    {
        return Ok(calls.clone());
    }
    let (calls, called) = channel();
    thread::Builder::new().name("skulk-wake".into()).spawn(move || call(&called))?;
    *caller = Some((here, calls.clone()));
    Ok(calls)
}

/// Calls what is sent, until Python exits.
fn call(called: &Receiver<Callback>) {
    while let Ok(first) = called.recv() {
        // Held until the calls have returned. Where it waits to be written, Python exits.
        let Ok(open) = OPEN.try_read() else { return };
        if !*open {
            return;
        }
        Python::try_attach(|py| {
            for callback in std::iter::once(first).chain(called.try_iter()) {
                // It fails when the loop is closed: nobody waits.
                drop(callback.call0(py));
            }
        });
    }
}

/// A waker that calls `callback`, from another thread. Once Python exits it calls nobody.
pub(crate) fn calling(callback: Py<PyAny>) -> PyResult<Waker> {
    if !OPEN.try_read().is_ok_and(|open| *open) {
        return Ok(Waker::noop().clone());
    }
    let (callback, caller) = (Arc::new(callback), caller()?);
    Ok(Waker::from(Arc::new(Call { callback, caller })))
}

/// Called when Python exits: no waker calls it from then on, and none is still at it.
#[pyfunction]
pub(crate) fn stop_waking(py: Python<'_>) {
    py.detach(|| *OPEN.write().unwrap_or_else(PoisonError::into_inner) = false);
}
