//! What is this tensor called here? Roles, and each format's spelling of them.

mod gguf;
mod mlx;
mod recurrent;

use std::borrow::Cow;

use super::{AttentionSpec, ExpertsSpec, LayerSpec, QkNorm, RecurrentRule, RecurrentSpec};
use crate::ids::ExpertIdx;
use crate::weights::DType;
use LayerTensor::{
    AttentionNorm, AttentionOutput, BypassDown, BypassNorm, BypassUp, DecayRate, ExpertDown, ExpertGate,
    ExpertUp, ExpertsNorm, FfnDown, FfnGate, FfnNorm, FfnUp, HeadGate, IndexKey, IndexKeyNorm, IndexQuery,
    IndexWeights, InputGate, InputProjection, Key, KeyConvolution, KeyNorm, LatentKeys, LatentNorm,
    LatentValues, OutputScale, PostAttentionNorm, PostExpertsNorm, PostFfnNorm, PostInputNorm,
    PostSharedNorm, Query, QueryConvolution, QueryLatent, QueryLatentNorm, QueryNorm, Router,
    RouterCorrection, RouterNorm, RouterScales, SharedDown, SharedGate, SharedScore, SharedUp, Sinks,
    StateGate, StateGateLatent, StateKey, StateNorm, StateOutput, StateQuery, StateShare, StateSkip,
    StateStep, StateStepLatent, StateValue, StepBias, StreamCorrection, StreamNorm, StreamPrediction,
    StreamRouter, StreamScale, Value, ValueConvolution,
};
pub(super) use gguf::{
    GGUF, GGUF_DEEPSEEK, GGUF_DEEPSEEK_PLAIN, GGUF_FUSED, GGUF_GRANITE_HYBRID, GGUF_NEMOTRON_H, GGUF_PHI3,
    GGUF_QWEN3_5, GGUF_QWEN3_NEXT, GGUF_TWO_NORMS,
};
pub(super) use recurrent::{HF_GRANITE_HYBRID, HF_KIMI_LINEAR, HF_NEMOTRON_H, HF_QWEN3_5, HF_QWEN3_NEXT};

/// A tensor's role within one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LayerTensor {
    /// Norm before attention.
    AttentionNorm,
    /// Query projection.
    Query,
    /// Key projection.
    Key,
    /// Value projection.
    Value,
    /// Attention output projection.
    AttentionOutput,
    /// Per-head norm of queries.
    QueryNorm,
    /// Per-head norm of keys.
    KeyNorm,
    /// What queries are projected from, where that is no input of the layer's, `[query rank, hidden]`.
    QueryLatent,
    /// Norm of that.
    QueryLatentNorm,
    /// Norm of latent vectors, which the value projection gives.
    LatentNorm,
    /// From latent vectors to heads' keys, `[plain, rank]` of each head.
    LatentKeys,
    /// From latent vectors to heads' values, `[value, rank]` of each head.
    LatentValues,
    /// The indexer's query projection, `[heads · elements, query rank]`.
    IndexQuery,
    /// The indexer's key projection, `[elements, hidden]`.
    IndexKey,
    /// Norm of its keys, which has biases.
    IndexKeyNorm,
    /// What the indexer's heads count, `[heads, hidden]`.
    IndexWeights,
    /// What takes part in each head's softmax without having a value, `[heads]`.
    Sinks,
    /// What each head's output is gated by, `[heads, hidden]`.
    HeadGate,
    /// Norm after attention.
    PostAttentionNorm,
    /// Norm before the feed-forward block.
    FfnNorm,
    /// Feed-forward gate projection.
    FfnGate,
    /// Feed-forward up projection.
    FfnUp,
    /// Feed-forward down projection.
    FfnDown,
    /// Scores experts, `[experts, hidden]`.
    Router,
    /// Added to experts' scores where they are chosen, `[experts]`.
    RouterCorrection,
    /// Multiplies the weights that rows give experts, `[experts]`.
    RouterScales,
    /// Norm of what the router sees, whose weights are to be divided by the root of the hidden size.
    RouterNorm,
    /// Norm before experts that are normed apart from the shared one.
    ExpertsNorm,
    /// Norm behind such experts.
    PostExpertsNorm,
    /// Norm behind the shared expert beside such.
    PostSharedNorm,
    /// An expert's gate projection, or those of all experts stacked.
    ExpertGate,
    /// An expert's up projection, or those of all experts stacked.
    ExpertUp,
    /// An expert's down projection, or those of all experts stacked.
    ExpertDown,
    /// The shared expert's gate projection.
    SharedGate,
    /// The shared expert's up projection.
    SharedUp,
    /// The shared expert's down projection.
    SharedDown,
    /// What the shared expert's result is gated by, `[1, hidden]`.
    SharedScore,
    /// Projects what states are read with.
    StateQuery,
    /// Projects what values are taken up under.
    StateKey,
    /// Projects what states take up.
    StateValue,
    /// Projects what gates what is read.
    StateGate,
    /// Projects the share that is replaced, `[heads, hidden]`.
    StateShare,
    /// Projects the time step, which states decay by, `[heads, hidden]`, or one for each element of keys.
    StateStep,
    /// What time steps are projected from, where that is no input of the layer's, `[rank, hidden]`.
    StateStepLatent,
    /// What gates are projected from, likewise.
    StateGateLatent,
    /// Projects what is read.
    StateOutput,
    /// Convolves queries, `[channels, positions]`.
    QueryConvolution,
    /// Convolves keys, likewise.
    KeyConvolution,
    /// Convolves values, likewise.
    ValueConvolution,
    /// Added to the time step, one number for each.
    StepBias,
    /// The logarithm of how fast each head's state decays, `[heads]`.
    DecayRate,
    /// What share of a value what is read has in it, `[heads]`.
    StateSkip,
    /// Norms what is read.
    StateNorm,
    /// Norm after the feed-forward block.
    PostFfnNorm,
    /// What a token's input to the layer is gated by, `[input, hidden]`.
    InputGate,
    /// From a token's input to the layer to the residual stream, `[hidden, input]`.
    InputProjection,
    /// Norm after that.
    PostInputNorm,
    /// Multiplies the residual stream behind the layer, one number.
    OutputScale,
    /// Norm of what says how residual streams are predicted and corrected.
    StreamNorm,
    /// Projects that from it, `[streams, hidden]`.
    StreamRouter,
    /// From that to what each prediction has of each stream, `[streams · streams, streams]`.
    StreamPrediction,
    /// From that to what each correction has of the active stream's change, `[streams, streams]`.
    StreamCorrection,
    /// Multiplies the active stream where it gates a token's input to the layer, `[hidden]`.
    StreamScale,
    /// The way around attention into fewer elements, `[rank, hidden]`.
    BypassDown,
    /// And out of them, `[hidden, rank]`.
    BypassUp,
    /// Norm after that.
    BypassNorm,
}

