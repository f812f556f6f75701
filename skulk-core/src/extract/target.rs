//! Where is a folder written until it is whole? Beside its place, under a hidden name that the next run finds again.
//!
//! `.NAME.partial` holds the folder to be, what of it is done, and a lock. The folder is moved to its place as the last
//! step, so that nothing unfinished ever lies there.

use std::fs::{File, TryLockError};
use std::io::{ErrorKind as Io, Write};
use std::path::{Component, Path, PathBuf};

#[cfg(unix)]
use rustix::fs::OFlags;

use super::state::State;
use crate::error::{Error, ErrorKind, Result};
use crate::weights::mmap::{self, expect_not_mounted, io_error};

/// What the working folder has in it, and nothing else.
const OWN: [&str; 4] = [LOCK, FOLDER, STATE, NEW_STATE];
const LOCK: &str = "lock";
const FOLDER: &str = "vindex";
const STATE: &str = "state.json";
const NEW_STATE: &str = "state.new";

/// Where an extraction works.
#[derive(Debug)]
pub(super) struct Work {
    target: PathBuf,
    partial: PathBuf,
    lock: Lock,
}

/// A file that is locked for as long as this lives.
#[derive(Debug)]
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing alone would not do while a process that is just being started still has the file open too.
        let _ = self.0.unlock();
    }
}

impl Work {
    /// Takes the working folder of `target`, made where there is none. `source` must not be within the target.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a target that is no name of a folder, exists and is not empty, or has the
    /// source in it; [`ErrorKind::FileIo`] when another extraction works there, or the system refuses.
    pub(super) fn take(target: &Path, source: &Path) -> Result<Self> {
        let refused = |message: String, hint: &'static str| {
            Err(Error::new(ErrorKind::InvalidArgument, message)
                .with("file", target.display())
                .with_hint(hint))
        };
        let Some(Component::Normal(name)) = target.components().next_back() else {
            return refused(
                "expected the path of a folder to be made".to_owned(),
                "give a path that ends in the new folder's name",
            );
        };
        if let (Ok(target), Ok(source)) = (target.canonicalize(), source.canonicalize())
            && source.starts_with(&target)
        {
            return refused(
                format!("expected a folder beside the source, found {} in it", source.display()),
                "give the path of a folder that does not exist",
            );
        }
        match std::fs::symlink_metadata(target) {
            Err(e) if e.kind() == Io::NotFound => {}
            Err(e) => return Err(io_error(e, target, "inspect")),
            Ok(meta) if meta.is_dir() && is_empty(target)? => expect_not_mounted(target)?,
            Ok(meta) => {
                let found = if meta.is_dir() { "a folder with files" } else { "something else" };
                return refused(
                    format!("expected no or an empty folder at the target, found {found}"),
                    "remove it, or give another path",
                );
            }
        }
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(".partial");
        let partial = target.with_file_name(hidden);
        if let Some(parent) = partial.parent() {
            std::fs::create_dir_all(parent).map_err(|e| io_error(e, parent, "make"))?;
        }
        make_folder(&partial)?;
        for path in entries(&partial)? {
            expect_no_link(&path)?;
            if !OWN.iter().any(|own| path.file_name() == Some(own.as_ref())) {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                return Err(foreign(&partial, &format!("`{name}` in it, which is none of that")));
            }
        }
        let path = partial.join(LOCK);
        let lock = open(&path)?;
        match lock.try_lock() {
            Ok(()) => {}
            // Where the file system has no locks, it is up to the caller.
            Err(TryLockError::Error(e)) if e.kind() == Io::Unsupported => {}
            Err(TryLockError::Error(e)) => return Err(io_error(e, &path, "lock")),
            Err(TryLockError::WouldBlock) => {
                return Err(Error::new(
                    ErrorKind::FileIo,
                    "expected to be the only extraction to this target, found another one at work",
                )
                .with("file", target.display())
                .with_hint("wait until it ends, or give another path"));
            }
        }
        Ok(Self { target: target.to_owned(), partial, lock: Lock(lock) })
    }

    /// The folder to be.
    pub(super) fn folder(&self) -> PathBuf {
        self.partial.join(FOLDER)
    }

    fn state(&self) -> PathBuf {
        self.partial.join(STATE)
    }

    /// What an interrupted run left.
    pub(super) fn left(&self) -> Result<Option<State>> {
        State::read(&self.state())
    }

    /// Forgets what an interrupted run left.
    pub(super) fn clear(&self) -> Result<()> {
        let (state, folder) = (self.state(), self.folder());
        for removed in [std::fs::remove_file(&state), std::fs::remove_dir_all(&folder)] {
            match removed {
                Err(e) if e.kind() != Io::NotFound => return Err(io_error(e, &self.partial, "clear")),
                _ => {}
            }
        }
        make_folder(&folder)
    }

    /// Removes what an interrupted run, or whoever, left beside files that will be there.
    pub(super) fn keep(&self, is_wanted: impl Fn(&str) -> bool) -> Result<()> {
        let root = self.folder();
        make_folder(&root)?;
        for folder in folders(&root)? {
            for path in entries(&folder)? {
                let name = path.strip_prefix(&root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
                if path.is_symlink() || !path.is_dir() && !is_wanted(&name) {
                    std::fs::remove_file(&path).map_err(|e| io_error(e, &path, "remove"))?;
                }
            }
        }
        Ok(())
    }

    /// Says on the disk how far it is.
    pub(super) fn save(&self, state: &State) -> Result<()> {
        let path = self.state();
        let beside = self.partial.join(NEW_STATE);
        write(&beside, &state.to_json())?;
        std::fs::rename(&beside, &path).map_err(|e| io_error(e, &path, "replace"))
    }

    /// Moves the folder to its place.
    pub(super) fn finish(self) -> Result<()> {
        let folder = self.folder();
        for folder in folders(&folder)? {
            sync_folder(&folder)?;
        }
        match std::fs::remove_dir(&self.target) {
            Err(e) if e.kind() != Io::NotFound => return Err(io_error(e, &self.target, "replace")),
            _ => {}
        }
        std::fs::rename(&folder, &self.target).map_err(|e| io_error(e, &self.target, "make"))?;
        if let Some(parent) = self.target.parent() {
            sync_folder(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })?;
        }
        // What is left says nothing any more; it may stay where it cannot be removed.
        drop(self.lock);
        for name in [LOCK, STATE, NEW_STATE] {
            let _ = std::fs::remove_file(self.partial.join(name));
        }
        // Whatever else is there by now is somebody's.
        let _ = std::fs::remove_dir(&self.partial);
        Ok(())
    }
}

