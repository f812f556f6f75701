//! Which files of the folder may be opened? Those whose names lie in it; links are followed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{VindexPart, invalid};
use crate::error::{Error, ErrorKind, Result};
use crate::weights::MappedFile;
use crate::weights::mmap::io_error;
use crate::weights::safetensors::{leads_out, read_bytes};

/// Where files of single layers are.
const LAYERS: &str = "layers";

/// A file of the folder.
#[derive(Debug, Clone)]
pub(super) struct Listed {
    /// Its path in the folder, with `/` between its parts.
    pub(super) name: String,
    /// `None`: it is not a vindex's.
    pub(super) part: Option<VindexPart>,
    pub(super) path: PathBuf,
    pub(super) len: u64,
}

/// Names in a folder that are text.
fn names(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|e| io_error(e, folder, "list"))? {
        let entry = entry.map_err(|e| io_error(e, folder, "list"))?;
        names.extend(entry.file_name().into_string());
    }
    Ok(names)
}

fn names_in_layers(folder: &Path) -> Result<Vec<String>> {
    Ok(names(&folder.join(LAYERS))?.into_iter().map(|name| format!("{LAYERS}/{name}")).collect())
}

/// A vindex folder, and the weight files of it that are open.
pub(crate) struct Folder {
    path: PathBuf,
    pub(super) files: Vec<MappedFile>,
    by_name: BTreeMap<String, Option<usize>>,
}

impl Folder {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), files: Vec::new(), by_name: BTreeMap::new() }
    }

    /// Where a file of that name would lie.
    fn path_of(&self, name: &str, named_by: &str) -> Result<PathBuf> {
        if leads_out(name) {
            let message = format!("expected files inside the folder, found the path {name:?}");
            return Err(invalid(message, &self.path.join(named_by)).with("found", name));
        }
        Ok(self.path.join(name))
    }

    /// A JSON file's text; `None` where there is none.
    pub(super) fn text(&self, name: &str) -> Result<Option<(Vec<u8>, PathBuf)>> {
        let path = self.path_of(name, name)?;
        Ok(read_bytes(&path, ErrorKind::CheckpointInvalid)?.map(|text| (text, path)))
    }

    /// Opens a weight file that `named_by` names, once; `None` where there is none.
    pub(crate) fn open(&mut self, name: &str, named_by: &str) -> Result<Option<usize>> {
        if let Some(&file) = self.by_name.get(name) {
            return Ok(file);
        }
        let file = match MappedFile::open(self.path_of(name, named_by)?) {
            Ok(file) => {
                self.files.push(file);
                Some(self.files.len() - 1)
            }
            Err(e) if e.kind() == ErrorKind::FileNotFound => None,
            Err(e) => return Err(e),
        };
        self.by_name.insert(name.to_owned(), file);
        Ok(file)
    }

    /// Regular files of the folder and of `layers/`, by name.
    pub(super) fn list(&self) -> Result<Vec<Listed>> {
        let mut names = names(&self.path)?;
        if self.path.join(LAYERS).is_dir() {
            names.extend(names_in_layers(&self.path)?);
        }
        names.sort_unstable();
        let mut files = Vec::new();
        for name in names {
            let part = VindexPart::of(&name);
            let path = self.path.join(&name);
            // A link to nowhere is no file.
            let Ok(meta) = std::fs::metadata(&path) else { continue };
            if meta.is_file() {
                files.push(Listed { name, part, path, len: meta.len() });
            }
        }
        Ok(files)
    }

    /// An open file.
    pub(crate) fn file(&self, at: usize) -> Result<&MappedFile> {
        self.files.get(at).ok_or_else(|| Error::new(ErrorKind::Internal, "a file is not open"))
    }

    pub(super) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}
