//! Which weights has a layer beside its experts? All that the decoder computes with, loaded by its description.

use super::inputs::InputWeights;
use super::latent::Latent;
use super::load::Loader;
use super::recurrent::Recurrent;
use super::streams::{Bypass, Streams};
use crate::arch::{self, AttentionSpec, LayerTensor as T, SharedExpert};
use crate::engine::KvType;
use crate::engine::backend::{Backend, Expected};
use crate::error::Result;

/// One layer's weights, but for those of its feed-forward block, see [`Split`](super::split::Split).
pub(super) struct Layer<B: Backend> {
    pub(super) attention_norm: Option<B::Vector>,
    pub(super) mixer: Mixer<B>,
    pub(super) post_attention_norm: Option<B::Vector>,
    pub(super) ffn_norm: Option<B::Vector>,
    /// Where the layer has experts.
    pub(super) router: Option<Router<B>>,
    pub(super) shared: Option<Shared<B>>,
    pub(super) post_ffn_norm: Option<B::Vector>,
    pub(super) input: Option<InputWeights<B>>,
    /// Multiplies the residual stream behind the layer.
    pub(super) output_scale: f32,
    pub(super) streams: Option<Streams<B>>,
    pub(super) bypass: Option<Bypass<B>>,
}

/// What a layer mixes positions with.
pub(super) enum Mixer<B: Backend> {
    Attention(Attention<B>),
    Recurrent(Recurrent<B>),
    Nothing,
}

/// The weights of attention.
pub(super) struct Attention<B: Backend> {
    pub(super) query: B::Matrix,
    /// Where the layer has keys and values of its own.
    pub(super) key: Option<B::Matrix>,
    pub(super) value: Option<B::Matrix>,
    /// Norms of queries and of keys.
    pub(super) qk_norms: [Option<B::Vector>; 2],
    /// Ones, for values.
    pub(super) value_norm: Option<B::Vector>,
    pub(super) latent: Option<Latent<B>>,
    pub(super) sinks: Option<B::Vector>,
    pub(super) head_gate: Option<B::Matrix>,
    pub(super) output: B::Matrix,
}

/// The expert that all rows take.
pub(super) struct Shared<B: Backend> {
    pub(super) spec: SharedExpert,
    /// Where its activation has one.
    pub(super) gate: Option<B::Matrix>,
    pub(super) up: B::Matrix,
    pub(super) down: B::Matrix,
    /// What its result is gated by.
    pub(super) score: Option<B::Matrix>,
}

/// What scores experts.
pub(super) struct Router<B: Backend> {
    pub(super) matrix: B::Matrix,
    pub(super) correction: Option<B::Vector>,
    pub(super) scales: Option<B::Vector>,
    pub(super) apart: Option<Apart<B>>,
}

/// Norms of a layer whose router, experts and shared expert have their own.
pub(super) struct Apart<B: Backend> {
    pub(super) router: B::Vector,
    pub(super) experts: B::Vector,
    pub(super) behind_experts: B::Vector,
    pub(super) behind_shared: B::Vector,
}

impl<B: Backend> Layer<B> {
    /// Its states' weights, where it has states.
    pub(super) fn recurrent(&self) -> Option<&Recurrent<B>> {
        match &self.mixer {
            Mixer::Recurrent(recurrent) => Some(recurrent),
            Mixer::Attention(_) | Mixer::Nothing => None,
        }
    }