fn is_empty(folder: &Path) -> Result<bool> {
    Ok(entries(folder)?.is_empty())
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let listed = std::fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>());
    listed.map_err(|e| io_error(e, folder, "list"))
}

/// Opens a file of the working folder to be written, made where there is none. Whoever may write there may have planted
/// a link meanwhile, to what is not theirs: it is not followed.
pub(super) fn open(path: &Path) -> Result<File> {
    let mut options = File::options();
    options.create(true).truncate(false).read(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed(),
    );
    // `FILE_FLAG_OPEN_REPARSE_POINT`: a link itself is opened.
    #[cfg(windows)]
    std::os::windows::fs::OpenOptionsExt::custom_flags(&mut options, 0x0020_0000);
    let opened = options.open(path);
    expect_no_link(path)?;
    let file = opened.map_err(|e| write_error(e, path))?;
    match file.metadata().map_err(|e| io_error(e, path, "inspect"))?.is_file() {
        true => Ok(file),
        false => Err(foreign(path, "something else than a file")),
    }
}

/// Writes a file of the working folder anew.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = open(path)?;
    let written = file.set_len(0).and_then(|()| file.write_all(bytes)).and_then(|()| file.sync_data());
    written.map_err(|e| write_error(e, path))
}

/// Makes a folder, unless it is there; a link to one is another's.
pub(super) fn make_folder(path: &Path) -> Result<()> {
    match std::fs::create_dir(path) {
        Err(e) if e.kind() != Io::AlreadyExists => Err(io_error(e, path, "make")),
        _ => {
            expect_no_link(path)?;
            let found = std::fs::symlink_metadata(path).map_err(|e| io_error(e, path, "inspect"))?;
            if found.is_dir() { Ok(()) } else { Err(foreign(path, "a file instead of a folder")) }
        }
    }
}

fn expect_no_link(path: &Path) -> Result<()> {
    if path.is_symlink() { Err(foreign(path, "a link")) } else { Ok(()) }
}

fn foreign(path: &Path, found: &str) -> Error {
    let message = format!("expected what an interrupted extraction left, found {found}");
    Error::new(ErrorKind::InvalidArgument, message)
        .with("file", path.display())
        .with_hint("move it elsewhere, or give another target")
}

/// A folder and those in it.
fn folders(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut all = vec![folder.to_owned()];
    all.extend(entries(folder)?.into_iter().filter(|path| path.is_dir() && !path.is_symlink()));
    Ok(all)
}

/// Names of files are on the disk only when their folder is.
fn sync_folder(folder: &Path) -> Result<()> {
    #[cfg(unix)]
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|e| io_error(e, folder, "store"))?;
    #[cfg(not(unix))]
    let _ = folder;
    Ok(())
}

/// What kept a file from being written.
pub(super) fn write_error(error: std::io::Error, path: &Path) -> Error {
    mmap::write_error(error, path, "make room, then extract again with the same options: it continues")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_extraction_works_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let take = || Work::take(&folder.path().join("v"), Path::new("source"));
        let work = take().unwrap();
        assert!(take().unwrap_err().message().contains("another one at work"));
        // As a process has it that is being started meanwhile.
        let _open = work.lock.0.try_clone().unwrap();
        drop(work);
        take().unwrap();
    }
}
