//! Is a folder what it was when it was made? Sizes, structure and hashes, and numbers on request.

mod hash;
mod missing;
mod options;
mod report;
mod structure;
mod values;

pub use options::VerifyOptions;
pub use report::{VerifiedFile, VerifyKind, VerifyProblem, VerifyReport, VerifyStatus};

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::folder::{Folder, Listed};
use super::hashes::Hashes;
use super::{INDEX, VindexIndex, VindexProgress, VindexReader, check_threads, no_index};
use crate::error::{Error, ErrorKind, Result};
use crate::weights::Checkpoint;
use crate::workers::share_out;

/// Verifies the vindex at `path`, which need not be one that can be opened: what keeps it from that is a problem of the
/// report. Reads files piece by piece, several at a time, and holds no more than a megabyte of each.
///
/// Hashes are those of `skulk_hashes.json`, which tell the first bad 16 MiB, and those of the index, of whole files.
/// A folder without either is checked for its structure: every tensor in its file, none over another, no bytes between
/// them, the records of `down_meta.bin`. A file that is named and missing is a problem, unless the index says that the
/// folder is a slice without it, or of a level without it.
///
/// ```no_run
/// use skulk::vindex::{VerifyOptions, verify_vindex};
/// let report = verify_vindex("gemma-3-270m.vindex", &VerifyOptions::default().values(true))?;
/// assert!(report.is_sound(), "{report}");
/// # Ok::<(), skulk::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::FileNotFound`] without an `index.json`, [`ErrorKind::InvalidArgument`] for 0 threads and more than
/// 1,024, [`ErrorKind::Cancelled`], and [`ErrorKind::FileIo`] when the folder cannot be listed.
pub fn verify_vindex(path: impl AsRef<Path>, options: &VerifyOptions) -> Result<VerifyReport> {
    let path = path.as_ref();
    options.cancel.check()?;
    check_threads(options.threads)?;
    let folder = Folder::new(path);
    let mut problems = Problems { path, found: Vec::new() };
    let files = match folder.list() {
        Ok(files) => files,
        Err(e) if e.kind() == ErrorKind::CheckpointInvalid => {
            problems.add(&e);
            return Ok(VerifyReport::new(path, Vec::new(), problems.found, 0));
        }
        Err(e) => return Err(e),
    };
    let index = match folder.text(INDEX) {
        Ok(Some((text, file))) => problems.tried(VindexIndex::parse(&text, &file)),
        Ok(None) => return Err(no_index(path)),
        Err(e) => problems.tried(Err(e)),
    };
    let hashes = problems.tried(Hashes::read(path)).flatten();
    // What keeps the index from being read would be found again.
    let reader = index.as_ref().and_then(|_| problems.tried(VindexReader::open(path)));
    let names: BTreeSet<&str> = files.iter().map(|file| file.name.as_str()).collect();
    let missing = match &index {
        Some(index) => missing::missing(index, reader.as_ref(), hashes.as_ref(), &names),
        None => Vec::new(),
    };
    if let Some(hashes) = &hashes {
        problems.found.extend(missing::unlisted(&files, hashes));
    }
    if let Some(reader) = &reader {
        problems.found.extend(structure::gaps(reader));
        problems.found.extend(structure::unmentioned(&files, reader));
    }
    if let Some(index) = &index {
        problems.found.extend(structure::down_meta(&files, index));
        problems.found.extend(structure::bands(index));
    }

    let mut tasks = Vec::new();
    let mut verified = BTreeSet::new();
    if options.hashes {
        let sums = index.as_ref().and_then(|index| index.checksums.as_ref());
        let found = hash::tasks(&files, hashes.as_ref(), sums, &mut verified);
        problems.found.extend(found.problems);
        tasks.extend(found.tasks.into_iter().map(Task::Hash));
    }
    if let (true, Some(reader)) = (options.values, &reader) {
        tasks.extend(values::tasks(reader).map(Task::Values));
        let layout = index.as_ref().and_then(|index| values::meta_task(&files, index));
        tasks.extend(layout.map(Task::Meta));
    }
    let work =
        Work { options, folder: path, done: AtomicU64::new(0), total: tasks.iter().map(Task::bytes).sum() };
    let results = work.run(&tasks)?;
    let (mut bad_hashes, mut bad_values, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for found in results.into_iter().flatten() {
        match found {
            Found::Hash(bad) => bad_hashes.push(bad),
            Found::Values(bad) => bad_values.push(bad),
            Found::Problem(problem) => others.push(*problem),
        }
    }
    problems.found.extend(hash::joined(bad_hashes));
    problems.found.extend(values::joined(bad_values));
    problems.found.extend(others);
    problems.found.extend(missing);
    let files = report::files(&files, &problems.found, &verified);
    Ok(VerifyReport::new(path, files, problems.found, work.done.into_inner()))
}

impl VindexReader {
    /// Verifies the folder as it is now, as [`verify_vindex`] does.
    ///
    /// # Errors
    /// As [`verify_vindex`].
    pub fn verify(&self, options: &VerifyOptions) -> Result<VerifyReport> {
        verify_vindex(self.path(), options)
    }
}

/// What was found so far.
struct Problems<'a> {
    path: &'a Path,
    found: Vec<VerifyProblem>,
}

