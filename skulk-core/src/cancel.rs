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
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// A token that nobody has cancelled yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks the work to stop. Returns at once; the work ends within one layer.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether [`cancel`](Self::cancel) was called on this token or a clone.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// `Ok` while nobody has cancelled.
    ///
    /// # Errors
    /// [`ErrorKind::Cancelled`] afterwards.
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() {
            return Err(
                Error::new(ErrorKind::Cancelled, "the work was cancelled").with_hint(
                    "the session is still usable: start another generation with a fresh token",
                ),
            );
        }
        Ok(())
    }
}