/// What layers with a state have, by whatever rule.
const OF_STATES: &[LayerTensor] = &[
    StateQuery,
    StateKey,
    StateValue,
    StateGate,
    StateStep,
    StateOutput,
    QueryConvolution,
    KeyConvolution,
    ValueConvolution,
    StepBias,
    DecayRate,
    StateNorm,
];

impl LayerTensor {
    /// The tensors a layer of this description has, biases aside.
    pub fn of(layer: &LayerSpec) -> impl Iterator<Item = LayerTensor> {
        let (attention, ffn) = (layer.attention(), &layer.ffn);
        let attends = |has: fn(&AttentionSpec) -> bool| attention.is_some_and(has);
        let own_kv = attends(AttentionSpec::has_kv);
        let block: &[_] = match (ffn.experts, ffn.activation.is_gated()) {
            (None, _) if ffn.is_absent() => &[],
            (None, true) => &[FfnGate, FfnUp, FfnDown],
            (None, false) => &[FfnUp, FfnDown],
            (Some(_), true) => &[Router, ExpertGate, ExpertUp, ExpertDown],
            (Some(_), false) => &[Router, ExpertUp, ExpertDown],
        };
        let shared: &[_] = match ffn.shared.map(|shared| shared.activation.is_gated()) {
            None => &[],
            Some(true) => &[SharedGate, SharedUp, SharedDown],
            Some(false) => &[SharedUp, SharedDown],
        };
        let state: &[_] = match layer.recurrent().map(|state| state.rule) {
            None => &[],
            Some(RecurrentRule::Delta | RecurrentRule::DeltaOfElements) => &[StateShare],
            Some(RecurrentRule::Add { .. }) => &[StateSkip],
        };
        let recurs = if layer.recurrent().is_some() { OF_STATES } else { &[] };
        let experts = |has: fn(&ExpertsSpec) -> bool| ffn.experts.as_ref().is_some_and(has);
        let optional = [
            (layer.attention_norm, AttentionNorm),
            (attends(AttentionSpec::has_norm_weights), QueryNorm),
            (attends(|a| a.has_norm_weights() && a.has_kv()), KeyNorm),
            (attends(|a| a.latent.is_some_and(|latent| latent.query_rank.is_some())), QueryLatent),
            (attends(|a| a.latent.is_some_and(|latent| latent.query_rank.is_some())), QueryLatentNorm),
            (attends(|a| a.latent.is_some()), LatentNorm),
            (attends(|a| a.latent.is_some()), LatentKeys),
            (attends(|a| a.latent.is_some()), LatentValues),
            (attends(|a| a.own_index().is_some()), IndexQuery),
            (attends(|a| a.own_index().is_some()), IndexKey),
            (attends(|a| a.own_index().is_some()), IndexKeyNorm),
            (attends(|a| a.own_index().is_some()), IndexWeights),
            (attends(|a| a.sinks), Sinks),
            (attends(|a| a.head_gate), HeadGate),
            (layer.post_attention_norm, PostAttentionNorm),
            (layer.ffn_norm, FfnNorm),
            (ffn.shared.is_some_and(|shared| shared.gated), SharedScore),
            (experts(|experts| experts.correction), RouterCorrection),
            (experts(|experts| experts.scales), RouterScales),
            (experts(|experts| experts.apart), RouterNorm),
            (experts(|experts| experts.apart), ExpertsNorm),
            (experts(|experts| experts.apart), PostExpertsNorm),
            (experts(|experts| experts.apart), PostSharedNorm),
            (layer.recurrent().is_some_and(|state| state.rank.is_some()), StateStepLatent),
            (layer.recurrent().is_some_and(|state| state.rank.is_some()), StateGateLatent),
            (layer.post_ffn_norm, PostFfnNorm),
            (layer.input.is_some(), InputGate),
            (layer.input.is_some(), InputProjection),
            (layer.input.is_some(), PostInputNorm),
            (layer.output_scale, OutputScale),
            (layer.streams.is_some(), StreamNorm),
            (layer.streams.is_some(), StreamRouter),
            (layer.streams.is_some(), StreamPrediction),
            (layer.streams.is_some(), StreamCorrection),
            (layer.streams.is_some_and(|streams| streams.scaled && layer.input.is_some()), StreamScale),
            (layer.bypass.is_some(), BypassDown),
            (layer.bypass.is_some(), BypassUp),
            (layer.bypass.is_some(), BypassNorm),
        ];
        let products = [
            (attention.is_some(), Query),
            (own_kv, Key),
            (attends(|a| a.has_kv() && !a.keys_as_values), Value),
            (attention.is_some(), AttentionOutput),
        ];
        let has = |(has, tensor): (bool, LayerTensor)| has.then_some(tensor);
        let optional = optional.into_iter().filter_map(has);
        let blocks = recurs.iter().chain(state).chain(block).chain(shared).copied();
        products.into_iter().filter_map(has).chain(blocks).chain(optional)
    }

