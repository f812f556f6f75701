//! Does a checkpoint become the folder that LARQL makes of it, whatever happens meanwhile?

mod larql;
mod refused;
mod resume;
mod round_trip;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use skulk::vindex::{ExtractOptions, ExtractReport, VindexLevel, VindexStorage, VindexWriter};
use skulk::{Result, open_checkpoint};

use crate::fixtures;

/// A folder in memory, where there is one: what these tests wait for is mostly the disk.
pub(crate) fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    match memory.is_dir() {
        true => tempfile::tempdir_in(memory).unwrap(),
        false => tempfile::tempdir().unwrap(),
    }
}

/// Extracts to `NAME/model.vindex` in a new folder.
pub(crate) fn extracted(source: &Path, options: ExtractOptions) -> (tempfile::TempDir, PathBuf) {
    let folder = scratch();
    let target = folder.path().join("model.vindex");
    extract(source, options, &target).unwrap();
    (folder, target)
}

fn extract(source: &Path, options: ExtractOptions, target: &Path) -> Result<ExtractReport> {
    let checkpoint = open_checkpoint(source)?;
    VindexWriter::new(&*checkpoint, options)?.write(target)
}

/// The fixture that is in the repository.
fn own() -> PathBuf {
    fixtures::root().join("tests/fixtures/vindex/source/tiny-llama320")
}

/// What LARQL was asked for when it made a folder of that name.
fn options_of(made: &Path) -> ExtractOptions {
    let name = made.file_name().unwrap().to_str().unwrap();
    let level = name.split('.').nth(1).unwrap();
    let options = ExtractOptions::default().threads(2);
    // LARQL's option is `inference` where none is given, also for quantised folders.
    let q4k = options.clone().level(VindexLevel::Inference).storage(VindexStorage::Q4K);
    match level {
        "browse" => options.level(VindexLevel::Browse),
        "attention" => options.level(VindexLevel::Attention),
        "inference" => options.level(VindexLevel::Inference),
        "all" => options,
        "q4k" => q4k,
        "q4kd" => q4k.down_q4k(true).feature_major_down(true),
        "q4kng" => q4k.gate_vectors(false),
        other => panic!("{other}"),
    }
}

/// Every file of a folder, by its path in it.
pub(crate) fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    fn collect(root: &Path, folder: &Path, files: &mut BTreeMap<String, Vec<u8>>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(root, &path, files);
            } else {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                files.insert(name, std::fs::read(path).unwrap());
            }
        }
    }
    let mut all = BTreeMap::new();
    collect(folder, folder, &mut all);
    all
}

/// The same, without the time in the index.
pub(crate) fn timeless(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = files(folder);
    let index = files.get_mut("index.json").unwrap();
    let mut json: serde_json::Value = serde_json::from_slice(index).unwrap();
    json["source"]["extracted_at"] = "".into();
    *index = serde_json::to_vec_pretty(&json).unwrap();
    files
}

/// How two folders differ: names of files, and the first byte.
pub(crate) fn difference(a: &BTreeMap<String, Vec<u8>>, b: &BTreeMap<String, Vec<u8>>) -> Option<String> {
    let (names, others): (Vec<_>, Vec<_>) = (a.keys().collect(), b.keys().collect());
    if names != others {
        return Some(format!("{names:?}, not {others:?}"));
    }
    a.iter().zip(b).find_map(|((name, a), (_, b))| {
        let at = a.iter().zip(b).position(|(a, b)| a != b);
        let at = at.or((a.len() != b.len()).then_some(a.len().min(b.len())))?;
        Some(format!("{name} at {at}, of {} and {} bytes", a.len(), b.len()))
    })
}
