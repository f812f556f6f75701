//! Where does each tensor of a GGUF file lie? Entries checked one by one, then against each other.

use std::path::Path;

use super::cursor::Cursor;
use super::metadata::KEY_MAX;
use crate::error::{Error, ErrorKind, Result};
use crate::weights::{DType, TensorInfo, damaged, incomplete, neighbours};

/// The format's limit on dimensions (`GGML_MAX_DIMS`).
const DIMS_MAX: u32 = 4;

/// One line of the tensor table, before its place in the file is known.
#[derive(Debug)]
pub(super) struct TensorEntry {
    name: String,
    dtype: DType,
    /// Outermost dimension first.
    shape: Vec<usize>,
    /// From the start of the data section.
    offset: u64,
    len: u64,
}

impl TensorEntry {
    /// Bytes an entry takes at least: name length, dimension count, one dimension, type, offset.
    pub(super) const MIN_SIZE: usize = 8 + 4 + 8 + 4 + 8;

    pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Self> {
        let name = cursor.string(KEY_MAX, "tensor name")?.to_owned();
        Self::read_body(&name, cursor).map_err(|e| e.with("tensor", &name))
    }

    fn read_body(name: &str, cursor: &mut Cursor<'_>) -> Result<Self> {
        let dims = cursor.u32("dimension count")?;
        if !(1..=DIMS_MAX).contains(&dims) {
            return Err(cursor.invalid(format!("expected 1 to {DIMS_MAX} dimensions, found {dims}")));
        }
        let mut shape = Vec::new();
        for _ in 0..dims {
            let dim = cursor.u64("dimension")?;
            match usize::try_from(dim) {
                Ok(dim) if dim > 0 => shape.push(dim),
                _ => {
                    return Err(cursor.invalid(format!("expected dimensions of at least 1, found {dim}")));
                }
            }
        }
        // The file lists the innermost dimension first.
        shape.reverse();
        let dtype = dtype(cursor.u32("tensor type")?).map_err(|found| {
            Error::new(
                ErrorKind::DTypeUnsupported,
                format!("expected a tensor type that skulk reads, found {found}"),
            )
            .with("file", cursor.path().display())
            .with_hint("use another quantisation of this model, for example Q4_K_M or Q8_0")
        })?;
        let offset = cursor.u64("tensor offset")?;
        let len = byte_len(dtype, &shape).ok_or_else(|| {
            cursor.invalid(format!(
                "expected a shape of whole {dtype} blocks of {} elements that fits in memory, found {shape:?}",
                dtype.block_len()
            ))
        })?;
        Ok(Self { name: name.to_owned(), dtype, shape, offset, len })
    }
}

/// Bytes that a tensor takes; `None` when rows are no whole number of blocks or it overflows.
fn byte_len(dtype: DType, shape: &[usize]) -> Option<u64> {
    let (&row_len, outer) = shape.split_last()?;
    outer.iter().try_fold(dtype.row_bytes(row_len)?, |len, &dim| len.checked_mul(dim))?.try_into().ok()
}

/// Turns offsets into places in the file; sorts by name.
pub(super) fn place(
    entries: Vec<TensorEntry>,
    alignment: u64,
    data_start: u64,
    file_len: u64,
    path: &Path,
) -> Result<Vec<TensorInfo>> {
    let mut tensors = entries
        .into_iter()
        .map(|entry| place_one(entry, alignment, data_start, file_len, path))
        .collect::<Result<Vec<_>>>()?;

    tensors.sort_unstable_by_key(|t| t.offset);
    if let Some((a, b)) = neighbours(&tensors, |a, b| a.offset + a.len > b.offset) {
        let message = format!("expected tensors apart from each other, found it inside {}", a.name);
        return Err(damaged(message, path).with("tensor", &b.name));
    }

    tensors.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    if let Some((twice, _)) = neighbours(&tensors, |a, b| a.name == b.name) {
        let message = "expected each tensor once, found it twice".to_owned();
        return Err(damaged(message, path).with("tensor", &twice.name));
    }
    Ok(tensors)
}

fn place_one(
    entry: TensorEntry,
    alignment: u64,
    data_start: u64,
    file_len: u64,
    path: &Path,
) -> Result<TensorInfo> {
    if !entry.offset.is_multiple_of(alignment) {
        let message = format!("expected an offset that is a multiple of {alignment}, found {}", entry.offset);
        return Err(damaged(message, path).with("tensor", &entry.name));
    }
    let offset = data_start.checked_add(entry.offset);
    match offset.and_then(|offset| Some((offset, offset.checked_add(entry.len)?))) {
        Some((offset, end)) if end <= file_len => Ok(TensorInfo {
            name: entry.name,
            dtype: entry.dtype,
            shape: entry.shape,
            file: 0,
            offset,
            len: entry.len,
        }),
        _ => {
            let message = format!(
                "expected {} bytes at {} past offset {data_start}, but the file has {file_len} bytes",
                entry.len, entry.offset
            );
            Err(incomplete(message, path).with("tensor", entry.name))
        }
    }
}

/// The storage type that ggml numbers `id`, or what to call it in a message.
fn dtype(id: u32) -> std::result::Result<DType, String> {
    // `enum ggml_type` of llama.cpp's `ggml.h`; numbers not listed were withdrawn or never given.
    let unsupported = match id {
        0 => return Ok(DType::F32),
        1 => return Ok(DType::F16),
        2 => return Ok(DType::Q4_0),
        3 => return Ok(DType::Q4_1),
        6 => return Ok(DType::Q5_0),
        7 => return Ok(DType::Q5_1),
        8 => return Ok(DType::Q8_0),
        10 => return Ok(DType::Q2_K),
        11 => return Ok(DType::Q3_K),
        12 => return Ok(DType::Q4_K),
        13 => return Ok(DType::Q5_K),
        14 => return Ok(DType::Q6_K),
        15 => return Ok(DType::Q8_K),
        16 => return Ok(DType::IQ2_XXS),
        17 => return Ok(DType::IQ2_XS),
        18 => return Ok(DType::IQ3_XXS),
        19 => return Ok(DType::IQ1_S),
        20 => return Ok(DType::IQ4_NL),
        21 => return Ok(DType::IQ3_S),
        22 => return Ok(DType::IQ2_S),
        23 => return Ok(DType::IQ4_XS),
        29 => return Ok(DType::IQ1_M),
        30 => return Ok(DType::BF16),
        34 => return Ok(DType::TQ1_0),
        35 => return Ok(DType::TQ2_0),
        39 => return Ok(DType::MXFP4),
        9 => "Q8_1",
        24 => "I8",
        25 => "I16",
        26 => "I32",
        27 => "I64",
        28 => "F64",
        _ => return Err(format!("the unknown type {id}")),
    };
    Err(format!("{unsupported} (type {id})"))
}
