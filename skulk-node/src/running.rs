//! How does Node.js follow what runs? It polls, and is woken when there is more. No thread waits for it.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use napi::bindgen_prelude::Function;
use napi::threadsafe_function::ThreadsafeFunction;
use napi::threadsafe_function::ThreadsafeFunctionCallMode::NonBlocking;
use skulk::CancelToken;

use crate::error::raise;

/// What runs on the model's thread, and what ends it.
pub(crate) struct Running<T: Send + 'static> {
    inner: Option<T>,
    cancel: CancelToken,
    waker: Waker,
    /// Nothing runs any more.
    pub(crate) ended: bool,
}

/// Wakes JavaScript. It does not keep the event loop alive: that is for those who wait.
struct Alarm(ThreadsafeFunction<(), (), (), napi::Status, false, true>);

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        // Where JavaScript has ended, nobody waits.
        self.0.call((), NonBlocking);
    }
}

impl<T: Send + 'static> Running<T> {
    /// Follows what `start` starts, which `cancel` must stop. `wake` is called whenever there is more to read than a poll
    /// found.
    pub(crate) fn start(
        wake: &Function<'_, (), ()>,
        cancel: CancelToken,
        start: impl FnOnce(CancelToken) -> skulk::Result<T>,
    ) -> napi::Result<Self> {
        let alarm = wake.build_threadsafe_function::<()>().weak::<true>().build_callback(|_| Ok(()))?;
        let inner = Some(start(cancel.clone()).map_err(raise)?);
        Ok(Self { inner, cancel, waker: Waker::from(Arc::new(Alarm(alarm))), ended: false })
    }

    /// What runs.
    pub(crate) fn get(&self) -> Option<&T> {
        self.inner.as_ref()
    }

    /// The same, to be changed.
    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        self.inner.as_mut()
    }

    pub(crate) fn poll<R>(
        &mut self,
        poll: impl FnOnce(&mut T, &mut Context<'_>) -> Poll<R>,
    ) -> Poll<Option<R>> {
        let mut cx = Context::from_waker(&self.waker);
        match &mut self.inner {
            Some(inner) => poll(inner, &mut cx).map(Some),
            None => Poll::Ready(None),
        }
    }
}

impl<T: Send + 'static> Drop for Running<T> {
    fn drop(&mut self) {
        let inner = self.inner.take().filter(|_| !self.ended);
        if let Some(inner) = inner {
            self.cancel.cancel();
            // It waits for the step under way: not on JavaScript's thread, unless there is no other.
            drop(thread::Builder::new().spawn(move || drop(inner)));
        }
    }
}
