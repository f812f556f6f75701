//! Do slices hold what they say, byte for byte, and say what they lack?

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use skulk::vindex::{
    SliceCopy, SliceMethod, SliceOptions, SlicePreset, VerifyOptions, VindexLevel, VindexPart, VindexQuant,
};
use skulk::{CancelToken, Checkpoint, ErrorKind, VindexReader};

use crate::mixture::{EXPERTS, LAYERS, mixture};
use crate::{copy, fixtures, pairs, write};

fn fixture() -> PathBuf {
    fixtures::root().join("tests/fixtures/vindex/made/tiny-llama320.q4k.vindex")
}

fn options(preset: SlicePreset) -> SliceOptions {
    SliceOptions::default().preset(preset)
}

/// Slices a folder into a new one.
fn slice(source: &Path, options: &SliceOptions) -> tempfile::TempDir {
    let target = tempfile::tempdir().unwrap();
    VindexReader::open(source).unwrap().slice(target.path(), options).unwrap();
    target
}

/// Lengths of all files, by name.
fn files(folder: &Path) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for sub in ["", "layers/"] {
        let Ok(entries) = std::fs::read_dir(folder.join(sub)) else { continue };
        for entry in entries.map(Result::unwrap).filter(|entry| entry.path().is_file()) {
            let name = format!("{sub}{}", entry.file_name().to_str().unwrap());
            found.insert(name, entry.metadata().unwrap().len());
        }
    }
    found
}

fn bytes_of(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    files(folder).into_keys().map(|name| (name.clone(), std::fs::read(folder.join(&name)).unwrap())).collect()
}

/// Every tensor: type, shape and bytes.
fn tensors(folder: &Path) -> BTreeMap<String, (String, Vec<u8>)> {
    let reader = VindexReader::open(folder).unwrap();
    let of = |tensor: &skulk::TensorInfo| {
        let region = reader.region(&tensor.name).unwrap();
        (tensor.name.clone(), (format!("{} {:?}", tensor.dtype, tensor.shape), region.bytes().to_vec()))
    };
    reader.tensors().iter().map(of).collect()
}

fn sound(folder: &Path) {
    let report = skulk::vindex::verify_vindex(folder, &VerifyOptions::default().values(true)).unwrap();
    assert!(report.is_sound(), "{report}");
}

/// The files that LARQL's presets take, as its slices show. It takes no others.
fn larqls(preset: &str, name: &str) -> bool {
    let embed = name == "embeddings.bin";
    let norms = name == "norms.bin";
    let attn = name.starts_with("attn_weights");
    let gate = name == "gate_vectors.bin";
    let meta = name == "down_meta.bin";
    let ffn = name.starts_with("interleaved") || ["up_weights.bin", "down_weights.bin"].contains(&name);
    let experts = name.starts_with("layers/");
    let head = name.starts_with("lm_head");
    let router = name == "router_weights.bin";
    let tokenizer = name == "tokenizer.json";
    let manifest = name == "weight_manifest.json";
    name == "index.json"
        || match preset {
            "client" => embed || norms || attn || tokenizer || manifest,
            "attn" => norms || attn || manifest,
            "embed" => embed || tokenizer,
            "server" => embed || norms || gate || meta || ffn || tokenizer || manifest,
            "browse" => embed || gate || meta || tokenizer,
            "router" => router || tokenizer || manifest,
            "expert-server" => embed || norms || ffn || experts || tokenizer || manifest,
            "all" => {
                embed
                    || norms
                    || attn
                    || gate
                    || meta
                    || ffn
                    || experts
                    || head
                    || router
                    || tokenizer
                    || manifest
            }
            other => panic!("{other}"),
        }
}

/// What each preset takes of a float folder beyond that, in files that LARQL 0.1 writes.
fn ours(preset: &str, name: &str, are_floats: bool) -> bool {
    let (head, router) = (name.starts_with("lm_head"), name == "router_weights.bin");
    let texts = ["generation_config.json", "tokenizer_config.json"].contains(&name);
    match preset {
        "client" => head || router || texts,
        "attn" => router,
        "embed" => head || texts || name == "weight_manifest.json",
        "server" => router || texts || name.starts_with("layers/") || name.starts_with("down_features"),
        "browse" => texts,
        "router" => texts || name == "norms.bin",
        "expert-server" => {
            texts || name.starts_with("down_features") || are_floats && name == "gate_vectors.bin"
        }
        "all" => texts || name.starts_with("down_features"),
        other => panic!("{other}"),
    }
}

