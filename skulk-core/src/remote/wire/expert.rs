//! How do rows cross that each go through one expert, and what it makes of them?
//!
//! In requests of LARQL rows are as they are in front of the experts' norm, which the server applies.

use super::bytes::{Reader, put_count, put_f32, put_u32};
use super::values::{Rows, WireType, one_row};
use crate::error::Result;

const REQUEST: &str = "expert/batch request";
const REPLY: &str = "expert/batch reply";

/// A row of an expert of a layer.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::exhaustive_structs)]
pub struct ExpertRow<V> {
    /// The layer.
    pub layer: u32,
    /// The expert, by its index in the layer.
    pub expert: u32,
    /// The row: as [`Rows`] where it was decoded, as `&[f32]` for encoding.
    pub values: V,
}

/// The same records in both directions, which have a row each.
#[derive(Debug, Clone)]
struct Records<'a> {
    frame: &'static str,
    hidden: usize,
    len: usize,
    rest: Reader<'a>,
}

fn record<'a>(reader: &mut Reader<'a>, frame: &'static str, hidden: usize) -> Result<ExpertRow<Rows<'a>>> {
    let (layer, expert) = (reader.u32("layer")?, reader.u32("expert_id")?);
    let values = Rows::read(reader, frame, "values", WireType::F32, 1, hidden)?;
    Ok(ExpertRow { layer, expert, values })
}

impl<'a> Records<'a> {
    fn read(reader: &mut Reader<'a>, frame: &'static str, len: usize, hidden: usize) -> Result<Self> {
        let records = Self { frame, hidden, len, rest: reader.clone() };
        for _ in 0..len {
            record(reader, frame, hidden)?;
        }
        reader.end()?;
        Ok(records)
    }

    fn iter(&self) -> impl Iterator<Item = ExpertRow<Rows<'a>>> + use<'a> {
        let Self { frame, hidden, len, mut rest } = self.clone();
        // They were read before.
        (0..len).map_while(move |_| record(&mut rest, frame, hidden).ok())
    }
}

fn put_records<'v>(
    out: &mut Vec<u8>,
    hidden: usize,
    rows: impl Iterator<Item = ExpertRow<&'v [f32]>>,
) -> Result<()> {
    for row in rows {
        one_row(hidden, row.values)?;
        WireType::F32.check(row.values)?;
        put_u32(out, row.layer);
        put_u32(out, row.expert);
        WireType::F32.put(out, hidden, row.values);
    }
    Ok(())
}

/// Rows for experts: `[n][hidden]` and n times `[layer][expert][f32 × hidden]`.
#[derive(Debug, Clone)]
pub struct ExpertRequest<'a>(Records<'a>);

impl<'a> ExpertRequest<'a> {
    /// Reads a request for a model of rows of `hidden` elements.
    ///
    /// # Errors
    /// [`ErrorKind::PeerFailed`](crate::ErrorKind::PeerFailed) where it is none.
    pub fn decode(bytes: &'a [u8], hidden: usize) -> Result<Self> {
        let mut reader = Reader::new(REQUEST, bytes);
        let len = reader.count("num_items")?;
        reader.hidden(hidden)?;
        Records::read(&mut reader, REQUEST, len, hidden).map(Self)
    }

    /// How many rows.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether there are none, which is never so.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Each row.
    pub fn rows(&self) -> impl Iterator<Item = ExpertRow<Rows<'a>>> + use<'a> {
        self.0.iter()
    }

    /// Appends a request.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for what the frame cannot hold.
    pub fn encode<'v>(
        out: &mut Vec<u8>,
        hidden: usize,
        rows: impl ExactSizeIterator<Item = ExpertRow<&'v [f32]>>,
    ) -> Result<()> {
        put_count(out, "rows", rows.len())?;
        put_count(out, "hidden", hidden)?;
        put_records(out, hidden, rows)
    }
}

/// What experts make of rows, in the order of the request: `[n][hidden][latency]` and n times
/// `[layer][expert][f32 × hidden]`.
#[derive(Debug, Clone)]
pub struct ExpertReply<'a> {
    latency_ms: f32,
    records: Records<'a>,
}

impl<'a> ExpertReply<'a> {
    /// Reads a reply of a model of rows of `hidden` elements.
    ///
    /// # Errors
    /// [`ErrorKind::PeerFailed`](crate::ErrorKind::PeerFailed) where it is none.
    pub fn decode(bytes: &'a [u8], hidden: usize) -> Result<Self> {
        let mut reader = Reader::new(REPLY, bytes);
        let len = reader.u32("num_items")? as usize;
        reader.hidden(hidden)?;
        let latency_ms = reader.f32("latency_ms")?;
        Ok(Self { latency_ms, records: Records::read(&mut reader, REPLY, len, hidden)? })
    }

    /// Milliseconds that the server computed.
    pub fn latency_ms(&self) -> f32 {
        self.latency_ms
    }

    /// How many rows.
    pub fn len(&self) -> usize {
        self.records.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.records.len == 0
    }

    /// Each row.
    pub fn rows(&self) -> impl Iterator<Item = ExpertRow<Rows<'a>>> + use<'a> {
        self.records.iter()
    }

    /// Appends a reply.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for what the frame cannot hold.
    pub fn encode<'v>(
        out: &mut Vec<u8>,
        latency_ms: f32,
        hidden: usize,
        rows: impl ExactSizeIterator<Item = ExpertRow<&'v [f32]>>,
    ) -> Result<()> {
        put_count(out, "rows", rows.len())?;
        put_count(out, "hidden", hidden)?;
        put_f32(out, latency_ms);
        put_records(out, hidden, rows)
    }
}
