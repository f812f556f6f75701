//! How large is this tensor in a layer of this description?

use super::LayerTensor::{
    self, AttentionNorm, AttentionOutput, BypassDown, BypassNorm, BypassUp, DecayRate, ExpertDown,
    ExpertGate, ExpertUp, ExpertsNorm, FfnDown, FfnGate, FfnNorm, FfnUp, HeadGate, IndexKey, IndexKeyNorm,
    IndexQuery, IndexWeights, InputGate, InputProjection, Key, KeyConvolution, KeyNorm, LatentKeys,
    LatentNorm, LatentValues, OutputScale, PostAttentionNorm, PostExpertsNorm, PostFfnNorm, PostInputNorm,
    PostSharedNorm, Query, QueryConvolution, QueryLatent, QueryLatentNorm, QueryNorm, Router,
    RouterCorrection, RouterNorm, RouterScales, SharedDown, SharedGate, SharedScore, SharedUp, Sinks,
    StateGate, StateGateLatent, StateKey, StateNorm, StateOutput, StateQuery, StateShare, StateSkip,
    StateStep, StateStepLatent, StateValue, StepBias, StreamCorrection, StreamNorm, StreamPrediction,
    StreamRouter, StreamScale, Value, ValueConvolution,
};
use crate::arch::{AttentionSpec, LayerSpec, QkNorm, RecurrentSpec};

impl LayerTensor {
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
        let taken = if attention.is_some_and(|own| own.beside_embedding) { 2 } else { 1 };
        let taken = hidden.saturating_mul(taken);
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
                latent.and_then(|latent| latent.query_rank).unwrap_or(taken),
            ],
            Key => [latent.map_or(of(AttentionSpec::kv_width), |latent| latent.rotated), taken],
            Value => [latent.map_or(of(AttentionSpec::kv_width), |latent| latent.rank), taken],
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
}
