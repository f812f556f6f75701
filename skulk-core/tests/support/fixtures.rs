//! Which checkpoints are there to test with?
#![allow(dead_code)] // Every test binary compiles all of it and uses a part.
#![allow(unreachable_pub)] // Shared by path, each time as a private module.

use std::path::{Path, PathBuf};

use serde_json::Value;
use skulk::arch::{ArchSpec, LayerTensor};
use skulk::{ExpertIdx, TokenId, open_checkpoint};

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The folder of a small model.
pub fn path(name: &str) -> PathBuf {
    root().join("tests/fixtures/models").join(name)
}

/// A copy of a model's folder, to be changed.
pub fn copied(folder: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    copy
}

/// Whether rows take experts.
pub fn has_routers(folder: &Path) -> bool {
    let arch = ArchSpec::from_checkpoint(&*open_checkpoint(folder).unwrap());
    arch.is_ok_and(|arch| arch.layers.iter().any(|layer| layer.ffn.experts.is_some()))
}

/// Whether rows see positions that an indexer chooses.
pub fn chooses_positions(folder: &Path) -> bool {
    let arch = ArchSpec::from_checkpoint(&*open_checkpoint(folder).unwrap());
    let chooses =
        |latent: Option<skulk::arch::LatentSpec>| latent.is_some_and(|latent| latent.index.is_some());
    arch.is_ok_and(|arch| {
        arch.layers.iter().any(|layer| chooses(layer.attention().and_then(|own| own.latent)))
    })
}

/// Bytes of a model's feed-forward weights: of each layer's block, or each of its experts.
pub fn feed_forward(folder: &Path) -> Vec<u64> {
    let checkpoint = open_checkpoint(folder).unwrap();
    let arch = ArchSpec::from_checkpoint(&*checkpoint).unwrap();
    let bytes = |mut names: Vec<String>| {
        // Gate and up projection may lie in one tensor.
        names.dedup();
        names.iter().map(|name| checkpoint.region(name).unwrap().stored_bytes()).sum::<u64>()
    };
    // Not all have a gate.
    let own = |at: usize, tensors: [LayerTensor; 3]| {
        let has = |tensor: &LayerTensor| LayerTensor::of(&arch.layers[at]).any(|other| other == *tensor);
        tensors.into_iter().filter(has).collect::<Vec<_>>()
    };
    let block = |at| {
        let tensors = own(at, [LayerTensor::FfnGate, LayerTensor::FfnUp, LayerTensor::FfnDown]);
        bytes(tensors.into_iter().map(|t| arch.names.weight(at, t)).collect())
    };
    let expert = |at, expert| {
        let tensors = own(at, [LayerTensor::ExpertGate, LayerTensor::ExpertUp, LayerTensor::ExpertDown]);
        let name = |tensor| arch.names.expert_weight(at, tensor, ExpertIdx(expert));
        bytes(tensors.into_iter().map(name).collect())
    };
    let layers = arch.layers.iter().enumerate();
    layers
        .flat_map(|(at, layer)| match layer.ffn.experts {
            None if layer.ffn.is_absent() => Vec::new(),
            None => vec![block(at)],
            Some(experts) => {
                // All of them are in one tensor, or each has its own.
                let n_stacked = if arch.names.stacks_experts() { experts.n_experts as u64 } else { 1 };
                (0..experts.n_experts).map(|n| expert(at, n) / n_stacked).collect()
            }
        })
        .collect()
}

/// Kibibytes of this process' mappings that are in memory, of those whose line in the system's list is `wanted`.
#[cfg(target_os = "linux")]
pub fn resident_kib(wanted: impl Fn(&str) -> bool) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut counts, mut kib) = (false, 0);
    for line in maps.lines() {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["Rss:", number, _] if counts => kib += number.parse::<u64>().unwrap(),
            [first, ..] if !first.ends_with(':') => counts = wanted(line),
            _ => {}
        }
    }
    kib
}

/// A file of JSON.
pub fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// An array of token ids.
pub fn ids(value: &Value) -> Vec<TokenId> {
    let ids = value.as_array().unwrap().iter();
    ids.map(|id| TokenId(id.as_u64().unwrap() as u32)).collect()
}

/// Every folder with a `reference.json`, those of `SKULK_EXTRA_MODELS` included.
pub fn checkpoints() -> Vec<PathBuf> {
    let fixtures = root().join("tests/fixtures/models");
    let extra = std::env::var_os("SKULK_EXTRA_MODELS").map(PathBuf::from);
    let mut folders: Vec<_> = [Some(fixtures), extra]
        .into_iter()
        .flatten()
        .flat_map(|parent| std::fs::read_dir(parent).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|folder| folder.join("reference.json").exists())
        .collect();
    folders.sort();
    assert!(folders.len() >= 3);
    folders
}

/// Which of many like cases run: a few, spread over them, or those that `SKULK_CASES` asks for: `all`, or with `k/n`
/// each n-th from the k-th on.
pub fn chosen<T>(few: usize, cases: impl IntoIterator<Item = T>) -> Vec<T> {
    let asked = std::env::var("SKULK_CASES").ok();
    let Some((k, n)) = asked.as_deref().and_then(|asked| asked.split_once('/')) else {
        return sample(few, cases);
    };
    let (k, n) = (k.parse().unwrap(), n.parse().unwrap());
    cases.into_iter().skip(k).step_by(n).collect()
}

/// A few of many like things, spread over them, each of which has cases of its own; all where `SKULK_CASES` asks for cases.
pub fn sample<T>(few: usize, all: impl IntoIterator<Item = T>) -> Vec<T> {
    let all: Vec<T> = all.into_iter().collect();
    let len = all.len();
    let few = if std::env::var_os("SKULK_CASES").is_some() { len } else { few.min(len) };
    let is_one = |at: usize| few == len || (0..few).any(|i| at == (2 * i + 1) * len / (2 * few));
    all.into_iter().enumerate().filter(|(at, _)| is_one(*at)).map(|(_, one)| one).collect()
}

/// The real model, Gemma 3 270M Q4_K_M, where `tests/run` put it.
pub fn gemma() -> Option<PathBuf> {
    fetched("SKULK_GEMMA_GGUF", "gemma-3-270m-q4_k_m.gguf")
}

/// llama.cpp's own vocabularies with texts and their tokens, where `tests/run` put them.
pub fn vocabularies() -> Option<PathBuf> {
    fetched("SKULK_LLAMA_VOCABULARIES", "llama.cpp-vocabularies")
}

/// Chat templates of models, which llama.cpp has, where `tests/run` put them.
pub fn templates() -> Option<PathBuf> {
    fetched("SKULK_LLAMA_TEMPLATES", "llama.cpp-templates")
}

/// all-MiniLM-L6-v2, which makes vectors of texts, where `tests/run` put it.
pub fn minilm() -> Option<PathBuf> {
    fetched("SKULK_MINILM", "all-MiniLM-L6-v2")
}

/// What `variable` names, or `name` in the cache.
fn fetched(variable: &str, name: &str) -> Option<PathBuf> {
    let named = std::env::var_os(variable).map(PathBuf::from);
    let path = named.unwrap_or_else(|| root().join(".cache").join(name));
    if !path.exists() {
        println!("skipped: no {}; set {variable}", path.display());
        return None;
    }
    Some(path)
}
