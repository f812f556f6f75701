//! How far is an extraction, a slice or a verification?

use std::fmt;
use std::sync::Arc;

use super::VindexPart;
use crate::bytes::ByteSize;

/// What is told how far some work on a folder is.
#[derive(Clone)]
pub struct VindexCallback(Arc<dyn Fn(&VindexProgress) + Send + Sync>);

impl VindexCallback {
    /// Calls `callback`, from any thread.
    pub fn new(callback: impl Fn(&VindexProgress) + Send + Sync + 'static) -> Self {
        Self(Arc::new(callback))
    }

    /// Tells it.
    pub fn tell(&self, progress: &VindexProgress) {
        (self.0)(progress);
    }
}

impl fmt::Debug for VindexCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VindexCallback")
    }
}

/// How far some work on a folder is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct VindexProgress {
    /// The file that is worked on, by its path in the folder.
    pub file: String,
    /// The layer that is written, where an extraction writes one.
    pub layer: Option<usize>,
    /// Bytes that are done, of all files together; of an extraction, those of an earlier run included.
    pub bytes_done: ByteSize,
    /// Bytes that will be.
    pub bytes_total: ByteSize,
}

impl VindexProgress {
    pub(crate) fn new(file: &str, layer: Option<usize>, done: u64, total: u64) -> Self {
        Self { file: file.to_owned(), layer, bytes_done: ByteSize(done), bytes_total: ByteSize(total) }
    }

    /// The part that the file belongs to.
    pub fn part(&self) -> Option<VindexPart> {
        VindexPart::of(&self.file)
    }
}
