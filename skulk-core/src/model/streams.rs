//! How do layers with several residual streams go on? They predict all and correct all; the decoder's blocks compute one.
//!
//! Between layers the streams lie in buffers of their own. A layer's prediction of the active one is what its blocks take
//! for the residual stream.

use super::decoder::Decoder;
use super::layer::Layer;
use super::load::Loader;
use super::workspace::Workspace;
use crate::arch::{LayerTensor as T, StreamsSpec};
use crate::engine::ShardSpec;
use crate::engine::backend::{Backend, Blend};
use crate::error::{Error, ErrorKind, Result};
use crate::weights::Region;

/// The mean square that a stream is taken to have at least where it is made as large as the first one.
const LEAST: f32 = 1e-5;

/// A layer's weights for its streams.
pub(super) struct Streams<B: Backend> {
    norm: B::Vector,
    router: B::Matrix,
    prediction: B::Vector,
    correction: B::Vector,
    scale: Option<B::Vector>,
}

/// A layer's way around attention.
pub(super) struct Bypass<B: Backend> {
    pub(super) down: B::Matrix,
    pub(super) up: B::Matrix,
    pub(super) norm: B::Vector,
}

/// What makes further streams of embeddings, on the first shard, and what takes them back, on the last one.
pub(super) struct StreamEnds<B: Backend> {
    spec: StreamsSpec,
    begin: Vec<B::Matrix>,
    end: Vec<B::Matrix>,
}

/// A step's streams.
pub(super) struct StreamRoom<B: Backend> {
    pub(super) own: Vec<B::Buffer>,
    /// What the layer at work predicts of them.
    predicted: Vec<B::Buffer>,
    /// How much streams take of others.
    shares: B::Buffer,
}

impl<B: Backend> Streams<B> {
    pub(super) fn load(loader: &mut Loader<'_, B>, layer: usize, spec: StreamsSpec) -> Result<Self> {
        let hidden = loader.arch.hidden_size as f32;
        let mut shares = |tensor| {
            let mut values = loader.layer_table(layer, tensor)?;
            if let Some(most) = spec.clip {
                values.iter_mut().for_each(|value| *value = value.clamp(-most, most));
            }
            loader.backend.vector(values)
        };
        let (prediction, correction) = (shares(T::StreamPrediction)?, shares(T::StreamCorrection)?);
        let scaled = spec.scaled && loader.arch.layers[layer].input.is_some();
        Ok(Self {
            norm: loader.layer_norm(layer, T::StreamNorm, hidden.recip())?,
            router: loader.layer_matrix(layer, T::StreamRouter)?,
            prediction,
            correction,
            scale: scaled.then(|| loader.layer_vector(layer, T::StreamScale)).transpose()?,
        })
    }
}

impl<B: Backend> Bypass<B> {
    pub(super) fn load(loader: &mut Loader<'_, B>, layer: usize) -> Result<Self> {
        Ok(Self {
            down: loader.layer_matrix(layer, T::BypassDown)?,
            up: loader.layer_matrix(layer, T::BypassUp)?,
            norm: loader.layer_norm(layer, T::BypassNorm, 1.0)?,
        })
    }
}

impl<B: Backend> StreamEnds<B> {
    /// Those of a model with several streams.
    pub(super) fn load(loader: &mut Loader<'_, B>, shard: &ShardSpec) -> Result<Option<Self>> {
        let arch = loader.arch;
        let (Some(spec), hidden) = (arch.streams(), arch.hidden_size) else { return Ok(None) };
        let [begin, end] = arch.stream_ends();
        let mut load = |wanted: bool, names: Vec<String>| -> Result<Vec<_>> {
            let names = names.iter().filter(|_| wanted);
            if !arch.names.stacks_streams() {
                return names.map(|name| loader.matrix(name, hidden, hidden, None)).collect();
            }
            let stacks = names.map(|name| loader.region(name, &[spec.n.saturating_sub(1), hidden, hidden]));
            let stacks = stacks.collect::<Result<Vec<_>>>()?;
            stacks.iter().flat_map(Region::parts).map(|part| loader.stored(part, None)).collect()
        };
        Ok(Some(Self { spec, begin: load(shard.is_first(), begin)?, end: load(shard.is_last(), end)? }))
    }

