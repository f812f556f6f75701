//! Are files that are links as good as files? The cache of `huggingface_hub` consists of them, and people make their own.
#![cfg(unix)]

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use skulk::extract::ExtractOptions;
use skulk::{GenerateOptions, LoadOptions, Model, ModelCard, VindexReader, open_checkpoint};
use tempfile::TempDir;

use crate::fixtures;
use crate::vindex::extract::{difference, extracted, files, timeless};

/// The files of `source` under `store`, and in the folder that is given back a link to each, by relative paths.
fn linked(source: &Path, folder: &str, store: &str) -> (TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let (folder, store) = (root.path().join(folder), root.path().join(store));
    std::fs::create_dir_all(&store).unwrap();
    for (i, (name, bytes)) in files(source).into_iter().enumerate() {
        let blob = format!("{i:064x}");
        std::fs::write(store.join(&blob), bytes).unwrap();
        let link = folder.join(&name);
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        let up = link.parent().unwrap().strip_prefix(root.path()).unwrap().components().map(|_| "..");
        let below = store.strip_prefix(root.path()).unwrap();
        symlink(up.collect::<PathBuf>().join(below).join(blob), link).unwrap();
    }
    (root, folder)
}

fn text(path: &Path) -> String {
    let model = Model::open(path, &LoadOptions::default()).unwrap();
    let options = GenerateOptions::default().max_tokens(4);
    model.generate("The model", options).unwrap().map(|event| event.unwrap().text).collect()
}

#[test]
fn folders_of_links_are_as_good_as_folders_of_files() {
    let fixtures = fixtures::root().join("tests/fixtures");
    for source in ["models/llama", "models/mixtral", "vindex/made/tiny-llama320.q4k.vindex"] {
        let source = fixtures.join(source);
        let options = || ExtractOptions::default().name("tiny").feature_tokens(2).threads(2);
        let (_extracted, expected) = extracted(&source, options());
        for (folder, store) in [
            ("models--acme--tiny/snapshots/0123", "models--acme--tiny/blobs"),
            ("models--acme--tiny/snapshots/0123/in-a-folder", "models--acme--tiny/blobs"),
            ("tiny", "hub/models--acme--tiny/blobs"),
        ] {
            let (_root, folder) = linked(&source, folder, store);
            let [found, plain] = [&folder, &source].map(|path| {
                let checkpoint = open_checkpoint(path).unwrap();
                let names = checkpoint.tensors().iter().map(|tensor| tensor.name.clone());
                names.map(|name| checkpoint.region(&name).unwrap().bytes().to_vec()).collect::<Vec<_>>()
            });
            assert!(found == plain, "{}", folder.display());
            ModelCard::from_checkpoint(&folder).unwrap();
            assert_eq!(text(&folder), text(&source));
            let (_extracted, made) = extracted(&folder, options());
            assert_eq!(difference(&timeless(&made), &timeless(&expected)), None, "{}", folder.display());
            if let Ok(reader) = VindexReader::open(&folder) {
                let report = reader.verify(&Default::default()).unwrap();
                assert!(report.is_sound(), "{report}");
            }
        }
    }
}

#[test]
fn gguf_models_may_be_links() {
    let gguf = fixtures::root().join("tests/fixtures/gguf/stories260K-q8_0.gguf");
    let source = tempfile::tempdir().unwrap();
    std::fs::copy(&gguf, source.path().join("stories.gguf")).unwrap();
    let (_root, folder) =
        linked(source.path(), "models--acme--tiny/snapshots/0123", "models--acme--tiny/blobs");
    for path in [folder.join("stories.gguf"), folder] {
        assert_eq!(text(&path), text(&gguf));
        ModelCard::from_checkpoint(&path).unwrap();
    }
}
