//! Which device computes a range of layers? Engines, and the shards they load.
//!
//! [`Engine`] and [`Shard`] are object safe and speak plain host buffers, so that no tensor library
//! leaks out and others can wrap them. Inside, an engine is a
//! set of operations on device buffers (`backend::Backend`) that the decoder is written against.

pub(crate) mod backend;
#[cfg(feature = "candle")]
pub(crate) mod candle;
#[cfg(test)]
mod conformance;
pub(crate) mod cpu;
pub(crate) mod ffn;
pub(crate) mod routes;
mod step;
pub(crate) mod top;
mod turns;
#[cfg(feature = "wgpu")]
pub(crate) mod wgpu;

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;

pub use self::ffn::{FfnJob, FfnLine, FfnPair, FfnPlan, FfnService, FfnShare};
pub use self::step::{Activations, Batch, Logits, Reply, ReplyLogits, Segment};
use crate::arch::{ArchSpec, MAX_CONTEXT};
use crate::bytes::ByteSize;
use crate::cancel::CancelToken;
use crate::error::{Error, ErrorKind, Result};
pub use crate::ids::EngineId;
use crate::ids::{SeqId, TokenId};
pub use crate::kv_type::{KvType, KvTypes};
use crate::macros::{closed_set, opaque};
use crate::plan::Vendor;
use crate::weights::{Checkpoint, Memory};

/// `Ok` for a number of threads that an engine can have.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`].
pub(crate) fn check_threads(threads: usize) -> Result<()> {
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
    /// How it can keep keys, and values: each of them in any of these types, in the first one unless a plan or options say
    /// otherwise.
    pub kv_types: &'static [KvType],
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
    pub kv: KvTypes,
    /// The most that keys and values of all sequences may take, with those kept for sequences that begin alike;
    /// `None`: sequences take what they need, and what is kept beside is as much as one of full length needs.
    pub kv_memory: Option<ByteSize>,
    /// Who computes feed-forward blocks and experts that the shard's engine does not.
    pub ffn: FfnPlan,
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
        kv: impl Into<KvTypes>,
    ) -> Result<Self> {
        let kv = kv.into();
        let spec = Self { arch, layers, context, max_rows, kv, kv_memory: None, ffn: FfnPlan::new() };
        spec.check()?;
        Ok(spec)
    }

    /// Checks what engines rely on. They ask again when they load, as fields may have been changed since
    /// [`new`](Self::new).
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn check(&self) -> Result<()> {
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
        if !arch.can_cut(layers.start) {
            let cuts: Vec<_> = (1..arch.n_layers()).filter(|at| arch.can_cut(*at)).collect();
            let cuts = match (cuts.first(), cuts.last()) {
                (Some(first), Some(last)) => format!("before one of the layers {first} to {last}"),
                _ => "nowhere".to_owned(),
            };
            let message = format!(
                "expected layers together with those whose keys and values they use, found a cut before layer {}",
                layers.start
            );
            return Err(Error::new(ErrorKind::PlacementInvalid, message)
                .with("field", "layers")
                .with_hint(format!("this model can be cut {cuts}")));
        }
        self.ffn.check(arch, layers.clone())?;
        for (field, value) in [("context", self.context), ("prefill_chunk", self.max_rows)] {
            if !(1..=MAX_CONTEXT).contains(&value) {
                return Err(Error::new(
                    ErrorKind::InvalidArgument,
                    format!("expected 1 to {MAX_CONTEXT} tokens, found {value}"),
                )
                .with("field", field)
                .with_hint("give a number in that range, or leave the option out"));
            }
        }
        Ok(())
    }

    /// Takes no more than this for keys and values.
    #[must_use]
    pub fn kv_memory(mut self, most: ByteSize) -> Self {
        self.kv_memory = Some(most);
        self
    }

    /// Leaves what this plan names to others.
    #[must_use]
    pub fn ffn(mut self, plan: FfnPlan) -> Self {
        self.ffn = plan;
        self
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

/// How fast a device computes what models take of it, as [`Engine::measure`] finds it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct DeviceSpeed {
    /// Bytes of weights a second that a token is multiplied with, of weights in blocks of 4 and of 6 bits.
    pub bytes_per_second: f64,
    /// Operations a second of a prompt's products with weights in blocks of 4 bits, a product and a sum being two. On
    /// accelerators what else a layer does, but for attention, takes its part of the second.
    pub operations_per_second: f64,
    /// Seconds that a layer takes whatever its size: beyond the time in which its weights are read in larger pieces.
    pub layer_seconds: f64,
    /// Seconds until the device has answered that was asked for a layer of next to nothing.
    pub round_trip_seconds: f64,
}

