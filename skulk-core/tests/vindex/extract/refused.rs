//! Is what cannot be extracted refused, with nothing left under the target's name?

use std::path::Path;

use serde_json::json;
use skulk::extract::{ExtractOptions, VindexStorage, VindexWriter};
use skulk::vindex::VindexLevel;
use skulk::{CancelToken, Error, ErrorKind, open_checkpoint};

use super::{difference, extract, files, scratch, timeless, undisturbed};
use crate::vindex::{change, change_json, copied, fixtures, made, origin};

fn small() -> ExtractOptions {
    ExtractOptions::default().level(VindexLevel::Browse).feature_tokens(0).threads(2)
}

#[track_caller]
fn expect(error: &Error, kind: ErrorKind, words: &[&str]) {
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.hint().is_some(), "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "no `{word}` in {error}");
    }
}

#[test]
fn options_are_checked() {
    let checkpoint = open_checkpoint(origin()).unwrap();
    for (options, field) in [
        (small().down_q4k(true), "down_q4k"),
        (small().feature_major_down(true), "feature_major_down"),
        (small().gate_vectors(false), "gate_vectors"),
        (small().threads(0), "threads"),
        (small().threads(1 << 20), "threads"),
        (small().feature_tokens(1 << 20), "feature_tokens"),
    ] {
        let error = VindexWriter::new(&*checkpoint, options).err().unwrap();
        expect(&error, ErrorKind::InvalidArgument, &[field]);
    }
    let mixtral = open_checkpoint(fixtures::root().join("tests/fixtures/models/mixtral")).unwrap();
    let q4k = ExtractOptions::default().storage(VindexStorage::Q4K);
    for (options, field) in [
        (q4k.clone().gate_vectors(false), "gate_vectors"),
        (q4k.feature_major_down(true), "feature_major_down"),
    ] {
        let error = VindexWriter::new(&*mixtral, options).err().unwrap();
        expect(&error, ErrorKind::InvalidArgument, &[field]);
    }
}

#[cfg(unix)]
#[test]
fn planted_links_are_not_followed() {
    for planted in ["", "vindex", "lock", "state.json", "state.new"] {
        let (folder, foreign) = (scratch(), scratch());
        std::fs::create_dir(foreign.path().join("vindex")).unwrap();
        std::fs::write(foreign.path().join("vindex/kept"), "theirs").unwrap();
        std::fs::write(foreign.path().join("state.new"), "theirs").unwrap();
        let before = files(foreign.path());
        let mut link = folder.path().join(".model.vindex.partial");
        let mut leads_to = foreign.path().to_owned();
        if !planted.is_empty() {
            std::fs::create_dir(&link).unwrap();
            link.push(planted);
            leads_to.push(planted);
        }
        std::os::unix::fs::symlink(leads_to, link).unwrap();
        let error = extract(&origin(), small(), &folder.path().join("model.vindex")).unwrap_err();
        expect(&error, ErrorKind::InvalidArgument, &["a link"]);
        assert_eq!(files(foreign.path()), before, "{planted}");
    }
}

/// Nor are those that are planted behind the first look.
#[cfg(unix)]
#[test]
fn links_planted_meanwhile_are_not_followed() {
    for planted in ["vindex/gate_vectors.bin", "vindex/layers", "vindex/index.json", "state.new"] {
        let (folder, foreign) = (scratch(), scratch());
        let theirs = foreign.path().join("theirs");
        match planted {
            "vindex/layers" => std::fs::create_dir(&theirs).unwrap(),
            _ => std::fs::write(&theirs, "theirs").unwrap(),
        }
        let before = files(foreign.path());
        let link = folder.path().join(".model.vindex.partial").join(planted);
        let options = small().storage(VindexStorage::Q4K);
        let options = options.progress(move |_| drop(std::os::unix::fs::symlink(&theirs, &link)));
        let error = extract(&origin(), options, &folder.path().join("model.vindex")).unwrap_err();
        expect(&error, ErrorKind::InvalidArgument, &["a link", planted]);
        assert_eq!(files(foreign.path()), before, "{planted}");
    }
}

