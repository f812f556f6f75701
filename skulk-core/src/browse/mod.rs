//! What does a model know? Look-ups and searches in a vindex, without running the model.
//!
//! A feature is a row of a feed-forward block: its gate row says which residuals it answers to, its down column which
//! tokens it then writes. Answers are those of LARQL's server; where the order of its answers is up to chance, that of
//! layers and features counts here.

mod describe;
mod features;
mod labels;
mod nearest;
mod relations;
mod select;
mod top;
mod walk;
mod words;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

pub use describe::{Band, DescribeOptions, Description, Edge};
pub use features::{Feature, FeatureToken};
pub use labels::{Label, LabelSource};
pub use nearest::FeatureHit;
pub use relations::{Probe, Relation, Relations, RelationsOptions};
pub use select::{SelectOptions, SelectOrder, Selected, Selection};
pub use walk::{WalkHit, WalkOptions};

use self::labels::Labels;
use self::nearest::Room;
use crate::engine::Precision;
use crate::engine::backend::Backend;
use crate::engine::cpu::Cpu;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::TokenId;
use crate::tokenizer::Tokenizer;
use crate::vindex::down_meta::DownMeta;
use crate::vindex::folder::Folder;
use crate::vindex::parts::found_in;
use crate::vindex::{VindexBands, VindexPart, VindexReader};
use crate::weights::mmap::Mapping;
use crate::weights::{Checkpoint, Region, quant};

/// Searches a vindex, of any level and whatever slice holds the parts that are asked for. Parts are opened when they
/// are first needed. Threads may share one; their searches take turns.
///
/// ```no_run
/// use skulk::browse::{DescribeOptions, VindexBrowser, WalkOptions};
/// let browser = VindexBrowser::open("gemma-3-4b.vindex", 4)?;
/// for hit in browser.walk("The capital of France is", &WalkOptions::default().top(3))? {
///     println!("{} {} {:.1} {}", hit.layer, hit.feature, hit.gate_score, hit.target);
/// }
/// for edge in browser.describe("France", &DescribeOptions::default())?.edges {
///     println!("{} {:?}", edge.target, edge.relation);
/// }
/// # Ok::<(), skulk::Error>(())
/// ```
pub struct VindexBrowser {
    reader: Arc<VindexReader>,
    cpu: Cpu,
    embeddings: OnceLock<Region>,
    tokenizer: OnceLock<Tokenizer>,
    meta: OnceLock<DownMeta>,
    labels: OnceLock<Labels>,
    /// Gate vectors by layer.
    gates: Vec<OnceLock<<Cpu as Backend>::Matrix>>,
    /// Scratch memory that no search is using.
    rooms: Mutex<Vec<Room>>,
}

impl VindexReader {
    /// A browser of this folder, which searches on `threads` threads of its own.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for 0 threads and more than 1,024, [`ErrorKind::EngineFailed`] when they cannot
    /// be started.
    pub fn browse(self: &Arc<Self>, threads: usize) -> Result<VindexBrowser> {
        Ok(VindexBrowser {
            // Gates that are only stored quantised are multiplied with both digits of the query. LARQL cuts the numbers
            // they stand for to f16 instead, which is coarser.
            cpu: Cpu::new(threads, Precision::Exact)?,
            embeddings: OnceLock::new(),
            tokenizer: OnceLock::new(),
            meta: OnceLock::new(),
            labels: OnceLock::new(),
            gates: (0..self.index().num_layers).map(|_| OnceLock::new()).collect(),
            rooms: Mutex::default(),
            reader: Arc::clone(self),
        })
    }
}

impl VindexBrowser {
    /// Opens the folder at `path`, to be searched on `threads` threads.
    ///
    /// # Errors
    /// As [`VindexReader::open`] and [`VindexReader::browse`].
    pub fn open(path: impl AsRef<Path>, threads: usize) -> Result<Self> {
        Arc::new(VindexReader::open(path)?).browse(threads)
    }

    /// The folder.
    pub fn reader(&self) -> &Arc<VindexReader> {
        &self.reader
    }

    /// The folder's tokenizer.
    ///
    /// # Errors
    /// As [`Tokenizer::from_checkpoint`].
    pub fn tokenizer(&self) -> Result<&Tokenizer> {
        let part = VindexPart::Tokenizer;
        let is_lacking = || self.reader.lacks().contains(&part);
        get(&self.tokenizer, || {
            Tokenizer::from_checkpoint(&*self.reader).map_err(|e| match is_lacking() {
                true => e.with("part", part.as_str()).with_hint(format!(
                    "this folder lacks it: it is part of {}",
                    found_in(part, self.reader.index())
                )),
                false => e,
            })
        })
    }

