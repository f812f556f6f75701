//! What do operations take beside rows?

use std::ops::Range;

use super::{Backend, Run, Spans};
use crate::arch::{Activation, AttentionSpec, ExpertsSpec, IndexSpec, RecurrentSpec, RopeLayout};
use crate::engine::top::Top;
use crate::ids::TokenId;

/// What turns hidden states into logits.
pub(crate) struct Head<'a, B: Backend + ?Sized> {
    pub(crate) matrix: &'a B::Matrix,
    /// Its rows.
    pub(crate) n_vocab: usize,
    pub(crate) softcap: Option<f32>,
    /// Rows that [`top`](Backend::top) looks at, at least, in ranges behind one another; with none, it looks at all.
    pub(crate) shortlist: &'a [Range<u32>],
}

/// The `k` largest logits of each row, `[rows, k]`, as
/// [`Activations::ids`](crate::engine::Activations::ids) says; `k` is at least 1.
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

/// What a model's decoded tokens will ask for.
#[cfg_attr(not(feature = "wgpu"), allow(dead_code, reason = "only wgpu builds kernels for what is expected"))]
pub(crate) enum Expected<'a, B: Backend + ?Sized> {
    /// [`Backend::linear`] with these.
    Products(&'a [&'a B::Matrix]),
    /// [`Backend::gated_block`] with a gate's and an up projection.
    GatedBlock(Activation, [&'a B::Matrix; 2]),
    /// [`Backend::experts`] with a gate's, an up and a down projection; whether weights multiply what experts take.
    Experts {
        activation: Activation,
        on_input: bool,
        gate: &'a B::Stack,
        up: Option<&'a B::Stack>,
        down: &'a B::Stack,
    },
}

/// What is done to heads before they attend.
pub(crate) struct Turn<'a, B: Backend + ?Sized> {
    pub(crate) op: NormRope<'a, B>,
    /// By what they are rotated, where they are.
    pub(crate) angles: Option<&'a B::Buffer>,
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
