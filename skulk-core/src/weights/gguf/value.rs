//! What can a metadata value be? Scalars, and arrays that are views into the mapped header.

use std::fmt;
use std::path::Path;

use crate::error::{Error, ErrorKind, Result};
use crate::macros::closed_set;

/// One metadata value. Integers and floats of every width share one variant each.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum GgufValue<'a> {
    /// An unsigned integer of 8 to 64 bits.
    U64(u64),
    /// A signed integer of 8 to 64 bits.
    I64(i64),
    /// A float of 32 or 64 bits; may be NaN or infinite, as in the file.
    F64(f64),
    /// A boolean.
    Bool(bool),
    /// A string.
    Str(&'a str),
    /// An array.
    Array(GgufArray<'a>),
}

impl GgufValue<'_> {
    /// What it is, in words for messages.
    pub(super) fn describe(&self) -> String {
        match self {
            GgufValue::U64(v) => format!("the unsigned integer {v}"),
            GgufValue::I64(v) => format!("the signed integer {v}"),
            GgufValue::F64(v) => format!("the float {v}"),
            GgufValue::Bool(v) => format!("the boolean {v}"),
            GgufValue::Str(_) => "a string".to_owned(),
            GgufValue::Array(a) => format!("an array of {} {} elements", a.len, a.element),
        }
    }
}

closed_set! {
    /// A value type, in the order of the format's numbers.
    pub(super) enum ValueType {
        U8 = "u8",
        I8 = "i8",
        U16 = "u16",
        I16 = "i16",
        U32 = "u32",
        I32 = "i32",
        F32 = "f32",
        Bool = "bool",
        Str = "string",
        Array = "array",
        U64 = "u64",
        I64 = "i64",
        F64 = "f64",
    }
}

impl ValueType {
    pub(super) fn from_id(id: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(id).ok()?).copied()
    }

    /// Bytes a value takes; `None` where that depends on the value.
    pub(super) fn size(self) -> Option<usize> {
        match self {
            ValueType::U8 | ValueType::I8 | ValueType::Bool => Some(1),
            ValueType::U16 | ValueType::I16 => Some(2),
            ValueType::U32 | ValueType::I32 | ValueType::F32 => Some(4),
            ValueType::U64 | ValueType::I64 | ValueType::F64 => Some(8),
            ValueType::Str | ValueType::Array => None,
        }
    }

    /// Bytes a value takes at least.
    pub(super) fn min_size(self) -> usize {
        match self {
            ValueType::Str => 8,
            ValueType::Array => 12,
            _ => self.size().unwrap_or(1),
        }
    }

    /// The number or boolean that `bytes` hold; `None` for other types or too few bytes.
    pub(super) fn scalar(self, bytes: &[u8]) -> Option<GgufValue<'static>> {
        Some(match self {
            ValueType::U8 => GgufValue::U64(u8::from_le_bytes(le(bytes)?).into()),
            ValueType::I8 => GgufValue::I64(i8::from_le_bytes(le(bytes)?).into()),
            ValueType::U16 => GgufValue::U64(u16::from_le_bytes(le(bytes)?).into()),
            ValueType::I16 => GgufValue::I64(i16::from_le_bytes(le(bytes)?).into()),
            ValueType::U32 => GgufValue::U64(u32::from_le_bytes(le(bytes)?).into()),
            ValueType::I32 => GgufValue::I64(i32::from_le_bytes(le(bytes)?).into()),
            ValueType::U64 => GgufValue::U64(u64::from_le_bytes(le(bytes)?)),
            ValueType::I64 => GgufValue::I64(i64::from_le_bytes(le(bytes)?)),
            ValueType::F32 => GgufValue::F64(f32::from_le_bytes(le(bytes)?).into()),
            ValueType::F64 => GgufValue::F64(f64::from_le_bytes(le(bytes)?)),
            ValueType::Bool => GgufValue::Bool(*bytes.first()? != 0),
            ValueType::Str | ValueType::Array => return None,
        })
    }
}

