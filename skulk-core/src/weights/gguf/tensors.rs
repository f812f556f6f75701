//! Where does each tensor of a GGUF file lie? Entries checked one by one, then against each other.

use std::path::Path;

use super::cursor::Cursor;
use super::metadata::KEY_MAX;
use crate::error::{Error, ErrorKind, Result};
use crate::weights::{DType, TensorInfo, UnreadableTensor, damaged, incomplete, neighbours};

/// The format's limit on dimensions (`GGML_MAX_DIMS`).
const DIMS_MAX: u32 = 4;

/// One line of the tensor table, before its place in the file is known.
#[derive(Debug)]
pub(super) struct TensorEntry {
    name: String,
    elements: Elements,
    /// Outermost dimension first.
    shape: Vec<usize>,
    /// From the start of the data section; once placed, of the file.
    offset: u64,
    len: u64,
}

/// What a tensor has.
#[derive(Debug, Clone, Copy)]
enum Elements {
    Weights(DType),
    /// Numbers that are no weights, and how many bytes each takes.
    Integers(&'static str, usize),
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
        // What is called a weight is computed with.
        let is_weight = name.ends_with(".weight") || name.ends_with(".bias");
        let number = cursor.u32("tensor type")?;
        let found = elements(number).and_then(|found| match found {
            Elements::Integers(label, _) if is_weight => Err(format!("{label} (type {number})")),
            found => Ok(found),
        });
        let elements = found.map_err(|found| {
            Error::new(
                ErrorKind::DTypeUnsupported,
                format!("expected a tensor type that skulk reads, found {found}"),
            )
            .with("file", cursor.path().display())
            .with_hint("use another quantisation of this model, for example Q4_K_M or Q8_0")
        })?;
        let offset = cursor.u64("tensor offset")?;
        let len = elements.byte_len(&shape).ok_or_else(|| {
            let (label, block) = elements.blocks();
            cursor.invalid(format!(
                "expected a shape of whole {label} blocks of {block} elements that fits in memory, found {shape:?}"
            ))
        })?;
        Ok(Self { name: name.to_owned(), elements, shape, offset, len })
    }
}

impl Elements {
    /// Bytes that a tensor takes; `None` when rows are no whole number of blocks or it overflows.
    fn byte_len(self, shape: &[usize]) -> Option<u64> {
        let (&row_len, outer) = shape.split_last()?;
        let row = match self {
            Self::Weights(dtype) => dtype.row_bytes(row_len)?,
            Self::Integers(_, bytes) => row_len.checked_mul(bytes)?,
        };
        outer.iter().try_fold(row, |len, &dim| len.checked_mul(dim))?.try_into().ok()
    }

    /// The type's name, and how many elements a block has.
    fn blocks(self) -> (&'static str, usize) {
        match self {
            Self::Weights(dtype) => (dtype.label(), dtype.block_len()),
            Self::Integers(label, _) => (label, 1),
        }
    }
}

/// Turns offsets into places in the file, of weights and of integers; sorts by name.
pub(super) fn place(
    entries: Vec<TensorEntry>,
    alignment: u64,
    data_start: u64,
    file_len: u64,
    path: &Path,
) -> Result<(Vec<TensorInfo>, Vec<UnreadableTensor>)> {
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

    let (mut weights, mut integers) = (Vec::with_capacity(tensors.len()), Vec::new());
    for TensorEntry { name, elements, shape, offset, len } in tensors {
        match elements {
            Elements::Weights(dtype) => weights.push(TensorInfo { name, dtype, shape, file: 0, offset, len }),
            Elements::Integers(label, _) => {
                integers.push(UnreadableTensor { name, dtype: label.to_owned(), shape, offset, len });
            }
        }
    }
    Ok((weights, integers))
}

fn place_one(
    entry: TensorEntry,
    alignment: u64,
    data_start: u64,
    file_len: u64,
    path: &Path,
) -> Result<TensorEntry> {
    if !entry.offset.is_multiple_of(alignment) {
        let message = format!("expected an offset that is a multiple of {alignment}, found {}", entry.offset);
        return Err(damaged(message, path).with("tensor", &entry.name));
    }
    let offset = data_start.checked_add(entry.offset);
    match offset.and_then(|offset| Some((offset, offset.checked_add(entry.len)?))) {
        Some((offset, end)) if end <= file_len => Ok(TensorEntry { offset, ..entry }),
        _ => {
            let message = format!(
                "expected {} bytes at {} past offset {data_start}, but the file has {file_len} bytes",
                entry.len, entry.offset
            );
            Err(incomplete(message, path).with("tensor", entry.name))
        }
    }
}

/// What ggml numbers `id`, or what to call it in a message.
fn elements(id: u32) -> std::result::Result<Elements, String> {
    // `enum ggml_type` of llama.cpp's `ggml.h`; numbers not listed were withdrawn or never given.
    let dtype = match id {
        0 => DType::F32,
        1 => DType::F16,
        2 => DType::Q4_0,
        3 => DType::Q4_1,
        6 => DType::Q5_0,
        7 => DType::Q5_1,
        8 => DType::Q8_0,
        10 => DType::Q2_K,
        11 => DType::Q3_K,
        12 => DType::Q4_K,
        13 => DType::Q5_K,
        14 => DType::Q6_K,
        15 => DType::Q8_K,
        16 => DType::IQ2_XXS,
        17 => DType::IQ2_XS,
        18 => DType::IQ3_XXS,
        19 => DType::IQ1_S,
        20 => DType::IQ4_NL,
        21 => DType::IQ3_S,
        22 => DType::IQ2_S,
        23 => DType::IQ4_XS,
        29 => DType::IQ1_M,
        30 => DType::BF16,
        34 => DType::TQ1_0,
        35 => DType::TQ2_0,
        39 => DType::MXFP4,
        26 => return Ok(Elements::Integers("I32", 4)),
        27 => return Ok(Elements::Integers("I64", 8)),
        _ => {
            let label = match id {
                9 => "Q8_1",
                24 => "I8",
                25 => "I16",
                28 => "F64",
                _ => return Err(format!("the unknown type {id}")),
            };
            return Err(format!("{label} (type {id})"));
        }
    };
    Ok(Elements::Weights(dtype))
}
