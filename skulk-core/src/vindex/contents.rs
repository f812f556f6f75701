//! What is in the folder, part by part, and how large is it?

use std::collections::BTreeMap;

use super::{VindexPart, VindexReader};
use crate::bytes::ByteSize;
use crate::error::{ErrorKind, Result};
use crate::weights::{Checkpoint, io_error};

/// A part of a vindex that its folder holds.
#[derive(Debug, Clone, PartialEq, Eq)]
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
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// [`ErrorKind::FileNotFound`] when the folder is gone, [`ErrorKind::FileIo`] when it cannot be read.
    pub fn parts(&self) -> Result<Vec<PartInfo>> {
        let mut tensors = vec![0; self.files().len()];
        for tensor in self.tensors() {
            if let Some(n) = tensors.get_mut(tensor.file) {
                *n += 1;
            }
        }
        let mut parts: BTreeMap<VindexPart, Vec<PartFile>> = BTreeMap::new();
        for sub in ["", "layers/"] {
            for (name, bytes) in self.list(sub)? {
                let Some(part) = VindexPart::of(&name) else { continue };
                let path = self.path().join(&name);
                let open = self.files().iter().position(|file| file.path() == path);
                let tensors = open.and_then(|at| tensors.get(at)).copied().unwrap_or(0);
                parts.entry(part).or_default().push(PartFile { name, bytes: ByteSize(bytes), tensors });
            }
        }
        Ok(parts
            .into_iter()
            .map(|(part, mut files)| {
                files.sort_by(|a, b| a.name.cmp(&b.name));
                let bytes = files.iter().map(|file| file.bytes).sum();
                let tensors = files.iter().map(|file| file.tensors).sum();
                PartInfo { part, files, bytes, tensors }
            })
            .collect())
    }

    /// Names and sizes of the regular files in the folder, or in one in it where that is there.
    fn list(&self, sub: &str) -> Result<Vec<(String, u64)>> {
        let folder = self.path().join(sub);
        let entries = match std::fs::read_dir(&folder).map_err(|e| io_error(e, &folder, "list")) {
            Err(e) if !sub.is_empty() && e.kind() == ErrorKind::FileNotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut files = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|e| io_error(e, &folder, "list"))?;
            let path = entry.path();
            let meta = match std::fs::metadata(&path).map_err(|e| io_error(e, &path, "inspect")) {
                Ok(meta) => meta,
                // A link that leads nowhere, or a file that was removed meanwhile.
                Err(e) if e.kind() == ErrorKind::FileNotFound => continue,
                Err(e) => return Err(e),
            };
            if let (true, Some(name)) = (meta.is_file(), entry.file_name().to_str()) {
                files.push((format!("{sub}{name}"), meta.len()));
            }
        }
        Ok(files)
    }
}