    pub(super) fn load(loader: &mut Loader<'_, B>, layer: usize, keys: KvType) -> Result<Self> {
        let arch = loader.arch;
        let spec = &arch.layers[layer];
        // What the residual stream takes of a block is scaled where it is normed.
        let mut norm_if =
            |wanted: bool, tensor, scale| wanted.then(|| loader.layer_norm(layer, tensor, scale)).transpose();
        let attention_norm = norm_if(spec.attention_norm, T::AttentionNorm, 1.0)?;
        let ffn_norm = norm_if(spec.ffn_norm, T::FfnNorm, 1.0)?;
        let post_attention_norm =
            norm_if(spec.post_attention_norm, T::PostAttentionNorm, arch.residual_scale)?;
        let post_ffn_norm = norm_if(spec.post_ffn_norm, T::PostFfnNorm, arch.residual_scale)?;
        let mixer = match &spec.mixer {
            arch::Mixer::Nothing => Mixer::Nothing,
            arch::Mixer::Attention(attention) => {
                Mixer::Attention(Attention::load(loader, layer, attention, keys)?)
            }
            arch::Mixer::Recurrent(recurrent) => Mixer::Recurrent(Recurrent::load(loader, layer, recurrent)?),
        };
        let shared = match spec.ffn.shared {
            Some(spec) => {
                let mut matrix = |tensor| loader.layer_matrix(layer, tensor);
                Some(Shared {
                    spec,
                    gate: spec.activation.is_gated().then(|| matrix(T::SharedGate)).transpose()?,
                    up: matrix(T::SharedUp)?,
                    down: matrix(T::SharedDown)?,
                    score: spec.gated.then(|| matrix(T::SharedScore)).transpose()?,
                })
            }
            None => None,
        };
        let router = Router::load(loader, layer)?;
        let scorer = router.as_ref().filter(|router| router.apart.is_none()).map(|router| &router.matrix);
        // In the order in which a step has them.
        let products = shared.iter().flat_map(|shared: &Shared<B>| {
            [shared.gate.as_ref(), Some(&shared.up), shared.score.as_ref()].into_iter().flatten()
        });
        loader.backend.expect(Expected::Products(&products.chain(scorer).collect::<Vec<_>>()))?;
        let output_scale = match spec.output_scale {
            true => loader.layer_values(layer, T::OutputScale)?.first().copied().unwrap_or(1.0),
            false => 1.0,
        };
        Ok(Self {
            attention_norm,
            mixer,
            post_attention_norm,
            ffn_norm,
            router,
            shared,
            post_ffn_norm,
            input: spec.input.map(|_| InputWeights::load(loader, layer)).transpose()?,
            output_scale,
            streams: spec.streams.map(|streams| Streams::load(loader, layer, streams)).transpose()?,
            bypass: spec.bypass.map(|_| Bypass::load(loader, layer)).transpose()?,
        })
    }
}

impl<B: Backend> Attention<B> {
    fn load(loader: &mut Loader<'_, B>, layer: usize, spec: &AttentionSpec, keys: KvType) -> Result<Self> {
        let query = loader.layer_matrix(layer, T::Query)?;
        let mut matrix_if =
            |wanted: bool, tensor| wanted.then(|| loader.layer_matrix(layer, tensor)).transpose();
        let key = matrix_if(spec.has_kv(), T::Key)?;
        let value = matrix_if(spec.has_kv() && !spec.keys_as_values, T::Value)?;
        let head_gate = matrix_if(spec.head_gate, T::HeadGate)?;
        let qk_norms = match spec.qk_norm {
            Some(_) => loader.head_norms(layer, spec, keys)?,
            None => [None, None],
        };
        let ones = || loader.backend.vector(vec![1.0; spec.head_dim]);
        let latent = spec.latent.map(|latent| Latent::load(loader, layer, (spec, latent))).transpose()?;
        let first = latent.as_ref().map_or(&query, |latent| latent.first(&query));
        let products = [Some(first), key.as_ref(), value.as_ref()];
        loader.backend.expect(Expected::Products(&products.into_iter().flatten().collect::<Vec<_>>()))?;
        Ok(Self {
            query,
            key,
            value,
            qk_norms,
            value_norm: (spec.value_norm && spec.has_kv()).then(ones).transpose()?,
            latent,
            sinks: spec.sinks.then(|| loader.layer_vector(layer, T::Sinks)).transpose()?,
            head_gate,
            output: loader.layer_matrix(layer, T::AttentionOutput)?,
        })
    }
}

impl<B: Backend> Router<B> {
    fn load(loader: &mut Loader<'_, B>, layer: usize) -> Result<Option<Self>> {
        let arch = loader.arch;
        let Some(experts) = arch.layers[layer].ffn.experts else { return Ok(None) };
        let mut vector_if =
            |wanted: bool, tensor| wanted.then(|| loader.layer_vector(layer, tensor)).transpose();
        let correction = vector_if(experts.correction, T::RouterCorrection)?;
        let scales = vector_if(experts.scales, T::RouterScales)?;
        let mut norm = |tensor, scale| loader.layer_norm(layer, tensor, scale);
        let apart = match experts.apart {
            true => Some(Apart {
                router: norm(T::RouterNorm, (arch.hidden_size as f32).sqrt().recip())?,
                experts: norm(T::ExpertsNorm, 1.0)?,
                behind_experts: norm(T::PostExpertsNorm, 1.0)?,
                behind_shared: norm(T::PostSharedNorm, 1.0)?,
            }),
            false => None,
        };
        Ok(Some(Self { matrix: loader.layer_matrix(layer, T::Router)?, correction, scales, apart }))
    }
}
