//! Does any shard of a split GGUF set open the whole set, and no set that is not whole?

use std::path::{Path, PathBuf};

use skulk::weights::gguf::GgufCheckpoint;
use skulk::{Checkpoint, ErrorKind, Metadata};

use crate::support::gguf_writer::GgufWriter;
use crate::weights::assert_error;

fn path(folder: &Path, number: u16, count: u16) -> PathBuf {
    folder.join(format!("model-{number:05}-of-{count:05}.gguf"))
}

fn shard(no: u16, count: u16, tensors: i32, name: &str) -> GgufWriter {
    GgufWriter::new().split(no, count, tensors).u16("shard", no).tensor_f32(name, &[2], &[f32::from(no), 1.0])
}

/// Three shards with one tensor each; `change` may replace a shard.
fn set(change: impl Fn(u16) -> Option<Vec<u8>>) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for no in 0..3 {
        let valid = || shard(no, 3, 3, &format!("t{no}")).build();
        let bytes = change(no).unwrap_or_else(valid);
        std::fs::write(path(folder.path(), no + 1, 3), bytes).unwrap();
    }
    folder
}

#[test]
fn any_shard_opens_the_set() {
    let folder = set(|_| None);
    for number in 1..=3 {
        let checkpoint = GgufCheckpoint::open(path(folder.path(), number, 3)).unwrap();
        assert_eq!(checkpoint.files().len(), 3);
        let Metadata::Gguf(metadata) = checkpoint.metadata() else { panic!("a GGUF file has GGUF metadata") };
        assert_eq!(metadata.u64("shard").unwrap(), 0);
        for no in 0..3u16 {
            let region = checkpoint.region(&format!("t{no}")).unwrap();
            assert_eq!(region.bytes()[..4], f32::from(no).to_le_bytes());
        }
    }
}

#[test]
fn a_missing_shard_is_named() {
    let folder = set(|_| None);
    std::fs::remove_file(path(folder.path(), 2, 3)).unwrap();
    for number in [1, 3] {
        assert_error(
            GgufCheckpoint::open(path(folder.path(), number, 3)),
            ErrorKind::FileNotFound,
            &["model-00002-of-00003.gguf", "2 of 3", "missing shard"],
        );
    }
}

#[test]
fn shards_that_contradict_the_set_are_refused() {
    let invalid = ErrorKind::CheckpointInvalid;
    type Change = fn(u16) -> Option<Vec<u8>>;
    let cases: [(Change, ErrorKind, &[&str]); 6] = [
        // The second file is the first one again.
        (
            |no| (no == 1).then(|| shard(0, 3, 3, "t0").build()),
            invalid,
            &["split.no", "expected 1, found 0", "model-00002"],
        ),
        (
            |no| (no == 2).then(|| shard(2, 4, 3, "t2").build()),
            invalid,
            &["split.count", "expected 3, found 4"],
        ),
        (|no| (no == 2).then(|| shard(2, 3, 3, "t0").build()), invalid, &["tensor: t0", "shards 1 and 3"]),
        (
            |no| (no == 0).then(|| shard(0, 3, 5, "t0").build()),
            invalid,
            &["split.tensors.count", "expected 5", "found 3"],
        ),
        (
            |no| (no == 1).then(|| GgufWriter::new().build()),
            ErrorKind::ConfigInvalid,
            &["split.no", "found nothing"],
        ),
        (|no| (no == 1).then(Vec::new), ErrorKind::CheckpointTruncated, &["model-00002"]),
    ];
    for (change, kind, parts) in cases {
        let folder = set(change);
        assert_error(GgufCheckpoint::open(path(folder.path(), 1, 3)), kind, parts);
    }
}

#[test]
fn a_negative_tensor_count_is_no_count() {
    let folder = set(|no| (no == 0).then(|| shard(0, 3, -1, "t0").build()));
    assert_error(
        GgufCheckpoint::open(path(folder.path(), 1, 3)),
        ErrorKind::ConfigInvalid,
        &["split.tensors.count", "-1"],
    );
}

#[test]
fn names_that_hide_the_set_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for name in [
        "renamed.gguf",
        "model-00001-of-00002.gguf",
        "model-00004-of-00003.gguf",
        "model-00000-of-00003.gguf",
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, shard(0, 3, 3, "t0").build()).unwrap();
        let parts = [name, "-of-00003.gguf", "split.count"];
        assert_error(GgufCheckpoint::open(&path), ErrorKind::CheckpointInvalid, &parts);
    }
}

#[test]
fn a_huge_split_count_stops_at_the_first_missing_shard() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model-00001-of-65535.gguf");
    std::fs::write(&path, shard(0, u16::MAX, 3, "t0").build()).unwrap();
    assert_error(GgufCheckpoint::open(&path), ErrorKind::FileNotFound, &["00002-of-65535"]);
    let writer = GgufWriter::new().raw("split.count", 10, &u64::MAX.to_le_bytes());
    std::fs::write(&path, writer.build()).unwrap();
    assert_error(GgufCheckpoint::open(&path), ErrorKind::CheckpointInvalid, &["split.count"]);
}

#[cfg(unix)]
#[test]
fn a_shard_that_links_back_to_the_first_is_refused() {
    let folder = set(|_| None);
    let second = path(folder.path(), 2, 3);
    std::fs::remove_file(&second).unwrap();
    std::os::unix::fs::symlink(path(folder.path(), 1, 3), &second).unwrap();
    let opened = GgufCheckpoint::open(path(folder.path(), 1, 3));
    assert_error(opened, ErrorKind::CheckpointInvalid, &["split.no"]);
    std::fs::remove_file(&second).unwrap();
    std::os::unix::fs::symlink(&second, &second).unwrap();
    let opened = GgufCheckpoint::open(path(folder.path(), 1, 3));
    assert_error(opened, ErrorKind::FileIo, &["model-00002"]);
}

#[test]
fn one_shard_of_one_is_a_single_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("any name.gguf");
    std::fs::write(&path, shard(0, 1, 1, "t0").build()).unwrap();
    assert_eq!(GgufCheckpoint::open(&path).unwrap().files().len(), 1);
}
