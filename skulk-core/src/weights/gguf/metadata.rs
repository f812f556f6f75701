//! What does the key-value section of a GGUF file say? Lookup by key, with the type one expects.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::checkpoint::SPLIT_NO;
use super::cursor::Cursor;
use super::header::GgufHeader;
use super::split::ShardName;
use super::value::{GgufArray, GgufValue, ValueType};
use crate::error::{Error, ErrorKind, Result};
use crate::weights::mmap::Bytes;
use crate::weights::{MappedFile, neighbours};

/// The format's limit on keys; tensor names share it.
pub(super) const KEY_MAX: usize = 65_535;
/// Arrays of arrays are legal and unused; deeper ones than this are an attack on the stack.
const NESTING_MAX: usize = 4;

/// The key-value section of a GGUF file. Values stay in the mapped header and are decoded when
/// asked for.
///
/// ```no_run
/// use skulk::{Metadata, open_checkpoint};
/// let checkpoint = open_checkpoint("model.gguf")?;
/// if let Metadata::Gguf(metadata) = checkpoint.metadata() {
///     let architecture = metadata.str("general.architecture")?;
///     let layers = metadata.u64(&format!("{architecture}.block_count"))?;
///     assert!(layers > 0);
/// }
/// # Ok::<(), skulk::Error>(())
/// ```
#[derive(Clone)]
pub struct GgufMetadata {
    file: PathBuf,
    /// The header.
    bytes: Arc<Bytes>,
    entries: Arc<[Entry]>,
}

/// A key and where its value lies in the header.
#[derive(Debug)]
pub(super) struct Entry {
    key: String,
    slot: Slot,
    /// The scalar's bytes, the string's text, or the array's elements.
    span: Range<usize>,
}

#[derive(Debug, Clone, Copy)]
enum Slot {
    Scalar(ValueType),
    Str,
    Array { element: ValueType, len: usize },
}

impl Slot {
    /// The number, boolean or string that `bytes` hold; `None` for arrays.
    fn scalar<'a>(&self, bytes: &'a [u8]) -> Option<GgufValue<'a>> {
        match self {
            Slot::Scalar(kind) => kind.scalar(bytes),
            Slot::Str => Some(GgufValue::Str(std::str::from_utf8(bytes).ok()?)),
            Slot::Array { .. } => None,
        }
    }
}

impl Entry {
    /// Bytes an entry takes at least: key length, value type, one byte of value.
    pub(super) const MIN_SIZE: usize = 8 + 4 + 1;

    pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Self> {
        let key = cursor.string(KEY_MAX, "metadata key")?.to_owned();
        let (slot, span) = read_value(cursor).map_err(|e| e.with("field", &key))?;
        Ok(Self { key, slot, span })
    }
}

/// Reads the section with its count. Sorts by key and refuses a key that occurs twice.
pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Vec<Entry>> {
    let count = cursor.count(Entry::MIN_SIZE, "metadata count")?;
    let mut entries = (0..count).map(|_| Entry::read(cursor)).collect::<Result<Vec<_>>>()?;
    entries.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    match neighbours(&entries, |a, b| a.key == b.key) {
        Some((twice, _)) => Err(cursor
            .invalid("expected each metadata key once, found it twice".to_owned())
            .with("field", &twice.key)),
        None => Ok(entries),
    }
}

/// The next value, as far as it is no array; whatever it is, it is checked and passed.
pub(super) fn next_scalar<'a>(cursor: &mut Cursor<'a>) -> Result<Option<GgufValue<'a>>> {
    let (slot, span) = read_value(cursor)?;
    let bytes = cursor.bytes().get(span).unwrap_or_default();
    Ok(slot.scalar(bytes))
}

fn read_value(cursor: &mut Cursor<'_>) -> Result<(Slot, Range<usize>)> {
    let kind = read_type(cursor)?;
    match kind {
        ValueType::Str => {
            let len = cursor.string(usize::MAX, "string")?.len();
            let end = cursor.position();
            Ok((Slot::Str, end - len..end))
        }
        ValueType::Array => {
            let (element, len) = read_array_head(cursor)?;
            let start = cursor.position();
            skip_elements(cursor, element, len, 1)?;
            Ok((Slot::Array { element, len }, start..cursor.position()))
        }
        _ => {
            let start = cursor.position();
            skip_elements(cursor, kind, 1, 0)?;
            Ok((Slot::Scalar(kind), start..cursor.position()))
        }
    }
}

fn read_type(cursor: &mut Cursor<'_>) -> Result<ValueType> {
    let id = cursor.u32("value type")?;
    ValueType::from_id(id)
        .ok_or_else(|| cursor.invalid(format!("expected a value type of 0 to 12, found {id}")))
}

fn read_array_head(cursor: &mut Cursor<'_>) -> Result<(ValueType, usize)> {
    let element = read_type(cursor)?;
    let len = cursor.count(element.min_size(), "array length")?;
    Ok((element, len))
}

