//! Are layers and experts cut out of files byte for byte, and whatever cannot be cut refused?

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Value, json};
use skulk::vindex::{SliceOptions, SlicePreset, VindexPart, VindexQuant};
use skulk::{Checkpoint, ErrorKind, VindexReader};

use crate::vindex::extract::files as bytes_of;
use crate::vindex::mixture::{EXPERTS, LAYERS, mixture};
use crate::vindex::slice::{files, options, slice, sound, tensors};
use crate::vindex::{change_json, fixtures, is_summary, pairs, refused, write};

fn layer_of(name: &str) -> Option<usize> {
    name.strip_prefix("layers.").and_then(|rest| rest.split('.').next()).map(|layer| layer.parse().unwrap())
}

fn expert_of(name: &str) -> Option<usize> {
    name.split_once("experts.").and_then(|(_, rest)| rest.split('.').next()).and_then(|n| n.parse().ok())
}

/// Every kind of folder: LARQL's, mixtures, and version 1.
fn kinds() -> Vec<(tempfile::TempDir, PathBuf)> {
    let mut all: Vec<_> = pairs().into_iter().map(|(made, _)| (tempfile::tempdir().unwrap(), made)).collect();
    for folder in [mixture(false), mixture(true), write::float_vindex(true, 1)] {
        let path = folder.path().to_owned();
        all.push((folder, path));
    }
    all
}

#[test]
fn layers_are_cut_out_byte_for_byte() {
    for (_keep, made) in kinds() {
        let (whole, before) = (tensors(&made), bytes_of(&made));
        let reader = VindexReader::open(&made).unwrap();
        let n = reader.index().num_layers;
        for layers in [0..n / 2, n / 2..n] {
            let what = format!("{} {layers:?}", made.display());
            let target = slice(&made, &SliceOptions::default().layers(layers.clone()));
            let expected: BTreeMap<_, _> = whole
                .iter()
                .filter(|(name, _)| layer_of(name).is_none_or(|layer| layers.contains(&layer)))
                .map(|(name, tensor)| (name.split('@').next().unwrap().to_owned(), tensor.clone()))
                .collect();
            // What a key that occurs twice is called tells where it lies.
            let found: BTreeMap<_, _> = tensors(target.path())
                .into_iter()
                .map(|(name, tensor)| (name.split('@').next().unwrap().to_owned(), tensor))
                .collect();
            assert!(found.keys().eq(expected.keys()), "{what}: {:?}", found.keys());
            for (name, tensor) in &found {
                assert!(*tensor == expected[name], "{what}: {name}");
            }
            sound(target.path());
            let part = VindexReader::open(target.path()).unwrap();
            assert_eq!(part.index().num_layers, n);
            for name in whole.keys().filter(|name| !found.contains_key(name.split('@').next().unwrap())) {
                let error = part.region(name).unwrap_err();
                let layer = layer_of(name).unwrap();
                assert_eq!(error.kind(), ErrorKind::TensorMissing);
                assert!(
                    error.message().contains(&format!("layer {layer}, but this slice holds layers")),
                    "{error}"
                );
            }
            // What features write, by layer.
            if let Some(meta) = before.get("down_meta.bin") {
                let cut = std::fs::read(target.path().join("down_meta.bin")).unwrap();
                let (all, kept) = (down_meta(meta), down_meta(&cut));
                for layer in 0..n {
                    let expected = if layers.contains(&layer) { &all[layer][..] } else { &[] };
                    assert!(kept[layer] == expected, "{what}: {layer}");
                }
            }
            // LARQL finds these by position.
            for (name, text) in before.iter().filter(|(name, _)| name.contains("q4k_manifest")) {
                let (all, cut): (Vec<Value>, Value) =
                    (serde_json::from_slice(text).unwrap(), fixtures::json(&target.path().join(name)));
                assert_eq!(cut.as_array().unwrap().len(), all.len(), "{what}");
                for (one, cut) in all.iter().zip(cut.as_array().unwrap()) {
                    assert_eq!(one["key"], cut["key"]);
                    let is_kept = layers.contains(&layer_of(one["key"].as_str().unwrap()).unwrap());
                    let (shape, len) =
                        if is_kept { (&one["shape"][0], &one["length"]) } else { (&json!(0), &json!(0)) };
                    assert_eq!((&cut["shape"][0], &cut["length"]), (shape, len));
                }
            }
        }
        assert!(bytes_of(&made) == before, "{} was changed", made.display());
    }
}

/// The records of each layer.
fn down_meta(bytes: &[u8]) -> Vec<Vec<u8>> {
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let (layers, record) = (number(8), 8 + 8 * number(12));
    let mut at = 16;
    let mut all = Vec::new();
    for _ in 0..layers {
        let len = number(at) * record;
        all.push(bytes[at + 4..at + 4 + len].to_vec());
        at += 4 + len;
    }
    assert_eq!(at, bytes.len());
    all
}