    pub(super) fn room(&self, backend: &B, shard: &ShardSpec) -> Result<StreamRoom<B>> {
        let buffer = |width| backend.buffer(shard.max_rows, width);
        let all = || (0..self.spec.n).map(|_| buffer(shard.arch.hidden_size)).collect::<Result<_>>();
        Ok(StreamRoom { own: all()?, predicted: all()?, shares: buffer(self.spec.n)? })
    }
}

fn missing() -> Error {
    Error::new(ErrorKind::Internal, "a layer's residual streams have no room, or no weights")
}

impl<B: Backend> Decoder<B> {
    /// Takes the streams that the stage before gave, `[rows, streams · hidden]`.
    pub(super) fn take_streams(&self, work: &mut Workspace<B>, given: &[f32], rows: usize) -> Result<()> {
        let (hidden, width) = (self.spec.arch.hidden_size, self.spec.arch.row_width());
        let Workspace { stream, streams, host, .. } = work;
        let room = streams.as_mut().ok_or_else(missing)?;
        host.resize(host.len().max(rows * hidden), 0.0);
        for (at, own) in room.own.iter_mut().enumerate() {
            for (to, from) in host.chunks_exact_mut(hidden).zip(given.chunks_exact(width)) {
                to.copy_from_slice(&from[at * hidden..][..hidden]);
            }
            self.backend.write(stream, &host[..rows * hidden], own)?;
        }
        Ok(())
    }

    /// Gives them to the next stage.
    pub(super) fn give_streams(&self, work: &mut Workspace<B>, to: &mut [f32], rows: usize) -> Result<()> {
        let (hidden, width) = (self.spec.arch.hidden_size, self.spec.arch.row_width());
        let Workspace { stream, streams, host, .. } = work;
        let room = streams.as_ref().ok_or_else(missing)?;
        host.resize(host.len().max(rows * hidden), 0.0);
        for (at, own) in room.own.iter().enumerate() {
            self.backend.read(stream, own, &mut host[..rows * hidden])?;
            for (to, from) in to.chunks_exact_mut(width).zip(host.chunks_exact(hidden)) {
                to[at * hidden..][..hidden].copy_from_slice(from);
            }
        }
        Ok(())
    }

    /// Makes them of embeddings: the first is these, the others are projections of the same size.
    pub(super) fn begin_streams(
        &self,
        ends: &StreamEnds<B>,
        work: &mut Workspace<B>,
        rows: usize,
    ) -> Result<()> {
        let b = &*self.backend;
        let Workspace { stream, streams, x, all, .. } = work;
        let (first, others) =
            streams.as_mut().and_then(|room| room.own.split_first_mut()).ok_or_else(missing)?;
        b.gather(stream, x, &all[..rows], first)?;
        for (matrix, own) in ends.begin.iter().zip(others) {
            b.linear(stream, x, rows, &mut [(matrix, &mut *own)])?;
            b.match_size(stream, own, x, LEAST, rows)?;
        }
        Ok(())
    }

    /// Makes one of them behind the last layer: the mean of the first and of projections of the others of the same size.
    pub(super) fn end_streams(
        &self,
        ends: &StreamEnds<B>,
        work: &mut Workspace<B>,
        rows: usize,
    ) -> Result<()> {
        let b = &*self.backend;
        let Workspace { stream, streams, x, added, all, .. } = work;
        let (first, others) = streams.as_ref().and_then(|room| room.own.split_first()).ok_or_else(missing)?;
        b.gather(stream, first, &all[..rows], x)?;
        for (matrix, own) in ends.end.iter().zip(others) {
            b.linear(stream, own, rows, &mut [(matrix, &mut *added)])?;
            b.match_size(stream, added, first, LEAST, rows)?;
            b.add(stream, x, added, 1.0, rows)?;
        }
        b.scale(stream, x, (ends.spec.n as f32).recip(), rows)
    }

