//! Is damage found, whatever it is, and told where it is?

use std::ops::Range;
use std::path::Path;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use skulk::vindex::{VerifyKind, VerifyOptions, VerifyReport, VerifyStatus, verify_vindex};
use skulk::{ByteSize, CancelToken, ErrorKind, VindexReader};

use crate::vindex::mixture::mixture;
use crate::vindex::{change, change_json, copied, made, pairs};

const CHUNK: usize = 16 << 20;

pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes `skulk_hashes.json` for all files that lie in a folder, not in folders in it.
pub(crate) fn write_hashes(folder: &Path) {
    let _ = std::fs::remove_file(folder.join("skulk_hashes.json"));
    let mut files = serde_json::Map::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_file())
    {
        let bytes = std::fs::read(entry.path()).unwrap();
        let chunks: Vec<String> = bytes.chunks(CHUNK).map(sha256).collect();
        let whole = if chunks.len() == 1 { chunks[0].clone() } else { sha256(&bytes) };
        files.insert(
            entry.file_name().into_string().unwrap(),
            json!({ "bytes": bytes.len(), "sha256": whole, "chunks": chunks }),
        );
    }
    let hashes = json!({ "algorithm": "sha256", "chunk_bytes": CHUNK, "files": files });
    std::fs::write(folder.join("skulk_hashes.json"), hashes.to_string()).unwrap();
}

/// The folder of the repository, with hashes.
fn folder() -> tempfile::TempDir {
    let folder = copied(&made());
    write_hashes(folder.path());
    folder
}

fn all() -> VerifyOptions {
    VerifyOptions::default().values(true)
}

fn verify(folder: &Path) -> VerifyReport {
    verify_vindex(folder, &all()).unwrap()
}

/// The problem of a kind in a file.
#[track_caller]
fn problem(
    report: &VerifyReport,
    file: &str,
    kind: VerifyKind,
) -> (Option<Range<u64>>, Option<String>, String) {
    let found = report.problems.iter().find(|problem| problem.file == file && problem.kind == kind);
    let found = found.unwrap_or_else(|| panic!("no {} problem in {file}: {report}", kind.as_str()));
    assert!(!report.is_sound());
    assert!(report.to_string().contains(&found.to_string()) && found.to_string().contains(file), "{report}");
    (found.range.clone(), found.tensor.clone(), found.message.clone())
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .filter(|entry| entry.path().is_file())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect()
}

#[test]
fn what_larql_made_is_sound() {
    for (made, _) in pairs() {
        let report = VindexReader::open(&made).unwrap().verify(&all()).unwrap();
        assert!(report.is_sound(), "{report}");
        // LARQL has checksums of embeddings at every level.
        let status = |name: &str| report.files.iter().find(|file| file.name == name).unwrap().status;
        assert_eq!(status("embeddings.bin"), VerifyStatus::Verified);
        assert_eq!(status("tokenizer.json"), VerifyStatus::Checked);
        assert!(report.bytes_read.bytes() > 0 && report.to_string().contains("sound"), "{report}");
        let nothing = verify_vindex(&made, &VerifyOptions::default().hashes(false)).unwrap();
        assert!(nothing.is_sound() && nothing.bytes_read.bytes() == 0, "{nothing}");
    }
}

#[test]
fn a_changed_byte_is_found_in_every_file() {
    let whole = folder();
    assert!(verify(whole.path()).is_sound(), "{}", verify(whole.path()));
    for name in names(whole.path()) {
        let folder = folder();
        let mut len = 0;
        change(folder.path(), &name, |bytes| {
            len = bytes.len() as u64;
            let at = bytes.len() / 3;
            bytes[at] ^= 0x10;
        });
        let report = verify(folder.path());
        if name == "skulk_hashes.json" {
            assert!(!report.is_sound(), "{report}");
            continue;
        }
        let (range, ..) = problem(&report, &name, VerifyKind::Hash);
        assert_eq!(range, Some(0..len), "{report}");
        let file = report.files.iter().find(|file| file.name == name).unwrap();
        assert_eq!(file.status, VerifyStatus::Damaged);
        if name.ends_with(".json") {
            // Other names in a manifest make other files missing.
            continue;
        }
        // Only that.
        let others = report.files.iter().filter(|file| file.name != name && file.name != "skulk_hashes.json");
        assert!(others.into_iter().all(|file| file.status == VerifyStatus::Verified), "{report}");
    }
}

