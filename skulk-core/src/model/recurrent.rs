//! How do layers with states change them? Projections, as they are stored, and small vectors.

use super::decoder::{Decoder, TOGETHER, linear};
use super::load::Loader;
use super::workspace::Workspace;
use crate::arch::{Interleaved, LayerTensor as T, RecurrentSpec, StoredDecay};
use crate::engine::backend::{Backend, Expected, Recur, StatePart, StateParts, StateVectors};
use crate::error::{Error, ErrorKind, Result};
use crate::math;

/// The weights of a layer with states.
pub(super) struct Recurrent<B: Backend> {
    /// What the layer's input is multiplied with, each once, whatever of it is what.
    pub(super) projections: Vec<Projection<B>>,
    pub(super) parts: StateParts,
    pub(super) vectors: StateVectors<B>,
    pub(super) output: B::Matrix,
}

/// What gives one product of a row.
pub(super) struct Projection<B: Backend> {
    /// From the layer's input to what is multiplied instead.
    pub(super) latent: Option<B::Matrix>,
    pub(super) matrix: B::Matrix,
    /// What it gives of a row.
    width: usize,
}

/// Buffers of a step for layers with states.
pub(super) struct Room<B: Backend> {
    /// One for each projection of a layer.
    pub(super) products: Vec<B::Buffer>,
    /// One for each that products are projected from, where that is no input of a layer's.
    pub(super) latents: Vec<B::Buffer>,
}

/// What is projected, in the order of descriptions.
const PROJECTED: [T; 6] =
    [T::StateQuery, T::StateKey, T::StateValue, T::StateGate, T::StateStep, T::StateShare];

/// Which of a layer's tensors are projections of their own, and which parts lie in each: a tensor's first part stands for it.
fn stored(loader: &Loader<'_, impl Backend>, layer: usize) -> Vec<Vec<T>> {
    let (arch, mut stored) = (loader.arch, Vec::<Vec<T>>::new());
    let own: Vec<T> = T::of(&arch.layers[layer]).collect();
    for part in PROJECTED.into_iter().filter(|part| own.contains(part)) {
        if !stored.iter().any(|parts| parts.contains(&part)) {
            stored.push(arch.names.fused(&arch.layers[layer], part).collect());
        }
    }
    stored
}

impl<B: Backend> Recurrent<B> {
    pub(super) fn load(loader: &mut Loader<'_, B>, layer: usize, spec: &RecurrentSpec) -> Result<Self> {
        let stored = stored(loader, layer);
        let arch = loader.arch;
        let rows = |tensor: &T| tensor.shape(&arch.layers[layer], arch.hidden_size)[0];
        let projection = |parts: &Vec<T>| {
            let latent = match parts.first().filter(|_| spec.rank.is_some()) {
                Some(T::StateStep) => Some(loader.layer_matrix(layer, T::StateStepLatent)?),
                Some(T::StateGate) => Some(loader.layer_matrix(layer, T::StateGateLatent)?),
                _ => None,
            };
            let matrix = loader.whole_matrix(layer, parts)?;
            Ok::<_, Error>(Projection { latent, matrix, width: parts.iter().map(rows).sum() })
        };
        let projections = stored.iter().map(projection).collect::<Result<Vec<Projection<B>>>>()?;
        let first: Vec<_> =
            projections.iter().map(|own| own.latent.as_ref().unwrap_or(&own.matrix)).collect();
        first.chunks(TOGETHER).try_for_each(|some| loader.backend.expect(Expected::Products(some)))?;
        let part = |tensor: T| {
            let (product, parts) =
                stored.iter().enumerate().find(|(_, parts)| parts.contains(&tensor)).ok_or_else(|| {
                    Error::new(ErrorKind::Internal, "a projection of a state has no name")
                        .with("layer", layer)
                })?;
            let before = parts.iter().take_while(|other| **other != tensor).map(rows).sum::<usize>();
            let all = parts.iter().map(rows).sum::<usize>();
            let n = spec.n_key_heads;
            let by_head = match spec.interleaved {
                Interleaved::No => false,
                Interleaved::Yes => true,
                Interleaved::Scalars => matches!(tensor, T::StateStep | T::StateShare),
            };
            Ok::<_, Error>(match by_head {
                true => StatePart { product, first: before / n, stride: all / n },
                false => StatePart { product, first: before, stride: rows(&tensor) / n },
            })
        };
        let is_delta = spec.rule.replaces();
        let parts = StateParts {
            query: part(T::StateQuery)?,
            key: part(T::StateKey)?,
            value: part(T::StateValue)?,
            gate: part(T::StateGate)?,
            step: part(T::StateStep)?,
            share: is_delta.then(|| part(T::StateShare)).transpose()?,
        };
        let decay = loader.layer_numbers(layer, T::DecayRate)?;
        let rate = |stored: f32| match spec.decay {
            StoredDecay::Logarithm => math::exp_f32(stored),
            StoredDecay::Negative => -stored,
        };
        let decay = decay.into_iter().map(rate).collect();
        let [convolution, bias] = convolution(loader, layer, spec)?;
        let skip = (!is_delta).then(|| loader.layer_numbers(layer, T::StateSkip)).transpose()?;
        // It is stored as it is, whatever is added to other norms.
        let norm = loader.layer_numbers(layer, T::StateNorm)?;
        let vector = |values: Vec<f32>| loader.backend.vector(values);
        let vectors = StateVectors {
            convolution: vector(convolution)?,
            convolution_bias: spec.convolution_bias.then(|| vector(bias)).transpose()?,
            decay: vector(decay)?,
            step_bias: loader.layer_vector(layer, T::StepBias)?,
            skip: skip.map(vector).transpose()?,
            norm: vector(norm)?,
        };
        Ok(Self { projections, parts, vectors, output: loader.layer_matrix(layer, T::StateOutput)? })
    }
}

