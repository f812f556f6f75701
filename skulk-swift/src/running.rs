//! How do Swift's tasks follow what runs? Another thread begins it, and each waits for what it polls for, beside others.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use futures_channel::oneshot;
use skulk::CancelToken;
use skulk_contract::threads;

use crate::error::Answer;
use crate::work::{RawCancel, panicked, told};

/// What runs, who waits for it, and what ends it.
pub(crate) struct Running<T: Send + 'static> {
    shared: Arc<Shared<T>>,
    cancel: CancelToken,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    /// Whoever drops it waits for this while a thread is at it.
    free: Condvar,
    readers: Arc<Readers>,
}

/// How far it is.
enum State<T> {
    /// A thread is to begin it, or to change it.
    Waiting(Box<dyn FnOnce() -> Answer<T> + Send>),
    /// A thread does.
    Taken,
    /// It runs, or could not be begun.
    Begun(Answer<T>),
    /// Nobody follows it.
    Dropped,
}

/// All who wait for what comes next: each is woken, one gets it, the others wait again.
#[derive(Default)]
pub(crate) struct Readers(Mutex<Vec<Waker>>);

impl Readers {
    fn change<T>(&self, change: impl FnOnce(&mut Vec<Waker>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Polls for one of them.
    pub(crate) fn poll<R>(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<R>,
    ) -> Poll<R> {
        self.change(|waiting| waiting.push(cx.waker().clone()));
        let result = poll(&mut Context::from_waker(&Waker::from(Arc::clone(self))));
        if result.is_ready() {
            self.change(|waiting| waiting.retain(|other| !other.will_wake(cx.waker())));
        }
        result
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

impl<T: Send + 'static> Shared<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has another thread do what waits. Where the system has none, this one does.
    fn start(self: &Arc<Self>) {
        let own = Arc::clone(self);
        if threads::in_turn(move || own.take()).is_err() {
            self.take();
        }
    }

    fn take(&self) {
        let work = {
            let mut state = self.state();
            match std::mem::replace(&mut *state, State::Taken) {
                State::Waiting(work) => work,
                other => {
                    *state = other;
                    return;
                }
            }
        };
        self.give_back(catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(panicked().into())));
    }

    fn give_back(&self, begun: Answer<T>) {
        let before = std::mem::replace(&mut *self.state(), State::Begun(begun));
        drop(before);
        self.free.notify_all();
        Arc::clone(&self.readers).wake();
    }
}

impl<T: Send + 'static> Running<T> {
    /// Has another thread begin what `cancel` must stop.
    pub(crate) fn start(cancel: CancelToken, begin: impl FnOnce() -> Answer<T> + Send + 'static) -> Self {
        let state = Mutex::new(State::Waiting(Box::new(begin)));
        let shared = Arc::new(Shared { state, free: Condvar::new(), readers: Arc::default() });
        shared.start();
        Self { shared, cancel }
    }

    /// Asks it to end.
    pub(crate) fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Waits for what `look` finds once it has begun, beside others that do.
    async fn look<R>(
        &self,
        mut look: impl FnMut(&mut State<T>, &mut Context<'_>) -> Poll<Answer<R>>,
    ) -> Answer<R> {
        poll_fn(|cx| self.shared.readers.poll(cx, |cx| look(&mut self.shared.state(), cx))).await
    }

    /// Waits for what `poll` is for, beside others that do. An error: it could not be begun.
    pub(crate) async fn wait<R>(
        &self,
        mut poll: impl FnMut(&mut T, &mut Context<'_>) -> Poll<R>,
    ) -> Answer<R> {
        self.look(|state, cx| match state {
            State::Begun(Ok(inner)) => poll(inner, cx).map(Ok),
            State::Begun(Err(error)) => Poll::Ready(Err(error.clone())),
            State::Waiting(_) | State::Taken | State::Dropped => Poll::Pending,
        })
        .await
    }

    /// What `see` sees of it. An error: it could not be begun.
    pub(crate) async fn see<R>(&self, see: impl Fn(&T) -> R) -> Answer<R> {
        self.wait(|inner, _| Poll::Ready(see(inner))).await
    }

    /// Has another thread change it. An error: it could not be begun.
    pub(crate) async fn change<R: Send + 'static>(
        &self,
        change: impl FnOnce(&mut T) -> skulk::Result<R> + Send + 'static,
    ) -> Answer<R> {
        let take = |state: &mut State<T>, _: &mut Context<'_>| match std::mem::replace(state, State::Taken) {
            State::Begun(Ok(inner)) => Poll::Ready(Ok(inner)),
            State::Begun(Err(error)) => {
                *state = State::Begun(Err(error.clone()));
                Poll::Ready(Err(error))
            }
            other => {
                *state = other;
                Poll::Pending
            }
        };
        let mut inner = self.look(take).await?;
        let (sender, result) = oneshot::channel();
        *self.shared.state() = State::Waiting(Box::new(move || {
            drop(sender.send(change(&mut inner)));
            Ok(inner)
        }));
        self.shared.start();
        told(result).await
    }
}

impl<T: Send + 'static> Drop for Running<T> {
    /// What was not begun never is. A thread that is at it is waited for, so that its session is free then.
    fn drop(&mut self) {
        let mut state = self.shared.state();
        while matches!(*state, State::Taken) {
            state = self.shared.free.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let last = std::mem::replace(&mut *state, State::Dropped);
        drop(state);
        drop(last);
    }
}