#[test]
fn presets_take_what_larqls_take_and_what_these_lose() {
    for (made, _) in pairs() {
        let reader = VindexReader::open(&made).unwrap();
        let are_floats = reader.index().quant() == VindexQuant::None;
        for name in ["client", "attn", "embed", "server", "browse", "router", "expert-server", "all"] {
            let preset: SlicePreset = name.parse().unwrap();
            let target = tempfile::tempdir().unwrap();
            let report = match reader.slice(target.path(), &options(preset)) {
                Ok(report) => report,
                Err(e) => {
                    // A folder of a low level, and one whose gate vectors were dropped.
                    assert_eq!(e.kind(), ErrorKind::TensorMissing, "{e}");
                    let part = e.context().iter().find(|(key, _)| *key == "part").unwrap().1.clone();
                    assert!(reader.lacks().iter().any(|lacking| lacking.as_str() == part), "{e}");
                    assert!(e.message().contains(&format!("the part {part}")), "{e}");
                    continue;
                }
            };
            let (whole, found) = (files(&made), files(target.path()));
            let expected: BTreeMap<String, u64> = whole
                .into_iter()
                .filter(|(file, _)| larqls(name, file) || ours(name, file, are_floats))
                .collect();
            let names = |files: &BTreeMap<String, u64>| files.keys().cloned().collect::<Vec<_>>();
            assert_eq!(names(&found), names(&expected), "{} {name}", made.display());
            for (file, len) in &found {
                assert!(file == "index.json" || expected[file] == *len, "{file}");
            }
            assert_eq!(report.bytes(), found.values().sum::<u64>());
            assert_eq!(report.files.iter().map(|file| file.name.clone()).collect::<Vec<_>>(), names(&found));
            sound(target.path());
        }
    }
}

/// The lists that LARQL's own slices had.
#[test]
fn larqls_slices_are_in_ours() {
    let Some(extra) = std::env::var_os("SKULK_EXTRA_SUITES") else {
        println!("skipped: set SKULK_EXTRA_SUITES");
        return;
    };
    let root = PathBuf::from(extra).join("vindex");
    let slices = fixtures::json(&root.join("slices.json"));
    for (slice, listed) in slices.as_object().unwrap() {
        let [model, kind, preset, _] = slice.split('.').collect::<Vec<_>>()[..] else { panic!("{slice}") };
        let made = root.join("made").join(format!("{model}.{kind}.vindex"));
        let target = self::slice(&made, &options(preset.parse().unwrap()));
        let found = files(target.path());
        for (file, len) in listed.as_object().unwrap() {
            assert!(larqls(preset, file), "{slice}: {file}");
            assert!(
                file == "index.json" || found.get(file) == Some(&len.as_u64().unwrap()),
                "{slice}: {file}"
            );
        }
    }
}

#[test]
fn levels_are_those_of_larqls_slices() {
    use VindexLevel::{All, Attention, Browse};
    let folder = tempfile::tempdir().unwrap();
    mixture(false, folder.path());
    let levels = [All, Attention, Attention, Browse, Browse, Browse, Browse, Browse];
    for (preset, level) in SlicePreset::ALL.into_iter().zip(levels) {
        let target = slice(folder.path(), &options(preset));
        let index = VindexReader::open(target.path()).unwrap().index().clone();
        assert_eq!(index.extract_level, level, "{preset}");
        let has_weights = !matches!(preset, SlicePreset::Embed | SlicePreset::Browse | SlicePreset::Router);
        assert_eq!(index.has_model_weights, has_weights, "{preset}");
    }
    // Never more than the source's.
    let part = slice(folder.path(), &options(SlicePreset::Client));
    let again = slice(part.path(), &SliceOptions::default());
    assert_eq!(VindexReader::open(again.path()).unwrap().index().extract_level, Attention);
}