    /// Rows and row length in a layer of this description, of experts' each one's; a vector is one row.
    pub(crate) fn shape(self, layer: &LayerSpec, hidden: usize) -> [usize; 2] {
        let (attention, ffn) = (layer.attention(), &layer.ffn);
        let (latent, index) =
            (attention.and_then(|a| a.latent), attention.and_then(AttentionSpec::own_index));
        // What the layer does not have is empty.
        let of = |size: fn(&AttentionSpec) -> usize| attention.map_or(0, size);
        let normed = |heads: fn(&AttentionSpec) -> usize| match attention {
            Some(a) if a.qk_norm == Some(QkNorm::All) => heads(a).saturating_mul(a.head_dim),
            _ => of(|a| a.head_dim),
        };
        let n_experts = ffn.experts.map_or(0, |experts| experts.n_experts);
        let shared = ffn.shared.map_or(0, |shared| shared.width);
        let input = layer.input.map_or(0, |input| input.width);
        let state = |size: fn(&RecurrentSpec) -> usize| layer.recurrent().map_or(0, size);
        let rank = layer.recurrent().and_then(|state| state.rank);
        let (streams, bypass) = (layer.streams.map_or(0, |own| own.n), layer.bypass.unwrap_or(0));
        match self {
            AttentionNorm | FfnNorm | PostAttentionNorm | PostFfnNorm | RouterNorm | ExpertsNorm
            | PostExpertsNorm | PostSharedNorm | PostInputNorm | StreamNorm | StreamScale | BypassNorm => {
                [1, hidden]
            }
            InputGate => [input, hidden],
            InputProjection => [hidden, input],
            OutputScale => [1, 1],
            StreamRouter => [streams, hidden],
            StreamPrediction => [streams.saturating_mul(streams), streams],
            StreamCorrection => [streams, streams],
            BypassDown => [bypass, hidden],
            BypassUp => [hidden, bypass],
            QueryNorm => [1, normed(|a| a.n_heads)],
            KeyNorm => [1, normed(|a| a.n_kv_heads)],
            Query => [
                of(AttentionSpec::projected_width),
                latent.and_then(|latent| latent.query_rank).unwrap_or(hidden),
            ],
            Key => [latent.map_or(of(AttentionSpec::kv_width), |latent| latent.rotated), hidden],
            Value => [latent.map_or(of(AttentionSpec::kv_width), |latent| latent.rank), hidden],
            QueryLatent => [latent.and_then(|latent| latent.query_rank).unwrap_or(0), hidden],
            QueryLatentNorm => [1, latent.and_then(|latent| latent.query_rank).unwrap_or(0)],
            IndexQuery => index.map_or([0, 0], |index| {
                let rank = latent.and_then(|latent| latent.query_rank).unwrap_or(0);
                [index.n_heads.saturating_mul(index.head_dim), rank]
            }),
            IndexKey => [index.map_or(0, |index| index.head_dim), hidden],
            IndexKeyNorm => [1, index.map_or(0, |index| index.head_dim)],
            IndexWeights => [index.map_or(0, |index| index.n_heads), hidden],
            LatentNorm => [1, latent.map_or(0, |latent| latent.rank)],
            LatentKeys => latent.map_or([0, 0], |latent| [latent.plain, latent.rank]),
            LatentValues => latent.map_or([0, 0], |latent| [latent.value, latent.rank]),
            Sinks => [1, of(|a| a.n_heads)],
            HeadGate => [of(|a| a.n_heads), hidden],
            AttentionOutput => [hidden, of(AttentionSpec::output_width)],
            FfnGate | FfnUp | ExpertGate | ExpertUp => [ffn.width, hidden],
            FfnDown | ExpertDown => [hidden, ffn.width],
            Router => [n_experts, hidden],
            RouterCorrection | RouterScales => [1, n_experts],
            SharedGate | SharedUp => [shared, hidden],
            SharedDown => [hidden, shared],
            SharedScore => [1, hidden],
            StateQuery | StateKey => [state(RecurrentSpec::key_width), hidden],
            StateValue => [state(RecurrentSpec::value_width), hidden],
            StateGate => [state(RecurrentSpec::value_width), rank.unwrap_or(hidden)],
            StateStep => [state(RecurrentSpec::steps), rank.unwrap_or(hidden)],
            StateStepLatent | StateGateLatent => [rank.unwrap_or(0), hidden],
            StateShare => [state(|state| state.n_heads), hidden],
            StateOutput => [hidden, state(RecurrentSpec::value_width)],
            QueryConvolution | KeyConvolution => {
                [state(RecurrentSpec::key_width), state(|state| state.convolution)]
            }
            ValueConvolution => [state(RecurrentSpec::value_width), state(|state| state.convolution)],
            StepBias => [1, state(RecurrentSpec::steps)],
            DecayRate | StateSkip => [1, state(|state| state.n_heads)],
            StateNorm => [1, state(RecurrentSpec::norm_width)],
        }
    }

    /// Whether it has a bias in a layer of this description.
    pub(crate) fn has_bias(self, layer: &LayerSpec) -> bool {
        match self {
            Query => layer.attention().is_some_and(|a| a.qkv_bias && a.latent.is_none()),
            Key | Value | QueryLatent => layer.attention().is_some_and(|a| a.qkv_bias),
            IndexKeyNorm => true,
            QueryConvolution | KeyConvolution | ValueConvolution => {
                layer.recurrent().is_some_and(|state| state.convolution_bias)
            }
            AttentionOutput => layer.attention().is_some_and(|a| a.output_bias),
            FfnGate | FfnUp | FfnDown | ExpertGate | ExpertUp | ExpertDown => layer.ffn.bias,
            Router => layer.ffn.experts.is_some_and(|experts| experts.router_bias),
            _ => false,
        }
    }

    /// Whether it is the weight of a norm.
    pub(crate) fn is_norm(self) -> bool {
        matches!(
            self,
            AttentionNorm
                | FfnNorm
                | PostAttentionNorm
                | PostFfnNorm
                | QueryNorm
                | KeyNorm
                | QueryLatentNorm
                | LatentNorm
                | RouterNorm
                | ExpertsNorm
                | PostExpertsNorm
                | PostSharedNorm
                | PostInputNorm
                | StreamNorm
                | BypassNorm
        )
    }

    /// Whether it belongs to the feed-forward block, which a router is not part of.
    fn is_feed_forward(&self) -> bool {
        matches!(self, FfnGate | FfnUp | FfnDown) || self.is_per_expert()
    }

