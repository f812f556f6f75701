//! What does this tensor do within its layer, and which of them has a layer?

use crate::arch::{AttentionSpec, ExpertsSpec, LayerSpec, RecurrentRule};
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
    pub(super) fn is_feed_forward(&self) -> bool {
        matches!(self, FfnGate | FfnUp | FfnDown) || self.is_per_expert()
    }

    /// Whether it belongs to the expert that every token takes.
    pub(super) fn is_shared_expert(&self) -> bool {
        matches!(self, SharedGate | SharedUp | SharedDown | SharedScore)
    }

    /// Whether it belongs to the router.
    pub(super) fn is_router(&self) -> bool {
        matches!(self, Router | RouterCorrection | RouterScales | RouterNorm)
    }

    /// Whether a layer has one for each expert.
    pub(in crate::arch) fn is_per_expert(self) -> bool {
        matches!(self, ExpertGate | ExpertUp | ExpertDown)
    }
}
