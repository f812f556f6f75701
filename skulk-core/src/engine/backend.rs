//! Which operations must a device offer? The inner interface the decoder is written against.
//!
//! Buffers are `[rows, width]` matrices of f32 on the device, allocated once with room for the
//! largest step; each operation says how many rows it concerns. An operation's result takes the
//! operation's own width, which a buffer made for the widest layer may exceed.
//!
//! A row's result must not depend on which other rows are in the call, on backends with
//! [`Backend::EXACT_ROWS`] in no bit: that is what makes logits bit-equal over chunk sizes, batches
//! and replays.

use std::ops::Range;

pub(crate) use super::routes::Routes;
use super::top::Top;
use super::{KvType, KvTypes, StepCx};
use crate::arch::{Activation, AttentionSpec, ExpertsSpec, IndexSpec, RecurrentSpec, RopeLayout, Window};
use crate::cancel::CancelToken;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::TokenId;
use crate::weights::Region;

/// A device's operations.
pub(crate) trait Backend: Send + Sync + 'static {
    /// Activations `[rows, width]`.
    type Buffer: Send + Sync;
    /// A weight matrix `[out, in]` as stored, with an optional bias.
    type Matrix: Send + Sync;
    /// A small f32 vector: norm weights.
    type Vector: Send + Sync;
    /// Keys and values of one layer, of all sequences: pages by number.
    type Pages: Send + Sync;
    /// Equally shaped weight matrices, by index: one projection of all of a layer's experts.
    type Stack: Send + Sync;
    /// Which experts each row takes, where [`experts`](Self::experts) looks for it.
    type Routes: Send;
    /// States of one layer, of all sequences: by number. Of backends that have none, nothing.
    type States: Send + Sync;
    /// Which positions rows see, where they do not see all. Of backends that see all, nothing.
    type Chosen: Default + Send;
    /// Where operations are queued, and what they need beside their operands: a shard's, as operations on the same
    /// buffers must be given to the same stream.
    type Stream: Send;

    /// Whether a row's result has the same bits whatever other rows are in the call; elsewhere it
    /// is equal up to rounding, as vendors' libraries choose their summation order by shape.
    const EXACT_ROWS: bool;

    /// How keys and values can be kept.
    const KV_TYPES: &'static [KvType];

    /// Whether the memory of single pages can be given back.
    const RELEASES_PAGES: bool;

    /// Whether it can attend to [latent vectors](crate::arch::LatentSpec).
    const LATENTS: bool;

    /// Whether it can choose the [positions](crate::arch::IndexSpec) that rows see of them.
    const CHOOSES: bool = false;
    /// Whether layers can have several [streams](crate::arch::StreamsSpec), and cut gates off.
    const STREAMS: bool = false;
    /// Whether layers can keep [states](Self::States), and gate heads [element by element](Self::split_heads).
    const RECURRENT: bool = false;

    /// Runs one step's work where and when the device wants it, e.g. inside its thread pool and after other steps.
    /// Who has to wait for that ends at once with an error when `cx` says so.
    fn run<R: Send>(&self, _cx: &StepCx<'_>, work: impl FnOnce() -> Result<R> + Send) -> Result<R> {
        work()
    }

    /// A buffer with room for `rows` rows.
    fn buffer(&self, rows: usize, width: usize) -> Result<Self::Buffer>;
    /// A stream for steps of up to `rows` rows, the widest being `width`.
    fn stream(&self, rows: usize, width: usize) -> Result<Self::Stream>;
    /// Sends what is queued to the device. Only [`read`](Self::read), [`read_routes`](Self::read_routes)
    /// and [`top`](Self::top) wait for results, and send before; a step that ends with none of them
    /// must be sent.
    fn submit(&self, _stream: &mut Self::Stream) -> Result<()> {
        Ok(())
    }
    /// Forgets what is queued and not sent. Every step ends with this, also one that failed, was cancelled
    /// or panicked: the next step must not send what is left of it.
    fn discard(&self, _stream: &mut Self::Stream) {}
    /// A layer's keys and values, of no pages yet.
    fn pages(&self, spec: &PageSpec) -> Result<Self::Pages>;
    /// Reserves memory for a page. Numbers begin at 0; a page that has memory is not added again.
    fn add_page(&self, pages: &mut Self::Pages, page: u32) -> Result<()>;
    /// Gives a page's memory back, where that [can be](Self::RELEASES_PAGES).
    fn release_page(&self, _pages: &mut Self::Pages, _page: u32) {}
    /// Copies what page `from` holds to page `to`.
    fn copy_page(&self, stream: &mut Self::Stream, pages: &mut Self::Pages, from: u32, to: u32)
    -> Result<()>;
    /// How a page's bytes lie and how precisely they are computed: they mean the same to backends that say the same.
    fn page_layout(&self) -> String;
    /// Adds what pages hold to `out`, of each its [bytes](PageSpec::bytes). Of the last page only the first `rows` positions
    /// are told; what lies behind reads as zeros.
    fn read_pages(
        &self,
        stream: &mut Self::Stream,
        pages: &Self::Pages,
        numbers: &[u32],
        rows: usize,
        out: &mut Vec<u8>,
    ) -> Result<()>;
    /// Lets a page hold what was read of another one.
    fn write_page(
        &self,
        stream: &mut Self::Stream,
        pages: &mut Self::Pages,
        page: u32,
        from: &[u8],
    ) -> Result<()>;
    /// A layer's states, of none yet.
    fn states(&self, _spec: &RecurrentSpec) -> Result<Self::States> {
        Err(no_states())
    }
    /// Reserves memory for a state. Numbers begin at 0; one that has memory is not added again.
    fn add_state(&self, _states: &mut Self::States, _number: u32) -> Result<()> {
        Err(no_states())
    }
    /// Gives a state's memory back.
    fn release_state(&self, _states: &mut Self::States, _number: u32) {}
    /// Adds a state to `out`, of [`RecurrentSpec::state_len`] numbers of 4 bytes.
    fn read_state(
        &self,
        _: &mut Self::Stream,
        _: &Self::States,
        _number: u32,
        _out: &mut Vec<u8>,
    ) -> Result<()> {
        Err(no_states())
    }
    /// Lets a state be what was read of another one.
    fn write_state(
        &self,
        _: &mut Self::Stream,
        _: &mut Self::States,
        _number: u32,
        _from: &[u8],
    ) -> Result<()> {
        Err(no_states())
    }
    /// Copies of each `2 · head_dim` elements the first half to one buffer, the second to the other.
    fn split_heads(
        &self,
        _: &mut Self::Stream,
        _x: &Self::Buffer,
        _head_dim: usize,
        _rows: usize,
        _out: [&mut Self::Buffer; 2],
    ) -> Result<()> {
        Err(no_states())
    }
    /// Lets all runs' rows change their states one by one, and reads, gates and norms what each finds.
    fn recur(
        &self,
        _: &mut Self::Stream,
        _op: &Recur<'_, Self>,
        _: &mut Self::States,
        _out: &mut Self::Buffer,
    ) -> Result<()> {
        Err(no_states())
    }
    /// A weight matrix; its shape has been checked.
    fn matrix(&self, weight: Region, bias: Option<Vec<f32>>) -> Result<Self::Matrix>;
    /// Equally shaped weight matrices, with their biases behind each other where they have some; their shapes have been
    /// checked.
    fn stack(&self, weights: Vec<Region>, biases: Option<Vec<f32>>) -> Result<Self::Stack>;
    /// Room for the routes of `rows` rows, `n_used` experts each.
    fn routes(&self, rows: usize, n_used: usize) -> Result<Self::Routes>;
    /// A vector.
    fn vector(&self, values: Vec<f32>) -> Result<Self::Vector>;

    /// Copies rows from the host.
    fn write(&self, stream: &mut Self::Stream, host: &[f32], out: &mut Self::Buffer) -> Result<()>;
    /// Copies the first rows to the host.
    fn read(&self, stream: &mut Self::Stream, x: &Self::Buffer, out: &mut [f32]) -> Result<()>;
    /// Copies the rows `from` to the rows `0..`.
    fn gather(
        &self,
        stream: &mut Self::Stream,
        x: &Self::Buffer,
        from: &[usize],
        out: &mut Self::Buffer,
    ) -> Result<()>;

    /// Rows of the table for tokens, times `scale`.
    fn embed(
        &self,
        stream: &mut Self::Stream,
        table: &Self::Matrix,
        tokens: &[TokenId],
        scale: f32,
        out: &mut Self::Buffer,
    ) -> Result<()>;
    /// `out = x / sqrt(mean(x²) + eps) · weight`, by row.
    fn rms_norm(
        &self,
        stream: &mut Self::Stream,
        x: &Self::Buffer,
        weight: &Self::Vector,
        eps: f32,
        rows: usize,
        out: &mut Self::Buffer,
    ) -> Result<()>;
    /// `x += norm(y)`, see [`rms_norm`](Self::rms_norm); `scratch` may be used for the norm's result.
    fn add_norm(
        &self,
        stream: &mut Self::Stream,
        x: &mut Self::Buffer,
        y: &Self::Buffer,
        norm: (&Self::Vector, f32),
        rows: usize,
        scratch: &mut Self::Buffer,
    ) -> Result<()> {
        self.rms_norm(stream, y, norm.0, norm.1, rows, scratch)?;
        self.add(stream, x, scratch, 1.0, rows)
    }
    /// `x *= factor`.
    fn scale(&self, stream: &mut Self::Stream, x: &mut Self::Buffer, factor: f32, rows: usize) -> Result<()>;
    /// `x += scale · y`.
    fn add(
        &self,
        stream: &mut Self::Stream,
        x: &mut Self::Buffer,
        y: &Self::Buffer,
        scale: f32,
        rows: usize,
    ) -> Result<()>;
    /// `out[i] += Σ (plus + weights[i, j] · by) · from[j]` over `j`, by row, where `by` is the row's vector of numbers and each
    /// of the weights one of as many. Only where there are [streams](Self::STREAMS).
    fn blend(
        &self,
        _stream: &mut Self::Stream,
        _op: &Blend<'_, Self>,
        _rows: usize,
        _out: &mut [Self::Buffer],
    ) -> Result<()> {
        Err(no_streams())
    }
    /// `x *= sqrt(mean(like²) / max(mean(x²), least))`, by row. Only where there are [streams](Self::STREAMS).
    fn match_size(
        &self,
        _stream: &mut Self::Stream,
        _x: &mut Self::Buffer,
        _like: &Self::Buffer,
        _least: f32,
        _rows: usize,
    ) -> Result<()> {
        Err(no_streams())
    }
    /// `x *= by`, element by element of each row. Only where there are [streams](Self::STREAMS).
    fn scale_elements(
        &self,
        _stream: &mut Self::Stream,
        _x: &mut Self::Buffer,
        _by: &Self::Vector,
        _rows: usize,
    ) -> Result<()> {
        Err(no_streams())
    }
    /// `x = max(x - (mean + deviations · deviation), 0)`, with the row's mean and standard deviation. Only where there are
    /// [streams](Self::STREAMS).
    fn cut_off(
        &self,
        _stream: &mut Self::Stream,
        _x: &mut Self::Buffer,
        _deviations: f32,
        _rows: usize,
    ) -> Result<()> {
        Err(no_streams())
    }
    /// Multiplies each head of `x`, `head_dim` elements, by the sigmoid of its number in `gate`.
    fn gate_heads(
        &self,
        stream: &mut Self::Stream,
        x: &mut Self::Buffer,
        gate: &Self::Buffer,
        head_dim: usize,
        rows: usize,
    ) -> Result<()>;
    /// `out = [weight · x[..n_in], x[n_in..]]` for each of a row's heads, which have a weight each: what a head has behind
    /// the elements that its weight takes stays as it is. Only where there are [latent vectors](Self::LATENTS).
    fn linear_heads(
        &self,
        _stream: &mut Self::Stream,
        _weights: &Self::Stack,
        _x: &Self::Buffer,
        _rows: usize,
        _out: &mut Self::Buffer,
    ) -> Result<()> {
        Err(Error::new(ErrorKind::Internal, "heads with weights of their own came to an engine without them"))
    }
    /// `out = x · weightᵀ + bias` for each weight; the weights share their input.
    fn linear(
        &self,
        stream: &mut Self::Stream,
        x: &Self::Buffer,
        rows: usize,
        products: &mut [(&Self::Matrix, &mut Self::Buffer)],
    ) -> Result<()>;
    /// [`linear`](Self::linear) of `norm(x)`, see [`rms_norm`](Self::rms_norm), which `normed` takes.
    fn norm_linear(
        &self,
        stream: &mut Self::Stream,
        x: &Self::Buffer,
        norm: (&Self::Vector, f32),
        normed: &mut Self::Buffer,
        rows: usize,
        products: &mut [(&Self::Matrix, &mut Self::Buffer)],
    ) -> Result<()> {
        self.rms_norm(stream, x, norm.0, norm.1, rows, normed)?;
        self.linear(stream, normed, rows, products)
    }
    /// [`linear`](Self::linear) of `activation(gate) · up`, which `gate` takes.
    fn gated_linear(
        &self,
        stream: &mut Self::Stream,
        activation: Activation,
        [gate, up]: &mut [Self::Buffer; 2],
        rows: usize,
        products: &mut [(&Self::Matrix, &mut Self::Buffer)],
    ) -> Result<()> {
        self.gated(stream, activation, gate, up, rows)?;
        self.linear(stream, gate, rows, products)
    }
    /// `out = x · headᵀ`, soft-capped: the logits of each row.
    fn logits(
        &self,
        stream: &mut Self::Stream,
        op: &Head<'_, Self>,
        x: &Self::Buffer,
        rows: usize,
        out: &mut Self::Buffer,
    ) -> Result<()> {
        self.linear(stream, x, rows, &mut [(op.matrix, &mut *out)])?;
        op.softcap.map_or(Ok(()), |cap| self.softcap(stream, out, cap, rows))
    }
    /// Prepares the head for [`top`](Self::top), where the backend has something to prepare; returns
    /// the bytes that takes.
    fn screen(&self, _head: &mut Self::Matrix, _cancel: &CancelToken) -> Result<u64> {
        Ok(0)
    }
    /// The largest of each row's [`logits`](Self::logits).
    fn top(
        &self,
        stream: &mut Self::Stream,
        op: &Head<'_, Self>,
        x: &Self::Buffer,
        rows: usize,
        out: TopLogits<'_>,
    ) -> Result<()> {
        let mut all = self.buffer(rows, op.n_vocab)?;
        self.logits(stream, op, x, rows, &mut all)?;
        let mut host = vec![0.0; rows * op.n_vocab];
        self.read(stream, &all, &mut host)?;
        out.list(host.chunks_exact(op.n_vocab));
        Ok(())
    }
    /// `gate = activation(gate) · up`.
    fn gated(
        &self,
        stream: &mut Self::Stream,
        activation: Activation,
        gate: &mut Self::Buffer,
        up: &Self::Buffer,
        rows: usize,
    ) -> Result<()>;
    /// Routes rows by their logits `[rows, n_experts]`, as [`Routes::select`] does.
    fn route(
        &self,
        stream: &mut Self::Stream,
        op: &Routing<'_, Self>,
        logits: &Self::Buffer,
        rows: usize,
        out: &mut Self::Routes,
    ) -> Result<()>;
    /// Copies the routes of `rows` rows to the host.
    fn read_routes(
        &self,
        stream: &mut Self::Stream,
        routes: &Self::Routes,
        rows: usize,
        out: &mut Routes,
    ) -> Result<()>;
    /// `out = Σ weight · down(activation(gate · x) · (up · x))` by row, over the experts that the
    /// row's routes name and in their order. Weights of what experts take multiply the products with it instead.
    fn experts(
        &self,
        stream: &mut Self::Stream,
        op: &Experts<'_, Self>,
        x: &Self::Buffer,
        rows: usize,
        out: &mut Self::Buffer,
    ) -> Result<()>;
    /// `x = cap · tanh(x / cap)`.
    fn softcap(&self, stream: &mut Self::Stream, x: &mut Self::Buffer, cap: f32, rows: usize) -> Result<()>;

    /// Cosines and sines of position times frequency, by row, times the row's amplitude: the cosines first, then the
    /// sines.
    fn angles(
        &self,
        stream: &mut Self::Stream,
        frequencies: &[f32],
        positions: &[usize],
        amplitudes: &[f32],
        out: &mut Self::Buffer,
    ) -> Result<()>;
    /// Norms each head (where a norm is given), then rotates it (where angles are given).
    fn norm_rope(
        &self,
        stream: &mut Self::Stream,
        op: &NormRope<'_, Self>,
        angles: Option<&Self::Buffer>,
        rows: usize,
        x: &mut Self::Buffer,
    ) -> Result<()>;
    /// Norms rows around their mean, with weights and biases. Only where positions are [chosen](Self::CHOOSES).
    fn layer_norm(
        &self,
        _stream: &mut Self::Stream,
        _norm: ([&Self::Vector; 2], f32),
        _rows: usize,
        _x: &mut Self::Buffer,
    ) -> Result<()> {
        Err(not_chosen())
    }
    /// Stores keys and values of all spans' rows in their pages, then chooses the positions that rows see, where there are
    /// more than they may. Only where that [can be](Self::CHOOSES).
    fn choose(
        &self,
        _stream: &mut Self::Stream,
        _op: &Choose<'_, Self>,
        _pages: &mut Self::Pages,
        _out: &mut Self::Chosen,
    ) -> Result<()> {
        Err(not_chosen())
    }
    /// Stores keys and values of all spans' rows in their pages, where some are given, then attends to what each row sees.
    /// Of a layer with latent vectors, values are these and keys what lies behind them in its one head of keys.
    fn attend(
        &self,
        stream: &mut Self::Stream,
        op: &Attend<'_, Self>,
        q: &Self::Buffer,
        kv: Option<[&Self::Buffer; 2]>,
        pages: &mut Self::Pages,
        out: &mut Self::Buffer,
    ) -> Result<()>;
}