    /// Whether a layer has one for each expert.
    pub(super) fn is_per_expert(self) -> bool {
        matches!(self, ExpertGate | ExpertUp | ExpertDown)
    }
}

/// A tensor's role within the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TensorRole {
    /// The token embedding table.
    Embedding,
    /// The norm before the head.
    OutputNorm,
    /// The output head.
    Head,
    /// A tensor of one layer.
    Layer {
        /// Counted from zero.
        layer: usize,
        /// What it does there.
        tensor: LayerTensor,
        /// Whose it is, where the format does not stack experts.
        expert: Option<ExpertIdx>,
        /// The bias instead of the weight.
        is_bias: bool,
    },
}

/// How one checkpoint spells its tensor names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorNames {
    /// Before everything but the output head, e.g. `model.`.
    prefix: String,
    pub(super) spelling: &'static Spelling,
    /// Experts are stacked as MLX does it, whatever the spelling says.
    is_stacked: bool,
    /// Those of the spelling's other words that the checkpoint uses.
    others: Vec<&'static Words>,
}

/// Stands for an expert's index in the roles of formats that do not stack experts.
const EXPERT: &str = "{}";
/// Ends a role's pattern behind which there is no `.weight`, and `_bias` where others have `.bias`.
const END: char = '$';

/// What stands behind such a pattern for the bias.
const BIAS: &str = "_bias";

/// How experts lie that are stacked in one tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stacks {
    /// Each is `[in, out]` rather than `[out, in]`.
    pub(crate) transposed: bool,
    /// Of those fused, outputs take turns: the first has the even ones. Else all of the first come before those of the
    /// second.
    pub(crate) alternating: bool,
}

impl Stacks {
    /// As products take them.
    const PLAIN: Self = Self { transposed: false, alternating: false };

    /// The same of a type: blocks lie along inputs, whatever floats do.
    pub(crate) fn of_type(self, dtype: DType) -> Self {
        Self { transposed: self.transposed && !dtype.is_quantised(), ..self }
    }

    /// Whether they have to be copied to be multiplied with: products with blocks can pass over rows.
    pub(crate) fn are_copied(self, dtype: DType) -> bool {
        self.of_type(dtype) != Self::PLAIN && !dtype.is_quantised()
    }
}

/// A format's words.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Spelling {
    embedding: &'static str,
    output_norm: &'static str,
    head: &'static str,
    layers: &'static str,
    stacks: Stacks,
    /// What conversions call the same, where that is more than MLX's words for stacked experts.
    others: &'static [Words],
    roles: Roles,
}

/// Other words for some of a spelling's roles, of which a checkpoint uses all or none. Experts that are called so lie as
/// products take them.
#[derive(Debug, PartialEq, Eq)]
struct Words {
    /// The first tells which a checkpoint uses.
    roles: &'static [(LayerTensor, &'static str)],
    /// Norms have in them what is added to the family's others.
    whole_norms: bool,
}

