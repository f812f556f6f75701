//! What does a text mean, as a vector? Embedding models: texts that mean the same are near each other.
//!
//! An [`EmbeddingModel`] is a folder as Hugging Face and sentence-transformers write it. The network is
//! candle-transformers'; how tokens' vectors become a text's is what the folder's own files say. It runs on the CPU, in f32.

mod bert;
mod declared;

use std::fmt;
use std::path::Path;

use rayon::iter::{IndexedParallelIterator, IntoParallelRefIterator, ParallelIterator};

use self::bert::Bert;
use self::declared::Declared;
pub use self::declared::Pooling;
use crate::cancel::CancelToken;
use crate::engine::check_threads;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::TokenId;
use crate::macros::setters;
use crate::tokenizer::Tokenizer;
use crate::weights::{Metadata, open_checkpoint};

/// Bytes of a text for each token that counts, in which there are usually more.
const BYTES_OF_TOKEN: usize = 64;
/// Bytes of a text that are looked at, however few tokens they have.
const MOST_BYTES: usize = 4 << 20;

/// How an embedding model is loaded.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EmbeddingOptions {
    /// Threads that compute. Vectors do not depend on it.
    pub threads: usize,
}

impl Default for EmbeddingOptions {
    /// All the hardware's threads, as far as the system tells.
    fn default() -> Self {
        Self { threads: std::thread::available_parallelism().map_or(1, |n| n.get()) }
    }
}

setters!(EmbeddingOptions {
    /// Computes with so many threads.
    threads: usize;
});

/// How texts are embedded.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EmbedOptions {
    /// Of texts with more than [`EmbeddingModel::max_tokens`] only the beginning counts, as with sentence-transformers, and
    /// of any the first 4 MiB, or 64 bytes for each token that counts if that is more. Without it longer ones are an error.
    pub truncate: bool,
    /// Ends it, after the texts that are being computed.
    pub cancel: CancelToken,
}

impl Default for EmbedOptions {
    /// Long texts are cut.
    fn default() -> Self {
        Self { truncate: true, cancel: CancelToken::new() }
    }
}

setters!(EmbedOptions {
    /// Cuts long texts, or refuses them.
    truncate: bool;
    /// Lets this token end it.
    cancel: CancelToken;
});

/// A model that makes a vector of a text.
///
/// ```no_run
/// use skulk::embed::{EmbeddingModel, EmbeddingOptions};
/// let model = EmbeddingModel::open("all-MiniLM-L6-v2", &EmbeddingOptions::default())?;
/// let vectors = model.embed(&["A cat sat on the mat.", "A kitten sat down on a rug."])?;
/// let likeness: f32 = vectors[0].iter().zip(&vectors[1]).map(|(a, b)| a * b).sum();
/// assert!(likeness > 0.5);
/// # Ok::<(), skulk::Error>(())
/// ```
pub struct EmbeddingModel {
    network: Bert,
    tokenizer: Tokenizer,
    poolings: Vec<Pooling>,
    normalize: bool,
    lower_case: bool,
    prompt: String,
    max_tokens: usize,
    threads: rayon::ThreadPool,
}