/// A device that can leave features of dense feed-forward blocks out.
pub(crate) trait Features: Backend {
    /// `out = down(activation(gate · x) · (up · x))` where of each row only the features with the largest
    /// `|gate · x|` count, of equal ones those of lower index first.
    fn top_features(
        &self,
        stream: &mut Self::Stream,
        op: &TopFeatures<'_, Self>,
        x: &Self::Buffer,
        rows: usize,
        inner: &mut [Self::Buffer; 2],
        out: &mut Self::Buffer,
    ) -> Result<()>;
}

/// Positions of a page.
pub(crate) const PAGE: usize = 64;

/// What a layer keeps of a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageSpec {
    pub(crate) n_kv_heads: usize,
    pub(crate) head_dim: usize,
    /// The first so many elements of keys are the values, which are not kept beside.
    pub(crate) latent: Option<usize>,
    /// Where keys end, and where those that choose positions begin, which lie behind them.
    pub(crate) index: Option<[usize; 2]>,
    pub(crate) kv: KvTypes,
}

impl PageSpec {
    pub(crate) fn new(attention: &AttentionSpec, kv: impl Into<KvTypes>) -> Self {
        let AttentionSpec { n_kv_heads, head_dim, .. } = *attention;
        let (latent, kv) = (attention.latent.map(|latent| latent.rank), kv.into());
        let kv = if latent.is_some() { kv.of_latent() } else { kv };
        let index = attention.own_index().map(|_| [head_dim, attention.index_at()]);
        Self { n_kv_heads, head_dim: attention.kept_dim(), latent, index, kv }
    }

