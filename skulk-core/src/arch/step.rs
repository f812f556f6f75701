//! What does a step keep of each of its rows? The widths of its buffers, as shards make them and plans count them.

use super::{ArchSpec, AttentionSpec, LayerSpec, LayerTensor as T, RecurrentSpec};

/// Numbers of a row in a step's buffers, of the widest of some layers each; 0 where none has such.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RowWidths {
    /// The residual stream, the normed one, and what a block adds.
    pub(crate) hidden: usize,
    pub(crate) query: usize,
    /// Keys, and values.
    pub(crate) kv: usize,
    /// What attention gives, and what is read of states.
    pub(crate) mixed: usize,
    /// Heads' queries where they meet keys.
    pub(crate) heads: usize,
    /// What gates and up projections of feed-forward blocks give.
    pub(crate) inner: usize,
    pub(crate) n_experts: usize,
    pub(crate) n_used: usize,
    /// There are shared experts, and what gates them.
    pub(crate) shared: bool,
    pub(crate) scored: bool,
    /// What heads are gated by, and queries that come with their gates.
    pub(crate) gates: usize,
    pub(crate) gated: usize,
    /// Ways around attention.
    pub(crate) bypass: usize,
    /// What queries are projected from where attention is to latent vectors, and queries as they meet these.
    pub(crate) latent: [usize; 2],
    /// An indexer's queries, its keys, and what its heads count.
    pub(crate) index: [usize; 3],
    /// Products of layers with states, with what they are projected from, and what such layers compute of them.
    states: [usize; 2],
    /// What experts give of a row that takes several.
    taken: usize,
    /// What experts take of it.
    given: usize,
    /// All residual streams beside the one that blocks compute, and what layers predict of them.
    streams: usize,
    /// What tokens give layers.
    inputs: usize,
    /// Angles of all ways to rotate.
    angles: usize,
    /// What something that drafts has of embeddings and hidden states.
    joint: usize,
}

impl RowWidths {
    /// Of these layers.
    pub(crate) fn of(arch: &ArchSpec, layers: &[LayerSpec]) -> Self {
        let widest = |of: &dyn Fn(&LayerSpec) -> usize| layers.iter().map(of).max().unwrap_or(0);
        let attends = |of: &dyn Fn(&AttentionSpec) -> usize| widest(&|l| l.attention().map_or(0, of));
        let index = |at: usize| {
            attends(&|a| {
                let of = |index: super::IndexSpec| {
                    [index.n_heads.saturating_mul(index.head_dim), index.head_dim, index.n_heads][at]
                };
                a.own_index().map_or(0, of)
            })
        };
        let hidden = arch.hidden_size;
        let (own, n_streams) = (layers.len(), arch.streams().map_or(0, |streams| streams.n));
        let rotated = arch.ropes.iter().map(|rope| rope.dim).fold(0, usize::saturating_add);
        let grown = usize::from(attends(&|a| usize::from(a.query_growth.is_some())) > 0);
        Self {
            hidden,
            query: attends(&|a| match a.output_gate {
                true => a.query_width(),
                false => a.projected_width().max(a.output_width()),
            }),
            kv: attends(&AttentionSpec::kv_width),
            mixed: attends(&|a| a.n_heads.saturating_mul(a.value_dim()))
                .max(widest(&|l| l.recurrent().map_or(0, RecurrentSpec::value_width))),
            heads: attends(&AttentionSpec::query_width),
            inner: widest(&|l| {
                let shared = l.ffn.shared.map_or(0, |shared| shared.width);
                l.ffn.width.max(shared).max(l.input.map_or(0, |input| input.width))
            }),
            n_experts: widest(&|l| l.ffn.experts.map_or(0, |experts| experts.n_experts)),
            n_used: widest(&|l| l.ffn.experts.map_or(0, |experts| experts.n_used)),
            shared: layers.iter().any(|l| l.ffn.shared.is_some()),
            scored: layers.iter().any(|l| l.ffn.shared.is_some_and(|shared| shared.gated)),
            gates: widest(&|l| match l.attention() {
                Some(own) if own.output_gate => own.query_width(),
                Some(own) if own.head_gate => own.n_heads,
                _ => 0,
            }),
            gated: attends(&|a| if a.output_gate { a.projected_width() } else { 0 }),
            bypass: widest(&|l| l.bypass.unwrap_or(0)),
            latent: [
                attends(&|a| a.latent.and_then(|latent| latent.query_rank).unwrap_or(0)),
                attends(&|a| a.latent.map_or(0, |_| a.query_width())),
            ],
            index: [0, 1, 2].map(index),
            states: [widest(&|l| products(l, hidden)), widest(&|l| l.recurrent().map_or(0, in_states))],
            taken: widest(&|l| {
                let each = hidden.saturating_add(l.ffn.width).saturating_mul(2);
                l.ffn.experts.map_or(0, |experts| experts.n_used.saturating_mul(each))
            }),
            given: widest(&|l| {
                let each = hidden.max(l.ffn.width);
                l.ffn.experts.map_or(0, |experts| experts.n_used.saturating_mul(each))
            }),
            streams: n_streams.saturating_mul(hidden.saturating_mul(2).saturating_add(1)),
            // Rows of the table on the host, too.
            inputs: arch
                .input_width()
                .map_or(0, |width| width.saturating_mul(own).saturating_mul(2).saturating_add(hidden)),
            angles: rotated.saturating_mul(1 + grown),
            joint: arch.joint_width(),
        }
    }

