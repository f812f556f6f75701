//! Is whatever is wrong with a folder a typed error that names the file?

use std::path::Path;

use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde_json::{Value, json};
use skulk::vindex::{DownMeta, LayerHeader};
use skulk::{Checkpoint, ErrorKind, VindexReader};

use crate::support::exercise;
use crate::vindex::mixture::mixture;
use crate::vindex::{change_json, copied, fixtures, made, refused};

fn folder() -> tempfile::TempDir {
    copied(&made())
}

#[test]
fn files_may_be_missing_one_by_one() {
    for entry in std::fs::read_dir(folder().path()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let folder = folder();
        std::fs::remove_file(folder.path().join(&name)).unwrap();
        match VindexReader::open(folder.path()) {
            Ok(vindex) => {
                assert!(!["index.json", "attn_weights_q4k_manifest.json"].contains(&name.as_str()), "{name}");
                for tensor in vindex.tensors() {
                    vindex.region(&tensor.name).unwrap();
                }
                for (tensor, file) in vindex.absent() {
                    assert_eq!(file, name);
                    assert_eq!(vindex.region(tensor).unwrap_err().kind(), ErrorKind::TensorMissing);
                }
            }
            Err(e) => {
                assert!(e.kind() == ErrorKind::FileNotFound || name.ends_with("manifest.json"), "{name}: {e}")
            }
        }
    }
}

/// What LARQL's index leaves out of other families cannot be guessed.
#[test]
fn families_that_larql_does_not_tell_enough_of_are_refused() {
    let spec = |family: &str| {
        let folder = folder();
        change_json(folder.path(), "index.json", |index| {
            index["family"] = json!(family);
            index["model_config"]["model_type"] = json!(family);
        });
        skulk::arch::ArchSpec::from_checkpoint(&VindexReader::open(folder.path()).unwrap())
    };
    assert!(spec("llama").is_ok());
    for family in ["gemma3n_text", "gpt_oss", "granite", "smollm3"] {
        let error = spec(family).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ArchUnsupported, "{error}");
        assert!(error.to_string().contains(family) && error.hint().unwrap().contains("qwen3"), "{error}");
    }
}

#[test]
fn truncated_files_are_refused() {
    for entry in std::fs::read_dir(folder().path()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if ["down_meta.bin", "tokenizer.json"].contains(&name.as_str()) {
            continue;
        }
        let folder = folder();
        let path = folder.path().join(&name);
        let whole = std::fs::read(&path).unwrap();
        for len in [0, 1, 2, whole.len() / 2, whole.len() - 2, whole.len() - 1] {
            if whole[len..].trim_ascii().is_empty() {
                continue;
            }
            std::fs::write(&path, &whole[..len]).unwrap();
            let error = VindexReader::open(folder.path()).err().unwrap_or_else(|| panic!("{name} at {len}"));
            let kind = if name.ends_with(".bin") { ErrorKind::CheckpointTruncated } else { error.kind() };
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(&name), "{error}");
        }
    }
}

#[test]
fn wrong_indices_are_refused() {
    let cases: [(&str, Value, ErrorKind); 12] = [
        ("version", json!(3), ErrorKind::CheckpointInvalid),
        ("version", json!(0), ErrorKind::CheckpointInvalid),
        ("num_layers", json!(1u64 << 60), ErrorKind::ConfigInvalid),
        ("hidden_size", json!(u64::MAX), ErrorKind::ConfigInvalid),
        ("hidden_size", json!(-1), ErrorKind::ConfigInvalid),
        ("vocab_size", json!(0), ErrorKind::ConfigInvalid),
        ("vocab_size", json!(511), ErrorKind::CheckpointInvalid),
        ("quant", json!("q5k"), ErrorKind::DTypeUnsupported),
        ("dtype", json!("bf16"), ErrorKind::DTypeUnsupported),
        ("ffn_layout", json!("other"), ErrorKind::ConfigInvalid),
        (
            "layers",
            json!([{ "layer": 9, "num_features": 1, "offset": 0, "length": 0 }]),
            ErrorKind::ConfigInvalid,
        ),
        (
            "layers",
            json!([{ "layer": 0, "num_features": 1u64 << 62, "offset": 0, "length": 8 }]),
            ErrorKind::CheckpointInvalid,
        ),
    ];
    for (field, value, kind) in cases {
        let folder = folder();
        change_json(folder.path(), "index.json", |index| index[field] = value.clone());
        let file =
            if kind == ErrorKind::CheckpointInvalid && field != "version" { ".bin" } else { "index.json" };
        refused(VindexReader::open(folder.path()), kind, file);
    }
}