    /// Predicts what the layer makes of its streams, of which its blocks compute the active one.
    pub(super) fn predict(
        &self,
        ends: &StreamEnds<B>,
        layer: &Layer<B>,
        work: &mut Workspace<B>,
        rows: usize,
    ) -> Result<()> {
        let (b, active) = (&*self.backend, ends.spec.active);
        let Workspace { stream, streams, x, normed, all, .. } = work;
        let (Some(room), Some(weights)) = (streams, &layer.streams) else { return Err(missing()) };
        let StreamRoom { own, predicted, shares } = room;
        self.shares(stream, weights, own.get(active).ok_or_else(missing)?, normed, shares, rows)?;
        for (own, predicted) in own.iter().zip(&mut *predicted) {
            b.gather(stream, own, &all[..rows], predicted)?;
        }
        let op = Blend { from: own, by: shares, weights: &weights.prediction, plus: 0.0 };
        b.blend(stream, &op, rows, predicted)?;
        b.gather(stream, predicted.get(active).ok_or_else(missing)?, &all[..rows], x)
    }

    /// Corrects the streams by how the active one is otherwise than predicted, then adds what the token gives the layer.
    pub(super) fn correct(
        &self,
        ends: &StreamEnds<B>,
        (layer, at): (&Layer<B>, usize),
        work: &mut Workspace<B>,
        rows: usize,
    ) -> Result<()> {
        let (b, active, eps) = (&*self.backend, ends.spec.active, self.spec.arch.norm.eps);
        let Workspace { stream, streams, x, normed, added, inner, inputs, all, .. } = work;
        let (Some(room), Some(weights)) = (streams, &layer.streams) else { return Err(missing()) };
        let StreamRoom { own, predicted, shares } = room;
        self.shares(stream, weights, x, normed, shares, rows)?;
        b.add(stream, x, predicted.get(active).ok_or_else(missing)?, -1.0, rows)?;
        let op = Blend { from: std::slice::from_ref(x), by: shares, weights: &weights.correction, plus: 1.0 };
        b.blend(stream, &op, rows, predicted)?;
        std::mem::swap(own, predicted);
        let (Some(input), Some(of_tokens), Some(given_room), Some(spec)) =
            (&layer.input, &self.inputs, inputs, self.spec.arch.inputs())
        else {
            return Ok(());
        };
        b.gather(stream, own.get(active).ok_or_else(missing)?, &all[..rows], x)?;
        if let Some(scale) = &weights.scale {
            b.scale_elements(stream, x, scale, rows)?;
        }
        let [gate, given] = inner;
        of_tokens.of_layer(b, stream, (given_room, at), input, rows, given)?;
        b.linear(stream, x, rows, &mut [(&input.gate, &mut *gate)])?;
        b.gated(stream, spec.activation, gate, given, rows)?;
        b.linear(stream, gate, rows, &mut [(&input.down, &mut *added)])?;
        b.rms_norm(stream, added, &input.norm, eps, rows, normed)?;
        own.iter_mut().skip(1).try_for_each(|own| b.add(stream, own, normed, 1.0, rows))
    }

    /// What of a stream says how much others take.
    fn shares(
        &self,
        stream: &mut B::Stream,
        weights: &Streams<B>,
        x: &B::Buffer,
        normed: &mut B::Buffer,
        shares: &mut B::Buffer,
        rows: usize,
    ) -> Result<()> {
        let b = &*self.backend;
        b.rms_norm(stream, x, &weights.norm, self.spec.arch.norm.eps, rows, normed)?;
        b.linear(stream, normed, rows, &mut [(&weights.router, &mut *shares)])?;
        b.softcap(stream, shares, 1.0, rows)
    }
}
