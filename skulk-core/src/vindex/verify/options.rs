//! What is looked at, and how?

use std::fmt;
use std::sync::Arc;

use crate::cancel::CancelToken;

/// Called with how far the work is.
type OnProgress = Arc<dyn Fn(VerifyProgress) + Send + Sync>;

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
    /// Called every megabyte or so, from any thread.
    pub progress: Option<OnProgress>,
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

    /// Calls `report` every megabyte or so.
    #[must_use]
    pub fn progress(mut self, report: impl Fn(VerifyProgress) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(report));
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

/// How far a verification is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyProgress {
    /// The file that was read.
    pub file: String,
    /// Bytes that were looked at, of all files together. One that is looked at twice counts twice.
    pub bytes_done: u64,
    /// Bytes that will be.
    pub bytes_total: u64,
}
