//! How does a row cross that goes through experts of one layer, and what they make of it, weighted and summed?
//!
//! The row and the sum are in f32 or f16, as the route says; weights are in f32 in both.

use super::bytes::{Reader, put_count, put_f32, put_u32};
use super::values::{Rows, WireType, one_row};
use crate::error::Result;

const REQUEST: &str = "experts/layer-batch request";
const REPLY: &str = "experts/layer-batch reply";

/// An expert, and the weight with which a row takes it.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(clippy::exhaustive_structs)]
pub struct Weighted {
    /// The expert, by its index in the layer.
    pub expert: u32,
    /// The weight.
    pub weight: f32,
}

fn weighted(reader: &mut Reader<'_>) -> Result<Weighted> {
    Ok(Weighted { expert: reader.u32("expert_id")?, weight: reader.f32("weight")? })
}

/// A row for experts of a layer: `[layer][hidden][k][values]` and k times `[expert][weight]`.
#[derive(Debug, Clone)]
pub struct LayerRequest<'a> {
    layer: u32,
    row: Rows<'a>,
    len: usize,
    rest: Reader<'a>,
}

impl<'a> LayerRequest<'a> {
    /// Reads a request with a row in this type, for a model of rows of `hidden` elements.
    ///
    /// # Errors
    /// [`ErrorKind::PeerFailed`](crate::ErrorKind::PeerFailed) where it is none.
    pub fn decode(bytes: &'a [u8], wire: WireType, hidden: usize) -> Result<Self> {
        let mut reader = Reader::new(REQUEST, bytes);
        let layer = reader.u32("layer")?;
        reader.hidden(hidden)?;
        let len = reader.count("num_experts")?;
        let row = Rows::read(&mut reader, REQUEST, "residual", wire, 1, hidden)?;
        let rest = reader.clone();
        for _ in 0..len {
            weighted(&mut reader)?;
        }
        reader.end()?;
        Ok(Self { layer, row, len, rest })
    }

    /// The layer.
    pub fn layer(&self) -> u32 {
        self.layer
    }

    /// The row.
    pub fn row(&self) -> Rows<'a> {
        self.row
    }

    /// The experts, in the order in which they are summed.
    pub fn experts(&self) -> impl Iterator<Item = Weighted> + use<'a> {
        let mut rest = self.rest.clone();
        // They were read before.
        (0..self.len).map_while(move |_| weighted(&mut rest).ok())
    }

    /// Appends a request with the row in this type.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for what the frame cannot hold, in this type.
    pub fn encode(
        out: &mut Vec<u8>,
        wire: WireType,
        layer: u32,
        row: &[f32],
        experts: impl ExactSizeIterator<Item = Weighted>,
    ) -> Result<()> {
        one_row(row.len(), row)?;
        wire.check(row)?;
        put_u32(out, layer);
        put_count(out, "hidden", row.len())?;
        put_count(out, "experts", experts.len())?;
        wire.put(out, row.len(), row);
        for Weighted { expert, weight } in experts {
            put_u32(out, expert);
            put_f32(out, weight);
        }
        Ok(())
    }
}

/// The weighted sum: `[hidden][latency][values]`.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct LayerReply<'a> {
    /// Milliseconds that the server computed.
    pub latency_ms: f32,
    /// One row.
    pub row: Rows<'a>,
}

impl<'a> LayerReply<'a> {
    /// Reads a reply in this type, of a model of rows of `hidden` elements.
    ///
    /// # Errors
    /// [`ErrorKind::PeerFailed`](crate::ErrorKind::PeerFailed) where it is none.
    pub fn decode(bytes: &'a [u8], wire: WireType, hidden: usize) -> Result<Self> {
        let mut reader = Reader::new(REPLY, bytes);
        reader.hidden(hidden)?;
        let latency_ms = reader.f32("latency_ms")?;
        let row = Rows::read(&mut reader, REPLY, "output", wire, 1, hidden)?;
        reader.end()?;
        Ok(Self { latency_ms, row })
    }

    /// Appends a reply in this type.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for what the frame cannot hold, in this type.
    pub fn encode(out: &mut Vec<u8>, wire: WireType, latency_ms: f32, row: &[f32]) -> Result<()> {
        one_row(row.len(), row)?;
        wire.check(row)?;
        put_count(out, "hidden", row.len())?;
        put_f32(out, latency_ms);
        wire.put(out, row.len(), row);
        Ok(())
    }
}
