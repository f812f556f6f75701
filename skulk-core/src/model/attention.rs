//! How do rows attend to the positions before them? To latent vectors: [`latent`](super::latent).

use super::decoder::Decoder;
use super::layer::Attention;
use super::rotation::Rotation;
use super::workspace::Workspace;
use crate::arch::{AttentionSpec, QkNorm, RopeLayout};
use crate::engine::backend::{Attend, Backend, NormRope};
use crate::error::Result;

impl<B: Backend> Decoder<B> {
    /// A layer's attention.
    pub(super) fn attention(
        &self,
        (layer, attention, norm): (&Attention<B>, &AttentionSpec, Option<&B::Vector>),
        at: usize,
        work: &mut Workspace<B>,
        pages: &mut B::Pages,
        rows: usize,
    ) -> Result<()> {
        let (b, eps) = (&*self.backend, self.spec.arch.norm.eps);
        let Workspace {
            stream,
            spans,
            x,
            normed,
            added,
            query,
            key,
            value,
            attended,
            gate,
            gated,
            angles,
            all,
            joined,
            ..
        } = work;

        // Those that the layer does not have come last, and are left out.
        let [to_key, to_value] =
            [&layer.key, &layer.value].map(|matrix| matrix.as_ref().unwrap_or(&layer.query));
        let n_products = 1 + usize::from(layer.key.is_some()) + usize::from(layer.value.is_some());
        let projected = match (attention.output_gate, &mut *gated) {
            (true, Some(both)) => both,
            _ => &mut *query,
        };
        let mut products = [(&layer.query, projected), (to_key, &mut *key), (to_value, &mut *value)];
        let products = &mut products[..n_products];
        let input = match norm {
            Some(norm) => {
                b.norm_linear(stream, x, (norm, eps), normed, rows, products)?;
                &*normed
            }
            None => {
                let both = joined.as_ref().filter(|_| attention.beside_embedding);
                let input = both.map_or(&*x, |joined| &joined.both);
                b.linear(stream, input, rows, products)?;
                input
            }
        };
        if let (Some(matrix), Some(gate)) = (&layer.head_gate, gate.as_mut()) {
            b.linear(stream, input, rows, &mut [(matrix, gate)])?;
        }
        if attention.output_gate
            && let (Some(both), Some(gate)) = (&*gated, gate.as_mut())
        {
            b.split_heads(stream, both, attention.head_dim, rows, [query, gate])?;
        }
        let own_kv = layer.key.is_some();
        if own_kv && layer.value.is_none() {
            b.gather(stream, key, &all[..rows], value)?;
        }
        if let Some(ones) = &layer.value_norm {
            let op = NormRope {
                head_dim: attention.head_dim,
                plain: 0,
                norm: Some((ones, eps)),
                layout: RopeLayout::Halves,
            };
            b.norm_rope(stream, &op, None, rows, value)?;
        }
        let norms = layer.qk_norms.each_ref().map(|norm| norm.as_ref().map(|norm| (norm, eps)));
        let rotations = self.rotations.of_layer(at);
        let widths = [attention.query_width(), attention.kv_width()];
        let both = [&mut *query, &mut *key].into_iter().zip(widths).zip(norms).zip(rotations);
        for (((x, width), norm), rotation) in both.take(if own_kv { 2 } else { 1 }) {
            let rotation = rotation.map(|at| (&self.rotations.list()[at], &angles[at]));
            self.norm_rope(stream, attention, norm, rotation, [rows, width], x)?;
        }
        let op = Attend {
            attention,
            sinks: layer.sinks.as_ref(),
            spans: &spans[self.groups.of_layer(at)],
            chosen: None,
        };
        b.attend(stream, &op, query, own_kv.then_some([&*key, &*value]), pages, attended)?;
        if let Some(gate) = gate.as_ref().filter(|_| attention.output_gate) {
            b.gate_heads(stream, attended, gate, 1, rows)?;
        } else if let (Some(_), Some(gate)) = (&layer.head_gate, gate) {
            b.gate_heads(stream, attended, gate, attention.head_dim, rows)?;
        }
        b.linear(stream, attended, rows, &mut [(&layer.output, &mut *added)])
    }

    /// Norms queries or keys and rotates them, as their layer does.
    pub(super) fn norm_rope(
        &self,
        stream: &mut B::Stream,
        attention: &AttentionSpec,
        norm: Option<(&B::Vector, f32)>,
        rotation: Option<(&Rotation, &B::Buffer)>,
        [rows, width]: [usize; 2],
        x: &mut B::Buffer,
    ) -> Result<()> {
        let b = &*self.backend;
        let layout = rotation.map_or(RopeLayout::Halves, |(rotation, _)| rotation.layout);
        let (mut norm, angles) = (norm, rotation.map(|(_, angles)| angles));
        if attention.qk_norm == Some(QkNorm::All) {
            let op = NormRope { head_dim: width, plain: 0, norm: norm.take(), layout };
            b.norm_rope(stream, &op, None, rows, x)?;
        }
        if norm.is_none() && angles.is_none() {
            return Ok(());
        }
        let op = NormRope { head_dim: attention.head_dim, plain: 0, norm, layout };
        b.norm_rope(stream, &op, angles, rows, x)
    }
}
