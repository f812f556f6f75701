//! How does a layer attend to latent vectors? In their own space: projections of theirs to heads' keys and values are
//! multiplied with queries and results instead, so that one vector for each position serves all heads.

use super::decoder::Decoder;
use super::layer::Attention;
use super::load::Loader;
use super::workspace::Workspace;
use crate::arch::{AttentionSpec, LatentSpec, LayerTensor as T, RopeLayout, RowWidths};
use crate::engine::backend::{Attend, Backend, Choose, Expected, NormRope};
use crate::error::{Error, ErrorKind, Result};

/// What attention to latent vectors has beside.
pub(super) struct Latent<B: Backend> {
    /// What queries are projected from, and its norm.
    query: Option<(B::Matrix, B::Vector)>,
    norm: B::Vector,
    /// Of each head, what takes queries to latent vectors.
    keys: B::Stack,
    /// Of each head, what takes latent vectors to values.
    values: B::Stack,
    index: Option<Index<B>>,
}

/// What chooses the positions that rows see, where the layer has such.
struct Index<B: Backend> {
    query: B::Matrix,
    key: B::Matrix,
    /// Weights and biases.
    norm: [B::Vector; 2],
    weights: B::Matrix,
}

/// What it needs beside in a step.
pub(super) struct LatentRoom<B: Backend> {
    /// What queries are projected from.
    from: Option<B::Buffer>,
    /// Queries as they meet latent vectors.
    query: B::Buffer,
    /// The indexer's queries, keys, and what its heads count.
    index: Option<[B::Buffer; 3]>,
    /// What the last layer chose that chooses.
    chosen: B::Chosen,
}

impl<B: Backend> Latent<B> {
    pub(super) fn load(
        loader: &mut Loader<'_, B>,
        layer: usize,
        (attention, spec): (&AttentionSpec, LatentSpec),
    ) -> Result<Self> {
        let query = match spec.query_rank {
            Some(_) => Some((
                loader.layer_matrix(layer, T::QueryLatent)?,
                loader.layer_norm(layer, T::QueryLatentNorm, 1.0)?,
            )),
            None => None,
        };
        let norm = loader.layer_norm(layer, T::LatentNorm, 1.0)?;
        let [keys, values] = loader.latent_heads(layer)?;
        let index = match attention.own_index() {
            Some(_) => Some(Index {
                query: loader.layer_matrix(layer, T::IndexQuery)?,
                key: loader.layer_matrix(layer, T::IndexKey)?,
                norm: loader.layer_affine(layer, T::IndexKeyNorm)?,
                weights: loader.layer_matrix(layer, T::IndexWeights)?,
            }),
            None => None,
        };
        if let Some(index) = &index {
            loader.backend.expect(Expected::Products(&[&index.key, &index.weights]))?;
        }
        Ok(Self { query, norm, keys, values, index })
    }

    /// What a layer's input is multiplied with for queries: they come of it, or of a latent vector.
    pub(super) fn first<'a>(&'a self, query: &'a B::Matrix) -> &'a B::Matrix {
        self.query.as_ref().map_or(query, |(to_latent, _)| to_latent)
    }
}

impl<B: Backend> LatentRoom<B> {
    /// Room for rows of these widths, which `buffer` makes; none where no layer needs it.
    pub(super) fn new(
        widths: &RowWidths,
        buffer: impl Fn(usize) -> Result<B::Buffer>,
    ) -> Result<Option<Self>> {
        let [rank, width] = widths.latent;
        if width == 0 {
            return Ok(None);
        }
        let from = (rank > 0).then(|| buffer(rank)).transpose()?;
        let index = match widths.index {
            [0, ..] => None,
            [query, key, weights] => Some([buffer(query)?, buffer(key)?, buffer(weights)?]),
        };
        Ok(Some(Self { from, query: buffer(width)?, index, chosen: B::Chosen::default() }))
    }
}