#[test]
fn files_that_are_cut_or_longer_are_found() {
    let whole = folder();
    for name in names(whole.path()).iter().filter(|name| *name != "skulk_hashes.json") {
        let folder = folder();
        let mut len = 0;
        change(folder.path(), name, |bytes| {
            len = bytes.len() as u64;
            bytes.pop();
        });
        let report = verify(folder.path());
        let found = report.problems.iter().any(|p| p.file == *name && p.range == Some(len - 1..len));
        assert!(found, "{report}");
        problem(&report, name, VerifyKind::Size);
        change(folder.path(), name, |bytes| bytes.extend(b"  \n"));
        let report = verify(folder.path());
        let (_, _, message) = problem(&report, name, VerifyKind::Size);
        assert!(!message.is_empty());
        assert!(report.problems.iter().any(|p| p.file == *name && p.range == Some(len..len + 2)), "{report}");
    }
}

#[test]
fn files_that_are_missing_are_found() {
    let whole = folder();
    for name in names(whole.path())
        .iter()
        .filter(|name| !["skulk_hashes.json", "index.json"].contains(&name.as_str()))
    {
        let folder = folder();
        std::fs::remove_file(folder.path().join(name)).unwrap();
        let report = verify(folder.path());
        problem(&report, name, VerifyKind::Missing);
        let file = report.files.iter().find(|file| file.name == *name).unwrap();
        assert_eq!((file.status, file.bytes), (VerifyStatus::Missing, ByteSize(0)));
        // Without hashes, by what the index and the manifests make one expect.
        std::fs::remove_file(folder.path().join("skulk_hashes.json")).unwrap();
        let report = verify(folder.path());
        let is_known = !["generation_config.json", "interleaved_q4k_manifest.json"].contains(&name.as_str());
        assert!(!is_known || !report.is_sound(), "{name}: {report}");
    }
    let folder = folder();
    std::fs::remove_file(folder.path().join("index.json")).unwrap();
    assert_eq!(verify_vindex(folder.path(), &all()).unwrap_err().kind(), ErrorKind::FileNotFound);
    assert_eq!(verify_vindex("no/such/folder", &all()).unwrap_err().kind(), ErrorKind::FileNotFound);
}

#[test]
fn what_a_level_or_a_slice_lacks_is_not_missing() {
    let folder = copied(&made());
    for name in ["attn_weights_q4k.bin", "attn_weights_q4k_manifest.json"] {
        std::fs::remove_file(folder.path().join(name)).unwrap();
    }
    problem(&verify(folder.path()), "attn_weights_q4k.bin", VerifyKind::Missing);
    let slice = json!({ "slice": { "preset": "server", "lacks": ["attn"] } });
    change_json(folder.path(), "index.json", |index| index["skulk"] = slice);
    assert!(verify(folder.path()).is_sound(), "{}", verify(folder.path()));
}

#[test]
fn tokens_of_features_that_were_not_asked_for_are_not_missing() {
    let folder = copied(&made());
    std::fs::remove_file(folder.path().join("down_meta.bin")).unwrap();
    problem(&verify(folder.path()), "down_meta.bin", VerifyKind::Missing);
    change_json(folder.path(), "index.json", |index| {
        index["down_top_k"] = 0.into();
        index["checksums"].as_object_mut().unwrap().remove("down_meta.bin");
    });
    assert!(verify(folder.path()).is_sound(), "{}", verify(folder.path()));
    assert_eq!(skulk::VindexReader::open(folder.path()).unwrap().lacks(), []);
}

