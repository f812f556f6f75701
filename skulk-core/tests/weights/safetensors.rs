//! Does the safetensors reader open folders as published, and refuse what leads astray?

use std::path::Path;

use skulk::weights::safetensors::{HfCheckpoint, SafetensorsHeader};
use skulk::{Checkpoint, DType, ErrorKind, Metadata};

use crate::support::safetensors_writer::{file, file_with_header, folder, small, write, write_index};
use crate::weights::assert_error;

fn parse(bytes: &[u8]) -> skulk::Result<SafetensorsHeader> {
    SafetensorsHeader::parse(bytes, Path::new("model.safetensors"))
}

/// Two shards with `a` and `b`, and the index given.
fn sharded(index: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = folder();
    write(folder.path(), "1.safetensors", &file(&[("a", "F32", &[1], &[1; 4])]));
    write(folder.path(), "2.safetensors", &file(&[("b", "F32", &[1], &[2; 4])]));
    write_index(folder.path(), index);
    folder
}

#[test]
fn opens_a_folder_or_its_file() {
    let folder = folder();
    write(folder.path(), "model.safetensors", &small());
    write(folder.path(), "generation_config.json", b"{\"eos_token_id\": 2}");
    for path in [folder.path().to_owned(), folder.path().join("model.safetensors")] {
        let checkpoint = HfCheckpoint::open(&path).unwrap();
        assert_eq!(checkpoint.path(), path);
        let Metadata::HuggingFace(metadata) = checkpoint.metadata() else {
            panic!("a folder has a folder's metadata")
        };
        assert_eq!(metadata.folder, folder.path());
        assert_eq!(metadata.config["model_type"], "llama");
        assert_eq!(metadata.generation_config.as_ref().unwrap()["eos_token_id"], 2);
        assert!(metadata.tokenizer_config.is_none());
        let names: Vec<_> = checkpoint.tensors().iter().map(|t| &t.name).collect();
        assert_eq!(names, ["embed", "norm", "up"]);
        let embed = checkpoint.region("embed").unwrap();
        assert_eq!((embed.dtype(), embed.shape()), (DType::BF16, &[3, 2][..]));
        assert_eq!(embed.bytes(), [2; 12]);
        let missing = checkpoint.region("down");
        assert_error(missing, ErrorKind::TensorMissing, &["tensor: down"]);
    }
}

#[test]
fn a_tensor_of_another_type_fails_only_when_asked_for() {
    let folder = folder();
    write(folder.path(), "model.safetensors", &small());
    let checkpoint = HfCheckpoint::open(folder.path()).unwrap();
    assert!(checkpoint.tensor("positions").is_none());
    let region = checkpoint.region("positions");
    assert_error(region, ErrorKind::DTypeUnsupported, &["I64", "tensor: positions"]);
}

#[test]
fn scalars_and_empty_tensors_map() {
    let folder = folder();
    let bytes = file(&[("none", "F32", &[0, 4], &[]), ("one", "F32", &[], &[5; 4])]);
    write(folder.path(), "model.safetensors", &bytes);
    let checkpoint = HfCheckpoint::open(folder.path()).unwrap();
    assert_eq!(checkpoint.region("one").unwrap().bytes(), [5; 4]);
    assert!(checkpoint.region("none").unwrap().bytes().is_empty());
}

#[test]
fn opens_all_shards_of_an_index() {
    let folder = sharded(&[("a", "1.safetensors"), ("b", "2.safetensors")]);
    let checkpoint = HfCheckpoint::open(folder.path()).unwrap();
    assert_eq!(checkpoint.files().len(), 2);
    assert_eq!(checkpoint.region("a").unwrap().bytes(), [1; 4]);
    assert_eq!(checkpoint.region("b").unwrap().bytes(), [2; 4]);
}

#[test]
fn refuses_an_index_that_disagrees_with_its_shards() {
    let invalid = ErrorKind::CheckpointInvalid;
    let open = |folder: &tempfile::TempDir| HfCheckpoint::open(folder.path());

    let gone = sharded(&[("a", "1.safetensors"), ("b", "3.safetensors")]);
    assert_error(open(&gone), ErrorKind::FileNotFound, &["3.safetensors", "missing shard"]);

    let absent = sharded(&[("a", "1.safetensors"), ("c", "2.safetensors")]);
    assert_error(open(&absent), invalid, &["tensor: c", "shard: 2.safetensors"]);

    let swapped = sharded(&[("a", "2.safetensors"), ("b", "1.safetensors")]);
    assert_error(open(&swapped), invalid, &["tensor: a", "found none"]);

    let twice = sharded(&[("a", "1.safetensors"), ("b", "2.safetensors")]);
    let both = file(&[("a", "F32", &[1], &[1; 4]), ("b", "F32", &[1], &[2; 4])]);
    write(twice.path(), "2.safetensors", &both);
    assert_error(open(&twice), invalid, &["tensor: a", "1.safetensors", "2.safetensors"]);

    let cut = sharded(&[("a", "1.safetensors"), ("b", "2.safetensors")]);
    write(cut.path(), "2.safetensors", &both[..both.len() - 1]);
    assert_error(open(&cut), ErrorKind::CheckpointTruncated, &["2.safetensors"]);

    let broken = sharded(&[]);
    write(broken.path(), "model.safetensors.index.json", b"{\"weight_map\": {\"a\": 1}}");
    assert_error(open(&broken), invalid, &["index.json", "line 1 column"]);
}

