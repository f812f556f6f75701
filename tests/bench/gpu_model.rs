//! What is measured? A llama of any size with random weights, written to a file piece by piece.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use half::f16;
use skulk::TokenId;

use self::gguf_writer::{GgufWriter, types};
use crate::{AnyError, at_least};

#[allow(dead_code, unreachable_pub, reason = "the tests use more of it")]
#[path = "../../skulk-core/tests/support/gguf_writer.rs"]
mod gguf_writer;

const Q6_K: u32 = 14;
const ALIGNMENT: u64 = 32;
/// Tokens before those that stand for nothing: three special ones and the bytes.
const PLAIN: usize = 3 + 256;

/// Sizes of a model; unless told otherwise, of the first Llama of seven billion weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::Args)]
pub(crate) struct Shape {
    /// The model's layers. Unless told otherwise, its sizes are those of Llama 7B.
    #[arg(long, default_value = "32", default_value_if("tiny", "true", "2"), value_parser = at_least(1))]
    pub(crate) layers: usize,
    /// Its width.
    #[arg(long, default_value = "4096", default_value_if("tiny", "true", "512"))]
    pub(crate) width: usize,
    /// Its heads.
    #[arg(long, default_value = "32", default_value_if("tiny", "true", "4"))]
    pub(crate) heads: usize,
    /// Its heads of keys and values; unless given, as many as heads.
    #[arg(long)]
    pub(crate) kv_heads: Option<usize>,
    /// Elements of a head.
    #[arg(long, default_value = "128")]
    pub(crate) head_dim: usize,
    /// Width of its feed-forward blocks.
    #[arg(long, default_value = "11008", default_value_if("tiny", "true", "1280"))]
    pub(crate) feed_forward: usize,
    /// Tokens of its vocabulary.
    #[arg(long, default_value = "32000", default_value_if("tiny", "true", "4096"))]
    pub(crate) vocabulary: usize,
}

/// Small enough for the slowest device, with heads and storage types of the large one.
pub(crate) const TINY: Shape = Shape {
    layers: 2,
    width: 512,
    heads: 4,
    kv_heads: None,
    head_dim: 128,
    feed_forward: 1280,
    vocabulary: 4096,
};

/// A tensor's name, storage type and shape, outermost dimension first.
struct Tensor {
    name: String,
    kind: u32,
    shape: Vec<u64>,
}

impl Tensor {
    fn bytes(&self) -> u64 {
        let values: u64 = self.shape.iter().product();
        block(self.kind).map_or(4 * values, |block| values / 256 * block.bytes as u64)
    }
}

/// A block of 256 weights.
struct Block {
    bytes: usize,
    /// Where its half-precision scales lie, and what they are worth: random integers times these have
    /// about the spread of trained weights of unit gain.
    scales: &'static [(usize, f64)],
}

fn block(kind: u32) -> Option<Block> {
    match kind {
        types::Q4_K => Some(Block { bytes: 144, scales: &[(0, 1.0 / 240.0), (2, 7.5 / 240.0)] }),
        Q6_K => Some(Block { bytes: 210, scales: &[(208, 1.0 / 1370.0)] }),
        _ => None,
    }
}

impl Shape {
    pub(crate) fn kv_heads(&self) -> usize {
        self.kv_heads.unwrap_or(self.heads)
    }

    /// In words.
    pub(crate) fn described(&self) -> String {
        let Self { layers, width, heads, head_dim, feed_forward, vocabulary, .. } = self;
        let kv_heads = self.kv_heads();
        format!(
            "llama with random weights, {layers} layers, width {width}, {heads} heads and {kv_heads} of keys of \
             {head_dim}, feed-forward {feed_forward}, vocabulary {vocabulary}, Q4_K with a Q6_K head"
        )
    }

    /// Operations of the layers' products for a token, and of the head's: two for each weight.
    pub(crate) fn operations(&self) -> [f64; 2] {
        let attention = 2 * self.width * (self.heads + self.kv_heads()) * self.head_dim;
        let layer = attention + 3 * self.width * self.feed_forward;
        [self.layers * layer, self.vocabulary * self.width].map(|weights| 2.0 * weights as f64)
    }

    fn tensors(&self) -> Vec<Tensor> {
        let tensor = |name: String, kind, shape: &[usize]| Tensor {
            name: format!("{name}.weight"),
            kind,
            shape: shape.iter().map(|&n| n as u64).collect(),
        };
        let (width, ffn) = (self.width, self.feed_forward);
        let [q, kv] = [self.heads, self.kv_heads()].map(|heads| heads * self.head_dim);
        let mut tensors = vec![tensor("token_embd".into(), types::Q4_K, &[self.vocabulary, width])];
        for layer in 0..self.layers {
            let name = |name: &str| format!("blk.{layer}.{name}");
            tensors.push(tensor(name("attn_norm"), types::F32, &[width]));
            tensors.push(tensor(name("ffn_norm"), types::F32, &[width]));
            for (matrix, n_out, n_in) in [
                ("attn_q", q, width),
                ("attn_k", kv, width),
                ("attn_v", kv, width),
                ("attn_output", width, q),
                ("ffn_gate", ffn, width),
                ("ffn_up", ffn, width),
                ("ffn_down", width, ffn),
            ] {
                tensors.push(tensor(name(matrix), types::Q4_K, &[n_out, n_in]));
            }
        }
        tensors.push(tensor("output_norm".into(), types::F32, &[width]));
        tensors.push(tensor("output".into(), Q6_K, &[self.vocabulary, width]));
        tensors
    }