/// The index of a folder of one layer, of level browse.
fn small_index(hidden: usize, width: usize, vocab: usize, quant: &str) -> Value {
    json!({
        "version": 2, "model": "test", "family": "llama", "num_layers": 1, "hidden_size": hidden,
        "intermediate_size": width, "vocab_size": vocab, "embed_scale": 1.0, "layers": [], "down_top_k": 1,
        "quant": quant,
    })
}

#[test]
fn the_bad_chunk_is_told() {
    // Embeddings of two chunks and a bit.
    let (vocab, hidden) = (CHUNK / 256 + 3, 256);
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    put("index.json", small_index(hidden, 1, vocab, "none").to_string().as_bytes());
    put("tokenizer.json", b"{}");
    put("gate_vectors.bin", b"");
    let meta: Vec<u8> = [0x444d4554u32, 1, 1, 1, 0].iter().flat_map(|n| n.to_le_bytes()).collect();
    put("down_meta.bin", &meta);
    let bytes: Vec<u8> = (0..vocab * hidden / 4).flat_map(|i| (i as u32 % 1000).to_le_bytes()).collect();
    let bytes = [&bytes[..], &bytes].concat();
    put("embeddings.bin", &bytes);
    assert_eq!(bytes.len(), 2 * CHUNK + 3 * 512);
    write_hashes(folder.path());
    let flip = |at: usize| change(folder.path(), "embeddings.bin", |bytes| bytes[at] ^= 1);
    let hashes = VerifyOptions::default();
    let found = || {
        let report = verify_vindex(folder.path(), &hashes).unwrap();
        assert_eq!(report.problems.len(), 1, "{report}");
        problem(&report, "embeddings.bin", VerifyKind::Hash).0
    };
    let (one, two, end) = (CHUNK as u64, 2 * CHUNK as u64, bytes.len() as u64);
    flip(CHUNK);
    assert_eq!(found(), Some(one..two));
    flip(bytes.len() - 1);
    // Bad chunks beside each other are one problem.
    assert_eq!(found(), Some(one..end));
}

#[test]
fn damage_without_hashes_is_found_by_the_indexs_checksums() {
    let folder = copied(&made());
    change(folder.path(), "gate_vectors.bin", |bytes| bytes[7] ^= 1);
    let (range, ..) = problem(&verify(folder.path()), "gate_vectors.bin", VerifyKind::Hash);
    assert_eq!(range, Some(0..491520));
    // Nobody else knows what these were.
    change(folder.path(), "tokenizer.json", |bytes| bytes[9] ^= 1);
    assert_eq!(verify(folder.path()).problems.len(), 1);
}

#[test]
fn two_hashes_of_a_file_must_agree() {
    let folder = folder();
    change_json(folder.path(), "index.json", |index| index["checksums"]["norms.bin"] = json!("00"));
    let report = verify(folder.path());
    let (range, _, message) = problem(&report, "norms.bin", VerifyKind::Hash);
    assert!(range.is_none() && message.contains("two"), "{message}");
}

#[test]
fn weights_that_nobody_vouches_for_are_told() {
    let folder = folder();
    for name in ["gate_vectors_q4.bin", "knn_store.bin", "README.md", "notes.txt"] {
        std::fs::write(folder.path().join(name), "new").unwrap();
    }
    let report = verify(folder.path());
    assert_eq!(report.problems.len(), 1, "{report}");
    problem(&report, "gate_vectors_q4.bin", VerifyKind::Unlisted);
}

/// A folder whose hashes are of what it is, so that only looks at its inside can tell.
fn planted(file: &str, at: usize, bytes: &[u8]) -> VerifyReport {
    let folder = folder();
    change(folder.path(), file, |all| all[at..at + bytes.len()].copy_from_slice(bytes));
    change_json(folder.path(), "index.json", |index| index["checksums"] = Value::Null);
    write_hashes(folder.path());
    let without = verify_vindex(folder.path(), &VerifyOptions::default()).unwrap();
    assert!(without.is_sound(), "{without}");
    verify(folder.path())
}