/// Each role's pattern, in groups that spellings share.
type Roles = &'static [&'static [(LayerTensor, &'static str)]];

impl Spelling {
    fn roles(&self) -> impl Iterator<Item = (LayerTensor, &'static str)> {
        self.roles.iter().copied().flatten().copied()
    }
}

impl TensorNames {
    pub(super) fn new(prefix: String, spelling: &'static Spelling) -> Self {
        Self { prefix, spelling, is_stacked: false, others: Vec::new() }
    }

    /// What stands before everything but the output head.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Name of the token embedding table, `[vocabulary, hidden]`.
    pub fn embedding(&self) -> String {
        format!("{}{}.weight", self.prefix, self.spelling.embedding)
    }

    /// Name of the norm before the head, `[hidden]`.
    pub fn output_norm(&self) -> String {
        format!("{}{}.weight", self.prefix, self.spelling.output_norm)
    }

    /// Name of the table of each token's inputs to layers, `[vocabulary, layers · input]`.
    pub fn layer_inputs(&self) -> String {
        format!("{}embed_tokens_per_layer.weight", self.prefix)
    }

    /// Name of what projects a token's embedding to inputs of layers, `[layers · input, hidden]`.
    pub fn input_projections(&self) -> String {
        format!("{}per_layer_model_projection.weight", self.prefix)
    }

    /// Name of the norm of each such projection, `[input]`.
    pub fn input_norm(&self) -> String {
        format!("{}per_layer_projection_norm.weight", self.prefix)
    }

    /// Name of what makes a residual stream of embeddings, `[hidden, hidden]`; of the first there is none.
    pub fn stream_projection(&self, stream: usize) -> String {
        format!("{}altup_projections.{}.weight", self.prefix, stream.saturating_sub(1))
    }

    /// Name of what takes a residual stream back behind the last layer, `[hidden, hidden]`; of the first there is none.
    pub fn stream_return(&self, stream: usize) -> String {
        format!("{}altup_unembed_projections.{}.weight", self.prefix, stream.saturating_sub(1))
    }

    /// Name of the output head, `[vocabulary, hidden]`; absent when tied.
    pub fn head(&self) -> String {
        // Multi-modal checkpoints keep the head beside the text model, not inside it.
        match self.prefix.strip_suffix(".model.") {
            Some(outer) => format!("{outer}.{}.weight", self.spelling.head),
            None => format!("{}.weight", self.spelling.head),
        }
    }

    /// Names of the weights that a layer of this description has, biases aside.
    pub fn weights<'a>(&'a self, layer: usize, spec: &'a LayerSpec) -> impl Iterator<Item = String> + 'a {
        self.weights_where(layer, spec, |_| true)
    }

    /// The tensors of such a layer that lie in one with this one, itself among them, in the order of their rows. Most lie
    /// alone.
    pub(crate) fn fused<'a>(
        &'a self,
        layer: &'a LayerSpec,
        tensor: LayerTensor,
    ) -> impl Iterator<Item = LayerTensor> + 'a {
        let own = self.pattern(tensor);
        let same = self.roles().filter(move |(_, pattern)| *pattern == own).map(|(tensor, _)| tensor);
        same.filter(|tensor| LayerTensor::of(layer).any(|other| other == *tensor))
    }

    /// Those of its feed-forward block.
    pub(crate) fn feed_forward<'a>(
        &'a self,
        layer: usize,
        spec: &'a LayerSpec,
    ) -> impl Iterator<Item = String> + 'a {
        self.weights_where(layer, spec, LayerTensor::is_feed_forward)
    }

    fn weights_where<'a>(
        &'a self,
        layer: usize,
        spec: &'a LayerSpec,
        wanted: fn(&LayerTensor) -> bool,
    ) -> impl Iterator<Item = String> + 'a {
        // Of those that are fused, the first stands for all.
        let is_first =
            |tensor: &LayerTensor| self.fused(spec, *tensor).next().is_none_or(|first| first == *tensor);
        LayerTensor::of(spec).filter(wanted).filter(is_first).flat_map(move |tensor| {
            let n = match spec.ffn.experts {
                Some(experts) if tensor.is_per_expert() && !self.stacks_experts() => experts.n_experts,
                _ => 1,
            };
            (0..n).map(move |expert| match tensor.is_per_expert() {
                true => self.expert_weight(layer, tensor, ExpertIdx(expert)),
                false => self.weight(layer, tensor),
            })
        })
    }

    /// Whether a layer's experts are stacked in one tensor, `[experts, out, in]`, rather than in
    /// tensors of their own.
    pub fn stacks_experts(&self) -> bool {
        !self.roles().any(|(_, pattern)| pattern.contains(EXPERT))
    }

    /// The same names but for one of the ways in which conversions call tensors otherwise, and the role whose tensor tells
    /// whether a checkpoint does; `None` behind the last.
    pub(super) fn variant(&self, at: usize) -> Option<(LayerTensor, Self)> {
        if let Some(words) = self.spelling.others.get(at) {
            let (sign, _) = words.roles.first()?;
            let others = self.others.iter().copied().chain([words]).collect();
            return Some((*sign, Self { others, ..self.clone() }));
        }
        let stacked = || (ExpertUp, Self { is_stacked: true, ..self.clone() });
        (at == self.spelling.others.len() && !self.stacks_experts()).then(stacked)
    }

    /// Whether norms have in them what is added to the family's others.
    pub(super) fn whole_norms(&self) -> bool {
        self.others.iter().any(|words| words.whole_norms)
    }

    /// How stacked experts lie.
    pub(crate) fn stacks(&self) -> Stacks {
        if self.other(ExpertUp).is_some() { Stacks::PLAIN } else { self.spelling.stacks }
    }

    /// Name of the tensor that holds an expert's weight, alone or among others.
    pub fn expert_weight(&self, layer: usize, tensor: LayerTensor, expert: ExpertIdx) -> String {
        self.weight(layer, tensor).replacen(EXPERT, &expert.to_string(), 1)
    }

    /// Name of a layer's weight.
    pub fn weight(&self, layer: usize, tensor: LayerTensor) -> String {
        self.layer(layer, tensor, "weight")
    }

    /// Name of a dense layer's down projection by features, `[features, hidden]`, which vindex folders may have beside
    /// it: what each feature adds to the output, in one row.
    pub(crate) fn down_features(&self, layer: usize) -> String {
        format!("{}{}.{layer}.mlp.down_features.weight", self.prefix, self.spelling.layers)
    }

    /// Name of a layer's bias.
    pub fn bias(&self, layer: usize, tensor: LayerTensor) -> String {
        self.layer(layer, tensor, "bias")
    }

    /// What a name stands for here; `None` for what no model of these names has.
    pub(crate) fn role(&self, name: &str) -> Option<TensorRole> {
        let whole = [TensorRole::Embedding, TensorRole::OutputNorm, TensorRole::Head];
        whole.into_iter().chain(self.layer_role(name)).find(|&role| self.name(role) == name)
    }

    fn layer_role(&self, name: &str) -> Option<TensorRole> {
        let rest = name.strip_prefix(&self.prefix)?.strip_prefix(self.spelling.layers)?.strip_prefix('.')?;
        let (layer, rest) = rest.split_once('.')?;
        let layer = layer.parse().ok()?;
        self.roles().find_map(|(tensor, pattern)| {
            let (pattern, word, is_bias) = match pattern.strip_suffix(END) {
                Some(whole) => match rest.strip_suffix(BIAS).filter(|word| *word == whole) {
                    Some(word) => (whole, word, true),
                    None => (whole, rest, false),
                },
                None => {
                    let (word, kind) = rest.rsplit_once('.')?;
                    let is_bias = ["weight", "bias"].iter().position(|known| *known == kind)? == 1;
                    (&*pattern, word, is_bias)
                }
            };
            let expert = match pattern.split_once(EXPERT) {
                Some((before, after)) => {
                    Some(ExpertIdx(word.strip_prefix(before)?.strip_suffix(after)?.parse().ok()?))
                }
                None => (word == pattern).then_some(None)?,
            };
            Some(TensorRole::Layer { layer, tensor, expert, is_bias })
        })
    }

    /// The name of a role; of an expert's tensor that is stacked, of the stack.
    pub(crate) fn name(&self, role: TensorRole) -> String {
        match role {
            TensorRole::Embedding => self.embedding(),
            TensorRole::OutputNorm => self.output_norm(),
            TensorRole::Head => self.head(),
            TensorRole::Layer { layer, tensor, expert, is_bias } => {
                let name = if is_bias { self.bias(layer, tensor) } else { self.weight(layer, tensor) };
                expert.map_or_else(|| name.clone(), |expert| name.replacen(EXPERT, &expert.to_string(), 1))
            }
        }
    }

    fn layer(&self, layer: usize, tensor: LayerTensor, kind: &str) -> String {
        let Self { prefix, spelling, .. } = self;
        let pattern = self.pattern(tensor);
        match pattern.strip_suffix(END) {
            Some(whole) => {
                let end = if kind == "bias" { BIAS } else { "" };
                format!("{prefix}{}.{layer}.{whole}{end}", spelling.layers)
            }
            None => format!("{prefix}{}.{layer}.{pattern}.{kind}", spelling.layers),
        }
    }

    fn pattern(&self, tensor: LayerTensor) -> Cow<'static, str> {
        self.roles().find(|(t, _)| *t == tensor).map_or("?".into(), |(_, pattern)| pattern)
    }

    /// The pattern of a role in other words than the spelling's.
    fn other(&self, tensor: LayerTensor) -> Option<&'static str> {
        let mut roles = self.others.iter().flat_map(|words| words.roles);
        roles.find(|(other, _)| *other == tensor).map(|(_, pattern)| *pattern)
    }

    fn roles(&self) -> impl Iterator<Item = (LayerTensor, Cow<'static, str>)> {
        self.spelling.roles().map(|(tensor, pattern)| {
            if let Some(other) = self.other(tensor) {
                return (tensor, other.into());
            }
            let stacked = pattern.split_once("experts.{}.").filter(|_| self.is_stacked);
            match stacked.and_then(|(before, _)| Some((before, mlx::switch(tensor, self.spelling)?))) {
                Some((before, word)) => (tensor, format!("{before}switch_mlp.{word}").into()),
                None => (tensor, pattern.into()),
            }
        })
    }
}

