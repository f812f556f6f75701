//! Which device computes a range of layers? Engines, and the shards they load.
//!
//! [`Engine`] and [`Shard`] are object safe and speak plain host buffers, so that no tensor library
//! leaks out and a shard on another machine is just another implementation. Inside, an engine is a
//! set of operations on device buffers (`backend::Backend`) that the decoder is written against.

pub(crate) mod backend;
#[cfg(feature = "candle")]
pub(crate) mod candle;
#[cfg(test)]
mod conformance;
pub(crate) mod cpu;
pub(crate) mod routes;
pub(crate) mod top;
mod turns;
#[cfg(feature = "wgpu")]
pub(crate) mod wgpu;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;

use crate::arch::ArchSpec;
use crate::bytes::ByteSize;
use crate::cancel::CancelToken;
use crate::error::{Error, ErrorKind, Result};
pub use crate::ids::EngineId;
use crate::ids::{SeqId, TokenId};
use crate::macros::closed_set;
use crate::plan::Vendor;
use crate::weights::{Checkpoint, Memory};

/// `Ok` for a number of threads that an engine can have.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`].
fn check_threads(threads: usize) -> Result<()> {
    const MOST: usize = 1024;
    if (1..=MOST).contains(&threads) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidArgument, format!("expected 1 to {MOST} threads, found {threads}"))
        .with("field", "threads")
        .with_hint("use the number of cores you want to give to the model"))
}

/// What an engine can do, as data.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The device in words, e.g. `CPU, 2 threads`.
    pub device: String,
    /// Weights are used where they are mapped or resident; otherwise they are copied to the device.
    pub in_place_weights: bool,
    /// A row's result has the same bits whatever other rows are in its step, so that generation is
    /// reproducible over chunk sizes and batches; elsewhere it is equal up to rounding.
    pub exact_rows: bool,
}

/// A device that engines run on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct DeviceInfo {
    /// The engine that runs on it, by the name that loading takes, e.g. `wgpu-vulkan:0`.
    pub engine: EngineId,
    /// The device's name.
    pub name: String,
    /// Who made it.
    pub vendor: Vendor,
    /// Its driver and the driver's version; empty for the CPU.
    pub driver: String,
    /// It is a GPU in name only, and computes on the CPU: no engine chooses it by itself.
    pub software: bool,
    /// Its memory, where the system tells.
    #[serde(rename = "memoryBytes")]
    pub memory: Option<ByteSize>,
    /// How much of a GPU's own memory is in use, where the system tells.
    #[serde(rename = "memoryUsedBytes")]
    pub memory_used: Option<ByteSize>,
    /// Its memory is the CPU's.
    pub shares_memory: bool,
}

closed_set! {
    /// How keys and values are kept.
    #[derive(Default)]
    pub enum KvType {
        /// Half precision: 2 bytes an element.
        #[default]
        F16 = "f16",
        /// Single precision: 4 bytes an element.
        F32 = "f32",
    }
}

impl KvType {
    /// Bytes of one element.
    pub const fn bytes(self) -> usize {
        match self {
            KvType::F16 => 2,
            KvType::F32 => 4,
        }
    }
}

closed_set! {
    /// How precisely activations enter products with quantised weights, or with weights in BF16. Other
    /// products are in f32, and sums are everywhere. Engines `wgpu` and `candle-cpu` compute all in f32, whatever is asked
    /// for.
    #[derive(Default)]
    pub enum Precision {
        /// Rounded to 8 bits, each by at most 1/254 of the largest in its block of 32 or 256, as other
        /// software does. Engine `cpu` keeps as much as [`Exact`](Self::Exact) of what enters the head.
        #[default]
        Fast = "fast",
        /// What that rounding leaves over is rounded to 8 bits and multiplied too: each is off by at
        /// most 1/64,516 of the largest. Takes about twice the arithmetic. Engines `candle-cuda` and
        /// `candle-metal` round nothing: they expand quantised weights to f32 for each product.
        Exact = "exact",
        /// Like [`Fast`](Self::Fast), and where weights are in BF16, engine `cpu` rounds activations to
        /// BF16 too, each by at most 1/512 of itself, but for what enters the head. CPUs that multiply
        /// BF16 (AVX-512 BF16) need about half the time for the products of a prompt. Other engines
        /// compute as in `Fast`.
        Bf16 = "bf16",
    }
}

