//! What does a layer's feed-forward block add to rows? Routes and shared experts here, the rest by
//! [whom the plan names](super::split).

use super::decoder::{Decoder, linear};
use super::experts::ExpertCall;
use super::layer::Layer;
use super::workspace::Workspace;
use crate::engine::StepCx;
use crate::engine::backend::{Backend, Routing};
use crate::error::Result;
use crate::ids::LayerIdx;

impl<B: Backend> Decoder<B> {
    /// A layer's feed-forward block.
    pub(super) fn feed_forward(
        &self,
        layer: &Layer<B>,
        index: LayerIdx,
        work: &mut Workspace<B>,
        rows: usize,
        cx: &StepCx<'_>,
    ) -> Result<()> {
        let (b, arch) = (&*self.backend, &*self.spec.arch);
        let (spec, eps) = (&arch.layers[index.0], arch.norm.eps);
        if spec.ffn.is_absent() {
            return Ok(());
        }
        let Workspace { stream, x, normed, added, inner, routing, shared, score, .. } = work;
        let apart = layer.router.as_ref().and_then(|router| router.apart.as_ref());
        let mut input = match &layer.ffn_norm {
            Some(norm) => {
                b.rms_norm(stream, x, norm, eps, rows, normed)?;
                &*normed
            }
            None => &*x,
        };
        // What the block's input is multiplied with, together: the router's, and the shared expert's.
        let [gate, up] = &mut *inner;
        let mut products = [None, None, None, None];
        if let Some(expert) = &layer.shared {
            (products[0], products[1]) = match &expert.gate {
                Some(to_gate) => (Some((to_gate, gate)), Some((&expert.up, up))),
                // What is without a gate is in its place.
                None => (Some((&expert.up, gate)), None),
            };
            products[2] = expert.score.as_ref().zip(score.as_mut());
        }
        if let (Some(router), Some((logits, _)), None) = (&layer.router, routing.as_mut(), apart) {
            products[3] = Some((&router.matrix, logits));
        }
        linear(b, stream, input, rows, products.into_iter().flatten())?;
        if let (Some(expert), Some(result)) = (&layer.shared, shared.as_mut()) {
            let down = &mut [(&expert.down, &mut *result)];
            b.gated_linear(stream, expert.spec.activation, inner, rows, down)?;
            if let (Some(_), Some(score)) = (&expert.score, score) {
                b.gate_heads(stream, result, score, arch.hidden_size, rows)?;
            }
        }
        let routes = match (&layer.router, &spec.ffn.experts, routing) {
            (Some(router), Some(experts), Some((logits, routes))) => {
                if let Some(apart) = apart {
                    b.rms_norm(stream, x, &apart.router, eps, rows, added)?;
                    b.linear(stream, added, rows, &mut [(&router.matrix, &mut *logits)])?;
                }
                let (correction, scales) = (router.correction.as_ref(), router.scales.as_ref());
                b.route(stream, &Routing { spec: experts, correction, scales }, logits, rows, routes)?;
                Some(&*routes)
            }
            _ => None,
        };
        if let Some(apart) = apart {
            b.rms_norm(stream, x, &apart.experts, eps, rows, normed)?;
            input = &*normed;
        }
        let (residual, output) = (&*x, &mut *added);
        let call =
            ExpertCall { backend: b, layer: index, routes, rows, input, residual, stream, inner, output };
        self.experts.forward(call, cx)?;
        match (apart, shared.as_ref().filter(|_| layer.shared.is_some())) {
            (Some(apart), Some(shared)) => {
                b.rms_norm(stream, added, &apart.behind_experts, eps, rows, normed)?;
                b.add_norm(stream, normed, shared, (&apart.behind_shared, eps), rows, added)?;
                return self.join(stream, layer.post_ffn_norm.as_ref(), x, normed, added, rows);
            }
            (_, Some(shared)) => b.add(stream, added, shared, 1.0, rows)?,
            (_, None) => {}
        }
        self.join(stream, layer.post_ffn_norm.as_ref(), x, added, normed, rows)
    }
}
