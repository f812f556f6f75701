//! How does a part of a vindex become a folder of its own? Files are linked where whole, and written again where only
//! some layers or experts are wanted.

mod cut;
mod options;
mod plan;
mod preset;
mod select;
mod transfer;

pub use options::{SliceCopy, SliceMethod, SliceOptions, SliceReport, SlicedFile};
pub use preset::SlicePreset;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use self::plan::{Planned, plan};
use self::select::Selection;
use self::transfer::{Transfer, write_error};
use super::files::HASHES;
use super::folder::Folder;
use super::hashes::{FileHashes, Hashes};
use super::{INDEX, VindexProgress, VindexReader, check_threads};
use crate::bytes::ByteSize;
use crate::error::{Error, ErrorKind, Result};
use crate::weights::Checkpoint;
use crate::weights::mmap::{expect_not_mounted, io_error};
use crate::workers::share_out;

impl VindexReader {
    /// Makes a folder at `target` of what a role takes of this one, or of some of its layers or experts.
    ///
    /// Files that are taken whole are hard links where the file system can, else share blocks copy-on-write where it
    /// can, else are copies; texts are always copies, since people edit them. Files of which only some layers or
    /// experts are taken are written anew. `index.json` then says what the folder is, so that whatever it is asked for
    /// and lacks is an error that names it. All is made in a folder beside `target`, which gets its name at the end:
    /// an error, a cancellation or a kill leaves nothing under that name. Folders above it are made.
    ///
    /// ```no_run
    /// use skulk::VindexReader;
    /// use skulk::vindex::{SliceOptions, SlicePreset};
    /// let vindex = VindexReader::open("gemma-3-270m.vindex")?;
    /// let options = SliceOptions::default().preset(SlicePreset::Server).layers(0..9);
    /// println!("{}", vindex.slice("gemma-3-270m.server", &options)?);
    /// # Ok::<(), skulk::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for 0 threads and more than 1,024, for layers and experts that the model does not
    /// have, for experts of models without, for files that cannot be cut, and for a `target` that is there and not an
    /// empty folder;
    /// [`ErrorKind::TensorMissing`] for a part, layers or experts that this folder lacks;
    /// [`ErrorKind::CheckpointInvalid`] and [`ErrorKind::CheckpointTruncated`] for damaged files;
    /// [`ErrorKind::FileIo`]; [`ErrorKind::Cancelled`].
    pub fn slice(&self, target: impl AsRef<Path>, options: &SliceOptions) -> Result<SliceReport> {
        let target = target.as_ref();
        options.cancel.check()?;
        check_threads(options.threads)?;
        let parent = check_target(target)?;
        let folder = Folder::new(self.path());
        let files = folder.list()?;
        let selection = Selection::new(self, &files, options)?;
        let plan = plan(self, &folder, files, &selection)?;
        let hashes = Hashes::read(self.path())?;

        let work = work_folder(parent, target)?;
        let total = plan.files.iter().map(Planned::len).sum();
        let done = AtomicU64::new(0);
        let transfer = |file: &Planned| {
            let step = |bytes: u64| {
                let done = done.fetch_add(bytes, Ordering::Relaxed) + bytes;
                if let Some(progress) = &options.progress {
                    progress.tell(&VindexProgress::new(&file.name, None, done, total));
                }
            };
            Transfer { copy: options.copy, cancel: &options.cancel, step: &step }.run(file, work.path())
        };
        let brought: Vec<(SlicedFile, Option<FileHashes>)> =
            share_out(options.threads, &plan.files, |_: &mut (), file| transfer(file))?;

        let mut report = SliceReport {
            target: target.to_owned(),
            files: Vec::new(),
            left_out: plan.left_out,
            lacks: selection.lacks.clone(),
        };
        let mut index = plan.index;
        let mut kept = Hashes::new(BTreeMap::new());
        let mut sums = BTreeMap::new();
        for (file, rewritten) in brought {
            if let Some(hash) = index.checksums.as_ref().and_then(|sums| sums.get(&file.name)) {
                let hash = rewritten.as_ref().map_or(hash, |new| &new.sha256);
                sums.insert(file.name.clone(), hash.clone());
            }
            let known = hashes.as_ref().and_then(|hashes| hashes.files.get(&file.name)).cloned();
            if let Some(hashes) = rewritten.or(known) {
                kept.files.insert(file.name.clone(), hashes);
            }
            report.files.push(file);
        }
        index.checksums = index.checksums.map(|_| sums);
        let text = serde_json::to_vec_pretty(&index)
            .map_err(|e| Error::new(ErrorKind::Internal, "cannot write the index as JSON").with_source(e))?;
        let mut put = |name: &str, text: &[u8]| -> Result<()> {
            let path = work.path().join(name);
            std::fs::write(&path, text).map_err(|e| write_error(e, &path))?;
            let (name, bytes) = (name.to_owned(), ByteSize(text.len() as u64));
            report.files.push(SlicedFile { name, bytes, method: SliceMethod::Rewritten });
            Ok(())
        };
        if let Some(hashes) = hashes {
            if hashes.files.contains_key(INDEX) {
                kept.files.insert(INDEX.to_owned(), FileHashes::of(&text));
            }
            put(HASHES, kept.to_json().as_bytes())?;
        }
        put(INDEX, &text)?;
        report.files.sort_by(|a, b| a.name.cmp(&b.name));
        options.cancel.check()?;
        // Elsewhere a folder takes the place of an empty one.
        if cfg!(windows) {
            let _ = std::fs::remove_dir(target);
        }
        std::fs::rename(work.path(), target).map_err(|e| io_error(e, target, "name"))?;
        Ok(report)
    }
}

/// The folder that `target` is in, if it may be made.
fn check_target(target: &Path) -> Result<&Path> {
    let is_free = match std::fs::read_dir(target) {
        Ok(mut entries) => entries.next().is_none(),
        Err(e) => e.kind() == std::io::ErrorKind::NotFound,
    };
    if !is_free || target.file_name().is_none() {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            "expected a folder that does not exist or is empty, found something else",
        )
        .with("file", target.display())
        .with("field", "target")
        .with_hint("give another name, or remove what is there"));
    }
    if target.exists() {
        expect_not_mounted(target)?;
    }
    Ok(target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")))
}

/// A folder beside the target, which goes unless it is renamed.
fn work_folder(parent: &Path, target: &Path) -> Result<tempfile::TempDir> {
    std::fs::create_dir_all(parent).map_err(|e| io_error(e, parent, "make"))?;
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let prefix = format!(".{name}.");
    let mut named = tempfile::Builder::new();
    named.prefix(&prefix);
    // Temporary folders are for their owner only unless told otherwise.
    #[cfg(unix)]
    named.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o777));
    named.tempdir_in(parent).map_err(|e| io_error(e, target, "make a folder for"))
}
