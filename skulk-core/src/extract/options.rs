//! What shall be extracted, and how? Options, and what is told while it goes on and at its end.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use crate::bytes::ByteSize;
use crate::cancel::CancelToken;
use crate::error::{Error, ErrorKind, Result};
use crate::macros::{closed_set, setters};
use crate::vindex::{VindexCallback, VindexLevel, VindexPart, VindexProgress, check_threads};
use crate::weights::DType;

closed_set! {
    /// How the weights of a vindex are stored.
    #[derive(Default)]
    pub enum VindexStorage {
        /// Everything as f32: nothing of the source is lost.
        F32 = "f32",
        /// Everything as f16, rounded to the nearest.
        #[default]
        F16 = "f16",
        /// Attention, feed-forward blocks and the head as Q4_K, value and down projections as Q6_K; norms as f32; gate
        /// vectors, embeddings and routers as f16.
        Q4K = "q4k",
    }
}

impl VindexStorage {
    /// Whether there is anything but floats.
    pub(super) const fn is_quantised(self) -> bool {
        matches!(self, Self::Q4K)
    }

    /// The type of what stays floats: gate vectors, embeddings, routers.
    pub(super) const fn floats(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::F16 | Self::Q4K => DType::F16,
        }
    }
}

/// Options of an extraction.
///
/// ```
/// use skulk::extract::{ExtractOptions, VindexStorage};
/// use skulk::vindex::VindexLevel;
/// let options = ExtractOptions::default().storage(VindexStorage::Q4K).name("google/gemma-3-270m").threads(4);
/// assert_eq!(options.level, VindexLevel::All);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ExtractOptions {
    /// How much of the model. Q4_K folders have all of it, whatever this says.
    pub level: VindexLevel,
    /// How weights are stored.
    pub storage: VindexStorage,
    /// Down projections as Q4_K rather than Q6_K. Only with [`VindexStorage::Q4K`].
    pub down_q4k: bool,
    /// Down projections of dense layers once more, transposed, so that each feature is a row. Only with
    /// [`VindexStorage::Q4K`].
    pub feature_major_down: bool,
    /// Gate vectors as floats. They can be left out of Q4_K folders of dense models, where the quantised gate
    /// projections stand for them.
    pub gate_vectors: bool,
    /// Tokens that are kept for each feature, at most [`MAX_FEATURE_TOKENS`](Self::MAX_FEATURE_TOKENS); 0: no
    /// `down_meta.bin`.
    pub feature_tokens: usize,
    /// The model's name in the index; `None`: its file's or folder's.
    pub name: Option<String>,
    /// Threads that compute; bytes do not depend on it.
    pub threads: usize,
    /// Told about each step, on the thread that called [`write`](super::VindexWriter::write).
    pub progress: Option<VindexCallback>,
    /// Ends the extraction; another one continues it.
    pub cancel: CancelToken,
    /// Begin anew where an extraction was interrupted.
    pub restart: bool,
}

impl Default for ExtractOptions {
    /// Everything, as f16, with all the hardware's threads as far as the system tells.
    fn default() -> Self {
        Self {
            level: VindexLevel::All,
            storage: VindexStorage::F16,
            down_q4k: false,
            feature_major_down: false,
            gate_vectors: true,
            feature_tokens: 10,
            name: None,
            threads: std::thread::available_parallelism().map_or(1, |n| n.get()),
            progress: None,
            cancel: CancelToken::new(),
            restart: false,
        }
    }
}

setters!(ExtractOptions {
    /// Extracts this much of the model.
    level: VindexLevel;
    /// Stores weights like this.
    storage: VindexStorage;
    /// Stores down projections as Q4_K, or not.
    down_q4k: bool;
    /// Stores down projections transposed too, or not.
    feature_major_down: bool;
    /// Stores gate vectors as floats, or not.
    gate_vectors: bool;
    /// Keeps so many tokens for each feature.
    feature_tokens: usize;
    /// Names the model.
    name: impl Into<String> => Some(name.into());
    /// Computes with so many threads.
    threads: usize;
    /// Tells this about each step.
    progress: impl Fn(&VindexProgress) + Send + Sync + 'static => Some(VindexCallback::new(progress));
    /// Ends when the token is cancelled.
    cancel: CancelToken;
    /// Begins anew, or continues what was interrupted.
    restart: bool;
});

impl ExtractOptions {
    /// The most tokens that are kept for a feature.
    pub const MAX_FEATURE_TOKENS: usize = 1024;

    /// How much is written: Q4_K folders always have all that generation takes.
    pub(super) fn written_level(&self) -> VindexLevel {
        match self.storage {
            VindexStorage::Q4K => self.level.max(VindexLevel::Inference),
            _ => self.level,
        }
    }

    pub(super) fn validate(&self) -> Result<()> {
        let invalid = |field: &'static str, message: String| {
            Err(Error::new(ErrorKind::InvalidArgument, message)
                .with("field", field)
                .with_hint("correct the option, or leave it out for its default"))
        };
        for (field, asks) in [
            ("down_q4k", self.down_q4k),
            ("feature_major_down", self.feature_major_down),
            ("gate_vectors", !self.gate_vectors),
        ] {
            if asks && self.storage != VindexStorage::Q4K {
                return invalid(field, format!("expected the storage q4k, found {}", self.storage));
            }
        }
        if self.feature_tokens > Self::MAX_FEATURE_TOKENS {
            return invalid(
                "feature_tokens",
                format!("expected 0 to {}, found {}", Self::MAX_FEATURE_TOKENS, self.feature_tokens),
            );
        }
        check_threads(self.threads)
    }
}

/// A file of a vindex.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ExtractFile {
    /// Its path in the folder.
    pub name: String,
    /// The part of the model that it belongs to.
    pub part: VindexPart,
    /// Its length.
    pub bytes: ByteSize,
}

/// What was extracted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ExtractReport {
    /// The folder.
    #[serde(serialize_with = "crate::wire::path")]
    #[cfg_attr(feature = "schema", schemars(extend("format" = "path")))]
    pub path: PathBuf,
    /// Its files.
    pub files: Vec<ExtractFile>,
    /// Bytes of all files.
    pub bytes: ByteSize,
    /// Bytes that an interrupted run had written, and this one took over.
    #[serde(rename = "resumedBytes")]
    pub resumed: ByteSize,
    /// What this run took.
    #[serde(rename = "seconds")]
    #[serde(serialize_with = "crate::wire::seconds")]
    #[cfg_attr(feature = "schema", schemars(with = "f64"))]
    pub elapsed: Duration,
    /// What somebody who uses the folder should know: what is left out, and what LARQL does not see of it.
    pub warnings: Vec<String>,
}
