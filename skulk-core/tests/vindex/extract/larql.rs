//! Is what we write what LARQL writes, but for what LARQL loses or writes worse?

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use skulk::extract::ExtractOptions;
use skulk::{Checkpoint, DType, ErrorKind, VindexReader, open_checkpoint};

use super::{extract, extracted, files, options_of};
use crate::vindex::folders::source;
use crate::vindex::verify::sha256;
use crate::vindex::{fixtures, pairs, values};

/// Each of LARQL's folders with ours of the same source and options.
fn ours(mut each: impl FnMut(&Path, &Path, &Path)) {
    let mut compared = 0;
    for (made, origin) in pairs() {
        let name = fixtures::json(&made.join("index.json"))["model"].as_str().unwrap().to_owned();
        if !crate::vindex::is_extracted(&origin) {
            let folder = super::scratch();
            let error = extract(&origin, ExtractOptions::default(), &folder.path().join("v")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ArchUnsupported, "{error}");
            continue;
        }
        let Some(options) = options_of(&made) else { continue };
        let (_folder, own) = extracted(&origin, options.name(name));
        each(&made, &own, &origin);
        compared += 1;
    }
    assert!(compared > 0);
}

/// Feed-forward blocks that LARQL cannot store, or cannot read: rows that are no whole blocks, and experts.
fn is_per_layer(index: &Value) -> bool {
    index["quant"] == "q4k"
        && (!index["hidden_size"].as_u64().unwrap().is_multiple_of(256)
            || !index["model_config"]["moe"].is_null())
}

#[test]
fn the_index_is_larqls() {
    ours(|made, own, origin| {
        let [mut larql, mut skulk] = [made, own].map(|folder| fixtures::json(&folder.join("index.json")));
        let what = made.display();
        let mut config = fixtures::json(&origin.join("config.json"));
        assert_eq!(skulk["skulk"]["config"], config.take(), "{what}");
        let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let mut expected = keys(&larql);
        if is_per_layer(&larql) {
            assert_eq!(skulk["ffn_layout"], "per_layer", "{what}");
            skulk.as_object_mut().unwrap().shift_remove("ffn_layout");
        }
        assert_eq!(skulk["source"]["huggingface_repo"], larql["model"], "{what}");
        assert_eq!(keys(&skulk["source"]), keys(&larql["source"]), "{what}");
        expected.push("skulk".to_owned());
        assert_eq!(keys(&skulk), expected, "{what}");
        assert_eq!(keys(&skulk["model_config"]), keys(&larql["model_config"]), "{what}");
        if made.to_str().unwrap().contains("mixtral") {
            // LARQL 0.1 does not look for it in `rope_parameters` of one kind, and writes its default.
            assert_eq!(larql["model_config"]["rope_base"], 10_000.0);
            larql["model_config"]["rope_base"] = json!(1_000_000.0);
        }
        for index in [&mut larql, &mut skulk] {
            for field in ["source", "checksums", "skulk"] {
                index.as_object_mut().unwrap().shift_remove(field);
            }
        }
        assert_eq!(skulk, larql, "{what}");
    });
}

/// Files and their sizes; those of JSON byte by byte. `tokenizer.json` is the source's own: LARQL writes it anew.
#[test]
fn files_and_manifests_are_larqls() {
    ours(|made, own, origin| {
        let (mut larql, mut skulk) = (files(made), files(own));
        let index = fixtures::json(&made.join("index.json"));
        let what = made.display();
        assert!(skulk.remove("skulk_hashes.json").is_some());
        if is_per_layer(&index) {
            for name in ["interleaved_q4k.bin", "interleaved_q4k_manifest.json"] {
                larql.remove(name).unwrap();
            }
            // Of experts it has none, but writes the files.
            if larql.get("down_features_q4k.bin").is_some_and(Vec::is_empty) {
                larql.remove("down_features_q4k.bin").unwrap();
                larql.remove("down_features_q4k_manifest.json").unwrap();
            }
            let of_layers = skulk.keys().filter(|name| name.starts_with("layers/")).count();
            assert_eq!(of_layers as u64, index["num_layers"].as_u64().unwrap(), "{what}");
            skulk.retain(|name, _| !name.starts_with("layers/"));
        }
        let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&skulk), names(&larql), "{what}");
        for (name, bytes) in &skulk {
            match name.as_str() {
                "index.json" => {}
                "tokenizer.json" => assert_eq!(*bytes, std::fs::read(origin.join(name)).unwrap()),
                _ if name.ends_with(".json") => assert!(*bytes == larql[name], "{what}: {name}"),
                _ => assert_eq!(bytes.len(), larql[name].len(), "{what}: {name}"),
            }
        }
    });
}

#[test]
fn checksums_are_of_every_file() {
    ours(|_, own, _| {
        let index = fixtures::json(&own.join("index.json"));
        let mut files = files(own);
        files.remove("skulk_hashes.json");
        let mut expected: BTreeMap<_, _> =
            files.iter().map(|(name, bytes)| (name.clone(), sha256(bytes))).collect();
        let stored = fixtures::json(&own.join("skulk_hashes.json"));
        assert_eq!(stored["files"]["index.json"]["sha256"], expected["index.json"]);
        let of_index = expected.remove("index.json").unwrap();
        assert_eq!(index["checksums"], json!(expected));
        expected.insert("index.json".to_owned(), of_index);
        assert_eq!(stored["files"].as_object().unwrap().len(), files.len());
        for (name, bytes) in &files {
            assert_eq!(stored["files"][name]["bytes"], bytes.len());
            assert_eq!(stored["files"][name]["sha256"], json!(expected[name]));
        }
    });
}

/// Mean of the squares of differences.
fn error(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let square = |(a, b): (&f32, &f32)| f64::from(a - b).powi(2);
    found.iter().zip(expected).map(square).sum::<f64>() / found.len() as f64
}

/// Floats are the source's, rounded to the nearest, where LARQL cuts off. Quantised tensors are closer to the source
/// than LARQL's: each kind of tensor in all layers together, and none is further off by more than a tenth.
#[test]
fn tensors_are_nearer_to_the_source_than_larqls() {
    ours(|made, own, origin| {
        let origin = open_checkpoint(origin).unwrap();
        let [larql, skulk] = [made, own].map(|folder| VindexReader::open(folder).unwrap());
        for tensor in skulk.tensors() {
            let what = format!("{}: {}", made.display(), tensor.name);
            let found = values(&skulk.region(&tensor.name).unwrap());
            let mut expected = source(&*origin, &tensor.name);
            if tensor.name.ends_with("down_features.weight") {
                // Up to whole blocks of features.
                expected.resize(found.len(), 0.0);
            }
            match tensor.dtype {
                DType::F32 => assert!(found == expected, "{what}"),
                DType::F16 => {
                    let nearest: Vec<f32> =
                        expected.iter().map(|&x| half::f16::from_f32(x).to_f32()).collect();
                    assert!(found == nearest, "{what}");
                }
                _ => {
                    // LARQL stores no experts, and down projections of its interleaved file with 6 bits.
                    let Some(theirs) = larql.tensor(&tensor.name).filter(|t| t.dtype == tensor.dtype) else {
                        assert!(tensor.dtype == DType::Q4_K && skulk.index().is_per_layer(), "{what}");
                        continue;
                    };
                    let theirs = values(&larql.region(&theirs.name).unwrap());
                    let (ours, theirs) = (error(&found, &expected), error(&theirs, &expected));
                    assert!(ours <= theirs, "{what}: {ours} is more than {theirs}");
                }
            }
        }
    });
}
