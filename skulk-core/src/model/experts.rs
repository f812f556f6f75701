//! Who computes a layer's feed-forward block? Providers of experts; here the resident one.
//!
//! A dense block is one expert. The decoder norms the input, routes its rows, asks the provider, and
//! adds the result; where the weights lie is the provider's business alone.

use std::ops::Range;

use super::load::Loader;
use crate::arch::{Activation, ExpertsSpec, LayerTensor};
use crate::engine::StepCx;
use crate::engine::backend::{Backend, Experts};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::LayerIdx;

/// One layer's feed-forward work in one step.
pub(super) struct ExpertCall<'a, B: Backend> {
    pub(super) backend: &'a B,
    pub(super) layer: LayerIdx,
    /// Which experts each row takes; `None` where the layer is dense: all rows take its only one.
    pub(super) routes: Option<&'a B::Routes>,
    /// Rows of input and output.
    pub(super) rows: usize,
    /// Normed hidden states `[rows, hidden]`.
    pub(super) input: &'a B::Buffer,
    pub(super) stream: &'a mut B::Stream,
    /// Room for the inner activations, `[rows, width]` each.
    pub(super) inner: &'a mut [B::Buffer; 2],
    /// Takes the block's result `[rows, hidden]`.
    pub(super) output: &'a mut B::Buffer,
}

/// Computes experts, wherever their weights are.
pub(super) trait ExpertProvider<B: Backend>: Send + Sync {
    /// Loads the block of the shard's next layer; `loader` is the device's.
    ///
    /// # Errors
    /// Whatever is wrong with its weights.
    fn load_layer(&mut self, loader: &mut Loader<'_, B>) -> Result<()>;

    /// Computes one layer's experts for the call's rows and adds up what they give.
    ///
    /// # Errors
    /// A missing expert or a lost reply is an error, never zeros.
    fn forward(&self, call: ExpertCall<'_, B>, cx: &StepCx<'_>) -> Result<()>;
}

/// Experts whose weights the engine itself holds.
pub(super) struct ResidentExperts<B: Backend> {
    first_layer: usize,
    /// `None` where somebody else has the layer's block.
    blocks: Vec<Option<Block<B>>>,
}

struct Block<B: Backend> {
    activation: Activation,
    weights: Weights<B>,
}

/// Gate, up and down.
enum Weights<B: Backend> {
    Dense([B::Matrix; 3]),
    Experts([B::Stack; 3]),
}

impl<B: Backend> ResidentExperts<B> {
    /// Room for the blocks of a range of layers, which [`load_layer`](ExpertProvider::load_layer) fills.
    pub(super) fn new(layers: &Range<usize>) -> Self {
        Self { first_layer: layers.start, blocks: Vec::with_capacity(layers.len()) }
    }

    /// Leaves the next layer's block to somebody else.
    pub(super) fn skip_layer(&mut self) {
        self.blocks.push(None);
    }

    /// The layer that comes next.
    pub(super) fn next_layer(&self) -> usize {
        self.first_layer + self.blocks.len()
    }
}

impl<B: Backend> ExpertProvider<B> for ResidentExperts<B> {
    fn load_layer(&mut self, loader: &mut Loader<'_, B>) -> Result<()> {
        use LayerTensor as T;
        let arch = loader.arch;
        let layer = self.next_layer();
        let spec = &arch.layers[layer].ffn;
        let (hidden, width, bias) = (arch.hidden_size, spec.width, spec.bias);
        let weights = match spec.experts {
            None => Weights::Dense([
                loader.layer_matrix(layer, T::FfnGate, width, hidden, bias)?,
                loader.layer_matrix(layer, T::FfnUp, width, hidden, bias)?,
                loader.layer_matrix(layer, T::FfnDown, hidden, width, bias)?,
            ]),
            Some(ExpertsSpec { n_experts: n, .. }) => Weights::Experts([
                loader.layer_experts(layer, T::ExpertGate, [n, width, hidden])?,
                loader.layer_experts(layer, T::ExpertUp, [n, width, hidden])?,
                loader.layer_experts(layer, T::ExpertDown, [n, hidden, width])?,
            ]),
        };
        self.blocks.push(Some(Block { activation: spec.activation, weights }));
        Ok(())
    }

    fn forward(&self, call: ExpertCall<'_, B>, _cx: &StepCx<'_>) -> Result<()> {
        let ExpertCall { backend, layer, routes, rows, input, stream, inner, output } = call;
        let block = layer.0.checked_sub(self.first_layer).and_then(|at| self.blocks.get(at)?.as_ref());
        match (block, routes) {
            (Some(Block { activation, weights: Weights::Experts([gate, up, down]) }), Some(routes)) => {
                let op = Experts { activation: *activation, routes, gate, up, down };
                backend.experts(stream, &op, input, rows, inner, output)
            }
            (Some(Block { activation, weights: Weights::Dense([to_gate, to_up, down]) }), None) => {
                let [gate, up] = &mut *inner;
                backend.linear(stream, input, rows, &mut [(to_gate, gate), (to_up, up)])?;
                backend.gated_linear(stream, *activation, inner, rows, &mut [(down, output)])
            }
            _ => Err(Error::new(ErrorKind::Internal, "the provider does not hold these experts")
                .with("layer", layer)),
        }
    }
}