#[test]
fn wrong_manifests_are_refused() {
    let (weights, quant) = ("weight_manifest.json", "attn_weights_q4k_manifest.json");
    let (invalid, truncated) = (ErrorKind::CheckpointInvalid, ErrorKind::CheckpointTruncated);
    let cases: [(&str, &str, Value, ErrorKind); 13] = [
        (weights, "offset", json!(1u64 << 40), truncated),
        (weights, "offset", json!(u64::MAX), truncated),
        (weights, "offset", json!(1280), invalid), // where the next one is
        (weights, "length", json!(0), invalid),
        (weights, "shape", json!([1u64 << 62, 4]), invalid),
        (weights, "kind", json!("tensor_q5k"), ErrorKind::DTypeUnsupported),
        (weights, "file", json!("../norms.bin"), invalid),
        (weights, "file", json!("/etc/passwd"), invalid),
        (quant, "format", json!("Q5_K"), ErrorKind::DTypeUnsupported),
        (quant, "shape", json!([320, 320]), invalid),
        (quant, "shape", json!([u64::MAX, 512]), invalid),
        (quant, "offset", json!(1), invalid),
        (quant, "length", json!(u64::MAX), truncated),
    ];
    for (file, field, value, kind) in cases {
        let folder = folder();
        change_json(folder.path(), file, |manifest| manifest[0][field] = value.clone());
        refused(VindexReader::open(folder.path()), kind, folder.path().to_str().unwrap());
    }
}

/// A file that begins with `start` and is all holes behind it.
fn sparse(path: &Path, start: &[u8], len: u64) {
    std::fs::write(path, start).unwrap();
    std::fs::File::options().write(true).open(path).unwrap().set_len(len).unwrap();
}

/// A file without blocks costs nothing to make as large as one likes.
#[test]
fn what_only_a_files_size_bounds_is_not_believed() {
    const MANY: u32 = 1 << 20;
    let numbers = |magic: &[u8; 4], numbers: &[u32]| {
        [magic.to_vec(), numbers.iter().flat_map(|n| n.to_le_bytes()).collect()].concat()
    };
    let folder = mixture(true);
    let layer = folder.path().join("layers/layer_00.weights");
    sparse(&layer, &numbers(b"LYRW", &[1, 0, MANY, 4, 8]), 24 + 32 * u64::from(MANY));
    refused(VindexReader::open(folder.path()), ErrorKind::CheckpointInvalid, "entries");

    let meta = folder.path().join("down_meta.bin");
    sparse(&meta, &numbers(b"TEMD", &[1, MANY, 2]), 16 + 4 * u64::from(MANY));
    let error = DownMeta::parse(std::fs::read(&meta).unwrap(), &meta).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CheckpointInvalid, "{error}");
    assert!(error.message().contains("layers"), "{error}");
}

/// Sizes that are each possible, and whose product is beyond 64 bits.
#[test]
fn products_of_sizes_do_not_overflow() {
    const LARGE: usize = 1 << 28;
    let folder = mixture(false);
    for name in ["gate_vectors.bin", "embeddings.bin", "weight_manifest.json"] {
        std::fs::remove_file(folder.path().join(name)).unwrap();
    }
    change_json(folder.path(), "index.json", |index| {
        index["num_layers"] = json!(1024);
        index["hidden_size"] = json!(LARGE);
        index["model_config"]["moe"]["num_experts"] = json!(LARGE);
        let layer = |layer| {
            json!({ "layer": layer, "num_features": LARGE, "offset": 0, "length": 0,
                    "num_experts": LARGE, "num_features_per_expert": 1 })
        };
        index["layers"] = (0..1024).map(layer).collect();
    });
    refused(VindexReader::open(folder.path()), ErrorKind::CheckpointTruncated, "router_weights.bin");
}