/// What Hugging Face's families have in common.
const fn hugging_face(roles: Roles) -> Spelling {
    Spelling {
        embedding: "embed_tokens",
        output_norm: "norm",
        head: "lm_head",
        layers: "layers",
        stacks: Stacks::PLAIN,
        others: &[],
        roles,
    }
}

/// The same of those that conversions call otherwise.
const fn hugging_face_or(others: &'static [Words], roles: Roles) -> Spelling {
    Spelling { others, ..hugging_face(roles) }
}

const HF_ATTENTION: &[(LayerTensor, &str)] = &[
    (AttentionNorm, "input_layernorm"),
    (Query, "self_attn.q_proj"),
    (Key, "self_attn.k_proj"),
    (Value, "self_attn.v_proj"),
    (AttentionOutput, "self_attn.o_proj"),
    (QueryNorm, "self_attn.q_norm"),
    (KeyNorm, "self_attn.k_norm"),
];

const HF_DENSE: &[(LayerTensor, &str)] =
    &[(FfnGate, "mlp.gate_proj"), (FfnUp, "mlp.up_proj"), (FfnDown, "mlp.down_proj")];

/// Hugging Face llama, qwen3 and qwen3_moe.
pub(super) static HF_LLAMA: Spelling = hugging_face(&[
    HF_ATTENTION,
    HF_DENSE,
    &[
        (FfnNorm, "post_attention_layernorm"),
        (Router, "mlp.gate"),
        (ExpertGate, "mlp.experts.{}.gate_proj"),
        (ExpertUp, "mlp.experts.{}.up_proj"),
        (ExpertDown, "mlp.experts.{}.down_proj"),
    ],
]);

/// Hugging Face mixtral.
pub(super) static HF_MIXTRAL: Spelling = hugging_face(&[
    HF_ATTENTION,
    &[
        (FfnNorm, "post_attention_layernorm"),
        (Router, "block_sparse_moe.gate"),
        (ExpertGate, "block_sparse_moe.experts.{}.w1"),
        (ExpertUp, "block_sparse_moe.experts.{}.w3"),
        (ExpertDown, "block_sparse_moe.experts.{}.w2"),
    ],
]);

/// Hugging Face gemma3: four norms a layer, so `post_attention_layernorm` means another one.
pub(super) static HF_GEMMA3: Spelling = hugging_face(&[
    HF_ATTENTION,
    HF_DENSE,
    &[
        (PostAttentionNorm, "post_attention_layernorm"),
        (FfnNorm, "pre_feedforward_layernorm"),
        (PostFfnNorm, "post_feedforward_layernorm"),
    ],
]);

/// Hugging Face phi3: what the same input is multiplied with lies in one tensor.
pub(super) static HF_PHI3: Spelling = hugging_face(&[
    &[
        (AttentionNorm, "input_layernorm"),
        (Query, "self_attn.qkv_proj"),
        (Key, "self_attn.qkv_proj"),
        (Value, "self_attn.qkv_proj"),
        (AttentionOutput, "self_attn.o_proj"),
        (FfnNorm, "post_attention_layernorm"),
    ],
    HF_FUSED_DENSE,
]);

const HF_FUSED_DENSE: &[(LayerTensor, &str)] =
    &[(FfnGate, "mlp.gate_up_proj"), (FfnUp, "mlp.gate_up_proj"), (FfnDown, "mlp.down_proj")];

/// Hugging Face glm4.
pub(super) static HF_GLM4: Spelling = hugging_face(&[
    HF_ATTENTION,
    HF_FUSED_DENSE,
    &[
        (PostAttentionNorm, "post_self_attn_layernorm"),
        (FfnNorm, "post_attention_layernorm"),
        (PostFfnNorm, "post_mlp_layernorm"),
    ],
]);

/// What DeepSeek-V3 has behind attention, and who took its words over.
const HF_DEEPSEEK_EXPERTS: &[(LayerTensor, &str)] = &[
    (FfnNorm, "post_attention_layernorm"),
    (Router, "mlp.gate"),
    (RouterCorrection, "mlp.gate.e_score_correction_bias$"),
    (ExpertGate, "mlp.experts.{}.gate_proj"),
    (ExpertUp, "mlp.experts.{}.up_proj"),
    (ExpertDown, "mlp.experts.{}.down_proj"),
    (SharedGate, "mlp.shared_experts.gate_proj"),
    (SharedUp, "mlp.shared_experts.up_proj"),
    (SharedDown, "mlp.shared_experts.down_proj"),
];

/// Hugging Face glm4_moe.
pub(super) static HF_GLM4_MOE: Spelling = hugging_face(&[HF_ATTENTION, HF_DENSE, HF_DEEPSEEK_EXPERTS]);

/// What attention to latent vectors has but for queries. In one tensor lie projections to latent vectors and to the part of
/// keys beside them; in another those of latent vectors to keys and values, of head after head.
const HF_LATENT: &[(LayerTensor, &str)] = &[
    (AttentionNorm, "input_layernorm"),
    (Value, "self_attn.kv_a_proj_with_mqa"),
    (Key, "self_attn.kv_a_proj_with_mqa"),
    (LatentNorm, "self_attn.kv_a_layernorm"),
    (LatentKeys, "self_attn.kv_b_proj"),
    (LatentValues, "self_attn.kv_b_proj"),
    (AttentionOutput, "self_attn.o_proj"),
];