impl DeviceSpeed {
    /// A device that is so fast.
    pub fn new(bytes_per_second: f64, operations_per_second: f64) -> Self {
        Self { bytes_per_second, operations_per_second, layer_seconds: 0.0, round_trip_seconds: 0.0 }
    }
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

/// Positions of a page: what a sequence takes of the memory for keys and values at a time.
pub const PAGE_TOKENS: usize = backend::PAGE;

/// What keys and values take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct KvMemory {
    /// What they may take; `None`: no limit was given.
    #[serde(rename = "budgetBytes")]
    pub budget: Option<ByteSize>,
    /// Pages that sequences have, those that several share once.
    #[serde(rename = "inUseBytes")]
    pub in_use: ByteSize,
    /// Pages that nobody has and that are kept for sequences that begin with the same tokens. They go first.
    #[serde(rename = "keptBytes")]
    pub kept: ByteSize,
    /// All that is reserved: these, and pages that are free to be taken.
    #[serde(rename = "reservedBytes")]
    pub reserved: ByteSize,
}

impl std::ops::Add for KvMemory {
    type Output = Self;

    /// Of several shards together.
    fn add(self, other: Self) -> Self {
        Self {
            budget: self.budget.zip(other.budget).map(|(a, b)| a + b),
            in_use: self.in_use + other.in_use,
            kept: self.kept + other.kept,
            reserved: self.reserved + other.reserved,
        }
    }
}

/// Tells how far loading is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Layers loaded so far, over all stages.
    pub done: usize,
    /// Layers of the model, and of its draft model.
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

