//! How does a thread wait for a server? Until it answers, or the work is cancelled, or its time is over.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;
use tokio::task::coop::unconstrained;

use crate::cancel::CancelToken;
use crate::error::{Error, ErrorKind, Result};

/// What drives one line's connection, on the thread that waits for it.
pub(super) struct Runtime(Option<tokio::runtime::Runtime>);

impl Runtime {
    pub(super) fn new() -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build();
        runtime.map(|runtime| Self(Some(runtime))).map_err(|e| {
            Error::new(ErrorKind::EngineFailed, "cannot begin to wait for other machines").with_source(e)
        })
    }

    /// Waits for `future`; also on a thread where the host's own runtime is at work.
    pub(super) fn wait<F>(&self, future: F) -> Result<F::Output>
    where
        F: Future + Send,
        F::Output: Send,
    {
        let Some(runtime) = &self.0 else {
            return Err(Error::new(ErrorKind::Internal, "a runtime was used after its end"));
        };
        if Handle::try_current().is_err() {
            return Ok(runtime.block_on(future));
        }
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("skulk-wait".into());
            let waiting = thread.spawn_scoped(scope, || runtime.block_on(future)).map_err(|e| {
                Error::new(ErrorKind::OutOfMemory, "cannot start a thread to wait on").with_source(e)
            })?;
            waiting
                .join()
                .map_err(|_| Error::new(ErrorKind::Internal, "waiting for another machine panicked"))
        })
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// In so long, or so late that nobody waits for it.
pub(super) fn after(time: Duration) -> Instant {
    const LATE: Duration = Duration::from_secs(365 * 24 * 3600);
    let now = Instant::now();
    now.checked_add(time).unwrap_or_else(|| now + LATE)
}

/// When waiting ends without an answer.
#[derive(Clone, Copy)]
pub(super) struct Until<'a> {
    pub(super) cancel: &'a CancelToken,
    /// The caller's deadline.
    pub(super) deadline: Option<Instant>,
    /// When the server has had its time.
    pub(super) patience: Instant,
}

/// Why there is no answer.
pub(super) enum Ended {
    /// The caller does not want it any more, or not so late.
    Caller(Error),
    /// The server has had its time.
    Late,
}

impl Until<'_> {
    /// `Ok` while the caller wants to wait.
    pub(super) fn check(&self) -> Result<(), Ended> {
        let mut cx = crate::engine::StepCx::new(self.cancel);
        cx.deadline = self.deadline;
        cx.check().map_err(Ended::Caller)
    }

    /// What `future` gives, or why waiting for it ended.
    pub(super) async fn wait<F: Future>(self, future: F) -> Result<F::Output, Ended> {
        let cancelled = Arc::new(Notify::new());
        let wake = Arc::clone(&cancelled);
        let _registered = self.cancel.on_cancel(move || wake.notify_one());
        let until = self.deadline.map_or(self.patience, |deadline| deadline.min(self.patience));
        let mut future = pin!(future);
        // A server that never stops sending uses up what a task may do at once: these two are looked at all the same.
        let mut cancelled = pin!(unconstrained(cancelled.notified()));
        let mut late = pin!(unconstrained(tokio::time::sleep_until(until.into())));
        poll_fn(|cx| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Ok(output));
            }
            if cancelled.as_mut().poll(cx).is_ready() || late.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(self.check().err().unwrap_or(Ended::Late)));
            }
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As where a server floods: there is always more to do.
    #[test]
    fn waiting_ends_for_what_never_rests() {
        let cancel = CancelToken::new();
        let began = Instant::now();
        let until = Until { cancel: &cancel, deadline: None, patience: after(Duration::from_millis(20)) };
        let restless = async {
            while began.elapsed() < Duration::from_secs(20) {
                tokio::task::consume_budget().await;
            }
        };
        let waited = Runtime::new().unwrap().wait(until.wait(restless)).unwrap();
        assert!(matches!(waited, Err(Ended::Late)));
    }
}