    /// Bytes of a page, keys and values together.
    pub(crate) fn bytes(&self) -> u64 {
        let of = |kv: KvType| kv.bytes(self.head_dim, PAGE);
        let values = if self.latent.is_some() { 0 } else { of(self.kv.values) };
        of(self.kv.keys).saturating_add(values).saturating_mul(self.n_kv_heads) as u64
    }

    /// The same where that is an amount that memory may have.
    pub(crate) fn checked_bytes(&self) -> Result<usize> {
        usize::try_from(self.bytes()).ok().filter(|bytes| *bytes < isize::MAX as usize / 2).ok_or_else(|| {
            Error::new(
                ErrorKind::OutOfMemory,
                format!(
                    "cannot reserve a page of keys and values of {} heads of {} elements",
                    self.n_kv_heads, self.head_dim
                ),
            )
            .with_hint("check the heads in the model's configuration")
        })
    }
}

/// Blanks the positions from `rows` on where a page's bytes have `slot` bytes of each position in turn.
pub(crate) fn blank_behind(bytes: &mut [u8], slot: usize, rows: usize) {
    bytes.chunks_exact_mut(PAGE * slot).for_each(|all| all[rows * slot..].fill(0));
}

/// Pages with how many of their positions are told, of the last one only some.
pub(crate) fn with_rows(numbers: &[u32], of_last: usize) -> impl Iterator<Item = (u32, usize)> {
    let last = numbers.len().saturating_sub(1);
    numbers.iter().enumerate().map(move |(at, page)| (*page, if at == last { of_last } else { PAGE }))
}

