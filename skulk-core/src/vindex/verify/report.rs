//! What is wrong with a folder, and where?

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::bytes::ByteSize;
use crate::error::{Error, ErrorKind};
use crate::macros::closed_set;
use crate::vindex::VindexPart;
use crate::vindex::folder::Listed;

closed_set! {
    /// What kind of damage a problem is.
    pub enum VerifyKind {
        /// A file is not there.
        Missing = "missing",
        /// A file is shorter or longer than it was, or than what it is to hold.
        Size = "size",
        /// Bytes are others than they were.
        Hash = "hash",
        /// A tensor lies over another.
        Overlap = "overlap",
        /// Bytes are no tensor's; of a file that no manifest mentions, none are.
        Gap = "gap",
        /// Numbers are infinite or none.
        NotFinite = "not_finite",
        /// A file of weights that has no hash, in a folder that has hashes.
        Unlisted = "unlisted",
        /// A file breaks its format.
        Format = "format",
        /// The system cannot read a file.
        Unreadable = "unreadable",
    }
}

/// Something that is wrong with a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct VerifyProblem {
    /// The file, by its path in the folder.
    pub file: String,
    /// The bytes that it concerns, the first ones where there are more; `None`: no certain ones.
    #[serde(rename = "bytes")]
    pub range: Option<Range<u64>>,
    /// What kind it is.
    pub kind: VerifyKind,
    /// The tensor that it concerns.
    pub tensor: Option<String>,
    /// What was expected, and what found.
    pub message: String,
}

impl VerifyProblem {
    pub(super) fn new(file: &str, kind: VerifyKind, message: impl Into<String>) -> Self {
        Self { file: file.to_owned(), range: None, kind, tensor: None, message: message.into() }
    }

    #[must_use]
    pub(super) fn at(mut self, range: Range<u64>) -> Self {
        self.range = Some(range);
        self
    }

    #[must_use]
    pub(super) fn of_tensor(mut self, tensor: &str) -> Self {
        self.tensor = Some(tensor.to_owned());
        self
    }

    /// What keeps a file of `folder` from being read.
    pub(super) fn of(error: &Error, folder: &Path) -> Self {
        let find =
            |key: &str| error.context().iter().find(|(k, _)| *k == key).map(|(_, value)| value.as_str());
        let kind = match error.kind() {
            _ if find("within").is_some() => VerifyKind::Overlap,
            ErrorKind::CheckpointTruncated => VerifyKind::Size,
            ErrorKind::FileNotFound => VerifyKind::Missing,
            ErrorKind::FileIo => VerifyKind::Unreadable,
            _ => VerifyKind::Format,
        };
        let path = Path::new(find("file").unwrap_or_default());
        let file = path.strip_prefix(folder).unwrap_or(path);
        let number = |key: &str| find(key).and_then(|text| text.parse::<u64>().ok());
        let range = number("offset").map(|offset| {
            let len = std::fs::metadata(path).map_or(0, |meta| meta.len());
            let end = number("bytes").map_or(len, |bytes| offset.saturating_add(bytes));
            offset..end.max(offset)
        });
        Self {
            file: file.to_string_lossy().replace('\\', "/"),
            range,
            kind,
            tensor: find("tensor").map(str::to_owned),
            message: match std::error::Error::source(error) {
                Some(cause) => format!("{}: {cause}", error.message()),
                None => error.message().to_owned(),
            },
        }
    }
}

impl fmt::Display for VerifyProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(range) = &self.range {
            write!(f, ", bytes {}..{}", range.start, range.end)?;
        }
        if let Some(tensor) = &self.tensor {
            write!(f, ", `{tensor}`")?;
        }
        write!(f, ": {}: {}", self.kind.as_str(), self.message)
    }
}

closed_set! {
    /// How a file was found.
    pub enum VerifyStatus {
        /// Its hash is what it was.
        Verified = "verified",
        /// Nothing is wrong with it, but there is no hash to compare with, or none was compared.
        Checked = "checked",
        /// It is not there, though it should be.
        Missing = "missing",
        /// It has a problem.
        Damaged = "damaged",
    }
}

/// A file of a folder that was verified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct VerifiedFile {
    /// Its path in the folder, with `/` between its parts.
    pub name: String,
    /// The part that it belongs to; `None` for files that are not a vindex's, which are not looked at.
    pub part: Option<VindexPart>,
    /// Its length; 0 for one that is missing.
    pub bytes: ByteSize,
    /// How it was found.
    pub status: VerifyStatus,
}

/// What a verification found. As text, a line of summary and one for each problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct VerifyReport {
    /// The folder.
    #[cfg_attr(feature = "schema", schemars(extend("format" = "path")))]
    pub path: PathBuf,
    /// Its files, by name, those included that are missing.
    pub files: Vec<VerifiedFile>,
    /// What is wrong, by file and place.
    pub problems: Vec<VerifyProblem>,
    /// Bytes that were read for hashes and numbers.
    pub bytes_read: ByteSize,
}

impl VerifyReport {
    pub(super) fn new(
        path: &Path,
        files: Vec<VerifiedFile>,
        mut problems: Vec<VerifyProblem>,
        bytes_read: u64,
    ) -> Self {
        let place = |problem: &VerifyProblem| (problem.file.clone(), problem.range.as_ref().map(|r| r.start));
        problems.sort_by_cached_key(place);
        Self { path: path.to_owned(), files, problems, bytes_read: ByteSize(bytes_read) }
    }

    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verified = self.files.iter().filter(|file| file.status == VerifyStatus::Verified).count();
        let state = match self.problems.len() {
            0 => "sound".to_owned(),
            1 => "1 problem".to_owned(),
            n => format!("{n} problems"),
        };
        write!(
            f,
            "{}: {state}; {} files, hashes of {verified} compared, {} read",
            self.path.display(),
            self.files.len(),
            self.bytes_read
        )?;
        self.problems.iter().try_for_each(|problem| write!(f, "\n{problem}"))
    }
}

/// Every file with how it was found. `verified`: files of which all hashes were compared.
pub(super) fn files(
    listed: &[Listed],
    problems: &[VerifyProblem],
    verified: &BTreeSet<String>,
) -> Vec<VerifiedFile> {
    let has_problem: BTreeSet<&str> = problems.iter().map(|problem| problem.file.as_str()).collect();
    let there = listed.iter().map(|file| {
        let status = match has_problem.contains(file.name.as_str()) {
            true => VerifyStatus::Damaged,
            false if verified.contains(&file.name) => VerifyStatus::Verified,
            false => VerifyStatus::Checked,
        };
        VerifiedFile { name: file.name.clone(), part: file.part, bytes: ByteSize(file.len), status }
    });
    let names: BTreeSet<&str> = listed.iter().map(|file| file.name.as_str()).collect();
    let missing =
        problems.iter().filter(|p| p.kind == VerifyKind::Missing && !names.contains(p.file.as_str()));
    let missing = missing.map(|problem| VerifiedFile {
        name: problem.file.clone(),
        part: VindexPart::of(&problem.file),
        bytes: ByteSize(0),
        status: VerifyStatus::Missing,
    });
    let mut files: Vec<VerifiedFile> = there.chain(missing).collect();
    files.sort_by(|a, b| a.name.cmp(&b.name));
    files
}