#[test]
fn refuses_an_index_that_leads_out_of_the_folder() {
    let outside = tempfile::tempdir().unwrap();
    write(outside.path(), "x.safetensors", &file(&[("a", "F32", &[1], &[1; 4])]));
    let absolute = outside.path().join("x.safetensors");
    let absolute = absolute.to_str().unwrap();
    for name in [absolute, "../1.safetensors", "sub/../../1.safetensors", "sub\\1.safetensors", "", ".", "/"]
    {
        let folder = sharded(&[("a", name)]);
        assert_error(
            HfCheckpoint::open(folder.path()),
            ErrorKind::CheckpointInvalid,
            &["weight_map", "inside the model's folder"],
        );
    }
}

#[test]
fn refuses_broken_configurations() {
    let folder = folder();
    write(folder.path(), "model.safetensors", &small());
    let open = || HfCheckpoint::open(folder.path());
    write(folder.path(), "config.json", b"{\"a\": 1,\n  oops}");
    assert_error(open(), ErrorKind::ConfigInvalid, &["config.json", "line 2 column 3"]);
    write(folder.path(), "config.json", b"[1]");
    assert_error(open(), ErrorKind::ConfigInvalid, &["config.json", "object"]);
    let deep = "[".repeat(100_000);
    write(folder.path(), "config.json", deep.as_bytes());
    assert_error(open(), ErrorKind::ConfigInvalid, &["config.json", "recursion"]);
    let file = std::fs::File::create(folder.path().join("config.json")).unwrap();
    file.set_len((64 << 20) + 1).unwrap();
    assert_error(open(), ErrorKind::ConfigInvalid, &["config.json", "at most"]);
    std::fs::remove_file(folder.path().join("config.json")).unwrap();
    assert_error(open(), ErrorKind::FileNotFound, &["config.json", "beside the weights"]);
    std::fs::create_dir(folder.path().join("config.json")).unwrap();
    assert_error(open(), ErrorKind::FileIo, &["config.json", "regular file"]);
}

#[test]
fn refuses_broken_headers() {
    let (invalid, short) = (ErrorKind::CheckpointInvalid, ErrorKind::CheckpointTruncated);
    assert_error(parse(b""), short, &["at least 8 bytes", "found 0"]);
    assert_error(parse(&[9, 0, 0, 0, 0, 0, 0, 0, b'{']), short, &["header of 9 bytes"]);
    assert_error(parse(&[0xff; 16]), invalid, &["at most 100000000"]);
    assert_error(parse(&file_with_header("{", &[])), invalid, &["JSON", "column"]);
    assert_error(parse(&file_with_header("{\"a\": 1}", &[])), invalid, &["JSON"]);
    let entry = |shape: &str, start: u64, end: u64| {
        format!(r#"{{"a":{{"dtype":"F32","shape":{shape},"data_offsets":[{start},{end}]}}}}"#)
    };
    let cases: [(String, usize, ErrorKind, &str); 8] = [
        (entry("[1]", 0, 4), 3, short, "4 bytes of tensors"),
        (entry("[1]", 0, 4), 5, invalid, "expected a file of"),
        (entry("[1]", 4, 8), 8, invalid, "gaps"),
        (entry("[1]", 4, 0), 4, invalid, "gaps"),
        (entry("[2]", 0, 4), 4, invalid, "gaps"),
        (entry("[4294967296,4294967296]", 0, 4), 4, invalid, "gaps"),
        (entry("[-1]", 0, 4), 4, invalid, "JSON"),
        (entry("[576460752303423487]", 0, 2305843009213693948), 4, short, "2305843009213693948"),
    ];
    for (header, data, kind, part) in cases {
        assert_error(parse(&file_with_header(&header, &vec![0; data])), kind, &[part]);
    }
}

#[test]
fn sizes_that_add_up_past_64_bits_are_refused() {
    let bits_max = u64::MAX / 32;
    let (each, count) = (bits_max * 4, u64::MAX / (bits_max * 4));
    let mut entries: Vec<String> = (0..count)
        .map(|i| {
            let (start, end) = (i * each, (i + 1) * each);
            format!(r#""t{i}":{{"dtype":"F32","shape":[{bits_max}],"data_offsets":[{start},{end}]}}"#)
        })
        .collect();
    let start = count * each;
    let rest = u64::MAX - start;
    entries
        .push(format!(r#""last":{{"dtype":"U8","shape":[{rest}],"data_offsets":[{start},{}]}}"#, u64::MAX));
    let header = format!("{{{}}}", entries.join(","));
    let bytes = file_with_header(&header, &[]);
    assert_error(parse(&bytes), ErrorKind::CheckpointTruncated, &["18446744073709551615 bytes"]);
}