/// Weights by position, then channel, and biases by channel.
fn convolution<B: Backend>(
    loader: &mut Loader<'_, B>,
    layer: usize,
    spec: &RecurrentSpec,
) -> Result<[Vec<f32>; 2]> {
    let (n, mut weights, mut biases) =
        (spec.convolution, vec![0.0; spec.channels() * spec.convolution], Vec::new());
    let mut channel = 0;
    for tensor in [T::QueryConvolution, T::KeyConvolution, T::ValueConvolution] {
        let (own, bias) = loader.layer_channels(layer, tensor)?;
        for row in own.chunks_exact(n) {
            for (position, weight) in row.iter().enumerate() {
                weights[position * spec.channels() + channel] = *weight;
            }
            channel += 1;
        }
        biases.extend(bias);
    }
    Ok([weights, biases])
}

impl<B: Backend> Room<B> {
    /// Room for `rows` rows of layers like these, whose products are projected from vectors of up to `rank` elements; none
    /// where no layer has states.
    pub(super) fn new(
        backend: &B,
        rows: usize,
        layers: &[&Recurrent<B>],
        rank: Option<usize>,
    ) -> Result<Option<Self>> {
        let n = layers.iter().map(|layer| layer.projections.len()).max().unwrap_or(0);
        let width = |layer: &Recurrent<B>, at: usize| layer.projections.get(at).map(|own| own.width);
        let widest = |at: usize| layers.iter().filter_map(|layer| width(layer, at)).max();
        let products = (0..n).map(|at| backend.buffer(rows, widest(at).unwrap_or(0)));
        let products = products.collect::<Result<Vec<_>>>()?;
        let latents =
            |layer: &&Recurrent<B>| layer.projections.iter().filter(|own| own.latent.is_some()).count();
        let n_latents = layers.iter().map(latents).max().unwrap_or(0);
        let latents = (0..n_latents).map(|_| backend.buffer(rows, rank.unwrap_or(0)));
        let latents = latents.collect::<Result<_>>()?;
        Ok((n > 0).then_some(Self { products, latents }))
    }
}

impl<B: Backend> Decoder<B> {
    /// A layer's states.
    pub(super) fn recur(
        &self,
        (layer, spec, norm): (&Recurrent<B>, &RecurrentSpec, Option<&B::Vector>),
        work: &mut Workspace<B>,
        states: &mut B::States,
        rows: usize,
    ) -> Result<()> {
        let (b, eps) = (&*self.backend, self.spec.arch.norm.eps);
        let Workspace { stream, x, normed, added, attended, recurrent, runs, .. } = work;
        let Some(room) = recurrent else {
            return Err(Error::new(ErrorKind::Internal, "a layer with states has no room for its rows"));
        };
        let input = match norm {
            Some(norm) => {
                b.rms_norm(stream, x, norm, eps, rows, normed)?;
                &*normed
            }
            None => &*x,
        };
        // What the input is multiplied with, together; behind that, what latent vectors are.
        let mut latents = room.latents.iter_mut();
        let first =
            layer.projections.iter().zip(&mut room.products).filter_map(|(own, product)| match &own.latent {
                Some(to_latent) => latents.next().map(|latent| (to_latent, latent)),
                None => Some((&own.matrix, product)),
            });
        linear(b, stream, input, rows, first)?;
        let projected = layer.projections.iter().zip(&mut room.products);
        let behind = projected.filter(|(own, _)| own.latent.is_some());
        for ((own, product), latent) in behind.zip(&room.latents) {
            b.linear(stream, latent, rows, &mut [(&own.matrix, product)])?;
        }
        let Recurrent { parts, vectors, .. } = layer;
        let op = Recur { spec, eps, products: &room.products, parts, vectors, runs };
        b.recur(stream, &op, states, attended)?;
        b.linear(stream, attended, rows, &mut [(&layer.output, &mut *added)])
    }
}