#[test]
fn layer_headers_are_checked() {
    let number = |bytes: &mut Vec<u8>, n: u64, len: usize| bytes.extend(&n.to_le_bytes()[..len]);
    let mut header = b"LYRW".to_vec();
    [1, 4, 2, 128, 256].into_iter().for_each(|n| number(&mut header, n, 4));
    let (gate_up, down) = (256 * 144, 256 * 144);
    for i in 0..2u64 {
        let at = 88 + i * (gate_up + down);
        [at, gate_up, at + gate_up, down].into_iter().for_each(|n| number(&mut header, n, 8));
    }
    let len = 88 + 2 * (gate_up + down);
    let parse = |bytes: &[u8], len: u64| LayerHeader::parse(bytes, len, Path::new("layer_00.weights"));
    let found = parse(&header, len).unwrap();
    assert_eq!((found.dtype, found.intermediate, found.hidden), (skulk::DType::Q4_K, 128, 256));
    for cut in 0..header.len() {
        let error = parse(&header[..cut], cut as u64).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::CheckpointTruncated, "{cut}");
    }
    assert_eq!(parse(&header, len - 1).unwrap_err().kind(), ErrorKind::CheckpointTruncated);
    for (at, value, kind) in [
        (0, b'X', ErrorKind::CheckpointInvalid),
        (4, 2, ErrorKind::CheckpointInvalid),
        (8, 7, ErrorKind::DTypeUnsupported),
        (8, 99, ErrorKind::DTypeUnsupported),
        (15, 255, ErrorKind::CheckpointTruncated),
        (16, 127, ErrorKind::CheckpointInvalid),
        (19, 255, ErrorKind::CheckpointInvalid),
        (20, 1, ErrorKind::CheckpointInvalid),
        (31, 255, ErrorKind::CheckpointTruncated),
        (24, 0, ErrorKind::CheckpointInvalid),
    ] {
        let mut other = header.clone();
        other[at] = value;
        let error = parse(&other, len).unwrap_err();
        assert_eq!(error.kind(), kind, "{at}: {error}");
        assert!(error.to_string().contains("layer_00.weights"));
    }
}

type Exercise = fn(&[u8]) -> skulk::Result<()>;

/// The files that attack one assumption each, and random changes of good ones.
#[test]
fn no_bytes_break_the_parsers() {
    let gemma = fixtures::root().join("tests/fixtures/vindex/tiny-gemma4moe.q4k");
    let index = std::fs::read(gemma.join("index.json")).unwrap();
    let manifest = std::fs::read(made().join("weight_manifest.json")).unwrap();
    let mut layer = b"LYRW".to_vec();
    [1u32, 0, 1, 1, 1].into_iter().for_each(|n| layer.extend(n.to_le_bytes()));
    [56u64, 8, 64, 1024].into_iter().for_each(|n| layer.extend(n.to_le_bytes()));
    layer.resize(64 + 1024, 0);
    let down_meta = std::fs::read(made().join("down_meta.bin")).unwrap();
    let mut lines = "{\"_header\": true}\n".to_owned();
    lines += r#"{"layer": 0, "feature": 1, "top_token_id": 9, "c_score": 1.5, "top_k": [{"token_id": 9, "logit": 1.5}]}"#;
    let targets: [(&str, Exercise, Vec<u8>); 5] = [
        ("vindex_index", exercise::vindex_index, index),
        ("vindex_manifest", exercise::vindex_manifest, manifest),
        ("vindex_layer", exercise::vindex_layer, layer),
        ("vindex_down_meta", exercise::vindex_down_meta, down_meta),
        ("vindex_down_meta", exercise::vindex_down_meta, lines.into_bytes()),
    ];
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(6);
    for (name, exercise, seed) in targets {
        exercise(&seed).unwrap();
        let mut count = 0;
        for entry in std::fs::read_dir(fixtures::root().join("tests/fuzz/regressions").join(name)).unwrap() {
            let path = entry.unwrap().path();
            assert!(exercise(&std::fs::read(&path).unwrap()).is_err(), "{} was accepted", path.display());
            count += 1;
        }
        assert!(count > 0, "{name}");
        for _ in 0..2000 {
            let mut bytes = seed.clone();
            for _ in 0..1 + rng.next_u32() % 3 {
                // Headers are short: most changes are to hit them.
                let most = if rng.next_u32() % 2 == 0 { bytes.len() } else { bytes.len().min(64) };
                let at = rng.next_u32() as usize % most;
                bytes[at] = if rng.next_u32() % 2 == 0 { rng.next_u32() as u8 } else { b'9' };
            }
            let _ = exercise(&bytes);
        }
    }
}

/// Who browses needs no more than where things lie.
#[test]
fn a_mixture_opens_without_facts_of_its_experts() {
    let folder = mixture(false);
    std::fs::write(folder.path().join("router_weights.bin"), [0; 64]).unwrap();
    change_json(folder.path(), "index.json", |index| index["model_config"] = Value::Null);
    let vindex = VindexReader::open(folder.path()).unwrap();
    assert!(!vindex.tensors().is_empty());
}
