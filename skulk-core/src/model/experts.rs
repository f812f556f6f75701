//! Who computes a layer's feed-forward block? Providers of experts; here the resident one.
//!
//! A dense block is one expert. The decoder norms the input, asks the provider, and adds the
//! result; where the weights lie is the provider's business alone.

use std::ops::Range;

use super::load::Loader;
use crate::arch::{ArchSpec, FfnSpec, LayerTensor};
use crate::engine::StepCx;
use crate::engine::backend::Backend;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{ExpertIdx, LayerIdx};

/// One expert's work in one step.
pub(super) struct ExpertCall<'a, B: Backend> {
    pub(super) backend: &'a B,
    pub(super) layer: LayerIdx,
    pub(super) expert: ExpertIdx,
    /// Rows of input and output.
    pub(super) rows: usize,
    /// Normed hidden states `[rows, hidden]`.
    pub(super) input: &'a B::Buffer,
    pub(super) scratch: &'a mut B::Scratch,
    /// Room for the inner activations, `[rows, width]` each.
    pub(super) inner: &'a mut [B::Buffer; 2],
    /// Takes the expert's result `[rows, hidden]`.
    pub(super) output: &'a mut B::Buffer,
}

/// Computes experts, wherever their weights are.
pub(super) trait ExpertProvider<B: Backend>: Send + Sync {
    /// Computes one expert for the call's rows.
    ///
    /// # Errors
    /// A missing expert or a lost reply is an error, never zeros.
    fn forward(&self, call: ExpertCall<'_, B>, cx: &StepCx<'_>) -> Result<()>;
}

/// Experts whose weights the engine itself holds.
pub(super) struct ResidentExperts<B: Backend> {
    first_layer: usize,
    blocks: Vec<Block<B>>,
}

struct Block<B: Backend> {
    spec: FfnSpec,
    gate: B::Matrix,
    up: B::Matrix,
    down: B::Matrix,
}

impl<B: Backend> ResidentExperts<B> {
    /// Room for the blocks of a range of layers, which [`load_layer`](Self::load_layer) fills.
    pub(super) fn new(layers: &Range<usize>) -> Self {
        Self { first_layer: layers.start, blocks: Vec::with_capacity(layers.len()) }
    }

    /// Loads the next layer's block.
    pub(super) fn load_layer(&mut self, loader: &mut Loader<'_, B>, arch: &ArchSpec) -> Result<()> {
        let layer = self.first_layer + self.blocks.len();
        let spec = arch.layers[layer].ffn.clone();
        let (hidden, width, bias) = (arch.hidden_size, spec.width, spec.bias);
        self.blocks.push(Block {
            gate: loader.layer_matrix(layer, LayerTensor::FfnGate, width, hidden, bias)?,
            up: loader.layer_matrix(layer, LayerTensor::FfnUp, width, hidden, bias)?,
            down: loader.layer_matrix(layer, LayerTensor::FfnDown, hidden, width, bias)?,
            spec,
        });
        Ok(())
    }
}

impl<B: Backend> ExpertProvider<B> for ResidentExperts<B> {
    fn forward(&self, call: ExpertCall<'_, B>, _cx: &StepCx<'_>) -> Result<()> {
        let ExpertCall { backend, layer, expert, rows, input, scratch, inner, output } = call;
        let block = layer.0.checked_sub(self.first_layer).and_then(|at| self.blocks.get(at));
        let Some(block) = block.filter(|_| expert == ExpertIdx(0)) else {
            return Err(Error::new(ErrorKind::Internal, "the provider does not hold this expert")
                .with("layer", layer)
                .with("expert", expert));
        };
        let [gate, up] = inner;
        backend.linear(scratch, input, rows, &mut [(&block.gate, gate), (&block.up, up)])?;
        backend.gated(block.spec.activation, gate, up, rows)?;
        backend.linear(scratch, gate, rows, &mut [(&block.down, output)])
    }
}
