//! How do rows cross to and from LARQL's gRPC service `larql.expert.v1.ExpertService`? As messages of Protocol Buffers, each
//! behind a prefix of five bytes.
//!
//! Rows are as they are in front of the experts' norm, which the server applies, as in the other frames of experts. All
//! values are in f32. A message is decoded where it was received; what a later version adds to it is passed over.

use prost::encoding::{self, DecodeContext, WireType as Tag};

use super::bytes::{Reader, invalid, put_f32, unfit};
use super::expert::ExpertRow;
use super::layer::Weighted;
use super::values::{Rows, WireType, one_row};
use crate::error::{Error, Result};

/// The path of rows that each go through one expert: a [`BatchRequest`], answered by a [`BatchReply`].
pub const BATCH: &str = "/larql.expert.v1.ExpertService/ExpertBatch";

/// The path of rows through weighted experts: any number of [`LayerInput`], each answered by a [`LayerOutput`].
pub const STREAM: &str = "/larql.expert.v1.ExpertService/ExpertStream";

/// Content type of requests and replies.
pub const CONTENT_TYPE: &str = "application/grpc";

/// Bytes in front of a message: 0 where it is not compressed, and its length.
const PREFIX: usize = 5;

/// Splits off the first message of `bytes`: it, and what follows; `None` where it is not whole yet.
///
/// # Errors
/// [`ErrorKind::PeerFailed`](crate::ErrorKind::PeerFailed) for one that is compressed, which nobody was offered, and for
/// one of more than `most` bytes.
pub fn split(bytes: &[u8], most: usize) -> Result<Option<(&[u8], &[u8])>> {
    const FRAME: &str = "gRPC message";
    let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX>() else { return Ok(None) };
    let [compressed, length @ ..] = *prefix;
    if compressed != 0 {
        return Err(invalid(FRAME, "compressed", "0, as no compression was offered", compressed));
    }
    let length = u32::from_be_bytes(length) as usize;
    if length > most {
        return Err(invalid(FRAME, "length", format!("up to {most} bytes"), format!("{length} bytes")));
    }
    Ok(rest.split_at_checked(length))
}

/// Appends a message that `write` appends, and its prefix.
fn put_message(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<()> {
    let start = out.len();
    out.extend_from_slice(&[0; PREFIX]);
    write(out)?;
    let length = out.len() - start - PREFIX;
    let length = u32::try_from(length)
        .map_err(|_| unfit("rows", format!("a message of up to {} bytes", u32::MAX), length))?;
    out[start + 1..start + PREFIX].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

/// A field's value.
#[derive(Clone, Copy)]
enum Value<'a> {
    Varint(u64),
    Fixed32([u8; 4]),
    Bytes(&'a [u8]),
}

/// The fields of a message, in the order in which they are there.
#[derive(Debug, Clone)]
struct Fields<'a> {
    frame: &'static str,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn next_of(&mut self) -> Result<Option<(u32, Value<'a>)>> {
        let frame = self.frame;
        let damaged =
            |e: prost::DecodeError| invalid(frame, "field", "Protocol Buffers", "other bytes").with_source(e);
        let cut_off = || invalid(frame, "field", "all of a field's bytes", "fewer");
        while !self.rest.is_empty() {
            let rest = &mut self.rest;
            let (field, tag) = encoding::decode_key(rest).map_err(damaged)?;
            let value = match tag {
                Tag::Varint => Value::Varint(encoding::decode_varint(rest).map_err(damaged)?),
                Tag::ThirtyTwoBit => {
                    let (bytes, behind) = rest.split_first_chunk().ok_or_else(cut_off)?;
                    *rest = behind;
                    Value::Fixed32(*bytes)
                }
                Tag::LengthDelimited => {
                    let length = encoding::decode_varint(rest).map_err(damaged)?;
                    let split = usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length));
                    let (bytes, behind) = split.ok_or_else(cut_off)?;
                    *rest = behind;
                    Value::Bytes(bytes)
                }
                _ => {
                    encoding::skip_field(tag, field, rest, DecodeContext::default()).map_err(damaged)?;
                    continue;
                }
            };
            return Ok(Some((field, value)));
        }
        Ok(None)
    }

    fn invalid(&self, field: &'static str, expected: &str) -> Error {
        invalid(self.frame, field, expected, "another type")
    }

    fn u32(&self, field: &'static str, value: Value<'_>) -> Result<u32> {
        match value {
            Value::Varint(number) => {
                u32::try_from(number).map_err(|_| invalid(self.frame, field, "a number of 32 bits", number))
            }
            _ => Err(self.invalid(field, "a whole number")),
        }
    }

    fn f32(&self, field: &'static str, value: Value<'_>) -> Result<f32> {
        let Value::Fixed32(bytes) = value else { return Err(self.invalid(field, "a number of 32 bits")) };
        match f32::from_le_bytes(bytes) {
            number if number.is_finite() => Ok(number),
            number => Err(invalid(self.frame, field, "a finite number", number)),
        }
    }

    fn bytes(&self, field: &'static str, value: Value<'a>) -> Result<&'a [u8]> {
        match value {
            Value::Bytes(bytes) => Ok(bytes),
            _ => Err(self.invalid(field, "bytes")),
        }
    }

    /// Bytes that are a row of `hidden` numbers.
    fn row(&self, field: &'static str, bytes: &'a [u8], hidden: usize) -> Result<Rows<'a>> {
        let mut reader = Reader::new(self.frame, bytes);
        let row = Rows::read(&mut reader, self.frame, field, WireType::F32, 1, hidden)?;
        match reader.end() {
            Ok(()) => Ok(row),
            Err(_) => {
                Err(invalid(self.frame, field, format!("{hidden} numbers"), format!("{} bytes", bytes.len())))
            }
        }
    }
}

