//! Are vindex folders read as LARQL wrote them, and refused when they are wrong?

mod answers;
mod browse;
mod cuts;
mod extract;
mod features;
mod folders;
mod generation;
mod hostile;
mod links;
mod mixture;
mod slice;
mod verify;
mod write;

use std::path::{Path, PathBuf};

use serde_json::Value;
use skulk::{Error, ErrorKind};
use tempfile::TempDir;

use crate::fixtures;

/// The folder of the repository that LARQL made whole.
fn made() -> PathBuf {
    fixtures::root().join("tests/fixtures/vindex/made/tiny-llama320.q4k.vindex")
}

/// The checkpoint that it was made from.
fn origin() -> PathBuf {
    fixtures::root().join("tests/fixtures/vindex/source/tiny-llama320")
}

/// Every folder that LARQL made, with the checkpoint that it was made from: fixtures, and those of
/// `SKULK_EXTRA_SUITES`.
fn pairs() -> Vec<(PathBuf, PathBuf)> {
    let own = fixtures::root().join("tests/fixtures/vindex");
    let extra = std::env::var_os("SKULK_EXTRA_SUITES").map(|folder| PathBuf::from(folder).join("vindex"));
    let mut pairs = Vec::new();
    for root in [Some(own), extra].into_iter().flatten().filter(|root| root.join("made").exists()) {
        for entry in std::fs::read_dir(root.join("made")).unwrap() {
            let made = entry.unwrap().path();
            let name = made.file_name().unwrap().to_str().unwrap().split('.').next().unwrap().to_owned();
            pairs.push((made, root.join("source").join(name)));
        }
    }
    pairs.sort();
    assert!(!pairs.is_empty());
    pairs
}

/// Whether this library computes the family of a checkpoint from what LARQL keeps; others are read, but not run.
fn is_computed(source: &Path) -> bool {
    let config = fixtures::json(&source.join("config.json"));
    let computed = ["gemma3", "gemma3_text", "gemma4_text", "llama", "mixtral", "qwen3", "qwen3_moe"];
    computed.contains(&config["model_type"].as_str().unwrap())
}

/// Whether it is extracted, too.
fn is_extracted(source: &Path) -> bool {
    let config = fixtures::json(&source.join("config.json"));
    is_computed(source) && config["model_type"] != "gemma4_text"
}

/// Whether a layer's gate vectors only sum up its experts, which LARQL does on request.
fn is_summary(index: &skulk::vindex::VindexIndex, layer: usize) -> bool {
    let width = index.moe().map(|moe| moe.moe_intermediate_size.unwrap_or(index.intermediate_size));
    let entry = index.layers.iter().find(|entry| entry.layer == layer).unwrap();
    entry.num_features_per_expert.is_some() && entry.num_features_per_expert != width
}

/// The names that a layer's experts may have in checkpoints, with the word of a projection: Mixtral's and others'.
fn expert_names(layer: usize, expert: usize, word: &str) -> [String; 2] {
    let mixtral = match word {
        "gate_proj" => "w1",
        "up_proj" => "w3",
        _ => "w2",
    };
    [
        format!("layers.{layer}.block_sparse_moe.experts.{expert}.{mixtral}.weight"),
        format!("layers.{layer}.mlp.experts.{expert}.{word}.weight"),
    ]
}

/// One tensor as numbers, row by row without padding.
fn values(region: &skulk::Region) -> Vec<f32> {
    let (row, width) = (region.row_bytes().max(1), region.row_len());
    if let (Some(scales), Some(biases)) = (region.scales(), region.biases()) {
        let (bits, bytes) = (region.dtype().block_bytes() / 4, region.bytes());
        let group = region.row_len() / scales.row_len();
        let (scales, biases) = (values(scales), values(biases));
        // Rows are whole words.
        let bit = |at: usize| u32::from(bytes[at / 8] >> (at % 8) & 1);
        let integer = |i: usize| (0..bits).map(|bit_of| bit(i * bits + bit_of) << bit_of).sum::<u32>();
        let n = region.rows() * width;
        return (0..n).map(|i| scales[i / group] * integer(i) as f32 + biases[i / group]).collect();
    }
    region.bytes().chunks_exact(row).flat_map(|row| decode(region.dtype(), row, width)).collect()
}

/// A decoder of its own, straight from the formats' descriptions.
fn decode(dtype: skulk::DType, row: &[u8], width: usize) -> Vec<f32> {
    use skulk::DType;
    let half = |b: &[u8]| half::f16::from_le_bytes([b[0], b[1]]).to_f32();
    let mut out: Vec<f32> = match dtype {
        DType::F32 => row.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect(),
        DType::F16 => row.chunks_exact(2).map(half).collect(),
        DType::BF16 => row.as_chunks().0.iter().map(|b| half::bf16::from_le_bytes(*b).to_f32()).collect(),
        DType::Q4_K => {
            row.chunks_exact(144).flat_map(|block| (0..256).map(move |i| q4_k(block, i))).collect()
        }
        DType::Q6_K_Linear => {
            row.chunks_exact(210).flat_map(|block| (0..256).map(move |i| q6_k(block, i))).collect()
        }
        other => panic!("no decoder of {other}"),
    };
    out.truncate(width);
    out
}

fn q4_k(block: &[u8], i: usize) -> f32 {
    let half = |at: usize| half::f16::from_le_bytes([block[at], block[at + 1]]).to_f32();
    let (sub, s) = (i / 32, &block[4..16]);
    let (scale, min) = match sub {
        0..4 => (s[sub] & 63, s[sub + 4] & 63),
        _ => (s[sub + 4] & 15 | s[sub - 4] >> 6 << 4, s[sub + 4] >> 4 | s[sub] >> 6 << 4),
    };
    let integer = block[16 + sub / 2 * 32 + i % 32] >> (sub % 2 * 4) & 15;
    half(0) * f32::from(scale) * f32::from(integer) - half(2) * f32::from(min)
}

fn q6_k(block: &[u8], i: usize) -> f32 {
    let d = half::f16::from_le_bytes([block[208], block[209]]).to_f32();
    let integer = block[i / 2] >> (i % 2 * 4) & 15 | (block[128 + i / 4] >> (i % 4 * 2) & 3) << 4;
    d * f32::from(block[192 + i / 16] as i8) * (f32::from(integer) - 32.0)
}

#[track_caller]
fn refused<T>(result: Result<T, Error>, kind: ErrorKind, words: &str) {
    let error = result.err().unwrap();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(words) && error.hint().is_some(), "{error}");
}

/// Changes bytes of a file.
fn change(folder: &Path, file: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(folder.join(file)).unwrap();
    change(&mut bytes);
    std::fs::write(folder.join(file), bytes).unwrap();
}

/// Changes what a file of JSON says.
fn change_json(folder: &Path, file: &str, change: impl FnOnce(&mut Value)) {
    let mut value = fixtures::json(&folder.join(file));
    change(&mut value);
    std::fs::write(folder.join(file), value.to_string()).unwrap();
}

/// A copy of a folder.
fn copied(from: &Path) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    copy(from, folder.path());
    folder
}

/// Copies a folder and the folders in it.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::write(target, std::fs::read(entry.path()).unwrap()).unwrap();
        }
    }
}
