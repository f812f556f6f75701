//! Which files of the folder may be opened? Those in it, and no others.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

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

    /// Where a file of that name lies; `None` where there is none.
    fn find(&self, name: &str, named_by: &str) -> Result<Option<PathBuf>> {
        let outside = |found: String| {
            invalid(format!("expected files inside the folder, found {found}"), &self.path.join(named_by))
                .with("found", name)
        };
        let inside = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
        if !inside || name.is_empty() {
            return Err(outside(format!("the path {name:?}")));
        }
        let path = self.path.join(name);
        match leads_out(&self.path, &path) {
            Ok(None) => Ok(Some(path)),
            Ok(Some(target)) => Err(outside(format!("a link to {}", target.display()))),
            Err(e) if e.kind() == ErrorKind::FileNotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// A JSON file's text; `None` where there is none.
    pub(super) fn text(&self, name: &str) -> Result<Option<(Vec<u8>, PathBuf)>> {
        let Some(path) = self.find(name, name)? else { return Ok(None) };
        Ok(read_bytes(&path, ErrorKind::CheckpointInvalid)?.map(|text| (text, path)))
    }

    /// Opens a weight file that `named_by` names, once; `None` where there is none.
    pub(crate) fn open(&mut self, name: &str, named_by: &str) -> Result<Option<usize>> {
        if let Some(&file) = self.by_name.get(name) {
            return Ok(file);
        }
        let file = match self.find(name, named_by)? {
            Some(path) => {
                self.files.push(MappedFile::open(path)?);
                Some(self.files.len() - 1)
            }
            None => None,
        };
        self.by_name.insert(name.to_owned(), file);
        Ok(file)
    }

    /// Regular files of the folder and of `layers/`, by name; of those that are a vindex's, links are followed, which
    /// must not lead out.
    pub(super) fn list(&self) -> Result<Vec<Listed>> {
        let mut names = names(&self.path)?;
        if self.path.join(LAYERS).is_dir() {
            names.extend(names_in_layers(&self.path)?);
        }
        names.sort_unstable();
        let mut files = Vec::new();
        for name in names {
            let part = VindexPart::of(&name);
            let path = match part {
                Some(_) => self.find(&name, &name)?,
                None => Some(self.path.join(&name)),
            };
            // A link to nowhere is no file.
            let Some(path) = path else { continue };
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
