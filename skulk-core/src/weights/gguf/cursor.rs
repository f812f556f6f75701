//! What are the next bytes of a header? Little-endian reads that cannot leave the file.

use std::path::Path;

use crate::error::{Error, Result};
use crate::weights::{damaged, incomplete};

/// Longer lengths and counts than this are no sign of a cut-off file: nobody wrote them.
const PLAUSIBLE: u64 = u32::MAX as u64;

/// A position in a file's bytes that only moves over bytes that are there.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    path: &'a Path,
    /// Longer lengths and counts than this are damage rather than a cut-off file.
    plausible: u64,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8], path: &'a Path) -> Self {
        Self { bytes, at: 0, path, plausible: PLAUSIBLE }
    }

    /// Over the start of a file: whatever is not there may still be in the rest.
    pub(super) fn partial(bytes: &'a [u8], path: &'a Path) -> Self {
        Self { plausible: u64::MAX, ..Self::new(bytes, path) }
    }

    /// All bytes.
    pub(super) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The file the bytes come from.
    pub(super) fn path(&self) -> &'a Path {
        self.path
    }

    /// Bytes read so far.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// A format violation in this file.
    pub(super) fn invalid(&self, message: String) -> Error {
        damaged(message, self.path)
    }

    /// The next `len` bytes, which hold `what`.
    pub(super) fn take(&mut self, len: usize, what: &str) -> Result<&'a [u8]> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let Some(taken) = rest.get(..len) else {
            return Err(self.beyond(len as u64, what));
        };
        self.at += len;
        Ok(taken)
    }

    pub(super) fn u32(&mut self, what: &str) -> Result<u32> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: &str) -> Result<u64> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A count of things that take at least `each` bytes: never more than the file can still hold,
    /// so that callers may loop over it and reserve memory for it.
    pub(super) fn count(&mut self, each: usize, what: &str) -> Result<usize> {
        let count = self.u64(what)?;
        let left = (self.bytes.len() - self.at) as u64;
        match count.checked_mul(each as u64) {
            Some(needed) if needed <= left => Ok(count as usize),
            _ if count > self.plausible => Err(self.invalid(format!(
                "expected a {what} that fits the file, found {count} with {left} bytes left"
            ))),
            needed => Err(self.beyond(needed.unwrap_or(u64::MAX), what)),
        }
    }

    /// A string: its length in bytes, then UTF-8.
    pub(super) fn string(&mut self, max: usize, what: &str) -> Result<&'a str> {
        let start = self.at;
        let len = self.count(1, what)?;
        if len > max {
            return Err(self.invalid(format!(
                "expected a {what} of at most {max} bytes, found {len} at offset {start}"
            )));
        }
        std::str::from_utf8(self.take(len, what)?).map_err(|e| {
            self.invalid(format!("expected a {what} in UTF-8, found other bytes at offset {start}"))
                .with_source(e)
        })
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, what)?);
        Ok(array)
    }

    fn beyond(&self, len: u64, what: &str) -> Error {
        let have = self.bytes.len();
        let message = format!(
            "expected {len} bytes for the {what} at offset {}, but the file has {have} bytes",
            self.at
        );
        incomplete(message, self.path)
    }
}
