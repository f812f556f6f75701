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
    tensors: Vec<TensorInfo>,
    made: OnceLock<String>,
}

impl Fingerprint {
    pub(super) fn of(arch: &ArchSpec, checkpoint: &dyn Checkpoint) -> Self {
        let mut facts = format!("{arch:?}\n");
        for tensor in checkpoint.tensors() {
            // Writing to a text cannot fail.
            let _ = writeln!(facts, "{} {} {:?}", tensor.name, tensor.dtype, tensor.shape);
        }
        let (tensors, files) = (checkpoint.tensors().to_vec(), checkpoint.files().to_vec());
        Self { facts: Sha256::new_with_prefix(facts), files, tensors, made: OnceLock::new() }
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
        // Of many tensors, as experts are, fewer places of each, and then not of each.
        let places = (MOST / self.tensors.len().max(1)).clamp(1, PLACES) as u64;
        for tensor in self.tensors.iter().step_by(self.tensors.len().div_ceil(MOST).max(1)) {
            let file = self.files.get(tensor.file).ok_or_else(|| {
                Error::new(ErrorKind::Internal, "a tensor's file is not among the checkpoint's")
                    .with("tensor", &tensor.name)
            })?;
            let len = tensor.len.min(BYTES);
            for place in 0..places {
                let at = (tensor.len - len) / places * place + (tensor.len - len) / places / 2;
                hasher.update(file.read_part(tensor.offset + at, len)?);
            }
        }
        Ok(self.made.get_or_init(|| hex(hasher)))
    }
}
