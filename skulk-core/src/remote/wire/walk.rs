//! How do rows cross that go through the dense blocks of layers, and what these give for them?
//!
//! A request has rows behind the block's norm, all for the same layers. Replies are in the type that the request's
//! `Accept` asks for.

use super::bytes::{BATCH, Reader, Words, put_count, put_each, put_f32, put_u32, unfit};
use super::values::{Rows, WireType, rows_of};
use crate::error::Result;

const REQUEST: &str = "walk-ffn request";
const REPLY: &str = "walk-ffn reply";

/// Set where the block's output is wanted, and not its features alone, which have no binary frame.
const FULL_OUTPUT: u32 = 1;

/// Which layers rows go through.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum WalkLayers<'a> {
    /// One of them.
    One(u32),
    /// Each of these, which each get the same rows; as a batch, also of one.
    Batch(&'a [u32]),
}

/// Rows for the dense blocks of layers: `[layer][seq_len][flags][top_k][f32 …]`, or
/// `[0xFFFFFFFF][n][layer × n][seq_len][flags][top_k][f32 …]`.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct WalkRequest<'a> {
    /// Whether it has a batch's form.
    pub batch: bool,
    /// The layers.
    pub layers: Words<'a>,
    /// How many features a row may take. What it does is the server's: those of LARQL take all.
    pub top_k: u32,
    /// `[seq_len, hidden]`.
    pub rows: Rows<'a>,
}

impl<'a> WalkRequest<'a> {
    /// As clients of LARQL send it.
    pub const TOP_K: u32 = 8092;

    /// Reads a request for a model of rows of `hidden` elements.
    ///
    /// # Errors
    /// [`ErrorKind::PeerFailed`](crate::ErrorKind::PeerFailed) where it is none.
    pub fn decode(bytes: &'a [u8], hidden: usize) -> Result<Self> {
        let mut reader = Reader::new(REQUEST, bytes);
        let single = reader.clone().words("layer", 1)?;
        let batch = reader.u32("layer")? == BATCH;
        let layers = if batch {
            let count = reader.count("num_layers")?;
            reader.words("layers", count)?
        } else {
            single
        };
        let seq_len = reader.count("seq_len")?;
        let flags = reader.u32("flags")?;
        if flags != FULL_OUTPUT {
            return Err(reader.invalid("flags", format!("{FULL_OUTPUT}, the full output"), flags));
        }
        let top_k = reader.u32("top_k")?;
        let rows = Rows::read(&mut reader, REQUEST, "residual", WireType::F32, seq_len, hidden)?;
        reader.end()?;
        Ok(Self { batch, layers, top_k, rows })
    }

    /// Appends a request of rows `[rows, hidden]`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for what the frame cannot hold.
    pub fn encode(
        out: &mut Vec<u8>,
        layers: WalkLayers<'_>,
        top_k: u32,
        hidden: usize,
        values: &[f32],
    ) -> Result<()> {
        let rows = rows_of(hidden, values)?;
        match layers {
            WalkLayers::One(BATCH) => return Err(unfit("layer", "an index of a layer", BATCH)),
            WalkLayers::One(layer) => put_u32(out, layer),
            WalkLayers::Batch([]) => return Err(unfit("layers", "a layer or more", 0)),
            WalkLayers::Batch(layers) => {
                put_u32(out, BATCH);
                put_count(out, "layers", layers.len())?;
                put_each(out, layers, u32::to_le_bytes);
            }
        }
        put_count(out, "rows", rows)?;
        put_u32(out, FULL_OUTPUT);
        put_u32(out, top_k);
        WireType::F32.put(out, hidden, values);
        Ok(())
    }
}

/// What the blocks give: of one layer `[layer][seq_len][latency][values]`, else
/// `[0xFFFFFFFF][n][latency]` and n times `[layer][seq_len][num_values][values]`.
#[derive(Debug, Clone)]
pub struct WalkReply<'a> {
    len: usize,
    latency_ms: f32,
    wire: WireType,
    hidden: usize,
    body: Body<'a>,
}

#[derive(Debug, Clone)]
enum Body<'a> {
    One(u32, Rows<'a>),
    Batch(Reader<'a>),
}

/// A layer's entry in a batch.
fn entry<'a>(reader: &mut Reader<'a>, wire: WireType, hidden: usize) -> Result<(u32, Rows<'a>)> {
    let layer = reader.u32("layer")?;
    let rows = reader.count("seq_len")?;
    let values = reader.u32("num_values")? as usize;
    if rows.checked_mul(hidden) != Some(values) {
        return Err(reader.invalid("num_values", format!("{rows} rows of {hidden}"), values));
    }
    Ok((layer, Rows::read(reader, REPLY, "output", wire, rows, hidden)?))
}

impl<'a> WalkReply<'a> {
    /// Reads a reply of values in this type.
    ///
    /// # Errors
    /// [`ErrorKind::PeerFailed`](crate::ErrorKind::PeerFailed) where it is none.
    pub fn decode(bytes: &'a [u8], wire: WireType, hidden: usize) -> Result<Self> {
        let mut reader = Reader::new(REPLY, bytes);
        let layer = reader.u32("layer")?;
        if layer != BATCH {
            let rows = reader.count("seq_len")?;
            let latency_ms = reader.f32("latency_ms")?;
            let rows = Rows::read(&mut reader, REPLY, "output", wire, rows, hidden)?;
            reader.end()?;
            return Ok(Self { len: 1, latency_ms, wire, hidden, body: Body::One(layer, rows) });
        }
        let len = reader.u32("num_entries")? as usize;
        let latency_ms = reader.f32("latency_ms")?;
        let body = Body::Batch(reader.clone());
        for _ in 0..len {
            entry(&mut reader, wire, hidden)?;
        }
        reader.end()?;
        Ok(Self { len, latency_ms, wire, hidden, body })
    }

    /// Milliseconds that the server computed.
    pub fn latency_ms(&self) -> f32 {
        self.latency_ms
    }

    /// How many layers it is of.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it is of no layer.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Each layer, and `[seq_len, hidden]` of it.
    pub fn entries(&self) -> impl Iterator<Item = (u32, Rows<'a>)> + use<'a> {
        let (mut one, mut batch) = match &self.body {
            Body::One(layer, rows) => (Some((*layer, *rows)), None),
            Body::Batch(reader) => (None, Some(reader.clone())),
        };
        let (len, wire, hidden) = (self.len, self.wire, self.hidden);
        // They were read before, when the reply was.
        (0..len).map_while(move |_| {
            one.take().or_else(|| batch.as_mut().and_then(|reader| entry(reader, wire, hidden).ok()))
        })
    }

    /// Appends a reply of these layers' rows.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for what the frame cannot hold, in this type.
    pub fn encode<'v>(
        out: &mut Vec<u8>,
        wire: WireType,
        latency_ms: f32,
        hidden: usize,
        entries: impl ExactSizeIterator<Item = (u32, &'v [f32])>,
    ) -> Result<()> {
        let len = entries.len();
        if len != 1 {
            put_u32(out, BATCH);
            put_count(out, "entries", len)?;
            put_f32(out, latency_ms);
        }
        for (layer, values) in entries {
            let rows = rows_of(hidden, values)?;
            wire.check(values)?;
            put_u32(out, layer);
            put_count(out, "rows", rows)?;
            if len == 1 {
                put_f32(out, latency_ms);
            } else {
                put_count(out, "values", values.len())?;
            }
            wire.put(out, hidden, values);
        }
        Ok(())
    }
}