/// Which part of a model a shard holds, and for what sizes it prepares.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ShardSpec {
    /// The whole model's description.
    pub arch: Arc<ArchSpec>,
    /// The layers this shard holds. The first shard also holds the embedding table, the last one
    /// the final norm and the head.
    pub layers: Range<usize>,
    /// Positions a sequence can have, in tokens.
    pub context: usize,
    /// Rows (tokens of all sequences together) that one forward call may have.
    pub max_rows: usize,
    /// How keys and values are kept.
    pub kv: KvType,
    /// The layers, by index within the model, whose feed-forward blocks are left to the CPU, on an engine that
    /// has it beside its device; `None`: all of them.
    pub ffn_on_cpu: Option<BTreeSet<usize>>,
}

impl ShardSpec {
    /// A shard of `layers` for sequences of up to `context` tokens, in chunks of up to `max_rows`.
    ///
    /// # Errors
    /// [`ErrorKind::ConfigInvalid`] for a description that cannot be, [`ErrorKind::PlacementInvalid`] for an empty or
    /// out-of-range range of layers, [`ErrorKind::InvalidArgument`] for zero and absurd sizes.
    pub fn new(
        arch: Arc<ArchSpec>,
        layers: Range<usize>,
        context: usize,
        max_rows: usize,
        kv: KvType,
    ) -> Result<Self> {
        let spec = Self { arch, layers, context, max_rows, kv, ffn_on_cpu: None };
        spec.check()?;
        Ok(spec)
    }

    /// Checks what engines rely on. They ask again when they load, as fields may have been changed since
    /// [`new`](Self::new).
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn check(&self) -> Result<()> {
        // Beyond, f32 numbers, which angles are computed from, skip positions.
        const MOST: usize = 1 << 24;
        let Self { arch, layers, .. } = self;
        arch.check()?;
        if layers.is_empty() || layers.end > arch.n_layers() {
            return Err(Error::new(
                ErrorKind::PlacementInvalid,
                format!(
                    "expected a range within 0..{}, found {}..{}",
                    arch.n_layers(),
                    layers.start,
                    layers.end
                ),
            )
            .with("field", "layers")
            .with_hint("give a range of the model's layers that is not empty"));
        }
        for (field, value) in [("context", self.context), ("prefill_chunk", self.max_rows)] {
            if !(1..=MOST).contains(&value) {
                return Err(Error::new(
                    ErrorKind::InvalidArgument,
                    format!("expected 1 to {MOST} tokens, found {value}"),
                )
                .with("field", field)
                .with_hint("give a number in that range, or leave the option out"));
            }
        }
        Ok(())
    }

    /// Leaves the feed-forward blocks of these layers to the CPU, and no others.
    #[must_use]
    pub fn ffn_on_cpu(mut self, layers: BTreeSet<usize>) -> Self {
        self.ffn_on_cpu = Some(layers);
        self
    }

    /// Whether the CPU computes this layer's feed-forward block, on an engine that has it beside its device.
    pub(crate) fn is_ffn_on_cpu(&self, layer: usize) -> bool {
        self.ffn_on_cpu.as_ref().is_none_or(|layers| layers.contains(&layer))
    }

    /// Whether this shard embeds tokens.
    pub fn is_first(&self) -> bool {
        self.layers.start == 0
    }

    /// Whether this shard computes logits.
    pub fn is_last(&self) -> bool {
        self.layers.end == self.arch.n_layers()
    }
}

/// What a shard will take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ShardEstimate {
    /// Weight bytes, mapped, resident or on the device.
    pub weights: ByteSize,
    /// Keys and values of one full-length sequence.
    pub kv_cache: ByteSize,
}

/// What is in memory of feed-forward weights that a budget bounds.
///
/// It is that of an engine with [`EngineOptions::ffn_budget`](crate::EngineOptions::ffn_budget), of all shards it has
/// loaded. The unit is the block of a dense layer, or one expert. It counts with its stored bytes from when it is asked
/// for, whether its pages were in memory before or not, until its pages are let go; a system without that, as Windows,
/// keeps them until it needs the memory. Beside what counts, up to 64 KiB of pages stay at each end of an expert whose
/// neighbours in the file are stacked with it. What was let go stays in the system's cache for as long as nobody needs
/// the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct FfnMemory {
    /// What may be in memory.
    #[serde(rename = "budgetBytes")]
    pub budget: ByteSize,
    /// What is.
    #[serde(rename = "inMemoryBytes")]
    pub in_memory: ByteSize,
    /// The most that ever was.
    #[serde(rename = "peakBytes")]
    pub peak: ByteSize,
    /// What was let go, all in all.
    #[serde(rename = "letGoBytes")]
    pub let_go: ByteSize,
}

/// Tells how far loading is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Layers loaded so far, over all stages.
    pub done: usize,
    /// Layers of the model.
    pub total: usize,
}