    /// Numbers of the widest operand of a product.
    pub(crate) fn widest(&self) -> usize {
        [self.hidden, self.heads, self.mixed, self.inner, self.bypass].into_iter().max().unwrap_or(0)
    }

    /// Bytes of a row, in all buffers of a step, with what products and layers work in, whichever the engine.
    pub(crate) fn bytes(&self) -> u64 {
        let around = if self.bypass > 0 { self.hidden } else { 0 };
        let shared = if self.shared { self.hidden } else { 0 };
        let once = [
            self.query,
            self.mixed,
            self.n_experts,
            shared,
            usize::from(self.scored),
            self.gates,
            self.gated,
            self.bypass,
            around,
            self.streams,
            self.inputs,
            self.angles,
            self.joint,
            self.taken,
        ];
        let twice = [self.hidden, self.hidden, self.kv, self.inner, self.n_used];
        let numbers = once.into_iter().chain(twice).chain(twice);
        let numbers = numbers.chain(self.latent).chain(self.index).chain(self.states);
        let numbers = numbers.fold(0u64, |sum, n| sum.saturating_add(n as u64));
        let rounded = self.widest().max(self.given);
        let rounded = (rounded.div_ceil(BLOCK) as u64).saturating_mul(ROUNDED_BYTES);
        numbers.saturating_mul(size_of::<f32>() as u64).saturating_add(rounded)
    }
}

/// Numbers that are rounded together.
const BLOCK: usize = 32;
/// Bytes of these when they are: digits, scales and sums, and the same grouped; digits in pairs, too, and these grouped.
const ROUNDED_BYTES: u64 = 3 * (BLOCK as u64 + 28) + BLOCK as u64;

/// Numbers of all products of a layer with states, with what they are projected from.
fn products(layer: &LayerSpec, hidden: usize) -> usize {
    let products = [
        T::StateQuery,
        T::StateKey,
        T::StateValue,
        T::StateGate,
        T::StateStep,
        T::StateShare,
        T::StateGateLatent,
        T::StateStepLatent,
    ];
    let own = T::of(layer).filter(|tensor| products.contains(tensor));
    own.map(|tensor| tensor.shape(layer, hidden)[0]).fold(0, usize::saturating_add)
}

/// Numbers of a row before its state and behind it.
fn in_states(spec: &RecurrentSpec) -> usize {
    let before = spec.channels().saturating_add(2 * spec.n_heads).saturating_add(spec.steps());
    before.saturating_add(spec.value_width())
}
