//! Are bytes what they were? Compared by chunk where hashes of chunks are known, else by file.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::{VerifyKind, VerifyProblem};
use crate::error::Result;
use crate::vindex::folder::Listed;
use crate::vindex::hashes::{CHUNK, Hashes, hex};
use crate::vindex::pieces::read_pieces;
use crate::weights::mmap::open_regular;

/// Bytes of a file that must have a hash.
pub(super) struct Task<'a> {
    pub(super) file: &'a str,
    path: &'a Path,
    range: Range<u64>,
    expected: &'a str,
}

/// Bytes of a file that have another hash than they had.
pub(super) struct Bad {
    file: String,
    range: Range<u64>,
}

/// What there is to compare, and what was seen without comparing.
pub(super) struct Tasks<'a> {
    pub(super) tasks: Vec<Task<'a>>,
    pub(super) problems: Vec<VerifyProblem>,
}

/// What to read. Files of which every byte is compared are added to `verified`.
pub(super) fn tasks<'a>(
    files: &'a [Listed],
    hashes: Option<&'a Hashes>,
    sums: Option<&'a BTreeMap<String, String>>,
    verified: &mut BTreeSet<String>,
) -> Tasks<'a> {
    let mut all = Tasks { tasks: Vec::new(), problems: Vec::new() };
    for listed in files.iter().filter(|file| file.part.is_some()) {
        let (file, path) = (listed.name.as_str(), listed.path.as_path());
        let sum = sums.and_then(|sums| sums.get(file));
        let Some(known) = hashes.and_then(|hashes| hashes.files.get(file)) else {
            if let Some(expected) = sum {
                verified.insert(file.to_owned());
                all.tasks.push(Task { file, path, range: 0..listed.len, expected });
            }
            continue;
        };
        verified.insert(file.to_owned());
        if listed.len != known.bytes {
            let message = format!("expected {} bytes, found {}", known.bytes, listed.len);
            let range = listed.len.min(known.bytes)..listed.len.max(known.bytes);
            all.problems.push(VerifyProblem::new(file, VerifyKind::Size, message).at(range));
        }
        if let Some(sum) = sum
            && !sum.eq_ignore_ascii_case(&known.sha256)
        {
            let message = "expected the same hash in skulk_hashes.json and index.json, found two";
            all.problems.push(VerifyProblem::new(file, VerifyKind::Hash, message));
        }
        let mut start = 0u64;
        for expected in &known.chunks {
            let end = start.saturating_add(CHUNK).min(known.bytes);
            // Of a file that ends too soon, what it still has of a chunk can be told nothing of.
            if end <= listed.len {
                all.tasks.push(Task { file, path, range: start..end, expected });
            }
            start = end;
        }
    }
    all
}

impl Task<'_> {
    pub(super) fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// `None`: the bytes are what they were.
    pub(super) fn run(
        &self,
        buffer: &mut Vec<u8>,
        step: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<Option<Bad>> {
        let mut hasher = Sha256::new();
        read_pieces(&open_regular(self.path)?, self.path, &self.range, buffer, |piece| {
            hasher.update(piece);
            step(piece.len())
        })?;
        let is_same = hex(hasher).eq_ignore_ascii_case(self.expected);
        let bad = || Bad { file: self.file.to_owned(), range: self.range.clone() };
        Ok((!is_same).then(bad))
    }
}

/// One problem for all bad chunks that lie beside each other.
pub(super) fn joined(all: Vec<Bad>) -> impl Iterator<Item = VerifyProblem> {
    let mut runs: Vec<Bad> = Vec::new();
    for bad in all {
        match runs.last_mut() {
            Some(last) if last.file == bad.file && last.range.end == bad.range.start => {
                last.range.end = bad.range.end;
            }
            _ => runs.push(bad),
        }
    }
    runs.into_iter().map(|bad| {
        let message = "expected bytes of the hash that they had, found others";
        VerifyProblem::new(&bad.file, VerifyKind::Hash, message).at(bad.range)
    })
}
