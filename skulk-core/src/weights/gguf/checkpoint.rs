//! Which files make up a GGUF checkpoint, and which of them holds a tensor?

use std::path::{Path, PathBuf};

use super::header::GgufHeader;
use super::metadata::GgufMetadata;
use super::split::ShardName;
use crate::error::{Error, ErrorKind, Result};
use crate::weights::unreadable::{Unreadable, by_name, integers};
use crate::weights::{Checkpoint, MappedFile, TensorInfo, checkpoint_fields, neighbours};

pub(super) const SPLIT_NO: &str = "split.no";
const SPLIT_COUNT: &str = "split.count";
const SPLIT_TENSORS: &str = "split.tensors.count";

/// An opened GGUF file or split set. Only the first file's header stays mapped.
///
/// ```no_run
/// use skulk::{Checkpoint, weights::gguf::GgufCheckpoint};
/// let checkpoint = GgufCheckpoint::open("model-00001-of-00003.gguf")?;
/// assert_eq!(checkpoint.files().len(), 3);
/// # Ok::<(), skulk::Error>(())
/// ```
#[derive(Debug)]
pub struct GgufCheckpoint {
    path: PathBuf,
    metadata: GgufMetadata,
    files: Vec<MappedFile>,
    tensors: Vec<TensorInfo>,
    integers: Unreadable,
}

impl GgufCheckpoint {
    /// Opens a GGUF file, or a whole split set by the path of any of its files.
    ///
    /// # Errors
    /// [`ErrorKind::FileNotFound`] when the file or a shard of its set does not exist,
    /// [`ErrorKind::CheckpointInvalid`] when shards do not belong together, and whatever
    /// [`GgufHeader::parse`] finds in each file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = MappedFile::open(path)?;
        let header = GgufHeader::map(&file)?;
        match header.metadata.opt_u64(SPLIT_COUNT)? {
            None | Some(0 | 1) => Ok(Self {
                path: path.to_owned(),
                metadata: header.metadata,
                files: vec![file],
                tensors: header.tensors,
                integers: by_name(header.integers, 0).collect(),
            }),
            Some(count) => Self::open_set(path, count),
        }
    }

    fn open_set(path: &Path, count: u64) -> Result<Self> {
        let name = ShardName::parse(path)
            .filter(|name| name.count == count && (1..=count).contains(&name.number))
            .ok_or_else(|| {
                invalid(
                    format!("expected a file name that ends in -NNNNN-of-{count:05}.gguf, as the file is one of {count} shards"),
                    path,
                )
                .with("field", SPLIT_COUNT)
                .with_hint("give the shards the names they were published under")
            })?;

        let first_path = name.sibling(path, 1);
        let (first_file, first) = open_shard(&first_path, 0, count)?;
        let announced = first.metadata.opt_u64(SPLIT_TENSORS)?;
        let mut files = vec![first_file];
        let mut tensors = first.tensors;
        let mut integers: Vec<_> = by_name(first.integers, 0).collect();
        for no in 1..count {
            let (file, shard) = open_shard(&name.sibling(path, no + 1), no, count)?;
            let at = files.len();
            tensors.extend(shard.tensors.into_iter().map(|t| TensorInfo { file: at, ..t }));
            integers.extend(by_name(shard.integers, at));
            files.push(file);
        }

        let found = tensors.len() + integers.len();
        if let Some(announced) = announced
            && announced != found as u64
        {
            return Err(invalid(
                format!("expected {announced} tensors in the {count} shards, found {found}"),
                &first_path,
            )
            .with("field", SPLIT_TENSORS)
            .with_hint("the shards are not of one set: fetch them all again"));
        }
        tensors.sort_unstable_by(|a, b| a.name.cmp(&b.name).then(a.file.cmp(&b.file)));
        let mut places: Vec<_> = tensors.iter().map(|t| (&*t.name, t.file)).collect();
        places.extend(integers.iter().map(|(name, (file, _))| (&**name, *file)));
        places.sort_unstable();
        if let Some(((name, first), (_, second))) = neighbours(&places, |a, b| a.0 == b.0) {
            let (first, second) = (first + 1, second + 1);
            let message =
                format!("expected each tensor in one shard, found it in shards {first} and {second}");
            return Err(invalid(message, &first_path)
                .with("tensor", name)
                .with_hint("the shards are not of one set: fetch them all again"));
        }
        let integers = integers.into_iter().collect();
        Ok(Self { path: path.to_owned(), metadata: first.metadata, files, tensors, integers })
    }
}

/// Opens shard `no`, counted from zero, and checks that it says so itself.
fn open_shard(path: &Path, no: u64, count: u64) -> Result<(MappedFile, GgufHeader)> {
    let file = MappedFile::open(path).map_err(|e| {
        if e.kind() == ErrorKind::FileNotFound {
            e.with("shard", format!("{} of {count}", no + 1))
                .with_hint("fetch the missing shard into the same folder")
        } else {
            e
        }
    })?;
    let header = GgufHeader::map(&file)?;
    for (key, expected) in [(SPLIT_NO, no), (SPLIT_COUNT, count)] {
        let found = header.metadata.u64(key)?;
        if found != expected {
            return Err(invalid(format!("expected {expected}, found {found}"), path)
                .with("field", key)
                .with_hint("the shards are not of one set: fetch them all again"));
        }
    }
    Ok((file, header))
}

fn invalid(message: String, path: &Path) -> Error {
    Error::new(ErrorKind::CheckpointInvalid, message).with("file", path.display())
}

impl Checkpoint for GgufCheckpoint {
    checkpoint_fields!(Gguf);

    fn integers(&self, name: &str, len: usize) -> Result<Option<Vec<i64>>> {
        integers(self, &self.integers, name, len)
    }
}