#[test]
fn the_index_keeps_everything_else() {
    let folder = tempfile::tempdir().unwrap();
    mixture(false, folder.path());
    let target = slice(folder.path(), &options(SlicePreset::Attn).layers([1..2]));
    let (mut before, mut after) = (
        fixtures::json(&folder.path().join("index.json")),
        fixtures::json(&target.path().join("index.json")),
    );
    assert_eq!(
        after["skulk"]["slice"],
        json!({
            "preset": "attn", "layers": [[1, 2]],
            "lacks": ["embed", "gate", "down_meta", "ffn", "lm_head", "tokenizer"],
        })
    );
    assert_eq!(
        after["layers"],
        json!([{
            "layer": 1, "num_features": 16, "offset": 0, "length": 512, "num_experts": 4, "num_features_per_expert": 4,
        }])
    );
    for index in [&mut before, &mut after] {
        let index = index.as_object_mut().unwrap();
        for key in ["skulk", "layers", "extract_level"] {
            index.remove(key);
        }
        // Defaults are written, too.
        index.retain(|_, value| !value.is_null());
        index["model_config"]
            .as_object_mut()
            .unwrap()
            .retain(|_, value| !value.is_null() && *value != json!(false));
        index["model_config"]["moe"]
            .as_object_mut()
            .unwrap()
            .retain(|key, _| key == "num_experts" || key == "top_k");
    }
    assert_eq!(before, after);
    // A whole copy says nothing of slices.
    let whole = slice(folder.path(), &SliceOptions::default());
    assert!(fixtures::json(&whole.path().join("index.json")).get("skulk").is_none());
    assert_eq!(tensors(whole.path()), tensors(folder.path()));
}

#[test]
fn what_a_slice_lacks_is_named() {
    let folder = tempfile::tempdir().unwrap();
    mixture(false, folder.path());
    let whole = VindexReader::open(folder.path()).unwrap();
    assert!(whole.lacks().is_empty());
    for preset in SlicePreset::ALL {
        let target = slice(folder.path(), &options(preset));
        let reader = VindexReader::open(target.path()).unwrap();
        assert_eq!(reader.metadata_tied(), Some(false), "{preset}");
        for tensor in whole.tensors() {
            match reader.region(&tensor.name) {
                Ok(region) => assert_eq!(region.bytes(), whole.region(&tensor.name).unwrap().bytes()),
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::TensorMissing, "{e}");
                    let part = &e.context().iter().find(|(key, _)| *key == "part").unwrap().1;
                    assert!(reader.lacks().iter().any(|lacks| lacks.as_str() == part), "{e}");
                    assert!(e.message().contains(preset.as_str()), "{e}");
                    let hint = e.hint().unwrap();
                    assert!(
                        hint.contains("the slices full") && !hint.contains(&format!(" {preset},")),
                        "{hint}"
                    );
                }
            }
        }
    }
}

trait Tied {
    fn metadata_tied(&self) -> Option<bool>;
}

impl Tied for VindexReader {
    /// Whether its configuration says that the head is the embedding table.
    fn metadata_tied(&self) -> Option<bool> {
        match self.metadata() {
            skulk::Metadata::Vindex(metadata) => {
                metadata.configuration().config["tie_word_embeddings"].as_bool()
            }
            _ => None,
        }
    }
}

#[test]
fn client_and_server_hold_everything_together() {
    for (made, _) in pairs() {
        let reader = VindexReader::open(&made).unwrap();
        let both: Option<Vec<_>> = [SlicePreset::Client, SlicePreset::Server]
            .into_iter()
            .map(|preset| {
                let target = tempfile::tempdir().unwrap();
                reader.slice(target.path(), &options(preset)).ok().map(|_| tensors(target.path()))
            })
            .collect();
        // Some folders are of a low level.
        let Some(both) = both else {
            assert!(!reader.lacks().is_empty(), "{}", made.display());
            continue;
        };
        let together: BTreeMap<_, _> = both.into_iter().flatten().collect();
        assert!(together == tensors(&made), "{}", made.display());
    }
}

fn layer_of(name: &str) -> Option<usize> {
    name.strip_prefix("layers.").and_then(|rest| rest.split('.').next()).map(|layer| layer.parse().unwrap())
}

fn expert_of(name: &str) -> Option<usize> {
    name.split_once("experts.").and_then(|(_, rest)| rest.split('.').next()).and_then(|n| n.parse().ok())
}