/// The first block of [`PAGE`] positions that the row at position `at` sees.
pub(crate) fn first_block(window: Option<Window>, at: usize) -> usize {
    window.map_or(0, |window| window.first(at) / PAGE)
}

/// What turns hidden states into logits.
pub(crate) struct Head<'a, B: Backend + ?Sized> {
    pub(crate) matrix: &'a B::Matrix,
    /// Its rows.
    pub(crate) n_vocab: usize,
    pub(crate) softcap: Option<f32>,
}

/// The `k` largest logits of each row, `[rows, k]`, as
/// [`Activations::ids`](super::Activations::ids) says; `k` is at least 1.
pub(crate) struct TopLogits<'a> {
    pub(crate) k: usize,
    pub(crate) ids: &'a mut [TokenId],
    pub(crate) logits: &'a mut [f32],
}

impl TopLogits<'_> {
    /// Lists the largest of rows of logits that the host has.
    pub(crate) fn list<'r>(self, rows: impl Iterator<Item = &'r [f32]>) {
        let Self { k, ids, logits } = self;
        let mut top = Top::default();
        for ((row, ids), logits) in rows.zip(ids.chunks_exact_mut(k)).zip(logits.chunks_exact_mut(k)) {
            top.reset(k);
            top.see(0, row);
            top.write(ids, logits);
        }
    }
}

