//! Does opening by path find the right reader, and say what it found otherwise?

use skulk::{ErrorKind, Metadata, open_checkpoint};

use crate::support::gguf_writer::{GgufWriter, small};
use crate::support::safetensors_writer::{folder, small as small_safetensors, write, write_index};
use crate::weights::assert_error;

#[test]
fn tells_formats_apart_by_content() {
    let folder = folder();
    write(folder.path(), "no-extension", &small().build());
    let opened = open_checkpoint(folder.path().join("no-extension")).unwrap();
    assert!(matches!(opened.metadata(), Metadata::Gguf(_)));
    write(folder.path(), "weights.bin", &small_safetensors());
    let opened = open_checkpoint(folder.path().join("weights.bin")).unwrap();
    assert!(matches!(opened.metadata(), Metadata::HuggingFace(_)));
}

#[test]
fn opens_folders() {
    let hf = folder();
    write(hf.path(), "model.safetensors", &small_safetensors());
    assert_eq!(open_checkpoint(hf.path()).unwrap().tensors().len(), 3);

    let gguf = folder();
    write(gguf.path(), "one.gguf", &small().build());
    write(gguf.path(), "README.md", b"hello");
    assert_eq!(open_checkpoint(gguf.path()).unwrap().tensors().len(), 3);

    let split = folder();
    for no in 0..2 {
        let shard = GgufWriter::new().split(no, 2, 2);
        let shard = shard.tensor_f32(&format!("t{no}"), &[1], &[0.0]);
        let name = format!("m-{:05}-of-00002.gguf", no + 1);
        write(split.path(), &name, &shard.build());
    }
    assert_eq!(open_checkpoint(split.path()).unwrap().tensors().len(), 2);
}

#[test]
fn says_what_a_folder_lacks() {
    let empty = tempfile::tempdir().unwrap();
    let opened = open_checkpoint(empty.path());
    assert_error(opened, ErrorKind::FileNotFound, &["found nothing", "GGUF"]);

    let other = folder();
    write(other.path(), "pytorch_model.bin", b"PK\x03\x04");
    let parts = ["config.json, pytorch_model.bin", "model.safetensors"];
    assert_error(open_checkpoint(other.path()), ErrorKind::FileNotFound, &parts);

    let two = folder();
    write(two.path(), "a.gguf", &small().build());
    write(two.path(), "b.gguf", &small().build());
    let parts = ["found 2: a.gguf, b.gguf", "that you mean"];
    assert_error(open_checkpoint(two.path()), ErrorKind::InvalidArgument, &parts);

    let many = tempfile::tempdir().unwrap();
    for i in 10..22 {
        write(many.path(), &format!("{i}.txt"), b"");
    }
    assert_error(open_checkpoint(many.path()), ErrorKind::FileNotFound, &["and 4 more"]);

    let unconfigured = tempfile::tempdir().unwrap();
    write_index(unconfigured.path(), &[]);
    let opened = open_checkpoint(unconfigured.path());
    assert_error(opened, ErrorKind::FileNotFound, &["config.json"]);
}

#[test]
fn says_what_a_file_looks_like() {
    let invalid = ErrorKind::CheckpointInvalid;
    let cases: [(&str, &[u8], ErrorKind, &str); 10] = [
        ("empty.gguf", b"", ErrorKind::CheckpointTruncated, "an empty file"),
        ("zip.bin", b"PK\x03\x04....", invalid, "PyTorch"),
        ("old.bin", b"\x80\x02}q", invalid, "pickle"),
        ("h5.bin", b"\x89HDF\r\n", invalid, "HDF5"),
        ("ggml.bin", b"tjgg\x03\0\0\0", invalid, "before GGUF"),
        ("lfs.gguf", b"version https://git-lfs.github.com/spec/v1\n", invalid, "git lfs pull"),
        ("lfs.safetensors", b"version https://git-lfs.github.com/spec/v1\n", invalid, "LFS"),
        ("page.safetensors", b"<!DOCTYPE html>", invalid, "web page"),
        ("config.json", b"{\"a\": 1}", invalid, "JSON"),
        ("noise.bin", b"\x01\x02\x03", invalid, "unknown format"),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes, kind, part) in cases {
        write(folder.path(), name, bytes);
        assert_error(open_checkpoint(folder.path().join(name)), kind, &[name, part]);
    }
}

#[test]
fn a_damaged_file_is_judged_as_what_its_name_says() {
    let folder = folder();
    write(folder.path(), "model.safetensors", &small_safetensors()[..6]);
    let opened = open_checkpoint(folder.path().join("model.safetensors"));
    assert_error(opened, ErrorKind::CheckpointTruncated, &["at least 8 bytes"]);
}

#[cfg(unix)]
#[test]
fn does_not_wait_for_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("model.gguf");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    if made.is_ok_and(|status| status.success()) {
        assert_error(open_checkpoint(&pipe), ErrorKind::FileIo, &["regular file"]);
        assert_error(open_checkpoint(folder.path()), ErrorKind::FileIo, &["regular file"]);
    }
}