/// Every kind of folder: LARQL's, mixtures, and version 1.
fn kinds() -> Vec<(tempfile::TempDir, PathBuf)> {
    let mut all: Vec<_> = pairs().into_iter().map(|(made, _)| (tempfile::tempdir().unwrap(), made)).collect();
    for has_layer_files in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        mixture(has_layer_files, folder.path());
        let path = folder.path().to_owned();
        all.push((folder, path));
    }
    let origin = fixtures::root().join("tests/fixtures/vindex/source/tiny-llama320");
    let (folder, checkpoint) = (tempfile::tempdir().unwrap(), skulk::open_checkpoint(&origin).unwrap());
    write::float_vindex(&*checkpoint, &origin, true, 1, folder.path());
    let path = folder.path().to_owned();
    all.push((folder, path));
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
            let target = slice(&made, &SliceOptions::default().layers([layers.clone()]));
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
            let error = reader.slice(made.join("no"), &SliceOptions::default().experts([0..1])).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            continue;
        };
        assert_eq!(moe.num_experts, EXPERTS);
        let (whole, before) = (tensors(&made), bytes_of(&made));
        let are_floats = reader.index().quant() == VindexQuant::None;
        for (preset, experts) in [
            (SlicePreset::Full, vec![0..2]),
            (SlicePreset::ExpertServer, vec![0..1, 2..3]),
            (SlicePreset::ExpertServer, vec![2..4]),
            (SlicePreset::Server, vec![1..2]),
        ] {
            let what = format!("{} {preset} {experts:?}", made.display());
            let target = tempfile::tempdir().unwrap();
            if let Err(e) = reader.slice(target.path(), &options(preset).experts(experts.clone())) {
                assert_eq!(e.kind(), ErrorKind::TensorMissing, "{what}: {e}");
                assert!(!reader.lacks().is_empty(), "{what}: {e}");
                continue;
            }
            seen += 1;
            let part = VindexReader::open(target.path()).unwrap();
            let cuts_gates = are_floats && preset != SlicePreset::Full;
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
                    let block = all.len() / EXPERTS;
                    let is_cut = cuts_gates && layer.num_experts.is_some();
                    let expected: Vec<u8> = (0..EXPERTS)
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
        let folder = tempfile::tempdir().unwrap();
        mixture(has_layer_files, folder.path());
        let target = slice(folder.path(), &options(SlicePreset::ExpertServer).experts([1..2]));
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
    let folder = tempfile::tempdir().unwrap();
    mixture(false, folder.path());
    let first = slice(folder.path(), &options(SlicePreset::Server).layers([0..1, 2..3]).experts([1..4]));
    let second = slice(first.path(), &options(SlicePreset::ExpertServer).experts([3..4, 1..2]));
    let direct =
        slice(folder.path(), &options(SlicePreset::ExpertServer).layers([2..3, 0..1]).experts([1..2, 3..4]));
    assert_eq!(tensors(second.path()), tensors(direct.path()));
    sound(second.path());
    // Gate vectors that are cut stay cut, whatever the next slice is for.
    let browse = slice(first.path(), &options(SlicePreset::Browse).experts([2..3]));
    assert_eq!(VindexReader::open(browse.path()).unwrap().gates(2).unwrap().rows(), 4);
    sound(browse.path());

    let reader = VindexReader::open(first.path()).unwrap();
    let refused = |options: SliceOptions, words: &str| {
        let target = tempfile::tempdir().unwrap();
        let error = reader.slice(target.path().join("no"), &options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TensorMissing, "{error}");
        assert!(error.to_string().contains(words) && error.hint().is_some(), "{error}");
        assert_eq!(std::fs::read_dir(target.path()).unwrap().count(), 0);
    };
    refused(options(SlicePreset::Client), "the part attn (attn_weights.bin)");
    refused(SliceOptions::default().parts([VindexPart::Head]), "the part lm_head (lm_head.bin)");
    refused(options(SlicePreset::Server).layers([0..2]), "this slice holds layers 0..1, 2..3");
    refused(options(SlicePreset::Server).experts([0..2]), "this slice holds experts 1..4");
}

#[test]
fn parts_may_be_chosen_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    mixture(false, folder.path());
    let target =
        slice(folder.path(), &SliceOptions::default().parts([VindexPart::Norms, VindexPart::Readme]));
    assert_eq!(
        files(target.path()).into_keys().collect::<Vec<_>>(),
        ["index.json", "norms.bin", "weight_manifest.json"]
    );
    let error = VindexReader::open(target.path()).unwrap().region("lm_head.weight").unwrap_err();
    assert!(error.message().contains("this custom slice lacks that part"), "{error}");
}

