//! Is it the same model? A hash of what it is made of.

use std::fmt::Write;
use std::sync::OnceLock;

use sha2::{Digest, Sha256};

use crate::arch::ArchSpec;
use crate::error::{Error, ErrorKind, Result};
use crate::vindex::hashes::hex;
use crate::weights::{Checkpoint, MappedFile, TensorInfo};

/// Places that are looked at in each tensor, and bytes of each; and places in all, at most.
const PLACES: usize = 8;
const BYTES: u64 = 64;
const MOST: usize = 4096;

/// A model's hash, made when it is first asked for: of its description, of all tensors' names, types and shapes, and of
/// some bytes from places that lie evenly in each tensor.
pub(super) struct Fingerprint {
    facts: Sha256,
    files: Vec<MappedFile>,
    parts: Vec<Part>,
    made: OnceLock<String>,
}

/// Bytes of a file that are looked at.
struct Part {
    file: usize,
    offset: u64,
    len: u64,
}

impl Fingerprint {
    pub(super) fn of(arch: &ArchSpec, checkpoint: &dyn Checkpoint) -> Self {
        let (mut facts, tensors) = (format!("{arch:?}\n"), checkpoint.tensors());
        for tensor in tensors {
            // Writing to a text cannot fail.
            let _ = writeln!(facts, "{} {} {:?}", tensor.name, tensor.dtype, tensor.shape);
        }
        // Of many tensors, as experts are, fewer places of each, and then not of each.
        let places = (MOST / tensors.len().max(1)).clamp(1, PLACES) as u64;
        let parts_of = |tensor: &TensorInfo| {
            let (file, start, len) = (tensor.file, tensor.offset, tensor.len.min(BYTES));
            let step = (tensor.len - len) / places;
            (0..places).map(move |place| Part { file, offset: start + step * place + step / 2, len })
        };
        let parts = tensors.iter().step_by(tensors.len().div_ceil(MOST).max(1)).flat_map(parts_of).collect();
        let (facts, files) = (Sha256::new_with_prefix(facts), checkpoint.files().to_vec());
        Self { facts, files, parts, made: OnceLock::new() }
    }

    /// The hash, in hexadecimal digits.
    ///
    /// # Errors
    /// When the checkpoint's files cannot be read any more.
    pub(super) fn get(&self) -> Result<&str> {
        if let Some(made) = self.made.get() {
            return Ok(made);
        }
        let mut hasher = self.facts.clone();
        for Part { file, offset, len } in &self.parts {
            let file = self.files.get(*file).ok_or_else(|| {
                Error::new(ErrorKind::Internal, "a tensor's file is not among the checkpoint's")
            })?;
            hasher.update(file.read_part(*offset, *len)?);
        }
        Ok(self.made.get_or_init(|| hex(hasher)))
    }
}
