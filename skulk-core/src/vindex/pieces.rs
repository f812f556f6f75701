//! How is a range of a file read without holding all of it? A piece at a time.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

use super::truncated;
use crate::error::Result;
use crate::weights::io_error;

/// Bytes that are read at a time.
pub(super) const PIECE: usize = 1 << 20;

/// Reads a range of an open file, whose `path` serves messages.
///
/// # Errors
/// [`CheckpointTruncated`](crate::ErrorKind::CheckpointTruncated) when the file ends before the range does,
/// [`FileIo`](crate::ErrorKind::FileIo), and those of `each`.
pub(crate) fn read_pieces(
    mut file: &File,
    path: &Path,
    range: &Range<u64>,
    buffer: &mut Vec<u8>,
    mut each: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let failed = |e| io_error(e, path, "read").with("offset", range.start);
    file.seek(SeekFrom::Start(range.start)).map_err(failed)?;
    let mut left = range.end - range.start;
    while left > 0 {
        let now = left.min(PIECE as u64);
        buffer.clear();
        file.take(now).read_to_end(buffer).map_err(failed)?;
        if buffer.len() as u64 != now {
            let size = file.metadata().map_err(failed)?.len();
            return Err(truncated(range.start, range.end - range.start, size, path));
        }
        each(buffer)?;
        left -= now;
    }
    Ok(())
}