/// What residual streams take of others.
pub(crate) struct Blend<'a, B: Backend + ?Sized> {
    pub(crate) from: &'a [B::Buffer],
    /// The numbers that say how much, `[rows, n]`.
    pub(crate) by: &'a B::Buffer,
    /// `[out, from, n]`.
    pub(crate) weights: &'a B::Vector,
    /// Taken in any case.
    pub(crate) plus: f32,
}

/// How a layer's rows are routed.
pub(crate) struct Routing<'a, B: Backend + ?Sized> {
    pub(crate) spec: &'a ExpertsSpec,
    /// Added to the scores that experts are chosen by.
    pub(crate) correction: Option<&'a B::Vector>,
    /// By expert: multiplies the weights that rows give it.
    pub(crate) scales: Option<&'a B::Vector>,
}

/// One layer's experts, and which of them each row takes.
pub(crate) struct Experts<'a, B: Backend + ?Sized> {
    pub(crate) activation: Activation,
    pub(crate) routes: &'a B::Routes,
    pub(crate) gate: &'a B::Stack,
    /// Absent where the activation has no gate: `gate` is the only projection then.
    pub(crate) up: Option<&'a B::Stack>,
    pub(crate) down: &'a B::Stack,
    /// Weights multiply what experts take, rather than what they give.
    pub(crate) on_input: bool,
    /// Who is to be asked before an expert's weights are used, where they are used in place.
    pub(crate) memory: Option<&'a dyn ExpertMemory>,
}

