//! How do rows cross as blocks of integers, and what dense blocks give for them?
//!
//! A block has 256 integers, a scale, and the sums of each 32 integers, which follow from them and are checked.

use super::bytes::{Reader, put_count, put_each, put_u32, unfit};
use super::values::{Rows, WireType, one_row, rounded, scale_of};
use crate::error::Result;

const REQUEST: &str = "walk-ffn-q8k request";
const REPLY: &str = "walk-ffn-q8k reply";

/// Integers of a block.
pub(super) const BLOCK: usize = 256;
/// Sums of a block.
const SUMS: usize = 8;

/// A row as blocks of integers: all integers, then all scales, then all sums.
#[derive(Debug, Clone, Copy)]
pub struct Blocks<'a> {
    frame: &'static str,
    integers: &'a [u8],
    scales: &'a [u8],
    sums: &'a [u8],
}

impl<'a> Blocks<'a> {
    pub(super) fn read(reader: &mut Reader<'a>, frame: &'static str, blocks: usize) -> Result<Self> {
        let integers = reader.take("integers", blocks, BLOCK)?;
        let scales = reader.take("scales", blocks, 4)?;
        let sums = reader.take("sums", blocks, SUMS * 2)?;
        for (group, sum) in integers.chunks_exact(BLOCK / SUMS).zip(sums.as_chunks().0) {
            let expected: i32 = group.iter().map(|&byte| i32::from(byte.cast_signed())).sum();
            let found = i16::from_le_bytes(*sum);
            if expected != i32::from(found) {
                return Err(reader.invalid("sums", expected, found));
            }
        }
        Ok(Self { frame, integers, scales, sums })
    }

    /// Elements of the row.
    pub fn hidden(&self) -> usize {
        self.integers.len()
    }

    /// Copies the row to `out`, as it was before it was rounded but for that.
    ///
    /// # Errors
    /// [`ErrorKind::PeerFailed`](crate::ErrorKind::PeerFailed) for numbers that are not finite;
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for another length of `out`.
    pub fn copy_to(&self, out: &mut [f32]) -> Result<()> {
        if out.len() != self.hidden() {
            return Err(unfit("out", self.hidden(), out.len()));
        }
        let mut scales = Reader::new(self.frame, self.scales);
        for (out, bytes) in out.chunks_exact_mut(BLOCK).zip(self.integers.chunks_exact(BLOCK)) {
            let scale = scales.f32("scales")?;
            for (out, &byte) in out.iter_mut().zip(bytes) {
                *out = f32::from(byte.cast_signed()) * scale;
            }
            if let Some(value) = out.iter().find(|value| !value.is_finite()) {
                return Err(scales.invalid("scales", "finite products with integers", value));
            }
        }
        Ok(())
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        [self.integers, self.scales, self.sums].into_iter().for_each(|bytes| out.extend_from_slice(bytes));
    }
}

/// Where a row is rounded to [`Blocks`], again and again.
#[derive(Debug, Clone, Default)]
pub struct BlocksBuf {
    integers: Vec<u8>,
    scales: Vec<u8>,
    sums: Vec<u8>,
}

impl BlocksBuf {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Rounds a row of whole blocks.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for other lengths, or for numbers that are not
    /// finite.
    pub fn round(&mut self, row: &[f32]) -> Result<Blocks<'_>> {
        if row.is_empty() || !row.len().is_multiple_of(BLOCK) {
            return Err(unfit("row", format!("blocks of {BLOCK} numbers"), format!("{} numbers", row.len())));
        }
        WireType::F32.check(row)?;
        [&mut self.integers, &mut self.scales, &mut self.sums].into_iter().for_each(Vec::clear);
        for block in row.chunks_exact(BLOCK) {
            let scale = scale_of(block);
            put_each(&mut self.scales, &[scale], f32::to_le_bytes);
            for group in block.chunks_exact(BLOCK / SUMS) {
                let start = self.integers.len();
                put_each(&mut self.integers, group, |value| rounded(value, scale).to_le_bytes());
                // At most 32 times 127.
                let sum: i16 = self.integers[start..].iter().map(|&byte| i16::from(byte.cast_signed())).sum();
                put_each(&mut self.sums, &[sum], i16::to_le_bytes);
            }
        }
        let Self { integers, scales, sums } = self;
        Ok(Blocks { frame: REQUEST, integers, scales, sums })
    }
}

/// Rows for the dense blocks of layers, one of each: `[n]` and n times
/// `[layer][n_blocks][i8 …][f32 scale …][i16 sum …]`.
#[derive(Debug, Clone)]
pub struct Q8kRequest<'a> {
    len: usize,
    hidden: usize,
    rest: Reader<'a>,
}

