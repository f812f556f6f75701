//! What does each layer get of a token beside the residual stream? A row of a table, which stays in its file, and a
//! projection of the token's embedding.
//!
//! The table has as many rows as the embedding table and is larger, but a step reads one row of it a token: so the host does,
//! on all engines.

use std::ops::Range;

use super::load::Loader;
use crate::arch::{LayerTensor, RopeLayout};
use crate::engine::ShardSpec;
use crate::engine::backend::{Backend, NormRope};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::TokenId;
use crate::weights::Region;

/// A shard's part of what tokens give its layers.
pub(super) struct LayerInputs<B: Backend> {
    table: Region,
    width: usize,
    /// Where the shard's layers lie in a row of the table.
    own: Range<usize>,
    /// Of projections, with what the sum of both is divided by.
    norm: B::Vector,
    eps: f32,
    /// Multiplies the table's rows.
    factor: f32,
}

/// What a step's tokens give the layers.
pub(super) struct InputRoom<B: Backend> {
    embedded: B::Buffer,
    /// Rows of the table, by layer of the shard.
    rows: Vec<B::Buffer>,
    row: Vec<f32>,
    host: Vec<f32>,
}

/// A layer's weights for its input.
pub(super) struct InputWeights<B: Backend> {
    /// From embeddings.
    projection: B::Matrix,
    pub(super) gate: B::Matrix,
    pub(super) down: B::Matrix,
    pub(super) norm: B::Vector,
}

impl<B: Backend> InputWeights<B> {
    pub(super) fn load(loader: &mut Loader<'_, B>, layer: usize) -> Result<Self> {
        Ok(Self {
            projection: loader.input_projection(layer)?,
            gate: loader.layer_matrix(layer, LayerTensor::InputGate)?,
            down: loader.layer_matrix(layer, LayerTensor::InputProjection)?,
            norm: loader.layer_norm(layer, LayerTensor::PostInputNorm, 1.0)?,
        })
    }
}

impl<B: Backend> LayerInputs<B> {
    /// Those of a model whose layers have such inputs.
    pub(super) fn load(loader: &mut Loader<'_, B>, spec: &ShardSpec) -> Result<Option<Self>> {
        let arch = loader.arch;
        let Some(input) = arch.inputs() else { return Ok(None) };
        let width = input.width;
        let half = std::f32::consts::FRAC_1_SQRT_2;
        Ok(Some(Self {
            table: loader.input_table(input)?,
            width,
            own: spec.layers.start * width..spec.layers.end * width,
            norm: loader.norm(&arch.names.input_norm(), width, half)?,
            // Projections are divided by the root of the hidden size, which their norm sees in nothing but this.
            eps: arch.norm.eps * arch.hidden_size as f32,
            factor: (width as f32).sqrt() * half,
        }))
    }

    pub(super) fn room(&self, backend: &B, spec: &ShardSpec) -> Result<InputRoom<B>> {
        let buffer = |width| backend.buffer(spec.max_rows, width);
        Ok(InputRoom {
            embedded: buffer(spec.arch.hidden_size)?,
            rows: spec.layers.clone().map(|_| buffer(self.width)).collect::<Result<_>>()?,
            row: zeros(self.table.row_len())?,
            host: zeros(spec.max_rows.saturating_mul(self.own.len()))?,
        })
    }

    /// Brings what a step's tokens give to the device, before anything is recorded.
    pub(super) fn begin(
        &self,
        b: &B,
        stream: &mut B::Stream,
        room: &mut InputRoom<B>,
        (embedding, scale): (&B::Matrix, f32),
        tokens: &[TokenId],
    ) -> Result<()> {
        let InputRoom { embedded, rows, row, host } = room;
        let (n, width) = (tokens.len(), self.width);
        for (at, token) in tokens.iter().enumerate() {
            // Tokens that the table lacks have the first one's.
            let token = Some(token.0 as usize).filter(|token| *token < self.table.rows()).unwrap_or(0);
            self.table.read_rows(token..token + 1, row)?;
            for (layer, from) in row[self.own.clone()].chunks_exact(width).enumerate() {
                let to = &mut host[(layer * n + at) * width..][..width];
                to.iter_mut().zip(from).for_each(|(to, from)| *to = self.factor * from);
            }
        }
        for (rows, host) in rows.iter_mut().zip(host.chunks_exact(n * width)) {
            b.write(stream, host, rows)?;
        }
        b.embed(stream, embedding, tokens, scale, embedded)
    }

    /// What a layer of the shard gets.
    pub(super) fn of_layer(
        &self,
        b: &B,
        stream: &mut B::Stream,
        (room, at): (&InputRoom<B>, usize),
        weights: &InputWeights<B>,
        rows: usize,
        out: &mut B::Buffer,
    ) -> Result<()> {
        b.linear(stream, &room.embedded, rows, &mut [(&weights.projection, &mut *out)])?;
        let norm = Some((&self.norm, self.eps));
        b.norm_rope(
            stream,
            &NormRope { head_dim: self.width, plain: 0, norm, layout: RopeLayout::Halves },
            None,
            rows,
            out,
        )?;
        let given = room.rows.get(at).ok_or_else(|| {
            Error::new(ErrorKind::Internal, "a layer without room for what tokens give it").with("layer", at)
        })?;
        b.add(stream, out, given, 1.0, rows)
    }
}

/// Memory that is asked for first: else what there is not ends the process.
fn zeros(len: usize) -> Result<Vec<f32>> {
    Vec::<f32>::new().try_reserve_exact(len).map_err(|e| {
        Error::new(ErrorKind::OutOfMemory, format!("cannot reserve {len} numbers of what tokens give layers"))
            .with_hint("use a smaller prefill chunk")
            .with_source(e)
    })?;
    Ok(vec![0.0; len])
}
