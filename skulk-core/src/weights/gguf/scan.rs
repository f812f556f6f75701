//! What do the first key-values of a file say? One after the other, from as much of the file as is at hand.

use std::path::Path;

use super::cursor::Cursor;
use super::header::check_version;
use super::metadata::{self, KEY_MAX};
use super::value::GgufValue;
use crate::error::Result;

/// A walk over a header's key-values that can stop at any of them. Bytes that are not there are missed only
/// when they are reached.
pub(crate) struct HeaderScan<'a> {
    cursor: Cursor<'a>,
    left: u64,
}

impl<'a> HeaderScan<'a> {
    pub(crate) fn new(start: &'a [u8], path: &'a Path) -> Result<Self> {
        let mut cursor = Cursor::partial(start, path);
        check_version(&mut cursor)?;
        cursor.u64("tensor count")?;
        let left = cursor.u64("metadata count")?;
        Ok(Self { cursor, left })
    }

    /// The next key; `None` after the last one.
    pub(crate) fn key(&mut self) -> Result<Option<&'a str>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        self.cursor.string(KEY_MAX, "metadata key").map(Some)
    }

    /// That key's value, unless it is an array; to be asked for once after each key.
    pub(crate) fn value(&mut self) -> Result<Option<GgufValue<'a>>> {
        metadata::next_scalar(&mut self.cursor)
    }
}