/// What loading observes.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct LoadCx<'a> {
    /// Ends loading within one layer.
    pub cancel: &'a CancelToken,
    /// Called after each layer.
    pub on_layer: &'a (dyn Fn() + Send + Sync),
}

impl<'a> LoadCx<'a> {
    /// Loading that `cancel` stops and that calls `on_layer` after each layer.
    pub fn new(cancel: &'a CancelToken, on_layer: &'a (dyn Fn() + Send + Sync)) -> Self {
        Self { cancel, on_layer }
    }
}

/// What one forward call observes.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct StepCx<'a> {
    /// Ends the step within one layer, and at once while it waits for others.
    pub cancel: &'a CancelToken,
    /// Ends it likewise when it passes.
    pub deadline: Option<Instant>,
}

impl<'a> StepCx<'a> {
    /// A step that `cancel` stops, without a deadline.
    pub fn new(cancel: &'a CancelToken) -> Self {
        Self { cancel, deadline: None }
    }

    /// Ends the step then, too.
    #[must_use]
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// `Ok` while the step may go on. Every shard asks at least once a layer.
    ///
    /// # Errors
    /// [`ErrorKind::Cancelled`] when the token was cancelled, [`ErrorKind::DeadlineExceeded`] past the deadline.
    pub fn check(&self) -> Result<()> {
        self.cancel.check()?;
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(Error::new(
                ErrorKind::DeadlineExceeded,
                "the step's deadline passed before it was done",
            )
            .with_hint(
                "nothing is lost but what was under way: call again with more time, or with fewer rows",
            ));
        }
        Ok(())
    }
}

/// A compute device that loads ranges of layers.
pub trait Engine: Send + Sync {
    /// Its name.
    fn id(&self) -> &EngineId;

    /// What it can do.
    fn capabilities(&self) -> &Capabilities;

    /// What a shard would take, from the checkpoint's header alone.
    ///
    /// # Errors
    /// [`ErrorKind::TensorMissing`] when the checkpoint lacks a tensor of the shard.
    fn estimate(&self, spec: &ShardSpec, checkpoint: &dyn Checkpoint) -> Result<ShardEstimate>;

    /// Maps or reads the shard's tensors, and no others, and makes it ready to compute.
    ///
    /// # Errors
    /// Whatever is wrong with the weights, by tensor; [`ErrorKind::Cancelled`].
    fn load(&self, spec: &ShardSpec, checkpoint: &dyn Checkpoint, cx: &LoadCx<'_>) -> Result<Box<dyn Shard>>;
}

/// A loaded range of layers with the KV caches of its sequences.
pub trait Shard: Send + Sync {
    /// What it holds.
    fn spec(&self) -> &ShardSpec;

    /// Weight bytes it has mapped, read or copied.
    fn weight_bytes(&self) -> ByteSize;

    /// Where its weights lie: [`Memory::Mapped`] or [`Memory::Resident`]. Weights that were copied to
    /// a device were mapped for that, and count only where the shard has no others.
    fn memory(&self) -> Memory;

    /// What its engine keeps in memory of feed-forward weights, when it has a budget for them.
    fn ffn_memory(&self) -> Option<FfnMemory> {
        None
    }

    /// Starts an empty sequence and reserves its cache.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] when the id is in use, [`ErrorKind::OutOfMemory`].
    fn open(&self, seq: SeqId) -> Result<()>;

    /// Runs a batch through the layers and appends to the caches of its sequences.
    ///
    /// `out` is overwritten: hidden states `[rows, hidden]`, or on the last shard logits
    /// `[asked rows, vocabulary]`, for [`Logits::Top`] `[asked rows, asked number]`. On an error the sequences keep their former length.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a malformed batch, [`ErrorKind::ContextOverflow`],
    /// [`ErrorKind::EngineFailed`], and as [`StepCx::check`].
    fn forward(&self, batch: &Batch<'_>, out: &mut Activations, cx: &StepCx<'_>) -> Result<()>;

    /// Shortens a sequence to `len` tokens, or to fewer when a sliding window's keys are gone:
    /// returns the length kept, from which the caller feeds tokens again.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for an unknown sequence or one shorter than `len`.
    fn truncate(&self, seq: SeqId, len: usize) -> Result<usize>;

    /// Ends a sequence and frees its cache. Unknown ids are ignored.
    fn close(&self, seq: SeqId);
}

/// Rows of one or several sequences for one forward call.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Batch<'a> {
    /// The sequences' parts, in row order; a sequence may occur once.
    pub segments: &'a [Segment],
    /// Tokens for the first shard, hidden states for the others.
    pub input: Input<'a>,
}