#[test]
fn version_1_is_cut_by_tensor() {
    let origin = fixtures::root().join("tests/fixtures/vindex/source/tiny-llama320");
    let (folder, checkpoint) = (tempfile::tempdir().unwrap(), skulk::open_checkpoint(&origin).unwrap());
    write::float_vindex(&*checkpoint, &origin, false, 1, folder.path());
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

#[cfg(unix)]
#[test]
fn weights_are_linked_and_texts_are_copied() {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().unwrap();
    copy(&fixture(), folder.path());
    let inode = |folder: &Path, name: &str| std::fs::metadata(folder.join(name)).unwrap().ino();
    for (how, is_linked) in [(SliceCopy::Auto, true), (SliceCopy::Copy, false)] {
        // Beside each other: on one file system.
        let target = folder.path().with_extension(if is_linked { "linked" } else { "copied" });
        let reader = VindexReader::open(folder.path()).unwrap();
        let report = reader.slice(&target, &SliceOptions::default().copy(how)).unwrap();
        let mut written = 0;
        for file in &report.files {
            let is_weights = file.name.ends_with(".bin");
            let same = inode(folder.path(), &file.name) == inode(&target, &file.name);
            assert_eq!(same, is_linked && is_weights, "{}", file.name);
            assert_eq!(file.method == SliceMethod::Linked, same, "{}", file.name);
            assert_eq!(file.method == SliceMethod::Rewritten, file.name == "index.json");
            if matches!(file.method, SliceMethod::Copied | SliceMethod::Rewritten) {
                written += file.bytes;
            }
        }
        assert_eq!(report.written(), written);
        assert!(report.to_string().contains(if is_linked { "linked" } else { "norms.bin" }), "{report}");
        assert_eq!(tensors(&target), tensors(folder.path()));
        std::fs::remove_dir_all(&target).unwrap();
    }
}

#[cfg(unix)]
#[test]
fn links_in_the_folder_become_files_and_others_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    copy(&fixture(), folder.path());
    std::fs::rename(folder.path().join("norms.bin"), folder.path().join("kept")).unwrap();
    std::os::unix::fs::symlink("kept", folder.path().join("norms.bin")).unwrap();
    let whole = tensors(folder.path());
    let reader = VindexReader::open(folder.path()).unwrap();
    for how in [SliceCopy::Auto, SliceCopy::Copy] {
        let target = tempfile::tempdir().unwrap();
        let report = reader.slice(target.path(), &SliceOptions::default().copy(how)).unwrap();
        assert_eq!(report.left_out, ["kept"]);
        assert!(!target.path().join("norms.bin").is_symlink());
        assert_eq!(tensors(target.path()), whole);
    }
    // A file that opening does not look at.
    let other = tempfile::NamedTempFile::new().unwrap();
    std::os::unix::fs::symlink(other.path(), folder.path().join("README.md")).unwrap();
    let target = tempfile::tempdir().unwrap();
    let error = reader.slice(target.path(), &SliceOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CheckpointInvalid);
    assert!(error.message().contains("a link to"), "{error}");
    assert_eq!(std::fs::read_dir(target.path()).unwrap().count(), 0);
}

#[test]
fn hashes_and_checksums_are_those_of_the_slices_files() {
    let folder = tempfile::tempdir().unwrap();
    copy(&fixture(), folder.path());
    crate::verify::write_hashes(folder.path());
    for options in [options(SlicePreset::Client), SliceOptions::default().layers([1..2])] {
        let target = slice(folder.path(), &options);
        sound(target.path());
        let (hashes, index) = (
            fixtures::json(&target.path().join("skulk_hashes.json")),
            fixtures::json(&target.path().join("index.json")),
        );
        let listed: BTreeSet<&String> = hashes["files"].as_object().unwrap().keys().collect();
        let there = files(target.path());
        assert!(listed.into_iter().eq(there.keys().filter(|name| *name != "skulk_hashes.json")));
        for (name, sum) in index["checksums"].as_object().unwrap() {
            assert_eq!(
                *sum,
                crate::verify::sha256(&std::fs::read(target.path().join(name)).unwrap()),
                "{name}"
            );
        }
        // A changed byte is seen.
        let norms = target.path().join("norms.bin");
        let mut bytes = std::fs::read(&norms).unwrap();
        bytes[0] ^= 1;
        std::fs::remove_file(&norms).unwrap();
        std::fs::write(&norms, bytes).unwrap();
        assert!(!skulk::vindex::verify_vindex(target.path(), &VerifyOptions::default()).unwrap().is_sound());
    }
}

