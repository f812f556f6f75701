//! How does a file come into another folder? As a link, as a clone, as a copy, or put together of pieces.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use super::plan::{Piece, Planned};
use super::{SliceCopy, SliceMethod, SlicedFile};
use crate::bytes::ByteSize;
use crate::cancel::CancelToken;
use crate::error::{Error, Result};
use crate::vindex::hashes::{FileHasher, FileHashes};
use crate::vindex::pieces::read_pieces;
use crate::weights::mmap::{self, io_error, open_regular};

/// Bytes between two looks at the token.
const STEP: usize = 4 << 20;

/// What bringing files needs to know.
pub(super) struct Transfer<'a> {
    pub(super) copy: SliceCopy,
    pub(super) cancel: &'a CancelToken,
    /// Told how many bytes more are there.
    pub(super) step: &'a (dyn Fn(u64) + Sync),
}

impl Transfer<'_> {
    /// Brings a file into `folder`. Tells its hashes where its bytes were looked at.
    pub(super) fn run(&self, file: &Planned, folder: &Path) -> Result<(SlicedFile, Option<FileHashes>)> {
        self.cancel.check()?;
        let to = folder.join(&file.name);
        if let Some(parent) = to.parent() {
            std::fs::create_dir_all(parent).map_err(|e| io_error(e, parent, "make"))?;
        }
        let (method, hashes) = match &file.pieces {
            Some(pieces) => (SliceMethod::Rewritten, Some(self.rewrite(&file.path, pieces, &to)?)),
            None => (self.whole(file, &to)?, None),
        };
        Ok((SlicedFile { name: file.name.clone(), bytes: ByteSize(file.len()), method }, hashes))
    }

    fn whole(&self, file: &Planned, to: &Path) -> Result<SliceMethod> {
        // A link to a link would be one to where the folder lies now.
        let from = file.path.canonicalize().map_err(|e| io_error(e, &file.path, "find"))?;
        if self.copy == SliceCopy::Auto && is_linked(&file.name) && std::fs::hard_link(&from, to).is_ok() {
            (self.step)(file.len());
            return Ok(SliceMethod::Linked);
        }
        if cfg!(target_vendor = "apple") {
            // What clones there cannot be asked alone, nor interrupted.
            std::fs::copy(&from, to).map_err(|e| write_error(e, to).with("source", from.display()))?;
            (self.step)(file.len());
            return Ok(SliceMethod::Copied);
        }
        let source = open_regular(&from)?;
        let target = create(to)?;
        if is_cloned(&source, &target) {
            (self.step)(file.len());
            return Ok(SliceMethod::Cloned);
        }
        self.copy(&source, &from, &target, to)?;
        target.sync_all().map_err(|e| write_error(e, to))?;
        Ok(SliceMethod::Copied)
    }

    fn copy(&self, source: &File, from: &Path, mut target: &File, to: &Path) -> Result<()> {
        loop {
            self.cancel.check()?;
            // In the kernel where it can, which clones blocks on some network file systems.
            let copied = std::io::copy(&mut source.take(STEP as u64), &mut target)
                .map_err(|e| write_error(e, to).with("source", from.display()))?;
            if copied == 0 {
                return Ok(());
            }
            (self.step)(copied);
        }
    }

    fn rewrite(&self, from: &Path, pieces: &[Piece], to: &Path) -> Result<FileHashes> {
        let source = open_regular(from)?;
        let mut target = create(to)?;
        let mut hasher = FileHasher::new();
        let mut buffer = Vec::new();
        let mut put = |bytes: &[u8]| -> Result<()> {
            self.cancel.check()?;
            hasher.update(bytes);
            target.write_all(bytes).map_err(|e| write_error(e, to))?;
            (self.step)(bytes.len() as u64);
            Ok(())
        };
        for piece in pieces {
            let range = match piece {
                Piece::Bytes(bytes) => {
                    put(bytes)?;
                    continue;
                }
                Piece::Range(range) => range,
            };
            read_pieces(&source, from, range, &mut buffer, &mut put)?;
        }
        target.sync_all().map_err(|e| write_error(e, to))?;
        Ok(hasher.finish())
    }
}

/// What kept a file from being written.
pub(super) fn write_error(error: std::io::Error, path: &Path) -> Error {
    mmap::write_error(error, path, "make room, then slice again: nothing is left of this one")
}

/// Whether a link is as good as a file of its own: weights are never written to, texts and stores are.
fn is_linked(name: &str) -> bool {
    (name.ends_with(".bin") || name.ends_with(".weights")) && name != "knn_store.bin"
}

fn create(path: &Path) -> Result<File> {
    File::create_new(path).map_err(|e| io_error(e, path, "make"))
}

/// Makes `target` share all blocks of `source`, if the file system can.
#[cfg(target_os = "linux")]
fn is_cloned(source: &File, target: &File) -> bool {
    rustix::fs::ioctl_ficlone(target, source).is_ok()
}

/// Only Linux is asked; others may clone when copying.
#[cfg(not(target_os = "linux"))]
fn is_cloned(_: &File, _: &File) -> bool {
    false
}
