//! Where does each tensor lie, as the manifests say? `weight_manifest.json`, and one for each quantised file.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{PADDED, invalid};
use crate::error::{Error, ErrorKind, Result};
use crate::weights::DType;

/// Where version 1 keeps weights that name no file.
pub(super) const LEGACY_WEIGHTS: &str = "model_weights.bin";

/// An entry of `weight_manifest.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WeightEntry {
    /// The tensor's name.
    pub key: String,
    /// How it is stored.
    kind: String,
    /// Row-major shape; of quantised matrices with padded rows.
    pub shape: Vec<usize>,
    /// Byte offset in the file.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// The file's name; empty in version 1: `model_weights.bin`.
    #[serde(default)]
    file: String,
}

/// How a tensor of the weight manifest is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WeightKind {
    /// F32 or F16, as its length says.
    Float,
    /// F16.
    F16,
    /// BF16, experts stacked.
    Bf16,
    /// Q4_K, rows padded.
    Q4K,
}

/// An entry of the manifest of one quantised file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct QuantEntry {
    /// The tensor's name.
    pub key: String,
    /// Rows and padded row length.
    pub shape: [usize; 2],
    /// `Q4_K` or `Q6_K`.
    format: String,
    /// Byte offset in the file.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
}

/// Reads the text of a `weight_manifest.json`. The `path` only serves messages.
///
/// # Errors
/// [`ErrorKind::CheckpointInvalid`] when it is none, [`ErrorKind::DTypeUnsupported`] for unknown kinds.
pub fn read_weight_manifest(text: &[u8], path: &Path) -> Result<Vec<WeightEntry>> {
    let entries: Vec<WeightEntry> = read(text, path)?;
    for entry in &entries {
        entry.kind().map_err(|e| e.with("file", path.display()))?;
        if !(1..=4).contains(&entry.shape.len()) {
            return Err(invalid(format!("expected 1 to 4 dimensions, found {}", entry.shape.len()), path)
                .with("tensor", &entry.key));
        }
    }
    Ok(entries)
}

/// Reads the text of a quantised file's manifest. The `path` only serves messages.
///
/// # Errors
/// [`ErrorKind::CheckpointInvalid`] when it is none, or rows are not padded to whole blocks;
/// [`ErrorKind::DTypeUnsupported`] for unknown formats.
pub fn read_quant_manifest(text: &[u8], path: &Path) -> Result<Vec<QuantEntry>> {
    let entries: Vec<QuantEntry> = read(text, path)?;
    for entry in &entries {
        entry.dtype().map_err(|e| e.with("file", path.display()))?;
        if !entry.shape[1].is_multiple_of(PADDED) {
            return Err(invalid(
                format!("expected rows of a multiple of {PADDED} elements, found {}", entry.shape[1]),
                path,
            )
            .with("tensor", &entry.key));
        }
    }
    Ok(entries)
}

fn read<T: DeserializeOwned>(text: &[u8], path: &Path) -> Result<T> {
    serde_json::from_slice(text).map_err(|e| {
        invalid("expected a list of tensors with key, shape, offset and length", path).with_source(e)
    })
}

impl WeightEntry {
    /// An entry of floats, whose bytes tell which.
    pub(crate) fn float(
        key: &str,
        shape: [usize; 2],
        is_vector: bool,
        offset: u64,
        length: u64,
        file: String,
    ) -> Self {
        let (kind, shape) = match is_vector {
            true => ("vector", vec![shape[1]]),
            false => ("tensor", shape.to_vec()),
        };
        Self { key: key.to_owned(), kind: kind.to_owned(), shape, offset, length, file }
    }

    /// An entry of a matrix in Q4_K, of padded rows.
    pub(crate) fn q4k(key: &str, shape: [usize; 2], offset: u64, length: u64, file: String) -> Self {
        let (key, kind) = (key.to_owned(), "tensor_q4k".to_owned());
        Self { key, kind, shape: shape.to_vec(), offset, length, file }
    }

    /// How it is stored.
    ///
    /// # Errors
    /// [`ErrorKind::DTypeUnsupported`] for a kind that is not known.
    pub fn kind(&self) -> Result<WeightKind> {
        match self.kind.as_str() {
            "tensor" | "vector" => Ok(WeightKind::Float),
            "tensor_f16" => Ok(WeightKind::F16),
            "packed_bf16" => Ok(WeightKind::Bf16),
            "tensor_q4k" => Ok(WeightKind::Q4K),
            other => Err(unknown("tensor, vector, tensor_f16, tensor_q4k or packed_bf16", other, &self.key)),
        }
    }

    /// The file that holds it.
    pub fn file(&self) -> &str {
        if self.file.is_empty() { LEGACY_WEIGHTS } else { &self.file }
    }
}

impl QuantEntry {
    /// An entry of a matrix of padded rows, in Q4_K or LARQL's Q6_K.
    pub(crate) fn new(key: &str, shape: [usize; 2], dtype: DType, offset: u64, length: u64) -> Self {
        let format = if dtype == DType::Q4_K { "Q4_K" } else { "Q6_K" };
        Self { key: key.to_owned(), shape, format: format.to_owned(), offset, length }
    }

    /// Whether it only keeps the place of a tensor that the slice lacks: readers of LARQL's find entries by position.
    pub fn is_absent(&self) -> bool {
        self.shape[0] == 0 && self.length == 0
    }

    /// How it is stored. Q6_K is LARQL's own, with bits in the order of the elements.
    ///
    /// # Errors
    /// [`ErrorKind::DTypeUnsupported`] for a format that is not known.
    pub fn dtype(&self) -> Result<DType> {
        match self.format.as_str() {
            "Q4_K" => Ok(DType::Q4_K),
            "Q6_K" => Ok(DType::Q6_K_Linear),
            other => Err(unknown("Q4_K or Q6_K", other, &self.key)),
        }
    }
}

fn unknown(expected: &str, found: &str, tensor: &str) -> Error {
    Error::new(ErrorKind::DTypeUnsupported, format!("expected {expected}, found `{found}`"))
        .with("tensor", tensor)
        .with_hint("the folder is of a newer kind: update skulk, or extract the model again")
}