impl<B: Backend> Decoder<B> {
    /// A layer's attention to latent vectors.
    pub(super) fn latent_attention(
        &self,
        (layer, weights): (&Attention<B>, &Latent<B>),
        (attention, norm): (&AttentionSpec, Option<&B::Vector>),
        at: usize,
        work: &mut Workspace<B>,
        pages: &mut B::Pages,
        rows: usize,
    ) -> Result<()> {
        let (b, eps) = (&*self.backend, self.spec.arch.norm.eps);
        let Workspace {
            stream, spans, x, normed, added, query, key, value, attended, latent, angles, ..
        } = work;
        let (Some(spec), Some(room), Some(to_key), Some(to_value)) =
            (attention.latent, latent, &layer.key, &layer.value)
        else {
            return Err(Error::new(ErrorKind::Internal, "a layer has no latent vectors"));
        };
        // Both kinds of latent vectors are normed where they are.
        let normed_as = |norm, width| NormRope {
            head_dim: width,
            plain: 0,
            norm: Some((norm, spec.eps)),
            layout: RopeLayout::Halves,
        };

        let first = match (&weights.query, &mut room.from) {
            (Some((to_latent, _)), Some(from)) => (to_latent, from),
            _ => (&layer.query, &mut *query),
        };
        let products = &mut [first, (to_key, &mut *key), (to_value, &mut *value)];
        match norm {
            Some(norm) => b.norm_linear(stream, x, (norm, eps), normed, rows, products)?,
            None => b.linear(stream, x, rows, products)?,
        }
        if let (Some((_, norm)), Some(from), Some(rank)) = (&weights.query, &mut room.from, spec.query_rank) {
            b.norm_rope(stream, &normed_as(norm, rank), None, rows, from)?;
            b.linear(stream, from, rows, &mut [(&layer.query, &mut *query)])?;
        }
        b.norm_rope(stream, &normed_as(&weights.norm, spec.rank), None, rows, value)?;
        let parts = [(&mut *query, spec.plain), (&mut *key, 0)].into_iter().zip(self.rotations.of_layer(at));
        for ((x, plain), rotation) in parts {
            let Some(rotation) = rotation else { continue };
            let (layout, angles) = (self.rotations.list()[rotation].layout, &angles[rotation]);
            let op = NormRope { head_dim: plain + spec.rotated, plain, norm: None, layout };
            b.norm_rope(stream, &op, Some(angles), rows, x)?;
        }

        let (spans, kv) = (&spans[self.groups.of_layer(at)], [&*key, &*value]);
        let LatentRoom { from, query: absorbed, index: index_room, chosen } = room;
        let mut stored = false;
        if let (Some(own), Some(index), Some(from), Some([query, key, counts])) =
            (&weights.index, attention.own_index(), from, index_room)
        {
            let input = if norm.is_some() { &*normed } else { &*x };
            b.linear(stream, from, rows, &mut [(&own.query, &mut *query)])?;
            b.linear(stream, input, rows, &mut [(&own.key, &mut *key), (&own.weights, &mut *counts)])?;
            b.layer_norm(stream, (own.norm.each_ref(), index.eps), rows, key)?;
            for (x, rotation) in [&mut *query, &mut *key].into_iter().zip(self.rotations.of_layer(at)) {
                let Some(rotation) = rotation else { continue };
                let op = NormRope { head_dim: index.head_dim, plain: 0, norm: None, layout: index.layout };
                b.norm_rope(stream, &op, Some(&angles[rotation]), rows, x)?;
            }
            let op = Choose { index, spans, kv, query, key, weights: counts };
            b.choose(stream, &op, pages, chosen)?;
            stored = true;
        }

        b.linear_heads(stream, &weights.keys, query, rows, absorbed)?;
        let chosen = spec.index.map(|_| &*chosen);
        let op = Attend { attention, sinks: layer.sinks.as_ref(), spans, chosen };
        b.attend(stream, &op, absorbed, (!stored).then_some(kv), pages, attended)?;
        b.linear_heads(stream, &weights.values, attended, rows, query)?;
        b.linear(stream, query, rows, &mut [(&layer.output, &mut *added)])
    }
}