/// Hugging Face deepseek_v3, kimi_k2 and glm4_moe_lite.
pub(super) static HF_DEEPSEEK: Spelling = hugging_face_or(
    mlx::HEADS,
    &[
        HF_LATENT,
        &[
            (QueryLatent, "self_attn.q_a_proj"),
            (QueryLatentNorm, "self_attn.q_a_layernorm"),
            (Query, "self_attn.q_b_proj"),
        ],
        HF_DENSE,
        HF_DEEPSEEK_EXPERTS,
    ],
);

/// Hugging Face deepseek_v32 and glm_moe_dsa.
pub(super) static HF_DEEPSEEK_SPARSE: Spelling = hugging_face_or(
    mlx::HEADS,
    &[
        HF_LATENT,
        &[
            (QueryLatent, "self_attn.q_a_proj"),
            (QueryLatentNorm, "self_attn.q_a_layernorm"),
            (Query, "self_attn.q_b_proj"),
            (IndexQuery, "self_attn.indexer.wq_b"),
            (IndexKey, "self_attn.indexer.wk"),
            (IndexKeyNorm, "self_attn.indexer.k_norm"),
            (IndexWeights, "self_attn.indexer.weights_proj"),
        ],
        HF_DENSE,
        HF_DEEPSEEK_EXPERTS,
    ],
);

/// The same where queries are projected from the layer's input.
pub(super) static HF_DEEPSEEK_PLAIN: Spelling =
    hugging_face_or(mlx::HEADS, &[HF_LATENT, &[(Query, "self_attn.q_proj")], HF_DENSE, HF_DEEPSEEK_EXPERTS]);

/// Hugging Face minimax_m2.
pub(super) static HF_MINIMAX: Spelling = hugging_face(&[
    HF_ATTENTION,
    &[
        (FfnNorm, "post_attention_layernorm"),
        (Router, "block_sparse_moe.gate"),
        (RouterCorrection, "block_sparse_moe.e_score_correction_bias$"),
        (ExpertGate, "block_sparse_moe.experts.{}.w1"),
        (ExpertUp, "block_sparse_moe.experts.{}.w3"),
        (ExpertDown, "block_sparse_moe.experts.{}.w2"),
    ],
]);

/// Hugging Face step3p5, whose experts are stacked.
pub(super) static HF_STEP3P5: Spelling = hugging_face_or(
    mlx::STEP3P5,
    &[
        HF_ATTENTION,
        HF_DENSE,
        &[
            (HeadGate, "self_attn.g_proj"),
            (FfnNorm, "post_attention_layernorm"),
            (Router, "moe.gate"),
            (RouterCorrection, "moe.router_bias$"),
            (ExpertGate, "moe.gate_proj"),
            (ExpertUp, "moe.up_proj"),
            (ExpertDown, "moe.down_proj"),
            (SharedGate, "share_expert.gate_proj"),
            (SharedUp, "share_expert.up_proj"),
            (SharedDown, "share_expert.down_proj"),
        ],
    ],
);

const HF_GEMMA4_LAYER: &[(LayerTensor, &str)] = &[
    (PostAttentionNorm, "post_attention_layernorm"),
    (FfnNorm, "pre_feedforward_layernorm"),
    (PostFfnNorm, "post_feedforward_layernorm"),
    (InputGate, "per_layer_input_gate"),
    (InputProjection, "per_layer_projection"),
    (PostInputNorm, "post_per_layer_input_norm"),
    (OutputScale, "layer_scalar$"),
];

/// Hugging Face gemma3n.
pub(super) static HF_GEMMA3N: Spelling = hugging_face(&[
    HF_ATTENTION,
    HF_DENSE,
    HF_GEMMA4_LAYER,
    &[
        (StreamNorm, "altup.router_norm"),
        (StreamRouter, "altup.modality_router"),
        (StreamPrediction, "altup.prediction_coefs"),
        (StreamCorrection, "altup.correction_coefs"),
        (StreamScale, "altup.correct_output_scale$"),
        (BypassDown, "laurel.linear_left"),
        (BypassUp, "laurel.linear_right"),
        (BypassNorm, "laurel.post_laurel_norm"),
    ],
]);

/// Hugging Face gemma4 without experts.
pub(super) static HF_GEMMA4: Spelling = hugging_face(&[HF_ATTENTION, HF_DENSE, HF_GEMMA4_LAYER]);

/// Hugging Face gemma4 with experts, beside which the dense block is the shared one.
pub(super) static HF_GEMMA4_MOE: Spelling = hugging_face_or(
    mlx::GEMMA4_MOE,
    &[
        HF_ATTENTION,
        HF_GEMMA4_LAYER,
        &[
            (Router, "router.proj"),
            (RouterNorm, "router.scale$"),
            (RouterScales, "router.per_expert_scale$"),
            (ExpertsNorm, "pre_feedforward_layernorm_2"),
            (ExpertGate, "experts.gate_up_proj$"),
            (ExpertUp, "experts.gate_up_proj$"),
            (ExpertDown, "experts.down_proj$"),
            (PostExpertsNorm, "post_feedforward_layernorm_2"),
            (SharedGate, "mlp.gate_proj"),
            (SharedUp, "mlp.up_proj"),
            (SharedDown, "mlp.down_proj"),
            (PostSharedNorm, "post_feedforward_layernorm_1"),
        ],
    ],
);

/// Hugging Face gpt_oss, whose experts are stacked in columns, those of gates and ups in turns.
pub(super) static HF_GPT_OSS: Spelling = Spelling {
    stacks: Stacks { transposed: true, alternating: true },
    ..hugging_face_or(
        mlx::GPT_OSS,
        &[
            HF_ATTENTION,
            &[
                (Sinks, "self_attn.sinks$"),
                (FfnNorm, "post_attention_layernorm"),
                (Router, "mlp.router"),
                (ExpertGate, "mlp.experts.gate_up_proj$"),
                (ExpertUp, "mlp.experts.gate_up_proj$"),
                (ExpertDown, "mlp.experts.down_proj$"),
            ],
        ],
    )
};

