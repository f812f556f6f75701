//! Which files will there be, and what lies where in each? All of it is known before anything is written.

use std::path::PathBuf;

use sha2::{Digest, Sha256};

use super::options::ExtractFile;
use super::source::Source;
use crate::bytes::ByteSize;
use crate::error::{Error, ErrorKind, Result};
use crate::vindex::hashes::hex;
use crate::vindex::{VindexLayer, VindexPart};
use crate::weights::quant::encoded_row_bytes;
use crate::weights::{DType, io_error};

/// All files but the index and the hashes, which take what the others turned out to be.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) files: Vec<PlanFile>,
    /// What the index says of gate vectors.
    pub(super) layers: Vec<VindexLayer>,
    /// Tokens that are kept for each feature.
    pub(super) feature_tokens: usize,
    /// Feed-forward blocks are in `layers/`.
    pub(super) is_per_layer: bool,
    pub(super) warnings: Vec<String>,
}

/// One file: sections behind each other.
#[derive(Debug)]
pub(super) struct PlanFile {
    pub(super) name: String,
    pub(super) part: VindexPart,
    pub(super) sections: Vec<Section>,
    pub(super) len: u64,
}

/// What is written as a whole, and continued behind after an interruption.
#[derive(Debug)]
pub(super) struct Section {
    pub(super) len: u64,
    pub(super) layer: Option<usize>,
    pub(super) content: Content,
}

#[derive(Debug)]
pub(super) enum Content {
    /// These bytes.
    Bytes(Vec<u8>),
    /// Those of this file.
    Copy(PathBuf),
    /// A tensor of the source.
    Rows(Stored),
    /// A matrix of the source, transposed, with rows of zeros up to a whole number of blocks.
    Columns(Stored),
    /// What a layer's features write.
    FeatureTokens(usize),
}

/// A tensor of the source, and how it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) key: String,
    /// Of the source: `[rows, row length]`, of a vector `[1, length]`.
    pub(super) shape: [usize; 2],
    pub(super) is_vector: bool,
    pub(super) dtype: DType,
}

/// Where a tensor lies in its file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) offset: u64,
    pub(super) len: u64,
}

impl Plan {
    /// A hash of what lies where, and of all that does not come out of the source's weights.
    pub(super) fn hash(&self) -> Result<String> {
        let mut hasher = Sha256::new();
        for file in &self.files {
            hasher.update(&file.name);
            for section in &file.sections {
                hasher.update(section.len.to_le_bytes());
                match &section.content {
                    Content::Bytes(bytes) => hasher.update(bytes),
                    Content::Copy(path) => {
                        let bytes = std::fs::read(path).map_err(|e| io_error(e, path, "read"))?;
                        hasher.update(&bytes);
                    }
                    other => hasher.update(format!("{other:?}")),
                }
            }
        }
        Ok(hex(hasher))
    }
}

impl PlanFile {
    pub(super) fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        let part = VindexPart::of(&name).unwrap_or(VindexPart::Index);
        Self { name, part, sections: Vec::new(), len: 0 }
    }

    /// A file of these bytes.
    pub(super) fn of_bytes(name: impl Into<String>, bytes: Vec<u8>) -> Result<Self> {
        let mut file = Self::new(name);
        file.bytes(bytes)?;
        Ok(file)
    }

    pub(super) fn bytes(&mut self, bytes: Vec<u8>) -> Result<Place> {
        let len = bytes.len() as u64;
        self.push(len, None, Content::Bytes(bytes))
    }

    /// A file that is the same as another.
    pub(super) fn copy_of(name: impl Into<String>, path: PathBuf) -> Result<Self> {
        let len = std::fs::metadata(&path).map_err(|e| io_error(e, &path, "inspect"))?.len();
        let mut file = Self::new(name);
        file.push(len, None, Content::Copy(path))?;
        Ok(file)
    }

    /// Puts a tensor behind what there is.
    pub(super) fn rows(&mut self, tensor: Stored, layer: Option<usize>) -> Result<Place> {
        let len = tensor.bytes()?;
        self.push(len, layer, Content::Rows(tensor))
    }

    /// Puts a transposed matrix behind what there is.
    pub(super) fn columns(&mut self, tensor: Stored, layer: Option<usize>) -> Result<Place> {
        let len = tensor.len(tensor.transposed())?;
        self.push(len, layer, Content::Columns(tensor))
    }

    pub(super) fn push(&mut self, len: u64, layer: Option<usize>, content: Content) -> Result<Place> {
        let offset = self.len;
        self.len = offset.checked_add(len).ok_or_else(|| too_large(&self.name))?;
        // Sections are counted as their last bytes are written.
        if len > 0 {
            self.sections.push(Section { len, layer, content });
        }
        Ok(Place { offset, len })
    }

    pub(super) fn to_report(&self) -> ExtractFile {
        ExtractFile { name: self.name.clone(), part: self.part, bytes: ByteSize(self.len) }
    }
}

impl Section {
    pub(super) fn is_tokens(&self) -> bool {
        matches!(self.content, Content::FeatureTokens(_))
    }
}

impl Stored {
    /// A tensor that the source must have.
    ///
    /// # Errors
    /// As [`Source::tensor`].
    pub(super) fn new(source: &Source<'_>, key: String, dtype: DType) -> Result<Self> {
        let tensor = source.tensor(&key)?;
        Ok(Self { key, shape: tensor.shape(), is_vector: tensor.is_vector(), dtype })
    }

    /// Bytes of all rows.
    pub(super) fn bytes(&self) -> Result<u64> {
        self.len(self.shape)
    }

    /// Elements of a row of the matrix, as it is stored.
    pub(super) fn padded(&self) -> usize {
        let [_, width] = self.shape;
        width.next_multiple_of(self.dtype.block_len())
    }

    /// Rows and their length when transposed; rows are as many as those of the matrix are long with their padding.
    pub(super) fn transposed(&self) -> [usize; 2] {
        [self.padded(), self.shape[0]]
    }

    /// Bytes of a stored row of so many elements.
    pub(super) fn row_bytes(&self, len: usize) -> Result<usize> {
        encoded_row_bytes(self.dtype, len).ok_or_else(|| too_large(&self.key))
    }

    fn len(&self, [rows, width]: [usize; 2]) -> Result<u64> {
        let bytes = self.row_bytes(width)? as u64;
        bytes.checked_mul(rows as u64).ok_or_else(|| too_large(&self.key))
    }
}

pub(super) fn too_large(what: &str) -> Error {
    Error::new(ErrorKind::TensorShape, "expected fewer than 2^64 bytes, found more")
        .with("tensor", what)
        .with_hint("the source is damaged or hostile: fetch it again")
}
