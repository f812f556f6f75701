//! How do rows of numbers look in a frame? In f32, f16, or as integers with a scale for each row.

use half::f16;
use half::slice::HalfFloatSliceExt;

use super::bytes::{Reader, invalid, put_each, put_f32, unfit};
use super::content;
use crate::error::Result;
use crate::macros::closed_set;

closed_set! {
    /// How values of replies cross.
    pub enum WireType {
        /// As they are: four bytes each.
        F32 = "f32",
        /// Rounded to half precision, to the nearest and then to the even: two bytes each.
        F16 = "f16",
        /// Integers from -127 to 127, with a scale for each row: a byte each, and eight for each row.
        I8 = "i8",
    }
}

/// Converted at once.
const CHUNK: usize = 64;

impl WireType {
    /// The content type of replies to [`WalkRequest`](super::WalkRequest).
    pub const fn content_type(self) -> &'static str {
        match self {
            WireType::F32 => content::FFN,
            WireType::F16 => content::FFN_F16,
            WireType::I8 => content::FFN_I8,
        }
    }

    /// Whether these values stay finite in it.
    pub fn holds(self, values: &[f32]) -> bool {
        // What lies halfway to the next power rounds to infinity.
        const MOST: f32 = 65520.0;
        match self {
            WireType::F32 | WireType::I8 => values.iter().all(|value| value.is_finite()),
            WireType::F16 => values.iter().all(|value| value.abs() < MOST),
        }
    }

    /// `Ok` for values that it [holds](Self::holds).
    pub(super) fn check(self, values: &[f32]) -> Result<()> {
        if self.holds(values) {
            return Ok(());
        }
        Err(unfit("values", format!("numbers that are finite in {self}"), "others"))
    }

    /// Bytes of a row, where they can be counted.
    fn row_bytes(self, hidden: usize) -> Option<usize> {
        match self {
            WireType::F32 => hidden.checked_mul(4),
            WireType::F16 => hidden.checked_mul(2),
            WireType::I8 => hidden.checked_add(8),
        }
    }

    /// Appends `[rows, hidden]`.
    pub(super) fn put(self, out: &mut Vec<u8>, hidden: usize, values: &[f32]) {
        match self {
            WireType::F32 => put_each(out, values, f32::to_le_bytes),
            WireType::F16 => {
                let mut halves = [f16::ZERO; CHUNK];
                for values in values.chunks(CHUNK) {
                    let halves = &mut halves[..values.len()];
                    halves.convert_from_f32_slice(values);
                    put_each(out, halves, f16::to_le_bytes);
                }
            }
            WireType::I8 => values.chunks(hidden.max(1)).for_each(|row| put_row(out, row)),
        }
    }
}

/// Appends a row's scale, zero point and integers.
fn put_row(out: &mut Vec<u8>, row: &[f32]) {
    let scale = scale_of(row);
    put_f32(out, scale);
    put_f32(out, 0.0);
    put_each(out, row, |value| rounded(value, scale).to_le_bytes());
}

/// What the integers of these values are multiplied by.
pub(super) fn scale_of(values: &[f32]) -> f32 {
    let scale = values.iter().fold(0f32, |most, value| most.max(value.abs())) / 127.0;
    // Of nothing but zeros, and of what is so small that the scale would be none.
    if scale > 0.0 { scale } else { 1.0 }
}

/// The integer next to a value.
pub(super) fn rounded(value: f32, scale: f32) -> i8 {
    (value / scale).round().clamp(-127.0, 127.0) as i8
}

/// `rows` of `hidden` numbers as they crossed.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    frame: &'static str,
    field: &'static str,
    wire: WireType,
    bytes: &'a [u8],
    rows: usize,
    hidden: usize,
}