fn le<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.get(..N)?.try_into().ok()
}

/// An array inside the mapped header. Nothing is copied: elements are decoded while iterating, so
/// a vocabulary of 262,144 tokens costs nothing until it is read.
#[derive(Clone, Copy)]
pub struct GgufArray<'a> {
    pub(super) file: &'a Path,
    pub(super) key: &'a str,
    pub(super) element: ValueType,
    pub(super) len: usize,
    /// The elements as stored; validated when the file was opened.
    pub(super) bytes: &'a [u8],
}

impl<'a> GgufArray<'a> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements' type as the format spells it, e.g. `string` or `f32`.
    pub fn element_type(&self) -> &'static str {
        self.element.as_str()
    }

    /// The elements as strings. They were checked to be UTF-8 when the file was opened.
    ///
    /// # Errors
    /// [`ErrorKind::ConfigInvalid`] when the elements are no strings.
    pub fn strings(&self) -> Result<impl ExactSizeIterator<Item = &'a str> + use<'a>> {
        self.expect(self.element == ValueType::Str, "strings")?;
        let mut rest = self.bytes;
        Ok((0..self.len).map(move |_| {
            // Empty only if someone rewrites the file under its map.
            let (text, tail) = split_string(rest).unwrap_or_default();
            rest = tail;
            text
        }))
    }

    /// The elements as floats.
    ///
    /// # Errors
    /// [`ErrorKind::ConfigInvalid`] when the elements are no floats.
    pub fn f64s(&self) -> Result<impl ExactSizeIterator<Item = f64> + use<'a>> {
        let element = self.element;
        let float = matches!(element, ValueType::F32 | ValueType::F64);
        self.expect(float, "floats")?;
        Ok(self.chunks().map(move |bytes| match element.scalar(bytes) {
            Some(GgufValue::F64(v)) => v,
            _ => 0.0,
        }))
    }

    /// The elements as integers, from every signed and unsigned width.
    ///
    /// # Errors
    /// [`ErrorKind::ConfigInvalid`] when the elements are no integers or one exceeds [`i64::MAX`].
    pub fn i64s(&self) -> Result<impl ExactSizeIterator<Item = i64> + use<'a>> {
        let element = self.element;
        let integer = move |bytes: &[u8]| match element.scalar(bytes) {
            Some(GgufValue::I64(v)) => Some(v),
            Some(GgufValue::U64(v)) => i64::try_from(v).ok(),
            _ => None,
        };
        let fits = element.size().is_some() && self.chunks().all(|b| integer(b).is_some());
        self.expect(fits, "integers up to 2^63 - 1")?;
        Ok(self.chunks().map(move |bytes| integer(bytes).unwrap_or(0)))
    }

    /// The elements as booleans.
    ///
    /// # Errors
    /// [`ErrorKind::ConfigInvalid`] when the elements are no booleans.
    pub fn bools(&self) -> Result<impl ExactSizeIterator<Item = bool> + use<'a>> {
        self.expect(self.element == ValueType::Bool, "booleans")?;
        Ok(self.bytes.iter().map(|&byte| byte != 0))
    }

    fn chunks(&self) -> std::slice::ChunksExact<'a, u8> {
        self.bytes.chunks_exact(self.element.min_size())
    }

    fn expect(&self, ok: bool, expected: &'static str) -> Result<()> {
        if ok {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::ConfigInvalid,
            format!("expected an array of {expected}, found {}", GgufValue::Array(*self).describe()),
        )
        .with("file", self.file.display())
        .with("field", self.key)
        .with_hint("convert the model again with a current tool"))
    }
}

impl fmt::Debug for GgufArray<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}; {}]", self.element, self.len)
    }
}

/// The string at the start of `bytes`, and what follows it.
fn split_string(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (len, rest) = bytes.split_first_chunk()?;
    let len = usize::try_from(u64::from_le_bytes(*len)).ok()?;
    let (text, rest) = rest.split_at_checked(len)?;
    Some((std::str::from_utf8(text).ok()?, rest))
}
