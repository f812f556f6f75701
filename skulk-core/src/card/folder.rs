//! Which card files lie in a folder, and which of them changed?

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use super::schema::ModelCard;
use crate::error::{Error, ErrorKind, Result};
use crate::weights::mmap::io_error;

/// Folders within a user's folder that are searched.
pub(super) const DEEPEST: usize = 8;
/// Files and folders of one user's folder that are looked at.
const MOST_ENTRIES: usize = 65_536;

/// A folder of the user's, as it was when it was last searched.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
    pub(super) files: BTreeMap<PathBuf, File>,
}

/// What a file held when it was last read.
#[derive(Debug)]
pub(super) struct File {
    stamp: Option<Stamp>,
    pub(super) held: Held,
}

#[derive(Debug)]
pub(super) enum Held {
    Card(Arc<ModelCard>),
    /// No card; the place of its error among the problems.
    Problem(usize),
}

/// By what a changed file is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    modified: SystemTime,
    len: u64,
}

impl Folder {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, files: BTreeMap::new() }
    }

    /// Has a file read next time, whatever its time and size: a quick second save may leave both as they were.
    pub(super) fn forget(&mut self, path: &Path) {
        if let Some(file) = self.files.get_mut(path) {
            file.stamp = None;
        }
    }

    /// Brings its files up to date. Errors of unchanged files move from `before` to `problems`.
    pub(super) fn search(&mut self, before: &mut [Option<Error>], problems: &mut Vec<Error>) {
        let mut paths = BTreeSet::new();
        let mut search = Search { left: MOST_ENTRIES, visited: BTreeSet::new(), problems };
        search.folder(&self.path, DEEPEST, &mut paths);

        let mut known = std::mem::take(&mut self.files);
        for path in paths {
            let stamp = Stamp::of(&path);
            let unchanged = known.remove(&path).filter(|file| stamp.is_some() && file.stamp == stamp);
            let held = match unchanged.map(|file| file.held) {
                Some(Held::Card(card)) => Ok(card),
                Some(Held::Problem(index)) => match before.get_mut(index).and_then(Option::take) {
                    Some(error) => Err(error),
                    None => read(&path),
                },
                None => read(&path),
            };
            let held = match held {
                Ok(card) => Held::Card(card),
                Err(error) => {
                    problems.push(error);
                    Held::Problem(problems.len() - 1)
                }
            };
            self.files.insert(path, File { stamp, held });
        }
    }
}

fn read(path: &Path) -> Result<Arc<ModelCard>> {
    let mut card = ModelCard::open(path)?;
    card.is_custom = true;
    Ok(Arc::new(card))
}

impl Stamp {
    /// `None` where the system does not tell: such files are always read.
    fn of(path: &Path) -> Option<Self> {
        let meta = std::fs::metadata(path).ok()?;
        Some(Self { modified: meta.modified().ok()?, len: meta.len() })
    }
}

/// A walk through folders.
struct Search<'a> {
    /// Entries that may still be looked at.
    left: usize,
    /// Folders as they are without links, so that links make no circles.
    visited: BTreeSet<PathBuf>,
    problems: &'a mut Vec<Error>,
}

impl Search<'_> {
    fn folder(&mut self, folder: &Path, levels: usize, paths: &mut BTreeSet<PathBuf>) {
        let entries = folder.canonicalize().and_then(|real| {
            if self.visited.insert(real) { std::fs::read_dir(folder).map(Some) } else { Ok(None) }
        });
        let entries = match entries {
            Ok(Some(entries)) => entries,
            Ok(None) => return,
            Err(error) => return self.problems.push(io_error(error, folder, "list")),
        };
        for entry in entries.flatten() {
            let Some(left) = self.left.checked_sub(1) else { return };
            self.left = left;
            if left == 0 {
                let message = format!("expected at most {MOST_ENTRIES} files and folders, found more");
                let error = Error::new(ErrorKind::InvalidArgument, message);
                self.problems.push(error.with("file", folder.display()).with_hint("give a folder of cards"));
                return;
            }
            let path = entry.path();
            let name = entry.file_name();
            let name = name.to_string_lossy();
            // What editors and saves leave for a moment is hidden.
            if name.starts_with('.') {
                continue;
            }
            let is_card =
                name.ends_with(".toml") || name.ends_with(".json") && !name.ends_with(".schema.json");
            if path.is_dir() {
                if levels > 0 {
                    self.folder(&path, levels - 1, paths);
                }
            } else if is_card {
                paths.insert(path);
            }
        }
    }
}
