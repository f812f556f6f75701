//! Does the GGUF reader read every value and refuse every violation of the format?

use std::path::Path;

use skulk::weights::gguf::{GgufCheckpoint, GgufHeader, GgufValue};
use skulk::{Checkpoint, DType, ErrorKind, Metadata};

use crate::fixtures;
use crate::support::gguf_writer::{GgufWriter, small, types};
use crate::weights::assert_error;

fn parse(bytes: &[u8]) -> skulk::Result<GgufHeader> {
    GgufHeader::parse(bytes, Path::new("model.gguf"))
}

#[track_caller]
fn refuses(writer: &GgufWriter, kind: ErrorKind, parts: &[&str]) {
    assert_error(parse(&writer.build()), kind, parts);
}

#[test]
fn reads_values_of_every_type() {
    let header = parse(&small().build()).unwrap();
    let m = header.metadata();
    assert_eq!(m.str("general.architecture").unwrap(), "llama");
    assert_eq!(m.u64("a.u8").unwrap(), 200);
    assert_eq!(m.u64("a.u16").unwrap(), 1000);
    assert_eq!(m.u64("llama.block_count").unwrap(), 2);
    assert_eq!(m.u64("a.u64").unwrap(), u64::MAX);
    assert!(matches!(m.get("a.i8"), Some(GgufValue::I64(-1))));
    assert!(matches!(m.get("a.i16"), Some(GgufValue::I64(-3))));
    assert!(matches!(m.get("a.i32"), Some(GgufValue::I64(-5))));
    assert!(matches!(m.get("a.i64"), Some(GgufValue::I64(i64::MIN))));
    assert_eq!(m.f64("llama.rope.freq_base").unwrap(), 10000.0);
    assert_eq!(m.f64("a.f64").unwrap(), 0.5);
    assert!(m.bool("a.bool").unwrap());
    let tokens = m.array("tokenizer.ggml.tokens").unwrap();
    assert_eq!((tokens.len(), tokens.element_type()), (3, "string"));
    assert!(tokens.strings().unwrap().eq(["<s>", "ä", ""]));
    let scores = m.array("tokenizer.ggml.scores").unwrap();
    assert!(scores.f64s().unwrap().eq([0.0, -1.5]));
    let kinds = m.array("tokenizer.ggml.token_type").unwrap();
    assert!(kinds.i64s().unwrap().eq([3, 1, 1]));
    assert!(m.array("a.bools").unwrap().bools().unwrap().eq([true, false]));
    assert_eq!(m.array("a.nested").unwrap().element_type(), "array");
    assert_eq!(m.keys().count(), 18);
    assert!(m.keys().is_sorted());
    assert_eq!(m.file(), Path::new("model.gguf"));
}

#[test]
fn absent_keys_are_none_or_an_error_and_wrong_types_always_an_error() {
    let header = parse(&small().build()).unwrap();
    let m = header.metadata();
    assert!(m.get("none").is_none());
    assert_eq!(m.opt_u64("none").unwrap(), None);
    assert_eq!(m.opt_f64("none").unwrap(), None);
    assert_eq!(m.opt_bool("none").unwrap(), None);
    assert_eq!(m.opt_str("none").unwrap(), None);
    assert!(m.opt_array("none").unwrap().is_none());
    let invalid = ErrorKind::ConfigInvalid;
    assert_error(m.u64("none"), invalid, &["none", "found nothing"]);
    assert_error(m.u64("a.i32"), invalid, &["a.i32", "the signed integer -5"]);
    assert_error(m.f64("a.bool"), invalid, &["a float", "the boolean true"]);
    assert_error(m.bool("a.u8"), invalid, &["a boolean", "the unsigned integer 200"]);
    assert_error(m.str("a.f64"), invalid, &["a string", "the float 0.5"]);
    assert_error(m.array("general.architecture"), invalid, &["an array", "a string"]);
    let tokens = m.array("tokenizer.ggml.tokens").unwrap();
    assert_error(tokens.f64s(), invalid, &["array of floats", "3 string elements"]);
    assert_error(tokens.i64s(), invalid, &["array of integers"]);
    assert_error(tokens.bools(), invalid, &["tokenizer.ggml.tokens"]);
    let scores = m.array("tokenizer.ggml.scores").unwrap();
    assert_error(scores.strings(), invalid, &["array of strings", "f32"]);
    assert_error(m.array("a.u64s").unwrap().i64s(), invalid, &["2^63"]);
    assert_error(m.array("a.nested").unwrap().i64s(), invalid, &["array"]);
}