impl EmbeddingModel {
    /// Loads a folder: `config.json` and weights of a BERT, `tokenizer.json`, and where the model has them `modules.json` and
    /// what it names. Weights are widened to f32, once.
    ///
    /// # Errors
    /// [`ErrorKind::ArchUnsupported`] for another network or module, [`ErrorKind::ConfigInvalid`] for a configuration that
    /// cannot be, [`ErrorKind::TokenizerInvalid`] for a tokenizer that is not the network's, and what opening a checkpoint
    /// finds.
    pub fn open(path: impl AsRef<Path>, options: &EmbeddingOptions) -> Result<Self> {
        check_threads(options.threads)?;
        let declared = Declared::read(path.as_ref())?;
        let checkpoint = open_checkpoint(&declared.folder)?;
        let Metadata::HuggingFace(metadata) = checkpoint.metadata() else {
            return Err(Error::new(
                ErrorKind::ArchUnsupported,
                "embeddings from this kind of checkpoint are not supported",
            )
            .with("file", checkpoint.path().display())
            .with_hint(
                "give a folder as Hugging Face has it, with config.json, tokenizer.json and safetensors",
            ));
        };
        let network = Bert::load(&*checkpoint, metadata)?;
        let tokenizer = Tokenizer::from_checkpoint(&*checkpoint)?;
        if tokenizer.vocab_size() > network.vocabulary {
            let message = format!(
                "expected a tokenizer of {} tokens at most, found {}",
                network.vocabulary,
                tokenizer.vocab_size()
            );
            return Err(Error::new(ErrorKind::TokenizerInvalid, message)
                .with("file", declared.folder.join("tokenizer.json").display())
                .with_hint("fetch the tokenizer that belongs to the weights"));
        }
        let beside = || {
            // Transformers writes a number with thirty digits where there is no limit.
            let most = metadata.tokenizer_config.as_ref()?.get("model_max_length")?.as_u64()?;
            Some((most.try_into().ok()?, declared.folder.join("tokenizer_config.json"), "model_max_length"))
        };
        let positions = (network.positions, declared.folder.join("config.json"), "max_position_embeddings");
        let stated = declared.max_tokens.clone().or_else(beside).filter(|(most, ..)| *most < positions.0);
        let (max_tokens, file, field) = stated.unwrap_or(positions);
        let room = tokenizer.encode("", true)?.len();
        if max_tokens <= room {
            let expected = format!("more than {room} tokens, which every text has");
            return Err(declared::wrong(&file, field, &expected, &max_tokens.into()));
        }
        let threads = rayon::ThreadPoolBuilder::new().num_threads(options.threads).build().map_err(|e| {
            Error::new(ErrorKind::EngineFailed, "cannot start the model's threads").with_source(e)
        })?;
        let Declared { poolings, normalize, lower_case, prompt, .. } = declared;
        Ok(Self { network, tokenizer, poolings, normalize, lower_case, prompt, max_tokens, threads })
    }

    /// Elements of a vector.
    pub fn dimensions(&self) -> usize {
        self.network.width * self.poolings.len()
    }

    /// Tokens of a text that count, those that the tokenizer adds among them.
    pub fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    /// How tokens' vectors become a text's; several give one behind the other.
    pub fn poolings(&self) -> &[Pooling] {
        &self.poolings
    }

    /// Whether vectors have length 1, so that their dot product is their cosine.
    pub fn is_normalized(&self) -> bool {
        self.normalize
    }

    /// The model's tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// A vector of [`dimensions`](Self::dimensions) elements for each text. A text's vector does not depend on the others.
    ///
    /// # Errors
    /// [`ErrorKind::TokenizerInvalid`] when the tokenizer fails on a text.
    pub fn embed<T: AsRef<str> + Sync>(&self, texts: &[T]) -> Result<Vec<Vec<f32>>> {
        self.embed_with(texts, &EmbedOptions::default())
    }

    /// The same, with options.
    ///
    /// # Errors
    /// Likewise; [`ErrorKind::InvalidArgument`] with the text's place when one is too long and may not be cut,
    /// [`ErrorKind::Cancelled`].
    pub fn embed_with<T: AsRef<str> + Sync>(
        &self,
        texts: &[T],
        options: &EmbedOptions,
    ) -> Result<Vec<Vec<f32>>> {
        // Of several errors the first text's is told, whichever thread was first.
        let all: Vec<_> = self.threads.install(|| {
            let one = |(at, text): (usize, &T)| self.one(at, text.as_ref(), options);
            texts.par_iter().enumerate().map(one).collect()
        });
        all.into_iter().collect()
    }

    fn one(&self, at: usize, text: &str, options: &EmbedOptions) -> Result<Vec<f32>> {
        options.cancel.check()?;
        let tokens = self.tokens(at, text, options.truncate)?;
        if tokens.is_empty() {
            let message = "expected a text with a token at least, found none";
            return Err(Error::new(ErrorKind::InvalidArgument, message)
                .with("field", format!("texts.{at}"))
                .with_hint("leave empty texts out"));
        }
        let rows = self.network.run(&tokens)?;
        let width = self.network.width;
        let mut vector: Vec<f32> =
            self.poolings.iter().flat_map(|pooling| pool(*pooling, &rows, width)).collect();
        if self.normalize {
            let length = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt().max(1e-12);
            vector.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
        }
        if vector.iter().all(|x| x.is_finite()) {
            return Ok(vector);
        }
        let message = "the embedding network gives a vector with elements that are not finite";
        Err(Error::new(ErrorKind::EngineFailed, message)
            .with("field", format!("texts.{at}"))
            .with_hint("the weights may be damaged: fetch the checkpoint again"))
    }