/// Checks `len` values and moves past them.
fn skip_elements(cursor: &mut Cursor<'_>, element: ValueType, len: usize, depth: usize) -> Result<()> {
    match element {
        ValueType::Str => {
            for _ in 0..len {
                cursor.string(usize::MAX, "string")?;
            }
        }
        ValueType::Array if depth >= NESTING_MAX => {
            return Err(cursor
                .invalid(format!("expected arrays nested at most {NESTING_MAX} deep, found deeper ones")));
        }
        ValueType::Array => {
            for _ in 0..len {
                let (element, len) = read_array_head(cursor)?;
                skip_elements(cursor, element, len, depth + 1)?;
            }
        }
        _ => {
            // `len` elements of at least this size fit the file, so the product cannot overflow.
            let bytes = cursor.take(len * element.min_size(), "value")?;
            if element == ValueType::Bool
                && let Some(byte) = bytes.iter().find(|&&byte| byte > 1)
            {
                return Err(cursor.invalid(format!("expected a boolean of 0 or 1, found {byte}")));
            }
        }
    }
    Ok(())
}

/// Look-ups of one type each: of a key that must be there, and of one that may be.
macro_rules! typed {
    ($($(#[$doc:meta])* $name:ident, $opt_name:ident: $type:ty = $expected:literal, $convert:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        /// [`ErrorKind::ConfigInvalid`] when the key is absent or of another type.
        pub fn $name(&self, key: &str) -> Result<$type> {
            self.$opt_name(key)?.ok_or_else(|| self.invalid(key, $expected, "nothing"))
        }

        #[doc = concat!("Like [`", stringify!($name), "`](Self::", stringify!($name), "), `None` when the key is absent.")]
        ///
        /// # Errors
        /// [`ErrorKind::ConfigInvalid`] when it is of another type.
        pub fn $opt_name(&self, key: &str) -> Result<Option<$type>> {
            self.typed(key, $expected, $convert)
        }
    )*};
}

impl GgufMetadata {
    pub(super) fn new(file: &Path, bytes: Bytes, entries: Vec<Entry>) -> Self {
        Self { file: file.to_owned(), bytes: Arc::new(bytes), entries: entries.into() }
    }

    /// Reads the key-values of the GGUF file at `path` alone: also of one whose tensors skulk cannot read. Of a
    /// split set, any file will do.
    ///
    /// # Errors
    /// [`ErrorKind::FileNotFound`], [`ErrorKind::FileIo`], [`ErrorKind::CheckpointInvalid`] and
    /// [`ErrorKind::CheckpointTruncated`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let metadata = GgufHeader::map_metadata(&MappedFile::open(path)?)?;
        // The first file of a set alone describes the model.
        match (metadata.opt_u64(SPLIT_NO)?, ShardName::parse(path)) {
            (Some(1..), Some(name)) => GgufHeader::map_metadata(&MappedFile::open(name.sibling(path, 1))?),
            _ => Ok(metadata),
        }
    }

    /// The file it was read from; the first one of a split set.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Every key, sorted.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|e| e.key.as_str())
    }

    /// The value of a key, or `None` when the file lacks it.
    pub fn get(&self, key: &str) -> Option<GgufValue<'_>> {
        let at = self.entries.binary_search_by(|e| e.key.as_str().cmp(key)).ok()?;
        let entry = self.entries.get(at)?;
        let bytes = self.bytes.get(entry.span.clone())?;
        match entry.slot {
            Slot::Array { element, len } => {
                Some(GgufValue::Array(GgufArray { file: &self.file, key: &entry.key, element, len, bytes }))
            }
            slot => slot.scalar(bytes),
        }
    }

    typed! {
        /// An unsigned integer, from an integer of any width that is not negative.
        u64, opt_u64: u64 = "an unsigned integer", |value| match value {
            GgufValue::U64(v) => Some(v),
            GgufValue::I64(v) => u64::try_from(v).ok(),
            _ => None,
        };
        /// A float, from a float of either width.
        f64, opt_f64: f64 = "a float", |value| match value {
            GgufValue::F64(v) => Some(v),
            _ => None,
        };
        /// A boolean.
        bool, opt_bool: bool = "a boolean", |value| match value {
            GgufValue::Bool(v) => Some(v),
            _ => None,
        };
        /// A string.
        str, opt_str: &str = "a string", |value| match value {
            GgufValue::Str(v) => Some(v),
            _ => None,
        };
        /// An array.
        array, opt_array: GgufArray<'_> = "an array", |value| match value {
            GgufValue::Array(v) => Some(v),
            _ => None,
        };
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        convert: impl FnOnce(GgufValue<'a>) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        match convert(value) {
            Some(converted) => Ok(Some(converted)),
            None => Err(self.invalid(key, expected, &value.describe())),
        }
    }

    fn invalid(&self, key: &str, expected: &str, found: &str) -> Error {
        Error::new(ErrorKind::ConfigInvalid, format!("expected {expected}, found {found}"))
            .with("file", self.file.display())
            .with("field", key)
            .with_hint("convert the model again with a current tool")
    }
}

impl fmt::Debug for GgufMetadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GgufMetadata")
            .field("file", &self.file)
            .field("keys", &self.entries.len())
            .finish_non_exhaustive()
    }
}
