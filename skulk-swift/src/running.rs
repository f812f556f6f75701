//! How do Swift's tasks follow what runs? Each waits for what it polls for, beside others.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use skulk::CancelToken;

use crate::work::RawCancel;

/// What runs, who waits for it, and what ends it.
pub(crate) struct Running<T> {
    inner: Mutex<T>,
    readers: Arc<Readers>,
    cancel: CancelToken,
}

/// All who wait for what comes next: each is woken, one gets it, the others wait again.
#[derive(Default)]
struct Readers(Mutex<Vec<Waker>>);

impl Readers {
    fn change<T>(&self, change: impl FnOnce(&mut Vec<Waker>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Wake for Readers {
    fn wake(self: Arc<Self>) {
        self.change(std::mem::take).into_iter().for_each(Waker::wake);
    }
}

/// What ends work that Swift may have a token for.
pub(crate) fn child(cancel: Option<Arc<RawCancel>>) -> CancelToken {
    cancel.map_or_else(CancelToken::new, |token| token.0.child())
}

impl<T> Running<T> {
    /// `cancel` must stop `inner`.
    pub(crate) fn new(inner: T, cancel: CancelToken) -> Self {
        Self { inner: Mutex::new(inner), readers: Arc::default(), cancel }
    }

    /// What runs, which nobody else polls meanwhile.
    pub(crate) fn get(&self) -> MutexGuard<'_, T> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks it to end.
    pub(crate) fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Waits for what `poll` is for, beside others that do.
    pub(crate) async fn wait<R>(&self, mut poll: impl FnMut(&mut T, &mut Context<'_>) -> Poll<R>) -> R {
        poll_fn(|cx| {
            self.readers.change(|waiting| waiting.push(cx.waker().clone()));
            let woken = Waker::from(Arc::clone(&self.readers));
            let result = poll(&mut self.get(), &mut Context::from_waker(&woken));
            if result.is_ready() {
                self.readers.change(|waiting| waiting.retain(|other| !other.will_wake(cx.waker())));
            }
            result
        })
        .await
    }
}