#[test]
fn numbers_that_are_none_are_found() {
    let nan = f32::NAN.to_le_bytes();
    // Row, bytes of the block or element.
    type Case<'a> = (&'a str, usize, &'a [u8], &'a str, u64, Range<u64>);
    let cases: [Case<'_>; 6] = [
        ("norms.bin", 1280 + 40, &nan, "layers.0.post_attention_layernorm.weight", 0, 1320..1324),
        ("gate_vectors.bin", 640 * 5 + 6, &[0, 0x7c], "layers.0.gate_vectors", 5, 3206..3208),
        ("embeddings.bin", 640 * 511 + 638, &[1, 0xfc], "embed_tokens.weight", 511, 327_678..327_680),
        // Half precision scale and minimum of Q4_K blocks; a row has two.
        (
            "attn_weights_q4k.bin",
            288 * 3 + 144,
            &[0, 0x7e],
            "layers.0.self_attn.q_proj.weight",
            3,
            1008..1152,
        ),
        (
            "attn_weights_q4k.bin",
            92_160 + 2,
            &[0, 0x7c],
            "layers.0.self_attn.k_proj.weight",
            0,
            92_160..92_304,
        ),
        // The scale of a Q6_K block, which is at its end.
        (
            "attn_weights_q4k.bin",
            110_592 + 208,
            &[0, 0x7e],
            "layers.0.self_attn.v_proj.weight",
            0,
            110_592..110_802,
        ),
    ];
    for (file, at, bytes, tensor, row, range) in cases {
        let report = planted(file, at, bytes);
        let (found, of, message) = problem(&report, file, VerifyKind::NotFinite);
        assert_eq!((found, of.as_deref()), (Some(range), Some(tensor)), "{report}");
        assert!(message.contains(&format!("row {row};")), "{message}");
        assert_eq!(report.problems.len(), 1, "{report}");
    }
    assert_eq!(std::fs::metadata(made().join("down_meta.bin")).unwrap().len(), 16 + 2 * (4 + 384 * 88));
    // Feature 2 of layer 0: its score, then a token.
    let (record, report) = (20 + 2 * 88, planted("down_meta.bin", 20 + 2 * 88 + 4, &nan));
    let (range, _, message) = problem(&report, "down_meta.bin", VerifyKind::NotFinite);
    assert_eq!(range, Some(record..record + 8));
    assert!(message.contains("layer 0, feature 2"), "{message}");
    let report = planted("down_meta.bin", 20 + 2 * 88 + 8, &512u32.to_le_bytes());
    let (range, _, message) = problem(&report, "down_meta.bin", VerifyKind::Format);
    assert_eq!(range, Some(record + 8..record + 16));
    assert!(message.contains("below 512"), "{message}");
}

/// More than one piece is looked at, and pieces do not end where blocks do.
#[test]
fn numbers_are_found_in_every_piece_of_a_large_tensor() {
    let folder = tempfile::tempdir().unwrap();
    // Q6_K blocks of 210 bytes: 17 MiB of them.
    let (rows, hidden) = (85_000, 256);
    let entry = json!([{
        "key": "layers.0.mlp.up_proj.weight", "shape": [rows, hidden], "format": "Q6_K", "offset": 0,
        "length": rows * 210,
    }]);
    let put = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    put("index.json", small_index(hidden, rows, 1, "q4k").to_string().as_bytes());
    put("interleaved_q4k_manifest.json", entry.to_string().as_bytes());
    let mut bytes = vec![0u8; rows * 210];
    let bad = [4_993, 4_994, 79_890, 84_999]; // About the borders of pieces of 1 MiB and 16 MiB, and the end.
    for row in bad {
        bytes[row * 210 + 209] = 0x7e;
    }
    put("interleaved_q4k.bin", &bytes);
    let report = verify_vindex(folder.path(), &all().hashes(false)).unwrap();
    let (range, _, message) = problem(&report, "interleaved_q4k.bin", VerifyKind::NotFinite);
    assert_eq!(range, Some(4_993 * 210..4_994 * 210));
    assert!(message.contains("row 4993; 4 blocks"), "{message}");
}

