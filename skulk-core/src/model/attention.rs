//! How do rows attend to the positions before them? To latent vectors: [`latent`](super::latent).

use super::decoder::Decoder;
use super::layer::Attention;
use super::workspace::Workspace;
use crate::arch::{AttentionSpec, QkNorm, RopeLayout};
use crate::engine::backend::{Attend, Backend, NormRope, Turn};
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
        let of_value = layer.value_norm.as_ref().map(|ones| {
            let layout = RopeLayout::Halves;
            let op = NormRope { head_dim: attention.head_dim, plain: 0, norm: Some((ones, eps)), layout };
            Turn { op, angles: None }
        });
        let norms = layer.qk_norms.each_ref().map(|norm| norm.as_ref().map(|norm| (norm, eps)));
        let widths = [attention.query_width(), attention.kv_width()];
        let whole = attention.qk_norm == Some(QkNorm::All);
        let both = [&mut *query, &mut *key].into_iter().zip(norms).zip(widths);
        for ((x, norm), head_dim) in both.take(if own_kv { 2 } else { 1 }).filter(|_| whole) {
            let op = NormRope { head_dim, plain: 0, norm, layout: RopeLayout::Halves };
            b.norm_rope(stream, &op, None, rows, x)?;
        }
        let [q_rotation, k_rotation] = self.rotations.of_layer(at);
        let turn = |norm: Option<_>, rotation: Option<usize>| {
            let angles = rotation.map(|at| &angles[at]);
            let layout = rotation.map_or(RopeLayout::Halves, |at| self.rotations.list()[at].layout);
            let norm = norm.filter(|_| !whole);
            let op = NormRope { head_dim: attention.head_dim, plain: 0, norm, layout };
            (norm.is_some() || angles.is_some()).then_some(Turn { op, angles })
        };
        let turns = [turn(norms[0], q_rotation), turn(norms[1], k_rotation), of_value];
        let op = Attend {
            attention,
            sinks: layer.sinks.as_ref(),
            spans: &spans[self.groups.of_layer(at)],
            chosen: None,
        };
        let heads = (&mut *query, own_kv.then_some([&mut *key, &mut *value]));
        b.attend_turned(stream, &op, (&turns, rows), heads, pages, attended)?;
        if let Some(gate) = gate.as_ref().filter(|_| attention.output_gate) {
            b.gate_heads(stream, attended, gate, 1, rows)?;
        } else if let (Some(_), Some(gate)) = (&layer.head_gate, gate) {
            b.gate_heads(stream, attended, gate, attention.head_dim, rows)?;
        }
        b.linear(stream, attended, rows, &mut [(&layer.output, &mut *added)])
    }
}
