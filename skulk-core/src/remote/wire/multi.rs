//! How do rows cross that go through experts of several layers, a row each, and what these make of them?

use super::bytes::{Reader, Words, put_count, put_each, put_u32, unfit};
use super::q8k::{BLOCK, Blocks, LayerRows};
use super::values::{Rows, WireType, one_row, rows_of};
use crate::error::Result;

const REQUEST: &str = "experts/multi-layer-batch request";
const REPLY: &str = "experts/multi-layer-batch reply";

/// A row for experts of a layer. Where it was decoded, `row` is [`Rows`] or [`Blocks`], experts are [`Words`] and
/// weights [`Rows`]; slices where it is encoded.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::exhaustive_structs)]
pub struct MultiTask<R, E, W> {
    /// The layer.
    pub layer: u32,
    /// The row.
    pub row: R,
    /// The experts, in the order in which they are summed.
    pub experts: E,
    /// The weight of each.
    pub weights: W,
}

type Decoded<'a, R> = MultiTask<R, Words<'a>, Rows<'a>>;

/// Rows for experts of layers: `[n]` and n times `[layer][hidden][k][row][expert × k][weight × k]`, where the row is
/// `f32 × hidden`, or [`Blocks`].
#[derive(Debug, Clone)]
pub struct MultiRequest<'a, R> {
    len: usize,
    hidden: usize,
    rest: Reader<'a>,
    row: fn(&mut Reader<'a>, usize) -> Result<R>,
}

fn floats<'a>(reader: &mut Reader<'a>, hidden: usize) -> Result<Rows<'a>> {
    Rows::read(reader, REQUEST, "residual", WireType::F32, 1, hidden)
}

fn blocks<'a>(reader: &mut Reader<'a>, hidden: usize) -> Result<Blocks<'a>> {
    if !hidden.is_multiple_of(BLOCK) {
        return Err(reader.invalid("hidden_size", format!("blocks of {BLOCK}"), hidden));
    }
    Blocks::read(reader, REQUEST, hidden / BLOCK)
}

fn task<'a, R>(
    reader: &mut Reader<'a>,
    hidden: usize,
    row: fn(&mut Reader<'a>, usize) -> Result<R>,
) -> Result<Decoded<'a, R>> {
    let layer = reader.u32("layer")?;
    reader.hidden(hidden)?;
    let k = reader.count("num_experts")?;
    let row = row(reader, hidden)?;
    let experts = reader.words("expert_ids", k)?;
    let weights = Rows::read(reader, REQUEST, "weights", WireType::F32, 1, k)?;
    Ok(MultiTask { layer, row, experts, weights })
}

impl<'a> MultiRequest<'a, Rows<'a>> {
    /// Reads a request of rows in f32, for a model of rows of `hidden` elements.
    ///
    /// # Errors
    /// [`ErrorKind::PeerFailed`](crate::ErrorKind::PeerFailed) where it is none.
    pub fn decode(bytes: &'a [u8], hidden: usize) -> Result<Self> {
        Self::read(bytes, hidden, floats)
    }

    /// Appends a request of rows in f32.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for what the frame cannot hold.
    pub fn encode<'v>(
        out: &mut Vec<u8>,
        tasks: impl ExactSizeIterator<Item = MultiTask<&'v [f32], &'v [u32], &'v [f32]>>,
    ) -> Result<()> {
        put_count(out, "tasks", tasks.len())?;
        for MultiTask { layer, row, experts, weights } in tasks {
            one_row(row.len(), row)?;
            WireType::F32.check(row)?;
            put_head(out, layer, row.len(), experts, weights)?;
            WireType::F32.put(out, row.len(), row);
            put_weighted(out, experts, weights);
        }
        Ok(())
    }
}

impl<'a> MultiRequest<'a, Blocks<'a>> {
    /// Reads a request of rows as blocks, for a model of rows of `hidden` elements.
    ///
    /// # Errors
    /// [`ErrorKind::PeerFailed`](crate::ErrorKind::PeerFailed) where it is none.
    pub fn decode_q8k(bytes: &'a [u8], hidden: usize) -> Result<Self> {
        Self::read(bytes, hidden, blocks)
    }

    /// Appends a request of rows as blocks.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for what the frame cannot hold.
    pub fn encode_q8k<'v>(
        out: &mut Vec<u8>,
        tasks: impl ExactSizeIterator<Item = MultiTask<Blocks<'v>, &'v [u32], &'v [f32]>>,
    ) -> Result<()> {
        put_count(out, "tasks", tasks.len())?;
        for MultiTask { layer, row, experts, weights } in tasks {
            put_head(out, layer, row.hidden(), experts, weights)?;
            row.put(out);
            put_weighted(out, experts, weights);
        }
        Ok(())
    }
}

fn put_head(out: &mut Vec<u8>, layer: u32, hidden: usize, experts: &[u32], weights: &[f32]) -> Result<()> {
    rows_of(1, weights)?;
    if experts.len() != weights.len() {
        return Err(unfit("weights", format!("{}, one for each expert", experts.len()), weights.len()));
    }
    WireType::F32.check(weights)?;
    put_u32(out, layer);
    put_count(out, "hidden", hidden)?;
    put_count(out, "experts", experts.len())
}

fn put_weighted(out: &mut Vec<u8>, experts: &[u32], weights: &[f32]) {
    put_each(out, experts, u32::to_le_bytes);
    put_each(out, weights, f32::to_le_bytes);
}

impl<'a, R> MultiRequest<'a, R> {
    fn read(bytes: &'a [u8], hidden: usize, row: fn(&mut Reader<'a>, usize) -> Result<R>) -> Result<Self> {
        let mut reader = Reader::new(REQUEST, bytes);
        let len = reader.count("num_tasks")?;
        let rest = reader.clone();
        for _ in 0..len {
            task(&mut reader, hidden, row)?;
        }
        reader.end()?;
        Ok(Self { len, hidden, rest, row })
    }

    /// How many rows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none, which is never so.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Each row, and its experts.
    pub fn tasks(&self) -> impl Iterator<Item = MultiTask<R, Words<'a>, Rows<'a>>> + use<'a, R> {
        let (len, hidden, mut rest, row) = (self.len, self.hidden, self.rest.clone(), self.row);
        // They were read before.
        (0..len).map_while(move |_| task(&mut rest, hidden, row).ok())
    }
}

/// The weighted sums, in the order of the request: `[n]` and n times `[layer][hidden][f32 × hidden]`.
#[derive(Debug, Clone)]
pub struct MultiReply<'a>(LayerRows<'a>);

impl<'a> MultiReply<'a> {
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