    /// What the network is given: all of the text, or its beginning between the tokens that are added.
    fn tokens(&self, at: usize, text: &str, truncate: bool) -> Result<Vec<TokenId>> {
        let text = format!("{}{text}", self.prompt);
        let text = if self.lower_case { text.to_lowercase() } else { text };
        let beginning = self.beginning(&text)?;
        let is_whole = beginning.len() == text.len();
        let tokens = self.tokenizer.encode(beginning, true)?;
        if is_whole && tokens.len() <= self.max_tokens {
            return Ok(tokens);
        }
        if !truncate {
            let more = if is_whole { "" } else { "more than " };
            let message = format!(
                "expected a text of {} tokens at most, found {more}{}",
                self.max_tokens,
                tokens.len()
            );
            return Err(Error::new(ErrorKind::InvalidArgument, message)
                .with("field", format!("texts.{at}"))
                .with_hint("split the text, or let only its beginning count"));
        }
        let bare = self.tokenizer.encode(beginning, false)?;
        let added = tokens.len().saturating_sub(bare.len());
        let before = (0..=added).find(|&n| tokens[n..].starts_with(&bare)).unwrap_or(0);
        let kept = self.max_tokens.saturating_sub(added).min(bare.len());
        let end = tokens.len() - added.saturating_sub(before);
        Ok([&tokens[..before + kept], &tokens[end..]].concat())
    }

    /// As much of a text as has more tokens than count, so that a long one is not cut into tokens as a whole.
    fn beginning<'a>(&self, text: &'a str) -> Result<&'a str> {
        let mut bytes = BYTES_OF_TOKEN.saturating_mul(self.max_tokens);
        let most = MOST_BYTES.max(bytes);
        while bytes < text.len() {
            let beginning = up_to(text, bytes);
            // Twice as many: what is cut off may change the last ones.
            let is_enough = |tokens: Vec<TokenId>| tokens.len() >= 2 * self.max_tokens;
            if bytes == most || is_enough(self.tokenizer.encode(beginning, false)?) {
                return Ok(beginning);
            }
            bytes = bytes.saturating_mul(4).min(most);
        }
        Ok(text)
    }
}

/// The beginning of a text, of so many bytes at most. It ends in front of white space, where tokens end, unless a word takes
/// half of it.
fn up_to(text: &str, mut bytes: usize) -> &str {
    while !text.is_char_boundary(bytes) {
        bytes -= 1;
    }
    let words = text[..bytes].trim_end_matches(|letter: char| !letter.is_whitespace()).trim_end();
    if words.len() > bytes / 2 { words } else { &text[..bytes] }
}

/// One vector of all.
fn pool(pooling: Pooling, rows: &[f32], width: usize) -> Vec<f32> {
    let n = rows.len() / width;
    let sum = |weight: fn(usize) -> f64, by: f64| -> Vec<f32> {
        let mut sums = vec![0.0f64; width];
        for (at, row) in rows.chunks_exact(width).enumerate() {
            sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += weight(at) * f64::from(*x));
        }
        sums.into_iter().map(|sum| (sum / by) as f32).collect()
    };
    match pooling {
        Pooling::Cls => rows[..width].to_vec(),
        Pooling::LastToken => rows[rows.len() - width..].to_vec(),
        Pooling::Max => {
            let mut most = rows[..width].to_vec();
            for row in rows.chunks_exact(width) {
                most.iter_mut().zip(row).for_each(|(most, x)| *most = most.max(*x));
            }
            most
        }
        Pooling::Mean => sum(|_| 1.0, n as f64),
        Pooling::MeanSqrtLen => sum(|_| 1.0, (n as f64).sqrt()),
        Pooling::WeightedMean => sum(|at| (at + 1) as f64, (n * (n + 1) / 2) as f64),
    }
}

impl fmt::Debug for EmbeddingModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddingModel")
            .field("dimensions", &self.dimensions())
            .field("max_tokens", &self.max_tokens)
            .finish_non_exhaustive()
    }
}
