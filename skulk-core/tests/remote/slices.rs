//! Does the slice for clients say, beside the slice for servers, what the whole folder says?

use std::path::Path;

use skulk::extract::{ExtractOptions, VindexStorage, VindexWriter};
use skulk::remote::{ServeOptions, Server, serve};
use skulk::vindex::{SliceOptions, SlicePreset};
use skulk::{ErrorKind, LoadOptions, Model, ModelCard, VindexReader, open_checkpoint};

use super::client::{computing, loading, said};
use super::model_path;

fn extracted(name: &str, storage: VindexStorage, to: &Path) {
    let checkpoint = open_checkpoint(model_path(name)).unwrap();
    let options = ExtractOptions::default().storage(storage).feature_tokens(0).threads(1);
    VindexWriter::new(&*checkpoint, options).unwrap().write(to).unwrap();
}

fn sliced(whole: &Path, options: &SliceOptions) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    VindexReader::open(whole).unwrap().slice(folder.path(), options).unwrap();
    folder
}

fn serving(folder: &Path, options: ServeOptions) -> Server {
    let options = options.engine_options(computing());
    serve(&*open_checkpoint(folder).unwrap(), &options).unwrap()
}

fn at(server: &Server) -> LoadOptions {
    loading().ffn_at(server.address().clone())
}

#[test]
fn client_and_server_say_what_the_whole_folder_says() {
    for name in ["stories260K", "gemma3", "mixtral"] {
        for storage in [VindexStorage::F32, VindexStorage::Q4K] {
            let folder = tempfile::tempdir().unwrap();
            let whole = folder.path().join("v");
            extracted(name, storage, &whole);
            let [client, server] = [SlicePreset::Client, SlicePreset::Server]
                .map(|preset| sliced(&whole, &SliceOptions::default().preset(preset)));
            let alone = said(&Model::open(&whole, &loading()).unwrap());
            let served = serving(server.path(), ServeOptions::default());
            let model = Model::open(client.path(), &at(&served)).unwrap();
            assert_eq!(said(&model), alone, "{name} {storage:?}");
            // What it has not is not counted.
            let stage = |model: &Model| model.stages()[0].weights;
            assert!(stage(&model) < stage(&Model::open(&whole, &loading()).unwrap()), "{name}");
            let card = ModelCard::from_checkpoint(client.path()).unwrap();
            assert_eq!(card.n_layers, model.arch().n_layers(), "{name}");
        }
    }
}

/// What no server has is asked of the folder, which lacks it.
#[test]
fn a_client_without_all_of_its_blocks_says_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("v");
    extracted("stories260K", VindexStorage::F32, &whole);
    let client = sliced(&whole, &SliceOptions::default().preset(SlicePreset::Client));
    let part = sliced(&whole, &SliceOptions::default().preset(SlicePreset::Server).layers(0..2));
    let server = serving(part.path(), ServeOptions::default().layers(0..2));
    for options in [loading(), at(&server)] {
        let error = Model::open(client.path(), &options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TensorMissing, "{error}");
        assert!(error.message().contains("this client slice lacks that part"), "{error}");
    }
}

/// One that has some experts of its own, the others being a server's.
#[test]
fn experts_may_be_in_slices_of_both() {
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("v");
    for storage in [VindexStorage::F32, VindexStorage::Q4K] {
        let whole = whole.with_extension(storage.as_str());
        extracted("mixtral", storage, &whole);
        let alone = said(&Model::open(&whole, &loading()).unwrap());
        let full = SliceOptions::default().preset(SlicePreset::Full);
        let others = sliced(&whole, &full.clone().experts(4..8));
        let server = serving(others.path(), ServeOptions::default().experts(4..8));
        let client = sliced(&whole, &full.experts(0..4));
        let model = Model::open(client.path(), &at(&server)).unwrap();
        assert_eq!(said(&model), alone, "{storage:?}");
    }
}