#[test]
fn maps_tensors_with_the_outermost_dimension_first() {
    let folder = tempfile::tempdir().unwrap();
    for (name, writer) in
        [("v3.gguf", small()), ("v2.gguf", small().version(2)), ("aligned.gguf", small().alignment(128))]
    {
        let path = folder.path().join(name);
        std::fs::write(&path, writer.build()).unwrap();
        let checkpoint = GgufCheckpoint::open(&path).unwrap();
        assert_eq!(checkpoint.path(), path);
        assert!(matches!(checkpoint.metadata(), Metadata::Gguf(m) if m.file() == path));
        let names: Vec<_> = checkpoint.tensors().iter().map(|t| &t.name).collect();
        assert_eq!(names, ["blk.0.ffn_up.weight", "output_norm.weight", "token_embd.weight"]);
        let up = checkpoint.region("blk.0.ffn_up.weight").unwrap();
        assert_eq!((up.dtype(), up.shape()), (DType::Q8_0, &[2, 32][..]));
        assert_eq!(up.bytes(), [7; 68]);
        let embed = checkpoint.region("token_embd.weight").unwrap();
        assert_eq!((embed.shape(), embed.bytes()), (&[3, 4][..], &[9; 24][..]));
        let norm = checkpoint.region("output_norm.weight").unwrap();
        assert_eq!(norm.bytes()[12..], 4.0f32.to_le_bytes());
        let missing = checkpoint.region("blk.1.ffn_up.weight");
        assert_error(missing, ErrorKind::TensorMissing, &["blk.1.ffn_up.weight"]);
    }
}

#[test]
fn refuses_other_versions_and_byte_orders() {
    let invalid = ErrorKind::CheckpointInvalid;
    refuses(&small().version(1), invalid, &["version 1", "convert"]);
    refuses(&small().version(4), invalid, &["version 4"]);
    refuses(&small().version(3u32.swap_bytes()), invalid, &["big-endian"]);
    assert_error(parse(b"GGML\x03\0\0\0"), invalid, &["starts with GGUF"]);
    assert_error(parse(b""), ErrorKind::CheckpointTruncated, &["0 bytes"]);
    assert_error(parse(b"GG"), ErrorKind::CheckpointTruncated, &["magic", "2 bytes"]);
}

#[test]
fn refuses_counts_and_lengths_that_the_file_cannot_hold() {
    for (at, what) in [(8, "tensor count"), (16, "metadata count")] {
        for count in [1 << 33, u64::MAX / 2, u64::MAX] {
            let mut bytes = small().build();
            bytes[at..at + 8].copy_from_slice(&count.to_le_bytes());
            let parts = [what, &count.to_string()];
            assert_error(parse(&bytes), ErrorKind::CheckpointInvalid, &parts);
        }
        let mut bytes = small().build();
        bytes[at..at + 8].copy_from_slice(&1_000_000u64.to_le_bytes());
        assert_error(parse(&bytes), ErrorKind::CheckpointTruncated, &[what]);
    }
    let invalid = ErrorKind::CheckpointInvalid;
    let huge = u64::MAX.to_le_bytes();
    refuses(&GgufWriter::new().raw("k", 8, &huge), invalid, &["string", "field: k"]);
    refuses(&GgufWriter::new().array("k", 8, 1 << 61, &[]), invalid, &["array length"]);
    refuses(&GgufWriter::new().array("k", 10, 1 << 61, &[]), invalid, &["array length"]);
    let short = ErrorKind::CheckpointTruncated;
    refuses(&GgufWriter::new().array("k", 4, 100, &[0; 8]), short, &["array length", "field: k"]);
    refuses(&GgufWriter::new().u8(&"k".repeat(65_536), 1), invalid, &["metadata key", "65535"]);
}