#[test]
fn experts_are_cut_out_byte_for_byte() {
    let mut seen = 0;
    for (_keep, made) in kinds() {
        let reader = VindexReader::open(&made).unwrap();
        let Some(moe) = reader.index().moe() else {
            let error = reader.slice(made.join("no"), &SliceOptions::default().experts(0..1)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            continue;
        };
        let n = moe.num_experts;
        assert!(n >= EXPERTS);
        let is_summary = reader.index().layers.iter().any(|entry| is_summary(reader.index(), entry.layer));
        let (whole, before) = (tensors(&made), bytes_of(&made));
        let are_floats = reader.index().quant() == VindexQuant::None;
        for (preset, experts) in [
            (SlicePreset::Full, vec![0..1, 1..2]),
            (SlicePreset::ExpertServer, vec![0..1, 2..3]),
            (SlicePreset::ExpertServer, vec![2..3, 3..4]),
            (SlicePreset::Server, vec![1..2, 1..2]),
        ] {
            let what = format!("{} {preset} {experts:?}", made.display());
            let target = tempfile::tempdir().unwrap();
            if let Err(e) = reader
                .slice(target.path(), &experts.iter().cloned().fold(options(preset), SliceOptions::experts))
            {
                assert_eq!(e.kind(), ErrorKind::TensorMissing, "{what}: {e}");
                assert!(!reader.lacks().is_empty(), "{what}: {e}");
                continue;
            }
            seen += 1;
            let part = VindexReader::open(target.path()).unwrap();
            let cuts_gates = are_floats && preset != SlicePreset::Full && !is_summary;
            let is_gate = |name: &str| {
                let file = reader.tensor(name).unwrap().file;
                reader.files()[file].path().ends_with("gate_vectors.bin")
            };
            let has = |expert: usize| experts.iter().any(|range| range.contains(&expert));
            let lacking = part.lacks();
            for (name, tensor) in &whole {
                let found = part.region(name);
                let is_foreign = expert_of(name).is_some_and(|expert| !has(expert));
                if is_foreign && (cuts_gates || !is_gate(name)) {
                    let error = found.unwrap_err();
                    assert!(error.message().contains("but this slice holds experts"), "{what}: {error}");
                } else if let Ok(region) = found {
                    assert!(region.bytes() == tensor.1, "{what}: {name}");
                } else {
                    assert!(!lacking.is_empty() && preset != SlicePreset::Full, "{what}: {name}");
                }
            }
            sound(target.path());
            // Gate vectors and what their features write stay row by row.
            if let Ok(meta) = std::fs::read(target.path().join("down_meta.bin")) {
                let all = down_meta(&before["down_meta.bin"]);
                for (layer, kept) in part.index().layers.iter().zip(down_meta(&meta)) {
                    let all = &all[layer.layer];
                    let block = all.len() / n;
                    let is_cut = cuts_gates && layer.num_experts.is_some();
                    let expected: Vec<u8> = (0..n)
                        .filter(|expert| !is_cut || has(*expert))
                        .flat_map(|expert| all[expert * block..(expert + 1) * block].to_vec())
                        .collect();
                    assert!(kept == expected, "{what}");
                }
            }
        }
        assert!(bytes_of(&made) == before, "{} was changed", made.display());
    }
    assert!(seen >= 8, "{seen}");
}

#[test]
fn foreign_experts_take_no_bytes() {
    for has_layer_files in [false, true] {
        let folder = mixture(has_layer_files);
        let target = slice(folder.path(), &options(SlicePreset::ExpertServer).experts(1..2));
        let (whole, part) = (files(folder.path()), files(target.path()));
        let cut = if has_layer_files {
            vec!["layers/layer_00.weights", "layers/layer_02.weights"]
        } else {
            vec!["gate_vectors.bin", "down_weights.bin"]
        };
        for name in cut {
            let header = if name.starts_with("layers") { 24 + 32 * EXPERTS as u64 } else { 0 };
            assert_eq!((part[name] - header) * EXPERTS as u64, whole[name] - header, "{name}");
        }
        // Labels number features as the whole folder does.
        assert!(!part.contains_key("feature_labels.json"));
        let reader = VindexReader::open(target.path()).unwrap();
        let gates = |reader: &VindexReader| reader.gates(1).map(|gates| gates.rows()).ok();
        assert_eq!(gates(&reader), (!has_layer_files).then_some(4));
    }
}

#[test]
fn slices_of_slices_hold_what_both_hold() {
    let folder = mixture(false);
    let first = slice(folder.path(), &options(SlicePreset::Server).layers(0..1).layers(2..3).experts(1..4));
    let second = slice(first.path(), &options(SlicePreset::ExpertServer).experts(3..4).experts(1..2));
    let direct = slice(
        folder.path(),
        &options(SlicePreset::ExpertServer).layers(2..3).layers(0..1).experts(1..2).experts(3..4),
    );
    assert_eq!(tensors(second.path()), tensors(direct.path()));
    sound(second.path());
    // Gate vectors that are cut stay cut, whatever the next slice is for.
    let browse = slice(first.path(), &options(SlicePreset::Browse).experts(2..3));
    assert_eq!(VindexReader::open(browse.path()).unwrap().gates(2).unwrap().rows(), 4);
    sound(browse.path());

    let reader = VindexReader::open(first.path()).unwrap();
    let refused = |options: SliceOptions, words: &str| {
        let target = tempfile::tempdir().unwrap();
        refused(reader.slice(target.path().join("no"), &options), ErrorKind::TensorMissing, words);
        assert_eq!(std::fs::read_dir(target.path()).unwrap().count(), 0);
    };
    refused(options(SlicePreset::Client), "the part attn (attn_weights.bin)");
    refused(SliceOptions::default().parts([VindexPart::Head]), "the part lm_head (lm_head.bin)");
    refused(options(SlicePreset::Server).layers(0..2), "this slice holds layers 0..1, 2..3");
    refused(options(SlicePreset::Server).experts(0..2), "this slice holds experts 1..4");
}

#[test]
fn version_1_is_cut_by_tensor() {
    let folder = write::float_vindex(false, 1);
    let whole = tensors(folder.path());
    std::fs::write(folder.path().join("down_meta.jsonl"), "{\"_header\":true}\n").unwrap();
    let mut together = BTreeMap::new();
    for (preset, words) in [(SlicePreset::Client, "mlp."), (SlicePreset::Server, "self_attn.")] {
        let target = slice(folder.path(), &options(preset));
        let found = tensors(target.path());
        assert!(!found.keys().any(|name| name.contains(words)), "{preset}: {:?}", found.keys());
        sound(target.path());
        together.extend(found);
    }
    assert!(together == whole);
    let browse = slice(folder.path(), &options(SlicePreset::Browse));
    assert!(!files(browse.path()).contains_key("model_weights.bin"));
    assert!(files(browse.path()).contains_key("down_meta.jsonl"));
}

#[test]
fn wrong_ranges_are_refused() {
    let folder = mixture(false);
    let reader = VindexReader::open(folder.path()).unwrap();
    let all = SliceOptions::default;
    let (mut no_layers, mut no_experts) = (all(), all());
    (no_layers.layers, no_experts.experts) = (Some(Vec::new()), Some(Vec::new()));
    #[allow(clippy::reversed_empty_ranges)]
    let cases = [
        no_layers,
        all().layers(0..0),
        all().layers(2..1),
        all().layers(0..LAYERS + 1),
        all().layers(usize::MAX..0),
        all().layers(0..1).layers(usize::MAX - 1..usize::MAX),
        all().experts(0..EXPERTS + 1),
        no_experts,
    ];
    for options in cases {
        let sliced = reader.slice(folder.path().join("no"), &options);
        refused(sliced, ErrorKind::InvalidArgument, "as ranges of 0..");
    }
    // All of them is no slice.
    let target = slice(folder.path(), &all().layers(0..1).layers(1..LAYERS).experts(0..EXPERTS));
    assert_eq!(
        bytes_of(target.path()).remove("weight_manifest.json"),
        bytes_of(folder.path()).remove("weight_manifest.json")
    );
    assert!(VindexReader::open(target.path()).unwrap().index().slice().is_none());
    // Files that nobody knows how to cut stay whole, or not at all.
    std::fs::write(folder.path().join("gate_vectors_q4.bin"), [0; 64]).unwrap();
    let sliced = reader.slice(folder.path().join("no"), &all().layers(0..1));
    refused(sliced, ErrorKind::InvalidArgument, "gate_vectors_q4.bin");
    let target = slice(folder.path(), &options(SlicePreset::Client).layers(0..1));
    assert_eq!(VindexReader::open(target.path()).unwrap().index().layers.len(), 1);
}

/// An index may say anything of slices.
#[test]
fn hostile_slices_are_refused() {
    let cases = [
        ("layers", json!([[1, 0]])),
        ("layers", json!([[0, 99]])),
        ("layers", json!([])),
        ("layers", json!([[0, u64::MAX]])),
        ("layers", json!([[0]])),
        ("layers", json!("all")),
        ("experts", json!([[0, 5]])),
        ("experts", json!([[3, 3]])),
        // The gate vectors are of four experts.
        ("num_experts", json!(3)),
    ];
    for (field, value) in cases {
        let folder = mixture(false);
        let slice = json!({ "preset": "x", "experts": [[0, 2]], "lacks": ["attn", "no such"] });
        change_json(folder.path(), "index.json", |index| index["skulk"] = json!({ "slice": slice }));
        VindexReader::open(folder.path()).unwrap();
        change_json(folder.path(), "index.json", |index| {
            if field == "num_experts" {
                index["layers"][0] = json!({
                    "layer": 0, "num_features": 12, "offset": 0, "length": 384, "num_experts": 3,
                    "num_features_per_expert": 4,
                });
            } else {
                index["skulk"]["slice"][field] = value.clone();
            }
        });
        let error = VindexReader::open(folder.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConfigInvalid, "{value}: {error}");
    }
}
