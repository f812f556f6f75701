//! What does the header of `layers/layer_NN.weights` say? Where each expert's matrices lie.

use std::path::Path;

use super::{invalid, number, truncated};
use crate::error::{Error, ErrorKind, Result};
use crate::weights::{DType, MappedFile};

/// What every file starts with. LARQL's documents print the number that these bytes are byte-swapped.
const MAGIC: &[u8] = b"LYRW";
/// Bytes of the fixed header.
pub(super) const FIXED: usize = 24;
/// Bytes of one entry of the table that follows.
const ENTRY: usize = 32;
/// Upper bounds for sizes and entries, far above real models.
const MAX_SIZE: u32 = 1 << 28;
const MAX_ENTRIES: usize = 1 << 16;

/// The checked header of one layer's file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LayerHeader {
    /// How all of its matrices are stored.
    pub dtype: DType,
    /// Inner width of an expert.
    pub intermediate: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// One entry for each expert.
    pub entries: Vec<LayerEntry>,
}

/// One expert's matrices, or those of a dense block, as byte ranges of the file. Of an expert that a slice lacks, both
/// lengths are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LayerEntry {
    /// Offset of the gate rows, behind which the up rows lie: `[2 · intermediate, hidden]`, rows as they are, or
    /// padded.
    pub gate_up_offset: u64,
    /// Their length.
    pub gate_up_len: u64,
    /// Offset of the down matrix `[hidden, intermediate]`, rows padded.
    pub down_offset: u64,
    /// Its length.
    pub down_len: u64,
}

impl LayerEntry {
    /// Whether the file is a slice's, and its matrices are elsewhere.
    pub fn is_absent(&self) -> bool {
        self.gate_up_len == 0 && self.down_len == 0
    }
}

impl LayerHeader {
    /// Bytes of the header of a file of so many entries.
    pub(crate) fn bytes_of(entries: usize) -> u64 {
        FIXED as u64 + entries as u64 * ENTRY as u64
    }

    /// The header as it is written.
    ///
    /// # Errors
    /// [`ErrorKind::TensorShape`] for more entries and larger sizes than [`parse`](Self::parse) takes,
    /// [`ErrorKind::DTypeUnsupported`] for types that it has no number of.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = MAGIC.to_vec();
        for (number, most) in [
            (1, 1),
            (id(self.dtype)?, DTYPES.len()),
            (self.entries.len(), MAX_ENTRIES),
            (self.intermediate, MAX_SIZE as usize),
            (self.hidden, MAX_SIZE as usize),
        ] {
            if number > most {
                let message = format!("expected a count or size of at most {most}, found {number}");
                return Err(Error::new(ErrorKind::TensorShape, message)
                    .with_hint("the source is damaged or hostile: fetch it again"));
            }
            bytes.extend((number as u32).to_le_bytes());
        }
        for entry in &self.entries {
            for number in [entry.gate_up_offset, entry.gate_up_len, entry.down_offset, entry.down_len] {
                bytes.extend(number.to_le_bytes());
            }
        }
        Ok(bytes)
    }

    /// Bytes of the whole header of a file that starts with `fixed`, which is at least 24 bytes of it.
    pub(super) fn size(fixed: &[u8]) -> u64 {
        FIXED as u64 + u64::from(number(fixed, 12)) * ENTRY as u64
    }

    /// Reads a file's header.
    ///
    /// # Errors
    /// As [`parse`](Self::parse), and [`ErrorKind::FileIo`].
    pub(super) fn read(file: &MappedFile) -> Result<Self> {
        let size = Self::size(&file.read_start(FIXED as u64)?).min(Self::bytes_of(MAX_ENTRIES));
        Self::parse(&file.read_start(size)?, file.len(), file.path())
    }

    /// Reads the header from a file's first bytes; `file_len` is the whole file's length. The `path` only serves
    /// messages.
    ///
    /// # Errors
    /// [`ErrorKind::CheckpointTruncated`] when file or bytes end before the header or a matrix does,
    /// [`ErrorKind::CheckpointInvalid`] for another magic number or version and for sizes that do not follow from
    /// each other, [`ErrorKind::DTypeUnsupported`] for types that are not read.
    pub fn parse(bytes: &[u8], file_len: u64, path: &Path) -> Result<Self> {
        let have = file_len.min(bytes.len() as u64);
        if have < FIXED as u64 {
            return Err(truncated(0, FIXED as u64, have, path));
        }
        if !bytes.starts_with(MAGIC) {
            return Err(invalid(format!("expected the magic bytes LYRW, found {:02x?}", &bytes[..4]), path)
                .with("offset", 0));
        }
        let version = number(bytes, 4);
        if version != 1 {
            return Err(invalid(format!("expected version 1, found {version}"), path).with("offset", 4));
        }
        let dtype = dtype(number(bytes, 8)).map_err(|e| e.with("file", path.display()).with("offset", 8))?;
        let size = Self::size(bytes);
        if size <= file_len && size > Self::bytes_of(MAX_ENTRIES) {
            let message = format!("expected at most {MAX_ENTRIES} entries, found {}", number(bytes, 12));
            return Err(invalid(message, path).with("offset", 12));
        }
        if size > have {
            return Err(truncated(FIXED as u64, size - FIXED as u64, have, path));
        }
        let [intermediate, hidden] = [16, 20].map(|at| number(bytes, at));
        for (at, value) in [(16, intermediate), (20, hidden)] {
            if !(1..=MAX_SIZE).contains(&value) {
                return Err(invalid(format!("expected a size of 1 to {MAX_SIZE}, found {value}"), path)
                    .with("offset", at));
            }
        }
        let (table, _) = bytes.get(FIXED..size as usize).unwrap_or_default().as_chunks::<ENTRY>();
        let entries: Vec<LayerEntry> = table.iter().map(entry).collect();
        let header = Self { dtype, intermediate: intermediate as usize, hidden: hidden as usize, entries };
        header.check(size, file_len, path)?;
        Ok(header)
    }

    /// Bytes that gate and up rows together take, as they are and padded; `None` for rows of no whole blocks.
    fn gate_up_lengths(&self) -> [Option<u64>; 2] {
        let rows = 2 * self.intermediate as u64;
        let of = |len: usize| rows.checked_mul(self.dtype.row_bytes(len)? as u64);
        [of(self.hidden), of(self.hidden.next_multiple_of(super::PADDED))]
    }

    /// Bytes of the down matrix, whose rows are padded.
    fn down_length(&self) -> Option<u64> {
        let padded = self.intermediate.next_multiple_of(super::PADDED);
        (self.hidden as u64).checked_mul(self.dtype.row_bytes(padded)? as u64)
    }

    /// Whether gate and up rows of that many bytes are packed without regard to blocks: LARQL's writer does that where
    /// `hidden` is no multiple of a block's elements.
    fn runs_across_blocks(&self, len: u64) -> bool {
        let elements = 2 * self.intermediate as u64 * self.hidden as u64;
        let (block, bytes) = (self.dtype.block_len() as u64, self.dtype.block_bytes() as u64);
        self.gate_up_lengths()[0].is_none() && elements.div_ceil(block).checked_mul(bytes) == Some(len)
    }

    fn check(&self, size: u64, file_len: u64, path: &Path) -> Result<()> {
        let gate_up = self.gate_up_lengths();
        let least = gate_up.iter().flatten().min().copied();
        for (i, entry) in self.entries.iter().enumerate().filter(|(_, entry)| !entry.is_absent()) {
            if self.runs_across_blocks(entry.gate_up_len) {
                return Err(Error::new(
                    ErrorKind::DTypeUnsupported,
                    format!("expected rows of whole {} blocks, found {} elements", self.dtype, self.hidden),
                )
                .with("file", path.display())
                .with("expert", i)
                .with_hint(
                    "rows of such a file run across blocks and cannot be read one by one: use floats",
                ));
            }
            let ranges = [
                (entry.gate_up_offset, entry.gate_up_len, gate_up.contains(&Some(entry.gate_up_len)), least),
                (
                    entry.down_offset,
                    entry.down_len,
                    self.down_length() == Some(entry.down_len),
                    self.down_length(),
                ),
            ];
            for (offset, len, fits, expected) in ranges {
                if !fits || offset < size {
                    return Err(invalid(
                        format!(
                            "expected {} bytes behind the header, found {len} at {offset}",
                            expected.unwrap_or(0)
                        ),
                        path,
                    )
                    .with("offset", offset)
                    .with("expert", i));
                }
                if offset.checked_add(len).is_none_or(|end| end > file_len) {
                    return Err(truncated(offset, len, file_len, path).with("expert", i));
                }
            }
        }
        Ok(())
    }
}