opaque!(LoadCx<'_>);

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

opaque!(StepCx<'_>);

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
    /// [`ErrorKind::TensorMissing`] when the checkpoint lacks a tensor of the shard, and what [`load`](Self::load) refuses
    /// of the engine's options and the shard's.
    fn estimate(&self, spec: &ShardSpec, checkpoint: &dyn Checkpoint) -> Result<ShardEstimate>;

    /// Maps or reads the shard's tensors, and no others, and makes it ready to compute.
    ///
    /// # Errors
    /// Whatever is wrong with the weights, by tensor; [`ErrorKind::Cancelled`].
    fn load(&self, spec: &ShardSpec, checkpoint: &dyn Checkpoint, cx: &LoadCx<'_>) -> Result<Box<dyn Shard>>;

    /// Measures how fast the device is, in one or two tenths of a second, on slow ones longer, with up to 230 MB of main memory
    /// for as long, and where weights are copied up to 350 MB of the device's. `None`: the engine does not know how, or the library
    /// was built without optimisation, which says nothing about devices.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`], [`ErrorKind::EngineFailed`].
    fn measure(&self) -> Result<Option<DeviceSpeed>> {
        Ok(None)
    }
}

/// Keys and values of one layer that a sequence's next row sees, as [`Shard::save`] hands them over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LayerPages<'a> {
    /// The layer's index within the model.
    pub layer: usize,
    /// How the bytes lie and what they were computed with. They can only be [restored](Shard::restore) where that is
    /// the same.
    pub layout: &'a str,
    /// Which block of [`PAGE_TOKENS`] positions is the first one.
    pub first_block: usize,
    /// Page behind page. Positions behind the sequence's last one are zeros.
    pub bytes: &'a [u8],
}

impl<'a> LayerPages<'a> {
    /// A layer's pages, from some block on.
    pub fn new(layer: usize, layout: &'a str, first_block: usize, bytes: &'a [u8]) -> Self {
        Self { layer, layout, first_block, bytes }
    }
}

/// A loaded range of layers with the keys and values of its sequences: pages of [`PAGE_TOKENS`] positions, which a
/// sequence takes as it grows.
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

    /// All that is reserved on the device that its weights were copied to, other shards' included; `None` where weights
    /// are used in place, and where the device's library does not tell.
    fn device_memory(&self) -> Option<ByteSize> {
        None
    }

    /// Loads what drafts for the model whose last shard this is, as [`ArchSpec::ahead`] describes it: a shard that takes
    /// tokens with the hidden states of the rows before them, which this shard gives where the number of its model's layers
    /// is [tapped](Batch::taps). Its weights are in the checkpoint `drafts`; embeddings, and a head's output head, are this
    /// shard's, and what it lacks of these is in `model`.
    ///
    /// An assistant has no sequences of its own. A segment of its batches is one row behind all positions of a sequence of
    /// this shard's, and each of several drafts behind them is such a row again: it changes nothing.
    ///
    /// # Errors
    /// [`ErrorKind::ArchUnsupported`] where the shard's engine knows none; [`ErrorKind::PlacementInvalid`] where an assistant
    /// needs keys and values that this shard has not; otherwise as [`Engine::load`].
    fn load_ahead(
        &self,
        _spec: &ShardSpec,
        _drafts: &dyn Checkpoint,
        _model: &dyn Checkpoint,
        _cx: &LoadCx<'_>,
    ) -> Result<Box<dyn Shard>> {
        Err(Error::new(ErrorKind::ArchUnsupported, "the stage's engine knows nothing that drafts beside it")
            .with_hint("load the model without"))
    }

    /// Starts a sequence with as much of the beginning of `tokens` as the shard still holds from others, in whole
    /// pages; returns how many positions that are. It takes no memory yet.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] when the id is in use.
    fn open(&self, seq: SeqId, tokens: &[TokenId]) -> Result<usize>;

    /// Takes pages for a sequence of up to `len` positions, so that steps up to there take none. Pages that nobody
    /// uses and that hold what may be found again are given up for it, those least recently used first.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] when the shard's memory for keys and values does not suffice: what the sequence
    /// has it keeps. [`ErrorKind::OutOfMemory`], [`ErrorKind::ContextOverflow`], [`ErrorKind::InvalidArgument`].
    fn reserve(&self, seq: SeqId, len: usize) -> Result<()>;

    /// Starts the sequence `to` as the first `at` positions of `from`, whose pages both share until one of them
    /// writes there. Returns the length it has: `at`, or less where a sliding window's keys are gone.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] when `from` is unknown or shorter, or `to` is in use.
    fn fork(&self, from: SeqId, at: usize, to: SeqId) -> Result<usize>;

    /// Hands over the keys and values of a sequence that its next row sees, layer by layer, from the first to the last.
    /// Nothing may be done with the sequence meanwhile.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] when the id is unknown, what `each` returns, and what engines report.
    fn save(&self, seq: SeqId, each: &mut dyn FnMut(LayerPages<'_>) -> Result<()>) -> Result<()>;

    /// Starts a sequence of these tokens with the keys and values that such a one has handed over; other shards' layers
    /// among them are passed over.
    ///
    /// # Errors
    /// [`ErrorKind::SessionMismatch`] when they lie otherwise, were computed otherwise or are of other sizes;
    /// [`ErrorKind::SessionInvalid`] when a layer's are missing; otherwise as [`open`](Self::open) and
    /// [`reserve`](Self::reserve).
    fn restore(&self, seq: SeqId, tokens: &[TokenId], layers: &[LayerPages<'_>]) -> Result<()>;

    /// Runs a batch through the layers: what its segments compute follows the first [`start`](Segment::start)
    /// positions of their sequences. Where a sequence is longer, what lies behind is forgotten, so that a step can be
    /// repeated.
    ///
    /// `reply` is overwritten. On an error the sequences have the segments' `start` as their length, and a batch that
    /// is refused changes nothing.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a malformed batch, and for a `start` that a sliding window's keys are gone
    /// for, as those before the last step's beginning may be; [`ErrorKind::ContextOverflow`];
    /// [`ErrorKind::OutOfMemory`]; [`ErrorKind::EngineFailed`]; and as [`StepCx::check`].
    fn forward(&self, batch: &Batch<'_>, reply: &mut Reply, cx: &StepCx<'_>) -> Result<()>;

    /// Shortens a sequence to `len` tokens, or to fewer when a sliding window's keys are gone:
    /// returns the length kept, from which the caller feeds tokens again.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for an unknown sequence or one shorter than `len`.
    fn truncate(&self, seq: SeqId, len: usize) -> Result<usize>;

    /// What its sequences take of the memory for keys and values.
    fn kv_memory(&self) -> KvMemory;

    /// Ends a sequence. Its pages go to others; whole ones are kept while nobody needs their memory, for sequences that
    /// begin with the same tokens. Unknown ids are ignored.
    fn close(&self, seq: SeqId);
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
