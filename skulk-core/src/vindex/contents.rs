//! What is in the folder, part by part, and how large is it?

use std::collections::BTreeMap;

use serde::Serialize;

use super::folder::{Folder, Listed};
use super::{VindexPart, VindexReader};
use crate::bytes::ByteSize;
use crate::error::Result;
use crate::weights::Checkpoint;

/// A part of a vindex that its folder holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct PartInfo {
    /// The part.
    pub part: VindexPart,
    /// Its files, by name.
    pub files: Vec<PartFile>,
    /// What they take together.
    pub bytes: ByteSize,
    /// Tensors in them.
    pub tensors: usize,
}

/// A file of a vindex.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct PartFile {
    /// Its path in the folder.
    pub name: String,
    /// Its size.
    pub bytes: ByteSize,
    /// Tensors in it.
    pub tensors: usize,
}

impl VindexReader {
    /// The parts that the folder holds, and the files of each, as they are now; files that are no vindex's are left
    /// out.
    ///
    /// # Errors
    /// [`FileNotFound`](crate::ErrorKind::FileNotFound) when the folder is gone, [`FileIo`](crate::ErrorKind::FileIo) when it cannot be read.
    pub fn parts(&self) -> Result<Vec<PartInfo>> {
        let mut tensors = vec![0; self.files().len()];
        for tensor in self.tensors() {
            if let Some(n) = tensors.get_mut(tensor.file) {
                *n += 1;
            }
        }
        let mut parts: BTreeMap<VindexPart, Vec<PartFile>> = BTreeMap::new();
        for Listed { name, part, path, len } in Folder::new(self.path()).list()? {
            let Some(part) = part else { continue };
            let open = self.files().iter().position(|file| file.path() == path);
            let tensors = open.and_then(|at| tensors.get(at)).copied().unwrap_or(0);
            parts.entry(part).or_default().push(PartFile { name, bytes: ByteSize(len), tensors });
        }
        Ok(parts
            .into_iter()
            .map(|(part, files)| {
                let bytes = files.iter().map(|file| file.bytes).sum();
                let tensors = files.iter().map(|file| file.tensors).sum();
                PartInfo { part, files, bytes, tensors }
            })
            .collect())
    }
}