fn entry(bytes: &[u8; ENTRY]) -> LayerEntry {
    let (numbers, _) = bytes.as_chunks::<8>();
    let at = |i: usize| numbers.get(i).map_or(0, |b| u64::from_le_bytes(*b));
    LayerEntry { gate_up_offset: at(0), gate_up_len: at(1), down_offset: at(2), down_len: at(3) }
}

/// How matrices may be stored, by their numbers.
const DTYPES: [DType; 7] =
    [DType::F32, DType::F16, DType::BF16, DType::Q4_0, DType::Q4_K, DType::Q6_K_Linear, DType::Q8_0];

fn dtype(id: u32) -> Result<DType> {
    let known = usize::try_from(id).ok().and_then(|id| DTYPES.get(id).copied());
    known.ok_or_else(|| {
        Error::new(
            ErrorKind::DTypeUnsupported,
            format!("expected a quantisation of 0 to 6, found {id}{}", if id == 7 { " (FP4)" } else { "" }),
        )
        .with_hint("extract the model again as f32 or q4k")
    })
}

fn id(dtype: DType) -> Result<usize> {
    DTYPES.iter().position(|known| *known == dtype).ok_or_else(|| {
        Error::new(
            ErrorKind::DTypeUnsupported,
            format!("expected a type that layer files have, found {dtype}"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        let entry = LayerEntry { gate_up_offset: 0, gate_up_len: 0, down_offset: 0, down_len: 0 };
        let written = |entries: usize, hidden: usize| {
            LayerHeader { dtype: DType::F32, intermediate: 1, hidden, entries: vec![entry; entries] }
                .to_bytes()
        };
        let bytes = written(MAX_ENTRIES, MAX_SIZE as usize).unwrap();
        let read = LayerHeader::parse(&bytes, bytes.len() as u64, Path::new("layer_00.weights")).unwrap();
        assert_eq!(read.entries.len(), MAX_ENTRIES);
        for (entries, hidden) in [(MAX_ENTRIES + 1, 1), (1, MAX_SIZE as usize + 1)] {
            assert_eq!(written(entries, hidden).unwrap_err().kind(), ErrorKind::TensorShape);
        }
    }
}