/// Keeps a layer's experts in memory while they are used, no more than may be there at a time.
pub(crate) trait ExpertMemory: Sync {
    /// Says which experts a step will take, each once.
    fn begin(&self, experts: &mut dyn Iterator<Item = u32>);
    /// Brings the first of these experts into memory, as many as may be there together, and at least one if there
    /// is one; returns how many.
    fn take(&self, experts: &mut dyn Iterator<Item = u32>) -> usize;
    /// Ends the use of experts that were taken.
    fn release(&self, experts: &mut dyn Iterator<Item = u32>);
}

/// A dense block of which a row takes only some features.
pub(crate) struct TopFeatures<'a, B: Backend + ?Sized> {
    pub(crate) activation: Activation,
    /// How many: at least 1, and fewer than there are.
    pub(crate) k: usize,
    pub(crate) gate: &'a B::Matrix,
    pub(crate) up: &'a B::Matrix,
    pub(crate) down: FeatureDown<&'a B::Matrix>,
}

/// What each feature adds to the output.
#[derive(Clone, Copy)]
pub(crate) enum FeatureDown<M> {
    /// `[hidden, features]`, as in any block.
    Columns(M),
    /// `[features or more, hidden]`.
    Rows(M),
}

impl<M> FeatureDown<M> {
    pub(crate) fn as_ref(&self) -> FeatureDown<&M> {
        match self {
            FeatureDown::Columns(matrix) => FeatureDown::Columns(matrix),
            FeatureDown::Rows(matrix) => FeatureDown::Rows(matrix),
        }
    }
}

