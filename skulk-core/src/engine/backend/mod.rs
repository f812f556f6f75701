//! Which operations must a device offer? The inner interface the decoder is written against.
//!
//! Buffers are `[rows, width]` matrices of f32 on the device, allocated once with room for the
//! largest step; each operation says how many rows it concerns. An operation's result takes the
//! operation's own width, which a buffer made for the widest layer may exceed.
//!
//! A row's result must not depend on which other rows are in the call, on backends with
//! [`Backend::EXACT_ROWS`] in no bit: that is what makes logits bit-equal over chunk sizes, batches
//! and replays.

mod operands;
mod pages;

pub(crate) use self::operands::{
    Attend, Blend, Choose, Chosen, Expected, ExpertMemory, Experts, FeatureDown, Head, NormRope, Recur,
    Routing, StatePart, StateParts, StateVectors, TopFeatures, TopLogits, Turn,
};
pub(crate) use self::pages::{PAGE, PageSpec, Run, Span, Spans, blank_behind, first_block, with_rows};
pub(crate) use super::routes::Routes;
use super::{KvType, StepCx};
use crate::arch::{Activation, RecurrentSpec};
use crate::bytes::ByteSize;
use crate::cancel::CancelToken;
use crate::error::Result;
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
    /// States of one layer, of all sequences: by number.
    type States: Send + Sync;
    /// Which positions rows see, where they do not see all.
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

    /// Runs one step's work where and when the device wants it, e.g. inside its thread pool and after other steps.
    /// Who has to wait for that ends at once with an error when `cx` says so.
    fn run<R: Send>(&self, _cx: &StepCx<'_>, work: impl FnOnce() -> Result<R> + Send) -> Result<R> {
        work()
    }

    /// All that is reserved on a device with memory of its own, as far as is known.
    fn reserved(&self) -> Option<ByteSize> {
        None
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
    /// Says how many pages a layer will hardly exceed: what is reserved ahead of need stays below.
    fn expect_pages(&self, _pages: &mut Self::Pages, _most: usize) {}
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
    fn states(&self, spec: &RecurrentSpec) -> Result<Self::States>;
    /// Reserves memory for a state. Numbers begin at 0; one that has memory is not added again.
    fn add_state(&self, states: &mut Self::States, number: u32) -> Result<()>;
    /// Gives a state's memory back, where that can be.
    fn release_state(&self, _states: &mut Self::States, _number: u32) {}
    /// Adds a state to `out`, of [`RecurrentSpec::state_len`] numbers of 4 bytes.
    fn read_state(
        &self,
        stream: &mut Self::Stream,
        states: &Self::States,
        number: u32,
        out: &mut Vec<u8>,
    ) -> Result<()>;
    /// Lets a state be what was read of another one.
    fn write_state(
        &self,
        stream: &mut Self::Stream,
        states: &mut Self::States,
        number: u32,
        from: &[u8],
    ) -> Result<()>;
    /// Copies of each `2 · head_dim` elements the first half to one buffer, the second to the other.
    fn split_heads(
        &self,
        stream: &mut Self::Stream,
        x: &Self::Buffer,
        head_dim: usize,
        rows: usize,
        out: [&mut Self::Buffer; 2],
    ) -> Result<()>;
    /// Lets all runs' rows change their states one by one, and reads, gates and norms what each finds.
    fn recur(
        &self,
        stream: &mut Self::Stream,
        op: &Recur<'_, Self>,
        states: &mut Self::States,
        out: &mut Self::Buffer,
    ) -> Result<()>;
    /// A weight matrix; its shape has been checked.
    fn matrix(&self, weight: Region, bias: Option<Vec<f32>>) -> Result<Self::Matrix>;
    /// Equally shaped weight matrices, with their biases behind each other where they have some; their shapes have been
    /// checked.
    fn stack(&self, weights: Vec<Region>, biases: Option<Vec<f32>>) -> Result<Self::Stack>;
    /// Prepares what will be asked for, where that takes time: while a model loads, not in its first steps.
    fn expect(&self, _what: Expected<'_, Self>) -> Result<()> {
        Ok(())
    }
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
    /// Puts rows of two buffers side by side.
    fn concat(
        &self,
        stream: &mut Self::Stream,
        parts: [&Self::Buffer; 2],
        rows: usize,
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
    /// of the weights one of as many.
    fn blend(
        &self,
        stream: &mut Self::Stream,
        op: &Blend<'_, Self>,
        rows: usize,
        out: &mut [Self::Buffer],
    ) -> Result<()>;
    /// `x *= sqrt(mean(like²) / max(mean(x²), least))`, by row.
    fn match_size(
        &self,
        stream: &mut Self::Stream,
        x: &mut Self::Buffer,
        like: &Self::Buffer,
        least: f32,
        rows: usize,
    ) -> Result<()>;
    /// `x *= by`, element by element of each row.
    fn scale_elements(
        &self,
        stream: &mut Self::Stream,
        x: &mut Self::Buffer,
        by: &Self::Vector,
        rows: usize,
    ) -> Result<()>;
    /// `x = max(x - (mean + deviations · deviation), 0)`, with the row's mean and standard deviation.
    fn cut_off(
        &self,
        stream: &mut Self::Stream,
        x: &mut Self::Buffer,
        deviations: f32,
        rows: usize,
    ) -> Result<()>;
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
    /// the elements that its weight takes stays as it is.
    fn linear_heads(
        &self,
        stream: &mut Self::Stream,
        weights: &Self::Stack,
        x: &Self::Buffer,
        rows: usize,
        out: &mut Self::Buffer,
    ) -> Result<()>;
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

    /// [`gated_linear`](Self::gated_linear) of the products of `x` with a block's gate and up projection, for which `inner`
    /// is room.
    fn gated_block(
        &self,
        stream: &mut Self::Stream,
        activation: Activation,
        (x, rows): (&Self::Buffer, usize),
        [to_gate, to_up]: [&Self::Matrix; 2],
        inner: &mut [Self::Buffer; 2],
        products: &mut [(&Self::Matrix, &mut Self::Buffer)],
    ) -> Result<()> {
        let [gate, up] = &mut *inner;
        self.linear(stream, x, rows, &mut [(to_gate, gate), (to_up, up)])?;
        self.gated_linear(stream, activation, inner, rows, products)
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
    /// The largest of each row's [`logits`](Self::logits), of those on the [shortlist](Head::shortlist) at least.
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
    /// Lets routes be these, of so many experts a row.
    fn write_routes(&self, stream: &mut Self::Stream, from: &Routes, out: &mut Self::Routes) -> Result<()>;
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
    /// Norms rows around their mean, with weights and biases.
    fn layer_norm(
        &self,
        stream: &mut Self::Stream,
        norm: ([&Self::Vector; 2], f32),
        rows: usize,
        x: &mut Self::Buffer,
    ) -> Result<()>;
    /// Stores keys and values of all spans' rows in their pages, then chooses the positions that rows see, where there are
    /// more than they may.
    fn choose(
        &self,
        stream: &mut Self::Stream,
        op: &Choose<'_, Self>,
        pages: &mut Self::Pages,
        out: &mut Self::Chosen,
    ) -> Result<()>;
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
    /// [`attend`](Self::attend) of heads that are normed and rotated first: those of queries, keys and values. It may leave
    /// keys and values as they are, and norm and rotate what it stores.
    fn attend_turned(
        &self,
        stream: &mut Self::Stream,
        op: &Attend<'_, Self>,
        (turns, rows): (&[Option<Turn<'_, Self>>; 3], usize),
        (q, kv): (&mut Self::Buffer, Option<[&mut Self::Buffer; 2]>),
        pages: &mut Self::Pages,
        out: &mut Self::Buffer,
    ) -> Result<()> {
        turn(self, stream, (turns, rows), (q, kv))
            .and_then(|(q, kv)| self.attend(stream, op, q, kv, pages, out))
    }
}

/// Queries, and keys and values where there are some.
type Heads<'a, B> = (&'a <B as Backend>::Buffer, Option<[&'a <B as Backend>::Buffer; 2]>);

/// Norms and rotates queries, keys and values in place.
pub(crate) fn turn<'a, B: Backend + ?Sized>(
    b: &B,
    stream: &mut B::Stream,
    (turns, rows): (&[Option<Turn<'_, B>>; 3], usize),
    (q, kv): (&'a mut B::Buffer, Option<[&'a mut B::Buffer; 2]>),
) -> Result<Heads<'a, B>> {
    let [of_q, of_k, of_v] = turns;
    let mut each = |turn: &Option<Turn<'_, B>>, x: &mut B::Buffer| match turn {
        Some(Turn { op, angles }) => b.norm_rope(stream, op, *angles, rows, x),
        None => Ok(()),
    };
    each(of_q, q)?;
    match kv {
        Some([k, v]) => {
            each(of_k, k)?;
            each(of_v, v)?;
            Ok((q, Some([&*k, &*v])))
        }
        None => Ok((q, None)),
    }
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