/// Hugging Face llama4_text, whose experts are stacked in columns, gates before ups.
pub(super) static HF_LLAMA4: Spelling = Spelling {
    stacks: Stacks { transposed: true, alternating: false },
    ..hugging_face_or(
        mlx::LLAMA4,
        &[
            HF_ATTENTION,
            &[
                (FfnNorm, "post_attention_layernorm"),
                (FfnGate, "feed_forward.gate_proj"),
                (FfnUp, "feed_forward.up_proj"),
                (FfnDown, "feed_forward.down_proj"),
                (Router, "feed_forward.router"),
                (SharedGate, "feed_forward.shared_expert.gate_proj"),
                (SharedUp, "feed_forward.shared_expert.up_proj"),
                (SharedDown, "feed_forward.shared_expert.down_proj"),
                (ExpertGate, "feed_forward.experts.gate_up_proj$"),
                (ExpertUp, "feed_forward.experts.gate_up_proj$"),
                (ExpertDown, "feed_forward.experts.down_proj$"),
            ],
        ],
    )
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_understood_as_they_are_written() {
        let all = [
            &GGUF,
            &GGUF_DEEPSEEK,
            &GGUF_DEEPSEEK_PLAIN,
            &GGUF_FUSED,
            &GGUF_GRANITE_HYBRID,
            &GGUF_NEMOTRON_H,
            &GGUF_PHI3,
            &GGUF_QWEN3_5,
            &GGUF_QWEN3_NEXT,
            &GGUF_TWO_NORMS,
            &HF_LLAMA,
            &HF_MIXTRAL,
            &HF_GEMMA3,
            &HF_GEMMA3N,
            &HF_GEMMA4,
            &HF_GLM4_MOE,
            &HF_MINIMAX,
            &HF_STEP3P5,
            &HF_DEEPSEEK_SPARSE,
            &HF_NEMOTRON_H,
        ];
        for spelling in all {
            for prefix in ["", "model.", "language_model.model."] {
                let names = TensorNames::new(prefix.to_owned(), spelling);
                are_understood(&names);
                variants(&names).iter().for_each(are_understood);
            }
        }
        let gpt_oss = TensorNames::new(String::new(), &HF_GPT_OSS);
        variants(&gpt_oss).iter().for_each(are_understood);
        let names = TensorNames::new(String::new(), &HF_MIXTRAL);
        for other in [
            "",
            "norm",
            "model.norm.weight",
            "layers.03.input_layernorm.weight",
            "layers.3.input_layernorm.scale",
            "layers.3.block_sparse_moe.experts.+1.w1.weight",
            "layers.3.block_sparse_moe.experts.{}.w1.weight",
            "layers.99999999999999999999.input_layernorm.weight",
        ] {
            assert_eq!(names.role(other), None, "{other}");
        }
        let (_, stacked) = names.variant(0).unwrap();
        let up = "layers.3.block_sparse_moe.switch_mlp.up_proj.weight";
        assert_eq!(stacked.weight(3, ExpertUp), up);
        assert!(stacked.stacks_experts() && stacked.variant(0).is_none());
    }

    /// Ways of calling tensors otherwise do not exclude each other.
    #[test]
    fn words_go_together() {
        let names = TensorNames::new("model.".to_owned(), &HF_DEEPSEEK);
        let (sign, by_head) = names.variant(0).unwrap();
        assert_eq!((sign, by_head.stacks_experts()), (LatentKeys, false));
        assert_eq!(by_head.weight(1, LatentKeys), "model.layers.1.self_attn.embed_q.weight");
        assert_eq!(by_head.weight(1, LatentValues), "model.layers.1.self_attn.unembed_out.weight");
        let (sign, both) = by_head.variant(1).unwrap();
        assert_eq!((sign, both.stacks_experts()), (ExpertUp, true));
        assert_eq!(both.weight(1, LatentKeys), by_head.weight(1, LatentKeys));
        assert_eq!(both.weight(1, ExpertDown), "model.layers.1.mlp.switch_mlp.down_proj.weight");
        assert!(both.variant(1).is_none() && both.variant(2).is_none());

        let names = TensorNames::new("backbone.".to_owned(), &HF_NEMOTRON_H);
        let (_, stacked) = names.variant(0).unwrap();
        assert_eq!(stacked.weight(2, ExpertUp), "backbone.layers.2.mixer.switch_mlp.fc1.weight");
        assert_eq!(stacked.weight(2, ExpertDown), "backbone.layers.2.mixer.switch_mlp.fc2.weight");
    }

    /// Every way in which conversions call tensors otherwise, alone.
    fn variants(names: &TensorNames) -> Vec<TensorNames> {
        (0..).map_while(|at| names.variant(at)).map(|(_, names)| names).collect()
    }

    #[test]
    fn heads_are_beside_text_models() {
        for (prefix, expected) in [
            ("", "lm_head.weight"),
            ("model.", "lm_head.weight"),
            ("model.language_model.", "lm_head.weight"),
            ("language_model.model.", "language_model.lm_head.weight"),
        ] {
            assert_eq!(TensorNames::new(prefix.to_owned(), &HF_LLAMA).head(), expected, "{prefix}");
        }
    }

    fn are_understood(names: &TensorNames) {
        let mut roles = vec![TensorRole::Embedding, TensorRole::OutputNorm, TensorRole::Head];
        for (tensor, pattern) in names.roles() {
            let expert = pattern.contains(EXPERT).then_some(ExpertIdx(12));
            let biases: &[bool] = if pattern.ends_with(END) { &[false] } else { &[false, true] };
            roles.extend(biases.iter().map(|&is_bias| TensorRole::Layer {
                layer: 3,
                tensor,
                expert,
                is_bias,
            }));
        }
        for role in roles {
            // Roles may share a tensor, as keys and values of latent attention do.
            let name = names.name(role);
            let found = names.role(&name).map(|role| names.name(role));
            assert_eq!(found.as_ref(), Some(&name), "{role:?}");
        }
    }
}
