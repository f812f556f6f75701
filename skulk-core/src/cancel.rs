//! Should this work stop? One token that ends prefill, decode and loading within one layer's work.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use crate::error::{Error, ErrorKind, Result};

/// A cloneable switch that stops the work it was handed to. All clones share one state.
///
/// Cancelling is sticky: use a fresh token for new work.
///
/// ```
/// let token = skulk::CancelToken::new();
/// let for_another_thread = token.clone();
/// for_another_thread.cancel();
/// assert!(token.is_cancelled());
/// ```
#[derive(Clone, Default)]
pub struct CancelToken(Arc<Switch>);

#[derive(Default)]
struct Switch {
    thrown: AtomicBool,
    /// Nobody lists his children: a child looks up, and registers its calls with every token above it, too.
    parent: Option<CancelToken>,
    /// In the order of their registration.
    calls: Mutex<BTreeMap<u64, Arc<Call>>>,
}

impl CancelToken {
    /// A token that nobody has cancelled yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks the work to stop; the work ends within one layer. Returns when the calls of
    /// [`on_cancel`](Self::on_cancel) have been made.
    pub fn cancel(&self) {
        self.0.thrown.store(true, Ordering::Release);
        // Who registers from now on sees the switch.
        let calls = std::mem::take(&mut *lock(&self.0.calls));
        calls.into_values().for_each(|call| call.make());
    }

    /// Whether [`cancel`](Self::cancel) was called on this token, a clone, or a token it is a child of.
    pub fn is_cancelled(&self) -> bool {
        self.line().any(|token| token.0.thrown.load(Ordering::Acquire))
    }

    /// A token that is cancelled with this one, or alone.
    #[must_use]
    pub fn child(&self) -> Self {
        Self(Arc::new(Switch {
            parent: Some(self.clone()),
            thrown: AtomicBool::default(),
            calls: Mutex::default(),
        }))
    }

    /// `Ok` while nobody has cancelled.
    ///
    /// # Errors
    /// [`ErrorKind::Cancelled`] afterwards.
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() {
            return Err(Error::new(ErrorKind::Cancelled, "the work was cancelled")
                .with_hint("nothing is lost but what was under way: call again with a fresh token"));
        }
        Ok(())
    }

    /// Calls `call` when this token, a clone, or a token it is a child of is cancelled: once, on the thread that
    /// cancels, and in the order of registration. Where it already is cancelled, calls at once and then returns.
    ///
    /// Dropping the handle takes the call back. Where another thread is in the call, that waits until it has
    /// returned, so that nothing is called after the drop; the call itself may drop the handle. So do not drop it
    /// while holding a lock that the call takes.
    ///
    /// The call may use the token in any way. It should be short, as whoever cancels waits for it: wake a thread,
    /// send a message. If it panics, that panic ends there: other calls are made, and `cancel` returns.
    ///
    /// ```
    /// let token = skulk::CancelToken::new();
    /// let (sender, messages) = std::sync::mpsc::channel();
    /// let handle = token.on_cancel(move || drop(sender.send("cancelled")));
    /// token.cancel();
    /// assert_eq!(messages.recv(), Ok("cancelled"));
    /// drop(handle);
    /// ```
    pub fn on_cancel(&self, call: impl FnOnce() + Send + 'static) -> OnCancel {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let call = Arc::new(Call::new(call));
        if self.is_cancelled() {
            call.make();
            return OnCancel(None);
        }
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        for token in self.line() {
            lock(&token.0.calls).insert(id, Arc::clone(&call));
        }
        // Who cancelled meanwhile may not have seen it.
        if self.is_cancelled() {
            call.make();
        }
        OnCancel(Some(Registered { token: self.clone(), id, call }))
    }

    /// This token, its parent, and so on.
    fn line(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |token| token.0.parent.as_ref())
    }
}

impl fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelToken").field("cancelled", &self.is_cancelled()).finish()
    }
}

impl Drop for Switch {
    /// The end of a long line of children takes one stack frame, not one for each.
    fn drop(&mut self) {
        let mut parent = self.parent.take();
        while let Some(CancelToken(switch)) = parent {
            parent = Arc::into_inner(switch).and_then(|mut switch| switch.parent.take());
        }
    }
}

/// A call that a [`CancelToken`] makes when it is cancelled; see [`CancelToken::on_cancel`]. Dropping this takes the
/// call back.
#[must_use = "dropping it takes the call back"]
pub struct OnCancel(Option<Registered>);

struct Registered {
    token: CancelToken,
    id: u64,
    call: Arc<Call>,
}

impl OnCancel {
    /// Takes the call back, and does not wait for who is in it.
    pub(crate) fn leave(mut self) {
        if let Some(registered) = self.0.take() {
            registered.call.lose();
            registered.unlist();
        }
    }
}

impl Registered {
    fn unlist(&self) {
        for token in self.token.line() {
            lock(&token.0.calls).remove(&self.id);
        }
    }
}

impl fmt::Debug for OnCancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnCancel").finish_non_exhaustive()
    }
}

impl Drop for OnCancel {
    fn drop(&mut self) {
        let Some(registered) = self.0.take() else { return };
        registered.call.take_back();
        registered.unlist();
    }
}

/// One registered call.
struct Call {
    state: Mutex<State>,
    returned: Condvar,
}

struct State {
    /// What is to be called, until somebody takes it.
    call: Option<Box<dyn FnOnce() + Send>>,
    /// The thread that is in it.
    caller: Option<ThreadId>,
}

impl Call {
    fn new(call: impl FnOnce() + Send + 'static) -> Self {
        let state = State { call: Some(Box::new(call)), caller: None };
        Self { state: Mutex::new(state), returned: Condvar::new() }
    }

    /// Calls, unless somebody has.
    fn make(&self) {
        let call = {
            let mut state = lock(&self.state);
            let Some(call) = state.call.take() else { return };
            state.caller = Some(std::thread::current().id());
            call
        };
        // The panic was reported where it happened, and whoever cancels has nothing to do with it.
        let _ = catch_unwind(AssertUnwindSafe(call));
        lock(&self.state).caller = None;
        self.returned.notify_all();
    }

    /// Sees to it that nobody will call.
    fn lose(&self) {
        let call = lock(&self.state).call.take();
        // What it captured may use the token when it is dropped.
        drop(call);
    }

    /// Sees to it that nobody will call, or is in the call on another thread.
    fn take_back(&self) {
        let own = std::thread::current().id();
        let mut state = lock(&self.state);
        let call = state.call.take();
        while state.caller.is_some_and(|caller| caller != own) {
            state = self.returned.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        // What it captured may use the token when it is dropped.
        drop(state);
        drop(call);
    }
}

/// Nothing panics under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
