//! What shall be in a slice, and what became of it?

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use serde::Serialize;

use super::SlicePreset;
use crate::bytes::ByteSize;
use crate::cancel::CancelToken;
use crate::macros::{closed_set, setters};
use crate::vindex::parts::listed;
use crate::vindex::{VindexCallback, VindexPart, VindexProgress};

/// What a slice shall hold, and how it is made.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SliceOptions {
    /// The role that it is for.
    pub preset: SlicePreset,
    /// Parts to take instead of those of the preset. What they cannot be read without is taken too.
    pub parts: Option<BTreeSet<VindexPart>>,
    /// Layers whose weights it holds; `None`: those that the folder holds. What is of no layer, as embeddings, is as
    /// the preset says.
    pub layers: Option<Vec<Range<usize>>>,
    /// Experts of each layer whose weights it holds; `None`: those that the folder holds. Gate vectors of the others
    /// stay, since they are what is browsed, but for presets `server` and `expert-server` of float weights.
    pub experts: Option<Vec<Range<usize>>>,
    /// How files that are taken whole come into the slice.
    pub copy: SliceCopy,
    /// Files that are worked on at a time.
    pub threads: usize,
    /// Called every few megabytes, from any thread.
    pub progress: Option<VindexCallback>,
    /// Ends the work when it is cancelled.
    pub cancel: CancelToken,
}

closed_set! {
    /// How files that a slice takes whole come into it.
    #[derive(Default)]
    pub enum SliceCopy {
        /// As links, else copy-on-write, else as copies. A linked file is the same in both folders, changes included.
        #[default]
        Auto = "auto",
        /// As files of their own, copy-on-write where the file system can.
        Copy = "copy",
    }
}

impl Default for SliceOptions {
    /// Everything, linked where possible, with all the hardware's threads.
    fn default() -> Self {
        Self {
            preset: SlicePreset::default(),
            parts: None,
            layers: None,
            experts: None,
            copy: SliceCopy::default(),
            threads: std::thread::available_parallelism().map_or(1, |n| n.get()),
            progress: None,
            cancel: CancelToken::new(),
        }
    }
}

setters!(SliceOptions {
    /// Takes what the role takes.
    preset: SlicePreset;
    /// Takes these parts.
    parts: impl IntoIterator<Item = VindexPart> => Some(parts.into_iter().collect());
    /// Links or copies files.
    copy: SliceCopy;
    /// Works on so many files at a time.
    threads: usize;
    /// Tells this every few megabytes.
    progress: impl Fn(&VindexProgress) + Send + Sync + 'static => Some(VindexCallback::new(progress));
    /// Ends the work when the token is cancelled.
    cancel: CancelToken;
});

impl SliceOptions {
    /// Takes weights of these layers, and of those that were named before, only.
    #[must_use]
    pub fn layers(mut self, layers: Range<usize>) -> Self {
        self.layers.get_or_insert_default().push(layers);
        self
    }

    /// Takes weights of these experts, and of those that were named before, only.
    #[must_use]
    pub fn experts(mut self, experts: Range<usize>) -> Self {
        self.experts.get_or_insert_default().push(experts);
        self
    }
}

closed_set! {
    /// How a file came into a slice.
    pub enum SliceMethod {
        /// It is the same file.
        Linked = "linked",
        /// It has the same blocks until one of both is written to.
        Cloned = "cloned",
        /// Its bytes were copied.
        Copied = "copied",
        /// It was written anew, with what the slice takes of it.
        Rewritten = "rewritten",
    }
}

/// A file of a slice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SlicedFile {
    /// Its path in the folder, with `/` between its parts.
    pub name: String,
    /// Its length.
    pub bytes: ByteSize,
    /// How it came there.
    pub method: SliceMethod,
}

/// What a slice is made of. As text, a line for each file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SliceReport {
    /// The slice's folder.
    #[serde(rename = "path")]
    #[cfg_attr(feature = "schema", schemars(extend("format" = "path")))]
    pub target: PathBuf,
    /// Its files, by name.
    pub files: Vec<SlicedFile>,
    /// Files of the source that it does not have, by name.
    pub left_out: Vec<String>,
    /// Parts that the whole vindex has and the slice lacks.
    pub lacks: Vec<VindexPart>,
}

impl SliceReport {
    /// Bytes of all its files.
    pub fn bytes(&self) -> ByteSize {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Bytes that were written, and take place on the disk: those of files that are neither linked nor cloned.
    pub fn written(&self) -> ByteSize {
        let is_new = |file: &&SlicedFile| matches!(file.method, SliceMethod::Copied | SliceMethod::Rewritten);
        self.files.iter().filter(is_new).map(|file| file.bytes).sum()
    }
}

impl fmt::Display for SliceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (all, written) = (self.bytes(), self.written());
        write!(f, "{}: {all}, {written} of them written", self.target.display())?;
        if !self.lacks.is_empty() {
            write!(f, "; it lacks {}", listed(self.lacks.iter().map(|part| part.as_str())))?;
        }
        for file in &self.files {
            write!(f, "\n{:>12}  {:<9}  {}", file.bytes.to_string(), file.method.as_str(), file.name)?;
        }
        Ok(())
    }
}