fn item<'a>(reader: &mut Reader<'a>, hidden: usize) -> Result<(u32, Blocks<'a>)> {
    let layer = reader.u32("layer")?;
    let blocks = reader.u32("n_blocks")? as usize;
    if blocks.checked_mul(BLOCK) != Some(hidden) {
        return Err(reader.invalid("n_blocks", format!("blocks of {BLOCK} in rows of {hidden}"), blocks));
    }
    Ok((layer, Blocks::read(reader, REQUEST, blocks)?))
}

impl<'a> Q8kRequest<'a> {
    /// Reads a request for a model of rows of `hidden` elements.
    ///
    /// # Errors
    /// [`ErrorKind::PeerFailed`](crate::ErrorKind::PeerFailed) where it is none.
    pub fn decode(bytes: &'a [u8], hidden: usize) -> Result<Self> {
        let mut reader = Reader::new(REQUEST, bytes);
        let len = reader.count("num_entries")?;
        let rest = reader.clone();
        for _ in 0..len {
            item(&mut reader, hidden)?;
        }
        reader.end()?;
        Ok(Self { len, hidden, rest })
    }

    /// How many rows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none, which is never so.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Each layer and its row.
    pub fn rows(&self) -> impl Iterator<Item = (u32, Blocks<'a>)> + use<'a> {
        let Self { len, hidden, mut rest } = self.clone();
        // They were read before.
        (0..len).map_while(move |_| item(&mut rest, hidden).ok())
    }

    /// Appends a request.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for what the frame cannot hold.
    pub fn encode<'v>(
        out: &mut Vec<u8>,
        rows: impl ExactSizeIterator<Item = (u32, Blocks<'v>)>,
    ) -> Result<()> {
        put_count(out, "rows", rows.len())?;
        for (layer, blocks) in rows {
            put_u32(out, layer);
            put_count(out, "blocks", blocks.hidden() / BLOCK)?;
            blocks.put(out);
        }
        Ok(())
    }
}

/// Rows of layers as both kinds of q8k replies and those of multi-layer-batch have them: `[n]` and n times
/// `[layer][hidden][f32 × hidden]`.
#[derive(Debug, Clone)]
pub(super) struct LayerRows<'a> {
    frame: &'static str,
    len: usize,
    hidden: usize,
    rest: Reader<'a>,
}

fn layer_row<'a>(reader: &mut Reader<'a>, frame: &'static str, hidden: usize) -> Result<(u32, Rows<'a>)> {
    let layer = reader.u32("layer")?;
    reader.hidden(hidden)?;
    Ok((layer, Rows::read(reader, frame, "output", WireType::F32, 1, hidden)?))
}

impl<'a> LayerRows<'a> {
    pub(super) fn decode(frame: &'static str, bytes: &'a [u8], hidden: usize) -> Result<Self> {
        let mut reader = Reader::new(frame, bytes);
        let len = reader.u32("num_entries")? as usize;
        let rest = reader.clone();
        for _ in 0..len {
            layer_row(&mut reader, frame, hidden)?;
        }
        reader.end()?;
        Ok(Self { frame, len, hidden, rest })
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = (u32, Rows<'a>)> + use<'a> {
        let Self { frame, len, hidden, mut rest } = self.clone();
        // They were read before.
        (0..len).map_while(move |_| layer_row(&mut rest, frame, hidden).ok())
    }

    pub(super) fn encode<'v>(
        out: &mut Vec<u8>,
        hidden: usize,
        rows: impl ExactSizeIterator<Item = (u32, &'v [f32])>,
    ) -> Result<()> {
        put_count(out, "rows", rows.len())?;
        for (layer, row) in rows {
            one_row(hidden, row)?;
            WireType::F32.check(row)?;
            put_u32(out, layer);
            put_count(out, "hidden", hidden)?;
            WireType::F32.put(out, hidden, row);
        }
        Ok(())
    }
}

/// What the blocks give, in the order of the request: `[n]` and n times `[layer][hidden][f32 × hidden]`.
#[derive(Debug, Clone)]
pub struct Q8kReply<'a>(LayerRows<'a>);

impl<'a> Q8kReply<'a> {
    /// Reads a reply of a model of rows of `hidden` elements.
    ///
    /// # Errors
    /// [`ErrorKind::PeerFailed`](crate::ErrorKind::PeerFailed) where it is none.
    pub fn decode(bytes: &'a [u8], hidden: usize) -> Result<Self> {
        LayerRows::decode(REPLY, bytes, hidden).map(Self)
    }

    /// How many rows.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    /// Each layer and its row.
    pub fn rows(&self) -> impl Iterator<Item = (u32, Rows<'a>)> + use<'a> {
        self.0.rows()
    }

    /// Appends a reply.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for what the frame cannot hold.
    pub fn encode<'v>(
        out: &mut Vec<u8>,
        hidden: usize,
        rows: impl ExactSizeIterator<Item = (u32, &'v [f32])>,
    ) -> Result<()> {
        LayerRows::encode(out, hidden, rows)
    }
}
