//! How do bytes become a file that may be continued? Written in order, hashed as they pass, marked where they are safe.

use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::plan::PlanFile;
use super::state::{Mark, State};
use super::target::{self, Work, make_folder, write_error};
use crate::cancel::CancelToken;
use crate::error::Result;
use crate::vindex::hashes::{FileHasher, FileHashes};
use crate::vindex::pieces::read_pieces;
use crate::weights::io_error;

/// What an interruption may cost: bytes that are written again, and time.
const MARK_BYTES: u64 = 64 << 20;
const MARK_TIME: Duration = Duration::from_secs(1);
/// Small pieces are written together.
const BUFFER: usize = 256 << 10;

/// A file that is being written.
pub(super) struct Output<'a> {
    work: &'a Work,
    path: PathBuf,
    file: BufWriter<File>,
    hasher: FileHasher,
    mark: Mark,
    /// Whole sections, and the bytes of all.
    sections: usize,
    bytes: u64,
    marked_at: Instant,
}

impl<'a> Output<'a> {
    /// Opens a file of the folder, behind what an interrupted run has marked as written.
    pub(super) fn open(work: &'a Work, state: &State, plan: &PlanFile, cancel: &CancelToken) -> Result<Self> {
        let name = &plan.name;
        let path = work.folder().join(name);
        if let Some(folder) = path.parent() {
            make_folder(folder)?;
        }
        let mut file = target::open(&path)?;
        let len = file.metadata().map_err(|e| io_error(e, &path, "inspect"))?.len();
        let is_of_it = |mark: &Mark| {
            let sections = plan.sections.get(..mark.sections);
            let bytes = sections.map(|sections| sections.iter().map(|section| section.len).sum::<u64>());
            mark.file == *name && bytes == Some(mark.bytes) && mark.bytes <= len
        };
        let mark = state.current.clone().filter(is_of_it);
        let mark = mark.unwrap_or(Mark { file: name.clone(), sections: 0, bytes: 0 });
        let mut hasher = FileHasher::new();
        read_pieces(&file, &path, &(0..mark.bytes), &mut Vec::new(), |piece| {
            hasher.update(piece);
            cancel.check()
        })?;
        file.set_len(mark.bytes).map_err(|e| write_error(e, &path))?;
        file.seek(SeekFrom::Start(mark.bytes)).map_err(|e| io_error(e, &path, "read"))?;
        Ok(Self {
            work,
            file: BufWriter::with_capacity(BUFFER, file),
            hasher,
            sections: mark.sections,
            bytes: mark.bytes,
            mark,
            marked_at: Instant::now(),
            path,
        })
    }

    /// Sections that are there already.
    pub(super) fn sections(&self) -> usize {
        self.sections
    }

    /// Bytes that are there.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes what is next.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|e| write_error(e, &self.path))?;
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// A section is whole. From time to time the disk is told so.
    pub(super) fn end_section(&mut self, state: &mut State) -> Result<()> {
        self.sections += 1;
        self.mark.sections = self.sections;
        let before = std::mem::replace(&mut self.mark.bytes, self.bytes);
        let marked = state.current.as_ref().filter(|mark| mark.file == self.mark.file);
        let since = self.bytes - marked.map_or(0, |mark| mark.bytes).min(before);
        if since >= MARK_BYTES || self.marked_at.elapsed() >= MARK_TIME {
            self.marked_at = Instant::now();
            self.save(state)?;
        }
        Ok(())
    }

    /// Tells the disk how far the file is, up to the last whole section.
    pub(super) fn save(&mut self, state: &mut State) -> Result<()> {
        if self.mark.sections == 0 || state.current.as_ref() == Some(&self.mark) {
            return Ok(());
        }
        self.store()?;
        state.current = Some(self.mark.clone());
        self.work.save(state)
    }

    /// The file is whole.
    pub(super) fn finish(mut self, state: &mut State) -> Result<()> {
        self.store()?;
        state.done.insert(self.mark.file, self.hasher.finish());
        state.current = None;
        self.work.save(state)
    }

    fn store(&mut self) -> Result<()> {
        let stored = self.file.flush().and_then(|()| self.file.get_ref().sync_data());
        stored.map_err(|e| write_error(e, &self.path))
    }
}

/// Whether a file that was whole is there as it was left.
pub(super) fn is_whole(folder: &Path, name: &str, hashes: &FileHashes) -> bool {
    let found = std::fs::symlink_metadata(folder.join(name));
    found.is_ok_and(|meta| meta.is_file() && meta.len() == hashes.bytes)
}