#[test]
fn tensors_over_each_other_and_bytes_of_none_are_found() {
    let folder = copied(&made());
    let quant = "attn_weights_q4k_manifest.json";
    let original = std::fs::read(folder.path().join(quant)).unwrap();
    // Offsets of two tensors of different sizes, swapped.
    change_json(folder.path(), quant, |list| {
        let (q, k) = (list[0]["offset"].take(), list[1]["offset"].take());
        (list[0]["offset"], list[1]["offset"]) = (k, q);
    });
    let (range, tensor, message) =
        problem(&verify(folder.path()), "attn_weights_q4k.bin", VerifyKind::Overlap);
    assert_eq!(range, Some(110_592..137_472));
    assert!(tensor.is_none() || message.contains("within"), "{message}");
    // A tensor that is no longer listed leaves its bytes behind.
    change_json(folder.path(), quant, |list| *list = serde_json::from_slice(&original).unwrap());
    change_json(folder.path(), quant, |list| drop(list.as_array_mut().unwrap().remove(1)));
    let (range, ..) = problem(&verify(folder.path()), "attn_weights_q4k.bin", VerifyKind::Gap);
    assert_eq!(range, Some(92_160..110_592));
    change_json(folder.path(), quant, |list| *list = serde_json::from_slice(&original).unwrap());
    change(folder.path(), "norms.bin", |bytes| bytes.extend([0; 12]));
    change_json(folder.path(), "index.json", |index| index["checksums"] = Value::Null);
    let (range, ..) = problem(&verify(folder.path()), "norms.bin", VerifyKind::Gap);
    assert_eq!(range, Some(6400..6412));
}

#[test]
fn broken_structure_is_told_with_its_place() {
    type Case<'a> = (&'a str, &'a dyn Fn(&mut Vec<u8>), VerifyKind, u64);
    let cases: [Case<'_>; 5] = [
        ("down_meta.bin", &|b| b[0] = 0, VerifyKind::Format, 0),
        ("down_meta.bin", &|b| b[16] = 0x81, VerifyKind::Size, 33_904),
        ("down_meta.bin", &|b| b.truncate(100), VerifyKind::Size, 20),
        ("down_meta.bin", &|b| b[8] = 1, VerifyKind::Format, 33_812),
        ("norms.bin", &|b| b.truncate(6000), VerifyKind::Size, 5120),
    ];
    for (file, break_it, kind, offset) in cases {
        let folder = copied(&made());
        change(folder.path(), file, break_it);
        let (range, ..) = problem(&verify(folder.path()), file, kind);
        assert_eq!(range.unwrap().start, offset, "{file}");
    }
    // Counts that are possible, but others than the index has.
    let folder = mixture(false);
    change(folder.path(), "down_meta.bin", |bytes| {
        bytes[8] = 1;
        bytes.truncate(20 + 16 * 24);
    });
    let (range, _, message) = problem(&verify(folder.path()), "down_meta.bin", VerifyKind::Format);
    assert!(range == Some(8..12) && message.contains("expected 3 layers"), "{message}");
    change(folder.path(), "down_meta.bin", |bytes| {
        bytes[16] = 15;
        bytes.truncate(20 + 15 * 24);
    });
    let report = verify(folder.path());
    assert!(
        report.problems.iter().any(|p| p.range == Some(16..20) && p.message.contains("16 features")),
        "{report}"
    );
}

