//! Does a checkpoint become the folder that LARQL makes of it, whatever happens meanwhile?

mod contents;
mod larql;
mod refused;
mod resume;
mod round_trip;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use skulk::extract::{ExtractOptions, ExtractReport, VindexStorage, VindexWriter};
use skulk::vindex::{VindexIndex, VindexLevel, VindexQuant};
use skulk::{DType, Result, open_checkpoint};

use crate::vindex::{fixtures, is_summary, origin, write};

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

/// A llama of 2 layers so small that it can be extracted hundreds of times: rows are no whole blocks, the head is not
/// the embedding table, and numbers are of f32.
pub(crate) fn tiny() -> tempfile::TempDir {
    const HIDDEN: usize = 64;
    const WIDTH: usize = 96;
    const VOCAB: usize = 512;
    let mut state = 1u64;
    let mut tensors = Vec::new();
    let mut put = |name: String, shape: &[usize]| {
        let values = (0..shape.iter().product()).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 24) as f32 - 0.5
        });
        tensors.push((name, shape.to_vec(), values.collect()));
    };
    for name in ["model.embed_tokens", "lm_head"] {
        put(format!("{name}.weight"), &[VOCAB, HIDDEN]);
    }
    put("model.norm.weight".to_owned(), &[HIDDEN]);
    for layer in 0..2 {
        for (name, shape) in [
            ("input_layernorm", &[HIDDEN][..]),
            ("post_attention_layernorm", &[HIDDEN]),
            ("self_attn.q_proj", &[HIDDEN, HIDDEN]),
            ("self_attn.k_proj", &[HIDDEN / 2, HIDDEN]),
            ("self_attn.v_proj", &[HIDDEN / 2, HIDDEN]),
            ("self_attn.o_proj", &[HIDDEN, HIDDEN]),
            ("mlp.gate_proj", &[WIDTH, HIDDEN]),
            ("mlp.up_proj", &[WIDTH, HIDDEN]),
            ("mlp.down_proj", &[HIDDEN, WIDTH]),
        ] {
            put(format!("model.layers.{layer}.{name}.weight"), shape);
        }
    }
    let mut config = fixtures::json(&origin().join("config.json"));
    for (field, value) in [
        ("hidden_size", HIDDEN),
        ("intermediate_size", WIDTH),
        ("head_dim", HIDDEN / 2),
        ("num_attention_heads", 2),
        ("num_key_value_heads", 1),
    ] {
        config[field] = value.into();
    }
    write::checkpoint(&tensors, &config, &origin())
}

/// What LARQL was asked for when it made a folder, as its files tell; `None` for what only LARQL makes: folders with a
/// summary of each expert, without up and down projections, and without any gates of experts.
fn options_of(made: &Path) -> Option<ExtractOptions> {
    let index = VindexIndex::parse(&std::fs::read(made.join("index.json")).unwrap(), made).unwrap();
    let has = |name: &str| made.join(name).metadata().is_ok_and(|file| file.len() > 0);
    let has_summaries = index.layers.iter().any(|layer| is_summary(&index, layer.layer));
    let is_compact = index.quant() == VindexQuant::None
        && index.extract_level >= VindexLevel::Inference
        && !has("up_weights.bin");
    let has_gates = has("gate_vectors.bin") || index.moe().is_none();
    if is_compact || !has_gates || has_summaries {
        return None;
    }
    let options = ExtractOptions::default().threads(2);
    let options = options.level(index.extract_level).feature_tokens(index.down_top_k);
    if index.quant() == VindexQuant::None {
        return Some(options.storage(match index.dtype() {
            DType::F32 => VindexStorage::F32,
            _ => VindexStorage::F16,
        }));
    }
    let manifest = fixtures::json(&made.join("interleaved_q4k_manifest.json"));
    let is_q4k = |entry: &serde_json::Value| entry["format"] == "Q4_K";
    let options = options
        .storage(VindexStorage::Q4K)
        .down_q4k(manifest.as_array().unwrap().iter().all(is_q4k))
        .feature_major_down(has("down_features_q4k.bin"))
        .gate_vectors(has("gate_vectors.bin"));
    Some(options)
}

/// Extracts where nothing disturbs it; the folder's files, but for the time.
fn undisturbed(source: &Path, options: ExtractOptions) -> BTreeMap<String, Vec<u8>> {
    let (_folder, target) = extracted(source, options);
    timeless(&target)
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

/// The same, without the time in the index, and so without the index' hash.
pub(crate) fn timeless(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = files(folder);
    let mut change = |name: &str, field: &str, value: serde_json::Value| {
        let file = files.get_mut(name).unwrap();
        let mut json: serde_json::Value = serde_json::from_slice(file).unwrap();
        *json.pointer_mut(field).unwrap() = value;
        *file = serde_json::to_vec_pretty(&json).unwrap();
    };
    change("index.json", "/source/extracted_at", "".into());
    change("skulk_hashes.json", "/files/index.json", serde_json::Value::Null);
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
