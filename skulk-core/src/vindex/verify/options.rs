//! What is looked at, and how?

use std::fmt;
use std::sync::Arc;

use crate::cancel::CancelToken;
use crate::vindex::{VindexCallback, VindexProgress};

/// What [`verify_vindex`](super::verify_vindex) looks at.
#[derive(Clone)]
#[non_exhaustive]
pub struct VerifyOptions {
    /// Compares hashes, which reads all files that have any.
    pub hashes: bool,
    /// Looks for numbers that are infinite or none, in floats and in the scales of blocks, which reads all weights.
    pub values: bool,
    /// Pieces of files that are looked at at a time.
    pub threads: usize,
    /// Called every megabyte or so, from any thread. Bytes that are looked at twice count twice.
    pub progress: Option<VindexCallback>,
    /// Ends the work when it is cancelled.
    pub cancel: CancelToken,
}

impl Default for VerifyOptions {
    /// Hashes, with all the hardware's threads.
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        Self { hashes: true, values: false, threads, progress: None, cancel: CancelToken::new() }
    }
}

impl VerifyOptions {
    /// Compares hashes, or not.
    #[must_use]
    pub fn hashes(mut self, compare: bool) -> Self {
        self.hashes = compare;
        self
    }

    /// Looks at numbers, or not.
    #[must_use]
    pub fn values(mut self, look: bool) -> Self {
        self.values = look;
        self
    }

    /// Looks at `n` pieces at a time.
    #[must_use]
    pub fn threads(mut self, n: usize) -> Self {
        self.threads = n;
        self
    }

    /// Calls `callback` every megabyte or so.
    #[must_use]
    pub fn progress(mut self, callback: impl Fn(&VindexProgress) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(callback));
        self
    }

    /// Ends the work when `token` is cancelled.
    #[must_use]
    pub fn cancel(mut self, token: CancelToken) -> Self {
        self.cancel = token;
        self
    }
}

impl fmt::Debug for VerifyOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifyOptions")
            .field("hashes", &self.hashes)
            .field("values", &self.values)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}