/// Per-head norm and rotation of queries or keys.
pub(crate) struct NormRope<'a, B: Backend + ?Sized> {
    pub(crate) head_dim: usize,
    /// Elements in front that are not rotated, of heads without a norm.
    pub(crate) plain: usize,
    pub(crate) norm: Option<(&'a B::Vector, f32)>,
    pub(crate) layout: RopeLayout,
}

/// The attention of a step's rows.
pub(crate) struct Attend<'a, B: Backend + ?Sized> {
    pub(crate) attention: &'a AttentionSpec,
    /// For each query head a logit that takes part in the softmax without having a value.
    pub(crate) sinks: Option<&'a B::Vector>,
    pub(crate) spans: &'a Spans,
    /// What rows see, where some do not see all.
    pub(crate) chosen: Option<&'a B::Chosen>,
}

/// What chooses the positions that a layer's rows see.
pub(crate) struct Choose<'a, B: Backend + ?Sized> {
    pub(crate) index: IndexSpec,
    pub(crate) spans: &'a Spans,
    /// As for [`Backend::attend`].
    pub(crate) kv: [&'a B::Buffer; 2],
    /// The indexer's queries, keys, and what its heads count.
    pub(crate) query: &'a B::Buffer,
    pub(crate) key: &'a B::Buffer,
    pub(crate) weights: &'a B::Buffer,
}

/// The positions that rows see, where they do not see all and the host knows them.
#[derive(Debug, Default)]
pub(crate) struct Chosen {
    /// Positions of each such row.
    pub(crate) most: usize,
    /// The rows, in their order, and their spans.
    pub(crate) rows: Vec<(usize, usize)>,
    /// Their positions, from first to last, of row after row. A device may have them instead, on the stream, until positions are
    /// chosen again.
    pub(crate) positions: Vec<u32>,
}

impl Chosen {
    /// Positions of one of the rows.
    pub(crate) fn of(&self, row: usize) -> &[u32] {
        &self.positions[row * self.most..][..self.most]
    }
}

fn not_chosen() -> Error {
    Error::new(ErrorKind::Internal, "positions were to be chosen on an engine that cannot")
}

/// What is asked of a backend without streams. Models that have some are refused before.
fn no_streams() -> Error {
    Error::new(ErrorKind::Internal, "an engine without several residual streams was asked for them")
}

/// What is asked of a backend without states. Models that have some are refused before.
fn no_states() -> Error {
    Error::new(ErrorKind::Internal, "an engine without states was asked for one")
}

/// What a layer with states does to a step's rows.
pub(crate) struct Recur<'a, B: Backend + ?Sized> {
    pub(crate) spec: &'a RecurrentSpec,
    pub(crate) eps: f32,
    /// What products gave, and what of it is what.
    pub(crate) products: &'a [B::Buffer],
    pub(crate) parts: &'a StateParts,
    pub(crate) vectors: &'a StateVectors<B>,
    pub(crate) runs: &'a [Run],
}