/// Without its entry nobody finds a head that is there; it is not the embedding table for that.
#[test]
fn weights_that_no_manifest_mentions_are_told() {
    let folder = copied(&made());
    change_json(folder.path(), "weight_manifest.json", |list| {
        list.as_array_mut().unwrap().retain(|entry| entry["key"] != "lm_head.weight");
    });
    change_json(folder.path(), "index.json", |index| index["checksums"] = Value::Null);
    let (range, _, message) = problem(&verify(folder.path()), "lm_head_q4.bin", VerifyKind::Gap);
    let len = std::fs::metadata(folder.path().join("lm_head_q4.bin")).unwrap().len();
    assert!(range == Some(0..len) && message.contains("weight_manifest.json"), "{message}");
    let error = skulk::Model::open(folder.path(), &skulk::LoadOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TensorMissing, "{error}");
    assert!(error.message().contains("weight_manifest.json"), "{error}");
    assert!(error.to_string().contains("tensor: lm_head.weight"), "{error}");
}

#[test]
fn numbers_of_the_index_that_cannot_be_are_told() {
    for scale in [json!(0), json!(-1.5)] {
        let folder = copied(&made());
        change_json(folder.path(), "index.json", |index| index["embed_scale"] = scale);
        let (.., message) = problem(&verify(folder.path()), "index.json", VerifyKind::Format);
        assert!(message.contains("above 0"), "{message}");
        let error = skulk::VindexReader::open(folder.path()).unwrap_err();
        assert!(error.to_string().contains("field: embed_scale"), "{error}");
    }
    for (band, pair) in [("output", json!([1, 2])), ("syntax", json!([1, 0]))] {
        let folder = copied(&made());
        change_json(folder.path(), "index.json", |index| {
            index["layer_bands"] = json!({"syntax": [0, 0], "knowledge": [0, 0], "output": [1, 1]});
        });
        assert!(verify(folder.path()).is_sound(), "{}", verify(folder.path()));
        change_json(folder.path(), "index.json", |index| index["layer_bands"][band] = pair);
        let (.., message) = problem(&verify(folder.path()), "index.json", VerifyKind::Format);
        assert!(message.contains(&format!("layer_bands.{band}")) && message.contains("below 2"), "{message}");
    }
}

/// Whatever is wrong with the JSON files, the rest is verified.
#[test]
fn folders_that_cannot_be_opened_are_verified_too() {
    for (file, text) in [
        ("index.json", "{"),
        ("index.json", "{\"version\":9}"),
        ("weight_manifest.json", "[{}]"),
        ("attn_weights_q4k_manifest.json", "[1]"),
        ("skulk_hashes.json", "{}"),
    ] {
        let folder = folder();
        change(folder.path(), "norms.bin", |bytes| bytes[0] ^= 1);
        std::fs::write(folder.path().join(file), text).unwrap();
        let report = verify(folder.path());
        problem(&report, file, VerifyKind::Format);
        if file != "skulk_hashes.json" {
            problem(&report, "norms.bin", VerifyKind::Hash);
        }
    }
}

#[test]
fn work_is_reported_and_ends_when_cancelled() {
    let folder = folder();
    let most = std::sync::Arc::new(std::sync::Mutex::new((ByteSize(0), ByteSize(0))));
    let seen = most.clone();
    let options = all().threads(2).progress(move |progress| {
        let mut seen = seen.lock().unwrap();
        *seen = (seen.0.max(progress.bytes_done), progress.bytes_total);
        assert!(!progress.file.is_empty());
    });
    let report = verify_vindex(folder.path(), &options).unwrap();
    let (done, total) = *most.lock().unwrap();
    assert_eq!((done, total), (report.bytes_read, report.bytes_read));

    let token = CancelToken::new();
    let inner = token.clone();
    let options = all().cancel(token).progress(move |_| inner.cancel());
    assert_eq!(verify_vindex(folder.path(), &options).unwrap_err().kind(), ErrorKind::Cancelled);
}