#[test]
fn refuses_broken_metadata() {
    let invalid = ErrorKind::CheckpointInvalid;
    let new = GgufWriter::new;
    refuses(&new().raw("k", 13, &[0; 8]), invalid, &["value type", "13", "field: k"]);
    refuses(&new().raw("k", 7, &[2]), invalid, &["boolean", "found 2"]);
    refuses(&new().array("k", 7, 2, &[1, 3]), invalid, &["boolean", "found 3"]);
    refuses(&new().array("k", 99, 0, &[]), invalid, &["value type", "99"]);
    refuses(&new().u8("k", 1).str("k", "2"), invalid, &["twice", "field: k"]);
    let text = [1, 0, 0, 0, 0, 0, 0, 0, 0xff];
    refuses(&new().raw("k", 8, &text), invalid, &["UTF-8", "field: k"]);
    refuses(&new().array("k", 8, 1, &text), invalid, &["UTF-8", "field: k"]);
    let one_array = [9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    let deep = one_array.repeat(1000);
    refuses(&new().array("k", 9, 1, &deep), invalid, &["nested", "field: k"]);
}

#[test]
fn refuses_impossible_alignments() {
    let key = "general.alignment";
    for alignment in [0, 4, 12, 33] {
        let writer = small().u32(key, alignment);
        refuses(&writer, ErrorKind::ConfigInvalid, &["power of two", key]);
    }
    refuses(&small().str(key, "32"), ErrorKind::ConfigInvalid, &[key, "a string"]);
}

#[test]
fn refuses_impossible_tensors() {
    let invalid = ErrorKind::CheckpointInvalid;
    let new = GgufWriter::new;
    refuses(&new().tensor("t", types::F32, &[], &[0; 4]), invalid, &["found 0", "tensor: t"]);
    refuses(&new().tensor("t", types::F32, &[1; 5], &[0; 4]), invalid, &["found 5"]);
    refuses(&new().tensor("t", types::F32, &[2, 0], &[]), invalid, &["at least 1"]);
    refuses(&new().tensor("t", types::F32, &[1 << 32; 3], &[]), invalid, &["fits in memory"]);
    refuses(&new().tensor("t", types::F32, &[1 << 63, 2], &[]), invalid, &["fits in memory"]);
    refuses(&new().tensor("t", types::Q8_0, &[2, 33], &[0; 68]), invalid, &["Q8_0", "32"]);
    refuses(&new().tensor("t", types::Q4_K, &[640], &[0; 360]), invalid, &["Q4_K", "256"]);
    let unsupported = ErrorKind::DTypeUnsupported;
    let other = new().tensor("t", types::Q8_1, &[32], &[0; 36]);
    refuses(&other, unsupported, &["Q8_1", "type 9", "tensor: t"]);
    refuses(&new().tensor("t", 24, &[4], &[0; 4]), unsupported, &["I8"]);
    refuses(&new().tensor("t", 4242, &[1], &[0; 4]), unsupported, &["4242"]);
    refuses(
        &new().tensor("a.weight", 26, &[1], &[0; 4]),
        unsupported,
        &["I32 (type 26)", "tensor: a.weight"],
    );
}

/// Integers are no weights: they are listed with none, and their numbers are given to whoever asks.
#[test]
fn reads_integers() {
    let folder = tempfile::tempdir().unwrap();
    let (few, many) = ([7i32, -9], [1i64 << 40, -3, 0]);
    let bytes = |all: Vec<Vec<u8>>| all.concat();
    let file = GgufWriter::new()
        .tensor("few", 26, &[2], &bytes(few.map(|n| n.to_le_bytes().to_vec()).to_vec()))
        .tensor_f32("norm", &[4], &[1.0; 4])
        .tensor("many", 27, &[3], &bytes(many.map(|n| n.to_le_bytes().to_vec()).to_vec()))
        .build();
    let path = folder.path().join("integers.gguf");
    std::fs::write(&path, file).unwrap();
    let checkpoint = GgufCheckpoint::open(&path).unwrap();
    assert_eq!(checkpoint.tensors().iter().map(|t| &*t.name).collect::<Vec<_>>(), ["norm"]);
    assert_eq!(checkpoint.integers("few", 2).unwrap().unwrap(), few.map(i64::from));
    assert_eq!(checkpoint.integers("many", 3).unwrap().unwrap(), many);
    assert!(checkpoint.integers("none", 3).unwrap().is_none());
    for (name, len, kind) in [("many", 2, ErrorKind::TensorShape), ("norm", 4, ErrorKind::DTypeUnsupported)] {
        let error = checkpoint.integers(name, len).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(format!("{error:?}").contains(name) && error.hint().is_some(), "{error:?}");
    }
    assert_eq!(checkpoint.region("many").err().unwrap().kind(), ErrorKind::TensorMissing);
    // Where they lie is checked as weights are.
    let invalid = ErrorKind::CheckpointInvalid;
    let one = || GgufWriter::new().tensor("a", 26, &[8], &[0; 32]);
    refuses(&one().tensor_at("b", types::F32, &[4], 0), invalid, &["inside"]);
    refuses(&one().tensor("a", types::F32, &[8], &[0; 32]), invalid, &["twice", "tensor: a"]);
    refuses(&one().tensor("b", 27, &[1 << 62], &[]), invalid, &["fits in memory"]);
}

#[test]
fn refuses_tensors_in_the_wrong_place() {
    let invalid = ErrorKind::CheckpointInvalid;
    let vector = |writer: GgufWriter, name| writer.tensor(name, types::F32, &[16], &[0; 64]);
    let one = || vector(GgufWriter::new(), "a");
    refuses(&one().tensor_at("b", types::F32, &[8], 32), invalid, &["inside a", "tensor: b"]);
    refuses(&one().tensor_at("b", types::F32, &[8], 0), invalid, &["inside"]);
    refuses(&vector(one(), "a"), invalid, &["twice", "tensor: a"]);
    refuses(&one().tensor_at("b", types::F32, &[1], 12), invalid, &["multiple of 32", "found 12"]);
    let short = ErrorKind::CheckpointTruncated;
    refuses(&one().tensor_at("b", types::F32, &[1], 64), short, &["tensor: b", "incomplete"]);
    let last = u64::MAX - 31;
    refuses(&one().tensor_at("b", types::F32, &[1], last), short, &["tensor: b"]);
    refuses(&one().tensor_at("b", types::F32, &[1 << 62], 64), invalid, &["fits in memory"]);
    refuses(&one().tensor_at("b", types::F32, &[1 << 60], 64), short, &["tensor: b"]);
}

#[test]
fn notices_a_file_that_shrank_since_it_was_opened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let bytes = small().build();
    std::fs::write(&path, &bytes).unwrap();
    let checkpoint = GgufCheckpoint::open(&path).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(bytes.len() as u64 - 32).unwrap();
    let region = checkpoint.region("token_embd.weight");
    assert_error(region, ErrorKind::CheckpointTruncated, &["incomplete"]);
}

