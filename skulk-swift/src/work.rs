//! How does a Swift task wait for long work? The work runs on another thread, which wakes the task, and a token
//! ends it.

use std::sync::Arc;

use futures_channel::oneshot;
use skulk::{CancelToken, Error, ErrorKind, OnCancel};
use skulk_contract::functions::Work;
use skulk_contract::threads;

use crate::error::Answer;

/// A switch that stops the work it was handed to.
#[derive(uniffi::Object)]
pub struct RawCancel(pub(crate) CancelToken);

#[uniffi::export]
impl RawCancel {
    /// A fresh one.
    #[uniffi::constructor]
    pub fn new() -> Arc<Self> {
        Arc::new(Self(CancelToken::new()))
    }

    /// One that this one cancels, too.
    pub fn child(&self) -> Arc<Self> {
        Arc::new(Self(self.0.child()))
    }

    /// Asks the work to stop. Returns at once.
    pub fn cancel(&self) {
        self.0.cancel();
    }

    /// Whether it was asked.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Calls when it is asked, or at once where it was, unless what comes back was dropped.
    pub fn on_cancel(&self, call: Arc<dyn RawCall>) -> Arc<RawOnCancel> {
        Arc::new(RawOnCancel { _handle: self.0.on_cancel(move || call.call()) })
    }
}

/// What is called.
#[uniffi::export(with_foreign)]
pub trait RawCall: Send + Sync {
    /// Calls it.
    fn call(&self);
}

/// What takes a call back when it is dropped.
#[derive(uniffi::Object)]
pub struct RawOnCancel {
    _handle: OnCancel,
}

/// Who is told how far some work is.
#[uniffi::export(with_foreign)]
pub trait RawProgress: Send + Sync {
    /// One step, as JSON.
    fn step(&self, step: String);
}

/// What ends a function of the contract, and hears how far it is.
pub(crate) fn work(cancel: &RawCancel, progress: Option<Arc<dyn RawProgress>>) -> Work {
    let mut work = Work { cancel: cancel.0.clone(), ..Work::default() };
    if let Some(progress) = progress {
        work.progress = Arc::new(move |step| progress.step(step));
    }
    work
}

/// Runs `work` on another thread.
pub(crate) async fn run<T: Send + 'static>(
    work: impl FnOnce() -> skulk::Result<T> + Send + 'static,
) -> Answer<T> {
    let (sender, result) = oneshot::channel();
    // Where nobody waits any more, nobody wants the result.
    threads::start(move || drop(sender.send(work())))?;
    told(result).await
}

/// The same of what only computes, and hosts begin by hundreds.
pub(crate) async fn run_in_turn<T: Send + 'static>(
    work: impl FnOnce() -> skulk::Result<T> + Send + 'static,
) -> Answer<T> {
    let (sender, result) = oneshot::channel();
    threads::in_turn(move || drop(sender.send(work())))?;
    told(result).await
}

/// What comes of work on another thread.
pub(crate) async fn told<T>(result: oneshot::Receiver<skulk::Result<T>>) -> Answer<T> {
    Ok(result.await.unwrap_or_else(|_| Err(panicked()))?)
}

pub(crate) fn panicked() -> Error {
    Error::new(ErrorKind::Internal, "the work panicked")
}
