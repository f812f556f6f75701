mod mlx;
mod refused;
mod tokens;
pub(in crate::extract) mod twins;

#[path = "../../../../tests/support/gguf_writer.rs"]
#[allow(dead_code, unreachable_pub)] // Other tests use the rest.
mod gguf_writer;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::*;
use crate::engine::{Batch, LoadCx, Logits, Precision, Reply, Segment, ShardSpec, StepCx};
use crate::weights::safetensors::HfMetadata;
use crate::weights::{DType, MappedFile, TensorInfo, checkpoint_fields, open_checkpoint};
use crate::{CancelToken, EngineOptions, KvType, SeqId, TokenId};

fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(path)
}

fn json_of(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// A copy of a folder's model with some of its configuration replaced.
fn with_config(folder: &str, change: impl Fn(&mut Value)) -> tempfile::TempDir {
    let (from, to) = (fixture(folder), tempfile::tempdir().unwrap());
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        std::fs::copy(entry.path(), to.path().join(entry.file_name())).unwrap();
    }
    let path = to.path().join("config.json");
    let mut config = json_of(&path);
    change(&mut config);
    std::fs::write(path, config.to_string()).unwrap();
    to
}

fn open(path: &Path) -> Arc<dyn Checkpoint> {
    open_checkpoint(path).unwrap()
}

/// The real model, where it is.
fn gemma() -> Option<PathBuf> {
    let named = std::env::var_os("SKULK_GEMMA_GGUF").map(PathBuf::from);
    let path = named.unwrap_or_else(|| fixture("../../.cache/gemma-3-270m-q4_k_m.gguf"));
    path.exists().then_some(path)
}

/// Every tensor that the model has.
fn keys(source: &Source<'_>) -> Vec<String> {
    let (arch, names) = (source.arch(), &source.arch().names);
    let mut keys = vec![names.embedding(), names.output_norm(), names.head()];
    for (at, layer) in arch.layers.iter().enumerate() {
        keys.extend(names.weights(at, layer));
        keys.extend(LayerTensor::of(layer).map(|tensor| names.bias(at, tensor)));
    }
    keys.retain(|key| source.shape(key).is_some());
    keys
}

fn values(source: &Source<'_>, key: &str) -> Vec<f32> {
    let [rows, width] = source.shape(key).unwrap();
    let mut values = vec![0.0; rows * width];
    source.tensor(key).unwrap().rows(0..rows, &mut values).unwrap();
    values
}

/// A Hugging Face folder with what a source says: the checkpoint that it pretends to be.
struct Written {
    folder: tempfile::TempDir,
    path: PathBuf,
    metadata: HfMetadata,
    files: Vec<MappedFile>,
    tensors: Vec<TensorInfo>,
}

impl Written {
    /// Tensors in f32, or as they are stored where rows can be had so.
    fn new(source: &Source<'_>, as_stored: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weights.bin");
        let mut file = BufWriter::new(File::create(&path).unwrap());
        let (mut tensors, mut offset) = (Vec::new(), 0);
        for key in keys(source) {
            let tensor = source.tensor(&key).unwrap();
            let [rows, width] = tensor.shape();
            let mut values = vec![0.0; width];
            let (mut dtype, mut len) = (DType::F32, 0);
            for row in 0..rows {
                match tensor.stored_row(row).filter(|_| as_stored) {
                    Some((stored, bytes)) => {
                        dtype = stored;
                        file.write_all(bytes).unwrap();
                        len += bytes.len() as u64;
                    }
                    None => {
                        tensor.rows(row..row + 1, &mut values).unwrap();
                        values.iter().for_each(|value| file.write_all(&value.to_le_bytes()).unwrap());
                        len += values.len() as u64 * 4;
                    }
                }
            }
            let is_vector = is_vector(source.arch().names.role(&key).unwrap());
            let shape = if is_vector { vec![width] } else { vec![rows, width] };
            let name = if key.starts_with("lm_head") { key } else { format!("model.{key}") };
            tensors.push(TensorInfo { name, dtype, shape, file: 0, offset, len });
            let padding = len.next_multiple_of(64) - len;
            file.write_all(&vec![0; padding as usize]).unwrap();
            offset += len + padding;
        }
        file.into_inner().unwrap();
        tensors.sort_by(|a, b| a.name.cmp(&b.name));
        std::fs::write(folder.path().join("config.json"), source.config().to_string()).unwrap();
        let files = vec![MappedFile::open(path).unwrap()];
        let metadata = HfMetadata::read(folder.path()).unwrap();
        Self { path: folder.path().to_owned(), folder, metadata, files, tensors }
    }

    /// The tokenizer's files too.
    fn with_tokenizer(mut self, source: &Source<'_>) -> Self {
        for file in source.tokenizer_files(None).unwrap() {
            let path = self.folder.path().join(file.name);
            match file.content {
                FileContent::Copy(from) => drop(std::fs::copy(from, path).unwrap()),
                FileContent::Text(text) => std::fs::write(path, text).unwrap(),
            }
        }
        self.metadata = HfMetadata::read(self.folder.path()).unwrap();
        self
    }
}

impl Checkpoint for Written {
    checkpoint_fields!(HuggingFace);
}

/// Logits at every position, in exact precision.
fn logits(checkpoint: &dyn Checkpoint, tokens: &[TokenId]) -> Vec<f32> {
    let arch = Arc::new(ArchSpec::from_checkpoint(checkpoint).unwrap());
    let options = EngineOptions::default().threads(2).precision(Precision::Exact);
    let engine = crate::engines::cpu(&options).unwrap();
    let spec = ShardSpec::new(Arc::clone(&arch), 0..arch.n_layers(), 64, 64, KvType::F32).unwrap();
    let cancel = CancelToken::new();
    let shard = engine.load(&spec, checkpoint, &LoadCx::new(&cancel, &|| ())).unwrap();
    shard.open(SeqId(0), &[]).unwrap();
    let segments = [Segment::new(SeqId(0), 0, tokens.len()).want_every(Logits::All)];
    let batch = Batch::new(&segments, tokens);
    let mut reply = Reply::new();
    shard.forward(&batch, &mut reply, &StepCx::new(&cancel)).unwrap();
    reply.logits(0).data.to_vec()
}

fn tokens(n: usize, vocab: usize) -> Vec<TokenId> {
    (0..n).map(|i| TokenId((i * 37 % vocab.min(2000)) as u32)).collect()
}

/// The largest difference, as a share of the largest value.
fn difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let most = a.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    assert!(most > 0.0 && a.iter().chain(b).all(|x| x.is_finite()));
    a.iter().zip(b).fold(0.0f32, |most, (a, b)| most.max((a - b).abs())) / most
}