#[test]
fn a_stack_is_taken_apart_without_copies() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stack.gguf");
    let bytes: Vec<u8> = (0..3 * 2 * 34).map(|i| i as u8).collect();
    let stack = small().tensor("stack", types::Q8_0, &[3, 2, 32], &bytes);
    std::fs::write(&path, stack.build()).unwrap();
    let checkpoint = GgufCheckpoint::open(&path).unwrap();
    let stack = checkpoint.region("stack").unwrap();
    let parts: Vec<_> = stack.parts().collect();
    assert_eq!(parts.len(), 3);
    for (part, range) in parts.iter().zip(bytes.chunks(68)) {
        assert_eq!((part.shape(), part.dtype(), part.name()), (&[2, 32][..], DType::Q8_0, "stack"));
        assert_eq!((part.rows(), part.row_bytes(), part.bytes()), (2, 34, range));
        assert!(stack.bytes().as_ptr_range().contains(&part.bytes().as_ptr()));
    }
    // Rows are parts of a matrix; a vector has none.
    let rows: Vec<_> = parts[1].parts().collect();
    assert_eq!((rows.len(), rows[1].shape(), rows[1].bytes()), (2, &[32][..], &bytes[102..136]));
    assert_eq!(rows[0].parts().len(), 0);
}

/// gguf-py's numbers, bit for bit, of types that no other software in the tests reads.
#[test]
fn numbers_are_those_of_gguf_py() {
    let checkpoint =
        GgufCheckpoint::open(fixtures::root().join("tests/fixtures/gguf/storage_types.gguf")).unwrap();
    let mut types = 0;
    for info in checkpoint.tensors().iter().filter(|info| !info.name.ends_with(".numbers")) {
        assert_eq!(info.name, info.dtype.label());
        let [found, expected] = [info.name.clone(), format!("{}.numbers", info.name)].map(|name| {
            let region = checkpoint.region(&name).unwrap();
            let mut numbers = vec![0.0; region.rows() * region.row_len()];
            region.read_rows(0..region.rows(), &mut numbers).unwrap();
            numbers.into_iter().map(f32::to_bits).collect::<Vec<_>>()
        });
        assert!(found == expected, "{}", info.name);
        types += 1;
    }
    assert_eq!(types, 12);
}
