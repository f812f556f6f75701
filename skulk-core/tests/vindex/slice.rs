//! Do slices hold what they say, byte for byte, and say what they lack?

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::json;
use skulk::vindex::{
    SliceCopy, SliceMethod, SliceOptions, SlicePreset, VerifyOptions, VindexLevel, VindexPart, VindexQuant,
};
use skulk::{CancelToken, Checkpoint, ErrorKind, VindexReader};

use crate::vindex::extract::files as bytes_of;
use crate::vindex::mixture::mixture;
use crate::vindex::{copied, fixtures, made, pairs, refused};

pub(crate) fn options(preset: SlicePreset) -> SliceOptions {
    SliceOptions::default().preset(preset)
}

/// Slices a folder into a new one.
pub(crate) fn slice(source: &Path, options: &SliceOptions) -> tempfile::TempDir {
    let target = tempfile::tempdir().unwrap();
    VindexReader::open(source).unwrap().slice(target.path(), options).unwrap();
    target
}

/// Lengths of all files, by name.
pub(crate) fn files(folder: &Path) -> BTreeMap<String, u64> {
    bytes_of(folder).into_iter().map(|(name, bytes)| (name, bytes.len() as u64)).collect()
}

/// Every tensor: type, shape and bytes.
pub(crate) fn tensors(folder: &Path) -> BTreeMap<String, (String, Vec<u8>)> {
    let reader = VindexReader::open(folder).unwrap();
    let of = |tensor: &skulk::TensorInfo| {
        let region = reader.region(&tensor.name).unwrap();
        (tensor.name.clone(), (format!("{} {:?}", tensor.dtype, tensor.shape), region.bytes().to_vec()))
    };
    reader.tensors().iter().map(of).collect()
}

pub(crate) fn sound(folder: &Path) {
    let report = skulk::vindex::verify_vindex(folder, &VerifyOptions::default().values(true)).unwrap();
    assert!(report.is_sound(), "{report}");
}

/// Whether LARQL's preset takes a file, by how its name begins, as LARQL's slices show. It takes no others.
fn larqls(preset: &str, name: &str) -> bool {
    let taken = match preset {
        "client" => "embeddings.bin norms.bin attn_weights tokenizer.json weight_manifest.json",
        "attn" => "norms.bin attn_weights weight_manifest.json",
        "embed" => "embeddings.bin tokenizer.json",
        "server" => {
            "embeddings.bin norms.bin gate_vectors.bin down_meta.bin interleaved up_weights.bin down_weights.bin \
             tokenizer.json weight_manifest.json"
        }
        "browse" => "embeddings.bin gate_vectors.bin down_meta.bin tokenizer.json",
        "router" => "router_weights.bin tokenizer.json weight_manifest.json",
        "expert-server" => {
            "embeddings.bin norms.bin interleaved up_weights.bin down_weights.bin layers/ tokenizer.json \
             weight_manifest.json"
        }
        "all" => {
            "embeddings.bin norms.bin attn_weights gate_vectors.bin down_meta.bin interleaved up_weights.bin \
             down_weights.bin layers/ lm_head router_weights.bin tokenizer.json weight_manifest.json"
        }
        other => panic!("{other}"),
    };
    name == "index.json" || taken.split(' ').any(|start| name.starts_with(start))
}

