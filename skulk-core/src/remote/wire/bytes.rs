//! How are numbers taken from bytes that anyone may have sent, and put behind others?

use std::fmt::Display;

use crate::error::{Error, ErrorKind, Result};

/// What stands in front of a batch, where else a layer stands.
pub(super) const BATCH: u32 = u32::MAX;

/// A field of a frame holds what it cannot hold.
pub(super) fn invalid(
    frame: &'static str,
    field: &'static str,
    expected: impl Display,
    found: impl Display,
) -> Error {
    Error::new(ErrorKind::PeerFailed, format!("expected {expected}, found {found}"))
        .with("frame", frame)
        .with("field", field)
        .with_hint("the peer speaks another protocol or serves another model, or the bytes were damaged on their way")
}

/// An argument of an encoder that its frame cannot hold.
pub(super) fn unfit(field: &'static str, expected: impl Display, found: impl Display) -> Error {
    Error::argument(field, format!("expected {expected}, found {found}"))
}

/// Where reading of a frame stands.
#[derive(Debug, Clone)]
pub(super) struct Reader<'a> {
    frame: &'static str,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(frame: &'static str, bytes: &'a [u8]) -> Self {
        Self { frame, rest: bytes }
    }

    pub(super) fn invalid(&self, field: &'static str, expected: impl Display, found: impl Display) -> Error {
        invalid(self.frame, field, expected, found)
    }

    /// The next `count` elements of `size` bytes each.
    pub(super) fn take(&mut self, field: &'static str, count: usize, size: usize) -> Result<&'a [u8]> {
        let split = count.checked_mul(size).and_then(|bytes| self.rest.split_at_checked(bytes));
        let Some((taken, rest)) = split else {
            let expected = format!("{count} times {size} bytes");
            return Err(self.invalid(field, expected, format!("{} bytes", self.rest.len())));
        };
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn u32(&mut self, field: &'static str) -> Result<u32> {
        Ok(self.take(field, 1, 4)?.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)))
    }

    /// A number of things, of which there is one at least.
    pub(super) fn count(&mut self, field: &'static str) -> Result<usize> {
        match self.u32(field)? {
            0 => Err(self.invalid(field, "1 or more", 0)),
            count => Ok(count as usize),
        }
    }

    /// Elements of a row, which must be the model's.
    pub(super) fn hidden(&mut self, hidden: usize) -> Result<()> {
        match self.u32("hidden_size")? as usize {
            found if found == hidden => Ok(()),
            found => Err(self.invalid("hidden_size", hidden, found)),
        }
    }

    /// A number that is finite.
    pub(super) fn f32(&mut self, field: &'static str) -> Result<f32> {
        let number = f32::from_bits(self.u32(field)?);
        if number.is_finite() { Ok(number) } else { Err(self.invalid(field, "a finite number", number)) }
    }

    /// Words of four bytes.
    pub(super) fn words(&mut self, field: &'static str, count: usize) -> Result<Words<'a>> {
        Ok(Words(self.take(field, count, 4)?))
    }

    /// `Ok` where nothing follows.
    pub(super) fn end(&self) -> Result<()> {
        match self.rest.len() {
            0 => Ok(()),
            more => Err(self.invalid("end", "no more bytes", format!("{more} bytes"))),
        }
    }
}

/// Indices in a frame: layers, experts or tokens.
#[derive(Debug, Clone, Copy)]
pub struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    /// How many.
    pub fn len(&self) -> usize {
        self.0.len() / 4
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each of them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u32> + Clone + use<'a> {
        self.0.chunks_exact(4).map(|word| word.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)))
    }
}

/// `n` as a frame's words hold it.
pub(super) fn word(field: &'static str, n: usize) -> Result<u32> {
    u32::try_from(n).map_err(|_| unfit(field, format!("at most {}", u32::MAX), n))
}

pub(super) fn put_u32(out: &mut Vec<u8>, word: u32) {
    out.extend_from_slice(&word.to_le_bytes());
}

pub(super) fn put_count(out: &mut Vec<u8>, field: &'static str, n: usize) -> Result<()> {
    put_u32(out, word(field, n)?);
    Ok(())
}

pub(super) fn put_f32(out: &mut Vec<u8>, number: f32) {
    put_u32(out, number.to_bits());
}

/// Appends elements of `N` bytes each.
pub(super) fn put_each<T: Copy, const N: usize>(
    out: &mut Vec<u8>,
    values: &[T],
    bytes: impl Fn(T) -> [u8; N],
) {
    let start = out.len();
    out.resize(start + values.len() * N, 0);
    for (place, &value) in out[start..].chunks_exact_mut(N).zip(values) {
        place.copy_from_slice(&bytes(value));
    }
}