/// Numbers of a field that comes once for each, or with many of them together.
struct Numbers<'a> {
    fields: Fields<'a>,
    field: u32,
    name: &'static str,
    packed: &'a [u8],
}

impl<'a> Numbers<'a> {
    fn new(fields: Fields<'a>, field: u32, name: &'static str) -> Self {
        Self { fields, field, name, packed: &[] }
    }

    /// The next value, of those that lie together by `unpack`.
    fn next_of(
        &mut self,
        unpack: impl Fn(&Fields<'a>, &mut &'a [u8]) -> Result<Value<'a>>,
    ) -> Result<Option<Value<'a>>> {
        loop {
            if !self.packed.is_empty() {
                return unpack(&self.fields, &mut self.packed).map(Some);
            }
            match self.fields.next_of()? {
                None => return Ok(None),
                Some((field, Value::Bytes(packed))) if field == self.field => self.packed = packed,
                Some((field, value)) if field == self.field => return Ok(Some(value)),
                Some(_) => {}
            }
        }
    }

    fn u32(&mut self) -> Result<Option<u32>> {
        let name = self.name;
        let value = self.next_of(|fields, packed| {
            let number = encoding::decode_varint(packed);
            let number = number.map_err(|e| fields.invalid(name, "whole numbers").with_source(e))?;
            Ok(Value::Varint(number))
        })?;
        value.map(|value| self.fields.u32(name, value)).transpose()
    }

    fn f32(&mut self) -> Result<Option<f32>> {
        let name = self.name;
        let value = self.next_of(|fields, packed| {
            let (number, behind) =
                packed.split_first_chunk().ok_or_else(|| fields.invalid(name, "numbers of 32 bits"))?;
            *packed = behind;
            Ok(Value::Fixed32(*number))
        })?;
        value.map(|value| self.fields.f32(name, value)).transpose()
    }
}

fn put_number(out: &mut Vec<u8>, field: u32, number: u32) {
    // What is 0 is left out.
    if number != 0 {
        encoding::encode_key(field, Tag::Varint, out);
        encoding::encode_varint(number.into(), out);
    }
}

fn put_float(out: &mut Vec<u8>, field: u32, number: f32) {
    if number.to_bits() != 0 {
        encoding::encode_key(field, Tag::ThirtyTwoBit, out);
        put_f32(out, number);
    }
}

fn put_length(out: &mut Vec<u8>, field: u32, bytes: usize) {
    encoding::encode_key(field, Tag::LengthDelimited, out);
    encoding::encode_varint(bytes as u64, out);
}

fn put_row(out: &mut Vec<u8>, field: u32, hidden: usize, row: &[f32]) -> Result<()> {
    one_row(hidden, row)?;
    WireType::F32.check(row)?;
    put_length(out, field, row.len() * 4);
    WireType::F32.put(out, hidden, row);
    Ok(())
}

/// The same records in both directions, which have a row each.
#[derive(Debug, Clone)]
struct Records<'a> {
    fields: Fields<'a>,
    hidden: usize,
    len: usize,
}

impl<'a> Records<'a> {
    fn read(fields: Fields<'a>, hidden: usize) -> Result<Self> {
        let mut records = Self { fields, hidden, len: 0 };
        let mut fields = records.fields.clone();
        while let Some((field, value)) = fields.next_of()? {
            if field == 1 {
                records.record(value)?;
                records.len += 1;
            }
        }
        Ok(records)
    }