    /// Everything before the tensors, padded.
    fn header(&self, tensors: &[Tensor]) -> Vec<u8> {
        let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(String::from).into();
        tokens.extend((0..=u8::MAX).map(|byte| format!("<0x{byte:02X}>")));
        tokens.extend((PLAIN..self.vocabulary).map(|id| format!("w{id}")));
        let kinds: Vec<i32> = (0..tokens.len())
            .map(|id| match id {
                0 => 2,
                1 | 2 => 3,
                id if id < PLAIN => 6,
                _ => 1,
            })
            .collect();
        let mut writer = GgufWriter::new()
            .str("general.architecture", "llama")
            .str("general.name", "random weights")
            .u32("llama.context_length", 1 << 17)
            .f32("llama.rope.freq_base", 10_000.0)
            .f32("llama.attention.layer_norm_rms_epsilon", 1e-5);
        for (key, value) in [
            ("block_count", self.layers),
            ("embedding_length", self.width),
            ("feed_forward_length", self.feed_forward),
            ("attention.head_count", self.heads),
            ("attention.head_count_kv", self.kv_heads()),
            ("attention.key_length", self.head_dim),
            ("attention.value_length", self.head_dim),
            ("rope.dimension_count", self.head_dim),
        ] {
            writer = writer.u32(&format!("llama.{key}"), value as u32);
        }
        writer = writer
            .str("tokenizer.ggml.model", "llama")
            .strs("tokenizer.ggml.tokens", &tokens)
            .f32s("tokenizer.ggml.scores", &vec![0.0; tokens.len()])
            .i32s("tokenizer.ggml.token_type", &kinds);
        let mut offset = 0;
        for tensor in tensors {
            writer = writer.tensor_at(&tensor.name, tensor.kind, &tensor.shape, offset);
            offset += tensor.bytes().next_multiple_of(ALIGNMENT);
        }
        let mut header = writer.header();
        header.resize(header.len().next_multiple_of(ALIGNMENT as usize), 0);
        header
    }

    /// Whether there can be such a model.
    pub(crate) fn check(&self) -> Result<(), AnyError> {
        for (what, size) in [
            ("the width", self.width),
            ("the feed-forward width", self.feed_forward),
            ("heads times their elements", self.heads * self.head_dim),
        ] {
            if !size.is_multiple_of(256) || size == 0 {
                return Err(format!("expected a multiple of 256 for {what}, found {size}").into());
            }
        }
        let tokens = 2 * PLAIN;
        if self.vocabulary < tokens {
            return Err(
                format!("expected a vocabulary of {tokens} at least, found {}", self.vocabulary).into()
            );
        }
        Ok(())
    }

    /// The model's file in this folder; made unless it is there.
    pub(crate) fn file(&self, folder: &Path) -> Result<PathBuf, AnyError> {
        let Self { layers, width, heads, head_dim, feed_forward, vocabulary, .. } = self;
        let kv_heads = self.kv_heads();
        let name =
            format!("llama-{layers}x{width}-{heads}-{kv_heads}x{head_dim}-{feed_forward}-{vocabulary}.gguf");
        let path = folder.join(name);
        let tensors = self.tensors();
        let header = self.header(&tensors);
        let size = tensors.iter().map(|t| t.bytes().next_multiple_of(ALIGNMENT)).sum::<u64>();
        if fs::metadata(&path).is_ok_and(|file| file.len() == header.len() as u64 + size) {
            return Ok(path);
        }
        fs::create_dir_all(folder)?;
        let unfinished = path.with_extension(std::process::id().to_string());
        let written = write(&unfinished, &header, &tensors).and_then(|()| fs::rename(&unfinished, &path));
        if let Err(error) = written {
            // What was written is of no use, and may fill the disk.
            let _ = fs::remove_file(&unfinished);
            return Err(format!("{} cannot be written: {error}", path.display()).into());
        }
        Ok(path)
    }

    /// Tokens to compute with, other ones for each seed.
    pub(crate) fn prompt(&self, len: usize, seed: u64) -> Vec<TokenId> {
        let mut noise = Noise(seed << 32);
        let words = (self.vocabulary - PLAIN) as u64;
        (0..len).map(|_| TokenId((PLAIN as u64 + (noise.next() >> 16) % words) as u32)).collect()
    }
}

fn write(path: &Path, header: &[u8], tensors: &[Tensor]) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(header)?;
    let mut noise = Noise(1);
    for tensor in tensors {
        let (len, padding) = (tensor.bytes(), tensor.bytes().next_multiple_of(ALIGNMENT) - tensor.bytes());
        match block(tensor.kind) {
            // Norms.
            None => file.write_all(&1f32.to_le_bytes().repeat(len as usize / 4))?,
            Some(block) => {
                let gain = (tensor.shape[1] as f64).sqrt().recip();
                let mut left = len as usize / block.bytes;
                let mut bytes = Vec::new();
                while left > 0 {
                    let blocks = left.min(1 << 14);
                    bytes.resize(blocks * block.bytes, 0);
                    noise.fill(&mut bytes);
                    for stored in bytes.chunks_exact_mut(block.bytes) {
                        for &(at, scale) in block.scales {
                            stored[at..at + 2].copy_from_slice(&f16::from_f64(scale * gain).to_le_bytes());
                        }
                    }
                    file.write_all(&bytes)?;
                    left -= blocks;
                }
            }
        }
        file.write_all(&vec![0; padding as usize])?;
    }
    Ok(())
}

/// Random numbers: splitmix64.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        for word in bytes.chunks_mut(8) {
            word.copy_from_slice(&self.next().to_le_bytes()[..word.len()]);
        }
    }
}
