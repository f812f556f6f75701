//! Should this work stop? One token that ends prefill, decode and loading within one layer's work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
#[derive(Debug, Clone, Default)]
pub struct CancelToken(Arc<Switch>);

#[derive(Debug, Default)]
struct Switch {
    thrown: AtomicBool,
    parent: Option<CancelToken>,
}

impl CancelToken {
    /// A token that nobody has cancelled yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks the work to stop. Returns at once; the work ends within one layer.
    pub fn cancel(&self) {
        self.0.thrown.store(true, Ordering::Release);
    }

    /// Whether [`cancel`](Self::cancel) was called on this token, a clone, or a token it is a child of.
    pub fn is_cancelled(&self) -> bool {
        self.0.thrown.load(Ordering::Acquire) || self.0.parent.as_ref().is_some_and(CancelToken::is_cancelled)
    }

    /// A token that is cancelled with this one, or alone.
    #[must_use]
    pub fn child(&self) -> Self {
        Self(Arc::new(Switch { thrown: AtomicBool::new(false), parent: Some(self.clone()) }))
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
}