    fn record(&self, value: Value<'a>) -> Result<ExpertRow<Rows<'a>>> {
        let frame = self.fields.frame;
        let mut fields = Fields { frame, rest: self.fields.bytes("items", value)? };
        let (mut layer, mut expert, mut row) = (0, 0, &[][..]);
        while let Some((field, value)) = fields.next_of()? {
            match field {
                1 => layer = fields.u32("layer", value)?,
                2 => expert = fields.u32("expert_id", value)?,
                3 => row = fields.bytes("values", value)?,
                _ => {}
            }
        }
        Ok(ExpertRow { layer, expert, values: fields.row("values", row, self.hidden)? })
    }

    fn iter(&self) -> impl Iterator<Item = ExpertRow<Rows<'a>>> + use<'a> {
        let records = self.clone();
        let mut fields = self.fields.clone();
        // They were read before.
        std::iter::from_fn(move || {
            while let Ok(Some((field, value))) = fields.next_of() {
                if field == 1 {
                    return records.record(value).ok();
                }
            }
            None
        })
    }
}

fn put_records<'v>(
    out: &mut Vec<u8>,
    hidden: usize,
    rows: impl Iterator<Item = ExpertRow<&'v [f32]>>,
) -> Result<()> {
    let mut record = Vec::new();
    for row in rows {
        record.clear();
        put_number(&mut record, 1, row.layer);
        put_number(&mut record, 2, row.expert);
        put_row(&mut record, 3, hidden, row.values)?;
        put_length(out, 1, record.len());
        out.extend_from_slice(&record);
    }
    Ok(())
}

/// Rows that each go through one expert.
#[derive(Debug, Clone)]
pub struct BatchRequest<'a>(Records<'a>);

impl<'a> BatchRequest<'a> {
    /// Reads a message for a model of rows of `hidden` elements.
    ///
    /// # Errors
    /// [`ErrorKind::PeerFailed`](crate::ErrorKind::PeerFailed) where it is none.
    pub fn decode(message: &'a [u8], hidden: usize) -> Result<Self> {
        const FRAME: &str = "ExpertBatchRequest";
        let records = Records::read(Fields { frame: FRAME, rest: message }, hidden)?;
        match records.len {
            0 => Err(invalid(FRAME, "items", "1 or more", 0)),
            _ => Ok(Self(records)),
        }
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

    /// Appends a message and its prefix.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for what it cannot hold.
    pub fn encode<'v>(
        out: &mut Vec<u8>,
        hidden: usize,
        rows: impl Iterator<Item = ExpertRow<&'v [f32]>>,
    ) -> Result<()> {
        put_message(out, |out| put_records(out, hidden, rows))
    }
}

/// What experts make of rows, in the order of the request.
#[derive(Debug, Clone)]
pub struct BatchReply<'a> {
    latency_ms: f32,
    records: Records<'a>,
}

impl<'a> BatchReply<'a> {
    /// Reads a message of a model of rows of `hidden` elements.
    ///
    /// # Errors
    /// [`ErrorKind::PeerFailed`](crate::ErrorKind::PeerFailed) where it is none.
    pub fn decode(message: &'a [u8], hidden: usize) -> Result<Self> {
        let mut fields = Fields { frame: "ExpertBatchResponse", rest: message };
        let records = Records::read(fields.clone(), hidden)?;
        let mut latency_ms = 0.0;
        while let Some((field, value)) = fields.next_of()? {
            if field == 2 {
                latency_ms = fields.f32("latency_ms", value)?;
            }
        }
        Ok(Self { latency_ms, records })
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

    /// Appends a message and its prefix.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for what it cannot hold.
    pub fn encode<'v>(
        out: &mut Vec<u8>,
        latency_ms: f32,
        hidden: usize,
        rows: impl Iterator<Item = ExpertRow<&'v [f32]>>,
    ) -> Result<()> {
        put_message(out, |out| {
            put_records(out, hidden, rows)?;
            put_float(out, 2, latency_ms);
            Ok(())
        })
    }
}

/// What norms a sum of experts before it goes back: `sum / sqrt(mean(sum²) + eps) · (weight + offset)`.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct SumNorm<'a> {
    /// A row of weights.
    pub weight: Rows<'a>,
    /// Added to each of them.
    pub offset: f32,
    /// Keeps the root above zero.
    pub eps: f32,
}

/// A row for experts of a layer.
#[derive(Debug, Clone)]
pub struct LayerInput<'a> {
    layer: u32,
    row: Rows<'a>,
    len: usize,
    norm: Option<SumNorm<'a>>,
    fields: Fields<'a>,
}