    /// [`VindexIndex::feature_layers`](crate::vindex::VindexIndex::feature_layers) of the folder.
    pub fn layers(&self) -> Vec<usize> {
        self.reader.index().feature_layers()
    }

    /// [`VindexIndex::bands`](crate::vindex::VindexIndex::bands) of the folder.
    pub fn bands(&self) -> VindexBands {
        self.reader.index().bands()
    }

    /// What enters the first layer for `token`: its embedding times the model's scale, `hidden_size` numbers.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a token without an embedding, [`ErrorKind::TensorMissing`] in a slice that
    /// lacks embeddings.
    pub fn embed(&self, token: TokenId) -> Result<Vec<f32>> {
        let mut out = vec![0.0; self.embeddings()?.row_len()];
        self.embed_into(token, &mut out)?;
        Ok(out)
    }

    /// The same into `out`, which takes `hidden_size` numbers; allocates nothing.
    ///
    /// # Errors
    /// As [`embed`](Self::embed), and [`ErrorKind::InvalidArgument`] for an `out` of another length.
    pub fn embed_into(&self, token: TokenId, out: &mut [f32]) -> Result<()> {
        let table = self.embeddings()?;
        self.expect_width("out", out.len())?;
        let (row, bytes) = (token.0 as usize, table.row_bytes());
        let stored = row.checked_mul(bytes).and_then(|start| table.bytes().get(start..)?.get(..bytes));
        let Some(stored) = stored.filter(|_| row < table.rows()) else {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("expected a token below {}, found {token}", table.rows()),
            )
            .with("field", "token")
            .with_hint("use tokens of this model's vocabulary"));
        };
        quant::dequantise(table.dtype(), stored, out);
        let scale = self.reader.index().embed_scale;
        out.iter_mut().for_each(|x| *x *= scale);
        Ok(())
    }

    /// The mean embedding of some tokens, as [`embed`](Self::embed) gives each.
    fn embed_mean(&self, tokens: &[TokenId]) -> Result<Vec<f32>> {
        let Some((first, others)) = tokens.split_first() else {
            return Ok(vec![0.0; self.reader.index().hidden_size]);
        };
        let mut mean = self.embed(*first)?;
        let mut row = vec![0.0; mean.len()];
        for &token in others {
            self.embed_into(token, &mut row)?;
            mean.iter_mut().zip(&row).for_each(|(sum, x)| *sum += x);
        }
        let n = tokens.len() as f32;
        mean.iter_mut().for_each(|sum| *sum /= n);
        Ok(mean)
    }

    fn embeddings(&self) -> Result<&Region> {
        get(&self.embeddings, || self.reader.region("embed_tokens.weight"))
    }

    fn labels(&self) -> Result<&Labels> {
        get(&self.labels, || Labels::read(self.reader.path()))
    }

    /// `Ok` for a bound that scores can be compared with.
    fn expect_bound(min_score: f32) -> Result<()> {
        if !min_score.is_nan() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::InvalidArgument, "expected a number, found NaN")
            .with("field", "min_score")
            .with_hint("give a number, or leave the option out"))
    }

    fn expect_width(&self, field: &'static str, found: usize) -> Result<()> {
        let expected = self.reader.index().hidden_size;
        if found == expected {
            return Ok(());
        }
        Err(Error::new(ErrorKind::InvalidArgument, format!("expected {expected} numbers, found {found}"))
            .with("field", field)
            .with_hint("use vectors as wide as the model's residual stream"))
    }
}

impl fmt::Debug for VindexBrowser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VindexBrowser").field("path", &self.reader.path()).finish_non_exhaustive()
    }
}

/// What a cell holds, made when it is first asked for; of several threads that make it at once, one's counts.
fn get<T>(cell: &OnceLock<T>, make: impl FnOnce() -> Result<T>) -> Result<&T> {
    match cell.get() {
        Some(value) => Ok(value),
        None => {
            let value = make()?;
            Ok(cell.get_or_init(|| value))
        }
    }
}

/// A whole file of the folder, mapped; `None` where there is none.
fn map_file(folder: &Path, name: &str) -> Result<Option<Arc<Mapping>>> {
    let mut folder = Folder::new(folder);
    let Some(at) = folder.open(name, name)? else { return Ok(None) };
    let file = folder.file(at)?;
    file.share(0, file.len()).map(Some)
}