impl Problems<'_> {
    fn add(&mut self, error: &Error) {
        self.found.push(VerifyProblem::of(error, self.path));
    }

    /// The value, or `None` with a problem.
    fn tried<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|e| self.add(&e)).ok()
    }
}

/// A piece of the work that reads files.
enum Task<'a> {
    Hash(hash::Task<'a>),
    Values(values::Task<'a>),
    Meta(values::MetaTask<'a>),
}

/// What a task found.
enum Found {
    Hash(hash::Bad),
    Values(values::Bad),
    Problem(Box<VerifyProblem>),
}

impl Task<'_> {
    fn bytes(&self) -> u64 {
        match self {
            Self::Hash(task) => task.bytes(),
            Self::Values(task) => task.bytes(),
            Self::Meta(task) => task.bytes(),
        }
    }
}

/// All tasks, and how far they are.
struct Work<'a> {
    options: &'a VerifyOptions,
    folder: &'a Path,
    done: AtomicU64,
    total: u64,
}

impl Work<'_> {
    fn run(&self, tasks: &[Task<'_>]) -> Result<Vec<Option<Found>>> {
        share_out(self.options.threads, tasks, |buffer, task| self.one(task, buffer))
    }

    fn one(&self, task: &Task<'_>, buffer: &mut Vec<u8>) -> Result<Option<Found>> {
        let file = match task {
            Task::Hash(task) => task.file,
            Task::Values(task) => task.file,
            Task::Meta(task) => task.file,
        };
        let mut step = |bytes: usize| {
            let done = self.done.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
            if let Some(progress) = &self.options.progress {
                progress.tell(&VindexProgress::new(file, None, done, self.total));
            }
            self.options.cancel.check()
        };
        let found = match task {
            Task::Hash(task) => task.run(buffer, &mut step).map(|bad| bad.map(Found::Hash)),
            Task::Values(task) => task.run(buffer, &mut step).map(|bad| bad.map(Found::Values)),
            Task::Meta(task) => {
                task.run(buffer, &mut step).map(|problem| problem.map(Box::new).map(Found::Problem))
            }
        };
        // A disk that cannot be read is what one verifies for.
        found.or_else(|e| match e.kind() {
            ErrorKind::Cancelled => Err(e),
            _ => Ok(Some(Found::Problem(Box::new(VerifyProblem::of(&e, self.folder))))),
        })
    }
}

/// A listed file of that name.
fn named<'a>(files: &'a [Listed], name: &str) -> Option<&'a Listed> {
    files.iter().find(|file| file.name == name)
}