#[test]
fn nothing_is_left_of_what_was_not_finished() {
    let parent = tempfile::tempdir().unwrap();
    let reader = VindexReader::open(fixture()).unwrap();
    let target = parent.path().join("part");
    let empty = || std::fs::read_dir(parent.path()).unwrap().count() == 0;

    let cancelled = CancelToken::new();
    cancelled.cancel();
    let error = reader.slice(&target, &SliceOptions::default().cancel(cancelled)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert!(empty());
    // In the middle of it.
    let token = CancelToken::new();
    let inner = token.clone();
    let halfway =
        SliceOptions::default().threads(1).copy(SliceCopy::Copy).cancel(token).progress(move |progress| {
            assert!(progress.bytes_done <= progress.bytes_total);
            if progress.bytes_done * 2 > progress.bytes_total {
                inner.cancel();
            }
        });
    assert_eq!(reader.slice(&target, &halfway).unwrap_err().kind(), ErrorKind::Cancelled);
    assert!(empty());
    // A file that is no longer what was opened.
    let broken = tempfile::tempdir().unwrap();
    copy(&fixture(), broken.path());
    let opened = VindexReader::open(broken.path()).unwrap();
    std::fs::write(broken.path().join("norms.bin"), "short").unwrap();
    let error = opened.slice(&target, &SliceOptions::default().layers([0..1])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CheckpointTruncated, "{error}");
    assert!(error.to_string().contains("norms.bin") && empty(), "{error}");
}

#[test]
fn what_is_there_is_not_written_over() {
    let parent = tempfile::tempdir().unwrap();
    let reader = VindexReader::open(fixture()).unwrap();
    let refused = |target: &Path, kind: ErrorKind| {
        let error = reader.slice(target, &SliceOptions::default()).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.hint().is_some());
    };
    let (file, folder) = (parent.path().join("file"), parent.path().join("folder"));
    std::fs::write(&file, "mine").unwrap();
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("file"), "mine").unwrap();
    refused(&file, ErrorKind::InvalidArgument);
    refused(&folder, ErrorKind::InvalidArgument);
    refused(&fixture(), ErrorKind::InvalidArgument);
    refused(Path::new("/"), ErrorKind::InvalidArgument);
    refused(&parent.path().join("no/such"), ErrorKind::FileNotFound);
    assert_eq!(std::fs::read_to_string(folder.join("file")).unwrap(), "mine");
    assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 2);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let target = parent.path().join("new");
        reader.slice(&target, &SliceOptions::default()).unwrap();
        // Others may read it, as far as the user lets them read new folders.
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&target), mode(&folder));
    }
}

#[test]
fn wrong_ranges_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    mixture(false, folder.path());
    let reader = VindexReader::open(folder.path()).unwrap();
    let all = SliceOptions::default;
    #[allow(clippy::reversed_empty_ranges)]
    let cases = [
        all().layers([]),
        all().layers([0..0]),
        all().layers([2..1]),
        all().layers([0..LAYERS + 1]),
        all().layers([usize::MAX..0]),
        all().layers([0..1, usize::MAX - 1..usize::MAX]),
        all().experts([0..EXPERTS + 1]),
        all().experts([]),
    ];
    for options in cases {
        let error = reader.slice(folder.path().join("no"), &options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.message().contains("as ranges of 0.."), "{error}");
    }
    // All of them is no slice.
    let target = slice(folder.path(), &all().layers([0..1, 1..LAYERS]).experts([0..EXPERTS]));
    assert_eq!(
        bytes_of(target.path()).remove("weight_manifest.json"),
        bytes_of(folder.path()).remove("weight_manifest.json")
    );
    assert!(VindexReader::open(target.path()).unwrap().index().slice().is_none());
    // Files that nobody knows how to cut stay whole, or not at all.
    std::fs::write(folder.path().join("gate_vectors_q4.bin"), [0; 64]).unwrap();
    let error = reader.slice(folder.path().join("no"), &all().layers([0..1])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.to_string().contains("gate_vectors_q4.bin"), "{error}");
    let target = slice(folder.path(), &options(SlicePreset::Client).layers([0..1]));
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
        let folder = tempfile::tempdir().unwrap();
        mixture(false, folder.path());
        let path = folder.path().join("index.json");
        let mut index = fixtures::json(&path);
        index["skulk"] =
            json!({ "slice": { "preset": "x", "experts": [[0, 2]], "lacks": ["attn", "no such"] } });
        std::fs::write(&path, index.to_string()).unwrap();
        VindexReader::open(folder.path()).unwrap();
        if field == "num_experts" {
            index["layers"][0] = json!({
                "layer": 0, "num_features": 12, "offset": 0, "length": 384, "num_experts": 3,
                "num_features_per_expert": 4,
            });
        } else {
            index["skulk"]["slice"][field] = value.clone();
        }
        std::fs::write(&path, index.to_string()).unwrap();
        let error = VindexReader::open(folder.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConfigInvalid, "{value}: {error}");
    }
}