#[test]
fn targets_are_new_or_empty_folders() {
    let folder = scratch();
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir(at("full")).unwrap();
    std::fs::write(at("full/file"), "").unwrap();
    std::fs::write(at("file"), "").unwrap();
    for target in ["full", "file", "full/.."] {
        let error = extract(&origin(), small(), &at(target)).unwrap_err();
        expect(&error, ErrorKind::InvalidArgument, &[target]);
    }
    let source = copied(&origin());
    for target in [source.path(), source.path().parent().unwrap()] {
        let error = extract(source.path(), small(), target).unwrap_err();
        expect(&error, ErrorKind::InvalidArgument, &["source"]);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    std::fs::create_dir(at("empty")).unwrap();
    extract(&origin(), small(), &at("empty")).unwrap();
    extract(&origin(), small(), &at("new/and/deeper")).unwrap();
    // A second time it is not empty any more.
    expect(&extract(&origin(), small(), &at("empty")).unwrap_err(), ErrorKind::InvalidArgument, &["empty"]);
}

/// What somebody put where an extraction works stays, whether it begins or ends.
#[test]
fn files_of_others_are_not_removed() {
    let folder = scratch();
    let partial = folder.path().join(".v.partial");
    std::fs::write(&partial, "theirs").unwrap();
    let error = extract(&origin(), small(), &folder.path().join("v")).unwrap_err();
    expect(&error, ErrorKind::InvalidArgument, &[".v.partial", "a file instead of a folder"]);
    std::fs::remove_file(&partial).unwrap();
    std::fs::create_dir(&partial).unwrap();
    std::fs::write(partial.join("notes.txt"), "theirs").unwrap();
    let error = extract(&origin(), small(), &folder.path().join("v")).unwrap_err();
    expect(&error, ErrorKind::InvalidArgument, &[".v.partial", "`notes.txt`"]);
    assert_eq!(std::fs::read_dir(&partial).unwrap().count(), 1);
    assert!(!folder.path().join("v").exists());

    let notes = folder.path().join(".w.partial/notes.txt");
    let to = notes.clone();
    let options = small().progress(move |_| std::fs::write(&to, "theirs").unwrap());
    extract(&origin(), options, &folder.path().join("w")).unwrap();
    assert_eq!(std::fs::read(&notes).unwrap(), b"theirs");
    assert_eq!(std::fs::read_dir(folder.path().join(".w.partial")).unwrap().count(), 1);
}

/// Cancelled after its first file.
fn interrupted(source: &Path, options: ExtractOptions, target: &Path) {
    let token = CancelToken::new();
    let switch = token.clone();
    let options = options.cancel(token).progress(move |_| switch.cancel());
    expect(&extract(source, options, target).unwrap_err(), ErrorKind::Cancelled, &[]);
}

#[test]
fn other_options_do_not_continue() {
    let folder = scratch();
    let target = folder.path().join("v");
    interrupted(&origin(), small(), &target);
    for (options, words) in [
        (small().storage(VindexStorage::F32), ["storage", "`f16`", "`f32`"]),
        (small().name("other"), ["name", "`tiny-llama320`", "`other`"]),
        (small().level(VindexLevel::All), ["level", "`browse`", "`all`"]),
    ] {
        let error = extract(&origin(), options, &target).unwrap_err();
        expect(&error, ErrorKind::InvalidArgument, &words);
    }
    // Threads are nobody's business; `restart` forgets what was there.
    let report = extract(&origin(), small().threads(1), &target).unwrap();
    assert!(report.resumed.bytes() > 0);
    let other = folder.path().join("w");
    interrupted(&origin(), small(), &other);
    let report = extract(&origin(), small().storage(VindexStorage::F32).restart(true), &other).unwrap();
    assert_eq!(report.resumed.bytes(), 0);
    let direct = undisturbed(&origin(), small().storage(VindexStorage::F32));
    assert_eq!(difference(&timeless(&other), &direct), None);
}

#[test]
fn a_changed_source_does_not_continue() {
    let (folder, source) = (scratch(), copied(&origin()));
    let target = folder.path().join("v");
    interrupted(source.path(), small(), &target);
    change_json(source.path(), "config.json", |config| config["rms_norm_eps"] = json!(1e-3));
    let error = extract(source.path(), small(), &target).unwrap_err();
    expect(&error, ErrorKind::InvalidArgument, &["configuration", "restart"]);
    std::fs::copy(origin().join("config.json"), source.path().join("config.json")).unwrap();

    let weights = source.path().join("model.safetensors");
    let bytes = std::fs::read(&weights).unwrap();
    // The same bytes, but nobody knows that without reading them.
    std::thread::sleep(std::time::Duration::from_millis(20));
    std::fs::write(&weights, bytes).unwrap();
    let error = extract(source.path(), small(), &target).unwrap_err();
    expect(&error, ErrorKind::InvalidArgument, &["source model.safetensors", "changed at", "restart"]);
    extract(source.path(), small().restart(true), &target).unwrap();
}

/// What lies in the working folder is trusted only as far as it can be what was written.
#[test]
fn broken_leftovers_are_written_again() {
    let undisturbed = undisturbed(&origin(), small().name("n"));
    for (file, bytes) in [
        ("state.json", &b"{"[..]),
        ("state.json", b""),
        ("vindex/embeddings.bin", b"short"),
        ("vindex/unknown.bin", b"other"),
    ] {
        let folder = scratch();
        let target = folder.path().join("v");
        interrupted(&origin(), small().name("n"), &target);
        std::fs::write(folder.path().join(".v.partial").join(file), bytes).unwrap();
        extract(&origin(), small().name("n"), &target).unwrap();
        assert_eq!(difference(&timeless(&target), &undisturbed), None, "{file}");
    }
}

/// A mark that cannot be one of the file's is none: the file is written from its start.
#[test]
fn marks_that_cannot_be_are_none() {
    let undisturbed = undisturbed(&origin(), small().name("n"));
    let bytes = undisturbed["gate_vectors.bin"].len() as u64;
    for (sections, bytes) in [(1, 7), (1, bytes), (0, 4), (999, bytes), (999, 0), (2, bytes + 1)] {
        let folder = scratch();
        let target = folder.path().join("v");
        interrupted(&origin(), small().name("n"), &target);
        let partial = folder.path().join(".v.partial");
        let mark = json!({ "file": "gate_vectors.bin", "sections": sections, "bytes": bytes });
        change_json(&partial, "state.json", |state| state["current"] = mark);
        std::fs::write(partial.join("vindex/gate_vectors.bin"), vec![1; bytes as usize + 9]).unwrap();
        extract(&origin(), small().name("n"), &target).unwrap();
        assert_eq!(difference(&timeless(&target), &undisturbed), None, "{sections} {bytes}");
    }
}

#[test]
fn only_one_works_at_a_target() {
    let folder = scratch();
    let target = folder.path().join("v");
    let (inner, seen) = (target.clone(), std::sync::Mutex::new(false));
    let options = small().progress(move |_| {
        let mut seen = seen.lock().unwrap();
        if !std::mem::replace(&mut *seen, true) {
            let error = extract(&origin(), small(), &inner).unwrap_err();
            expect(&error, ErrorKind::FileIo, &["another"]);
        }
    });
    extract(&origin(), options, &target).unwrap();
}

/// A llama whose embedding table has this number in row 3, column 5.
fn with_number(number: half::bf16) -> tempfile::TempDir {
    let folder = copied(&origin());
    let checkpoint = open_checkpoint(origin()).unwrap();
    let tensor = checkpoint.tensor("model.embed_tokens.weight").unwrap();
    let at = tensor.offset as usize + (3 * tensor.shape[1] + 5) * 2;
    let put = |bytes: &mut Vec<u8>| bytes[at..at + 2].copy_from_slice(&number.to_le_bytes());
    change(folder.path(), "model.safetensors", put);
    folder
}

#[test]
fn numbers_that_do_not_fit_are_named() {
    let place = ["embed_tokens.weight", "row: 3", "column: 5"];
    let large = with_number(half::bf16::from_f32(131_072.0));
    let folder = scratch();
    let target = folder.path().join("v");
    let error = extract(large.path(), small(), &target).unwrap_err();
    expect(&error, ErrorKind::DTypeUnsupported, &[&place[..], &["131072", "f32"]].concat());
    assert!(!target.exists());
    extract(large.path(), small().storage(VindexStorage::F32), &folder.path().join("w")).unwrap();
    for number in [half::bf16::NAN, half::bf16::INFINITY] {
        let broken = with_number(number);
        for &storage in VindexStorage::ALL {
            let error =
                extract(broken.path(), small().storage(storage), &folder.path().join("x")).unwrap_err();
            expect(&error, ErrorKind::CheckpointInvalid, &place);
            std::fs::remove_dir_all(folder.path().join(".x.partial")).unwrap();
        }
    }
}

/// A slice of another vindex lacks what a folder takes.
#[test]
fn what_the_source_lacks_is_named_before_anything_is_written() {
    let slice = copied(&made());
    std::fs::remove_file(slice.path().join("attn_weights_q4k.bin")).unwrap();
    let checkpoint = open_checkpoint(slice.path()).unwrap();
    let error = VindexWriter::new(&*checkpoint, ExtractOptions::default()).err().unwrap();
    expect(&error, ErrorKind::TensorMissing, &["q_proj", "attn_weights_q4k.bin"]);
    VindexWriter::new(&*checkpoint, small()).unwrap();
}

#[test]
fn a_folder_that_cannot_be_made_is_an_error() {
    let folder = scratch();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = extract(&origin(), small(), &file.join("v")).unwrap_err();
    expect(&error, ErrorKind::FileIo, &["file"]);
}