/// What each preset takes of a float folder beyond that, in files that LARQL 0.1 writes.
fn ours(preset: &str, name: &str, are_floats: bool) -> bool {
    let (head, router) = (name.starts_with("lm_head"), name == "router_weights.bin");
    let per_layer = name == "ple_weights.bin";
    let texts = ["generation_config.json", "tokenizer_config.json"].contains(&name);
    match preset {
        "client" => head || router || texts || per_layer,
        "attn" => router || per_layer,
        "embed" => head || texts || name == "weight_manifest.json",
        "server" => router || texts || name.starts_with("layers/") || name.starts_with("down_features"),
        "browse" => texts,
        "router" => texts || name == "norms.bin",
        "expert-server" => {
            texts || name.starts_with("down_features") || are_floats && name == "gate_vectors.bin"
        }
        "all" => texts || name.starts_with("down_features") || per_layer,
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
            assert_eq!(report.bytes().bytes(), found.values().sum::<u64>());
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
    let folder = mixture(false);
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
    let folder = mixture(false);
    let target = slice(folder.path(), &options(SlicePreset::Attn).layers(1..2));
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
    let folder = mixture(false);
    let whole = VindexReader::open(folder.path()).unwrap();
    assert!(whole.lacks().is_empty());
    for preset in SlicePreset::ALL {
        let target = slice(folder.path(), &options(preset));
        let reader = VindexReader::open(target.path()).unwrap();
        assert_eq!(is_tied(&reader), Some(false), "{preset}");
        // What is stored twice has the usual name where only one of both is there.
        for tensor in whole.tensors().iter().filter(|tensor| !tensor.name.contains("router_weights")) {
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

/// What a folder's configuration says of its head: whether it is the embedding table.
fn is_tied(reader: &VindexReader) -> Option<bool> {
    let skulk::Metadata::Vindex(metadata) = reader.metadata() else { return None };
    metadata.configuration().config["tie_word_embeddings"].as_bool()
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

#[test]
fn parts_may_be_chosen_one_by_one() {
    let folder = mixture(false);
    let target =
        slice(folder.path(), &SliceOptions::default().parts([VindexPart::Norms, VindexPart::Readme]));
    assert_eq!(
        files(target.path()).into_keys().collect::<Vec<_>>(),
        ["index.json", "norms.bin", "weight_manifest.json"]
    );
    let error = VindexReader::open(target.path()).unwrap().region("lm_head.weight").unwrap_err();
    assert!(error.message().contains("this custom slice lacks that part"), "{error}");
}

#[cfg(unix)]
#[test]
fn weights_are_linked_and_texts_are_copied() {
    use std::os::unix::fs::MetadataExt;
    let folder = copied(&made());
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
                written += file.bytes.bytes();
            }
        }
        assert_eq!(report.written().bytes(), written);
        assert!(report.to_string().contains(if is_linked { "linked" } else { "norms.bin" }), "{report}");
        assert_eq!(tensors(&target), tensors(folder.path()));
        std::fs::remove_dir_all(&target).unwrap();
    }
}

#[cfg(unix)]
#[test]
fn links_become_files() {
    let folder = copied(&made());
    std::fs::rename(folder.path().join("norms.bin"), folder.path().join("kept")).unwrap();
    std::os::unix::fs::symlink("kept", folder.path().join("norms.bin")).unwrap();
    let other = tempfile::NamedTempFile::new().unwrap();
    std::os::unix::fs::symlink(other.path(), folder.path().join("README.md")).unwrap();
    let whole = tensors(folder.path());
    let reader = VindexReader::open(folder.path()).unwrap();
    for how in [SliceCopy::Auto, SliceCopy::Copy] {
        let target = tempfile::tempdir().unwrap();
        let report = reader.slice(target.path(), &SliceOptions::default().copy(how)).unwrap();
        assert_eq!(report.left_out, ["kept"]);
        assert!(["norms.bin", "README.md"].iter().all(|name| !target.path().join(name).is_symlink()));
        assert_eq!(tensors(target.path()), whole);
    }
}

#[test]
fn hashes_and_checksums_are_those_of_the_slices_files() {
    let folder = copied(&made());
    crate::vindex::verify::write_hashes(folder.path());
    for options in [options(SlicePreset::Client), SliceOptions::default().layers(1..2)] {
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
                crate::vindex::verify::sha256(&std::fs::read(target.path().join(name)).unwrap()),
                "{name}"
            );
        }
        // A changed byte is seen.
        let norms = target.path().join("norms.bin");
        let mut bytes = std::fs::read(&norms).unwrap();
        bytes[0] ^= 1;
        // It may be a link, by which the whole folder would change too.
        std::fs::remove_file(&norms).unwrap();
        std::fs::write(&norms, bytes).unwrap();
        assert!(!skulk::vindex::verify_vindex(target.path(), &VerifyOptions::default()).unwrap().is_sound());
    }
}

#[test]
fn nothing_is_left_of_what_was_not_finished() {
    let parent = tempfile::tempdir().unwrap();
    let reader = VindexReader::open(made()).unwrap();
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
            if progress.bytes_done.bytes() * 2 > progress.bytes_total.bytes() {
                inner.cancel();
            }
        });
    assert_eq!(reader.slice(&target, &halfway).unwrap_err().kind(), ErrorKind::Cancelled);
    assert!(empty());
    // A file that is no longer what was opened.
    let broken = copied(&made());
    let opened = VindexReader::open(broken.path()).unwrap();
    std::fs::write(broken.path().join("norms.bin"), "short").unwrap();
    let error = opened.slice(&target, &SliceOptions::default().layers(0..1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CheckpointTruncated, "{error}");
    assert!(error.to_string().contains("norms.bin") && empty(), "{error}");
}

#[test]
fn what_is_there_is_not_written_over() {
    let parent = tempfile::tempdir().unwrap();
    let reader = VindexReader::open(made()).unwrap();
    let (file, folder) = (parent.path().join("file"), parent.path().join("folder"));
    std::fs::write(&file, "mine").unwrap();
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("file"), "mine").unwrap();
    for target in [&*file, &folder, &made(), Path::new("/")] {
        refused(reader.slice(target, &SliceOptions::default()), ErrorKind::InvalidArgument, "a folder");
    }
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