impl<'a> Rows<'a> {
    pub(super) fn read(
        reader: &mut Reader<'a>,
        frame: &'static str,
        field: &'static str,
        wire: WireType,
        rows: usize,
        hidden: usize,
    ) -> Result<Self> {
        let size = wire.row_bytes(hidden);
        let size = size.ok_or_else(|| reader.invalid(field, "rows that can be counted", hidden))?;
        let bytes = reader.take(field, rows, size)?;
        // There are fewer numbers than bytes, so that they can be counted.
        Ok(Self { frame, field, wire, bytes, rows, hidden })
    }

    /// How many rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Elements of a row.
    pub fn hidden(&self) -> usize {
        self.hidden
    }

    /// All numbers: rows times elements of each.
    pub fn len(&self) -> usize {
        self.rows * self.hidden
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies them behind what `out` has.
    ///
    /// # Errors
    /// [`ErrorKind::PeerFailed`](crate::ErrorKind::PeerFailed) for numbers that are not finite; `out` is as before then.
    pub fn append_to(&self, out: &mut Vec<f32>) -> Result<()> {
        let start = out.len();
        // No more than the frame's bytes, times four.
        out.resize(start + self.len(), 0.0);
        let copied = self.copy_to(&mut out[start..]);
        if copied.is_err() {
            out.truncate(start);
        }
        copied
    }

    /// Copies them to `out`, `[rows, hidden]`.
    ///
    /// # Errors
    /// [`ErrorKind::PeerFailed`](crate::ErrorKind::PeerFailed) for numbers that are not finite, after which `out` has
    /// no meaning; [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for another length of `out`.
    pub fn copy_to(&self, out: &mut [f32]) -> Result<()> {
        if out.len() != self.len() {
            return Err(unfit("out", self.len(), out.len()));
        }
        match self.wire {
            WireType::F32 => {
                for (out, bytes) in out.iter_mut().zip(self.bytes.as_chunks().0) {
                    *out = f32::from_le_bytes(*bytes);
                }
            }
            WireType::F16 => {
                let mut halves = [f16::ZERO; CHUNK];
                for (out, bytes) in out.chunks_mut(CHUNK).zip(self.bytes.chunks(CHUNK * 2)) {
                    let halves = &mut halves[..out.len()];
                    for (half, bytes) in halves.iter_mut().zip(bytes.as_chunks().0) {
                        *half = f16::from_le_bytes(*bytes);
                    }
                    halves.convert_to_f32_slice(out);
                }
            }
            WireType::I8 => {
                let rows = self.bytes.chunks_exact(self.hidden + 8);
                for (out, bytes) in out.chunks_exact_mut(self.hidden.max(1)).zip(rows) {
                    self.copy_row(out, bytes)?;
                }
            }
        }
        match out.iter().position(|value| !value.is_finite()) {
            None => Ok(()),
            Some(at) => Err(invalid(self.frame, self.field, "finite numbers", out[at])
                .with("row", at / self.hidden.max(1))
                .with("element", at % self.hidden.max(1))),
        }
    }

    fn copy_row(&self, out: &mut [f32], bytes: &[u8]) -> Result<()> {
        let mut reader = Reader::new(self.frame, bytes);
        let scale = reader.f32("scale")?;
        let zero = reader.f32("zero")?;
        if zero != 0.0 {
            return Err(reader.invalid("zero", "0, as all are", zero));
        }
        let integers = reader.take(self.field, out.len(), 1)?;
        for (out, &byte) in out.iter_mut().zip(integers) {
            *out = f32::from(byte.cast_signed()) * scale;
        }
        Ok(())
    }
}

/// `Ok` for values of whole rows; how many.
pub(super) fn rows_of(hidden: usize, values: &[f32]) -> Result<usize> {
    match values.len().checked_div(hidden) {
        Some(rows) if rows > 0 && rows * hidden == values.len() => Ok(rows),
        _ => Err(unfit("values", format!("whole rows of {hidden}"), format!("{} numbers", values.len()))),
    }
}

/// `Ok` for values of one row.
pub(super) fn one_row(hidden: usize, values: &[f32]) -> Result<()> {
    match rows_of(hidden, values)? {
        1 => Ok(()),
        rows => Err(unfit("values", "one row", format!("{rows} rows"))),
    }
}