impl<'a> Batch<'a> {
    /// These rows of these sequences.
    pub fn new(segments: &'a [Segment], input: Input<'a>) -> Self {
        Self { segments, input }
    }
}

/// Consecutive rows of one sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Segment {
    /// The sequence.
    pub seq: SeqId,
    /// Position of the first row: the sequence's current length.
    pub start: usize,
    /// Number of rows.
    pub rows: usize,
    /// Which rows' logits the last shard shall give.
    pub logits: Logits,
}

/// Which rows of a segment need logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Logits {
    /// None: a prefill chunk that is not the last.
    None,
    /// The last row's.
    Last,
    /// Every row's.
    All,
    /// The last row's largest, this many, with their tokens: what greedy decoding and top-k sampling
    /// need. Backends that can do not write the others anywhere. Segments of one batch that ask for
    /// logits must ask for the same number.
    Top(usize),
}

impl Segment {
    /// `rows` rows of a sequence that is `start` positions long.
    pub fn new(seq: SeqId, start: usize, rows: usize, logits: Logits) -> Self {
        Self { seq, start, rows, logits }
    }

    /// Rows of logits this segment asks for.
    pub fn logit_rows(&self) -> usize {
        match self.logits {
            Logits::None => 0,
            Logits::Last | Logits::Top(_) => self.rows.min(1),
            Logits::All => self.rows,
        }
    }
}

/// What enters a shard.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Input<'a> {
    /// One token per row.
    Tokens(&'a [TokenId]),
    /// Hidden states `[rows, hidden]`, row-major.
    Hidden(&'a [f32]),
}

/// A plain host buffer of hidden states or logits, `[rows, width]`, row-major. Reused over steps.
#[derive(Debug, Clone, Default)]
pub struct Activations {
    rows: usize,
    width: usize,
    data: Vec<f32>,
    ids: Vec<TokenId>,
}

impl Activations {
    /// An empty buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Elements in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// All rows, one behind the other.
    pub fn data(&self) -> &[f32] {
        &self.data
    }

    /// All rows, for writing.
    pub fn data_mut(&mut self) -> &mut [f32] {
        &mut self.data
    }

    /// The tokens of the logits, of the same shape, when [`Logits::Top`] was asked for; each row by
    /// falling logit, of equal ones the lower id first. Fewer numbers than asked for are followed by
    /// -∞ for tokens that do not exist. Otherwise empty: a logit's column is its token.
    pub fn ids(&self) -> &[TokenId] {
        &self.ids
    }

    /// One row.
    pub fn row(&self, row: usize) -> Option<&[f32]> {
        self.data.chunks_exact(self.width.max(1)).nth(row)
    }

    /// Gives the buffer a shape and returns its memory for writing. Grows, never shrinks, its
    /// allocation.
    pub fn reshape(&mut self, rows: usize, width: usize) -> &mut [f32] {
        self.rows = rows;
        self.width = width;
        self.data.resize(rows.saturating_mul(width), 0.0);
        self.ids.clear();
        &mut self.data
    }

    /// The same for logits with their tokens.
    pub fn reshape_top(&mut self, rows: usize, k: usize) -> (&mut [TokenId], &mut [f32]) {
        self.reshape(rows, k);
        self.ids.resize(self.data.len(), TokenId(0));
        (&mut self.ids, &mut self.data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::open_checkpoint;

    #[test]
    fn sizes_that_no_machine_has_are_refused() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/models/gemma3");
        let checkpoint = open_checkpoint(folder).unwrap();
        let arch = Arc::new(ArchSpec::from_checkpoint(&*checkpoint).unwrap());
        let spec = |context, rows| ShardSpec::new(Arc::clone(&arch), 0..2, context, rows, KvType::F16);
        let engine = crate::engines::cpu(&crate::EngineOptions::default().threads(1)).unwrap();
        for (field, context, rows) in [
            ("context", usize::MAX, 16),
            ("context", usize::MAX - 100, 16),
            ("prefill_chunk", 64, usize::MAX),
            ("prefill_chunk", 64, 0),
        ] {
            let error = spec(context, rows).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.context().iter().any(|(key, value)| *key == "field" && value == field), "{error}");
            // Nor through the fields.
            let mut changed = spec(64, 16).unwrap();
            (changed.context, changed.max_rows) = (context, rows);
            let never = CancelToken::new();
            let load = engine.load(&changed, &*checkpoint, &LoadCx::new(&never, &|| ())).err().unwrap();
            for refused in [engine.estimate(&changed, &*checkpoint).unwrap_err(), load] {
                assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
            }
        }
    }
}