/// Where in products things are that states are changed and read by.
pub(crate) struct StateParts {
    pub(crate) query: StatePart,
    pub(crate) key: StatePart,
    pub(crate) value: StatePart,
    pub(crate) gate: StatePart,
    pub(crate) step: StatePart,
    /// By the delta rule alone.
    pub(crate) share: Option<StatePart>,
}

/// Which product it is, where the first key head's part begins in it, and how far apart those of key heads are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StatePart {
    pub(crate) product: usize,
    pub(crate) first: usize,
    pub(crate) stride: usize,
}

/// Small weights of a layer with states.
pub(crate) struct StateVectors<B: Backend + ?Sized> {
    /// `[positions, channels]`, the current position last; channels of queries, keys and values.
    pub(crate) convolution: B::Vector,
    pub(crate) convolution_bias: Option<B::Vector>,
    /// By head.
    pub(crate) step_bias: B::Vector,
    pub(crate) decay: B::Vector,
    pub(crate) skip: Option<B::Vector>,
    pub(crate) norm: B::Vector,
}

/// Some rows of a step that belong to one sequence, with its state before and behind them.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    /// Rows of the buffers.
    pub(crate) rows: Range<usize>,
    /// The state before the first one; none where the sequence begins.
    pub(crate) from: Option<u32>,
    /// Takes the state behind the last one.
    pub(crate) to: u32,
    /// After so many rows, another one takes the state.
    pub(crate) mark: Option<(usize, u32)>,
}

impl Run {
    /// The states that it writes.
    pub(crate) fn written(&self) -> impl Iterator<Item = u32> + use<> {
        [Some(self.to), self.mark.map(|(_, state)| state)].into_iter().flatten()
    }

    /// `Ok` for runs that follow one another, where no state that one writes is another one's, or what it reads itself.
    pub(crate) fn check(runs: &[Self]) -> Result<()> {
        let mut row = 0;
        for (at, run) in runs.iter().enumerate() {
            let before = || runs[..at].iter();
            let of_others = || before().flat_map(|other| other.from.into_iter().chain(other.written()));
            let shared =
                run.written().any(|state| run.from == Some(state) || of_others().any(|it| it == state))
                    || run.mark.is_some_and(|(_, state)| state == run.to)
                    || run.from.is_some_and(|from| before().flat_map(Self::written).any(|it| it == from));
            if shared || run.rows.start != row || run.rows.is_empty() {
                return Err(Error::new(ErrorKind::Internal, "sequences write each other's states"));
            }
            row = run.rows.end;
        }
        Ok(())
    }
}

/// Consecutive rows of each sequence of a step, and where the positions lie that they see.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spans {
    pub(crate) list: Vec<Span>,
    /// Page numbers of all spans.
    pub(crate) pages: Vec<u32>,
}

/// Some rows of a step that belong to one sequence.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    /// Rows of the buffers.
    pub(crate) rows: Range<usize>,
    /// Position of the first one.
    pub(crate) start: usize,
    /// The first block of [`PAGE`] positions that any of the rows sees.
    pub(crate) first_block: usize,
    /// Which of [`Spans::pages`] hold that block and those behind it, up to the last row's.
    pub(crate) pages: Range<usize>,
}

impl Spans {
    /// Forgets all spans.
    pub(crate) fn clear(&mut self) {
        self.list.clear();
        self.pages.clear();
    }

    /// Adds `n` rows that follow on those of the spans before, with the pages of the blocks from `first_block` on.
    pub(crate) fn push(
        &mut self,
        n: usize,
        start: usize,
        first_block: usize,
        pages: impl Iterator<Item = u32>,
    ) {
        let row = self.list.last().map_or(0, |span| span.rows.end);
        let first = self.pages.len();
        self.pages.extend(pages);
        let pages = first..self.pages.len();
        self.list.push(Span { rows: row..row + n, start, first_block, pages });
    }

    /// A span's pages.
    pub(crate) fn pages_of(&self, span: &Span) -> &[u32] {
        &self.pages[span.pages.clone()]
    }
}
