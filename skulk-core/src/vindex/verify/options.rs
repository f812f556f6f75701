//! What is looked at, and how?

use crate::cancel::CancelToken;
use crate::macros::setters;
use crate::vindex::{VindexCallback, VindexProgress};

/// What [`verify_vindex`](super::verify_vindex) looks at.
#[derive(Debug, Clone)]
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

setters!(VerifyOptions {
    /// Compares hashes, or not.
    hashes: bool;
    /// Looks at numbers, or not.
    values: bool;
    /// Looks at so many pieces at a time.
    threads: usize;
    /// Tells this every megabyte or so.
    progress: impl Fn(&VindexProgress) + Send + Sync + 'static => Some(VindexCallback::new(progress));
    /// Ends the work when the token is cancelled.
    cancel: CancelToken;
});