impl<'a> LayerInput<'a> {
    /// Reads a message for a model of rows of `hidden` elements.
    ///
    /// # Errors
    /// [`ErrorKind::PeerFailed`](crate::ErrorKind::PeerFailed) where it is none.
    pub fn decode(message: &'a [u8], hidden: usize) -> Result<Self> {
        const FRAME: &str = "ExpertLayerInput";
        let whole = Fields { frame: FRAME, rest: message };
        let mut fields = whole.clone();
        let (mut layer, mut row, mut norm, mut offset, mut eps) = (0, &[][..], &[][..], 0.0, 0.0);
        while let Some((field, value)) = fields.next_of()? {
            match field {
                1 => layer = fields.u32("layer", value)?,
                4 => row = fields.bytes("residual", value)?,
                5 => norm = fields.bytes("post_experts_norm", value)?,
                6 => offset = fields.f32("norm_offset", value)?,
                7 => eps = fields.f32("eps", value)?,
                _ => {}
            }
        }
        let row = fields.row("residual", row, hidden)?;
        let norm = match norm {
            [] => None,
            weight => {
                if eps < 0.0 {
                    return Err(invalid(FRAME, "eps", "0 or more", eps));
                }
                Some(SumNorm { weight: fields.row("post_experts_norm", weight, hidden)?, offset, eps })
            }
        };
        let (mut experts, mut weights) = numbers(&whole);
        let mut len = 0;
        loop {
            match (experts.u32()?, weights.f32()?) {
                (Some(_), Some(_)) => len += 1,
                (None, None) => break,
                (found, _) => {
                    let found = if found.is_some() { "fewer" } else { "more" };
                    return Err(invalid(FRAME, "expert_weights", "as many as experts", found));
                }
            }
        }
        match len {
            0 => Err(invalid(FRAME, "expert_ids", "1 or more", 0)),
            len => Ok(Self { layer, row, len, norm, fields: whole }),
        }
    }

    /// The layer.
    pub fn layer(&self) -> u32 {
        self.layer
    }

    /// The row.
    pub fn row(&self) -> Rows<'a> {
        self.row
    }

    /// How the sum is normed, where it is.
    pub fn norm(&self) -> Option<SumNorm<'a>> {
        self.norm
    }

    /// How many experts it goes through.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it goes through none, which is never so.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The experts, with their weights.
    pub fn experts(&self) -> impl Iterator<Item = Weighted> + use<'a> {
        let (mut experts, mut weights) = numbers(&self.fields);
        // They were read before.
        std::iter::from_fn(move || {
            Some(Weighted { expert: experts.u32().ok()??, weight: weights.f32().ok()?? })
        })
    }

    /// Appends a message and its prefix; the sum is not normed.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for what it cannot hold.
    pub fn encode(
        out: &mut Vec<u8>,
        layer: u32,
        row: &[f32],
        experts: impl ExactSizeIterator<Item = Weighted> + Clone,
    ) -> Result<()> {
        put_message(out, |out| {
            put_number(out, 1, layer);
            let length = experts.clone().map(|it| encoding::encoded_len_varint(it.expert.into())).sum();
            put_length(out, 2, length);
            experts.clone().for_each(|it| encoding::encode_varint(it.expert.into(), out));
            put_length(out, 3, experts.len() * 4);
            for Weighted { weight, .. } in experts {
                WireType::F32.check(&[weight])?;
                put_f32(out, weight);
            }
            put_row(out, 4, row.len(), row)
        })
    }
}

fn numbers<'a>(fields: &Fields<'a>) -> (Numbers<'a>, Numbers<'a>) {
    let numbers = |field, name| Numbers::new(fields.clone(), field, name);
    (numbers(2, "expert_ids"), numbers(3, "expert_weights"))
}

/// What weighted experts make of a row, added up.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct LayerOutput<'a> {
    /// The layer.
    pub layer: u32,
    /// The sum.
    pub row: Rows<'a>,
    /// Milliseconds that the server computed.
    pub compute_ms: f32,
}

impl<'a> LayerOutput<'a> {
    /// Reads a message of a model of rows of `hidden` elements.
    ///
    /// # Errors
    /// [`ErrorKind::PeerFailed`](crate::ErrorKind::PeerFailed) where it is none.
    pub fn decode(message: &'a [u8], hidden: usize) -> Result<Self> {
        let mut fields = Fields { frame: "ExpertLayerOutput", rest: message };
        let (mut layer, mut row, mut compute_ms) = (0, &[][..], 0.0);
        while let Some((field, value)) = fields.next_of()? {
            match field {
                1 => layer = fields.u32("layer", value)?,
                2 => row = fields.bytes("h2", value)?,
                3 => compute_ms = fields.f32("compute_ms", value)?,
                _ => {}
            }
        }
        Ok(Self { layer, row: fields.row("h2", row, hidden)?, compute_ms })
    }

    /// Appends a message and its prefix.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for what it cannot hold.
    pub fn encode(out: &mut Vec<u8>, layer: u32, row: &[f32], compute_ms: f32) -> Result<()> {
        put_message(out, |out| {
            put_number(out, 1, layer);
            put_row(out, 2, row.len(), row)?;
            put_float(out, 3, compute_ms);
            Ok(())
        })
    }
}
